//! The search: for each policy and number of levels, a grid of size ratios and filter sizes, then
//! local refinement.
//!
//! Costs have steps (one level more, one run more at an integer T), so no method that relies on
//! slopes works over the whole space. Between steps they are smooth with one minimum, which a
//! golden-section search finds: in T within the interval in which K and Z are constant, and in
//! filter bits over all sizes that fit. The grid selects the starting points.
//!
//! Candidates that break a bound are compared by the violation first, so that the search moves
//! toward the feasible region, and then by cost.

use std::cmp::Ordering;

use super::{Bounds, Costs, Options, Plan, Situation, held_fences, predict_held};
use crate::cost::FilterBits;
use crate::design::{Design, MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};
use shamba_filter::MAX_BITS_PER_KEY;

/// Ratio between neighbouring size ratios of the grid, on a fine grid and a coarse one.
const STEP: [f64; 2] = [1.2, 1.5];
/// Filter bits per key that a grid tries, besides the most that fit.
const BITS_PER_KEY: [f64; 3] = [4.0, 9.0, 16.0];
/// Number of grid points of each policy that are refined.
const CLOSER: [usize; 2] = [4, 1];
/// Steps of a golden-section search: the bracket shrinks to 0.62^n.
const SECTION_STEPS: u32 = 14;
/// Integer size ratios that are tried to find a simpler design.
const WHOLE_RATIOS: std::ops::RangeInclusive<u32> = 2..=20;
/// Values of (K, Z) beyond the classical policies.
const FLUID: [(u32, u32); 9] = [(2, 1), (3, 1), (4, 1), (6, 1), (9, 1), (2, 2), (3, 3), (3, 2), (5, 3)];

/// The quantity to minimize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// The time of an operation; with an uncertainty, of the worst mix.
    Time,
    /// The reads of a lookup.
    Lookups,
    /// The I/Os of an update.
    Updates,
}

/// Resolution of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grid {
    Fine,
    Coarse,
}

impl Grid {
    fn of<T: Copy>(self, sizes: [T; 2]) -> T {
        sizes[usize::from(self == Self::Coarse)]
    }
}

/// The run limits of the levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Runs {
    Policy(MergePolicy),
    Fixed(u32, u32),
}

impl Runs {
    /// (K, Z) at this size ratio; `None` where they equal another policy's, or exceed what the
    /// ratio allows.
    fn at(self, size_ratio: f64) -> Option<(u32, u32)> {
        match self {
            Self::Policy(MergePolicy::Leveling) => Some((1, 1)),
            Self::Policy(policy) => Some(policy.runs(size_ratio))
                .filter(|runs| runs.0 > 1 && runs.0 <= MAX_RUNS && runs.1 <= MAX_RUNS),
            Self::Fixed(inner, last) => {
                let most = MergePolicy::Tiering.runs(size_ratio).0;
                (inner < most && last <= most).then_some((inner, last))
            }
        }
    }

    /// Rank in simplicity; a lower rank is simpler.
    fn rank(design: &Design) -> u32 {
        match design.policy() {
            Some(MergePolicy::Leveling) => 0,
            Some(MergePolicy::LazyLeveling) => 1,
            Some(MergePolicy::Tiering) => 2,
            None => 3,
        }
    }
}

/// A design and its costs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub plan: Plan,
    pub costs: Costs,
    /// Relative excess over the bounds; 0 if it keeps them.
    pub violation: f64,
    /// The quantity to minimize.
    pub value: f64,
    /// The point at which it was found.
    point: Point,
}

/// A point in the space of designs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    levels: u32,
    size_ratio: f64,
    bits_per_key: f64,
}

impl Candidate {
    pub fn compare(&self, other: &Self) -> Ordering {
        self.violation.total_cmp(&other.violation).then(self.value.total_cmp(&other.value))
    }

    /// Its value relative to `other`'s; 1 where both are 0.
    pub fn times_the_cost_of(&self, other: &Self) -> f64 {
        if self.value == other.value { 1.0 } else { (self.value / other.value).min(f64::MAX) }
    }
}

/// The input and the goal of a search.
#[derive(Clone, Copy)]
pub(super) struct Search<'s> {
    pub situation: &'s Situation,
    pub bounds: &'s Bounds,
    pub options: &'s Options,
    pub goal: Goal,
    pub grid: Grid,
}

