//! Operations made ahead of time, and their execution.
//!
//! A thread makes a batch of operations (keys and values side by side in one arena) outside the timed
//! part, then executes it with one clock read each.

use std::ops::Range;
use std::time::Instant;

use shamba::{Db, Result};

use crate::keys::Keys;
use crate::measure::{CpuTimer, Latencies};
use crate::values::Values;

/// The most operations that one batch holds, and the bytes at which it ends early.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// What to do with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Put,
    Get,
    Delete,
    /// Put a fresh cursor on the key and read the entry there.
    Seek,
    /// Read up to so many entries from the key on.
    Scan(u32),
    /// Get, then put.
    Update,
}

/// One operation, as a workload asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub verb: Verb,
    pub item: u64,
    /// Whether the key is one that no fill writes.
    pub absent: bool,
}

struct Op {
    verb: Verb,
    key: Range<usize>,
    value: Range<usize>,
}

/// What one thread has done.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub latencies: Latencies,
    pub ops: u64,
    pub busy_ns: u64,
    /// CPU time spent making operations, which is no part of the figures.
    pub making_cpu_ns: u64,
    pub lookups: u64,
    pub found: u64,
    /// Lookups of keys that a fill wrote.
    pub expected: u64,
}

impl Meter {
    /// Counts `count` operations of together `ns`.
    pub fn record(&mut self, ns: u64, count: u64) {
        let each = ns / count.max(1);
        (0..count).for_each(|_| self.latencies.record(each));
        self.ops += count;
        self.busy_ns += ns;
    }
}

/// Makes and executes batches for one thread.
pub(crate) struct Batches<'a> {
    db: &'a Db,
    keys: Keys,
    values: &'a Values,
    arena: Vec<u8>,
    ops: Vec<Op>,
    scratch: Vec<u8>,
}

impl<'a> Batches<'a> {
    pub fn new(db: &'a Db, keys: Keys, values: &'a Values) -> Self {
        Self { db, keys, values, arena: Vec::new(), ops: Vec::new(), scratch: Vec::new() }
    }

    /// Takes requests until the batch is full or there are no more; answers how many it took.
    pub fn make(&mut self, meter: &mut Meter, mut next: impl FnMut() -> Option<Request>) -> u64 {
        let cpu = CpuTimer::thread();
        self.arena.clear();
        self.ops.clear();
        while self.ops.len() < BATCH_OPS && self.arena.len() < BATCH_BYTES {
            let Some(request) = next() else { break };
            if request.absent {
                self.keys.absent(request.item, &mut self.scratch);
            } else {
                self.keys.existing(request.item, &mut self.scratch);
            }
            let key = self.keep();
            let value = if matches!(request.verb, Verb::Put | Verb::Update) {
                // The version differs from batch to batch, so that overwriting changes bytes.
                self.values.write(request.item ^ (meter.ops << 20), &mut self.scratch);
                self.keep()
            } else {
                0..0
            };
            if matches!(request.verb, Verb::Get | Verb::Seek | Verb::Scan(_) | Verb::Update) {
                meter.expected += u64::from(!request.absent);
            }
            self.ops.push(Op { verb: request.verb, key, value });
        }
        meter.making_cpu_ns += u64::try_from(cpu.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ops.len() as u64
    }

    fn keep(&mut self) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(&self.scratch);
        start..self.arena.len()
    }

    /// Executes the batch.
    pub fn execute(&mut self, meter: &mut Meter) -> Result<()> {
        let mut last = Instant::now();
        for op in &self.ops {
            let (key, value) = (&self.arena[op.key.clone()], &self.arena[op.value.clone()]);
            let found = match op.verb {
                Verb::Put => self.db.put(key, value).map(|()| None)?,
                Verb::Delete => self.db.delete(key).map(|()| None)?,
                Verb::Get => Some(self.db.get(key)?.is_some()),
                Verb::Update => {
                    let found = self.db.get(key)?.is_some();
                    self.db.put(key, value)?;
                    Some(found)
                }
                Verb::Seek => {
                    let mut cursor = self.db.cursor();
                    cursor.seek(key)?;
                    Some(cursor.key() == Some(key))
                }
                Verb::Scan(entries) => Some(scan(self.db, key, entries)?),
            };
            let now = Instant::now();
            let ns = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
            last = now;
            meter.latencies.record(ns);
            meter.busy_ns += ns;
            meter.ops += 1;
            if let Some(found) = found {
                meter.lookups += 1;
                meter.found += u64::from(found);
            }
        }
        Ok(())
    }
}

/// Reads up to `entries` entries from `key` on; whether the first one was `key` itself.
fn scan(db: &Db, key: &[u8], entries: u32) -> Result<bool> {
    let mut found = false;
    for (count, entry) in db.range(key..).take(entries as usize).enumerate() {
        let (at, value) = entry?;
        found |= count == 0 && at.as_ref() == key;
        std::hint::black_box(value.len());
    }
    Ok(found)
}
