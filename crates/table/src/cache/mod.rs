//! The block cache: decompressed, verified blocks in frames, found without a lock.
//!
//! The index entry of a block has a [`FrameSlot`]: the number of the frame that last held the
//! block. A hit enters a [section](section), loads the slot, compares the frame's key with the
//! block's key, and reads. The only write of a hit is to the frame's reference bit, if that is
//! clear. A slot may be stale, but a key is not: a frame is reused only after its key was cleared
//! and every reader that may have seen the key has left its section ([`epoch`]).
//!
//! A miss takes a frame of its own, reads into it ([`fill`]) and publishes it if the block is
//! admitted ([`admission`]). If the block is not admitted, or no frame is available at once, the
//! block is served from a buffer: a miss never waits for memory. A section never spans a read or a
//! caller's code; a reader that needs a block for longer [pins](pin) its frame.
//!
//! References of lookups to data blocks are sampled on request ([`reuse`]), which yields a
//! miss-ratio curve.
//!
//! A published block was verified and never changes. Blocks larger than a frame have their own
//! allocations within the same capacity, which can change while the cache is in use. Frames, their
//! records and large blocks are charged to the ledger when they are allocated; the slots belong to
//! the index, which charges them. Not charged: the reader counters and the directory of slabs, a
//! few kilobytes per cache.
//!
//! Thread safety: everything can be shared. Locks are taken on misses, and by the last unpinning of
//! a frame that was retired meanwhile; never on a hit.
//!
//! Design and measurements: `docs/decisions/0007-block-cache.md`.
//!
//! Not here: compression and checksums (the reader's).
// Frames are shared between threads; each use states why it is sound.
#![allow(unsafe_code)]

mod admission;
mod epoch;
mod fill;
mod ghosts;
mod hand;
mod pin;
mod reuse;
mod section;
mod slab;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use shamba_env::{Clock, Shares};
use shamba_model::miss_ratio::MissRatioCurve;

pub(crate) use self::admission::Miss;
pub use self::admission::ReadTimes;
pub(crate) use self::fill::FreshFrame;
pub(crate) use self::pin::{FramePin, PinnedBlock};
pub(crate) use self::section::ReadSection;
pub(crate) use self::slab::{BlockKey, FRAME_SIZE};

use self::admission::Admission;
use self::epoch::Epoch;
use self::ghosts::Ghosts;
use self::hand::{Hand, LARGE_PART_MAX, Shelf};
use self::reuse::Reuse;
use self::slab::{NUMBERS_MAX, Slabs};
use crate::id::TableId;
use crate::ledger::Ledger;
use crate::slot::FrameSlot;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{IS_EXPLORED, Mutex, MutexGuard, PoisonError};

/// Minimum number of frames in a slab. Memory of this size has its own mapping
/// ([`shamba_env::Pages`]), so freeing it returns it to the system. Under the schedule explorer
/// slabs have fewer frames, because each frame adds steps.
const SLAB_FRAMES_MIN: u64 = if IS_EXPLORED { 4 } else { 8 };
/// Blocks of a closed table that are retired in one critical section.
const CLOSED_AT_ONCE: usize = 256;
/// Divisor: approximate size of a slab as a fraction of the capacity at creation. Small slabs waste
/// less of the capacity, and can be freed when the division of memory later leaves the cache a
/// small part of it.
const SLAB_PART: u64 = 128;
/// From this capacity on, a slab is one huge page (2 MiB).
const LARGE_PAGES_FROM_BYTES: u64 = 32 << 20;

/// The cache's number for an open table, never reused. The keys of the table's blocks contain it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CachedTable(u32);

impl CachedTable {
    /// The key of the table's block `number`.
    #[inline]
    pub(crate) fn key(self, number: u32) -> BlockKey {
        BlockKey(u64::from(self.0) << 32 | u64::from(number))
    }
}

/// A block cache, shared by all tables of a database.
pub struct BlockCache {
    frames: Shares<Frames>,
    next_table: AtomicU32,
    tables: Mutex<BTreeSet<(TableId, CachedTable)>>,
    reuse: Reuse,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, capacity_bytes) = (self.bytes(), self.capacity_bytes());
        f.debug_struct("BlockCache")
            .field("bytes", &bytes)
            .field("capacity_bytes", &capacity_bytes)
            .finish_non_exhaustive()
    }
}

