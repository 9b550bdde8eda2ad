//! A scenario of entries that expire while a thread moves the clock.
//!
//! The time of a reader is known up to an interval: the clock is read before and after it begins.
//! So is the end of an entry, by the clock before and after its write. Where the intervals do not
//! overlap, the answer is certain; otherwise both are right, and all reads of one reader agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shamba::env::{Clock, Env};
use shamba::merge::AddU64;
use shamba::{Db, KeyspaceOptions, MergePolicy, Slice, WriteOptions};
use shuttle::thread;

use crate::explore::{Done, EXPIRED, SCHEDULES_FEW, explore};
use crate::scheduled::{builder, files};

static EXPIRY: Done = Done::new();

/// The name of the count of snapshots that still saw an entry after its end.
const KEPT: &str = "snapshots that kept an entry beyond its end";
/// The name of the count of readers that began after the end of an entry.
const AFTER: &str = "readers that began after an end";

/// Keys with an older version that lasts below those that expire.
const KEYS: usize = 3;
/// Writes of entries that expire, to the keys in turn.
const ROUNDS: usize = 9;
const LIFE_MS: u64 = 1_500;
/// Steps of the clock.
const STEPS: usize = 10;
const STEP_MS: u64 = 1_000;
/// Turns of the scheduler that the thread of the clock gives up before a step: the other threads
/// take more turns than it has steps.
const TURNS: usize = 12;
/// The engine's time is less than this behind the clock, which shows whole milliseconds.
const LAG_MS: u64 = 2;
/// The base of the sum; each operand adds one.
const BASE: u64 = 100;

/// The writes of one key, or of the base of the sum, in their order.
#[derive(Default)]
struct Writes {
    begun: AtomicU64,
    acked: AtomicU64,
    /// The clock before and after each write.
    times_ms: [[AtomicU64; 2]; ROUNDS],
}

impl Writes {
    /// Makes the next write by `put`, which is given its number.
    fn write(&self, clock: &dyn Clock, put: impl FnOnce(u8)) {
        let number = self.begun.load(Ordering::Acquire);
        let times_ms = &self.times_ms[number as usize];
        times_ms[0].store(clock.unix_ms(), Ordering::Release);
        times_ms[1].store(u64::MAX / 2, Ordering::Release);
        self.begun.store(number + 1, Ordering::Release);
        put(number as u8 + 1);
        times_ms[1].store(clock.unix_ms(), Ordering::Release);
        self.acked.store(number + 1, Ordering::Release);
    }

    /// Whether write number `number`, from 1, may have ended for a reader that began by `ms`, and
    /// whether it must have for one that began at `ms` or later.
    fn ended(&self, number: u64, ms: u64) -> [bool; 2] {
        let times_ms = &self.times_ms[number as usize - 1];
        let [early_ms, late_ms] = [0, 1].map(|at| times_ms[at].load(Ordering::Acquire) + LIFE_MS);
        [early_ms <= ms, late_ms + LAG_MS <= ms]
    }
}

/// Everything that is written.
#[derive(Default)]
struct Written {
    keys: [Writes; KEYS],
    base: Writes,
    /// Operands of the sum that were begun and acknowledged.
    operands: [AtomicU64; 2],
}

/// The view of a reader: of each key the number of the write, 0 for the older version that lasts,
/// `None` for no value; and the sum.
type Seen = ([Option<u8>; KEYS], u64);

/// The state before a reader begins.
struct Before {
    ms: u64,
    acked: [u64; KEYS],
    has_base: bool,
    operands: u64,
}

fn name(key: usize) -> String {
    format!("key/{key}")
}

fn number_of(value: &[u8]) -> u8 {
    assert!(value.len() == 200 && value.iter().all(|byte| *byte == value[0]), "{value:?}");
    value[0]
}

