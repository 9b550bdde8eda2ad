//! Replay of a trace: executes it line by line, in order, on one thread, and measures it.
//!
//! Operations are read ahead in batches, outside the timed part; memory is that of one batch,
//! whatever the size of the trace. Values given by their length are generated here. Lookup answers
//! in the trace are compared with those of the database.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use shamba::trace::{Line, Payload};
use shamba::{Db, Keyspace};

use crate::error::Error;
use crate::measure::CpuTimer;
use crate::ops::{Meter, nanos};
use crate::options::Options;
use crate::progress::Progress;
use crate::result::BenchResult;
use crate::totals::{Answers, Totals};
use crate::trace::TraceReader;
use crate::values::Values;
use crate::workload::Workload;

/// Maximum operations of a batch, and the number of bytes at which it ends early.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// One in this many lookup-only batches has a clock read per operation.
const CLOCKED_EVERY: u64 = 8;

/// Executes the trace of `options` on `db`.
///
/// # Errors
/// Errors of the trace or the engine.
pub(crate) fn replay(db: &Db, options: &Options, progress: &Progress) -> Result<BenchResult, Error> {
    let mut trace = options.trace()?;
    let bytes = options.trace.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len());
    db.wait_idle()?;
    let before = db.stats();
    progress.begin(bytes);
    let values = Values::new(0, options.seed);
    let mut meter = Meter::default();
    let mut replay = Replay::new(db, &values);
    let cpu = CpuTimer::process();
    let mut told = 0;
    replay.run(&mut trace, &mut meter, |done| {
        progress.add(done - told);
        told = done;
    })?;
    let cpu_ns = nanos(cpu.elapsed());
    let answers = replay.answers;
    let totals = Totals {
        ops: meter.ops,
        busy_ns: meter.busy_ns,
        // The mean is over all operations: only lookups go without individual clock reads, and a
        // trace has other operations.
        plain: (0, 0),
        seconds: meter.busy_ns as f64 / 1e9,
        debt_bytes: db.stats().debt_bytes,
        cpu_ns: cpu_ns.saturating_sub(meter.making_cpu_ns),
        lookups: meter.lookups,
        found: meter.found,
        expected: meter.expected,
        foreseeable: answers.checked == meter.lookups,
        latencies: meter.latencies,
        answers,
        idle_seconds: None,
    };
    Ok(BenchResult::new(Workload::Replay, db, &totals, &before))
}

/// Executes a trace without measuring it.
///
/// # Errors
/// Errors of the trace or the engine.
pub fn execute(db: &Db, trace: &mut TraceReader) -> Result<(), Error> {
    let values = Values::new(0, 0);
    Replay::new(db, &values).run(trace, &mut Meter::default(), |_| {})
}

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Put,
    Delete,
    /// Range deletes from the key up to the other key (exclusive), and from the key without an end.
    DeleteUpTo,
    DeleteFrom,
    /// Range delete from the key through the other key (inclusive).
    DeleteThrough,
    Get(Option<bool>),
    Scan,
    Next(u64),
    Previous(u64),
    /// Drops the keyspace named by the key; always the last operation of its batch.
    Drop,
}

struct Op {
    act: Act,
    /// Index of its keyspace.
    space: usize,
    key: Range<usize>,
    /// The value, or the other key.
    other: Range<usize>,
}

/// Executes traces.
pub(crate) struct Replay<'a> {
    db: &'a Db,
    values: &'a Values,
    /// Keyspaces by index; the first entry stands for the default one.
    spaces: Vec<Option<Keyspace>>,
    by_name: HashMap<String, usize>,
    /// Keyspace of the following lines; `None` after it was dropped, until a line names one.
    space: Option<usize>,
    arena: Vec<u8>,
    ops: Vec<Op>,
    scratch: Vec<u8>,
    made: u64,
    pub answers: Answers,
}

