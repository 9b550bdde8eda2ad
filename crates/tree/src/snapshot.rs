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
//! Invariant: a reader's number is in the list before any compaction that could drop what it sees
//! reads the list. That is why the number is read from its source *under the list's lock*
//! ([`SnapshotList::take_with`]). A compaction that has read the list before a registration works
//! only on entries up to that reader's number, and keeps the newest of them.
//!
//! A compaction filter changes that newest entry. A reader that registers meanwhile must not see
//! the entry before the change and then after it. So the change is installed under a *fence*
//! ([`SnapshotList::fence`]): none is given while a reader is registered that sees the change, and
//! readers that register wait until the new state is visible.

use std::sync::Arc;

use shamba_key::SeqNo;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The multiset of live sequence numbers.
#[derive(Debug, Default)]
pub struct SnapshotList {
    live: Mutex<Registered>,
    /// The fence is gone.
    unfenced: Condvar,
}

/// The registered readers.
#[derive(Debug, Default)]
struct Registered {
    /// The readers at each sequence number and time, ascending. Numbers are registered in about
    /// this order, and few are live at a time. A vector therefore costs less than a tree:
    /// registration does not allocate.
    readers: Vec<Live>,
    /// Whether new readers wait.
    is_fenced: bool,
    /// The last mark.
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
    /// For each of them the time of its first reader. Later numbers have no earlier times.
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
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Registers a reader at the sequence number that `visible` returns, read under the list's
    /// lock.
    pub fn take_with(self: &Arc<Self>, visible: impl FnOnce() -> SeqNo) -> Arc<SnapshotGuard> {
        self.take_at(|| (visible(), 0))
    }

    /// [`Self::take_with`] for a reader that judges expiry by the time that `visible` returns as
    /// well, in milliseconds. The time of a later reader must not be earlier.
    pub fn take_at(self: &Arc<Self>, visible: impl FnOnce() -> (SeqNo, u64)) -> Arc<SnapshotGuard> {
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
        Arc::new(SnapshotGuard { list: Arc::clone(self), seq, time_ms, mark })
    }

    /// Separates the readers that are registered from those that will be. Sequence numbers do not
    /// separate them while there are no writes.
    pub fn mark(&self) -> Mark {
        let mut registered = self.lock();
        registered.mark.0 += 1;
        registered.mark
    }

    /// Whether a reader is registered that began before this mark; `None`: any reader.
    pub fn has_reader_before(&self, mark: Option<Mark>) -> bool {
        self.lock().readers.iter().any(|live| mark.is_none_or(|mark| live.mark < mark))
    }

    /// The live sequence numbers, ascending and distinct.
    pub fn stripes(&self) -> Vec<SeqNo> {
        let mut seqs: Vec<SeqNo> = self.lock().readers.iter().map(|live| live.seq).collect();
        seqs.dedup();
        seqs
    }

    /// The live readers, for a compaction that works at `now_ms`. That time was read *before* this
    /// call: a reader that is not in the list then has a time that is not earlier.
    pub fn readers(&self, now_ms: u64) -> Readers {
        let mut readers = Readers { now_ms, ..Readers::default() };
        for live in &self.lock().readers {
            if readers.seqs.last() != Some(&live.seq) {
                readers.seqs.push(live.seq);
                readers.times_ms.push(live.time_ms);
            }
        }
        readers
    }

    /// Keeps readers from registering until the fence is dropped. `None` if a reader at `seq` or
    /// above is registered. To be held for the install of one edit, by one thread at a time; until
    /// it is dropped this thread must not register a reader, nor take a lock under which another
    /// one does.
    pub fn fence(self: &Arc<Self>, seq: SeqNo) -> Option<SnapshotFence> {
        let mut live = self.lock();
        assert!(!live.is_fenced, "two edits are installed at the same time");
        if live.readers.last().is_some_and(|newest| newest.seq >= seq) {
            return None;
        }
        live.is_fenced = true;
        Some(SnapshotFence(Arc::clone(self)))
    }

    /// Number of registered readers.
    #[cfg(test)]
    #[allow(clippy::len_without_is_empty, reason = "tests count readers")]
    pub fn len(&self) -> usize {
        self.lock().readers.iter().map(|live| live.readers).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        // Each change is a single operation on the list, so a panic leaves it valid.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of one reader; dropping it removes the registration.
#[derive(Debug)]
pub struct SnapshotGuard {
    list: Arc<SnapshotList>,
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
        let live = &mut self.list.lock().readers;
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
pub struct SnapshotFence(Arc<SnapshotList>);

impl Drop for SnapshotFence {
    fn drop(&mut self) {
        self.0.lock().is_fenced = false;
        self.0.unfenced.notify_all();
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
        let guard = list.take_with(|| {
            assert!(list.live.try_lock().is_err(), "a merge could read the list between the two steps");
            SeqNo(7)
        });
        assert_eq!(guard.seq(), SeqNo(7));
    }
}
