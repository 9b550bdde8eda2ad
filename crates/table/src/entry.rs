//! Entries and their order.
//!
//! Internal order: user key ascending (bytewise), then sequence number descending, so that the
//! newest version of a key comes first. No two entries have the same key and sequence number.

use shamba_key::{EntryKind, SeqNo};

use crate::value::Value;

/// The answer of a point lookup: one version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Sequence number.
    pub seq: SeqNo,
    /// Kind. The value of a large one ([`EntryKind::is_large`]) is stored elsewhere.
    pub kind: EntryKind,
    /// Its value; for a large value, the reference to it ([`crate::TableReader::read_large`]).
    pub value: Value,
}

/// The parts of an entry, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryView<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// Sequence number.
    pub seq: SeqNo,
    /// Kind.
    pub kind: EntryKind,
    /// The value; for a large one, the reference to it, in the terms of the source.
    pub value: &'a [u8],
    /// Whether the entry after it, if there is one, may have to be read from a file.
    pub is_last_at_hand: bool,
}
