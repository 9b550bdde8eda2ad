//! Wrong usage, and missing, locked, damaged, newer and unwritable databases: each gives the
//! documented exit code and a message that names the problem, never a panic.

use std::fs::{self, File, OpenOptions};
use std::process::Stdio;

use crate::support::{Dir, command, contents, files, finish, flip, run, run_with};

#[test]
fn unknown_commands_and_options_are_usage_errors() {
    let dir = Dir::new();
    let db = dir.path("db");
    run::<&str>([]).fails(64);
    for name in ["repair", "lab", "tune", "import", "backup", "restore", "serve", "frobnicate"] {
        run([name]).fails(64);
    }
    for option in [
        "--filter-layout",
        "--modules",
        "--skipping",
        "--residency",
        "--device-read-us",
        "--device-write-us",
        "--bogus",
    ] {
        let err = run(["put", &db, "k", "v", option, "on"]).fails(64);
        assert!(err.contains(option), "{err}");
    }
    for (option, value) in [
        ("--policy", "flat"),
        ("--size-ratio", "1.5"),
        ("--size-ratio", "x"),
        ("--size-ratio", "NaN"),
        ("--write-buffer", "1QB"),
        ("--bits-per-key", "-1"),
        ("--hash-sharing", "maybe"),
        ("--statistics", "maybe"),
        ("--allocation", "fair"),
        ("--filter-memory", "lots"),
        ("--digest", "md5"),
        ("--compression", "gzip"),
        ("--sync", "sometimes"),
        ("--memory-budget", "1KiB"),
        ("--file-size", "1"),
        ("--block-tags", "some"),
        ("--memtable-index", "1"),
        ("--sizing", "large"),
        ("--tuning", "on"),
        ("--direct-io", "perhaps"),
        ("--max-open-files", "3"),
        ("--background-threads", "0"),
        ("--device-read-us", "-1"),
        ("--device-write-us", "nan"),
    ] {
        run(["put", &db, "k", "v", option, value]).fails(64);
    }
    let both = run(["put", &db, "k", "v", "--bits-per-key", "9", "--filter-memory", "1MiB"]).fails(64);
    assert!(both.contains("--filter-memory") && both.contains("--bits-per-key"), "{both}");
    assert!(!fs::exists(&db).expect("readable") || files(&db, "CURRENT").is_empty(), "nothing was created");
    assert_eq!(run(["--help"]).code, 0);
    assert_eq!(run(["put", "--help"]).code, 0);
    assert_eq!(run(["--version"]).code, 0);
}

#[test]
fn every_engine_option_is_taken() {
    let dir = Dir::new();
    let db = dir.path("db");
    run([
        "put",
        &db,
        "k",
        "v",
        "--memory-budget",
        "32MiB",
        "--size-ratio",
        "2.5",
        "--policy",
        "lazy-leveling",
        "--write-buffer",
        "64KiB",
        "--bits-per-key",
        "8.5",
        "--hash-sharing",
        "off",
        "--digest",
        "murmur64a",
        "--prefetch",
        "off",
        "--compression",
        "none,lz4,zstd",
        "--file-size",
        "1MiB",
        "--sync",
        "always",
        "--block-tags",
        "off",
        "--memtable-index",
        "off",
        "--tuning",
        "advise",
        "--sizing",
        "manual",
        "--direct-io",
        "on",
        "--max-open-files",
        "64",
        "--background-threads",
        "2",
        "--device-read-us",
        "0.5",
        "--device-write-us",
        "1",
    ])
    .ok();
    let design = &run(["stats", &db, "--json"]).json()["design"];
    assert_eq!(
        (design["policy"].as_str(), design["size_ratio"].as_f64()),
        (Some("lazy-leveling"), Some(2.5))
    );
    assert_eq!(
        (design["write_buffer_bytes"].as_u64(), design["bits_per_key"].as_f64()),
        (Some(65_536), Some(8.5))
    );
}

#[test]
fn what_is_fixed_at_creation_cannot_be_given_otherwise() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "k", "v", "--digest", "xxh64"]).ok();
    let err = run(["put", &db, "k", "w", "--digest", "xxh3"]).fails(64);
    assert!(err.contains("xxh64") && err.contains("xxh3"), "both are named: {err}");
    assert_eq!(run(["get", &db, "k"]).ok(), "v\n");
    run(["put", &db, "k", "w", "--digest", "xxh64"]).ok();
}

#[test]
fn a_missing_database_is_3_for_all_but_those_that_make_one() {
    let dir = Dir::new();
    let db = dir.path("none");
    let empty = dir.path("empty");
    fs::create_dir(&empty).expect("mkdir");
    let other = dir.path("other");
    for db in [&db, &empty] {
        for args in [
            vec!["get", db, "k"],
            vec!["scan", db],
            vec!["dump", db],
            vec!["explain", db, "k"],
            vec!["tree", db],
            vec!["stats", db],
            vec!["memory", db],
            vec!["check", db],
            vec!["manifest", db],
            vec!["delete", db, "k"],
            vec!["compact", db],
            vec!["checkpoint", db, &other],
        ] {
            let err = run(&args).fails(3);
            assert!(err.contains(db.as_str()), "{args:?}: {err}");
        }
    }
    assert!(!fs::exists(&db).expect("readable"), "nothing was created");
    for args in [["table", &db], ["wal", &db]] {
        run(args).fails(3);
    }
    let file = dir.path("file");
    fs::write(&file, b"x").expect("writable");
    run(["get", &file, "k"]).fails(3);
    run(["put", &file, "k", "v"]).fails(3);
}

