//! A size ratio and a number of runs for each level: the cost of such a tree, and the best one for
//! a workload.
//!
//! The fluid tree ([`crate::Design`]) has one size ratio T, K runs on its inner levels and Z on the
//! last. Here level i holds T_i times the level above in at most K_i runs (K-LSM, VLDB Journal
//! 2024; Moose, SIGMOD 2024). Costs are those of [`crate::cost`], summed over the levels:
//! compactions by [`crate::updates`], filters by Monkey's rule for the levels' entries and runs.
//! With equal T_i they are those of the fluid tree, up to rounding.
//!
//! The data fits exactly with a buffer of
//!
//! ```text
//! M_buf = N E / (T_1 / (T_1 - 1) + T_1 + T_1 T_2 + ... + T_1 ... T_L)
//! ```
//!
//! whose first term stands for the limit of equation 1: with equal T it is N E (T - 1) / T^(L+1).
//!
//! [`best`] descends from the navigator's designs, also with other numbers of levels. It changes
//! the ratio or the runs of one level, the ratios of two levels against each other, and the
//! filters' memory, as long as that saves time, in steps of decreasing size. Its result never costs
//! more than the best fluid design.
//!
//! Not here: an engine with such levels. The gain decides whether there should be one
//! (`docs/decisions/0020-one-size-ratio-for-all-levels.md`).

use crate::cost::{LookupWork, RunGroup, Situation, empty_lookup, found_lookup};
use crate::design::{MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};
use crate::input;
use crate::monkey::{best_bits_per_key, bloom_fpr};
use crate::navigator::{Bounds, Navigation, Options, held_fences, navigate};
use crate::robust::{OPERATIONS, worst};
use crate::updates::{Merging, merges_on_inner, merges_on_last};
use shamba_filter::MAX_BITS_PER_KEY;

/// The shape of a level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// T_i: its capacity relative to the level above, or to the buffer; 2 to 1024.
    pub size_ratio: f64,
    /// K_i: maximum number of runs; 1 to 1024.
    pub runs: u32,
}

/// A tree whose levels have individual shapes, and a use of memory.
#[derive(Clone, PartialEq, Debug)]
pub struct PerLevelPlan {
    /// Smallest level first; at least one, at most 64.
    pub levels: Vec<Level>,
    /// The write buffer.
    pub buffer_bytes: u64,
    /// The filters' memory.
    pub filter_bytes: f64,
    /// The block cache.
    pub cache_bytes: u64,
}

/// The costs of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PerLevelCosts {
    /// Times of an empty lookup, a found lookup, an update and a range, in nanoseconds.
    pub operations_ns: [f64; OPERATIONS],
    /// The time of an operation of the workload; with an uncertainty, of the worst mix.
    pub cost_ns_per_op: f64,
    /// The reads of a lookup of the mix that the cache does not save.
    pub lookup_reads: f64,
    /// The I/Os of an update, in reads.
    pub update_ios: f64,
    /// Number of runs.
    pub runs: u64,
    /// Bytes stored per byte of live data, with the maximum number of obsolete entries.
    pub space_amplification: f64,
}

