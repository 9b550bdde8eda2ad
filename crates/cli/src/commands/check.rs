//! `shamba check DB`: reads every byte and reports all damage; exit code 2 if there is any.
//!
//! A database that cannot even be opened for its damage, or because this build does not know the version of a
//! file, is still checked file by file, so that one report names everything that is wrong. A version that is
//! not known is no damage: if nothing else is wrong the exit code is 5.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shamba::env::Env;
use shamba::inspect::{Ending, LogDescription, manifest_file, table_file, wal_file};
use shamba::{CheckReport, ErrorKind, Problem};

use crate::exit::Failure;
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
    /// Show also how each file is laid out
    #[arg(long)]
    layout: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs, out: &mut Out) -> Result<(), Failure> {
    let (findings, opened) = match open::reader(&args.db, &ReaderOptions::default()) {
        Ok(db) => (Findings::of_report(&db.verify()?, db.warnings()), true),
        Err(Failure::Engine(error))
            if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) =>
        {
            (Findings::file_by_file(&args.db, &error)?, false)
        }
        Err(failure) => return Err(failure),
    };
    let layout = if args.layout { Some(layout(&args.db)?) } else { None };
    if args.json {
        out.json(&findings.object(opened, layout.as_deref()))?;
    } else {
        if let Some(files) = &layout {
            out.text(layout_table(files).to_string())?;
            out.line("")?;
        }
        // What opening warned of is on standard error already.
        findings.warnings.iter().filter(|warning| !findings.said.contains(warning)).for_each(warn);
        for damage in &findings.problems {
            out.line(damage.to_string())?;
        }
        out.line(findings.summary())?;
    }
    match findings.problems.as_slice() {
        [] => Ok(()),
        problems if problems.iter().all(|problem| problem.is_unsupported) => Err(Failure::Reported(5)),
        _ => Err(Failure::Reported(2)),
    }
}

/// One damaged place, or a file that this build cannot read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Damage {
    file: PathBuf,
    offset: u64,
    structure: String,
    detail: String,
    affected: String,
    /// The file is of a version, or has a feature, that this build does not know.
    is_unsupported: bool,
}

impl Damage {
    fn of_problem(problem: &Problem) -> Self {
        let Problem { file, offset, structure, detail, affected, .. } = problem;
        Self {
            file: file.clone(),
            offset: *offset,
            structure: structure.clone(),
            detail: detail.clone(),
            affected: affected.clone(),
            is_unsupported: false,
        }
    }

    fn of_error(file: &Path, error: &shamba::Error, affected: &str) -> Self {
        let (file, offset, structure) = match error.damage() {
            Some(damage) => (damage.file.clone(), damage.offset, damage.structure.to_string()),
            None => (file.to_path_buf(), 0, "file".to_string()),
        };
        Self {
            file,
            offset,
            structure,
            detail: error.to_string(),
            affected: affected.to_string(),
            is_unsupported: error.kind() == ErrorKind::Unsupported,
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.display().to_string();
        // An error's text names its file, structure and offset itself.
        if !self.detail.contains(&file) {
            write!(f, "{file}: damaged {} at offset {}: ", self.structure, self.offset)?;
        }
        f.write_str(&self.detail)?;
        if self.affected.is_empty() { Ok(()) } else { write!(f, " (affects {})", self.affected) }
    }
}

#[derive(Default)]
struct Findings {
    problems: Vec<Damage>,
    warnings: Vec<String>,
    /// Those of the warnings that opening gave.
    said: Vec<String>,
    tables: u64,
    entries: u64,
    logs: u64,
    log_batches: u64,
    log_operations: u64,
    bytes_checked: u64,
}

impl Findings {
    fn of_report(report: &CheckReport, said: Vec<String>) -> Self {
        Self {
            problems: report.problems.iter().map(Damage::of_problem).collect(),
            warnings: report.warnings.clone(),
            said,
            tables: report.tables,
            entries: report.entries,
            logs: report.logs,
            log_batches: report.log_batches,
            log_operations: report.log_operations,
            bytes_checked: report.bytes_checked,
        }
    }

    /// What was found and read, in a line.
    fn summary(&self) -> String {
        let found = match self.problems.len() {
            0 => "no damage".to_string(),
            count => counted(count as u64, "problem", "problems"),
        };
        format!(
            "{found}: {} with {}, {} with {} of {}, {} checked",
            counted(self.tables, "table", "tables"),
            counted(self.entries, "entry", "entries"),
            counted(self.logs, "log", "logs"),
            counted(self.log_batches, "batch", "batches"),
            counted(self.log_operations, "operation", "operations"),
            show_size(self.bytes_checked)
        )
    }

