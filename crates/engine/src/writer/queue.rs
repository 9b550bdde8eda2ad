//! The commit queue: decides which writer writes directly, which one leads a group, and which
//! follow.
//!
//! A writer that finds the lock of the log and the memtables free takes it and writes alone.
//! Otherwise it joins the line. The first writer of the line is the leader: it takes the lock,
//! gathers the requests that have arrived meanwhile (up to a limit) and writes them as one group.
//! Then it answers them and passes the leadership to the next.
//!
//! Writers that sync in a loop all return right after their shared sync. The first of them would
//! sync alone, and all others would wait for two syncs. So a leader that is about to sync waits
//! briefly for as many writers as were present when the last sync ended: at most an eighth of a
//! sync's time.
//!
//! Lock order: the lock of [`Groups::state`] before those of the line.
//!
//! Passing leadership and answers between threads is the subject of [`super::line`]. What writes a
//! group is behind [`Groups`]; in a database it is [`super::commit`].

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use shamba_env::Clock;
use shamba_key::{KeyspaceId, SeqNo};
use shamba_log::wal::{OpRef, SHARED_BYTES_MAX};

use super::conditions::Conditions;
use super::line::{self, Line, Turn};
use super::operations::Operations;
use super::share::{Share, Writes};
use crate::error::{Error, ErrorKind, Result};
use crate::options::settings::Durability;
use crate::ranked::{Ranked, RankedGuard};

/// Group size at which a leader stops gathering, so that the wait of its followers is bounded.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Longest time that a leader waits for other writers to share its sync.
const AWAIT_US_MAX: u64 = 1_000;

/// The operations of the calling writer, and what they depend on.
pub(super) struct Own<'a> {
    pub writes: OwnWrites<'a>,
    pub conditions: Option<&'a Arc<Conditions>>,
}

/// The operations of the calling writer.
pub(super) enum OwnWrites<'a> {
    One(KeyspaceId, OpRef<'a>),
    Batch(&'a mut Operations),
}

impl Own<'_> {
    fn share(&self, durability: Durability) -> Share<'_> {
        let conditions = self.conditions.map(Arc::as_ref);
        Share { writes: self.writes.writes(), durability, conditions }
    }
}

impl OwnWrites<'_> {
    fn writes(&self) -> Writes<'_> {
        match self {
            Self::One(keyspace, op) => Writes::One(*keyspace, *op),
            Self::Batch(operations) => Writes::Batch(operations),
        }
    }

    /// Moves the operations into a form that another thread can use.
    fn take(&mut self) -> Result<Operations> {
        match self {
            Self::One(keyspace, op) => {
                let mut operations = SPARE.try_with(Cell::take).unwrap_or_default();
                operations.clear();
                operations.push(*keyspace, *op)?;
                Ok(operations)
            }
            Self::Batch(operations) => Ok(std::mem::take(operations)),
        }
    }

    /// Keeps the memory of the operations that [`Self::take`] returned.
    fn give_back(&mut self, taken: Operations) {
        match self {
            // A destructor at the end of a thread may write after those of the thread's memory.
            Self::One(..) => drop(SPARE.try_with(|spare| spare.set(taken))),
            Self::Batch(operations) => **operations = taken,
        }
    }
}

thread_local! {
    /// Memory for a single operation that has to wait for a leader.
    static SPARE: Cell<Operations> = const { Cell::new(Operations::EMPTY) };
    /// The ticket with which this thread waits.
    static TICKET: Cell<Option<Arc<Ticket>>> = const { Cell::new(None) };
}

/// The operations, durability and conditions that a waiting writer passes to a leader.
pub(crate) struct Request {
    operations: Operations,
    durability: Durability,
    conditions: Option<Arc<Conditions>>,
}

impl Request {
    fn share(&self) -> Share<'_> {
        Share {
            writes: Writes::Batch(&self.operations),
            durability: self.durability,
            conditions: self.conditions.as_deref(),
        }
    }
}

/// The outcome of a request, and its operations.
type Answer = (Result<SeqNo>, Operations);
type Lead<'l> = line::Lead<'l, Request, Answer>;
type Ticket = line::Ticket<Request, Answer>;

