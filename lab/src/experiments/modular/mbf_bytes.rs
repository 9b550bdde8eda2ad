//! The slide "Modular Bloom Filter": how much of the filter an empty query needs, over the number of modules.

use super::mbf::every_reach;
use super::mbf::parameters;
use super::mbf_chart::{Reached, chart, table};
use crate::{Experiment, Finding, Kind, Lab, Paper, Verdict};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-mbf-bytes",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Modular Bloom Filter\", size accessed",
    title: "bytes of modules that an empty query asks over the number of modules",
    claim: "Though more modules are accessed, they are smaller: the size that an empty query accesses falls with the number of modules.",
    parameters,
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let all = every_reach(lab)?;
    let share =
        |name: &str| all.iter().find(|reach| reach.name == name).map_or(0.0, |reach| reach.bytes.median);
    let equal: Vec<f64> = (1..=7).map(|count| share(&count.to_string())).collect();
    let verdict = verdict(&equal);
    Ok(Finding {
        ours: format!(
            "{:.0} % of the filter with 2 equal modules, {:.0} % with 3, {:.0} % with 7; {:.0} % with a small first of 2.",
            100.0 * share("2"),
            100.0 * share("3"),
            100.0 * share("7"),
            100.0 * share("2 prop")
        ),
        verdict,
        why: why(&equal),
        table: table(&all),
        chart: chart(&EXPERIMENT, &all, Reached::Bytes),
    })
}

/// Where it does not fall, over 1, 2 and so on modules.
fn why(shares: &[f64]) -> String {
    let rises =
        (2..).zip(shares.windows(2)).filter(|(_, pair)| matches!(pair, [before, after] if after >= before));
    let at: Vec<String> = rises.map(|(modules, _)| modules.to_string()).collect();
    if at.is_empty() {
        return String::new();
    }
    format!(
        "{} modules need no less than one fewer. Lines are whole, so modules of few bits per key round up.",
        at.join(", ")
    )
}

/// Falling all the way, or at least from the first to the last.
fn verdict(shares: &[f64]) -> Verdict {
    let falls = shares.windows(2).all(|pair| matches!(pair, [before, after] if after < before));
    match (falls, shares.first(), shares.last()) {
        (true, ..) => Verdict::Confirmed,
        (false, Some(first), Some(last)) if last < first => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_curve_confirms() {
        assert_eq!(verdict(&[1.0, 0.5, 0.3]), Verdict::Confirmed);
        assert_eq!(verdict(&[1.0, 0.3, 0.4]), Verdict::Partly);
        assert_eq!(verdict(&[1.0, 1.5]), Verdict::NotHere);
        assert!(why(&[1.0, 0.3, 0.4]).starts_with("3 modules") && why(&[1.0, 0.5]).is_empty());
    }
}
