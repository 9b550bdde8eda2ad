//! Requests: what callers ask of background work, and how they wait for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shamba_filter::measured;
use shamba_key::KeyspaceId;
use shamba_table::TableId;
use shamba_tree::compaction::schedule::RangeRequest;
use shamba_tree::version::TableMeta;
use shamba_tree::version::edit::KeyRange;

use super::Scheduler;
use super::filter_rewrite::{Worth, pays, stale_filters};
use super::state::BackgroundState;
use crate::catalog::{InstallObserver, KeyspaceCore};
use crate::error::{Error, ErrorKind, Result};
use crate::writer::{Background, Failures, FailuresNow, ProgressWatch, WAITER_FAILURES_MAX, Work};

impl Scheduler {
    /// Flushes, then compacts `only` this keyspace, or every one, into one run.
    ///
    /// # Errors The failure that prevents it. `Unsupported` after all other keyspaces were
    /// compacted, for one whose compaction filter is missing.
    pub fn compact_now(&self, only: Option<KeyspaceId>) -> Result<()> {
        self.writer.flush()?;
        let is_asked = |id: &KeyspaceId| only.is_none_or(|only| only == *id);
        let numbers: Vec<u64> = {
            // Listed under the lock under which a drop withdraws the requests of its keyspace.
            let mut state = self.background.state.lock();
            let keyspaces = self.catalog.keyspaces();
            let asked = keyspaces.iter().filter(|(id, keyspace)| is_asked(id) && keyspace.may_compact());
            asked.map(|(id, _)| state.requests.add_full(*id)).collect()
        };
        self.wait_for_requests(&numbers)?;
        let keyspaces = self.catalog.keyspaces();
        let mut asked = keyspaces.iter().filter(|(id, _)| is_asked(id)).map(|(_, keyspace)| keyspace);
        match asked.find(|keyspace| !keyspace.may_compact()) {
            Some(keyspace) => Err(keyspace.no_filter()),
            None => Ok(()),
        }
    }

    /// Flushes, then compacts the tables of a keyspace that overlap `range` into the oldest run
    /// that shares their keys.
    ///
    /// # Errors
    /// The failure that prevents it; `Unsupported` if the compaction filter of the keyspace is
    /// missing.
    pub fn compact_range_now(&self, keyspace: &KeyspaceCore, range: KeyRange) -> Result<()> {
        self.writer.flush()?;
        if !keyspace.may_compact() {
            return Err(keyspace.no_filter());
        }
        let number = {
            // Under the lock under which a drop withdraws the requests of its keyspace.
            let mut state = self.background.state.lock();
            keyspace.check_usable()?;
            state.requests.add_range(keyspace.id, RangeRequest::new(&keyspace.load().version, range))
        };
        self.wait_for_requests(&[number])
    }

    /// Requests a compaction into one run of every keyspace that follows the design of the
    /// database, without waiting for it.
    pub fn request_full_compactions(&self) {
        let mut state = self.background.state.lock();
        let follows =
            |keyspace: &&Arc<KeyspaceCore>| keyspace.may_compact() && !keyspace.overrides().has_policy();
        for keyspace in self.catalog.keyspaces().values().filter(follows) {
            if !state.requests.has_waiting_full(keyspace.id) {
                state.requests.add_full(keyspace.id);
            }
        }
    }

    /// Whether a compaction of a whole keyspace is requested.
    pub fn is_compacting_all(&self) -> bool {
        self.background.state.lock().requests.has_full()
    }

    /// Rewrites in place every table whose filter has a stale size; flushes and moves nothing.
    pub fn rewrite_filters_now(&self) -> Result<()> {
        self.lifecycle.check_writable()?;
        let wanted = stale_filters(&self.catalog, &self.filter_bits, |_| true);
        let numbers: Vec<u64> = {
            let mut state = self.background.state.lock();
            self.queue_filter_rewrites(&mut state, wanted, true)
        };
        self.wait_for_requests(&numbers)
    }

