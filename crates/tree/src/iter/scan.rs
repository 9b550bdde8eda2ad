//! Scans that outlive the memory they use: a sequence number, a place, and a view that may be taken away.
//!
//! A [`Scan`] owns what it must not lose: the sequence number it reads at (registered, so that merges keep
//! what it sees), its range, and the key it stands at. Everything else (the view with its memtables and
//! files, the blocks under its iterators) sits in a *slot*. Between two calls anybody may empty the slot
//! ([`super::registry`]); the next call then takes the newest view, seeks to its key at its
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
//! Not here: who takes views, and when ([`super::registry`]), what is visible ([`super::visible`]), the public faces ([`super::cursor`]).

use std::sync::Arc;

use shamba_key::SeqNo;
use shamba_table::{Charge, Walk};

use super::batch::Batch;
use super::notes::{ScanNote, ScanObserver};
use super::registry::{Live, Owner, Slot, Spare, Walked};
use super::visible::VisibleIter;
use crate::counters::Countdown;
use crate::error::Result;
use crate::slice::Slice;
use crate::snapshot::SnapshotGuard;
use crate::version::KeyRange;
use crate::view::ViewSource;
use shamba_key::planted::{Defect, is_planted};

/// The most entries that are found in one go: the lock and the calls around them are then cheap for each.
const FOUND_AT_ONCE: usize = 64;
/// How many times more entries a scan finds at each call after the first: what is found in vain, because the
/// scan ends, is at most about twice what it used.
const WANTED_GROWTH: usize = 3;

/// A scan tells what it did when it ends, and before that after so many places, or entries: one that goes on for hours
/// is part of the workload, too.
const RANGES_UNTOLD: u64 = 64;
const ENTRIES_UNTOLD: u64 = 4096;

/// What a scan needs to begin.
#[derive(Clone)]
pub struct ScanSource {
    /// Where views come from.
    pub views: Arc<dyn ViewSource>,
    /// Keeps the database open, and knows the registry that lists the scan's slot.
    pub owner: Arc<dyn Owner>,
    /// The sequence number to read at; keeps merges from dropping what it sees.
    pub seq: Arc<SnapshotGuard>,
    /// How tables are walked.
    pub walk: Walk,
    /// Whether some of its seeks are sampled.
    pub samples: bool,
    /// Where what it does is noted, if a trace is recorded.
    pub notes: Option<Arc<dyn ScanObserver>>,
}

/// A place among the visible keys of a range, at a fixed sequence number.
pub struct Scan {
    source: ScanSource,
    range: KeyRange,
    slot: Arc<Slot>,
    place: Place,
    /// What was found at the last move that asked the iterator, in the direction that it went.
    found: Batch,
    /// Memory of what was found.
    charge: Charge,
    /// Where the scan stands in `found` when `place` is `At`; otherwise of no meaning.
    at: usize,
    direction: Direction,
    /// How many entries the next move on asks for.
    wanted: usize,
    /// Whether the iterator in the slot, if there is one, is this scan's, and not left by another.
    begun: bool,
    walked: Walked,
    /// To the next seek that is sampled.
    countdown: Countdown,
    note: Option<ScanNote>,
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
        let Spare { slot, found, charge, countdown } = source.owner.iterators().take();
        let note = source.notes.as_ref().map(ScanNote::new);
        Self {
            source,
            range,
            slot,
            place: Place::Nowhere,
            found,
            charge,
            at: 0,
            direction: Direction::Forward,
            wanted: 1,
            begun: false,
            walked: Walked::default(),
            countdown,
            note,
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
        self.direction == direction && self.at + 1 < self.found.len() && !self.slot.is_wanted()
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
        if self.note.is_some() {
            self.note_step(direction, step);
        }
        let moved = if self.range.is_empty() { Ok(false) } else { self.move_live(direction, step) };
        let found_bytes = self.found.memory_bytes() as u64;
        if found_bytes != self.charge.bytes() {
            self.charge.resize(found_bytes);
        }
        self.source.owner.iterators().relieve(&self.slot);
        self.walked.ranges += u64::from(!matches!(step, Move::On));
        self.walked.entries += if matches!(moved, Ok(true)) { self.found.len() as u64 } else { 0 };
        if self.walked.ranges >= RANGES_UNTOLD || self.walked.entries >= ENTRIES_UNTOLD {
            self.source.owner.iterators().note_walked(std::mem::take(&mut self.walked));
        }
        self.place = match (&moved, direction) {
            (Err(_), _) => Place::Nowhere,
            (Ok(true), _) => Place::At,
            (Ok(false), Direction::Forward) => Place::After,
            (Ok(false), Direction::Backward) => Place::Before,
        };
        if matches!(step, Move::Last) {
            if let (Some(note), Some(key)) = (&mut self.note, self.found.key(0)) {
                if self.place == Place::At {
                    note.begins_at(key);
                }
            }
        }
        moved
    }

