//! Counters of the engine since it was opened, and the [`Stats`] that callers read.
//!
//! Lookups are counted in per-thread shards ([`shamba_tree::counters`]); all other, rarer events in
//! plain atomics. `hashes` comes from the counter in the hash function itself, not from an estimate
//! of the lookup.
//!
//! The use of memory is in a type of its own, [`MemoryReport`].

mod memory;

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_tree::counters::{LookupCounters, ReadsByKind};

pub use self::memory::{LevelMemory, MemoryPrices, MemoryReport};

macro_rules! work_counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of everything except lookups.
        #[derive(Default)]
        pub(crate) struct WorkCounters {
            $(pub $field: AtomicU64,)*
        }

        impl WorkCounters {
            fn fill(&self, stats: &mut Stats) {
                $(stats.$field = self.$field.load(Ordering::Relaxed);)*
            }
        }

        /// Counters since the database was opened, and its current state.
        #[derive(Clone, Default, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
            /// Point lookups (each key of a `multi_get` is one).
            pub lookups: u64,
            /// Digests computed during lookups.
            pub hashes: u64,
            /// Filters of which at least one module was tested.
            pub filters_consulted: u64,
            /// Filter modules tested.
            pub modules_tested: u64,
            /// Tables searched because their filter said "maybe", but which did not contain the
            /// key.
            pub false_positives: u64,
            /// Reads from files by lookups.
            pub reads: ReadsByKind,
            /// Filter slices that lookups found in the block cache.
            pub filter_hits: u64,
            /// Filter modules that lookups skipped, because they are not in memory or dormant.
            pub modules_skipped: u64,
            /// Data blocks that lookups found in the cache.
            pub cache_hits: u64,
            /// Lookups answered by a memtable.
            pub memtable_hits: u64,
            /// Lookups and explanations answered by the record cache.
            pub record_hits: u64,
            /// Lookups that found a value.
            pub found: u64,
            /// Scans that were positioned, and have ended. Long ones are counted while they go on.
            pub ranges: u64,
            /// Entries read by these scans.
            pub range_entries: u64,
            /// Reads from tables and value files by these scans, not from logs. Of blocks that are
            /// read ahead together, each used block counts as one.
            pub range_reads: ReadsByKind,
            /// Data blocks that these scans found in the cache.
            pub range_cache_hits: u64,
            /// Values that scans read from value files.
            pub range_values: u64,
            /// Reads that these values took: values that lie close together take one.
            pub range_value_reads: u64,
            /// Filters that scans tested for the prefix of their keys.
            pub prefix_filters: u64,
            /// Runs that scans left out, because filters denied the prefix.
            pub prefix_runs_skipped: u64,
            /// Nanoseconds spent hashing. This and the following times need timers to be on.
            pub hash_ns: u64,
            /// Nanoseconds probing filters.
            pub probe_ns: u64,
            /// Nanoseconds searching indexes.
            pub index_ns: u64,
            /// Nanoseconds reading and searching data blocks.
            pub data_ns: u64,
            /// Nanoseconds of lookups spent elsewhere: view, memtables, candidate selection,
            /// values.
            pub other_ns: u64,
            /// Nanoseconds of lookups spent reading the clock; not included in any of the phases
            /// above.
            pub timer_ns: u64,
            /// Compaction debt: bytes that compactions must still move until the tree has its
            /// shape, plus unflushed sealed memtables.
            pub debt_bytes: u64,
            /// Acknowledged log bytes that are not yet synced.
            pub unsynced_bytes: u64,
            /// Bytes of obsolete logs that are kept for streams of changes
            /// ([`Builder::keep_log`](crate::Builder::keep_log)).
            pub kept_log_bytes: u64,
            /// Obsolete files that are not removed yet because a reader uses them.
            pub obsolete_files: u64,
            /// Value files of all keyspaces that tables refer to.
            pub value_files: u64,
            /// Their bytes.
            pub value_bytes: u64,
            /// The bytes of them to which tables refer. Some of these values may be hidden by newer
            /// versions that no compaction has met yet.
            pub value_bytes_live: u64,
            /// Tables of all keyspaces that the memory budget keeps closed: each use opens them.
            pub tables_closed: u64,
            /// Number of times that a closed table was opened for one use.
            pub table_opens: u64,
            /// Idle iterators whose view was revoked.
            pub iterators_revoked: u64,
            /// Tombstones that scans have passed in the present tables of all keyspaces.
            pub tombstones_passed: u64,
            /// Age in milliseconds of the oldest tombstone in a table of any keyspace; `None`
            /// without tombstones.
            pub oldest_tombstone_age_ms: Option<u64>,
            /// Levels of the default keyspace, level 0 first.
            pub levels: Vec<LevelStats>,
            /// Deepest non-empty level of the default keyspace (level 0 not counted).
            pub deepest_level: u32,
            /// Runs that a lookup in the default keyspace may consult.
            pub runs: u64,
            /// Whether the files are behind an emulated-latency layer.
            pub emulated: bool,
            /// Old name of [`Self::compactions`].
            #[deprecated(since = "0.2.0", note = "renamed to `compactions`")]
            pub merges: u64,
            /// Old name of [`Self::compaction_slices`].
            #[deprecated(since = "0.2.0", note = "renamed to `compaction_slices`")]
            pub merge_slices: u64,
            /// Old name of [`Self::compaction_us`].
            #[deprecated(since = "0.2.0", note = "renamed to `compaction_us`")]
            pub merge_us: u64,
            /// Old name of [`Self::bytes_compacted`].
            #[deprecated(since = "0.2.0", note = "renamed to `bytes_compacted`")]
            pub bytes_merged: u64,
            /// Old name of [`Self::bytes_compaction_read`].
            #[deprecated(since = "0.2.0", note = "renamed to `bytes_compaction_read`")]
            pub bytes_merge_read: u64,
            /// Old name of [`Self::obsolete_files`].
            #[deprecated(since = "0.2.0", note = "renamed to `obsolete_files`")]
            pub dead_files: u64,
        }

        impl Stats {
            /// Returns the counters since `earlier`; fields that describe the current state are
            /// unchanged.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                let mut stats = self.clone();
                $(stats.$field = self.$field.saturating_sub(earlier.$field);)*
                macro_rules! lookup_fields {
                    ($name:ident) => { stats.$name = self.$name.saturating_sub(earlier.$name); };
                }
                lookup_fields!(lookups);
                lookup_fields!(hashes);
                lookup_fields!(filters_consulted);
                lookup_fields!(modules_tested);
                lookup_fields!(false_positives);
                lookup_fields!(reads);
                lookup_fields!(filter_hits);
                lookup_fields!(modules_skipped);
                lookup_fields!(cache_hits);
                lookup_fields!(memtable_hits);
                lookup_fields!(record_hits);
                lookup_fields!(found);
                lookup_fields!(ranges);
                lookup_fields!(range_entries);
                lookup_fields!(range_reads);
                lookup_fields!(range_cache_hits);
                lookup_fields!(range_values);
                lookup_fields!(range_value_reads);
                lookup_fields!(prefix_filters);
                lookup_fields!(prefix_runs_skipped);
                lookup_fields!(hash_ns);
                lookup_fields!(probe_ns);
                lookup_fields!(index_ns);
                lookup_fields!(data_ns);
                lookup_fields!(other_ns);
                lookup_fields!(table_opens);
                lookup_fields!(timer_ns);
                lookup_fields!(iterators_revoked);
                stats.with_old_names()
            }
        }
    };
}

