//! Sizes of lines and slices, and the limits of bits and probes per key.

/// The bytes of one line, the cache line that a key's probes share.
pub const LINE_BYTES: usize = 64;
/// The bits of one line.
pub const LINE_BITS: usize = LINE_BYTES * 8;
/// Maximum size of a slice in bytes.
pub const MAX_SLICE_BYTES: usize = 64 << 10;
/// Maximum bits per key of a filter: above it 16 probes in one line gain nothing more.
pub const MAX_BITS_PER_KEY: f64 = 64.0;
/// Maximum number of columns of a ribbon module.
pub(crate) const MAX_COLUMNS: u8 = 16;

/// Rows of a ribbon module for each key, at `bits_per_key`.
///
/// More rows cost columns; too few make keys depend on one another, and an absent key that depends
/// on them passes all columns. Their share falls by a factor of about *e* for each 1 % of rows:
/// 0.6 % at 1.06 rows per key, 0.08 % at 1.08, 0.01 % at 1.1. The more columns, the smaller it has
/// to be. This line passes near the best numbers: 1.066 for 2 columns, 1.087 for 7, 1.129 for 14.
pub(crate) fn rows_per_key(bits_per_key: f64) -> f64 {
    let columns = (bits_per_key / 1.07).min(f64::from(MAX_COLUMNS));
    1.056 + 0.0047 * columns
}

/// Maximum number of probes per key.
pub(crate) const MAX_PROBES: u8 = 16;
