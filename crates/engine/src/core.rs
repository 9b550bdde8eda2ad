//! The shared heart of an open database: what every handle and background thread holds.
//!
//! Who guards what:
//! - [`Core::writing`] (one leader at a time): the log, sequence numbers, rotation of memtables.
//! - [`Core::installing`]: the manifest and the trees; whoever installs a version holds it.
//! - [`KeyspaceCore::publish`]: the view that readers load; readers never lock.
//! - [`Background::state`]: what flush and merge workers have to do; a leaf lock.
//! - [`Recorder`]: the trace that is being recorded; nothing is taken under its lock.
//! - [`Background::sync_due_us`]: when the log must be synced; nothing but `Background::state` is taken under it.
//!
//! Lock order: `writing` before `installing` before a keyspace's publish lock before leaves.
//!
//! Invariant: a view holds every entry up to the visible sequence at the moment it was loaded, so a reader
//! loads the view *first* and the sequence second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use shamba_env::{Env, FileLock, lock};
use shamba_key::{DigestFn, SeqNo};
use shamba_table::{BirthId, BlockCache, Charge, Ledger, OpenFiles, TableId};

use crate::compaction::output::Opener;
use crate::compaction::plan::MergePlan;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Events};
use crate::garbage::{Garbage, LogFile};
use crate::metrics::WorkCounters;
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
use shamba_tree::compaction::policy::{MergeJob, Rules, owed_after};
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

/// Different warnings that are remembered; a listener hears of more.
const WARNINGS_MAX: usize = 1_000;

/// One keyspace: its name and the view that its readers load.
pub(crate) struct KeyspaceCore {
    pub id: KeyspaceId,
    pub name: String,
    view: Published<View>,
    pub dropped: AtomicBool,
    closed: Arc<AtomicBool>,
    /// What sampled lookups and seeks saw here.
    pub statistics: TreeStatistics,
    /// What levels beyond their bounds are owed before a crowded inbox goes; merges alone change it, one at a time.
    owed_bytes: AtomicU64,
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
            owed_bytes: AtomicU64::new(0),
        }
    }

    /// `rules` for this tree, in which inbox and levels take turns.
    pub fn turns(&self, rules: Rules) -> Rules {
        Rules { owed_bytes: self.owed_bytes.load(Ordering::Relaxed), ..rules }
    }

    /// Notes that so many bytes of `job` were merged, which began when the inbox was crowded or was not: whose turn is next.
    pub fn count_turn(&self, job: &MergeJob, merged_bytes: u64, was_crowded: bool) {
        let owed_bytes = owed_after(job, merged_bytes, was_crowded, self.owed_bytes.load(Ordering::Relaxed));
        self.owed_bytes.store(owed_bytes, Ordering::Relaxed);
    }

    /// What stands for a keyspace of another database: it cannot be used, and says why.
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

    /// The newest view, counted.
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
    /// The files of the logs that hold its entries: dead once it is in tables.
    pub log_files: Vec<LogFile>,
    /// Logs below this one are not needed once the generation is in tables.
    pub next_log: LogNo,
    /// The sealed memtables that hold something.
    pub members: Vec<(Arc<KeyspaceCore>, Arc<dyn Memtable>)>,
    /// Everything up to this number is in this generation or an earlier one.
    pub last_seq: SeqNo,
    /// Bytes in the memtables.
    pub bytes: u64,
    /// The memtables' memory, until nobody will flush them any more.
    pub _charge: Charge,
}

/// What a commit leader changes.
pub(crate) struct Writing {
    /// The active log; `None` without a log, or after it was sealed for lack of space.
    pub wal: Option<WalWriter>,
    /// What the next log states of the one before it, when `wal` was sealed.
    pub predecessor: Option<shamba_log::wal::Predecessor>,
    /// Files of logs sealed since the last rotation.
    pub sealed_files: Vec<LogFile>,
    /// The active log as memtables refer to it, once they do.
    pub values: Option<Arc<ValueLog>>,
    /// Without a log: where long values are until they are flushed.
    pub side: Option<SideFile>,
    /// Sealed logs that may not be synced yet, oldest first.
    pub sealed: VecDeque<Arc<Mutex<WalWriter>>>,
    /// The last sequence number given out.
    pub last_seq: SeqNo,
    /// The memtables that take writes.
    pub active: ActiveMemtables,
    /// Memory of the active memtables, charged ahead of what they take.
    pub memtable_charge: Charge,
    /// Memory of the active log's buffer.
    pub log_charge: Charge,
    /// What [`Background::sync_due_us`] is, for whoever holds this lock.
    pub sync_due_us: Option<u64>,
}

/// What an install changes.
pub(crate) struct Installing {
    pub manifest: ManifestWriter,
    pub state: ManifestState,
}

/// Tables of a keyspace that should be written again where they are.
#[derive(Clone, Debug)]
pub(crate) struct Refit {
    /// Tells it from others.
    pub number: u64,
    pub keyspace: KeyspaceId,
    pub tables: BTreeSet<TableId>,
    /// Somebody waits for it: it goes before what the policy wants, and not after all of it.
    pub is_awaited: bool,
}

/// What somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Flush,
    Merge,
}

/// How work of a kind goes that did not succeed last time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Trouble {
    /// What it failed with; `None` after a success, and when there is nothing of it to do.
    pub error: Option<Error>,
    /// Failures in a row, for the back-off.
    pub failures: u32,
    /// Failures in all.
    pub failures_ever: u32,
}

impl Trouble {
    /// It failed once more.
    pub fn add(&mut self, error: Error) {
        self.error = Some(error);
        self.failures = self.failures.saturating_add(1);
        self.failures_ever = self.failures_ever.saturating_add(1);
    }