work_counters! {
    /// Put operations acknowledged.
    puts,
    /// Delete operations acknowledged.
    deletes,
    /// Range deletes acknowledged.
    range_deletes,
    /// Operands of merge operators acknowledged.
    merge_operations,
    /// Batches acknowledged.
    batches,
    /// Bytes of keys and values in these operations.
    bytes_user,
    /// Bytes written to logs.
    bytes_wal,
    /// Bytes of tables and value files written by flushes.
    bytes_flushed,
    /// Bytes of tables and value files written by compactions.
    bytes_compacted,
    /// Bytes of tables read by compactions.
    bytes_compaction_read,
    /// Bytes of value files written by flushes and compactions.
    bytes_values_written,
    /// Bytes written to manifests.
    bytes_manifest,
    /// Microseconds spent in flushes.
    flush_us,
    /// Microseconds spent in compactions.
    compaction_us,
    /// Flushes installed.
    flushes,
    /// Compactions finished.
    compactions,
    /// Key-range slices of compactions installed.
    compaction_slices,
    /// Compactions finished whose reason was tombstones: too old, or passed too often by scans.
    tombstone_compactions,
    /// Tables that changed level without being rewritten.
    trivial_moves,
    /// Tables of FIFO keyspaces dropped without being read.
    tables_dropped,
    /// Entries dropped by compactions and flushes.
    entries_dropped,
    /// Entries that had expired and became tombstones, or were dropped, by compactions and flushes.
    entries_expired,
    /// Compactions whose tables have a dictionary.
    dictionary_compactions,
    /// Entries removed or replaced by compaction filters.
    entries_filtered,
    /// Number of times that a writer was slowed down or stalled.
    stalls,
    /// Microseconds that writers were slowed down or stalled.
    stall_us,
    /// Syncs of logs.
    wal_syncs,
    /// Commit groups written; `batches / commit_groups` is the average number of batches in a
    /// group.
    commit_groups,
    /// Writes that were refused because memory holds a newer write of a key that they depend on.
    conflicts,
    /// Writes that were refused because a new table may hold a key that they depend on. With
    /// `conflicts`, and less `conflicts_disproved`, the number of all conflicts.
    conflicts_unproved,
    /// Commits of transactions that were refused because of a new table, which then turned out to
    /// hold no change.
    conflicts_disproved,
    /// Transactions that were committed, without those that wrote nothing.
    transactions,
    /// Number of times that [`crate::Db::transact`] began again after a conflict.
    transaction_retries,
    /// Number of times that another design was adopted.
    redesigns,
    /// Failed removals of obsolete files; they are retried.
    removals_failed,
    /// Errors of background work.
    background_errors,
}

