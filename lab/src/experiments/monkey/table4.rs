//! Table 4: the default designs of other systems, and what Monkey's filters would make of them. The model.

use crate::chart::{Axis, Panel, Point, Series, Style};
use shamba_model::MergePolicy;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{FilterBits, Plan, predict};
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::presets::Preset;

use super::analysis::{self, ENTRIES};
use super::point::percent;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

/// Memory of which Cassandra's buffer is a share, in bytes.
const MEMORY_BYTES: u64 = 48 << 30;
/// As the paper's table says: system, policy, T, bits per key, and the buffer in MB where it is fixed.
const TABLE: [(&str, MergePolicy, f64, f64, Option<u64>); 5] = [
    ("LevelDB", MergePolicy::Leveling, 10.0, 10.0, Some(2)),
    ("RocksDB", MergePolicy::Leveling, 10.0, 10.0, Some(64)),
    ("Cassandra", MergePolicy::Tiering, 4.0, 10.0, None),
    ("HBase", MergePolicy::Leveling, 2.0, 10.0, Some(128)),
    ("Accumulo", MergePolicy::Leveling, 4.0, 11.0, Some(1_024)),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-table4",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    place: "Table 4",
    title: "default designs of other systems, model",
    claim: "Mainstream stores fix single points of the design space (T 10, 10, 4, 2, 4) with the same bits in all filters.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("system", TABLE.map(|row| row.0)),
        Parameter::fixed("entries", ENTRIES),
        Parameter::fixed("entry bytes", analysis::ENTRY_BYTES),
        Parameter::fixed("Cassandra's memory [bytes]", MEMORY_BYTES),
        Parameter::fixed("empty lookups, updates", "0.5, 0.5"),
    ]
}

fn run(_: &mut Lab<'_>) -> Result<Finding, String> {
    let situation = analysis::situation(0.5, 0.5);
    let mut table = Table::new(&[
        "system",
        "policy",
        "size_ratio",
        "bits_per_key",
        "buffer_bytes",
        "levels",
        "lookup_ios",
        "lookup_ios_monkey",
        "update_ios",
        "navigator_policy",
        "navigator_size_ratio",
        "navigator_throughput_times",
    ]);
    let (mut uniform, mut monkey, mut spared, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut as_said = 0;
    for (number, (name, policy, size_ratio, bits, buffer_mb)) in TABLE.into_iter().enumerate() {
        let preset = Preset::ALL.into_iter().find(|preset| preset.system == name);
        let preset = preset.ok_or_else(|| format!("the model does not know {name}"))?;
        let design = preset.design(Some(MEMORY_BYTES))?;
        let is_as_said = design.policy() == Some(policy)
            && design.size_ratio == size_ratio
            && design.bits_per_key == bits
            && buffer_mb.is_none_or(|mb| design.buffer_bytes == mb << 20);
        as_said += usize::from(is_as_said);
        let plan = |allocation| Plan {
            design,
            filters: FilterBits::PerKey(design.bits_per_key),
            allocation,
            cache_bytes: 0,
            levels: None,
        };
        let theirs = predict(&situation, &plan(Preset::ALLOCATION))?;
        let ours = predict(&situation, &plan(Allocation::Monkey))?;
        let memory_bytes = theirs.filter_bytes as u64 + design.buffer_bytes;
        let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
        let best = navigate(&situation, &bounds, &Options { sensitivity: false, ..Options::PAPER })?;
        let faster = theirs.cost_ns_per_op / best.costs.cost_ns_per_op;
        let (before, after) = (theirs.zero_result_lookup_ios, ours.zero_result_lookup_ios);
        table.row(row![
            name,
            policy.name(),
            design.size_ratio,
            design.bits_per_key,
            design.buffer_bytes,
            theirs.levels,
            before,
            after,
            theirs.update_ios,
            best.plan.design.policy().map_or("fluid", MergePolicy::name),
            best.plan.design.size_ratio,
            faster,
        ]);
        uniform.push(Point::new(number as f64, before));
        monkey.push(Point::new(number as f64, after));
        spared.push(1.0 - after / before);
        times.push(faster);
    }
    let (least, most) = span(&spared);
    let (least_times, most_times) = span(&times);
    let verdict = verdict(as_said, least);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!("{as_said} of {} systems' defaults are as in the table.", TABLE.len()),
    };
    let panel = Panel {
        title: String::new(),
        x: Axis::categories("", TABLE.map(|row| row.0)),
        y: Axis::from_zero("I/Os of an empty lookup"),
        series: vec![
            Series::new("default", Style::Bars, uniform),
            Series::new("default, Monkey's filters", Style::Bars, monkey),
        ],
    };
    Ok(Finding {
        ours: format!(
            "The model's presets are the table's ({as_said} of {}); Monkey's filters would spare these systems from {} to {} of an empty lookup's \
             I/Os, and the navigator's design with the same memory would be {least_times:.1} to {most_times:.1} times as fast at half lookups, half updates.",
            TABLE.len(),
            percent(least),
            percent(most)
        ),
        verdict,
        why,
        table,
        chart: analysis::chart(
            "Default designs, with their filters and with Monkey's",
            EXPERIMENT.claim,
            "Computed: equations 7 and 56 for 512 GB of entries of 16 bytes. Cassandra's buffer is 5 % of 48 GB.",
            vec![panel],
        ),
    })
}

fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(*value), most.max(*value))
    })
}

fn verdict(as_said: usize, least_spared: f64) -> Verdict {
    match as_said {
        all if all == TABLE.len() && least_spared >= 0.0 => Verdict::Confirmed,
        0 => Verdict::NotHere,
        _ => Verdict::Partly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_systems_as_in_the_table_confirm() {
        assert_eq!(verdict(5, 0.1), Verdict::Confirmed);
        assert_eq!(verdict(4, 0.1), Verdict::Partly);
        assert_eq!(verdict(0, 0.1), Verdict::NotHere);
    }
}
