//! The slide "SHaMBa with Monkey": bits that follow Monkey, with modules and without.

use super::approaches::{Approach, EQ, EQ_F, EQ_P, PLANNED, STATE_OF_THE_ART};
use super::figure::PRESSURE_MOST;
use super::trees::Extent;
use super::variants::{EMPTY, Variants};
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const APPROACHES: [Approach; 4] = [
    STATE_OF_THE_ART.with_monkey().named("Monkey"),
    EQ.with_monkey().named("Monkey + eq"),
    EQ_P.with_monkey().named("Monkey + eq-P"),
    EQ_F.with_monkey().named("Monkey + eq-F"),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-monkey",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"SHaMBa with Monkey\"",
    title: "I/Os of a lookup with Monkey's bits, with and without modules",
    claim: "SHaMBa further improves the performance of Monkey.",
    parameters,
    run,
};

fn variants(scale: Scale) -> Variants {
    Variants {
        experiment: &EXPERIMENT,
        title: "Monkey with modules",
        approaches: APPROACHES.to_vec(),
        pressure_most: PRESSURE_MOST,
        ours: Some(PLANNED.with_monkey().named("Monkey + eq-F held by plan (ours)")),
        extent: Extent::at(scale),
        timed: &[],
        note: "Bits per level as Monkey has them for these five levels, 10 per key on average.",
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    variants(scale).parameters_over_memory(scale, &[EMPTY, 1.0])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    variants(lab.scale).over_memory(lab, &[EMPTY, 1.0])
}
