//! The arithmetic of statistics: how figures fade, add up over a merge, and begin. Pure.
//!
//! Figures fade by half with every [`HALF_LIFE`] sampled lookups of the keyspace, those of seeks with every
//! [`SEEK_HALF_LIFE`] sampled seeks. Of the lookups and seeks per second, which tell
//! what a share is worth, half is forgotten with every [`RATE_HALF_LIFE_US`].

use std::ops::{Add, AddAssign};

/// Sampled lookups in which what was seen loses half of its weight: about 8.4 million lookups. Spread over a thousand
/// tables, each figure then rests on some 200 samples, so it is known within 7 %.
const HALF_LIFE: f64 = (1u64 << 17) as f64;

/// The same of seeks, which are fewer and slower: about a million of them.
const SEEK_HALF_LIFE: f64 = (1u64 << 14) as f64;

/// Microseconds in which the lookups per second forget half: as long as an arbiter of memory looks back.
const RATE_HALF_LIFE_US: f64 = 10e6;

/// A sampled lookup stands for this many.
pub const SAMPLED_ONE_IN: f64 = 64.0;

/// The part of old figures that is left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fading {
    lookups: f64,
    seeks: f64,
}

impl Fading {
    /// Nothing fades.
    pub const NONE: Self = Self { lookups: 1.0, seeks: 1.0 };

    /// After so many more sampled lookups and seeks.
    pub fn after(samples: Samples) -> Self {
        Self {
            lookups: (-samples.lookups / HALF_LIFE).exp2(),
            seeks: (-samples.seeks / SEEK_HALF_LIFE).exp2(),
        }
    }
}

/// What was sampled in a while.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Samples {
    /// Lookups that no memtable answered.
    pub lookups: f64,
    /// Those of them that a table answered.
    pub found: f64,
    /// Sampled seeks.
    pub seeks: f64,
}

/// Probes of a table, or of a part of one, by sampled lookups, and sampled seeks that came to it; decayed.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Probes {
    /// Those for keys that it does not hold.
    pub empty: f64,
    /// Those that found their key, tombstones included.
    pub found: f64,
    /// Those of the empty ones that its filter let through.
    pub false_positives: f64,
    /// Seeks that came to it: they ask no filter.
    pub seeks: f64,
}

impl Probes {
    /// No probes.
    pub const ZERO: Self = Self::new(0.0, 0.0, 0.0);

    /// Probes by their answers.
    pub const fn new(empty: f64, found: f64, false_positives: f64) -> Self {
        Self { empty, found, false_positives, seeks: 0.0 }
    }

    /// The same lookups, with so many seeks.
    #[must_use]
    pub const fn with_seeks(self, seeks: f64) -> Self {
        Self { seeks, ..self }
    }

    /// This share of them.
    #[must_use]
    pub fn scaled(self, share: f64) -> Self {
        self.faded(Fading { lookups: share, seeks: share })
    }

    /// What is left of them.
    #[must_use]
    pub fn faded(self, fading: Fading) -> Self {
        let lookups = |figure: f64| figure * fading.lookups;
        Self::new(lookups(self.empty), lookups(self.found), lookups(self.false_positives))
            .with_seeks(self.seeks * fading.seeks)
    }

    /// Lookups that came.
    pub fn lookups(self) -> f64 {
        self.empty + self.found
    }

    /// What comes to one run that takes the place of several, whose probes in a stretch of keys were `of_runs`, newest
    /// first.
    ///
    /// A lookup came to each of the runs until it found its key; it comes to their merge once. So what is found adds up,
    /// and the lookups that come are those that came to the newest. Adding the empty probes up instead would count a
    /// lookup once more with every merge on the way down. What of them is let through stays the same part. A seek comes to
    /// all of the runs.
    pub fn merged(of_runs: impl IntoIterator<Item = Self>) -> Self {
        let mut of_runs = of_runs.into_iter();
        let newest = of_runs.next().unwrap_or(Self::ZERO);
        let (lookups, sum) = (newest.lookups(), of_runs.fold(newest, Add::add));
        let empty = (lookups - sum.found).max(0.0);
        let let_through = if sum.empty > 0.0 { sum.false_positives / sum.empty } else { 0.0 };
        Self::new(empty, sum.found, empty * let_through).with_seeks(newest.seeks)
    }
}

