//! Workload-shift detection: the hit rate of lookups changed, and the figures of each table are
//! adjusted. Pure.
//!
//! Figures decay by the number of lookups ([`crate::statistics::rates`]), so that those of each
//! table rely on enough samples. That is slow where a lookup reads from a device: at 10,000 lookups
//! a second, half of the weight is lost in a quarter of an hour. After an hour of lookups that find
//! their key, lookups of absent keys would wait as long for filters. So the latest samples are
//! compared with all earlier ones. If they differ by more than chance explains, the figures are
//! adjusted. The *distribution* of lookups over tables is kept, the hit rate becomes that of the
//! latest samples, and all figures get a small weight, so that new samples soon dominate.
//!
//! A short burst is no shift: the change has to last for [`SHIFT_DURATION_MIN_US`]. Alternating
//! lookups are one workload, not many. The weight of the old figures doubles with each adjustment
//! that follows soon after another ([`Oscillation`]), until the figures become the mean of both
//! phases.
//!
//! Not here: keys that become hot or cold while the hit rate stays the same; those figures decay as
//! usual.

use crate::statistics::{LookupWindow, Probes};

/// Minimum number of samples that can show a shift.
pub(super) const SAMPLES_MIN: f64 = 16.0;
/// Samples without a shift after which the check restarts; newer ones would otherwise have to
/// outweigh them.
pub(super) const SAMPLES_WINDOW_MAX: f64 = 64.0;
const _: () = assert!(SAMPLES_MIN <= SAMPLES_WINDOW_MAX, "a window has enough samples for a test");
/// Minimum change of the hit rate that is a shift, however significant; decay handles smaller ones.
const CHANGE_MIN: f64 = 1.0 / 16.0;
/// Significance threshold in standard deviations; high because the test runs 16 times a second.
const DEVIATIONS: f64 = 6.0;
/// Weight of the old figures after a shift, as a multiple of the samples that showed it.
const OLD_WEIGHT_RATIO: f64 = 4.0;
/// Minimum weight of the old figures in sampled lookups; with less, tables with few samples would
/// fall back to the prior.
const OLD_WEIGHT_MIN: f64 = 1024.0;
/// Minimum duration of a change of the hit rate in microseconds.
pub(super) const SHIFT_DURATION_MIN_US: u64 = 200_000;
/// Adjustments within this many microseconds of each other count as oscillation.
const OSCILLATION_US: u64 = 60_000_000;
/// Maximum number of doublings of the weight.
const DOUBLINGS_MAX: u32 = 12;
/// Minimum hit rate at which the distribution of found lookups over tables is known.
const KNOWN_HIT_RATE_MIN: f64 = 1.0 / 16.0;

/// Time of the last adjustment, and the number of adjustments that followed soon after another.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Oscillation {
    at_us: Option<u64>,
    soon_after: u32,
}

impl Oscillation {
    fn is_soon(self, now_us: u64) -> bool {
        self.at_us.is_some_and(|at_us| now_us.saturating_sub(at_us) < OSCILLATION_US)
    }

    /// Factor on the weight of the old figures at this time.
    pub fn weight(self, now_us: u64) -> f64 {
        if self.is_soon(now_us) { f64::from(1u32 << self.soon_after.min(DOUBLINGS_MAX)) } else { 1.0 }
    }

    /// Notes a shift that only this weight suppressed: the oscillation continues.
    pub fn still(self, now_us: u64) -> Self {
        if self.is_soon(now_us) { Self { at_us: Some(now_us), ..self } } else { self }
    }

    /// Adds an adjustment at `now_us`.
    pub fn again(self, now_us: u64) -> Self {
        let soon_after = if self.is_soon(now_us) { self.soon_after.saturating_add(1) } else { 0 };
        Self { at_us: Some(now_us), soon_after }
    }
}

/// A detected workload shift.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shift {
    /// Hit rate of the older samples; the next field has the latest one.
    from: f64,
    to: f64,
    /// Sampled lookups before the shift, decayed.
    lookups: f64,
    /// Factor on all figures.
    keep: f64,
}

