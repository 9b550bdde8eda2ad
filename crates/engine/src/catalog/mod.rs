//! Catalog: the current version of every keyspace, and how an edit of it is installed.
//!
//! [`Catalog`] owns the manifest, the keyspaces with their published views, the numbers of files,
//! runs and keyspaces, and the files that are obsolete. Readers load a keyspace's view without a
//! lock. An edit becomes durable first and visible afterwards, one at a time ([`install`]).
//!
//! [`InstallObserver`]s do the rest of an install: they charge memory, give up stale views and wake
//! workers. They are set once, when the database is composed.
//!
//! Locks: the install lock is taken before a keyspace's publish lock and before leaves.

mod edits;
mod install;
mod keyspace;
mod known_logs;
mod obsolete;
mod published;
mod readable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, Guard};
use shamba_env::Env;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};
use shamba_memtable::Memtable;
use shamba_table::{BirthId, TableId, ValueFileId};
use shamba_tree::expiry::ExpiryClock;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};
use shamba_tree::version::{HistoryEntry, TableMeta};

pub(crate) use self::keyspace::KeyspaceCore;
pub(crate) use self::known_logs::{Kept, KnownLog, KnownLogs, LogPin, NextLog};
pub(crate) use self::obsolete::LogFile;
use self::obsolete::ObsoleteFiles;
use crate::error::{Error, Result};
use crate::key_range::check_keyspace_name;
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::options::settings::KeepLog;
use crate::ranked::Ranked;
use crate::telemetry::Telemetry;

/// Name of the keyspace that the methods of `Db` use.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// The keyspaces of a database, by number.
pub(crate) type Keyspaces = BTreeMap<KeyspaceId, Arc<KeyspaceCore>>;

/// A sealed memtable and the keyspace whose entries it holds.
pub(crate) type Member = (Arc<KeyspaceCore>, Arc<dyn Memtable>);

/// The manifest and the state that it describes.
struct Installing {
    manifest: ManifestWriter,
    state: ManifestState,
}

/// Actions of other parts of the database after an install.
pub(crate) trait InstallObserver: Send + Sync {
    /// The new views are published; the install lock is held.
    fn published(&self) {}

    /// The edit is in force, and the install lock is free. `dead` are the tables that no version
    /// names any more.
    fn installed(&self, dead: &[Arc<TableMeta>]);
}

/// The trees of a database.
pub(crate) struct Catalog {
    env: Env,
    dir: PathBuf,
    keyspaces: ArcSwap<Keyspaces>,
    /// `None` when read-only.
    installing: Ranked<Option<Installing>>,
    obsolete: ObsoleteFiles,
    logs: KnownLogs,
    next_id: AtomicU64,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    /// Its time is recorded with each edit while it is in use.
    expiry: Arc<ExpiryClock>,
    observers: OnceLock<Vec<Weak<dyn InstallObserver>>>,
}

