//! `shamba checkpoint DB DIR`: makes a checkpoint of a database, or of one of its keyspaces.

use std::path::PathBuf;

use clap::Args;
use shamba::ErrorKind;

use crate::exit::Failure;
use crate::keyspace::{existing, parse_name};
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
    /// Copy only this keyspace
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    keyspace: Option<String>,
}

pub fn run(args: &CheckpointArgs) -> Result<(), Failure> {
    let db = open::existing(&args.db, &EngineOptions::default())?;
    open::closing(db, |db| {
        let copied = match &args.keyspace {
            Some(name) => existing(db, &args.db, name)?.checkpoint(&args.dir),
            None => db.checkpoint(&args.dir),
        };
        copied.map_err(|error| match error.kind() {
            ErrorKind::Invalid => Failure::Advised(error, TAKEN.into()),
            _ => error.into(),
        })
    })
}
