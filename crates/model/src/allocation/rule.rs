//! The one rule: distributes bits over filters so that the expected number of false positives is
//! minimal.
//!
//! ```text
//! choose b_i in [smallest, largest]   minimize sum w_i * p(b_i)   under sum n_i * b_i = total
//! ```
//!
//! w_i is the frequency of *empty* probes at filter i, n_i its entries, p the rate curve. At the
//! optimum a further bit saves the same in every filter: w_i * p'(b_i) / n_i is the same for all
//! filters between their bounds. In theory that is p_i = min(1, lambda * n_i / w_i). The multiplier
//! is found by bisection, because the total decreases as it increases. The bisection is on its
//! logarithm, since it spans hundreds of powers of ten.
//!
//! The bits that remain after the bisection are distributed evenly: each filter moves by the same
//! fraction of the distance between its bits just above and just below the multiplier. In theory
//! that distance is below rounding. On a measured curve it may be a straight piece of the hull, and
//! tied filters get equal bits. So the answer does not depend on the order of the filters, except
//! for the last whole bit of each.
//!
//! Filters that no empty probe reaches get the minimum, and bits that no filter can use stay
//! unspent.
//!
//! Sources: Monkey (TODS 2018), equations 5, 6 and 14 to 17, are special cases, in the limit of
//! large trees; its Algorithm 2 finds the same by moving bits between pairs of filters (the oracle
//! of a test here).

use shamba_filter::MAX_BITS_PER_KEY;

use super::curve::{RateCurve, check_bits_per_key};
use crate::input;

/// A filter as input of the rule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterLoad {
    /// The entries that it covers.
    pub entries: u64,
    /// The rate of probes for keys that it does not hold. Any unit: only the proportions count.
    pub empty_probes_per_second: f64,
}

/// The minimum and maximum bits per key of one filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Minimum bits per key of a filter.
    pub smallest_bits_per_key: f64,
    /// Maximum bits per key of a filter; may be infinite.
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

/// The bits of each filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitShares {
    /// The bits of each filter, in the order of the loads.
    pub bits: Vec<u64>,
    /// The bits that no filter can use. Their sum with `bits` is exactly the total.
    pub unspent_bits: u64,
}

/// Distributes `total_bits` over filters so that the expected number of false positives is minimal.
///
/// # Errors
/// A filter without entries, a load or a limit that is NaN, infinite or negative, or a total below
/// the minimum bits of all filters.
pub fn allocate(
    filters: &[FilterLoad],
    curve: &impl RateCurve,
    total_bits: u64,
    limits: Limits,
) -> Result<BitShares, String> {
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
        // `as` saturates: an infinite limit becomes the largest integer.
        true => ((site.entries * highest).floor() as u64).max(*least),
        false => *least,
    });
    Ok(whole_bits(&sites, &wanted, &least, &most.collect::<Vec<_>>(), total_bits))
}

/// The false positives per second with these bits: the quantity that [`allocate`] minimizes.
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

/// The bits per key of each site before rounding to whole bits. Expects checked input, and a total
/// of at least the minimum bits.
pub(crate) fn solve(sites: &[Site], curve: &impl RateCurve, total_bits: f64, limits: Limits) -> Vec<f64> {
    let lowest = limits.smallest_bits_per_key;
    let highest = highest_bits_per_key(curve, limits);
    // At multiplier m, the bits of site i are those where the curve's slope is m * n_i / w_i.
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
    // From here on at least one site can take more than it gets, so both searches end: the total
    // ranges from the minimum bits to more than is available.
    let mut step = 1.0;
    let mut few = 0.0;
    while total(&at(few)) > total_bits {
        few += step;
        step *= 2.0;
        if step > LARGEST_STEP {
            // The total equals the minimum bits, except for rounding.
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

/// Relative distance of the two ends at which the bisection stops. The rest is distributed evenly,
/// at a cost of the square of this distance.
const CLOSE: f64 = 1e-13;
/// Maximum step of the logarithm: 2^64 bits for one key have a rate of e^-1e19, so larger steps
/// change nothing.
const LARGEST_STEP: f64 = 1e20;

/// The maximum bits per key of a filter that is probed.
fn highest_bits_per_key(curve: &impl RateCurve, limits: Limits) -> f64 {
    curve.largest_bits_per_key().min(limits.largest_bits_per_key).max(limits.smallest_bits_per_key)
}

fn sum(bits: &[u64]) -> u128 {
    bits.iter().map(|bits| u128::from(*bits)).sum()
}

/// Whole bits whose sum is exactly the total (or the most that fits): each filter's share is
/// rounded down, and the remaining bits go one by one to the filters with the largest fractions.
fn whole_bits(sites: &[Site], wanted: &[f64], least: &[u64], most: &[u64], total_bits: u64) -> BitShares {
    let exact = |at: usize| sites[at].entries * wanted[at];
    let mut bits: Vec<u64> =
        (0..sites.len()).map(|at| (exact(at).floor() as u64).clamp(least[at], most[at])).collect();
    let spendable = sum(most).min(u128::from(total_bits));
    let mut spent = sum(&bits);
    let mut by_fraction: Vec<usize> = (0..sites.len()).collect();
    by_fraction.sort_by(|a, b| exact(*b).fract().total_cmp(&exact(*a).fract()).then(a.cmp(b)));
    // One bit for each filter suffices, except for float rounding in totals beyond 2^53; that
    // remainder goes to any filter below its maximum.
    for at_once in [1, u64::MAX] {
        for &at in &by_fraction {
            let missing = u64::try_from(spendable.saturating_sub(spent)).unwrap_or(u64::MAX);
            let given = missing.min(at_once).min(most[at] - bits[at]);
            bits[at] += given;
            spent += u128::from(given);
        }
    }
    // Minimum bits that were rounded up, or float rounding, may exceed the total.
    for &at in by_fraction.iter().rev() {
        let excess = u64::try_from(spent.saturating_sub(spendable)).unwrap_or(u64::MAX);
        let taken = excess.min(bits[at] - least[at]);
        bits[at] -= taken;
        spent -= u128::from(taken);
    }
    let unspent_bits = u64::try_from(u128::from(total_bits).saturating_sub(spent)).unwrap_or(0);
    BitShares { bits, unspent_bits }
}
