//! The geometry of a filter of any family: its slices, and those that hold a digest's bits.
//!
//! A filter has one to seven modules. Each is cut into a power of two of equal slices of at most 64
//! KiB, numbered through the whole filter, module by module. The holder of the slices decides which
//! of them are in memory. The geometry gives the position of a digest's bits, and an absent module
//! or slice means "maybe":
//!
//! ```
//! # use shamba_filter::{Filter, FilterGeometry, FilterLayout, Line, Modules};
//! # use shamba_key::KeyDigest;
//! # let digests: Vec<KeyDigest> = (0..1000).map(KeyDigest::from_raw).collect();
//! # let layout = FilterLayout::Modular(Modules::equal(3).unwrap());
//! # let filter = Filter::build(&digests, layout, 10.0).unwrap();
//! # let slices = filter.slices().map(|(_, slice)| Some(Line::boxed(slice)));
//! # let slices: Vec<Option<Box<[Line]>>> = slices.collect();
//! # let (geometry, digest, resident) = (*filter.geometry(), digests[7], 0b101);
//! let mut questions = [None; shamba_filter::MAX_MODULES];
//! for (question, site) in questions.iter_mut().zip(geometry.sites(digest, resident)) {
//!     let asked = site.question(slices[site.slice()].as_deref()); // One load of a pointer.
//!     asked.prefetch();
//!     *question = Some(asked);
//! }
//! // ...and after the lines of all other filters have been prefetched too:
//! let maybe = questions.iter().flatten().all(|question| question.maybe());
//! assert!(maybe);
//! ```
//!
//! Invariants: every field is within the limits of [`crate::FilterShape`], so sizes never overflow.
//! The size is at most 32 bytes, so that it fits on one cache line together with the residency mask
//! and the pointer to the slice pointers.
//!
//! Not here: the stored form ([`mod@encode`]); the position of a key within a module
//! ([`crate::place`]); a filter that owns its slices ([`crate::Filter`]).

mod encode;
mod module_site;

use crate::fpr::{best_probes, best_standard_probes};
use crate::layout::{FilterLayout, MAX_MODULES, MAX_RIBBON_MODULES, Modules, Probing};
use crate::limits::MAX_BITS_PER_KEY;
use crate::place::BitPlace;
use crate::question::Question;
use crate::ribbon::{self, RibbonShape};
use crate::shape::{FilterFamily, FilterShape, check, check_size, cut};
use crate::simd::Prober;
use crate::simd::lines::Line;
use crate::standard::StandardSite;
use crate::{LINE_BITS, LINE_BYTES};
use shamba_key::KeyDigest;

pub use self::module_site::ModuleSite;

/// Mask that selects all modules in [`FilterGeometry::sites`]: for a filter that is entirely in
/// memory.
pub const ALL_MODULES: u8 = u8::MAX;

/// Entry of `modules` that holds the number of segments of ribbon module 0. The entries of a ribbon
/// filter beyond its last module are free for this, and the geometry keeps its size.
const SEGMENTS_AT: usize = MAX_MODULES - MAX_RIBBON_MODULES;

const _: () = assert!(SEGMENTS_AT >= MAX_RIBBON_MODULES);

/// Size and probes of one module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ModuleShape {
    lines_per_slice: u16,
    slices_log2: u8,
    probes: u8,
}

/// Family, modules and their shapes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FilterGeometry {
    /// The first `count` are in use.
    modules: [ModuleShape; MAX_MODULES],
    count: u8,
    family: FilterFamily,
    prober: Prober,
}

const _: () = assert!(size_of::<FilterGeometry>() <= 32);

/// The position of a digest's bits in one module: [`FilterGeometry::sites`].
#[derive(Clone, Copy)]
pub struct Site {
    slice: u32,
    line: u32,
    probe: u32,
    probes: u8,
    module: u8,
    prober: Prober,
}

const _: () = assert!(size_of::<Site>() == 16);

impl ModuleShape {
    fn new(probes: u8, slices_log2: u8, lines_per_slice: u32) -> Result<Self, String> {
        check(probes, slices_log2, lines_per_slice)?;
        Ok(Self { lines_per_slice: lines_per_slice as u16, slices_log2, probes })
    }

