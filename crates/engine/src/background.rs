//! Background work: scheduling of flushes and compactions, and waiting for them.
//!
//! With threads there are workers. One flushes generations in order. One runs compactions, with
//! helpers that process slices of the same compaction. One syncs the log when the interval of a
//! write has passed. So neither a long flush nor a wait for the log delays the others. The
//! compaction threads run at lower priority than other threads.
//!
//! Without threads (the deterministic environment) the same steps run inside the call that makes
//! them due.
//!
//! A failure is reported, kept for writers to see, and retried with back-off. A panic turns writes
//! off and is reported; work never stops silently.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shamba_env::JoinHandle;
use shamba_model::Design;
use shamba_table::Residency;

use crate::catalog::KeyspaceCore;
use crate::core::{BackgroundState, Core, FilterRewrite};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::MutexGuard;
use crate::writer::{WAITER_FAILURES_MAX, Work};
use shamba_env::lock;
use shamba_tree::compaction::policy::{
    CompactionJob, Reason, Rules, debt_bytes, pick, pick_filter_rewrite, pick_full,
};

/// Delay after the first failure; it doubles with each further one.
const BACK_OFF_MS: u64 = 20;
/// Maximum delay between retries.
const BACK_OFF_MS_MAX: u64 = 2_000;
/// An idle worker checks for work after this long, in case a wake-up was lost.
const IDLE_MS: u64 = 500;
/// A helper that is ahead of the compaction checks again after this long.
const HELPER_MS: u64 = 5;
/// Default maximum of compaction threads; with more the disk would be the limit.
const COMPACTION_THREADS_MAX: usize = 4;
/// Memory budget per compaction thread.
const MERGE_THREAD_BUDGET_BYTES: u64 = 32 << 20;
/// Memory budget from which there is a second compaction thread. Writers then hardly wait for
/// compactions, each of which takes no more memory than a table.
const SECOND_THREAD_BUDGET_BYTES: u64 = 8 << 20;
/// Level 0 is drained after this long without a flush, plus the time by [`QUIET_BYTES_PER_US`].
const QUIET_US: u64 = 1_000_000;
/// Additional wait: the time to read the compaction's inputs at this rate. It keeps every run of a
/// slow writer from causing the rewrite of a large level.
const QUIET_BYTES_PER_US: u64 = 64;

/// A compaction of this many full tables is long: writers would have to wait for it.
const LONG_COMPACTION_TABLES: u64 = 32;
/// Tables below this size are small. At this size the 2 to 3 KiB of memory of an open table are
/// half a percent of its data, less than its filter. It is twice the longest log tail that an open
/// does not flush (`recovery::rebuild`), so a session of few writes leaves a small table.
const SMALL_TABLE_BYTES: u64 = 512 << 10;
/// Tables of at least this part (1/4) of a full one are never small: a compaction may leave half a
/// table.
const SMALL_TABLE_PART: u64 = 4;

/// Maximum bytes of a filter-rewrite job of more than one table; urgent compactions wait for no
/// more than that.
const REFIT_JOB_BYTES: u64 = 16 << 20;

/// Name of a worker, its function, and whether it runs at lower priority.
type Worker = (&'static str, fn(&Core), bool);

/// The next compaction.
struct NextCompaction {
    keyspace: Arc<KeyspaceCore>,
    /// `None` if the request has nothing to do.
    job: Option<CompactionJob>,
    asked: Option<Asked>,
}

/// The request for a compaction that the policy does not ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// `compact` waits for it.
    Whole,
    /// It is part of the filter rewrite with this number.
    FilterRewrite(u64),
}

/// Maximum number of compaction threads for a memory budget: each needs memory to read tables and
/// to build one.
fn compaction_threads_max(budget_bytes: u64) -> usize {
    unrestricted_compaction_threads(budget_bytes)
        .max(1 + usize::from(budget_bytes >= SECOND_THREAD_BUDGET_BYTES))
}

/// Number of compaction threads that the budget allows whatever they compact.
pub(crate) fn unrestricted_compaction_threads(budget_bytes: u64) -> usize {
    usize::try_from(budget_bytes / MERGE_THREAD_BUDGET_BYTES).unwrap_or(usize::MAX).max(1)
}

