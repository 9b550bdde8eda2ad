//! Syncing the log: sealed logs first, oldest first, then the active one.
//!
//! So no later log becomes durable before an earlier one. A failed sync turns writes off and is
//! never repeated: the contents of the disk are unknown then, and a second sync could succeed over
//! lost pages.

use shamba_key::{LogNo, SeqNo};
use shamba_log::wal::WalWriter;

use super::Log;
use crate::error::{Error, Result};
use crate::metrics::WorkCounters;
use crate::options::settings::Durability;
use crate::writer::share::Share;

impl Log {
    /// Syncs the sealed logs, then the active one.
    ///
    /// # Errors
    /// The error of a sync; writes are off then. Also the cause if writes were turned off
    /// meanwhile: a sync of the directory may have failed on another thread and lost the name of
    /// this log, which no later sync shows.
    pub fn sync(&mut self) -> Result<()> {
        self.check_followable()?;
        let synced = self.sync_sealed().and_then(|()| match &mut self.wal {
            Some(wal) if wal.synced() < wal.offset() => {
                WorkCounters::add(&self.telemetry.work().wal_syncs, 1);
                wal.predecessor_is_synced();
                Ok(wal.sync()?)
            }
            _ => Ok(()),
        });
        // No sync is due after a failure either: a failed sync is never repeated.
        if self.due_us.take().is_some() {
            self.schedule.set(None);
        }
        match synced {
            Ok(()) => {
                assert!(self.sealed.is_empty(), "a sealed log was left out of a sync");
                debug_assert!(
                    self.wal.as_ref().is_none_or(|wal| wal.synced() >= wal.offset()),
                    "a synced log has unsynced bytes"
                );
                self.schedule.all_synced();
                if let Some(last_seq) = self.wal.as_ref().map(WalWriter::last_seq) {
                    self.advance_durable(last_seq);
                }
                self.lifecycle.check_not_failed()
            }
            Err(error) => {
                self.lifecycle.fail(&error);
                Err(error)
            }
        }
    }

    /// Refuses a sync whose promise would cover replayed logs of unknown durability. Callers wait
    /// for the flush of their entries first.
    fn check_followable(&self) -> Result<()> {
        debug_assert!(
            self.replayed_through.is_none(),
            "a log is synced before the replayed ones are flushed"
        );
        match self.replayed_through {
            None => Ok(()),
            Some(_) => Err(Error::invalid("entries of the log before are not in tables yet")),
        }
    }

    /// Syncs the sealed logs, oldest first, and removes them from the list.
    ///
    /// # Errors
    /// The error of a sync.
    fn sync_sealed(&mut self) -> Result<()> {
        while let Some(sealed) = self.sealed.front() {
            // A flush has synced and closed a log that is gone.
            if let Some(sealed) = sealed.upgrade() {
                let mut wal = sealed.lock();
                if wal.synced() < wal.flushed() {
                    WorkCounters::add(&self.telemetry.work().wal_syncs, 1);
                    wal.predecessor_is_synced();
                    wal.sync()?;
                }
                assert!(wal.synced() >= wal.flushed(), "a sealed log that was synced has unsynced bytes");
                let last_seq = wal.last_seq();
                drop(wal);
                self.advance_durable(last_seq);
            }
            self.sealed.pop_front();
        }
        Ok(())
    }

    /// Notes that everything up to `seq` is durable, unless writes were turned off. Logs are synced
    /// even then: what is in them may be found at the next open.
    fn advance_durable(&self, seq: SeqNo) {
        if !self.lifecycle.has_failed() {
            self.durable.advance(seq);
        }
    }

    /// Keeps the deadlines of `Interval` writes: schedules the next sync, and syncs now if one is
    /// due.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub(super) fn sync_in_time<'a>(&mut self, shares: impl Iterator<Item = Share<'a>>) -> Result<()> {
        let mut now_us = None;
        let mut is_due = false;
        for share in shares {
            if let Durability::Interval { ms, bytes } = share.durability {
                let now_us = *now_us.get_or_insert_with(|| self.env.clock.now_us());
                self.sync_by(now_us.saturating_add(ms.saturating_mul(1_000)));
                is_due |= self.schedule.unsynced_bytes() >= bytes;
            }
        }
        is_due |=
            self.due_us.is_some_and(|due_us| now_us.unwrap_or_else(|| self.env.clock.now_us()) >= due_us);
        if is_due { self.sync() } else { Ok(()) }
    }

    /// Requests a sync by `due_us`.
    fn sync_by(&mut self, due_us: u64) {
        if self.due_us.is_none_or(|earliest| due_us < earliest) {
            self.due_us = Some(due_us);
            self.schedule.set(Some(due_us));
        }
        debug_assert!(self.due_us.is_some_and(|earliest| earliest <= due_us), "a sync is due too late");
    }

    /// Syncs if the interval of a write has passed. A failure turns writes off and is returned to
    /// the next writer.
    pub fn sync_if_due(&mut self) {
        if self.due_us.is_some_and(|due_us| self.env.clock.now_us() >= due_us) {
            let _ = self.sync();
        }
    }

    /// Ends the log cleanly: syncs everything in it and writes an end marker. Returns the number
    /// and the length of the active log, if there is one; it takes no more records.
    ///
    /// # Errors
    /// Of writing or syncing; as [`Self::sync`], the cause if writes were turned off.
    pub fn finish(&mut self) -> Result<Option<(LogNo, u64)>> {
        if self.replayed_through.is_some() {
            // A flush has failed, and the close returns its error. No promise may be written, but
            // what the process buffered is.
            if let Some(wal) = &mut self.wal {
                wal.flush()?;
            }
            return Ok(None);
        }
        // Also if there is no active log, because it was sealed for lack of space.
        self.sync_sealed()?;
        let Some(mut wal) = self.wal.take() else { return Ok(None) };
        wal.predecessor_is_synced();
        let last_seq = wal.last_seq();
        let end = wal.finish_clean()?;
        self.advance_durable(last_seq);
        self.lifecycle.check_not_failed()?;
        Ok(Some(end))
    }
}
