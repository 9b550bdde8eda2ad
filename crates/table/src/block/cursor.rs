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

use super::tagged::{KeyInGroup, Opened, Window};
use super::{DataBlock, EntryParts};
use crate::copies::{Copies, CopyEnd, CopyLimits};
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

    /// Enters the block with this payload; no entry is current. Returns its number of entries.
    ///
    /// # Errors
    /// A description of the damage to the header.
    pub(crate) fn enter(&mut self, payload: &[u8]) -> Result<usize, String> {
        self.is_valid = false;
        self.key.leave_block();
        if self.key.bytes.capacity() < KEY_BYTES {
            self.key.bytes.reserve(KEY_BYTES);
        }
        let block = DataBlock::view(payload)?;
        self.count = block.len();
        self.opened = match block {
            DataBlock::Plain(_) => None,
            DataBlock::Tagged(block) => Some(block.open()?),
        };
        Ok(self.count)
    }

    /// Prefetches the entries that [`Self::narrow`] compares.
    pub(crate) fn prefetch_search(&self, payload: &[u8]) {
        if let Some(opened) = &self.opened {
            opened.prefetch_search(payload);
        }
    }

    /// The first half of [`Self::lower_bound`]: the range of entries in which [`Self::bound_in`]
    /// finds the place, and prefetches them.
    ///
    /// # Errors
    /// As [`Self::lower_bound`].
    pub(crate) fn narrow(&self, payload: &[u8], key: &[u8], seq: SeqNo) -> Result<Window, String> {
        match &self.opened {
            Some(opened) => opened.narrow(payload, key, seq),
            None => Ok(Window { start: 0, end: self.count }),
        }
    }

    /// The second half of [`Self::lower_bound`], with the result of the first.
    ///
    /// # Errors
    /// As [`Self::lower_bound`].
    pub(crate) fn bound_in(
        &self,
        payload: &[u8],
        window: Window,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<usize, String> {
        match &self.opened {
            Some(opened) => opened.bound_in(payload, window, key, seq),
            None => DataBlock::view(payload)?.lower_bound(key, seq),
        }
    }

    /// Prefetches the entry that is about to be entered, and the bytes after it.
    pub(crate) fn prefetch_entries(&self, payload: &[u8], number: usize) {
        if let Some(opened) = &self.opened {
            opened.prefetch_entries(payload, number);
        }
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
        let walked = opened.walk(payload, self.number, parts, &mut self.key, |key, parts, is_last| {
            let EntryParts { seq, kind, value, .. } = *parts;
            each(EntryView { key, seq, kind, value, is_last_at_hand: is_last })
        });
        let stopped = walked?;
        if let Some((number, parts)) = stopped {
            self.stand_at(number, parts);
        }
        Ok(stopped.is_some())
    }

    /// Copies plain puts from the current entry on into `out`, as far as `limits` allow. The cursor
    /// is then at the entry that [`CopyEnd`] says; at none after the block's last entry. Copies
    /// nothing in a block of the plain layout. Only when valid.
    ///
    /// # Errors
    /// As [`Self::walk`].
    pub(crate) fn copy(
        &mut self,
        payload: &[u8],
        out: &mut Copies,
        limits: &CopyLimits<'_>,
    ) -> Result<CopyEnd, String> {
        debug_assert!(self.is_valid, "a copy from no entry");
        let Some(opened) = &self.opened else { return Ok(CopyEnd::Other) };
        let (number, end) =
            opened.copy(payload, self.number, out, limits).inspect_err(|_| self.is_valid = false)?;
        if end == CopyEnd::Ended {
            self.is_valid = false;
        } else {
            // If there is room for no more, the entry after it is the next to be asked for.
            let next = number + usize::from(end == CopyEnd::Full && number + 1 < self.count);
            if next != self.number {
                self.go_to(payload, next)?;
            }
        }
        Ok(end)
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
            is_last_at_hand: self.number + 1 >= self.count,
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
