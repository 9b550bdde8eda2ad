//! Curves of reads over memory: how many blocks of filters, indexes and data a lookup reads from
//! files under a budget, for the baseline and for each idea that saves memory, alone and together.
//!
//! A *tree* is built once (`layered.rs`) for each entry size, size ratio and filter layout, and
//! opened for every budget, workload and residency. Keys ascend with item numbers, and an absent
//! key follows each, so hot items of a skewed workload are adjacent or scattered as the workload
//! states. Reads are counted, not timed: in the system's page cache they are fast, and their number
//! is the same. Every answer is checked.
//!
//! Trees are opened anew for each point, so that no point benefits from memory filled by another.
//!
//! A configuration is a list of (option, value) pairs ([`shamba::Builder::set_option`]); one with
//! an option that the engine does not have is skipped with a message.
//!
//! The summary of a workload is, for each configuration, the ratio of the memory that the baseline
//! needs for the same number of reads: by interpolation on the curves' falling envelopes, as the
//! geometric mean over the points of the baseline.

pub(crate) mod ratio;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shamba::env::Env;
use shamba::{Allocation, Builder, Db, Error, FilterLayout, MergePolicy, Sizing};

use self::ratio::{Point, memory_ratio};
use crate::checks::clock::PacedClock;
use crate::checks::watch::parts_json;
use crate::items::Items;
use crate::layered::{Bits, Layers, Shape};
use shamba_workload::rss_bytes;
use shamba_workload::{Distribution, Picker};

/// Write buffers of data per tree: three levels at T = 10, five at T = 4.
const BUFFERS: u64 = 1_000;
/// Memory budget for filling trees.
const FILL_BUDGET_BYTES: u64 = 256 << 20;
/// Default budgets of a curve; a tree that fits in the first of them is meaningless.
const BUDGETS_MIB: [u64; 5] = [4, 6, 9, 14, 21];
/// Speed of the engine's clock relative to real time.
const QUICK_TIMES: u64 = 8;
/// Duration of counted lookups, within bounds of their number: some points cost a hundred times as
/// much as others.
const COUNTED: Duration = Duration::from_millis(1_200);
const COUNTED_MIN: u64 = 10_000;
const COUNTED_MAX: u64 = 100_000;
/// Duration of lookups before filter bits are assigned by them.
const SEEN: Duration = Duration::from_secs(4);
/// File name of the statistics of lookups.
const STATISTICS_FILE: &str = "STATISTICS";
/// Mean filter bits per key.
const BITS_PER_KEY: f64 = 10.0;
/// Distributions of requests over items.
const SPREADS: [Distribution; 3] = [Distribution::Uniform, Distribution::Zipf, Distribution::ZipfLocal];

/// Bytes of an entry, and entries of a full tree.
const ENTRIES: [(u64, u64); 2] = [(64, 10_000_000), (1024, 1_000_000)];
/// Size ratios of the trees.
const SIZE_RATIOS: [u32; 2] = [4, 10];

/// Options as (name, value).
type Pairs = &'static [(&'static str, &'static str)];

/// A layout of filters and their residency.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Name.
    pub name: &'static str,
    /// Options of table files.
    pub tree: Pairs,
    /// Options that a reopen may change.
    pub open: Pairs,
}

impl Configuration {
    /// Allocation and layout of its filters.
    fn written(&self) -> Result<(Allocation, FilterLayout), String> {
        let value =
            |wanted| self.tree.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| *value);
        Ok((value("allocation").parse()?, value("filter-layout").parse()?))
    }
}

const CACHED: Pairs = &[("residency", "cached"), ("skipping", "none"), ("count-ios", "on")];
const BUDGETED: Pairs = &[("residency", "budgeted"), ("skipping", "full"), ("count-ios", "on")];

