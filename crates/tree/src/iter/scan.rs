//! Scans that hold little while idle: a sequence number, a position, and a view that can be
//! revoked.
//!
//! A [`Scan`] owns what it must keep: the sequence number at which it reads (registered, so that
//! compactions keep what it sees), its range, and its current key. Everything else is in a *slot*:
//! the view with its memtables and files, and the blocks of its iterators. Between two calls any
//! thread may empty the slot ([`super::registry`]). The next call then takes the newest view, seeks
//! to the current key at the scan's sequence number, and goes on. A thousand idle scans keep no
//! memtable or obsolete file alive, and no block but that of a long current value; and a long scan
//! over a busy database moves from view to view.
//!
//! A view is never revoked during a call. The request is left in the slot, and the scan gives up
//! its view at the end of the call.
//!
//! A scan that continues for some steps finds several entries in one pass and copies them into its
//! [`Batch`]. Moving between them takes neither the lock nor the iterator, only a look at the
//! slot's flag. The entries found ahead cannot change, since the sequence number is fixed. At the
//! end of a pass their values in value files are read, all at once ([`super::later`]).
//!
//! A scan that ends leaves its slot, with iterator and buffers, to the next scan of its thread. So
//! a scan of a few entries allocates almost nothing while the view stays the same. For the registry
//! such a slot is that of an idle scan.
//!
//! When views are revoked is decided in [`super::registry`], what is visible in [`super::visible`].
//! The public types are in `cursor`.

use std::sync::Arc;

use shamba_table::{Charge, Walk};

use super::batch::Batch;
use super::later::grown;
use super::notes::{ScanNote, ScanObserver};
use super::registry::{Live, Owner, Slot, Spare, Walked};
use super::visible::VisibleIter;
use crate::counters::Countdown;
use crate::error::Result;
use crate::lookup::prefix::AskedFilters;
use crate::slice::Slice;
use crate::snapshot::SnapshotGuard;
use crate::version::KeyRange;
use crate::view::ViewSource;

/// Entries taken in one pass for each that it needs, as long as they are in the blocks at hand:
/// then an entry costs a tenth of a pass.
const WELCOME_FOR_EACH: usize = 4;
/// Maximum entries found in one pass; with this many, the lock and the calls cost little per entry.
const FOUND_AT_ONCE: usize = 64;
/// Factor by which each pass after the first finds more entries. A scan that ends has found in vain
/// at most about twice the entries that it used.
const WANTED_GROWTH: usize = 3;

/// A scan reports its work when it ends, and before that after this many seeks or entries, because
/// a scan that goes on for hours is part of the workload too.
const RANGES_UNTOLD: u64 = 64;
const ENTRIES_UNTOLD: u64 = 4096;

/// The data that a scan is made from.
#[derive(Clone)]
pub struct ScanSource {
    /// Source of views.
    pub views: Arc<dyn ViewSource>,
    /// Keeps the database open and has the registry that lists the scan's slot.
    pub owner: Arc<dyn Owner>,
    /// The sequence number to read at. Keeps compactions from dropping what the scan sees.
    pub seq: Arc<SnapshotGuard>,
    /// How tables are read.
    pub walk: Walk,
    /// Whether values are wanted. Otherwise large ones and operands are not read, and the values of
    /// entries mean nothing.
    pub reads_values: bool,
    /// Whether some of its seeks are sampled.
    pub samples: bool,
    /// The recorder of the scan's steps, if a trace is recorded.
    pub notes: Option<Arc<dyn ScanObserver>>,
}

/// A position among the visible keys of a range, at a fixed sequence number.
pub struct Scan {
    source: ScanSource,
    range: KeyRange,
    slot: Arc<Slot>,
    place: Place,
    /// The entries found by the last move that used the iterator, in the direction of that move.
    found: Batch,
    /// Memory of the entries found; `None` only while the scan is dropped.
    charge: Option<Charge>,
    /// Index of the current entry in `found`; meaningful only when `place` is `At`.
    at: usize,
    direction: Direction,
    /// The last key from which the scan went on in its direction with another iterator.
    resumed: Option<Vec<u8>>,
    /// Number of entries that the last pass asked for.
    wanted: usize,
    /// Bytes of values in value files that the last pass might read; `None` before the first pass.
    later_bytes: Option<u64>,
    /// Whether the iterator in the slot, if there is one, belongs to this scan and was not left by
    /// another.
    begun: bool,
    walked: Walked,
    /// Seeks until the next one that is sampled.
    countdown: Countdown,
    note: Option<ScanNote>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// No position: never placed, or lost by an error.
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

/// A move that uses the iterator in the slot.
enum Move<'k> {
    Seek(&'k [u8]),
    SeekForPrev(&'k [u8]),
    First,
    Last,
    /// On from the current key.
    On,
}

impl Scan {
    /// A scan of `range` that has no position and holds nothing yet.
    pub fn new(source: ScanSource, range: KeyRange) -> Self {
        let Spare { slot, found, charge, countdown } = source.owner.iterators().take();
        let note = source.notes.as_ref().map(ScanNote::new);
        Self {
            source,
            range,
            slot,
            place: Place::Nowhere,
            found,
            charge: Some(charge),
            at: 0,
            direction: Direction::Forward,
            resumed: None,
            wanted: 1,
            later_bytes: None,
            begun: false,
            walked: Walked::default(),
            countdown,
            note,
        }
    }

    /// Goes to the first key at or after `key`. Like every move, returns whether the scan is at a
    /// key.
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

    /// Goes to the next key: from no position and from before the first key to the first, from the
    /// last to after it.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it fails, or lends; an iterator can not")]
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

    /// Goes to the previous key: from no position and from after the last key to the last, from the
    /// first to before it.
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

    /// Whether the next entry in a direction was found already. False if the view was revoked
    /// meanwhile or is requested: the database may have been closed, and a use of the iterator
    /// returns that error.
    #[inline]
    fn has_more(&self, direction: Direction) -> bool {
        self.direction == direction && self.at + 1 < self.found.len() && !self.slot.is_wanted()
    }

    /// The current key and value.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        Some((self.key()?, self.value()?))
    }

    /// The current value.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        if self.place == Place::At { self.found.value(self.at) } else { None }
    }

