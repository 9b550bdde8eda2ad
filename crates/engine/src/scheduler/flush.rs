//! Flush: writes a generation of sealed memtables as level-0 runs, one per keyspace, in one edit.
//!
//! While the tables are written, the log is synced through the generation's last entry. The edit is
//! installed only after that: otherwise a table could become durable before an earlier batch in the
//! log. Entries that an open has replayed have no log to sync: whatever precedes them is in tables.
//! After the edit the log is obsolete.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_table::{EntryIter, FragmentedTombstones, Origin};

use super::memory::MemoryLink;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::error::Result;
use crate::event::Event;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::metrics::WorkCounters;
use crate::options::fifo::FifoState;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::statistics::SavedStatistics;
use crate::table_files::TableFiles;
use crate::table_files::output::{Finished, Output, OutputOptions};
use crate::table_files::separated::ValueOptions;
use crate::table_files::syncing::Syncing;
use crate::telemetry::Telemetry;
use crate::writer::{Generation, Writer};
use shamba_env::Env;
use shamba_key::{DigestFn, KeyspaceId, LogNo, SeqNo};
use shamba_memtable::Memtable;
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::fold::Folding;
use shamba_tree::compaction::retention::Retention;
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::iter::source::Source;
use shamba_tree::records::RecordEdit;
use shamba_tree::snapshot::Readers;
use shamba_tree::version::{Change, KeyRange, ManifestEdit, TableUse, ValueFileMeta, VersionEdit};

/// Writes new entries as tables: those of memtables, and of ingests ([`super::ingest`]).
pub(crate) struct Flusher {
    pub(super) env: Env,
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) writer: Arc<Writer>,
    pub(super) reads: Arc<Reads>,
    pub(super) table_files: Arc<TableFiles>,
    pub(super) filter_bits: Arc<FilterBits>,
    pub(super) statistics: Arc<SavedStatistics>,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) memory: Arc<MemoryLink>,
}

impl Flusher {
    /// Flushes one generation and installs it.
    ///
    /// # Errors
    /// The error of the step that failed. The memtables, the log and the tree are then unchanged,
    /// and the output is removed.
    pub(super) fn flush(&self, generation: &Generation) -> Result<()> {
        let begin_us = self.env.clock.now_us();
        debug_assert!(
            generation.members.iter().all(|(_, memtable)| !memtable.is_empty()),
            "an empty memtable is flushed"
        );
        self.telemetry.emit(Event::FlushBegin { bytes: generation.bytes });
        let mut log_sync = self.begin_log_sync(generation);
        let mut log_promise = None;
        if self.env.spawner.is_inline() {
            log_promise = self.end_log_sync(log_sync.take())?;
        }
        let mut outputs: BTreeMap<KeyspaceId, Vec<TableUse>> = BTreeMap::new();
        let mut value_files: Vec<Arc<ValueFileMeta>> = Vec::new();
        let mut left_out = LeftOut::default();
        for (keyspace, memtable) in &generation.members {
            // A keyspace that is missing from the list was dropped durably: the log must be kept as
            // long as a crash may still undo the drop.
            if !self.catalog.keyspaces().contains_key(&keyspace.id) {
                continue;
            }
            match self.write_memtable(keyspace, memtable, generation.oldest_tombstone_ms) {
                Ok((built, left)) => {
                    left_out.add(left);
                    value_files.extend(built.value_files);
                    let earlier = outputs.insert(keyspace.id, built.tables);
                    assert!(earlier.is_none(), "keyspace {} has two memtables in a generation", keyspace.id);
                }
                Err(error) => {
                    self.catalog
                        .mark_tables_obsolete(outputs.into_values().flatten().map(|table| table.meta));
                    // A failed sync must still turn writes off.
                    let _ = self.end_log_sync(log_sync);
                    return Err(error);
                }
            }
        }
        let tables: u64 = outputs.values().map(|uses| uses.len() as u64).sum();
        let table_bytes: u64 = outputs.values().flatten().map(|table| table.meta.file_bytes).sum();
        let value_bytes: u64 = value_files.iter().map(|file| file.file_bytes).sum();
        let bytes = table_bytes + value_bytes;
        if tables == 0 && !self.settings.no_wal {
            // The edit refers to the next log, so the name of that log must be durable. Writing a
            // table syncs the names; with no table it is done here, whether or not this generation
            // has a log of its own.
            if let Err(error) = self.catalog.sync_names() {
                let _ = self.end_log_sync(log_sync);
                return Err(error);
            }
        }
        if log_sync.is_some() {
            log_promise = self.end_log_sync(log_sync).inspect_err(|_| {
                let tables = outputs.values().flatten().map(|table| Arc::clone(&table.meta));
                self.catalog.mark_tables_obsolete(tables);
            })?;
        }
        // A promise about the active log covers every earlier log too, and allows its loss to be
        // detected.
        let log_promise = self.writer.log_promise().or(log_promise);
        let new = outputs.values().flatten().map(|table| Arc::clone(&table.meta)).collect();
        let records = self.erase_records(generation).inspect_err(|_| {
            let tables = outputs.values().flatten().map(|table| Arc::clone(&table.meta));
            self.catalog.mark_tables_obsolete(tables);
        })?;
        self.catalog.install(&generation.members, new, |state| {
            let mut edit = ManifestEdit {
                first_log: Some(generation.next_log),
                log_promise,
                last_seq: Some(generation.last_seq),
                value_files,
                ..ManifestEdit::default()
            };
            if generation.next_log > state.first_log {
                edit.history.extend(self.catalog.obsolete_below(generation.next_log));
            }
            for (keyspace, uses) in outputs {
                let Some(recorded) = state.keyspaces.get(&keyspace) else {
                    self.catalog.mark_tables_obsolete(uses.into_iter().map(|table| table.meta));
                    continue;
                };
                if let Some(keyspace) = self.catalog.keyspace(keyspace) {
                    // Those recorded: they may have changed since the flush began.
                    let now_ms = self.reads.expiry().now_ms();
                    let aged = FifoState::aged(&recorded.settings, generation.last_seq, now_ms)?;
                    edit.keyspace_settings.extend(aged.map(|settings| (keyspace.id, settings)));
                    crate::statistics::begin(&keyspace, &uses, self.env.clock.now_us());
                }
                let (run, age) = self.catalog.new_run();
                let add = |table| Change::Add { level: 0, run, age, table };
                edit.versions.push(VersionEdit { keyspace, changes: uses.into_iter().map(add).collect() });
                edit.flushed.push((keyspace, generation.last_seq));
            }
            Ok(edit)
        })?;
        drop(records);
        for log in &generation.log_files {
            self.catalog.mark_log_obsolete(log.clone());
        }
        self.catalog.remove_obsolete_files();
        self.statistics.save(false);
        left_out.count(self.telemetry.work());
        WorkCounters::add(&self.telemetry.work().flushes, 1);
        WorkCounters::add(&self.telemetry.work().bytes_flushed, bytes);
        WorkCounters::add(&self.telemetry.work().bytes_values_written, value_bytes);
        let duration_us = self.env.clock.now_us().saturating_sub(begin_us);
        WorkCounters::add(&self.telemetry.work().flush_us, duration_us);
        self.telemetry.emit(Event::FlushEnd { tables, bytes, duration_us });
        Ok(())
    }

