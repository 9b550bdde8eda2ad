//! Tests of scans over a keyspace that changes meanwhile, against a model at their sequence number.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::error::{Cause, Error};
use crate::iter::testing::{Op, Store, random_prefix, random_prefix_range, random_range};
use crate::view::View;
use shamba_key::Prefix;
use shamba_testkit::Dice;

/// A scan and the entries that it must return.
struct Watched {
    scan: Scan,
    expected: Vec<(Vec<u8>, Vec<u8>)>,
    place: Place,
    at: usize,
}

impl Watched {
    fn new(store: &Arc<Store>, dice: &Dice) -> Self {
        let seq = store.take();
        let range = match dice.below(4) {
            0 => KeyRange::everything(),
            1 => random_range(dice),
            _ => random_prefix_range(dice),
        };
        let expected = store.model(seq.seq(), &range);
        Self { scan: Scan::new(store.scan_source(seq), range), expected, place: Place::Nowhere, at: 0 }
    }

    fn stand(&mut self, at: Option<usize>) {
        (self.place, self.at) = match at {
            None => (Place::Before, 0),
            Some(at) if at < self.expected.len() => (Place::At, at),
            Some(_) => (Place::After, 0),
        };
    }

    fn random_move(&mut self, dice: &Dice) {
        let last = self.expected.len().checked_sub(1);
        let choice = dice.below(12);
        let found = match choice {
            0 => {
                self.stand(Some(0));
                self.scan.seek_to_first()
            }
            1 => {
                self.stand(last);
                self.scan.seek_to_last()
            }
            2 => {
                let key = dice.key();
                self.stand(Some(self.expected.partition_point(|(other, _)| *other < key)));
                self.scan.seek(&key)
            }
            3 => {
                let key = dice.key();
                self.stand(self.expected.partition_point(|(other, _)| *other <= key).checked_sub(1));
                self.scan.seek_for_prev(&key)
            }
            4..8 => {
                match self.place {
                    Place::Nowhere | Place::Before => self.stand(Some(0)),
                    Place::At => self.stand(Some(self.at + 1)),
                    Place::After => {}
                }
                self.scan.next()
            }
            _ => {
                match self.place {
                    Place::Nowhere | Place::After => self.stand(last),
                    Place::At => self.stand(self.at.checked_sub(1)),
                    Place::Before => {}
                }
                self.scan.prev()
            }
        };
        let expected = (self.place == Place::At).then(|| &self.expected[self.at]);
        assert_eq!(found.expect("readable"), expected.is_some(), "move {choice}");
        let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
        assert_eq!(self.scan.entry(), expected, "move {choice}");
        assert_eq!(self.scan.place, self.place, "move {choice}");
    }
}

fn random_op(dice: &Dice, number: usize) -> Op {
    match dice.below(14) {
        0..3 => Op::Delete(dice.key()),
        12.. => Op::Merge(dice.key(), number.to_string().into_bytes()),
        3 => Op::DeleteRange(dice.key(), (!dice.one_in(8)).then(|| dice.key())),
        _ => Op::Put(dice.key(), random_value(dice, number)),
    }
}

/// A short value, or one that is long enough for a value file.
fn random_value(dice: &Dice, number: usize) -> Vec<u8> {
    let mut value = format!("value {number}").into_bytes();
    if dice.one_in(2) {
        value.resize([40, 300, 1_500, 6_000][dice.below(4)], number as u8);
    }
    value
}

/// Lets values be separated from now on, or not.
fn separate(store: &Store, dice: &Dice) {
    *store.separates_from.lock().expect("not poisoned") =
        [None, Some(1), Some(40), Some(1_000)][dice.below(4)];
}

/// Revokes views that are not the newest, as the installation of a version does.
fn revoke_stale(store: &Store) -> usize {
    let newest = Arc::as_ptr(&store.newest_view());
    store.registry.revoke_idle(|view| !std::ptr::eq(view, newest))
}