impl<'a> Replay<'a> {
    pub fn new(db: &'a Db, values: &'a Values) -> Self {
        Self {
            db,
            values,
            spaces: vec![None],
            by_name: HashMap::new(),
            space: Some(0),
            arena: Vec::new(),
            ops: Vec::new(),
            scratch: Vec::new(),
            made: 0,
            answers: Answers::default(),
        }
    }

    /// Executes all of `trace`; reports the bytes of it done after each batch. `stop` ends it
    /// early.
    ///
    /// # Errors
    /// Errors of the trace or the engine.
    pub fn run(
        &mut self,
        trace: &mut TraceReader,
        meter: &mut Meter,
        mut done: impl FnMut(u64),
    ) -> Result<(), Error> {
        let mut batches = 0u64;
        loop {
            meter.untimed(|| self.make(trace))?;
            done(trace.bytes_read());
            if self.ops.is_empty() {
                return Ok(());
            }
            let only_lookups = self.ops.iter().all(|op| matches!(op.act, Act::Get(_)));
            self.execute(meter, !only_lookups || batches.is_multiple_of(CLOCKED_EVERY))?;
            batches += 1;
        }
    }

    /// Reads the next batch.
    fn make(&mut self, trace: &mut TraceReader) -> Result<(), Error> {
        self.arena.clear();
        self.ops.clear();
        while self.ops.len() < BATCH_OPS && self.arena.len() < BATCH_BYTES {
            let Some(line) = trace.next_line()? else { break };
            if self.space.is_none() && line.is_operation() && !matches!(line, Line::Gone { .. }) {
                let reason = "its keyspace was dropped, and no later line K selects another";
                return Err(trace.wrong(reason).into());
            }
            let space = self.space.unwrap_or(0);
            let op = match line {
                Line::Insert { key, value } | Line::Update { key, value } => {
                    let key = keep(&mut self.arena, &key);
                    let value = match value {
                        Payload::Bytes(bytes) => keep(&mut self.arena, &bytes),
                        Payload::Length(bytes) => {
                            self.values.write_sized(bytes, self.made, &mut self.scratch);
                            keep(&mut self.arena, &self.scratch)
                        }
                    };
                    Op { act: Act::Put, space, key, other: value }
                }
                Line::Delete { key } => self.op(Act::Delete, &key, &[]),
                Line::DeleteThrough { from, to } => self.op(Act::DeleteThrough, &from, &to),
                Line::DeleteUpTo { from, to: Some(to) } => self.op(Act::DeleteUpTo, &from, &to),
                Line::DeleteUpTo { from, to: None } => self.op(Act::DeleteFrom, &from, &[]),
                Line::Get { key, found } => self.op(Act::Get(found), &key, &[]),
                Line::Scan { from, to } => self.op(Act::Scan, &from, &to),
                Line::Next { from, entries } => self.op(Act::Next(entries), &from, &[]),
                Line::Previous { from, entries } => self.op(Act::Previous(entries), &from, &[]),
                Line::Gone { name } => {
                    let number = self.by_name.get(&*name).copied();
                    self.space = self.space.filter(|space| Some(*space) != number);
                    self.op(Act::Drop, name.as_bytes(), &[])
                }
                Line::Keyspace { name } => {
                    self.space = Some(self.space_of(&name)?);
                    continue;
                }
                Line::Header { .. } | Line::End { .. } | Line::Comment => continue,
            };
            let is_drop = op.act == Act::Drop;
            self.ops.push(op);
            self.made += 1;
            if is_drop {
                // The next operation may create the keyspace again.
                break;
            }
        }
        Ok(())
    }

    fn op(&mut self, act: Act, key: &[u8], other: &[u8]) -> Op {
        let key = keep(&mut self.arena, key);
        Op { act, space: self.space.unwrap_or(0), key, other: keep(&mut self.arena, other) }
    }

