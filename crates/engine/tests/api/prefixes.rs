//! Tests of prefix extractors: scans return the same entries with any of them, leave out runs, and
//! say so; extractors are recorded, and each table keeps its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Rng, SeededRng, append_all, read_file};
use shamba::merge::Append;
use shamba::{
    Action, Builder, CacheUnit, Db, ErrorKind, KeyspaceOptions, Prefix, ReadOptions, Residency, Result,
    Slice, Snapshot,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn builder(env: &Env) -> Builder {
    Db::builder("/db").env(env.clone()).memory_budget(8 << 20).write_buffer(64 << 10)
}

fn appending() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Append::separated_by(","))
}

fn with(options: KeyspaceOptions, prefix: Option<Prefix>) -> KeyspaceOptions {
    match prefix {
        Some(prefix) => options.prefix(prefix),
        None => options.without_prefix(),
    }
}

fn entries(scan: impl Iterator<Item = Result<(Slice, Slice)>>) -> Entries {
    let owned = |entry: Result<(Slice, Slice)>| {
        let (key, value) = entry.expect("readable");
        (key.into_vec(), value.into_vec())
    };
    scan.map(owned).collect()
}

fn in_model(model: &Model, prefix: &[u8]) -> Entries {
    let of_prefix = model.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
    of_prefix.map(|(key, value)| (key.clone(), value.clone())).collect()
}

struct Rolls(SeededRng);

impl Rolls {
    fn below(&self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    /// Keys with the delimiter at several places or nowhere, and shorter than some prefixes.
    fn key(&self) -> Vec<u8> {
        (0..=self.below(4)).map(|_| b"ab:\xff"[self.below(4) as usize]).collect()
    }

    fn extractor(&self) -> Option<Prefix> {
        let bytes = 1 + self.below(3) as u16;
        match self.below(4) {
            0 => None,
            1 => Some(Prefix::Fixed(bytes)),
            2 => Some(Prefix::Capped(bytes)),
            _ => Some(Prefix::Delimited(b':')),
        }
    }
}

/// Compares the scans of a prefix, of every kind, with the model.
fn check(db: &Db, model: &Model, prefix: &[u8], rolls: &Rolls) {
    let due = in_model(model, prefix);
    assert_eq!(entries(db.prefix(prefix)), due, "forward {prefix:?}");
    let mut backward = entries(db.prefix(prefix).rev());
    backward.reverse();
    assert_eq!(backward, due, "backward {prefix:?}");
    let keys = db.keys(shamba::PrefixRange::of(prefix));
    let keys: Vec<Vec<u8>> = keys.map(|key| key.expect("readable").into_vec()).collect();
    assert_eq!(keys, due.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "keys {prefix:?}");
    let within = ReadOptions::new().lower_bound(prefix);
    assert_eq!(entries(db.with(&within).prefix(prefix)), due, "with a bound {prefix:?}");
    // From a key of the prefix on: the range still has one prefix.
    if let Some((from, _)) = due.get(rolls.below(due.len().max(1) as u64) as usize) {
        let end = shamba::PrefixRange::of(prefix).end().map(<[u8]>::to_vec);
        let rest: Entries = due.iter().filter(|(key, _)| key >= from).cloned().collect();
        if let Some(end) = end {
            assert_eq!(entries(db.range(from.clone()..end)), rest, "from {from:?}");
        }
    }
    let transaction = db.transaction();
    assert_eq!(entries(transaction.prefix(prefix)), due, "in a transaction {prefix:?}");
    let mut cursor = db.prefix(prefix);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let is_front = rolls.below(2) == 0;
        match if is_front { cursor.next() } else { cursor.next_back() } {
            Some(entry) if is_front => front.extend(entries([entry].into_iter())),
            Some(entry) => back.extend(entries([entry].into_iter())),
            None => break,
        }
    }
    front.extend(back.into_iter().rev());
    assert_eq!(front, due, "from both ends {prefix:?}");
}

