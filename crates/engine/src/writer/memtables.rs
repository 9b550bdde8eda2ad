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

    /// Puts a new memtable in place of the one of `keyspace`, which is empty. Readers that hold an
    /// earlier view see no later write.
    pub fn replace_empty(&mut self, catalog: &Catalog, keyspace: &KeyspaceCore, indexed: bool) {
        keyspace.publish(|view| {
            debug_assert!(view.memtables.first().is_some_and(|active| active.is_empty()), "it has entries");
            let fresh: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(indexed));
            let memtables = std::iter::once(fresh).chain(view.memtables.iter().skip(1).cloned()).collect();
            view.next(memtables, Arc::clone(&view.version))
        });
        self.renew(catalog);
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

#[cfg(test)]
mod tests {
    use shamba_key::{EntryKind, KeyDigest, SeqNo};
    use shamba_log::wal::{OpRef, ValueLogs};
    use shamba_memtable::FoldedValues;
    use shamba_table::{Entry, EntryIter, FragmentedTombstones, RangeTombstone};

    use super::super::WriteOptions;
    use super::*;
    use crate::catalog::DEFAULT_KEYSPACE;
    use crate::options::settings::Settings;
    use crate::testing::{MemtableLimit, Parts};

    const USERS: KeyspaceId = KeyspaceId(7);

    /// Parts with a second keyspace, and their active memtables.
    fn active() -> (Parts, ActiveMemtables) {
        let parts = Parts::new(Settings::default());
        let memtable = ChunkedMemtable::new(false);
        let users =
            KeyspaceCore::new(USERS, "users".to_owned(), Arc::default(), memtable, None, Arc::default());
        parts.catalog.add_keyspace(&Arc::new(users));
        let mut active = ActiveMemtables::new(parts.memory.ledger());
        active.renew(&parts.catalog);
        (parts, active)
    }

    fn insert(parts: &Parts, active: &ActiveMemtables, keyspace: KeyspaceId, seq: u64) {
        let digest = parts.reads.digest().digest(b"key");
        let memtable = active.get(keyspace).expect("it has one");
        memtable.insert(digest, b"key", SeqNo(seq), EntryKind::Put, &[1; 1_000]);
    }

    fn charged(parts: &Parts) -> u64 {
        parts.memory.ledger().bytes(LedgerPart::Memtables)
    }

    #[test]
    fn sealed_memtables_keep_a_charge_for_the_bytes_in_all_of_them() {
        let (parts, mut active) = active();
        active.reserve(10_000, 1 << 30, MemtableLimit::none().as_ref());
        insert(&parts, &active, KeyspaceId::DEFAULT, 1);
        insert(&parts, &active, USERS, 2);
        insert(&parts, &active, USERS, 3);
        let bytes = active.bytes();
        assert!(bytes > 3_000 && charged(&parts) > bytes);
        let sealed = active.seal(&parts.catalog, false);
        let ids: Vec<_> = sealed.members.iter().map(|(keyspace, _)| keyspace.id).collect();
        assert_eq!((ids, sealed.bytes), (vec![KeyspaceId::DEFAULT, USERS], bytes));
        assert_eq!((sealed.charge.bytes(), charged(&parts)), (bytes, bytes), "without the reserve");
        // A memtable that is empty stays.
        insert(&parts, &active, USERS, 4);
        let users_bytes = active.get(USERS).expect("it has one").bytes();
        let next = active.seal(&parts.catalog, false);
        assert_eq!((next.members.len(), next.bytes), (1, users_bytes));
        drop((sealed, next));
        assert_eq!(charged(&parts), 0);
    }

