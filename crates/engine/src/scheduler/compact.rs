//! Carrying out a compaction: planning its slices, installing them, and trivial moves.
//!
//! Each slice is compacted separately: read the inputs in key order, keep the versions that some
//! reader can see, write tables, verify them ([`super::slices`]), install. After each slice the
//! inputs are narrowed, so space is freed as the compaction proceeds, a crash loses at most the
//! unfinished slices, and shutdown does not wait.
//!
//! Invariant: nothing is installed before its claim was checked against the tree in force, under
//! the lock of installs. A violation would lose data, and means a defect of the scheduler.
//!
//! Not here: which slice is next, and on which thread ([`super::next`], [`super::execute`]).

use std::sync::Arc;

use super::job::{BuiltSlice, Job, Prepared, Tally};
use super::memory::MemoryLink;
use super::next::amount;
use super::pace::Pace;
use super::state::BackgroundWork;
use super::threads::{compaction_threads, unrestricted_compaction_threads};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter_bits::FilterBits;
use crate::metrics::WorkCounters;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::table_files::TableFiles;
use crate::telemetry::Telemetry;
use shamba_env::Env;
use shamba_key::SeqNo;
use shamba_tree::compaction::filter::FilterChanges;
use shamba_tree::compaction::policy::{Reason, is_fifo_due, move_edit, slice_edit, slices};
use shamba_tree::compaction::schedule::Claim;
use shamba_tree::records::RecordEdit;
use shamba_tree::version::live_bytes;
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{
    Change, KeyRange, ManifestEdit, Run, TableMeta, TableUse, ValueFileMeta, Version, VersionEdit,
};

/// Input of a slice, in tables.
const SLICE_TABLES: u64 = 4;

/// Tables and value files that were written for an install.
type NewFiles = (Vec<Arc<TableMeta>>, Vec<Arc<ValueFileMeta>>);

/// A slice of a job that joins small value files may have the input of this many others.
const JOINING_SLICES: u64 = 8;

/// Outcome of an install that has not failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Installed {
    /// It is in force.
    Yes(Tally),
    /// The keyspace was dropped, or the limits of a FIFO keyspace keep the tables: there is nothing
    /// left to do.
    Dropped,
    /// A reader sees an entry that the compaction filter has changed: the slice must be built once
    /// more, without the filter.
    Overtaken,
}

/// The reason why an edit was not made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Dropped,
    Overtaken,
    /// The limits of a FIFO keyspace do not ask for the drop any more.
    NotDue,
}

/// Plans, builds and installs compactions.
pub(super) struct Compactor {
    pub(super) env: Env,
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) reads: Arc<Reads>,
    pub(super) table_files: Arc<TableFiles>,
    pub(super) filter_bits: Arc<FilterBits>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) memory: Arc<MemoryLink>,
    pub(super) background: Arc<BackgroundWork>,
    pub(super) pace: Pace,
}

impl Compactor {
    /// Plans the slices of a job that begins, the filter bits of its output tables, and their
    /// dictionary.
    pub fn prepare(&self, job: &Job) {
        let Job { keyspace, version, job: compaction, .. } = job;
        self.telemetry.emit(Event::CompactionBegin {
            keyspace: keyspace.name.clone(),
            reason: compaction.reason.to_string(),
            bytes: compaction.input_bytes(version),
            target_level: compaction.target_level,
        });
        let split_keys = |table: &TableUse, every_bytes: u64| {
            // Without split keys, slices end at table boundaries.
            table.meta.open().map_or_else(|_| Vec::new(), |reader| reader.split_keys(every_bytes))
        };
        let overrides = keyspace.overrides();
        let (set_bytes, budget_bytes) = (overrides.table_bytes(&self.settings), self.settings.budget_bytes());
        let size = self.memory.table_size(&overrides);
        let threads = match compaction_threads(self.env.spawner.as_ref(), &self.settings) {
            roomy if roomy <= unrestricted_compaction_threads(budget_bytes) => roomy,
            affordable => size.threads_for(amount(compaction, version), budget_bytes, affordable),
        };
        let input_bytes = compaction.input_bytes(version);
        let slice_bytes = slice_bytes(set_bytes, size.full_bytes, input_bytes, threads);
        let slice_bytes = self.slice_with_values(job, slice_bytes, input_bytes);
        let slices = slices(compaction, version, slice_bytes, &split_keys);
        debug_assert!(
            slices.windows(2).all(|pair| pair[0].upper.as_ref() == Some(&pair[1].lower)),
            "slices ascend and leave no key out"
        );
        debug_assert!(
            compaction.uses(version).iter().all(|(_, _, table)| {
                slices.is_empty() || slices.iter().any(|slice| slice.overlaps(&table.range))
            }),
            "an input of the compaction is in none of its slices"
        );
        let bits = Arc::new(self.filter_bits.of_compaction(keyspace, version, compaction));
        let dictionary = self.dictionary(job, size.full_bytes);
        let is_first = job.prepared.set(Prepared { slices, dictionary, bits }).is_ok();
        assert!(is_first, "two threads prepared job {}", job.number);
    }

