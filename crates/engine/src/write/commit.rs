//! Commit: one writer at a time writes for itself and for everybody who waits.
//!
//! A writer that finds nobody at work takes the lock and writes: no queue, no allocation, its operation is
//! encoded straight into the log's frame. A writer that finds somebody at work joins the queue. The first of
//! the queue leads: it waits for the lock, takes what has gathered meanwhile (up to a limit) and writes all of
//! it as one group; then it answers and hands leadership to the next.
//!
//! Writing a group: give out sequence numbers, append every batch to the log, hand the log to the operating
//! system by one call, or sync it, as the strongest request of the group demands, insert into the memtables,
//! publish the sequence number, rotate what is full.
//!
//! Invariants:
//! - nothing is visible before its record is where its durability demands;
//! - a batch that failed is not visible, and its sequence numbers are given out again only when its
//!   record cannot be in the log (an append that failed seals the log; a sync that failed turns writes off);
//! - `visible_seq` moves once per group, after all inserts: no reader sees half a batch;
//! - a batch that does not fit one frame is a group by itself: the log takes it piece by piece, and a failure
//!   takes back all pieces and nothing else.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::RangeTombstone;

use crate::core::{Core, KeyspaceCore, Writing, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::KeyspaceId;
use crate::metrics::WorkCounters;
use crate::planted::{Defect, is_planted};
use crate::settings::Durability;
use crate::wal::{OpRef, SHARED_BYTES_MAX, encoded_ops};
use crate::write::batch::{Operations, Tally, WriteOptions, check_op};

/// A leader stops gathering at this many bytes: followers should not wait for a group without end.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// `Buffered` writes go to the operating system once this much has gathered.
pub(crate) const BUFFERED_BYTES_MAX: u64 = 64 << 10;

/// What a writer brings.
enum Own<'a> {
    One(KeyspaceId, OpRef<'a>),
    Batch(&'a mut Operations),
}

impl Own<'_> {
    fn work(&self) -> Work<'_> {
        match self {
            Self::One(keyspace, op) => Work::One(*keyspace, *op),
            Self::Batch(operations) => Work::Batch(operations),
        }
    }

    /// The work in a form that another thread may take.
    fn take(&mut self) -> Result<Operations> {
        match self {
            Self::One(keyspace, op) => {
                let mut operations = SPARE.take();
                operations.clear();
                operations.push(*keyspace, *op)?;
                Ok(operations)
            }
            Self::Batch(operations) => Ok(std::mem::take(operations)),
        }
    }

    /// Keeps the memory of what [`Self::take`] gave.
    fn give_back(&mut self, taken: Operations) {
        match self {
            Self::One(..) => SPARE.set(taken),
            Self::Batch(operations) => **operations = taken,
        }
    }
}

thread_local! {
    /// Memory for a single operation that has to wait for a leader.
    static SPARE: Cell<Operations> = const { Cell::new(Operations::EMPTY) };
    /// Where this thread waits.
    static TICKET: Cell<Option<Arc<Ticket>>> = const { Cell::new(None) };
}

/// One batch of a group.
#[derive(Clone, Copy)]
enum Work<'a> {
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

    /// About how long it is in the log; never less.
    fn bytes(&self) -> usize {
        match self {
            Self::One(_, op) => op.encoded_bytes_max(),
            Self::Batch(operations) => operations.encoded.len(),
        }
    }
}

/// One batch of a group and what its acknowledgement is to mean.
#[derive(Clone, Copy)]
struct Share<'a> {
    work: Work<'a>,
    durability: Durability,
}

/// One writer's batch on its way to a leader.
struct Request {
    operations: Operations,
    durability: Durability,
}

impl Request {
    fn share(&self) -> Share<'_> {
        Share { work: Work::Batch(&self.operations), durability: self.durability }
    }
}

enum Place {
    /// Nobody waits here.
    Free,
    Waiting(Request),
    /// A leader has the request.
    Taken,
    /// The writer is to lead, with its own request first.
    Lead(Request),
    Done(Result<()>, Operations),
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

/// A writer whose request is in a leader's group.
struct Follower {
    ticket: Arc<Ticket>,
    request: Request,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Ticket>>,
    leading: bool,
    /// Memory for the next group.
    spare: Vec<Follower>,
}

/// The writers that wait.
#[derive(Default)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
    /// [`Queue::leading`]: a newcomer must not push in before those who wait.
    is_led: AtomicBool,
}

/// Turns writes off when the one who writes panics: what it did is unknown.
struct PanicGuard<'a>(&'a Core);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&Error::new(ErrorKind::ReadOnly, PANICKED));
        }
    }
}

const PANICKED: &str = "a commit panicked";

/// Passes leadership on when the leader is done, also if it panics.
struct Leadership<'a> {
    core: &'a Core,
    followers: Vec<Follower>,
}

