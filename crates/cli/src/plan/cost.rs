//! `shamba plan cost`: what a given design costs: I/Os, time, memory, level by level.

use clap::Args;
use serde_json::json;
use shamba_model::cost::{Workload, predict};

use super::options::{DesignOptions, SituationOptions};
use super::report;
use crate::exit::Failure;
use crate::json;
use crate::output::Out;

/// The papers' default: lookups that find nothing.
pub const EMPTY_LOOKUPS: Workload =
    Workload { empty_lookups: 1.0, found_lookups: 0.0, updates: 0.0, ranges: 0.0, range_selectivity: 0.0 };

const EXAMPLES: &str = "Examples:
  shamba plan cost --entries 34359738368 --entry-bytes 16 --buffer 2MiB --size-ratio 4 --filter-memory 4GiB
  shamba plan cost --entries 100M --entry-bytes 1KiB --like cassandra --memory 4GiB --lookups-zero 0.2 --updates 0.8";

/// Arguments of `plan cost`.
#[derive(Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct CostArgs {
    #[command(flatten)]
    situation: SituationOptions,
    #[command(flatten)]
    design: DesignOptions,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CostArgs, out: &mut Out) -> Result<(), Failure> {
    let situation = args.situation.situation(EMPTY_LOOKUPS)?;
    let plan = args.design.plan(&situation)?;
    let costs = predict(&situation, &plan).map_err(Failure::Usage)?;
    if args.json {
        let head = json!({ "schema": "shamba.plan-cost/1", "situation": report::situation_json(&situation) });
        return out.json(&json::with(head, report::plan_json(&plan, &costs)));
    }
    out.text(report::situation_text(&situation))?;
    report::print_plan(&situation, &plan, &costs, out)
}
