//! Free lists, CLOCK eviction and slabs: the part of the cache behind the lock.
//!
//! A frame is free, then owned by the thread that fills it, then published, then retired (its key
//! is cleared, but readers may still use it), and free again after a grace period. A frame that is
//! pinned at that time is freed by its last pin. The CLOCK hand walks over the frames of one kind,
//! clears reference bits, and retires the first frame whose bit was clear and that is not pinned.
//! So a block that was referenced since the last sweep survives another one. A sweep has a maximum
//! number of steps, after which it ignores the bits: if nearly all are set, they carry no
//! information.
//!
//! Small frames come in slabs, large ones are allocated singly, both within one capacity. When the
//! capacity is used up, it is divided between the two kinds in proportion to their recently missed
//! bytes. To free memory for large blocks, a whole slab of small frames is drained.
//!
//! When the capacity shrinks, slabs are drained as well: their frames are retired and not handed
//! out again, and the slab is freed with its last frame. Pinned frames delay that.
//!
//! Not here: how readers find frames ([`super::slab`], [`super::section`]).

use std::collections::VecDeque;
// For statistics, which derive from the state under the lock.
use std::sync::atomic::AtomicU64;

use super::admission::Admission;
use super::epoch::{Epoch, GRACE_PHASES};
use super::ghosts::Ghosts;
use super::slab::{BlockKey, FRAME_SIZE, HiddenSlab, RETIRED, Record, SlabKind, Slabs};
use crate::ledger::{Ledger, LedgerPart};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of frames that one sweep retires. They share the cost of the walk and one grace
/// period.
const BATCH_FRAMES_MAX: usize = 32;
/// Maximum number of steps in one sweep before reference bits are ignored: a few microseconds.
const STEPS_MAX: usize = 1_024;
/// Divisor: maximum size of a large block as a fraction of the capacity, so that one block cannot
/// flush the cache.
pub(super) const LARGE_PART_MAX: u64 = 8;
const _: () = assert!(BATCH_FRAMES_MAX <= STEPS_MAX, "a sweep can fill a batch");
/// Divisor: as [`LARGE_PART_MAX`], for blocks of up to [`SLICE_BYTES_MAX`]. Otherwise a small cache
/// could not hold any filter slice.
const SLICE_PART_MAX: u64 = 4;
const SLICE_BYTES_MAX: u64 = 64 << 10;
const _: () = assert!(SLICE_PART_MAX <= LARGE_PART_MAX, "slices are admitted at least as large blocks are");
/// Divisor: hysteresis of the division between small and large blocks, as a fraction of the
/// capacity.
const HYSTERESIS_PART: u64 = 16;

/// State that the lock does not guard, shared by all parts of the cache.
pub(super) struct Shelf {
    pub(super) epoch: Epoch,
    pub(super) slabs: Slabs,
    pub(super) capacity_bytes: AtomicU64,
    pub(super) held_bytes: AtomicU64,
    /// Number of draining slabs.
    pub(super) draining: AtomicUsize,
    /// Divisor: a large block is at most this fraction of the capacity.
    pub(super) large_part_max: u64,
    pub(super) admission: Admission,
    pub(super) ghosts: Ghosts,
    pub(super) ledger: std::sync::Arc<Ledger>,
}

