//! Lookups of a mix, of which some find their key: Monkey's equations 13 to 20, and the one rule in
//! the paper's tree.
//!
//! A key that is found is assumed to be on the last level, after half of its runs. So an empty
//! probe reaches a run of that level less often than any other run, by the weight
//! [`PaperTree::last_level_weight`], and its filters get fewer bits. With an `empty_fraction` of 1
//! all weights are 1, and the formulas are those of zero-result lookups.
//!
//! Not here: zero-result lookups by themselves, and the tree ([`super`]).

use super::{PaperTree, bloom_fpr};
use crate::allocation::LN2_SQUARED;
use crate::input;

/// The closed forms of lookups, with Monkey's filters or equal ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClosedLookups {
    /// The number of deepest levels that have no filter.
    pub unfiltered_levels: u32,
    /// R: the I/Os of a lookup that finds nothing.
    pub zero_result_cost: f64,
    /// V: the I/Os of a lookup that finds its key in the oldest run.
    pub found_cost: f64,
    /// Z: the I/Os of a lookup of the mix that the filters were made for.
    pub mixed_cost: f64,
}

impl PaperTree {
    /// Equation 13: Z, the I/Os of a lookup when a share `empty_fraction` of lookups finds nothing,
    /// and the others find their key on the last level (after half of its runs, with tiering).
    pub fn mixed_cost(&self, fprs: &[f64], empty_fraction: f64) -> f64 {
        let largest = fprs.last().copied().unwrap_or(0.0);
        self.zero_result_cost(fprs) + (1.0 - empty_fraction) * (1.0 - self.not_probed(largest))
    }

    /// The false positives of the last level, whose runs have the rate `fpr`, that a lookup saves
    /// by finding its key there. They are those of the run itself and of the older ones: (Z + 1) /
    /// 2 of the Z runs on average.
    pub(super) fn not_probed(&self, fpr: f64) -> f64 {
        fpr * (self.last_runs + 1.0) / 2.0
    }

    /// The frequency of empty probes at a run of the last level, relative to 1 for any other run.
    /// It is 1 / (v+1) with leveling and c' = 1 - v / (v+1) * T / (2 (T-1)) with tiering (equation
    /// 15).
    pub fn last_level_weight(&self, empty_fraction: f64) -> f64 {
        1.0 - (1.0 - empty_fraction) * self.not_probed(1.0) / self.last_runs
    }

    /// The frequency of empty probes at a run of `level`, relative to 1 for a run of an inner
    /// level.
    pub(super) fn weight(&self, level: u32, empty_fraction: f64) -> f64 {
        if level < self.levels { 1.0 } else { self.last_level_weight(empty_fraction) }
    }

    /// Equations 14 to 17: the best rates of levels 1 to L at mixed cost Z, where every level has a
    /// filter.
    pub fn mixed_fprs_closed(&self, mixed_cost: f64, empty_fraction: f64) -> Vec<f64> {
        let t = self.size_ratio;
        let largest = (mixed_cost - (1.0 - empty_fraction)) * (t - 1.0) / t;
        let fpr = |level| match level < self.levels {
            true => largest / self.above(level) / self.inner_runs,
            false => largest / self.last_level_weight(empty_fraction) / self.last_runs,
        };
        (1..=self.levels).map(fpr).collect()
    }

    /// Equation 18: the bits below which the last level has no filter: N / ln2^2 * (ln T / (T-1) -
    /// ln(w) / T), with w the last level's weight (times Z / K). Infinite where no empty probe
    /// reaches that level.
    pub fn mixed_threshold_bits(&self, empty_fraction: f64) -> f64 {
        let weight = self.last_level_weight(empty_fraction) * self.last_runs / self.inner_runs;
        self.inner_threshold_bits() - self.entries / LN2_SQUARED * weight.ln() / self.size_ratio
    }

    /// L_unfiltered with filters for this mix of lookups (equation 18).
    pub(super) fn mixed_unfiltered_levels(&self, filter_bits: f64, empty_fraction: f64) -> u32 {
        if filter_bits > 0.0 && filter_bits >= self.mixed_threshold_bits(empty_fraction) {
            return 0;
        }
        // The levels above the last are a tree of their own, in which all levels have the same
        // runs: find the smallest u with M * T^u at least its threshold.
        let (mut unfiltered, mut reached) = (1, filter_bits * self.size_ratio);
        while unfiltered < self.levels && (reached < self.inner_threshold_bits() || reached.is_nan()) {
            reached *= self.size_ratio;
            unfiltered += 1;
        }
        unfiltered
    }

    /// Equations 19 (leveling) and 20 (tiering): Z with Monkey's filters for these lookups, where
    /// every level has one.
    ///
    /// # Errors
    /// Input that is NaN or out of bounds, or fewer bits than [`Self::mixed_threshold_bits`]: then
    /// the formula does not hold, but [`Self::mixed_cost_exact`] does.
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
    /// Input that is NaN or out of bounds.
    pub fn mixed_cost_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<f64, String> {
        Ok(self.mixed_cost(&self.best_fprs_exact(filter_bits, empty_fraction)?, empty_fraction))
    }