impl Search<'_> {
    /// The best design with such runs; `None` if the memory is too small for any.
    pub fn best_of(&self, runs: Runs) -> Option<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for (levels, from, to) in self.stretches() {
            let mut last = 0.0;
            for mut size_ratio in self.grid_of(from, to) {
                if runs != Runs::Policy(MergePolicy::Leveling) {
                    // K and Z are constant up to the next integer ratio.
                    size_ratio = size_ratio.ceil().min(to);
                }
                if size_ratio != last {
                    found.extend(self.best_on_grid(runs, levels, size_ratio));
                }
                last = size_ratio;
            }
        }
        found.sort_by(Candidate::compare);
        found.dedup_by(|a, b| a.plan == b.plan);
        found.truncate(self.grid.of(CLOSER));
        found.into_iter().map(|candidate| self.closer(runs, candidate)).min_by(Candidate::compare)
    }

    /// The best design with an unnamed K and Z, near a given design.
    pub fn best_fluid(&self, near: &Candidate) -> Option<Candidate> {
        if !self.options.fluid {
            return None;
        }
        let mut best: Option<(Runs, Candidate)> = None;
        for (inner, last) in FLUID {
            let runs = Runs::Fixed(inner, last);
            for (levels, from, to) in self.stretches() {
                for size_ratio in self.grid_of(from, to) {
                    let point = Point { levels, size_ratio, bits_per_key: near.point.bits_per_key };
                    let Some(candidate) = self.candidate(runs, point) else { continue };
                    if best.as_ref().is_none_or(|(_, best)| candidate.compare(best).is_lt()) {
                        best = Some((runs, candidate));
                    }
                }
            }
        }
        best.map(|(runs, candidate)| self.closer(runs, candidate))
    }

    /// The simplest design within the tie of `fastest`.
    pub fn simplest(&self, fastest: &Candidate) -> Option<Candidate> {
        let most = fastest.value * (1.0 + self.options.tie);
        let is_tie = |candidate: &Candidate| candidate.violation == 0.0 && candidate.value <= most;
        // An integer ratio can have the numbers of levels whose buffers fit.
        let stretches: Vec<(u32, f64, f64)> = self.stretches().collect();
        let near = fastest.point.size_ratio;
        let mut ratios: Vec<f64> = WHOLE_RATIOS.map(f64::from).chain([near.floor(), near.ceil()]).collect();
        ratios.sort_by(|a, b| from_usual(*a).total_cmp(&from_usual(*b)));
        for policy in [MergePolicy::Leveling, MergePolicy::LazyLeveling, MergePolicy::Tiering] {
            let runs = Runs::Policy(policy);
            if Runs::rank(&Design::new(policy, 10.0, 0, 0.0)) > Runs::rank(&fastest.plan.design) {
                break;
            }
            for &size_ratio in &ratios {
                let possible = stretches.iter().filter(|(_, from, to)| (*from..=*to).contains(&size_ratio));
                let best = possible
                    .filter_map(|(levels, ..)| {
                        let bits_per_key = fastest.point.bits_per_key;
                        let first =
                            self.candidate(runs, Point { levels: *levels, size_ratio, bits_per_key })?;
                        // Too far from a tie to be refined.
                        let hopeless = first.value > fastest.value * (1.0 + 4.0 * self.options.tie);
                        if hopeless { None } else { Some(self.best_bits(runs, first)) }
                    })
                    .filter(is_tie)
                    .min_by(Candidate::compare);
                if best.is_some() {
                    return best;
                }
            }
        }
        None
    }

    /// The numbers of levels, each with its interval of size ratios: from the minimum whose buffer
    /// fits into memory to the maximum whose buffer is not too small.
    fn stretches(&self) -> impl Iterator<Item = (u32, f64, f64)> {
        let smallest = self.options.smallest_buffer_bytes as f64;
        let largest = (self.memory_bytes() / self.options.buffers).min(self.largest_buffer_bytes() as f64);
        let wanted = move |levels| self.wanted_buffer_bytes(levels, 2.0);
        let ratio_of = move |levels, bytes: f64| {
            let (mut low, mut high) = (2.0, MAX_SIZE_RATIO);
            for _ in 0..60 {
                let middle = low + (high - low) / 2.0;
                if self.wanted_buffer_bytes(levels, middle) > bytes {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            high
        };
        (1..=MAX_LEVELS).take_while(move |levels| *levels == 1 || wanted(*levels - 1) > smallest).filter_map(
            move |levels| {
                if self.wanted_buffer_bytes(levels, MAX_SIZE_RATIO) > largest {
                    return None;
                }
                let from = if wanted(levels) > largest { ratio_of(levels, largest) } else { 2.0 };
                // Data that fits into the smallest buffer suits any tree: then T is free. Beyond
                // the ratio at which the smallest buffer gives exactly `levels` levels, the data
                // needs slightly less than that many; it needs one level fewer only beyond the
                // ratio at which the smallest buffer gives exactly one fewer.
                let to = match (wanted(levels) > smallest, levels) {
                    (true, ..=1) => ratio_of(1, smallest).max(from),
                    (_, 2..) => ratio_of(levels - 1, smallest).max(from),
                    (false, ..=1) => 10.0,
                };
                Some((levels, from, to))
            },
        )
    }

    /// The buffer with which a tree of `levels` takes the data and its growth exactly.
    fn wanted_buffer_bytes(&self, levels: u32, size_ratio: f64) -> f64 {
        let data = self.situation.data.bytes() * self.options.growth;
        // As a logarithm: T^(L+1) may exceed the range of a float.
        let ln = data.ln() + (size_ratio - 1.0).ln() - f64::from(levels + 1) * size_ratio.ln();
        ln.exp()
    }

    /// Maximum buffer size.
    fn largest_buffer_bytes(&self) -> u64 {
        self.options.largest_buffer_bytes(self.bounds.memory_bytes)
    }

    /// The memory that remains after the fences.
    fn memory_bytes(&self) -> f64 {
        let (fences, _) = held_fences(self.situation, self.bounds, self.options);
        (self.bounds.memory_bytes as f64 - fences).max(0.0)
    }

    /// Size ratios in `from..=to`, in geometric steps of about the grid's ratio.
    fn grid_of(&self, from: f64, to: f64) -> impl Iterator<Item = f64> + use<> {
        // `as` saturates, and the ratios are at most 1024.
        let steps = ((to / from).ln() / self.grid.of(STEP).ln()).ceil().max(1.0) as u32;
        (0..=steps).map(move |step| from * (to / from).powf(f64::from(step) / f64::from(steps)))
    }

    /// The best of the grid's filter sizes.
    fn best_on_grid(&self, runs: Runs, levels: u32, size_ratio: f64) -> Option<Candidate> {
        let all = self.candidate(runs, Point { levels, size_ratio, bits_per_key: MAX_BITS_PER_KEY })?;
        if !self.options.block_cache {
            return Some(all);
        }
        let most = all.point.bits_per_key;
        let less = BITS_PER_KEY[self.grid.of([0, 1])..self.grid.of([3, 2])].iter().copied();
        let less = less.filter(|bits| *bits < most);
        let less =
            less.filter_map(|bits_per_key| self.candidate(runs, Point { levels, size_ratio, bits_per_key }));
        less.chain([all]).min_by(Candidate::compare)
    }

    /// The best design around a point of the grid.
    fn closer(&self, runs: Runs, mut best: Candidate) -> Candidate {
        for _ in 0..2 {
            best = self.best_bits(runs, best);
            let Point { levels, size_ratio, bits_per_key } = best.point;
            let (mut from, mut to) = (size_ratio / 1.3, size_ratio * 1.3);
            if runs.at(from) != runs.at(size_ratio) || runs.at(to) != runs.at(size_ratio) {
                // K and Z are constant up to the next integer ratio.
                (from, to) = (from.max(size_ratio.ceil() - 1.0 + 1e-9), to.min(size_ratio.ceil()));
            }
            let (from, to) = (from.max(2.0), to.min(MAX_SIZE_RATIO));
            let at = |size_ratio| self.candidate(runs, Point { levels, size_ratio, bits_per_key });
            best = self
                .section(from, to, at)
                .chain([best])
                .min_by(Candidate::compare)
                .expect("at least the one");
        }
        self.best_bits(runs, best)
    }

    /// The best filter size.
    fn best_bits(&self, runs: Runs, best: Candidate) -> Candidate {
        if !self.options.block_cache {
            return best;
        }
        let at = |bits_per_key| self.candidate(runs, Point { bits_per_key, ..best.point });
        let most = at(MAX_BITS_PER_KEY).map_or(0.0, |all| all.point.bits_per_key);
        let found = self.section(0.0, most, at);
        found.chain([best.clone()]).min_by(Candidate::compare).expect("at least the one")
    }

    /// The candidates at which a golden-section search of `from..=to` arrives, and those at its
    /// ends.
    fn section<'a>(
        &self,
        from: f64,
        to: f64,
        at: impl Fn(f64) -> Option<Candidate> + 'a,
    ) -> impl Iterator<Item = Candidate> + 'a {
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let is_less = |a: &Option<Candidate>, b: &Option<Candidate>| match (a, b) {
            (Some(a), Some(b)) => a.compare(b).is_le(),
            (a, _) => a.is_some(),
        };
        let (mut low, mut high) = (from, to);
        let (mut left_at, mut right_at) = (high - golden * (high - low), low + golden * (high - low));
        let (mut left, mut right) = (at(left_at), at(right_at));
        for _ in 0..SECTION_STEPS {
            if is_less(&left, &right) {
                (high, right_at, right) = (right_at, left_at, left);
                left_at = high - golden * (high - low);
                left = at(left_at);
            } else {
                (low, left_at, left) = (left_at, right_at, right);
                right_at = low + golden * (high - low);
                right = at(right_at);
            }
        }
        [left, right, at(from), at(to)].into_iter().flatten()
    }

    /// Relative excess of these costs over the bounds.
    pub fn violation(&self, costs: &Costs) -> f64 {
        let beyond = |cost: f64, bound: Option<f64>| bound.map_or(0.0, |bound| excess(cost, bound));
        beyond(costs.lookup_reads, self.bounds.max_lookup_ios)
            + beyond(costs.merged_update_ios, self.bounds.max_update_ios)
            + excess(costs.space_amplification, self.options.max_space)
    }

    /// The time of an operation by which designs are compared, in nanoseconds.
    pub fn time_ns(&self, costs: &Costs) -> f64 {
        let uncertainty = self.options.uncertainty;
        if uncertainty == 0.0 {
            return costs.cost_ns_per_op;
        }
        // Cannot fail: both costs and rates have been checked.
        costs.worst(&self.situation.workload, uncertainty).map_or(f64::INFINITY, |worst| worst.cost)
    }

    /// The best design here with the runs and size ratio of `before`.
    pub fn again(&self, before: &Candidate) -> Option<Candidate> {
        let Point { size_ratio, bits_per_key, .. } = before.point;
        let design = &before.plan.design;
        let runs = design.policy().map_or(Runs::Fixed(design.inner_runs, design.last_runs), Runs::Policy);
        self.stretches()
            .filter(|(_, from, to)| (*from..=*to).contains(&size_ratio))
            .filter_map(|(levels, ..)| self.candidate(runs, Point { levels, size_ratio, bits_per_key }))
            .map(|candidate| self.best_bits(runs, candidate))
            .min_by(Candidate::compare)
    }

    /// The candidate at a point; `None` where there is no design: its buffer does not fit, or K and
    /// Z are not these.
    fn candidate(&self, runs: Runs, point: Point) -> Option<Candidate> {
        let Self { situation, options, .. } = self;
        let (inner_runs, last_runs) = runs.at(point.size_ratio)?;
        let wanted = self.wanted_buffer_bytes(point.levels, point.size_ratio).ceil();
        // `as` saturates; a buffer above the maximum is rejected below.
        let buffer_bytes = (wanted as u64).max(options.smallest_buffer_bytes);
        let rest = self.memory_bytes() - buffer_bytes as f64 * options.buffers;
        // Rounding up the buffer may exceed the memory by a byte.
        if rest < -options.buffers || buffer_bytes > self.largest_buffer_bytes() {
            return None;
        }
        let rest = rest.max(0.0);
        let entries = situation.data.entries as f64;
        // Without lookups and without a bound on lookups, filters save nothing.
        let is_asked = situation.workload.has_lookups()
            || self.bounds.max_lookup_ios.is_some()
            || self.goal == Goal::Lookups;
        let useful = if is_asked { point.bits_per_key } else { 0.0 };
        let bits_per_key = useful.min(rest * 8.0 / entries);
        let filter_bytes = bits_per_key * entries / 8.0;
        let cache_bytes = if options.block_cache { (rest - filter_bytes).max(0.0) as u64 } else { 0 };
        let design =
            Design { size_ratio: point.size_ratio, inner_runs, last_runs, buffer_bytes, bits_per_key };
        let plan = Plan {
            design,
            filters: FilterBits::Bytes(filter_bytes),
            allocation: options.allocation,
            cache_bytes,
            levels: None,
        };
        let (_, held) = held_fences(situation, self.bounds, options);
        let costs = predict_held(situation, &plan, options.merging, held).ok()?;
        let violation = self.violation(&costs);
        let value = match self.goal {
            Goal::Time => self.time_ns(&costs),
            Goal::Lookups => costs.lookup_reads,
            Goal::Updates => costs.merged_update_ios,
        };
        Some(Candidate { plan, costs, violation, value, point: Point { bits_per_key, ..point } })
    }
}

/// Excess of `cost` over `bound`, relative to the bound; absolute if the bound is 0.
fn excess(cost: f64, bound: f64) -> f64 {
    let above = (cost - bound).max(0.0);
    if bound.is_infinite() {
        return 0.0;
    }
    if bound > 0.0 { (above / bound).min(f64::MAX) } else { above }
}

/// Distance of a size ratio from the usual one.
fn from_usual(size_ratio: f64) -> f64 {
    (size_ratio / Design::default().size_ratio).ln().abs()
}
