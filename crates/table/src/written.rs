//! Facts about a table that was just written: samples of its blocks, for the check of the table
//! before its inputs are deleted, and the memory that it takes once it is open.

use crate::content::ContentDigest;
use crate::residency::Residency;

/// One block in this many is decoded and compared entry by entry. Builds with debug assertions, as
/// in tests, compare every block.
const SAMPLE_EVERY_BLOCKS: u64 = if cfg!(debug_assertions) { 1 } else { 16 };
const _: () = assert!(SAMPLE_EVERY_BLOCKS > 0, "one block in no blocks");

/// Samples of a table's blocks that its writer took for this check, and its memory once it is open.
#[derive(Clone, Default, Debug)]
pub struct WrittenBlocks {
    samples: Vec<Sample>,
    pub(crate) open: OpenMemory,
}

/// Maximum memory of a table that is open, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct OpenMemory {
    /// Memory that it holds in any case.
    pub fixed_bytes: usize,
    /// Memory of its whole filter and index.
    pub whole_bytes: usize,
}

/// One block that was written.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Offset of the block.
    pub offset: u64,
    /// Digest of its entries.
    pub content: ContentDigest,
}

impl WrittenBlocks {
    /// Maximum memory for opening the table with its filter and index in this residency mode: the
    /// amount for which a caller makes room before it opens the table.
    pub fn open_bytes(&self, residency: Residency) -> u64 {
        let OpenMemory { fixed_bytes, whole_bytes } = self.open;
        let resident_bytes = if residency == Residency::Pinned { whole_bytes } else { 0 };
        (fixed_bytes + resident_bytes) as u64
    }

    /// Whether block `number` of the table, counted from 0, is a sample.
    pub(crate) fn wants(&self, number: u64) -> bool {
        number.checked_rem(SAMPLE_EVERY_BLOCKS) == Some(0)
    }

    /// The samples, in the order of their offsets.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Adds the block at `offset` as a sample; `content` is the digest of its entries.
    pub(crate) fn remember(&mut self, offset: u64, content: ContentDigest) {
        debug_assert!(
            self.samples.last().is_none_or(|last| last.offset < offset),
            "the sample at {offset} does not come after the last one"
        );
        self.samples.push(Sample { offset, content });
    }
}