impl Shift {
    /// Detects a shift between the last `lookups` samples of a keyspace, `found` of which found
    /// their key, and the older ones, whose weight is multiplied by `weight`. `window` contains all
    /// samples.
    pub fn seen(window: LookupWindow, (lookups, found): (f64, f64), weight: f64) -> Option<Self> {
        let before = (window.lookups - lookups).max(0.0);
        let kept = (lookups * OLD_WEIGHT_RATIO).max(OLD_WEIGHT_MIN) * weight;
        // New samples soon outweigh this few.
        if lookups < SAMPLES_MIN || before <= kept {
            return None;
        }
        debug_assert!(before > 0.0 && lookups > 0.0, "a rate of no lookups");
        let from = ((window.found - found) / before).clamp(0.0, 1.0);
        let to = (found / lookups).min(1.0);
        // The standard deviation of one sample is at most one half.
        let scatter = DEVIATIONS * 0.5 * (1.0 / lookups + 1.0 / before).sqrt();
        let is_shift = (from - to).abs() >= scatter.max(CHANGE_MIN);
        is_shift.then(|| Self { from, to, lookups: before, keep: kept / before })
    }

    /// The keyspace's window after the shift.
    pub fn of_window(self, window: LookupWindow) -> LookupWindow {
        let lookups = self.lookups * self.keep;
        debug_assert!(self.keep <= 1.0, "a shift keeps {} of what was known", self.keep);
        LookupWindow { lookups, found: lookups * self.to, ..window }
    }

    /// A table's probes after the shift. The table has the share `of_tree` of the keyspace's
    /// entries.
    ///
    /// If the hit rate falls, the found lookups of every table fall in proportion; if it rises,
    /// they rise in proportion. If hardly any lookup was found before, each table gets found
    /// lookups in proportion to its entries, because nothing is known about keys that were not
    /// looked up. The samples will show that a lookup not found in an upper level continues to the
    /// lower ones.
    pub fn of_table(self, probes: Probes, of_tree: f64) -> Probes {
        let lookups = probes.lookups();
        let found = if self.to < self.from || self.from >= KNOWN_HIT_RATE_MIN {
            (probes.found * self.to / self.from).min(lookups)
        } else {
            (probes.found + (self.to - self.from) * self.lookups * of_tree).min(lookups)
        };
        let empty = lookups - found;
        debug_assert!(empty >= 0.0, "{found} of {lookups} lookups found their key");
        let let_through = if probes.empty > 0.0 { probes.false_positives / probes.empty } else { 0.0 };
        Probes::new(empty, found, empty * let_through).scaled(self.keep).with_seeks(probes.seeks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::rates::Samples;

    fn window(lookups: f64, found: f64) -> LookupWindow {
        LookupWindow { lookups, found, lookups_per_second: 10_000.0, as_of_us: 9, ..LookupWindow::default() }
    }

    /// The result for 100,000 lookups with the hit rate `share`, followed by `samples` with the hit
    /// rate `late`.
    fn after(share: f64, samples: f64, late: f64) -> Option<Shift> {
        let before = 100_000.0;
        let all = window(before + samples, before * share + samples * late);
        Shift::seen(all, (samples, samples * late), 1.0)
    }

    #[test]
    fn a_few_samples_are_a_shift_if_they_contradict_all_before() {
        assert!(after(1.0, 64.0, 0.0).is_some() && after(0.0, 64.0, 1.0).is_some());
        assert!(
            after(1.0, 16.0, 0.0).is_some() && after(0.9, 16.0, 0.2).is_none(),
            "few tell only of great ones"
        );
        assert!(after(1.0, 15.0, 0.0).is_none(), "too few to say anything");
        assert!(after(0.5, 64.0, 0.8).is_none() && after(0.5, 64.0, 0.9).is_some(), "few samples scatter");
        assert!(after(0.5, 1e4, 0.55).is_none() && after(0.5, 1e4, 0.57).is_some(), "a small part is none");
        let few_before = |before: f64| Shift::seen(window(before + 64.0, before), (64.0, 0.0), 1.0);
        assert!(few_before(1_024.0).is_none(), "so many are outweighed soon");
        assert!(few_before(1_100.0).is_some());
        assert!(Shift::seen(LookupWindow::default(), (64.0, 0.0), 1.0).is_none());
    }

    #[test]
    fn chance_is_no_shift() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from((state >> 33) as u32) / f64::from(1_u32 << 31)
        };
        let mut far = 0;
        // Half of the lookups find their key: there the variance is largest.
        for samples in [64, 1_024] {
            for _ in 0..20_000 {
                let found = (0..samples).filter(|_| next() < 0.5).count();
                let late = found as f64 / f64::from(samples);
                assert_eq!(after(0.5, f64::from(samples), late), None, "{found} of {samples}");
                far += u32::from((late - 0.5).abs() > 0.1);
            }
        }
        assert!(far > 100, "chance strayed by a tenth {far} times: that is what was looked at");
    }

