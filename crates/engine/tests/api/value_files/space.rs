//! The space that value files take: the bound, what frees it, and readers that keep files.

use std::sync::atomic::{AtomicBool, Ordering};

use shamba::env::{MemFs, Vfs};
use shamba::{Db, Fifo, KeyspaceOptions, ValueThreshold};

use super::{THRESHOLD, builder, check_filled, fill, open, table_bytes, value, value_files};

/// Bytes of a value of 1,000 bytes in a value file: one chunk.
const STORED_BYTES: u64 = 1_009;

/// Bytes of all tables and value files of the default keyspace.
fn space_bytes(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    (stats.levels.iter().map(|level| level.bytes).sum(), stats.value_bytes)
}

#[test]
fn the_space_of_overwritten_values_stays_within_the_bound() {
    for (space, skew) in [(1.25, false), (1.25, true), (1.1, false), (2.0, false)] {
        let mut rng = fastrand::Rng::with_seed(9);
        let fs = MemFs::new();
        let builder = builder(&fs).experimental(|e| e.value_space(space));
        let db = builder.open().expect("opens");
        let keys = 4_000u64;
        let default = db.keyspace("default").expect("there");
        fill(&default, keys, 1_000);
        db.flush().expect("flushed");
        let mut highest: f64 = 0.0;
        for round in 0..300 {
            for _ in 0..60 {
                let number = match skew {
                    // Half of the writes go to a sixteenth of the keys.
                    true if rng.bool() => rng.u64(..keys / 16),
                    _ => rng.u64(..keys),
                };
                let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                default.put(key, value(number, 1_000)).expect("put");
            }
            db.wait_idle().expect("idle");
            let (tables, values) = space_bytes(&db);
            let live = (tables + keys * STORED_BYTES) as f64;
            // What is in a write buffer is in no file yet, and its older versions are.
            let flush = (64 << 10) as f64;
            let ratio = (tables + values) as f64 / live;
            assert!(
                (tables + values) as f64 <= space * live + 2.0 * flush,
                "round {round}: {ratio:.3} times the live data, at most {space} is allowed"
            );
            highest = highest.max(ratio);
        }
        // The bound is used: values are not moved more often than needed.
        assert!(highest > 1.0 + (space - 1.0) * 0.6, "at most {highest:.3} times the live data");
        check_filled(&default, keys, 1_000);
        db.check_invariants().expect("the trees are sound");
        let written = db.stats().bytes_values_written as f64;
        let put = (keys + 300 * 60) as f64 * STORED_BYTES as f64;
        println!("space {space}, skew {skew}: {:.2} times each value, at most {highest:.3}", written / put);
    }
}

#[test]
fn deletes_free_the_space_of_values() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, 4_000, 1_000);
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let (_, before) = space_bytes(&db);
    // Every second key, one by one; then half of the others at once.
    for number in (0..4_000u64).step_by(2) {
        default.delete(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).expect("deleted");
    }
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let (tables, values) = space_bytes(&db);
    let live = (tables + 2_000 * STORED_BYTES) as f64;
    assert!(
        values < before && (tables + values) as f64 <= 1.25 * live + (64 << 10) as f64,
        "{values} of {before} bytes"
    );
    default.delete_range(..(u64::MAX / 2).to_be_bytes()).expect("deleted");
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let left = default.keys(..).count() as u64;
    let (tables, values) = space_bytes(&db);
    let live = (tables + left * STORED_BYTES) as f64;
    assert!(
        (tables + values) as f64 <= 1.25 * live + (64 << 10) as f64,
        "{values} bytes, {left} values are left"
    );
}

#[test]
fn compact_frees_all_dead_values_and_brings_values_back_into_tables() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    for _ in 0..2 {
        fill(&default, 1_000, 1_000);
        db.flush().expect("flushed");
    }
    default.compact().expect("compacted");
    let stats = db.stats();
    assert_eq!(stats.value_bytes_live, 1_000 * STORED_BYTES);
    assert!(stats.value_bytes <= 1_000 * STORED_BYTES * 8 / 7, "{} bytes", stats.value_bytes);
    let off = KeyspaceOptions::new().value_threshold(ValueThreshold::Off);
    db.keyspace_with("default", off).expect("given");
    default.compact().expect("compacted");
    assert_eq!(db.stats().value_files, 0);
    assert!(value_files(&fs, "/db").is_empty());
    assert!(table_bytes(&default) > 1_000_000);
    check_filled(&default, 1_000, 1_000);
}

