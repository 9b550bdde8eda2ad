//! The standard filter over raw digests: measures the papers' tables of hash functions.
//!
//! A key is an array of digests exactly as the hash functions return them, without this crate's
//! finaliser and remixes. Probes are made as in the papers, modulo the filter's bits, so that
//! weaknesses of a hash function show:
//!
//! - independent: probe i is digest i;
//! - rotation: `h + i * step` in 32 bits, h the low half of digest 0, `step = h << 17 | h >> 15`;
//! - double hashing: `h1 + i * h2` in 64 bits, digests 0 and 1.
//!
//! No table stores such a filter; tables may store [`crate::FilterLayout::Standard`].

/// How probes are derived from a key's digests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RawProbing {
    /// A digest for each probe.
    Independent,
    /// One digest and its rotation.
    Rotation,
    /// Two digests.
    DoubleHashing,
}

impl RawProbing {
    /// Number of digests per key.
    pub fn digests(self, probes: u8) -> usize {
        match self {
            Self::Independent => usize::from(probes),
            Self::Rotation => 1,
            Self::DoubleHashing => 2,
        }
    }
}

/// A standard filter over raw digests.
#[derive(Clone, Debug)]
pub struct RawFilter {
    words: Vec<u64>,
    bits: u64,
    probes: u8,
    probing: RawProbing,
}

impl RawFilter {
    /// An empty filter for `keys` keys at `bits_per_key`, with `probes` probes; at least one bit.
    pub fn new(keys: usize, bits_per_key: f64, probes: u8, probing: RawProbing) -> Self {
        let bits = (keys as f64 * bits_per_key).round().max(1.0) as u64;
        Self { words: vec![0; bits.div_ceil(64) as usize], bits, probes, probing }
    }

    /// Adds the key of these digests.
    ///
    /// # Panics
    /// With fewer digests than [`RawProbing::digests`] requires.
    pub fn insert(&mut self, digests: &[u64]) {
        for probe in 0..self.probes {
            let bit = self.bit(digests, probe);
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Whether the key of these digests may have been added.
    ///
    /// # Panics
    /// With fewer digests than [`RawProbing::digests`] requires.
    pub fn may_contain(&self, digests: &[u64]) -> bool {
        (0..self.probes).map(|probe| self.bit(digests, probe)).all(|bit| {
            let word = self.words[(bit / 64) as usize];
            word >> (bit % 64) & 1 == 1
        })
    }

    fn bit(&self, digests: &[u64], probe: u8) -> u64 {
        let hash = match self.probing {
            RawProbing::Independent => digests[usize::from(probe)],
            RawProbing::Rotation => {
                let hash = digests[0] as u32;
                u64::from(hash.wrapping_add(hash.rotate_left(17).wrapping_mul(u32::from(probe))))
            }
            RawProbing::DoubleHashing => digests[0].wrapping_add(digests[1].wrapping_mul(u64::from(probe))),
        };
        hash % self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fpr::standard_fpr;
    use crate::sim::Numbers;

    /// The share of absent keys that pass a filter of 100,000 keys at 10 bits, seven probes.
    fn measured(probing: RawProbing, mut digest: impl FnMut() -> u64) -> f64 {
        let count = probing.digests(7);
        let mut key = || (0..count).map(|_| digest()).collect::<Vec<u64>>();
        let keys: Vec<Vec<u64>> = (0..100_000).map(|_| key()).collect();
        let mut filter = RawFilter::new(keys.len(), 10.0, 7, probing);
        keys.iter().for_each(|key| filter.insert(key));
        assert!(keys.iter().all(|key| filter.may_contain(key)));
        let absent_keys = 1_000_000;
        (0..absent_keys).filter(|_| filter.may_contain(&key())).count() as f64 / f64::from(absent_keys)
    }

    #[test]
    fn good_digests_meet_theory_but_for_the_rotation() {
        let theory = standard_fpr(10.0, 7);
        // One digest and its rotation cost some 7 %, whatever the hash function. The papers' second
        // table has 0.85 % instead of 0.82 % for this reason, not because of the functions in it.
        for (probing, least, most) in [
            (RawProbing::Independent, 0.96, 1.04),
            (RawProbing::Rotation, 1.03, 1.11),
            (RawProbing::DoubleHashing, 0.97, 1.05),
        ] {
            let mut numbers = Numbers(21);
            let ratio = measured(probing, || numbers.draw()) / theory;
            assert!((least..most).contains(&ratio), "{probing:?}: {ratio} of theory");
        }
    }

    #[test]
    fn weak_digests_are_not_mended() {
        // Sixteen bits of entropy: 100,000 keys leave no value free, so every absent key passes.
        let mut numbers = Numbers(22);
        let rate = measured(RawProbing::Rotation, || numbers.draw() & 0xffff);
        assert!(rate > 0.7, "{rate}");
    }

    #[test]
    fn probes_are_the_papers() {
        let filter = RawFilter::new(100, 10.0, 3, RawProbing::Rotation);
        // h = 1: the step is 2^17.
        assert_eq!([0, 1, 2].map(|probe| filter.bit(&[1], probe)), [1, 131_073 % 1000, 262_145 % 1000]);
        // h = 2^15: the step wraps to 1. Bits above 32 do not count.
        assert_eq!([0, 1, 2].map(|probe| filter.bit(&[7 << 32 | 1 << 15], probe)), [768, 769, 770]);
        let filter = RawFilter::new(100, 10.0, 3, RawProbing::DoubleHashing);
        assert_eq!([0, 1, 2].map(|probe| filter.bit(&[u64::MAX, 5], probe)), [615, 4, 9]);
        let filter = RawFilter::new(100, 10.0, 3, RawProbing::Independent);
        assert_eq!([0, 1, 2].map(|probe| filter.bit(&[1001, 2002, 3003], probe)), [1, 2, 3]);
    }
}
