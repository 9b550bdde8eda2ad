//! Samples of the blocks that a writer wrote, for the check of the table before its inputs are
//! deleted.

use crate::content::ContentDigest;

/// One block in this many is decoded and compared entry by entry. Builds with debug assertions, as
/// in tests, compare every block.
const SAMPLE_EVERY_BLOCKS: u64 = if cfg!(debug_assertions) { 1 } else { 16 };
const _: () = assert!(SAMPLE_EVERY_BLOCKS > 0, "one block in no blocks");
/// Samples of a table's blocks that its writer took for this check.
#[derive(Clone, Default, Debug)]
pub struct WrittenBlocks {
    samples: Vec<Sample>,
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
