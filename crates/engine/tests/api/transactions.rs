//! Transactions: conflicts, durability, memory, savepoints, and many threads whose sums must hold.
//! `transaction_model.rs` compares them with a model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shamba::env::{Clock, Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba::{Db, Durability, ErrorKind, Isolation, TransactionOptions, WriteOptions};

use super::support::{open, open_threaded};

/// A table is dropped without reading it if all of it has expired. An older transaction would then
/// not see that a key of it was written.
#[test]
fn a_transaction_conflicts_with_a_write_that_has_expired_since_and_was_compacted() {
    for is_merged in [true, false] {
        expired_since(is_merged);
    }
}

fn expired_since(is_merged: bool) {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = Db::builder("/db").env(env.clone()).info_log(false).open().expect("opened");
    let mut transaction = db.transaction();
    assert_eq!(transaction.get("k").expect("readable"), None);
    let options = WriteOptions::new().time_to_live(Duration::from_millis(100));
    db.put_with("k", "v", options).expect("written");
    db.flush().expect("flushed");
    env.clock.sleep_us(200_000);
    if is_merged {
        db.put("j", "v").expect("written");
        db.put("l", "v").expect("written");
        db.flush().expect("flushed");
        db.compact().expect("compacted");
    }
    db.wait_idle().expect("idle");
    // Alone it stays: it can be dropped once the transaction has ended.
    assert_eq!(db.stats().entries_expired, u64::from(is_merged));
    transaction.put("other", "v").expect("taken");
    assert_eq!(transaction.commit().expect_err("k was written").kind(), ErrorKind::Conflict);
    env.clock.sleep_us(1_000_000);
    db.put("wakes the background", "v").expect("written");
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    assert_eq!(db.stats().entries_expired, 1);
}

/// The same of a table whose values had expired before the transaction began, and in which a key
/// was deleted since.
#[test]
fn a_transaction_conflicts_with_a_delete_beside_expired_values() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = Db::builder("/db").env(env.clone()).info_log(false).open().expect("opened");
    let options = WriteOptions::new().time_to_live(Duration::from_millis(100));
    db.put_with("a", "v", options).expect("written");
    // For it the value is flushed as it is.
    let snapshot = db.snapshot();
    env.clock.sleep_us(200_000);
    let mut transaction = db.transaction();
    assert_eq!(transaction.get("c").expect("readable"), None);
    db.delete("c").expect("deleted");
    db.flush().expect("flushed");
    drop(snapshot);
    db.put("b", "v").expect("written");
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    assert!(db.stats().entries_expired > 0, "the compaction has not had the table as an input");
    transaction.put("other", "v").expect("taken");
    assert_eq!(transaction.commit().expect_err("c was deleted").kind(), ErrorKind::Conflict);
}

