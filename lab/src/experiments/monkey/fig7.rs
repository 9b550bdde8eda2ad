//! Figure 7: the I/Os of a lookup that finds nothing, over the memory of filters. The model.

use crate::chart::Axis;

use super::analysis::{self, BUFFER_BYTES, GIB, POLICIES, SIDES, SIZE_RATIO, fixed};
use super::point::percent;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

/// GiB of filters: densely where curves are steep.
const FILTERS_GIB: [f64; 18] =
    [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.5, 15.0, 17.5, 20.0, 25.0, 30.0, 35.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig7",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Fig 7",
    title: "I/Os of empty lookups over filter memory, model",
    claim: "With any memory Monkey's lookups cost less than the state of the art's; without filters both are alike.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    let mut all =
        vec![Parameter::varied("filters [GiB]", FILTERS_GIB), Parameter::varied("merge policy", POLICIES)];
    all.extend(fixed(&[]));
    all
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let situation = analysis::situation(1.0, 0.0);
    let mut table = Table::new(&[
        "policy",
        "filters",
        "filters_gib",
        "bits_per_key",
        "ios_closed",
        "ios_exact",
        "unfiltered_levels",
    ]);
    let mut panels = Vec::new();
    let mut ratios = Vec::new();
    for policy in POLICIES {
        let mut curves = Vec::new();
        for (allocation, name) in SIDES {
            let mut curve = Vec::new();
            for gib in FILTERS_GIB {
                let costs =
                    analysis::costs(&situation, (policy, SIZE_RATIO), BUFFER_BYTES, gib * GIB, allocation)?;
                let (closed, exact) = (costs.zero_result_lookup_ios, costs.zero_result_lookup_ios_exact);
                let bits = gib * GIB * 8.0 / analysis::ENTRIES as f64;
                table.row(row![policy.name(), name, gib, bits, closed, exact, costs.unfiltered_levels]);
                curve.push((gib, closed));
            }
            curves.push((name.to_owned(), curve));
        }
        if let [(_, baseline), (_, monkey)] = &curves[..] {
            ratios.extend(baseline.iter().zip(monkey).map(|(baseline, monkey)| monkey.1 / baseline.1));
        }
        let axes = (Axis::linear("filters [GiB]"), Axis::from_zero("I/Os of an empty lookup"));
        panels.push(analysis::panel(policy.name(), axes.0, axes.1, curves));
    }
    let (least, most) = ratios
        .iter()
        .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), ratio| (least.min(*ratio), most.max(*ratio)));
    let verdict = verdict(most, ratios.first().copied().unwrap_or(0.0));
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!("Somewhere Monkey costs {most:.3} times the state of the art."),
    };
    Ok(Finding {
        ours: format!(
            "Monkey's lookups cost from {} to {} of the state of the art's; with no filters both read every run.",
            percent(least),
            percent(most)
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "Lookups that find nothing, over the memory of their filters",
            EXPERIMENT.claim,
            "Computed: equations 7 and 56, 512 GB of entries of 16 bytes, T = 4, a buffer of 2 MB.",
            panels,
        ),
    })
}

/// `most`: the largest cost of Monkey for one of the baseline; `first`: that without filters.
fn verdict(most: f64, first: f64) -> Verdict {
    match most {
        most if most <= 1.0 + 1e-9 && (first - 1.0).abs() < 1e-9 => Verdict::Confirmed,
        most if most <= 1.01 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_never_dearer_and_alike_without_filters_confirms() {
        assert_eq!(verdict(1.0, 1.0), Verdict::Confirmed);
        assert_eq!(verdict(1.005, 1.0), Verdict::Partly);
        assert_eq!(verdict(1.2, 1.0), Verdict::NotHere);
    }
}
