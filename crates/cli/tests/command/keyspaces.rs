//! Tests of `--keyspace` on every command that takes keys, and of `dump --all`.

use crate::support::{Dir, run, run_with};

#[test]
fn every_command_that_takes_keys_takes_a_keyspace() {
    let dir = Dir::new();
    let (db, file) = (dir.path("db"), dir.path("in.tsv"));
    run(["put", &db, "k", "outside"]).ok();
    run(["put", &db, "k", "inside", "--keyspace", "users"]).ok();
    std::fs::write(&file, "a\t1\nb\t2\n").expect("writable");
    run(["load", &db, &file, "--keyspace", "users"]).ok();
    run_with(["batch", &db, "--keyspace", "users"], b"put c 3\nin default put d 4\ndel b\n").ok();
    let users = ["--keyspace", "users"];
    let get = |key| run(["get", &db, key].iter().chain(&users));
    assert_eq!((get("k").ok(), get("c").ok()), ("inside\n".into(), "3\n".into()));
    assert_eq!(get("d").code, 1, "it is in the default keyspace");
    assert_eq!(run(["scan", &db].iter().chain(&users)).ok(), "a\t1\nc\t3\nk\tinside\n");
    assert_eq!(run(["scan", &db]).ok(), "d\t4\nk\toutside\n");
    assert_eq!(run(["scan", &db, "--prefix", "c"].iter().chain(&users)).ok(), "c\t3\n");
    let outcome =
        |key| run(["explain", &db, key, "--json"].iter().chain(&users)).json()["outcome"].to_string();
    assert_eq!((outcome("k"), outcome("d")), ("\"found\"".into(), "\"absent\"".into()));
    run(["delete", &db, "k"].iter().chain(&users)).ok();
    assert_eq!((get("k").code, run(["get", &db, "k"]).code), (1, 0), "only there");
    assert_eq!(run(["dump", &db].iter().chain(&users)).ok(), "61\t31\n63\t33\n");
    let object = run(["dump", &db, "--json"].iter().chain(&users)).out;
    assert!(object.contains("\"keyspace\":\"users\""), "{object}");
}

#[test]
fn a_misspelt_keyspace_is_named_and_none_is_created() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "k", "v", "--keyspace", "users"]).ok();
    for args in [
        &["get", &db, "k"][..],
        &["delete", &db, "k"],
        &["scan", &db],
        &["explain", &db, "k"],
        &["dump", &db],
    ] {
        let err = run(args.iter().chain(&["--keyspace", "usres"])).fails(64);
        assert!(err.contains("\"usres\"") && err.contains("\"default\", \"users\""), "{args:?}: {err}");
    }
    assert_eq!(run(["stats", &db, "--json"]).json()["keyspaces"].to_string(), "[\"default\",\"users\"]");
    // An invalid name is rejected before a database is created for it.
    let other = dir.path("other");
    for args in [&["put", &other, "k", "v"][..], &["load", &other], &["batch", &other]] {
        run_with(args.iter().chain(&["--keyspace", ""]), b"put k v\n").fails(64);
        assert!(!std::path::Path::new(&other).exists(), "{args:?}");
    }
}

#[test]
fn dump_all_puts_each_keyspace_under_its_heading() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "k", "v"]).ok();
    run(["put", &db, "", "empty key", "--keyspace", "odd\nname\\"]).ok();
    run(["put", &db, "x", "y", "--keyspace", "users"]).ok();
    run(["delete", &db, "x", "--keyspace", "users"]).ok();
    assert_eq!(
        run(["dump", &db, "--all"]).ok(),
        "# keyspace default\n6b\t76\n# keyspace odd\\x0aname\\x5c\n\t656d707479206b6579\n# keyspace users\n"
    );
    assert_eq!(run(["dump", &db]).ok(), "6b\t76\n");
    let lines = run(["dump", &db, "--all", "--json"]).ok();
    assert_eq!(lines.lines().count(), 2, "pairs only: {lines}");
    run(["dump", &db, "--all", "--keyspace", "users"]).fails(64);
}
