//! The search: for each policy and number of levels a grid of size ratios and filter sizes, then closer and closer.
//!
//! Costs have steps (a level more, a run more at whole T), so no method that trusts slopes over the whole space would
//! do. Between steps they are smooth, with one lowest point, and there a golden section finds it: in T within the
//! stretch on which K and Z stay what they are, in filter bits over all that fit. The grid chooses where.
//!
//! Candidates that break a bound are compared by how much, so that the search walks toward what is allowed, and then
//! by cost.

use std::cmp::Ordering;

use super::{Bounds, Costs, Options, Plan, Situation, held_fences, predict_held};
use crate::cost::FilterBits;
use crate::design::{Design, MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO, MergePolicy};
use shamba_filter::MAX_BITS_PER_KEY;

/// How far the size ratios of the grid are apart, on a fine grid and a coarse one.
const STEP: [f64; 2] = [1.2, 1.5];
/// Filter bits per key that a grid tries, besides all that fit.
const BITS_PER_KEY: [f64; 3] = [4.0, 9.0, 16.0];
/// Points of the grid of each policy that are looked at more closely.
const CLOSER: [usize; 2] = [4, 1];
/// Steps of a golden section: the bracket shrinks to 0.62^n.
const SECTION_STEPS: u32 = 14;
/// Whole size ratios that are tried for the sake of simplicity.
const WHOLE_RATIOS: std::ops::RangeInclusive<u32> = 2..=20;
/// K and Z beyond the classical policies.
const FLUID: [(u32, u32); 9] = [(2, 1), (3, 1), (4, 1), (6, 1), (9, 1), (2, 2), (3, 3), (3, 2), (5, 3)];

/// What is to be least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// The time of an operation; with an uncertainty, of the worst mix.
    Time,
    /// The reads of a lookup.
    Lookups,
    /// The I/Os of an update.
    Updates,
}

/// How closely to look.
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

/// The runs that levels may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Runs {
    Policy(MergePolicy),
    Fixed(u32, u32),
}

impl Runs {
    /// (K, Z) at this size ratio; `None` where they are another policy's, or more than the ratio gives room for.
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

    /// How plain it is; less is plainer.
    fn rank(design: &Design) -> u32 {
        match design.policy() {
            Some(MergePolicy::Leveling) => 0,
            Some(MergePolicy::LazyLeveling) => 1,
            Some(MergePolicy::Tiering) => 2,
            None => 3,
        }
    }
}

/// A design and what it comes to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub plan: Plan,
    pub costs: Costs,
    /// How far it is beyond the bounds, relatively; 0 if it keeps them.
    pub violation: f64,
    /// What is to be least.
    pub value: f64,
    /// Where it was found.
    point: Point,
}

/// A place in the space of designs.
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

    /// Its value, for each of `other`'s; 1 where both are 0.
    pub fn times_the_cost_of(&self, other: &Self) -> f64 {
        if self.value == other.value { 1.0 } else { (self.value / other.value).min(f64::MAX) }
    }
}

/// What is searched, and for what.
#[derive(Clone, Copy)]
pub(super) struct Search<'s> {
    pub situation: &'s Situation,
    pub bounds: &'s Bounds,
    pub options: &'s Options,
    pub goal: Goal,
    pub grid: Grid,
}

