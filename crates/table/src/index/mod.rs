//! The index: separators that lead to the data block of a position in the order.
//!
//! On disk, the index consists of partitions of at most about 4 KiB and a top level over them, all
//! of them [blocks](crate::block):
//!
//! ```text
//! partition   separator (key, seq) -> data block   offset u64, bytes u32, entries u32
//! top level   last separator       -> partition    offset u64, bytes u32, separators u32
//! ```
//!
//! A separator is a position at or after the last entry of its block and before the first entry of
//! the next. Separators are ordered like entries, by key ascending and sequence number descending.
//! So a lookup finds the block of its sequence number even if the versions of its key span several
//! blocks. If the next block starts with another key, the separator is the shortest key between the
//! two, with sequence number 0 (the last position of a key).
//!
//! In memory, the [top level](top) is always present; the partitions depend on the [residency
//! mode](hold). An open [reads](load) none of them unless they are pinned. A block is identified by
//! its [number](BlockNo) in the whole table.
//!
//! Thread safety: immutable except for the partitions, which are published and dropped atomically.
//!
//! Not here: reading partitions that are not in memory, and the data blocks ([`crate::reader`]).

mod build;
mod handle;
mod hold;
mod listed;
mod load;
mod located;
mod partition;
mod separators;
mod stored;
mod tails;
mod top;

pub(crate) use self::build::{IndexBuilder, last_separator, separator};
pub(crate) use self::handle::Handle;
pub(crate) use self::hold::SlotRef;
pub(crate) use self::listed::Listed;
pub(crate) use self::load::{StoredIndex, listed_partitions};
pub(crate) use self::located::BlockNo;
pub use self::located::{AbsentPartition, Find, Located};
pub(crate) use self::partition::Partition;
pub(crate) use self::stored::{Bounds, StoredPartition};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use shamba_key::{SeqNo, prefetch_slice};

use self::hold::{Cell, HeldPartitions};
use self::separators::Found;
use self::top::Top;
use crate::block::frame::check;
use crate::compression::Compression;
use crate::file::TableFile;
use crate::ledger::Ledger;
use crate::residency::Residency;
use crate::slot::FrameSlot;
use crate::{Error, Result};

/// Name of an index partition in errors.
pub(crate) const PARTITION: &str = "index partition";
/// Name of the top level in errors.
pub(crate) const TOP: &str = "index top level";

/// Separates the cache keys of partitions from those of data blocks, whose numbers are smaller.
const PARTITION_KEY: u32 = 1 << 31;

/// The part of an index that is in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    top: Top,
    held: HeldPartitions,
}

/// A partition that was read: a view of its payload, and the bounds that it must meet.
pub(crate) struct Read<'a> {
    pub(crate) stored: StoredPartition<'a>,
    pub(crate) bounds: Bounds<'a>,
}

impl Index {
    /// An index of these `partitions` if they are pinned; `expected` has the bytes that each would
    /// take in memory.
    fn of(top: Top, hold: Residency, partitions: Vec<Partition>, expected: &[u64]) -> Self {
        let listed = if hold == Residency::Pinned { partitions.len() } else { expected.len() };
        assert_eq!(listed, top.len(), "the top level lists another number of partitions");
        let held = HeldPartitions::new(hold, partitions, expected, top.blocks() as usize);
        Self { top, held }
    }

    /// Residency mode of the partitions.
    pub(crate) fn hold(&self) -> Residency {
        self.held.hold()
    }

    /// Number of data blocks.
    pub(crate) fn len(&self) -> usize {
        self.top.blocks() as usize
    }

