//! Tests of the merging iterator against one sorted vector.

use super::*;
use shamba_testkit::{Dice, Row, Rows, Watched, check_laws, collect, sort};

fn merge_of(parts: Vec<Vec<Row>>) -> MergeIter {
    MergeIter::new(parts.into_iter().map(|rows| Box::new(Rows::new(rows)) as Box<dyn EntryIter>).collect())
}

#[test]
fn random_walks_agree_with_a_sorted_vector() {
    for seed in 0..400 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let mut parts = vec![Vec::new(); dice.below(6)];
        let mut all = Vec::new();
        for seq in 1..=dice.below(60) as u64 {
            if parts.is_empty() {
                break;
            }
            let row = Row::put(&dice.key(), seq);
            let part = dice.below(parts.len());
            parts[part].push(row.clone());
            all.push(row);
        }
        sort(&mut all);
        let mut merge = merge_of(parts);
        check_laws(&mut merge, &all, &dice, 300);
        assert_eq!(collect(&mut merge), all);
    }
}

#[test]
fn of_equal_entries_the_newest_childs_is_given_once_both_ways() {
    for seed in 0..200 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let mut parts = vec![Vec::new(); 1 + dice.below(5)];
        let mut all = Vec::new();
        for seq in 1..=30 {
            let row = Row::put(&dice.key(), seq);
            let first = dice.below(parts.len());
            for (number, part) in parts.iter_mut().enumerate().skip(first) {
                if number == first || dice.one_in(2) {
                    part.push(Row { value: format!("{seq} of {number}").into_bytes(), ..row.clone() });
                }
            }
            all.push(Row { value: format!("{seq} of {first}").into_bytes(), ..row });
        }
        sort(&mut all);
        check_laws(&mut merge_of(parts), &all, &dice, 300);
    }
}

#[test]
fn a_skip_moves_the_children_past_what_is_hidden_in_each() {
    let newer = (b'a'..=b'z').map(|letter| Row::put(&[letter], 100)).collect::<Vec<_>>();
    let older = (b'a'..=b'z').map(|letter| Row::put(&[letter], 1)).collect::<Vec<_>>();
    let mut merge = merge_of(vec![newer[..3].to_vec(), older.clone()]);
    let shown = |merge: &MergeIter| merge.valid().then(|| (merge.key()[0], merge.seq().0));
    // Everything in the second child; of the first what is not newer than a floor.
    let up_to = |bound: Option<&'static [u8]>, floor: u64| {
        move |child: usize| Hidden { bound, floor: (child == 0).then_some(SeqNo(floor)) }
    };

    merge.seek(b"b", SeqNo::MAX).expect("rows");
    merge.skip_hidden(up_to(Some(b"m"), 99)).expect("rows");
    assert_eq!(shown(&merge), Some((b'b', 100)));
    merge.next().expect("rows");
    assert_eq!(shown(&merge), Some((b'c', 100)));
    merge.next().expect("rows");
    assert_eq!(shown(&merge), Some((b'm', 1)));
    merge.skip_hidden(up_to(Some(b"m"), 100)).expect("rows");
    assert_eq!(shown(&merge), Some((b'm', 1)), "nothing lies below");
    merge.prev().expect("rows");
    assert_eq!(shown(&merge), Some((b'l', 1)), "turning round sees what was skipped");

    merge.skip_hidden(up_to(Some(b"c"), 99)).expect("rows");
    assert_eq!(shown(&merge), Some((b'c', 100)));
    merge.prev().expect("rows");
    assert_eq!(shown(&merge), Some((b'b', 1)));
    merge.seek_for_prev(b"c", SeqNo(1)).expect("rows");
    merge.skip_hidden(up_to(Some(b"b"), 100)).expect("rows");
    assert_eq!(shown(&merge), Some((b'a', 1)));

    merge.seek(b"x", SeqNo::MAX).expect("rows");
    merge.skip_hidden(up_to(None, 99)).expect("rows");
    assert_eq!(shown(&merge), None);
    merge.seek(b"a", SeqNo::MAX).expect("rows");
    merge.skip_hidden(|_| Hidden { bound: Some(b"q"), floor: Some(SeqNo(1)) }).expect("rows");
    merge.skip_hidden(|_| Hidden { bound: Some(b"q"), floor: Some(SeqNo(100)) }).expect("rows");
    assert_eq!(shown(&merge), Some((b'q', 1)), "floors of each child");
}

/// A source that fails at its n-th move.
fn failing(rows: Vec<Row>, mut left: usize) -> impl EntryIter {
    Watched::new(Box::new(Rows::new(rows)), move |_, _: &mut dyn EntryIter| {
        left = left.wrapping_sub(1);
        if left == 0 { Err(shamba_table::Error::Invalid("injected".to_owned())) } else { Ok(()) }
    })
}

