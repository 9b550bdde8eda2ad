//! What memory holds of a table's filter at one moment, and asking it.
//!
//! A [`ResidentFilter`] is a value that never changes: lookups ask the one that their view was made with and touch no lock and no
//! count. Of each module it holds all slices, some or none, and says what lookups do with those that they do not ask ([`Unasked`]).
//!
//! Invariant: whatever is held or rests, no key of the table is denied.
//!
//! Not here: making the next one ([`super::filter`]); who decides (package `shamba`).

use std::fmt;
use std::sync::Arc;

use shamba_filter::{FilterGeometry, Line, Question};
use shamba_key::KeyDigest;
use shamba_key::planted::{Defect, is_planted};

use crate::ledger::Charge;

/// What lookups do with modules that they do not ask in memory. Masks, the first module in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unasked {
    /// They are fetched where they are not held; all others are skipped then.
    pub fetched: u8,
    /// They are skipped though they are held.
    pub resting: u8,
}

/// A slice in memory, for as long as somebody holds it.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    lines: Arc<[Line]>,
    _charge: Arc<Charge>,
}

impl Slice {
    pub(super) fn new(lines: Arc<[Line]>, charge: Charge) -> Self {
        Self { lines, _charge: Arc::new(charge) }
    }
}

/// What memory holds of a table's filter at one moment, and what is done about the rest.
#[derive(Clone)]
pub struct ResidentFilter {
    geometry: FilterGeometry,
    /// As many as the geometry says.
    slices: Arc<[Option<Slice>]>,
    /// Modules of which a slice is held and that do not rest, the first one in the lowest bit.
    asked: u8,
    /// Modules that are fetched where they are not held.
    fetched: u8,
    /// The first module is asked in the short way: neither standard nor absent nor resting.
    first_is_quick: bool,
    /// There is more to do than to ask the first module.
    has_more: bool,
}

// With the reader beside it, on one cache line.
const _: () = assert!(size_of::<ResidentFilter>() <= 56);

impl ResidentFilter {
    pub(super) fn new(geometry: FilterGeometry, slices: Arc<[Option<Slice>]>, unasked: Unasked) -> Self {
        let Unasked { fetched, resting } = unasked;
        let asked = held_modules(&geometry, &slices) & !resting;
        let first_is_quick = asked & 1 == 1 && !geometry.is_standard();
        let has_more = geometry.modules().len() > 1 || fetched != 0 || !first_is_quick;
        Self { geometry, slices, asked, fetched, first_is_quick, has_more }
    }

    /// What the filter was built as.
    pub fn geometry(&self) -> &FilterGeometry {
        &self.geometry
    }

    /// The modules that lookups ask where memory holds the key's slice: those of which it holds any and that do not rest. The first
    /// one in the lowest bit.
    pub fn asked(&self) -> u8 {
        self.asked
    }

    /// What lookups do with the others.
    pub fn unasked(&self) -> Unasked {
        let resting = held_modules(&self.geometry, &self.slices) & !self.asked;
        Unasked { fetched: self.fetched, resting }
    }

    /// Whether lookups fetch `module` where it is not held.
    #[inline]
    pub fn fetches(&self, module: usize) -> bool {
        self.fetched >> module & 1 == 1
    }

    /// Every slice, and of each whether it is held.
    pub(super) fn slices(&self) -> Vec<Option<Slice>> {
        self.slices.to_vec()
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
        bytes_of(&self.slices)
    }

    /// The bytes of those that rest.
    pub fn resting_bytes(&self) -> u64 {
        let resting = self.unasked().resting;
        let modules = (0..self.geometry.modules().len()).filter(|module| resting >> module & 1 == 1);
        modules.filter_map(|module| Some(bytes_of(self.slices.get(self.geometry.slices_of(module))?))).sum()
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
            if self.asked > 1 {
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
        for site in self.geometry.sites(digest, self.asked & !1) {
            site.question(self.lines(site.slice())).prefetch();
        }
    }

    /// What module `module` says; `None` if memory does not hold the slice, or the module rests.
    #[inline]
    pub fn module(&self, digest: KeyDigest, module: usize) -> Option<bool> {
        if self.asked >> module & 1 == 0 {
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
        filter.field("unasked", &self.unasked()).finish()
    }
}

fn bytes_of(slices: &[Option<Slice>]) -> u64 {
    slices.iter().flatten().map(|slice| size_of_val(&*slice.lines) as u64).sum()
}

/// The modules of which any slice is there.
pub(super) fn held_modules(geometry: &FilterGeometry, slices: &[Option<Slice>]) -> u8 {
    let is_held = |module: usize| {
        let of_module = slices.get(geometry.slices_of(module)).unwrap_or_default();
        of_module.iter().any(Option::is_some)
    };
    (0..geometry.modules().len()).filter(|module| is_held(*module)).fold(0, |mask, module| mask | 1 << module)
}
