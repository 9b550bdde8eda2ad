//! Repair: creates a new database from everything that a damaged one still holds.
//!
//! The original is only read; its lock is taken as by an open for reading. A repair takes these
//! steps in order. It looks for [the tables in use](found): as the manifest states, or, if that is
//! lost, all tables, according to their own properties. It replays the [logs](logs) up to their
//! first damage. It creates a new database with the old settings and keyspaces. Into it, it writes,
//! per keyspace, the [newest readable version](merge) of every key that no readable tombstone
//! deletes; of a key with operands of a merge operator also these. Losses are reported as ranges of
//! keys ([`report`]).
//!
//! The new database is valid once it is complete. Until then its directory contains a file
//! [`REPAIRING`], with which it does not open. A repair into the directory of an incomplete one
//! first removes the files of that one.
//!
//! Besides the new database, these are held in memory:
//! - log operations and searched files, up to the limit that the caller sets;
//! - for each table its footer, its top index and its range tombstones;
//! - one data block and the list of one partition for each table that overlaps the current position
//!   of the merge;
//! - the operands of one key, as in a reader.
//!
//! Nothing is invented: every value was written under its key in its keyspace. An older or a
//! deleted value can appear only within a range that is reported as lost, where the newer version
//! or the tombstone is damaged.
//!
//! Not here: reading a damaged table (crate `shamba-table`, `salvage`); which records of a log are
//! valid ([`shamba_log::wal::replay`]).

mod chain;
mod found;
mod logs;
mod merge;
mod report;
#[cfg(test)]
mod tests;
mod values;

pub use self::report::{Loss, LostRange, RepairReport};

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use shamba_env::{DirEntry, Env, FileLock, LockKind, write_file_synced};
use shamba_key::SeqNo;

use self::found::Found;
use self::logs::LogContent;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::database::Db;
use crate::directory::{
    LOCK, REPAIRING, file_number, is_unfinished, sync_names_above, take_lock, unfinished,
};
use crate::error::{Error, ErrorKind, Result};
use crate::options::settings::Settings;
use crate::statistics::file::{STATISTICS, STATISTICS_TEMPORARY};
use shamba_key::LogNo;
use shamba_log::wal::WalWriter;
use shamba_tree::version::Version;
use shamba_tree::version::current::{CURRENT, CURRENT_TEMPORARY};
use shamba_tree::version::manifest::state::KeyspaceState;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};

/// Default memory limit of a repair for logs and searched files, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// Distance of the new database's numbers of files from those of the original. The epoch of a
/// position in a stream of changes is the number of a log. A position of the original must not be
/// one of the new database, and the newest numbers of the original may be lost.
const NUMBERS_BETWEEN: u64 = 1 << 20;

/// Creates a new database in `target` from everything readable of the one in `dir`, which is not
/// changed.
///
/// # Errors
/// - `Invalid`: `target` lies in `dir`, also through a link or `..`, or holds anything but the
///   files of an incomplete repair.
/// - `Io`: `dir` holds no database, or a call fails.
/// - `Locked`: the original is open for writing, or `target` is open.
/// - `Unsupported`: an undamaged file is of a newer version.
/// - `Corruption`: `dir` is itself an incomplete repair.
/// - Errors of writing the new database.
///
/// After an error the files written so far remain; they do not open as a database.
pub fn repair(env: &Env, dir: &Path, target: &Path) -> Result<RepairReport> {
    repair_within(env, dir, target, MEMORY_BYTES)
}

/// [`repair`] with a memory limit of about `memory_bytes`, instead of 64 MiB, for logs and for
/// tables that must be searched. With less memory it reads them more often.
///
/// # Errors
/// As [`repair`].
pub fn repair_within(env: &Env, dir: &Path, target: &Path, memory_bytes: u64) -> Result<RepairReport> {
    check_target(env, dir, target)?;
    let _lock = share(env, dir)?;
    if is_unfinished(env, dir)? {
        return Err(unfinished(dir));
    }
    let half_bytes = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX);
    let mut report = RepairReport::default();
    let mut found = Found::look(env, dir, &mut report)?;
    let logs = LogContent::read(env, dir, &mut found, half_bytes, &mut report)?;
    let last_seq = found.state.last_seq.max(found.largest_seq()).max(logs.last_seq);
    let lock = begin(env, target)?;
    create(env, target, &found, last_seq, &mut report)?;
    // One lock from the creation of the mark to its removal: no other process can open or replace
    // an incomplete database.
    let builder = Db::builder(target).env(env.clone()).info_log(false).create_if_missing(false);
    let db = Db::open_begun(builder, lock)?;
    merge::fill(&db, found, logs, half_bytes, &mut report)?;
    // Everything is in durable tables: from here on it is a database.
    db.flush()?;
    let mark = target.join(REPAIRING);
    env.vfs.unlink(&mark).map_err(|error| Error::io("remove", &mark, error))?;
    env.vfs.sync_dir(target).map_err(|error| Error::io("sync directory", target, error))?;
    db.close()?;
    report.tidy();
    Ok(report)
}

/// Whether an incomplete repair may have left a file of this name.
fn is_left_over(name: &str) -> bool {
    [REPAIRING, LOCK, CURRENT, CURRENT_TEMPORARY, STATISTICS, STATISTICS_TEMPORARY].contains(&name)
        || file_number(name).is_some()
}