impl BlockCache {
    /// Creates a cache of `capacity_bytes`, charged to `ledger` as it grows; 0 caches nothing. The
    /// capacity can change ([`Self::set_capacity_bytes`]); the slab size is chosen here, from this
    /// capacity.
    pub fn new(capacity_bytes: u64, ledger: Arc<Ledger>) -> Self {
        let shift = slab_numbers(capacity_bytes).ilog2();
        assert!(1 << shift <= NUMBERS_MAX, "slabs of 2^{shift} frames, at most {NUMBERS_MAX} allowed");
        let shelf = Shelf {
            epoch: Epoch::default(),
            slabs: Slabs::new(shift),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            held_bytes: AtomicU64::new(0),
            draining: AtomicUsize::new(0),
            large_part_max: LARGE_PART_MAX,
            admission: Admission::default(),
            ghosts: Ghosts::new(capacity_bytes),
            ledger,
        };
        Self {
            frames: Shares::new(Frames { shelf, hand: Mutex::default() }),
            next_table: AtomicU32::new(1),
            tables: Mutex::default(),
            reuse: Reuse::default(),
        }
    }

    /// Admits blocks of any size up to the capacity: for filters and indexes that are cached whole,
    /// which then compete with smaller blocks on equal terms.
    #[must_use]
    pub fn admitting_any_size(self) -> Self {
        self.shelf_mut(|shelf| shelf.large_part_max = 1)
    }

    /// Admits every missed block, however fast its read was: for experiments that count reads, not
    /// time.
    #[must_use]
    pub fn admitting_all(self) -> Self {
        self.shelf_mut(|shelf| shelf.admission.admits_all = true)
    }

    /// Capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.frames.shelf.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Ghost hits so far (misses that a larger cache would have served), and the bytes by which
    /// that cache would be larger.
    pub fn ghost_hits(&self) -> (u64, u64) {
        self.frames.shelf.ghosts.hits()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.frames.shelf.held_bytes.load(Ordering::Relaxed)
    }