impl Catalog {
    /// The catalog of the database in `dir`. Numbers begin at `next_id`. Obsolete logs are kept
    /// within `keep_log`.
    pub fn new(
        env: &Env,
        dir: &Path,
        (keyspaces, keep_log): (Keyspaces, KeepLog),
        next_id: u64,
        (lifecycle, telemetry): (Arc<Lifecycle>, Arc<Telemetry>),
        expiry: Arc<ExpiryClock>,
    ) -> Self {
        Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            keyspaces: ArcSwap::from_pointee(keyspaces),
            installing: Ranked::new(lock_order::INSTALLING, None),
            obsolete: ObsoleteFiles::default(),
            logs: KnownLogs::new(keep_log),
            next_id: AtomicU64::new(next_id),
            lifecycle,
            telemetry,
            expiry,
            observers: OnceLock::new(),
        }
    }

    /// Sets what is told of installs, in this order; later calls have no effect.
    pub fn observe(&self, observers: Vec<Weak<dyn InstallObserver>>) {
        let _ = self.observers.set(observers);
    }

    fn observers(&self) -> Vec<Arc<dyn InstallObserver>> {
        self.observers.get().into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// The directory of the database.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The keyspaces now.
    pub fn keyspaces(&self) -> Guard<Arc<Keyspaces>> {
        self.keyspaces.load()
    }

    /// The keyspace with this number.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<Arc<KeyspaceCore>> {
        self.keyspaces.load().get(&id).cloned()
    }

    /// The keyspace of this name.
    pub fn named(&self, name: &str) -> Option<Arc<KeyspaceCore>> {
        self.keyspaces.load().values().find(|keyspace| keyspace.name == name).cloned()
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    /// `Invalid` for a name that no keyspace can have; `Closed`.
    pub fn find(&self, name: &str) -> Result<Option<Arc<KeyspaceCore>>> {
        self.lifecycle.check_open()?;
        check_keyspace_name(name)?;
        Ok(self.named(name))
    }

    /// Adds a keyspace whose creation is installed. The caller serializes changes of the list.
    pub fn add_keyspace(&self, keyspace: &Arc<KeyspaceCore>) {
        let mut keyspaces = (**self.keyspaces.load()).clone();
        debug_assert!(
            keyspaces.values().all(|other| other.name != keyspace.name),
            "two keyspaces are named {:?}",
            keyspace.name
        );
        let earlier = keyspaces.insert(keyspace.id, Arc::clone(keyspace));
        assert!(earlier.is_none(), "two keyspaces have the number {}", keyspace.id);
        self.keyspaces.store(Arc::new(keyspaces));
    }

    /// Removes a keyspace whose drop is installed. The caller serializes changes of the list.
    pub fn remove_keyspace(&self, id: KeyspaceId) {
        let mut keyspaces = (**self.keyspaces.load()).clone();
        let removed = keyspaces.remove(&id);
        assert!(removed.is_some(), "keyspace {id} was removed twice");
        debug_assert!(
            removed.is_some_and(|keyspace| keyspace.is_dropped()),
            "keyspace {id} was removed, but its handles can be used"
        );
        self.keyspaces.store(Arc::new(keyspaces));
    }

    /// A number that no file, run, age or keyspace of this database has had.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next call of [`Self::new_id`] returns.
    pub fn next_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// The number of a new table.
    pub fn new_table_id(&self) -> TableId {
        TableId(self.new_id())
    }

    /// The number of a new value file.
    pub fn new_value_file_id(&self) -> ValueFileId {
        ValueFileId(self.new_id())
    }

    /// The number of a new log.
    pub fn new_log_no(&self) -> LogNo {
        LogNo(self.new_id())
    }

    /// Id and age of a run that is newer than every existing run.
    pub fn new_run(&self) -> (RunId, Age) {
        let id = self.new_id();
        (RunId(id), Age(id))
    }

    /// A random number that tells a file from an older one with the same number.
    pub fn new_birth(&self) -> BirthId {
        BirthId(self.env.rng.next_u64())
    }

    /// A copy of the state in force. The tables that it names are not deleted while it lives.
    ///
    /// # Errors
    /// `Closed` in a database without a manifest of its own, that is, a read-only one.
    pub fn state(&self) -> Result<ManifestState> {
        let installing = self.installing.lock();
        let state = installing.as_ref().map(|installing| installing.state.clone());
        let mut state = state.ok_or_else(Error::closed)?;
        if self.expiry.is_used() {
            // A copy must not show what readers of the original know to have expired.
            state.time_ms = state.time_ms.max(Some(self.expiry.now_ms()));
        }
        Ok(state)
    }

    /// Calls `look` with the state in force, `None` when read-only. No log that the state names is
    /// removed meanwhile.
    pub fn with_state<T>(&self, look: impl FnOnce(Option<&ManifestState>) -> T) -> T {
        let installing = self.installing.lock();
        look(installing.as_ref().map(|installing| &installing.state))
    }

    /// Calls `change` unless an edit is being installed, whose tables are in no tree yet; none is
    /// installed meanwhile.
    pub fn between_installs(&self, change: impl FnOnce()) {
        if let Some(_installing) = self.installing.try_lock() {
            change();
        }
    }

    /// The number of the current manifest; `None` when read-only.
    pub fn manifest_number(&self) -> Option<u64> {
        self.installing.lock().as_ref().map(|installing| installing.manifest.number())
    }

    /// Marks tables obsolete: they are in no version any more.
    pub fn mark_tables_obsolete(&self, tables: impl IntoIterator<Item = Arc<TableMeta>>) {
        self.obsolete.mark_tables_obsolete(tables);
    }

    /// Marks a file obsolete that has no readers.
    pub fn mark_file_obsolete(&self, path: PathBuf) {
        self.obsolete.mark_file_obsolete(path);
    }

    /// Marks a log obsolete; readers of its values may remain, and it may be kept for streams of
    /// changes.
    pub fn mark_log_obsolete(&self, log: LogFile) {
        let bytes = if self.logs.keeps() { self.file_bytes(&log.path) } else { 0 };
        if let Some(unknown) = self.logs.mark_obsolete(log, bytes, self.env.clock.unix_ms()) {
            self.obsolete.mark_log_obsolete(unknown);
        }
    }

    /// Length of a file; 0 if it cannot be told.
    pub fn file_bytes(&self, path: &Path) -> u64 {
        self.env.vfs.open_read(path).and_then(|file| file.len()).unwrap_or(0)
    }

    /// The logs that hold a continuous part of the changes.
    pub fn logs(&self) -> &KnownLogs {
        &self.logs
    }

    /// The entry of the history for logs below `below`, which are obsolete from now on; none if
    /// there are none, or if obsolete logs are not kept.
    pub fn obsolete_below(&self, below: LogNo) -> Option<HistoryEntry> {
        let (last, seq) = self.logs.before(below).filter(|_| self.logs.keeps())?;
        Some(HistoryEntry::Obsolete { below, last, seq, unix_ms: self.env.clock.unix_ms() })
    }

    /// Deletes the logs whose time is over, if obsolete logs are kept.
    pub fn expire_logs(&self) {
        if self.logs.keeps() {
            self.remove_obsolete_files();
        }
    }

    /// Deletes obsolete files without readers.
    pub fn remove_obsolete_files(&self) {
        for log in self.logs.expired(self.env.clock.unix_ms()) {
            self.obsolete.mark_log_obsolete(log);
        }
        self.remove_files_marked_obsolete();
    }

    /// As [`Self::remove_obsolete_files`], but no log whose time is over. For an open that fails:
    /// the list of logs is already that of its own manifest, and without it they are needed.
    pub fn remove_files_marked_obsolete(&self) {
        self.obsolete.collect(&self.env, &self.dir, self.telemetry.work());
    }

    /// Number of obsolete files not yet deleted.
    pub fn obsolete_files(&self) -> usize {
        self.obsolete.waiting()
    }

    /// Syncs the directory, which makes the names of files durable. A failure turns writes off:
    /// some names may be lost, that of the active log among them, and a later successful sync would
    /// not show that.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync_names(&self) -> Result<()> {
        let synced = self.env.vfs.sync_dir(&self.dir);
        synced
            .map_err(|error| Error::io("sync directory", &self.dir, error))
            .inspect_err(|error| self.lifecycle.fail(error))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use shamba_env::{ManualClock, MemFs, write_file_synced};
    use shamba_key::SeqNo;
    use shamba_tree::version::ManifestEdit;
    use shamba_tree::version::manifest::manifest_file_name;

    use super::*;
    use crate::options::settings::Settings;
    use crate::testing::Parts;

    /// The parts of a database that keeps obsolete logs within these limits, and its clock.
    fn keeping(keep_log: KeepLog) -> (Parts, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
        (Parts::within(env, Settings { keep_log, ..Settings::default() }, None), clock)
    }

    fn path(name: &str) -> PathBuf {
        Path::new("/db").join(name)
    }

    fn exists(parts: &Parts, name: &str) -> bool {
        parts.env.vfs.exists(&path(name)).expect("looked up")
    }

    fn make(parts: &Parts, name: &str) {
        write_file_synced(parts.env.vfs.as_ref(), &path(name), b"content").expect("written");
    }

    #[test]
    fn the_next_number_is_the_one_that_is_given_out() {
        let parts = Parts::new(Settings::default());
        let next = parts.catalog.next_id();
        assert_eq!(next, 2, "a log has number 1");
        assert_eq!((parts.catalog.new_id(), parts.catalog.next_id()), (next, next + 1));
    }

    #[test]
    fn the_number_of_the_manifest_is_that_of_the_file_in_force() {
        let parts = Parts::new(Settings::default());
        assert_eq!(parts.catalog.manifest_number(), None, "no edit can be installed");
        parts.catalog.new_id();
        parts.begin();
        let number = parts.catalog.manifest_number().expect("it has begun");
        assert!(number > 2 && exists(&parts, &manifest_file_name(number)), "manifest {number}");
    }

    #[test]
    fn a_change_between_installs_is_made_unless_an_edit_is_being_installed() {
        let parts = Parts::new(Settings::default());
        parts.begin();
        let changes = Cell::new(0);
        parts.catalog.between_installs(|| changes.set(changes.get() + 1));
        assert_eq!(changes.get(), 1);
        let during = |_: &ManifestState| {
            let other = || parts.catalog.between_installs(|| panic!("an edit is being installed"));
            std::thread::scope(|scope| scope.spawn(other).join()).expect("it does not wait");
            Ok(ManifestEdit::default())
        };
        parts.catalog.install(&[], Vec::new(), during).expect("installed");
        parts.catalog.between_installs(|| changes.set(changes.get() + 1));
        assert_eq!(changes.get(), 2);
    }

    #[test]
    fn an_obsolete_file_is_counted_until_it_is_deleted() {
        let parts = Parts::new(Settings::default());
        make(&parts, "000007.log");
        parts.catalog.mark_file_obsolete(path("000007.log"));
        assert_eq!((parts.catalog.obsolete_files(), exists(&parts, "000007.log")), (1, true));
        parts.catalog.remove_obsolete_files();
        assert_eq!((parts.catalog.obsolete_files(), exists(&parts, "000007.log")), (0, false));
    }

    #[test]
    fn logs_that_become_obsolete_have_an_entry_in_the_history_if_they_are_kept() {
        let keep_log = KeepLog { bytes: 1 << 20, age: Duration::from_secs(1) };
        for (keep_log, keeps) in [(keep_log, true), (KeepLog::OFF, false)] {
            let (parts, clock) = keeping(keep_log);
            for (number, seq) in [(1, 0), (3, 7)] {
                parts.catalog.logs().rotate(LogNo(number), path("a log"), SeqNo(seq));
            }
            clock.advance_us(9_000);
            let entry = HistoryEntry::Obsolete {
                below: LogNo(3),
                last: LogNo(1),
                seq: SeqNo(7),
                unix_ms: parts.env.clock.unix_ms(),
            };
            assert_eq!(parts.catalog.obsolete_below(LogNo(3)), keeps.then_some(entry));
            assert_eq!(parts.catalog.obsolete_below(LogNo(1)), None, "there are none before it");
        }
    }

    #[test]
    fn a_kept_log_is_deleted_when_its_time_is_over() {
        let (parts, clock) = keeping(KeepLog { bytes: 1 << 20, age: Duration::from_millis(100) });
        make(&parts, "000001.log");
        parts.catalog.logs().rotate(LogNo(1), path("000001.log"), SeqNo(0));
        parts.catalog.logs().rotate(LogNo(2), path("000002.log"), SeqNo(5));
        parts.catalog.mark_log_obsolete(LogFile { path: path("000001.log"), ..LogFile::default() });
        clock.advance_us(100_000);
        parts.catalog.expire_logs();
        assert!(exists(&parts, "000001.log"), "within the limits");
        clock.advance_us(1_000);
        parts.catalog.expire_logs();
        assert!(!exists(&parts, "000001.log"), "over the age");
        assert_eq!(parts.catalog.logs().oldest(), Some((LogNo(2), SeqNo(5))));
    }
}
