//! The stream of changes: committed batches in order, read from the logs.
//!
//! A stream reads log files with a reader of its own ([`reader`]) and knows from the list of logs
//! ([`crate::catalog::KnownLogs`]) which one follows. It reads no further than what is durable and
//! visible, so it needs no lock of the writer. When it has everything it sleeps until the writer
//! tells that more is durable ([`waiting`]).
//!
//! The epochs of positions, and the changes that no log records (ingests, keyspaces created and
//! dropped), are in the history of the manifest ([`shamba_tree::version::History`]).

mod batch;
mod position;
mod reader;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shamba_key::SeqNo;

pub use self::batch::{ChangeBatch, ChangeOp};
pub use self::position::ChangePosition;
use self::reader::{ChangeReader, Read};
use self::waiting::Alarm;
use crate::database::{Db, Snapshot};
use crate::error::{Error, ErrorKind, Result};

/// One change of a database, in a [`Changes`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A batch of writes, or a single write. It is delivered as a whole.
    Batch(ChangeBatch),
    /// Tables were ingested ([`Db::ingest`]). The log does not have the entries: read the range
    /// from the database, and then call [`Db::sync`], because a crash may take back later writes
    /// that were read.
    #[non_exhaustive]
    Ingested {
        /// The position after the ingest.
        position: ChangePosition,
        /// Name of the keyspace; empty if it is not known any more.
        keyspace: Arc<str>,
        /// Number of entries.
        entries: u64,
        /// The first key.
        first: Vec<u8>,
        /// The last key.
        last: Vec<u8>,
    },
    /// A keyspace was created.
    #[non_exhaustive]
    KeyspaceCreated {
        /// The position after the creation.
        position: ChangePosition,
        /// Name of the keyspace.
        keyspace: Arc<str>,
    },
    /// A keyspace was dropped, with everything in it.
    #[non_exhaustive]
    KeyspaceDropped {
        /// The position after the drop.
        position: ChangePosition,
        /// Name of the keyspace.
        keyspace: Arc<str>,
    },
}

impl Change {
    /// The position after the change: a stream that begins there continues with the next one.
    pub fn position(&self) -> ChangePosition {
        match self {
            Self::Batch(batch) => batch.position(),
            Self::Ingested { position, .. }
            | Self::KeyspaceCreated { position, .. }
            | Self::KeyspaceDropped { position, .. } => *position,
        }
    }
}

/// Options of a stream of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ChangesOptions {
    include_unsynced: bool,
}

impl ChangesOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Delivers batches as soon as they are visible and with the operating system. Default: only
    /// durable ones.
    ///
    /// A crash may lose a batch that was delivered. Then the position after it is of an epoch that
    /// has ended before it, and [`Db::changes_since`] refuses it.
    #[must_use]
    pub fn include_unsynced(mut self, on: bool) -> Self {
        self.include_unsynced = on;
        self
    }
}

/// A stream of the changes of a database. Made by [`Db::changes_since`].
///
/// As an iterator it waits for the next change, and ends when the database is closed. It ends after
/// an error, too; [`Changes::position`] then tells where a new stream would continue. It keeps the
/// database open, and the log that it reads on disk.
pub struct Changes {
    db: Db,
    reader: ChangeReader,
    /// Changes that were read and not returned.
    queue: VecDeque<Change>,
    /// The position after the last change that was returned.
    position: ChangePosition,
    alarm: Arc<Alarm>,
    has_ended: bool,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Changes {
    /// The position after the last change that was returned: a later stream continues there.
    pub fn position(&self) -> ChangePosition {
        self.position
    }

    /// The next change, if there is one now. Does not wait for writes.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`] if the stream has fallen behind what is kept of the logs; `Closed`; `Io`
    /// and `Corruption` of a log.
    pub fn try_next(&mut self) -> Result<Option<Change>> {
        if self.queue.is_empty() {
            self.db.core().lifecycle.check_open()?;
            let _read: Read = self.reader.read(&mut self.queue)?;
        }
        let change = self.queue.pop_front();
        if let Some(change) = &change {
            self.position = change.position();
        }
        Ok(change)
    }

    /// The next change, for which it waits at most this time; `None` if none came.
    ///
    /// # Errors
    /// As [`Self::try_next`]; the failure, if writes were turned off.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Change>> {
        let clock = Arc::clone(&self.db.core().env.clock);
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let deadline_us = clock.now_us().saturating_add(timeout_us);
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(Some(change));
            }
            let left_us = deadline_us.saturating_sub(clock.now_us());
            if left_us == 0 {
                return Ok(None);
            }
            self.wait(Duration::from_micros(left_us))?;
        }
    }

    /// Waits until more may be there, at most this time.
    fn wait(&self, timeout: Duration) -> Result<()> {
        let core = self.db.core();
        if let Some(failure) = core.lifecycle.failure() {
            let why = "writes are off after a failure: there will be no more changes";
            return Err(Error::with_source(ErrorKind::ReadOnly, why, failure));
        }
        self.alarm.wait(&core.writer, self.reader.awaited(), timeout);
        Ok(())
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // The callbacks hold the alarm, and the next write may never come.
        self.alarm.end(&self.db.core().writer);
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = loop {
            match self.next_timeout(Duration::MAX) {
                Ok(Some(change)) => break Ok(change),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        };
        self.has_ended = next.is_err();
        match next {
            Err(error) if error.kind() == ErrorKind::Closed => None,
            next => Some(next),
        }
    }
}

