//! Hits: reading a frame inside a section.
//!
//! A section is short and never spans a read or a caller's code: while any reader is inside, no
//! retired frame is reused.

use std::sync::atomic::Ordering;

use shamba_env::Shares;
use shamba_key::prefetch_address;

use super::epoch::Inside;
use super::hand::Shelf;
use super::pin::FramePin;
use super::slab::{BlockKey, Record};
use super::{BlockCache, Frames};
use crate::slot::FrameSlot;

/// A section of the cache, entered until dropped.
pub(crate) struct ReadSection<'a> {
    frames: &'a Shares<Frames>,
    shelf: &'a Shelf,
    _inside: Inside<'a>,
}

/// A cached block, readable until the section ends.
pub(crate) struct Hit<'s> {
    frames: &'s Shares<Frames>,
    record: &'s Record,
    frame: u32,
    payload: &'s [u8],
}

impl BlockCache {
    /// Enters a section.
    #[inline]
    pub(crate) fn enter(&self) -> ReadSection<'_> {
        let shelf = &self.frames.shelf;
        ReadSection { frames: &self.frames, shelf, _inside: shelf.epoch.enter() }
    }

    /// Whether the block is cached; if so, prefetches its first cache lines.
    pub(crate) fn prefetch(&self, frame: u32, key: BlockKey) -> bool {
        self.enter().look(frame, key).is_some()
    }

    /// Prefetches the record and the first cache lines of a frame, whatever it holds. Reads
    /// neither.
    pub(crate) fn prefetch_frame(&self, frame: u32) {
        let section = self.enter();
        if let Some((record, data)) = section.shelf.slabs.frame(frame) {
            prefetch_address(std::ptr::from_ref(record).cast());
            prefetch_first_lines(data);
        }
    }
}

impl ReadSection<'_> {
    /// Returns the block's bytes if `frame` holds it; does not set the reference bit.
    #[inline]
    pub(crate) fn peek(&self, frame: u32, key: BlockKey) -> Option<&[u8]> {
        self.look(frame, key).map(|hit| hit.payload)
    }

    /// Returns the block if it is cached, and sets its reference bit.
    #[inline]
    pub(crate) fn find(&self, slot: &FrameSlot, key: BlockKey) -> Option<Hit<'_>> {
        self.find_in(slot.frame()?, key)
    }

    /// As [`Self::find`], for a frame number that was loaded from a slot earlier.
    #[inline]
    pub(crate) fn find_in(&self, frame: u32, key: BlockKey) -> Option<Hit<'_>> {
        let hit = self.look(frame, key)?;
        // Load before store: a store would take the cache line from all other readers of a popular
        // block.
        if hit.record.mark.load(Ordering::Relaxed) == 0 {
            hit.record.mark.store(1, Ordering::Relaxed);
        }
        Some(hit)
    }

    #[inline]
    fn look(&self, frame: u32, key: BlockKey) -> Option<Hit<'_>> {
        let (record, data) = self.shelf.slabs.frame(frame)?;
        // Prefetch of header, tags, common prefix and offsets while the record is loaded: the slot
        // is almost always current.
        prefetch_first_lines(data);
        // Acquire: the bytes and the length were written before the key.
        if record.key.load(Ordering::Acquire) != key.0 {
            return None;
        }
        let length = record.length.load(Ordering::Relaxed) as usize;
        // SAFETY: the frame was published with this key and `length` initialised bytes at this
        // address, which is read after the key. It has not been reused since: reuse needs a grace
        // period after the key was cleared, and this section, which saw the key, is still inside.
        // Published bytes are never written.
        let payload = unsafe { std::slice::from_raw_parts(record.start(data), length) };
        Some(Hit { frames: self.frames, record, frame, payload })
    }
}

#[inline(always)]
fn prefetch_first_lines(data: *const u8) {
    prefetch_address(data);
    prefetch_address(data.wrapping_add(64));
    prefetch_address(data.wrapping_add(128));
}

impl<'s> Hit<'s> {
    /// The block's payload.
    #[inline]
    pub(crate) fn payload(&self) -> &'s [u8] {
        self.payload
    }

    /// Pins the block, so that it can be used beyond the section.
    pub(crate) fn pin(&self) -> FramePin {
        FramePin::add(self.frames, self.record, self.frame, self.payload)
    }
}
