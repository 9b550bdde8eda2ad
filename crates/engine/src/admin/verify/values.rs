//! The check of value files in a database that cannot be opened, and of the references to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_table::{
    OpenFiles, Reads, Salvage, ValueFile, ValueFileId, ValueFileRef, table_file_name, value_file_name,
};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{TableUse, ValueFileMeta};

use super::files::FileCheck;
use crate::error::Error;

impl FileCheck<'_> {
    /// Checks the value files that the manifest names, and each reference to a value in them.
    pub(super) fn value_files(&mut self, files: &Arc<OpenFiles>, state: &ManifestState) {
        for keyspace in state.keyspaces.values() {
            let affected = format!("values of keyspace \"{}\"", keyspace.name.escape_default());
            let totals = keyspace.version.value_totals();
            let mut opened = BTreeMap::new();
            for total in totals.files() {
                if let Some(file) = self.value_file(files, &total.file, &affected) {
                    opened.insert(total.file.id, file);
                }
            }
            let tables = keyspace.version.tables().filter(|(_, _, table)| !table.values.is_empty());
            for (_, _, table) in tables {
                self.references(files, table, &opened, &affected);
            }
        }
    }

    fn value_file(
        &mut self,
        files: &Arc<OpenFiles>,
        meta: &ValueFileMeta,
        affected: &str,
    ) -> Option<Arc<ValueFile>> {
        let path = self.dir.join(value_file_name(meta.id));
        if !self.entries.iter().any(|entry| !entry.is_dir && path.ends_with(&entry.name)) {
            let detail = "the manifest names the file, but it is missing";
            self.report.add_once(&path, &Error::corruption(&path, 0, "value file", detail), affected);
            return None;
        }
        let (file, damage) =
            match ValueFile::open_damaged(self.env, &path, files, (meta.id, Some(meta.birth))) {
                Ok(opened) => opened,
                Err(error) => {
                    self.report.add_once(&path, &Error::from(error), affected);
                    return None;
                }
            };
        self.report.value_files += 1;
        self.report.bytes_checked += file.file_bytes();
        for error in damage.into_iter().chain(file.verify()) {
            self.report.add_once(&path, &Error::from(error), affected);
        }
        let found = (file.values(), file.file_bytes());
        if found != (meta.values, meta.file_bytes)
            && !self.report.problems.iter().any(|problem| problem.file == path)
        {
            let detail = format!(
                "{} values in {} bytes, the manifest states {} in {}",
                found.0, found.1, meta.values, meta.file_bytes
            );
            self.report.add_once(&path, &Error::corruption(&path, 0, "value file", detail), affected);
        }
        Some(file)
    }

    /// Reads the value of each reference of a table. Damage to the table itself is reported
    /// elsewhere.
    fn references(
        &mut self,
        files: &Arc<OpenFiles>,
        table: &TableUse,
        opened: &BTreeMap<ValueFileId, Arc<ValueFile>>,
        affected: &str,
    ) {
        let path = self.dir.join(table_file_name(table.meta.id));
        let Ok(salvage) = Salvage::open(self.env, &path, files, Some(table.meta.birth)) else { return };
        let mut walk = Arc::new(salvage).walk();
        while let Ok(Some(entry)) = walk.next_entry() {
            if !entry.kind.in_value_file() || !table.range.contains(&entry.key) {
                continue;
            }
            // A damaged or missing file is reported already.
            let reference = ValueFileRef::decode(entry.kind.location(&entry.value));
            let Ok(reference) = reference else { continue };
            let Some(file) = opened.get(&reference.file) else { continue };
            let of = (&entry.key[..], entry.seq, entry.kind);
            if let Err(error) = file.read_checked(reference, of, &mut Reads::default(), &mut |_| Ok(())) {
                self.report.add_once(file.path(), &Error::from(error), affected);
            }
        }
    }
}
