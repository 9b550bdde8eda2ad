//! Arithmetic of statistics: decay, combination in a compaction, and initial values. Pure.
//!
//! Figures decay by half with every `HALF_LIFE` sampled lookups of the keyspace, those of seeks
//! with every `SEEK_HALF_LIFE` sampled seeks. The rates of lookups and seeks per second, which
//! scale the shares, decay by half every `RATE_HALF_LIFE_US`.

use std::ops::{Add, AddAssign};

/// Half-life in sampled lookups, about 8.4 million lookups. Spread over a thousand tables, each
/// figure then relies on some 200 samples and has an error of about 7 %.
const HALF_LIFE: f64 = (1u64 << 17) as f64;

/// Half-life in sampled seeks, which are fewer and slower: about a million seeks.
const SEEK_HALF_LIFE: f64 = (1u64 << 14) as f64;

/// Half-life in microseconds of the rates per second: the time that the division of memory looks
/// back.
const RATE_HALF_LIFE_US: f64 = 10e6;

/// Number of lookups that one sampled lookup stands for.
pub const SAMPLED_ONE_IN: f64 = 64.0;

/// Remaining weight of old figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decay {
    lookups: f64,
    seeks: f64,
}

impl Decay {
    /// No decay.
    pub const NONE: Self = Self { lookups: 1.0, seeks: 1.0 };

    /// Decay after these samples.
    pub fn after(samples: Samples) -> Self {
        debug_assert!(samples.lookups >= 0.0 && samples.seeks >= 0.0, "negative samples: {samples:?}");
        Self {
            lookups: (-samples.lookups / HALF_LIFE).exp2(),
            seeks: (-samples.seeks / SEEK_HALF_LIFE).exp2(),
        }
    }
}

/// Samples of an interval.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Samples {
    /// Sampled lookups that no memtable answered.
    pub lookups: f64,
    /// The part of `lookups` that a table answered.
    pub found: f64,
    /// Sampled seeks.
    pub seeks: f64,
}

/// Probes of a table, or of a part of one, by sampled lookups, and its sampled seeks; decayed.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Probes {
    /// Probes for keys that the table does not hold.
    pub empty: f64,
    /// Probes that found their key, tombstones included.
    pub found: f64,
    /// The part of `empty` for which the filter answered "maybe".
    pub false_positives: f64,
    /// Seeks that reached the table; they do not probe the filter.
    pub seeks: f64,
}

impl Probes {
    /// No probes.
    pub const ZERO: Self = Self::new(0.0, 0.0, 0.0);

    /// Creates probes from their results.
    pub const fn new(empty: f64, found: f64, false_positives: f64) -> Self {
        Self { empty, found, false_positives, seeks: 0.0 }
    }

    /// Replaces the number of seeks.
    #[must_use]
    pub const fn with_seeks(self, seeks: f64) -> Self {
        Self { seeks, ..self }
    }

    /// Multiplies all figures by `share`.
    #[must_use]
    pub fn scaled(self, share: f64) -> Self {
        self.decayed(Decay { lookups: share, seeks: share })
    }

    /// Applies decay.
    #[must_use]
    pub fn decayed(self, fading: Decay) -> Self {
        let lookups = |figure: f64| figure * fading.lookups;
        Self::new(lookups(self.empty), lookups(self.found), lookups(self.false_positives))
            .with_seeks(self.seeks * fading.seeks)
    }

    /// Number of lookups.
    pub fn lookups(self) -> f64 {
        self.empty + self.found
    }

    /// Probes of a run that replaces several runs. `of_runs` are their probes in one key range,
    /// newest first.
    ///
    /// A lookup probed each of the runs until it found its key; it probes the new run once. So
    /// found lookups are summed, and the total of lookups is that of the newest run. Summing the
    /// empty probes would count a lookup once more with every compaction on the way down. The
    /// false-positive rate stays the same. A seek reaches all of the runs, so the seeks are those
    /// of the newest.
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
pub struct LookupWindow {
    /// Sampled lookups; decayed.
    pub lookups: f64,
    /// The part of `lookups` that a table answered; decayed alike.
    pub found: f64,
    /// Lookups per second that reached the tables, sampled or not.
    pub lookups_per_second: f64,
    /// Sampled seeks; decayed.
    pub seeks: f64,
    /// Seeks per second, sampled or not.
    pub seeks_per_second: f64,
    /// Time of these figures in microseconds; 0 for never.
    pub as_of_us: u64,
}

impl LookupWindow {
    /// Share of lookups that a table answered; one half before the first lookup.
    pub fn found_share(self) -> f64 {
        if self.lookups > 0.0 { (self.found / self.lookups).min(1.0) } else { 0.5 }
    }

    /// Adds `samples`, as of `now_us`.
    #[must_use]
    pub fn next(self, samples: Samples, now_us: u64) -> Self {
        let fading = Decay::after(samples);
        let mut next = Self {
            lookups: self.lookups * fading.lookups + samples.lookups,
            found: self.found * fading.lookups + samples.found,
            seeks: self.seeks * fading.seeks + samples.seeks,
            ..self
        };
        let passed_us = now_us.saturating_sub(self.as_of_us) as f64;
        if passed_us > 0.0 {
            // Before the first update there is no old rate.
            let old = if self.as_of_us == 0 { 0.0 } else { (-passed_us / RATE_HALF_LIFE_US).exp2() };
            debug_assert!((0.0..=1.0).contains(&old), "an old rate weighs {old} after {passed_us} us");
            let rate = |before: f64, sampled: f64| {
                before * old + sampled * SAMPLED_ONE_IN / (passed_us / 1e6) * (1.0 - old)
            };
            next.lookups_per_second = rate(self.lookups_per_second, samples.lookups);
            next.seeks_per_second = rate(self.seeks_per_second, samples.seeks);
            next.as_of_us = now_us;
        }
        next
    }

