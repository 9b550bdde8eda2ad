//! Figure 11: what one digest saves of empty lookups, by device.

use super::gains::{DIGESTS, Gain, chart, percent, table};
use super::over_keys::OverKeys;
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const DEVICES: [Device; 6] =
    [Device::Disk, Device::PageCache, Device::Ssd, Device::Pcie, Device::Nvm, Device::Memory];
const KEY_BYTES: [usize; 2] = [512, 1_024];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig11",
    paper: Paper::HashSharing,
    place: "Fig 11",
    title: "gain of empty lookups by device, direct and through the system's cache",
    claim: "The gain is 10 % on an SSD and over 40 % on a RAM disk or NVM; it is higher where the system's cache serves reads.",
    parameters,
    run,
};

fn trees(scale: Scale) -> OverKeys {
    OverKeys {
        name: "fig11",
        keys_bytes: &KEY_BYTES,
        entry_bytes: 2_048,
        entries: scale.pick(55_555, 444_440, 11_000_000),
        lookups: scale.count(8_000, 100_000, 1_000_000),
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    trees(scale).parameters([Parameter::varied("device", DEVICES.map(Device::name))])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    let trees = trees(lab.scale);
    for on in [Device::PageCache, Device::Memory] {
        trees.each(lab, on, |lab, tree, (name, key_bytes)| {
            let series = format!("{name}, keys of {key_bytes} B");
            for (place, device) in DEVICES.into_iter().enumerate() {
                if device.is_in_memory() == on.is_in_memory() {
                    let questions = Questions::uniform(1.0, trees.lookups);
                    let at = (series.as_str(), place as f64, Cell::from(device.name()));
                    gains.push(Gain::measure(lab, tree, device, &questions, at)?);
                }
            }
            Ok(())
        })?;
    }
    let best = |device: Device| {
        let place = DEVICES.iter().position(|one| *one == device).unwrap_or_default() as f64;
        let of = gains.iter().filter(|gain| gain.x == place && gain.series.starts_with(DIGESTS[0].1));
        of.map(|gain| gain.gain().median).fold(f64::NEG_INFINITY, f64::max)
    };
    let (nvm, memory, ssd) = (best(Device::Nvm), best(Device::Memory), best(Device::Ssd));
    let verdict = match nvm.max(memory) {
        gain if gain >= 0.4 => Verdict::Confirmed,
        gain if gain >= 0.15 && gain > ssd => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!(
            "With the paper's hash function and keys of 1 KB: emulated SSD {}, PCIe {}, NVM {}, memory {}; this machine's disk {} direct and {} through the cache.",
            percent(ssd),
            percent(best(Device::Pcie)),
            percent(nvm),
            percent(memory),
            percent(best(Device::Disk)),
            percent(best(Device::PageCache))
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "Hashes are faster here than in the paper's Table 1, so less can be saved.".to_owned(),
        },
        table: table("device", &gains),
        chart: chart(
            "What one digest saves of an empty lookup, by device",
            EXPERIMENT.claim,
            "T = 10, 5 levels, entries of 2 KB, 10 bits per key. Devices with a latency in their name are emulated. Markers: Equation 8 where the device has a time.",
            Axis::categories("device", DEVICES.map(Device::name)),
            &gains,
        ),
    })
}
