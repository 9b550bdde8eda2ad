//! Flush: a generation of sealed memtables becomes runs of level 0, one per keyspace, in one edit.
//!
//! The log is synced through the generation's last entry, while the tables are written, before the edit is
//! installed: otherwise a table could count while an earlier batch in the log is not durable. After the edit the
//! log is dead.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_table::Origin;

use crate::compaction::output::{Output, OutputOptions};
use crate::compaction::syncing::Syncing;
use crate::core::{Core, Generation, KeyspaceCore};
use crate::error::Result;
use crate::event::Event;
use crate::metrics::WorkCounters;
use crate::planted::{Defect, is_planted};
use shamba_env::{lock, try_lock};
use shamba_key::{KeyspaceId, LogNo};
use shamba_memtable::Memtable;
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::retention::Retention;
use shamba_tree::version::{Change, KeyRange, ManifestEdit, TableUse, VersionEdit};

impl Core {
    /// Flushes one generation and installs it.
    ///
    /// # Errors
    /// What failed; the memtables, the log and the tree are then as before, and output is removed.
    pub(crate) fn flush_generation(&self, generation: &Generation) -> Result<()> {
        let begin_us = self.env.clock.now_us();
        self.events.emit(&Event::FlushBegin { bytes: generation.bytes });
        let mut log_sync = self.begin_log_sync(generation);
        let mut log_promise = None;
        if self.is_inline() {
            log_promise = self.end_log_sync(log_sync.take())?;
        }
        let mut outputs: BTreeMap<KeyspaceId, Vec<TableUse>> = BTreeMap::new();
        let members = if is_planted(Defect::FlushForgetsKeyspaces) { 1 } else { usize::MAX };
        for (keyspace, memtable) in generation.members.iter().take(members) {
            // Gone from the list means that the drop is durable. Not so the mark on the keyspace: the log
            // must not be given up for a drop that a crash may still undo.
            if !self.keyspaces.load().contains_key(&keyspace.id) {
                continue;
            }
            match self.write_memtable(keyspace, memtable) {
                Ok(uses) => _ = outputs.insert(keyspace.id, uses),
                Err(error) => {
                    self.garbage.doom_tables(outputs.into_values().flatten().map(|table| table.meta));
                    let _ = self.end_log_sync(log_sync); // Its failure must not go unnoticed.
                    return Err(error);
                }
            }
        }
        let tables: u64 = outputs.values().map(|uses| uses.len() as u64).sum();
        let bytes: u64 = outputs.values().flatten().map(|table| table.meta.file_bytes).sum();
        if tables == 0 && !self.settings.no_wal {
            // The edit says that the next log is there, so its name must be durable. Tables have seen to
            // that. Whether this generation has a log of its own makes no difference.
            if let Err(error) = self.sync_names() {
                let _ = self.end_log_sync(log_sync);
                return Err(error);
            }
        }
        if log_sync.is_some() {
            log_promise = self.end_log_sync(log_sync).inspect_err(|_| {
                let tables = outputs.values().flatten().map(|table| Arc::clone(&table.meta));
                self.garbage.doom_tables(tables);
            })?;
        }
        // A promise about the active log covers every earlier one, and lets its loss be noticed.
        let log_promise = self.active_log_promise().or(log_promise);
        let new = outputs.values().flatten().map(|table| Arc::clone(&table.meta)).collect();
        self.install(Some(generation), new, |state| {
            let mut edit = ManifestEdit {
                first_log: Some(generation.next_log),
                log_promise,
                last_seq: Some(generation.last_seq),
                ..ManifestEdit::default()
            };
            for (keyspace, uses) in outputs {
                if !state.keyspaces.contains_key(&keyspace) {
                    self.garbage.doom_tables(uses.into_iter().map(|table| table.meta));
                    continue;
                }
                if let Some(keyspace) = self.keyspace(keyspace) {
                    self.begin_statistics(&keyspace, &uses);
                }
                let (run, age) = self.new_run();
                let add = |table| Change::Add { level: 0, run, age, table };
                edit.versions.push(VersionEdit { keyspace, changes: uses.into_iter().map(add).collect() });
                edit.flushed.push((keyspace, generation.last_seq));
            }
            Ok(edit)
        })?;
        for log in &generation.log_files {
            self.garbage.doom_log(log.clone());
        }
        self.collect_garbage();
        self.save_statistics(false);
        WorkCounters::add(&self.work.flushes, 1);
        WorkCounters::add(&self.work.bytes_flushed, bytes);
        let duration_us = self.env.clock.now_us().saturating_sub(begin_us);
        WorkCounters::add(&self.work.flush_us, duration_us);
        self.events.emit(&Event::FlushEnd { tables, bytes, duration_us });
        Ok(())
    }

