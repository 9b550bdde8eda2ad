//! A clock whose seconds pass faster: what the engine does once a second comes more often, so that memory comes to rest
//! in seconds instead of a minute.
//!
//! Only the slow scale runs fast. Reads of blocks are timed in nanoseconds, and those stay what they are; so do waits.

use shamba::env::{Clock, RealClock};

/// The machine's clock, so many times as fast.
#[derive(Debug)]
pub(super) struct QuickClock {
    real: RealClock,
    times: u64,
}

impl QuickClock {
    pub fn new(times: u64) -> Self {
        Self { real: RealClock::new(), times }
    }
}

impl Clock for QuickClock {
    fn now_us(&self) -> u64 {
        self.real.now_us() * self.times
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
        let clock = QuickClock::new(1_000);
        let (begin_us, begin_ns) = (clock.now_us(), clock.now_ns());
        clock.sleep_us(2_000);
        assert!(clock.now_us() - begin_us >= 2_000_000);
        let ns = clock.now_ns() - begin_ns;
        assert!(ns >= 2_000_000 && ns / 1_000 < clock.now_us() - begin_us, "{ns}");
    }
}
