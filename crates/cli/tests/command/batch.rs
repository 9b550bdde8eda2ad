//! Tests of batch: replies, atomicity, exit codes, and interactive use line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Dir, command, run, run_with};

#[test]
fn every_line_gets_its_reply() {
    let dir = Dir::new();
    let db = dir.path("db");
    let run = run_with(
        ["batch", &db],
        b"put a 1\nput b two words  and more\nput c \nput d\ndel a\nbegin\nput e 5\ndelrange b c\ncommit\nflush\nsync\ncompact\nput  no key\n",
    );
    let expected = "ok\nok\nok\nok\nok\nok\nqueued\nqueued\nok\nok\nok\nok\nok\n";
    assert_eq!((run.code, run.out.as_str()), (0, expected), "{}", run.err);
    let scan = crate::support::run(["scan", &db]).ok();
    assert_eq!(scan, "\tno key\nc\t\nd\t\ne\t5\n");
}

#[test]
fn a_wrong_line_has_no_effect_and_the_others_go_on() {
    let dir = Dir::new();
    let db = dir.path("db");
    let wrong: &[(&str, &str)] = &[
        ("", "empty line"),
        ("got a", "unknown operation \"got\""),
        ("get", "get needs a key: get K"),
        ("get a b", "too many parts: get K"),
        ("in", "in needs a keyspace and an operation: in NAME put K V"),
        ("in other", "in needs a keyspace and an operation: in NAME put K V"),
        ("in other flush", "unknown operation \"flush\""),
        ("in other in other put a b", "unknown operation \"in\""),
        ("PUT a b", "unknown operation \"PUT\""),
        ("put", "put needs a key and a value: put K V"),
        ("merge", "merge needs a key and an operand: merge K V"),
        ("putttl", "putttl needs a time, a key and a value: putttl 30s K V"),
        ("putttl 30s", "putttl needs a time, a key and a value: putttl 30s K V"),
        (
            "putttl soon k v",
            "\"soon\" is no length of time: use a whole number with ms, s, m, h or d, or ever",
        ),
        ("merge k \\x0", "operand: \\x at byte 0 is not followed by two hex digits"),
        ("del", "del needs a key: del K"),
        ("del a b", "too many parts: del K"),
        ("delrange a", "delrange needs two keys: delrange A B"),
        ("delrange a b c", "too many parts: delrange A B"),
        ("flush now", "flush takes no arguments"),
        ("commit", "commit without begin"),
        ("put \\x0 v", "key: \\x at byte 0 is not followed by two hex digits"),
        ("put k \\xzz", "value: \\x at byte 0 is not followed by two hex digits"),
    ];
    for (line, message) in wrong {
        let run = run_with(["batch", &db], format!("put a 1\n{line}\nput b 2\n").as_bytes());
        assert_eq!(run.code, 65, "{line}: {run:?}");
        assert_eq!(run.out, format!("ok\nerr Invalid {message}\nok\n"), "{line}");
        assert_eq!(crate::support::run(["scan", &db]).ok(), "a\t1\nb\t2\n", "{line}");
    }
    let run = run_with(["batch", &db], b"begin\nbegin\nflush\nput x 1\ncommit\n");
    let replies: Vec<&str> = run.out.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(replies, ["ok", "err", "err", "queued", "ok"]);
    assert_eq!(crate::support::run(["get", &db, "x"]).ok(), "1\n");
}

/// As `load` reads them.
#[test]
fn lines_may_end_as_windows_ends_them() {
    let dir = Dir::new();
    let db = dir.path("db");
    let run = run_with(
        ["batch", &db],
        b"put a 1\r\nput b \\x0d\r\nput c 3\ndel c\r\nbegin\r\nput d 4\r\ncommit\r\n",
    );
    assert_eq!((run.code, run.out.as_str()), (0, "ok\nok\nok\nok\nok\nqueued\nok\n"), "{}", run.err);
    assert_eq!(crate::support::run(["scan", &db]).ok(), "a\t1\nb\t\\x0d\nd\t4\n");
}

