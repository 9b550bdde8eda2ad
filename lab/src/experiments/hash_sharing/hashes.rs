//! The paper's hash functions in their authors' published form, and their times.

use std::hint::black_box;

use md5::Md5;
use sha2::{Digest as _, Sha256};
use shamba::DigestKind;
use shamba_key::DigestFn;

use crate::lookups::{median, median_ns};
use shamba_workload::mix2;

/// Number of rotating keys: they fit in the first-level cache at 64 bytes, and in the second-level
/// cache at a kilobyte.
const KEYS: usize = 256;

/// A hash function of the paper, and ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hash {
    /// MurmurHash2 with 32 bits, the paper's MM.
    Murmur32,
    Murmur64,
    Xx64,
    Md5,
    Sha256,
    Crc32c,
    City64,
    /// Ours: newer than the paper.
    Xxh3,
}

impl Hash {
    pub const ALL: [Self; 8] = [
        Self::Murmur32,
        Self::Murmur64,
        Self::Xx64,
        Self::Md5,
        Self::Sha256,
        Self::Crc32c,
        Self::City64,
        Self::Xxh3,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Murmur32 => "MM",
            Self::Murmur64 => "MM64",
            Self::Xx64 => "XX",
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Crc32c => "CRC",
            Self::City64 => "CITY",
            Self::Xxh3 => "XXH3 (ours)",
        }
    }

    /// The time for a key of 1 KB by the paper's Table 1, in nanoseconds.
    pub fn paper_ns(self) -> Option<f64> {
        match self {
            Self::City64 => Some(176.0),
            Self::Murmur64 => Some(235.0),
            Self::Crc32c => Some(323.0),
            Self::Xx64 => Some(874.0),
            Self::Md5 => Some(2_850.0),
            Self::Sha256 => Some(5_170.0),
            Self::Murmur32 | Self::Xxh3 => None,
        }
    }

    /// The hash of a key, its first 64 bits where there are more.
    pub fn hash(self, key: &[u8], seed: u64) -> u64 {
        let first = |bytes: &[u8]| bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        let of = |kind| DigestFn::new(kind, seed).published_hash(key);
        match self {
            Self::Murmur64 => of(DigestKind::Murmur64A),
            Self::Xx64 => of(DigestKind::Xxh64),
            Self::Xxh3 => of(DigestKind::Xxh3),
            Self::City64 => of(DigestKind::City64),
            Self::Murmur32 => u64::from(murmur32(key, seed as u32)),
            // It has no seed; the rotation of the paper uses 32 bits.
            Self::Crc32c => of(DigestKind::Crc32c) & u64::from(u32::MAX),
            Self::Md5 => {
                let mut state = Md5::new();
                if seed != 0 {
                    state.update(seed.to_le_bytes());
                }
                state.update(key);
                first(&state.finalize())
            }
            Self::Sha256 => {
                let mut state = Sha256::new();
                if seed != 0 {
                    state.update(seed.to_le_bytes());
                }
                state.update(key);
                first(&state.finalize())
            }
        }
    }
}

/// The paper's seven functions.
pub(super) const SEVEN: [Hash; 7] =
    [Hash::Murmur32, Hash::Murmur64, Hash::Xx64, Hash::Md5, Hash::Sha256, Hash::Crc32c, Hash::City64];

/// MurmurHash2 (Austin Appleby, in the public domain).
fn murmur32(key: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = seed ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in words.by_ref() {
        let word = word.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// `count` keys of `bytes` bytes each, without a pattern.
pub(super) fn keys(count: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let key = |number: usize| {
        let mut key = Vec::with_capacity(bytes + 8);
        let mut word = mix2(number as u64, seed);
        while key.len() < bytes {
            key.extend_from_slice(&word.to_le_bytes());
            word = mix2(word, !seed);
        }
        key.truncate(bytes);
        key
    };
    (0..count).map(key).collect()
}

/// Nanoseconds of hashing a key of `bytes`, each hash waiting for the one before it, as a lookup
/// waits for its digest.
pub(super) fn hash_ns(hash: Hash, bytes: usize) -> f64 {
    let mut keys = keys(KEYS, bytes, 7);
    // Slow ones need fewer rounds.
    let rounds =
        (200_000_000 / (bytes + 64) / KEYS / if hash == Hash::Sha256 { 20 } else { 4 }).clamp(5, 400);
    let mut chain = 0u64;
    let mut measured = || {
        median_ns(rounds, KEYS, |_| {
            for key in &mut keys {
                // The next key depends on a constant bit of this hash.
                if let Some(byte) = key.first_mut() {
                    *byte ^= (black_box(chain) >> 63 & 1) as u8 & black_box(0);
                }
                chain = hash.hash(black_box(key), 0);
            }
            black_box(chain);
        })
    };
    measured();
    median((0..3).map(|_| measured()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_their_authors() {
        // RFC 1321, FIPS 180: of "abc", the first eight bytes.
        assert_eq!(
            Hash::Md5.hash(b"abc", 0),
            u64::from_le_bytes([0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0])
        );
        assert_eq!(
            Hash::Sha256.hash(b"abc", 0),
            u64::from_le_bytes([0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea])
        );
        // The verification value of SMHasher: hashes of all lengths, hashed.
        let bytes: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256u32)
            .flat_map(|length| murmur32(&bytes[..length as usize], 256 - length).to_le_bytes())
            .collect();
        assert_eq!(murmur32(&hashes, 0), 0x2786_4c1e);
        // The check value of CRC-32C.
        assert_eq!(Hash::Crc32c.hash(b"123456789", 0), 0xe306_9283);
        for hash in Hash::ALL {
            let hashes: std::collections::HashSet<u64> =
                keys(1_000, 40, 1).iter().map(|key| hash.hash(key, 0)).collect();
            assert!(hashes.len() >= 999, "{}", hash.name());
        }
    }
}
