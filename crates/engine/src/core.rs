//! The shared state of an open database, held by every handle and background thread.
//!
//! Locks and what they guard:
//! - [`Core::writing`] (one leader at a time): the log, sequence numbers, rotation of memtables.
//! - The install lock of [`Catalog`]: the manifest and the trees.
//! - [`Background::state`]: the work of flush and compaction threads; a leaf lock.
//! - [`Recorder`]: the trace that is being recorded; no lock is taken under it.
//! - [`Background::sync_due_us`]: the time by which the log must be synced; only
//!   `Background::state` is taken under it.
//!
//! Lock order: `writing` before the install lock before a keyspace's publish lock before leaves.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use shamba_env::{Env, FileLock, lock};
use shamba_key::{DigestFn, SeqNo};
use shamba_table::{BlockCache, Charge, Ledger, LedgerPart, TableId, TableReader};

use crate::catalog::{Catalog, InstallObserver, LogFile, Member};
use crate::compaction::plan::CompactionPlan;
use crate::error::{Error, Result};
use crate::lifecycle::Lifecycle;
use crate::reads::Reads;
use crate::redesign::History;
use crate::residency::ResidencyCore;
use crate::settings::Settings;
use crate::statistics::file::Saved;
use crate::sync::{Condvar, Mutex};
use crate::table_files::TableFiles;
use crate::table_files::output::OutputMemory;
use crate::telemetry::Telemetry;
use crate::trace::{BUFFER_BYTES, Recorder, Recording};
use crate::workload::Observation;
use crate::write::queue::CommitQueue;
use crate::write::room::Room;
use crate::write::rotate::ActiveMemtables;
use crate::write::side::SideFile;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::{ValueLog, WalWriter};
use shamba_tree::compaction::table_size::Tables;
use shamba_tree::version::TableMeta;

/// Memtables that were sealed together, with the log that holds their entries.
pub(crate) struct Generation {
    /// The sealed log; `None` without a log.
    pub log: Option<Arc<Mutex<WalWriter>>>,
    /// The files of the logs that hold its entries; obsolete once the generation is in tables.
    pub log_files: Vec<LogFile>,
    /// The first log that is still needed once the generation is in tables.
    pub next_log: LogNo,
    /// The sealed memtables that are not empty.
    pub members: Vec<Member>,
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
    pub settings: Arc<Settings>,
    pub digest: DigestFn,
    pub telemetry: Arc<Telemetry>,
    pub lifecycle: Arc<Lifecycle>,
    pub recorder: Arc<Recorder>,
    pub catalog: Arc<Catalog>,
    pub reads: Arc<Reads>,
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
    pub table_files: Arc<TableFiles>,
    /// Whether the memory budget keeps some tables closed, which are opened for one use each time.
    pub has_closed_tables: AtomicBool,
    pub commits: CommitQueue,
    pub writing: Mutex<Writing>,
    /// The observed recent workload.
    pub observation: Mutex<Observation>,
    /// The redesigns so far. Locked while another design is put into force, before an install.
    pub redesigned: Mutex<History>,
    pub background: Background,
    /// Held while background work runs on a caller's thread.
    pub inline_work: Mutex<()>,
    /// The warning that the tables need more than the memory budget was emitted.
    pub has_warned_budget_exceeded: AtomicBool,
    /// The warning that the memory budget leaves nothing to the block cache was emitted.
    pub has_warned_budget_full: AtomicBool,
    /// The contents of the statistics file; held while it is written.
    pub statistics_saved: Mutex<Saved>,
    pub unsynced_bytes: AtomicU64,
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
        self.reads.revoke_stale_views(&self.catalog);
        self.catalog.remove_obsolete_files();
    }

    /// Begins a recording of every operation.
    ///
    /// # Errors
    /// See [`crate::Db::record_trace`].
    pub fn record_trace(&self, path: &Path) -> Result<Recording> {
        self.lifecycle.check_open()?;
        let mut charge = Charge::new(&self.ledger, LedgerPart::Logs, 0);
        self.charge_memory(&mut charge, BUFFER_BYTES as u64);
        let _writing = lock(&self.writing);
        self.recorder.begin(path, self.catalog.new_id(), charge)
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

impl InstallObserver for Core {
    fn published(&self) {
        self.charge_trees();
    }

    fn installed(&self, dead: &[Arc<TableMeta>]) {
        self.background.room.changed();
        self.release_obsolete(dead);
        self.reads.revoke_stale_views(&self.catalog);
        self.request_rebalance();
        self.background.wake.notify_all();
        self.background.progress.notify_all();
    }
}
