//! The stream of changes: a replica that is built from it equals the database, whatever happens to
//! both; positions that a crash or a deletion of logs has made useless are refused.

mod failures;
mod lost_tail;
mod model;
mod unkept;

use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs, Vfs};
use shamba::merge::Append;
use shamba::{
    Builder, Change, ChangeOp, ChangePosition, Changes, ChangesOptions, Db, Durability, ErrorKind,
    KeyspaceOptions,
};

const DIR: &str = "/db";
/// The keyspace with a merge operator.
const JOURNAL: &str = "journal";
const NAMES: [&str; 4] = ["default", "users", "tags", JOURNAL];
const FOREVER: Duration = Duration::from_secs(1 << 30);

fn builder(files: &Arc<dyn Vfs>, seed: u64) -> Builder {
    let env = Env::deterministic(Arc::clone(files), seed);
    let journal = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    Db::builder(DIR)
        .env(env)
        .info_log(false)
        .memory_budget(8 << 20)
        .write_buffer(4 << 10)
        .keyspace(JOURNAL, journal)
}

fn in_memory() -> Arc<dyn Vfs> {
    Arc::new(MemFs::new())
}

/// The changes of a stream in a few words each.
fn told(changes: &mut Changes) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(change) = changes.try_next().expect("read") {
        told.push(match &change {
            Change::Batch(batch) => {
                let ops = batch.operations().map(|(keyspace, op)| match op {
                    ChangeOp::Put { key, .. } => format!("{keyspace} put {}", key.escape_ascii()),
                    ChangeOp::Delete { key, .. } => format!("{keyspace} delete {}", key.escape_ascii()),
                    ChangeOp::Merge { key, operand, .. } => {
                        format!("{keyspace} merge {} {}", key.escape_ascii(), operand.escape_ascii())
                    }
                    ChangeOp::DeleteRange { start, end, .. } => {
                        let end = end.unwrap_or_default();
                        format!("{keyspace} delete {}..{}", start.escape_ascii(), end.escape_ascii())
                    }
                    other => format!("{other:?}"),
                });
                ops.collect::<Vec<_>>().join(", ")
            }
            Change::Ingested { keyspace, entries, first, last, .. } => {
                format!("{keyspace} ingested {entries} {}..={}", first.escape_ascii(), last.escape_ascii())
            }
            Change::KeyspaceCreated { keyspace, .. } => format!("created {keyspace}"),
            Change::KeyspaceDropped { keyspace, .. } => format!("dropped {keyspace}"),
            other => format!("{other:?}"),
        });
    }
    told
}

#[test]
fn batches_and_events_come_in_the_order_of_commits_also_from_an_older_log() {
    let files = in_memory();
    let open = || builder(&files, 1).keep_log(1 << 20, FOREVER).open().expect("opened");
    let db = open();
    let begin = db.change_position();
    let mut live = db.changes_since(begin).expect("a stream");
    let users = db.keyspace("users").expect("created");
    let mut batch = db.batch();
    batch.put("a", "1").put_in(&users, "b", "2").delete("c");
    batch.commit().expect("committed");
    users.delete_range("x".."y").expect("deleted");
    let expected = vec!["created users"];
    assert_eq!(told(&mut live), expected, "the rest is not durable");
    users.ingest([("m", "1"), ("n", "2")]).expect("ingested");
    db.keyspace(JOURNAL).expect("created").merge("k", "v").expect("merged");
    db.drop_keyspace("users").expect("dropped");
    db.keyspace("users").expect("created again").put("z", "1").expect("put");
    db.sync().expect("synced");
    let rest = [
        "default put a, users put b, default delete c",
        "users delete x..y",
        "users ingested 2 m..=n",
        "created journal",
        "journal merge k v",
        "dropped users",
        "created users",
        "users put z",
    ];
    assert_eq!(told(&mut live), rest);
    assert_eq!(live.position(), db.change_position());
    drop(live);
    db.flush().expect("flushed");
    db.close().expect("closed");
    // Everything is in tables, and what was dropped is gone.
    let db = open();
    let mut again = db.changes_since(begin).expect("the logs are kept");
    assert_eq!(told(&mut again), [&expected[..], &rest].concat());
    assert!(db.stats().kept_log_bytes > 0);
    assert!(db.verify().expect("checked").problems.is_empty());
    // A position between two batches continues there.
    let mut from_there = db.changes_since(begin).expect("a stream");
    let second = (0..2).map(|_| from_there.try_next().expect("read").expect("a change").position()).last();
    let mut rest_of_it = db.changes_since(second.expect("two")).expect("a stream");
    assert_eq!(told(&mut rest_of_it), rest[1..]);
}

