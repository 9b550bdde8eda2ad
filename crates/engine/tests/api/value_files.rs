//! Tests of value files: long values that are stored outside the tables. Their space is in
//! [`space`].

mod damage;
mod space;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{CrashPolicy, Env, MemFs, SimFs, Vfs};
use shamba::merge::Append;
use shamba::{
    Compression, Db, ErrorKind, Keyspace, KeyspaceOptions, MergePolicy, ValueThreshold, WriteOptions,
};

const THRESHOLD: u32 = 100;

fn env(fs: &MemFs) -> Env {
    Env::deterministic(Arc::new(fs.clone()), 5)
}

fn builder(fs: &MemFs) -> shamba::Builder {
    let builder = Db::builder("/db").env(env(fs)).write_buffer(64 << 10).size_ratio(4.0);
    builder.experimental(|e| e.value_threshold(THRESHOLD).file_size(16 << 10))
}

fn open(fs: &MemFs) -> Db {
    builder(fs).open().expect("opens")
}

/// A value of this length, which tells which one it is.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn value_files(fs: &MemFs, dir: &str) -> Vec<String> {
    let names = fs.list(dir.as_ref()).expect("listed").into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".values")).collect()
}

/// Writes `count` values of `bytes` bytes, and flushes.
fn fill(keyspace: &Keyspace, count: u64, bytes: usize) {
    for number in 0..count {
        keyspace
            .put(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), value(number, bytes))
            .expect("put");
    }
}

fn check_filled(keyspace: &Keyspace, count: u64, bytes: usize) {
    for number in 0..count {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        assert_eq!(keyspace.get(key).expect("get").as_deref(), Some(&value(number, bytes)[..]), "{number}");
    }
}

fn table_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.bytes).sum()
}

#[test]
fn compactions_do_not_rewrite_long_values() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, 2_000, 1_000);
    db.flush().expect("flushed");
    let flushed = db.stats().bytes_values_written;
    assert!(flushed > 2_000_000, "{flushed} bytes");
    db.compact().expect("compacted");
    assert_eq!(db.stats().bytes_values_written, flushed, "a compaction has written values");
    assert!(table_bytes(&default) < 200_000, "{} bytes of tables", table_bytes(&default));
    assert!(!value_files(&fs, "/db").is_empty());
    check_filled(&default, 2_000, 1_000);
    assert!(db.verify().expect("checked").is_clean());
    drop(default);
    db.close().expect("closed");
    let db = open(&fs);
    check_filled(&db.keyspace("default").expect("there"), 2_000, 1_000);
    assert_eq!(db.stats().obsolete_files, 0);
    db.close().expect("closed");
    let reader = builder(&fs).read_only(true).open().expect("opens");
    check_filled(&reader.keyspace("default").expect("there"), 2_000, 1_000);
}

#[test]
fn only_values_from_the_threshold_on_are_in_value_files() {
    let fs = MemFs::new();
    let db = open(&fs);
    for bytes in [0, 1, 99] {
        db.put([bytes as u8], value(7, bytes)).expect("put");
    }
    db.flush().expect("flushed");
    assert!(value_files(&fs, "/db").is_empty());
    for bytes in [100, 101, 255] {
        db.put([bytes as u8], value(7, bytes)).expect("put");
    }
    db.flush().expect("flushed");
    assert_eq!(value_files(&fs, "/db").len(), 1);
    for bytes in [0, 1, 99, 100, 101, 255] {
        assert_eq!(db.get([bytes as u8]).expect("get").expect("there"), value(7, bytes)[..]);
    }
}

