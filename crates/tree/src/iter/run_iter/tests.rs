//! Tests of run iterators over real tables against a sorted vector, with narrowed tables and
//! limits.

use super::*;
use crate::iter::testing::{Store, random_range};
use shamba_table::FragmentedTombstones;
use shamba_testkit::{Dice, Row, check_laws, collect, sort};

const WALK: Walk = Walk::Parts { fill_cache: true, ahead_bytes: 0 };

#[test]
fn random_walks_agree_with_the_rows_that_count() {
    for seed in 0..150 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let store = Store::new();
        let mut rows: Vec<Row> = (1..=dice.below(80) as u64).map(|seq| Row::put(&dice.key(), seq)).collect();
        sort(&mut rows);
        let mut tables = store.build(&rows, &FragmentedTombstones::default(), 1 + dice.below(6));
        // Some tables are used only in part; their other entries must not be returned.
        for table in &mut tables {
            if let Some(part) = table.range.intersection(&random_range(&dice)).filter(|_| dice.one_in(2)) {
                table.range = part;
            }
        }
        let limit = if dice.one_in(2) { KeyRange::everything() } else { random_range(&dice) };
        let counts =
            |row: &Row| limit.contains(&row.key) && tables.iter().any(|table| table.range.contains(&row.key));
        rows.retain(counts);
        let walk = match dice.below(3) {
            0 => Walk::Whole { bytes: 10_000 },
            fill => Walk::Parts { fill_cache: fill == 1, ahead_bytes: 10_000 },
        };
        let mut iter = RunIter::new(tables, limit, walk);
        assert!(!iter.valid());
        check_laws(&mut iter, &rows, &dice, 300);
        assert_eq!(collect(&mut iter), rows);
    }
}

#[test]
fn walks_with_stops_give_what_counts_after_any_restart() {
    for seed in 0..150 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let store = Store::new();
        let mut rows: Vec<Row> = (1..=dice.below(80) as u64)
            .map(|seq| Row {
                kind: if dice.one_in(4) { EntryKind::Delete } else { EntryKind::Put },
                ..Row::put(&dice.key(), seq)
            })
            .collect();
        sort(&mut rows);
        let mut tables = store.build(&rows, &FragmentedTombstones::default(), 1 + dice.below(6));
        for table in &mut tables {
            if let Some(part) = table.range.intersection(&random_range(&dice)).filter(|_| dice.one_in(2)) {
                table.range = part;
            }
        }
        let mut limit = KeyRange::everything();
        let mut iter = RunIter::new(tables.clone(), limit.clone(), WALK);
        let mut passed = 0;
        for round in 0..8 {
            // Often the same limit again: the open table is then used as it is.
            if dice.one_in(2) {
                limit = if dice.one_in(3) { KeyRange::everything() } else { random_range(&dice) };
            }
            iter.restart(limit.clone(), WALK);
            let from = dice.key();
            iter.seek(&from, SeqNo::MAX).expect("tables");
            let mut given = Vec::new();
            while iter.valid() {
                let mut left = dice.below(5);
                let stopped = iter.walk_on(|entry| {
                    if left > 0 {
                        passed += u64::from(entry.kind == EntryKind::Delete);
                        given.push(row_of(entry));
                    }
                    left = left.wrapping_sub(1);
                    left != usize::MAX
                });
                assert_eq!(stopped.expect("tables"), iter.valid());
                if iter.valid() {
                    given.push(row_of(iter.view()));
                    iter.next().expect("tables");
                }
            }
            let counts = |row: &&Row| {
                from <= row.key
                    && limit.contains(&row.key)
                    && tables.iter().any(|table| table.range.contains(&row.key))
            };
            let expected: Vec<Row> = rows.iter().filter(counts).cloned().collect();
            assert_eq!(given, expected, "round {round}");
        }
        drop(iter);
        let counted: u64 = tables.iter().map(|table| table.meta.statistics.tombstones_passed()).sum();
        assert_eq!(counted, passed, "every tombstone that a walk passes is counted");
    }
}

