//! The handle of one keyspace.

use std::sync::Arc;
use std::time::Duration;

use super::{Db, Reader, conditional, introspect};
use crate::catalog::KeyspaceCore;
use crate::database::conditional::Swap;
use crate::database::core::Core;
use crate::database::key_cursor::KeyCursor;
use crate::error::Result;
use crate::key_range::{KeyRange, PrefixRange, half_open};
use crate::metrics::{Stats, TableStats};
use crate::options::fifo::Fifo;
use crate::reads::cursor::{Cursor, Iter, Keys};
use crate::reads::options::{HashedKey, ReadOptions};
use crate::reads::reader::ReadAt;
use crate::writer::WriteOptions;
use crate::writer::operations::{Operations, with_range_delete};
use shamba_key::KeyspaceId;
use shamba_log::wal::OpRef;
use shamba_tree::lookup::explain::Explanation;
use shamba_tree::lookup::explain_prefix::PrefixExplanation;
use shamba_tree::slice::Slice;
use shamba_tree::snapshot::SnapshotGuard;

/// A keyspace: a tree of its own, which shares log, batches and memory with the others.
/// `Clone + Send + Sync`.
#[derive(Clone)]
pub struct Keyspace {
    pub(super) db: Db,
    pub(super) keyspace: Arc<KeyspaceCore>,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Checks, before a keyspace is created, whether it may have this name.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 255 bytes.
    pub fn check_name(name: &str) -> Result<()> {
        crate::key_range::check_keyspace_name(name)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.keyspace.name
    }

    /// The recorded name of the merge operator; `None` if the keyspace has none. Its code may be
    /// missing in this open.
    pub fn merge_operator(&self) -> Option<String> {
        self.keyspace.load().merging().map(|merging| merging.name().to_owned())
    }

    /// How long its entries live unless their write says otherwise; `None` without a limit.
    pub fn time_to_live(&self) -> Option<Duration> {
        self.keyspace.time_to_live()
    }

    /// The tables of the keyspace and their filters as written, newest run first.
    pub fn tables(&self) -> Vec<TableStats> {
        introspect::tables(&self.keyspace)
    }

    /// Flushes, then compacts this keyspace into one run, and waits; as [`Db::compact`] for all.
    ///
    /// # Errors
    /// As [`Db::compact`]; `Invalid` if the keyspace was dropped.
    pub fn compact(&self) -> Result<()> {
        self.keyspace.check_usable()?;
        self.database().scheduler.compact_now(Some(self.keyspace.id))
    }

    /// Flushes, then compacts the tables that overlap `range`, and waits: what is deleted and
    /// overwritten there goes, and each key of the range is in one run. For a small part of the
    /// keys that takes less time than [`Self::compact`], since other tables stay as they are.
    ///
    /// Keys outside of the range are compacted where they share a table with one inside; level 0,
    /// where the newest writes are, is compacted as a whole. What snapshots see stays, and garbage
    /// in value files is left to their collection. A FIFO keyspace is not compacted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let logs = db.keyspace("logs")?;
    /// for day in 1..=30 {
    ///     logs.put(format!("2026-06-{day:02}"), "...")?;
    /// }
    /// logs.delete_range("2026-06-01".."2026-06-15")?;
    /// logs.compact_range("2026-06-01".."2026-06-15")?;
    /// assert_eq!(logs.keys(..).count(), 16);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::compact`].
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.keyspace.check_usable()?;
        self.database().scheduler.compact_range_now(&self.keyspace, half_open(&range))
    }

    /// The options of the tree that the keyspace has for itself, by the names of the database's
    /// ([`crate::KeyspaceOptions::compression`] and its neighbours).
    pub fn own_options(&self) -> Vec<(&'static str, String)> {
        self.keyspace.overrides().own()
    }

    /// The prefix extractor of tables that are written from now on
    /// ([`crate::KeyspaceOptions::prefix`]).
    pub fn prefix_extractor(&self) -> Option<crate::Prefix> {
        self.keyspace.prefix()
    }

    /// The recorded name of the compaction filter; `None` if the keyspace has none. Its code may be
    /// missing in this open.
    pub fn compaction_filter(&self) -> Option<String> {
        self.keyspace.filtering().map(|filtering| filtering.name().to_owned())
    }

    /// The limits of a FIFO keyspace; `None` if it is none.
    pub fn fifo(&self) -> Option<Fifo> {
        self.keyspace.fifo().map(|fifo| fifo.limits)
    }

    pub(crate) fn core(&self) -> &Arc<KeyspaceCore> {
        &self.keyspace
    }

    fn database(&self) -> &Core {
        &self.db.handle.core
    }

    /// # Errors
    /// `Invalid` if the keyspace was dropped, `Closed`.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.keyspace.check_usable()
    }

    /// Its number.
    pub(crate) fn id(&self) -> KeyspaceId {
        self.keyspace.id
    }

    /// The database.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    pub(crate) fn is_of(&self, db: &Db) -> bool {
        Arc::ptr_eq(&self.db.handle, &db.handle)
    }

    fn to_reader(&self) -> Reader {
        self.with(&ReadOptions::DEFAULT)
    }

    fn read_at(&self) -> ReadAt<'_> {
        ReadAt { keyspace: &self.keyspace, ..self.db.read_at() }
    }

    /// Reads of this keyspace at a snapshot of its database.
    pub(crate) fn read_at_snapshot<'a>(&'a self, snapshot: &'a Arc<SnapshotGuard>) -> ReadAt<'a> {
        ReadAt { snapshot: Some(snapshot), ..self.read_at() }
    }

    read_methods!();
    write_methods!();

    /// The read methods, with options; as [`Db::with`].
    pub fn with(&self, options: &ReadOptions) -> Reader {
        let (db, keyspace) = (self.db.clone(), Arc::clone(&self.keyspace));
        Reader { db, keyspace, snapshot: None, options: options.clone() }
    }

    /// Adds many sorted entries at once, as tables, bypassing the log; as [`Db::ingest`].
    ///
    /// # Errors
    /// As [`Db::ingest`].
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.database().scheduler.flusher().ingest(&self.keyspace, 0, pairs)
    }

    /// Levels and counters of this keyspace's tree; the counters of lookups are those of the whole
    /// database.
    pub fn stats(&self) -> Stats {
        introspect::stats(self.db.core(), &self.keyspace)
    }
}
