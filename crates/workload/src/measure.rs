//! Measurement of latencies, CPU time and resident memory.
//!
//! One timestamp is taken per operation: the end of one is the start of the next. Keys and values
//! are made in batches outside the timed part, so a figure is the engine's time plus one clock
//! read.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::system;

/// Maximum recorded latency: 100 seconds; longer ones are recorded as this.
const LONGEST_NS: u64 = 100_000_000_000;

/// A histogram of latencies, exact to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self { histogram }
    }

    /// Records one operation of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("histograms have the same bounds");
    }

    /// The latency within which the share `quantile` (0 to 1) of all operations stayed; 0 if there
    /// are none.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(quantile) }
    }
}

/// CPU time since a start.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimer {
    clock: Clock,
    start: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Clock {
    Process,
    Thread,
}

impl CpuTimer {
    /// Measures all threads of the process, including the engine's background threads.
    pub fn process() -> Self {
        Self { clock: Clock::Process, start: read(Clock::Process) }
    }

    /// Measures the calling thread.
    pub fn thread() -> Self {
        Self { clock: Clock::Thread, start: read(Clock::Thread) }
    }

    /// CPU time since the start.
    pub fn elapsed(&self) -> Duration {
        read(self.clock).saturating_sub(self.start)
    }
}

fn read(clock: Clock) -> Duration {
    match clock {
        Clock::Process => system::process_cpu(),
        Clock::Thread => system::thread_cpu(),
    }
}

/// Resident bytes of this process; `None` where the system does not report them.
pub fn rss_bytes() -> Option<u64> {
    shamba::env::process_rss_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let (mut low, mut high) = (Latencies::new(), Latencies::new());
        assert_eq!(low.quantile_ns(0.5), 0);
        (1..=500).for_each(|ns| low.record(ns));
        (501..=1000).for_each(|ns| high.record(ns));
        low.merge(&high);
        assert_eq!(low.quantile_ns(0.5), 500);
        assert_eq!(low.quantile_ns(0.99), 990);
        low.record(u64::MAX);
        assert!(low.quantile_ns(1.0) >= LONGEST_NS / 2);
    }

    #[test]
    fn work_takes_cpu_time_and_sleep_does_not() {
        let (process, thread) = (CpuTimer::process(), CpuTimer::thread());
        let mut sum = 0u64;
        while thread.elapsed() < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process.elapsed() >= Duration::from_millis(2));
        let sleeping = CpuTimer::thread();
        std::thread::sleep(Duration::from_millis(50));
        assert!(sleeping.elapsed() < Duration::from_millis(50));
    }
}
