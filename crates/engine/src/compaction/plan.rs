//! A merge in progress: its slices, shared out to the threads that merge, and their results in order.
//!
//! The merge's own thread and its helpers each claim the next slice and merge it; whichever finishes first, the
//! results are taken, and installed, in the order of the slices: an edit says that everything below the end of
//! its slice is merged. Nobody claims a slice far ahead of the first that is not installed, which bounds the
//! space that finished and uninstalled tables take.
//!
//! Invariants: a claimed slice gets a result, also by a panic; after [`MergePlan::stop`] nobody works on it.
//!
//! Not here: merging a slice, installing it ([`super::job`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::core::KeyspaceCore;
use crate::error::{Error, ErrorKind, Result};
use crate::planted::{Defect, is_planted};
use crate::sync::{Condvar, Mutex};
use shamba_env::lock;
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::policy::MergeJob;
use shamba_tree::version::{KeyRange, TableUse, Version};

/// Each thread may be this many slices ahead of the first that is not installed.
const AHEAD_PER_THREAD: usize = 2;

/// What merging a slice gave.
pub(crate) struct MergedSlice {
    pub tables: Vec<TableUse>,
    pub bytes_read: u64,
    pub entries_dropped: u64,
}

/// A merge whose slices are being done.
pub(crate) struct MergePlan {
    pub keyspace: Arc<KeyspaceCore>,
    /// The tree in which the job was chosen: its tables stay open.
    pub version: Arc<Version>,
    pub job: MergeJob,
    /// How many filter bits its tables get.
    pub bits: Arc<JobBits>,
    slices: Vec<KeyRange>,
    /// So many merge at once, at most.
    threads: usize,
    /// When the merge began, for its rate.
    pub begin_us: u64,
    /// Bytes written so far, by all.
    pub bytes_written: AtomicU64,
    /// Microseconds that all who merge slept because they were ahead of their rate.
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
    done: BTreeMap<usize, Result<MergedSlice>>,
}

/// A slice that its holder merges.
pub(crate) struct Claim<'a> {
    plan: &'a MergePlan,
    number: usize,
    is_finished: bool,
}

impl MergePlan {
    /// A merge that begins now and that up to `threads` threads do.
    pub fn new(
        keyspace: Arc<KeyspaceCore>,
        version: Arc<Version>,
        job: MergeJob,
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

    /// How many threads do it, at most: as many as there are slices.
    pub fn threads(&self) -> usize {
        self.threads.min(self.slices.len()).max(1)
    }

    /// The slices, ascending.
    pub fn slices(&self) -> &[KeyRange] {
        &self.slices
    }

    /// Whether the merge was given up or is over.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// The next slice to do, if there is one that may be done now.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let mut progress = lock(&self.progress);
        let number = progress.claimed;
        if self.is_stopped()
            || number >= self.slices.len()
            || number >= progress.taken + self.threads.saturating_mul(AHEAD_PER_THREAD)
        {
            return None;
        }
        // Each builds a table: no more than memory was found for.
        if progress.working >= self.threads {
            return None;
        }
        progress.claimed += 1;
        progress.working += 1;
        Some(Claim { plan: self, number, is_finished: false })
    }

    /// The result of the first slice that was not taken, once it is there.
    pub fn take_next(&self) -> Option<Result<MergedSlice>> {
        let mut progress = lock(&self.progress);
        let mut next = progress.taken;
        if is_planted(Defect::SlicesOutOfOrder) {
            next = *progress.done.keys().next()?;
        }
        let result = progress.done.remove(&next)?;
        progress.taken += 1;
        self.changed.notify_all();
        Some(result)
    }

    /// Waits a while for a result or a slice that may be done.
    pub fn wait(&self, at_most: Duration) {
        let progress = lock(&self.progress);
        if progress.done.contains_key(&progress.taken) || self.is_stopped() {
            return;
        }
        drop(self.changed.wait_timeout(progress, at_most));
    }

    /// Ends the merge: returns when nobody works on it any more, with the tables that nobody took.
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
    /// The keys to merge.
    pub fn slice(&self) -> &KeyRange {
        &self.plan.slices[self.number]
    }

    /// Hands in what became of the slice.
    pub fn finish(mut self, result: Result<MergedSlice>) {
        self.hand_in(result);
    }

    fn hand_in(&mut self, result: Result<MergedSlice>) {
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
            self.hand_in(Err(Error::new(ErrorKind::ReadOnly, "a merge panicked")));
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

    fn plan(threads: usize) -> MergePlan {
        let version: Version = "L0: r2@2[2:a..z 40]\n".parse().expect("notation");
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 10, 0.0), 1);
        let job = shamba_tree::compaction::policy::pick(&version, &rules).expect("a merge");
        let slices = ["a..c", "c..f", "f..k", "k..p", "p..z"].map(|slice| slice.parse().expect("a range"));
        let memtable = shamba_memtable::ChunkedMemtable::new(false);
        let (name, closed) = (String::new(), Arc::default());
        let keyspace = KeyspaceCore::new(KeyspaceId(0), name, Arc::default(), memtable, closed);
        let bits = Arc::new(JobBits::of_flush(Rule::NEW, &Version::empty(), 0));
        MergePlan::new(Arc::new(keyspace), Arc::new(version), job, bits, slices.into(), threads, 0)
    }

    fn merged(bytes_read: u64) -> Result<MergedSlice> {
        Ok(MergedSlice { tables: Vec::new(), bytes_read, entries_dropped: 0 })
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
        assert_eq!(error.to_string(), "a merge panicked");
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
