//! Group commit: writers queue, one of them leads and writes for all that wait.
//!
//! A writer that finds no leader leads. The leader takes what has gathered (up to a limit), gives out
//! sequence numbers, appends every batch to the log, hands the log to the operating system or syncs it as
//! the strongest request of the group demands, inserts into the memtables, publishes the sequence number,
//! rotates what is full, answers, and hands leadership to the next waiting writer.
//!
//! Invariants:
//! - nothing is visible before its record is where its durability demands;
//! - a batch that failed is not visible, and its sequence numbers are given out again only when its
//!   record cannot be in the log (an append that failed seals the log; a sync that failed turns writes off);
//! - `visible_seq` moves once per group, after all inserts: no reader sees half a batch.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::RangeTombstone;

use crate::core::{Core, Writing, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::WorkCounters;
use crate::planted::{Defect, is_planted};
use crate::settings::Durability;
use crate::wal::{BatchView, Op};
use crate::write::batch::{BATCH_PREFIX_BYTES, Operations, WriteOptions};

/// A leader stops gathering at this many bytes: followers should not wait for a group without end.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// `Buffered` writes go to the operating system once this much has gathered.
pub(crate) const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// One writer's batch on its way.
struct Request {
    operations: Operations,
    durability: Durability,
}

enum Place {
    Waiting(Request),
    /// A leader has the request.
    Taken,
    /// The writer is to lead, with its own request first.
    Lead(Request),
    Done(Result<()>),
}

/// Where a follower waits.
struct Ticket {
    place: Mutex<Place>,
    changed: Condvar,
}

impl Ticket {
    fn set(&self, place: Place) {
        *lock(&self.place) = place;
        self.changed.notify_one();
    }

    fn take_request(&self) -> Option<Request> {
        let mut place = lock(&self.place);
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Waiting(request) => Some(request),
            other => {
                *place = other;
                None
            }
        }
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Ticket>>,
    leading: bool,
}

/// The writers that wait.
#[derive(Default)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
}

/// Passes leadership on when the leader is done, also if it panics.
struct Leadership<'a> {
    core: &'a Core,
    followers: Vec<Arc<Ticket>>,
    answered: bool,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        if !self.answered {
            // The leader panicked: what it did is unknown, so nothing more may be written.
            let cause = Error::new(ErrorKind::ReadOnly, "a commit panicked");
            self.core.fail(&cause);
            for ticket in self.followers.drain(..) {
                ticket.set(Place::Done(Err(cause.clone())));
            }
        }
        let mut queue = lock(&self.core.commits.queue);
        while let Some(ticket) = queue.waiting.pop_front() {
            if let Some(request) = ticket.take_request() {
                ticket.set(Place::Lead(request));
                return;
            }
        }
        queue.leading = false;
    }
}

