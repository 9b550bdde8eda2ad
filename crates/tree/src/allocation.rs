//! Filter bit allocation: the number of filter bits per key of a table, decided when the table is
//! finished.
//!
//! The calculation uses the tree as it will be when the job is done: the tables that stay, and the
//! tables that the job builds. The bits are divided among all of them by the one rule
//! ([`shamba_model::allocation`], with the measured rates of the filters in use), as if every
//! filter could be rewritten. The new table gets its share:
//!
//! - *Uniform*: the same bits per key for every table.
//! - *Monkey*: the share of the table's run, by the sizes of the runs and the share of empty
//!   lookups.
//! - *Workload*: a share by the sampled lookups that reach the table.
//!
//! The other tables keep their bits until they are compacted, so the mean of the tree deviates from
//! the configured one: filters built in a smaller tree have the bits that were right there. A test
//! grows trees and bounds the deviation. Under leveling the mean is within 8 % of the configured
//! one, and false positives cost on average at most 10 % more than the best allocation of that mean
//! on the same tree. Under tiering with T = 10 the mean is up to 20 % above, because each run of a
//! level was built when the tree was smaller.
//!
//! A table whose keys are in no older run will be moved down without a rewrite. Its bits are those
//! of its final position, which is the last run for keys that only grow. Otherwise a sequential
//! load would leave the whole database with the bits of level 0. A table that was moved and whose
//! bits differ too much from those of its position is reported ([`is_stale`]). It keeps its bits
//! until it is compacted.
//!
//! Everything here but [`JobBits`] is pure. Not here: which filters are in memory (`residency`,
//! package `shamba`).

mod curves;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use shamba_filter::FilterLayout;
use shamba_model::allocation::{Allocation, FilterLoad, FilterSite, Limits, Lookups, allocate};
use shamba_table::TableId;

use crate::compaction::policy::{CompactionJob, Target};
use crate::sampling::inherit::{InputTable, inherited};
use crate::statistics::{LookupWindow, Probes};
use crate::version::{KeyRange, Run, TableUse, Version};
use crate::version::{live_bytes, live_entries};
use shamba_key::RunId;

/// Maximum bits per key of a filter; further bits save less than one search in ten thousand.
const BITS_PER_KEY_MAX: f64 = 26.0;
/// Minimum bits per key: a smaller filter saves less than its probe costs.
const BITS_PER_KEY_MIN: f64 = 1.0;
const _: () = assert!(BITS_PER_KEY_MIN < BITS_PER_KEY_MAX, "a range of bits per key");
/// Weight of the prior in sampled lookups, spread evenly over absent keys.
const PRIOR_LOOKUPS: f64 = 1024.0;
/// Minimum weight of the prior as a part of the sampled lookups. It leaves some bits for tables
/// that no lookup reaches yet.
const PRIOR_PART: f64 = 1.0 / 16.0;
/// Relative deviation of the bits per key from which a filter is stale.
const STALE_BITS_PART: f64 = 0.25;
/// Absolute deviation in bits per key below which a filter is never stale.
const STALE_BITS_PER_KEY: f64 = 2.0;

/// The filter bits to divide.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// Bits for each entry of the tree.
    BitsPerKey(f64),
    /// Bits in total.
    Bits(u64),
}

/// Inputs of the bit allocation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    /// How bits are divided among runs.
    pub allocation: Allocation,
    /// The bits to divide.
    pub budget: Budget,
    /// Layout whose measured false-positive rates count.
    pub layout: FilterLayout,
    /// Statistics of the keyspace's lookups.
    pub window: LookupWindow,
}

impl Rule {
    /// The rule of a new database.
    pub const NEW: Self = Self {
        allocation: Allocation::Monkey,
        budget: Budget::BitsPerKey(10.0),
        layout: FilterLayout::Blocked,
        window: LookupWindow {
            lookups: 0.0,
            found: 0.0,
            lookups_per_second: 0.0,
            seeks: 0.0,
            seeks_per_second: 0.0,
            as_of_us: 0,
        },
    };
}

