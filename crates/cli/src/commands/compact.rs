//! `shamba compact DB`: compacts each keyspace, or one of them, into one run; with a range, only
//! the tables that overlap it; with `--filters`, only rewrites tables with stale filters.

use std::path::PathBuf;

use clap::Args;
use shamba::{Db, PrefixRange};

use super::span::{Span, SpanOptions};
use crate::exit::Failure;
use crate::keyspace::{self, DEFAULT, parse_name};
use crate::open;
use crate::options::EngineOptions;
use crate::text::Notation;

/// Arguments of `compact`.
#[derive(Args)]
pub struct CompactArgs {
    /// The database
    db: PathBuf,
    /// Compact only this keyspace (default: all; with a range, the keyspace default)
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    keyspace: Option<String>,
    #[command(flatten)]
    span: SpanOptions,
    /// Keys are given in hex
    #[arg(long)]
    hex: bool,
    /// Compact nothing; only rewrite the tables with stale filters
    #[arg(long, conflicts_with_all = ["keyspace", "from", "to", "prefix"])]
    filters: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &CompactArgs) -> Result<(), Failure> {
    let span = args.span.span(Notation::from_switch(args.hex))?;
    let db = open::existing(&args.db, &args.engine)?;
    open::closing(db, |db| compact(args, db, span))
}

fn compact(args: &CompactArgs, db: &Db, span: Span) -> Result<(), Failure> {
    let named = |name: &str| keyspace::existing(db, &args.db, name);
    if args.filters {
        db.rewrite_filters()?;
    } else if args.span.is_given() {
        let keyspace = named(args.keyspace.as_deref().unwrap_or(DEFAULT))?;
        match span {
            Span::Prefix(prefix) => keyspace.compact_range(PrefixRange::of(prefix)),
            Span::Bounds(from, to) => keyspace.compact_range((from, to)),
        }?;
    } else if let Some(name) = &args.keyspace {
        named(name)?.compact()?;
    } else {
        db.compact()?;
    }
    Ok(())
}