    /// Converts a number of sampled lookups to all lookups per second; 0 before there were any.
    pub fn per_second(self, sampled: f64) -> f64 {
        if self.lookups > 0.0 { sampled / self.lookups * self.lookups_per_second } else { 0.0 }
    }

    /// Initial probes of a table that a flush wrote. Every lookup of its keys will probe it, and
    /// will find its key there as often as an average entry of the keyspace. Every seek will reach
    /// it. `entries` are those of the table, `flush_entries` those of the flush, `tree_entries`
    /// those of the tree with the flush.
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
            let left = (0..steps).fold(all, |left, _| left.decayed(Decay::after(samples)));
            let half = all.scaled(0.5);
            assert!((left.found - half.found).abs() < 1e-12, "{steps} steps: {left:?}");
            assert!((left.seeks - half.seeks).abs() < 1e-12, "{steps} steps: {left:?}");
        }
        // Lookups and seeks decay separately.
        let seeks = Samples { seeks: SEEK_HALF_LIFE, ..Samples::default() };
        let left = Probes::new(1.0, 1.0, 1.0).with_seeks(1.0).decayed(Decay::after(seeks));
        assert_eq!(left, Probes::new(1.0, 1.0, 1.0).with_seeks(0.5));
    }

    #[test]
    fn a_window_knows_shares_by_lookups_and_rates_by_time() {
        let mut window = LookupWindow { as_of_us: 1, ..LookupWindow::default() };
        for second in 1..=60 {
            let samples = Samples { lookups: 1_000.0, found: 250.0, seeks: 10.0 };
            window = window.next(samples, 1 + second * 1_000_000);
        }
        assert!((window.found / window.lookups - 0.25).abs() < 1e-12, "{window:?}");
        assert!((window.lookups_per_second / 64_000.0 - 1.0).abs() < 0.02, "{window:?}");
        assert!((window.seeks_per_second / 640.0 - 1.0).abs() < 0.02, "{window:?}");
        assert!((window.per_second(window.lookups / 2.0) / 32_000.0 - 1.0).abs() < 0.02, "{window:?}");
        // A night without lookups reduces the rate and keeps the shares.
        let morning = window.next(Samples::default(), window.as_of_us + 8 * 3_600_000_000);
        assert_eq!((morning.lookups, morning.found), (window.lookups, window.found));
        assert!(morning.lookups_per_second < 1e-3, "{morning:?}");
        // An interval of zero length, as with a clock that stands still, must not cause a division
        // by zero.
        let more = Samples { lookups: 5.0, found: 1.0, seeks: 1.0 };
        assert!(morning.next(more, morning.as_of_us).lookups_per_second.is_finite());
        assert_eq!(LookupWindow::default().per_second(3.0), 0.0);
    }

    #[test]
    fn a_merge_keeps_what_is_found_and_counts_each_lookup_once() {
        // 100 lookups probed the newer run; 30 found their key there, 70 continued, and 20 of them
        // found it below.
        let (newer, older) = (Probes::new(70.0, 30.0, 7.0), Probes::new(50.0, 20.0, 5.0));
        assert_eq!(Probes::merged([newer, older]), Probes::new(50.0, 50.0, 5.0));
        // A seek reached both.
        let merged = Probes::merged([newer.with_seeks(40.0), older.with_seeks(40.0)]);
        assert_eq!(merged, Probes::new(50.0, 50.0, 5.0).with_seeks(40.0));
        // A single run keeps all its figures.
        assert_eq!(Probes::merged([newer]), newer);
        assert_eq!(Probes::merged([newer, Probes::ZERO]), newer);
        assert_eq!(Probes::merged([]), Probes::ZERO);
        // Inconsistent figures, as figures of different times may be, stay within bounds.
        assert_eq!(Probes::merged([Probes::new(0.0, 8.0, 0.0), Probes::new(0.0, 9.0, 0.0)]).empty, 0.0);
    }

    #[test]
    fn a_flush_begins_with_what_all_of_the_tree_gets() {
        let window = LookupWindow { lookups: 1_000.0, found: 400.0, seeks: 8.0, ..LookupWindow::default() };
        // Half of a flush of 100 entries into a tree of 900.
        assert_eq!(window.of_flush(50, 100, 1_000), Probes::new(480.0, 20.0, 0.0).with_seeks(4.0));
        let parts: Probes = [30, 70].into_iter().map(|part| window.of_flush(part, 100, 1_000)).sum();
        assert!((parts.lookups() - 1_000.0).abs() < 1e-9 && (parts.found - 40.0).abs() < 1e-9, "{parts:?}");
        assert_eq!(LookupWindow::default().of_flush(1, 0, 0), Probes::ZERO);
    }
}
