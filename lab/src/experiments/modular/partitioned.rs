//! The slide "SHaMBa with Partitioned Index/Filter": filters and indexes in pieces, with modules and without.
//!
//! Filters and indexes here always are in pieces: slices of at most 64 KiB, partitions of 4 KiB. So files are sixteen times as large as in the
//! other experiments, which makes several slices of a filter.

use super::approaches::{Approach, EQ, EQ_F, EQ_P, STATE_OF_THE_ART};
use super::figure::SEVERE_MOST;
use super::trees::Extent;
use super::variants::{EMPTY, Variants};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const APPROACHES: [Approach; 4] = [
    STATE_OF_THE_ART.named("partitioned"),
    EQ.named("partitioned + eq"),
    EQ_P.named("partitioned + eq-P"),
    EQ_F.named("partitioned + eq-F"),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-partitioned",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa with Partitioned Index/Filter\"",
    title: "I/Os of a lookup with partitioned filters, with and without modules",
    claim: "SHaMBa boosts partitioned indexes and filters under severe memory pressure.",
    parameters,
    run,
};

fn extent(scale: Scale) -> Extent {
    let extent = Extent::at(scale);
    Extent { file_bytes: 16 * extent.file_bytes, ..extent }
}

fn variants(scale: Scale) -> Variants {
    Variants {
        experiment: &EXPERIMENT,
        title: "Partitioned filters with modules",
        approaches: APPROACHES.to_vec(),
        pressure_most: SEVERE_MOST,
        ours: None,
        extent: extent(scale),
        timed: &[],
        note: "Files are sixteen times as large as elsewhere: several slices a filter.",
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    variants(scale).parameters_over_memory(scale, &[EMPTY])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    variants(lab.scale).over_memory(lab, &[EMPTY])
}