fn sum_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// The state by a function of a key.
fn by_gets(get: impl Fn(&str) -> shamba::Result<Option<Slice>>) -> Seen {
    let keys = std::array::from_fn(|key| {
        let value = get(&name(key)).expect("get");
        thread::yield_now();
        value.map(|value| number_of(&value))
    });
    (keys, get("sum").expect("get").map_or(0, |value| sum_of(&value)))
}

/// The state by a scan.
fn by_scan(scan: impl Iterator<Item = shamba::Result<(Slice, Slice)>>) -> Seen {
    let mut seen: Seen = ([None; KEYS], 0);
    for entry in scan {
        let (key, value) = entry.expect("scan");
        match &key[..] {
            b"sum" => seen.1 = sum_of(&value),
            key => seen.0[usize::from(key[key.len() - 1] - b'0')] = Some(number_of(&value)),
        }
        thread::yield_now();
    }
    seen
}

/// One thread's reads: nothing that it has seen to end comes back.
struct Observer<'a> {
    written: &'a Written,
    clock: &'a dyn Clock,
    /// The least number of a write that may be seen of each key.
    least: [u64; KEYS],
    /// Whether the base of the sum was seen to end.
    has_base_ended: bool,
}

impl<'a> Observer<'a> {
    fn new(written: &'a Written, clock: &'a dyn Clock) -> Self {
        Self { written, clock, least: [0; KEYS], has_base_ended: false }
    }

    fn before(&self) -> Before {
        let Written { keys, base, operands } = self.written;
        Before {
            ms: self.clock.unix_ms(),
            acked: std::array::from_fn(|key| keys[key].acked.load(Ordering::Acquire)),
            has_base: base.acked.load(Ordering::Acquire) > 0,
            operands: operands[1].load(Ordering::Acquire),
        }
    }

    /// Checks what a reader sees that began after `before` and by `begun_ms`.
    fn check(&mut self, (keys, sum): Seen, before: &Before, begun_ms: u64) {
        let Written { keys: writes, base, operands } = self.written;
        for (key, seen) in keys.into_iter().enumerate() {
            let (writes, acked) = (&writes[key], before.acked[key]);
            match seen.map(u64::from) {
                Some(number) => {
                    assert!(number >= acked, "key {key} is write {number}, and {acked} was acknowledged");
                    assert!(number >= self.least[key], "key {key} is write {number} again, which had ended");
                    let must_end = number > 0 && writes.ended(number, before.ms)[1];
                    assert!(!must_end, "key {key} is write {number} after its end");
                    self.least[key] = number;
                }
                None => {
                    let begun = writes.begun.load(Ordering::Acquire);
                    let may_end = (acked.max(1)..=begun).any(|number| writes.ended(number, begun_ms)[0]);
                    assert!(may_end, "key {key} has no value, and none of {acked}..={begun} has ended");
                    self.least[key] = self.least[key].max(acked + 1);
                    EXPIRY.add(AFTER, 1);
                }
            }
        }
        let has_base = sum >= BASE;
        let count = if has_base { sum - BASE } else { sum };
        let begun = operands[0].load(Ordering::Acquire);
        assert!((before.operands..=begun).contains(&count), "the sum is {sum} with {begun} operands");
        if has_base {
            assert!(!self.has_base_ended, "the base of the sum is back");
            assert!(!base.ended(1, before.ms)[1], "the sum is {sum} after the end of its base");
        } else if before.has_base {
            assert!(base.ended(1, begun_ms)[0], "the sum is {sum} before the end of its base");
            self.has_base_ended = true;
        }
    }
}

