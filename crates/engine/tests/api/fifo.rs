//! Tests of FIFO keyspaces: the oldest tables go, no older version comes back, writers do not wait,
//! and snapshots keep what they began with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shamba::env::{Clock, CrashPolicy, Env, ManualClock, MemFs, Rng, SeededRng, SimFs};
use shamba::{Builder, Db, Durability, ErrorKind, Fifo, Keyspace, KeyspaceOptions, Place, Prefix};

pub(super) const DIR: &str = "/db";

pub(super) fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).info_log(false).memory_budget(8 << 20).write_buffer(64 << 10)
}

pub(super) fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

pub(super) fn limited(bytes: u64) -> KeyspaceOptions {
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

/// Readers that follow each other without a gap, and without writes between them, do not keep what
/// was due before they began.
#[test]
fn overlapping_readers_without_writes_do_not_hold_up_drops() {
    let env = environment(4);
    let aged = KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(60)));
    let db = builder(&env).keyspace("log", aged).open().expect("opens");
    let log = db.keyspace("log").expect("made");
    log.put("old", "1").expect("put");
    db.flush().expect("flushed");
    let mut reader = db.snapshot();
    env.clock.sleep_us(70_000_000);
    db.wait_idle().expect("idle");
    assert_eq!(log.iter().count(), 1, "the first reader began before");
    for turn in 0..3 {
        let next = db.snapshot();
        drop(std::mem::replace(&mut reader, next));
        db.wait_idle().expect("idle");
        assert_eq!(log.iter().count(), 0, "turn {turn}");
    }
}

#[test]
fn a_keyspace_has_a_merge_operator_or_fifo_limits() {
    let env = environment(5);
    let merging = || KeyspaceOptions::new().merge_operator_named("shamba.max").expect("built in");
    let open = |options: Option<KeyspaceOptions>| match options {
        Some(options) => builder(&env).keyspace("log", options).open(),
        None => builder(&env).open(),
    };
    let check = |refused: shamba::Error| {
        let text = refused.to_string();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let named = ["\"log\"", "KeyspaceOptions::merge_operator", "shamba.max", "KeyspaceOptions::fifo"];
        assert!(named.iter().all(|name| text.contains(name)), "{text}");
    };
    let db = open(None).expect("opens");
    check(db.keyspace_with("log", merging().fifo(Fifo::bytes(9))).expect_err("both, for a new keyspace"));
    assert!(db.get_keyspace("log").expect("valid").is_none());
    let log = db.keyspace_with("log", limited(9_000)).expect("made");
    check(db.keyspace_with("log", merging()).expect_err("an operator for a FIFO keyspace"));
    check(db.keyspace_with("log", merging().fifo(Fifo::bytes(9))).expect_err("both"));
    assert_eq!((log.merge_operator(), log.fifo()), (None, Some(Fifo::bytes(9_000))));
    drop(log);
    db.close().expect("closed");
    check(open(Some(merging())).expect_err("an operator for a FIFO keyspace"));
    // One takes the place of the other.
    let db = open(Some(merging().no_fifo())).expect("opens");
    check(db.keyspace_with("log", limited(9)).expect_err("limits for a keyspace with an operator"));
    let log = db.keyspace("log").expect("there");
    assert_eq!((log.merge_operator().as_deref(), log.fifo()), (Some("shamba.max"), None));
    drop(log);
    db.close().expect("closed");
    check(open(Some(limited(9))).expect_err("limits for a keyspace with an operator"));
    assert_eq!(open(None).expect("opens").keyspace("log").expect("there").fifo(), None);
    // Of the options of an open, for a keyspace that it does not have.
    let env = environment(5);
    let db = builder(&env).keyspace("log", merging()).open().expect("opens");
    check(db.keyspace_with("log", limited(9)).expect_err("the operator is that of the open"));
}

