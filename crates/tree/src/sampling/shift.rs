//! Shifts: lookups that end otherwise than those before them, and what is then believed of each table. Pure.
//!
//! Figures fade by the number of lookups ([`super::rates`]), so that a table's rest on enough samples. Where a lookup reads from
//! a device, that is slow: at 10,000 lookups a second half is forgotten in a quarter of an hour. Whoever asks for absent
//! keys, after an hour of keys that were there, would wait as long for filters. So the last few samples are compared with all
//! before them, and when they contradict them by more than chance does, what is known is restated: *where* lookups come is
//! kept, how they end is as of late, and all of it weighs little, so that what comes next is believed soon.
//!
//! A burst is no shift: it has to last for [`LASTING_US`]. And lookups that go to and fro are one workload, not many: what was known
//! weighs twice as much with each restatement that comes soon after another ([`Restated`]), until the mean of both is what is known.
//!
//! Not here: keys that become hot or cold while as many lookups find something as before; that fades as it did.

use crate::statistics::{Probes, Window};

/// Fewer samples contradict nothing.
pub(super) const LEAST_SAMPLES: f64 = 16.0;
/// Samples that contradict nothing are looked at no more once there are so many: the next would have to outweigh them.
pub(super) const LOOKED_AT_SAMPLES: f64 = 64.0;
/// A smaller part of the lookups is no shift, however surely it is known: fading sees to that.
const LEAST_PART: f64 = 1.0 / 16.0;
/// How far, in standard deviations, chance is believed to stray: it is asked some 16 times a second for years.
const DEVIATIONS: f64 = 6.0;
/// What was known before weighs so many times as much as the samples that contradicted it,
const KEPT_TIMES: f64 = 4.0;
/// and as much as this many: places of few samples would be forgotten for what is believed without any.
const KEPT_LEAST: f64 = 1024.0;
/// How long lookups end otherwise before it is believed.
pub(super) const LASTING_US: u64 = 200_000;
/// A restatement within this time after another is one to and fro.
const TO_AND_FRO_US: u64 = 60_000_000;
/// So often what was known weighs twice as much.
const DOUBLED_MOST: u32 = 12;
/// Where a smaller part of the lookups found something, nothing is known of where they do.
const KNOWN_PART: f64 = 1.0 / 16.0;

/// When figures were restated, and how often that came soon after another time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Restated {
    at_us: Option<u64>,
    soon_after: u32,
}

impl Restated {
    fn is_soon(self, now_us: u64) -> bool {
        self.at_us.is_some_and(|at_us| now_us.saturating_sub(at_us) < TO_AND_FRO_US)
    }

    /// How many times as much as usual what was known before weighs now.
    pub fn weight(self, now_us: u64) -> f64 {
        if self.is_soon(now_us) { f64::from(1u32 << self.soon_after.min(DOUBLED_MOST)) } else { 1.0 }
    }

    /// What would have been a restatement, had there been none before: lookups still go to and fro.
    pub fn still(self, now_us: u64) -> Self {
        if self.is_soon(now_us) { Self { at_us: Some(now_us), ..self } } else { self }
    }

    /// With one more, now.
    pub fn again(self, now_us: u64) -> Self {
        let soon_after = if self.is_soon(now_us) { self.soon_after.saturating_add(1) } else { 0 };
        Self { at_us: Some(now_us), soon_after }
    }
}

/// Lookups have shifted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shift {
    /// The part that found its key, before and of late.
    from: f64,
    to: f64,
    /// Sampled lookups known of before, decayed.
    lookups: f64,
    /// What part of all figures is kept.
    keep: f64,
}

impl Shift {
    /// Whether the last `lookups` samples of a keyspace, `found` of which found their key, contradict those before them, which
    /// weigh `weight` times as much as usual. `window` has all of them.
    pub fn seen(window: Window, (lookups, found): (f64, f64), weight: f64) -> Option<Self> {
        let before = (window.lookups - lookups).max(0.0);
        let kept = (lookups * KEPT_TIMES).max(KEPT_LEAST) * weight;
        // So few are outweighed soon.
        if lookups < LEAST_SAMPLES || before <= kept {
            return None;
        }
        let from = ((window.found - found) / before).clamp(0.0, 1.0);
        let to = (found / lookups).min(1.0);
        // Half is the most that the deviation of one sample can be.
        let scatter = DEVIATIONS * 0.5 * (1.0 / lookups + 1.0 / before).sqrt();
        let is_shift = (from - to).abs() >= scatter.max(LEAST_PART);
        is_shift.then(|| Self { from, to, lookups: before, keep: kept / before })
    }

