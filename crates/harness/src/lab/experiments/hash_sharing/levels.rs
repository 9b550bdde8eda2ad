//! Equation 7's promise: hashing costs the same with any number of levels.

use shamba::DigestKind;
use shamba_figures::Axis;

use super::depth::finding;
use super::gains::Gain;
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale};

const LEVELS: [u32; 7] = [1, 2, 4, 6, 8, 11, 14];
const SIZE_RATIO: f64 = 2.0;
const KEY_BYTES: usize = 1_024;
const ENTRY_BYTES: usize = 1_088;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-levels",
    paper: Paper::HashSharing,
    place: "Eq 7",
    title: "hashing from 1 to 14 levels",
    claim: "With one digest hashing no longer depends on the number of levels.",
    parameters,
    run,
};

fn first_level(scale: Scale) -> u64 {
    scale.pick(3, 20, 100)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::fixed("device", Device::Memory.name()),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("entries of the first level", first_level(scale)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", 16),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for levels in LEVELS {
        let entries = first_level(lab.scale) * ((1 << levels) - 1);
        let mut spec = Spec::leveled(entries, (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, levels);
        spec.digest = DigestKind::Murmur64A;
        // Few false positives: what is searched in vain should not hide what is hashed.
        spec.bits.per_key = 16.0;
        let tree = Tree::lay(lab, "levels", spec, Device::Memory)?;
        let questions = Questions::uniform(1.0, lab.scale.count(20_000, 200_000, 1_000_000));
        let at = ("levels", f64::from(levels), Cell::from(levels));
        gains.push(Gain::measure(lab, &tree, Device::Memory, &questions, at)?);
        tree.discard(lab)?;
    }
    let note = "T = 2, keys of 1 KB, MM64, 16 bits per key, files in memory, only empty lookups.";
    let texts = ("at any depth", "Hashing over the number of levels", EXPERIMENT.claim, note);
    Ok(finding(&gains, "levels", Axis::linear("levels"), texts))
}
