//! The check of value files in a database that cannot be opened, and of the references to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_table::{
    BirthId, OpenFiles, Reads, Salvage, ValueFile, ValueFileId, ValueFileRef, parse_value_file_name,
    table_file_name, value_file_name,
};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{TableUse, ValueFileMeta};

use super::files::FileCheck;
use crate::error::Error;

/// Maximum number of damaged values that are reported of a file.
const DAMAGED_MAX: u32 = 100;

/// A value file that can be read, and the number of damaged values found in it.
struct Readable {
    file: Arc<ValueFile>,
    damaged: u32,
}

impl FileCheck<'_> {
    /// Checks the value files that the manifest names, and each reference to a value in them.
    pub(super) fn value_files(&mut self, files: &Arc<OpenFiles>, state: &ManifestState) {
        for keyspace in state.keyspaces.values() {
            let affected = format!("values of keyspace \"{}\"", keyspace.name.escape_default());
            let totals = keyspace.version.value_totals();
            let mut opened = BTreeMap::new();
            for total in totals.files() {
                if let Some(file) = self.value_file(files, &total.file, &affected) {
                    opened.insert(total.file.id, Readable { file, damaged: 0 });
                }
            }
            for (_, _, table) in keyspace.version.tables() {
                self.references(files, table, &mut opened, &affected);
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
        let file = self.value_file_alone(files, (meta.id, Some(meta.birth)), affected)?;
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

    /// Checks all value files in the directory, where no manifest names any.
    pub(super) fn unnamed_value_files(&mut self, files: &Arc<OpenFiles>) {
        let there = self.entries.iter().filter(|entry| !entry.is_dir);
        let there: BTreeSet<ValueFileId> =
            there.filter_map(|entry| parse_value_file_name(&entry.name)).collect();
        for id in there {
            self.value_file_alone(files, (id, None), "the values of this file");
        }
    }

    /// Checks a value file in itself.
    fn value_file_alone(
        &mut self,
        files: &Arc<OpenFiles>,
        of: (ValueFileId, Option<BirthId>),
        affected: &str,
    ) -> Option<Arc<ValueFile>> {
        let path = self.dir.join(value_file_name(of.0));
        let (file, damage) = match ValueFile::open_damaged(self.env, &path, files, of) {
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
        Some(file)
    }

    /// Reads the value of each reference of a table, and counts them. Damage to the table itself is
    /// reported elsewhere.
    fn references(
        &mut self,
        files: &Arc<OpenFiles>,
        table: &TableUse,
        opened: &mut BTreeMap<ValueFileId, Readable>,
        affected: &str,
    ) {
        let path = self.dir.join(table_file_name(table.meta.id));
        let Ok(salvage) = Salvage::open(self.env, &path, files, Some(table.meta.birth)) else { return };
        if salvage.value_uses().is_empty() && table.values.is_empty() {
            return;
        }
        let named = table.meta.values.get();
        if let Some(of) = salvage.value_uses().iter().find(|of| named.of(of.file).is_none()) {
            let detail =
                format!("it refers to the value file {}, which the manifest does not state", of.file);
            self.report.add_once(&path, &Error::corruption(&path, 0, "table", detail), affected);
        }
        let mut counts: BTreeMap<ValueFileId, (u64, u64)> = BTreeMap::new();
        let mut walk = Arc::new(salvage).walk();
        while let Ok(Some(entry)) = walk.next_entry() {
            if !entry.kind.in_value_file() || !table.range.contains(&entry.key) {
                continue;
            }
            let reference = ValueFileRef::decode(entry.kind.location(&entry.value));
            let Ok(reference) = reference else { continue };
            let (values, bytes) = counts.entry(reference.file).or_default();
            *values += 1;
            *bytes += u64::from(reference.stored_bytes);
            // A missing file is reported already, and one with much damage is reported often
            // enough.
            let Some(readable) = opened.get_mut(&reference.file) else { continue };
            if readable.damaged >= DAMAGED_MAX {
                continue;
            }
            let of = (&entry.key[..], entry.seq, entry.kind);
            let read = readable.file.read_checked(reference, of, &mut Reads::default(), &mut |_| Ok(()));
            if let Err(error) = read {
                readable.damaged += 1;
                self.report.add_once(readable.file.path(), &Error::from(error), affected);
            }
        }
        let is_whole = walk.take_gaps().is_empty() && table.meta.expiring.get().is_none();
        let stated: BTreeMap<ValueFileId, (u64, u64)> =
            table.values.files().iter().map(|of| (of.file.id, (of.values, of.bytes))).collect();
        if is_whole && counts != stated {
            let detail = format!(
                "its entries refer to values and bytes {counts:?} of value files, the manifest states {stated:?}"
            );
            self.report.add_once(&path, &Error::corruption(&path, 0, "value references", detail), affected);
        }
    }
}
