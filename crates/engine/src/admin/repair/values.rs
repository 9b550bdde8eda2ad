//! The value files of a database under repair: found by their names or else by their birth ids, and
//! read as far as they are readable.
//!
//! A value is taken only if its fingerprint is that of its entry, so a reference that leads to
//! another value loses its entry and never makes up one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{DirEntry, Env};
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{
    BirthId, OpenFiles, Reads, ValueFile, ValueFileId, ValueFileRef, parse_value_file_name, value_file_name,
};

use super::report::RepairReport;
use crate::error::{Error, ErrorKind, Result};
use shamba_tree::version::manifest::ManifestState;

type Opened = std::result::Result<Arc<ValueFile>, Error>;

/// The value files in the directory.
pub(super) struct Values {
    env: Env,
    dir: PathBuf,
    files: Arc<OpenFiles>,
    by_id: BTreeSet<ValueFileId>,
    /// Birth ids by the manifest, as far as it could be read.
    births: BTreeMap<ValueFileId, BirthId>,
    /// Paths by birth id; computed when a file name first turns out to hold another file.
    by_birth: Option<BTreeMap<u64, PathBuf>>,
    opened: BTreeMap<ValueFileId, Opened>,
}

impl Values {
    pub(super) fn new(
        env: &Env,
        dir: &Path,
        entries: &[DirEntry],
        (files, state): (Arc<OpenFiles>, &ManifestState),
    ) -> Self {
        let versions = state.keyspaces.values().map(|keyspace| &keyspace.version);
        let births = versions
            .flat_map(|version| version.value_totals().files().map(|of| (of.file.id, of.file.birth)))
            .collect();
        let entries = entries.iter().filter(|entry| !entry.is_dir);
        let by_id = entries.filter_map(|entry| parse_value_file_name(&entry.name)).collect();
        Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            files,
            by_id,
            births,
            by_birth: None,
            opened: BTreeMap::new(),
        }
    }

    /// Reads the payload of an entry, which refers to it by the stored form `reference`. `birth_of`
    /// returns the birth id of the file, as its table states it, if that is readable.
    ///
    /// # Errors
    /// `Corruption` if the file or the value cannot be read, or belongs to another entry;
    /// `Unsupported` for a file of a newer version; `Io`.
    pub(super) fn read(
        &mut self,
        (key, seq, kind): (&[u8], SeqNo, EntryKind),
        reference: &[u8],
        birth_of: impl FnOnce(ValueFileId) -> Option<BirthId>,
        report: &mut RepairReport,
    ) -> Result<Bytes> {
        let found = ValueFileRef::decode(reference)
            .map_err(|detail| Error::corruption(&self.dir, 0, "value reference", detail))?;
        let file = match self.opened.get(&found.file) {
            Some(opened) => opened.clone()?,
            None => {
                let birth = birth_of(found.file).or_else(|| self.births.get(&found.file).copied());
                let opened = self.open(found.file, birth, report);
                match &opened {
                    // One of a newer version may be undamaged; another try may read this one.
                    Err(error) if error.kind() != ErrorKind::Corruption => return Err(error.clone()),
                    Err(error) => report.damaged(&self.path(found.file), error, "the values in this file"),
                    Ok(_) => {}
                }
                self.opened.insert(found.file, opened.clone());
                opened?
            }
        };
        let mut value = Vec::new();
        file.read_checked(found, (key, seq, kind), &mut Reads::default(), &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value.into())
    }

    fn path(&self, id: ValueFileId) -> PathBuf {
        self.dir.join(value_file_name(id))
    }

    fn open(&mut self, id: ValueFileId, birth: Option<BirthId>, report: &mut RepairReport) -> Opened {
        let path = self.path(id);
        let error = match self.by_id.contains(&id) {
            true => match self.salvage(&path, id, birth, report) {
                Err(error) if error.kind() == ErrorKind::Corruption => error,
                opened => return opened,
            },
            false => {
                let detail = "a table refers to the file, but it is missing";
                Error::corruption(&path, 0, "value file", detail)
            }
        };
        match birth.and_then(|birth| self.elsewhere(birth)).filter(|other| *other != path) {
            Some(other) => {
                report.damaged(&path, &error, "nothing: the value file exists under another name");
                self.salvage(&other, id, birth, report)
            }
            None => Err(error),
        }
    }

    fn salvage(
        &self,
        path: &Path,
        id: ValueFileId,
        birth: Option<BirthId>,
        report: &mut RepairReport,
    ) -> Opened {
        let (file, damage) = ValueFile::open_damaged(&self.env, path, &self.files, (id, birth))?;
        for damage in damage {
            report.damaged(path, &Error::from(damage), "nothing: it is not needed");
        }
        Ok(file)
    }

    /// The path of the file with this birth id.
    fn elsewhere(&mut self, birth: BirthId) -> Option<PathBuf> {
        let by_birth = self.by_birth.get_or_insert_with(|| {
            let of_name = |id: &ValueFileId| {
                let path = self.dir.join(value_file_name(*id));
                let (file, _) = ValueFile::open_damaged(&self.env, &path, &self.files, (*id, None)).ok()?;
                Some((file.birth().0, path))
            };
            self.by_id.iter().filter_map(of_name).collect()
        });
        by_birth.get(&birth.0).cloned()
    }
}