    /// Sets the capacity to `bytes` and, if it is smaller, evicts at once. Frames that are being
    /// read are freed after a grace period, pinned frames when they are unpinned.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.frames.shelf.capacity_bytes.store(bytes, Ordering::Relaxed);
        self.frames.shelf.admission.set_crowded(false);
        self.frames.hand().shrink(&self.frames.shelf);
    }

    /// Removes every block of a table. Scans all frames; a reader that is closed removes its own
    /// blocks itself.
    pub fn remove_table(&self, id: TableId) {
        let range = (id, CachedTable(0))..=(id, CachedTable(u32::MAX));
        let dead: BTreeSet<u32> = locked(&self.tables).range(range).map(|(_, table)| table.0).collect();
        if dead.is_empty() {
            return;
        }
        let mut slab = 0;
        // The lock is released between slabs: misses need it.
        while self
            .frames
            .hand()
            .retire_table(&self.frames.shelf, slab, |key| dead.contains(&((key >> 32) as u32)))
        {
            slab += 1;
        }
        self.frames.hand().reclaim(&self.frames.shelf);
        self.frames.shelf.admission.set_crowded(false);
    }

    /// Registers a newly opened table; `None` if the table numbers are exhausted.
    pub(crate) fn add_table(&self, id: TableId) -> Option<CachedTable> {
        let next = |last: u32| last.checked_add(1);
        let number = self.next_table.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let table = CachedTable(number);
        assert!(number > 0, "number 0 would make the key of no block");
        locked(&self.tables).insert((id, table));
        Some(table)
    }

    /// Unregisters a closed table. The owner of its slots [retires](Self::retire_blocks) its
    /// blocks.
    pub(crate) fn close_table(&self, id: TableId, table: CachedTable) {
        let was_open = locked(&self.tables).remove(&(id, table));
        debug_assert!(was_open, "table {id} is closed twice, or was not opened as {table:?}");
    }

    /// Frees the frames of blocks that will not be read again: `slots` are their slots, by block
    /// number.
    pub(crate) fn retire_blocks<'s>(
        &self,
        table: CachedTable,
        slots: impl Iterator<Item = (u32, &'s FrameSlot)>,
    ) {
        let has = |frame: u32, key: BlockKey| {
            let record = self.frames.shelf.slabs.record(frame)?;
            (record.key.load(Ordering::Relaxed) == key.0).then_some(record)
        };
        let mut slots =
            slots.filter_map(|(number, slot)| Some((slot.frame()?, table.key(number)))).peekable();
        while slots.peek().is_some() {
            // In small batches: misses need the lock and free frames.
            let inside = self.frames.shelf.epoch.enter();
            let full = |(frame, key): &(u32, BlockKey)| has(*frame, *key).is_some();
            let full: Vec<_> = slots.by_ref().take(CLOSED_AT_ONCE).filter(full).collect();
            drop(inside);
            if full.is_empty() {
                continue;
            }
            let mut hand = self.frames.hand();
            for (frame, key) in full {
                // Another block may be in the frame by now.
                if let Some(record) = has(frame, key) {
                    hand.retire(&self.frames.shelf, frame, record);
                }
            }
            hand.reclaim(&self.frames.shelf);
            self.frames.shelf.admission.set_crowded(false);
        }
    }

    /// Notes that a block missed the cache and is about to be read; `key` if the cache could hold
    /// it.
    pub(crate) fn missed(&self, key: Option<BlockKey>, clock: &dyn Clock) -> Miss {
        self.frames.shelf.admission.missed(key, &self.frames.shelf.ghosts, clock)
    }

    /// Notes that the missed block was read, with its length in bytes.
    pub(crate) fn was_read(&self, miss: Miss, bytes: usize, clock: &dyn Clock) {
        self.frames.shelf.admission.was_read(miss, bytes, clock);
    }

    /// Moving average of the time of block reads, in nanoseconds; 0 before the first.
    pub fn read_ns(&self) -> u64 {
        self.frames.shelf.admission.read_ns()
    }

    /// Moving averages of read times, by size class.
    pub fn read_times(&self) -> ReadTimes {
        self.frames.shelf.admission.read_times()
    }

    /// Adds a read's time to the average. Concurrent measurements may be lost.
    pub fn note_read(&self, bytes: usize, ns: u64) {
        self.frames.shelf.admission.note_read(bytes, ns);
    }

    /// Samples the references of lookups to data blocks, tracking at most `tracked_max` blocks.
    #[must_use]
    pub fn observing_reuse(self, tracked_max: usize) -> Self {
        self.reuse.observe(tracked_max, &self.frames.shelf.ledger);
        self
    }

    /// Notes a lookup's reference to a block of `payload_bytes`, cached or not. Short enough for a
    /// section.
    #[inline]
    pub(crate) fn referenced(&self, key: BlockKey, payload_bytes: usize) {
        self.reuse.referenced(key, payload_bytes, &self.frames.shelf.ledger);
    }

    /// Reports the total number of references of lookups to data blocks, a monotonic counter.
    pub fn count_references(&self, references: u64) {
        self.reuse.count_references(references);
    }

    /// The observed miss-ratio curve over the capacity as a share of `data_bytes`; `None` while the
    /// sample is too small.
    pub fn reuse_curve(&self, data_bytes: u64) -> Option<MissRatioCurve> {
        self.reuse.curve(data_bytes)
    }

    /// The share of observed references that a cache of `capacity_bytes` misses; `None` while the
    /// sample is too small.
    pub fn reuse_miss_ratio(&self, capacity_bytes: u64) -> Option<f64> {
        self.reuse.miss_ratio(capacity_bytes)
    }

    /// The cache with a change of what is fixed at its creation.
    fn shelf_mut(mut self, change: impl FnOnce(&mut Shelf)) -> Self {
        match self.frames.sole_mut() {
            Some(frames) => change(&mut frames.shelf),
            None => debug_assert!(false, "a cache that is in use is changed"),
        }
        self
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.reuse.release(&self.frames.shelf.ledger);
    }
}

/// The frames of a cache. A pin keeps them, also when the cache is gone.
struct Frames {
    shelf: Shelf,
    hand: Mutex<Hand>,
}

impl Frames {
    fn hand(&self) -> MutexGuard<'_, Hand> {
        locked(&self.hand)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // No reader is inside and nothing is pinned: both hold the frames. The slabs free what they
        // own.
        self.hand().reclaim(&self.shelf);
        let bytes = self.shelf.held();
        self.shelf.release(bytes);
        debug_assert_eq!(self.shelf.held(), 0, "the frames of a dropped cache are still charged");
    }
}

/// Frame numbers per slab, approximately, in a cache created with `capacity_bytes`.
fn slab_numbers(capacity_bytes: u64) -> u64 {
    let most = NUMBERS_MAX as u64;
    if capacity_bytes >= LARGE_PAGES_FROM_BYTES {
        return most;
    }
    (capacity_bytes / FRAME_SIZE as u64 / SLAB_PART).clamp(SLAB_FRAMES_MIN, most)
}

/// Locks, ignoring poison: the guarded state is consistent between any two statements that can
/// panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
