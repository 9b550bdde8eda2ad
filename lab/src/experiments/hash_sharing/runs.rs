//! Equation 6's promise under tiering: hashing costs the same with any number of runs.

use crate::chart::Axis;

use super::depth::{finding, measure, parameters};
use crate::layered::Shape;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const RUNS: [u32; 5] = [1, 2, 4, 7, 10];
const SIZE_RATIO: f64 = 4.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-runs",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    place: "Eq 6",
    title: "hashing from 1 to 10 runs a level",
    claim: "With one digest hashing no longer depends on the number of runs of a tiered tree either.",
    parameters: |scale| {
        parameters([
            Parameter::varied("runs a level", RUNS),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", LEVELS),
            Parameter::fixed("entries", entries(scale)),
        ])
    },
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.pick(34_100, 341_000, 3_410_000)
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let (entries, lookups) = (entries(lab.scale), lab.scale.count(10_000, 100_000, 1_000_000));
    let mut gains = Vec::new();
    for runs in RUNS {
        let shape = Shape { size_ratio: SIZE_RATIO, levels: LEVELS, inner_runs: runs, last_runs: runs };
        gains.push(measure(lab, ("runs", runs), (entries, shape), lookups)?);
    }
    let note = "5 levels, T = 4, keys of 1 KB, MM64, 16 bits per key, files in memory, only empty lookups.";
    let texts = ("With ten runs a level", "Hashing over the number of runs", EXPERIMENT.claim, note);
    finding(&gains, "runs_a_level", Axis::linear("runs a level"), texts)
}
