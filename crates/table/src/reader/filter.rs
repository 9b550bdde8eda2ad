//! The filter of an open table: which of its slices memory holds, and asking them.
//!
//! What is held at a moment is a [`ResidentFilter`], a value that never changes: lookups ask the one that their view
//! was made with and touch no lock and no count. [`TableReader::hold_filter`] makes the next one; memory of slices
//! that it lets go is given back (and its charge released) when the last holder of an earlier value is gone.
//!
//! A module that is not held is *skipped*, which is always right, or *fetched*: its slice is found in the block cache
//! or read from the file for this one lookup ([`TableReader::fetch_module`]). Which of the two is part of the value
//! ([`ResidentFilter::fetched`]).
//!
//! Invariant: whatever is held, damaged or fetched, no key of the table is denied.
//!
//! Not here: who decides (package `shamba`); where slices lie in the file ([`crate::filter_section`]).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_filter::{FilterGeometry, Line, MAX_MODULES, Question};
use shamba_key::KeyDigest;
use shamba_key::planted::{Defect, is_planted};

use super::{ReadCounters, TableReader};
use crate::cache::{BlockCache, CachedTable};
use crate::error::{Error, Result};
use crate::filter_section::{SlicePlace, StoredFilter};
use crate::index::FrameSlot;
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// What a slice takes beside its lines: two counts before them, on a line of their own, and its charge.
const SLICE_EXTRA_BYTES: usize = 64 + size_of::<Charge>() + 16;

/// How filters (and index partitions) are held in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Residency {
    /// All of them, always: what is not in the budget is exceeded.
    Pinned,
    /// As blocks of the block cache, where they compete with data: read when a lookup misses them. The baseline.
    Cached,
    /// Those that save most for their bytes.
    #[default]
    Budgeted,
}

impl Residency {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Pinned, Self::Cached, Self::Budgeted];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Cached => "cached",
            Self::Budgeted => "budgeted",
        }
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Residency {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("residency must be pinned, cached or budgeted, not {text:?}"))
    }
}

/// A slice in memory, for as long as somebody holds it.
#[derive(Clone, Debug)]
struct Slice {
    lines: Arc<[Line]>,
    _charge: Arc<Charge>,
}

/// What memory holds of a table's filter at one moment, and what is done about the rest.
#[derive(Clone)]
pub struct ResidentFilter {
    geometry: FilterGeometry,
    /// As many as the geometry says.
    slices: Arc<[Option<Slice>]>,
    /// Modules of which a slice is held, the first one in the lowest bit.
    held: u8,
    /// Modules that are fetched where they are not held.
    fetched: u8,
    /// The first module is held and asked in the short way: neither standard nor absent.
    first_is_quick: bool,
    /// There is more to do than to ask the first module.
    has_more: bool,
}

// With the reader beside it, on one cache line.
const _: () = assert!(size_of::<ResidentFilter>() <= 56);

impl ResidentFilter {
    fn new(geometry: FilterGeometry, slices: Arc<[Option<Slice>]>, fetched: u8) -> Self {
        let mut held = 0;
        for module in 0..geometry.modules().len() {
            let of_module = slices.get(geometry.slices_of(module)).unwrap_or_default();
            held |= u8::from(of_module.iter().any(Option::is_some)) << module;
        }
        let first_is_quick = held & 1 == 1 && !geometry.is_standard();
        let has_more = geometry.modules().len() > 1 || fetched != 0 || !first_is_quick;
        Self { geometry, slices, held, fetched, first_is_quick, has_more }
    }

    /// What the filter was built as.
    pub fn geometry(&self) -> &FilterGeometry {
        &self.geometry
    }

    /// The modules of which memory holds any slice, the first one in the lowest bit.
    pub fn held(&self) -> u8 {
        self.held
    }

    /// The modules that a lookup fetches where they are not held; all others are skipped then.
    pub fn fetched(&self) -> u8 {
        self.fetched
    }

    /// How many slices of `module` are held.
    pub fn held_slices(&self, module: usize) -> usize {
        self.slices.get(self.geometry.slices_of(module)).unwrap_or_default().iter().flatten().count()
    }

