//! Reasons as text: why a design won, why others lost, why no design is left.
//!
//! Not here: the search ([`super::search`]).

use super::search::{Candidate, Goal, Runs, Search};
use super::{Bounds, Chosen, Options};
use crate::cost::{Plan, Situation};
use crate::design::{MAX_RUNS, MergePolicy};
use crate::robust::OPERATIONS;

/// A design's policy and size ratio.
pub(super) fn name(plan: &Plan) -> String {
    let design = &plan.design;
    match design.policy() {
        Some(policy) => format!("{policy} with T = {}", short(design.size_ratio)),
        None => format!(
            "K = {}, Z = {} with T = {}",
            design.inner_runs,
            design.last_runs,
            short(design.size_ratio)
        ),
    }
}

/// A figure with three significant digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size => (2.0 - size.log10().floor()).clamp(3.0, 12.0) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The reason why the best design won.
pub(super) fn why_best(bounds: &Bounds, options: &Options, chosen: &Chosen) -> String {
    let Chosen { best, fastest, .. } = chosen;
    let mut why = if best.plan.design == fastest.plan.design {
        format!("{} is the fastest design", name(&best.plan))
    } else if name(&best.plan) == name(&fastest.plan) {
        let is_whole = best.plan.design.size_ratio != fastest.plan.design.size_ratio;
        let whole = if is_whole { " with a whole T" } else { "" };
        format!("{} is the fastest design{whole}", name(&best.plan))
    } else {
        let percent = short(((best.times_the_cost_of(fastest) - 1.0) * 100.0).max(0.0));
        let faster = if percent == "0" { "no faster".to_owned() } else { format!("only {percent} % faster") };
        format!("{} is simpler than {}, which is {faster}", name(&best.plan), name(&fastest.plan))
    };
    if options.uncertainty > 0.0 {
        why += &format!(
            ", each design in its worst mix within an uncertainty of {}",
            short(options.uncertainty)
        );
    }
    for (what, bound, cost) in [
        ("lookups", bounds.max_lookup_ios, best.costs.lookup_reads),
        ("updates", bounds.max_update_ios, best.costs.merged_update_ios),
    ] {
        if let Some(bound) = bound {
            why += &format!("; {what} take {} of the allowed {} I/Os", short(cost), short(bound));
        }
    }
    why
}

/// Two different figures with as many digits as are needed to tell them apart.
fn apart(a: f64, b: f64) -> (String, String) {
    let (shown_a, shown_b) = (short(a), short(b));
    if shown_a != shown_b || a == b { (shown_a, shown_b) } else { (a.to_string(), b.to_string()) }
}

/// The bounds that the design breaks.
fn broken(bounds: &Bounds, options: &Options, other: &Candidate) -> Vec<String> {
    let (costs, max_space) = (&other.costs, options.max_space);
    [
        ("takes", "I/Os per lookup", costs.lookup_reads, bounds.max_lookup_ios),
        ("takes", "I/Os per update", costs.merged_update_ios, bounds.max_update_ios),
        ("stores", "bytes per byte of data", costs.space_amplification, Some(max_space)),
    ]
    .into_iter()
    .filter_map(|(verb, unit, cost, bound)| {
        let bound = bound.filter(|bound| cost > *bound)?;
        let (cost, bound) = apart(cost, bound);
        Some(format!("{verb} {cost} {unit}, more than the {bound} allowed"))
    })
    .collect()
}

/// The reason why a policy has no design where another has one; leveling has one wherever a buffer
/// fits.
pub(super) fn why_absent(policy: MergePolicy) -> String {
    match policy {
        MergePolicy::Leveling => "the costs of its designs cannot be computed".to_owned(),
        MergePolicy::Tiering | MergePolicy::LazyLeveling => format!(
            "no size ratio with a write buffer that fits in this memory gives its levels 2 to {MAX_RUNS} runs"
        ),
    }
}