impl Leadership<'_> {
    fn answer(&mut self, outcome: &Result<()>) {
        for Follower { ticket, request } in self.followers.drain(..) {
            ticket.set(Place::Done(outcome.clone(), request.operations));
        }
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        self.answer(&Err(Error::new(ErrorKind::ReadOnly, PANICKED)));
        let mut queue = lock(&self.core.commits.queue);
        queue.spare = std::mem::take(&mut self.followers);
        while let Some(ticket) = queue.waiting.pop_front() {
            if let Some(request) = ticket.take_request() {
                ticket.set(Place::Lead(request));
                return;
            }
        }
        queue.leading = false;
        self.core.commits.is_led.store(false, Ordering::Relaxed);
    }
}

impl Core {
    /// Makes one operation visible and as durable as asked; see the module's header.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit_op(&self, keyspace: &KeyspaceCore, op: OpRef<'_>, options: WriteOptions) -> Result<()> {
        keyspace.check_usable()?;
        check_op(op)?;
        let durability = self.admit(options)?;
        self.commit_own(Own::One(keyspace.id, op), durability)
    }

    /// [`Self::commit_op`] for a batch, whose operations may be gone afterwards.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit(&self, operations: &mut Operations, options: WriteOptions) -> Result<()> {
        if operations.tally.count == 0 {
            self.check_writable()?;
            let durability = self.durability(options)?;
            return if durability == Durability::Sync { self.sync_log() } else { Ok(()) };
        }
        let durability = self.admit(options)?;
        self.commit_own(Own::Batch(operations), durability)
    }

    fn durability(&self, options: WriteOptions) -> Result<Durability> {
        let durability = options.durability.unwrap_or(self.settings.durability);
        if self.settings.no_wal && durability != Durability::NoSync {
            return Err(Error::invalid(
                "the database is open without a log: a write cannot ask for a durability",
            ));
        }
        Ok(durability)
    }

    /// Lets a write in when there is room, and says how durable it is to be.
    fn admit(&self, options: WriteOptions) -> Result<Durability> {
        self.check_writable()?;
        let durability = self.durability(options)?;
        self.make_room(options.deadline_ms)?;
        Ok(durability)
    }

    fn commit_own(&self, own: Own<'_>, durability: Durability) -> Result<()> {
        let outcome = match self.writing_at_once(own.work().bytes()) {
            Some(mut writing) => {
                let _guard = PanicGuard(self);
                self.write_group(&mut writing, std::iter::once(Share { work: own.work(), durability }))
            }
            None => self.enqueue(own, durability),
        };
        if self.is_inline() {
            self.run_background_inline();
        }
        outcome
    }

    /// The lock, for a writer of so many bytes that needs no queue: nobody is at work, or its batch is too
    /// large to share a frame (and to be copied for a leader).
    fn writing_at_once(&self, bytes: usize) -> Option<MutexGuard<'_, Writing>> {
        if bytes > SHARED_BYTES_MAX {
            return Some(lock(&self.writing));
        }
        if self.commits.is_led.load(Ordering::Relaxed) {
            return None;
        }
        match self.writing.try_lock() {
            Ok(writing) => Some(writing),
            Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Leads, or waits for a leader.
    fn enqueue(&self, mut own: Own<'_>, durability: Durability) -> Result<()> {
        if self.try_to_lead() {
            return self.lead(Share { work: own.work(), durability });
        }
        let request = Request { operations: own.take()?, durability };
        let mut ticket = TICKET.take();
        let ticket = ticket.get_or_insert_with(|| {
            Arc::new(Ticket { place: Mutex::new(Place::Free), changed: Condvar::new() })
        });
        let (outcome, operations) = self.wait_as(ticket, request);
        own.give_back(operations);
        TICKET.set(Some(Arc::clone(ticket)));
        outcome
    }

    fn try_to_lead(&self) -> bool {
        let mut queue = lock(&self.commits.queue);
        self.begin_to_lead(&mut queue)
    }

    fn begin_to_lead(&self, queue: &mut Queue) -> bool {
        let leads = !queue.leading;
        if leads {
            queue.leading = true;
            self.commits.is_led.store(true, Ordering::Relaxed);
        }
        leads
    }

    /// Queues up with a request; gives its operations back.
    fn wait_as(&self, ticket: &Arc<Ticket>, request: Request) -> (Result<()>, Operations) {
        {
            let mut queue = lock(&self.commits.queue);
            if self.begin_to_lead(&mut queue) {
                drop(queue);
                return (self.lead(request.share()), request.operations);
            }
            *lock(&ticket.place) = Place::Waiting(request);
            queue.waiting.push_back(Arc::clone(ticket));
        }
        let mut place = lock(&ticket.place);
        loop {
            match std::mem::replace(&mut *place, Place::Free) {
                Place::Done(outcome, operations) => return (outcome, operations),
                Place::Lead(request) => {
                    drop(place);
                    return (self.lead(request.share()), request.operations);
                }
                other => *place = other,
            }
            place = ticket.changed.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes for the caller and for everybody who waits.
    fn lead(&self, own: Share<'_>) -> Result<()> {
        let mut leadership = Leadership { core: self, followers: Vec::new() };
        let _guard = PanicGuard(self);
        // The log is locked first: followers gather while an earlier holder (a sync, a rotation) is busy.
        let mut writing = lock(&self.writing);
        self.gather(own.work.bytes(), &mut leadership.followers);
        let shares = leadership.followers.iter().map(|follower| follower.request.share());
        let outcome = self.write_group(&mut writing, std::iter::once(own).chain(shares));
        drop(writing);
        leadership.answer(&outcome);
        outcome
    }

    /// Takes what waits into a group that has `bytes` so far.
    fn gather(&self, mut bytes: usize, followers: &mut Vec<Follower>) {
        let mut queue = lock(&self.commits.queue);
        *followers = std::mem::take(&mut queue.spare);
        while bytes < GROUP_BYTES_MAX
            && let Some(ticket) = queue.waiting.pop_front()
        {
            if let Some(request) = ticket.take_request() {
                bytes += request.operations.encoded.len();
                followers.push(Follower { ticket, request });
            }
        }
    }

    /// The steps of a group, in the order that the invariants demand.
    fn write_group<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<()> {
        self.check_writable()?;
        if writing.active.bytes() >= self.settings.design.buffer_bytes.saturating_mul(2) {
            // Rotations after acknowledged writes failed again and again: memory must not grow without end.
            self.rotate(writing)?;
        }
        if !self.settings.no_wal {
            self.log_group(writing, shares.clone())?;
        }
        let mut tally = Tally::default();
        let mut batches = 0;
        let mut seq = writing.last_seq;
        for share in shares {
            match share.work {
                Work::One(keyspace, op) => {
                    seq = seq.next();
                    self.insert(writing, keyspace, seq, op);
                }
                Work::Batch(operations) => {
                    for (keyspace, op) in encoded_ops(&operations.encoded) {
                        seq = seq.next();
                        self.insert(writing, keyspace, seq, op);
                    }
                }
            }
            tally.add(&share.work.tally());
            batches += 1;
        }
        writing.last_seq = seq;
        self.visible_seq.store(seq.0, Ordering::Release);
        self.count_group(batches, &tally);
        // The group is acknowledged: a failure from here on is not its failure.
        if self.is_rotation_due(writing)
            && let Err(error) = self.rotate(writing)
        {
            self.rotation_failed(&error);
        }
        Ok(())
    }

    /// Appends the group's batches to the log and makes them as durable as the strongest asks.
    fn log_group<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<()> {
        self.ensure_log(writing)?;
        let first_seq = writing.last_seq.next();
        let Some(wal) = &mut writing.wal else { return Err(Error::closed()) };
        let before = wal.offset();
        let mut appended = Ok(());
        let mut all_buffered = true;
        let mut any_sync = false;
        let mut next_seq = first_seq;
        for share in shares.clone() {
            if appended.is_ok() {
                appended = match share.work {
                    Work::One(keyspace, op) => wal.append_op(next_seq, keyspace, op),
                    Work::Batch(Operations { encoded, tally }) => {
                        wal.append_batch(next_seq, tally.count, encoded)
                    }
                };
            }
            // Saturating: a number near the end of all numbers came from a file, and decoding refuses it.
            next_seq = SeqNo(next_seq.0.saturating_add(u64::from(share.work.tally().count)));
            all_buffered &= share.durability == Durability::Buffered;
            any_sync |= share.durability == Durability::Sync;
        }
        if !all_buffered || wal.buffered() >= BUFFERED_BYTES_MAX {
            appended = appended.and_then(|()| wal.flush());
        }
        if let Err(error) = appended {
            return Err(self.log_append_failed(writing, error));
        }
        let bytes = wal.offset() - before;
        WorkCounters::add_alone(&self.work.bytes_wal, bytes);
        WorkCounters::add_alone(&self.unsynced_bytes, bytes);
        if any_sync {
            if is_planted(Defect::AckBeforeSync) {
                return Ok(());
            }
            return self.sync_locked(writing);
        }
        self.sync_in_time(writing, shares)
    }

    /// Sees to it that interval writes are synced in time.
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

    /// Inserts an operation into its active memtable; on a dropped keyspace it goes nowhere.
    fn insert(&self, writing: &Writing, keyspace: KeyspaceId, seq: SeqNo, op: OpRef<'_>) {
        if let Some(active) = writing.active.get(keyspace) {
            apply_op(active, self.digest, seq, op);
        }
    }

    /// Called by whoever holds the lock of [`Core::writing`]; nobody else changes these.
    fn count_group(&self, batches: u64, tally: &Tally) {
        let Tally { count: _, puts, deletes, range_deletes, user_bytes } = *tally;
        WorkCounters::add_alone(&self.work.puts, puts);
        WorkCounters::add_alone(&self.work.deletes, deletes);
        WorkCounters::add_alone(&self.work.range_deletes, range_deletes);
        WorkCounters::add_alone(&self.work.bytes_user, user_bytes);
        WorkCounters::add_alone(&self.work.batches, batches);
        WorkCounters::add_alone(&self.work.commit_groups, 1);
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
        if writing.sync_due_us.take().is_some() {
            *lock(&self.background.sync_due_us) = None;
        }
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
