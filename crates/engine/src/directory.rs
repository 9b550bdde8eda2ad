//! The directory of a database: its lock, the names of its files, and the mark of a repair that is
//! not complete.
//!
//! The file [`LOCK`] is locked by one opener that writes, or by any number of openers that only
//! read. The operating system releases the lock when the process ends, for any reason.

use std::io;
use std::path::Path;

use shamba_env::{Env, FileLock, LockHeld, LockKind};
use shamba_key::LogNo;
use shamba_log::wal::parse_log_file_name;
use shamba_table::{parse_table_file_name, parse_value_file_name};
use shamba_tree::version::manifest::parse_manifest_file_name;

use crate::error::{Error, ErrorKind, Result};
use crate::writer::parse_side_file_name;

/// Name of the locked file.
pub(crate) const LOCK: &str = "LOCK";
/// Marks a directory whose repair is incomplete.
pub(crate) const REPAIRING: &str = "REPAIRING";
/// Maximum distance of a file's number from the next number that the manifest records. Every edit
/// of the manifest records it anew, and between two edits a database assigns thousands of numbers,
/// at most millions while the disk is full. Keyspaces share the numbers, and have only 32 bits.
pub(crate) const NUMBERS_AHEAD_MAX: u64 = 1 << 30;
/// Delay between two attempts to take a lock that another holder has: short compared to an open.
const LOCK_RETRY_US: u64 = 10_000;

/// Makes the names of `dir` and of every directory above it durable.
///
/// # Errors
/// `Io`. Directories that this process may not open or that cannot be synced are skipped: it did
/// not create those.
pub(crate) fn sync_names_above(env: &Env, dir: &Path) -> Result<()> {
    for parent in dir.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match env.vfs.sync_dir(parent) {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {}
            Err(error) => return Err(Error::io("sync directory", parent, error)),
        }
    }
    Ok(())
}

/// The number in the name of a database file.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    parse_log_file_name(name)
        .map(|log| log.0)
        .or_else(|| parse_table_file_name(name).map(|table| table.0))
        .or_else(|| parse_value_file_name(name).map(|values| values.0))
        .or_else(|| parse_side_file_name(name).map(|values| values.0))
        .or_else(|| parse_manifest_file_name(name))
}

/// Whether this is the name of a database file, but with a number that the database whose manifest
/// records the next number `next_id` cannot have assigned. Such a file is not the database's: it is
/// not read, not removed, and does not raise the next number.
pub(crate) fn is_stray(name: &str, next_id: u64) -> bool {
    file_number(name).is_some_and(|number| number > next_id.saturating_add(NUMBERS_AHEAD_MAX))
}

/// The numbers of the logs among these names of files, without those that are stray; `next_id` is
/// not known without a manifest, and then none is.
pub(crate) fn log_numbers<'n>(
    names: impl Iterator<Item = &'n str>,
    next_id: Option<u64>,
) -> impl Iterator<Item = LogNo> {
    let ours = names.filter(move |name| !next_id.is_some_and(|next_id| is_stray(name, next_id)));
    ours.filter_map(parse_log_file_name)
}

/// The number after those in these names of files; 1 without any. Numbers above `max` do not count.
pub(crate) fn number_after<'n>(names: impl Iterator<Item = &'n str>, max: u64) -> u64 {
    let numbers = names.filter_map(file_number).filter(|number| *number <= max);
    numbers.max().map_or(1, |number| number.saturating_add(1))
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

/// Whether a repair into `dir` is incomplete.
pub(crate) fn is_unfinished(env: &Env, dir: &Path) -> Result<bool> {
    let mark = dir.join(REPAIRING);
    env.vfs.exists(&mark).map_err(|error| Error::io("look for", &mark, error))
}

/// The error for opening a directory with an incomplete repair.
pub(crate) fn unfinished(dir: &Path) -> Error {
    let detail = "the repair that created this database did not finish: repair the original again";
    Error::corruption(&dir.join(REPAIRING), 0, "unfinished repair", detail)
}
