//! Tests of FIFO keyspaces: the oldest tables go, no older version comes back, writers do not wait,
//! and snapshots keep what they began with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{CrashPolicy, Env, MemFs, Rng, SeededRng, SimFs};
use shamba::{Builder, Db, Durability, ErrorKind, Fifo, Keyspace, KeyspaceOptions, Place};

const DIR: &str = "/db";

fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).info_log(false).memory_budget(8 << 20).write_buffer(64 << 10)
}

fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

fn limited(bytes: u64) -> KeyspaceOptions {
    KeyspaceOptions::new().fifo(Fifo::bytes(bytes))
}

fn table_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.bytes).sum()
}

/// Each key is there with its newest value, or was dropped; and a key is dropped only if all that
/// was flushed before it is.
#[test]
fn the_oldest_data_goes_and_no_older_version_comes_back() {
    let (mut dropped, mut most_runs) = (0, 0);
    for seed in 0..20 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let limit = [20_000, 60_000, 200_000][seed as usize % 3];
        let open = || {
            let builder = builder(&env).bits_per_key(0.0).experimental(|e| e.record_cache(1 << 20));
            let builder =
                builder.experimental(|e| e.l0_compaction_trigger(2).l0_slowdown_runs(3).l0_stop_runs(4));
            builder.keyspace("log", limited(limit)).open().expect("opens")
        };
        let mut db = open();
        let mut log = db.keyspace("log").expect("made");
        // The value of each key, with the number of the flush that brought it.
        let mut model: BTreeMap<Vec<u8>, (u64, Vec<u8>)> = BTreeMap::new();
        let (mut flushes, mut gone_below) = (0u64, 0u64);
        for step in 0..400u64 {
            let key = format!("key {:03}", below(200)).into_bytes();
            match below(40) {
                0..34 => {
                    let value = [step.to_be_bytes().to_vec(), vec![b'v'; below(400) as usize]].concat();
                    log.put(&key, &value).expect("no write waits");
                    model.insert(key, (flushes, value));
                }
                34 => {
                    log.delete(&key).expect("deleted");
                    model.remove(&key);
                }
                35..38 => {
                    db.flush().expect("flushed");
                    flushes += 1;
                }
                38 => db.compact().expect("nothing to do"),
                _ => {
                    drop(log);
                    if below(2) == 0 {
                        db.close().expect("closed")
                    } else {
                        drop(db)
                    }
                    db = open();
                    log = db.keyspace("log").expect("there");
                }
            }
            if step % 20 == 19 {
                db.wait_idle().expect("idle");
                let stats = log.stats();
                assert_eq!(stats.debt_bytes, 0);
                most_runs = most_runs.max(stats.runs);
                assert!(table_bytes(&log) <= limit || stats.runs == 1, "{stats:?}");
                let mut oldest_seen = u64::MAX;
                for turn in 0..2 {
                    for (key, (flush, value)) in &model {
                        let seen = log.get(key).expect("readable").map(|value| value.to_vec());
                        let what = format!("seed {seed}, step {step}, {key:?} of flush {flush}, turn {turn}");
                        match seen {
                            Some(seen) => {
                                assert_eq!(&seen, value, "{what}");
                                oldest_seen = oldest_seen.min(*flush);
                            }
                            None => gone_below = gone_below.max(*flush + 1),
                        }
                    }
                }
                assert!(
                    gone_below <= oldest_seen.saturating_add(1),
                    "seed {seed}, step {step}: newer data went first"
                );
                let scanned = log.iter().map(|entry| entry.expect("readable"));
                for (key, value) in scanned {
                    assert_eq!(model.get(&*key).map(|(_, value)| &value[..]), Some(&value[..]), "{key:?}");
                }
                dropped = dropped.max(gone_below);
            }
        }
    }
    assert!(dropped > 5 && most_runs < 30, "flushes up to {dropped} were dropped, {most_runs} runs");
}

#[test]
fn tables_go_when_their_newest_entry_is_too_old() {
    let env = environment(1);
    let aged = || KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(3_600)));
    let db = builder(&env).keyspace("log", aged()).open().expect("opens");
    let log = db.keyspace("log").expect("made");
    log.put("old", "1").expect("put");
    db.flush().expect("flushed");
    env.clock.sleep_us(1_800_000_000);
    log.put("new", "2").expect("put");
    db.flush().expect("flushed");
    env.clock.sleep_us(1_790_000_000);
    db.wait_idle().expect("idle");
    assert_eq!(log.iter().count(), 2);
    drop(log);
    db.close().expect("closed");
    // The age is recorded with the limits.
    env.clock.sleep_us(20_000_000);
    let db = builder(&env).open().expect("opens");
    let log = db.keyspace("log").expect("there");
    assert_eq!(log.fifo(), Some(Fifo::age(Duration::from_secs(3_600))));
    db.wait_idle().expect("idle");
    assert_eq!(log.keys(..).map(|key| key.expect("readable").to_vec()).collect::<Vec<_>>(), [b"new"]);
    env.clock.sleep_us(1_800_000_000);
    db.wait_idle().expect("idle");
    assert_eq!((log.iter().count(), log.stats().runs, db.stats().tables_dropped), (0, 0, 2));
}

