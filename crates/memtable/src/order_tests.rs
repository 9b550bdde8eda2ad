//! Tests of the order that scans see while entries are inserted, and of passing over hidden
//! entries.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_key::{DigestFn, DigestKind};

use super::*;
use shamba_testkit::{Dice, Row, check_laws, collect, current, sort};

fn insert(table: &dyn Memtable, row: &Row) {
    let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(&row.key);
    table.insert(digest, &row.key, row.seq, row.kind, &row.value);
}

/// A key that shares a prefix with others, which becomes shorter in the course of a test, or one of
/// few short keys.
fn key_of(dice: &Dice, inserts: u64) -> Vec<u8> {
    match inserts {
        ..300 => format!("some/prefix/{:04}", dice.below(3_000)).into_bytes(),
        300..900 => format!("some/{:04}", dice.below(2_000)).into_bytes(),
        _ if dice.one_in(2) => dice.key(),
        _ => (dice.below(usize::MAX) as u64).to_be_bytes().repeat(2),
    }
}

/// Inserts in bursts, each followed by a new iterator that continues from what earlier ones have
/// sorted. Bursts are often shorter than a tail and sometimes longer.
#[test]
fn iterators_between_inserts_see_all_entries_and_pass_over_hidden_ones() {
    for seed in 0..12 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        let mut rows: Vec<Row> = Vec::new();
        while rows.len() < 4_000 {
            let burst = if dice.one_in(20) { dice.below(1_500) } else { dice.below(40) };
            for _ in 0..burst {
                let seq = rows.len() as u64 + 1;
                let row = Row::put(&key_of(&dice, seq), seq);
                insert(&*table, &row);
                rows.push(row);
            }
            if burst > 0 && dice.one_in(3) {
                let mut sorted = rows.clone();
                sort(&mut sorted);
                let mut iter = Arc::clone(&table).iter();
                check_laws(iter.as_mut(), &sorted, &dice, 60);
            } else {
                // Only the sorting.
                Arc::clone(&table)
                    .iter()
                    .seek(&key_of(&dice, rows.len() as u64), SeqNo::MAX)
                    .expect("memory");
            }
        }
        sort(&mut rows);
        assert!(collect(table.iter().as_mut()) == rows);
    }
}

/// A tombstone over everything, with few newer entries beneath it, in chunks of all sizes and the
/// tail: they are found in both directions, and nothing else is.
#[test]
fn few_newer_entries_are_found_among_many_older_ones() {
    for seed in 0..6 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        let key = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let older = 1 + dice.below(20_000);
        let floor = SeqNo(older as u64);
        let mut newer = Vec::new();
        for number in 0..older {
            insert(&*table, &Row::put(&key(number), number as u64 + 1));
            // Inserted before older ones, so that they lie in chunks. Some replace older ones,
            // others lie between them.
            if dice.one_in(1 + older / 20) {
                let row = Row::put(&key(dice.below(2 * older)), floor.0 + 1 + number as u64);
                insert(&*table, &row);
                newer.push(row);
            }
        }
        sort(&mut newer);
        let mut found = Vec::new();
        let mut iter = Arc::clone(&table).iter();
        iter.seek_to_first().expect("memory");
        iter.skip_hidden(None, floor).expect("memory");
        while iter.valid() {
            found.push(current(iter.as_ref()));
            iter.next().expect("memory");
            iter.skip_hidden(None, floor).expect("memory");
        }
        assert!(found == newer, "forward");
        found.clear();
        iter.seek_to_last().expect("memory");
        iter.skip_hidden_back(&[], floor).expect("memory");
        while iter.valid() {
            found.push(current(iter.as_ref()));
            iter.prev().expect("memory");
            iter.skip_hidden_back(&[], floor).expect("memory");
        }
        found.reverse();
        assert!(found == newer, "backward");
    }
}

