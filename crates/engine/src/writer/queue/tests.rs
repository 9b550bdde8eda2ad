//! Tests of groups: who leads, who follows, what is refused, and what fails.

use std::path::Path;

use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};

use super::super::conditions::KeyRead;
use super::*;
use crate::database::Db;
use crate::database::core::Core;

mod alone;

fn db() -> Db {
    db_with_faults().1
}

fn db_with_faults() -> (FaultFs, Db) {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
    let builder = Db::builder(Path::new("/db")).env(env).durability(Durability::Sync);
    (faults, builder.open().expect("opened"))
}

/// Waits until there is a leader and `followers` writers wait.
fn wait_for(core: &Core, followers: usize) {
    loop {
        if core.writer.commits.line.standing() == (1, followers) {
            return;
        }
        core.env.clock.sleep_us(100);
    }
}

#[test]
fn writers_that_gather_behind_a_busy_log_share_a_group_and_a_sync() {
    const WRITERS: usize = 5;
    let db = db();
    let core = db.core();
    let before = db.stats();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                let key = format!("k{writer}");
                if writer % 2 == 0 {
                    db.put(&key, "v").expect("written");
                } else {
                    let mut batch = db.batch();
                    batch.put(&key, "v").delete("nothing");
                    batch.commit().expect("written");
                }
            });
        }
        wait_for(core, WRITERS - 1);
        drop(busy);
    });
    let done = db.stats().since(&before);
    assert_eq!((done.batches, done.commit_groups, done.wal_syncs), (WRITERS as u64, 1, 1));
    assert_eq!((done.puts, done.deletes), (WRITERS as u64, 2));
    for writer in 0..WRITERS {
        assert!(db.contains_key(format!("k{writer}")).expect("read"));
    }
    assert_eq!(core.writer.commits.syncing_writers.load(Ordering::Relaxed), WRITERS);
    // There is no leader any more, and a lone writer does not wait for ever for the earlier
    // ones.
    assert_eq!(core.writer.commits.line.standing(), (0, 0));
    db.put("alone", "v").expect("written");
    assert_eq!(core.writer.commits.syncing_writers.load(Ordering::Relaxed), 1);
}

#[test]
fn every_writer_of_a_group_that_failed_is_told() {
    const WRITERS: usize = 4;
    let (faults, db) = db_with_faults();
    let core = db.core();
    let before = db.stats();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || db.put(format!("k{writer}"), "v"))
            })
            .collect();
        wait_for(core, WRITERS - 1);
        faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
        drop(busy);
        for writer in writers {
            let outcome = writer.join().expect("no panic").map_err(|error| error.kind());
            assert_eq!(outcome, Err(ErrorKind::Io), "none of the group's writes is durable");
        }
    });
    assert_eq!((faults.faults_injected(), db.stats().since(&before).commit_groups), (1, 0));
    for writer in 0..WRITERS {
        assert!(!db.contains_key(format!("k{writer}")).expect("read"), "nothing of the group is visible");
    }
    assert_eq!(db.put("more", "v").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
}

/// Puts `key` under the condition that it is unchanged since `since`.
fn put_unchanged(core: &Core, key: &str, since: shamba_key::SeqNo) -> Result<()> {
    let keyspace = core.catalog.named(crate::catalog::DEFAULT_KEYSPACE).expect("it exists");
    let read = KeyRead {
        keyspace: keyspace.id,
        digest: core.reads.digest().digest(key.as_bytes()),
        key: bytes::Bytes::copy_from_slice(key.as_bytes()),
    };
    let conditions = Arc::new(Conditions { since, until: None, keys: vec![read], ranges: Vec::new() });
    let op = OpRef::Put { key: key.as_bytes(), value: b"v" };
    core.writer.commit_op_if(&keyspace, op, Durability::Sync.into(), Some(&conditions))
}

#[test]
fn conditions_are_checked_against_earlier_batches_of_the_group() {
    let db = db();
    let core = db.core();
    db.put("shared", "0").expect("written");
    let since = core.reads.visible();
    let before = db.stats();
    let outcomes = std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let mut writers = Vec::new();
        let mut join = |write: Box<dyn FnOnce() -> Result<()> + Send>| {
            writers.push(scope.spawn(write));
            wait_for(core, writers.len() - 1);
        };
        join(Box::new(|| db.delete_range("c".."d")));
        join(Box::new(|| put_unchanged(core, "shared", since)));
        join(Box::new(|| put_unchanged(core, "shared", since)));
        join(Box::new(|| put_unchanged(core, "c1", since)));
        // What was refused has written nothing.
        join(Box::new(|| put_unchanged(core, "other", since)));
        join(Box::new(|| db.put("shared2", "v")));
        join(Box::new(|| put_unchanged(core, "shared2", since)));
        drop(busy);
        let outcome = |writer: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            writer.join().expect("no panic").map_err(|error| (error.kind(), error.to_string()))
        };
        writers.into_iter().map(outcome).collect::<Vec<_>>()
    });
    let conflict = |key: &str| {
        let text = format!("key \"{key}\" of keyspace \"default\" was written after the transaction began");
        Err((ErrorKind::Conflict, text))
    };
    let expected = [Ok(()), Ok(()), conflict("shared"), conflict("c1"), Ok(()), Ok(()), conflict("shared2")];
    assert_eq!(outcomes, expected);
    let done = db.stats().since(&before);
    assert_eq!((done.batches, done.commit_groups, done.wal_syncs), (4, 1, 1));
    assert_eq!((done.conflicts, done.conflicts_unproved), (3, 0));
    assert!(!db.contains_key("c1").expect("read"), "it was refused");
}

