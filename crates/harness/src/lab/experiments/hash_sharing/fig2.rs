//! Figure 2: the part of a lookup's time that hashing takes in a tiered tree.

use super::breakdown::{LEVELS, Part, SIZE_RATIO, at, chart, measure, parameters};
use super::gains::percent;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig2",
    paper: Paper::HashSharing,
    place: "Fig 2",
    title: "time spent hashing over the share of empty lookups, tiering",
    claim: "With 10 runs a level hashing takes a higher part of the time than with leveling (Fig 1).",
    parameters: |scale| parameters(scale, true),
    run,
};

/// The mean share over all points of a device.
fn mean(parts: &[Part], device: Device) -> f64 {
    let of: Vec<f64> = parts.iter().filter(|part| part.device == device).map(|part| part.measured).collect();
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let (leveled, _) = measure(lab, false)?;
    let (tiered, table) = measure(lab, true)?;
    let higher = super::breakdown::DEVICES
        .into_iter()
        .filter(|device| mean(&tiered, *device) > mean(&leveled, *device))
        .count();
    let verdict = match higher {
        5 => Verdict::Confirmed,
        3..5 => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!(
            "Higher on {higher} of 5 devices; on PCIe with only empty lookups {} of the time against {} with leveling, over {} runs.",
            percent(at(&tiered, Device::Pcie, 1.0)),
            percent(at(&leveled, Device::Pcie, 1.0)),
            LEVELS * SIZE_RATIO as u32
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "With ten runs a level false positives are ten times as many too, and each reads a page: where a page costs more than all the hashes the part of \
                  hashing hardly changes."
                .to_owned(),
        },
        table,
        chart: chart("What part of a lookup is hashing: tiering", EXPERIMENT.claim, &tiered),
    })
}
