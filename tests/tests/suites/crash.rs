//! Suite C: every crash state of short workloads, and a large sample of those of long ones.
//!
//! Short: all 156 sequences of one or two operations of an alphabet of twelve, from an empty and
//! from a filled database, crashed after every call under every policy of the simulated disk.
//! `SHAMBA_CRASH_LENGTH=3` runs all 1,884 sequences of up to three; `SHAMBA_CRASH_DEPTH=3` also
//! crashes recoveries from crashes of recoveries. Long: random lives with a tiny write buffer, so
//! that flushes, compactions, log and manifest changes are crashed too, after every second call (on
//! demand after each). In some of them time passes and entries expire.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, OpKind, SimFs};
use shamba::{Compression, Db, Durability, MergePolicy, Prefix};
use shamba_tests::brief::is_brief;
use shamba_tests::crash::{Effort, Explorer, Recording};
use shamba_tests::ops::{Generator, KeyShape, Op};
use shamba_tests::oracle::Change;
use shamba_tests::pool;
use shamba_tests::runner::{COPY, HOME};
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{THRESHOLD_BYTES, Vector};

const ALPHABET: usize = 12;
/// Each policy with each kind of promise once; `SHAMBA_LONG_LIVES` sets more.
const LONG_LIVES: u64 = 18;
/// Operations of a life in which time passes.
const EXPIRING_OPS: usize = 90;
/// Of the disks of short lives, one in this many has its recovery crashed, some 100 times.
const NESTED_ONE_IN: u64 = 48;
const TEST: &str = "crash::every_crash_leaves_a_legal_state";
/// Lives in which time passes: each policy with and without value files.
const EXPIRING_LIVES: usize = 6;
const EXPIRING_TEST: &str = "crash::entries_expire_at_their_time_after_every_crash";
/// Approximate number of crashes of such a life; `SHAMBA_EXPIRY_IMAGES` sets another.
const EXPIRING_IMAGES: u64 = 250;

/// Options that the last keyspace has for itself.
const OWN_OPTIONS: [&[(&str, &str)]; 3] = [
    &[("compression", "lz4"), ("policy", "tiering"), ("bits-per-key", "6.5")],
    &[("compression", "zstd"), ("compression-dictionary", "256"), ("value-threshold", "64")],
    &[("policy", "leveling"), ("block-size", "256"), ("file-size", "1024"), ("value-threshold", "off")],
];

fn put(space: usize, key: &str, value: String) -> Change {
    Change::Put { space, key: key.into(), value: value.into_bytes() }
}

fn merge(space: usize, key: &str, operand: String) -> Change {
    Change::Merge { space, key: key.into(), operand: operand.into_bytes() }
}

/// Operation `letter` of the alphabet, at position `place` of its workload.
fn letter(letter: usize, place: usize) -> Op {
    let value = |what: &str| format!("{what} {place}");
    match letter {
        0 => Op::Write(put(0, "a", value("put"))),
        1 => Op::Write(put(1, "b", value("put"))),
        2 => Op::Write(Change::Delete { space: 0, key: b"a".to_vec() }),
        3 => {
            let span = (std::ops::Bound::Included(b"a".to_vec()), std::ops::Bound::Excluded(b"c".to_vec()));
            Op::Write(Change::DeleteRange { space: 0, span })
        }
        4 => {
            let delete = Change::Delete { space: 1, key: b"b".to_vec() };
            let changes = vec![put(0, "a", value("batch")), delete, put(1, "c", value("batch"))];
            Op::Batch { changes, sync: false }
        }
        5 => Op::Batch { changes: vec![put(0, "b", value("synced"))], sync: true },
        6 => Op::Sync,
        7 => Op::Flush,
        8 => Op::Compact,
        9 => {
            let changes = vec![
                merge(0, "a", value("merged")),
                merge(1, "b", value("merged")),
                merge(0, "a", value("and again")),
            ];
            Op::Batch { changes, sync: false }
        }
        // A value for a value file.
        10 => Op::Write(put(0, "b", value("long").repeat(12))),
        _ => Op::Reopen { clean: place.is_multiple_of(2), change_options: false },
    }
}