/// A table that is about to be finished.
#[derive(Clone, Debug)]
pub struct NewTable {
    /// Entries of the table.
    pub entries: u64,
    /// Range from its first key to its last.
    pub keys: KeyRange,
    /// Expected sampled probes for absent keys.
    pub empty_probes: f64,
    /// Entries of the tables that the job finished before this one.
    pub earlier_entries: u64,
}

/// The tree around the tables that a job builds.
pub struct Surroundings {
    rule: Rule,
    /// Tables that stay, by run in lookup order.
    runs: Vec<Vec<TableUse>>,
    /// Index of the run that the new tables join.
    target: usize,
    /// The tables that stay, each at its final position.
    sites: Vec<FilterSite>,
    /// Expected entries of the job's outputs; the next field has their expected sampled probes for
    /// absent keys.
    expected_entries: u64,
    expected_empty_probes: f64,
}

impl Surroundings {
    /// For the tables of a flush or an ingest into level 0.
    pub fn of_flush(rule: Rule, version: &Version, expected_entries: u64) -> Self {
        let stays = version.runs().map(|(_, run)| run.tables().to_vec());
        Self::new(rule, [Vec::new()].into_iter().chain(stays).collect(), 0, expected_entries)
    }

    /// For the outputs of a compaction.
    pub fn of_compaction(rule: Rule, version: &Version, job: &CompactionJob) -> Self {
        let inputs: HashSet<(RunId, TableId)> = job
            .inputs
            .iter()
            .flat_map(|input| input.tables.iter().map(|table| (input.run, *table)))
            .collect();
        let mut expected_entries = 0;
        let mut stays_of = |run: &Arc<Run>| -> Vec<TableUse> {
            let (gone, stays): (Vec<_>, Vec<_>) =
                run.tables().iter().cloned().partition(|table| inputs.contains(&(run.id, table.meta.id)));
            expected_entries += gone.iter().map(live_entries).sum::<u64>();
            stays
        };
        let (mut runs, mut target) = (Vec::new(), None);
        for (level, run) in version.runs() {
            let is_target = job.target_run == Target::Existing(run.id);
            // A new run becomes the newest of its level.
            if target.is_none() && job.target_run == Target::New && level >= job.target_level {
                target = Some(runs.len());
                runs.push(Vec::new());
            }
            if is_target {
                target = Some(runs.len());
            }
            runs.push(stays_of(run));
        }
        let target = target.unwrap_or_else(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        assert!(target < runs.len(), "{job}: the outputs join run {target} of {}", runs.len());
        Self::new(rule, runs, target, expected_entries)
    }

    /// For a tree without a running job.
    fn at_rest(rule: Rule, version: &Version) -> Self {
        Self::new(rule, version.runs().map(|(_, run)| run.tables().to_vec()).collect(), 0, 0)
    }

    fn new(rule: Rule, runs: Vec<Vec<TableUse>>, target: usize, expected_entries: u64) -> Self {
        assert!(target <= runs.len(), "the new tables go to run {target} of {}", runs.len());
        let mut tree =
            Self { rule, runs, target, sites: Vec::new(), expected_entries, expected_empty_probes: 0.0 };
        let sites = tree.runs.iter().enumerate().flat_map(|(at, run)| {
            let site = |table: &TableUse| tree.site(at, table);
            run.iter().map(site).collect::<Vec<_>>()
        });
        tree.sites = sites.collect();
        debug_assert_eq!(
            tree.sites.len(),
            tree.runs.iter().map(Vec::len).sum::<usize>(),
            "a site for each table that stays"
        );
        tree
    }

    /// Whether no table is in an older run than the new ones.
    fn is_into_last_run(&self) -> bool {
        self.runs[self.target..].iter().skip(1).all(Vec::is_empty)
    }

    fn site(&self, run: usize, table: &TableUse) -> FilterSite {
        let probes = table.meta.statistics.probes();
        FilterSite {
            entries: live_entries(table),
            run: self.rests_at(run, &table.range) as u32,
            // Only proportions matter, so the rate can be in sampled lookups.
            empty_probes_per_second: probes.empty,
        }
    }

    /// Index of the run that a table with these keys in run `at` can reach by trivial moves.
    fn rests_at(&self, at: usize, keys: &KeyRange) -> usize {
        let is_free = |run: &Vec<TableUse>| {
            let first = run.partition_point(|table| !table.range.is_above(&keys.lower));
            run.get(first).is_none_or(|table| !keys.is_above(&table.range.lower))
        };
        let below = self.runs.get(at + 1..).unwrap_or_default();
        debug_assert!(at < self.runs.len().max(1), "run {at} of {}", self.runs.len());
        at + below.iter().take_while(|run| is_free(run)).count()
    }

    /// Filter bits per key of a new table; 0 for no filter.
    pub fn bits_per_key(&self, table: &NewTable) -> f64 {
        let run = self.rests_at(self.target, &table.keys) as u32;
        let expected_entries = self.expected_entries.max(table.earlier_entries + table.entries);
        debug_assert!(expected_entries >= table.entries, "a table has more entries than its job");
        debug_assert!(table.empty_probes >= 0.0, "{} probes of a table", table.empty_probes);
        let mut sites = self.sites.clone();
        let others = FilterSite {
            entries: expected_entries - table.entries,
            run,
            empty_probes_per_second: (self.expected_empty_probes - table.empty_probes).max(0.0),
        };
        sites.extend([others].into_iter().filter(|others| others.entries > 0));
        sites.push(FilterSite { entries: table.entries, run, empty_probes_per_second: table.empty_probes });
        shares(self.rule, &sites).last().copied().unwrap_or(0.0)
    }
}

/// Bits per key that each table of a tree would get now, in lookup order.
pub fn wanted(rule: Rule, version: &Version) -> Vec<f64> {
    let wanted = shares(rule, &Surroundings::at_rest(rule, version).sites);
    assert_eq!(wanted.len(), version.tables().count(), "bits per key for each table");
    wanted
}

/// Whether a filter is stale: its bits per key differ from the allocation by enough to report it.
pub fn is_stale(written: f64, wanted: f64) -> bool {
    (written - wanted).abs() > STALE_BITS_PER_KEY.max(wanted * STALE_BITS_PART)
}

/// Bits per key of each filter of a tree.
fn shares(rule: Rule, sites: &[FilterSite]) -> Vec<f64> {
    let entries: u64 = sites.iter().map(|site| site.entries).sum();
    let mean = match rule.budget {
        Budget::BitsPerKey(bits) => bits,
        Budget::Bits(bits) => bits as f64 / entries.max(1) as f64,
    };
    match rule.allocation {
        // A number of bits per key is used as configured. Only a total may exceed the useful
        // maximum.
        Allocation::Uniform => {
            let most = if matches!(rule.budget, Budget::Bits(_)) { BITS_PER_KEY_MAX } else { f64::MAX };
            vec![mean.min(most); sites.len()]
        }
        Allocation::Monkey => {
            // All tables of a run get the same share, so one site per run is enough.
            let runs = sites.iter().map(|site| site.run as usize + 1).max().unwrap_or(0);
            let mut of_runs: Vec<FilterSite> = (0..runs as u32)
                .map(|run| FilterSite { entries: 0, run, empty_probes_per_second: 0.0 })
                .collect();
            for site in sites {
                of_runs[site.run as usize].entries += site.entries;
            }
            of_runs.retain(|run| run.entries > 0);
            let shares = solved(rule, &of_runs, mean);
            debug_assert!(of_runs.is_sorted_by_key(|run| run.run), "the runs are not in order");
            let of = |site: &FilterSite| of_runs.binary_search_by_key(&site.run, |run| run.run);
            sites
                .iter()
                .map(|site| of(site).ok().and_then(|at| shares.get(at).copied()).unwrap_or(mean))
                .collect()
        }
        Allocation::Workload => {
            // The rule requires at least one entry per filter.
            let sites: Vec<FilterSite> =
                sites.iter().map(|site| FilterSite { entries: site.entries.max(1), ..*site }).collect();
            solved(rule, &sites, mean)
        }
    }
}

/// The allocation by the one rule, with `mean` bits per key.
fn solved(rule: Rule, sites: &[FilterSite], mean: f64) -> Vec<f64> {
    let prior = PRIOR_LOOKUPS.max(rule.window.lookups * PRIOR_PART);
    debug_assert!(prior > 0.0, "a prior of {prior} lookups");
    let seen = rule.window.lookups + prior;
    let lookups = Lookups {
        empty_fraction: 1.0 - rule.window.found.min(rule.window.lookups) / seen,
        // In sampled lookups, as the probes are.
        prior_per_second: prior,
    };
    let entries: u64 = sites.iter().map(|site| site.entries).sum();
    let total_bits = (entries as f64 * mean) as u64;
    // A mean is used as configured. A total may exceed the useful maximum.
    let largest_bits_per_key = match rule.budget {
        Budget::BitsPerKey(mean) => BITS_PER_KEY_MAX.max(mean),
        Budget::Bits(_) => BITS_PER_KEY_MAX,
    };
    let limits = Limits { smallest_bits_per_key: 0.0, largest_bits_per_key };
    let solve = || {
        let loads = rule.allocation.loads(sites, lookups)?;
        let curve = curves::curve(rule.layout, limits.largest_bits_per_key)?;
        let solve = |loads: &[FilterLoad]| allocate(loads, curve.as_ref(), total_bits, limits);
        worth_their_probes(&loads, |loads| Ok(solve(loads)?.bits))
    };
    // Invalid figures (NaN, infinite or negative): every table gets the mean.
    solve().unwrap_or_else(|_: String| vec![mean; sites.len()])
}

/// The bits per key that `solve` gives to each load, without filters that are not worth their
/// probe. Loads below [`BITS_PER_KEY_MIN`] get nothing, and their bits go to the others.
///
/// Each step removes the half of those loads with the fewest bits, because their bits may be enough
/// for the remaining ones.
fn worth_their_probes(
    loads: &[FilterLoad],
    solve: impl Fn(&[FilterLoad]) -> Result<Vec<u64>, String>,
) -> Result<Vec<f64>, String> {
    let mut of_all = vec![0.0; loads.len()];
    let mut left: Vec<usize> = (0..loads.len()).collect();
    while !left.is_empty() {
        let asking: Vec<FilterLoad> = left.iter().map(|at| loads[*at]).collect();
        let bits = solve(&asking)?;
        debug_assert_eq!(bits.len(), asking.len(), "one share for each filter");
        let per_key = |(load, bits): (&FilterLoad, &u64)| *bits as f64 / load.entries.max(1) as f64;
        let shares: Vec<f64> = asking.iter().zip(&bits).map(per_key).collect();
        let mut too_few: Vec<f64> =
            shares.iter().copied().filter(|share| *share < BITS_PER_KEY_MIN).collect();
        if too_few.is_empty() {
            left.iter().zip(shares).for_each(|(at, share)| of_all[*at] = share);
            break;
        }
        too_few.sort_by(f64::total_cmp);
        let last_to_go = too_few[(too_few.len() - 1) / 2];
        let mut shares = shares.into_iter();
        left.retain(|_| shares.next().is_some_and(|share| share > last_to_go));
        debug_assert!(left.len() < of_all.len(), "no filter was given up");
    }
    Ok(of_all)
}

/// Filter layout and bits of the outputs of one job.
pub struct JobBits {
    layout: FilterLayout,
    surroundings: Surroundings,
    /// Inputs of the job by run, newest first; empty for a flush.
    inputs: Vec<(RunId, TableUse, Probes)>,
}

impl JobBits {
    /// For a flush or an ingest into level 0.
    pub fn of_flush(rule: Rule, version: &Version, expected_entries: u64) -> Self {
        let surroundings = Surroundings::of_flush(rule, version, expected_entries);
        Self::new(surroundings, Vec::new())
    }