    /// Index of the keyspace of this name, created if it is missing.
    fn space_of(&mut self, name: &str) -> Result<usize, Error> {
        if name == "default" {
            return Ok(0);
        }
        if let Some(&number) = self.by_name.get(name) {
            return Ok(number);
        }
        self.spaces.push(Some(self.db.keyspace(name)?));
        self.by_name.insert(name.to_owned(), self.spaces.len() - 1);
        Ok(self.spaces.len() - 1)
    }

    /// Drops the keyspace of this name, if it exists.
    fn drop_space(&mut self, name: &[u8]) -> Result<(), Error> {
        let name = String::from_utf8_lossy(name);
        if let Some(number) = self.by_name.remove(&*name) {
            self.spaces[number] = None;
        }
        if self.db.keyspaces().iter().any(|known| *known == name) {
            self.db.drop_keyspace(&name)?;
        }
        Ok(())
    }

    /// Executes the batch, with a clock read after each operation, or only before and after the
    /// batch.
    fn execute(&mut self, meter: &mut Meter, clocked: bool) -> Result<(), Error> {
        let begin = Instant::now();
        let mut last = begin;
        let ops = std::mem::take(&mut self.ops);
        let arena = std::mem::take(&mut self.arena);
        for op in &ops {
            let (key, other) = (&arena[op.key.clone()], &arena[op.other.clone()]);
            match (op.act, self.spaces.get(op.space).and_then(Option::as_ref)) {
                (Act::Drop, _) => self.drop_space(key)?,
                (Act::Get(told), space) => {
                    let found = match space {
                        Some(space) => space.get(key)?.is_some(),
                        None => self.db.get(key)?.is_some(),
                    };
                    meter.lookups += 1;
                    meter.found += u64::from(found);
                    meter.expected += u64::from(told == Some(true));
                    self.answers.checked += u64::from(told.is_some());
                    self.answers.wrong += u64::from(told.is_some_and(|told| told != found));
                }
                (act, Some(space)) => in_keyspace(space, act, key, other)?,
                (act, None) => in_default(self.db, act, key, other)?,
            }
            if clocked {
                let now = Instant::now();
                meter.record(nanos(now - last), 1);
                last = now;
            }
        }
        if !clocked {
            meter.record_plain(ops.len() as u64, nanos(begin.elapsed()));
        }
        self.ops = ops;
        self.arena = arena;
        Ok(())
    }
}

fn keep(arena: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = arena.len();
    arena.extend_from_slice(bytes);
    start..arena.len()
}

/// The database and its keyspaces have the same methods, but no common trait.
macro_rules! carry_out {
    ($name:ident, $place:ty) => {
        fn $name(place: &$place, act: Act, key: &[u8], other: &[u8]) -> Result<(), Error> {
            match act {
                Act::Put => place.put(key, other)?,
                Act::Delete => place.delete(key)?,
                Act::DeleteUpTo => place.delete_range(key..other)?,
                Act::DeleteFrom => place.delete_range(key..)?,
                Act::DeleteThrough => place.delete_range(key..=other)?,
                Act::Scan => walk(place.range(key..=other), u64::MAX)?,
                Act::Next(entries) => walk(place.range(key..), entries)?,
                Act::Previous(entries) => walk(place.range(..=key).rev(), entries)?,
                Act::Get(_) | Act::Drop => {}
            }
            Ok(())
        }
    };
}

carry_out!(in_default, Db);
carry_out!(in_keyspace, Keyspace);

/// Reads `count` entries. With 0, as recorded for a walk that read none, the position is still
/// sought.
fn walk(
    mut entries: impl Iterator<Item = shamba::Result<(shamba::Slice, shamba::Slice)>>,
    count: u64,
) -> Result<(), Error> {
    let mut bytes = 0;
    for _ in 0..count.max(1) {
        let Some(entry) = entries.next() else { break };
        let (key, value) = entry?;
        bytes += key.len() + value.len();
    }
    std::hint::black_box(bytes);
    Ok(())
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
