//! Overload: writers ten times as fast as compactions can write, a thousand open iterators, scans
//! and point readers; checks memory, reads and writes.
//!
//! Every item exists from the start and is never removed, and a value states its item and version.
//! Each reader can therefore check its results: a point read must return a version that is not
//! older than the last one acknowledged before it; a scan must return every item in order, in
//! either direction.
//!
//! Requirements ([`Outcome::violations`]): the process stays within the budget and
//! [`BEYOND_BUDGET_BYTES`]; reads are correct and none waits long; writes slow down, then stall,
//! then fail by their deadline with `Stalled`; at the end all acknowledged writes are present, also
//! after a reopen.
//!
//! Not here: the memory watch ([`super::watch`]), the threads (`overload_parts.rs`), starting the
//! process. A run needs a process of its own, because its resident bytes are checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shamba::{Db, Error, Event, EventListener, Stats};

use crate::checks::overload_parts::{Items, Part, hold, iterate, read, scan, write};
use crate::checks::watch::{MemorySeen, MemoryWatch, parts_json};

/// Resident memory allowed beyond the budget: code, stacks, free memory kept by the allocator,
/// callers' memory.
pub const BEYOND_BUDGET_BYTES: u64 = 64 << 20;
/// A read that takes longer has been stalled.
const READ_LONGEST: Duration = Duration::from_secs(2);
/// Threads that write, that read, and that step iterators.
const WRITERS: u64 = 2;
const READERS: u64 = 2;
const STEPPERS: u64 = 2;
/// Number of iterators that are open all the time, per stepper; half of them wait.
const ITERATORS: usize = 1_000;
/// Merges may write this part of what writers have been seen to write.
const RATE_PART: u64 = 20;

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Its memory budget.
    pub budget_bytes: u64,
    /// How long the overload lasts.
    pub seconds: u64,
    /// Items that exist.
    pub items: u64,
    /// Seed of what is written, read and sought.
    pub seed: u64,
    /// Whether a read that waits long is a violation: not where the machine may be busy with other
    /// things.
    pub judges_times: bool,
}

/// Outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Options of the run.
    pub options: Options,
    /// Bytes a second that merges were allowed to write.
    pub rate_limit_bytes_per_s: u64,
    /// Bytes a second that writers wrote while nothing held them back.
    pub offered_bytes_per_s: u64,
    /// Work of writers, readers, scans and iterators.
    pub writing: Part,
    /// Point readers.
    pub reading: Part,
    /// Whole scans.
    pub scanning: Part,
    /// Steps of iterators.
    pub stepping: Part,
    /// Number of slowdowns of writers.
    pub slowed: u64,
    /// Number of stalls of writers, including those for a flush.
    pub waited: u64,
    /// Number of stalls of writers on level 0, which only compactions reduce.
    pub stalled: u64,
    /// Milliseconds from the start to the first slowdown, to the first stall on level 0, and to the
    /// first failure.
    pub first_ms: [Option<u64>; 3],
    /// Resident bytes before the overload began.
    pub rss_before_bytes: u64,
    /// Memory during the overload.
    pub memory: MemorySeen,
    /// The engine's counters at the end.
    pub stats: Stats,
    /// Violations.
    pub violations: Vec<String>,
}

/// Counts stalls, and records when the first on level 0 began: those for a flush are short.
#[derive(Debug)]
struct Stalls {
    start: Instant,
    count: AtomicU64,
    of_level_0: AtomicU64,
    first_ms: AtomicU64,
}

