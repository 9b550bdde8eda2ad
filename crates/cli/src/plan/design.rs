//! `shamba plan design`: the best design for a workload within a memory, the reason, the
//! alternatives, and the sensitivity.

use clap::Args;
use serde_json::{Value, json};
use shamba_model::cost::{Costs, Plan, Situation, Workload};
use shamba_model::navigator::{Bounds, Navigation, Options, Response, Sensitivity, navigate};
use shamba_model::robust::{OPERATIONS, Worst};

use super::counting::{Counting, CountingOption};
use super::options::{
    MAX_SPACE, SituationOptions, check_max_space, max_space_text, not_negative, parse_allocation,
};
use super::report::{self, digits, show_rate};
use super::rocksdb::{self, Asked, First, RocksdbOptions};
use super::values::{Separated, ValueOptions};
use crate::exit::Failure;
use crate::json;
use crate::output::{Out, Table};
use crate::sizes::{parse_size, show_count, show_ns, show_size};

/// Default workload: half empty lookups and half updates, the two operations that conflict most.
pub const HALF_UPDATES: Workload =
    Workload { empty_lookups: 0.5, found_lookups: 0.0, updates: 0.5, ranges: 0.0, range_selectivity: 0.0 };

const EXAMPLES: &str = "Examples:
  shamba plan design --entries 10M --entry-bytes 116 --memory 24MiB --lookups-zero 0.7 --updates 0.3
  shamba plan design --entries 1G --entry-bytes 1KiB --memory 16GiB --lookups-zero 1 --lookups-nonzero 4 --updates 5 \\
      --ranges 1 --range-selectivity 1e-7 --max-lookup-ios 1.2 --counting engine
  shamba plan design --entries 10M --entry-bytes 116 --memory 24MiB --lookups-zero 0.7 --updates 0.3 --uncertainty 0.5
  shamba plan design --entries 10M --entry-bytes 4120 --value-bytes 4KiB --memory 256MiB --lookups-nonzero 0.5 --updates 0.5
  shamba plan design --entries 100M --entry-bytes 116 --rocksdb OPTIONS-000007 --lookups-zero 0.5 --updates 0.5";

/// Arguments of `plan design`.
#[derive(Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct DesignArgs {
    #[command(flatten)]
    situation: SituationOptions,
    #[command(flatten)]
    counting: CountingOption,
    #[command(flatten)]
    wish: WishOptions,
    /// The block cache, where the OPTIONS file does not state it (default: none)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "rocksdb", help_heading = "RocksDB")]
    cache: Option<u64>,
    #[command(flatten)]
    values: ValueOptions,
    #[command(flatten)]
    rocksdb: RocksdbOptions,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Constraints of the search.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Constraints")]
pub struct WishOptions {
    /// Total memory of write buffer, filters and block cache
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Maximum page reads of a lookup of the mix
    #[arg(long, value_name = "IOS")]
    max_lookup_ios: Option<f64>,
    /// Maximum I/Os of an update
    #[arg(long, value_name = "IOS")]
    max_update_ios: Option<f64>,
    /// Maximum space amplification in the worst case: bytes stored per live byte when as many
    /// entries as possible are obsolete; inf for no bound (default: 2, which excludes tiering with
    /// more than 2 runs per level)
    #[arg(long, value_name = "RATIO")]
    max_space: Option<f64>,
    /// Choose the design with the least cost in the worst mix of operations within this divergence
    /// of the expected mix (default: 0, only the expected mix)
    ///
    /// RHO is the Kullback-Leibler divergence in nats (Endure, VLDB 2022). An operation with a
    /// share of 10 % may have 20 % at 0.044, 50 % at 0.51 and all operations at 2.3; one of two
    /// halves may have 70 % at 0.082, 90 % at 0.37 and all at 0.69. An operation with a share of 0
    /// keeps that share in every mix: give it a small share if it may occur. A good choice is the
    /// maximum divergence of observed mixes from their mean.
    #[arg(long, value_name = "RHO", conflicts_with = "rocksdb")]
    uncertainty: Option<f64>,
    /// Filter allocation: monkey or uniform (default: monkey)
    #[arg(long, value_name = "KIND", value_parser = parse_allocation, conflicts_with = "rocksdb")]
    allocation: Option<shamba_model::allocation::Allocation>,
}

