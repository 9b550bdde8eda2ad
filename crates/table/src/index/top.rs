//! The part of the index that is always in memory: the places of the partitions, and the search for
//! one.
//!
//! For each partition it has the last separator, under heads; the number of its first block; its
//! place in the file and the end of its blocks. With that, a partition that was read can be checked
//! against its neighbours without reading them. About 80 bytes per partition, each of which lists
//! about a hundred blocks.
//!
//! Not here: the partitions ([`super::partition`], [`super::stored`]).

use shamba_key::{LayeredHeads, SeqNo};

use super::BlockNo;
use super::handle::Handle;
use super::separators::{Separators, SeparatorsBuilder};
use super::stored::Bounds;

/// Blocks per hint, a starting point for [`Top::partition_of`].
const BLOCKS_PER_HINT: usize = 64;

/// The top level of an index. Immutable.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// Heads over the partitions' last separators.
    heads: LayeredHeads,
    lasts: Separators,
    /// The number of each partition's first block.
    firsts: Box<[u32]>,
    /// The partition of every [`BLOCKS_PER_HINT`]th block.
    hints: Box<[u32]>,
    /// Places of the partitions in the file; `entries` is the number of their separators.
    stored: Box<[Handle]>,
    /// Minimum offset of the first block.
    data_start: u64,
    /// End of the last block of each partition.
    data_ends: Box<[u64]>,
    /// Number of blocks: less than [`LayeredHeads::KEYS_MAX`].
    blocks: u32,
}

impl Top {
    /// Number of partitions.
    pub(super) fn len(&self) -> usize {
        self.firsts.len()
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The partition that lists the first block that can hold an entry at or after `(key, seq)`;
    /// the number of partitions if there is none.
    #[inline]
    pub(super) fn find(&self, key: &[u8], seq: SeqNo) -> usize {
        // Partitions may end between versions of one key, whose sequence numbers descend.
        self.lasts.find(&self.heads, key, seq).at
    }

    /// The number of a partition's first block.
    #[inline]
    pub(super) fn first(&self, partition: usize) -> Option<u32> {
        self.firsts.get(partition).copied()
    }

    pub(super) fn stored(&self, partition: usize) -> Option<Handle> {
        self.stored.get(partition).copied()
    }

    /// The bounds that a partition must meet.
    pub(super) fn bounds(&self, partition: usize) -> Option<Bounds<'_>> {
        let before = partition.checked_sub(1);
        Some(Bounds {
            separators: self.stored.get(partition)?.entries,
            start: before.map_or(self.data_start, |before| self.data_ends.get(before).copied().unwrap_or(0)),
            end: *self.data_ends.get(partition)?,
            is_end_known: true,
            after: before.map(|before| self.lasts.get(before)),
            last: self.lasts.get(partition),
        })
    }

    /// The partition that lists block `number`, and the block's position in it.
    #[inline]
    pub(super) fn partition_of(&self, number: BlockNo) -> Option<(usize, usize)> {
        if number.0 >= self.blocks {
            return None;
        }
        let mut at = *self.hints.get(number.0 as usize / BLOCKS_PER_HINT)? as usize;
        // Most partitions have more blocks than a hint covers, so the loop rarely iterates twice.
        while self.firsts.get(at + 1).is_some_and(|first| *first <= number.0) {
            at += 1;
        }
        debug_assert!(
            self.firsts.get(at).is_some_and(|first| *first <= number.0),
            "block {} lies before partition {at}, which its hint names",
            number.0
        );
        Some((at, number.0.checked_sub(*self.firsts.get(at)?)? as usize))
    }

    /// Bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heads.memory_bytes()
            + self.lasts.memory_bytes()
            + size_of_val(&*self.firsts)
            + size_of_val(&*self.hints)
            + size_of_val(&*self.stored)
            + size_of_val(&*self.data_ends)
    }
}

/// Collects the top level, one partition after the other.
pub(super) struct TopBuilder {
    stored: Vec<Handle>,
    lasts: SeparatorsBuilder,
    last: Option<(Vec<u8>, SeqNo)>,
    firsts: Vec<u32>,
    hints: Vec<u32>,
    data_start: u64,
    data_end: u64,
    data_ends: Vec<u64>,
    blocks: u32,
}

impl TopBuilder {
    /// Starts the top level of a table whose blocks lie in `data_start..data_end`.
    pub(super) fn new(data_start: u64, data_end: u64) -> Self {
        Self {
            stored: Vec::new(),
            lasts: SeparatorsBuilder::default(),
            last: None,
            firsts: Vec::new(),
            hints: Vec::new(),
            data_start,
            data_end,
            data_ends: Vec::new(),
            blocks: 0,
        }
    }

    /// The bounds of the next partition, which has `separators` and ends with `last`. Its blocks
    /// end at `blocks_end`, if that is known.
    pub(super) fn bounds<'a>(
        &'a self,
        separators: u32,
        last: (&'a [u8], SeqNo),
        blocks_end: Option<u64>,
    ) -> Bounds<'a> {
        Bounds {
            separators,
            start: self.blocks_end(),
            end: blocks_end.unwrap_or(self.data_end),
            is_end_known: blocks_end.is_some(),
            after: self.last.as_ref().map(|(key, seq)| (key.as_slice(), *seq)),
            last,
        }
    }

    /// Appends a partition whose blocks end at `blocks_end`: after those before it, within the
    /// data.
    pub(super) fn push(
        &mut self,
        stored: Handle,
        last: (&[u8], SeqNo),
        blocks_end: u64,
    ) -> Result<(), String> {
        let blocks = self.blocks.checked_add(stored.entries);
        let blocks = blocks.filter(|blocks| (*blocks as usize) < LayeredHeads::KEYS_MAX);
        let blocks = blocks.ok_or("more blocks than a table can have")?;
        if !self.lasts.push(last.0, last.1) {
            return Err("separators out of order".to_owned());
        }
        let number = self.stored.len() as u32;
        assert!(
            blocks_end <= self.data_end,
            "the blocks of a partition end at {blocks_end}, beyond the data"
        );
        assert!(
            blocks_end >= self.blocks_end(),
            "the blocks of a partition end at {blocks_end}, before its start"
        );
        self.hints.resize((blocks as usize).div_ceil(BLOCKS_PER_HINT), number);
        self.firsts.push(self.blocks);
        self.stored.push(stored);
        self.data_ends.push(blocks_end);
        self.last = Some((last.0.to_vec(), last.1));
        self.blocks = blocks;
        debug_assert_eq!(
            self.firsts.len(),
            self.stored.len(),
            "each partition has a first block and a place"
        );
        debug_assert_eq!(self.firsts.len(), self.data_ends.len(), "each partition has an end");
        Ok(())
    }

    /// End of the blocks so far.
    pub(super) fn blocks_end(&self) -> u64 {
        self.data_ends.last().copied().unwrap_or(self.data_start)
    }

    pub(super) fn finish(self) -> Top {
        let lasts = self.lasts.finish();
        assert_eq!(lasts.len(), self.firsts.len(), "each partition has one last separator");
        assert!(self.firsts.is_sorted(), "the first blocks of partitions do not ascend");
        assert_eq!(
            self.hints.len(),
            (self.blocks as usize).div_ceil(BLOCKS_PER_HINT),
            "one hint for every {BLOCKS_PER_HINT} blocks"
        );
        Top {
            heads: lasts.heads(),
            lasts,
            firsts: self.firsts.into(),
            hints: self.hints.into(),
            stored: self.stored.into(),
            data_start: self.data_start,
            data_ends: self.data_ends.into(),
            blocks: self.blocks,
        }
    }
}
