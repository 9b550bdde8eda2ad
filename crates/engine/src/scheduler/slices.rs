//! A slice of a compaction: its inputs are merged, and what a reader can see is written as tables.
//!
//! Checksums of the inputs are verified, and outputs are read back (see
//! [`crate::table_files::output`]).

use std::sync::Arc;

use shamba_key::RunId;
use shamba_model::memory::read_ahead_bytes;
use shamba_table::{EntryIter, FragmentedTombstones, RangeTombstone, ValueFileId, Walk, clip};
use shamba_tree::compaction::filter::FilterRun;
use shamba_tree::compaction::fold::Folding;
use shamba_tree::compaction::reading::read_bytes;
use shamba_tree::compaction::retention::Retention;
use shamba_tree::compaction::schedule::is_oldest;
use shamba_tree::iter::merge::MergeIter;
use shamba_tree::iter::run_iter::RunIter;
use shamba_tree::iter::source::Source;
use shamba_tree::version::{ConsumedValues, KeyRange, TableUse, level_bytes, live_bytes, live_entries};

use super::compact::Compactor;
use super::flush::{output_options, with_expired};
use super::job::{BuiltSlice, Job};
use crate::error::{Error, Result};
use crate::memory::Reservation;
use crate::table_files::output::{Finished, Output, OutputMemory, OutputOptions};
use crate::table_files::separated::InputValues;

/// Entries between two checks of the rate limit and of shutdown.
const CHECK_EVERY_ENTRIES: u64 = 256;

