//! Tests of `changes`.

use crate::support::{Dir, run, run_with};

#[test]
fn changes_are_printed_from_any_position() {
    let dir = Dir::new();
    let db = dir.path("db");
    run(["put", &db, "city", "Mombasa", "--keep-log", "1000000:1000000", "--record-options"]).ok();
    let lines = b"begin\nput town Lamu\ndel city\ncommit\n";
    run_with(["batch", &db, "--keyspace", "places"], lines).ok();
    run(["put", &db, "\\x00", "zero"]).ok();
    let text = run(["changes", &db]).ok();
    let expected = [
        "batch of 1",
        "  put [default] city = Mombasa",
        "keyspace created [places]",
        "batch of 2",
        "  put [places] town = Lamu",
        "  delete [places] city",
        "batch of 1",
        "  put [default] \\x00 = zero",
    ];
    let without_position = |line: &str| match line.starts_with(' ') {
        true => line.to_owned(),
        false => line.split_once(' ').map_or_else(String::new, |(_, rest)| rest.to_owned()),
    };
    assert_eq!(text.lines().map(without_position).collect::<Vec<_>>(), expected);
    let position = text.lines().nth(2).and_then(|line| line.split(' ').next()).expect("a position");
    let since = run(["changes", &db, "--since", position, "--hex", "--json"]).ok();
    let objects: Vec<serde_json::Value> =
        since.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[1]["operations"][0]["key"], "00");
    assert_eq!(objects[1]["operations"][0]["value"], "7a65726f");
    // Positions that are wrong, of another database, or not reached.
    let wrong = run(["changes", &db, "--since", "7"]);
    assert_eq!(wrong.code, 64);
    assert!(wrong.err.contains("EPOCH:SEQUENCE"), "{}", wrong.err);
    let other = run(["changes", &db, "--since", "9999:1"]);
    assert_eq!(other.code, 3);
    assert!(other.err.contains("epoch 9999 is not known"), "{}", other.err);
    // An open that keeps no logs has none to print.
    run(["compact", &db]).ok();
    assert!(run(["changes", &db]).ok().contains("Mombasa"), "it is in tables, and its log is kept");
    run(["put", &db, "city", "Lamu", "--keep-log", "off"]).ok();
    let text = run(["changes", &db]).ok();
    assert!(text.contains("Lamu") && !text.contains("Mombasa"), "{text}");
}
