//! Measured false-positive rates: the ones that the cost model uses.
//!
//! The table is generated and checked in. `cargo xtask fpr-table --write` measures and writes it.
//! `cargo xtask fpr-table` measures again with another seed and fails if a rate differs by more
//! than sampling error; tests of this crate do the same for some of the points. Between two points
//! the logarithm of the rate is interpolated linearly, with an error of at most 1.3 %. Beyond the
//! last point the rate falls as in theory.
//!
//! One module of b bits per key is a blocked filter of b bits: [`module_fpr`]. Modules of
//! proportional sizes fail independently, so their rates multiply.
//!
//! Ribbon filters are not in the table: the constants of [`crate::fpr::ribbon_fpr`] are measured.
//! They agree with a measurement within 3 % up to 11 bits per key and 10 % up to 14.
//!
//! Not here: the theory ([`crate::fpr`]); the measurement ([`crate::sim::rates`]).

mod table;

use crate::fpr::layout_fpr;
use crate::layout::{FilterLayout, MAX_MODULES, Modules, Probing};
use crate::limits::MAX_BITS_PER_KEY;

/// A measured rate, with its error and the theoretical rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Bits per key, over all modules.
    pub bits_per_key: f64,
    /// The rate.
    pub fpr: f64,
    /// Its standard error.
    pub error: f64,
    /// The rate in theory.
    pub theory: f64,
}

/// The layouts that were measured, with their points in the order of bits: the standard filters,
/// the blocked one, and two to seven modules of equal size.
pub fn every_series() -> impl Iterator<Item = (FilterLayout, &'static [Point])> {
    let standard = [Probing::Rotation, Probing::DoubleHashing].map(FilterLayout::Standard);
    let modular = (2..=MAX_MODULES).filter_map(Modules::equal).map(FilterLayout::Modular);
    let layouts = standard.into_iter().chain([FilterLayout::Blocked]).chain(modular);
    layouts.zip(table::SERIES.iter().copied())
}

/// The measured rate of a filter with `bits_per_key` over all its modules; 1 without bits.
pub fn fpr(layout: FilterLayout, bits_per_key: f64) -> f64 {
    if bits_per_key.is_nan() {
        return 1.0; // Which `min` would take for the most bits.
    }
    let bits_per_key = bits_per_key.min(MAX_BITS_PER_KEY);
    let series = match layout {
        FilterLayout::Standard(Probing::Rotation) => 0,
        FilterLayout::Standard(Probing::DoubleHashing) => 1,
        FilterLayout::Blocked => 2,
        FilterLayout::Modular(modules) if modules.first_share_permille().is_some() => {
            return modules.shares().map(|share| module_fpr(share * bits_per_key)).product();
        }
        FilterLayout::Modular(modules) => 1 + modules.count(),
        FilterLayout::Ribbon(_) => return layout_fpr(layout, bits_per_key),
    };
    let points = table::SERIES.get(series).copied().unwrap_or_default();
    interpolate(layout, points, bits_per_key)
}

/// The measured rate of one module with `bits_per_key`; 1 without bits.
pub fn module_fpr(bits_per_key: f64) -> f64 {
    fpr(FilterLayout::Blocked, bits_per_key)
}

fn interpolate(layout: FilterLayout, points: &[Point], bits_per_key: f64) -> f64 {
    if bits_per_key <= 0.0 {
        return 1.0;
    }
    let after = points.partition_point(|point| point.bits_per_key < bits_per_key);
    let before = after.checked_sub(1).and_then(|before| points.get(before));
    let (from_bits, from_fpr) = before.map_or((0.0, 1.0), |point| (point.bits_per_key, point.fpr));
    let Some(to) = points.get(after) else {
        let theory = before.map_or(1.0, |point| point.theory);
        return from_fpr * layout_fpr(layout, bits_per_key) / theory;
    };
    let way = (bits_per_key - from_bits) / (to.bits_per_key - from_bits);
    from_fpr * (to.fpr / from_fpr).powf(way)
}

#[cfg(test)]
mod tests;