#[test]
fn a_copy_ends_with_the_part_of_a_table_that_the_run_uses() {
    let store = Store::new();
    let rows: Vec<Row> = (b'a'..=b'f').map(|letter| Row::put(&[letter], 1)).collect();
    let mut tables = store.build(&rows, &FragmentedTombstones::default(), 3);
    assert_eq!(tables.len(), 2);
    tables[0].range.upper = Some(Bytes::from_static(b"c"));
    let mut iter = RunIter::new(tables, KeyRange::everything(), WALK);
    iter.seek(b"a", SeqNo::MAX).expect("tables");
    let limits = CopyLimits {
        seq: SeqNo::MAX,
        upper: None,
        value_bytes: 1_024,
        wanted: 100,
        welcome: 100,
        full_bytes: 8_192,
        versions: 16,
    };
    let mut copies = Copies::default();
    copies.begin();
    while iter.valid() {
        let end = iter.copy_on(&mut copies, &limits).expect("tables");
        assert_eq!((end, iter.valid()), (CopyEnd::Ended, false));
    }
    let keys: Vec<&[u8]> = (0..copies.ends.len()).filter_map(|number| copies.key(number)).collect();
    assert_eq!(keys, [b"a", b"b", b"d", b"e", b"f"]);
}

fn row_of(entry: EntryView<'_>) -> Row {
    Row { key: entry.key.to_vec(), seq: entry.seq, kind: entry.kind, value: entry.value.to_vec() }
}

#[test]
fn a_table_is_opened_only_when_the_walk_gets_there() {
    let store = Store::new();
    let rows: Vec<Row> = (b'a'..=b'f').map(|letter| Row::put(&[letter], 1)).collect();
    let mut tables = store.build(&rows, &FragmentedTombstones::default(), 2);
    // The last table is closed: entering it returns an error.
    let meta = Arc::get_mut(&mut tables[2].meta).expect("only the list holds it");
    meta.reader.take();
    let mut iter = RunIter::new(tables.clone(), KeyRange::everything(), WALK);
    iter.seek(b"a", SeqNo::MAX).expect("the first table is open");
    for _ in 0..3 {
        iter.next().expect("so is the second");
    }
    assert_eq!(iter.key(), b"d");
    assert!(matches!(iter.next(), Err(Error::Invalid(_))) && !iter.valid());
    assert!(iter.seek_to_last().is_err() && !iter.valid());

    let limit = KeyRange { lower: Bytes::new(), upper: Some(Bytes::from_static(b"e")) };
    let mut limited = RunIter::new(tables, limit, WALK);
    assert_eq!(collect(&mut limited), rows[..4], "a limit keeps the walk out of it");
    limited.seek_to_last().expect("within the limit");
    assert_eq!(limited.key(), b"d");
    limited.seek(b"e", SeqNo::MAX).expect("within the limit");
    assert!(!limited.valid());
}

/// If ranges or separators contradict the entries, a seek can end before its target. A reader
/// that seeks past a key would then meet it again and again.
#[test]
fn a_seek_that_ends_on_the_wrong_side_is_damage() {
    let store = Store::new();
    let table = |keys: &[&str], lower: &str, upper: Option<&str>| {
        let mut rows: Vec<Row> =
            keys.iter().zip(1..).map(|(key, seq)| Row::put(key.as_bytes(), seq)).collect();
        sort(&mut rows);
        let mut built = store.build(&rows, &FragmentedTombstones::default(), rows.len());
        let mut table = built.pop().expect("a table");
        let bytes = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        table.range = KeyRange { lower: bytes(lower), upper: upper.map(bytes) };
        table
    };
    let is_damage = |result: Result<()>, at: &str| {
        let text = result.expect_err("an entry on the wrong side").to_string();
        assert!(text.contains(".sst") && text.contains(at), "{text}");
    };
    let seek_in_steps = |iter: &mut RunIter<Vec<TableUse>>, key: &[u8]| {
        let mut seeking = RunSeeking::default();
        (0..=shamba_table::SEEK_STEPS).for_each(|_| iter.seek_step(key, SeqNo::MAX, &mut seeking));
        iter.seek_from_step(key, SeqNo::MAX, &seeking)
    };
    let everything = KeyRange::everything;
    let forward = vec![table(&["c"], "c", Some("e")), table(&["a", "b"], "a", None)];
    let mut iter = RunIter::new(forward, everything(), WALK);
    is_damage(iter.seek(b"d", SeqNo::MAX), "a seek to key \"d\" has ended at \"a\"");
    assert!(!iter.valid());
    is_damage(seek_in_steps(&mut iter, b"d"), "a seek to key \"d\" has ended at \"a\"");
    iter.seek(b"c", SeqNo::MAX).expect("there");
    assert_eq!(iter.key(), b"c");

    let backward = vec![table(&["x", "y"], "a", None), table(&["m"], "c", None)];
    let mut iter = RunIter::new(backward, everything(), WALK);
    is_damage(iter.seek_for_prev(b"d", SeqNo::MAX), "a seek to key \"d\" has ended at \"y\"");
    assert!(!iter.valid());
}