    #[test]
    fn lookups_that_go_to_and_fro_become_one_workload() {
        let second = 1_000_000;
        let once = Oscillation::default().again(second);
        assert_eq!([Oscillation::default().weight(0), once.weight(2 * second)], [1.0, 1.0]);
        let often = (2..6).fold(once, |restated, at| restated.again(at * second));
        assert_eq!(often.weight(7 * second), 16.0);
        assert_eq!(often.weight(70 * second), 1.0, "that was long ago");
        assert_eq!(often.again(70 * second).weight(71 * second), 1.0);
        // Phases of half a second each, alternating, at 10,000 lookups a second: after a while they
        // cause no more shifts.
        let (mut known, mut restated, mut shifts) =
            (window(100_000.0, 100_000.0), Oscillation::default(), Vec::new());
        for turn in 0..6_000 {
            let now_us = turn * second / 2;
            let found = if turn % 2 == 0 { 0.0 } else { 80.0 };
            known = known.next(Samples { lookups: 80.0, found, seeks: 0.0 }, now_us);
            if let Some(shift) = Shift::seen(known, (80.0, found), restated.weight(now_us)) {
                restated = restated.again(now_us);
                known = shift.of_window(known);
                shifts.push(turn);
            } else if Shift::seen(known, (80.0, found), 1.0).is_some() {
                restated = restated.still(now_us);
            }
        }
        assert!((1..=10).contains(&shifts.len()), "{shifts:?}");
        assert!((known.found_share() - 0.5).abs() < 0.2, "{known:?}");
    }

    #[test]
    fn what_was_known_of_places_is_kept_and_how_lookups_end_is_as_of_late() {
        let gone = after(1.0, 1_000.0, 0.0).expect("a shift");
        let now = gone.of_window(window(101_000.0, 100_000.0));
        assert_eq!((now.lookups, now.found), (4_000.0, 0.0));
        assert_eq!((now.lookups_per_second, now.as_of_us), (10_000.0, 9), "rates go by time");
        let few = after(1.0, 20.0, 0.0).expect("a shift").of_window(window(100_020.0, 100_000.0));
        assert_eq!(few.lookups, 1_024.0);
        // A table that got a quarter of the lookups, all found: the same number reaches it, all
        // empty.
        let table = gone.of_table(Probes::new(0.0, 25_000.0, 0.0).with_seeks(70.0), 0.5);
        assert_eq!(table.seeks, 70.0, "no news of seeks");
        assert!((table.empty - 1_000.0).abs() < 1e-9 && table.found == 0.0, "{table:?}");
        // In the other direction each table finds lookups in proportion to its entries, and no more
        // than reached it.
        let come = after(0.0, 1_000.0, 1.0).expect("a shift");
        let table = come.of_table(Probes::new(100_000.0, 0.0, 1_000.0), 0.25);
        assert!((table.found - 1_000.0).abs() < 1e-9 && (table.empty - 3_000.0).abs() < 1e-9, "{table:?}");
        assert!((table.false_positives - 30.0).abs() < 1e-9, "the filter is as wrong as it was: {table:?}");
        let cold = come.of_table(Probes::new(50.0, 0.0, 0.0), 0.25);
        assert!(cold.empty == 0.0 && (cold.found - 50.0 * come.keep).abs() < 1e-9, "{cold:?}");
        assert_eq!(come.of_table(Probes::ZERO, 0.25), Probes::ZERO);
        // Half the hit rate: half of each table's found lookups. Twice the hit rate: twice as many,
        // where the distribution is known.
        let half = after(0.8, 1_000.0, 0.4).expect("a shift").of_table(Probes::new(200.0, 800.0, 2.0), 0.1);
        assert!((half.empty / half.lookups() - 0.6).abs() < 1e-9, "{half:?}");
        let twice = after(0.4, 1_000.0, 0.8).expect("a shift").of_table(Probes::new(700.0, 300.0, 2.0), 0.9);
        assert!((twice.found / twice.lookups() - 0.6).abs() < 1e-9, "{twice:?}");
    }
}
