//! Targets by example, and their properties over random inputs.

use super::super::tests::Dice;
use super::*;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 128 * MIB;
const FLOOR: u64 = 4 * MIB;

fn database(id: u64) -> Database {
    Database { id, floor_bytes: FLOOR, ..Database::default() }
}

fn inputs<'a>(databases: &'a [Database], last: Option<&'a Window>) -> Inputs<'a> {
    Inputs { budget_bytes: BUDGET, newcomer_bytes: FLOOR, databases, last }
}

/// Runs windows on constant inputs, in which every database holds its target, until the targets
/// have not changed for three windows. Returns the number of windows before that.
fn settle(databases: &mut [Database], held: bool) -> u64 {
    let (mut last, mut unchanged, mut windows) = (None, 0, 0);
    while unchanged < 3 {
        let division = divide(&inputs(databases, last.as_ref()));
        assert_eq!(division.outcome, Outcome::Divided);
        let is_same = databases.iter().zip(&division.bytes).all(|(of, bytes)| of.share_bytes == Some(*bytes));
        unchanged = if is_same { unchanged + 1 } else { 0 };
        for (of, bytes) in databases.iter_mut().zip(&division.bytes) {
            of.share_bytes = Some(*bytes);
            of.held_bytes = if held { *bytes } else { of.held_bytes };
        }
        last = Some(division.window);
        windows += 1;
        assert!(windows < 10_000, "the targets never settle: {databases:?}");
    }
    windows - 3
}

#[test]
fn targets_never_exceed_the_budget_and_floors_hold() {
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let count = dice.below(6);
        let mut databases: Vec<Database> = (0..count)
            .map(|id| Database {
                id,
                floor_bytes: dice.bytes() / [1, 64][dice.below(2) as usize],
                share_bytes: (dice.below(3) > 0).then(|| dice.bytes()),
                held_bytes: dice.bytes(),
                demand_bytes: dice.bytes(),
                gain_per_byte: dice.value(),
                loss_per_byte: dice.value(),
            })
            .collect();
        let budget_bytes = dice.bytes();
        let (newcomer_bytes, mut last) = (dice.bytes(), None);
        for _ in 0..4 {
            let inputs = Inputs { budget_bytes, newcomer_bytes, databases: &databases, last: last.as_ref() };
            let division = divide(&inputs);
            assert_eq!(division, divide(&inputs), "seed {seed}: the same inputs");
            let sum = division.bytes.iter().map(|bytes| u128::from(*bytes)).sum::<u128>();
            assert!(sum <= budget_bytes.into(), "seed {seed}: {division:?} of {budget_bytes}");
            let floors = databases.iter().map(|of| u128::from(of.floor_bytes)).sum::<u128>();
            match division.outcome {
                Outcome::Divided => {
                    assert!(floors <= budget_bytes.into(), "seed {seed}");
                    for (of, bytes) in databases.iter().zip(&division.bytes) {
                        assert!(*bytes >= of.floor_bytes, "seed {seed}: {bytes} of {of:?}");
                    }
                }
                Outcome::FloorsExceedBudget { missing_bytes } => {
                    assert!(missing_bytes > 0 && floors > budget_bytes.into(), "seed {seed}");
                }
            }
            for (of, bytes) in databases.iter_mut().zip(&division.bytes) {
                of.share_bytes = Some(*bytes);
                of.held_bytes = [*bytes, of.held_bytes][dice.below(2) as usize];
            }
            last = Some(division.window);
        }
    }
}

#[test]
fn floors_above_the_budget_are_an_outcome_that_names_what_is_missing() {
    let databases: Vec<Database> = (0..33).map(database).collect();
    let division = divide(&inputs(&databases, None));
    assert_eq!(division.outcome, Outcome::FloorsExceedBudget { missing_bytes: FLOOR });
    assert_eq!(division.bytes[31..], [FLOOR, 0], "the first ones keep their floors");
    assert_eq!(divide(&inputs(&databases[..32], None)).outcome, Outcome::Divided);
    assert_eq!(divide(&inputs(&[], None)).bytes, [0; 0]);
}

#[test]
fn databases_with_equal_inputs_get_equal_targets_in_every_window() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut databases: Vec<Database> = (0..6).map(database).collect();
        for pair in databases.chunks_mut(2) {
            let (gain_per_byte, loss_per_byte) = (dice.value(), dice.value());
            let (demand_bytes, share_bytes) = (dice.below(BUDGET / 4), dice.below(BUDGET / 8));
            for of in pair {
                *of = Database { gain_per_byte, loss_per_byte, demand_bytes, ..*of };
                of.share_bytes = Some(share_bytes);
            }
        }
        let mut last = None;
        for window in 0..60 {
            let division = divide(&inputs(&databases, last.as_ref()));
            for pair in division.bytes.chunks(2) {
                assert_eq!(pair[0], pair[1], "seed {seed}, window {window}: {division:?}");
            }
            for (of, bytes) in databases.iter_mut().zip(&division.bytes) {
                (of.share_bytes, of.held_bytes) = (Some(*bytes), *bytes);
            }
            last = Some(division.window);
        }
    }
}

