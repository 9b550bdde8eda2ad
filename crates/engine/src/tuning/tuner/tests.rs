//! Tests of the tuner's decisions, on synthetic windows.

use super::*;
use crate::tuning::advise::Prediction;
use shamba_model::{Design, MergePolicy};

fn design(policy: MergePolicy, size_ratio: f64) -> TreeDesign {
    let design = Design::new(policy, size_ratio, 2 << 20, 10.0);
    TreeDesign { design, ..TreeDesign::default() }
}

const LEVELING: MergePolicy = MergePolicy::Leveling;
const TIERING: MergePolicy = MergePolicy::Tiering;

fn advice(better: Option<TreeDesign>) -> Advice {
    let better = better.map(|design| Better {
        design,
        then: Prediction::default(),
        gain: 0.5,
        written_bytes: 1,
        seconds: 1.0,
        break_even_s: 1.0,
    });
    Advice {
        workload: Workload::default(),
        uncertainty: 0.0,
        in_force: design(LEVELING, 10.0),
        now: None,
        better,
        reason: "made up".into(),
    }
}

/// Runs windows of two seconds in which `better` is the better design; returns the times of the
/// moves, in seconds.
fn run(tuner: &mut Tuner, from_s: u64, seconds: u64, better: impl Fn(u64) -> Option<TreeDesign>) -> Vec<u64> {
    let mut moves = Vec::new();
    for at_s in (from_s..from_s + seconds).step_by(2) {
        let now_us = at_s * 1_000_000;
        if let Decision::Move(_) = tuner.decide(&advice(better(at_s)), false, now_us) {
            tuner.moved(Workload::default(), now_us);
            moves.push(at_s);
        }
    }
    moves
}

#[test]
fn a_design_must_be_better_for_some_windows_running() {
    let mut tuner = Tuner::default();
    let tiering = Some(design(TIERING, 6.0));
    assert_eq!(run(&mut tuner, 0, 4, |_| tiering), [0; 0]);
    assert_eq!(run(&mut tuner, 4, 2, |_| None), [0; 0], "one window without begins anew");
    assert_eq!(run(&mut tuner, 6, 6, |_| tiering), [10], "the third window moves");
    // A nearly equal design counts as the same; another one does not.
    let mut tuner = Tuner::default();
    assert_eq!(run(&mut tuner, 0, 6, |at_s| Some(design(TIERING, 6.0 + at_s as f64 / 10.0))), [4]);
    let mut tuner = Tuner::default();
    let swinging = |at_s| Some(design(if at_s % 4 == 0 { TIERING } else { LEVELING }, 4.0));
    assert_eq!(run(&mut tuner, 0, 60, swinging), [0; 0], "what changes with every window is no workload");
}

#[test]
fn a_move_that_is_not_done_is_waited_for() {
    let mut tuner = Tuner::default();
    let tiering = advice(Some(design(TIERING, 6.0)));
    for window in 0..10 {
        let decision = tuner.decide(&tiering, true, window * 2_000_000);
        assert!(matches!(decision, Decision::Wait(_)), "{decision:?}");
    }
    assert!(matches!(tuner.decide(&tiering, false, 20_000_000), Decision::Move(_)));
    assert_eq!(tuner.decide(&advice(None), false, 22_000_000), Decision::Stay);
    assert_eq!(tuner.favourite(), None);
}

#[test]
fn second_thoughts_must_save_much() {
    let mut tuner = Tuner::default();
    assert_eq!(run(&mut tuner, 0, 6, |_| Some(design(TIERING, 4.0))), [4]);
    let mut little = advice(Some(design(TIERING, 10.0)));
    little.better.as_mut().unwrap().gain = 0.2;
    let waits = |tuner: &mut Tuner, at_s: u64| {
        matches!(tuner.decide(&little, false, at_s * 1_000_000), Decision::Wait(_))
    };
    assert!((6..4 + SOON_S).step_by(2).all(|at_s| waits(&mut tuner, at_s)));
    assert!(!waits(&mut tuner, 4 + SOON_S));
}