    /// Input bytes of a slice of a job that writes values again. With its values, a slice is about
    /// as large as one without. But each slice ends its value file: where many small files become
    /// few, there are at most as many slices as full value files, within limits.
    fn slice_with_values(&self, job: &Job, slice_bytes: u64, input_bytes: u64) -> u64 {
        let totals = job.version.value_totals();
        let moved_bytes = totals.bytes_in(job.collected.iter());
        if moved_bytes == 0 || input_bytes == 0 {
            return slice_bytes;
        }
        let rules = job.keyspace.overrides().value_rules(&self.settings, &job.version);
        let full_bytes = rules.map_or(1, |rules| rules.full_bytes(totals.stored_bytes()));
        let share = input_bytes as f64 / (input_bytes as f64 + moved_bytes as f64);
        let full_files = (moved_bytes / full_bytes.max(1)).max(1);
        let joins = job.collected.len() as u64 > full_files.saturating_mul(2);
        let least = (input_bytes / full_files).min(slice_bytes.saturating_mul(JOINING_SLICES));
        let wanted = (slice_bytes as f64 * share) as u64;
        if joins { wanted.max(least).max(1) } else { wanted.max(1) }
    }

    /// Installs the tables of a slice. All slices before it are installed.
    ///
    /// # Errors
    /// Of the install. The tree is as it was, and the tables are marked obsolete.
    pub fn install_slice(
        &self,
        job: &Job,
        claim: &Claim,
        number: usize,
        built: BuiltSlice,
    ) -> Result<Installed> {
        let Some(slice) = job.slices().get(number) else { return Ok(Installed::Dropped) };
        let BuiltSlice {
            tables,
            bytes_read,
            value_files,
            consumed,
            entries_dropped,
            entries_expired,
            filtered,
        } = built;
        let value_bytes = value_files.iter().map(|file| file.file_bytes).sum::<u64>();
        debug_assert!(
            tables.iter().all(|table| slice.hull(&table.range) == *slice),
            "slice {number} of job {} has tables outside of its range",
            job.number
        );
        let mut handed = Vec::new();
        let new: Vec<Arc<TableMeta>> = tables.iter().map(|table| Arc::clone(&table.meta)).collect();
        let bytes_written = tables.iter().map(|table| table.meta.file_bytes).sum::<u64>() + value_bytes;
        let records = self.erase_records(job, slice, &filtered);
        let new_files = (new.clone(), value_files);
        let refused = self.install_claimed(job, claim, new_files, filtered.oldest(), |version| {
            // Under the install lock, where no figures are adjusted: a table that is in no tree yet
            // would be missed.
            handed = crate::statistics::hand_over(&job.keyspace, &job.job, slice, &tables);
            let live = |table: &TableUse, range: &KeyRange| live_bytes(table, range);
            let built = (tables, &consumed);
            Some(slice_edit(job.keyspace.id, version, &job.job, slice, built, job.output, &live))
        })?;
        drop(records);
        match refused {
            None => {}
            Some(Refused::Dropped | Refused::NotDue) => return Ok(Installed::Dropped),
            Some(Refused::Overtaken) => return Ok(Installed::Overtaken),
        }
        for (table, share) in handed {
            table.statistics.keep(share);
        }
        // The replaced tables have freed their memory.
        self.memory.hold_published(&new);
        let work = self.telemetry.work();
        WorkCounters::add(&work.bytes_compacted, bytes_written);
        WorkCounters::add(&work.bytes_values_written, value_bytes);
        WorkCounters::add(&work.bytes_compaction_read, bytes_read);
        WorkCounters::add(&work.entries_dropped, entries_dropped);
        WorkCounters::add(&work.entries_expired, entries_expired);
        WorkCounters::add(&work.entries_filtered, filtered.removed + filtered.replaced);
        WorkCounters::add(&work.compaction_slices, 1);
        let tables_written = new.len() as u64;
        Ok(Installed::Yes(Tally { bytes_read, bytes_written, tables_written, entries_dropped }))
    }

