//! `shamba table FILE`: describes one table file, or one value file.

use std::path::PathBuf;

use clap::Args;
use shamba::env::Env;
use shamba::inspect::{table_file, value_file};

use crate::exit::Failure;
use crate::json;
use crate::kind;
use crate::output::{Out, warn};

/// Arguments of `table`.
#[derive(Args)]
pub struct TableArgs {
    /// The file, such as DB/000012.sst or DB/000012.values
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &TableArgs, out: &mut Out) -> Result<(), Failure> {
    if kind::magic_of(&args.file).as_ref() == Some(b"SHAMBAVF") {
        let file = value_file(&Env::real(), &args.file)?;
        return if args.json { out.json(&json::value_file(&file)) } else { out.text(file.to_string()) };
    }
    let table = table_file(&Env::real(), &args.file)
        .map_err(|error| kind::explain(error, &args.file, b"SHAMBAT1"))?;
    table.warnings.iter().for_each(warn);
    if args.json { out.json(&json::table(&table)) } else { out.text(table.to_string()) }
}