/// Tables are written with changing prefix extractors, and values are in value files or not, which
/// no scan may show.
#[test]
fn scans_are_frozen_whatever_happens_to_the_keyspace() {
    let (mut revoked, mut asked) = (0, Walked::default());
    for seed in 0..120 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let store = Store::new();
        let mut scans: Vec<Watched> = Vec::new();
        for number in 0..400 {
            match dice.below(24) {
                0..8 => store.write(random_op(&dice, number)),
                8 => {
                    separate(&store, &dice);
                    *store.prefix.lock().expect("not poisoned") = random_prefix(&dice);
                    store.rotate();
                }
                9 => store.flush(),
                10 if dice.one_in(2) => {
                    store.merge();
                    revoke_stale(&store);
                }
                10 | 11 => drop(store.registry.revoke_idle(|_| dice.one_in(2))),
                12 => scans.push(Watched::new(&store, &dice)),
                13 if scans.len() > 4 => drop(scans.swap_remove(dice.below(scans.len()))),
                _ if scans.is_empty() => scans.push(Watched::new(&store, &dice)),
                _ => {
                    let scan = dice.below(scans.len());
                    for _ in 0..=dice.below(6) {
                        scans[scan].random_move(&dice);
                    }
                }
            }
        }
        // The entries that all of them see at the end, after the whole tree has changed.
        store.rotate();
        while store.newest_view().memtables.len() > 1 {
            store.flush();
        }
        store.merge();
        store.registry.revoke_idle(|_| true);
        assert_eq!(store.registry.pinned(), 0);
        for watched in &mut scans {
            for _ in 0..20 {
                watched.random_move(&dice);
            }
        }
        revoked += store.registry.revoked();
        drop(scans);
        asked.filters += store.registry.walked().filters;
        asked.runs_skipped += store.registry.walked().runs_skipped;
        asked.values = asked.values.plus(store.registry.walked().values);
        assert_eq!(store.snapshots.len(), 0);
    }
    assert!(revoked > 1_000, "only {revoked} views were taken away");
    assert!(asked.filters > 1_000 && asked.runs_skipped > 300, "filters were asked too seldom: {asked:?}");
    assert!(asked.values.values > 1_000, "too few values were in value files: {asked:?}");
}

#[test]
fn forward_and_backward_walks_agree_after_every_flush_and_merge() {
    for seed in 0..60 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let store = Store::new();
        let mut snapshots = Vec::new();
        for number in 0..200 {
            store.write(random_op(&dice, number));
            match dice.below(30) {
                0 => snapshots.push(store.take()),
                1..4 => store.rotate(),
                4..7 => store.flush(),
                7 => store.merge(),
                8 => separate(&store, &dice),
                _ => {}
            }
        }
        snapshots.push(store.take());
        for seq in snapshots {
            let expected = store.model(seq.seq(), &KeyRange::everything());
            let mut scan = Scan::new(store.scan_source(seq), KeyRange::everything());
            let owned = |scan: &Scan| scan.entry().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let mut forward = Vec::new();
            while scan.next().expect("readable") {
                forward.extend(owned(&scan));
            }
            assert_eq!(forward, expected);
            let mut backward = Vec::new();
            while scan.prev().expect("readable") {
                backward.extend(owned(&scan));
            }
            backward.reverse();
            assert_eq!(backward, expected);
        }
    }
}

#[test]
fn a_thousand_idle_scans_keep_no_view_alive() {
    let store = Store::new();
    for number in 0..100 {
        store.put(&format!("{number:03}"), "value");
    }
    let mut scans: Vec<Scan> =
        (0..1_000).map(|_| Scan::new(store.scan_source(store.take()), KeyRange::everything())).collect();
    for scan in &mut scans {
        assert!(scan.seek(b"050").expect("readable"));
    }
    assert_eq!(store.registry.pinned(), 1_000);
    let old: Weak<View> = Arc::downgrade(&store.newest_view());
    store.rotate();
    store.flush();
    assert!(old.upgrade().is_some());
    assert_eq!(revoke_stale(&store), 1_000);
    assert!(old.upgrade().is_none(), "something still holds the old view");
    assert_eq!((store.registry.pinned(), store.registry.revoked()), (0, 1_000));
    for scan in &mut scans {
        assert_eq!(scan.key(), Some(&b"050"[..]), "the entry at hand stays readable");
        assert!(scan.next().expect("readable"));
        assert_eq!(scan.key(), Some(&b"051"[..]));
    }
    assert_eq!(revoke_stale(&store), 0, "they hold the newest view now");
    let slots = || store.registry.places();
    assert_eq!(slots(), 1_000);
    drop(scans);
    for _ in 0..2_000 {
        drop(Scan::new(store.scan_source(store.take()), KeyRange::everything()));
    }
    assert!(slots() <= 2_100, "{} places kept for ended scans", slots());
}

