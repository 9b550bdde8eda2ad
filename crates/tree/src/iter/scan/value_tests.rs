//! Tests of scans whose values are in value files: which values are read, when, and what an error
//! spoils. That the right ones come back is tested with random histories, in `tests`.

use shamba_env::{Env, ThreadSpawner};
use shamba_key::{EntryKind, Expiry, SeqNo};
use shamba_table::{AHEAD_BYTES, LedgerPart};
use shamba_testkit::{Row, memory_env};

use super::*;
use crate::iter::later::ValueCost;
use crate::iter::registry::IterRegistry;
use crate::iter::testing::{Op, Store};
use crate::lookup::pool::ReadPool;
use crate::lookup::pool::testing::Ticking;

/// Length of a value.
const VALUE_BYTES: usize = 2_000;

fn key(number: usize) -> String {
    format!("{number:04}")
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:08}").into_bytes().repeat(VALUE_BYTES / 8)
}

fn put(store: &Store, number: usize) {
    store.write(Op::Put(key(number).into_bytes(), value(number)));
}

fn flush(store: &Store) {
    store.rotate();
    store.flush();
}

/// A store of this many keys in one run, whose values are in one file.
fn store(keys: usize) -> Arc<Store> {
    let store = Store::new();
    *store.separates_from.lock().expect("not poisoned") = Some(100);
    (0..keys).for_each(|number| put(&store, number));
    flush(&store);
    store
}

fn scan_with(store: &Arc<Store>, change: impl FnOnce(ScanSource) -> ScanSource) -> Scan {
    let walk = Walk::Parts { fill_cache: true, ahead_bytes: AHEAD_BYTES };
    let source = ScanSource { walk, ..store.scan_source(store.take()) };
    Scan::new(change(source), KeyRange::everything())
}

fn scan(store: &Arc<Store>) -> Scan {
    scan_with(store, |source| source)
}

/// Moves on to the end, and returns the keys and the number of values read after each step.
fn walk(scan: &mut Scan, mut step: impl FnMut(&mut Scan) -> Result<bool>) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    while step(scan).expect("readable") {
        let key = String::from_utf8(scan.key().expect("a key").to_vec()).expect("text");
        assert_eq!(scan.value(), Some(&value(key.parse().expect("a number"))[..]));
        // Those of `walked` are passed on from time to time.
        let passed_on = scan.source.owner.iterators().walked().values.values;
        seen.push((key, scan.walked.values.values + passed_on));
    }
    seen
}

fn walked(store: &Store) -> ValueCost {
    store.registry.walked().values
}

#[test]
fn a_scan_reads_the_values_of_a_pass_together_and_none_ahead_of_its_first_step() {
    let store = store(300);
    let mut scan = scan(&store);
    let seen = walk(&mut scan, Scan::next);
    assert_eq!(seen.len(), 300);
    let read: Vec<u64> = seen.chunk_by(|a, b| a.1 == b.1).map(|pass| pass[0].1).collect();
    // Passes of 1, 3, 9, 27 and then 64 entries, or of values of 16, 32, 64, 128 and 256 KiB.
    assert_eq!(read, [1, 4, 13, 40, 104, 168, 232, 296, 300]);
    drop(scan);
    assert_eq!((walked(&store).values, walked(&store).reads.count), (300, 9), "one read for each pass");
}

#[test]
fn a_backward_scan_reads_values_together_like_a_forward_one() {
    let store = store(300);
    let mut scan = scan(&store);
    let mut seen = walk(&mut scan, Scan::prev);
    seen.reverse();
    assert!(seen.iter().map(|(key, _)| key.clone()).eq((0..300).map(key)));
    drop(scan);
    assert_eq!((walked(&store).values, walked(&store).reads.count), (300, 9));
}