/// The costs of a plan in a situation. `uncertainty` as in [`Options::uncertainty`], `held_fences`
/// as in [`crate::cost::predict_held`].
///
/// # Errors
/// Input that is NaN or out of bounds, or costs that exceed the range of a float.
pub fn predict(
    situation: &Situation,
    plan: &PerLevelPlan,
    merging: Merging,
    held_fences: f64,
    uncertainty: f64,
) -> Result<PerLevelCosts, String> {
    situation.validate()?;
    plan.validate()?;
    input::share("the share of the fences that is held", held_fences)?;
    let Situation { data, workload, device, locality } = situation;
    let count = plan.levels.len();
    let capacities = capacities(&plan.levels);
    let all: f64 = capacities.iter().sum();
    let entries: Vec<f64> =
        capacities.iter().map(|capacity| data.entries as f64 * (capacity / all)).collect();

    let empty_fraction = workload.empty_fraction();
    let runs = |at: usize| f64::from(plan.levels[at].runs);
    // A key that is found on the last level saves half of its runs, as in Monkey's equation 15.
    let weight = |at: usize| match at + 1 == count {
        true => runs(at) - (1.0 - empty_fraction) * (runs(at) + 1.0) / 2.0,
        false => runs(at),
    };
    let sites = (0..count).map(|at| (entries[at], weight(at)));
    let bits_per_key = best_bits_per_key(sites, plan.filter_bytes * 8.0);
    let group =
        |at: usize| RunGroup { runs: runs(at), entries: entries[at], fpr: bloom_fpr(bits_per_key[at]) };
    let groups: Vec<RunGroup> = (0..count).map(group).collect();
    let (empty, found) = (empty_lookup(&groups), found_lookup(&groups));

    let cached_share = (plan.cache_bytes as f64 / data.bytes()).min(1.0);
    let reads_per_search = locality.miss_ratio(cached_share) + (1.0 - held_fences);
    let lookup_ns =
        |work: LookupWork| work.searches * reads_per_search * device.read_ns + device.cpu.lookup_ns(work);
    let merges: f64 = (0..count)
        .map(|at| {
            let Level { size_ratio, runs } = plan.levels[at];
            let has_tiered_above = at > 0 && plan.levels[at - 1].runs > 1;
            let merges = if at + 1 == count { merges_on_last } else { merges_on_inner };
            merges(size_ratio, f64::from(runs), has_tiered_above, merging)
        })
        .sum();
    let merged_pages = merges / data.entries_per_page();
    let run_count: f64 = (0..count).map(runs).sum();
    let range_pages = workload.range_selectivity * data.pages() + run_count;
    let range_reads = range_pages * (1.0 - cached_share) + run_count * (1.0 - held_fences);
    let operations_ns = [
        lookup_ns(empty),
        lookup_ns(found),
        merged_pages * (device.read_ns + device.write_ns),
        range_reads * device.read_ns + run_count * device.cpu.search_ns,
    ];
    let costs = PerLevelCosts {
        operations_ns,
        cost_ns_per_op: worst(&operations_ns, &workload.rates(), uncertainty)?.cost,
        lookup_reads: LookupWork::mix(empty, found, empty_fraction).searches * reads_per_search,
        update_ios: merged_pages * (1.0 + device.write_per_read()),
        // `as` saturates; runs are at most 64 times 1024.
        runs: run_count as u64,
        space_amplification: runs(count - 1) / (entries[count - 1] / data.entries as f64),
    };
    match costs.cost_ns_per_op.is_finite() && costs.space_amplification.is_finite() {
        true => Ok(costs),
        false => Err(format!("a cost would be {costs:?}: the input is beyond what a float can compute with")),
    }
}

impl PerLevelPlan {
    fn validate(&self) -> Result<(), String> {
        if !(1..=MAX_LEVELS as usize).contains(&self.levels.len()) {
            return Err(format!("levels must be from 1 to {MAX_LEVELS}, not {}", self.levels.len()));
        }
        for (at, level) in self.levels.iter().enumerate() {
            let Level { size_ratio, runs } = *level;
            if !(2.0..=MAX_SIZE_RATIO).contains(&size_ratio) || !(1..=MAX_RUNS).contains(&runs) {
                return Err(format!(
                    "level {at}: T must be from 2 to {MAX_SIZE_RATIO} and K from 1, not {level:?}"
                ));
            }
        }
        input::not_negative("the filters' bytes", self.filter_bytes)
    }
}

/// Capacities of levels, in units of the buffer.
fn capacities(levels: &[Level]) -> Vec<f64> {
    let grown = |capacity: &mut f64, level: &Level| {
        *capacity *= level.size_ratio;
        Some(*capacity)
    };
    levels.iter().scan(1.0, grown).collect()
}

/// The best tree with shapes per level, and the best fluid design.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The plan; the fluid one if no other is better.
    pub plan: PerLevelPlan,
    /// Its costs.
    pub costs: PerLevelCosts,
    /// The costs of the best fluid design, by the same functions.
    pub fluid: PerLevelCosts,
    /// The best fluid design.
    pub navigation: Navigation,
}

impl Found {
    /// The share of an operation's time that it saves over the fluid design.
    pub fn gain(&self) -> f64 {
        1.0 - self.costs.cost_ns_per_op / self.fluid.cost_ns_per_op.max(f64::MIN_POSITIVE)
    }
}

/// Factors by which the search changes ratios and filter bits: coarse ones for every start, fine
/// ones for the best.
const COARSE: [f64; 2] = [2.0, 1.4];
const FINE: [f64; 4] = [1.4, 1.15, 1.05, 1.015];
/// Number of starts that are refined.
const REFINED: usize = 3;
/// Numbers of levels that are tried besides those of a design: up to this many fewer or more.
const FEWER_LEVELS: u32 = 2;
const MORE_LEVELS: u32 = 3;
/// Minimum saving of a step, relative to the time.
const SAVING_MIN: f64 = 1e-6;