#[test]
fn an_error_leaves_no_position_and_a_new_seek_starts_over() {
    let rows = |seqs: std::ops::Range<u64>| seqs.map(|seq| Row::put(&[seq as u8], seq)).collect::<Vec<_>>();
    for fail_at in 1..12 {
        let failing = failing(rows(5..10), fail_at);
        let parts: Vec<Box<dyn EntryIter>> = vec![Box::new(failing), Box::new(Rows::new(rows(10..15)))];
        let mut merge = MergeIter::new(parts);
        let mut failed = merge.seek_to_first().is_err();
        while merge.valid() {
            failed |= merge.next().is_err();
        }
        while !failed && merge.seek_to_last().is_ok() && merge.valid() {
            failed |= merge.prev().is_err();
        }
        assert!(!merge.valid(), "fail at {fail_at}");
        assert_eq!(collect(&mut merge).len(), 10, "fail at {fail_at}");
    }
}

#[test]
fn a_walk_with_stops_gives_what_steps_give() {
    for seed in 0..300 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let mut parts = vec![Vec::new(); 1 + dice.below(5)];
        let mut all = Vec::new();
        for seq in 1..=dice.below(80) as u64 {
            let row = Row::put(&dice.key(), seq);
            let first = dice.below(parts.len());
            for (number, part) in parts.iter_mut().enumerate().skip(first) {
                if number == first || dice.one_in(4) {
                    part.push(Row { value: format!("{seq} of {number}").into_bytes(), ..row.clone() });
                }
            }
            all.push(Row { value: format!("{seq} of {first}").into_bytes(), ..row });
        }
        sort(&mut all);
        let mut merge = merge_of(parts);
        merge.seek_to_first().expect("rows");
        let mut got: Vec<Row> = Vec::new();
        while merge.valid() {
            let mut left = dice.below(6);
            let stand = |entry: EntryView<'_>| Row {
                key: entry.key.to_vec(),
                seq: entry.seq,
                kind: entry.kind,
                value: entry.value.to_vec(),
            };
            let mut give = |entry: EntryView<'_>| {
                // Copies come after the entry that is returned.
                if got.last().is_none_or(|last| (&last.key[..], last.seq) != (entry.key, entry.seq)) {
                    got.push(stand(entry));
                }
            };
            merge
                .walk(|entry| {
                    let goes_on = left > 0;
                    if goes_on {
                        give(entry);
                    }
                    left = left.saturating_sub(1);
                    goes_on
                })
                .expect("rows");
            if merge.valid() {
                give(merge.view());
                merge.next().expect("rows");
            }
        }
        assert_eq!(got, all);
    }
}

#[test]
fn an_entry_is_of_the_table_that_holds_its_key() {
    use crate::iter::run_iter::RunIter;
    use crate::iter::testing::{Store, WALK};
    use crate::version::KeyRange;
    use shamba_table::FragmentedTombstones;

    let store = Store::new();
    let newer: Vec<Row> = (b'a'..=b'm').step_by(3).map(|letter| Row::put(&[letter], 100)).collect();
    let older: Vec<Row> = (b'a'..=b'z').map(|letter| Row::put(&[letter], 1)).collect();
    let tables = [newer, older].map(|rows| store.build(&rows, &FragmentedTombstones::default(), 4));
    assert!(tables.iter().all(|tables| tables.len() > 1), "more than one table of each run");
    let runs = tables.iter().cloned();
    let sources = runs.map(|tables| Source::Tables(RunIter::new(tables, KeyRange::everything(), WALK)));
    let memtable = Source::Other(Box::new(Rows::new(vec![Row::put(b"ee", 200)])));
    let mut merge = MergeIter::new([memtable].into_iter().chain(sources).collect::<Vec<_>>());
    assert!(merge.table().is_none(), "it has no position");
    merge.seek_to_first().expect("rows");
    let mut seen = 0;
    while merge.valid() {
        let found = merge.table().map(|(source, table)| (source, table.meta.id));
        let source = match merge.seq().0 {
            200 => None,
            100 => Some(1),
            _ => Some(2),
        };
        let of_key = |source: usize| {
            let table = tables[source - 1].iter().find(|table| table.range.contains(merge.key()));
            (source, table.expect("a table has the key").meta.id)
        };
        assert_eq!(found, source.map(of_key), "{}", merge.key().escape_ascii());
        seen += 1;
        merge.next().expect("rows");
    }
    assert_eq!((seen, merge.table().is_none()), (1 + 5 + 26, true));
}