    /// How much of the active log is durable, if any of it is and nobody is busy with it: whoever holds it
    /// may be waiting for this very flush, as an ingest does.
    fn active_log_promise(&self) -> Option<(LogNo, u64)> {
        let writing = try_lock(&self.writing)?;
        writing.wal.as_ref().map(|wal| (wal.number(), wal.synced())).filter(|(_, synced)| *synced > 0)
    }

    /// Begins to make the log of the generation, and every earlier one, durable; says up to where it then is.
    fn begin_log_sync(&self, generation: &Generation) -> Option<Syncing<(LogNo, u64)>> {
        let log = generation.log.as_ref()?;
        // Generations are flushed in order, so every earlier log was synced by its own flush.
        let unsynced_bytes = {
            let mut wal = lock(log);
            wal.predecessor_is_synced();
            wal.flushed().saturating_sub(wal.synced())
        };
        if unsynced_bytes > 0 {
            WorkCounters::add(&self.work.wal_syncs, 1);
        }
        let log = Arc::clone(log);
        Some(Syncing::begin(self.env.spawner.as_ref(), unsynced_bytes, move || {
            let mut wal = lock(&log);
            wal.sync()?;
            Ok((wal.number(), wal.synced()))
        }))
    }

    /// Waits for the log to be durable. A failure turns writes off.
    fn end_log_sync(&self, syncing: Option<Syncing<(LogNo, u64)>>) -> Result<Option<(LogNo, u64)>> {
        let synced = syncing.map(Syncing::finish).transpose();
        synced.inspect_err(|error| self.fail(error))
    }

    /// Writes one memtable as tables, without what no reader can see.
    pub(crate) fn write_memtable(
        &self,
        keyspace: &KeyspaceCore,
        memtable: &Arc<dyn Memtable>,
    ) -> Result<Vec<TableUse>> {
        let bits = Arc::new(self.flush_bits(keyspace, memtable.entries()));
        let snapshots = self.snapshots.stripes();
        let below = [KeyRange::everything()]; // Older data may lie anywhere: tombstones stay.
        let fragments = memtable.range_tombstones();
        let mut retention = Retention::new(&snapshots, &fragments, &below);
        let mut tombstones = fragments.thinned(b"", None, &snapshots);
        if is_planted(Defect::FlushForgetsRangeDeletes) {
            tombstones.clear();
        }
        let options = self.output_options(keyspace, 0, bits);
        let mut output = Output::new(self, options, KeyRange::everything(), tombstones);
        let mut iter = Arc::clone(memtable).entries_iter();
        iter.seek_to_first()?;
        let mut dropped = 0u64;
        while iter.valid() {
            if !retention.keeps(iter.key(), iter.seq(), iter.kind()) {
                dropped += 1;
            } else if iter.is_large() {
                output.add_large(iter.as_ref())?;
            } else {
                output.add(iter.key(), iter.digest(), iter.seq(), iter.kind(), iter.value())?;
            }
            iter.next()?;
        }
        WorkCounters::add(&self.work.entries_dropped, dropped);
        output.finish()
    }

    /// How tables of a keyspace's `level` are built.
    pub(crate) fn output_options(
        &self,
        keyspace: &KeyspaceCore,
        level: u32,
        bits: Arc<JobBits>,
    ) -> OutputOptions {
        OutputOptions {
            origin: Origin { keyspace: keyspace.id.0, name: keyspace.name.clone() },
            digest: self.digest,
            compression: self.settings.compression_for(level),
            bits,
            filter_layout: self.filter_layout(),
            block_bytes: self.settings.block_bytes,
            block_tags: self.settings.block_tags,
            table_size: self.table_size(),
            verify: true,
        }
    }
}
