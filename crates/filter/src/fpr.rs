//! False-positive rates in theory.
//!
//! The standard filter: after n keys of k probes each in m bits, a bit is set with probability 1 -
//! e^(-kn/m), and an absent key passes when all its k bits are set (paper "hash sharing", equation
//! 1).
//!
//! The blocked filter: a line is a small standard filter of 512 bits. Keys fall into lines at
//! random, so the number of keys per line is Poisson-distributed with mean 512 / bits per key. The
//! rate is the mean over the lines (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient
//! Bloom Filters, 2007). Overfull lines lose more than the others gain. The resulting loss against
//! the standard filter grows with the bits per key.
//!
//! The modular filter: modules fail independently, so the rates multiply. Splitting *lowers* the
//! rate of a blocked filter: a key in an overfull line of one module usually has an average line in
//! the next.
//!
//! The ribbon filter: an absent key passes a column with probability 1/2, and all of them if its
//! equation depends on those of the keys, a share that is measured.
//!
//! Not here: measured rates ([`crate::measured`]); the number of bits that a file should get (crate
//! `shamba-model`).

use std::f64::consts::LN_2;

use crate::LINE_BITS;
use crate::layout::FilterLayout;
use crate::limits::{MAX_BITS_PER_KEY, MAX_COLUMNS, MAX_PROBES, rows_per_key};

/// The false-positive rate of a standard Bloom filter with `probes` probes; 1 without bits or
/// probes.
pub fn standard_fpr(bits_per_key: f64, probes: u8) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 || probes == 0 {
        return 1.0;
    }
    let set = -(-f64::from(probes) / bits_per_key).exp_m1();
    set.powi(i32::from(probes))
}

/// The false-positive rate of a blocked filter with `probes` probes; 1 without bits or probes.
pub fn blocked_fpr(bits_per_key: f64, probes: u8) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 || probes == 0 {
        return 1.0;
    }
    let mean = LINE_BITS as f64 / bits_per_key;
    // Beyond this every line is full, and the sum below would be long.
    if mean > 1e6 {
        return 1.0;
    }
    // Weights relative to the most likely number of keys, so that nothing underflows; then
    // normalised.
    let mode = mean.floor();
    let (mut weights, mut rates) = (0.0, 0.0);
    let mut add = |keys: f64, weight: f64| {
        weights += weight;
        rates += weight * line_fpr(keys, probes);
    };
    let mut weight = 1.0;
    let mut keys = mode;
    while weight > NEGLIGIBLE {
        add(keys, weight);
        keys += 1.0;
        weight *= mean / keys;
    }
    let mut weight = mode / mean;
    let mut keys = mode - 1.0;
    while keys >= 0.0 && weight > NEGLIGIBLE {
        add(keys, weight);
        weight *= keys / mean;
        keys -= 1.0;
    }
    rates / weights
}

/// The number of probes, 1 to 16, with the lowest [`blocked_fpr`].
///
/// The rate decreases up to that number and increases after it. The search descends from the
/// optimum of a standard filter, which is close: one rate is a sum of some hundred terms, and the
/// build of each filter calls this.
pub fn best_probes(bits_per_key: f64) -> u8 {
    let bits_per_key = if bits_per_key > 0.0 { bits_per_key.min(MAX_BITS_PER_KEY) } else { 0.0 };
    let rate = |probes| blocked_fpr(bits_per_key, probes);
    let mut best = ((bits_per_key * LN_2) as u8).clamp(1, MAX_PROBES);
    let mut lowest = rate(best);
    while best > 1 {
        let fewer = rate(best - 1);
        if fewer > lowest {
            break;
        }
        (best, lowest) = (best - 1, fewer);
    }
    while best < MAX_PROBES {
        let more = rate(best + 1);
        if more >= lowest {
            break;
        }
        (best, lowest) = (best + 1, more);
    }
    best
}

/// The number of probes, 1 to 16, with the lowest [`standard_fpr`].
pub fn best_standard_probes(bits_per_key: f64) -> u8 {
    let rate = |probes: u8| standard_fpr(bits_per_key, probes);
    (1..=MAX_PROBES).min_by(|a, b| rate(*a).total_cmp(&rate(*b))).unwrap_or(1)
}

/// The false-positive rate of one ribbon module; 1 without bits.
pub fn ribbon_fpr(bits_per_key: f64) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    let rows_per_key = rows_per_key(bits_per_key);
    let columns = (bits_per_key / rows_per_key).min(f64::from(MAX_COLUMNS));
    // Some segments have one column more than the others.
    let passing = (-columns.floor()).exp2() * (1.0 - columns.fract() / 2.0);
    // Measured: 0.6 % at 1.06 rows per key, 0.01 % at 1.1.
    let dependent = 0.0063 * (-100.0 * (rows_per_key - 1.06)).exp();
    passing + dependent * (1.0 - passing)
}

