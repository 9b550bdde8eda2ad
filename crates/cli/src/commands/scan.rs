//! `shamba scan DB`: prints entries in key order, one per line: key, tab, value.
//!
//! `shamba load DB - --format tsv` loads the output again.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shamba::{Result as EngineResult, Slice};

use super::span::{Span, SpanOptions};
use crate::exit::Failure;
use crate::keyspace::ExistingKeyspace;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;
use crate::text::Notation;

/// Arguments of `scan`.
#[derive(Args)]
pub struct ScanArgs {
    /// The database
    db: PathBuf,
    #[command(flatten)]
    keyspace: ExistingKeyspace,
    #[command(flatten)]
    span: SpanOptions,
    /// Maximum number of entries
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_limit)]
    limit: Option<u64>,
    /// Reverse order; --from is the smaller key here, too
    #[arg(long)]
    reverse: bool,
    /// Keys and values are hex
    #[arg(long)]
    hex: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

fn parse_limit(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "the limit must be a whole number, 0 or more".into())
}

pub fn run(args: &ScanArgs, out: &mut Out) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let span = args.span.span(notation)?;
    let db = open::reader(&args.db, &args.reader)?;
    let keyspace = args.keyspace.of(&db, &args.db)?;
    let iter = match span {
        Span::Prefix(prefix) => keyspace.prefix(prefix),
        Span::Bounds(from, to) => keyspace.range((from, to)),
    };
    if args.reverse { print(iter.rev(), args, notation, out) } else { print(iter, args, notation, out) }
}

fn print(
    entries: impl Iterator<Item = EngineResult<(Slice, Slice)>>,
    args: &ScanArgs,
    notation: Notation,
    out: &mut Out,
) -> Result<(), Failure> {
    let limit = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    for entry in entries.take(limit) {
        let (key, value) = entry?;
        let (key, value) = (notation.show(&key), notation.show(&value));
        if args.json {
            out.json(&json!({ "schema": "shamba.entry/1", "key": key, "value": value }))?;
        } else {
            out.line(format!("{key}\t{value}"))?;
        }
    }
    Ok(())
}
