//! The blocked filter: all probes of a key are in one 64-byte line.
//!
//! A lookup costs one cache miss whatever the number of probes, and no branch depends on the bits
//! read. The price is a false-positive rate slightly above the standard filter's, since lines fill
//! unevenly ([`crate::fpr::blocked_fpr`]): 0.97 % instead of 0.82 % at 10 bits per key.
//!
//! The 64 bits of the remix of module 0 determine the position of a key ([`crate::place`]): this
//! family is the modular one with a single module, in its first and simplest form.
//!
//! Invariants: every slice has `lines_per_slice` whole lines; there are `2^slices_log2` slots for
//! slices, some possibly empty. A filter is immutable once made, so threads share it freely.
//!
//! Not here: the formulas behind the number of probes ([`crate::fpr`]); the stored description
//! ([`FilterShape`]); filters with more modules, or with slices that the caller holds
//! ([`crate::Filter`], [`crate::FilterGeometry`]).

use crate::place::Place;
use crate::question::Question;
use crate::shape::{FilterFamily, FilterShape};
use crate::simd::Prober;
use crate::simd::lines::Lines;
use shamba_key::KeyDigest;
use std::fmt;
use std::sync::Arc;

/// A filter that costs one cache line per lookup. A clone shares the lines.
#[derive(Clone)]
pub struct BlockedFilter {
    shape: FilterShape,
    prober: Prober,
    /// One per slice of the shape; absent slices are empty.
    slices: Arc<[Lines]>,
}

impl fmt::Debug for BlockedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedFilter")
            .field("shape", &self.shape)
            .field("absent_slices", &self.absent_slices())
            .finish()
    }
}

impl BlockedFilter {
    /// Builds the filter of `digests` at `bits_per_key` (may be fractional; at most
    /// [`crate::MAX_BITS_PER_KEY`]); `None` without keys or bits. Equal consecutive digests, as of
    /// versions of one key, count as one key.
    pub fn build(digests: &[KeyDigest], bits_per_key: f64) -> Option<Self> {
        let repeated = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let shape = FilterShape::blocked(digests.len() - repeated, bits_per_key)?;
        let mut slices = vec![Lines::zeroed(shape.lines_per_slice as usize); shape.slices()];
        for digest in digests {
            let place = place(shape, *digest);
            if let Some(line) = slices.get_mut(place.slice).and_then(|lines| lines.line_mut(place.line)) {
                line.set(place.probe, shape.probes);
            }
        }
        Some(Self { shape, prober: Prober::best(), slices: slices.into() })
    }

    /// The filter of `shape` whose slices were read from a file.
    ///
    /// # Errors
    /// A shape outside its limits, or slices that do not match it in number or size.
    pub fn from_slices(shape: FilterShape, slices: Vec<Box<[u8]>>) -> Result<Self, String> {
        Self::from_slices_partial(shape, slices.into_iter().map(Some).collect())
    }

    /// The same when some slices are absent, because they are damaged or not in memory: for keys of
    /// an absent slice the filter answers "may contain".
    ///
    /// # Errors
    /// As [`Self::from_slices`].
    pub fn from_slices_partial(shape: FilterShape, slices: Vec<Option<Box<[u8]>>>) -> Result<Self, String> {
        shape.check()?;
        if slices.len() != shape.slices() {
            return Err(format!("{} filter slices, expected {}", slices.len(), shape.slices()));
        }
        for (number, slice) in slices.iter().enumerate() {
            if let Some(bytes) = slice {
                if bytes.len() != shape.slice_bytes() {
                    let (found, expected) = (bytes.len(), shape.slice_bytes());
                    return Err(format!("filter slice {number} has {found} bytes, expected {expected}"));
                }
            }
        }
        let slices = slices.into_iter().map(|slice| Lines::of(&slice.unwrap_or_default())).collect();
        Ok(Self { shape, prober: Prober::best(), slices })
    }

    /// The shape with which the filter was built.
    pub fn shape(&self) -> FilterShape {
        self.shape
    }

    /// The slices that are present, in order; all of them unless made by
    /// [`Self::from_slices_partial`].
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().filter(|lines| !lines.is_absent()).map(Lines::as_bytes)
    }

    /// Number of absent slices.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|lines| lines.is_absent()).count()
    }

    /// Whether the key of `digest` may be among those that the filter was built from; `false` is
    /// certain.
    #[inline]
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        self.find(digest).maybe()
    }

    /// Prefetches the line of `digest`; the returned question holds it for a later answer.
    #[inline]
    pub fn ask(&self, digest: KeyDigest) -> Question<'_> {
        let question = self.find(digest);
        question.prefetch();
        question
    }

    /// The same without the prefetch.
    #[inline]
    pub fn find(&self, digest: KeyDigest) -> Question<'_> {
        let place = place(self.shape, digest);
        let line = self.slices.get(place.slice).and_then(|lines| lines.line(place.line));
        Question::new(line, place.probe, self.shape.probes, self.prober)
    }

    /// Memory of the filter in bytes, including alignment and bookkeeping.
    pub fn resident_bytes(&self) -> usize {
        let content: usize = self.slices.iter().map(Lines::resident_bytes).sum();
        content + size_of_val(&*self.slices) + size_of::<Self>()
    }
}

#[inline]
fn place(shape: FilterShape, digest: KeyDigest) -> Place {
    debug_assert_eq!(shape.family, FilterFamily::Blocked);
    Place::at(digest.module(0), shape.slices_log2, shape.lines_per_slice)
}

#[cfg(test)]
mod tests;
