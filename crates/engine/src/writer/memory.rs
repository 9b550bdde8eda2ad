//! Memory as the writer needs it: charges for memtables and the log, and the size at which
//! memtables are sealed.

use shamba_table::Charge;

use crate::memory::MemoryManager;

/// The memory that a writer takes its share from.
pub(crate) trait WriterMemory: Send + Sync {
    /// Charges `bytes` in place of what `charge` held, after other parts have made room.
    fn charge(&self, charge: &mut Charge, bytes: u64);

    /// Bytes of memtables at which they are sealed. Called for each commit group.
    fn memtable_limit_bytes(&self) -> u64;
}

impl WriterMemory for MemoryManager {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        Self::charge(self, charge, bytes);
    }

    fn memtable_limit_bytes(&self) -> u64 {
        Self::memtable_limit_bytes(self)
    }
}
