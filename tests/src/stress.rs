//! All operations concurrently on real threads: combinations that single-threaded suites cannot
//! produce.
//!
//! Each writer owns keys and knows their values, so it checks itself as it goes. Concurrently other
//! threads flush, compact, verify, checkpoint, create and drop keyspaces, scan, hold iterators, and
//! explain. There are also closes under full load, and storms of faults under writers. A violation
//! panics, on whichever thread it occurs.
//!
//! Not here: the tests that run in CI (`tests/tests/suites/stress.rs`) and on demand
//! ([`crate::soak`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, MemFs, SimFs};
use shamba::{Db, Durability, ErrorKind, WriteOptions};

use crate::operators::appended;
use crate::runner::HOME;
use crate::tally::Tally;
use crate::vectors::Vector;

const WRITERS: u64 = 3;

fn open(vector: &Vector, env: &Env) -> Db {
    vector.builder(Path::new(HOME), env).open().expect("open")
}

/// Writes, merges, deletes and range-deletes its own keys, and reads them back at once.
fn writer(db: &Db, writer: u64, seed: u64, rounds: u64) -> BTreeMap<String, String> {
    let mut rng = fastrand::Rng::with_seed(seed ^ writer);
    let mut own = BTreeMap::new();
    let key = |number: u64| format!("w{writer}/{number:03}");
    for round in 0..rounds {
        let number = rng.u64(..200);
        match rng.u8(..16) {
            0 => {
                let (low, high) = (key(number), key(number + 5));
                db.delete_range(low.as_str()..high.as_str()).expect("delete_range");
                own.retain(|key, _| *key < low || *key >= high);
            }
            1..4 => {
                db.delete(key(number)).expect("delete");
                own.remove(&key(number));
            }
            4..7 => {
                let operand = format!("{round}");
                db.merge(key(number), &operand).expect("merge");
                let value = appended(own.get(&key(number)).map(String::as_bytes), operand.as_bytes());
                own.insert(key(number), String::from_utf8(value).expect("text"));
            }
            _ => {
                let value = format!("{round}.{}", "v".repeat(rng.usize(..120)));
                db.put(key(number), &value).expect("put");
                own.insert(key(number), value);
            }
        }
        let number = rng.u64(..200);
        let got = db.get(key(number)).expect("get");
        let got = got.as_deref().map(String::from_utf8_lossy);
        assert_eq!(
            got.as_deref(),
            own.get(&key(number)).map(String::as_str),
            "{} in round {round}",
            key(number)
        );
        if round % 100 == 99 {
            assert!(holds(db, writer, &own), "writer {writer} scans other pairs than it wrote");
        }
    }
    own
}

fn holds(db: &Db, writer: u64, own: &BTreeMap<String, String>) -> bool {
    let pairs = db.prefix(format!("w{writer}/")).map(|pair| pair.expect("scan"));
    pairs
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .eq(own.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone().into_bytes())))
}

