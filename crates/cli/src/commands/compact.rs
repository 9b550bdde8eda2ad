//! `shamba compact DB`: compacts each keyspace into one run; with `--filters`, only rewrites tables
//! with stale filters.

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
    /// Compact nothing; only rewrite the tables with stale filters
    #[arg(long)]
    filters: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &CompactArgs) -> Result<(), Failure> {
    let db = open::existing(&args.db, &args.engine)?;
    if args.filters { db.rewrite_filters() } else { db.compact() }?;
    Ok(db.close()?)
}
