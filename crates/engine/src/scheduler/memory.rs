//! Memory as flushes and compactions see it: charges, the size of tables, and the filters and
//! indexes of new ones.

use std::sync::Arc;

use shamba_table::{Charge, LedgerPart, TableReader, VALUE_WRITER_BYTES};
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::version::TableMeta;

use super::threads::unrestricted_compaction_threads;
use crate::error::Result;
use crate::memory::Reservation;
use crate::options::overrides::Overrides;
use crate::options::settings::Settings;
use crate::residency::ResidencyManager;
use crate::table_files::output::OutputMemory;

/// The memory that flushes and compactions take and free.
pub(super) struct MemoryLink {
    residency: Arc<ResidencyManager>,
    settings: Arc<Settings>,
    /// Number of threads that build a table each.
    threads: usize,
}

impl MemoryLink {
    /// The memory that `residency` shares, for this number of compaction threads.
    pub fn new(residency: Arc<ResidencyManager>, settings: Arc<Settings>, threads: usize) -> Self {
        // A small budget's second thread does not make tables smaller: it helps only where the
        // table size leaves memory.
        let threads = threads.min(unrestricted_compaction_threads(settings.budget_bytes()));
        assert!(threads > 0, "no thread has memory for a compaction");
        Self { residency, settings, threads }
    }

    /// Table size at which outputs of a keyspace with these settings are finished now.
    pub fn table_size(&self, overrides: &Overrides) -> TableSize {
        self.table_size_beside(overrides, 0, 0)
    }

    /// Table size, counting `count` written tables of `bytes` in total that are in no tree yet.
    pub fn table_size_beside(&self, overrides: &Overrides, count: u64, bytes: u64) -> TableSize {
        let tables = self.residency.memory().tables().and(count, bytes);
        TableSize::new(
            overrides.table_bytes(&self.settings),
            tables,
            self.settings.budget_bytes(),
            self.threads,
        )
    }

    /// Memory for one slice of a compaction into tables of this size, of an amount in bytes and
    /// entries. `separates`: it may write a value file.
    pub fn slice_bytes(&self, size: TableSize, amount: (u64, u64), separates: bool) -> u64 {
        let of_values = if separates { VALUE_WRITER_BYTES } else { 0 };
        self.residency.memory().job_bytes(size.building_bytes(amount) + of_values)
    }

    /// A new charge for `bytes` of a job, after room was made for them.
    pub fn charged(&self, bytes: u64) -> Charge {
        let mut charge = Charge::new(self.residency.memory().ledger(), LedgerPart::WriteBuffers, 0);
        self.fit(&mut charge, bytes);
        charge
    }

    /// Sets a charge to `bytes`, after room was made for more than it has.
    pub fn fit(&self, charge: &mut Charge, bytes: u64) {
        // Most jobs have nothing to charge, and need no balance.
        if bytes != charge.bytes() {
            self.residency.memory().charge(charge, bytes);
        }
    }

    /// Reserves `bytes` for a slice; `None` if it must not begin now.
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        self.residency.memory().reserve(bytes)
    }

    /// Loads the filters and indexes of tables that were just published, as far as there is memory.
    pub fn hold_published(&self, new: &[Arc<TableMeta>]) {
        self.residency.hold_published(new);
    }

    /// Gives the block cache the memory that a job has freed.
    pub fn balance(&self) {
        self.residency.memory().balance();
    }

    /// Follows the target of a shared budget; true if memtables must be flushed for that.
    pub fn follow_budget(&self) -> bool {
        self.residency.memory().follow_budget()
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

    fn make_room(&self, bytes: u64) -> Reservation {
        self.residency.memory().make_room(bytes)
    }

    fn extend(&self, reservation: &mut Reservation, bytes: u64) -> bool {
        self.residency.memory().extend(reservation, bytes)
    }

    fn hold_early(&self, reader: &TableReader) -> Result<()> {
        self.residency.hold_early(reader)
    }
}
