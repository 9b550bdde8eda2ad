//! Monkey: empty lookups with filter bits by run size, compared with uniform bits.
//!
//! For each number of bits per key a tree is filled twice (T = 2, leveling, entries of 1 KiB, a
//! write buffer of 1 MiB), once with each allocation. Absent keys between the existing ones are
//! looked up until enough false positives are counted. The expected number follows from the actual
//! tables: per run, the sum over its tables of the share of all keys in its range times the
//! measured rate of a filter of that size; and the sum over the runs. (A run has gaps, because
//! leveling moves its overflow down table by table.) A deviation of more than `TOLERANCE` is a
//! violation.
//!
//! Then the same lookups are timed on files with `DEVICE_READ_US` per read.
//!
//! Filters are resident, and the block cache is minimal. Not here: residency and budgets
//! ([`super::curves`]).

use std::path::{Path, PathBuf};
use std::time::Instant;

use shamba::{Allocation, Builder, Db, Error, FilterLayout, MergePolicy, Residency, Sizing, TableStats};

use crate::items::Items;
use crate::layered::{Bits, Layers, Shape};
use shamba_workload::Permutation;
use shamba_workload::{Distribution, Picker};

/// Relative tolerance of measured false positives against the expected ones.
const TOLERANCE: f64 = 0.1;
/// Minimum number of counted false positives, unless the lookups end before.
const COUNTED_MIN: u64 = 400;
/// Number of counted false positives after which the measurement ends.
const COUNTED_ENOUGH: u64 = 20_000;
const ENTRY_BYTES: u64 = 1_024;
const BUFFER_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = 2 << 20;
const FILL_BUDGET_BYTES: u64 = 128 << 20;
/// Budget beyond filters and indexes: blocks are hardly ever cached.
const BUDGET_BYTES: u64 = 6 << 20;
/// Approximate maximum memory of an entry's filter and index.
const BYTES_PER_ENTRY: u64 = 16;
/// One read of the emulated device, in microseconds.
const DEVICE_READ_US: f64 = 100.0;
/// Lookups between two reads of the counters.
const ROUND: u64 = 10_000;

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the trees; each is removed after its measurement.
    pub dir: PathBuf,
    /// Entries of 1 KiB.
    pub entries: u64,
    /// Whether trees are built run by run, each over all keys, instead of by puts.
    pub layered: bool,
    /// Filter bits per key.
    pub bits_per_key: Vec<f64>,
    /// Maximum lookups per tree.
    pub lookups_max: u64,
    /// Lookups on the emulated device.
    pub device_lookups: u64,
    /// Seed of the order of keys and of lookups.
    pub seed: u64,
}

/// Measurements of one tree.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// False positives of a lookup.
    measured: f64,
    expected: f64,
    counted: u64,
    device_ns_per_lookup: f64,
}

