//! The one rule: bits for filters so that the fewest false positives are expected.
//!
//! ```text
//! choose b_i in [smallest, largest]      minimise  sum w_i * p(b_i)      under  sum n_i * b_i = total
//! ```
//!
//! w_i is how often an *empty* probe reaches filter i, n_i its entries, p the rate curve. At the optimum a
//! further bit saves equally much wherever it goes: w_i * p'(b_i) / n_i is the same for all filters between
//! their bounds. In theory that reads p_i = min(1, lambda * n_i / w_i). The multiplier is found by bisection
//! (of its logarithm: it spans hundreds of powers of ten), because the total falls as it rises.
//!
//! What is left after bisection is shared out evenly: each filter goes the same part of the way between its
//! bits just above and just below the multiplier. In theory that way is shorter than rounding; on a measured
//! curve it may be a straight piece of the hull, and filters that are tied there end up alike. So the answer
//! does not depend on the order of the filters, except for the last whole bit of each.
//!
//! Filters that no empty probe reaches get the smallest, and what nobody can use stays unspent.
//!
//! Sources: Monkey (TODS 2018), equations 5, 6 and 14 to 17, are special cases, at the limit of large trees; its
//! Algorithm 2 finds the same by moving bits between pairs of filters (here a test's oracle).

use shamba_filter::MAX_BITS_PER_KEY;

use super::curve::{RateCurve, check_bits_per_key};
use crate::input;

/// A filter as the rule sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterLoad {
    /// The entries that it covers.
    pub entries: u64,
    /// How often a probe for a key that it does not hold reaches it, and nothing else. Any unit: only the
    /// proportions count.
    pub empty_probes_per_second: f64,
}

/// The least and the most bits per key of one filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// No filter gets less.
    pub smallest_bits_per_key: f64,
    /// No filter gets more; may be infinite.
    pub largest_bits_per_key: f64,
}

impl Default for Limits {
    /// From no filter to the largest that can be written.
    fn default() -> Self {
        Self { smallest_bits_per_key: 0.0, largest_bits_per_key: MAX_BITS_PER_KEY }
    }
}

impl Limits {
    /// No limits, as in the papers.
    pub const NONE: Self = Self { smallest_bits_per_key: 0.0, largest_bits_per_key: f64::INFINITY };

    fn validate(&self) -> Result<(), String> {
        input::not_negative("the smallest bits per key", self.smallest_bits_per_key)?;
        check_bits_per_key("the largest bits per key", self.largest_bits_per_key)?;
        if self.smallest_bits_per_key <= self.largest_bits_per_key {
            return Ok(());
        }
        Err(format!(
            "the smallest bits per key are {}, above the largest, {}",
            self.smallest_bits_per_key, self.largest_bits_per_key
        ))
    }
}

/// Who gets how many bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// The bits of each filter, in the order of the loads.
    pub bits: Vec<u64>,
    /// The bits that no filter can use. Together with `bits` exactly the total.
    pub unspent_bits: u64,
}

/// Shares `total_bits` out among filters so that the fewest false positives are expected.
///
/// # Errors
/// A filter without entries, a load or a limit that is not a number or negative, or a total below the smallest
/// bits of all filters.
pub fn allocate(
    filters: &[FilterLoad],
    curve: &impl RateCurve,
    total_bits: u64,
    limits: Limits,
) -> Result<Shares, String> {
    limits.validate()?;
    let mut sites = Vec::with_capacity(filters.len());
    for (at, filter) in filters.iter().enumerate() {
        if filter.entries == 0 {
            return Err(format!("filter {at} has no entries: bits per key mean nothing"));
        }
        let checked = input::not_negative("its empty probes per second", filter.empty_probes_per_second);
        input::of_list("filter", at, checked)?;
        sites.push(Site { entries: filter.entries as f64, weight: filter.empty_probes_per_second });
    }
    let least: Vec<u64> =
        sites.iter().map(|site| (site.entries * limits.smallest_bits_per_key).ceil() as u64).collect();
    let least_total = sum(&least);
    if u128::from(total_bits) < least_total {
        return Err(format!(
            "{total_bits} bits are too few: {} filters with at least {} bits per key need {least_total}",
            filters.len(),
            limits.smallest_bits_per_key
        ));
    }
    let wanted = solve(&sites, curve, total_bits as f64, limits);
    let highest = highest_bits_per_key(curve, limits);
    let most = sites.iter().zip(&least).map(|(site, least)| match site.weight > 0.0 {
        // `as` saturates: an infinite limit is the largest number.
        true => ((site.entries * highest).floor() as u64).max(*least),
        false => *least,
    });
    Ok(whole_bits(&sites, &wanted, &least, &most.collect::<Vec<_>>(), total_bits))
}

/// The false positives per second that these bits let through: what [`allocate`] makes least.
pub fn false_positives_per_second(filters: &[FilterLoad], bits: &[u64], curve: &impl RateCurve) -> f64 {
    let rate = |filter: &FilterLoad, bits: u64| curve.fpr(bits as f64 / filter.entries.max(1) as f64);
    filters.iter().zip(bits).map(|(filter, bits)| filter.empty_probes_per_second * rate(filter, *bits)).sum()
}

