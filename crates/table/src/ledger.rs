//! The ledger: who holds how many bytes.
//!
//! One counter a part and one for the sum, changed with relaxed atomics: a reading is a moment's figure, and
//! the parts of one reading may be of slightly different moments. The sum's highest value is kept, so that a
//! test or an operator can tell whether a budget ever was exceeded. Consumers charge before they allocate.
//!
//! Not here: what to do about a sum that nears its budget, which is decided above.

use std::fmt;
use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

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
    /// Flushes and merges at work: what merges read ahead; of tables being built gathered bytes, digests, filters,
    /// separators.
    WriteBuffers,
    /// Open iterators: themselves, what they found and read ahead, blocks that have no frame in the cache.
    Iterators,
    /// Log records on their way to the operating system.
    Logs,
}

impl LedgerPart {
    /// Every part.
    pub const ALL: [Self; 8] = [
        Self::Memtables,
        Self::BlockCache,
        Self::Filters,
        Self::Indexes,
        Self::TableMeta,
        Self::WriteBuffers,
        Self::Iterators,
        Self::Logs,
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
            Self::Logs => "logs",
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
    total: AtomicU64,
    peak: AtomicU64,
    /// What [`Charge::try_resize`] leaves a part at; 0: no limit.
    limits: [AtomicU64; LedgerPart::ALL.len()],
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `bytes` more for `part`.
    pub fn charge(&self, part: LedgerPart, bytes: u64) {
        self.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Counts `bytes` less for `part`; what was never charged must not be released.
    pub fn release(&self, part: LedgerPart, bytes: u64) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        let before = self.parts[part as usize].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{part}: released {bytes} of {before} bytes");
    }

    /// From now on [`Charge::try_resize`] does not take `part` beyond `bytes`.
    pub fn limit(&self, part: LedgerPart, bytes: u64) {
        self.limits[part as usize].store(bytes.max(1), Ordering::Relaxed);
    }

    fn has_room(&self, part: LedgerPart, more_bytes: u64) -> bool {
        let limit_bytes = self.limits[part as usize].load(Ordering::Relaxed);
        limit_bytes == 0 || self.bytes(part).saturating_add(more_bytes) <= limit_bytes
    }

    /// What `part` holds now.
    pub fn bytes(&self, part: LedgerPart) -> u64 {
        self.parts[part as usize].load(Ordering::Relaxed)
    }

    /// What all parts hold now.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The most that all parts together have held since the ledger was made, or the peak was reset.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets the peak: it is what is held now.
    pub fn reset_peak(&self) {
        self.peak.store(self.total(), Ordering::Relaxed);
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

impl Charge {
    /// [`Self::resize`], for what its user can do without: false, and nothing changed, if the part's limit stands against
    /// it. Two at once may pass it by what one of them asks for.
    #[must_use]
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.bytes || self.ledger.has_room(self.part, bytes - self.bytes);
        if fits {
            self.resize(bytes);
        }
        fits
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
        assert_eq!((ledger.total(), ledger.peak()), (0, 110));
        ledger.reset_peak();
        assert_eq!(ledger.peak(), 0);
    }

    #[test]
    fn a_limit_binds_only_those_who_can_do_without() {
        let ledger = Arc::new(Ledger::new());
        let mut ahead = Charge::new(&ledger, LedgerPart::Iterators, 10);
        assert!(ahead.try_resize(1_000), "no limit so far");
        ahead.resize(10);
        ledger.limit(LedgerPart::Iterators, 100);
        assert!(ahead.try_resize(90) && ahead.try_resize(100) && !ahead.try_resize(101));
        assert_eq!(ledger.bytes(LedgerPart::Iterators), 100);
        let mut needed = Charge::new(&ledger, LedgerPart::Iterators, 0);
        needed.resize(50);
        assert!(!ahead.try_resize(101) && ahead.try_resize(40));
        let mut filters = Charge::new(&ledger, LedgerPart::Filters, 0);
        assert!(filters.try_resize(1_000), "each part has its own");
    }
}
