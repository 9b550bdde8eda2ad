//! Counters: what the engine has done since it was opened, and the [`Stats`] that callers read.
//!
//! Lookups count in shards by thread ([`shamba_tree::counters`]); everything else, which is rarer, in plain atomics.
//! `hashes` comes from the counter inside the hashing function, not from what the lookup believes it did.
//!
//! Not here: bytes held in memory (crate `shamba-table`, `Ledger`).

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_tree::counters::{LookupCounters, ReadsByKind};

macro_rules! work_counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of everything that is not a lookup.
        #[derive(Default)]
        pub(crate) struct WorkCounters {
            $(pub $field: AtomicU64,)*
        }

        impl WorkCounters {
            fn fill(&self, stats: &mut Stats) {
                $(stats.$field = self.$field.load(Ordering::Relaxed);)*
            }
        }

        /// What the database has done since it was opened, and what it looks like now.
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
            /// Tables searched after their filter said "maybe" that did not hold the key.
            pub false_positives: u64,
            /// What lookups read from files.
            pub reads: ReadsByKind,
            /// Filter slices that lookups found in the block cache.
            pub filter_hits: u64,
            /// Filter modules passed over by lookups because memory does not hold them, or because they rest.
            pub modules_skipped: u64,
            /// Data blocks that lookups found in the cache.
            pub cache_hits: u64,
            /// Lookups that a memtable answered.
            pub memtable_hits: u64,
            /// Lookups that found a value.
            pub found: u64,
            /// Scans that began somewhere, and have ended.
            pub ranges: u64,
            /// Entries that they read.
            pub range_entries: u64,
            /// Nanoseconds hashing (with timers on; as the others).
            pub hash_ns: u64,
            /// Nanoseconds probing filters.
            pub probe_ns: u64,
            /// Nanoseconds searching indexes.
            pub index_ns: u64,
            /// Nanoseconds reading and searching data blocks.
            pub data_ns: u64,
            /// Nanoseconds of lookups spent elsewhere: view, memtables, candidates, values.
            pub other_ns: u64,
            /// Nanoseconds of lookups spent reading the clock; in none of the parts above.
            pub timer_ns: u64,
            /// Bytes that merges still have to move for the tree to have its shape, and unflushed sealed memtables.
            pub debt_bytes: u64,
            /// Acknowledged log bytes that are not yet synced.
            pub unsynced_bytes: u64,
            /// Files that wait for their last reader to be removed.
            pub dead_files: u64,
            /// Tables, of all keyspaces, that the memory budget keeps closed: each use opens them.
            pub tables_closed: u64,
            /// How often a closed table was opened for one use.
            pub table_opens: u64,
            /// Iterators whose idle view was taken back.
            pub iterators_revoked: u64,
            /// Levels of the default keyspace, level 0 first.
            pub levels: Vec<LevelStats>,
            /// Deepest non-empty level of the default keyspace (level 0 not counted).
            pub deepest_level: u32,
            /// Runs that a lookup in the default keyspace may consult.
            pub runs: u64,
            /// Whether files are behind a latency layer.
            pub emulated: bool,
        }

        impl Stats {
            /// Counters since `earlier`; what describes the present stays as it is now.
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
                lookup_fields!(found);
                lookup_fields!(ranges);
                lookup_fields!(range_entries);
                lookup_fields!(hash_ns);
                lookup_fields!(probe_ns);
                lookup_fields!(index_ns);
                lookup_fields!(data_ns);
                lookup_fields!(other_ns);
                lookup_fields!(table_opens);
                lookup_fields!(timer_ns);
                lookup_fields!(iterators_revoked);
                stats
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
    /// Batches acknowledged.
    batches,
    /// Bytes of keys and values in them.
    bytes_user,
    /// Bytes written to logs.
    bytes_wal,
    /// Bytes of tables written by flushes.
    bytes_flushed,
    /// Bytes of tables written by merges.
    bytes_merged,
    /// Bytes of tables read by merges.
    bytes_merge_read,
    /// Bytes written to manifests.
    bytes_manifest,
    /// Microseconds that flushes took.
    flush_us,
    /// Microseconds that merges took.
    merge_us,
    /// Flushes installed.
    flushes,
    /// Merges finished.
    merges,
    /// Key-range slices of merges installed.
    merge_slices,
    /// Tables that changed level without being rewritten.
    trivial_moves,
    /// Entries that merges and flushes dropped.
    entries_dropped,
    /// Times a writer had to wait or was slowed.
    stalls,
    /// Microseconds that writers waited.
    stall_us,
    /// Syncs of logs.
    wal_syncs,
    /// Commit groups written (batches / groups = writes that shared one).
    commit_groups,
    /// Times another design was put in force.
    redesigns,
    /// Dead files that could not be removed yet.
    removals_failed,
    /// Background failures.
    background_errors,
}

