//! Seeds: the start of a suite's randomness, and the one command that reproduces a failure.

use std::fmt;

/// Reads a number from the environment, decimal or 0x-hexadecimal.
///
/// # Panics
/// If it is set to something else: a rerun must not silently use another seed.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// The seed of a suite: `SHAMBA_SEED`, or its fixed one. CI runs the same seed every time; a soak
/// draws new seeds.
pub fn base(fixed: u64) -> u64 {
    number("SHAMBA_SEED").unwrap_or(fixed)
}

/// The only vector to run, if `SHAMBA_VECTOR` names one.
pub fn only_vector() -> Option<usize> {
    number("SHAMBA_VECTOR").and_then(|index| usize::try_from(index).ok())
}

/// Formats as the command that reproduces one failing case.
#[derive(Clone, Copy, Debug)]
pub struct Rerun<'a> {
    /// The test, as the harness names it.
    pub test: &'a str,
    /// The suite's seed.
    pub seed: u64,
    /// The vector or workload in it.
    pub vector: usize,
}

impl fmt::Display for Rerun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SHAMBA_SEED={} SHAMBA_VECTOR={} cargo test -p shamba-tests --test suites {} -- --exact --nocapture",
            self.seed, self.vector, self.test
        )
    }
}

/// Mixes two numbers into one; every bit of both affects every bit of the result.
pub fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
