//! Blocks: sorted entries, and quick ways to one of them.
//!
//! Two layouts, told apart by the first byte of the payload: [`plain`], whole keys and an offset for each, for
//! everything that a table lists, and [`tagged`], shared prefixes cut and a tag of the digest for each entry,
//! for data blocks. What key, sequence number, kind and value mean differs by where the block is.
//!
//! [`DataBlock`] reads data blocks of both layouts in place: it checks the header when it is made, and each
//! access for itself, so that a hot block is searched without having been parsed. Bytes that passed a checksum
//! and are damaged all the same give an error, or what they say; never a panic.
//!
//! Not here: checksums and compression ([`frame`]).

mod builder;
pub(crate) mod frame;
mod pieces;
mod plain;
mod tagged;
mod tags;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub(crate) use self::builder::{DataBlockBuilder, NewEntry, shared_bytes};
pub(crate) use self::plain::{Block, BlockBuilder, EntryRef, LARGEST_PAYLOAD_BYTES, PlainView};

use std::ops::Range;

use shamba_key::{EntryKind, SeqNo};

use self::tagged::Tagged;

/// An entry of a data block, its key apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryParts<'a> {
    pub(crate) seq: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
    /// Where the value starts in the payload, for whoever keeps the block and not the slice.
    pub(crate) value_start: usize,
}

/// A data block over its payload, of either layout.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataBlock<'a> {
    Plain(PlainView<'a>),
    Tagged(Tagged<'a>),
}

impl<'a> DataBlock<'a> {
    /// A view of `payload`; checks its header and nothing else.
    ///
    /// # Errors
    /// What is wrong with the header; so below, with what an access meets.
    #[inline]
    pub(crate) fn view(payload: &'a [u8]) -> Result<Self, String> {
        match payload.first() {
            Some(&tagged::LAYOUT_TAGGED) => Tagged::new(payload).map(Self::Tagged),
            _ => PlainView::new(payload).map(Self::Plain),
        }
    }

    /// Checks the whole structure, order and tags excepted.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Plain(block) => block.check(),
            Self::Tagged(block) => block.check(),
        }
    }

    /// How many entries it holds.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(block) => block.len(),
            Self::Tagged(block) => block.len(),
        }
    }

    /// The newest version of exactly `key` that is not newer than `seq`. `tag` is the block tag of the key's
    /// digest.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo, tag: u16) -> Result<Option<EntryParts<'a>>, String> {
        match self {
            Self::Plain(block) => block.find(key, seq),
            Self::Tagged(block) => block.find(key, seq, tag),
        }
    }

    /// Asks for the bytes of the entry that [`Self::find`] with this tag will look at first.
    #[inline]
    pub(crate) fn prefetch_found(&self, tag: u16) {
        if let Self::Tagged(block) = self {
            block.prefetch_found(tag);
        }
    }

    /// The number of the first entry at or after `(key, seq)`; [`Self::len`] if there is none.
    pub(crate) fn lower_bound(&self, key: &[u8], seq: SeqNo) -> Result<usize, String> {
        match self {
            Self::Plain(block) => block.lower_bound(key, seq),
            Self::Tagged(block) => block.lower_bound(key, seq),
        }
    }

    /// Entry `number`, which must be below [`Self::len`], its key put into `key`.
    pub(crate) fn entry(&self, number: usize, key: &mut Vec<u8>) -> Result<EntryParts<'a>, String> {
        match self {
            Self::Plain(block) => {
                key.clear();
                block.append(number, key)
            }
            Self::Tagged(block) => {
                key.clear();
                block.append(number, key)
            }
        }
    }

    /// The entries `numbers`, which must be below [`Self::len`]: each is given to `each` after its key was appended
    /// to `keys`, with these. Cheaper than one by one.
    #[inline]
    pub(crate) fn take(
        &self,
        numbers: Range<usize>,
        keys: &mut Vec<u8>,
        mut each: impl FnMut(EntryParts<'a>, &[u8]),
    ) -> Result<(), String> {
        match self {
            Self::Plain(block) => numbers.into_iter().try_for_each(|number| {
                let parts = block.append(number, keys)?;
                each(parts, keys);
                Ok(())
            }),
            Self::Tagged(block) => block.take(numbers, keys, each),
        }
    }

    /// Whether entry `number` may be found by `tag`: it has that tag, or the block has none.
    pub(crate) fn tag_agrees(&self, number: usize, tag: u16) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tagged(block) => block.tag_agrees(number, tag),
        }
    }

    /// The layout's name, for people.
    pub(crate) fn layout(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::Tagged(block) => block.layout(),
        }
    }
}