impl EventListener for Stalls {
    fn event(&self, event: &Event) {
        let Event::StallBegin { reason } = event else { return };
        self.count.fetch_add(1, Ordering::Relaxed);
        if reason.contains("level 0") {
            self.of_level_0.fetch_add(1, Ordering::Relaxed);
            self.first_ms.fetch_min(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    }
}

/// Runs it.
///
/// # Errors
/// A failure to run it; violations are in the outcome.
pub fn run(options: Options) -> Result<Outcome, String> {
    let said = |error: Error| error.chain().to_string();
    let items = Arc::new(Items::new(options.items, options.seed));
    let builder = || Db::builder(&options.dir).memory_budget(options.budget_bytes);
    // A write buffer with which level 0 fills quickly, for any budget.
    let write_buffer_bytes = (options.budget_bytes / 16).clamp(1 << 20, 32 << 20);
    let db = builder().write_buffer(write_buffer_bytes).open().map_err(said)?;
    let offered_bytes_per_s = items.fill(&db).map_err(said)?;
    db.close().map_err(said)?;
    let rate_limit_bytes_per_s = (offered_bytes_per_s / RATE_PART).clamp(64 << 10, 64 << 20);
    let start = Instant::now();
    let stalls = Arc::new(Stalls {
        start,
        count: AtomicU64::new(0),
        of_level_0: AtomicU64::new(0),
        first_ms: AtomicU64::new(u64::MAX),
    });
    let listener = Arc::clone(&stalls) as Arc<dyn EventListener>;
    let limited =
        builder().experimental(|e| e.rate_limit_bytes_per_s(rate_limit_bytes_per_s)).event_listener(listener);
    let db = limited.open().map_err(said)?;

    let watch = MemoryWatch::begin(&db);
    let rss_before_bytes = watch.rss_before_bytes;
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |number: u64, part: fn(&Db, &Items, u64, &AtomicBool) -> Part| {
        let (db, items, stop) = (db.clone(), Arc::clone(&items), Arc::clone(&stop));
        std::thread::spawn(move || part(&db, &items, number, &stop))
    };
    let idle = hold(&db, &items, ITERATORS / 2);
    let writers: Vec<_> = (0..WRITERS).map(|number| spawn(number, write)).collect();
    let readers: Vec<_> = (0..READERS).map(|number| spawn(number, read)).collect();
    let scanners = vec![spawn(0, scan)];
    let steppers: Vec<_> = (0..STEPPERS).map(|number| spawn(number, iterate)).collect();
    let end = start + Duration::from_secs(options.seconds);
    let mut first_slowed_ms = None;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
        // The first slowdown precedes the first stall, so one sample distinguishes them.
        if first_slowed_ms.is_none() && db.stats().stalls > stalls.count.load(Ordering::Relaxed) {
            first_slowed_ms = Some(start.elapsed().as_millis() as u64);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let gather = |threads: Vec<std::thread::JoinHandle<Part>>| {
        let died = |_| Part::failed("a thread panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).fold(Part::default(), Part::and)
    };
    let (writing, reading) = (gather(writers), gather(readers));
    let (scanning, stepping) = (gather(scanners), gather(steppers).and(idle.finish(&items)));
    let stats = db.stats();
    let last = items.check_all(&db);
    let memory = watch.end();
    db.close().map_err(said)?;
    let db = builder().experimental(|e| e.rate_limit_bytes_per_s(0)).open().map_err(said)?;
    let reopened = items.check_all(&db);
    db.close().map_err(said)?;

    let [waited, stalled] = [&stalls.count, &stalls.of_level_0].map(|count| count.load(Ordering::Relaxed));
    let first_stalled_ms = Some(stalls.first_ms.load(Ordering::Relaxed)).filter(|ms| *ms < u64::MAX);
    let first_ms = [first_slowed_ms, first_stalled_ms, writing.first_failure_ms(start)];
    let mut outcome = Outcome {
        rate_limit_bytes_per_s,
        offered_bytes_per_s,
        writing,
        reading,
        scanning,
        stepping,
        slowed: stats.stalls.saturating_sub(waited),
        waited,
        stalled,
        first_ms,
        rss_before_bytes,
        memory,
        stats,
        violations: Vec::new(),
        options,
    };
    outcome.violations = outcome.judged();
    outcome.violations.extend(last.err().map(|error| format!("at the end: {error}")));
    outcome.violations.extend(reopened.err().map(|error| format!("after the reopen: {error}")));
    Ok(outcome)
}

impl Outcome {
    /// Maximum of resident bytes beyond the budget.
    pub fn rss_beyond_bytes(&self) -> u64 {
        self.memory.rss_bytes.saturating_sub(self.options.budget_bytes)
    }

    /// Maximum of the ledger beyond the budget.
    pub fn ledger_beyond_bytes(&self) -> u64 {
        self.memory.ledger_bytes.saturating_sub(self.options.budget_bytes)
    }

    fn judged(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let parts = [&self.writing, &self.reading, &self.scanning, &self.stepping];
        wrong.extend(parts.iter().flat_map(|part| part.wrong.iter().cloned()));
        let mut expect = |holds: bool, what: String| {
            if !holds {
                wrong.push(what);
            }
        };
        let beyond_bytes = self.rss_beyond_bytes();
        expect(
            beyond_bytes < BEYOND_BUDGET_BYTES,
            format!("{beyond_bytes} bytes were resident beyond the budget"),
        );
        let ledger_bytes = self.ledger_beyond_bytes();
        expect(ledger_bytes == 0, format!("the ledger was {ledger_bytes} bytes beyond the budget"));
        for (part, name) in parts.iter().zip(["writes", "reads", "scans", "steps"]) {
            expect(part.done > 0, format!("there were no {name}"));
        }
        expect(self.slowed > 0, "no write was slowed".to_owned());
        expect(self.stalled > 0, "no write waited for level 0".to_owned());
        expect(self.writing.failed > 0, "no write failed by its deadline".to_owned());
        if let [Some(slowed), Some(stalled), _] = self.first_ms {
            // A sample every few milliseconds detects the slowdowns.
            let what = format!(
                "writes stalled on level 0 after {stalled} ms, before the first slowdown after {slowed} ms"
            );
            expect(slowed <= stalled + 50, what);
        }
        if self.options.judges_times {
            for (part, name) in [(&self.reading, "read"), (&self.stepping, "step")] {
                let longest = Duration::from_nanos(part.longest_ns);
                expect(longest < READ_LONGEST, format!("a {name} took {longest:?}"));
            }
        }
        wrong
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        let quoted = |text: &String| format!("\"{}\"", text.replace('\\', "/").replace('"', "'"));
        let ms = |ms: Option<u64>| ms.map_or("null".to_owned(), |ms| ms.to_string());
        let [slowed_ms, stalled_ms, failed_ms] = self.first_ms.map(ms);
        let part = |part: &Part| {
            format!(
                "{{\"done\":{},\"failed\":{},\"longest_us\":{},\"mean_us\":{:.1}}}",
                part.done,
                part.failed,
                part.longest_ns / 1_000,
                part.busy_ns as f64 / 1e3 / part.done.max(1) as f64
            )
        };
        let violations: Vec<String> = self.violations.iter().map(quoted).collect();
        let Options { budget_bytes, seconds, items, seed, .. } = &self.options;
        let MemorySeen { rss_bytes, ledger_bytes, samples, .. } = &self.memory;
        format!(
            "{{\"schema\":\"overload/1\",\"budget_bytes\":{budget_bytes},\"seconds\":{seconds},\"items\":{items},\
             \"seed\":{seed},\"offered_bytes_per_s\":{},\"rate_limit_bytes_per_s\":{},\"writes\":{},\"reads\":{},\
             \"scans\":{},\"steps\":{},\"iterators\":{ITERATORS},\"iterators_revoked\":{},\"slowed\":{},\
             \"waited\":{},\"stalled\":{},\"first_slowed_ms\":{slowed_ms},\"first_stalled_ms\":{stalled_ms},\
             \"first_failed_ms\":{failed_ms},\"samples\":{samples},\"rss_before_bytes\":{},\
             \"rss_bytes\":{rss_bytes},\"rss_beyond_bytes\":{},\"ledger_bytes\":{ledger_bytes},\
             \"ledger_beyond_bytes\":{},\"parts\":{},\"parts_at_most\":{},\"runs\":{},\"violations\":[{}]}}",
            self.offered_bytes_per_s,
            self.rate_limit_bytes_per_s,
            part(&self.writing),
            part(&self.reading),
            part(&self.scanning),
            part(&self.stepping),
            self.stats.iterators_revoked,
            self.slowed,
            self.waited,
            self.stalled,
            self.rss_before_bytes,
            self.rss_beyond_bytes(),
            self.ledger_beyond_bytes(),
            parts_json(&self.memory.parts),
            parts_json(&self.memory.parts_at_most),
            self.stats.runs,
            violations.join(",")
        )
    }
}
