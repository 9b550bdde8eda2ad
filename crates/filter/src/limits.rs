//! Sizes of lines and slices, and the limits of bits and probes per key.

/// The bytes of one line, the cache line that a key's probes share.
pub const LINE_BYTES: usize = 64;
/// The bits of one line.
pub const LINE_BITS: usize = LINE_BYTES * 8;
/// Maximum size of a slice in bytes.
pub const MAX_SLICE_BYTES: usize = 64 << 10;
/// Maximum bits per key of a filter: above it 16 probes in one line gain nothing more.
pub const MAX_BITS_PER_KEY: f64 = 64.0;
/// Maximum number of probes per key.
pub(crate) const MAX_PROBES: u8 = 16;
