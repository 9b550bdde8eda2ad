//! What each idea gained in this run, and which did not pay: computed from measured times only.

use shamba::MergePolicy;

use super::timing::Timing;
use super::trial::{Trial, Variant};

/// The ideas that are compared.
pub const HASH_SHARING: &str = "hash sharing";
/// Asking for filter lines ahead.
pub const PREFETCHING: &str = "prefetching filters";
/// Having filters at all.
pub const FILTERS: &str = "filters";

/// Differences below this share are never called a gain or a loss: even the fastest times wobble.
const NOISE_MIN: f64 = 0.03;
/// However disturbed the machine was, a difference beyond this share is one.
const NOISE_MAX: f64 = 0.15;

/// What a comparison says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Faster with the idea.
    Paid,
    /// No difference beyond the noise of this run.
    NoDifference,
    /// Slower with it.
    Cost,
}

impl Verdict {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::NoDifference => "no difference",
            Self::Cost => "cost",
        }
    }
}

/// One idea under one policy, for one kind of keys.
#[derive(Clone, Debug)]
pub struct Gain {
    /// What was switched.
    pub idea: &'static str,
    /// Where.
    pub policy: MergePolicy,
    /// Whether the keys exist.
    pub existing: bool,
    /// Nanoseconds per lookup with it.
    pub with_ns: f64,
    /// And without.
    pub without_ns: f64,
    /// What that says, given the noise.
    pub verdict: Verdict,
}

impl Gain {
    fn new(idea: &'static str, policy: MergePolicy, existing: bool, with: Timing, without: Timing) -> Self {
        let noise = with.noise.max(without.noise).clamp(NOISE_MIN, NOISE_MAX);
        let verdict = judge(with.ns, without.ns, noise);
        Self { idea, policy, existing, with_ns: with.ns, without_ns: without.ns, verdict }
    }

    /// What the idea adds to the time, as a share of it; negative if it takes time away.
    pub fn change(&self) -> f64 {
        self.with_ns / self.without_ns - 1.0
    }
}

fn judge(with_ns: f64, without_ns: f64, noise: f64) -> Verdict {
    let ratio = with_ns / without_ns;
    if ratio < 1.0 - noise {
        Verdict::Paid
    } else if ratio > 1.0 + noise {
        Verdict::Cost
    } else {
        Verdict::NoDifference
    }
}

/// Every comparison that this run allows. `no_filters`: absent paths under tiering without filters.
pub fn gains(trials: &[Trial], no_filters: Timing) -> Vec<Gain> {
    let mut gains = Vec::new();
    for (idea, variant) in [(HASH_SHARING, Variant::NoSharing), (PREFETCHING, Variant::NoPrefetch)] {
        for trial in trials {
            for existing in [false, true] {
                let time = |variant| trial.lookups_of(variant, existing).map(|lookups| lookups.time);
                if let (Some(with), Some(without)) = (time(Variant::Default), time(variant)) {
                    gains.push(Gain::new(idea, trial.policy, existing, with, without));
                }
            }
        }
    }
    for trial in trials.iter().filter(|trial| trial.policy == MergePolicy::Tiering) {
        if let Some(lookups) = trial.lookups_of(Variant::Default, false) {
            gains.push(Gain::new(FILTERS, trial.policy, false, lookups.time, no_filters));
        }
    }
    gains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_are_noise() {
        assert_eq!(judge(90.0, 100.0, 0.02), Verdict::Paid);
        assert_eq!(judge(99.0, 100.0, 0.02), Verdict::NoDifference);
        assert_eq!(judge(101.0, 100.0, 0.02), Verdict::NoDifference);
        assert_eq!(judge(110.0, 100.0, 0.02), Verdict::Cost);
        assert_eq!(judge(90.0, 100.0, 0.15), Verdict::NoDifference);
    }
}
