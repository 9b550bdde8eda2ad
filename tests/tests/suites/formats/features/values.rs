//! The database with value files: `tests/data/golden-values`.
//!
//! Its process was killed in the middle of a compaction that moves values into value files. So it
//! has a narrowed table that refers to value files, and a value file to which nothing refers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{CrashPolicy, Env, MemFs, SimFs, Vfs};
use shamba::{Builder, Compression, Db, Durability, ErrorKind, KeyspaceOptions, WriteOptions};
use shamba_table::{BirthId, checksum};
use shamba_tests::compare;
use shamba_tests::files::{Files, disk_of, files_of, put_files};

use super::super::builder;
use super::{check, golden};

const KEYS: u32 = 150;
/// Values from this length on are in value files when the keys are written first,
const FIRST_THRESHOLD: u32 = 250;
/// and from this one on in the open that is killed.
const LAST_THRESHOLD: u32 = 100;
/// Keys of the other keyspace, which the killed compaction does not touch.
const PLAIN_KEYS: u32 = 20;

fn key(number: u32) -> String {
    format!("key:{number:04}")
}

/// Every third value is in a value file from the first open on, every third one moves later.
fn value(number: u32, round: u32) -> Vec<u8> {
    let bytes = match number % 3 {
        0 => 300 + number,
        1 => 100 + number,
        _ => 10 + number % 80,
    };
    (0..bytes).map(|at| if at % 2 == 0 { (at * 7 + number) as u8 } else { b'a' + round as u8 }).collect()
}

/// Whether a key has an expiry time.
fn expires(number: u32) -> bool {
    number.is_multiple_of(7)
}

fn put(keyspace: &shamba::Keyspace, number: u32, round: u32) -> shamba::Result<()> {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let options =
        if expires(number) { WriteOptions::new().time_to_live(century) } else { WriteOptions::new() };
    keyspace.put_with(key(number), value(number, round), options)
}

fn valued_builder(vfs: Arc<dyn Vfs>, threshold: u32) -> Builder {
    let env = Env::deterministic(vfs, 1);
    builder(&MemFs::new())
        .env(env)
        .experimental(|e| e.value_threshold(threshold))
        .compression(Compression::Lz4)
}

/// Writes two runs and the other keyspace, then compacts the runs in slices, and keeps the disk of
/// a call in the middle.
fn write_valued(fs: &MemFs) -> shamba::Result<()> {
    let sim = SimFs::new();
    let open = |threshold| valued_builder(Arc::new(sim.clone()), threshold);
    let plain = KeyspaceOptions::new().compression([Compression::None]);
    // Tables that are longer than a slice.
    let long_tables = open(FIRST_THRESHOLD).experimental(|e| e.file_size(256 << 10));
    let db = long_tables.keyspace("plain", plain).open()?;
    let (default, plain) = (db.keyspace("default")?, db.keyspace("plain")?);
    (0..KEYS).try_for_each(|number| put(&default, number, 0))?;
    (0..PLAIN_KEYS).try_for_each(|number| put(&plain, number, 0))?;
    db.compact()?;
    (0..KEYS).step_by(2).try_for_each(|number| put(&default, number, 1))?;
    db.delete(key(3))?;
    db.delete_range(key(30)..key(36))?;
    drop((default, plain));
    db.close()?;

    let db = open(LAST_THRESHOLD).open()?;
    let plain = db.keyspace("plain")?;
    put(&plain, PLAIN_KEYS, 0)?;
    plain.put_with(key(PLAIN_KEYS + 1), value(0, 2), WriteOptions::from(Durability::Sync))?;
    let begin = sim.op_count();
    db.keyspace("default")?.compact()?;
    let calls = begin..sim.op_count();
    drop((plain, db));
    // The last such call, at which the left-over is complete.
    let mut killed = calls.rev().map(|call| files_of(&sim.crash(call, &CrashPolicy::All)));
    let kept = killed.find(|files| {
        let (narrowed, left_over) = state_of(files);
        narrowed > 0 && left_over > 0
    });
    put_files(fs, &kept.expect("a call in the middle of the compaction"));
    Ok(())
}

