//! The worker threads: their start, their loops and their end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shamba_env::{JoinHandle, lock};

use super::Scheduler;
use crate::error::{Error, ErrorKind, Result};
use crate::writer::Work;

/// Delay after the first failure; it doubles with each further one.
const BACK_OFF_MS: u64 = 20;
/// Maximum delay between retries.
const BACK_OFF_MS_MAX: u64 = 2_000;
/// An idle worker checks for work after this long: a wake-up may be lost, and nothing wakes it when
/// a tombstone reaches its maximum age.
const IDLE_MS: u64 = 500;
/// A helper that is ahead of the compaction checks again after this long.
const HELPER_MS: u64 = 5;

/// A thread of background work.
pub(crate) struct Worker {
    name: &'static str,
    work: Box<dyn FnOnce() + Send>,
    /// Whether it runs at lower priority than readers and writers.
    yields: bool,
}

impl Worker {
    /// A thread with this name; with `yields` it runs at lower priority.
    pub fn new(name: &'static str, yields: bool, work: impl FnOnce() + Send + 'static) -> Self {
        Self { name, work: Box::new(work), yields }
    }
}

impl Scheduler {
    /// Starts the workers of flushes and compactions, except in a database that is read-only, and
    /// the threads `others`. None are started in an environment without threads. After an error,
    /// [`Self::stop`] and [`Self::join`] end those that run.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(self: &Arc<Self>, others: Vec<Worker>) -> Result<()> {
        if self.is_inline {
            return Ok(());
        }
        lock(&self.background.state).quiet_since_us = self.clock.now_us();
        let mut workers = Vec::new();
        if !self.lifecycle.is_read_only() {
            workers.push(self.worker("shamba-flush", false, Self::flush_worker));
            workers.push(self.worker("shamba-merge", true, Self::compaction_worker));
            // Compactions run at lower priority than readers and writers, which do not wait for
            // them as long as flushes proceed.
            let helpers = 1..self.compaction_threads();
            workers.extend(helpers.map(|_| self.worker("shamba-help", true, Self::compaction_helper)));
        }
        workers.extend(others);
        workers.into_iter().try_for_each(|worker| self.spawn(worker))
    }

    fn worker(self: &Arc<Self>, name: &'static str, yields: bool, work: fn(&Self)) -> Worker {
        let scheduler = Arc::clone(self);
        Worker::new(name, yields, move || work(&scheduler))
    }

    fn spawn(&self, Worker { name, work, yields }: Worker) -> Result<()> {
        let lifecycle = Arc::clone(&self.lifecycle);
        let body = Box::new(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                lifecycle.fail(&Error::new(ErrorKind::ReadOnly, format!("the worker {name} panicked")));
            }
        });
        let spawner = &self.spawner;
        let spawned = if yields { spawner.spawn_background(name, body) } else { spawner.spawn(name, body) };
        let handle =
            spawned.map_err(|error| Error::with_source(ErrorKind::Io, "starting a worker", error))?;
        lock(&self.workers).push(handle);
        Ok(())
    }

    /// Tells the workers to stop.
    pub fn stop(&self) {
        lock(&self.background.state).shutdown = true;
        self.notify();
    }

    /// Waits for the threads that were started, which were told to stop.
    pub fn join(&self) {
        let workers: Vec<JoinHandle> = lock(&self.workers).drain(..).collect();
        for worker in workers {
            let _ = worker.join(); // A panic was reported when it happened.
        }
    }

    fn flush_worker(&self) {
        let mut state = lock(&self.background.state);
        while !state.shutdown {
            if self.sealed.is_empty() || self.lifecycle.has_failed() {
                state = self.background.wait_for_work(state, IDLE_MS);
                if !state.shutdown {
                    drop(state);
                    self.seal_old_tombstones();
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
                    state = self.background.wait_for_work(state, wait_ms);
                }
            }
        }
    }

    fn compaction_worker(&self) {
        loop {
            if self.background.is_stopping() {
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
            if !state.shutdown && (merged.is_err() || self.picker.next_compaction(&state).is_none()) {
                drop(self.background.wait_for_work(state, wait_ms));
            }
        }
    }

    /// Processes slices of the compaction that the merge worker runs.
    fn compaction_helper(&self) {
        let mut state = lock(&self.background.state);
        while !state.shutdown {
            if let Some(plan) = state.sharing.clone() {
                drop(state);
                self.compactor.help(&plan);
                // The plan keeps the tree from before the compaction.
                drop(plan);
                state = lock(&self.background.state);
            }
            if !state.shutdown {
                let wait_ms = if state.sharing.is_some() { HELPER_MS } else { IDLE_MS };
                state = self.background.wait_for_work(state, wait_ms);
            }
        }
    }

    fn back_off_ms(&self, work: Work) -> u64 {
        let failures = lock(&self.background.state).trouble(work, false).failures.min(10);
        (BACK_OFF_MS << failures).min(BACK_OFF_MS_MAX)
    }
}
