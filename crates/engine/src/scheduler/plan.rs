//! A compaction in progress: distribution of its slices to threads, and their results in order.
//!
//! The compaction's own thread and its helpers each claim the next slice and compact it. Results
//! are taken, and installed, in the order of the slices, whichever is finished first: an edit
//! states that everything below the end of its slice is compacted. No slice is claimed far ahead of
//! the first that is not installed, which bounds the space of finished tables that are not
//! installed.
//!
//! Invariants: a claimed slice always gets a result, even after a panic; after
//! [`CompactionPlan::stop`] returns no thread works on it.
//!
//! Not here: compacting a slice and installing it ([`super::compact`], [`super::slices`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::catalog::KeyspaceCore;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Condvar, Mutex};
use shamba_env::lock;
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::policy::CompactionJob;
use shamba_tree::version::{KeyRange, TableUse, Version};

/// Slices per thread that may be claimed ahead of the first that is not installed.
const AHEAD_PER_THREAD: usize = 2;

/// Result of compacting a slice.
pub(crate) struct CompactedSlice {
    pub tables: Vec<TableUse>,
    pub bytes_read: u64,
    pub entries_dropped: u64,
}

/// A compaction in progress.
pub(crate) struct CompactionPlan {
    pub keyspace: Arc<KeyspaceCore>,
    /// The tree in which the job was chosen: its tables stay open.
    pub version: Arc<Version>,
    pub job: CompactionJob,
    /// Filter bits of the output tables.
    pub bits: Arc<JobBits>,
    slices: Vec<KeyRange>,
    /// Maximum number of threads.
    threads: usize,
    /// Start of the compaction, for its rate.
    pub begin_us: u64,
    /// Bytes written so far by all threads.
    pub bytes_written: AtomicU64,
    /// Microseconds that all threads slept for the rate limit.
    pub slept_us: AtomicU64,
    is_stopped: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    claimed: usize,
    taken: usize,
    working: usize,
    done: BTreeMap<usize, Result<CompactedSlice>>,
}

/// A slice claimed by a thread.
pub(crate) struct Claim<'a> {
    plan: &'a CompactionPlan,
    number: usize,
    is_finished: bool,
}

impl CompactionPlan {
    /// A compaction that begins now, with up to `threads` threads.
    pub fn new(
        keyspace: Arc<KeyspaceCore>,
        version: Arc<Version>,
        job: CompactionJob,
        bits: Arc<JobBits>,
        slices: Vec<KeyRange>,
        threads: usize,
        begin_us: u64,
    ) -> Self {
        Self {
            keyspace,
            version,
            job,
            bits,
            slices,
            threads: threads.max(1),
            begin_us,
            bytes_written: AtomicU64::new(0),
            slept_us: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Maximum number of threads: at most the number of slices.
    pub fn threads(&self) -> usize {
        self.threads.min(self.slices.len()).max(1)
    }

    /// The slices, ascending.
    pub fn slices(&self) -> &[KeyRange] {
        &self.slices
    }

    /// Whether the compaction was abandoned or is over.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Claims the next slice, if one may be processed now.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let mut progress = lock(&self.progress);
        let number = progress.claimed;
        if self.is_stopped()
            || number >= self.slices.len()
            || number >= progress.taken + self.threads.saturating_mul(AHEAD_PER_THREAD)
        {
            return None;
        }
        // Each thread builds a table; the memory allows no more of them.
        if progress.working >= self.threads {
            return None;
        }
        progress.claimed += 1;
        progress.working += 1;
        Some(Claim { plan: self, number, is_finished: false })
    }

    /// The result of the next slice in order, if it is finished.
    pub fn take_next(&self) -> Option<Result<CompactedSlice>> {
        let mut progress = lock(&self.progress);
        let next = progress.taken;
        let result = progress.done.remove(&next)?;
        progress.taken += 1;
        self.changed.notify_all();
        Some(result)
    }

    /// Waits for a result or a slice that may be claimed.
    pub fn wait(&self, at_most: Duration) {
        let progress = lock(&self.progress);
        if progress.done.contains_key(&progress.taken) || self.is_stopped() {
            return;
        }
        drop(self.changed.wait_timeout(progress, at_most));
    }

    /// Ends the compaction: waits until no thread works on it, and returns the tables that were not
    /// taken.
    pub fn stop(&self) -> Vec<TableUse> {
        self.is_stopped.store(true, Ordering::Release);
        let mut progress = lock(&self.progress);
        self.changed.notify_all();
        while progress.working > 0 {
            let waited = self.changed.wait_timeout(progress, Duration::from_millis(50));
            progress = waited.map_or_else(|poison| poison.into_inner().0, |(progress, _)| progress);
        }
        let done = std::mem::take(&mut progress.done);
        done.into_values().flatten().flat_map(|slice| slice.tables).collect()
    }
}

impl Claim<'_> {
    /// Key range of the slice.
    pub fn slice(&self) -> &KeyRange {
        &self.plan.slices[self.number]
    }

