//! Tests of lookups whose values are in value files: one key, many keys, explained, recorded.

use shamba_env::{Env, ThreadSpawner};
use shamba_key::{DigestFn, DigestKind, EntryKind, SeqNo};
use shamba_table::{Charge, LedgerPart};
use shamba_testkit::{Dice, Row, memory_env, sort};

use super::*;
use crate::expiry::{ExpiryClock, ReadTime};
use crate::iter::testing::{Op, Store};
use crate::lookup::explain::{Action, Explanation, Place, Silent, Trace};
use crate::lookup::get::LookupSettings;
use crate::lookup::multi_get::{KeySampling, ReadingThreads, multi_get};
use crate::lookup::opened::OpenedTables;
use crate::lookup::pool::ReadPool;
use crate::lookup::pool::testing::Ticking;
use crate::records::{RecordAccess, RecordCache};
use crate::view::View;

/// The time of all readers.
const NOW_MS: u64 = 5_000;
/// Values from this length on are in value files.
const FROM_BYTES: usize = 50;

fn store() -> Arc<Store> {
    let store = Store::new();
    *store.separates_from.lock().expect("not poisoned") = Some(FROM_BYTES);
    store
}

fn with_settings<T>(records: Option<RecordAccess<'_>>, body: impl FnOnce(&LookupSettings<'_>) -> T) -> T {
    let (opened, clock) = (OpenedTables::default(), memory_env(1).clock);
    let expiry = ExpiryClock::new(clock, None);
    let digest = DigestFn::new(DigestKind::Xxh3, 1);
    let time = &ReadTime::new(&expiry, NOW_MS);
    let opened = &opened;
    body(&LookupSettings { digest, hash_sharing: true, prefetch: true, timer: None, opened, records, time })
}

fn lookup<'a>(view: &'a View, settings: &'a LookupSettings<'a>, key: &'a [u8]) -> Lookup<'a> {
    let (digest, seq, mode) = (settings.digest.digest(key), SeqNo::MAX, ValueMode::Copy);
    Lookup { view, settings, key, digest, seq, mode }
}

/// The value of a key, and the numbers of reads of values and of all reads.
fn get(
    store: &Store,
    key: &[u8],
    mode: ValueMode,
    records: Option<RecordAccess<'_>>,
) -> (Option<Vec<u8>>, u64, u64) {
    let view = store.newest_view();
    with_settings(records, |settings| {
        let mut counts = LookupCounts::default();
        let lookup = Lookup { mode, ..lookup(&view, settings, key) };
        let value = lookup.run(&mut counts, &mut Silent).expect("readable");
        let (reads, hits) = (counts.reads(), counts.cache_hits);
        (value.map(Value::into_vec), reads.value.count, reads.all().count + hits)
    })
}

