//! The writer's log: the active log, the sealed ones that may not be synced yet, and how one
//! follows another.
//!
//! A log belongs to one generation of memtables. The next log records how the one before ended. A
//! log is synced before any later one is ([`sync`]).
//!
//! A log whose append failed is sealed at its last good record. After a lack of space the next
//! write creates a new log, so writes resume without a reopen. Any other failure turns writes off
//! until a reopen.
//!
//! A database without a log has a file for the values that are too long for its memtables
//! ([`side`]).
//!
//! A [`Log`] is changed under the writer's lock only.

mod append;
mod in_log;
mod schedule;
pub(crate) mod side;
mod sync;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use shamba_env::Env;
use shamba_key::{LogNo, SeqNo};
use shamba_log::wal::{Predecessor, ValueLog, WalWriter};
use shamba_table::Charge;

pub(super) use self::in_log::InLog;
pub(super) use self::schedule::SyncSchedule;
use self::side::SideFile;
use super::durable::Durable;
use super::memory::WriterMemory;
use super::sealed::SealedLog;
use crate::catalog::{Catalog, LogFile};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::telemetry::Telemetry;

/// The active log and the sealed ones.
pub(super) struct Log {
    env: Env,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    memory: Arc<dyn WriterMemory>,
    schedule: Arc<SyncSchedule>,
    durable: Arc<Durable>,
    /// The active log; `None` without a log, or after it was sealed for lack of space.
    wal: Option<WalWriter>,
    /// The end of the sealed log, for the next log's header; set only while `wal` is `None` because
    /// it was sealed.
    predecessor: Option<Predecessor>,
    /// Files of logs sealed since the last rotation.
    sealed_files: Vec<LogFile>,
    /// The active log in the form in which memtables refer to it, once one does.
    values: Option<Arc<ValueLog>>,
    /// Without a log: the file of long values that are not flushed yet.
    side: Option<SideFile>,
    /// Sealed logs that may not be synced yet, oldest first. Their generations own them, so the
    /// flush that ends a generation closes its log, not a write. It has synced it before.
    sealed: VecDeque<Weak<Ranked<WalWriter>>>,
    /// The last sealed log, until it is part of a generation.
    newest_sealed: Option<SealedLog>,
    /// Charge for the active log's buffer.
    charge: Charge,
    /// Copy of the schedule's time, guarded by the writer's lock.
    due_us: Option<u64>,
    /// The entries up to this one are in logs of which it is unknown how much is durable. No log
    /// may be synced before they are in tables. `None` if there are no such logs.
    replayed_through: Option<SeqNo>,
}

