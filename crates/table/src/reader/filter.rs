//! The filter of an open table: its resident slices, and fetching the others.
//!
//! The resident slices at one moment are a [`ResidentFilter`], an immutable value.
//! [`TableReader::hold_filter`] makes the next one; the memory of dropped slices is freed (and
//! their charge released) when the last holder of an earlier value is gone.
//!
//! A module that is not resident is *skipped*, which is always correct, or *fetched*: its slice is
//! found in the block cache or read from the file for this one lookup
//! ([`TableReader::fetch_module`]). A resident module may be *dormant*: lookups skip it as if it
//! were not resident, and reactivating it needs no read. The value contains which of these applies
//! to each module ([`Unasked`]).
//!
//! Invariant: whatever is resident, damaged or fetched, no key of the table is denied.
//!
//! Thread safety: a mutex guards the current value; lookups do not take it, as they hold a value.
//!
//! Not here: the decision (package `shamba`); the places of slices in the file
//! ([`crate::filter_section`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_filter::{FilterGeometry, Line, MAX_MODULES};
use shamba_key::KeyDigest;

use super::resident::{ResidentFilter, Slice, Unasked, held_modules};
use super::{CacheUnit, TableReader};
use crate::cache::{BlockCache, CachedTable};
use crate::counters::ReadCounters;
use crate::filter_section::{CHECKSUM_BYTES, SlicePlace, StoredFilter};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::residency::Residency;
use crate::slot::FrameSlot;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{Error, Result};

/// Memory of a slice besides its lines: the two reference counts before them, on a line of their
/// own, and its charge.
const SLICE_EXTRA_BYTES: usize = 64 + size_of::<Charge>() + 16;

/// The filter of an open table.
#[derive(Debug)]
pub(crate) struct TableFilter {
    stored: StoredFilter,
    state: Mutex<State>,
    /// Frames of cached slices in the block cache; empty unless [`Residency::Cached`].
    slots: Box<[FrameSlot]>,
    /// Whether modules are cached as a whole, each under the slot of its first slice.
    is_whole: bool,
    /// The block cache's number for the slices.
    cached: Option<CachedTable>,
}

#[derive(Debug)]
struct State {
    resident: ResidentFilter,
    /// Damaged slices: not read again.
    damaged: BTreeSet<usize>,
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
    /// Creates a filter with no resident slice.
    pub(super) fn new(
        stored: StoredFilter,
        (residency, unit): (Residency, CacheUnit),
        cache: &BlockCache,
        id: crate::TableId,
    ) -> Self {
        let geometry = stored.geometry;
        let count = geometry.slices();
        let is_cached = residency == Residency::Cached;
        let fetched = if is_cached { all_modules(&geometry) } else { 0 };
        let unasked = Unasked { fetched, dormant: 0 };
        let resident = ResidentFilter::new(geometry, vec![None; count].into(), unasked);
        let slots = if is_cached { (0..count).map(|_| FrameSlot::new()).collect() } else { Box::default() };
        let cached = if is_cached { cache.add_table(id) } else { None };
        let state = Mutex::new(State { resident, damaged: BTreeSet::new() });
        Self { stored, state, slots, is_whole: is_cached && unit == CacheUnit::Whole, cached }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn geometry(&self) -> &FilterGeometry {
        &self.stored.geometry
    }

    pub(super) fn place_of(&self, slice: usize) -> Option<SlicePlace> {
        self.stored.place_of(slice)
    }

    /// The table's number in the cache, and the frame slot of a slice.
    pub(super) fn slot(&self, slice: usize) -> Option<(CachedTable, &FrameSlot)> {
        self.cached.zip(self.slots.get(slice))
    }

    /// The lines of slice `number`, which was read as `stored`, if they are undamaged.
    pub(super) fn check_slice<'s>(
        &self,
        file: &super::TableFile,
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

    /// Bytes that are held for the filter even without any slice.
    pub(super) fn meta_bytes(&self) -> usize {
        self.stored.geometry.slices() * (size_of::<Option<Slice>>() + size_of::<FrameSlot>())
    }

    /// Removes its slices from the cache.
    pub(super) fn close(&self, cache: &BlockCache, id: crate::TableId) {
        if let Some(table) = self.cached {
            cache.close_table(id, table);
            cache.retire_blocks(table, (0..).zip(&self.slots));
        }
    }
}

/// The mask of all modules.
fn all_modules(geometry: &FilterGeometry) -> u8 {
    (1u16 << geometry.modules().len().min(MAX_MODULES)).wrapping_sub(1) as u8
}

impl TableReader {
    /// The resident filter now; `None` if the table has no filter or its geometry is damaged, in
    /// which case every key may be contained.
    pub fn filter(&self) -> Option<ResidentFilter> {
        Some(self.filter.as_ref()?.state().resident.clone())
    }

