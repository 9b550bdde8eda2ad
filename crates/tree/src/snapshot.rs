//! The sequence numbers that somebody may still read at: those of snapshots and of iterators.
//!
//! A merge may drop a version of a key only when no reader can tell. The live sequence numbers cut the
//! history into *stripes*; of each key, the newest version of each stripe must stay. Whoever reads at a
//! fixed sequence holds a [`SnapshotGuard`]; whoever merges asks [`SnapshotList::stripes`] *before* it looks
//! at anything else.
//!
//! Invariant: a reader's number is in the list before any merge that could drop what it sees reads the
//! list. That is why a number is read from the source *under the list's lock* ([`SnapshotList::take_with`]):
//! a merge that read the list without it saw every write up to a later number as the newest.

use std::sync::Arc;

use shamba_key::SeqNo;

use crate::sync::{Mutex, MutexGuard, PoisonError};
use shamba_key::planted::{Defect, is_planted};

/// The multiset of live sequence numbers.
#[derive(Debug, Default)]
pub struct SnapshotList {
    /// How many readers hold each number, ascending. Numbers are taken in about this order, and few are live at a
    /// time, so a list costs less than a tree: nothing is allocated for a reader.
    live: Mutex<Vec<(SeqNo, usize)>>,
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Registers a reader at the sequence number that `visible` tells, read under the list's lock.
    pub fn take_with(self: &Arc<Self>, visible: impl FnOnce() -> SeqNo) -> Arc<SnapshotGuard> {
        let mut live = self.lock();
        let seq = visible();
        let at = live.partition_point(|(held, _)| *held < seq);
        match live.get_mut(at) {
            Some((held, readers)) if *held == seq => *readers += 1,
            _ => live.insert(at, (seq, 1)),
        }
        drop(live);
        Arc::new(SnapshotGuard { list: Arc::clone(self), seq })
    }

    /// The live numbers, ascending, each once.
    pub fn stripes(&self) -> Vec<SeqNo> {
        self.lock().iter().map(|(seq, _)| *seq).collect()
    }

    /// How many readers are registered.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().iter().map(|(_, readers)| readers).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SeqNo, usize)>> {
        // A panic cannot leave the list half changed: each change is one operation on it.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reader's place in the list; dropping it gives the place up.
#[derive(Debug)]
pub struct SnapshotGuard {
    list: Arc<SnapshotList>,
    seq: SeqNo,
}

impl SnapshotGuard {
    /// The sequence number that the reader reads at.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut live = self.list.lock();
        if let Ok(at) = live.binary_search_by_key(&self.seq, |(held, _)| *held) {
            live[at].1 -= 1;
            if live[at].1 == 0 || is_planted(Defect::SnapshotReleasedEarly) {
                live.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
