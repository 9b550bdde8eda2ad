//! Memory watch: resident memory that the system reports, and the engine's ledger.
//!
//! A thread samples both every few milliseconds and keeps the maxima, so that a short excess is
//! seen as well as a lasting one. Resident bytes are those of the whole process, so a checked run
//! needs a process of its own.
//!
//! Not here: limits of the figures ([`super::situations`], [`super::overload`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use shamba::{Db, MemoryReport};

use shamba_workload::rss_bytes;

/// Interval of samples; one takes some 20 microseconds.
const EVERY: Duration = Duration::from_millis(5);

/// Maximum of each figure.
#[derive(Clone, Debug, Default)]
pub struct MemorySeen {
    /// Number of samples.
    pub samples: u64,
    /// Resident bytes of the process; 0 if the system does not report them.
    pub rss_bytes: u64,
    /// Maximum of the ledger's sum since the database was opened.
    pub ledger_bytes: u64,
    /// Parts of the ledger at the sample with the most resident bytes.
    pub parts: Vec<(String, u64)>,
    /// The ledger's sum at that sample.
    pub ledger_at_rss_bytes: u64,
    /// Parts of the ledger at the sample with the highest sum.
    pub parts_at_most: Vec<(String, u64)>,
    at_most_bytes: u64,
}

impl MemorySeen {
    fn look(&mut self, report: &MemoryReport) {
        self.samples += 1;
        self.ledger_bytes = self.ledger_bytes.max(report.peak_bytes);
        if report.ledger_bytes >= self.at_most_bytes {
            self.at_most_bytes = report.ledger_bytes;
            self.parts_at_most.clone_from(&report.parts);
        }
        let rss_bytes = report.rss_bytes.unwrap_or(0);
        if rss_bytes >= self.rss_bytes {
            self.rss_bytes = rss_bytes;
            self.ledger_at_rss_bytes = report.ledger_bytes;
            self.parts.clone_from(&report.parts);
        }
    }
}

/// A thread that samples a database's memory until the watch ends.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<MemorySeen>,
    /// Resident bytes when the watch began.
    pub rss_before_bytes: u64,
}

impl MemoryWatch {
    /// Begins the watch.
    pub fn begin(db: &Db) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, stopped) = (db.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut seen = MemorySeen::default();
            while !stopped.load(Ordering::Relaxed) {
                seen.look(&watched.memory());
                std::thread::sleep(EVERY);
            }
            seen.look(&watched.memory());
            seen
        });
        Self { stop, thread, rss_before_bytes: rss_bytes().unwrap_or(0) }
    }

    /// Ends the watch and returns the maxima.
    pub fn end(self) -> MemorySeen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Parts of the ledger as a JSON object.
pub(crate) fn parts_json(parts: &[(String, u64)]) -> String {
    let fields: Vec<String> =
        parts.iter().map(|(name, bytes)| format!("\"{}\":{bytes}", name.replace(' ', "_"))).collect();
    format!("{{{}}}", fields.join(","))
}