impl WorkCounters {
    pub fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    /// [`Self::add`] for a counter that only the holder of one certain lock changes: no bus lock.
    pub fn add_alone(counter: &AtomicU64, value: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// One level of a tree.
#[derive(Clone, Default, Debug, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number; 0 is the inbox of flushed runs.
    pub level: u32,
    /// Sorted runs.
    pub runs: u64,
    /// Tables in them.
    pub tables: u64,
    /// Bytes of the parts in use.
    pub bytes: u64,
    /// Bytes that the design allows here (0 for level 0, which is counted in runs).
    pub capacity_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub deletes: u64,
    /// Range tombstones.
    pub range_deletes: u64,
    /// Bytes of filters in memory.
    pub filter_bytes: u64,
    /// Filter bits per key that were written, weighted by entries.
    pub bits_per_key: f64,
    /// Those that its tables would get if they were written now.
    pub bits_per_key_wanted: f64,
    /// Those in memory.
    pub bits_per_key_resident: f64,
    /// Tables that have many more or fewer bits than they would get now; the next merge that meets them puts it right.
    pub tables_misfit: u64,
    /// Probes a second of its tables for keys that they do not hold, estimated from sampled lookups.
    pub empty_probes_per_s: f64,
    /// Probes a second of its tables that found their key, tombstones included, estimated alike.
    pub found_probes_per_s: f64,
}

/// One table of a tree and its filter as it was written.
#[derive(Clone, Default, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableStats {
    /// Number of its level; 0 is the inbox of flushed runs.
    pub level: u32,
    /// Its run among all of the tree, from 0 in the order in which lookups ask them.
    pub run: u32,
    /// Entries, tombstones included.
    pub entries: u64,
    /// The first key that it answers for, or a little before.
    pub lower: Vec<u8>,
    /// The first key behind those that it answers for; `None`: no end.
    pub upper: Option<Vec<u8>>,
    /// Filter bits per key that it was given.
    pub bits_per_key: f64,
    /// The share of absent keys that its filter lets pass with all modules, by the measured rates; 1 without a filter.
    pub false_positive_rate: f64,
}

impl Stats {
    pub(crate) fn from_counters(lookups: &LookupCounters, work: &WorkCounters) -> Self {
        let total = lookups.total();
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
            hash_ns: total.hash_ns,
            probe_ns: total.probe_ns,
            index_ns: total.index_ns,
            data_ns: total.data_ns,
            timer_ns: total.timer_ns,
            ..Self::default()
        };
        let parts = total.hash_ns + total.probe_ns + total.index_ns + total.data_ns + total.timer_ns;
        stats.other_ns = total.total_ns.saturating_sub(parts);
        work.fill(&mut stats);
        stats
    }

    /// Bytes written to disk: logs, flushes, merges, manifests.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_wal + self.bytes_flushed + self.bytes_merged + self.bytes_manifest
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

    /// `count` per lookup; 0 when there was none.
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
}
