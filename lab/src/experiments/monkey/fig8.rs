//! Figure 8: lookups against updates, for every size ratio and both merge policies. The model.

use crate::chart::Axis;
use shamba_model::MergePolicy;

use super::analysis::{self, BUFFER_BYTES, ENTRIES, POLICIES, SIDES, fixed};
use super::point::percent;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

const SIZE_RATIOS: [f64; 12] = [2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 16.0, 32.0, 64.0, 128.0, 512.0, 1024.0];
const BITS_PER_KEY: f64 = 5.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig8",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Fig 8",
    title: "I/Os of empty lookups against updates, model",
    claim: "For any merge policy and size ratio Monkey's lookups cost less at the same cost of updates: a better trade-off curve.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    let mut all =
        vec![Parameter::varied("size ratio", SIZE_RATIOS), Parameter::varied("merge policy", POLICIES)];
    all.push(Parameter::fixed("bits per key", BITS_PER_KEY));
    all.extend(fixed(&["size ratio"]));
    all
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let situation = analysis::situation(1.0, 1.0);
    let filter_bytes = BITS_PER_KEY * ENTRIES as f64 / 8.0;
    let mut table = Table::new(&["filters", "policy", "size_ratio", "levels", "lookup_ios", "update_ios"]);
    let mut curves = Vec::new();
    for (allocation, name) in SIDES {
        // From the largest size ratio of tiering over T = 2, where both policies are one, to the largest of leveling.
        let designs = SIZE_RATIOS.iter().rev().map(|ratio| (MergePolicy::Tiering, *ratio));
        let designs = designs.chain(SIZE_RATIOS.iter().skip(1).map(|ratio| (MergePolicy::Leveling, *ratio)));
        let mut curve = Vec::new();
        for (policy, ratio) in designs {
            let costs = analysis::costs(&situation, (policy, ratio), BUFFER_BYTES, filter_bytes, allocation)?;
            let (lookup, update) = (costs.zero_result_lookup_ios, costs.update_ios);
            table.row(row![name, policy.name(), ratio, costs.levels, lookup, update]);
            curve.push((update, lookup));
        }
        curves.push((name.to_owned(), curve));
    }
    let spared: Vec<f64> = match &curves[..] {
        [(_, baseline), (_, monkey)] => {
            baseline.iter().zip(monkey).map(|(base, idea)| 1.0 - idea.1 / base.1).collect()
        }
        _ => Vec::new(),
    };
    let least = spared.iter().copied().fold(f64::INFINITY, f64::min);
    let most = spared.iter().copied().fold(0.0, f64::max);
    let verdict = verdict(least);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!("At some size ratio Monkey costs {} more.", percent(-least)),
    };
    let axes = (Axis::log("I/Os of an update"), Axis::log("I/Os of an empty lookup"));
    let panels = vec![analysis::panel("", axes.0, axes.1, curves)];
    Ok(Finding {
        ours: format!(
            "At the same cost of updates Monkey spares from {} to {} of a lookup's I/Os.",
            percent(least),
            percent(most)
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "The trade-off between lookups and updates",
            EXPERIMENT.claim,
            "Computed: equations 7, 56 and 10; 512 GB of entries of 16 bytes, a buffer of 2 MB, 5 bits per key; from left to right tiering with T \
             from 1,024 to 2, then leveling with T from 3 to 1,024.",
            panels,
        ),
    })
}

/// `least`: the least share that Monkey spares.
fn verdict(least: f64) -> Verdict {
    match least {
        least if least >= -1e-9 => Verdict::Confirmed,
        least if least >= -0.05 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_costs_more_confirms() {
        assert_eq!([0.3, -0.01, -0.5].map(verdict), [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]);
    }
}
