//! Copies of many entries of a tagged block.
//!
//! A copy looks at an entry in general, and then copies those of its group that need no more than a
//! look at their lengths and key in a loop of their own.
//!
//! Not here: which entries are copied ([`crate::copies`]).

use std::ops::Range;

use shamba_key::{EntryKind, head, is_same_key};

use super::{MASKS, Places, Tagged};
use crate::block::pieces::{CHUNK_BYTES, append_part};
use crate::copies::{Copies, CopyEnd, CopyLimits, Ends};

/// The bytes that the keys of a group share, for appending them to many keys.
struct SharedPrefix<'a> {
    common: &'a [u8],
    prefix: &'a [u8],
    /// Both as a number, which stays in registers, if they fit into a chunk.
    chunk: u128,
}

impl<'a> SharedPrefix<'a> {
    fn new(common: &'a [u8], prefix: &'a [u8]) -> Self {
        let mut chunk = 0;
        if common.len() + prefix.len() <= CHUNK_BYTES {
            for byte in common.iter().chain(prefix).rev() {
                chunk = chunk << 8 | u128::from(*byte);
            }
        }
        Self { common, prefix, chunk }
    }

    /// Appends them without a call if they are short, as they are in most cases.
    #[inline(always)]
    fn append_to(&self, out: &mut Vec<u8>) {
        match self.common.len() + self.prefix.len() {
            0 => {}
            length @ 1..=CHUNK_BYTES => append_part(out, self.chunk.to_le_bytes(), length),
            _ => {
                out.extend_from_slice(self.common);
                out.extend_from_slice(self.prefix);
            }
        }
    }
}

