//! Plans and their costs as tables and as JSON.
//!
//! Costs have four significant digits: more would suggest a precision that the model does not have.
//! Not here: comparisons (`compare.rs`) and settings of RocksDB's files (`rocksdb/`).

use serde_json::{Value, json};
use shamba_model::allocation::Allocation;
use shamba_model::cost::{Costs, Plan, Situation};

use crate::exit::Failure;
use crate::json;
use crate::output::{Out, Table};
use crate::sizes::{show_count, show_ns, show_size};

/// The plan and its costs, as fields.
pub fn plan_json(situation: &Situation, plan: &Plan, costs: &Costs) -> Value {
    let design = &plan.design;
    // The fields of the cache are a separate object, because one with all fields exceeds the
    // macro's limit.
    let cached = json!({
        "cache_miss_ratio": costs.cache_miss_ratio,
        "lookup_reads": costs.lookup_reads,
        "empty_lookup_reads": costs.empty_lookup_reads,
        "found_lookup_reads": costs.found_lookup_reads,
    });
    let object = json!({
        "policy": design.policy().map(|policy| policy.to_string()),
        "size_ratio": design.size_ratio,
        "inner_runs": design.inner_runs,
        "last_runs": design.last_runs,
        "allocation": plan.allocation.name(),
        "levels": costs.levels,
        "unfiltered_levels": costs.unfiltered_levels,
        "runs": costs.runs,
        "buffer_bytes": design.buffer_bytes,
        "filter_bytes": costs.filter_bytes,
        "fence_bytes": costs.fence_bytes,
        "cache_bytes": plan.cache_bytes,
        "bits_per_key": bits_per_key(situation, costs),
        "fpr_per_level": costs.fpr_per_level,
        "bits_per_key_per_level": costs.bits_per_key_per_level,
        "zero_result_lookup_ios": costs.zero_result_lookup_ios,
        "zero_result_lookup_ios_exact": costs.zero_result_lookup_ios_exact,
        "nonzero_result_lookup_ios": costs.nonzero_result_lookup_ios,
        "nonzero_result_lookup_ios_exact": costs.nonzero_result_lookup_ios_exact,
        "mixed_lookup_ios": costs.mixed_lookup_ios,
        "mixed_lookup_ios_exact": costs.mixed_lookup_ios_exact,
        "found_lookup_ios": costs.found_lookup_ios,
        "update_ios": costs.update_ios,
        "merged_update_ios": costs.merged_update_ios,
        "range_ios": costs.range_ios,
        "operation_ios": costs.operation_ios,
        "write_amplification": costs.write_amplification,
        "space_amplification": costs.space_amplification,
        "filters_per_lookup": costs.filters_per_lookup,
        "hashes_per_lookup": costs.hashes_per_lookup,
        "cpu_ns_per_lookup": costs.cpu_ns_per_lookup,
        "lookup_ns": costs.lookup_ns,
        "empty_lookup_ns": costs.empty_lookup_ns,
        "found_lookup_ns": costs.found_lookup_ns,
        "update_ns": costs.update_ns,
        "range_ns": costs.range_ns,
        "cost_ns_per_op": costs.cost_ns_per_op,
        "throughput_per_s": costs.throughput_per_s,
    });
    json::with(object, cached)
}

/// The situation, as fields.
pub fn situation_json(situation: &Situation) -> Value {
    let Situation { data, workload, device, .. } = situation;
    json!({
        "entries": data.entries,
        "entry_bytes": data.entry_bytes,
        "page_bytes": data.page_bytes,
        "lookups_zero": workload.empty_lookups,
        "lookups_nonzero": workload.found_lookups,
        "updates": workload.updates,
        "ranges": workload.ranges,
        "range_selectivity": workload.range_selectivity,
        "read_ns": device.read_ns,
        "write_ns": device.write_ns,
    })
}

/// Data and workload, in three lines with the device.
pub fn situation_text(situation: &Situation) -> String {
    let Situation { data, workload, device, .. } = situation;
    let bytes = data.entries as f64 * data.entry_bytes;
    let sum = workload.empty_lookups + workload.found_lookups + workload.updates + workload.ranges;
    let parts = [
        (workload.empty_lookups, "empty lookups"),
        (workload.found_lookups, "found lookups"),
        (workload.updates, "updates"),
        (workload.ranges, "ranges"),
    ];
    let mix: Vec<String> = parts
        .into_iter()
        .filter(|(share, _)| *share > 0.0)
        .map(|(share, what)| format!("{} % {what}", digits(share / sum * 100.0)))
        .collect();
    let phi = device.write_ns / device.read_ns;
    format!(
        "data      {} entries of {} bytes, {}, in pages of {}\nworkload  {}\ndevice    {} per page read; a page write costs {} times that\n",
        show_count(data.entries),
        digits(data.entry_bytes),
        show_bytes(bytes),
        show_size(data.page_bytes),
        mix.join(", "),
        show_ns(device.read_ns),
        digits(phi),
    )
}

/// The plan in one line.
pub fn plan_text(situation: &Situation, plan: &Plan, costs: &Costs) -> String {
    let design = &plan.design;
    let policy = policy_name(plan);
    let cache = match plan.cache_bytes {
        0 => String::new(),
        bytes => format!(", cache {}", show_size(bytes)),
    };
    format!(
        "{policy}, T={}, buffer {}, filters {} ({} bits per key, {}){cache}",
        digits(design.size_ratio),
        show_size(design.buffer_bytes),
        show_bytes(costs.filter_bytes),
        digits(bits_per_key(situation, costs)),
        plan.allocation,
    )
}

