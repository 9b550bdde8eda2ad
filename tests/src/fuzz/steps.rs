//! A limit on the work that a hostile database causes: calls to the file system, entries of a scan
//! and changes of a stream.
//!
//! The limits are in proportion to the bytes of the database. The call beyond its limit panics, so
//! that a loop which would never end is a finding instead of a hang. A loop without calls, entries
//! or changes is not noticed here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{Clock, Effect, Env, FaultFs, FaultRule};

use crate::files::{Files, disk_of};

/// Calls that a database of no size may cause: opens, checks and a repair of empty files.
const CALLS_BASE: u64 = 1_000;
/// Further calls for each KiB of the database. At most a third of both together was seen.
const CALLS_PER_KIB: u64 = 100;
/// Entries of a scan for each KiB of the database: a compressed block may hold 64 KiB.
const ENTRIES_PER_KIB: u64 = 100_000;

/// Maxima since the last [`take_maxima`]: calls, percent of their limit, and entries of a scan.
static MAXIMA: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The most work that an input has caused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Maxima {
    /// Calls to the file system.
    pub calls: u64,
    /// The same in percent of the limit.
    pub calls_percent: u64,
    /// Entries of one scan, or changes of one stream.
    pub entries: u64,
}

/// Returns the maxima since the last call, and sets them to 0. They belong to one input only if no
/// other target runs at the same time.
pub fn take_maxima() -> Maxima {
    let [calls, calls_percent, entries] = [0, 1, 2].map(|at| MAXIMA[at].swap(0, Ordering::Relaxed));
    Maxima { calls, calls_percent, entries }
}

/// The limit of the work on one hostile database.
pub struct Steps {
    fs: FaultFs,
    calls_max: u64,
    entries_max: u64,
}

/// A clock on which the only sleep is that of the call beyond the limit.
struct Limit(u64);

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limit")
    }
}

impl Clock for Limit {
    fn now_us(&self) -> u64 {
        0
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, _: u64) {
        panic!("more than {} calls to the file system", self.0);
    }

    fn wait_ns(&self, _: u64) {}
}

impl Steps {
    /// An environment with these files whose calls are counted, and their limit.
    pub fn over(files: &Files) -> (Env, Self) {
        let kib = files.values().map(Vec::len).sum::<usize>() as u64 / 1_024;
        let calls_max = CALLS_BASE + CALLS_PER_KIB * kib;
        let plain = Env::deterministic(Arc::new(disk_of(files)), 1);
        let fs = FaultFs::with_clock(Arc::clone(&plain.vfs), 1, Arc::new(Limit(calls_max)));
        fs.add_rule(FaultRule::nth(calls_max, Effect::LatencyUs(1)));
        let env = Env { vfs: Arc::new(fs.clone()), ..plain };
        (env, Self { fs, calls_max, entries_max: ENTRIES_PER_KIB * (1 + kib) })
    }

    /// Counts the entries of a scan, or the changes of a stream, and passes them on.
    ///
    /// # Panics
    /// At the entry beyond the limit.
    pub fn counted<I: Iterator>(&self, entries: I) -> impl Iterator<Item = I::Item> {
        let mut count = 0;
        entries.inspect(move |_| {
            count += 1;
            assert!(count <= self.entries_max, "a scan has more than {} entries", self.entries_max);
            MAXIMA[2].fetch_max(count, Ordering::Relaxed);
        })
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let calls = self.fs.calls();
        MAXIMA[0].fetch_max(calls, Ordering::Relaxed);
        MAXIMA[1].fetch_max(calls * 100 / self.calls_max, Ordering::Relaxed);
        // A part of the engine may have caught the panic.
        assert!(
            calls <= self.calls_max || std::thread::panicking(),
            "{calls} calls to the file system, of {} at most",
            self.calls_max
        );
    }
}
