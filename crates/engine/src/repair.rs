//! Repair: a new database of everything that a damaged one still holds.
//!
//! The original is read and never written: not a byte, and of the lock no more than an open for reading takes. In order:
//! [what there is](found) (the manifest's word for which tables count, or, where that is lost, all tables, taken by what
//! they themselves say); the [logs](logs), replayed up to their first damage; a new database with the old one's settings and
//! keyspaces; and into it, keyspace by keyspace, the [newest version](merge) of every key that is left and that no
//! tombstone that is left has deleted. What is lost is told as ranges of keys ([`report`]).
//!
//! The new database counts once it is whole: until then its directory has a file [`REPAIRING`], with which it does not open. A
//! repair into the directory of one that did not end begins by removing what that one left.
//!
//! In memory are, beside the new database: of log operations and of files that are searched as much as the caller allows;
//! for each table its footer, its index's top level and its range tombstones; and one data block and the list of one partition
//! for each table that has keys on both sides of where the merge is.
//!
//! Nothing is made up: every value was written under its key in its keyspace. It may be an older one, or one deleted
//! since, only within a range that is told as lost: where the newer version, or the tombstone, is what is damaged.
//!
//! Not here: what can be read of a damaged table (crate `shamba-table`, `salvage`); which records of a log count
//! ([`shamba_log::wal::replay`]).

mod found;
mod logs;
mod merge;
mod report;

pub use self::report::{Loss, LostRange, RepairReport};

use std::path::{Path, PathBuf};

use shamba_env::{DirEntry, Env, FileLock, LockKind, write_file_synced};
use shamba_key::SeqNo;

use self::found::Found;
use self::logs::LogContent;
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::recovery::{DEFAULT_KEYSPACE, LOCK, file_number, sync_names_above, take_lock};
use crate::settings::Settings;
use crate::statistics::file::{STATISTICS, STATISTICS_TEMPORARY};
use shamba_key::LogNo;
use shamba_log::wal::WalWriter;
use shamba_tree::version::Version;
use shamba_tree::version::current::{CURRENT, CURRENT_TEMPORARY};
use shamba_tree::version::manifest::state::KeyspaceState;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};

/// Lies in a directory in which a repair has not ended.
pub(crate) const REPAIRING: &str = "REPAIRING";
/// What a repair holds of logs and searched files unless told otherwise, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// Makes a new database in `target` of everything that is left of the one in `dir`, which is not changed.
///
/// # Errors
/// `Invalid` when `target` lies in `dir`, or holds anything but what a repair that did not end has left; `Io` when there is
/// nothing in `dir`, or a call fails; `Locked` while somebody writes to the original or has `target`; `Unsupported`
/// when a file that is whole is of a newer version; `Corruption` when `dir` is itself a repair that did not end; what
/// writing the new database says. What was written by then stays, and does not open as a database.
pub fn repair(env: &Env, dir: &Path, target: &Path) -> Result<RepairReport> {
    repair_within(env, dir, target, MEMORY_BYTES)
}

/// [`repair`] that holds at most about `memory_bytes` of logs and of tables that have to be searched, instead of 64 MiB. With less
/// it reads them more often.
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
    // One lock from the mark to its removal: nobody else opens, or begins anew, what is half done.
    let builder = Db::builder(target).env(env.clone()).info_log(false).create_if_missing(false);
    let db = Db::open_begun(builder, lock)?;
    merge::fill(&db, found, logs, half_bytes, &mut report)?;
    // All of it is in tables and durable: from here on it is a database.
    db.flush()?;
    let mark = target.join(REPAIRING);
    env.vfs.unlink(&mark).map_err(|error| Error::io("remove", &mark, error))?;
    env.vfs.sync_dir(target).map_err(|error| Error::io("sync directory", target, error))?;
    db.close()?;
    report.tidy();
    Ok(report)
}

/// Whether a repair into `dir` has not ended.
pub(crate) fn is_unfinished(env: &Env, dir: &Path) -> Result<bool> {
    let mark = dir.join(REPAIRING);
    env.vfs.exists(&mark).map_err(|error| Error::io("look for", &mark, error))
}

/// What an open of such a directory says.
pub(crate) fn unfinished(dir: &Path) -> Error {
    let detail = "the repair that was to write this database did not end: repair the original again";
    Error::corruption(&dir.join(REPAIRING), 0, "unfinished repair", detail)
}

