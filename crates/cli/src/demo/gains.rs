//! What each idea gained in this run, and which did not pay: computed from measured times only.

use shamba::MergePolicy;

use super::trial::{Trial, Variant};

/// Differences below this share are never called a gain or a loss: best-of-rounds times still wobble.
const NOISE_MIN: f64 = 0.02;
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
    fn new(idea: &'static str, trial: &Trial, existing: bool, with: (f64, f64), without: (f64, f64)) -> Self {
        let ((with_ns, with_spread), (without_ns, without_spread)) = (with, without);
        let noise = with_spread.min(without_spread).clamp(NOISE_MIN, NOISE_MAX);
        let verdict = judge(with_ns, without_ns, noise);
        Self { idea, policy: trial.policy, existing, with_ns, without_ns, verdict }
    }

    /// The share of the time that the idea takes away; negative if it adds.
    pub fn saved(&self) -> f64 {
        1.0 - self.with_ns / self.without_ns
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

/// Every comparison that this run allows.
pub fn gains(trials: &[Trial]) -> Vec<Gain> {
    let mut gains = Vec::new();
    for (idea, variant) in
        [("hash sharing", Variant::NoSharing), ("prefetching filters", Variant::NoPrefetch)]
    {
        for trial in trials {
            for existing in [false, true] {
                let times = |variant| {
                    trial.lookups_of(variant, existing).map(|lookups| (lookups.best_ns, lookups.spread))
                };
                if let (Some(with), Some(without)) = (times(Variant::Default), times(variant)) {
                    gains.push(Gain::new(idea, trial, existing, with, without));
                }
            }
        }
    }
    for trial in trials {
        let with = trial.lookups_of(Variant::Default, false).map(|lookups| (lookups.best_ns, lookups.spread));
        if let (Some(with), Some(without_ns)) = (with, trial.no_filters_ns) {
            gains.push(Gain::new("filters", trial, false, with, (without_ns, 0.0)));
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
