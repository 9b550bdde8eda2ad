//! Suite G, small: real threads. Readers check the invariants of every snapshot.
//!
//! Accounts whose sum never changes: each batch moves an amount from one to another, so every
//! snapshot, scan and iterator must see the same sum, through memtable switches, flushes and
//! compactions. Also: drop during compactions, a second opener, stalls with a deadline, a disk that
//! is temporarily full.
//!
//! No assertion depends on speed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, SlowFs, Vfs};
use shamba::{Db, Durability, ErrorKind, MergePolicy, Slice, WriteOptions};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const HOME: &str = "/db";
const ACCOUNTS: u64 = 40;
const EACH: u64 = 1_000;

/// Real threads, clock and randomness over files in memory.
fn threaded(vfs: Arc<dyn Vfs>) -> Env {
    Env { vfs, ..Env::real() }
}

fn open(policy: MergePolicy, env: &Env) -> Db {
    Vector::plain(policy).builder(Path::new(HOME), env).open().expect("open")
}

fn account(number: u64) -> String {
    format!("account/{number:03}")
}

fn amount(value: &[u8]) -> u64 {
    // The amount, then padding that makes flushes frequent.
    let text = std::str::from_utf8(value).expect("an amount is text");
    text.trim_end().parse().expect("an amount is a number")
}

fn padded(amount: u64) -> String {
    format!("{amount:<60}")
}

fn sum(pairs: impl Iterator<Item = shamba::Result<(Slice, Slice)>>) -> (u64, u64) {
    let amounts = pairs.map(|pair| amount(&pair.expect("scan").1));
    amounts.fold((0, 0), |(count, sum), amount| (count + 1, sum + amount))
}

