//! Entries that are copied out of blocks, back to back into one buffer.
//!
//! An iterator that copies many plain puts in a row ([`crate::TableIter::copy_on`]) writes each key
//! and value once, where they stay: it assembles no key of its own, and calls nothing for an entry.
//!
//! ```text
//! bytes  | key 0 | value 0 | key 1 | value 1 | ...
//! ends   | key 0's, value 0's | key 1's, value 1's | ...
//! ```

use shamba_key::{SeqNo, head};

/// Copied entries, in order.
#[derive(Debug, Default)]
pub struct Copies {
    /// Keys and values.
    pub bytes: Vec<u8>,
    /// The end of each key and value.
    pub ends: Vec<Ends>,
    /// Older versions of the last key that the present copy has passed over.
    pub(crate) versions: u32,
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
}

/// Limits of a copy of entries.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits<'a> {
    /// Entries with a larger sequence number are not copied.
    pub seq: SeqNo,
    /// Exclusive upper bound of the keys.
    pub upper: Option<&'a [u8]>,
    /// Exclusive upper bound of the heads of keys.
    pub head: Option<u64>,
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

impl CopyLimits<'_> {
    /// Whether there is a bound of the keys.
    #[inline(always)]
    pub(crate) fn is_bounded(&self) -> bool {
        self.head.is_some() || self.upper.is_some()
    }

    /// Whether `key` lies beyond a bound.
    #[inline]
    pub(crate) fn is_beyond(&self, key: &[u8]) -> bool {
        self.head.is_some_and(|bound| head(key) >= bound) || self.upper.is_some_and(|upper| key >= upper)
    }
}

/// Reason why a copy of entries ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyEnd {
    /// The buffer has what it may have. The iterator is at the last entry that was passed, which is
    /// that of the last key or an older version of it, or at the entry after it in the same block.
    Full,
    /// The iterator is at an entry that was not copied: it is no plain put within the limits, or
    /// one older version too many, or the block has another layout.
    Other,
    /// There are no more entries.
    Ended,
}