    /// How many slices are not held.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|slice| slice.is_none()).count()
    }

    /// The bytes of the slices that are held.
    pub fn held_bytes(&self) -> u64 {
        self.slices.iter().flatten().map(|slice| size_of_val(&*slice.lines) as u64).sum()
    }

    /// The question to the first module; its line, and those of the other modules that are held, are asked for if
    /// `prefetch`. Without a line the question is not answerable; [`Self::has_more`] says whether to go on.
    #[inline(always)]
    pub fn ask(&self, digest: KeyDigest, prefetch: bool) -> Question<'_> {
        if !self.first_is_quick {
            return self.ask_later(digest, prefetch);
        }
        let site = self.geometry.first_site(digest);
        let question = site.question(self.lines(site.slice()));
        if prefetch {
            question.prefetch();
            if self.held > 1 {
                self.prefetch_others(digest);
            }
        }
        question
    }

    /// Whether a "maybe" of the first module leaves others: to ask with [`Self::module`], to fetch, or to skip.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Without a first module: nothing to ask there.
    #[cold]
    fn ask_later(&self, digest: KeyDigest, prefetch: bool) -> Question<'_> {
        if prefetch {
            self.prefetch_others(digest);
        }
        Question::unanswerable()
    }

    fn prefetch_others(&self, digest: KeyDigest) {
        for site in self.geometry.sites(digest, self.held & !1) {
            site.question(self.lines(site.slice())).prefetch();
        }
    }

    /// What module `module` says; `None` if memory does not hold the slice.
    #[inline]
    pub fn module(&self, digest: KeyDigest, module: usize) -> Option<bool> {
        if self.held >> module & 1 == 0 {
            return is_planted(Defect::AbsentModuleDenies).then_some(false);
        }
        if let Some(site) = self.geometry.standard_site(digest) {
            return self.lines(site.slice()).map(|lines| site.maybe(Some(lines)));
        }
        let site = self.geometry.site(digest, module)?;
        let question = site.question(self.lines(site.slice()));
        question.is_answerable().then(|| question.maybe())
    }

    /// Whether the key of `digest` may be in the table, as far as memory can tell.
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        (0..self.geometry.modules().len()).all(|module| self.module(digest, module).unwrap_or(true))
    }

    #[inline(always)]
    fn lines(&self, slice: usize) -> Option<&[Line]> {
        self.slices.get(slice)?.as_ref().map(|slice| &*slice.lines)
    }
}

impl fmt::Debug for ResidentFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filter = f.debug_struct("ResidentFilter");
        filter.field("geometry", &self.geometry).field("absent_slices", &self.absent_slices());
        filter.field("fetched", &self.fetched).finish()
    }
}

/// The filter of an open table.
#[derive(Debug)]
pub(crate) struct TableFilter {
    stored: StoredFilter,
    state: Mutex<State>,
    /// Where the block cache has slices that are cached; empty unless [`Residency::Cached`].
    slots: Box<[FrameSlot]>,
    /// What the block cache knows the slices by.
    cached: Option<CachedTable>,
}

#[derive(Debug)]
struct State {
    resident: ResidentFilter,
    /// Slices that were found to be damaged: never tried again.
    damaged: BTreeSet<usize>,
}

/// What a change of the filter's slices came to.
#[derive(Debug, Default)]
pub struct Held {
    /// Whether another [`ResidentFilter`] took the place of the last.
    pub changed: bool,
    /// Slices that were read.
    pub slices_read: u64,
    /// What was found to be damaged; the answers are right all the same.
    pub warnings: Vec<String>,
}

