//! Entries that are copied out of blocks, back to back into one buffer.
//!
//! An iterator that copies many plain puts in a row ([`crate::TableIter::copy_on`]) writes each key
//! and value once, where they stay: it assembles no key of its own, and calls nothing for an entry.
//!
//! ```text
//! bytes  | key 0 | value 0 | key 1 | value 1 | ...
//! ends   | key 0's, value 0's | key 1's, value 1's | ...
//! ```

use shamba_key::{EntryKind, SeqNo, is_same_key};

use crate::entry::EntryView;

/// Copied entries, in order.
#[derive(Debug, Default)]
pub struct Copies {
    /// Keys and values.
    pub bytes: Vec<u8>,
    /// The end of each key and value.
    pub ends: Vec<Ends>,
    /// Older versions of the last key that the present copy has passed over.
    pub(crate) versions: u32,
    /// Whether the present copy has passed an entry.
    pub(crate) is_begun: bool,
}

/// End offsets of an entry's key and value in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// End of the key.
    pub key: u32,
    /// End of the value.
    pub value: u32,
}

impl Copies {
    /// The start of entry `number`, which is at most their number.
    #[inline]
    pub fn start(&self, number: usize) -> usize {
        debug_assert!(number <= self.ends.len(), "entry {number} of {}", self.ends.len());
        number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.value as usize)
    }

    /// The key of entry `number`.
    #[inline]
    pub fn key(&self, number: usize) -> Option<&[u8]> {
        let ends = self.ends.get(number)?;
        self.bytes.get(self.start(number)..ends.key as usize)
    }

    /// Begins a copy from one source.
    #[inline]
    pub fn begin(&mut self) {
        (self.versions, self.is_begun) = (0, false);
    }

    /// Copies the next entry of a source, or passes over it if it is an older version of the last
    /// key. Returns why the copy ends, if it does.
    #[inline]
    pub fn add(&mut self, entry: &EntryView<'_>, limits: &CopyLimits<'_>) -> Option<CopyEnd> {
        let EntryView { key, seq, kind, value, is_last_at_hand } = *entry;
        if kind != EntryKind::Put || seq > limits.seq || value.len() > limits.value_bytes {
            return Some(CopyEnd::Other);
        }
        let last = self.ends.len().checked_sub(1).and_then(|last| self.key(last));
        if last.is_some_and(|last| is_same_key(last, key)) {
            self.versions += 1;
            if self.versions >= limits.versions {
                return Some(CopyEnd::Other);
            }
        } else {
            if self.is_begun && limits.upper.is_some_and(|upper| key >= upper) {
                return Some(CopyEnd::Beyond);
            }
            self.versions = 0;
            self.bytes.extend_from_slice(key);
            let key_end = self.bytes.len() as u32;
            self.bytes.extend_from_slice(value);
            self.ends.push(Ends { key: key_end, value: self.bytes.len() as u32 });
        }
        self.is_begun = true;
        self.is_full(limits, is_last_at_hand).then_some(CopyEnd::Full)
    }

    /// Whether no more entries should be copied. The next one is in another block if `is_last`.
    #[inline(always)]
    pub(crate) fn is_full(&self, limits: &CopyLimits<'_>, is_last: bool) -> bool {
        let enough = if is_last { limits.wanted } else { limits.welcome };
        self.ends.len() >= enough || self.bytes.len() >= limits.full_bytes
    }
}

/// Limits of a copy of entries.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits<'a> {
    /// Entries with a larger sequence number are not copied.
    pub seq: SeqNo,
    /// Exclusive upper bound of the keys. The entry at which the copy begins is not compared with
    /// it.
    pub upper: Option<&'a [u8]>,
    /// Maximum length of a value that is copied.
    pub value_bytes: usize,
    /// Number of entries in the buffer that are needed.
    pub wanted: usize,
    /// Number of entries in the buffer that are taken as long as no further block is entered.
    pub welcome: usize,
    /// Length of the buffer from which on none are needed.
    pub full_bytes: usize,
    /// Number of older versions in a row that are passed over.
    pub versions: u32,
}

/// Reason why a copy of entries ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyEnd {
    /// The buffer has what it may have. The iterator is at the last entry that was passed, which is
    /// that of the last key or an older version of it, or at the entry after it in the same block.
    Full,
    /// The iterator is at the first entry beyond the upper bound.
    Beyond,
    /// The iterator is at an entry that was not copied: it is no plain put within the limits, or
    /// one older version too many, or the block has another layout.
    Other,
    /// There are no more entries.
    Ended,
}