    /// The geometry with which the filter was built; `None` as for [`Self::filter`].
    pub fn filter_geometry(&self) -> Option<FilterGeometry> {
        Some(self.filter.as_ref()?.stored.geometry)
    }

    /// Memory of all slices of each module, if they were resident: `(bytes, slices)`.
    pub fn filter_module_bytes(&self) -> Vec<(u64, u32)> {
        let Some(filter) = &self.filter else { return Vec::new() };
        let modules = filter.stored.geometry.modules().iter();
        let bytes = |slices: usize, slice_bytes: usize| (slices * (slice_bytes + SLICE_EXTRA_BYTES)) as u64;
        modules.map(|m| (bytes(m.slices(), m.slice_bytes()), m.slices() as u32)).collect()
    }

    /// Makes the first `wanted[d]` slices of each module d resident and no others, and sets the
    /// treatment of modules to `unasked`. Missing slices are read from the file; damaged ones stay
    /// absent.
    ///
    /// # Errors
    /// `Io` when reading fails; nothing has changed then.
    pub fn hold_filter(&self, wanted: &[u32], unasked: Unasked) -> Result<Held> {
        let mut held = Held::default();
        let Some(filter) = &self.filter else { return Ok(held) };
        let mut state = filter.state();
        let geometry = filter.stored.geometry;
        let mut slices = state.resident.slices();
        let mut changed = false;
        let mut found_damaged = Vec::new();
        let is_released = self.is_released.load(Ordering::Acquire);
        for module in 0..geometry.modules().len() {
            let wanted = if is_released { 0 } else { wanted.get(module).copied().unwrap_or(0) as usize };
            for (within, number) in geometry.slices_of(module).enumerate() {
                let Some(slice) = slices.get_mut(number) else { continue };
                if within >= wanted {
                    held.freed |= slice.take().is_some();
                } else if slice.is_none() && !state.damaged.contains(&number) {
                    let Some(place) = filter.stored.place_of(number) else { continue };
                    held.slices_read += 1;
                    let begin_ns = self.clock.now_ns();
                    let read = read(&self.loaded.file, place, &self.ledger);
                    self.cache.note_read(place.bytes, self.clock.now_ns().saturating_sub(begin_ns));
                    match read {
                        Ok(read) => *slice = Some(read),
                        Err(error) if error.is_corruption() => {
                            held.warnings.push(warning(&error));
                            found_damaged.push(number);
                        }
                        Err(error) => return Err(error),
                    }
                    changed = true;
                }
            }
        }
        state.damaged.extend(found_damaged);
        held.warnings.iter().for_each(|warning| self.note_filter_damage(warning.clone()));
        let dormant = unasked.dormant & held_modules(&geometry, &slices);
        changed |= held.freed || state.resident.unasked() != Unasked { dormant, ..unasked };
        if changed {
            state.resident = ResidentFilter::new(geometry, slices.into(), unasked);
        }
        held.changed = changed;
        Ok(held)
    }

