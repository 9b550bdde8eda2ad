//! Hits: looking into a frame while one is inside a section.
//!
//! Short and never over a read or a caller's code: as long as anybody is inside, no frame is reused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_key::prefetch_address;

use super::BlockCache;
use super::epoch::Inside;
use super::pin::FramePin;
use super::slab::{BlockKey, Record};
use crate::index::FrameSlot;

/// Inside the cache until dropped.
pub(crate) struct Section<'a> {
    cache: &'a Arc<BlockCache>,
    _inside: Inside<'a>,
}

/// A block that the cache has, readable as long as the section lasts.
pub(crate) struct Hit<'s> {
    cache: &'s Arc<BlockCache>,
    record: &'s Record,
    frame: u32,
    payload: &'s [u8],
}

impl BlockCache {
    /// Enters a section.
    #[inline]
    pub(crate) fn enter(self: &Arc<Self>) -> Section<'_> {
        Section { cache: self, _inside: self.shelf.epoch.enter() }
    }

    /// Whether the block is in the cache; if so, its first two cache lines are asked for.
    pub(crate) fn prefetch(self: &Arc<Self>, frame: u32, key: BlockKey) -> bool {
        self.enter().look(frame, key).is_some()
    }
}

impl Section<'_> {
    /// The bytes of the block if `frame` has it; no mark that it was asked for.
    #[inline]
    pub(crate) fn peek(&self, frame: u32, key: BlockKey) -> Option<&[u8]> {
        self.look(frame, key).map(|hit| hit.payload)
    }

    /// The block if the cache has it, and a mark that it was asked for.
    #[inline]
    pub(crate) fn find(&self, slot: &FrameSlot, key: BlockKey) -> Option<Hit<'_>> {
        self.find_in(slot.frame()?, key)
    }

    /// As [`Self::find`], where a slot said `frame` some time ago.
    #[inline]
    pub(crate) fn find_in(&self, frame: u32, key: BlockKey) -> Option<Hit<'_>> {
        let hit = self.look(frame, key)?;
        // Looked at first: a store would take the cache line from all other readers of a popular block.
        if hit.record.mark.load(Ordering::Relaxed) == 0 {
            hit.record.mark.store(1, Ordering::Relaxed);
        }
        Some(hit)
    }

    #[inline]
    fn look(&self, frame: u32, key: BlockKey) -> Option<Hit<'_>> {
        let (record, data) = self.cache.shelf.slabs.frame(frame)?;
        // Header, tags, common prefix and offsets on their way while the record is waited for: it is the right frame as a rule.
        prefetch_address(data);
        prefetch_address(data.wrapping_add(64));
        prefetch_address(data.wrapping_add(128));
        // Acquire: the bytes and the length were written before the key.
        if record.key.load(Ordering::Acquire) != key.0 {
            return None;
        }
        let length = record.length.load(Ordering::Relaxed) as usize;
        // SAFETY: the frame was published with this key and `length` initialised bytes, and it has not been
        // reused since: that takes a grace period after the key was taken away, and this section, which saw
        // the key, is still inside. Nobody writes to published bytes.
        let payload = unsafe { std::slice::from_raw_parts(data, length) };
        Some(Hit { cache: self.cache, record, frame, payload })
    }
}

impl<'s> Hit<'s> {
    /// The block.
    #[inline]
    pub(crate) fn payload(&self) -> &'s [u8] {
        self.payload
    }

    /// The block, to be kept beyond the section.
    pub(crate) fn pin(&self) -> FramePin {
        FramePin::add(self.cache, self.record, self.frame, self.payload)
    }
}