    /// The bits that each key sets, 1 to 16; of a ribbon module its columns, 0 to 16.
    pub fn probes(self) -> u8 {
        self.probes
    }

    /// The number of slices, a power of two.
    pub fn slices(self) -> usize {
        1 << self.slices_log2
    }

    /// The bytes of each slice.
    pub fn slice_bytes(self) -> usize {
        self.lines_per_slice() * LINE_BYTES
    }

    /// The lines of each slice, 1 to 1024.
    pub fn lines_per_slice(self) -> usize {
        usize::from(self.lines_per_slice)
    }

    /// The bytes of all slices.
    pub fn total_bytes(self) -> u64 {
        self.slices() as u64 * self.slice_bytes() as u64
    }
}

impl FilterGeometry {
    /// The geometry of a filter for `keys` keys at `bits_per_key` (may be fractional; at most
    /// [`MAX_BITS_PER_KEY`]); `None` without keys or bits.
    ///
    /// The total number of bits over all modules is preserved: the next module compensates the bits
    /// that a module gains or loses by whole lines and equal slices. The sum is off by at most half
    /// a line per slice of the last module. A filter too small to give each module a line gets
    /// fewer modules.
    pub fn new(keys: usize, bits_per_key: f64, layout: FilterLayout) -> Option<Self> {
        if keys == 0 || bits_per_key.is_nan() || bits_per_key <= 0.0 {
            return None;
        }
        let bits_per_key = bits_per_key.min(MAX_BITS_PER_KEY);
        let layout = match layout {
            FilterLayout::Ribbon(_) if keys < ribbon::MIN_KEYS => FilterLayout::Modular(layout.modules()),
            layout => layout,
        };
        let lines = keys as f64 * bits_per_key / LINE_BITS as f64;
        let (mut sizes, mut cuts) = (layout.modules(), cut_all(layout.modules(), lines));
        while cuts.is_none() {
            sizes = sizes.one_fewer();
            cuts = cut_all(sizes, lines);
        }
        let mut geometry = Self::empty(match layout {
            FilterLayout::Standard(Probing::Rotation) => FilterFamily::StandardRotation,
            FilterLayout::Standard(Probing::DoubleHashing) => FilterFamily::StandardDoubleHashing,
            FilterLayout::Modular(_) if sizes.count() > 1 => FilterFamily::Modular,
            FilterLayout::Ribbon(_) => FilterFamily::Ribbon,
            FilterLayout::Blocked | FilterLayout::Modular(_) => FilterFamily::Blocked,
        });
        for ((slices_log2, lines_per_slice), share) in cuts?.into_iter().zip(sizes.shares()) {
            let probes = match layout {
                FilterLayout::Ribbon(_) => {
                    let keys_per_slice = keys as f64 / f64::from(1u32 << slices_log2);
                    let segments = ribbon::segments_for(lines_per_slice, keys_per_slice);
                    geometry.push_ribbon(slices_log2, lines_per_slice, segments).ok()?;
                    continue;
                }
                FilterLayout::Standard(_) => best_standard_probes(share * bits_per_key),
                FilterLayout::Blocked | FilterLayout::Modular(_) => best_probes(share * bits_per_key),
            };
            geometry.push(ModuleShape::new(probes, slices_log2, lines_per_slice).ok()?);
        }
        Some(geometry)
    }

    fn empty(family: FilterFamily) -> Self {
        let modules = [ModuleShape::default(); MAX_MODULES];
        Self { modules, count: 0, family, prober: Prober::best() }
    }

    /// Adds a module; the caller ensures that there is space for it.
    fn push(&mut self, module: ModuleShape) {
        if let Some(place) = self.modules.get_mut(usize::from(self.count)) {
            *place = module;
            self.count += 1;
        }
    }

    /// Adds a ribbon module.
    ///
    /// # Errors
    /// A field outside its limits, or more than [`MAX_RIBBON_MODULES`].
    fn push_ribbon(&mut self, slices_log2: u8, lines_per_slice: u32, segments: u16) -> Result<(), String> {
        check_size(slices_log2, lines_per_slice)?;
        let columns = RibbonShape::new(slices_log2, lines_per_slice, segments)?.columns();
        let at = SEGMENTS_AT + usize::from(self.count);
        let place = self.modules.get_mut(at).ok_or_else(|| "too many ribbon modules".to_owned())?;
        place.lines_per_slice = segments;
        let lines_per_slice = lines_per_slice as u16;
        self.push(ModuleShape { lines_per_slice, slices_log2, probes: columns });
        Ok(())
    }

