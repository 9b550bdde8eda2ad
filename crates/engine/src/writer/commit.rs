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

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry, KeyDigest, KeyspaceId, SeqNo};
use shamba_log::wal::OpRef;
use shamba_memtable::Memtable;
use shamba_table::RangeTombstone;

use super::log::InLog;
use super::memtables::ActiveMemtables;
use super::operations::Tally;
use super::queue::Groups;
use super::share::{Share, Writes};
use super::{Writer, Writing};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::metrics::WorkCounters;
use crate::options::settings::Durability;
use crate::ranked::Ranked;
use crate::trace::{Noting, TraceRecorder};

impl Groups for Writer {
    type State = Writing;

    fn state(&self) -> &Ranked<Writing> {
        &self.writing
    }

    fn refused<'a>(
        &self,
        _writing: &Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Vec<Option<Error>> {
        let conflicts = self.conflicts(shares);
        if conflicts.iter().any(Option::is_some) {
            let count =
                |is_proved| conflicts.iter().flatten().filter(|one| one.is_proved == is_proved).count();
            let work = self.telemetry.work();
            WorkCounters::add_alone(&work.conflicts, count(true) as u64);
            WorkCounters::add_alone(&work.conflicts_unproved, count(false) as u64);
        }
        conflicts.into_iter().map(|one| one.map(Error::of_conflict)).collect()
    }

    /// Runs the steps of a group, in the order that the invariants require.
    fn write_group<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<SeqNo> {
        self.lifecycle.check_writable()?;
        let limit_bytes = self.memory.memtable_limit_bytes();
        if writing.active.bytes() >= limit_bytes.saturating_mul(2) {
            // Reached only when rotations after acknowledged writes keep failing: memory must not
            // grow without limit.
            self.rotate(writing)?;
        }
        let mut first_digest = self.prefetch(&writing.active, shares.clone().next());
        let mut in_log = if self.settings.no_wal {
            writing.log.keep_values(shares.clone())?
        } else {
            self.ensure_log(writing)?;
            let is_synced =
                |share: Share<'_>| matches!(share.durability, Durability::Sync | Durability::Interval { .. });
            if writing.log.replayed_through().is_some() && shares.clone().any(is_synced) {
                self.settle_replayed(writing)?;
            }
            writing.log.append(writing.last_seq, shares.clone())?
        };
        let bytes = shares.clone().map(|share| share.writes.bytes() as u64).sum::<u64>();
        let in_log_bytes = in_log.as_ref().map_or(0, InLog::bytes);
        let held_bytes = bytes.saturating_sub(in_log_bytes);
        writing.active.reserve(held_bytes, self.settings.budget_bytes(), self.memory.as_ref());
        // Nothing fails from here on. `noting` holds the recording's lock until the sequence number
        // is published, so a read that sees the group is recorded after it.
        let noting = self.recorder.is_on().then(|| note(&self.recorder, &self.catalog, shares.clone()));
        debug_assert!(
            self.reads.visible() <= writing.last_seq,
            "a sequence number is visible before it is used"
        );
        debug_assert!(in_log_bytes <= bytes, "more bytes stay in the log than the group has");
        let mut tally = Tally::default();
        let mut batches = 0;
        let mut seq = writing.last_seq;
        for share in shares {
            share.writes.for_each(|keyspace, op| {
                seq = seq.next();
                let digest = |key: &[u8]| first_digest.take().unwrap_or_else(|| self.digest.digest(key));
                insert(&writing.active, digest, keyspace, seq, op, &mut in_log);
            });
            tally.add(&share.writes.tally());
            batches += 1;
        }
        debug_assert_eq!(
            seq.0 - writing.last_seq.0,
            tally.of_all_kinds(),
            "a group has as many sequence numbers as operations"
        );
        debug_assert!(
            in_log.as_ref().is_none_or(|in_log| in_log.bytes() == 0),
            "every value that stays in the log is referred to"
        );
        if tally.deletes + tally.range_deletes > 0 {
            writing.active.note_tombstone(|| self.clock.unix_ms());
        }
        writing.last_seq = seq;
        self.publish(writing, seq);
        drop(noting);
        count(self.telemetry.work(), batches, &tally);
        // The group is already committed, so a failed rotation must not fail it.
        if self.is_rotation_due(writing, limit_bytes) {
            if let Err(error) = self.rotate(writing) {
                // The memtables stay active, and the next write tries again.
                self.telemetry.background_error("rotating the log", &error);
            }
        }
        Ok(seq)
    }

