//! Figures 11 a to d, by the model: gain of each step of tuning, over memory, for four mixes.
//!
//! Each step searches its parameters and keeps the least cost of an operation. The other parameters
//! are those of the state of the art: leveling, T = 10, 95 % of the memory for filters, uniform
//! bits. The paper names its workloads without their shares: those here are this project's.

use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{FilterBits, Situation};
use shamba_model::navigator::{Bounds, Options, navigate};

use super::analysis::{ENTRIES, PAGE_BYTES, POLICIES, costs, fixed, situation};
use crate::prelude::*;

const BITS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0];
/// Bits below which the rule of thumb is claimed to be near the best.
const NEAR_BELOW: f64 = 20.0;
/// A gain below this counts as no gain.
const WORTH: f64 = 0.001;
const USUAL_RATIO: f64 = 10.0;
const USUAL_FILTERS: f64 = 0.95;
const SIZE_RATIOS: [f64; 20] = [
    2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 32.0, 40.0, 64.0, 128.0,
    256.0, 512.0,
];
/// Tested shares of filters in the memory; dense where little remains for the buffer.
const FILTERS: [f64; 16] =
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999];
const TOGETHER: &str = "all together";
const RULE: &str = "95/5, + policy, ratio";

/// No step can beat all together, which searches a superset: the claim is that the combination is
/// worthwhile.
const IS_BEST: Predicate = Predicate::direction(
    "throughput of the best step with one T over that of all together, mean over memory",
    Ratio,
    AtMost(1.0 - WORTH),
    |rows| {
        let best = |bits: &String| {
            let here = rows.of("bits_per_key", bits.as_str());
            STEPS[..4]
                .iter()
                .filter_map(|step| here.of("tuning", step.0).number("throughput"))
                .reduce(f64::max)
        };
        let best: Option<Vec<f64>> = rows.values("bits_per_key").iter().map(best).collect();
        let best = best.filter(|best| !best.is_empty())?;
        Some(best.iter().sum::<f64>() / best.len() as f64)
    },
);
const NEARLY_BEST: Predicate = Predicate::size(
    "least throughput of 95/5 over the best, below 20 bits",
    Ratio,
    AtLeast(0.9),
    worst_of_rule,
);

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig11a",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "Fig 11 a",
    title: "steps of tuning over memory, write-mostly, model",
    claim: "Tuning all knobs together is best at any memory; 95 % filters and 5 % buffer misses it where little memory is better spent on the buffer alone.",
    parameters: |_| parameters(0.1),
    measure: |_| measure(0.1),
    predicates: &[
        IS_BEST,
        Predicate::size(
            "least throughput of 95/5 over the best, below 20 bits",
            Ratio,
            AtMost(0.98),
            worst_of_rule,
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("bits_per_key", "buffer and filters [bits per key]"),
        Column::from_zero("throughput", "throughput, 1 = all together"),
        &["tuning"],
    )
    .drawn(Style::Dashes)],
    note: "Computed: equations 7, 10, 21 and 56; 512 GB of entries of 16 bytes; empty lookups and updates. Our navigator may also take lazy \
           leveling and any T.",
    reason: |_| {
        "The paper does not give its mixes and data in figures; these are ours, and where the rule of thumb loses depends on them.".to_owned()
    },
};

const CLAIM_READS: &str = "Tuning all knobs together is best at any memory; 95 % filters and 5 % buffer is near that below 20 bits per key for workloads that read.";

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig11b",
    place: "Fig 11 b",
    title: "steps of tuning over memory, balanced, model",
    claim: CLAIM_READS,
    parameters: |_| parameters(0.5),
    measure: |_| measure(0.5),
    predicates: &[IS_BEST, NEARLY_BEST],
    ..A
};

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig11c",
    place: "Fig 11 c",
    title: "steps of tuning over memory, read-heavy, model",
    parameters: |_| parameters(0.8),
    measure: |_| measure(0.8),
    ..B
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig11d",
    place: "Fig 11 d",
    title: "steps of tuning over memory, read-mostly, model",
    parameters: |_| parameters(0.95),
    measure: |_| measure(0.95),
    ..B
};