    /// The entries that were found at the last move and walked over since.
    fn walked_over(&self) -> u64 {
        if self.place == Place::At { self.at as u64 + 1 } else { 0 }
    }

    /// Notes where the scan was, if it goes elsewhere now.
    #[cold]
    fn note_step(&mut self, direction: Direction, step: &Move<'_>) {
        let walked_over = self.walked_over();
        let is_forward = direction == Direction::Forward;
        let from = match step {
            Move::Seek(key) | Move::SeekForPrev(key) => key.to_vec(),
            Move::First => self.range.lower.to_vec(),
            Move::Last => self.range.upper.as_deref().unwrap_or_default().to_vec(),
            Move::On => self.key().unwrap_or_default().to_vec(),
        };
        let Some(note) = &mut self.note else { return };
        note.read(walked_over);
        if !(matches!(step, Move::On) && note.goes(is_forward)) {
            note.begin(is_forward, from);
        }
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
        let crowded = self.source.owner.iterators().is_crowded();
        let mut live = self.slot.enter();
        let (moved, failed) = match live.as_mut() {
            // The iterator stands at the last key found.
            Some(Live { iter, .. })
                if on && self.direction == direction && self.at + 1 == self.found.len() =>
            {
                begin_found(&mut self.found, self.wanted, crowded);
                let moved = match direction {
                    Direction::Forward => iter.next(&mut self.found),
                    Direction::Backward => iter.prev(&mut self.found),
                };
                outcome(moved, &self.found)
            }
            _ => {
                let key = if on { self.found.key(self.at).unwrap_or_default().to_vec() } else { Vec::new() };
                begin_found(&mut self.found, self.wanted, crowded);
                let is_revoked = self.begun && live.is_none();
                let iter = match live.as_mut() {
                    Some(Live { iter, .. }) if self.begun => iter,
                    _ => match begin(&self.source, &self.range, &self.slot, &mut live) {
                        Ok(iter) => iter,
                        Err(error) => {
                            drop(self.slot.leave(live, true));
                            return Err(error);
                        }
                    },
                };
                if is_revoked && is_planted(Defect::RevokedIteratorMovesOn) {
                    iter.restart(SeqNo::MAX, self.range.clone(), self.source.walk);
                }
                self.begun = true;
                let out = &mut self.found;
                // A scan that only turns round has its index at hand.
                let seeks = !on || is_revoked;
                let is_sampled = seeks && self.source.samples && self.countdown.is_sampled();
                if is_sampled {
                    iter.note_seek(true);
                    self.source.views.note_seek();
                }
                let moved = match step {
                    Move::Seek(key) => iter.seek(key, out),
                    Move::SeekForPrev(key) => iter.seek_for_prev(key, out),
                    Move::First => iter.seek_to_first(out),
                    Move::Last => iter.seek_to_last(out),
                    Move::On if direction == Direction::Forward => iter.seek_after(&key, out),
                    Move::On => iter.seek_before(&key, out),
                };
                if is_sampled {
                    iter.note_seek(false); // A run without a table there has not counted it.
                }
                outcome(moved, &self.found)
            }
        };
        self.at = 0;
        self.direction = direction;
        // Half-moved iterators are of no use, and whoever wanted the view shall have it. It is perhaps the last hold on
        // files and memtables: dropped outside the lock.
        drop(self.slot.leave(live, failed));
        moved
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        let walked_over = self.walked_over();
        if let Some(note) = &mut self.note {
            note.read(walked_over);
        }
        let registry = self.source.owner.iterators();
        let charge = std::mem::replace(&mut self.charge, registry.charge());
        let found = std::mem::take(&mut self.found);
        let countdown = self.countdown;
        registry.leave(Spare { slot: Arc::clone(&self.slot), found, charge, countdown }, self.walked);
    }
}

/// Makes ready for `wanted` entries: in little memory, when there is little.
fn begin_found(found: &mut Batch, wanted: usize, crowded: bool) {
    if crowded { found.begin_small(wanted) } else { found.begin(wanted) }
}

/// Puts an iterator over the newest view into the slot; the one that is there, if it has this view.
fn begin<'l>(
    source: &ScanSource,
    range: &KeyRange,
    slot: &Slot,
    live: &'l mut Option<Live>,
) -> Result<&'l mut VisibleIter> {
    // Whoever wanted a view before now wanted an older one than this: it was published before they asked.
    slot.forget_wishes();
    let (view, seq) = (source.views.view()?, source.seq.seq());
    let is_switch_missed = is_planted(Defect::MemtableSwitchMissed);
    match live.take() {
        Some(mut left) if Arc::ptr_eq(left.iter.view(), &view) || is_switch_missed => {
            left.iter.restart(seq, range.clone(), source.walk);
            Ok(&mut live.insert(left).iter)
        }
        _ => {
            let iter = VisibleIter::new(view, seq, range.clone(), source.walk);
            Ok(&mut live.insert(source.owner.iterators().live(iter)).iter)
        }
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