/// The merge policy, or K and Z where it has no name.
pub fn policy_name(plan: &Plan) -> String {
    let design = &plan.design;
    design.policy().map_or_else(
        || format!("fluid K={} Z={}", design.inner_runs, design.last_runs),
        |policy| policy.to_string(),
    )
}

/// Filter bits for each entry.
fn bits_per_key(situation: &Situation, costs: &Costs) -> f64 {
    costs.filter_bytes * 8.0 / situation.data.entries as f64
}

/// Costs of the operations.
pub fn costs_table(plan: &Plan, costs: &Costs) -> Table {
    let mut table = Table::new(["operation", "I/Os", "exact", "time"]).left([4]);
    let closed = if plan.allocation == Allocation::Uniform { "[56]" } else { "[7]" };
    table.row([
        "empty lookup",
        &digits(costs.zero_result_lookup_ios),
        &digits(costs.zero_result_lookup_ios_exact),
        &show_ns(costs.empty_lookup_ns),
        &format!("Monkey's equation {closed}; exact: for this number of levels"),
    ]);
    table.row([
        "found lookup, in the oldest run",
        &digits(costs.nonzero_result_lookup_ios),
        &digits(costs.nonzero_result_lookup_ios_exact),
        "",
        "[9]",
    ]);
    table.row([
        "found lookup, any key",
        "",
        &digits(costs.found_lookup_ios),
        &show_ns(costs.found_lookup_ns),
        "times of all lookups include the cache and CPU time",
    ]);
    table.row([
        "lookup of the mix",
        &digits(costs.mixed_lookup_ios),
        &digits(costs.mixed_lookup_ios_exact),
        &show_ns(costs.lookup_ns),
        "[13], found keys in the oldest run; time: any key",
    ]);
    table.row([
        "update",
        &digits(costs.update_ios),
        &digits(costs.merged_update_ios),
        &show_ns(costs.update_ns),
        "[10]; exact: its share of compactions, by --counting",
    ]);
    table.row(["range", &digits(costs.range_ios), "", &show_ns(costs.range_ns), "[11]"]);
    table
}

/// The levels, smallest first: sizes, filters and their rates.
pub fn levels_table(plan: &Plan, costs: &Costs) -> Table {
    let design = &plan.design;
    let mut table = Table::new(["level", "runs", "share of data", "bits/key", "false positives"]);
    let growth = design.size_ratio;
    // Each level is T times the one above. Shares are computed from the last level up, where the
    // powers stay small.
    let above = |level: u32| (level..costs.levels).fold(1.0, |share, _| share / growth);
    let all: f64 = (1..=costs.levels).map(above).sum();
    for (level, (bits, fpr)) in (1..).zip(costs.bits_per_key_per_level.iter().zip(&costs.fpr_per_level)) {
        let share = format!("{} %", digits(above(level) / all * 100.0));
        let filter = if *fpr < 1.0 { digits(*bits) } else { "none".into() };
        let runs = design.runs_allowed(level, costs.levels).to_string();
        table.row([level.to_string(), runs, share, filter, format!("{} %", digits(fpr * 100.0))]);
    }
    table
}

/// Memory and amplification.
pub fn memory_table(plan: &Plan, costs: &Costs) -> Table {
    let mut table = Table::plain();
    table.row(["write buffer", &show_size(plan.design.buffer_bytes)]);
    table.row(["filters", &show_bytes(costs.filter_bytes)]);
    table.row(["block cache", &show_size(plan.cache_bytes)]);
    if plan.cache_bytes > 0 {
        table.row(["cache miss ratio of lookups", &format!("{} %", digits(costs.cache_miss_ratio * 100.0))]);
    }
    table.row(["fence pointers (the index)", &show_bytes(costs.fence_bytes)]);
    table.row(["write amplification", &digits(costs.write_amplification)]);
    table.row(["space amplification (worst case)", &digits(costs.space_amplification)]);
    table
}

/// Prints all tables of a plan.
///
/// # Errors
/// Failures of standard output.
pub fn print_plan(situation: &Situation, plan: &Plan, costs: &Costs, out: &mut Out) -> Result<(), Failure> {
    out.line(format!("design    {}", plan_text(situation, plan, costs)))?;
    out.line(format!(
        "speed     {} sequential operations/s, {} each",
        show_rate(costs.throughput_per_s),
        show_ns(costs.cost_ns_per_op)
    ))?;
    out.heading("costs of operations")?;
    out.text(costs_table(plan, costs).to_string())?;
    out.heading("levels, smallest first")?;
    out.text(levels_table(plan, costs).to_string())?;
    out.heading("memory and amplification")?;
    out.text(memory_table(plan, costs).to_string())
}

/// Formats four significant digits without trailing zeros; small and huge figures as powers of ten.
pub fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let size = value.abs();
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let before = size.log10().floor() as i32 + 1;
    let decimals = usize::try_from(4 - before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Formats a predicted size, rounded to a whole byte.
pub fn show_bytes(bytes: f64) -> String {
    show_size(bytes.round() as u64)
}

/// Formats a rate per second.
pub fn show_rate(rate: f64) -> String {
    if (10.0..1e15).contains(&rate) { show_count(rate.round() as u64) } else { digits(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        for (value, shown) in [
            (0.0, "0"),
            (1.30908, "1.309"),
            (12_345.6, "12346"),
            (10.0, "10"),
            (0.001_234_56, "0.001235"),
            (1.06e-6, "1.060e-6"),
            (99.999, "100"),
            (3.2e9, "3.200e9"),
            (1.0, "1"),
        ] {
            assert_eq!(digits(value), shown);
        }
        assert_eq!(show_rate(1234.5), "1,235");
        assert_eq!(show_rate(0.125), "0.125");
    }
}