#[test]
fn each_keyspace_has_its_own_threshold() {
    let fs = MemFs::new();
    let db = open(&fs);
    let off = KeyspaceOptions::new().value_threshold(ValueThreshold::Off);
    let inline = db.keyspace_with("inline", off).expect("made");
    fill(&inline, 200, 1_000);
    db.flush().expect("flushed");
    assert!(value_files(&fs, "/db").is_empty());
    let separated = db.keyspace_with("inline", KeyspaceOptions::new().value_threshold(500)).expect("changed");
    assert_eq!(separated.own_options(), [("value-threshold", "500".to_owned())]);
    // Values move when a compaction rewrites them.
    db.keyspace("inline").expect("there").compact().expect("compacted");
    check_filled(&inline, 200, 1_000);
    for (threshold, is_valid) in [(63, false), (64, true), (256 << 20, true), ((256 << 20) + 1, false)] {
        let options = KeyspaceOptions::new().value_threshold(threshold);
        let given = db.keyspace_with("other", options);
        assert_eq!(given.is_ok(), is_valid, "{threshold}");
        if let Err(error) = given {
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("value-threshold"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_dropped_keyspace_and_replaced_tables_leave_no_value_file() {
    let fs = MemFs::new();
    let db = open(&fs);
    let logs = db.keyspace("logs").expect("made");
    fill(&logs, 500, 1_000);
    db.flush().expect("flushed");
    assert!(!value_files(&fs, "/db").is_empty());
    // A reader keeps what it sees.
    let snapshot = db.snapshot();
    let seen = snapshot.keyspace(&logs);
    logs.delete_range(..).expect("deleted");
    logs.compact().expect("compacted");
    assert_eq!(seen.iter().filter(|entry| entry.is_ok()).count(), 500);
    drop((seen, snapshot));
    logs.compact().expect("compacted");
    assert!(value_files(&fs, "/db").is_empty(), "{:?}", value_files(&fs, "/db"));
    fill(&logs, 500, 1_000);
    db.flush().expect("flushed");
    assert!(!value_files(&fs, "/db").is_empty());
    drop(logs);
    db.drop_keyspace("logs").expect("dropped");
    db.put("other", "entry").expect("put");
    db.flush().expect("flushed");
    assert!(value_files(&fs, "/db").is_empty(), "{:?}", value_files(&fs, "/db"));
    assert_eq!(db.stats().obsolete_files, 0);
}

#[test]
fn a_checkpoint_and_a_repair_keep_the_values() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, 300, 1_000);
    db.checkpoint("/copy").expect("copied");
    drop(default);
    db.close().expect("closed");
    let copy = Db::builder("/copy").env(env(&fs)).open().expect("opens");
    check_filled(&copy.keyspace("default").expect("there"), 300, 1_000);
    copy.close().expect("closed");
    // With the manifest and without it.
    for target in ["/repaired", "/without"] {
        if target == "/without" {
            fs.unlink("/db/CURRENT".as_ref()).expect("removed");
            let manifests = fs.list("/db".as_ref()).expect("listed").into_iter().map(|entry| entry.name);
            for name in manifests.filter(|name| name.starts_with("MANIFEST-")).collect::<Vec<_>>() {
                fs.unlink(format!("/db/{name}").as_ref()).expect("removed");
            }
        }
        let report = shamba::repair(&env(&fs), "/db".as_ref(), target.as_ref()).expect("repaired");
        let lost: Vec<String> = report.lost.iter().map(|lost| format!("{lost:?}")).collect();
        assert!(target == "/without" || lost.is_empty(), "{lost:?}");
        let db = Db::builder(target).env(env(&fs)).open().expect("opens");
        check_filled(&db.keyspace("default").expect("there"), 300, 1_000);
        db.close().expect("closed");
    }
}

#[test]
fn damage_to_a_value_is_reported_and_the_others_are_read() {
    let fs = MemFs::new();
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    fill(&default, 100, 1_000);
    drop(default);
    db.close().expect("closed");
    let name = value_files(&fs, "/db").remove(0);
    let path = format!("/db/{name}");
    let mut bytes = shamba::env::read_file(&fs, path.as_ref()).expect("read");
    bytes[5_000] ^= 1;
    fs.unlink(path.as_ref()).expect("removed");
    shamba::env::write_file_synced(&fs, path.as_ref(), &bytes).expect("written");
    let report = shamba::check_files(&env(&fs), "/db".as_ref()).expect("checked");
    assert!(report.problems.iter().any(|problem| problem.file.ends_with(&name)), "{report:?}");
    // No manifest names it then.
    fs.rename("/db/CURRENT".as_ref(), "/db/aside".as_ref()).expect("renamed");
    let unnamed = shamba::check_files(&env(&fs), "/db".as_ref()).expect("checked");
    assert!(unnamed.problems.iter().any(|problem| problem.file.ends_with(&name)), "{unnamed:?}");
    assert_eq!(unnamed.value_files, report.value_files);
    fs.rename("/db/aside".as_ref(), "/db/CURRENT".as_ref()).expect("renamed");
    let db = open(&fs);
    let default = db.keyspace("default").expect("there");
    let mut damaged = 0;
    for number in 0..100u64 {
        match default.get(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value(number, 1_000)[..])),
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::Corruption && error.to_string().contains(&name),
                    "{error}"
                );
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 1);
    assert!(!db.verify().expect("checked").is_clean());
    drop(default);
    drop(db);
    let report = shamba::repair(&env(&fs), "/db".as_ref(), "/repaired".as_ref()).expect("repaired");
    assert_eq!(report.lost.len(), 1, "{:?}", report.lost);
    let db = Db::builder("/repaired").env(env(&fs)).open().expect("opens");
    assert_eq!(db.iter().count(), 99);
    // A missing file is named.
    fs.unlink(path.as_ref()).expect("removed");
    let refused = builder(&fs).open().expect_err("a value file is missing");
    assert_eq!(refused.kind(), ErrorKind::Corruption);
    assert!(refused.to_string().contains(&name) && refused.to_string().contains("missing"), "{refused}");
}

