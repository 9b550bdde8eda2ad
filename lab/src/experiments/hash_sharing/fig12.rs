//! Figure 12: what one digest saves of empty lookups, over bits per key.

use crate::chart::Axis;
use shamba::DigestKind;

use super::claims::{Claim, judge};
use super::gains::{Gain, chart, percent, table};
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::tree::{Spec, Tree};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

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

/// On which device, as sentences have it; the one that the claim is about first.
const JUDGED: [(Device, &str); 4] = [
    (Device::Pcie, "PCIe"),
    (Device::Ssd, "an SSD"),
    (Device::Nvm, "NVM"),
    (Device::Memory, "a file system in memory"),
];

/// The gain grows from step to step of the bits on each device that was measured, and with ten bits it is the paper's.
fn claims(by_device: &[(&str, Vec<Spread>)], at_10: &[(&str, f64, f64)]) -> Vec<Claim> {
    let [fewest, .., most] = BITS_PER_KEY;
    let rises = by_device.iter().map(|(name, gains)| {
        Claim::rises(&format!("from {fewest} to {most} bits the gain on {name}"), gains)
    });
    let as_large = at_10.iter().map(|(name, gain, claimed)| {
        Claim::at_least(&format!("at 10 bits it is on {name}"), *gain, *claimed)
    });
    rises.chain(as_large).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let devices = lab.devices(&DEVICES)?;
    let mut gains = Vec::new();
    for bits in BITS_PER_KEY {
        let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
        spec.digest = DigestKind::Murmur64A;
        spec.bits.per_key = f64::from(bits);
        let tree = Tree::lay(lab, "fig12", spec, Device::Memory)?;
        for device in &devices.here {
            let questions = Questions::uniform(1.0, lab.scale.count(8_000, 100_000, 1_000_000));
            let at = (device.name(), f64::from(bits), Cell::from(bits));
            gains.push(Gain::measure(lab, &tree, *device, &questions, at)?);
        }
        tree.discard(lab)?;
    }
    let of = |device: Device| gains.iter().filter(move |gain| gain.series == device.name());
    let spreads = |device: Device| of(device).map(Gain::gain).collect::<Vec<Spread>>();
    let at_10 = |device: Device| of(device).find(|gain| gain.x == 10.0);
    let is_here = |(device, _): &(Device, &str)| devices.here.contains(device);
    let judged: Vec<(Device, &str)> = JUDGED.into_iter().filter(is_here).collect();
    let by_device: Vec<(&str, Vec<Spread>)> =
        judged.iter().map(|(device, name)| (*name, spreads(*device))).collect();
    let of_paper = [(Device::Pcie, "PCIe", 0.1), (Device::Nvm, "NVM", 0.4)];
    let as_large: Vec<(&str, f64, f64)> = of_paper
        .into_iter()
        .filter_map(|(device, name, claimed)| Some((name, at_10(device)?.gain().median, claimed)))
        .collect();
    let because = || at_10(Device::Nvm).or(at_10(Device::Pcie)).map_or_else(String::new, Gain::because);
    let (verdict, why) = judge(&claims(&by_device, &as_large), because);
    let text = |device: Device| {
        let of: Vec<String> = spreads(device).into_iter().map(|gain| percent(gain.median)).collect();
        of.join(", ")
    };
    let told: Vec<String> =
        judged.iter().map(|(device, name)| format!("{} on {name}", text(*device))).collect();
    let finding = Finding {
        ours: format!(
            "At {} bits: {}.",
            BITS_PER_KEY.map(|bits| bits.to_string()).join(", "),
            told.join("; ")
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
    };
    Ok(finding.without(&devices.missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_gains() {
        let spread = |median: f64| Spread { median, least: median - 0.01, most: median + 0.01 };
        let verdict = |pcie: [f64; 3], memory: [f64; 3], nvm: f64| {
            let all =
                [("PCIe", pcie), ("memory", memory)].map(|(name, gains)| (name, gains.map(spread).to_vec()));
            judge(&claims(&all, &[("PCIe", pcie[1], 0.1), ("NVM", nvm, 0.4)]), String::new).0
        };
        let rising = [0.12, 0.15, 0.2];
        assert_eq!(verdict(rising, rising, 0.5), Verdict::Confirmed);
        assert_eq!(verdict([0.01, 0.05, 0.2], rising, 0.5), Verdict::Partly);
        assert_eq!(verdict(rising, rising, 0.1), Verdict::Partly);
        assert_eq!(verdict(rising, [0.12, 0.25, 0.2], 0.5), Verdict::Partly, "each device, and each step");
        assert_eq!(verdict([0.12, 0.25, 0.2], rising, 0.5), Verdict::Partly);
        assert_eq!(verdict([0.2, 0.15, 0.1], rising, 0.5), Verdict::NotHere);
    }

    #[test]
    fn every_device_is_judged() {
        assert!(DEVICES.iter().all(|device| JUDGED.iter().any(|(judged, _)| judged == device)));
    }
}
