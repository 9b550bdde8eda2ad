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

use crate::shape::{FilterFamily, FilterShape, MAX_PROBES};
use crate::slice::Slice;
use crate::{LINE_BITS, LINE_BYTES};
use shamba_key::{KeyDigest, prefetch_line};
use std::fmt;

/// Makes the probe bits another function of the remix than slice and line, which are its own top bits.
const PROBE_MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// Lane `i` is the golden ratio's 32 bits to the power of `i + 1`: odd, and the top bits of the products
/// of one number by different lanes are as good as independent.
const PROBE_LANES: [u32; MAX_PROBES as usize] = {
    let mut lanes = [0x9e37_79b9u32; MAX_PROBES as usize];
    let mut i = 1;
    while i < lanes.len() {
        lanes[i] = lanes[i - 1].wrapping_mul(0x9e37_79b9);
        i += 1;
    }
    lanes
};

/// Takes 32 bits down to a bit of the line.
const BIT_SHIFT: u32 = 32 - LINE_BITS.ilog2();

/// A filter that costs one cache line per lookup.
pub struct BlockedFilter {
    shape: FilterShape,
    slices: Vec<Option<Slice>>,
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
    /// The byte within the slice at which the line begins.
    line_at: usize,
    probe: u32,
}

impl BlockedFilter {
    /// The filter of `digests` at `bits_per_key` (fractions count; at most [`crate::MAX_BITS_PER_KEY`]);
    /// `None` when there are no keys or no bits. Equal digests in a row, which versions of one key are,
    /// count as one key.
    pub fn build(digests: &[KeyDigest], bits_per_key: f64) -> Option<Self> {
        let repeated = digests.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let shape = FilterShape::blocked(digests.len() - repeated, bits_per_key)?;
        let mut slices: Vec<Slice> =
            (0..shape.slices()).map(|_| Slice::zeroed(shape.slice_bytes())).collect();
        for digest in digests {
            let place = Place::of(shape, *digest);
            let bytes = slices[place.slice].as_mut_bytes();
            let line = &mut bytes[place.line_at..place.line_at + LINE_BYTES];
            for bit in place.bits(shape.probes) {
                line[bit >> 3] |= 1 << (bit & 7);
            }
        }
        Some(Self { shape, slices: slices.into_iter().map(Some).collect() })
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
        Ok(Self { shape, slices: slices.into_iter().map(|slice| slice.map(Slice::of)).collect() })
    }

    /// What the filter was built as.
    pub fn shape(&self) -> FilterShape {
        self.shape
    }

    /// The slices that are present, in order; all of them unless made by [`Self::from_slices_partial`].
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().flatten().map(Slice::as_bytes)
    }

    /// How many slices are absent.
    pub fn absent_slices(&self) -> usize {
        self.slices.iter().filter(|slice| slice.is_none()).count()
    }

    /// Whether the key of `digest` may be among those that the filter was built from; `false` is certain.
    #[inline]
    pub fn may_contain(&self, digest: KeyDigest) -> bool {
        let place = Place::of(self.shape, digest);
        let Some(line) = self.line(place) else {
            return true;
        };
        // No exit on the first zero: a branch that the processor guesses wrong costs more than the probes.
        let mut all = 1;
        for bit in place.bits(self.shape.probes) {
            all &= line[bit >> 3] >> (bit & 7);
        }
        all & 1 == 1
    }

    /// Asks the processor for the line of `digest`, to be called some time before [`Self::may_contain`].
    #[inline]
    pub fn prefetch(&self, digest: KeyDigest) {
        let place = Place::of(self.shape, digest);
        if let Some(Some(slice)) = self.slices.get(place.slice) {
            prefetch_line(slice.as_bytes(), place.line_at);
        }
    }

    /// The bytes that the filter takes in memory, alignment and bookkeeping included.
    pub fn resident_bytes(&self) -> usize {
        let content: usize = self.slices.iter().flatten().map(Slice::resident_bytes).sum();
        content + self.slices.capacity() * size_of::<Option<Slice>>() + size_of::<Self>()
    }

    #[inline]
    fn line(&self, place: Place) -> Option<&[u8; LINE_BYTES]> {
        let slice = self.slices.get(place.slice)?.as_ref()?;
        slice.as_bytes().get(place.line_at..)?.first_chunk()
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
        Self { slice: slice as usize, line_at: line as usize * LINE_BYTES, probe: probe as u32 }
    }

    /// The bits of the line that the key sets, each below [`LINE_BITS`]; two may be the same.
    #[inline]
    fn bits(self, probes: u8) -> impl Iterator<Item = usize> {
        PROBE_LANES
            .iter()
            .take(usize::from(probes))
            .map(move |lane| (self.probe.wrapping_mul(*lane) >> BIT_SHIFT) as usize)
    }
}

#[cfg(test)]
mod tests;
