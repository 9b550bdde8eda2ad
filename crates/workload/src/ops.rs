//! Operations prepared in batches, and their execution.
//!
//! A thread prepares a batch of operations (keys and values in one arena) outside the timed part,
//! then executes it. A clock is read after each operation, or only before and after the whole
//! batch, because a clock read takes a considerable part of a lookup's time. For short operations
//! one batch in eight has a clock read per operation: percentiles come from these, the mean from
//! all others.

use std::ops::Range;
use std::time::Instant;

use shamba::{Db, Result};

use crate::keys::Keys;
use crate::measure::{CpuTimer, Latencies};
use crate::values::Values;

/// Maximum operations of a batch, and the number of bytes at which it ends early.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// Kind of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Put,
    Get,
    Delete,
    /// Seek a new cursor to the key, and read the entry there and this many after it.
    Seek(u32),
    /// Read up to this many entries from the key on.
    Scan(u32),
    /// Get, then put.
    Update,
}

/// One operation as requested by a workload.
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

/// Measurements of one thread.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub latencies: Latencies,
    pub ops: u64,
    pub busy_ns: u64,
    /// Number of operations without individual clock reads, and their total time.
    pub plain: (u64, u64),
    /// CPU time of preparing operations, which is excluded from the figures.
    pub making_cpu_ns: u64,
    pub lookups: u64,
    pub found: u64,
    /// Lookups of keys that a fill wrote.
    pub expected: u64,
}

impl Meter {
    /// Records `count` operations that took `ns` in total.
    pub fn record(&mut self, ns: u64, count: u64) {
        let each = ns / count.max(1);
        (0..count).for_each(|_| self.latencies.record(each));
        self.ops += count;
        self.busy_ns += ns;
    }

    /// Does something whose CPU time is excluded from the figures.
    pub fn untimed<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let cpu = CpuTimer::thread();
        let done = work();
        self.making_cpu_ns += nanos(cpu.elapsed());
        done
    }

    /// Records `count` operations without individual clock reads that took `ns` in total.
    pub fn record_plain(&mut self, count: u64, ns: u64) {
        self.ops += count;
        self.busy_ns += ns;
        self.plain.0 += count;
        self.plain.1 += ns;
    }
}

/// Prepares and executes batches for one thread.
pub(crate) struct Batches<'a> {
    db: &'a Db,
    keys: Keys,
    values: &'a Values,
    arena: Vec<u8>,
    ops: Vec<Op>,
    scratch: Vec<u8>,
    /// Operations of a call. A batch has whole calls, as long as there are requests.
    call_ops: usize,
}

impl<'a> Batches<'a> {
    pub fn new(db: &'a Db, keys: Keys, values: &'a Values) -> Self {
        Self { db, keys, values, arena: Vec::new(), ops: Vec::new(), scratch: Vec::new(), call_ops: 1 }
    }

    /// Batches of calls for `keys` keys each.
    pub fn in_calls_of(self, keys: usize) -> Self {
        Self { call_ops: keys.max(1), ..self }
    }

    fn is_full(&self) -> bool {
        let (ops, call_ops) = (self.ops.len(), self.call_ops);
        ops.is_multiple_of(call_ops)
            && ops > 0
            && (ops + call_ops > BATCH_OPS || self.arena.len() >= BATCH_BYTES)
    }

    /// Takes requests until the batch is full or there are no more; returns the number taken.
    pub fn make(&mut self, meter: &mut Meter, mut next: impl FnMut() -> Option<Request>) -> u64 {
        let cpu = CpuTimer::thread();
        self.arena.clear();
        self.ops.clear();
        while !self.is_full() {
            let Some(request) = next() else { break };
            if request.absent {
                self.keys.absent(request.item, &mut self.scratch);
            } else {
                self.keys.existing(request.item, &mut self.scratch);
            }
            let key = self.keep();
            let value = if matches!(request.verb, Verb::Put | Verb::Update) {
                // The value differs from batch to batch, so that overwriting changes bytes.
                self.values.write(request.item ^ (meter.ops << 20), &mut self.scratch);
                self.keep()
            } else {
                0..0
            };
            if matches!(request.verb, Verb::Get | Verb::Seek(_) | Verb::Scan(_) | Verb::Update) {
                meter.expected += u64::from(!request.absent);
            }
            self.ops.push(Op { verb: request.verb, key, value });
        }
        meter.making_cpu_ns += nanos(cpu.elapsed());
        self.ops.len() as u64
    }