/// Runs all trees; each finished line of JSON goes to `print`.
///
/// # Errors
/// Errors of the engine, an absent key that is found, and the violations.
pub fn run(options: &Options, print: &mut dyn FnMut(&str)) -> Result<(), String> {
    if options.entries == 0 {
        return Err("--entries 0: expected at least 1".to_owned());
    }
    let items = Items { count: options.entries, entry_bytes: ENTRY_BYTES, seed: options.seed };
    let mut violations = Vec::new();
    for &bits_per_key in &options.bits_per_key {
        let mut pair = Vec::new();
        for (name, allocation) in [("uniform", Allocation::Uniform), ("monkey", Allocation::Monkey)] {
            let dir = options.dir.join(name);
            let builder = || builder(&dir, items, bits_per_key, allocation);
            if options.layered {
                let layout = FilterLayout::Blocked;
                let bits = Bits { allocation, per_key: bits_per_key, layout, empty_fraction: 1.0 };
                let shape = Shape::leveled(2, items.bytes() / BUFFER_BYTES);
                let layers = Layers::new(items.count, items.seed, shape, bits)?;
                let builder =
                    || Ok(builder().memory_budget(FILL_BUDGET_BYTES).experimental(|e| e.no_wal(true)));
                layers.lay(&builder, &|item| items.pair(item))?;
            } else {
                let builder = builder().memory_budget(FILL_BUDGET_BYTES);
                fill(builder, items).map_err(|error| error.chain().to_string())?;
            }
            let found = tree(options, items, &builder, (name, bits_per_key), print)?;
            std::fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            violations.extend(violation(name, bits_per_key, found));
            pair.push(found);
        }
        let [uniform, monkey] = pair[..] else { continue };
        print(&format!(
            "{{\"schema\":\"monkey-pair/1\",\"bits_per_key\":{bits_per_key},\"false_positives_ratio\":{:.3},\
             \"latency_saved_share\":{:.3}}}",
            uniform.measured / monkey.measured,
            1.0 - monkey.device_ns_per_lookup / uniform.device_ns_per_lookup
        ));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

fn violation(name: &str, bits_per_key: f64, found: Found) -> Option<String> {
    let Found { measured, expected, counted, .. } = found;
    if counted < COUNTED_MIN {
        return Some(format!(
            "{name}, {bits_per_key} bits: {counted} false positives are too few for a verdict"
        ));
    }
    let is_near = (measured / expected - 1.0).abs() <= TOLERANCE;
    (!is_near).then(|| {
        format!("{name}, {bits_per_key} bits: {measured:.5} false positives, {expected:.5} expected")
    })
}

fn builder(dir: &Path, items: Items, bits_per_key: f64, allocation: Allocation) -> Builder {
    Db::builder(dir)
        .experimental(|e| e.sizing(Sizing::Manual))
        .merge_policy(MergePolicy::Leveling)
        .size_ratio(2.0)
        .write_buffer(BUFFER_BYTES)
        .experimental(|e| {
            e.file_size(FILE_BYTES)
                .filter_layout(FilterLayout::Blocked)
                .filter_residency(Residency::Pinned)
                .filter_allocation(allocation)
        })
        .bits_per_key(bits_per_key)
        .memory_budget(BUDGET_BYTES + items.count * BYTES_PER_ENTRY)
        .experimental(|e| e.digest_seed(items.seed))
}

/// Measures a tree.
fn tree(
    options: &Options,
    items: Items,
    builder: &dyn Fn() -> Builder,
    (name, bits_per_key): (&str, f64),
    print: &mut dyn FnMut(&str),
) -> Result<Found, String> {
    let said = |error: Error| error.chain().to_string();
    let mut picker = Picker::new(Distribution::Uniform, items.count, items.seed ^ 1, items.seed);

    let db = builder().experimental(|e| e.auto_compaction(false)).open().map_err(said)?;
    let tables = db.tables();
    let runs = run_rates(items, &tables);
    let expected = runs.iter().map(|run| run.rate - run.unfiltered).sum::<f64>();
    let before = db.stats();
    let mut asked = 0;
    let stats = loop {
        ask(&db, items, &mut picker, ROUND)?;
        asked += ROUND;
        let stats = db.stats().since(&before);
        if asked >= options.lookups_max || stats.false_positives >= COUNTED_ENOUGH {
            break stats;
        }
    };
    db.close().map_err(said)?;

    let slow = builder().experimental(|e| e.auto_compaction(false).device_read_us(DEVICE_READ_US));
    let db = slow.open().map_err(said)?;
    ask(&db, items, &mut picker, 100)?;
    let since = Instant::now();
    ask(&db, items, &mut picker, options.device_lookups)?;
    let device_ns_per_lookup = since.elapsed().as_nanos() as f64 / options.device_lookups.max(1) as f64;
    db.close().map_err(said)?;

    let measured = stats.false_positives as f64 / stats.lookups.max(1) as f64;
    let (entries, bits) = tables.iter().fold((0, 0.0), |(entries, bits), table| {
        (entries + table.entries, bits + table.bits_per_key * table.entries as f64)
    });
    print(&format!(
        "{{\"schema\":\"monkey/1\",\"tree\":\"{}\",\"allocation\":\"{name}\",\"bits_per_key\":{bits_per_key},\
         \"bits_per_key_written\":{:.3},\"entries\":{entries},\"runs\":{},\"lookups\":{},\"counted\":{},\
         \"false_positives\":{measured:.6},\"expected\":{expected:.6},\"data_reads\":{:.6},\"device_read_us\":{DEVICE_READ_US},\
         \"device_ns_per_lookup\":{device_ns_per_lookup:.0},\"of_runs\":{}}}",
        if options.layered { "layered" } else { "grown" },
        bits / entries.max(1) as f64,
        stats.runs,
        stats.lookups,
        stats.false_positives,
        stats.reads.data.count as f64 / stats.lookups.max(1) as f64,
        runs_json(&runs),
    ));
    Ok(Found { measured, expected, counted: stats.false_positives, device_ns_per_lookup })
}

/// Fills a tree in random order and waits until no compaction is pending.
fn fill(builder: Builder, items: Items) -> Result<(), Error> {
    let db = builder.open()?;
    let order = Permutation::new(items.count, items.seed);
    let mut value = Vec::new();
    for number in 0..items.count {
        let item = order.at(number);
        items.value(item, &mut value);
        db.put(items.key(item, false), &value)?;
    }
    db.flush()?;
    db.wait_idle()?;
    db.close()
}

/// Asks for absent keys.
fn ask(db: &Db, items: Items, picker: &mut Picker, lookups: u64) -> Result<(), String> {
    for _ in 0..lookups {
        let item = picker.pick(items.count);
        if db.contains_key(items.key(item, true)).map_err(|error| error.chain().to_string())? {
            return Err(format!("absent item {item} was found"));
        }
    }
    Ok(())
}

/// A run as its tables were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRate {
    pub number: u32,
    pub level: u32,
    pub entries: u64,
    /// Filter bits of all its tables.
    pub bits: f64,
    /// The part of all keys that lies in its tables' ranges.
    pub covered: f64,
    /// The share of lookups for absent keys that search it in vain.
    pub rate: f64,
    /// The part of that for want of a filter, which is no false positive.
    pub unfiltered: f64,
}

/// Every run, newest first.
pub(crate) fn run_rates(items: Items, tables: &[TableStats]) -> Vec<RunRate> {
    let mut runs: Vec<RunRate> = Vec::new();
    for table in tables {
        let TableStats { level, run: number, entries, .. } = *table;
        if runs.last().is_none_or(|run| run.number != number) {
            runs.push(RunRate {
                number,
                level,
                entries: 0,
                bits: 0.0,
                covered: 0.0,
                rate: 0.0,
                unfiltered: 0.0,
            });
        }
        let upper = table.upper.as_ref().map_or(1.0, |key| items.part_below(key));
        let covered = (upper - items.part_below(&table.lower)).max(0.0);
        if let Some(run) = runs.last_mut() {
            run.entries += entries;
            run.bits += table.bits_per_key * entries as f64;
            run.covered += covered;
            run.rate += covered * table.false_positive_rate;
            if table.bits_per_key == 0.0 {
                run.unfiltered += covered;
            }
        }
    }
    runs
}

fn runs_json(runs: &[RunRate]) -> String {
    let run = |run: &RunRate| {
        format!(
            "{{\"level\":{},\"entries\":{},\"bits_per_key\":{:.3},\"covered\":{:.4},\"false_positives\":{:.6}}}",
            run.level,
            run.entries,
            run.bits / run.entries.max(1) as f64,
            run.covered,
            run.rate
        )
    };
    let runs: Vec<String> = runs.iter().map(run).collect();
    format!("[{}]", runs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_has_as_many_false_positives_as_its_tables_promise() {
        for layered in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let options = Options {
                dir: dir.path().to_path_buf(),
                entries: 8 << 10,
                bits_per_key: vec![5.0],
                lookups_max: 100_000,
                device_lookups: 10,
                layered,
                seed: 3,
            };
            let mut lines = Vec::new();
            run(&options, &mut |line| lines.push(line.to_owned())).expect("near");
            assert_eq!(lines.len(), 3, "{lines:?}");
        }
    }

    #[test]
    fn what_is_far_or_too_rare_to_judge_is_a_violation() {
        let found = |measured, counted| Found { measured, expected: 0.1, counted, device_ns_per_lookup: 1.0 };
        assert_eq!(violation("x", 5.0, found(0.105, 1_000)), None);
        assert!(violation("x", 5.0, found(0.12, 1_000)).is_some());
        assert!(violation("x", 5.0, found(0.1, 399)).is_some());
    }
}
