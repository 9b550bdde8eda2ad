//! Table 1: how the costs of existing designs grow with the data. The model beside the asymptotic forms.
//!
//! Each cost of the model is divided by what stands in the table, for data of more and more write buffers: where the form is
//! right the quotient stays within bounds. Where T is as large as it gets, a tree has one level: a log, or a sorted array.

use crate::chart::{Axis, Panel, Point, Series, Style};
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{CpuTimes, DataSet, Device, FilterBits, Plan, Situation, Workload, predict};
use shamba_model::{Design, MAX_SIZE_RATIO};

use super::analysis::{self, PAGE_BYTES};
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

pub(super) const ENTRY_BYTES: f64 = 16.0;
pub(super) const BUFFER_BYTES: u64 = 2 << 20;
pub(super) const SIZE_RATIO: f64 = 4.0;
const BITS_PER_KEY: f64 = 5.0;
/// A quotient may change this many times while the data grows a thousandfold: levels are whole.
pub(super) const STEADY: f64 = 2.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-table1",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Table 1",
    title: "costs of existing designs over the data, model",
    claim: "Updates of a tiered tree cost O(L/B), of a leveled one O(TL/B); lookups O(LT e^(-M/N)) and O(L e^(-M/N)); at their limits a log and a sorted array.",
    parameters,
    run,
};

/// Write buffers of data: for trees, and for a log or a sorted array, whose size ratio they are.
pub(super) const BUFFERS: [u64; 10] =
    [64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];
const LIMIT_BUFFERS: [u64; 5] = [64, 128, 256, 512, MAX_SIZE_RATIO as u64];

/// A row of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    policy: MergePolicy,
    at_limit: bool,
    /// The asymptotic forms of updates, times B, and of lookups, but for e^(-M/N), of log_T(N E / M_buf), T and the buffers of data.
    update: fn(f64, f64, f64) -> f64,
    lookup: fn(f64, f64, f64) -> f64,
}

const ROWS: [Row; 4] = [
    Row {
        name: "log",
        policy: MergePolicy::Tiering,
        at_limit: true,
        update: |_, _, _| 1.0,
        lookup: |_, _, data| data,
    },
    Row {
        name: "tiering",
        policy: MergePolicy::Tiering,
        at_limit: false,
        update: |levels, _, _| levels,
        lookup: |levels, t, _| levels * t,
    },
    Row {
        name: "leveling",
        policy: MergePolicy::Leveling,
        at_limit: false,
        update: |levels, t, _| levels * t,
        lookup: |levels, _, _| levels,
    },
    Row {
        name: "sorted array",
        policy: MergePolicy::Leveling,
        at_limit: true,
        update: |_, _, data| data,
        lookup: |_, _, _| 1.0,
    },
];

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("write buffers of data", BUFFERS),
        Parameter::varied("design", ROWS.map(|row| row.name)),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("buffer bytes", BUFFER_BYTES),
        Parameter::fixed("size ratio, but of log and sorted array", SIZE_RATIO),
        Parameter::fixed("bits per key", BITS_PER_KEY),
    ]
}

