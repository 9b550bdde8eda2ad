//! Values that cannot be read: compactions that need not read them go on, and readers report them.

use std::sync::Arc;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::merge::Append;
use shamba::{Db, KeyspaceOptions};

use super::{builder, fill, open, value, value_files};

const COUNT: u64 = 300;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Changes a byte of the first value of each value file.
fn damage(fs: &MemFs) {
    for name in value_files(fs, "/db") {
        let path = format!("/db/{name}");
        let mut bytes = shamba::env::read_file(fs, path.as_ref()).expect("read");
        bytes[600] ^= 1;
        fs.unlink(path.as_ref()).expect("removed");
        shamba::env::write_file_synced(fs, path.as_ref(), &bytes).expect("written");
    }
}

/// Files with values of all keys in one run, some of them damaged.
fn damaged() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, COUNT, 1_000);
    default.compact().expect("compacted");
    drop(default);
    db.close().expect("closed");
    damage(&fs);
    fs
}

/// The number of keys whose value is `expected`, and of those that cannot be read.
fn read(db: &Db, expected: impl Fn(u64) -> Vec<u8>) -> (u64, u64) {
    let (mut whole, mut unreadable) = (0, 0);
    for number in 0..COUNT {
        match db.get(key(number)) {
            Ok(found) => {
                assert_eq!(found.expect("there"), expected(number)[..], "{number}");
                whole += 1;
            }
            Err(error) => {
                assert!(error.damage().is_some(), "{error}");
                unreadable += 1;
            }
        }
    }
    (whole, unreadable)
}

#[test]
fn operands_over_a_damaged_value_stay_apart() {
    let fs = damaged();
    let appending = || KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let db = builder(&fs).keyspace("default", appending()).open().expect("opens");
    (0..COUNT).for_each(|number| db.merge(key(number), "more").expect("merged"));
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    let expected = |number| [&value(number, 1_000)[..], b",more"].concat();
    let (whole, unreadable) = read(&db, expected);
    assert!(unreadable > 0 && whole > COUNT / 2, "{whole} read, {unreadable} unreadable");
    // A put replaces both.
    (0..COUNT).for_each(|number| db.put(key(number), "new").expect("put"));
    db.compact().expect("compacted");
    assert_eq!(read(&db, |_| b"new".to_vec()), (COUNT, 0));
}

/// Looks at every value, and keeps it.
struct Looks;

impl CompactionFilter for Looks {
    fn name(&self) -> &str {
        "test.looks"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        match entry.value() {
            Some(value) if value.starts_with(b"drop") => Verdict::Remove,
            _ => Verdict::Keep,
        }
    }
}

#[test]
fn a_filter_keeps_a_value_that_it_cannot_see() {
    let fs = damaged();
    let options = KeyspaceOptions::new().compaction_filter(Looks);
    let db = builder(&fs).keyspace("default", options).open().expect("opens");
    db.compact().expect("compacted");
    let (whole, unreadable) = read(&db, |number| value(number, 1_000));
    assert!(unreadable > 0 && whole > COUNT / 2, "{whole} read, {unreadable} unreadable");
    let warnings = db.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("cannot be read")), "{warnings:?}");
}

/// A file that the device does not return is collected no more, and writes go on.
#[test]
fn a_value_file_that_cannot_be_read_stops_the_collection_and_nothing_else() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..super::env(&fs) };
    let db = builder(&fs).env(env).open().expect("opens");
    let default = db.keyspace("default").expect("there");
    fill(&default, COUNT, 1_000);
    default.compact().expect("compacted");
    for name in value_files(&fs, "/db") {
        faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Read]).at_path(&name).sticky());
    }
    let mut failures = 0;
    for round in 0..40u64 {
        // Each file keeps some of its values.
        for number in (0..COUNT).filter(|number| number % 5 > 0) {
            failures += u32::from(db.put(key(number), value(number + round, 1_000)).is_err());
        }
        failures += u32::from(db.wait_idle().is_err());
    }
    assert!(failures < 8, "{failures} calls failed for a file that cannot be read");
    let warnings = db.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("not collected any more")), "{warnings:?}");
    db.wait_idle().expect("idle");
    faults.clear_rules();
    for number in 0..COUNT {
        let expected = value(if number % 5 > 0 { number + 39 } else { number }, 1_000);
        assert_eq!(db.get(key(number)).expect("readable").expect("there"), expected[..], "{number}");
    }
}
