//! The live sequence numbers: those at which snapshots and iterators may still read.
//!
//! A compaction may drop a version of a key only when no reader can notice it. The live sequence
//! numbers cut the history into *stripes*, and of each key the newest version of each stripe must
//! stay. A reader at a fixed sequence number holds a [`SnapshotGuard`]. A compaction or flush calls
//! [`SnapshotList::stripes`] *before* it reads anything else.
//!
//! A reader also has one time, by which it judges whether entries have expired. It is registered
//! with the number: what expires after it is kept.
//!
//! Threads that register at the same time do not contend: the list has a *shard* for each of a few
//! groups of threads, with a lock of its own. A thread that reads the list visits all shards in
//! turn.
//!
//! Invariant: a reader's number is in its shard before any compaction that could drop what it sees
//! visits that shard. That is why the number is read from its source *under the shard's lock*
//! ([`SnapshotList::take_with`]). A reader that registers in a shard after a compaction's visit has
//! a number that is not lower than the one that was visible when the compaction began. The
//! compaction works only on entries up to that number, and keeps the newest of them.
//!
//! Readers of different shards may get number and time in different orders: one of a later number
//! may have an earlier time. [`SnapshotList::readers`] therefore returns lower bounds of times.
//!
//! A compaction filter changes that newest entry. A reader that registers meanwhile must not see
//! the entry before the change and then after it. So the change is installed under a *fence*
//! ([`SnapshotList::fence`]): none is given while a reader is registered that sees the change, and
//! readers that register wait until the new state is visible.

use std::sync::Arc;

use shamba_env::{THREAD_GROUPS, thread_number};
use shamba_key::SeqNo;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, IS_EXPLORED, Mutex, MutexGuard, PoisonError};

/// Number of shards; few for an exploration, which visits each.
const SHARDS: usize = if IS_EXPLORED { 2 } else { THREAD_GROUPS };

/// The multiset of live sequence numbers.
#[derive(Debug)]
pub struct SnapshotList {
    shards: [Arc<Shard>; SHARDS],
    /// The last mark.
    mark: AtomicU64,
}

/// The readers that threads of one group have registered. Two cache lines, because processors
/// prefetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    live: Mutex<Registered>,
    /// The fence is gone.
    unfenced: Condvar,
}

/// The registered readers of a shard.
#[derive(Debug, Default)]
struct Registered {
    /// The readers at each sequence number and time, ascending. Numbers are registered in this
    /// order, and few are live at a time. A vector therefore costs less than a tree: registration
    /// does not allocate.
    readers: Vec<Live>,
    /// Whether new readers wait.
    is_fenced: bool,
    /// The last mark of this shard.
    mark: Mark,
}

/// A moment in the order of registrations ([`SnapshotList::mark`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Mark(u64);

/// The readers of one sequence number and time that registered between the same two marks.
#[derive(Debug)]
struct Live {
    seq: SeqNo,
    time_ms: u64,
    mark: Mark,
    readers: usize,
}

/// The readers whose versions a compaction keeps: live sequence numbers, ascending and distinct,
/// and the times at which their readers judge expiry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Readers {
    /// Live sequence numbers.
    pub seqs: Vec<SeqNo>,
    /// For each of them the time of its first reader, or an earlier one. Later numbers have no
    /// earlier times.
    pub times_ms: Vec<u64>,
    /// No reader that is registered later has an earlier time.
    pub now_ms: u64,
}

impl Live {
    fn place(&self) -> (SeqNo, u64, Mark) {
        (self.seq, self.time_ms, self.mark)
    }
}

impl Readers {
    /// The time of the readers of a stripe of history, or an earlier one. The newest stripe is that
    /// of readers to come.
    pub fn time_ms(&self, stripe: usize) -> u64 {
        self.times_ms.get(stripe).copied().unwrap_or(self.now_ms)
    }

    /// No reader of a version from `seq` on has an earlier time.
    pub fn time_from_ms(&self, seq: SeqNo) -> u64 {
        self.time_ms(self.seqs.partition_point(|snapshot| *snapshot < seq))
    }

