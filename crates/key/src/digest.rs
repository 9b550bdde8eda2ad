//! The digest: the one hash of a lookup.
//!
//! A digest is 64 bits of a key under a kind and a seed, both fixed when a database is created.
//! Every kind passes through one full-avalanche finaliser. The memtable slot, the block tag and
//! each filter module use *separate* remixes of it, so that they are independent of one another. A
//! digest is a hint: any match must be confirmed with the whole key.
//!
//! The counter is inside the one function that hashes, also in release builds, so that tests and
//! benchmarks can *prove* one hash per lookup.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use crate::chunks;
use twox_hash::{XxHash3_64, XxHash64};

thread_local! {
    static HASHES: Cell<u64> = const { Cell::new(0) };
}

/// Number of digests that this thread has computed. The difference of two readings is the number of
/// hashes in between.
#[inline]
pub fn hashes_on_this_thread() -> u64 {
    HASHES.with(Cell::get)
}

/// The hash function behind a digest. The byte values are stored in databases and tables: never
/// reuse one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum DigestKind {
    /// XXH3, 64 bits (default).
    #[default]
    Xxh3 = 1,
    /// XXH64.
    Xxh64 = 2,
    /// rapidhash v3.
    Rapid = 3,
    /// MurmurHash64A, the papers' choice.
    Murmur64A = 4,
    /// CityHash64.
    City64 = 5,
    /// CRC-32C of the key, widened by the finaliser: 32 bits of entropy.
    Crc32c = 6,
    /// For tests: only four bits of entropy, so that every collision path runs.
    TestFourBit = 15,
}

impl DigestKind {
    /// Every kind, in the order of its stored byte.
    pub const ALL: [Self; 7] = [
        Self::Xxh3,
        Self::Xxh64,
        Self::Rapid,
        Self::Murmur64A,
        Self::City64,
        Self::Crc32c,
        Self::TestFourBit,
    ];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3",
            Self::Xxh64 => "xxh64",
            Self::Rapid => "rapid",
            Self::Murmur64A => "murmur64a",
            Self::City64 => "city64",
            Self::Crc32c => "crc32c",
            Self::TestFourBit => "test4bit",
        }
    }

    /// The kind of a stored byte; `None` for an unknown one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

impl fmt::Display for DigestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DigestKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            // The test kind is not offered.
            let known = Self::ALL.into_iter().filter(|kind| *kind != Self::TestFourBit);
            let known: Vec<_> = known.map(Self::name).collect();
            let known = known.join(", ");
            format!("unknown digest kind {name:?} (known: {known})")
        })
    }
}

/// The digest of one key: computed once, passed down by value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyDigest(u64);

impl KeyDigest {
    /// A digest from its stored or simulated 64 bits.
    #[inline]
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The 64 bits.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The bits for the memtable's index.
    #[inline]
    pub fn memtable_slot(self) -> u64 {
        remix(self.0, 0x9e37_79b9_7f4a_7c15)
    }

    /// The tag of an entry in a data block, which stores its low byte or both bytes.
    #[inline]
    pub fn block_tag(self) -> u16 {
        (remix(self.0, 0xc2b2_ae3d_27d4_eb4f) >> 48) as u16
    }

    /// The bits for the index of the record cache.
    #[inline]
    pub fn record_slot(self) -> u64 {
        remix(self.0, 0xa076_1d64_78bd_642f)
    }

    /// The bits for filter module `module`.
    #[inline]
    pub fn module(self, module: u8) -> u64 {
        const ODD: u64 = 0xd6e8_feb8_6659_fd93;
        remix(self.0, ODD.wrapping_mul(2 * u64::from(module) + 1))
    }
}

/// Hashes keys: a kind and a seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DigestFn {
    kind: DigestKind,
    seed: u64,
}

impl DigestFn {
    /// The digest function of `kind` under `seed`.
    pub fn new(kind: DigestKind, seed: u64) -> Self {
        Self { kind, seed }
    }

    /// Its kind.
    pub fn kind(self) -> DigestKind {
        self.kind
    }

    /// Its seed.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// The digest of `key`. The only function that hashes keys; it counts every call.
    #[inline]
    pub fn digest(self, key: &[u8]) -> KeyDigest {
        HASHES.with(|hashes| hashes.set(hashes.get().wrapping_add(1)));
        KeyDigest(finalise(self.hash(key)))
    }

    /// The hash of the kind as published, before the finaliser: for experiments with hash
    /// functions. It is not counted, and it is not a digest.
    #[inline]
    pub fn published_hash(self, key: &[u8]) -> u64 {
        self.hash(key)
    }

    #[inline]
    fn hash(self, key: &[u8]) -> u64 {
        match self.kind {
            DigestKind::Xxh3 => XxHash3_64::oneshot_with_seed(self.seed, key),
            DigestKind::Xxh64 => XxHash64::oneshot(self.seed, key),
            DigestKind::Rapid => rapid(key, self.seed),
            DigestKind::Murmur64A => murmur64a(key, self.seed),
            DigestKind::City64 => cityhasher::hash_with_seed(key, self.seed),
            DigestKind::Crc32c => u64::from(crc32c::crc32c(key)) ^ self.seed,
            DigestKind::TestFourBit => XxHash3_64::oneshot_with_seed(self.seed, key) & 15,
        }
    }
}

/// rapidhash v3 with its author's secrets: deriving secrets from the seed would cost eight
/// multiplications per key, more than hashing a short key.
#[inline]
fn rapid(key: &[u8], seed: u64) -> u64 {
    use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
    rapidhash_v3_seeded(key, &RapidSecrets::seed_cpp(seed))
}

/// MurmurHash64A (Austin Appleby, public domain algorithm): the hash of the hash-sharing paper.
fn murmur64a(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(M);
    let (words, rest) = chunks::<8>(key);
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0u8; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 47)
}

/// Full avalanche over 64 bits (the finaliser of SplitMix64): a bijection, so no information is
/// lost.
#[inline]
fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// One remix of a digest: a keyed full-avalanche bijection.
#[inline]
fn remix(x: u64, key: u64) -> u64 {
    let x = x ^ key;
    let x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests;
