//! Separators of consecutive blocks, or partitions, in one buffer.
//!
//! The keys are in one buffer, with the end of each; sequence numbers only if one of them is not 0.
//! A search uses [heads](LayeredHeads) over the keys and reads a key only if the heads do not
//! decide.
//!
//! Not here: the meaning of the separators ([`super::partition`], [`super::top`]); what is kept of
//! the separators of a partition ([`super::tails`]).

use std::cmp::Ordering;
use std::ops::Range;

use shamba_key::{LayeredHeads, SeqNo};

use shamba_key::internal_cmp;

/// Result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The first separator at or after the position sought.
    pub(crate) at: usize,
    /// Whether versions of the key may follow it: the separator lies between two versions.
    pub(crate) goes_on: bool,
}

impl Found {
    /// The first separator at or after `seq` in the range `equal`, or the end of the range if there
    /// is none. All separators of the range have the key sought; `seqs` has the sequence numbers of
    /// all separators.
    #[inline]
    pub(super) fn among(equal: Range<usize>, seqs: &[SeqNo], seq: SeqNo) -> Self {
        // Separators with one key: their sequence numbers descend.
        let later = seqs.get(equal.clone()).unwrap_or_default();
        debug_assert!(
            later.is_sorted_by(|one, next| one >= next),
            "the sequence numbers of one key's separators do not descend"
        );
        let skipped = later.partition_point(|held| *held > seq);
        let goes_on = later.get(skipped).is_some_and(|held| *held > SeqNo::ZERO);
        Self { at: equal.start + skipped, goes_on }
    }
}

/// Ascending separators: key ascending, then sequence number descending.
#[derive(Debug, Default)]
pub(super) struct Separators {
    keys: Box<[u8]>,
    /// End of each key.
    ends: Box<[u32]>,
    /// Sequence numbers of the separators; empty if all are 0.
    seqs: Box<[SeqNo]>,
}

impl Separators {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, number: usize) -> (&[u8], SeqNo) {
        (self.key(number), self.seqs.get(number).copied().unwrap_or(SeqNo::ZERO))
    }

    #[inline]
    fn key(&self, number: usize) -> &[u8] {
        key_at(&self.keys, &self.ends, number)
    }

    /// Heads over the keys.
    pub(super) fn heads(&self) -> LayeredHeads {
        LayeredHeads::new(self.len(), |number| self.key(number))
    }

    /// The first separator at or after `(key, seq)`, by `heads` over these; [`Self::len`] if there
    /// is none.
    #[inline]
    pub(super) fn find(&self, heads: &LayeredHeads, key: &[u8], seq: SeqNo) -> Found {
        Found::among(heads.equal_range(key, |number| self.key(number)), &self.seqs, seq)
    }

    /// The sequence numbers; empty if all are 0.
    pub(super) fn into_seqs(self) -> Box<[SeqNo]> {
        self.seqs
    }

    /// Bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.len() + size_of_val(&*self.ends) + size_of_val(&*self.seqs)
    }
}

fn key_at<'a>(keys: &'a [u8], ends: &[u32], number: usize) -> &'a [u8] {
    let start = number.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| *end as usize);
    let end = ends.get(number).map_or(start, |end| *end as usize);
    keys.get(start..end).unwrap_or_default()
}

/// Collects separators.
#[derive(Default)]
pub(super) struct SeparatorsBuilder {
    keys: Vec<u8>,
    ends: Vec<u32>,
    seqs: Vec<SeqNo>,
}

impl SeparatorsBuilder {
    /// Appends a separator; false if it is not after the last one.
    pub(super) fn push(&mut self, key: &[u8], seq: SeqNo) -> bool {
        if let Some(last) = self.seqs.last() {
            let last_key = key_at(&self.keys, &self.ends, self.ends.len() - 1);
            if internal_cmp(last_key, *last, key, seq) != Ordering::Less {
                return false;
            }
        }
        debug_assert!(u32::try_from(self.keys.len() + key.len()).is_ok(), "separators of 4 GiB or more");
        self.keys.extend_from_slice(key);
        // Fits: the separators are in one frame, whose length has four bytes.
        self.ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        self.seqs.push(seq);
        true
    }

    pub(super) fn finish(self) -> Separators {
        assert_eq!(self.ends.len(), self.seqs.len(), "each separator has a key and a sequence number");
        debug_assert!(self.ends.is_sorted(), "the ends of the keys do not ascend");
        let numbered = self.seqs.iter().any(|seq| *seq != SeqNo::ZERO);
        Separators {
            keys: self.keys.into(),
            ends: self.ends.into(),
            seqs: if numbered { self.seqs.into() } else { Box::default() },
        }
    }
}
