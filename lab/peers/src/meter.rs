//! Executes requests in batches and measures them.
//!
//! Keys, values and right answers are made outside the timed part, some hundred operations at a
//! time. A clock read costs a good part of a short lookup, so of operations that read only one
//! batch in eight has a clock around each: percentiles come from those, the mean from the others.
//! Every answer is compared inside the timed part, by which an engine has to bring the bytes; and
//! every answer goes into a digest, by which engines are compared with each other.

use std::ops::Range;
use std::time::Instant;

use shamba_workload::{CpuTimer, Latencies};

use crate::book::Book;
use crate::peer::{Peer, Read, Result};
use crate::workload::{Request, Requests, Verb, Workload};

/// Operations of a batch, and bytes at which it ends early.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// One batch in this many is timed, in workloads that do not only write: the last one, because the
/// first finds the CPU caches cold.
const CLOCKED_EVERY: u64 = 8;
/// Entries of a walk between two clocks.
const WALK_ENTRIES: u64 = 1024;

/// Measurements.
#[derive(Default)]
pub struct Tally {
    pub latencies: Latencies,
    /// Times in `latencies` that were measured by themselves.
    pub samples: u64,
    pub ops: u64,
    pub busy_ns: u64,
    /// Operations without a clock of their own, and their time.
    plain: (u64, u64),
    /// CPU time of making requests.
    pub making_cpu_ns: u64,
    pub user_bytes: u64,
    pub answers: u64,
    wrong: u64,
    first_wrong: Option<String>,
}

impl Tally {
    /// Mean nanoseconds of an operation.
    pub fn ns_per_op(&self) -> f64 {
        let (ops, ns) = if self.plain.0 > 0 { self.plain } else { (self.ops, self.busy_ns) };
        ns as f64 / ops.max(1) as f64
    }

    fn count(&mut self, ops: u64, ns: u64, is_clocked: bool) {
        self.ops += ops;
        self.busy_ns += ns;
        if !is_clocked {
            self.plain.0 += ops;
            self.plain.1 += ns;
        }
    }

    #[inline]
    fn answer(&mut self, bytes: &[u8]) {
        let mut head = [0; 8];
        let taken = bytes.len().min(8);
        head[..taken].copy_from_slice(&bytes[..taken]);
        let word = u64::from_le_bytes(head) ^ (bytes.len() as u64) << 56;
        self.answers = (self.answers ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    #[cold]
    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(what);
    }

    /// Nothing, unless an answer was wrong.
    fn verdict(&self) -> Result<()> {
        self.first_wrong
            .as_ref()
            .map_or(Ok(()), |first| Err(format!("{} wrong answers, the first: {first}", self.wrong)))
    }
}

struct Op {
    request: Request,
    key: Range<usize>,
    /// The value of a put, or the expected value of a get.
    value: Range<usize>,
}

/// Makes and executes one workload's batches.
struct Batches<'a> {
    book: &'a mut Book,
    ops: Vec<Op>,
    arena: Vec<u8>,
    scratch: Vec<u8>,
}

