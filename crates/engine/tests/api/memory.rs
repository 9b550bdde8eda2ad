//! Tests of the memory budget: during writes, compactions and reads, the charged memory stays
//! within it.

use std::time::Duration;

use shamba::{Db, MergePolicy, Sizing};
use tempfile::TempDir;

fn key(number: u64) -> [u8; 16] {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed.to_be_bytes()
}

/// Reads until the block cache holds something. A compaction may have replaced every table with
/// cached blocks, and a block of a new table is cached only once its index partition is in memory,
/// which a settlement brings in when the memory of the compaction is free.
fn fill_cache(db: &Db, entries: u64) {
    for _ in 0..1_000 {
        for number in (0..entries).step_by(1_000) {
            assert!(db.get(key(number)).expect("get").is_some(), "{number}");
        }
        let memory = db.memory();
        if memory.parts.iter().any(|(name, bytes)| name == "block cache" && *bytes > 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    panic!("no block was cached:\n{}", db.memory());
}

/// Fills the database, compacts it, reads by point and range, and writes again. Returns the peak of
/// all memory charged.
fn peak_bytes(budget_bytes: u64, policy: MergePolicy, sizing: Sizing, entries: u64) -> u64 {
    let dir = TempDir::new().expect("a directory");
    let db = Db::builder(dir.path())
        .memory_budget(budget_bytes)
        .merge_policy(policy)
        .experimental(|e| e.sizing(sizing))
        .background_threads(2)
        .open()
        .expect("opens");
    let value = [7u8; 100];
    for number in 0..entries {
        db.put(key(number), value).expect("put");
    }
    for number in (0..entries).step_by(7) {
        assert!(db.get(key(number)).expect("get").is_some(), "{number}");
        assert!(db.get(key(entries + number)).expect("get").is_none(), "{number}");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let cursors: Vec<_> = (0..50)
        .map(|number| {
            let mut cursor = db.cursor();
            cursor.seek(key(number)).expect("seek");
            cursor
        })
        .collect();
    assert_eq!(db.iter().count() as u64, entries);
    for number in 0..entries / 2 {
        db.put(key(number), value).expect("put");
    }
    drop(cursors);
    db.compact().expect("compact");
    // No other compaction reserves memory.
    db.wait_idle().expect("idle");
    fill_cache(&db, entries);
    let memory = db.memory();
    assert!(memory.parts.iter().map(|(_, bytes)| bytes).sum::<u64>() == memory.ledger_bytes);
    assert!(memory.ledger_bytes <= memory.peak_bytes);
    db.close().expect("close");
    memory.peak_bytes
}

#[test]
fn without_a_block_cache_every_block_is_read() {
    let dir = TempDir::new().expect("a directory");
    for limit in [None, Some(0)] {
        let builder = Db::builder(dir.path()).memory_budget(16 << 20);
        let db = limit
            .into_iter()
            .fold(builder, |builder, bytes| builder.experimental(|e| e.cache_limit(bytes)))
            .open()
            .expect("opens");
        for number in 0..1_000 {
            db.put(key(number), [7u8; 100]).expect("put");
        }
        db.flush().expect("flush");
        let before = db.stats();
        for number in (0..1_000).chain(0..1_000) {
            assert!(db.get(key(number)).expect("get").is_some(), "{number}");
        }
        let stats = db.stats().since(&before);
        let cached =
            db.memory().parts.iter().find(|(name, _)| name == "block cache").map(|(_, bytes)| *bytes);
        match limit {
            Some(_) => {
                assert_eq!((stats.reads.data.count >= 2_000, stats.cache_hits, cached), (true, 0, Some(0)))
            }
            None => assert!(
                stats.reads.data.count < 1_000 && cached > Some(0),
                "{} reads",
                stats.reads.data.count
            ),
        }
        assert!(db.warnings().is_empty(), "{:?}", db.warnings());
        db.close().expect("close");
    }
}

#[test]
fn what_is_counted_stays_within_the_budget() {
    for (budget_bytes, policy, sizing) in [
        (4 << 20, MergePolicy::Leveling, Sizing::Auto),
        (8 << 20, MergePolicy::Leveling, Sizing::Auto),
        (16 << 20, MergePolicy::Tiering, Sizing::Manual),
        (16 << 20, MergePolicy::Leveling, Sizing::Auto),
        (64 << 20, MergePolicy::LazyLeveling, Sizing::Manual),
    ] {
        let peak = peak_bytes(budget_bytes, policy, sizing, 150_000);
        assert!(peak <= budget_bytes, "{policy} {sizing}: {peak} of {budget_bytes}");
        // The budget should be used: the cache fills the remaining memory, or holds all data.
        assert!(peak >= (budget_bytes / 2).min(16 << 20), "{policy} {sizing}: {peak} of {budget_bytes}");
    }
}

/// Each part is charged for the memory that it holds; otherwise the budget would not bound memory.
#[test]
fn memtables_and_filters_are_charged_for_what_they_hold() {
    const ENTRIES: u64 = 20_000;
    let dir = TempDir::new().expect("a directory");
    let db = Db::builder(dir.path()).write_buffer(16 << 20).bits_per_key(10.0).open().expect("opens");
    let part = |name: &str| {
        let memory = db.memory();
        memory.parts.iter().find(|(of, _)| of == name).map_or(0, |(_, bytes)| *bytes)
    };
    let before = part("memtables");
    for number in 0..ENTRIES {
        db.put(key(number), [7u8; 100]).expect("put");
    }
    let held = part("memtables") - before;
    assert!(held >= ENTRIES * 116, "{ENTRIES} entries of 116 bytes are charged {held} bytes");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert!(part("memtables") < held / 2, "what was flushed is given back");
    let filters = part("filters");
    assert!(filters >= ENTRIES * 10 / 8, "{ENTRIES} keys of 10 bits are charged {filters} bytes");
}

/// A copy of the current files: the state after a crash of the process.
fn copy_of(dir: &TempDir) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    for entry in std::fs::read_dir(dir.path()).expect("readable") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    copy
}

#[test]
fn a_log_larger_than_the_budget_is_replayed_within_it() {
    const ENTRIES: u64 = 120_000;
    let dir = TempDir::new().expect("a directory");
    let db = Db::builder(dir.path()).memory_budget(1 << 30).write_buffer(256 << 20).open().expect("opens");
    let other = db.keyspace("other").expect("made");
    // Two keyspaces, so that neither fills the write buffer alone. Keys are written twice, with
    // range deletes in between.
    for number in 0..ENTRIES {
        db.put(key(number), [1; 100]).expect("put");
        other.put(key(number % (ENTRIES / 2)), number.to_be_bytes()).expect("put");
        if number == ENTRIES / 2 {
            db.delete_range(key(3).min(key(4)).as_slice()..key(3).max(key(4)).as_slice()).expect("deleted");
        }
    }
    let expected: Vec<_> = db.iter().collect::<shamba::Result<_>>().expect("reads");
    assert_eq!(db.stats().flushes, 0, "everything is in the log");
    let [crashed, read_only] = [copy_of(&dir), copy_of(&dir)];
    db.close().expect("close");

    let budget_bytes = 4 << 20;
    let db = Db::builder(crashed.path()).memory_budget(budget_bytes).open().expect("opens");
    let memory = db.memory();
    assert!(memory.peak_bytes <= budget_bytes, "{memory}");
    let check = |db: &Db| {
        assert!(db.iter().collect::<shamba::Result<Vec<_>>>().expect("reads") == expected);
        let other = db.keyspace("other").expect("there");
        assert_eq!(other.iter().count() as u64, ENTRIES / 2);
        for number in (0..ENTRIES / 2).step_by(997) {
            let value = other.get(key(number)).expect("get");
            assert_eq!(value.as_deref(), Some(&(number + ENTRIES / 2).to_be_bytes()[..]));
        }
    };
    check(&db);
    db.close().expect("close");

    // A read-only open can not write tables: it exceeds the budget, and warns.
    let db = Db::builder(read_only.path()).memory_budget(budget_bytes).read_only(true).open().expect("opens");
    let memory = db.memory();
    let memtables = memory.parts.iter().find(|(name, _)| name == "memtables").map_or(0, |(_, bytes)| *bytes);
    assert!(memtables > 20 << 20, "{memory}");
    assert!(db.warnings().iter().any(|text| text.contains("budget")), "{:?}", db.warnings());
    check(&db);
}

#[test]
fn a_budget_too_small_for_the_tables_keeps_some_closed() {
    let dir = TempDir::new().expect("a directory");
    let open = |budget_bytes| {
        Db::builder(dir.path()).memory_budget(budget_bytes).experimental(|e| e.auto_compaction(false)).open()
    };
    let db = open(4 << 20).expect("opens");
    // Two keys of 65,000 bytes per table: the bounds take memory as long as the tables are open.
    for number in 0..40u32 {
        let mut long = vec![b'k'; 65_000];
        long[..4].copy_from_slice(&number.to_be_bytes());
        db.put(&long, b"v").expect("put");
        if number % 2 == 1 {
            db.flush().expect("flush");
        }
    }
    let warnings = db.warnings();
    let warning =
        warnings.iter().find(|text| text.contains("too small to keep all tables open")).expect("it is told");
    let enough = warning.split("with ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a figure");
    let enough_bytes: u64 = enough.parse().expect("a number");
    assert!((4 << 20..8 << 20).contains(&enough_bytes), "{warning}");
    db.close().expect("close");
    // More tables were created after the warning, which is emitted once.
    for (budget_bytes, closes) in [(4 << 20, true), (2 * enough_bytes, false)] {
        let db = open(budget_bytes).expect("no budget from 4 MiB on is refused");
        assert_eq!(db.stats().tables_closed > 0, closes, "{budget_bytes}");
        assert_eq!(db.iter().count(), 40);
        db.close().expect("close");
    }
}

/// The configured table size is small, and open tables of that size would exceed the budget. So
/// larger ones are written, for random and for ascending keys, without compactions.
#[test]
fn a_database_of_many_times_its_budget_opens_again() {
    const TABLE_BYTES: u64 = 16 << 10;
    for is_ascending in [false, true] {
        let dir = TempDir::new().expect("a directory");
        let open = || {
            Db::builder(dir.path())
                .memory_budget(4 << 20)
                .write_buffer(64 << 10)
                .experimental(|e| e.file_size(TABLE_BYTES))
                .open()
                .expect("opens")
        };
        let key = |number: u64| if is_ascending { u128::from(number).to_be_bytes() } else { key(number) };
        let db = open();
        let entries = 160_000u64;
        for number in 0..entries {
            db.put(key(number), [number as u8; 400]).expect("put");
        }
        db.wait_idle().expect("idle");
        let warned = |text: &str| db.warnings().iter().any(|warning| warning.contains(text));
        assert!(
            !warned("too small to keep all tables open"),
            "ascending: {is_ascending}: {:?}",
            db.warnings()
        );
        let data_bytes = entries * 400;
        let budget_bytes = 4 << 20;
        let files =
            std::fs::read_dir(dir.path()).expect("a directory").map(|file| file.expect("a file").path());
        let tables = files.filter(|path| path.extension().is_some_and(|kind| kind == "sst")).count() as u64;
        assert!(data_bytes / TABLE_BYTES * 2_048 * 2 > budget_bytes, "too few tables to tell");
        assert!(tables * 2_048 <= budget_bytes / 8 * 3, "{} tables, ascending: {is_ascending}", tables);
        db.close().expect("close");
        let db = open();
        for number in (0..entries).step_by(997) {
            assert_eq!(db.get(key(number)).expect("get").as_deref(), Some(&[number as u8; 400][..]));
        }
    }
}
