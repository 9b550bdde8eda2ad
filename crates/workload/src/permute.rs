//! A pseudo-random order of the numbers below n, computed instead of stored.
//!
//! A Feistel network permutes the numbers below the next power of four above n. A result outside
//! the range is fed in again until it falls inside (cycle walking), which keeps it a permutation.
//! So ten million keys can be written exactly once each, in random order, without storing ten
//! million numbers.

use crate::mix::mix2;

/// Rounds of the network: four are enough for a statistical (not cryptographic) shuffle.
const ROUNDS: u64 = 4;

/// A permutation of `0..n` given by a seed.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// The permutation of `0..n` selected by `seed`.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The image of `i`, which must be below n.
    #[inline]
    pub fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mut x = i;
        loop {
            x = self.network(x);
            if x < self.n {
                return x;
            }
        }
    }

    #[inline]
    fn network(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..ROUNDS {
            let mixed = mix2(right ^ (round << 56), self.seed) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for n in [1, 2, 3, 4, 5, 16, 17, 1000, 4096, 10_007] {
            let order = Permutation::new(n, n ^ 99);
            let mut seen: Vec<u64> = (0..n).map(|i| order.at(i)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "not a permutation of 0..{n}");
        }
    }

    #[test]
    fn seeds_differ_and_the_order_is_not_the_natural_one() {
        let (a, b) = (Permutation::new(1000, 1), Permutation::new(1000, 2));
        assert!((0..1000).filter(|&i| a.at(i) == b.at(i)).count() < 20);
        assert!((0..1000).filter(|&i| a.at(i) == i).count() < 20);
    }

    #[test]
    fn the_largest_domains_do_not_overflow() {
        let order = Permutation::new(u64::MAX, 3);
        assert!(order.at(u64::MAX - 1) < u64::MAX);
    }
}
