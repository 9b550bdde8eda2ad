//! Gain or loss by each idea in this run, computed from measured times only.

use shamba::MergePolicy;

use super::timing::Timing;
use super::trial::{Trial, Variant};

/// Idea: one hash for all filters of a lookup.
pub const HASH_SHARING: &str = "hash sharing";
/// Idea: prefetching filter lines.
pub const PREFETCHING: &str = "prefetching filters";
/// Idea: filters.
pub const FILTERS: &str = "filters";

/// Minimum noise: smaller relative differences are never a gain or a loss, because even the fastest
/// times vary.
const NOISE_MIN: f64 = 0.03;
/// Maximum noise: larger relative differences count, however disturbed the machine was.
const NOISE_MAX: f64 = 0.15;

/// Result of a comparison.
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
    /// The verdict as a word, for reports.
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
    /// The idea that was switched.
    pub idea: &'static str,
    /// Merge policy of the database.
    pub policy: MergePolicy,
    /// Whether the keys exist.
    pub existing: bool,
    /// Nanoseconds per lookup with the idea.
    pub with_ns: f64,
    /// Nanoseconds per lookup without it.
    pub without_ns: f64,
    /// Verdict, given the noise.
    pub verdict: Verdict,
}

impl Gain {
    fn new(idea: &'static str, policy: MergePolicy, existing: bool, with: Timing, without: Timing) -> Self {
        let noise = with.noise.max(without.noise).clamp(NOISE_MIN, NOISE_MAX);
        let verdict = judge(with.ns, without.ns, noise);
        Self { idea, policy, existing, with_ns: with.ns, without_ns: without.ns, verdict }
    }

    /// Relative change of the time by the idea; negative if it saves time.
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

/// All comparisons of this run. `no_filters`: lookups of absent paths under tiering without
/// filters.
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
