//! `shamba check DB`: reads every byte and reports all damage; exit code 2 if there is any.
//!
//! A database that cannot be opened, because of damage or of a file version unknown to this build,
//! is checked file by file, so that one report lists all problems. An unknown version is not
//! damage: if there is no other problem, the exit code is 5.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shamba::env::Env;
use shamba::inspect::{manifest_file, table_file, wal_file};
use shamba::{CheckReport, ErrorKind};

use crate::exit::{CORRUPTION, Failure};
use crate::json;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::{Out, Table, warn};
use crate::sizes::{counted, show_count, show_size};

/// Arguments of `check`.
#[derive(Args)]
pub struct CheckArgs {
    /// The database
    db: PathBuf,
    /// Also show the layout of each file
    #[arg(long)]
    layout: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs, out: &mut Out) -> Result<(), Failure> {
    let (report, said, opened) = match open::reader(&args.db, &ReaderOptions::default()) {
        Ok(db) => (db.verify()?, db.warnings(), true),
        Err(Failure::Engine(error))
            if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) =>
        {
            (shamba::check_files(&Env::real(), &args.db)?.with(&error, &args.db), Vec::new(), false)
        }
        Err(failure) => return Err(failure),
    };
    let layout = if args.layout { Some(layout(&args.db)?) } else { None };
    let printed = if args.json {
        out.json(&object(&report, opened, layout.as_deref()))
    } else {
        // Warnings of the open were already printed on standard error.
        report.warnings.iter().filter(|warning| !said.contains(warning)).for_each(warn);
        print(&report, layout.as_deref(), out)
    };
    let verdict = match report.problems.as_slice() {
        [] => Ok(()),
        problems if problems.iter().all(|problem| problem.is_unsupported) => Err(Failure::Reported(5)),
        _ => Err(Failure::Reported(CORRUPTION)),
    };
    Failure::after_report(printed, verdict)
}

fn print(report: &CheckReport, layout: Option<&[Layout]>, out: &mut Out) -> Result<(), Failure> {
    if let Some(files) = layout {
        out.text(layout_table(files).to_string())?;
        out.line("")?;
    }
    for problem in &report.problems {
        out.line(problem.to_string())?;
    }
    out.line(summary(report))
}

/// One line with the numbers of problems and of checked items.
fn summary(report: &CheckReport) -> String {
    let found = match report.problems.len() {
        0 => "no damage".to_string(),
        count => counted(count as u64, "problem", "problems"),
    };
    format!(
        "{found}: {} with {}, {} with {} of {}, {} checked",
        counted(report.tables, "table", "tables"),
        counted(report.entries, "entry", "entries"),
        counted(report.logs, "log", "logs"),
        counted(report.log_batches, "batch", "batches"),
        counted(report.log_operations, "operation", "operations"),
        show_size(report.bytes_checked)
    )
}

fn object(report: &CheckReport, opened: bool, layout: Option<&[Layout]>) -> Value {
    let problems: Vec<Value> = report.problems.iter().map(json::problem).collect();
    let object = json!({
        "schema": "shamba.check/1",
        "clean": problems.is_empty(),
        "opened": opened,
        "problems": problems,
        "warnings": report.warnings,
        "tables": report.tables,
        "entries": report.entries,
        "logs": report.logs,
        "log_batches": report.log_batches,
        "log_operations": report.log_operations,
        "bytes_checked": report.bytes_checked,
    });
    match layout {
        Some(files) => {
            let files: Vec<Value> = files.iter().map(|file| file.object.clone()).collect();
            json::with(object, json!({ "layout": files }))
        }
        None => object,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Log,
    Manifest,
    Other,
}

/// Files of a database, sorted by name, with their sizes and kinds.
fn files(dir: &Path) -> Result<Vec<(PathBuf, u64, Kind)>, Failure> {
    let failed = |error| Failure::io(dir.display().to_string(), error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_file() {
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let kind = match extension {
                Some("sst") => Kind::Table,
                Some("log") => Kind::Log,
                _ if entry.file_name().to_string_lossy().starts_with("MANIFEST-") => Kind::Manifest,
                _ => Kind::Other,
            };
            files.push((path, metadata.len(), kind));
        }
    }
    files.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    Ok(files)
}

/// Layout of a file, as a JSON object and as cells of a table.
struct Layout {
    object: Value,
    cells: [String; 4],
}

fn layout(dir: &Path) -> Result<Vec<Layout>, Failure> {
    let env = Env::real();
    let mut layouts = Vec::new();
    for (path, bytes, kind) in files(dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (word, object, text) = match kind {
            Kind::Table => match table_file(&env, &path) {
                Ok(table) => {
                    let sections: Vec<String> = table
                        .sections
                        .iter()
                        .map(|section| {
                            format!("{} {}+{}", section.kind.name(), section.offset, section.bytes)
                        })
                        .collect();
                    let text = format!(
                        "{} in {}; {}",
                        counted(table.summary.entries, "entry", "entries"),
                        counted(table.blocks.len() as u64, "block", "blocks"),
                        sections.join(", ")
                    );
                    ("table", json::table(&table), text)
                }
                Err(error) => {
                    let text = error.chain().to_string();
                    ("table", json!({ "error": text }), text)
                }
            },
            Kind::Log | Kind::Manifest => {
                let (word, read): (_, fn(&Env, &Path) -> _) =
                    if kind == Kind::Log { ("log", wal_file) } else { ("manifest", manifest_file) };
                match read(&env, &path) {
                    Ok(log) => {
                        let records = counted(log.records.len() as u64, "record", "records");
                        let text = format!("{records}, {} durable", counted(log.promise, "byte", "bytes"));
                        let object = json!({ "records": log.records.len(), "promise": log.promise });
                        (word, object, text)
                    }
                    Err(error) => {
                        let text = error.chain().to_string();
                        (word, json!({ "error": text }), text)
                    }
                }
            }
            Kind::Other => ("other", json!({}), String::new()),
        };
        let mut object = json::with(json!({ "name": name, "kind": word, "bytes": bytes }), object);
        if let Value::Object(fields) = &mut object {
            fields.remove("schema");
        }
        layouts.push(Layout { object, cells: [name, word.to_string(), show_count(bytes), text] });
    }
    Ok(layouts)
}

fn layout_table(files: &[Layout]) -> Table {
    let mut table = Table::new(["file", "kind", "bytes", "layout"]).left([1, 3]);
    for file in files {
        table.row(file.cells.clone());
    }
    table
}
