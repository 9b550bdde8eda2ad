//! `shamba plan compare`: predicted changes between two cases with different data, memory,
//! workload, device or design.
//!
//! The first case is given as for `plan cost`. The second is the first with some options changed
//! (`--with size-ratio=4`), under the same names and parsed the same way. A number may be a
//! multiple of the first case's: `--with entries=2x`.
//!
//! Not here: the comparison (`shamba_model::what_if`).

use clap::{Args, Parser};
use serde_json::{Value, json};
use shamba_model::MergePolicy;
use shamba_model::cost::{Costs, Plan, Situation, Workload};
use shamba_model::navigator::{Bounds, navigate};
use shamba_model::what_if::{Case, Row, Unit, compare};

use super::cost::EMPTY_LOOKUPS;
use super::counting::{Counting, CountingOption};
use super::design::HALF_UPDATES;
use super::options::{DesignOptions, MAX_SPACE, SituationOptions};
use super::report::{self, digits, show_bytes, show_rate};
use crate::exit::Failure;
use crate::json;
use crate::output::{Out, Table};
use crate::sizes::show_ns;

const EXAMPLES: &str = "Examples, with --entries 100M --entry-bytes 116 in place of DATA:
  twice the data        shamba plan compare DATA --memory 256MiB --with entries=2x
  half the memory       shamba plan compare DATA --memory 256MiB --with memory=0.5x
  another device        shamba plan compare DATA --updates 1 --lookups-zero 1 --with read-us=10
  another mix           shamba plan compare DATA --updates 1 --lookups-zero 1 --with updates=9
  two systems           shamba plan compare DATA --like rocksdb --with like=hbase
  another design        shamba plan compare DATA --like rocksdb --with policy=tiering --with size-ratio=4
  the best design       shamba plan compare DATA --like rocksdb --updates 1 --lookups-zero 1 --with best
  the best of each      shamba plan compare DATA --memory 256MiB --best --with memory=2x";

/// Arguments of `plan compare`.
#[derive(Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct CompareArgs {
    #[command(flatten)]
    situation: SituationOptions,
    #[command(flatten)]
    design: DesignOptions,
    #[command(flatten)]
    counting: CountingOption,
    /// Use the best design for each case's --memory with a space amplification of at most 2
    #[arg(long, help_heading = "The two cases", conflicts_with_all = ["like", "policy", "size_ratio", "inner_runs", "last_runs",
        "buffer", "bits_per_key", "filter_memory", "cache", "levels"], requires = "memory")]
    best: bool,
    /// Change in the second case, repeatable: OPTION=VALUE with an option from above without its
    /// dashes, or OPTION=Nx for a multiple of the first case's number (entries=2x). `best` alone
    /// selects the best design for the same memory with a space amplification of at most 2. Filters
    /// keep their bits per key unless memory is given
    #[arg(long, value_name = "OPTION=VALUE", required = true, help_heading = "The two cases")]
    with: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The options of a case, for parsing the changes of the second case.
#[derive(Parser)]
#[command(
    no_binary_name = true,
    allow_negative_numbers = true,
    args_override_self = true,
    disable_help_flag = true
)]
struct CaseOptions {
    #[command(flatten)]
    situation: SituationOptions,
    #[command(flatten)]
    design: DesignOptions,
}

struct Side {
    case: Case,
    costs: Costs,
}

