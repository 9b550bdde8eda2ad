//! A size ratio and a number of runs per level (K-LSM and Moose) against one size ratio, by the
//! model.
//!
//! Over data sizes, memories and mixes: the time that the best tree with its own T_i and K_i per
//! level saves over the navigator's best one, by the papers' and by the engine's convention, with
//! unlimited space and with at most twice the data's; and the cost of either in the worst mix at a
//! divergence of 1.

use shamba_model::cost::{CpuTimes, DataSet, Device as ModelDevice, Situation, Workload};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::per_level::{Found, best};
use shamba_model::robust::worst;

use super::setup::Four;
use crate::prelude::*;

const PAPER: &str = "paper";
const ENGINE: &str = "engine";
const ENTRY_BYTES: f64 = 128.0;
const READ_NS: f64 = 1e5;
/// Memory in percent of the data.
const MEMORIES: [f64; 3] = [0.5, 2.0, 8.0];
const MIXES: [(&str, Four); 8] = [
    ("empty lookups, updates", [0.5, 0.0, 0.5, 0.0]),
    ("found lookups, updates", [0.0, 0.5, 0.5, 0.0]),
    ("mostly updates", [0.05, 0.05, 0.88, 0.02]),
    ("mostly lookups", [0.45, 0.45, 0.1, 0.0]),
    ("lookups, updates, some ranges", [0.3, 0.3, 0.35, 0.05]),
    ("ranges, updates", [0.0, 0.0, 0.5, 0.5]),
    ("all alike", [0.25, 0.25, 0.25, 0.25]),
    ("updates, few empty lookups", [0.1, 0.0, 0.9, 0.0]),
];
/// Gain that would justify support in the engine.
const WORTH: f64 = 0.1;
const RHO: f64 = 1.0;
/// Maximum runs of a level: each may cost a lookup or range a read.
const RUNS_MAX: u32 = 64;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "endure-per-level",
    paper: Paper::Endure,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "K-LSM (VLDBJ 2024)",
    title: "a size ratio and runs for each level over one size ratio, model",
    claim: "Robust tunings of the usual designs are more robust than nominal ones of the expanded space with runs for each level: robustness is \
            not inherent to a design. Ours: as the engine counts, T and K for each level save less than 10 %.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "worst mix: nominal tree per level over robust tree of one T",
            Ratio,
            AtLeast(1.0),
            |rows| {
                let times = rows.numbers("worst_times");
                let sum: f64 = times.iter().map(|times| times.ln()).sum();
                (!times.is_empty()).then(|| (sum / times.len() as f64).exp())
            },
        ),
        Predicate::size(
            "time saved per level over one T, engine, space at most 2, mean",
            Share,
            AtMost(WORTH),
            |rows| rows.of("counting", ENGINE).of("space", "2").mean("gain"),
        ),
        Predicate::size(
            "time saved per level over one T, engine, any space, mean",
            Share,
            AtMost(WORTH),
            |rows| rows.of("counting", ENGINE).of("space", "any").mean("gain"),
        ),
        Predicate::size(
            "cases of the engine with space at most 2 that save over 10 %",
            Share,
            AtMost(WORTH),
            |rows| {
                let gains = rows.of("counting", ENGINE).of("space", "2").numbers("gain");
                let worth = gains.iter().filter(|gain| **gain > WORTH).count();
                (!gains.is_empty()).then(|| worth as f64 / gains.len() as f64)
            },
        ),
    ],
    panels: &[Panel::lines(
        Column::names("mix", "mix"),
        Column::percent("gain", "time saved [%]"),
        &["counting", "space"],
    )
    .drawn(Style::Markers)],
    note: "Computed: entries of 128 bytes on a device of 100 us a page; memory 0.5, 2 and 8 % of the data. A point is the mean over sizes and \
           memories.",
    reason: |rows| {
        let most = |counting: &str, space: &str| {
            let gains = rows.of("counting", counting).of("space", space).numbers("gain");
            let mean = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
            let most = gains.iter().copied().fold(0.0, f64::max);
            format!(
                "{counting}, space {space}: {:.1} % in the mean, {:.0} % at most",
                100.0 * mean,
                100.0 * most
            )
        };
        let all = [(PAPER, "any"), (PAPER, "2"), (ENGINE, "any"), (ENGINE, "2")].map(|(a, b)| most(a, b));
        format!("Time saved: {}.", all.join("; "))
    },
};