impl Search<'_> {
    /// The best design with such runs; `None` if the memory is too little for any.
    pub fn best_of(&self, runs: Runs) -> Option<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for (levels, from, to) in self.stretches() {
            let mut last = 0.0;
            for mut size_ratio in self.grid_of(from, to) {
                if runs != Runs::Policy(MergePolicy::Leveling) {
                    // K and Z stay what they are up to a whole ratio.
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

    /// The best of the K and Z that have no name, near a design that is good.
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

    /// The simplest design that is as good as `fastest`, but for what counts as a tie.
    pub fn simplest(&self, fastest: &Candidate) -> Option<Candidate> {
        let most = fastest.value * (1.0 + self.options.tie);
        let is_tie = |candidate: &Candidate| candidate.violation == 0.0 && candidate.value <= most;
        // The number of levels that a whole ratio can have is that of its buffers.
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
                        // Not worth a closer look.
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

    /// The numbers of levels, and the size ratios from the least whose buffer fits into memory to the greatest whose
    /// buffer is not too small.
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
                // Data that fits into the smallest buffer any tree takes: then T is free. Beyond the ratio with which the
                // smallest buffer gives exactly so many levels it gives not quite as many, but no fewer up to the
                // ratio with which it gives exactly one less.
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
        // As a logarithm: T^(L+1) may be more than a float holds.
        let ln = data.ln() + (size_ratio - 1.0).ln() - f64::from(levels + 1) * size_ratio.ln();
        ln.exp()
    }

    /// How large the buffer may be.
    fn largest_buffer_bytes(&self) -> u64 {
        self.options.largest_buffer_bytes(self.bounds.memory_bytes)
    }

    /// What memory is left when the fences have theirs.
    fn memory_bytes(&self) -> f64 {
        let (fences, _) = held_fences(self.situation, self.bounds, self.options);
        (self.bounds.memory_bytes as f64 - fences).max(0.0)
    }

    /// Size ratios from one to the other, each about a step more than the last.
    fn grid_of(&self, from: f64, to: f64) -> impl Iterator<Item = f64> + use<> {
        // `as` saturates, and the ratios are at most 1024.
        let steps = ((to / from).ln() / self.grid.of(STEP).ln()).ceil().max(1.0) as u32;
        (0..=steps).map(move |step| from * (to / from).powf(f64::from(step) / f64::from(steps)))
    }

    /// The best of the filter sizes of the grid.
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

    /// The best around a point of the grid.
    fn closer(&self, runs: Runs, mut best: Candidate) -> Candidate {
        for _ in 0..2 {
            best = self.best_bits(runs, best);
            let Point { levels, size_ratio, bits_per_key } = best.point;
            let (mut from, mut to) = (size_ratio / 1.3, size_ratio * 1.3);
            if runs.at(from) != runs.at(size_ratio) || runs.at(to) != runs.at(size_ratio) {
                // K and Z stay what they are up to the next whole ratio.
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

    /// A golden section of `from..=to`, and its ends: the candidates at which it arrives.
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

    /// How far such costs are beyond the bounds, relatively.
    pub fn violation(&self, costs: &Costs) -> f64 {
        let beyond = |cost: f64, bound: Option<f64>| bound.map_or(0.0, |bound| excess(cost, bound));
        beyond(costs.lookup_reads, self.bounds.max_lookup_ios)
            + beyond(costs.merged_update_ios, self.bounds.max_update_ios)
            + excess(costs.space_amplification, self.options.max_space)
    }

    /// The time of an operation that designs are compared by, in nanoseconds.
    pub fn time_ns(&self, costs: &Costs) -> f64 {
        let uncertainty = self.options.uncertainty;
        if uncertainty == 0.0 {
            return costs.cost_ns_per_op;
        }
        // Neither costs nor rates are refused: both have been checked.
        costs.worst(&self.situation.workload, uncertainty).map_or(f64::INFINITY, |worst| worst.cost)
    }

    /// The runs and size ratio of `before` at their best here.
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

    /// What a point comes to; `None` where there is no design: its buffer does not fit, or K and Z are not these.
    fn candidate(&self, runs: Runs, point: Point) -> Option<Candidate> {
        let Self { situation, options, .. } = self;
        let (inner_runs, last_runs) = runs.at(point.size_ratio)?;
        let wanted = self.wanted_buffer_bytes(point.levels, point.size_ratio).ceil();
        // `as` saturates; a buffer beyond the greatest is refused below.
        let buffer_bytes = (wanted as u64).max(options.smallest_buffer_bytes);
        let rest = self.memory_bytes() - buffer_bytes as f64 * options.buffers;
        // A buffer that was rounded up may be a byte more than the memory.
        if rest < -options.buffers || buffer_bytes > self.largest_buffer_bytes() {
            return None;
        }
        let rest = rest.max(0.0);
        let entries = situation.data.entries as f64;
        // Who looks nothing up, and has no bound on lookups, has no use for filters.
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

/// How far `cost` is above `bound`, relatively; absolutely above 0.
fn excess(cost: f64, bound: f64) -> f64 {
    let above = (cost - bound).max(0.0);
    if bound.is_infinite() {
        return 0.0;
    }
    if bound > 0.0 { (above / bound).min(f64::MAX) } else { above }
}

/// How far a size ratio is from the usual one.
fn from_usual(size_ratio: f64) -> f64 {
    (size_ratio / Design::default().size_ratio).ln().abs()
}
