//! Figure 8a: what one digest saves of empty lookups, over the length of keys.

use super::gains::{DIGESTS, FPR, PROBE_NS, chart, percent, table};
use super::over_keys::OverKeys;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const KEY_BYTES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1_024];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig8a",
    paper: Paper::HashSharing,
    place: "Fig 8a",
    title: "gain of empty lookups over the length of keys",
    claim: "Sharing one digest saves up to 23 % of an empty lookup's time on a PCIe SSD; at 1 KB hashing takes less than half.",
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
        let of = gains.iter().filter(|gain| gain.series == series).map(|gain| gain.gain().median);
        of.fold(f64::NEG_INFINITY, f64::max)
    };
    let [theirs, ours] = DIGESTS.map(|(_, name)| most(name));
    let longest = gains.iter().find(|gain| gain.x == 1_024.0).map_or(0.0, |gain| gain.gain().median);
    let verdict = match theirs {
        gain if gain >= 0.15 && longest >= 0.8 * gain => Verdict::Confirmed,
        gain if gain >= 0.05 => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "The hash is faster here than in Table 1, and there are fewer other costs a lookup: see the parts in the table.".to_owned(),
    };
    let note = format!(
        "T = 10, 5 levels, 10 bits per key, entries of 2 KB, emulated PCIe SSD of 10 us. Model: Equation 8 with the time that a hash takes here, \
         {PROBE_NS} ns a probe, a false-positive rate of {FPR}."
    );
    Ok(Finding {
        ours: format!(
            "At most {} with the paper's hash function ({} at keys of 1 KB), at most {} with ours.",
            percent(theirs),
            percent(longest),
            percent(ours)
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
