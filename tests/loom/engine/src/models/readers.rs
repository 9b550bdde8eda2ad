//! The list of snapshots: compactions concurrent with readers that register.

use std::sync::Arc;

use loom::thread;
use shamba_key::SeqNo;

use crate::broken::{Broken, is_broken};
use crate::snapshot::SnapshotList;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

struct Shared {
    snapshots: Arc<SnapshotList>,
    visible: AtomicU64,
    /// The versions of one key, by their sequence numbers.
    versions: Mutex<Vec<u64>>,
}

impl Shared {
    /// Keeps the newest version, and the version that each live sequence number sees.
    fn merge(&self) {
        let stripes = self.snapshots.stripes();
        let mut versions = self.versions.lock().expect("no panic");
        let newest = versions.iter().copied().max();
        let seen_by = |seq: &SeqNo| versions.iter().copied().filter(|version| *version <= seq.0).max();
        let kept: Vec<u64> = stripes.iter().filter_map(seen_by).chain(newest).collect();
        versions.retain(|version| kept.contains(version));
    }

    fn read(&self, thread: usize) {
        let visible = || (SeqNo(self.visible.load(Ordering::Acquire)), 0);
        let snapshot = if is_broken(Broken::Usage) {
            let before = visible();
            self.snapshots.take_in(thread, || before)
        } else {
            self.snapshots.take_in(thread, visible)
        };
        let versions = self.versions.lock().expect("no panic").clone();
        let seq = snapshot.seq().0;
        assert!(
            versions.iter().any(|version| *version <= seq),
            "a reader at {seq} finds only {versions:?}: a merge dropped what it sees"
        );
    }
}

/// The readers are threads of different shards of the list. A reader at a sequence number finds the
/// version that was visible then, although newer versions arrive and a compaction drops old ones.
pub fn snapshots() {
    let shared = Arc::new(Shared {
        snapshots: SnapshotList::new(),
        visible: AtomicU64::new(1),
        versions: Mutex::new(vec![1]),
    });
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.read(1))
    };
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.versions.lock().expect("no panic").push(2);
            shared.visible.store(2, Ordering::Release);
            shared.merge();
        })
    };
    shared.read(0);
    reader.join().expect("no panic");
    writer.join().expect("no panic");
    assert!(shared.snapshots.stripes().is_empty(), "nobody reads any more");
    shared.merge();
    assert_eq!(*shared.versions.lock().expect("no panic"), [2], "nothing keeps the old version");
}

/// A reader that registers while a compaction filter changes an entry sees the entry before the
/// change or after it, and never both.
pub fn filters() {
    let snapshots = SnapshotList::new();
    let value = Arc::new(AtomicU64::new(1));
    let read = |snapshots: &Arc<SnapshotList>, thread: usize, value: &AtomicU64| {
        let _snapshot = snapshots.take_in(thread, || (SeqNo(1), 0));
        let (first, second) = (value.load(Ordering::Acquire), value.load(Ordering::Acquire));
        assert_eq!(first, second, "a reader sees an entry change");
    };
    let reader = {
        let (snapshots, value) = (Arc::clone(&snapshots), Arc::clone(&value));
        thread::spawn(move || read(&snapshots, 1, &value))
    };
    let filter = {
        let (snapshots, value) = (Arc::clone(&snapshots), Arc::clone(&value));
        thread::spawn(move || {
            let fence = snapshots.fence(SeqNo(1));
            if is_broken(Broken::Usage) {
                // As a check without the wait of new readers would.
                drop(fence);
                value.store(2, Ordering::Release);
            } else if let Some(fence) = fence {
                value.store(2, Ordering::Release);
                drop(fence);
            }
        })
    };
    read(&snapshots, 0, &value);
    reader.join().expect("no panic");
    filter.join().expect("no panic");
    assert!(snapshots.fence(SeqNo(1)).is_some(), "nobody reads any more");
}
