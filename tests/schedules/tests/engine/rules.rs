//! Scenarios of keyspaces with rules: a compaction filter, and the limits of a FIFO keyspace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Fifo, Keyspace, KeyspaceOptions, MergePolicy, Snapshot};
use shuttle::thread;

use crate::explore::{DROPPED, Done, FILTERED, SCHEDULES_FEW, explore};
use crate::scheduled::{builder, files};

static FILTERS: Done = Done::new();
static LIMITS: Done = Done::new();

/// The name of the count of snapshots that saw a pair before the filter changed it.
const BEFORE: &str = "snapshots before the filter";
/// The name of the count of snapshots that saw a pair after the filter changed it.
const AFTER: &str = "snapshots after the filter";
/// The name of the count of snapshots in which the oldest data disappeared: they began when it was
/// due.
const SHORTENED: &str = "snapshots that lost due data";

/// Marks the value of `left` as changed, and removes `right`.
struct Settle;

impl CompactionFilter for Settle {
    fn name(&self) -> &str {
        "schedules.settle"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        match (entry.key(), entry.value()) {
            (b"left", Some([round, 0, ..])) => Verdict::Replace(vec![*round, 1]),
            (b"right", _) => Verdict::Remove,
            _ => Verdict::Keep,
        }
    }
}

/// The round of a pair of keys, and whether the filter has changed them.
type Pair = (u8, bool);

fn pair_in(snapshot: &Snapshot) -> Pair {
    let [left, right] = ["left", "right"].map(|key| snapshot.get(key).expect("get"));
    let left = left.expect("the filter keeps it");
    let pair = (left[0], left[1] == 1);
    assert_eq!(
        right.map(|right| (right[0], false)),
        Some(pair).filter(|(_, is_after)| !is_after),
        "{pair:?}"
    );
    pair
}

fn scanned_in(snapshot: &Snapshot) -> Pair {
    let mut keys = 0;
    let mut pair = (0, false);
    for entry in snapshot.iter() {
        let (key, value) = entry.expect("scan");
        if key[..] == *b"left" {
            pair = (value[0], value[1] == 1);
        }
        keys += 1;
    }
    assert_eq!(keys, if pair.1 { 1 } else { 2 }, "{pair:?}");
    pair
}

/// Pairs of keys that the filter of a compaction changes, while two threads take snapshots: each
/// snapshot sees a pair before or after the change in all its reads, and no later snapshot of the
/// thread sees it as it was before.
fn filter_beside_readers() {
    const ROUNDS: u8 = 2;
    let filtered = KeyspaceOptions::new().compaction_filter(Settle);
    let db = builder(&files(), MergePolicy::Leveling).keyspace("default", filtered).open().expect("open");
    let write = |round: u8| {
        let mut batch = db.batch();
        batch.put("left", [round, 0]).put("right", [round, 0]);
        batch.commit().expect("commit");
    };
    write(1);
    let readers = [0, 1].map(|_| {
        let db = db.clone();
        thread::spawn(move || {
            let mut last = (0, false);
            for _ in 0..3 {
                let snapshot = db.snapshot();
                let first = pair_in(&snapshot);
                thread::yield_now();
                assert_eq!(scanned_in(&snapshot), first, "a scan of a snapshot after its lookups");
                thread::yield_now();
                assert_eq!(pair_in(&snapshot), first, "lookups of a snapshot after its scan");
                assert!(first >= last, "{first:?} after {last:?}");
                FILTERS.add(if first.1 { AFTER } else { BEFORE }, 1);
                last = first;
            }
        })
    });
    for round in 1..=ROUNDS {
        db.compact().expect("compact");
        if round < ROUNDS {
            write(round + 1);
        }
    }
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    db.compact().expect("compact");
    assert_eq!(pair_in(&db.snapshot()), (ROUNDS, true), "nothing holds the filter up any more");
    FILTERS.note(&db);
    db.close().expect("close");
}