/// A table, a value file, a log with a synced part and a tail that has an operand, both keyspaces
/// in use.
fn filled() -> Vec<Op> {
    vec![
        Op::Batch { changes: vec![put(0, "a", "old".into()), put(1, "b", "old".into())], sync: false },
        Op::Write(put(0, "d", "old".repeat(30))),
        Op::Flush,
        Op::Batch { changes: vec![put(0, "c", "logged".into())], sync: true },
        Op::Write(put(1, "e", "tail".into())),
        Op::Write(merge(0, "d", "tail".into())),
    ]
}

/// All workloads of at most `length` operations, short ones first.
fn exhaustive(length: u32) -> Vec<Vec<usize>> {
    let of = |length| {
        let digit = |number: usize, place| number / ALPHABET.pow(place) % ALPHABET;
        let of_number = move |number| (0..length).rev().map(|place| digit(number, place)).collect();
        (0..ALPHABET.pow(length)).map(of_number)
    };
    (1..=length).flat_map(of).collect()
}

/// Maximum number of successive crashes.
fn depth() -> u32 {
    seed::number("SHAMBA_CRASH_DEPTH").map_or(2, |depth| depth as u32)
}

/// The factor of disks in a run on demand, which crashes recoveries of recoveries.
fn density() -> u64 {
    if depth() > 2 { 2 } else { 1 }
}

fn short_lives(explorer: &Explorer, base: u64) -> Result<Tally, String> {
    let length = seed::number("SHAMBA_CRASH_LENGTH").map_or(2, |length| length as u32);
    let workloads = exhaustive(length);
    let effort = if is_brief() {
        Effort { policies_per_point: 6, points_step: 1, nested_one_in: 16, depth: 2 }
    } else {
        let policies_per_point = usize::MAX;
        Effort {
            policies_per_point,
            points_step: 1,
            nested_one_in: NESTED_ONE_IN / density(),
            depth: depth(),
        }
    };
    // In a brief run a few workloads suffice, from both databases.
    let step = if is_brief() { 31 } else { 1 };
    let tallies = pool::run(workloads.len() * 2 / step, |index| {
        let index = index * step;
        let from_empty = index % 2 == 0;
        let mut ops = if from_empty { Vec::new() } else { filled() };
        ops.extend(workloads[index / 2].iter().enumerate().map(|(place, a)| letter(*a, place)));
        let value_threshold = Some(THRESHOLD_BYTES);
        // The options of keyspaces are recorded, whichever call the crash comes behind.
        let (prefix, own_options) = (Some(Prefix::Capped(1)), OWN_OPTIONS[0].to_vec());
        let vector = Vector { value_threshold, prefix, own_options, ..Vector::plain(MergePolicy::Leveling) };
        Recording::record(&vector, base, &ops)
            .and_then(|recording| explorer.explore(&recording, effort, base))
            .map(|mut tally| {
                tally.add("short lives", 1);
                tally
            })
            .map_err(|error| rerun(error, base, index))
    })?;
    Ok(Tally::sum(&tallies))
}

/// Operations of a random life: those that change the disk.
fn long_script(vector: &Vector, seed: u64) -> Vec<Op> {
    // Values that fill many sectors make a life long to explore: only some lives have them.
    let huge_one_in = if seed.is_multiple_of(4) { 40 } else { u32::MAX };
    let shape = KeyShape { universe: 60, value_bytes: 90, huge_one_in };
    let mut ops = Generator::new(seed, shape).ops(1_000);
    ops.retain(|op| match op {
        Op::Write(_) | Op::Batch { .. } | Op::Transaction(_) | Op::Flush | Op::Sync => true,
        Op::Compact | Op::CompactRange { .. } => true,
        Op::Ingest(_) | Op::SnapshotTake | Op::Checkpoint | Op::DropSpace { .. } | Op::Redesign(_) => true,
        // The model suite determines what a drop leaves with these two.
        Op::Reopen { clean, change_options: false } => *clean || vector.survives_kill(),
        _ => false,
    });
    ops.truncate(90);
    ops
}