/// The false-positive rate of a filter with `bits_per_key` over all its modules, each with its best
/// number of probes.
pub fn layout_fpr(layout: FilterLayout, bits_per_key: f64) -> f64 {
    let module = |share: f64| {
        let bits_per_key = bits_per_key * share;
        match layout {
            FilterLayout::Standard(_) => standard_fpr(bits_per_key, best_standard_probes(bits_per_key)),
            FilterLayout::Blocked | FilterLayout::Modular(_) => {
                blocked_fpr(bits_per_key, best_probes(bits_per_key))
            }
            FilterLayout::Ribbon(_) => ribbon_fpr(bits_per_key),
        }
    };
    layout.modules().shares().map(module).product()
}

/// A line's weight, relative to the most likely one, below which it is ignored. Far below the rates
/// of lines that matter at 64 bits per key (about 1e-9).
const NEGLIGIBLE: f64 = 1e-24;

/// The false-positive rate of one line that holds `keys` keys: the mean of (set bits / 512)^probes.
/// The number of set bits varies slightly around its mean, which a convex power amplifies: the
/// second term.
fn line_fpr(keys: f64, probes: u8) -> f64 {
    let bits = LINE_BITS as f64;
    let set = keys * f64::from(probes);
    let zero = (set * (-1.0 / bits).ln_1p()).exp();
    let two_zero = (set * (-2.0 / bits).ln_1p()).exp();
    let share = 1.0 - zero;
    let variance = ((zero + (bits - 1.0) * two_zero) / bits - zero * zero).max(0.0);
    let k = i32::from(probes);
    let mut rate = share.powi(k);
    if k >= 2 {
        rate += f64::from(k * (k - 1)) / 2.0 * share.powi(k - 2) * variance;
    }
    rate.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.002, "{value} is not {expected}");
    }

    #[test]
    fn the_published_rates() {
        // The standard filter at its best: e^(-bits * ln2^2), paper equation 1.
        near(standard_fpr(10.0, 7), 0.008194);
        near(standard_fpr(5.0, 3), 0.091849);
        // Computed independently of this code: Poisson mixtures over the exact distribution of set
        // bits.
        near(blocked_fpr(2.0, 1), 0.393469);
        near(blocked_fpr(5.0, 3), 0.093063);
        near(blocked_fpr(10.0, 6), 0.009665);
        near(blocked_fpr(10.0, 7), 0.009686);
        near(blocked_fpr(20.0, 11), 0.000197832);
    }

    #[test]
    fn no_bits_mean_no_filtering() {
        for bits in [0.0, -3.0, f64::NAN] {
            assert_eq!(blocked_fpr(bits, 7), 1.0);
            assert_eq!(standard_fpr(bits, 7), 1.0);
            assert_eq!(best_probes(bits), 1);
        }
        assert_eq!(blocked_fpr(10.0, 0), 1.0);
        assert_eq!(standard_fpr(10.0, 0), 1.0);
    }

    #[test]
    fn more_bits_never_hurt_and_blocks_never_help() {
        let mut before = 1.0;
        for tenths in 1..=640 {
            let bits = f64::from(tenths) / 10.0;
            let probes = best_probes(bits);
            let rate = blocked_fpr(bits, probes);
            assert!(rate > 0.0 && rate <= before, "{bits} bits: {rate} after {before}");
            let standard = (1..=MAX_PROBES).map(|k| standard_fpr(bits, k)).fold(1.0, f64::min);
            assert!(rate >= standard * 0.999, "{bits} bits: {rate} below {standard}");
            before = rate;
        }
    }

    /// The number of probes is stored in files: a different answer would build a different filter.
    #[test]
    fn the_best_probes_are_the_best_of_all() {
        for bits in (0..=1024).map(|step| f64::from(step) / 16.0).chain([1e-9, 1e-4, 0.003, 0.01, 0.7]) {
            let rate = |probes: u8| blocked_fpr(bits, probes);
            let best = (1..=MAX_PROBES).min_by(|a, b| rate(*a).total_cmp(&rate(*b)));
            assert_eq!(Some(best_probes(bits)), best, "{bits} bits");
        }
    }

    #[test]
    fn the_best_probes_are_about_ln_2_of_the_bits() {
        assert_eq!([1.0, 5.0, 10.0, 16.0, 40.0].map(best_probes), [1, 3, 6, 9, 16]);
        assert_eq!(best_probes(f64::INFINITY), best_probes(MAX_BITS_PER_KEY));
        assert!(best_probes(MAX_BITS_PER_KEY) <= MAX_PROBES);
    }
}