/// Writes the groups that a queue forms, one at a time.
pub(super) trait Groups {
    /// The state that a group changes.
    type State;

    /// The state, whose lock a group holds.
    fn state(&self) -> &Ranked<Self::State>;

    /// The errors of batches whose conditions do not hold, in the order of the group; nothing if no
    /// batch has conditions.
    fn refused<'a>(
        &self,
        state: &Self::State,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Vec<Option<Error>>;

    /// Writes a group. Returns its last sequence number.
    ///
    /// # Errors
    /// The error of the step that failed; nothing of the group is visible then.
    fn write_group<'a>(
        &self,
        state: &mut Self::State,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<SeqNo>;

    /// Turns writes off after a panic during a group: how far it got is unknown.
    fn give_up(&self, cause: &Error);
}

/// The waiting writers and the statistics of syncs.
pub(super) struct CommitQueue {
    line: Line<Request, Answer>,
    clock: Arc<dyn Clock>,
    /// Number of writers present when the last sync ended.
    syncing_writers: AtomicUsize,
    /// Moving average of a sync's duration; a new sample weighs a quarter.
    sync_us: AtomicU64,
}

/// Turns writes off if the thread panics while it writes: if it is dropped before it has
/// [ended](Self::end). Declared after the lock of the state, so that it is dropped first. (A thread
/// that commits in a destructor may be panicking already, for reasons of its own.)
struct PanicGuard<'a, G: Groups>(&'a G);

impl<G: Groups> PanicGuard<'_, G> {
    fn end(self) {
        std::mem::forget(self);
    }
}

impl<G: Groups> Drop for PanicGuard<'_, G> {
    fn drop(&mut self) {
        self.0.give_up(&Error::new(ErrorKind::ReadOnly, PANICKED));
    }
}

const PANICKED: &str = "a commit panicked";