fn sizes(scale: Scale) -> &'static [u64] {
    match scale {
        Scale::Tiny => &[10_000_000],
        Scale::Quick => &[1_000_000, 100_000_000, 10_000_000_000],
        _ => &[1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000],
    }
}

fn mixes(scale: Scale) -> &'static [(&'static str, Four)] {
    if scale == Scale::Tiny { &MIXES[..2] } else { &MIXES }
}

fn memories(scale: Scale) -> &'static [f64] {
    if scale == Scale::Tiny { &MEMORIES[1..2] } else { &MEMORIES }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("entries", sizes(scale)),
        Parameter::varied("memory [% of the data]", memories(scale)),
        Parameter::varied("mix", mixes(scale).iter().map(|(name, _)| name)),
        Parameter::varied("counting", [PAPER, ENGINE]),
        Parameter::varied("space at most", ["any", "2"]),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("runs of a level, at most", RUNS_MAX),
        Parameter::fixed("rho of the worst mix", RHO),
    ]
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for &entries in sizes(lab.scale) {
        for &percent in memories(lab.scale) {
            for (name, mix) in mixes(lab.scale) {
                lab.at(format_args!("{entries} entries, {percent} % memory, {name}"));
                for (counting, options, cpu) in
                    [(PAPER, Options::PAPER, CpuTimes::NONE), (ENGINE, Options::ENGINE, CpuTimes::ENGINE)]
                {
                    let situation = situation(entries, *mix, cpu);
                    let memory_bytes = (situation.data.bytes() * percent / 100.0) as u64;
                    let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
                    for (space, max_space) in [("any", f64::INFINITY), ("2", 2.0)] {
                        let options = Options { sensitivity: false, fluid: true, max_space, ..options };
                        let row = row! {
                            entries: entries,
                            memory_percent: percent,
                            mix: *name,
                            counting: counting,
                            space: space,
                        };
                        rows.push(row.and(compare(&situation, &bounds, &options)?));
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// Both trees in one situation, as cells.
fn compare(situation: &Situation, bounds: &Bounds, options: &Options) -> Result<Row, String> {
    let found: Found = best(situation, bounds, options, RUNS_MAX)?;
    let robust = navigate(situation, bounds, &Options { uncertainty: RHO, ..*options })?;
    let rates = situation.workload.rates();
    let worst_of_levels = worst(&found.costs.operations_ns, &rates, RHO)?.cost;
    let worst_of_robust = robust.worst.map(|worst| worst.cost).unwrap_or(f64::NAN);
    let levels: Vec<String> =
        found.plan.levels.iter().map(|level| format!("{:.1}/{}", level.size_ratio, level.runs)).collect();
    let fluid = &found.navigation.plan.design;
    Ok(row! {
        one_ratio: format!("T={:.1} K={} Z={}", fluid.size_ratio, fluid.inner_runs, fluid.last_runs),
        one_levels: found.navigation.costs.levels,
        per_level: levels.join(" "),
        one_ns: found.fluid.cost_ns_per_op,
        per_level_ns: found.costs.cost_ns_per_op,
        gain: found.gain(),
        worst_times: worst_of_levels / worst_of_robust,
    })
}

fn situation(entries: u64, mix: Four, cpu: CpuTimes) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes: ENTRY_BYTES, page_bytes: 4_096 },
        workload: Workload::of_rates(mix, 0.0),
        device: ModelDevice { read_ns: READ_NS, write_ns: READ_NS, cpu },
        locality: MissRatioCurve::EVEN,
    }
}