#[test]
fn another_workload_is_no_second_thought() {
    let mut tuner = Tuner::default();
    let written = Workload { seconds: 2.0, puts: 1_000.0, ..Workload::default() };
    tuner.moved(written, 0);
    let waits_for = |tuner: &mut Tuner, found_lookups, at_s: u64| {
        let mut little = advice(Some(design(LEVELING, 32.0)));
        little.workload = Workload { found_lookups, ..written };
        little.better.as_mut().unwrap().gain = 0.12;
        let decisions = [0, 2, 4].map(|s| tuner.decide(&little, false, (at_s + s) * 1_000_000));
        matches!(&decisions[2], Decision::Wait(_))
    };
    assert!(waits_for(&mut tuner, 300.0, 60), "a quarter of lookups is not another workload");
    assert!(!waits_for(&mut tuner, 600.0, 70));
    assert!(waits_for(&mut tuner, 600.0, 10), "the distance is kept all the same");
}

#[test]
fn a_workload_that_swings_makes_the_tuner_slower_not_busier() {
    let mut tuner = Tuner::default();
    // The other design is better every 20 seconds, for an hour.
    let swinging =
        |at_s: u64| Some(design(if (at_s / 20).is_multiple_of(2) { TIERING } else { LEVELING }, 4.0));
    let moves = run(&mut tuner, 0, 3_600, swinging);
    let distances: Vec<u64> = moves.array_windows().map(|[a, b]| b - a).collect();
    assert!(distances.iter().all(|distance| *distance >= DISTANCE_S), "{moves:?}");
    assert!(distances.iter().take(4).is_sorted(), "each is further away: {moves:?}");
    for window in moves.windows(RECENT_MAX + 1) {
        assert!(window[RECENT_MAX] - window[0] > RECENT_S, "{moves:?}");
    }
    assert!(moves.len() <= 40, "{} moves in an hour", moves.len());
    // Four phases of two minutes each, as different as possible: one early move in each.
    let mut tuner = Tuner::default();
    let phases =
        |at_s: u64| Some(design(if (at_s / 120).is_multiple_of(2) { TIERING } else { LEVELING }, 4.0));
    let moves: Vec<u64> = (0..4).flat_map(|phase| run(&mut tuner, phase * 120, 12, phases)).collect();
    assert_eq!(moves, [4, 124, 244, 364]);
}

#[test]
fn an_advice_stands_while_the_workload_is_the_same() {
    let workload =
        |puts, found_lookups| Workload { seconds: 2.0, puts, found_lookups, ..Workload::default() };
    let mut tuner = Tuner::default();
    assert!(!tuner.is_known(&workload(100.0, 900.0)));
    let known = (0..20).filter(|_| tuner.is_known(&workload(2_100.0, 18_500.0))).count();
    assert_eq!(known, 16, "but for every {SAME_WINDOWS} windows: the data may have grown");
    assert!(!tuner.is_known(&workload(300.0, 900.0)));
    tuner.streak = Some((design(TIERING, 4.0), 1));
    assert!(!tuner.is_known(&workload(300.0, 900.0)), "what is about to be decided is looked at each time");
    assert!(!tuner.is_known(&Workload::default()));
}

#[test]
fn what_people_said_counts() {
    let entry = |by, unix_ms| Redesigned {
        unix_ms,
        by,
        from: design(TIERING, 4.0),
        to: design(LEVELING, 10.0),
        reason: String::new(),
    };
    use RedesignedBy::{Caller, Follow, Tuner, Undo};
    assert!(!is_overruled(&[entry(Tuner, 0), entry(Undo, 1_000)], 2_000));
    assert!(is_overruled(&[entry(Caller, 0), entry(Tuner, 1)], 2_000));
    assert!(!is_overruled(&[entry(Caller, 0)], OVERRULED_MS));
    assert!(!is_overruled(&[entry(Caller, 0), entry(Undo, 1)], 2_000), "what was asked for was undone");
    assert!(!is_overruled(&[entry(Follow, 0)], 2_000), "who follows advice agrees with it");
    assert!(!is_overruled(&[entry(Caller, 0), entry(Follow, 1)], 2_000), "the last word counts");
    assert!(is_overruled(&[entry(Follow, 0), entry(Caller, 1)], 2_000));
    assert!(!is_overruled(&[], 0));
    assert!(!is_overruled(&[entry(Caller, 3_000)], 2_000), "the clock was ahead");
}
