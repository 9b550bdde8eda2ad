//! Tests of load: formats, malformed lines, and unreadable files.

use crate::support::{Dir, run, run_with};

#[test]
fn the_four_formats() {
    let dir = Dir::new();
    for (format, input, expected) in [
        ("tsv", "b\t2\na\t1\n", "a\t1\nb\t2\n"),
        ("csv", "name,number\na,1\n\"b,c\",2\n", "a\t1\nb,c\t2\n"),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"n\":2}\n",
            "a\t1\nb\t{\"key\":\"b\",\"n\":2}\n",
        ),
        ("lines", "/b\n/a\n", "/a\t\n/b\t\n"),
    ] {
        let (db, file) = (dir.path(&format!("db-{format}")), dir.path(&format!("in.{format}")));
        std::fs::write(&file, input).expect("writable");
        let said = run(["load", &db, &file, "--format", format]).ok();
        assert!(said.starts_with("2 records loaded, 0 lines skipped"), "{said}");
        assert_eq!(run(["scan", &db]).ok(), expected, "{format}");
    }
    let db = dir.path("by-column");
    run_with(["load", &db, "--format", "csv", "--key", "id"], b"name,id\nx,7\n").ok();
    assert_eq!(run(["get", &db, "7"]).ok(), "x\n");
    assert_eq!(run_with(["load", &db, "--format", "lines", "--key", "1"], b"").code, 64);
}

#[test]
fn the_name_tells_the_format() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("in.csv"));
    std::fs::write(&file, "name,number\na,1\n").expect("writable");
    run(["load", &db, &file]).ok();
    assert_eq!(run(["get", &db, "a"]).ok(), "1\n");
}

#[test]
fn the_first_row_of_a_csv_file_is_its_header() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("in.csv"));
    std::fs::write(&file, "name,id\nx,7\ny,8\n").expect("writable");
    let said = run(["load", &db, &file]).ok();
    assert!(said.starts_with("2 records loaded"), "{said}");
    assert!(said.contains("key: column 1 \"name\"") && said.contains("--no-header"), "{said}");
    assert_eq!(run(["dump", &db]).ok().lines().count(), 2, "the header is not stored");
    let object = run(["load", &db, &file, "--key", "id", "--json"]).json();
    assert_eq!(
        (object["key_place"].as_str(), object["header"].as_bool(), object["format"].as_str()),
        (Some("column 2 \"id\""), Some(true), Some("csv"))
    );
    let plain = dir.path("plain");
    let said = run(["load", &plain, &file, "--no-header"]).ok();
    assert!(said.starts_with("3 records loaded") && !said.contains("header"), "{said}");
    assert_eq!(run(["get", &plain, "name"]).ok(), "id\n");
    let err = run(["load", &db, &file, "--key", "nom", "--skip-bad"]).fails(65);
    assert!(err.contains("it has \"name\", \"id\""), "skipping lines is no help: {err}");
    run(["load", &db, &file, "--no-header", "--key", "id"]).fails(64);
    run(["load", &db, &file, "--no-header", "--format", "tsv"]).fails(64);
}

#[test]
fn a_malformed_line_is_named_and_what_came_before_is_kept() {
    let dir = Dir::new();
    for (format, input, line) in [
        ("tsv", "a\t1\nb\t2\nno tab here\nc\t3\n", 3),
        ("csv", "name,number\na,1\nb,2\nc\nd,4\n", 4),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n{broken\n{\"key\":\"d\",\"value\":\"4\"}\n",
            3,
        ),
    ] {
        let (db, file) = (dir.path(&format!("db-{format}")), dir.path(&format!("in.{format}")));
        std::fs::write(&file, input).expect("writable");
        let err = run(["load", &db, &file, "--format", format]).fails(65);
        assert!(err.contains(&format!("{file}:{line}: ")), "{format}: {err}");
        assert_eq!(run(["scan", &db]).ok(), "a\t1\nb\t2\n", "{format}: what came before");
        let again = run(["load", &db, &file, "--format", format, "--skip-bad", "--json"]);
        assert_eq!((again.json()["loaded"].as_u64(), again.json()["skipped"].as_u64()), (Some(3), Some(1)));
        assert!(again.err.contains(&format!("{file}:{line}: ")), "{}", again.err);
        assert_eq!(run(["scan", &db]).ok().lines().count(), 3);
    }
}

/// The rest of the file is one field then. It must not pass for one bad line.
#[test]
fn a_quote_that_is_not_closed_ends_the_load() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("in.csv"));
    let rest: String = (0..1_000).map(|number| format!("key{number},1\n")).collect();
    std::fs::write(&file, format!("name,number\na,1\nb\nc,3\n\"d,4\n{rest}")).expect("writable");
    let err = run(["load", &db, &file, "--skip-bad"]).fails(65);
    let said =
        format!("{file}:5: a quote is not closed up to the end of the input (loaded before it: 2 records)");
    assert!(err.contains(&said), "{err}");
    assert_eq!(run(["scan", &db]).ok(), "a\t1\nc\t3\n");
}

#[test]
fn a_file_that_is_something_else_leaves_no_database() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("in.csv.new"));
    std::fs::write(&file, "name,number\na,1\nb,2\n").expect("writable");
    let err = run(["load", &db, &file]).fails(65);
    assert!(err.contains("read as tsv; use --format tsv|csv|jsonl|lines to change"), "{err}");
    assert!(!std::path::Path::new(&db).exists());
    let err = run(["load", &db, &file, "--format", "tsv"]).fails(65);
    assert!(!err.contains("read as"), "it was said: {err}");
    assert!(!std::path::Path::new(&db).exists());
    run(["load", &db, &file, "--format", "csv"]).ok();
    assert_eq!(run(["scan", &db]).ok(), "a\t1\nb\t2\n");
}

#[test]
fn keys_beyond_the_limit_are_malformed_lines() {
    let dir = Dir::new();
    let input = format!("a\t1\n{}\tv\n", "k".repeat(70_000));
    let err = run_with(["load", &dir.path("db")], input.as_bytes()).fails(65);
    assert!(err.contains("standard input:2: the key has 70000 bytes"), "{err}");
}

#[test]
fn files_that_cannot_be_read_leave_no_database_behind() {
    let dir = Dir::new();
    let db = dir.path("db");
    for file in [dir.path("missing.tsv"), dir.path("")] {
        let err = run(["load", &db, &file]).fails(3);
        assert!(err.contains(&file), "{err}");
        assert!(!std::path::Path::new(&db).exists());
    }
}

#[test]
fn many_records_with_every_byte() {
    let dir = Dir::new();
    let db = dir.path("db");
    let mut input = String::new();
    for number in 0..5000u32 {
        let bytes: String = number.to_be_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        input.push_str(&format!("{bytes}\t{number}\n"));
    }
    run_with(["load", &db, "--write-buffer", "16KiB"], input.as_bytes()).ok();
    let dump = run(["dump", &db]).ok();
    assert_eq!(dump.lines().count(), 5000);
    assert!(dump.starts_with("00000000\t30\n00000001\t31\n"));
}
