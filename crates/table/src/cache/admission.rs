//! Admission: whether a missed block is inserted into the cache.
//!
//! While there are free frames, every missed block is admitted. Once the cache is full, admission
//! evicts another block and takes CPU time (the sweep, and the cache lines of the evicted block).
//! That pays only if it is short compared with a read:
//!
//! - If short reads take [`SLOW_READ_NS`] or more on average, every block is admitted.
//! - If reads are faster, they are copies out of the page cache, and admission would add half of a
//!   read's time. Then one block in [`KEPT_IN`] is admitted, chosen pseudo-randomly. A uniform
//!   workload loses nothing, frequently read blocks are admitted after a few reads, and blocks that
//!   are read once rarely evict others.
//!
//! A cache that counts reads instead of time admits every block
//! ([`super::BlockCache::admitting_all`]).
//!
//! Not here: which block is evicted ([`super::hand`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_env::Clock;

use super::ghosts::Ghosts;
use super::slab::BlockKey;

/// Average read time from which every missed block is admitted: about ten times the cost of
/// admission.
const SLOW_READ_NS: u64 = 5_000;
/// One in this many blocks is admitted while the cache is full and reads are fast.
const KEPT_IN: u64 = 16;
/// One read in this many is timed.
const TIMED_IN: u64 = 8;
/// Weight of a measurement in the moving average: one part in this many.
const WEIGHT: u64 = 8;
/// A measurement counts as at most this multiple of the average. When a thread loses its processor
/// during a read, a microsecond is measured as milliseconds. Without the limit, one such
/// measurement made reads count as slow for some 200 reads: every block was admitted, and batches
/// of lookups woke the threads for slow reads, which then measured their wait for a processor.
const OUTLIER: u64 = 16;
const _: () = assert!(WEIGHT > 1 && KEPT_IN > 1 && TIMED_IN > 0, "parts of a whole");
/// Minimum length of a long read: several times the size of a block or partition (4 KiB), less than
/// a slice of a large filter (64 KiB).
const LONG_BYTES_MIN: u64 = 16 << 10;

/// Moving averages of read times, by size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTimes {
    /// Bytes and nanoseconds of short reads: blocks, index partitions, small slices. `None` before
    /// the first.
    pub short: Option<(u64, u64)>,
    /// The same for reads of 16 KiB and more.
    pub long: Option<(u64, u64)>,
}

#[derive(Default)]
pub(super) struct Admission {
    /// The cache is full: the last frame that was taken was freed by an eviction. Only a hint.
    pub(super) crowded: AtomicBool,
    misses: AtomicU64,
    /// Moving averages of the time and length of short reads (blocks); 0 before the first sample.
    short_ns: AtomicU64,
    short_bytes: AtomicU64,
    /// The same for long reads (filter slices).
    long_ns: AtomicU64,
    long_bytes: AtomicU64,
    /// Admit every block: reads are counted, not timed.
    pub(super) admits_all: bool,
}

impl Admission {
    pub(super) fn set_crowded(&self, crowded: bool) {
        // Load before store: the misses of all threads read it.
        if self.crowded.load(Ordering::Relaxed) != crowded {
            self.crowded.store(crowded, Ordering::Relaxed);
        }
    }

    /// Notes that a block missed the cache and is about to be read; `key` if the cache could hold
    /// it. A block that is not admitted becomes a ghost entry.
    pub(super) fn missed(&self, key: Option<BlockKey>, ghosts: &Ghosts, clock: &dyn Clock) -> Miss {
        let number = self.misses.fetch_add(1, Ordering::Relaxed);
        let crowded = self.crowded.load(Ordering::Relaxed);
        let keep = !crowded || self.admits_all || is_kept(number, self.read_ns());
        if let Some(key) = key {
            ghosts.missed(key);
            if !keep {
                ghosts.note(key);
            }
        }
        Miss { keep, begin_ns: (number % TIMED_IN == 0).then(|| clock.now_ns()) }
    }