#[test]
fn filter_changes_beside_readers() {
    explore(
        "rules::filter_changes_beside_readers",
        SCHEDULES_FEW,
        filter_beside_readers,
        &FILTERS,
        &[("compactions", 200), (FILTERED, 300), (BEFORE, 100), (AFTER, 100)],
    );
}

/// The rounds that a snapshot shows, in the order of a scan.
fn rounds_in(snapshot: &Snapshot) -> Vec<u8> {
    let round = |entry: shamba::Result<(shamba::Slice, shamba::Slice)>| {
        let (key, value) = entry.expect("scan");
        assert_eq!((&key[..], value.len()), (&[value[0]][..], 300), "the value of another key");
        value[0]
    };
    snapshot.iter().map(round).collect()
}

/// Rounds of writes to a FIFO keyspace, whose oldest tables are dropped. A snapshot from before
/// they were due keeps all that it has. One that began later may lose the oldest rounds, never a
/// newer one before them, and gains none.
fn limits_beside_readers() {
    /// Bytes of four rounds, a table of nearly 1,000 bytes each.
    const LIMIT: u64 = 4_000;
    /// Rounds from before anything is due, and in all.
    const FIRST: u8 = 3;
    const ROUNDS: u8 = 8;
    let limited = KeyspaceOptions::new().fifo(Fifo::bytes(LIMIT));
    let db = builder(&files(), MergePolicy::Leveling).keyspace("log", limited).open().expect("open");
    let log = db.keyspace("log").expect("made");
    let write = |log: &Keyspace, round: u8| log.put([round], [round; 300]).expect("put");
    for round in 0..FIRST {
        write(&log, round);
        db.flush().expect("flush");
    }
    let bytes = || log.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
    assert!(bytes() <= LIMIT, "the first rounds take {} bytes", bytes());
    let written = Arc::new(AtomicUsize::new(usize::from(FIRST)));
    let early = {
        let snapshot = db.snapshot().keyspace(&log);
        thread::spawn(move || {
            for _ in 0..2 {
                let rounds = rounds_in(&snapshot);
                assert!(rounds.iter().copied().eq(0..FIRST), "a snapshot of the first rounds has {rounds:?}");
                thread::yield_now();
            }
        })
    };
    let late = {
        let (db, log, written) = (db.clone(), log.clone(), Arc::clone(&written));
        thread::spawn(move || {
            for _ in 0..3 {
                let least = written.load(Ordering::Acquire);
                let snapshot = db.snapshot().keyspace(&log);
                let first = rounds_in(&snapshot);
                let newest = first.last().map_or(0, |newest| usize::from(*newest) + 1);
                assert!(newest >= least, "{least} rounds were written, a snapshot has {first:?}");
                let mut last = first.clone();
                for _ in 0..2 {
                    thread::yield_now();
                    let rounds = rounds_in(&snapshot);
                    assert!(last.ends_with(&rounds), "a snapshot had {last:?} and has {rounds:?}");
                    last = rounds;
                }
                LIMITS.add(SHORTENED, u64::from(last.len() < first.len()));
            }
        })
    };
    for round in FIRST..ROUNDS {
        write(&log, round);
        written.store(usize::from(round) + 1, Ordering::Release);
        db.flush().expect("flush");
    }
    early.join().expect("no panic");
    late.join().expect("no panic");
    db.wait_idle().expect("idle");
    assert!(bytes() <= LIMIT, "{} bytes stay", bytes());
    let rounds = rounds_in(&db.snapshot().keyspace(&log));
    let oldest = rounds.first().copied().unwrap_or(ROUNDS);
    assert!(0 < oldest && oldest < ROUNDS && rounds.iter().copied().eq(oldest..ROUNDS), "{rounds:?}");
    db.check_invariants().expect("the tree has its shape");
    LIMITS.note(&db);
    db.close().expect("close");
}

#[test]
fn drops_of_limits_beside_readers() {
    explore(
        "rules::drops_of_limits_beside_readers",
        SCHEDULES_FEW,
        limits_beside_readers,
        &LIMITS,
        &[("flushes", 300), (DROPPED, 200), (SHORTENED, 1)],
    );
}
