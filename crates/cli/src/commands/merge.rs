//! `shamba merge DB KEY OPERAND`: writes an operand, from which the keyspace's merge operator makes
//! the value of the key.
//!
//! An operator is a property of the keyspace and stays for ever, so no command chooses one by
//! itself: without `--merge-operator` the database and its keyspace must exist and have one.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use shamba::ErrorKind;

use super::argument;
use crate::exit::Failure;
use crate::keyspace::{CreatedKeyspace, existing};
use crate::load::KEY_BYTES_MAX;
use crate::number;
use crate::open;
use crate::options::EngineOptions;
use crate::text::Notation;

const OPERATORS: &str = "\
    Without --merge-operator the database and the keyspace must exist, and have a merge operator. Example: `shamba merge DB visits 1 --number --merge-operator shamba.add-u64`, then `shamba merge DB visits 1 --number` \
    and `shamba get DB visits --number`. Operands and values of shamba.add-u64 and shamba.add-i64 are 8 bytes in \
    little-endian order, operands of shamba.set-bit are 4 bytes; --number writes them as decimal numbers.";

/// Hint for an operand that a merge operator of numbers refuses.
const HINT_NUMBER: &str = "with --number OPERAND is a decimal number";

/// Arguments of `merge`.
#[derive(Args)]
#[command(after_help = OPERATORS)]
pub struct MergeArgs {
    /// The database; created if missing and --merge-operator is given
    db: PathBuf,
    /// The key
    key: OsString,
    /// The operand, at most 65,535 bytes
    #[arg(allow_negative_numbers = true)]
    operand: OsString,
    #[command(flatten)]
    keyspace: CreatedKeyspace,
    /// Key and OPERAND are hex; with --number only the key
    #[arg(long)]
    hex: bool,
    /// OPERAND is a decimal number
    #[arg(long)]
    number: bool,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &MergeArgs) -> Result<(), Failure> {
    let notation = Notation::from_switch(args.hex);
    let key = argument("KEY", &args.key, notation)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(Failure::Usage(format!("KEY has {} bytes; the maximum is {KEY_BYTES_MAX}", key.len())));
    }
    args.keyspace.check()?;
    let operand = |operator: &str| match args.number {
        true => number::operand(operator, &args.operand.to_string_lossy())
            .map_err(|reason| Failure::Usage(format!("OPERAND: {reason}"))),
        false => argument("OPERAND", &args.operand, notation),
    };
    let is_number = |operator: &str| number::operand(operator, "0").is_ok();
    let advised = |error: shamba::Error, operator: &str| match error.kind() {
        ErrorKind::Invalid if is_number(operator) && !args.number => {
            Failure::Advised(error, HINT_NUMBER.into())
        }
        _ => error.into(),
    };
    match (args.keyspace.merge_operator(), args.keyspace.options()) {
        (Some(operator), Some(options)) => {
            let operand = operand(operator)?;
            options.check_operand(&key, &operand).map_err(|error| advised(error, operator))?;
            let db = open::create_for(&args.db, &args.engine, &args.keyspace)?;
            open::closing(db, |db| {
                args.keyspace.of(db)?.merge(key, operand).map_err(|error| advised(error, operator))
            })
        }
        (_, options) => {
            let db = open::existing(&args.db, &args.engine)?;
            open::closing(db, |db| {
                let keyspace = existing(db, &args.db, args.keyspace.name())?;
                let operator = keyspace.merge_operator().ok_or_else(|| no_operator(keyspace.name()))?;
                let operand = operand(&operator)?;
                if let Some(options) = options {
                    db.keyspace_with(keyspace.name(), options)?;
                }
                keyspace.merge(key, operand).map_err(|error| advised(error, &operator))
            })
        }
    }
}

fn no_operator(keyspace: &str) -> Failure {
    Failure::Usage(format!(
        "keyspace {keyspace:?} has no merge operator; --merge-operator gives it one, for ever: {}",
        shamba::merge::NAMES.join(", ")
    ))
}