    #[test]
    fn memory_is_charged_again_when_more_is_needed_than_is_charged() {
        const BUDGET_BYTES: u64 = 64 << 20;
        let (parts, mut active) = active();
        let memory = MemtableLimit::none();
        let (needed, first) = memtable_charge(BUDGET_BYTES, active.bytes(), 0);
        active.reserve(0, BUDGET_BYTES, memory.as_ref());
        assert_eq!(charged(&parts), first);
        // The records that need exactly what is charged, and one byte more of them.
        let coming = (first - needed) / 2;
        assert_eq!(memtable_charge(BUDGET_BYTES, active.bytes(), coming).0, first);
        active.reserve(coming, BUDGET_BYTES, memory.as_ref());
        assert_eq!(charged(&parts), first, "it is enough");
        active.reserve(coming + 1, BUDGET_BYTES, memory.as_ref());
        assert_eq!(charged(&parts), memtable_charge(BUDGET_BYTES, active.bytes(), coming + 1).1);
    }

    #[test]
    fn the_charge_of_a_replay_lives_as_long_as_its_memtables() {
        let (parts, mut active) = active();
        active.take_charge(Charge::new(parts.memory.ledger(), LedgerPart::Memtables, 5_000));
        assert_eq!(charged(&parts), 5_000);
        insert(&parts, &active, USERS, 1);
        let sealed = active.seal(&parts.catalog, false);
        assert_eq!(charged(&parts), sealed.bytes);
    }

    #[test]
    fn a_generation_has_the_time_of_its_first_tombstone() {
        let (parts, mut active) = active();
        assert_eq!(active.oldest_tombstone_ms(), None);
        active.note_tombstone(|| 5);
        active.note_tombstone(|| 9);
        assert_eq!(active.oldest_tombstone_ms(), Some(5));
        insert(&parts, &active, USERS, 1);
        assert_eq!(active.seal(&parts.catalog, false).oldest_tombstone_ms, Some(5));
        assert_eq!(active.oldest_tombstone_ms(), None);
        active.note_tombstone(|| 9);
        assert_eq!(active.oldest_tombstone_ms(), Some(9));
    }

    /// A memtable that is full from some number of entries on.
    struct FullAt(u64, ChunkedMemtable);

    impl Memtable for FullAt {
        fn insert(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
            self.1.insert(digest, key, seq, kind, value);
        }

        fn prefetch(&self, digest: KeyDigest) {
            self.1.prefetch(digest);
        }

        fn insert_range_delete(&self, tombstone: RangeTombstone) {
            self.1.insert_range_delete(tombstone);
        }

        fn get(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry> {
            self.1.get(digest, key, seq)
        }

        fn folded(&self) -> &FoldedValues {
            self.1.folded()
        }

        fn has_range_deletes(&self) -> bool {
            self.1.has_range_deletes()
        }

        fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
            self.1.range_tombstones()
        }

        fn bytes(&self) -> u64 {
            self.1.bytes()
        }

        fn is_full(&self) -> bool {
            self.1.entries() >= self.0
        }

        fn entries(&self) -> u64 {
            self.1.entries()
        }

        fn is_empty(&self) -> bool {
            self.1.is_empty()
        }

        fn largest_seq(&self) -> SeqNo {
            self.1.largest_seq()
        }

        fn iter(self: Arc<Self>) -> Box<dyn EntryIter> {
            unreachable!("the test reads no entries")
        }

        fn values(&self) -> &ValueLogs {
            self.1.values()
        }
    }

    #[test]
    fn a_memtable_that_can_address_little_more_is_sealed_whatever_the_write_buffer() {
        let parts = Parts::new(Settings::default());
        let writer = parts.writer(MemtableLimit::none());
        let keyspace = parts.catalog.named(DEFAULT_KEYSPACE).expect("it exists");
        let full: Arc<dyn Memtable> = Arc::new(FullAt(2, ChunkedMemtable::new(false)));
        keyspace.publish(|view| view.next(vec![Arc::clone(&full)], Arc::clone(&view.version)));
        writer.writing.lock().active.renew(&parts.catalog);
        let put = |key: &[u8]| {
            let op = OpRef::Put { key, value: b"v" };
            writer.commit_op(&keyspace, op, WriteOptions::new()).expect("written");
            (writer.sealed().len(), writer.writing.lock().active.is_empty())
        };
        assert_eq!(put(b"a"), (0, false));
        assert_eq!(put(b"b"), (1, true), "it is full");
        assert_eq!(put(b"c"), (1, false));
    }
}
