//! `shamba delete DB KEY`: deletes a key.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::argument;
use crate::exit::Failure;
use crate::keyspace::ExistingKeyspace;
use crate::open;
use crate::options::EngineOptions;
use crate::text::Notation;

/// Arguments of `delete`.
#[derive(Args)]
pub struct DeleteArgs {
    /// The database
    db: PathBuf,
    /// The key; deleting a missing key is not an error
    key: OsString,
    #[command(flatten)]
    keyspace: ExistingKeyspace,
    /// The key is hex
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &DeleteArgs) -> Result<(), Failure> {
    let key = argument("KEY", &args.key, Notation::from_switch(args.hex))?;
    let db = open::existing(&args.db, &args.engine)?;
    open::closing(db, |db| Ok(args.keyspace.of(db, &args.db)?.delete(key)?))
}