#[test]
fn a_scan_that_may_not_read_ahead_reads_values_one_by_one() {
    let store = store(40);
    let walk_with = |ahead_bytes| {
        let before = walked(&store);
        let walk_parts = Walk::Parts { fill_cache: true, ahead_bytes };
        let mut scan = scan_with(&store, |source| ScanSource { walk: walk_parts, ..source });
        let seen = walk(&mut scan, Scan::next);
        drop(scan);
        assert_eq!(walked(&store).values - before.values, 40);
        (walked(&store).reads.count - before.reads.count, seen[2].1 - before.values)
    };
    assert_eq!(walk_with(0), (40, 3));
    assert!(walk_with(8_192).0 < 14);
}

#[test]
fn keys_and_hidden_entries_cost_no_read_of_a_value() {
    let store = store(200);
    // Overwritten, deleted, deleted as a part of a range: only the overwriting values are visible.
    (0..50).for_each(|number| put(&store, number));
    (50..60).for_each(|number| store.write(Op::Delete(key(number).into_bytes())));
    store.write(Op::DeleteRange(key(60).into_bytes(), Some(key(90).into_bytes())));
    flush(&store);
    for backward in [false, true] {
        let step = if backward { Scan::prev } else { Scan::next };
        let before = walked(&store);
        let mut keys = scan_with(&store, |source| ScanSource { reads_values: false, ..source });
        let mut found = 0;
        while step(&mut keys).expect("readable") {
            found += 1;
        }
        drop(keys);
        assert_eq!((found, walked(&store)), (160, before), "backward {backward}");
        let mut values = scan(&store);
        assert_eq!(walk(&mut values, step).len(), 160);
        drop(values);
        assert_eq!(walked(&store).values - before.values, 160, "backward {backward}");
    }
}

#[test]
fn entries_before_a_value_that_cannot_be_read_are_returned_and_a_scan_can_go_on_behind_it() {
    let store = store(100);
    let damaged = 30;
    let mut bad = value(damaged);
    bad[77] ^= 1;
    store.replace_in_values(&value(damaged), &bad);
    for backward in [false, true] {
        let mut scan = scan(&store);
        let expected: Vec<usize> =
            if backward { (damaged + 1..100).rev().collect() } else { (0..damaged).collect() };
        for number in expected {
            let moved = if backward { scan.prev() } else { scan.next() };
            assert!(moved.expect("readable"), "{number}");
            assert_eq!(scan.entry(), Some((key(number).as_bytes(), &value(number)[..])));
        }
        for _ in 0..2 {
            let moved = if backward { scan.prev() } else { scan.next() };
            let error = moved.expect_err("a damaged value").to_string();
            assert!(error.contains(".values") && error.contains("value chunk"), "{error}");
            assert_eq!((scan.entry(), scan.place), (None, Place::Nowhere));
            // From there on it begins anew.
            let target = key(damaged);
            let moved =
                if backward { scan.seek_for_prev(target.as_bytes()) } else { scan.seek(target.as_bytes()) };
            moved.expect_err("a damaged value");
            let target = key(if backward { damaged + 1 } else { damaged - 1 });
            assert!(scan.seek(target.as_bytes()).expect("readable"));
        }
        assert!(scan.seek(key(damaged + 1).as_bytes()).expect("readable"));
        assert_eq!(walk(&mut scan, Scan::next).len(), 100 - damaged - 2);
        let mut keys = scan_with(&store, |source| ScanSource { reads_values: false, ..source });
        assert!(keys.seek(key(damaged).as_bytes()).expect("no value is read"));
    }
}

#[test]
fn values_that_a_scan_holds_are_counted_until_it_ends() {
    let store = store(300);
    let held = || store.ledger.bytes(LedgerPart::Iterators);
    let mut scan = scan(&store);
    let mut most = 0;
    while scan.next().expect("readable") {
        let values = (scan.found.len() - scan.at) * VALUE_BYTES;
        assert!(held() >= values as u64, "{} bytes are counted for values of {values}", held());
        most = most.max(held());
    }
    assert!((128_000..400_000).contains(&most), "{most} bytes at most");
    assert!(scan.seek(key(100).as_bytes()).expect("readable"));
    let at_rest = held();
    assert!(scan.next().expect("readable"));
    assert!(held() >= at_rest + 2 * VALUE_BYTES as u64);
    drop(scan);
    assert!(held() < at_rest, "a scan that has ended holds no values");
}

