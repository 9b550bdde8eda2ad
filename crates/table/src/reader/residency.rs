//! Which index partitions are in memory: what whoever decides it is told, and does.
//!
//! Everything here is for [`Residency::Budgeted`]; in the other ways nothing can be decided, and asking to has no
//! effect. All of it may be called at any time beside lookups and walks.
//!
//! Not here: the decision.

use std::sync::atomic::Ordering;

use super::{Residency, TableReader, Unasked};
use crate::Result;

impl TableReader {
    /// How the index is held.
    pub fn index_residency(&self) -> Residency {
        self.loaded.index.hold()
    }

    /// Whether the cache has the index as one block ([`crate::CacheUnit::Whole`]).
    pub fn is_index_whole(&self) -> bool {
        self.is_index_whole
    }

    /// Whether the cache has modules of the filter as one block each.
    pub fn is_filter_whole(&self) -> bool {
        self.filter.as_ref().is_some_and(super::filter::TableFilter::is_whole)
    }

    /// How many partitions the index has. They are numbered from 0, in the order of keys.
    pub fn index_partitions(&self) -> usize {
        self.loaded.index.partitions()
    }

    /// What partition `number` takes in memory when it is resident, in bytes: exact if it is or ever was, else a good
    /// estimate; 0 where it is a block of the cache. What is always in memory of the index is not in it.
    pub fn partition_bytes(&self, number: usize) -> u64 {
        self.loaded.index.partition_bytes(number)
    }

    /// What partition `number` takes in the file, in bytes: what a lookup reads that does not find it in memory.
    pub fn partition_stored_bytes(&self, number: usize) -> u64 {
        self.loaded.index.stored_at(number).bytes.into()
    }

    /// Whether lookups find partition `number` in memory. Not where it is a block of the cache.
    pub fn is_partition_resident(&self, number: usize) -> bool {
        self.loaded.index.with_resident(number, |_| ()).is_some()
    }

    /// Takes partition `number` into memory: read, checked in whole, charged, for all lookups to find.
    ///
    /// # Errors
    /// What reading says: `Io` or `Corruption`. The partition is not resident then.
    pub fn hold_partition(&self, number: usize) -> Result<()> {
        let (file, index) = (&self.loaded.file, &self.loaded.index);
        if index.hold() != Residency::Budgeted
            || number >= index.partitions()
            || self.is_partition_resident(number)
            || self.is_released.load(Ordering::Acquire)
        {
            return Ok(());
        }
        let payload = index.read_whole(file, number)?;
        index.hold_partition(file, number, &payload, &self.ledger)
    }

    /// Drops partition `number` from memory, which is released when the last lookup that is looking at it is done.
    /// Its data blocks that are in the cache could not be found any more: their frames are free at once for other
    /// blocks. (One that comes in at the same moment may stay until the cache needs its frame.)
    pub fn drop_partition(&self, number: usize) {
        let index = &self.loaded.index;
        let Some(dropped) = index.drop_partition(number) else { return };
        if let (Some(table), Some(first)) = (self.cached, index.first(number)) {
            self.cache.retire_blocks(table, dropped.slots_from(first));
        }
    }

    /// Drops all of filter and index that need not be in memory: of a table that no new lookup comes to. Those that still
    /// do are right, and slower.
    pub fn release(&self) {
        self.is_released.store(true, Ordering::Release);
        // Nothing is read where nothing is wanted, so nothing fails.
        let _ = self.hold_filter(&[], Unasked::default());
        (0..self.index_partitions()).for_each(|number| self.drop_partition(number));
    }

    /// Counts a lookup or seek that searched partition `number` ([`crate::Located::partition`]), resident or not. Whoever
    /// samples them says it of those only.
    #[inline]
    pub fn note_index_search(&self, number: usize) {
        self.loaded.index.note_search(number);
    }

    /// How many searches of partition `number` were counted; those before [`Self::halve_index_searches`] count half.
    pub fn index_searches(&self, number: usize) -> u32 {
        self.loaded.index.searches(number)
    }

    /// Makes all searches that were counted so far worth half as much, so that what is hot now shows.
    pub fn halve_index_searches(&self) {
        self.loaded.index.halve_searches();
    }

    /// What is always in memory of the index, in bytes: all but the partitions.
    pub fn index_base_bytes(&self) -> u64 {
        self.loaded.index.base_bytes() as u64
    }

    /// What is in memory of the index, in bytes, as it is charged to the ledger: what always is, and the resident
    /// partitions. (Partitions in the block cache are in that one's books.)
    pub fn index_resident_bytes(&self) -> u64 {
        let index = &self.loaded.index;
        let resident = |number| index.with_resident(number, |partition| partition.memory_bytes() as u64);
        index.base_bytes() as u64 + (0..index.partitions()).filter_map(resident).sum::<u64>()
    }
}
