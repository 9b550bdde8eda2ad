//! Blocks: sorted entries, and the search for one of them.
//!
//! There are two layouts, distinguished by the first byte of the payload. [`plain`] has whole keys
//! and an offset for each entry, and is used for everything but data blocks. [`tagged`] removes
//! shared prefixes and has a tag of the digest for each entry, and is used for data blocks. The
//! meaning of key, sequence number, kind and value depends on the use of the block.
//!
//! [`DataBlock`] reads data blocks of both layouts in place. It checks the header when it is
//! created, and each access checks its own bounds, so a block is searched without being parsed
//! first. Damaged bytes that passed a checksum lead to an error or to wrong entries, never to a
//! panic.
//!
//! Not here: checksums and compression ([`frame`]).

mod builder;
mod cursor;
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
pub(crate) use self::cursor::EntryCursor;
pub(crate) use self::plain::{Block, BlockBuilder, EntryRef, LARGEST_PAYLOAD_BYTES, PlainView};

use shamba_key::{EntryKind, SeqNo};

pub(crate) use self::tagged::Window;

use self::tagged::Tagged;

/// An entry of a data block without its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryParts<'a> {
    pub(crate) seq: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
    /// Offset of the value in the payload, for callers that keep the block instead of the slice.
    pub(crate) value_start: usize,
}

/// A data block of either layout, over its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataBlock<'a> {
    Plain(PlainView<'a>),
    Tagged(Tagged<'a>),
}

impl<'a> DataBlock<'a> {
    /// Creates a view of `payload`; checks only its header.
    ///
    /// # Errors
    /// A description of the damage to the header; the methods below describe the damage that an
    /// access finds.
    #[inline]
    pub(crate) fn view(payload: &'a [u8]) -> Result<Self, String> {
        match payload.first() {
            Some(&tagged::LAYOUT_TAGGED) => Tagged::new(payload).map(Self::Tagged),
            _ => PlainView::new(payload).map(Self::Plain),
        }
    }

    /// Checks the whole structure, except order and tags.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Plain(block) => block.check(),
            Self::Tagged(block) => block.check(),
        }
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(block) => block.len(),
            Self::Tagged(block) => block.len(),
        }
    }

    /// The newest version of exactly `key` that is not newer than `seq`. `tag` is the block tag of
    /// the key's digest.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo, tag: u16) -> Result<Option<EntryParts<'a>>, String> {
        match self {
            Self::Plain(block) => block.find(key, seq),
            Self::Tagged(block) => block.find(key, seq, tag),
        }
    }

    /// Prefetches the entry that [`Self::find`] with this tag will look at first.
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

    /// Entry `number`, which must be below [`Self::len`]; its key replaces the content of `key`.
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

    /// Whether entry `number` may be found by `tag`: it has that tag, or the block has no tags.
    pub(crate) fn tag_agrees(&self, number: usize, tag: u16) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tagged(block) => block.tag_agrees(number, tag),
        }
    }

    /// The layout's name, for output.
    pub(crate) fn layout(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::Tagged(block) => block.layout(),
        }
    }
}
