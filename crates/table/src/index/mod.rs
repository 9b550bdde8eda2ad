//! The index: separators that say which data block holds a place of the order.
//!
//! On disk, partitions of at most about 4 KiB and a top level over them, all of them [blocks](crate::block):
//!
//! ```text
//! partition   separator (key, seq) -> data block   offset u64, bytes u32, entries u32
//! top level   last separator       -> partition    offset u64, bytes u32, separators u32
//! ```
//!
//! A separator is a place at or after the last entry of its block and before the first of the next. It orders
//! as entries do, by key ascending and sequence number descending, so versions of one key may span blocks and
//! a lookup still goes straight to the block of its sequence number. Where the next block starts with
//! another key, the separator is the shortest such key, with sequence number 0 (the last place of a key).
//!
//! In memory, the partitions one by one, loaded at open, under heads of their last separators. A block is
//! named by its [number](BlockNo) over the whole table.
//!
//! Not here: reading the data blocks ([`crate::reader`]).

mod build;
mod handle;
mod partition;
mod slot;

pub(crate) use self::build::{IndexBuilder, separator};
pub(crate) use self::handle::Handle;
pub(crate) use self::slot::FrameSlot;

use std::cmp::Ordering;

use bytes::Bytes;
use shamba_key::{LayeredHeads, SeqNo};

use self::partition::{Partition, PartitionBuilder};
use crate::block::Block;
use crate::entry::internal_cmp;
use crate::error::{Error, Result};
use crate::format::Section;
use crate::reader::TableFile;

/// Index partitions as they are named in errors.
pub(crate) const PARTITION: &str = "index partition";
/// The top level as it is named in errors.
pub(crate) const TOP: &str = "index top level";

/// Blocks for each of the places that [`Index::partition_of`] starts looking at.
const BLOCKS_PER_HINT: usize = 64;

/// A data block of a table: its place among all of them, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlockNo(pub(crate) u32);

impl BlockNo {
    /// The first block of a table that has one.
    pub(crate) const FIRST: Self = Self(0);

    /// The block after this one, if the table goes on.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The block before this one.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// The whole index in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Over the partitions' last separators.
    top: LayeredHeads,
    partitions: Vec<Partition>,
    /// The number of each partition's first block.
    firsts: Vec<u32>,
    /// The partition of every [`BLOCKS_PER_HINT`]th block.
    hints: Vec<u32>,
    /// How many blocks there are: below [`LayeredHeads::KEYS_MAX`].
    blocks: u32,
    entries: u64,
    /// Where the partitions lie in the file.
    stored: Vec<Handle>,
}

impl Index {
    /// Loads the partitions in `section` over which `top` lies; their blocks lie in `data`.
    pub(crate) fn load(file: &TableFile, top: Section, section: Section, data: Section) -> Result<Self> {
        let mut index = Self { stored: load_top(file, top, section)?, ..Self::default() };
        let mut next = data.offset;
        for stored in index.stored.clone() {
            let damaged = |detail: String| file.damaged(stored.offset, PARTITION, detail);
            let block = load_partition(file, stored)?;
            let mut partition = PartitionBuilder::default();
            for entry in block.entries() {
                let handle =
                    Handle::decode(entry.value).ok_or_else(|| damaged("a malformed handle".into()))?;
                if handle.offset < next || handle.end() > data.end() || handle.entries == 0 {
                    return Err(damaged(format!(
                        "a block of {} bytes at {}, expected between {next} and {}",
                        handle.bytes,
                        handle.offset,
                        data.end()
                    )));
                }
                next = handle.end();
                index.entries = index.entries.saturating_add(u64::from(handle.entries));
                if !partition.push(entry.key, entry.seq, handle) {
                    return Err(damaged("separators out of order".into()));
                }
            }
            index.push(partition.finish()).map_err(damaged)?;
        }
        if next != data.end() {
            return Err(file.damaged(
                top.offset,
                TOP,
                format!("blocks end at {next}, the data section at {}", data.end()),
            ));
        }
        index.finish();
        Ok(index)
    }

    /// Appends a partition, which must be after the last one.
    fn push(&mut self, partition: Partition) -> std::result::Result<(), String> {
        if let Some(last) = self.partitions.last() {
            let ((last_key, last_seq), (key, seq)) = (last.last(), partition.separator(0));
            if internal_cmp(last_key, last_seq, key, seq) != Ordering::Less {
                return Err("separators out of order".to_owned());
            }
        }
        let blocks = u32::try_from(partition.len()).ok().and_then(|more| self.blocks.checked_add(more));
        let blocks = blocks.filter(|blocks| (*blocks as usize) < LayeredHeads::KEYS_MAX);
        let blocks = blocks.ok_or_else(|| "more blocks than a table can have".to_owned())?;
        let number = self.partitions.len() as u32;
        self.hints.resize((blocks as usize).div_ceil(BLOCKS_PER_HINT), number);
        self.firsts.push(self.blocks);
        self.partitions.push(partition);
        self.blocks = blocks;
        Ok(())
    }

