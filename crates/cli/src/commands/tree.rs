//! `shamba tree DB`: prints the notation of the tree, and the filters of its levels.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shamba::Stats;

use crate::exit::Failure;
use crate::json;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::{Out, Table};
use crate::sizes::show_count;

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
    // Decides which filters are in memory.
    db.wait_idle()?;
    if !args.json {
        out.text(db.describe())?;
        let stats = db.stats();
        if stats.levels.is_empty() {
            return Ok(());
        }
        out.line("")?;
        return out.text(filters_table(&stats).to_string());
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

/// Filter bits per key by level: wanted, written and in memory.
fn filters_table(stats: &Stats) -> Table {
    let mut table =
        Table::new(["level", "entries", "bits/key wanted", "written", "in memory", "stale filters"]);
    for level in &stats.levels {
        table.row([
            level.level.to_string(),
            show_count(level.entries),
            format!("{:.1}", level.bits_per_key_wanted),
            format!("{:.1}", level.bits_per_key),
            format!("{:.1}", level.bits_per_key_resident),
            show_count(level.tables_with_stale_filters),
        ]);
    }
    table
}
