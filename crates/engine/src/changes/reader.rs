//! Reads the changes after a position out of the logs.

use std::collections::VecDeque;
use std::sync::Arc;

use shamba_key::{KeyspaceId, LogNo, SeqNo};
use shamba_log::wal::{CommittedBatch, LogFollower, OpRef, encoded_ops};
use shamba_tree::version::HistoryEntry;

use super::batch::ChangeBatch;
use super::position::{self, ChangePosition};
use super::{Change, waiting::Awaited};
use crate::catalog::{LogPin, NextLog};
use crate::database::core::Core;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of batches that one call reads: several records of the log, and little next to a
/// memtable.
const READ_BYTES: usize = 256 << 10;

/// Outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// Changes were added.
    Some,
    /// There are no more now.
    Nothing,
}

/// A position in the logs.
pub(super) struct ChangeReader {
    core: Arc<Core>,
    include_unsynced: bool,
    epoch: u64,
    /// Everything up to here was read.
    seq: SeqNo,
    log: Option<OpenLog>,
    /// The sequence number up to which the last read looked.
    looked_through: SeqNo,
}

struct OpenLog {
    number: LogNo,
    follower: LogFollower,
    /// Keeps the file.
    _pin: LogPin,
}

/// Checks that a database can have streams of changes.
///
/// # Errors
/// `Closed`, `Unsupported`.
pub(super) fn check_has_stream(core: &Core) -> Result<()> {
    core.lifecycle.check_open()?;
    let why = match (core.settings.no_wal, core.lifecycle.is_read_only()) {
        (true, _) => "the database is open without a log, from which changes are read",
        (_, true) => "the database was opened read-only: its changes are read where it is written",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, why))
}

impl ChangeReader {
    /// A reader of the changes after `position`.
    ///
    /// # Errors
    /// See [`crate::Db::changes_since`].
    pub(super) fn new(core: Arc<Core>, position: ChangePosition, include_unsynced: bool) -> Result<Self> {
        check_has_stream(&core)?;
        let history = core.catalog.state()?.history;
        let epoch = position::check(&history, position, core.reads.visible())?;
        let seq = SeqNo(position.sequence);
        let mut reader = Self { core, include_unsynced, epoch, seq, log: None, looked_through: seq };
        let (number, pin) = reader.core.catalog.logs().find(seq).ok_or_else(|| reader.gone())?;
        reader.open(number, pin)?;
        Ok(reader)
    }

    /// The present epoch.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The events that end the wait for more changes.
    pub(super) fn awaited(&self) -> Awaited {
        Awaited {
            durable: self.seq.next(),
            visible_after: self.include_unsynced.then_some(self.looked_through),
        }
    }

    /// Adds the next changes to `queue`, at least one if there is any.
    ///
    /// # Errors
    /// See [`super::Changes::try_next`].
    pub(super) fn read(&mut self, queue: &mut VecDeque<Change>) -> Result<Read> {
        // Loaded before the file is read: every record up to there is in it.
        let through = self.through();
        self.looked_through = through;
        self.enter_next()?;
        while self.seq < through {
            let Some(log) = &mut self.log else { return Err(self.gone()) };
            let next = self.core.catalog.logs().after(log.number);
            let limit = match next {
                NextLog::None => through,
                NextLog::Log(_, end) => through.min(end),
                NextLog::Gone => return Err(self.gone()),
            };
            let mut batches = Vec::new();
            let rest = log.follower.read(limit, READ_BYTES, &mut |batch| batches.push(batch))?;
            let is_sealed = matches!(next, NextLog::Log(..));
            let place = (log.follower.path().to_path_buf(), log.follower.offset());
            for batch in batches {
                // Those before were in the log before, of which this one has a copy.
                if batch.last_seq > self.seq {
                    self.seq = batch.last_seq;
                    queue.extend(self.change_of(batch));
                }
            }
            if !queue.is_empty() {
                // The next read says if that fails.
                let _ = self.enter_next();
                return Ok(Read::Some);
            }
            match (next, rest) {
                (NextLog::Log(_, end), _) if self.seq >= end => self.enter_next()?,
                // What is buffered is visible, and not in the file yet.
                (_, Some(_)) if self.include_unsynced && !is_sealed => return Ok(Read::Nothing),
                (_, Some(detail)) => {
                    let (path, offset) = place;
                    let detail = format!("{detail}; sequence number {} should follow", self.seq.next());
                    return Err(Error::corruption(&path, offset, "log frame", detail));
                }
                _ => {}
            }
        }
        Ok(Read::Nothing)
    }