    /// The keyspace's lookups as they are believed to be now.
    pub fn of_window(self, window: Window) -> Window {
        let lookups = self.lookups * self.keep;
        Window { lookups, found: lookups * self.to, ..window }
    }

    /// A table's probes as they are believed to be now. It has the share `of_tree` of the keyspace's entries.
    ///
    /// Where fewer lookups find their key, every table finds as many fewer; where more do, each as many more. If hardly any did,
    /// each finds as many as it has entries, for nothing is known of keys that were not asked for. That a lookup which finds nothing in an upper
    /// level goes on to those below is left for the samples to tell.
    pub fn of_table(self, probes: Probes, of_tree: f64) -> Probes {
        let lookups = probes.lookups();
        let found = if self.to < self.from || self.from >= KNOWN_PART {
            (probes.found * self.to / self.from).min(lookups)
        } else {
            (probes.found + (self.to - self.from) * self.lookups * of_tree).min(lookups)
        };
        let empty = lookups - found;
        let let_through = if probes.empty > 0.0 { probes.false_positives / probes.empty } else { 0.0 };
        Probes::new(empty, found, empty * let_through).scaled(self.keep).with_seeks(probes.seeks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::rates::Samples;

    fn window(lookups: f64, found: f64) -> Window {
        Window { lookups, found, lookups_per_second: 10_000.0, as_of_us: 9, ..Window::default() }
    }

    /// What is seen in 100,000 lookups of which `share` found their key, and `samples` more of which `late` did.
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
        assert!(Shift::seen(Window::default(), (64.0, 0.0), 1.0).is_none());
    }

    #[test]
    fn chance_is_no_shift() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from((state >> 33) as u32) / f64::from(1_u32 << 31)
        };
        let mut far = 0;
        // Half of the lookups find something: there chance is greatest.
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
        let once = Restated::default().again(second);
        assert_eq!([Restated::default().weight(0), once.weight(2 * second)], [1.0, 1.0]);
        let often = (2..6).fold(once, |restated, at| restated.again(at * second));
        assert_eq!(often.weight(7 * second), 16.0);
        assert_eq!(often.weight(70 * second), 1.0, "that was long ago");
        assert_eq!(often.again(70 * second).weight(71 * second), 1.0);
        // Every second another half second of lookups, 10,000 a second: after a while they contradict nothing any more.
        let (mut known, mut restated, mut shifts) =
            (window(100_000.0, 100_000.0), Restated::default(), Vec::new());
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
        // A table that got a quarter of them, all found: as many come, and all in vain.
        let table = gone.of_table(Probes::new(0.0, 25_000.0, 0.0).with_seeks(70.0), 0.5);
        assert_eq!(table.seeks, 70.0, "no news of seeks");
        assert!((table.empty - 1_000.0).abs() < 1e-9 && table.found == 0.0, "{table:?}");
        // The other way each table finds as many as it has entries, and no more than came to it.
        let come = after(0.0, 1_000.0, 1.0).expect("a shift");
        let table = come.of_table(Probes::new(100_000.0, 0.0, 1_000.0), 0.25);
        assert!((table.found - 1_000.0).abs() < 1e-9 && (table.empty - 3_000.0).abs() < 1e-9, "{table:?}");
        assert!((table.false_positives - 30.0).abs() < 1e-9, "the filter is as wrong as it was: {table:?}");
        let cold = come.of_table(Probes::new(50.0, 0.0, 0.0), 0.25);
        assert!(cold.empty == 0.0 && (cold.found - 50.0 * come.keep).abs() < 1e-9, "{cold:?}");
        assert_eq!(come.of_table(Probes::ZERO, 0.25), Probes::ZERO);
        // Half as many: half of what each found. Twice as many: twice, where that is known.
        let half = after(0.8, 1_000.0, 0.4).expect("a shift").of_table(Probes::new(200.0, 800.0, 2.0), 0.1);
        assert!((half.empty / half.lookups() - 0.6).abs() < 1e-9, "{half:?}");
        let twice = after(0.4, 1_000.0, 0.8).expect("a shift").of_table(Probes::new(700.0, 300.0, 2.0), 0.9);
        assert!((twice.found / twice.lookups() - 0.6).abs() < 1e-9, "{twice:?}");
    }
}
