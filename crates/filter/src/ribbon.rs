//! The ribbon module: a filter that needs 1.07 to 1.13 bits of memory for each halving of its
//! false-positive rate, where a Bloom filter needs 1.44 and a blocked one somewhat more.
//!
//! A slice is a matrix over GF(2) of `rows` rows and some columns. A key gives a *start* row and 64
//! coefficients, the first of which is 1. The writer chooses the matrix such that for every key of
//! the slice, in every column, the rows from the start that the coefficients select add up to 0. A
//! key that is absent passes a column with probability 1/2, so that *r* columns give a rate of
//! 2^-r. This is the homogeneous ribbon filter (Dillinger, Hübschle-Schneider, Sanders, Walzer:
//! Fast Succinct Retrieval and Approximate Membership Using Ribbon, SEA 2022). The equations always
//! have a solution, whatever the keys: equal digests give equal equations, and a slice with more
//! keys than rows only rejects fewer keys. So construction cannot fail, needs no seed and has no
//! second attempt.
//!
//! ```text
//!  slice = segments of 64 rows                     segment i = one 8-byte word for each column
//! +-----------+-----------+-- ... --+-----------+
//! | segment 0 | segment 1 |         | segment s |  segments below `cut` have r + 1 columns,
//! +-----------+-----------+-- ... --+-----------+  the others r; bit j of a word is row 64 i + j
//!
//!  h     = the remix of the module
//!  row   = (the 32 bits of h below those of the slice) * 64 (segments - 1) >> 32
//!  bits  = h * COEFFICIENT_MULTIPLIER | 1         bit j: row + j is in the sum
//! ```
//!
//! A key reads two neighbouring segments: 16 bytes for each column, on one to three cache lines. It
//! uses the columns that both have.
//!
//! Not here: the elimination ([`build`]); size and number of segments ([`crate::FilterGeometry`]).

pub(crate) mod build;

use crate::LINE_BYTES;
use crate::limits::{MAX_COLUMNS, rows_per_key};
use crate::place::slice_of;
use crate::simd::lines::Line;
use shamba_key::prefetch_line;

/// Number of rows of a segment: the bits of a word, and the coefficients of a key.
pub(crate) const SEGMENT_ROWS: usize = 64;
/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Number of words of a line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
/// Minimum number of segments of a slice: a key reads two.
pub(crate) const MIN_SEGMENTS: u16 = 2;
/// Minimum number of keys of a ribbon filter. The last segment, in which no key starts, costs 64
/// rows; with fewer keys than this a blocked filter of the same size rejects more.
pub(crate) const MIN_KEYS: usize = 256;

/// Makes the coefficients a different function of the remix than slice and row.
const COEFFICIENT_MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// Size of one ribbon module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RibbonShape {
    slices_log2: u8,
    segments: u16,
    /// Columns of every segment.
    columns: u8,
    /// Number of segments that have one more column.
    cut: u16,
}

/// The position of a key in a ribbon module: [`crate::FilterGeometry::module_site`].
#[derive(Clone, Copy)]
pub struct RibbonSite {
    slice: u32,
    segment: u16,
    /// Row within the segment.
    row: u8,
    shape: RibbonShape,
    coefficients: u64,
}

/// Number of segments of a slice of `lines` lines for `keys` keys, at least one.
pub(crate) fn segments_for(lines: u32, keys: f64) -> u16 {
    let words = (lines as usize * LINE_WORDS) as f64;
    let bits_per_key = words * u64::BITS as f64 / keys;
    // No key starts in the last segment.
    let wanted = (keys * rows_per_key(bits_per_key) / SEGMENT_ROWS as f64).ceil() + 1.0;
    let least = (words / f64::from(MAX_COLUMNS)).ceil().max(f64::from(MIN_SEGMENTS));
    wanted.clamp(least, f64::from(u16::MAX)) as u16
}

impl RibbonShape {
    /// The shape of a module with 2^`slices_log2` slices of `lines` lines and `segments` segments.
    ///
    /// # Errors
    /// Too few segments, or more than [`MAX_COLUMNS`] columns.
    pub(crate) fn new(slices_log2: u8, lines: u32, segments: u16) -> Result<Self, String> {
        if segments < MIN_SEGMENTS {
            return Err(format!("{segments} segments in a slice, expected at least {MIN_SEGMENTS}"));
        }
        let words = lines as usize * LINE_WORDS;
        let (columns, cut) = (words / usize::from(segments), words % usize::from(segments));
        if words > usize::from(MAX_COLUMNS) * usize::from(segments) {
            return Err(format!("{words} words in {segments} segments, expected at most {MAX_COLUMNS} each"));
        }
        Ok(Self { slices_log2, segments, columns: columns as u8, cut: cut as u16 })
    }