/// A source of views that runs a given action when a view is loaded.
struct Interrupted<F: Fn() -> Result<()>>(Arc<Store>, F);

impl<F: Fn() -> Result<()> + Send + Sync> ViewSource for Interrupted<F> {
    fn view(&self) -> Result<Arc<View>> {
        (self.1)()?;
        self.0.view()
    }
}

#[test]
fn a_scan_takes_over_the_iterator_of_an_ended_one_only_while_the_view_is_the_newest() {
    let store = Store::new();
    store.put("a", "1");
    store.put("b", "2");
    let loaded = Arc::new(AtomicUsize::new(0));
    let views = || {
        let loaded = Arc::clone(&loaded);
        Counting(Arc::clone(&store), loaded)
    };
    let keys = |source: ScanSource| {
        let mut scan = Scan::new(source, KeyRange::everything());
        let mut keys = Vec::new();
        while scan.next().expect("readable") {
            keys.push(scan.key().expect("at a key").to_vec());
        }
        keys
    };
    let scan = || keys(ScanSource { views: Arc::new(views()), ..store.scan_source(store.take()) });
    assert_eq!(scan(), [b"a", b"b"]);
    assert_eq!(scan(), [b"a", b"b"]);
    assert_eq!(loaded.load(Ordering::Relaxed), 1, "a second scan needs no reference to the view");
    store.rotate();
    store.put("c", "1");
    assert_eq!(scan(), [b"a", b"b", b"c"]);
    assert_eq!(loaded.load(Ordering::Relaxed), 2, "the view is another one");
}

/// A source of views that counts how many were loaded.
struct Counting(Arc<Store>, Arc<AtomicUsize>);

impl ViewSource for Counting {
    fn view(&self) -> Result<Arc<View>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.view()
    }

    fn is_newest(&self, view: &Arc<View>) -> Result<bool> {
        self.0.is_newest(view)
    }
}

#[test]
fn a_scan_in_the_middle_of_a_call_gives_its_view_up_at_the_end_of_it() {
    let store = Store::new();
    store.put("a", "1");
    store.put("b", "2");
    let registry = Arc::clone(&store.registry);
    let interrupted = Interrupted(Arc::clone(&store), move || {
        assert_eq!(registry.revoke_idle(|_| true), 0, "the scan is busy");
        Ok(())
    });
    let source = ScanSource { views: Arc::new(interrupted), ..store.scan_source(store.take()) };
    let mut scan = Scan::new(source, KeyRange::everything());
    assert!(scan.next().expect("readable"));
    assert_eq!(store.registry.pinned(), 0);
    assert!(scan.next().expect("readable"));
    assert_eq!(scan.key(), Some(&b"b"[..]));
}

#[test]
fn after_an_error_a_scan_stands_nowhere_and_can_start_over() {
    let store = Store::new();
    store.put("a", "1");
    store.put("b", "2");
    let closed = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&closed);
    let views = Interrupted(Arc::clone(&store), move || match switch.load(Ordering::Relaxed) {
        true => Err(Error::closed()),
        false => Ok(()),
    });
    let source = ScanSource { views: Arc::new(views), ..store.scan_source(store.take()) };
    let mut scan = Scan::new(source, KeyRange::everything());
    assert!(scan.seek(b"b").expect("readable"));
    closed.store(true, Ordering::Relaxed);
    store.registry.revoke_idle(|_| true);
    assert!(matches!(scan.prev().expect_err("closed").cause(), Cause::Closed));
    assert_eq!((scan.entry(), scan.place), (None, Place::Nowhere));
    closed.store(false, Ordering::Relaxed);
    assert!(scan.prev().expect("readable"));
    assert_eq!(scan.key(), Some(&b"b"[..]));
}