/// A client counts replies. What was not answered may not have been read.
#[test]
fn replies_that_nobody_reads_are_an_error() {
    let dir = Dir::new();
    let db = dir.path("db");
    for (first, code) in [("put first 1", 3), ("no such operation", 65)] {
        let mut child = command(["batch", &db]).stdin(Stdio::piped()).spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("piped");
        let mut replies = BufReader::new(child.stdout.take().expect("piped"));
        writeln!(stdin, "{first}").expect("writable");
        replies.read_line(&mut String::new()).expect("readable");
        drop(replies);
        // A process that another test starts has the pipe for a moment, so an early reply may still
        // be taken.
        let mut sent = 1;
        while sent < 2_000 && writeln!(stdin, "put after{sent:04} 1").is_ok() {
            sent += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stdin);
        let run = crate::support::finish(child);
        assert_eq!(run.code, code, "{run:?}");
        let line = run.err.split_once("the reply to line ").and_then(|(_, rest)| rest.split_once("; "));
        let (line, rest) = line.unwrap_or_else(|| panic!("{run:?}"));
        assert!(rest.contains("the lines after it were not read"), "{run:?}");
        let line: usize = line.parse().expect("a number");
        assert!((2..=sent).contains(&line), "{sent} lines: {run:?}");
        let keys = crate::support::run(["scan", &db]).ok();
        assert_eq!(keys.matches("after").count(), line - 1, "{keys}");
        run_with(["batch", &db], b"delrange after aftez\n").ok();
        crate::support::run(["check", &db]).ok();
    }
}

/// The name of a keyspace that a command prints can be given to another.
#[test]
fn names_of_keyspaces_are_escaped_as_keys_are() {
    let dir = Dir::new();
    let (db, copy) = (dir.path("db"), dir.path("copy"));
    let printed = ["C:\\x5cdata", "two\\x20words", "two\\x0alines", "caf\u{e9}"];
    for name in printed {
        run_with(["batch", &db], format!("in {name} put k {name}\n").as_bytes()).ok();
        assert_eq!(
            crate::support::run(["get", &db, "k", "--keyspace", name]).ok().trim_end().replace("\\x20", " "),
            name.replace("\\x20", " ")
        );
    }
    let names = |db: &str| crate::support::run(["stats", db, "--json"]).json()["keyspaces"].clone();
    assert_eq!(
        names(&db),
        serde_json::json!(["C:\\data", "caf\u{e9}", "default", "two\nlines", "two words"])
    );
    let dump = crate::support::run(["dump", &db, "--all"]).ok();
    for name in dump.lines().filter_map(|line| line.strip_prefix("# keyspace ")) {
        let pairs = crate::support::run(["dump", &db, "--keyspace", name]).ok();
        run_with(["load", &copy, "-", "--hex", "--keyspace", name], pairs.as_bytes()).ok();
    }
    assert_eq!(names(&copy), names(&db));
    assert_eq!(crate::support::run(["dump", &copy, "--all"]).ok(), dump);
    let changes = crate::support::run(["changes", &db]);
    assert!(!changes.out.contains("two\nlines"), "{}", changes.out);
    crate::support::run(["get", &db, "k", "--keyspace", "\\xzz"]).fails(64);
}

#[test]
fn keyspaces_are_named_line_by_line_and_reads_see_what_is_committed() {
    let dir = Dir::new();
    let db = dir.path("db");
    let lines = b"in users get a\nin users put a 1\nput a 2\nin users get a\nget a\nbegin\nin users del a\n\
        in logs put x two words\nput a 3\nin users get a\nget a\ncommit\nin users get a\nin logs get x\nget a\n\
        in none get a\nput e \nget e\n";
    let run = run_with(["batch", &db], lines);
    let replies: Vec<&str> = run.out.lines().collect();
    let first = ["none", "ok", "ok", "value 1", "value 2", "ok", "queued", "queued", "queued"];
    assert_eq!(replies[..9], first, "{run:?}");
    let rest = ["value 1", "value 2", "ok", "none", "value two words", "value 3", "none", "ok", "value "];
    assert_eq!((run.code, &replies[9..]), (0, &rest[..]), "{}", run.err);
    let stats = crate::support::run(["stats", &db, "--json"]).json();
    assert_eq!(stats["keyspaces"], serde_json::json!(["default", "logs", "users"]), "a look makes none");
}

#[test]
fn a_begin_that_is_open_at_the_end_of_input_is_an_error_of_its_line() {
    let dir = Dir::new();
    let db = dir.path("db");
    let cut = run_with(["batch", &db], b"put a 1\nbegin\nput b 2\ndel a\n");
    assert_eq!(cut.out, "ok\nok\nqueued\nqueued\n");
    assert_eq!(cut.fails(65), "shamba: line 2: begin without commit: 2 operations not stored\n");
    assert_eq!(run(["scan", &db]).ok(), "a\t1\n");
    let second = run_with(["batch", &db], b"begin\nput b 2\ncommit\nbegin\nput c 3");
    assert!(second.fails(65).contains("line 4: begin without commit: 1 operation not stored"));
    assert_eq!(run(["scan", &db]).ok(), "a\t1\nb\t2\n");
    let worse = run_with(["batch", &db], b"merge a 1\nbegin\n"); // There is no merge operator.
    assert!(
        worse.fails(64).contains("line 2"),
        "the first error has the code, and this one is told all the same"
    );
    run_with(["batch", &db], b"del b\n").ok();
}