    /// The number of segments of each slice of ribbon module `module`.
    #[inline(always)]
    fn segments_of(&self, module: usize) -> u16 {
        self.modules.get(SEGMENTS_AT + module).map_or(0, |place| place.lines_per_slice)
    }

    /// The shape of ribbon module `module`; `None` if there is none, or for another family.
    #[inline(always)]
    pub(crate) fn ribbon_shape(&self, module: usize) -> Option<RibbonShape> {
        let shape = self.modules().get(module).filter(|_| self.family == FilterFamily::Ribbon)?;
        let ModuleShape { lines_per_slice, slices_log2, probes } = *shape;
        Some(RibbonShape::known(slices_log2, lines_per_slice, self.segments_of(module), probes))
    }

    /// The family. A modular filter of one module is a blocked one.
    pub fn family(&self) -> FilterFamily {
        self.family
    }

    /// The modules, in probe order.
    pub fn modules(&self) -> &[ModuleShape] {
        &self.modules[..usize::from(self.count)]
    }

    /// The number of slices of all modules together.
    pub fn slices(&self) -> usize {
        self.modules().iter().map(|module| module.slices()).sum()
    }

    /// The numbers of the slices of module `module`; empty if there is no such module.
    pub fn slices_of(&self, module: usize) -> std::ops::Range<usize> {
        let before = self.modules().iter().take(module).map(|module| module.slices()).sum();
        before..before + self.modules().get(module).map_or(0, |module| module.slices())
    }

    /// The bytes of all slices, without checksums.
    pub fn total_bytes(&self) -> u64 {
        self.modules().iter().map(|module| module.total_bytes()).sum()
    }

    /// Positions of the bits of `digest`, one per selected module: bit d of `asked` selects module
    /// d. A caller selects the modules that are at least partly in memory and not dormant. If any
    /// of the positions rejects the key, the key is absent. Filters of other families than blocked
    /// and modular have none: see [`Self::module_site`].
    #[inline(always)]
    pub fn sites(&self, digest: KeyDigest, asked: u8) -> impl Iterator<Item = Site> {
        let count = if self.has_lines() { usize::from(self.count) } else { 0 };
        let mut first_slice = 0;
        let modules = self.modules.iter().take(count).enumerate();
        modules.filter_map(move |(module, shape)| {
            let first = first_slice;
            first_slice += 1 << shape.slices_log2;
            (asked >> module & 1 == 1).then(|| self.site_at(module as u8, first, *shape, digest))
        })
    }

    /// The position of the bits of `digest` in the first module, without a search for it. Not
    /// meaningful unless [`Self::has_lines`].
    #[inline(always)]
    pub fn first_site(&self, digest: KeyDigest) -> Site {
        self.site_at(0, 0, self.modules[0], digest)
    }

    /// The position of the bits of `digest` in module `module`; `None` if there is no such module,
    /// and unless [`Self::has_lines`].
    #[inline]
    pub fn site(&self, digest: KeyDigest, module: usize) -> Option<Site> {
        if module >= MAX_MODULES {
            return None;
        }
        self.sites(digest, 1 << module).next()
    }

    /// The position of the bits of `digest` in a blocked module of this number and shape.
    #[inline(always)]
    pub(crate) fn site_at(
        &self,
        module: u8,
        first_slice: u32,
        shape: ModuleShape,
        digest: KeyDigest,
    ) -> Site {
        let bits = digest.module(module);
        let place = BitPlace::at(bits, shape.slices_log2, u32::from(shape.lines_per_slice));
        Site {
            slice: first_slice + place.slice as u32,
            line: place.line as u32,
            probe: place.probe,
            probes: shape.probes,
            module,
            prober: self.prober,
        }
    }

