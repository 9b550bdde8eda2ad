//! Figures 3 to 6: delta throughput of robust tunings against nominal ones, by the model, over rho.
//!
//! For each expected workload and rho the nominal and the robust tuning are compared on the
//! observed workloads, drawn anew for each seed: 1 / C_robust over 1 / C_nominal, less 1. The
//! second experiment takes the navigator's designs instead of the paper's space; its filters follow
//! the expected share of empty lookups.

use shamba_model::MergePolicy;
use shamba_model::navigator::{Bounds, Options, navigate};

use super::setup::{
    BITS_PER_ENTRY, BUFFER_BYTES_MIN, ENTRIES, EXPECTED, Four, RHOS, Tuning, best, cost, memory_bytes,
    observed, situation, space,
};
use crate::prelude::*;

/// Rho from which the paper states its improvement.
const RHO: f64 = 0.5;

const IMPROVES: Predicate = Predicate::direction(
    "mean improvement of throughput, not uniform, rho >= 0.5",
    Share,
    AtLeast(0.0),
    |rows| not_uniform(rows).mean("delta"),
);
const IS_MOSTLY_BETTER: Predicate =
    Predicate::direction("comparisons in which robust is better, rho >= 0.5", Share, AtLeast(0.5), better);
const KEEPS_THE_EXPECTED: Predicate =
    Predicate::size("throughput kept at the expected workload, rho 0.25", Ratio, AtLeast(0.9), |rows| {
        Some(1.0 + rows.of("rho", 0.25).mean("delta_expected")?)
    });

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "endure-delta",
    paper: Paper::Endure,
    kind: Kind::Simulated,
    method: Method::Counted,
    place: "Figs 3 to 6",
    title: "delta throughput of robust tunings over rho, model",
    claim: "For expected workloads that are not uniform, robust tunings with rho >= 0.5 improve throughput by over 95 % on average over the \
            observed ones, and up to 5 times; for the uniform one the nominal tuning is better by a modest 5 %. Robust tunings are better in \
            over 80 % of all comparisons, all of them are leveling, and the loss is negligible where the observed workload is the expected one.",
    parameters,
    measure: |lab| {
        let space = space()?;
        rows(lab, &|mix, rho| best(&space, &mix, rho))
    },
    predicates: &[
        IMPROVES,
        IS_MOSTLY_BETTER,
        Predicate::size(
            "mean improvement of throughput, not uniform, rho >= 0.5",
            Share,
            AtLeast(0.95),
            |rows| not_uniform(rows).mean("delta"),
        ),
        Predicate::size("comparisons in which robust is better, rho >= 0.5", Share, AtLeast(0.8), better),
        Predicate::size("largest ratio of throughputs", Ratio, AtLeast(5.0), |rows| {
            rows.numbers("most").into_iter().reduce(f64::max)
        }),
        Predicate::size("mean improvement, uniform, rho >= 0.5", Share, Within(-0.1, 0.0), |rows| {
            certain(rows).of("expected", "uniform").mean("delta")
        }),
        Predicate::size("robust tunings that are leveling, rho >= 0.5", Share, AtLeast(1.0), |rows| {
            certain(rows).mean("leveling")
        }),
        KEEPS_THE_EXPECTED,
    ],
    panels: &[
        Panel::lines(
            Column::linear("rho", "rho"),
            Column::linear("delta", "delta throughput [%]").times(100.0),
            &["expected"],
        )
        .titled("over observed workloads", &[]),
        Panel::lines(
            Column::linear("rho", "rho"),
            Column::linear("delta_expected", "delta throughput [%]").times(100.0),
            &["expected"],
        )
        .titled("at the expected workload", &[]),
    ],
    note: "Computed on mixes drawn at random. I/Os by Monkey's equations, with whole levels; the paper takes fractions of levels for updates \
           and ranges. A point is the mean over expected workloads of a kind.",
    reason: |rows| {
        let shares = |kind: &str| {
            let mean = certain(rows).of("expected", kind).mean("delta").unwrap_or(0.0);
            format!("{kind} {:.0} %", 100.0 * mean)
        };
        let kinds = ["uniform", "unimodal", "bimodal", "trimodal"].map(shares).join(", ");
        format!("Mean improvement with rho >= 0.5 by kind of expected workload: {kinds}.")
    },
};