#[test]
fn scans_that_hold_too_much_read_values_one_by_one() {
    let crowded = Store::with_iterator_bytes(1);
    *crowded.separates_from.lock().expect("not poisoned") = Some(100);
    (0..50).for_each(|number| put(&crowded, number));
    flush(&crowded);
    let mut scan = scan(&crowded);
    for number in 0..50 {
        assert!(scan.next().expect("readable"));
        assert_eq!((scan.key(), scan.found.len()), (Some(key(number).as_bytes()), 1));
    }
}

#[test]
fn values_come_without_their_expiry_and_expired_ones_are_not_read() {
    const NOW_MS: u64 = 5_000;
    let store = store(0);
    let rows: Vec<Row> = (0..120)
        .map(|number| {
            let (key, seq, value) = (key(number).into_bytes(), SeqNo(1 + number as u64), value(number));
            let (kind, value) = match number % 4 {
                0 => (EntryKind::PutWithExpiry, Expiry(NOW_MS + 1).encode(&value)),
                1 => (EntryKind::PutWithExpiry, Expiry(NOW_MS).encode(&value)),
                _ => (EntryKind::Put, value),
            };
            Row { key, seq, kind, value }
        })
        .collect();
    store.add_rows(&rows);
    for step in [Scan::next, Scan::prev] {
        let before = walked(&store);
        let seq = store.snapshots.take_at(|| (SeqNo(1_000), NOW_MS));
        let mut scan = scan_with(&store, |source| ScanSource { seq, ..source });
        let mut seen: Vec<_> = walk(&mut scan, step).into_iter().map(|(key, _)| key).collect();
        drop(scan);
        seen.sort();
        assert!(seen.into_iter().eq((0..120).filter(|number| number % 4 != 1).map(key)));
        assert_eq!(walked(&store).values - before.values, 90);
    }
}

/// The owner of scans that may read in parallel.
struct Threaded(Arc<IterRegistry>, ReadPool);

impl Owner for Threaded {
    fn iterators(&self) -> &IterRegistry {
        &self.0
    }

    fn reading_threads(&self) -> Option<&ReadPool> {
        Some(&self.1)
    }
}

#[test]
fn slow_reads_are_made_in_parallel_and_give_the_same() {
    let store = store(200);
    // Every other value is in another file, so that each pass reads two.
    (0..200).step_by(2).for_each(|number| put(&store, number));
    flush(&store);
    for read_ns in [0, 1_000_000] {
        let clock = Arc::new(Ticking::new(read_ns));
        let env = Env { spawner: Arc::new(ThreadSpawner::new()), clock, ..memory_env(1) };
        let owner = Arc::new(Threaded(Arc::clone(&store.registry), ReadPool::new(&env)));
        for step in [Scan::next, Scan::prev] {
            let before = walked(&store);
            let mut scan = scan_with(&store, |source| ScanSource { owner: owner.clone(), ..source });
            assert_eq!(walk(&mut scan, step).len(), 200);
            drop(scan);
            let reads = walked(&store).reads.count - before.reads.count;
            assert!((8..20).contains(&reads), "{reads} reads");
        }
    }
}

#[test]
fn an_entry_that_is_taken_out_keeps_its_value() {
    let store = store(50);
    let mut scan = scan(&store);
    let mut taken = Vec::new();
    while let Some(entry) = scan
        .take_found()
        .or_else(|| scan.next().expect("readable").then(|| scan.take_entry().expect("an entry")))
    {
        taken.push(entry);
    }
    drop(scan);
    for (number, (found, kept)) in taken.iter().enumerate() {
        assert_eq!((&found[..], &kept[..]), (key(number).as_bytes(), &value(number)[..]));
    }
    assert_eq!(taken.len(), 50);
}