    /// Makes the whole filter resident.
    ///
    /// # Errors
    /// As [`Self::hold_filter`].
    pub fn hold_whole_filter(&self) -> Result<Held> {
        self.hold_filter(&[u32::MAX; MAX_MODULES], Unasked::default())
    }

    /// The answer of module `module` for the key of `digest`, from the block cache or from the
    /// file; a damaged slice answers "maybe".
    ///
    /// # Errors
    /// `Io` when reading fails.
    #[cold]
    pub fn fetch_module(&self, digest: KeyDigest, module: usize, io: &mut ReadCounters) -> Result<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let geometry = &filter.stored.geometry;
        let standard = geometry.standard_site(digest);
        let site = geometry.site(digest, module);
        let slice = match (&standard, &site) {
            (Some(standard), _) => standard.slice(),
            (None, Some(site)) => site.slice(),
            (None, None) => return Ok(true),
        };
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
            match (&standard, site) {
                (Some(standard), _) => standard.maybe(Some(lines)),
                (None, Some(site)) => site.question(Some(lines)).maybe(),
                (None, None) => true,
            }
        };
        if filter.is_whole {
            let modules = 0..geometry.modules().len();
            let of_slice = { modules }.find(|module| geometry.slices_of(*module).contains(&slice));
            let answer = self.fetch_whole_module(filter, (of_slice.unwrap_or(module), slice), test, io)?;
            return Ok(answer.unwrap_or(true));
        }
        let slot = filter.slot(slice);
        if let Some((table, slot)) = slot {
            let section = self.cache.enter();
            if let Some(hit) = section.find(slot, table.key(slice as u32)) {
                io.filter_hits += 1;
                return Ok(test(hit.payload()));
            }
        }
        let Some(place) = filter.stored.place_of(slice) else { return Ok(true) };
        io.filter.note(place.offset, (place.bytes + CHECKSUM_BYTES) as u64);
        let mut fresh = slot.and_then(|_| self.cache.fresh(place.bytes));
        let begin_ns = self.clock.now_ns();
        let read = StoredFilter::read_slice(&self.loaded.file, place, |bytes| {
            if let Some(frame) = fresh.as_mut().and_then(|fresh| fresh.get_mut(..bytes.len())) {
                frame.copy_from_slice(bytes);
            }
            test(bytes)
        });
        self.cache.note_read(place.bytes, self.clock.now_ns().saturating_sub(begin_ns));
        match read {
            Ok(maybe) => {
                if let (Some(fresh), Some((table, slot))) = (fresh, slot) {
                    fresh.publish(slot, table.key(slice as u32), place.bytes);
                }
                Ok(maybe)
            }
            Err(error) if error.is_corruption() => {
                self.note_damaged_slice(filter, slice, &error);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Damage found in the filter so far; answers stay correct.
    pub fn filter_warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports a damaged slice once: many lookups may find it.
    pub(super) fn note_damaged_slice(&self, filter: &TableFilter, slice: usize, error: &Error) {
        if filter.state().damaged.insert(slice) {
            self.note_filter_damage(warning(error));
        }
    }

    pub(super) fn note_filter_damage(&self, warning: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }

    /// Reads every slice of the filter from the file and returns the damage.
    pub(super) fn verify_filter(&self) -> Result<Vec<Error>> {
        self.filter.as_ref().map_or(Ok(Vec::new()), |filter| filter.stored.verify(&self.loaded.file))
    }
}

pub(super) fn warning(error: &Error) -> String {
    format!("{error}; every key may be contained")
}

fn read(file: &super::TableFile, place: SlicePlace, ledger: &Arc<Ledger>) -> Result<Slice> {
    let bytes = (place.bytes + SLICE_EXTRA_BYTES) as u64;
    let charge = Charge::new(ledger, LedgerPart::Filters, bytes);
    Ok(Slice::new(StoredFilter::read_lines(file, place)?, charge))
}