impl Shelf {
    pub(super) fn held(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn capacity(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Charges bytes if they fit the capacity. The lock is held: no other thread adds.
    fn charge(&self, bytes: u64) -> bool {
        let fits = self.held().saturating_add(bytes) <= self.capacity();
        if fits {
            self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.ledger.charge(LedgerPart::BlockCache, bytes);
        }
        fits
    }

    pub(super) fn release(&self, bytes: u64) {
        debug_assert!(self.held() >= bytes, "{bytes} of {} held bytes are released", self.held());
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.release(LedgerPart::BlockCache, bytes);
    }
}

/// State of a slab number.
#[derive(Default)]
struct Slab {
    /// `None`: no slab.
    kind: Option<SlabKind>,
    /// Number of free frames. Counted only while draining.
    free: usize,
    draining: bool,
}

enum Retired {
    Frame(u32),
    Slab(usize, SlabKind, HiddenSlab),
}

/// Frames of one kind: small or large.
#[derive(Default)]
struct Kind {
    slabs: usize,
    /// Free frames.
    free: Vec<u32>,
    /// The frame at the CLOCK hand.
    hand: u32,
    /// Bytes of recent misses, decayed.
    missed_bytes: u64,
}

/// A frame owned by its taker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) frame: u32,
    /// Its memory has never been written: it must be initialised before it is read.
    pub(super) unwritten: bool,
}

#[derive(Default)]
pub(super) struct Hand {
    /// Indexed by slab number.
    slabs: Vec<Slab>,
    kinds: [Kind; 2],
    /// Small frames of the newest slab that were never handed out.
    unwritten: std::ops::Range<u32>,
    /// Retired frames and slabs that wait for their grace period, in ascending order of phases.
    retired: VecDeque<(u64, Retired)>,
    /// Bytes of large frames, without records.
    large_bytes: u64,
    /// Held bytes that will be released: draining slabs, retired large frames.
    leaving_bytes: u64,
}

impl Hand {
    /// Takes a small frame, if one is available now.
    pub(super) fn take_small(&mut self, shelf: &Shelf) -> Option<Taken> {
        self.missed(shelf, SlabKind::Small, FRAME_SIZE as u64);
        if let Some(taken) = self.pop_small() {
            return Some(taken);
        }
        self.reclaim(shelf);
        if let Some(taken) = self.pop_small() {
            return Some(taken);
        }
        let slab_bytes = shelf.slabs.slab_bytes(SlabKind::Small) as u64;
        let short = shelf.held().saturating_add(slab_bytes).saturating_sub(shelf.capacity());
        let slack_bytes = slab_bytes.max(shelf.capacity() / HYSTERESIS_PART);
        let over_share = self.large_bytes > self.large_share(shelf).saturating_add(slack_bytes);
        let is_first = self.kind(SlabKind::Small).slabs == 0;
        // If even all large blocks do not free enough for a slab, as in a capacity below one slab,
        // none is evicted.
        if short > 0 && short <= self.large_bytes && (over_share || is_first) {
            self.evict(shelf, SlabKind::Large, short as usize);
            self.reclaim(shelf);
        }
        if !self.add_slab(shelf, SlabKind::Small) {
            let batch =
                (self.kind(SlabKind::Small).slabs * shelf.slabs.frames() / 16).clamp(1, BATCH_FRAMES_MAX);
            self.evict(shelf, SlabKind::Small, batch);
            self.reclaim(shelf);
        }
        self.pop_small()
    }

    /// Takes a large frame record and charges `bytes` for its allocation, if they are available
    /// now.
    pub(super) fn take_large(&mut self, shelf: &Shelf, bytes: u64) -> Option<Taken> {
        let slice_bytes = (shelf.capacity() / SLICE_PART_MAX).min(SLICE_BYTES_MAX);
        let bytes_max = slice_bytes.max(shelf.capacity() / shelf.large_part_max);
        let stored = u32::try_from(bytes).ok().filter(|_| bytes <= bytes_max)?;
        debug_assert!(bytes % FRAME_SIZE as u64 == 0 && bytes > 0, "a large frame of {bytes} bytes");
        self.missed(shelf, SlabKind::Large, bytes);
        let frame = self.take_large_record(shelf)?;
        if !self.make_room(shelf, bytes) || !shelf.charge(bytes) {
            self.set_free(shelf, frame);
            return None;
        }
        self.large_bytes += bytes;
        debug_assert!(
            self.large_bytes <= shelf.held(),
            "{} large bytes of {} held",
            self.large_bytes,
            shelf.held()
        );
        if let Some(record) = shelf.slabs.record(frame) {
            record.reserve_large(stored);
        }
        Some(Taken { frame, unwritten: false })
    }

