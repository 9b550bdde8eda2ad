//! Tests of the memtable against a sorted vector and the reference memtable: alone, while it grows,
//! and with a concurrent writer.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shamba_key::{DigestFn, DigestKind};
use shamba_table::internal_cmp;

use super::*;
use shamba_testkit::{Dice, Row, check_laws, collect, current, sort};

/// Memtables of each kind, with the digest to use: good ones, colliding ones, no index; the
/// reference memtable last.
fn all() -> [(Arc<dyn Memtable>, DigestFn); 4] {
    let (xxh3, four_bit) = (DigestFn::new(DigestKind::Xxh3, 7), DigestFn::new(DigestKind::TestFourBit, 7));
    [
        (Arc::new(ChunkedMemtable::new(true)), xxh3),
        (Arc::new(ChunkedMemtable::new(true)), four_bit),
        (Arc::new(ChunkedMemtable::new(false)), xxh3),
        (Arc::new(OrderedMemtable::new()), xxh3),
    ]
}

fn insert(table: &dyn Memtable, digest: DigestFn, row: &Row) {
    table.insert(digest.digest(&row.key), &row.key, row.seq, row.kind, &row.value);
}

fn get(table: &dyn Memtable, digest: DigestFn, key: &[u8], seq: SeqNo) -> Option<Row> {
    let Entry { seq, kind, value } = table.get(digest.digest(key), key, seq)?;
    Some(Row { key: key.to_vec(), seq, kind, value: value.to_vec() })
}

/// A key of the given kind: short and clashing, random, or like a path.
fn key_of(shape: usize, dice: &Dice) -> Vec<u8> {
    match shape {
        0 => dice.key(),
        1 => (dice.below(usize::MAX) as u64).to_be_bytes().repeat(2),
        _ => format!("/usr/share/package-{:02}/file-{:05}", dice.below(20), dice.below(50_000)).into_bytes(),
    }
}

#[test]
fn random_versions_read_as_from_a_sorted_vector() {
    for seed in 0..100 {
        println!("seed {seed}");
        for (table, digest) in all() {
            let dice = Dice::new(seed);
            let mut rows = Vec::new();
            for seq in 1..=dice.below(300) as u64 {
                let mut row = Row::put(&dice.key(), seq);
                if dice.one_in(4) {
                    row.kind = EntryKind::Delete;
                    row.value.clear();
                }
                rows.push(row);
            }
            // Mostly in order, as the commit path writes; sometimes not.
            let mut order: Vec<usize> = (0..rows.len()).collect();
            for _ in 0..dice.below(2) * rows.len() {
                order.swap(dice.below(rows.len()), dice.below(rows.len()));
            }
            for index in order {
                insert(&*table, digest, &rows[index]);
            }
            assert_eq!(table.entries(), rows.len() as u64);
            assert_eq!(table.largest_seq(), SeqNo(rows.len() as u64));
            assert_eq!(table.is_empty(), rows.is_empty());
            sort(&mut rows);
            for _ in 0..200 {
                let (key, seq) = (dice.key(), SeqNo(dice.below(310) as u64));
                let expected = rows.iter().find(|row| row.key == key && row.seq <= seq);
                assert_eq!(get(&*table, digest, &key, seq).as_ref(), expected);
                let expected = rows.iter().filter(|row| row.key == key && row.seq <= seq);
                let (mut versions, most) = (Vec::new(), 1 + dice.below(6));
                table.versions(digest.digest(&key), &key, seq, &mut |entry| {
                    versions.push(entry.seq);
                    versions.len() < most
                });
                assert_eq!(versions, expected.map(|row| row.seq).take(most).collect::<Vec<_>>());
            }
            assert_eq!(collect(Arc::clone(&table).iter().as_mut()), rows);
            check_laws(table.iter().as_mut(), &rows, &dice, 600);
        }
    }
}