#[test]
fn scans_do_not_depend_on_extractors() {
    let (mut tested, mut skipped) = (0, 0);
    for seed in 0..48 {
        println!("seed {seed}");
        let rolls = Rolls(SeededRng::new(seed));
        let env = Env::deterministic(Arc::new(MemFs::new()), seed);
        // The first kinds one after the other, then a change half way.
        let first = match seed % 4 {
            0 => None,
            1 => Some(Prefix::Fixed(2)),
            2 => Some(Prefix::Delimited(b':')),
            _ => Some(Prefix::Capped(3)),
        };
        let mut db = builder(&env).keyspace("default", with(appending(), first)).open().expect("opens");
        let mut model = Model::new();
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        for number in 0..500 {
            let key = rolls.key();
            match rolls.below(32) {
                0..12 => {
                    let value = number.to_string().into_bytes();
                    db.put(&key, &value).expect("put");
                    model.insert(key, value);
                }
                12..16 => {
                    db.merge(&key, "m").expect("merged");
                    model.entry(key).and_modify(|value| value.extend(b",m")).or_insert_with(|| b"m".to_vec());
                }
                16..20 => {
                    db.delete(&key).expect("deleted");
                    model.remove(&key);
                }
                20 => {
                    db.delete_prefix(&key).expect("deleted");
                    model.retain(|other, _| !other.starts_with(&key));
                }
                21 => {
                    let end = rolls.key();
                    db.delete_range(&key..&end).expect("deleted");
                    model.retain(|other, _| !(key <= *other && *other < end));
                }
                22..26 => db.flush().expect("flushed"),
                26 if rolls.below(4) == 0 => db.compact().expect("compacted"),
                27 if snapshots.len() < 3 => snapshots.push((db.snapshot(), model.clone())),
                28 if rolls.below(6) == 0 => {
                    snapshots.clear();
                    db.close().expect("closed");
                    db = builder(&env).keyspace("default", appending()).open().expect("reopens");
                }
                29 if number > 250 && rolls.below(4) == 0 => {
                    let options = with(KeyspaceOptions::new(), rolls.extractor());
                    db.keyspace_with("default", options).expect("changed");
                }
                _ => check(&db, &model, &rolls.key(), &rolls),
            }
        }
        for (snapshot, model) in &snapshots {
            for _ in 0..20 {
                let prefix = rolls.key();
                assert_eq!(entries(snapshot.prefix(&prefix)), in_model(model, &prefix), "{prefix:?}");
                let mut backward = entries(snapshot.prefix(&prefix).rev());
                backward.reverse();
                assert_eq!(backward, in_model(model, &prefix), "{prefix:?}");
            }
        }
        let problems = db.verify().expect("verified").problems;
        assert!(problems.is_empty(), "{problems:?}");
        let stats = db.stats();
        (tested, skipped) = (tested + stats.prefix_filters, skipped + stats.prefix_runs_skipped);
    }
    assert!(tested > 1_000 && skipped > 500, "{tested} filters tested, {skipped} runs left out");
}

/// Three runs: users 0 to 99, 100 to 199 and 200 to 299, each with the keys of all halls around.
fn three_runs(env: &Env, prefix: Option<Prefix>) -> Db {
    let options = with(KeyspaceOptions::new(), prefix);
    let builder =
        builder(env).experimental(|ex| ex.auto_compaction(false).filter_residency(shamba::Residency::Pinned));
    let db = builder.keyspace("default", options).open().expect("opens");
    for run in 0..3 {
        db.put("hall:a", run.to_string()).expect("put");
        db.put("zone:z", run.to_string()).expect("put");
        for user in 100 * run..100 * (run + 1) {
            db.put(format!("user{user:03}:mail"), "x").expect("put");
        }
        db.flush().expect("flushed");
    }
    db
}

#[test]
fn runs_without_the_prefix_are_left_out_and_explained() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = three_runs(&env, Some(Prefix::Delimited(b':')));
    let skipped = |prefix: &str| {
        let before = db.stats();
        let found = db.prefix(prefix).count();
        let since = db.stats().since(&before);
        (found, since.prefix_filters, since.prefix_runs_skipped)
    };
    assert_eq!(skipped("user150:"), (1, 3, 2), "one run of three is read");
    assert_eq!(skipped("user999:"), (0, 3, 3), "no run is read");
    assert_eq!(skipped("user1"), (100, 0, 0), "the prefix is not whole");
    let explanation = db.explain_prefix("user150:m").expect("explained");
    assert_eq!((explanation.runs, explanation.runs_skipped, explanation.filters), (3, 2, 3));
    assert_eq!(explanation.hashes, 1, "all runs share the digest");
    let text = explanation.to_string();
    assert_eq!(text.matches("filter says no; skipped").count(), 2, "{text}");
    let open = db.explain_prefix("user1").expect("explained");
    let not_fixed =
        |action: &Action| matches!(action, Action::PrefixNotFixed { extractor: Prefix::Delimited(b':') });
    assert_eq!(open.steps.iter().filter(|step| not_fixed(&step.action)).count(), 3, "{open}");
    // The newest extractor changes nothing for the tables that have another one.
    db.keyspace_with("default", KeyspaceOptions::new().prefix(Prefix::Fixed(4))).expect("changed");
    db.put("user150:name", "y").expect("put");
    db.flush().expect("flushed");
    assert_eq!(skipped("user150:"), (2, 4, 2));
    let explanation = db.explain_prefix("user150:").expect("explained");
    assert_eq!((explanation.hashes, explanation.runs_skipped), (2, 2), "{explanation}");
    assert_eq!(db.snapshot().explain_prefix("user1").expect("explained").filters, 1);
    // A compaction writes all with the newest one.
    db.compact().expect("compacted");
    assert_eq!(skipped("user150:").0, 2);
    assert_eq!(skipped("vser"), (0, 1, 1));
    db.close().expect("closed");
}

