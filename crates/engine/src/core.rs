//! The shared state of an open database, held by every handle and background thread.
//!
//! Locks and what they guard:
//! - [`Core::writing`] (one leader at a time): the log, sequence numbers, rotation of memtables.
//! - [`Core::installing`]: the manifest and the trees; held while a version is installed.
//! - [`KeyspaceCore::publish`]: the view that readers load; readers never lock.
//! - [`Background::state`]: the work of flush and compaction threads; a leaf lock.
//! - [`Recorder`]: the trace that is being recorded; no lock is taken under it.
//! - [`Background::sync_due_us`]: the time by which the log must be synced; only
//!   `Background::state` is taken under it.
//!
//! Lock order: `writing` before `installing` before a keyspace's publish lock before leaves.
//!
//! Invariant: a view holds every entry up to the sequence number that was visible when the view was
//! loaded. A reader therefore loads the view *first* and the sequence number second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use shamba_env::{Env, FileLock, lock};
use shamba_key::{DigestFn, SeqNo};
use shamba_table::{BirthId, BlockCache, Charge, Ledger, OpenFiles, TableId};

use crate::compaction::output::Opener;
use crate::compaction::plan::CompactionPlan;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Events};
use crate::metrics::WorkCounters;
use crate::obsolete::{LogFile, ObsoleteFiles};
use crate::planted::{Defect, is_planted};
use crate::published::Published;
use crate::redesign::History;
use crate::residency::ResidencyCore;
use crate::settings::Settings;
use crate::statistics::file::Saved;
use crate::sync::{Condvar, Mutex};
use crate::trace::Recorder;
use crate::workload::Observation;
use crate::write::queue::CommitQueue;
use crate::write::room::Room;
use crate::write::rotate::ActiveMemtables;
use crate::write::side::SideFile;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};
use shamba_log::wal::{ValueLog, WalWriter};
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_tree::compaction::policy::{CompactionJob, Rules, credit_after};
use shamba_tree::compaction::table_size::Tables;
use shamba_tree::counters::LookupCounters;
use shamba_tree::iter::registry::IterRegistry;
use shamba_tree::lookup::get::Timer;
use shamba_tree::lookup::pool::ReadPool;
use shamba_tree::sampling::TreeStatistics;
use shamba_tree::snapshot::SnapshotList;
use shamba_tree::version::Version;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};
use shamba_tree::view::{View, ViewSource};

/// Maximum number of different warnings that are remembered; a listener gets all of them.
const WARNINGS_MAX: usize = 1_000;

/// One keyspace: its name and the view that its readers load.
pub(crate) struct KeyspaceCore {
    pub id: KeyspaceId,
    pub name: String,
    view: Published<View>,
    pub dropped: AtomicBool,
    closed: Arc<AtomicBool>,
    /// Statistics of sampled lookups and seeks in this keyspace.
    pub statistics: TreeStatistics,
    /// Compaction credit of overfull levels, in bytes, before level 0 is compacted again. Changed
    /// only by compactions, one at a time.
    credit_bytes: AtomicU64,
}

impl KeyspaceCore {
    pub fn new(
        id: KeyspaceId,
        name: String,
        version: Arc<Version>,
        memtable: ChunkedMemtable,
        closed: Arc<AtomicBool>,
    ) -> Self {
        let memtables: Vec<Arc<dyn Memtable>> = vec![Arc::new(memtable)];
        let view = Published::new(View::new(id, memtables, version));
        Self {
            id,
            name,
            view,
            dropped: AtomicBool::new(false),
            closed,
            statistics: TreeStatistics::default(),
            credit_bytes: AtomicU64::new(0),
        }
    }

    /// `rules` for this tree, with its compaction credit.
    pub fn turns(&self, rules: Rules) -> Rules {
        Rules { credit_bytes: self.credit_bytes.load(Ordering::Relaxed), ..rules }
    }