#[test]
fn without_input_no_database_is_made() {
    let dir = Dir::new();
    let (none, empty) = (dir.path("none"), dir.path("empty"));
    std::fs::create_dir(&empty).expect("mkdir");
    for db in [&none, &empty] {
        assert_eq!(run_with(["batch", db], b"").ok(), "");
    }
    assert!(!std::fs::exists(&none).expect("readable"));
    assert_eq!(crate::support::contents(&empty), []);
}

#[test]
fn the_last_line_needs_no_end() {
    let dir = Dir::new();
    let db = dir.path("db");
    run_with(["batch", &db], b"put last 1").ok();
    assert_eq!(run(["get", &db, "last"]).ok(), "1\n", "a last line without its end counts");
    assert_eq!(run_with(["batch", &db], b"").ok(), "");
}

#[test]
fn a_key_that_is_too_long_is_refused_by_the_engine() {
    let dir = Dir::new();
    let db = dir.path("db");
    let run = run_with(["batch", &db], format!("put {} v\nput a 1\n", "k".repeat(65_536)).as_bytes());
    let replies: Vec<&str> = run.out.lines().collect();
    assert!(replies[0].starts_with("err Invalid ") && replies[0].contains("65"), "{replies:?}");
    assert_eq!((replies[1], run.code), ("ok", 65));
}

/// The rest of a line that was cut can be a line with another meaning.
#[test]
fn a_dump_that_was_cut_in_a_line_is_not_loaded() {
    let dir = Dir::new();
    let db = dir.path("db");
    run_with(["batch", &db], b"put a first\nputttl 1h b second\n").ok();
    let dump = run(["dump", &db]).ok();
    let first = dump.find('\n').expect("two lines") + 1;
    for cut in first..dump.len() {
        let copy = dir.path(&format!("copy {cut}"));
        let loaded = run_with(["load", &copy, "--hex", "--skip-bad"], &dump.as_bytes()[..cut]);
        if cut == first {
            loaded.ok();
        } else {
            let said = loaded.fails(65);
            assert!(said.contains("standard input:2: the line has no end"), "cut at {cut}: {said}");
        }
        assert_eq!(run(["scan", &copy]).ok(), "a\tfirst\n");
    }
}

/// An open after a command that has failed finds the log ended.
#[test]
fn a_command_that_fails_closes_the_database() {
    let dir = Dir::new();
    let (db, taken) = (dir.path("db"), dir.path("taken"));
    run(["put", &db, "k", "v"]).ok();
    std::fs::create_dir(&taken).expect("mkdir");
    std::fs::write(format!("{taken}/file"), "x").expect("written");
    for failing in [
        &["delete", &db, "k", "--keyspace", "no"][..],
        &["compact", &db, "--keyspace", "no"],
        &["checkpoint", &db, &taken],
        &["merge", &db, "k", "1"],
        &["changes", &db, "--since", "9:9"],
        &["tune", &db, "--undo"],
    ] {
        assert_ne!(run(failing).code, 0, "{failing:?}");
        let logs = std::fs::read_dir(&db).expect("readable").map(|entry| entry.expect("readable").path());
        let last = logs.filter(|path| path.extension().is_some_and(|end| end == "log")).max();
        let shown = run(["wal", last.expect("a log").to_str().expect("text")]).ok();
        assert!(shown.ends_with("closed cleanly\n"), "{failing:?}: {shown}");
    }
}

#[test]
fn hex_takes_any_bytes() {
    let dir = Dir::new();
    let db = dir.path("db");
    run_with(["batch", &db, "--hex"], b"put 0020 0a0d\nput ff \n").ok();
    assert_eq!(run(["dump", &db]).ok(), "0020\t0a0d\nff\t\n");
    assert_eq!(run_with(["batch", &db, "--hex"], b"put xy 00\n").code, 65);
}

#[test]
fn replies_are_flushed_and_the_database_is_locked_meanwhile() {
    let dir = Dir::new();
    let db = dir.path("db");
    let mut child =
        command(["batch", &db, "--sync", "always"]).stdin(Stdio::piped()).spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let mut replies = BufReader::new(child.stdout.take().expect("piped")).lines();
    for (line, reply) in [("put a 1", "ok"), ("begin", "ok"), ("put b 2", "queued"), ("commit", "ok")] {
        writeln!(stdin, "{line}").expect("it reads");
        assert_eq!(replies.next().expect("a reply").expect("readable"), reply);
    }
    for args in [
        vec!["get", &db, "a"],
        vec!["put", &db, "a", "2"],
        vec!["scan", &db],
        vec!["check", &db],
        vec!["stats", &db, "--json"],
    ] {
        let err = run(&args).fails(4);
        assert!(err.contains(&db), "{args:?} names the database: {err}");
    }
    // As after kill -9: acknowledged writes are present, and the lock is free.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(run(["scan", &db]).ok(), "a\t1\nb\t2\n");
}

