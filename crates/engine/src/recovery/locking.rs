//! The lock of a database directory, and the check whether a database may be created in it.
//!
//! The file [`LOCK`] is locked by one opener that writes, or by any number of openers that only
//! read. The operating system releases the lock when the process ends, for any reason.
//!
//! Not here: the steps of an open under the lock ([`super`]).

use std::io;
use std::path::Path;

use shamba_env::{DirEntry, Env, FileLock, LockHeld, LockKind};

use super::file_number;
use crate::builder::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::repair::{REPAIRING, is_unfinished, unfinished};
use shamba_tree::version::current::{CURRENT, CURRENT_TEMPORARY};

/// Name of the locked file.
pub(crate) const LOCK: &str = "LOCK";
/// Delay between two attempts to take a lock that another holder has: short compared to an open.
const LOCK_RETRY_US: u64 = 10_000;

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

/// Locks the database in `dir`; retries for `timeout_ms` while another holder has the lock.
///
/// # Errors
/// `Locked` if another holder has the lock, `ReadOnly` if the file system does not permit one,
/// `Io`.
pub(crate) fn take_lock(env: &Env, dir: &Path, kind: LockKind, timeout_ms: u64) -> Result<Box<dyn FileLock>> {
    let path = dir.join(LOCK);
    let until_us = env.clock.now_us().saturating_add(timeout_ms.saturating_mul(1_000));
    loop {
        let error = match env.vfs.lock(&path, kind) {
            Ok(lock) => return Ok(lock),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                let left_us = until_us.saturating_sub(env.clock.now_us());
                if left_us == 0 {
                    return Err(locked(dir, &error, timeout_ms));
                }
                env.clock.sleep_us(left_us.min(LOCK_RETRY_US));
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                return Err(Error::with_source(
                    ErrorKind::ReadOnly,
                    format!("lock {}", path.display()),
                    error,
                ));
            }
            _ => return Err(Error::io("lock", &path, error)),
        }
    }
}

/// Builds the error for a lock that is taken: the holder according to `error`, and how to release
/// it.
pub(crate) fn locked(dir: &Path, error: &io::Error, waited_ms: u64) -> Error {
    let is_own = LockHeld::of(error).is_some_and(|held| held.by_this_process);
    let holder = match is_own {
        true => {
            "open in this process already: close that database, or drop every handle of it (clones, keyspaces, \
             snapshots, batches, iterators, cursors)"
        }
        false => "in use by another process: wait until it closes the database, or stop it",
    };
    let waited = if waited_ms > 0 { format!("; waited {waited_ms} ms") } else { String::new() };
    Error::new(ErrorKind::Locked, format!("{} is {holder}{waited}", dir.display()))
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
