//! Figure 1: the part of a lookup's time that hashing takes in a leveled tree.

use super::breakdown::{DEVICES, Part, Policy, at, chart, measure, parameters};
use super::claims::{Claim, judge};
use super::gains::percent;
use super::hashes::beside_paper;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper};

const POLICY: [Policy; 1] = [Policy::Leveling];
/// The paper's "almost all".
const ALMOST_ALL: f64 = 0.9;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig1",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 1",
    title: "time spent hashing over the share of empty lookups, leveling",
    claim: "On a PCIe SSD of 10 us hashing takes 15 % of the time when every lookup finds its key and over 75 % when none does; on NVM almost all.",
    parameters: |scale| parameters(scale, &POLICY),
    run,
};

/// What the paper has with only empty lookups on PCIe and NVM, where that is here, and on PCIe with none.
fn claims(pcie_all: f64, nvm_all: Option<f64>, pcie_none: f64) -> Vec<Claim> {
    let nvm = nvm_all.map(|all| Claim::at_least("on NVM", all, ALMOST_ALL));
    let pcie = [
        Claim::at_least("with only empty lookups hashing is on PCIe", pcie_all, 0.75),
        Claim::at_least("with no empty lookup it is on PCIe", pcie_none, 0.15),
    ];
    pcie.into_iter().chain(nvm).collect()
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let devices = lab.devices(&DEVICES)?;
    let (parts, table) = measure(lab, &POLICY, &devices.here)?;
    let (pcie_none, pcie_all) = (at(&parts, Device::Pcie, 0.0)?, at(&parts, Device::Pcie, 1.0)?);
    let [nvm_none, nvm_all] = [0.0, 1.0].map(|empty_fraction| at(&parts, Device::Nvm, empty_fraction).ok());
    let share = |part: &Part| part.measured.median;
    let claims = claims(share(pcie_all), nvm_all.map(share), share(pcie_none));
    let (verdict, why) = judge(&claims, || {
        format!(
            "The paper's own model (Equation 4) with the times of its Table 1 has {} on PCIe with only empty lookups and {} with none. {}",
            percent(pcie_all.paper_model),
            percent(pcie_none.paper_model),
            beside_paper()
        )
    });
    let told =
        |part: Option<&Part>| part.map_or_else(|| "(left out)".to_owned(), |part| percent(share(part)));
    let finding = Finding {
        ours: format!(
            "On an emulated PCIe SSD {} of the time with no empty lookup and {} with only empty ones; on NVM {} and {}.",
            percent(share(pcie_none)),
            percent(share(pcie_all)),
            told(nvm_none),
            told(nvm_all)
        ),
        verdict,
        why,
        table,
        chart: chart("What part of a lookup is hashing: leveling", EXPERIMENT.claim, &parts),
    };
    Ok(finding.without(&devices.missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_shares() {
        let verdict = |pcie, nvm, none| judge(&claims(pcie, nvm, none), String::new).0;
        assert_eq!(verdict(0.76, Some(0.98), 0.15), Verdict::Confirmed);
        assert_eq!(verdict(0.76, Some(0.5), 0.15), Verdict::Partly);
        assert_eq!(verdict(0.4, Some(0.98), 0.15), Verdict::Partly);
        assert_eq!(verdict(0.1, Some(0.98), 0.15), Verdict::NotHere);
        assert_eq!(verdict(0.1, None, 0.15), Verdict::NotHere, "what there is decides");
    }
}
