//! The threads of an overload, and the items that they write and check.
//!
//! Item n has the key of the number n, so keys ascend with items. A value contains the item, the
//! version and bytes derived from both. Each writer has its own items; it records the version of an
//! item before the write and again when it is acknowledged. A failed write skips its version.
//!
//! Not here: the number of threads, and the evaluation of their results ([`super::overload`]).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use shamba::{Cursor, Db, Error, ErrorKind, WriteOptions};

use shamba_workload::mix2;

/// Bytes of a value.
const VALUE_BYTES: usize = 400;
/// Deadline of a write.
const DEADLINE_MS: u64 = 500;
/// Number of writers, among which items are divided.
const WRITERS: u64 = 2;
/// Iterators per stepper.
const STEPPED: usize = 250;

/// Work of a thread.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Successful operations.
    pub done: u64,
    /// Writes that failed by their deadline.
    pub failed: u64,
    /// Time of the longest operation.
    pub longest_ns: u64,
    /// Total time of all operations.
    pub busy_ns: u64,
    /// The first violations.
    pub wrong: Vec<String>,
    first_failure: Option<Instant>,
}

impl Part {
    pub(crate) fn failed(wrong: String) -> Self {
        Self { wrong: vec![wrong], ..Self::default() }
    }

    /// Sum of both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.done += other.done;
        self.failed += other.failed;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.busy_ns += other.busy_ns;
        self.wrong.extend(other.wrong);
        self.first_failure = self.first_failure.into_iter().chain(other.first_failure).min();
        self
    }

    pub(crate) fn first_failure_ms(&self, start: Instant) -> Option<u64> {
        self.first_failure.map(|at| at.saturating_duration_since(start).as_millis() as u64)
    }

    fn took(&mut self, since: Instant) {
        let ns = since.elapsed().as_nanos() as u64;
        self.done += 1;
        self.busy_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }

    fn judge(&mut self, outcome: Result<(), String>) {
        if let Err(wrong) = outcome
            && self.wrong.len() < 5
        {
            self.wrong.push(wrong);
        }
    }

    fn is_over(&self, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || self.wrong.len() >= 5
    }
}

/// The items and their versions.
#[derive(Debug)]
pub(crate) struct Items {
    seed: u64,
    /// The last version whose write has begun.
    begun: Vec<AtomicU32>,
    /// The last one that was acknowledged.
    acknowledged: Vec<AtomicU32>,
}

impl Items {
    /// `count` items of version 0.
    pub fn new(count: u64, seed: u64) -> Self {
        let versions = || (0..count.max(1)).map(|_| AtomicU32::new(0)).collect();
        Self { seed, begun: versions(), acknowledged: versions() }
    }

    fn count(&self) -> u64 {
        self.begun.len() as u64
    }

    /// Puts version 0 of every item; returns the bytes written per second.
    pub fn fill(&self, db: &Db) -> Result<u64, Error> {
        let start = Instant::now();
        let mut value = Vec::new();
        for item in 0..self.count() {
            write_value(self.seed, item, 0, &mut value);
            db.put(key_of(item), &value)?;
        }
        let bytes_per_s = (self.count() * VALUE_BYTES as u64) as f64 / start.elapsed().as_secs_f64();
        db.wait_idle()?;
        Ok(bytes_per_s as u64)
    }

    /// Checks that `value` is a version of `item`, at least `oldest` and at most the last one whose
    /// write has begun.
    fn judge(&self, item: u64, value: &[u8], oldest: u32) -> Result<(), String> {
        let version = value.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let Some(version) = version else { return Err(format!("item {item}: {} bytes", value.len())) };
        let mut expected = Vec::new();
        write_value(self.seed, item, version, &mut expected);
        if value != expected {
            return Err(format!("item {item}: its value is not that of version {version}"));
        }
        let newest = self.begun[item as usize].load(Ordering::SeqCst);
        if version < oldest || version > newest {
            return Err(format!("item {item}: version {version}, expected {oldest} to {newest}"));
        }
        Ok(())
    }

    /// Reads every item in a scan and compares it.
    pub fn check_all(&self, db: &Db) -> Result<(), String> {
        let mut entries = db.iter();
        for item in 0..self.count() {
            let (key, value) = match entries.next() {
                Some(Ok(entry)) => entry,
                Some(Err(error)) => return Err(error.chain().to_string()),
                None => return Err(format!("nothing from item {item} on")),
            };
            if key.as_ref() != key_of(item) {
                return Err(format!("item {item} is missing"));
            }
            let oldest = self.acknowledged[item as usize].load(Ordering::SeqCst);
            self.judge(item, &value, oldest)?;
        }
        entries.next().map_or(Ok(()), |_| Err("more entries than written".to_owned()))
    }
}

fn key_of(item: u64) -> [u8; 16] {
    let mut key = *b"........in-order";
    key[..8].copy_from_slice(&item.to_be_bytes());
    key
}