    /// Whether a reader is older than the write with this number.
    pub fn has_older_than(&self, seq: SeqNo) -> bool {
        self.seqs.first().is_some_and(|oldest| *oldest < seq)
    }
}

impl Shard {
    /// Registers a reader at the number and time that `visible` returns.
    fn take(self: &Arc<Self>, visible: impl FnOnce() -> (SeqNo, u64)) -> Arc<SnapshotGuard> {
        let mut guard = self.lock();
        while guard.is_fenced {
            guard = self.unfenced.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        let mark = guard.mark;
        let live = &mut guard.readers;
        let (seq, time_ms) = visible();
        let at = live.partition_point(|held| held.place() < (seq, time_ms, mark));
        match live.get_mut(at) {
            Some(held) if held.place() == (seq, time_ms, mark) => held.readers += 1,
            _ => live.insert(at, Live { seq, time_ms, mark, readers: 1 }),
        }
        debug_assert!(live.is_sorted_by(|a, b| a.place() < b.place()), "the snapshots do not ascend");
        drop(guard);
        Arc::new(SnapshotGuard { shard: Arc::clone(self), seq, time_ms, mark })
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        // Each change is a single operation on the list, so a panic leaves it valid.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { shards: std::array::from_fn(|_| Arc::default()), mark: AtomicU64::new(0) })
    }

    /// Registers a reader at the sequence number that `visible` returns, read under a lock of the
    /// list.
    pub fn take_with(&self, visible: impl FnOnce() -> SeqNo) -> Arc<SnapshotGuard> {
        self.take_at(|| (visible(), 0))
    }

    /// [`Self::take_with`] for a reader that judges expiry by the time that `visible` returns as
    /// well, in milliseconds. The time of a later reader must not be earlier.
    pub fn take_at(&self, visible: impl FnOnce() -> (SeqNo, u64)) -> Arc<SnapshotGuard> {
        // An exploration must not depend on the threads of earlier ones.
        self.take_in(if IS_EXPLORED { 0 } else { thread_number() }, visible)
    }

    /// [`Self::take_at`] for a thread of this number, which decides only with whom it contends.
    pub fn take_in(&self, thread: usize, visible: impl FnOnce() -> (SeqNo, u64)) -> Arc<SnapshotGuard> {
        self.shards[thread % SHARDS].take(visible)
    }

    /// Separates the readers that are registered from those that will be. Sequence numbers do not
    /// separate them while there are no writes.
    pub fn mark(&self) -> Mark {
        let mark = Mark(self.mark.fetch_add(1, Ordering::Relaxed) + 1);
        for shard in &self.shards {
            let mut registered = shard.lock();
            registered.mark = registered.mark.max(mark);
        }
        mark
    }

    /// Whether a reader is registered that began before this mark; `None`: any reader.
    pub fn has_reader_before(&self, mark: Option<Mark>) -> bool {
        let is_before = |live: &Live| mark.is_none_or(|mark| live.mark < mark);
        self.shards.iter().any(|shard| shard.lock().readers.iter().any(is_before))
    }

    /// The live sequence numbers, ascending and distinct.
    pub fn stripes(&self) -> Vec<SeqNo> {
        self.readers(0).seqs
    }

    /// The live readers, for a compaction that works at `now_ms`. That time was read *before* this
    /// call: a reader that is not in the list then has a time that is not earlier.
    pub fn readers(&self, now_ms: u64) -> Readers {
        let mut live: Vec<(SeqNo, u64)> = Vec::new();
        for shard in &self.shards {
            live.extend(shard.lock().readers.iter().map(|live| (live.seq, live.time_ms)));
        }
        live.sort_unstable();
        live.dedup_by_key(|(seq, _)| *seq);
        let (seqs, mut times_ms): (Vec<SeqNo>, Vec<u64>) = live.into_iter().unzip();
        let mut earliest_ms = now_ms;
        for time_ms in times_ms.iter_mut().rev() {
            earliest_ms = earliest_ms.min(*time_ms);
            *time_ms = earliest_ms;
        }
        Readers { seqs, times_ms, now_ms }
    }

    /// Keeps readers from registering until the fence is dropped. `None` if a reader at `seq` or
    /// above is registered. To be held for the install of one edit, by one thread at a time; until
    /// it is dropped this thread must not register a reader, nor take a lock under which another
    /// one does.
    pub fn fence(self: &Arc<Self>, seq: SeqNo) -> Option<SnapshotFence> {
        let mut fence = SnapshotFence { list: Arc::clone(self), shards: 0 };
        for shard in &self.shards {
            let mut registered = shard.lock();
            assert!(!registered.is_fenced, "two edits are installed at the same time");
            if registered.readers.last().is_some_and(|newest| newest.seq >= seq) {
                return None;
            }
            registered.is_fenced = true;
            fence.shards += 1;
        }
        Some(fence)
    }

    /// Number of registered readers.
    #[cfg(test)]
    #[allow(clippy::len_without_is_empty, reason = "tests count readers")]
    pub fn len(&self) -> usize {
        let readers = |shard: &Shard| shard.lock().readers.iter().map(|live| live.readers).sum::<usize>();
        self.shards.iter().map(|shard| readers(shard)).sum()
    }
}

/// The registration of one reader; dropping it removes the registration.
#[derive(Debug)]
pub struct SnapshotGuard {
    shard: Arc<Shard>,
    seq: SeqNo,
    time_ms: u64,
    mark: Mark,
}

impl SnapshotGuard {
    /// The sequence number at which the reader reads.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// The time at which the reader judges expiry, in milliseconds since 1970-01-01 UTC; 0 if there
    /// was no entry with an expiry when it began.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let live = &mut self.shard.lock().readers;
        if let Ok(at) = live.binary_search_by_key(&(self.seq, self.time_ms, self.mark), Live::place) {
            assert!(live[at].readers > 0, "a snapshot at {} without readers is released", self.seq);
            live[at].readers -= 1;
            if live[at].readers == 0 {
                live.remove(at);
            }
        }
    }
}

