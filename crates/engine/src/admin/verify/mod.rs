//! `verify`: reads every byte of every file and reports all damage, not only the first.
//!
//! Tables are verified section by section, and the invariants of the trees are checked. The logs
//! and the current manifest are read as recovery would read them. Bytes appended to a log since its
//! last sync are not promised, so they are not reported as damage. Reads and writes can run
//! concurrently; installs wait while logs and manifest are read.
//!
//! Damage to a filter is a warning, because every answer is right without it. All other damage is a
//! problem.
//!
//! Not here: the check of a database that cannot be opened ([`files`]).

mod files;
mod values;

pub use self::files::check_files;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::Env;
use shamba_table::{TableReader, WRONG_FILTER};

use crate::catalog::Catalog;
use crate::directory::log_numbers;
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry::Telemetry;
use shamba_log::wal::{Recovery, ReplayOptions, ReplayReport, replay};
use shamba_tree::version::current::{CURRENT, read_current};
use shamba_tree::version::manifest::{ManifestReader, ManifestState, manifest_file_name};

/// One damaged place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Offset of the damage in the file, in bytes.
    pub offset: u64,
    /// The structure that is damaged.
    pub structure: String,
    /// Description of the damage.
    pub detail: String,
    /// The data or operations affected, in words.
    pub affected: String,
    /// The file is of a version, or has a feature, that this build does not know. It was not read,
    /// and may be undamaged.
    pub is_unsupported: bool,
}

impl Problem {
    /// Creates a problem from an error of reading `path`. The error may name another file, which
    /// then takes precedence.
    pub(crate) fn of(path: &Path, error: &Error, affected: String) -> Self {
        let (file, offset, structure) = match error.damage() {
            Some(damage) => (damage.file.clone(), damage.offset, damage.structure.to_owned()),
            None => (path.to_path_buf(), 0, "file".to_owned()),
        };
        let is_unsupported = error.kind() == ErrorKind::Unsupported;
        Self { file, offset, structure, detail: error.chain().to_string(), affected, is_unsupported }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, structure, detail, affected, .. } = self;
        let file = file.display().to_string();
        // The text of an error already contains file, structure and offset.
        if !detail.contains(&file) {
            write!(f, "{file}: damaged {structure} at offset {offset}: ")?;
        }
        f.write_str(detail)?;
        if affected.is_empty() { Ok(()) } else { write!(f, " (affects {affected})") }
    }
}

/// Result of a check.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// All damage except that of filters.
    pub problems: Vec<Problem>,
    /// Tables checked.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Value files checked.
    pub value_files: u64,
    /// Logs checked.
    pub logs: u64,
    /// Batches in them.
    pub log_batches: u64,
    /// Operations in these batches.
    pub log_operations: u64,
    /// Bytes read: tables, logs and the manifest.
    pub bytes_checked: u64,
    /// Damage and anomalies that affect no answer.
    pub warnings: Vec<String>,
}

impl CheckReport {
    /// Whether nothing but filters is damaged.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds the error with which the open of the database in `dir` failed, unless a problem in the
    /// report explains it.
    #[must_use]
    pub fn with(mut self, error: &Error, dir: &Path) -> Self {
        let is_told = match error.damage() {
            Some(damage) => self.problems.iter().any(|known| known.file == damage.file),
            None => self.problems.iter().any(|known| known.is_unsupported),
        };
        if !is_told {
            self.add(dir, error, "the whole database: it cannot be opened".to_owned());
        }
        self
    }

    /// Adds a warning, unless the report contains it already.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds a problem, unless the report contains one at the same place.
    fn add_once(&mut self, path: &Path, error: &Error, affected: &str) {
        let (file, offset) = match error.damage() {
            Some(damage) => (damage.file.as_path(), damage.offset),
            None => (path, 0),
        };
        let is_told =
            |known: &Problem| known.file == file && (known.offset == offset || error.damage().is_none());
        if !self.problems.iter().any(is_told) {
            self.add(path, error, affected.to_owned());
        }
    }

    /// Adds an error of reading `path` as a problem.
    pub(crate) fn add(&mut self, path: &Path, error: &Error, affected: String) {
        self.problems.push(Problem::of(path, error, affected));
    }
}