fn transfers(policy: MergePolicy) {
    let env = threaded(Arc::new(MemFs::new()));
    let db = open(policy, &env);
    let mut first = db.batch();
    (0..ACCOUNTS).for_each(|number| {
        first.put(account(number), padded(EACH));
    });
    first.commit().expect("commit");
    let stop = AtomicBool::new(false);
    let (reads, moved) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers = (0..3u64).map(|writer| {
            let db = db.clone();
            let moved = &moved;
            // Each writer has its own accounts, so read-then-write needs no lock between writers.
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(writer);
                let own = (0..ACCOUNTS).filter(|number| number % 3 == writer).collect::<Vec<_>>();
                for round in 0..1_500 {
                    let (from, to) = (own[rng.usize(..own.len())], own[rng.usize(..own.len())]);
                    if from == to {
                        continue;
                    }
                    let (a, b) = (account(from), account(to));
                    let has = amount(&db.get(&a).expect("get").expect("an account never goes"));
                    let other = amount(&db.get(&b).expect("get").expect("an account never goes"));
                    let part = rng.u64(0..=has);
                    let mut batch = db.batch();
                    // A delete before the put: a reader that saw half a batch would miss the
                    // account.
                    batch.delete(&a).put(&b, padded(other + part)).put(&a, padded(has - part));
                    let durability = if round % 50 == 0 { Durability::Sync } else { Durability::NoSync };
                    batch.commit_with(durability).expect("commit");
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let writers = writers.collect::<Vec<_>>();
        for reader in 0..3u64 {
            let (db, stop, reads) = (db.clone(), &stop, &reads);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(100 + reader);
                let expected = (ACCOUNTS, ACCOUNTS * EACH);
                // At least once each, however soon the writers finish.
                loop {
                    match reader {
                        0 => assert_eq!(sum(db.prefix("account/")), expected, "forward scan"),
                        1 => assert_eq!(sum(db.prefix("account/").rev()), expected, "backward scan"),
                        _ => {
                            let snapshot = db.snapshot();
                            let keys = (0..ACCOUNTS).map(account).collect::<Vec<_>>();
                            let once = snapshot.multi_get(&keys).expect("multi_get");
                            let total = once.iter().map(|v| amount(v.as_ref().expect("there"))).sum::<u64>();
                            assert_eq!(total, expected.1, "multi_get of a snapshot");
                            std::thread::yield_now();
                            let key = rng.u64(..ACCOUNTS);
                            let again = snapshot.get(account(key)).expect("get");
                            assert_eq!(again.as_deref(), once[key as usize].as_deref(), "a snapshot changed");
                            assert_eq!(sum(snapshot.iter()), expected, "scan of a snapshot");
                        }
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for writer in writers {
            writer.join().expect("a writer does not panic");
        }
        stop.store(true, Ordering::Relaxed);
    });
    db.wait_idle().expect("wait_idle");
    assert_eq!(sum(db.iter()), (ACCOUNTS, ACCOUNTS * EACH));
    let stats = db.stats();
    assert!(
        stats.flushes > 10 && stats.compactions > 0,
        "{} flushes, {} compactions",
        stats.flushes,
        stats.compactions
    );
    let (moved, reads) = (moved.load(Ordering::Relaxed), reads.load(Ordering::Relaxed));
    // Two reads and three writes; and each sum is over all accounts.
    let operations = 5 * moved + ACCOUNTS * reads;
    Tally::of(&[("transfers", moved), ("sums", reads), ("operations", operations)])
        .tell(&format!("concurrency-{policy}"), "suite G");
    db.close().expect("close");
    assert_eq!(sum(open(policy, &env).iter()), (ACCOUNTS, ACCOUNTS * EACH), "after a reopen");
}

#[test]
fn sums_hold_under_leveling() {
    transfers(MergePolicy::Leveling);
}

#[test]
fn sums_hold_under_tiering() {
    transfers(MergePolicy::Tiering);
}

#[test]
fn group_commit_keeps_each_callers_promise() {
    let fs = shamba::env::SimFs::new();
    // A sync takes long enough for other writers to arrive during it, as on a disk.
    let mut env = threaded(Arc::new(fs.clone()));
    env.vfs = Arc::new(SlowFs::new(env.vfs, Arc::clone(&env.clock), 0, 500_000));
    let db = Db::builder(HOME).env(env).info_log(false).open().expect("open");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let db = db.clone();
            scope.spawn(move || {
                for number in 0..50 {
                    let sync = WriteOptions::new().durability(Durability::Sync);
                    db.put_with(format!("{writer}/{number:03}"), "value", sync).expect("put");
                }
            });
        }
    });
    let cut = fs.crash(u64::MAX, &shamba::env::CrashPolicy::None);
    let stats = db.stats();
    assert_eq!(stats.batches, 200);
    assert!(stats.commit_groups < 180, "{} groups of 200 batches: none was shared", stats.commit_groups);
    drop(db);
    let env = Env::deterministic(Arc::new(cut), 1);
    let after = Db::builder(HOME).env(env).info_log(false).open().expect("open after the cut");
    assert_eq!(after.iter().count(), 200, "synced writes of several callers survive a power cut");
}

#[test]
fn dropping_while_merges_run_joins_them() {
    let mut flushes = 0;
    for round in 0..6u32 {
        let fs = MemFs::new();
        let env = threaded(Arc::new(fs.clone()));
        let db = open(MergePolicy::Tiering, &env);
        for number in 0..400u32 {
            db.put(format!("{:05}", number.wrapping_mul(7919) % 400), vec![round as u8; 60]).expect("put");
        }
        // Compactions are behind; they are not waited for.
        flushes += db.stats().flushes;
        drop(db);
        // The lock is free and no thread writes any more: two listings agree, and a new opener
        // succeeds.
        let before = fs.list(Path::new(HOME)).expect("list");
        let after = fs.list(Path::new(HOME)).expect("list");
        assert_eq!(before, after);
        let db = open(MergePolicy::Tiering, &env);
        assert_eq!(db.iter().count(), 400);
        assert!(db.verify().expect("verify").problems.is_empty());
    }
    assert!(flushes > 6, "{flushes} flushes: there was nothing to merge");
}

#[test]
fn a_second_opener_is_locked_out() {
    let env = threaded(Arc::new(MemFs::new()));
    let db = open(MergePolicy::Leveling, &env);
    let second = Vector::plain(MergePolicy::Leveling).builder(Path::new(HOME), &env).open();
    assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::Locked));
    let reader = Db::builder(HOME).env(env.clone()).read_only(true).open();
    assert_eq!(reader.err().map(|error| error.kind()), Some(ErrorKind::Locked), "a reader beside a writer");
    let clone = db.clone();
    drop(db);
    let second = Vector::plain(MergePolicy::Leveling).builder(Path::new(HOME), &env).open();
    assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::Locked), "a clone still holds it");
    drop(clone);
    open(MergePolicy::Leveling, &env);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let first = Db::open(&path).expect("open on real files");
    assert_eq!(
        Db::open(&path).err().map(|error| error.kind()),
        Some(ErrorKind::Locked),
        "in the same process"
    );
    first.close().expect("close");
    let one = Db::open_read_only(&path).expect("a reader");
    let two = Db::open_read_only(&path).expect("a second reader beside it");
    drop((one, two));
    Db::open(&path).expect("free again");
}

