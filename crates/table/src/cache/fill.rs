//! Misses: taking a frame, filling it and publishing it.
//!
//! No other thread sees the bytes before they are published, so they are written like any buffer.
//! Two readers that miss the same block each fill a frame; the first to publish wins, and the other
//! returns its frame. If both publish at the same moment, the slot names one of the frames; the
//! other is never referenced, and the CLOCK sweep evicts it.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::BlockCache;
use super::pin::{FramePin, PinnedBlock};
use super::slab::{BlockKey, FRAME_SIZE, Record};
use crate::slot::FrameSlot;

/// A frame that the holder owns, a multiple of [`FRAME_SIZE`] long. Returned to the cache when
/// dropped.
pub(crate) struct FreshFrame<'a> {
    cache: &'a Arc<BlockCache>,
    frame: u32,
    start: NonNull<u8>,
    bytes: usize,
}

impl BlockCache {
    /// Takes a frame of at least `bytes`, if one is available at once.
    pub(crate) fn fresh(self: &Arc<Self>, bytes: usize) -> Option<FreshFrame<'_>> {
        if self.capacity_bytes() == 0 {
            return None;
        }
        let shelf = &self.frames.shelf;
        let bytes = bytes.max(1).checked_next_multiple_of(FRAME_SIZE)?;
        let taken = if bytes == FRAME_SIZE {
            self.frames.hand().take_small(shelf)?
        } else {
            self.frames.hand().take_large(shelf, bytes as u64)?
        };
        // From here on this thread owns the frame; it is returned if anything below fails.
        let mut fresh = FreshFrame { cache: self, frame: taken.frame, start: NonNull::dangling(), bytes: 0 };
        let (record, _) = shelf.slabs.frame(taken.frame)?;
        if bytes > FRAME_SIZE && !shelf.slabs.allocate_large(taken.frame, record) {
            return None;
        }
        fresh.start = NonNull::new(shelf.slabs.frame(taken.frame)?.1)?;
        if taken.unwritten {
            // SAFETY: a small frame is `FRAME_SIZE` bytes, and this thread owns it. Its slab's
            // memory has never been written, so it is initialised here, before a slice of bytes is
            // made of it.
            unsafe { fresh.start.write_bytes(0, FRAME_SIZE) };
        }
        fresh.bytes = bytes;
        debug_assert!(fresh.bytes % FRAME_SIZE == 0, "a frame of {bytes} bytes");
        Some(fresh)
    }
}

impl Deref for FreshFrame<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is owned, `bytes` long and initialised: large ones when they were
        // allocated, small ones by `fresh`. (Dangling only with length 0.)
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for FreshFrame<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. No other reference to the bytes exists. The previous holders of the
        // frame left a grace period ago or gave the frame back, and without a key no reader can
        // find it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl FreshFrame<'_> {
    /// Publishes the first `length` bytes as block `key`, unless another thread has published the
    /// block.
    pub(crate) fn publish(self, slot: &FrameSlot, key: BlockKey, length: usize) {
        if self.cache.enter().find(slot, key).is_none() {
            if let Some(record) = self.prepare(length) {
                self.show(record, slot, key);
                // It is shared now: do not give it back.
                std::mem::forget(self);
            }
        }
    }

    /// As [`Self::publish`], and pins the block: this frame or the one that another thread
    /// published.
    pub(crate) fn publish_pinned(self, slot: &FrameSlot, key: BlockKey, length: usize) -> PinnedBlock {
        if let Some(other) = self.cache.enter().find(slot, key).map(|hit| hit.pin()) {
            return PinnedBlock::Frame(other);
        }
        let (Some(record), Some(payload)) = (self.prepare(length), self.get(..length)) else {
            // Longer than the frame.
            return PinnedBlock::Heap(Bytes::copy_from_slice(&self));
        };
        let pin = FramePin::add(&self.cache.frames, record, self.frame, payload);
        self.show(record, slot, key);
        std::mem::forget(self);
        PinnedBlock::Frame(pin)
    }

    fn prepare(&self, length: usize) -> Option<&Record> {
        let stored = u32::try_from(length).ok().filter(|_| length <= self.bytes)?;
        let record = self.cache.frames.shelf.slabs.record(self.frame)?;
        debug_assert!(length <= self.bytes, "{length} bytes are published of a frame of {}", self.bytes);
        record.length.store(stored, Ordering::Relaxed);
        // Reference bit clear: a block that is read once, as in a scan, is evicted on the first
        // sweep.
        record.mark.store(0, Ordering::Relaxed);
        Some(record)
    }

    fn show(&self, record: &Record, slot: &FrameSlot, key: BlockKey) {
        debug_assert!(key.0 != 0, "frame {} is published under the key of no block", self.frame);
        let shelf = &self.cache.frames.shelf;
        // Sequentially consistent, as is the load below: either the thread that drains the frame's
        // slab sees the key, or this thread sees that a slab is draining.
        record.key.store(key.0, Ordering::SeqCst);
        slot.point_to(self.frame);
        if shelf.draining.load(Ordering::SeqCst) != 0 {
            self.cache.frames.hand().published_while_draining(shelf, self.frame);
        }
    }
}

impl Drop for FreshFrame<'_> {
    fn drop(&mut self) {
        // Unpublished: no other thread has seen the frame.
        self.cache.frames.hand().give_back(&self.cache.frames.shelf, self.frame);
    }
}