pub fn run(args: &CompareArgs, out: &mut Out) -> Result<(), Failure> {
    let counting = args.counting.counting;
    // The best design for lookups alone would be an extreme one.
    let has_best = args.best || args.with.iter().any(|change| change == "best");
    let mix = if has_best { HALF_UPDATES } else { EMPTY_LOOKUPS };
    let first = side(&args.situation, &args.design, args.best, (counting, mix))?;
    let (changes, with_best) = changes(&args.with, &first, &args.situation, &args.design)?;
    let situation = changes.situation.over(&args.situation);
    let mut design = changes.design.over(&args.design, &first.case.plan);
    if with_best && !args.best && design.memory.is_none() {
        design = DesignOptions { memory: Some(memory_bytes(&first)), ..DesignOptions::default() };
    }
    let second = side(&situation, &design, args.best || with_best, (counting, mix))
        .map_err(|failure| Failure::Usage(format!("the second case: {failure}")))?;
    let rows = compare(&first.case, &second.case, counting.merging()).map_err(Failure::Usage)?;
    if args.json {
        return out.json(&to_json(&first, &second, &rows));
    }
    out.text(report::situation_text(&first.case.situation))?;
    for (name, side) in [("first", &first), ("second", &second)] {
        out.line(format!(
            "{name:<8}{}",
            report::plan_text(&side.case.situation, &side.case.plan, &side.costs)
        ))?;
    }
    if !args.situation.names_mix() {
        out.line("no workload was given; use --updates, --lookups-zero, --lookups-nonzero and --ranges")?;
    }
    out.line("")?;
    out.text(table(&rows).to_string())
}

/// A case with its costs: of the given design, or of the best one.
fn side(
    situation: &SituationOptions,
    design: &DesignOptions,
    best: bool,
    (counting, mix): (Counting, Workload),
) -> Result<Side, Failure> {
    let situation = situation.situation(mix, counting)?;
    if !best {
        let plan = design.plan(&situation)?;
        let costs = counting.predict(&situation, &plan)?;
        return Ok(Side { case: Case { situation, plan }, costs });
    }
    let missing = || Failure::Usage("--memory is required for the best design".into());
    let bounds = Bounds {
        memory_bytes: design.memory.ok_or_else(missing)?,
        max_lookup_ios: None,
        max_update_ios: None,
    };
    let mut options = counting.options();
    options.sensitivity = false;
    options.allocation = design.allocation.unwrap_or(options.allocation);
    options.max_space = MAX_SPACE;
    let found = navigate(&situation, &bounds, &options).map_err(Failure::Usage)?;
    Ok(Side { case: Case { situation, plan: found.plan }, costs: found.costs })
}

/// Memory of buffer, filters and cache together.
fn memory_bytes(side: &Side) -> u64 {
    let plan = &side.case.plan;
    (side.costs.filter_bytes.ceil() as u64)
        .saturating_add(plan.design.buffer_bytes)
        .saturating_add(plan.cache_bytes)
}

/// The changes of the second case, and whether its design is the best one.
fn changes(
    with: &[String],
    first: &Side,
    situation: &SituationOptions,
    design: &DesignOptions,
) -> Result<(CaseOptions, bool), Failure> {
    let mut words = Vec::new();
    let mut best = false;
    for change in with {
        if change == "best" {
            best = true;
            continue;
        }
        let (option, value) = change.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--with {change}: use OPTION=VALUE, as in --with entries=2x, or best"))
        })?;
        let option = option.trim_start_matches('-');
        words.push(format!("--{option}"));
        words.push(match multiple(value) {
            None => value.to_owned(),
            Some(times) => times_of(option, times, first, situation, design)
                .map_err(|error| Failure::Usage(format!("--with {change}: {error}")))?,
        });
    }
    let parsed = CaseOptions::try_parse_from(&words).map_err(|error| {
        // Clap's message, without the usage text of a command that does not exist.
        let text = error.to_string();
        let said = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        Failure::Usage(format!("--with: {said}"))
    })?;
    Ok((parsed, best))
}

/// Parses a multiple such as `2x` or `0.5x`.
fn multiple(value: &str) -> Option<f64> {
    value.strip_suffix('x')?.parse().ok()
}