    /// Updates the compaction credit after `merged_bytes` of `job` were compacted. `was_l0_urgent`
    /// is whether level 0 was over its trigger when the job began.
    pub fn update_credit(&self, job: &CompactionJob, merged_bytes: u64, was_l0_urgent: bool) {
        let credit_bytes =
            credit_after(job, merged_bytes, was_l0_urgent, self.credit_bytes.load(Ordering::Relaxed));
        self.credit_bytes.store(credit_bytes, Ordering::Relaxed);
    }

    /// A placeholder for a keyspace of another database: every use fails with an error that says
    /// so.
    pub fn foreign(other: &Self) -> Arc<Self> {
        let name = format!("{} of another database", other.name);
        let memtable = ChunkedMemtable::new(false);
        let foreign = Self::new(other.id, name, Arc::default(), memtable, Arc::new(AtomicBool::new(false)));
        foreign.dropped.store(true, Ordering::Release);
        Arc::new(foreign)
    }

    /// The newest view, without touching a shared reference count.
    pub fn load(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// The newest view, with a reference count.
    pub fn load_full(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the view by one made from it.
    pub fn publish(&self, change: impl FnOnce(&View) -> View) {
        self.view.replace(change);
    }

    /// Whether the keyspace can be used.
    pub fn check_usable(&self) -> Result<()> {
        Ok(self.usable()?)
    }

    fn usable(&self) -> shamba_tree::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(shamba_tree::Error::closed());
        }
        if self.dropped.load(Ordering::Acquire) {
            let name = &self.name;
            let context = format!("keyspace {name:?} was dropped or is not this database's");
            return Err(shamba_tree::Error::invalid(context));
        }
        Ok(())
    }
}

impl ViewSource for KeyspaceCore {
    fn view(&self) -> shamba_tree::Result<Arc<View>> {
        self.usable()?;
        Ok(self.load_full())
    }

    fn note_seek(&self) {
        self.statistics.count_seek();
    }
}

/// Memtables that were sealed together, with the log that holds their entries.
pub(crate) struct Generation {
    /// The sealed log; `None` without a log.
    pub log: Option<Arc<Mutex<WalWriter>>>,
    /// The files of the logs that hold its entries; obsolete once the generation is in tables.
    pub log_files: Vec<LogFile>,
    /// The first log that is still needed once the generation is in tables.
    pub next_log: LogNo,
    /// The sealed memtables that are not empty.
    pub members: Vec<(Arc<KeyspaceCore>, Arc<dyn Memtable>)>,
    /// Every entry up to this number is in this generation or an earlier one.
    pub last_seq: SeqNo,
    /// Bytes in the memtables.
    pub bytes: u64,
    /// Charge for the memtables, as long as the generation lives.
    pub _charge: Charge,
}

/// The state that the commit leader changes.
pub(crate) struct Writing {
    /// The active log; `None` without a log, or after it was sealed for lack of space.
    pub wal: Option<WalWriter>,
    /// The end of the sealed log, for the next log's header; set only while `wal` is `None` because
    /// it was sealed.
    pub predecessor: Option<shamba_log::wal::Predecessor>,
    /// Files of logs sealed since the last rotation.
    pub sealed_files: Vec<LogFile>,
    /// The active log in the form in which memtables refer to it, once one does.
    pub values: Option<Arc<ValueLog>>,
    /// Without a log: the file of long values that are not flushed yet.
    pub side: Option<SideFile>,
    /// Sealed logs that may not be synced yet, oldest first.
    pub sealed: VecDeque<Arc<Mutex<WalWriter>>>,
    /// The last sequence number assigned.
    pub last_seq: SeqNo,
    /// The memtables that take writes.
    pub active: ActiveMemtables,
    /// Charge for the active memtables, made before they grow.
    pub memtable_charge: Charge,
    /// Charge for the active log's buffer.
    pub log_charge: Charge,
    /// Copy of [`Background::sync_due_us`], guarded by this lock.
    pub sync_due_us: Option<u64>,
}

/// The state that an install changes.
pub(crate) struct Installing {
    pub manifest: ManifestWriter,
    pub state: ManifestState,
}

