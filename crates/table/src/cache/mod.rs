//! The block cache: decompressed, verified blocks in frames, found without a lock.
//!
//! Whoever has the index entry of a block has its [`FrameSlot`]: the number of the frame that last held the
//! block. A hit is: enter a [section](section), load the slot, compare the frame's key with the block's, read.
//! Nothing is written but the frame's mark, and that only when it is clear. A slot may be out of date, a key
//! never is: a frame changes hands only after its key was taken away and everybody who saw it has left
//! ([`epoch`]).
//!
//! A miss reads straight into a frame of its own ([`fill`]) and publishes it, if the block is to be kept
//! ([`admission`]). If it is not, or no frame can be had at once, the block is served from a buffer: nobody waits
//! for memory here. A section never lasts over a
//! read or a caller's code; who needs a block for longer [pins](pin) its frame.
//!
//! References of lookups to data blocks are sampled on request ([`reuse`]): how often which size would miss.
//!
//! What is published was verified and never changes. Blocks above a frame's size have allocations of their
//! own within the same capacity, which can change while the cache is in use. Frames, their records and large
//! blocks are charged to the ledger when they are allocated; the slots belong to the index, which charges them.
//! What is left out are the readers' counts and the directory of slabs, some kilobytes a cache.
//!
//! Thread safety: everything is shared freely. Locks are taken on misses and by the last unpinning of a frame
//! that was given up meanwhile, never on a hit.
//!
//! Why it is so, and what it costs: `docs/decisions/0007-block-cache.md`.
//!
//! Not here: compression and checksums (the reader's).
#![allow(unsafe_code)] // Frames are shared between threads; each use says why it may.

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

use shamba_key::planted::{Defect, is_planted};

pub(crate) use self::admission::Miss;
pub use self::admission::ReadTimes;
pub(crate) use self::fill::FreshFrame;
pub(crate) use self::pin::{FramePin, PinnedBlock};
pub(crate) use self::slab::{BlockKey, FRAME_SIZE};

use self::admission::Admission;
use self::epoch::Epoch;
use self::ghosts::Ghosts;
use self::hand::{Hand, LARGE_PART_MAX, Shelf};
use self::reuse::Reuse;
use self::slab::{NUMBERS_MAX, Slabs};
use crate::id::TableId;
use crate::index::FrameSlot;
use crate::ledger::Ledger;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{IS_EXPLORED, Mutex, MutexGuard, PoisonError};

/// Frames of a slab, at least: so many are memory of their own ([`shamba_env::Pages`]), which goes back to the system.
/// A model of all schedules has fewer, for each is a step of its own.
const SLAB_FRAMES_MIN: u64 = if IS_EXPLORED { 4 } else { 8 };
/// Blocks of a closed table that are looked at without letting others go on.
const CLOSED_AT_ONCE: usize = 256;
/// A slab is about this part of the capacity that a cache begins with: what does not fill a slab is not used, and memory may
/// leave the cache little of what it began with.
const SLAB_PART: u64 = 128;
/// From this capacity on a slab is a large page of the memory.
const LARGE_PAGES_FROM_BYTES: u64 = 32 << 20;

/// What an open table is to the cache; never given twice. Its blocks' keys are made of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CachedTable(u32);

impl CachedTable {
    /// The key of the table's block `number`.
    #[inline]
    pub(crate) fn key(self, number: u32) -> BlockKey {
        BlockKey(u64::from(self.0) << 32 | u64::from(number))
    }
}

