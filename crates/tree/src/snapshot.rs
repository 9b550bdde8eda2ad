//! The live sequence numbers: those at which snapshots and iterators may still read.
//!
//! A compaction may drop a version of a key only when no reader can notice it. The live sequence
//! numbers cut the history into *stripes*, and of each key the newest version of each stripe must
//! stay. A reader at a fixed sequence number holds a [`SnapshotGuard`]. A compaction or flush calls
//! [`SnapshotList::stripes`] *before* it reads anything else.
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
    live: Mutex<Live>,
    /// The fence is gone.
    unfenced: Condvar,
}

/// The registered readers.
#[derive(Debug, Default)]
struct Live {
    /// Number of readers at each sequence number, ascending. Numbers are registered in about this
    /// order, and few are live at a time. A vector therefore costs less than a tree: registration
    /// does not allocate.
    readers: Vec<(SeqNo, usize)>,
    /// Whether new readers wait.
    is_fenced: bool,
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Registers a reader at the sequence number that `visible` returns, read under the list's
    /// lock.
    pub fn take_with(self: &Arc<Self>, visible: impl FnOnce() -> SeqNo) -> Arc<SnapshotGuard> {
        let mut guard = self.lock();
        while guard.is_fenced {
            guard = self.unfenced.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        let live = &mut guard.readers;
        let seq = visible();
        let at = live.partition_point(|(held, _)| *held < seq);
        match live.get_mut(at) {
            Some((held, readers)) if *held == seq => *readers += 1,
            _ => live.insert(at, (seq, 1)),
        }
        debug_assert!(live.windows(2).all(|pair| pair[0].0 < pair[1].0), "the snapshots do not ascend");
        drop(guard);
        Arc::new(SnapshotGuard { list: Arc::clone(self), seq })
    }

    /// The live sequence numbers, ascending and distinct.
    pub fn stripes(&self) -> Vec<SeqNo> {
        self.lock().readers.iter().map(|(seq, _)| *seq).collect()
    }

    /// Keeps readers from registering until the fence is dropped. `None` if a reader at `seq` or
    /// above is registered. To be held for the install of one edit, by one thread at a time; until
    /// it is dropped this thread must not register a reader, nor take a lock under which another
    /// one does.
    pub fn fence(self: &Arc<Self>, seq: SeqNo) -> Option<SnapshotFence> {
        let mut live = self.lock();
        assert!(!live.is_fenced, "two edits are installed at the same time");
        if live.readers.last().is_some_and(|(newest, _)| *newest >= seq) {
            return None;
        }
        live.is_fenced = true;
        Some(SnapshotFence(Arc::clone(self)))
    }

    /// Number of registered readers.
    #[cfg(test)]
    #[allow(clippy::len_without_is_empty, reason = "tests count readers")]
    pub fn len(&self) -> usize {
        self.lock().readers.iter().map(|(_, readers)| readers).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        // Each change is a single operation on the list, so a panic leaves it valid.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of one reader; dropping it removes the registration.
#[derive(Debug)]
pub struct SnapshotGuard {
    list: Arc<SnapshotList>,
    seq: SeqNo,
}

impl SnapshotGuard {
    /// The sequence number at which the reader reads.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let live = &mut self.list.lock().readers;
        if let Ok(at) = live.binary_search_by_key(&self.seq, |(held, _)| *held) {
            assert!(live[at].1 > 0, "a snapshot at {} without readers is released", self.seq);
            live[at].1 -= 1;
            if live[at].1 == 0 {
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
    fn the_number_is_read_under_the_lock() {
        let list = SnapshotList::new();
        let guard = list.take_with(|| {
            assert!(list.live.try_lock().is_err(), "a merge could read the list between the two steps");
            SeqNo(7)
        });
        assert_eq!(guard.seq(), SeqNo(7));
    }
}
