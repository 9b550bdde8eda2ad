//! A compaction in progress: its slices, which workers build in parallel and install in order.
//!
//! [`Job`] is what the slices of a job share; it does not change. [`Running`] is its progress,
//! which is kept under the scheduler's lock. Any worker may take the next slice
//! ([`Running::take_slice`]). Finished slices wait in the job until all earlier ones are installed:
//! an edit states that everything below the end of its slice is compacted. The worker that finishes
//! the next slice in order installs it, and those after it that are finished
//! ([`Running::next_to_install`]). So no worker waits for another one. No slice is taken far ahead
//! of the first that is not installed, which bounds the space of finished tables that are not
//! installed.
//!
//! A slice in which a compaction filter has changed an entry that a reader sees by now is built
//! once more, without the filter.
//!
//! Invariants: slices are taken and installed in ascending order; one thread at a time installs; a
//! slice that was taken always gets a result, even after a panic ([`super::execute`]).
//!
//! Not here: building a slice ([`super::slices`]) and installing it ([`super::compact`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use crate::table_files::separated::InputValues;
use shamba_model::Design;
use shamba_table::{Dictionary, ValueFileId};
use shamba_tree::allocation::JobBits;
use shamba_tree::compaction::filter::FilterChanges;
use shamba_tree::compaction::policy::{CompactionJob, OutputRun};
use shamba_tree::version::{ConsumedValues, KeyRange, TableUse, ValueFileMeta, Version};

/// Slices per worker that may be taken ahead of the first that is not installed.
const AHEAD_PER_WORKER: usize = 2;

/// The tables of a slice, not installed yet.
pub(super) struct BuiltSlice {
    pub tables: Vec<TableUse>,
    pub bytes_read: u64,
    /// The value files that were written for it.
    pub value_files: Vec<Arc<ValueFileMeta>>,
    /// The values to which the entries of the inputs refer that the slice has taken.
    pub consumed: ConsumedValues,
    pub entries_dropped: u64,
    /// Entries that had expired, which became tombstones or were dropped.
    pub entries_expired: u64,
    /// Changes by the compaction filter.
    pub filtered: FilterChanges,
}

/// The slices of a job, the filter bits of its output tables, and their dictionary.
pub(super) struct Prepared {
    pub slices: Vec<KeyRange>,
    pub dictionary: Option<Dictionary>,
    pub bits: Arc<JobBits>,
}

/// The parts of a job that its slices share.
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
    /// Value files whose values the job writes again, so that the files can be deleted.
    pub collected: Arc<BTreeSet<ValueFileId>>,
    /// All value files of the tree; known from the first slice on.
    pub input_values: OnceLock<InputValues>,
    /// Memory for building a slice.
    pub slice_memory_bytes: u64,
    /// Time of the claim.
    pub begin_us: u64,
    /// Number of the last failure in this keyspace when the job began.
    pub last_failure_before: u32,
    /// Set before any slice is taken.
    pub prepared: OnceLock<Prepared>,
    is_stopped: AtomicBool,
    /// The slice that is built without the compaction filter; `usize::MAX`: none. Slices are
    /// installed in order, so there is one at a time.
    unfiltered: AtomicUsize,
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
        (collected, slice_memory_bytes): (BTreeSet<ValueFileId>, u64),
        (begin_us, last_failure_before): (u64, u32),
    ) -> Self {
        Self {
            number,
            claim,
            keyspace,
            version,
            job,
            output,
            design,
            collected: Arc::new(collected),
            input_values: OnceLock::new(),
            slice_memory_bytes,
            begin_us,
            last_failure_before,
            prepared: OnceLock::new(),
            is_stopped: AtomicBool::new(false),
            unfiltered: AtomicUsize::new(usize::MAX),
        }
    }

    /// Whether the compaction filter is asked in the slice of this number.
    pub fn is_filtered(&self, slice: usize) -> bool {
        self.unfiltered.load(Ordering::Acquire) != slice
    }

    /// Whether no more of the job is needed: slices that are being built may be abandoned.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) || self.keyspace.is_dropped()
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
    pub tables_written: u64,
    pub entries_dropped: u64,
}

