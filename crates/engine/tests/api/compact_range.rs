//! Tests of `compact_range`: what it compacts, what it leaves, and that it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{Env, MemFs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Db, ErrorKind, Keyspace, KeyspaceOptions};

fn builder(fs: &MemFs) -> shamba::Builder {
    let env = Env::deterministic(Arc::new(fs.clone()), 5);
    let db = Db::builder("/db").env(env).write_buffer(64 << 10).size_ratio(4.0);
    db.experimental(|e| e.file_size(16 << 10))
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// Writes 2,000 values of 100 bytes into a keyspace, and compacts it.
fn fill(keyspace: &Keyspace) {
    for number in 0..2_000u32 {
        keyspace.put(key(number), format!("{number:04}").repeat(25)).expect("put");
    }
    keyspace.compact().expect("compacted");
}

#[test]
fn a_range_is_compacted_without_the_tables_beside_it() {
    let fs = MemFs::new();
    let db = builder(&fs).open().expect("opens");
    let keyspace = db.keyspace("a").expect("made");
    fill(&keyspace);
    let before: Vec<_> = keyspace.tables().iter().map(|table| (table.lower.clone(), table.entries)).collect();
    assert!(before.len() > 8, "{} tables", before.len());
    let (half, two) = ([0x80u8], [0x90u8]);
    keyspace.delete_range(half..two).expect("deleted");
    let written = || db.stats().bytes_compacted;
    let so_far = written();
    keyspace.compact_range(half..two).expect("compacted");
    let tables = keyspace.tables();
    let levels = keyspace.stats().levels;
    assert!(levels.iter().all(|level| level.range_deletes == 0), "{levels:?}");
    assert!(tables.iter().all(|table| table.level > 0), "{tables:?}");
    let deleted = |key: &[u8]| half.as_slice() <= key && key < two.as_slice();
    let expected: Vec<u32> = (0..2_000).filter(|number: &u32| !deleted(&key(*number))).collect();
    assert_eq!(keyspace.iter().count(), expected.len());
    assert_eq!(tables.iter().map(|table| table.entries).sum::<u64>(), expected.len() as u64);
    // A sixteenth of the keys: the tables that it shares are rewritten, no others.
    let rewritten = written() - so_far;
    let all: u64 = keyspace.stats().levels.iter().map(|level| level.bytes).sum();
    assert!(rewritten < all / 4, "{rewritten} of {all} bytes");
    let ends = |tables: &[(Vec<u8>, u64)]| (tables[0].clone(), tables[tables.len() - 1].clone());
    let after: Vec<_> = tables.iter().map(|table| (table.lower.clone(), table.entries)).collect();
    assert_eq!(ends(&before), ends(&after));
    // Once more: there is nothing to do.
    keyspace.compact_range(half..two).expect("compacted");
    keyspace.compact_range(..).expect("compacted");
    assert_eq!(written() - so_far, rewritten);
    let nothing = keyspace.compact_range(two..half);
    assert!(nothing.is_ok(), "{nothing:?}");
}

#[test]
fn what_a_snapshot_sees_stays_and_the_call_ends() {
    let fs = MemFs::new();
    let db = builder(&fs).open().expect("opens");
    let keyspace = db.keyspace("a").expect("made");
    fill(&keyspace);
    let snapshot = db.snapshot();
    let seen = || snapshot.keyspace(&keyspace).iter().count();
    let (lower, upper) = ([0x40u8], [0xc0u8]);
    keyspace.delete_range(lower..upper).expect("deleted");
    for _ in 0..3 {
        keyspace.compact_range(lower..upper).expect("compacted");
        assert_eq!(seen(), 2_000);
    }
    let kept = keyspace.iter().count();
    assert!((900..1_100).contains(&kept), "{kept}");
    drop(snapshot);
    keyspace.compact_range(lower..upper).expect("compacted");
    let levels = keyspace.stats().levels;
    assert!(levels.iter().all(|level| level.range_deletes == 0), "{levels:?}");
    assert_eq!(keyspace.tables().iter().map(|table| table.entries).sum::<u64>(), kept as u64);
}

/// Keeps everything, and counts the values that it is asked about.
struct Counting(Arc<AtomicU64>);

impl CompactionFilter for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn filter(&self, _: &FilterEntry<'_>) -> Verdict {
        self.0.fetch_add(1, Ordering::Relaxed);
        Verdict::Keep
    }
}

