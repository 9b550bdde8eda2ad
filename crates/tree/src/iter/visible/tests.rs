//! Tests of visibility, of refused entry kinds, and of seeks over long hidden ranges.
//!
//! Random histories are tested one layer above, in `scan`.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shamba_key::KeyDigest;
use shamba_table::{Entry, FragmentedTombstones, RangeTombstone};

use super::*;
use crate::error::Cause;
use crate::iter::testing::WALK;
use crate::version::Version;
use shamba_key::KeyspaceId;
use shamba_memtable::ChunkedMemtable;
use shamba_testkit::Watched;

/// A memtable whose iterators count their moves.
struct Counted {
    table: Arc<ChunkedMemtable>,
    moves: Arc<AtomicU64>,
}

impl Memtable for Counted {
    fn insert(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        self.table.insert(digest, key, seq, kind, value);
    }
    fn prefetch(&self, digest: KeyDigest) {
        self.table.prefetch(digest);
    }
    fn insert_range_delete(&self, tombstone: RangeTombstone) {
        self.table.insert_range_delete(tombstone);
    }
    fn get(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry> {
        self.table.get(digest, key, seq)
    }
    fn has_range_deletes(&self) -> bool {
        self.table.has_range_deletes()
    }
    fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
        self.table.range_tombstones()
    }
    fn bytes(&self) -> u64 {
        self.table.bytes()
    }
    fn entries(&self) -> u64 {
        self.table.entries()
    }
    fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
    fn largest_seq(&self) -> SeqNo {
        self.table.largest_seq()
    }
    fn folded(&self) -> &shamba_memtable::FoldedValues {
        self.table.folded()
    }
    fn values(&self) -> &shamba_log::wal::ValueLogs {
        self.table.values()
    }
    fn iter(self: Arc<Self>) -> Box<dyn EntryIter> {
        let moves = Arc::clone(&self.moves);
        Box::new(Watched::new(Arc::clone(&self.table).iter(), move |_, _: &mut dyn EntryIter| {
            moves.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }))
    }
}

/// Some memtables, newest first, and the moves of their iterators.
struct Bench {
    memtables: Vec<Arc<ChunkedMemtable>>,
    moves: Arc<AtomicU64>,
}

impl Bench {
    fn new(memtables: usize) -> Self {
        Self {
            memtables: (0..memtables).map(|_| Arc::new(ChunkedMemtable::new(true))).collect(),
            moves: Arc::default(),
        }
    }

    fn add(&self, memtable: usize, key: &[u8], seq: u64, kind: EntryKind) {
        let digest = KeyDigest::from_raw(0);
        let value = match kind {
            EntryKind::Merge => format!("\0{seq}"),
            _ => seq.to_string(),
        };
        self.memtables[memtable].insert(digest, key, SeqNo(seq), kind, value.as_bytes());
    }

    fn delete_range(&self, memtable: usize, start: &str, end: Option<&str>, seq: u64) {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let tombstone = RangeTombstone { start: bytes(start), end: end.map(bytes), seq: SeqNo(seq) };
        self.memtables[memtable].insert_range_delete(tombstone);
    }

    fn iter(&self, seq: SeqNo) -> VisibleIter {
        self.moves.store(0, Ordering::Relaxed);
        let counted = |table: &Arc<ChunkedMemtable>| {
            let (table, moves) = (Arc::clone(table), Arc::clone(&self.moves));
            Arc::new(Counted { table, moves }) as Arc<dyn Memtable>
        };
        let memtables = self.memtables.iter().map(counted).collect();
        let view = View::new(KeyspaceId(0), memtables, Arc::new(Version::empty()));
        VisibleIter::new(Arc::new(view), seq, KeyRange::everything(), WALK)
    }

    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// The visible keys in both directions, which must agree, found one or several at a time, and
    /// the number of moves in each direction.
    fn walk(&self, seq: SeqNo) -> (Vec<String>, u64, u64) {
        let [one_by_one, together] = [1, 7].map(|wanted| self.walk_by(seq, wanted));
        assert_eq!(one_by_one.0, together.0);
        one_by_one
    }