/// Progress of a job.
pub(super) struct Running {
    pub job: Arc<Job>,
    /// Whether the thread that prepares the job has taken its first slice.
    has_begun: bool,
    taken: usize,
    /// A slice that was taken, and must be built once more before it can be installed.
    again: Option<usize>,
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
            has_begun: false,
            taken: 0,
            again: None,
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
            && self.has_begun
            && (self.again.is_some()
                || self.taken < self.job.slices().len()
                    && self.taken < self.installed + workers * AHEAD_PER_WORKER)
    }

    /// Takes the next slice: the caller builds it and calls [`Self::finish`].
    pub fn take_slice(&mut self) -> usize {
        assert!(self.has_begun && self.stop.is_none(), "a slice is taken of a job that takes none");
        self.working += 1;
        if let Some(again) = self.again.take() {
            return again;
        }
        assert!(self.taken < self.job.slices().len(), "no slice is left to take");
        self.taken += 1;
        self.taken - 1
    }

    /// The worker that has prepared the job goes on with its first slice; false if it was stopped
    /// meanwhile.
    pub fn take_first(&mut self) -> bool {
        assert!(self.taken == 0 && self.working == 1, "a job begins a second time");
        assert!(self.installed == 0 && self.built.is_empty(), "slices exist before the first one is taken");
        self.has_begun = self.stop.is_none() && !self.job.slices().is_empty();
        self.taken = usize::from(self.has_begun);
        self.has_begun
    }

    /// Records the result of the slice `number`, or of the preparation if that failed.
    pub fn finish(&mut self, number: usize, result: std::result::Result<BuiltSlice, Stop>) {
        assert!(self.working > 0, "slice {number} is handed in, but no thread works on the job");
        assert!(number >= self.installed, "slice {number} is handed in after it was installed");
        self.working -= 1;
        match result {
            Ok(built) => {
                assert!(number < self.taken, "slice {number} is handed in, but nobody took it");
                let earlier = self.built.insert(number, built);
                assert!(earlier.is_none(), "slice {number} was built twice");
            }
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

    /// Stops the job if it was chosen for another design. Not before its first slice: there must be
    /// progress, however often the design changes.
    pub fn check_design(&mut self, design: &Design) {
        if self.stop.is_none() && self.has_begun && self.job.is_outdated(design) {
            self.stop = Some(Stop::Redesigned);
        }
    }

    /// The next slice in order, if it is finished and no other thread installs one. The caller
    /// installs it and calls [`Self::note_installed`].
    pub fn next_to_install(&mut self) -> Option<(usize, BuiltSlice)> {
        let may_install = !self.is_installing && !matches!(self.stop, Some(Stop::Failed(_) | Stop::Closing));
        let built = if may_install { self.built.remove(&self.installed) } else { None }?;
        self.is_installing = true;
        debug_assert!(
            self.built.keys().all(|waiting| *waiting > self.installed),
            "slices that wait for slice {} were installed before it: {:?}",
            self.installed,
            self.built.keys()
        );
        Some((self.installed, built))
    }

    /// Records the outcome of an install; returns the end of the installed keys, `None` if all are
    /// installed.
    pub fn note_installed(&mut self, result: std::result::Result<Tally, Stop>) -> Option<&KeyRange> {
        assert!(self.is_installing, "an install ended that had not begun");
        self.is_installing = false;
        match result {
            Ok(Tally { bytes_read, bytes_written, tables_written, entries_dropped }) => {
                self.installed += 1;
                assert!(
                    self.installed <= self.taken,
                    "slice {} was installed, but nobody took it",
                    self.installed
                );
                self.tally.bytes_read += bytes_read;
                self.tally.bytes_written += bytes_written;
                self.tally.tables_written += tables_written;
                self.tally.entries_dropped += entries_dropped;
                self.job.slices().get(self.installed - 1)
            }
            Err(stop) => {
                self.stop(stop);
                None
            }
        }
    }

    /// Notes that the slice whose install began is to be built once more, without the compaction
    /// filter: a reader would have seen an entry change.
    pub fn build_again(&mut self) {
        assert!(self.is_installing && self.again.is_none(), "an install ended that had not begun");
        self.is_installing = false;
        self.job.unfiltered.store(self.installed, Ordering::Release);
        self.again = Some(self.installed);
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
        assert!(self.is_over(), "a job ends while a thread works on it");
        let is_done = self.is_done();
        assert!(!is_done || self.built.is_empty(), "a job is done, but slices of it are not installed");
        let left = self.built.into_values().flat_map(|built| built.tables).collect();
        let outcome = match self.stop {
            _ if is_done => Ok(None),
            Some(Stop::Failed(error)) => Err(error),
            stop => Ok(stop),
        };
        (outcome, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use shamba_key::KeyspaceId;
    use shamba_model::MergePolicy;
    use shamba_tree::allocation::Rule;
    use shamba_tree::compaction::policy::{Rules, pick};
    use shamba_tree::compaction::schedule::Claims;

    use shamba_key::{Age, RunId};

    /// A job of five slices, claimed and prepared.
    fn running() -> Running {
        let version: Version = "L0: r2@2[2:a..z 40]\n".parse().expect("notation");
        let design = Design::new(MergePolicy::Leveling, 4.0, 10, 0.0);
        let job = pick(&version, &Rules::manual(design, 1)).expect("a job");
        let mut claims = Claims::default();
        let claim = claims.claim(&version, job.clone(), (RunId(9), Age(9)), 1.0).expect("free");
        let (claim, output) = (claim.number(), claim.output());
        let memtable = shamba_memtable::ChunkedMemtable::new(false);
        let (name, closed) = (String::new(), Arc::default());
        let keyspace =
            Arc::new(KeyspaceCore::new(KeyspaceId(0), name, Arc::default(), memtable, None, closed));
        let bits = Arc::new(JobBits::of_flush(Rule::NEW, &Version::empty(), 0));
        let slices = ["a..c", "c..f", "f..k", "k..p", "p..z"].map(|slice| slice.parse().expect("a range"));
        let job = Job::new(
            (1, claim),
            keyspace,
            Arc::new(version),
            job,
            output,
            design,
            (BTreeSet::new(), 0),
            (0, 0),
        );
        job.prepared.set(Prepared { slices: slices.into(), dictionary: None, bits }).ok().expect("set once");
        Running::new(Arc::new(job))
    }

    fn built(bytes_read: u64) -> std::result::Result<BuiltSlice, Stop> {
        Ok(BuiltSlice {
            tables: Vec::new(),
            bytes_read,
            value_files: Vec::new(),
            consumed: Default::default(),
            entries_dropped: 0,
            entries_expired: 0,
            filtered: Default::default(),
        })
    }

    fn install_all(running: &mut Running) -> Vec<usize> {
        let mut installed = Vec::new();
        while let Some((number, _)) = running.next_to_install() {
            assert!(running.next_to_install().is_none(), "one thread at a time installs");
            running.note_installed(Ok(Tally::default()));
            installed.push(number);
        }
        installed
    }

    #[test]
    fn no_slice_is_taken_before_the_first_one() {
        let mut running = running();
        assert!(!running.is_open(8), "the slices are known, but the job has not begun");
        assert!(running.take_first());
        assert!(running.is_open(8));
        assert_eq!(running.take_slice(), 1);
    }

    #[test]
    fn slices_are_installed_in_order_and_not_taken_far_ahead() {
        let mut running = running();
        assert!(running.take_first());
        assert_eq!(running.take_slice(), 1);
        assert!(!running.is_open(1), "two ahead for one worker");
        assert!(running.is_open(2));
        running.finish(1, built(1));
        assert!(install_all(&mut running).is_empty(), "slice 0 is not done");
        running.finish(0, built(1));
        assert_eq!(install_all(&mut running), [0, 1]);
        for number in 2..5 {
            assert!(running.is_open(1));
            assert_eq!(running.take_slice(), number);
            assert!(!running.is_over());
            running.finish(number, built(1));
            assert_eq!(install_all(&mut running), [number]);
        }
        assert!(running.is_done() && running.is_over() && !running.is_open(1));
        assert!(matches!(running.end(), (Ok(None), left) if left.is_empty()));
    }

    #[test]
    fn a_slice_that_a_reader_overtakes_is_built_again_in_its_turn() {
        let mut running = running();
        assert!(running.take_first());
        assert_eq!(running.take_slice(), 1);
        running.finish(1, built(1));
        running.finish(0, built(1));
        assert_eq!(running.next_to_install().expect("the first").0, 0);
        running.build_again();
        assert!(!running.job.is_filtered(0) && running.job.is_filtered(1));
        assert!(running.next_to_install().is_none() && running.is_open(1) && !running.is_over());
        assert_eq!(running.take_slice(), 0);
        running.finish(0, built(1));
        assert_eq!(install_all(&mut running), [0, 1]);
        assert_eq!(running.take_slice(), 2);
    }

    #[test]
    fn a_failure_stops_the_job_and_leaves_what_is_not_installed() {
        let mut running = running();
        assert!(running.take_first());
        let (second, third) = (running.take_slice(), running.take_slice());
        running.finish(0, built(1));
        assert_eq!(install_all(&mut running), [0]);
        running.finish(second, Err(Stop::Failed(Error::new(ErrorKind::Io, "planned"))));
        assert!(running.job.is_stopped() && !running.is_open(8) && !running.is_over(), "one is being built");
        running.finish(third, built(1));
        assert!(install_all(&mut running).is_empty() && running.is_over() && !running.is_done());
        assert!(running.end().0.is_err());
    }

    #[test]
    fn a_new_design_lets_slices_in_progress_be_installed() {
        let mut running = running();
        running.check_design(&Design { size_ratio: 9.0, ..running.job.design });
        assert!(running.take_first(), "it has the design of its first slice");
        running.check_design(&Design { buffer_bytes: 99, ..running.job.design });
        assert!(running.is_open(8), "the levels have the same shape");
        let other = Design { size_ratio: 5.0, ..running.job.design };
        running.check_design(&other);
        assert!(!running.is_open(8) && !running.job.is_stopped());
        running.finish(0, built(1));
        assert_eq!(install_all(&mut running), [0]);
        assert!(running.is_over());
        assert!(matches!(running.end(), (Ok(Some(Stop::Redesigned)), _)));
    }
}
