//! Misses: a frame of one's own, to be filled and published.
//!
//! Nobody else sees the bytes before they are published, so they are written as any buffer is. Two readers
//! that miss the same block both fill a frame; the first to publish wins, and the other gives its frame back. If
//! both publish at the same moment, the slot names one of them and the hand finds the other, never asked for.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::BlockCache;
use super::pin::{FramePin, PinnedBlock};
use super::slab::{BlockKey, FRAME_SIZE, Record};
use crate::index::FrameSlot;

/// A frame that the holder owns: a multiple of [`FRAME_SIZE`] long. Given back when dropped.
pub(crate) struct FreshFrame<'a> {
    cache: &'a Arc<BlockCache>,
    frame: u32,
    start: NonNull<u8>,
    bytes: usize,
}

impl BlockCache {
    /// A frame of at least `bytes`, if one can be had at once.
    pub(crate) fn fresh(self: &Arc<Self>, bytes: usize) -> Option<FreshFrame<'_>> {
        if self.capacity_bytes() == 0 {
            return None;
        }
        let shelf = &self.shelf;
        let bytes = bytes.max(1).checked_next_multiple_of(FRAME_SIZE)?;
        let taken = if bytes == FRAME_SIZE {
            self.hand().take_small(shelf)?
        } else {
            self.hand().take_large(shelf, bytes as u64)?
        };
        // From here on the frame is this thread's, and goes back if anything below fails.
        let mut fresh = FreshFrame { cache: self, frame: taken.frame, start: NonNull::dangling(), bytes: 0 };
        let (record, _) = shelf.slabs.frame(taken.frame)?;
        if bytes > FRAME_SIZE && !shelf.slabs.allocate_large(record) {
            return None;
        }
        fresh.start = NonNull::new(shelf.slabs.frame(taken.frame)?.1)?;
        if taken.unwritten {
            // SAFETY: a small frame is `FRAME_SIZE` bytes, and this thread owns it. Its slab's memory was never
            // written: a slice of bytes must not be made of it before.
            unsafe { fresh.start.write_bytes(0, FRAME_SIZE) };
        }
        fresh.bytes = bytes;
        Some(fresh)
    }
}

impl Deref for FreshFrame<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is owned, `bytes` long and initialised: large ones when they were allocated, small
        // ones by `fresh`. (Dangling only with length 0.)
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for FreshFrame<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and nobody else refers to the bytes: the last holders of the frame left it a grace
        // period ago or by giving it back, and it has no key by which others could find it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl FreshFrame<'_> {
    /// Lets everybody find the first `length` bytes as block `key`, unless another thread was faster.
    pub(crate) fn publish(self, slot: &FrameSlot, key: BlockKey, length: usize) {
        if self.cache.enter().find(slot, key).is_none() {
            if let Some(record) = self.prepare(length) {
                self.show(record, slot, key);
                std::mem::forget(self); // It is everybody's now.
            }
        }
    }

    /// As [`Self::publish`], and pins them, or what the other thread published.
    pub(crate) fn publish_pinned(self, slot: &FrameSlot, key: BlockKey, length: usize) -> PinnedBlock {
        if let Some(other) = self.cache.enter().find(slot, key).map(|hit| hit.pin()) {
            return PinnedBlock::Frame(other);
        }
        let (Some(record), Some(payload)) = (self.prepare(length), self.get(..length)) else {
            return PinnedBlock::Heap(Bytes::copy_from_slice(&self)); // Longer than the frame.
        };
        let pin = FramePin::add(self.cache, record, self.frame, payload);
        self.show(record, slot, key);
        std::mem::forget(self);
        PinnedBlock::Frame(pin)
    }

    fn prepare(&self, length: usize) -> Option<&Record> {
        let stored = u32::try_from(length).ok().filter(|_| length <= self.bytes)?;
        let record = self.cache.shelf.slabs.record(self.frame)?;
        record.length.store(stored, Ordering::Relaxed);
        // Unmarked: a block that is read once, as in a scan, goes at the hand's first visit.
        record.mark.store(0, Ordering::Relaxed);
        Some(record)
    }

    fn show(&self, record: &Record, slot: &FrameSlot, key: BlockKey) {
        let shelf = &self.cache.shelf;
        // Sequentially consistent, as is the load below: either whoever drains the frame's slab sees the key, or
        // this thread sees that a slab drains.
        record.key.store(key.0, Ordering::SeqCst);
        slot.point_to(self.frame);
        if shelf.draining.load(Ordering::SeqCst) != 0 {
            self.cache.hand().published_while_draining(shelf, self.frame);
        }
    }
}

impl Drop for FreshFrame<'_> {
    fn drop(&mut self) {
        // Unpublished: nobody else ever knew of it.
        self.cache.hand().give_back(&self.cache.shelf, self.frame);
    }
}
