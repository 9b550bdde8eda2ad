//! Where memory goes: counted bytes by part, beside what the operating system says.
//!
//! Counted, not yet a bound on every part: the block cache keeps to its share of the budget, memtables to
//! the write buffer; filters and indexes are resident whole.

use std::fmt;

use shamba_table::LedgerPart;

use crate::core::{Core, lock};

/// Counted bytes by part.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The budget that was set.
    pub budget_bytes: u64,
    /// Parts and their bytes.
    pub parts: Vec<(String, u64)>,
    /// Their sum.
    pub ledger_bytes: u64,
    /// What the operating system counts as resident for the whole process; `None` where it does not say.
    pub rss_bytes: Option<u64>,
}

impl Core {
    pub(crate) fn memory(&self) -> MemoryReport {
        let keyspaces = self.keyspaces.load();
        let memtable_bytes: u64 = keyspaces
            .values()
            .map(|keyspace| keyspace.load().memtables.iter().map(|memtable| memtable.bytes()).sum::<u64>())
            .sum();
        let log_bytes = lock(&self.writing).wal.as_ref().map_or(0, crate::wal::WalWriter::buffered);
        let mut parts = vec![("memtables".to_owned(), memtable_bytes), ("log buffer".to_owned(), log_bytes)];
        for part in LedgerPart::ALL {
            if part != LedgerPart::Memtables {
                parts.push((part.name().to_owned(), self.ledger.bytes(part)));
            }
        }
        let ledger_bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let rss_bytes = shamba_env::process_rss_bytes();
        MemoryReport { budget_bytes: self.settings.memory_budget_bytes, parts, ledger_bytes, rss_bytes }
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, bytes) in &self.parts {
            writeln!(f, "{part:<18}{bytes:>14}")?;
        }
        write!(f, "{:<18}{:>14}", "counted", self.ledger_bytes)?;
        if let Some(rss_bytes) = self.rss_bytes {
            write!(f, "\n{:<18}{rss_bytes:>14}", "resident (process)")?;
        }
        Ok(())
    }
}
