//! The timer of lookups.
//!
//! Not here: which parts are timed ([`super::get`]).

use std::sync::{Arc, OnceLock};

use shamba_env::Clock;

/// Times the parts of lookups, without the time that reading the clock takes.
///
/// A part of a lookup takes some ten nanoseconds, and so does reading the clock. An interval
/// between two reads of the clock contains the duration of one read, which is therefore subtracted.
pub struct Timer {
    clock: Arc<dyn Clock>,
    /// Nanoseconds per read of the clock, measured when the first lookup is timed.
    read_ns: OnceLock<u64>,
}

impl Timer {
    /// Number of measured reads of the clock. Their tenth percentile is used, because interruptions
    /// and a busy sibling core only make reads slower.
    const SAMPLES: usize = 255;

    /// A timer that reads `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, read_ns: OnceLock::new() }
    }

    /// Reads the clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Nanoseconds per read of the clock.
    pub(super) fn read_ns(&self) -> u64 {
        *self.read_ns.get_or_init(|| {
            let mut last = self.clock.now_ns();
            let mut distances = [0; Self::SAMPLES];
            for distance in &mut distances {
                let now = self.clock.now_ns();
                *distance = now.saturating_sub(last);
                last = now;
            }
            distances.sort_unstable();
            distances[Self::SAMPLES / 10]
        })
    }
}
