//! Residency of filter slices and index partitions: the interface for the code that decides which
//! of them are in memory.
//!
//! Everything about partitions applies to [`Residency::Budgeted`]; in the other modes partitions
//! cannot be chosen, and the calls have no effect. All calls may run concurrently with lookups and
//! iterators.
//!
//! Not here: the decision.

use std::sync::atomic::Ordering;

use shamba_filter::{FilterGeometry, MAX_MODULES};

use super::filter::{Held, TableFilter, warning};
use super::{ResidentFilter, TableReader, Unasked};
use crate::Result;
use crate::residency::Residency;

impl TableReader {
    /// The resident filter now; `None` if the table has no filter or its geometry is damaged, in
    /// which case every key may be contained.
    pub fn filter(&self) -> Option<ResidentFilter> {
        self.filter.as_ref().map(TableFilter::resident)
    }

    /// The geometry with which the filter was built; `None` as for [`Self::filter`].
    pub fn filter_geometry(&self) -> Option<FilterGeometry> {
        self.filter.as_ref().map(|filter| *filter.geometry())
    }

    /// Memory of all slices of each module, if they were resident: `(bytes, slices)`.
    pub fn filter_module_bytes(&self) -> Vec<(u64, u32)> {
        self.filter.as_ref().map_or_else(Vec::new, TableFilter::module_bytes)
    }

    /// Whether modules of the filter are cached as one block each.
    pub fn is_filter_whole(&self) -> bool {
        self.filter.as_ref().is_some_and(TableFilter::is_whole)
    }

    /// Makes the first `wanted[d]` slices of each module d resident and no others, and sets the
    /// treatment of modules to `unasked`. Missing slices are read from the file; damaged ones stay
    /// absent.
    ///
    /// # Errors
    /// `Io` when reading fails; nothing has changed then.
    pub fn hold_filter(&self, wanted: &[u32], unasked: Unasked) -> Result<Held> {
        let hold = |filter: &TableFilter| filter.hold(&self.loaded.file, wanted, unasked);
        self.filter.as_ref().map_or_else(|| Ok(Held::default()), hold)
    }

    /// Makes the whole filter resident.
    ///
    /// # Errors
    /// As [`Self::hold_filter`].
    pub fn hold_whole_filter(&self) -> Result<Held> {
        self.hold_filter(&[u32::MAX; MAX_MODULES], Unasked::default())
    }

    /// Damage found in the filter so far; answers stay correct.
    pub fn filter_warnings(&self) -> Vec<String> {
        let of_geometry = self.loaded.filter_damage.iter().map(warning);
        of_geometry.chain(self.filter.iter().flat_map(TableFilter::warnings)).collect()
    }

    /// The residency mode of the index.
    pub fn index_residency(&self) -> Residency {
        self.loaded.index.hold()
    }

    /// Whether the index is cached as one block ([`crate::CacheUnit::Whole`]).
    pub fn is_index_whole(&self) -> bool {
        self.cached.is_whole()
    }

    /// Number of index partitions. They are numbered from 0, in key order.
    pub fn index_partitions(&self) -> usize {
        self.loaded.index.partitions()
    }

    /// Bytes that partition `number` takes in memory while it is resident: exact if it is or ever
    /// was resident, else a good estimate; 0 if it is a block of the cache. Excludes the part of
    /// the index that is always in memory.
    pub fn partition_bytes(&self, number: usize) -> u64 {
        self.loaded.index.partition_bytes(number)
    }

    /// Bytes that partition `number` takes in the file: the cost of a lookup that does not find it
    /// in memory.
    pub fn partition_stored_bytes(&self, number: usize) -> u64 {
        self.loaded.index.stored_at(number).bytes.into()
    }

    /// Whether lookups find partition `number` in memory. False if it is a block of the cache.
    pub fn is_partition_resident(&self, number: usize) -> bool {
        self.loaded.index.with_resident(number, |_| ()).is_some()
    }

    /// Makes partition `number` resident: reads it, checks all of it and charges it.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading. The partition is then not resident.
    pub fn hold_partition(&self, number: usize) -> Result<()> {
        let (file, index) = (&self.loaded.file, &self.loaded.index);
        if index.hold() != Residency::Budgeted
            || number >= index.partitions()
            || self.is_partition_resident(number)
            || self.is_released.load(Ordering::Acquire)
        {
            return Ok(());
        }
        debug_assert!(number < index.partitions(), "partition {number} of {}", index.partitions());
        let payload = index.read_whole(file, number)?;
        index.hold_partition(file, number, &payload, self.cached.ledger())?;
        // A release during the read may have dropped the partitions before this one was there.
        if self.is_released.load(Ordering::SeqCst) {
            self.drop_partition(number);
        }
        Ok(())
    }

    /// Drops partition `number` from memory. Its memory is freed when the last lookup that uses it
    /// ends. The frame slots of its data blocks are lost, so their frames in the block cache are
    /// freed at once. (A block that is published at the same moment may stay until the cache evicts
    /// it.)
    pub fn drop_partition(&self, number: usize) {
        let index = &self.loaded.index;
        let Some(dropped) = index.drop_partition(number) else { return };
        if let Some(first) = index.first(number) {
            self.cached.retire(dropped.slots_from(first));
        }
    }

    /// Drops all filter slices and all budgeted index partitions of a table that new lookups no
    /// longer reach. Nothing becomes resident again. Lookups that still use the table stay correct,
    /// but are slower.
    pub fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        if let Some(filter) = &self.filter {
            filter.release(&self.loaded.file);
        }
        (0..self.index_partitions()).for_each(|number| self.drop_partition(number));
    }

    /// Counts a lookup or seek that searched partition `number` ([`crate::Located::partition`]),
    /// resident or not. A caller that samples lookups calls it for the sampled ones only.
    #[inline]
    pub fn note_index_search(&self, number: usize) {
        self.loaded.index.note_search(number);
    }

    /// Counted searches of partition `number`; those before [`Self::halve_index_searches`] count
    /// half.
    pub fn index_searches(&self, number: usize) -> u32 {
        self.loaded.index.searches(number)
    }

    /// Halves all search counts, so that recent searches weigh more.
    pub fn halve_index_searches(&self) {
        self.loaded.index.halve_searches();
    }

    /// Bytes of the index that are always in memory: all but the partitions.
    pub fn index_base_bytes(&self) -> u64 {
        self.loaded.index.base_bytes() as u64
    }

    /// Bytes of the index in memory, as charged to the ledger: the permanent part and the resident
    /// partitions. (Partitions in the block cache are charged by the cache.)
    pub fn index_resident_bytes(&self) -> u64 {
        let index = &self.loaded.index;
        let resident = |number| index.with_resident(number, |partition| partition.memory_bytes() as u64);
        index.base_bytes() as u64 + (0..index.partitions()).filter_map(resident).sum::<u64>()
    }
}
