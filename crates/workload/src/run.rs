//! Run of one workload: threads, their operations, and the sum of their measurements.
//!
//! Not here: the execution of operations ([`crate::ops`]), the meaning of the figures
//! ([`crate::result`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use shamba::Db;

use crate::dist::{Distribution, Picker};
use crate::error::Error;
use crate::keys::{KeyShape, Keys};
use crate::measure::CpuTimer;
use crate::mix::mix2;
use crate::ops::{Batches, Meter, Request, Verb};
use crate::options::Options;
use crate::permute::Permutation;
use crate::progress::Progress;
use crate::replay::replay;
use crate::result::BenchResult;
use crate::scans::Scans;
use crate::sorted::sorted_items;
use crate::totals::Totals;
use crate::values::Values;
use crate::workload::Workload;

/// Entries per clock read of a walk: a single step is too short to time.
const STEPS_TIMED_TOGETHER: u64 = 64;
/// One in this many batches of short operations has a clock read per operation.
const CLOCKED_EVERY: u64 = 8;
/// Entries in the queue of [`Workload::Queue`].
const QUEUE_LENGTH: u64 = 1000;
/// Number of times per run that the consumer of the queue restarts. It then searches the head from
/// the front, over the tombstones of all entries taken before.
const QUEUE_RESTARTS: u64 = 100;

