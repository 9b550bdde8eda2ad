//! `shamba memory DB`: prints the memory of every part of the engine, and that of the process.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::exit::Failure;
use crate::json;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::{Out, Table};
use crate::sizes::{show_count, show_size};

/// Arguments of `memory`.
#[derive(Args)]
pub struct MemoryArgs {
    /// The database
    db: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

pub fn run(args: &MemoryArgs, out: &mut Out) -> Result<(), Failure> {
    let db = open::reader(&args.db, &args.reader)?;
    let (report, tables_closed) = (db.memory(), db.stats().tables_closed);
    if args.json {
        let head = json!({ "schema": "shamba.memory/1", "tables_closed": tables_closed });
        return out.json(&json::with(head, json::memory(&report)));
    }
    out.text(memory_table(&report).to_string())?;
    if tables_closed > 0 {
        out.line(format!(
            "\n{} tables are closed, because the budget cannot hold their readers; each use opens them",
            show_count(tables_closed)
        ))?;
    }
    if report.levels.is_empty() {
        return Ok(());
    }
    out.text(format!("\nheld in memory\n{}", level_table(&report)))
}

/// Filters and indexes in memory, by level.
fn level_table(report: &shamba::MemoryReport) -> Table {
    let mut table =
        Table::new(["level", "tables", "filters", "of", "slices held per module", "indexes", "partitions"]);
    let has_keyspaces = report.levels.iter().any(|level| level.keyspace != report.levels[0].keyspace);
    for level in &report.levels {
        let modules: Vec<String> = level.modules.iter().map(|(held, all)| format!("{held}/{all}")).collect();
        let keyspace = if has_keyspaces { format!("{} ", level.keyspace) } else { String::new() };
        table.row([
            format!("{keyspace}{}", level.level),
            level.tables.to_string(),
            match level.filter_dormant_bytes {
                0 => show_size(level.filter_held_bytes),
                dormant => format!("{}, {} dormant", show_size(level.filter_held_bytes), show_size(dormant)),
            },
            show_size(level.filter_bytes),
            modules.join(" "),
            show_size(level.index_held_bytes),
            format!("{}/{}", level.partitions.0, level.partitions.1),
        ]);
    }
    table
}

/// Memory of the parts, their sum, the budget and the process.
pub fn memory_table(report: &shamba::MemoryReport) -> Table {
    let mut table = Table::plain();
    for (name, bytes) in &report.parts {
        table.row([name.clone(), show_size(*bytes)]);
    }
    table.row(["accounted".to_string(), show_size(report.ledger_bytes)]);
    table.row(["peak".to_string(), show_size(report.peak_bytes)]);
    table.row(["memory budget".to_string(), show_size(report.budget_bytes)]);
    let rss = report.rss_bytes.map_or("unknown".into(), show_size);
    table.row(["resident (process)".to_string(), rss]);
    table
}
