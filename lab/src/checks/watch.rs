//! Watching memory: what the system counts as resident beside what the engine's ledger counts.
//!
//! A thread looks every few milliseconds and keeps the most of each figure, so that a moment's
//! excess is seen as well as a lasting one. Resident bytes are those of the whole process, so a run
//! that is judged by them should have the process to itself.
//!
//! Not here: what the figures may be, which those say who watch ([`super::situations`],
//! [`super::overload`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use shamba::{Db, MemoryReport};

use shamba_workload::rss_bytes;

/// How often the watch looks: a look costs some 20 microseconds.
const EVERY: Duration = Duration::from_millis(5);

/// The most that was seen of each figure.
#[derive(Clone, Debug, Default)]
pub struct MemorySeen {
    /// Looks.
    pub samples: u64,
    /// Resident bytes of the process; 0 where the system does not tell.
    pub rss_bytes: u64,
    /// The most that the ledger's sum has been at any time since the database was opened.
    pub ledger_bytes: u64,
    /// The parts of the ledger at the look that found the most resident.
    pub parts: Vec<(String, u64)>,
    /// The ledger's sum at that look.
    pub ledger_at_rss_bytes: u64,
    /// The parts at the look that found the most in the ledger.
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

/// A thread that looks at a database's memory until it is asked what it saw.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<MemorySeen>,
    /// Resident bytes when the watch began.
    pub rss_before_bytes: u64,
}

impl MemoryWatch {
    /// Begins to watch.
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

    /// What was seen until now; ends the watch.
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