/// Data of so many write buffers, half lookups that find nothing, half updates.
pub(super) fn situation(buffers: u64) -> Situation {
    Situation {
        data: DataSet {
            entries: buffers * BUFFER_BYTES / ENTRY_BYTES as u64,
            entry_bytes: ENTRY_BYTES,
            page_bytes: PAGE_BYTES,
        },
        workload: Workload {
            empty_lookups: 1.0,
            found_lookups: 0.0,
            updates: 1.0,
            ranges: 0.0,
            range_selectivity: 0.0,
        },
        device: Device { read_ns: 100_000.0, write_ns: 100_000.0, cpu: CpuTimes::NONE },
    }
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&[
        "design",
        "buffers_of_data",
        "size_ratio",
        "levels",
        "update_ios",
        "update_form",
        "lookup_ios",
        "lookup_form",
    ]);
    let (mut updates, mut lookups, mut worst) = (Vec::new(), Vec::new(), ("", 1.0f64));
    for Row { name, policy, at_limit, update, lookup } in ROWS {
        let (mut of_updates, mut of_lookups) = (Vec::new(), Vec::new());
        for &buffers in if at_limit { &LIMIT_BUFFERS[..] } else { &BUFFERS[..] } {
            let ratio = if at_limit { buffers as f64 } else { SIZE_RATIO };
            let plan = Plan {
                design: Design::new(policy, ratio, BUFFER_BYTES, BITS_PER_KEY),
                filters: FilterBits::PerKey(BITS_PER_KEY),
                allocation: Allocation::Uniform,
                cache_bytes: 0,
                levels: None,
            };
            let situation = situation(buffers);
            let costs = predict(&situation, &plan)?;
            let data = buffers as f64;
            let levels = data.ln() / ratio.ln();
            let update_form = update(levels, ratio, data) / situation.data.entries_per_page();
            let lookup_form = lookup(levels, ratio, data) * (-BITS_PER_KEY).exp();
            let (update_ios, lookup_ios) = (costs.update_ios, costs.zero_result_lookup_ios);
            table.row(row![
                name,
                buffers,
                ratio,
                costs.levels,
                update_ios,
                update_form,
                lookup_ios,
                lookup_form
            ]);
            of_updates.push((data, update_ios, update_form));
            of_lookups.push((data, lookup_ios, lookup_form));
        }
        for (curve, series) in [(&of_updates, &mut updates), (&of_lookups, &mut lookups)] {
            let quotients: Vec<(f64, f64)> =
                curve.iter().map(|(data, cost, form)| (*data, cost / form)).collect();
            let change = change(&quotients);
            if change > worst.1 {
                worst = (name, change);
            }
            // The form goes through the cost's first point: it says how costs grow, not how large they are.
            let times = quotients.first().map_or(1.0, |(_, quotient)| *quotient);
            series.push(Series::model(name, curve.iter().map(|(data, cost, _)| (*data, *cost))));
            let forms = curve.iter().map(|(data, _, form)| Point::new(*data, form * times)).collect();
            series.push(Series::new(format!("{name}, form"), Style::Markers, forms));
        }
    }
    let verdict = verdict(worst.1);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!("The quotient of cost and form of a {} changes {:.2} times.", worst.0, worst.1),
    };
    let panels = [("updates", updates), ("empty lookups", lookups)].map(|(title, series)| Panel {
        title: title.to_owned(),
        x: Axis::log("write buffers of data"),
        y: Axis::log("I/Os"),
        series,
    });
    Ok(Finding {
        ours: format!(
            "While data grows up to 250,000-fold, the quotient of the model's cost and the table's form changes {:.2} times at most ({}).",
            worst.1, worst.0
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "Costs of existing designs, and their asymptotic forms",
            EXPERIMENT.claim,
            "Computed: lines by equations 56 and 10; markers: Table 1's form through the first point; T = 4, 5 bits per key; a log and a sorted \
             array have T as large as the data.",
            panels.into(),
        ),
    })
}

/// How many times its least the most of a curve is.
pub(super) fn change(curve: &[(f64, f64)]) -> f64 {
    let of = |(least, most): (f64, f64), (_, value): &(f64, f64)| (least.min(*value), most.max(*value));
    let (least, most) = curve.iter().fold((f64::INFINITY, 0.0), of);
    if least > 0.0 { most / least } else { f64::INFINITY }
}

/// `change`: the most that a quotient changed.
pub(super) fn verdict(change: f64) -> Verdict {
    match change {
        change if change <= STEADY => Verdict::Confirmed,
        change if change <= 2.0 * STEADY => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_quotients_confirm() {
        assert_eq!(change(&[(1.0, 2.0), (2.0, 3.0)]), 1.5);
        assert_eq!([1.5, 3.0, 9.0].map(verdict), [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]);
    }
}
