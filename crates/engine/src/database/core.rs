//! The parts of an open database, held by every handle.
//!
//! [`Core`] only puts them together ([`super::compose`]), starts and stops their threads, and holds
//! the lock of the directory. A thread holds the part whose work it does, not the core, so that the
//! drop of the last handle is noticed.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, FileLock};
use shamba_table::{Charge, LedgerPart, Residency};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::memory::MemoryManager;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::residency::ResidencyManager;
use crate::scheduler::{Scheduler, Worker};
use crate::statistics::SavedStatistics;
use crate::sync::Mutex;
use crate::table_files::TableFiles;
use crate::telemetry::Telemetry;
use crate::trace::{BUFFER_BYTES, Recorder, Recording};
use crate::tuning::DesignTuning;
use crate::workload::WorkloadObserver;
use crate::writer::Writer;

/// An open database.
pub(crate) struct Core {
    pub env: Env,
    pub settings: Arc<Settings>,
    pub telemetry: Arc<Telemetry>,
    pub lifecycle: Arc<Lifecycle>,
    pub recorder: Arc<Recorder>,
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
    pub file_lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Core {
    /// Starts the threads of all parts; none in an environment without threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start_workers(&self) -> Result<()> {
        let mut others = Vec::new();
        if !self.lifecycle.is_read_only() {
            let (writer, tuning) = (Arc::clone(&self.writer), Arc::clone(&self.tuning));
            others.push(Worker::new("shamba-sync", false, move || writer.run_syncs()));
            others.push(Worker::new("shamba-tune", true, move || tuning.work()));
        }
        if self.settings.filter_residency != Residency::Pinned {
            let residency = Arc::clone(&self.residency);
            others.push(Worker::new("shamba-memory", true, move || residency.work()));
        }
        // Running threads would keep the parts, and their files, for ever.
        self.scheduler.start(others).inspect_err(|_| self.stop_workers())
    }

    /// Tells the threads to stop and waits for them.
    pub fn stop_workers(&self) {
        self.scheduler.stop();
        self.residency.stop();
        self.tuning.stop();
        self.writer.stop_syncs();
        self.scheduler.join();
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
