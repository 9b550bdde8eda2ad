//! The first step of an open: the lock of the directory, and the check whether a database may be
//! created in it.
//!
//! Not here: the lock itself ([`crate::directory`]); the steps of an open under the lock
//! ([`super`]).

use std::path::Path;

use shamba_env::{DirEntry, Env, FileLock, LockKind};

use crate::database::builder::Builder;
use crate::directory::{LOCK, REPAIRING, file_number, is_unfinished, take_lock, unfinished};
use crate::error::{Error, Result};
use shamba_tree::version::current::{CURRENT, CURRENT_TEMPORARY};

/// Takes the lock; creates the directory if the options allow it.
pub(super) fn lock_directory(env: &Env, dir: &Path, builder: &Builder) -> Result<Box<dyn FileLock>> {
    let exists = env.vfs.exists(dir).map_err(|error| Error::io("open", dir, error))?;
    let given = builder.given();
    let may_create = !given.read_only && given.create_if_missing;
    if !exists {
        if !may_create {
            return Err(Error::no_database(dir, "the directory does not exist"));
        }
        env.vfs.create_dir_all(dir).map_err(|error| Error::io("create directory", dir, error))?;
    } else {
        // Fails, for example, if a file is in the place of the directory.
        let entries = env.vfs.list(dir).map_err(|error| Error::io("open", dir, error))?;
        if entries.iter().any(|entry| entry.name == REPAIRING) {
            return Err(unfinished(dir));
        }
        if may_create {
            refuse_foreign(dir, &entries)?;
        }
    }
    let kind = if given.read_only { LockKind::Shared } else { LockKind::Exclusive };
    let timeout_ms = u64::try_from(given.open_timeout.as_millis()).unwrap_or(u64::MAX);
    let lock = take_lock(env, dir, kind, timeout_ms)?;
    // A repair may have begun since the first check and stopped half-way; only the lock holder can
    // be sure that it did not.
    if is_unfinished(env, dir)? { Err(unfinished(dir)) } else { Ok(lock) }
}

/// Checks that `dir` may receive a new database: it must be empty, or hold only the files of an
/// incomplete creation. Otherwise a foreign file might have the name of a database file.
fn refuse_foreign(dir: &Path, entries: &[DirEntry]) -> Result<()> {
    if entries.iter().any(|entry| entry.name == CURRENT) {
        return Ok(());
    }
    // The info log begins after `CURRENT` is durable, so without `CURRENT` it is not a database
    // file either.
    let is_ours = |entry: &&DirEntry| {
        let name = entry.name.as_str();
        if entry.is_dir {
            // The root directory of a file system has one.
            return name == "lost+found";
        }
        name == LOCK || name == CURRENT_TEMPORARY || file_number(name).is_some()
    };
    match entries.iter().find(|entry| !is_ours(entry)) {
        None => Ok(()),
        Some(foreign) => Err(Error::invalid(format!(
            "{} contains {:?} and no database: a new database needs an empty directory",
            dir.display(),
            foreign.name
        ))),
    }
}
