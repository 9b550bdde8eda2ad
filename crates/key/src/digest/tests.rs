//! Digests against published vectors, and the qualities that the rest of the engine relies on.

use super::*;
use std::collections::HashSet;

/// Pseudo-random numbers (SplitMix64) from a fixed seed, so that a failure can be reproduced.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finalise(self.0)
    }
}

/// The verification value of SMHasher, which authors of hash functions publish to check ports: hash
/// the keys {}, {0}, {0, 1}, ... {0, .. 254} under the seeds 256, 255, ... 1, then hash those 256
/// hashes under the seed 0; the low 32 bits.
fn smhasher_verification(kind: DigestKind) -> u32 {
    let key: Vec<u8> = (0..=255).collect();
    let mut hashes = Vec::new();
    for length in 0..256usize {
        let hash = DigestFn::new(kind, 256 - length as u64).hash(&key[..length]);
        hashes.extend_from_slice(&hash.to_le_bytes());
    }
    DigestFn::new(kind, 0).hash(&hashes) as u32
}

#[test]
fn the_published_verification_values() {
    for (kind, published) in [
        (DigestKind::Xxh3, 0x9a63_6405),
        (DigestKind::Xxh64, 0x024b_7cf4),
        (DigestKind::Rapid, 0x1fdc_65ee),
        (DigestKind::Murmur64A, 0x1f0d_3804),
        (DigestKind::City64, 0x5fab_c5c5),
    ] {
        let value = smhasher_verification(kind);
        assert_eq!(value, published, "{kind}: {value:#010x}");
    }
}

#[test]
fn the_published_hashes_of_single_keys() {
    for (kind, key, published) in [
        (DigestKind::Xxh3, "", 0x2d06_8005_38d3_94c2),
        (DigestKind::Xxh64, "", 0xef46_db37_51d8_e999),
        (DigestKind::Xxh64, "a", 0xd24e_c4f1_a98c_6e5b),
        (DigestKind::Rapid, "hello world", 3_397_907_815_814_400_320),
        (DigestKind::Murmur64A, "", 0),
        (DigestKind::Crc32c, "123456789", 0xe306_9283),
    ] {
        let hash = DigestFn::new(kind, 0).hash(key.as_bytes());
        assert_eq!(hash, published, "{kind} {key:?}: {hash:#018x}");
    }
}

/// These numbers are in databases and tables: if one changes, the version of the formats must
/// change too.
#[test]
fn digests_stay_what_they_are_on_disk() {
    for (kind, seed, digest) in [
        (DigestKind::Xxh3, 0, 0x2267_1e57_c192_7662),
        (DigestKind::Xxh3, 42, 0x90dc_07a0_8479_7bde),
        (DigestKind::Xxh64, 42, 0x5663_a6c2_43f1_caa4),
        (DigestKind::Rapid, 42, 0x94b6_cb1b_4e14_7eb0),
        (DigestKind::Murmur64A, 42, 0xfa89_8572_58b1_ceb7),
        (DigestKind::City64, 42, 0x341a_9af6_261d_c390),
        (DigestKind::Crc32c, 42, 0xe156_2e5b_f891_abdc),
        (DigestKind::TestFourBit, 42, 0x5692_161d_100b_05e5),
    ] {
        let made = DigestFn::new(kind, seed).digest(b"shamba").raw();
        assert_eq!(made, digest, "{kind} under {seed}: {made:#018x}");
    }
    // Remixes of a digest, computed independently of this code.
    let digest = KeyDigest::from_raw(0x0123_4567_89ab_cdef);
    assert_eq!(digest.block_tag(), 0x9ef6);
    assert_eq!(digest.module(0), 0x7414_c9da_1868_2a40);
    assert_eq!(digest.module(1), 0x9405_009d_b1a2_2a12);
}

#[test]
fn every_digest_is_counted_once_on_its_own_thread() {
    let digests = DigestFn::new(DigestKind::Xxh3, 7);
    let before = hashes_on_this_thread();
    for key in 0..1000u32 {
        let digest = digests.digest(&key.to_le_bytes());
        // Remixes are not hashes.
        let _ = (digest.memtable_slot(), digest.block_tag(), digest.module(0));
    }
    assert_eq!(hashes_on_this_thread() - before, 1000);
    let elsewhere = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                digests.digest(b"elsewhere");
                hashes_on_this_thread()
            })
            .join()
            .unwrap()
    });
    assert_eq!(elsewhere, 1);
    assert_eq!(hashes_on_this_thread() - before, 1000);
}

