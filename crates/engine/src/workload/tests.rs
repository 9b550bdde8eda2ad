//! Tests of windows and of the observer.

use std::sync::Arc;

use shamba_model::miss_ratio::MissRatioCurve;
use shamba_tree::version::Pairs;

use super::observer::Observation;
use super::*;
use crate::metrics::WorkCounters;
use crate::options::settings::Settings;
use crate::testing::Parts;

impl Parts {
    /// The observer of these parts, which begins with the workload in `recorded`.
    pub fn observer(&self, recorded: &Pairs) -> WorkloadObserver {
        let recorded = recorded.iter().cloned().collect();
        let (telemetry, reads) = (Arc::clone(&self.telemetry), Arc::clone(&self.reads));
        WorkloadObserver::new(&self.env, &recorded, telemetry, reads, Arc::clone(self.memory.cache()))
    }

    /// Counts puts, and lets a window pass.
    pub fn put(&self, puts: u64) {
        WorkCounters::add(&self.telemetry.work().puts, puts);
        self.env.clock.sleep_us(WINDOW_US);
    }
}

#[test]
fn an_observer_takes_windows_of_the_counters_and_hands_them_to_the_next() {
    let parts = Parts::new(Settings::default());
    let observer = parts.observer(&Pairs::default());
    assert!(!observer.observe() && observer.to_pairs().is_empty(), "nothing has happened");
    parts.put(5_000);
    assert!(observer.observe());
    assert_eq!(observer.latest_window().puts, 5_000.0);
    assert!(!observer.observe(), "the next window has begun");
    let workload = observer.workload();
    assert_eq!((workload.puts, workload.seconds), (5_000.0, WINDOW_US as f64 / 1e6));
    // Another process begins with it, and counts anew.
    let later = Parts::new(Settings::default()).observer(&observer.to_pairs());
    assert_eq!(later.workload(), workload);
    assert_eq!(later.latest_window(), Workload::default());
    assert_eq!((later.miss_ratio(1 << 20), later.locality(1 << 20)), (None, MissRatioCurve::EVEN));
}

fn window(puts: f64, empty_lookups: f64) -> Workload {
    Workload { seconds: 2.0, puts, empty_lookups, ..Workload::default() }
}

#[test]
fn old_windows_fade_by_half_in_a_half_life_of_work() {
    let mut workload = (0..100).fold(Workload::default(), |sum, _| sum.next(window(1_000.0, 0.0)));
    assert!((workload.per_second(workload.puts) - 500.0).abs() < 1e-9);
    let before = workload.puts;
    for _ in 0..2 {
        workload = workload.next(window(0.0, 3_000.0));
    }
    assert!((workload.puts / before - 0.5).abs() < 1e-9, "two windows are a half-life");
    // An idle window: counts do not decay, but those of compactions are added.
    let idle = Workload { moved_bytes: 7.0, moved_ns: 14.0, ..window(3.0, 2.0) };
    let after = workload.next(idle);
    assert_eq!((after.puts, after.seconds), (workload.puts, workload.seconds));
    assert_eq!(after.move_ns_per_byte(), Some(2.0));
}

/// The variation after each window of the given puts and empty lookups.
fn variations(windows: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut observation = Observation::default();
    let mut totals = Workload::default();
    observation.look(totals, 0);
    let mut variation = |(at, (puts, empty_lookups)): (u64, (f64, f64))| {
        totals = totals.and(Workload { puts, empty_lookups, ..Workload::default() });
        observation.look(totals, at * WINDOW_US);
        // A window that has not ended adds no variation.
        let more = Workload { puts: totals.puts + 1e6, ..totals };
        let now = observation.now(more, at * WINDOW_US + WINDOW_US / 2).variation();
        assert!((now - observation.workload.variation()).abs() < 1e-12);
        now
    };
    (1..).zip(windows).map(&mut variation).collect()
}

#[test]
fn variation_is_nothing_for_one_mix_and_soon_after_a_change() {
    for steady in [
        variations((0..50).map(|_| (7_000.0, 3_000.0))),
        // Random differences of counts are not another mix; nor is another rate, nor a pause.
        variations((0..50).map(|at| (40.0 + f64::from(at % 7), 40.0))),
        variations((0..50).map(|at| (7_000.0 * f64::from(1 + at % 9), 3_000.0 * f64::from(1 + at % 9)))),
        variations((0..50).map(|at| if at % 3 == 0 { (1.0, 0.0) } else { (7_000.0, 3_000.0) })),
    ] {
        assert!(steady.iter().all(|variation| *variation == 0.0), "{steady:?}");
    }
    // Oscillation: each window has one kind of operation.
    let swinging = variations((0..50).map(|at| if at % 2 == 0 { (1e4, 0.0) } else { (0.0, 1e4) }));
    assert!((swinging[49] - 2f64.ln()).abs() < 1e-6, "{swinging:?}");
    // One lasting change.
    let changed = variations((0..50).map(|at| if at < 25 { (1e4, 0.0) } else { (0.0, 1e4) }));
    assert_eq!(changed[24], 0.0);
    assert!((0.15..0.25).contains(&changed[25]), "{changed:?}");
    assert!((changed[29] / changed[25] - 0.25).abs() < 0.01 && changed[49] < 1e-3, "{changed:?}");
    let workload = Workload { windows: 3.0, swings: 0.75, ..Workload::default() };
    assert_eq!(Workload::from_text(&workload.to_text()).variation(), 0.25);
    assert_eq!(Workload::default().variation(), 0.0);
}

#[test]
fn windows_are_differences_of_looks() {
    let mut observation = Observation::default();
    let totals = |puts: f64| Workload { puts, ..Workload::default() };
    assert!(!observation.look(totals(5_000.0), 1), "the first look begins");
    assert!(!observation.look(totals(6_000.0), 1 + WINDOW_US / 2), "it is not time");
    assert!(observation.look(totals(7_000.0), 1 + WINDOW_US));
    assert_eq!(observation.workload.puts, 2_000.0);
    assert!(!observation.look(totals(7_001.0), 1 + 2 * WINDOW_US), "one put is no work");
    let now = observation.now(totals(9_000.0), 1 + 3 * WINDOW_US);
    assert!(now.puts > 3_000.0, "{now:?}");
}

#[test]
fn text_keeps_every_figure_and_nothing_hostile_comes_in() {
    let workload = Workload { seconds: 1.5, ranges: 3.25, moved_ns: 1e-9, ..window(1e15, 0.1) };
    assert_eq!(Workload::from_text(&workload.to_text()), workload);
    assert_eq!(Workload::from_text(""), Workload::default());
    let hostile = Workload::from_text("puts=NaN deletes=-1 ranges=inf seconds=x future=7 = found_lookups=2");
    assert_eq!(hostile, Workload { found_lookups: 2.0, ..Workload::default() });
    assert_eq!(Workload::default().per_second(5.0), 0.0);
    assert_eq!((workload.entries_per_range(), Workload::default().entries_per_range()), (0.0, 0.0));
}

#[test]
fn operands_are_updates() {
    let parts = Parts::new(Settings::default());
    let observer = parts.observer(&Pairs::default());
    assert!(!observer.observe());
    WorkCounters::add(&parts.telemetry.work().merge_operations, 5_000);
    parts.put(0);
    assert!(observer.observe(), "it is enough to judge by");
    assert_eq!(observer.workload().updates(), 5_000.0);
}
