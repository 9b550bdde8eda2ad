//! Memory as flushes and compactions see it: charges, the size of tables, and the filters and
//! indexes of new ones.

use std::sync::Arc;

use shamba_table::{Charge, TableReader};
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::version::TableMeta;

use super::threads::unrestricted_compaction_threads;
use crate::error::Result;
use crate::options::settings::Settings;
use crate::residency::ResidencyManager;
use crate::table_files::output::OutputMemory;

/// The memory that flushes and compactions take and free.
pub(super) struct MemoryLink {
    residency: Arc<ResidencyManager>,
    budget_bytes: u64,
    /// Number of threads that build a table each.
    threads: usize,
}

impl MemoryLink {
    /// The memory that `residency` shares, for this number of compaction threads.
    pub fn new(residency: Arc<ResidencyManager>, settings: &Settings, threads: usize) -> Self {
        let budget_bytes = settings.memory_budget_bytes;
        // A small budget's second thread does not make tables smaller: it helps only where the
        // table size leaves memory.
        let threads = threads.min(unrestricted_compaction_threads(budget_bytes));
        assert!(threads > 0, "no thread has memory for a compaction");
        Self { residency, budget_bytes, threads }
    }

    /// Table size at which outputs are finished now; `set_bytes` is the configured one.
    pub fn table_size(&self, set_bytes: u64) -> TableSize {
        self.table_size_beside(set_bytes, 0, 0)
    }

    /// Table size, counting `count` written tables of `bytes` in total that are in no tree yet.
    pub fn table_size_beside(&self, set_bytes: u64, count: u64, bytes: u64) -> TableSize {
        let tables = self.residency.memory().tables().and(count, bytes);
        TableSize::new(set_bytes, tables, self.budget_bytes, self.threads)
    }

    /// Loads the filters and indexes of tables that were just published, as far as there is memory.
    pub fn hold_published(&self, new: &[Arc<TableMeta>]) {
        self.residency.hold_published(new);
    }

    /// Gives the block cache the memory that a job has freed.
    pub fn balance(&self) {
        self.residency.memory().balance();
    }

    /// Whether no write has come for a while.
    pub fn writes_idle(&self) -> bool {
        self.residency.memory().writes_idle()
    }
}

impl OutputMemory for MemoryLink {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        self.residency.memory().charge(charge, bytes);
    }

    fn make_room(&self, bytes: u64) {
        self.residency.memory().make_room(bytes);
    }

    fn hold_early(&self, reader: &TableReader) -> Result<()> {
        self.residency.hold_early(reader)
    }
}
