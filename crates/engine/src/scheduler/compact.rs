//! Compaction jobs: carries out a job, one key-range slice at a time.
//!
//! The policy chooses the job. Each slice is compacted separately: read the inputs in key order,
//! keep the versions that some reader can see, write tables, verify them, install. After each slice
//! the inputs are narrowed, so space is freed as the compaction proceeds, a crash loses at most the
//! unfinished slices, and shutdown does not wait. Several threads process slices in parallel
//! ([`super::plan`]); slices are installed in order.
//!
//! Checksums of the inputs are verified, and outputs are read back (see
//! [`crate::table_files::output`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::memory::MemoryLink;
use super::plan::{Claim, CompactedSlice, CompactionPlan};
use super::rules::rules;
use super::state::BackgroundWork;
use super::threads::{compaction_threads, unrestricted_compaction_threads};
use crate::catalog::{Catalog, KeyspaceCore};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter_bits::FilterBits;
use crate::metrics::WorkCounters;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::statistics::SavedStatistics;
use crate::table_files::TableFiles;
use crate::telemetry::Telemetry;
use shamba_env::{Env, lock};
use shamba_tree::compaction::policy::{
    CompactionJob, OutputRun, Reason, Target, can_be_deferred, concurrent_level_bytes, move_edit, pick,
    pick_concurrent, pick_full, pick_l0, slice_edit, slices,
};
use shamba_tree::version::live_bytes;
use shamba_tree::version::live_entries;
use shamba_tree::version::{KeyRange, ManifestEdit, TableMeta, TableUse, Version};

/// Input of a slice, in tables.
const SLICE_TABLES: u64 = 4;
/// The compaction's own thread, when idle, checks on its helpers this often.
const HELPER_WAIT: Duration = Duration::from_millis(50);
/// Maximum number of other jobs between two slices of a long one.
const CONCURRENT_JOBS_MAX: usize = 3;

/// Whether a job is the scheduled one, or one that runs between two slices of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Own,
    Beside,
}

/// Outcome of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// All slices are installed.
    Done,
    /// The remaining slices are put off, or not needed any more.
    Deferred,
    /// The database is closing, or the keyspace was dropped.
    Closing,
}

/// Counters of a compaction.
#[derive(Default)]
struct Tally {
    bytes_read: u64,
    bytes_written: u64,
    dropped: u64,
    /// Time up to which its work is counted; `slept_us` is the part slept for the rate limit.
    since_us: u64,
    slept_us: u64,
}

/// Carries out compactions.
pub(super) struct Compactor {
    pub(super) env: Env,
    pub(super) settings: Arc<Settings>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) reads: Arc<Reads>,
    pub(super) table_files: Arc<TableFiles>,
    pub(super) filter_bits: Arc<FilterBits>,
    pub(super) statistics: Arc<SavedStatistics>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) memory: Arc<MemoryLink>,
    pub(super) background: Arc<BackgroundWork>,
}

impl Compactor {
    /// Carries out `job` in `keyspace`. Stops early at shutdown, with the finished slices
    /// installed.
    ///
    /// # Errors
    /// The failure of a slice. Slices before it stay installed, and its output is removed.
    pub fn run(&self, keyspace: &Arc<KeyspaceCore>, job: &CompactionJob) -> Result<()> {
        self.run_as(keyspace, job, Turn::Own)
    }

