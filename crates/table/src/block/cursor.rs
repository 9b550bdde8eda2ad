//! A position in a data block: one entry, decoded.
//!
//! The block's header is decoded once, when the block is entered. A step then reads one offset and
//! one entry. Keys are assembled in one buffer: a step to an entry of the same group replaces only
//! the suffix. The value stays in the block, and only its place is kept. The owner keeps the
//! payload and passes it to each call.
//!
//! Not here: the way from block to block ([`crate::reader`]).

use std::ops::Range;

use shamba_key::{EntryKind, SeqNo};

use super::tagged::{KeyInGroup, Opened};
use super::{DataBlock, EntryParts};
use crate::entry::EntryView;

/// Initial capacity for the key, sufficient for most keys and the rest of a chunk.
const KEY_BYTES: usize = 128;

/// An entry of a data block, and the layout of its block.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    /// Header of the block that was entered last; `None` for the plain layout.
    opened: Option<Opened>,
    /// Number of entries of that block.
    count: usize,
    /// Number of the current entry.
    number: usize,
    is_valid: bool,
    seq: SeqNo,
    kind: EntryKind,
    /// Place of the value in the payload, which is below 4 GiB.
    value: u32,
    value_end: u32,
    key: KeyInGroup,
}

impl Default for EntryCursor {
    fn default() -> Self {
        Self {
            opened: None,
            count: 0,
            number: 0,
            is_valid: false,
            seq: SeqNo::ZERO,
            kind: EntryKind::Put,
            value: 0,
            value_end: 0,
            key: KeyInGroup::default(),
        }
    }
}

impl EntryCursor {
    /// Memory of a typical cursor.
    pub(crate) const BYTES: usize = size_of::<Self>() + KEY_BYTES;

    /// Leaves the current entry.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.is_valid = false;
    }

    /// Enters the block with this payload, of `count` entries; no entry is current.
    ///
    /// # Errors
    /// A description of the damage to the header.
    pub(crate) fn enter(&mut self, payload: &[u8], count: usize) -> Result<(), String> {
        self.is_valid = false;
        self.key.leave_block();
        if self.key.bytes.capacity() < KEY_BYTES {
            self.key.bytes.reserve(KEY_BYTES);
        }
        self.count = count;
        self.opened = match DataBlock::view(payload)? {
            DataBlock::Plain(_) => None,
            DataBlock::Tagged(block) => Some(block.open()?),
        };
        Ok(())
    }

    /// The number of the first entry at or after `(key, seq)`; the number of entries if there is
    /// none. `payload` is that of the block that was entered, also in the calls below.
    ///
    /// # Errors
    /// A description of the damage that the search finds.
    pub(crate) fn lower_bound(&self, payload: &[u8], key: &[u8], seq: SeqNo) -> Result<usize, String> {
        match &self.opened {
            Some(opened) => opened.lower_bound(payload, key, seq),
            None => DataBlock::view(payload)?.lower_bound(key, seq),
        }
    }

    /// Makes entry `number`, which must be below the number of entries, the current one.
    ///
    /// # Errors
    /// A description of the damage to the entry; then no entry is current.
    #[inline]
    pub(crate) fn go_to(&mut self, payload: &[u8], number: usize) -> Result<(), String> {
        debug_assert!(number < self.count, "entry {number} of {}", self.count);
        self.is_valid = false;
        let parts = match &self.opened {
            Some(opened) => opened.entry(payload, number, &mut self.key)?,
            None => DataBlock::view(payload)?.entry(number, &mut self.key.bytes)?,
        };
        self.stand_at(number, parts);
        Ok(())
    }

    #[inline(always)]
    fn stand_at(&mut self, number: usize, parts: EntryParts<'_>) {
        self.number = number;
        (self.seq, self.kind) = (parts.seq, parts.kind);
        self.value = parts.value_start as u32;
        self.value_end = (parts.value_start + parts.value.len()) as u32;
        self.is_valid = true;
    }

    /// Calls `each` with the current entry and those after it, as long as it returns true. Returns
    /// true at the entry for which it returned false; otherwise the entries have ended, and none is
    /// current. Cheaper than steps: what the header says stays in registers. Only when valid.
    ///
    /// # Errors
    /// A description of the damage to an entry; then no entry is current.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        payload: &[u8],
        mut each: impl FnMut(EntryView<'_>) -> bool,
    ) -> Result<bool, String> {
        debug_assert!(self.is_valid, "a walk from no entry");
        self.is_valid = false;
        let Some(opened) = &self.opened else {
            return self.walk_plain(payload, each);
        };
        let value_start = self.value as usize;
        let value = payload.get(self.value()).unwrap_or_default();
        let parts = EntryParts { seq: self.seq, kind: self.kind, value, value_start };
        let walked = opened.walk(payload, self.number, parts, &mut self.key, |key, parts| {
            each(EntryView { key, seq: parts.seq, kind: parts.kind, value: parts.value })
        });
        let stopped = walked?;
        if let Some((number, parts)) = stopped {
            self.stand_at(number, parts);
        }
        Ok(stopped.is_some())
    }

    /// [`Self::walk`] in a block of the plain layout.
    fn walk_plain(
        &mut self,
        payload: &[u8],
        mut each: impl FnMut(EntryView<'_>) -> bool,
    ) -> Result<bool, String> {
        self.is_valid = true;
        while each(self.view(payload)) {
            if self.number + 1 >= self.count {
                self.is_valid = false;
                return Ok(false);
            }
            self.go_to(payload, self.number + 1)?;
        }
        Ok(true)
    }

    /// Whether an entry is current.
    #[inline(always)]
    pub(crate) fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// Number of entries of the block.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The number of the current entry in its block.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The current entry. Only when valid; the same holds for the accessors below.
    #[inline(always)]
    pub(crate) fn view<'a>(&'a self, payload: &'a [u8]) -> EntryView<'a> {
        EntryView {
            key: &self.key.bytes,
            seq: self.seq,
            kind: self.kind,
            value: payload.get(self.value()).unwrap_or_default(),
        }
    }

    /// The current entry's key.
    #[inline(always)]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key.bytes
    }

    /// The current entry's sequence number.
    #[inline(always)]
    pub(crate) fn seq(&self) -> SeqNo {
        self.seq
    }

    /// The current entry's kind.
    #[inline(always)]
    pub(crate) fn kind(&self) -> EntryKind {
        self.kind
    }

    /// The place of the current entry's value in the block.
    #[inline(always)]
    pub(crate) fn value(&self) -> Range<usize> {
        self.value as usize..self.value_end as usize
    }
}
