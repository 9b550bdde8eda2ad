//! A database with all that `dump` and `load` may meet: the copy holds the same pairs, which expire
//! at the same time, and has the merge operators and options that `load` is given.

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
fn a_copy_holds_the_same_pairs_and_expires_with_the_database() {
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
    assert_same(&run(["dump", &copy, "--all"]).ok(), &all);
    run(["compact", &copy]).ok();
    assert_same(&run(["dump", &copy, "--all"]).ok(), &all);
    assert!(!files(&copy, "values").is_empty(), "long values are in value files of the copy");
    for db in [&db, &copy] {
        run(["check", db]).ok();
    }

    // The operators go on in the copy.
    merge(&copy, "counters", "visits", "3", &["--number"]);
    let get = |db: &str, more: &[&str]| run(["get", db].iter().chain(more)).ok();
    assert_eq!(get(&copy, &["visits", "--number", "--keyspace", "counters"]), "45\n");
    assert_eq!(get(&copy, &["monday", "--keyspace", "journal"]), "rain\\x0awind\n");
    for (key, lasts) in [("session", false), ("lasting", true), ("late", true)] {
        assert_eq!(get(&copy, &[key, "--ttl"]) == "ever\n", lasts, "{key}");
    }
    let json = run(["dump", &copy, "--json"]).ok();
    assert_eq!(json.lines().filter(|line| line.contains("\"expiry_ms\"")).count(), 1, "{json}");
    let same = dir.path("same");
    run(["checkpoint", &db, &same]).ok();
    assert_ne!(get(&same, &["session", "--ttl"]), "ever\n");
    assert!(Path::new(&same).is_dir() && run(["dump", &same, "--all"]).ok() == all);
}

/// Asserts that two dumps have the same pairs, whose expiries differ by the time of a load at most.
fn assert_same(dump: &str, expected: &str) {
    assert_eq!(dump.lines().count(), expected.lines().count());
    for (line, expected) in dump.lines().zip(expected.lines()) {
        let expiry = |line: &str| line.split('\t').nth(2).map(|text| text.parse::<u64>().expect("a time"));
        let pair = |line: &str| line.split('\t').take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(pair(line), pair(expected));
        match (expiry(line), expiry(expected)) {
            (Some(found_ms), Some(expected_ms)) => {
                assert!(found_ms.abs_diff(expected_ms) < 30_000, "{found_ms}, not {expected_ms}");
            }
            (found, expected) => assert_eq!(found, expected, "{line}"),
        }
    }
}

#[test]
fn what_has_expired_since_the_dump_is_not_loaded() {
    let dir = Dir::new();
    let copy = dir.path("copy");
    let load = ["load", &copy, "-", "--format", "tsv", "--hex"];
    let out = run_with(load, b"61\t31\t1700000000000\n62\t32\t99999999999999\n63\t33\n").ok();
    assert!(out.starts_with("2 records loaded, 0 lines skipped, 1 had expired,"), "{out}");
    assert_eq!(
        run(["dump", &copy]).ok().lines().map(|line| &line[..5]).collect::<Vec<_>>(),
        ["62\t32", "63\t33"]
    );
    // A value that lasts also does so in a keyspace whose values expire.
    let hour = shamba::KeyspaceOptions::new().time_to_live(std::time::Duration::from_secs(3_600));
    shamba::Db::open(&copy).and_then(|db| db.keyspace_with("default", hour)).map(drop).expect("set");
    run_with(load, b"65\t35\n66\t36\t99999999999999\n").ok();
    run(["put", &copy, "g", "7"]).ok();
    let ttl = |key: &str| run(["get", &copy, key, "--ttl"]).ok();
    assert_eq!((ttl("e").as_str(), ttl("f") == "ever\n", ttl("g") == "ever\n"), ("ever\n", false, false));
    let error = run_with(load, b"64\t34\tsoon\n").fails(65);
    assert!(error.contains(":1: the third column is not a time in milliseconds"), "{error}");
}
