//! The slide "Impact of number of modules" without skipping, over the share of empty lookups.

use super::approaches::STATE_OF_THE_ART;
use super::figure::{percent, table};
use super::measure::Comparison;
use super::modules::{
    EMPTY_NOTE, EMPTY_SHARES, MEMORY_SHARE, NONE, empty_chart, first_gain, over_empty, parameters_over_empty,
    saved_at,
};
use super::trees::Extent;
use crate::lab::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-modules-no-skipping-empty",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Impact of number of modules\", no skipping, over the empty share",
    title: "I/Os of a lookup with 1, 2, 3 and 7 modules over the share of empty lookups",
    claim: "Without skipping, modules enhance empty lookups: the more of them, the more smaller modules gain; they are of no use for keys that are there.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    parameters_over_empty(scale, "none")
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let readings =
        Comparison { extent: Extent::for_seven(lab.scale), ..over_empty(lab.scale, &NONE) }.run(lab)?;
    let gains =
        |name: &str| EMPTY_SHARES.map(|empty| saved_at(&readings, STATE_OF_THE_ART.name, name, empty).0);
    let all: Vec<[f64; EMPTY_SHARES.len()]> = NONE.iter().skip(1).map(|one| gains(one.name)).collect();
    let told = |at: usize| all.iter().map(|gains| percent(gains[at])).collect::<Vec<_>>().join(", ");
    let last = EMPTY_SHARES.len() - 1;
    let rises = all.iter().all(|gains| gains[last] > gains[0]);
    let helps = all.iter().any(|gains| gains[last] >= 0.1);
    let from = all.first().and_then(first_gain);
    Ok(Finding {
        ours: format!(
            "With {} of the memory, 2, 3 and 7 modules save {} of the I/Os if no key is there and {} if all are{}.",
            percent(MEMORY_SHARE),
            told(last),
            told(0),
            from.map_or_else(String::new, |empty| format!("; two modules gain from {} empty lookups on", percent(empty)))
        ),
        verdict: verdict(rises, helps),
        why: "A key that is there passes all modules of its file's filter, and reads each of them that is not in memory.".to_owned(),
        table: table(&readings),
        chart: empty_chart("Modules without skipping", &EXPERIMENT, EMPTY_NOTE, &readings, &[STATE_OF_THE_ART.name, NONE[3].name]),
    })
}

fn verdict(rises: bool, helps: bool) -> Verdict {
    match (rises, helps) {
        (true, true) => Verdict::Confirmed,
        (true, false) | (false, true) => Verdict::Partly,
        (false, false) => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_that_rises_confirms() {
        assert_eq!(
            [verdict(true, true), verdict(false, true), verdict(false, false)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
