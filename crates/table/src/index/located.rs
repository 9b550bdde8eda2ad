//! Data blocks as lookups identify them.
//!
//! Not here: the search for them ([`super::Index`], and if that has to read, [`crate::reader`]).

use super::handle::Handle;

/// Number of a data block in its table, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockNo(pub(crate) u32);

impl BlockNo {
    /// The first block of a table that has one.
    pub(crate) const FIRST: Self = Self(0);

    /// The block after this one, if the table has one.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The block `blocks` after this one.
    pub(crate) fn plus(self, blocks: usize) -> Self {
        debug_assert!(blocks < 1 << 31, "{blocks} blocks, more than a table can have");
        // A table has fewer than 2^31 blocks.
        Self(self.0.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    /// The block before this one.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// A data block found by a search of the index, with what the index knew of it, so that later steps
/// do not search again.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    pub(crate) number: BlockNo,
    /// The partition that lists it.
    pub(crate) partition: u32,
    /// The frame that last held it, if its slot is in memory and set.
    pub(crate) frame: Option<u32>,
    /// Its place, if the partition had to be read; otherwise the partition in memory is asked when
    /// needed.
    pub(crate) handle: Option<Handle>,
    /// Whether versions of the key may lie in the next block, too.
    pub(crate) goes_on: bool,
}

impl Located {
    /// The number of the index partition that lists it.
    pub fn partition(&self) -> usize {
        self.partition as usize
    }

    /// Whether it is the same block as another one of the same table.
    pub fn is_same_block(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The number of an index partition that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbsentPartition(pub(crate) usize);

/// Result of a search of the part of the index that is in memory.
pub enum Find {
    /// The block to look at.
    At(Located),
    /// No block can hold such an entry.
    Beyond,
    /// The partition with the answer is not in memory.
    Absent(AbsentPartition),
}
