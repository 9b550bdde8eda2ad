//! Installs manifest edits: makes an edit durable, then visible.
//!
//! Installs are serialized. Each computes the next state from the current one, appends the edit to
//! the manifest and syncs it, then publishes the new versions to readers. An edit that does not fit
//! the state is refused before a byte is written. If the manifest cannot be written, writes are
//! turned off and nothing is installed. Files that became obsolete are deleted after the edit is
//! durable, when their last reader is gone.
//!
//! A manifest that ran out of space for an edit is abandoned, without the edit. The next install
//! first writes a new manifest with the state in force, and retries that as often as needed. So
//! flushes and compactions resume when there is space again.

use std::sync::Arc;

use crate::core::{Core, Generation, Installing};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::WorkCounters;
use crate::planted::{Defect, is_planted};
use shamba_env::lock;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter, manifest_file_name};
use shamba_tree::version::{Change, ManifestEdit, TableMeta, Version, VersionEdit};

/// Maximum bytes of edits in a manifest; beyond it a snapshot of the state replaces it.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

impl Core {
    /// Installs the edit that `build` makes from the current state. With `flushed`, the
    /// generation's memtables leave the views in the same step in which their tables join. `new`
    /// are the tables that the edit is to add. If `build` fails, as in a database that is being
    /// closed, they are marked obsolete, because no edit names them.
    ///
    /// # Errors
    /// The error of `build`. `NoSpace` when the edit did not fit on the disk: it is not in force,
    /// its new tables are marked obsolete, and the next call may succeed. Any other failure turns
    /// writes off.
    pub(crate) fn install(
        &self,
        flushed: Option<&Generation>,
        new: Vec<Arc<TableMeta>>,
        build: impl FnOnce(&ManifestState) -> Result<ManifestEdit>,
    ) -> Result<()> {
        let mut guard = lock(&self.installing);
        let Some(installing) = guard.as_mut() else {
            return Err(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        };
        let built = self.check_writable().and_then(|()| build(&installing.state));
        let mut edit = built.inspect_err(|_| {
            if !is_planted(Defect::RefusedTablesKept) {
                self.obsolete.mark_tables_obsolete(new);
            }
        })?;
        edit.next_id = Some(self.next_id.load(std::sync::atomic::Ordering::Relaxed));
        let mut next = installing.state.clone();
        // An invalid edit is a defect of this program, not of the disk: stop rather than write it.
        next.apply(&edit).map_err(|detail| {
            let error = Error::invalid(format!("an edit does not fit the tree: {detail}"));
            self.fail(&error);
            error
        })?;
        if cfg!(debug_assertions) {
            check_edited(&next, &edit.versions);
        }
        if is_planted(Defect::TablesUnlinkedEarly) {
            for table in obsolete_tables(&installing.state, &next, &edit) {
                let _ = self.env.vfs.unlink(&self.dir.join(shamba_table::table_file_name(table.id)));
            }
        }
        if let Err(error) = self.append_edit(installing, &edit) {
            if self.check_writable().is_ok() {
                // If writes are off, the edit may be in force at the next open, and must find its
                // tables.
                self.obsolete.mark_tables_obsolete(new_tables(&installing.state, &edit));
            }
            return Err(error);
        }
        let dead = obsolete_tables(&installing.state, &next, &edit);
        installing.state = next;
        self.publish_versions(&installing.state, &edit, flushed);
        self.charge_trees();
        if installing.manifest.is_outgrown(MANIFEST_BYTES_MAX) {
            // Without space the old one stays in force, and the next install retries; other
            // failures turn writes off.
            let _ = self.renew_manifest(installing);
        }
        drop(guard);
        self.background.room.changed();
        self.release_obsolete(&dead);
        self.obsolete.mark_tables_obsolete(dead);
        self.release_stale_views();
        self.request_rebalance();
        self.background.wake.notify_all();
        self.background.progress.notify_all();
        Ok(())
    }

    /// Appends an edit to the manifest and makes it durable. Replaces a manifest that ran out of
    /// space first.
    ///
    /// # Errors
    /// `NoSpace`: the edit is not in force. Any other failure turns writes off.
    pub(crate) fn append_edit(&self, installing: &mut Installing, edit: &ManifestEdit) -> Result<()> {
        if installing.manifest.is_out_of_space() {
            self.renew_manifest(installing)?;
        }
        let manifest = &mut installing.manifest;
        let bytes_before = manifest.bytes();
        if let Err(error) = manifest.append(edit).map_err(Error::from) {
            if !manifest.is_out_of_space() {
                self.fail(&error);
            }
            return Err(error);
        }
        WorkCounters::add(&self.work.bytes_manifest, manifest.bytes().saturating_sub(bytes_before));
        Ok(())
    }

    /// Replaces the manifest by a new one with the state in force.
    ///
    /// # Errors
    /// `NoSpace`: nothing has changed. Any other failure turns writes off.
    fn renew_manifest(&self, installing: &mut Installing) -> Result<()> {
        let number = self.new_id();
        let draft =
            ManifestWriter::draft(&self.env, &self.dir, number, &installing.state).map_err(Error::from);
        let draft = draft.inspect_err(|error| {
            // The incomplete file takes space. Each try has a new file, of which no sync was tried
            // before.
            self.obsolete.mark_file_obsolete(self.dir.join(manifest_file_name(number)));
            self.remove_obsolete_files();
            if error.kind() != ErrorKind::NoSpace {
                self.fail(error);
            }
        })?;
        let fresh = draft.put_in_force(&self.env, &self.dir).map_err(Error::from);
        let fresh = fresh.inspect_err(|error| self.fail(error))?;
        let old = std::mem::replace(&mut installing.manifest, fresh);
        self.obsolete.mark_file_obsolete(self.dir.join(manifest_file_name(old.number())));
        Ok(())
    }

    fn publish_versions(&self, state: &ManifestState, edit: &ManifestEdit, flushed: Option<&Generation>) {
        let is_flushed = |memtable: &Arc<dyn shamba_memtable::Memtable>| {
            flushed.is_some_and(|generation| {
                generation.members.iter().any(|(_, member)| Arc::ptr_eq(member, memtable))
            })
        };
        for (id, keyspace) in self.keyspaces.load().iter() {
            let Some(keyspace_state) = state.keyspaces.get(id) else { continue };
            let is_edited = edit.versions.iter().any(|version| version.keyspace == *id);
            let is_member = flushed
                .is_some_and(|generation| generation.members.iter().any(|(member, _)| member.id == *id));
            if !is_edited && !is_member {
                continue;
            }
            keyspace.publish(|view| {
                let memtables = view.memtables.iter().filter(|memtable| !is_flushed(memtable));
                view.next(memtables.cloned().collect(), Arc::new(keyspace_state.version.clone()))
            });
        }
    }

    /// Takes outdated views from idle iterators, and deletes obsolete files without readers.
    pub(crate) fn release_stale_views(&self) {
        let keyspaces = self.keyspaces.load();
        self.iterators.revoke_idle(|view| match keyspaces.get(&view.keyspace) {
            Some(keyspace) => !view.is_like(&keyspace.load()),
            None => true,
        });
        self.remove_obsolete_files();
    }

    /// Deletes obsolete files without readers.
    pub(crate) fn remove_obsolete_files(&self) {
        self.obsolete.collect(&self.env, &self.dir, &self.work);
    }
}

/// The tables that are in `before` and not in `after`.
fn obsolete_tables(
    before: &ManifestState,
    after: &ManifestState,
    edit: &ManifestEdit,
) -> Vec<Arc<TableMeta>> {
    let mut dead = Vec::new();
    for VersionEdit { keyspace, changes } in &edit.versions {
        let tables_of = |state: &ManifestState| state.keyspaces.get(keyspace).map(|k| k.version.clone());
        let (Some(before), Some(after)) = (tables_of(before), tables_of(after)) else { continue };
        for change in changes {
            let Change::Remove { table, .. } = change else { continue };
            if let Some(meta) = find_table(&before, *table) {
                if find_table(&after, *table).is_none() {
                    dead.push(meta);
                }
            }
        }
    }
    for keyspace in &edit.keyspaces_dropped {
        if let Some(dropped) = before.keyspaces.get(keyspace) {
            dead.extend(dropped.version.tables().map(|(_, _, table)| Arc::clone(&table.meta)));
        }
    }
    dead
}

/// The tables that `edit` adds and that are not in `before`.
fn new_tables(before: &ManifestState, edit: &ManifestEdit) -> Vec<Arc<TableMeta>> {
    let mut new = Vec::new();
    for VersionEdit { keyspace, changes } in &edit.versions {
        let known = before.keyspaces.get(keyspace).map(|keyspace| &keyspace.version);
        for change in changes {
            if let Change::Add { table, .. } = change {
                if known.is_none_or(|version| find_table(version, table.meta.id).is_none()) {
                    new.push(Arc::clone(&table.meta));
                }
            }
        }
    }
    new
}

fn find_table(version: &Version, id: shamba_table::TableId) -> Option<Arc<TableMeta>> {
    version.tables().find(|(_, _, table)| table.meta.id == id).map(|(_, _, table)| Arc::clone(&table.meta))
}

/// Checks every edited version in builds with debug assertions.
fn check_edited(state: &ManifestState, edits: &[VersionEdit]) {
    for edit in edits {
        if let Some(keyspace) = state.keyspaces.get(&edit.keyspace) {
            if let Err(detail) = keyspace.version.check() {
                panic!(
                    "an edit broke the tree of keyspace {}: {detail}\n{}",
                    edit.keyspace, keyspace.version
                );
            }
        }
    }
}
