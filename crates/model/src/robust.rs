//! Robust costs: the worst mix of operations near an expected one, and the distance between
//! observed mixes.
//!
//! The neighbourhood of a mix w with *uncertainty* rho holds every mix v whose Kullback-Leibler
//! divergence from w, the sum of `v_i ln(v_i / w_i)`, is at most rho. The worst-case cost of a
//! design with costs c_i is the maximum of the sum of `v_i c_i` over the neighbourhood. Endure
//! (Huynh, Chaudhari, Terzi and Athanassoulis, PVLDB 15(8), 2022) chooses the design that minimizes
//! it. By duality it is
//!
//! ```text
//! min over lambda >= 0, eta:  eta + rho lambda + lambda sum of w_i (exp((c_i - eta) / lambda) - 1)
//!   = min over lambda >= 0:   rho lambda + lambda ln(sum of w_i exp(c_i / lambda))
//! ```
//!
//! and the mix that attains it has v_i proportional to `w_i exp(c_i / lambda)`. Its divergence
//! increases with 1 / lambda, so a bisection finds the lambda at which it is rho ([`worst`]). With
//! an uncertainty of 0 the mix is w. For rho of at least `-ln(share of the most expensive
//! operations)`, the mix consists of only the most expensive ones. An operation with share 0 in w
//! has share 0 in every mix of the neighbourhood: its divergence would be infinite.
//!
//! Divergences are in nats. An operation with share w may reach the share v at rho = `v ln(v / w) +
//! (1 - v) ln((1 - v) / (1 - w))`: from 10 % to 20 % at 0.044, to 50 % at 0.51, to 100 % at 2.3.
//!
//! [`swing`] measures the distance between the mixes of two windows of time: the mean divergence of
//! both from their average mix. Its mean over successive windows is the uncertainty of a workload
//! that alternates. After a workload that changed only once it soon decays to nothing.
//!
//! Not here: the search for the design ([`crate::navigator`]).

use crate::cost::{Costs, Workload};
use crate::input;

/// Kinds of operations in mixes: empty lookups, found lookups, updates, ranges.
pub const OPERATIONS: usize = 4;

/// The worst mix in a neighbourhood.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Worst<const N: usize> {
    /// The mean cost of an operation of the mix.
    pub cost: f64,
    /// Shares of the operations; together 1.
    pub mix: [f64; N],
    /// Its divergence from the expected mix, at most the uncertainty.
    pub divergence: f64,
}

/// Bisection steps: more halvings than a double has bits.
const STEPS: u32 = 64;
/// Maximum doublings of the upper end of a bisection. Beyond, costs that still differ are equal by
/// rounding.
const DOUBLINGS: u32 = 60;