impl Compactor {
    /// Compacts the entries of the inputs whose keys lie in the slice `number` of `job`, in the
    /// memory of `reservation`.
    ///
    /// # Errors
    /// Of reading and writing; `Closed` when the job was stopped. No table is left.
    pub(super) fn build_slice(
        &self,
        job: &Job,
        number: usize,
        mut reservation: Reservation,
    ) -> Result<BuiltSlice> {
        let (Some(prepared), Some(slice)) = (job.prepared.get(), job.slices().get(number)) else {
            return Err(Error::closed());
        };
        let (plan, Job { version, job, .. }) = (job, job);
        // Evicts for the reservation, before anything is charged to it.
        self.memory.balance();
        let readers = self.reads.readers();
        let snapshots = &readers.seqs;
        let mut expired = 0;
        let mut inputs: Vec<(Vec<TableUse>, u64)> = Vec::new();
        let mut runs: Vec<RunId> = Vec::new();
        let mut input_entries = 0.0;
        let mut oldest_tombstone_ms: Option<u64> = None;
        for input in &job.inputs {
            let Some((_, run)) = version.run(input.run) else { continue };
            let tables = run
                .tables()
                .iter()
                .filter(|table| input.tables.contains(&table.meta.id) && table.range.overlaps(slice));
            // A table that no reader sees anything of, and that hides nothing, is not read. To an
            // older reader, a transaction, its entries show that their keys have changed: then
            // tombstones take their place.
            let (gone, tables): (Vec<TableUse>, Vec<TableUse>) = tables.cloned().partition(|table| {
                table.meta.is_expired(readers.time_ms(0))
                    && !readers.has_older_than(table.meta.largest_seq)
                    && is_oldest(version, input.run, table)
            });
            // Of a job with several slices the first one of a table counts it.
            let first = gone.iter().filter(|table| slice.contains(&table.range.lower));
            expired += first.map(live_entries).sum::<u64>();
            let mut input_bytes = 0;
            for table in &tables {
                let bytes = live_bytes_in(table, slice);
                input_bytes += bytes;
                let all_bytes = level_bytes(table, table.meta.file_bytes);
                input_entries += table.meta.entries as f64 * bytes as f64 / all_bytes as f64;
                let unix_ms = table.meta.oldest_tombstone.unix_ms();
                oldest_tombstone_ms = oldest_tombstone_ms.into_iter().chain(unix_ms).min();
            }
            inputs.push((tables, input_bytes));
            runs.push(input.run);
        }
        let listed = || inputs.iter().flat_map(|(tables, _)| tables).filter_map(listed_tombstones);
        let count_of = |(table, list): (&TableUse, &[RangeTombstone])| {
            let Some(part) = table.range.intersection(slice) else { return 0 };
            list.iter().filter(|tomb| tomb.overlaps(&part.lower, part.upper.as_deref())).count()
        };
        let count: usize = listed().map(count_of).sum();
        let mut of_tombstones = self.memory.charged(FragmentedTombstones::memory_bytes_max(count as u64));
        let mut tombstones: Vec<RangeTombstone> = Vec::with_capacity(count);
        for (table, list) in listed() {
            let Some(part) = table.range.intersection(slice) else { continue };
            tombstones.extend(list.iter().filter_map(|tomb| clip(tomb, &part.lower, part.upper.as_deref())));
        }
        let input_bytes: Vec<u64> = inputs.iter().map(|(_, bytes)| *bytes).collect();
        let bytes_read = input_bytes.iter().sum();
        let read_ahead_bytes = read_ahead_bytes(self.settings.budget_bytes());
        let read_bytes = read_bytes(read_ahead_bytes, &input_bytes);
        assert_eq!(read_bytes.len(), inputs.len(), "an input of a slice has no share of the read-ahead");
        debug_assert!(
            inputs.iter().flat_map(|(tables, _)| tables).all(|table| table.range.overlaps(slice)),
            "an input of a slice has no key of it"
        );
        let sources = inputs.into_iter().zip(read_bytes).map(|((tables, _), bytes)| {
            Source::Tables(RunIter::new(tables, slice.clone(), Walk::Whole { bytes }))
        });
        let sources: Vec<Source> = sources.collect();
        let below = job.below(version, slice);
        let fragments = FragmentedTombstones::new(tombstones);
        let retention = Retention::new(snapshots, &fragments, below).at_times(&readers);
        let mut kept_tombstones: Vec<RangeTombstone> = fragments
            .thinned(&slice.lower, slice.upper.as_deref(), snapshots)
            .into_iter()
            .filter(|tomb| {
                let range = KeyRange { lower: tomb.start.clone(), upper: tomb.end.clone() };
                !retention.drops_range_tombstone(&range, tomb.seq)
            })
            .collect();
        kept_tombstones.shrink_to_fit();
        let tombstones_bytes = fragments.memory_bytes() + size_of_val(&*kept_tombstones) as u64;
        self.memory.fit(&mut of_tombstones, tombstones_bytes);
        // If the reservation cannot be extended for the lists, they do not count when tables are
        // cut.
        let mut other_bytes = read_ahead_bytes;
        let with_tombstones_bytes = reservation.bytes().saturating_add(tombstones_bytes);
        if self.memory.extend(&mut reservation, with_tombstones_bytes) {
            other_bytes += tombstones_bytes;
        }
        let target = (plan.keyspace.as_ref(), job.target_level);
        let (bits, table_size) =
            (Arc::clone(&prepared.bits), self.memory.table_size(&plan.keyspace.overrides()));
        let options = output_options(&self.settings, target, self.reads.digest(), bits, table_size);
        let filtering = plan.keyspace.filtering().filter(|_| plan.is_filtered(number));
        let run = |filtering| FilterRun::new(filtering, self.reads.digest(), job.target_level, snapshots);
        let filter = filtering.as_deref().and_then(run);
        if filter.is_some() {
            // A value that is removed becomes a tombstone now.
            oldest_tombstone_ms = oldest_tombstone_ms.or_else(|| Some(self.env.clock.unix_ms()));
        }
        // Tombstones that stay may be the oldest of any input.
        let oldest_tombstone_ms = with_expired(oldest_tombstone_ms, &readers);
        let dictionary = prepared.dictionary.clone();
        let options = OutputOptions { dictionary, oldest_tombstone_ms, ..options };
        let output =
            Output::new(&self.table_files, self.memory.as_ref(), options, slice.clone(), kept_tombstones);
        let input_values =
            plan.input_values.get_or_init(|| InputValues::of(version, Arc::clone(&plan.collected)));
        let mut output = output.reading(input_values.clone()).within(reservation, other_bytes);
        let input_entries = input_entries as u64;
        let merging = plan.keyspace.merging();
        let mut folding = Folding::new(retention, merging.as_deref()).with_filter(filter);
        let mut consumed = ConsumedValues::default();
        let (mut entries, mut bytes_paced) = (0u64, 0u64);
        let is_stopped = || plan.is_stopped() || self.background.is_stopping();
        let mut pace = |output: &Output| {
            // The open block is counted before its compression, so the count may shrink.
            let bytes = output.bytes().max(bytes_paced);
            self.pace.keep(bytes - bytes_paced, is_stopped);
            bytes_paced = bytes;
            if is_stopped() { Err(Error::closed()) } else { Ok(()) }
        };
        let mut merged = MergeIter::new(sources);
        merged.seek_to_first()?;
        while merged.valid() {
            output.note_input(input_entries, entries);
            let is_copied = match merged.kind().in_value_file() {
                true => !plan.collected.contains(&count_value(&merged, &runs, &mut consumed)?),
                false => !merged.kind().is_large(),
            };
            folding.take(&merged, &mut output)?;
            entries += 1;
            debug_assert!(folding.written() <= entries, "more entries were written than read");
            if !is_copied || entries % CHECK_EVERY_ENTRIES == 0 {
                pace(&output)?;
            }
            merged.next()?;
        }
        folding.finish(&mut output)?;
        pace(&output)?;
        let entries_dropped = expired + entries - folding.written();
        let entries_expired = expired + folding.expired();
        let filtered = folding.into_filter_changes();
        if let Some(warning) = filtered.warning() {
            self.telemetry.warn(warning);
        }
        let Finished { tables, value_files } = output.finish()?;
        Ok(BuiltSlice {
            tables,
            bytes_read,
            value_files,
            consumed,
            entries_dropped,
            entries_expired,
            filtered,
        })
    }
}

/// Counts the value to which the current entry refers, whose source is one of `runs`. Returns its
/// value file.
fn count_value(merged: &MergeIter, runs: &[RunId], consumed: &mut ConsumedValues) -> Result<ValueFileId> {
    let found = (merged.separated()?, merged.table());
    let (Some((_, reference)), Some((source, table))) = found else {
        return Err(Error::invalid("an entry without a table refers to a value file"));
    };
    if let Some(run) = runs.get(source) {
        consumed.add(*run, table.meta.id, reference.file, u64::from(reference.stored_bytes));
    }
    Ok(reference.file)
}

/// The range tombstones of the file of `table`, if it has any.
fn listed_tombstones(table: &TableUse) -> Option<(&TableUse, &[RangeTombstone])> {
    let list = table.meta.reader.get()?.range_tombstones();
    (!list.is_empty()).then_some((table, list))
}

fn live_bytes_in(table: &TableUse, slice: &KeyRange) -> u64 {
    table.range.intersection(slice).map_or(0, |part| live_bytes(table, &part))
}