impl CommitQueue {
    /// An empty queue.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        let abandoned =
            |request: Request| (Err(Error::new(ErrorKind::ReadOnly, PANICKED)), request.operations);
        Self {
            line: Line::new(abandoned),
            clock: Arc::clone(clock),
            syncing_writers: AtomicUsize::new(0),
            sync_us: AtomicU64::new(0),
        }
    }

    /// Writes directly, leads a group, or waits for a leader. Returns the last sequence number of
    /// the group that the batch was in.
    ///
    /// # Errors
    /// The outcome of the group.
    pub fn commit(&self, groups: &impl Groups, own: Own<'_>, durability: Durability) -> Result<SeqNo> {
        match self.state_at_once(groups, own.writes.writes().bytes(), durability) {
            Some(mut state) => {
                let guard = PanicGuard(groups);
                let shares = std::iter::once(own.share(durability));
                let refusal = groups.refused(&state, shares.clone()).into_iter().flatten().next();
                let outcome = match refusal {
                    Some(refusal) => Err(refusal),
                    None => self.timed(durability, 1, || groups.write_group(&mut state, shares)),
                };
                guard.end();
                outcome
            }
            None => self.enqueue(groups, own, durability),
        }
    }

    /// Takes the lock for a writer of `bytes` that does not need the queue. That is so if no other
    /// writer is active, or if the batch is too large to share a frame (and to be copied for a
    /// leader).
    fn state_at_once<'g, G: Groups>(
        &self,
        groups: &'g G,
        bytes: usize,
        durability: Durability,
    ) -> Option<RankedGuard<'g, G::State>> {
        if bytes > SHARED_BYTES_MAX {
            return Some(groups.state().lock());
        }
        let shares_sync = durability == Durability::Sync && self.syncing_writers.load(Ordering::Relaxed) > 1;
        if shares_sync || self.line.is_led() {
            return None;
        }
        groups.state().try_lock()
    }

    /// Leads a group, or waits for a leader.
    fn enqueue(&self, groups: &impl Groups, mut own: Own<'_>, durability: Durability) -> Result<SeqNo> {
        if let Some(lead) = self.line.try_to_lead() {
            return self.lead(groups, lead, own.share(durability));
        }
        let conditions = own.conditions.cloned();
        let request = Request { operations: own.writes.take()?, durability, conditions };
        let ticket = TICKET.try_with(Cell::take).ok().flatten().unwrap_or_else(Ticket::new);
        let (outcome, operations) = match self.line.join(&ticket, request) {
            Turn::Lead(lead, request) => (self.lead(groups, lead, request.share()), request.operations),
            Turn::Done(answer) => answer,
        };
        debug_assert!(operations.tally.count > 0, "a leader returned other operations than it took");
        own.writes.give_back(operations);
        let _ = TICKET.try_with(|kept| kept.set(Some(ticket)));
        outcome
    }

    /// Writes a group: the caller's operations and those of the waiting writers.
    fn lead(&self, groups: &impl Groups, mut lead: Lead<'_>, own: Share<'_>) -> Result<SeqNo> {
        // The lock comes before gathering, so that followers gather while its present holder (a
        // sync, a rotation) is at work.
        let mut state = groups.state().lock();
        let guard = PanicGuard(groups);
        if own.durability == Durability::Sync {
            self.await_followers();
        }
        let mut bytes = own.writes.bytes();
        lead.gather(bytes < GROUP_BYTES_MAX, |request| {
            bytes += request.operations.encoded.len();
            bytes < GROUP_BYTES_MAX
        });
        debug_assert!(
            lead.followers.iter().all(|follower| follower.request.operations.tally.count > 0),
            "a follower has nothing to write"
        );
        let followers = lead.followers.iter().map(|follower| follower.request.share());
        let shares = std::iter::once(own).chain(followers);
        let mut refused = groups.refused(&state, shares.clone());
        debug_assert!(refused.is_empty() || refused.len() == lead.followers.len() + 1, "an answer for each");
        let is_refused = |at: usize| refused.get(at).is_some_and(Option::is_some);
        let count = lead.followers.len() + 1;
        let outcome = if (0..count).all(is_refused) {
            Ok(SeqNo::ZERO) // Nobody is told.
        } else {
            let shares = shares.enumerate().filter(|(at, _)| !is_refused(*at)).map(|(_, share)| share);
            let is_synced = shares.clone().any(|share| share.durability == Durability::Sync);
            let durability = if is_synced { Durability::Sync } else { Durability::NoSync };
            self.timed(durability, lead.followers.len(), || groups.write_group(&mut state, shares))
        };
        guard.end();
        drop(state);
        let mut refusals = refused.drain(..);
        let mut answer = || refusals.next().flatten().map_or_else(|| outcome.clone(), Err);
        let own_outcome = answer();
        lead.answer(|request| (answer(), request.operations));
        own_outcome
    }

    /// Waits briefly for the writers that were present when the last sync ended.
    fn await_followers(&self) {
        let followers = self.syncing_writers.load(Ordering::Relaxed).saturating_sub(1);
        let limit_us = (self.sync_us.load(Ordering::Relaxed) / 8).min(AWAIT_US_MAX);
        let deadline_us = self.clock.now_us().saturating_add(limit_us);
        self.line.await_waiting(followers, || {
            let left_us = deadline_us.saturating_sub(self.clock.now_us());
            (left_us > 0).then(|| Duration::from_micros(left_us))
        });
    }

    /// Calls `write` for a group of `writers`, not counting a leader, whom the line counts. If the
    /// group is synced, updates the duration of a sync and the number of writers that are present
    /// afterwards.
    fn timed(
        &self,
        durability: Durability,
        writers: usize,
        write: impl FnOnce() -> Result<SeqNo>,
    ) -> Result<SeqNo> {
        if durability != Durability::Sync {
            return write();
        }
        let begin_us = self.clock.now_us();
        let outcome = write();
        let took_us = self.clock.now_us().saturating_sub(begin_us);
        let Self { line, syncing_writers, sync_us, .. } = self;
        sync_us.store((3 * sync_us.load(Ordering::Relaxed) + took_us) / 4, Ordering::Relaxed);
        let (leading, waiting) = line.standing();
        syncing_writers.store(writers + waiting + leading, Ordering::Relaxed);
        outcome
    }
}

#[cfg(test)]
mod tests;
