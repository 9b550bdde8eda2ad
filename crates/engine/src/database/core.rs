//! The parts of an open database, held by every handle.
//!
//! [`Core`] only holds the parts ([`super::compose`] constructs them), starts and stops their
//! threads, and holds the lock of the directory. A thread has references to the parts that it works
//! for and not to the core, so that the drop of the last handle is noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shamba_env::{Env, FileLock, JoinHandle};
use shamba_table::{Charge, LedgerPart, Residency};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::memory::MemoryManager;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::reads::Reads;
use crate::residency::ResidencyManager;
use crate::scheduler::Scheduler;
use crate::statistics::SavedStatistics;
use crate::sync::thread::{ThreadId, current_id};
use crate::table_files::TableFiles;
use crate::telemetry::Telemetry;
use crate::trace::{BUFFER_BYTES, Recording, TraceRecorder};
use crate::tuning::DesignTuning;
use crate::workers::{Lane, Next, Steps, Waker, Workers};
use crate::workload::WorkloadObserver;
use crate::writer::Writer;

/// An open database.
pub(crate) struct Core {
    pub env: Env,
    pub settings: Arc<Settings>,
    pub telemetry: Arc<Telemetry>,
    pub lifecycle: Arc<Lifecycle>,
    pub recorder: Arc<TraceRecorder>,
    pub memory: Arc<MemoryManager>,
    pub catalog: Arc<Catalog>,
    pub reads: Arc<Reads>,
    pub residency: Arc<ResidencyManager>,
    pub filter_bits: Arc<FilterBits>,
    pub statistics: Arc<SavedStatistics>,
    pub workload: Arc<WorkloadObserver>,
    pub table_files: Arc<TableFiles>,
    pub writer: Arc<Writer>,
    pub scheduler: Arc<Scheduler>,
    pub tuning: Arc<DesignTuning>,
    pub workers: Workers,
    pub waker: Waker,
    pub sync_thread: Ranked<Option<JoinHandle>>,
    /// Set when that thread has begun.
    pub sync_thread_id: Arc<OnceLock<ThreadId>>,
    pub file_lock: Ranked<Option<Box<dyn FileLock>>>,
}

impl Core {
    /// Registers the database with the thread pool, and starts the thread that syncs its log;
    /// starts no thread in an environment without them.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start_workers(&self) -> Result<()> {
        let spawner = self.env.spawner.as_ref();
        if spawner.is_inline() {
            return Ok(());
        }
        self.scheduler.begin();
        let steps = Arc::new(DatabaseSteps {
            scheduler: Arc::clone(&self.scheduler),
            residency: Arc::clone(&self.residency),
            tuning: Arc::clone(&self.tuning),
            catalog: Arc::clone(&self.catalog),
            holds_filters: self.settings.filter_residency != Residency::Pinned
                || self.memory.member().is_some(),
            is_read_only: self.lifecycle.is_read_only(),
        });
        // If the start fails, the threads stop: otherwise they would hold the parts and their files
        // for ever.
        let joined = self.waker.join(&self.workers, spawner, steps);
        joined.and_then(|()| self.start_syncs()).inspect_err(|_| self.stop_workers())
    }

    /// The log has a thread of its own, because its syncs must not wait for work of the pool.
    fn start_syncs(&self) -> Result<()> {
        if self.lifecycle.is_read_only() {
            return Ok(());
        }
        let (writer, lifecycle) = (Arc::clone(&self.writer), Arc::clone(&self.lifecycle));
        let id = Arc::clone(&self.sync_thread_id);
        let body = Box::new(move || {
            let _ = id.set(current_id());
            if catch_unwind(AssertUnwindSafe(|| writer.run_syncs())).is_err() {
                lifecycle.fail(&Error::new(ErrorKind::ReadOnly, "the thread that syncs the log panicked"));
            }
        });
        let started = self.env.spawner.spawn("shamba-sync", body);
        let handle =
            started.map_err(|error| Error::with_source(ErrorKind::Io, "starting a worker", error))?;
        let earlier = self.sync_thread.lock().replace(handle);
        assert!(earlier.is_none(), "two threads sync the log of one database");
        Ok(())
    }

    /// Stops all work of threads for this database and waits for its end.
    pub fn stop_workers(&self) {
        self.scheduler.stop();
        self.residency.stop();
        self.tuning.stop();
        self.writer.stop_syncs();
        self.waker.leave();
        let thread = self.sync_thread.lock().take();
        // A callback for durable writes, which that thread calls, may drop the last handle.
        if self.sync_thread_id.get() == Some(&current_id()) {
            return; // It cannot wait for its own end.
        }
        if let Some(thread) = thread {
            let _ = thread.join(); // A panic was reported when it happened.
        }
    }

    /// Begins a recording of every operation.
    ///
    /// # Errors
    /// See [`crate::Db::record_trace`].
    pub fn record_trace(&self, path: &Path) -> Result<Recording> {
        self.lifecycle.check_open()?;
        let mut charge = Charge::new(self.memory.ledger(), LedgerPart::Logs, 0);
        self.memory.charge(&mut charge, BUFFER_BYTES as u64);
        self.writer.between_groups(|| self.recorder.begin(path, self.catalog.new_id(), charge))
    }
}

/// The work that the threads of a pool do for a database.
struct DatabaseSteps {
    scheduler: Arc<Scheduler>,
    residency: Arc<ResidencyManager>,
    tuning: Arc<DesignTuning>,
    catalog: Arc<Catalog>,
    /// Whether filters and indexes, or databases, compete for memory.
    holds_filters: bool,
    is_read_only: bool,
}

impl Steps for DatabaseSteps {
    fn limit(&self, lane: Lane) -> usize {
        match lane {
            Lane::Flush | Lane::Compaction => self.scheduler.limit(lane),
            Lane::Upkeep => usize::from(self.holds_filters || !self.is_read_only),
        }
    }

    fn step(&self, lane: Lane) -> Next {
        match lane {
            Lane::Flush | Lane::Compaction => self.scheduler.step(lane),
            Lane::Upkeep => {
                self.scheduler.follow_budget();
                self.catalog.expire_logs();
                let memory = self.holds_filters.then(|| self.residency.look());
                let tuning = (!self.is_read_only).then(|| self.tuning.look());
                Next::After(memory.into_iter().chain(tuning).min().unwrap_or(Duration::MAX))
            }
        }
    }

    fn panicked(&self, lane: Lane) {
        self.scheduler.panicked(lane);
    }
}