    /// It succeeded, or is not wanted any more.
    pub fn end(&mut self) {
        (self.error, self.failures) = (None, 0);
    }

    /// Whether a waiter should give up: the last `max` tries failed, at least one of them since it began to wait, when
    /// there had been `failures_before` in all. A failure from before says nothing: the disk may have recovered.
    pub fn is_hopeless(&self, failures_before: u32, max: u32) -> bool {
        self.failures >= max && self.failures_ever > failures_before
    }
}

/// What background workers have to do and how it goes.
#[derive(Default)]
pub(crate) struct BackgroundState {
    /// Sealed, not yet flushed; oldest first.
    pub immutables: VecDeque<Arc<Generation>>,
    pub flushing: bool,
    pub merging: bool,
    /// The merge whose slices helpers may do.
    pub sharing: Option<Arc<MergePlan>>,
    /// Callers that wait until nothing is left to merge.
    pub drainers: u32,
    /// When a flush last ended.
    pub quiet_since_us: u64,
    /// Keyspaces that `compact` wants merged whole.
    pub full_merges: VecDeque<KeyspaceId>,
    /// Tables that should be written again where they are.
    pub refits: VecDeque<Refit>,
    /// The last merge was part of a refit: others have their turn.
    pub was_refit: bool,
    /// How many refits there have been.
    pub refits_numbered: u64,
    pub shutdown: bool,
    pub flush_trouble: Trouble,
    pub merge_trouble: Trouble,
}

impl BackgroundState {
    /// Why `work` does not get on, if it does not: a merge that failed is no reason to give up a flush, nor the other way
    /// round, but where one thread does both, flushes first.
    pub fn trouble(&self, work: Work, is_inline: bool) -> &Trouble {
        match work {
            Work::Merge if !(is_inline && self.flush_trouble.error.is_some()) => &self.merge_trouble,
            Work::Flush | Work::Merge => &self.flush_trouble,
        }
    }
}

/// Work for the background, and the two ways to wait for it.
#[derive(Default)]
pub(crate) struct Background {
    pub state: Mutex<BackgroundState>,
    /// There is something to do.
    pub wake: Condvar,
    /// Something was done.
    pub progress: Condvar,
    /// What is in memory should be looked at again.
    pub memory_wake: Condvar,
    /// The tuner is to stop.
    pub tune_wake: Condvar,
    /// When the log must be synced for the interval writer that waits longest, if any does.
    pub sync_due_us: Mutex<Option<u64>>,
    /// That time was set, or came nearer.
    pub sync_wake: Condvar,
    /// Whether writers need not look at what waits.
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
    /// Who writes down what is asked, if somebody does.
    pub recorder: Recorder,
    /// At damage below a promise, keep what comes before it.
    pub point_in_time: bool,
    pub ledger: Arc<Ledger>,
    pub cache: Arc<BlockCache>,
    /// Held while memory moves between the cache and the rest.
    pub balancing: Mutex<()>,
    /// What filters and indexes hold in memory.
    pub residency: ResidencyCore,
    /// Memory of the trees as the newest views have them.
    pub tree_charge: Mutex<Charge>,
    /// The tables of the newest trees.
    pub tables: Mutex<Tables>,
    pub files: Arc<OpenFiles>,
    /// Opens tables for one use, where the memory budget keeps some closed.
    pub opener: OnceLock<Arc<Opener>>,
    pub keyspaces: ArcSwap<BTreeMap<KeyspaceId, Arc<KeyspaceCore>>>,
    /// The last sequence number that readers see.
    pub visible_seq: AtomicU64,
    pub snapshots: Arc<SnapshotList>,
    pub iterators: Arc<IterRegistry>,
    pub commits: CommitQueue,
    pub writing: Mutex<Writing>,
    /// `None` when read-only.
    pub installing: Mutex<Option<Installing>>,
    /// What was asked of the database lately.
    pub observation: Mutex<Observation>,
    /// The redesigns so far. Held by whoever puts another design in force, before `installing`.
    pub redesigned: Mutex<History>,
    pub background: Background,
    /// Held by whoever runs background work on the caller's thread.
    pub inline_work: Mutex<()>,
    pub garbage: Garbage,
    /// Somebody was told that the tables have outgrown the memory budget.
    pub is_budget_outgrown: AtomicBool,
    /// Somebody was told that the memory budget leaves nothing to the block cache.
    pub is_budget_used_up: AtomicBool,
    /// Somebody was told that direct I/O, which was asked for, is not to be had.
    pub is_direct_io_refused: AtomicBool,
    pub lookups: LookupCounters,
    /// What the file of statistics holds; held while it is written.
    pub statistics_saved: Mutex<Saved>,
    pub reads: ReadPool,
    pub work: WorkCounters,
    pub unsynced_bytes: AtomicU64,
    pub events: Events,
    pub warnings: Mutex<Vec<String>>,
    /// Set once, together with `has_failed`.
    pub failure: Mutex<Option<Error>>,
    pub has_failed: AtomicBool,
    pub closed: Arc<AtomicBool>,
    pub next_id: AtomicU64,
    pub file_lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Core {
    /// The last sequence number that readers see. Load the view first.
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

    /// A run that is newer than every run there is.
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

    /// Makes the names in the database's directory durable. Where that fails, writes are off: some names may be gone by then, the
    /// active log's among them, and a later sync that succeeds would say nothing of them.
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

/// The error that writers get after a failure that only a reopen can clear.
fn read_only_after(cause: &Error) -> Error {
    Error::with_source(
        ErrorKind::ReadOnly,
        "writes are off after a failure; reopen the database",
        cause.clone(),
    )
}
