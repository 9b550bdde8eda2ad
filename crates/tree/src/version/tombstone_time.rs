//! The time of the oldest tombstone of a table.
//!
//! Invariant: the time only decreases. A compaction that copies a tombstone takes over its time,
//! and a wall clock that was set back lowers it; nothing makes a tombstone look younger than it is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Stored while the time is not known.
const UNKNOWN: u64 = u64::MAX;

/// The wall-clock time of a table's oldest tombstone, in milliseconds since 1970-01-01 UTC, if it
/// is known.
#[derive(Debug)]
pub struct TombstoneTime(AtomicU64);

impl TombstoneTime {
    /// The time, if it is known.
    pub fn unix_ms(&self) -> Option<u64> {
        let unix_ms = self.0.load(Ordering::Relaxed);
        (unix_ms != UNKNOWN).then_some(unix_ms)
    }

    /// Sets the time, unless an earlier one is known.
    pub fn lower(&self, unix_ms: u64) {
        self.0.fetch_min(unix_ms, Ordering::Relaxed);
    }
}

impl Default for TombstoneTime {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl From<Option<u64>> for TombstoneTime {
    fn from(unix_ms: Option<u64>) -> Self {
        Self(AtomicU64::new(unix_ms.unwrap_or(UNKNOWN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_never_raised() {
        let time = TombstoneTime::default();
        assert_eq!(time.unix_ms(), None);
        for (told, known) in [(70, 70), (90, 70), (40, 40), (41, 40)] {
            time.lower(told);
            assert_eq!(time.unix_ms(), Some(known), "after {told}");
        }
        assert_eq!(TombstoneTime::from(Some(7)).unix_ms(), Some(7));
    }
}