    /// The current key.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        if self.place == Place::At { self.found.key(self.at) } else { None }
    }

    /// A copy of the current key, and its value, which is moved out of the scan if it is long.
    #[inline]
    pub fn take_entry(&mut self) -> Option<(Slice, Slice)> {
        if self.place == Place::At { self.found.take(self.at) } else { None }
    }

    /// [`Self::next`] and [`Self::take_entry`], if the next entry was found already.
    #[inline(always)]
    pub fn take_found(&mut self) -> Option<(Slice, Slice)> {
        if self.place != Place::At || !self.has_more(Direction::Forward) {
            return None;
        }
        self.at += 1;
        self.found.take(self.at)
    }

    fn go(&mut self, direction: Direction, step: &Move<'_>) -> Result<bool> {
        self.walked.entries += self.walked_over();
        if self.note.is_some() {
            self.note_step(direction, step);
        }
        let moved = if self.range.is_empty() { Ok(false) } else { self.move_live(direction, step) };
        if let Some(charge) = &mut self.charge {
            charge.resize(self.found.memory_bytes() as u64);
        }
        self.source.owner.iterators().relieve(&self.slot);
        self.walked.ranges += u64::from(!matches!(step, Move::On));
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

    /// Number of entries of the last pass that the scan has visited.
    fn walked_over(&self) -> u64 {
        if self.place == Place::At { self.at as u64 + 1 } else { 0 }
    }

    /// Records the steps so far, and the new position if the scan goes elsewhere.
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
        // A scan that has gone on for some steps will probably go on, so it finds more in one pass.
        // The first steps find only what was asked for, so that nothing is read for keys that
        // nobody asks for.
        let on = matches!(step, Move::On);
        let goes_on = on && self.direction == direction;
        self.wanted = if goes_on { (self.wanted * WANTED_GROWTH).min(FOUND_AT_ONCE) } else { 1 };
        let grows = goes_on && self.found.pays_at_once();
        let later_bytes = grown(self.later_bytes.filter(|_| grows), self.source.walk);
        self.later_bytes = Some(later_bytes);
        let crowded = self.source.owner.iterators().is_crowded();
        let mut live = self.slot.enter();
        let moved = match live.as_mut() {
            // The iterator is at the last entry found.
            Some(Live { iter, .. }) if goes_on && self.at + 1 == self.found.len() => {
                begin_found(&mut self.found, self.wanted, later_bytes, crowded);
                match direction {
                    Direction::Forward => iter.next(&mut self.found),
                    Direction::Backward => iter.prev(&mut self.found),
                }
            }
            _ => {
                let key = if on { self.found.key(self.at).unwrap_or_default().to_vec() } else { Vec::new() };
                let circles = circles(&mut self.resumed, &key, (on, direction, self.direction));
                begin_found(&mut self.found, self.wanted, later_bytes, crowded);
                let is_revoked = self.begun && live.is_none();
                // A scan that only changes direction has the index at hand: that is not counted as
                // a seek.
                let seeks = !on || is_revoked;
                let is_sampled = seeks && self.source.samples && self.countdown.is_sampled();
                let mut asked = None;
                let iter = match live.as_mut() {
                    Some(Live { iter, .. }) if self.begun => iter,
                    _ => match begin(&self.source, &self.range, &self.slot, &mut live, is_sampled) {
                        Ok((iter, filters)) => {
                            asked = filters;
                            iter
                        }
                        Err(error) => {
                            drop(self.slot.leave(live, true));
                            return Err(error);
                        }
                    },
                };
                self.begun = true;
                let out = &mut self.found;
                if is_sampled {
                    iter.note_seek(true);
                    self.source.views.note_seek();
                }
                let pool = self.source.owner.cold_reads();
                let moved = match step {
                    _ if circles => Err(iter.out_of_order_at(&key)),
                    Move::Seek(key) => iter.seek(key, pool, out),
                    Move::SeekForPrev(key) => iter.seek_for_prev(key, pool, out),
                    Move::First => iter.seek_to_first(pool, out),
                    Move::Last => iter.seek_to_last(out),
                    Move::On if direction == Direction::Forward => iter.seek_after(&key, pool, out),
                    Move::On => iter.seek_before(&key, pool, out),
                };
                if is_sampled {
                    iter.note_seek(false); // A run without a table there has not counted it.
                }
                if let Some(AskedFilters { filters, runs_skipped, hashes, counts }) = asked {
                    self.walked.filters += filters;
                    self.walked.runs_skipped += runs_skipped;
                    self.walked.reads.filter = self.walked.reads.filter.plus(counts.reads().filter);
                    if is_sampled && hashes > 0 {
                        self.source.views.note_lookup(self.found.len() > 0);
                    }
                }
                moved
            }
        };
        // While the view keeps the files. An error here is that of an earlier entry than `moved`
        // is.
        let resolved = self.found.resolve(self.source.owner.reading_threads(), &mut self.walked.values);
        if let Some(Live { iter, .. }) = live.as_mut() {
            iter.move_counters_to(&mut self.walked.reads);
        }
        let (moved, failed) = outcome(resolved.and(moved), &self.found);
        self.at = 0;
        self.direction = direction;
        // After an error the iterator is of no use; after a request the view is given up. It may
        // hold the last reference to files and memtables, so it is dropped outside the lock.
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
        let Some(mut charge) = self.charge.take() else { return };
        let mut found = std::mem::take(&mut self.found);
        if found.release_longs() {
            charge.resize(found.memory_bytes() as u64);
        }
        let countdown = self.countdown;
        self.walked.entries += walked_over;
        self.source
            .owner
            .iterators()
            .leave(Spare { slot: Arc::clone(&self.slot), found, charge, countdown }, self.walked);
    }
}

