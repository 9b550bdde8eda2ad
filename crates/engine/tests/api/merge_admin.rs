//! Tests of operands of merge operators in checkpoints, checks, descriptions and repairs.
//!
//! The databases have operands everywhere: in the log, in level 0, combined in deeper levels, and
//! on both sides of a snapshot. What they hold is compared with a map.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba::env::{Env, MemFs, Rng, SeededRng, read_file, write_file_synced};
use shamba::merge::{AddU64, Append};
use shamba::{
    Builder, Db, ErrorKind, Keyspace, KeyspaceOptions, Loss, LostRange, RepairReport, check_files, inspect,
    repair_within,
};

use super::support::Apart;

const DIR: &str = "/db";
const OUT: &str = "/out";
/// A keyspace in which operands have an operator of the user or a built-in one.
const LISTS: &str = "lists";
/// Memory for a few operations of a log.
const LITTLE_BYTES: u64 = 2 << 10;
const ENOUGH_BYTES: u64 = 64 << 20;

fn appending() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Append::separated_by(","))
}

fn apart() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Apart)
}

fn counting() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(AddU64)
}

fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

fn builder(env: &Env, dir: &str) -> Builder {
    Db::builder(dir).env(env.clone()).info_log(false).memory_budget(8 << 20).write_buffer(256 << 10)
}