/// The first case's value times `times`, formatted as the option takes it.
fn times_of(
    option: &str,
    times: f64,
    first: &Side,
    situation: &SituationOptions,
    design: &DesignOptions,
) -> Result<String, String> {
    let Case { situation: Situation { data, workload, device, .. }, plan } = &first.case;
    let (value, is_whole) = match option {
        "entries" => (data.entries as f64, true),
        "entry-bytes" => (data.entry_bytes, false),
        "page-bytes" => (data.page_bytes as f64, true),
        "nonzero-per-zero" => (situation.nonzero_per_zero.unwrap_or(0.0), false),
        "lookups-zero" => (workload.empty_lookups, false),
        "lookups-nonzero" => (workload.found_lookups, false),
        "updates" => (workload.updates, false),
        "ranges" => (workload.ranges, false),
        "range-selectivity" => (workload.range_selectivity, false),
        "read-us" => (device.read_ns / 1e3, false),
        "write-cost" => (device.write_ns / device.read_ns, false),
        "hash-ns" => (device.cpu.hash_ns, false),
        "probe-ns" => (device.cpu.probe_ns, false),
        "search-ns" => (device.cpu.search_ns, false),
        "zipf" => (situation.zipf.unwrap_or(0.0), false),
        "size-ratio" => (plan.design.size_ratio, false),
        "inner-runs" => (f64::from(plan.design.inner_runs), true),
        "last-runs" => (f64::from(plan.design.last_runs), true),
        "buffer" => (plan.design.buffer_bytes as f64, true),
        "bits-per-key" => (first.costs.filter_bytes * 8.0 / data.entries as f64, false),
        "filter-memory" => (first.costs.filter_bytes, true),
        "cache" => (plan.cache_bytes as f64, true),
        "levels" => (f64::from(first.costs.levels), true),
        "memory" => (design.memory.unwrap_or_else(|| memory_bytes(first)) as f64, true),
        _ => return Err("a multiple needs a numeric option".into()),
    };
    let value = value * times;
    if !(0.0..1e19).contains(&value) {
        return Err(format!("{value} is out of range"));
    }
    Ok(if is_whole { (value.round() as u64).to_string() } else { value.to_string() })
}

fn to_json(first: &Side, second: &Side, rows: &[Row]) -> Value {
    let side = |side: &Side| {
        let head = json!({ "situation": report::situation_json(&side.case.situation) });
        json::with(head, report::plan_json(&side.case.situation, &side.case.plan, &side.costs))
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "quantity": row.quantity,
                "unit": unit_name(row.unit),
                "first_value": row.before,
                "second_value": row.after,
                "times": row.ratio(),
                "given": row.is_input,
            })
        })
        .collect();
    json!({ "schema": "shamba.plan-compare/1", "first": side(first), "second": side(second), "rows": rows })
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Number => "number",
        Unit::Bytes => "bytes",
        Unit::Ios => "ios",
        Unit::Nanoseconds => "ns",
        Unit::PerSecond => "per_s",
        Unit::Share => "share",
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(["", "first", "second", "times"]);
    let mut was_input = true;
    for row in rows {
        if was_input && !row.is_input {
            table.row(["costs"]);
            was_input = false;
        }
        let show = |value: f64| match row.unit {
            Unit::Number => digits(value),
            Unit::Bytes if value.fract() == 0.0 => show_bytes(value),
            Unit::Bytes => format!("{} B", digits(value)),
            Unit::Ios => format!("{} I/Os", digits(value)),
            Unit::Nanoseconds => show_ns(value),
            Unit::PerSecond => format!("{}/s", show_rate(value)),
            Unit::Share => format!("{} %", digits(value * 100.0)),
        };
        let times = row.ratio().map_or("-".into(), digits);
        let indent = if row.is_input { "" } else { "  " };
        table.row([format!("{indent}{}", row.quantity), show(row.before), show(row.after), times]);
    }
    table
}