/// Runs `workload` on `db`.
///
/// # Errors
/// [`Error::Options`] for invalid options, before any operation; [`Error::Engine`] as soon as one
/// operation fails.
pub fn run(
    db: &Db,
    workload: Workload,
    options: &Options,
    progress: &Progress,
) -> Result<BenchResult, Error> {
    if workload == Workload::Replay {
        return replay(db, options, progress);
    }
    let job = Job::new(db, workload, options, progress)?;
    if workload.reads() {
        db.wait_idle()?;
    }
    let before = db.stats();
    let begin = Instant::now();
    let mut totals = job.run_threads()?;
    totals.debt_bytes = db.stats().debt_bytes;
    if workload.is_fill() {
        // A fill ends when its flushes and compactions are complete: both times are reported.
        let cpu = CpuTimer::process();
        db.flush()?;
        db.wait_idle()?;
        totals.idle_seconds = Some(begin.elapsed().as_secs_f64());
        totals.cpu_ns += u64::try_from(cpu.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
    Ok(BenchResult::new(workload, db, &totals, &before))
}

struct Job<'a> {
    db: &'a Db,
    workload: Workload,
    options: &'a Options,
    progress: &'a Progress,
    keys: Keys,
    values: Values,
    ops: u64,
    /// Items in the order of a fill, where that differs from their numbers.
    order: Option<Vec<u64>>,
    /// Number of the next inserted item.
    next_item: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Job<'a> {
    fn new(
        db: &'a Db,
        workload: Workload,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Result<Self, Error> {
        let keys = options.keys(workload)?;
        let sort = workload == Workload::FillSeq && options.key_shape != KeyShape::Sequential;
        Ok(Self {
            db,
            workload,
            options,
            progress,
            keys,
            values: Values::new(options.value_size, options.seed),
            ops: options.ops(workload),
            order: sort.then(|| sorted_items(&keys, options.num)),
            next_item: AtomicU64::new(options.num),
            stop: AtomicBool::new(false),
        })
    }

    fn run_threads(&self) -> Result<Totals, Error> {
        self.progress.begin(self.ops);
        let threads = u64::from(self.options.threads);
        let cpu = CpuTimer::process();
        let (meters, writer_cpu_ns) = std::thread::scope(|scope| {
            let writer = (self.workload == Workload::ReadWhileWriting)
                .then(|| scope.spawn(|| self.write_until_stopped()));
            let workers: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || self.run_thread(thread))).collect();
            let meters: Vec<_> = workers.into_iter().map(join).collect();
            self.stop.store(true, Ordering::Relaxed);
            (meters, writer.map(join))
        });
        let cpu_ns = u64::try_from(cpu.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut making_cpu_ns = writer_cpu_ns.transpose()?.unwrap_or(0);
        // With several threads, a reader may look for an item before another thread inserts it.
        let foreseeable = threads == 1 || !matches!(self.workload, Workload::YcsbD | Workload::YcsbE);
        let mut totals = Totals { foreseeable, ..Totals::default() };
        for meter in meters {
            let meter = meter?;
            totals.latencies.merge(&meter.latencies);
            totals.ops += meter.ops;
            totals.busy_ns += meter.busy_ns;
            totals.plain.0 += meter.plain.0;
            totals.plain.1 += meter.plain.1;
            totals.seconds = totals.seconds.max(meter.busy_ns as f64 / 1e9);
            totals.lookups += meter.lookups;
            totals.found += meter.found;
            totals.expected += meter.expected;
            making_cpu_ns += meter.making_cpu_ns;
        }
        totals.cpu_ns = cpu_ns.saturating_sub(making_cpu_ns);
        Ok(totals)
    }

    fn run_thread(&self, thread: u64) -> Result<Meter, Error> {
        let mut meter = Meter::default();
        let result = match self.workload {
            Workload::ReadSeq | Workload::ReadReverse => self.walk(thread, &mut meter),
            Workload::Queue => self.queue(thread, &mut meter),
            Workload::SeekAfterPuts | Workload::ScanDeletedRange | Workload::ScanDeletedKeys => {
                self.scan(thread, &mut meter)
            }
            _ => self.batches(thread, &mut meter),
        };
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result.map(|()| meter)
    }

    /// This thread's part of `0..ops`.
    fn share(&self, thread: u64) -> std::ops::Range<u64> {
        let threads = u128::from(self.options.threads);
        let bound = |thread: u64| (u128::from(self.ops) * u128::from(thread) / threads) as u64;
        bound(thread)..bound(thread + 1)
    }

    fn batches(&self, thread: u64, meter: &mut Meter) -> Result<(), Error> {
        let mut batches = Batches::new(self.db, self.keys, &self.values);
        if self.workload.is_multi() {
            batches = batches.in_calls_of(self.options.multi_get as usize);
        }
        let mut requests = Requests::new(self, thread);
        let mut left = self.share(thread);
        let mut number = 0u64;
        loop {
            let made = batches.make(meter, || left.next().map(|number| requests.at(number)));
            if made == 0 || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let clocked = !self.workload.is_short() || number.is_multiple_of(CLOCKED_EVERY);
            number += 1;
            if self.workload.is_multi() {
                batches.execute_multi(meter, clocked)?;
            } else if clocked {
                batches.execute(meter)?;
            } else {
                batches.execute_plain(meter)?;
            }
            self.progress.add(made);
        }
    }

    /// Overwrites until the readers are done; returns the CPU time of preparing operations.
    fn write_until_stopped(&self) -> Result<u64, Error> {
        let mut meter = Meter::default();
        let mut batches = Batches::new(self.db, self.keys, &self.values);
        let mut picker = self.picker(u64::MAX, self.options.distribution);
        while !self.stop.load(Ordering::Relaxed) {
            batches.make(&mut meter, || {
                Some(Request { verb: Verb::Put, item: picker.pick(self.options.num), absent: false })
            });
            batches.execute(&mut meter)?;
        }
        Ok(meter.making_cpu_ns)
    }

    fn walk(&self, thread: u64, meter: &mut Meter) -> Result<(), Error> {
        let share = self.share(thread);
        let mut left = share.end - share.start;
        let mut last = Instant::now();
        let mut iter = self.db.iter();
        let backward = self.workload == Workload::ReadReverse;
        while left > 0 && !self.stop.load(Ordering::Relaxed) {
            let mut steps = 0;
            let mut bytes = 0;
            while steps < STEPS_TIMED_TOGETHER.min(left) {
                let Some(entry) = (if backward { iter.next_back() } else { iter.next() }) else { break };
                let (key, value) = entry?;
                bytes += key.len() + value.len();
                steps += 1;
            }
            std::hint::black_box(bytes);
            let now = Instant::now();
            meter.record(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX), steps);
            last = now;
            meter.lookups += steps;
            meter.found += steps;
            meter.expected += steps;
            self.progress.add(steps);
            if steps == 0 {
                break;
            }
            left -= steps;
        }
        Ok(())
    }

    /// Each thread has its own queue. An operation is a put or a take; a take must find the head.
    /// The consumer continues after the last entry that it took, like consumers optimized for
    /// speed.
    fn queue(&self, thread: u64, meter: &mut Meter) -> Result<(), Error> {
        let share = self.share(thread);
        let prefix = format!("q{thread:03}:");
        let width = self.keys.size() - prefix.len();
        let key = |number: u64| format!("{prefix}{number:0width$}").into_bytes();
        let mut value = Vec::new();
        let count = share.end - share.start;
        let restart_every = (count / QUEUE_RESTARTS).max(1);
        // `;` follows `:` in byte order, so the queue's keys end here.
        let end = format!("q{thread:03};").into_bytes();
        let mut from = prefix.clone().into_bytes();
        for number in 0..count + QUEUE_LENGTH.min(count) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if number < count {
                let tail = key(number);
                self.values.write(number, &mut value);
                let start = Instant::now();
                self.db.put(&tail, &value)?;
                meter.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), 1);
                self.progress.add(1);
            }
            if let Some(oldest) = number.checked_sub(QUEUE_LENGTH.min(count)) {
                let head = key(oldest);
                if oldest % restart_every == 0 {
                    from = prefix.clone().into_bytes();
                }
                let start = Instant::now();
                let first = self.db.range(&from[..]..&end[..]).next().transpose()?;
                if let Some((taken, _)) = &first {
                    self.db.delete(taken)?;
                    from = taken.to_vec();
                }
                meter.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), 1);
                meter.lookups += 1;
                meter.expected += 1;
                meter.found += u64::from(first.is_some_and(|(taken, _)| taken.as_ref() == head.as_slice()));
            }
        }
        Ok(())
    }

    fn scan(&self, thread: u64, meter: &mut Meter) -> Result<(), Error> {
        let Self { db, keys, values, stop, progress, .. } = self;
        let scans = Scans { db, keys: *keys, values, stop, progress };
        let share = self.share(thread);
        let count = share.end - share.start;
        match self.workload {
            Workload::SeekAfterPuts => {
                let mut picker = self.picker(thread, self.options.distribution);
                scans.seek_after_puts(count, || picker.pick(self.options.num), meter)?;
            }
            workload => {
                let by_range = workload == Workload::ScanDeletedRange;
                scans.scan_deleted(self.options.num, by_range, count, meter)?;
            }
        }
        Ok(())
    }

    fn picker(&self, thread: u64, distribution: Distribution) -> Picker {
        let Options { num, seed, turn, .. } = *self.options;
        Picker::new(distribution, num, mix2(mix2(seed, turn), thread), seed)
    }
}

fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The requests of one thread.
struct Requests<'a> {
    job: &'a Job<'a>,
    order: Permutation,
    picker: Picker,
}

impl<'a> Requests<'a> {
    fn new(job: &'a Job<'a>, thread: u64) -> Self {
        let distribution = match job.workload {
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbE | Workload::YcsbF => {
                Distribution::Zipf
            }
            Workload::YcsbD => Distribution::Latest,
            _ => job.options.distribution,
        };
        let order = Permutation::new(job.options.num, job.options.seed);
        Self { job, order, picker: job.picker(thread, distribution) }
    }

    fn at(&mut self, number: u64) -> Request {
        let existing = |verb, item| Request { verb, item, absent: false };
        match self.job.workload {
            Workload::FillSeq => {
                let sorted = self.job.order.as_ref().and_then(|order| order.get(number as usize).copied());
                existing(Verb::Put, sorted.unwrap_or(number))
            }
            Workload::FillRandom => existing(Verb::Put, self.order.at(number)),
            Workload::Overwrite => existing(Verb::Put, self.pick()),
            Workload::DeleteRandom => existing(Verb::Delete, self.pick()),
            Workload::ReadMissing | Workload::MultiReadMissing => {
                Request { verb: Verb::Get, item: self.pick(), absent: true }
            }
            Workload::SeekRandom => self.read(Verb::Seek(self.job.options.seek_nexts)),
            Workload::ReadRandom | Workload::MultiReadRandom | Workload::ReadWhileWriting => {
                self.read(Verb::Get)
            }
            Workload::YcsbA => self.either(0.5, Verb::Get, Verb::Put),
            Workload::YcsbB => self.either(0.95, Verb::Get, Verb::Put),
            Workload::YcsbC => existing(Verb::Get, self.pick()),
            Workload::YcsbD => self.or_insert(0.95, Verb::Get),
            Workload::YcsbE => {
                let entries = self.picker.rng().u32(1..=100);
                self.or_insert(0.95, Verb::Scan(entries))
            }
            Workload::YcsbF => self.either(0.5, Verb::Get, Verb::Update),
            Workload::ReadSeq
            | Workload::ReadReverse
            | Workload::Queue
            | Workload::SeekAfterPuts
            | Workload::ScanDeletedRange
            | Workload::ScanDeletedKeys
            | Workload::Replay => unreachable!("they have their own loops"),
        }
    }

    fn pick(&mut self) -> u64 {
        self.picker.pick(self.job.next_item.load(Ordering::Relaxed))
    }

    fn read(&mut self, verb: Verb) -> Request {
        let item = self.pick();
        Request { verb, item, absent: self.picker.rng().f64() < self.job.options.empty_fraction }
    }

    fn either(&mut self, share: f64, first: Verb, second: Verb) -> Request {
        let verb = if self.picker.rng().f64() < share { first } else { second };
        Request { verb, item: self.pick(), absent: false }
    }

    fn or_insert(&mut self, share: f64, verb: Verb) -> Request {
        if self.picker.rng().f64() < share {
            return Request { verb, item: self.pick(), absent: false };
        }
        let item = self.job.next_item.fetch_add(1, Ordering::Relaxed);
        Request { verb: Verb::Put, item, absent: false }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
