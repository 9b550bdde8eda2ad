//! The checksum of every structure of a table, salted with the file and the offset.
//!
//! The low 32 bits of XXH3 of the bytes, mixed with a full-avalanche mix of birth id and offset:
//! undamaged bytes that belong to another file or another offset do not pass. These hashes are not
//! key digests and are not counted as such.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};

use twox_hash::XxHash3_64;

use crate::id::BirthId;

/// Whether every checksum of this process is 0 ([`make_checksums_equal`]).
#[cfg(debug_assertions)]
static ARE_EQUAL: AtomicBool = AtomicBool::new(false);

/// Makes every checksum that this process writes or verifies 0, until it ends, and returns whether
/// it does: never in a build without debug assertions.
///
/// For fuzzing: mutated bytes reach the code behind the checks. A checksum costs one relaxed load
/// more in builds with debug assertions, and nothing in others.
#[doc(hidden)]
pub fn make_checksums_equal() -> bool {
    #[cfg(debug_assertions)]
    ARE_EQUAL.store(true, Ordering::Relaxed);
    cfg!(debug_assertions)
}

/// The checksum of `bytes` that lie at `offset` of the file with birth id `birth`.
#[inline]
pub fn checksum(birth: BirthId, offset: u64, bytes: &[u8]) -> u32 {
    salted(birth, offset, XxHash3_64::oneshot(bytes))
}

/// [`checksum`] of bytes whose XXH3 is known.
#[inline]
pub(crate) fn salted(birth: BirthId, offset: u64, hash: u64) -> u32 {
    #[cfg(debug_assertions)]
    if ARE_EQUAL.load(Ordering::Relaxed) {
        return 0;
    }
    let salt = avalanche(birth.0 ^ avalanche(offset.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    // The stored width is the low half: all bits of XXH3 are equally good.
    (hash ^ salt) as u32
}

/// Every input bit affects every output bit (the finaliser of SplitMix64).
fn avalanche(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_the_place_and_every_bit_count() {
        let bytes = b"a block of a table".to_vec();
        let right = checksum(BirthId(7), 4_096, &bytes);
        assert_ne!(right, checksum(BirthId(8), 4_096, &bytes));
        assert_ne!(right, checksum(BirthId(7), 8_192, &bytes));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(right, checksum(BirthId(7), 4_096, &flipped), "bit {bit}");
        }
    }

    #[test]
    fn the_stored_value_never_changes() {
        assert_eq!(checksum(BirthId(0), 0, b""), EMPTY);
        assert_eq!(checksum(BirthId(0x0123_4567_89ab_cdef), 4_096, b"shamba"), SHAMBA);
    }

    // Values of version 1 of the format: a change here is a change of the format.
    const EMPTY: u32 = 3_354_345_597;
    const SHAMBA: u32 = 4_006_788_971;
}
