//! Pace of compactions: the rate limit, and the time that compactions work.
//!
//! The rate limit holds for all compactions together. Each byte written reserves the time that it
//! takes at that rate; a worker sleeps until the time that it has reserved. Unused time is not
//! saved up beyond [`BURST_US`].

use std::sync::Arc;

use shamba_env::Clock;

use crate::lock_order;
use crate::ranked::Ranked;

/// Time that may be caught up with: reading and writing alternate.
const BURST_US: u64 = 100_000;
/// Longest single sleep, after which a worker checks whether it should stop.
const SLEEP_US_MAX: u64 = 20_000;

/// The pace of the compactions of a database.
pub(super) struct Pace {
    clock: Arc<dyn Clock>,
    /// 0 for no limit.
    bytes_per_s: u64,
    state: Ranked<PaceState>,
}

#[derive(Default)]
struct PaceState {
    /// End of the time that the bytes written so far have reserved.
    reserved_until_us: u64,
    /// Threads that work on compactions now, and do not sleep here.
    working: usize,
    /// Time up to which the work is counted.
    counted_until_us: u64,
    /// Time since the last [`Pace::take_worked_us`] in which at least one thread worked.
    worked_us: u64,
}

impl PaceState {
    fn count(&mut self, now_us: u64) {
        if self.working > 0 {
            self.worked_us += now_us.saturating_sub(self.counted_until_us);
        }
        self.counted_until_us = self.counted_until_us.max(now_us);
        debug_assert!(
            self.worked_us <= self.counted_until_us,
            "compactions worked longer than the clock runs"
        );
    }
}

impl Pace {
    /// A pace of at most `bytes_per_s`; 0 for no limit.
    pub fn new(clock: &Arc<dyn Clock>, bytes_per_s: u64) -> Self {
        Self {
            clock: Arc::clone(clock),
            bytes_per_s,
            state: Ranked::new(lock_order::PACE, PaceState::default()),
        }
    }

    /// A thread begins to work on a compaction.
    pub fn begin_work(&self) {
        let now_us = self.clock.now_us();
        let mut state = self.state.lock();
        state.count(now_us);
        state.working += 1;
    }

    /// A thread ends its work.
    pub fn end_work(&self) {
        let now_us = self.clock.now_us();
        let mut state = self.state.lock();
        state.count(now_us);
        assert!(state.working > 0, "work on a compaction ended that had not begun");
        state.working -= 1;
    }

    /// Time in which at least one thread worked, since the last call.
    pub fn take_worked_us(&self) -> u64 {
        let now_us = self.clock.now_us();
        let mut state = self.state.lock();
        state.count(now_us);
        std::mem::take(&mut state.worked_us)
    }

    /// Sleeps while compactions are ahead of the rate limit, after `bytes` more were written. Ends
    /// early when `is_stopped`.
    pub fn keep(&self, bytes: u64, is_stopped: impl Fn() -> bool) {
        if self.bytes_per_s == 0 {
            return;
        }
        let mut now_us = self.clock.now_us();
        let due_us = {
            let mut state = self.state.lock();
            let from_us = state.reserved_until_us.max(now_us.saturating_sub(BURST_US));
            state.reserved_until_us = from_us + bytes.saturating_mul(1_000_000) / self.bytes_per_s;
            state.reserved_until_us
        };
        if now_us >= due_us {
            return;
        }
        self.end_work();
        while now_us < due_us && !is_stopped() {
            self.clock.sleep_us((due_us - now_us).min(SLEEP_US_MAX));
            now_us = self.clock.now_us();
        }
        self.begin_work();
    }
}

#[cfg(test)]
mod tests {
    use shamba_env::ManualClock;

    use super::*;

    fn pace(bytes_per_s: u64) -> (Pace, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        clock.sleep_us(10_000_000);
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        (Pace::new(&shared, bytes_per_s), clock)
    }

    #[test]
    fn all_compactions_share_the_rate() {
        let (pace, clock) = pace(1_000_000);
        let begin_us = clock.now_us();
        pace.begin_work();
        pace.keep(100_000, || false);
        assert_eq!(clock.now_us(), begin_us, "a burst of 100 ms");
        pace.begin_work();
        pace.keep(500_000, || false);
        pace.keep(500_000, || false);
        assert_eq!(clock.now_us() - begin_us, 1_000_000, "a MB in a second, whoever writes it");
        pace.keep(900_000, || true);
        assert_eq!(clock.now_us() - begin_us, 1_000_000, "a job that is stopped does not sleep");
    }

    #[test]
    fn work_is_counted_once_and_without_sleep() {
        let (pace, clock) = pace(1_000_000);
        pace.begin_work();
        clock.sleep_us(300);
        pace.begin_work();
        clock.sleep_us(400);
        pace.end_work();
        clock.sleep_us(50);
        assert_eq!(pace.take_worked_us(), 750);
        pace.keep(1_100_000, || false);
        assert_eq!(pace.take_worked_us(), 0, "it slept for a second");
        pace.end_work();
        clock.sleep_us(1_000);
        assert_eq!(pace.take_worked_us(), 0);
    }
}
