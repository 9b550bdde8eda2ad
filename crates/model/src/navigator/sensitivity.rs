//! Sensitivity: the effect of halving or doubling each input on the predicted throughput and on the
//! choice.
//!
//! Each answer comes from a separate search on a coarse grid, and from the cost of the chosen
//! design in the other situation.
//!
//! Not here: the search ([`super::search`]).

use super::search::{Candidate, Goal, Grid, Search};
use super::{Bounds, Options, Plan, Situation, choose, held_fences, predict_held};

/// An input of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// N.
    Entries,
    /// E.
    EntryBytes,
    /// All memory.
    Memory,
    /// Lookups that find nothing, relative to all other operations.
    EmptyLookups,
    /// Lookups that find their key.
    FoundLookups,
    /// Updates.
    Updates,
    /// Range lookups.
    Ranges,
    /// The time of a page read.
    ReadTime,
    /// The time of a page write.
    WriteTime,
}

impl Input {
    /// Every input.
    pub const ALL: [Self; 9] = [
        Self::Entries,
        Self::EntryBytes,
        Self::Memory,
        Self::EmptyLookups,
        Self::FoundLookups,
        Self::Updates,
        Self::Ranges,
        Self::ReadTime,
        Self::WriteTime,
    ];

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::EntryBytes => "entry_bytes",
            Self::Memory => "memory",
            Self::EmptyLookups => "empty_lookups",
            Self::FoundLookups => "found_lookups",
            Self::Updates => "updates",
            Self::Ranges => "ranges",
            Self::ReadTime => "read_time",
            Self::WriteTime => "write_time",
        }
    }

    /// The situation and bounds with the input multiplied by `factor`; `None` if it is 0 or the
    /// result is NaN.
    pub fn scaled(self, situation: &Situation, bounds: &Bounds, factor: f64) -> Option<(Situation, Bounds)> {
        let (mut situation, mut bounds) = (*situation, *bounds);
        let scale = |value: &mut f64| {
            *value *= factor;
            (*value > 0.0).then_some(())
        };
        let scale_count = |value: &mut u64| {
            // `as` saturates.
            *value = (*value as f64 * factor).round() as u64;
            (*value > 0).then_some(())
        };
        match self {
            Self::Entries => scale_count(&mut situation.data.entries),
            Self::EntryBytes => scale(&mut situation.data.entry_bytes),
            Self::Memory => scale_count(&mut bounds.memory_bytes),
            Self::EmptyLookups => scale(&mut situation.workload.empty_lookups),
            Self::FoundLookups => scale(&mut situation.workload.found_lookups),
            Self::Updates => scale(&mut situation.workload.updates),
            Self::Ranges => scale(&mut situation.workload.ranges),
            Self::ReadTime => scale(&mut situation.device.read_ns),
            Self::WriteTime => scale(&mut situation.device.write_ns),
        }?;
        Some((situation, bounds))
    }
}

/// The effect of one input.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// The input.
    pub input: Input,
    /// The exponent e of throughput ~ input^e for the best design, between half and twice the
    /// input: -1 if doubling the input halves the throughput. `None` where one of the two has no
    /// design.
    pub elasticity: Option<f64>,
    /// The best design at half the input.
    pub halved: Option<Response>,
    /// The best design at twice the input.
    pub doubled: Option<Response>,
}

/// The best design in another situation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Response {
    /// The best design there.
    pub plan: Plan,
    /// Its predicted throughput; with an uncertainty, in its worst mix, as for the other fields.
    pub throughput_per_s: f64,
    /// Throughput of the design chosen here in that situation; `None` if it exceeds the memory,
    /// breaks a bound, or cannot be computed.
    pub kept_throughput_per_s: Option<f64>,
    /// Whether another policy or size ratio is better there by more than a tie.
    pub changes: bool,
}

pub(super) fn of_all(
    situation: &Situation,
    bounds: &Bounds,
    options: &Options,
    best: &Candidate,
) -> Vec<Sensitivity> {
    // Unnamed K and Z are searched again only where they won.
    let options = Options { fluid: options.fluid && best.plan.design.policy().is_none(), ..*options };
    let of = |input: Input| {
        let respond = |factor| {
            let (situation, bounds) = input.scaled(situation, bounds, factor)?;
            respond(&situation, &bounds, &options, best)
        };
        // An input of 0 cannot be halved.
        input.scaled(situation, bounds, 1.0)?;
        let (halved, doubled) = (respond(0.5), respond(2.0));
        let elasticity = halved.zip(doubled).map(|(halved, doubled)| {
            (doubled.throughput_per_s.ln() - halved.throughput_per_s.ln()) / 4f64.ln()
        });
        Some(Sensitivity { input, elasticity, halved, doubled })
    };
    Input::ALL.into_iter().filter_map(of).collect()
}

fn respond(situation: &Situation, bounds: &Bounds, options: &Options, best: &Candidate) -> Option<Response> {
    let there = choose(situation, bounds, options, Grid::Coarse).ok()?.best;
    let (fences, held) = held_fences(situation, bounds, options);
    let needed = best.plan.design.buffer_bytes as f64 * options.buffers
        + best.costs.filter_bytes
        + best.plan.cache_bytes as f64
        + fences;
    // Bytes added by rounding do not count as exceeding the memory.
    let fits = needed <= bounds.memory_bytes as f64 * (1.0 + 1e-9) + 16.0;
    let largest = options.largest_buffer_bytes(bounds.memory_bytes);
    let fits = fits && best.plan.design.buffer_bytes <= largest;
    let search = Search { situation, bounds, options, goal: Goal::Time, grid: Grid::Coarse };
    let kept = predict_held(situation, &best.plan, options.merging, held)
        .ok()
        .filter(|costs| fits && search.violation(costs) == 0.0);
    let throughput = |time_ns: f64| (1e9 / time_ns).min(f64::MAX);
    let kept_throughput_per_s = kept.map(|costs| throughput(search.time_ns(&costs)));
    // Its runs and size ratio with another division of the memory do not count as a change.
    let same = search.again(best).filter(|again| again.violation == 0.0);
    let candidates = [(there.plan, throughput(there.value))]
        .into_iter()
        .chain(same.as_ref().map(|same| (same.plan, throughput(same.value))))
        .chain(kept_throughput_per_s.map(|throughput| (best.plan, throughput)));
    let is_same = |plan: &Plan| {
        let (before, after) = (&best.plan.design, &plan.design);
        before.size_ratio == after.size_ratio
            && (before.inner_runs, before.last_runs) == (after.inner_runs, after.last_runs)
    };
    let (fastest, throughput_per_s) = candidates.clone().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let least = throughput_per_s / (1.0 + options.tie);
    let tied = candidates.filter(|(plan, throughput)| is_same(plan) && *throughput >= least);
    let plan = tied.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(fastest, |(plan, _)| plan);
    Some(Response { plan, throughput_per_s, kept_throughput_per_s, changes: !is_same(&plan) })
}
