//! Figure 8a: what one digest saves of empty lookups, over the length of keys.

use super::claims::{Claim, judge};
use super::gains::{DIGESTS, PROBE_NS, chart, percent, table};
use super::over_keys::OverKeys;
use crate::chart::Axis;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const KEY_BYTES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1_024];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig8a",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 8a",
    title: "gain of empty lookups over the length of keys",
    claim: "Sharing one digest saves up to 23 % of an empty lookup's time on a PCIe SSD; with keys of 1 KB hashing costs less than half of what it did.",
    parameters,
    run,
};

fn trees(scale: Scale) -> OverKeys {
    OverKeys {
        name: "fig8a",
        keys_bytes: &KEY_BYTES,
        entry_bytes: 2_048,
        entries: scale.pick(55_555, 444_440, 11_000_000),
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
    let longest = |series: &str| {
        gains.iter().find(|gain| gain.series == series && gain.x == 1_024.0).ok_or("no keys of 1 KB")
    };
    let at_1kb = longest(DIGESTS[0].1)?;
    let hashing = at_1kb.shared_hash_ns / at_1kb.parts.hash_ns.max(1.0);
    let (verdict, why) = judge(
        &[
            Claim::at_least("the gain is at most", theirs.gain().median, 0.23),
            Claim::is(
                hashing < 0.5,
                format!(
                    "with keys of 1 KB hashing takes {} of what it did, not less than half",
                    percent(hashing)
                ),
            ),
        ],
        || theirs.because(),
    );
    let note = format!(
        "T = 10, 5 levels, 10 bits per key, entries of 2 KB, emulated PCIe SSD of 10 us. Model: Equation 8 with the time that a hash takes here, \
         {PROBE_NS} ns a probe, and the rate of such filters."
    );
    Ok(Finding {
        ours: format!(
            "At most {} with the paper's hash function ({} at keys of 1 KB, where hashing takes {:.0} instead of {:.0} ns by the engine's timers), at most {} with ours.",
            percent(theirs.gain().median),
            percent(at_1kb.gain().median),
            at_1kb.shared_hash_ns,
            at_1kb.parts.hash_ns,
            percent(ours.gain().median)
        ),
        verdict,
        why,
        table: table("key_bytes", &gains),
        chart: chart(
            "What one digest saves of an empty lookup",
            EXPERIMENT.claim,
            &note,
            Axis::log("key [bytes]"),
            &gains,
        ),
    })
}
