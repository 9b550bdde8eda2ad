//! Tests of a queue alone, over groups that are noted instead of written.

use std::sync::atomic::AtomicBool;

use shamba_env::ManualClock;

use super::*;
use crate::lock_order;

/// A clock that advances by 100 microseconds with each reading.
#[derive(Debug, Default)]
struct ReadingsClock(AtomicU64);

impl Clock for ReadingsClock {
    fn now_us(&self) -> u64 {
        self.0.fetch_add(100, Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, us: u64) {
        self.0.fetch_add(us, Ordering::Relaxed);
    }

    fn wait_ns(&self, ns: u64) {
        self.sleep_us(ns / 1_000);
    }
}

/// Groups that are noted: the bytes of each share.
struct Noted {
    groups: Ranked<Vec<Vec<usize>>>,
    clock: Arc<dyn Clock>,
    /// When the last group was gathered.
    gathered_us: AtomicU64,
    /// Time that it takes to write a group.
    write_us: AtomicU64,
    /// Whether writes were turned off.
    is_off: AtomicBool,
}

impl Noted {
    fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            groups: Ranked::new(lock_order::WRITING, Vec::new()),
            clock: Arc::clone(clock),
            gathered_us: AtomicU64::new(0),
            write_us: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
        }
    }
}

impl Groups for Noted {
    type State = Vec<Vec<usize>>;

    fn state(&self) -> &Ranked<Self::State> {
        &self.groups
    }

    fn refused<'a>(
        &self,
        _state: &Self::State,
        _shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Vec<Option<Error>> {
        self.gathered_us.store(self.clock.now_us(), Ordering::Relaxed);
        Vec::new()
    }

    fn write_group<'a>(
        &self,
        state: &mut Self::State,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Result<SeqNo> {
        self.clock.sleep_us(self.write_us.load(Ordering::Relaxed));
        state.push(shares.map(|share| share.writes.bytes()).collect());
        Ok(SeqNo(state.len() as u64))
    }

    fn give_up(&self, _cause: &Error) {
        self.is_off.store(true, Ordering::Relaxed);
    }
}

const PUT: OpRef<'static> = OpRef::Put { key: b"k", value: b"v" };

fn commit(queue: &CommitQueue, groups: &Noted, durability: Durability) {
    let own = Own { writes: OwnWrites::One(KeyspaceId::DEFAULT, PUT), conditions: None };
    queue.commit(groups, own, durability).expect("written");
}

/// Leads a group of one put.
fn lead(queue: &CommitQueue, groups: &Noted, durability: Durability) {
    let lead = queue.line.try_to_lead().expect("nobody else leads");
    let own = Share { writes: Writes::One(KeyspaceId::DEFAULT, PUT), durability, conditions: None };
    queue.lead(groups, lead, own).expect("written");
}

/// One put that takes `bytes` in the log.
fn batch_of(bytes: usize) -> Operations {
    let mut operations = Operations::EMPTY;
    // Before the value: the kind, the length of the key and the key, and three bytes of length.
    let value = vec![7; bytes - 6];
    operations.push(KeyspaceId::DEFAULT, OpRef::Put { key: b"k", value: &value }).expect("valid");
    assert_eq!(operations.encoded.len(), bytes);
    operations
}

#[test]
fn only_a_lone_writer_and_a_large_batch_take_the_lock_at_once() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let (queue, groups) = (CommitQueue::new(&clock), Noted::new(&clock));
    let at_once = |bytes, durability| queue.state_at_once(&groups, bytes, durability).is_some();
    for (syncing_writers, shares_sync) in [(0, false), (1, false), (2, true), (3, true)] {
        queue.syncing_writers.store(syncing_writers, Ordering::Relaxed);
        assert_eq!(at_once(10, Durability::Sync), !shares_sync, "of {syncing_writers} writers that sync");
        assert!(at_once(10, Durability::Buffered) && at_once(10, Durability::NoSync), "they share no sync");
        assert!(at_once(SHARED_BYTES_MAX + 1, Durability::Sync), "it cannot share a frame");
    }
    queue.syncing_writers.store(0, Ordering::Relaxed);
    let lead = queue.line.try_to_lead().expect("nobody leads");
    for durability in [Durability::Sync, Durability::Buffered] {
        assert!(!at_once(10, durability), "it would overtake those that wait");
        assert!(!at_once(SHARED_BYTES_MAX, durability), "it can share a frame");
        assert!(at_once(SHARED_BYTES_MAX + 1, durability));
    }
    drop(lead);
    let busy = groups.groups.lock();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| at_once(10, Durability::Buffered));
        assert!(!other.join().expect("no panic"), "another writer is active");
    });
    drop(busy);
}

