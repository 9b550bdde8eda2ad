//! A partition in either form, for code that works with both.
//!
//! Not here: the two forms ([`super::partition`], [`super::stored`]).

use shamba_key::SeqNo;

use super::handle::Handle;
use super::partition::Partition;
use super::stored::{Bounds, StoredPartition};

/// A partition of a table: decoded in memory, or as it was read.
#[derive(Clone, Copy)]
pub(crate) enum Listed<'a> {
    Decoded(&'a Partition),
    Stored(StoredPartition<'a>, Bounds<'a>),
}

impl<'a> Listed<'a> {
    /// Number of blocks that it lists.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Decoded(partition) => partition.len(),
            Self::Stored(partition, _) => partition.len(),
        }
    }

    /// The position of the first block that can hold an entry at or after `(key, seq)`.
    ///
    /// # Errors
    /// A description of the damage to the partition; the same holds for the methods below.
    pub(crate) fn find(self, key: &[u8], seq: SeqNo) -> std::result::Result<usize, String> {
        match self {
            Self::Decoded(partition) => Ok(partition.find(key, seq).at),
            Self::Stored(partition, bounds) => Ok(partition.find(key, seq, &bounds)?.0.at),
        }
    }

    pub(crate) fn handle(self, within: usize) -> std::result::Result<Handle, String> {
        match self {
            Self::Decoded(partition) => {
                partition.handle(within).ok_or_else(|| "a block is missing".to_owned())
            }
            Self::Stored(partition, bounds) => partition.handle(within, &bounds),
        }
    }

    /// The separator of a block; `None` in the decoded form, which keeps only the tails of
    /// separators.
    pub(crate) fn separator(self, within: usize) -> std::result::Result<Option<(&'a [u8], SeqNo)>, String> {
        match self {
            Self::Decoded(_) => Ok(None),
            Self::Stored(partition, _) => partition.separator(within).map(Some),
        }
    }

    /// Whether the separator of a block lies between two versions of `key`.
    pub(crate) fn goes_on(self, within: usize, key: &[u8]) -> std::result::Result<bool, String> {
        match self {
            Self::Decoded(partition) => Ok(partition.goes_on(within, key)),
            Self::Stored(partition, _) => {
                let (separator, seq) = partition.separator(within)?;
                Ok(separator == key && seq > SeqNo::ZERO)
            }
        }
    }
}
