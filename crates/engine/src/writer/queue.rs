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
use shamba_key::KeyspaceId;
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
                let mut operations = SPARE.take();
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
            Self::One(..) => SPARE.set(taken),
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
type Answer = (Result<()>, Operations);
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

    /// Writes a group.
    ///
    /// # Errors
    /// The error of the step that failed; nothing of the group is visible then.
    fn write_group<'a>(
        &self,
        state: &mut Self::State,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<()>;

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

/// Turns writes off when the writing thread panics.
struct PanicGuard<'a, G: Groups>(&'a G);

impl<G: Groups> Drop for PanicGuard<'_, G> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up(&Error::new(ErrorKind::ReadOnly, PANICKED));
        }
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

    /// Writes directly, leads a group, or waits for a leader.
    ///
    /// # Errors
    /// The outcome of the group that the batch was in.
    pub fn commit(&self, groups: &impl Groups, own: Own<'_>, durability: Durability) -> Result<()> {
        match self.state_at_once(groups, own.writes.writes().bytes(), durability) {
            Some(mut state) => {
                let _guard = PanicGuard(groups);
                let shares = std::iter::once(own.share(durability));
                if let Some(refusal) = groups.refused(&state, shares.clone()).into_iter().flatten().next() {
                    return Err(refusal);
                }
                self.timed(durability, 1, || groups.write_group(&mut state, shares))
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
    fn enqueue(&self, groups: &impl Groups, mut own: Own<'_>, durability: Durability) -> Result<()> {
        if let Some(lead) = self.line.try_to_lead() {
            return self.lead(groups, lead, own.share(durability));
        }
        let conditions = own.conditions.cloned();
        let request = Request { operations: own.writes.take()?, durability, conditions };
        let mut ticket = TICKET.take();
        let ticket = ticket.get_or_insert_with(Ticket::new);
        let (outcome, operations) = match self.line.join(ticket, request) {
            Turn::Lead(lead, request) => (self.lead(groups, lead, request.share()), request.operations),
            Turn::Done(answer) => answer,
        };
        debug_assert!(operations.tally.count > 0, "a leader returned other operations than it took");
        own.writes.give_back(operations);
        TICKET.set(Some(Arc::clone(ticket)));
        outcome
    }

    /// Writes a group: the caller's operations and those of the waiting writers.
    fn lead(&self, groups: &impl Groups, mut lead: Lead<'_>, own: Share<'_>) -> Result<()> {
        let _guard = PanicGuard(groups);
        // The lock comes before gathering, so that followers gather while its present holder (a
        // sync, a rotation) is at work.
        let mut state = groups.state().lock();
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
            Ok(())
        } else {
            let shares = shares.enumerate().filter(|(at, _)| !is_refused(*at)).map(|(_, share)| share);
            let is_synced = shares.clone().any(|share| share.durability == Durability::Sync);
            let durability = if is_synced { Durability::Sync } else { own.durability };
            self.timed(durability, lead.followers.len(), || groups.write_group(&mut state, shares))
        };
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
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
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
mod tests {
    use std::path::Path;

    use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};

    use super::super::conditions::KeyRead;
    use super::*;
    use crate::database::Db;
    use crate::database::core::Core;

    fn db() -> Db {
        db_with_faults().1
    }

    fn db_with_faults() -> (FaultFs, Db) {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
        let builder = Db::builder(Path::new("/db")).env(env).durability(Durability::Sync);
        (faults, builder.open().expect("opened"))
    }

    /// Waits until there is a leader and `followers` writers wait.
    fn wait_for(core: &Core, followers: usize) {
        loop {
            if core.writer.commits.line.standing() == (1, followers) {
                return;
            }
            core.env.clock.sleep_us(100);
        }
    }

    #[test]
    fn writers_that_gather_behind_a_busy_log_share_a_group_and_a_sync() {
        const WRITERS: usize = 5;
        let db = db();
        let core = db.core();
        let before = db.stats();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            for writer in 0..WRITERS {
                let db = &db;
                scope.spawn(move || {
                    let key = format!("k{writer}");
                    if writer % 2 == 0 {
                        db.put(&key, "v").expect("written");
                    } else {
                        let mut batch = db.batch();
                        batch.put(&key, "v").delete("nothing");
                        batch.commit().expect("written");
                    }
                });
            }
            wait_for(core, WRITERS - 1);
            drop(busy);
        });
        let done = db.stats().since(&before);
        assert_eq!((done.batches, done.commit_groups, done.wal_syncs), (WRITERS as u64, 1, 1));
        assert_eq!((done.puts, done.deletes), (WRITERS as u64, 2));
        for writer in 0..WRITERS {
            assert!(db.contains_key(format!("k{writer}")).expect("read"));
        }
        assert_eq!(core.writer.commits.syncing_writers.load(Ordering::Relaxed), WRITERS);
        // There is no leader any more, and a lone writer does not wait for ever for the earlier
        // ones.
        assert_eq!(core.writer.commits.line.standing(), (0, 0));
        db.put("alone", "v").expect("written");
        assert_eq!(core.writer.commits.syncing_writers.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn every_writer_of_a_group_that_failed_is_told() {
        const WRITERS: usize = 4;
        let (faults, db) = db_with_faults();
        let core = db.core();
        let before = db.stats();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || db.put(format!("k{writer}"), "v"))
                })
                .collect();
            wait_for(core, WRITERS - 1);
            faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
            drop(busy);
            for writer in writers {
                let outcome = writer.join().expect("no panic").map_err(|error| error.kind());
                assert_eq!(outcome, Err(ErrorKind::Io), "none of the group's writes is durable");
            }
        });
        assert_eq!((faults.faults_injected(), db.stats().since(&before).commit_groups), (1, 0));
        for writer in 0..WRITERS {
            assert!(!db.contains_key(format!("k{writer}")).expect("read"), "nothing of the group is visible");
        }
        assert_eq!(db.put("more", "v").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
    }

    /// Puts `key` under the condition that it is unchanged since `since`.
    fn put_unchanged(core: &Core, key: &str, since: shamba_key::SeqNo) -> Result<()> {
        let keyspace = core.catalog.named(crate::catalog::DEFAULT_KEYSPACE).expect("it exists");
        let read = KeyRead {
            keyspace: keyspace.id,
            digest: core.reads.digest().digest(key.as_bytes()),
            key: bytes::Bytes::copy_from_slice(key.as_bytes()),
        };
        let conditions = Arc::new(Conditions { since, keys: vec![read], ranges: Vec::new() });
        let op = OpRef::Put { key: key.as_bytes(), value: b"v" };
        core.writer.commit_op_if(&keyspace, op, Durability::Sync.into(), Some(&conditions))
    }

    #[test]
    fn conditions_are_checked_against_earlier_batches_of_the_group() {
        let db = db();
        let core = db.core();
        db.put("shared", "0").expect("written");
        let since = core.reads.visible();
        let before = db.stats();
        let outcomes = std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let mut writers = Vec::new();
            let mut join = |write: Box<dyn FnOnce() -> Result<()> + Send>| {
                writers.push(scope.spawn(write));
                wait_for(core, writers.len() - 1);
            };
            join(Box::new(|| db.delete_range("c".."d")));
            join(Box::new(|| put_unchanged(core, "shared", since)));
            join(Box::new(|| put_unchanged(core, "shared", since)));
            join(Box::new(|| put_unchanged(core, "c1", since)));
            // What was refused has written nothing.
            join(Box::new(|| put_unchanged(core, "other", since)));
            join(Box::new(|| db.put("shared2", "v")));
            join(Box::new(|| put_unchanged(core, "shared2", since)));
            drop(busy);
            let outcome = |writer: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                writer.join().expect("no panic").map_err(|error| (error.kind(), error.to_string()))
            };
            writers.into_iter().map(outcome).collect::<Vec<_>>()
        });
        let conflict = |key: &str| {
            let text = format!("key \"{key}\" of keyspace \"default\" was written after it was read");
            Err((ErrorKind::Conflict, text))
        };
        let expected =
            [Ok(()), Ok(()), conflict("shared"), conflict("c1"), Ok(()), Ok(()), conflict("shared2")];
        assert_eq!(outcomes, expected);
        let done = db.stats().since(&before);
        assert_eq!((done.batches, done.commit_groups, done.wal_syncs), (4, 1, 1));
        assert_eq!((done.conflicts, done.conflicts_unproved), (3, 0));
        assert!(!db.contains_key("c1").expect("read"), "it was refused");
    }

    #[test]
    fn ranges_are_checked_against_earlier_batches_of_the_group() {
        let db = db();
        let core = db.core();
        let reader_of = |low: &str, high: &str| {
            let mut transaction = db.transaction();
            assert_eq!(transaction.range(low..high).count(), 0);
            transaction.put(low, "v").expect("put");
            transaction
        };
        let [put, deleted, before, behind, refused] =
            [("a", "c"), ("g", "k"), ("c", "f"), ("h", "k"), ("a1", "a2")]
                .map(|(low, high)| reader_of(low, high));
        let outcomes = std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let mut writers = Vec::new();
            let mut join = |write: Box<dyn FnOnce() -> Result<()> + Send>| {
                writers.push(scope.spawn(write));
                wait_for(core, writers.len() - 1);
            };
            join(Box::new(|| db.put("b", "v")));
            join(Box::new(|| db.delete_range("f".."h")));
            join(Box::new(|| put.commit()));
            join(Box::new(|| deleted.commit()));
            // These end where the deleted range begins, and begin where it ends.
            join(Box::new(|| before.commit()));
            join(Box::new(|| behind.commit()));
            // The first transaction would have written there, but it was refused.
            join(Box::new(|| refused.commit()));
            drop(busy);
            let key = |error: crate::Error| error.conflict().map(|conflict| conflict.key.clone());
            let outcome = |writer: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                writer.join().expect("no panic").map_err(key)
            };
            writers.into_iter().map(outcome).collect::<Vec<_>>()
        });
        let conflict = |key: &str| Err(Some(key.as_bytes().to_vec()));
        assert_eq!(outcomes, [Ok(()), Ok(()), conflict("b"), conflict("g"), Ok(()), Ok(()), Ok(())]);
        let keys: Vec<_> = db.iter().map(|entry| entry.expect("read").0.into_vec()).collect();
        assert_eq!(keys, ["a1", "b", "c", "h"].map(|key| key.as_bytes().to_vec()));
        assert_eq!(db.stats().commit_groups, 1);
    }

    #[test]
    fn a_group_whose_batches_are_all_refused_writes_nothing() {
        let db = db();
        let core = db.core();
        let since = core.reads.visible();
        db.put("a", "0").expect("written");
        let before = db.stats();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let writers: Vec<_> = (0..3).map(|_| scope.spawn(|| put_unchanged(core, "a", since))).collect();
            wait_for(core, 2);
            drop(busy);
            for writer in writers {
                let error = writer.join().expect("no panic").expect_err("it was written");
                assert_eq!(error.kind(), ErrorKind::Conflict);
            }
        });
        let done = db.stats().since(&before);
        assert_eq!((done.commit_groups, done.wal_syncs, done.conflicts), (0, 0, 3));
        assert_eq!(db.get("a").expect("read").as_deref(), Some(&b"0"[..]));
        db.put("a", "1").expect("the line goes on");
    }

    #[test]
    fn conditions_hold_or_not_whatever_holds_the_newer_version() {
        let db = db();
        let core = db.core();
        let refused = |key: &str, since| {
            let before = db.stats();
            let outcome = put_unchanged(core, key, since).map_err(|error| error.kind());
            assert!(matches!(outcome, Ok(()) | Err(ErrorKind::Conflict)), "{outcome:?}");
            let done = db.stats().since(&before);
            (done.conflicts, done.conflicts_unproved)
        };
        db.put("b", "0").expect("written");
        let snapshot = db.snapshot();
        let since = core.reads.visible();
        // In the active memtable: a put, a range tombstone.
        db.put("a", "0").expect("written");
        db.delete_range("b".."c").expect("written");
        assert_eq!((refused("a", since), refused("b", since), refused("d", since)), ((1, 0), (1, 0), (0, 0)));
        // In a table, which is not read.
        db.flush().expect("flushed");
        assert_eq!((refused("a", since), refused("b", since), refused("z", since)), ((0, 1), (0, 1), (0, 0)));
        let since = core.reads.visible();
        assert_eq!(refused("b", since), (0, 0), "the table holds nothing newer");
        drop(snapshot);
    }

    #[test]
    fn batches_of_a_group_that_failed_are_kept_and_can_be_tried_again() {
        const WRITERS: usize = 4;
        let (faults, db) = db_with_faults();
        let core = db.core();
        let before = db.stats();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut batch = db.batch();
                        batch.put(format!("k{writer}"), "v").put(format!("l{writer}"), "v");
                        let outcome = batch.commit().map_err(|error| error.kind());
                        (outcome, batch)
                    })
                })
                .collect();
            wait_for(core, WRITERS - 1);
            faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
            drop(busy);
            for writer in writers {
                let (outcome, mut batch) = writer.join().expect("no panic");
                assert_eq!((outcome, batch.len()), (Err(ErrorKind::NoSpace), 2));
                batch.commit().expect("there is space again");
                assert!(batch.is_empty());
            }
        });
        assert_eq!((faults.faults_injected(), db.stats().since(&before).batches), (1, WRITERS as u64));
        assert_eq!(db.iter().count(), 2 * WRITERS);
    }

    #[test]
    fn a_batch_beyond_a_frame_is_a_group_by_itself() {
        let db = db();
        let core = db.core();
        let before = db.stats();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            scope.spawn(|| db.put("large", vec![7; SHARED_BYTES_MAX + 1]).expect("written"));
            scope.spawn(|| db.put("small", "v").expect("written"));
            wait_for(core, 0);
            drop(busy);
        });
        assert_eq!(db.stats().since(&before).commit_groups, 2);
        assert_eq!(db.get("large").expect("read").expect("there").len(), SHARED_BYTES_MAX + 1);
        assert!(db.contains_key("small").expect("read"));
    }

    #[test]
    fn a_panic_while_writing_turns_writes_off_and_leaves_nobody_waiting() {
        let db = db();
        let core = db.core();
        std::thread::scope(|scope| {
            let busy = core.writer.writing.lock();
            let followers: Vec<_> = (0..3)
                .map(|writer| {
                    scope.spawn({
                        let db = &db;
                        move || db.put(format!("k{writer}"), "v")
                    })
                })
                .collect();
            wait_for(core, 2);
            // Panics in the way that a leader would.
            let led = scope.spawn(|| {
                let _guard = PanicGuard(core.writer.as_ref());
                panic!("planned");
            });
            assert!(led.join().is_err());
            drop(busy);
            for follower in followers {
                let error = follower.join().expect("no panic").expect_err("writes are off");
                assert_eq!(error.kind(), ErrorKind::ReadOnly);
            }
        });
        assert_eq!(db.put("k", "v").expect_err("writes are off").kind(), ErrorKind::ReadOnly);
    }
}
