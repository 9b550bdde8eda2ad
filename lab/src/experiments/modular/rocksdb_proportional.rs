//! The slide "SHaMBa-prop with RocksDB", on this engine: a small first module and a large second one, over memory.

use super::approaches::{Approach, PROP, PROP_F, PROP_P, STATE_OF_THE_ART};
use super::figure::PRESSURE_MOST;
use super::trees::Extent;
use super::variants::{EMPTY, Variants};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

pub(super) const APPROACHES: [Approach; 4] = [STATE_OF_THE_ART, PROP, PROP_P, PROP_F];
pub(super) const NOTE: &str = "This engine in RocksDB's place. The first of two modules has 3 of 10 bits: the slides do not say how many.";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-rocksdb-proportional",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa-prop with RocksDB\", over memory",
    title: "I/Os of a lookup with a small and a large module over memory",
    claim: "SHaMBa-prop accelerates point lookups.",
    parameters,
    run,
};

fn variants(scale: Scale) -> Variants {
    Variants {
        experiment: &EXPERIMENT,
        title: "A small and a large module",
        approaches: APPROACHES.to_vec(),
        pressure_most: PRESSURE_MOST,
        ours: None,
        extent: Extent::at(scale),
        timed: &[EMPTY, 1.0],
        note: NOTE,
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    variants(scale).parameters_over_memory(scale, &[EMPTY, 1.0])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    variants(lab.scale).over_memory(lab, &[EMPTY, 1.0])
}