/// Reads by snapshots, iterators, transactions and lookups.
fn read(db: &Db, written: &Written, clock: &dyn Clock, turns: usize) {
    let mut observer = Observer::new(written, clock);
    for turn in 0..turns {
        let before = observer.before();
        let snapshot = db.snapshot();
        let begun_ms = clock.unix_ms();
        let first = by_gets(|key| snapshot.get(key));
        observer.check(first, &before, begun_ms);

        let before = observer.before();
        let iter = db.iter();
        let begun_ms = clock.unix_ms();
        observer.check(by_scan(iter), &before, begun_ms);

        // Time for a step of the clock and a compaction.
        (0..3 * TURNS).for_each(|_| thread::yield_now());
        assert_eq!(by_scan(snapshot.iter().rev()), first, "a backward scan of a snapshot");
        if turn % 2 == 0 {
            let before = observer.before();
            let transaction = db.transaction();
            let begun_ms = clock.unix_ms();
            let own = by_gets(|key| transaction.get(key));
            observer.check(own, &before, begun_ms);
            assert_eq!(by_scan(transaction.iter()), own, "a scan of a transaction");
            assert_eq!(by_gets(|key| transaction.get(key)), own, "lookups of a transaction");
        }
        assert_eq!(by_scan(snapshot.iter()), first, "a scan of a snapshot");
        assert_eq!(by_gets(|key| snapshot.get(key)), first, "lookups of a snapshot");
        let now_ms = clock.unix_ms();
        let has_ended = |(key, seen): (usize, &Option<u8>)| {
            seen.is_some_and(|number| number > 0 && written.keys[key].ended(number.into(), now_ms)[1])
        };
        EXPIRY.add(KEPT, u64::from(first.0.iter().enumerate().any(has_ended)));
    }
}

/// Entries that expire are written over ones that last, and operands over a base that expires,
/// while one thread moves the clock and two threads read. Compactions drop what has expired.
fn entries_expire() {
    let vfs = files();
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    let db = builder(&vfs, MergePolicy::Leveling).keyspace("default", counting).open().expect("open");
    let clock = Env::scheduled(vfs, 7).clock;
    for key in 0..KEYS {
        db.put(name(key), [0; 200]).expect("put");
    }
    db.flush().expect("flush");
    let written = Arc::new(Written::default());
    let readers = [2, 3].map(|turns| {
        let (db, written, clock) = (db.clone(), Arc::clone(&written), Arc::clone(&clock));
        thread::spawn(move || read(&db, &written, &*clock, turns))
    });
    let moving = {
        let clock = Arc::clone(&clock);
        thread::spawn(move || {
            for _ in 0..STEPS {
                (0..TURNS).for_each(|_| thread::yield_now());
                clock.sleep_us(STEP_MS * 1_000);
            }
        })
    };
    let expiring = WriteOptions::new().time_to_live(Duration::from_millis(LIFE_MS));
    for round in 0..ROUNDS {
        let key = round % KEYS;
        written.keys[key].write(&*clock, |number| {
            db.put_with(name(key), [number; 200], expiring).expect("put");
        });
        if round == 1 {
            written.base.write(&*clock, |_| {
                db.put_with("sum", BASE.to_le_bytes(), expiring).expect("put");
            });
        }
        if round > 1 {
            written.operands[0].fetch_add(1, Ordering::AcqRel);
            db.merge("sum", 1u64.to_le_bytes()).expect("merge");
            written.operands[1].fetch_add(1, Ordering::AcqRel);
        }
        if round % 3 == 2 {
            db.compact().expect("compact");
        }
    }
    moving.join().expect("no panic");
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    clock.sleep_us(2 * LIFE_MS * 1_000);
    db.compact().expect("compact");
    let operands = ROUNDS as u64 - 2;
    assert_eq!(by_scan(db.iter()), ([None; KEYS], operands), "everything has ended");
    db.check_invariants().expect("the tree has its shape");
    EXPIRY.note(&db);
    db.close().expect("close");
}

#[test]
fn readers_of_expiring_entries() {
    explore(
        "expiry::readers_of_expiring_entries",
        SCHEDULES_FEW,
        entries_expire,
        &EXPIRY,
        &[("flushes", 300), ("compactions", 200), (EXPIRED, 300), (KEPT, 20), (AFTER, 100)],
    );
}
