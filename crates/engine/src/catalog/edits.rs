//! Which tables an edit adds to a tree and which it makes obsolete: pure functions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use shamba_table::{TableId, ValueFileId};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{Change, ManifestEdit, TableMeta, VersionEdit};

/// The tables that are in `before` and not in `after`.
pub(super) fn obsolete_tables(
    before: &ManifestState,
    after: &ManifestState,
    edit: &ManifestEdit,
) -> Vec<Arc<TableMeta>> {
    // Each once: runs may share a file.
    let mut dead = BTreeMap::new();
    for VersionEdit { keyspace, changes } in &edit.versions {
        let (Some(before), Some(after)) = (before.keyspaces.get(keyspace), after.keyspaces.get(keyspace))
        else {
            continue;
        };
        let removed = changes.iter().filter_map(|change| match change {
            Change::Remove { table, .. } => Some(*table),
            _ => None,
        });
        let mut removed: HashSet<TableId> = removed.collect();
        if removed.is_empty() {
            continue;
        }
        // Moves of tables to other runs are removals too.
        after.version.tables().for_each(|(_, _, table)| _ = removed.remove(&table.meta.id));
        let removed = before.version.tables().filter(|(_, _, table)| removed.contains(&table.meta.id));
        dead.extend(removed.map(|(_, _, table)| (table.meta.id, Arc::clone(&table.meta))));
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
        let known = before.keyspaces.get(keyspace).map(|keyspace| keyspace.version.tables());
        let known: HashSet<TableId> =
            known.into_iter().flatten().map(|(_, _, table)| table.meta.id).collect();
        new.extend(changes.iter().filter_map(|change| match change {
            Change::Add { table, .. } if !known.contains(&table.meta.id) => Some(Arc::clone(&table.meta)),
            _ => None,
        }));
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

#[cfg(test)]
mod tests {
    use shamba_key::KeyspaceId;
    use shamba_tree::version::Version;
    use shamba_tree::version::manifest::state::KeyspaceState;

    use super::*;

    const SPACE: KeyspaceId = KeyspaceId(1);

    /// A state of one keyspace with this tree.
    fn state(tree: &str) -> ManifestState {
        let version: Version = tree.parse().expect("notation");
        let keyspace = KeyspaceState { version, ..KeyspaceState::default() };
        ManifestState {
            keyspaces: [(SPACE, Arc::new(keyspace))].into_iter().collect(),
            ..ManifestState::default()
        }
    }

    /// The additions that make an empty tree this one; its value files are stated, if asked.
    fn additions(tree: &str, states_values: bool) -> ManifestEdit {
        let version: Version = tree.parse().expect("notation");
        let mut changes = Vec::new();
        for (level, runs) in version.levels() {
            for run in runs {
                let add = |table| Change::Add { level, run: run.id, age: run.age, table };
                changes.extend(run.tables().iter().cloned().map(add));
            }
        }
        let files = version.value_totals().files().map(|total| Arc::clone(&total.file));
        ManifestEdit {
            value_files: if states_values { files.collect() } else { Vec::new() },
            versions: vec![VersionEdit { keyspace: SPACE, changes }],
            ..ManifestEdit::default()
        }
    }

    fn ids(tables: &[Arc<TableMeta>]) -> Vec<u64> {
        tables.iter().map(|table| table.id.0).collect()
    }

    const TREE: &str = "L1: r3@3[000002:a..m 40 val=31:1:10, 000004:m..z 40]\nV: 000031 100 n=1\n";

    #[test]
    fn new_tables_are_those_that_no_tree_had() {
        let edit = additions(TREE, true);
        assert_eq!(ids(&new_tables(&state(""), &edit)), [2, 4]);
        assert_eq!(ids(&new_tables(&ManifestState::default(), &edit)), [2, 4], "an unknown keyspace");
        assert_eq!(ids(&new_tables(&state("L1: r3@3[000004:m..z 40]\n"), &edit)), [2]);
    }

    #[test]
    fn a_value_file_is_known_by_the_edit_or_by_a_tree() {
        assert_eq!(unknown_values(&state(""), &additions(TREE, true)), None);
        assert_eq!(unknown_values(&state(TREE), &additions(TREE, false)), None);
        assert_eq!(unknown_values(&state(""), &additions(TREE, false)), Some(ValueFileId(31)));
        let other = "L1: r5@5[000008:a..m 40 val=32:1:10]\nV: 000032 100 n=1\n";
        assert_eq!(unknown_values(&state(other), &additions(TREE, false)), Some(ValueFileId(31)));
    }
}
