//! Pins: blocks that are used beyond a section.
//!
//! A pin is a count in the frame's record. It is added inside a section by a reader that found the
//! block, by the filler that publishes it, or by cloning a pin. So once a grace period has passed
//! since the frame was retired, no first pin can be added. Then the frame is marked as retired in
//! the same word. If its count was zero it is free; otherwise the thread that takes the count to
//! zero frees it.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use shamba_env::{Share, Shares};

use super::Frames;
use super::slab::{RETIRED, Record};

/// Limit on pins, as with other reference counts: a leak of this many pins aborts before the count
/// overflows.
const PINS_MAX: u32 = RETIRED / 2;

/// Bytes of a pinned frame, unchanged until this is dropped. Clones share the frame.
pub(crate) struct FramePin {
    frames: Arc<Share<Frames>>,
    start: NonNull<u8>,
    length: u32,
    frame: u32,
}

// SAFETY: the bytes are not changed while the frame is pinned, and the pin count is atomic.
unsafe impl Send for FramePin {}
// SAFETY: as above.
unsafe impl Sync for FramePin {}

impl FramePin {
    /// Pins a frame that the caller found inside a section or is about to publish; `payload` lies
    /// in it.
    pub(super) fn add(frames: &Shares<Frames>, record: &Record, frame: u32, payload: &[u8]) -> Self {
        debug_assert!(u32::try_from(payload.len()).is_ok(), "a pinned block of {} bytes", payload.len());
        add_one(record);
        Self {
            frames: frames.share(),
            start: NonNull::from(payload).cast(),
            // `payload` was made from a 32-bit length.
            length: payload.len() as u32,
            frame,
        }
    }

    /// Restricts the pin to `range` of the bytes; `None` if the range exceeds them.
    pub(crate) fn narrow(mut self, range: Range<usize>) -> Option<Self> {
        let part = self.get(range)?;
        let (start, length) = (NonNull::from(part).cast(), part.len() as u32);
        debug_assert!(length <= self.length, "a pin of {} bytes is widened to {length}", self.length);
        self.start = start;
        self.length = length;
        Some(self)
    }

    fn record(&self) -> Option<&Record> {
        // The frame is pinned, so its slab is not freed.
        self.frames.shelf.slabs.record(self.frame)
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
        // SAFETY: `start` and `length` are part of the bytes with which the frame was published,
        // and a pinned frame is not reused.
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
        Self { frames: Arc::clone(&self.frames), ..*self }
    }
}

impl Drop for FramePin {
    fn drop(&mut self) {
        let Some(record) = self.record() else {
            return;
        };
        // Release: reads through this pin happen before the frame is used again.
        if record.pins.fetch_sub(1, Ordering::Release) == RETIRED | 1 {
            // Acquire: the other holders' reads happen before the frame's next use. (A load and not
            // a fence, which the thread sanitizer does not support.)
            let _ = record.pins.load(Ordering::Acquire);
            self.frames.hand().unpinned(&self.frames.shelf, self.frame);
        }
    }
}

impl fmt::Debug for FramePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePin({} bytes)", self.length)
    }
}

/// A block's payload, pinned in its frame or in its own buffer.
#[derive(Clone, Debug)]
pub(crate) enum PinnedBlock {
    Frame(FramePin),
    Heap(Bytes),
}

impl PinnedBlock {
    /// Part of the block, shared; empty if `range` exceeds it.
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