/// Checks the target: a directory outside the original, empty but for the files of an incomplete
/// repair.
fn check_target(env: &Env, dir: &Path, target: &Path) -> Result<()> {
    let vfs = &env.vfs;
    let exists = |path: &Path| vfs.exists(path).map_err(|error| Error::io("look at", path, error));
    if !exists(dir)? {
        return Err(Error::no_database(dir, "the directory does not exist"));
    }
    if resolved(env, target)?.starts_with(resolved(env, dir)?) {
        let (target, dir) = (target.display(), dir.display());
        return Err(Error::invalid(format!("{target} is inside {dir}, which repair does not change")));
    }
    if exists(target)? { left_overs(env, target).map(drop) } else { Ok(()) }
}

/// The absolute path to which `path` leads: without `..`, and with the links resolved in the part
/// of it that exists.
fn resolved(env: &Env, path: &Path) -> Result<PathBuf> {
    let failed = |error| Error::io("look at", path, error);
    let mut leads_to = PathBuf::new();
    for part in std::path::absolute(path).map_err(failed)?.components() {
        match part {
            Component::Prefix(_) => leads_to.push(part),
            // No link is left in the path so far.
            Component::ParentDir => _ = leads_to.pop(),
            _ => {
                leads_to.push(part);
                match env.vfs.canonical(&leads_to) {
                    Ok(real) => leads_to = real,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
    }
    Ok(leads_to)
}

/// Lists the files of an incomplete repair in `target`; any other file is an error.
fn left_overs(env: &Env, target: &Path) -> Result<Vec<DirEntry>> {
    let names = env.vfs.list(target).map_err(|error| Error::io("list", target, error))?;
    let is_begun = names.iter().any(|entry| entry.name == REPAIRING);
    // The lock file is created before the mark.
    let is_left_over = |name: &str| name == LOCK || (is_begun && is_left_over(name));
    match names.iter().find(|entry| entry.is_dir || !is_left_over(&entry.name)) {
        None => Ok(names),
        Some(other) => {
            let (target, other) = (target.display(), &other.name);
            Err(Error::invalid(format!("{target} is not empty: it contains {other:?}")))
        }
    }
}

/// Keeps writers out by a shared lock, as an open for reading does.
fn share(env: &Env, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match take_lock(env, dir, LockKind::Shared, 0) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::Locked => Err(error),
        // A lock file that cannot be opened is treated as damaged.
        Err(_) => Ok(None),
    }
}

/// Begins a repair into `target`: takes the lock, marks the directory durably as incomplete, and
/// removes the files of an earlier repair. Reading the original took time, so the directory is
/// checked again, now that the lock excludes other writers.
fn begin(env: &Env, target: &Path) -> Result<Box<dyn FileLock>> {
    let vfs = &env.vfs;
    let failed = |what: &'static str| move |error| Error::io(what, target, error);
    vfs.create_dir_all(target).map_err(failed("create directory"))?;
    sync_names_above(env, target)?;
    let lock = take_lock(env, target, LockKind::Exclusive, 0)?;
    let left_overs = left_overs(env, target)?;
    if !left_overs.iter().any(|entry| entry.name == REPAIRING) {
        write_file_synced(vfs.as_ref(), &target.join(REPAIRING), b"").map_err(failed("mark"))?;
    }
    // Before any other file is created: the mark must be durable before the database can be.
    vfs.sync_dir(target).map_err(failed("sync directory"))?;
    for entry in left_overs {
        if ![REPAIRING, LOCK].contains(&entry.name.as_str()) {
            let path = target.join(&entry.name);
            vfs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    Ok(lock)
}

/// Creates an empty database with the settings and keyspaces of the old one.
fn create(env: &Env, target: &Path, found: &Found, last_seq: SeqNo, report: &mut RepairReport) -> Result<()> {
    let ManifestState { settings, time_ms, .. } = &found.state;
    let mut state =
        ManifestState { settings: settings.clone(), time_ms: *time_ms, last_seq, ..Default::default() };
    let read = Settings::from_pairs(&state.settings).and_then(|settings| settings.validate());
    if read.is_err() || state.settings.is_empty() {
        let settings = Settings { digest_seed: env.rng.next_u64(), ..Settings::default() };
        state.settings = settings.created_pairs().into_iter().collect();
        report.warnings.push("the settings are lost: the new database has the default ones".to_owned());
    }
    for (id, space) in &found.spaces {
        let recorded = found.state.keyspaces.get(id);
        let settings = recorded.map(|keyspace| keyspace.settings.clone()).unwrap_or_default();
        let merge_operator = recorded.and_then(|keyspace| keyspace.merge_operator.clone());
        let compaction_filter = recorded.and_then(|keyspace| keyspace.compaction_filter.clone());
        let (name, version, flushed) = (space.name.clone(), Version::empty(), SeqNo::ZERO);
        let made = KeyspaceState { name, settings, merge_operator, compaction_filter, version, flushed };
        state.keyspaces.insert(*id, Arc::new(made));
        state.next_id = state.next_id.max(u64::from(id.0) + 1);
    }
    debug_assert!(state.keyspaces.values().any(|keyspace| keyspace.name == DEFAULT_KEYSPACE));
    // As in a checkpoint: an empty log that was closed cleanly, and a manifest that names it.
    let known = state.next_id.max(found.state.next_id).max(found.beyond_files);
    let number = known.min(u64::MAX / 2) + NUMBERS_BETWEEN;
    state.first_log = LogNo(number + 1);
    state.next_id = number + 2;
    let mut wal = WalWriter::create(env, target, state.first_log, None, last_seq)?;
    wal.sync()?;
    state.log_promise = Some(wal.finish_clean()?);
    ManifestWriter::create(env, target, number, &state)?;
    Ok(())
}
