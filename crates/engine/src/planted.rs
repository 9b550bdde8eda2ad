//! Planted defects: switches that break the engine on purpose, so that tests can prove that they bite.
//!
//! They exist only in builds with debug assertions (the dev profile, which tests inherit) and are off until
//! a test switches one on; a release build compiles every check to `false`.

use std::sync::atomic::{AtomicU32, Ordering};

/// A defect that can be switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum Defect {
    /// A lookup hashes its key a second time.
    SecondHash = 1 << 0,
    /// A write is acknowledged under `Sync` without the sync.
    AckBeforeSync = 1 << 1,
    /// A merge ignores snapshots.
    IgnoreSnapshots = 1 << 2,
    /// A merge drops tombstones that still hide something below.
    DropTombstones = 1 << 3,
    /// A flush installs its tables without having synced the log.
    FlushWithoutLogSync = 1 << 4,
}

static PLANTED: AtomicU32 = AtomicU32::new(0);

/// Switches a defect on or off for the whole process. Without debug assertions it does nothing.
pub fn plant(defect: Defect, on: bool) {
    if on {
        PLANTED.fetch_or(defect as u32, Ordering::SeqCst);
    } else {
        PLANTED.fetch_and(!(defect as u32), Ordering::SeqCst);
    }
}

/// Whether the defect is switched on.
#[inline(always)]
pub(crate) fn is_planted(defect: Defect) -> bool {
    cfg!(debug_assertions) && PLANTED.load(Ordering::Relaxed) & defect as u32 != 0
}