#[test]
fn a_closed_database_says_so() {
    let env = threaded(Arc::new(MemFs::new()));
    let db = open(MergePolicy::Leveling, &env);
    db.put("k", "v").expect("put");
    let (clone, snapshot, mut iter) = (db.clone(), db.snapshot(), db.iter());
    db.close().expect("close");
    assert_eq!(clone.get("k").err().map(|error| error.kind()), Some(ErrorKind::Closed));
    assert_eq!(clone.put("k", "w").err().map(|error| error.kind()), Some(ErrorKind::Closed));
    assert_eq!(snapshot.get("k").err().map(|error| error.kind()), Some(ErrorKind::Closed));
    // An iterator with a view may end early; it must not return a wrong pair.
    if let Some(Ok((key, value))) = iter.next() {
        assert_eq!((&key[..], &value[..]), (b"k".as_slice(), b"v".as_slice()));
    }
    drop((clone, snapshot, iter));
    assert_eq!(open(MergePolicy::Leveling, &env).get("k").expect("get").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_stalled_write_gives_up_at_its_deadline() {
    let faulty = FaultFs::new(Arc::new(MemFs::new()), 1);
    let env = threaded(Arc::new(faulty.clone()));
    let db = open(MergePolicy::Leveling, &env);
    db.put("before", "1").expect("put");
    // No table can be written, so flushes fall behind and writers must wait.
    faulty.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Create]).at_path(".sst").sticky());
    let options = WriteOptions::new().deadline_ms(30);
    let mut acked = 0u32;
    let error = loop {
        match db.put_with(format!("{acked:06}"), [0; 200], options) {
            Ok(()) => acked += 1,
            Err(error) => break error,
        }
        assert!(acked < 10_000, "writes never stall though nothing can be flushed");
    };
    // On a slow machine the flush may have failed three times in a row before the deadline.
    assert!(matches!(error.kind(), ErrorKind::Stalled | ErrorKind::Io), "{error:?}");
    assert_eq!(db.get("before").expect("reads go on").as_deref(), Some(b"1".as_slice()));
    faulty.clear_rules();
    // A flush that began before the fault ended may still fail the first put.
    db.put("after", "2").or_else(|_| db.put("after", "2")).expect("writes resume by themselves");
    db.wait_idle().expect("wait_idle");
    for number in 0..acked {
        assert!(db.contains_key(format!("{number:06}")).expect("get"), "acknowledged write {number}");
    }
    assert!(!db.contains_key(format!("{acked:06}")).expect("get"), "the write that gave up is not there");
}

#[test]
fn a_full_disk_stops_writes_and_space_lets_them_go_on() {
    for path in [".log", ".sst"] {
        let faulty = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = threaded(Arc::new(faulty.clone()));
        let db = open(MergePolicy::Leveling, &env);
        db.put("before", "1").expect("put");
        faulty.add_rule(
            FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Create, OpKind::Append]).at_path(path).sticky(),
        );
        let options = WriteOptions::new().deadline_ms(30);
        let mut acked = 0u32;
        let error = loop {
            match db.put_with(format!("{acked:06}"), [0; 200], options) {
                Ok(()) => acked += 1,
                Err(error) => break error,
            }
            assert!(acked < 10_000, "writes never fail on a full disk");
        };
        assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Stalled), "{path}: {error:?}");
        assert_eq!(db.get("before").expect("reads go on").as_deref(), Some(b"1".as_slice()));
        faulty.clear_rules();
        // The next attempt of the flush comes after a back-off, for which this write waits.
        let patient = WriteOptions::new().deadline_ms(60_000);
        db.put_with("after", "2", patient)
            .unwrap_or_else(|error| panic!("{path}: writes do not resume: {error}"));
        db.flush().expect("flush");
        drop(db);
        let db = open(MergePolicy::Leveling, &env);
        assert_eq!(db.iter().count() as u32, acked + 2, "{path}: what was acknowledged, and nothing else");
    }
}

/// A listener that panics at every event, and counts them.
#[derive(Default)]
struct Panics(AtomicU64);

impl shamba::EventListener for Panics {
    fn event(&self, _event: &shamba::Event) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // Without the hook, which would print it hundreds of times.
        std::panic::resume_unwind(Box::new("a listener of the user's panics"));
    }
}

#[test]
fn a_listener_that_panics_harms_nobody() {
    let env = threaded(Arc::new(MemFs::new()));
    let vector = Vector::plain(MergePolicy::Leveling);
    let listener = Arc::new(Panics::default());
    let builder = vector.builder(Path::new(HOME), &env).event_listener(listener.clone());
    let db = builder.open().expect("open");
    for number in 0..200 {
        db.put(format!("{number:05}"), [0; 60]).expect("put");
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    assert_eq!(db.iter().count(), 200);
    db.close().expect("close");
    // Events of the open, of flushes, of compactions.
    assert!(listener.0.load(Ordering::Relaxed) > 10);
}
