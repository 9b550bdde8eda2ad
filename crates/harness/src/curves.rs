//! Curves of reads over memory: how many blocks of filters, indexes and data a lookup reads from files under a budget,
//! for the baseline and for each idea that saves memory, alone and together.
//!
//! A *tree* is filled once for each size of entries, size ratio and way of writing filters, and opened again for every
//! budget, workload and way of holding them. Keys ascend with item numbers, and an absent key lies beside each; so the
//! hot items of a skewed workload are neighbours or scattered as it says. Reads are counted, not timed: where the system
//! caches files they are fast, and as many. Every answer is checked.
//!
//! Trees are opened anew for each point, so that none finds what another has left in memory.
//!
//! A configuration is pairs of option and value ([`shamba::Builder::set_option`]); one with an option that the engine
//! does not have is left out, and says so.
//!
//! The summary of a workload is, for each configuration, how many times the memory the baseline needs for as few reads:
//! by interpolation on the curves' falling envelopes, the geometric mean over the points of the baseline.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shamba::{Builder, Db, Error, MergePolicy, Sizing};

use crate::dist::{Distribution, Picker};
use crate::measure::rss_bytes;
use crate::mix::mix2;
use crate::permute::Permutation;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// A tree has about so many write buffers of data: three levels at T = 10, five at T = 4.
const BUFFERS: u64 = 1_000;
/// The budget under which trees are filled.
const FILL_BUDGET_BYTES: u64 = 256 << 20;
/// Budgets of a curve, at most.
const BUDGETS_MAX: usize = 8;
/// Lookups before those that count come in so many rounds, with a pause after each: what is held follows what is asked.
const WARM_ROUNDS: u64 = 3;
const WARM_PAUSE: Duration = Duration::from_millis(150);

/// Options as (name, value).
type Pairs = &'static [(&'static str, &'static str)];

/// One way of writing filters and of holding them.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// What it is called.
    pub name: &'static str,
    /// How tables are written.
    pub tree: Pairs,
    /// What a reopen may change.
    pub open: Pairs,
}

/// The baseline, each idea alone, all together.
pub const CONFIGURATIONS: [Configuration; 6] = [
    Configuration {
        name: "baseline",
        tree: &[("filter-layout", "blocked")],
        open: &[("residency", "cached"), ("skipping", "none")],
    },
    Configuration {
        name: "residency",
        tree: &[("filter-layout", "blocked")],
        open: &[("residency", "budgeted"), ("skipping", "none")],
    },
    Configuration {
        name: "modules",
        tree: &[("modules", "2")],
        open: &[("residency", "cached"), ("skipping", "none")],
    },
    Configuration {
        name: "skipping",
        tree: &[("modules", "2")],
        open: &[("residency", "budgeted"), ("skipping", "full")],
    },
    Configuration {
        name: "allocation",
        tree: &[("filter-layout", "blocked"), ("allocation", "monkey")],
        open: &[("residency", "cached"), ("skipping", "none")],
    },
    Configuration {
        name: "all",
        tree: &[("modules", "2"), ("allocation", "monkey")],
        open: &[("residency", "budgeted"), ("skipping", "full")],
    },
];

/// How large a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A twentieth: whether it works at all.
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

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where trees are kept; each goes when its curves are done.
    pub dir: PathBuf,
    /// How large.
    pub scale: Scale,
    /// Only entries of this size, in bytes.
    pub entry_bytes: Option<u64>,
    /// Only this size ratio.
    pub size_ratio: Option<u32>,
    /// Seed of keys' order and lookups.
    pub seed: u64,
}

/// Which keys are asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Workload {
    name: &'static str,
    distribution: Distribution,
    empty_fraction: f64,
}

const DISTRIBUTIONS: [(&str, Distribution); 3] =
    // Of the latest, unlike of zipf, neighbours are hot.
    [
        ("uniform", Distribution::Uniform),
        ("zipf", Distribution::Zipf),
        ("zipf-local", Distribution::Latest),
    ];

/// The items of a tree.
#[derive(Clone, Copy, Debug)]
struct Items {
    count: u64,
    entry_bytes: u64,
    seed: u64,
}