    /// Number of partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.top.len()
    }

    /// The last data block.
    pub(crate) fn last(&self) -> Option<BlockNo> {
        self.top.blocks().checked_sub(1).map(BlockNo)
    }

    /// The number of a partition's first block.
    pub(crate) fn first(&self, partition: usize) -> Option<BlockNo> {
        self.top.first(partition).map(BlockNo)
    }

    /// The place of a partition in the file; an empty handle if the number is out of range.
    pub(crate) fn stored_at(&self, partition: usize) -> Handle {
        self.top.stored(partition).unwrap_or(Handle { offset: 0, bytes: 0, entries: 0 })
    }

    /// The bounds that a partition must meet.
    pub(crate) fn bounds(&self, partition: usize) -> Option<Bounds<'_>> {
        self.top.bounds(partition)
    }

    /// The partition that lists block `number`, and the block's position in it.
    #[inline]
    pub(crate) fn partition_of(&self, number: BlockNo) -> Option<(usize, usize)> {
        self.top.partition_of(number)
    }

    /// The partition that lists the first block that can hold an entry at or after `(key, seq)`.
    pub(crate) fn partition_for(&self, key: &[u8], seq: SeqNo) -> Option<usize> {
        Some(self.top.find(key, seq)).filter(|at| *at < self.top.len())
    }

    /// Finds the first block that can hold an entry at or after `(key, seq)`, if the partition is
    /// in memory.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo) -> Find {
        let at = self.top.find(key, seq);
        let Some(first) = self.top.first(at) else {
            return Find::Beyond;
        };
        match &self.held {
            HeldPartitions::Pinned(partitions) => match partitions.get(at) {
                Some(partition) => find_in(partition, at, first, key, seq),
                None => Find::Beyond,
            },
            HeldPartitions::Budgeted(cells) => {
                match cells.get(at).map(|cell| cell.partition.load()).as_deref() {
                    Some(Some(partition)) => find_in(partition, at, first, key, seq),
                    _ => Find::Absent(AbsentPartition(at)),
                }
            }
            HeldPartitions::Cached(_) => Find::Absent(AbsentPartition(at)),
        }
    }

    /// Prefetches the record of partition `number`, if it is in memory: the first of the steps of
    /// [`Self::find`] for a search of several indexes whose cache misses are to overlap.
    #[inline]
    pub(crate) fn prefetch_partition(&self, number: usize) {
        self.with_resident(number, |partition| prefetch_slice(std::slice::from_ref(&**partition)));
    }

    /// Prefetches the lines that a search of partition `number` reads. Call it some time after
    /// [`Self::prefetch_partition`].
    #[inline]
    pub(crate) fn prefetch_separators(&self, number: usize) {
        self.with_resident(number, |partition| partition.prefetch());
    }

    /// As [`Self::find`], in partition `number`, which [`Self::partition_for`] returned; some time
    /// after [`Self::prefetch_separators`].
    #[inline]
    pub(crate) fn find_prefetched(&self, number: usize, key: &[u8], seq: SeqNo) -> Find {
        let Some(first) = self.top.first(number) else { return Find::Beyond };
        let found = self.with_resident(number, |partition| {
            located_in(partition, partition.find_prefetched(key, seq), number, first)
        });
        found.unwrap_or(Find::Absent(AbsentPartition(number)))
    }

    /// Calls `look` with partition `number` if it is in memory.
    #[inline]
    pub(crate) fn with_resident<T>(
        &self,
        number: usize,
        look: impl FnOnce(&Arc<Partition>) -> T,
    ) -> Option<T> {
        match &self.held {
            HeldPartitions::Pinned(partitions) => partitions.get(number).map(look),
            HeldPartitions::Budgeted(cells) => cells.get(number)?.partition.load().as_ref().map(look),
            HeldPartitions::Cached(_) => None,
        }
    }

    /// The frame slot of block `number`; `None` past the last, and if the partition is not in
    /// memory.
    #[inline]
    pub(crate) fn slot(&self, number: BlockNo) -> Option<SlotRef<'_>> {
        if let HeldPartitions::Cached(slots) = &self.held {
            return slots.blocks.get(number.0 as usize).map(SlotRef::Here);
        }
        let (at, within) = self.partition_of(number)?;
        match &self.held {
            HeldPartitions::Pinned(partitions) => partitions.get(at)?.slot(within).map(SlotRef::Here),
            HeldPartitions::Budgeted(cells) => {
                let partition = cells.get(at)?.partition.load();
                partition.as_ref()?;
                Some(SlotRef::Resident(partition, within))
            }
            HeldPartitions::Cached(_) => None,
        }
    }

    /// Whether block `number` has a frame slot in memory.
    pub(crate) fn has_slot(&self, number: BlockNo) -> bool {
        self.slot(number).is_some()
    }

    /// The frame slot of partition `number` and the number for its cache key, in the mode
    /// [`Residency::Cached`].
    pub(crate) fn partition_slot(&self, number: usize) -> Option<(&FrameSlot, u32)> {
        match &self.held {
            HeldPartitions::Cached(slots) => {
                Some((slots.partitions.get(number)?, number as u32 | PARTITION_KEY))
            }
            HeldPartitions::Pinned(_) | HeldPartitions::Budgeted(_) => None,
        }
    }

    /// Calls `each` with every slice of frame slots that is in memory. Its first argument is the
    /// cache's number of the first slot; the numbers are consecutive within a slice.
    pub(crate) fn each_slots(&self, mut each: impl FnMut(u32, &[FrameSlot])) {
        if let HeldPartitions::Cached(slots) = &self.held {
            each(0, &slots.blocks);
            each(PARTITION_KEY, &slots.partitions);
        }
        for number in 0..self.partitions() {
            if let Some(first) = self.top.first(number) {
                self.with_resident(number, |partition| each(first, partition.slots()));
            }
        }
    }

    /// Returns a view of partition `number`, whose frame is `frame`; checks its checksum and its
    /// header.
    pub(crate) fn read<'a>(&'a self, file: &TableFile, number: usize, frame: &'a [u8]) -> Result<Read<'a>> {
        self.view(file, number, self.payload(file, number, frame)?)
    }

    /// The payload of partition `number`, whose frame is `frame`; checks its checksum.
    pub(crate) fn payload<'a>(&self, file: &TableFile, number: usize, frame: &'a [u8]) -> Result<&'a [u8]> {
        payload_of(file, self.stored_at(number), frame)
    }

    /// As [`Self::read`], for a payload that was checked before.
    pub(crate) fn view<'a>(&'a self, file: &TableFile, number: usize, payload: &'a [u8]) -> Result<Read<'a>> {
        let bounds = self.bounds(number).unwrap_or(NOTHING);
        let stored = StoredPartition::view(payload, bounds.separators)
            .map_err(|detail| self.damaged(file, number, detail))?;
        Ok(Read { stored, bounds })
    }

    /// Reads the whole of partition `number` from the file and checks it.
    pub(crate) fn read_whole(&self, file: &TableFile, number: usize) -> Result<Bytes> {
        let stored = self.stored_at(number);
        let payload = file.payload(stored.offset, u64::from(stored.bytes), PARTITION)?;
        self.check(file, number, &self.view(file, number, &payload)?)?;
        Ok(payload)
    }

    /// Checks the whole of partition `number`, which was read.
    pub(crate) fn check(&self, file: &TableFile, number: usize, read: &Read<'_>) -> Result<()> {
        let checked = read.stored.check(&read.bounds);
        checked.map(|_| ()).map_err(|detail| self.damaged(file, number, detail))
    }

    /// A located block, listed at position `within` of a partition that was read.
    pub(crate) fn located(&self, number: usize, within: usize, handle: Handle, goes_on: bool) -> Located {
        let block = BlockNo(self.top.first(number).unwrap_or(0)).plus(within);
        debug_assert_eq!(
            self.partition_of(block),
            Some((number, within)),
            "block {block:?} is listed elsewhere"
        );
        let frame = self.slot(block).and_then(|slot| slot.get()?.frame());
        Located { number: block, partition: number as u32, frame, handle: Some(handle), goes_on }
    }

    /// The error for damage to partition `number`.
    #[cold]
    pub(crate) fn damaged(&self, file: &TableFile, number: usize, detail: String) -> Error {
        file.damaged(self.stored_at(number).offset, PARTITION, detail)
    }

    /// Bytes in memory without the partitions, which are charged separately.
    pub(crate) fn base_bytes(&self) -> usize {
        self.top.memory_bytes() + self.held.memory_bytes()
    }

    /// Makes a partition resident from its payload. No effect if it is resident already, or in
    /// another mode.
    pub(crate) fn hold_partition(
        &self,
        file: &TableFile,
        number: usize,
        payload: &[u8],
        ledger: &Arc<Ledger>,
    ) -> Result<()> {
        let Some(cell) = self.cell(number) else { return Ok(()) };
        let Read { stored, bounds } = self.view(file, number, payload)?;
        let decoded = stored.decode(&bounds, ledger);
        cell.publish(decoded.map_err(|detail| self.damaged(file, number, detail))?);
        Ok(())
    }

    /// Drops a resident partition and returns it; its memory is freed with the last reference.
    pub(crate) fn drop_partition(&self, number: usize) -> Option<Arc<Partition>> {
        self.cell(number)?.partition.swap(None)
    }

    /// Bytes of a partition while it is resident: exact once it has been resident, before that an
    /// estimate; 0 if it cannot become resident.
    pub(crate) fn partition_bytes(&self, number: usize) -> u64 {
        if let Some(cell) = self.cell(number) {
            return cell.bytes.load(Ordering::Relaxed).into();
        }
        self.with_resident(number, |partition| partition.memory_bytes() as u64).unwrap_or(0)
    }

    /// Counts a search of a partition.
    pub(crate) fn note_search(&self, number: usize) {
        if let Some(cell) = self.cell(number) {
            cell.searches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Decayed count of the searches of a partition.
    pub(crate) fn searches(&self, number: usize) -> u32 {
        self.cell(number).map_or(0, |cell| cell.searches.load(Ordering::Relaxed))
    }

    /// Halves all search counts. A search that is counted at the same moment may be lost.
    pub(crate) fn halve_searches(&self) {
        for cell in (0..self.partitions()).filter_map(|number| self.cell(number)) {
            cell.searches.store(cell.searches.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    fn cell(&self, number: usize) -> Option<&Cell> {
        match &self.held {
            HeldPartitions::Budgeted(cells) => cells.get(number),
            HeldPartitions::Pinned(_) | HeldPartitions::Cached(_) => None,
        }
    }
}

impl Partition {
    /// The partition's slots with the numbers of their blocks.
    pub(crate) fn slots_from(&self, first: BlockNo) -> impl Iterator<Item = (u32, &FrameSlot)> {
        (first.0..).zip(self.slots())
    }
}

/// Bounds for a partition number out of range: no partition meets them.
const NOTHING: Bounds<'static> =
    Bounds { separators: 0, start: 0, end: 0, is_end_known: true, after: None, last: (&[], SeqNo::ZERO) };

#[inline]
fn find_in(partition: &Partition, at: usize, first: u32, key: &[u8], seq: SeqNo) -> Find {
    located_in(partition, partition.find(key, seq), at, first)
}

/// The block that a search of partition `at` found; `first` is the partition's first block.
#[inline]
fn located_in(partition: &Partition, found: Found, at: usize, first: u32) -> Find {
    debug_assert!(found.at <= partition.len(), "a search ends at {} of {}", found.at, partition.len());
    let Some(slot) = partition.slot(found.at) else {
        // Checked when the partition was loaded: it ends with the separator of the top level.
        return Find::Beyond;
    };
    Find::At(Located {
        number: BlockNo(first + found.at as u32),
        partition: at as u32,
        frame: slot.frame(),
        handle: None,
        goes_on: found.goes_on,
    })
}

/// Checks the checksum of the partition's frame at `handle` and returns its payload.
fn payload_of<'f>(file: &TableFile, handle: Handle, frame: &'f [u8]) -> Result<&'f [u8]> {
    match check(file.birth, handle.offset, frame) {
        Ok((payload, Compression::None)) => Ok(payload),
        Ok((_, other)) => Err(file.damaged(handle.offset, PARTITION, format!("compressed with {other}"))),
        Err(detail) => Err(file.damaged(handle.offset, PARTITION, detail)),
    }
}

#[cfg(test)]
mod tests;