    /// Begins an edit of the record cache and erases the records of keys for which the generation
    /// has an entry or a range tombstone. All entries of a sealed memtable are visible, since
    /// writers publish and seal under one lock, so the edit may end with the install.
    fn erase_records(&self, generation: &Generation) -> Result<RecordEdit<'_>> {
        let (records, digest) = (self.reads.records(), self.reads.digest());
        let edit = records.begin_edit();
        if !records.may_hold() {
            return Ok(edit);
        }
        for (keyspace, memtable) in &generation.members {
            let tombstones = memtable.range_tombstones();
            let is_covered = |key: &[u8]| tombstones.newest_covering(key, SeqNo::MAX) > SeqNo::ZERO;
            // Whichever is less is walked: while the cache is a sample, it holds a few records.
            if records.records() as u64 <= memtable.entries() {
                let has_entry = |key: &[u8]| memtable.get(digest.digest(key), key, SeqNo::MAX).is_some();
                edit.erase_where(keyspace.id, |key| has_entry(key) || is_covered(key));
                continue;
            }
            let mut entries = Arc::clone(memtable).iter();
            entries.seek_to_first()?;
            while entries.valid() {
                edit.erase(entries.digest().unwrap_or_else(|| digest.digest(entries.key())));
                entries.next()?;
            }
            if !tombstones.is_empty() {
                edit.erase_where(keyspace.id, is_covered);
            }
        }
        Ok(edit)
    }

    /// Starts a sync of the generation's log. Its result is the log's number and its synced length.
    fn begin_log_sync(&self, generation: &Generation) -> Option<Syncing<(LogNo, u64)>> {
        let log = generation.log.as_ref()?;
        // Generations are flushed in order, so every earlier log was synced by its own flush, or
        // its entries were replayed and are in tables.
        let unsynced_bytes = {
            let mut wal = log.lock();
            wal.predecessor_is_synced();
            wal.flushed().saturating_sub(wal.synced())
        };
        if unsynced_bytes > 0 {
            WorkCounters::add(&self.telemetry.work().wal_syncs, 1);
        }
        let log = Arc::clone(log);
        Some(Syncing::begin(self.env.spawner.as_ref(), unsynced_bytes, move || {
            let mut wal = log.lock();
            wal.sync()?;
            assert!(wal.synced() >= wal.flushed(), "a log that was synced has unsynced bytes");
            Ok((wal.number(), wal.synced()))
        }))
    }

    /// Waits for the sync of the log. A failure turns writes off.
    fn end_log_sync(&self, syncing: Option<Syncing<(LogNo, u64)>>) -> Result<Option<(LogNo, u64)>> {
        let synced = syncing.map(Syncing::finish).transpose();
        synced.inspect_err(|error| self.lifecycle.fail(error))
    }

    /// Writes one memtable as tables, without the entries that no reader can see. No tombstone of
    /// it is older than `oldest_tombstone_ms`.
    pub fn write_memtable(
        &self,
        keyspace: &KeyspaceCore,
        memtable: &Arc<dyn Memtable>,
        oldest_tombstone_ms: Option<u64>,
    ) -> Result<(Finished, LeftOut)> {
        let bits = Arc::new(self.filter_bits.of_flush(keyspace, memtable.entries()));
        let readers = self.reads.readers();
        let snapshots = &readers.seqs;
        let below = vec![KeyRange::everything()]; // Older data may lie anywhere: tombstones stay.
        let fragments = memtable.range_tombstones();
        let merging = keyspace.merging();
        let retention = Retention::new(snapshots, &fragments, below).at_times(&readers);
        let mut folding = Folding::new(retention, merging.as_deref());
        // The memtable's charge covers its fragments, this one the joined copy and the thinned
        // list.
        let tombstones_bytes = FragmentedTombstones::memory_bytes_max(fragments.iter().count() as u64);
        let mut of_tombstones = self.memory.charged(tombstones_bytes);
        let mut tombstones = fragments.thinned(b"", None, snapshots);
        tombstones.shrink_to_fit();
        self.memory.fit(&mut of_tombstones, size_of_val(&*tombstones) as u64);
        let oldest_tombstone_ms = with_expired(oldest_tombstone_ms, &readers);
        let options = OutputOptions { oldest_tombstone_ms, ..self.output_options(keyspace, 0, bits) };
        let mut output =
            Output::new(&self.table_files, self.memory.as_ref(), options, KeyRange::everything(), tombstones);
        let mut entries = Source::from(Arc::clone(memtable).entries_iter());
        entries.seek_to_first()?;
        let mut taken = 0u64;
        while entries.valid() {
            folding.take(&entries, &mut output)?;
            taken += 1;
            entries.next()?;
        }
        folding.finish(&mut output)?;
        assert!(folding.written() <= taken, "a flush wrote more entries than the memtable has");
        let left_out = LeftOut { dropped: taken - folding.written(), expired: folding.expired() };
        Ok((output.finish()?, left_out))
    }

    /// The options for tables at `level` of a keyspace.
    pub(super) fn output_options(
        &self,
        keyspace: &KeyspaceCore,
        level: u32,
        bits: Arc<JobBits>,
    ) -> OutputOptions {
        let table_size = self.memory.table_size(&keyspace.overrides());
        output_options(&self.settings, (keyspace, level), self.reads.digest(), bits, table_size)
    }
}

