//! `shamba put DB KEY VALUE`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::argument;
use crate::exit::Failure;
use crate::open;
use crate::options::EngineOptions;
use crate::text::Notation;

/// Arguments of `put`.
#[derive(Args)]
pub struct PutArgs {
    /// The database; made if it is not there
    db: PathBuf,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
    /// Key and value are hex
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &PutArgs) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let key = argument("KEY", &args.key, notation)?;
    let value = argument("VALUE", &args.value, notation)?;
    let db = open::create(&args.db, &args.engine)?;
    db.put(key, value)?;
    Ok(db.close()?)
}
