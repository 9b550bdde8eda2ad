//! Monkey's closed forms: what filters cost and save in the paper's perfect tree.
//!
//! The tree has L levels, level 1 the smallest; level i holds n_i = N * T^(i-1) * (T-1) / (T^L - 1)
//! entries, in one run (leveling) or T - 1 equal ones (tiering). The functions take any tree of K
//! equal runs on the inner levels and Z on the last; the paper's two policies are values of (K, Z).
//! A cost is the expected number of I/Os of one lookup.
//!
//! There are two kinds of functions, told apart by their names:
//!
//! - `*_closed` are the paper's formulas, which take the limit of many levels;
//! - `*_exact` are the same for a given L, by the one rule ([`crate::allocation`]) or by sums over
//!   its levels.
//!
//! They differ in the third to fifth digit. The engine allocates over its real files and uses
//! neither.
//!
//! The paper's v, non-zero-result lookups per zero-result lookup, is written `empty_fraction` = 1 /
//! (v + 1), so v / (v + 1) = 1 - `empty_fraction`. Filter memory is in bits.
//!
//! Source: Dayan, Athanassoulis, Idreos: Monkey (TODS 2018); equation numbers are that paper's. Its
//! symbols: N `entries`, T `size_ratio`, L `levels`, M_filt `filter_bits`, R `zero_result_cost`, Z
//! `mixed_cost`, V `found_cost`, L_unfiltered `unfiltered_levels`, c' `last_level_weight` with
//! tiering.
//!
//! The generalization from its two policies to any K and Z is Shamba's own, by the one rule: at the
//! optimum r_i w_i p_i, summed over the r_i runs of a level with weight w_i, is proportional to the
//! entries n_i, so that the cost is N lambda with ln lambda = -M / N * ln2^2 - sum of n_i / N *
//! ln(n_i / (r_i w_i)). In the limit of many levels the last one holds (T-1) / T of the entries, so
//! K enters as K^(1/T), and Z and the last level's weight w as (Z w)^((T-1)/T). With K = Z = 1 and
//! K = Z = T - 1 that is equations 7, 19 and 20.
//!
//! Lookups of which some find their key are in `mixed.rs`.
//!
//! Not here: real trees ([`crate::allocation`]); updates and ranges, equations 10 and 11
//! ([`crate::updates`]); throughput, 21 and 22 ([`crate::cost`]); filters against buffer, 25 to 28,
//! which only the laboratory computes.

mod mixed;

pub use mixed::ClosedLookups;
pub(crate) use mixed::best_bits_per_key;

use crate::MergePolicy;
use crate::allocation::LN2_SQUARED;
use crate::design::{MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO};
use crate::input;

/// Equation 2: the false-positive rate of the best Bloom filter at `bits_per_key`.
pub fn bloom_fpr(bits_per_key: f64) -> f64 {
    (-bits_per_key * LN2_SQUARED).exp()
}

/// Equation 2 inverted: the bits per key that give the rate `fpr`.
pub fn bloom_bits_per_key(fpr: f64) -> f64 {
    -fpr.ln() / LN2_SQUARED
}

/// Equation 1: the number of levels that `data_bytes` (N * E) need below a buffer: ceil(log_T(N E /
/// M_buf * (T-1) / T)), at least 1. [`crate::Design::levels_for`] sums the real capacities instead
/// of taking the limit.
///
/// # Errors
/// A size ratio out of bounds, data that is NaN, infinite or negative, or a buffer of no bytes.
pub fn levels_closed(data_bytes: f64, buffer_bytes: u64, size_ratio: f64) -> Result<u32, String> {
    check_size_ratio(size_ratio)?;
    input::not_negative("the bytes of the data", data_bytes)?;
    if buffer_bytes == 0 {
        return Err("the buffer has no bytes: a tree needs one".to_owned());
    }
    let needed = data_bytes / buffer_bytes as f64 * (size_ratio - 1.0) / size_ratio;
    // A repeated product instead of a quotient of logarithms, whose rounding would miss exact
    // powers.
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
    size_ratio: f64,
    inner_runs: f64,
    last_runs: f64,
    levels: u32,
    entries: f64,
}