/// The worst mix whose divergence from the proportions of `rates` is at most `uncertainty`.
///
/// # Errors
/// Rates or costs that are NaN, infinite or negative, rates that are all 0, a negative uncertainty.
pub fn worst<const N: usize>(
    costs: &[f64; N],
    rates: &[f64; N],
    uncertainty: f64,
) -> Result<Worst<N>, String> {
    input::not_negative("the uncertainty", uncertainty)?;
    for (at, cost) in costs.iter().enumerate() {
        input::of_list("cost", at, input::not_negative("it", *cost))?;
    }
    let expected = shares(rates)?;
    let possible = || costs.iter().zip(&expected).filter(|(_, share)| **share > 0.0).map(|(cost, _)| *cost);
    let (least, most) = (possible().fold(f64::INFINITY, f64::min), possible().fold(0.0, f64::max));
    if uncertainty == 0.0 || least == most {
        return Ok(Worst { cost: mean(costs, &expected), mix: expected, divergence: 0.0 });
    }
    // Scaled to -1..=0, so that no exponential overflows and the most expensive operation keeps its
    // weight.
    let scaled = costs.map(|cost| (cost - most) / (most - least));
    let at = |tilt: f64| {
        let mut weights = [0.0; N];
        for ((weight, share), cost) in weights.iter_mut().zip(&expected).zip(&scaled) {
            *weight = if *share > 0.0 { share * (tilt * cost).exp() } else { 0.0 };
        }
        let sum: f64 = weights.iter().sum();
        let mix = weights.map(|weight| weight / sum);
        let divergence = (tilt * mean(&scaled, &mix) - sum.ln()).max(0.0);
        Worst { cost: mean(costs, &mix), mix, divergence }
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..DOUBLINGS {
        if at(high).divergence > uncertainty {
            break;
        }
        (low, high) = (high, high * 2.0);
    }
    if at(high).divergence <= uncertainty {
        return Ok(at(high));
    }
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2.0;
        if at(middle).divergence > uncertainty {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(at(low))
}

/// The Kullback-Leibler divergence of a mix from another, in nats; infinite if `mix` has an
/// operation whose share in `expected` is 0.
///
/// # Errors
/// Rates that are NaN, infinite or negative, or all 0.
pub fn divergence<const N: usize>(mix: &[f64; N], expected: &[f64; N]) -> Result<f64, String> {
    let (mix, expected) = (shares(mix)?, shares(expected)?);
    let terms = mix.iter().zip(&expected).filter(|(share, _)| **share > 0.0);
    Ok(terms.map(|(share, from)| share * (share / from).ln()).sum::<f64>().max(0.0))
}

/// Divergence times operations up to which two windows of the same mix may differ by chance. Four
/// times that product follows a chi-squared distribution with 3 degrees of freedom, which exceeds
/// 16 in one of a thousand pairs.
const CHANCE: f64 = 4.0;

/// The distance between the mixes of two windows: the mean divergence of both from their average
/// mix (the Jensen-Shannon divergence, at most ln 2). 0 where chance may explain it, or where one
/// window has no operations.
pub fn swing<const N: usize>(before: &[f64; N], after: &[f64; N]) -> f64 {
    let (Ok(one), Ok(other)) = (shares(before), shares(after)) else { return 0.0 };
    let mut halfway = [0.0; N];
    for ((middle, one), other) in halfway.iter_mut().zip(&one).zip(&other) {
        *middle = (one + other) / 2.0;
    }
    let from_halfway = |mix| divergence(mix, &halfway).unwrap_or(0.0);
    let apart = (from_halfway(&one) + from_halfway(&other)) / 2.0;
    let operations = before.iter().sum::<f64>().min(after.iter().sum());
    if apart > CHANCE / operations { apart } else { 0.0 }
}

/// The rates divided by their sum.
fn shares<const N: usize>(rates: &[f64; N]) -> Result<[f64; N], String> {
    for (at, rate) in rates.iter().enumerate() {
        input::of_list("rate", at, input::not_negative("it", *rate))?;
    }
    let largest = rates.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return Err("a workload of no operations has no mix".to_owned());
    }
    // Divided by the largest first: the sum of large rates could be infinite.
    let parts = rates.map(|rate| rate / largest);
    let sum: f64 = parts.iter().sum();
    Ok(parts.map(|part| part / sum))
}

fn mean<const N: usize>(costs: &[f64; N], mix: &[f64; N]) -> f64 {
    costs.iter().zip(mix).map(|(cost, share)| cost * share).sum()
}

impl Workload {
    /// Rates of empty lookups, found lookups, updates and ranges.
    pub fn rates(&self) -> [f64; OPERATIONS] {
        [self.empty_lookups, self.found_lookups, self.updates, self.ranges]
    }

    /// The workload of these rates, whose ranges read this share of all entries.
    pub fn of_rates(rates: [f64; OPERATIONS], range_selectivity: f64) -> Self {
        let [empty_lookups, found_lookups, updates, ranges] = rates;
        Self { empty_lookups, found_lookups, updates, ranges, range_selectivity }
    }
}

impl Costs {
    /// Times of an empty lookup, a found lookup, an update and a range, in nanoseconds.
    pub fn operations_ns(&self) -> [f64; OPERATIONS] {
        [self.empty_lookup_ns, self.found_lookup_ns, self.update_ns, self.range_ns]
    }

    /// The worst mix within `uncertainty` of a workload, with filters and memory unchanged.
    ///
    /// # Errors
    /// As [`worst`].
    pub fn worst(&self, workload: &Workload, uncertainty: f64) -> Result<Worst<OPERATIONS>, String> {
        worst(&self.operations_ns(), &workload.rates(), uncertainty)
    }
}

#[cfg(test)]
mod tests;
