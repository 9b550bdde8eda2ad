//! Execution of steps: each is done by one thread, and ends by installing what can be installed.
//!
//! A thread of the pool calls [`Scheduler::flush_step`] or [`Scheduler::compaction_step`], which
//! chooses a step, does it, and says when to look again. Several threads may do so for one
//! scheduler, and one thread for several schedulers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shamba_table::parse_value_file_name;
use shamba_tree::compaction::policy::Reason;

use super::Scheduler;
use super::compact::Installed;
use super::job::{BuiltSlice, Job, Running, Stop, Tally};
use super::next::Step;
use super::rules::small_bytes_after;
use super::state::BackgroundState;
use crate::catalog::KeyspaceCore;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::memory::Reservation;
use crate::metrics::WorkCounters;
use crate::workers::Next;

/// Delay after the first failure; it doubles with each further one.
const BACK_OFF_MS: u64 = 20;
/// Maximum delay between retries.
const BACK_OFF_MS_MAX: u64 = 2_000;

/// Failed calls on one value file, after which its keyspace collects none: a file that cannot be
/// read must not hold up all compactions. With the back-off between them they take a second.
const UNREAD_MAX: u32 = 6;

/// End of the back-off where the caller's thread does the work: the next time that it does.
const UNTIL_NEXT_PASS: u64 = u64::MAX;

/// An idle thread looks for work after this long: level 0 is drained after some time without
/// writes, a tombstone may reach its maximum age, and a wake-up may be lost.
pub(super) const IDLE: Duration = Duration::from_millis(500);

/// Delay before a retry after this many failures in a row.
pub(super) fn back_off_ms(failures: u32) -> u64 {
    (BACK_OFF_MS << failures.saturating_sub(1).min(10)).min(BACK_OFF_MS_MAX)
}

/// A slice that a thread builds. It gets a result even if the thread panics.
struct Building<'s> {
    scheduler: &'s Scheduler,
    job: Option<Arc<Job>>,
    slice: usize,
}

impl Building<'_> {
    fn hand_in(mut self, result: std::result::Result<BuiltSlice, Stop>) -> Result<()> {
        match self.job.take() {
            Some(job) => self.scheduler.hand_in(job, self.slice, result),
            None => Ok(()),
        }
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let stop = Stop::Failed(Error::new(ErrorKind::ReadOnly, "a compaction panicked"));
            let _ = self.scheduler.hand_in(job, self.slice, Err(stop)); // The panic is reported.
        }
    }
}

impl Scheduler {
    /// Notes that work begins. A database that was opened just now is not quiet yet.
    pub fn begin(&self) {
        self.background.state.lock().quiet_since_us = self.clock.now_us();
    }

    /// Stops all work: none begins, and running steps end soon.
    pub fn stop(&self) {
        self.background.is_stopping.store(true, Ordering::Release);
        self.stop_jobs(|_| true);
        self.notify();
    }

    pub(super) fn flush_step(&self) -> Next {
        if self.sealed.is_empty() || self.lifecycle.has_failed() {
            self.seal_overdue();
            self.catalog.remove_obsolete_files();
            return Next::After(IDLE);
        }
        match self.flush_oldest() {
            Ok(()) => Next::Now,
            Err(_) => {
                let failures = self.background.state.lock().flush_failures.failures;
                Next::After(Duration::from_millis(back_off_ms(failures)))
            }
        }
    }

    pub(super) fn compaction_step(&self) -> Next {
        let step = {
            let mut state = self.background.state.lock();
            let step = if self.lifecycle.has_failed() { None } else { self.next_step_under(&mut state) };
            step.ok_or_else(|| state.compaction_failures.retry_us(self.clock.now_us()))
        };
        match step {
            Ok(step) => {
                let _ = self.run(step); // A failure is recorded, and delays the next job.
                Next::Now
            }
            Err(retry_us) => Next::After(retry_us.map_or(IDLE, |us| Duration::from_micros(us).min(IDLE))),
        }
    }

