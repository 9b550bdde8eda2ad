//! Monkey's closed forms: what filters cost and save in the paper's perfect tree.
//!
//! The tree has L levels, level 1 the smallest; level i holds n_i = N * T^(i-1) * (T-1) / (T^L - 1) entries, in
//! one run (leveling) or T - 1 equal ones (tiering). The functions take any tree of K equal runs on the inner levels
//! and Z on the last, of which the paper's two are values. A cost is the I/Os that one lookup is expected to make.
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
//! The step from its two policies to any K and Z is ours, by the one rule: at the optimum r_i w_i p_i, summed over
//! the r_i runs of a level with weight w_i, is in proportion to the entries n_i, so that the cost is
//! N lambda with ln lambda = -M / N * ln2^2 - sum of n_i / N * ln(n_i / (r_i w_i)). In the limit of many levels the
//! last one holds (T-1) / T of the entries, so K enters as K^(1/T), and Z and the last level's weight w as
//! (Z w)^((T-1)/T). With K = Z = 1 and K = Z = T - 1 that is [7], [19] and [20].
//!
//! Not here: real trees ([`crate::allocation`]); updates and ranges, equations 10 and 11 ([`crate::updates`]);
//! throughput and filters against buffer, 21 to 28 ([`crate::cost`], [`crate::split`]).

use crate::MergePolicy;
use crate::allocation::LN2_SQUARED;
use crate::design::{MAX_LEVELS, MAX_RUNS, MAX_SIZE_RATIO};
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
/// A size ratio out of bounds, data that is no number, or a buffer of no bytes.
pub fn levels_closed(data_bytes: f64, buffer_bytes: u64, size_ratio: f64) -> Result<u32, String> {
    check_size_ratio(size_ratio)?;
    input::not_negative("the bytes of the data", data_bytes)?;
    if buffer_bytes == 0 {
        return Err("the buffer has no bytes: a tree needs one".to_owned());
    }
    let needed = data_bytes / buffer_bytes as f64 * (size_ratio - 1.0) / size_ratio;
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
    size_ratio: f64,
    inner_runs: f64,
    last_runs: f64,
    levels: u32,
    entries: f64,
}

/// The closed forms of lookups, with Monkey's filters or equal ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClosedLookups {
    /// The deepest levels that have no filter.
    pub unfiltered_levels: u32,
    /// R: the I/Os of a lookup that finds nothing.
    pub zero_result_cost: f64,
    /// V: the I/Os of a lookup that finds its key in the oldest run.
    pub found_cost: f64,
    /// Z: the I/Os of a lookup of the mix that the filters were made for.
    pub mixed_cost: f64,
}

impl PaperTree {
    /// A tree of `entries` on `levels`. Tiered levels have T - 1 runs, whole or not, as in the paper.
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

    /// A tree of K and Z `runs` on its inner levels and its last one.
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

    /// The runs of level `level`: Z of the last, K of any other. They need not be whole: the formulas go on.
    pub fn runs(&self, level: u32) -> f64 {
        if level < self.levels { self.inner_runs } else { self.last_runs }
    }

    /// All runs.
    pub fn run_count(&self) -> f64 {
        self.runs_of_deepest(self.levels)
    }

    /// The runs of the deepest `levels`.
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

