//! Measurement of filters: builds filters and probes them, to check theory and guarantees.
//!
//! - [`rates`]: false-positive rates of a layout, with their standard error;
//! - [`membership`]: no filter rejects a key that it was built from, over all layouts and kinds of
//!   keys;
//! - [`raw`]: the standard filter over unmodified digests, for the papers' tables of hash
//!   functions.
//!
//! Everything follows from a seed, so that a failure can be reproduced. Used by the crate's tests
//! and by `cargo xtask`.
//!
//! Not here: the measured rates ([`crate::measured`]).

pub mod membership;
pub mod rates;
pub mod raw;

use crate::layout::{FilterLayout, MAX_MODULES, MAX_RIBBON_MODULES, Modules, Probing};

/// Pseudo-random numbers from a seed (SplitMix64). All numbers of one stream differ: a filter built
/// from some of them can be probed with the next ones as absent keys.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// The next number, scaled to the range from 0 up to 1.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.draw())
    }
}

/// Every family, every number of modules, and two proportional divisions for each number.
pub fn every_layout() -> Vec<FilterLayout> {
    let mut layouts = vec![
        FilterLayout::Standard(Probing::Rotation),
        FilterLayout::Standard(Probing::DoubleHashing),
        FilterLayout::Blocked,
    ];
    layouts.extend((1..=MAX_MODULES).filter_map(Modules::equal).map(FilterLayout::Modular));
    let proportional = (2..=MAX_MODULES).flat_map(|count| [(count, 100), (count, 600)]);
    let proportional = proportional.filter_map(|(count, permille)| Modules::proportional(count, permille));
    layouts.extend(proportional.map(FilterLayout::Modular));
    let ribbons = (1..=MAX_RIBBON_MODULES).filter_map(Modules::equal);
    layouts.extend(ribbons.chain(Modules::proportional(2, 300)).map(FilterLayout::Ribbon));
    layouts
}
