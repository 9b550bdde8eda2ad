//! `verify`: reads every byte of every file and reports all damage, not just the first.
//!
//! Tables are verified section by section, and the trees' invariants checked. The log and the manifest in force are
//! read as recovery would read them; what the log gained since its last sync is no promise, and no damage. Works
//! beside readers and writers; installs wait while log and manifest are read.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use shamba_table::TableReader;

use crate::core::{Core, Installing, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::version::current::CURRENT;
use crate::version::manifest::ManifestReader;
use crate::wal::{Recovery, ReplayOptions, parse_log_file_name, replay};

/// One damaged place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The structure that is damaged.
    pub structure: String,
    /// What is wrong with it.
    pub detail: String,
    /// What cannot be answered because of it, in words.
    pub affected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, structure, detail, affected } = self;
        write!(f, "{}: damaged {structure} at offset {offset}: {detail} (affects {affected})", file.display())
    }
}

/// What a check found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// All damage.
    pub problems: Vec<Problem>,
    /// Tables checked.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes read.
    pub bytes_checked: u64,
    /// What is wrong but not in the way of a right answer.
    pub warnings: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds an error as a problem.
    pub(crate) fn add(&mut self, error: &Error, affected: String) {
        let (file, offset, structure) = match error.damage() {
            Some(damage) => (damage.file.clone(), damage.offset, damage.structure.to_owned()),
            None => (PathBuf::new(), 0, "file".to_owned()),
        };
        self.problems.push(Problem { file, offset, structure, detail: error.to_string(), affected });
    }
}

impl Core {
    pub(crate) fn verify(&self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        for keyspace in self.keyspaces.load().values() {
            match keyspace.check_usable() {
                // Dropped since the list was taken: nothing of it counts any more.
                Err(error) if error.kind() == ErrorKind::Invalid => continue,
                usable => usable?,
            }
            let version = Arc::clone(&keyspace.load().version);
            for (level, _, table) in version.tables() {
                let Some(reader) = table.meta.reader.get() else { continue };
                report.tables += 1;
                report.entries += table.meta.entries;
                report.bytes_checked += table.meta.file_bytes;
                let affected = format!(
                    "level {level} of keyspace \"{}\", keys from \"{}\"",
                    keyspace.name.escape_default(),
                    table.range.lower.escape_ascii()
                );
                verify_table(reader, &affected, &mut report);
            }
            // Order between runs can be walked only where tables can be read.
            let tables_are_whole = report.problems.is_empty();
            let walked = || if tables_are_whole { crate::version::deep_check(&version) } else { Ok(()) };
            if let Err(detail) = version.check().and_then(|()| walked()) {
                let error = Error::corruption(&self.dir, 0, "tree", detail);
                report.add(&error, format!("keyspace \"{}\"", keyspace.name.escape_default()));
            }
        }
        self.verify_logs(&mut report);
        report.warnings.extend(lock(&self.warnings).iter().cloned());
        Ok(report)
    }

    /// Reads manifest and logs again. Read-only, the open has just done it.
    fn verify_logs(&self, report: &mut CheckReport) {
        // While this is held no log that the state names is given up.
        let installing = lock(&self.installing);
        let Some(Installing { manifest, state }) = installing.as_ref() else { return };
        let affected = || "the whole database".to_owned();
        match ManifestReader::load(&self.env, &self.dir) {
            Ok(Some(_)) => report.bytes_checked += manifest.bytes(),
            Ok(None) => {
                let error = Error::corruption(&self.dir.join(CURRENT), 0, CURRENT, "it is missing");
                report.add(&error, affected());
            }
            Err(error) => report.add(&error, affected()),
        }
        let options = ReplayOptions {
            first_log: state.first_log,
            promise: state.log_promise,
            known_seq: state.last_seq,
            recovery: Recovery::Strict,
            held_bytes_max: self.settings.held_value_bytes_max(),
        };
        let listed = self.env.vfs.list(&self.dir).map_err(|error| Error::io("list", &self.dir, error));
        let read = listed.and_then(|entries| {
            let logs: Vec<_> = entries.iter().filter_map(|entry| parse_log_file_name(&entry.name)).collect();
            replay(&self.env, &self.dir, &logs, &options, &mut |_| Ok(()))
        });
        match read {
            Ok(replayed) => {
                report.bytes_checked += replayed.logs.iter().map(|log| log.file_bytes).sum::<u64>()
            }
            Err(error) => report.add(&error, "writes since the last flush".to_owned()),
        }
    }
}

/// Damage to a filter leaves every answer right; everything else is a problem.
fn verify_table(reader: &Arc<TableReader>, affected: &str, report: &mut CheckReport) {
    for error in reader.verify() {
        let error = Error::from(error);
        let in_filter = error.damage().is_some_and(|damage| damage.structure.contains("filter"));
        report.add(&error, if in_filter { "nothing but speed".into() } else { affected.to_owned() });
    }
}