    /// The position of `digest` in module `module` of a filter of any family; `None` if there is no
    /// such module.
    #[inline]
    pub fn module_site(&self, digest: KeyDigest, module: usize) -> Option<ModuleSite> {
        if self.has_lines() {
            return self.site(digest, module).map(ModuleSite::Line);
        }
        if let Some(shape) = self.ribbon_shape(module) {
            let first_slice = self.modules.iter().take(module).map(|module| 1u32 << module.slices_log2).sum();
            return Some(ModuleSite::Ribbon(shape.site(first_slice, digest.module(module as u8))));
        }
        let site = self.standard_site(digest).filter(|_| module == 0);
        site.map(ModuleSite::Standard)
    }

    /// Whether all bits of a key in a module lie on one line ([`Self::sites`]): the families
    /// blocked and modular.
    #[inline(always)]
    pub fn has_lines(&self) -> bool {
        matches!(self.family, FilterFamily::Blocked | FilterFamily::Modular)
    }

    /// The layout of a filter with one module like each of these.
    pub fn module_layout(&self) -> FilterLayout {
        match self.family {
            FilterFamily::StandardRotation => FilterLayout::Standard(Probing::Rotation),
            FilterFamily::StandardDoubleHashing => FilterLayout::Standard(Probing::DoubleHashing),
            FilterFamily::Blocked | FilterFamily::Modular => FilterLayout::Blocked,
            FilterFamily::Ribbon => FilterLayout::Ribbon(Modules::ONE),
        }
    }

    /// The position of the bits of `digest` in a standard filter; `None` for another family.
    pub fn standard_site(&self, digest: KeyDigest) -> Option<StandardSite> {
        let (probing, shape) = (self.standard_probing()?, self.modules().first()?);
        let lines = u32::from(shape.lines_per_slice);
        Some(StandardSite::new(digest, probing, shape.probes, shape.slices_log2, lines))
    }

    #[inline(always)]
    fn standard_probing(&self) -> Option<Probing> {
        match self.family {
            FilterFamily::StandardRotation => Some(Probing::Rotation),
            FilterFamily::StandardDoubleHashing => Some(Probing::DoubleHashing),
            FilterFamily::Blocked | FilterFamily::Modular | FilterFamily::Ribbon => None,
        }
    }
}

/// Slices and lines of each module when all together are to have `lines`. The next module
/// compensates a module's surplus or deficit. `None` when a module that is not the only one would
/// have no line.
fn cut_all(sizes: Modules, lines: f64) -> Option<Vec<(u8, u32)>> {
    let (mut wanted, mut given) = (0.0, 0.0);
    let module = |share: f64| {
        wanted += share * lines;
        let left = wanted - given;
        let (slices_log2, lines_per_slice) = cut(left);
        given += f64::from(lines_per_slice) * f64::from(1u32 << slices_log2);
        (left >= 0.5 || sizes.count() == 1).then_some((slices_log2, lines_per_slice))
    };
    sizes.shares().map(module).collect()
}

impl std::fmt::Debug for FilterGeometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut geometry = f.debug_struct("FilterGeometry");
        geometry.field("family", &self.family).field("modules", &self.modules()).finish()
    }
}

/// # Errors
/// A field outside its limits, or another family than blocked.
impl TryFrom<FilterShape> for FilterGeometry {
    type Error = String;

    fn try_from(shape: FilterShape) -> Result<Self, String> {
        shape.check()?;
        let mut geometry = Self::empty(shape.family);
        geometry.push(ModuleShape::new(shape.probes, shape.slices_log2, shape.lines_per_slice)?);
        Ok(geometry)
    }
}

impl Site {
    /// The number of the slice, counted through all modules.
    #[inline]
    pub fn slice(self) -> usize {
        self.slice as usize
    }

    /// The module.
    #[inline]
    pub fn module(self) -> usize {
        usize::from(self.module)
    }

    /// The number of the line within the slice.
    #[inline]
    pub fn line(self) -> usize {
        self.line as usize
    }

    /// The question for this key, given the lines of the slice. Without lines its answer is
    /// "maybe".
    #[inline(always)]
    pub fn question(self, lines: Option<&[Line]>) -> Question<'_> {
        let line = lines.and_then(|lines| lines.get(self.line()));
        Question::new(line, self.probe, self.probes, self.prober)
    }

    /// Sets the bits of the key in its line.
    pub(crate) fn set(self, line: &mut Line) {
        line.set(self.probe, self.probes);
    }
}

#[cfg(test)]
mod tests;
