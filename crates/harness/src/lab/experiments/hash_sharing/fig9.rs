//! Figure 9: what one digest saves of empty lookups with short keys.

use super::gains::{chart, percent, table};
use super::over_keys::OverKeys;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const KEY_BYTES: [usize; 4] = [8, 16, 32, 64];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig9",
    paper: Paper::HashSharing,
    place: "Fig 9",
    title: "gain of empty lookups with short keys",
    claim: "With short keys the benefit vanishes.",
    parameters,
    run,
};

fn trees(scale: Scale) -> OverKeys {
    OverKeys {
        name: "fig9",
        keys_bytes: &KEY_BYTES,
        entry_bytes: 512,
        entries: scale.pick(111_110, 1_111_100, 44_000_000),
        lookups: scale.count(10_000, 100_000, 1_000_000),
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    trees(scale).parameters([Parameter::fixed("device", Device::Pcie.name())])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let gains = trees(lab.scale).gains(lab, Device::Pcie)?;
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
