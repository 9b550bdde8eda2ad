//! Allocation: how many filter bits a table gets, decided when it is finished.
//!
//! The tree is taken as it will be when the job is done: the tables that stay, and those that the job builds. For all
//! of them together the bits are shared out by the one rule ([`shamba_model::allocation`], over the measured rates of the
//! filters in use) as if every filter could be written anew, and the new table gets its share:
//!
//! - *Uniform*: what everybody gets.
//! - *Monkey*: what its run gets, by the sizes of the runs and the share of lookups that find nothing.
//! - *Workload*: what the lookups deserve that are seen to come to it.
//!
//! The other tables keep what they have until they are merged, so the tree's mean strays from the one that was asked for: what
//! was built in a smaller tree has what was right there. A test grows trees and bounds it: under leveling the mean is within 8 %
//! of what was asked for and false positives cost on average at most 10 % more than the best allocation of that mean on the same
//! tree. Under tiering with T = 10 the mean is up to 20 % above: each of the runs of a level came when the tree was smaller.
//!
//! A table whose keys no older run has will be moved down without being written again; it is taken to be where it will come
//! to *rest*, which for keys that only grow is the last run. Otherwise a sequential load would leave the whole database
//! with the bits of the inbox. A table that was moved and has other bits than its place deserves is told of ([`is_misfit`])
//! and keeps them until it is merged.
//!
//! Everything here but the last part is pure. Not here: which of what was written is in memory ([`crate::residency`]).

mod curves;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use shamba_filter::FilterLayout;
use shamba_model::allocation::{Allocation, FilterLoad, FilterSite, Limits, Lookups, allocate};
use shamba_table::TableId;

use crate::compaction::live_bytes;
use crate::compaction::policy::{MergeJob, Target};
use crate::sampling::inherit::{Input, inherited};
use crate::statistics::{Probes, Window};
use crate::version::{KeyRange, Run, TableUse, Version};
use shamba_key::RunId;

/// No filter gets more bits per key: those that follow save less than a search in ten thousand.
const MOST_BITS_PER_KEY: f64 = 26.0;
/// A filter of fewer bits per key than this is not worth its probe.
const LEAST_BITS_PER_KEY: f64 = 1.0;
/// As if so many sampled lookups, spread evenly over absent keys, had come beside those that did:
const PRIOR_LOOKUPS: f64 = 1024.0;
/// or this part of those, if that is more. So tables that nobody asks for are not without bits when somebody does.
const PRIOR_PART: f64 = 1.0 / 16.0;
/// A table fits its place with bits this much above or below, in part,
const MISFIT_PART: f64 = 0.25;
/// or so many bits per key.
const MISFIT_BITS_PER_KEY: f64 = 2.0;

/// How many bits there are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// So many for each entry of the tree.
    BitsPerKey(f64),
    /// So many in all.
    Bits(u64),
}

/// What bits are shared out by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    /// How bits are divided among runs.
    pub allocation: Allocation,
    /// The bits to divide.
    pub budget: Budget,
    /// Whose rates count.
    pub layout: FilterLayout,
    /// What is known of the lookups.
    pub window: Window,
}

