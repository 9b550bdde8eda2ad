//! The slide "SHaMBa-eq with RocksDB", on this engine: two equal modules, over memory and over the share of empty lookups.

use super::approaches::{Approach, EQ, EQ_F, EQ_P, PLANNED, STATE_OF_THE_ART};
use super::figure::PRESSURE_MOST;
use super::trees::Extent;
use super::variants::{EMPTY, Variants};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const APPROACHES: [Approach; 4] = [STATE_OF_THE_ART, EQ, EQ_P, EQ_F];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-rocksdb-equal",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa-eq with RocksDB\"",
    title: "I/Os of a lookup with two equal modules, over memory and over the share of empty lookups",
    claim: "SHaMBa-eq accelerates point lookups.",
    parameters,
    run,
};

fn variants(scale: Scale) -> Variants {
    Variants {
        experiment: &EXPERIMENT,
        title: "Two equal modules",
        approaches: APPROACHES.to_vec(),
        pressure_most: PRESSURE_MOST,
        ours: Some(PLANNED),
        extent: Extent::at(scale),
        timed: &[0.0, EMPTY, 1.0],
        note: "This engine in RocksDB's place.",
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    variants(scale).parameters_over_both(scale)
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    variants(lab.scale).over_both(lab)
}
