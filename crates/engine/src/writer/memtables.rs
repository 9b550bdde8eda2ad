//! The active memtables: those that take writes, one for each keyspace.
//!
//! Their memory is charged before they grow. They are sealed together: the views of their keyspaces
//! get new, empty memtables in front of them. All of them share the time of their oldest tombstone:
//! so a delete costs one comparison, and the clock is read once for each generation.

use std::sync::Arc;

use shamba_key::KeyspaceId;
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_model::memory::memtable_charge;
use shamba_table::{Charge, Ledger, LedgerPart};

use super::memory::WriterMemory;
use crate::catalog::{Catalog, KeyspaceCore, Member};

/// Memtables that were sealed together.
pub(super) struct Sealed {
    /// The ones that are not empty.
    pub members: Vec<Member>,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Time of the oldest tombstone, in milliseconds since 1970-01-01 UTC, if there may be one.
    pub oldest_tombstone_ms: Option<u64>,
    /// The charge for these bytes.
    pub charge: Charge,
}

/// The active memtable of each keyspace, for the commit path.
pub(super) struct ActiveMemtables {
    /// In the order of keyspace ids.
    by_keyspace: Vec<(KeyspaceId, Arc<dyn Memtable>)>,
    ledger: Arc<Ledger>,
    /// Made before the memtables grow.
    charge: Charge,
    /// Time of the oldest tombstone in any of them, if there may be one.
    oldest_tombstone_ms: Option<u64>,
}

impl ActiveMemtables {
    /// No memtables yet; their memory will be charged to `ledger`.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            by_keyspace: Vec::new(),
            ledger: Arc::clone(ledger),
            charge: Charge::new(ledger, LedgerPart::Memtables, 0),
            oldest_tombstone_ms: None,
        }
    }

    /// Takes over the charge for memtables that a replay has filled.
    pub fn take_charge(&mut self, charge: Charge) {
        assert_eq!(self.charge.bytes(), 0, "memtables of a replay were charged twice");
        self.charge = charge;
    }

    /// Looks up the newest memtable of every keyspace, after these or the list of keyspaces have
    /// changed.
    pub fn renew(&mut self, catalog: &Catalog) {
        let newest = |keyspace: &Arc<KeyspaceCore>| {
            keyspace.load().memtables.first().map(|memtable| (keyspace.id, Arc::clone(memtable)))
        };
        self.by_keyspace = catalog.keyspaces().values().filter_map(newest).collect();
        debug_assert!(
            self.by_keyspace.is_sorted_by(|(id, _), (next, _)| id < next),
            "active memtables are not in the order of their keyspaces"
        );
    }

    /// The memtable of a keyspace; `None` after the keyspace was dropped.
    pub fn get(&self, keyspace: KeyspaceId) -> Option<&dyn Memtable> {
        let (id, first) = self.by_keyspace.first()?;
        if *id == keyspace {
            return Some(first.as_ref()); // The default keyspace, most of the time.
        }
        let at = self.by_keyspace.binary_search_by_key(&keyspace, |(id, _)| *id).ok()?;
        self.by_keyspace.get(at).map(|(_, memtable)| memtable.as_ref())
    }

    /// Notes that a tombstone was inserted now.
    #[inline]
    pub fn note_tombstone(&mut self, unix_ms: impl FnOnce() -> u64) {
        self.oldest_tombstone_ms.get_or_insert_with(unix_ms);
    }

    /// Time of the oldest tombstone, in milliseconds since 1970-01-01 UTC, if there may be one.
    pub fn oldest_tombstone_ms(&self) -> Option<u64> {
        self.oldest_tombstone_ms
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.by_keyspace.iter().map(|(_, memtable)| memtable.bytes()).sum()
    }

    /// Whether all of them are empty.
    pub fn is_empty(&self) -> bool {
        self.by_keyspace.iter().all(|(_, memtable)| memtable.is_empty())
    }

    /// Whether one of them is near the maximum that a memtable can address, whatever the write
    /// buffer.
    pub fn is_full(&self) -> bool {
        self.by_keyspace.iter().any(|(_, memtable)| memtable.is_full())
    }

    /// Charges the memory that the memtables may take after a group with `coming_bytes` of records,
    /// out of a budget of `budget_bytes`.
    pub fn reserve(&mut self, coming_bytes: u64, budget_bytes: u64, memory: &dyn WriterMemory) {
        let (needed_bytes, charge_bytes) = memtable_charge(budget_bytes, self.bytes(), coming_bytes);
        if needed_bytes > self.charge.bytes() {
            debug_assert!(charge_bytes >= needed_bytes, "memtables are charged less than they need");
            memory.charge(&mut self.charge, charge_bytes);
        }
    }

    /// Puts a new memtable, with a digest index if `indexed`, in front of each one that is not
    /// empty. Returns the latter with their charge.
    pub fn seal(&mut self, catalog: &Catalog, indexed: bool) -> Sealed {
        let mut members = Vec::new();
        let mut bytes = 0;
        for keyspace in catalog.keyspaces().values() {
            let Some(active) = keyspace.load().memtables.first().cloned() else { continue };
            if active.is_empty() {
                continue;
            }
            bytes += active.bytes();
            members.push((Arc::clone(keyspace), active));
            keyspace.publish(|view| {
                let fresh: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(indexed));
                let memtables = std::iter::once(fresh).chain(view.memtables.iter().cloned()).collect();
                view.next(memtables, Arc::clone(&view.version))
            });
        }
        self.renew(catalog);
        debug_assert!(self.is_empty(), "a memtable takes writes after it was sealed");
        let fresh = Charge::new(&self.ledger, LedgerPart::Memtables, 0);
        let mut charge = std::mem::replace(&mut self.charge, fresh);
        charge.resize(bytes); // From here on it only waits.
        Sealed { members, bytes, oldest_tombstone_ms: self.oldest_tombstone_ms.take(), charge }
    }
}
