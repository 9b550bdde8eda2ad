//! Table 2: how lookups cost as data grows, with uniform bits and with Monkey's, above and below the memory at which the last
//! level loses its filter. The model beside the asymptotic forms.
//!
//! Above it the filters grow with the data, below it they stay what they are. Divided by its form each cost must stay within
//! bounds; Monkey's forms lack the factor of the levels.

use crate::chart::Axis;
use shamba_model::Design;
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{FilterBits, Plan, predict};

use super::analysis;
use super::table1::{BUFFER_BYTES, BUFFERS, ENTRY_BYTES, SIZE_RATIO, STEADY, change, situation, verdict};
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

const BITS_PER_KEY: f64 = 5.0;
/// Filter memory that stays what it is: 5 bits for each entry of the smallest data, then ever fewer.
const FILTER_BITS: f64 = BITS_PER_KEY * (BUFFERS[0] * BUFFER_BYTES) as f64 / ENTRY_BYTES;
/// Below M_threshold from here on: 1.44 bits per key at most.
const SPARSE_FROM: u64 = BUFFERS[2];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-table2",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Table 2",
    title: "costs of empty lookups over the data, model",
    claim: "With filters that grow with the data Monkey's lookups do not grow at all, the state of the art's do with the levels; with little memory Monkey's grow with log(N/M), the state of the art's with log(NE/M_buf).",
    parameters,
    run,
};

const SIDES: [(Allocation, &str); 2] =
    [(Allocation::Uniform, "state of the art"), (Allocation::Monkey, "Monkey")];

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("write buffers of data", BUFFERS),
        Parameter::varied("filters", SIDES.map(|(_, name)| name)),
        Parameter::varied("merge policy", analysis::POLICIES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("buffer bytes", BUFFER_BYTES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("filters that grow [bits per key]", BITS_PER_KEY),
        Parameter::fixed("filters that do not [bytes]", FILTER_BITS / 8.0),
    ]
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&[
        "policy",
        "filters",
        "memory",
        "buffers_of_data",
        "levels",
        "bits_per_key",
        "lookup_ios",
        "form",
        "quotient",
    ]);
    let (mut dense, mut sparse) = (Vec::new(), Vec::new());
    let mut worst = 1.0f64;
    let mut growth = [[1.0f64; 2]; 2];
    for (p, policy) in [MergePolicy::Leveling, MergePolicy::Tiering].into_iter().enumerate() {
        for (side, (allocation, name)) in SIDES.into_iter().enumerate() {
            for grows in [true, false] {
                let (mut ios, mut quotients) = (Vec::new(), Vec::new());
                for &buffers in BUFFERS.iter().filter(|buffers| grows || **buffers >= SPARSE_FROM) {
                    let situation = situation(buffers);
                    let entries = situation.data.entries as f64;
                    let bits = if grows { BITS_PER_KEY } else { FILTER_BITS / entries };
                    let plan = Plan {
                        design: Design::new(policy, SIZE_RATIO, BUFFER_BYTES, 0.0),
                        filters: FilterBits::PerKey(bits),
                        allocation,
                        cache_bytes: 0,
                        levels: None,
                    };
                    let costs = predict(&situation, &plan)?;
                    let runs = if policy == MergePolicy::Tiering { SIZE_RATIO } else { 1.0 };
                    let levels = (buffers as f64).ln() / SIZE_RATIO.ln();
                    let form = runs
                        * match (allocation, grows) {
                            (Allocation::Uniform, true) => levels * (-bits).exp(),
                            (Allocation::Uniform, false) => levels,
                            (_, true) => (-bits).exp(),
                            (_, false) => (1.0 / bits).ln() / SIZE_RATIO.ln(),
                        };
                    let cost = costs.zero_result_lookup_ios;
                    let memory = if grows { "grows" } else { "fixed" };
                    table.row(row![
                        policy.name(),
                        name,
                        memory,
                        buffers,
                        costs.levels,
                        bits,
                        cost,
                        form,
                        cost / form
                    ]);
                    ios.push((buffers as f64, cost));
                    quotients.push((buffers as f64, cost / form));
                }
                // The first points of what is below the threshold have a form near 0.
                worst = worst.max(change(&quotients[quotients.len().min(2)..]));
                if grows {
                    growth[p][side] = change(&ios);
                }
                let curves = if grows { &mut dense } else { &mut sparse };
                curves.push((format!("{name}, {policy}"), ios));
            }
        }
    }
    let [leveled, tiered] = growth;
    let is_flat = [leveled, tiered].iter().all(|[_, monkey]| *monkey < 1.2);
    let verdict = if is_flat { verdict(worst) } else { Verdict::NotHere };
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!("A quotient of cost and form changes {worst:.2} times; {STEADY} are allowed."),
    };
    let axes = || (Axis::log("write buffers of data"), Axis::log("I/Os of an empty lookup"));
    let panels = [("5 bits per key", dense), ("fixed filter memory", sparse)]
        .map(|(title, curves)| analysis::panel(title, axes().0, axes().1, curves));
    Ok(Finding {
        ours: format!(
            "As data grows 250,000-fold at 5 bits per key, lookups cost {:.1} times as much with uniform bits and {:.2} times with Monkey's (leveling; \
             tiering {:.1} and {:.2}); quotients of cost and form change {worst:.2} times at most.",
            leveled[0], leveled[1], tiered[0], tiered[1]
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "Lookups that find nothing as data grows",
            EXPERIMENT.claim,
            "Computed: equations 7 and 56, T = 4, a buffer of 2 MB, entries of 16 bytes; right: the filters that the smallest data would have with 5 bits \
             per key, whatever the data.",
            panels.into(),
        ),
    })
}