/// Whether a repair that did not end may have left a file of this name.
fn is_left_over(name: &str) -> bool {
    [REPAIRING, LOCK, CURRENT, CURRENT_TEMPORARY, STATISTICS, STATISTICS_TEMPORARY].contains(&name)
        || file_number(name).is_some()
}

/// A new database needs a directory outside the original, empty but for what a repair has left there.
fn check_target(env: &Env, dir: &Path, target: &Path) -> Result<()> {
    let vfs = &env.vfs;
    let exists = |path: &Path| vfs.exists(path).map_err(|error| Error::io("look at", path, error));
    if !exists(dir)? {
        return Err(Error::no_database(dir, "the directory does not exist"));
    }
    // Links are the caller's affair: names are all that a file system of any kind has.
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Error::io("look at", path, error));
    let (from, to): (PathBuf, PathBuf) =
        (absolute(dir)?.components().collect(), absolute(target)?.components().collect());
    if to.starts_with(&from) {
        let (target, dir) = (target.display(), dir.display());
        return Err(Error::invalid(format!("{target} lies in {dir}, which is not to be changed")));
    }
    if exists(target)? { left_overs(env, target).map(drop) } else { Ok(()) }
}

/// What a repair that did not end has left in `target`, where nothing else may be.
fn left_overs(env: &Env, target: &Path) -> Result<Vec<DirEntry>> {
    let names = env.vfs.list(target).map_err(|error| Error::io("list", target, error))?;
    let is_begun = names.iter().any(|entry| entry.name == REPAIRING);
    // The lock comes before the mark.
    let is_left_over = |name: &str| name == LOCK || (is_begun && is_left_over(name));
    match names.iter().find(|entry| entry.is_dir || !is_left_over(&entry.name)) {
        None => Ok(names),
        Some(other) => {
            let (target, other) = (target.display(), &other.name);
            Err(Error::invalid(format!("{target} is not empty: {other:?} is there")))
        }
    }
}

/// Keeps writers out, as an open for reading does.
fn share(env: &Env, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match take_lock(env, dir, LockKind::Shared, 0) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::Locked => Err(error),
        // A lock file that cannot be opened is one more thing that is damaged.
        Err(_) => Ok(None),
    }
}

/// Begins a repair into `target`: locks it, marks it as unfinished, durably, and removes what one before has left. Reading the
/// original took its time, so what lies there is looked at once more, now that nobody else can put anything there.
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
    // Before anything else is there: a database must not outlive its mark.
    vfs.sync_dir(target).map_err(failed("sync directory"))?;
    for entry in left_overs {
        if ![REPAIRING, LOCK].contains(&entry.name.as_str()) {
            let path = target.join(&entry.name);
            vfs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    Ok(lock)
}

/// Makes an empty database with the settings and the keyspaces of the old one.
fn create(env: &Env, target: &Path, found: &Found, last_seq: SeqNo, report: &mut RepairReport) -> Result<()> {
    let mut state = ManifestState { settings: found.state.settings.clone(), last_seq, ..Default::default() };
    let read = Settings::from_pairs(&state.settings).and_then(|settings| settings.validate());
    if read.is_err() || state.settings.is_empty() {
        let settings = Settings { digest_seed: env.rng.next_u64(), ..Settings::default() };
        state.settings = settings.created_pairs().into_iter().collect();
        report.warnings.push("the settings are lost: the new database has the default ones".to_owned());
    }
    for (id, space) in &found.spaces {
        let recorded = found.state.keyspaces.get(id);
        let settings = recorded.map(|keyspace| keyspace.settings.clone()).unwrap_or_default();
        let (name, version) = (space.name.clone(), Version::empty());
        state.keyspaces.insert(*id, KeyspaceState { name, settings, version, flushed: SeqNo::ZERO });
        state.next_id = state.next_id.max(u64::from(id.0) + 1);
    }
    debug_assert!(state.keyspaces.values().any(|keyspace| keyspace.name == DEFAULT_KEYSPACE));
    // As a checkpoint does: an empty log that was closed in order, and a manifest that names it.
    let number = state.next_id.max(found.state.next_id).max(1);
    state.first_log = LogNo(number + 1);
    state.next_id = number + 2;
    let mut wal = WalWriter::create(env, target, state.first_log, None, last_seq)?;
    wal.sync()?;
    state.log_promise = Some(wal.finish_clean()?);
    ManifestWriter::create(env, target, number, &state)?;
    Ok(())
}
