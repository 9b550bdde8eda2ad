//! Monkey's closed forms: what filters cost and save in the paper's perfect tree.
//!
//! The tree has L levels, level 1 the smallest; level i holds n_i = N * T^(i-1) * (T-1) / (T^L - 1) entries, in
//! one run (leveling) or T - 1 equal ones (tiering). A cost is the I/Os that one lookup is expected to make.
//!
//! Two kinds of functions stand side by side, and their names tell them apart:
//!
//! - `*_closed` are the paper's formulas, which take the limit of many levels;
//! - `*_exact` are the same for this L, by the one rule ([`crate::allocation`]) or by sums over its levels.
//!
//! They differ in the third to fifth digit. The engine allocates over its real files and uses neither.
//!
//! The paper's v, non-zero-result lookups per zero-result lookup, is written `empty_fraction` = 1 / (v + 1), so
//! v / (v + 1) = 1 - `empty_fraction`. Filter memory is in bits.
//!
//! Source: Dayan, Athanassoulis, Idreos: Monkey (TODS 2018); the equations are its. The paper's
//! symbols: N `entries`, T `size_ratio`, L `levels`, M_filt `filter_bits`, R `zero_result_cost`, Z `mixed_cost`,
//! V `found_cost`, L_unfiltered `unfiltered_levels`, c' `last_level_weight` with tiering.
//!
//! Not here: real trees ([`crate::allocation`]); updates, ranges and filters against buffer, equations 10 to 12
//! and 21 to 28.

use crate::MergePolicy;
use crate::allocation::{LN2_SQUARED, Limits, Site, Theory, solve};
use crate::design::{MAX_LEVELS, MAX_SIZE_RATIO};
use crate::input;

/// Equation 2: the false-positive rate of the best Bloom filter at `bits_per_key`.
pub fn bloom_fpr(bits_per_key: f64) -> f64 {
    (-bits_per_key * LN2_SQUARED).exp()
}

/// Equation 2 the other way round: the bits per key that give the rate `fpr`.
pub fn bloom_bits_per_key(fpr: f64) -> f64 {
    -fpr.ln() / LN2_SQUARED
}

/// Equation 1: the levels that `data_bytes` (N * E) need below a buffer: ceil(log_T(N E / M_buf * (T-1) / T)),
/// at least 1. [`crate::Design::levels_for`] sums the real capacities instead of taking the limit.
///
/// # Errors
/// A size ratio out of bounds, or a buffer of no bytes.
pub fn levels_closed(data_bytes: u64, buffer_bytes: u64, size_ratio: f64) -> Result<u32, String> {
    check_size_ratio(size_ratio)?;
    if buffer_bytes == 0 {
        return Err("the buffer has no bytes: a tree needs one".to_owned());
    }
    let needed = data_bytes as f64 / buffer_bytes as f64 * (size_ratio - 1.0) / size_ratio;
    // A repeated product instead of a quotient of logarithms, which would miss whole answers by rounding.
    let (mut levels, mut reached) = (1, size_ratio);
    while reached < needed && levels < MAX_LEVELS {
        reached *= size_ratio;
        levels += 1;
    }
    Ok(levels)
}

/// The paper's perfect tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperTree {
    tiering: bool,
    size_ratio: f64,
    levels: u32,
    entries: f64,
}