impl Tagged<'_> {
    /// [`Opened::copy`](super::Opened::copy); `None` if an entry from `number` on is damaged.
    pub(super) fn copy(
        &self,
        at: &Places,
        number: &mut usize,
        out: &mut Copies,
        limits: &CopyLimits<'_>,
    ) -> Option<CopyEnd> {
        if at.kind != 0 && at.kind != EntryKind::Put as u8 {
            return Some(CopyEnd::Other);
        }
        // Checked once for all entries, as far as the header tells.
        let newest = at.base_seq.saturating_add(*MASKS.get(at.seq_width)?);
        let may_be_newer = newest > limits.seq.0;
        let is_simple = at.kind != 0 && !may_be_newer && !at.is_wide;
        // A key with a smaller head is below the bound.
        let near_bound = limits.upper.map(head);
        let mut bound = if out.is_begun { near_bound } else { None };
        let common = self.common(at)?;
        let mut shared = SharedPrefix::new(common, &[]);
        let mut group = usize::MAX;
        // The suffix of the entry before it, if that has the same prefixes.
        let mut before = None;
        let (mut start, _) = if *number < at.count { self.span(at, *number)? } else { return None };
        // An entry ends where the next one starts.
        let offset_bytes = if at.is_wide { 4 } else { 2 };
        let offsets = self.bytes.get(at.offsets_at + offset_bytes * (*number + 1)..at.ends_at)?;
        let mut offsets = offsets.chunks_exact(offset_bytes);
        loop {
            let (end, is_last) = match offsets.next() {
                Some([low, high]) => (at.entries_at + usize::from(u16::from_le_bytes([*low, *high])), false),
                Some(offset) => (at.entries_at + u32::from_le_bytes(*offset.first_chunk()?) as usize, false),
                None => (self.bytes.len(), true),
            };
            let suffix_at = start + at.entry_head_bytes;
            // The suffix and the value, which follows it. If `end` is wrong, the bytes before the
            // suffix may lie beyond it; then the suffix does too, and this is `None`.
            let rest = self.bytes.get(suffix_at..end)?;
            let suffix_bytes = self.suffix_bytes(at, suffix_at)?;
            let (suffix, value) = rest.split_at_checked(suffix_bytes)?;
            if value.len() > limits.value_bytes
                || (may_be_newer && self.seq_at(at, start)? > limits.seq)
                || (at.kind == 0 && self.kind_at(at, start)? != EntryKind::Put)
            {
                return Some(CopyEnd::Other);
            }
            if at.group_shift > 0 && group != *number >> at.group_shift {
                group = *number >> at.group_shift;
                shared = SharedPrefix::new(common, self.group_prefix(at, *number)?);
                before = None;
            }
            let key_start = out.bytes.len();
            shared.append_to(&mut out.bytes);
            let key_end = out.bytes.len() + suffix_bytes;
            out.bytes.extend_from_slice(rest);
            let is_older = match before {
                Some(before) => is_same_key(before, suffix),
                // The first entry here, or of a group.
                None => match out.ends.len().checked_sub(1) {
                    Some(last) => is_same_key(out.key(last)?, out.bytes.get(key_start..key_end)?),
                    None => false,
                },
            };
            if is_older {
                out.bytes.truncate(key_start);
                out.versions += 1;
                if out.versions >= limits.versions {
                    return Some(CopyEnd::Other);
                }
            } else {
                if let Some(bound) = bound {
                    let key = out.bytes.get(key_start..key_end)?;
                    if head(key) >= bound && limits.upper.is_some_and(|upper| key >= upper) {
                        out.bytes.truncate(key_start);
                        return Some(CopyEnd::Beyond);
                    }
                }
                out.versions = 0;
                out.ends.push(Ends { key: key_end as u32, value: out.bytes.len() as u32 });
            }
            (out.is_begun, bound) = (true, near_bound);
            before = Some(suffix);
            if out.is_full(limits, is_last) {
                return Some(CopyEnd::Full);
            }
            *number += 1;
            if is_last {
                return Some(CopyEnd::Ended);
            }
            start = end;
            if is_simple {
                let alike = match at.group_shift {
                    0 => at.count,
                    shift => (group + 1) << shift,
                };
                let (copied, next) = self.copy_alike(at, *number..alike, start, &shared, out, limits)?;
                if let Some(passed) = copied.checked_sub(1) {
                    offsets.nth(passed);
                    *number += copied;
                    (start, before) = (next, None);
                    if out.is_full(limits, false) {
                        *number -= 1;
                        return Some(CopyEnd::Full);
                    }
                }
            }
        }
    }

    /// Copies entries of a group, which are among `numbers`, as far as it is certain that they are
    /// short and below the bound, have other keys than those before them, and are not the block's
    /// last. The first of them starts at `start`. Returns their number, and the start of the entry
    /// after them.
    ///
    /// Not inlined: what a loop over one group needs then stays in registers.
    #[inline(never)]
    fn copy_alike(
        &self,
        at: &Places,
        numbers: Range<usize>,
        mut start: usize,
        shared: &SharedPrefix<'_>,
        out: &mut Copies,
        limits: &CopyLimits<'_>,
    ) -> Option<(usize, usize)> {
        let shared_bytes = shared.common.len() + shared.prefix.len();
        let last_word = |key: &[u8]| key.last_chunk::<8>().map(|word| u64::from_ne_bytes(*word));
        let before = out.ends.len().checked_sub(1).and_then(|last| last_word(out.key(last)?));
        let Some(mut before) = before.filter(|_| shared_bytes <= CHUNK_BYTES) else {
            return Some((0, start));
        };
        // No head is beyond the largest one, and a key with that one is left to the caller.
        let bound = limits.upper.map_or(u64::MAX, head);
        let end = numbers.end.min(at.count.checked_sub(1)?).max(numbers.start);
        let offset_at = |number: usize| at.offsets_at + 2 * (number + 1);
        let offsets = self.bytes.get(offset_at(numbers.start)..offset_at(end))?;
        let mut copied = 0;
        for offset in offsets.chunks_exact(2) {
            let end = at.entries_at + usize::from(u16::from_le_bytes(*offset.first_chunk()?));
            let suffix_at = start + at.entry_head_bytes;
            let rest = self.bytes.get(suffix_at..end)?;
            let suffix_bytes = self.suffix_bytes(at, suffix_at)?;
            if rest.len().checked_sub(suffix_bytes)? > limits.value_bytes {
                break;
            }
            let key_start = out.bytes.len();
            append_part(&mut out.bytes, shared.chunk.to_le_bytes(), shared_bytes);
            out.bytes.extend_from_slice(rest);
            let key_end = key_start + shared_bytes + suffix_bytes;
            let key = out.bytes.get(key_start..key_end)?;
            match last_word(key) {
                Some(word) if word != before && head(key) < bound => before = word,
                _ => {
                    out.bytes.truncate(key_start);
                    break;
                }
            }
            out.ends.push(Ends { key: key_end as u32, value: out.bytes.len() as u32 });
            (start, copied) = (end, copied + 1);
            if out.is_full(limits, false) {
                break;
            }
        }
        if copied > 0 {
            out.versions = 0;
        }
        Some((copied, start))
    }
}
