//! Commit: writes a group of batches to the log and to the memtables, one group at a time.
//!
//! The queue ([`super::queue`]) decides which writer leads and which batches are in its group. A
//! single operation is encoded straight into the log's frame and copied from the caller's memory
//! into the memtable: no allocation, no second copy.
//!
//! Steps of a group: assign sequence numbers; append every batch to the log; write the log to the
//! operating system with one call, or sync it, as the strongest durability in the group requires;
//! insert into the memtables; publish the sequence number; rotate the memtables if they are full.
//!
//! Invariants:
//! - Nothing is visible before its record has reached the place that its durability requires.
//! - A batch that failed is not visible. Its sequence numbers are assigned again only when its
//!   record cannot be in the log (a failed append seals the log; a failed sync turns writes off).
//! - `visible_seq` is stored once per group, after all inserts, so no reader sees half a batch.
//! - A batch that does not fit one frame is a group by itself. The log takes it piece by piece, and
//!   a failure removes all its pieces and nothing else.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::RangeTombstone;

use crate::catalog::KeyspaceCore;
use crate::core::{Core, Writing};
use crate::error::{Error, Result};
use crate::metrics::WorkCounters;
use crate::settings::Durability;
use crate::trace::Noting;
use crate::write::batch::{Operations, Tally, WriteOptions, check_op};
use crate::write::in_log::InLog;
use crate::write::queue::Own;
use shamba_env::{lock, try_lock};
use shamba_key::KeyspaceId;
use shamba_log::wal::{OpRef, WalWriter, encoded_ops};

/// Buffered bytes at which `Buffered` writes are passed to the operating system.
pub(crate) const BUFFERED_BYTES_MAX: u64 = 64 << 10;

/// The operations of one batch of a group.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    One(KeyspaceId, OpRef<'a>),
    Batch(&'a Operations),
}

impl Work<'_> {
    fn tally(&self) -> Tally {
        match self {
            Self::One(_, op) => Tally::of(*op),
            Self::Batch(operations) => operations.tally,
        }
    }

    /// Upper bound of the encoded bytes in the log; close to the actual length.
    pub fn bytes(&self) -> usize {
        match self {
            Self::One(_, op) => op.encoded_bytes_max(),
            Self::Batch(operations) => operations.encoded.len(),
        }
    }
}

/// One batch of a group and its durability.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    pub work: Work<'a>,
    pub durability: Durability,
}