/// The only table of the database in `DIR`.
fn table(env: &Env) -> PathBuf {
    let names = env.vfs.list(Path::new("/db")).expect("the directory");
    let mut tables = names.iter().filter(|entry| entry.name.ends_with(".sst"));
    let (table, other) = (tables.next().expect("a table"), tables.next());
    assert!(other.is_none(), "several tables");
    Path::new("/db").join(&table.name)
}

/// Damage that lookups do not notice, or pass over with a warning, fails no scan of a prefix
/// either, wherever filters are kept.
#[test]
fn a_damaged_or_unreadable_filter_fails_no_scan() {
    for (residency, unit) in [
        (Residency::Pinned, CacheUnit::Sliced),
        (Residency::Cached, CacheUnit::Sliced),
        (Residency::Cached, CacheUnit::Whole),
    ] {
        let what = format!("{residency:?}, {unit:?}");
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env::deterministic(Arc::new(faults.clone()), 1);
        let open = |read_only| {
            let builder = builder(&env).info_log(false).read_only(read_only);
            let builder = builder.experimental(|e| {
                e.auto_compaction(false).filter_residency(residency).filter_partition(unit)
            });
            let options = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
            if read_only { builder.open() } else { builder.keyspace("default", options).open() }
        };
        let db = open(false).expect("opens");
        let keys: Vec<String> = (0..40).map(|number| format!("user{number}:mail")).collect();
        keys.iter().for_each(|key| db.put(key, "x").expect("put"));
        db.flush().expect("flushed");
        db.close().expect("closed");
        let is_readable = |db: &Db| {
            keys.iter().all(|key| db.get(key).is_ok_and(|value| value.is_some()))
                && db.iter().filter(|entry| entry.is_ok()).count() == keys.len()
        };
        let scan = |db: &Db, what: &str| {
            for (prefix, count) in [("user7:", 1), ("user39:", 1), ("user99:", 0)] {
                let found = db.prefix(prefix).map(|entry| entry.map(drop)).collect::<Result<Vec<()>>>();
                let found = found.unwrap_or_else(|error| panic!("{what}, {prefix}: {}", error.chain()));
                assert_eq!(found.len(), count, "{what}, {prefix}");
            }
        };
        let path = table(&env);
        let bytes = read_file(env.vfs.as_ref(), &path).expect("read");
        let write = |bytes: &[u8]| {
            let mut file = env.vfs.open_append(&path).expect("opened");
            file.truncate(0).expect("emptied");
            append_all(file.as_mut(), bytes).expect("written");
        };
        let (mut passed, mut warned) = (0, 0);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            write(&damaged);
            let Ok(db) = open(true) else { continue };
            if !is_readable(&db) {
                continue;
            }
            passed += 1;
            let db = open(true).expect("opens");
            scan(&db, &format!("{what}, byte {at}"));
            warned += u64::from(!db.verify().expect("verified").warnings.is_empty());
        }
        assert!(passed > 20 && warned > 20, "{what}: {passed} damaged bytes pass, {warned} with a warning");
        write(&bytes);
        // The reads of a scan fail, one after the other. That of a filter is not needed.
        let mut unneeded = 0;
        for number in 0.. {
            let db = open(true).expect("opens");
            faults.add_rule(FaultRule::nth(number, Effect::Eio).on(&[OpKind::Read]));
            let result = db.prefix("user99:").map(|entry| entry.map(drop)).collect::<Result<Vec<()>>>();
            let struck = faults.rules_struck() == [true];
            faults.clear_rules();
            if !struck {
                break;
            }
            assert!(result.as_ref().is_ok_and(Vec::is_empty) || result.is_err(), "{what}, read {number}");
            unneeded += u64::from(result.is_ok());
        }
        let reads_filters = residency == Residency::Cached;
        assert_eq!(unneeded, u64::from(reads_filters), "{what}: failed reads that are not needed");
    }
}