/// The baseline, each idea alone, all together.
pub const CONFIGURATIONS: [Configuration; 6] = [
    Configuration {
        name: "baseline",
        tree: &[("filter-layout", "blocked"), ("allocation", "uniform")],
        open: CACHED,
    },
    Configuration {
        name: "residency",
        tree: &[("filter-layout", "blocked"), ("allocation", "uniform")],
        open: &[("residency", "budgeted"), ("skipping", "none"), ("count-ios", "on")],
    },
    Configuration {
        name: "skipping",
        tree: &[("filter-layout", "modular:2"), ("allocation", "uniform")],
        open: BUDGETED,
    },
    Configuration {
        name: "monkey",
        tree: &[("filter-layout", "blocked"), ("allocation", "monkey")],
        open: CACHED,
    },
    Configuration {
        name: "all",
        tree: &[("filter-layout", "modular:2"), ("allocation", "monkey")],
        open: BUDGETED,
    },
    // As `all`, with filter bits by the lookups of the workload.
    Configuration {
        name: "workload",
        tree: &[("filter-layout", "modular:2"), ("allocation", "workload")],
        open: BUDGETED,
    },
];

/// Scale of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A twentieth, as a smoke test.
    Quick,
    /// A quarter.
    Default,
    /// Ten million entries of 64 bytes, one million of 1 KiB.
    Full,
}

impl Scale {
    fn part(self) -> u64 {
        match self {
            Self::Quick => 20,
            Self::Default => 4,
            Self::Full => 1,
        }
    }
}

impl std::str::FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "quick" => Ok(Self::Quick),
            "default" => Ok(Self::Default),
            "full" => Ok(Self::Full),
            _ => Err(format!("unknown scale {name:?} (known: quick, default, full)")),
        }
    }
}

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the trees; each is removed when its curves are complete.
    pub dir: PathBuf,
    /// Scale.
    pub scale: Scale,
    /// Only entries of this size, in bytes.
    pub entry_bytes: Option<u64>,
    /// Number of entries, independent of the scale.
    pub entries: Option<u64>,
    /// Only this size ratio.
    pub size_ratio: Option<u32>,
    /// Only the workloads of this name.
    pub workload: Option<String>,
    /// Only this share of lookups of absent keys.
    pub empty_fraction: Option<f64>,
    /// Only these configurations and the baseline; empty: all.
    pub configurations: Vec<String>,
    /// Budgets of a curve, in MiB, ascending; empty: the default ones.
    pub budgets_mib: Vec<u64>,
    /// Warm-up before the counted lookups, in seconds; the engine's seconds are accelerated eight
    /// times.
    pub warm_seconds: f64,
    /// Seed of the order of keys and of lookups.
    pub seed: u64,
}

/// Workload of lookups.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Workload {
    spread: Distribution,
    empty_fraction: f64,
}

/// Coordinates of a point of a curve.
#[derive(Clone, Copy)]
struct Place<'a> {
    items: Items,
    size_ratio: u32,
    configuration: &'a Configuration,
    workload: Workload,
    warm: Duration,
}

/// Runs all of it; each finished line of JSON goes to `print`.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub fn run(options: &Options, print: &mut dyn FnMut(&str)) -> Result<(), String> {
    check(options)?;
    for (entry_bytes, full_count) in ENTRIES {
        if options.entry_bytes.is_some_and(|only| only != entry_bytes) {
            continue;
        }
        let count = options.entries.unwrap_or(full_count / options.scale.part());
        let items = Items { count, entry_bytes, seed: options.seed };
        for size_ratio in SIZE_RATIOS {
            if options.size_ratio.is_none_or(|only| only == size_ratio) {
                curves_of(options, items, size_ratio, print)?;
            }
        }
    }
    Ok(())
}

