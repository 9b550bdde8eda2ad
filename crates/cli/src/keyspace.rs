//! `--keyspace NAME`: the keyspace that a command reads or writes, declared once for every command
//! that takes keys.
//!
//! A misspelt name must not create a keyspace: only `put` and `load` (and writing lines of `batch`)
//! create one, and commands that are given options for it. Every other command fails,
//! names the keyspace it was asked for and lists those that exist.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use shamba::options::find;
use shamba::{Db, Fifo, Keyspace, KeyspaceOptions, Prefix};

use crate::duration::{parse_duration, show_duration};
use crate::exit::Failure;
use crate::options::resolved;
use crate::sizes::{parse_size, show_size};
use crate::text::Notation;

/// Name of the keyspace that every database has, and the default of all commands.
pub const DEFAULT: &str = "default";

/// The keyspace name that `text` notates: as in keys, `\xNN` stands for a byte.
///
/// # Errors
/// The reason, if it is not such a name.
pub fn name_of(text: &[u8]) -> Result<String, String> {
    let bytes = Notation::Text.parse(text)?.into_owned();
    String::from_utf8(bytes).map_err(|_| "the name of a keyspace must be UTF-8".to_owned())
}

/// [`name_of`] an argument.
pub fn parse_name(text: &str) -> Result<String, String> {
    name_of(text.as_bytes())
}

/// The option of commands that use a keyspace only if it exists.
#[derive(Args, Clone, Debug)]
pub struct ExistingKeyspace {
    /// The keyspace to use; it must exist (only put, load, merge with --merge-operator and writing
    /// lines of batch create one)
    #[arg(long, value_name = "NAME", default_value = DEFAULT, value_parser = parse_name)]
    keyspace: String,
}

/// The option of commands that create a missing keyspace.
#[derive(Args, Clone, Debug)]
pub struct CreatedKeyspace {
    /// The keyspace to write to; created if it is missing
    #[arg(long, value_name = "NAME", default_value = DEFAULT, value_parser = parse_name)]
    keyspace: String,
    /// Merge operator of this keyspace, which merge needs; the database records it, so it is given
    /// once: shamba.add-u64, shamba.add-i64, shamba.max, shamba.min, shamba.set-bit or
    /// shamba.append:HEX (HEX: the separator's bytes, may be empty)
    #[arg(long, value_name = "NAME", value_parser = operator)]
    merge_operator: Option<Operator>,
    /// Make it a FIFO keyspace, for logs and caches: the oldest tables are dropped while all take
    /// more than this. Recorded, with --fifo-age; each alone is the only limit
    #[arg(long, value_name = "SIZE", value_parser = fifo_bytes, conflicts_with = "merge_operator")]
    fifo_bytes: Option<u64>,
    /// The same for tables older than this: a number with ms, s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = fifo_age, conflicts_with = "merge_operator")]
    fifo_age: Option<Duration>,
    /// Compact a FIFO keyspace into levels again
    #[arg(long, conflicts_with_all = ["fifo_bytes", "fifo_age"])]
    no_fifo: bool,
    /// Prefixes that filters hold, so that scans of one prefix leave out tables: fixed:BYTES,
    /// delimited:HH (the delimiter in hex), capped:BYTES, or none. Recorded
    #[arg(long, value_name = "KIND", value_parser = extractor)]
    prefix_extractor: Option<Extractor>,
    /// An option that the keyspace has in place of the database's: compression,
    /// compression-dictionary, bits-per-key, block-size, file-size, policy, value-threshold or
    /// value-space; the value database gives the database's again. Recorded; may be given several
    /// times
    #[arg(long = "keyspace-option", value_name = "NAME=VALUE", value_parser = own_option)]
    own_options: Vec<(String, String)>,
}

fn own_option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    let value = match find(name).filter(|_| value != "database") {
        Some(option) => resolved(option, value)?,
        None => value.to_owned(),
    };
    let checked = KeyspaceOptions::new().set_option(name, &value);
    checked.map_err(|error| error.context().to_owned())?;
    Ok((name.to_owned(), value))
}

/// A prefix extractor, or none.
#[derive(Clone, Copy, Debug)]
struct Extractor(Option<Prefix>);