#[test]
fn names_and_bytes_find_their_kind() {
    for kind in DigestKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(DigestKind::from_byte(kind as u8), Some(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    for byte in [0, 7, 14, 16, 255] {
        assert_eq!(DigestKind::from_byte(byte), None);
    }
    let error = "md5".parse::<DigestKind>().unwrap_err();
    assert!(error.contains("md5") && error.contains("xxh3"), "{error}");
}

#[test]
fn the_test_kind_collides_as_it_should() {
    let mut numbers = Numbers(1);
    for seed in [0, 1, numbers.next()] {
        let digests = DigestFn::new(DigestKind::TestFourBit, seed);
        let seen: HashSet<u64> = (0..10_000u32).map(|key| digests.digest(&key.to_le_bytes()).raw()).collect();
        assert_eq!(seen.len(), 16, "seed {seed}");
    }
}

#[test]
fn other_kinds_neither_collide_nor_agree() {
    let mut seen = HashSet::new();
    for kind in DigestKind::ALL {
        // CRC-32C has only 32 bits: 2,000 keys collide with a probability of one in two thousand,
        // and these do not.
        if kind == DigestKind::TestFourBit {
            continue;
        }
        for seed in [0, 1] {
            let digests = DigestFn::new(kind, seed);
            for key in 0..2000u32 {
                let fresh = seen.insert(digests.digest(&key.to_be_bytes()).raw());
                // The seed of CRC-32C is added to its 32 bits, so another seed may give the same
                // digest.
                assert!(fresh || kind == DigestKind::Crc32c, "{kind} under {seed}: key {key}");
            }
        }
    }
}

/// Flips each bit of many inputs: each bit of the output must change in about half of the cases.
fn assert_avalanche(name: &str, mix: impl Fn(u64) -> u64) {
    const ROUNDS: u32 = 20_000;
    let mut numbers = Numbers(2);
    let mut flips = [[0u32; 64]; 64];
    for _ in 0..ROUNDS {
        let x = numbers.next();
        let y = mix(x);
        for (bit, counts) in flips.iter_mut().enumerate() {
            let changed = y ^ mix(x ^ (1 << bit));
            for (out, count) in counts.iter_mut().enumerate() {
                *count += (changed >> out & 1) as u32;
            }
        }
    }
    // 4,096 counts of mean 0.5 and standard deviation 0.0035: 8 deviations are beyond chance.
    for (bit, counts) in flips.iter().enumerate() {
        for (out, count) in counts.iter().enumerate() {
            let share = f64::from(*count) / f64::from(ROUNDS);
            assert!((share - 0.5).abs() < 0.03, "{name}: bit {bit} flips bit {out} in {share} of the cases");
        }
    }
}

#[test]
fn finaliser_and_remixes_have_full_avalanche() {
    assert_avalanche("finalise", finalise);
    assert_avalanche("memtable_slot", |x| KeyDigest(x).memtable_slot());
    assert_avalanche("module 0", |x| KeyDigest(x).module(0));
    assert_avalanche("module 255", |x| KeyDigest(x).module(255));
}

/// Keys that share their block tag, memtable slot bits or module bits must still differ in the
/// others.
#[test]
fn remixes_do_not_predict_each_other() {
    let mut numbers = Numbers(3);
    let (mut tags, mut modules) = ([0u32; 256], [0u32; 256]);
    let mut found = 0;
    while found < 25_600 {
        let digest = KeyDigest(numbers.next());
        if digest.memtable_slot() >> 56 == 17 {
            tags[usize::from(digest.block_tag() & 0xff)] += 1;
            modules[(digest.module(0) >> 56) as usize] += 1;
            found += 1;
        }
    }
    // Mean 100, standard deviation 10.
    for (byte, (tag, module)) in tags.into_iter().zip(modules).enumerate() {
        assert!((40..160).contains(&tag) && (40..160).contains(&module), "{byte}: {tag} {module}");
    }
}