    fn take_large_record(&mut self, shelf: &Shelf) -> Option<u32> {
        let pop = |hand: &mut Self| hand.kind(SlabKind::Large).free.pop();
        if let Some(frame) = pop(self) {
            return Some(frame);
        }
        self.reclaim(shelf);
        if let Some(frame) = pop(self) {
            return Some(frame);
        }
        if !self.make_room(shelf, shelf.slabs.slab_bytes(SlabKind::Large) as u64)
            || !self.add_slab(shelf, SlabKind::Large)
        {
            self.evict(shelf, SlabKind::Large, 1);
            self.reclaim(shelf);
        }
        pop(self)
    }

    /// Frees bytes for large blocks: from small frames if those hold more than their share, else
    /// from other large blocks.
    fn make_room(&mut self, shelf: &Shelf, bytes: u64) -> bool {
        let short = |shelf: &Shelf| shelf.held().saturating_add(bytes).saturating_sub(shelf.capacity());
        if short(shelf) == 0 {
            return true;
        }
        self.reclaim(shelf);
        let slab_bytes = shelf.slabs.slab_bytes(SlabKind::Small) as u64;
        // A minimum share: otherwise a workload with few large blocks would never keep any.
        let share = self.large_share(shelf).max(slab_bytes).max(shelf.capacity() / HYSTERESIS_PART);
        while short(shelf) > self.leaving_bytes
            && self.large_bytes.saturating_add(slab_bytes) <= share
            && self.drain_last(shelf, SlabKind::Small)
        {}
        if short(shelf) > self.leaving_bytes {
            let wanted = short(shelf) - self.leaving_bytes;
            self.evict(shelf, SlabKind::Large, usize::try_from(wanted).unwrap_or(usize::MAX));
        }
        self.reclaim(shelf);
        short(shelf) == 0
    }

    /// Returns a frame that was taken and not published.
    pub(super) fn give_back(&mut self, shelf: &Shelf, frame: u32) {
        self.set_free(shelf, frame);
        self.reclaim(shelf);
    }

    /// Makes a published frame unreachable; it is free after a grace period.
    pub(super) fn retire(&mut self, shelf: &Shelf, frame: u32, record: &Record) {
        record.key.store(0, Ordering::Release);
        if self.kind_of(shelf, frame) == Some(SlabKind::Large) {
            self.leaving_bytes += record.large_bytes() as u64;
        }
        let phase = shelf.epoch.phase();
        debug_assert!(
            self.retired.back().is_none_or(|(since, _)| *since <= phase),
            "the phases of retired frames descend"
        );
        self.retired.push_back((phase, Retired::Frame(frame)));
    }

    /// Frees a retired frame whose last pin was dropped.
    pub(super) fn unpinned(&mut self, shelf: &Shelf, frame: u32) {
        if let Some(record) = shelf.slabs.record(frame) {
            record.pins.store(0, Ordering::Relaxed);
        }
        self.left(shelf, frame);
        self.set_free(shelf, frame);
        self.reclaim(shelf);
    }

    /// Retires the frames of `slab` that hold blocks of the tables; false past the last slab.
    pub(super) fn retire_table(
        &mut self,
        shelf: &Shelf,
        slab: usize,
        of_table: impl Fn(u64) -> bool,
    ) -> bool {
        for place in 0..shelf.slabs.frames() as u32 {
            let frame = shelf.slabs.first(slab) + place;
            let Some(record) = shelf.slabs.record(frame) else {
                break;
            };
            let key = record.key.load(Ordering::SeqCst);
            if key != 0 && of_table(key) {
                self.retire(shelf, frame, record);
            }
        }
        slab + 1 < self.slabs.len()
    }