    /// Every file by itself, where `error` keeps the database from being opened.
    fn file_by_file(dir: &Path, error: &shamba::Error) -> Result<Self, Failure> {
        let mut findings = Self::default();
        let files = files(dir)?;
        // Of an unknown version only the text says which file it is.
        let text = error.to_string();
        let named = files.iter().find(|(file, ..)| text.starts_with(&format!("{}: ", file.display())));
        let file = named.map_or(dir, |(file, ..)| file);
        findings.problems.push(Damage::of_error(file, error, "the whole database: it cannot be opened"));
        let env = Env::real();
        for (file, bytes, kind) in files {
            let problem = match kind {
                Kind::Table => match table_file(&env, &file) {
                    Ok(table) => {
                        findings.tables += 1;
                        findings.entries += table.summary.entries;
                        findings.warnings.extend(table.warnings);
                        None
                    }
                    Err(error) => Some(Damage::of_error(&file, &error, "the keys of this table")),
                },
                Kind::Log | Kind::Manifest => {
                    let read = if kind == Kind::Log { wal_file } else { manifest_file };
                    match read(&env, &file) {
                        Ok(log) => {
                            if kind == Kind::Log {
                                findings.logs += 1;
                                findings.log_batches += said(&log, |field| field == "batch");
                                findings.log_operations +=
                                    said(&log, |field| matches!(field, "put" | "delete" | "range_delete"));
                            }
                            match &log.ending {
                                Ending::Corrupt { offset, detail } => Some(Damage {
                                    offset: *offset,
                                    structure: format!("{} frame", log.kind),
                                    detail: detail.clone(),
                                    affected: "everything written from there on".to_string(),
                                    is_unsupported: false,
                                    file,
                                }),
                                _ => None,
                            }
                        }
                        Err(error) => Some(Damage::of_error(&file, &error, "this file")),
                    }
                }
                Kind::Other => continue,
            };
            findings.bytes_checked += bytes;
            let known = |damage: &Damage| {
                findings
                    .problems
                    .iter()
                    .any(|known| known.file == damage.file && known.offset == damage.offset)
            };
            if let Some(damage) = problem.filter(|damage| !known(damage)) {
                findings.problems.push(damage);
            }
        }
        Ok(findings)
    }

    fn object(&self, opened: bool, layout: Option<&[Layout]>) -> Value {
        let problems: Vec<Value> = self
            .problems
            .iter()
            .map(|damage| {
                json!({
                    "file": damage.file.display().to_string(),
                    "offset": damage.offset,
                    "structure": damage.structure,
                    "detail": damage.detail,
                    "affected": damage.affected,
                })
            })
            .collect();
        let object = json!({
            "schema": "shamba.check/1",
            "clean": problems.is_empty(),
            "opened": opened,
            "problems": problems,
            "warnings": self.warnings,
            "tables": self.tables,
            "entries": self.entries,
            "logs": self.logs,
            "log_batches": self.log_batches,
            "log_operations": self.log_operations,
            "bytes_checked": self.bytes_checked,
        });
        match layout {
            Some(files) => {
                let files: Vec<Value> = files.iter().map(|file| file.object.clone()).collect();
                json::with(object, json!({ "layout": files }))
            }
            None => object,
        }
    }
}

/// How many fields of its records have such a name.
fn said(log: &LogDescription, is_meant: impl Fn(&str) -> bool) -> u64 {
    log.records.iter().flat_map(|record| &record.fields).filter(|(name, _)| is_meant(name)).count() as u64
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Log,
    Manifest,
    Other,
}

/// The files of a database, by name, with their lengths.
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

/// A file's layout, as a JSON object and as cells of a table.
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
                Err(error) => ("table", json!({ "error": error.to_string() }), error.to_string()),
            },
            Kind::Log | Kind::Manifest => {
                let (word, read): (_, fn(&Env, &Path) -> _) =
                    if kind == Kind::Log { ("log", wal_file) } else { ("manifest", manifest_file) };
                match read(&env, &path) {
                    Ok(log) => {
                        let records = counted(log.records.len() as u64, "record", "records");
                        let text = format!("{records}, {} promised", counted(log.promise, "byte", "bytes"));
                        let object = json!({ "records": log.records.len(), "promise": log.promise });
                        (word, object, text)
                    }
                    Err(error) => (word, json!({ "error": error.to_string() }), error.to_string()),
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
