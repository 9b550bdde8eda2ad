//! The public handles: databases, keyspaces and snapshots. Every method is a call of a lower layer.
//!
//! Handles are cheap to clone and to share. Each keeps the database open ([`Handle`]): databases,
//! keyspaces, snapshots, readers, batches, iterators and cursors. [`Db::close`] ends the database
//! in order even while other handles exist; those return `Closed` from then on.

pub(crate) mod batch;
pub(crate) mod builder;
mod compose;
pub(crate) mod conditional;
pub(crate) mod core;
mod forwards;
mod handle;
mod introspect;
#[macro_use]
mod methods;
pub(crate) mod key_cursor;
mod keyspace;
pub(crate) mod recovery;
pub(crate) mod ticket;
mod views;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shamba_env::FileLock;

use self::handle::Handle;
use self::key_cursor::KeyCursor;
pub use self::keyspace::Keyspace;
pub use self::views::{Reader, Snapshot};
use crate::catalog::KeyspaceCore;
use crate::database::batch::Batch;
use crate::database::builder::Builder;
use crate::database::conditional::Swap;
use crate::database::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::key_range::{KeyRange, PrefixRange};
use crate::options::keyspace::KeyspaceOptions;
use crate::reads::cursor::{Cursor, Iter, Keys};
use crate::reads::options::{HashedKey, ReadOptions};
use crate::reads::reader::ReadAt;
use crate::trace::Recording;
use crate::writer::WriteOptions;
use crate::writer::operations::{Operations, with_range_delete};
use shamba_log::wal::OpRef;
use shamba_tree::lookup::explain::Explanation;
use shamba_tree::lookup::explain_prefix::PrefixExplanation;
use shamba_tree::slice::Slice;
use shamba_tree::snapshot::SnapshotGuard;
use shamba_tree::version::current::CURRENT;

