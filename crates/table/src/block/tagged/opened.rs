//! A tagged block whose header was decoded once, for access to one entry after the other.
//!
//! Not here: the owner of the payload ([`crate::block::EntryCursor`]).

use shamba_key::SeqNo;

use super::{Places, Tagged, malformed, wrong_header};
use crate::block::EntryParts;
use crate::block::pieces::{append_part, chunk_at};

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
        self.block(bytes).assemble(&self.at, number, key).ok_or_else(|| malformed(number))
    }

    /// Calls `each` with the entries from `number` on, whose parts are `parts`, until it returns
    /// false or the entries end. Returns the number and the parts of the entry for which it
    /// returned false.
    #[inline(always)]
    pub(in crate::block) fn walk<'a>(
        &self,
        bytes: &'a [u8],
        mut number: usize,
        mut parts: EntryParts<'a>,
        key: &mut KeyInGroup,
        mut each: impl FnMut(&[u8], &EntryParts<'a>) -> bool,
    ) -> Result<Option<(usize, EntryParts<'a>)>, String> {
        let (at, block) = (&self.at, self.block(bytes));
        while each(&key.bytes, &parts) {
            number += 1;
            if number >= at.count {
                return Ok(None);
            }
            parts = block.assemble(at, number, key).ok_or_else(|| malformed(number))?;
        }
        Ok(Some((number, parts)))
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

    /// Entry `number`; its key replaces the content of `key`. `None` if it is damaged.
    #[inline(always)]
    fn assemble(&self, at: &Places, number: usize, key: &mut KeyInGroup) -> Option<EntryParts<'a>> {
        let entry = self.located(at, number)?;
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
        self.parts(at, &entry)
    }
}