/// A step of tuning: its name, allocation, and the splits, policies and size ratios that it may
/// choose.
type Step = (&'static str, Allocation, &'static [f64], &'static [MergePolicy], &'static [f64]);
const LEVELING: &[MergePolicy] = &[MergePolicy::Leveling];
const STEPS: [Step; 6] = [
    ("state of the art", Allocation::Uniform, &[USUAL_FILTERS], LEVELING, &[USUAL_RATIO]),
    ("+ filter bits", Allocation::Monkey, &[USUAL_FILTERS], LEVELING, &[USUAL_RATIO]),
    ("+ filters and buffer", Allocation::Monkey, &FILTERS, LEVELING, &[USUAL_RATIO]),
    ("+ merge policy", Allocation::Monkey, &FILTERS, &POLICIES, &[USUAL_RATIO]),
    (RULE, Allocation::Monkey, &[USUAL_FILTERS], &POLICIES, &SIZE_RATIOS),
    (TOGETHER, Allocation::Monkey, &FILTERS, &POLICIES, &SIZE_RATIOS),
];

fn parameters(lookups: f64) -> Vec<Parameter> {
    let own = [
        Parameter::varied("buffer and filters [bits per key]", BITS),
        Parameter::varied("tuning", STEPS.map(|step| step.0)),
        Parameter::fixed("empty lookups", lookups),
        Parameter::fixed("updates", 1.0 - lookups),
    ];
    own.into_iter().chain(fixed(&["size ratio", "buffer bytes"])).collect()
}

fn worst_of_rule(rows: &View<'_>) -> Option<f64> {
    let of_rule = rows.of("tuning", RULE).points("bits_per_key", "throughput");
    of_rule.into_iter().filter(|(bits, _)| *bits < NEAR_BELOW).map(|(_, share)| share).reduce(f64::min)
}

/// The least cost of an operation, the design and the filters' part.
fn best(situation: &Situation, step: &Step, memory_bytes: f64) -> Result<(f64, String, f64), String> {
    let (name, allocation, splits, policies, size_ratios) = *step;
    let mut best: Option<(f64, String, f64)> = None;
    for &share in splits {
        let buffer = (memory_bytes * (1.0 - share)).max(PAGE_BYTES as f64);
        let filters = FilterBits::Bytes(memory_bytes - buffer);
        for &policy in policies {
            for &ratio in size_ratios {
                let found = costs(situation, (policy, ratio), buffer as u64, filters, allocation)?;
                if best.as_ref().is_none_or(|best| found.cost_ns_per_op < best.0) {
                    let letter = if policy == MergePolicy::Leveling { 'L' } else { 'T' };
                    best = Some((found.cost_ns_per_op, format!("{letter}{ratio}"), share));
                }
            }
        }
    }
    best.ok_or_else(|| format!("{name} chooses nothing"))
}

fn measure(lookups: f64) -> Result<Rows, String> {
    let situation = situation(lookups, 1.0 - lookups);
    let mut rows = Rows::default();
    for bits in BITS {
        let memory = bits * ENTRIES as f64 / 8.0;
        let mut found = Vec::new();
        for step in &STEPS {
            found.push((step.0, best(&situation, step, memory)?));
        }
        let bounds = Bounds { memory_bytes: memory as u64, max_lookup_ios: None, max_update_ios: None };
        let ours = navigate(&situation, &bounds, &Options { sensitivity: false, ..Options::PAPER })?;
        let policy = ours.plan.design.policy().map_or_else(String::new, |policy| policy.to_string());
        let design = format!("{policy} T{:.1}", ours.plan.design.size_ratio);
        found.push(("our navigator", (ours.costs.cost_ns_per_op, design, ours.costs.filter_bytes / memory)));
        let least = found.iter().find(|(name, _)| *name == TOGETHER).map_or(0.0, |(_, best)| best.0);
        for (name, (cost_ns, design, filters_share)) in found {
            rows.push(row! {
                tuning: name,
                bits_per_key: bits,
                design: design,
                filters_share: filters_share,
                ns_per_op: cost_ns,
                throughput: least / cost_ns,
            });
        }
    }
    Ok(rows)
}
