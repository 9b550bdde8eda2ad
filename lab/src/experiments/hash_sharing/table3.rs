//! Table 3: false-positive rates, of a filter of seven units, one hash or two.

use super::hashes::Hash;
use super::raw_fpr::{Claimed, Way, against_paper, parameters};
use crate::{Experiment, Finding, Kind, Lab, Paper};

const UNITS: u8 = 7;
/// With the paper's percentages.
const CLAIMED: [Claimed; 7] = [
    ("MM64", Way::Single(Hash::Murmur64), 0.829),
    ("XX", Way::Single(Hash::Xx64), 0.897),
    ("CRC", Way::Single(Hash::Crc32c), 0.841),
    ("CITY", Way::Single(Hash::City64), 0.834),
    ("XX+MM64", Way::Double(Hash::Xx64, Hash::Murmur64), 0.761),
    ("CRC+MM64", Way::Double(Hash::Crc32c, Hash::Murmur64), 0.808),
    ("CITY+MM64", Way::Double(Hash::City64, Hash::Murmur64), 0.842),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-table3",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Table 3",
    title: "false-positive rate of a filter of seven units, one hash or two",
    claim: "Seven units whose probes come from one hash and its rotation have almost the rate of a normal filter (0.83 to 0.90 %), double hashing is slightly better (0.76 to 0.84 %).",
    parameters: |scale| parameters(scale, &CLAIMED, UNITS),
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let texts = (
        "False positives of seven units, one hash or two",
        EXPERIMENT.claim,
        "Seven filters of one probe over the same 10,000 keys of 512 B, 10 bits per key together; bars: two standard errors.",
    );
    against_paper(lab, &CLAIMED, UNITS, texts)
}
