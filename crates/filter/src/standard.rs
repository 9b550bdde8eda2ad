//! The standard filter of the papers: each probe falls anywhere in the slice.
//!
//! ```text
//!  probe i = h + i * step  (mod 2^64)            h    = the remix of module 0, rotated left by s
//!  bit     = (top 32 bits of it) * bits >> 32    step = h rotated left by 17     (bit rotation)
//!                                                step = (remix of module 1) | 1  (double hashing)
//! ```
//!
//! `s` is the number of bits that chose the slice. They are rotated away; otherwise the first
//! probes of all keys of a slice would fall into one part of it. The papers rotate 32 bits; 64 do
//! not run out at 20 bits per key. Bit `b` of a slice is bit `b & 7` (the lowest is 0) of byte
//! `b >> 3`.
//!
//! A file of up to 52,000 keys at 10 bits has one slice, as in the papers. Larger files fill their
//! slices with a variation of less than half a percent, which has no visible effect on the rate.
//!
//! It exists for the papers' experiments: a lookup costs a cache miss for each probe up to the
//! first clear bit. Scalar code, no vector instructions.
//!
//! Not here: independent digests for each probe ([`crate::sim::raw`]).

use crate::LINE_BITS;
use crate::layout::Probing;
use crate::simd::lines::Line;
use shamba_key::{KeyDigest, prefetch_line};

/// The papers' rotation, in bits.
const ROTATION: u32 = 17;

/// The positions of a key's probes in a standard filter: [`crate::FilterGeometry::standard_site`].
#[derive(Clone, Copy)]
pub struct StandardSite {
    slice: u32,
    bits: u32,
    probes: u8,
    hash: u64,
    step: u64,
}

impl StandardSite {
    pub(crate) fn new(
        digest: KeyDigest,
        probing: Probing,
        probes: u8,
        slices_log2: u8,
        lines_per_slice: u32,
    ) -> Self {
        let remix = digest.module(0);
        let hash = remix.rotate_left(u32::from(slices_log2));
        let step = match probing {
            Probing::Rotation => hash.rotate_left(ROTATION),
            Probing::DoubleHashing => digest.module(1) | 1,
        };
        let slice = crate::place::slice_of(remix, slices_log2) as u32;
        Self { slice, bits: lines_per_slice * LINE_BITS as u32, probes, hash, step }
    }

    /// The slice that holds all bits of the key.
    pub fn slice(self) -> usize {
        self.slice as usize
    }

    /// The bits that the key sets in its slice; two may be the same.
    pub(crate) fn bits(self) -> impl Iterator<Item = usize> {
        let probe = move |i: u8| self.hash.wrapping_add(self.step.wrapping_mul(u64::from(i)));
        (0..self.probes).map(move |i| (((probe(i) >> 32) * u64::from(self.bits)) >> 32) as usize)
    }

    /// Whether the key may be among those that the filter was built from, given the lines of the
    /// slice; `false` is certain. An absent slice means "maybe", and so do lines that are missing
    /// from the slice.
    pub fn maybe(self, lines: Option<&[Line]>) -> bool {
        lines.is_none_or(|lines| {
            self.bits().all(|bit| {
                let line = lines.get(bit / LINE_BITS);
                line.is_none_or(|line| line.0[(bit % LINE_BITS) >> 3] >> (bit & 7) & 1 == 1)
            })
        })
    }

    /// The number of bits that [`Self::maybe`] reads: up to the first clear one, or all of them.
    pub fn bits_looked_at(self, lines: Option<&[Line]>) -> u8 {
        let is_set = |bit: usize| {
            let line = lines.and_then(|lines| lines.get(bit / LINE_BITS));
            line.is_none_or(|line| line.0[(bit % LINE_BITS) >> 3] >> (bit & 7) & 1 == 1)
        };
        let set = self.bits().take_while(|bit| is_set(*bit)).count() as u8;
        (set + 1).min(self.probes)
    }

    /// Prefetches the lines of all probes.
    pub fn prefetch(self, lines: Option<&[Line]>) {
        for bit in self.bits() {
            if let Some(Line(bytes)) = lines.and_then(|lines| lines.get(bit / LINE_BITS)) {
                prefetch_line(bytes, 0);
            }
        }
    }

    /// Sets the bits of the key in its slice.
    pub(crate) fn set(self, lines: &mut [Line]) {
        for bit in self.bits() {
            if let Some(line) = lines.get_mut(bit / LINE_BITS) {
                line.0[(bit % LINE_BITS) >> 3] |= 1 << (bit & 7);
            }
        }
    }
}