    /// Notes that the missed block was read, with its length in bytes.
    pub(super) fn was_read(&self, miss: Miss, bytes: usize, clock: &dyn Clock) {
        if let Some(begin_ns) = miss.begin_ns {
            self.note_read(bytes, clock.now_ns().saturating_sub(begin_ns));
        }
    }

    /// Moving average of the time of short reads, in nanoseconds; 0 before the first.
    pub(super) fn read_ns(&self) -> u64 {
        self.short_ns.load(Ordering::Relaxed)
    }

    /// Moving averages of read times, by size class.
    pub(super) fn read_times(&self) -> ReadTimes {
        let of = |bytes: &AtomicU64, ns: &AtomicU64| match ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some((bytes.load(Ordering::Relaxed), ns)),
        };
        ReadTimes { short: of(&self.short_bytes, &self.short_ns), long: of(&self.long_bytes, &self.long_ns) }
    }

    /// Adds a read's time to the average. Concurrent measurements may be lost.
    pub(super) fn note_read(&self, bytes: usize, ns: u64) {
        let bytes = bytes as u64;
        let of = if bytes >= LONG_BYTES_MIN {
            [(&self.long_bytes, bytes), (&self.long_ns, ns)]
        } else {
            [(&self.short_bytes, bytes), (&self.short_ns, ns)]
        };
        for (average, value) in of {
            average.store(averaged(average.load(Ordering::Relaxed), value), Ordering::Relaxed);
        }
    }
}

/// Decision about a block that missed the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    /// Whether the block is admitted.
    pub(crate) keep: bool,
    begin_ns: Option<u64>,
}

impl Miss {
    /// The same miss with another decision.
    pub(crate) fn but_keep(self, keep: bool) -> Self {
        Self { keep, ..self }
    }
}

/// Whether miss `number` is admitted while the cache is full.
fn is_kept(number: u64, read_ns: u64) -> bool {
    // A product with the golden ratio: about one of any sixteen consecutive numbers, whatever the
    // access pattern.
    read_ns >= SLOW_READ_NS || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / KEPT_IN
}

/// The moving average after a measurement.
fn averaged(before_ns: u64, ns: u64) -> u64 {
    if before_ns == 0 {
        return ns;
    }
    let ns = ns.min(before_ns.saturating_mul(OUTLIER));
    before_ns.saturating_mul(WEIGHT - 1).saturating_add(ns) / WEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reads_are_kept_and_few_of_the_others() {
        assert!((0..1_000).all(|number| is_kept(number, SLOW_READ_NS)));
        for rhythm in 1..=64 {
            let kept = (0..8_000).filter(|turn| is_kept(turn * rhythm, SLOW_READ_NS - 1)).count();
            assert!((350..650).contains(&kept), "{kept} of 8,000 misses, one in {rhythm}");
        }
    }

    #[test]
    fn the_average_follows() {
        let after = |start, ns, times| (0..times).fold(start, |average, _| averaged(average, ns));
        assert_eq!(after(0, 800, 1), 800);
        assert!(after(800, 60_000, 10) > 40_000);
        assert!(after(60_000, 800, 30) < SLOW_READ_NS);
        let outlier_ns = 10_000_000;
        assert!(after(800, outlier_ns, 1) < SLOW_READ_NS, "one outlier makes fast reads slow");
        assert!(after(after(800, outlier_ns, 1), 800, 10) < 1_400, "an outlier is not forgotten");
    }

    #[test]
    fn long_reads_are_averaged_by_themselves() {
        let admission = Admission::default();
        assert_eq!(admission.read_times(), ReadTimes::default());
        admission.note_read(4_096, 1_000);
        admission.note_read(64 << 10, 9_000);
        assert_eq!(
            admission.read_times(),
            ReadTimes { short: Some((4_096, 1_000)), long: Some((64 << 10, 9_000)) }
        );
        assert_eq!(admission.read_ns(), 1_000);
    }
}
