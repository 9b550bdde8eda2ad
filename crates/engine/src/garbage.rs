//! Dead files: tables that no version names and logs whose entries are in tables.
//!
//! A table's file goes when the last view that could read it is gone, which its reference count tells: the
//! list here holds one reference. A log that memtables refer to for values goes when the last of these is gone. Removal
//! comes after the manifest edit that makes the file dead is durable.
//! A removal that fails is retried later and counted, never fatal; recovery removes what is left over.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use shamba_env::Env;
use shamba_table::table_file_name;

use crate::core::lock;
use crate::metrics::WorkCounters;
use crate::version::TableMeta;
use crate::wal::ValueLog;

/// A log, or a file of values, and whoever reads values from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFile {
    pub path: PathBuf,
    /// Held by the memtables whose entries have values there.
    pub values: Weak<ValueLog>,
}

/// Files that wait for their removal.
#[derive(Default)]
pub(crate) struct Garbage {
    tables: Mutex<Vec<Arc<TableMeta>>>,
    files: Mutex<Vec<LogFile>>,
}

impl Garbage {
    /// These tables are in no version any more.
    pub fn doom_tables(&self, tables: impl IntoIterator<Item = Arc<TableMeta>>) {
        lock(&self.tables).extend(tables);
    }

    /// This file is needed by nobody.
    pub fn doom_file(&self, path: PathBuf) {
        self.doom_log(LogFile { path, values: Weak::new() });
    }

    /// This log is needed by nobody but those who read values from it.
    pub fn doom_log(&self, log: LogFile) {
        lock(&self.files).push(log);
    }

    /// Removes what nobody reads any more.
    pub fn collect(&self, env: &Env, dir: &std::path::Path, work: &WorkCounters) {
        let mut removed_all = true;
        lock(&self.tables).retain(|meta| {
            if Arc::strong_count(meta) > 1 {
                return true;
            }
            let removed = remove(env, &dir.join(table_file_name(meta.id)));
            removed_all &= removed;
            !removed
        });
        lock(&self.files).retain(|LogFile { path, values }| {
            if values.strong_count() > 0 {
                return true;
            }
            let removed = remove(env, path);
            removed_all &= removed;
            !removed
        });
        if !removed_all {
            work.removals_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many files wait.
    pub fn waiting(&self) -> usize {
        lock(&self.tables).len() + lock(&self.files).len()
    }
}

/// Whether the file is gone now.
fn remove(env: &Env, path: &std::path::Path) -> bool {
    match env.vfs.unlink(path) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
