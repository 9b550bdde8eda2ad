//! `--keyspace NAME`: the keyspace that a command reads or writes, declared once for every command
//! that takes keys.
//!
//! A misspelt name must not create a keyspace: only `put` and `load` (and writing lines of `batch`)
//! create one. Every other command fails, names the keyspace it was asked for and lists those that
//! exist.

use std::path::Path;

use clap::Args;
use shamba::{Db, Keyspace};

use crate::exit::Failure;

/// Name of the keyspace that every database has, and the default of all commands.
pub const DEFAULT: &str = "default";

/// The option of commands that use a keyspace only if it exists.
#[derive(Args, Clone, Debug)]
pub struct ExistingKeyspace {
    /// The keyspace to use; it must exist (only put, load and writing lines of batch create one)
    #[arg(long, value_name = "NAME", default_value = DEFAULT)]
    keyspace: String,
}

/// The option of commands that create a missing keyspace.
#[derive(Args, Clone, Debug)]
pub struct CreatedKeyspace {
    /// The keyspace to write to; created if it is missing
    #[arg(long, value_name = "NAME", default_value = DEFAULT)]
    keyspace: String,
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