impl Rule {
    /// The rule of a new database.
    pub const NEW: Self = Self {
        allocation: Allocation::Monkey,
        budget: Budget::BitsPerKey(10.0),
        layout: FilterLayout::Blocked,
        window: Window {
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
    /// From its first key to its last.
    pub keys: KeyRange,
    /// Sampled probes for absent keys that are expected to come to it.
    pub empty_probes: f64,
    /// Entries of the tables that the job finished before it.
    pub earlier_entries: u64,
}

/// The tree around the tables that a job builds.
pub struct Surroundings {
    rule: Rule,
    /// Of each run in lookup order, the tables that stay.
    runs: Vec<Vec<TableUse>>,
    /// Where among them the new tables go.
    target: usize,
    /// The tables that stay, each where it will rest.
    sites: Vec<FilterSite>,
    /// What the job is expected to build: entries, and sampled probes for absent keys that will come to them.
    expected_entries: u64,
    expected_empty_probes: f64,
}

impl Surroundings {
    /// Of the tables of a flush, or of what else arrives in level 0.
    pub fn of_flush(rule: Rule, version: &Version, expected_entries: u64) -> Self {
        let stays = version.runs().map(|(_, run)| run.tables().to_vec());
        Self::new(rule, [Vec::new()].into_iter().chain(stays).collect(), 0, expected_entries)
    }

    /// Of the outputs of a merge.
    pub fn of_merge(rule: Rule, version: &Version, job: &MergeJob) -> Self {
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
        Self::new(rule, runs, target, expected_entries)
    }

    /// Of a tree in which nothing is built.
    fn at_rest(rule: Rule, version: &Version) -> Self {
        Self::new(rule, version.runs().map(|(_, run)| run.tables().to_vec()).collect(), 0, 0)
    }

    fn new(rule: Rule, runs: Vec<Vec<TableUse>>, target: usize, expected_entries: u64) -> Self {
        let mut tree =
            Self { rule, runs, target, sites: Vec::new(), expected_entries, expected_empty_probes: 0.0 };
        let sites = tree.runs.iter().enumerate().flat_map(|(at, run)| {
            let site = |table: &TableUse| tree.site(at, table);
            run.iter().map(site).collect::<Vec<_>>()
        });
        tree.sites = sites.collect();
        tree
    }

    fn site(&self, run: usize, table: &TableUse) -> FilterSite {
        let probes = table.meta.statistics.probes();
        FilterSite {
            entries: live_entries(table),
            run: self.rests_at(run, &table.range) as u32,
            empty_probes_per_second: probes.empty, // Only proportions count: those of sampled lookups do.
        }
    }

    /// The run to which a table with these keys in run `at` can sink without being merged.
    fn rests_at(&self, at: usize, keys: &KeyRange) -> usize {
        let is_free = |run: &Vec<TableUse>| {
            let first = run.partition_point(|table| !table.range.is_above(&keys.lower));
            run.get(first).is_none_or(|table| !keys.is_above(&table.range.lower))
        };
        let below = self.runs.get(at + 1..).unwrap_or_default();
        at + below.iter().take_while(|run| is_free(run)).count()
    }

    /// The filter bits per key that a new table gets; 0 for no filter.
    pub fn bits_per_key(&self, table: &NewTable) -> f64 {
        let run = self.rests_at(self.target, &table.keys) as u32;
        let expected_entries = self.expected_entries.max(table.earlier_entries + table.entries);
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

/// What each table of a tree would get now, in lookup order.
pub fn wanted(rule: Rule, version: &Version) -> Vec<f64> {
    shares(rule, &Surroundings::at_rest(rule, version).sites)
}

/// Whether a table has so many more or fewer bits per key than its place deserves that it is worth telling.
pub fn is_misfit(written: f64, wanted: f64) -> bool {
    (written - wanted).abs() > MISFIT_BITS_PER_KEY.max(wanted * MISFIT_PART)
}

/// The bits per key of each of the filters of a tree.
fn shares(rule: Rule, sites: &[FilterSite]) -> Vec<f64> {
    let entries: u64 = sites.iter().map(|site| site.entries).sum();
    let mean = match rule.budget {
        Budget::BitsPerKey(bits) => bits,
        Budget::Bits(bits) => bits as f64 / entries.max(1) as f64,
    };
    match rule.allocation {
        // What was asked for by number is given as it is; only a sum may be more than anybody can use.
        Allocation::Uniform => {
            let most = if matches!(rule.budget, Budget::Bits(_)) { MOST_BITS_PER_KEY } else { f64::MAX };
            vec![mean.min(most); sites.len()]
        }
        Allocation::Monkey => {
            // All tables of a run get the same: a site for each run is enough.
            let runs = sites.iter().map(|site| site.run as usize + 1).max().unwrap_or(0);
            let mut of_runs: Vec<FilterSite> = (0..runs as u32)
                .map(|run| FilterSite { entries: 0, run, empty_probes_per_second: 0.0 })
                .collect();
            for site in sites {
                of_runs[site.run as usize].entries += site.entries;
            }
            of_runs.retain(|run| run.entries > 0);
            let shares = solved(rule, &of_runs, mean);
            let of = |site: &FilterSite| of_runs.binary_search_by_key(&site.run, |run| run.run);
            sites
                .iter()
                .map(|site| of(site).ok().and_then(|at| shares.get(at).copied()).unwrap_or(mean))
                .collect()
        }
        Allocation::Workload => {
            // The rule knows no filter without entries.
            let sites: Vec<FilterSite> =
                sites.iter().map(|site| FilterSite { entries: site.entries.max(1), ..*site }).collect();
            solved(rule, &sites, mean)
        }
    }
}

/// The one rule, with `mean` bits per key.
fn solved(rule: Rule, sites: &[FilterSite], mean: f64) -> Vec<f64> {
    let prior = PRIOR_LOOKUPS.max(rule.window.lookups * PRIOR_PART);
    let seen = rule.window.lookups + prior;
    let lookups = Lookups {
        empty_fraction: 1.0 - rule.window.found.min(rule.window.lookups) / seen,
        prior_per_second: prior, // Sampled lookups, as the probes are.
    };
    let entries: u64 = sites.iter().map(|site| site.entries).sum();
    let total_bits = (entries as f64 * mean) as u64;
    // A mean that was asked for by number is given; a sum may be more than anybody can use.
    let largest_bits_per_key = match rule.budget {
        Budget::BitsPerKey(mean) => MOST_BITS_PER_KEY.max(mean),
        Budget::Bits(_) => MOST_BITS_PER_KEY,
    };
    let limits = Limits { smallest_bits_per_key: 0.0, largest_bits_per_key };
    let solve = || {
        let loads = rule.allocation.loads(sites, lookups)?;
        let curve = curves::curve(rule.layout, limits.largest_bits_per_key)?;
        let solve = |loads: &[FilterLoad]| allocate(loads, curve.as_ref(), total_bits, limits);
        worth_their_probes(&loads, |loads| Ok(solve(loads)?.bits))
    };
    // Figures that are none: everybody gets the same.
    solve().unwrap_or_else(|_: String| vec![mean; sites.len()])
}

/// The bits per key that `solve` gives to each load, but to none fewer than are worth a probe: those get nothing, and what they would
/// have had goes to the others.
///
/// Of those with too few the half with the fewest goes at a time, for what they leave may be enough for the rest.
fn worth_their_probes(
    loads: &[FilterLoad],
    solve: impl Fn(&[FilterLoad]) -> Result<Vec<u64>, String>,
) -> Result<Vec<f64>, String> {
    let mut of_all = vec![0.0; loads.len()];
    let mut left: Vec<usize> = (0..loads.len()).collect();
    while !left.is_empty() {
        let asking: Vec<FilterLoad> = left.iter().map(|at| loads[*at]).collect();
        let bits = solve(&asking)?;
        let per_key = |(load, bits): (&FilterLoad, &u64)| *bits as f64 / load.entries.max(1) as f64;
        let shares: Vec<f64> = asking.iter().zip(&bits).map(per_key).collect();
        let mut too_few: Vec<f64> =
            shares.iter().copied().filter(|share| *share < LEAST_BITS_PER_KEY).collect();
        if too_few.is_empty() {
            left.iter().zip(shares).for_each(|(at, share)| of_all[*at] = share);
            break;
        }
        too_few.sort_by(f64::total_cmp);
        let last_to_go = too_few[(too_few.len() - 1) / 2];
        let mut shares = shares.into_iter();
        left.retain(|_| shares.next().is_some_and(|share| share > last_to_go));
    }
    Ok(of_all)
}

/// About how many entries of a table count.
pub fn live_entries(table: &TableUse) -> u64 {
    if !table.is_narrowed() {
        return table.meta.entries;
    }
    let part = u128::from(table.meta.entries) * u128::from(table.live_bytes);
    u64::try_from(part / u128::from(table.meta.file_bytes.max(1))).unwrap_or(table.meta.entries)
}

/// What tells the outputs of one job their bits.
pub struct JobBits {
    surroundings: Surroundings,
    /// What the job merges, run by run, newest first; nothing in a flush.
    inputs: Vec<(RunId, TableUse, Probes)>,
}

impl JobBits {
    /// Of a flush, or of what else arrives in level 0.
    pub fn of_flush(rule: Rule, version: &Version, expected_entries: u64) -> Self {
        let surroundings = Surroundings::of_flush(rule, version, expected_entries);
        Self::new(surroundings, Vec::new())
    }

    /// Of a merge.
    pub fn of_merge(rule: Rule, version: &Version, job: &MergeJob) -> Self {
        let surroundings = Surroundings::of_merge(rule, version, job);
        let input = |(_, run, table): (u32, &Arc<Run>, &TableUse)| {
            (run.id, table.clone(), table.meta.statistics.probes())
        };
        Self::new(surroundings, job.uses(version).into_iter().map(input).collect())
    }

    fn new(surroundings: Surroundings, inputs: Vec<(RunId, TableUse, Probes)>) -> Self {
        let mut bits = Self { surroundings, inputs };
        let expected_entries = bits.surroundings.expected_entries;
        bits.surroundings.expected_empty_probes =
            bits.empty_probes(expected_entries, &KeyRange::everything());
        bits
    }

    /// What a writer of the job's tables begins with, in bits per key: about what they get, and 0 only if none gets any.
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
        self.surroundings.bits_per_key(&all).max(LEAST_BITS_PER_KEY)
    }

    /// The bits per key of a table that is about to be finished: `entries` from the key `first` to `last`, answering for
    /// `stretch`, after tables of `earlier_entries`.
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

    /// Sampled probes for absent keys that will come to a table of these entries with this stretch.
    fn empty_probes(&self, entries: u64, stretch: &KeyRange) -> f64 {
        let Surroundings { rule, sites, expected_entries, .. } = &self.surroundings;
        if rule.allocation != Allocation::Workload {
            return 0.0; // Nobody asks.
        }
        if self.inputs.is_empty() {
            let tree_entries = expected_entries + sites.iter().map(|site| site.entries).sum::<u64>();
            return rule.window.of_flush(entries, *expected_entries, tree_entries).empty;
        }
        let inputs =
            self.inputs.iter().map(|(run, table, probes)| Input { run: run.0, table, probes: *probes });
        inherited(&inputs.collect::<Vec<_>>(), stretch, &live_bytes).empty
    }
}

#[cfg(test)]
mod tests;