pub fn run(args: &DesignArgs, out: &mut Out) -> Result<(), Failure> {
    let wish = &args.wish;
    for (option, bound) in
        [("--max-lookup-ios", wish.max_lookup_ios), ("--max-update-ios", wish.max_update_ios)]
    {
        not_negative(option, bound.unwrap_or(0.0))?;
    }
    check_max_space(wish.max_space)?;
    if let Some(path) = &args.rocksdb.rocksdb {
        args.counting.counting.is_for_rocksdb()?;
        let asked = Asked {
            options: &args.rocksdb,
            situation: &args.situation,
            mix: HALF_UPDATES,
            memory_bytes: wish.memory,
            cache_bytes: args.cache,
            max_lookup_ios: wish.max_lookup_ios,
            max_update_ios: wish.max_update_ios,
            max_space: wish.max_space,
            first: First::Better,
            json: args.json,
        };
        return rocksdb::run(path, &asked, out);
    }
    let situation = args.situation.situation(HALF_UPDATES, args.counting.counting)?;
    let memory_bytes =
        wish.memory.ok_or_else(|| Failure::Usage("--memory is required for the best design".into()))?;
    let bounds =
        Bounds { memory_bytes, max_lookup_ios: wish.max_lookup_ios, max_update_ios: wish.max_update_ios };
    let mut options = args.counting.counting.options();
    options.allocation = wish.allocation.unwrap_or(options.allocation);
    options.max_space = wish.max_space.unwrap_or(MAX_SPACE);
    options.uncertainty = not_negative("--uncertainty", wish.uncertainty.unwrap_or(0.0))?;
    let found = navigate(&situation, &bounds, &options).map_err(Failure::Usage)?;
    let robust = Robust::of(&situation, &bounds, &options, &found).map_err(Failure::Usage)?;
    let notes = notes(found.costs.runs, found.costs.space_amplification, args.counting.counting);
    let bounds_given = [
        ("--max-lookup-ios", wish.max_lookup_ios.is_some()),
        ("--max-update-ios", wish.max_update_ios.is_some()),
    ];
    let separated = args
        .values
        .values(&bounds_given)?
        .map(|values| {
            Separated::new(values, &situation, |keys| {
                let options = Options { sensitivity: false, ..options };
                let found = navigate(keys, &bounds, &options).map_err(Failure::Usage)?;
                Ok((found.plan, found.costs))
            })
        })
        .transpose()?;
    if args.json {
        let head = to_json(&situation, &bounds, options.max_space, &found, robust.as_ref(), &notes);
        let value_files = separated.map(|separated| separated.to_json(&situation, &found.costs));
        return out.json(&json::with(head, json!({ "value_files": value_files })));
    }
    print(&situation, &bounds, wish.max_space, &found, robust.as_ref(), &notes, out)?;
    separated.map_or(Ok(()), |separated| separated.print(&situation, &found.costs, out))
}

/// The robust design compared with the best one for the expected mix alone.
struct Robust {
    uncertainty: f64,
    /// Worst mix of the robust design.
    worst: Worst<OPERATIONS>,
    /// The best design without an uncertainty, and its worst mix.
    nominal: (Plan, Costs, Worst<OPERATIONS>),
}

impl Robust {
    /// Compares the designs; `None` without an uncertainty.
    fn of(
        situation: &Situation,
        bounds: &Bounds,
        options: &Options,
        found: &Navigation,
    ) -> Result<Option<Self>, String> {
        let Some(worst) = found.worst else { return Ok(None) };
        let nominal =
            navigate(situation, bounds, &Options { uncertainty: 0.0, sensitivity: false, ..*options })?;
        let of_nominal = nominal.costs.worst(&situation.workload, options.uncertainty)?;
        let nominal = (nominal.plan, nominal.costs, of_nominal);
        Ok(Some(Self { uncertainty: options.uncertainty, worst, nominal }))
    }