    /// The step that this thread should do now, with all that it takes claimed; `None` if there is
    /// none.
    pub(super) fn next_step(&self) -> Option<Step> {
        self.next_step_under(&mut self.background.state.lock())
    }

    pub(super) fn next_step_under(&self, state: &mut BackgroundState) -> Option<Step> {
        if self.background.is_stopping() {
            return None;
        }
        let step = self.picker.next_step(state);
        if step.is_none() {
            if state.running.is_empty() {
                state.compaction_failures.end_all(self.clock.now_us());
            }
            // Requests that found nothing to do are over.
            self.background.progress.notify_all();
        }
        step
    }

    /// Does one step.
    ///
    /// # Errors
    /// The failure of the job that ended with this step. It is recorded and reported.
    pub(super) fn run(&self, step: Step) -> Result<()> {
        self.compactor.pace.begin_work();
        let outcome = match step {
            Step::Move(job) => self.run_move(job),
            Step::Begin(job, reservation) => self.run_first_slice(job, reservation),
            Step::Slice(job, slice, reservation) => self.run_slice(job, slice, reservation),
            Step::End(number) => {
                let ended = self.background.state.lock().take_over(number);
                ended.map_or(Ok(()), |running| self.end_job(running, false))
            }
        };
        self.compactor.pace.end_work();
        WorkCounters::add(&self.telemetry.work().compaction_us, self.compactor.pace.take_worked_us());
        outcome
    }

    fn run_move(&self, job: Arc<Job>) -> Result<()> {
        let claim = self.claim_of(&job);
        let moved = claim.map_or(Ok(Installed::Dropped), |claim| self.compactor.move_tables(&job, &claim));
        let number = job.number;
        let is_moved = matches!(moved, Ok(Installed::Yes(_)));
        let stop = match moved {
            // A move has no slices to count.
            Ok(_) => Stop::Closing,
            Err(error) => self.stop_of(&job, error),
        };
        let mut state = self.background.state.lock();
        assert!(job.prepared.get().is_none(), "the slices of a move were planned");
        drop(job);
        if let Some(running) = state.running(number) {
            running.finish(0, Err(stop));
        }
        let ended = state.take_over(number);
        drop(state);
        ended.map_or(Ok(()), |running| self.end_job(running, is_moved))
    }

    fn run_first_slice(&self, job: Arc<Job>, reservation: Reservation) -> Result<()> {
        let building = Building { scheduler: self, job: Some(Arc::clone(&job)), slice: 0 };
        let may_go_on = !job.is_stopped() && !self.background.is_stopping() && {
            self.compactor.prepare(&job);
            let mut state = self.background.state.lock();
            state.running(job.number).is_some_and(Running::take_first)
        };
        if !may_go_on {
            drop((job, reservation));
            return building.hand_in(Err(Stop::Closing));
        }
        // Others may take the slices after the first one.
        self.background.wake_compactions();
        self.build(building, job, reservation)
    }

    fn run_slice(&self, job: Arc<Job>, slice: usize, reservation: Reservation) -> Result<()> {
        self.build(Building { scheduler: self, job: Some(Arc::clone(&job)), slice }, job, reservation)
    }

    /// Builds a slice. Its reservation ends before others are woken, which may need the memory.
    fn build(&self, building: Building<'_>, job: Arc<Job>, reservation: Reservation) -> Result<()> {
        let result = self.compactor.build_slice(&job, building.slice, reservation);
        let result = result.map_err(|error| self.stop_of(&job, error));
        drop(job);
        building.hand_in(result)
    }