impl WorkCounters {
    pub fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    /// [`Self::add`] for a counter that only the holder of one specific lock changes: no locked
    /// instruction.
    pub fn add_alone(counter: &AtomicU64, value: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// A number that changes whenever a flush, a compaction or a sync of a log has got on.
    pub fn progress_mark(&self) -> u64 {
        let counters = [
            &self.flushes,
            &self.bytes_flushed,
            &self.compactions,
            &self.bytes_compacted,
            &self.entries_dropped,
            &self.wal_syncs,
        ];
        counters.into_iter().fold(0, |sum, counter| sum.wrapping_add(counter.load(Ordering::Relaxed)))
    }
}

/// One level of a tree.
#[derive(Clone, Default, Debug, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number of the level; level 0 holds flushed runs.
    pub level: u32,
    /// Sorted runs.
    pub runs: u64,
    /// Tables in them.
    pub tables: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Capacity in bytes by the design; 0 for level 0, which is limited by its number of runs.
    pub capacity_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub deletes: u64,
    /// Range tombstones.
    pub range_deletes: u64,
    /// Bytes of filters in memory.
    pub filter_bytes: u64,
    /// Filter bits per key as written, weighted by entries.
    pub bits_per_key: f64,
    /// Filter bits per key that the tables would get if they were written now.
    pub bits_per_key_wanted: f64,
    /// Filter bits per key in memory.
    pub bits_per_key_resident: f64,
    /// Stale filters: tables with many more or fewer bits per key than they would get now. The next
    /// compaction of such a table corrects it.
    pub tables_with_stale_filters: u64,
    /// Estimated probes per second of its tables for keys that they do not contain, from sampled
    /// lookups.
    pub empty_probes_per_s: f64,
    /// Estimated probes per second of its tables that found their key or a tombstone of it, from
    /// sampled lookups.
    pub found_probes_per_s: f64,
    /// Old name of [`Self::tables_with_stale_filters`].
    #[deprecated(since = "0.2.0", note = "renamed to `tables_with_stale_filters`")]
    pub tables_misfit: u64,
}

/// One table of a tree, and its filter as written.
#[derive(Clone, Default, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableStats {
    /// Number of its level; level 0 holds flushed runs.
    pub level: u32,
    /// Index of its run in lookup order over the whole tree, from 0.
    pub run: u32,
    /// Entries, tombstones included.
    pub entries: u64,
    /// The first key of its range in use, or a key a little before.
    pub lower: Vec<u8>,
    /// The first key after its range in use; `None`: no end.
    pub upper: Option<Vec<u8>>,
    /// Filter bits per key, as written.
    pub bits_per_key: f64,
    /// False-positive rate of its filter with all modules, by the measured rates; 1 without a
    /// filter.
    pub false_positive_rate: f64,
}

