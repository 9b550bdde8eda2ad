//! Equation 7's promise: hashing costs the same with any number of levels.

use crate::chart::Axis;

use super::depth::{finding, measure, parameters};
use crate::layered::Shape;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const LEVELS: [u32; 7] = [1, 2, 4, 6, 8, 11, 14];
const SIZE_RATIO: f64 = 2.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-levels",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    place: "Eq 7",
    title: "hashing from 1 to 14 levels",
    claim: "With one digest hashing no longer depends on the number of levels.",
    parameters: |scale| {
        parameters([
            Parameter::varied("levels", LEVELS),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("entries of the first level", first_level(scale)),
        ])
    },
    run,
};

fn first_level(scale: Scale) -> u64 {
    scale.pick(3, 20, 100)
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let lookups = lab.scale.count(20_000, 200_000, 1_000_000);
    let mut gains = Vec::new();
    for levels in LEVELS {
        let entries = first_level(lab.scale) * ((1 << levels) - 1);
        let shape = Shape { size_ratio: SIZE_RATIO, levels, inner_runs: 1, last_runs: 1 };
        gains.push(measure(lab, ("levels", levels), (entries, shape), lookups)?);
    }
    let note = "T = 2, keys of 1 KB, MM64, 16 bits per key, files in memory, only empty lookups.";
    let texts = ("With 14 levels", "Hashing over the number of levels", EXPERIMENT.claim, note);
    finding(&gains, "levels", Axis::linear("levels"), texts)
}