#[test]
fn a_kill_in_a_compaction_leaves_the_counts_of_references_exact() {
    let disk = SimFs::new();
    let open = |disk: &SimFs, file_bytes: u64| {
        let builder = Db::builder("/db").env(Env::deterministic(Arc::new(disk.clone()), 5));
        builder.experimental(|e| e.value_threshold(THRESHOLD).file_size(file_bytes).auto_compaction(false))
    };
    // Two tables, each longer than a slice.
    let db = open(&disk, 1 << 20).open().expect("opens");
    let default = db.keyspace("default").expect("there");
    fill(&default, 600, 200);
    db.flush().expect("flushed");
    fill(&default, 300, 250);
    drop(default);
    db.close().expect("closed");
    let db = open(&disk, 4 << 10).open().expect("opens");
    let begin = disk.op_count();
    db.compact().expect("compacted");
    drop(db);
    let mut narrowed = 0;
    for call in begin..=disk.op_count() {
        let left = disk.crash(call, &CrashPolicy::All);
        let db = open(&left, 4 << 10).read_only(true).open().expect("opens");
        // Those in use, then " of " those of the whole table.
        let tree = db.describe();
        let uses = tree.split("val=").skip(1).filter_map(|uses| uses.split_once(' '));
        narrowed += uses.filter(|(_, rest)| rest.starts_with("of ")).count();
        let report = db.verify().expect("checked");
        assert!(report.is_clean(), "after call {call}: {report:?}\n{tree}");
    }
    assert!(narrowed > 20, "{narrowed} narrowed tables");
}

/// A model of one keyspace: key to value and the time at which it expires.
type Model = BTreeMap<u16, Vec<u8>>;

fn length(rng: &mut fastrand::Rng) -> usize {
    match rng.u8(..8) {
        0 => 0,
        1..=3 => rng.usize(..THRESHOLD as usize),
        4..=6 => rng.usize(THRESHOLD as usize..600),
        // More than a chunk, and more than a value that stays in the log.
        _ => rng.usize(60_000..140_000),
    }
}

fn compare(db: &Db, model: &Model, rng: &mut fastrand::Rng, what: &str) {
    let forward: Vec<_> = db.iter().map(|entry| entry.expect("an entry")).collect();
    assert_eq!(forward.len(), model.len(), "{what}");
    for ((key, found), (expected_key, expected)) in forward.iter().zip(model) {
        assert_eq!((&key[..], &found[..]), (&expected_key.to_be_bytes()[..], &expected[..]), "{what}");
    }
    let backward: Vec<_> = db.iter().rev().map(|entry| entry.expect("an entry")).collect();
    assert!(backward.iter().rev().eq(forward.iter()), "{what}: backward");
    let keys: Vec<u16> = (0..20).map(|_| rng.u16(..300)).collect();
    let found = db.multi_get(keys.iter().map(|key| key.to_be_bytes())).expect("read");
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..]), "{what}: multi_get {key}");
        let there = db.contains_key(key.to_be_bytes()).expect("read");
        assert_eq!(there, model.contains_key(key), "{what}: contains_key {key}");
    }
    let count = db.keys(..).count();
    assert_eq!(count, model.len(), "{what}: keys");
}