/// Notes whether a scan goes `on` from `key` with an iterator that was not there; `resumed` is the
/// last such key. Returns whether it has done so from that key or one beyond it: keys are out of
/// order then, and it would go in a circle, as a pass that finds entries before it fails hides its
/// error.
fn circles(
    resumed: &mut Option<Vec<u8>>,
    key: &[u8],
    (on, direction, direction_before): (bool, Direction, Direction),
) -> bool {
    let before = resumed.take().filter(|_| on && direction == direction_before);
    *resumed = on.then(|| key.to_vec());
    before.is_some_and(|before| match direction {
        Direction::Forward => key <= before.as_slice(),
        Direction::Backward => key >= before.as_slice(),
    })
}

/// Prepares for `wanted` entries, with little memory if iterators hold too much.
fn begin_found(found: &mut Batch, wanted: usize, later_bytes: u64, crowded: bool) {
    let welcome = (wanted * WELCOME_FOR_EACH).min(FOUND_AT_ONCE);
    if crowded {
        found.begin_small(wanted, welcome);
    } else {
        found.begin(wanted, welcome, later_bytes);
    }
}

/// Puts an iterator over the newest view into the slot, or reuses the present one if it has this
/// view. Leaves out runs by their prefix filters, and returns the work of that, if there was any.
fn begin<'l>(
    source: &ScanSource,
    range: &KeyRange,
    slot: &Slot,
    live: &'l mut Option<Live>,
    samples: bool,
) -> Result<(&'l mut VisibleIter, Option<AskedFilters>)> {
    // Requests before now were about an older view than this: a new view is published before the
    // old one is requested.
    slot.forget_wishes();
    let seq = source.seq.seq();
    let is_newest = live.as_ref().map(|left| source.views.is_newest(left.iter.view())).transpose()?;
    let iter = match live.take() {
        Some(mut left) if is_newest == Some(true) => {
            left.iter.restart(seq, range.clone(), source.walk);
            &mut live.insert(left).iter
        }
        left => {
            drop(left);
            let iter = VisibleIter::new(source.views.view()?, seq, range.clone(), source.walk);
            &mut live.insert(source.owner.iterators().live(iter)).iter
        }
    };
    iter.read_values(source.reads_values);
    iter.judge_expiry_at(source.seq.time_ms());
    let asked = iter.leave_out_runs(samples);
    Ok((iter, asked))
}

/// The result of a pass that ended with `moved`, and whether it failed. Entries found before an
/// error are returned first. The next move then seeks again, and may meet the error again.
fn outcome(moved: Result<bool>, found: &Batch) -> (Result<bool>, bool) {
    match moved {
        Err(_) if found.len() > 0 => (Ok(true), true),
        Err(error) => (Err(error), true),
        Ok(moved) => (Ok(moved), false),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;
