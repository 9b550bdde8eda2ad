//! Time, as a trait: a monotonic counter, the wall clock, and waiting.
//!
//! [`RealClock`] is the machine's. [`ManualClock`] moves only when told to, and a sleep on it moves
//! it, so that a run under it depends only on its calls. Both are shared freely between threads.
//!
//! Not here: deadlines and rate limits (part of the engine, built on [`Clock::now_us`]).

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since a fixed moment; monotonic.
    fn now_us(&self) -> u64;
    /// Nanoseconds on the same scale as [`Clock::now_us`], for timing parts of a lookup.
    fn now_ns(&self) -> u64 {
        self.now_us().saturating_mul(1_000)
    }
    /// Milliseconds since 1970-01-01 UTC; may jump when the system clock is set.
    fn unix_ms(&self) -> u64;
    /// Waits for `us` microseconds.
    fn sleep_us(&self, us: u64);
    /// Waits for `ns` nanoseconds with little overrun, at the cost of CPU time: it sleeps for less
    /// than `ns` and then polls the clock.
    fn wait_ns(&self, ns: u64);
    /// Waits, as [`Self::wait_ns`] does, until [`Self::now_ns`] reaches `until_ns`. The default
    /// reads the clock once more than an implementation that polls the same clock.
    fn wait_until_ns(&self, until_ns: u64) {
        self.wait_ns(until_ns.saturating_sub(self.now_ns()));
    }
}

/// Time by which a sleep of the operating system typically overruns. The remainder is polled.
const SLEEP_LATE: Duration = Duration::from_micros(60);

/// The machine's clock; `now_us` counts from its creation.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose `now_us` is 0 now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn unix_ms(&self) -> u64 {
        // A wall clock set before 1970 reads as 1970: no code here depends on its being right.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep_us(&self, us: u64) {
        std::thread::sleep(Duration::from_micros(us));
    }

    fn wait_ns(&self, ns: u64) {
        let (start, wanted) = (Instant::now(), Duration::from_nanos(ns));
        if let Some(sleep) = wanted.checked_sub(SLEEP_LATE) {
            std::thread::sleep(sleep);
        }
        while start.elapsed() < wanted {
            std::hint::spin_loop();
        }
    }

    fn wait_until_ns(&self, until_ns: u64) {
        let mut now_ns = self.now_ns();
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        if let Some(sleep) = left.checked_sub(SLEEP_LATE) {
            std::thread::sleep(sleep);
            now_ns = self.now_ns();
        }
        while now_ns < until_ns {
            std::hint::spin_loop();
            now_ns = self.now_ns();
        }
    }
}

/// Initial wall clock of a [`ManualClock`], in milliseconds since 1970: 2024-01-01 00:00 UTC. It is
/// not 0, so that times in files look like times.
const MANUAL_START_UNIX_MS: u64 = 1_704_067_200_000;

/// A clock that moves only by [`ManualClock::advance_us`] and by sleeping on it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_us: AtomicU64,
}

impl ManualClock {
    /// A clock at 0 µs; its wall clock shows 2024-01-01 00:00 UTC.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances both the counter and the wall clock.
    pub fn advance_us(&self, us: u64) {
        // Saturating, by a loop: a counter that wraps around would go back.
        let _ = self
            .now_us
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now_us| Some(now_us.saturating_add(us)));
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn unix_ms(&self) -> u64 {
        MANUAL_START_UNIX_MS.saturating_add(self.now_us() / 1_000)
    }

    fn sleep_us(&self, us: u64) {
        self.advance_us(us);
    }

    fn wait_ns(&self, ns: u64) {
        self.advance_us(ns.div_ceil(1_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new();
        assert_eq!((clock.now_us(), clock.unix_ms()), (0, MANUAL_START_UNIX_MS));
        clock.advance_us(2_500);
        clock.sleep_us(500);
        assert_eq!((clock.now_us(), clock.unix_ms()), (3_000, MANUAL_START_UNIX_MS + 3));
        clock.advance_us(u64::MAX);
        assert_eq!(clock.now_us(), u64::MAX);
    }

    #[test]
    fn the_real_clock_never_goes_back_and_sleeps_at_least_as_long_as_asked() {
        let clock = RealClock::new();
        let before_us = clock.now_us();
        clock.sleep_us(1_000);
        assert!(clock.now_us() >= before_us + 1_000);
        for ns in [0, 900, 70_000, 300_000] {
            let before_ns = clock.now_ns();
            clock.wait_ns(ns);
            assert!(clock.now_ns() >= before_ns + ns);
        }
        // 2020-01-01: a smaller value means that the machine has no clock.
        assert!(clock.unix_ms() > 1_577_836_800_000);
    }
}
