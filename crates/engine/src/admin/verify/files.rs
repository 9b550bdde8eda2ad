//! The check of a database that cannot be opened. It reads each file separately, so that one report
//! names all damage.
//!
//! `CURRENT` and the manifest come first. If they can be read, they state which tables and logs
//! must exist and which are obsolete. In a table every structure is checked, independent of damage
//! to the others. A log is checked up to its first damage, because nothing after it is valid.
//! Nothing is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{DirEntry, Env, FileError, LockKind};
use shamba_table::{BirthId, OpenFiles, TableId, parse_table_file_name, survey_damage, table_file_name};

use super::{CheckReport, replay_strictly};
use crate::admin::inspect::{Ending, wal_file};
use crate::directory::{LOCK, file_number, is_stray, locked, log_numbers};
use crate::error::{Error, ErrorKind, Result};
use crate::options::settings::Settings;
use shamba_key::LogNo;
use shamba_log::wal::log_file_name;
use shamba_tree::version::current::CURRENT;
use shamba_tree::version::manifest::load::Loaded;
use shamba_tree::version::manifest::{ManifestReader, ManifestState};

/// The result of reading the current manifest.
type Loading = std::result::Result<Option<Loaded>, FileError>;

/// Maximum number of files that are open at once: a table, and the value files that its entries
/// refer to in turn.
const OPEN_FILES: usize = 64;

/// Checks every file of the database in `dir` without opening it.
///
/// # Errors
/// `Io` if the directory does not exist or cannot be listed; `Locked` while a writer has it open.
/// Damage to a file is part of the report.
pub fn check_files(env: &Env, dir: &Path) -> Result<CheckReport> {
    let list = || env.vfs.list(dir).map_err(|error| Error::io("list", dir, error));
    list()?;
    let _no_writer = match env.vfs.lock(&dir.join(LOCK), LockKind::Shared) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            return Err(locked(dir, &error, 0));
        }
        Err(_) => None,
    };
    // Under the lock: a writer that closes adds and removes files.
    let entries = list()?;
    let mut check = FileCheck { env, dir, entries: &entries, report: CheckReport::default() };
    let loaded = ManifestReader::load(env, dir);
    check.directories(loaded.as_ref().ok().and_then(Option::as_ref).map(|loaded| loaded.state.next_id));
    let state = check.manifest(loaded);
    check.tables(state.as_ref());
    check.logs(state.as_ref());
    match crate::statistics::file::read(env, dir) {
        Ok(read) => check.report.bytes_checked += read.map_or(0, |(_, bytes)| bytes),
        Err(error) => check.report.warn(crate::statistics::file::warning(&error)),
    }
    Ok(check.report)
}

pub(super) struct FileCheck<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a Path,
    pub(super) entries: &'a [DirEntry],
    pub(super) report: CheckReport,
}

