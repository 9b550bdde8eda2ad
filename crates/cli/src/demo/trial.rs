//! Trial of one merge policy: load, reopen, verify, look up.
//!
//! For the lookups the database is opened several times at once, read-only, with one switch changed
//! in each handle. First each handle looks up every path and every absent one, which warms its
//! cache, checks the answers and gives the counters. Then the handles are timed alternately on a
//! sample ([`super::timing`]).

use std::path::Path;
use std::time::Instant;

use shamba::{Builder, Db, Explanation, LevelStats, MemoryReport, MergePolicy, Sizing, Stats};

use super::paths::Paths;
use super::plan::Plan;
use super::timing::{self, Timing};
use crate::exit::Failure;
use crate::progress;

/// Difference of a handle from the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All defaults.
    Default,
    /// Each filter after the first hashes the key again.
    NoSharing,
    /// Filter lines are not prefetched.
    NoPrefetch,
}

impl Variant {
    /// All variants, the defaults first.
    pub const ALL: [Self; 3] = [Self::Default, Self::NoSharing, Self::NoPrefetch];

    fn open(self, path: &Path) -> Result<Db, Failure> {
        let builder = Db::builder(path).read_only(true);
        let builder: Builder = match self {
            Self::Default => builder,
            Self::NoSharing => builder.experimental(|e| e.hash_sharing(false)),
            Self::NoPrefetch => builder.experimental(|e| e.prefetch(false)),
        };
        Ok(builder.open()?)
    }
}

/// Result of loading.
#[derive(Clone, Debug)]
pub struct Load {
    /// Time until flushes and compactions were complete.
    pub seconds: f64,
    /// Counters of the load.
    pub stats: Stats,
}

/// Lookups of one kind of keys through one handle.
#[derive(Clone, Debug)]
pub struct Lookups {
    /// Variant of the handle.
    pub variant: Variant,
    /// Whether the keys exist.
    pub existing: bool,
    /// Counters of the untimed lookups.
    pub stats: Stats,
    /// Time of a lookup.
    pub time: Timing,
}

/// Parts of a lookup's time, in nanoseconds per lookup.
#[derive(Clone, Copy, Default, Debug)]
pub struct Split {
    pub hash: f64,
    pub probe: f64,
    pub index: f64,
    pub data: f64,
    pub other: f64,
    /// Time of reading the clock; not included in the parts.
    pub timer: f64,
}

impl Split {
    fn of(stats: &Stats) -> Self {
        let per_get = |ns| stats.per_get(ns);
        Self {
            hash: per_get(stats.hash_ns),
            probe: per_get(stats.probe_ns),
            index: per_get(stats.index_ns),
            data: per_get(stats.data_ns),
            other: per_get(stats.other_ns),
            timer: per_get(stats.timer_ns),
        }
    }

    /// Adds `share` times each part of `other`.
    fn add(&mut self, other: &Self, share: f64) {
        self.hash += share * other.hash;
        self.probe += share * other.probe;
        self.index += share * other.index;
        self.data += share * other.data;
        self.other += share * other.other;
        self.timer += share * other.timer;
    }

    /// Sum of all parts, without reading the clock.
    pub fn total(&self) -> f64 {
        self.hash + self.probe + self.index + self.data + self.other
    }
}

/// Number of checked and of wrong answers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Verification {
    /// Entries of the reopened database that were compared with the walk, one by one in key order.
    pub entries: u64,
    /// Entries that are missing, unexpected, out of order or different.
    pub scan_mismatches: u64,
    /// Lookups whose answers were checked.
    pub lookups: u64,
    /// Lookups of real paths without the right value.
    pub get_mismatches: u64,
    /// Lookups of absent paths that found a value.
    pub absent_found: u64,
    /// Damaged places found by a check of every byte.
    pub problems: u64,
}

impl Verification {
    /// Sum of all errors.
    pub fn mismatches(&self) -> u64 {
        self.scan_mismatches + self.get_mismatches + self.absent_found + self.problems
    }
}

/// Results of one policy's trial.
#[derive(Debug)]
pub struct Trial {
    pub policy: MergePolicy,
    pub load: Load,
    /// The tree in the notation of `shamba tree`.
    pub tree: String,
    pub levels: Vec<LevelStats>,
    pub deepest_level: u32,
    pub runs: u64,
    pub lookups: Vec<Lookups>,
    /// Time parts for existing and for absent paths.
    pub split: [Split; 2],
    /// Explanations of a typical hit and a typical miss.
    pub explained: [Explanation; 2],
    pub memory: MemoryReport,
    pub verification: Verification,
    pub seconds: f64,
}