impl Core {
    /// Makes `operations` visible and as durable as asked; see the module's header.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit(&self, operations: Operations, options: WriteOptions) -> Result<()> {
        self.check_writable()?;
        let durability = options.durability.unwrap_or(self.settings.durability);
        if self.settings.no_wal && durability != Durability::NoSync {
            return Err(Error::invalid(
                "the database is open without a log: a write cannot ask for a durability",
            ));
        }
        if operations.count == 0 {
            return if durability == Durability::Sync { self.sync_log() } else { Ok(()) };
        }
        self.make_room(options.deadline_ms)?;
        let outcome = self.enqueue(Request { operations, durability });
        if self.is_inline() {
            self.run_background_inline();
        }
        outcome
    }

    fn enqueue(&self, request: Request) -> Result<()> {
        let mut queue = lock(&self.commits.queue);
        if !queue.leading {
            queue.leading = true;
            drop(queue);
            return self.lead(request);
        }
        let ticket = Arc::new(Ticket { place: Mutex::new(Place::Waiting(request)), changed: Condvar::new() });
        queue.waiting.push_back(Arc::clone(&ticket));
        drop(queue);
        let mut place = lock(&ticket.place);
        loop {
            match std::mem::replace(&mut *place, Place::Taken) {
                Place::Done(outcome) => return outcome,
                Place::Lead(request) => {
                    drop(place);
                    return self.lead(request);
                }
                other => *place = other,
            }
            place = ticket.changed.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes for the caller and for everybody who waits.
    fn lead(&self, own: Request) -> Result<()> {
        let mut leadership = Leadership { core: self, followers: Vec::new(), answered: false };
        // The log is locked first: followers gather while an earlier holder (a sync, a rotation) is busy.
        let mut writing = lock(&self.writing);
        let mut bytes = own.operations.encoded.len();
        let mut group = vec![own];
        {
            let mut queue = lock(&self.commits.queue);
            while bytes < GROUP_BYTES_MAX
                && let Some(ticket) = queue.waiting.pop_front()
            {
                if let Some(request) = ticket.take_request() {
                    bytes += request.operations.encoded.len();
                    group.push(request);
                    leadership.followers.push(ticket);
                }
            }
        }
        let outcome = self.write_group(&mut writing, group);
        drop(writing);
        for ticket in &leadership.followers {
            ticket.set(Place::Done(outcome.clone()));
        }
        leadership.answered = true;
        outcome
    }

    /// The steps of a group, in the order that the invariants demand.
    fn write_group(&self, writing: &mut Writing, mut group: Vec<Request>) -> Result<()> {
        self.check_writable()?;
        if self.active_bytes() >= self.settings.design.buffer_bytes.saturating_mul(2) {
            // Rotations after acknowledged writes failed again and again: memory must not grow without end.
            self.rotate(writing)?;
        }
        let first_seq = writing.last_seq.next();
        let mut next_seq = first_seq;
        let mut views = Vec::with_capacity(group.len());
        for request in &mut group {
            let operations = &mut request.operations;
            let payload = operations.take_payload(next_seq);
            // Saturating: a number near the end of all numbers came from a file, and decoding refuses it.
            next_seq = SeqNo(next_seq.0.saturating_add(u64::from(operations.count)));
            // Decoding what was just encoded checks it before it can reach the log, and shares the bytes
            // with the memtable.
            let view = BatchView::decode(&payload).map_err(Error::invalid)?;
            views.push((payload, view));
        }
        let last_seq = SeqNo(next_seq.0 - 1);
        if !self.settings.no_wal {
            self.log_group(writing, &views, &group)?;
        }
        for (_, view) in &views {
            self.insert(view);
        }
        writing.last_seq = last_seq;
        self.visible_seq.store(last_seq.0, Ordering::Release);
        self.count_group(&group);
        // The group is acknowledged: a failure from here on is not its failure.
        if self.is_rotation_due(writing)
            && let Err(error) = self.rotate(writing)
        {
            self.rotation_failed(&error);
        }
        Ok(())
    }

    /// Appends the group's batches to the log and makes them as durable as the strongest asks.
    fn log_group(
        &self,
        writing: &mut Writing,
        views: &[(Bytes, BatchView)],
        group: &[Request],
    ) -> Result<()> {
        self.ensure_log(writing)?;
        let Some(wal) = &mut writing.wal else { return Err(Error::closed()) };
        let before = wal.offset();
        let mut appended = Ok(());
        for (payload, view) in views {
            let ops = payload.get(BATCH_PREFIX_BYTES..).unwrap_or_default();
            appended = appended.and_then(|()| wal.append_batch(view.first_seq(), view.count(), ops));
        }
        let all_buffered = group.iter().all(|request| request.durability == Durability::Buffered);
        if !all_buffered || wal.buffered() >= BUFFERED_BYTES_MAX {
            appended = appended.and_then(|()| wal.flush());
        }
        if let Err(error) = appended {
            return Err(self.log_append_failed(writing, error));
        }
        let bytes = wal.offset() - before;
        WorkCounters::add(&self.work.bytes_wal, bytes);
        let unsynced_bytes = self.unsynced_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if group.iter().any(|request| request.durability == Durability::Sync) {
            if is_planted(Defect::AckBeforeSync) {
                return Ok(());
            }
            return self.sync_locked(writing);
        }
        let intervals = group.iter().filter_map(|request| match request.durability {
            Durability::Interval { ms, bytes } => Some((ms, bytes)),
            _ => None,
        });
        let now_us = self.env.clock.now_us();
        let mut is_due = false;
        for (ms, bytes) in intervals {
            self.sync_by(now_us.saturating_add(ms.saturating_mul(1_000)));
            is_due |= unsynced_bytes >= bytes;
        }
        is_due |= lock(&self.background.sync_due_us).is_some_and(|due_us| now_us >= due_us);
        if is_due { self.sync_locked(writing) } else { Ok(()) }
    }

    /// Inserts a batch into the active memtables. Operations on a dropped keyspace go nowhere.
    fn insert(&self, batch: &BatchView) {
        let keyspaces = self.keyspaces.load();
        for (seq, keyspace, op) in batch.ops() {
            let Some(keyspace) = keyspaces.get(&keyspace) else { continue };
            let view = keyspace.load();
            if let Some(active) = view.memtables.first() {
                apply_op(active.as_ref(), self.digest, seq, op);
            }
        }
    }

    fn count_group(&self, group: &[Request]) {
        let sum = |part: fn(&Operations) -> u64| group.iter().map(|request| part(&request.operations)).sum();
        WorkCounters::add(&self.work.puts, sum(|operations| operations.puts));
        WorkCounters::add(&self.work.deletes, sum(|operations| operations.deletes));
        WorkCounters::add(&self.work.range_deletes, sum(|operations| operations.range_deletes));
        WorkCounters::add(&self.work.bytes_user, sum(|operations| operations.user_bytes));
        WorkCounters::add(&self.work.batches, group.len() as u64);
        WorkCounters::add(&self.work.commit_groups, 1);
    }

    /// Syncs everything that is in the logs, whatever its option was.
    pub fn sync_log(&self) -> Result<()> {
        if self.settings.no_wal {
            return Err(Error::invalid(
                "the database is open without a log: there is nothing to sync; flush instead",
            ));
        }
        self.check_writable()?;
        self.sync_locked(&mut lock(&self.writing))
    }

    /// Syncs sealed logs, then the active one, so that no later log is durable before an earlier one.
    pub(crate) fn sync_locked(&self, writing: &mut Writing) -> Result<()> {
        let synced = self.sync_sealed(writing).and_then(|()| match &mut writing.wal {
            Some(wal) if wal.synced() < wal.offset() => {
                WorkCounters::add(&self.work.wal_syncs, 1);
                wal.predecessor_is_synced();
                wal.sync()
            }
            _ => Ok(()),
        });
        // After a failure nothing is due any more, either: no sync is tried again.
        *lock(&self.background.sync_due_us) = None;
        match synced {
            Ok(()) => {
                self.unsynced_bytes.store(0, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                // What the disk holds is unknown now: a second sync could succeed over lost pages.
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Syncs the sealed logs, oldest first, and lets go of them.
    pub(crate) fn sync_sealed(&self, writing: &mut Writing) -> Result<()> {
        while let Some(sealed) = writing.sealed.front() {
            let mut wal = lock(sealed);
            if wal.synced() < wal.flushed() {
                WorkCounters::add(&self.work.wal_syncs, 1);
                wal.predecessor_is_synced();
                wal.sync()?;
            }
            drop(wal);
            writing.sealed.pop_front();
        }
        Ok(())
    }
}

/// Puts one operation into a memtable; used by commits and by recovery.
pub(crate) fn apply_op(
    memtable: &dyn crate::memtable::Memtable,
    digest: shamba_key::DigestFn,
    seq: SeqNo,
    op: Op,
) {
    use shamba_key::EntryKind::{Delete, Put};
    match op {
        Op::Put { key, value } => memtable.insert(digest.digest(&key), &key, seq, Put, &value),
        Op::Delete { key } => memtable.insert(digest.digest(&key), &key, seq, Delete, &Bytes::new()),
        Op::RangeDelete { start, end } => memtable.insert_range_delete(RangeTombstone { start, end, seq }),
    }
}
