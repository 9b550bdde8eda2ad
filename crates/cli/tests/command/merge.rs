//! Tests of merge operators: `merge`, `--merge-operator`, `--number`, lines of `batch`, and
//! databases with operators that the command does not have.

use shamba::merge::{AssociativeMerge, MergeResult};
use shamba::{Db, KeyspaceOptions};

use crate::support::{Dir, run, run_with};

/// The first word of each line of output.
fn first_words(out: &str) -> Vec<&str> {
    out.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect()
}

#[test]
fn numbers_are_counted_from_the_shell() {
    let dir = Dir::new();
    let db = dir.path("db");
    let merge = |key: &str, operand: &str, more: &[&str]| {
        run(["merge", &db, key, operand].iter().chain(more)).ok();
    };
    let get = |more: &[&str]| run(["get", &db, "k", "--number"].iter().chain(more)).ok();
    merge("k", "40", &["--number", "--merge-operator", "shamba.add-u64"]);
    merge("k", "2", &["--number"]);
    merge("6b", "1", &["--number", "--hex"]);
    merge("k", "\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00", &[]);
    merge("6b", "0300000000000000", &["--hex", "--merge-operator", "shamba.add-u64"]);
    assert_eq!(get(&[]), "48\n");
    assert_eq!(run(["get", &db, "6b", "--hex"]).ok(), "3000000000000000\n");
    let object = run(["get", &db, "k", "--number", "--json"]).json();
    assert_eq!((object["key"].as_str(), object["value"].as_str()), (Some("k"), Some("48")));
    // A compaction leaves a put, which merges go on from.
    run(["compact", &db]).ok();
    merge("k", "18446744073709551615", &["--number"]);
    assert_eq!(get(&[]), "18446744073709551615\n");
    assert_eq!(run(["get", &db, "absent", "--number"]).code, 1);

    let signed = ["--keyspace", "signed"];
    merge("k", "5", &["--number", "--merge-operator", "shamba.add-i64", "--keyspace", "signed"]);
    merge("k", "-9", &["--number", "--keyspace", "signed"]);
    assert_eq!(get(&signed), "-4\n");
    let bits = ["--keyspace", "bits"];
    merge("k", "0", &["--number", "--merge-operator", "shamba.set-bit", "--keyspace", "bits"]);
    merge("k", "9", &["--number", "--keyspace", "bits"]);
    assert_eq!(run(["get", &db, "6b", "--hex"].iter().chain(&bits)).ok(), "0102\n");
    let short = run(["get", &db, "k", "--number"].iter().chain(&bits)).fails(65);
    assert!(short.contains("the value has 2 bytes; --number needs one of 8"), "{short}");
}

#[test]
fn every_writing_command_can_give_the_operator() {
    let dir = Dir::new();
    let operator = ["--merge-operator", "shamba.append:2c"];
    for (name, args) in [("put", &["put", "k", "a"][..]), ("load", &["load", "-"]), ("batch", &["batch"])] {
        let db = dir.path(name);
        let mut words = vec![args[0], &db];
        words.extend(&args[1..]);
        words.extend(operator);
        words.extend(["--keyspace", "lists"]);
        let input: &[u8] = if name == "batch" { b"put k a\n" } else { b"k\ta\n" };
        run_with(&words, input).ok();
        run(["merge", &db, "k", "b", "--keyspace", "lists"]).ok();
        assert_eq!(run(["get", &db, "k", "--keyspace", "lists"]).ok(), "a,b\n", "{name}");
        let stats = run(["stats", &db, "--json"]).json();
        assert_eq!(stats["merge_operators"], serde_json::json!({ "lists": "shamba.append:2c" }), "{name}");
        assert!(run(["tree", &db]).ok().contains("merge operator: \"shamba.append:2c\"\n"), "{name}");
        let text = run(["stats", &db]).ok();
        assert!(text.contains("shamba.append:2c (keyspace \"lists\")"), "{text}");
        assert!(run(["manifest", &db]).ok().contains("\"shamba.append:2c\""), "{name}");
    }
}

#[test]
fn a_merge_without_an_operator_is_refused_and_creates_nothing() {
    let dir = Dir::new();
    let (db, none) = (dir.path("db"), dir.path("none"));
    run(["put", &db, "k", "v"]).ok();
    let long = "v".repeat(65_536);
    let counting = ["--merge-operator", "shamba.add-u64"];
    for (code, args, words) in [
        (3, vec!["merge", &none, "k", "1"], vec!["no database", "merge with --merge-operator create"]),
        (64, vec!["merge", &db, "k", "1"], vec!["\"default\" has no merge operator", "shamba.add-u64"]),
        (64, vec!["merge", &db, "k", "1", "--keyspace", "new"], vec!["no keyspace \"new\""]),
        (64, vec!["merge", &none, "k", "1", counting[0], "counter"], vec!["\"counter\"", "shamba.add-i64"]),
        (64, vec!["merge", &none, "k", "1", counting[0], counting[1]], vec!["8 bytes, not 1", "--number"]),
        (64, vec!["merge", &none, "k", "x", "--number", counting[0], counting[1]], vec!["OPERAND", "\"x\""]),
        (64, vec!["merge", &none, "k", &long, counting[0], "shamba.max"], vec!["65536", "65535"]),
        (64, vec!["merge", &none, "k", "1", "--number", counting[0], "shamba.max"], vec!["\"shamba.max\""]),
        (64, vec!["get", &db, "k", "--number", "--raw"], vec!["--number", "--raw"]),
    ] {
        let err = run(&args).fails(code);
        for word in words {
            assert!(err.contains(word), "{args:?} does not say {word:?}: {err}");
        }
    }
    assert!(!std::fs::exists(&none).expect("readable"), "no database was made");
    assert_eq!(run(["stats", &db, "--json"]).json()["keyspaces"].to_string(), "[\"default\"]");
    run(["merge", &db, "k", "w", "--merge-operator", "shamba.max"]).ok();
    assert_eq!(run(["get", &db, "k"]).ok(), "w\n");
    let err = run(["put", &db, "k", "x", "--merge-operator", "shamba.min"]).fails(64);
    assert!(err.contains("\"shamba.max\"") && err.contains("\"shamba.min\""), "both are named: {err}");
}

