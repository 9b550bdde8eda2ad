//! `shamba plan`: predicts the costs of a design, the best design, and the difference of two cases,
//! without a database.
//!
//! The cost model (crate `shamba-model`), which the engine and the experiments use too, computes
//! everything. Here are its inputs as options ([`options`]), its results as tables and JSON
//! ([`report`]), one file for each command, and RocksDB's OPTIONS files ([`rocksdb`]).
//!
//! Not here: formulas.

mod compare;
mod cost;
mod counting;
mod design;
mod options;
mod report;
mod rocksdb;
mod values;

pub(crate) use self::rocksdb::check as check_rocksdb;

use clap::{Args, Subcommand};

use crate::exit::Failure;
use crate::output::Out;

/// Arguments of `plan`.
#[derive(Args)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Subcommand)]
enum PlanCommand {
    /// Costs of a given design
    Cost(cost::CostArgs),
    /// Best design for a workload and a memory budget, with its reason, the alternatives and the
    /// sensitivity to the inputs
    Design(design::DesignArgs),
    /// Compare two cases: data, memory, workload, device or design
    Compare(compare::CompareArgs),
}

/// Runs a `plan` command.
///
/// # Errors
/// Invalid options or files, and failures of standard output.
pub fn run(args: &PlanArgs, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        PlanCommand::Cost(args) => cost::run(args, out),
        PlanCommand::Design(args) => design::run(args, out),
        PlanCommand::Compare(args) => compare::run(args, out),
    }
}