    /// Equation 3: R = sum of p_i (leveling) or (T-1) * sum of p_i (tiering), p_i the rate of a run of level i:
    /// the I/Os of a lookup that finds nothing.
    pub fn zero_result_cost(&self, fprs: &[f64]) -> f64 {
        (1..).zip(fprs).map(|(level, fpr)| self.runs(level) * fpr).sum()
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
        let sum = zero_result_cost - self.runs_of_deepest(self.levels - filtered);
        let fpr = |level| match level <= filtered {
            true => sum * largest_share / self.power(filtered - level) / self.runs(level),
            false => 1.0,
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 8: M_threshold = N / ln2^2 * ln T / (T-1): the bits below which the last level has no filter. Where
    /// the last level has fewer runs than others it takes N / ln2^2 * ln(K / Z) / T more.
    pub fn threshold_bits(&self) -> f64 {
        self.mixed_threshold_bits(1.0)
    }

    /// Equation 8: L_unfiltered: how many of the deepest levels have no filter, all without bits.
    pub fn unfiltered_levels(&self, filter_bits: f64) -> u32 {
        self.mixed_unfiltered_levels(filter_bits, 1.0)
    }

    /// The same, with filters for this mix of lookups (equation 18).
    fn mixed_unfiltered_levels(&self, filter_bits: f64, empty_fraction: f64) -> u32 {
        if filter_bits > 0.0 && filter_bits >= self.mixed_threshold_bits(empty_fraction) {
            return 0;
        }
        // What is above the last level is a tree of its own, in which all levels are alike: the smallest u with
        // M * T^u at least its threshold.
        let (mut unfiltered, mut reached) = (1, filter_bits * self.size_ratio);
        while unfiltered < self.levels && (reached < self.inner_threshold_bits() || reached.is_nan()) {
            reached *= self.size_ratio;
            unfiltered += 1;
        }
        unfiltered
    }

    /// N / ln2^2 * ln T / (T-1): the threshold where all levels are alike.
    fn inner_threshold_bits(&self) -> f64 {
        self.entries / LN2_SQUARED * self.size_ratio.ln() / (self.size_ratio - 1.0)
    }

    /// Equation 7: R with Monkey's filters: R_filtered + R_unfiltered. Where no level has a filter it is the
    /// number of runs: the paper's formula does not hold there.
    ///
    /// # Errors
    /// Bits that are no number or negative.
    pub fn zero_result_cost_closed(&self, filter_bits: f64) -> Result<f64, String> {
        Ok(self.lookups_closed(filter_bits, 1.0)?.zero_result_cost)
    }

    /// Equations 7, 9, 19 and 20 on every branch: lookups with Monkey's filters for a mix of which a share
    /// `empty_fraction` finds nothing, in the limit of many levels. Where the last level of a tree has so many
    /// runs (Z > T K) that its filters are not the first to go, no formula holds and the answer is that of the rule.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn lookups_closed(&self, filter_bits: f64, empty_fraction: f64) -> Result<ClosedLookups, String> {
        check_mixed(filter_bits, empty_fraction)?;
        let (t, found) = (self.size_ratio, 1.0 - empty_fraction);
        if self.last_runs > t * self.inner_runs {
            let fprs = self.best_fprs_exact(filter_bits, empty_fraction)?;
            return Ok(self.lookups_of(&fprs, empty_fraction));
        }
        let unfiltered_levels = self.mixed_unfiltered_levels(filter_bits, empty_fraction);
        let without = self.runs_of_deepest(unfiltered_levels);
        let (zero_result_cost, last_fpr) = match unfiltered_levels {
            0 => {
                // N lambda: the cost of all levels, each run times its weight.
                let weighed =
                    self.weighed_cost_without_bits(empty_fraction) * bloom_fpr(filter_bits / self.entries);
                let last_level = weighed * (t - 1.0) / t / self.last_level_weight(empty_fraction);
                (weighed / t + last_level, last_level / self.last_runs)
            }
            all if all == self.levels => (without, 1.0),
            some => {
                let exponent = filter_bits / self.entries * LN2_SQUARED * self.power(some);
                (self.inner_runs * self.geometric() * (-exponent).exp() + without, 1.0)
            }
        };
        let mixed_cost = zero_result_cost + found * (1.0 - self.not_probed(last_fpr));
        let found_cost = zero_result_cost - last_fpr + 1.0;
        Ok(ClosedLookups { unfiltered_levels, zero_result_cost, found_cost, mixed_cost })
    }

    /// Equations 56, 9 and 13: lookups with the same bits per key in all filters.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn lookups_uniform(&self, filter_bits: f64, empty_fraction: f64) -> Result<ClosedLookups, String> {
        check_mixed(filter_bits, empty_fraction)?;
        let fprs = vec![bloom_fpr(filter_bits / self.entries); self.levels as usize];
        let zero_result_cost = self.zero_result_cost_uniform(filter_bits)?;
        Ok(ClosedLookups { zero_result_cost, ..self.lookups_of(&fprs, empty_fraction) })
    }

    /// Lookups at these rates, by the sums over the levels.
    pub fn lookups_of(&self, fprs: &[f64], empty_fraction: f64) -> ClosedLookups {
        ClosedLookups {
            unfiltered_levels: fprs.iter().filter(|fpr| **fpr >= 1.0).count() as u32,
            zero_result_cost: self.zero_result_cost(fprs),
            found_cost: self.found_cost(fprs),
            mixed_cost: self.mixed_cost(fprs, empty_fraction),
        }
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
        Ok(self.run_count() * bloom_fpr(filter_bits / self.entries))
    }

    /// Equation 9: V = R - p_L + 1: the I/Os of a lookup that finds its key in the oldest run.
    pub fn found_cost(&self, fprs: &[f64]) -> f64 {
        self.zero_result_cost(fprs) - fprs.last().copied().unwrap_or(0.0) + 1.0
    }

    /// Equation 13: Z, the I/Os of a lookup when a share `empty_fraction` of them finds nothing, and the others
    /// find their key on the last level (after half of its runs, with tiering).
    pub fn mixed_cost(&self, fprs: &[f64], empty_fraction: f64) -> f64 {
        let largest = fprs.last().copied().unwrap_or(0.0);
        self.zero_result_cost(fprs) + (1.0 - empty_fraction) * (1.0 - self.not_probed(largest))
    }

