//! Model check: compares the cost model's predictions with the engine, design by design.
//!
//! Each design (merge policy, T, filter bits, entry size) is filled by puts in random order with
//! manual sizing; every flush is followed by the compactions that it triggers. Three quantities are
//! compared:
//!
//! - *Write amplification*: table bytes written per byte flushed, compared with the simulator for
//!   the same number of flushes and entries (the same policy functions, other keys), within
//!   `SIMULATOR_TOLERANCE`; and with the closed form for file-by-file compaction, within
//!   `CLOSED_TOLERANCE`. Monkey's equation 10, for whole levels, is printed for comparison.
//! - *False positives* of an empty lookup: compared with the sum over the actual runs of the share
//!   of all keys in its tables' ranges times the measured rate of such filters, within
//!   `LOOKUP_TOLERANCE`. (A search of a table without a filter is not a false positive.)
//! - *Data blocks* of a lookup, of an empty and of a found one: compared with the model's lookups
//!   in these runs, within the same tolerance. A block found in the cache counts like one read,
//!   because the model counts I/Os.
//!
//! The paper's ideal tree with the same number of levels is printed too: the prediction before a
//! tree exists.
//!
//! Not here: where two allocations of bits differ ([`super::monkey`]).

use std::path::{Path, PathBuf};

use shamba::{
    Allocation, Builder, Compression, Db, Design, Error, FilterLayout, MergePolicy, Residency, Sizing, Stats,
};
use shamba_model::cost::{
    Costs, CpuTimes, DataSet, Device, FilterBits, Plan, RunGroup, Situation, Workload, empty_lookup,
    found_lookup, predict_merging,
};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::updates::Merging;
use shamba_tree::simulate::fill::{FillPlan, fill};

use crate::checks::monkey::{RunRate, run_rates};
use crate::items::Items;
use shamba_workload::Permutation;
use shamba_workload::{Distribution, Picker};

/// Relative tolerance of lookup counts against the model.
const LOOKUP_TOLERANCE: f64 = 0.1;
/// Relative tolerance of write amplification against the simulator.
const SIMULATOR_TOLERANCE: f64 = 0.1;
/// Relative tolerance of write amplification against the closed form.
const CLOSED_TOLERANCE: f64 = 0.3;
/// Minimum number of counted false positives.
const COUNTED_MIN: u64 = 400;
/// Number of counted false positives after which the measurement ends.
const COUNTED_ENOUGH: u64 = 4_000;
/// Minimum number of lookups.
const LOOKUPS_MIN: u64 = 20_000;
/// Maximum number of empty lookups.
const LOOKUPS_MAX: u64 = 4_000_000;
/// Lookups between two reads of the counters.
const ROUND: u64 = 10_000;
/// Entries of a write buffer, and of a table of the same size, so that the smallest level has
/// several. With fewer entries, filters of one bit per key differ from the measured ones.
const BUFFER_ENTRIES: u64 = 512;
/// Memory budget: filters and indexes are resident; blocks are cached and evicted.
const BUDGET_BYTES: u64 = 64 << 20;
/// Share to which the levels are filled: the last one is full except for the part that would create
/// another.
const FILLED: f64 = 0.95;
/// Share of a full memtable at which it is flushed explicitly, so that no automatic flush occurs.
const FLUSHED: f64 = 0.97;
/// A page of the model: a block.
const PAGE_BYTES: u64 = 4096;

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the trees; each is removed after its measurement.
    pub dir: PathBuf,
    /// Few designs, small trees.
    pub quick: bool,
    /// Seed of keys' order and lookups.
    pub seed: u64,
}

/// One design.
#[derive(Clone, Copy, Debug)]
struct Case {
    policy: MergePolicy,
    size_ratio: f64,
    bits_per_key: f64,
    entry_bytes: u64,
    /// Filled levels.
    levels: u32,
}

impl Case {
    fn buffer_bytes(&self) -> u64 {
        BUFFER_ENTRIES * self.entry_bytes
    }

