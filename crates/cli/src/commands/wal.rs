//! `shamba wal FILE`: prints one write-ahead log, record by record.

use std::path::PathBuf;

use clap::Args;
use shamba::env::Env;
use shamba::inspect::{LogDescription, wal_file};

use crate::exit::{CORRUPTION, Failure};
use crate::json;
use crate::kind;
use crate::output::Out;

/// Arguments of `wal`.
#[derive(Args)]
pub struct WalArgs {
    /// The file, such as DB/000007.log
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &WalArgs, out: &mut Out) -> Result<(), Failure> {
    let log =
        wal_file(&Env::real(), &args.file).map_err(|error| kind::explain(error, &args.file, b"SHAMBAWL"))?;
    print("shamba.wal/1", &log, args.json, out)
}

/// Prints a framed file; exit code 2 if its durable part is damaged.
pub fn print(schema: &str, log: &LogDescription, as_json: bool, out: &mut Out) -> Result<(), Failure> {
    let printed = if as_json { out.json(&json::log(schema, log)) } else { out.text(log.to_string()) };
    let verdict = if log.is_corrupt() { Err(Failure::Reported(CORRUPTION)) } else { Ok(()) };
    Failure::after_report(printed, verdict)
}