impl Db {
    /// The changes after `position`, in the order of their commits: durable batches, ingests, and
    /// the creation and drop of keyspaces. For replicas, caches and search indexes.
    ///
    /// The stream reads the write-ahead logs, from which it follows how far it can go back: without
    /// [`Builder::keep_log`](crate::Builder::keep_log) a log is deleted when its entries are in
    /// tables. [`Db::oldest_change_position`] is the oldest position.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use shamba::{Change, ChangeOp, Db, Durability};
    ///
    /// let db = Db::builder(dir.path().join("db")).durability(Durability::Sync).open()?;
    /// let mut changes = db.changes_since(db.change_position())?;
    /// db.put("user:1", "Asha")?;
    /// let Some(Change::Batch(batch)) = changes.try_next()? else { panic!("a batch") };
    /// let (keyspace, operation) = batch.operations().next().expect("an operation");
    /// assert_eq!(keyspace, "default");
    /// assert!(matches!(operation, ChangeOp::Put { key: b"user:1", value: b"Asha", .. }));
    /// assert!(changes.try_next()?.is_none());
    /// // To be stored with whatever is made of the changes; the next stream begins there.
    /// assert_eq!(batch.position(), db.change_position());
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// Operands of merge operators are delivered as they were written. What compactions do is no
    /// change.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`] if the changes after `position` are not kept any more, or if a crash has
    /// lost some before it: copy the database and begin at the copy's position. `Invalid` for a
    /// position that the database has not reached. `Unsupported` without a log or if it is
    /// read-only.
    pub fn changes_since(&self, position: ChangePosition) -> Result<Changes> {
        self.changes_since_with(position, ChangesOptions::new())
    }

    /// [`Self::changes_since`] with options.
    ///
    /// # Errors
    /// As [`Self::changes_since`].
    pub fn changes_since_with(&self, position: ChangePosition, options: ChangesOptions) -> Result<Changes> {
        let reader = ChangeReader::new(Arc::clone(self.core()), position, options.include_unsynced)?;
        // From here on positions are of the present epoch.
        let position = ChangePosition { epoch: reader.epoch(), ..position };
        let (db, alarm) = (self.clone(), Arc::new(Alarm::new(&self.core().writer)));
        Ok(Changes { db, reader, queue: VecDeque::new(), position, alarm, has_ended: false })
    }

    /// The position after everything that was written before this call. A copy that is made later,
    /// such as a scan of a snapshot, has the changes up to there and maybe some of the next;
    /// [`Snapshot::change_position`] is exact. No stream begins at a position of a database that is
    /// open read-only or without a log.
    pub fn change_position(&self) -> ChangePosition {
        self.change_position_at(self.core().reads.visible())
    }

    /// The oldest position from which [`Self::changes_since`] can continue now.
    ///
    /// # Errors
    /// `Unsupported` without a log or if the database is read-only.
    pub fn oldest_change_position(&self) -> Result<ChangePosition> {
        let core = self.core();
        reader::check_has_stream(core)?;
        let oldest = core.catalog.logs().oldest().ok_or_else(Error::closed)?;
        Ok(self.change_position_at(oldest.1))
    }

    fn change_position_at(&self, seq: SeqNo) -> ChangePosition {
        ChangePosition { epoch: position::epoch(self.core()), sequence: seq.0 }
    }
}

impl Snapshot {
    /// The position after everything that the snapshot shows.
    pub fn change_position(&self) -> ChangePosition {
        self.db().change_position_at(SeqNo(self.sequence()))
    }
}

#[cfg(test)]
mod tests {
    use shamba_env::{Env, MemFs, Vfs};

    use super::*;

    #[test]
    fn a_dropped_stream_leaves_no_callbacks() {
        let env = Env::deterministic(Arc::new(MemFs::new()) as Arc<dyn Vfs>, 1);
        let db = Db::builder("/db").env(env).info_log(false).open().expect("opened");
        db.put("a", "1").expect("put");
        for options in [ChangesOptions::new(), ChangesOptions::new().include_unsynced(true)] {
            let mut changes = db.changes_since_with(db.change_position(), options).expect("a stream");
            db.sync().expect("synced");
            while changes.try_next().expect("read").is_some() {}
            changes.wait(Duration::from_millis(1)).expect("nothing has failed");
            let alarm = Arc::downgrade(&changes.alarm);
            assert!(alarm.strong_count() > 1, "the writer has a callback of {options:?}");
            drop(changes);
            assert_eq!(alarm.strong_count(), 0, "a callback of {options:?} has stayed");
        }
    }
}
