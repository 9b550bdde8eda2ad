//! Figure 8b: what one digest saves of empty lookups, over the number of levels.

use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const LEVELS: [u32; 4] = [8, 10, 12, 14];
const SIZE_RATIO: f64 = 2.0;
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig8b",
    paper: Paper::HashSharing,
    place: "Fig 8b",
    title: "gain of empty lookups over the number of levels",
    claim: "The gain grows slowly with the number of levels and comes near a limit (Equation 9).",
    parameters,
    run,
};

/// Entries of the smallest level: every level doubles them.
fn first_level(scale: Scale) -> u64 {
    scale.pick(5, 40, 1_400)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", Device::Pcie.name()),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("entries of the first level", first_level(scale)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        for levels in LEVELS {
            let entries = first_level(lab.scale) * ((1 << levels) - 1);
            let spec =
                Spec { digest, ..Spec::leveled(entries, (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, levels) };
            let tree = Tree::lay(lab, "fig8b", spec, Device::Pcie)?;
            let questions = Questions::uniform(1.0, lab.scale.count(10_000, 100_000, 1_000_000));
            let at = (name, f64::from(levels), Cell::from(levels));
            gains.push(Gain::measure(lab, &tree, Device::Pcie, &questions, at)?);
            tree.discard(lab)?;
        }
    }
    let of: Vec<f64> =
        gains.iter().filter(|gain| gain.series == DIGESTS[0].1).map(|gain| gain.gain().median).collect();
    let (least, most) =
        of.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), g| (l.min(*g), m.max(*g)));
    let is_slow = most - least < 0.12;
    let verdict = match (least > 0.03, is_slow) {
        (true, true) => Verdict::Confirmed,
        (_, false) => Verdict::Partly,
        (false, true) => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!(
            "From 8 to 14 levels between {} and {} with the paper's hash function: more levels have more false positives too, which take a page each.",
            percent(least),
            percent(most)
        ),
        verdict,
        why: if verdict == Verdict::Confirmed {
            String::new()
        } else {
            "The gain is small here at any number of levels, or not steady.".to_owned()
        },
        table: table("levels", &gains),
        chart: chart(
            "What one digest saves of an empty lookup",
            EXPERIMENT.claim,
            "T = 2, keys of 512 B, entries of 1 KB, 10 bits per key, emulated PCIe SSD of 10 us. Model: Equation 8.",
            Axis::linear("levels"),
            &gains,
        ),
    })
}