    /// For a compaction.
    pub fn of_compaction(rule: Rule, version: &Version, job: &CompactionJob) -> Self {
        let surroundings = Surroundings::of_compaction(rule, version, job);
        let input = |(_, run, table): (u32, &Arc<Run>, &TableUse)| {
            (run.id, table.clone(), table.meta.statistics.probes())
        };
        Self::new(surroundings, job.uses(version).into_iter().map(input).collect())
    }

    fn new(surroundings: Surroundings, inputs: Vec<(RunId, TableUse, Probes)>) -> Self {
        let mut bits = Self { layout: surroundings.rule.layout, surroundings, inputs };
        let expected_entries = bits.surroundings.expected_entries;
        bits.surroundings.expected_empty_probes =
            bits.empty_probes(expected_entries, &KeyRange::everything());
        bits
    }

    /// Layout of the filters.
    pub fn layout(&self) -> FilterLayout {
        self.layout
    }

    /// The same bits in another layout.
    #[must_use]
    pub fn in_layout(self, layout: FilterLayout) -> Self {
        Self { layout, ..self }
    }

    /// Whether the job's tables join the last run.
    pub fn is_into_last_run(&self) -> bool {
        self.surroundings.is_into_last_run()
    }

    /// Bits per key with which a writer of the job's tables starts: an estimate, and 0 only if no
    /// table gets a filter.
    pub fn about_bits_per_key(&self) -> f64 {
        if self.surroundings.rule.budget == Budget::BitsPerKey(0.0) {
            return 0.0;
        }
        let all = NewTable {
            entries: self.surroundings.expected_entries.max(1),
            keys: KeyRange::everything(),
            empty_probes: self.surroundings.expected_empty_probes,
            earlier_entries: 0,
        };
        self.surroundings.bits_per_key(&all).max(BITS_PER_KEY_MIN)
    }