    fn to_json(&self, found: &Navigation) -> Value {
        let costs = |costs: &Costs, worst: &Worst<OPERATIONS>| {
            let [lookups_zero, lookups_nonzero, updates, ranges] = worst.mix;
            json!({
                "cost_ns_per_op": costs.cost_ns_per_op,
                "worst_cost_ns_per_op": worst.cost,
                "worst_mix": {
                    "lookups_zero": lookups_zero,
                    "lookups_nonzero": lookups_nonzero,
                    "updates": updates,
                    "ranges": ranges,
                },
            })
        };
        let (plan, nominal_costs, nominal_worst) = &self.nominal;
        let design = &plan.design;
        let nominal = json!({
            "policy": design.policy().map(|policy| policy.to_string()),
            "size_ratio": design.size_ratio,
            "inner_runs": design.inner_runs,
            "last_runs": design.last_runs,
            "buffer_bytes": design.buffer_bytes,
            "filter_bytes": nominal_costs.filter_bytes,
            "cache_bytes": plan.cache_bytes,
        });
        let head = json!({
            "uncertainty": self.uncertainty,
            "divergence": self.worst.divergence,
            "nominal": json::with(nominal, costs(nominal_costs, nominal_worst)),
        });
        json::with(head, costs(&found.costs, &self.worst))
    }

    fn table(&self, found: &Navigation) -> Table {
        let mut table = Table::new([
            "design",
            "T",
            "expected mix",
            "worst mix",
            "empty lookups",
            "found lookups",
            "updates",
            "ranges",
        ]);
        let mut row = |name: &str, plan: &Plan, costs: &Costs, worst: &Worst<OPERATIONS>| {
            let [empty, found, updates, ranges] =
                worst.mix.map(|share| format!("{} %", digits((share * 1e3).round() / 10.0)));
            let policy = format!("{name}: {}", report::policy_name(plan));
            let ratio = digits(plan.design.size_ratio);
            let times = [costs.cost_ns_per_op, worst.cost].map(show_ns);
            let [nominal_ns, worst_ns] = times;
            table.row([policy, ratio, nominal_ns, worst_ns, empty, found, updates, ranges]);
        };
        row("robust", &found.plan, &found.costs, &self.worst);
        let (plan, costs, worst) = &self.nominal;
        row("expected mix only", plan, costs, worst);
        table
    }
}

/// A note is added above this number of runs.
const MANY_RUNS: u64 = 30;

/// Warnings about a design: the best one of the model can be impractical.
fn notes(runs: u64, space_amplification: f64, counting: Counting) -> Vec<String> {
    if runs <= MANY_RUNS {
        return Vec::new();
    }
    let counted = match counting {
        Counting::Paper => "; the papers' convention does not count filter probes, --counting engine does",
        Counting::Engine => "",
    };
    vec![format!(
        "{} runs: a range reads a page of each, and obsolete data may take up to {} times the space{counted}. \
         Set --ranges and --max-space to account for this",
        show_count(runs),
        digits(space_amplification)
    )]
}

fn to_json(
    situation: &Situation,
    bounds: &Bounds,
    max_space: f64,
    found: &Navigation,
    robust: Option<&Robust>,
    notes: &[String],
) -> Value {
    let alternatives: Vec<Value> = found
        .alternatives
        .iter()
        .map(|other| {
            let more = json!({
                "times_the_cost": other.times_the_cost,
                "keeps_bounds": other.keeps_bounds,
                "why": other.why,
            });
            json::with(report::plan_json(situation, &other.plan, &other.costs), more)
        })
        .collect();
    let absent: Vec<Value> = found
        .absent
        .iter()
        .map(|absent| json!({ "policy": absent.policy.to_string(), "why": absent.why }))
        .collect();
    let sensitivity: Vec<Value> = found.sensitivity.iter().map(sensitivity_json).collect();
    let head = json!({
        "schema": "shamba.plan-design/1",
        "situation": report::situation_json(situation),
        "memory_bytes": bounds.memory_bytes,
        "max_space": max_space,
        "why": found.why,
        "notes": notes,
        "alternatives": alternatives,
        "absent": absent,
        "sensitivity": sensitivity,
        "robust": robust.map(|robust| robust.to_json(found)),
    });
    json::with(head, report::plan_json(situation, &found.plan, &found.costs))
}

