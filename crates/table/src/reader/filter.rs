//! The filter of an open table: its resident slices, and fetching the others.
//!
//! The resident slices at one moment are a [`ResidentFilter`], an immutable value.
//! [`TableFilter::hold`] makes the next one; the memory of dropped slices is freed (and their
//! charge released) when the last holder of an earlier value is gone.
//!
//! A lookup *skips* a module that is not resident, which is always correct, or *fetches* it: finds
//! the needed slice in the block cache or reads it from the file for this one lookup
//! ([`TableFilter::fetch`]). A resident module may be *dormant*: lookups skip it as if it were not
//! resident, and reactivating it needs no read. [`Unasked`] states for each module which of these
//! applies.
//!
//! Invariant: whatever is resident, damaged or fetched, no key of the table is denied.
//!
//! Thread safety: a mutex guards the current value; lookups do not take it, as they hold a value.
//! Another one is held by the thread that makes the next value, also while it reads slices.
//!
//! Not here: the decision (package `shamba`); the places of slices in the file
//! ([`crate::filter_section`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba_env::Pages;
use shamba_filter::{FilterGeometry, Line, MAX_MODULES};
use shamba_key::KeyDigest;

use super::cached::CacheClient;
use super::resident::{ResidentFilter, ResidentSlice, Unasked, held_modules};
use crate::cache::BlockKey;
use crate::counters::ReadCounters;
use crate::file::TableFile;
use crate::filter_section::{CHECKSUM_BYTES, SlicePlace, StoredFilter};
use crate::id::TableId;
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::slot::FrameSlot;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{Error, Result};

/// Memory of a slice besides its lines: the owner of their memory with its reference count, and its
/// charge with its own.
const SLICE_EXTRA_BYTES: usize = size_of::<Pages>() + size_of::<Charge>() + 40;

/// Maximum memory of the slices with which a check compares keys: those of some ten million keys.
const CHECKED_BYTES_MAX: u64 = 16 << 20;

/// The filter of an open table.
#[derive(Debug)]
pub(crate) struct TableFilter {
    stored: StoredFilter,
    /// Held while slices are read.
    state: Mutex<State>,
    /// Replaced under `state`. Never locked for long, so that an install waits for no read.
    resident: Mutex<ResidentFilter>,
    /// Frames of cached slices in the block cache; empty if slices are not cached.
    slots: Box<[FrameSlot]>,
    /// The cache for the slices. Modules that are cached as a whole have the slot of their first
    /// slice.
    cached: CacheClient,
    /// For each slice, whether it is damaged: not read again. Lookups do not lock anything for it.
    damaged: Box<[AtomicBool]>,
    /// Damage found so far, one text for each damaged slice. Never locked for long.
    warnings: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct State {
    /// Whether the table was released: nothing more becomes resident.
    is_released: bool,
}

/// Result of a change of the resident slices.
#[derive(Debug, Default)]
pub struct Held {
    /// Whether a new [`ResidentFilter`] replaced the last one.
    pub changed: bool,
    /// Whether slices were dropped.
    pub freed: bool,
    /// Number of slices that were read.
    pub slices_read: u64,
    /// Damage found; answers stay correct.
    pub warnings: Vec<String>,
}

impl TableFilter {
    /// Creates a filter with no resident slice. Slices are cached if `cached` is registered.
    pub(super) fn new(stored: StoredFilter, cached: CacheClient) -> Self {
        let geometry = stored.geometry;
        let count = geometry.slices();
        let is_cached = cached.is_registered();
        let fetched = if is_cached { all_modules(&geometry) } else { 0 };
        let unasked = Unasked { fetched, dormant: 0 };
        let resident = ResidentFilter::new(geometry, vec![None; count].into(), unasked);
        let slots = if is_cached { (0..count).map(|_| FrameSlot::new()).collect() } else { Box::default() };
        assert!(slots.len() == if is_cached { count } else { 0 }, "{} slots for {count} slices", slots.len());
        let state = Mutex::new(State { is_released: false });
        let damaged = (0..count).map(|_| AtomicBool::new(false)).collect();
        let warnings = Mutex::default();
        Self { stored, state, resident: Mutex::new(resident), slots, cached, damaged, warnings }
    }

    /// Whether modules are cached as one block each.
    pub(super) fn is_whole(&self) -> bool {
        self.cached.is_whole()
    }

    /// The geometry with which the filter was built.
    pub(super) fn geometry(&self) -> &FilterGeometry {
        &self.stored.geometry
    }

    /// The cache for the slices.
    pub(super) fn cached(&self) -> &CacheClient {
        &self.cached
    }

    /// The place of a slice in the file.
    pub(super) fn place_of(&self, slice: usize) -> Option<SlicePlace> {
        self.stored.place_of(slice)
    }

