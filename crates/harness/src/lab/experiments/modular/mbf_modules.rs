//! The slide "Modular Bloom Filter": how many modules an empty query asks, over their number.

use super::mbf::{Reach, every_reach, parameters};
use super::mbf_chart::{Kind, chart, table};
use crate::lab::{Experiment, Finding, Lab, Paper, Verdict};

/// Measured and computed differ by at most this share.
const NEAR: f64 = 0.03;
/// Of all modules, at most this share is asked where there are many.
const FEW: f64 = 0.5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-mbf-modules",
    paper: Paper::ModularFilters,
    place: "slide \"Modular Bloom Filter\", module accesses",
    title: "modules that an empty query asks over the number of modules",
    claim: "With more modules an empty query accesses a few more of them on average.",
    parameters,
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let all = every_reach(lab)?;
    let asked =
        |name: &str| all.iter().find(|reach| reach.name == name).map_or(0.0, |reach| reach.modules.median);
    let furthest = all.iter().map(departure).fold(0.0, f64::max);
    let verdict = verdict(asked("7") / 7.0, furthest);
    Ok(Finding {
        ours: format!(
            "{:.2} of 2, {:.2} of 3, {:.2} of 7; at most {:.1} % from the model.",
            asked("2"),
            asked("3"),
            asked("7"),
            100.0 * furthest
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "See the rates of single modules, from which the model is made.".to_owned(),
        },
        table: table(&all),
        chart: chart(&EXPERIMENT, &all, Kind::Modules),
    })
}

fn departure(reach: &Reach) -> f64 {
    (reach.modules.median / reach.model.0 - 1.0).abs()
}

/// From the share of seven modules that is asked, and the distance from the model.
fn verdict(share_of_seven: f64, furthest: f64) -> Verdict {
    match (share_of_seven <= FEW, furthest <= NEAR) {
        (true, true) => Verdict::Confirmed,
        (true, false) => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_modules_as_computed_confirm() {
        assert_eq!(
            [verdict(0.28, 0.01), verdict(0.28, 0.1), verdict(0.9, 0.0)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
