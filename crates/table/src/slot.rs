//! Frame slot: the number of the frame that last held a block, stored next to the block's handle.
//!
//! It is a hint: the reader compares the frame's key with the block's. So a slot is read and
//! written without a lock, and a frame can be reused for another block without an update of the old
//! block's slot.
//!
//! Not here: frames ([`crate::cache`]).

use crate::sync::atomic::{AtomicU32, Ordering};

/// The number of the frame that last held a block, if any.
#[derive(Debug)]
pub(crate) struct FrameSlot(AtomicU32);

impl FrameSlot {
    const EMPTY: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Self::EMPTY))
    }

    /// The frame to look at. Acquire: writes to the frame before [`Self::point_to`] are visible.
    #[inline]
    pub(crate) fn frame(&self) -> Option<u32> {
        let frame = self.0.load(Ordering::Acquire);
        (frame != Self::EMPTY).then_some(frame)
    }

    /// Stores `frame`, which is less than `u32::MAX`.
    pub(crate) fn point_to(&self, frame: u32) {
        debug_assert!(frame != Self::EMPTY);
        self.0.store(frame, Ordering::Release);
    }
}
