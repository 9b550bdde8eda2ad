//! The slide "Impact of number of modules" with full skipping, over memory.

use crate::chart::Chart;

use super::approaches::{Approach, STATE_OF_THE_ART, names};
use super::figure::{MEMORY_NOTE, Over, SHARES, io_panel, percent, saved, table};
use super::measure::{Comparison, Reading};
use super::modules::{FULL, NONE, ONE_FULL, apart, parameters_over_memory, reduces};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const EMPTY: f64 = 0.5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-modules-full-skipping",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Impact of number of modules\", full skipping, over memory",
    title: "I/Os of a lookup with 1, 2, 3 and 7 modules, skipped or not, over memory",
    claim: "Skipping modules reduces the impact of the number of modules.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    parameters_over_memory(scale, &SHARES, &[EMPTY], "none, full")
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let approaches: Vec<_> = NONE.into_iter().chain([ONE_FULL]).chain(FULL).collect();
    let readings = Comparison {
        extent: Extent::for_seven(lab.scale),
        ..Comparison::over_memory(lab.scale, &approaches, &SHARES, &[EMPTY])
    }
    .run(lab)?;
    let (none, full) = (apart(&readings, &names(&NONE[1..])), apart(&readings, &names(&FULL)));
    let told = |baseline: Approach| {
        let saved = FULL.map(|one| percent(saved(&readings, baseline.name, one.name, Some(EMPTY)).mean));
        saved.join(", ")
    };
    let most_ios = readings.iter().map(|reading| reading.ios.most).fold(0.0, f64::max);
    // One colour for a number of modules in both panels, and one scale.
    let panel = |title: &str, wanted: &[Approach]| {
        let named = |reading: &Reading| {
            let number = wanted.iter().position(|one| one.name == reading.approach.name);
            let name = number.map_or(reading.approach.name, |number| NONE[number + 1].name);
            Reading { approach: reading.approach.named(name), ..reading.clone() }
        };
        let is_it = |reading: &&Reading| {
            let name = reading.approach.name;
            name == STATE_OF_THE_ART.name
                || names(wanted).contains(&name)
                || wanted == FULL && name == ONE_FULL.name
        };
        let readings: Vec<Reading> = readings.iter().filter(is_it).map(named).collect();
        let mut panel =
            io_panel(title, Over::Memory, readings.iter(), &[STATE_OF_THE_ART.name, NONE[1].name]);
        panel.y = panel.y.reaching(0.0, most_ios);
        panel
    };
    Ok(Finding {
        ours: format!(
            "2, 3 and 7 modules lie {} apart without skipping and {} with full skipping, which saves {} of the I/Os of the state of the art, and {} of those of one module that is skipped alike.",
            percent(none),
            percent(full),
            told(STATE_OF_THE_ART),
            told(ONE_FULL)
        ),
        verdict: reduces(none, full),
        why: WHY.to_owned(),
        table: table(&readings),
        chart: Chart {
            title: "The number of modules with and without skipping".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: format!("Half of the keys absent. {MEMORY_NOTE}"),
            panels: vec![panel("no skipping", &NONE[1..]), panel("full skipping", &FULL)],
        },
    })
}

pub(super) const WHY: &str = "A module is skipped when it saves fewer reads than it costs, or less than its memory would elsewhere in the cache; the slides have a fixed threshold.";