    /// The false positives of the last level, whose runs have the rate `fpr`, that a lookup is spared which finds
    /// its key there: those of the run itself and of the older ones, (Z + 1) / 2 of the Z on average.
    fn not_probed(&self, fpr: f64) -> f64 {
        fpr * (self.last_runs + 1.0) / 2.0
    }

    /// How often an empty probe reaches a run of the last level, against 1 for any other run: 1 / (v+1) with
    /// leveling; c' = 1 - v / (v+1) * T / (2 (T-1)) with tiering (equation 15).
    pub fn last_level_weight(&self, empty_fraction: f64) -> f64 {
        1.0 - (1.0 - empty_fraction) * self.not_probed(1.0) / self.last_runs
    }

    /// Equations 14 to 17: the best rates of levels 1 to L at mixed cost Z, where every level has a filter.
    pub fn mixed_fprs_closed(&self, mixed_cost: f64, empty_fraction: f64) -> Vec<f64> {
        let t = self.size_ratio;
        let largest = (mixed_cost - (1.0 - empty_fraction)) * (t - 1.0) / t;
        let fpr = |level| match level < self.levels {
            true => largest / self.above(level) / self.inner_runs,
            false => largest / self.last_level_weight(empty_fraction) / self.last_runs,
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 18: the bits below which the last level has no filter: N / ln2^2 * (ln T / (T-1) - ln(w) / T),
    /// w the last level's weight (times Z / K). Infinite where nothing reaches it in vain.
    pub fn mixed_threshold_bits(&self, empty_fraction: f64) -> f64 {
        let weight = self.last_level_weight(empty_fraction) * self.last_runs / self.inner_runs;
        self.inner_threshold_bits() - self.entries / LN2_SQUARED * weight.ln() / self.size_ratio
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
        Ok(self.lookups_closed(filter_bits, empty_fraction)?.mixed_cost)
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
        let bits_per_key = self.best_bits_per_key_exact(filter_bits, empty_fraction)?;
        Ok(bits_per_key.into_iter().map(bloom_fpr).collect())
    }

    /// The bits per key that give [`Self::best_fprs_exact`].
    ///
    /// The rule's multiplier has a closed form here, because in theory p_i = min(1, lambda * n_i / w_i): the levels of
    /// the smallest n_i / w_i share the bits, as many of them as leaves each a rate below 1.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn best_bits_per_key_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<Vec<f64>, String> {
        check_mixed(filter_bits, empty_fraction)?;
        // Of each level that can use a filter: its place, entries, and ln(n_i / w_i). The equal runs of a level are
        // one: entries and weights both times their number.
        let mut sites: Vec<(usize, f64, f64)> = (1..=self.levels)
            .map(|level| {
                (level, self.level_entries(level), self.runs(level) * self.weight(level, empty_fraction))
            })
            .filter(|(_, _, weight)| *weight > 0.0)
            .map(|(level, entries, weight)| (level as usize - 1, entries, (entries / weight).ln()))
            .collect();
        sites.sort_by(|a, b| a.2.total_cmp(&b.2));
        // Sums from the smallest on, because differences would be lost in rounding.
        let (mut entries, mut logs, mut chosen) = (0.0, 0.0, None);
        for (at, (_, n, ln)) in sites.iter().enumerate() {
            entries += n;
            logs += n * ln;
            let ln_lambda = -(filter_bits * LN2_SQUARED + logs) / entries;
            if ln_lambda + ln < 0.0 {
                chosen = Some((at, ln_lambda));
            }
        }
        let mut bits_per_key = vec![0.0; self.levels as usize];
        if let Some((last, ln_lambda)) = chosen {
            for (level, _, ln) in &sites[..=last] {
                bits_per_key[*level] = -(ln_lambda + ln) / LN2_SQUARED;
            }
        }
        Ok(bits_per_key)
    }

    /// How often an empty probe reaches a run of `level`, against 1 for one of an inner level.
    fn weight(&self, level: u32, empty_fraction: f64) -> f64 {
        if level < self.levels { 1.0 } else { self.last_level_weight(empty_fraction) }
    }

    /// What [19] and [20] come to without the share of keys that are found, and without any bits: the false
    /// positives that lookups of this mix would meet if rates above 1 were possible.
    pub(crate) fn weighed_cost_without_bits(&self, empty_fraction: f64) -> f64 {
        let (t, weight) = (self.size_ratio, self.last_level_weight(empty_fraction));
        self.inner_runs.powf(1.0 / t) * (self.last_runs * weight).powf((t - 1.0) / t) * self.geometric()
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
