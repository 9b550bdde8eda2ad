//! Tails: the bytes of a partition's separators that the heads do not contain, and their sequence
//! numbers.
//!
//! A search compares key bytes only if it ends at the head of a single key that is longer than its
//! head. Then it needs the bytes after those that the heads and their prefixes have compared, and
//! only these bytes are kept. For most keys without a pattern there are none, because their
//! separators are shorter than a head.
//!
//! The separators themselves are in the file; code that needs one reads the partition.

use shamba_key::{LayeredHeads, SeqNo, prefetch_slice};

use super::separators::{Found, Separators};

/// The tails of a partition's separators.
#[derive(Debug)]
pub(super) struct Tails {
    bytes: Box<[u8]>,
    ends: Ends,
    /// Sequence numbers of the separators; empty if all are 0.
    seqs: Box<[SeqNo]>,
}

/// Ends of the tails.
#[derive(Debug)]
enum Ends {
    /// All tails are empty.
    Nowhere,
    Short(Box<[u16]>),
    /// For a partition with a very long key.
    Long(Box<[u32]>),
}

impl Tails {
    /// The tails of `separators`, which are those under `heads`.
    pub(super) fn new(separators: Separators, heads: &LayeredHeads) -> Self {
        let (mut bytes, mut ends): (Vec<u8>, Vec<usize>) = (Vec::new(), Vec::new());
        for number in 0..separators.len() {
            let (key, _) = separators.get(number);
            heads.equal_range_by_rest(key, |_, known| {
                let tail = key.get(known..).unwrap_or_default();
                bytes.extend_from_slice(tail);
                tail
            });
            ends.push(bytes.len());
        }
        assert_eq!(ends.len(), separators.len(), "each separator has one tail");
        debug_assert!(ends.is_sorted(), "the ends of the tails do not ascend");
        let ends = match u16::try_from(bytes.len()) {
            Ok(0) => Ends::Nowhere,
            Ok(_) => Ends::Short(ends.into_iter().map(|end| end as u16).collect()),
            // A partition is one frame, whose length has four bytes.
            Err(_) => Ends::Long(ends.into_iter().map(|end| end as u32).collect()),
        };
        Self { bytes: bytes.into(), ends, seqs: separators.into_seqs() }
    }

    /// The first separator at or after `(key, seq)`, by the heads over them; their number if there
    /// is none.
    #[inline]
    pub(super) fn find(&self, heads: &LayeredHeads, key: &[u8], seq: SeqNo) -> Found {
        let equal = heads.equal_range_by_rest(key, |number, _| self.tail(number));
        Found::among(equal, &self.seqs, seq)
    }

    /// Whether separator `number` lies between two versions of `key`.
    pub(super) fn goes_on(&self, heads: &LayeredHeads, number: usize, key: &[u8]) -> bool {
        heads.equal_range_by_rest(key, |number, _| self.tail(number)).contains(&number)
            && self.seqs.get(number).is_some_and(|seq| *seq > SeqNo::ZERO)
    }

    /// Prefetches the ends of the tails, which a search that compares a tail reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Ends::Short(ends) = &self.ends {
            prefetch_slice(ends);
        }
    }

    fn tail(&self, number: usize) -> &[u8] {
        let end = |number: usize| match &self.ends {
            Ends::Nowhere => None,
            Ends::Short(ends) => ends.get(number).map(|end| usize::from(*end)),
            Ends::Long(ends) => ends.get(number).map(|end| *end as usize),
        };
        let start = number.checked_sub(1).and_then(end).unwrap_or(0);
        debug_assert!(start <= self.bytes.len(), "the tail of separator {number} starts at {start}");
        self.bytes.get(start..end(number).unwrap_or(start)).unwrap_or_default()
    }

    /// Bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let ends = match &self.ends {
            Ends::Nowhere => 0,
            Ends::Short(ends) => size_of_val(&**ends),
            Ends::Long(ends) => size_of_val(&**ends),
        };
        self.bytes.len() + ends + size_of_val(&*self.seqs)
    }
}