#[test]
fn a_reader_from_before_the_data_was_due_holds_up_its_drop() {
    let env = environment(2);
    let db = builder(&env).keyspace("log", limited(10_000)).open().expect("opens");
    let log = db.keyspace("log").expect("made");
    let fill = |from: u32| {
        (from..from + 4).for_each(|n| log.put(format!("{n}"), vec![b'v'; 2_000]).expect("put"));
        db.flush().expect("flushed");
    };
    fill(10);
    let snapshot = db.snapshot();
    fill(20);
    db.wait_idle().expect("idle");
    let of_snapshot = snapshot.keyspace(&log);
    assert_eq!((of_snapshot.iter().count(), log.iter().count()), (4, 8));
    drop((of_snapshot, snapshot));
    db.wait_idle().expect("idle");
    assert_eq!(log.iter().count(), 4);
    assert!(log.get("10").expect("readable").is_none() && log.get("20").expect("readable").is_some());
}

#[test]
fn limits_change_in_an_open_database_and_a_keyspace_returns_to_levels() {
    let env = environment(3);
    let db = builder(&env).open().expect("opens");
    let log = db.keyspace("log").expect("made");
    for round in 0..12 {
        for n in 0..10 {
            log.put(format!("{round:02} {n}"), vec![b'v'; 500]).expect("put");
        }
        db.flush().expect("flushed");
    }
    db.compact().expect("compacted");
    assert_eq!(db.keyspace_with("log", limited(0)).expect_err("no limit").kind(), ErrorKind::Invalid);
    // The levels from before are older than what comes now, and go first.
    db.keyspace_with("log", limited(20_000)).expect("limited");
    for n in 0..30 {
        log.put(format!("new {n:02}"), vec![b'v'; 500]).expect("put");
        if n % 10 == 9 {
            db.flush().expect("flushed");
        }
    }
    db.wait_idle().expect("idle");
    assert_eq!((log.iter().count(), log.stats().deepest_level), (30, 0));
    db.keyspace_with("log", KeyspaceOptions::new().no_fifo()).expect("no limit any more");
    assert_eq!(log.fifo(), None);
    db.compact().expect("compacted");
    assert!(log.stats().deepest_level > 0 && log.iter().count() == 30);
    drop(log);
    db.close().expect("closed");
    let db = builder(&env).open().expect("opens");
    assert_eq!(db.keyspace("log").expect("there").fifo(), None);
}

#[test]
fn records_of_dropped_tables_are_erased() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let builder = builder(&env).bits_per_key(0.0).experimental(|e| e.record_cache(1 << 20));
    let db = builder.keyspace("log", limited(10_000)).open().expect("opens");
    let log = db.keyspace("log").expect("made");
    log.put("a", vec![b'v'; 1_000]).expect("put");
    log.put("z", vec![b'v'; 7_000]).expect("put");
    db.flush().expect("flushed");
    (0..3).for_each(|_| assert!(log.get("a").expect("readable").is_some()));
    let explained = log.explain("a").expect("explained");
    assert!(explained.steps.iter().any(|step| step.place == Place::Records));
    // The table that stays may hold the key, so that a lookup asks the cache.
    ["A", "zz"].iter().for_each(|key| log.put(key, vec![b'v'; 4_000]).expect("put"));
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    assert_eq!((log.get("a").expect("readable"), log.iter().count()), (None, 2));
}

/// A crash leaves what was acknowledged, or has dropped it from the oldest on.
#[test]
fn a_crash_during_drops_leaves_the_newest_data() {
    let disk = SimFs::new();
    let open = |disk: &SimFs| {
        let env = Env::deterministic(Arc::new(disk.clone()), 7);
        builder(&env).durability(Durability::Sync).keyspace("log", limited(8_000)).open().expect("opens")
    };
    let db = open(&disk);
    let log = db.keyspace("log").expect("made");
    let mut written = vec![(disk.op_count(), 0u32)];
    for n in 0..60u32 {
        log.put(format!("{n:03}"), vec![b'v'; 500]).expect("put");
        written.push((disk.op_count(), n + 1));
        if n % 4 == 3 {
            db.flush().expect("flushed");
        }
    }
    drop((log, db));
    let rng = SeededRng::new(7);
    let mut crashes = 0;
    for (at, policy) in disk.crash_points(written[0].0, 7) {
        if rng.next_u64() % 40 != 0 && policy != CrashPolicy::All {
            continue;
        }
        crashes += 1;
        let db = open(&disk.crash(at, &policy));
        let log = db.keyspace("log").expect("there");
        let keys: Vec<u32> = log
            .keys(..)
            .map(|key| std::str::from_utf8(&key.expect("readable")).expect("text").parse().expect("a number"))
            .collect();
        let due = written.iter().rev().find(|(ops, _)| *ops <= at).map_or(0, |(_, count)| *count);
        let end = keys.last().map_or(0, |last| last + 1);
        assert!(end == due || end == due + 1, "crash at {at} with {policy:?}: {keys:?}, {due} are written");
        assert!(keys.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a newer key is missing: {keys:?}");
    }
    assert!(crashes > 20, "{crashes} crashes");
}
