//! The shared state of an open database, held by every handle and background thread.
//!
//! Locks and what they guard:
//! - The lock of [`Writer`] (one leader at a time): the log, sequence numbers, rotation of
//!   memtables.
//! - The install lock of [`Catalog`]: the manifest and the trees.
//! - The state of [`Scheduler`]: the work of flush and compaction threads. The queue of sealed
//!   generations is read under it.
//! - [`Recorder`]: the trace that is being recorded; no lock is taken under it.
//!
//! Lock order: the writer's lock before the install lock before a keyspace's publish lock before
//! leaves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use shamba_env::{Env, FileLock};
use shamba_key::DigestFn;
use shamba_table::{BlockCache, Charge, Ledger, LedgerPart, Residency, TableReader};

use crate::catalog::{Catalog, InstallObserver};
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::residency::ResidencyCore;
use crate::scheduler::{JobMemory, Scheduler, Worker, Worth};
use crate::statistics::SavedStatistics;
use crate::sync::Mutex;
use crate::table_files::TableFiles;
use crate::table_files::output::OutputMemory;
use crate::telemetry::Telemetry;
use crate::trace::{BUFFER_BYTES, Recorder, Recording};
use crate::tuning::DesignTuning;
use crate::workload::WorkloadObserver;
use crate::writer::{Writer, WriterMemory};
use shamba_tree::compaction::table_size::{TableSize, Tables};
use shamba_tree::version::TableMeta;

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
    pub statistics: Arc<SavedStatistics>,
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
    pub scheduler: Arc<Scheduler>,
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
        self.scheduler.is_stopping()
    }

    /// Starts the threads of all parts; none in an environment without threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start_workers(self: &Arc<Self>) -> Result<()> {
        let worker = |name, yields, work: fn(&Self)| {
            let core = Arc::clone(self);
            Worker::new(name, yields, move || work(&core))
        };
        let mut others = Vec::new();
        if !self.lifecycle.is_read_only() {
            others.push(worker("shamba-sync", false, |core| core.writer.run_syncs()));
            others.push(worker("shamba-tune", true, |core| core.tuning.work()));
        }
        if self.settings.filter_residency != Residency::Pinned {
            others.push(worker("shamba-memory", true, Self::memory_worker));
        }
        // Running threads would keep the database, and its lock, for ever.
        self.scheduler.start(others).inspect_err(|_| self.stop_workers())
    }

    /// Tells the threads to stop and waits for them.
    pub fn stop_workers(&self) {
        self.scheduler.stop();
        self.tuning.stop();
        self.writer.stop_syncs();
        self.scheduler.join();
    }

    /// Requests the filter rewrites that pay. Called after some windows without writes.
    pub fn request_filter_rewrites(&self) {
        self.scheduler.request_filter_rewrites(Worth {
            search_ns: self.search_ns(),
            byte_ns_per_second: self.plan_prices().value.gain_per_byte,
            rewrite_ns_per_byte: self.workload.workload().move_ns_per_byte().unwrap_or_default(),
        });
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

impl JobMemory for Core {
    fn table_size_beside(&self, count: u64, bytes: u64) -> TableSize {
        Self::table_size_beside(self, count, bytes)
    }

    fn hold_published(&self, new: &[Arc<TableMeta>]) {
        Self::hold_published(self, new);
    }

    fn balance(&self) {
        self.balance_memory();
    }

    fn writes_idle(&self) -> bool {
        self.residency.writes_idle.load(Ordering::Relaxed)
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
        self.scheduler.notify();
    }
}
