//! `--keyspace NAME`: the keyspace that a command reads or writes, declared once for every command
//! that takes keys.
//!
//! A misspelt name must not create a keyspace: only `put` and `load` (and writing lines of `batch`)
//! create one, and commands that are given a merge operator for it. Every other command fails,
//! names the keyspace it was asked for and lists those that exist.

use std::path::Path;

use clap::Args;
use shamba::{Db, Keyspace, KeyspaceOptions};

use crate::exit::Failure;

/// Name of the keyspace that every database has, and the default of all commands.
pub const DEFAULT: &str = "default";

/// The option of commands that use a keyspace only if it exists.
#[derive(Args, Clone, Debug)]
pub struct ExistingKeyspace {
    /// The keyspace to use; it must exist (only put, load, merge with --merge-operator and writing
    /// lines of batch create one)
    #[arg(long, value_name = "NAME", default_value = DEFAULT)]
    keyspace: String,
}

/// The option of commands that create a missing keyspace.
#[derive(Args, Clone, Debug)]
pub struct CreatedKeyspace {
    /// The keyspace to write to; created if it is missing
    #[arg(long, value_name = "NAME", default_value = DEFAULT)]
    keyspace: String,
    /// Merge operator of this keyspace, which merge needs; the database records it, so it is given
    /// once: shamba.add-u64, shamba.add-i64, shamba.max, shamba.min, shamba.set-bit or
    /// shamba.append:HEX (HEX: the separator's bytes, may be empty)
    #[arg(long, value_name = "NAME", value_parser = operator)]
    merge_operator: Option<Operator>,
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
    pub fn options(&self) -> Option<&KeyspaceOptions> {
        self.merge_operator.as_ref().map(|operator| &operator.options)
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
        "--keyspace: {} has no keyspace {name:?}; it has {}; put and load create a keyspace",
        path.display(),
        known.join(", ")
    )))
}