impl Items {
    /// The key of an item, or of the absent one behind it: ascending, without a pattern that would make it shorter.
    fn key(self, item: u64, absent: bool) -> [u8; KEY_BYTES] {
        let number = 2 * item + u64::from(absent);
        let head = number * (u64::MAX / (2 * self.count));
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&head.to_be_bytes());
        for (place, word) in key[8..].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix2(number ^ (place as u64) << 60, self.seed).to_le_bytes());
        }
        key
    }

    fn value(self, item: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&item.to_le_bytes());
        let mut word = item;
        while (value.len() + KEY_BYTES) < self.entry_bytes as usize {
            word = mix2(word, self.seed);
            value.extend_from_slice(&word.to_le_bytes());
        }
        value.truncate((self.entry_bytes as usize).saturating_sub(KEY_BYTES).max(8));
    }

    fn bytes(self) -> u64 {
        self.count * self.entry_bytes
    }
}

/// What a point of a curve is of.
#[derive(Clone, Copy)]
struct Place<'a> {
    items: Items,
    size_ratio: u32,
    configuration: &'a Configuration,
    workload: Workload,
}

/// Memory and the reads of a lookup under it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    memory_bytes: f64,
    reads: f64,
}

/// Runs all of it; each finished line of JSON goes to `print`.
///
/// # Errors
/// What the engine says, and a wrong answer.
pub fn run(options: &Options, print: &mut dyn FnMut(&str)) -> Result<(), String> {
    for (entry_bytes, full_count) in [(64, 10_000_000), (1024, 1_000_000)] {
        if options.entry_bytes.is_some_and(|only| only != entry_bytes) {
            continue;
        }
        let items = Items { count: full_count / options.scale.part(), entry_bytes, seed: options.seed };
        for size_ratio in [4, 10] {
            if options.size_ratio.is_none_or(|only| only == size_ratio) {
                curves_of(options, items, size_ratio, print)?;
            }
        }
    }
    Ok(())
}

