//! The iterator interface of all sorted sources of entries.
//!
//! Not here: entries and their order ([`crate::entry`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};

use crate::entry::EntryView;
use crate::value_file::{ValueFile, ValueFileRef};
use crate::{Error, Result};

/// Iterator over a sorted source of entries, in both directions, in internal order.
///
/// A new iterator is not valid until a seek. After an error it is not valid either; a new seek
/// starts over.
pub trait EntryIter: Send {
    /// Goes to the first entry.
    ///
    /// # Errors
    /// Errors of reading; the same holds for every call below.
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
    /// Moves to the next entry; from the last, past the end. Only when valid (else it has no
    /// effect).
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous entry; from the first, before the start. Only when valid (else it has
    /// no effect).
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn prev(&mut self) -> Result<()>;
    /// Moves forward past entries that a range tombstone hides: to the first entry from the current
    /// one on that is newer than `floor` or not below `end` (`None`: no end). Moves on from there
    /// may leave out further entries below `end` that are not newer than `floor`, until a seek or a
    /// change of direction. Only when valid (else it has no effect).
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        while self.valid() && self.seq() <= floor && end.is_none_or(|end| self.key() < end) {
            self.next()?;
        }
        Ok(())
    }
    /// Moves backward past entries that a range tombstone hides: to the last entry up to the
    /// current one that is newer than `floor` or below `start`. Otherwise as
    /// [`Self::skip_hidden`].
    ///
    /// # Errors
    /// As [`Self::seek_to_first`].
    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        while self.valid() && self.seq() <= floor && start <= self.key() {
            self.prev()?;
        }
        Ok(())
    }
    /// Notes that a reader passes the current entry, a tombstone. Iterators over tables count it
    /// for the table; others ignore it.
    fn note_tombstone(&mut self) {}
    /// Whether the iterator is at an entry.
    fn valid(&self) -> bool;
    /// The user key of the current entry. Only when valid; the same holds for the accessors below.
    fn key(&self) -> &[u8];
    /// The sequence number of the current entry.
    fn seq(&self) -> SeqNo;
    /// The kind of the current entry.
    fn kind(&self) -> EntryKind;
    /// The value of the current entry; for a large one, the reference to it, in the terms of the
    /// source.
    fn value(&self) -> &[u8];
    /// All parts of the current entry: cheaper than one call for each.
    #[inline]
    fn view(&self) -> EntryView<'_> {
        EntryView {
            key: self.key(),
            seq: self.seq(),
            kind: self.kind(),
            value: self.value(),
            is_last_at_hand: false,
        }
    }
    /// The value of the current entry for keeping: shares the block if possible, else a copy.
    fn value_bytes(&self) -> Bytes;
    /// Whether the current entry is a put with a large value, which is stored elsewhere: only
    /// [`Self::read_value`] returns the value.
    fn is_large(&self) -> bool {
        self.kind().is_large()
    }
    /// Length of the current entry's payload, large or not: of its value, and of the expiry before
    /// it if it has one.
    ///
    /// # Errors
    /// `Corruption` when the reference to a large value is invalid.
    fn value_bytes_len(&self) -> Result<u64> {
        if self.is_large() { Err(large_value_unreadable()) } else { Ok(self.value().len() as u64) }
    }
    /// Passes the current entry's payload, as in [`Self::value_bytes_len`], to `sink`, a large one
    /// in pieces: it is never held whole.
    ///
    /// # Errors
    /// Errors of reading, or of `sink`, which then got only a part of the value.
    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.is_large() { Err(large_value_unreadable()) } else { sink(self.value()) }
    }
    /// The value file in which the current entry's value is stored, and the reference to it; `None`
    /// if it is not in a value file.
    ///
    /// # Errors
    /// `Corruption` when the reference is invalid.
    fn separated(&self) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        Ok(None)
    }
    /// The digest of the current key if the source has kept it, so that it need not be hashed
    /// again.
    fn digest(&self) -> Option<KeyDigest> {
        None
    }
}

/// The error for a large value in a source that cannot hold any.
fn large_value_unreadable() -> Error {
    Error::Invalid("a large value in a source that cannot read it".to_owned())
}