impl Log {
    /// No log yet. `charge` is for the log's buffer.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        catalog: Arc<Catalog>,
        (lifecycle, telemetry): (Arc<Lifecycle>, Arc<Telemetry>),
        (memory, charge): (Arc<dyn WriterMemory>, Charge),
        (schedule, durable): (Arc<SyncSchedule>, Arc<Durable>),
    ) -> Self {
        Self {
            env: env.clone(),
            settings,
            catalog,
            lifecycle,
            telemetry,
            memory,
            schedule,
            durable,
            wal: None,
            predecessor: None,
            sealed_files: Vec::new(),
            values: None,
            side: None,
            sealed: VecDeque::new(),
            newest_sealed: None,
            charge,
            due_us: None,
            replayed_through: None,
        }
    }

    /// Sets the entries that must be in tables before a log is synced.
    pub fn follow_replayed(&mut self, through: Option<SeqNo>) {
        self.replayed_through = through;
    }

    /// The last of the entries that must be in tables before a log is synced, if there are any.
    #[inline]
    pub fn replayed_through(&self) -> Option<SeqNo> {
        self.replayed_through
    }

    /// Begins with a log that an open has created.
    pub fn begin(&mut self, wal: WalWriter) {
        assert!(self.wal.is_none() && self.sealed.is_empty(), "writes began before the log of the open");
        self.wal = Some(wal);
    }

    /// Whether there is an active log; not without a log, or after it was sealed for lack of space.
    pub fn is_active(&self) -> bool {
        self.wal.is_some()
    }

    /// Bytes of the active log, or of the file of long values.
    pub fn bytes(&self) -> u64 {
        let log_bytes = self.wal.as_ref().map_or(0, WalWriter::offset);
        log_bytes.max(self.side.as_ref().map_or(0, SideFile::bytes))
    }

    /// Bytes of records that were not passed to the operating system.
    pub fn buffered(&self) -> u64 {
        self.wal.as_ref().map_or(0, WalWriter::buffered)
    }

    /// The number and the synced length of the active log, if the latter is above 0.
    pub fn promise(&self) -> Option<(LogNo, u64)> {
        self.wal.as_ref().map(|wal| (wal.number(), wal.synced())).filter(|(_, synced)| *synced > 0)
    }

    /// Seals the active log and creates the next one, for the entries after `last_seq`. Nothing
    /// changes on failure. Returns the first log that is still needed once all entries up to
    /// `last_seq` are in tables.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn rotate(&mut self, last_seq: SeqNo) -> Result<LogNo> {
        assert!(self.wal.is_none() || self.predecessor.is_none(), "an active log was sealed already");
        assert!(!self.settings.no_wal || self.wal.is_none(), "a database without a log writes one");
        if let Some(wal) = &mut self.wal {
            if let Err(error) = wal.flush() {
                // Buffered records could not be written. Their entries are already visible, as
                // `Buffered` allows.
                return Err(self.append_failed(last_seq, error.into()));
            }
        }
        let next_log = self.catalog.new_log_no();
        if self.settings.no_wal {
            // Without a log there is always one empty log file: the manifest must find it.
            return Ok(self.catalog.with_state(|state| state.map_or(next_log, |state| state.first_log)));
        }
        let predecessor = match &self.wal {
            Some(wal) => Some(wal.predecessor()),
            None => self.predecessor,
        };
        let wal = WalWriter::create(&self.env, self.catalog.dir(), next_log, predecessor, last_seq)?;
        self.catalog.logs().rotate(next_log, wal.path().to_path_buf(), last_seq);
        self.telemetry.emit(Event::LogRotated { log: next_log.0 });
        self.predecessor = None;
        if let Some(old) = self.wal.replace(wal) {
            self.seal(old);
        }
        self.sealed.retain(|sealed| sealed.strong_count() > 0);
        Ok(next_log)
    }

    /// The newest sealed log and the files that hold the entries since the last call, for the
    /// generation of these entries.
    pub fn take_sealed(&mut self) -> (Option<SealedLog>, Vec<LogFile>) {
        if let Some(side) = self.side.take() {
            self.sealed_files.push(side.into_file());
        }
        (self.newest_sealed.take(), std::mem::take(&mut self.sealed_files))
    }

    /// Handles a failed append: seals the log at its last good record, and returns the error for
    /// the writers. Entries up to `last_seq` are acknowledged.
    fn append_failed(&mut self, last_seq: SeqNo, error: Error) -> Error {
        let followable = self.wal.as_ref().is_some_and(WalWriter::may_be_followed);
        if error.kind() == ErrorKind::NoSpace && followable {
            // The file ends at its last good record, so the next write may create a log after it.
            if let Some(wal) = self.wal.take() {
                assert!(self.predecessor.is_none(), "two logs were sealed without a next one");
                let lost = wal.last_seq() < last_seq;
                self.predecessor = Some(wal.predecessor());
                self.seal(wal);
                if lost {
                    // Acknowledged `Buffered` writes never reached the log: a later log would leave
                    // a hole.
                    self.lifecycle.fail(&error);
                }
            }
        } else {
            self.lifecycle.fail(&error);
        }
        assert!(
            self.wal.is_none() || self.lifecycle.has_failed(),
            "a log takes more records after a failed append"
        );
        error
    }

    /// Number of sealed logs that are open.
    #[cfg(test)]
    pub fn sealed_logs(&self) -> usize {
        self.sealed.iter().filter(|sealed| sealed.strong_count() > 0).count()
    }

    /// Number of sealed logs that a sync looks at, open or not.
    #[cfg(test)]
    pub fn listed_logs(&self) -> usize {
        self.sealed.len()
    }

    /// Puts a log that takes no more records where its generation's flush and the next sync find
    /// it.
    fn seal(&mut self, wal: WalWriter) {
        debug_assert!(wal.synced() <= wal.offset(), "more of a sealed log is synced than it has");
        let values = self.values.take().map_or_else(Weak::new, |values| Arc::downgrade(&values));
        self.sealed_files.push(LogFile { path: wal.path().to_path_buf(), values, ..LogFile::default() });
        let sealed = Arc::new(Ranked::new(lock_order::SEALED_LOG, wal));
        self.sealed.push_back(Arc::downgrade(&sealed));
        assert!(self.newest_sealed.replace(sealed).is_none(), "two logs were sealed for one generation");
    }
}