    fn design(&self) -> Design {
        Design::new(self.policy, self.size_ratio, self.buffer_bytes(), self.bits_per_key)
    }

    /// Write buffers that fill the levels.
    fn buffers(&self) -> f64 {
        let all: u64 = (1..=self.levels).map(|level| self.design().level_capacity_bytes(level)).sum();
        all as f64 / self.buffer_bytes() as f64 * FILLED
    }
}

/// All designs. With T = 2 the three policies are identical.
fn cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let trees: &[(f64, u32)] = if quick { &[(2.0, 4), (4.0, 3)] } else { &[(2.0, 7), (4.0, 4), (10.0, 3)] };
    let all_bits: &[f64] = if quick { &[2.0, 5.0] } else { &[2.0, 5.0, 10.0] };
    let sizes: &[u64] = if quick { &[128] } else { &[128, 512] };
    for &(size_ratio, levels) in trees {
        for policy in MergePolicy::ALL {
            if policy != MergePolicy::Leveling && policy.runs(size_ratio) == (1, 1) {
                continue;
            }
            for &entry_bytes in sizes {
                for &bits_per_key in all_bits {
                    cases.push(Case { policy, size_ratio, bits_per_key, entry_bytes, levels });
                }
            }
        }
    }
    cases
}

/// A figure of the engine and its prediction.
#[derive(Clone, Copy, Debug)]
struct Pair {
    what: &'static str,
    measured: f64,
    predicted: f64,
    tolerance: f64,
    /// Known cause of a deviation.
    cause: &'static str,
}

impl Pair {
    /// Relative excess of the engine's value over the prediction.
    fn deviation(&self) -> f64 {
        self.measured / self.predicted - 1.0
    }

    /// Whether the deviation exceeds its limit. NaN does.
    fn is_violation(&self) -> bool {
        self.deviation().is_nan() || self.deviation().abs() > self.tolerance
    }
}