/// An open database: its default keyspace, and the operations on the database as a whole.
/// `Clone + Send + Sync`.
///
/// Every handle keeps the database open and its directory locked: the clones of this one,
/// [`Keyspace`], [`Snapshot`], [`Reader`], [`Batch`], [`Iter`] and [`Cursor`]. When the last one is
/// dropped, the workers stop and the lock is released. Nothing is flushed or synced then, as if the
/// process had been killed; the durability of each write decides what survives. [`Db::close`] ends
/// the database in order and at once. The remaining handles then return [`ErrorKind::Closed`].
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
    pub(crate) keyspace: Arc<KeyspaceCore>,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.core().catalog.dir()).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the database in the directory `path`, or creates it if there is none. Uses the options
    /// that are recorded in it, and defaults for the others. [`Builder`] sets options for one open,
    /// or records them.
    ///
    /// ```
    /// use shamba::Db;
    ///
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// let db = Db::open(&path)?;
    /// db.put("key", "value")?;
    /// db.close()?;
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Opens an existing database without writing a byte, also on a read-only mount.
    ///
    /// ```
    /// use shamba::{Db, ErrorKind};
    ///
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// Db::open(&path)?.close()?;
    /// let db = Db::open_read_only(&path)?;
    /// let refused = db.put("key", "value").expect_err("it is read-only");
    /// assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open`]; `NotFound` if there is none.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).read_only(true).open()
    }

    /// A builder, to set options before [`Builder::open`].
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    pub(crate) fn open_with(builder: Builder) -> Result<Self> {
        look_before_making(&builder)?;
        Self::over(crate::database::recovery::open(builder)?)
    }

    /// Opens the database that a repair has made in a directory, which is already locked by `lock`.
    pub(crate) fn open_begun(builder: Builder, lock: Box<dyn FileLock>) -> Result<Self> {
        let env = builder.world()?;
        Self::over(crate::database::recovery::open_locked(builder, env, lock)?)
    }

    fn over(core: Arc<Core>) -> Result<Self> {
        let keyspace = core
            .catalog
            .keyspace(shamba_key::KeyspaceId(0))
            .ok_or_else(|| Error::invalid("the database has no default keyspace"))?;
        core.start_workers()?;
        let handle = Arc::new(Handle::new(core));
        if handle.core.scheduler.is_inline() && !handle.core.lifecycle.is_read_only() {
            handle.core.scheduler.run_inline();
        }
        Ok(Self { handle, keyspace })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    fn database(&self) -> &Core {
        &self.handle.core
    }

    fn to_reader(&self) -> Reader {
        self.with(&ReadOptions::DEFAULT)
    }

    fn read_at(&self) -> ReadAt<'_> {
        let keyspace = &self.keyspace;
        ReadAt {
            reads: &self.core().reads,
            keeper: &*self.handle,
            keyspace,
            snapshot: None,
            options: &ReadOptions::DEFAULT,
        }
    }

    read_methods!();
    write_methods!();

    /// The read methods, with options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::ReadOptions;
    ///
    /// // A long scan that leaves the block cache to lookups.
    /// let count = db.with(&ReadOptions::new().fill_cache(false)).iter().count();
    /// # assert_eq!(count, 0);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn with(&self, options: &ReadOptions) -> Reader {
        let (db, keyspace) = (self.clone(), Arc::clone(&self.keyspace));
        Reader { db, keyspace, snapshot: None, options: options.clone() }
    }

    /// The digest of `key`, for lookups in several keyspaces with one hash. For a key that is too
    /// long the lookups return an error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let (users, banned) = (db.keyspace("users")?, db.keyspace("banned")?);
    /// users.put("asha", "1")?;
    /// let key = db.hash_key("asha");
    /// assert!(users.get_hashed(&key)?.is_some() && banned.get_hashed(&key)?.is_none());
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn hash_key(&self, key: impl AsRef<[u8]>) -> HashedKey {
        let digest = self.core().reads.digest();
        HashedKey { key: key.as_ref().to_vec(), digest: digest.digest(key.as_ref()), made_by: digest }
    }

    /// The keyspace that `Db`'s own methods use.
    pub(crate) fn default_keyspace(&self) -> Keyspace {
        Keyspace { db: self.clone(), keyspace: Arc::clone(&self.keyspace) }
    }

    /// An empty batch.
    #[must_use = "a batch does nothing until it is committed"]
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// A snapshot of the present state. Compactions keep what it sees for as long as it lives.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// db.put("key", "old")?;
    /// let snapshot = db.snapshot();
    /// db.put("key", "new")?;
    /// assert_eq!(snapshot.get("key")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let guard = self.core().reads.snapshot();
        Snapshot { db: self.clone(), keyspace: Arc::clone(&self.keyspace), guard }
    }

    /// Opens the keyspace of this name. Creates it, durably, if there is none; [`Db::get_keyspace`]
    /// does not. `default` is the keyspace that `Db`'s own methods use.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let emails = db.keyspace("emails")?;
    /// emails.put("baraka@example.org", "user:2")?;
    /// // Its keys are its own.
    /// assert_eq!(db.get("baraka@example.org")?, None);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 255 bytes. If it must be created, as [`Db::put`];
    /// `ReadOnly` in a database that is open read-only.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let keyspace = self.core().writer.make_keyspace(name, false, None)?;
        Ok(Keyspace { db: self.clone(), keyspace })
    }

    /// Opens the keyspace of this name with options; creates it, durably, if there is none. The
    /// options hold for every handle of it. The code of a merge operator stays until the database
    /// is opened again, because values that it has made may be cached. The merge operator of a
    /// keyspace whose operands are read or compacted during the open is given to
    /// [`Builder::keyspace`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::{KeyspaceOptions, merge::Append};
    ///
    /// let by_line = KeyspaceOptions::new().merge_operator(Append::separated_by("\n"));
    /// let journal = db.keyspace_with("journal", by_line)?;
    /// journal.merge("2026-11-26", "rain")?;
    /// journal.merge("2026-11-26", "maize planted")?;
    /// assert_eq!(journal.get("2026-11-26")?.as_deref(), Some(&b"rain\nmaize planted"[..]));
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::keyspace`]; `Invalid` if the keyspace records another merge operator.
    pub fn keyspace_with(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let keyspace = self.core().writer.make_keyspace(name, false, Some(&options))?;
        Ok(Keyspace { db: self.clone(), keyspace })
    }

    /// Opens the keyspace of this name; `None` if there is none.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 255 bytes; `Closed` after `close`.
    pub fn get_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        let found = self.core().catalog.find(name)?;
        Ok(found.map(|keyspace| Keyspace { db: self.clone(), keyspace }))
    }

    /// Creates a keyspace, durably, and opens it.
    ///
    /// # Errors
    /// `Invalid` if there is one of this name already; as [`Db::keyspace`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        let keyspace = self.core().writer.make_keyspace(name, true, None)?;
        Ok(Keyspace { db: self.clone(), keyspace })
    }

    /// The names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.core().catalog.keyspaces().values().map(|k| k.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Removes a keyspace with all its contents. Its handles and iterators return `Invalid` from
    /// now on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::ErrorKind;
    ///
    /// let sessions = db.keyspace("sessions")?;
    /// db.drop_keyspace("sessions")?;
    /// let refused = sessions.get("key").expect_err("the keyspace is gone");
    /// assert_eq!(refused.kind(), ErrorKind::Invalid);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for the default keyspace or an unknown name; as [`Db::put`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.core().writer.drop_keyspace(name)
    }

    /// Makes every acknowledged write durable.
    ///
    /// # Errors
    /// `Io` when the sync failed: writes are off until reopen; `Invalid` without a log.
    pub fn sync(&self) -> Result<()> {
        self.core().writer.sync()
    }

    /// Writes all memtables to tables and waits until they are durable.
    ///
    /// # Errors
    /// The error of the flush.
    pub fn flush(&self) -> Result<()> {
        self.core().writer.flush()
    }

    /// Flushes, then compacts each keyspace into one run without unneeded tombstones, and waits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// db.put("key", "value")?;
    /// db.delete("key")?;
    /// db.compact()?;
    /// // Nothing is left of either.
    /// assert!(db.tables().is_empty());
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// The compaction filter of a keyspace is asked about all that no snapshot sees.
    ///
    /// # Errors
    /// The error of the flush or of a compaction; `Unsupported`, after the other keyspaces were
    /// compacted, for a keyspace whose compaction filter this open was not given.
    pub fn compact(&self) -> Result<()> {
        self.core().scheduler.compact_now(None)
    }

    /// [`Keyspace::compact_range`] of the default keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::compact_range`].
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.default_keyspace().compact_range(range)
    }

    /// Rewrites in place every table whose filter has a stale size: another number of bits per key
    /// than its place warrants. Filters become stale after a change of the filter settings, or of
    /// the workload with [`crate::Allocation::Workload`]. Tables for which a rewrite pays are also
    /// rewritten in the background, while there is no other work.
    ///
    /// # Errors
    /// The error of a rewrite.
    pub fn rewrite_filters(&self) -> Result<()> {
        self.core().scheduler.rewrite_filters_now()
    }

    /// The former name of [`Self::rewrite_filters`].
    ///
    /// # Errors
    /// As [`Self::rewrite_filters`].
    #[deprecated(since = "0.2.0", note = "renamed to `rewrite_filters`")]
    pub fn refit(&self) -> Result<()> {
        self.rewrite_filters()
    }

    /// Begins to record every operation of every handle, with keys and the lengths of values, in
    /// order. The result is a text file that `shamba bench DB replay` replays
    /// (`docs/formats/trace.md`). The recording ends with [`Recording::finish`], or when the file
    /// cannot be written. A write failure is a warning and the result of `finish`; it fails no
    /// operation. Operations wait while 64 KiB are written to the file.
    ///
    /// Batches and [`Db::multi_get`] are recorded as their parts. Scans are recorded when they end,
    /// with the number of entries that they read. Failed operations, entries added by
    /// [`Db::ingest`] and scans that began before the recording are not recorded.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let recording = db.record_trace(dir.path().join("day.trace"))?;
    /// db.put("key", "value")?;
    /// db.get("key")?;
    /// recording.finish()?;
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if a trace of this database is being recorded already; `Io`, `NoSpace` or
    /// `ReadOnly` if the file exists or cannot be created; `Closed`.
    pub fn record_trace(&self, path: impl AsRef<Path>) -> Result<Recording> {
        self.core().record_trace(path.as_ref())
    }

    /// Waits until no flush or compaction is pending, including compactions of level 0 that
    /// otherwise start only at a minimum number of runs. Does not flush the active memtable. Right
    /// after an open it also waits until filters and indexes are in memory as far as they are worth
    /// it, which is all that it waits for in a read-only database.
    ///
    /// # Errors
    /// The error of the background work; `Closed`.
    pub fn wait_idle(&self) -> Result<()> {
        let core = self.core();
        core.lifecycle.check_open()?;
        core.residency.finish_open();
        if core.lifecycle.is_read_only() {
            return Ok(());
        }
        core.scheduler.wait_idle()
    }

    /// Adds many sorted entries at once, as tables, bypassing the log. All become visible together.
    /// Returns their number. Other writers wait meanwhile, so `pairs` must not itself write to this
    /// database.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let added = db.ingest((0..1_000_u32).map(|id| (id.to_be_bytes(), "value")))?;
    /// assert_eq!(added, 1_000);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` when keys do not strictly ascend, naming the place; nothing is added then. As
    /// [`Db::put`], which also waits while compactions are behind, and as [`Db::flush`].
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.core().scheduler.flusher().ingest(&self.keyspace, 0, pairs)
    }

    /// Closes the database in order: stops the workers, syncs the log and writes an end marker to
    /// it, and releases the lock. Without a log, all memtables are flushed to tables first, and
    /// soon after an open that followed a kill, what that open has replayed. Clones return
    /// `Closed` from now on.
    ///
    /// # Errors
    /// The error of writing or syncing the log, or of such a flush, as `NoSpace`; the database is
    /// closed all the same.
    pub fn close(self) -> Result<()> {
        let core = self.core();
        // While edits can still be installed. If it was closed or has failed, that is said below.
        let recorded = core.catalog.record_time();
        let Some(flushed) = core.writer.close() else { return Err(Error::closed()) };
        self.handle.stop();
        core.statistics.save(true);
        let finished = flushed.and(core.writer.finish_log(core.workload.to_pairs()));
        let outcome = finished.and(recorded);
        core.reads.iterators().revoke_idle(|_| true);
        core.reads.release_stale_views(&core.catalog);
        core.writer.durable().end(&Error::closed());
        core.telemetry.emit(Event::Closed);
        debug_assert!(core.lifecycle.is_closed(), "the lock of a database is released that can be used");
        let file_lock = core.file_lock.lock().take();
        assert!(file_lock.is_some(), "the lock of a database was released before its close");
        outcome
    }
}

/// If `CURRENT` is missing, tries a read-only open before creating. A database that has lost its
/// `CURRENT` is damaged and must not be overwritten by a new one. Where none may be created, not
/// even a lock file is.
///
/// # Errors
/// As a read-only open; `Invalid` for options that a new database could not have.
fn look_before_making(builder: &Builder) -> Result<()> {
    let (env, dir, given) = (&builder.env, &builder.path, builder.given());
    let is_missing = |path: &Path| matches!(env.vfs.exists(path), Ok(false));
    if given.read_only || !is_missing(&dir.join(CURRENT)) {
        return Ok(());
    }
    if !is_missing(dir) {
        match crate::database::recovery::open(Builder::new(dir).env(env.clone()).read_only(true)) {
            // `NotFound` is expected. Any other unreadable state is reported when the database is
            // created.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) && given.create_if_missing => {
            }
            // Another process has it open and may be creating it: the open itself waits for the
            // lock.
            Err(error) if error.kind() == ErrorKind::Locked => {}
            looked => drop(looked?), // Another process has made one since.
        }
    }
    given.validate()?;
    if builder.budget.is_none() { given.validate_record_cache() } else { Ok(()) }
}