/// A filter, or a level of equal runs, in real numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub entries: f64,
    pub weight: f64,
}

/// The bits per key of each site before they become whole bits. Expects checked input, and a total of at
/// least the smallest bits.
pub(crate) fn solve(sites: &[Site], curve: &impl RateCurve, total_bits: f64, limits: Limits) -> Vec<f64> {
    let lowest = limits.smallest_bits_per_key;
    let highest = highest_bits_per_key(curve, limits);
    // At multiplier m, site i stands where the curve's slope is m * n_i / w_i.
    let at = |ln_multiplier: f64| -> Vec<f64> {
        let bits = |site: &Site| match site.weight > 0.0 {
            true => curve
                .bits_at_ln_slope(ln_multiplier + site.entries.ln() - site.weight.ln())
                .clamp(lowest, highest),
            false => lowest,
        };
        sites.iter().map(bits).collect()
    };
    let total = |bits_per_key: &[f64]| -> f64 {
        sites.iter().zip(bits_per_key).map(|(site, bits_per_key)| site.entries * bits_per_key).sum()
    };
    let most = at(f64::NEG_INFINITY);
    if total(&most) <= total_bits {
        return most;
    }
    // From here on some site can take more than it gets, so both searches end: the total rises from the
    // smallest bits to more than there are.
    let mut step = 1.0;
    let mut few = 0.0;
    while total(&at(few)) > total_bits {
        few += step;
        step *= 2.0;
        if step > LARGEST_STEP {
            // The total is the smallest bits, but for rounding.
            return vec![lowest; sites.len()];
        }
    }
    let mut many = few - 1.0;
    step = 1.0;
    while total(&at(many)) < total_bits && step <= LARGEST_STEP {
        many -= step;
        step *= 2.0;
    }
    while few - many > CLOSE * few.abs().max(many.abs()).max(1.0) {
        let middle = many + (few - many) / 2.0;
        if total(&at(middle)) > total_bits {
            many = middle;
        } else {
            few = middle;
        }
    }
    let (fewer, more) = (at(few), at(many));
    let (total_fewer, total_more) = (total(&fewer), total(&more));
    let part = if total_more > total_fewer {
        ((total_bits - total_fewer) / (total_more - total_fewer)).clamp(0.0, 1.0)
    } else {
        0.0
    };
    fewer.iter().zip(&more).map(|(fewer, more)| fewer + part * (more - fewer)).collect()
}

/// How close the two ends of the bisection come, relative to where they are. The rest is shared out evenly, which
/// costs the square of it.
const CLOSE: f64 = 1e-13;
/// Steps of a logarithm beyond which nothing changes any more: 2^64 bits for one key have a rate of e^-1e19.
const LARGEST_STEP: f64 = 1e20;

/// The most bits per key that a filter that is probed can get.
fn highest_bits_per_key(curve: &impl RateCurve, limits: Limits) -> f64 {
    curve.largest_bits_per_key().min(limits.largest_bits_per_key).max(limits.smallest_bits_per_key)
}

fn sum(bits: &[u64]) -> u128 {
    bits.iter().map(|bits| u128::from(*bits)).sum()
}

/// Whole bits, together exactly the total (or the most that fits): each filter's rounded down, and the bits left
/// over one by one to those that lost the largest fractions.
fn whole_bits(sites: &[Site], wanted: &[f64], least: &[u64], most: &[u64], total_bits: u64) -> Shares {
    let exact = |at: usize| sites[at].entries * wanted[at];
    let mut bits: Vec<u64> =
        (0..sites.len()).map(|at| (exact(at).floor() as u64).clamp(least[at], most[at])).collect();
    let spendable = sum(most).min(u128::from(total_bits));
    let mut spent = sum(&bits);
    let mut by_fraction: Vec<usize> = (0..sites.len()).collect();
    by_fraction.sort_by(|a, b| exact(*b).fract().total_cmp(&exact(*a).fract()).then(a.cmp(b)));
    // One bit each is all it takes, but for the rounding of floats in totals beyond 2^53: that goes wherever
    // there is room.
    for at_once in [1, u64::MAX] {
        for &at in &by_fraction {
            let missing = u64::try_from(spendable.saturating_sub(spent)).unwrap_or(u64::MAX);
            let given = missing.min(at_once).min(most[at] - bits[at]);
            bits[at] += given;
            spent += u128::from(given);
        }
    }
    // Smallest bits that were rounded up, or again the rounding of floats, may have spent too much.
    for &at in by_fraction.iter().rev() {
        let excess = u64::try_from(spent.saturating_sub(spendable)).unwrap_or(u64::MAX);
        let taken = excess.min(bits[at] - least[at]);
        bits[at] -= taken;
        spent -= u128::from(taken);
    }
    let unspent_bits = u64::try_from(u128::from(total_bits).saturating_sub(spent)).unwrap_or(0);
    Shares { bits, unspent_bits }
}