/// Options that a read-only database refuses leave nothing of themselves.
#[test]
fn a_read_only_database_takes_all_options_or_none() {
    let env = environment(6);
    let merging = || KeyspaceOptions::new().merge_operator_named("shamba.max").expect("built in");
    let db = builder(&env).keyspace("log", merging()).open().expect("opens");
    db.keyspace("log").expect("made");
    db.close().expect("closed");
    let db = builder(&env).read_only(true).open().expect("opens");
    let log = db.keyspace("log").expect("there");
    let all = || KeyspaceOptions::new().prefix(Prefix::Fixed(3)).time_to_live(Duration::from_secs(7));
    let other = KeyspaceOptions::new().merge_operator_named("shamba.min").expect("built in");
    for refused in [all().fifo(Fifo::bytes(0)), all().fifo(Fifo::bytes(9))] {
        assert_eq!(db.keyspace_with("log", refused).expect_err("refused").kind(), ErrorKind::Invalid);
        assert_eq!((log.prefix_extractor(), log.time_to_live(), log.fifo()), (None, None, None));
    }
    let refused = other.prefix(Prefix::Fixed(3)).time_to_live(Duration::from_secs(7));
    assert_eq!(db.keyspace_with("log", refused).expect_err("another operator").kind(), ErrorKind::Invalid);
    assert_eq!((log.prefix_extractor(), log.time_to_live()), (None, None));
    db.keyspace_with("log", all()).expect("valid");
    assert_eq!(log.prefix_extractor(), Some(Prefix::Fixed(3)));
    assert_eq!(log.time_to_live(), Some(Duration::from_secs(7)));
}

/// A clock whose time of day is set at will.
#[derive(Debug, Default)]
struct SetClock {
    clock: ManualClock,
    /// Milliseconds by which the time of day is ahead, less [`SetClock::MIDDLE_MS`].
    ahead_ms: AtomicU64,
}

impl SetClock {
    const MIDDLE_MS: u64 = 1 << 38;

    fn set(&self, ahead_ms: i64) {
        self.ahead_ms.store(Self::MIDDLE_MS.saturating_add_signed(ahead_ms), Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms() + self.ahead_ms.load(Ordering::SeqCst) - Self::MIDDLE_MS
    }

    fn sleep_us(&self, us: u64) {
        self.clock.sleep_us(us);
    }

    fn wait_ns(&self, ns: u64) {
        self.clock.wait_ns(ns);
    }
}

/// A time of day that is wrong for a while neither keeps tables for ever nor drops them early.
#[test]
fn a_wrong_clock_at_one_flush_does_not_change_how_long_tables_stay() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let clock = Arc::new(SetClock::default());
    clock.set(0);
    let env = Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..environment(8) };
    let aged = || KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(3_600)));
    let open = || builder(&env).keyspace("log", aged()).open().expect("opens");
    let mut db = open();
    let keys = |db: &Db| {
        db.wait_idle().expect("idle");
        let log = db.keyspace("log").expect("made");
        log.keys(..)
            .map(|key| String::from_utf8_lossy(&key.expect("readable")).into_owned())
            .collect::<Vec<_>>()
    };
    let write = |db: &Db, key: &str, ahead_ms| {
        clock.set(ahead_ms);
        db.keyspace("log").expect("made").put(key, "1").expect("put");
        db.flush().expect("flushed");
        clock.set(0);
        clock.sleep_us(1_000_000_000);
    };
    // In the past, at the second and third flush.
    write(&db, "a", 0);
    write(&db, "b", -YEAR_MS);
    write(&db, "c", -2 * YEAR_MS);
    assert_eq!(keys(&db), ["a", "b", "c"], "nothing is 3,600 s old");
    db.close().expect("closed");
    db = open();
    clock.sleep_us(700_000_000);
    assert_eq!(keys(&db), ["b", "c"], "a has 3,700 s, b 2,700 s");
    clock.sleep_us(2_000_000_000);
    assert_eq!(keys(&db), [""; 0], "c has 3,700 s");
    // In the future.
    write(&db, "d", YEAR_MS);
    write(&db, "e", 0);
    assert_eq!(keys(&db), ["d", "e"]);
    clock.sleep_us(1_700_000_000);
    assert_eq!(keys(&db), ["e"], "d has 3,700 s");
    // An open does not turn the time back: the age of e counts from the last flush before it.
    db.close().expect("closed");
    db = open();
    clock.sleep_us(1_000_000_000);
    write(&db, "f", 0);
    assert_eq!(keys(&db), ["e", "f"]);
    clock.sleep_us(1_700_000_000);
    assert_eq!(keys(&db), ["f"], "e has 3,700 s since the open, f 2,700 s");
    clock.sleep_us(1_000_000_000);
    assert_eq!(keys(&db), [""; 0], "f has 3,700 s");
}