/// Enough entries for chunks of all sizes, index segments that split, and merges by the writer and
/// by readers. Iterators begun on the way continue while entries are inserted.
#[test]
fn a_growing_memtable_reads_like_its_twin() {
    for shape in 0..3 {
        for (table, digest) in all().into_iter().take(3) {
            let dice = Dice::new(shape as u64);
            let twin: Arc<dyn Memtable> = Arc::new(OrderedMemtable::new());
            let mut begun = Vec::new();
            let mut keys = Vec::new();
            // Colliding digests make chains of thousands of entries, which is slow and not the main
            // subject here.
            let writes = if digest.kind() == DigestKind::Xxh3 { 30_000 } else { 5_000 };
            for seq in 1..=writes {
                let row = Row::put(&key_of(shape, &dice), seq);
                insert(&*table, digest, &row);
                insert(&*twin, digest, &row);
                keys.push(row.key);
                let (key, at) = (&keys[dice.below(keys.len())], SeqNo(1 + dice.below(seq as usize) as u64));
                if dice.one_in(4) {
                    assert_eq!(get(&*table, digest, key, at), get(&*twin, digest, key, at));
                    let missed = key_of(shape, &dice);
                    assert_eq!(get(&*table, digest, &missed, at), get(&*twin, digest, &missed, at));
                }
                if dice.one_in(100) {
                    assert_same_around(&table, &twin, key, at, &dice);
                }
                if dice.one_in(2_000) {
                    let mut iter = Arc::clone(&table).iter();
                    iter.seek_to_first().expect("memory");
                    begun.push((iter, seq));
                }
            }
            let mut rows = collect(Arc::clone(&twin).iter().as_mut());
            for (mut iter, seq) in begun {
                let seen = collect(iter.as_mut()).into_iter().filter(|row| row.seq.0 <= seq);
                assert!(seen.eq(rows.iter().filter(|row| row.seq.0 <= seq).cloned()), "since {seq}");
            }
            // Every seek merges a little, until one chunk is left.
            for _ in 0..300 {
                assert_same_around(&table, &twin, &keys[dice.below(keys.len())], SeqNo::MAX, &dice);
            }
            assert!(collect(Arc::clone(&table).iter().as_mut()) == rows);
            rows.reverse();
            assert!(backwards(table.iter().as_mut()) == rows);
        }
    }
}

/// Moves at random in both iterators from the same position.
fn assert_same_around(a: &Arc<dyn Memtable>, b: &Arc<dyn Memtable>, key: &[u8], seq: SeqNo, dice: &Dice) {
    let (mut a, mut b) = (Arc::clone(a).iter(), Arc::clone(b).iter());
    let is_forward = dice.one_in(2);
    for iter in [&mut a, &mut b] {
        if is_forward { iter.seek(key, seq) } else { iter.seek_for_prev(key, seq) }.expect("memory");
    }
    for _ in 0..dice.below(100) {
        assert_eq!(a.valid(), b.valid());
        if !a.valid() {
            return;
        }
        assert_eq!(current(a.as_ref()), current(b.as_ref()));
        // Three steps in one direction for each step in the other.
        let is_on = dice.one_in(4) != is_forward;
        for iter in [&mut a, &mut b] {
            if is_on { iter.next() } else { iter.prev() }.expect("memory");
        }
    }
}

fn backwards(iter: &mut dyn EntryIter) -> Vec<Row> {
    let mut rows = Vec::new();
    iter.seek_to_last().expect("memory");
    while iter.valid() {
        rows.push(current(iter));
        iter.prev().expect("memory");
    }
    rows
}

#[test]
fn what_is_stored_twice_stays() {
    for (table, digest) in all() {
        for seq in [3, 1, 2, 3, 1] {
            insert(&*table, digest, &Row::put(b"k", seq));
        }
        assert_eq!(table.entries(), 3);
        let bytes = table.bytes();
        insert(&*table, digest, &Row { value: b"new".to_vec(), ..Row::put(b"k", 2) });
        assert_eq!(get(&*table, digest, b"k", SeqNo(2)), Some(Row::put(b"k", 2)));
        assert_eq!((table.entries(), table.bytes()), (3, bytes));
    }
}

#[test]
fn the_newest_number_of_a_key_is_that_of_its_newest_version() {
    for (table, digest) in all() {
        for (key, seq) in [(b"k", 3), (b"o", 9), (b"k", 7), (b"k", 5)] {
            insert(&*table, digest, &Row::put(key, seq));
        }
        for (key, newest) in [(b"k", 7), (b"o", 9), (b"x", 0)] {
            assert_eq!(table.newest_seq(digest.digest(key), key), SeqNo(newest), "{key:?}");
        }
        assert!(!table.is_full(), "a memtable of four entries");
    }
}

#[test]
fn keys_and_values_of_all_sizes_come_back() {
    for (table, digest) in all().into_iter().take(3) {
        let mut rows = Vec::new();
        let key_bytes = [0, 1, 7, 8, 9, 127, 128, 16_383, 16_384, 65_535];
        let value_bytes = [0, 1, 100, 127, 128, 16_383, 16_384, 1 << 18, (1 << 20) + 5, (2 << 20) + 1];
        for (index, key_bytes) in key_bytes.into_iter().enumerate() {
            for value_bytes in value_bytes {
                let seq = rows.len() as u64 + 1;
                let byte = seq as u8;
                let row =
                    Row { value: vec![byte; value_bytes], ..Row::put(&vec![index as u8; key_bytes], seq) };
                insert(&*table, digest, &row);
                rows.push(row);
            }
        }
        insert(&*table, digest, &Row { seq: SeqNo::MAX, ..Row::put(b"last", 0) });
        rows.push(Row { seq: SeqNo::MAX, ..Row::put(b"last", 0) });
        for row in &rows {
            assert!(get(&*table, digest, &row.key, row.seq).as_ref() == Some(row));
        }
        sort(&mut rows);
        let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let held = table.bytes() - bytes as u64;
        assert!(held < 100 * rows.len() as u64, "{held} beside keys and values");
        assert!(collect(table.iter().as_mut()) == rows);
    }
}