    /// Goes on to the next log, if the present one has been read to its end. Not only when there is
    /// more to read: a flush makes a log durable and removes it from the list at the same time.
    fn enter_next(&mut self) -> Result<()> {
        while let Some(log) = &self.log {
            match self.core.catalog.logs().after(log.number) {
                NextLog::Log(number, end) if self.seq >= end => {
                    let pin = self.core.catalog.logs().pin(number).ok_or_else(|| self.gone())?;
                    self.open(number, pin)?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The last sequence number that may be delivered. What is not visible may still fail.
    fn through(&self) -> SeqNo {
        let visible = self.core.reads.visible();
        match self.include_unsynced {
            true => visible,
            false => visible.min(self.core.writer.durable().seq()),
        }
    }

    fn open(&mut self, number: LogNo, pin: LogPin) -> Result<()> {
        let follower = LogFollower::open(&self.core.env, self.core.catalog.dir(), number)?;
        if follower.seq() > self.seq {
            return Err(self.gone());
        }
        self.log = Some(OpenLog { number, follower, _pin: pin });
        Ok(())
    }

    /// The change that a batch is; none for one without effect.
    fn change_of(&mut self, batch: CommittedBatch) -> Option<Change> {
        let Some(keyspace) = reserves(&batch) else {
            let (epoch, core, last_seq) = (self.epoch, &self.core, batch.last_seq);
            let names = |id| name_at(core, id, last_seq);
            return ChangeBatch::new(epoch, batch, names).map(Change::Batch);
        };
        let position = ChangePosition { epoch: self.epoch, sequence: batch.last_seq.0 };
        // The edit was installed before the sequence number became visible.
        let entry = self.core.catalog.with_state(|state| state?.history.change_at(batch.last_seq).cloned());
        match entry? {
            HistoryEntry::Ingested { entries, first, last, .. } => Some(Change::Ingested {
                position,
                // Empty if it was dropped by a build that does not record it.
                keyspace: name_at(&self.core, keyspace, batch.last_seq).unwrap_or_default(),
                entries,
                first: first.to_vec(),
                last: last.to_vec(),
            }),
            HistoryEntry::Created { name, .. } => {
                Some(Change::KeyspaceCreated { position, keyspace: name.into() })
            }
            HistoryEntry::Dropped { name, .. } => {
                Some(Change::KeyspaceDropped { position, keyspace: name.into() })
            }
            HistoryEntry::Opened { .. } | HistoryEntry::Obsolete { .. } => None,
        }
    }

    fn gone(&self) -> Error {
        let (epoch, seq) = (self.epoch, self.seq);
        let oldest = match self.core.catalog.logs().oldest() {
            Some((_, oldest)) => format!("the oldest position is {epoch}:{oldest}"),
            None => "none are".to_owned(),
        };
        let why = match self.core.catalog.logs().unreadable() {
            Some(why) => format!("the changes after {epoch}:{seq} cannot be read: {oldest}; {why}"),
            None => format!("the changes after {epoch}:{seq} are not kept any more: {oldest}; see keep_log"),
        };
        Error::new(ErrorKind::Gone, why)
    }
}

/// The keyspace of a batch that only reserves a sequence number: a range delete without keys, which
/// no writer of batches can make.
fn reserves(batch: &CommittedBatch) -> Option<KeyspaceId> {
    let (keyspace, op) = encoded_ops(&batch.encoded).next()?;
    matches!(op, OpRef::RangeDelete { start: b"", end: Some(b"") }).then_some(keyspace)
}

/// The name of a keyspace that a batch which ends at `seq` writes to; `None` if it had been dropped
/// before.
fn name_at(core: &Core, id: KeyspaceId, seq: SeqNo) -> Option<Arc<str>> {
    if let Some(keyspace) = core.catalog.keyspace(id) {
        return Some(Arc::from(keyspace.name.as_str()));
    }
    core.catalog.with_state(|state| {
        let (dropped, name) = state?.history.dropped(id)?;
        (dropped > seq).then(|| Arc::from(name))
    })
}
