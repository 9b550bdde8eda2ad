//! The worker threads: their start, their loops and their end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_env::{JoinHandle, lock};

use super::Scheduler;
use super::execute::back_off_ms;
use crate::error::{Error, ErrorKind, Result};

/// An idle worker checks for work after this long: level 0 is drained after some time without
/// writes, a tombstone may reach its maximum age, and a wake-up may be lost.
const IDLE_MS: u64 = 500;

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
            // Compactions run at lower priority than readers and writers, which do not wait for
            // them as long as flushes proceed.
            let compactions = 0..self.compaction_threads();
            workers.extend(compactions.map(|_| self.worker("shamba-compact", true, Self::compaction_worker)));
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
        self.background.is_stopping.store(true, Ordering::Release);
        lock(&self.background.state).shutdown = true;
        self.stop_jobs(|_| true);
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
            let has_failed = self.flush_oldest().is_err();
            state = lock(&self.background.state);
            if has_failed && !state.shutdown {
                let wait_ms = back_off_ms(state.flush_failures.failures);
                state = self.background.wait_for_work(state, wait_ms);
            }
        }
    }

    /// Does one step after the other, and waits while there is none.
    fn compaction_worker(&self) {
        loop {
            let mut state = lock(&self.background.state);
            if state.shutdown {
                return;
            }
            // Looked for under the lock of the wait: a step that ends meanwhile wakes this thread.
            let step = if self.lifecycle.has_failed() { None } else { self.next_step_under(&mut state) };
            match step {
                Some(step) => {
                    drop(state);
                    let _ = self.run(step); // A failure is recorded, and delays the next job.
                }
                None => {
                    let now_us = self.clock.now_us();
                    let retry_ms = state.retry_at_us.saturating_sub(now_us).div_ceil(1_000);
                    let wait_ms = if retry_ms > 0 { retry_ms.min(IDLE_MS) } else { IDLE_MS };
                    drop(self.background.wait_for_work(state, wait_ms));
                }
            }
        }
    }
}