    fn run_as(&self, keyspace: &Arc<KeyspaceCore>, job: &CompactionJob, turn: Turn) -> Result<()> {
        let begin_us = self.env.clock.now_us();
        let version = Arc::clone(&keyspace.load().version);
        // Checked after the version was taken: a drop marks the keyspace before it removes its
        // tables.
        if keyspace.dropped.load(Ordering::Acquire) {
            return Ok(());
        }
        job.check(&version)
            .map_err(|detail| Error::invalid(format!("a compaction would break the tree: {detail}")))?;
        let (run, age) = self.catalog.new_run();
        let output = job.output_run(&version, run, age).map_err(Error::invalid)?;
        if job.is_trivial_move(&version) && !self.joins_tables(&version, job) {
            self.move_table(keyspace, job, &version, output)?;
            return if job.reason == Reason::Manual { self.merge_moved(keyspace, turn) } else { Ok(()) };
        }
        self.telemetry.emit(&Event::CompactionBegin {
            keyspace: keyspace.name.clone(),
            reason: job.reason.to_string(),
            bytes: job.input_bytes(&version),
            target_level: job.target_level,
        });
        let split_keys = |table: &TableUse, every_bytes: u64| {
            // Without split keys, slices end at table boundaries.
            table.meta.open().map_or_else(|_| Vec::new(), |reader| reader.split_keys(every_bytes))
        };
        let was_l0_urgent = rules(&self.settings, false).is_l0_urgent(&version);
        let (size, budget_bytes) =
            (self.memory.table_size(self.settings.table_bytes()), self.settings.memory_budget_bytes);
        let threads = match compaction_threads(self.env.spawner.as_ref(), &self.settings) {
            roomy if roomy <= unrestricted_compaction_threads(budget_bytes) => roomy,
            affordable => size.threads_for(amount(job, &version), budget_bytes, affordable),
        };
        let (set_bytes, full_bytes) = (self.settings.table_bytes(), size.full_bytes);
        let slice_bytes = slice_bytes(set_bytes, full_bytes, job.input_bytes(&version), threads);
        let slices = slices(job, &version, slice_bytes, &split_keys);
        let bits = Arc::new(self.filter_bits.of_compaction(keyspace, &version, job));
        let plan =
            CompactionPlan::new(Arc::clone(keyspace), version, job.clone(), bits, slices, threads, begin_us);
        let plan = Arc::new(plan);
        // If there is nothing to share, helpers stay with the job that this one interrupts.
        let is_shared = threads > 1 && plan.slices().len() > 1;
        let shared_before = is_shared.then(|| self.share_compaction(Some(Arc::clone(&plan))));
        let mut tally = Tally { since_us: begin_us, ..Tally::default() };
        let outcome = self.merge_in_order(&plan, output, turn, &mut tally);
        if let Some(before) = shared_before {
            self.share_compaction(before);
        }
        keyspace.update_credit(job, tally.bytes_read, was_l0_urgent);
        self.catalog.mark_tables_obsolete(plan.stop().into_iter().map(|table| table.meta));
        let ended = outcome?;
        let duration_us = self.env.clock.now_us().saturating_sub(begin_us);
        if ended == Ended::Closing {
            return Ok(());
        }
        self.statistics.save(false);
        WorkCounters::add(&self.telemetry.work().compactions, u64::from(ended == Ended::Done));
        let is_of_tombstones = ended == Ended::Done && job.reason == Reason::Tombstones;
        WorkCounters::add(&self.telemetry.work().tombstone_compactions, u64::from(is_of_tombstones));
        self.telemetry.emit(&Event::CompactionEnd {
            keyspace: keyspace.name.clone(),
            target_level: job.target_level,
            bytes_read: tally.bytes_read,
            bytes_written: tally.bytes_written,
            entries_dropped: tally.dropped,
            duration_us,
        });
        Ok(())
    }

    /// Compacts the small tables that a caller's `compact` has just moved into one run.
    fn merge_moved(&self, keyspace: &Arc<KeyspaceCore>, turn: Turn) -> Result<()> {
        let version = Arc::clone(&keyspace.load().version);
        let job =
            pick_full(&version, &rules(&self.settings, false)).filter(|job| !job.is_trivial_move(&version));
        // Otherwise the version would keep its tables from being deleted.
        drop(version);
        job.map_or(Ok(()), |job| self.run_as(keyspace, &job, turn))
    }

