//! Sealed generations: memtables that take no more writes, waiting for their flush.
//!
//! Generations are flushed in the order in which they were sealed. A generation stays in the queue
//! until its tables are installed, so the queue shows what is not in tables yet.

use std::collections::VecDeque;
use std::sync::Arc;

use shamba_key::{LogNo, SeqNo};
use shamba_log::wal::WalWriter;
use shamba_table::Charge;

use crate::catalog::{LogFile, Member};
use crate::lock_order;
use crate::ranked::Ranked;

/// A log that takes no more records.
pub(crate) type SealedLog = Arc<Ranked<WalWriter>>;

/// Memtables that were sealed together, with the log that holds their entries.
pub(crate) struct Generation {
    /// The sealed log; `None` without a log, and for entries that an open has replayed.
    pub log: Option<SealedLog>,
    /// The files of the logs that hold its entries; obsolete once the generation is in tables.
    pub log_files: Vec<LogFile>,
    /// The first log that is still needed once the generation is in tables.
    pub next_log: LogNo,
    /// The sealed memtables that are not empty.
    pub members: Vec<Member>,
    /// Every entry up to this number is in this generation or an earlier one.
    pub last_seq: SeqNo,
    /// Bytes appended to all logs before it was sealed.
    pub appended_bytes: u64,
    /// Bytes in the memtables.
    pub bytes: u64,
    /// Time of the oldest tombstone, in milliseconds since 1970-01-01 UTC, if there may be one.
    pub oldest_tombstone_ms: Option<u64>,
    /// Charge for the memtables, as long as the generation lives.
    pub _charge: Charge,
}

/// The sealed generations that are not flushed yet. Its lock is a leaf.
pub(crate) struct SealedGenerations {
    /// Oldest first.
    queue: Ranked<VecDeque<Arc<Generation>>>,
}

impl Default for SealedGenerations {
    fn default() -> Self {
        Self { queue: Ranked::new(lock_order::SEALED, VecDeque::new()) }
    }
}

impl SealedGenerations {
    /// Adds the newest generation.
    pub(super) fn seal(&self, generation: Generation) {
        let mut queue = self.queue.lock();
        assert!(
            queue.back().is_none_or(|newest| newest.last_seq <= generation.last_seq),
            "a generation is sealed after a newer one"
        );
        debug_assert!(
            generation.members.is_sorted_by(|(one, _), (next, _)| one.id < next.id),
            "a keyspace has two memtables in a generation"
        );
        queue.push_back(Arc::new(generation));
    }

    /// The generation to be flushed next.
    pub fn oldest(&self) -> Option<Arc<Generation>> {
        self.queue.lock().front().cloned()
    }

    /// Removes the oldest generation, whose tables are installed, and returns it.
    pub fn flushed(&self) -> Option<Arc<Generation>> {
        self.queue.lock().pop_front()
    }

    /// Whether every sealed generation is flushed.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Number of generations.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Bytes in all of their memtables.
    pub fn bytes(&self) -> u64 {
        self.queue.lock().iter().map(|generation| generation.bytes).sum()
    }

    /// Whether every sealed entry up to `seq` is in tables.
    pub fn is_flushed(&self, seq: SeqNo) -> bool {
        self.queue.lock().front().is_none_or(|oldest| oldest.last_seq > seq)
    }
}

#[cfg(test)]
mod tests {
    use shamba_table::{Ledger, LedgerPart};

    use super::*;

    fn generation(ledger: &Arc<Ledger>, last_seq: u64, bytes: u64) -> Generation {
        Generation {
            appended_bytes: 0,
            log: None,
            log_files: Vec::new(),
            next_log: LogNo(1),
            members: Vec::new(),
            last_seq: SeqNo(last_seq),
            bytes,
            oldest_tombstone_ms: None,
            _charge: Charge::new(ledger, LedgerPart::Memtables, bytes),
        }
    }

    #[test]
    fn generations_are_flushed_in_order_and_free_their_memory() {
        let ledger = Arc::new(Ledger::new());
        let sealed = SealedGenerations::default();
        assert!(sealed.is_empty() && sealed.oldest().is_none() && sealed.is_flushed(SeqNo(9)));
        sealed.seal(generation(&ledger, 4, 100));
        sealed.seal(generation(&ledger, 7, 20));
        assert_eq!((sealed.len(), sealed.bytes()), (2, 120));
        assert_eq!(sealed.oldest().map(|oldest| oldest.last_seq), Some(SeqNo(4)));
        assert!(sealed.is_flushed(SeqNo(3)) && !sealed.is_flushed(SeqNo(4)));
        assert_eq!(sealed.flushed().map(|flushed| flushed.bytes), Some(100));
        assert!(sealed.is_flushed(SeqNo(4)) && !sealed.is_flushed(SeqNo(7)));
        assert_eq!(ledger.bytes(LedgerPart::Memtables), 20, "the first one's memory is free");
        drop(sealed.flushed());
        assert!(sealed.is_empty() && sealed.flushed().is_none());
        assert_eq!(ledger.bytes(LedgerPart::Memtables), 0);
    }
}
