//! The position of a key's bits in one module of a filter.
//!
//! It depends only on the 64 bits of the module's own remix of the digest. The base digest also
//! determines memtable slots and block tags, and two modules that used the same bits would have
//! correlated errors.
//!
//! ```text
//!  63                      63-s                  31-s              0
//! +------------------------+---------------------+-----------------+
//! | s bits: the slice      | 32 bits: the line   | the rest        |   h = digest.module(d)
//! +------------------------+---------------------+-----------------+
//!                            line = bits * lines_per_slice >> 32
//!
//!  p = (h * PROBE_MULTIPLIER) >> 32          32 bits to which every bit of h contributes
//!  bit i of the key in its line = (p * PROBE_LANES[i] mod 2^32) >> 23, a number below 512
//! ```
//!
//! Bit `b` of a line is bit `b & 7` (the lowest is 0) of byte `b >> 3`. Each probe is one 32-bit
//! multiply, so that eight or sixteen lanes of a vector register can do them at once.
//!
//! Not here: the test of the bits ([`crate::simd`]); the standard family, whose probes leave the
//! line ([`crate::standard`]).

/// Makes the probe bits a different function of the remix than slice and line, which are its own
/// top bits.
const PROBE_MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// The position of a key's bits.
#[derive(Clone, Copy)]
pub(crate) struct BitPlace {
    /// The slice within the module.
    pub(crate) slice: usize,
    /// The line within the slice.
    pub(crate) line: usize,
    /// The 32 bits from which the bits within the line are derived.
    pub(crate) probe: u32,
}

impl BitPlace {
    /// The place of a key whose remix for the module is `bits`.
    #[inline]
    pub(crate) fn at(bits: u64, slices_log2: u8, lines_per_slice: u32) -> Self {
        let line_bits = (bits << slices_log2) >> 32;
        let line = (line_bits * u64::from(lines_per_slice)) >> 32;
        let probe = bits.wrapping_mul(PROBE_MULTIPLIER) >> 32;
        Self { slice: slice_of(bits, slices_log2), line: line as usize, probe: probe as u32 }
    }
}

/// The slice: the top `slices_log2` bits.
#[inline]
pub(crate) fn slice_of(bits: u64, slices_log2: u8) -> usize {
    // Shifted twice because with one slice a single shift would be by all 64 bits.
    (bits >> 1 >> (63 - u32::from(slices_log2))) as usize
}
