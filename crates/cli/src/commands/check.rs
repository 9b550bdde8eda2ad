//! `shamba check DB`: reads every byte and reports all damage; exit code 2 if there is any.
//!
//! A database that cannot even be opened for its damage is still checked file by file, so that one report
//! names everything that is wrong.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shamba::env::Env;
use shamba::inspect::{Ending, manifest_file, table_file, wal_file};
use shamba::{CheckReport, Db, ErrorKind, Problem};

use crate::exit::Failure;
use crate::json;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::{Out, Table, warn};
use crate::sizes::{show_count, show_size};

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
        Ok(db) => (Findings::of_report(&verify(&db)?), true),
        Err(Failure::Engine(error)) if error.kind() == ErrorKind::Corruption => {
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
        findings.warnings.iter().for_each(warn);
        for damage in &findings.problems {
            out.line(damage.to_string())?;
        }
        out.line(format!(
            "{}: {} tables, {} entries, {} checked",
            match findings.problems.len() {
                0 => "no damage".to_string(),
                1 => "1 problem".to_string(),
                count => format!("{} problems", show_count(count as u64)),
            },
            show_count(findings.tables),
            show_count(findings.entries),
            show_size(findings.bytes_checked)
        ))?;
    }
    if findings.problems.is_empty() { Ok(()) } else { Err(Failure::Reported(2)) }
}

fn verify(db: &Db) -> Result<CheckReport, Failure> {
    let mut report = db.verify()?;
    // What opening warned of is on standard error already.
    let said = db.warnings();
    report.warnings.retain(|warning| !said.contains(warning));
    Ok(report)
}

/// One damaged place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Damage {
    file: PathBuf,
    offset: u64,
    structure: String,
    detail: String,
    affected: String,
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
        }
    }

    fn of_error(file: &Path, error: &shamba::Error, affected: &str) -> Self {
        let (file, offset, structure) = match error.damage() {
            Some(damage) => (damage.file.clone(), damage.offset, damage.structure.to_string()),
            None => (file.to_path_buf(), 0, "file".to_string()),
        };
        Self { file, offset, structure, detail: error.to_string(), affected: affected.to_string() }
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
    tables: u64,
    entries: u64,
    bytes_checked: u64,
}

impl Findings {
    fn of_report(report: &CheckReport) -> Self {
        Self {
            problems: report.problems.iter().map(Damage::of_problem).collect(),
            warnings: report.warnings.clone(),
            tables: report.tables,
            entries: report.entries,
            bytes_checked: report.bytes_checked,
        }
    }

    /// Every file by itself, where `error` keeps the database from being opened.
    fn file_by_file(dir: &Path, error: &shamba::Error) -> Result<Self, Failure> {
        let mut findings = Self::default();
        findings.problems.push(Damage::of_error(dir, error, "the whole database: it cannot be opened"));
        let env = Env::real();
        for (file, bytes, kind) in files(dir)? {
            let problem = match kind {
                Kind::Table => match table_file(&env, &file) {
                    Ok(table) => {
                        findings.tables += 1;
                        findings.entries += table.summary.entries;
                        None
                    }
                    Err(error) => Some(Damage::of_error(&file, &error, "the keys of this table")),
                },
                Kind::Log | Kind::Manifest => {
                    let read = if kind == Kind::Log { wal_file } else { manifest_file };
                    match read(&env, &file) {
                        Ok(log) => match &log.ending {
                            Ending::Corrupt { offset, detail } => Some(Damage {
                                offset: *offset,
                                structure: format!("{} frame", log.kind),
                                detail: detail.clone(),
                                affected: "everything written from there on".to_string(),
                                file,
                            }),
                            _ => None,
                        },
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
                        "{} entries in {} blocks; {}",
                        table.summary.entries,
                        table.blocks.len(),
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
                        let text = format!("{} records, {} bytes promised", log.records.len(), log.promise);
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
