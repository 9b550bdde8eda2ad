//! Figures 11 a to d: what each step of tuning adds, over the memory, for four mixes of lookups and updates. The model.
//!
//! Each step searches what it may choose and keeps the least cost of an operation. What a step may not choose is as the state of
//! the art has it: leveling, T = 10, 95 % of the memory for filters, the same bits for all.
//!
//! The paper's workloads are named, not given in figures: the shares of lookups here are ours.

use crate::chart::Axis;
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::Situation;
use shamba_model::navigator::{Bounds, Options, navigate};

use super::analysis::{self, ENTRIES, PAGE_BYTES, POLICIES, fixed};
use super::point::percent;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Paper, Parameter, Table, Verdict};

const BITS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0];
/// The rule of thumb is said to be near the best below this many bits.
const NEAR_BELOW: f64 = 20.0;
const USUAL_RATIO: f64 = 10.0;
const USUAL_FILTERS: f64 = 0.95;
const SIZE_RATIOS: [f64; 20] = [
    2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 32.0, 40.0, 64.0, 128.0,
    256.0, 512.0,
];
/// Filters' parts of the memory that are tried; finely where little is left for the buffer.
const FILTERS: [f64; 16] =
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999];

const CLAIM_READS: &str = "Tuning all knobs together is best at any memory; 95 % filters and 5 % buffer is near that below 20 bits per key for workloads that read.";
const CLAIM_WRITES: &str = "Tuning all knobs together is best at any memory; 95 % filters and 5 % buffer misses it where little memory is better spent on the buffer alone.";

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig11a",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Fig 11 a",
    title: "steps of tuning over memory, write-mostly, model",
    claim: CLAIM_WRITES,
    parameters: |_| parameters(0.1),
    run: |_| run(0.1, CLAIM_WRITES),
};

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig11b",
    place: "Fig 11 b",
    title: "steps of tuning over memory, balanced, model",
    claim: CLAIM_READS,
    parameters: |_| parameters(0.5),
    run: |_| run(0.5, CLAIM_READS),
    ..A
};

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig11c",
    place: "Fig 11 c",
    title: "steps of tuning over memory, read-heavy, model",
    parameters: |_| parameters(0.8),
    run: |_| run(0.8, CLAIM_READS),
    ..B
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig11d",
    place: "Fig 11 d",
    title: "steps of tuning over memory, read-mostly, model",
    parameters: |_| parameters(0.95),
    run: |_| run(0.95, CLAIM_READS),
    ..B
};

/// What a step may choose.
#[derive(Clone, Copy, Debug)]
struct Step {
    name: &'static str,
    allocation: Allocation,
    splits: &'static [f64],
    policies: &'static [MergePolicy],
    size_ratios: &'static [f64],
}

const ART: Step = Step {
    name: "state of the art",
    allocation: Allocation::Uniform,
    splits: &[USUAL_FILTERS],
    policies: &[MergePolicy::Leveling],
    size_ratios: &[USUAL_RATIO],
};
const BITS_TUNED: Step = Step { name: "+ filter bits", allocation: Allocation::Monkey, ..ART };
const SPLIT_TUNED: Step = Step { name: "+ filters and buffer", splits: &FILTERS, ..BITS_TUNED };
const POLICY_TUNED: Step = Step { name: "+ merge policy", policies: &POLICIES, ..SPLIT_TUNED };
const ALL_TUNED: Step = Step { name: "all together", size_ratios: &SIZE_RATIOS, ..POLICY_TUNED };
const RULE_OF_THUMB: Step = Step { name: "95/5, + policy, ratio", splits: &[USUAL_FILTERS], ..ALL_TUNED };
const STEPS: [Step; 6] = [ART, BITS_TUNED, SPLIT_TUNED, POLICY_TUNED, RULE_OF_THUMB, ALL_TUNED];
const HYBRID: usize = 4;
const HOLISTIC: usize = 5;

/// A design, and what an operation costs with it.
#[derive(Clone, Debug)]
struct Best {
    cost_ns: f64,
    design: String,
    filters_share: f64,
}

fn parameters(lookups: f64) -> Vec<Parameter> {
    let mut all = vec![
        Parameter::varied("buffer and filters [bits per key]", BITS),
        Parameter::varied("tuning", STEPS.map(|step| step.name)),
        Parameter::fixed("empty lookups", lookups),
        Parameter::fixed("updates", 1.0 - lookups),
    ];
    all.extend(fixed(&["size ratio", "buffer bytes"]));
    all
}

fn best(situation: &Situation, step: &Step, memory_bytes: f64) -> Result<Best, String> {
    let mut best: Option<Best> = None;
    for &share in step.splits {
        let buffer = (memory_bytes * (1.0 - share)).max(PAGE_BYTES as f64);
        let filters = memory_bytes - buffer;
        for &policy in step.policies {
            for &ratio in step.size_ratios {
                let costs =
                    analysis::costs(situation, (policy, ratio), buffer as u64, filters, step.allocation)?;
                if best.as_ref().is_none_or(|best| costs.cost_ns_per_op < best.cost_ns) {
                    let letter = if policy == MergePolicy::Leveling { 'L' } else { 'T' };
                    let design = format!("{letter}{ratio}");
                    best = Some(Best { cost_ns: costs.cost_ns_per_op, design, filters_share: share });
                }
            }
        }
    }
    best.ok_or_else(|| format!("{} chooses nothing", step.name))
}