fn extractor(text: &str) -> Result<Extractor, String> {
    let prefix = if text == "none" { None } else { Some(text.parse()?) };
    Ok(Extractor(prefix))
}

fn fifo_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("the minimum is 1 byte".into()),
        bytes => Ok(bytes),
    }
}

fn fifo_age(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::MAX => Err("ever is no limit; --no-fifo ends it".into()),
        Duration::ZERO => Err("the minimum is 1ms".into()),
        age => Ok(age),
    }
}

/// The limits of a FIFO keyspace, such as "1.0 GiB, 7d".
pub fn show_fifo(fifo: &Fifo) -> String {
    let limits = [fifo.max_bytes().map(show_size), fifo.max_age().map(show_duration)];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A built-in merge operator.
#[derive(Clone, Debug)]
struct Operator {
    name: String,
    options: KeyspaceOptions,
}

fn operator(name: &str) -> Result<Operator, String> {
    let options = KeyspaceOptions::new().merge_operator_named(name);
    let options = options.map_err(|error| error.context().to_owned())?;
    Ok(Operator { name: name.to_owned(), options })
}

impl ExistingKeyspace {
    /// The keyspace of `db`, the database at `path`.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none of that name.
    pub fn of(&self, db: &Db, path: &Path) -> Result<Keyspace, Failure> {
        existing(db, path, &self.keyspace)
    }
}

impl CreatedKeyspace {
    /// Checks the name, so that an invalid one is rejected before a database is created for it.
    ///
    /// # Errors
    /// [`Failure::Usage`] with the reason of [`Keyspace::check_name`].
    pub fn check(&self) -> Result<(), Failure> {
        Keyspace::check_name(&self.keyspace)
            .map_err(|error| Failure::Usage(format!("--keyspace: {}", error.context())))
    }

    /// The name that was given, or the default one.
    pub fn name(&self) -> &str {
        &self.keyspace
    }

    /// The name of the merge operator that was given.
    pub fn merge_operator(&self) -> Option<&str> {
        self.merge_operator.as_ref().map(|operator| operator.name.as_str())
    }

    /// The options that were given for the keyspace.
    pub fn options(&self) -> Option<KeyspaceOptions> {
        let fifo = match (self.fifo_bytes, self.fifo_age) {
            (Some(bytes), Some(age)) => Some(Fifo::bytes(bytes).with_age(age)),
            (Some(bytes), None) => Some(Fifo::bytes(bytes)),
            (None, age) => age.map(Fifo::age),
        };
        let has_tree_options = self.prefix_extractor.is_some() || !self.own_options.is_empty();
        if self.merge_operator.is_none() && fifo.is_none() && !self.no_fifo && !has_tree_options {
            return None;
        }
        let mut options =
            self.merge_operator.as_ref().map_or_else(KeyspaceOptions::new, |given| given.options.clone());
        if let Some(fifo) = fifo {
            options = options.fifo(fifo);
        }
        if self.no_fifo {
            options = options.no_fifo();
        }
        for (name, value) in &self.own_options {
            // They were checked as the command line was read.
            options = options.clone().set_option(name, value).unwrap_or(options);
        }
        Some(match self.prefix_extractor {
            Some(Extractor(Some(prefix))) => options.prefix(prefix),
            Some(Extractor(None)) => options.without_prefix(),
            None => options,
        })
    }

    /// The keyspace in `db`, created if it is missing.
    ///
    /// # Errors
    /// Errors of [`Db::keyspace`].
    pub fn of(&self, db: &Db) -> Result<Keyspace, Failure> {
        Ok(db.keyspace(&self.keyspace)?)
    }
}

/// The keyspace `name` of `db`, the database at `path`, which must exist.
///
/// # Errors
/// [`Failure::Usage`] that lists the names which exist, if `name` is not one of them.
pub fn existing(db: &Db, path: &Path, name: &str) -> Result<Keyspace, Failure> {
    if let Some(keyspace) = db.get_keyspace(name)? {
        return Ok(keyspace);
    }
    let known: Vec<String> = db.keyspaces().iter().map(|known| format!("{known:?}")).collect();
    Err(Failure::Usage(format!(
        "--keyspace: {} has no keyspace {name:?}; it has {}; put, load and batch create a keyspace",
        path.display(),
        known.join(", ")
    )))
}