/// Scans in both directions, and over what a floor hides, concurrent with the writer: each sees
/// exactly the entries up to the sequence number that was visible when it began.
#[test]
fn scans_beside_a_writer_see_exactly_what_was_visible_in_both_directions() {
    const WRITES: u64 = 20_000;
    let key_of = |seq: u64| (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52).to_be_bytes();
    let rows: Vec<Row> = (1..=WRITES).map(|seq| Row::put(&key_of(seq), seq)).collect();
    let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for row in &rows {
                insert(&*table, row);
                visible.store(row.seq.0, Ordering::Release);
            }
        });
        for thread in 0..3 {
            let (table, visible, rows) = (&table, &visible, &rows);
            scope.spawn(move || {
                let dice = Dice::new(thread);
                println!("seed {thread}");
                let mut seen = 0;
                while seen < WRITES {
                    seen = visible.load(Ordering::Acquire);
                    let floor = SeqNo(if dice.one_in(2) { 0 } else { dice.below(seen as usize + 1) as u64 });
                    let from = key_of(dice.below(4_096) as u64 + 1);
                    let mut iter = Arc::clone(table).iter();
                    let mut found = Vec::new();
                    let backward = dice.one_in(2);
                    if backward {
                        iter.seek_for_prev(&from, SeqNo::ZERO).expect("memory");
                    } else {
                        iter.seek(&from, SeqNo::MAX).expect("memory");
                    }
                    // Some of it: whole scans would leave few rounds to the threads.
                    let enough = dice.below(2_000);
                    let mut last = None;
                    while iter.valid() && found.len() < enough {
                        let row = current(iter.as_ref());
                        last = Some(row.key.clone());
                        if floor < row.seq && row.seq.0 <= seen {
                            found.push(row);
                        }
                        if backward {
                            iter.prev().expect("memory");
                            iter.skip_hidden_back(&[], floor).expect("memory");
                        } else {
                            iter.next().expect("memory");
                            iter.skip_hidden(None, floor).expect("memory");
                        }
                    }
                    let complete = !iter.valid();
                    let between = |key: &[u8]| match (backward, complete, &last) {
                        (true, true, _) => key <= &from[..],
                        (false, true, _) => key >= &from[..],
                        // Versions of the last key may be missing.
                        (true, false, Some(last)) => key <= &from[..] && key > &last[..],
                        (false, false, Some(last)) => key >= &from[..] && key < &last[..],
                        (_, false, None) => false,
                    };
                    let expected =
                        rows[..seen as usize].iter().filter(|row| floor < row.seq && between(&row.key));
                    let mut expected: Vec<Row> = expected.cloned().collect();
                    sort(&mut expected);
                    if backward {
                        expected.reverse();
                    }
                    found.retain(|row| between(&row.key));
                    assert!(found == expected, "above {floor} up to {seen}, backward: {backward}");
                }
            });
        }
    });
}

/// Keys of a prefix of each length and a few blocks of eight bytes, which are often equal, so that
/// sorts compare block after block; some end within a block or in zeros. In one memtable of two all
/// keys are long, so that no sort has to compare whole keys early.
#[test]
fn keys_with_long_runs_in_common_are_in_order_behind_a_prefix_of_any_length() {
    const BLOCKS: [&[u8; 8]; 4] = [b"aaaaaaaa", b"aaaaaaab", b"baaaaaaa", &[0; 8]];
    for (prefix, least) in (0..20).flat_map(|prefix| [(prefix, 1), (prefix, 5)]) {
        let dice = Dice::new(prefix as u64);
        println!("seed {prefix}, {least} blocks or more");
        let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        let mut rows = Vec::new();
        for seq in 1..=2_000 {
            let mut key = vec![b'p'; prefix];
            (0..least + dice.below(5)).for_each(|_| key.extend_from_slice(BLOCKS[dice.below(BLOCKS.len())]));
            key.truncate(key.len() - if dice.one_in(3) { dice.below(9) } else { 0 });
            let row = Row::put(&key, seq);
            insert(&*table, &row);
            rows.push(row);
        }
        sort(&mut rows);
        assert!(collect(table.iter().as_mut()) == rows, "a prefix of {prefix} bytes");
    }
}

/// A sort looks at a few blocks of eight bytes only, and then at whole keys: thousands of blocks
/// that are equal need no deeper stack.
#[test]
fn keys_with_thousands_of_bytes_in_common_are_sorted_on_a_small_stack() {
    let sorting = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
        let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        // One other key, so that the bytes in common are no prefix of all keys.
        let mut rows = vec![Row::put(b"other", 1)];
        for seq in 2..=40u64 {
            let mut key = vec![b'a'; 60_000];
            key.extend_from_slice(&(seq * 7 % 41).to_be_bytes());
            rows.push(Row::put(&key, seq));
        }
        rows.iter().for_each(|row| insert(&*table, row));
        sort(&mut rows);
        assert!(collect(table.iter().as_mut()) == rows);
    });
    sorting.expect("a thread").join().expect("no panic");
}

/// Versions inserted out of their order: an old one that is added to the sorted copy of a tail
/// leaves the newest of the copy where passing over hidden entries finds it.
#[test]
fn an_old_version_that_joins_a_sorted_tail_hides_no_newer_one() {
    let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
    for key in 0..13u8 {
        insert(&*table, &Row::put(&[key], if key == 6 { 100 } else { u64::from(key) + 1 }));
    }
    assert_eq!(collect(Arc::clone(&table).iter().as_mut()).len(), 13, "sorts the tail");
    insert(&*table, &Row::put(&[13], 14));
    let mut iter = table.iter();
    iter.seek_to_first().expect("memory");
    iter.skip_hidden(None, SeqNo(50)).expect("memory");
    assert!(iter.valid(), "an entry above the floor was passed over");
    assert_eq!(current(iter.as_ref()), Row::put(&[6], 100));
    iter.seek_to_last().expect("memory");
    iter.skip_hidden_back(&[], SeqNo(50)).expect("memory");
    assert!(iter.valid(), "an entry above the floor was passed over");
    assert_eq!(current(iter.as_ref()), Row::put(&[6], 100));
}
