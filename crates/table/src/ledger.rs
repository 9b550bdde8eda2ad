//! The ledger: who holds how many bytes.
//!
//! One counter a part, changed with relaxed atomics: a reading is a moment's figure, and the parts of one
//! reading may be of slightly different moments. It only counts; what to do about a total is decided above.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A consumer of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LedgerPart {
    /// Entries not yet in tables.
    Memtables,
    /// Data blocks kept after a read.
    BlockCache,
    /// Resident filter slices.
    Filters,
    /// Resident index partitions.
    Indexes,
    /// Open tables: bounds, properties, range tombstones.
    TableMeta,
    /// Tables being built.
    WriteBuffers,
    /// What iterators pin.
    Iterators,
}

impl LedgerPart {
    /// Every part.
    pub const ALL: [Self; 7] = [
        Self::Memtables,
        Self::BlockCache,
        Self::Filters,
        Self::Indexes,
        Self::TableMeta,
        Self::WriteBuffers,
        Self::Iterators,
    ];

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memtables => "memtables",
            Self::BlockCache => "block cache",
            Self::Filters => "filters",
            Self::Indexes => "indexes",
            Self::TableMeta => "table metadata",
            Self::WriteBuffers => "write buffers",
            Self::Iterators => "iterators",
        }
    }
}

impl fmt::Display for LedgerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counts the bytes that each part holds.
#[derive(Debug, Default)]
pub struct Ledger {
    parts: [AtomicU64; LedgerPart::ALL.len()],
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `bytes` more for `part`.
    pub fn charge(&self, part: LedgerPart, bytes: u64) {
        self.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` less for `part`; what was never charged must not be released.
    pub fn release(&self, part: LedgerPart, bytes: u64) {
        let before = self.parts[part as usize].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{part}: released {bytes} of {before} bytes");
    }

    /// What `part` holds now.
    pub fn bytes(&self, part: LedgerPart) -> u64 {
        self.parts[part as usize].load(Ordering::Relaxed)
    }

    /// What all parts hold now.
    pub fn total(&self) -> u64 {
        LedgerPart::ALL.into_iter().map(|part| self.bytes(part)).sum()
    }
}

/// Bytes charged for as long as this value lives.
#[derive(Debug)]
pub struct Charge {
    ledger: Arc<Ledger>,
    part: LedgerPart,
    bytes: u64,
}

impl Charge {
    /// Charges `bytes` to `part`.
    pub fn new(ledger: &Arc<Ledger>, part: LedgerPart, bytes: u64) -> Self {
        ledger.charge(part, bytes);
        Self { ledger: Arc::clone(ledger), part, bytes }
    }

    /// What is charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` instead of what was charged so far.
    pub fn resize(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            self.ledger.charge(self.part, bytes - self.bytes);
        } else {
            self.ledger.release(self.part, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.release(self.part, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_lives_as_long_as_its_value() {
        let ledger = Arc::new(Ledger::new());
        let mut filters = Charge::new(&ledger, LedgerPart::Filters, 100);
        let indexes = Charge::new(&ledger, LedgerPart::Indexes, 10);
        assert_eq!((ledger.bytes(LedgerPart::Filters), ledger.total()), (100, 110));
        filters.resize(40);
        assert_eq!((filters.bytes(), ledger.total()), (40, 50));
        filters.resize(60);
        drop(indexes);
        assert_eq!((ledger.bytes(LedgerPart::Indexes), ledger.total()), (0, 60));
        drop(filters);
        assert_eq!(ledger.total(), 0);
    }
}
