//! The slide "Impact of number of modules" with full skipping, over the share of empty lookups.

use crate::chart::Chart;

use super::approaches::{Approach, STATE_OF_THE_ART, names};
use super::figure::{Over, io_panel, percent, table};
use super::full_skipping::WHY;
use super::measure::{Comparison, Reading};
use super::modules::{
    EMPTY_NOTE, EMPTY_SHARES, FULL, NONE, ONE_FULL, apart, over_empty, parameters_over_empty, reduces,
    saved_at,
};
use super::trees::Extent;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-modules-full-skipping-empty",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Impact of number of modules\", full skipping, over the empty share",
    title: "I/Os of a lookup with 1, 2, 3 and 7 modules, skipped or not, over the share of empty lookups",
    claim: "Skipping modules reduces the impact of the number of modules.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    parameters_over_empty(scale, "none, full")
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let approaches: Vec<_> = NONE.into_iter().chain([ONE_FULL]).chain(FULL).collect();
    let readings =
        Comparison { extent: Extent::for_seven(lab.scale), ..over_empty(lab.scale, &approaches) }.run(lab)?;
    let (none, full) = (apart(&readings, &names(&NONE[1..])), apart(&readings, &names(&FULL)));
    let told = |baseline: Approach, empty: f64| {
        let saved = FULL.map(|one| percent(saved_at(&readings, baseline.name, one.name, empty).0));
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
        let mut panel = io_panel(title, Over::Empty, readings.iter(), &[STATE_OF_THE_ART.name, NONE[1].name]);
        panel.y = panel.y.reaching(0.0, most_ios);
        panel
    };
    Ok(Finding {
        ours: format!(
            "2, 3 and 7 modules lie {} apart without skipping and {} with full skipping, which saves {} of the I/Os of the state of the art if all keys are there and {} if none is, of those of one module that is skipped alike {} and {}.",
            percent(none),
            percent(full),
            told(STATE_OF_THE_ART, EMPTY_SHARES[0]),
            told(STATE_OF_THE_ART, EMPTY_SHARES[EMPTY_SHARES.len() - 1]),
            told(ONE_FULL, EMPTY_SHARES[0]),
            told(ONE_FULL, EMPTY_SHARES[EMPTY_SHARES.len() - 1])
        ),
        verdict: reduces(none, full),
        why: WHY.to_owned(),
        table: table(&readings),
        chart: Chart {
            title: "The number of modules with and without skipping".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: EMPTY_NOTE.to_owned(),
            panels: vec![panel("no skipping", &NONE[1..]), panel("full skipping", &FULL)],
        },
    })
}