    /// The frame slot and the cache key of a slice, if slices are cached.
    pub(super) fn slot(&self, slice: usize) -> Option<(&FrameSlot, BlockKey)> {
        self.slots.get(slice).zip(self.cached.key(slice as u32))
    }

    /// The lines of slice `number`, which was read as `stored`, if they are undamaged.
    pub(super) fn check_slice<'s>(
        &self,
        file: &TableFile,
        number: usize,
        stored: &'s [u8],
    ) -> Result<&'s [u8]> {
        match self.stored.place_of(number) {
            Some(place) => StoredFilter::check_slice(file, place, stored),
            None => Ok(&[]),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Poison is ignored: the state is consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_resident(&self) -> MutexGuard<'_, ResidentFilter> {
        self.resident.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are held for the filter even without any slice.
    pub(super) fn meta_bytes(&self) -> usize {
        filter_meta_bytes(&self.stored.geometry)
    }

    /// Removes its slices from the cache, for the table `id` that is closed.
    pub(super) fn close(&self, id: TableId) {
        self.cached.close(id);
        self.cached.retire((0..).zip(&self.slots));
    }

    /// The resident filter now.
    pub(super) fn resident(&self) -> ResidentFilter {
        self.lock_resident().clone()
    }

    /// Memory of all slices of each module, if they were resident: `(bytes, slices)`.
    pub(super) fn module_bytes(&self) -> Vec<(u64, u32)> {
        let modules = self.stored.geometry.modules().iter();
        let bytes = |slices: usize, slice_bytes: usize| slices as u64 * held_bytes(slice_bytes);
        modules.map(|m| (bytes(m.slices(), m.slice_bytes()), m.slices() as u32)).collect()
    }

    /// Makes the first `wanted[d]` slices of each module d resident and no others, and sets the
    /// treatment of modules to `unasked`. Missing slices are read from `file`; damaged ones stay
    /// absent. After [`Self::release`] none becomes resident.
    ///
    /// # Errors
    /// `Io` when reading fails; nothing has changed then.
    pub(super) fn hold(&self, file: &TableFile, wanted: &[u32], unasked: Unasked) -> Result<Held> {
        let mut held = Held::default();
        let state = self.state();
        let geometry = self.stored.geometry;
        let resident = self.resident();
        let mut slices = resident.slices();
        debug_assert_eq!(slices.len(), geometry.slices(), "one entry for each slice");
        let mut changed = false;
        let mut found_damaged = Vec::new();
        for module in 0..geometry.modules().len() {
            let wanted =
                if state.is_released { 0 } else { wanted.get(module).copied().unwrap_or(0) as usize };
            for (within, number) in geometry.slices_of(module).enumerate() {
                let Some(slice) = slices.get_mut(number) else { continue };
                if within >= wanted {
                    held.freed |= slice.take().is_some();
                } else if slice.is_none() && !self.is_damaged(number) {
                    let Some(place) = self.stored.place_of(number) else { continue };
                    held.slices_read += 1;
                    match self.cached.timed(place.bytes, || read(file, place, self.cached.ledger())) {
                        Ok(read) => *slice = Some(read),
                        Err(error) if error.is_corruption() => found_damaged.push((number, error)),
                        Err(error) => return Err(error),
                    }
                    changed = true;
                }
            }
        }
        for (number, error) in found_damaged {
            if self.note_damaged_slice(number, &error) {
                held.warnings.push(warning(&error));
            }
        }
        let dormant = unasked.dormant & held_modules(&geometry, &slices);
        changed |= held.freed || resident.unasked() != Unasked { dormant, ..unasked };
        if changed {
            *self.lock_resident() = ResidentFilter::new(geometry, slices.into(), unasked);
        }
        debug_assert!(!held.freed || changed, "slices were dropped without a change");
        debug_assert!(
            !state.is_released || self.resident().held_bytes() == 0,
            "slices of a released table are resident"
        );
        held.changed = changed;
        Ok(held)
    }

    /// Drops all slices; none becomes resident again.
    pub(super) fn release(&self, file: &TableFile) {
        self.state().is_released = true;
        // Nothing is read when nothing is wanted, so this cannot fail.
        let _ = self.hold(file, &[], Unasked::default());
    }

    /// The answer of module `module` for the key of `digest`, from the block cache or from `file`;
    /// a damaged slice answers "maybe".
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub(super) fn fetch(
        &self,
        file: &TableFile,
        digest: KeyDigest,
        module: usize,
        io: &mut ReadCounters,
    ) -> Result<bool> {
        let geometry = &self.stored.geometry;
        let Some(site) = geometry.module_site(digest, module) else { return Ok(true) };
        let slice = site.slice();
        let test = |slice: &[u8]| {
            // If the bytes are not aligned like lines, they are copied.
            let copy;
            let lines = match Line::view(slice) {
                Some(lines) => lines,
                None => {
                    copy = Line::boxed(slice);
                    &copy
                }
            };
            site.maybe(Some(lines))
        };
        if self.is_whole() {
            let answer = self.fetch_whole_module(file, (module, slice), test, io)?;
            return Ok(answer.unwrap_or(true));
        }
        debug_assert!(slice < geometry.slices(), "slice {slice} of {}", geometry.slices());
        let slot = self.slot(slice);
        if let Some((slot, key)) = slot {
            let section = self.cached.enter();
            if let Some(hit) = section.find(slot, key) {
                io.filter_hits += 1;
                return Ok(test(hit.payload()));
            }
        }
        let Some(place) = self.stored.place_of(slice).filter(|_| !self.is_damaged(slice)) else {
            return Ok(true);
        };
        io.filter.note(place.offset, (place.bytes + CHECKSUM_BYTES) as u64);
        let mut fresh = slot.and_then(|_| self.cached.fresh(place.bytes));
        let take = |bytes: &[u8]| {
            if let Some(frame) = fresh.as_mut().and_then(|fresh| fresh.get_mut(..bytes.len())) {
                frame.copy_from_slice(bytes);
            }
            test(bytes)
        };
        match self.cached.timed(place.bytes, || StoredFilter::read_slice(file, place, take)) {
            Ok(maybe) => {
                if let (Some(fresh), Some((slot, key))) = (fresh, slot) {
                    fresh.publish(slot, key, place.bytes);
                }
                Ok(maybe)
            }
            Err(error) if error.is_corruption() => {
                self.note_damaged_slice(slice, &error);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Damage found in the slices so far; answers stay correct.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this slice was found damaged.
    pub(super) fn is_damaged(&self, slice: usize) -> bool {
        self.damaged.get(slice).is_some_and(|damaged| damaged.load(Ordering::Relaxed))
    }

    /// Reports a damaged slice once: many lookups may find it. Returns whether this is the first.
    pub(super) fn note_damaged_slice(&self, slice: usize, error: &Error) -> bool {
        debug_assert!(error.is_corruption(), "a slice is taken as damaged after {error}");
        let damaged = self.damaged.get(slice);
        let is_first = damaged.is_some_and(|damaged| !damaged.swap(true, Ordering::Relaxed));
        if is_first {
            self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning(error));
        }
        is_first
    }

    /// Reads every slice from `file` and returns the damage.
    pub(super) fn verify(&self, file: &TableFile) -> Result<Vec<Error>> {
        self.stored.verify(file)
    }

    /// A filter of the undamaged slices of `file`, whatever is resident: of the first ones that
    /// take at most [`CHECKED_BYTES_MAX`].
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub(super) fn whole(&self, file: &TableFile) -> Result<ResidentFilter> {
        let geometry = self.stored.geometry;
        let mut slices = vec![None; geometry.slices()];
        let mut bytes = 0;
        for (number, slice) in slices.iter_mut().enumerate() {
            let Some(place) = self.stored.place_of(number) else { continue };
            bytes += held_bytes(place.bytes);
            if bytes > CHECKED_BYTES_MAX {
                break;
            }
            match read(file, place, self.cached.ledger()) {
                Ok(read) => *slice = Some(read),
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ResidentFilter::new(geometry, slices.into(), Unasked::default()))
    }
}

/// The mask of all modules.
fn all_modules(geometry: &FilterGeometry) -> u8 {
    (1u16 << geometry.modules().len().min(MAX_MODULES)).wrapping_sub(1) as u8
}

pub(super) fn warning(error: &Error) -> String {
    format!("{error}; every key may be contained")
}

/// Bytes that are held for a filter of this geometry even without any slice.
pub(crate) fn filter_meta_bytes(geometry: &FilterGeometry) -> usize {
    geometry.slices()
        * (size_of::<Option<ResidentSlice>>() + size_of::<FrameSlot>() + size_of::<AtomicBool>())
}

/// Bytes of all slices of a filter of this geometry.
pub(crate) fn filter_whole_bytes(geometry: &FilterGeometry) -> usize {
    geometry.modules().iter().map(|of| of.slices() * held_bytes(of.slice_bytes()) as usize).sum()
}

/// Memory of a resident slice of this length.
fn held_bytes(slice_bytes: usize) -> u64 {
    (Pages::held_bytes(slice_bytes) + SLICE_EXTRA_BYTES) as u64
}

fn read(file: &TableFile, place: SlicePlace, ledger: &Arc<Ledger>) -> Result<ResidentSlice> {
    let charge = Charge::new(ledger, LedgerPart::Filters, held_bytes(place.bytes));
    Ok(ResidentSlice::new(StoredFilter::read_lines(file, place)?, charge))
}
