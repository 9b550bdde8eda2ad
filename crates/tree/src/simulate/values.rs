//! Value files of a simulation: every put has a value of the same length in one.
//!
//! A flush writes the values of its puts to a file. Compactions carry references, and write the
//! values of the files that they empty to a new file for each slice. The counts of every use are
//! compared with the entries after every edit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_table::{BirthId, VALUE_FILE_FIXED_BYTES, ValueFileId};

use super::{Entry, Simulation, entries_in};
use crate::compaction::policy::{CompactionJob, ValueRules};
use crate::version::{ConsumedValues, KeyRange, ValueFileMeta, ValueUse, ValueUses};

/// Values of puts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimulatedValues {
    /// Stored bytes of each.
    pub bytes: u64,
    /// When files are collected.
    pub rules: ValueRules,
}

/// The value files that were written.
#[derive(Default)]
pub(super) struct SimulatedFiles {
    all: BTreeMap<ValueFileId, Arc<ValueFileMeta>>,
    /// Bytes that were written to them.
    written_bytes: u64,
}

impl Simulation {
    /// Stored bytes of each value.
    fn value_bytes(&self) -> u64 {
        self.settings.values.map_or(0, |values| values.bytes)
    }

    /// Bytes written to value files so far.
    pub fn value_bytes_written(&self) -> u64 {
        self.value_files.written_bytes
    }

    /// Stored bytes of the values that a reader finds.
    pub fn live_value_bytes(&self) -> u64 {
        let live = self.newest.values().filter(|entry| !entry.is_delete);
        live.count() as u64 * self.value_bytes()
    }

    /// Writes the values of new puts to a file.
    pub(super) fn write_values(&mut self, entries: &mut [Entry]) {
        self.write_files(entries.iter_mut().filter(|entry| !entry.is_delete).collect());
    }

    /// Writes those values of `entries` that are in the files `victims` to a new file.
    pub(super) fn relocate(&mut self, entries: &mut [Entry], victims: &BTreeSet<ValueFileId>) {
        let is_moved = |entry: &&mut Entry| entry.file.is_some_and(|file| victims.contains(&file));
        self.write_files(entries.iter_mut().filter(is_moved).collect());
    }

    /// Writes the values of `puts` to files that end when they are full.
    fn write_files(&mut self, mut puts: Vec<&mut Entry>) {
        let Some(values) = self.settings.values else { return };
        let full_bytes = values.rules.full_bytes(self.version.value_totals().stored_bytes());
        let full_values = usize::try_from(full_bytes / values.bytes.max(1)).unwrap_or(usize::MAX);
        for puts in puts.chunks_mut(full_values.max(1)) {
            let (id, count) = (ValueFileId(self.next_id()), puts.len() as u64);
            let stored_bytes = count * values.bytes;
            let file_bytes = VALUE_FILE_FIXED_BYTES + stored_bytes;
            let (birth, file) = (BirthId(0), Default::default());
            let meta = ValueFileMeta { id, birth, file_bytes, values: count, file };
            self.value_files.all.insert(id, Arc::new(meta));
            self.value_files.written_bytes += stored_bytes;
            puts.iter_mut().for_each(|entry| entry.file = Some(id));
        }
    }

    /// The references of the entries.
    pub(super) fn references(&self, entries: &[Entry]) -> ValueUses {
        let bytes = self.value_bytes();
        let files = entries.iter().filter_map(|entry| self.value_files.all.get(&entry.file?));
        ValueUses::sum(files.map(|file| ValueUse { file: Arc::clone(file), values: 1, bytes }))
    }

    /// The references of the inputs of a slice.
    pub(super) fn consumed(&self, job: &CompactionJob, slice: &KeyRange) -> ConsumedValues {
        let mut consumed = ConsumedValues::default();
        for (_, run, table) in job.uses(&self.version) {
            let Some(range) = table.range.intersection(slice) else { continue };
            for file in entries_in(&self.files, table, &range).iter().filter_map(|entry| entry.file) {
                consumed.add(run.id, table.meta.id, file, self.value_bytes());
            }
        }
        consumed
    }

    /// Compares the counts of every use with its entries.
    pub(super) fn recount(&self) -> Result<(), String> {
        if self.settings.values.is_none() {
            return Ok(());
        }
        for (_, run, table) in self.version.tables() {
            let found = self.references(entries_in(&self.files, table, &table.range));
            if found != table.values {
                return Err(format!("run {}: {table} refers to {found:?}\n{}", run.id, self.version));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