    /// Bits per key of a table that is about to be finished. It has `entries` from the key `first`
    /// to `last`, answers for `stretch`, and follows tables of `earlier_entries` in total.
    pub fn bits_per_key(
        &self,
        (first, last): (&[u8], &[u8]),
        stretch: &KeyRange,
        entries: u64,
        earlier_entries: u64,
    ) -> f64 {
        let mut end = last.to_vec();
        end.push(0);
        let keys = KeyRange { lower: Bytes::copy_from_slice(first), upper: Some(end.into()) };
        let empty_probes = self.empty_probes(entries, stretch);
        self.surroundings.bits_per_key(&NewTable { entries, keys, empty_probes, earlier_entries })
    }

    /// Expected sampled probes for absent keys of a table with these entries and this stretch.
    fn empty_probes(&self, entries: u64, stretch: &KeyRange) -> f64 {
        let Surroundings { rule, sites, expected_entries, .. } = &self.surroundings;
        if rule.allocation != Allocation::Workload {
            // Not used by the other allocations.
            return 0.0;
        }
        if self.inputs.is_empty() {
            let tree_entries = expected_entries + sites.iter().map(|site| site.entries).sum::<u64>();
            return rule.window.of_flush(entries, *expected_entries, tree_entries).empty;
        }
        let inputs =
            self.inputs.iter().map(|(run, table, probes)| InputTable { run: run.0, table, probes: *probes });
        inherited(&inputs.collect::<Vec<_>>(), stretch, &live_bytes).empty
    }
}

#[cfg(test)]
mod tests;