/// Refuses options that select nothing.
fn check(options: &Options) -> Result<(), String> {
    let one_of = |what: &str, given: &str, known: Vec<String>| match known.iter().any(|name| name == given) {
        true => Ok(()),
        false => Err(format!("{what} {given}: expected one of {}", known.join(", "))),
    };
    if let Some(bytes) = options.entry_bytes {
        one_of("--entry", &bytes.to_string(), ENTRIES.map(|(bytes, _)| bytes.to_string()).to_vec())?;
    }
    if let Some(ratio) = options.size_ratio {
        one_of("--size-ratio", &ratio.to_string(), SIZE_RATIOS.map(|ratio| ratio.to_string()).to_vec())?;
    }
    if let Some(name) = &options.workload {
        one_of("--workload", name, SPREADS.map(|spread| spread.name().to_owned()).to_vec())?;
    }
    for name in &options.configurations {
        one_of("--configurations", name, CONFIGURATIONS.iter().map(|of| of.name.to_owned()).collect())?;
    }
    if options.entries == Some(0) {
        return Err("--entries 0: expected at least 1".to_owned());
    }
    match options.empty_fraction {
        Some(share) if !(0.0..=1.0).contains(&share) => Err(format!("--empty {share}: expected 0 to 1")),
        _ => Ok(()),
    }
}

