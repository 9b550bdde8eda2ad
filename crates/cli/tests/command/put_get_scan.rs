//! Tests of put, get, delete, scan, dump, compact and checkpoint.

use crate::support::{Dir, command, contents, finish, run, run_with};

#[test]
fn a_value_comes_back_until_it_is_deleted() {
    let dir = Dir::new();
    let db = dir.path("db");
    assert_eq!(run(["put", &db, "k", "first"]).ok(), "");
    assert_eq!(run(["put", &db, "k", "second"]).ok(), "");
    assert_eq!(run(["get", &db, "k"]).ok(), "second\n");
    run(["delete", &db, "k"]).ok();
    run(["delete", &db, "k"]).ok();
    let miss = run(["get", &db, "k"]);
    assert_eq!((miss.code, miss.out.as_str(), miss.err.as_str()), (1, "", ""), "nothing on a miss");
}

#[test]
fn get_tells_how_long_a_value_lives() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "session", "asha", "--ttl", "1h"]).ok();
    run(["put", &db, "lasting", "baraka"]).ok();
    assert_eq!(run(["get", &db, "lasting", "--ttl"]).ok(), "ever\n");
    let left = run(["get", &db, "session", "--ttl"]).ok();
    let left_ms: u64 = left.trim_end().strip_suffix("ms").expect("a time").parse().expect("a number");
    assert!((1..=3_600_000).contains(&left_ms), "{left}");
    let object = run(["get", &db, "session", "--ttl", "--json"]).json();
    assert!(
        object["value"] == "asha" && object["ttl_ms"].as_u64().is_some_and(|ms| ms <= left_ms),
        "{object}"
    );
    let object = run(["get", &db, "lasting", "--ttl", "--json"]).json();
    assert!(object["value"] == "baraka" && object["ttl_ms"].is_null(), "{object}");
    assert_eq!(run(["get", &db, "absent", "--ttl"]).code, 1);
    run(["put", &db, "session", "asha", "--ttl", "0ms"]).ok();
    assert_eq!(run(["get", &db, "session", "--ttl"]).code, 1, "it has expired");
}

#[test]
fn text_and_hex_name_the_same_bytes() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "a\\x00\\xffb", "line\\x0aend\\x5c"]).ok();
    assert_eq!(run(["get", &db, "a\\x00\\xffb"]).ok(), "line\\x0aend\\x5c\n");
    assert_eq!(run(["get", &db, "--hex", "6100FF62"]).ok(), "6c696e650a656e645c\n");
    run(["put", &db, "--hex", "00", ""]).ok();
    assert_eq!(run(["get", &db, "\\x00"]).ok(), "\n", "an empty value is a value");
    run(["put", &db, "", "empty key"]).ok();
    assert_eq!(run(["get", &db, ""]).ok(), "empty key\n");
    run(["put", &db, "--", "-dash", "--hex"]).ok();
    assert_eq!(run(["get", &db, "--", "-dash"]).ok(), "--hex\n");
    assert_eq!(run(["put", &db, "--hex", "0", "00"]).code, 64);
    assert_eq!(run(["put", &db, "\\x0", "v"]).code, 64);
}

#[test]
fn values_go_from_files_and_to_standard_output_byte_by_byte() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("value"));
    // Long enough to be stored in chunks, with every byte value and text escapes, and without a
    // newline at the end.
    let value: Vec<u8> = (0..100_000u32).flat_map(|n| n.to_le_bytes()).chain(*b"\\x41\n\\").collect();
    std::fs::write(&file, &value).expect("writable");
    let raw = |args: &[&str]| {
        let child = command(["get", &db, "--raw"].iter().chain(args)).spawn().expect("starts");
        let output = child.wait_with_output().expect("ends");
        (output.status.code(), output.stdout)
    };
    run(["put", &db, "from file", "--value-file", &file]).ok();
    assert!(raw(&["from file"]) == (Some(0), value.clone()));
    run_with(["put", &db, "--value-file", "-", "--hex", "0aff"], &value).ok();
    assert!(raw(&["--hex", "0aff"]) == (Some(0), value), "--hex is for the key");
    run_with(["put", &db, "empty", "--value-file", "-"], b"").ok();
    assert_eq!(raw(&["empty"]), (Some(0), Vec::new()));
    assert_eq!(raw(&["absent"]), (Some(1), Vec::new()));
    let none = dir.path("none");
    for (args, code) in [
        (vec!["put", &none, "k", "--value-file", "/no/such/file"], 3),
        (vec!["put", &none, "k", "v", "--value-file", &file], 64),
        (vec!["put", &none, "k"], 64),
        (vec!["put", &none, "k", "--value-file", "/dev/zero"], 65),
        (vec!["get", &db, "k", "--raw", "--json"], 64),
    ] {
        run(&args).fails(code);
    }
    assert!(!std::fs::exists(&none).expect("readable"), "no database was made");
}