impl Add for Probes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(
            self.empty + other.empty,
            self.found + other.found,
            self.false_positives + other.false_positives,
        )
        .with_seeks(self.seeks + other.seeks)
    }
}

impl AddAssign for Probes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Probes {
    fn sum<I: Iterator<Item = Self>>(probes: I) -> Self {
        probes.fold(Self::ZERO, Add::add)
    }
}

/// Sampled lookups of a keyspace that no memtable answered, and its sampled seeks.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Window {
    /// How many; decayed.
    pub lookups: f64,
    /// Those of them that a table answered; decayed alike.
    pub found: f64,
    /// How many of all lookups, sampled or not, came to the tree in a second.
    pub lookups_per_second: f64,
    /// Seeks; decayed.
    pub seeks: f64,
    /// How many of all seeks, sampled or not, came in a second.
    pub seeks_per_second: f64,
    /// When this was so; 0: never.
    pub as_of_us: u64,
}

impl Window {
    /// The part of lookups that a table answered; half of them before the first.
    pub fn found_share(self) -> f64 {
        if self.lookups > 0.0 { (self.found / self.lookups).min(1.0) } else { 0.5 }
    }

    /// With so many more samples, by now.
    #[must_use]
    pub fn next(self, samples: Samples, now_us: u64) -> Self {
        let fading = Fading::after(samples);
        let mut next = Self {
            lookups: self.lookups * fading.lookups + samples.lookups,
            found: self.found * fading.lookups + samples.found,
            seeks: self.seeks * fading.seeks + samples.seeks,
            ..self
        };
        let passed_us = now_us.saturating_sub(self.as_of_us) as f64;
        if passed_us > 0.0 {
            // What came before the first look is all there is.
            let old = if self.as_of_us == 0 { 0.0 } else { (-passed_us / RATE_HALF_LIFE_US).exp2() };
            let rate = |before: f64, sampled: f64| {
                before * old + sampled * SAMPLED_ONE_IN / (passed_us / 1e6) * (1.0 - old)
            };
            next.lookups_per_second = rate(self.lookups_per_second, samples.lookups);
            next.seeks_per_second = rate(self.seeks_per_second, samples.seeks);
            next.as_of_us = now_us;
        }
        next
    }

    /// So many sampled ones in all lookups per second; 0 before there were any.
    pub fn per_second(self, sampled: f64) -> f64 {
        if self.lookups > 0.0 { sampled / self.lookups * self.lookups_per_second } else { 0.0 }
    }

