//! The state of background work: what runs, what is requested, what failed, and who waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use shamba_env::lock;
use shamba_key::KeyspaceId;
use shamba_table::TableId;

use super::plan::CompactionPlan;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::writer::{Failures, Work};

/// Tables of a keyspace whose filters should be rewritten in place.
#[derive(Clone, Debug)]
pub(super) struct FilterRewrite {
    /// Identifies the rewrite.
    pub number: u64,
    pub keyspace: KeyspaceId,
    pub tables: BTreeSet<TableId>,
    /// Whether a caller waits for it. It then alternates with the compactions of the policy instead
    /// of coming after all of them.
    pub has_waiter: bool,
}

/// Pending background work and its state.
#[derive(Default)]
pub(super) struct BackgroundState {
    pub flushing: bool,
    pub merging: bool,
    /// The running compaction whose slices helper threads may take.
    pub sharing: Option<Arc<CompactionPlan>>,
    /// Number of callers that wait until no compaction is pending.
    pub drainers: u32,
    /// Time at which the last flush ended.
    pub quiet_since_us: u64,
    /// Keyspaces with a pending full compaction, requested by `compact`.
    pub full_compactions: VecDeque<KeyspaceId>,
    /// Pending filter rewrites.
    pub filter_rewrites: VecDeque<FilterRewrite>,
    /// Whether the last compaction was part of a filter rewrite: other compactions come next.
    pub last_was_filter_rewrite: bool,
    /// Number of filter rewrites so far.
    pub filter_rewrites_started: u64,
    pub shutdown: bool,
    pub flush_failures: Failures,
    pub compaction_failures: Failures,
}

impl BackgroundState {
    /// The failures that hold up `work`. Failed compactions do not hold up a flush, nor the
    /// reverse. But where one thread does both, flushes come first and hold up compactions.
    pub fn trouble(&self, work: Work, is_inline: bool) -> &Failures {
        match work {
            Work::Merge if !(is_inline && self.flush_failures.error.is_some()) => &self.compaction_failures,
            Work::Flush | Work::Merge => &self.flush_failures,
        }
    }
}

/// Background work, and the condition variables for waiting.
#[derive(Default)]
pub(super) struct BackgroundWork {
    pub state: Mutex<BackgroundState>,
    /// Signalled when there is work.
    pub wake: Condvar,
    /// Signalled when work was done.
    pub progress: Condvar,
}

impl BackgroundWork {
    /// Whether background work should stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.state).shutdown
    }

    /// Waits for work, at most this long.
    pub fn wait_for_work<'a>(
        &self,
        state: MutexGuard<'a, BackgroundState>,
        ms: u64,
    ) -> MutexGuard<'a, BackgroundState> {
        let waited = self.wake.wait_timeout(state, Duration::from_millis(ms.max(1)));
        waited.map_or_else(|poison| poison.into_inner().0, |(state, _)| state)
    }
}