fn sensitivity_json(sensitivity: &Sensitivity) -> Value {
    let response = |response: &Option<Response>| {
        response.map(|response| {
            json!({
                "policy": response.plan.design.policy().map(|policy| policy.to_string()),
                "size_ratio": response.plan.design.size_ratio,
                "throughput_per_s": response.throughput_per_s,
                "kept_throughput_per_s": response.kept_throughput_per_s,
                "changes": response.changes,
            })
        })
    };
    json!({
        "input": sensitivity.input.name(),
        "elasticity": sensitivity.elasticity,
        "halved": response(&sensitivity.halved),
        "doubled": response(&sensitivity.doubled),
    })
}

fn print(
    situation: &Situation,
    bounds: &Bounds,
    max_space: Option<f64>,
    found: &Navigation,
    robust: Option<&Robust>,
    notes: &[String],
    out: &mut Out,
) -> Result<(), Failure> {
    out.text(report::situation_text(situation))?;
    out.line(format!("memory    {}", show_size(bounds.memory_bytes)))?;
    out.line(format!("space     {}", max_space_text(max_space)))?;
    report::print_plan(situation, &found.plan, &found.costs, out)?;
    out.heading("reason")?;
    out.line(&found.why)?;
    notes.iter().try_for_each(|note| out.line(format!("note: {note}")))?;
    if let Some(robust) = robust {
        out.heading(&format!("worst mix within an uncertainty of {}", digits(robust.uncertainty)))?;
        out.text(robust.table(found).to_string())?;
        out.line("time of an operation in the expected mix and in each design's worst mix, and that mix")?;
    }
    let mut table = Table::new([
        "design",
        "T",
        "buffer",
        "filters",
        "empty lookup",
        "update",
        "range",
        "ops/s",
        "reason",
    ])
    .left([8]);
    let mut row = |plan: &Plan, costs: &Costs, why: &str| {
        table.row([
            report::policy_name(plan),
            digits(plan.design.size_ratio),
            show_size(plan.design.buffer_bytes),
            report::show_bytes(costs.filter_bytes),
            digits(costs.zero_result_lookup_ios_exact),
            digits(costs.merged_update_ios),
            digits(costs.range_ios),
            show_rate(costs.throughput_per_s),
            why.to_owned(),
        ]);
    };
    row(&found.plan, &found.costs, "best");
    for other in &found.alternatives {
        row(&other.plan, &other.costs, &other.why);
    }
    for absent in &found.absent {
        let policy = absent.policy.to_string();
        table.row([&policy, "-", "-", "-", "-", "-", "-", "-", &absent.why]);
    }
    out.heading("alternatives (costs in I/Os)")?;
    out.text(table.to_string())?;
    if found.sensitivity.is_empty() {
        return Ok(());
    }
    out.heading("sensitivity to inputs")?;
    out.text(sensitivity_table(found).to_string())?;
    out.line("ops/s of the best design for the changed input; in parentheses those of this design, if it is no longer the best")
}

fn sensitivity_table(found: &Navigation) -> Table {
    let mut table =
        Table::new(["input", "ops/s at half", "best design", "ops/s at twice", "best design", "elasticity"])
            .left([2, 4]);
    for row in &found.sensitivity {
        let [halved, doubled] = [&row.halved, &row.doubled].map(|response| match response {
            None => ["-".to_owned(), "none".to_owned()],
            Some(response) => {
                let kept = response.kept_throughput_per_s.filter(|_| response.changes);
                let kept = kept.map_or(String::new(), |kept| format!(" ({})", show_rate(kept)));
                let best = match response.changes {
                    false => "same".into(),
                    true => {
                        let plan = &response.plan;
                        format!("{}, T={}", report::policy_name(plan), digits(plan.design.size_ratio))
                    }
                };
                [show_rate(response.throughput_per_s) + &kept, best]
            }
        });
        let elasticity = row.elasticity.map_or("-".into(), |elasticity| format!("{elasticity:+.2}"));
        let input = row.input.name().replace('_', " ");
        let [[half, half_best], [twice, twice_best]] = [halved, doubled];
        table.row([input, half, half_best, twice, twice_best, elasticity]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_of_many_runs_comes_with_a_note() {
        assert_eq!(notes(6, 2.0, Counting::Paper), Vec::<String>::new());
        let told = |counting| notes(422, 422.0, counting).join("");
        assert!(
            told(Counting::Paper).starts_with("422 runs")
                && told(Counting::Paper).contains("--counting engine")
        );
        assert!(!told(Counting::Engine).contains("--counting"));
    }
}
