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
//! A scan that goes on and on finds several entries in one go, copied into a [`Batch`] of its own: between two
//! of them it touches neither lock nor iterator, only the note. Nothing is found ahead that could change: the
//! sequence number is fixed.
//!
//! A scan that ends leaves its slot for the next one of its thread, with iterator and buffers. So a scan of a few
//! entries allocates next to nothing while the view stays the same. To everybody else such a slot is that of an
//! idle scan.
//!
//! Not here: what is visible ([`super::visible`]), the public faces ([`super::cursor`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use shamba_table::Walk;

use super::batch::Batch;
use super::visible::VisibleIter;
use crate::error::Result;
use crate::slice::Slice;
use crate::snapshot::SnapshotGuard;
use crate::version::KeyRange;
use crate::view::{View, ViewSource};

/// Creating iterators on many threads must not queue at one lock.
const SHARDS: usize = 16;
/// The most entries that are found in one go: the lock and the calls around them are then cheap for each.
const FOUND_AT_ONCE: usize = 64;
/// How many times more entries a scan finds at each call after the first: what is found in vain, because the
/// scan ends, is at most about twice what it used.
const WANTED_GROWTH: usize = 3;
/// What a shard keeps of scans that ended: a thread seldom has more of them open than this, and ends them all.
const SPARE_MAX: usize = 4;
/// A shard drops the places of ended iterators when it has at least so many.
const SWEEP_AT_LEAST: usize = 64;

/// All iterators of a database, so that their views can be taken from those that are idle.
pub(crate) struct IterRegistry {
    shards: [Mutex<Shard>; SHARDS],
    revoked: AtomicU64,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Weak<Slot>>,
    /// Slots of scans that ended, for those that begin: with their iterators, whose view is the newest, or was
    /// taken as from any idle scan.
    spare: Vec<Spare>,
    /// At this length ended iterators are swept out: twice what was left last time, so that each
    /// registration pays for one place.
    sweep_at: usize,
}

/// What a scan leaves behind.
struct Spare {
    slot: Arc<Slot>,
    found: Batch,
}

/// Where a scan keeps what can be taken from it.
#[derive(Default)]
struct Slot {
    live: Mutex<Option<VisibleIter>>,
    /// Somebody wants the view, or has taken it since the scan last asked the iterator.
    wanted: AtomicBool,
}