#[test]
fn without_kept_logs_a_stream_may_fall_behind_and_is_told_the_oldest_position() {
    let files = in_memory();
    let db = builder(&files, 1).open().expect("opened");
    let begin = db.change_position();
    let mut slow = db.changes_since(begin).expect("a stream");
    db.put_with("a", "1", Durability::Sync).expect("put");
    db.flush().expect("flushed");
    db.put_with("b", "2", Durability::Sync).expect("put");
    // The log that it reads stays, and the next one is the newest.
    assert_eq!(told(&mut slow), ["default put a", "default put b"]);
    drop(slow);
    let mut slower = db.changes_since(db.change_position()).expect("a stream");
    for key in ["c", "d", "e"] {
        db.put(key, "3").expect("put");
        db.flush().expect("flushed");
    }
    let error = slower.try_next().expect_err("a log is gone");
    assert_eq!(error.kind(), ErrorKind::Gone);
    let oldest = db.oldest_change_position().expect("a stream");
    assert!(error.to_string().contains(&format!("the oldest position is {oldest}")), "{error}");
    assert_eq!(db.changes_since(begin).expect_err("it is older").kind(), ErrorKind::Gone);
    assert!(db.changes_since(oldest).is_ok());
    let beyond = ChangePosition { sequence: oldest.sequence + 1_000, ..oldest };
    assert_eq!(db.changes_since(beyond).expect_err("not reached").kind(), ErrorKind::Invalid);
    let other = ChangePosition { epoch: oldest.epoch + 1, ..oldest };
    assert_eq!(db.changes_since(other).expect_err("unknown").kind(), ErrorKind::Gone);
}

fn logs(files: &Arc<dyn Vfs>) -> Vec<String> {
    let names = files.list(DIR.as_ref()).expect("listed").into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".log")).collect()
}

#[test]
fn kept_logs_stay_within_bytes_and_age_and_leave_when_the_option_is_off() {
    let files = in_memory();
    let fill = |db: &Db, flushes: u32| {
        for number in 0..flushes {
            db.put(format!("key {number}"), vec![7; 100_000]).expect("put");
            db.flush().expect("flushed");
        }
    };
    let db = builder(&files, 1).keep_log(500_000, FOREVER).open().expect("opened");
    fill(&db, 20);
    let kept = logs(&files);
    assert!((3..=6).contains(&kept.len()), "{kept:?}");
    assert!((200_000..=500_000).contains(&db.stats().kept_log_bytes), "{}", db.stats().kept_log_bytes);
    db.close().expect("closed");
    // They count as before after a reopen.
    let db = builder(&files, 2).keep_log(500_000, FOREVER).open().expect("opened");
    assert!((200_000..=500_000).contains(&db.stats().kept_log_bytes));
    fill(&db, 3);
    assert!((200_000..=500_000).contains(&db.stats().kept_log_bytes));
    db.close().expect("closed");
    let report = shamba::check_files(&builder_env(&files), DIR.as_ref()).expect("checked");
    assert!(report.problems.is_empty() && report.warnings.is_empty(), "{report:?}");
    // The age of a log counts across reopens.
    let env = builder_env(&files);
    let open = |age_s| {
        let builder = builder(&files, 3).env(env.clone());
        builder.keep_log(1 << 30, Duration::from_secs(age_s)).open().expect("opened")
    };
    env.clock.sleep_us(100_000_000);
    let db = open(30);
    assert_eq!(logs(&files).len(), 2, "that of the last open is obsolete since this one: {:?}", logs(&files));
    fill(&db, 3);
    env.clock.sleep_us(20_000_000);
    db.close().expect("closed");
    let db = open(30);
    fill(&db, 2);
    assert!(logs(&files).len() >= 6);
    env.clock.sleep_us(20_000_000);
    fill(&db, 1);
    assert!((3..=5).contains(&logs(&files).len()), "{:?}", logs(&files));
    db.close().expect("closed");
    let db = builder(&files, 4).keep_log(1 << 30, FOREVER).open().expect("opened");
    fill(&db, 5);
    let old = db.oldest_change_position().expect("a stream");
    assert!(logs(&files).len() >= 6);
    db.close().expect("closed");
    let db = builder(&files, 5).open().expect("opened");
    assert_eq!((logs(&files).len(), db.stats().kept_log_bytes), (1, 0));
    assert_eq!(db.changes_since(old).expect_err("deleted").kind(), ErrorKind::Gone);
}

