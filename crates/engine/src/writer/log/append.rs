//! Appending to the log: the batches of a group, a reserved sequence number, or the long values of
//! a group without a log.

use shamba_key::{KeyspaceId, SeqNo};
use shamba_log::wal::{OpRef, SHARED_BYTES_MAX, ValuePlace};

use super::side::SideFile;
use super::{InLog, Log};
use crate::error::{Error, Result};
use crate::metrics::WorkCounters;
use crate::options::settings::Durability;
use crate::writer::operations::Operations;
use crate::writer::share::{Share, Writes};

/// Buffered bytes at which `Buffered` writes are passed to the operating system.
const BUFFERED_BYTES_MAX: u64 = 64 << 10;

impl Log {
    /// Appends the group's batches, whose entries follow `last_seq`, and makes them as durable as
    /// the strongest one requires. Returns the values that stay in the log.
    ///
    /// # Errors
    /// The error of appending or syncing; nothing of the group may become visible then.
    pub fn append<'a>(
        &mut self,
        last_seq: SeqNo,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<Option<InLog>> {
        let held_bytes_max = self.settings.held_value_bytes_max();
        let Some(wal) = &mut self.wal else { return Err(Error::closed()) };
        let before = wal.offset();
        let mut appended = Ok(());
        let mut places = Vec::new();
        let mut all_buffered = true;
        let mut any_sync = false;
        let mut next_seq = last_seq.next();
        for share in shares.clone() {
            if appended.is_ok() {
                let record = match share.writes {
                    Writes::One(keyspace, op) => wal.append_op(next_seq, keyspace, op),
                    Writes::Batch(Operations { encoded, tally }) => {
                        wal.append_batch(next_seq, tally.count, encoded)
                    }
                };
                appended = record.map(|record| {
                    if let Some(record) = record {
                        share.writes.places(wal.number(), record, held_bytes_max, &mut places);
                    }
                });
            }
            // Saturating: a number near the maximum came from a file, and decoding refuses it.
            next_seq = SeqNo(next_seq.0.saturating_add(u64::from(share.writes.tally().count)));
            all_buffered &= share.durability == Durability::Buffered;
            any_sync |= share.durability == Durability::Sync;
        }
        // Values that stay in the log are read back through the operating system, so they are
        // written now.
        if !all_buffered || wal.buffered() >= BUFFERED_BYTES_MAX || !places.is_empty() {
            appended = appended.and_then(|()| wal.flush());
        }
        if let Err(error) = appended {
            return Err(self.append_failed(last_seq, error.into()));
        }
        assert!(wal.offset() >= before, "the log is shorter after an append");
        debug_assert!(wal.synced() <= wal.offset(), "more of the log is synced than it has");
        let bytes = wal.offset() - before;
        // The memory seldom changes, since a buffer never shrinks.
        let memory_bytes = wal.memory_bytes() as u64;
        if memory_bytes != self.charge.bytes() {
            self.memory.charge(&mut self.charge, memory_bytes);
        }
        let mut in_log = None;
        debug_assert!(
            places.iter().all(|place| u64::from(place.bytes) > held_bytes_max),
            "a value that memtables hold stays in the log"
        );
        if !places.is_empty() {
            in_log = InLog::new(self.values.get_or_insert_with(|| wal.values()), places, held_bytes_max);
        }
        WorkCounters::add_alone(&self.telemetry.work().bytes_wal, bytes);
        self.schedule.add_unsynced(bytes);
        if any_sync {
            self.sync()?;
        } else {
            self.sync_in_time(shares)?;
        }
        Ok(in_log)
    }

    /// Appends an operation without effect, with the sequence number `seq`, and passes it to the
    /// operating system: recovery then sees no gap where `seq` is used by tables.
    ///
    /// # Errors
    /// The error of appending.
    pub fn append_nothing(&mut self, keyspace: KeyspaceId, last_seq: SeqNo, seq: SeqNo) -> Result<()> {
        let Some(wal) = &mut self.wal else { return Err(Error::closed()) };
        let appended = wal.append_op(seq, keyspace, OpRef::NOTHING).and_then(|_| wal.flush());
        appended.map_err(|error| self.append_failed(last_seq, error.into()))
    }

    /// Puts the group's long values into a separate file. Only for a database without a log.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn keep_values<'a>(&mut self, shares: impl Iterator<Item = Share<'a>>) -> Result<Option<InLog>> {
        let held_bytes_max = self.settings.held_value_bytes_max();
        let mut places = Vec::new();
        for share in shares.filter(|share| share.writes.bytes() > SHARED_BYTES_MAX) {
            let mut kept = Ok(());
            share.writes.long_values(held_bytes_max, &mut |_, value| {
                if kept.is_ok() {
                    kept = self.keep_value(value).map(|place| places.push(place));
                }
            });
            kept?;
        }
        Ok(self.side.as_ref().and_then(|side| InLog::new(side.values(), places, held_bytes_max)))
    }

    fn keep_value(&mut self, value: &[u8]) -> Result<ValuePlace> {
        let side = match &mut self.side {
            Some(side) => side,
            none => {
                let (dir, number) = (self.catalog.dir(), self.catalog.new_log_no());
                none.insert(SideFile::create(&self.env, dir, number)?)
            }
        };
        let kept = side.append(value);
        if kept.is_err() {
            if let Some(side) = self.side.take() {
                // Nothing more is appended to this file. It is kept until the entries that refer to
                // it are flushed.
                self.sealed_files.push(side.into_file());
            }
        }
        kept
    }
}