/// Neither memory nor merges keep an entry much longer than its age allows, and none goes earlier.
#[test]
fn entries_stay_for_about_their_age() {
    for (seed, flushes_one_in) in [(0, u64::MAX), (1, 1), (2, 7), (3, 100)] {
        println!("seed {seed}, a flush every {flushes_one_in} writes");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let age_s = 3_200;
        let aged = KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(age_s)));
        let db = builder(&env).keyspace("log", aged).open().expect("opens");
        let log = db.keyspace("log").expect("made");
        let (step_s, mut most_runs, mut longest_s) = (10, 0, 0);
        for step in 0..1_500u64 {
            // In no order: all tables share their range of keys, so merges rewrite all entries.
            let order = (step as u32).wrapping_mul(2_654_435_769);
            log.put(format!("{order:08x} {step:04}"), [b'v'; 50]).expect("put");
            env.clock.sleep_us(step_s * 1_000_000);
            if rng.next_u64() % flushes_one_in == 0 {
                db.flush().expect("flushed");
            }
            db.wait_idle().expect("idle");
            let step_of =
                |key: &[u8]| std::str::from_utf8(&key[9..]).expect("text").parse().expect("a number");
            let steps: Vec<u64> = log.keys(..).map(|key| step_of(&key.expect("readable"))).collect();
            let oldest = *steps.iter().min().expect("the newest is there");
            let count = steps.len() as u64;
            assert_eq!(count, step + 1 - oldest, "step {step}: only the oldest are gone");
            longest_s = longest_s.max(count * step_s);
            assert!((count + 1) * step_s >= age_s || oldest == 0, "step {step}: {count} are there");
            most_runs = most_runs.max(log.stats().runs);
        }
        let bound_s = age_s + age_s * 5 / 16 + 3 * step_s;
        assert!(longest_s > age_s && longest_s <= bound_s, "{longest_s} s, at most {bound_s} s");
        assert!(most_runs <= 40, "{most_runs} runs");
    }
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

/// Limits record up to which sequence number entries have which age. A crash can lose the newest of
/// these numbers; the entries that get them afterwards are young.
#[test]
fn entries_with_the_numbers_of_lost_ones_live_as_long_as_others() {
    let disk = SimFs::new();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let open = |disk: &SimFs| {
        let env = Env { clock: Arc::clone(&clock), ..Env::deterministic(Arc::new(disk.clone()), 7) };
        builder(&env).durability(Durability::NoSync).open().expect("opens")
    };
    let db = open(&disk);
    let log = db.keyspace("log").expect("made");
    for n in 0..1_000u32 {
        log.put(n.to_be_bytes(), "lost").expect("put");
    }
    let hour = Duration::from_secs(3_600);
    db.keyspace_with("log", KeyspaceOptions::new().fifo(Fifo::age(hour))).expect("limited");
    let after_power_loss = disk.crash(disk.op_count(), &CrashPolicy::None);
    drop((log, db));
    clock.sleep_us(2 * 3_600_000_000);
    let db = open(&after_power_loss);
    let log = db.keyspace("log").expect("recovered");
    assert_eq!(log.fifo().and_then(|limits| limits.max_age()), Some(hour));
    assert_eq!(log.iter().count(), 0, "nothing of the log was synced");
    for n in 0..100u32 {
        log.put(n.to_be_bytes(), "kept").expect("put");
    }
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    db.wait_idle().expect("idle");
    assert_eq!(log.iter().count(), 100);
}
