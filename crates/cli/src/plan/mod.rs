//! `shamba plan`: what a design would cost, which design would be best, and what changes between two; no database needed.
//!
//! Everything is computed by the cost model (crate `shamba-model`), which the engine and the experiments use too. Here are
//! its inputs as options ([`options`]), its answers as tables and JSON ([`report`]), one file for each command, and RocksDB's
//! OPTIONS files ([`rocksdb`]).
//!
//! Not here: formulas.

mod compare;
mod cost;
mod counting;
mod design;
mod options;
mod report;
mod rocksdb;

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
    /// What a given design costs
    Cost(cost::CostArgs),
    /// The best design for a workload within a memory, why, what else there was, and what would change it
    Design(design::DesignArgs),
    /// What changes between two cases: other data, memory, workload, device or design
    Compare(compare::CompareArgs),
}

/// Runs it.
///
/// # Errors
/// Options and files that make no sense, and as standard output fails.
pub fn run(args: &PlanArgs, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        PlanCommand::Cost(args) => cost::run(args, out),
        PlanCommand::Design(args) => design::run(args, out),
        PlanCommand::Compare(args) => compare::run(args, out),
    }
}