impl Core {
    /// Starts the workers; none in an environment without threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start_workers(self: &Arc<Self>) -> Result<Vec<JoinHandle>> {
        if self.is_inline() {
            return Ok(Vec::new());
        }
        let mut handles = Vec::new();
        lock(&self.background.state).quiet_since_us = self.env.clock.now_us();
        let mut workers: Vec<Worker> = Vec::new();
        if !self.lifecycle.is_read_only() {
            workers.push(("shamba-flush", Self::flush_worker, false));
            workers.push(("shamba-merge", Self::compaction_worker, true));
            workers.push(("shamba-sync", |core| core.writer.run_syncs(), false));
            workers.push(("shamba-tune", |core| core.tuning.work(), true));
            // Compactions run at lower priority than readers and writers, which do not wait for
            // them as long as flushes proceed.
            workers.extend(
                (1..self.compaction_threads())
                    .map(|_| ("shamba-help", Self::compaction_helper as fn(&Self), true)),
            );
        }
        if self.settings.filter_residency != Residency::Pinned {
            workers.push(("shamba-memory", Self::memory_worker, true));
        }
        for (name, work, yields) in workers {
            let core = Arc::clone(self);
            let body = Box::new(move || {
                if catch_unwind(AssertUnwindSafe(|| work(&core))).is_err() {
                    core.lifecycle
                        .fail(&Error::new(ErrorKind::ReadOnly, format!("the worker {name} panicked")));
                }
            });
            let spawner = &self.env.spawner;
            let spawned =
                if yields { spawner.spawn_background(name, body) } else { spawner.spawn(name, body) };
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // The running workers would keep the database, and its lock, for ever.
                    self.stop_workers(handles);
                    return Err(Error::with_source(ErrorKind::Io, "starting a worker", error));
                }
            }
        }
        Ok(handles)
    }

    /// Tells the workers to stop and waits for them.
    pub(crate) fn stop_workers(&self, workers: impl IntoIterator<Item = JoinHandle>) {
        lock(&self.background.state).shutdown = true;
        self.background.wake.notify_all();
        self.background.progress.notify_all();
        self.background.memory_wake.notify_all();
        self.tuning.stop();
        self.writer.stop_syncs();
        for worker in workers {
            let _ = worker.join(); // A panic was reported when it happened.
        }
    }

    fn flush_worker(&self) {
        let mut state = lock(&self.background.state);
        while !state.shutdown {
            if self.writer.sealed().is_empty() || self.lifecycle.has_failed() {
                state = self.wait_for_work(state, IDLE_MS);
                if !state.shutdown {
                    drop(state);
                    self.catalog.remove_obsolete_files();
                    state = lock(&self.background.state);
                }
                continue;
            }
            drop(state);
            let wait_ms = self.flush_oldest().err().map(|_| self.back_off_ms(Work::Flush));
            state = lock(&self.background.state);
            if let Some(wait_ms) = wait_ms {
                if !state.shutdown {
                    state = self.wait_for_work(state, wait_ms);
                }
            }
        }
    }

    fn compaction_worker(&self) {
        loop {
            if self.is_stopping() {
                return;
            }
            let merged = if self.lifecycle.has_failed() { Ok(false) } else { self.compact_once() };
            let wait_ms = match merged {
                Ok(true) => continue,
                Ok(false) => IDLE_MS,
                Err(_) => self.back_off_ms(Work::Merge),
            };
            let state = lock(&self.background.state);
            // Checked again under the lock: an install notifies after it published.
            if !state.shutdown && (merged.is_err() || self.next_compaction(&state).is_none()) {
                drop(self.wait_for_work(state, wait_ms));
            }
        }
    }

    /// Processes slices of the compaction that the merge worker runs.
    fn compaction_helper(&self) {
        let mut state = lock(&self.background.state);
        while !state.shutdown {
            if let Some(plan) = state.sharing.clone() {
                drop(state);
                self.help_merge(&plan);
                // The plan keeps the tree from before the compaction.
                drop(plan);
                state = lock(&self.background.state);
            }
            if !state.shutdown {
                let wait_ms = if state.sharing.is_some() { HELPER_MS } else { IDLE_MS };
                state = self.wait_for_work(state, wait_ms);
            }
        }
    }

    /// Number of compaction threads: the merge worker and its helpers.
    pub(crate) fn compaction_threads(&self) -> usize {
        if self.is_inline() {
            return 1;
        }
        let wanted = self.settings.background_threads.map_or_else(
            || self.env.spawner.parallelism().min(COMPACTION_THREADS_MAX),
            |threads| threads as usize,
        );
        wanted.min(compaction_threads_max(self.settings.memory_budget_bytes))
    }

    fn wait_for_work<'a>(
        &self,
        state: MutexGuard<'a, BackgroundState>,
        ms: u64,
    ) -> MutexGuard<'a, BackgroundState> {
        let waited = self.background.wake.wait_timeout(state, Duration::from_millis(ms.max(1)));
        waited.map_or_else(|poison| poison.into_inner().0, |(state, _)| state)
    }

    fn back_off_ms(&self, work: Work) -> u64 {
        let failures = lock(&self.background.state).trouble(work, false).failures.min(10);
        (BACK_OFF_MS << failures).min(BACK_OFF_MS_MAX)
    }

    /// Runs all due work on the caller's thread, until nothing is left or a step fails.
    pub(crate) fn run_background_inline(&self) {
        // The thread that holds the lock does this work too.
        let Ok(_guard) = self.inline_work.try_lock() else { return };
        while !self.lifecycle.has_failed() {
            let has_flush = !self.writer.sealed().is_empty();
            let done = if has_flush { self.flush_oldest().map(|()| true) } else { self.compact_once() };
            if !matches!(done, Ok(true)) {
                return;
            }
        }
    }

    /// Flushes the oldest generation and records the outcome.
    fn flush_oldest(&self) -> Result<()> {
        let generation = {
            let mut state = lock(&self.background.state);
            let Some(oldest) = self.writer.sealed().oldest() else { return Ok(()) };
            state.flushing = true;
            oldest
        };
        let outcome = self.flush_generation(&generation);
        let has_values = generation.log_files.iter().any(|file| file.values.strong_count() > 0);
        // Removed before the flush is visibly over: by then the memtables' memory must have been
        // freed.
        let flushed = if outcome.is_ok() { self.writer.sealed().flushed() } else { None };
        drop((generation, flushed));
        let mut state = lock(&self.background.state);
        state.flushing = false;
        match &outcome {
            Ok(()) => {
                state.quiet_since_us = self.env.clock.now_us();
                state.flush_failures.end();
            }
            Err(error) => state.flush_failures.add(error.clone()),
        }
        drop(state);
        // The cache gets the memtables' memory until writes need it again.
        self.balance_memory();
        self.background.progress.notify_all();
        self.background.wake.notify_all();
        if let Err(error) = &outcome {
            // The files of the attempt must be removed before the next one: they may fill the disk.
            self.catalog.remove_obsolete_files();
            self.telemetry.background_error("flush", error);
        } else if has_values {
            // The log was kept for the memtables, which only readers may hold now.
            self.catalog.remove_obsolete_files();
        }
        outcome
    }

    /// Picks the most urgent compaction and carries it out; false if there is none.
    fn compact_once(&self) -> Result<bool> {
        let picked = {
            let mut state = lock(&self.background.state);
            let picked = self.next_compaction(&state);
            state.merging = picked.is_some();
            if picked.is_none() {
                // The failed work is not needed any more.
                state.compaction_failures.end();
            }
            state.last_was_filter_rewrite =
                picked.as_ref().is_some_and(|next| matches!(next.asked, Some(Asked::FilterRewrite(_))));
            picked
        };
        let Some(next) = picked else { return Ok(false) };
        let outcome = next.job.as_ref().map_or(Ok(()), |job| self.run_compaction(&next.keyspace, job));
        // The compaction itself held the version of its inputs; now no reader of it may be left.
        self.catalog.remove_obsolete_files();
        let stopped = self.is_stopping();
        let mut state = lock(&self.background.state);
        state.merging = false;
        match &outcome {
            Ok(()) => {
                state.compaction_failures.end();
                if next.asked == Some(Asked::Whole) {
                    if let Some(at) = state.full_compactions.iter().position(|id| *id == next.keyspace.id) {
                        // Only one request: a caller that asked during this compaction wants newer
                        // tables compacted too.
                        state.full_compactions.remove(at);
                    }
                }
                if let (Some(Asked::FilterRewrite(number)), None) = (next.asked, &next.job) {
                    state.filter_rewrites.retain(|filter_rewrite| filter_rewrite.number != number);
                }
            }
            Err(_) if stopped => {}
            Err(error) => {
                state.compaction_failures.add(error.clone());
                // A filter rewrite without a waiter is requested again if it still pays.
                let failed = |filter_rewrite: &FilterRewrite| {
                    next.asked == Some(Asked::FilterRewrite(filter_rewrite.number))
                };
                state
                    .filter_rewrites
                    .retain(|filter_rewrite| filter_rewrite.has_waiter || !failed(filter_rewrite));
            }
        }
        drop(state);
        self.background.progress.notify_all();
        match outcome {
            Ok(()) => Ok(true),
            Err(_) if stopped => Ok(false),
            Err(error) => {
                self.telemetry.background_error("merge", &error);
                Err(error)
            }
        }
    }

    /// The next compaction, in this order: requests by `compact`; the keyspace with the most runs
    /// in level 0; and, after a while without writes, what level 0 still holds. A filter rewrite
    /// that a caller waits for alternates with all these. One without a waiter runs when nothing
    /// else is due.
    fn next_compaction(&self, state: &BackgroundState) -> Option<NextCompaction> {
        let is_draining = state.drainers > 0;
        let awaited = || self.next_refit(state, true);
        let first = if state.last_was_filter_rewrite { None } else { awaited() };
        first
            .or_else(|| self.next_compaction_by(state, is_draining))
            .or_else(awaited)
            .or_else(|| {
                // Without threads nothing runs by itself.
                let may_drain = !self.is_inline() && self.writer.sealed().is_empty() && !state.flushing;
                let next =
                    (may_drain && !is_draining).then(|| self.next_compaction_by(state, true)).flatten()?;
                let bytes = next.job.as_ref().map_or(0, |job| job.input_bytes(&next.keyspace.load().version));
                let quiet_us = self.env.clock.now_us().saturating_sub(state.quiet_since_us);
                (quiet_us >= QUIET_US + bytes / QUIET_BYTES_PER_US).then_some(next)
            })
            .or_else(|| {
                let rests = self.residency.writes_idle.load(Ordering::Relaxed);
                rests.then(|| self.next_refit(state, false)).flatten()
            })
    }

    /// The next job of the first filter rewrite that has, or has not, a waiter.
    fn next_refit(&self, state: &BackgroundState, has_waiter: bool) -> Option<NextCompaction> {
        let filter_rewrite =
            state.filter_rewrites.iter().find(|filter_rewrite| filter_rewrite.has_waiter == has_waiter)?;
        let keyspaces = self.catalog.keyspaces();
        let keyspace = keyspaces.get(&filter_rewrite.keyspace)?;
        let job = pick_filter_rewrite(&keyspace.load().version, &filter_rewrite.tables, REFIT_JOB_BYTES);
        Some(NextCompaction {
            keyspace: Arc::clone(keyspace),
            job,
            asked: Some(Asked::FilterRewrite(filter_rewrite.number)),
        })
    }

    fn next_compaction_by(&self, state: &BackgroundState, is_draining: bool) -> Option<NextCompaction> {
        let rules = self.rules(is_draining);
        let keyspaces = self.catalog.keyspaces();
        for id in &state.full_compactions {
            if let Some(keyspace) = keyspaces.get(id) {
                let job = pick_full(&keyspace.load().version, &rules);
                return Some(NextCompaction {
                    keyspace: Arc::clone(keyspace),
                    job,
                    asked: Some(Asked::Whole),
                });
            }
        }
        if !self.settings.auto_compaction {
            return None;
        }
        let jobs = keyspaces.values().filter_map(|keyspace| {
            let view = keyspace.load();
            let job = pick(&view.version, &keyspace.turns(rules))?;
            // Small tables wait until no tree needs another compaction.
            let urgency = (job.reason != Reason::SmallTables, view.version.level(0).len());
            Some((urgency, Arc::clone(keyspace), job))
        });
        let next = jobs.max_by_key(|(urgency, ..)| *urgency);
        next.map(|(_, keyspace, job)| NextCompaction { keyspace, job: Some(job), asked: None })
    }

    /// The policy's rules now. With `is_draining`, even a single run in level 0 is compacted.
    pub(crate) fn rules(&self, is_draining: bool) -> Rules {
        self.rules_of(self.settings.live.get().design, is_draining)
    }

    /// The policy's rules under `design`.
    pub(crate) fn rules_of(&self, design: Design, is_draining: bool) -> Rules {
        let l0 = self.settings.l0();
        Rules {
            design: self.settings.as_flushed(design),
            sizing: self.settings.sizing,
            l0_compaction_trigger: l0.trigger_runs,
            l0_slowdown_runs: l0.soft_runs,
            is_draining,
            long_bytes: self.settings.table_bytes().saturating_mul(LONG_COMPACTION_TABLES),
            credit_bytes: 0,
            small_bytes: (self.settings.table_bytes() / SMALL_TABLE_PART).min(SMALL_TABLE_BYTES),
        }
    }

    /// Waits until `done`, woken by progress of this kind of work. Wakes its workers, or runs it on
    /// this thread where there are none.
    ///
    /// # Errors
    /// The failure that prevents it.
    pub(crate) fn wait_until(&self, by: &[Work], done: impl Fn(&BackgroundState) -> bool) -> Result<()> {
        let is_inline = self.is_inline();
        // Failed work is retried at once, whatever its back-off: it may succeed now.
        let failed_before: Vec<(Work, u32)> = {
            let state = lock(&self.background.state);
            by.iter().map(|work| (*work, state.trouble(*work, is_inline).failures_total)).collect()
        };
        self.background.wake.notify_all();
        loop {
            if is_inline {
                self.run_background_inline();
            }
            let state = lock(&self.background.state);
            if done(&state) {
                return Ok(());
            }
            self.lifecycle.check_writable()?;
            let failed = failed_before.iter().find_map(|(work, before)| {
                let trouble = state.trouble(*work, is_inline);
                let gives_up = is_inline || trouble.should_give_up(*before, WAITER_FAILURES_MAX);
                trouble.error.clone().filter(|_| gives_up)
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if is_inline {
                return Err(Error::new(ErrorKind::Stalled, "background work makes no progress"));
            }
            drop(self.background.progress.wait_timeout(state, Duration::from_millis(50)));
        }
    }

    /// Waits until nothing is left to flush or compact, level 0 included.
    ///
    /// # Errors
    /// The failure that prevents it.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        lock(&self.background.state).drainers += 1;
        let idle = self.wait_until(&[Work::Flush, Work::Merge], |state| self.is_idle(state));
        lock(&self.background.state).drainers -= 1;
        idle
    }

    /// Whether nothing is left to flush or compact, level 0 included.
    pub(crate) fn is_idle(&self, state: &BackgroundState) -> bool {
        self.writer.sealed().is_empty()
            && !state.flushing
            && !state.merging
            && self.next_compaction_by(state, true).is_none()
    }

    /// Bytes that flushes and compactions have to move until [`Self::is_idle`].
    pub(crate) fn debt_bytes(&self) -> u64 {
        let unflushed = self.writer.sealed().bytes();
        let (keyspaces, rules) = (self.catalog.keyspaces(), self.rules(true));
        let unmerged = |keyspace: &Arc<KeyspaceCore>| debt_bytes(&keyspace.load().version, &rules);
        unflushed + keyspaces.values().map(unmerged).sum::<u64>()
    }
}

#[cfg(test)]
mod tests;