    /// Whether flushed tables that could be moved unchanged are joined into fewer ones
    /// (`TableSize::joins`). Not where tables of the target run lie between them: no output may
    /// span those.
    fn joins_tables(&self, version: &Version, job: &CompactionJob) -> bool {
        let uses = job.uses(version);
        let hull =
            uses.iter().map(|(_, _, table)| table.range.clone()).reduce(|hull, range| hull.hull(&range));
        let Some(hull) = hull.filter(|_| job.reason == Reason::Level0) else { return false };
        let (bytes, entries) = uses.iter().fold((0u64, 0u64), |(bytes, entries), (_, _, table)| {
            (bytes.saturating_add(table.live_bytes), entries.saturating_add(table.meta.entries))
        });
        let is_free = match job.target_run {
            Target::New => true,
            Target::Existing(id) => version.run(id).is_none_or(|(_, run)| run.overlapping(&hull).is_empty()),
        };
        is_free
            && self.memory.table_size(self.settings.table_bytes()).joins(uses.len() as u64, bytes, entries)
    }

    /// Sets the compaction whose slices helpers may process; returns the previous one.
    fn share_compaction(&self, plan: Option<Arc<CompactionPlan>>) -> Option<Arc<CompactionPlan>> {
        let is_shared = plan.is_some();
        let before = std::mem::replace(&mut lock(&self.background.state).sharing, plan);
        if is_shared {
            self.background.wake.notify_all();
        }
        before
    }

    /// Compacts slices in parallel with the helpers, and installs them in order.
    fn merge_in_order(
        &self,
        plan: &CompactionPlan,
        output: OutputRun,
        turn: Turn,
        tally: &mut Tally,
    ) -> Result<Ended> {
        let rules = rules(&self.settings, false);
        let is_long = turn == Turn::Own && plan.job.input_bytes(&plan.version) >= rules.long_bytes;
        let before_bytes = concurrent_level_bytes(&plan.version, &rules, &plan.job);
        let can_be_deferred = can_be_deferred(&plan.job, &rules, plan.version.deepest_level());
        let mut installed = 0;
        while let Some(slice) = plan.slices().get(installed) {
            if self.background.is_stopping() || plan.keyspace.dropped.load(Ordering::Acquire) {
                return Ok(Ended::Closing);
            }
            if let Some(merged) = plan.take_next() {
                if !self.install_slice(plan, slice, merged?, output, tally)? {
                    return Ok(Ended::Closing);
                }
                installed += 1;
                self.count_time(plan, tally);
                if installed < plan.slices().len() {
                    if can_be_deferred && self.should_defer(plan, tally) {
                        return Ok(Ended::Deferred);
                    }
                    if is_long {
                        self.relieve_other_keyspaces(plan);
                    }
                    if let (true, Some(before_bytes)) = (is_long, before_bytes) {
                        self.run_concurrent(plan, installed, before_bytes)?;
                    }
                    // Time of other jobs is not its own.
                    tally.since_us = self.env.clock.now_us();
                }
            } else if let Some(claim) = plan.claim() {
                self.merge_claimed(plan, claim);
            } else {
                plan.wait(HELPER_WAIT);
            }
        }
        Ok(Ended::Done)
    }

    /// Adds the time since the last slice to the compaction time, without sleep for the rate limit.
    fn count_time(&self, plan: &CompactionPlan, tally: &mut Tally) {
        let now_us = self.env.clock.now_us();
        let slept_us = plan.slept_us.load(Ordering::Relaxed) / plan.threads() as u64;
        let slept_lately_us = slept_us.saturating_sub(tally.slept_us);
        let worked_us = now_us.saturating_sub(tally.since_us).saturating_sub(slept_lately_us);
        WorkCounters::add(&self.telemetry.work().compaction_us, worked_us);
        (tally.since_us, tally.slept_us) = (now_us, slept_us);
    }

