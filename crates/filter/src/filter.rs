//! A filter of any family that owns its slices.
//!
//! A table's writer builds it; a reader holds it if all slices are in memory, or all except the
//! damaged ones. A clone shares the lines. A filter is immutable once made, so threads share it
//! freely.
//!
//! Not here: filters whose slices are loaded and evicted. For them [`FilterGeometry`] gives the
//! position of a digest's bits, and the caller holds the slices.

use crate::geometry::{ALL_MODULES, FilterGeometry, ModuleShape, ModuleSite};
use crate::layout::FilterLayout;
use crate::ribbon::build::{build, scratch_bytes};
use crate::simd::lines::{Line, Lines};
use shamba_key::KeyDigest;
use std::fmt;
use std::iter::repeat_n;
use std::sync::Arc;

/// A filter of any family, in memory.
#[derive(Clone)]
pub struct Filter {
    geometry: FilterGeometry,
    /// One per slice of the geometry; absent slices are empty.
    slices: Arc<[Lines]>,
}

impl Filter {
    /// Builds the filter of `digests` with `layout`, at `bits_per_key` over all modules together
    /// (may be fractional; at most [`crate::MAX_BITS_PER_KEY`]); `None` without keys or bits. Equal
    /// consecutive digests, as of versions of one key, count as one key.
    pub fn build(digests: &[KeyDigest], layout: FilterLayout, bits_per_key: f64) -> Option<Self> {
        let repeated = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let geometry = FilterGeometry::new(digests.len() - repeated, bits_per_key, layout)?;
        if let Some(slices) = ribbon_slices(&geometry, digests) {
            return Some(Self { geometry, slices });
        }
        let mut slices: Vec<Lines> = Vec::with_capacity(geometry.slices());
        for module in geometry.modules() {
            slices.resize_with(slices.len() + module.slices(), || Lines::zeroed(module.lines_per_slice()));
        }
        // Module by module, so that one module's lines are in the processor's cache at a time.
        for (module, shape) in geometry.modules().iter().enumerate() {
            let first_slice = geometry.slices_of(module).start;
            for digest in digests {
                if let Some(site) = geometry.standard_site(*digest) {
                    if let Some(lines) = slices.get_mut(site.slice()) {
                        site.set(lines.all_mut());
                    }
                    continue;
                }
                let site = geometry.site_at(module as u8, first_slice as u32, *shape, *digest);
                if let Some(line) = slices.get_mut(site.slice()).and_then(|lines| lines.line_mut(site.line()))
                {
                    site.set(line);
                }
            }
        }
        Some(Self { geometry, slices: slices.into() })
    }

    /// Approximate maximum memory of [`Self::build`] besides the filter itself, in bytes.
    pub fn scratch_bytes(keys: usize, layout: FilterLayout, bits_per_key: f64) -> u64 {
        if !matches!(layout, FilterLayout::Ribbon(_)) {
            return 0;
        }
        // One module is built at a time.
        let share = layout.modules().shares().fold(1.0, f64::min);
        scratch_bytes(keys, share * bits_per_key)
    }

    /// The filter of `geometry` whose slices were read from a file, in order; `None` for absent
    /// slices, which are damaged or not in memory: they answer "maybe" for every key.
    ///
    /// # Errors
    /// Slices that do not match the geometry in number or size.
    pub fn from_slices(geometry: FilterGeometry, slices: Vec<Option<Box<[u8]>>>) -> Result<Self, String> {
        if slices.len() != geometry.slices() {
            return Err(format!("{} filter slices, expected {}", slices.len(), geometry.slices()));
        }
        let sizes_of = |module: &ModuleShape| repeat_n(module.slice_bytes(), module.slices());
        let sizes = geometry.modules().iter().flat_map(sizes_of);
        for (number, (slice, expected)) in slices.iter().zip(sizes).enumerate() {
            let found = slice.as_ref().map_or(expected, |slice| slice.len());
            if found != expected {
                return Err(format!("filter slice {number} has {found} bytes, expected {expected}"));
            }
        }
        let slices = slices.into_iter().map(|slice| Lines::of(&slice.unwrap_or_default())).collect();
        Ok(Self { geometry, slices })
    }

    /// The geometry with which the filter was built.
    pub fn geometry(&self) -> &FilterGeometry {
        &self.geometry
    }

    /// The slices that are present, with their numbers, in order.
    pub fn slices(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let numbered = self.slices.iter().enumerate();
        numbered.filter(|(_, lines)| !lines.is_absent()).map(|(number, lines)| (number, lines.as_bytes()))
    }

    /// The lines of slice number `slice`; `None` when it is absent.
    #[inline]
    pub fn lines(&self, slice: usize) -> Option<&[Line]> {
        self.slices.get(slice).and_then(Lines::present)
    }

    /// Number of absent slices.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|lines| lines.is_absent()).count()
    }

    /// Whether the key of `digest` may be among those that the filter was built from; `false` is
    /// certain.
    #[inline]
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        self.modules_may_contain(digest, ALL_MODULES)
    }

    /// As [`Self::may_contain`], for a subset of the modules: bit d of `asked` selects module d.
    /// The modules are probed in order up to the first that rejects the key. A standard filter has
    /// one module.
    #[inline]
    pub fn modules_may_contain(&self, digest: KeyDigest, asked: u8) -> bool {
        if !self.geometry.has_lines() {
            return self.module_sites(digest, asked).all(|site| site.maybe(self.lines(site.slice())));
        }
        let mut sites = self.geometry.sites(digest, asked);
        sites.all(|site| site.question(self.lines(site.slice())).maybe())
    }

    /// Positions of `digest` in the selected modules of a filter of any family.
    fn module_sites(&self, digest: KeyDigest, asked: u8) -> impl Iterator<Item = ModuleSite> {
        let modules = (0..self.geometry.modules().len()).filter(move |module| asked >> module & 1 == 1);
        modules.filter_map(move |module| self.geometry.module_site(digest, module))
    }

    /// Prefetches the lines of `digest` in all modules.
    #[inline]
    pub fn prefetch(&self, digest: KeyDigest) {
        self.module_sites(digest, ALL_MODULES).for_each(|site| site.prefetch(self.lines(site.slice())));
    }
}

/// The slices of a ribbon filter; `None` for a filter of another family.
fn ribbon_slices(geometry: &FilterGeometry, digests: &[KeyDigest]) -> Option<Arc<[Lines]>> {
    let module = |(module, shape): (usize, &ModuleShape)| {
        let ribbon = geometry.ribbon_shape(module)?;
        Some(build(digests, module as u8, ribbon, shape.lines_per_slice()))
    };
    let modules: Option<Vec<Vec<Lines>>> = geometry.modules().iter().enumerate().map(module).collect();
    modules.map(|modules| modules.into_iter().flatten().collect())
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filter = f.debug_struct("Filter");
        filter.field("geometry", &self.geometry).field("absent_slices", &self.absent_slices()).finish()
    }
}

#[cfg(test)]
mod tests;
