//! `shamba dump DB`: prints every live pair in key order as lower-case hex, tab, hex.
//!
//! Prints one keyspace; with `--all`, every keyspace in the order of their names, each after a line
//! `# keyspace NAME`. All are read at one sequence number.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shamba::Snapshot;

use crate::exit::Failure;
use crate::json;
use crate::keyspace::{DEFAULT, existing, parse_name};
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;
use crate::text::{escape, hex};

const FORMAT: &str = "\
    Output: one line for each live pair, in key order: the key in lower-case hex, a tab, the value in lower-case hex. \
    `shamba load DB - --hex` reads it. A third column has the time at which the value expires, in milliseconds since \
    1970-01-01 UTC, if it does. With --all each keyspace, also an empty one, begins with a line \"# keyspace \
    NAME\", in the order of the names; in NAME unprintable bytes and the backslash are escaped as \\xNN. No other line \
    begins with \"#\". Merge operators and options are not printed. `shamba checkpoint` copies everything.";

/// Arguments of `dump`.
#[derive(Args)]
#[command(after_help = FORMAT)]
pub struct DumpArgs {
    /// The database
    db: PathBuf,
    /// The keyspace to print; it must exist (default: default)
    #[arg(long, value_name = "NAME", conflicts_with = "all", value_parser = parse_name)]
    keyspace: Option<String>,
    /// Print every keyspace, each under a line "# keyspace NAME"
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

pub fn run(args: &DumpArgs, out: &mut Out) -> Result<(), Failure> {
    let db = open::reader(&args.db, &args.reader)?;
    let names = match &args.keyspace {
        _ if args.all => db.keyspaces(),
        Some(name) => vec![name.clone()],
        None => vec![DEFAULT.to_string()],
    };
    let snapshot = db.snapshot();
    for name in names {
        let keyspace = existing(&db, &args.db, &name)?;
        if args.all && !args.json {
            out.line(format!("# keyspace {}", escape(name.as_bytes())))?;
        }
        pairs(&snapshot.keyspace(&keyspace), &name, args.json, out)?;
    }
    Ok(())
}

/// Prints the pairs of one keyspace.
fn pairs(snapshot: &Snapshot, keyspace: &str, json: bool, out: &mut Out) -> Result<(), Failure> {
    for entry in snapshot.iter() {
        let (key, value) = entry?;
        let expiry_ms = snapshot.expiry_ms_of(&key)?;
        let (key, value) = (hex(&key), hex(&value));
        if json {
            let mut object = json!({
                "schema": "shamba.dump/1", "keyspace": keyspace, "key_hex": key, "value_hex": value,
            });
            if let Some(expiry_ms) = expiry_ms {
                object = json::with(object, json!({ "expiry_ms": expiry_ms }));
            }
            out.json(&object)?;
        } else {
            let expiry = expiry_ms.map_or_else(String::new, |expiry_ms| format!("\t{expiry_ms}"));
            out.line(format!("{key}\t{value}{expiry}"))?;
        }
    }
    Ok(())
}