    /// Waits until none of these requests is pending, except in keyspaces where compactions fail.
    /// Withdraws the rest after a failure: without a waiter, a compaction that fails must not be
    /// tried for ever.
    pub(super) fn wait_for_requests(&self, numbers: &[u64]) -> Result<()> {
        let keyspaces = self.background.state.lock().requests.keyspaces_of(numbers);
        let mut outcome = Ok(());
        for id in keyspaces {
            let is_done = |state: &BackgroundState| !state.requests.keyspaces_of(numbers).contains(&id);
            let done = self.wait_until(&[Work::Merge(Some(id))], is_done);
            let is_over = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Stalled);
            outcome = outcome.and(done);
            if is_over {
                break;
            }
        }
        if outcome.is_err() {
            self.background.state.lock().requests.remove(numbers);
        }
        outcome
    }

    /// Requests the filter rewrites that pay at these prices. To be called after some time without
    /// writes.
    pub fn request_filter_rewrites(&self, worth: Worth) {
        if !self.settings.auto_compaction
            || self.lifecycle.is_read_only()
            || self.background.state.lock().requests.has_filter_rewrite()
        {
            return;
        }
        let layout = self.filter_bits.layout();
        let pays = |stale| pays(stale, worth, |bits| measured::fpr(layout, bits));
        let wanted = stale_filters(&self.catalog, &self.filter_bits, pays);
        if wanted.is_empty() {
            return;
        }
        let mut state = self.background.state.lock();
        self.queue_filter_rewrites(&mut state, wanted, false);
        drop(state);
        self.background.wake();
    }

    /// Queues filter rewrites and returns their numbers. Keyspaces are looked up under the lock
    /// under which a drop removes its rewrites, so none is queued for a dropped keyspace, where it
    /// would stay for ever.
    pub(super) fn queue_filter_rewrites(
        &self,
        state: &mut BackgroundState,
        wanted: Vec<(KeyspaceId, BTreeSet<TableId>)>,
        has_waiter: bool,
    ) -> Vec<u64> {
        debug_assert!(
            wanted.iter().all(|(_, tables)| !tables.is_empty()),
            "filters of no table are rewritten"
        );
        let keyspaces = self.catalog.keyspaces();
        let mut numbers = Vec::new();
        for (keyspace, tables) in wanted {
            if keyspaces.contains_key(&keyspace) {
                numbers.push(state.requests.add_filter_rewrite(keyspace, tables, has_waiter));
            }
        }
        numbers
    }

    /// Waits until `done`, woken by progress of this kind of work. Wakes its workers, or runs it on
    /// this thread where there are none.
    ///
    /// # Errors
    /// The failure that prevents it; `Stalled` if background work makes no progress for
    /// `wait-timeout`.
    fn wait_until(&self, by: &[Work], done: impl Fn(&BackgroundState) -> bool) -> Result<()> {
        let is_inline = self.is_inline;
        // Failed work is retried at once, whatever its back-off: it may succeed now.
        let last_before: Vec<(Work, u32)> = {
            let mut state = self.background.state.lock();
            state.compaction_failures.retry();
            by.iter().map(|work| (*work, state.last_failure(*work, is_inline))).collect()
        };
        self.background.wake();
        let mark = || self.telemetry.work().progress_mark();
        let mut watch = ProgressWatch::new(mark(), self.clock.now_us(), self.settings.wait_timeout);
        loop {
            if is_inline {
                self.run_inline();
            }
            let state = self.background.state.lock();
            if done(&state) {
                return Ok(());
            }
            self.lifecycle.check_writable()?;
            let failed = last_before.iter().find_map(|(work, before)| {
                let trouble = state.trouble(*work, is_inline);
                let gives_up = is_inline || trouble.should_give_up(*before, WAITER_FAILURES_MAX);
                trouble.error.filter(|_| gives_up)
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if is_inline {
                return Err(Error::new(ErrorKind::Stalled, "background work makes no progress"));
            }
            watch.check(mark(), self.clock.now_us())?;
            drop(state.wait_timeout(&self.background.progress, Duration::from_millis(50)));
        }
    }

    /// Waits until nothing is left to flush or compact, level 0 included.
    ///
    /// # Errors
    /// The failure that prevents it.
    pub fn wait_idle(&self) -> Result<()> {
        self.background.state.lock().drainers += 1;
        let idle = self.wait_until(&[Work::Flush, Work::Merge(None)], |state| self.picker.is_idle(state));
        let mut state = self.background.state.lock();
        assert!(state.drainers > 0, "a caller ends a wait that it had not begun");
        state.drainers -= 1;
        drop(state);
        idle
    }
}

impl Background for Scheduler {
    fn wake(&self) {
        // Workers look for work under this lock: none of them can miss the notification.
        drop(self.background.state.lock());
        self.background.wake();
    }

    fn retry(&self) {
        self.background.state.lock().compaction_failures.retry();
        self.background.wake();
    }

    fn run_inline(&self) {
        Self::run_inline(self);
    }

    fn failures(&self, work: Work) -> Failures {
        self.background.state.lock().trouble(work, self.is_inline)
    }

    fn last_failure(&self, work: Work) -> u32 {
        self.background.state.lock().last_failure(work, self.is_inline)
    }

    fn wait_for_progress(&self, look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>) {
        let is_inline = self.is_inline;
        let mut state = self.background.state.lock();
        while let Some(wait) = look(&|work| state.trouble(work, is_inline)) {
            (state, _) = state.wait_timeout(&self.background.progress, wait);
        }
    }

    fn wait_for_flushes(&self, done: &dyn Fn() -> bool) -> Result<()> {
        self.wait_until(&[Work::Flush], |_| done())
    }

    fn forget(&self, keyspace: KeyspaceId) {
        {
            let mut state = self.background.state.lock();
            state.requests.forget(keyspace);
            state.compaction_failures.forget(keyspace);
        }
        self.stop_jobs(|job| job.keyspace.id == keyspace);
    }
}

impl InstallObserver for Scheduler {
    fn installed(&self, _dead: &[Arc<TableMeta>]) {
        // Not flushes: a wake-up would end the back-off of one that failed.
        self.background.wake_compactions();
        self.background.progress.notify_all();
    }
}
