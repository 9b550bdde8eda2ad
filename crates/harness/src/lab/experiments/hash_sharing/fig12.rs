//! Figure 12: what one digest saves of empty lookups, over bits per key.

use shamba::DigestKind;
use shamba_figures::Axis;

use super::gains::{Gain, chart, percent, table};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};

const BITS_PER_KEY: [u32; 4] = [8, 10, 12, 14];
const DEVICES: [Device; 4] = [Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig12",
    paper: Paper::HashSharing,
    place: "Fig 12",
    title: "gain of empty lookups over bits per key, by device",
    claim: "The gain grows with bits per key; at 10 it exceeds 10 % on PCIe and 40 % on NVM.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 22_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key", BITS_PER_KEY),
        Parameter::varied("device", DEVICES.map(Device::name)),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("empty fraction", 1),
    ]
}

/// Confirmed if the gain grows with the bits on the slower device and is what the paper has on both.
fn verdict(pcie: &[f64], pcie_at_10: f64, nvm_at_10: f64) -> Verdict {
    let grows = pcie.last() > pcie.first();
    match grows {
        true if pcie_at_10 >= 0.1 && nvm_at_10 >= 0.4 => Verdict::Confirmed,
        true => Verdict::Partly,
        false => Verdict::NotHere,
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for bits in BITS_PER_KEY {
        let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
        spec.digest = DigestKind::Murmur64A;
        spec.bits.per_key = f64::from(bits);
        let tree = Tree::lay(lab, "fig12", spec, Device::Memory)?;
        for device in DEVICES {
            let questions = Questions::uniform(1.0, lab.scale.count(8_000, 100_000, 1_000_000));
            let at = (device.name(), f64::from(bits), Cell::from(bits));
            gains.push(Gain::measure(lab, &tree, device, &questions, at)?);
        }
        tree.discard(lab)?;
    }
    let of = |device: Device| -> Vec<f64> {
        gains.iter().filter(|gain| gain.series == device.name()).map(|gain| gain.gain().median).collect()
    };
    let at_10 = |device: Device| of(device).get(1).copied().unwrap_or_default();
    let verdict = verdict(&of(Device::Pcie), at_10(Device::Pcie), at_10(Device::Nvm));
    let text = |device: Device| {
        let of: Vec<String> = of(device).into_iter().map(percent).collect();
        of.join(", ")
    };
    Ok(Finding {
        ours: format!(
            "At 8, 10, 12, 14 bits: {} on PCIe and {} on NVM.",
            text(Device::Pcie),
            text(Device::Nvm)
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "The direction is the paper's: fewer false positives leave hashing a larger part. Its size is smaller, since hashes are faster here.".to_owned(),
        },
        table: table("bits_per_key", &gains),
        chart: chart(
            "What one digest saves of an empty lookup, over bits per key",
            EXPERIMENT.claim,
            "T = 10, 5 levels, keys of 512 B, entries of 1 KB. Devices with a latency in their name are emulated. Model: Equation 8 at 10 bits.",
            Axis::linear("filter bits per key"),
            &gains,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_gains() {
        assert_eq!(verdict(&[0.1, 0.2], 0.12, 0.5), Verdict::Confirmed);
        assert_eq!(verdict(&[0.1, 0.2], 0.05, 0.5), Verdict::Partly);
        assert_eq!(verdict(&[0.2, 0.1], 0.12, 0.5), Verdict::NotHere);
    }
}
