//! Ordered search in a tagged block: the first entry at or after a key.
//!
//! It has two halves, so that a seek in several blocks can do the first in all of them before the
//! second in any: [`Tagged::narrow`] finds a few entries that have the same prefixes, and
//! prefetches them; [`Tagged::bound_in`] searches among these.
//!
//! Not here: the search by tags, for one key ([`Tagged::find`]).

use std::cmp::Ordering;

use shamba_key::{SeqNo, prefetch_line};

use super::{Places, Tagged, malformed, wrong_header};

/// Number of cache lines that a search prefetches at once: about as many misses as a core can have
/// in flight.
const ASKED_FOR: usize = 16;

/// Entries of a block, from `start` to before `end`, between which the result of a search lies. If
/// `start` is not below `end` the result is `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(in crate::block) start: usize,
    pub(in crate::block) end: usize,
}

impl Window {
    /// The window of a search whose result is known.
    fn at(place: usize) -> Self {
        Self { start: place, end: place }
    }
}

impl Tagged<'_> {
    /// The number of the first entry at or after `(key, seq)`; the count if there is none.
    pub(in crate::block) fn lower_bound(&self, key: &[u8], seq: SeqNo) -> Result<usize, String> {
        let at = self.places().ok_or_else(|| wrong_header(self.bytes))?;
        self.lower_bound_at(&at, key, seq)
    }

    pub(super) fn lower_bound_at(&self, at: &Places, key: &[u8], seq: SeqNo) -> Result<usize, String> {
        self.ask_for_starts(at);
        let window = self.narrow(at, key, seq)?;
        self.bound_in(at, window, key, seq)
    }

    /// The distance of the entries that a search compares first: the entries of a group; without
    /// groups at most the root of the count, so that both halves of the search compare about
    /// equally many.
    #[inline]
    fn stride(at: &Places) -> usize {
        1 << if at.group_shift == 0 { (at.count | 1).ilog2() / 2 } else { at.group_shift }
    }

    /// Prefetches the entries that [`Self::narrow`] compares first.
    #[inline]
    pub(super) fn ask_for_starts(&self, at: &Places) {
        let stride = Self::stride(at);
        let apart = at.count / stride / ASKED_FOR + 1;
        // The first entry of a block without groups is not compared.
        let first = if at.group_shift == 0 { stride } else { 0 };
        self.ask_for(at, (first..at.count).step_by(apart * stride));
    }

    /// The first half of a search for the first entry at or after `(key, seq)`: the range in which
    /// [`Self::bound_in`] finds it, whose entries are prefetched. They are of one group.
    pub(super) fn narrow(&self, at: &Places, key: &[u8], seq: SeqNo) -> Result<Window, String> {
        let common = self.common(at).ok_or_else(|| wrong_header(self.bytes))?;
        let Some(rest) = key.strip_prefix(common) else {
            return Ok(Window::at(if key < common { 0 } else { at.count }));
        };
        let stride = Self::stride(at);
        let is_grouped = at.group_shift > 0;
        // The last stride that starts before the position contains it, unless it is the start of
        // the next one.
        let (mut low, mut high) = (usize::from(!is_grouped), at.count.div_ceil(stride));
        while low < high {
            let middle = low.midpoint(high);
            let number = middle * stride;
            let order = match is_grouped {
                true => self.order_in_group(at, number, rest, seq),
                false => self.order(at, number, rest, seq),
            };
            if order.ok_or_else(|| malformed(number))? == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(before) = low.checked_sub(1) else {
            return Ok(Window::at(0));
        };
        let (start, end) = (before * stride, (low * stride).min(at.count));
        self.ask_for(at, start + usize::from(is_grouped)..end.min(start + ASKED_FOR));
        Ok(Window { start, end })
    }

    /// The second half of the search: the first entry in `window` at or after `(key, seq)`, or its
    /// end.
    pub(super) fn bound_in(
        &self,
        at: &Places,
        window: Window,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<usize, String> {
        let Window { start, end } = window;
        if start >= end {
            return Ok(end);
        }
        let common = self.common(at).ok_or_else(|| wrong_header(self.bytes))?;
        let prefix = self.group_prefix(at, start).ok_or_else(|| malformed(start))?;
        match key.get(common.len()..).and_then(|rest| rest.strip_prefix(prefix)) {
            Some(rest) => self.first_from(at, start, end, rest, seq),
            // The first entry of the group is before the position, so all of its entries are.
            None => Ok(end),
        }
    }

    /// The first of the entries from `low` to `high`, which have the same prefixes, at or after
    /// `(rest, seq)`.
    #[inline]
    fn first_from(
        &self,
        at: &Places,
        mut low: usize,
        mut high: usize,
        rest: &[u8],
        seq: SeqNo,
    ) -> Result<usize, String> {
        while low < high {
            let middle = low.midpoint(high);
            let order = self.order(at, middle, rest, seq).ok_or_else(|| malformed(middle))?;
            if order == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Compares entry `number`, without its prefixes, with `(rest, seq)`.
    #[inline(always)]
    fn order(&self, at: &Places, number: usize, rest: &[u8], seq: SeqNo) -> Option<Ordering> {
        let entry = self.located(at, number)?;
        // The first eight bytes usually decide, without a call.
        if let (Some(a), Some(b)) = (entry.suffix.first_chunk::<8>(), rest.first_chunk::<8>()) {
            if a != b {
                return Some(u64::from_be_bytes(*a).cmp(&u64::from_be_bytes(*b)));
            }
        }
        Some(match entry.suffix.cmp(rest) {
            Ordering::Equal => seq.cmp(&self.seq(at, &entry)?),
            order => order,
        })
    }

    /// As [`Self::order`], but compares the group's prefix first.
    fn order_in_group(&self, at: &Places, number: usize, rest: &[u8], seq: SeqNo) -> Option<Ordering> {
        let prefix = self.group_prefix(at, number)?;
        match rest.split_at_checked(prefix.len()) {
            Some((start, rest)) if start == prefix => self.order(at, number, rest, seq),
            Some((start, _)) => Some(prefix.cmp(start)),
            // Shorter than the prefix: if it is equal so far, the prefix is greater.
            None => Some(prefix.cmp(rest)),
        }
    }

    /// Prefetches all entries that a search may read next, so that their cache misses overlap.
    #[inline]
    fn ask_for(&self, at: &Places, numbers: impl Iterator<Item = usize>) {
        for number in numbers {
            let start = match at.is_wide {
                true => self.number(at.offsets_at + 4 * number, 4).map(|start| start as usize),
                false => self.short(at.offsets_at + 2 * number),
            };
            if let Some(start) = start {
                prefetch_line(self.bytes, at.entries_at + start);
            }
        }
    }
}
