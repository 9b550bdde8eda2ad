//! Which blocks that were missed get a frame.
//!
//! While there is room, all of them. Once every frame holds a block, a new one drives another out, and what that
//! costs (the other's lines of memory, the work of finding it) is worth it only against the time of a read. Where
//! reads take long, every block gets its frame. Where they are copies out of the system's page cache, that
//! would cost half as much again as the read itself, so only one block in [`KEPT_IN`] gets one, picked
//! without a pattern: who reads all blocks alike loses nothing, what is read often comes in after a few reads,
//! and what is read once mostly leaves the cache as it was. Who counts reads instead of time has every block kept
//! ([`BlockCache::keeping_all`]).
//!
//! Not here: which block goes ([`super::hand`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_env::Clock;

use super::BlockCache;
use super::slab::BlockKey;

/// From this average on every missed block is kept: some ten times what keeping one costs.
const SLOW_READ_NS: u64 = 5_000;
/// Of quick reads, the share that is kept.
const KEPT_IN: u64 = 16;
/// One read in so many is timed.
const TIMED_IN: u64 = 8;
/// A measurement counts one part in this many of the average.
const WEIGHT: u64 = 8;
/// Reads from this length on are long ones: twice as long as blocks and partitions are in common, and
/// shorter than slices of large filters.
const LONG_BYTES_MIN: u64 = 16 << 10;

/// Moving averages of the time of reads, of two sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTimes {
    /// Bytes and nanoseconds of short reads: blocks, index partitions, small slices. None before the first.
    pub short: Option<(u64, u64)>,
    /// The same of reads of 16 KiB and more.
    pub long: Option<(u64, u64)>,
}

#[derive(Default)]
pub(super) struct Admission {
    /// The last frame that was wanted had to be taken from a block. Only a hint.
    pub(super) crowded: AtomicBool,
    misses: AtomicU64,
    /// Time and length of short reads (blocks), moving averages; 0: none was timed.
    short_ns: AtomicU64,
    short_bytes: AtomicU64,
    /// The same of long ones (filter slices).
    long_ns: AtomicU64,
    long_bytes: AtomicU64,
    /// Time does not count, reads do.
    pub(super) keeps_all: bool,
}

impl Admission {
    pub(super) fn set_crowded(&self, crowded: bool) {
        // Looked at first: misses of all threads read it.
        if self.crowded.load(Ordering::Relaxed) != crowded {
            self.crowded.store(crowded, Ordering::Relaxed);
        }
    }
}

/// What is to be done with a block that the cache does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    /// Whether it should get a frame.
    pub(crate) keep: bool,
    begin_ns: Option<u64>,
}

impl Miss {
    /// The same, otherwise decided.
    pub(crate) fn but_keep(self, keep: bool) -> Self {
        Self { keep, ..self }
    }
}

/// Whether the miss of this number is kept in a crowded cache.
fn is_kept(number: u64, read_ns: u64) -> bool {
    // A product with the golden ratio: of any sixteen in a row about one, whatever the rhythm of what is missed.
    read_ns >= SLOW_READ_NS || number.wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / KEPT_IN
}

/// The average after a measurement.
fn averaged(before_ns: u64, ns: u64) -> u64 {
    if before_ns == 0 { ns } else { before_ns.saturating_mul(WEIGHT - 1).saturating_add(ns) / WEIGHT }
}

impl BlockCache {
    /// A block is about to be read that the cache does not have; `key` if it could keep it.
    pub(crate) fn missed(&self, key: Option<BlockKey>, clock: &dyn Clock) -> Miss {
        let admission = &self.shelf.admission;
        let number = admission.misses.fetch_add(1, Ordering::Relaxed);
        let crowded = admission.crowded.load(Ordering::Relaxed);
        let keep = !crowded || admission.keeps_all || is_kept(number, self.read_ns());
        if let Some(key) = key {
            self.shelf.ghosts.missed(key);
            if !keep {
                self.shelf.ghosts.note(key);
            }
        }
        Miss { keep, begin_ns: (number % TIMED_IN == 0).then(|| clock.now_ns()) }
    }

    /// It was read; so many bytes.
    pub(crate) fn was_read(&self, miss: Miss, bytes: usize, clock: &dyn Clock) {
        if let Some(begin_ns) = miss.begin_ns {
            self.note_read(bytes, clock.now_ns().saturating_sub(begin_ns));
        }
    }

    /// Average time of recent reads of blocks, in nanoseconds; 0 before the first.
    pub fn read_ns(&self) -> u64 {
        self.shelf.admission.short_ns.load(Ordering::Relaxed)
    }

    /// Average times of recent reads, of two sizes.
    pub fn read_times(&self) -> ReadTimes {
        let Admission { short_ns, short_bytes, long_ns, long_bytes, .. } = &self.shelf.admission;
        let of = |bytes: &AtomicU64, ns: &AtomicU64| match ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some((bytes.load(Ordering::Relaxed), ns)),
        };
        ReadTimes { short: of(short_bytes, short_ns), long: of(long_bytes, long_ns) }
    }

    /// Counts the time of a read. Measurements that come at the same moment may be lost.
    pub fn note_read(&self, bytes: usize, ns: u64) {
        let Admission { short_ns, short_bytes, long_ns, long_bytes, .. } = &self.shelf.admission;
        let bytes = bytes as u64;
        let of = if bytes >= LONG_BYTES_MIN {
            [(long_bytes, bytes), (long_ns, ns)]
        } else {
            [(short_bytes, bytes), (short_ns, ns)]
        };
        for (average, value) in of {
            average.store(averaged(average.load(Ordering::Relaxed), value), Ordering::Relaxed);
        }
    }
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
    }

    #[test]
    fn long_reads_are_averaged_by_themselves() {
        let cache = BlockCache::new(1 << 20, std::sync::Arc::default());
        assert_eq!(cache.read_times(), ReadTimes::default());
        cache.note_read(4_096, 1_000);
        cache.note_read(64 << 10, 9_000);
        assert_eq!(
            cache.read_times(),
            ReadTimes { short: Some((4_096, 1_000)), long: Some((64 << 10, 9_000)) }
        );
        assert_eq!(cache.read_ns(), 1_000);
    }
}
