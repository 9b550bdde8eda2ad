//! The slide "Modular Bloom Filter": the false-positive rate over the number of modules.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::fpr::{best_standard_probes, layout_fpr, standard_fpr};

use super::mbf::{Reach, every_reach, parameters};
use super::trees::BITS_PER_KEY;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Table, Verdict};

/// Above theory by at most this share.
const NEAR: f64 = 0.1;
const CLOSE: f64 = 0.25;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-mbf-fpr",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    place: "slide \"Modular Bloom Filter\", false positive rate",
    title: "false-positive rate over the number of modules",
    claim: "A modular filter's false-positive rate is close to that of theory, whatever the number of modules.",
    parameters,
    run,
};

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let all = every_reach(lab)?;
    let theory = standard_fpr(BITS_PER_KEY, best_standard_probes(BITS_PER_KEY));
    let mut table = Table::new(&[
        "modules",
        "layout",
        "bits_per_key",
        "fpr",
        "fpr_least",
        "fpr_most",
        "fpr_model",
        "fpr_theory_standard",
        "departure_share",
    ]);
    let model = |reach: &Reach| layout_fpr(reach.layout, BITS_PER_KEY);
    for reach in &all {
        let fpr = reach.fpr;
        table.row(row![
            reach.name.clone(),
            reach.layout.to_option(),
            BITS_PER_KEY,
            fpr.median,
            fpr.least,
            fpr.most,
            model(reach),
            theory,
            fpr.median / theory - 1.0
        ]);
    }
    let departures: Vec<f64> = all.iter().map(|reach| reach.fpr.median / theory - 1.0).collect();
    let (least, most) = ends(&departures);
    let names: Vec<String> = all.iter().map(|reach| reach.name.clone()).collect();
    let measured = (0u32..).zip(&all).map(|(at, reach)| {
        Point::between(
            f64::from(at),
            100.0 * reach.fpr.median,
            100.0 * reach.fpr.least,
            100.0 * reach.fpr.most,
        )
    });
    let of = |value: &dyn Fn(&Reach) -> f64| {
        (0u32..).zip(&all).map(|(at, reach)| (f64::from(at), 100.0 * value(reach))).collect::<Vec<_>>()
    };
    let first = all.first().map_or(0.0, |reach| reach.fpr.median);
    let last = all.iter().rev().find(|reach| reach.name == "7").map_or(0.0, |reach| reach.fpr.median);
    Ok(Finding {
        ours: format!(
            "{:.2} % with one module, {:.2} % with seven, {:.2} % in theory: from {:+.0} to {:+.0} % of theory.",
            100.0 * first,
            100.0 * last,
            100.0 * theory,
            100.0 * least,
            100.0 * most
        ),
        verdict: verdict(most),
        why: format!(
            "Modules here are blocked filters, a line a key: one module is {:+.0} % from the theory of a standard filter, and seven are {:+.0} %. A key in a \
             crowded line of one module has an ordinary line in the next.",
            100.0 * (first / theory - 1.0),
            100.0 * (last / theory - 1.0)
        ),
        table,
        chart: Chart {
            title: "False positives of modular filters".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "10 bits per key over all modules; prop: 3 bits in the first of two. Model: blocked modules that fail independently. Theory: one standard Bloom filter.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::categories("modules", names),
                y: Axis::from_zero("false positives [%]"),
                series: vec![
                    Series::new("measured", Style::Bars, measured.collect()),
                    Series::new("model of blocked modules", Style::Markers, of(&model).into_iter().map(|(x, y)| Point::new(x, y)).collect()),
                    Series::model("theory, standard filter", of(&|_| theory)),
                ],
            }],
        },
    })
}

fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(*value), most.max(*value))
    })
}

/// By how much the worst rate is above theory.
fn verdict(most: f64) -> Verdict {
    match most {
        most if most <= NEAR => Verdict::Confirmed,
        most if most <= CLOSE => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_by_how_much_the_worst_is_above() {
        assert_eq!(
            [verdict(-0.1), verdict(0.15), verdict(0.5)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
        assert_eq!(ends(&[0.1, -0.2, 0.0]), (-0.2, 0.1));
    }
}