#[test]
fn scans_take_bounds_prefix_limit_and_direction() {
    let dir = Dir::new();
    let db = dir.path("db");
    run_with(["batch", &db], b"put a 1\nput b 2\nput ba 3\nput bb 4\nput c 5\nflush\nput d 6\n").ok();
    let keys = |args: &[&str]| -> String {
        let out = run(["scan", &db].iter().chain(args)).ok();
        out.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&[]), "a b ba bb c d");
    assert_eq!(keys(&["--from", "b", "--to", "c"]), "b ba bb");
    assert_eq!(keys(&["--to", "b"]), "a");
    assert_eq!(keys(&["--prefix", "b"]), "b ba bb");
    assert_eq!(keys(&["--prefix", "b", "--reverse"]), "bb ba b");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "d c");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(keys(&["--from", "x"]), "");
    assert_eq!(run(["scan", &db, "--from", "c", "--to", "b"]).code, 64);
    assert_eq!(run(["scan", &db, "--prefix", "b", "--from", "a"]).code, 64);
    let hex = run(["scan", &db, "--hex", "--from", "64"]).ok();
    assert_eq!(hex, "64\t36\n");
    let json = run(["scan", &db, "--json", "--limit", "1"]).json();
    assert_eq!((json["schema"].as_str(), json["key"].as_str()), (Some("shamba.entry/1"), Some("a")));
}

#[test]
fn dump_is_hex_and_loads_again() {
    let dir = Dir::new();
    let (db, copy) = (dir.path("db"), dir.path("copy"));
    run_with(["batch", &db], b"put b \\x00\\xff\nput a \nput c x\ndel c\n").ok();
    let dump = run(["dump", &db]).ok();
    assert_eq!(dump, "61\t\n62\t00ff\n");
    run_with(["load", &copy, "-", "--format", "tsv", "--hex"], dump.as_bytes()).ok();
    assert_eq!(run(["dump", &copy]).ok(), dump);
    let scan = run(["scan", &db]).ok();
    run_with(["load", &dir.path("third"), "--format", "tsv"], scan.as_bytes()).ok();
    assert_eq!(run(["dump", &dir.path("third")]).ok(), dump);
}

#[test]
fn reading_writes_no_byte() {
    let dir = Dir::new();
    let db = dir.database("db", 300);
    let before = contents(&db);
    for args in [
        vec!["get", &db, "key00007"],
        vec!["scan", &db],
        vec!["dump", &db],
        vec!["explain", &db, "key00007"],
        vec!["tree", &db],
        vec!["stats", &db],
        vec!["memory", &db],
        vec!["check", &db],
        vec!["manifest", &db],
    ] {
        run(&args).ok();
        assert!(before == contents(&db), "{args:?} changed a file");
    }
}

#[test]
fn compact_and_checkpoint_keep_every_entry() {
    let dir = Dir::new();
    let (db, copy) = (dir.database("db", 2000), dir.path("copy"));
    let before = run(["dump", &db]).ok();
    run(["compact", &db]).ok();
    assert_eq!(run(["dump", &db]).ok(), before);
    assert_eq!(run(["stats", &db, "--json"]).json()["runs"], 1);
    run(["checkpoint", &db, &copy]).ok();
    run(["put", &db, "key00000", "changed"]).ok();
    assert_eq!(run(["dump", &copy]).ok(), before, "a checkpoint stands by itself");
    assert_ne!(run(["checkpoint", &db, &copy]).code, 0, "a checkpoint replaces nothing");
    assert_eq!(run(["dump", &copy]).ok(), before);
}

#[test]
fn a_range_is_compacted_and_the_rest_stays() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    run(["compact", &db]).ok();
    for number in (0..2000).step_by(2) {
        run(["put", &db, &format!("key{number:05}"), "new"]).ok();
        if number == 20 {
            break;
        }
    }
    run(["compact", &db, "--from", "zz"]).ok();
    assert_eq!(run(["stats", &db, "--json"]).json()["runs"], 2, "the flushed run lies elsewhere");
    let before = run(["dump", &db]).ok();
    run(["compact", &db, "--prefix", "key0000"]).ok();
    assert_eq!(run(["dump", &db]).ok(), before);
    assert_eq!(run(["stats", &db, "--json"]).json()["runs"], 1);
    assert!(run(["compact", &db, "--keyspace", "none"]).fails(64).contains("\"none\""));
    run(["compact", &db, "--keyspace", "default"]).ok();
    assert!(run(["compact", &db, "--from", "b", "--to", "a"]).fails(64).contains("empty"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let dir = Dir::new();
    let db = dir.database("db", 20_000);
    for args in [vec!["dump", &db], vec!["scan", &db], vec!["--help"]] {
        let mut child = command(&args).spawn().expect("the binary starts");
        drop(child.stdout.take());
        let run = finish(child);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
}