    /// What a table begins with that a flush made: every lookup of its keys will come to it, and find them there as
    /// often as the keyspace's entries are found on average; so will every seek. `entries` of the table, of the flush, and of the tree with it.
    pub fn of_flush(self, entries: u64, flush_entries: u64, tree_entries: u64) -> Probes {
        let part = |of: u64| entries as f64 / of.max(entries).max(1) as f64;
        let lookups = self.lookups * part(flush_entries);
        let found = (self.found * part(tree_entries)).min(lookups);
        Probes::new(lookups - found, found, 0.0).with_seeks(self.seeks * part(flush_entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_in_a_half_life_however_often_figures_are_folded() {
        for steps in [1, 7, 64] {
            let part = 1.0 / f64::from(steps);
            let samples =
                Samples { lookups: HALF_LIFE * part, seeks: SEEK_HALF_LIFE * part, ..Samples::default() };
            let all = Probes::new(1.0, 2.0, 0.5).with_seeks(4.0);
            let left = (0..steps).fold(all, |left, _| left.faded(Fading::after(samples)));
            let half = all.scaled(0.5);
            assert!((left.found - half.found).abs() < 1e-12, "{steps} steps: {left:?}");
            assert!((left.seeks - half.seeks).abs() < 1e-12, "{steps} steps: {left:?}");
        }
        // Each by its own.
        let seeks = Samples { seeks: SEEK_HALF_LIFE, ..Samples::default() };
        let left = Probes::new(1.0, 1.0, 1.0).with_seeks(1.0).faded(Fading::after(seeks));
        assert_eq!(left, Probes::new(1.0, 1.0, 1.0).with_seeks(0.5));
    }

    #[test]
    fn a_window_knows_shares_by_lookups_and_rates_by_time() {
        let mut window = Window { as_of_us: 1, ..Window::default() };
        for second in 1..=60 {
            let samples = Samples { lookups: 1_000.0, found: 250.0, seeks: 10.0 };
            window = window.next(samples, 1 + second * 1_000_000);
        }
        assert!((window.found / window.lookups - 0.25).abs() < 1e-12, "{window:?}");
        assert!((window.lookups_per_second / 64_000.0 - 1.0).abs() < 0.02, "{window:?}");
        assert!((window.seeks_per_second / 640.0 - 1.0).abs() < 0.02, "{window:?}");
        assert!((window.per_second(window.lookups / 2.0) / 32_000.0 - 1.0).abs() < 0.02, "{window:?}");
        // A night without lookups takes the rate away, and nothing of what is known of them.
        let morning = window.next(Samples::default(), window.as_of_us + 8 * 3_600_000_000);
        assert_eq!((morning.lookups, morning.found), (window.lookups, window.found));
        assert!(morning.lookups_per_second < 1e-3, "{morning:?}");
        // Without time passing, as when nobody moves the clock, nothing is divided by it.
        let more = Samples { lookups: 5.0, found: 1.0, seeks: 1.0 };
        assert!(morning.next(more, morning.as_of_us).lookups_per_second.is_finite());
        assert_eq!(Window::default().per_second(3.0), 0.0);
    }

    #[test]
    fn a_merge_keeps_what_is_found_and_counts_each_lookup_once() {
        // 100 lookups came to the newer run; 30 found their key there, 70 went on, 20 of them found it below.
        let (newer, older) = (Probes::new(70.0, 30.0, 7.0), Probes::new(50.0, 20.0, 5.0));
        assert_eq!(Probes::merged([newer, older]), Probes::new(50.0, 50.0, 5.0));
        // A seek came to both.
        let merged = Probes::merged([newer.with_seeks(40.0), older.with_seeks(40.0)]);
        assert_eq!(merged, Probes::new(50.0, 50.0, 5.0).with_seeks(40.0));
        // One run alone keeps everything.
        assert_eq!(Probes::merged([newer]), newer);
        assert_eq!(Probes::merged([newer, Probes::ZERO]), newer);
        assert_eq!(Probes::merged([]), Probes::ZERO);
        // What cannot be, as figures of different times may be, stays within bounds.
        assert_eq!(Probes::merged([Probes::new(0.0, 8.0, 0.0), Probes::new(0.0, 9.0, 0.0)]).empty, 0.0);
    }

    #[test]
    fn a_flush_begins_with_what_all_of_the_tree_gets() {
        let window = Window { lookups: 1_000.0, found: 400.0, seeks: 8.0, ..Window::default() };
        // Half of a flush of 100 entries onto 900.
        assert_eq!(window.of_flush(50, 100, 1_000), Probes::new(480.0, 20.0, 0.0).with_seeks(4.0));
        let parts: Probes = [30, 70].into_iter().map(|part| window.of_flush(part, 100, 1_000)).sum();
        assert!((parts.lookups() - 1_000.0).abs() < 1e-9 && (parts.found - 40.0).abs() < 1e-9, "{parts:?}");
        assert_eq!(Window::default().of_flush(1, 0, 0), Probes::ZERO);
    }
}