/// The reason why `other` lost: the bounds that it breaks, or the kinds of operations for which it
/// is more expensive, and those for which it is cheaper.
pub(super) fn why_lost(
    situation: &Situation,
    bounds: &Bounds,
    options: &Options,
    best: &Candidate,
    other: &Candidate,
) -> String {
    if other.violation > 0.0 {
        return broken(bounds, options, other).join(", and ");
    }
    let slower = other.times_the_cost_of(best) - 1.0;
    let mut why = if slower.abs() <= options.tie {
        format!(
            "{} % {}, which is a tie, and more complex",
            short(slower.abs() * 100.0),
            faster_or_slower(slower)
        )
    } else {
        format!("{} % {}", short(slower.abs() * 100.0), faster_or_slower(slower))
    };
    let (mine, its) = (&best.costs, &other.costs);
    // In the other's worst mix the sum of the differences is at least the difference of the worst
    // mixes.
    let mix =
        its.worst(&situation.workload, options.uncertainty).map_or([0.0; OPERATIONS], |worst| worst.mix);
    let (my_ns, its_ns) = (mine.operations_ns(), its.operations_ns());
    let difference = |at: usize| if mix[at] > 0.0 { mix[at] * (its_ns[at] - my_ns[at]) } else { 0.0 };
    let mut parts: Vec<(f64, String)> = [
        ("lookups", difference(0) + difference(1), mine.lookup_reads, its.lookup_reads),
        ("updates", difference(2), mine.merged_update_ios, its.merged_update_ios),
        ("ranges", difference(3), mine.range_ios, its.range_ios),
    ]
    .into_iter()
    .map(|(what, difference, my_ios, its_ios)| {
        let verb = if difference > 0.0 { "cost" } else { "save" };
        let text = format!(
            "its {what} {verb} {} ns per operation ({} I/Os instead of {})",
            short(difference.abs()),
            short(its_ios),
            short(my_ios)
        );
        (difference, text)
    })
    .filter(|(difference, _)| *difference != 0.0)
    .collect();
    parts.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    if !parts.is_empty() {
        let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
        why += &format!(": {}", parts.join(", "));
    }
    why
}

fn faster_or_slower(slower: f64) -> &'static str {
    if slower < 0.0 { "faster" } else { "slower" }
}

/// The reason why no design keeps the bounds: the bound, and its minimum feasible value.
pub(super) fn infeasible(search: &Search<'_>) -> String {
    let Bounds { memory_bytes, max_lookup_ios, max_update_ios } = *search.bounds;
    let least = |goal, bounds: &Bounds| {
        let search = Search { goal, bounds, ..*search };
        let of_policies =
            MergePolicy::ALL.into_iter().filter_map(|policy| search.best_of(Runs::Policy(policy)));
        of_policies.min_by(Candidate::compare)
    };
    let free = Bounds { max_lookup_ios: None, max_update_ios: None, ..*search.bounds };
    if let Some(best) = least(Goal::Time, &free) {
        if best.violation > 0.0 {
            return format!(
                "no design in {memory_bytes} bytes of memory has a worst-case space amplification of at most {}: {} comes \
             closest, with {}",
                search.options.max_space,
                name(&best.plan),
                short(best.costs.space_amplification)
            );
        }
    }
    // A design that keeps the bound may break the bound on space instead.
    let within_space = match search.options.max_space {
        f64::INFINITY => String::new(),
        most => format!(" with a space amplification of at most {most}"),
    };
    for (what, bound, goal) in
        [("a lookup", max_lookup_ios, Goal::Lookups), ("an update", max_update_ios, Goal::Updates)]
    {
        let Some(bound) = bound else { continue };
        let Some(best) = least(goal, &free) else { continue };
        if best.value > bound {
            return format!(
                "no design in {memory_bytes} bytes of memory{within_space} executes {what} with at most {bound} I/Os: the minimum is \
                 {}, by {}",
                short(best.value),
                name(&best.plan)
            );
        }
    }
    let with_lookups = Bounds { max_lookup_ios, ..free };
    match (max_lookup_ios, least(Goal::Updates, &with_lookups)) {
        (Some(lookups), Some(best)) => format!(
            "no design in {memory_bytes} bytes of memory{within_space} meets both bounds: with lookups of at most {lookups} I/Os \
             an update takes at least {}, by {}",
            short(best.value),
            name(&best.plan)
        ),
        _ => format!(
            "no design holds this data with {memory_bytes} bytes of memory: with the maximum size ratio and the \
             largest write buffer that fits, it would need more levels than the maximum"
        ),
    }
}
