//! Tests of the wording of messages and help: options as typed, sizes and counts in readable form.

use std::fs;

use crate::support::{Dir, files, run, run_with};

#[test]
fn options_out_of_range_are_named_as_typed_in_readable_units() {
    let dir = Dir::new();
    let db = dir.path("db");
    for (option, value, message) in [
        ("--memory-budget", "1KiB", "'--memory-budget <SIZE>': must be from 4 MiB to 1 PiB, not 1 KiB"),
        ("--memory-budget", "2PiB", "not a size"),
        ("--write-buffer", "1000", "'--write-buffer <SIZE>': must be from 1 KiB to 1 TiB, not 1000 bytes"),
        ("--file-size", "1", "must be from 1 KiB to 1 TiB, not 1 bytes"),
        ("--size-ratio", "1.5", "'--size-ratio <T>': must be from 2 to 1024, not 1.5"),
        ("--bits-per-key", "-1", "'--bits-per-key <BITS>': must be from 0 to 64, not -1"),
        ("--max-open-files", "4294967296", "must be a whole number, not \"4294967296\""),
        ("--max-open-files", "3", "--max-open-files"),
        ("--background-threads", "0", "must be from 1 to 256, not 0"),
    ] {
        let err = run(["put", &db, "k", "v", option, value]).fails(64);
        assert!(err.contains(message), "{option} {value}: {err}");
    }
    // The bounds of the command line equal those of the engine.
    for (option, value) in [
        ("--max-open-files", "16"),
        ("--max-open-files", "1048576"),
        ("--background-threads", "1"),
        ("--background-threads", "256"),
    ] {
        run(["put", &db, "k", "v", option, value]).ok();
    }
    let err = run(["put", &db, "k", "v", "--digest", "md5"]).fails(64);
    assert!(err.contains("crc32c") && !err.contains("test4bit"), "{err}");
}

#[test]
fn options_hold_for_their_run_and_help_says_so() {
    let dir = Dir::new();
    let db = dir.path("db");
    let budget = || run(["memory", &db, "--json"]).json()["budget_bytes"].clone();
    let policy = || run(["stats", &db, "--json"]).json()["design"]["policy"].clone();
    run(["put", &db, "k", "v", "--memory-budget", "32MiB", "--policy", "tiering"]).ok();
    run(["put", &db, "k", "w", "--policy", "lazy-leveling", "--sync", "always"]).ok();
    assert_eq!(budget(), 256 << 20, "a budget is of its run");
    assert_eq!(policy(), "tiering", "creation records what makes the tree");
    run(["put", &db, "k", "w", "--policy", "leveling", "--memory-budget", "64MiB", "--record-options"]).ok();
    assert_eq!((budget(), policy()), ((64 << 20).into(), "leveling".into()));
    run(["tune", &db, "--memory-budget", "16MiB"]).ok();
    assert_eq!(budget(), 16 << 20, "tune records");
    for command in ["put", "batch", "compact", "get"] {
        let help = run([command, "--help"]).ok();
        assert!(help.contains("Engine options (for this run;"), "{help}");
    }
    let help = run(["--help"]).ok();
    assert!(help.contains("\\xNN") && help.contains("backslash"), "{help}");
}

#[test]
fn a_file_of_another_kind_is_told_where_it_belongs() {
    let dir = Dir::new();
    let db = dir.database("db", 100);
    let first = |kind: &str| files(&db, kind).remove(0).display().to_string();
    let (table, log, manifest) = (first("sst"), first("log"), first("MANIFEST-"));
    for (command, file, advice) in [
        ("table", &log, "this is a log file: use `shamba wal`"),
        ("table", &manifest, "this is a manifest: use `shamba manifest`"),
        ("wal", &table, "this is a table file: use `shamba table`"),
        ("wal", &manifest, "this is a manifest: use `shamba manifest`"),
        ("manifest", &table, "this is a table file: use `shamba table`"),
        ("manifest", &first("CURRENT"), "this file names the current manifest"),
    ] {
        let err = run([command, file]).fails(64);
        assert!(err.contains(advice), "{command}: {err}");
    }
}

#[test]
fn one_is_singular() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("one.tsv"));
    fs::write(&file, "k\tv\n").expect("writable");
    let loaded = run(["load", &db, &file]);
    let said = format!("{}{}", loaded.out, loaded.err);
    assert!(said.starts_with("1 record loaded, 0 lines skipped"), "{said}");
    run(["compact", &db]).ok();
    assert!(
        run(["check", &db]).ok().starts_with("no damage: 1 table with 1 entry, 1 log with 0 batches of 0 op")
    );
    assert!(run(["check", &db, "--layout"]).ok().contains("1 entry in 1 block; "));
    run_with(["batch", &db], b"put a 1\n").ok();
    assert!(run(["tree", &db]).ok().contains("memtables: 1 entry\n"));
}

#[test]
fn columns_count_from_1() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("bad.jsonl"));
    fs::write(&file, "[1]\n").expect("writable");
    let err = run(["load", &db, &file]).fails(65);
    assert!(err.contains("bad.jsonl:1: ") && err.contains("(column 1)"), "{err}");
}
