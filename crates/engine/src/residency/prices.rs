//! Prices: what reads and searches cost now, and how often the block cache spares a read.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_model::memory;
use shamba_model::memory::constants::{
    BLOCK_BYTES, COUNTED_PAGE_NS, NS_PER_BYTE, PARTITION_CPU_NS, PROBE_NS, READ_NS, SEARCH_CPU_NS,
    SLICE_CPU_NS,
};
use shamba_model::price::ReadPrice;
use shamba_table::ReadTimes;

/// Recent hit rates of the block cache.
#[derive(Default)]
pub(super) struct HitRates {
    /// Recent block cache hit rate, as bits. It starts at 0: no block was found in the cache yet.
    blocks_bits: AtomicU64,
    /// Recent part of filter slices that lookups had to read, where slices are kept in the block
    /// cache, as bits. It starts at 0: a slice that is never fetched is never found.
    slices_read_bits: AtomicU64,
}

impl HitRates {
    /// Recent block cache miss rate.
    pub fn read_share(&self) -> f64 {
        1.0 - f64::from_bits(self.blocks_bits.load(Ordering::Relaxed))
    }

    /// Recent part of filter slices that lookups had to read.
    pub fn slices_read(&self) -> f64 {
        f64::from_bits(self.slices_read_bits.load(Ordering::Relaxed))
    }

    /// Adds a window's filter slice reads and cache hits; older windows have half of the weight.
    pub fn note_slices(&self, reads: u64, hits: u64) {
        let ratio = memory::recent_ratio(self.slices_read(), reads, hits);
        debug_assert!((0.0..=1.0).contains(&ratio), "{ratio} of the filter slices are read");
        self.slices_read_bits.store(ratio.to_bits(), Ordering::Relaxed);
    }

    /// Adds a window's data block reads and cache hits; older windows have half of the weight.
    pub fn note_blocks(&self, reads: u64, hits: u64) {
        let before = f64::from_bits(self.blocks_bits.load(Ordering::Relaxed));
        let ratio = memory::recent_ratio(before, hits, reads);
        debug_assert!((0.0..=1.0).contains(&ratio), "{ratio} of the blocks are found in the cache");
        self.blocks_bits.store(ratio.to_bits(), Ordering::Relaxed);
    }
}

/// Current costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    pub probe_ns: f64,
    /// Cost of a read by its length.
    pub read: ReadPrice,
    /// CPU cost of searching an index partition that was read.
    partition_cpu_ns: f64,
    /// Cost of a search whose index partition is in memory.
    pub data_ns: f64,
    /// Expected cost of a slice that is fetched for one lookup, by its length. It is cached with
    /// the same probability as a data block.
    pub fetch: ReadPrice,
    /// Block cache miss rate.
    pub read_share: f64,
}

impl Prices {
    /// Costs with this miss rate of the block cache and measured times of reads; in pages if
    /// `counts_pages`.
    pub fn new(read_share: f64, times: ReadTimes, counts_pages: bool) -> Self {
        debug_assert!((0.0..=1.0).contains(&read_share), "{read_share} of the blocks are read");
        if counts_pages {
            return Self::counting_pages(read_share);
        }
        let read = price_of(times);
        Self {
            probe_ns: PROBE_NS,
            read,
            partition_cpu_ns: PARTITION_CPU_NS,
            data_ns: read_share * read.ns(BLOCK_BYTES) + SEARCH_CPU_NS,
            fetch: read.expected(read_share, SLICE_CPU_NS),
            read_share,
        }
    }

    /// Costs in counting mode: CPU costs nothing, a read costs its pages.
    fn counting_pages(read_share: f64) -> Self {
        let read = ReadPrice::of_pages(COUNTED_PAGE_NS);
        Self {
            probe_ns: 0.0,
            read,
            partition_cpu_ns: 0.0,
            data_ns: read_share * read.ns(BLOCK_BYTES),
            fetch: read.expected(read_share, 0.0),
            read_share,
        }
    }

    /// Cost of reading a block.
    pub fn block_ns(&self) -> f64 {
        self.read.ns(BLOCK_BYTES)
    }

    /// Cost that resident index partitions of this size spare a search.
    pub fn index_ns(&self, partition_bytes: u64) -> f64 {
        self.read.ns(partition_bytes) + self.partition_cpu_ns
    }
}

/// Read cost from measured times. A byte costs at least a copy.
pub(super) fn price_of(times: ReadTimes) -> ReadPrice {
    let (short_bytes, short_ns) = times.short.unwrap_or((BLOCK_BYTES, READ_NS as u64));
    let (short_bytes, short_ns) = (short_bytes as f64, short_ns as f64);
    let as_copied = (short_bytes + 1.0, short_ns + NS_PER_BYTE);
    let long = times.long.map_or(as_copied, |(bytes, ns)| {
        let bytes = bytes as f64;
        (bytes, (ns as f64).max(short_ns + NS_PER_BYTE * (bytes - short_bytes)))
    });
    debug_assert!(long.1 >= short_ns || long.0 <= short_bytes, "a longer read costs less than a short one");
    ReadPrice::of_two_sizes((short_bytes, short_ns), long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_blocks_that_are_read_follows_the_last_windows() {
        let rates = HitRates::default();
        assert!((rates.read_share() - 1.0).abs() < 1e-9, "nothing is found before the first");
        rates.note_blocks(1, 62);
        assert!((rates.read_share() - 1.0).abs() < 1e-9, "too few to say anything");
        (0..20).for_each(|_| rates.note_blocks(100, 900));
        assert!((rates.read_share() - 0.1).abs() < 1e-3, "{}", rates.read_share());
        (0..3).for_each(|_| rates.note_blocks(1_000, 0));
        assert!(rates.read_share() > 0.85, "{}", rates.read_share());
    }

    #[test]
    fn a_read_costs_its_pages_where_they_are_counted() {
        let prices = Prices::counting_pages(0.25);
        assert_eq!((prices.probe_ns, prices.index_ns(4_096)), (0.0, prices.block_ns()));
        assert_eq!(prices.index_ns(32 << 10), 8.0 * prices.block_ns());
        assert_eq!(prices.data_ns, prices.block_ns() / 4.0);
        assert_eq!(prices.fetch.ns(64 << 10), 4.0 * prices.block_ns(), "16 pages, a quarter of the time");
        // The cost of moving memory is in nanoseconds, so a page must cost as many as one does.
        assert!(prices.block_ns() >= READ_NS);
    }

    #[test]
    fn a_read_costs_its_latency_and_its_bytes() {
        let of = |short, long| price_of(ReadTimes { short, long });
        let unknown = of(None, None);
        assert_eq!(
            (unknown.ns(4_096).round(), unknown.ns_per_byte),
            (READ_NS, 0.0 + NS_PER_BYTE.min(READ_NS / 4_096.0))
        );
        // 113 us for a page, 500 MB a second.
        let device = of(Some((4_096, 113_000)), Some((65_536, 113_000 + 61_440 * 2)));
        assert!(
            (device.ns_per_byte - 2.0).abs() < 1e-3 && (device.ns(4_096) - 113_000.0).abs() < 1.0,
            "{device:?}"
        );
        // A byte costs at least a copy, however fast long reads appear.
        let quick = of(Some((4_096, 113_000)), Some((65_536, 20_000)));
        assert!((quick.ns_per_byte - NS_PER_BYTE).abs() < 1e-3, "{quick:?}");
    }
}
