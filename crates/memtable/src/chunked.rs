//! The memtable: an append-only arena, a digest index for lookups, sorted chunks for scans and
//! flushes.
//!
//! `insert` appends the entry to the [`super::arena`], puts it at the head of its digest's chain in
//! the [`super::index`], and adds it to the tail of the [`super::order`]. `get` walks the chain of
//! its digest. Readers take no lock. The writer's state is in a mutex that only writers lock, so
//! that two of them exclude each other.
//!
//! If a chain does not lead to the key's version in [`CHAIN_STEPS_MAX`] steps, the ordered side is
//! searched instead, whose cost does not depend on the number of versions. Such chains occur for an
//! old reader of a key that is overwritten often, and for colliding digests.
//!
//! Iteration is in [`super::iter`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{Entry, EntryIter, RangeTombstone, Value};

use super::arena::{Arena, Cursor, Entries, EntryRef};
use super::index::{DigestIndex, IndexWriter};
use super::iter::{ChunkedIter, Source};
use super::order::{Order, OrderWriter, Snapshot};
use super::{FoldedValues, Memtable, versions_by_get};
use crate::sync::{Mutex, PoisonError};
use shamba_log::wal::ValueLogs;
use shamba_table::FragmentedTombstones;

/// Maximum number of steps along a chain: by then it has cost as much as a search in the chunks.
const CHAIN_STEPS_MAX: usize = 32;

/// Memory of the bounds of a range tombstone besides their bytes: two allocations with their
/// reference counts.
const BOUNDS_EXTRA_BYTES: u64 = 100;

/// A memtable with its entries in an arena.
pub struct ChunkedMemtable {
    arena: Arena,
    /// `None`: lookups search the ordered side.
    index: Option<DigestIndex>,
    order: Order,
    writer: Mutex<Writer>,
    /// Set by the first: the drop of such a pointer visits all threads, and most memtables have
    /// none.
    range_deletes: OnceLock<ArcSwap<FragmentedTombstones>>,
    range_delete_count: AtomicU64,
    /// Bytes without the chunks, whose size readers change as well.
    bytes: AtomicU64,
    entries: AtomicU64,
    largest_seq: AtomicU64,
    is_full: AtomicBool,
    values: ValueLogs,
    folded: FoldedValues,
}

/// The state that only the writer uses, and all memory.
struct Writer {
    cursor: Cursor,
    index: Option<IndexWriter>,
    order: OrderWriter,
    /// The largest sequence number of an entry.
    newest: SeqNo,
    /// Memory of the bounds of the range tombstones.
    bounds_bytes: u64,
}

impl ChunkedMemtable {
    /// An empty memtable, with or without a digest index.
    pub fn new(is_indexed: bool) -> Self {
        let (arena, cursor) = Arena::new();
        let (index, index_writer) = is_indexed.then(DigestIndex::new).unzip();
        let (order, order_writer) = Order::new();
        let writer =
            Writer { cursor, index: index_writer, order: order_writer, newest: SeqNo::ZERO, bounds_bytes: 0 };
        Self {
            arena,
            index,
            order,
            writer: Mutex::new(writer),
            range_deletes: OnceLock::new(),
            range_delete_count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            largest_seq: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            values: ValueLogs::default(),
            folded: FoldedValues::default(),
        }
    }

    /// The newest entry of `key` up to `seq`.
    fn find(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<EntryRef> {
        // SAFETY: the borrow of this memtable outlives the call, and only its own references are
        // used.
        let entries = unsafe { self.reader() };
        let Some(index) = &self.index else { return self.order.find(entries, key, seq) };
        let mut next = index.find(digest);
        let mut steps = 0;
        while let Some(at) = next {
            let entry = entries.get(at);
            if entry.key == key && entry.seq <= seq {
                return Some(at);
            }
            steps += 1;
            if steps == CHAIN_STEPS_MAX {
                return self.order.find(entries, key, seq);
            }
            next = EntryRef::from_bits(entries.older(at).load(Ordering::Acquire));
        }
        None
    }
}

impl Source for ChunkedMemtable {
    /// A reader of this memtable's entries.
    ///
    /// # Safety
    /// The memtable is neither moved nor dropped during `'a`, and only references from its index,
    /// order or chains are used.
    #[inline]
    unsafe fn reader<'a>(&self) -> Entries<'a> {
        // SAFETY: the arena and its cursor are fields of this memtable. All references from index,
        // order and chains were stored with release and loaded with acquire.
        unsafe { self.arena.entries() }
    }

    /// The present entries, in order.
    fn snapshot(&self) -> Snapshot {
        // SAFETY: the borrow of this memtable outlives the call, and the order holds only its
        // references.
        self.order.snapshot(unsafe { self.reader() })
    }

