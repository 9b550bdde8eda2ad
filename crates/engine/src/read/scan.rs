//! Scans that outlive the memory they use: a sequence number, a place, and a view that may be taken away.
//!
//! A [`Scan`] owns what it must not lose: the sequence number it reads at (registered, so that merges keep
//! what it sees), its range, and the key it stands at. Everything else (the view with its memtables and
//! files, the blocks under its iterators) sits in a *slot*. Between two calls anybody may empty the slot
//! ([`IterRegistry::revoke_idle`]); the next call then takes the newest view, seeks to its key at its
//! sequence number, and goes on. So a thousand idle scans keep no memtable, block or dead file alive, and a
//! long scan over a busy database moves from view to view.
//!
//! A scan in the middle of a call cannot be robbed; it finds a note in its slot and gives its view up at the
//! end of the call.
//!
//! Not here: what is visible ([`super::visible`]), the public faces ([`super::cursor`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::visible::{Current, VisibleIter};
use crate::error::Result;
use crate::slice::Slice;
use crate::snapshot::SnapshotGuard;
use crate::version::KeyRange;
use crate::view::{View, ViewSource};

/// Creating iterators on many threads must not queue at one lock.
const SHARDS: usize = 16;
/// A shard drops the places of ended iterators when it has at least so many.
const SWEEP_AT_LEAST: usize = 64;

/// All iterators of a database, so that their views can be taken from those that are idle.
pub(crate) struct IterRegistry {
    shards: [Mutex<Shard>; SHARDS],
    next_shard: AtomicUsize,
    revoked: AtomicU64,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Weak<Slot>>,
    /// At this length ended iterators are swept out: twice what was left last time, so that each
    /// registration pays for one place.
    sweep_at: usize,
}

/// Where a scan keeps what can be taken from it.
#[derive(Default)]
struct Slot {
    live: Mutex<Option<VisibleIter>>,
    /// Somebody wanted the view while the scan was in a call.
    wanted: AtomicBool,
}

impl IterRegistry {
    /// A registry without iterators.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            next_shard: AtomicUsize::new(0),
            revoked: AtomicU64::new(0),
        })
    }

    /// Takes the view and the blocks from every idle iterator whose view is `stale`; those in the middle of a
    /// call give theirs up at its end. Tells how many were taken at once.
    pub fn revoke_idle(&self, stale: impl Fn(&View) -> bool) -> usize {
        let mut taken = Vec::new();
        for slot in self.shards.iter().flat_map(slots) {
            // The note comes first: a call that ends after the try below finds it.
            slot.wanted.store(true, Ordering::SeqCst);
            if let Ok(mut live) = slot.live.try_lock() {
                slot.wanted.store(false, Ordering::SeqCst);
                if live.as_ref().is_some_and(|iter| stale(iter.view())) {
                    taken.extend(live.take());
                }
            }
        }
        self.revoked.fetch_add(taken.len() as u64, Ordering::Relaxed);
        // What was taken may be the last hold on files and memtables; it is let go here, outside all locks.
        taken.len()
    }

    /// How many views have been taken from idle iterators so far.
    pub fn revoked(&self) -> u64 {
        self.revoked.load(Ordering::Relaxed)
    }

    /// How many iterators hold a view now.
    #[cfg(test)]
    pub fn pinned(&self) -> usize {
        let holds = |slot: &Arc<Slot>| slot.live.try_lock().map_or(true, |live| live.is_some());
        self.shards.iter().flat_map(slots).filter(holds).count()
    }

    fn register(&self) -> Arc<Slot> {
        let slot = Arc::<Slot>::default();
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = lock(&self.shards[number]);
        if shard.slots.len() >= shard.sweep_at.max(SWEEP_AT_LEAST) {
            shard.slots.retain(|slot| slot.strong_count() > 0);
            shard.sweep_at = 2 * shard.slots.len();
        }
        shard.slots.push(Arc::downgrade(&slot));
        slot
    }
}

