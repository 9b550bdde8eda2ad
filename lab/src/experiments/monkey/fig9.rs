//! Figure 9: one memory between buffer and filters: what lookups and updates cost as the buffer takes more of it. The model.

use crate::chart::Axis;
use shamba_model::Design;
use shamba_model::split::MemorySplit;

use super::analysis::{self, GIB, PAGE_BYTES, POLICIES, SIDES, SIZE_RATIO, fixed};
use super::point::percent;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

/// Buffer and filters together.
const MEMORY_GIB: f64 = 35.0;
/// A buffer of this part of the memory leaves the filters nearly what they had.
const SMALL_PART: f64 = 0.01;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig9",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Fig 9",
    title: "I/Os of lookups and updates over the buffer's part of memory, model",
    claim: "Monkey's lookups cost the same whatever the buffer, as long as filters have memory; in the state of the art a small buffer harms them.",
    parameters,
    run,
};

/// From a page to all of it, twice as much each time.
fn buffers() -> Vec<u64> {
    let all = (MEMORY_GIB * GIB) as u64;
    let mut buffers: Vec<u64> = std::iter::successors(Some(PAGE_BYTES), |bytes| Some(bytes * 2))
        .take_while(|bytes| *bytes < all)
        .collect();
    buffers.push(all);
    buffers
}

fn parameters(_: Scale) -> Vec<Parameter> {
    let mut all = vec![Parameter::varied("buffer bytes", buffers())];
    all.push(Parameter::fixed("buffer and filters [GiB]", MEMORY_GIB));
    all.push(Parameter::fixed("merge policies", "leveling, tiering"));
    all.extend(fixed(&["buffer bytes"]));
    all
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let situation = analysis::situation(1.0, 1.0);
    let memory = MEMORY_GIB * GIB;
    let mut table = Table::new(&[
        "policy",
        "filters",
        "buffer_bytes",
        "filters_gib",
        "levels",
        "lookup_ios",
        "update_ios",
    ]);
    let (mut panels, mut spans, mut sweet) = (Vec::new(), Vec::new(), Vec::new());
    for policy in POLICIES {
        let mut curves = Vec::new();
        for (allocation, name) in SIDES {
            let (mut lookups, mut updates) = (Vec::new(), Vec::new());
            for buffer in buffers() {
                let filters = memory - buffer as f64;
                let costs = analysis::costs(&situation, (policy, SIZE_RATIO), buffer, filters, allocation)?;
                let (lookup, update) = (costs.zero_result_lookup_ios, costs.update_ios);
                table.row(row![policy.name(), name, buffer, filters / GIB, costs.levels, lookup, update]);
                lookups.push((buffer as f64, lookup));
                updates.push((buffer as f64, update));
            }
            spans.push(span(&lookups, memory * SMALL_PART));
            curves.push((format!("{name}, lookup"), lookups));
            if name == "Monkey" {
                curves.push(("update, both".to_owned(), updates));
            }
        }
        let split = MemorySplit::new(&situation, &Design::new(policy, SIZE_RATIO, PAGE_BYTES, 0.0))?;
        let bits = split.best_filter_bits(memory * 8.0, PAGE_BYTES as f64 * 8.0);
        sweet.push(format!("{:.2} GiB with {}", (memory - bits / 8.0) / GIB, policy.name()));
        let axes = (Axis::log("buffer [bytes]"), Axis::log("I/Os"));
        panels.push(analysis::panel(policy.name(), axes.0, axes.1, curves));
    }
    let most = |side: usize| spans.iter().skip(side).step_by(2).copied().fold(0.0, f64::max);
    let (baseline, monkey) = (most(0), most(1));
    let verdict = verdict(baseline, monkey);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "Filters lose what the buffer gets.".to_owned(),
    };
    Ok(Finding {
        ours: format!(
            "With buffers from a page to {} of the memory the state of the art's lookups cost up to {baseline:.2} times as much with one \
             buffer as with another, Monkey's {monkey:.2} times; for as many updates as lookups the best buffer (equation 28) is {}.",
            percent(SMALL_PART),
            sweet.join(", ")
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "One memory between buffer and filters",
            EXPERIMENT.claim,
            "Computed: equations 7, 56 and 10, with whole levels (hence steps); 512 GB of entries of 16 bytes, T = 4, 35 GiB for buffer and filters.",
            panels,
        ),
    })
}

/// How many times its least the most is, of buffers up to `most_bytes`.
fn span(lookups: &[(f64, f64)], most_bytes: f64) -> f64 {
    let of = |(least, most): (f64, f64), (_, ios): &(f64, f64)| (least.min(*ios), most.max(*ios));
    let (least, most) =
        lookups.iter().filter(|(bytes, _)| *bytes <= most_bytes).fold((f64::INFINITY, 0.0), of);
    most / least
}

fn verdict(baseline: f64, monkey: f64) -> Verdict {
    match monkey {
        monkey if monkey < 1.1 && baseline > 1.5 => Verdict::Confirmed,
        monkey if monkey < baseline => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_curve_beside_one_that_is_not_confirms() {
        assert_eq!(span(&[(1.0, 2.0), (2.0, 3.0), (9.0, 50.0)], 5.0), 1.5);
        assert_eq!(verdict(2.0, 1.05), Verdict::Confirmed);
        assert_eq!(verdict(2.0, 1.5), Verdict::Partly);
        assert_eq!(verdict(1.2, 1.5), Verdict::NotHere);
    }
}
