//! The slide "SHaMBa-prop with RocksDB", on this engine: a small first module and a large second one, over the share of empty lookups.

use super::figure::PRESSURE_MOST;
use super::rocksdb_proportional::{APPROACHES, NOTE};
use super::trees::Extent;
use super::variants::Variants;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-rocksdb-proportional-empty",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa-prop with RocksDB\", over the empty share",
    title: "I/Os of a lookup with a small and a large module over the share of empty lookups",
    claim: "SHaMBa-prop accelerates point lookups.",
    parameters,
    run,
};

fn variants(scale: Scale) -> Variants {
    Variants {
        experiment: &EXPERIMENT,
        title: "A small and a large module over the share of empty lookups",
        approaches: APPROACHES.to_vec(),
        pressure_most: PRESSURE_MOST,
        ours: None,
        extent: Extent::at(scale),
        timed: &[0.0, 0.5, 1.0],
        note: NOTE,
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    variants(scale).parameters_over_empty(scale)
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    variants(lab.scale).over_empty(lab)
}