#[test]
fn ranges_are_checked_against_earlier_batches_of_the_group() {
    let db = db();
    let core = db.core();
    let reader_of = |low: &str, high: &str| {
        let mut transaction = db.transaction();
        assert_eq!(transaction.range(low..high).count(), 0);
        transaction.put(low, "v").expect("put");
        transaction
    };
    let [put, deleted, before, behind, refused] =
        [("a", "c"), ("g", "k"), ("c", "f"), ("h", "k"), ("a1", "a2")]
            .map(|(low, high)| reader_of(low, high));
    let outcomes = std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let mut writers = Vec::new();
        let mut join = |write: Box<dyn FnOnce() -> Result<()> + Send>| {
            writers.push(scope.spawn(write));
            wait_for(core, writers.len() - 1);
        };
        join(Box::new(|| db.put("b", "v")));
        join(Box::new(|| db.delete_range("f".."h")));
        join(Box::new(|| put.commit()));
        join(Box::new(|| deleted.commit()));
        // These end where the deleted range begins, and begin where it ends.
        join(Box::new(|| before.commit()));
        join(Box::new(|| behind.commit()));
        // The first transaction would have written there, but it was refused.
        join(Box::new(|| refused.commit()));
        drop(busy);
        let key = |error: crate::Error| error.conflict().map(|conflict| conflict.key.clone());
        let outcome = |writer: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            writer.join().expect("no panic").map_err(key)
        };
        writers.into_iter().map(outcome).collect::<Vec<_>>()
    });
    let conflict = |key: &str| Err(Some(key.as_bytes().to_vec()));
    assert_eq!(outcomes, [Ok(()), Ok(()), conflict("b"), conflict("g"), Ok(()), Ok(()), Ok(())]);
    let keys: Vec<_> = db.iter().map(|entry| entry.expect("read").0.into_vec()).collect();
    assert_eq!(keys, ["a1", "b", "c", "h"].map(|key| key.as_bytes().to_vec()));
    assert_eq!(db.stats().commit_groups, 1);
}

#[test]
fn a_group_whose_batches_are_all_refused_writes_nothing() {
    let db = db();
    let core = db.core();
    let since = core.reads.visible();
    db.put("a", "0").expect("written");
    let before = db.stats();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let writers: Vec<_> = (0..3).map(|_| scope.spawn(|| put_unchanged(core, "a", since))).collect();
        wait_for(core, 2);
        drop(busy);
        for writer in writers {
            let error = writer.join().expect("no panic").expect_err("it was written");
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
    });
    let done = db.stats().since(&before);
    assert_eq!((done.commit_groups, done.wal_syncs, done.conflicts), (0, 0, 3));
    assert_eq!(db.get("a").expect("read").as_deref(), Some(&b"0"[..]));
    db.put("a", "1").expect("the line goes on");
}

#[test]
fn conditions_hold_or_not_whatever_holds_the_newer_version() {
    let db = db();
    let core = db.core();
    let refused = |key: &str, since| {
        let before = db.stats();
        let outcome = put_unchanged(core, key, since).map_err(|error| error.kind());
        assert!(matches!(outcome, Ok(()) | Err(ErrorKind::Conflict)), "{outcome:?}");
        let done = db.stats().since(&before);
        (done.conflicts, done.conflicts_unproved)
    };
    db.put("b", "0").expect("written");
    let snapshot = db.snapshot();
    let since = core.reads.visible();
    // In the active memtable: a put, a range tombstone.
    db.put("a", "0").expect("written");
    db.delete_range("b".."c").expect("written");
    assert_eq!((refused("a", since), refused("b", since), refused("d", since)), ((1, 0), (1, 0), (0, 0)));
    // In a table, which is not read.
    db.flush().expect("flushed");
    assert_eq!((refused("a", since), refused("b", since), refused("z", since)), ((0, 1), (0, 1), (0, 0)));
    let since = core.reads.visible();
    assert_eq!(refused("b", since), (0, 0), "the table holds nothing newer");
    drop(snapshot);
}