impl PaperTree {
    /// A tree of `entries` on `levels` levels. Tiered levels have T - 1 runs, also where that is
    /// not an integer, as in the paper.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn new(policy: MergePolicy, size_ratio: f64, levels: u32, entries: u64) -> Result<Self, String> {
        let tiered = size_ratio - 1.0;
        let (inner_runs, last_runs) = match policy {
            MergePolicy::Leveling => (1.0, 1.0),
            MergePolicy::Tiering => (tiered, tiered),
            MergePolicy::LazyLeveling => (tiered, 1.0),
        };
        Self::fluid(size_ratio, (inner_runs, last_runs), levels, entries)
    }

    /// A tree whose `runs` are K on its inner levels and Z on its last level.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn fluid(size_ratio: f64, runs: (f64, f64), levels: u32, entries: u64) -> Result<Self, String> {
        check_size_ratio(size_ratio)?;
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(format!("levels must be from 1 to {MAX_LEVELS}, not {levels}"));
        }
        if entries == 0 {
            return Err("a tree without entries has no filters".to_owned());
        }
        let (inner_runs, last_runs) = runs;
        for runs in [inner_runs, last_runs] {
            if !(1.0..=f64::from(MAX_RUNS)).contains(&runs) {
                return Err(format!("the runs of a level must be from 1 to {MAX_RUNS}, not {runs}"));
            }
        }
        Ok(Self { size_ratio, inner_runs, last_runs, levels, entries: entries as f64 })
    }

    /// The runs of level `level`: Z of the last, K of any other. They need not be integers: the
    /// formulas are continuous.
    pub fn runs(&self, level: u32) -> f64 {
        if level < self.levels { self.inner_runs } else { self.last_runs }
    }

    /// The total number of runs.
    pub fn run_count(&self) -> f64 {
        self.runs_of_deepest(self.levels)
    }

    /// The number of runs on the deepest `levels`.
    fn runs_of_deepest(&self, levels: u32) -> f64 {
        match levels {
            0 => 0.0,
            _ => self.last_runs + f64::from(levels - 1) * self.inner_runs,
        }
    }

    /// n_i, the entries of level `level`, all its runs together. Summed over the levels: N.
    pub fn level_entries(&self, level: u32) -> f64 {
        let t = self.size_ratio;
        self.entries * (t - 1.0) / t / self.above(level) / (1.0 - 1.0 / self.power(self.levels))
    }

    /// Equation 3: the I/Os of a lookup that finds nothing. R = sum of p_i (leveling) or (T-1) *
    /// sum of p_i (tiering), with p_i the false-positive rate of a run of level i.
    pub fn zero_result_cost(&self, fprs: &[f64]) -> f64 {
        (1..).zip(fprs).map(|(level, fpr)| self.runs(level) * fpr).sum()
    }

    /// Equation 4: the filter bits that these rates need, in the limit of many levels: -N / ln2^2 *
    /// (T-1) / T * sum of ln(p_i) / T^(L-i).
    pub fn filter_bits_closed(&self, fprs: &[f64]) -> f64 {
        let t = self.size_ratio;
        let sum: f64 = (1..).zip(fprs).map(|(level, fpr)| fpr.ln() / self.above(level)).sum();
        -self.entries / LN2_SQUARED * (t - 1.0) / t * sum
    }

    /// Equation 4 for this L: -sum of n_i * ln(p_i) / ln2^2.
    pub fn filter_bits_exact(&self, fprs: &[f64]) -> f64 {
        (1..).zip(fprs).map(|(level, fpr)| self.level_entries(level) * bloom_bits_per_key(*fpr)).sum()
    }

    /// Equations 5 (leveling) and 6 (tiering): the best rates of levels 1 to L at zero-result cost
    /// R; 1 on the deepest `unfiltered` levels.
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

    /// Rates that shrink by a factor of T from each level to the one above; the largest with a
    /// filter has the share `largest_share` of their sum.
    fn fprs(&self, zero_result_cost: f64, unfiltered: u32, largest_share: f64) -> Vec<f64> {
        let filtered = self.levels.saturating_sub(unfiltered);
        let sum = zero_result_cost - self.runs_of_deepest(self.levels - filtered);
        let fpr = |level| match level <= filtered {
            true => sum * largest_share / self.power(filtered - level) / self.runs(level),
            false => 1.0,
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 8: M_threshold = N / ln2^2 * ln T / (T-1): the bits below which the last level has
    /// no filter. Where the last level has fewer runs than the others, the threshold is N / ln2^2 *
    /// ln(K / Z) / T higher.
    pub fn threshold_bits(&self) -> f64 {
        self.mixed_threshold_bits(1.0)
    }

    /// Equation 8, L_unfiltered: the number of deepest levels without a filter; all of them if
    /// there are no bits.
    pub fn unfiltered_levels(&self, filter_bits: f64) -> u32 {
        self.mixed_unfiltered_levels(filter_bits, 1.0)
    }

    /// N / ln2^2 * ln T / (T-1): the threshold where all levels have the same number of runs.
    fn inner_threshold_bits(&self) -> f64 {
        self.entries / LN2_SQUARED * self.size_ratio.ln() / (self.size_ratio - 1.0)
    }

    /// Equation 7: R with Monkey's filters: R_filtered + R_unfiltered. Where no level has a filter
    /// R is the number of runs, since the paper's formula does not hold there.
    ///
    /// # Errors
    /// Bits that are NaN, infinite or negative.
    pub fn zero_result_cost_closed(&self, filter_bits: f64) -> Result<f64, String> {
        Ok(self.lookups_closed(filter_bits, 1.0)?.zero_result_cost)
    }

    /// Equation 7 for this L, by the one rule.
    ///
    /// # Errors
    /// Bits that are NaN, infinite or negative.
    pub fn zero_result_cost_exact(&self, filter_bits: f64) -> Result<f64, String> {
        Ok(self.zero_result_cost(&self.best_fprs_exact(filter_bits, 1.0)?))
    }

    /// Equation 56: R with the same bits per key in all filters: L * e^(-M/N * ln2^2), times T - 1
    /// with tiering.
    ///
    /// # Errors
    /// Bits that are NaN, infinite or negative.
    pub fn zero_result_cost_uniform(&self, filter_bits: f64) -> Result<f64, String> {
        input::not_negative("filter bits", filter_bits)?;
        Ok(self.run_count() * bloom_fpr(filter_bits / self.entries))
    }

    /// Equation 9: V = R - p_L + 1: the I/Os of a lookup that finds its key in the oldest run.
    pub fn found_cost(&self, fprs: &[f64]) -> f64 {
        self.zero_result_cost(fprs) - fprs.last().copied().unwrap_or(0.0) + 1.0
    }

    /// T^(T/(T-1)) / (T-1): c of equation 7 with leveling; with tiering it is c divided by the runs
    /// of a level.
    fn geometric(&self) -> f64 {
        let t = self.size_ratio;
        t.powf(t / (t - 1.0)) / (t - 1.0)
    }

    /// T^(L-i): the size of the last level relative to level i.
    fn above(&self, level: u32) -> f64 {
        self.power(self.levels.saturating_sub(level))
    }

    /// T^exponent as a repeated product, which gives the same result on every machine.
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

#[cfg(test)]
mod tests;