#[test]
fn kept_logs_are_bounded_in_number() {
    let files = in_memory();
    let open = || builder(&files, 1).keep_log(1 << 20, FOREVER).open().expect("opened");
    let db = open();
    for number in 0..40_u32 {
        db.put(number.to_be_bytes(), "a short log").expect("put");
        db.flush().expect("flushed");
    }
    // Each counts at least 64 KiB, and there is the one that is written to.
    assert_eq!(logs(&files).len(), 16 + 1, "{:?}", logs(&files));
    assert!(db.stats().kept_log_bytes < 64 << 10, "the bytes are those that they have");
    db.close().expect("closed");
    for _ in 0..5 {
        open().close().expect("closed");
        assert!(logs(&files).len() <= 16 + 2, "{:?}", logs(&files));
    }
}

#[test]
fn a_damaged_kept_log_ends_what_is_kept_and_is_named() {
    let files = in_memory();
    let open = || builder(&files, 1).keep_log(1 << 30, FOREVER).open().expect("opened");
    let db = open();
    let mut positions = vec![db.change_position()];
    for number in 0..6_u32 {
        db.put(number.to_be_bytes(), "value").expect("put");
        db.flush().expect("flushed");
        positions.push(db.change_position());
    }
    let mut names = logs(&files);
    names.sort();
    db.close().expect("closed");
    // The third log has the change between the third and the fourth position.
    let damaged = format!("{DIR}/{}", names[2]);
    let mut bytes = shamba::env::read_file(files.as_ref(), damaged.as_ref()).expect("read");
    bytes[40] ^= 1;
    files.unlink(damaged.as_ref()).expect("removed");
    let mut file = files.create(damaged.as_ref()).expect("created");
    shamba::env::append_all(file.as_mut(), &bytes).expect("written");
    drop(file);
    let db = open();
    let warnings = db.warnings();
    assert!(warnings.iter().any(|warning| warning.contains(&damaged)), "{warnings:?}");
    for (at, position) in positions.iter().enumerate() {
        match db.changes_since(*position) {
            Ok(mut changes) => {
                assert!(at >= 3, "the change after position {at} is damaged, or before one that is");
                assert_eq!(told(&mut changes).len(), 6 - at);
            }
            Err(error) => {
                assert!(at < 3, "position {at}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Gone);
                assert!(error.to_string().contains(&damaged), "{error}");
            }
        }
    }
    assert_eq!(db.oldest_change_position().expect("a stream"), positions[3]);
    let found = db.verify().expect("checked").problems;
    assert!(found.is_empty(), "{found:?}");
}

fn builder_env(files: &Arc<dyn Vfs>) -> Env {
    Env::deterministic(Arc::clone(files), 9)
}

#[test]
fn positions_survive_clean_reopens_and_an_open_without_a_log_leaves_a_gap() {
    let files = in_memory();
    let open = |no_wal| {
        let builder = builder(&files, 1).keep_log(1 << 20, FOREVER);
        builder.experimental(|options| options.no_wal(no_wal)).open().expect("opened")
    };
    let db = open(false);
    db.put("a", "1").expect("put");
    let begin = db.change_position();
    db.close().expect("closed");
    let db = open(false);
    assert_eq!(db.change_position(), begin, "nothing was written");
    db.put("b", "2").expect("put");
    db.close().expect("closed");
    let db = open(true);
    for refused in [db.changes_since(begin).map(drop), db.oldest_change_position().map(drop)] {
        assert_eq!(refused.expect_err("no log").kind(), ErrorKind::Unsupported);
    }
    db.close().expect("closed");
    // It wrote nothing, so nothing is missing.
    let db = open(false);
    assert_eq!(told(&mut db.changes_since(begin).expect("a stream")), ["default put b"]);
    db.close().expect("closed");
    let db = open(true);
    db.put("unlogged", "3").expect("put");
    db.close().expect("closed");
    let mut db = open(false);
    assert_eq!(db.changes_since(begin).expect_err("a gap").kind(), ErrorKind::Gone);
    // So is a change of the list of keyspaces alone.
    for is_created in [true, false] {
        let begin = db.change_position();
        db.clone().close().expect("closed");
        let unlogged = open(true);
        match is_created {
            true => drop(unlogged.keyspace("users").expect("created")),
            false => unlogged.drop_keyspace("users").expect("dropped"),
        }
        let at_copy = unlogged.change_position();
        assert!(at_copy.sequence > begin.sequence, "the change has a number");
        unlogged.close().expect("closed");
        db = open(false);
        assert_eq!(db.changes_since(begin).expect_err("a gap").kind(), ErrorKind::Gone);
        // Without a log there are no epochs: a crash could have lost what the copy has.
        let refused = db.changes_since(at_copy).expect_err("of no epoch");
        assert!(
            refused.kind() == ErrorKind::Gone && refused.to_string().contains("without a log"),
            "{refused}"
        );
    }
    assert_eq!(told(&mut db.changes_since(db.change_position()).expect("a stream")), Vec::<String>::new());
    db.close().expect("closed");
    let db = builder(&files, 1).read_only(true).open().expect("opened");
    assert_eq!(db.changes_since(begin).expect_err("read-only").kind(), ErrorKind::Unsupported);
}

#[test]
fn a_checkpoint_continues_the_positions_of_the_database() {
    let files = in_memory();
    let db = builder(&files, 1).keep_log(1 << 20, FOREVER).open().expect("opened");
    db.put("a", "1").expect("put");
    db.checkpoint("/copy").expect("copied");
    let at_copy = db.change_position();
    db.put_with("b", "2", Durability::Sync).expect("put");
    let later = db.change_position();
    let copy = Db::builder("/copy").env(builder_env(&files)).open().expect("opened");
    assert_eq!(copy.get("a").expect("read").as_deref(), Some(&b"1"[..]));
    copy.put_with("other", "2", Durability::Sync).expect("put");
    assert_eq!(told(&mut copy.changes_since(at_copy).expect("a stream")), ["default put other"]);
    assert_eq!(copy.changes_since(later).expect_err("of the other").kind(), ErrorKind::Gone);
    assert_eq!(told(&mut db.changes_since(at_copy).expect("a stream")), ["default put b"]);
}

#[test]
fn a_waiting_stream_is_woken_by_a_sync_and_ends_with_the_database() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("db")).expect("opened");
    let unsynced = ChangesOptions::new().include_unsynced(true);
    for options in [ChangesOptions::new(), unsynced] {
        let mut changes = db.changes_since_with(db.change_position(), options).expect("a stream");
        assert!(changes.next_timeout(Duration::from_millis(3)).expect("no failure").is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut keys = Vec::new();
                for _ in 0..50 {
                    let Some(Ok(Change::Batch(batch))) = changes.next() else { panic!("a batch") };
                    let first = batch.operations().next();
                    let Some((_, ChangeOp::Put { key, .. })) = first else { panic!("a put") };
                    keys.push(key.to_vec());
                }
                keys
            });
            for number in 0..50_u32 {
                db.put(number.to_be_bytes(), "value").expect("put");
                if options == ChangesOptions::new() && number % 10 == 9 {
                    db.sync().expect("synced");
                }
            }
            let keys = waiter.join().expect("no panic");
            assert_eq!(keys, (0..50_u32).map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>());
        });
    }
    let streams = [ChangesOptions::new(), unsynced]
        .map(|options| db.changes_since_with(db.change_position(), options).expect("a stream"));
    std::thread::scope(|scope| {
        let waiters = streams.map(|changes| scope.spawn(move || changes.count()));
        std::thread::sleep(Duration::from_millis(5));
        db.clone().close().expect("closed");
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), 0);
        }
    });
    assert_eq!(db.changes_since(db.change_position()).expect_err("closed").kind(), ErrorKind::Closed);
}
