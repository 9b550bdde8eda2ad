//! Figure 6: the model's gain of one digest, by device and merge policy.

use crate::chart::{Axis, Chart, Panel, Series};
use shamba_model::sharing::{LookupShape, LookupTimes};

use super::claims::{Claim, judge};
use super::gains::{PAPER_FPR, PROBE_NS, percent};
use super::hashes::{Hash, hash_ns};
use crate::table::row;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};

const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
const KEY_BYTES: usize = 1_024;
const STEPS: u32 = 10;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig6",
    paper: Paper::HashSharing,
    kind: Kind::Computed,
    place: "Fig 6",
    title: "the model's gain over the share of empty lookups, by device and merge policy",
    claim: "The gain is negligible on a HDD, modest on an SSD and over 40 % on NVM; higher with tiering.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS))),
        Parameter::varied("device", Device::EMULATED.map(Device::name)),
        Parameter::varied("merge policy", ["leveling", "tiering"]),
        Parameter::varied("hash", ["MM64 as in Table 1", "MM64 here", "XXH3 here"]),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("false-positive rate", PAPER_FPR),
        Parameter::fixed("probe ns", PROBE_NS),
    ]
}

fn gain(tiering: bool, device: Device, empty_fraction: f64, hash_ns: f64) -> Result<f64, String> {
    let shape =
        LookupShape { tiering, size_ratio: SIZE_RATIO, levels: LEVELS, fpr: PAPER_FPR, empty_fraction };
    let page_ns = device.read_ns().unwrap_or_default() as f64;
    shape.gain(&LookupTimes { hash_ns, probe_ns: PROBE_NS, page_ns })
}

/// What the paper reads off its figure, of the model's gains on the emulated devices from slow to fast, all lookups empty.
fn claims(leveled: &[f64], tiered: &[f64]) -> Vec<Claim> {
    let [hdd, ssd, .., nvm] = *leveled else { return Vec::new() };
    vec![
        Claim::at_least("with leveling the gain on NVM is", nvm, 0.4),
        Claim::is(hdd < 0.01, format!("on a HDD it is {}, not negligible", percent(hdd))),
        Claim::is(
            hdd < ssd && ssd < nvm / 2.0,
            format!("on an SSD it is {}, not modest beside NVM", percent(ssd)),
        ),
        Claim::is(
            tiered.len() == leveled.len()
                && tiered.iter().zip(leveled).all(|(tiered, leveled)| tiered > leveled),
            "it is not higher with tiering on every device",
        ),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let theirs = Hash::Murmur64.paper_ns().unwrap_or_default();
    let hashes = [
        ("MM64 as in Table 1", theirs),
        ("MM64 here", hash_ns(Hash::Murmur64, KEY_BYTES, lab.repeats).median),
        ("XXH3 here", hash_ns(Hash::Xxh3, KEY_BYTES, lab.repeats).median),
    ];
    let mut table = Table::new(&["hash", "hash_ns", "policy", "device", "empty_fraction", "gain_share"]);
    let mut panels = Vec::new();
    for (tiering, policy) in [(false, "leveling"), (true, "tiering")] {
        let mut series = Vec::new();
        for device in Device::EMULATED {
            let mut points = Vec::new();
            for (hash, hash_ns) in hashes {
                for step in 0..=STEPS {
                    let empty = f64::from(step) / f64::from(STEPS);
                    let gain = gain(tiering, device, empty, hash_ns)?;
                    table.row(row![hash, hash_ns, policy, device.name(), empty, gain]);
                    if hash_ns == theirs {
                        points.push((empty, 100.0 * gain));
                    }
                }
            }
            series.push(Series::model(device.name(), points));
        }
        panels.push(Panel {
            title: format!("{policy}, MM64 as in Table 1"),
            x: Axis::linear("share of lookups that find nothing"),
            y: Axis::from_zero("time saved by one digest [%]").reaching(0.0, 100.0),
            series,
        });
    }
    let of = |tiering, device, hash: usize| gain(tiering, device, 1.0, hashes[hash].1);
    let of_paper = |tiering| {
        let gains: Result<Vec<f64>, String> =
            Device::EMULATED.into_iter().map(|device| of(tiering, device, 0)).collect();
        gains
    };
    let (leveled, tiered) = (of_paper(false)?, of_paper(true)?);
    let (verdict, why) = judge(&claims(&leveled, &tiered), String::new);
    let at = |gains: &[f64], device: Device| {
        let place = Device::EMULATED.into_iter().position(|one| one == device);
        percent(place.and_then(|place| gains.get(place)).copied().unwrap_or_default())
    };
    Ok(Finding {
        ours: format!(
            "With the paper's times and only empty lookups: HDD {}, SSD {}, NVM {}, with tiering {}; with what hashes take here NVM {} (MM64) and {} (XXH3).",
            at(&leveled, Device::Hdd),
            at(&leveled, Device::Ssd),
            at(&leveled, Device::Nvm),
            at(&tiered, Device::Nvm),
            percent(of(false, Device::Nvm, 1)?),
            percent(of(false, Device::Nvm, 2)?)
        ),
        verdict,
        why,
        table,
        chart: Chart {
            title: "What one digest saves, by the model".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: format!(
                "Equation 8 with {PROBE_NS} ns a probe; T = 10, 5 levels, keys of 1 KB. The table has the gains for the time that hashes take here."
            ),
            panels,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_gains() {
        let verdict = |leveled: &[f64], tiered: &[f64]| judge(&claims(leveled, tiered), String::new).0;
        assert_eq!(verdict(&[0.001, 0.1, 0.5], &[0.002, 0.2, 0.6]), Verdict::Confirmed);
        assert_eq!(verdict(&[0.02, 0.1, 0.5], &[0.03, 0.2, 0.6]), Verdict::Partly);
        assert_eq!(verdict(&[0.001, 0.1, 0.5], &[0.002, 0.05, 0.6]), Verdict::Partly);
        assert_eq!(verdict(&[0.001, 0.01, 0.05], &[0.002, 0.2, 0.6]), Verdict::NotHere);
        assert_eq!(verdict(&[], &[]), Verdict::NotHere);
    }
}