    /// Equations 19 and 20 without the term of the keys that are found, and with no bits: the false
    /// positives of this mix if rates above 1 were possible.
    pub fn weighed_cost_without_bits(&self, empty_fraction: f64) -> f64 {
        let (t, weight) = (self.size_ratio, self.last_level_weight(empty_fraction));
        self.inner_runs.powf(1.0 / t) * (self.last_runs * weight).powf((t - 1.0) / t) * self.geometric()
    }

    /// Equations 7, 9, 19 and 20 on every branch: lookups with Monkey's filters for a mix of which
    /// a share `empty_fraction` finds nothing, in the limit of many levels. If the last level has
    /// more than T K runs, its filters are not the first to lose all bits. No formula holds there,
    /// and the answer is that of the one rule.
    ///
    /// # Errors
    /// Input that is NaN or out of bounds.
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
                // N lambda: the cost of all levels, each run multiplied by its weight.
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
    /// Input that is NaN or out of bounds.
    pub fn lookups_uniform(&self, filter_bits: f64, empty_fraction: f64) -> Result<ClosedLookups, String> {
        check_mixed(filter_bits, empty_fraction)?;
        let fprs = vec![bloom_fpr(filter_bits / self.entries); self.levels as usize];
        let zero_result_cost = self.zero_result_cost_uniform(filter_bits)?;
        Ok(ClosedLookups { zero_result_cost, ..self.lookups_of(&fprs, empty_fraction) })
    }

    /// Lookups at these rates, summed over the levels.
    pub fn lookups_of(&self, fprs: &[f64], empty_fraction: f64) -> ClosedLookups {
        ClosedLookups {
            unfiltered_levels: fprs.iter().filter(|fpr| **fpr >= 1.0).count() as u32,
            zero_result_cost: self.zero_result_cost(fprs),
            found_cost: self.found_cost(fprs),
            mixed_cost: self.mixed_cost(fprs, empty_fraction),
        }
    }

    /// The best rates of levels 1 to L for this L, by the one rule with the paper's weights: 1, and
    /// [`Self::last_level_weight`]. Covers every branch of equations 5, 6 and 14 to 17.
    ///
    /// # Errors
    /// Input that is NaN or out of bounds.
    pub fn best_fprs_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<Vec<f64>, String> {
        let bits_per_key = self.best_bits_per_key_exact(filter_bits, empty_fraction)?;
        Ok(bits_per_key.into_iter().map(bloom_fpr).collect())
    }

    /// The bits per key that give [`Self::best_fprs_exact`].
    ///
    /// The rule's multiplier has a closed form here, because in theory p_i = min(1, lambda * n_i /
    /// w_i): the levels with the smallest n_i / w_i share the bits, as many levels as keep each
    /// rate below 1.
    ///
    /// # Errors
    /// Input that is NaN or out of bounds.
    pub fn best_bits_per_key_exact(&self, filter_bits: f64, empty_fraction: f64) -> Result<Vec<f64>, String> {
        check_mixed(filter_bits, empty_fraction)?;
        let levels = (1..=self.levels)
            .map(|level| (self.level_entries(level), self.runs(level) * self.weight(level, empty_fraction)));
        Ok(best_bits_per_key(levels, filter_bits))
    }
}

/// The bits per key of each level's filters that minimize false positives. Each level is given by
/// its entries and the weight of all its runs: the frequency of empty probes that reach them.
pub(crate) fn best_bits_per_key(levels: impl Iterator<Item = (f64, f64)>, filter_bits: f64) -> Vec<f64> {
    // For each level that can use a filter: its index, entries, and ln(n_i / w_i). The equal runs
    // of a level count as one: both entries and weights are multiplied by their number.
    let mut count = 0;
    let mut sites: Vec<(usize, f64, f64)> = levels
        .inspect(|_| count += 1)
        .enumerate()
        .filter(|(_, (_, weight))| *weight > 0.0)
        .map(|(level, (entries, weight))| (level, entries, (entries / weight).ln()))
        .collect();
    sites.sort_by(|a, b| a.2.total_cmp(&b.2));
    // Sums from the smallest up, because differences would lose precision to rounding.
    let (mut entries, mut logs, mut chosen) = (0.0, 0.0, None);
    for (at, (_, n, ln)) in sites.iter().enumerate() {
        entries += n;
        logs += n * ln;
        let ln_lambda = -(filter_bits * LN2_SQUARED + logs) / entries;
        if ln_lambda + ln < 0.0 {
            chosen = Some((at, ln_lambda));
        }
    }
    let mut bits_per_key = vec![0.0; count];
    if let Some((last, ln_lambda)) = chosen {
        for (level, _, ln) in &sites[..=last] {
            bits_per_key[*level] = -(ln_lambda + ln) / LN2_SQUARED;
        }
    }
    bits_per_key
}

fn check_mixed(filter_bits: f64, empty_fraction: f64) -> Result<(), String> {
    input::not_negative("filter bits", filter_bits)?;
    input::share("the empty fraction", empty_fraction)
}
