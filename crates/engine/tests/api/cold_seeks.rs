//! Tests of seeks in several runs whose index partitions and blocks are not in memory: those of all
//! runs are read together, and a scan finds what it finds otherwise.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Effect, FaultFs, FaultRule, MemFs, OpKind};
use shamba::{Compression, Cursor, Db, ErrorKind, Residency, Result};

use super::cold_batches::{KEYS, Readers, filled, filled_with, key, of_each_kind, slow, written};

/// The number of entries that a scan reads.
const ENTRIES: usize = 40;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The keys and values of the database.
fn model() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    for (number, value) in written() {
        let key = key(number).into_bytes();
        match value {
            Some(value) => model.insert(key, value.into_bytes()),
            None => model.remove(&key),
        };
    }
    model
}

/// The entries from the cursor's position on, or before it.
fn walk(cursor: &mut Cursor, is_back: bool) -> Result<Entries> {
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.entry() {
        entries.push((key.to_vec(), value.to_vec()));
        if entries.len() == ENTRIES {
            break;
        }
        if is_back {
            cursor.prev()?
        } else {
            cursor.next()?
        };
    }
    Ok(entries)
}

fn compare(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>, seed: u64) {
    let copied = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut cursor = db.cursor();
    for _ in 0..100 {
        let mut from = key(rng.u32(..KEYS + 10)).into_bytes();
        if rng.bool() {
            from.push(b'?');
        }
        if rng.u8(..8) == 0 {
            cursor = db.cursor();
        }
        let is_back = rng.bool();
        let expected: Entries = if is_back {
            model.range(..=from.clone()).rev().take(ENTRIES).map(copied).collect()
        } else {
            model.range(from.clone()..).take(ENTRIES).map(copied).collect()
        };
        let sought = if is_back { cursor.seek_for_prev(&from) } else { cursor.seek(&from) };
        sought.expect("readable");
        let found = walk(&mut cursor, is_back).expect("readable");
        assert!(found == expected, "seed {seed}, from {:?}", String::from_utf8_lossy(&from));
    }
}

#[test]
fn scans_whose_seeks_read_together_find_what_was_written() {
    let model = model();
    of_each_kind(256, |db, seed| {
        db.get(key(1)).expect("a read is measured");
        compare(db, &model, seed);
    });
}

#[test]
fn the_partitions_of_all_runs_are_read_by_several_threads() {
    let fs = Readers::default();
    let db = filled(slow(Arc::new(fs.clone())), Path::new("/db"), Residency::Budgeted, Compression::None);
    db.get(key(1)).expect("a read is measured");
    let runs = db.stats().levels.iter().map(|level| level.runs as usize).sum::<usize>();
    assert!(runs >= 3, "{runs} runs");
    for number in (KEYS / 4..KEYS).step_by(500) {
        fs.clear();
        // A cursor that is sought again has the partitions of its last seek.
        let mut cursor = db.cursor();
        cursor.seek(key(number)).expect("readable");
        assert!(cursor.entry().is_some());
        // A partition and a block of each run; one run ends in the middle. A key may lie behind the
        // last entry of a block: then the seek goes on in the next one.
        assert!((2 * runs - 2..2 * runs + 2).contains(&fs.reads()), "{} reads, from {number}", fs.reads());
        assert!(fs.threads() > 1, "one thread has read for a seek to {number}");
    }
    db.close().expect("closed");
}

#[test]
fn what_a_seek_has_read_is_cached_where_partitions_are() {
    let fs = Readers::default();
    let env = slow(Arc::new(fs.clone()));
    let sizes = (4096, 1 << 20);
    let db = filled_with(env, Path::new("/db"), Residency::Cached, Compression::None, sizes);
    db.get(key(1)).expect("a read is measured");
    let from = key(KEYS / 2 + 7);
    fs.clear();
    db.cursor().seek(&from).expect("readable");
    assert!(fs.reads() >= 6, "{} reads of partitions and blocks of three runs", fs.reads());
    fs.clear();
    db.cursor().seek(&from).expect("readable");
    assert_eq!(fs.reads(), 0, "reads of what was read before");
    db.close().expect("closed");
}

#[test]
fn a_failed_read_of_a_seek_is_an_error_or_made_again() -> Result<()> {
    let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
    let db = filled(slow(faults.clone()), Path::new("/db"), Residency::Budgeted, Compression::None);
    db.get(key(1))?;
    let from = key(KEYS / 2);
    let scan = || -> Result<Entries> {
        let mut cursor = db.cursor();
        cursor.seek(&from)?;
        walk(&mut cursor, false)
    };
    let expected = scan()?;
    assert_eq!(expected.len(), ENTRIES);
    let mut repaired = 0;
    for nth in 0.. {
        faults.clear_rules();
        let before = faults.faults_injected();
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]).at_path(".sst"));
        match scan() {
            Ok(found) => assert!(found == expected, "read {nth}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "read {nth}"),
        }
        if faults.faults_injected() == before {
            break;
        }
        repaired += 1;
    }
    faults.clear_rules();
    assert!(repaired >= 6, "{repaired} reads of a scan in three runs");
    assert!(scan()? == expected);
    db.close()
}
