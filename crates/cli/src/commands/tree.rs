//! `shamba tree DB`: the notation of the tree, and its levels.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::exit::Failure;
use crate::json;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;

/// Arguments of `tree`.
#[derive(Args)]
pub struct TreeArgs {
    /// The database
    db: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &TreeArgs, out: &mut Out) -> Result<(), Failure> {
    let db = open::reader(&args.db, &ReaderOptions::default())?;
    if !args.json {
        return out.text(db.describe());
    }
    let stats = db.stats();
    out.json(&json!({
        "schema": "shamba.tree/1",
        "design": json::design(&db),
        "deepest_level": stats.deepest_level,
        "runs": stats.runs,
        "debt_bytes": stats.debt_bytes,
        "levels": json::levels(&stats),
        "notation": db.describe(),
    }))
}