/// The slots of a shard's iterators, to be looked at without the shard's lock.
fn slots(shard: &Mutex<Shard>) -> Vec<Arc<Slot>> {
    lock(shard).slots.iter().filter_map(Weak::upgrade).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both a shard and a slot are whole at every point where a panic could unwind past them: an iterator
    // that panicked in a call is sought anew before it is used again, or not used again.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a scan needs to begin.
#[derive(Clone)]
pub(crate) struct ScanSource {
    /// Where views come from.
    pub views: Arc<dyn ViewSource>,
    /// Where the scan's slot is listed.
    pub registry: Arc<IterRegistry>,
    /// The sequence number to read at; keeps merges from dropping what it sees.
    pub seq: Arc<SnapshotGuard>,
    /// Whether blocks that are read go into the cache.
    pub fill_cache: bool,
}

/// A place among the visible keys of a range, at a fixed sequence number.
pub(crate) struct Scan {
    source: ScanSource,
    range: KeyRange,
    slot: Arc<Slot>,
    place: Place,
    /// Where the scan stands when `place` is `At`; otherwise of no meaning.
    current: Current,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Never placed, or lost by an error.
    Nowhere,
    /// Before the first key.
    Before,
    /// At a key.
    At,
    /// After the last key.
    After,
}

/// A call on the iterator in the slot.
enum Move<'k> {
    Seek(&'k [u8]),
    SeekForPrev(&'k [u8]),
    First,
    Last,
    Next,
    Prev,
}

impl Scan {
    /// A scan of `range` that stands nowhere and holds nothing yet.
    pub fn new(source: ScanSource, range: KeyRange) -> Self {
        let slot = source.registry.register();
        Self { source, range, slot, place: Place::Nowhere, current: Current::default() }
    }

    /// Goes to the first key at or after `key`. Like every move, tells whether the scan stands at a key.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(&Move::Seek(key))
    }

    /// Goes to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.go(&Move::SeekForPrev(key))
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.go(&Move::First)
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.go(&Move::Last)
    }

    /// Goes one key on: from nowhere and from before the first key to the first, from the last to after it.
    pub fn next(&mut self) -> Result<bool> {
        match self.place {
            Place::Nowhere | Place::Before => self.go(&Move::First),
            Place::At => self.go(&Move::Next),
            Place::After => Ok(false),
        }
    }

    /// Goes one key back: from nowhere and from after the last key to the last, from the first to before it.
    pub fn prev(&mut self) -> Result<bool> {
        match self.place {
            Place::Nowhere | Place::After => self.go(&Move::Last),
            Place::At => self.go(&Move::Prev),
            Place::Before => Ok(false),
        }
    }

    /// The key and value that the scan stands at.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        (self.place == Place::At).then_some((self.current.key.as_slice(), &*self.current.value))
    }

    /// The key that the scan stands at.
    pub fn key(&self) -> Option<&[u8]> {
        self.entry().map(|(key, _)| key)
    }

    /// A copy of the key, and the value, which the scan itself has no longer.
    pub fn take_entry(&mut self) -> Option<(Slice, Slice)> {
        (self.place == Place::At)
            .then(|| (Slice::copied(&self.current.key), std::mem::take(&mut self.current.value)))
    }

    fn go(&mut self, step: &Move<'_>) -> Result<bool> {
        let moved = if self.range.is_empty() { Ok(false) } else { self.move_live(step) };
        self.place = match (&moved, step) {
            (Err(_), _) => Place::Nowhere,
            (Ok(true), _) => Place::At,
            (Ok(false), Move::Seek(_) | Move::First | Move::Next) => Place::After,
            (Ok(false), Move::SeekForPrev(_) | Move::Last | Move::Prev) => Place::Before,
        };
        if moved.is_err() || self.slot.wanted.swap(false, Ordering::SeqCst) {
            // Half-moved iterators are of no use, and whoever wanted the view shall have it.
            *lock(&self.slot.live) = None;
        }
        moved
    }

    fn move_live(&mut self, step: &Move<'_>) -> Result<bool> {
        let out = &mut self.current;
        let mut live = lock(&self.slot.live);
        if let Some(iter) = live.as_mut() {
            return match step {
                Move::Seek(key) => iter.seek(key, out),
                Move::SeekForPrev(key) => iter.seek_for_prev(key, out),
                Move::First => iter.seek_to_first(out),
                Move::Last => iter.seek_to_last(out),
                Move::Next => iter.next(out),
                Move::Prev => iter.prev(out),
            };
        }
        let view = self.source.views.view()?;
        let (seq, fill_cache) = (self.source.seq.seq(), self.source.fill_cache);
        let iter = live.insert(VisibleIter::new(view, seq, self.range.clone(), fill_cache));
        match step {
            Move::Seek(key) => iter.seek(key, out),
            Move::SeekForPrev(key) => iter.seek_for_prev(key, out),
            Move::First => iter.seek_to_first(out),
            Move::Last => iter.seek_to_last(out),
            Move::Next => iter.seek_after(out),
            Move::Prev => iter.seek_before(out),
        }
    }
}

#[cfg(test)]
mod tests;