/// Performs one disturbance of the given kind.
fn disturb(db: &Db, vector: &Vector, env: &Env, kind: u64, round: u64) {
    match kind {
        0 => db.flush().expect("flush"),
        1 => db.compact().expect("compact"),
        2 => {
            let report = db.verify().expect("verify");
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
        3 => {
            let dir = format!("/copy-{round}");
            db.checkpoint(&dir).expect("checkpoint");
            let copy = vector.builder(Path::new(&dir), env).open().expect("open of the checkpoint");
            assert!(copy.verify().expect("verify").problems.is_empty());
            drop(copy);
            for entry in env.vfs.list(Path::new(&dir)).expect("list") {
                env.vfs.unlink(&Path::new(&dir).join(entry.name)).expect("unlink");
            }
        }
        4 => {
            let space = db.keyspace("passing").expect("keyspace");
            for number in 0..40 {
                space.put(format!("{number}"), [0; 50]).expect("put");
            }
            assert_eq!(space.iter().count(), 40);
            db.drop_keyspace("passing").expect("drop_keyspace");
            let gone = space.put("k", "v").expect_err("it was dropped");
            assert_eq!(gone.kind(), ErrorKind::Invalid, "{gone}");
        }
        5 => {
            let (snapshot, mut held) = (db.snapshot(), db.iter());
            let first = held.by_ref().take(5).map(|pair| pair.expect("scan").0).collect::<Vec<_>>();
            db.put(format!("z/{round}"), [0; 100]).expect("put");
            let all = snapshot.iter().map(|pair| pair.expect("scan").0).collect::<Vec<_>>();
            let backward = snapshot.iter().rev().count();
            assert_eq!(all.len(), backward, "a snapshot is the same from both ends");
            assert!(first.len() + held.count() >= first.len());
        }
        6 => {
            let explanation = db.explain(format!("w0/{:03}", round % 200)).expect("explain");
            assert!(explanation.hashes == 1 || !vector.hash_sharing);
            assert!(!db.describe().is_empty() && !db.memory().parts.is_empty());
            db.stats();
        }
        _ => {
            let pairs = (0..20).map(|number| (format!("y/{round:05}/{number:02}"), "ingested"));
            db.ingest(pairs).expect("ingest");
            assert_eq!(db.prefix(format!("y/{round:05}/")).count(), 20);
        }
    }
}

/// Runs writers for `rounds` each, concurrently with all other operations; returns the counts.
///
/// # Panics
/// At a violation.
pub fn everything_at_once(vector: &Vector, seed: u64, rounds: u64) -> Tally {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = open(vector, &env);
    let stop = AtomicBool::new(false);
    let owned = std::thread::scope(|scope| {
        for kind in 0..8 {
            let (db, stop, env) = (db.clone(), &stop, &env);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) || round == 0 {
                    disturb(&db, vector, env, kind, round);
                    round += 1;
                    // A pause, so that writers make progress on few processors.
                    env.clock.sleep_us(2_000);
                }
            });
        }
        let writers = (0..WRITERS).map(|number| {
            let db = db.clone();
            scope.spawn(move || writer(&db, number, seed, rounds))
        });
        let writers = writers.collect::<Vec<_>>();
        let owned = writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>();
        stop.store(true, Ordering::Relaxed);
        owned.into_iter().map(|owned| owned.expect("a writer does not panic")).collect::<Vec<_>>()
    });
    db.check_invariants().expect("the tree has its shape");
    db.wait_idle().expect("wait_idle");
    let stats = db.stats();
    db.close().expect("close");
    let db = open(vector, &env);
    for (number, own) in owned.iter().enumerate() {
        assert!(holds(&db, number as u64, own), "writer {number}'s pairs after a reopen");
    }
    Tally::of(&[
        ("writes during other work", WRITERS * rounds),
        ("flushes during other work", stats.flushes),
        ("compactions during other work", stats.compactions),
        ("batches that another writer wrote", stats.batches - stats.commit_groups),
    ])
}

/// Closes after about `after_puts` writes while writers continue: every acknowledged write is
/// present, no other, and the log has no tail.
///
/// # Panics
/// At a violation.
pub fn close_under_load(vector: &Vector, after_puts: u64) {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = open(vector, &env);
    let acked = std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let db = db.clone();
            scope.spawn(move || {
                for number in 0u64.. {
                    match db.put(format!("{writer}/{number:06}"), [0; 80]) {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
                            return number;
                        }
                    }
                }
                0
            })
        });
        let writers = writers.collect::<Vec<_>>();
        while db.stats().puts < after_puts && !writers.iter().any(|writer| writer.is_finished()) {
            std::thread::yield_now();
        }
        db.clone().close().expect("close");
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
    });
    drop(db);
    let db = open(vector, &env);
    for (writer, acked) in acked.into_iter().enumerate() {
        let found = db.prefix(format!("{writer}/")).count() as u64;
        assert_eq!(found, acked, "closed after {after_puts} writes: writer {writer}");
    }
    assert!(db.warnings().is_empty(), "a closed database has no tail: {:?}", db.warnings());
}

