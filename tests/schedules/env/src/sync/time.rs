//! Time under a scheduler: it passes when a thread reads it, sleeps, or waits with a limit.
//!
//! There is one clock per operating system thread, which runs all threads of one schedule.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Clock;

std::thread_local! {
    static NOW_US: Cell<u64> = const { Cell::new(0) };
}

/// Resets the clock, at the start of each schedule, so that schedules are reproducible.
pub fn reset() {
    NOW_US.set(0);
}

/// Yields to other threads and advances the clock by `time`.
pub(crate) fn pass(time: Duration) {
    NOW_US.set(NOW_US.get() + u64::try_from(time.as_micros()).unwrap_or(0).max(1));
    shuttle::thread::yield_now();
}

/// The time now, which passes by being read.
pub fn now_us() -> u64 {
    NOW_US.set(NOW_US.get() + 1);
    NOW_US.get()
}

/// The clock of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledClock;

impl Clock for ScheduledClock {
    fn now_us(&self) -> u64 {
        now_us()
    }

    fn unix_ms(&self) -> u64 {
        // Starts at 2024-01-01 00:00 UTC, like a manual clock.
        1_704_067_200_000 + NOW_US.get() / 1_000
    }

    fn sleep_us(&self, us: u64) {
        pass(Duration::from_micros(us));
    }

    fn wait_ns(&self, ns: u64) {
        pass(Duration::from_nanos(ns));
    }
}