#[test]
fn lines_of_batch_merge() {
    let dir = Dir::new();
    let db = dir.path("db");
    let given = ["--keyspace", "lists", "--merge-operator", "shamba.append:2d"];
    let input = b"merge k a\nmerge k b c \nget k\nbegin\nmerge k d\nput x 1\nmerge x 2\ncommit\nget k\nget x\nmerge e \nget e\n";
    let out = run_with(["batch", &db].iter().chain(&given), input).ok();
    let due = "ok\nok\nvalue a-b c \nok\nqueued\nqueued\nqueued\nok\nvalue a-b c -d\nvalue 1-2\nok\nvalue \n";
    assert_eq!(out, due);
    // Without an operator a line has no effect, and the others of its batch are stored.
    let lines = "in default merge k 1\nin new merge k 1\nbegin\nin new merge k 1\nin lists merge k e\n\
                 in default merge k 1\ncommit\nin lists get k\n";
    let run_of_lines = run_with(["batch", &db], lines.as_bytes());
    assert_eq!(run_of_lines.code, 64, "{run_of_lines:?}");
    let replies = ["err", "err", "ok", "err", "queued", "err", "ok", "value"];
    assert_eq!(first_words(&run_of_lines.out), replies, "{run_of_lines:?}");
    assert!(
        run_of_lines.out.contains("err Invalid keyspace \"new\" has no merge operator"),
        "{run_of_lines:?}"
    );
    assert!(run_of_lines.out.ends_with("value a-b c -d-e\n"), "{run_of_lines:?}");
    assert_eq!(run(["stats", &db, "--json"]).json()["keyspaces"], serde_json::json!(["default", "lists"]));
    // An operand that the operator refuses is the engine's error, of a line or of a commit.
    let wrong = run_with(
        ["batch", &db, "--keyspace", "n", "--merge-operator", "shamba.add-u64"],
        b"merge k 1\nbegin\nput k 1\nmerge k 1\ncommit\nget k\n",
    );
    assert_eq!(wrong.code, 65, "{wrong:?}");
    assert_eq!(first_words(&wrong.out), ["err", "ok", "queued", "queued", "err", "none"], "{wrong:?}");
}

#[test]
fn explain_shows_what_was_folded() {
    let dir = Dir::new();
    let db = dir.path("db");
    let input = b"put k a\nflush\nmerge k b\nmerge k c\nmerge n x\n";
    run_with(["batch", &db, "--merge-operator", "shamba.append:"], input).ok();
    let text = run(["explain", &db, "k"]).ok();
    assert!(
        text.contains("merge operator: \"shamba.append:\" applied 2 operands to the value below"),
        "{text}"
    );
    let text = run(["explain", &db, "n"]).ok();
    assert!(text.contains("applied 1 operand to no value"), "{text}");
    let object = run(["explain", &db, "k", "--json"]).json();
    let steps = object["steps"].as_array().expect("a list");
    let folded = steps.iter().find(|step| step["place"] == "merge operator").expect("it was folded");
    assert_eq!(
        *folded,
        serde_json::json!({
            "place": "merge operator", "action": "operands folded", "operands": 2, "has_base": true,
            "operator": "shamba.append:",
        })
    );
    assert_eq!((object["outcome"].as_str(), object["value"].as_str()), (Some("found"), Some("abc")));
}

/// An operator of a program, which the command does not have.
struct Own;

impl AssociativeMerge for Own {
    fn name(&self) -> &str {
        "own.concat"
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        Ok([older, newer].concat())
    }
}

#[test]
fn a_database_with_an_operator_of_a_program_works_but_for_its_operands() {
    let dir = Dir::new();
    let db = dir.path("db");
    let open = || {
        let own = KeyspaceOptions::new().merge_operator(Own);
        Db::builder(&db).keyspace("default", own).open().expect("opens")
    };
    let program = open();
    program.put("a", "plain").expect("put");
    program.merge("b", "1").expect("merged");
    program.close().expect("closed");
    assert_eq!(run(["get", &db, "a"]).ok(), "plain\n");
    for args in [&["get", &db, "b"][..], &["scan", &db], &["dump", &db], &["explain", &db, "b"]] {
        let err = run(args).fails(5);
        assert!(err.contains("\"own.concat\"") && err.contains("\"b\""), "{args:?}: {err}");
        assert!(err.contains("hint: the operator is code of the program") && !err.contains("newer"), "{err}");
    }
    // Operands can be written without the code, and are kept.
    run(["merge", &db, "b", "2"]).ok();
    run(["compact", &db]).ok();
    run(["check", &db]).ok();
    run(["merge", &db, "b", "3", "--number"]).fails(64);
    run(["merge", &db, "b", "3", "--merge-operator", "shamba.max"]).fails(64);
    let program = open();
    assert_eq!(program.get("b").expect("readable").as_deref(), Some(&b"12"[..]));
    program.close().expect("closed");
}