fn item_of(key: &[u8]) -> Option<u64> {
    key.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

fn write_value(seed: u64, item: u64, version: u32, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&item.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    let mut word = mix2(item ^ u64::from(version) << 40, seed);
    while value.len() < VALUE_BYTES {
        word = mix2(word, seed);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(VALUE_BYTES);
}

/// Writes its own items as fast as possible.
pub(crate) fn write(db: &Db, items: &Items, number: u64, stop: &AtomicBool) -> Part {
    let mut part = Part::default();
    let mut rng = Rng::with_seed(items.seed ^ number << 8);
    let options = WriteOptions::new().deadline_ms(DEADLINE_MS);
    let mut value = Vec::new();
    while !part.is_over(stop) {
        let item = rng.u64(..items.count() / WRITERS) * WRITERS + number;
        let version = items.begun[item as usize].fetch_add(1, Ordering::SeqCst) + 1;
        write_value(items.seed, item, version, &mut value);
        let since = Instant::now();
        match db.put_with(key_of(item), &value, options) {
            Ok(()) => {
                items.acknowledged[item as usize].store(version, Ordering::SeqCst);
                part.took(since);
            }
            Err(error) if error.kind() == ErrorKind::Stalled => {
                part.failed += 1;
                part.first_failure.get_or_insert_with(Instant::now);
            }
            Err(error) => part.judge(Err(format!("a write: {}", error.chain()))),
        }
    }
    part
}

/// Reads random items.
pub(crate) fn read(db: &Db, items: &Items, number: u64, stop: &AtomicBool) -> Part {
    let mut part = Part::default();
    let mut rng = Rng::with_seed(items.seed ^ 0x5ead ^ number << 8);
    while !part.is_over(stop) {
        let item = rng.u64(..items.count());
        let oldest = items.acknowledged[item as usize].load(Ordering::SeqCst);
        let since = Instant::now();
        let found = db.get(key_of(item));
        part.took(since);
        part.judge(match found {
            Ok(Some(value)) => items.judge(item, &value, oldest),
            Ok(None) => Err(format!("item {item} is not found")),
            Err(error) => Err(format!("a read: {}", error.chain())),
        });
    }
    part
}

/// Scans everything repeatedly.
pub(crate) fn scan(db: &Db, items: &Items, _number: u64, stop: &AtomicBool) -> Part {
    let mut part = Part::default();
    while !part.is_over(stop) {
        let since = Instant::now();
        let mut expected = 0;
        for entry in db.iter() {
            let judged = match entry {
                Ok((key, value)) if item_of(&key) == Some(expected) => items.judge(expected, &value, 0),
                Ok(_) => Err(format!("a scan skips item {expected}")),
                Err(error) => Err(format!("a scan: {}", error.chain())),
            };
            let ends = judged.is_err() || part.is_over(stop);
            part.judge(judged);
            expected += 1;
            if ends {
                break;
            }
        }
        if expected < items.count() && !part.is_over(stop) {
            part.judge(Err(format!("a scan ends before item {expected}")));
        }
        part.took(since);
    }
    part
}

/// An iterator and its current item.
struct Placed {
    cursor: Cursor,
    item: u64,
    forward: bool,
}

impl Placed {
    fn at(db: &Db, item: u64, forward: bool) -> Result<Self, String> {
        let mut cursor = db.cursor();
        match cursor.seek(key_of(item)) {
            Ok(true) => Ok(Self { cursor, item, forward }),
            Ok(false) => Err(format!("an iterator finds nothing at item {item}")),
            Err(error) => Err(format!("a seek: {}", error.chain())),
        }
    }

    /// One step; wraps around at both ends.
    fn step(&mut self, items: &Items) -> Result<(), String> {
        let last = items.count() - 1;
        let moved = match (self.forward, self.item) {
            (true, item) if item == last => self.cursor.seek_to_first(),
            (true, _) => self.cursor.next(),
            (false, 0) => self.cursor.seek_to_last(),
            (false, _) => self.cursor.prev(),
        };
        self.item = match (self.forward, self.item) {
            (true, item) => (item + 1) % items.count(),
            (false, 0) => last,
            (false, item) => item - 1,
        };
        moved.map_err(|error| format!("a step: {}", error.chain()))?;
        let (Some(key), Some(value)) = (self.cursor.key(), self.cursor.value()) else {
            return Err(format!("an iterator ends before item {}", self.item));
        };
        if item_of(key) != Some(self.item) {
            return Err(format!("an iterator is not at item {}", self.item));
        }
        items.judge(self.item, value, 0)
    }
}

/// Steps iterators in rotation, in both directions.
pub(crate) fn iterate(db: &Db, items: &Items, number: u64, stop: &AtomicBool) -> Part {
    let mut part = Part::default();
    let mut rng = Rng::with_seed(items.seed ^ 0x17e2 ^ number << 8);
    let mut placed = Vec::new();
    while placed.len() < STEPPED && !part.is_over(stop) {
        match Placed::at(db, rng.u64(..items.count()), rng.bool()) {
            Ok(one) => placed.push(one),
            Err(wrong) => part.judge(Err(wrong)),
        }
    }
    while !part.is_over(stop) && !placed.is_empty() {
        for one in &mut placed {
            // Some steps per visit, up to more than a cursor batch holds.
            for _ in 0..rng.u32(1..40) {
                let since = Instant::now();
                let stepped = one.step(items);
                part.took(since);
                part.judge(stepped);
            }
            if part.is_over(stop) {
                break;
            }
        }
        // Yields to other threads.
        std::thread::sleep(Duration::from_millis(1));
    }
    part
}

/// Idle iterators.
pub(crate) struct Waiting {
    placed: Vec<Placed>,
    part: Part,
}

/// Opens iterators, which then stay idle.
pub(crate) fn hold(db: &Db, items: &Items, count: usize) -> Waiting {
    let mut waiting = Waiting { placed: Vec::new(), part: Part::default() };
    for number in 0..count as u64 {
        match Placed::at(db, number * items.count() / count as u64, number % 2 == 0) {
            Ok(one) => waiting.placed.push(one),
            Err(wrong) => waiting.part.judge(Err(wrong)),
        }
    }
    waiting
}

impl Waiting {
    /// Steps each a little: it must continue at its position.
    pub fn finish(mut self, items: &Items) -> Part {
        for one in &mut self.placed {
            for _ in 0..3 {
                let stepped = one.step(items);
                self.part.judge(stepped);
            }
        }
        self.part
    }
}
