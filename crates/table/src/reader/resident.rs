//! The resident part of a table's filter at one moment, and its probing.
//!
//! A [`ResidentFilter`] is an immutable value: lookups probe the one that belongs to their view and
//! touch no lock and no reference count. Of each module it holds all slices, some or none, and it
//! states what lookups do with the modules that they do not probe in memory ([`Unasked`]).
//!
//! Invariant: whatever is resident or dormant, no key of the table is denied.
//!
//! Not here: making the next value ([`super::filter`]); the decision (package `shamba`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use shamba_filter::{FilterGeometry, Line, Question};
use shamba_key::KeyDigest;

use crate::ledger::Charge;

/// Treatment of modules that lookups do not probe in memory. Bit masks, the first module in the
/// lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unasked {
    /// Modules that are fetched where they are not resident; the others are then skipped.
    pub fetched: u8,
    /// Dormant modules: resident, but skipped.
    pub dormant: u8,
}

/// A slice in memory, shared by its holders.
#[derive(Clone, Debug)]
pub(super) struct ResidentSlice {
    /// Whole lines, aligned as such.
    bytes: Bytes,
    _charge: Arc<Charge>,
}

impl ResidentSlice {
    pub(super) fn new(bytes: Bytes, charge: Charge) -> Self {
        assert!(Line::view(&bytes).is_some(), "a slice of {} bytes is not lines", bytes.len());
        Self { bytes, _charge: Arc::new(charge) }
    }
}

/// The resident part of a table's filter at one moment, and the treatment of the other part.
#[derive(Clone)]
pub struct ResidentFilter {
    geometry: FilterGeometry,
    /// One entry per slice of the geometry.
    slices: Arc<[Option<ResidentSlice>]>,
    /// Modules with at least one resident slice that are not dormant, the first one in the lowest
    /// bit.
    asked: u8,
    /// Modules that are fetched where they are not resident.
    fetched: u8,
    /// The first module can be probed on the fast path: it is resident, not dormant, and each key
    /// has one line in it.
    first_is_quick: bool,
    /// Whether a lookup has more to do than probe the first module.
    has_more: bool,
}

// Fits on one cache line together with the reader's pointer.
const _: () = assert!(size_of::<ResidentFilter>() <= 56);

impl ResidentFilter {
    pub(super) fn new(
        geometry: FilterGeometry,
        slices: Arc<[Option<ResidentSlice>]>,
        unasked: Unasked,
    ) -> Self {
        let Unasked { fetched, dormant } = unasked;
        assert_eq!(slices.len(), geometry.slices(), "one entry for each slice of the geometry");
        let asked = held_modules(&geometry, &slices) & !dormant;
        debug_assert!(geometry.modules().len() <= u8::BITS as usize, "a module without a bit in the masks");
        let first_is_quick = asked & 1 == 1 && geometry.has_lines();
        let has_more = geometry.modules().len() > 1 || fetched != 0 || !first_is_quick;
        Self { geometry, slices, asked, fetched, first_is_quick, has_more }
    }

    /// The geometry with which the filter was built.
    pub fn geometry(&self) -> &FilterGeometry {
        &self.geometry
    }

    /// Modules that lookups probe where the key's slice is resident: those with at least one
    /// resident slice that are not dormant. The first one in the lowest bit.
    pub fn asked(&self) -> u8 {
        self.asked
    }

    /// Treatment of the other modules.
    pub fn unasked(&self) -> Unasked {
        let dormant = held_modules(&self.geometry, &self.slices) & !self.asked;
        Unasked { fetched: self.fetched, dormant }
    }

    /// Whether lookups fetch `module` where it is not resident.
    #[inline]
    pub fn fetches(&self, module: usize) -> bool {
        debug_assert!(
            module < self.geometry.modules().len(),
            "module {module} of {}",
            self.geometry.modules().len()
        );
        self.fetched >> module & 1 == 1
    }

    /// All slices; `None` for each that is not resident.
    pub(super) fn slices(&self) -> Vec<Option<ResidentSlice>> {
        self.slices.to_vec()
    }