/// The script of a life in which time passes every few operations.
fn expiring_script(seed: u64) -> Vec<Op> {
    let shape = KeyShape { universe: 40, value_bytes: 90, huge_one_in: u32::MAX };
    let mut rng = Rng::with_seed(seed);
    let mut ops = Vec::new();
    for op in Generator::new(seed, shape).passing_time().ops(400) {
        let op = match op {
            // The runner makes some single deletes by a value that expires at once. It is there
            // again where the clock is set back.
            Op::Write(delete @ Change::Delete { .. }) => Op::Batch { changes: vec![delete], sync: false },
            op => op,
        };
        match &op {
            Op::Write(_) | Op::Batch { .. } | Op::Transaction(_) | Op::Live { .. } => {}
            Op::Flush | Op::Sync | Op::Compact | Op::CompactRange { .. } | Op::SnapshotTake => {}
            Op::Checkpoint | Op::Reopen { clean: true, change_options: false } => {}
            _ => continue,
        }
        let put = match &op {
            Op::Write(Change::Put { space, key, .. }) if rng.u8(..3) == 0 => Some((*space, key.clone())),
            _ => None,
        };
        ops.push(op);
        ops.extend(put.map(|(space, key)| Op::Live { space, key, ticks: Some(rng.u64(1..5)) }));
        if rng.u8(..5) == 0 {
            ops.push(Op::Pass { ticks: rng.u64(1..3) });
        }
    }
    ops.truncate(EXPIRING_OPS);
    ops
}

/// A life in which time passes. Its vector cycles with the number.
fn expiring_life(base: u64, index: usize, images: u64) -> Result<Tally, String> {
    let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
    let mut vector = Vector::plain(policies[index % 3]);
    vector.value_threshold = (index / 3 % 2 == 1).then_some(THRESHOLD_BYTES);
    vector.combines = index.is_multiple_of(2);
    vector.no_wal = index % 6 == 4;
    let seed = mixed(base, index as u64);
    let ops = expiring_script(seed);
    let explorer = Explorer::default();
    Recording::record(&vector, seed, &ops)
        .and_then(|recording| {
            let points_step = (recording.calls() / images.max(1)).max(1);
            let effort = Effort { policies_per_point: 1, points_step, nested_one_in: 64, depth: 2 };
            explorer.explore(&recording, effort, seed)
        })
        .map(|mut tally| {
            tally.add("distinct images", explorer.distinct_images() as u64);
            tally
        })
        .map_err(|error| {
            format!("{error}\n  rerun: {}", Rerun { test: EXPIRING_TEST, seed: base, vector: index })
        })
}

#[test]
fn entries_expire_at_their_time_after_every_crash() {
    let base = seed::base(0xc4a5_717e);
    let images = seed::number("SHAMBA_EXPIRY_IMAGES").unwrap_or(EXPIRING_IMAGES);
    let (lives, images) = if is_brief() { (3, images / 2) } else { (EXPIRING_LIVES, images) };
    let only = seed::only_vector();
    let tallies =
        pool::run(only.map_or(lives, |_| 1), |index| expiring_life(base, only.unwrap_or(index), images));
    let total = Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")));
    total.tell("crash-expiry", &format!("suite C, entries that expire, seed {base}: {lives} lives"));
    if is_brief() || only.is_some() {
        return;
    }
    total.require(&[
        ("distinct images", 1_500),
        ("crashes of recoveries", 500),
        ("crashes after expired entries were dropped", 600),
        ("crashes while expired entries are dropped", 100),
        ("disks on which time passed", 150),
        ("expired entries that were dropped after a crash", 400),
        ("disks whose clock was set back after entries were dropped", 50),
    ]);
}

