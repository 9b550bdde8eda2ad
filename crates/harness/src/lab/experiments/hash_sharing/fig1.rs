//! Figure 1: the part of a lookup's time that hashing takes in a leveled tree.

use super::breakdown::{Policy, at, chart, measure, parameters};
use super::claims::{Claim, judge};
use super::gains::percent;
use super::hashes::beside_paper;
use crate::lab::{Device, Experiment, Finding, Kind, Lab, Paper};

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

/// What the paper has with only empty lookups on PCIe and NVM, and on PCIe with none.
fn claims(pcie_all: f64, nvm_all: f64, pcie_none: f64) -> Vec<Claim> {
    vec![
        Claim::at_least("with only empty lookups hashing is on PCIe", pcie_all, 0.75),
        Claim::at_least("on NVM", nvm_all, ALMOST_ALL),
        Claim::at_least("with no empty lookup it is on PCIe", pcie_none, 0.15),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let (parts, table) = measure(lab, &POLICY)?;
    let [pcie_none, pcie_all, nvm_none, nvm_all] =
        [(Device::Pcie, 0.0), (Device::Pcie, 1.0), (Device::Nvm, 0.0), (Device::Nvm, 1.0)]
            .map(|(device, empty_fraction)| at(&parts, device, empty_fraction));
    let (pcie_none, pcie_all, nvm_none, nvm_all) = (pcie_none?, pcie_all?, nvm_none?, nvm_all?);
    let claims = claims(pcie_all.measured, nvm_all.measured, pcie_none.measured);
    let (verdict, why) = judge(&claims, || {
        format!(
            "The paper's own model (Equation 4) with the times of its Table 1 has {} on PCIe with only empty lookups and {} with none. {}",
            percent(pcie_all.paper_model),
            percent(pcie_none.paper_model),
            beside_paper()
        )
    });
    Ok(Finding {
        ours: format!(
            "On an emulated PCIe SSD {} of the time with no empty lookup and {} with only empty ones; on NVM {} and {}.",
            percent(pcie_none.measured),
            percent(pcie_all.measured),
            percent(nvm_none.measured),
            percent(nvm_all.measured)
        ),
        verdict,
        why,
        table,
        chart: chart("What part of a lookup is hashing: leveling", EXPERIMENT.claim, &parts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Verdict;

    #[test]
    fn the_verdict_follows_the_shares() {
        let verdict = |pcie, nvm, none| judge(&claims(pcie, nvm, none), String::new).0;
        assert_eq!(verdict(0.76, 0.98, 0.15), Verdict::Confirmed);
        assert_eq!(verdict(0.76, 0.5, 0.15), Verdict::Partly);
        assert_eq!(verdict(0.4, 0.98, 0.15), Verdict::Partly);
        assert_eq!(verdict(0.1, 0.98, 0.15), Verdict::NotHere);
    }
}
