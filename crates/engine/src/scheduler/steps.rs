//! The steps that threads do for a scheduler, and the end of its work.
//!
//! A step is a flush, or what [`super::next`] chooses. [`crate::workers`] says who does it when.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shamba_env::lock;

use super::Scheduler;
use super::execute::back_off_ms;
use crate::error::{Error, ErrorKind};
use crate::workers::{Lane, Next, Steps};

/// An idle thread looks for work after this long: level 0 is drained after some time without
/// writes, a tombstone may reach its maximum age, and a wake-up may be lost.
const IDLE: Duration = Duration::from_millis(500);

impl Steps for Scheduler {
    fn limit(&self, lane: Lane) -> usize {
        match lane {
            _ if self.lifecycle.is_read_only() => 0,
            Lane::Flush => 1,
            Lane::Compaction => self.compaction_threads(),
            Lane::Upkeep => 0,
        }
    }

    fn step(&self, lane: Lane) -> Next {
        match lane {
            _ if self.background.is_stopping() => Next::After(IDLE),
            Lane::Flush => self.flush_step(),
            Lane::Compaction => self.compaction_step(),
            Lane::Upkeep => Next::After(IDLE),
        }
    }

    fn panicked(&self, lane: Lane) {
        self.lifecycle.fail(&Error::new(ErrorKind::ReadOnly, format!("a thread of {lane:?} work panicked")));
    }
}

impl Scheduler {
    /// Notes that work begins. A database that was opened just now is not quiet yet.
    pub fn begin(&self) {
        lock(&self.background.state).quiet_since_us = self.clock.now_us();
    }

    /// Stops all work: none begins, and running steps end soon.
    pub fn stop(&self) {
        self.background.is_stopping.store(true, Ordering::Release);
        lock(&self.background.state).shutdown = true;
        self.stop_jobs(|_| true);
        self.notify();
    }

    fn flush_step(&self) -> Next {
        if self.sealed.is_empty() || self.lifecycle.has_failed() {
            self.seal_old_tombstones();
            self.catalog.remove_obsolete_files();
            return Next::After(IDLE);
        }
        match self.flush_oldest() {
            Ok(()) => Next::Now,
            Err(_) => {
                let failures = lock(&self.background.state).flush_failures.failures;
                Next::After(Duration::from_millis(back_off_ms(failures)))
            }
        }
    }

    fn compaction_step(&self) -> Next {
        let step = {
            let mut state = lock(&self.background.state);
            let step = if self.lifecycle.has_failed() { None } else { self.next_step_under(&mut state) };
            step.ok_or_else(|| state.retry_at_us)
        };
        match step {
            Ok(step) => {
                let _ = self.run(step); // A failure is recorded, and delays the next job.
                Next::Now
            }
            Err(retry_at_us) => {
                let retry_us = retry_at_us.saturating_sub(self.clock.now_us());
                Next::After(if retry_us > 0 { Duration::from_micros(retry_us).min(IDLE) } else { IDLE })
            }
        }
    }
}
