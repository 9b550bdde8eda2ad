//! Rotation: seals the active memtables and the log that holds their entries, and creates new ones.
//!
//! The memtables of all keyspaces are sealed together, so that a log belongs to exactly one
//! generation of memtables. Flushing the generation makes the log obsolete, and no keyspace's flush
//! can make half of a batch durable. The new log records how the old one ended. The old log is
//! synced before the new one is, and before its generation's flush is installed.

use std::sync::Arc;

use shamba_key::SeqNo;

use super::memtables::Sealed;
use super::sealed::Generation;
use super::{Writer, Writing};
use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use crate::telemetry::hold_events;

impl Writer {
    /// Whether the active memtables, of which `limit_bytes` are to be sealed, or their log are
    /// full.
    pub(super) fn is_rotation_due(&self, writing: &Writing, limit_bytes: u64) -> bool {
        writing.active.bytes() >= limit_bytes
            || writing.log.bytes() >= self.settings.wal_bytes
            || writing.active.is_full()
    }

    /// Creates a log if there is none, as after one was sealed for lack of space.
    pub(super) fn ensure_log(&self, writing: &mut Writing) -> Result<()> {
        if writing.log.is_active() { Ok(()) } else { self.rotate(writing) }
    }

    /// Seals the active memtables and their log, and creates new ones. Nothing changes on failure.
    pub(super) fn rotate(&self, writing: &mut Writing) -> Result<()> {
        let next_log = writing.log.rotate(writing.last_seq)?;
        let Sealed { members, bytes, oldest_tombstone_ms, charge } =
            writing.active.seal(&self.catalog, self.settings.memtable_index);
        let (log, log_files) = writing.log.take_sealed();
        debug_assert!(
            self.settings.no_wal || writing.log.is_active(),
            "there is no log for the entries after a rotation"
        );
        let last_seq = writing.last_seq;
        writing.sealed_seq = last_seq;
        let generation = Generation {
            log,
            log_files,
            next_log,
            members,
            last_seq,
            appended_bytes: self.schedule.appended_bytes(),
            bytes,
            oldest_tombstone_ms,
            _charge: charge,
        };
        self.sealed.seal(generation);
        self.pressure.changed();
        self.background.wake();
        Ok(())
    }

    /// Seals the active memtables, if any has entries and writes are allowed. Returns the last
    /// sequence number that is then in sealed memtables or in tables. Later ones are in the log
    /// only: their operations had no effect, as those on a keyspace that was dropped meanwhile.
    ///
    /// # Errors
    /// `Closed` or `ReadOnly`; of creating the next log.
    pub fn seal(&self) -> Result<SeqNo> {
        let _events = hold_events();
        let mut writing = self.writing.lock();
        // A close may have come first: no log may be created after it.
        self.seal_active(&mut writing)?;
        debug_assert!(self.reads.visible() <= writing.last_seq, "entries are visible that were not sealed");
        debug_assert!(writing.active.is_empty(), "active memtables were not sealed");
        Ok(writing.sealed_seq)
    }

    /// Seals the active memtables if their oldest tombstone is older than `tombstone_age_max_ms`,
    /// so that a compaction can reach it, or if entries of a FIFO keyspace must get an age. Returns
    /// whether it sealed them. Does not wait for the writer's lock: its holder may wait for the
    /// flush that asks, and the caller asks again.
    pub fn seal_overdue(&self, tombstone_age_max_ms: Option<u64>) -> bool {
        // A sealed generation brings the age with its flush.
        let is_fifo_due = self.sealed.is_empty() && self.holds_overdue_fifo();
        if tombstone_age_max_ms.is_none() && !is_fifo_due {
            return false;
        }
        let _events = hold_events();
        let Some(mut writing) = self.writing.try_lock() else { return false };
        let now_ms = self.clock.unix_ms();
        let oldest_ms = writing.active.oldest_tombstone_ms();
        let is_old = tombstone_age_max_ms
            .zip(oldest_ms)
            .is_some_and(|(age_max_ms, unix_ms)| now_ms.saturating_sub(unix_ms) > age_max_ms);
        (is_old || is_fifo_due) && self.seal_active(&mut writing).is_ok()
    }

    /// Whether an active memtable has entries of a FIFO keyspace whose last flush was too long ago.
    fn holds_overdue_fifo(&self) -> bool {
        let keyspaces = self.catalog.keyspaces();
        let is_due = |keyspace: &Arc<KeyspaceCore>| {
            let fifo = keyspace.fifo();
            fifo.is_some_and(|fifo| fifo.is_flush_due(self.reads.expiry().now_ms()))
                && keyspace.load().memtables.first().is_some_and(|active| !active.is_empty())
        };
        keyspaces.values().any(is_due)
    }

    /// Seals the active memtables to free their memory. Does not wait for the writer's lock; does
    /// nothing if it is taken, or on failure.
    pub fn seal_for_memory(&self) {
        let _events = hold_events();
        if let Some(mut writing) = self.writing.try_lock() {
            let _ = self.seal_active(&mut writing); // A write meets the same failure.
        }
    }

    fn seal_active(&self, writing: &mut Writing) -> Result<()> {
        self.lifecycle.check_writable()?;
        if writing.active.is_empty() { Ok(()) } else { self.rotate(writing) }
    }

    /// Seals the memtables and waits until they are in tables.
    ///
    /// # Errors
    /// The error of the flush; as [`Self::seal`].
    pub fn flush(&self) -> Result<()> {
        self.lifecycle.check_writable()?;
        let through = self.seal()?;
        // Not until the queue is empty: other writers may keep filling it.
        self.wait_for_flushes(&|| self.sealed.is_flushed(through))?;
        // The thread that flushed notes it, too, and may not have come to it.
        self.durable.advance(through);
        Ok(())
    }

    /// Flushes all memtables while there are no writes: the caller holds the writer's lock.
    pub(super) fn flush_locked(&self, writing: &mut Writing) -> Result<()> {
        self.seal_active(writing)?;
        debug_assert!(writing.active.is_empty(), "writers wait for a flush of memtables that are active");
        self.wait_for_flushes(&|| self.sealed.is_empty())
    }

    /// Waits until the entries that the open replayed are in tables, if the log must not be synced
    /// before: the first time that a write after such an open has to be durable. The caller holds
    /// the writer's lock.
    ///
    /// # Errors
    /// The error of the flush.
    pub(super) fn settle_replayed(&self, writing: &mut Writing) -> Result<()> {
        let Some(through) = writing.log.replayed_through() else { return Ok(()) };
        self.wait_for_flushes(&|| self.sealed.is_flushed(through))?;
        writing.log.follow_replayed(None);
        Ok(())
    }

    fn wait_for_flushes(&self, done: &dyn Fn() -> bool) -> Result<()> {
        let background = self.background.get().ok_or_else(Error::closed)?;
        background.wait_for_flushes(done)
    }
}
