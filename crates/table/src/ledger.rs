//! The ledger: bytes held by each consumer of memory.
//!
//! The ledger has one counter per part and one for the total, changed with relaxed atomics. A
//! reading is a snapshot whose parts may be from slightly different moments. The maximum of the
//! total is kept, so that a test or an operator can check whether a budget was ever exceeded.
//! Consumers charge before they allocate.
//!
//! Not here: the reaction when the sum approaches its budget.

use std::fmt;
use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Declares the parts of the ledger, each once with its name in output.
macro_rules! parts {
    ($($(#[doc = $doc:literal])+ $part:ident = $name:literal,)+) => {
        /// A consumer of memory.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum LedgerPart {
            $($(#[doc = $doc])+ $part,)+
        }

        impl LedgerPart {
            /// All parts.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$part),+];

            /// The name in output.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$part => $name,)+
                }
            }
        }
    };
}

parts! {
    /// Entries not yet in tables.
    Memtables = "memtables",
    /// Blocks in the block cache.
    BlockCache = "block cache",
    /// Resident filter slices.
    Filters = "filters",
    /// Resident index partitions.
    Indexes = "indexes",
    /// Open tables: bounds, properties, range tombstones.
    TableMeta = "table metadata",
    /// Running flushes and compactions: read-ahead of compactions; write buffers, digests, filters
    /// and separators of tables being built.
    WriteBuffers = "write buffers",
    /// Open iterators: their state, their read-ahead, and blocks without a frame in the cache.
    Iterators = "iterators",
    /// Log records not yet written to the operating system.
    Logs = "logs",
    /// The record cache.
    Records = "record cache",
    /// Open transactions: what they have written and read.
    Transactions = "transactions",
}

impl LedgerPart {
    /// Whether its memory is divided by what it saves there. Other parts take what they need, and
    /// no design changes that.
    pub fn is_divided(self) -> bool {
        match self {
            Self::Memtables | Self::BlockCache | Self::Filters | Self::Indexes => true,
            Self::TableMeta
            | Self::WriteBuffers
            | Self::Iterators
            | Self::Logs
            | Self::Records
            | Self::Transactions => false,
        }
    }
}

impl fmt::Display for LedgerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counters of the bytes that each part holds.
#[derive(Debug, Default)]
pub struct Ledger {
    parts: [AtomicU64; LedgerPart::ALL.len()],
    total: AtomicU64,
    peak: AtomicU64,
    /// Limit of each part for [`Charge::try_resize`]; 0: no limit.
    limits: [AtomicU64; LedgerPart::ALL.len()],
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes` to `part`.
    pub fn charge(&self, part: LedgerPart, bytes: u64) {
        if bytes == 0 {
            return; // Many charges are of nothing, and all threads write to the sums.
        }
        self.parts[part as usize].fetch_add(bytes, Ordering::Relaxed);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed) + bytes;
        debug_assert!(total >= bytes, "{part}: the total overflows with {bytes} more bytes");
        if total > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Subtracts `bytes` from `part`; they must have been charged.
    pub fn release(&self, part: LedgerPart, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before_all = self.total.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before_all >= bytes, "{part}: released {bytes} of {before_all} bytes in all");
        let before = self.parts[part as usize].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{part}: released {bytes} of {before} bytes");
    }

    /// Sets the limit of `part` for [`Charge::try_resize`].
    pub fn limit(&self, part: LedgerPart, bytes: u64) {
        self.limits[part as usize].store(bytes.max(1), Ordering::Relaxed);
    }

    fn has_room(&self, part: LedgerPart, more_bytes: u64) -> bool {
        let limit_bytes = self.limits[part as usize].load(Ordering::Relaxed);
        limit_bytes == 0 || self.bytes(part).saturating_add(more_bytes) <= limit_bytes
    }

    /// Bytes that `part` holds.
    pub fn bytes(&self, part: LedgerPart) -> u64 {
        self.parts[part as usize].load(Ordering::Relaxed)
    }

    /// Bytes that all parts hold.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Maximum of the total since the ledger was created.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Bytes charged until this value is dropped.
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

    /// Bytes charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the charge to `bytes`.
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
    /// [`Self::resize`] for optional memory: returns false, without a change, if the part's limit
    /// would be exceeded. Concurrent calls can together exceed the limit by the size of one of
    /// them.
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