/// Runs all designs; each finished line of JSON goes to `print`, the table to `show`.
///
/// # Errors
/// Errors of the engine or the simulator, a wrong answer, and the violations.
pub fn run(options: &Options, print: &mut dyn FnMut(&str), show: &mut dyn FnMut(&str)) -> Result<(), String> {
    let mut violations = Vec::new();
    let mut largest: Option<(String, Pair)> = None;
    show(
        "| design | bits | entry | runs | false positives | predicted | | blocks, miss | | blocks, hit | predicted | | WA | simulator | | closed | |",
    );
    show("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let cases = cases(options.quick);
    for case in &cases {
        let dir = options.dir.join("db");
        let outcome = check(case, &dir, options.seed)?;
        std::fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        print(&outcome.to_json(case));
        show(&outcome.to_row(case));
        let name = case.name();
        if outcome.counted < COUNTED_MIN {
            violations.push(format!("{name}: {} false positives are too few for a verdict", outcome.counted));
        }
        for pair in outcome.pairs {
            if pair.is_violation() {
                let Pair { what, measured, predicted, .. } = pair;
                violations.push(format!("{name}: {what} {measured:.5}, predicted {predicted:.5}"));
            }
            let part = |pair: &Pair| pair.deviation().abs() / pair.tolerance;
            if largest.as_ref().is_none_or(|(_, before)| part(&pair) > part(before)) {
                largest = Some((name.clone(), pair));
            }
        }
    }
    if let Some((name, pair)) = largest {
        print(&format!(
            "{{\"schema\":\"model-check-largest/1\",\"designs\":{},\"design\":\"{name}\",\"what\":\"{}\",\"deviation\":{:.4},\
             \"tolerance\":{},\"cause\":\"{}\"}}",
            cases.len(),
            pair.what,
            pair.deviation(),
            pair.tolerance,
            pair.cause
        ));
        show(&format!(
            "largest deviation relative to its limit: {name}, {}, {:+.1} %, limit {:.0} %: {}",
            pair.what,
            pair.deviation() * 100.0,
            pair.tolerance * 100.0,
            pair.cause
        ));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

impl Case {
    fn name(&self) -> String {
        let Self { policy, size_ratio, bits_per_key, entry_bytes, .. } = self;
        format!("{policy} T={size_ratio}, {bits_per_key} bits, {entry_bytes} B")
    }
}

/// Measurements of one design.
struct Outcome {
    entries: u64,
    flushes: u64,
    runs: Vec<RunRate>,
    /// Share of a buffer in a flush.
    flush_share: f64,
    /// False positives counted.
    counted: u64,
    /// The paper's tree.
    promised: Costs,
    paper_write_amplification: f64,
    pairs: [Pair; 5],
}

fn builder(case: &Case, dir: &Path, seed: u64) -> Builder {
    Db::builder(dir)
        .experimental(|e| {
            e.sizing(Sizing::Manual)
                .file_size(case.buffer_bytes())
                .filter_layout(FilterLayout::Blocked)
                .filter_residency(Residency::Pinned)
                .filter_allocation(Allocation::Monkey)
                .count_ios(true)
                .no_wal(true)
                .digest_seed(seed)
        })
        .experimental(|e| e.design(case.design()))
        .compression(Compression::None)
        .background_threads(1)
        .memory_budget(BUDGET_BYTES)
}

/// Entries of a full memtable and of a flush, and the bytes of a table of the latter.
fn of_flush(case: &Case, dir: &Path, seed: u64) -> Result<(u64, f64), Error> {
    let items = Items { count: 2 * BUFFER_ENTRIES, entry_bytes: case.entry_bytes, seed };
    let order = Permutation::new(items.count, seed);
    let db = builder(case, dir, seed).experimental(|e| e.auto_compaction(false)).open()?;
    let (mut count, mut value) = (0, Vec::new());
    while db.stats().flushes == 0 && count < items.count {
        for _ in 0..8 {
            items.value(order.at(count), &mut value);
            db.put(items.key(order.at(count), false), &value)?;
            count += 1;
        }
        db.wait_idle()?;
    }
    let stored_bytes = db.stats().bytes_flushed as f64 / count as f64;
    db.close()?;
    let entries = (count as f64 * FLUSHED) as u64;
    Ok((entries, entries as f64 * stored_bytes))
}

fn check(case: &Case, dir: &Path, seed: u64) -> Result<Outcome, String> {
    let said = |error: Error| error.chain().to_string();
    let probe = dir.with_extension("probe");
    let (flush_entries, flush_bytes) = of_flush(case, &probe, seed).map_err(said)?;
    std::fs::remove_dir_all(&probe).map_err(|error| format!("{}: {error}", probe.display()))?;
    let flushes = (case.buffers() * case.buffer_bytes() as f64 / flush_bytes).round() as u64;
    let items = Items { count: flushes * flush_entries, entry_bytes: case.entry_bytes, seed };

    let db = builder(case, dir, seed).open().map_err(said)?;
    let order = Permutation::new(items.count, seed);
    let mut value = Vec::new();
    for number in 0..items.count {
        let item = order.at(number);
        items.value(item, &mut value);
        db.put(items.key(item, false), &value).map_err(said)?;
        if (number + 1) % flush_entries == 0 {
            db.flush().map_err(said)?;
            db.wait_idle().map_err(said)?;
        }
    }
    let filled = db.stats();
    db.close().map_err(said)?;

    let db = builder(case, dir, seed).experimental(|e| e.auto_compaction(false)).open().map_err(said)?;
    let runs = run_rates(items, &db.tables());
    let mut picker = Picker::new(Distribution::Uniform, items.count, seed ^ 1, seed);
    let empty = ask(&db, items, &mut picker, true)?;
    let found = ask(&db, items, &mut picker, false)?;
    db.close().map_err(said)?;
    outcome(case, items, &filled, runs, (&empty, &found))
}

/// Looks up absent keys, or existing ones, until enough is counted.
fn ask(db: &Db, items: Items, picker: &mut Picker, absent: bool) -> Result<Stats, String> {
    let before = db.stats();
    loop {
        for _ in 0..ROUND {
            let item = picker.pick(items.count);
            if db.contains_key(items.key(item, absent)).map_err(|error| error.chain().to_string())? == absent
            {
                return Err(format!(
                    "item {item}, {}: wrong answer",
                    if absent { "absent" } else { "present" }
                ));
            }
        }
        let stats = db.stats().since(&before);
        let is_enough = !absent || stats.false_positives >= COUNTED_ENOUGH || stats.lookups >= LOOKUPS_MAX;
        if is_enough && stats.lookups >= LOOKUPS_MIN {
            return Ok(stats);
        }
    }
}

fn outcome(
    case: &Case,
    items: Items,
    filled: &Stats,
    runs: Vec<RunRate>,
    (empty, found): (&Stats, &Stats),
) -> Result<Outcome, String> {
    let design = case.design();
    let stored_bytes = filled.bytes_flushed as f64 / items.count as f64;
    let simulated = fill(&FillPlan {
        design,
        sizing: Sizing::Manual,
        l0_compaction_trigger: 1,
        flush_entries: items.count / filled.flushes.max(1),
        entry_bytes: stored_bytes.round() as u64,
        table_bytes: case.buffer_bytes(),
        flushes: filled.flushes as u32,
        seed: items.seed,
    })?;
    // The paper's tree with the same number of levels.
    let situation = Situation {
        data: DataSet { entries: items.count, entry_bytes: stored_bytes, page_bytes: PAGE_BYTES },
        workload: Workload {
            empty_lookups: 1.0,
            found_lookups: 0.0,
            updates: 1.0,
            ranges: 0.0,
            range_selectivity: 0.0,
        },
        device: Device { read_ns: 1.0, write_ns: 1.0, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    };
    let plan = Plan {
        design,
        filters: FilterBits::PerKey(case.bits_per_key),
        allocation: Allocation::Monkey,
        cache_bytes: 0,
        levels: Some(case.levels),
    };
    let promised = predict_merging(&situation, &plan, Merging::FileByFile)?;
    let paper = predict_merging(&situation, &plan, Merging::WholeLevels)?;

    let groups: Vec<RunGroup> =
        runs.iter().map(|run| RunGroup { runs: 1.0, entries: run.entries as f64, fpr: run.rate }).collect();
    let blocks =
        |stats: &Stats| (stats.reads.data.count + stats.cache_hits) as f64 / stats.lookups.max(1) as f64;
    let false_positives = empty.false_positives as f64 / empty.lookups.max(1) as f64;
    let write_amplification =
        (filled.bytes_flushed + filled.bytes_compacted) as f64 / filled.bytes_flushed.max(1) as f64;
    let pair =
        |what, measured, predicted, tolerance, cause| Pair { what, measured, predicted, tolerance, cause };
    let expected = empty_lookup(&groups).searches;
    let unfiltered: f64 = runs.iter().map(|run| run.unfiltered).sum();
    let by_chance = "small tables: their filters are rounded up to 64-byte lines, so they have slightly more bits than assigned; and random variation";
    let pairs = [
        pair("false_positives", false_positives, expected - unfiltered, LOOKUP_TOLERANCE, by_chance),
        pair("empty_blocks", blocks(empty), expected, LOOKUP_TOLERANCE, by_chance),
        pair(
            "found_blocks",
            blocks(found),
            found_lookup(&groups).searches,
            LOOKUP_TOLERANCE,
            "a run has gaps where its files moved down, and keys found in lower levels are in these gaps more often than others",
        ),
        pair(
            "simulated_write_amplification",
            write_amplification,
            simulated.write_amplification,
            SIMULATOR_TOLERANCE,
            "tables end at block and slice boundaries, not at a number of entries, so other files are selected for compaction",
        ),
        pair(
            "closed_write_amplification",
            write_amplification,
            promised.write_amplification,
            CLOSED_TOLERANCE,
            cause_of_steps(case.policy),
        ),
    ];
    Ok(Outcome {
        entries: items.count,
        flushes: filled.flushes,
        runs,
        flush_share: stored_bytes * items.count as f64
            / filled.flushes.max(1) as f64
            / case.buffer_bytes() as f64,
        counted: empty.false_positives,
        promised,
        paper_write_amplification: paper.write_amplification,
        pairs,
    })
}

/// Reason why write amplification deviates from a closed form.
fn cause_of_steps(policy: MergePolicy) -> &'static str {
    match policy {
        MergePolicy::Leveling => {
            "the closed form assumes full inner levels and savings of three tenths of the overlap; a flush has 0.9 to 1.1 of a buffer"
        }
        MergePolicy::Tiering | MergePolicy::LazyLeveling => {
            "tiered levels are compacted as a whole: the compaction into one more level, as large as all above, has just happened or is due"
        }
    }
}

impl Outcome {
    fn to_json(&self, case: &Case) -> String {
        let pairs: Vec<String> = self
            .pairs
            .iter()
            .map(|pair| {
                format!(
                    "\"{}\":{{\"measured\":{:.6},\"predicted\":{:.6},\"deviation\":{:.4}}}",
                    pair.what,
                    pair.measured,
                    pair.predicted,
                    pair.deviation()
                )
            })
            .collect();
        format!(
            "{{\"schema\":\"model-check/1\",\"policy\":\"{}\",\"size_ratio\":{},\"bits_per_key\":{},\"entry_bytes\":{},\
             \"entries\":{},\"flushes\":{},\"flush_share\":{:.3},\"levels\":{},\"runs\":{},\"counted\":{},\
             \"promised_false_positives\":{:.6},\"paper_write_amplification\":{:.3},{}}}",
            case.policy,
            case.size_ratio,
            case.bits_per_key,
            case.entry_bytes,
            self.entries,
            self.flushes,
            self.flush_share,
            case.levels,
            self.runs.len(),
            self.counted,
            self.promised.zero_result_lookup_ios_exact,
            self.paper_write_amplification,
            pairs.join(",")
        )
    }

    fn to_row(&self, case: &Case) -> String {
        let [false_positives, empty, found, simulated, closed] = &self.pairs;
        let percent = |pair: &Pair| format!("{:+.1} %", pair.deviation() * 100.0);
        format!(
            "| {} T={} | {} | {} | {} | {:.4} | {:.4} | {} | {:.4} | {} | {:.3} | {:.3} | {} | {:.2} | {:.2} | {} | {:.2} | {} |",
            case.policy,
            case.size_ratio,
            case.bits_per_key,
            case.entry_bytes,
            self.runs.len(),
            false_positives.measured,
            false_positives.predicted,
            percent(false_positives),
            empty.measured,
            percent(empty),
            found.measured,
            found.predicted,
            percent(found),
            simulated.measured,
            simulated.predicted,
            percent(simulated),
            closed.predicted,
            percent(closed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_designs() {
        let all = cases(false);
        assert!(all.len() >= 24);
        assert_eq!(all.iter().filter(|case| case.size_ratio == 2.0).count(), 6, "one policy");
        assert!(!cases(true).is_empty());
    }

    #[test]
    fn a_small_tree_does_what_the_model_says() {
        let dir = tempfile::tempdir().expect("a directory");
        let case = Case {
            policy: MergePolicy::Tiering,
            size_ratio: 4.0,
            bits_per_key: 3.0,
            entry_bytes: 512,
            levels: 2,
        };
        let outcome = check(&case, &dir.path().join("db"), 5).expect("a tree");
        assert!(outcome.counted >= COUNTED_MIN);
        // Write amplification of small trees is not checked, but lookups must match their tables.
        for pair in &outcome.pairs[..3] {
            assert!(!pair.is_violation(), "{pair:?}");
        }
        assert!(outcome.to_json(&case).contains("\"size_ratio\":4,"));
    }

    #[test]
    fn what_is_far_is_a_violation() {
        let pair = |measured, predicted| Pair { what: "", measured, predicted, tolerance: 0.1, cause: "" };
        assert!(!pair(1.05, 1.0).is_violation());
        assert!(pair(1.11, 1.0).is_violation() && pair(0.0, 0.0).is_violation());
    }
}