    fn keep(&mut self) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(&self.scratch);
        start..self.arena.len()
    }

    /// Executes the batch, with a clock read after each operation.
    pub fn execute(&mut self, meter: &mut Meter) -> Result<()> {
        let mut last = Instant::now();
        for op in &self.ops {
            self.execute_one(op, meter)?;
            let now = Instant::now();
            let ns = nanos(now - last);
            last = now;
            meter.latencies.record(ns);
            meter.busy_ns += ns;
            meter.ops += 1;
        }
        Ok(())
    }

    /// Executes the batch, with one clock read before and one after it.
    pub fn execute_plain(&mut self, meter: &mut Meter) -> Result<()> {
        let begin = Instant::now();
        for op in &self.ops {
            self.execute_one(op, meter)?;
        }
        meter.record_plain(self.ops.len() as u64, nanos(begin.elapsed()));
        Ok(())
    }

    /// Executes a batch of gets, a call at a time.
    pub fn execute_multi(&mut self, meter: &mut Meter, clocked: bool) -> Result<()> {
        let begin = Instant::now();
        let mut last = begin;
        for group in self.ops.chunks(self.call_ops) {
            let values = self.db.multi_get(group.iter().map(|op| &self.arena[op.key.clone()]))?;
            meter.lookups += values.len() as u64;
            meter.found += values.iter().filter(|value| value.is_some()).count() as u64;
            if clocked {
                let now = Instant::now();
                meter.record(nanos(now - last), group.len() as u64);
                last = now;
            }
        }
        if !clocked {
            meter.record_plain(self.ops.len() as u64, nanos(begin.elapsed()));
        }
        Ok(())
    }

    #[inline]
    fn execute_one(&self, op: &Op, meter: &mut Meter) -> Result<()> {
        let (key, value) = (&self.arena[op.key.clone()], &self.arena[op.value.clone()]);
        let found = match op.verb {
            Verb::Put => return self.db.put(key, value),
            Verb::Delete => return self.db.delete(key),
            Verb::Get => self.db.get(key)?.is_some(),
            Verb::Update => {
                let found = self.db.get(key)?.is_some();
                self.db.put(key, value)?;
                found
            }
            Verb::Seek(nexts) => seek(self.db, key, nexts)?,
            Verb::Scan(entries) => scan(self.db, key, entries)?,
        };
        meter.lookups += 1;
        meter.found += u64::from(found);
        Ok(())
    }
}

pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Seeks a new cursor and reads `nexts` more entries; returns whether the first entry was `key`
/// itself.
fn seek(db: &Db, key: &[u8], nexts: u32) -> Result<bool> {
    let mut cursor = db.cursor();
    cursor.seek(key)?;
    let found = cursor.key() == Some(key);
    for _ in 0..nexts {
        if cursor.key().is_none() {
            break;
        }
        std::hint::black_box(cursor.value().map_or(0, <[u8]>::len));
        cursor.next()?;
    }
    Ok(found)
}

/// Reads up to `entries` entries from `key` on; returns whether the first one was `key` itself.
fn scan(db: &Db, key: &[u8], entries: u32) -> Result<bool> {
    let mut found = false;
    for (count, entry) in db.range(key..).take(entries as usize).enumerate() {
        let (at, value) = entry?;
        found |= count == 0 && at.as_ref() == key;
        std::hint::black_box(value.len());
    }
    Ok(found)
}
