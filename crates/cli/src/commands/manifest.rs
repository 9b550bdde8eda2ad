//! `shamba manifest DB`: prints the current manifest, edit by edit.

use std::path::PathBuf;

use clap::Args;
use shamba::env::Env;
use shamba::inspect::manifest_file;

use super::wal::print;
use crate::exit::Failure;
use crate::kind;
use crate::open;
use crate::output::Out;

/// Arguments of `manifest`.
#[derive(Args)]
pub struct ManifestArgs {
    /// The database, or a manifest file
    db: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ManifestArgs, out: &mut Out) -> Result<(), Failure> {
    if !args.db.is_file() {
        open::must_exist(&args.db)?;
    }
    let manifest =
        manifest_file(&Env::real(), &args.db).map_err(|error| kind::explain(error, &args.db, b"SHAMBAMF"))?;
    print("shamba.manifest/1", &manifest, args.json, out)
}