impl Stats {
    pub(crate) fn from_counters(lookups: &LookupCounters, work: &WorkCounters) -> Self {
        let total = lookups.total();
        let times = total.rare_so_far();
        let mut stats = Self {
            lookups: total.lookups,
            hashes: total.hashes,
            filters_consulted: total.filters,
            modules_tested: total.modules,
            false_positives: total.false_positives,
            reads: total.reads(),
            filter_hits: total.filter_hits,
            modules_skipped: total.modules_skipped,
            cache_hits: total.cache_hits,
            memtable_hits: total.memtable_hits,
            found: total.found,
            hash_ns: times.hash_ns,
            probe_ns: times.probe_ns,
            index_ns: times.index_ns,
            data_ns: times.data_ns,
            timer_ns: times.timer_ns,
            ..Self::default()
        };
        let parts = times.hash_ns + times.probe_ns + times.index_ns + times.data_ns + times.timer_ns;
        stats.other_ns = times.total_ns.saturating_sub(parts);
        work.fill(&mut stats);
        stats
    }

    /// Sets the fields of old names, which are removed in 0.3, to the values of the new ones.
    #[allow(deprecated)]
    pub(crate) fn with_old_names(mut self) -> Self {
        self.merges = self.compactions;
        self.merge_slices = self.compaction_slices;
        self.merge_us = self.compaction_us;
        self.bytes_merged = self.bytes_compacted;
        self.bytes_merge_read = self.bytes_compaction_read;
        self.dead_files = self.obsolete_files;
        for level in &mut self.levels {
            level.tables_misfit = level.tables_with_stale_filters;
        }
        self
    }

    /// Bytes written to disk: logs, flushes, compactions, manifests.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_wal + self.bytes_flushed + self.bytes_compacted + self.bytes_manifest
    }

    /// Digests computed per lookup: 1.0 with hash sharing.
    pub fn hashes_per_get(&self) -> f64 {
        self.per_get(self.hashes)
    }

    /// Filters consulted per lookup.
    pub fn filters_per_get(&self) -> f64 {
        self.per_get(self.filters_consulted)
    }

    /// Filter modules tested per lookup.
    pub fn modules_per_get(&self) -> f64 {
        self.per_get(self.modules_tested)
    }

    /// False positives per lookup.
    pub fn false_positives_per_get(&self) -> f64 {
        self.per_get(self.false_positives)
    }

    /// Share of lookups that found a value.
    pub fn found_share(&self) -> f64 {
        self.per_get(self.found)
    }

    /// `count` per lookup; 0 if there were no lookups.
    pub fn per_get(&self, count: u64) -> f64 {
        if self.lookups == 0 { 0.0 } else { count as f64 / self.lookups as f64 }
    }
}

#[cfg(test)]
mod tests {
    use shamba_tree::counters::LookupCounts;

    use super::*;

    #[test]
    fn figures_add_up_over_threads_and_since_subtracts() {
        let counters = LookupCounters::new(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.add(
                            &LookupCounts { lookups: 1, hashes: 2, found: 1, ..Default::default() },
                            true,
                        );
                    }
                });
            }
        });
        let work = WorkCounters::default();
        WorkCounters::add(&work.puts, 7);
        let before = Stats::from_counters(&counters, &work);
        assert_eq!((before.lookups, before.hashes, before.found, before.puts), (4000, 8000, 4000, 7));
        assert_eq!(before.hashes_per_get(), 2.0);
        counters.add(&LookupCounts { lookups: 1, hashes: 1, ..Default::default() }, true);
        let after = Stats::from_counters(&counters, &work).since(&before);
        assert_eq!((after.lookups, after.hashes, after.found, after.puts), (1, 1, 0, 0));
    }

    #[test]
    #[allow(deprecated)]
    fn old_names_have_the_values_of_the_new_ones() {
        let level = LevelStats { tables_with_stale_filters: 7, ..LevelStats::default() };
        let new = Stats { compactions: 5, bytes_compacted: 9, obsolete_files: 2, ..Stats::default() };
        let stats = Stats { levels: vec![level], ..new }.with_old_names();
        assert_eq!((stats.merges, stats.bytes_merged, stats.dead_files), (5, 9, 2));
        assert_eq!(stats.levels[0].tables_misfit, 7);
        let before = Stats { compactions: 3, ..Stats::default() };
        assert_eq!(stats.since(&before).merges, 2);
    }
}
