//! Suites C and D with compaction filters and FIFO keyspaces: the lives of [`shamba_tests::rules`],
//! crashed at points of their whole length, and with a failing call.
//!
//! After a crash a value is as it was written or as the filter leaves it, and never the first once
//! the second was seen. Data that was seen to be dropped stays so, and everything that is gone is
//! older than everything that is there. Time passes in a life and after its crash, so that data
//! goes for its age, and not before. Snapshots keep what they saw.

use fastrand::Rng;
use shamba::env::{Effect, FaultRule};
use shamba_tests::brief::is_brief;
use shamba_tests::pool;
use shamba_tests::rules::{Life, Plan};
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::tally::Tally;

/// Each policy with each limit and kind of promise.
const LIVES: usize = 12;
const OPS: usize = 140;
/// Approximate number of crashes of a life; `SHAMBA_RULE_IMAGES` sets another.
const IMAGES: u64 = 240;
/// Number of lives with a failing call.
const FAULTS: usize = 160;
/// Approximate number of calls of such a life.
const CALLS: u64 = 420;

/// Runs all cases, or the one that the environment names.
fn all(test: &str, base: u64, count: usize, case: impl Fn(usize) -> Result<Tally, String> + Sync) -> Tally {
    let only = seed::only_vector();
    let tallies = pool::run(only.map_or(count, |_| 1), |number| {
        let index = only.unwrap_or(number);
        case(index).map_err(|error| {
            format!("case {index}: {error}\n  rerun: {}", Rerun { test, seed: base, vector: index })
        })
    });
    Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn crashes_undo_no_verdict_of_a_filter_and_no_drop() {
    let base = seed::base(0xf1f0);
    let images = seed::number("SHAMBA_RULE_IMAGES").unwrap_or(IMAGES) as usize;
    let (lives, images) = if is_brief() { (6, images / 3) } else { (LIVES, images) };
    let test = "crash_rules::crashes_undo_no_verdict_of_a_filter_and_no_drop";
    let total = all(test, base, lives, |index| {
        let life = Life::record(Plan { seed: base, index, ops: OPS }, None)?;
        let mut tally = life.explore(images)?;
        let (reads, shortened) = life.snapshot_reads();
        tally.add("snapshots read again", reads);
        tally.add("snapshots that had lost due data", shortened);
        Ok(tally)
    });
    total.tell("crash-rules", &format!("suite C with filters and FIFO keyspaces, seed {base}"));
    if is_brief() || seed::only_vector().is_some() {
        return;
    }
    total.require(&[
        ("distinct images", 1_500),
        ("images with data", 1_000),
        ("disks cut again", 300),
        ("crashes after a value was seen filtered", 1_000),
        ("crashes after data was seen to be dropped", 1_000),
        ("snapshots read again", 500),
    ]);
}

#[test]
fn failing_calls_undo_no_verdict_of_a_filter_and_no_drop() {
    let base = seed::base(0xf1f1);
    let faults = if is_brief() { FAULTS / 4 } else { FAULTS };
    let test = "crash_rules::failing_calls_undo_no_verdict_of_a_filter_and_no_drop";
    let total = all(test, base, faults, |index| {
        let mut rng = Rng::with_seed(mixed(base, index as u64));
        let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile];
        let rule = FaultRule::nth(rng.u64(..CALLS), effects[rng.usize(..effects.len())]);
        let rule = if rng.u8(..3) == 0 { rule.sticky() } else { rule };
        let life = Life::record(Plan { seed: base, index: index % LIVES, ops: OPS / 2 }, Some(rule))?;
        let mut tally = life.explore_end(4)?;
        tally.add("lives with a fault", u64::from(life.faults() > 0));
        Ok(tally)
    });
    total.tell("fault-rules", &format!("suite D with filters and FIFO keyspaces, seed {base}"));
    if is_brief() || seed::only_vector().is_some() {
        return;
    }
    total.require(&[("lives with a fault", FAULTS as u64 / 2), ("distinct images", 300)]);
}