impl FileCheck<'_> {
    /// Reports directories that have the name of a database file. `next_id` is the next number, if
    /// the manifest can be read.
    fn directories(&mut self, next_id: Option<u64>) {
        let is_ours =
            |name: &str| file_number(name).is_some() && !next_id.is_some_and(|next| is_stray(name, next));
        for entry in self.entries.iter().filter(|entry| entry.is_dir) {
            let name = entry.name.as_str();
            if name == CURRENT || is_ours(name) {
                let path = self.dir.join(name);
                let error = Error::corruption(&path, 0, "file", "a directory is in its place");
                self.report.add(&path, &error, "this file".to_owned());
            }
        }
    }

    fn manifest(&mut self, loaded: Loading) -> Option<ManifestState> {
        match loaded {
            Ok(Some(loaded)) => {
                loaded.torn.iter().for_each(|torn| self.report.warn(torn.to_string()));
                let bytes = self.entries.iter().filter(|entry| entry.name.starts_with("MANIFEST-"));
                self.report.bytes_checked += bytes.map(|entry| entry.bytes).max().unwrap_or(0);
                Some(loaded.state)
            }
            Ok(None) => {
                let path = self.dir.join(CURRENT);
                let error = Error::corruption(&path, 0, CURRENT, "it is missing");
                self.report.add_once(&path, &error, "the whole database: it cannot be opened");
                None
            }
            Err(error) => {
                let error = error.into();
                let path = self.named_in(&error).unwrap_or_else(|| self.dir.join(CURRENT));
                self.report.add_once(&path, &error, "the whole database: it cannot be opened");
                None
            }
        }
    }

    /// Checks the tables that the manifest names; without a manifest, all tables in the directory.
    fn tables(&mut self, state: Option<&ManifestState>) {
        let there: BTreeSet<TableId> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_dir)
            .filter_map(|entry| parse_table_file_name(&entry.name))
            .collect();
        let files = Arc::new(OpenFiles::new(OPEN_FILES));
        let Some(state) = state else {
            for id in &there {
                self.table(&files, *id, None, "the keys of this table");
            }
            self.unnamed_value_files(&files);
            return;
        };
        let mut seen = BTreeSet::new();
        for keyspace in state.keyspaces.values() {
            for (level, _, used) in keyspace.version.tables() {
                if !seen.insert(used.meta.id) {
                    // Several runs may share a file.
                    continue;
                }
                let (name, lower) = (keyspace.name.escape_default(), used.range.lower.escape_ascii());
                let affected = format!("level {level} of keyspace \"{name}\", keys from \"{lower}\"");
                if there.contains(&used.meta.id) {
                    self.table(&files, used.meta.id, Some(used.meta.birth), &affected);
                    self.length(used.meta.id, used.meta.file_bytes, &affected);
                } else {
                    let path = self.dir.join(table_file_name(used.meta.id));
                    let detail = "the manifest names the file, but it is missing";
                    self.report.add_once(&path, &Error::corruption(&path, 0, "table", detail), &affected);
                }
            }
        }
        self.value_files(&files, state);
    }

    fn table(&mut self, files: &Arc<OpenFiles>, id: TableId, birth: Option<BirthId>, affected: &str) {
        let path = self.dir.join(table_file_name(id));
        match survey_damage(self.env, &path, files, birth) {
            Ok((damage, entries)) => {
                let damage: Vec<Error> = damage.into_iter().map(Error::from).collect();
                // A table of an unknown version is not counted as checked, even if it was readable.
                if damage.iter().all(|error| error.kind() != ErrorKind::Unsupported) {
                    self.report.tables += 1;
                    self.report.entries += entries;
                    self.report.bytes_checked += self.length_of(&path);
                }
                for error in damage {
                    match error.damage() {
                        Some(damage) if damage.structure.contains("filter") => {
                            self.report.warn(error.chain().to_string());
                        }
                        _ => self.report.add_once(&path, &error, affected),
                    }
                }
            }
            Err(error) => self.report.add_once(&path, &error.into(), affected),
        }
    }

    /// Reports a file whose length differs from that in the manifest, if no other damage of it is
    /// known.
    fn length(&mut self, id: TableId, expected: u64, affected: &str) {
        let path = self.dir.join(table_file_name(id));
        let found = self.length_of(&path);
        if found != expected && !self.report.problems.iter().any(|problem| problem.file == path) {
            let detail = format!("{found} bytes long, the manifest states {expected}");
            self.report.add_once(
                &path,
                &Error::corruption(&path, found.min(expected), "table", detail),
                affected,
            );
        }
    }

    fn logs(&mut self, state: Option<&ManifestState>) {
        let first = state.map_or(LogNo(0), |state| state.first_log);
        let files = self.entries.iter().filter(|entry| !entry.is_dir);
        let names = files.map(|entry| &entry.name[..]);
        for number in log_numbers(names, state.map(|state| state.next_id)).filter(|number| *number >= first) {
            self.log(number);
        }
        // Faults that only the logs and the manifest together reveal: a log that is missing, or
        // shorter than promised.
        if let Some(state) = state {
            if let Err(error) =
                replay_strictly(self.env, self.dir, state, Settings::default().held_value_bytes_max())
            {
                let path = self.named_in(&error).unwrap_or_else(|| self.dir.to_path_buf());
                self.report.add_once(&path, &error, "writes since the last flush");
            }
        }
    }

    fn log(&mut self, number: LogNo) {
        let path = self.dir.join(log_file_name(number));
        match wal_file(self.env, &path) {
            Ok(log) => {
                let fields = || log.records.iter().flat_map(|record| &record.fields);
                let is_operation = |name: &str| matches!(name, "put" | "delete" | "range_delete" | "merge");
                self.report.logs += 1;
                self.report.log_batches += fields().filter(|(name, _)| *name == "batch").count() as u64;
                self.report.log_operations += fields().filter(|(name, _)| is_operation(name)).count() as u64;
                self.report.bytes_checked += self.length_of(&path);
                match &log.ending {
                    Ending::Corrupt { offset, detail } => {
                        let error = Error::corruption(&path, *offset, "log frame", detail);
                        self.report.add_once(&path, &error, "all writes from there on");
                    }
                    Ending::Torn { offset, bytes, detail } => self.report.warn(format!(
                        "{}: {bytes} bytes from offset {offset} ignored: {detail}",
                        path.display()
                    )),
                    _ => {}
                }
            }
            Err(error) => self.report.add_once(&path, &error, "this log"),
        }
    }

    /// The file that an error without a damage position refers to.
    fn named_in(&self, error: &Error) -> Option<PathBuf> {
        if let Some(damage) = error.damage() {
            return Some(damage.file.clone());
        }
        let paths = self.entries.iter().map(|entry| self.dir.join(&entry.name));
        paths.into_iter().find(|path| error.context().contains(&path.display().to_string()))
    }

    fn length_of(&self, path: &Path) -> u64 {
        self.env.vfs.open_read(path).ok().and_then(|file| file.len().ok()).unwrap_or(0)
    }
}