impl IterRegistry {
    /// A registry without iterators.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { shards: std::array::from_fn(|_| Mutex::default()), revoked: AtomicU64::new(0) })
    }

    /// Takes the view and the blocks from every idle iterator whose view is `stale`; those in the middle of a
    /// call give theirs up at its end. Tells how many were taken at once.
    pub fn revoke_idle(&self, stale: impl Fn(&View) -> bool) -> usize {
        let mut taken = Vec::new();
        for slot in self.shards.iter().flat_map(slots) {
            // The note comes first: a call that ends after the try below finds it.
            slot.wanted.store(true, Ordering::SeqCst);
            if let Ok(mut live) = slot.live.try_lock() {
                // It stays where the view is taken: the scan asks for the newest before it goes on.
                if live.as_ref().is_some_and(|iter| stale(iter.view())) {
                    taken.extend(live.take());
                } else if live.is_some() {
                    slot.wanted.store(false, Ordering::SeqCst);
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

    /// A slot for a scan: the last one that a scan of this thread has left, or a new one.
    fn take(&self) -> Spare {
        let mut shard = lock(self.shard());
        if let Some(spare) = shard.spare.pop() {
            return spare;
        }
        let slot = Arc::<Slot>::default();
        if shard.slots.len() >= shard.sweep_at.max(SWEEP_AT_LEAST) {
            shard.slots.retain(|slot| slot.strong_count() > 0);
            shard.sweep_at = 2 * shard.slots.len();
        }
        shard.slots.push(Arc::downgrade(&slot));
        Spare { slot, found: Batch::default() }
    }

    /// Takes back what a scan has no more use for.
    fn leave(&self, spare: Spare) {
        if let Some(iter) = lock(&spare.slot.live).as_mut() {
            iter.let_go();
        }
        let mut shard = lock(self.shard());
        if shard.spare.len() < SPARE_MAX {
            shard.spare.push(spare);
        }
    }

    /// The shard of this thread.
    fn shard(&self) -> &Mutex<Shard> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        &self.shards[NUMBER.with(|number| *number)]
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
    /// How tables are walked.
    pub walk: Walk,
}

/// A place among the visible keys of a range, at a fixed sequence number.
pub(crate) struct Scan {
    source: ScanSource,
    range: KeyRange,
    slot: Arc<Slot>,
    place: Place,
    /// What was found at the last move that asked the iterator, in the direction that it went.
    found: Batch,
    /// Where the scan stands in `found` when `place` is `At`; otherwise of no meaning.
    at: usize,
    direction: Direction,
    /// How many entries the next move on asks for.
    wanted: usize,
    /// Whether the iterator in the slot, if there is one, is this scan's, and not left by another.
    begun: bool,
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// A call on the iterator in the slot.
enum Move<'k> {
    Seek(&'k [u8]),
    SeekForPrev(&'k [u8]),
    First,
    Last,
    /// On from the key at hand.
    On,
}

impl Scan {
    /// A scan of `range` that stands nowhere and holds nothing yet.
    pub fn new(source: ScanSource, range: KeyRange) -> Self {
        let Spare { slot, found } = source.registry.take();
        Self {
            source,
            range,
            slot,
            place: Place::Nowhere,
            found,
            at: 0,
            direction: Direction::Forward,
            wanted: 1,
            begun: false,
        }
    }

    /// Goes to the first key at or after `key`. Like every move, tells whether the scan stands at a key.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Direction::Forward, &Move::Seek(key))
    }

    /// Goes to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Direction::Backward, &Move::SeekForPrev(key))
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.go(Direction::Forward, &Move::First)
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.go(Direction::Backward, &Move::Last)
    }

    /// Goes one key on: from nowhere and from before the first key to the first, from the last to after it.
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        match self.place {
            Place::At if self.has_more(Direction::Forward) => {
                self.at += 1;
                Ok(true)
            }
            Place::At => self.go(Direction::Forward, &Move::On),
            Place::Nowhere | Place::Before => self.go(Direction::Forward, &Move::First),
            Place::After => Ok(false),
        }
    }

    /// Goes one key back: from nowhere and from after the last key to the last, from the first to before it.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        match self.place {
            Place::At if self.has_more(Direction::Backward) => {
                self.at += 1;
                Ok(true)
            }
            Place::At => self.go(Direction::Backward, &Move::On),
            Place::Nowhere | Place::After => self.go(Direction::Backward, &Move::Last),
            Place::Before => Ok(false),
        }
    }

    /// Whether the next entry in a direction was found already. Not when somebody took the view meanwhile, or
    /// wants to: the database may have been closed, and the iterator says so.
    #[inline]
    fn has_more(&self, direction: Direction) -> bool {
        self.direction == direction
            && self.at + 1 < self.found.len()
            && !self.slot.wanted.load(Ordering::Acquire)
    }

    /// The key and value that the scan stands at.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        if self.place != Place::At {
            return None;
        }
        Some((self.found.key(self.at)?, self.found.value(self.at)?))
    }

    /// The key that the scan stands at.
    pub fn key(&self) -> Option<&[u8]> {
        if self.place == Place::At { self.found.key(self.at) } else { None }
    }

    /// A copy of the key, and the value, which the scan itself has no longer.
    pub fn take_entry(&mut self) -> Option<(Slice, Slice)> {
        let key = Slice::copied(self.key()?);
        Some((key, self.found.take_value(self.at)?))
    }

    fn go(&mut self, direction: Direction, step: &Move<'_>) -> Result<bool> {
        let moved = if self.range.is_empty() { Ok(false) } else { self.move_live(direction, step) };
        self.place = match (&moved, direction) {
            (Err(_), _) => Place::Nowhere,
            (Ok(true), _) => Place::At,
            (Ok(false), Direction::Forward) => Place::After,
            (Ok(false), Direction::Backward) => Place::Before,
        };
        moved
    }

    fn move_live(&mut self, direction: Direction, step: &Move<'_>) -> Result<bool> {
        // A scan that has gone on for a while will go on, so it finds more in one go; the first steps find no
        // more than was asked for, so that nothing is read for keys that nobody asks for.
        let on = matches!(step, Move::On);
        self.wanted = if on && self.direction == direction {
            (self.wanted * WANTED_GROWTH).min(FOUND_AT_ONCE)
        } else {
            1
        };
        let mut live = lock(&self.slot.live);
        let (moved, failed) = match live.as_mut() {
            // The iterator stands at the last key found.
            Some(iter) if on && self.direction == direction && self.at + 1 == self.found.len() => {
                self.found.begin(self.wanted);
                let moved = match direction {
                    Direction::Forward => iter.next(&mut self.found),
                    Direction::Backward => iter.prev(&mut self.found),
                };
                outcome(moved, &self.found)
            }
            _ => {
                let key = if on { self.found.key(self.at).unwrap_or_default().to_vec() } else { Vec::new() };
                self.found.begin(self.wanted);
                let iter = match live.as_mut() {
                    Some(iter) if self.begun => iter,
                    _ => begin(&self.source, &self.range, &self.slot, &mut live)?,
                };
                self.begun = true;
                let out = &mut self.found;
                let moved = match step {
                    Move::Seek(key) => iter.seek(key, out),
                    Move::SeekForPrev(key) => iter.seek_for_prev(key, out),
                    Move::First => iter.seek_to_first(out),
                    Move::Last => iter.seek_to_last(out),
                    Move::On if direction == Direction::Forward => iter.seek_after(&key, out),
                    Move::On => iter.seek_before(&key, out),
                };
                outcome(moved, &self.found)
            }
        };
        self.at = 0;
        self.direction = direction;
        let wanted = self.slot.wanted.swap(false, Ordering::SeqCst);
        if failed || wanted {
            // Half-moved iterators are of no use, and whoever wanted the view shall have it.
            let gone = live.take();
            drop(live);
            drop(gone); // Perhaps the last hold on files and memtables: outside the lock.
        }
        moved
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        let spare = Spare { slot: Arc::clone(&self.slot), found: std::mem::take(&mut self.found) };
        self.source.registry.leave(spare);
    }
}

/// Puts an iterator over the newest view into the slot; the one that is there, if it has this view.
fn begin<'l>(
    source: &ScanSource,
    range: &KeyRange,
    slot: &Slot,
    live: &'l mut Option<VisibleIter>,
) -> Result<&'l mut VisibleIter> {
    // Whoever wanted a view before now wanted an older one than this: it was published before they asked.
    slot.wanted.swap(false, Ordering::SeqCst);
    let (view, seq) = (source.views.view()?, source.seq.seq());
    match live.take() {
        Some(mut left) if Arc::ptr_eq(left.view(), &view) => {
            left.restart(seq, range.clone(), source.walk);
            Ok(live.insert(left))
        }
        _ => Ok(live.insert(VisibleIter::new(view, seq, range.clone(), source.walk))),
    }
}

/// What a call answers that found `found` and ended with `moved`, and whether it failed. Entries found before
/// an error are given out first: whoever goes on after them seeks again, and meets the error again or not.
fn outcome(moved: Result<bool>, found: &Batch) -> (Result<bool>, bool) {
    match moved {
        Err(_) if found.len() > 0 => (Ok(true), true),
        Err(error) => (Err(error), true),
        Ok(moved) => (Ok(moved), false),
    }
}

#[cfg(test)]
mod tests;
