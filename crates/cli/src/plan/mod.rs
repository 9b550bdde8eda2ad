//! `shamba plan`: what a design would cost, which design would be best, and what changes between two; no database needed.
//!
//! Everything is computed by the cost model (crate `shamba-model`), which the engine and the experiments use too. Here are
//! its inputs as options ([`options`]), its answers as tables and JSON ([`report`]), and one file for each command.
//!
//! Not here: formulas.

mod cost;
mod options;
mod report;

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
}

/// Runs it.
///
/// # Errors
/// Options and files that make no sense, and as standard output fails.
pub fn run(args: &PlanArgs, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        PlanCommand::Cost(args) => cost::run(args, out),
    }
}
