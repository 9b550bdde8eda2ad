//! `shamba compact DB`: everything into one run.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Failure;
use crate::open;
use crate::options::EngineOptions;

/// Arguments of `compact`.
#[derive(Args)]
pub struct CompactArgs {
    /// The database
    db: PathBuf,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &CompactArgs) -> Result<(), Failure> {
    let db = open::existing(&args.db, &args.engine)?;
    db.compact()?;
    Ok(db.close()?)
}