fn curves_of(
    options: &Options,
    items: Items,
    size_ratio: u32,
    print: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut curves: Vec<(Workload, &'static str, Vec<Point>)> = Vec::new();
    let mut filled: Vec<(Pairs, PathBuf)> = Vec::new();
    let is_wanted = |configuration: &&Configuration| {
        let name = configuration.name;
        let only = &options.configurations;
        name == "baseline" || only.is_empty() || only.iter().any(|only| only == name)
    };
    for configuration in CONFIGURATIONS.iter().filter(is_wanted) {
        let known = filled.iter().find(|(tree, _)| *tree == configuration.tree).map(|(_, dir)| dir.clone());
        let dir = options.dir.join(format!("tree-{}-{size_ratio}-{}", items.entry_bytes, filled.len()));
        let builder = builder(&dir, items, size_ratio, configuration);
        let dir = match (known, builder) {
            (_, Err(why)) => {
                let name = configuration.name;
                print(&format!(
                    "{{\"schema\":\"memory-curves-left-out/1\",\"configuration\":\"{name}\",\"why\":{why:?}}}"
                ));
                continue;
            }
            (Some(known), _) => known,
            (None, Ok(_)) => {
                fill(&dir, items, size_ratio, configuration)?;
                filled.push((configuration.tree, dir.clone()));
                dir
            }
        };
        for workload in workloads(options) {
            let warm = Duration::from_secs_f64(options.warm_seconds.max(0.0));
            let place = Place { items, size_ratio, configuration, workload, warm };
            if configuration.written()?.0 == Allocation::Workload {
                rewrite_filters(&dir, place)?;
            }
            let mut points = Vec::new();
            for budget_bytes in budgets(&options.budgets_mib) {
                points.push(measure(&dir, place, budget_bytes, print)?);
            }
            curves.push((workload, configuration.name, points));
        }
    }
    for (workload, name, points) in &curves {
        let baseline = curves.iter().find(|(other, name, _)| other == workload && *name == "baseline");
        let Some((_, _, baseline)) = baseline else { continue };
        let Some(ratio) = memory_ratio(baseline, points) else { continue };
        print(&format!(
            "{{\"schema\":\"memory-curves-summary/1\",\"entry_bytes\":{},\"size_ratio\":{size_ratio},\
             \"workload\":\"{}\",\"empty_fraction\":{},\"configuration\":\"{name}\",\
             \"memory_ratio\":{:.3},\"most_ratio\":{:.3},\"most_at_bytes\":{:.0},\
             \"points\":{},\"more_at\":{},\"less_at\":{}}}",
            items.entry_bytes,
            workload.spread.name(),
            workload.empty_fraction,
            ratio.mean,
            ratio.most,
            ratio.most_at_bytes,
            ratio.points,
            ratio.more_at,
            ratio.less_at
        ));
    }
    for (_, dir) in filled {
        std::fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    Ok(())
}

/// Builder for opening a tree of the configuration.
fn builder(
    dir: &Path,
    items: Items,
    size_ratio: u32,
    configuration: &Configuration,
) -> Result<Builder, String> {
    let builder = Db::builder(dir)
        .experimental(|e| e.sizing(Sizing::Manual))
        .merge_policy(MergePolicy::Leveling)
        .size_ratio(f64::from(size_ratio))
        .write_buffer((items.bytes() / BUFFERS).max(16 << 10))
        .experimental(|e| {
            e.file_size((items.bytes() / 256).clamp(64 << 10, 16 << 20)).digest_seed(items.seed)
        });
    let pairs = configuration.tree.iter().chain(configuration.open);
    pairs
        .copied()
        .try_fold(builder, |builder, (name, value)| builder.set_option(name, value))
        .map_err(|error| error.chain().to_string())
}

/// Measured workloads.
fn workloads(options: &Options) -> Vec<Workload> {
    let spreads = SPREADS
        .into_iter()
        .filter(|spread| options.workload.as_ref().is_none_or(|only| only == spread.name()));
    let shares = options.empty_fraction.map_or_else(|| vec![0.0, 0.5, 1.0], |only| vec![only]);
    let of = |spread| shares.iter().map(move |share| Workload { spread, empty_fraction: *share });
    spreads.flat_map(of).collect()
}

/// Builds a tree.
fn fill(dir: &Path, items: Items, size_ratio: u32, configuration: &Configuration) -> Result<(), String> {
    let (allocation, layout) = configuration.written()?;
    let bits = Bits { allocation, per_key: BITS_PER_KEY, layout, empty_fraction: 1.0 };
    let layers = Layers::new(items.count, items.seed, Shape::leveled(size_ratio, BUFFERS), bits)?;
    let builder = || {
        Ok(builder(dir, items, size_ratio, configuration)?
            .memory_budget(FILL_BUDGET_BYTES)
            .experimental(|e| e.no_wal(true)))
    };
    layers.lay(&builder, &|item| items.pair(item))
}

/// Runs lookups of the workload on the tree, and rewrites its filters with the bits that these
/// lookups give.
fn rewrite_filters(dir: &Path, place: Place<'_>) -> Result<(), String> {
    let Place { items, size_ratio, configuration, workload, .. } = place;
    let said = |error: Error| error.chain().to_string();
    // Statistics of another workload would have an effect for a while.
    match std::fs::remove_file(dir.join(STATISTICS_FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{STATISTICS_FILE}: {error}"));
        }
        _ => {}
    }
    let builder = builder(dir, items, size_ratio, configuration)?;
    let builder =
        builder.memory_budget(FILL_BUDGET_BYTES).experimental(|e| e.no_wal(true).auto_compaction(false));
    let db = builder.bits_per_key(BITS_PER_KEY).open().map_err(said)?;
    let mut picker = Picker::new(workload.spread, items.count, items.seed ^ 1, items.seed);
    ask(&db, items, workload, &mut picker, (SEEN, COUNTED_MIN, u64::MAX))?;
    db.rewrite_filters().map_err(said)?;
    db.close().map_err(said)
}

/// The budgets of a curve, in bytes.
fn budgets(given_mib: &[u64]) -> Vec<u64> {
    let budgets = if given_mib.is_empty() { &BUDGETS_MIB[..] } else { given_mib };
    budgets.iter().map(|mib| mib << 20).collect()
}

/// Measures one point: opens the tree, looks up keys, counts, prints.
fn measure(
    dir: &Path,
    place: Place<'_>,
    budget_bytes: u64,
    print: &mut dyn FnMut(&str),
) -> Result<Point, String> {
    let Place { items, size_ratio, configuration, workload, warm } = place;
    let said = |error: Error| error.chain().to_string();
    let env = Env { clock: Arc::new(PacedClock::new(QUICK_TIMES)), ..Env::real() };
    let builder = builder(dir, items, size_ratio, configuration)?.env(env);
    let db = builder.memory_budget(budget_bytes).read_only(true).open().map_err(said)?;
    let mut picker = Picker::new(workload.spread, items.count, items.seed ^ budget_bytes, items.seed);
    let warmed = ask(&db, items, workload, &mut picker, (warm, COUNTED_MIN, u64::MAX))?;
    let before = db.stats();
    let since = Instant::now();
    let lookups = ask(&db, items, workload, &mut picker, (COUNTED, COUNTED_MIN, COUNTED_MAX))?;
    let ns_per_lookup = since.elapsed().as_nanos() as f64 / lookups as f64;
    let stats = db.stats().since(&before);
    let memory = db.memory();
    db.close().map_err(said)?;
    let per_lookup = |count: u64| count as f64 / stats.lookups.max(1) as f64;
    let [filter, index, data] =
        [stats.reads.filter.count, stats.reads.index.count, stats.reads.data.count].map(per_lookup);
    let reads = filter + index + data;
    print(&format!(
        "{{\"schema\":\"memory-curves/1\",\"entry_bytes\":{},\"entries\":{},\"size_ratio\":{size_ratio},\
         \"workload\":\"{}\",\"empty_fraction\":{},\"configuration\":\"{}\",\"budget_bytes\":{budget_bytes},\
         \"warmed\":{warmed},\"lookups\":{},\"filter_reads\":{filter:.5},\"index_reads\":{index:.5},\
         \"data_reads\":{data:.5},\"reads\":{reads:.5},\"false_positives\":{:.5},\"modules_skipped\":{:.5},\
         \"ns_per_lookup\":{ns_per_lookup:.0},\"runs\":{},\
         \"ledger_bytes\":{},\"ledger_most_bytes\":{},\"rss_bytes\":{},\"parts\":{}}}",
        items.entry_bytes,
        items.count,
        workload.spread.name(),
        workload.empty_fraction,
        configuration.name,
        stats.lookups,
        per_lookup(stats.false_positives),
        per_lookup(stats.modules_skipped),
        stats.runs,
        memory.ledger_bytes,
        memory.peak_bytes,
        rss_bytes().unwrap_or(0),
        parts_json(&memory.parts)
    ));
    Ok(Point { memory_bytes: budget_bytes as f64, reads })
}

/// Runs lookups for this time, within these bounds of their number, and checks every answer.
/// Returns their number.
fn ask(
    db: &Db,
    items: Items,
    workload: Workload,
    picker: &mut Picker,
    (time, least, most): (Duration, u64, u64),
) -> Result<u64, String> {
    let begin = Instant::now();
    let mut lookups = 0;
    while lookups < most && (lookups < least || lookups % 256 != 0 || begin.elapsed() < time) {
        lookups += 1;
        let item = picker.pick(items.count);
        let absent = workload.empty_fraction > 0.0 && picker.rng().f64() < workload.empty_fraction;
        let expected = (!absent).then_some(item);
        let found = db
            .get_with(items.key(item, absent), |value| {
                value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
            })
            .map_err(|error| error.chain().to_string())?;
        if found.flatten() != expected {
            return Err(format!("item {item}, absent {absent}: found {found:?}"));
        }
    }
    Ok(lookups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_is_measured_and_answers_right() {
        let dir = tempfile::tempdir().expect("a directory");
        let items = Items { count: 20_000, entry_bytes: 64, seed: 1 };
        for configuration in &CONFIGURATIONS {
            let dir = dir.path().join(configuration.name);
            fill(&dir, items, 4, configuration).expect("filled");
            let workload = Workload { spread: Distribution::ZipfLocal, empty_fraction: 0.5 };
            let place = Place { items, size_ratio: 4, configuration, workload, warm: Duration::ZERO };
            if configuration.name == "workload" {
                rewrite_filters(&dir, place).expect("filters are rewritten");
            }
            let mut lines = Vec::new();
            let point =
                measure(&dir, place, 4 << 20, &mut |line| lines.push(line.to_owned())).expect("right");
            assert!(point.reads.is_finite() && lines.len() == 1, "{lines:?}");
        }
    }
}