#[test]
fn a_compaction_filter_is_asked_about_each_value_of_the_range_once() {
    let (fs, asked) = (MemFs::new(), Arc::new(AtomicU64::new(0)));
    let options = KeyspaceOptions::new().compaction_filter(Counting(Arc::clone(&asked)));
    let db = builder(&fs).keyspace("a", options).open().expect("opens");
    let keyspace = db.keyspace("a").expect("there");
    fill(&keyspace);
    let tables = keyspace.tables();
    let range = tables[3].lower.clone()..tables[5].lower.clone();
    let of_range: u64 = tables[3..5].iter().map(|table| table.entries).sum();
    let before = asked.load(Ordering::Relaxed);
    keyspace.compact_range(range).expect("compacted");
    assert_eq!(asked.load(Ordering::Relaxed) - before, of_range);
    drop((keyspace, db));
    let without = builder(&fs).open().expect("opens");
    let keyspace = without.keyspace("a").expect("there");
    let refused = keyspace.compact_range(..).expect_err("the filter is not given");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    without.drop_keyspace("a").expect("dropped");
    assert_eq!(keyspace.compact_range(..).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
}

#[test]
fn ranges_are_compacted_beside_writers_on_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = KeyspaceOptions::new().value_threshold(300);
    let builder = Db::builder(dir.path()).write_buffer(64 << 10).size_ratio(4.0).background_threads(2);
    let db = builder.experimental(|e| e.file_size(16 << 10)).keyspace("a", options).open().expect("opens");
    let keyspace = db.keyspace("a").expect("there");
    let is_over = AtomicBool::new(false);
    let model = std::thread::scope(|scope| {
        let compactor = scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(11);
            let mut calls = 0;
            while !is_over.load(Ordering::Relaxed) {
                let (one, other) = (rng.u8(..), rng.u8(..));
                keyspace.compact_range([one.min(other)]..[one.max(other)]).expect("compacted");
                calls += 1;
            }
            calls
        });
        let mut rng = fastrand::Rng::with_seed(12);
        let mut model = BTreeMap::new();
        for step in 0..30_000u32 {
            let place = key(rng.u32(..3_000));
            match rng.u8(..40) {
                0 => {
                    let (one, other) = (rng.u8(..), rng.u8(..));
                    let (lower, upper) = (one.min(other), one.min(other).saturating_add(3));
                    keyspace.delete_range([lower]..[upper]).expect("deleted");
                    model.retain(|key: &[u8; 4], _| !(lower..upper).contains(&key[0]));
                }
                1..9 => {
                    keyspace.delete(place).expect("deleted");
                    model.remove(&place);
                }
                _ => {
                    let value = step.to_le_bytes().repeat(rng.usize(1..120));
                    keyspace.put(place, &value).expect("put");
                    model.insert(place, value);
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(compactor.join().expect("no panic") > 0, "calls of compact_range");
        model
    });
    let found: Vec<_> = keyspace.iter().map(|entry| entry.expect("an entry")).collect();
    assert_eq!(found.len(), model.len());
    for ((key, value), (expected_key, expected)) in found.iter().zip(&model) {
        assert!(**key == *expected_key && **value == **expected, "{key:?}");
    }
    // Nothing of the last call is left to do when it returns.
    keyspace.compact_range(..).expect("compacted");
    assert!(keyspace.stats().levels.iter().all(|level| level.range_deletes == 0));
    db.check_invariants().expect("the trees are sound");
    let report = db.verify().expect("checked");
    assert!(report.is_clean(), "{report:?}");
}
