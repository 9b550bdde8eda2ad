//! Blocks as lookups name them.
//!
//! Not here: finding them ([`super::Index`], and where that has to read, [`crate::reader`]).

use super::handle::Handle;

/// A data block of a table: its place among all of them, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockNo(pub(crate) u32);

impl BlockNo {
    /// The first block of a table that has one.
    pub(crate) const FIRST: Self = Self(0);

    /// The block after this one, if the table goes on.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The block `blocks` after this one.
    pub(crate) fn plus(self, blocks: usize) -> Self {
        // A table has fewer than 2^31.
        Self(self.0.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    /// The block before this one.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// A data block that a search of the index led to, and what the index knew of it then: whoever goes on with it need
/// not ask again.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    pub(crate) number: BlockNo,
    /// The partition that lists it.
    pub(crate) partition: u32,
    /// The frame that last held it, if its slot is in memory and says so.
    pub(crate) frame: Option<u32>,
    /// Where it lies, if that had to be read; what is in memory can be asked when it is wanted.
    pub(crate) handle: Option<Handle>,
    /// Whether versions of the key may lie in the next block, too.
    pub(crate) goes_on: bool,
}

impl Located {
    /// The index partition that lists it: its number among those of the table.
    pub fn partition(&self) -> usize {
        self.partition as usize
    }

    /// Whether it is the same block as another one of the same table.
    pub fn is_same_block(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// What a search of what is in memory says.
pub(crate) enum Find {
    /// The block to look at.
    At(Located),
    /// No block has such a place.
    Beyond,
    /// This partition says, and it is not in memory.
    Absent(usize),
}