fn get_many(store: &Store, keys: &[Vec<u8>], pool: Option<&ReadPool>) -> (Vec<Option<Vec<u8>>>, u64) {
    let view = store.newest_view();
    with_settings(None, |settings| {
        let mut counts = LookupCounts::default();
        let samples = KeySampling { next: &|_| None, finish: &|_| {} };
        let threads = ReadingThreads { blocks: None, values: pool };
        let found = multi_get(&view, *settings, SeqNo::MAX, keys, threads, &samples, &mut counts);
        let found: Vec<_> =
            found.expect("readable").into_iter().map(|value| value.map(|value| value.to_vec())).collect();
        assert_eq!(
            (counts.lookups, counts.found),
            (keys.len() as u64, found.iter().flatten().count() as u64)
        );
        (found, counts.reads().value.count)
    })
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

/// Some rows: puts with and without expiry, expired ones, short ones, deletes. Returns what a
/// reader sees of each key, and whether its value is in a value file.
fn fill(store: &Store, dice: &Dice, rows: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>, bool)> {
    let mut all = Vec::new();
    let mut seen = Vec::new();
    for number in 0..rows {
        let value = vec![number as u8; [0, 20, FROM_BYTES, 300, 1_500, 9_000][dice.below(6)]];
        let (kind, payload, seen_value) = match dice.below(5) {
            0 => (EntryKind::PutWithExpiry, Expiry(NOW_MS + 1).encode(&value), Some(value)),
            1 => (EntryKind::PutWithExpiry, Expiry(NOW_MS).encode(&value), None),
            2 if dice.one_in(2) => (EntryKind::Delete, Vec::new(), None),
            _ => (EntryKind::Put, value.clone(), Some(value)),
        };
        let is_separated = kind != EntryKind::Delete && payload.len() >= FROM_BYTES;
        // An older version of another length, which no reader sees.
        let (seq, older) = (SeqNo(1_000 + number as u64), SeqNo(1 + number as u64));
        all.push(Row { key: key(number), seq, kind, value: payload });
        all.push(Row { key: key(number), seq: older, kind: EntryKind::Put, value: vec![0; FROM_BYTES] });
        seen.push((key(number), seen_value, is_separated));
    }
    sort(&mut all);
    store.add_rows(&all);
    seen
}

#[test]
fn a_lookup_reads_a_value_with_one_read_and_only_if_it_is_wanted_and_visible() {
    for seed in 0..10 {
        println!("seed {seed}");
        let store = store();
        let seen = fill(&store, &Dice::new(seed), 60);
        for (key, expected, is_separated) in &seen {
            let reads = u64::from(*is_separated && expected.is_some());
            for mode in [ValueMode::Copy, ValueMode::Pin] {
                let (value, value_reads, _) = get(&store, key, mode, None);
                assert_eq!((&value, value_reads), (expected, reads), "{}", key.escape_ascii());
            }
            let (value, value_reads, _) = get(&store, key, ValueMode::Absent, None);
            assert_eq!((value.is_some(), value_reads), (expected.is_some(), 0));
        }
        assert!(seen.iter().any(|(_, value, is_separated)| *is_separated && value.is_none()));
    }
}

#[test]
fn a_range_tombstone_hides_a_value_without_a_read_of_it() {
    let store = store();
    store.put("a", &"x".repeat(FROM_BYTES));
    store.put("b", &"y".repeat(FROM_BYTES));
    store.write(Op::DeleteRange(b"a".to_vec(), Some(b"b".to_vec())));
    store.rotate();
    store.flush();
    for (key, expected) in [(b"a", None), (b"b", Some("y".repeat(FROM_BYTES).into_bytes()))] {
        let reads = u64::from(expected.is_some());
        assert_eq!(get(&store, key, ValueMode::Copy, None).1, reads);
        assert_eq!(get_many(&store, &[key.to_vec()], None), (vec![expected], reads));
    }
}

#[test]
fn many_keys_at_once_find_what_single_lookups_do_with_fewer_reads() {
    let slow = Env {
        spawner: Arc::new(ThreadSpawner::new()),
        clock: Arc::new(Ticking::new(1_000_000)),
        ..memory_env(1)
    };
    let slow = ReadPool::new(&slow);
    for seed in 0..20 {
        println!("seed {seed}");
        let (store, dice) = (store(), Dice::new(seed));
        let seen = fill(&store, &dice, 150);
        for pool in [None, Some(&slow)] {
            let chosen: Vec<usize> = (0..dice.below(120)).map(|_| dice.below(160)).collect();
            let keys: Vec<_> = chosen.iter().map(|number| key(*number)).collect();
            let single: Vec<_> = keys.iter().map(|key| get(&store, key, ValueMode::Copy, None)).collect();
            let (found, reads) = get_many(&store, &keys, pool);
            let expected =
                chosen.iter().map(|number| seen.get(*number).and_then(|(_, value, _)| value.clone()));
            assert!(found.iter().cloned().eq(expected));
            assert!(found.iter().eq(single.iter().map(|(value, ..)| value)));
            let single_reads: u64 = single.iter().map(|(_, reads, _)| reads).sum();
            assert!(reads <= single_reads && (reads > 0) == (single_reads > 0), "{reads} of {single_reads}");
        }
        let all: Vec<_> = (0..150).map(key).collect();
        let separated = seen.iter().filter(|(_, value, separated)| value.is_some() && *separated).count();
        let reads = get_many(&store, &all, None).1;
        assert!(reads < separated as u64 / 2, "neighbours are read together: {reads} of {separated}");
    }
}

#[test]
fn operands_apply_to_a_value_in_a_value_file() {
    let store = store();
    store.put("k", &"v".repeat(FROM_BYTES));
    store.rotate();
    store.flush();
    store.write(Op::Merge(b"k".to_vec(), b"1".to_vec()));
    store.rotate();
    store.flush();
    let expected = Some(format!("{},1", "v".repeat(FROM_BYTES)).into_bytes());
    let (value, value_reads, _) = get(&store, b"k", ValueMode::Copy, None);
    assert_eq!((&value, value_reads), (&expected, 1));
    assert_eq!(get_many(&store, &[b"k".to_vec()], None), (vec![expected], 1));
}

#[test]
fn an_explanation_names_the_value_file() {
    let store = store();
    store.put("k", &"v".repeat(300));
    store.rotate();
    store.flush();
    let view = store.newest_view();
    with_settings(None, |settings| {
        let (mut counts, mut trace) = (LookupCounts::default(), Trace::default());
        let lookup = lookup(&view, settings, b"k");
        let value = lookup.run(&mut counts, &mut trace).expect("readable");
        let explanation = Explanation::new(&lookup, trace, &counts, value);
        let step = explanation.steps.last().expect("a step");
        let file = store.first_run(0)[0].values.files()[0].file.id.0;
        assert_eq!(step.place, Place::ValueFile { file });
        assert_eq!(step.action, Action::ValueRead { offset: 64, bytes: 309, reads: 1, ns: 0 });
        assert_eq!(step.to_string(), format!("value file {file}: the value: 309 bytes at 64, 1 reads"));
        assert_eq!(explanation.reads.value.count, 1);
    });
}

#[test]
fn values_that_are_asked_for_again_are_recorded_and_then_cost_no_read() {
    let store = store();
    let row = |key: &[u8], seq, kind, value| Row { key: key.to_vec(), seq: SeqNo(seq), kind, value };
    let (short, long) = (vec![7; 500], vec![8; 3_000]);
    store.add_rows(&[
        row(b"expiring", 1, EntryKind::PutWithExpiry, Expiry(NOW_MS + 1).encode(&short)),
        row(b"long", 2, EntryKind::Put, long.clone()),
        row(b"plain", 3, EntryKind::Put, short.clone()),
    ]);
    for many in [false, true] {
        let records = RecordCache::new(Charge::new(&store.ledger, LedgerPart::Records, 0), 1 << 20);
        records.set_capacity(1 << 20, 1);
        for (key, expected) in [(&b"plain"[..], &short), (b"expiring", &short), (b"long", &long)] {
            let is_recorded = expected.len() < 2_000;
            let mut reads = Vec::new();
            for _ in 0..4 {
                let records = records.access(true);
                if many {
                    let view = store.newest_view();
                    reads.push(with_settings(records, |settings| {
                        let mut counts = LookupCounts::default();
                        let samples = KeySampling { next: &|_| None, finish: &|_| {} };
                        let threads = ReadingThreads { blocks: None, values: None };
                        let found =
                            multi_get(&view, *settings, SeqNo::MAX, &[key], threads, &samples, &mut counts);
                        assert_eq!(found.expect("readable")[0].as_deref(), Some(&expected[..]));
                        counts.reads().value.count
                    }));
                } else {
                    let (value, value_reads, _) = get(&store, key, ValueMode::Copy, records);
                    assert_eq!(value.as_ref(), Some(expected));
                    reads.push(value_reads);
                }
            }
            let expected = if is_recorded { [1, 1, 0, 0] } else { [1; 4] };
            assert_eq!(reads, expected, "{}, many {many}", key.escape_ascii());
        }
        let (asked, _) = records.asked();
        assert_eq!(asked.hits, 4, "each of two keys had a record twice: {asked:?}");
        // The value, and the block unless it was cached.
        assert!(asked.repeat_reads >= asked.repeats && asked.repeats == 2, "{asked:?}");
    }
}
