//! `shamba repair DB --out DIR`: creates a new database from the readable data of a damaged one.
//!
//! The damaged one is not changed. Losses are listed as ranges of keys. The exit code is 0 even
//! then, because the remaining data was repaired; it is 2 if nothing could be read.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use shamba::env::Env;
use shamba::{ErrorKind, LostRange, RepairReport};

use crate::exit::{CORRUPTION, Failure};
use crate::json;
use crate::open;
use crate::output::{Out, warn};
use crate::sizes::counted;
use crate::text::Notation;

/// Hint for a database that is open elsewhere.
const IN_USE: &str =
    "repair needs exclusive access to both directories; stop the process that has one of them open";
/// Hint for an unusable target directory.
const TAKEN: &str = "--out must be empty or not exist, and lie outside the damaged database";

/// Arguments of `repair`.
#[derive(Args)]
pub struct RepairArgs {
    /// The damaged database, which is not changed
    db: PathBuf,
    /// Target directory; must be empty or not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print keys as hex
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RepairArgs, out: &mut Out) -> Result<(), Failure> {
    open::must_exist(&args.db)?;
    let report = shamba::repair(&Env::real(), &args.db, &args.out).map_err(|error| match error.kind() {
        ErrorKind::Locked => Failure::Advised(error, IN_USE.into()),
        ErrorKind::Invalid => Failure::Advised(error, TAKEN.into()),
        _ => error.into(),
    })?;
    let notation = Notation::from_switch(args.hex);
    let printed = if args.json {
        out.json(&object(args, &report, notation))
    } else {
        report.warnings.iter().for_each(warn);
        print(args, &report, notation, out)
    };
    Failure::after_report(printed, verdict(&report))
}

fn print(args: &RepairArgs, report: &RepairReport, notation: Notation, out: &mut Out) -> Result<(), Failure> {
    for problem in &report.problems {
        out.line(problem.to_string())?;
    }
    for lost in &report.lost {
        out.line(format!("lost: {}", line(lost, notation)))?;
    }
    out.line(summary(args, report))?;
    if !has_recovered(report) {
        out.line(format!("nothing was recovered: the new database in {} is empty", args.out.display()))?;
    }
    Ok(())
}

/// Whether the new database has anything of the old one, or nothing was damaged.
fn has_recovered(report: &RepairReport) -> bool {
    let is_damaged = !report.problems.is_empty() || !report.is_complete();
    // A manifest that could be read gave the new database its keyspaces and options.
    report.entries_written > 0 || report.manifest || !is_damaged
}

fn verdict(report: &RepairReport) -> Result<(), Failure> {
    if has_recovered(report) { Ok(()) } else { Err(Failure::Reported(CORRUPTION)) }
}

fn line(lost: &LostRange, notation: Notation) -> String {
    let keyspace = match &lost.keyspace {
        Some(keyspace) => format!("of keyspace \"{}\"", keyspace.escape_default()),
        None => "of any keyspace".to_string(),
    };
    let upper = match &lost.upper {
        Some(upper) => format!(" to before \"{}\"", notation.show(upper)),
        None => String::new(),
    };
    format!(
        "{} {keyspace}, keys from \"{}\"{upper}: {}",
        lost.loss.name(),
        notation.show(&lost.lower),
        lost.detail
    )
}

fn summary(args: &RepairArgs, report: &RepairReport) -> String {
    let lost = match report.lost.len() {
        0 => "no losses".to_string(),
        count => format!("{} with losses", counted(count as u64, "range", "ranges")),
    };
    format!(
        "{lost}: {} written to {}, out of {} in {} and {} in logs",
        counted(report.entries_written, "entry", "entries"),
        args.out.display(),
        counted(report.entries_read, "entry", "entries"),
        counted(report.tables, "table", "tables"),
        counted(report.log_operations, "operation", "operations"),
    )
}

fn object(args: &RepairArgs, report: &RepairReport, notation: Notation) -> Value {
    let lost: Vec<Value> = report
        .lost
        .iter()
        .map(|lost| {
            json!({
                "keyspace": lost.keyspace,
                "from": notation.show(&lost.lower),
                "to": lost.upper.as_ref().map(|upper| notation.show(upper)),
                "loss": lost.loss.name(),
                "file": lost.file.display().to_string(),
                "offset": lost.offset,
                "detail": lost.detail,
            })
        })
        .collect();
    let problems: Vec<Value> = report.problems.iter().map(json::problem).collect();
    json!({
        "schema": "shamba.repair/1",
        "out": args.out.display().to_string(),
        "complete": report.is_complete(),
        "manifest": report.manifest,
        "lost": lost,
        "problems": problems,
        "warnings": report.warnings,
        "keyspaces": report.keyspaces,
        "tables": report.tables,
        "entries_read": report.entries_read,
        "log_operations": report.log_operations,
        "entries_written": report.entries_written,
    })
}