pub(super) const NAVIGATOR: Experiment = Experiment {
    id: "endure-navigator",
    title: "delta throughput of the navigator's robust designs over rho, model",
    claim: "The navigator's robust designs do better than its nominal ones on observed workloads, and lose little on the expected ones.",
    measure: |lab| {
        rows(lab, &|mix, rho| {
            let options = Options {
                sensitivity: false,
                smallest_buffer_bytes: BUFFER_BYTES_MIN,
                uncertainty: rho,
                ..Options::PAPER
            };
            let bounds = Bounds { memory_bytes: memory_bytes(), max_lookup_ios: None, max_update_ios: None };
            let found = navigate(&situation(mix), &bounds, &options)?;
            Ok(Tuning { design: found.plan.design, costs: found.costs.operations_ns() })
        })
    },
    predicates: &[IMPROVES, IS_MOSTLY_BETTER, KEEPS_THE_EXPECTED],
    note: "Computed on mixes drawn at random. Leveling, lazy leveling and tiering with any T; filters follow the expected share of empty \
           lookups. A point is the mean over expected workloads of a kind.",
    ..EXPERIMENT
};

fn samples(scale: Scale) -> u64 {
    scale.count(2_000, 10_000, 10_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("rho", RHOS),
        Parameter::varied("expected workload", (0..EXPECTED.len()).map(|at| format!("w{at}"))),
        Parameter::fixed("observed workloads", samples(scale)),
        Parameter::fixed("entries", ENTRIES),
        Parameter::fixed("entry bytes", 1_024),
        Parameter::fixed("buffer and filters [bits per entry]", BITS_PER_ENTRY),
        Parameter::fixed("smallest buffer bytes", BUFFER_BYTES_MIN),
    ]
}

fn certain<'a>(rows: &View<'a>) -> View<'a> {
    rows.filter(|row| row.number("rho").is_some_and(|rho| rho >= RHO))
}

fn not_uniform<'a>(rows: &View<'a>) -> View<'a> {
    certain(rows).filter(|row| row.text("expected") != "uniform")
}

/// Share of comparisons that robust tunings win, among those in which the two tunings differ.
fn better(rows: &View<'_>) -> Option<f64> {
    let rows = certain(rows);
    let sum = |column: &str| rows.numbers(column).iter().sum::<f64>();
    let differ = sum("better") + sum("worse");
    (differ > 0.0).then(|| sum("better") / differ)
}

/// One row for each expected workload and rho.
fn rows(lab: &Lab<'_>, tune: &dyn Fn(Four, f64) -> Result<Tuning, String>) -> Result<Rows, String> {
    let observed = observed(samples(lab.scale), lab.seed);
    let mut rows = Rows::default();
    for (at, (kind, mix)) in EXPECTED.iter().enumerate() {
        lab.at(format_args!("tuning for w{at}"));
        let nominal = tune(*mix, 0.0)?;
        for rho in RHOS {
            let robust = if rho > 0.0 { tune(*mix, rho)? } else { nominal };
            // Throughput of the robust tuning over that of the nominal one.
            let times = |mix: &Four| cost(mix, &nominal.costs) / cost(mix, &robust.costs);
            let ratios: Vec<f64> = observed.iter().map(times).collect();
            let count = |is_so: &dyn Fn(f64) -> bool| ratios.iter().filter(|ratio| is_so(**ratio)).count();
            rows.push(row! {
                workload: format!("w{at}"),
                expected: *kind,
                rho: rho,
                nominal: nominal.design.to_string(),
                robust: robust.design.to_string(),
                leveling: if robust.design.policy() == Some(MergePolicy::Leveling) { 1.0 } else { 0.0 },
                delta: ratios.iter().sum::<f64>() / ratios.len().max(1) as f64 - 1.0,
                delta_expected: times(mix) - 1.0,
                most: ratios.iter().copied().fold(0.0, f64::max),
                least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                better: count(&|ratio| ratio > 1.0 + 1e-9),
                worse: count(&|ratio| ratio < 1.0 - 1e-9),
            });
        }
    }
    Ok(rows)
}