    /// Records the result of the slice.
    pub fn finish(mut self, result: Result<CompactedSlice>) {
        self.hand_in(result);
    }

    fn hand_in(&mut self, result: Result<CompactedSlice>) {
        self.is_finished = true;
        let mut progress = lock(&self.plan.progress);
        progress.working -= 1;
        progress.done.insert(self.number, result);
        self.plan.changed.notify_all();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.hand_in(Err(Error::new(ErrorKind::ReadOnly, "a compaction panicked")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_key::KeyspaceId;
    use shamba_model::{Design, MergePolicy};
    use shamba_tree::allocation::Rule;
    use shamba_tree::compaction::policy::Rules;

    fn plan(threads: usize) -> CompactionPlan {
        let version: Version = "L0: r2@2[2:a..z 40]\n".parse().expect("notation");
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 10, 0.0), 1);
        let job = shamba_tree::compaction::policy::pick(&version, &rules).expect("a merge");
        let slices = ["a..c", "c..f", "f..k", "k..p", "p..z"].map(|slice| slice.parse().expect("a range"));
        let memtable = shamba_memtable::ChunkedMemtable::new(false);
        let (name, closed) = (String::new(), Arc::default());
        let keyspace = KeyspaceCore::new(KeyspaceId(0), name, Arc::default(), memtable, closed);
        let bits = Arc::new(JobBits::of_flush(Rule::NEW, &Version::empty(), 0));
        CompactionPlan::new(Arc::new(keyspace), Arc::new(version), job, bits, slices.into(), threads, 0)
    }

    fn merged(bytes_read: u64) -> Result<CompactedSlice> {
        Ok(CompactedSlice { tables: Vec::new(), bytes_read, entries_dropped: 0 })
    }

    #[test]
    fn results_come_in_order_whoever_finishes_first() {
        let plan = plan(5);
        let claims: Vec<_> = std::iter::from_fn(|| plan.claim()).collect();
        assert_eq!(claims.len(), 5);
        let mut taken = Vec::new();
        for (number, claim) in claims.into_iter().enumerate().rev() {
            assert!(plan.take_next().is_none(), "slice 0 is the last to be finished");
            claim.finish(merged(number as u64));
        }
        while let Some(result) = plan.take_next() {
            taken.push(result.expect("merged").bytes_read);
        }
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        assert!(plan.stop().is_empty());
    }

    #[test]
    fn nobody_runs_far_ahead_of_what_is_installed() {
        let plan = plan(2);
        let (first, second) = (plan.claim().expect("a slice"), plan.claim().expect("a slice"));
        assert!(plan.claim().is_none(), "two are at it");
        second.finish(merged(1));
        for number in [2, 3] {
            plan.claim().expect("a slice").finish(merged(number));
        }
        assert!(plan.claim().is_none(), "the first slice is not done");
        first.finish(merged(0));
        assert!(plan.take_next().is_some());
        plan.claim().expect("a slice").finish(merged(4));
    }

    #[test]
    fn a_slice_that_is_not_handed_in_has_failed_and_a_stop_ends_it_all() {
        let plan = plan(2);
        drop(plan.claim());
        let Some(Err(error)) = plan.take_next() else { panic!("an error") };
        assert_eq!(error.to_string(), "a compaction panicked");
        let claim = plan.claim().expect("a slice");
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| plan.stop().len());
            while !plan.is_stopped() {
                std::thread::yield_now();
            }
            assert!(plan.claim().is_none());
            claim.finish(merged(1));
            assert_eq!(stopping.join().expect("no panic"), 0);
        });
    }
}