impl Core {
    /// Makes one operation visible and as durable as asked; see the module's header.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit_op(&self, keyspace: &KeyspaceCore, op: OpRef<'_>, options: WriteOptions) -> Result<()> {
        keyspace.check_usable()?;
        check_op(op)?;
        let durability = self.admit(op.encoded_bytes_max(), options)?;
        self.commit_own(Own::One(keyspace.id, op), durability)
    }

    /// [`Self::commit_op`] for a batch. Its operations are lent to a leader meanwhile and returned
    /// whatever the outcome.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit(&self, operations: &mut Operations, options: WriteOptions) -> Result<()> {
        if operations.tally.count == 0 {
            self.lifecycle.check_writable()?;
            let durability = self.durability(options)?;
            return if durability == Durability::Sync { self.sync_log() } else { Ok(()) };
        }
        let durability = self.admit(operations.encoded.len(), options)?;
        self.commit_own(Own::Batch(operations), durability)
    }

    fn durability(&self, options: WriteOptions) -> Result<Durability> {
        let durability = options.durability.unwrap_or(self.settings.durability);
        if self.settings.no_wal && durability != Durability::NoSync {
            return Err(Error::invalid(
                "the database is open without a log: the only possible durability is NoSync",
            ));
        }
        Ok(durability)
    }

    /// Applies back-pressure to a write of `bytes` and returns its durability.
    fn admit(&self, bytes: usize, options: WriteOptions) -> Result<Durability> {
        self.lifecycle.check_writable()?;
        let durability = self.durability(options)?;
        self.make_room(bytes, options.deadline_ms)?;
        Ok(durability)
    }

    /// Runs the steps of a group, in the order that the invariants require.
    ///
    /// # Errors
    /// The error of the step that failed; nothing of the group is visible then.
    pub(super) fn write_group<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<()> {
        self.lifecycle.check_writable()?;
        if writing.active.bytes() >= self.memtable_limit_bytes().saturating_mul(2) {
            // Reached only when rotations after acknowledged writes keep failing: memory must not
            // grow without limit.
            self.rotate(writing)?;
        }
        let mut in_log = if self.settings.no_wal {
            self.keep_values(writing, shares.clone())?
        } else {
            self.log_group(writing, shares.clone())?
        };
        let bytes = shares.clone().map(|share| share.work.bytes() as u64).sum::<u64>();
        let in_log_bytes = in_log.as_ref().map_or(0, InLog::bytes);
        self.reserve_memtables(writing, bytes.saturating_sub(in_log_bytes));
        // Nothing fails from here on. `noting` holds the recording's lock until the sequence number
        // is published, so a read that sees the group is recorded after it.
        let noting = self.recorder.is_on().then(|| self.note_group(shares.clone()));
        let mut tally = Tally::default();
        let mut batches = 0;
        let mut seq = writing.last_seq;
        for share in shares {
            match share.work {
                Work::One(keyspace, op) => {
                    seq = seq.next();
                    self.insert(writing, keyspace, seq, op, &mut in_log);
                }
                Work::Batch(operations) => {
                    for (keyspace, op) in encoded_ops(&operations.encoded) {
                        seq = seq.next();
                        self.insert(writing, keyspace, seq, op, &mut in_log);
                    }
                }
            }
            tally.add(&share.work.tally());
            batches += 1;
        }
        writing.last_seq = seq;
        self.reads.publish(seq);
        drop(noting);
        self.count_group(batches, &tally);
        // The group is already committed, so a failed rotation must not fail it.
        if self.is_rotation_due(writing) {
            if let Err(error) = self.rotate(writing) {
                self.rotation_failed(&error);
            }
        }
        Ok(())
    }

    /// Records the group in the trace.
    #[cold]
    fn note_group<'a>(&self, shares: impl Iterator<Item = Share<'a>>) -> Noting<'_> {
        let keyspaces = self.catalog.keyspaces();
        let mut noting = self.recorder.noting();
        // A write to a dropped keyspace has no effect.
        let mut note = |id: KeyspaceId, op| {
            if let Some(keyspace) = keyspaces.get(&id) {
                noting.write(id, &keyspace.name, op);
            }
        };
        for share in shares {
            match share.work {
                Work::One(keyspace, op) => note(keyspace, op),
                Work::Batch(operations) => {
                    encoded_ops(&operations.encoded).for_each(|(keyspace, op)| note(keyspace, op));
                }
            }
        }
        noting
    }

    /// Appends the group's batches to the log and makes them as durable as the strongest one
    /// requires. Returns the values that stay in the log.
    fn log_group<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<Option<InLog>> {
        self.ensure_log(writing)?;
        let first_seq = writing.last_seq.next();
        let held_bytes_max = self.settings.held_value_bytes_max();
        let Some(wal) = &mut writing.wal else { return Err(Error::closed()) };
        let before = wal.offset();
        let mut appended = Ok(());
        let mut places = Vec::new();
        let mut all_buffered = true;
        let mut any_sync = false;
        let mut next_seq = first_seq;
        for share in shares.clone() {
            if appended.is_ok() {
                let record = match share.work {
                    Work::One(keyspace, op) => wal.append_op(next_seq, keyspace, op),
                    Work::Batch(Operations { encoded, tally }) => {
                        wal.append_batch(next_seq, tally.count, encoded)
                    }
                };
                appended = record.map(|record| {
                    if let Some(record) = record {
                        share.work.places(wal.number(), record, held_bytes_max, &mut places);
                    }
                });
            }
            // Saturating: a number near the maximum came from a file, and decoding refuses it.
            next_seq = SeqNo(next_seq.0.saturating_add(u64::from(share.work.tally().count)));
            all_buffered &= share.durability == Durability::Buffered;
            any_sync |= share.durability == Durability::Sync;
        }
        // Values that stay in the log are read back through the operating system, so they are
        // written now.
        if !all_buffered || wal.buffered() >= BUFFERED_BYTES_MAX || !places.is_empty() {
            appended = appended.and_then(|()| wal.flush());
        }
        if let Err(error) = appended {
            let error = self.log_append_failed(writing, error.into());
            return Err(error);
        }
        let bytes = wal.offset() - before;
        // The memory seldom changes, since a buffer never shrinks.
        if wal.memory_bytes() as u64 != writing.log_charge.bytes() {
            self.charge_memory(&mut writing.log_charge, wal.memory_bytes() as u64);
        }
        let mut in_log = None;
        if !places.is_empty() {
            in_log = InLog::new(writing.values.get_or_insert_with(|| wal.values()), places, held_bytes_max);
        }
        WorkCounters::add_alone(&self.telemetry.work().bytes_wal, bytes);
        WorkCounters::add_alone(&self.unsynced_bytes, bytes);
        if !any_sync {
            self.sync_in_time(writing, shares)?;
        } else {
            self.sync_locked(writing)?;
        }
        Ok(in_log)
    }

    /// Keeps the deadlines of `Interval` writes: schedules the next sync, and syncs now if one is
    /// due.
    fn sync_in_time<'a>(&self, writing: &mut Writing, shares: impl Iterator<Item = Share<'a>>) -> Result<()> {
        let mut now_us = None;
        let mut is_due = false;
        for share in shares {
            if let Durability::Interval { ms, bytes } = share.durability {
                let now_us = *now_us.get_or_insert_with(|| self.env.clock.now_us());
                self.sync_by(writing, now_us.saturating_add(ms.saturating_mul(1_000)));
                is_due |= self.unsynced_bytes.load(Ordering::Relaxed) >= bytes;
            }
        }
        is_due |= writing
            .sync_due_us
            .is_some_and(|due_us| now_us.unwrap_or_else(|| self.env.clock.now_us()) >= due_us);
        if is_due { self.sync_locked(writing) } else { Ok(()) }
    }

    /// Inserts an operation into its active memtable, or discards it if the keyspace was dropped.
    fn insert(
        &self,
        writing: &Writing,
        keyspace: KeyspaceId,
        seq: SeqNo,
        op: OpRef<'_>,
        in_log: &mut Option<InLog>,
    ) {
        let place = in_log.as_mut().and_then(|in_log| in_log.place_of(op));
        let Some(active) = writing.active.get(keyspace) else { return };
        match (op, in_log, place) {
            (OpRef::Put { key, .. }, Some(InLog { log, .. }), Some(place)) => {
                active.insert_in_log(self.digest.digest(key), key, seq, log, place);
            }
            _ => apply_op(active, self.digest, seq, op),
        }
    }

    /// Adds a group to the counters. The caller holds the lock of [`Core::writing`], which guards
    /// them.
    fn count_group(&self, batches: u64, tally: &Tally) {
        let Tally { count: _, puts, deletes, range_deletes, user_bytes } = *tally;
        WorkCounters::add_alone(&self.telemetry.work().puts, puts);
        WorkCounters::add_alone(&self.telemetry.work().deletes, deletes);
        WorkCounters::add_alone(&self.telemetry.work().range_deletes, range_deletes);
        WorkCounters::add_alone(&self.telemetry.work().bytes_user, user_bytes);
        WorkCounters::add_alone(&self.telemetry.work().batches, batches);
        WorkCounters::add_alone(&self.telemetry.work().commit_groups, 1);
    }

    /// Warns of `Buffered` writes that a drop without `close` loses.
    pub(crate) fn warn_of_unwritten(&self) {
        let Some(writing) = try_lock(&self.writing) else { return };
        let bytes = writing.wal.as_ref().map_or(0, WalWriter::buffered);
        drop(writing);
        if bytes > 0 {
            self.telemetry.warn(format!(
                "the database was dropped without close: {bytes} bytes of Buffered writes are lost; call close or sync"
            ));
        }
    }

    /// Syncs everything in the logs, whatever the durability of the writes was.
    pub fn sync_log(&self) -> Result<()> {
        if self.settings.no_wal {
            return Err(Error::invalid("the database is open without a log: flush instead of sync"));
        }
        self.lifecycle.check_writable()?;
        self.sync_locked(&mut lock(&self.writing))
    }

    /// Syncs sealed logs, then the active one: no later log becomes durable before an earlier one.
    pub(crate) fn sync_locked(&self, writing: &mut Writing) -> Result<()> {
        let synced = self.sync_sealed(writing).and_then(|()| match &mut writing.wal {
            Some(wal) if wal.synced() < wal.offset() => {
                WorkCounters::add(&self.telemetry.work().wal_syncs, 1);
                wal.predecessor_is_synced();
                Ok(wal.sync()?)
            }
            _ => Ok(()),
        });
        // No sync is due after a failure either: a failed sync is never repeated.
        if writing.sync_due_us.take().is_some() {
            *lock(&self.background.sync_due_us) = None;
        }
        match synced {
            Ok(()) => {
                self.unsynced_bytes.store(0, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                // The contents of the disk are unknown now: a second sync could succeed over lost
                // pages.
                self.lifecycle.fail(&error);
                Err(error)
            }
        }
    }

    /// Syncs the sealed logs, oldest first, and removes them from the list.
    pub(crate) fn sync_sealed(&self, writing: &mut Writing) -> Result<()> {
        while let Some(sealed) = writing.sealed.front() {
            let mut wal = lock(sealed);
            if wal.synced() < wal.flushed() {
                WorkCounters::add(&self.telemetry.work().wal_syncs, 1);
                wal.predecessor_is_synced();
                wal.sync()?;
            }
            drop(wal);
            writing.sealed.pop_front();
        }
        Ok(())
    }
}

/// Inserts one operation into a memtable; used by commits and by recovery.
pub(crate) fn apply_op(
    memtable: &dyn shamba_memtable::Memtable,
    digest: shamba_key::DigestFn,
    seq: SeqNo,
    op: OpRef<'_>,
) {
    match op {
        OpRef::Put { key, value } => memtable.insert(digest.digest(key), key, seq, EntryKind::Put, value),
        OpRef::Delete { key } => memtable.insert(digest.digest(key), key, seq, EntryKind::Delete, &[]),
        OpRef::RangeDelete { start, end } => memtable.insert_range_delete(RangeTombstone {
            start: Bytes::copy_from_slice(start),
            end: end.map(Bytes::copy_from_slice),
            seq,
        }),
    }
}
