//! The state of background work: what runs, what it occupies, what is requested, what failed, and
//! who waits for it. One lock protects all of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba_key::KeyspaceId;
use shamba_table::TableId;
use shamba_tree::compaction::schedule::Claims;
use shamba_tree::snapshot::Mark;

use super::failures::CompactionFailures;
use super::job::Running;
use super::queue::Requests;
use crate::lock_order;
use crate::ranked::Ranked;
use crate::sync::Condvar;
use crate::workers::{Lane, Waker};
use crate::writer::{Failures, Work};

/// Pending and running background work.
#[derive(Default)]
pub(super) struct BackgroundState {
    pub flushing: bool,
    /// The claims of the running compactions; keyspaces without any are left out.
    pub claims: BTreeMap<KeyspaceId, Claims>,
    /// The running compactions, oldest first.
    pub running: Vec<Running>,
    /// Compactions that have begun so far.
    pub jobs_begun: u64,
    pub requests: Requests,
    /// Tables of FIFO keyspaces that are due for a drop, and when that was found.
    pub fifo_due: BTreeMap<TableId, Mark>,
    /// Number of callers that wait until no compaction is pending.
    pub drainers: u32,
    /// Time at which the last flush ended.
    pub quiet_since_us: u64,
    pub flush_failures: Failures,
    pub compaction_failures: CompactionFailures,
}

impl BackgroundState {
    /// The failures that hold up `work`. Failed compactions do not hold up a flush, nor the
    /// reverse. But where one thread does both, flushes come first and hold up compactions.
    pub fn trouble(&self, work: Work, is_inline: bool) -> Failures {
        match work {
            Work::Merge(of) if !(is_inline && self.flush_failures.error.is_some()) => {
                of.map_or_else(|| self.compaction_failures.of_all(), |id| self.compaction_failures.of(id))
            }
            Work::Flush | Work::Merge(_) => self.flush_failures.clone(),
        }
    }

    /// Number of the last failure of such work.
    pub fn last_failure(&self, work: Work, is_inline: bool) -> u32 {
        match work {
            Work::Merge(None) if !is_inline => self.compaction_failures.last(),
            _ => self.trouble(work, is_inline).last,
        }
    }

    /// The running job of this number.
    pub fn running(&mut self, number: u64) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.job.number == number)
    }

    /// Takes the job of this number off the running ones, with its claim, if it is over.
    pub fn take_over(&mut self, number: u64) -> Option<Running> {
        let at = self.running.iter().position(|running| running.job.number == number)?;
        if !self.running[at].is_over() {
            return None;
        }
        let running = self.running.remove(at);
        let (id, claim) = (running.job.keyspace.id, running.job.claim);
        debug_assert!(
            self.claims.get(&id).is_some_and(|claims| claims.get(claim).is_some()),
            "job {number} ran without a claim"
        );
        if let Some(claims) = self.claims.get_mut(&id) {
            claims.release(claim);
            if claims.is_empty() {
                self.claims.remove(&id);
            }
        }
        debug_assert!(
            self.running.iter().all(|other| other.job.keyspace.id != id || other.job.claim != claim),
            "another job runs under the claim of job {number}"
        );
        Some(running)
    }
}

/// Background work, and the condition variables for waiting.
pub(super) struct BackgroundWork {
    pub state: Ranked<BackgroundState>,
    /// Set before the running jobs are stopped, which is done under the lock of `state`. A thread
    /// that claims a job under that lock sees the flag, or has its job stopped.
    pub is_stopping: AtomicBool,
    /// Wakes the threads that do the work.
    pub waker: Waker,
    /// Signalled when work was done.
    pub progress: Condvar,
}

impl BackgroundWork {
    /// No work yet.
    pub fn new(waker: Waker) -> Self {
        Self {
            state: Ranked::new(lock_order::BACKGROUND, BackgroundState::default()),
            is_stopping: AtomicBool::new(false),
            waker,
            progress: Condvar::new(),
        }
    }

    /// Whether background work should stop.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Tells the threads that there may be work.
    pub fn wake(&self) {
        self.waker.wake(Lane::Flush);
        self.wake_compactions();
    }

    /// Tells the threads that there may be compactions.
    pub fn wake_compactions(&self) {
        self.waker.wake(Lane::Compaction);
    }
}