    /// Runs the jobs that are due after `installed` slices of a long compaction. Their number is
    /// bounded: if the same keys are overwritten repeatedly, the levels above never fill up, and a
    /// job is always due.
    fn run_concurrent(&self, plan: &CompactionPlan, installed: usize, before_bytes: u64) -> Result<()> {
        let done = installed as f64 / plan.slices().len().max(1) as f64;
        for _ in 0..CONCURRENT_JOBS_MAX {
            let is_dropped = plan.keyspace.dropped.load(Ordering::Acquire);
            if is_dropped || self.background.is_stopping() || !self.settings.auto_compaction {
                break;
            }
            let version = Arc::clone(&plan.keyspace.load().version);
            let rules = plan.keyspace.turns(rules(&self.settings, false));
            let Some(job) = pick_concurrent(&version, &rules, &plan.job, done, before_bytes) else { break };
            drop(version);
            self.run_concurrent_job(&plan.keyspace, &job)?;
        }
        Ok(())
    }

    /// Runs one job in each other keyspace whose level 0 is near a write slowdown, unless it is
    /// long too. Its failure is reported separately and does not fail this compaction.
    fn relieve_other_keyspaces(&self, plan: &CompactionPlan) {
        let rules = rules(&self.settings, false);
        let others = Arc::clone(&self.catalog.keyspaces());
        for keyspace in others.values().filter(|keyspace| keyspace.id != plan.keyspace.id) {
            let version = Arc::clone(&keyspace.load().version);
            let has_turn = self.settings.auto_compaction && !self.background.is_stopping();
            if !has_turn || !rules.is_l0_urgent(&version) {
                continue;
            }
            let is_short = |job: &CompactionJob| {
                job.input_bytes(&version) < rules.long_bytes || job.is_trivial_move(&version)
            };
            let job = pick(&version, &keyspace.turns(rules)).filter(is_short);
            let job = job.or_else(|| Some(pick_l0(&version, &rules)).filter(is_short));
            drop(version);
            if let Some(Err(error)) = job.map(|job| self.run_concurrent_job(keyspace, &job)) {
                self.telemetry.background_error("merge", &error);
                // Visible to writers, but not a failure of the compaction that others wait for.
                lock(&self.background.state).compaction_failures.error = Some(error);
            }
        }
    }

    fn run_concurrent_job(&self, keyspace: &Arc<KeyspaceCore>, job: &CompactionJob) -> Result<()> {
        self.run_as(keyspace, job, Turn::Beside)?;
        lock(&self.background.state).compaction_failures.error = None;
        self.catalog.remove_obsolete_files();
        self.background.progress.notify_all();
        Ok(())
    }

    /// Whether to put off the rest of a compaction for which [`can_be_deferred`] holds. It is put
    /// off when the design has changed again, so that it may not be needed any more. It is also put
    /// off while a level 0 is near a write slowdown, if that is another keyspace's or this
    /// compaction has spent its credit. The policy will find the remaining work.
    fn should_defer(&self, plan: &CompactionPlan, tally: &Tally) -> bool {
        let rules = rules(&self.settings, false);
        let deepest = plan.keyspace.load().version.deepest_level();
        let has_turn = plan.keyspace.turns(rules).credit_bytes > tally.bytes_read;
        let keyspaces = self.catalog.keyspaces();
        let mut crowded = keyspaces.values().filter(|other| rules.is_l0_urgent(&other.load().version));
        rules.design.runs_allowed(plan.job.target_level, deepest) > 1
            || crowded.any(|other| other.id != plan.keyspace.id || !has_turn)
    }

    /// Compacts the slice of a claim and records the result.
    fn merge_claimed(&self, plan: &CompactionPlan, claim: Claim<'_>) {
        let merged = self.compact_slice(plan, claim.slice());
        claim.finish(merged);
    }

    /// Processes slices of the plan until none can be claimed: the work of a helper thread.
    pub fn help(&self, plan: &CompactionPlan) {
        while let Some(claim) = plan.claim() {
            self.merge_claimed(plan, claim);
        }
    }