    /// The same entries in fewer lanes, if there are such lanes by now.
    fn renew(&self, snapshot: &Snapshot) -> Option<Snapshot> {
        // SAFETY: as in `snapshot`.
        self.order.renew(unsafe { self.reader() }, snapshot)
    }
}

impl Memtable for ChunkedMemtable {
    fn insert(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        debug_assert!(kind != EntryKind::RangeDelete, "a range tombstone at {seq} is no entry");
        let mut guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = &mut *guard;
        let is_newest = seq > writer.newest;
        // SAFETY: the borrow of this memtable outlives the call, and only its own references are
        // used.
        let entries = unsafe { self.reader() };
        if !is_newest && self.find(digest, key, seq).is_some_and(|at| entries.get(at).seq == seq) {
            return;
        }
        self.prefetch(digest); // Needed only once the entry is copied.
        // SAFETY: the cursor was made with the arena.
        let new = unsafe { self.arena.push(&mut writer.cursor, key, seq, kind, value) };
        if let (Some(index), Some(index_writer)) = (&self.index, &mut writer.index) {
            // SAFETY: the writer was made with the index.
            let place = unsafe { index.place(index_writer, digest) };
            match place.head {
                Some(head) if !is_newest => match place_in_chain(entries, head, key, seq) {
                    Some(before) => {
                        let link = entries.older(before);
                        entries.older(new).store(link.load(Ordering::Relaxed), Ordering::Relaxed);
                        link.store(new.bits(), Ordering::Release);
                    }
                    None => {
                        entries.older(new).store(head.bits(), Ordering::Relaxed);
                        place.publish(new);
                    }
                },
                head => {
                    entries.older(new).store(head.map_or(0, EntryRef::bits), Ordering::Relaxed);
                    place.publish(new);
                }
            }
        }
        self.order.push(&mut writer.order, entries, new, key);
        debug_assert!(
            self.index.is_none() || self.find(digest, key, seq) == Some(new),
            "the index does not lead to the version {seq} of {key:?}"
        );
        writer.newest = writer.newest.max(seq);
        self.entries.store(self.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.count(writer, seq);
    }

    fn prefetch(&self, digest: KeyDigest) {
        if let Some(index) = &self.index {
            index.prefetch(digest);
        }
    }

    fn insert_range_delete(&self, tombstone: RangeTombstone) {
        if tombstone.is_empty() {
            return;
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = tombstone.start.len() + tombstone.end.as_ref().map_or(0, Bytes::len);
        let seq = tombstone.seq;
        self.range_deletes.get_or_init(ArcSwap::default).rcu(|before| before.with(tombstone.clone()));
        // After the list: a reader that sees the count finds the tombstone.
        self.range_delete_count.fetch_add(1, Ordering::Release);
        writer.bounds_bytes += bounds as u64 + BOUNDS_EXTRA_BYTES;
        self.count(&writer, seq);
    }

    fn get(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry> {
        let found = self.find(digest, key, seq)?;
        // SAFETY: the borrow of this memtable outlives the call, and the reference is its own.
        let entry = unsafe { self.reader() }.get(found);
        debug_assert!(entry.key == key, "another key was found: {:?} instead of {key:?}", entry.key);
        debug_assert!(entry.seq <= seq, "sequence number {} was found, newer than {seq}", entry.seq);
        Some(Entry { seq: entry.seq, kind: entry.kind, value: Value::copy_of(entry.value) })
    }

    fn versions(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, each: &mut dyn FnMut(Entry) -> bool) {
        if self.index.is_none() {
            return versions_by_get(self, digest, key, seq, each);
        }
        // SAFETY: the borrow of this memtable outlives the call, and only its own references are
        // used.
        let entries = unsafe { self.reader() };
        // The chain holds the versions of a key in their order, so each is read once.
        let mut next = self.find(digest, key, seq);
        while let Some(at) = next {
            let entry = entries.get(at);
            debug_assert!(entry.seq <= seq || entry.key != key, "a version is newer than one before it");
            if entry.key == key {
                let version = Entry { seq: entry.seq, kind: entry.kind, value: Value::copy_of(entry.value) };
                if !each(version) {
                    return;
                }
            }
            next = EntryRef::from_bits(entries.older(at).load(Ordering::Acquire));
        }
    }

    fn folded(&self) -> &FoldedValues {
        &self.folded
    }

    fn newest_seq(&self, digest: KeyDigest, key: &[u8]) -> SeqNo {
        let Some(found) = self.find(digest, key, SeqNo::MAX) else { return SeqNo::ZERO };
        // SAFETY: the borrow of this memtable outlives the call, and the reference is its own.
        unsafe { self.reader() }.get(found).seq
    }

    fn has_range_deletes(&self) -> bool {
        self.range_delete_count.load(Ordering::Acquire) > 0
    }

    fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
        self.range_deletes.get().map(ArcSwap::load_full).unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        let order = if self.entries() == 0 { 0 } else { self.order.bytes() };
        self.bytes.load(Ordering::Relaxed) + order as u64 + self.folded.bytes()
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_deletes()
    }

    fn largest_seq(&self) -> SeqNo {
        // Acquire: a reader that sees a number sees its entry in all later reads.
        SeqNo(self.largest_seq.load(Ordering::Acquire))
    }

    fn values(&self) -> &ValueLogs {
        &self.values
    }

    fn iter(self: Arc<Self>) -> Box<dyn EntryIter> {
        Box::new(ChunkedIter::new(self))
    }
}

impl ChunkedMemtable {
    /// Publishes the sizes and numbers after an insert. Only the writer stores them, so no addition
    /// is lost.
    #[inline]
    fn count(&self, writer: &Writer, seq: SeqNo) {
        // Overlapping range tombstones take more each, the more there are.
        let tombstones_bytes =
            FragmentedTombstones::memory_bytes_max(self.range_delete_count.load(Ordering::Relaxed));
        let mut bytes = writer.cursor.bytes() as u64 + tombstones_bytes + writer.bounds_bytes;
        // Before the first entry the index is not counted: a database may have many empty
        // memtables.
        if let (Some(index), true) = (&writer.index, writer.cursor.bytes() > 0) {
            bytes += index.bytes() as u64;
        }
        debug_assert!(
            bytes >= self.bytes.load(Ordering::Relaxed),
            "a memtable of {} bytes shrinks to {bytes}",
            self.bytes.load(Ordering::Relaxed)
        );
        self.bytes.store(bytes, Ordering::Relaxed);
        let largest = self.largest_seq.load(Ordering::Relaxed).max(seq.0);
        self.largest_seq.store(largest, Ordering::Release);
        if writer.cursor.is_full() {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }
}

/// The entry of the chain from `head` after which an out-of-order version belongs; `None` if it
/// belongs before the head.
fn place_in_chain(entries: Entries<'_>, head: EntryRef, key: &[u8], seq: SeqNo) -> Option<EntryRef> {
    let mut before = None;
    let mut next = Some(head);
    while let Some(at) = next {
        let entry = entries.get(at);
        if entry.key == key && entry.seq < seq {
            break;
        }
        debug_assert!(entry.key != key || entry.seq != seq, "the version {seq} of {key:?} is in the chain");
        before = Some(at);
        next = EntryRef::from_bits(entries.older(at).load(Ordering::Relaxed));
    }
    before
}

#[cfg(test)]
mod tests {
    use shamba_key::{DigestFn, DigestKind};

    use super::*;

    fn put(table: &ChunkedMemtable, key: &[u8], seq: u64) {
        let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(key);
        table.insert(digest, key, SeqNo(seq), EntryKind::Put, b"value");
    }

    #[test]
    fn bytes_are_the_sum_of_all_parts_and_an_unused_index_is_none() {
        for is_indexed in [false, true] {
            let table = ChunkedMemtable::new(is_indexed);
            assert_eq!(table.bytes(), 0);
            let (mut expected, mut all_bounds) = (0, 0);
            for (count, start, end, bounds) in [(1, &b"ab"[..], Some(&b"cde"[..]), 5), (2, b"abcd", None, 4)]
            {
                let (start, end) = (Bytes::from_static(start), end.map(Bytes::from_static));
                table.insert_range_delete(RangeTombstone { start, end, seq: SeqNo(1) });
                all_bounds += bounds + BOUNDS_EXTRA_BYTES;
                expected = all_bounds + FragmentedTombstones::memory_bytes_max(count);
                let held = table.range_tombstones().memory_bytes();
                assert!(held + all_bounds <= expected, "{held} bytes are held");
                assert_eq!(table.bytes(), expected, "a tombstone with bounds of {bounds} bytes");
            }
            table.folded().set(b"key", SeqNo(1), b"folded");
            expected += table.folded().bytes();
            assert_eq!(table.bytes(), expected, "and a folded value");
            put(&table, b"key", 2);
            // Link, number and kind, two lengths, key and value, to a multiple of four.
            expected += (4 + 8 + 1 + 1 + 3 + 5u64).next_multiple_of(4);
            expected += table.order.bytes() as u64;
            let writer = table.writer.lock().expect("not poisoned");
            let index = writer.index.as_ref().map_or(0, |index| index.bytes() as u64);
            assert_eq!(index > 0, is_indexed);
            assert_eq!(table.bytes(), expected + index, "and the first entry, indexed: {is_indexed}");
        }
    }

    #[test]
    fn a_memtable_whose_references_run_out_is_full_and_still_takes_entries() {
        let table = ChunkedMemtable::new(true);
        put(&table, b"first", 1);
        assert!(!table.is_full());
        table.arena.fill_with_slabs(&mut table.writer.lock().expect("not poisoned").cursor);
        put(&table, b"second", 2);
        assert!(table.is_full());
        put(&table, b"third", 3);
        assert!(table.is_full());
        for (key, seq) in [(&b"first"[..], 1), (b"second", 2), (b"third", 3)] {
            let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(key);
            assert_eq!(table.newest_seq(digest, key), SeqNo(seq));
        }
    }
}