#[test]
fn a_keyspace_is_made_for_writes_that_are_done_and_no_others() {
    let dir = Dir::new();
    let db = dir.path("db");
    let long = "k".repeat(65_536);
    let lines = format!(
        "put a 1\nin first put {long} v\nin second delrange a {long}\nbegin\nin third put a 1\nin third put b 2\n\
         in third del b\nin fourth put {long} v\ncommit\nbegin\nin fifth put a 1\nin fifth del b\nput z 1\ncommit\n\
         in sixth put a 1\nbegin\nin seventh put a 1\nput b 2\n"
    );
    let run = run_with(["batch", &db], lines.as_bytes());
    let replies: Vec<&str> = run.out.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    let first = ["ok", "err", "err", "ok", "queued", "queued", "queued", "queued", "err"];
    assert_eq!(replies[..9], first, "{run:?}");
    assert_eq!(replies[9..], ["ok", "queued", "queued", "queued", "ok", "ok", "ok", "queued", "queued"]);
    assert!(run.err.contains("2 operations not stored"), "{run:?}");
    let stats = crate::support::run(["stats", &db, "--json"]).json();
    assert_eq!(stats["keyspaces"], serde_json::json!(["default", "fifth", "sixth"]));
    assert_eq!(run_with(["batch", &db], b"in fifth get a\nget z\n").ok(), "value 1\nvalue 1\n");
    // An invalid name is rejected at once, and a commit that contains it creates no other keyspace.
    let name = "n".repeat(256);
    let run = run_with(
        ["batch", &db],
        format!(
            "in {name} put a 1\nbegin\nin eighth put {long} 1\nin ninth put a 1\nin {name} put a 1\ncommit\n"
        )
        .as_bytes(),
    );
    let replies: Vec<&str> = run.out.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(replies, ["err", "ok", "queued", "queued", "err", "err"]);
    let input = format!("begin\nin tenth put a 1\nin {name} put a 1\nin  put a 1\ncommit\n");
    let run = run_with(["batch", &db], input.as_bytes());
    let replies: Vec<&str> = run.out.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(replies, ["ok", "queued", "err", "err", "ok"]);
    let stats = crate::support::run(["stats", &db, "--json"]).json();
    assert_eq!(stats["keyspaces"], serde_json::json!(["default", "fifth", "sixth", "tenth"]));
}

#[test]
fn what_a_batch_did_is_recorded() {
    let dir = Dir::new();
    let (db, trace) = (dir.path("db"), dir.path("trace.txt"));
    let input = b"put a 1\nget a\nbegin\ndel a\ndelrange b c\ncommit\nget a\n";
    run_with(["batch", &db, "--record", &trace], input).ok();
    let text = std::fs::read_to_string(&trace).expect("written");
    let lines = ["I a *1", "Q a +", "D a", "X b c", "Q a -", "# end 5"];
    assert_eq!(text, format!("# shamba trace 1\n{}\n", lines.join("\n")));
    let error = run_with(["batch", &db, "--record", &trace], input).fails(3);
    assert!(error.contains("trace.txt"), "{error}");
}

#[test]
fn a_write_that_stalls_past_its_deadline_exits_with_8() {
    let dir = Dir::new();
    let db = dir.path("db");
    // At a byte per second no compaction ends, so the run that stops writers stays.
    let slow =
        ["--experimental", "rate-limit=1", "--experimental", "l0-stop-runs=2", "--write-deadline", "50"];
    let lines: String = (0..10).map(|number| format!("put key value{number}\nflush\n")).collect();
    let run = run_with(["batch", &db].into_iter().chain(slow), lines.as_bytes());
    assert_eq!(run.code, 8, "{run:?}");
    let is_put = |line: &(usize, &str)| line.0.is_multiple_of(2);
    let stored = run.out.lines().enumerate().filter(is_put).take_while(|(_, reply)| *reply == "ok").count();
    assert!((2..10).contains(&stored) && run.out.contains("err Stalled"), "{run:?}");
    assert_eq!(crate::support::run(["get", &db, "key"]).ok(), format!("value{}\n", stored - 1));
}
