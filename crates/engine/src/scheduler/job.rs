//! A compaction in progress: its slices, which workers build in parallel and install in order.
//!
//! [`Job`] is what the slices of a job share; it does not change. [`Running`] is its progress, which
//! is kept under the scheduler's lock. Any worker may take the next slice ([`Running::take_slice`]).
//! Finished slices wait in the job until all earlier ones are installed: an edit states that
//! everything below the end of its slice is compacted. The worker that finishes the next slice in
//! order installs it, and those after it that are finished ([`Running::next_to_install`]). So no
//! worker waits for another one. No slice is taken far ahead of the first that is not installed,
//! which bounds the space of finished tables that are not installed.
//!
//! Invariants: slices are taken and installed in ascending order; one thread at a time installs; a
//! slice that was taken always gets a result, even after a panic ([`super::execute`]).
//!
//! Not here: building a slice ([`super::slices`]) and installing it ([`super::compact`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use shamba_model::Design;
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::policy::{CompactionJob, OutputRun};
use shamba_tree::version::{KeyRange, TableUse, Version};

/// Slices per worker that may be taken ahead of the first that is not installed.
const AHEAD_PER_WORKER: usize = 2;

/// The tables of a slice, not installed yet.
pub(super) struct BuiltSlice {
    pub tables: Vec<TableUse>,
    pub bytes_read: u64,
    pub entries_dropped: u64,
}

/// The slices of a job, and the filter bits of its output tables.
pub(super) struct Prepared {
    pub slices: Vec<KeyRange>,
    pub bits: Arc<JobBits>,
}

/// What the slices of a compaction share.
pub(super) struct Job {
    /// Number of the job, never reused.
    pub number: u64,
    /// Number of its claim among those of its keyspace.
    pub claim: u64,
    pub keyspace: Arc<KeyspaceCore>,
    /// The tree in which the job was claimed: its tables stay open.
    pub version: Arc<Version>,
    pub job: CompactionJob,
    pub output: OutputRun,
    /// The design by which the job was chosen.
    pub design: Design,
    /// Memory for building a slice.
    pub slice_memory_bytes: u64,
    /// Time of the claim.
    pub begin_us: u64,
    /// Total number of failed compactions when the job began.
    pub failures_before: u32,
    /// Set before any slice is taken.
    pub prepared: OnceLock<Prepared>,
    is_stopped: AtomicBool,
}

impl Job {
    /// A job that was just claimed in `version`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        (number, claim): (u64, u64),
        keyspace: Arc<KeyspaceCore>,
        version: Arc<Version>,
        job: CompactionJob,
        output: OutputRun,
        design: Design,
        slice_memory_bytes: u64,
        (begin_us, failures_before): (u64, u32),
    ) -> Self {
        Self {
            number,
            claim,
            keyspace,
            version,
            job,
            output,
            design,
            slice_memory_bytes,
            begin_us,
            failures_before,
            prepared: OnceLock::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Whether no more of the job is needed: slices that are being built may be abandoned.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) || self.keyspace.dropped.load(Ordering::Acquire)
    }

    /// Whether the job was chosen for levels of another shape than those of `design`.
    fn is_outdated(&self, design: &Design) -> bool {
        let shape = |design: &Design| (design.size_ratio, design.inner_runs, design.last_runs);
        shape(&self.design) != shape(design)
    }

    /// The slices, ascending; none before they are known.
    pub fn slices(&self) -> &[KeyRange] {
        self.prepared.get().map_or(&[], |prepared| &prepared.slices)
    }
}

/// Reason why a job takes no more slices before its last one.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// A slice failed.
    Failed(Error),
    /// The database is being closed, or the keyspace was dropped.
    Closing,
    /// The design changed: the rest may not be needed any more.
    Redesigned,
}

/// Counters of the installed slices of a job.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub entries_dropped: u64,
}

/// Progress of a job.
pub(super) struct Running {
    pub job: Arc<Job>,
    taken: usize,
    installed: usize,
    /// Slices that are being built; the preparation counts as one.
    working: usize,
    is_installing: bool,
    built: BTreeMap<usize, BuiltSlice>,
    stop: Option<Stop>,
    pub tally: Tally,
}

