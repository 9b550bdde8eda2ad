//! The slides "Impact of number of modules" without skipping, over memory.

use super::approaches::STATE_OF_THE_ART;
use super::figure::{MEMORY_NOTE, SHARES, memory_chart, percent, saved, table};
use super::measure::Comparison;
use super::modules::{NONE, order, parameters_over_memory, verdict};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const EMPTY: [f64; 2] = [0.5, 1.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-modules-no-skipping",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slides \"Impact of number of modules\", no skipping, over memory",
    title: "I/Os of a lookup with 1, 2, 3 and 7 modules over memory",
    claim: "Without skipping, modules enhance lookups of absent keys under memory pressure; smaller modules are more beneficial.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    parameters_over_memory(scale, &SHARES, &EMPTY, "none")
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let readings = Comparison {
        extent: Extent::for_seven(lab.scale),
        ..Comparison::over_memory(lab.scale, &NONE, &SHARES, &EMPTY)
    }
    .run(lab)?;
    let of = |empty: f64| {
        NONE.iter()
            .skip(1)
            .map(|one| saved(&readings, STATE_OF_THE_ART.name, one.name, Some(empty)))
            .collect::<Vec<_>>()
    };
    let (half, all) = (of(0.5), of(1.0));
    let verdict = verdict(&all);
    let told = |saved: &[super::figure::Saved]| {
        saved.iter().map(|one| percent(one.mean)).collect::<Vec<_>>().join(", ")
    };
    Ok(Finding {
        ours: format!(
            "Under pressure 2, 3 and 7 modules save {} of the I/Os where all keys are absent, and {} where half are{}.",
            told(&all),
            told(&half),
            if order(&all) { "; the smaller the more" } else { "" }
        ),
        verdict,
        why: if verdict == Verdict::Confirmed { String::new() } else { WHY.to_owned() },
        table: table(&readings),
        chart: memory_chart(
            "Modules without skipping",
            EXPERIMENT.claim,
            MEMORY_NOTE,
            &readings,
            &[STATE_OF_THE_ART.name, NONE[3].name],
        ),
    })
}

const WHY: &str = "A lookup that comes to the later modules reads one block for each of them, and a key that is there comes to all: with seven \
    modules that costs more than the smaller ones spare.";