fn files(env: &Env, dir: &str) -> BTreeSet<String> {
    let listed = env.vfs.list(Path::new(dir)).expect("listed");
    listed.into_iter().map(|entry| entry.name).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The files of the database with these ends of names, and their bytes.
fn content(env: &Env, ends: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let mut names = files(env, DIR);
    names.retain(|name| ends.iter().any(|end| name.ends_with(end)));
    names
        .into_iter()
        .map(|name| {
            let bytes = read_file(env.vfs.as_ref(), &path(&name)).expect("readable");
            (name, bytes)
        })
        .collect()
}

fn remove(env: &Env, is_removed: impl Fn(&str) -> bool) {
    for name in files(env, DIR).into_iter().filter(|name| is_removed(name)) {
        env.vfs.unlink(&path(&name)).expect("removed");
    }
}

fn is_manifest(name: &str) -> bool {
    name == "CURRENT" || name.starts_with("MANIFEST-")
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn appended(model: &mut Model, key: &[u8], operand: &[u8]) {
    match model.get_mut(key) {
        Some(value) => {
            value.push(b',');
            value.extend_from_slice(operand);
        }
        None => _ = model.insert(key.to_vec(), operand.to_vec()),
    }
}

fn pairs(keyspace: &Keyspace) -> Model {
    let entries = keyspace.iter().map(|entry| entry.expect("readable"));
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Number of operands in the tables of the database.
fn operands_in_tables(env: &Env) -> u64 {
    let tables = files(env, DIR).into_iter().filter(|name| name.ends_with(".sst"));
    tables.map(|name| inspect::table_file(env, &path(&name)).expect("described").operands).sum()
}

/// The result of a history, besides the database.
struct Written {
    model: Model,
    /// Tables and logs that existed at some time.
    ever: BTreeMap<String, Vec<u8>>,
    /// Operands in tables below level 0, and in level 0.
    deep: u64,
    shallow: u64,
}

/// Writes a database with operands in every place, calls `meanwhile` with it and the keyspace, and
/// drops it.
fn write(
    env: &Env,
    seed: u64,
    options: KeyspaceOptions,
    meanwhile: impl FnOnce(&Db, &Keyspace, &Model),
) -> Written {
    let rng = SeededRng::new(seed);
    let below = |sides: u64| rng.next_u64() % sides;
    let db = builder(env, DIR).keyspace(LISTS, options).open().expect("opens");
    let lists = db.keyspace(LISTS).expect("made");
    let keys: Vec<Vec<u8>> = (0..12u8).map(|number| vec![b'k', number]).collect();
    let (mut model, mut ever) = (Model::new(), BTreeMap::new());
    let write = |model: &mut Model, steps: u64, merges: u64| {
        for step in 0..steps {
            let key = &keys[below(12) as usize];
            let operand = format!("{step}").into_bytes();
            match below(20) {
                dice if dice < merges => {
                    lists.merge(key, &operand).expect("merged");
                    appended(model, key, &operand);
                }
                0..17 => {
                    // A long value stays in the log, and in chunks in a table.
                    let value = vec![b'v'; if below(4) == 0 { 70_000 } else { 3 }];
                    lists.put(key, &value).expect("put");
                    model.insert(key.clone(), value);
                }
                17..19 => {
                    lists.delete(key).expect("deleted");
                    model.remove(key);
                }
                _ => {
                    lists.delete_range(key..&keys[11]).expect("deleted");
                    model.retain(|at, _| at < key || at >= &keys[11]);
                }
            }
        }
    };
    let mut keep = || ever.extend(content(env, &[".sst", ".log"]));
    // Bases and folded values in the deepest level.
    write(&mut model, 60, 12);
    db.flush().expect("flushed");
    keep();
    db.compact().expect("compacted");
    // With a snapshot between them, operands stay apart from what is below them.
    let snapshot = db.snapshot();
    let then = model.clone();
    for _ in 0..2 {
        write(&mut model, 40, 18);
        keep();
        db.flush().expect("flushed");
        keep();
    }
    db.compact().expect("compacted");
    keep();
    let deep = operands_in_tables(env);
    write(&mut model, 30, 19);
    keep();
    db.flush().expect("flushed");
    keep();
    assert!(db.describe().contains("L0: "), "seed {seed}: {}", db.describe());
    let shallow = operands_in_tables(env) - deep;
    write(&mut model, 30, 19);
    // Every history has an operand there.
    lists.merge(&keys[0], b"log").expect("merged");
    appended(&mut model, &keys[0], b"log");
    keep();
    assert_eq!(pairs(&lists), model, "seed {seed}");
    let old: Model = snapshot
        .keyspace(&lists)
        .iter()
        .map(|entry| entry.expect("readable"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(old, then, "seed {seed}, the snapshot");
    meanwhile(&db, &lists, &model);
    Written { model, ever, deep, shallow }
}

/// Repairs with little and with enough memory, and returns the report and the pairs of a keyspace
/// that is opened with `options`.
fn repaired(env: &Env, keyspace: &str, options: &KeyspaceOptions) -> (RepairReport, Model) {
    let mut found = Vec::new();
    for memory_bytes in [LITTLE_BYTES, ENOUGH_BYTES] {
        let out = format!("{OUT}-{memory_bytes}-{}", env.rng.next_u64());
        let report =
            repair_within(env, Path::new(DIR), Path::new(&out), memory_bytes).expect("a new database");
        let checked = check_files(env, Path::new(&out)).expect("checked");
        assert!(checked.is_clean(), "{:?}", checked.problems);
        let db = builder(env, &out).keyspace(keyspace, options.clone()).open().expect("opens");
        let model = pairs(&db.keyspace(keyspace).expect("there"));
        db.compact().expect("compacted");
        assert_eq!(pairs(&db.keyspace(keyspace).expect("there")), model, "after a compaction");
        found.push((report, model));
    }
    let (report, model) = found.pop().expect("two");
    let (other, of_other) = found.pop().expect("two");
    assert_eq!(of_other, model, "memory matters to what a repair finds");
    assert_eq!((&other.lost, other.entries_written), (&report.lost, report.entries_written));
    (report, model)
}

fn options_of(seed: u64) -> KeyspaceOptions {
    if seed % 2 == 0 { appending() } else { apart() }
}

#[test]
fn checkpoint_and_checks_know_operands() {
    let (mut deep, mut shallow) = (0, 0);
    for seed in 0..8 {
        println!("seed {seed}");
        let env = environment(seed);
        let written = write(&env, seed, options_of(seed), |db, lists, model| {
            let checked = db.verify().expect("checked");
            assert!(checked.is_clean(), "seed {seed}: {:?}", checked.problems);
            db.checkpoint("/copy").expect("copied");
            assert_eq!(pairs(lists), *model, "seed {seed}");
        });
        deep += written.deep;
        shallow += written.shallow;
        for (dir, what) in [(DIR, "the original"), ("/copy", "the checkpoint")] {
            let checked = check_files(&env, Path::new(dir)).expect("checked");
            assert!(checked.is_clean(), "seed {seed}, {what}: {:?}", checked.problems);
            assert_eq!(checked.warnings, [""; 0], "seed {seed}, {what}");
            let db = builder(&env, dir).keyspace(LISTS, options_of(seed)).open().expect("opens");
            assert_eq!(pairs(&db.keyspace(LISTS).expect("there")), written.model, "seed {seed}, {what}");
            let refused = builder(&env, dir).keyspace(LISTS, counting());
            drop(db);
            assert_eq!(refused.open().expect_err("another operator").kind(), ErrorKind::Invalid);
        }
    }
    assert!(deep > 0 && shallow > 0, "{deep} operands below level 0, {shallow} in it");
}

#[test]
fn logs_manifests_and_tables_are_described_with_their_operands() {
    let env = environment(1);
    let db = builder(&env, DIR).keyspace(LISTS, apart()).open().expect("opens");
    let lists = db.keyspace(LISTS).expect("made");
    lists.merge("k", "one").expect("merged");
    lists.merge("k", "three").expect("merged");
    db.sync().expect("synced");
    let log = content(&env, &[".log"]).into_keys().next_back().expect("a log");
    drop((lists, db));
    let described = inspect::wal_file(&env, &path(&log)).expect("described");
    assert!(!described.is_corrupt(), "{:?}", described.ending);
    let text = described.to_string();
    assert!(text.contains("merge @2 [3] k (3 bytes)") && text.contains("merge @3 [3] k (5 bytes)"), "{text}");
    // With the one that reserves the number of the keyspace.
    assert_eq!(check_files(&env, Path::new(DIR)).expect("checked").log_operations, 3);
    let text = inspect::manifest_file(&env, Path::new(DIR)).expect("described").to_string();
    assert!(text.contains("merge_operator [3] \"apart\""), "{text}");

    let db = builder(&env, DIR).keyspace(LISTS, apart()).open().expect("opens");
    // Below the operands lies nothing that is known: a snapshot separates them.
    let _snapshot = db.snapshot();
    db.keyspace(LISTS).expect("there").merge("k", "five").expect("merged");
    db.flush().expect("flushed");
    let table = content(&env, &[".sst"]).into_keys().next_back().expect("a table");
    let described = inspect::table_file(&env, &path(&table)).expect("described");
    assert_eq!((described.summary.entries, described.operands), (3, 3), "{described}");
}

#[test]
fn a_repair_writes_the_operands_after_what_they_apply_to() {
    for seed in 0..8 {
        println!("seed {seed}");
        let env = environment(seed);
        let Written { model, ever, .. } = write(&env, seed, options_of(seed), |_, _, _| {});
        let (report, found) = repaired(&env, LISTS, &options_of(seed));
        assert!(report.is_complete() && report.manifest, "seed {seed}: {report:?}");
        assert_eq!((found, &report.warnings), (model.clone(), &Vec::new()), "seed {seed}");
        let another = builder(&env, &last_out(&env)).keyspace(LISTS, counting()).open();
        assert_eq!(another.expect_err("the operator is recorded").kind(), ErrorKind::Invalid);

        remove(&env, is_manifest);
        let (report, found) = repaired(&env, LISTS, &options_of(seed));
        assert!(
            !report.manifest && report.lost.iter().all(|lost| lost.loss == Loss::Deletions),
            "{report:?}"
        );
        assert_eq!(found, model, "seed {seed}, without a manifest");
        let warned = report.warnings.iter().any(|warning| {
            warning.contains("keyspace \"lists\" has operands")
                && warning.contains("must be given its operator")
        });
        assert!(warned, "{:?}", report.warnings);

        // Inputs and outputs of flushes and compactions: nothing counts twice.
        for (name, bytes) in &ever {
            if !files(&env, DIR).contains(name) {
                write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
            }
        }
        let (_, found) = repaired(&env, LISTS, &options_of(seed));
        assert_eq!(found, model, "seed {seed}, with all files that ever were");
    }
}

/// The directory of the last repair.
fn last_out(env: &Env) -> String {
    let listed = env.vfs.list(Path::new("/")).expect("listed");
    let mut outs: Vec<String> = listed.into_iter().map(|entry| format!("/{}", entry.name)).collect();
    outs.retain(|name| name.starts_with(&format!("{OUT}-{ENOUGH_BYTES}")));
    outs.pop().expect("a repair")
}

#[test]
fn a_repaired_keyspace_whose_operator_is_lost_keeps_its_operands() {
    let env = environment(3);
    let db = builder(&env, DIR).keyspace(LISTS, appending()).open().expect("opens");
    let lists = db.keyspace(LISTS).expect("made");
    lists.put("k", "1").expect("put");
    db.flush().expect("flushed");
    lists.merge("k", "2").expect("merged");
    drop((lists, db));
    remove(&env, is_manifest);
    let report = repair_within(&env, Path::new(DIR), Path::new(OUT), LITTLE_BYTES).expect("a new database");
    assert_eq!(report.entries_written, 2, "{report:?}");
    let db = builder(&env, OUT).open().expect("opens");
    let lists = db.keyspace(LISTS).expect("there");
    assert_eq!(lists.get("k").expect_err("no operator").kind(), ErrorKind::Unsupported);
    assert_eq!(lists.merge("k", "3").expect_err("no operator").kind(), ErrorKind::Invalid);
    db.compact().expect("it keeps the operands");
    let lists = db.keyspace_with(LISTS, appending()).expect("given now");
    lists.merge("k", "3").expect("merged");
    assert_eq!(lists.get("k").expect("readable").as_deref(), Some(&b"1,2,3"[..]));
}

fn counts(model: &Model) -> BTreeMap<Vec<u8>, u64> {
    let number = |value: &Vec<u8>| u64::from_le_bytes(value[..].try_into().expect("8 bytes"));
    model.iter().map(|(key, value)| (key.clone(), number(value))).collect()
}

/// Writes counters: into level 0 and deeper levels, between snapshots, and into the log. Calls
/// `flushed` after each flush, and returns what they count.
fn count_up(env: &Env, seed: u64, mut flushed: impl FnMut()) -> BTreeMap<Vec<u8>, u64> {
    let rng = SeededRng::new(seed);
    let db = builder(env, DIR).keyspace(LISTS, counting()).open().expect("opens");
    let counters = db.keyspace(LISTS).expect("made");
    let mut snapshots = Vec::new();
    for turn in 0..8 {
        for _ in 0..40 {
            let key = [b'k', (rng.next_u64() % 10) as u8];
            counters.merge(key, (rng.next_u64() % 100).to_le_bytes()).expect("merged");
        }
        if turn < 7 {
            db.flush().expect("flushed");
            flushed();
        }
        match turn {
            // The second of these folds an operand into a value, whose base is in another table.
            0 | 1 => db.compact().expect("compacted"),
            // The compaction combines the operands of two flushes above the older ones.
            2 | 5 => snapshots.push(db.snapshot()),
            4 => db.compact().expect("compacted"),
            _ => {}
        }
    }
    // Damage to a log is a loss where it was synced.
    db.sync().expect("synced");
    counts(&pairs(&counters))
}

/// Checks that no counter is larger than it was, and that a smaller one is reported.
fn check_counts(found: &Model, due: &BTreeMap<Vec<u8>, u64>, report: &RepairReport, what: &str) -> usize {
    let found = counts(found);
    let mut smaller = 0;
    for (key, due) in due {
        let count = found.get(key).copied().unwrap_or(0);
        assert!(count <= *due, "{what}: {count} of {due}");
        let is_reported = report.lost.iter().any(|lost| lost.contains(LISTS, key));
        assert!(count == *due || is_reported, "{what}: a loss is not reported: {report:?}");
        smaller += usize::from(count < *due);
    }
    assert!(found.keys().all(|key| due.contains_key(key)), "{what}: {found:?}");
    smaller
}

#[test]
fn a_lost_table_is_reported_and_no_operand_counts_twice() {
    let mut smaller = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let env = environment(seed);
        let mut ever = BTreeMap::new();
        let due = count_up(&env, seed, || ever.extend(content(&env, &[".sst"])));
        let (report, found) = repaired(&env, LISTS, &counting());
        assert!(report.is_complete() && counts(&found) == due, "seed {seed}: {report:?}");
        let tables = content(&env, &[".sst"]);
        assert!(tables.len() > 2, "seed {seed}: {} tables", tables.len());
        for (name, bytes) in &tables {
            env.vfs.unlink(&path(name)).expect("removed");
            let (report, found) = repaired(&env, LISTS, &counting());
            let is_table = |lost: &LostRange| lost.loss == Loss::Entries && lost.file == path(name);
            assert!(report.lost.iter().any(is_table), "{report:?}");
            smaller += check_counts(&found, &due, &report, &format!("seed {seed}, without {name}"));
            write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
        }
        // Without a manifest, and with a part of the inputs of compactions: the outputs decide.
        remove(&env, is_manifest);
        let rng = SeededRng::new(seed);
        let mut inputs = ever;
        inputs.retain(|name, _| !tables.contains_key(name));
        for turn in 0..8 {
            for (name, bytes) in inputs.iter().filter(|_| rng.next_u64() % 2 == 0) {
                write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
            }
            let (_, found) = repaired(&env, LISTS, &counting());
            assert_eq!(counts(&found), due, "seed {seed}, turn {turn}, a part of the inputs");
            remove(&env, |name| inputs.contains_key(name));
        }
        // With all of them, which hold what the lost output does.
        for (name, bytes) in &inputs {
            write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
        }
        for (name, bytes) in &tables {
            env.vfs.unlink(&path(name)).expect("removed");
            let (report, found) = repaired(&env, LISTS, &counting());
            check_counts(&found, &due, &report, &format!("seed {seed}, inputs, without {name}"));
            write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
        }
        let (_, found) = repaired(&env, LISTS, &counting());
        assert_eq!(counts(&found), due, "seed {seed}, with the inputs of compactions");
    }
    assert!(smaller > 0, "no loss changed a count");
}

#[test]
fn a_damaged_byte_makes_no_counter_larger() {
    let mut smaller = 0;
    for seed in 10..14 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let due = count_up(&env, seed, || {});
        for (name, bytes) in content(&env, &[".sst", ".log"]) {
            for _ in 0..6 {
                let mut damaged = bytes.clone();
                // Not in the zeros of a table's header.
                let from = if name.ends_with(".sst") { 4_096 } else { 0 };
                let at = from + rng.next_u64() as usize % (bytes.len() - from);
                damaged[at] ^= 1 << (rng.next_u64() % 8);
                write_again(&env, &name, &damaged);
                let (report, found) = repaired(&env, LISTS, &counting());
                smaller += check_counts(&found, &due, &report, &format!("seed {seed}, byte {at} of {name}"));
            }
            write_again(&env, &name, &bytes);
        }
    }
    assert!(smaller > 0, "no damage changed a count");
}

fn write_again(env: &Env, name: &str, bytes: &[u8]) {
    env.vfs.unlink(&path(name)).expect("removed");
    write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
}

#[test]
fn operands_outlive_a_damaged_value_below_them() {
    let env = environment(4);
    let db = builder(&env, DIR).keyspace(LISTS, apart()).open().expect("opens");
    let lists = db.keyspace(LISTS).expect("made");
    lists.put("k", "old").expect("put");
    db.flush().expect("flushed");
    let before = files(&env, DIR);
    lists.put("k", vec![b'v'; 70_000]).expect("put");
    db.flush().expect("flushed");
    let mut tables = content(&env, &[".sst"]);
    tables.retain(|name, _| !before.contains(name));
    lists.merge("k", "1").expect("merged");
    db.flush().expect("flushed");
    lists.merge("k", "2").expect("merged");
    drop((lists, db));
    let (name, mut bytes) = tables.pop_first().expect("a table with the long value");
    // In the first chunk, after the table's header.
    bytes[4_096 + 100] ^= 1;
    write_again(&env, &name, &bytes);
    let (report, found) = repaired(&env, LISTS, &apart());
    assert!(
        report.lost.iter().any(|lost| lost.contains(LISTS, b"k") && !lost.contains(LISTS, b"l")),
        "{report:?}"
    );
    assert_eq!(found, Model::from([(b"k".to_vec(), b"old,1,2".to_vec())]), "the older value takes its place");
}
