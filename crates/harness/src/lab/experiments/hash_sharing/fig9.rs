//! Figure 9: what one digest saves of empty lookups with short keys.

use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const KEY_BYTES: [usize; 4] = [8, 16, 32, 64];
const ENTRY_BYTES: usize = 512;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig9",
    paper: Paper::HashSharing,
    place: "Fig 9",
    title: "gain of empty lookups with short keys",
    claim: "With short keys the benefit vanishes.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.pick(111_110, 1_111_100, 44_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("key bytes", KEY_BYTES),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", Device::Pcie.name()),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        for key_bytes in KEY_BYTES {
            let spec = Spec {
                digest,
                ..Spec::leveled(entries(lab.scale), (key_bytes, ENTRY_BYTES), SIZE_RATIO, LEVELS)
            };
            let tree = Tree::lay(lab, "fig9", spec, Device::Pcie)?;
            let questions = Questions::uniform(1.0, lab.scale.count(10_000, 100_000, 1_000_000));
            let at = (name, key_bytes as f64, Cell::from(key_bytes));
            gains.push(Gain::measure(lab, &tree, Device::Pcie, &questions, at)?);
            tree.discard(lab)?;
        }
    }
    let most = gains.iter().map(|gain| gain.gain().median).fold(f64::NEG_INFINITY, f64::max);
    let verdict = match most {
        most if most <= 0.05 => Verdict::Confirmed,
        most if most <= 0.1 => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!("At most {} with keys up to 64 bytes, with either hash function.", percent(most)),
        verdict,
        why: if verdict == Verdict::Confirmed {
            String::new()
        } else {
            "There is little else in a lookup here, so that even a short hash shows.".to_owned()
        },
        table: table("key_bytes", &gains),
        chart: chart(
            "What one digest saves of an empty lookup: short keys",
            EXPERIMENT.claim,
            "T = 10, 5 levels, entries of 512 B, 10 bits per key, emulated PCIe SSD of 10 us. Model: Equation 8.",
            Axis::log("key [bytes]"),
            &gains,
        ),
    })
}
