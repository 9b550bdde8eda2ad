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

#[test]
fn fifo_limits_and_prefix_extractors_are_given_from_the_shell() {
    let dir = Dir::new();
    let db = dir.path("db");
    let log = ["--keyspace", "log"];
    let put = |key: &str, more: &[&str]| run(["put", &db, key, "1"].iter().chain(&log).chain(more));
    put("a:1", &["--fifo-bytes", "1GiB", "--fifo-age", "7d", "--prefix-extractor", "delimited:3a"]).ok();
    put("a:2", &[]).ok();
    let stats = run(["stats", &db]).ok();
    for shown in ["1.0 GiB, 7d (keyspace \"log\")", "delimited:3a (keyspace \"log\")"] {
        assert!(stats.contains(shown), "{shown}: {stats}");
    }
    let limits = || {
        let object = run(["stats", &db, "--json"]).json();
        (object["fifo"].to_string(), object["prefix_extractors"].to_string())
    };
    let both = "{\"max_age_ms\":604800000,\"max_bytes\":1073741824}";
    assert_eq!(limits(), (format!("{{\"log\":{both}}}"), "{\"log\":\"delimited:3a\"}".into()));
    let explained = run(["explain", &db, "a:1"].iter().chain(&log)).ok();
    assert!(explained.contains("the oldest tables are dropped: 1.0 GiB, 7d"), "{explained}");
    let explained = run(["explain", &db, "a:1", "--json"].iter().chain(&log)).json();
    assert_eq!(explained["fifo"].to_string(), both);
    assert!(run(["explain", &db, "a:1", "--json"]).json()["fifo"].is_null(), "of another keyspace");
    // Each of them changes at any time.
    let more = ["--fifo-bytes", "1MiB", "--prefix-extractor", "none"];
    run_with(["batch", &db].iter().chain(&log).chain(&more), b"put b 2\n").ok();
    let one = "{\"log\":{\"max_age_ms\":null,\"max_bytes\":1048576}}";
    assert_eq!(limits(), (one.into(), "{}".into()));
    // A keyspace has limits or a merge operator.
    let operator = ["--number", "--merge-operator", "shamba.add-u64"];
    let err = run(["merge", &db, "n", "1"].iter().chain(&log).chain(&operator)).fails(64);
    assert!(err.contains("FIFO limits") && err.contains("shamba.add-u64"), "{err}");
    put("c", &["--no-fifo"]).ok();
    assert_eq!(limits(), ("{}".into(), "{}".into()));
    run(["merge", &db, "n", "1"].iter().chain(&log).chain(&operator)).ok();
    let err = put("d", &["--fifo-age", "1h"]).fails(64);
    assert!(err.contains("FIFO limits") && err.contains("shamba.add-u64"), "{err}");
    let err = run(["merge", &db, "n", "1", "--number", "--fifo-age", "1h"].iter().chain(&log)).fails(64);
    assert!(err.contains("FIFO limits") && err.contains("shamba.add-u64"), "{err}");
    put("e", &["--keyspace-option", "compression=lz4", "--keyspace-option", "file-size=1MiB"]).ok();
    put("f", &["--keyspace-option", "compression=database"]).ok();
    let own = run(["stats", &db, "--json"]).json()["keyspace_options"].to_string();
    assert_eq!(own, "{\"log\":{\"file-size\":\"1048576\"}}");
    let other = dir.path("other");
    for (refused, named) in [
        (&["--keyspace-option", "policy"][..], "NAME=VALUE"),
        (&["--keyspace-option", "block-size=1MiB"], "block-size must be"),
        (&["--keyspace-option", "sync=always"], "compression, compression-dictionary"),
        (&["--fifo-bytes", "0"], "the minimum is 1 byte"),
        (&["--fifo-age", "ever"], "no limit"),
        (&["--fifo-age", "0s"], "the minimum is 1ms"),
        (&["--fifo-age", "1h", "--no-fifo"], "--no-fifo"),
        (&["--fifo-age", "1h", "--merge-operator", "shamba.max"], "--merge-operator"),
        (&["--prefix-extractor", "fixed:0"], "fixed:0"),
        (&["--prefix-extractor", "suffix:3"], "capped:BYTES"),
    ] {
        let err = run(["put", &other, "k", "v"].iter().chain(refused)).fails(64);
        assert!(err.contains(named), "{refused:?}: {err}");
        assert!(!std::path::Path::new(&other).exists(), "{refused:?}");
    }
}