    /// Installs a compacted slice; false if the keyspace was dropped meanwhile.
    fn install_slice(
        &self,
        plan: &CompactionPlan,
        slice: &KeyRange,
        merged: CompactedSlice,
        output: OutputRun,
        tally: &mut Tally,
    ) -> Result<bool> {
        let CompactedSlice { tables, bytes_read, entries_dropped } = merged;
        let mut handed = Vec::new();
        let new: Vec<Arc<TableMeta>> = tables.iter().map(|table| Arc::clone(&table.meta)).collect();
        let bytes_written = tables.iter().map(|table| table.meta.file_bytes).sum::<u64>();
        let id = plan.keyspace.id;
        let mut is_dropped = false;
        let installed = self.catalog.install(&[], new.clone(), |state| {
            let Some(current) = state.keyspaces.get(&id) else {
                is_dropped = true;
                return Err(Error::invalid("the keyspace was dropped during a compaction"));
            };
            // Under the install lock, where no figures are adjusted: a table that is in no tree yet
            // would be missed.
            handed = crate::statistics::hand_over(&plan.keyspace, &plan.job, slice, &tables);
            let live = |table: &TableUse, range: &KeyRange| live_bytes(table, range);
            let edit = slice_edit(id, &current.version, &plan.job, slice, tables, output, &live);
            Ok(ManifestEdit { versions: vec![edit], ..ManifestEdit::default() })
        });
        if is_dropped {
            // Not a failure: there is nothing left to compact.
            return Ok(false);
        }
        installed?;
        for (table, share) in handed {
            table.statistics.keep(share);
        }
        // The replaced tables have freed their memory.
        self.memory.hold_published(&new);
        tally.bytes_read += bytes_read;
        tally.bytes_written += bytes_written;
        tally.dropped += entries_dropped;
        WorkCounters::add(&self.telemetry.work().bytes_compacted, bytes_written);
        WorkCounters::add(&self.telemetry.work().bytes_compaction_read, bytes_read);
        WorkCounters::add(&self.telemetry.work().entries_dropped, entries_dropped);
        WorkCounters::add(&self.telemetry.work().compaction_slices, 1);
        Ok(true)
    }

    fn move_table(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        job: &CompactionJob,
        version: &Version,
        output: OutputRun,
    ) -> Result<()> {
        let mut is_dropped = false;
        let installed = self.catalog.install(&[], Vec::new(), |state| {
            if !state.keyspaces.contains_key(&keyspace.id) {
                is_dropped = true;
                return Err(Error::invalid("the keyspace was dropped before a move"));
            }
            let edit = move_edit(keyspace.id, version, job, output);
            Ok(ManifestEdit { versions: vec![edit], ..ManifestEdit::default() })
        });
        if is_dropped {
            // As in a compaction: not a failure.
            return Ok(());
        }
        installed?;
        WorkCounters::add(&self.telemetry.work().trivial_moves, 1);
        self.telemetry.emit(&Event::TrivialMove {
            keyspace: keyspace.name.clone(),
            target_level: job.target_level,
            bytes: job.input_bytes(version),
        });
        Ok(())
    }
}

/// Input bytes of a slice: enough for full tables, but each thread gets a part of a small
/// compaction. Tables may be cut at a `full_bytes` above the configured size; slices do not grow in
/// proportion.
fn slice_bytes(set_bytes: u64, full_bytes: u64, input_bytes: u64, threads: usize) -> u64 {
    let most = set_bytes.saturating_mul(SLICE_TABLES).max(full_bytes);
    if threads <= 1 {
        return most;
    }
    // A little more than its share, so that no small remainder needs another slice.
    let share = input_bytes / threads as u64;
    (share + share / 16).clamp(full_bytes.min(most), most)
}

/// Input bytes and entries of a job.
fn amount(job: &CompactionJob, version: &Version) -> (u64, u64) {
    let of_table = |(bytes, entries): (u64, u64), table: &TableUse| {
        (bytes.saturating_add(table.live_bytes), entries.saturating_add(live_entries(table)))
    };
    job.uses(version).into_iter().fold((0, 0), |sum, (_, _, table)| of_table(sum, table))
}