/// Numbers of narrowed tables that refer to value files, and of value files to which none does.
fn state_of(files: &Files) -> (usize, usize) {
    let fs = disk_of(files);
    let db = valued_builder(Arc::new(fs.clone()), LAST_THRESHOLD).read_only(true).open();
    let db = db.expect("a kill leaves a database that opens");
    let tree = db.describe();
    // The values in use, then " of " those of the whole table.
    let uses = tree.split("val=").skip(1).filter_map(|uses| uses.split_once(' '));
    let narrowed = uses.filter(|(_, rest)| rest.starts_with("of ")).count();
    (narrowed, value_files(files).len() - db.stats().value_files as usize)
}

fn value_files(files: &Files) -> Vec<&String> {
    files.keys().filter(|name| name.ends_with(".values")).collect()
}

/// The pairs of both keyspaces.
fn content() -> [BTreeMap<String, Vec<u8>>; 2] {
    let mut default: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), value(number, 0))).collect();
    default.extend((0..KEYS).step_by(2).map(|number| (key(number), value(number, 1))));
    default.remove(&key(3));
    default.retain(|found, _| !(key(30)..key(36)).contains(found));
    let mut plain: BTreeMap<_, _> = (0..=PLAIN_KEYS).map(|number| (key(number), value(number, 0))).collect();
    plain.insert(key(PLAIN_KEYS + 1), value(0, 2));
    [default, plain]
}

fn check_valued(db: &Db) -> shamba::Result<()> {
    for (name, expected) in ["default", "plain"].into_iter().zip(content()) {
        let keyspace = db.get_keyspace(name)?.expect("a keyspace");
        let found = keyspace.iter().map(compare::owned);
        let found = found.collect::<shamba::Result<BTreeMap<_, _>>>()?;
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect();
        assert!(found == expected, "{name}");
        for (key, value) in &expected {
            assert_eq!(keyspace.get(key)?.as_deref(), Some(&value[..]), "{name}: {}", key.escape_ascii());
        }
    }
    Ok(())
}

/// Values in value files that an earlier build left, also in the middle of a compaction.
#[test]
fn values_in_value_files_stay_readable() {
    let fs = golden("values", write_valued);
    let files = files_of(&fs);
    let (narrowed, left_over) = state_of(&files);
    assert!(narrowed > 0 && left_over > 0, "{narrowed} narrowed tables, {left_over} left-overs");
    let builder = |fs: &MemFs| valued_builder(Arc::new(fs.clone()), LAST_THRESHOLD);
    check(&fs, builder, check_valued).unwrap_or_else(|error| panic!("{error}"));
    let (_, left_over) = state_of(&files_of(&fs));
    assert_eq!(left_over, 0, "value files are left over after an open and a compaction");
}

/// A build that does not know value files must refuse a table that refers to them: the bit of its
/// footer says so. Here another bit, which nothing knows, takes its place.
#[test]
fn tables_with_unknown_features_at_their_ends_are_refused() {
    const OF_VALUE_FILES: u8 = 8;
    let files = files_of(&golden("values", write_valued));
    // A left-over is not opened.
    let whole = valued_builder(Arc::new(disk_of(&files)), LAST_THRESHOLD).read_only(true).open();
    let tree = whole.expect("opens").describe();
    let is_named = |name: &str| name.strip_suffix(".sst").is_some_and(|number| tree.contains(number));
    let mut refused = 0;
    for (name, bytes) in files.iter().filter(|(name, _)| is_named(name)) {
        let footer = bytes.len() - 256;
        if bytes[footer + 196] & OF_VALUE_FILES == 0 {
            continue;
        }
        let mut bytes = bytes.clone();
        bytes[footer + 196] ^= OF_VALUE_FILES | 0x80;
        let birth = BirthId(u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes")));
        let sum = checksum(birth, footer as u64, &bytes[footer..footer + 244]);
        bytes[footer + 244..footer + 248].copy_from_slice(&sum.to_le_bytes());
        let mut changed = files.clone();
        changed.insert(name.clone(), bytes);
        let fs = disk_of(&changed);
        let error = valued_builder(Arc::new(fs.clone()), LAST_THRESHOLD).open().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
        assert!(files_of(&fs) == changed, "{name}: a refused database was changed");
        refused += 1;
    }
    assert!(refused > 0, "no table refers to value files");
}