    fn walk_by(&self, seq: SeqNo, wanted: usize) -> (Vec<String>, u64, u64) {
        let mut out = Batch::default();
        let mut iter = self.iter(seq);
        let mut forward = Vec::new();
        out.begin(wanted, wanted, 0);
        let mut found = iter.seek_to_first(None, &mut out).expect("readable");
        while found {
            forward.extend(keys(&out));
            out.begin(wanted, wanted, 0);
            found = iter.next(&mut out).expect("readable");
        }
        let forward_moves = self.moves();
        let mut iter = self.iter(seq);
        let mut backward = Vec::new();
        let mut found = iter.seek_to_last(&mut out).expect("readable");
        while found {
            backward.extend(keys(&out));
            out.begin(wanted, wanted, 0);
            found = iter.prev(&mut out).expect("readable");
        }
        backward.reverse();
        assert_eq!(forward, backward);
        (forward, forward_moves, self.moves())
    }
}

fn keys(batch: &Batch) -> Vec<String> {
    let key = |number| String::from_utf8(batch.key(number).expect("an entry").to_vec()).expect("text");
    (0..batch.len()).map(key).collect()
}

fn key(number: u64) -> String {
    format!("{number:06}")
}

#[test]
fn entries_that_nobody_can_read_are_refused_by_name_unless_hidden() {
    // An expiring entry without an expiry, and an operand in a keyspace without an operator.
    for (kind, named) in [(EntryKind::PutWithExpiry, "expiry time"), (EntryKind::Merge, "merge operator")] {
        let bench = Bench::new(1);
        bench.add(0, b"a", 1, EntryKind::Put);
        bench.add(0, b"k", 2, kind);
        let mut out = Batch::default();
        for backward in [false, true] {
            out.begin(1, 1, 0);
            let mut iter = bench.iter(SeqNo::MAX);
            let error = match backward {
                false => iter.seek(b"b", None, &mut out),
                true => iter.seek_to_last(&mut out),
            };
            let error = error.expect_err("nobody can read it");
            match kind {
                EntryKind::Merge => assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}"),
                _ => assert!(matches!(error.cause(), Cause::File(_)), "{error}"),
            }
            assert!(error.to_string().contains(named) && error.to_string().contains("\"k\""), "{error}");
        }
        assert_eq!(bench.walk(SeqNo(1)).0, ["a"], "the reader does not see it yet");
        bench.delete_range(0, "k", None, 3);
        assert_eq!(bench.walk(SeqNo::MAX).0, ["a"], "deleted");
        bench.add(0, b"k", 4, EntryKind::Put);
        assert_eq!(bench.walk(SeqNo::MAX).0, ["a", "k"], "overwritten");
    }
}

#[test]
fn a_range_tombstone_over_older_sources_costs_a_seek_not_a_walk() {
    let bench = Bench::new(3);
    for number in 0..20_000 {
        bench.add(1 + (number % 2) as usize, key(number).as_bytes(), 1 + number, EntryKind::Put);
    }
    bench.delete_range(0, &key(10), Some(&key(19_990)), 30_000);
    bench.add(0, key(7_000).as_bytes(), 30_001, EntryKind::Put);
    let expected: Vec<String> = (0..10).chain([7_000]).chain(19_990..20_000).map(key).collect();
    let (keys, forward, backward) = bench.walk(SeqNo::MAX);
    assert_eq!(keys, expected);
    assert!(forward < 300 && backward < 300, "{forward} and {backward} moves");
    let (keys, ..) = bench.walk(SeqNo(20_000));
    assert_eq!(keys.len(), 20_000, "older readers see all of it");
}

#[test]
fn tombstones_that_grow_step_by_step_are_crossed_together() {
    let bench = Bench::new(2);
    for number in 0..10_000 {
        bench.add(1, key(number).as_bytes(), 1 + number, EntryKind::Put);
    }
    // A queue from which old entries are deleted: each tombstone reaches a little further. And a
    // range without an end.
    for trim in 1..=500 {
        bench.delete_range(0, "", Some(&key(trim * 10)), 10_000 + trim);
    }
    bench.delete_range(0, &key(9_990), None, 20_000);
    let (keys, forward, backward) = bench.walk(SeqNo::MAX);
    assert_eq!(keys, (5_000..9_990).map(key).collect::<Vec<_>>());
    let shown = keys.len() as u64;
    assert!(
        forward < shown + 300 && backward < shown + 300,
        "{forward} and {backward} moves for {shown} keys"
    );
}