#[test]
fn a_leader_waits_for_an_eighth_of_a_sync_for_others_to_share_it() {
    // Up to a millisecond, and only if it syncs itself.
    let cases = [
        (Durability::Sync, 4_000, 500),
        (Durability::Sync, 1_000_000, AWAIT_US_MAX),
        (Durability::Buffered, 4_000, 0),
    ];
    for (durability, sync_us, waited_us) in cases {
        let clock: Arc<dyn Clock> = Arc::new(ReadingsClock::default());
        let (queue, groups) = (CommitQueue::new(&clock), Noted::new(&clock));
        queue.sync_us.store(sync_us, Ordering::Relaxed);
        queue.syncing_writers.store(2, Ordering::Relaxed);
        lead(&queue, &groups, durability);
        let gathered_us = groups.gathered_us.load(Ordering::Relaxed);
        let expected_us = waited_us..waited_us + 200;
        assert!(expected_us.contains(&gathered_us), "{durability:?}, {sync_us}: {gathered_us}");
    }
}

#[test]
fn the_time_of_a_sync_is_an_average_in_which_the_last_one_weighs_a_quarter() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let (queue, groups) = (CommitQueue::new(&clock), Noted::new(&clock));
    let known = || (queue.sync_us.load(Ordering::Relaxed), queue.syncing_writers.load(Ordering::Relaxed));
    groups.write_us.store(8_000, Ordering::Relaxed);
    // A group without a sync says nothing about syncs, whether it has a leader or not.
    commit(&queue, &groups, Durability::Buffered);
    lead(&queue, &groups, Durability::Buffered);
    lead(&queue, &groups, Durability::NoSync);
    assert_eq!(known(), (0, 0));
    commit(&queue, &groups, Durability::Sync);
    assert_eq!(known(), (2_000, 1));
    lead(&queue, &groups, Durability::Sync);
    assert_eq!(known(), (3_500, 1));
    groups.write_us.store(100, Ordering::Relaxed);
    commit(&queue, &groups, Durability::Sync);
    assert_eq!(known(), (2_650, 1));
    commit(&queue, &groups, Durability::Buffered);
    assert_eq!(known(), (2_650, 1));
    assert_eq!(*groups.groups.lock(), vec![vec![PUT.encoded_bytes_max()]; 7]);
    assert!(!groups.is_off.load(Ordering::Relaxed));
}

#[test]
fn a_leader_gathers_batches_up_to_the_size_of_a_group() {
    const FOLLOWERS: usize = 17;
    const FOLLOWER_BYTES: usize = 62_000;
    // With all followers but the last, exactly the size at which a leader stops.
    const LEADER_BYTES: usize = GROUP_BYTES_MAX - (FOLLOWERS - 1) * FOLLOWER_BYTES;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let (queue, groups) = (CommitQueue::new(&clock), Noted::new(&clock));
    let lead = queue.line.try_to_lead().expect("nobody leads");
    let seqs: Vec<_> = std::thread::scope(|scope| {
        let followers: Vec<_> = (0..FOLLOWERS)
            .map(|at| {
                let follower = scope.spawn(|| {
                    let mut operations = batch_of(FOLLOWER_BYTES);
                    let own = Own { writes: OwnWrites::Batch(&mut operations), conditions: None };
                    let seq = queue.commit(&groups, own, Durability::Buffered).expect("written");
                    assert_eq!(operations.encoded.len(), FOLLOWER_BYTES, "they are given back");
                    seq
                });
                while queue.line.standing() != (1, at + 1) {
                    std::thread::yield_now();
                }
                follower
            })
            .collect();
        let operations = batch_of(LEADER_BYTES);
        let writes = Writes::Batch(&operations);
        let own = Share { writes, durability: Durability::Buffered, conditions: None };
        assert_eq!(queue.lead(&groups, lead, own).expect("written"), SeqNo(1));
        followers.into_iter().map(|follower| follower.join().expect("no panic")).collect()
    });
    let mut first = vec![LEADER_BYTES];
    first.extend([FOLLOWER_BYTES; FOLLOWERS - 1]);
    assert_eq!(*groups.groups.lock(), [first, vec![FOLLOWER_BYTES]]);
    let (last, others) = seqs.split_last().expect("there are followers");
    assert!(others.iter().all(|seq| *seq == SeqNo(1)) && *last == SeqNo(2), "{seqs:?}");
    assert_eq!(queue.line.standing(), (0, 0));
}