/// Checks every file of an open database. `has_failed` tells whether writes are off.
///
/// # Errors
/// `Closed`. Damage is in the report and not an error.
pub(super) fn verify(
    env: &Env,
    catalog: &Catalog,
    telemetry: &Telemetry,
    has_failed: impl FnOnce() -> bool,
    held_bytes_max: u64,
) -> Result<CheckReport> {
    let dir = catalog.dir();
    let mut report = CheckReport::default();
    for keyspace in catalog.keyspaces().values() {
        match keyspace.check_usable() {
            // Dropped since the list was loaded: it need not be checked.
            Err(error) if error.kind() == ErrorKind::Invalid => continue,
            usable => usable?,
        }
        let version = Arc::clone(&keyspace.load().version);
        for (level, _, table) in version.tables() {
            report.tables += 1;
            report.entries += table.meta.entries;
            report.bytes_checked += table.meta.file_bytes;
            let affected = format!(
                "level {level} of keyspace \"{}\", keys from \"{}\"",
                keyspace.name.escape_default(),
                table.range.lower.escape_ascii()
            );
            match table.meta.open() {
                Ok(reader) => verify_table(&reader, &affected, &mut report),
                Err(error) => {
                    let path = dir.join(shamba_table::table_file_name(table.meta.id));
                    report.add(&path, &Error::from(error), affected);
                }
            }
        }
        for total in version.value_totals().files() {
            let Some(file) = total.file.file.get() else { continue };
            report.value_files += 1;
            report.bytes_checked += total.file.file_bytes;
            let affected = format!("values of keyspace \"{}\"", keyspace.name.escape_default());
            for error in file.verify() {
                report.add_once(file.path(), &Error::from(error), &affected);
            }
        }
        // The order of runs can be checked only if all tables can be read.
        let tables_are_whole = report.problems.is_empty();
        let walked = || if tables_are_whole { shamba_tree::version::deep_check(&version) } else { Ok(()) };
        if let Err(detail) = version.check().and_then(|()| walked()) {
            let error = Error::corruption(dir, 0, "tree", detail);
            report.add(dir, &error, format!("keyspace \"{}\"", keyspace.name.escape_default()));
        }
    }
    // Nothing is installed meanwhile. In a read-only database nothing removes logs.
    catalog.with_state(|state| verify_logs(env, dir, state, has_failed, held_bytes_max, &mut report));
    match crate::statistics::file::read(env, dir) {
        Ok(read) => report.bytes_checked += read.map_or(0, |(_, bytes)| bytes),
        Err(error) => report.warn(crate::statistics::file::warning(&error)),
    }
    for warning in telemetry.warnings() {
        report.warn(warning);
    }
    Ok(report)
}

/// Reads the manifest and the logs again. `in_force` is the state that the catalog holds.
/// `has_failed` is asked while no edit can be installed.
fn verify_logs(
    env: &Env,
    dir: &Path,
    in_force: Option<&ManifestState>,
    has_failed: impl FnOnce() -> bool,
    held_bytes_max: u64,
    report: &mut CheckReport,
) {
    let loaded = match ManifestReader::load(env, dir) {
        Ok(Some(loaded)) => Ok(loaded.state),
        Ok(None) => Err(Error::corruption(&dir.join(CURRENT), 0, CURRENT, "it is missing")),
        Err(error) => Err(error.into()),
    };
    let in_files = match loaded {
        Ok(state) => {
            report.bytes_checked += manifest_bytes(env, dir);
            Some(state)
        }
        Err(error) => {
            report.add(&dir.join(CURRENT), &error, "the whole database".to_owned());
            None
        }
    };
    // No edit is being appended, so the file has what is in force, unless it has lost its end.
    // After an append that failed, when writes are off, it may have one edit more.
    let comparable = in_force.filter(|_| !has_failed()).zip(in_files.as_ref());
    let lost = comparable.and_then(|(in_force, in_files)| in_force.difference(in_files));
    if let Some(difference) = lost {
        let detail = format!("it is not the state of the open database: {difference}");
        let error = Error::corruption(&manifest_path(env, dir), 0, "manifest", detail);
        report.add(dir, &error, "the whole database, from its next open on".to_owned());
    }
    let Some(state) = in_force.or(in_files.as_ref()) else { return };
    match replay_strictly(env, dir, state, held_bytes_max) {
        Ok(replayed) => {
            report.logs += replayed.logs.len() as u64;
            report.log_batches += replayed.batches;
            report.log_operations += replayed.ops;
            report.bytes_checked += replayed.logs.iter().map(|log| log.file_bytes).sum::<u64>()
        }
        Err(error) => report.add(dir, &error, "writes since the last flush".to_owned()),
    }
}

/// The current manifest, which was just read.
fn manifest_path(env: &Env, dir: &Path) -> PathBuf {
    let current = read_current(env, dir).ok().flatten();
    dir.join(current.map_or_else(|| CURRENT.to_owned(), |current| manifest_file_name(current.number)))
}

/// Its length; 0 if it cannot be determined.
fn manifest_bytes(env: &Env, dir: &Path) -> u64 {
    let file = env.vfs.open_read(&manifest_path(env, dir));
    file.ok().and_then(|file| file.len().ok()).unwrap_or(0)
}

/// Reads the logs of the database in `dir` like an open that accepts no damage, and discards the
/// content.
///
/// # Errors
/// As [`replay`].
pub(crate) fn replay_strictly(
    env: &Env,
    dir: &Path,
    state: &ManifestState,
    held_bytes_max: u64,
) -> Result<ReplayReport> {
    let options = ReplayOptions {
        first_log: state.first_log,
        promise: state.log_promise,
        known_seq: state.last_seq,
        recovery: Recovery::Strict,
        held_bytes_max,
    };
    let entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let names = entries.iter().map(|entry| &entry.name[..]);
    let logs: Vec<_> = log_numbers(names, Some(state.next_id)).collect();
    replay(env, dir, &logs, &options, &mut |_| Ok(()))
}

fn verify_table(reader: &Arc<TableReader>, affected: &str, report: &mut CheckReport) {
    for error in reader.verify() {
        let error = Error::from(error);
        match error.damage() {
            Some(damage) if damage.structure.contains("filter") && damage.structure != WRONG_FILTER => {
                let text = error.chain().to_string();
                // The warning from loading the filter states the consequence, too, and may be in
                // the report already; prefer it.
                let loaded = reader.filter_warnings().into_iter().find(|warning| warning.starts_with(&text));
                report.warn(loaded.unwrap_or(text));
            }
            _ => report.add(reader.path(), &error, affected.to_owned()),
        }
    }
}