#[test]
fn what_a_tombstone_of_the_same_source_does_not_hide_is_never_sought_over() {
    let bench = Bench::new(1);
    for number in 0..200 {
        bench.add(0, key(number).as_bytes(), 1 + number, EntryKind::Put);
    }
    bench.delete_range(0, "", None, 500);
    for number in (0..200).step_by(67) {
        bench.add(0, key(number).as_bytes(), 600 + number, EntryKind::Put);
    }
    assert_eq!(bench.walk(SeqNo::MAX).0, (0..200).step_by(67).map(key).collect::<Vec<_>>());
}

#[test]
fn a_range_tombstone_in_the_memtable_of_its_keys_costs_a_seek_not_a_walk() {
    let bench = Bench::new(2);
    for number in 0..20_000 {
        bench.add((number % 2) as usize, key(number).as_bytes(), 1 + number, EntryKind::Put);
    }
    bench.delete_range(0, &key(10), Some(&key(19_990)), 30_000);
    // Newer entries within it and beyond: the memtable is not wholly older than the tombstone.
    bench.add(0, key(20_000).as_bytes(), 30_001, EntryKind::Put);
    bench.add(0, key(7_000).as_bytes(), 30_002, EntryKind::Put);
    let expected: Vec<String> = (0..10).chain([7_000]).chain(19_990..20_001).map(key).collect();
    let (keys, forward, backward) = bench.walk(SeqNo::MAX);
    assert_eq!(keys, expected);
    assert!(forward < 300 && backward < 300, "{forward} and {backward} moves");
    let (keys, ..) = bench.walk(SeqNo(20_000));
    assert_eq!(keys.len(), 20_000, "older readers see all of it");
}

#[test]
fn many_versions_of_a_key_cost_a_seek_not_a_walk() {
    let bench = Bench::new(1);
    bench.add(0, b"a", 1, EntryKind::Put);
    for seq in 2..=20_000 {
        bench.add(0, b"k", seq, EntryKind::Put);
    }
    bench.add(0, b"z", 20_001, EntryKind::Put);
    for (seq, expected) in [
        (SeqNo::MAX, &["a", "k", "z"][..]),
        (SeqNo(10_000), &["a", "k"]),
        (SeqNo(3), &["a", "k"]),
        (SeqNo(1), &["a"]),
        (SeqNo::ZERO, &[]),
    ] {
        let (keys, forward, backward) = bench.walk(seq);
        assert_eq!(keys, expected, "at {seq}");
        assert!(forward < 150 && backward < 150, "at {seq}: {forward} and {backward} moves");
    }
    let mut out = Batch::default();
    out.begin(1, 1, 0);
    assert!(bench.iter(SeqNo(10_000)).seek_for_prev(b"k", None, &mut out).expect("readable"));
    assert_eq!(out.value(0), Some(&b"10000"[..]));
    out.begin(1, 1, 0);
    assert!(bench.iter(SeqNo(10_000)).seek(b"k", None, &mut out).expect("readable"));
    assert_eq!(out.value(0), Some(&b"10000"[..]));
}

/// A reader that wants the first entry of a queue does not walk over what was deleted behind it.
#[test]
fn a_pass_that_has_what_it_wants_ends_at_a_tombstone() {
    let bench = Bench::new(1);
    bench.add(0, key(0).as_bytes(), 1, EntryKind::Put);
    for number in 1..5_000 {
        bench.add(0, key(number).as_bytes(), 1 + number, EntryKind::Delete);
    }
    bench.add(0, key(5_000).as_bytes(), 6_000, EntryKind::Put);
    let mut iter = bench.iter(SeqNo::MAX);
    let mut out = Batch::default();
    out.begin(1, 4, 0);
    assert!(iter.seek(b"", None, &mut out).expect("readable"));
    assert_eq!(keys(&out), [key(0)]);
    assert!(bench.moves() < 50, "{} moves", bench.moves());
    out.begin(1, 4, 0);
    assert!(iter.next(&mut out).expect("readable"));
    assert_eq!(keys(&out), [key(5_000)]);
}
