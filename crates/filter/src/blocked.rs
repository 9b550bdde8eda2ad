//! The blocked filter: all probes of a key fall into one 64-byte line.
//!
//! A lookup costs one cache miss whatever the number of probes, and no branch depends on the bits read.
//! The price is a false-positive rate a little above the standard filter's, since lines fill unevenly
//! ([`crate::fpr::blocked_fpr`]): 0.97 % instead of 0.82 % at 10 bits per key.
//!
//! Where a key goes is decided by the 64 bits of the module's own remix of the digest:
//!
//! ```text
//!  63                      63-s                  31-s              0
//! +------------------------+---------------------+-----------------+
//! | s bits: the slice      | 32 bits: the line   | the rest        |   h = digest.module(0)
//! +------------------------+---------------------+-----------------+
//!                            line = bits * lines_per_slice >> 32
//!
//!  p = (h * PROBE_MULTIPLIER) >> 32          32 bits to which every bit of h contributes
//!  bit i of the key in its line = (p * PROBE_LANES[i] mod 2^32) >> 23, a number below 512
//! ```
//!
//! Bit `b` of a line is bit `b & 7` (the lowest is 0) of byte `b >> 3`. Each probe is one 32-bit multiply, so
//! that eight or sixteen lanes of a vector register can do them at once.
//!
//! Invariants: every slice has `lines_per_slice` whole lines; there are `2^slices_log2` places for slices,
//! some possibly empty. A filter is never changed after it was made, so threads share it freely.
//!
//! Not here: the formulas behind the number of probes ([`crate::fpr`]); the stored description
//! ([`FilterShape`]).

use crate::shape::{FilterFamily, FilterShape};
use crate::simd::lines::{Line, Lines};
use crate::simd::{Prober, bits};
use shamba_key::{KeyDigest, prefetch_line};
use std::fmt;
use std::sync::Arc;

/// Makes the probe bits another function of the remix than slice and line, which are its own top bits.
const PROBE_MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// A filter that costs one cache line per lookup. A clone shares the lines.
#[derive(Clone)]
pub struct BlockedFilter {
    shape: FilterShape,
    prober: Prober,
    /// As many as the shape says; those that are absent are empty.
    slices: Arc<[Lines]>,
}

/// A key's line in one filter, asked for and not yet looked at: [`BlockedFilter::ask`].
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// `None` when the slice is absent.
    line: Option<&'a Line>,
    probe: u32,
    probes: u8,
    prober: Prober,
}

impl Question<'_> {
    /// Whether the key may be among those that the filter was built from; `false` is certain.
    #[inline(always)]
    pub fn maybe(self) -> bool {
        self.line.is_none_or(|line| self.prober.all_set(line, self.probe, self.probes))
    }
}

impl fmt::Debug for BlockedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedFilter")
            .field("shape", &self.shape)
            .field("absent_slices", &self.absent_slices())
            .finish()
    }
}

/// Where a key's bits are.
#[derive(Clone, Copy)]
struct Place {
    slice: usize,
    /// The line within the slice.
    line: usize,
    probe: u32,
}

impl BlockedFilter {
    /// The filter of `digests` at `bits_per_key` (fractions count; at most [`crate::MAX_BITS_PER_KEY`]);
    /// `None` when there are no keys or no bits. Equal digests in a row, which versions of one key are,
    /// count as one key.
    pub fn build(digests: &[KeyDigest], bits_per_key: f64) -> Option<Self> {
        let repeated = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let shape = FilterShape::blocked(digests.len() - repeated, bits_per_key)?;
        let mut slices = vec![Lines::zeroed(shape.lines_per_slice as usize); shape.slices()];
        for digest in digests {
            let place = Place::of(shape, *digest);
            if let Some(line) = slices.get_mut(place.slice).and_then(|lines| lines.line_mut(place.line)) {
                for bit in bits(place.probe, shape.probes) {
                    line.0[bit >> 3] |= 1 << (bit & 7);
                }
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

    /// The same when some slices are absent, be it that they are damaged or that memory is short: for keys of
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
            if let Some(bytes) = slice
                && bytes.len() != shape.slice_bytes()
            {
                let (found, expected) = (bytes.len(), shape.slice_bytes());
                return Err(format!("filter slice {number} has {found} bytes, expected {expected}"));
            }
        }
        let slices = slices.into_iter().map(|slice| Lines::of(&slice.unwrap_or_default())).collect();
        Ok(Self { shape, prober: Prober::best(), slices })
    }

    /// What the filter was built as.
    pub fn shape(&self) -> FilterShape {
        self.shape
    }

    /// The slices that are present, in order; all of them unless made by [`Self::from_slices_partial`].
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().filter(|lines| !lines.is_absent()).map(Lines::as_bytes)
    }

    /// How many slices are absent.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|lines| lines.is_absent()).count()
    }

    /// Whether the key of `digest` may be among those that the filter was built from; `false` is certain.
    #[inline]
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        self.find(digest).maybe()
    }

    /// Asks the processor for the line of `digest`; the answer, wanted some time later, is in the question.
    #[inline]
    pub fn ask(&self, digest: KeyDigest) -> Question<'_> {
        let question = self.find(digest);
        if let Some(Line(bytes)) = question.line {
            prefetch_line(bytes, 0);
        }
        question
    }

    /// The same without asking the processor yet.
    #[inline]
    pub fn find(&self, digest: KeyDigest) -> Question<'_> {
        let place = Place::of(self.shape, digest);
        let line = self.slices.get(place.slice).and_then(|lines| lines.line(place.line));
        Question { line, probe: place.probe, probes: self.shape.probes, prober: self.prober }
    }

    /// The bytes that the filter takes in memory, alignment and bookkeeping included.
    pub fn resident_bytes(&self) -> usize {
        let content: usize = self.slices.iter().map(Lines::resident_bytes).sum();
        content + size_of_val(&*self.slices) + size_of::<Self>()
    }
}

impl Place {
    #[inline]
    fn of(shape: FilterShape, digest: KeyDigest) -> Self {
        debug_assert_eq!(shape.family, FilterFamily::Blocked);
        let bits = digest.module(0);
        let slices_log2 = u32::from(shape.slices_log2);
        // Shifted twice because with one slice a single shift would be by all 64 bits.
        let slice = bits >> 1 >> (63 - slices_log2);
        let line_bits = (bits << slices_log2) >> 32;
        let line = (line_bits * u64::from(shape.lines_per_slice)) >> 32;
        let probe = bits.wrapping_mul(PROBE_MULTIPLIER) >> 32;
        Self { slice: slice as usize, line: line as usize, probe: probe as u32 }
    }
}

#[cfg(test)]
mod tests;