    /// The shape whose number of columns is known.
    #[inline(always)]
    pub(crate) fn known(slices_log2: u8, lines: u16, segments: u16, columns: u8) -> Self {
        let words = usize::from(lines) * LINE_WORDS;
        let cut = words.wrapping_sub(usize::from(segments) * usize::from(columns));
        Self { slices_log2, segments, columns, cut: cut as u16 }
    }

    /// Columns of every segment; the first ones may have one more.
    pub(crate) fn columns(self) -> u8 {
        self.columns
    }

    /// Number of columns of segment `segment`.
    #[inline(always)]
    fn columns_of(self, segment: usize) -> usize {
        usize::from(self.columns) + usize::from(segment < usize::from(self.cut))
    }

    /// Number of the first word of segment `segment`.
    #[inline(always)]
    fn word_of(self, segment: usize) -> usize {
        segment * usize::from(self.columns) + segment.min(usize::from(self.cut))
    }

    /// The row at which the key with this remix starts, within its slice.
    #[inline(always)]
    fn row(self, remix: u64) -> usize {
        let bits = (remix << self.slices_log2) >> 32;
        let starts = (usize::from(self.segments) - 1) * SEGMENT_ROWS;
        ((bits * starts as u64) >> 32) as usize
    }

    /// The position of the key with this remix in the module whose first slice is `first_slice`.
    #[inline(always)]
    pub(crate) fn site(self, first_slice: u32, remix: u64) -> RibbonSite {
        let row = self.row(remix);
        RibbonSite {
            slice: first_slice + slice_of(remix, self.slices_log2) as u32,
            segment: (row / SEGMENT_ROWS) as u16,
            row: (row % SEGMENT_ROWS) as u8,
            shape: self,
            coefficients: coefficients(remix),
        }
    }
}

/// The coefficients of the key with this remix.
#[inline(always)]
fn coefficients(remix: u64) -> u64 {
    remix.wrapping_mul(COEFFICIENT_MULTIPLIER) | 1
}

impl RibbonSite {
    /// The number of the slice, counted through all modules.
    #[inline]
    pub fn slice(self) -> usize {
        self.slice as usize
    }

    /// Whether the key may be among those that the filter was built from, given the lines of the
    /// slice; `false` is certain. An absent slice means "maybe", and so do lines that are missing
    /// from the slice.
    #[inline]
    pub fn maybe(self, lines: Option<&[Line]>) -> bool {
        let Some((first, second)) = lines.and_then(|lines| self.words(Line::bytes(lines))) else {
            return true;
        };
        let below = self.coefficients << self.row;
        // Shifted twice because a single shift would be by all 64 bits in row 0.
        let above = (self.coefficients >> 1) >> (63 - u32::from(self.row));
        // No exit at the first column that rejects: a mispredicted branch costs more.
        let sums = first.zip(second).map(|(first, second)| parity((first & below) ^ (second & above)));
        sums.fold(0, |any, sum| any | sum) == 0
    }

    /// Prefetches the words of both segments.
    #[inline]
    pub fn prefetch(self, lines: Option<&[Line]>) {
        let (from, to) = self.range();
        for line in from / LINE_BYTES..to.div_ceil(LINE_BYTES) {
            if let Some(Line(bytes)) = lines.and_then(|lines| lines.get(line)) {
                prefetch_line(bytes, 0);
            }
        }
    }

    /// The bytes of the two segments in the slice.
    #[inline(always)]
    fn range(self) -> (usize, usize) {
        let segment = usize::from(self.segment);
        let end = self.shape.word_of(segment + 1) + self.shape.columns_of(segment + 1);
        (self.shape.word_of(segment) * WORD_BYTES, end * WORD_BYTES)
    }

    /// The words of the columns that both segments have: those of the first, and those of the
    /// second.
    #[inline(always)]
    fn words(self, slice: &[u8]) -> Option<(impl Iterator<Item = u64> + '_, impl Iterator<Item = u64> + '_)> {
        let (from, to) = self.range();
        let used = self.shape.columns_of(usize::from(self.segment) + 1) * WORD_BYTES;
        let both = slice.get(from..to)?;
        let (first, second) = (both.get(..used)?, both.get(both.len() - used..)?);
        Some((words(first), words(second)))
    }
}

#[inline(always)]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    shamba_key::chunks(bytes).0.map(|word| u64::from_le_bytes(*word))
}

/// The lowest bit is the sum of all bits modulo 2.
#[inline(always)]
fn parity(word: u64) -> u64 {
    let folded = word ^ (word >> 32);
    let folded = folded ^ (folded >> 16);
    let folded = folded ^ (folded >> 8);
    let folded = folded ^ (folded >> 4);
    // A table of the parities of four bits.
    (0x6996 >> (folded & 15)) & 1
}

#[cfg(test)]
mod tests;
