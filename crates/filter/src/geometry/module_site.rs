//! The position of a key in a module, whatever the family.
//!
//! Lookups ask blocked modules through [`Site`] and its question, which is prepared long before it
//! is answered. All other families, and slices that are read for one lookup, come this way.

use super::Site;
use crate::ribbon::RibbonSite;
use crate::simd::lines::Line;
use crate::standard::StandardSite;

/// The position of a digest in one module of any family:
/// [`module_site`](crate::FilterGeometry::module_site).
#[derive(Clone, Copy)]
pub enum ModuleSite {
    /// In a blocked module.
    Line(Site),
    /// In a standard filter.
    Standard(StandardSite),
    /// In a ribbon module.
    Ribbon(RibbonSite),
}

impl ModuleSite {
    /// The number of the slice, counted through all modules.
    #[inline]
    pub fn slice(self) -> usize {
        match self {
            Self::Line(site) => site.slice(),
            Self::Standard(site) => site.slice(),
            Self::Ribbon(site) => site.slice(),
        }
    }

    /// Whether the key may be among those that the filter was built from, given the lines of the
    /// slice; `false` is certain. An absent slice means "maybe", and so do lines that are missing
    /// from the slice.
    #[inline]
    pub fn maybe(self, lines: Option<&[Line]>) -> bool {
        match self {
            Self::Line(site) => site.question(lines).maybe(),
            Self::Standard(site) => site.maybe(lines),
            Self::Ribbon(site) => site.maybe(lines),
        }
    }

    /// Prefetches the lines that [`Self::maybe`] may read.
    #[inline]
    pub fn prefetch(self, lines: Option<&[Line]>) {
        match self {
            Self::Line(site) => site.question(lines).prefetch(),
            Self::Standard(site) => site.prefetch(lines),
            Self::Ribbon(site) => site.prefetch(lines),
        }
    }
}