#[test]
fn batches_of_a_group_that_failed_are_kept_and_can_be_tried_again() {
    const WRITERS: usize = 4;
    let (faults, db) = db_with_faults();
    let core = db.core();
    let before = db.stats();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut batch = db.batch();
                    batch.put(format!("k{writer}"), "v").put(format!("l{writer}"), "v");
                    let outcome = batch.commit().map_err(|error| error.kind());
                    (outcome, batch)
                })
            })
            .collect();
        wait_for(core, WRITERS - 1);
        faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
        drop(busy);
        for writer in writers {
            let (outcome, mut batch) = writer.join().expect("no panic");
            assert_eq!((outcome, batch.len()), (Err(ErrorKind::NoSpace), 2));
            batch.commit().expect("there is space again");
            assert!(batch.is_empty());
        }
    });
    assert_eq!((faults.faults_injected(), db.stats().since(&before).batches), (1, WRITERS as u64));
    assert_eq!(db.iter().count(), 2 * WRITERS);
}

#[test]
fn a_batch_beyond_a_frame_is_a_group_by_itself() {
    let db = db();
    let core = db.core();
    let before = db.stats();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        scope.spawn(|| db.put("large", vec![7; SHARED_BYTES_MAX + 1]).expect("written"));
        scope.spawn(|| db.put("small", "v").expect("written"));
        wait_for(core, 0);
        drop(busy);
    });
    assert_eq!(db.stats().since(&before).commit_groups, 2);
    assert_eq!(db.get("large").expect("read").expect("there").len(), SHARED_BYTES_MAX + 1);
    assert!(db.contains_key("small").expect("read"));
}

#[test]
fn a_panic_while_writing_turns_writes_off_and_leaves_nobody_waiting() {
    let db = db();
    let core = db.core();
    std::thread::scope(|scope| {
        let busy = core.writer.writing.lock();
        let followers: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn({
                    let db = &db;
                    move || db.put(format!("k{writer}"), "v")
                })
            })
            .collect();
        wait_for(core, 2);
        // Panics in the way that a leader would.
        let led = scope.spawn(|| {
            let _guard = PanicGuard(core.writer.as_ref());
            panic!("planned");
        });
        assert!(led.join().is_err());
        drop(busy);
        for follower in followers {
            let error = follower.join().expect("no panic").expect_err("writes are off");
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
        }
    });
    assert_eq!(db.put("k", "v").expect_err("writes are off").kind(), ErrorKind::ReadOnly);
}

/// A read loads its view first, and then its sequence number, which may be that of a later write.
#[test]
fn a_view_from_before_an_ingest_gets_no_later_write() {
    let db = db();
    let core = db.core();
    let keyspace = core.catalog.named("default").expect("it exists");
    let view = keyspace.load_full();
    db.ingest([("a", "new")]).expect("added");
    db.put("b", "v").expect("written");
    let has = |key: &str| {
        let digest = core.reads.digest().digest(key.as_bytes());
        view.memtables.iter().any(|memtable| memtable.get(digest, key.as_bytes(), SeqNo::MAX).is_some())
    };
    assert!(!has("a") && !has("b"), "a reader of this view sees the second write without the first");
    assert_eq!(db.get("b").expect("read").as_deref(), Some(&b"v"[..]));
}

/// Writes when it is dropped.
struct WritesWhenDropped(Db);

impl Drop for WritesWhenDropped {
    fn drop(&mut self) {
        self.0.put("k", "v").expect("written");
    }
}

/// The memory of a thread is dropped in reverse order of its first use.
#[test]
fn a_destructor_can_wait_for_a_leader_after_the_memory_of_its_thread_is_gone() {
    thread_local! {
        static LAST: Cell<Option<WritesWhenDropped>> = const { Cell::new(None) };
    }

    let db = db();
    let core = db.core();
    let line = &core.writer.commits.line;
    let (follow, may_follow) = std::sync::mpsc::channel();
    let (tell, told) = std::sync::mpsc::channel();
    let lead = line.try_to_lead().expect("nobody leads");
    let thread = std::thread::spawn({
        let db = db.clone();
        move || {
            LAST.set(Some(WritesWhenDropped(db.clone())));
            db.put("first", "v").expect("written");
            drop(db);
            tell.send(()).expect("awaited");
            may_follow.recv().expect("sent");
        }
    });
    wait_for(core, 1);
    drop(lead); // The thread leads, and then has used its memory.
    told.recv().expect("sent");
    let lead = line.try_to_lead().expect("nobody leads");
    follow.send(()).expect("awaited");
    wait_for(core, 1);
    drop(lead);
    thread.join().expect("no panic");
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_commit_in_a_destructor_of_a_panicking_thread_leaves_writes_on() {
    let db = db();
    let writes = WritesWhenDropped(db.clone());
    let panicked = std::thread::spawn(move || {
        let _writes = writes;
        panic!("planned");
    });
    assert!(panicked.join().is_err());
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&b"v"[..]));
    db.put("l", "v").expect("writes are on");
}
