//! `shamba put DB KEY VALUE`: stores a value, given as an argument, a file or standard input.
//!
//! The engine takes a value as a whole, so a file is read completely before the database is opened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use shamba::WriteOptions;

use super::argument;
use crate::duration::parse_duration;
use crate::exit::Failure;
use crate::keyspace::CreatedKeyspace;
use crate::load::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::open;
use crate::options::EngineOptions;
use crate::text::Notation;

/// Usage with both ways to give the value; clap's generated line lacks the second.
const USAGE: &str = "shamba put [OPTIONS] <DB> <KEY> <VALUE>
       shamba put [OPTIONS] <DB> <KEY> --value-file <PATH|->";

/// Arguments of `put`.
#[derive(Args)]
#[command(override_usage = USAGE)]
pub struct PutArgs {
    /// The database; created if missing
    db: PathBuf,
    /// The key
    key: OsString,
    /// The value
    #[arg(required_unless_present = "value_file")]
    value: Option<OsString>,
    /// Read the value's raw bytes from a file; `-` is standard input
    #[arg(long, value_name = "PATH", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    /// How long the value lives: a number with ms, s, m, h or d, or `ever` [default: as long as the
    /// keyspace says]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    keyspace: CreatedKeyspace,
    /// Key and VALUE are hex
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &PutArgs) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let key = argument("KEY", &args.key, notation)?;
    let value = match (&args.value_file, &args.value) {
        (Some(path), _) => value_of_file(path)?,
        (None, Some(text)) => argument("VALUE", text, notation)?,
        (None, None) => return Err(Failure::Usage("VALUE or --value-file is required".into())),
    };
    // Errors in the arguments are reported before a database or a keyspace is created.
    if key.len() > KEY_BYTES_MAX {
        return Err(Failure::Usage(format!("KEY has {} bytes; the maximum is {KEY_BYTES_MAX}", key.len())));
    }
    args.keyspace.check()?;
    let db = open::create_for(&args.db, &args.engine, &args.keyspace)?;
    let mut options = WriteOptions::new();
    options.time_to_live = args.ttl;
    open::closing(db, |db| Ok(args.keyspace.of(db)?.put_with(key, value, options)?))
}

/// Reads the value from a file, or from standard input.
fn value_of_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        return bounded("standard input", &mut io::stdin().lock());
    }
    let name = path.display().to_string();
    let mut file = File::open(path).map_err(|error| Failure::io(&name, error))?;
    bounded(&name, &mut file)
}

/// Reads `input` up to the maximum value length; longer input is an error, because a device may
/// never end.
fn bounded(name: &str, input: &mut dyn Read) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let most = VALUE_BYTES_MAX as u64;
    input.take(most + 1).read_to_end(&mut value).map_err(|error| Failure::io(name, error))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::Data(format!("{name}: the maximum value size is {} MiB", most >> 20)));
    }
    Ok(value)
}