/// Tables of a keyspace whose filters should be rewritten in place.
#[derive(Clone, Debug)]
pub(crate) struct FilterRewrite {
    /// Identifies the rewrite.
    pub number: u64,
    pub keyspace: KeyspaceId,
    pub tables: BTreeSet<TableId>,
    /// Whether a caller waits for it. It then alternates with the compactions of the policy instead
    /// of coming after all of them.
    pub has_waiter: bool,
}

/// Kinds of background work that a writer may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Flush,
    Merge,
}

/// Failures of one kind of background work.
#[derive(Clone, Default, Debug)]
pub(crate) struct Failures {
    /// The last error; `None` after a success, and when there is no such work.
    pub error: Option<Error>,
    /// Consecutive failures, for the back-off.
    pub failures: u32,
    /// Total number of failures.
    pub failures_total: u32,
}

impl Failures {
    /// Records a failure.
    pub fn add(&mut self, error: Error) {
        self.error = Some(error);
        self.failures = self.failures.saturating_add(1);
        self.failures_total = self.failures_total.saturating_add(1);
    }

    /// Records a success, or that the work is no longer needed.
    pub fn end(&mut self) {
        (self.error, self.failures) = (None, 0);
    }

    /// Whether a waiter should give up: the last `max` tries failed, at least one of them since it
    /// began to wait, when the total was `failures_before`. Earlier failures alone do not count:
    /// the disk may have recovered.
    pub fn should_give_up(&self, failures_before: u32, max: u32) -> bool {
        self.failures >= max && self.failures_total > failures_before
    }
}

/// Pending background work and its state.
#[derive(Default)]
pub(crate) struct BackgroundState {
    /// Sealed generations not yet flushed, oldest first.
    pub immutables: VecDeque<Arc<Generation>>,
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
pub(crate) struct Background {
    pub state: Mutex<BackgroundState>,
    /// Signalled when there is work.
    pub wake: Condvar,
    /// Signalled when work was done.
    pub progress: Condvar,
    /// Signalled when memory should be divided again.
    pub memory_wake: Condvar,
    /// Signalled when the tuner has to stop.
    pub tune_wake: Condvar,
    /// Earliest time by which the log must be synced for `Interval` writes; `None` if there are
    /// none.
    pub sync_due_us: Mutex<Option<u64>>,
    /// Signalled when that time was set or became earlier.
    pub sync_wake: Condvar,
    /// Cached back-pressure state of writers.
    pub room: Room,
}

/// An open database.
pub(crate) struct Core {
    pub env: Env,
    pub dir: PathBuf,
    pub settings: Settings,
    pub digest: DigestFn,
    pub read_only: bool,
    pub timers: AtomicBool,
    /// Times lookups, if [`Self::timers`] is on.
    pub timer: Timer,
    /// Records the operations, if a trace is being recorded.
    pub recorder: Recorder,
    /// Whether recovery keeps everything before damage in a synced part of a log, instead of
    /// failing.
    pub point_in_time: bool,
    pub ledger: Arc<Ledger>,
    pub cache: Arc<BlockCache>,
    /// Held while memory is moved between the block cache and the other consumers.
    pub balancing: Mutex<()>,
    /// Filters and index partitions in memory.
    pub residency: ResidencyCore,
    /// Charge for the trees of the newest views.
    pub tree_charge: Mutex<Charge>,
    /// Number and size of the tables of the newest trees.
    pub tables: Mutex<Tables>,
    pub files: Arc<OpenFiles>,
    /// Opens tables for one use each, where the memory budget keeps some closed.
    pub opener: OnceLock<Arc<Opener>>,
    pub keyspaces: ArcSwap<BTreeMap<KeyspaceId, Arc<KeyspaceCore>>>,
    /// The last sequence number visible to readers.
    pub visible_seq: AtomicU64,
    pub snapshots: Arc<SnapshotList>,
    pub iterators: Arc<IterRegistry>,
    pub commits: CommitQueue,
    pub writing: Mutex<Writing>,
    /// `None` when read-only.
    pub installing: Mutex<Option<Installing>>,
    /// The observed recent workload.
    pub observation: Mutex<Observation>,
    /// The redesigns so far. Locked while another design is put into force, before `installing`.
    pub redesigned: Mutex<History>,
    pub background: Background,
    /// Held while background work runs on a caller's thread.
    pub inline_work: Mutex<()>,
    pub obsolete: ObsoleteFiles,
    /// The warning that the tables need more than the memory budget was emitted.
    pub has_warned_budget_exceeded: AtomicBool,
    /// The warning that the memory budget leaves nothing to the block cache was emitted.
    pub has_warned_budget_full: AtomicBool,
    /// The direct-I/O fallback warning was emitted.
    pub has_warned_direct_io: AtomicBool,
    pub lookups: LookupCounters,
    /// The contents of the statistics file; held while it is written.
    pub statistics_saved: Mutex<Saved>,
    pub reads: ReadPool,
    pub work: WorkCounters,
    pub unsynced_bytes: AtomicU64,
    pub events: Events,
    pub warnings: Mutex<Vec<String>>,
    /// The cause that turned writes off. Set once, together with `has_failed`.
    pub failure: Mutex<Option<Error>>,
    pub has_failed: AtomicBool,
    pub closed: Arc<AtomicBool>,
    pub next_id: AtomicU64,
    pub file_lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Core {
    /// The last sequence number visible to readers. Load the view first.
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.visible_seq.load(Ordering::Acquire))
    }

