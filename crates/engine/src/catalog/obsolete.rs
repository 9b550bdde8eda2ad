//! Obsolete files: tables that no version names, value files that no table names, and logs whose
//! entries are in tables.
//!
//! A table's file is deleted when the last view that could read it is gone. The reference count of
//! its metadata shows that: the list here holds one reference. A table's metadata refers to that of
//! its value files, so a value file follows the last of its tables in the same way. A log that
//! memtables refer to for values is deleted when the last of them is gone, and when no stream of
//! changes reads it. Deletion comes after the manifest edit that makes the file obsolete is
//! durable. A failed deletion is retried later and counted, never fatal; recovery deletes files
//! that are left over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use shamba_env::Env;
use shamba_table::{ValueFileId, table_file_name, value_file_name};

use crate::lock_order;
use crate::metrics::WorkCounters;
use crate::ranked::Ranked;
use shamba_log::wal::ValueLog;
use shamba_tree::version::{TableMeta, ValueFileMeta};

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
    tables: Ranked<Obsolete>,
    files: Ranked<Vec<LogFile>>,
}

/// Obsolete tables, and value files that tables which are deleted already have referred to.
#[derive(Default)]
struct Obsolete {
    tables: Vec<Arc<TableMeta>>,
    values: BTreeMap<ValueFileId, Arc<ValueFileMeta>>,
}

impl Obsolete {
    /// Notes the value files of a table that is deleted.
    fn note_values(&mut self, table: &TableMeta) {
        for of in table.values.get().files() {
            let known = self.values.entry(of.file.id).or_insert_with(|| Arc::clone(&of.file));
            // The count of one would not show that the other is in use.
            assert!(Arc::ptr_eq(known, &of.file), "value file {} is known twice", of.file.id);
        }
    }

    /// The value files to which no table refers any more, other than through the list.
    fn unreferenced(&self) -> impl Iterator<Item = &Arc<ValueFileMeta>> {
        self.values.values().filter(|file| Arc::strong_count(file) == 1)
    }
}

impl Default for ObsoleteFiles {
    fn default() -> Self {
        Self {
            tables: Ranked::new(lock_order::OBSOLETE_TABLES, Obsolete::default()),
            files: Ranked::new(lock_order::OBSOLETE_FILES, Vec::new()),
        }
    }
}

impl ObsoleteFiles {
    /// Marks tables obsolete: they are in no version any more.
    pub fn mark_tables_obsolete(&self, tables: impl IntoIterator<Item = Arc<TableMeta>>) {
        let obsolete = &mut self.tables.lock().tables;
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
        {
            let mut obsolete = self.tables.lock();
            let mut deleted = Vec::new();
            obsolete.tables.retain(|meta| {
                if Arc::strong_count(meta) > 1 {
                    return true;
                }
                let removed = remove(env, &dir.join(table_file_name(meta.id)));
                removed_all &= removed;
                if removed {
                    deleted.push(Arc::clone(meta));
                }
                !removed
            });
            deleted.iter().for_each(|meta| obsolete.note_values(meta));
            drop(deleted);
            obsolete.values.retain(|_, meta| {
                if Arc::strong_count(meta) > 1 {
                    return true;
                }
                let removed = remove(env, &dir.join(value_file_name(meta.id)));
                removed_all &= removed;
                !removed
            });
        }
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
        let tables = {
            let obsolete = self.tables.lock();
            obsolete.tables.len() + obsolete.unreferenced().count()
        };
        tables + self.files.lock().len()
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

    use shamba_env::{Effect, FaultFs, FaultRule, MemFs, OpKind, Vfs};
    use shamba_table::BirthId;

    use super::*;
    use shamba_key::LogNo;
    use shamba_tree::version::{TableUse, Version};

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

    /// Each kind of file in turn cannot be removed, and is tried again at the next collection.
    #[test]
    fn a_file_that_cannot_be_removed_is_counted_and_tried_again() {
        let dir = Path::new("/");
        let names = ["000002.sst", "000031.values", "000005.log"];
        for stuck in names {
            let vfs = Arc::new(MemFs::new());
            let faults = FaultFs::new(Arc::clone(&vfs) as Arc<dyn Vfs>, 1);
            let env = Env::deterministic(Arc::new(faults.clone()), 1);
            let there =
                || names.into_iter().filter(|name| vfs.exists(&dir.join(name)).expect("asked")).collect();
            let (obsolete, work) = (ObsoleteFiles::default(), WorkCounters::default());
            names.iter().for_each(|name| drop(vfs.create(&dir.join(name)).expect("created")));
            let text = "L1: r3@3[000002:a..z 40 val=31:1:10]\nV: 000031 100 n=1\n";
            let version: Version = text.parse().expect("notation");
            obsolete.mark_tables_obsolete(version.tables().map(|(_, _, table)| Arc::clone(&table.meta)));
            drop(version);
            obsolete.mark_file_obsolete(dir.join("000005.log"));
            assert_eq!(obsolete.waiting(), 2, "the table and the log; the table refers to the value file");
            faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Unlink]).at_path(stuck));
            obsolete.collect(&env, dir, &work);
            let left: Vec<&str> = there();
            let kept = if stuck == names[0] { &names[..2] } else { &[stuck][..] };
            assert_eq!((left.as_slice(), obsolete.waiting()), (kept, 1), "{stuck}");
            assert_eq!(work.removals_failed.load(Ordering::Relaxed), 1, "{stuck}");
            obsolete.collect(&env, dir, &work);
            assert_eq!((there(), obsolete.waiting()), (Vec::new(), 0), "{stuck}");
            assert_eq!(work.removals_failed.load(Ordering::Relaxed), 1, "{stuck}");
        }
    }

    /// A file that is gone already is not kept in the list, and not a failure.
    #[test]
    fn a_file_that_is_missing_counts_as_removed() {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let (obsolete, work) = (ObsoleteFiles::default(), WorkCounters::default());
        obsolete.mark_file_obsolete(PathBuf::from("/000009.log"));
        obsolete.collect(&env, Path::new("/"), &work);
        assert_eq!((obsolete.waiting(), work.removals_failed.load(Ordering::Relaxed)), (0, 0));
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
