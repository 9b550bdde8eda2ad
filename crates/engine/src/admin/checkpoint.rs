//! Checkpoint: a copy of a database that shares its tables.
//!
//! The memtables are flushed first, so the copy needs no log. Tables and value files are
//! hard-linked, or copied where the file system has no links. The copy's own manifest comes last,
//! so that an incomplete copy is no database. A checkpoint that fails removes what it has copied.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, LockKind, append_all};
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::WalWriter;
use shamba_table::{table_file_name, value_file_name};
use shamba_tree::version::current::{CURRENT, CURRENT_TEMPORARY};
use shamba_tree::version::manifest::state::KeyspaceState;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};
use shamba_tree::version::{HistoryEntry, ManifestEdit};

use crate::catalog::{Catalog, DEFAULT_KEYSPACE};
use crate::directory::{LOCK, file_number, sync_names_above};
use crate::error::{Error, Result};

/// Copies the state in force to `target`: tables by hard links, everything else by a new manifest.
/// With `only`, the copy has that keyspace, and an empty default one. `flushed` writes all
/// memtables to tables and returns the state after that.
///
/// # Errors
/// `Invalid` if `target` is not empty, or if the keyspace was dropped; `Io`, `NoSpace`; the error
/// of `flushed`.
pub(super) fn checkpoint(
    env: &Env,
    catalog: &Catalog,
    only: Option<KeyspaceId>,
    flushed: impl FnOnce() -> Result<ManifestState>,
    target: &Path,
) -> Result<()> {
    let vfs = &env.vfs;
    if vfs.exists(target).map_err(|error| Error::io("look at", target, error))? {
        check_empty(env, target)?;
    }
    // Creates one directory, but no missing parents, which a mistyped path may have.
    let above = target.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        if !vfs.exists(above).map_err(|error| Error::io("look at", above, error))? {
            let detail = format!("{} does not exist", above.display());
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, detail);
            return Err(Error::io("create directory", target, source));
        }
    }
    // The copy needs no log. The state holds references to the tables, which keep their files.
    let mut state = flushed()?;
    if let Some(only) = only {
        leave_out_others(&mut state, only)?;
    }
    vfs.create_dir_all(target).map_err(|error| Error::io("create directory", target, error))?;
    sync_names_above(env, target)?;
    let _lock = vfs
        .lock(&target.join(LOCK), LockKind::Exclusive)
        .map_err(|error| Error::io("lock", target, error))?;
    // Another checkpoint may have had the lock until now.
    check_empty(env, target)?;
    let copied = copy(env, catalog, state, target);
    if copied.is_err() {
        remove_copied(env, target);
    }
    copied
}

/// # Errors
/// `Invalid` if `target` has anything but a lock file, which a failed checkpoint leaves; `Io`.
fn check_empty(env: &Env, target: &Path) -> Result<()> {
    let names = env.vfs.list(target).map_err(|error| Error::io("list", target, error))?;
    if names.iter().any(|entry| entry.name != LOCK) {
        return Err(Error::invalid(format!("{} is not empty", target.display())));
    }
    Ok(())
}

/// Copies the files of `state`, and writes the manifest of the copy.
fn copy(env: &Env, catalog: &Catalog, mut state: ManifestState, target: &Path) -> Result<()> {
    for keyspace in state.keyspaces.values() {
        for (_, _, table) in keyspace.version.tables() {
            let name = table_file_name(table.meta.id);
            link_or_copy(env, &catalog.dir().join(&name), &target.join(&name))?;
        }
        for total in keyspace.version.value_totals().files() {
            let name = value_file_name(total.file.id);
            link_or_copy(env, &catalog.dir().join(&name), &target.join(&name))?;
        }
    }
    let number = catalog.new_id();
    // It begins an epoch of the copy. Recorded, so that no later open of this database begins
    // another one with it.
    catalog.install(&[], Vec::new(), |_| Ok(ManifestEdit::default()))?;
    state.first_log = LogNo(number + 1);
    state.log_promise = None;
    // The copy has none of the logs, and assigns sequence numbers of its own from here on.
    let copied =
        HistoryEntry::Opened { log: LogNo(number), after: LogNo(0), seq: state.last_seq, is_epoch: true };
    state.history.extend(&[copied]);
    state.history.prune(LogNo(number), state.last_seq);
    state.next_id = number + 2;
    let wal = WalWriter::create(env, target, state.first_log, None, state.last_seq)?;
    state.log_promise = Some(wal.finish_clean()?);
    ManifestWriter::create(env, target, number, &state)?;
    Ok(())
}

/// Removes the files of a failed checkpoint, as far as possible, so that their space is free and
/// the next one can have the same directory. All of them are of this checkpoint, which holds the
/// lock.
fn remove_copied(env: &Env, target: &Path) {
    let Ok(entries) = env.vfs.list(target) else { return };
    let remove = |name: &str| env.vfs.unlink(&target.join(name)).is_ok();
    let is_database = entries.iter().any(|entry| entry.name == CURRENT);
    // First and durably what makes a database of the others.
    if is_database && !(remove(CURRENT) && env.vfs.sync_dir(target).is_ok()) {
        return;
    }
    let names = entries.iter().filter(|entry| !entry.is_dir).map(|entry| entry.name.as_str());
    for name in names.filter(|name| *name == CURRENT_TEMPORARY || file_number(name).is_some()) {
        remove(name);
    }
}

/// Removes the other keyspaces. The default one, which every database has, stays, and is emptied
/// unless it is `only`.
///
/// # Errors
/// `Invalid` if there is no such keyspace.
fn leave_out_others(state: &mut ManifestState, only: KeyspaceId) -> Result<()> {
    if !state.keyspaces.contains_key(&only) {
        return Err(Error::invalid("the keyspace was dropped"));
    }
    state.keyspaces.retain(|id, _| [only, KeyspaceId::DEFAULT].contains(id));
    if only != KeyspaceId::DEFAULT {
        let name = DEFAULT_KEYSPACE.to_owned();
        let empty = KeyspaceState { name, flushed: state.last_seq, ..KeyspaceState::default() };
        state.keyspaces.insert(KeyspaceId::DEFAULT, Arc::new(empty));
    }
    Ok(())
}

/// Links the file `from` as `to`, or copies and syncs it.
fn link_or_copy(env: &Env, from: &Path, to: &Path) -> Result<()> {
    let vfs = &env.vfs;
    if vfs.link(from, to).is_ok() {
        return Ok(());
    }
    // Another file system, or one without hard links.
    const CHUNK_BYTES: usize = 1 << 20;
    let source = vfs.open_read(from).map_err(|error| Error::io("open", from, error))?;
    let mut copy = vfs.create(to).map_err(|error| Error::io("create", to, error))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let read = match source.read_at(offset, &mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io("read", from, error)),
        };
        if read == 0 {
            break;
        }
        let part = buffer.get(..read).unwrap_or_default();
        append_all(copy.as_mut(), part).map_err(|error| Error::io("write", to, error))?;
        offset += read as u64;
    }
    copy.sync_all().map_err(|error| Error::io("sync", to, error))
}