    /// Makes what lies over the partitions, once they are all there.
    fn finish(&mut self) {
        self.top = LayeredHeads::new(self.partitions.len(), |number| self.partitions[number].last().0);
        self.partitions.shrink_to_fit();
        self.firsts.shrink_to_fit();
        self.hints.shrink_to_fit();
    }

    /// How many data blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks as usize
    }

    /// All data blocks in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (BlockNo, Handle)> {
        (0..self.blocks).map(BlockNo).filter_map(|number| Some((number, self.handle(number)?)))
    }

    /// The last data block.
    pub(crate) fn last(&self) -> Option<BlockNo> {
        self.blocks.checked_sub(1).map(BlockNo)
    }

    /// Where block `number` lies; `None` past the last.
    pub(crate) fn handle(&self, number: BlockNo) -> Option<Handle> {
        let (partition, within) = self.partition_of(number)?;
        partition.handle(within)
    }

    /// Where the cache keeps block `number`; `None` past the last.
    pub(crate) fn slot(&self, number: BlockNo) -> Option<&FrameSlot> {
        let (partition, within) = self.partition_of(number)?;
        partition.slot(within)
    }

    /// The separator after block `number`; `None` past the last.
    pub(crate) fn separator(&self, number: BlockNo) -> Option<(&[u8], SeqNo)> {
        let (partition, within) = self.partition_of(number)?;
        Some(partition.separator(within))
    }

    /// The partition that has block `number`, and the block's place in it.
    #[inline]
    fn partition_of(&self, number: BlockNo) -> Option<(&Partition, usize)> {
        if number.0 >= self.blocks {
            return None;
        }
        let mut at = *self.hints.get(number.0 as usize / BLOCKS_PER_HINT)? as usize;
        // Partitions mostly have more blocks than a hint is for: hardly ever a second turn.
        while self.firsts.get(at + 1).is_some_and(|first| *first <= number.0) {
            at += 1;
        }
        Some((self.partitions.get(at)?, number.0.checked_sub(*self.firsts.get(at)?)? as usize))
    }

    /// The first block that can hold an entry at or after `(key, seq)`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo) -> Option<BlockNo> {
        let equal = self.top.equal_range(key, |number| self.partitions[number].last().0);
        // Partitions may end within the versions of one key, whose sequence numbers descend.
        let later = self.partitions.get(equal.clone()).unwrap_or_default();
        let at = equal.start + later.partition_point(|partition| partition.last().1 > seq);
        let within = self.partitions.get(at)?.find(key, seq) as u32;
        Some(BlockNo(self.firsts.get(at)? + within))
    }

    /// Where the partitions lie.
    pub(crate) fn stored(&self) -> &[Handle] {
        &self.stored
    }

    /// What the index takes in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.top.memory_bytes()
            + self.partitions.capacity() * size_of::<Partition>()
            + self.partitions.iter().map(Partition::memory_bytes).sum::<usize>()
            + (self.firsts.capacity() + self.hints.capacity()) * size_of::<u32>()
            + self.stored.capacity() * size_of::<Handle>()
    }

    /// Entries of all blocks, as the handles count them.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }
}

/// The partitions that the top level lists: back to back, filling their section.
fn load_top(file: &TableFile, top: Section, section: Section) -> Result<Vec<Handle>> {
    let damaged = |detail: String| file.damaged(top.offset, TOP, detail);
    let block = Block::parse(file.payload(top.offset, top.bytes, TOP)?).map_err(damaged)?;
    let mut partitions: Vec<Handle> = Vec::with_capacity(block.len());
    let mut next = section.offset;
    for entry in block.entries() {
        let handle = Handle::decode(entry.value).ok_or_else(|| damaged("a malformed handle".into()))?;
        if handle.offset != next || handle.end() > section.end() {
            let (bytes, offset) = (handle.bytes, handle.offset);
            return Err(damaged(format!("a partition of {bytes} bytes at {offset}, expected at {next}")));
        }
        next = handle.end();
        partitions.push(handle);
    }
    if next != section.end() {
        return Err(damaged(format!("partitions end at {next}, their section at {}", section.end())));
    }
    Ok(partitions)
}

/// Reads and checks one partition.
pub(crate) fn load_partition(file: &TableFile, partition: Handle) -> Result<Block> {
    let damaged = |detail: String| -> Error { file.damaged(partition.offset, PARTITION, detail) };
    let payload: Bytes = file.payload(partition.offset, u64::from(partition.bytes), PARTITION)?;
    let block = Block::parse(payload).map_err(damaged)?;
    if block.len() != partition.entries as usize || block.len() == 0 {
        return Err(damaged(format!("{} separators, expected {}", block.len(), partition.entries)));
    }
    Ok(block)
}

#[cfg(test)]
mod tests;
