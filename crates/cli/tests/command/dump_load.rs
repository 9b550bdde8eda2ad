//! A database with all that `dump` and `load` may meet: the copy holds the same pairs, and has the
//! merge operators and options that `load` is given, but no times to live.

use std::path::Path;

use crate::support::{Dir, files, run, run_with};

/// Lines of `batch`: keyspaces, operands, deletes, and values with a time to live.
fn lines() -> String {
    let mut lines = String::from("putttl 1h session asha\nputttl ever lasting yes\nputttl 1ms gone soon\n");
    for number in 0..40 {
        lines += &format!("put k{number:02} value {number}\n");
        lines += &format!("in blobs put b{number:02} {}\n", format!("{number:03}").repeat(100));
    }
    lines += "put k01 newer\ndel k02\ndelrange k10 k20\nin blobs del b07\nin blobs put b08 short\n";
    lines += "put \\x00\\xff \\x09\\x0a\\x5c\nput empty \n";
    lines
}

#[test]
fn a_copy_holds_the_same_pairs_without_times_to_live() {
    let dir = Dir::new();
    let (db, copy) = (dir.path("db"), dir.path("copy"));
    let of_keyspaces: [(&str, &[&str]); 4] = [
        ("blobs", &["--keyspace-option", "value-threshold=64"]),
        ("counters", &["--merge-operator", "shamba.add-u64"]),
        ("default", &[]),
        ("journal", &["--merge-operator", "shamba.append:0a"]),
    ];
    let merge = |db: &str, keyspace: &str, key: &str, operand: &str, more: &[&str]| {
        run(["merge", db, key, operand, "--keyspace", keyspace].iter().chain(more)).ok();
    };
    run_with(["batch", &db], lines().as_bytes()).ok();
    run_with(["batch", &db, "--keyspace", "blobs"].iter().chain(of_keyspaces[0].1), b"").ok();
    merge(&db, "counters", "visits", "40", &["--number", "--merge-operator", "shamba.add-u64"]);
    merge(&db, "journal", "monday", "rain", &["--merge-operator", "shamba.append:0a"]);
    run(["compact", &db]).ok();
    assert!(!files(&db, "values").is_empty(), "long values are in value files");
    // Operands above compacted ones, and an entry that the log alone has.
    merge(&db, "counters", "visits", "2", &["--number"]);
    merge(&db, "journal", "monday", "wind", &[]);
    run(["put", &db, "late", "1"]).ok();
    let is_gone = || run(["get", &db, "gone"]).code == 1;
    while !is_gone() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    let all = run(["dump", &db, "--all"]).ok();
    assert_eq!(all.lines().filter(|line| line.starts_with('#')).count(), of_keyspaces.len());
    assert_eq!(all.lines().count(), of_keyspaces.len() + 39 + 1 + 34 + 1, "{all}");
    for (keyspace, options) in of_keyspaces {
        let dump = run(["dump", &db, "--keyspace", keyspace]).ok();
        assert!(all.contains(&dump), "{keyspace}");
        let load = ["load", &copy, "-", "--format", "tsv", "--hex", "--keyspace", keyspace];
        run_with(load.iter().chain(options), dump.as_bytes()).ok();
    }
    assert!(run(["dump", &copy, "--all"]).ok() == all, "the copy has other pairs");
    run(["compact", &copy]).ok();
    assert!(run(["dump", &copy, "--all"]).ok() == all, "the compacted copy has other pairs");
    assert!(!files(&copy, "values").is_empty(), "long values are in value files of the copy");
    for db in [&db, &copy] {
        run(["check", db]).ok();
    }

    // The operators go on in the copy. Times to live have stayed behind, and a checkpoint has them.
    merge(&copy, "counters", "visits", "3", &["--number"]);
    let get = |db: &str, more: &[&str]| run(["get", db].iter().chain(more)).ok();
    assert_eq!(get(&copy, &["visits", "--number", "--keyspace", "counters"]), "45\n");
    assert_eq!(get(&copy, &["monday", "--keyspace", "journal"]), "rain\\x0awind\n");
    assert_eq!(get(&copy, &["session", "--ttl"]), "ever\n");
    let same = dir.path("same");
    run(["checkpoint", &db, &same]).ok();
    assert_ne!(get(&same, &["session", "--ttl"]), "ever\n");
    assert!(Path::new(&same).is_dir() && run(["dump", &same, "--all"]).ok() == all);
}
