//! Typical mistakes of new users: each answer has the right exit code, and says what is wrong,
//! where, and what to do.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};

use crate::support::{Dir, command, files, finish, flip, run, run_with};

/// Exit code, arguments, and words that the answer must contain.
type Mistake<'a> = (i32, &'a [&'a str], &'a [&'a str]);

fn check(mistakes: &[Mistake]) {
    for (code, args, words) in mistakes {
        let err = run(*args).fails(*code);
        for word in *words {
            assert!(err.contains(word), "{args:?} does not say {word:?}: {err}");
        }
    }
}

#[test]
fn paths_that_are_wrong() {
    let dir = Dir::new();
    let (db, missing) = (dir.path("db"), dir.path("missing"));
    let (file, empty, foreign) = (dir.path("file"), dir.path("empty"), dir.path("foreign"));
    run(["put", &db, "k", "v"]).ok();
    fs::write(&file, "text").expect("writable");
    fs::create_dir(&empty).expect("mkdir");
    fs::create_dir(&foreign).expect("mkdir");
    fs::write(format!("{foreign}/notes.txt"), "text").expect("writable");
    let current = format!("{db}/CURRENT");
    check(&[
        (3, &["get", &file, "k"], &[&file, "is a file", "DB must be a directory"]),
        (3, &["put", &file, "k", "v"], &[&file, "is a file", "DB must be a directory"]),
        (3, &["check", &current], &["is a file", "the database is the directory", &db]),
        (3, &["get", &missing, "k"], &["no database at", &missing, "no such directory", "hint: put, load"]),
        (3, &["stats", &empty], &["no database at", &empty, "is empty", "hint: put, load"]),
        (3, &["scan", &foreign], &["no database at", &foreign, "notes.txt", "no database file"]),
        (64, &["put", &foreign, "k", "v"], &[&foreign, "notes.txt", "needs an empty directory"]),
        (64, &["repair", &db, "--out", &db], &["--out", "repair does not change", "outside the damaged"]),
        (64, &["repair", &db, "--out", &foreign], &[&foreign, "not empty", "hint: --out must be empty"]),
        (64, &["checkpoint", &db, &foreign], &[&foreign, "not empty", "hint: DIR must be empty"]),
        (3, &["table", &db], &[&db, "takes one file of a database, not its directory"]),
        (2, &["wal", &file], &[&file, "hint: the file does not start with the expected magic"]),
        (3, &["demo", &missing], &[&missing, "--synthetic", "No such file"]),
        (3, &["load", &db, &empty], &[&empty, "load reads a file"]),
        (3, &["put", &db, "k", "--value-file", &missing], &[&missing, "No such file"]),
    ]);
    assert_eq!(fs::read_dir(&empty).expect("readable").count(), 0, "nothing was created");
}

#[test]
fn arguments_that_are_wrong() {
    let dir = Dir::new();
    let (db, long) = (dir.path("db"), "k".repeat(65_536));
    run(["put", &db, "k", "v"]).ok();
    check(&[
        (64, &["frobnicate"], &["unrecognized subcommand 'frobnicate'", "--help"]),
        (64, &["get", &db, "k", "--frob"], &["--frob", "Usage: shamba get"]),
        (64, &["put", &db, "k"], &["<VALUE>", "--value-file"]),
        (64, &["get", &db, "\\xZZ"], &["KEY", "byte 0", "two hex digits", "\\x5c is a backslash"]),
        (64, &["get", &db, "abc", "--hex"], &["KEY", "two digits a byte", "3 digits"]),
        (64, &["put", &db, &long, "v"], &["KEY has 65536 bytes", "maximum is 65535"]),
        (
            64,
            &["put", &db, "k", "v", "--memory-budget", "1KiB"],
            &["--memory-budget", "from 4 MiB", "not 1 KiB"],
        ),
        (64, &["put", &db, "k", "v", "--write-buffer", "12XB"], &["--write-buffer", "12XB", "MiB"]),
        (64, &["put", &db, "k", "v", "--sync", "maybe"], &["--sync", "maybe", "always, never, buffered"]),
        (64, &["scan", &db, "--limit", "-1"], &["--limit", "-1", "whole number"]),
        (64, &["scan", &db, "--from", "z", "--to", "a"], &["--from \"z\"", "--to \"a\"", "swap them"]),
        (
            64,
            &["get", &db, "k", "--keyspace", "usres"],
            &[&db, "\"usres\"", "it has \"default\"", "put, load and batch"],
        ),
        (64, &["bench", &db, "fillrandm"], &["fillrandm", "fillrandom", "readmissing"]),
    ]);
    // Values at the limits are valid.
    assert_eq!(run(["scan", &db, "--from", "a", "--to", "a"]).ok(), "");
    assert_eq!(run(["scan", &db, "--limit", "0"]).ok(), "");
    run(["put", &db, &long[1..], "v"]).ok();
}

#[test]
fn input_that_is_wrong() {
    let dir = Dir::new();
    let (db, csv, binary, big) = (dir.path("db"), dir.path("in.csv"), dir.path("in.bin"), dir.path("big"));
    fs::write(&csv, "id,name\n1,x\n").expect("writable");
    fs::write(&binary, b"\x7fELF\x02\x01\0\0\0\n\0\0").expect("writable");
    // A sparse file, so that it takes no space.
    fs::File::create(&big).and_then(|file| file.set_len((256 << 20) + 1)).expect("writable");
    check(&[
        (65, &["load", &db, &csv, "--key", "nom"], &[&csv, ":1:", "\"nom\"", "\"id\", \"name\"", "--key"]),
        (65, &["load", &db, &binary], &[&binary, ":1:", "no tab", "--format", "may not be text"]),
        (65, &["put", &db, "k", "--value-file", &big], &[&big, "maximum value size is 256 MiB"]),
    ]);
    assert!(!fs::exists(&db).expect("readable"), "nothing was created");
}

/// Starts a writer that has the database open until its input ends.
fn writer(db: &str) -> Child {
    let mut child = command(["batch", db]).stdin(Stdio::piped()).spawn().expect("starts");
    child.stdin.as_mut().expect("piped").write_all(b"put held 1\n").expect("writable");
    let mut reply = [0; 3];
    let out = child.stdout.as_mut().expect("piped");
    std::io::Read::read_exact(out, &mut reply).expect("a reply: it is open");
    child
}

#[test]
fn a_database_that_a_process_has_open() {
    let dir = Dir::new();
    let (db, out) = (dir.database("db", 10), dir.path("out"));
    let mut child = writer(&db);
    let look: &[&str] = &["in use", &db, "stop that process", "checkpoint"];
    check(&[
        (4, &["get", &db, "k"], look),
        (4, &["explain", &db, "k"], look),
        (4, &["scan", &db], look),
        (4, &["dump", &db], look),
        (4, &["stats", &db], look),
        (4, &["tree", &db], look),
        (4, &["memory", &db], look),
        (4, &["check", &db], look),
        (4, &["put", &db, "k", "v"], &["in use", &db, "has closed it"]),
        (4, &["compact", &db], &["in use", &db, "has closed it"]),
        (4, &["checkpoint", &db, &out], &["in use", &db, "has closed it"]),
        (4, &["repair", &db, "--out", &out], &["in use", &db, "stop the process"]),
    ]);
    drop(child.stdin.take());
    assert_eq!(finish(child).code, 0);
    assert_eq!(run(["get", &db, "held"]).ok(), "1\n");
}

#[test]
fn a_newer_or_damaged_database() {
    let dir = Dir::new();
    let (newer, damaged) = (dir.database("newer", 10), dir.database("damaged", 10));
    // The version follows the eight bytes of magic.
    flip(&files(&newer, "MANIFEST-").remove(0), 8, 0x02);
    flip(&files(&damaged, "MANIFEST-").remove(0), 100, 0x02);
    check(&[
        (5, &["get", &newer, "k"], &["MANIFEST-", "format version", "hint: a newer version of Shamba"]),
        (5, &["put", &newer, "k", "v"], &["MANIFEST-", "format version", "hint: a newer version of Shamba"]),
        (
            2,
            &["get", &damaged, "k"],
            &["MANIFEST-", "at offset", "shamba check DB", "shamba repair DB --out"],
        ),
    ]);
}

#[test]
fn a_directory_that_cannot_be_written_and_a_full_disk() {
    if !fs::exists("/dev/full").unwrap_or(false) {
        eprintln!("no /dev/full here: nothing to try");
        return;
    }
    let dir = Dir::new();
    let db = dir.database("db", 10);
    // Root can write everywhere; the tests of a full tmpfs are in `cargo xtask scarce`.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("writable");
    let child = command(["dump", &db]).stdout(Stdio::from(full)).spawn().expect("starts");
    let err = finish(child).fails(6);
    assert!(err.contains("standard output") && err.contains("No space"), "{err}");
    let err = run_with(["put", "/proc/shamba", "k", "v"], b"");
    assert!(matches!(err.code, 3 | 7) && err.err.contains("/proc/shamba"), "{err:?}");
}