/// Keeps blocks in memory. Shared by all tables of a database.
pub struct BlockCache {
    shelf: Shelf,
    hand: Mutex<Hand>,
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
    /// A cache of `capacity_bytes`, charged to `ledger` as it grows; 0 keeps nothing. The capacity can change
    /// ([`Self::set_capacity_bytes`]), the size of the pieces in which memory is taken is chosen here, for a
    /// capacity of this magnitude.
    pub fn new(capacity_bytes: u64, ledger: Arc<Ledger>) -> Self {
        let shift = slab_numbers(capacity_bytes).ilog2();
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
            shelf,
            hand: Mutex::default(),
            next_table: AtomicU32::new(1),
            tables: Mutex::default(),
            reuse: Reuse::default(),
        }
    }

    /// Keeps blocks of any size up to the capacity: for filters and indexes that are cached whole, which
    /// compete with smaller blocks on equal terms.
    #[must_use]
    pub fn keeping_whole(mut self) -> Self {
        self.shelf.large_part_max = 1;
        self
    }

    /// Keeps every block that is missed, however quickly it was read: for those who count reads, not time.
    #[must_use]
    pub fn keeping_all(mut self) -> Self {
        self.shelf.admission.keeps_all = true;
        self
    }

    /// The most that it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.shelf.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Misses so far of blocks that a cache larger by some bytes would have had, and these bytes.
    pub fn ghost_hits(&self) -> (u64, u64) {
        self.shelf.ghosts.hits()
    }

    /// What it holds now.
    pub fn bytes(&self) -> u64 {
        self.shelf.held_bytes.load(Ordering::Relaxed)
    }

    /// Lets it grow to `bytes`, or shrinks it to that at once. What readers are just looking at goes a little
    /// later, pinned blocks when they are let go.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.shelf.capacity_bytes.store(bytes, Ordering::Relaxed);
        self.shelf.admission.set_crowded(false);
        self.hand().shrink(&self.shelf);
    }

    /// Forgets every block of a table. Looks at all frames; a reader that goes away forgets its own by itself.
    pub fn remove_table(&self, id: TableId) {
        let range = (id, CachedTable(0))..=(id, CachedTable(u32::MAX));
        let dead: BTreeSet<u32> = locked(&self.tables).range(range).map(|(_, table)| table.0).collect();
        if dead.is_empty() {
            return;
        }
        let mut slab = 0;
        // The lock is let go between slabs: misses need it.
        while self.hand().retire_table(&self.shelf, slab, |key| dead.contains(&((key >> 32) as u32))) {
            slab += 1;
        }
        self.hand().reclaim(&self.shelf);
        self.shelf.admission.set_crowded(false);
    }

    /// What the blocks of a newly opened table are kept by; `None` if the cache has seen too many tables to
    /// tell one more apart.
    pub(crate) fn add_table(&self, id: TableId) -> Option<CachedTable> {
        let next = |last: u32| last.checked_add(1);
        let number = self.next_table.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let table = CachedTable(if is_planted(Defect::CacheNumberReused) { 1 } else { number });
        locked(&self.tables).insert((id, table));
        Some(table)
    }

    /// Forgets a table that is closed. Its blocks are [retired](Self::retire_blocks) by whoever has their slots.
    pub(crate) fn close_table(&self, id: TableId, table: CachedTable) {
        locked(&self.tables).remove(&(id, table));
    }

    /// Makes the frames of blocks free that nobody will ask for: `slots` are theirs, by the blocks' numbers.
    pub(crate) fn retire_blocks<'s>(
        &self,
        table: CachedTable,
        slots: impl Iterator<Item = (u32, &'s FrameSlot)>,
    ) {
        let has = |frame: u32, key: BlockKey| {
            let record = self.shelf.slabs.record(frame)?;
            (record.key.load(Ordering::Relaxed) == key.0).then_some(record)
        };
        let mut slots =
            slots.filter_map(|(number, slot)| Some((slot.frame()?, table.key(number)))).peekable();
        while slots.peek().is_some() {
            // Few at a time: misses need the lock, and frames to go round.
            let inside = self.shelf.epoch.enter();
            let full = |(frame, key): &(u32, BlockKey)| has(*frame, *key).is_some();
            let full: Vec<_> = slots.by_ref().take(CLOSED_AT_ONCE).filter(full).collect();
            drop(inside);
            if full.is_empty() {
                continue;
            }
            let mut hand = self.hand();
            for (frame, key) in full {
                // Another block may be there by now.
                if let Some(record) = has(frame, key) {
                    hand.retire(&self.shelf, frame, record);
                }
            }
            hand.reclaim(&self.shelf);
            self.shelf.admission.set_crowded(false);
        }
    }

    fn hand(&self) -> MutexGuard<'_, Hand> {
        locked(&self.hand)
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        // Nobody is inside and nothing is pinned: both keep the cache alive. The slabs free the rest.
        self.hand().reclaim(&self.shelf);
        let bytes = self.bytes();
        self.shelf.release(bytes);
        self.reuse.release(&self.shelf.ledger);
    }
}

/// How many frame numbers a slab has, about, in a cache that begins with `capacity_bytes`.
fn slab_numbers(capacity_bytes: u64) -> u64 {
    let most = NUMBERS_MAX as u64;
    if capacity_bytes >= LARGE_PAGES_FROM_BYTES {
        return most;
    }
    (capacity_bytes / FRAME_SIZE as u64 / SLAB_PART).clamp(SLAB_FRAMES_MIN, most)
}

/// What is behind these locks is consistent between any two statements that can panic, so a poisoned one is
/// still good.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