/// A random life. Its vector cycles with the number.
fn long_life(explorer: &Explorer, base: u64, index: usize) -> Result<Tally, String> {
    let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
    let mut vector = Vector::plain(policies[index % 3]);
    match index / 3 % 6 {
        0 => vector.durability = Durability::Sync,
        1 => vector.durability = Durability::Buffered,
        2 => vector.durability = Durability::Interval { ms: 1, bytes: 2048 },
        3 => vector.no_wal = true,
        4 => vector.max_wal_bytes = Some(1 << 11),
        5 => vector.large_values = Some((40, 64)),
        _ => {}
    }
    vector.combines = index.is_multiple_of(2);
    // With half of the kinds of promise, under each policy.
    vector.value_threshold = (index / 3 % 2 == 1).then_some(THRESHOLD_BYTES);
    // Each policy with and without prefixes, which are parts of the paths of the keys.
    vector.prefix = [None, Some(Prefix::Delimited(b'/')), Some(Prefix::Capped(7)), Some(Prefix::Fixed(2))]
        [(index + index / 3) % 4];
    // Each policy, but not all lives: contexts of zstd take much of the time of an open.
    if (index / 3).is_multiple_of(3) {
        vector.compression = vec![Compression::Zstd];
        vector.dictionary_bytes = 256;
    }
    // Answers after a recovery, and the reads that come before, also go through the record cache.
    vector.record_cache = (index / 2 % 2 == 1).then_some(64 << 10).or(Some(0));
    // Not with a promise that a crash may break: a replica may have what is lost then.
    let follows = index % 2 == 1 && vector.survives_kill();
    vector.follows_unsynced = follows.then_some(index / 2 % 2 == 1);
    if (index / 2).is_multiple_of(2) {
        vector.own_options = OWN_OPTIONS[index / 4 % OWN_OPTIONS.len()].to_vec();
    }
    let seed = mixed(base, index as u64);
    let mut ops = long_script(&vector, seed);
    if vector.follows_unsynced.is_some() {
        // A stream does not deliver their entries.
        ops.retain(|op| !matches!(op, Op::Ingest(_)));
    }
    // An image of a long life takes ten times as long as one of a short life. The policy changes
    // from point to point. On demand every point is crashed.
    let points_step = if density() > 1 { 1 } else { 2 };
    let policies_per_point = density() as usize;
    let effort =
        Effort { policies_per_point, points_step, nested_one_in: 256 / density().pow(2), depth: depth() };
    Recording::record(&vector, seed, &ops)
        .and_then(|recording| explorer.explore(&recording, effort, seed))
        .map_err(|error| rerun(error, base, 1000 + index))
}

fn rerun(error: String, base: u64, vector: usize) -> String {
    format!("{error}\n  rerun: {}", Rerun { test: TEST, seed: base, vector })
}