    /// Records the result of a slice, and installs the slices that are next and finished. Ends the
    /// job if that was the last of it.
    fn hand_in(
        &self,
        job: Arc<Job>,
        slice: usize,
        result: std::result::Result<BuiltSlice, Stop>,
    ) -> Result<()> {
        let number = job.number;
        let mut state = self.background.state.lock();
        debug_assert!(state.running(number).is_some(), "job {number} ended before its slice {slice}");
        if let Some(running) = state.running(number) {
            running.finish(slice, result);
        }
        while let Some((slice, built)) = state.running(number).and_then(Running::next_to_install) {
            let claim = state.claims.get(&job.keyspace.id).and_then(|claims| claims.get(job.claim)).cloned();
            drop(state);
            self.background.wake_compactions();
            let installed = match &claim {
                Some(claim) => self.compactor.install_slice(&job, claim, slice, built),
                None => Ok(Installed::Dropped),
            };
            let installed = match installed {
                Ok(Installed::Yes(tally)) => Ok(tally),
                Ok(Installed::Dropped) => Err(Stop::Closing),
                Ok(Installed::Overtaken) => {
                    state = self.background.state.lock();
                    if let Some(running) = state.running(number) {
                        running.build_again();
                    }
                    continue;
                }
                Err(error) => Err(self.stop_of(&job, error)),
            };
            state = self.background.state.lock();
            self.note_installed(&mut state, &job, installed);
            self.background.progress.notify_all();
        }
        // The job keeps the tree from before the compaction.
        drop(job);
        let ended = state.take_over(number);
        drop(state);
        self.background.wake_compactions();
        ended.map_or(Ok(()), |running| {
            let is_done = running.is_done();
            self.end_job(running, is_done)
        })
    }

    fn note_installed(
        &self,
        state: &mut BackgroundState,
        job: &Job,
        installed: std::result::Result<Tally, Stop>,
    ) {
        let Some(running) = state.running(job.number) else { return };
        let slice = running.note_installed(installed).cloned();
        let is_last = running.is_done();
        debug_assert!(
            state.claims.get(&job.keyspace.id).is_some_and(|claims| claims.get(job.claim).is_some()),
            "a slice of job {} was installed without a claim",
            job.number
        );
        if let (Some(slice), Some(claims)) = (slice, state.claims.get_mut(&job.keyspace.id)) {
            claims.install(job.claim, slice.upper.as_ref().filter(|_| !is_last));
        }
    }

    /// The reason to stop `job` after this error: it is no failure if the rest is not needed.
    fn stop_of(&self, job: &Job, error: Error) -> Stop {
        if self.background.is_stopping() || job.is_stopped() { Stop::Closing } else { Stop::Failed(error) }
    }

    fn claim_of(&self, job: &Job) -> Option<shamba_tree::compaction::schedule::Claim> {
        let state = self.background.state.lock();
        state.claims.get(&job.keyspace.id).and_then(|claims| claims.get(job.claim)).cloned()
    }