#[test]
fn constant_inputs_settle_within_the_stated_windows_and_then_nothing_moves() {
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(7);
        let mut databases: Vec<Database> = (0..count)
            .map(|id| Database {
                share_bytes: (dice.below(4) > 0).then(|| dice.below(BUDGET)),
                demand_bytes: dice.below(BUDGET / 4) * dice.below(2),
                gain_per_byte: dice.value(),
                loss_per_byte: dice.value(),
                ..database(id)
            })
            .collect();
        let windows = settle(&mut databases, true);
        assert!(windows <= convergence_windows(databases.len()), "seed {seed}: {windows} windows");
        // A step of the inputs is followed as fast.
        databases.iter_mut().for_each(|of| of.gain_per_byte = dice.share() * 10.0);
        let windows = settle(&mut databases, true);
        assert!(windows <= convergence_windows(databases.len()), "seed {seed}: {windows} windows");
    }
}

#[test]
fn memory_does_not_return_where_savings_diminish() {
    // The next byte saves `worth / bytes`.
    let worth = [9e8, 3e8, 0.0];
    let mut databases: Vec<Database> = (0..3).map(database).collect();
    let (mut last, mut trail) = (None, Vec::new());
    for _ in 0..400 {
        let division = divide(&inputs(&databases, last.as_ref()));
        for ((of, bytes), worth) in databases.iter_mut().zip(&division.bytes).zip(worth) {
            (of.share_bytes, of.held_bytes) = (Some(*bytes), *bytes);
            let step = step_bytes(BUDGET) as f64;
            of.gain_per_byte = worth / (*bytes as f64 + step);
            of.loss_per_byte = worth / (*bytes as f64).max(1.0);
        }
        last = Some(division.window);
        trail.push(division.bytes);
    }
    let end = &trail[399];
    assert_eq!(trail[300], *end, "it settles");
    assert!(end[0] > end[1] && end[1] > end[2] && end[2] == FLOOR, "{end:?}");
    // What a database has only rises to its maximum, or only falls from it, but for rounding.
    for at in 0..3 {
        let turns = trail.windows(3).filter(|three| {
            let (before, now, after) = (three[0][at], three[1][at], three[2][at]);
            (now > before + 8 && after + 8 < now) || (now + 8 < before && after > now + 8)
        });
        assert_eq!(turns.count(), 0, "database {at} goes to and fro");
    }
}

#[test]
fn a_newcomer_gets_an_equal_part_and_one_that_leaves_returns_its_own() {
    let mut databases = vec![database(1)];
    settle(&mut databases, true);
    assert_eq!(databases[0].share_bytes, Some(BUDGET - FLOOR), "all but what the next one needs");
    databases.push(database(2));
    databases.push(database(3));
    settle(&mut databases, true);
    let part = (BUDGET - FLOOR) / 3;
    assert!(databases.iter().all(|of| of.share_bytes.is_some_and(|bytes| bytes.abs_diff(part) <= 3)));
    databases.remove(1);
    settle(&mut databases, true);
    let part = (BUDGET - FLOOR) / 2;
    assert!(databases.iter().all(|of| of.share_bytes.is_some_and(|bytes| bytes.abs_diff(part) <= 3)));
}

#[test]
fn writes_get_an_equal_part_and_return_it_when_they_end() {
    let mut databases = vec![Database { gain_per_byte: 5.0, loss_per_byte: 5.0, ..database(1) }, database(2)];
    settle(&mut databases, true);
    assert_eq!(databases[1].share_bytes, Some(FLOOR), "the other one has use for the rest");
    databases[1].demand_bytes = u64::MAX;
    let part = (BUDGET - 3 * FLOOR) / 2;
    let division = divide(&inputs(&databases, None));
    assert_eq!(division.bytes[1], FLOOR + part, "at once");
    settle(&mut databases, true);
    assert_eq!(databases[1].share_bytes, Some(FLOOR + part));
    databases[1].demand_bytes = 0;
    settle(&mut databases, true);
    assert_eq!(databases[1].share_bytes, Some(FLOOR));
}

#[test]
fn a_database_that_does_not_fill_its_share_gets_no_more() {
    let mut databases = vec![database(1), Database { gain_per_byte: 5.0, ..database(2) }];
    databases.iter_mut().for_each(|of| of.share_bytes = Some((BUDGET - FLOOR) / 2));
    databases[1].held_bytes = MIB;
    assert_eq!(settle(&mut databases, false), 0);
    databases[1].held_bytes = BUDGET;
    settle(&mut databases, false);
    assert_eq!(databases[0].share_bytes, Some(FLOOR));
}