/// The outcome of a write in a storm.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Ended {
    Acked { sync: bool },
    Rejected,
    Unknown,
}

/// Writes numbered keys through a storm until all have been tried; a refused write is not retried.
fn write_through_storm(db: &Db, writer: u64, seed: u64) -> Vec<Ended> {
    let mut rng = fastrand::Rng::with_seed(seed ^ writer);
    let write = |number: u64| {
        let sync = rng.u8(..10) == 0;
        let durability = if sync { Durability::Sync.into() } else { WriteOptions::new() };
        let options = durability.deadline_ms(50);
        match db.put_with(format!("{writer}/{number:04}"), [1; 90], options) {
            Ok(()) => Ended::Acked { sync },
            Err(error) => match error.kind() {
                ErrorKind::ReadOnly | ErrorKind::Stalled => Ended::Rejected,
                ErrorKind::Io | ErrorKind::NoSpace => Ended::Unknown,
                kind => panic!("a storm of I/O errors made a write fail as {kind}: {error}"),
            },
        }
    };
    (0..150).map(write).collect()
}

fn check_after_storm(db: &Db, ended: &[Vec<Ended>], only_synced: bool) {
    for (writer, ended) in ended.iter().enumerate() {
        let durable =
            ended.iter().rposition(|ended| *ended == Ended::Acked { sync: true }).map_or(0, |at| at + 1);
        for (number, ended) in ended.iter().enumerate() {
            let there = db.contains_key(format!("{writer}/{number:04}")).expect("get");
            match ended {
                Ended::Acked { .. } if !only_synced || number < durable => {
                    assert!(there, "acknowledged write {number} of writer {writer} is gone");
                }
                Ended::Rejected => assert!(!there, "refused write {number} of writer {writer} is there"),
                _ => {}
            }
        }
    }
}

/// The result of a storm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stormed {
    /// Number of calls that failed.
    pub faults: u64,
    /// Number of acknowledged writes.
    pub acked: u64,
}

/// Writers while calls fail with this probability and effect. The open database shows exactly the
/// acknowledged writes; after a power cut the synced writes are present, after a kill all
/// acknowledged ones. The vector must keep acknowledged writes over a kill.
///
/// # Panics
/// At a violation.
pub fn storm(vector: &Vector, seed: u64, probability: f64, effect: Effect) -> Stormed {
    let disk = SimFs::new();
    let faulty = FaultFs::new(Arc::new(disk.clone()), seed);
    let env = Env { vfs: Arc::new(faulty.clone()), ..Env::real() };
    let db = open(vector, &env);
    faulty.add_rule(FaultRule::storm(probability, effect));
    let ended = std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let db = &db;
            scope.spawn(move || write_through_storm(db, writer, seed))
        });
        let writers = writers.collect::<Vec<_>>();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
    });
    faulty.clear_rules();
    // The open database shows exactly the acknowledged writes.
    for (writer, ended) in ended.iter().enumerate() {
        for (number, ended) in ended.iter().enumerate() {
            let there = db.contains_key(format!("{writer}/{number:04}")).expect("get");
            assert_eq!(
                there,
                matches!(ended, Ended::Acked { .. }),
                "seed {seed}: {writer}/{number} {ended:?}"
            );
        }
    }
    drop(db);
    let cut = Env::deterministic(Arc::new(disk.crash(u64::MAX, &CrashPolicy::None)), seed);
    check_after_storm(&open(vector, &cut), &ended, true);
    let db = open(vector, &env);
    check_after_storm(&db, &ended, false);
    assert!(db.verify().expect("verify").problems.is_empty());
    let acked = ended.iter().flatten().filter(|ended| matches!(ended, Ended::Acked { .. })).count();
    Stormed { faults: faulty.faults_injected(), acked: acked as u64 }
}
