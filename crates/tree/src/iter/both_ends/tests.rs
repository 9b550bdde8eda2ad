//! Tests of the public scan types: both ends of an iterator, the moves of a cursor, errors and
//! threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;
use crate::error::{Cause, Error};
use crate::iter::testing::{Op, Store, random_range};
use crate::view::{View, ViewSource};
use shamba_testkit::Dice;

fn store_of(keys: &[&str]) -> Arc<Store> {
    let store = Store::new();
    for key in keys {
        store.put(key, &key.to_uppercase());
    }
    store
}

fn range(lower: &'static str, upper: Option<&'static str>) -> KeyRange {
    KeyRange { lower: lower.into(), upper: upper.map(Bytes::from) }
}

#[test]
fn front_and_back_meet_and_give_each_key_once() {
    for seed in 0..300 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let store = Store::new();
        for number in 0..dice.below(40) {
            match dice.below(7) {
                6 => store.write(Op::Merge(dice.key(), number.to_string().into_bytes())),
                0 => store.write(Op::Delete(dice.key())),
                1 => store.rotate(),
                2 => store.flush(),
                _ => store.write(Op::Put(dice.key(), number.to_string().into_bytes())),
            }
        }
        let (seq, range) = (store.take(), random_range(&dice));
        let mut expected = std::collections::VecDeque::from(store.model(seq.seq(), &range));
        let mut iter = BothEnds::new(store.scan_source(seq), range);
        let lean = 1 + dice.below(5);
        loop {
            let (got, wanted) = match dice.one_in(lean) {
                true => (iter.next(), expected.pop_front()),
                false => (iter.next_back(), expected.pop_back()),
            };
            let got = got.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec())));
            assert_eq!(got.transpose().expect("readable"), wanted);
            if dice.one_in(3) {
                store.registry.revoke_idle(|_| true);
            }
            if wanted.is_none() {
                break;
            }
        }
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
}

#[test]
fn a_reversed_iterator_walks_from_the_end() {
    let store = store_of(&["a", "b", "c", "d"]);
    let iter = BothEnds::new(store.scan_source(store.take()), range("b", Some("d")));
    let keys: Vec<_> = iter.rev().map(|entry| entry.expect("readable").0).collect();
    assert_eq!(keys, [Slice::from("c"), Slice::from("b")]);
    let mut nothing = BothEnds::new(store.scan_source(store.take()), range("c", Some("b")));
    assert!(nothing.next_back().is_none() && nothing.next().is_none());
}

#[test]
fn a_cursor_moves_as_its_page_says() {
    let store = store_of(&["b", "d", "f"]);
    let mut cursor = Scan::new(store.scan_source(store.take()), KeyRange::everything());
    let at = |cursor: &Scan| cursor.key().map(|key| String::from_utf8_lossy(key).into_owned());
    assert_eq!((cursor.entry().is_some(), cursor.entry()), (false, None));
    for (name, step, expected) in [
        ("next from nowhere", Scan::next as fn(&mut Scan) -> Result<bool>, Some("b")),
        ("next", Scan::next, Some("d")),
        ("prev", Scan::prev, Some("b")),
        ("prev before the first", Scan::prev, None),
        ("prev again", Scan::prev, None),
        ("next", Scan::next, Some("b")),
        ("last", Scan::seek_to_last, Some("f")),
        ("next past the last", Scan::next, None),
        ("next again", Scan::next, None),
        ("prev", Scan::prev, Some("f")),
        ("first", Scan::seek_to_first, Some("b")),
        ("seek between", |cursor| cursor.seek(b"c"), Some("d")),
        ("seek to a key", |cursor| cursor.seek(b"d"), Some("d")),
        ("seek past the last", |cursor| cursor.seek(b"g"), None),
        ("prev", Scan::prev, Some("f")),
        ("seek back between", |cursor| cursor.seek_for_prev(b"e"), Some("d")),
        ("seek back to a key", |cursor| cursor.seek_for_prev(b"d"), Some("d")),
        ("seek back before the first", |cursor| cursor.seek_for_prev(b"a"), None),
        ("next", Scan::next, Some("b")),
    ] {
        assert_eq!(step(&mut cursor).expect("readable"), expected.is_some(), "{name}");
        assert_eq!(at(&cursor).as_deref(), expected, "{name}");
        assert_eq!(cursor.entry().is_some(), expected.is_some(), "{name}");
    }
    let mut fresh = Scan::new(store.scan_source(store.take()), KeyRange::everything());
    assert!(fresh.prev().expect("readable"), "prev from nowhere goes to the last");
    assert_eq!(fresh.entry(), Some((&b"f"[..], &b"F"[..])));
}

#[test]
fn a_cursor_does_not_leave_its_range() {
    let store = store_of(&["a", "b", "c", "d", "e"]);
    let mut cursor = Scan::new(store.scan_source(store.take()), range("b", Some("d")));
    assert!(cursor.seek(b"").expect("readable"));
    assert_eq!(cursor.key(), Some(&b"b"[..]));
    assert!(!cursor.prev().expect("readable"));
    assert!(cursor.seek_for_prev(b"zzz").expect("readable"));
    assert_eq!(cursor.key(), Some(&b"c"[..]));
    assert!(!cursor.next().expect("readable"));
    assert!(!cursor.seek(b"d").expect("readable"));
    assert!(!cursor.seek_for_prev(b"a").expect("readable"));
}

/// A source of views that fails after a number of calls.
struct Failing(Arc<Store>, AtomicUsize);

impl ViewSource for Failing {
    fn view(&self) -> Result<Arc<View>> {
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::closed()),
            _ => self.0.view(),
        }
    }
}

#[test]
fn an_error_ends_an_iterator_at_both_ends() {
    for backward in [false, true] {
        let store = store_of(&["a", "b", "c"]);
        let views = Arc::new(Failing(Arc::clone(&store), AtomicUsize::new(1)));
        let mut iter =
            BothEnds::new(ScanSource { views, ..store.scan_source(store.take()) }, range("", None));
        let step = |iter: &mut BothEnds| if backward { iter.next_back() } else { iter.next() };
        assert!(step(&mut iter).is_some_and(|entry| entry.is_ok()));
        store.registry.revoke_idle(|_| true);
        let error = step(&mut iter).expect("an item").expect_err("closed");
        assert!(matches!(error.cause(), Cause::Closed));
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
}

#[test]
fn iterators_and_cursors_move_between_threads() {
    fn assert_send_and_sync<T: Send + Sync>() {}
    assert_send_and_sync::<BothEnds>();
    assert_send_and_sync::<Scan>();
    let store = store_of(&["a", "b"]);
    let mut iter = BothEnds::new(store.scan_source(store.take()), range("", None));
    assert!(iter.next().is_some());
    let rest = std::thread::spawn(move || iter.count()).join().expect("no panic");
    assert_eq!(rest, 1);
}
