//! Tests of statistics in whole databases: sampling, and figures kept across compactions and opens.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, MemFs, append_all, read_file};

use super::file::STATISTICS;
use crate::database::Db;
use shamba_tree::statistics::{LookupWindow, Probes};

const DIR: &str = "/db";
const KEYS: u32 = 20_000;

fn new_env() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

fn open(env: &Env) -> Db {
    let builder = Db::builder(DIR).env(env.clone()).experimental(|e| e.digest_seed(5)).write_buffer(64 << 10);
    let builder =
        builder.size_ratio(4.0).experimental(|e| e.sizing(crate::Sizing::Manual).file_size(64 << 10));
    builder.bits_per_key(4.0).open().expect("open")
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:07}").into_bytes()
}

/// Writes the even numbers, in an order that makes every flush overlap every level.
fn fill(db: &Db) {
    for number in 0..KEYS {
        db.put(key(number.wrapping_mul(7_919) % KEYS * 2), [7; 20]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
}

fn probes(db: &Db) -> Probes {
    let keyspace = db.core().catalog.keyspace(shamba_key::KeyspaceId::DEFAULT).expect("the default one");
    let version = Arc::clone(&keyspace.load().version);
    version.tables().map(|(_, _, table)| table.meta.statistics.probes()).sum()
}

fn window(db: &Db) -> LookupWindow {
    let keyspace = db.core().catalog.keyspace(shamba_key::KeyspaceId::DEFAULT).expect("the default one");
    keyspace.statistics().window(0)
}

/// Looks up keys, three in four of them absent, one by one or in groups.
fn look_up(db: &Db, lookups: u32, together: usize) {
    let keys = (0..lookups).map(|number| {
        let even = number.wrapping_mul(104_729) % KEYS * 2;
        if number % 4 == 0 { key(even) } else { key(even + 1) }
    });
    let keys: Vec<Vec<u8>> = keys.collect();
    for group in keys.chunks(together) {
        match group {
            [one] => _ = db.get(one).expect("get"),
            group => _ = db.multi_get(group).expect("multi_get"),
        }
    }
}

/// Whether 64 times the sampled count equals the exact count, within some standard errors.
fn is_estimate(sampled: f64, counted: u64) -> bool {
    (sampled * 64.0 - counted as f64).abs() <= 4.0 * 64.0 * (sampled + 1.0).sqrt()
}

#[test]
fn samples_estimate_what_all_lookups_did_one_by_one_and_together() {
    for together in [1, 32, 100] {
        let db = open(&new_env());
        fill(&db);
        let begun = probes(&db);
        assert_eq!(begun, Probes::ZERO, "nobody has looked yet");
        let before = db.stats();
        look_up(&db, 60_000, together);
        let (seen, stats) = (probes(&db), db.stats().since(&before));
        let searches = stats.found + stats.false_positives;
        assert!(stats.false_positives > 5_000 && stats.found == 15_000, "{stats:?}");
        assert!(is_estimate(seen.found, stats.found), "{together}: {seen:?}");
        assert!(is_estimate(seen.false_positives, stats.false_positives), "{together}: {seen:?}");
        let empty = stats.filters_consulted - (searches - stats.false_positives);
        assert!(is_estimate(seen.empty, empty), "{together}: {seen:?} {empty}");
        let window = window(&db);
        assert!(is_estimate(window.lookups, stats.lookups), "{together}: {window:?}");
        assert!(is_estimate(window.found, stats.found), "{together}: {window:?}");
        // The same lookups in an identical database give the same samples.
        let twin = open(&new_env());
        fill(&twin);
        look_up(&twin, 60_000, together);
        assert_eq!(probes(&twin), seen);
    }
}

#[test]
fn samples_estimate_the_seeks_that_come_to_each_run_by_cursors_and_short_scans() {
    const SEEKS: u32 = 40_000;
    let env = new_env();
    let builder = Db::builder(DIR).env(env).experimental(|e| e.auto_compaction(false)).write_buffer(8 << 20);
    let db = builder.open().expect("open");
    for run in 0..3u32 {
        (0..KEYS).for_each(|number| db.put(key(number), [run as u8; 20]).expect("put"));
        db.flush().expect("flush");
    }
    let mut cursor = db.cursor();
    for number in 0..SEEKS / 2 {
        let key = key(number.wrapping_mul(7_919) % KEYS);
        assert!(cursor.seek(&key).expect("seek") && cursor.next().is_ok());
        assert!(db.range(key..).next().is_some_and(|entry| entry.is_ok()));
    }
    drop(cursor);
    let window = window(&db);
    assert!(is_estimate(window.seeks, u64::from(SEEKS)) && window.lookups == 0.0, "{window:?}");
    let keyspace = db.core().catalog.keyspace(shamba_key::KeyspaceId::DEFAULT).expect("the default one");
    let version = Arc::clone(&keyspace.load().version);
    assert_eq!(version.tables().count(), 3);
    for (_, _, table) in version.tables() {
        let probes = table.meta.statistics.probes();
        assert!(is_estimate(probes.seeks, u64::from(SEEKS)) && probes.lookups() == 0.0, "{probes:?}");
        // Searches of the index partitions, which list the blocks by key.
        let reader = table.meta.reader.get().expect("open");
        let searches = (0..reader.index_partitions()).map(|number| u64::from(reader.index_searches(number)));
        assert_eq!(searches.sum::<u64>() as f64, probes.seeks);
    }
    // No key lies between these bounds, so every run has to be searched.
    let before = probes(&db).seeks;
    for number in 0..SEEKS / 2 {
        let (from, to) = (key(number % KEYS), key(number % KEYS + 1));
        let from = [from, b"x".to_vec()].concat();
        assert!(db.range(from.clone()..to.clone()).next().is_none());
        assert!(db.range(from..to).next_back().is_none());
    }
    for (_, _, table) in version.tables() {
        let reader = table.meta.reader.get().expect("open");
        let searches = (0..reader.index_partitions()).map(|number| u64::from(reader.index_searches(number)));
        assert_eq!(searches.sum::<u64>() as f64, table.meta.statistics.probes().seeks);
    }
    drop(version);
    let scanned = probes(&db).seeks - before;
    assert!(is_estimate(scanned / 3.0, u64::from(SEEKS)), "{scanned}");
    let before = probes(&db).seeks / 3.0;
    // Scans that are open at the same time, each of which ends after one seek.
    for number in 0..SEEKS / 64 {
        let mut scans: Vec<_> = (0..64).map(|scan| db.range(key((number + scan) % KEYS)..)).collect();
        assert!(scans.iter_mut().all(|scan| scan.next().is_some()));
    }
    let all = probes(&db).seeks / 3.0;
    assert!(is_estimate(all - before, u64::from(SEEKS)), "{before} {all}");
    db.compact().expect("compact");
    let merged = probes(&db).seeks;
    assert!(
        (merged / all - 1.0).abs() < 0.01,
        "each seek came to all runs, and comes once now: {all} {merged}"
    );
}

#[test]
fn what_memtables_answer_says_nothing_of_tables() {
    let db = open(&new_env());
    for number in 0..100 {
        db.put(key(number), "value").expect("put");
    }
    for _ in 0..100 {
        (0..100).for_each(|number| _ = db.get(key(number)).expect("get"));
    }
    assert_eq!((window(&db).lookups, probes(&db)), (0.0, Probes::ZERO));
}

#[test]
fn merges_and_moves_keep_what_is_known() {
    let db = open(&new_env());
    fill(&db);
    look_up(&db, 60_000, 1);
    let (known, window_before) = (probes(&db), window(&db));
    let merges = db.stats().compactions;
    db.compact().expect("compacted");
    let merged = probes(&db);
    assert!(db.stats().compactions > merges && db.stats().runs == 1);
    // One run is left, which every lookup reaches once. Bytes are known by blocks, 16 in a table,
    // and its few samples need not be distributed like its bytes.
    let is_near = |figure: f64, wanted: f64, error: f64| (figure / wanted - 1.0).abs() < error;
    assert!(is_near(merged.found, known.found, 0.002), "{known:?} {merged:?}");
    assert!(is_near(merged.lookups(), window_before.lookups, 0.05), "{window_before:?} {known:?} {merged:?}");
    // A flush begins with the expected figures.
    db.put(key(1), "value").expect("put");
    db.flush().expect("flush");
    let flushed = probes(&db);
    assert!((flushed.lookups() - merged.lookups() - window_before.lookups).abs() < 1e-6, "{flushed:?}");
    assert_eq!(window(&db), window_before);
}

#[test]
fn figures_outlive_the_process_and_their_loss_is_harmless() {
    let env = new_env();
    let path = Path::new(DIR).join(STATISTICS);
    let there = || env.vfs.exists(&path).expect("asked");
    let db = open(&env);
    fill(&db);
    db.close().expect("close");
    assert!(!there(), "nothing was learned");
    let db = open(&env);
    look_up(&db, 60_000, 1);
    let (known, seen) = (probes(&db), window(&db));
    db.close().expect("close");
    let bytes = read_file(env.vfs.as_ref(), &path).expect("saved");

    let again = open(&env);
    assert_eq!((probes(&again), window(&again)), (known, seen));
    assert!(again.verify().expect("verified").warnings.is_empty());
    again.close().expect("close");
    assert_eq!(read_file(env.vfs.as_ref(), &path).expect("left"), bytes, "nothing was learned since");

    // A read-only open reads the file and does not write it.
    let reader = Db::builder(DIR).env(env.clone()).read_only(true).open().expect("open");
    assert_eq!(probes(&reader), known);
    look_up(&reader, 10_000, 1);
    assert_ne!(probes(&reader), known);
    drop(reader);
    assert_eq!(read_file(env.vfs.as_ref(), &path).expect("left"), bytes);

    // Damage is a warning, of the open and of a check, and the next save removes it.
    env.vfs.unlink(&path).expect("removed");
    let mut file = env.vfs.create(&path).expect("created");
    append_all(file.as_mut(), &bytes[..bytes.len() - 1]).expect("written");
    drop(file);
    let db = open(&env);
    assert_eq!(probes(&db), Probes::ZERO);
    let is_warned = |warnings: &[String]| warnings.len() == 1 && warnings[0].contains("STATISTICS");
    assert!(is_warned(&db.warnings()), "{:?}", db.warnings());
    let report = db.verify().expect("verified");
    assert!(report.is_clean() && is_warned(&report.warnings), "{report:?}");
    look_up(&db, 10_000, 1);
    db.close().expect("close");
    let db = open(&env);
    assert!(db.warnings().is_empty() && probes(&db).empty > 0.0);
    db.close().expect("close");

    // Figures of the file are not used for other tables with the same number.
    let db = open(&env);
    let known = probes(&db);
    let bytes = read_file(env.vfs.as_ref(), &path).expect("read");
    // Otherwise a table that shares no keys with others would stay unchanged.
    fill(&db);
    db.compact().expect("compacted");
    let merged = probes(&db);
    db.close().expect("close");
    let db = open(&env);
    assert_eq!(probes(&db), merged, "what merges made of it is saved");
    db.close().expect("close");
    env.vfs.unlink(&path).expect("removed");
    let mut file = env.vfs.create(&path).expect("created");
    append_all(file.as_mut(), &bytes).expect("written");
    drop(file);
    let db = open(&env);
    assert!(known.empty > 0.0 && probes(&db) == Probes::ZERO);
}

#[test]
fn switched_off_nothing_is_sampled_read_or_written() {
    let env = new_env();
    let builder = Db::builder(DIR).env(env.clone()).experimental(|e| e.digest_seed(5)).write_buffer(64 << 10);
    let db = builder.experimental(|e| e.statistics(false)).record().open().expect("open");
    fill(&db);
    look_up(&db, 10_000, 1);
    look_up(&db, 10_000, 32);
    (0..1_000).for_each(|number| assert!(db.range(key(number)..).next().is_some()));
    assert_eq!((probes(&db), window(&db).lookups, window(&db).seeks), (Probes::ZERO, 0.0, 0.0));
    db.close().expect("close");
    assert!(!env.vfs.exists(&Path::new(DIR).join(STATISTICS)).expect("asked"));
    // The option is recorded.
    let db = open(&env);
    look_up(&db, 10_000, 1);
    assert_eq!(probes(&db), Probes::ZERO);
}

#[test]
fn lookups_that_end_otherwise_are_believed_soon() {
    let db = open(&new_env());
    fill(&db);
    let keyspace = db.core().catalog.keyspace(shamba_key::KeyspaceId::DEFAULT).expect("the default one");
    let look = |now_us| {
        if let Some(shift) = keyspace.statistics().detect_shift(now_us) {
            keyspace.statistics().restate(shift, &keyspace.load().version, now_us);
        }
    };
    let ask = |lookups: u32, absent: u32| {
        for number in 0..lookups {
            let even = number.wrapping_mul(104_729) % KEYS * 2;
            assert_eq!(db.get(key(even + absent)).expect("get").is_some(), absent == 0);
        }
    };
    ask(200_000, 0);
    look(1_000_000);
    let (before, known) = (window(&db), probes(&db));
    assert!(before.lookups > 3_000.0 && before.found == before.lookups, "{before:?}");
    ask(10_000, 0);
    look(2_000_000);
    assert!(window(&db).lookups > before.lookups, "more of the same is no shift");
    ask(8_000, 1);
    look(2_100_000);
    assert!(window(&db).lookups > before.lookups, "what does not last is none");
    look(2_300_000);
    let (shifted, restated) = (window(&db), probes(&db));
    assert!(shifted.found == 0.0 && (shifted.lookups - 1_024.0).abs() < 1.0, "{shifted:?}");
    let times = shifted.lookups / before.lookups;
    assert!(restated.found == 0.0 && restated.lookups() < known.lookups() * times * 1.2, "{restated:?}");
    assert!(restated.empty > shifted.lookups * 0.9, "every run is asked in vain: {restated:?}");
    // Back again at once: the old figures have their usual weight, and more the next time.
    ask(80_000, 1);
    look(3_000_000);
    assert!((window(&db).lookups - 2_274.0).abs() < 100.0 && window(&db).found == 0.0, "{:?}", window(&db));
    ask(8_000, 0);
    look(3_300_000);
    look(3_500_000);
    assert!((window(&db).found_share() - 1.0).abs() < 1e-9, "{:?}", window(&db));
    ask(80_000, 0);
    look(4_000_000);
    ask(8_000, 1);
    look(4_300_000);
    look(4_500_000);
    let again = window(&db);
    assert!((again.lookups - 2_048.0).abs() < 1.0, "to and fro weighs twice as much: {again:?}");
}
