//! Equation 6's promise under tiering: hashing costs the same with any number of runs.

use shamba::DigestKind;
use shamba_figures::Axis;

use super::depth::finding;
use super::gains::Gain;
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale};

const RUNS: [u32; 5] = [1, 2, 4, 7, 10];
const SIZE_RATIO: f64 = 4.0;
const LEVELS: u32 = 5;
const KEY_BYTES: usize = 1_024;
const ENTRY_BYTES: usize = 1_088;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-runs",
    paper: Paper::HashSharing,
    place: "Eq 6",
    title: "hashing from 1 to 10 runs a level",
    claim: "With one digest hashing no longer depends on the number of runs of a tiered tree either.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.pick(34_100, 341_000, 3_410_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("runs a level", RUNS),
        Parameter::fixed("device", Device::Memory.name()),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", 16),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for runs in RUNS {
        let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
        spec.digest = DigestKind::Murmur64A;
        spec.bits.per_key = 16.0;
        spec.shape.inner_runs = runs;
        spec.shape.last_runs = runs;
        let tree = Tree::lay(lab, "runs", spec, Device::Memory)?;
        let questions = Questions::uniform(1.0, lab.scale.count(10_000, 100_000, 1_000_000));
        let at = ("runs", f64::from(runs), Cell::from(runs));
        gains.push(Gain::measure(lab, &tree, Device::Memory, &questions, at)?);
        tree.discard(lab)?;
    }
    let note = "5 levels, T = 4, keys of 1 KB, MM64, 16 bits per key, files in memory, only empty lookups.";
    let texts = ("with any number of runs", "Hashing over the number of runs", EXPERIMENT.claim, note);
    Ok(finding(&gains, "runs_a_level", Axis::linear("runs a level"), texts))
}