    /// Frees retired frames and slabs whose grace period has passed.
    pub(super) fn reclaim(&mut self, shelf: &Shelf) {
        while let Some((since, _)) = self.retired.front() {
            if since + GRACE_PHASES > shelf.epoch.phase() {
                if !shelf.epoch.try_advance() {
                    return;
                }
                continue;
            }
            match self.retired.pop_front() {
                Some((_, Retired::Frame(frame))) => self.free_unless_pinned(shelf, frame),
                Some((_, Retired::Slab(slab, kind, hidden))) => {
                    // Hidden `GRACE_PHASES` ago, when all its frames were free.
                    drop(hidden);
                    let bytes = shelf.slabs.slab_bytes(kind) as u64;
                    assert!(self.leaving_bytes >= bytes, "a freed slab of {bytes} bytes was not leaving");
                    self.leaving_bytes -= bytes;
                    shelf.release(bytes);
                    if let Some(slab) = self.slabs.get_mut(slab) {
                        *slab = Slab::default();
                    }
                }
                None => {}
            }
        }
    }

    /// Evicts slabs and large blocks until the capacity is met, as far as readers and pins allow.
    pub(super) fn shrink(&mut self, shelf: &Shelf) {
        self.reclaim(shelf);
        loop {
            let stays = shelf.held().saturating_sub(self.leaving_bytes);
            let over = stays.saturating_sub(shelf.capacity());
            if over == 0 {
                break;
            }
            let mostly_large = self.large_bytes > stays / 2;
            let evicted = mostly_large
                && self.evict(shelf, SlabKind::Large, usize::try_from(over).unwrap_or(usize::MAX)) > 0;
            if !evicted
                && !self.drain_last(shelf, SlabKind::Small)
                && !self.drain_last(shelf, SlabKind::Large)
            {
                break;
            }
        }
        self.reclaim(shelf);
    }

    fn kind(&mut self, kind: SlabKind) -> &mut Kind {
        &mut self.kinds[kind as usize]
    }

    fn kind_of(&self, shelf: &Shelf, frame: u32) -> Option<SlabKind> {
        self.slabs.get(shelf.slabs.slab_of(frame))?.kind
    }

    fn pop_small(&mut self) -> Option<Taken> {
        if let Some(frame) = self.kind(SlabKind::Small).free.pop() {
            return Some(Taken { frame, unwritten: false });
        }
        self.unwritten.next().map(|frame| Taken { frame, unwritten: true })
    }

    /// Adds to the missed bytes. Halves both counters once per capacity's worth of misses.
    fn missed(&mut self, shelf: &Shelf, kind: SlabKind, bytes: u64) {
        self.kind(kind).missed_bytes += bytes;
        if self.kinds.iter().map(|kind| kind.missed_bytes).sum::<u64>() > shelf.capacity() {
            self.kinds.iter_mut().for_each(|kind| kind.missed_bytes /= 2);
        }
    }

