//! The public faces: both ends of an iterator, the moves of a cursor, errors and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::read::testing::{Op, Store, random_range};
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
            match dice.below(6) {
                0 => store.write(Op::Delete(dice.key())),
                1 => store.rotate(),
                2 => store.flush(),
                _ => store.write(Op::Put(dice.key(), number.to_string().into_bytes())),
            }
        }
        let (seq, range) = (store.take(), random_range(&dice));
        let mut expected = std::collections::VecDeque::from(store.model(seq.seq(), &range));
        let mut iter = Iter::new(store.scan_source(seq), range);
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
    let iter = Iter::new(store.scan_source(store.take()), range("b", Some("d")));
    let keys: Vec<_> = iter.rev().map(|entry| entry.expect("readable").0).collect();
    assert_eq!(keys, [Slice::from("c"), Slice::from("b")]);
    let mut nothing = Iter::new(store.scan_source(store.take()), range("c", Some("b")));
    assert!(nothing.next_back().is_none() && nothing.next().is_none());
}

#[test]
fn a_cursor_moves_as_its_page_says() {
    let store = store_of(&["b", "d", "f"]);
    let mut cursor = Cursor::new(store.scan_source(store.take()), KeyRange::everything());
    let at = |cursor: &Cursor| cursor.key().map(|key| String::from_utf8_lossy(key).into_owned());
    assert_eq!((cursor.valid(), cursor.entry()), (false, None));
    for (name, step, expected) in [
        ("next from nowhere", Cursor::next as fn(&mut Cursor) -> Result<bool>, Some("b")),
        ("next", Cursor::next, Some("d")),
        ("prev", Cursor::prev, Some("b")),
        ("prev before the first", Cursor::prev, None),
        ("prev again", Cursor::prev, None),
        ("next", Cursor::next, Some("b")),
        ("last", Cursor::seek_to_last, Some("f")),
        ("next past the last", Cursor::next, None),
        ("next again", Cursor::next, None),
        ("prev", Cursor::prev, Some("f")),
        ("first", Cursor::seek_to_first, Some("b")),
        ("seek between", |cursor| cursor.seek("c"), Some("d")),
        ("seek to a key", |cursor| cursor.seek("d"), Some("d")),
        ("seek past the last", |cursor| cursor.seek("g"), None),
        ("prev", Cursor::prev, Some("f")),
        ("seek back between", |cursor| cursor.seek_for_prev("e"), Some("d")),
        ("seek back to a key", |cursor| cursor.seek_for_prev("d"), Some("d")),
        ("seek back before the first", |cursor| cursor.seek_for_prev("a"), None),
        ("next", Cursor::next, Some("b")),
    ] {
        assert_eq!(step(&mut cursor).expect("readable"), expected.is_some(), "{name}");
        assert_eq!(at(&cursor).as_deref(), expected, "{name}");
        assert_eq!(cursor.value().is_some(), expected.is_some(), "{name}");
    }
    let mut fresh = Cursor::new(store.scan_source(store.take()), KeyRange::everything());
    assert!(fresh.prev().expect("readable"), "prev from nowhere goes to the last");
    assert_eq!(fresh.entry(), Some((&b"f"[..], &b"F"[..])));
}

#[test]
fn a_cursor_does_not_leave_its_range() {
    let store = store_of(&["a", "b", "c", "d", "e"]);
    let mut cursor = Cursor::new(store.scan_source(store.take()), range("b", Some("d")));
    assert!(cursor.seek("").expect("readable"));
    assert_eq!(cursor.key(), Some(&b"b"[..]));
    assert!(!cursor.prev().expect("readable"));
    assert!(cursor.seek_for_prev("zzz").expect("readable"));
    assert_eq!(cursor.key(), Some(&b"c"[..]));
    assert!(!cursor.next().expect("readable"));
    assert!(!cursor.seek("d").expect("readable"));
    assert!(!cursor.seek_for_prev("a").expect("readable"));
}

/// A source of views that fails from some call on.
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
        let mut iter = Iter::new(ScanSource { views, ..store.scan_source(store.take()) }, range("", None));
        let step = |iter: &mut Iter| if backward { iter.next_back() } else { iter.next() };
        assert!(step(&mut iter).is_some_and(|entry| entry.is_ok()));
        store.registry.revoke_idle(|_| true);
        let error = step(&mut iter).expect("an item").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
}

#[test]
fn iterators_and_cursors_move_between_threads() {
    fn assert_send_and_sync<T: Send + Sync>() {}
    assert_send_and_sync::<Iter>();
    assert_send_and_sync::<Cursor>();
    let store = store_of(&["a", "b"]);
    let mut iter = Iter::new(store.scan_source(store.take()), range("", None));
    assert!(iter.next().is_some());
    let rest = std::thread::spawn(move || iter.count()).join().expect("no panic");
    assert_eq!(rest, 1);
}
