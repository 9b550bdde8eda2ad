//! Where the slots of a shard are, readable without its lock.
//!
//! A hint for the prefetch of a slot's cache line: address and number are written under the lock of
//! the shard and read without it, so a reader may see those of two different moments. A prefetch
//! reads nothing and never faults, so the only consequence is a line that is not needed.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use shamba_key::prefetch_address;

use super::index::{self, Index};

/// Address and number of slots.
#[derive(Default)]
pub(super) struct SlotsHint {
    first: AtomicPtr<u8>,
    slots: AtomicUsize,
}

impl SlotsHint {
    /// Sets both.
    pub fn set(&self, (first, slots): (*const u8, usize)) {
        self.first.store(first.cast_mut(), Ordering::Relaxed);
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Prefetches the cache line at which the search for `tag` begins.
    #[inline]
    pub fn prefetch(&self, tag: u32) {
        let home = index::home(tag, self.slots.load(Ordering::Relaxed));
        let first = self.first.load(Ordering::Relaxed);
        prefetch_address(first.wrapping_add(home * Index::SLOT_BYTES));
    }
}