impl Running {
    /// A job that one worker prepares.
    pub fn new(job: Arc<Job>) -> Self {
        Self {
            job,
            taken: 0,
            installed: 0,
            working: 1,
            is_installing: false,
            built: BTreeMap::new(),
            stop: None,
            tally: Tally::default(),
        }
    }

    /// Whether a slice may be taken now, by one of `workers`.
    pub fn is_open(&self, workers: usize) -> bool {
        self.stop.is_none()
            && self.taken < self.job.slices().len()
            && self.taken < self.installed + workers * AHEAD_PER_WORKER
    }

    /// Takes the next slice: the caller builds it and calls [`Self::finish`].
    pub fn take_slice(&mut self) -> usize {
        debug_assert!(self.stop.is_none() && self.taken < self.job.slices().len(), "a slice is left to take");
        self.working += 1;
        self.taken += 1;
        self.taken - 1
    }

    /// The worker that has prepared the job goes on with its first slice; false if it was stopped
    /// meanwhile.
    pub fn take_first(&mut self) -> bool {
        debug_assert!(self.taken == 0 && self.working == 1, "only the preparation has begun");
        let may_go_on = self.stop.is_none() && !self.job.slices().is_empty();
        self.taken = usize::from(may_go_on);
        may_go_on
    }

    /// Records the result of the slice `number`, or of the preparation if that failed.
    pub fn finish(&mut self, number: usize, result: std::result::Result<BuiltSlice, Stop>) {
        debug_assert!(self.working > 0 && number >= self.installed, "slice {number} was taken once");
        self.working -= 1;
        match result {
            Ok(built) => _ = self.built.insert(number, built),
            Err(stop) => self.stop(stop),
        }
    }

    /// Takes no more slices. The first reason counts, but a failure is not hidden by a new design.
    pub fn stop(&mut self, stop: Stop) {
        self.job.is_stopped.store(true, Ordering::Release);
        if matches!(self.stop, None | Some(Stop::Redesigned)) {
            self.stop = Some(stop);
        }
    }

    /// Stops the job if it was chosen for another design.
    pub fn check_design(&mut self, design: &Design) {
        if self.stop.is_none() && self.job.is_outdated(design) {
            self.stop = Some(Stop::Redesigned);
        }
    }

    /// The next slice in order, if it is finished and no other thread installs one. The caller
    /// installs it and calls [`Self::note_installed`].
    pub fn next_to_install(&mut self) -> Option<(usize, BuiltSlice)> {
        let may_install = !self.is_installing && !matches!(self.stop, Some(Stop::Failed(_) | Stop::Closing));
        let built = if may_install { self.built.remove(&self.installed) } else { None }?;
        self.is_installing = true;
        Some((self.installed, built))
    }

    /// Records the outcome of an install; returns the end of the installed keys, `None` if all are
    /// installed.
    pub fn note_installed(&mut self, result: std::result::Result<Tally, Stop>) -> Option<&KeyRange> {
        self.is_installing = false;
        match result {
            Ok(Tally { bytes_read, bytes_written, entries_dropped }) => {
                self.installed += 1;
                self.tally.bytes_read += bytes_read;
                self.tally.bytes_written += bytes_written;
                self.tally.entries_dropped += entries_dropped;
                self.job.slices().get(self.installed - 1)
            }
            Err(stop) => {
                self.stop(stop);
                None
            }
        }
    }

    /// Whether all slices are installed.
    pub fn is_done(&self) -> bool {
        self.job.prepared.get().is_some() && self.installed == self.job.slices().len()
    }

    /// Whether the job has ended: no thread works on it, and none will.
    pub fn is_over(&self) -> bool {
        self.working == 0 && !self.is_installing && (self.stop.is_some() || self.is_done())
    }

    /// Ends the job: its outcome, and the tables that were built and not installed.
    pub fn end(self) -> (Result<Option<Stop>>, Vec<TableUse>) {
        debug_assert!(self.is_over(), "no thread works on the job");
        let is_done = self.is_done();
        let left = self.built.into_values().flat_map(|built| built.tables).collect();
        let outcome = match self.stop {
            _ if is_done => Ok(None),
            Some(Stop::Failed(error)) => Err(error),
            stop => Ok(stop),
        };
        (outcome, left)
    }
}
