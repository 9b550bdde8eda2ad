//! Tests of passing over what range tombstones hide, in memtables, level-0 runs and deeper runs,
//! against a model.
//!
//! Keys are many and tombstones wide, so that every walk passes over more entries than it steps
//! over, with newer entries among them.

use shamba_testkit::Dice;

use super::*;
use crate::iter::testing::{Op, Store, WALK};

fn key(number: usize) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

const KEYS: usize = 1_500;

fn random_op(dice: &Dice, number: usize) -> Op {
    let at = dice.below(KEYS);
    match dice.below(60) {
        0 => {
            let end = if dice.one_in(6) { None } else { Some(key(at + dice.below(KEYS))) };
            Op::DeleteRange(key(at), end)
        }
        1..8 => Op::Delete(key(at)),
        8..14 => Op::Merge(key(at), number.to_string().into_bytes()),
        _ => Op::Put(key(at), number.to_string().into_bytes()),
    }
}

/// Begins a batch that needs up to `most` entries, and may take some more.
fn begin(out: &mut Batch, dice: &Dice, most: usize) {
    let wanted = 1 + dice.below(most);
    out.begin(wanted, wanted + dice.below(12), 0);
}

/// Entries found from a position on in one direction.
fn walk(iter: &mut VisibleIter, from: Option<&[u8]>, backward: bool, dice: &Dice) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Batch::default();
    let mut found = Vec::new();
    begin(&mut out, dice, 9);
    let mut more = match (from, backward) {
        (Some(key), false) => iter.seek(key, None, &mut out),
        (Some(key), true) => iter.seek_for_prev(key, None, &mut out),
        (None, false) => iter.seek_to_first(None, &mut out),
        (None, true) => iter.seek_to_last(&mut out),
    };
    while more.as_ref().is_ok_and(|more| *more) {
        for entry in 0..out.len() {
            let (key, value) = (out.key(entry).expect("an entry"), out.value(entry).expect("an entry"));
            found.push((key.to_vec(), value.to_vec()));
        }
        if dice.one_in(40) {
            // Turning round and back finds the same entries again.
            let at = found.last().map(|(key, _)| key.clone()).unwrap_or_default();
            begin(&mut out, dice, 5);
            let turned = if backward {
                iter.seek_after(&at, None, &mut out)
            } else {
                iter.seek_before(&at, None, &mut out)
            };
            turned.expect("readable");
            begin(&mut out, dice, 5);
            more = if backward {
                iter.seek_before(&at, None, &mut out)
            } else {
                iter.seek_after(&at, None, &mut out)
            };
            continue;
        }
        begin(&mut out, dice, 9);
        more = if backward { iter.prev(&mut out) } else { iter.next(&mut out) };
    }
    more.expect("readable");
    found
}

/// The sources that hold the entries and tombstones of a history.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sources {
    Memtable,
    Level0,
    Mixed,
}

#[test]
fn readers_pass_over_exactly_what_range_tombstones_hide() {
    for seed in 0..24 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let sources = [Sources::Memtable, Sources::Level0, Sources::Mixed][seed as usize % 3];
        let store = Store::new();
        let mut readers = Vec::new();
        for number in 0..3_000 {
            store.write(random_op(&dice, number));
            if dice.one_in(300) {
                readers.push(store.take());
            }
            if sources != Sources::Memtable && dice.one_in(400) {
                store.rotate();
                store.flush();
            }
            if sources == Sources::Mixed && dice.one_in(800) {
                store.merge();
            }
            if dice.one_in(250) {
                readers.push(store.take());
                check(&store, readers.last().expect("one").seq(), &dice);
            }
        }
        if sources == Sources::Level0 {
            store.rotate();
            store.flush();
        }
        for reader in &readers {
            check(&store, reader.seq(), &dice);
        }
    }
}

/// Compares walks of a reader with the model.
fn check(store: &Store, seq: SeqNo, dice: &Dice) {
    let expected = store.model(seq, &KeyRange::everything());
    let mut iter = VisibleIter::new(store.newest_view(), seq, KeyRange::everything(), WALK);
    for backward in [false, true] {
        let from = if dice.one_in(3) { None } else { Some(key(dice.below(KEYS))) };
        let found = walk(&mut iter, from.as_deref(), backward, dice);
        let is_wanted = |key: &[u8]| match &from {
            Some(from) if backward => key <= &from[..],
            Some(from) => key >= &from[..],
            None => true,
        };
        let wanted = expected.iter().filter(|(key, _)| is_wanted(key)).cloned();
        let wanted: Vec<_> = if backward { wanted.rev().collect() } else { wanted.collect() };
        assert!(found == wanted, "at {seq} from {from:?}, backward: {backward}");
    }
}
