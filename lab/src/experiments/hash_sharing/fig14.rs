//! Figure 14: what one digest saves over the share of empty lookups, on a RAM disk.

use super::empty_share::{Claimed, finding, parameters};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper};

const DEVICE: Device = Device::Memory;
const CLAIMED: Claimed = Claimed { none_empty: Some(0.1), all_empty: 0.4 };

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig14",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 14",
    title: "gain over the share of empty lookups on a RAM disk",
    claim: "On a RAM disk the gain grows from 10 % to over 40 % as lookups find nothing.",
    parameters: |scale| parameters(scale, DEVICE),
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    finding(lab, DEVICE, CLAIMED, ("What one digest saves on a RAM disk", EXPERIMENT.claim))
}
