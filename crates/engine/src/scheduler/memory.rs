//! Memory as flushes and compactions see it.
//!
//! [`JobMemory`] is implemented by what divides the memory budget, which is above this part: it is
//! connected once, when the database is composed.

use std::sync::{Arc, OnceLock, Weak};

use shamba_table::{Charge, TableReader};
use shamba_tree::compaction::table_size::{TableSize, Tables};
use shamba_tree::version::TableMeta;

use crate::error::Result;
use crate::table_files::output::OutputMemory;

/// The memory that flushes and compactions take and free.
pub(crate) trait JobMemory: OutputMemory + Send + Sync {
    /// Table size at which outputs are finished now, counting `count` written tables of `bytes` in
    /// total that are in no tree yet.
    fn table_size_beside(&self, count: u64, bytes: u64) -> TableSize;

    /// Loads the filters and indexes of tables that were just published, as far as there is memory.
    fn hold_published(&self, new: &[Arc<TableMeta>]);

    /// Gives the block cache the memory that a job has freed.
    fn balance(&self);

    /// Whether no write has come for a while.
    fn writes_idle(&self) -> bool;
}

/// The connection to the memory.
#[derive(Default)]
pub(super) struct MemoryLink(OnceLock<Weak<dyn JobMemory>>);

impl MemoryLink {
    /// Sets the memory; later calls have no effect.
    pub fn connect(&self, memory: Weak<dyn JobMemory>) {
        let _ = self.0.set(memory);
    }

    fn get(&self) -> Option<Arc<dyn JobMemory>> {
        self.0.get()?.upgrade()
    }

    /// Table size at which outputs are finished now; `set_bytes` is the configured one.
    pub fn table_size(&self, set_bytes: u64) -> TableSize {
        self.table_size_beside(set_bytes, 0, 0)
    }

    /// [`JobMemory::table_size_beside`]; without memory the configured size.
    pub fn table_size_beside(&self, set_bytes: u64, count: u64, bytes: u64) -> TableSize {
        self.get().map_or_else(
            || TableSize::new(set_bytes, Tables::default(), u64::MAX, 1),
            |memory| memory.table_size_beside(count, bytes),
        )
    }

    /// [`JobMemory::hold_published`].
    pub fn hold_published(&self, new: &[Arc<TableMeta>]) {
        if let Some(memory) = self.get() {
            memory.hold_published(new);
        }
    }

    /// [`JobMemory::balance`].
    pub fn balance(&self) {
        if let Some(memory) = self.get() {
            memory.balance();
        }
    }

    /// [`JobMemory::writes_idle`].
    pub fn writes_idle(&self) -> bool {
        self.get().is_some_and(|memory| memory.writes_idle())
    }
}

impl OutputMemory for MemoryLink {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        match self.get() {
            Some(memory) => memory.charge(charge, bytes),
            None => charge.resize(bytes),
        }
    }

    fn make_room(&self, bytes: u64) {
        if let Some(memory) = self.get() {
            memory.make_room(bytes);
        }
    }

    fn hold_early(&self, reader: &TableReader) -> Result<()> {
        self.get().map_or(Ok(()), |memory| memory.hold_early(reader))
    }
}
