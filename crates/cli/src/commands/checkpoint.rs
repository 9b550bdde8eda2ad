//! `shamba checkpoint DB DIR`: makes a checkpoint of a database.

use std::path::PathBuf;

use clap::Args;
use shamba::ErrorKind;

use crate::exit::Failure;
use crate::open;
use crate::options::EngineOptions;

/// Hint for an unusable target directory.
const TAKEN: &str = "DIR must be empty or new, in an existing directory";

/// Arguments of `checkpoint`.
#[derive(Args)]
pub struct CheckpointArgs {
    /// The database
    db: PathBuf,
    /// Target directory, empty or new, in an existing directory
    dir: PathBuf,
}

pub fn run(args: &CheckpointArgs) -> Result<(), Failure> {
    let db = open::existing(&args.db, &EngineOptions::default())?;
    db.checkpoint(&args.dir).map_err(|error| match error.kind() {
        ErrorKind::Invalid => Failure::Advised(error, TAKEN.into()),
        _ => error.into(),
    })?;
    Ok(db.close()?)
}
