//! Obsolete files: tables that no version names, and logs whose entries are in tables.
//!
//! A table's file is deleted when the last view that could read it is gone. The reference count of
//! its metadata shows that: the list here holds one reference. A log that memtables refer to for
//! values is deleted when the last of them is gone, and when no stream of changes reads it.
//! Deletion comes after the manifest edit that makes the file obsolete is durable. A failed
//! deletion is retried later and counted, never fatal; recovery deletes files that are left over.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use shamba_env::Env;
use shamba_table::table_file_name;

use crate::lock_order;
use crate::metrics::WorkCounters;
use crate::ranked::Ranked;
use shamba_log::wal::ValueLog;
use shamba_tree::version::TableMeta;

/// A log or side file, with the readers of its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFile {
    pub path: PathBuf,
    /// Kept alive by the memtables whose values are in the file.
    pub values: Weak<ValueLog>,
    /// Kept alive by the streams of changes that read the file.
    pub readers: Weak<()>,
}

/// Obsolete files to be deleted.
pub(super) struct ObsoleteFiles {
    tables: Ranked<Vec<Arc<TableMeta>>>,
    files: Ranked<Vec<LogFile>>,
}

impl Default for ObsoleteFiles {
    fn default() -> Self {
        Self {
            tables: Ranked::new(lock_order::OBSOLETE_TABLES, Vec::new()),
            files: Ranked::new(lock_order::OBSOLETE_FILES, Vec::new()),
        }
    }
}

impl ObsoleteFiles {
    /// Marks tables obsolete: they are in no version any more.
    pub fn mark_tables_obsolete(&self, tables: impl IntoIterator<Item = Arc<TableMeta>>) {
        let mut obsolete = self.tables.lock();
        for table in tables {
            // Each reference in the list would keep the file for the other.
            debug_assert!(
                obsolete.iter().all(|other| !Arc::ptr_eq(other, &table)),
                "table {} is marked obsolete twice",
                table.id
            );
            obsolete.push(table);
        }
    }

    /// Marks a file obsolete that has no readers.
    pub fn mark_file_obsolete(&self, path: PathBuf) {
        self.mark_log_obsolete(LogFile { path, ..LogFile::default() });
    }

    /// Marks a log obsolete; readers of its values may remain.
    pub fn mark_log_obsolete(&self, log: LogFile) {
        self.files.lock().push(log);
    }

    /// Deletes the obsolete files without readers.
    pub fn collect(&self, env: &Env, dir: &std::path::Path, work: &WorkCounters) {
        let mut removed_all = true;
        self.tables.lock().retain(|meta| {
            if Arc::strong_count(meta) > 1 {
                return true;
            }
            let removed = remove(env, &dir.join(table_file_name(meta.id)));
            removed_all &= removed;
            !removed
        });
        self.files.lock().retain(|LogFile { path, values, readers }| {
            if values.strong_count() > 0 || readers.strong_count() > 0 {
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

    /// Number of obsolete files not yet deleted.
    pub fn waiting(&self) -> usize {
        self.tables.lock().len() + self.files.lock().len()
    }
}

/// Deletes a file; true if it does not exist any more.
fn remove(env: &Env, path: &std::path::Path) -> bool {
    match env.vfs.unlink(path) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shamba_env::{MemFs, Vfs};
    use shamba_table::BirthId;

    use super::*;
    use shamba_key::LogNo;
    use shamba_tree::version::TableUse;

    #[test]
    fn a_table_stays_while_a_view_refers_to_it() {
        let vfs = Arc::new(MemFs::new());
        let env = Env::deterministic(Arc::clone(&vfs) as Arc<dyn Vfs>, 1);
        let dir = Path::new("/");
        let (obsolete, work) = (ObsoleteFiles::default(), WorkCounters::default());
        let path = dir.join(table_file_name(shamba_table::TableId(2)));
        vfs.create(&path).expect("created");
        let table: TableUse = "2:a..z 40".parse().expect("notation");
        let view = Arc::clone(&table.meta);
        obsolete.mark_tables_obsolete([table.meta]);
        obsolete.collect(&env, dir, &work);
        assert!(vfs.exists(&path).expect("asked") && obsolete.waiting() == 1);
        drop(view);
        obsolete.collect(&env, dir, &work);
        assert!(!vfs.exists(&path).expect("asked") && obsolete.waiting() == 0);
    }

    #[test]
    fn a_log_stays_while_a_memtable_refers_to_it() {
        let vfs = Arc::new(MemFs::new());
        let env = Env::deterministic(Arc::clone(&vfs) as Arc<dyn Vfs>, 1);
        let dir = Path::new("/");
        let (obsolete, work) = (ObsoleteFiles::default(), WorkCounters::default());
        let there = |name: &str| vfs.exists(&dir.join(name)).expect("asked");
        for name in ["read.log", "unread.log"] {
            vfs.create(&dir.join(name)).expect("created");
        }
        let values = ValueLog::new(&env, &dir.join("read.log"), LogNo(1), BirthId(1));
        let values_of = Arc::downgrade(&values);
        obsolete.mark_log_obsolete(LogFile {
            path: dir.join("read.log"),
            values: values_of,
            ..LogFile::default()
        });
        obsolete.mark_file_obsolete(dir.join("unread.log"));
        obsolete.collect(&env, dir, &work);
        assert!(there("read.log") && !there("unread.log") && obsolete.waiting() == 1);
        drop(values);
        obsolete.collect(&env, dir, &work);
        assert!(!there("read.log") && obsolete.waiting() == 0);
        assert_eq!(work.removals_failed.load(Ordering::Relaxed), 0);
    }
}
