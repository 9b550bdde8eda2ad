//! The memtable against a sorted vector, alone and beside a writer.

use super::*;
use crate::read::testing::{Dice, Row, check_laws, collect, sort};

const DIGEST: u64 = 0;

fn insert(table: &OrderedMemtable, row: &Row) {
    table.insert(KeyDigest::from_raw(DIGEST), &row.key, row.seq, row.kind, &row.value);
}

fn get(table: &OrderedMemtable, key: &[u8], seq: SeqNo) -> Option<(SeqNo, EntryKind, Bytes)> {
    table
        .get(KeyDigest::from_raw(DIGEST), key, seq)
        .map(|entry| (entry.seq, entry.kind, entry.value.into_bytes()))
}

#[test]
fn random_versions_read_as_from_a_sorted_vector() {
    for seed in 0..150 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let table = Arc::new(OrderedMemtable::new());
        let mut rows = Vec::new();
        for seq in 1..=dice.below(300) as u64 {
            let mut row = Row::put(&dice.key(), seq);
            if dice.one_in(4) {
                row.kind = EntryKind::Delete;
                row.value.clear();
            }
            rows.push(row);
        }
        // Mostly in order, as the commit path writes; sometimes not, as a replay may.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..dice.below(2) * rows.len() {
            order.swap(dice.below(rows.len()), dice.below(rows.len()));
        }
        for index in order {
            insert(&table, &rows[index]);
        }
        assert_eq!(table.entries(), rows.len() as u64);
        assert_eq!(table.largest_seq(), SeqNo(rows.len() as u64));
        assert_eq!(table.is_empty(), rows.is_empty());
        sort(&mut rows);
        for _ in 0..200 {
            let (key, seq) = (dice.key(), SeqNo(dice.below(310) as u64));
            let expected = rows.iter().find(|row| row.key == key && row.seq <= seq);
            let expected = expected.map(|row| (row.seq, row.kind, Bytes::copy_from_slice(&row.value)));
            assert_eq!(get(&table, &key, seq), expected);
        }
        assert_eq!(collect(table.clone().iter().as_mut()), rows);
        check_laws(table.iter().as_mut(), &rows, &dice, 600);
    }
}

#[test]
fn storing_a_version_again_replaces_it() {
    let table = OrderedMemtable::new();
    for seq in [3, 1, 2, 3, 1] {
        insert(&table, &Row::put(b"k", seq));
    }
    assert_eq!(table.entries(), 3);
    let bytes = table.bytes();
    insert(&table, &Row { value: b"new".to_vec(), ..Row::put(b"k", 2) });
    assert_eq!(get(&table, b"k", SeqNo(2)), Some((SeqNo(2), EntryKind::Put, Bytes::from_static(b"new"))));
    assert_eq!((table.entries(), table.bytes()), (3, bytes));
}

#[test]
fn bytes_count_keys_values_and_what_holds_them() {
    let table = OrderedMemtable::new();
    assert_eq!(table.bytes(), 0);
    insert(&table, &Row { value: vec![0; 1000], ..Row::put(&[1; 100], 1) });
    let one = table.bytes();
    assert!((1100 + 104..1100 + 400).contains(&one), "{one}");
    insert(&table, &Row { value: vec![0; 1000], ..Row::put(&[1; 100], 2) });
    let two = table.bytes() - one;
    assert!((1000 + 48..1000 + 150).contains(&two), "{two}");
}

#[test]
fn range_tombstones_are_seen_at_once_and_empty_ones_dropped() {
    let table = OrderedMemtable::new();
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

#[test]
fn readers_beside_a_writer_see_everything_up_to_their_sequence_in_order() {
    let table = Arc::new(OrderedMemtable::new());
    let writes = 20_000u64;
    let key_of = |seq: u64| (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54).to_be_bytes();
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=writes {
                insert(&table, &Row::put(&key_of(seq), seq));
                visible.store(seq, Ordering::Release);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seen = visible.load(Ordering::Acquire);
                    let rows = collect(table.clone().iter().as_mut());
                    assert!(rows.is_sorted_by(|a, b| (&a.key, b.seq) < (&b.key, a.seq)), "out of order");
                    assert_eq!(rows.iter().filter(|row| row.seq.0 <= seen).count() as u64, seen);
                    if seen == writes {
                        break;
                    }
                }
            });
        }
    });
}
