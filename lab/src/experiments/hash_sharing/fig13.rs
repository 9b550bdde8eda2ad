//! Figure 13: what one digest saves over the share of empty lookups, on an SSD.

use super::empty_share::{Claimed, finding, parameters};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper};

const DEVICE: Device = Device::Ssd;
const CLAIMED: Claimed = Claimed { none_empty: None, all_empty: 0.17 };

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig13",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 13",
    title: "gain over the share of empty lookups on an SSD",
    claim: "On an SSD the gain grows from nothing to 17 % as lookups find nothing.",
    parameters: |scale| parameters(scale, DEVICE),
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    finding(lab, DEVICE, CLAIMED, ("What one digest saves on an SSD", EXPERIMENT.claim))
}
