//! Repair: a new database of everything that a damaged one still holds.
//!
//! The original is read and never written: not a byte, and of the lock no more than an open for reading takes. In order:
//! [what there is](found) (the manifest's word for which tables count, or, where that is lost, all tables, taken by what
//! they themselves say); the [logs](logs), replayed up to their first damage; a new database with the old one's settings and
//! keyspaces; and into it, keyspace by keyspace, the [newest version](merge) of every key that is left and that no
//! tombstone that is left has deleted. What is lost is told as ranges of keys ([`report`]).
//!
//! Nothing is made up: every value was written under its key in its keyspace. It may be an older one, or one deleted
//! since, only within a range that is told as lost: where the newer version, or the tombstone, is what is damaged.
//!
//! Not here: what can be read of a damaged table (crate `shamba-table`, `salvage`); which records of a log count
//! ([`crate::wal::replay`]).

mod found;
mod logs;
mod merge;
mod report;

pub use self::report::{Loss, LostRange, RepairReport};

use std::path::{Path, PathBuf};

use shamba_env::{Env, FileLock, LockKind};
use shamba_key::SeqNo;

use self::found::Found;
use self::logs::LogContent;
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LogNo;
use crate::recovery::{DEFAULT_KEYSPACE, LOCK, sync_names_above};
use crate::settings::Settings;
use crate::version::Version;
use crate::version::manifest::state::KeyspaceState;
use crate::version::manifest::{ManifestState, ManifestWriter};
use crate::wal::WalWriter;

/// Makes a new database in `target` of everything that is left of the one in `dir`, which is not changed.
///
/// # Errors
/// `Invalid` when `target` is not empty, or lies in `dir`; `Io` when there is nothing in `dir`, or a call fails;
/// `Locked` while somebody writes to the original; `Unsupported` when a file that is whole is of a newer version; what
/// writing the new database says. What was written by then stays: it is no result.
pub fn repair(env: &Env, dir: &Path, target: &Path) -> Result<RepairReport> {
    check_target(env, dir, target)?;
    let _lock = share(env, dir)?;
    let mut report = RepairReport::default();
    let mut found = Found::look(env, dir, &mut report)?;
    let logs = LogContent::read(env, dir, &mut found, &mut report)?;
    let last_seq = found.state.last_seq.max(found.largest_seq()).max(logs.last_seq);
    create(env, target, &found, last_seq, &mut report)?;
    let db = Db::builder(target).env(env.clone()).info_log(false).create_if_missing(false).open()?;
    merge::fill(&db, found, logs, &mut report)?;
    db.flush()?;
    db.close()?;
    report.tidy();
    Ok(report)
}

/// A new database needs an empty directory, outside the original.
fn check_target(env: &Env, dir: &Path, target: &Path) -> Result<()> {
    let vfs = &env.vfs;
    let exists = |path: &Path| vfs.exists(path).map_err(|error| Error::io("look at", path, error));
    if !exists(dir)? {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no database");
        return Err(Error::io("open", dir, source));
    }
    // Links are the caller's affair: names are all that a file system of any kind has.
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Error::io("look at", path, error));
    let (from, to): (PathBuf, PathBuf) =
        (absolute(dir)?.components().collect(), absolute(target)?.components().collect());
    if to.starts_with(&from) {
        let (target, dir) = (target.display(), dir.display());
        return Err(Error::invalid(format!("{target} lies in {dir}, which is not to be changed")));
    }
    if exists(target)? {
        let names = vfs.list(target).map_err(|error| Error::io("list", target, error))?;
        if !names.is_empty() {
            return Err(Error::invalid(format!("{} is not empty", target.display())));
        }
    }
    Ok(())
}

/// Keeps writers out, as an open for reading does.
fn share(env: &Env, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match env.vfs.lock(&dir.join(LOCK), LockKind::Shared) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Error::new(
            ErrorKind::Locked,
            format!("{} is in use by another handle or process", dir.display()),
        )),
        // A lock file that cannot be opened is one more thing that is damaged.
        Err(_) => Ok(None),
    }
}

/// Makes an empty database with the settings and the keyspaces of the old one.
fn create(env: &Env, target: &Path, found: &Found, last_seq: SeqNo, report: &mut RepairReport) -> Result<()> {
    let vfs = &env.vfs;
    vfs.create_dir_all(target).map_err(|error| Error::io("create directory", target, error))?;
    sync_names_above(env, target)?;
    let _lock = vfs
        .lock(&target.join(LOCK), LockKind::Exclusive)
        .map_err(|error| Error::io("lock", target, error))?;
    let mut state = ManifestState { settings: found.state.settings.clone(), last_seq, ..Default::default() };
    let read = Settings::from_pairs(&state.settings).and_then(|settings| settings.validate());
    if read.is_err() || state.settings.is_empty() {
        let settings = Settings { digest_seed: env.rng.next_u64(), ..Settings::default() };
        state.settings = settings.to_pairs().into_iter().collect();
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