fn curves_of(
    options: &Options,
    items: Items,
    size_ratio: u32,
    print: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut curves: Vec<(Workload, &'static str, Vec<Point>)> = Vec::new();
    let mut filled: Vec<(Pairs, PathBuf)> = Vec::new();
    for configuration in &CONFIGURATIONS {
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
            (None, Ok(builder)) => {
                fill(builder, items).map_err(|error| error.to_string())?;
                filled.push((configuration.tree, dir.clone()));
                dir
            }
        };
        for (name, distribution) in DISTRIBUTIONS {
            for empty_fraction in [0.0, 0.5, 1.0] {
                let workload = Workload { name, distribution, empty_fraction };
                let place = Place { items, size_ratio, configuration, workload };
                let mut points = Vec::new();
                for budget_bytes in budgets(items.bytes()) {
                    points.push(measure(&dir, place, budget_bytes, print)?);
                }
                curves.push((workload, configuration.name, points));
            }
        }
    }
    for (workload, name, points) in &curves {
        let baseline = curves.iter().find(|(other, name, _)| other == workload && *name == "baseline");
        let Some((_, _, baseline)) = baseline else { continue };
        let (ratio, compared) = memory_ratio(baseline, points);
        print(&format!(
            "{{\"schema\":\"memory-curves-summary/1\",\"entry_bytes\":{},\"size_ratio\":{size_ratio},\
             \"workload\":\"{}\",\"empty_fraction\":{},\"configuration\":\"{name}\",\
             \"memory_ratio\":{ratio:.3},\"compared\":{compared}}}",
            items.entry_bytes, workload.name, workload.empty_fraction
        ));
    }
    for (_, dir) in filled {
        std::fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    Ok(())
}

/// How a tree of the configuration is opened; what is wrong with an option.
fn builder(
    dir: &Path,
    items: Items,
    size_ratio: u32,
    configuration: &Configuration,
) -> Result<Builder, String> {
    let builder = Db::builder(dir)
        .sizing(Sizing::Manual)
        .merge_policy(MergePolicy::Leveling)
        .size_ratio(f64::from(size_ratio))
        .write_buffer((items.bytes() / BUFFERS).max(16 << 10))
        .file_size((items.bytes() / 256).clamp(64 << 10, 16 << 20))
        .digest_seed(items.seed);
    let pairs = configuration.tree.iter().chain(configuration.open);
    pairs
        .copied()
        .try_fold(builder, |builder, (name, value)| builder.set_option(name, value))
        .map_err(|error| error.to_string())
}

/// Fills a tree in random order and lets it come to rest.
fn fill(builder: Builder, items: Items) -> Result<(), Error> {
    let db = builder.memory_budget(FILL_BUDGET_BYTES).open()?;
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

/// Budgets from the least one to what holds all data, each about half as much again as the one before.
fn budgets(data_bytes: u64) -> Vec<u64> {
    let mut budgets: Vec<u64> = vec![4 << 20];
    while let Some(last) = budgets.last().copied()
        && last < data_bytes + data_bytes / 4
        && budgets.len() < BUDGETS_MAX
    {
        budgets.push(if last.is_power_of_two() { last / 2 * 3 } else { last / 3 * 4 });
    }
    budgets
}

/// One point: opens the tree, asks, counts, prints.
fn measure(
    dir: &Path,
    place: Place<'_>,
    budget_bytes: u64,
    print: &mut dyn FnMut(&str),
) -> Result<Point, String> {
    let Place { items, size_ratio, configuration, workload } = place;
    let said = |error: Error| error.to_string();
    let builder = builder(dir, items, size_ratio, configuration)?;
    let db = builder.memory_budget(budget_bytes).auto_compaction(false).open().map_err(said)?;
    let lookups = (items.count / 10).clamp(10_000, 500_000);
    let mut picker = Picker::new(workload.distribution, items.count, items.seed ^ budget_bytes, items.seed);
    for _ in 0..WARM_ROUNDS {
        ask(&db, items, workload, &mut picker, lookups / WARM_ROUNDS)?;
        std::thread::sleep(WARM_PAUSE);
    }
    let before = db.stats();
    let since = Instant::now();
    ask(&db, items, workload, &mut picker, lookups)?;
    let ns_per_lookup = since.elapsed().as_nanos() as f64 / lookups as f64;
    let stats = db.stats().since(&before);
    let memory = db.memory();
    db.close().map_err(said)?;
    let per_lookup = |count: u64| count as f64 / stats.lookups.max(1) as f64;
    let [filter, index, data] = [stats.filter_reads, stats.index_reads, stats.data_reads].map(per_lookup);
    let reads = filter + index + data;
    print(&format!(
        "{{\"schema\":\"memory-curves/1\",\"entry_bytes\":{},\"entries\":{},\"size_ratio\":{size_ratio},\
         \"workload\":\"{}\",\"empty_fraction\":{},\"configuration\":\"{}\",\"budget_bytes\":{budget_bytes},\
         \"lookups\":{},\"filter_reads\":{filter:.5},\"index_reads\":{index:.5},\"data_reads\":{data:.5},\
         \"reads\":{reads:.5},\"false_positives\":{:.5},\"ns_per_lookup\":{ns_per_lookup:.0},\"runs\":{},\
         \"ledger_bytes\":{},\"ledger_most_bytes\":{},\"rss_bytes\":{}}}",
        items.entry_bytes,
        items.count,
        workload.name,
        workload.empty_fraction,
        configuration.name,
        stats.lookups,
        per_lookup(stats.false_positives),
        stats.runs,
        memory.ledger_bytes,
        memory.peak_bytes,
        rss_bytes().unwrap_or(0)
    ));
    Ok(Point { memory_bytes: budget_bytes as f64, reads })
}

/// Asks `lookups` times, and holds every answer to what must be.
fn ask(db: &Db, items: Items, workload: Workload, picker: &mut Picker, lookups: u64) -> Result<(), String> {
    for _ in 0..lookups {
        let item = picker.pick(items.count);
        let absent = workload.empty_fraction > 0.0 && picker.rng().f64() < workload.empty_fraction;
        let expected = (!absent).then_some(item);
        let found = db
            .get_with(items.key(item, absent), |value| {
                value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
            })
            .map_err(|error| error.to_string())?;
        if found.flatten() != expected {
            return Err(format!("item {item}, absent {absent}: found {found:?}"));
        }
    }
    Ok(())
}

/// The curve as it falls: more memory never reads more.
fn envelope(points: &[Point]) -> Vec<Point> {
    let mut least = f64::INFINITY;
    let falling = |point: &Point| {
        least = least.min(point.reads);
        Point { reads: least, ..*point }
    };
    points.iter().map(falling).collect()
}

/// The least memory with which the curve reads no more than `reads`; `None` outside of what was measured.
fn memory_at(curve: &[Point], reads: f64) -> Option<f64> {
    let first = curve.first()?;
    if first.reads <= reads {
        // It reads less even with the least memory: how much less it would need is not known.
        return Some(first.memory_bytes);
    }
    curve.windows(2).find_map(|pair| match pair {
        [more, less] if less.reads <= reads && reads < more.reads => {
            let share = (more.reads - reads) / (more.reads - less.reads);
            Some(more.memory_bytes + share * (less.memory_bytes - more.memory_bytes))
        }
        _ => None,
    })
}

/// How many times the other curve's memory the baseline needs for as few reads, and at how many points that is known.
fn memory_ratio(baseline: &[Point], other: &[Point]) -> (f64, usize) {
    let (baseline, other) = (envelope(baseline), envelope(other));
    let ratios: Vec<f64> = baseline
        .iter()
        .filter_map(|point| {
            let least = memory_at(&baseline, point.reads)?;
            Some((least / memory_at(&other, point.reads)?).ln())
        })
        .collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    (mean.exp(), ratios.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Vec<Point> {
        points
            .iter()
            .map(|(memory_bytes, reads)| Point { memory_bytes: *memory_bytes, reads: *reads })
            .collect()
    }

    #[test]
    fn half_the_memory_for_as_few_reads_is_a_ratio_of_two() {
        let baseline = curve(&[(4.0, 1.0), (8.0, 0.5), (16.0, 0.25)]);
        let half = curve(&[(2.0, 1.0), (4.0, 0.5), (8.0, 0.25)]);
        let (ratio, compared) = memory_ratio(&baseline, &half);
        assert!((ratio - 2.0).abs() < 1e-9 && compared == 3, "{ratio}");
        let (ratio, _) = memory_ratio(&baseline, &baseline);
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        // A bump counts for nothing, and what was never reached is not compared.
        let bumpy = curve(&[(4.0, 1.0), (6.0, 1.5), (8.0, 0.5)]);
        let (ratio, compared) = memory_ratio(&baseline, &bumpy);
        assert!((ratio - 1.0).abs() < 1e-9 && compared == 2, "{ratio} {compared}");
    }

    #[test]
    fn keys_ascend_with_items_and_absent_ones_lie_between() {
        let items = Items { count: 1_000, entry_bytes: 64, seed: 3 };
        let keys: Vec<_> =
            (0..1_000).flat_map(|item| [items.key(item, false), items.key(item, true)]).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
        let mut value = Vec::new();
        items.value(7, &mut value);
        assert_eq!(value.len(), 32);
    }

    #[test]
    fn budgets_rise_from_the_least() {
        let found = budgets(32 << 20);
        assert_eq!(found.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>(), [4, 6, 8, 12, 16, 24, 32, 48]);
    }

    #[test]
    fn a_small_tree_is_measured_and_answers_right() {
        let dir = tempfile::tempdir().expect("a directory");
        let items = Items { count: 20_000, entry_bytes: 64, seed: 1 };
        for configuration in &CONFIGURATIONS[..4] {
            let dir = dir.path().join(configuration.name);
            fill(builder(&dir, items, 4, configuration).expect("options"), items).expect("filled");
            let workload =
                Workload { name: "uniform", distribution: Distribution::Uniform, empty_fraction: 0.5 };
            let place = Place { items, size_ratio: 4, configuration, workload };
            let mut lines = Vec::new();
            let point =
                measure(&dir, place, 4 << 20, &mut |line| lines.push(line.to_owned())).expect("right");
            assert!(point.reads.is_finite() && lines.len() == 1, "{lines:?}");
        }
    }
}
