//! One partition of the index, as it is held in memory.
//!
//! [Heads](LayeredHeads) over the separators find the block; a separator itself is read only where heads leave
//! the question open. Beside them lie the blocks' handles and a [slot](FrameSlot) for each, so that a block
//! that is cached is found without a map. Sequence numbers are held only if one of them is not 0.
//!
//! Memory for each block, with keys of no pattern: a head of 8 bytes, a handle of 8, a slot of 4, the place of
//! the separator 4 and the separator.

use std::cmp::Ordering;

use shamba_key::{LayeredHeads, SeqNo, prefetch_slice};

use super::handle::{Handle, Handles};
use super::slot::FrameSlot;
use crate::entry::internal_cmp;

/// The separators of consecutive blocks, ascending. Never empty.
#[derive(Debug)]
pub(super) struct Partition {
    heads: LayeredHeads,
    slots: Box<[FrameSlot]>,
    handles: Handles,
    /// All separators' keys, and where each ends.
    keys: Box<[u8]>,
    ends: Box<[u32]>,
    /// The separators' numbers; empty if all are 0.
    seqs: Box<[SeqNo]>,
}

impl Partition {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The first block whose separator is at or after `(key, seq)`; [`Self::len`] if there is none.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: SeqNo) -> usize {
        // What the end of the search will want: its dependent loads would wait for one line after another.
        self.heads.prefetch();
        prefetch_slice(&self.slots);
        if self.heads.is_layered() {
            prefetch_slice(&self.ends);
        }
        let equal = self.heads.equal_range(key, |number| self.key(number));
        // Separators with one key: their numbers descend.
        let later = self.seqs.get(equal.clone()).unwrap_or_default();
        equal.start + later.partition_point(|held| *held > seq)
    }

    pub(super) fn separator(&self, number: usize) -> (&[u8], SeqNo) {
        (self.key(number), self.seqs.get(number).copied().unwrap_or(SeqNo::ZERO))
    }

    /// The last separator: of the last block, and of the partition.
    pub(super) fn last(&self) -> (&[u8], SeqNo) {
        self.separator(self.len().saturating_sub(1))
    }

    pub(super) fn handle(&self, number: usize) -> Option<Handle> {
        self.handles.get(number)
    }

    pub(super) fn slot(&self, number: usize) -> Option<&FrameSlot> {
        self.slots.get(number)
    }

    /// Bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heads.memory_bytes()
            + size_of_val(&*self.slots)
            + self.handles.memory_bytes()
            + self.keys.len()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.seqs)
    }

    fn key(&self, number: usize) -> &[u8] {
        key_at(&self.keys, &self.ends, number)
    }
}

fn key_at<'a>(keys: &'a [u8], ends: &[u32], number: usize) -> &'a [u8] {
    let start = number.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| *end as usize);
    let end = ends.get(number).map_or(start, |end| *end as usize);
    keys.get(start..end).unwrap_or_default()
}

/// Gathers the separators of one partition.
#[derive(Default)]
pub(super) struct PartitionBuilder {
    keys: Vec<u8>,
    ends: Vec<u32>,
    seqs: Vec<SeqNo>,
    handles: Vec<Handle>,
}

impl PartitionBuilder {
    /// Appends a separator; false if it is not after the last one.
    pub(super) fn push(&mut self, key: &[u8], seq: SeqNo, handle: Handle) -> bool {
        if let Some((last_key, last_seq)) = self.last()
            && internal_cmp(last_key, last_seq, key, seq) != Ordering::Less
        {
            return false;
        }
        self.keys.extend_from_slice(key);
        // A partition is one frame, whose length has four bytes.
        self.ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        self.seqs.push(seq);
        self.handles.push(handle);
        true
    }

    fn last(&self) -> Option<(&[u8], SeqNo)> {
        let seq = *self.seqs.last()?;
        Some((key_at(&self.keys, &self.ends, self.ends.len() - 1), seq))
    }

    pub(super) fn finish(self) -> Partition {
        let numbered = self.seqs.iter().any(|seq| *seq != SeqNo::ZERO);
        Partition {
            heads: LayeredHeads::new(self.ends.len(), |number| key_at(&self.keys, &self.ends, number)),
            slots: self.ends.iter().map(|_| FrameSlot::new()).collect(),
            handles: Handles::new(&self.handles),
            keys: self.keys.into(),
            ends: self.ends.into(),
            seqs: if numbered { self.seqs.into() } else { Box::default() },
        }
    }
}
