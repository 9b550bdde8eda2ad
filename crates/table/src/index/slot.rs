//! Where the cache keeps a data block, noted beside the block's handle.
//!
//! A hint: whoever follows it asks the frame whose block it holds. So a slot is read and written without a
//! lock, and a frame can be given to another block without anybody looking for the old block's slot.
//!
//! Not here: frames ([`crate::cache`]).

use crate::sync::atomic::{AtomicU32, Ordering};

/// The number of the frame that a block was last put into, if any.
#[derive(Debug)]
pub(crate) struct FrameSlot(AtomicU32);

impl FrameSlot {
    const EMPTY: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Self::EMPTY))
    }

    /// The frame to look at. What was written to the frame before [`Self::point_to`] is seen.
    #[inline]
    pub(crate) fn frame(&self) -> Option<u32> {
        let frame = self.0.load(Ordering::Acquire);
        (frame != Self::EMPTY).then_some(frame)
    }

    /// Notes `frame`, which is below `u32::MAX`.
    pub(crate) fn point_to(&self, frame: u32) {
        debug_assert!(frame != Self::EMPTY);
        self.0.store(frame, Ordering::Release);
    }
}
