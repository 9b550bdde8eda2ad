//! A clock with accelerated seconds, so that the engine's decisions, which it makes once a second,
//! settle within seconds.
//!
//! Nanoseconds, which time reads, and waits are real.

use shamba::env::{Clock, RealClock};

/// The real clock with accelerated seconds.
#[derive(Debug)]
pub(crate) struct PacedClock {
    real: RealClock,
    seconds_times: u64,
}

impl PacedClock {
    /// A clock whose seconds pass `seconds_times` as fast as the machine's.
    pub fn new(seconds_times: u64) -> Self {
        Self { real: RealClock::new(), seconds_times }
    }
}

impl Clock for PacedClock {
    fn now_us(&self) -> u64 {
        self.real.now_us() * self.seconds_times
    }

    fn now_ns(&self) -> u64 {
        self.real.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.real.unix_ms()
    }

    fn sleep_us(&self, us: u64) {
        self.real.sleep_us(us);
    }

    fn wait_ns(&self, ns: u64) {
        self.real.wait_ns(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_pass_faster_and_nanoseconds_do_not() {
        let clock = PacedClock::new(1_000);
        let (begin_us, begin_ns) = (clock.now_us(), clock.now_ns());
        clock.sleep_us(2_000);
        assert!(clock.now_us() - begin_us >= 2_000_000);
        let ns = clock.now_ns() - begin_ns;
        assert!(ns >= 2_000_000 && ns / 1_000 < clock.now_us() - begin_us, "{ns}");
    }
}