#[test]
fn damage_is_2_and_names_the_place() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    let table = files(&db, "sst").pop().expect("a table");
    let name = table.file_name().expect("named").to_string_lossy().into_owned();
    // The first data block follows the header page.
    flip(&table, 4096 + 100, 0x40);
    let err = run(["check", &db]);
    assert_eq!(err.code, 2, "{err:?}");
    assert!(
        err.out.contains(&name) && err.out.contains("data block") && err.out.contains("4096"),
        "{}",
        err.out
    );
    let report = run(["check", &db, "--json"]);
    assert_eq!(report.code, 2);
    let object = report.json();
    assert_eq!((object["clean"].as_bool(), object["opened"].as_bool()), (Some(false), Some(true)));
    assert_eq!(object["problems"][0]["structure"], "data block");
    assert_eq!(object["problems"][0]["offset"], 4096);
    let err = run(["dump", &db]).fails(2);
    assert!(err.contains(&name) && err.contains("offset 4096"), "{err}");
    run(["table", &table.display().to_string()]).fails(2);
}

#[test]
fn a_database_too_damaged_to_open_is_still_checked_file_by_file() {
    let dir = Dir::new();
    let db = dir.database("db", 3000);
    run(["put", &db, "more", "v"]).ok();
    let manifest = files(&db, "MANIFEST-").pop().expect("a manifest");
    let table = files(&db, "sst").remove(0);
    flip(&manifest, 200, 1);
    flip(&table, 4096 + 50, 1);
    run(["get", &db, "more"]).fails(2);
    run(["put", &db, "more", "w"]).fails(2);
    let report = run(["check", &db, "--json"]);
    assert_eq!(report.code, 2, "{report:?}");
    let object = report.json();
    assert_eq!(object["opened"].as_bool(), Some(false));
    let text = object["problems"].to_string();
    for file in [&manifest, &table] {
        let name = file.file_name().expect("named").to_string_lossy().into_owned();
        assert!(text.contains(&name), "{name}: {text}");
    }
}

#[test]
fn foreign_files_are_2_and_newer_ones_5_and_nothing_is_touched() {
    let dir = Dir::new();
    let db = dir.database("db", 500);
    run(["put", &db, "k", "v"]).ok();
    let mut targets = vec![files(&db, "sst").remove(0), files(&db, "MANIFEST-").remove(0)];
    targets.extend(files(&db, "log").pop());
    for file in targets {
        let good = fs::read(&file).expect("readable");
        // The version follows the eight bytes of magic.
        flip(&file, 8, 0x02);
        let before = contents(&db);
        for args in [vec!["get", &db, "k"], vec!["put", &db, "k", "w"], vec!["check", &db]] {
            let run = run(&args);
            assert_eq!(run.code, 5, "{args:?}: {run:?}");
            // `check` reports; the others fail.
            let said = if args[0] == "check" { &run.out } else { &run.err };
            assert!(said.contains(&*file.file_name().expect("named").to_string_lossy()), "{args:?}: {said}");
            assert!(before == contents(&db), "{args:?} changed a file");
        }
        fs::write(&file, &good).expect("writable");
        flip(&file, 0, 0x20);
        run(["get", &db, "k"]).fails(2);
        fs::write(&file, &good).expect("writable");
        assert_eq!(run(["get", &db, "k"]).ok(), "v\n");
    }
    for command in ["table", "wal"] {
        let file = dir.path("foreign");
        fs::write(
            &file,
            b"#!/bin/sh\necho this is no file of ours, long enough to have a header though\n".repeat(100),
        )
        .expect("writable");
        run([command, &file]).fails(2);
        fs::write(&file, b"").expect("writable");
        run([command, &file]).fails(2);
    }
}

#[test]
fn a_deleted_or_emptied_file_is_damage_not_data_loss() {
    let dir = Dir::new();
    let db = dir.database("db", 2000);
    let table = files(&db, "sst").remove(0);
    let good = fs::read(&table).expect("readable");
    fs::remove_file(&table).expect("removable");
    run(["dump", &db]).fails(2);
    fs::write(&table, b"").expect("writable");
    run(["dump", &db]).fails(2);
    fs::write(&table, &good).expect("writable");
    assert_eq!(run(["dump", &db]).ok().lines().count(), 2000);
}

#[test]
fn a_full_device_is_6() {
    if !fs::exists("/dev/full").unwrap_or(false) {
        eprintln!("no /dev/full here: nothing to try");
        return;
    }
    let dir = Dir::new();
    let db = dir.database("db", 100);
    let full = OpenOptions::new().write(true).open("/dev/full").expect("writable");
    let child = command(["dump", &db]).stdout(Stdio::from(full)).spawn().expect("starts");
    finish(child).fails(6);
}

#[test]
fn a_directory_that_cannot_be_written_is_7_and_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new();
    let db = dir.database("db", 500);
    let set = |path: &str, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    set(&db, 0o555);
    if File::create(format!("{db}/probe")).is_ok() {
        eprintln!("this user writes everywhere: nothing to try");
        return;
    }
    // Writable files do not help in a read-only directory, nor a writable directory with read-only
    // files.
    run(["put", &db, "k", "v"]).fails(7);
    for file in files(&db, "") {
        set(&file.display().to_string(), 0o444);
    }
    run(["put", &db, "k", "v"]).fails(7);
    run_with(["batch", &db], b"put k v\n").fails(7);
    run(["put", &format!("{db}/inside"), "k", "v"]).fails(7);
    assert_eq!(run(["get", &db, "key00007"]).ok(), "value of 7\n");
    assert_eq!(run(["dump", &db]).ok().lines().count(), 500);
    set(&db, 0o755);
}