impl PaperTree {
    /// A tree of `entries` on `levels`.
    ///
    /// # Errors
    /// Lazy leveling, which the paper does not know, or a figure out of bounds.
    pub fn new(policy: MergePolicy, size_ratio: f64, levels: u32, entries: u64) -> Result<Self, String> {
        let tiering = match policy {
            MergePolicy::Leveling => false,
            MergePolicy::Tiering => true,
            MergePolicy::LazyLeveling => {
                return Err(format!("Monkey's formulas know leveling and tiering only, not {policy}"));
            }
        };
        check_size_ratio(size_ratio)?;
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(format!("levels must be from 1 to {MAX_LEVELS}, not {levels}"));
        }
        if entries == 0 {
            return Err("a tree without entries has no filters".to_owned());
        }
        Ok(Self { tiering, size_ratio, levels, entries: entries as f64 })
    }

    /// The runs of each level: 1, or T - 1 (which need not be whole: the formulas go on).
    pub fn runs_per_level(&self) -> f64 {
        if self.tiering { self.size_ratio - 1.0 } else { 1.0 }
    }

    /// n_i, the entries of level `level`, all its runs together. Summed over the levels: N.
    pub fn level_entries(&self, level: u32) -> f64 {
        let t = self.size_ratio;
        self.entries * (t - 1.0) / t / self.above(level) / (1.0 - 1.0 / self.power(self.levels))
    }

    /// Equation 3: R = sum of p_i (leveling) or (T-1) * sum of p_i (tiering), p_i the rate of a run of level i:
    /// the I/Os of a lookup that finds nothing.
    pub fn zero_result_cost(&self, fprs: &[f64]) -> f64 {
        self.runs_per_level() * fprs.iter().sum::<f64>()
    }

    /// Equation 4: the filter bits that these rates take, in the limit of many levels: -N / ln2^2 * (T-1) / T *
    /// sum of ln(p_i) / T^(L-i).
    pub fn filter_bits_closed(&self, fprs: &[f64]) -> f64 {
        let t = self.size_ratio;
        let sum: f64 = (1..).zip(fprs).map(|(level, fpr)| fpr.ln() / self.above(level)).sum();
        -self.entries / LN2_SQUARED * (t - 1.0) / t * sum
    }

    /// Equation 4 for this L: -sum of n_i * ln(p_i) / ln2^2.
    pub fn filter_bits_exact(&self, fprs: &[f64]) -> f64 {
        (1..).zip(fprs).map(|(level, fpr)| self.level_entries(level) * bloom_bits_per_key(*fpr)).sum()
    }

    /// Equations 5 (leveling) and 6 (tiering): the best rates of levels 1 to L at zero-result cost R; 1 on the
    /// deepest `unfiltered` levels.
    pub fn fprs_closed(&self, zero_result_cost: f64, unfiltered: u32) -> Vec<f64> {
        let largest = (self.size_ratio - 1.0) / self.size_ratio;
        self.fprs(zero_result_cost, unfiltered, largest)
    }

    /// Equations 32 (leveling) and 33 (tiering): 5 and 6 for this L.
    pub fn fprs_exact(&self, zero_result_cost: f64, unfiltered: u32) -> Vec<f64> {
        let t = self.size_ratio;
        let filtered = self.levels.saturating_sub(unfiltered);
        let largest = (t - 1.0) / t / (1.0 - 1.0 / self.power(filtered));
        self.fprs(zero_result_cost, unfiltered, largest)
    }

    /// Rates that fall by T from level to level upwards; the largest with a filter has the share
    /// `largest_share` of their sum.
    fn fprs(&self, zero_result_cost: f64, unfiltered: u32, largest_share: f64) -> Vec<f64> {
        let filtered = self.levels.saturating_sub(unfiltered);
        let sum = zero_result_cost / self.runs_per_level() - f64::from(self.levels - filtered);
        let fpr = |level| match level <= filtered {
            true => sum * largest_share / self.power(filtered - level),
            false => 1.0,
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 8: M_threshold = N / ln2^2 * ln T / (T-1): the bits below which the last level has no filter.
    pub fn threshold_bits(&self) -> f64 {
        self.entries / LN2_SQUARED * self.size_ratio.ln() / (self.size_ratio - 1.0)
    }

    /// Equation 8: L_unfiltered: how many of the deepest levels have no filter, all without bits.
    pub fn unfiltered_levels(&self, filter_bits: f64) -> u32 {
        // The smallest u with M * T^u at least the threshold.
        let (mut unfiltered, mut reached) = (0, filter_bits);
        while unfiltered < self.levels && (reached < self.threshold_bits() || reached.is_nan()) {
            reached *= self.size_ratio;
            unfiltered += 1;
        }
        unfiltered
    }

    /// Equation 7: R with Monkey's filters: R_filtered + R_unfiltered. Where no level has a filter it is the
    /// number of runs: the paper's formula does not hold there.
    ///
    /// # Errors
    /// Bits that are no number or negative.
    pub fn zero_result_cost_closed(&self, filter_bits: f64) -> Result<f64, String> {
        input::not_negative("filter bits", filter_bits)?;
        let unfiltered = self.unfiltered_levels(filter_bits);
        let without = f64::from(unfiltered) * self.runs_per_level();
        if unfiltered == self.levels {
            return Ok(without);
        }
        let exponent = filter_bits / self.entries * LN2_SQUARED * self.power(unfiltered);
        Ok(self.runs_per_level() * self.geometric() * (-exponent).exp() + without)
    }

    /// Equation 7 for this L, by the one rule.
    ///
    /// # Errors
    /// Bits that are no number or negative.
    pub fn zero_result_cost_exact(&self, filter_bits: f64) -> Result<f64, String> {
        Ok(self.zero_result_cost(&self.best_fprs_exact(filter_bits, 1.0)?))
    }

    /// Equation 56: R with the same bits per key in all filters: L * e^(-M/N * ln2^2), times T - 1 with tiering.
    ///
    /// # Errors
    /// Bits that are no number or negative.
    pub fn zero_result_cost_uniform(&self, filter_bits: f64) -> Result<f64, String> {
        input::not_negative("filter bits", filter_bits)?;
        Ok(f64::from(self.levels) * self.runs_per_level() * bloom_fpr(filter_bits / self.entries))
    }

    /// Equation 9: V = R - p_L + 1: the I/Os of a lookup that finds its key in the oldest run.
    pub fn found_cost(&self, fprs: &[f64]) -> f64 {
        self.zero_result_cost(fprs) - fprs.last().copied().unwrap_or(0.0) + 1.0
    }

    /// Equation 13: Z, the I/Os of a lookup when a share `empty_fraction` of them finds nothing, and the others
    /// find their key on the last level (after half of its runs, with tiering).
    pub fn mixed_cost(&self, fprs: &[f64], empty_fraction: f64) -> f64 {
        let largest = fprs.last().copied().unwrap_or(0.0);
        let not_probed = if self.tiering { largest * self.size_ratio / 2.0 } else { largest };
        self.zero_result_cost(fprs) + (1.0 - empty_fraction) * (1.0 - not_probed)
    }

    /// How often an empty probe reaches a run of the last level, against 1 for any other run: 1 / (v+1) with
    /// leveling; c' = 1 - v / (v+1) * T / (2 (T-1)) with tiering (equation 15).
    pub fn last_level_weight(&self, empty_fraction: f64) -> f64 {
        let t = self.size_ratio;
        let spared = if self.tiering { t / (2.0 * (t - 1.0)) } else { 1.0 };
        1.0 - (1.0 - empty_fraction) * spared
    }

    /// Equations 14 to 17: the best rates of levels 1 to L at mixed cost Z, where every level has a filter.
    pub fn mixed_fprs_closed(&self, mixed_cost: f64, empty_fraction: f64) -> Vec<f64> {
        let t = self.size_ratio;
        let largest = (mixed_cost - (1.0 - empty_fraction)) * (t - 1.0) / t / self.runs_per_level();
        let fpr = |level| match level < self.levels {
            true => largest / self.above(level),
            false => largest / self.last_level_weight(empty_fraction),
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 18: the bits below which the last level has no filter: N / ln2^2 * (ln T / (T-1) - ln(w) / T),
    /// w the last level's weight. Infinite where nothing reaches it in vain.
    pub fn mixed_threshold_bits(&self, empty_fraction: f64) -> f64 {
        let weight = self.last_level_weight(empty_fraction);
        self.threshold_bits() - self.entries / LN2_SQUARED * weight.ln() / self.size_ratio
    }

    /// Equations 19 (leveling) and 20 (tiering): Z with Monkey's filters for these lookups, where every level
    /// has one.
    ///
    /// # Errors
    /// Input that is no number or out of bounds, or fewer bits than [`Self::mixed_threshold_bits`]: then the
    /// formula does not hold, but [`Self::mixed_cost_exact`] does.
    pub fn mixed_cost_closed(&self, filter_bits: f64, empty_fraction: f64) -> Result<f64, String> {
        check_mixed(filter_bits, empty_fraction)?;
        let threshold_bits = self.mixed_threshold_bits(empty_fraction);
        if filter_bits < threshold_bits {
            return Err(format!(
                "the closed form needs a filter on every level, so {threshold_bits} bits, not {filter_bits}"
            ));
        }
        let weight = self.last_level_weight(empty_fraction).powf((self.size_ratio - 1.0) / self.size_ratio);
        let rates = self.runs_per_level() * self.geometric() * bloom_fpr(filter_bits / self.entries);
        Ok(rates * weight + (1.0 - empty_fraction))
    }

    /// Equations 19 and 20 for this L and any number of bits, by the one rule.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn mixed_cost_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<f64, String> {
        Ok(self.mixed_cost(&self.best_fprs_exact(filter_bits, empty_fraction)?, empty_fraction))
    }

    /// The best rates of levels 1 to L for this L, by the one rule with the paper's weights: 1, and
    /// [`Self::last_level_weight`]. Covers every branch of equations 5, 6 and 14 to 17.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn best_fprs_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<Vec<f64>, String> {
        check_mixed(filter_bits, empty_fraction)?;
        // The equal runs of a level are one site: entries and weights both times their number.
        let site = |level| Site {
            entries: self.level_entries(level),
            weight: self.runs_per_level()
                * if level < self.levels { 1.0 } else { self.last_level_weight(empty_fraction) },
        };
        let sites: Vec<Site> = (1..=self.levels).map(site).collect();
        let bits_per_key = solve(&sites, &Theory, filter_bits, Limits::NONE);
        Ok(bits_per_key.into_iter().map(bloom_fpr).collect())
    }

    /// T^(T/(T-1)) / (T-1): c of equation 7 with leveling; with tiering c is that for each run.
    fn geometric(&self) -> f64 {
        let t = self.size_ratio;
        t.powf(t / (t - 1.0)) / (t - 1.0)
    }

    /// T^(L-i), how many times larger the last level is than level i.
    fn above(&self, level: u32) -> f64 {
        self.power(self.levels.saturating_sub(level))
    }

    /// T^exponent as a repeated product: the same on every machine.
    fn power(&self, exponent: u32) -> f64 {
        (0..exponent).fold(1.0, |power, _| power * self.size_ratio)
    }
}

fn check_size_ratio(size_ratio: f64) -> Result<(), String> {
    if (2.0..=MAX_SIZE_RATIO).contains(&size_ratio) {
        return Ok(());
    }
    Err(format!("the size ratio must be from 2 to {MAX_SIZE_RATIO}, not {size_ratio}"))
}

fn check_mixed(filter_bits: f64, empty_fraction: f64) -> Result<(), String> {
    input::not_negative("filter bits", filter_bits)?;
    input::share("the empty fraction", empty_fraction)
}

#[cfg(test)]
mod tests;
