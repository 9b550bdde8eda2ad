//! Which tables an edit adds to a tree and which it makes obsolete: pure functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_table::{TableId, ValueFileId};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{Change, ManifestEdit, TableMeta, Version, VersionEdit};

/// The tables that are in `before` and not in `after`.
pub(super) fn obsolete_tables(
    before: &ManifestState,
    after: &ManifestState,
    edit: &ManifestEdit,
) -> Vec<Arc<TableMeta>> {
    // Each once: runs may share a file.
    let mut dead = BTreeMap::new();
    for VersionEdit { keyspace, changes } in &edit.versions {
        let tables_of = |state: &ManifestState| state.keyspaces.get(keyspace).map(|k| k.version.clone());
        let (Some(before), Some(after)) = (tables_of(before), tables_of(after)) else { continue };
        for change in changes {
            let Change::Remove { table, .. } = change else { continue };
            if let Some(meta) = find_table(&before, *table) {
                if find_table(&after, *table).is_none() {
                    dead.insert(meta.id, meta);
                }
            }
        }
    }
    for keyspace in &edit.keyspaces_dropped {
        if let Some(dropped) = before.keyspaces.get(keyspace) {
            dead.extend(
                dropped.version.tables().map(|(_, _, table)| (table.meta.id, Arc::clone(&table.meta))),
            );
        }
    }
    dead.into_values().collect()
}

/// The tables that `edit` adds and that are not in `before`.
pub(super) fn new_tables(before: &ManifestState, edit: &ManifestEdit) -> Vec<Arc<TableMeta>> {
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

/// A value file that a table added by `edit` refers to and that neither `edit` nor a tree of
/// `before` states: the manifest could not be read.
pub(super) fn unknown_values(before: &ManifestState, edit: &ManifestEdit) -> Option<ValueFileId> {
    let added = edit.versions.iter().flat_map(|version| &version.changes).filter_map(|change| match change {
        Change::Add { table, .. } => Some(table.meta.values.get()),
        _ => None,
    });
    let is_known = |id: ValueFileId| {
        let versions = || before.keyspaces.values().map(|keyspace| &keyspace.version);
        edit.value_files.iter().any(|file| file.id == id)
            || versions().any(|version| version.value_totals().get(id).is_some())
    };
    added.flat_map(|values| values.files()).map(|of| of.file.id).find(|id| !is_known(*id))
}

fn find_table(version: &Version, id: TableId) -> Option<Arc<TableMeta>> {
    version.tables().find(|(_, _, table)| table.meta.id == id).map(|(_, _, table)| Arc::clone(&table.meta))
}

/// Checks every edited version in builds with debug assertions.
pub(super) fn check_edited(state: &ManifestState, edits: &[VersionEdit]) {
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