impl TableFilter {
    /// Nothing held.
    pub(super) fn new(
        stored: StoredFilter,
        residency: Residency,
        cache: &BlockCache,
        id: crate::TableId,
    ) -> Self {
        let geometry = stored.geometry;
        let count = geometry.slices();
        let is_cached = residency == Residency::Cached;
        let fetched = if is_cached { all_modules(&geometry) } else { 0 };
        let resident = ResidentFilter::new(geometry, vec![None; count].into(), fetched);
        let slots = if is_cached { (0..count).map(|_| FrameSlot::new()).collect() } else { Box::default() };
        let cached = if is_cached { cache.add_table(id) } else { None };
        let state = Mutex::new(State { resident, damaged: BTreeSet::new() });
        Self { stored, state, slots, cached }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is always held for it.
    pub(super) fn meta_bytes(&self) -> usize {
        self.stored.geometry.slices() * (size_of::<Option<Slice>>() + size_of::<FrameSlot>())
    }

    /// Forgets what the cache has of it.
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
    /// What memory holds of the filter now; `None` if none was written or its geometry is damaged, and then every
    /// key may be contained.
    pub fn filter(&self) -> Option<ResidentFilter> {
        Some(self.filter.as_ref()?.state().resident.clone())
    }

    /// What the filter was built as; `None` as for [`Self::filter`].
    pub fn filter_geometry(&self) -> Option<FilterGeometry> {
        Some(self.filter.as_ref()?.stored.geometry)
    }

    /// What all slices of the filter take in memory, each module by itself: `(bytes, slices)`.
    pub fn filter_module_bytes(&self) -> Vec<(u64, u32)> {
        let Some(filter) = &self.filter else { return Vec::new() };
        let modules = filter.stored.geometry.modules().iter();
        let bytes = |slices: usize, slice_bytes: usize| (slices * (slice_bytes + SLICE_EXTRA_BYTES)) as u64;
        modules.map(|m| (bytes(m.slices(), m.slice_bytes()), m.slices() as u32)).collect()
    }

    /// Holds the first `wanted[d]` slices of each module d and no others, and has lookups fetch the modules of the
    /// mask `fetched` where they are not held. What is missing is read from the file, what is damaged stays absent.
    ///
    /// # Errors
    /// `Io` when reading fails; nothing has changed then.
    pub fn hold_filter(&self, wanted: &[u32], fetched: u8) -> Result<Held> {
        let mut held = Held::default();
        let Some(filter) = &self.filter else { return Ok(held) };
        let mut state = filter.state();
        let geometry = filter.stored.geometry;
        let mut slices = state.resident.slices.to_vec();
        let mut changed = state.resident.fetched != fetched;
        let mut found_damaged = Vec::new();
        let is_released = self.is_released.load(Ordering::Acquire);
        for module in 0..geometry.modules().len() {
            let wanted = if is_released { 0 } else { wanted.get(module).copied().unwrap_or(0) as usize };
            for (within, number) in geometry.slices_of(module).enumerate() {
                let Some(slice) = slices.get_mut(number) else { continue };
                if within >= wanted {
                    changed |= slice.take().is_some();
                } else if slice.is_none() && !state.damaged.contains(&number) {
                    let Some(place) = filter.stored.place_of(number) else { continue };
                    held.slices_read += 1;
                    match read(&self.loaded.file, place, &self.ledger) {
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
        if changed {
            state.resident = ResidentFilter::new(geometry, slices.into(), fetched);
        }
        held.changed = changed;
        Ok(held)
    }

    /// Holds all of the filter.
    ///
    /// # Errors
    /// As [`Self::hold_filter`].
    pub fn hold_whole_filter(&self) -> Result<Held> {
        self.hold_filter(&[u32::MAX; MAX_MODULES], 0)
    }

    /// What module `module` says of the key of `digest`, from the block cache or from the file; a damaged slice says
    /// "maybe".
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
            // Where bytes are not aligned as lines are, a copy of them is.
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
        let slot = filter.cached.zip(filter.slots.get(slice));
        if let Some((table, slot)) = slot {
            let section = self.cache.enter();
            if let Some(hit) = section.find(slot, table.key(slice as u32)) {
                io.filter_hits += 1;
                return Ok(test(hit.payload()));
            }
        }
        let Some(place) = filter.stored.place_of(slice) else { return Ok(true) };
        io.filter_reads += 1;
        let mut fresh = slot.and_then(|_| self.cache.fresh(place.bytes));
        let read = StoredFilter::read_slice(&self.loaded.file, place, |bytes| {
            if let Some(frame) = fresh.as_mut().and_then(|fresh| fresh.get_mut(..bytes.len())) {
                frame.copy_from_slice(bytes);
            }
            test(bytes)
        });
        match read {
            Ok(maybe) => {
                if let (Some(fresh), Some((table, slot))) = (fresh, slot) {
                    fresh.publish(slot, table.key(slice as u32), place.bytes);
                }
                Ok(maybe)
            }
            Err(error) if error.is_corruption() => {
                // Said once: lookups come again and again.
                if filter.state().damaged.insert(slice) {
                    self.note_filter_damage(warning(&error));
                }
                Ok(!is_planted(Defect::DamagedSliceDenies))
            }
            Err(error) => Err(error),
        }
    }

    /// What is damaged in the filter, as far as it was read; the answers are right all the same.
    pub fn filter_warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_filter_damage(&self, warning: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }

    /// Every slice of the filter, read from the file: what is damaged.
    pub(super) fn verify_filter(&self) -> Result<Vec<Error>> {
        self.filter.as_ref().map_or(Ok(Vec::new()), |filter| filter.stored.verify(&self.loaded.file))
    }
}

pub(super) fn warning(error: &Error) -> String {
    format!("{error}; every key may be contained")
}

fn read(file: &super::TableFile, place: SlicePlace, ledger: &Arc<Ledger>) -> Result<Slice> {
    let mut bytes = (place.bytes + SLICE_EXTRA_BYTES) as u64;
    if is_planted(Defect::FiltersUncharged) {
        bytes = 0;
    }
    let charge = Charge::new(ledger, LedgerPart::Filters, bytes);
    Ok(Slice { lines: StoredFilter::read_lines(file, place)?, _charge: Arc::new(charge) })
}