    fn give_up(&self, cause: &Error) {
        self.lifecycle.fail(cause);
    }
}

impl Writer {
    /// Prefetches what the insertion of a single operation needs of its memtable, while the log is
    /// written. Returns the digest of its key.
    fn prefetch(&self, active: &ActiveMemtables, first: Option<Share<'_>>) -> Option<KeyDigest> {
        let Writes::One(keyspace, op) = first?.writes else { return None };
        let digest = self.digest.digest(op.key()?);
        active.get(keyspace)?.prefetch(digest);
        Some(digest)
    }
}

/// Records a group in the trace.
#[cold]
fn note<'r, 'a>(
    recorder: &'r TraceRecorder,
    catalog: &Catalog,
    shares: impl Iterator<Item = Share<'a>>,
) -> Noting<'r> {
    let keyspaces = catalog.keyspaces();
    let mut noting = recorder.noting();
    for share in shares {
        share.writes.for_each(|id, op| {
            // A write to a dropped keyspace has no effect.
            if let Some(keyspace) = keyspaces.get(&id) {
                noting.write(id, &keyspace.name, op);
            }
        });
    }
    noting
}

/// Inserts an operation into its active memtable, or discards it if the keyspace was dropped.
fn insert(
    active: &ActiveMemtables,
    digest: impl FnOnce(&[u8]) -> KeyDigest,
    keyspace: KeyspaceId,
    seq: SeqNo,
    op: OpRef<'_>,
    in_log: &mut Option<InLog>,
) {
    let place = in_log.as_mut().and_then(|in_log| in_log.place_of(op));
    let Some(memtable) = active.get(keyspace) else { return };
    match (op, in_log, place) {
        (OpRef::Put { key, .. }, Some(InLog { log, .. }), Some(place)) => {
            memtable.insert_in_log(digest(key), key, (seq, None), log, place);
        }
        (OpRef::PutExpiring { key, stored }, Some(InLog { log, .. }), Some(place)) => {
            let expiry = Expiry::of(EntryKind::PutWithExpiry, stored);
            memtable.insert_in_log(digest(key), key, (seq, expiry), log, place);
        }
        _ => apply_op(memtable, digest, seq, op),
    }
}

/// Adds a group to the counters. The caller holds the writer's lock, which guards them.
fn count(work: &WorkCounters, batches: u64, tally: &Tally) {
    let Tally { count: _, puts, deletes, range_deletes, merges, user_bytes } = *tally;
    WorkCounters::add_alone(&work.puts, puts);
    WorkCounters::add_alone(&work.deletes, deletes);
    WorkCounters::add_alone(&work.range_deletes, range_deletes);
    WorkCounters::add_alone(&work.merge_operations, merges);
    WorkCounters::add_alone(&work.bytes_user, user_bytes);
    WorkCounters::add_alone(&work.batches, batches);
    WorkCounters::add_alone(&work.commit_groups, 1);
}

/// Inserts one operation into a memtable; used by commits and by recovery.
pub(crate) fn apply_op(
    memtable: &dyn Memtable,
    digest: impl FnOnce(&[u8]) -> KeyDigest,
    seq: SeqNo,
    op: OpRef<'_>,
) {
    match op {
        OpRef::Put { key, value } => memtable.insert(digest(key), key, seq, EntryKind::Put, value),
        OpRef::PutExpiring { key, stored } => {
            memtable.insert(digest(key), key, seq, EntryKind::PutWithExpiry, stored);
        }
        OpRef::Delete { key } => memtable.insert(digest(key), key, seq, EntryKind::Delete, &[]),
        OpRef::Merge { key, operand } => memtable.insert(digest(key), key, seq, EntryKind::Merge, operand),
        OpRef::RangeDelete { start, end } => memtable.insert_range_delete(RangeTombstone {
            start: Bytes::copy_from_slice(start),
            end: end.map(Bytes::copy_from_slice),
            seq,
        }),
    }
}