    /// Share of the large blocks in bytes when the capacity is used up.
    fn large_share(&self, shelf: &Shelf) -> u64 {
        let [small, large] = [0, 1].map(|kind: usize| u128::from(self.kinds[kind].missed_bytes));
        let share = u128::from(shelf.capacity()) * large / (small + large).max(1);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn add_slab(&mut self, shelf: &Shelf, kind: SlabKind) -> bool {
        let slab = self.slabs.iter().position(|slab| slab.kind.is_none()).unwrap_or(self.slabs.len());
        let bytes = shelf.slabs.slab_bytes(kind) as u64;
        if slab >= shelf.slabs.slabs_max() || !shelf.charge(bytes) {
            return false;
        }
        if !shelf.slabs.install(slab, kind) {
            shelf.release(bytes);
            return false;
        }
        if slab == self.slabs.len() {
            self.slabs.push(Slab::default());
        }
        shelf.admission.set_crowded(false);
        assert!(self.slabs[slab].kind.is_none(), "slab {slab} is installed twice");
        self.slabs[slab].kind = Some(kind);
        self.kind(kind).slabs += 1;
        let first = shelf.slabs.first(slab);
        let frames = first..first + shelf.slabs.frames() as u32;
        match kind {
            // Called only when the previous slab has no unwritten frame left.
            SlabKind::Small => self.unwritten = frames,
            SlabKind::Large => self.kind(kind).free.extend(frames.rev()),
        }
        true
    }

    /// Retires `wanted` frames (small) or bytes (large); returns how many it found.
    fn evict(&mut self, shelf: &Shelf, kind: SlabKind, wanted: usize) -> usize {
        shelf.admission.set_crowded(true);
        let frames = self.kind(kind).slabs * shelf.slabs.frames();
        let (mut found, mut steps) = (0, 0);
        // Twice the bound, because many frames may be pinned. Twice round, because the first round
        // clears the bits.
        let steps_max = (frames * 2).min(STEPS_MAX * 2) + wanted.min(frames);
        while found < wanted && steps < steps_max {
            let Some(frame) = self.step(shelf, kind) else {
                break;
            };
            steps += 1;
            let Some(record) = shelf.slabs.record(frame) else {
                continue;
            };
            if record.key.load(Ordering::Relaxed) == 0 || record.pins.load(Ordering::Relaxed) != 0 {
                continue;
            }
            if record.mark.load(Ordering::Relaxed) != 0 && steps <= STEPS_MAX {
                record.mark.store(0, Ordering::Relaxed);
                continue;
            }
            found += if kind == SlabKind::Small { 1 } else { record.large_bytes().max(1) };
            shelf.ghosts.note(BlockKey(record.key.load(Ordering::Relaxed)));
            self.retire(shelf, frame, record);
        }
        found
    }

    /// Returns the frame at the hand and advances the hand, over slabs of this kind that are not
    /// draining.
    fn step(&mut self, shelf: &Shelf, kind: SlabKind) -> Option<u32> {
        let mut frame = self.kind(kind).hand;
        let mut tried = 0;
        loop {
            match self.slabs.get(shelf.slabs.slab_of(frame)) {
                Some(slab)
                    if slab.kind == Some(kind) && !slab.draining && shelf.slabs.record(frame).is_some() =>
                {
                    break;
                }
                Some(_) => frame = shelf.slabs.first(shelf.slabs.slab_of(frame) + 1),
                None => frame = 0,
            }
            tried += 1;
            if tried > self.slabs.len() + 1 {
                return None;
            }
        }
        self.kind(kind).hand = frame.wrapping_add(1);
        Some(frame)
    }

    /// Starts to drain a slab of this kind, preferably one without pins, which would delay it;
    /// false if there is none.
    fn drain_last(&mut self, shelf: &Shelf, kind: SlabKind) -> bool {
        let stays = |slab: &Slab| slab.kind == Some(kind) && !slab.draining;
        let unpinned = |slab: usize| {
            let first = shelf.slabs.first(slab);
            (first..first + shelf.slabs.frames() as u32)
                .filter_map(|frame| shelf.slabs.record(frame))
                .all(|record| record.pins.load(Ordering::Relaxed) == 0)
        };
        let best = (0..self.slabs.len()).rev().find(|slab| stays(&self.slabs[*slab]) && unpinned(*slab));
        let Some(slab) = best.or_else(|| self.slabs.iter().rposition(stays)) else {
            return false;
        };
        let first = shelf.slabs.first(slab);
        let frames = first..first + shelf.slabs.frames() as u32;
        let before = self.kind(kind).free.len();
        self.kind(kind).free.retain(|frame| !frames.contains(frame));
        let mut free = before - self.kind(kind).free.len();
        if frames.contains(&self.unwritten.start) {
            free += std::mem::take(&mut self.unwritten).len();
        }
        assert!(self.kind(kind).slabs > 0, "a slab of a kind without slabs is drained");
        self.kind(kind).slabs -= 1;
        self.leaving_bytes += shelf.slabs.slab_bytes(kind) as u64;
        self.slabs[slab].free = free;
        debug_assert!(
            free <= shelf.slabs.frames(),
            "{free} of {} frames of a slab are free",
            shelf.slabs.frames()
        );
        self.slabs[slab].draining = true;
        // Incremented before the frames are scanned: if a frame is published after the scan passed
        // it, its filler reports it, because it loads this count after publishing.
        shelf.draining.fetch_add(1, Ordering::SeqCst);
        self.retire_table(shelf, slab, |_| true);
        self.hide_if_free(shelf, slab);
        self.reclaim(shelf);
        true
    }

    /// Retires a frame that was published while some slab drains, if it is in that slab.
    pub(super) fn published_while_draining(&mut self, shelf: &Shelf, frame: u32) {
        let draining = self.slabs.get(shelf.slabs.slab_of(frame)).is_some_and(|slab| slab.draining);
        if let Some(record) = shelf.slabs.record(frame).filter(|_| draining) {
            if record.key.load(Ordering::SeqCst) != 0 {
                self.retire(shelf, frame, record);
            }
        }
        self.reclaim(shelf);
    }

    fn free_unless_pinned(&mut self, shelf: &Shelf, frame: u32) {
        let Some(record) = shelf.slabs.record(frame) else {
            return;
        };
        // Acquire: the holders' reads happen before the next owner's writes. From here on either
        // the frame has no holder, or its last holder sees the bit.
        if record.pins.fetch_or(RETIRED, Ordering::AcqRel) == 0 {
            record.pins.store(0, Ordering::Relaxed);
            self.left(shelf, frame);
            self.set_free(shelf, frame);
        }
    }

    /// Updates the count of leaving bytes: a retired frame is about to be free.
    fn left(&mut self, shelf: &Shelf, frame: u32) {
        if self.kind_of(shelf, frame) == Some(SlabKind::Large) {
            if let Some(record) = shelf.slabs.record(frame) {
                debug_assert!(
                    self.leaving_bytes >= record.large_bytes() as u64,
                    "{} bytes leave, {} are freed",
                    self.leaving_bytes,
                    record.large_bytes()
                );
                self.leaving_bytes -= record.large_bytes() as u64;
            }
        }
    }

    /// Marks a frame as free.
    fn set_free(&mut self, shelf: &Shelf, frame: u32) {
        let number = shelf.slabs.slab_of(frame);
        let Some(slab) = self.slabs.get_mut(number) else {
            return;
        };
        let (kind, draining) = (slab.kind, slab.draining);
        let frames = shelf.slabs.frames();
        if kind == Some(SlabKind::Large) {
            if let Some(record) = shelf.slabs.record(frame) {
                // SAFETY: the frame has no key and no pins, and either a grace period has passed
                // since it had a key or its owner gave it up.
                let bytes = unsafe { shelf.slabs.free_large(frame, record) } as u64;
                debug_assert!(
                    self.large_bytes >= bytes,
                    "{bytes} of {} large bytes are freed",
                    self.large_bytes
                );
                self.large_bytes -= bytes;
                shelf.release(bytes);
            }
        }
        if draining {
            debug_assert!(slab.free < frames, "more frames are free than slab {number} has");
            slab.free += 1;
            self.hide_if_free(shelf, number);
        } else if let Some(kind) = kind {
            debug_assert!(self.kind(kind).free.last() != Some(&frame), "frame {frame} is freed twice");
            self.kind(kind).free.push(frame);
        }
    }

    fn hide_if_free(&mut self, shelf: &Shelf, number: usize) {
        let Some(slab) = self.slabs.get_mut(number) else {
            return;
        };
        let Some(kind) = slab.kind.filter(|_| slab.draining && slab.free == shelf.slabs.frames()) else {
            return;
        };
        if let Some(hidden) = shelf.slabs.hide(number) {
            shelf.draining.fetch_sub(1, Ordering::SeqCst);
            self.retired.push_back((shelf.epoch.phase(), Retired::Slab(number, kind, hidden)));
        }
    }
}