impl Trial {
    /// Lookups of one variant and kind of keys.
    pub fn lookups_of(&self, variant: Variant, existing: bool) -> Option<&Lookups> {
        self.lookups.iter().find(|lookups| lookups.variant == variant && lookups.existing == existing)
    }

    /// Number of tables on all levels.
    pub fn tables(&self) -> u64 {
        self.levels.iter().map(|level| level.tables).sum()
    }

    /// Bytes written for each byte of data.
    pub fn write_amplification(&self) -> f64 {
        self.load.stats.bytes_written() as f64 / self.load.stats.bytes_user.max(1) as f64
    }
}

/// Runs the trial of `policy` with a database at `path`.
///
/// # Errors
/// Errors of the engine.
pub fn run(path: &Path, policy: MergePolicy, plan: &Plan, paths: &Paths) -> Result<Trial, Failure> {
    let start = Instant::now();
    let load = load(path, Db::builder(path).merge_policy(policy), plan, paths)?;
    let mut verification = Verification::default();
    let db = Variant::Default.open(path)?;
    scan(&db, paths, &mut verification)?;
    verification.problems = db.verify()?.problems.len() as u64;
    // The compared handles must have the same history: the handle that scanned is not one of them.
    drop(db);
    let mut handles = Vec::new();
    for variant in Variant::ALL {
        handles.push((variant, variant.open(path)?));
    }
    let (_, db) = &handles[0];
    let (tree, stats) = (db.describe(), db.stats());
    let lookups = look_up(&handles, plan, paths, &mut verification)?;
    let explained = [
        typical(db, paths.entries.iter().map(|entry| entry.key.as_slice()))?,
        typical(db, paths.absent.iter().map(Vec::as_slice))?,
    ];
    let memory = db.memory();
    drop(handles);
    let split = time_parts(path, plan, paths)?;
    Ok(Trial {
        policy,
        load,
        tree,
        deepest_level: stats.deepest_level,
        runs: stats.runs,
        levels: stats.levels,
        lookups,
        split,
        explained,
        memory,
        verification,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn load(path: &Path, builder: Builder, plan: &Plan, paths: &Paths) -> Result<Load, Failure> {
    let bar = progress::bar(
        &format!("loading {}", path.file_name().unwrap_or_default().display()),
        Some(paths.entries.len() as u64),
    );
    let start = Instant::now();
    let db = builder
        .size_ratio(plan.size_ratio)
        // Deep trees, as in the papers.
        .experimental(|e| e.sizing(Sizing::Manual).file_size(plan.file_bytes).error_if_exists(true))
        .write_buffer(plan.buffer_bytes)
        .open()?;
    for (number, entry) in paths.entries.iter().enumerate() {
        db.put(&entry.key, &entry.value)?;
        if number % 1024 == 0 {
            bar.set_position(number as u64);
        }
    }
    db.flush()?;
    db.wait_idle()?;
    let load = Load { seconds: start.elapsed().as_secs_f64(), stats: db.stats() };
    db.close()?;
    bar.finish_and_clear();
    Ok(load)
}

/// Compares every entry of the database with the walk.
fn scan(db: &Db, paths: &Paths, verification: &mut Verification) -> Result<(), Failure> {
    let mut expected: Vec<_> = paths.entries.iter().collect();
    expected.sort();
    let mut expected = expected.into_iter();
    for entry in db.iter() {
        let (key, value) = entry?;
        verification.entries += 1;
        let right = expected
            .next()
            .is_some_and(|expected| expected.key == key.as_ref() && expected.value == value.as_ref());
        verification.scan_mismatches += u64::from(!right);
    }
    verification.scan_mismatches += expected.count() as u64;
    Ok(())
}

fn look_up(
    handles: &[(Variant, Db)],
    plan: &Plan,
    paths: &Paths,
    verification: &mut Verification,
) -> Result<Vec<Lookups>, Failure> {
    let bar = progress::bar("looking everything up", Some(handles.len() as u64 + 1));
    let mut all = Vec::new();
    for (variant, db) in handles {
        let before = db.stats();
        for entry in &paths.entries {
            let value = db.get(&entry.key)?;
            let right = value.is_some_and(|value| value.as_ref() == entry.value.as_slice());
            verification.get_mismatches += u64::from(!right);
        }
        let between = db.stats();
        for key in &paths.absent {
            verification.absent_found += u64::from(db.get(key)?.is_some());
        }
        let after = db.stats();
        verification.lookups += (paths.entries.len() + paths.absent.len()) as u64;
        for (existing, stats) in [(true, between.since(&before)), (false, after.since(&between))] {
            all.push(Lookups { variant: *variant, existing, stats, time: Timing::default() });
        }
        bar.inc(1);
    }
    let databases: Vec<&Db> = handles.iter().map(|(_, db)| db).collect();
    for (existing, keys) in [(true, sample(&paths.existing(), plan)), (false, sample(&paths.absent, plan))] {
        let times = timing::compare(&databases, &keys, plan.rounds)?;
        for (lookups, time) in all.iter_mut().filter(|lookups| lookups.existing == existing).zip(times) {
            lookups.time = time;
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// Evenly chosen keys, copied to adjacent memory: the timing must not include cache misses on the
/// caller's key.
fn sample(keys: &[impl AsRef<[u8]>], plan: &Plan) -> Vec<Vec<u8>> {
    keys.iter().step_by(keys.len().div_ceil(plan.timed).max(1)).map(|key| key.as_ref().to_vec()).collect()
}

/// A typical explanation: among the first 300 keys, one with the fewest false positives, and then
/// the most filters.
fn typical<'a>(db: &Db, keys: impl Iterator<Item = &'a [u8]>) -> Result<Explanation, Failure> {
    let mut best: Option<Explanation> = None;
    let rank =
        |explanation: &Explanation| (std::cmp::Reverse(explanation.false_positives), explanation.filters);
    for key in keys.take(300) {
        let explanation = db.explain(key)?;
        if best.as_ref().is_none_or(|best| rank(&explanation) > rank(best)) {
            best = Some(explanation);
        }
    }
    let best = best.ok_or_else(|| Failure::Data("no path to look up".into()))?;
    // Explained once more when everything is in memory, as in the timed lookups.
    Ok(db.explain(&best.key)?)
}

/// Parts of a lookup's time, measured with the timers on: of each chunk the fastest of several
/// rounds, as in [`super::timing`].
fn time_parts(path: &Path, plan: &Plan, paths: &Paths) -> Result<[Split; 2], Failure> {
    let db = Db::builder(path).read_only(true).experimental(|e| e.timers(true)).open()?;
    // The first lookup finds the filters in memory.
    db.wait_idle()?;
    let fastest = |keys: &[Vec<u8>]| -> Result<Split, Failure> {
        timing::warm(&db, keys)?;
        let mut best: Vec<Option<Split>> = vec![None; keys.chunks(timing::CHUNK_KEYS).len()];
        for _ in 0..plan.rounds {
            for (chunk, best) in keys.chunks(timing::CHUNK_KEYS).zip(&mut best) {
                let before = db.stats();
                timing::warm(&db, chunk)?;
                let split = Split::of(&db.stats().since(&before));
                if best.is_none_or(|best| split.total() < best.total()) {
                    *best = Some(split);
                }
            }
        }
        let lookups = keys.len().max(1) as f64;
        let mut sum = Split::default();
        for (chunk, best) in keys.chunks(timing::CHUNK_KEYS).zip(best) {
            sum.add(&best.unwrap_or_default(), chunk.len() as f64 / lookups);
        }
        Ok(sum)
    };
    Ok([fastest(&sample(&paths.existing(), plan))?, fastest(&sample(&paths.absent, plan))?])
}

/// Times lookups of absent paths in a database at `path` like that of tiering, but without filters,
/// to measure the gain of filters.
///
/// # Errors
/// Errors of the engine.
pub fn without_filters(path: &Path, plan: &Plan, paths: &Paths) -> Result<Timing, Failure> {
    load(path, Db::builder(path).merge_policy(MergePolicy::Tiering).bits_per_key(0.0), plan, paths)?;
    let db = Db::builder(path).read_only(true).open()?;
    let keys = sample(&paths.absent, plan);
    timing::warm(&db, &keys)?;
    let times = timing::compare(&[&db], &keys, plan.rounds)?;
    Ok(times.first().copied().unwrap_or_default())
}
