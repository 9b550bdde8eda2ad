//! A tagged block whose header was decoded once, for access to one entry after the other.
//!
//! Not here: the owner of the payload ([`crate::block::EntryCursor`]), copies of many entries
//! ([`super::copied`]).

use std::ops::Range;

use shamba_key::{EntryKind, SeqNo, prefetch_line};

use super::{Places, Tagged, Window, malformed, wrong_header};
use crate::block::EntryParts;
use crate::block::pieces::{append_part, chunk_at};
use crate::copies::{Copies, CopyEnd, CopyLimits};

/// Cache lines that are prefetched after the first line of the entry at which a seek ends: that
/// entry and about two more of a hundred bytes. The hardware prefetcher goes on from there.
const LINES_AHEAD: usize = 5;

/// A header that was decoded, for many accesses to one block.
#[derive(Clone, Copy, Debug)]
pub(in crate::block) struct Opened {
    head: u64,
    at: Places,
}

impl Opened {
    #[inline(always)]
    fn block<'a>(&self, bytes: &'a [u8]) -> Tagged<'a> {
        Tagged { bytes, head: self.head }
    }

    /// Entry `number` of the block with the payload `bytes`; its key replaces the content of `key`.
    #[inline(always)]
    pub(in crate::block) fn entry<'a>(
        &self,
        bytes: &'a [u8],
        number: usize,
        key: &mut KeyInGroup,
    ) -> Result<EntryParts<'a>, String> {
        let (at, block) = (&self.at, self.block(bytes));
        let span = if number < at.count { block.span(at, number) } else { None };
        let kind = EntryKind::from_byte(at.kind);
        let parts = span.and_then(|(start, end)| block.assemble(at, number, start..end, kind, key));
        parts.ok_or_else(|| malformed(number))
    }

    /// Calls `each` with the entries from `number` on, whose parts are `parts`, until it returns
    /// false or the entries end; also with whether the entry is the last. Returns the number and
    /// the parts of the entry for which it returned false.
    #[inline(always)]
    pub(in crate::block) fn walk<'a>(
        &self,
        bytes: &'a [u8],
        mut number: usize,
        mut parts: EntryParts<'a>,
        key: &mut KeyInGroup,
        mut each: impl FnMut(&[u8], &EntryParts<'a>, bool) -> bool,
    ) -> Result<Option<(usize, EntryParts<'a>)>, String> {
        let (at, block) = (&self.at, self.block(bytes));
        // Read once and not for each entry.
        let kind = EntryKind::from_byte(at.kind);
        let mut end = parts.value_start + parts.value.len();
        while each(&key.bytes, &parts, number + 1 >= at.count) {
            number += 1;
            if number >= at.count {
                return Ok(None);
            }
            // An entry starts where the one before it ends.
            let next =
                block.end(at, number).and_then(|next| block.assemble(at, number, end..next, kind, key));
            parts = next.ok_or_else(|| malformed(number))?;
            end = parts.value_start + parts.value.len();
        }
        Ok(Some((number, parts)))
    }

    /// Copies plain puts from entry `number` on into `out`, as far as `limits` allow. Returns the
    /// number of the entry at which it ended, and why; [`CopyEnd::Ended`]: after the block's last.
    pub(in crate::block) fn copy(
        &self,
        bytes: &[u8],
        number: usize,
        out: &mut Copies,
        limits: &CopyLimits<'_>,
    ) -> Result<(usize, CopyEnd), String> {
        let mut at = number;
        match self.block(bytes).copy(&self.at, &mut at, out, limits) {
            Some(end) => Ok((at, end)),
            None => {
                out.bytes.truncate(out.start(out.ends.len()));
                Err(malformed(at))
            }
        }
    }

    /// Prefetches the entries that [`Self::narrow`] compares.
    pub(in crate::block) fn prefetch_search(&self, bytes: &[u8]) {
        self.block(bytes).ask_for_starts(&self.at);
    }

    /// As [`Tagged::narrow`], in the block with the payload `bytes`; prefetches the window's
    /// entries.
    pub(in crate::block) fn narrow(&self, bytes: &[u8], key: &[u8], seq: SeqNo) -> Result<Window, String> {
        self.block(bytes).narrow(&self.at, key, seq)
    }

    /// As [`Tagged::bound_in`], in the block with the payload `bytes`.
    pub(in crate::block) fn bound_in(
        &self,
        bytes: &[u8],
        window: Window,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<usize, String> {
        self.block(bytes).bound_in(&self.at, window, key, seq)
    }

    /// Prefetches entry `number` and the bytes after it.
    pub(in crate::block) fn prefetch_entries(&self, bytes: &[u8], number: usize) {
        if let Some((start, _)) = self.block(bytes).span(&self.at, number) {
            for line in 1..=LINES_AHEAD {
                prefetch_line(bytes, start + 64 * line);
            }
        }
    }

    /// As [`Tagged::lower_bound`], in the block with the payload `bytes`.
    pub(in crate::block) fn lower_bound(
        &self,
        bytes: &[u8],
        key: &[u8],
        seq: SeqNo,
    ) -> Result<usize, String> {
        self.block(bytes).lower_bound_at(&self.at, key, seq)
    }
}

/// A key of a block, assembled in a buffer. The next key of the same group replaces only the
/// suffix.
#[derive(Debug, Default)]
pub(in crate::block) struct KeyInGroup {
    pub(in crate::block) bytes: Vec<u8>,
    /// The group of the last key, plus one; 0 if there was none.
    group: usize,
    /// Length of the prefixes that the keys of the group share.
    shared: usize,
}

impl KeyInGroup {
    /// Forgets the group: the next key is one of another block.
    pub(in crate::block) fn leave_block(&mut self) {
        self.group = 0;
    }
}

impl<'a> Tagged<'a> {
    /// Decodes the header for many accesses.
    pub(in crate::block) fn open(&self) -> Result<Opened, String> {
        let at = self.places().ok_or_else(|| wrong_header(self.bytes))?;
        Ok(Opened { head: self.head, at })
    }

    /// Entry `number`, which takes up `span` of the payload; its key replaces the content of `key`.
    /// `kind` is that of every entry of the block, if they have one. `None` if it is damaged.
    #[inline(always)]
    fn assemble(
        &self,
        at: &Places,
        number: usize,
        span: Range<usize>,
        kind: Option<EntryKind>,
        key: &mut KeyInGroup,
    ) -> Option<EntryParts<'a>> {
        let entry = self.located_in(at, span)?;
        // Without groups the block is one.
        let group = if at.group_shift == 0 { 1 } else { (number >> at.group_shift) + 1 };
        if key.group == group {
            key.bytes.truncate(key.shared);
        } else {
            key.group = 0;
            let prefix = self.group_prefix(at, number)?;
            key.bytes.clear();
            key.bytes.extend_from_slice(self.common(at)?);
            key.bytes.extend_from_slice(prefix);
            (key.group, key.shared) = (group, key.bytes.len());
        }
        let suffix_at = entry.start + at.entry_head_bytes;
        match chunk_at(self.bytes, suffix_at, entry.suffix.len()) {
            Some(chunk) => append_part(&mut key.bytes, chunk, entry.suffix.len()),
            None => key.bytes.extend_from_slice(entry.suffix),
        }
        let kind = match kind {
            Some(kind) => kind,
            None => self.kind_of(at, &entry)?,
        };
        let value_start = suffix_at + entry.suffix.len();
        Some(EntryParts { seq: self.seq(at, &entry)?, kind, value: entry.value, value_start })
    }
}