    /// Records the end of a job that was taken off the running ones. `is_done`: all of it is
    /// installed.
    ///
    /// # Errors
    /// The failure of the job.
    pub(super) fn end_job(&self, running: Running, is_done: bool) -> Result<()> {
        let (job, tally) = (Arc::clone(&running.job), running.tally);
        debug_assert!(
            self.background.state.lock().running(job.number).is_none(),
            "job {} ends, but is still among the running ones",
            job.number
        );
        let (number, begin_us) = (job.number, job.begin_us);
        let (keyspace, target_level, reason) =
            (Arc::clone(&job.keyspace), job.job.target_level, job.job.reason);
        let is_move = job.prepared.get().is_none();
        let inputs: usize = job.job.inputs.iter().map(|input| input.tables.len()).sum();
        let has_dictionary = job.prepared.get().is_some_and(|prepared| prepared.dictionary.is_some());
        let (outcome, left) = running.end();
        self.catalog.mark_tables_obsolete(left.into_iter().map(|table| table.meta));
        if let Err(error) = &outcome {
            self.stop_collection_for(&keyspace, error);
        }
        {
            let mut state = self.background.state.lock();
            match &outcome {
                Ok(_) if is_done => {
                    // Not if another job has failed meanwhile, which may fail for ever.
                    if state.compaction_failures.of(keyspace.id).last == job.last_failure_before {
                        state.compaction_failures.end(keyspace.id);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let now_us = self.clock.now_us();
                    let retry_at_us = |failures| match self.is_inline {
                        true => UNTIL_NEXT_PASS,
                        false => now_us.saturating_add(back_off_ms(failures) * 1_000),
                    };
                    state.compaction_failures.add(keyspace.id, error.clone(), retry_at_us);
                }
            }
        }
        // The job held the version of its inputs. Its memory is free, and the cache has it, before
        // those who wait for the job go on.
        drop(job);
        self.catalog.remove_obsolete_files();
        self.compactor.memory.balance();
        {
            let mut state = self.background.state.lock();
            // A moved tree may have small tables left to combine: the request is looked at again.
            state.requests.ended(number, is_done && !is_move);
            if outcome.is_err() {
                state.requests.forget_unawaited(keyspace.id);
            }
        }
        let is_redesigned = matches!(&outcome, Ok(Some(Stop::Redesigned)));
        if reason == Reason::Values {
            keyspace.note_collected();
        }
        if reason == Reason::SmallTables && is_done {
            let limit_bytes = small_bytes_after(inputs as u64, tally.tables_written, tally.bytes_written);
            limit_bytes.into_iter().for_each(|bytes| keyspace.limit_small_bytes(bytes));
        }
        if !is_move && (is_done || is_redesigned) {
            self.statistics.save(false);
            WorkCounters::add(&self.telemetry.work().compactions, u64::from(is_done));
            let is_of_tombstones = is_done && reason == Reason::Tombstones;
            WorkCounters::add(&self.telemetry.work().tombstone_compactions, u64::from(is_of_tombstones));
            WorkCounters::add(
                &self.telemetry.work().dictionary_compactions,
                u64::from(is_done && has_dictionary),
            );
            self.telemetry.emit(Event::CompactionEnd {
                keyspace: keyspace.name.clone(),
                target_level,
                bytes_read: tally.bytes_read,
                bytes_written: tally.bytes_written,
                entries_dropped: tally.entries_dropped,
                duration_us: self.clock.now_us().saturating_sub(begin_us),
            });
        }
        self.background.progress.notify_all();
        // Not for flushes: a wake-up would end the back-off of one that failed.
        self.background.wake_compactions();
        outcome.map(|_| ()).inspect_err(|error| self.telemetry.background_error("merge", error))
    }

    /// Ends the collection of value files in a keyspace in which one is damaged, or cannot be read
    /// again and again. Its other compactions need not read the file.
    fn stop_collection_for(&self, keyspace: &KeyspaceCore, error: &Error) {
        let name = |path: &Path| parse_value_file_name(path.file_name()?.to_str()?);
        let Some(file) = error.file().and_then(name) else { return };
        let is_over = match error.kind() {
            ErrorKind::Corruption => true,
            ErrorKind::Io => keyspace.note_unread(file) >= UNREAD_MAX,
            _ => false,
        };
        if is_over && keyspace.stop_collection() {
            let (keyspace, error) = (&keyspace.name, error.chain());
            self.telemetry.warn(format!(
                "value files of keyspace {keyspace:?} are not collected any more, until the next open: {error}"
            ));
        }
    }

    /// Stops the running jobs for which `is_meant` holds. Those that no thread works on end at
    /// once.
    pub(super) fn stop_jobs(&self, is_meant: impl Fn(&Job) -> bool) {
        let mut ended = Vec::new();
        {
            let mut state = self.background.state.lock();
            let meant = state.running.iter_mut().filter(|running| is_meant(&running.job));
            let numbers: Vec<u64> = meant
                .map(|running| {
                    running.stop(Stop::Closing);
                    running.job.number
                })
                .collect();
            ended.extend(numbers.into_iter().filter_map(|number| state.take_over(number)));
        }
        for running in ended {
            let _ = self.end_job(running, false); // It has not failed.
        }
    }
}