#[test]
fn every_crash_leaves_a_legal_state() {
    let base = seed::base(0xc4a5_4000);
    let (explorer, begun) = (Explorer::default(), std::time::Instant::now());
    if let Some(index) = seed::only_vector().and_then(|index| index.checked_sub(1000)) {
        long_life(&explorer, base, index).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let mut total = short_lives(&explorer, base).unwrap_or_else(|error| panic!("{error}"));
    let of_short = explorer.distinct_images() as u64;
    println!("suite C, short lives alone, after {:.0} s\n{total}", begun.elapsed().as_secs_f64());
    let lives = seed::number("SHAMBA_LONG_LIVES").unwrap_or(LONG_LIVES) as usize;
    let lives = if is_brief() { 0 } else { lives };
    let long = pool::run(lives, |index| long_life(&explorer, base, index));
    total.merge(&Tally::sum(&long.unwrap_or_else(|error| panic!("{error}"))));
    total.add("distinct images, of short lives", of_short);
    total.add("distinct images", explorer.distinct_images() as u64);
    let short = total.get("short lives");
    total.tell("crash", &format!("suite C, seed {base}: {short} short lives, {lives} long ones"));
    if is_brief() {
        return;
    }
    total.require(&[
        ("distinct images", 100_000),
        ("short lives", 312),
        ("crashes of recoveries", 1_000),
        ("disks with a checkpoint", 20),
        ("disks also opened read-only", 1_000),
        ("recoveries that dropped a tail", 100),
        ("disks whose stream was read", 1_000),
        ("policy None", 100),
        ("policy All", 100),
        ("policy Prefix", 100),
        ("policy DropOne", 100),
        ("policy KeepOne", 100),
        ("policy Subset", 100),
        ("policy Torn", 100),
        ("policy TornHole", 100),
        ("policy ZeroExtend", 100),
        ("policy StaleExtend", 100),
        ("policy DirStrict", 100),
        ("policy DirExt4", 100),
    ]);
}

/// The suite would detect a missing sync: with any class of syncs replaced by no-ops, it fails.
#[test]
fn every_class_of_syncs_is_needed() {
    let classes: [(&str, &[OpKind], &str); 6] = [
        ("names in the directory", &[OpKind::SyncDir], HOME),
        ("logs", &[OpKind::SyncData, OpKind::SyncAll], ".log"),
        ("tables", &[OpKind::SyncData, OpKind::SyncAll], ".sst"),
        ("value files", &[OpKind::SyncData, OpKind::SyncAll], ".values"),
        ("manifests", &[OpKind::SyncData, OpKind::SyncAll], "MANIFEST"),
        ("what names the manifest", &[OpKind::SyncData, OpKind::SyncAll], "CURRENT"),
    ];
    for (name, kinds, path) in classes {
        let value_threshold = Some(THRESHOLD_BYTES);
        let vector = Vector { value_threshold, ..Vector::plain(MergePolicy::Tiering) };
        let seed = 5;
        let ops = long_script(&vector, seed);
        let recording = Recording::record_through(&vector, seed, &ops, |sim| {
            let lying = FaultFs::new(Arc::new(sim), seed);
            lying.add_rule(FaultRule::nth(0, Effect::LieAboutSync).on(kinds).at_path(path).sticky());
            Arc::new(lying)
        });
        let recording = recording.unwrap_or_else(|error| panic!("{name}: nothing crashed yet: {error}"));
        let effort = Effort { policies_per_point: 4, points_step: 1, nested_one_in: u64::MAX, depth: 2 };
        let explored = Explorer::default().explore(&recording, effort, seed);
        let Err(error) = explored else { panic!("no crash shows that {name} are not synced") };
        println!("{name} not synced: {}", error.lines().next().unwrap_or_default());
    }
}

/// A run is a function of its seed; otherwise no failure could be reproduced.
#[test]
fn equal_seeds_make_equal_calls() {
    let seeds = seed::number("SHAMBA_EQUAL_SEEDS").unwrap_or(20);
    for seed in 0..seeds {
        let vector = Vector::numbered(seed, seed as usize);
        let ops = long_script(&vector, seed);
        let hash = || Recording::record(&vector, seed, &ops).map(|recording| recording.trace_hash());
        let (one, two) = (hash(), hash());
        assert!(one.is_ok(), "seed {seed}: {one:?}");
        assert_eq!(one, two, "seed {seed}: {vector:?}");
    }
    Tally::of(&[("seeds", seeds)]).tell("determinism", "equal seeds, equal calls");
}

/// An acknowledged checkpoint is an independent database, whatever happens to the machine after it.
#[test]
fn a_checkpoint_survives_a_power_cut() {
    let sim = SimFs::new();
    let env = Env::deterministic(Arc::new(sim.clone()), 1);
    let db = Vector::plain(MergePolicy::Leveling).builder(Path::new(HOME), &env).open().expect("open");
    for number in 0..40 {
        db.put(format!("{number:02}"), [7; 60]).expect("put");
    }
    db.checkpoint(Path::new(COPY)).expect("checkpoint");
    db.put("later", "1").expect("put");
    for policy in sim.policies_for(sim.op_count(), 1) {
        let env = Env::deterministic(Arc::new(sim.crash(u64::MAX, &policy)), 2);
        let copy = Db::builder(COPY).env(env).info_log(false).create_if_missing(false).open();
        let copy = copy.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!(copy.iter().filter(|pair| pair.is_ok()).count(), 40, "{policy:?}");
        assert!(!copy.contains_key("later").expect("read"));
    }
}

/// An interval's sync comes with the first write after it has elapsed, or when its byte limit is
/// reached.
#[test]
fn interval_writes_are_durable_in_time() {
    let sim = SimFs::new();
    let env = Env::deterministic(Arc::new(sim.clone()), 1);
    let interval = Durability::Interval { ms: 10, bytes: 2_000 };
    let db = Db::builder(HOME).env(env.clone()).info_log(false).durability(interval).open().expect("open");
    let survives = |key: &str| {
        let disk = sim.crash(u64::MAX, &CrashPolicy::None);
        let env = Env::deterministic(Arc::new(disk), 2);
        let after = Db::builder(HOME).env(env).info_log(false).open().expect("open after the cut");
        after.contains_key(key).expect("contains_key")
    };
    db.put("a", "1").expect("put");
    assert!(!survives("a"), "nothing was due yet");
    env.clock.sleep_us(11_000);
    db.put("b", "2").expect("put");
    assert!(survives("a"), "the interval has passed");
    db.put("c", [0; 3_000]).expect("put");
    assert!(survives("c"), "the bytes are used up");
    assert_eq!(db.stats().unsynced_bytes, 0);
}