impl Batches<'_> {
    fn make(&mut self, most: usize, mut next: impl FnMut() -> Option<Request>) {
        self.ops.clear();
        self.arena.clear();
        while self.ops.len() < most && self.arena.len() < BATCH_BYTES.max(most * 1024) {
            let Some(request) = next() else { break };
            if request.is_absent {
                self.book.absent_key(request.item, &mut self.scratch);
            } else {
                self.book.key(request.item, &mut self.scratch);
            }
            let key = self.keep();
            match request.verb {
                Verb::Put | Verb::SyncPut => self.book.next_value(request.item, &mut self.scratch),
                Verb::Get | Verb::Scan(_) => self.book.value(request.item, &mut self.scratch),
            }
            let value = self.keep();
            self.ops.push(Op { request, key, value });
        }
    }

    fn keep(&mut self) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(&self.scratch);
        start..self.arena.len()
    }

    fn bytes(&self, op: &Op) -> (&[u8], &[u8]) {
        (&self.arena[op.key.clone()], &self.arena[op.value.clone()])
    }

    #[inline]
    fn execute<P: Peer, V: Read>(&self, peer: &P, view: &V, op: &Op, tally: &mut Tally) -> Result<()> {
        let (key, value) = self.bytes(op);
        match op.request.verb {
            Verb::Put | Verb::SyncPut => {
                tally.user_bytes += (key.len() + value.len()) as u64;
                peer.put(key, value, op.request.verb == Verb::SyncPut)
            }
            Verb::Get => {
                let wanted = (!op.request.is_absent).then_some(value);
                view.get(key, |found| {
                    tally.answer(found.unwrap_or_default());
                    if found != wanted {
                        tally.wrong(|| {
                            format!(
                                "get of item {}: {}, not {}",
                                op.request.item,
                                brief(found),
                                brief(wanted)
                            )
                        });
                    }
                })
            }
            Verb::Scan(entries) => {
                let mut place = 0;
                view.scan(key, entries, |at, found| {
                    if place == 0 && (at, found) != (key, value) {
                        tally.wrong(|| {
                            let begin = (brief(Some(at)), brief(Some(found)));
                            format!("scan from item {}: begins with {begin:?}", op.request.item)
                        });
                    }
                    tally.answer(at);
                    tally.answer(found);
                    place += 1;
                })?;
                if place == 0 {
                    tally.wrong(|| format!("scan from item {}: nothing", op.request.item));
                }
                Ok(())
            }
        }
    }

    fn run<P: Peer, V: Read>(&self, peer: &P, view: &V, is_clocked: bool, tally: &mut Tally) -> Result<()> {
        let begin = Instant::now();
        let mut last = begin;
        for op in &self.ops {
            self.execute(peer, view, op, tally)?;
            if is_clocked {
                let now = Instant::now();
                tally.latencies.record(nanos(now - last));
                tally.samples += 1;
                last = now;
            }
        }
        tally.count(self.ops.len() as u64, nanos(begin.elapsed()), is_clocked);
        Ok(())
    }

    /// A fill in transactions of many puts: their time is shared out.
    fn fill<P: Peer>(&self, peer: &P, tally: &mut Tally) -> Result<()> {
        let begin = Instant::now();
        peer.fill(self.ops.iter().map(|op| self.bytes(op)))?;
        let ns = nanos(begin.elapsed());
        let count = self.ops.len() as u64;
        (0..count).for_each(|_| tally.latencies.record(ns / count));
        tally.samples += 1;
        tally.user_bytes += self.arena.len() as u64;
        tally.count(count, ns, true);
        Ok(())
    }
}

/// The beginning of a value.
fn brief(value: Option<&[u8]>) -> String {
    value.map_or_else(
        || "nothing".to_owned(),
        |value| format!("{} bytes {:02x?}", value.len(), &value[..value.len().min(16)]),
    )
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Executes `ops` requests of a workload, those that put by `peer` and those that read by `view`.
///
/// # Errors
/// Errors of the engine, or the first wrong answer.
pub fn drive<P: Peer, V: Read>(
    peer: &P,
    view: &V,
    book: &mut Book,
    workload: Workload,
    ops: u64,
    seed: u64,
    order: Option<&[u32]>,
) -> Result<Tally> {
    let mut requests = Requests::new(workload, book.items(), seed);
    let in_transactions = workload.is_fill() && P::FILL_TRANSACTION > 1;
    let most = if in_transactions { P::FILL_TRANSACTION } else { BATCH_OPS };
    let mut batches = Batches { book, ops: Vec::new(), arena: Vec::new(), scratch: Vec::new() };
    let mut tally = Tally::default();
    let (mut number, mut batch) = (0, 0);
    while number < ops {
        let making = CpuTimer::thread();
        batches.make(most, || {
            (number < ops).then(|| {
                let mut request = requests.at(number);
                if let Some(item) = order.and_then(|order| order.get(number as usize)) {
                    request.item = u64::from(*item);
                }
                number += 1;
                request
            })
        });
        tally.making_cpu_ns += nanos(making.elapsed());
        let is_clocked = workload.only_writes() || batch % CLOCKED_EVERY == CLOCKED_EVERY - 1;
        if in_transactions {
            batches.fill(peer, &mut tally)?;
        } else {
            batches.run(peer, view, is_clocked, &mut tally)?;
        }
        batch += 1;
    }
    tally.verdict()?;
    Ok(tally)
}

/// Walks over everything, and counts it.
///
/// # Errors
/// Errors of the engine, or a number of entries other than `items`.
pub fn walk<V: Read>(view: &V, items: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    let begin = Instant::now();
    let (mut last, mut entries) = (begin, 0u64);
    view.scan(b"", u64::MAX >> 1, |key, value| {
        tally.answer(key);
        tally.answer(value);
        entries += 1;
        if entries % WALK_ENTRIES == 0 {
            let now = Instant::now();
            tally.latencies.record(nanos(now - last) / WALK_ENTRIES);
            last = now;
        }
    })?;
    tally.count(entries, nanos(begin.elapsed()), true);
    if entries != items {
        tally.wrong(|| format!("a walk found {entries} entries, not {items}"));
    }
    tally.verdict()?;
    Ok(tally)
}