impl SituationOptions {
    /// These options where they are given, otherwise those of `base`.
    #[must_use]
    fn over(self, base: &Self) -> Self {
        // The mix is given as a whole. A new value for a part of it keeps the other parts; a new v
        // replaces all of it. A part that is given over a v of `base` takes that v as one empty
        // lookup and v found ones.
        let v = self.nonzero_per_zero;
        let mix = |new: Option<f64>, old: Option<f64>| if v.is_some() { None } else { new.or(old) };
        let parts = [self.lookups_zero, self.lookups_nonzero, self.updates, self.ranges];
        let keeps_v = parts.iter().all(Option::is_none);
        let zero = base.lookups_zero.or(base.nonzero_per_zero.filter(|_| !keeps_v).map(|_| 1.0));
        let nonzero = base.lookups_nonzero.or(base.nonzero_per_zero.filter(|_| !keeps_v));
        Self {
            entries: self.entries.or(base.entries),
            entry_bytes: self.entry_bytes.or(base.entry_bytes),
            page_bytes: self.page_bytes.or(base.page_bytes),
            nonzero_per_zero: if keeps_v { v.or(base.nonzero_per_zero) } else { v },
            lookups_zero: mix(self.lookups_zero, zero),
            lookups_nonzero: mix(self.lookups_nonzero, nonzero),
            updates: mix(self.updates, base.updates),
            ranges: mix(self.ranges, base.ranges),
            range_selectivity: self.range_selectivity.or(base.range_selectivity),
            read_us: self.read_us.or(base.read_us),
            write_cost: self.write_cost.or(base.write_cost),
            hash_ns: self.hash_ns.or(base.hash_ns),
            probe_ns: self.probe_ns.or(base.probe_ns),
            search_ns: self.search_ns.or(base.search_ns),
            zipf: self.zipf.or(base.zipf),
            hash_sharing: self.hash_sharing.or(base.hash_sharing),
        }
    }
}

impl DesignOptions {
    /// These options where they are given, otherwise those of `base`. The filter memory is given by
    /// one of three options; a new one replaces the others. The same holds for the merge policy: a
    /// policy or a system replaces K and Z. Where only one of K and Z is given, the other keeps its
    /// value in the first case's plan.
    #[must_use]
    fn over(self, base: &Self, first: &Plan) -> Self {
        let says_filters = self.bits_per_key.is_some()
            || self.filter_memory.is_some()
            || self.memory.is_some()
            || self.like.is_some();
        let keep = |new: Option<u64>, old: Option<u64>| if says_filters { new } else { new.or(old) };
        let says_runs = self.policy.is_some() || self.like.is_some();
        let runs = |new: Option<u32>, old: Option<u32>| if says_runs { new } else { new.or(old) };
        let says_policy = self.like.is_some() || self.inner_runs.is_some() || self.last_runs.is_some();
        // A level has at most T - 1 runs.
        let size_ratio = self.size_ratio.unwrap_or(first.design.size_ratio);
        let room = MergePolicy::Tiering.runs(size_ratio).0;
        let (inner_runs, last_runs) = match (self.inner_runs, self.last_runs) {
            (Some(inner), None) if !says_runs => (Some(inner), Some(first.design.last_runs.min(room))),
            (None, Some(last)) if !says_runs => (Some(first.design.inner_runs.min(room)), Some(last)),
            given => given,
        };
        // Another system starts from its own defaults.
        let fresh = Self::default();
        let base = if self.like.is_some() { &fresh } else { base };
        Self {
            like: self.like.or(base.like),
            policy: if says_policy { self.policy } else { self.policy.or(base.policy) },
            size_ratio: self.size_ratio.or(base.size_ratio),
            inner_runs: runs(inner_runs, base.inner_runs),
            last_runs: runs(last_runs, base.last_runs),
            buffer: self.buffer.or(base.buffer),
            bits_per_key: if says_filters {
                self.bits_per_key
            } else {
                self.bits_per_key.or(base.bits_per_key)
            },
            filter_memory: keep(self.filter_memory, base.filter_memory),
            allocation: self.allocation.or(base.allocation),
            cache: self.cache.or(base.cache),
            levels: self.levels.or(base.levels),
            memory: keep(self.memory, base.memory),
        }
    }
}
