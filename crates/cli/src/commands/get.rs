//! `shamba get DB KEY`: prints the value and a newline, or exits with 1; with `--raw` prints only
//! the value's bytes, with `--number` the number that they are, with `--ttl` how long it still
//! lives.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::argument;
use crate::duration::print_duration;
use crate::exit::Failure;
use crate::keyspace::ExistingKeyspace;
use crate::number;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;
use crate::text::Notation;

/// Arguments of `get`.
#[derive(Args)]
pub struct GetArgs {
    /// The database
    db: PathBuf,
    /// The key
    key: OsString,
    #[command(flatten)]
    keyspace: ExistingKeyspace,
    /// Key and value are hex; with --raw or --number only the key
    #[arg(long)]
    hex: bool,
    /// Print a value of 8 bytes as a decimal number (little-endian; signed if the keyspace has the
    /// merge operator shamba.add-i64)
    #[arg(long, conflicts_with = "raw")]
    number: bool,
    /// Print only the raw bytes of the value
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print how long the value still lives, such as 29500ms, or `ever`, in place of the value; in
    /// JSON, next to it
    #[arg(long, conflicts_with_all = ["raw", "number"])]
    ttl: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

pub fn run(args: &GetArgs, out: &mut Out) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let key = argument("KEY", &args.key, notation)?;
    let db = open::reader(&args.db, &args.reader)?;
    let keyspace = args.keyspace.of(&db, &args.db)?;
    // The value and its time are those of one moment.
    let snapshot = db.snapshot();
    let at = snapshot.keyspace(&keyspace);
    let value = at.get(&key)?;
    let time_left = if args.ttl { at.time_to_live_of(&key)? } else { None };
    if args.raw {
        return match &value {
            Some(value) => out.bytes(value),
            None => Err(Failure::Reported(1)),
        };
    }
    let shown = match &value {
        Some(value) if args.number => {
            let number = number::value(keyspace.merge_operator().as_deref(), value);
            Some(number.map(Cow::Owned).map_err(Failure::Data)?)
        }
        Some(value) => Some(notation.show(value)),
        None => None,
    };
    if args.json {
        let mut object = json!({
            "schema": "shamba.get/1", "key": notation.show(&key), "found": shown.is_some(), "value": shown,
        });
        if args.ttl {
            let left_ms = time_left.filter(|left| *left != Duration::MAX).map(|left| left.as_millis() as u64);
            object["ttl_ms"] = json!(left_ms);
        }
        out.json(&object)?;
    } else if let Some(left) = time_left {
        out.line(print_duration(left))?;
    } else if let Some(shown) = &shown {
        out.line(shown)?;
    }
    if shown.is_some() { Ok(()) } else { Err(Failure::Reported(1)) }
}
