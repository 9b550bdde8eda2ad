//! The shared state of an open database, held by every handle and background thread.
//!
//! Locks and what they guard:
//! - The lock of [`Writer`] (one leader at a time): the log, sequence numbers, rotation of
//!   memtables.
//! - The install lock of [`Catalog`]: the manifest and the trees.
//! - [`BackgroundWork::state`]: the work of flush and compaction threads. The queue of sealed
//!   generations is read under it.
//! - [`Recorder`]: the trace that is being recorded; no lock is taken under it.
//!
//! Lock order: the writer's lock before the install lock before a keyspace's publish lock before
//! leaves.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shamba_env::{Env, FileLock, lock};
use shamba_key::DigestFn;
use shamba_table::{BlockCache, Charge, Ledger, LedgerPart, TableId, TableReader};

use crate::catalog::{Catalog, InstallObserver};
use crate::compaction::plan::CompactionPlan;
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::residency::ResidencyCore;
use crate::statistics::SavedStatistics;
use crate::sync::{Condvar, Mutex};
use crate::table_files::TableFiles;
use crate::table_files::output::OutputMemory;
use crate::telemetry::Telemetry;
use crate::trace::{BUFFER_BYTES, Recorder, Recording};
use crate::tuning::DesignTuning;
use crate::workload::WorkloadObserver;
use crate::writer::{Background, Failures, FailuresNow, Work, Writer, WriterMemory};
use shamba_key::KeyspaceId;
use shamba_tree::compaction::table_size::Tables;
use shamba_tree::version::TableMeta;

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

/// Pending background work and its state.
#[derive(Default)]
pub(crate) struct BackgroundState {
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
pub(crate) struct BackgroundWork {
    pub state: Mutex<BackgroundState>,
    /// Signalled when there is work.
    pub wake: Condvar,
    /// Signalled when work was done.
    pub progress: Condvar,
    /// Signalled when memory should be divided again.
    pub memory_wake: Condvar,
}

/// An open database.
pub(crate) struct Core {
    pub env: Env,
    pub dir: PathBuf,
    pub settings: Arc<Settings>,
    pub digest: DigestFn,
    pub telemetry: Arc<Telemetry>,
    pub lifecycle: Arc<Lifecycle>,
    pub recorder: Arc<Recorder>,
    pub catalog: Arc<Catalog>,
    pub reads: Arc<Reads>,
    pub filter_bits: Arc<FilterBits>,
    pub statistics: SavedStatistics,
    pub workload: Arc<WorkloadObserver>,
    pub tuning: DesignTuning,
    /// Whether recovery keeps everything before damage in a synced part of a log, instead of
    /// failing.
    pub point_in_time: bool,
    pub ledger: Arc<Ledger>,
    pub cache: Arc<BlockCache>,
    /// Held while memory is moved between the block cache and the other consumers.
    pub balancing: Mutex<()>,
    /// Filters and index partitions in memory.
    pub residency: Arc<ResidencyCore>,
    /// Charge for the trees of the newest views.
    pub tree_charge: Mutex<Charge>,
    /// Number and size of the tables of the newest trees.
    pub tables: Mutex<Tables>,
    pub table_files: Arc<TableFiles>,
    /// Whether the memory budget keeps some tables closed, which are opened for one use each time.
    pub has_closed_tables: AtomicBool,
    pub writer: Arc<Writer>,
    pub background: BackgroundWork,
    /// Held while background work runs on a caller's thread.
    pub inline_work: Mutex<()>,
    /// The warning that the tables need more than the memory budget was emitted.
    pub has_warned_budget_exceeded: AtomicBool,
    /// The warning that the memory budget leaves nothing to the block cache was emitted.
    pub has_warned_budget_full: AtomicBool,
    pub file_lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Core {
    /// Whether background work runs on the caller's thread.
    pub fn is_inline(&self) -> bool {
        self.env.spawner.is_inline()
    }

    /// Whether background work should stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.background.state).shutdown
    }

    /// Takes outdated views from idle scans, and deletes obsolete files without readers.
    pub fn release_stale_views(&self) {
        self.reads.release_stale_views(&self.catalog);
    }

    /// Begins a recording of every operation.
    ///
    /// # Errors
    /// See [`crate::Db::record_trace`].
    pub fn record_trace(&self, path: &Path) -> Result<Recording> {
        self.lifecycle.check_open()?;
        let mut charge = Charge::new(&self.ledger, LedgerPart::Logs, 0);
        self.charge_memory(&mut charge, BUFFER_BYTES as u64);
        self.writer.between_groups(|| self.recorder.begin(path, self.catalog.new_id(), charge))
    }
}

impl OutputMemory for Core {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        self.charge_memory(charge, bytes);
    }

    fn make_room(&self, bytes: u64) {
        self.make_memory(bytes);
    }

    fn hold_early(&self, reader: &TableReader) -> Result<()> {
        Self::hold_early(self, reader)
    }
}

impl Background for Core {
    fn wake(&self) {
        // Workers look for work under this lock: none of them can miss the notification.
        drop(lock(&self.background.state));
        self.background.wake.notify_all();
    }

    fn run_inline(&self) {
        self.run_background_inline();
    }

    fn failures(&self, work: Work) -> Failures {
        lock(&self.background.state).trouble(work, self.is_inline()).clone()
    }

    fn wait_for_progress(&self, look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>) {
        let is_inline = self.is_inline();
        let mut state = lock(&self.background.state);
        while let Some(wait) = look(&|work| state.trouble(work, is_inline).clone()) {
            let waited = self.background.progress.wait_timeout(state, wait);
            state = waited.map_or_else(|poison| poison.into_inner().0, |(state, _)| state);
        }
    }

    fn wait_for_flushes(&self, done: &dyn Fn() -> bool) -> Result<()> {
        self.wait_until(&[Work::Flush], |_| done())
    }

    fn forget(&self, keyspace: KeyspaceId) {
        let mut state = lock(&self.background.state);
        state.full_compactions.retain(|id| *id != keyspace);
        state.filter_rewrites.retain(|filter_rewrite| filter_rewrite.keyspace != keyspace);
    }
}

/// The writer's share of memory: the size of memtables by what residency has chosen, and charges
/// for which the whole database makes room.
pub(crate) struct WriterShare {
    settings: Arc<Settings>,
    residency: Arc<ResidencyCore>,
    core: OnceLock<Weak<Core>>,
}

impl WriterShare {
    /// The share under these settings.
    pub fn new(settings: Arc<Settings>, residency: Arc<ResidencyCore>) -> Self {
        Self { settings, residency, core: OnceLock::new() }
    }

    /// Sets what makes room; later calls have no effect.
    pub fn connect(&self, core: Weak<Core>) {
        let _ = self.core.set(core);
    }
}

impl WriterMemory for WriterShare {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        match self.core.get().and_then(Weak::upgrade) {
            Some(core) => core.charge_memory(charge, bytes),
            None => charge.resize(bytes),
        }
    }

    fn memtable_limit_bytes(&self) -> u64 {
        self.residency.memtable_limit_bytes(&self.settings)
    }
}

impl InstallObserver for Core {
    fn published(&self) {
        self.charge_trees();
    }

    fn installed(&self, dead: &[Arc<TableMeta>]) {
        self.writer.pressure_changed();
        self.release_obsolete(dead);
        self.reads.revoke_stale_views(&self.catalog);
        self.request_rebalance();
        self.background.wake.notify_all();
        self.background.progress.notify_all();
    }
}
