//! A clock that passes faster: what the engine does once a second comes more often, so that memory comes to rest in seconds
//! instead of a minute.
//!
//! The slow scale and the quick one, on which reads of blocks are timed, run at paces of their own. Waits stay what they are.

use shamba::env::{Clock, RealClock};

/// The machine's clock, so many times as fast.
#[derive(Debug)]
pub(crate) struct PacedClock {
    real: RealClock,
    seconds_times: u64,
    reads_times: u64,
}

impl PacedClock {
    /// One whose seconds pass so many times as fast, and nanoseconds as ever.
    pub fn new(seconds_times: u64) -> Self {
        Self { real: RealClock::new(), seconds_times, reads_times: 1 }
    }

    /// The same, by which reads seem to take so many times as long.
    pub fn slowing_reads(self, reads_times: u64) -> Self {
        Self { reads_times, ..self }
    }
}

impl Clock for PacedClock {
    fn now_us(&self) -> u64 {
        self.real.now_us() * self.seconds_times
    }

    fn now_ns(&self) -> u64 {
        self.real.now_ns() * self.reads_times
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
        let clock = PacedClock::new(1).slowing_reads(1_000);
        let (begin_us, begin_ns) = (clock.now_us(), clock.now_ns());
        clock.sleep_us(2_000);
        let ns = clock.now_ns() - begin_ns;
        assert!(ns >= 2_000_000_000 && clock.now_us() - begin_us < ns / 1_000, "{ns}");
    }
}