/// The size bound that the write buffer relies on: 116-byte entries take at most 150 bytes each in
/// a memtable of its default size.
#[test]
fn bytes_count_everything_and_are_few() {
    let (table, digest) = (ChunkedMemtable::new(true), DigestFn::new(DigestKind::Xxh3, 7));
    assert_eq!(table.bytes(), 0);
    let dice = Dice::new(1);
    let mut largest = 0.0f64;
    for seq in 1..=460_000 {
        let row = Row { value: vec![0; 100], ..Row::put(&key_of(1, &dice), seq) };
        insert(&table, digest, &row);
        let each = table.bytes() as f64 / seq as f64;
        assert!(each > 132.0 + 4.0, "an entry with its header and its reference");
        if seq > 2_000 {
            largest = largest.max(each);
        }
    }
    assert!(largest < 170.0, "{largest}");
    let each = table.bytes() as f64 / 460_000.0;
    assert!(each < 150.0, "{each}");
}

#[test]
fn a_version_far_down_a_chain_is_found() {
    for (table, digest) in all() {
        for seq in 1..=5_000 {
            insert(&*table, digest, &Row::put(b"hot", seq));
        }
        for seq in (1..=5_000).step_by(37) {
            assert_eq!(get(&*table, digest, b"hot", SeqNo(seq)), Some(Row::put(b"hot", seq)));
        }
        assert_eq!(get(&*table, digest, b"hot", SeqNo::ZERO), None);
    }
}

#[test]
fn range_tombstones_are_seen_at_once_and_empty_ones_dropped() {
    for (table, _) in all() {
        let delete = |start: &'static [u8], end: &'static [u8], seq: u64| {
            let (start, end) = (Bytes::from_static(start), Some(Bytes::from_static(end)));
            table.insert_range_delete(RangeTombstone { start, end, seq: SeqNo(seq) });
        };
        delete(b"b", b"a", 1);
        delete(b"a", b"a", 2);
        assert!(table.is_empty() && !table.has_range_deletes() && table.bytes() == 0);
        for seq in 3..50 {
            delete(b"a", b"c", seq);
            assert!(table.has_range_deletes() && !table.is_empty());
            assert_eq!(table.range_tombstones().newest_covering(b"b", SeqNo::MAX), SeqNo(seq));
            assert_eq!(table.largest_seq(), SeqNo(seq));
        }
        assert!(table.bytes() > 47 * 100);
        assert_eq!(table.entries(), 0);
    }
}

/// The value of a version, computed from it, so that a torn entry is noticed.
fn value_of(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(1 + (seq % 13) as usize)
}

#[test]
fn readers_beside_a_writer_see_everything_up_to_their_sequence_whole_and_in_order() {
    const WRITES: u64 = 60_000;
    let key_of = |seq: u64| (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).to_be_bytes();
    for (table, digest) in [all()[0].clone(), all()[2].clone()] {
        let visible = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=WRITES {
                    insert(&*table, digest, &Row { value: value_of(seq), ..Row::put(&key_of(seq), seq) });
                    visible.store(seq, Ordering::Release);
                }
            });
            // One thread scans everything repeatedly.
            scope.spawn(|| {
                while visible.load(Ordering::Acquire) < WRITES {
                    let seen = visible.load(Ordering::Acquire);
                    let rows = collect(Arc::clone(&table).iter().as_mut());
                    assert!(rows.is_sorted_by(|a, b| internal_cmp(&a.key, a.seq, &b.key, b.seq).is_lt()));
                    assert!(rows.iter().all(|row| row.value == value_of(row.seq.0)));
                    assert_eq!(rows.iter().filter(|row| row.seq.0 <= seen).count() as u64, seen);
                }
            });
            // Two threads look up present and absent keys, and scan a little.
            for thread in 0..2 {
                let (table, visible) = (&table, &visible);
                scope.spawn(move || {
                    let dice = Dice::new(thread);
                    while visible.load(Ordering::Acquire) < WRITES {
                        let seen = visible.load(Ordering::Acquire) as usize;
                        let (wanted, at) = (1 + dice.below(seen) as u64, SeqNo(seen as u64));
                        if seen > 0 {
                            let key = key_of(wanted);
                            let row = get(&**table, digest, &key, at).expect("an entry that was visible");
                            assert!(
                                row.seq.0 >= wanted && row.value == value_of(row.seq.0),
                                "{wanted} at {at}"
                            );
                            let mut iter = Arc::clone(table).iter();
                            iter.seek(&key, SeqNo(wanted)).expect("memory");
                            assert_eq!((iter.key(), iter.seq().0), (&key[..], wanted));
                        }
                        let missed = (1u64 << 60 | wanted).to_be_bytes();
                        assert_eq!(get(&**table, digest, &missed, at), None);
                    }
                });
            }
        });
    }
}
