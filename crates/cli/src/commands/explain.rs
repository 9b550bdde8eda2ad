//! `shamba explain DB KEY`: prints one lookup, step by step; with `--prefix`, the runs that a scan
//! of a prefix reads.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::argument;
use crate::exit::Failure;
use crate::json;
use crate::keyspace::{ExistingKeyspace, show_fifo};
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;
use crate::text::Notation;

/// Arguments of `explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// The database
    db: PathBuf,
    /// The key, or with --prefix the prefix
    key: OsString,
    /// Print which runs a scan of the keys that begin with KEY reads, and which it leaves out
    #[arg(long)]
    prefix: bool,
    #[command(flatten)]
    keyspace: ExistingKeyspace,
    /// The key is hex
    #[arg(long)]
    hex: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

pub fn run(args: &ExplainArgs, out: &mut Out) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let key = argument("KEY", &args.key, notation)?;
    let db = open::reader(&args.db, &args.reader)?;
    let keyspace = args.keyspace.of(&db, &args.db)?;
    if args.prefix {
        let explanation = keyspace.explain_prefix(&key)?;
        if args.json {
            return out.json(&json::prefix_explanation(&explanation, notation));
        }
        return out.text(explanation.to_string());
    }
    let explanation = keyspace.explain(&key)?;
    let fifo = keyspace.fifo();
    if args.json {
        let mut object = json::explanation(&explanation, notation);
        object["fifo"] = fifo.as_ref().map_or(Value::Null, json::fifo);
        return out.json(&object);
    }
    out.text(explanation.to_string())?;
    match fifo {
        Some(fifo) => out.line(format!("FIFO      the oldest tables are dropped: {}", show_fifo(&fifo))),
        None => Ok(()),
    }
}