    /// Number of resident slices of `module`.
    pub fn held_slices(&self, module: usize) -> usize {
        self.slices.get(self.geometry.slices_of(module)).unwrap_or_default().iter().flatten().count()
    }

    /// Number of slices that are not resident.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|slice| slice.is_none()).count()
    }

    /// Bytes of the resident slices.
    pub fn held_bytes(&self) -> u64 {
        bytes_of(&self.slices)
    }

    /// Bytes of the resident slices of dormant modules.
    pub fn dormant_bytes(&self) -> u64 {
        let dormant = self.unasked().dormant;
        let modules = (0..self.geometry.modules().len()).filter(|module| dormant >> module & 1 == 1);
        modules.filter_map(|module| Some(bytes_of(self.slices.get(self.geometry.slices_of(module))?))).sum()
    }

    /// Prepares the probe of the first module. With `prefetch`, prefetches its line and the lines
    /// of the other resident modules. Without a resident line the probe is not answerable.
    /// [`Self::has_more`] says whether other modules remain.
    #[inline(always)]
    pub fn ask(&self, digest: KeyDigest, prefetch: bool) -> Question<'_> {
        if !self.first_is_quick {
            return self.ask_later(digest, prefetch);
        }
        debug_assert!(self.asked & 1 == 1, "the first module is probed, but not resident");
        let site = self.geometry.first_site(digest);
        let question = site.question(self.lines(site.slice()));
        if prefetch {
            question.prefetch();
            if self.asked > 1 {
                self.prefetch_others(digest);
            }
        }
        question
    }

    /// Whether a "maybe" of the first module leaves other modules: to probe with [`Self::module`],
    /// to fetch, or to skip.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// [`Self::ask`] without a first module on the fast path: there is nothing to probe yet.
    #[cold]
    fn ask_later(&self, digest: KeyDigest, prefetch: bool) -> Question<'_> {
        if prefetch {
            for module in (0..self.geometry.modules().len()).filter(|module| self.asked >> module & 1 == 1) {
                let site = self.geometry.module_site(digest, module);
                site.inspect(|site| site.prefetch(self.lines(site.slice())));
            }
        }
        Question::unanswerable()
    }

    fn prefetch_others(&self, digest: KeyDigest) {
        for site in self.geometry.sites(digest, self.asked & !1) {
            site.question(self.lines(site.slice())).prefetch();
        }
    }

    /// The answer of module `module`; `None` if the slice is not resident, or the module is
    /// dormant.
    #[inline]
    pub fn module(&self, digest: KeyDigest, module: usize) -> Option<bool> {
        if self.asked >> module & 1 == 0 {
            return None;
        }
        let site = self.geometry.module_site(digest, module)?;
        self.lines(site.slice()).map(|lines| site.maybe(Some(lines)))
    }

    /// Whether the key of `digest` may be in the table, by the resident modules.
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        (0..self.geometry.modules().len()).all(|module| self.module(digest, module).unwrap_or(true))
    }

    #[inline(always)]
    fn lines(&self, slice: usize) -> Option<&[Line]> {
        self.slices.get(slice)?.as_ref().and_then(|slice| Line::view(&slice.bytes))
    }
}

impl fmt::Debug for ResidentFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filter = f.debug_struct("ResidentFilter");
        filter.field("geometry", &self.geometry).field("absent_slices", &self.absent_slices());
        filter.field("unasked", &self.unasked()).finish()
    }
}

fn bytes_of(slices: &[Option<ResidentSlice>]) -> u64 {
    slices.iter().flatten().map(|slice| slice.bytes.len() as u64).sum()
}

/// Mask of the modules with at least one resident slice.
pub(super) fn held_modules(geometry: &FilterGeometry, slices: &[Option<ResidentSlice>]) -> u8 {
    let is_held = |module: usize| {
        let of_module = slices.get(geometry.slices_of(module)).unwrap_or_default();
        of_module.iter().any(Option::is_some)
    };
    (0..geometry.modules().len()).filter(|module| is_held(*module)).fold(0, |mask, module| mask | 1 << module)
}
