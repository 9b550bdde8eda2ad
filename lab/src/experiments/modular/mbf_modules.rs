//! The slide "Modular Bloom Filter": how many modules an empty query asks, over their number.

use super::mbf::{Reach, every_reach, parameters};
use super::mbf_chart::{Reached, chart, table};
use crate::{Experiment, Finding, Kind, Lab, Paper, Verdict};

/// Measured and computed differ by at most this share.
const NEAR: f64 = 0.03;
/// Of all modules, at most this share is asked where there are many.
const FEW: f64 = 0.5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-mbf-modules",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
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
    let equal: Vec<f64> = (1..=7).map(|count| asked(&count.to_string())).collect();
    Ok(Finding {
        ours: format!(
            "{:.2} of 2, {:.2} of 3, {:.2} of 7; at most {:.1} % from the model.",
            asked("2"),
            asked("3"),
            asked("7"),
            100.0 * furthest
        ),
        verdict: verdict(&equal, furthest),
        why: why(&equal, furthest),
        table: table(&all),
        chart: chart(&EXPERIMENT, &all, Reached::Modules),
    })
}

fn departure(reach: &Reach) -> f64 {
    (reach.modules.median / reach.model.0 - 1.0).abs()
}

/// More modules are asked the more there are.
fn rises(asked: &[f64]) -> bool {
    asked.windows(2).all(|pair| matches!(pair, [before, after] if after > before))
}

/// Of the most modules only a few are asked.
fn is_few(asked: &[f64]) -> bool {
    asked.last().is_some_and(|last| *last <= FEW * asked.len() as f64)
}

/// What of the claim does not hold, over 1, 2 and so on modules.
fn why(asked: &[f64], furthest: f64) -> String {
    let mut why = Vec::new();
    if !rises(asked) {
        why.push("The number that is asked does not rise with every module.".to_owned());
    }
    if !is_few(asked) {
        why.push(format!("More than {:.0} % of the modules are asked where there are many.", 100.0 * FEW));
    }
    if furthest > NEAR {
        why.push(format!("The model of modules that fail independently is {:.0} % off.", 100.0 * furthest));
    }
    why.join(" ")
}

/// More of them are asked, few of many, and as many as computed.
fn verdict(asked: &[f64], furthest: f64) -> Verdict {
    match (rises(asked) && is_few(asked), furthest <= NEAR) {
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
        let few = [1.0, 1.1, 1.3];
        assert_eq!(
            [
                verdict(&few, 0.01),
                verdict(&few, 0.1),
                verdict(&[1.0, 1.9, 2.8], 0.0),
                verdict(&[1.1, 1.0], 0.0)
            ],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere, Verdict::NotHere]
        );
        assert!(why(&few, 0.01).is_empty() && why(&few, 0.1).contains("10 % off"));
    }
}
