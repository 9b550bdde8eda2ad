//! Figure 9: what one digest saves of empty lookups with short keys.

use super::claims::{Claim, Held, judge};
use super::gains::{DIGESTS, chart, percent, table};
use super::over_keys::OverKeys;
use crate::chart::Axis;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const KEY_BYTES: [usize; 4] = [8, 16, 32, 64];

/// A gain that one would not notice.
const VANISHED: f64 = 0.05;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig9",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
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
    let most = |series: &str| {
        let of = gains.iter().filter(|gain| gain.series == series);
        of.max_by(|one, other| one.gain().median.total_cmp(&other.gain().median)).ok_or("no points")
    };
    let [theirs, ours] = [most(DIGESTS[0].1)?, most(DIGESTS[1].1)?];
    let gain = theirs.gain().median;
    let held = match gain {
        gain if gain <= VANISHED => Held::Fully,
        gain if gain <= 2.0 * VANISHED => Held::InPart,
        _ => Held::Not,
    };
    let text = format!(
        "with keys of {} bytes and the paper's hash function {} are left",
        theirs.x_value,
        percent(gain)
    );
    let claim = Claim::new(held, text);
    let (verdict, why) = judge(&[claim], || theirs.because());
    Ok(Finding {
        ours: format!(
            "At most {} with keys up to 64 bytes and the paper's hash function, {} with ours.",
            percent(theirs.gain().median),
            percent(ours.gain().median)
        ),
        verdict,
        why,
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
