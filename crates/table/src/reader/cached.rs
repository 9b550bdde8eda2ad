//! An open table as a client of the block cache: its keys, its misses, and their times.
//!
//! A client has a number of its own in the cache, and the keys of its blocks contain it. An open
//! table is one client with its data blocks and index partitions, and a second one with the slices
//! of its filter. A client without a number uses the cache only to record read times. Memory that
//! is not in the cache is charged to the client's ledger.
//!
//! Not here: the cache ([`crate::cache`]); the frame slots of blocks, which belong to index and
//! filter.

use std::sync::Arc;

use shamba_env::Clock;

use crate::cache::{BlockCache, BlockKey, CachedTable, FreshFrame, Miss, ReadSection};
use crate::counters::ReadCounters;
use crate::id::TableId;
use crate::index::BlockNo;
use crate::ledger::Ledger;
use crate::residency::CacheUnit;
use crate::slot::FrameSlot;

/// Access of one table to the block cache.
#[derive(Clone, Debug)]
pub(super) struct CacheClient {
    cache: Arc<BlockCache>,
    /// The client's number in the cache; `None`: no block is cached.
    number: Option<CachedTable>,
    /// Unit in which slices or partitions are cached; data blocks are cached one by one.
    unit: CacheUnit,
    clock: Arc<dyn Clock>,
    ledger: Arc<Ledger>,
}

impl CacheClient {
    /// Creates a client without a number: nothing is cached.
    pub(super) fn new(cache: Arc<BlockCache>, clock: Arc<dyn Clock>, ledger: Arc<Ledger>) -> Self {
        Self { cache, number: None, unit: CacheUnit::Sliced, clock, ledger }
    }

    /// Registers the client for table `id`, whose slices or partitions are cached by `unit`.
    /// Without effect if the cache has no number left.
    pub(super) fn register(mut self, id: TableId, unit: CacheUnit) -> Self {
        self.number = self.cache.add_table(id);
        self.unit = unit;
        self
    }

    /// Unregisters the client of table `id`.
    pub(super) fn close(&self, id: TableId) {
        if let Some(number) = self.number {
            self.cache.close_table(id, number);
        }
    }

    /// Frees the frames of the blocks with these numbers and slots.
    pub(super) fn retire<'s>(&self, slots: impl Iterator<Item = (u32, &'s FrameSlot)>) {
        if let Some(number) = self.number {
            self.cache.retire_blocks(number, slots);
        }
    }

    /// Whether blocks can be cached.
    pub(super) fn is_registered(&self) -> bool {
        self.number.is_some()
    }

    /// Whether a filter module, or the index, is cached as one block.
    pub(super) fn is_whole(&self) -> bool {
        self.unit == CacheUnit::Whole
    }

    /// The ledger for memory outside of the cache.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The cache key of the client's block `number`; `None` if nothing is cached.
    #[inline]
    pub(super) fn key(&self, number: u32) -> Option<BlockKey> {
        self.number.map(|table| table.key(number))
    }

    /// The frame slot of a block and its cache key, for a slot with the block's number; `None` if
    /// there is none, or nothing is cached.
    pub(super) fn keyed<'s>(&self, slot: Option<(&'s FrameSlot, u32)>) -> Option<(&'s FrameSlot, BlockKey)> {
        slot.and_then(|(slot, number)| Some((slot, self.key(number)?)))
    }

    /// Enters a section of the cache.
    #[inline]
    pub(super) fn enter(&self) -> ReadSection<'_> {
        self.cache.enter()
    }

    /// Takes a frame of at least `bytes`, if one is available at once.
    pub(super) fn fresh(&self, bytes: usize) -> Option<FreshFrame<'_>> {
        self.cache.fresh(bytes)
    }

    /// Whether `frame` holds block `number`; if so, prefetches its first cache lines.
    pub(super) fn prefetch(&self, frame: u32, number: BlockNo) -> bool {
        self.key(number.0).is_some_and(|key| self.cache.prefetch(frame, key))
    }

    /// Prefetches the record and the first lines of `frame`, whatever it holds.
    pub(super) fn prefetch_frame(&self, frame: u32) {
        self.cache.prefetch_frame(frame);
    }

    /// Notes a lookup's reference to the block with this key for the reuse sample.
    #[inline]
    pub(super) fn referenced(&self, key: BlockKey, payload_bytes: usize) {
        self.cache.referenced(key, payload_bytes);
    }

    /// Notes a miss of the block with this key.
    pub(super) fn missed(&self, key: Option<BlockKey>) -> Miss {
        self.cache.missed(key, self.clock.as_ref())
    }

    /// Notes that the missed block was read, with its length in bytes.
    pub(super) fn was_read(&self, miss: Miss, bytes: usize) {
        self.cache.was_read(miss, bytes, self.clock.as_ref());
    }

    /// Reads `bytes` with `read`, and adds the time to the cache's averages.
    pub(super) fn timed<T>(&self, bytes: usize, read: impl FnOnce() -> T) -> T {
        let begin_ns = self.clock.now_ns();
        let done = read();
        self.cache.note_read(bytes, self.clock.now_ns().saturating_sub(begin_ns));
        done
    }

    /// The time in nanoseconds if `io` is timed; otherwise 0.
    #[inline]
    pub(super) fn now_ns(&self, io: &ReadCounters) -> u64 {
        if io.timed { self.clock.now_ns() } else { 0 }
    }

    /// Nanoseconds since `start_ns`, without the time of two clock reads.
    #[inline]
    pub(super) fn elapsed_ns(&self, io: &mut ReadCounters, start_ns: u64) -> u64 {
        io.timer_ns += 2 * io.clock_read_ns;
        self.now_ns(io).saturating_sub(start_ns).saturating_sub(io.clock_read_ns)
    }
}

#[cfg(test)]
mod tests {
    use shamba_env::{Env, MemFs};

    use super::*;

    #[test]
    fn a_client_alone_caches_under_its_own_number_or_not_at_all() {
        let ledger = Arc::new(Ledger::new());
        let cache = Arc::new(BlockCache::new(1 << 20, Arc::clone(&ledger)));
        let clock = Env::deterministic(Arc::new(MemFs::new()), 1).clock;
        let without = CacheClient::new(Arc::clone(&cache), clock, ledger);
        assert!(!without.is_registered() && !without.is_whole() && without.key(0).is_none());
        let of_blocks = without.clone().register(TableId(7), CacheUnit::Sliced);
        let of_filter = without.clone().register(TableId(7), CacheUnit::Whole);
        assert!(of_filter.is_whole() && of_blocks.key(3) != of_filter.key(3));

        let (slot, key) = (FrameSlot::new(), of_blocks.key(3).expect("registered"));
        let mut frame = of_blocks.fresh(100).expect("a frame");
        frame[..3].copy_from_slice(b"abc");
        frame.publish(&slot, key, 3);
        assert!(of_blocks.prefetch(slot.frame().expect("published"), BlockNo(3)));
        assert!(!of_filter.prefetch(slot.frame().expect("published"), BlockNo(3)));
        without.retire([(3, &slot)].into_iter());
        assert!(of_blocks.enter().find(&slot, key).is_some(), "another client's block");
        of_blocks.retire([(3, &slot)].into_iter());
        assert!(of_blocks.enter().find(&slot, key).is_none());

        assert_eq!(without.timed(4_096, || 5), 5);
        assert!(cache.read_times().short.is_none_or(|(bytes, _)| bytes == 4_096));
    }
}