    /// A number that no file, run or age of this database has had.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn new_table_id(&self) -> TableId {
        TableId(self.new_id())
    }

    pub fn new_log_no(&self) -> LogNo {
        LogNo(self.new_id())
    }

    /// Id and age of a run that is newer than every existing run.
    pub fn new_run(&self) -> (RunId, Age) {
        let id = self.new_id();
        (RunId(id), Age(id))
    }

    pub fn new_birth(&self) -> BirthId {
        BirthId(self.env.rng.next_u64())
    }

    /// Whether background work runs on the caller's thread.
    pub fn is_inline(&self) -> bool {
        self.env.spawner.is_inline()
    }

    pub fn keyspace(&self, id: KeyspaceId) -> Option<Arc<KeyspaceCore>> {
        self.keyspaces.load().get(&id).cloned()
    }

    /// Whether the database can be written to.
    pub fn check_writable(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        }
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*lock(&self.failure) {
            Some(cause) => Err(read_only_after(cause)),
            None => Ok(()),
        }
    }

    /// Turns writes off until the database is opened again. The first cause is kept.
    pub fn fail(&self, cause: &Error) {
        if is_planted(Defect::WritesAfterFailure) {
            return;
        }
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = Some(cause.clone());
            self.has_failed.store(true, Ordering::Release);
            drop(failure);
            self.events
                .emit(&Event::BackgroundError(format!("writes are off until reopen: {}", cause.chain())));
        }
        self.background.wake.notify_all();
        self.background.progress.notify_all();
    }

    /// Syncs the directory, which makes the names of files durable. A failure turns writes off:
    /// some names may be lost, that of the active log among them, and a later successful sync would
    /// not show that.
    pub fn sync_names(&self) -> Result<()> {
        let synced = self.env.vfs.sync_dir(&self.dir);
        synced.map_err(|error| Error::io("sync directory", &self.dir, error)).inspect_err(|error| {
            if !is_planted(Defect::DirectorySyncRetried) {
                self.fail(error);
            }
        })
    }

    pub fn warn(&self, text: String) {
        self.events.emit(&Event::Warning(text.clone()));
        let mut warnings = lock(&self.warnings);
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Whether background work should stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.background.state).shutdown
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

/// The error for writers after a failure that only a reopen can clear.
fn read_only_after(cause: &Error) -> Error {
    Error::with_source(
        ErrorKind::ReadOnly,
        "writes are off after a failure; reopen the database",
        cause.clone(),
    )
}
