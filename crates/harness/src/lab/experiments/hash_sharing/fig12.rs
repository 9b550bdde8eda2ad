//! Figure 12: what one digest saves of empty lookups, over bits per key.

use shamba::DigestKind;
use shamba_figures::Axis;

use super::claims::{Claim, judge};
use super::gains::{Gain, chart, percent, table};
use crate::lab::lookups::{Questions, Spread};
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const BITS_PER_KEY: [u32; 4] = [8, 10, 12, 14];
const DEVICES: [Device; 4] = [Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig12",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
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

/// The gain grows with bits on both devices where false positives cost most, and with ten bits it is the paper's.
fn claims([ssd, pcie]: [&[Spread]; 2], pcie_at_10: f64, nvm_at_10: f64) -> Vec<Claim> {
    let ends = |of: &[Spread]| {
        let end = |spread: Option<&Spread>| spread.copied().unwrap_or_else(|| Spread::of(Vec::new()));
        (end(of.first()), end(of.last()))
    };
    let grows = |name: &str, of: &[Spread]| {
        let (first, last) = ends(of);
        Claim::grows(&format!("from 8 to 14 bits the gain on {name}"), first, last)
    };
    vec![
        grows("PCIe", pcie),
        grows("an SSD", ssd),
        Claim::at_least("at 10 bits it is on PCIe", pcie_at_10, 0.1),
        Claim::at_least("on NVM", nvm_at_10, 0.4),
    ]
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
    let of = |device: Device| gains.iter().filter(move |gain| gain.series == device.name());
    let spreads = |device: Device| of(device).map(Gain::gain).collect::<Vec<Spread>>();
    let at_10 = |device: Device| of(device).find(|gain| gain.x == 10.0).ok_or("ten bits were not measured");
    let (pcie, nvm) = (at_10(Device::Pcie)?, at_10(Device::Nvm)?);
    let (ssd_all, pcie_all) = (spreads(Device::Ssd), spreads(Device::Pcie));
    let claims = claims([&ssd_all, &pcie_all], pcie.gain().median, nvm.gain().median);
    let (verdict, why) = judge(&claims, || nvm.because());
    let text = |device: Device| {
        let of: Vec<String> = spreads(device).into_iter().map(|gain| percent(gain.median)).collect();
        of.join(", ")
    };
    Ok(Finding {
        ours: format!(
            "At 8, 10, 12, 14 bits: {} on an SSD, {} on PCIe and {} on NVM.",
            text(Device::Ssd),
            text(Device::Pcie),
            text(Device::Nvm)
        ),
        verdict,
        why,
        table: table("bits_per_key", &gains),
        chart: chart(
            "What one digest saves of an empty lookup, over bits per key",
            EXPERIMENT.claim,
            "T = 10, 5 levels, keys of 512 B, entries of 1 KB. Devices with a latency in their name are emulated. Model: Equation 8 with the rate of such filters.",
            Axis::linear("filter bits per key"),
            &gains,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Verdict;

    #[test]
    fn the_verdict_follows_the_gains() {
        let spread = |median: f64| Spread { median, least: median - 0.01, most: median + 0.01 };
        let verdict = |pcie: [f64; 2], nvm: f64| {
            let (ssd, all) = ([0.01, 0.05].map(spread), pcie.map(spread));
            judge(&claims([&ssd, &all], pcie[0], nvm), String::new).0
        };
        assert_eq!(verdict([0.12, 0.2], 0.5), Verdict::Confirmed);
        assert_eq!(verdict([0.05, 0.2], 0.5), Verdict::Partly);
        assert_eq!(verdict([0.12, 0.2], 0.1), Verdict::Partly);
        assert_eq!(verdict([0.2, 0.1], 0.5), Verdict::NotHere);
    }
}
