//! `shamba dump DB`: every live pair in key order, lower-case hex, tab, hex.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::exit::Failure;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::Out;
use crate::text::hex;

/// Arguments of `dump`.
#[derive(Args)]
pub struct DumpArgs {
    /// The database
    db: PathBuf,
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: ReaderOptions,
}

pub fn run(args: &DumpArgs, out: &mut Out) -> Result<(), Failure> {
    let db = open::reader(&args.db, &args.reader)?;
    for entry in db.iter() {
        let (key, value) = entry?;
        let (key, value) = (hex(&key), hex(&value));
        if args.json {
            out.json(&json!({ "schema": "shamba.dump/1", "key_hex": key, "value_hex": value }))?;
        } else {
            out.line(format!("{key}\t{value}"))?;
        }
    }
    Ok(())
}
