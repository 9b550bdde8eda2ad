//! The index for iterators: partition after partition, resident or not.
//!
//! An iterator looks up a resident partition each time it needs it, so the partition can be
//! dropped in between. A partition that is not resident is read once. The iterator keeps it in its
//! stored form until it moves to another partition, and is charged for it. A seek relies on the
//! partition's checksum, as a lookup does, because it uses only a few separators. The partition is
//! checked in full before the iterator moves on to a block in it, and at once if it goes over the
//! whole table. So a walk reads each byte of the table once at most, whatever the
//! partitions list. Operations on a whole table (its check, its description, cuts for a
//! compaction) also hold one partition at a time, checked in full.
//!
//! Not here: lookups ([`super::partitions`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_env::BatchRead;
use shamba_key::SeqNo;

use super::load::Loaded;
use super::partitions::Partitions;
use crate::Result;
use crate::block::frame::FRAME_BYTES;
use crate::cache::PinnedBlock;
use crate::counters::ReadCounters;
use crate::index::{self, AbsentPartition, BlockNo, Handle, Listed, Located, Partition};
use crate::ledger::{Charge, LedgerPart};

/// Position of an iterator in the index.
#[derive(Debug)]
pub(super) struct IndexCursor {
    /// The partition that was last read for it.
    read: Option<ReadPartition>,
    /// Whether seeks check partitions in full, too.
    checks: bool,
}

/// A partition that is not resident, held by its user.
#[derive(Debug)]
pub(super) struct ReadPartition {
    number: usize,
    payload: PinnedBlock,
    /// Whether it was checked in full.
    is_checked: bool,
    /// `None` if the payload is in the cache, which charges it.
    _charge: Option<Charge>,
}

impl IndexCursor {
    /// A position for an iterator; `is_whole`: over the whole table.
    pub(super) fn new(is_whole: bool) -> Self {
        Self { read: None, checks: is_whole }
    }

    /// The first block that can hold an entry at or after `(key, seq)`, and its place.
    pub(super) fn find(
        &mut self,
        partitions: Partitions<'_>,
        key: &[u8],
        seq: SeqNo,
        fill_cache: bool,
        io: &mut ReadCounters,
    ) -> Result<Option<(BlockNo, Handle)>> {
        let (_, index) = partitions.index();
        let Some(number) = index.partition_for(key, seq) else { return Ok(None) };
        let first = index.first(number).unwrap_or(BlockNo::FIRST);
        self.ask(partitions, number, (self.checks, fill_cache), io, |listed| {
            let within = listed.find(key, seq)?;
            Ok(Some((first.plus(within), listed.handle(within)?)))
        })
    }

    /// The place of block `number`; `None` past the last.
    pub(super) fn handle(
        &mut self,
        partitions: Partitions<'_>,
        number: BlockNo,
        fill_cache: bool,
        io: &mut ReadCounters,
    ) -> Result<Option<Handle>> {
        match partitions.index().1.partition_of(number) {
            Some((partition, within)) => self
                .ask(partitions, partition, (true, fill_cache), io, |listed| listed.handle(within).map(Some)),
            None => Ok(None),
        }
    }

    /// The place of block `number`, if it is known without a read.
    pub(super) fn known_handle(&self, partitions: Partitions<'_>, number: BlockNo) -> Option<Handle> {
        let (file, index) = partitions.index();
        let (partition, within) = index.partition_of(number)?;
        let resident =
            index.with_resident(partition, |partition| Listed::Decoded(partition).handle(within).ok());
        resident.unwrap_or_else(|| {
            let read = self.read.as_ref().filter(|read| read.number == partition)?;
            let read = index.view(file, partition, &read.payload).ok()?;
            read.stored.handle(within, &read.bounds).ok()
        })
    }

    /// Whether `partition` is the one that was read.
    pub(super) fn has_read(&self, partition: AbsentPartition) -> bool {
        self.read.as_ref().is_some_and(|read| read.number == partition.0)
    }

    /// The block that a seek to `(key, seq)` has to search, if `partition`, which lists it, is the
    /// one that was read.
    pub(super) fn find_read(
        &self,
        partitions: Partitions<'_>,
        partition: AbsentPartition,
        key: &[u8],
        seq: SeqNo,
    ) -> Option<Located> {
        let read = self.read.as_ref().filter(|read| read.number == partition.0)?;
        let (file, index) = partitions.index();
        let view = index.view(file, partition.0, &read.payload).ok()?;
        partitions.find_stored(partition, &view, key, seq).ok()
    }

    /// Keeps `partition`, which was read as `read`, like one that a search has read. `fill_cache`:
    /// the cache may keep it, too.
    ///
    /// # Errors
    /// `Io` or `Corruption` from the read.
    pub(super) fn take(
        &mut self,
        partitions: Partitions<'_>,
        partition: AbsentPartition,
        read: BatchRead,
        fill_cache: bool,
        io: &mut ReadCounters,
    ) -> Result<()> {
        debug_assert!(!self.checks, "an iterator over a whole table reads its partitions itself");
        let frame = partitions.bytes_of(partition, read, io)?;
        let (file, index) = partitions.index();
        let payload = Bytes::copy_from_slice(index.payload(file, partition.0, &frame)?);
        index.view(file, partition.0, &payload)?;
        let bytes = index.stored_at(partition.0).bytes;
        let charge = Charge::new(partitions.cached().ledger(), LedgerPart::Iterators, bytes.into());
        self.read = Some(ReadPartition {
            number: partition.0,
            payload: PinnedBlock::Heap(payload),
            is_checked: false,
            _charge: Some(charge),
        });
        if fill_cache {
            partitions.keep(partition, &frame);
        }
        Ok(())
    }

