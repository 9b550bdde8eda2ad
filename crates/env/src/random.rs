//! Randomness, as a trait: one call that returns 64 bits.
//!
//! [`RealRng`] is unpredictable from outside: it seeds digests, so that an attacker cannot
//! construct collisions for a database. [`SeededRng`] returns the same numbers for the same seed.
//! Both are shared freely between threads.
//!
//! Not here: sampling on hot paths, which has its own small generators.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{Mutex, PoisonError};

/// A source of random numbers.
pub trait Rng: Send + Sync + Debug {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Unpredictable numbers: a keyed hash (its key drawn from the operating system) of a counter.
///
/// A plain generator would suffice for the distribution, but its state can be computed from its
/// output.
#[derive(Debug, Default)]
pub struct RealRng {
    keys: RandomState,
    counter: AtomicU64,
}

impl RealRng {
    /// A generator with new keys.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Rng for RealRng {
    fn next_u64(&self) -> u64 {
        self.keys.hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

/// The same numbers for the same seed, in the order of the calls.
#[derive(Debug)]
pub struct SeededRng {
    generator: Mutex<fastrand::Rng>,
}

impl SeededRng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self { generator: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        self.generator.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(rng: &dyn Rng, count: usize) -> Vec<u64> {
        (0..count).map(|_| rng.next_u64()).collect()
    }

    #[test]
    fn a_seed_fixes_the_numbers() {
        assert_eq!(take(&SeededRng::new(7), 20), take(&SeededRng::new(7), 20));
        assert_ne!(take(&SeededRng::new(7), 20), take(&SeededRng::new(8), 20));
    }

    #[test]
    fn two_real_generators_differ_and_do_not_repeat() {
        let mut seen = take(&RealRng::new(), 1_000);
        seen.extend(take(&RealRng::new(), 1_000));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 2_000);
    }
}