/// The best tree with a size ratio and runs for each level within `bounds`, with at most `runs_max`
/// runs on a level.
///
/// # Errors
/// As [`navigate`].
pub fn best(
    situation: &Situation,
    bounds: &Bounds,
    options: &Options,
    runs_max: u32,
) -> Result<Found, String> {
    let navigation = navigate(situation, bounds, options)?;
    let (_, held) = held_fences(situation, bounds, options);
    let search = Search { situation, bounds, options, runs_max, held };
    let kept = navigation.alternatives.iter().filter(|other| other.keeps_bounds);
    let designs: Vec<(crate::cost::Plan, u32)> = [(navigation.plan, navigation.costs.levels)]
        .into_iter()
        .chain(kept.map(|other| (other.plan, other.costs.levels)))
        .collect();
    let fluid = search.fluid(&designs[0].0, designs[0].1)?;
    let mut starts: Vec<State> = Vec::new();
    for (plan, levels) in &designs {
        for count in levels.saturating_sub(FEWER_LEVELS).max(1)..=levels + MORE_LEVELS {
            starts.extend(search.start(plan, count));
        }
    }
    let mut found: Vec<(State, PerLevelPlan, PerLevelCosts)> =
        starts.into_iter().filter_map(|state| search.descend(state, &COARSE)).collect();
    found.sort_by(|a, b| a.2.cost_ns_per_op.total_cmp(&b.2.cost_ns_per_op));
    found.truncate(REFINED);
    let refined = found.into_iter().filter_map(|(state, ..)| search.descend(state, &FINE));
    let best = refined
        .map(|(_, plan, costs)| (plan, costs))
        .chain([fluid.clone()])
        .min_by(|a, b| a.1.cost_ns_per_op.total_cmp(&b.1.cost_ns_per_op));
    let (plan, costs) = best.unwrap_or_else(|| fluid.clone());
    Ok(Found { plan, costs, fluid: fluid.1, navigation })
}

/// A point in the space of designs.
#[derive(Clone, PartialEq, Debug)]
struct State {
    levels: Vec<Level>,
    bits_per_key: f64,
}

struct Search<'s> {
    situation: &'s Situation,
    bounds: &'s Bounds,
    options: &'s Options,
    runs_max: u32,
    held: f64,
}

