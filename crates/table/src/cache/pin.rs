//! Pins: blocks that are used for longer than a section lasts.
//!
//! A pin is a count in the frame's record. It is added by somebody inside a section who found the block, by the
//! filler that publishes it, or by another pin; so a grace period after the frame was retired, no first pin
//! can be added any more. Then the frame is marked as retired in the same word: either its count was zero and
//! it is free, or whoever takes the count to zero frees it.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::BlockCache;
use super::slab::{RETIRED, Record};

/// As with other reference counts: whoever leaks so many pins is stopped before the count runs over.
const PINS_MAX: u32 = RETIRED / 2;

/// Bytes of a frame that stay as they are until this is dropped. Clones share the frame.
pub(crate) struct FramePin {
    cache: Arc<BlockCache>,
    start: NonNull<u8>,
    length: u32,
    frame: u32,
}

// SAFETY: the bytes are not changed while the frame is pinned, and the pin count is atomic.
unsafe impl Send for FramePin {}
// SAFETY: as above.
unsafe impl Sync for FramePin {}

impl FramePin {
    /// Pins a frame that the caller found inside a section or is about to publish; `payload` lies in it.
    pub(super) fn add(cache: &Arc<BlockCache>, record: &Record, frame: u32, payload: &[u8]) -> Self {
        add_one(record);
        Self {
            cache: Arc::clone(cache),
            start: NonNull::from(payload).cast(),
            // Set from a length of 32 bits.
            length: payload.len() as u32,
            frame,
        }
    }

    /// Only these of the bytes; `None` if they are not all there.
    pub(crate) fn narrow(mut self, range: Range<usize>) -> Option<Self> {
        let part = self.get(range)?;
        let (start, length) = (NonNull::from(part).cast(), part.len() as u32);
        self.start = start;
        self.length = length;
        Some(self)
    }

    fn record(&self) -> Option<&Record> {
        // The frame is pinned: its slab stays.
        self.cache.shelf.slabs.record(self.frame)
    }
}

fn add_one(record: &Record) {
    let before = record.pins.fetch_add(1, Ordering::Relaxed);
    if before & !RETIRED >= PINS_MAX {
        std::process::abort();
    }
}

impl Deref for FramePin {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and `length` are part of the bytes with which the frame was published, and a pinned
        // frame is not reused.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl AsRef<[u8]> for FramePin {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for FramePin {
    fn clone(&self) -> Self {
        if let Some(record) = self.record() {
            add_one(record);
        }
        Self { cache: Arc::clone(&self.cache), ..*self }
    }
}

impl Drop for FramePin {
    fn drop(&mut self) {
        let Some(record) = self.record() else {
            return;
        };
        // Release: what was read through this pin was read before the frame is used again.
        if record.pins.fetch_sub(1, Ordering::Release) == RETIRED | 1 {
            // What the other holders read comes before what is done next. (A load and not a fence, which the thread
            // sanitizer does not understand.)
            let _ = record.pins.load(Ordering::Acquire);
            self.cache.hand().unpinned(&self.cache.shelf, self.frame);
        }
    }
}

impl fmt::Debug for FramePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePin({} bytes)", self.length)
    }
}

/// A block's payload, kept for as long as it is needed: pinned in its frame, or in a buffer of its own.
#[derive(Clone, Debug)]
pub(crate) enum PinnedBlock {
    Frame(FramePin),
    Heap(Bytes),
}

impl PinnedBlock {
    /// Part of the block, to be shared; empty if it is not all there.
    pub(crate) fn share(&self, range: Range<usize>) -> Bytes {
        match self {
            Self::Frame(pin) => pin.clone().narrow(range).map_or_else(Bytes::new, Bytes::from_owner),
            Self::Heap(bytes) if bytes.get(range.clone()).is_some() => bytes.slice(range),
            Self::Heap(_) => Bytes::new(),
        }
    }
}

impl Deref for PinnedBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Frame(pin) => pin,
            Self::Heap(bytes) => bytes,
        }
    }
}
