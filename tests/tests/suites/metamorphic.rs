//! Suite B: one script, many ways to run it, one outcome.
//!
//! A script runs under eight option vectors, and each time it is rewritten in ways that must not
//! change the outcome. Batches are split into single writes, keys that nothing else uses are put
//! and deleted again, and flushes, compactions, reopens and verifications are inserted anywhere.
//! Every answer is compared with the oracle's, and the final contents of all runs with one another.
//!
//! Deterministic; `SHAMBA_SEED` selects another run, `SHAMBA_VECTOR` runs one script alone,
//! `SHAMBA_METAMORPHIC_OPS` makes scripts longer. Not here: shrinking, which suite A does for any
//! failure of one vector.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::MemFs;
use shamba_tests::ops::{Generator, KeyShape, Op};
use shamba_tests::oracle::{Change, fingerprint};
use shamba_tests::pool;
use shamba_tests::runner::{HOME, Runner, caught};
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const SCRIPTS: usize = 60;
const VECTORS: usize = 8;
/// Operations of a script before it is rewritten.
const OPERATIONS: u64 = 320;
const TEST: &str = "metamorphic::scripts_end_alike_however_they_are_run";

/// A script that loses no write: it is never killed.
fn script(seed: u64, count: usize) -> Vec<Op> {
    let shape = KeyShape { universe: 300, value_bytes: 60, huge_one_in: 2_000 };
    let kept = |op| match op {
        Op::Reopen { change_options, .. } => Op::Reopen { clean: true, change_options },
        op => op,
    };
    Generator::new(seed, shape).passing_time().ops(count).into_iter().map(kept).collect()
}

/// An equivalent script.
fn rewritten(ops: &[Op], seed: u64, tally: &mut Tally) -> Vec<Op> {
    let mut rng = Rng::with_seed(seed);
    let mut out = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Batch { changes, sync: false } if rng.bool() => {
                tally.add("batches cut", 1);
                out.extend(changes.iter().cloned().map(Op::Write));
            }
            op => out.push(op.clone()),
        }
        let key = || format!("~nobody's/{at}").into_bytes();
        match rng.u32(..400) {
            0..8 => out.push(Op::Flush),
            8 => out.push(Op::Compact),
            9 => {
                let span = (Bound::Included(b"b".to_vec()), Bound::Excluded(b"t".to_vec()));
                out.push(Op::CompactRange { space: rng.usize(..2), span });
            }
            10..14 => out.push(Op::Reopen { clean: true, change_options: rng.bool() }),
            14..18 => out.push(Op::WaitIdle),
            18 => out.push(Op::Verify),
            19..40 => {
                tally.add("keys put and deleted", 1);
                let space = rng.usize(..2);
                out.push(Op::Write(Change::Put { space, key: key(), value: b"gone soon".to_vec() }));
                if rng.bool() {
                    out.push(Op::Flush);
                }
                out.push(Op::Write(Change::Delete { space, key: key() }));
                continue;
            }
            _ => continue,
        }
        tally.add("calls put in", 1);
    }
    out
}

/// Runs a script under a vector; returns the fingerprint of the final state.
fn outcome(vector: &Vector, seed: u64, ops: &[Op], tally: &mut Tally) -> Result<u64, String> {
    caught(|| {
        let mut runner = Runner::new(vector.clone(), Arc::new(MemFs::new()), seed)?.passing_time();
        for (at, op) in ops.iter().enumerate() {
            runner.apply(op).map_err(|error| format!("operation {at}, {op:?}: {error}"))?;
        }
        runner.compare_all()?;
        let dump =
            runner.spaces()?.dump().map_err(|error| format!("{}: {error}", Path::new(HOME).display()))?;
        tally.merge(&runner.finish()?);
        Ok(fingerprint(&dump))
    })
}

fn case(base: u64, number: usize) -> Result<Tally, String> {
    let rerun = Rerun { test: TEST, seed: base, vector: number };
    let count = seed::number("SHAMBA_METAMORPHIC_OPS").unwrap_or(OPERATIONS);
    let ops = script(mixed(base, number as u64), count as usize);
    let mut tally = Tally::default();
    let mut first = None;
    for run in 0..VECTORS {
        let index = number * VECTORS + run;
        let seed = mixed(base, index as u64 + 1_000_000);
        let vector = Vector::numbered(base, index);
        let ops = if run == 0 { ops.clone() } else { rewritten(&ops, seed, &mut tally) };
        let said = |error| format!("script {number} under vector {index}: {error}\n  rerun: {rerun}");
        let found = outcome(&vector, seed, &ops, &mut tally).map_err(said)?;
        let expected = *first.get_or_insert(found);
        if found != expected {
            return Err(said(format!(
                "the end is another than under vector {}: {vector:?}",
                number * VECTORS
            )));
        }
        tally.add("runs", 1);
    }
    Ok(tally)
}

#[test]
fn scripts_end_alike_however_they_are_run() {
    let base = seed::base(0x3e7a);
    if let Some(number) = seed::only_vector() {
        case(base, number).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let tallies = pool::run(SCRIPTS, |number| case(base, number)).unwrap_or_else(|error| panic!("{error}"));
    let total = Tally::sum(&tallies);
    total.tell("metamorphic", &format!("suite B, seed {base}: {SCRIPTS} scripts"));
    total.require(&[
        ("runs", (SCRIPTS * VECTORS) as u64),
        ("operations", SCRIPTS as u64 * VECTORS as u64 * OPERATIONS),
        ("batches cut", 1_000),
        ("keys put and deleted", 4_000),
        ("calls put in", 5_000),
        ("compactions, leveling", 3_000),
        ("compactions, tiering", 3_000),
        ("compactions, lazy-leveling", 3_000),
        ("compactions, other (K, Z)", 3_000),
        ("range deletes", 3_000),
        ("redesigns", 300),
        ("ticks", 3_000),
        ("reopens, clean", 1_000),
        ("bytes of values in value files", 1_000_000),
        ("snapshot reads", 1_000),
    ]);
}
