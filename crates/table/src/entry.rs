//! Entries, their order, and the iterator that every sorted source of them offers.
//!
//! Internal order: user key ascending (bytewise), then sequence number descending, so that the newest version
//! of a key comes first. No two entries have the same key and sequence number.

use std::cmp::Ordering;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};

use crate::value::Value;
use crate::{Error, Result};

/// The answer of a point lookup: one version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When it was written.
    pub seq: SeqNo,
    /// What it says. [`EntryKind::ValueRef`] is a put whose value lies elsewhere.
    pub kind: EntryKind,
    /// Its payload; of a large value, where it lies ([`crate::TableReader::read_large`]).
    pub value: Value,
}

/// Compares two places in internal order.
#[inline]
pub fn internal_cmp(a_key: &[u8], a_seq: SeqNo, b_key: &[u8], b_seq: SeqNo) -> Ordering {
    a_key.cmp(b_key).then(b_seq.cmp(&a_seq))
}

/// The parts of an entry, where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryView<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// When it was written.
    pub seq: SeqNo,
    /// What it says.
    pub kind: EntryKind,
    /// The value; of a large one, where it lies, in terms of the source.
    pub value: &'a [u8],
}

/// Walks a sorted source of entries, both ways, in internal order.
///
/// A new iterator is not valid: it must be sought first. After an error it is not valid either; a new seek
/// starts over.
pub trait EntryIter: Send {
    /// Goes to the first entry.
    ///
    /// # Errors
    /// What reading says; so for every call below.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Goes to the last entry.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn seek_to_last(&mut self) -> Result<()>;
    /// Goes to the first entry at or after `(key, seq)`.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()>;
    /// Goes to the last entry at or before `(key, seq)`.
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()>;
    /// Goes one entry on; from the last, to no entry. Only when valid (else nothing happens).
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn next(&mut self) -> Result<()>;
    /// Goes one entry back; from the first, to no entry. Only when valid (else nothing happens).
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn prev(&mut self) -> Result<()>;
    /// Whether the iterator is at an entry.
    fn valid(&self) -> bool;
    /// The user key of the current entry. Only when valid; so for the accessors below.
    fn key(&self) -> &[u8];
    /// The sequence number of the current entry.
    fn seq(&self) -> SeqNo;
    /// The kind of the current entry.
    fn kind(&self) -> EntryKind;
    /// The value of the current entry; of a large one, where it lies, in terms of the source.
    fn value(&self) -> &[u8];
    /// All of the current entry at once: cheaper than piece by piece.
    #[inline]
    fn view(&self) -> EntryView<'_> {
        EntryView { key: self.key(), seq: self.seq(), kind: self.kind(), value: self.value() }
    }
    /// The value of the current entry, to keep: shares the block where it can, else a copy.
    fn value_bytes(&self) -> Bytes;
    /// Whether the current entry is a put whose value lies elsewhere, because it is long: the kind is then
    /// [`EntryKind::ValueRef`], and only [`Self::read_value`] gives the value.
    fn is_large(&self) -> bool {
        self.kind() == EntryKind::ValueRef
    }
    /// How long the current entry's value is, wherever it lies.
    ///
    /// # Errors
    /// `Corruption` when the entry does not say.
    fn value_bytes_len(&self) -> Result<u64> {
        if self.is_large() { Err(homeless()) } else { Ok(self.value().len() as u64) }
    }
    /// Gives the current entry's value to `sink`, a large one piece by piece: nobody holds it whole.
    ///
    /// # Errors
    /// What reading says, or `sink`, which then got a part of the value only.
    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.is_large() { Err(homeless()) } else { sink(self.value()) }
    }
    /// The digest of the current key where the source has kept it, so that nobody hashes it again.
    fn digest(&self) -> Option<KeyDigest> {
        None
    }
}

/// A large value in a source that has no place for them.
fn homeless() -> Error {
    Error::Invalid("a large value in a source that does not know where it lies".to_owned())
}
