//! Streams of databases that keep no logs for them: a stream that is read is not left behind, and
//! misses nothing.

use shamba::env::{CrashPolicy, SimFs};

use super::*;

/// The history of what no log records stays as long as a stream reads a log from before it.
#[test]
fn events_stay_while_the_log_around_them_is_read() {
    let db = builder(&in_memory(), 1).open().expect("opened");
    let mut live = db.changes_since(db.change_position()).expect("a stream");
    db.ingest([("m", "1"), ("n", "2")]).expect("ingested");
    db.keyspace("users").expect("created").put("u", "1").expect("put");
    db.drop_keyspace("users").expect("dropped");
    db.put_with("x", "1", Durability::Sync).expect("put");
    db.flush().expect("flushed");
    // An edit of the history: it removes what no log needs.
    db.keyspace("tags").expect("created");
    let expected = [
        "default ingested 2 m..=n",
        "created users",
        "users put u",
        "dropped users",
        "default put x",
        "created tags",
    ];
    assert_eq!(told(&mut live), expected);
    // Once it has gone on, they are not needed.
    drop(live);
    db.flush().expect("flushed");
    db.keyspace("others").expect("created");
}

/// Writes without a sync become durable by the flush that removes their log.
#[test]
fn a_stream_that_is_read_after_each_flush_is_never_left_behind() {
    let db = builder(&in_memory(), 1).open().expect("opened");
    let mut live = db.changes_since(db.change_position()).expect("a stream");
    for key in ["a", "b", "c", "d"] {
        db.put(key, "1").expect("put");
        assert_eq!(told(&mut live), Vec::<String>::new(), "{key} is not durable");
        db.flush().expect("flushed");
        assert_eq!(told(&mut live), [format!("default put {key}")]);
    }
}

/// A subscriber of the original must not go on with the copy after the position of the checkpoint,
/// whatever epochs the original has begun since.
#[test]
fn no_epoch_of_the_original_is_that_of_its_copy() {
    let disk = SimFs::new();
    let files: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = builder(&files, 1).open().expect("opened");
    db.put("a", "1").expect("put");
    db.checkpoint("/copy").expect("copied");
    let files: Arc<dyn Vfs> = Arc::new(disk.crash(disk.op_count(), &CrashPolicy::None));
    let db = builder(&files, 2).open().expect("opened");
    let copy = Db::builder("/copy").env(builder_env(&files)).open().expect("opened");
    for key in ["b", "c"] {
        db.put_with(key, "1", Durability::Sync).expect("put");
        copy.put_with(key, "1", Durability::Sync).expect("put");
    }
    assert_ne!(db.change_position().epoch, copy.change_position().epoch);
    assert_eq!(copy.changes_since(db.change_position()).expect_err("of the other").kind(), ErrorKind::Gone);
}
