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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_table::LedgerPart;

    use super::*;
    use crate::options::settings::Settings;
    use crate::testing::Parts;

    #[test]
    fn the_memory_of_a_database_charges_what_a_writer_takes() {
        let parts = Parts::new(Settings::default());
        let memory: &dyn WriterMemory = parts.memory.as_ref();
        let ledger = Arc::clone(parts.memory.ledger());
        let mut charge = Charge::new(&ledger, LedgerPart::Memtables, 0);
        for bytes in [4_096, 100] {
            memory.charge(&mut charge, bytes);
            assert_eq!((charge.bytes(), ledger.bytes(LedgerPart::Memtables)), (bytes, bytes));
        }
        assert_eq!(memory.memtable_limit_bytes(), parts.memory.memtable_limit_bytes());
    }
}