#[test]
fn a_merge_keeps_what_registered_scans_see_and_drops_the_rest() {
    let store = Store::new();
    store.put("a", "old");
    let before = store.take();
    store.put("a", "middle");
    store.put("a", "new");
    store.write(Op::DeleteRange(b"b".to_vec(), Some(b"c".to_vec())));
    store.rotate();
    store.flush();
    store.merge();
    let versions = |store: &Store| store.first_run(1).iter().map(|table| table.meta.entries).sum::<u64>();
    assert_eq!(versions(&store), 2);
    let mut scan = Scan::new(store.scan_source(before), KeyRange::everything());
    assert!(scan.next().expect("readable"));
    assert_eq!(scan.entry(), Some((&b"a"[..], &b"old"[..])));
    drop(scan);
    store.merge();
    assert_eq!(versions(&store), 1);
}

/// Open iterators together hold no more than their limit, whichever moves next, and all of them go
/// on from their positions.
#[test]
fn many_open_scans_take_little_and_lose_nothing() {
    let limit_bytes = 1 << 20;
    let store = Store::with_iterator_bytes(limit_bytes);
    for number in 0..4_000 {
        store.put(&format!("k{number:05}"), "some value of some length");
        if number % 400 == 399 {
            store.rotate();
            store.flush();
        }
    }
    let ledger = Arc::clone(&store.ledger);
    let held_bytes = || ledger.bytes(shamba_table::LedgerPart::Iterators);
    let mut scans: Vec<(usize, Scan)> = (0..400)
        .map(|number| {
            let mut scan = Scan::new(store.scan_source(store.take()), KeyRange::everything());
            let at = number * 10;
            assert!(scan.seek(format!("k{at:05}").as_bytes()).expect("readable"));
            (at, scan)
        })
        .collect();
    let mut bytes_max = held_bytes();
    for round in 0..30 {
        for (at, scan) in &mut scans {
            let forward = round < 20 || *at == 0;
            *at = if forward { *at + 1 } else { *at - 1 };
            let moved = if forward { scan.next() } else { scan.prev() }.expect("readable");
            assert_eq!(moved, *at < 4_000, "round {round}, at {at}");
            if moved {
                assert_eq!(scan.key(), Some(format!("k{at:05}").as_bytes()));
            } else {
                *at = 4_000;
            }
            bytes_max = bytes_max.max(held_bytes());
        }
    }
    assert!(store.registry.revoked() > 400, "{}", store.registry.revoked());
    assert!(bytes_max < limit_bytes * 2, "{bytes_max} of {limit_bytes}");
    drop(scans);
}

/// Filters are in memory by what they save, which sampled scans count as sampled lookups do.
#[test]
fn sampled_scans_of_a_prefix_count_as_lookups_of_it() {
    let store = Store::new();
    *store.prefix.lock().expect("not poisoned") = Some(Prefix::Fixed(3));
    for number in [0, 1, 3] {
        store.put(&format!("a{number:02}:key"), "value");
    }
    store.rotate();
    store.flush();
    let table = Arc::clone(&store.first_run(0)[0].meta);
    let scans = |prefix: &str, end: &str| {
        let range = KeyRange { lower: prefix.to_owned().into(), upper: Some(end.to_owned().into()) };
        for _ in 0..6_400 {
            Scan::new(store.scan_source(store.take()), range.clone()).next().expect("readable");
        }
    };
    scans("a01", "a02");
    let probes = table.statistics.probes();
    assert!(probes.found > 80.0 && probes.empty == 0.0, "{probes:?}");
    scans("a01", "a01:a");
    let probes = table.statistics.probes();
    assert!(probes.false_positives > 80.0 && probes.empty == probes.false_positives, "{probes:?}");
    // Not asked: the range does not fix a prefix.
    scans("a0", "a1");
    assert_eq!(table.statistics.probes().lookups(), probes.lookups());
    assert_eq!(store.registry.walked().filters, 2 * 6_400);
    // The table reaches into the range, but lacks the prefix.
    scans("a02", "a03");
    let denied = table.statistics.probes();
    assert_eq!(store.registry.walked().runs_skipped, 6_400);
    assert!(denied.empty > probes.empty + 80.0, "{denied:?}");
    assert_eq!(denied.false_positives, probes.false_positives, "{denied:?}");
}