#[test]
fn contents_are_those_of_a_map() {
    for seed in 0..6u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let policy =
            [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling][seed as usize % 3];
        let open = |threshold: u32| {
            let kinds = [Compression::None, Compression::Lz4];
            let builder = builder(&fs).merge_policy(policy).compression(kinds);
            builder.experimental(|e| e.value_threshold(threshold)).open().expect("opens")
        };
        let mut db = open(THRESHOLD);
        let mut model = Model::new();
        let mut snapshots: Vec<(shamba::Snapshot, Model)> = Vec::new();
        for step in 0..2_500u64 {
            let what = format!("seed {seed}, step {step}");
            let key = rng.u16(..300);
            match rng.u32(..400) {
                0..=2 => db.flush().expect("flushed"),
                3 => db.compact().expect("compacted"),
                4 => {
                    snapshots.clear();
                    db.close().expect("closed");
                    db = open(*rng.choice(&[64, THRESHOLD, 5_000]).expect("some"));
                }
                5..=9 if snapshots.len() < 3 => snapshots.push((db.snapshot(), model.clone())),
                10..=14 => {
                    snapshots.pop();
                }
                15..=18 => compare(&db, &model, &mut rng, &what),
                19..=22 => {
                    let (lower, upper) = (key.min(250), key.min(250) + rng.u16(1..40));
                    db.delete_range(lower.to_be_bytes()..upper.to_be_bytes()).expect("deleted");
                    model.retain(|key, _| !(lower..upper).contains(key));
                }
                23..=26 => {
                    let mut batch = db.batch();
                    for _ in 0..rng.usize(1..8) {
                        let (key, value) = (rng.u16(..300), value(step, length(&mut rng).min(2_000)));
                        batch.put(key.to_be_bytes(), &value);
                        model.insert(key, value);
                    }
                    batch.commit().expect("committed");
                }
                27..=30 => {
                    let options = WriteOptions::new().time_to_live(Duration::from_secs(1 << 30));
                    let value = value(step, length(&mut rng));
                    db.put_with(key.to_be_bytes(), &value, options).expect("put");
                    model.insert(key, value);
                }
                31..=34 => {
                    let written = value(step, length(&mut rng).min(2_000));
                    db.update(key.to_be_bytes(), |old| {
                        assert_eq!(old, model.get(&key).map(|value| &value[..]), "{what}");
                        Some(written.clone())
                    })
                    .expect("updated");
                    model.insert(key, written);
                }
                35 if step % 3 == 0 => {
                    let target = format!("/copy-{step}");
                    db.checkpoint(&target).expect("copied");
                    let copy = Db::builder(&target).env(env(&fs)).read_only(true).open().expect("opens");
                    compare(&copy, &model, &mut rng, &format!("{what}: the copy"));
                }
                36..=110 => {
                    db.delete(key.to_be_bytes()).expect("deleted");
                    model.remove(&key);
                }
                111..=170 => {
                    let found = db.get(key.to_be_bytes()).expect("get");
                    assert_eq!(
                        found.as_deref(),
                        model.get(&key).map(|value| &value[..]),
                        "{what}: get {key}"
                    );
                }
                171..=180 => {
                    if let Some((snapshot, model)) = snapshots.first() {
                        let found = snapshot.get(key.to_be_bytes()).expect("get");
                        assert_eq!(
                            found.as_deref(),
                            model.get(&key).map(|value| &value[..]),
                            "{what}: snapshot"
                        );
                    }
                }
                _ => {
                    let value = value(step, length(&mut rng));
                    db.put(key.to_be_bytes(), &value).expect("put");
                    model.insert(key, value);
                }
            }
        }
        for (snapshot, model) in &snapshots {
            let seen: Model = snapshot
                .iter()
                .map(|entry| entry.expect("an entry"))
                .map(|(key, value)| (u16::from_be_bytes([key[0], key[1]]), value.to_vec()))
                .collect();
            assert_eq!(&seen, model, "seed {seed}: a snapshot");
        }
        snapshots.clear();
        compare(&db, &model, &mut rng, &format!("seed {seed}, at the end"));
        db.wait_idle().expect("idle");
        let report = db.verify().expect("checked");
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        db.check_invariants().expect("the trees are sound");
        assert!(db.stats().value_files > 0);
        db.close().expect("closed");
        let db = open(THRESHOLD);
        compare(&db, &model, &mut rng, &format!("seed {seed}, opened again"));
        assert_eq!(db.stats().obsolete_files, 0);
        let in_use: usize = db.stats().value_files as usize;
        assert_eq!(value_files(&fs, "/db").len(), in_use, "seed {seed}: {:?}", value_files(&fs, "/db"));
    }
}