/// While this lives, no reader registers.
#[derive(Debug)]
#[must_use]
pub struct SnapshotFence {
    list: Arc<SnapshotList>,
    /// Number of shards, from the first on, in which readers wait.
    shards: usize,
}

impl Drop for SnapshotFence {
    fn drop(&mut self) {
        for shard in &self.list.shards[..self.shards] {
            shard.lock().is_fenced = false;
            shard.unfenced.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_given_below_no_reader_and_keeps_new_ones_out() {
        let list = SnapshotList::new();
        let five = list.take_with(|| SeqNo(5));
        assert!(list.fence(SeqNo(5)).is_none(), "the reader sees the change");
        assert!(list.fence(SeqNo(4)).is_none());
        let fence = list.fence(SeqNo(6)).expect("the reader is older than the change");
        drop(five);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| list.take_with(|| SeqNo(7)).seq());
            assert_eq!(list.len(), 0, "a reader registered within the fence");
            drop(fence);
            assert_eq!(reader.join().expect("no panic"), SeqNo(7));
        });
    }

    #[test]
    fn numbers_live_as_long_as_their_last_reader() {
        let list = SnapshotList::new();
        assert_eq!(list.stripes(), []);
        let five = list.take_with(|| SeqNo(5));
        let again = list.take_with(|| SeqNo(5));
        let three = list.take_with(|| SeqNo(3));
        assert_eq!(list.stripes(), [SeqNo(3), SeqNo(5)]);
        assert_eq!(list.len(), 3);
        drop(five);
        assert_eq!(list.stripes(), [SeqNo(3), SeqNo(5)]);
        let shared = Arc::clone(&three);
        drop(three);
        assert_eq!(list.stripes(), [SeqNo(3), SeqNo(5)]);
        drop(shared);
        assert_eq!(list.stripes(), [SeqNo(5)]);
        drop(again);
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn a_mark_separates_readers_of_the_same_number() {
        let list = SnapshotList::new();
        assert!(!list.has_reader_before(None));
        let before = list.take_with(|| SeqNo(5));
        let mark = list.mark();
        let after = list.take_with(|| SeqNo(5));
        assert!(list.has_reader_before(Some(mark)) && list.has_reader_before(None));
        assert_eq!((list.stripes(), list.len()), (vec![SeqNo(5)], 2));
        drop(before);
        assert!(!list.has_reader_before(Some(mark)) && list.has_reader_before(None));
        assert!(list.has_reader_before(Some(list.mark())), "it is before a later mark");
        drop(after);
        assert_eq!((list.len(), list.has_reader_before(None)), (0, false));
    }

    #[test]
    fn compactions_know_the_earliest_time_at_each_number() {
        let list = SnapshotList::new();
        let first = list.take_at(|| (SeqNo(3), 100));
        let _second = list.take_at(|| (SeqNo(3), 120));
        let _third = list.take_at(|| (SeqNo(5), 130));
        let readers = list.readers(140);
        assert_eq!((&readers.seqs[..], &readers.times_ms[..]), (&[SeqNo(3), SeqNo(5)][..], &[100, 130][..]));
        assert_eq!([0, 1, 2].map(|stripe| readers.time_ms(stripe)), [100, 130, 140]);
        assert_eq!([3, 4, 6].map(|seq| readers.time_from_ms(SeqNo(seq))), [100, 130, 140]);
        assert_eq!((first.seq(), first.time_ms()), (SeqNo(3), 100));
        assert_eq!(list.stripes(), [SeqNo(3), SeqNo(5)]);
        drop(first);
        assert_eq!(list.readers(140).times_ms, [120, 130]);
    }

    #[test]
    fn the_number_is_read_under_the_lock() {
        let list = SnapshotList::new();
        let guard = list.take_in(3, || {
            assert!(
                list.shards[3].live.try_lock().is_err(),
                "a merge could read the list between the two steps"
            );
            (SeqNo(7), 0)
        });
        assert_eq!(guard.seq(), SeqNo(7));
    }

    #[test]
    fn readers_of_all_shards_count() {
        let list = SnapshotList::new();
        let held = [9, 3, 5, 3, 7].map(SeqNo);
        let mut guards: Vec<_> =
            held.iter().enumerate().map(|(thread, seq)| list.take_in(thread, || (*seq, 0))).collect();
        assert_eq!((list.stripes(), list.len()), ([3, 5, 7, 9].map(SeqNo).to_vec(), 5));
        assert!(list.fence(SeqNo(9)).is_none(), "a reader of the first shard sees the change");
        let before = list.mark();
        let after = list.take_in(40, || (SeqNo(9), 0));
        guards.remove(0);
        assert!(list.fence(SeqNo(9)).is_none(), "so does one of another shard");
        drop(after);
        assert!(list.has_reader_before(Some(before)));
        // A fence that was not given keeps nobody out.
        drop(list.take_in(0, || (SeqNo(8), 0)));
        drop(list.fence(SeqNo(8)).expect("the readers are older than the change"));
        drop(guards);
        assert_eq!((list.len(), list.has_reader_before(None)), (0, false));
    }

    #[test]
    fn no_reader_has_an_earlier_time_than_compactions_assume() {
        let list = SnapshotList::new();
        // Shards do not order numbers and times together.
        let _guards = [(5, 120), (3, 130), (7, 110), (9, 150)]
            .iter()
            .enumerate()
            .map(|(thread, (seq, time_ms))| list.take_in(thread, || (SeqNo(*seq), *time_ms)))
            .collect::<Vec<_>>();
        let readers = list.readers(140);
        assert_eq!(readers.seqs, [3, 5, 7, 9].map(SeqNo));
        // Another reader of the last number may have the time at which the compaction works.
        assert_eq!(readers.times_ms, [110, 110, 110, 140]);
        assert_eq!([4, 8, 10].map(|seq| readers.time_from_ms(SeqNo(seq))), [110, 140, 140]);
    }
}