    /// Drops the partition that was read.
    pub(super) fn release(&mut self) {
        self.read = None;
    }

    /// Asks partition `number`, which is read if it is not resident; `checks`: checks one that is
    /// not resident in full, unless that was done before.
    fn ask<T>(
        &mut self,
        partitions: Partitions<'_>,
        number: usize,
        (checks, fill_cache): (bool, bool),
        io: &mut ReadCounters,
        ask: impl Fn(Listed<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let (file, index) = partitions.index();
        let damaged = |detail: String| index.damaged(file, number, detail);
        if let Some(answer) = index.with_resident(number, |partition| ask(Listed::Decoded(partition))) {
            self.read = None;
            return answer.map_err(damaged);
        }
        let read = match self.read.take() {
            Some(read) if read.number == number => read,
            _ => partitions.read_partition(number, fill_cache, io)?,
        };
        let read = self.read.insert(read);
        debug_assert_eq!(read.number, number, "another partition is held than is searched");
        let view = index.view(file, number, &read.payload)?;
        if checks && !read.is_checked {
            index.check(file, number, &view)?;
            read.is_checked = true;
        }
        ask(Listed::Stored(view.stored, view.bounds)).map_err(damaged)
    }
}

impl Partitions<'_> {
    /// Reads partition `number`, which is not resident, from the cache or from the file.
    fn read_partition(self, number: usize, fill_cache: bool, io: &mut ReadCounters) -> Result<ReadPartition> {
        let (file, index) = self.index();
        // If the index is cached as a whole, the slot of the first partition belongs to the whole
        // index.
        let place = index.partition_slot(number).filter(|_| !self.cached().is_whole());
        let place = self.cached().keyed(place);
        if let Some((slot, key)) = place {
            if let Some(hit) = self.cached().enter().find(slot, key) {
                let payload = PinnedBlock::Frame(hit.pin());
                return Ok(ReadPartition { number, payload, is_checked: false, _charge: None });
            }
        }
        debug_assert!(number < index.partitions(), "partition {number} of {}", index.partitions());
        let stored = index.stored_at(number);
        let charge = Charge::new(self.cached().ledger(), LedgerPart::Iterators, stored.bytes.into());
        io.index.note(stored.offset, stored.bytes.into());
        if let Some((slot, key)) = place.filter(|_| fill_cache) {
            let miss = self.cached().missed(Some(key));
            let bytes = stored.bytes as usize;
            if let Some(mut fresh) = miss.keep.then(|| self.cached().fresh(bytes)).flatten() {
                file.read_frame_into(stored.offset, bytes, &mut fresh, index::PARTITION)?;
                index.read(file, number, fresh.get(..bytes).unwrap_or_default())?;
                self.cached().was_read(miss, bytes);
                let payload = fresh.publish_pinned(slot, key, bytes.saturating_sub(FRAME_BYTES));
                return Ok(ReadPartition { number, payload, is_checked: false, _charge: None });
            }
        }
        let payload =
            PinnedBlock::Heap(file.payload(stored.offset, stored.bytes.into(), index::PARTITION)?);
        Ok(ReadPartition { number, payload, is_checked: false, _charge: Some(charge) })
    }
}

/// A partition for use from its first to its last block.
pub(crate) enum WholePartition {
    Resident(Arc<Partition>),
    Read(Bytes),
}

/// A block as its partition lists it.
pub(crate) struct ListedBlock<'a> {
    pub(crate) number: BlockNo,
    pub(crate) handle: Handle,
    /// Its separator; `None` if the partition is in decoded form.
    pub(crate) separator: Option<(&'a [u8], SeqNo)>,
    /// The separator of the previous block, if it is known.
    pub(crate) before: Option<(&'a [u8], SeqNo)>,
}

impl Loaded {
    /// Partition `number` from the file, checked in full; if it is damaged or unreadable, the
    /// resident partition.
    ///
    /// # Errors
    /// The error of the read, if the partition is not resident.
    pub(crate) fn partition(&self, number: usize) -> Result<WholePartition> {
        self.index.read_whole(&self.file, number).map(WholePartition::Read).or_else(|error| {
            let resident = self.index.with_resident(number, Arc::clone);
            resident.map(WholePartition::Resident).ok_or(error)
        })
    }

    /// The blocks of partition `number`.
    pub(crate) fn blocks_of<'a>(
        &'a self,
        number: usize,
        partition: &'a WholePartition,
    ) -> impl Iterator<Item = ListedBlock<'a>> {
        let listed = match partition {
            WholePartition::Resident(partition) => Some(Listed::Decoded(partition)),
            WholePartition::Read(payload) => {
                let view = self.index.view(&self.file, number, payload).ok();
                view.map(|view| Listed::Stored(view.stored, view.bounds))
            }
        };
        let first = self.index.first(number).unwrap_or(BlockNo::FIRST);
        let mut before = self.index.bounds(number).and_then(|bounds| bounds.after);
        // The partition was checked, so none is missing.
        let blocks = listed.into_iter().flat_map(|listed| {
            (0..listed.len()).map_while(move |within| {
                Some((within, listed.handle(within).ok()?, listed.separator(within).ok()?))
            })
        });
        blocks.map(move |(within, handle, separator)| ListedBlock {
            number: first.plus(within),
            handle,
            separator,
            before: std::mem::replace(&mut before, separator),
        })
    }
}