/// The entries of memtables that their tables lack. They count once the flush has succeeded: one
/// that fails leaves nothing out, and is tried again.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeftOut {
    /// Entries that no reader can see.
    dropped: u64,
    /// Entries that had expired, which became tombstones.
    expired: u64,
}

impl LeftOut {
    fn add(&mut self, other: Self) {
        self.dropped += other.dropped;
        self.expired += other.expired;
    }

    /// Adds them to the counters.
    pub fn count(self, work: &WorkCounters) {
        WorkCounters::add(&work.entries_dropped, self.dropped);
        WorkCounters::add(&work.entries_expired, self.expired);
    }
}

/// The time of the oldest tombstone of an output whose input has tombstones since `oldest_ms`: an
/// entry that has expired becomes one now.
pub(super) fn with_expired(oldest_ms: Option<u64>, readers: &Readers) -> Option<u64> {
    let now_ms = Some(readers.now_ms).filter(|now_ms| *now_ms > 0);
    oldest_ms.into_iter().chain(now_ms).min()
}

/// The options for tables at a level of a keyspace, with these filter bits.
pub(super) fn output_options(
    settings: &Settings,
    (keyspace, level): (&KeyspaceCore, u32),
    digest: DigestFn,
    bits: Arc<JobBits>,
    table_size: TableSize,
) -> OutputOptions {
    let overrides = keyspace.overrides();
    let version = &keyspace.load().version;
    // Many value files: larger ones, so that their number stays bounded.
    let file_bytes = overrides.value_rules(settings, version).map_or_else(
        || overrides.value_file_bytes(settings),
        |rules| rules.full_bytes(version.value_totals().stored_bytes()),
    );
    OutputOptions {
        origin: Origin { keyspace: keyspace.id.0, name: keyspace.name.clone() },
        digest,
        compression: overrides.compression_for(level, settings),
        dictionary: None,
        filter_layout: bits.layout(),
        bits,
        prefix: keyspace.prefix(),
        block_bytes: overrides.block_bytes(settings),
        block_tags: settings.block_tags,
        table_size,
        values: ValueOptions { bytes_min: overrides.value_bytes_min(settings), file_bytes },
        verify: true,
        oldest_tombstone_ms: None,
    }
}
