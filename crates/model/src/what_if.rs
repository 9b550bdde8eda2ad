//! What-if: the difference between two cases, each a plan in a situation, as rows of text and
//! figures.
//!
//! The cases may differ in the data, the design, or both. Rows of inputs appear only if the input
//! differs; rows of predictions always appear.
//!
//! Not here: the layout of a table (crate `shamba-cli`); the search for the best design
//! ([`crate::navigator`]).

use crate::cost::{Costs, Plan, Situation, predict_merging};
use crate::updates::Merging;

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A number or a ratio without unit.
    Number,
    /// Bytes.
    Bytes,
    /// Page reads; a write counts as its cost in reads.
    Ios,
    /// Nanoseconds.
    Nanoseconds,
    /// Events per second.
    PerSecond,
    /// A share, from 0 to 1.
    Share,
}

/// One figure in both cases.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// Its name, as text.
    pub quantity: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value in the first case.
    pub before: f64,
    /// Its value in the second case.
    pub after: f64,
    /// Whether it was given rather than predicted.
    pub is_input: bool,
}

impl Row {
    /// The second value relative to the first; `None` where the first is 0 or the ratio exceeds the
    /// range of a float.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.after / self.before).filter(|ratio| ratio.is_finite())
    }
}

/// A plan in a situation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// Data, workload and device.
    pub situation: Situation,
    /// Design and memory.
    pub plan: Plan,
}

/// The rows of two cases: inputs that differ, then all predictions.
///
/// # Errors
/// A case that cannot be predicted, and why.
pub fn compare(before: &Case, after: &Case, merging: Merging) -> Result<Vec<Row>, String> {
    let predict = |name: &str, case: &Case| {
        predict_merging(&case.situation, &case.plan, merging).map_err(|why| format!("the case {name}: {why}"))
    };
    let predicted = [predict("before", before)?, predict("after", after)?];
    let inputs = inputs(before).into_iter().zip(inputs(after)).filter(|(before, after)| before.2 != after.2);
    let outputs = outputs(&predicted[0]).into_iter().zip(outputs(&predicted[1]));
    let row = |is_input| {
        move |((quantity, unit, before), (.., after)): (Figure, Figure)| Row {
            quantity,
            unit,
            before,
            after,
            is_input,
        }
    };
    Ok(inputs.map(row(true)).chain(outputs.map(row(false))).collect())
}