    /// Begins an edit of the record cache and erases the records of the keys that the compaction
    /// filter has changed.
    fn erase_records(&self, job: &Job, slice: &KeyRange, filtered: &FilterChanges) -> Option<RecordEdit<'_>> {
        filtered.oldest()?;
        let records = self.reads.records();
        let edit = records.begin_edit();
        if records.may_hold() {
            match filtered.digests() {
                Some(digests) => digests.iter().for_each(|digest| edit.erase(*digest)),
                None => edit.erase_where(job.keyspace.id, |key| slice.contains(key)),
            }
        }
        Some(edit)
    }

    /// Moves the tables of a job that needs no rewrite.
    ///
    /// # Errors
    /// Of the install. The tree is as it was.
    pub fn move_tables(&self, job: &Job, claim: &Claim) -> Result<Installed> {
        let Job { keyspace, version, job: compaction, output, .. } = job;
        if compaction.reason == Reason::Fifo {
            return self.drop_tables(job, claim);
        }
        let refused = self.install_claimed(job, claim, Default::default(), None, |version| {
            Some(move_edit(keyspace.id, version, compaction, *output))
        })?;
        if refused.is_some() {
            return Ok(Installed::Dropped);
        }
        WorkCounters::add(&self.telemetry.work().trivial_moves, 1);
        self.telemetry.emit(Event::TrivialMove {
            keyspace: keyspace.name.clone(),
            target_level: compaction.target_level,
            bytes: compaction.input_bytes(version),
        });
        Ok(Installed::Yes(Tally::default()))
    }

    /// Drops the tables of a job without reading them, if the limits that hold at the install still
    /// ask for it.
    ///
    /// # Errors
    /// Of the install. The tree is as it was.
    fn drop_tables(&self, job: &Job, claim: &Claim) -> Result<Installed> {
        let Job { keyspace, version, job: compaction, .. } = job;
        let uses = compaction.uses(version);
        let ranges: Vec<KeyRange> = uses.iter().map(|(_, _, table)| table.range.clone()).collect();
        let records = self.reads.records().begin_edit();
        records.erase_where(keyspace.id, |key| ranges.iter().any(|range| range.contains(key)));
        let refused = self.install_claimed(job, claim, Default::default(), None, |version| {
            let rules = keyspace.fifo()?.rules(self.reads.expiry().now_ms());
            if !is_fifo_due(version, &rules, compaction) {
                return None;
            }
            let uses = compaction.uses(version).into_iter();
            let remove = |(level, run, table): (u32, &Arc<Run>, &TableUse)| Change::Remove {
                level,
                run: run.id,
                table: table.meta.id,
            };
            Some(VersionEdit { keyspace: keyspace.id, changes: uses.map(remove).collect() })
        })?;
        drop(records);
        if refused.is_some() {
            return Ok(Installed::Dropped);
        }
        WorkCounters::add(&self.telemetry.work().tables_dropped, uses.len() as u64);
        self.telemetry.emit(Event::TablesDropped {
            keyspace: keyspace.name.clone(),
            tables: uses.len() as u64,
            bytes: compaction.input_bytes(version),
        });
        Ok(Installed::Yes(Tally::default()))
    }

    /// Installs the edit that `edit` makes from the tree in force, after a check of the claim;
    /// `None`: the job is not due any more. `filtered_from` is the smallest sequence number of the
    /// entries that a compaction filter has changed: no reader may see such an entry before and
    /// after the install. Returns the reason if nothing was installed.
    fn install_claimed(
        &self,
        job: &Job,
        claim: &Claim,
        (new, value_files): NewFiles,
        filtered_from: Option<SeqNo>,
        edit: impl FnOnce(&Version) -> Option<VersionEdit>,
    ) -> Result<Option<Refused>> {
        let mut refused = None;
        let installed = self.catalog.install_holding(&[], new, |state: &ManifestState| {
            let Some(current) = state.keyspaces.get(&job.keyspace.id) else {
                refused = Some(Refused::Dropped);
                return Err(Error::invalid("the keyspace was dropped during a compaction"));
            };
            claim.check(&current.version).map_err(|detail| {
                Error::invalid(format!("a compaction would break the tree: {}: {detail}", job.job))
            })?;
            let fence = match filtered_from.map(|seq| self.reads.snapshots().fence(seq)) {
                Some(None) => {
                    refused = Some(Refused::Overtaken);
                    return Err(Error::invalid("a reader sees an entry that a filter has changed"));
                }
                fence => fence,
            };
            let Some(edit) = edit(&current.version) else {
                refused = Some(Refused::NotDue);
                return Err(Error::invalid("the tables of a drop are within the limits again"));
            };
            let versions = vec![edit];
            Ok((ManifestEdit { versions, value_files, ..ManifestEdit::default() }, fence))
        });
        // None of these is a failure.
        if refused.is_some() { Ok(refused) } else { installed.map(|()| None) }
    }
}

/// Input bytes of a slice: enough for full tables, but each thread gets a part of a small
/// compaction. Tables may be cut at a `full_bytes` above the configured size; slices do not grow in
/// proportion.
fn slice_bytes(set_bytes: u64, full_bytes: u64, input_bytes: u64, threads: usize) -> u64 {
    debug_assert!(threads > 0, "a compaction has no thread");
    let most = set_bytes.saturating_mul(SLICE_TABLES).max(full_bytes);
    if threads <= 1 {
        return most;
    }
    // A little more than its share, so that no small remainder needs another slice.
    let share = input_bytes / threads as u64;
    (share + share / 16).clamp(full_bytes.min(most), most)
}
