//! Tests of operands over a base that expires.

use shamba::KeyspaceOptions;
use shamba::merge::Append;

use crate::expiry::{after, builder, environment, wait};

#[test]
fn operands_outlive_their_base() {
    let env = environment(6);
    let options = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let db = builder(&env).keyspace("default", options).open().expect("opened");
    db.put_with("k", "base", after(1_000)).expect("written");
    // Long enough that a reader would leave a folded value.
    for number in 0..100 {
        db.merge("k", format!("{number}")).expect("written");
    }
    let value = || db.get("k").expect("readable").map(|value| String::from_utf8_lossy(&value).into_owned());
    assert!(value().is_some_and(|value| value.starts_with("base,0,") && value.ends_with(",99")));
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    assert!(value().is_some_and(|value| value.starts_with("base,0,")));
    let snapshot = db.snapshot();
    wait(&env, 1_000);
    assert!(value().is_some_and(|value| value.starts_with("0,1,") && value.ends_with(",99")));
    assert!(snapshot.get("k").expect("readable").is_some_and(|value| value.starts_with(b"base,0,")));
    db.compact().expect("compacted");
    assert!(snapshot.get("k").expect("readable").is_some_and(|value| value.starts_with(b"base,0,")));
    drop(snapshot);
    db.compact().expect("compacted");
    assert!(value().is_some_and(|value| value.starts_with("0,1,")));
    // All in one memtable, where a reader leaves the value that it folded.
    db.delete("k").expect("deleted");
    db.put_with("k", "base", after(1_000)).expect("written");
    for number in 0..100 {
        db.merge("k", format!("{number}")).expect("written");
    }
    for _ in 0..3 {
        assert!(value().is_some_and(|value| value.starts_with("base,0,")));
    }
    wait(&env, 1_000);
    assert!(value().is_some_and(|value| value.starts_with("0,1,")));
}
