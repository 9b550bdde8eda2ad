//! Figure 13: what one digest saves over the share of empty lookups, on an SSD.

use super::empty_share::{finding, parameters};
use crate::lab::{Device, Experiment, Finding, Lab, Paper};

const DEVICE: Device = Device::Ssd;
/// The gain of lookups that all find nothing from which on the claim counts as confirmed.
const WANTED: f64 = 0.1;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig13",
    paper: Paper::HashSharing,
    place: "Fig 13",
    title: "gain over the share of empty lookups on an SSD",
    claim: "On an SSD the gain grows from nothing to 17 % as lookups find nothing.",
    parameters: |scale| parameters(scale, DEVICE),
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let why = "A read of 113 us hides hashes that take less time than the paper's.";
    finding(lab, DEVICE, WANTED, ("What one digest saves on an SSD", EXPERIMENT.claim, why))
}