#[test]
fn a_short_scan_reads_few_values_beyond_its_end() {
    let fs = MemFs::new();
    // Compactions would not move the values, but they might come while the files are written.
    let db = builder(&fs).experimental(|e| e.auto_compaction(false)).open().expect("opens");
    for file in 0..8u64 {
        for number in (file..800).step_by(8) {
            db.put(number.to_be_bytes(), value(number, 5_000)).expect("put");
        }
        db.flush().expect("flushed");
    }
    let values_of = |entries: usize| {
        let before = db.stats().range_values;
        let seen = db.range(100u64.to_be_bytes()..).take(entries).filter(Result::is_ok).count();
        assert_eq!(seen, entries);
        db.stats().range_values - before
    };
    // Each value is a read of its own, so a pass reads those of 16 KiB, four at most.
    for entries in [1, 10, 50] {
        let read = values_of(entries);
        assert!((entries as u64..entries as u64 + 4).contains(&read), "{read} values for {entries} entries");
    }
}

#[test]
fn keys_read_no_value_and_a_scan_reads_neighbours_together() {
    let fs = MemFs::new();
    let db = open(&fs);
    for number in 0..2_000u64 {
        db.put(number.to_be_bytes(), value(number, 500)).expect("put");
    }
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    let reads = || (db.stats().range_values, db.stats().range_value_reads);
    let before = reads();
    assert_eq!(db.keys(..).count(), 2_000);
    assert!(db.contains_key(7u64.to_be_bytes()).expect("read"));
    assert_eq!(reads(), before, "keys have read values");
    assert_eq!(db.iter().count(), 2_000);
    let (values, joined) = (reads().0 - before.0, reads().1 - before.1);
    assert!(values == 2_000 && joined < 200, "{values} values took {joined} reads");
    // One value for a cursor that seeks.
    let before = reads();
    let mut cursor = db.cursor();
    cursor.seek(1_000u64.to_be_bytes()).expect("sought");
    assert_eq!(cursor.entry().expect("an entry").1, value(1_000, 500));
    drop(cursor);
    assert_eq!(reads().0 - before.0, 1);
}

#[test]
fn operands_of_merge_operators_meet_bases_in_value_files() {
    let fs = MemFs::new();
    let appending = || KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let db = builder(&fs).keyspace("default", appending()).open().expect("opens");
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(3);
    for step in 0..3_000u32 {
        let key = rng.u8(..40);
        match rng.u8(..40) {
            0 => db.flush().expect("flushed"),
            1 => db.compact().expect("compacted"),
            2..=6 => {
                let base = value(step.into(), rng.usize(..400));
                db.put([key], &base).expect("put");
                model.insert(key, base);
            }
            _ => {
                db.merge([key], step.to_le_bytes()).expect("merged");
                let folded = model.entry(key).and_modify(|value: &mut Vec<u8>| value.push(b','));
                folded.or_default().extend(step.to_le_bytes());
            }
        }
        let found = db.get([key]).expect("get");
        assert_eq!(found.as_deref(), model.get(&key).map(|value| &value[..]), "step {step}, key {key}");
    }
    let all: BTreeMap<u8, Vec<u8>> = db
        .iter()
        .map(|entry| entry.expect("an entry"))
        .map(|(key, value)| (key[0], value.to_vec()))
        .collect();
    assert_eq!(all, model);
    db.compact().expect("compacted");
    assert!(db.stats().value_files > 0);
    assert!(db.verify().expect("checked").is_clean());
}