fn run(lookups: f64, claim: &str) -> Result<Finding, String> {
    let situation = analysis::situation(lookups, 1.0 - lookups);
    let mut table = Table::new(&[
        "tuning",
        "bits_per_key",
        "design",
        "filters_share",
        "ns_per_op",
        "throughput_share_of_best",
    ]);
    let mut curves: Vec<(String, Vec<(f64, f64)>)> =
        STEPS.iter().map(|step| (step.name.to_owned(), Vec::new())).collect();
    curves.push(("our navigator".to_owned(), Vec::new()));
    // Of the rule of thumb with a chosen design, against all together: (bits, share of the throughput).
    let mut hybrid = Vec::new();
    let mut is_best = true;
    let mut designs = Vec::new();
    for bits in BITS {
        let memory = bits * ENTRIES as f64 / 8.0;
        let of_steps: Vec<Best> =
            STEPS.iter().map(|step| best(&situation, step, memory)).collect::<Result<_, _>>()?;
        let least = of_steps[HOLISTIC].cost_ns;
        is_best &= of_steps.iter().all(|step| step.cost_ns >= least * (1.0 - 1e-9));
        let bounds = Bounds { memory_bytes: memory as u64, max_lookup_ios: None, max_update_ios: None };
        let options = Options { sensitivity: false, ..Options::PAPER };
        let ours = navigate(&situation, &bounds, &options)?;
        let filters = ours.costs.filter_bytes / memory;
        let our_best =
            Best {
                cost_ns: ours.costs.cost_ns_per_op,
                design: ours.plan.design.policy().map_or_else(String::new, |policy| {
                    format!("{policy} T{:.1}", ours.plan.design.size_ratio)
                }),
                filters_share: filters,
            };
        for (best, (name, curve)) in of_steps.iter().chain([&our_best]).zip(&mut curves) {
            let share = least / best.cost_ns;
            curve.push((bits, share));
            table.row(row![name.clone(), bits, best.design.clone(), best.filters_share, best.cost_ns, share]);
        }
        hybrid.push((bits, least / of_steps[HYBRID].cost_ns));
        let Best { design, filters_share, .. } = &of_steps[HOLISTIC];
        designs.push(format!("{bits}: {design}, {}", percent(*filters_share)));
    }
    let worst =
        hybrid.iter().filter(|(bits, _)| *bits < NEAR_BELOW).map(|(_, share)| *share).fold(1.0, f64::min);
    let baseline = curves[0].1.iter().map(|(_, share)| *share).fold(1.0, f64::min);
    let verdict = verdict(is_best, worst, lookups < 0.5);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "The paper does not give its mixes and data in figures; these are ours, and where the rule of thumb loses depends on them.".to_owned(),
    };
    let note = format!(
        "Computed: equations 7, 10, 21 and 56; 512 GB of entries of 16 bytes; {} of the operations are empty lookups, the rest updates. The best \
         designs (bits per key: policy and T, the filters' part): {}. Our navigator may also take lazy leveling and any T.",
        percent(lookups),
        designs.join("; ")
    );
    let axes =
        (Axis::linear("buffer and filters [bits per key]"), Axis::from_zero("throughput, 1 = all together"));
    Ok(Finding {
        ours: format!(
            "All together is {} at any memory; the state of the art has at worst {} of its throughput, and 95/5 with chosen policy and ratio {} \
             below {NEAR_BELOW} bits per key.",
            if is_best { "best" } else { "not best" },
            percent(baseline),
            percent(worst)
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "What each step of tuning adds",
            claim,
            &note,
            vec![analysis::panel("", axes.0, axes.1, curves)],
        ),
    })
}

/// `worst`: what the rule of thumb has of the best throughput at worst.
fn verdict(is_best: bool, worst: f64, is_for_writes: bool) -> Verdict {
    let is_as_said = if is_for_writes { worst < 0.98 } else { worst >= 0.9 };
    match (is_best, is_as_said) {
        (true, true) => Verdict::Confirmed,
        (true, false) => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_thumb_near_the_best_confirms_where_lookups_count() {
        assert_eq!(verdict(true, 0.95, false), Verdict::Confirmed);
        assert_eq!(verdict(true, 0.7, false), Verdict::Partly);
        assert_eq!(verdict(true, 0.7, true), Verdict::Confirmed);
        assert_eq!(verdict(false, 0.95, false), Verdict::NotHere);
    }

    #[test]
    fn more_choice_never_costs_more() {
        let situation = analysis::situation(0.5, 0.5);
        let memory = 5.0 * ENTRIES as f64 / 8.0;
        let costs = STEPS.map(|step| best(&situation, &step, memory).expect("a design").cost_ns);
        assert!(costs[HOLISTIC] <= costs[HYBRID] && costs[..=3].is_sorted_by(|a, b| a >= b), "{costs:?}");
    }
}