#[test]
fn a_run_that_is_left_out_still_hides_with_its_range_tombstones() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = three_runs(&env, Some(Prefix::Delimited(b':')));
    let before = db.snapshot();
    db.delete_range("user140".."user160").expect("deleted");
    db.put("hall:b", "b").expect("put");
    db.put("zone:a", "a").expect("put");
    db.flush().expect("flushed");
    let explanation = db.explain_prefix("user150:").expect("explained");
    assert_eq!(
        (explanation.runs_skipped, explanation.skipped_with_range_tombstones),
        (3, 1),
        "{explanation}"
    );
    assert_eq!(db.prefix("user150:").count(), 0, "the newest run deletes it");
    assert_eq!(db.prefix("user150:").rev().count(), 0);
    assert_eq!(before.prefix("user150:").count(), 1);
    assert_eq!(db.prefix("user160:").count(), 1);
    db.close().expect("closed");
}

/// A run may have tables from before the extractor next to tables that were written with it.
#[test]
fn tables_without_prefixes_among_others_are_read() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let builder = builder(&env)
        .experimental(|ex| ex.file_size(1 << 10).auto_compaction(false).filter_residency(Residency::Pinned));
    let db = builder.open().expect("opens");
    let key = |number: u32| format!("{number:03}:mail");
    (0..300).for_each(|number| db.put(key(number), [b'v'; 100]).expect("put"));
    db.compact().expect("compacted");
    let options = KeyspaceOptions::new().prefix(Prefix::Delimited(b':'));
    let default = db.keyspace_with("default", options).expect("changed");
    default.put(key(299), "new").expect("put");
    default.compact_range("299:".."299;").expect("compacted");
    let mut runs: Vec<(u32, u32)> = default.tables().iter().map(|table| (table.level, table.run)).collect();
    runs.dedup();
    assert_eq!(runs.len(), 1, "they are one run");
    let explained = |number: u32| default.explain_prefix(format!("{number:03}:")).expect("explained");
    let has_none = |number: u32| explained(number).steps.iter().any(|step| step.action == Action::NoPrefixes);
    assert!(has_none(10) && !has_none(299), "{}, {}", explained(10), explained(299));
    for number in 0..300 {
        assert_eq!(default.prefix(format!("{number:03}:")).count(), 1, "{number}");
    }
    assert_eq!(default.prefix("999:").count(), 0);
}

#[test]
fn an_extractor_is_recorded_and_can_be_changed_or_removed() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let extractor =
        |db: &Db, name: &str| db.get_keyspace(name).expect("open").expect("exists").prefix_extractor();
    let options = |prefix| with(KeyspaceOptions::new(), prefix);
    let by_colon = Some(Prefix::Delimited(b':'));
    let db = builder(&env)
        .keyspace("default", options(by_colon))
        .keyspace("later", options(Some(Prefix::Fixed(9))))
        .open()
        .expect("opens");
    assert_eq!(db.keyspace("later").expect("made").prefix_extractor(), Some(Prefix::Fixed(9)));
    assert_eq!(db.keyspace("plain").expect("made").prefix_extractor(), None);
    db.keyspace_with("own", options(Some(Prefix::Capped(2)))).expect("made");
    let refused = db.keyspace_with("plain", options(Some(Prefix::Fixed(0)))).expect_err("no bytes");
    assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("\"plain\""), "{refused}");
    db.close().expect("closed");
    let db = builder(&env).open().expect("reopens");
    let found = ["default", "later", "plain", "own"].map(|name| extractor(&db, name));
    assert_eq!(found, [by_colon, Some(Prefix::Fixed(9)), None, Some(Prefix::Capped(2))]);
    db.keyspace_with("own", KeyspaceOptions::new().without_prefix()).expect("changed");
    db.keyspace_with("plain", options(by_colon)).expect("changed");
    db.close().expect("closed");
    let read_only = builder(&env).read_only(true).keyspace("own", options(by_colon)).open().expect("reopens");
    assert_eq!(extractor(&read_only, "own"), by_colon, "a read-only open has what it is given");
    drop(read_only);
    let db =
        builder(&env).keyspace("default", KeyspaceOptions::new().without_prefix()).open().expect("reopens");
    let found = ["default", "plain", "own"].map(|name| extractor(&db, name));
    assert_eq!(found, [None, by_colon, None]);
    db.close().expect("closed");
    let refused =
        builder(&env).keyspace("own", options(Some(Prefix::Capped(0)))).open().expect_err("no bytes");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