#[test]
fn fifo_keyspaces_count_their_values() {
    let fs = MemFs::new();
    let db = open(&fs);
    let limits = Fifo::bytes(400 << 10);
    let log = db.keyspace_with("log", KeyspaceOptions::new().fifo(limits)).expect("made");
    for number in 0..4_000u64 {
        log.put(number.to_be_bytes(), value(number, 1_000)).expect("put");
    }
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let stats = db.stats();
    assert!((100 << 10..=500 << 10).contains(&stats.value_bytes), "{} bytes of values", stats.value_bytes);
    assert_eq!(value_files(&fs, "/db").len() as u64, stats.value_files);
    assert_eq!(log.get(3_999u64.to_be_bytes()).expect("get").expect("the newest"), value(3_999, 1_000)[..]);
    assert!(log.keys(..).count() < 600);
}

/// Threads overwrite, read and scan while compactions collect: no reader sees anything but a value
/// that was written for its key, and none in a file that is gone.
#[test]
fn readers_keep_the_files_that_they_read() {
    const KEYS: u64 = 600;
    let dir = tempfile::tempdir().expect("a directory");
    let builder = Db::builder(dir.path().join("db")).write_buffer(128 << 10).memory_budget(8 << 20);
    let db = builder.experimental(|e| e.value_threshold(THRESHOLD).value_space(1.1).file_size(32 << 10));
    let db = db.open().expect("opens");
    let of_key = |key: u64, round: u64| value(key << 32 | round, 200 + (key % 7) as usize * 300);
    for key in 0..KEYS {
        db.put(key.to_be_bytes(), of_key(key, 0)).expect("put");
    }
    let is_of = |key: &[u8], value: &[u8]| {
        let (key, found) = (
            u64::from_be_bytes(key.try_into().expect("8 bytes")),
            u64::from_le_bytes(value[..8].try_into().expect("8 bytes")),
        );
        found >> 32 == key && value == of_key(key, found & 0xffff_ffff)
    };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2u64 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !is_done.load(Ordering::Relaxed) {
                    match rng.u8(..4) {
                        0 => {
                            let mut seen = 0;
                            for entry in db.iter() {
                                let (key, value) = entry.expect("an entry");
                                assert!(is_of(&key, &value), "{key:?}");
                                seen += 1;
                            }
                            assert_eq!(seen, KEYS);
                        }
                        1 => {
                            let keys: Vec<_> = (0..20).map(|_| rng.u64(..KEYS).to_be_bytes()).collect();
                            for (key, value) in keys.iter().zip(db.multi_get(&keys).expect("read")) {
                                assert!(is_of(key, &value.expect("there")));
                            }
                        }
                        _ => {
                            let key = rng.u64(..KEYS).to_be_bytes();
                            assert!(is_of(&key, &db.get(key).expect("get").expect("there")));
                        }
                    }
                }
            });
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 1..8_000u64 {
            let key = rng.u64(..KEYS);
            db.put(key.to_be_bytes(), of_key(key, round)).expect("put");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    assert!(db.verify().expect("checked").is_clean());
    db.check_invariants().expect("the trees are sound");
    let stats = db.stats();
    assert!(stats.value_bytes <= stats.value_bytes_live * 5 / 4 + (256 << 10), "{stats:?}");
    db.close().expect("closed");
}

#[test]
fn a_damaged_value_stops_the_collection_and_nothing_else() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, 1_000, 1_000);
    db.flush().expect("flushed");
    default.compact().expect("compacted");
    drop(default);
    db.close().expect("closed");
    // One value of each file: whichever is collected first, one of its values cannot be read.
    for name in value_files(&fs, "/db") {
        let path = format!("/db/{name}");
        let mut bytes = shamba::env::read_file(&fs, path.as_ref()).expect("read");
        bytes[600] ^= 1;
        fs.unlink(path.as_ref()).expect("removed");
        shamba::env::write_file_synced(&fs, path.as_ref(), &bytes).expect("written");
    }
    let db = open(&fs);
    let mut failures = 0;
    for round in 0..20u64 {
        for number in (round..1_000).step_by(2) {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            // The first value of each file stays: it is the damaged one.
            if db.get(key).is_ok() && db.put(key, value(number, 1_000)).is_err() {
                failures += 1;
            }
        }
        failures += u32::from(db.wait_idle().is_err());
    }
    assert!(failures <= 2, "{failures} calls failed for a damaged value");
    db.wait_idle().expect("idle");
    let report = db.verify().expect("checked");
    assert!(!report.is_clean());
    let warned = report.warnings.iter().any(|warning| warning.contains("not collected any more"));
    assert!(warned, "{:?}", report.warnings);
    let (mut read, mut damaged) = (0, 0);
    for number in 0..1_000u64 {
        match db.get(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()) {
            Ok(found) => {
                assert_eq!(found.expect("there"), value(number, 1_000)[..]);
                read += 1;
            }
            Err(_) => damaged += 1,
        }
    }
    assert!(damaged > 0 && read > 900, "{read} read, {damaged} damaged");
}
