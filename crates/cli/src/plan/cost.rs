//! `shamba plan cost`: the costs of a given design: I/Os, time and memory, level by level.

use clap::Args;
use serde_json::json;
use shamba_model::cost::Workload;

use super::counting::CountingOption;
use super::options::{DesignOptions, SituationOptions, check_max_space};
use super::report;
use super::rocksdb::{self, Asked, First, RocksdbOptions};
use super::values::{Separated, ValueOptions};
use crate::exit::Failure;
use crate::json;
use crate::output::Out;

/// Default workload, as in the papers: empty lookups.
pub const EMPTY_LOOKUPS: Workload =
    Workload { empty_lookups: 1.0, found_lookups: 0.0, updates: 0.0, ranges: 0.0, range_selectivity: 0.0 };

const EXAMPLES: &str = "Examples:
  shamba plan cost --entries 34359738368 --entry-bytes 16 --buffer 2MiB --size-ratio 4 --filter-memory 4GiB
  shamba plan cost --entries 100M --entry-bytes 1KiB --like cassandra --memory 4GiB --lookups-zero 0.2 --updates 0.8
  shamba plan cost --entries 10M --entry-bytes 4120 --value-bytes 4KiB --lookups-nonzero 0.5 --updates 0.5
  shamba plan cost --entries 100M --entry-bytes 100 --rocksdb OPTIONS-000007 --lookups-zero 0.5 --updates 0.5 --out OPTIONS-better";

/// Arguments of `plan cost`.
#[derive(Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct CostArgs {
    #[command(flatten)]
    situation: SituationOptions,
    #[command(flatten)]
    design: DesignOptions,
    #[command(flatten)]
    counting: CountingOption,
    #[command(flatten)]
    values: ValueOptions,
    #[command(flatten)]
    rocksdb: RocksdbOptions,
    /// Maximum space amplification of the better settings: bytes stored per byte of data; inf for
    /// no bound (default: 2)
    #[arg(long, value_name = "RATIO", requires = "rocksdb", help_heading = "RocksDB")]
    max_space: Option<f64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CostArgs, out: &mut Out) -> Result<(), Failure> {
    if let Some(path) = &args.rocksdb.rocksdb {
        if let Some(option) = args.design.first_of_design() {
            return Err(Failure::Usage(format!("conflict: {option} and --rocksdb both set the design")));
        }
        args.counting.counting.is_for_rocksdb()?;
        check_max_space(args.max_space)?;
        let asked = Asked {
            options: &args.rocksdb,
            situation: &args.situation,
            mix: EMPTY_LOOKUPS,
            memory_bytes: args.design.memory,
            cache_bytes: args.design.cache,
            max_lookup_ios: None,
            max_update_ios: None,
            max_space: args.max_space,
            first: First::Present,
            json: args.json,
        };
        return rocksdb::run(path, &asked, out);
    }
    let situation = args.situation.situation(EMPTY_LOOKUPS, args.counting.counting)?;
    let plan = args.design.plan(&situation)?;
    let predict = |situation: &_| args.counting.counting.predict(situation, &plan);
    let costs = predict(&situation)?;
    let separated = args.values.values(&[("--levels", plan.levels.is_some())])?;
    let separated = separated
        .map(|values| Separated::new(values, &situation, |keys| Ok((plan, predict(keys)?))))
        .transpose()?;
    if args.json {
        let head = json!({ "schema": "shamba.plan-cost/1", "situation": report::situation_json(&situation) });
        // No search is made here; `plan design` gives alternatives.
        let head = json::with(
            head,
            json!({
                "alternatives": [],
                "value_files": separated.map(|separated| separated.to_json(&situation, &costs)),
            }),
        );
        return out.json(&json::with(head, report::plan_json(&situation, &plan, &costs)));
    }
    out.text(report::situation_text(&situation))?;
    report::print_plan(&situation, &plan, &costs, out)?;
    separated.map_or(Ok(()), |separated| separated.print(&situation, &costs, out))
}