/// A table that was flushed since the transaction began is read before it counts as a conflict.
#[test]
fn a_flush_alone_is_no_conflict() {
    let db = open(1);
    for number in 0..100 {
        db.put(format!("key {number:03}"), "0").expect("put");
    }
    db.flush().expect("flushed");
    let mut transaction = db.transaction();
    assert!(transaction.get("key 050").expect("read").is_some());
    assert_eq!(transaction.range("key 020".."key 030").count(), 10);
    transaction.put("sum", "10").expect("put");
    db.put("key 019", "1").expect("put");
    db.put("key 030", "1").expect("put");
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    transaction.commit().expect("nothing that it read has changed");
    assert_eq!(db.stats().conflicts, 0);
    assert!(db.stats().conflicts_unproved > 0, "the table was not even suspected");

    for change in ["put", "absent", "range"] {
        let mut transaction = db.transaction();
        transaction.range("key 020".."key 030").for_each(|entry| drop(entry.expect("read")));
        transaction.put("sum", "11").expect("put");
        match change {
            "put" => db.put("key 025", "1"),
            "absent" => db.put("key 025x", "1"),
            _ => db.delete_range("key 029".."key 04"),
        }
        .expect("written");
        db.flush().expect("flushed");
        let error = transaction.commit().expect_err(change);
        let key = &error.conflict().expect("a conflict").key;
        let expected: &[u8] = match change {
            "put" => b"key 025",
            "absent" => b"key 025x",
            _ => b"key 029",
        };
        assert_eq!(key.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{change}: {error}");
    }
}

#[test]
fn conflicts_are_counted_by_what_proves_them() {
    for is_flushed in [false, true] {
        let db = open(1);
        let mut transaction = db.transaction();
        assert!(transaction.get("k").expect("read").is_none());
        transaction.put("l", "1").expect("put");
        db.put("k", "1").expect("put");
        if is_flushed {
            db.flush().expect("flushed");
        }
        assert_eq!(transaction.commit().expect_err("k has changed").kind(), ErrorKind::Conflict);
        let stats = db.stats();
        let in_table = u64::from(is_flushed);
        assert_eq!((stats.conflicts, stats.conflicts_unproved), (1 - in_table, in_table));
        assert_eq!((stats.conflicts_disproved, stats.transactions), (0, 0));
    }
}

#[test]
fn a_dropped_keyspace_is_a_conflict_for_its_readers_and_an_error_for_its_writers() {
    let db = open(1);
    let gone = db.keyspace("gone").expect("made");
    let (mut reader, mut writer) = (db.transaction(), db.transaction());
    assert!(reader.get_in(&gone, "a").expect("read").is_none());
    reader.put("b", "1").expect("put");
    writer.put_in(&gone, "a", "1").expect("put");
    db.drop_keyspace("gone").expect("dropped");
    assert_eq!(reader.commit().expect_err("it is gone").kind(), ErrorKind::Conflict);
    assert_eq!(writer.commit().expect_err("it is gone").kind(), ErrorKind::Invalid);
    let late = db.transaction();
    let error = late.iter_in(&gone).next().expect("an error").expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let other = open(2);
    let foreign = other.keyspace("other").expect("made");
    assert_eq!(late.get_in(&foreign, "a").expect_err("foreign").kind(), ErrorKind::Invalid);
    let error = late.range_in(&foreign, ..).next_back().expect("an error").expect_err("foreign");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn memory_is_bounded_and_charged() {
    let db = open(1);
    let held = || {
        let memory = db.memory();
        memory.parts.iter().find(|(name, _)| name == "transactions").map(|(_, bytes)| *bytes).expect("a part")
    };
    let mut small = db.transaction_with(TransactionOptions::new().memory_bytes(4 << 10));
    let error = (0..100).find_map(|number: u32| small.put(number.to_be_bytes(), [1; 100]).err());
    let error = error.expect("100 times 100 bytes exceed 4 KiB");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("memory_bytes"), "{error}");
    let (writes, before) = (small.len(), held());
    assert!((10..40).contains(&writes) && before == 0, "{writes} writes, {before} bytes");
    small.commit().expect("what is in it");
    assert_eq!(db.iter().count(), writes);

    let mut large = db.transaction();
    for number in 0..1_000_u32 {
        large.put(number.to_be_bytes(), [1; 100]).expect("put");
    }
    assert!((100_000..500_000).contains(&held()), "{} bytes", held());
    let reads = db.transaction();
    let read_bytes = held();
    for number in 0..1_000_u32 {
        reads.get(number.to_be_bytes()).expect("read");
    }
    assert!(held() > read_bytes + 1_000 * 4, "{} bytes", held() - read_bytes);
    drop(reads);
    let scans = db.transaction();
    let scanned_bytes = held();
    for number in 0..1_000_u32 {
        let [from, to] = [2 * number, 2 * number + 1].map(u32::to_be_bytes);
        assert!(scans.range(from..to).count() <= 1);
    }
    assert!(held() > scanned_bytes + 1_000 * 8, "{} bytes", held() - scanned_bytes);
    drop(scans);
    large.rollback();
    drop(large);
    assert_eq!(held(), 0);
    let few = db.transaction_with(TransactionOptions::new().memory_bytes(1 << 10));
    let error =
        (0..1_000_u32).find_map(|number| few.get(number.to_be_bytes()).err()).expect("too many reads");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Threads move amounts between accounts and others add all of them up: the sum never changes, and
/// an account never goes below zero.
#[test]
fn sums_hold_among_threads() {
    const ACCOUNTS: u64 = 20;
    const EACH: u64 = 100;
    let db = open_threaded();
    let value = |slice: Option<shamba::Slice>| {
        u64::from_le_bytes((*slice.expect("an account")).try_into().expect("8 bytes"))
    };
    for account in 0..ACCOUNTS {
        db.put(account.to_be_bytes(), EACH.to_le_bytes()).expect("put");
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for turn in 0..400 {
                    let (from, to, amount) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS), rng.u64(1..60));
                    if from == to {
                        continue;
                    }
                    db.transact(|tx| {
                        let has = value(tx.get(from.to_be_bytes())?);
                        if has < amount {
                            return Ok(());
                        }
                        let other = value(tx.get(to.to_be_bytes())?);
                        tx.put(from.to_be_bytes(), (has - amount).to_le_bytes())?;
                        tx.put(to.to_be_bytes(), (other + amount).to_le_bytes())
                    })
                    .expect("moved");
                    if turn % 10 == 0 {
                        let sum = db.transact(|tx| {
                            let all = tx.range(..ACCOUNTS.to_be_bytes().as_slice());
                            let sum = all
                                .map(|entry| entry.map(|(_, amount)| value(Some(amount))))
                                .sum::<shamba::Result<u64>>()?;
                            tx.put("sum", sum.to_le_bytes())?;
                            Ok(sum)
                        });
                        assert_eq!(sum.expect("added up"), ACCOUNTS * EACH);
                    }
                }
            });
        }
    });
    let stats = db.stats();
    assert!(stats.transactions > 1_000 && stats.transaction_retries > 0, "{stats:?}");
    let sum: u64 = (0..ACCOUNTS).map(|account| value(db.get(account.to_be_bytes()).expect("read"))).sum();
    assert_eq!(sum, ACCOUNTS * EACH);
}