impl Search<'_> {
    /// The fluid design as a plan of this module.
    fn fluid(&self, plan: &crate::cost::Plan, count: u32) -> Result<(PerLevelPlan, PerLevelCosts), String> {
        let design = &plan.design;
        let level = |at| Level { size_ratio: design.size_ratio, runs: design.runs_allowed(at, count) };
        let plan = PerLevelPlan {
            levels: (1..=count).map(level).collect(),
            buffer_bytes: design.buffer_bytes,
            filter_bytes: plan.filters.bits(self.situation.data.entries)? / 8.0,
            cache_bytes: plan.cache_bytes,
        };
        let costs = self.predict(&plan)?;
        Ok((plan, costs))
    }

    fn predict(&self, plan: &PerLevelPlan) -> Result<PerLevelCosts, String> {
        predict(self.situation, plan, self.options.merging, self.held, self.options.uncertainty)
    }

    /// `count` levels of one ratio below the plan's buffer; `None` where the ratio would be less
    /// than 2.
    fn start(&self, plan: &crate::cost::Plan, count: u32) -> Option<State> {
        let wanted = self.situation.data.bytes() * self.options.growth / plan.design.buffer_bytes as f64;
        let (mut low, mut high) = (2.0, MAX_SIZE_RATIO);
        let holds = |ratio: f64| f64::from(count + 1) * ratio.ln() - (ratio - 1.0).ln();
        if holds(low) > wanted.max(f64::MIN_POSITIVE).ln() {
            return None;
        }
        for _ in 0..50 {
            let middle = low + (high - low) / 2.0;
            if holds(middle) < wanted.ln() { low = middle } else { high = middle }
        }
        let (inner, last) = match plan.design.policy() {
            Some(policy) => policy.runs(high),
            None => (plan.design.inner_runs, plan.design.last_runs),
        };
        let level = |at| Level {
            size_ratio: high,
            runs: if at < count { inner } else { last }.min(runs_max(high)).min(self.runs_max),
        };
        let bits_per_key =
            plan.filters.bits(self.situation.data.entries).ok()? / self.situation.data.entries as f64;
        Some(State { levels: (1..=count).map(level).collect(), bits_per_key })
    }

    /// The plan of a state, with the buffer that takes the data exactly, and its costs; `None`
    /// outside the bounds.
    fn at(&self, state: &State) -> Option<(PerLevelPlan, PerLevelCosts)> {
        let Self { situation, bounds, options, .. } = self;
        let first = state.levels.first()?.size_ratio;
        let buffers = first / (first - 1.0) + capacities(&state.levels).iter().sum::<f64>();
        let wanted = (situation.data.bytes() * options.growth / buffers).ceil();
        // `as` saturates.
        let buffer_bytes = (wanted as u64).max(options.smallest_buffer_bytes);
        let (fences, _) = held_fences(situation, bounds, options);
        let rest = bounds.memory_bytes as f64 - fences - buffer_bytes as f64 * options.buffers;
        if rest < 0.0 || buffer_bytes > options.largest_buffer_bytes(bounds.memory_bytes) {
            return None;
        }
        let entries = situation.data.entries as f64;
        let filter_bytes = (state.bits_per_key * entries / 8.0).min(rest);
        let cache_bytes = if options.block_cache { (rest - filter_bytes) as u64 } else { 0 };
        let plan = PerLevelPlan { levels: state.levels.clone(), buffer_bytes, filter_bytes, cache_bytes };
        let costs = self.predict(&plan).ok()?;
        let keeps = |cost: f64, bound: Option<f64>| bound.is_none_or(|bound| cost <= bound);
        let is_allowed = keeps(costs.lookup_reads, bounds.max_lookup_ios)
            && keeps(costs.update_ios, bounds.max_update_ios)
            && costs.space_amplification <= options.max_space;
        is_allowed.then_some((plan, costs))
    }

    /// Applies steps that save time, from large ones to small ones, until none does.
    fn descend(&self, mut state: State, factors: &[f64]) -> Option<(State, PerLevelPlan, PerLevelCosts)> {
        let (mut plan, mut costs) = self.at(&state)?;
        for &factor in factors {
            loop {
                let before = costs.cost_ns_per_op;
                for step in self.steps(&state, factor) {
                    let Some(next) = self.stepped(&state, step) else { continue };
                    let Some((next_plan, next_costs)) = self.at(&next) else { continue };
                    if next_costs.cost_ns_per_op < costs.cost_ns_per_op * (1.0 - SAVING_MIN) {
                        (state, plan, costs) = (next, next_plan, next_costs);
                    }
                }
                if costs.cost_ns_per_op >= before {
                    break;
                }
            }
        }
        Some((state, plan, costs))
    }

    fn steps(&self, state: &State, factor: f64) -> Vec<Step> {
        let count = state.levels.len();
        let mut steps = Vec::new();
        for at in 0..count {
            steps.extend([Step::Ratio(at, factor), Step::Ratio(at, 1.0 / factor)]);
            let runs = state.levels[at].runs;
            let most = runs_max(state.levels[at].size_ratio);
            let more = (f64::from(runs) * factor).ceil() as u32;
            let fewer = (f64::from(runs) / factor).floor() as u32;
            steps.extend([more, fewer, 1, most].map(|runs| Step::Runs(at, runs)));
            for other in (0..count).filter(|other| *other != at) {
                steps.push(Step::Exchange(at, other, factor));
            }
        }
        if self.options.block_cache {
            steps.extend([Step::Bits(factor), Step::Bits(1.0 / factor)]);
        }
        steps.push(Step::AllBits);
        steps
    }

    /// The state after a step; `None` if the step is impossible or changes nothing.
    fn stepped(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        let scale = |level: &mut Level, factor: f64| {
            let is_full = level.runs > 1 && level.runs == runs_max(level.size_ratio);
            level.size_ratio = (level.size_ratio * factor).clamp(2.0, MAX_SIZE_RATIO);
            let most = runs_max(level.size_ratio);
            level.runs = if is_full { most } else { level.runs.min(most) }.min(self.runs_max);
        };
        match step {
            Step::Ratio(at, factor) => scale(next.levels.get_mut(at)?, factor),
            Step::Exchange(at, other, factor) => {
                scale(next.levels.get_mut(at)?, factor);
                scale(next.levels.get_mut(other)?, 1.0 / factor);
            }
            Step::Runs(at, runs) => {
                let level = next.levels.get_mut(at)?;
                level.runs = runs.clamp(1, runs_max(level.size_ratio).min(self.runs_max));
            }
            Step::Bits(factor) => next.bits_per_key = (next.bits_per_key * factor).min(MAX_BITS_PER_KEY),
            Step::AllBits => next.bits_per_key = MAX_BITS_PER_KEY,
        }
        (next != *state).then_some(next)
    }
}

/// A change of a state.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Multiplies the ratio of a level by a factor.
    Ratio(usize, f64),
    /// Multiplies the ratio of one level by a factor and divides another's by it.
    Exchange(usize, usize, f64),
    /// Sets the runs of a level.
    Runs(usize, u32),
    /// Multiplies the filters' memory by a factor.
    Bits(f64),
    /// Gives all remaining memory to filters.
    AllBits,
}

/// Maximum runs that can accumulate on a level: one more would exceed its capacity.
fn runs_max(size_ratio: f64) -> u32 {
    MergePolicy::Tiering.runs(size_ratio).0.min(MAX_RUNS)
}

#[cfg(test)]
mod tests;
