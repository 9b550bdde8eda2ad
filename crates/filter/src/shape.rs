//! The shape of a blocked filter: the description that a file must store to reconstruct it.
//!
//! ```text
//! +--------+--------+-------------+----------+-----------------------+
//! | family | probes | slices_log2 | module 0 | lines_per_slice (LE)  |
//! +--------+--------+-------------+----------+-----------------------+
//!  0        1        2             3          4                     8
//! ```
//!
//! The field table and a worked example are in `docs/formats/filter.md`. Decoding accepts only
//! shapes within the limits below, so the fields of a [`FilterShape`] that was decoded or built can
//! be multiplied without overflow.
//!
//! Not here: the bits themselves ([`crate::Filter`]); the same for filters of any family
//! ([`crate::FilterGeometry`], whose stored form begins with the same eight bytes).

use crate::limits::MAX_PROBES;
use crate::{LINE_BYTES, MAX_SLICE_BYTES};

/// Maximum `slices_log2`: 2^20 slices of 64 KiB are 64 GiB.
pub(crate) const MAX_SLICES_LOG2: u8 = 20;
/// Number of lines of the largest slice.
pub(crate) const MAX_LINES_PER_SLICE: u32 = (MAX_SLICE_BYTES / LINE_BYTES) as u32;

const _: () = assert!(MAX_SLICE_BYTES == 1024 * LINE_BYTES);

/// The families of filters. The byte values are stored in tables: never reuse one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FilterFamily {
    /// The papers' filter: probes anywhere in a slice, by bit rotation.
    StandardRotation = 1,
    /// One 64-byte line per key.
    Blocked = 2,
    /// Two to seven blocked modules.
    Modular = 3,
    /// The papers' filter: probes anywhere in a slice, by double hashing.
    StandardDoubleHashing = 4,
    /// One to three ribbon modules.
    Ribbon = 5,
}

impl FilterFamily {
    /// The family of a stored byte; `None` for an unknown one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::StandardRotation),
            2 => Some(Self::Blocked),
            3 => Some(Self::Modular),
            4 => Some(Self::StandardDoubleHashing),
            5 => Some(Self::Ribbon),
            _ => None,
        }
    }

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::StandardRotation => "standard",
            Self::Blocked => "blocked",
            Self::Modular => "modular",
            Self::StandardDoubleHashing => "standard-double",
            Self::Ribbon => "ribbon",
        }
    }
}

/// Family, probes and size of a blocked filter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FilterShape {
    /// The layout of the bits.
    pub family: FilterFamily,
    /// The bits that each key sets, 1 to 16.
    pub probes: u8,
    /// The base-two logarithm of the number of slices, 0 to 20.
    pub slices_log2: u8,
    /// The 64-byte lines of each slice, 1 to 1024.
    pub lines_per_slice: u32,
}

impl FilterShape {
    /// The size of an encoded shape.
    pub const ENCODED_BYTES: usize = 8;

    /// The shape of a blocked filter for `keys` keys, with the whole lines nearest to
    /// `bits_per_key`; `None` without keys or bits. Tests compare [`crate::FilterGeometry`] with
    /// it.
    #[cfg(test)]
    pub(crate) fn blocked(keys: usize, bits_per_key: f64) -> Option<Self> {
        if keys == 0 || bits_per_key.is_nan() || bits_per_key <= 0.0 {
            return None;
        }
        let bits_per_key = bits_per_key.min(crate::MAX_BITS_PER_KEY);
        let (slices_log2, lines_per_slice) = cut(keys as f64 * bits_per_key / crate::LINE_BITS as f64);
        Some(Self {
            family: FilterFamily::Blocked,
            probes: crate::fpr::best_probes(bits_per_key),
            slices_log2,
            lines_per_slice,
        })
    }

    /// The number of slices.
    pub fn slices(self) -> usize {
        1 << self.slices_log2
    }

    /// The bytes of each slice.
    pub fn slice_bytes(self) -> usize {
        self.lines_per_slice as usize * LINE_BYTES
    }

    /// The bytes of all slices, without checksums.
    pub fn total_bytes(self) -> u64 {
        self.slices() as u64 * self.slice_bytes() as u64
    }

    /// The stored form.
    pub fn encode(self) -> [u8; Self::ENCODED_BYTES] {
        let [a, b, c, d] = self.lines_per_slice.to_le_bytes();
        [self.family as u8, self.probes, self.slices_log2, 0, a, b, c, d]
    }

    /// The shape that `bytes` encode. Its size may be up to 64 GiB: compare [`Self::total_bytes`]
    /// with the size of the file before allocating.
    ///
    /// # Errors
    /// A length other than [`Self::ENCODED_BYTES`], an unknown family, or a field outside its
    /// limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Ok([family, probes, slices_log2, module, a, b, c, d]) =
            <[u8; Self::ENCODED_BYTES]>::try_from(bytes)
        else {
            return Err(format!("a filter shape takes {} bytes, not {}", Self::ENCODED_BYTES, bytes.len()));
        };
        let family =
            FilterFamily::from_byte(family).ok_or_else(|| format!("unknown filter family {family}"))?;
        if family != FilterFamily::Blocked {
            return Err(format!("the filter is {}, expected a blocked one", family.name()));
        }
        if module != 0 {
            return Err(format!("a blocked filter has module 0 only, not {module}"));
        }
        let shape = Self { family, probes, slices_log2, lines_per_slice: u32::from_le_bytes([a, b, c, d]) };
        shape.check()?;
        Ok(shape)
    }

    /// Checks that every field is within its limits (the fields are public, so a shape need not be
    /// a decoded one).
    pub(crate) fn check(self) -> Result<(), String> {
        if self.family != FilterFamily::Blocked {
            return Err(format!("the filter is {}, expected a blocked one", self.family.name()));
        }
        check(self.probes, self.slices_log2, self.lines_per_slice)
    }
}