type Figure = (&'static str, Unit, f64);

fn inputs(case: &Case) -> [Figure; 17] {
    let Case { situation, plan } = case;
    let (data, device, design) = (&situation.data, &situation.device, &plan.design);
    let shares = situation.workload.shares();
    [
        ("entries", Unit::Number, data.entries as f64),
        ("entry size", Unit::Bytes, data.entry_bytes),
        ("page size", Unit::Bytes, data.page_bytes as f64),
        ("share of lookups", Unit::Share, shares.lookups),
        ("empty share of lookups", Unit::Share, situation.workload.empty_fraction()),
        ("share of updates", Unit::Share, shares.updates),
        ("share of ranges", Unit::Share, shares.ranges),
        ("selectivity of a range", Unit::Share, situation.workload.range_selectivity),
        ("page read", Unit::Nanoseconds, device.read_ns),
        ("page write", Unit::Nanoseconds, device.write_ns),
        ("hash of a key", Unit::Nanoseconds, device.cpu.hash_ns),
        ("filter probe", Unit::Nanoseconds, device.cpu.probe_ns),
        ("search of a run", Unit::Nanoseconds, device.cpu.search_ns),
        ("size ratio", Unit::Number, design.size_ratio),
        ("runs per inner level", Unit::Number, f64::from(design.inner_runs)),
        ("runs on the last level", Unit::Number, f64::from(design.last_runs)),
        ("write buffer", Unit::Bytes, design.buffer_bytes as f64),
    ]
}

fn outputs(costs: &Costs) -> [Figure; 19] {
    [
        ("levels", Unit::Number, f64::from(costs.levels)),
        ("levels without filters", Unit::Number, f64::from(costs.unfiltered_levels)),
        ("runs", Unit::Number, costs.runs as f64),
        ("filters", Unit::Bytes, costs.filter_bytes),
        ("fences", Unit::Bytes, costs.fence_bytes),
        ("cached share of the data", Unit::Share, costs.cached_share),
        ("miss ratio of the cache", Unit::Share, costs.cache_miss_ratio),
        ("empty lookup", Unit::Ios, costs.zero_result_lookup_ios_exact),
        ("found lookup", Unit::Ios, costs.found_lookup_ios),
        ("update", Unit::Ios, costs.merged_update_ios),
        ("range lookup", Unit::Ios, costs.range_ios),
        ("write amplification", Unit::Number, costs.write_amplification),
        ("space amplification", Unit::Number, costs.space_amplification),
        ("filters per lookup", Unit::Number, costs.filters_per_lookup),
        ("CPU time of a lookup", Unit::Nanoseconds, costs.cpu_ns_per_lookup),
        ("time of a lookup", Unit::Nanoseconds, costs.lookup_ns),
        ("time of an update", Unit::Nanoseconds, costs.update_ns),
        ("time of a range lookup", Unit::Nanoseconds, costs.range_ns),
        ("throughput", Unit::PerSecond, costs.throughput_per_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Allocation;
    use crate::cost::{CpuTimes, DataSet, Device, FilterBits, Workload};
    use crate::miss_ratio::MissRatioCurve;
    use crate::{Design, MergePolicy};

    fn case() -> Case {
        let workload = Workload {
            empty_lookups: 1.0,
            found_lookups: 1.0,
            updates: 2.0,
            ranges: 0.0,
            range_selectivity: 0.0,
        };
        Case {
            situation: Situation {
                data: DataSet { entries: 1 << 27, entry_bytes: 100.0, page_bytes: 4096 },
                workload,
                device: Device { read_ns: 1e5, write_ns: 1e5, cpu: CpuTimes::NONE },
                locality: MissRatioCurve::EVEN,
            },
            plan: Plan {
                design: Design::default(),
                filters: FilterBits::Bytes((10u64 << 24) as f64),
                allocation: Allocation::Monkey,
                cache_bytes: 0,
                levels: None,
            },
        }
    }

    fn row<'r>(rows: &'r [Row], quantity: &str) -> Option<&'r Row> {
        rows.iter().find(|row| row.quantity == quantity)
    }

    #[test]
    fn twice_the_data_and_another_design() {
        let (before, mut after) = (case(), case());
        let same = compare(&before, &after, Merging::WholeLevels).unwrap();
        assert!(same.iter().all(|row| !row.is_input && row.before == row.after));
        after.situation.data.entries *= 2;
        let rows = compare(&before, &after, Merging::WholeLevels).unwrap();
        let inputs: Vec<&str> = rows.iter().filter(|row| row.is_input).map(|row| row.quantity).collect();
        assert_eq!(inputs, ["entries"]);
        assert_eq!(row(&rows, "entries").and_then(Row::ratio), Some(2.0));
        // The same filters for twice the keys.
        assert!(row(&rows, "empty lookup").and_then(Row::ratio).unwrap() > 5.0);
        assert_eq!(row(&rows, "filters").and_then(Row::ratio), Some(1.0));

        let mut after = case();
        after.plan.design = Design::new(MergePolicy::Tiering, 10.0, 64 << 20, 10.0);
        let rows = compare(&before, &after, Merging::WholeLevels).unwrap();
        assert_eq!(row(&rows, "runs per inner level").map(|row| row.after), Some(9.0));
        assert!(row(&rows, "update").and_then(Row::ratio).unwrap() < 0.3);
        // No ranges and no cache: 0 / 0 has no ratio.
        assert_eq!(row(&rows, "cached share of the data").and_then(Row::ratio), None);
    }

    #[test]
    fn a_case_that_cannot_be_is_named() {
        let mut after = case();
        after.situation.data.entries = 0;
        let error = compare(&case(), &after, Merging::WholeLevels).unwrap_err();
        assert!(error.starts_with("the case after: no entries"), "{error}");
    }
}