/// A transaction without writes asks nothing of the writer.
#[test]
fn reading_alone_never_fails() {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let open = |read_only: bool| {
        let env = Env::deterministic(Arc::clone(&files), 1);
        Db::builder("/db").env(env).read_only(read_only).open().expect("opened")
    };
    let db = open(false);
    db.put("a", "1").expect("put");
    let reader = db.transaction_with(TransactionOptions::new().write(Durability::Sync));
    assert!(reader.get("a").expect("read").is_some());
    db.put("a", "2").expect("put");
    let before = db.stats();
    reader.commit().expect("it only reads");
    let done = db.stats().since(&before);
    assert_eq!((done.wal_syncs, done.transactions, done.conflicts), (0, 0, 0));
    db.close().expect("closed");
    let db = open(true);
    let value = db.transact(|tx| tx.get("a")).expect("it only reads");
    assert_eq!(value.as_deref(), Some(&b"2"[..]));
    let refused = db.transact(|tx| tx.put("a", "3")).expect_err("the database is open read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
}

/// The iterator of an ingest is dropped while writers wait, and a scan of a transaction then notes
/// what it has read.
#[test]
fn a_scan_of_a_transaction_may_be_ingested() {
    let db = open(1);
    (0..100_u32).for_each(|number| db.put(number.to_be_bytes(), "1").expect("put"));
    let transaction = db.transaction();
    let added = db.ingest(transaction.iter().map(|entry| entry.expect("read"))).expect("ingested");
    assert_eq!(added, 100);
    let again = db.ingest(transaction.iter().rev().map(|entry| entry.expect("read")));
    assert_eq!(again.expect_err("they descend").kind(), ErrorKind::Invalid);
}

#[test]
fn a_released_savepoint_keeps_the_writes_and_frees_what_would_take_them_back() {
    let db = open(1);
    let mut transaction = db.transaction_with(TransactionOptions::new().memory_bytes(8 << 10));
    for turn in 0..100 {
        let (outer, inner) = (transaction.savepoint(), transaction.savepoint());
        transaction.put("key", format!("{turn:0100}")).expect("put");
        transaction.release(inner).expect("it is there");
        assert_eq!(transaction.release(inner).expect_err("once").kind(), ErrorKind::Invalid);
        transaction.release(outer).expect("it is there");
        assert_eq!(transaction.rollback_to(outer).expect_err("released").kind(), ErrorKind::Invalid);
    }
    transaction.commit().expect("within its memory");
    assert!(db.get("key").expect("read").is_some_and(|value| value.ends_with(b"99")));
}

/// A listener is told of a budget that a transaction uses up when no lock is held.
#[test]
fn a_transaction_that_uses_up_the_budget_is_an_event() {
    struct Listener(std::sync::Mutex<Vec<String>>);
    impl shamba::EventListener for Listener {
        fn event(&self, event: &shamba::Event) {
            self.0.lock().expect("no panic").push(event.to_string());
        }
    }
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let listener = Arc::new(Listener(std::sync::Mutex::default()));
    let builder = Db::builder("/db").env(Env::deterministic(files, 1)).memory_budget(4 << 20);
    let db = builder
        .event_listener(Arc::clone(&listener) as Arc<dyn shamba::EventListener>)
        .open()
        .expect("opened");
    let mut transaction = db.transaction_with(TransactionOptions::new().memory_bytes(16 << 20));
    for number in 0..4_000_u32 {
        transaction.put(number.to_be_bytes(), [1; 1_000]).expect("put");
    }
    let told = listener.0.lock().expect("no panic").join("\n");
    assert!(told.contains("the memory budget of 4194304 bytes is used up"), "{told}");
}

/// Two transactions read both of two keys and each writes one: serializable ones do not both
/// commit, those of snapshot isolation do, unless they read for update.
#[test]
fn write_skew_is_prevented_where_it_should_be() {
    let run = |isolation: Isolation, for_update: bool| {
        let db = open(1);
        let mut both = ["a", "b"].map(|own| {
            let mut transaction = db.transaction_with(isolation);
            for key in ["a", "b"] {
                let read = match for_update {
                    true => transaction.get_for_update(key),
                    false => transaction.get(key),
                };
                assert!(read.expect("read").is_none());
            }
            transaction.put(own, "1").expect("put");
            transaction
        });
        both.rotate_left(1);
        both.map(|transaction| transaction.commit().is_ok())
    };
    assert_eq!(run(Isolation::Serializable, false), [true, false]);
    assert_eq!(run(Isolation::Snapshot, false), [true, true]);
    assert_eq!(run(Isolation::Snapshot, true), [true, false]);
    assert_eq!(run(Isolation::Unchecked, true), [true, false]);
    // The same key: the first one wins.
    let db = open(1);
    let same = [Isolation::Snapshot, Isolation::Unchecked].map(|isolation| {
        let mut late = db.transaction_with(isolation);
        late.put("a", "late").expect("put");
        db.put("a", "early").expect("put");
        late.commit().is_ok()
    });
    assert_eq!(same, [false, true]);
}

#[test]
fn a_transaction_is_durable_as_asked_and_gives_up_after_its_attempts() {
    let db = open(1);
    let mut runs = 0;
    let outcome = db.transact_with(TransactionOptions::new().attempts(3), |tx| {
        runs += 1;
        tx.get("a")?;
        db.put("a", "changed")?;
        tx.put("b", "1")
    });
    assert_eq!((outcome.expect_err("each time").kind(), runs), (ErrorKind::Conflict, 3));
    assert_eq!(db.stats().transaction_retries, 2);
    let before = db.stats().wal_syncs;
    let synced = TransactionOptions::new().write(Durability::Sync);
    db.transact_with(synced, |tx| tx.put("c", "1")).expect("written");
    assert_eq!(db.stats().wal_syncs, before + 1);
    // Nothing is written by one that fails or is dropped.
    let failed = db.transact(|tx| {
        tx.put("d", "1")?;
        Err::<(), _>(db.drop_keyspace("none").expect_err("there is none"))
    });
    assert_eq!(failed.expect_err("its own error").kind(), ErrorKind::Invalid);
    assert!(!db.contains_key("d").expect("read"));
}

/// A clock whose sleeps run something else, once: what happens while a slow read of a file lasts.
#[derive(Default)]
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Clock for Meanwhile {
    fn now_us(&self) -> u64 {
        0
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, _us: u64) {
        let work = self.0.lock().expect("nobody panics with it").take();
        if let Some(work) = work {
            work();
        }
    }

    fn wait_ns(&self, _ns: u64) {}
}

/// While a commit reads the tables that may hold a change, others write what it depends on, and
/// a compaction may leave nothing of it: the commit is refused all the same.
#[test]
fn a_change_while_tables_are_read_is_a_conflict() {
    for is_compacted in [false, true] {
        let meanwhile = Arc::new(Meanwhile::default());
        let files = FaultFs::with_clock(Arc::new(MemFs::new()), 1, Arc::clone(&meanwhile) as Arc<dyn Clock>);
        let db = Db::builder("/db").env(Env::deterministic(Arc::new(files.clone()), 1));
        let db = db.info_log(false).open().expect("opened");
        for number in 0..100 {
            db.put(format!("key {number:03}"), "0").expect("put");
        }
        db.flush().expect("flushed");
        db.compact().expect("compacted");
        let mut transaction = db.transaction();
        assert!(transaction.get("key 050").expect("read").is_some());
        transaction.put("sum", "1").expect("put");
        // The table of these may hold a newer version of the key, and does not.
        db.put("key 049", "1").expect("put");
        db.put("key 051", "1").expect("put");
        db.flush().expect("flushed");
        files.add_rule(FaultRule::storm(1.0, Effect::LatencyUs(1)).on(&[OpKind::Read]).at_path(".sst"));
        let work = {
            let db = db.clone();
            move || {
                db.delete("key 050").expect("deleted");
                if is_compacted {
                    db.flush().expect("flushed");
                    db.compact().expect("compacted");
                }
            }
        };
        *meanwhile.0.lock().expect("nobody panics with it") = Some(Box::new(work));
        let error = transaction.commit().expect_err("a key that it has read was deleted");
        assert_eq!(error.conflict().expect("a conflict").key, b"key 050", "{error}");
        assert!(meanwhile.0.lock().expect("nobody panics with it").is_none(), "no table was read");
        assert!(!db.contains_key("sum").expect("read"));
    }
}