/// The smallest number of equal slices, and the lines of each, such that the total is nearest to
/// `lines`; at least one line.
pub(crate) fn cut(lines: f64) -> (u8, u32) {
    let largest = f64::from(MAX_LINES_PER_SLICE);
    let per_slice = |slices_log2: u8| (lines / f64::from(1u32 << slices_log2)).round();
    let slices_log2 =
        (0..MAX_SLICES_LOG2).find(|log2| per_slice(*log2) <= largest).unwrap_or(MAX_SLICES_LOG2);
    (slices_log2, per_slice(slices_log2).clamp(1.0, largest) as u32)
}

/// Checks that these fields are within their limits.
pub(crate) fn check(probes: u8, slices_log2: u8, lines_per_slice: u32) -> Result<(), String> {
    if !(1..=MAX_PROBES).contains(&probes) {
        return Err(format!("{probes} probes, expected 1 to {MAX_PROBES}"));
    }
    check_size(slices_log2, lines_per_slice)
}

/// Checks that the number of slices and their size are within their limits.
pub(crate) fn check_size(slices_log2: u8, lines_per_slice: u32) -> Result<(), String> {
    if slices_log2 > MAX_SLICES_LOG2 {
        return Err(format!("2^{slices_log2} slices, expected at most 2^{MAX_SLICES_LOG2}"));
    }
    if !(1..=MAX_LINES_PER_SLICE).contains(&lines_per_slice) {
        return Err(format!("{lines_per_slice} lines in a slice, expected 1 to {MAX_LINES_PER_SLICE}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_BITS_PER_KEY;

    fn shape(probes: u8, slices_log2: u8, lines_per_slice: u32) -> FilterShape {
        FilterShape { family: FilterFamily::Blocked, probes, slices_log2, lines_per_slice }
    }

    #[test]
    fn every_legal_corner_round_trips() {
        for probes in [1, 7, 16] {
            for slices_log2 in [0, 1, 20] {
                for lines in [1, 2, 1024] {
                    let shape = shape(probes, slices_log2, lines);
                    assert_eq!(FilterShape::decode(&shape.encode()), Ok(shape));
                }
            }
        }
    }

    #[test]
    fn hostile_shapes_are_refused_with_the_reason() {
        let good = shape(7, 2, 100).encode();
        let change = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            FilterShape::decode(&bytes).unwrap_err()
        };
        assert!(change(0, 0).contains("family 0"));
        assert!(change(0, 255).contains("family 255"));
        assert!(change(0, 1).contains("standard, expected a blocked one"));
        assert!(change(0, 3).contains("modular, expected a blocked one"));
        assert!(change(1, 0).contains("0 probes"));
        assert!(change(1, 17).contains("17 probes"));
        assert!(change(2, 21).contains("2^21 slices"));
        assert!(change(3, 1).contains("module"));
        assert!(change(4, 0).contains("0 lines"));
        assert!(change(7, 255).contains("lines in a slice"));
        assert!(change(5, 4).contains("1124 lines"));
        for length in [0, 7, 9, 64] {
            assert!(FilterShape::decode(&vec![2; length]).unwrap_err().contains("takes 8 bytes"), "{length}");
        }
    }

    #[test]
    fn no_byte_string_makes_an_illegal_shape() {
        // Every value of every byte, with the other bytes legal: what decodes encodes to the same
        // bytes.
        let good = shape(7, 2, 100).encode();
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good;
                bytes[at] = byte;
                if let Ok(shape) = FilterShape::decode(&bytes) {
                    assert_eq!(shape.encode(), bytes);
                    assert!(shape.check().is_ok());
                    assert!(shape.slice_bytes() <= MAX_SLICE_BYTES && shape.slice_bytes() >= LINE_BYTES);
                }
            }
        }
    }

    #[test]
    fn sizes_are_as_near_as_whole_lines_allow() {
        for keys in [1, 10, 51, 52, 1000, 52_428, 52_429, 99_999, 1_000_000, 123_456_789] {
            for bits_per_key in [0.5, 3.25, 10.0, 10.01, 20.0] {
                let shape = FilterShape::blocked(keys, bits_per_key).unwrap();
                assert!(shape.check().is_ok(), "{shape:?}");
                let wanted = (keys as f64 * bits_per_key / 8.0).max(LINE_BYTES as f64);
                let off = (shape.total_bytes() as f64 - wanted).abs();
                // Rounding moves each slice by at most half a line.
                let most = shape.slices() as f64 * LINE_BYTES as f64 / 2.0;
                assert!(off <= most + 1e-6, "{keys} keys at {bits_per_key}: {shape:?}");
                if shape.slices_log2 > 0 {
                    assert!(
                        shape.lines_per_slice >= MAX_LINES_PER_SLICE / 2,
                        "more slices than needed: {shape:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_to_build_and_too_much_to_build() {
        for bits_per_key in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(FilterShape::blocked(100, bits_per_key), None);
        }
        assert_eq!(FilterShape::blocked(0, 10.0), None);
        let infinite = FilterShape::blocked(1000, f64::INFINITY).unwrap();
        assert_eq!(infinite, FilterShape::blocked(1000, MAX_BITS_PER_KEY).unwrap());
        let huge = FilterShape::blocked(usize::MAX, 64.0).unwrap();
        assert!(huge.check().is_ok());
        assert_eq!((huge.slices_log2, huge.lines_per_slice), (20, 1024));
    }
}
