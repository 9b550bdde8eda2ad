//! Suite A: a million random operations against the oracle, over many option vectors.
//!
//! Deterministic: the same seed runs the same operations. `SHAMBA_SEED` selects another run,
//! `SHAMBA_VECTOR` runs one vector alone.
//!
//! Pairs of databases share a memory budget and worker threads. Without threads they take turns,
//! which is deterministic too; with threads both work at the same time.

use std::sync::Arc;

use shamba::env::{Env, MemFs, SeededRng, SimFs};
use shamba_tests::brief::is_brief;
use shamba_tests::ops::{Generator, KeyShape, Op};
use shamba_tests::runner::{Runner, caught};
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::shared::{FLOOR_BYTES, Shares};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;
use shamba_tests::{fifo, filters, pool, runner, shrink};

const VECTORS: usize = 504;
const OPERATIONS: usize = 2_100;
const TEST: &str = "model::operations_against_the_oracle";

fn case(base: u64, index: usize) -> Result<Tally, String> {
    let mut vector = Vector::numbered(base, index);
    // What a drop may lose would be another state before and after a verdict, for example.
    if vector.survives_kill() {
        // Not by `index % 5`: all of these vectors would have the same other options.
        match (index + index / 5) % 5 {
            1 => vector.follows_unsynced = Some((index / 5).is_multiple_of(2)),
            2 => vector.is_filtered = true,
            4 => vector.fifo = Some(fifo::limits(index / 5)),
            _ => {}
        }
    }
    let seed = mixed(base, index as u64 + 1_000_000);
    let shape = KeyShape {
        universe: [60, 200, 700, 1500][index / 3 % 4],
        value_bytes: [20, 60, 120, 200][index / 5 % 4],
        huge_one_in: 1_500,
    };
    let mut ops = Generator::new(seed, shape).passing_time().ops(OPERATIONS);
    if vector.is_filtered {
        ops.iter_mut().for_each(filters::suit);
    }
    if let Some(limits) = vector.fifo {
        fifo::suit(&mut ops, limits);
    }
    runner::run(&vector, seed, &ops).map_err(|failure| {
        let at = failure.at;
        // A brief run only has to detect a defect.
        let report = match is_brief() {
            true => failure.message,
            false => shrink::report(&vector, seed, &ops, failure),
        };
        let rerun = Rerun { test: TEST, seed: base, vector: index };
        format!("vector {index}, operation {at}: {report}\n  rerun: {rerun}")
    })
}

#[test]
fn operations_against_the_oracle() {
    let base = seed::base(0x5a_4a_3b_a1);
    if let Some(index) = seed::only_vector() {
        case(base, index).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    // 24 vectors include every option that cycles.
    let vectors = if is_brief() { 24 } else { VECTORS };
    let tallies = pool::run(vectors, |index| case(base, index)).unwrap_or_else(|error| panic!("{error}"));
    let mut total = Tally::default();
    for tally in &tallies {
        total.merge(tally);
    }
    total.add("vectors", tallies.len() as u64);
    total.tell("model", &format!("suite A, seed {base}"));
    if is_brief() {
        return;
    }
    total.require(&[
        ("operations", 1_000_000),
        ("flushes", 10_000),
        ("compactions, leveling", 1_000),
        ("compactions, tiering", 1_000),
        ("compactions, lazy-leveling", 1_000),
        ("compactions, other (K, Z)", 500),
        ("max deepest level", 4),
        ("range deletes", 10_000),
        ("merges, combined", 100_000),
        ("merges, apart", 100_000),
        ("transactions", 5_000),
        ("transactions refused", 500),
        ("ticks", 10_000),
        ("ends of lives looked at", 10_000),
        ("lives set", 1_000),
        ("verdicts", 5_000),
        ("drops of the oldest writes", 400),
        ("replicas compared", 5_000),
        ("changes followed", 50_000),
        ("snapshots", 5_000),
        ("snapshot reads", 10_000),
        ("reopens, clean", 1_000),
        ("reopens, after a drop", 1_000),
        ("iterators revoked", 1_000),
        ("held iterators walked to their end", 100),
        ("scans, forward", 5_000),
        ("scans, backward", 5_000),
        ("scans, from both ends", 3_000),
        ("cursor walks", 10_000),
        ("runs left out by their prefixes", 2_000),
        ("checkpoints", 500),
        ("ingests", 1_000),
        ("answers of the record cache", 200_000),
        ("bytes of values in value files", 10_000_000),
        ("compactions with a dictionary", 100),
        ("keyspaces dropped", 200),
        ("redesigns", 1_000),
        ("commits lost by a drop", 1),
    ]);
}

/// Pairs of databases with the same shares: by turns, and with threads.
const PAIRS: usize = 32;
const PAIRS_ON_THREADS: usize = 16;
/// Operations of each database of a pair.
const OPERATIONS_OF_A_PAIR: usize = 500;
/// By turns, operations between two looks at the memory of both.
const LOOK_EACH: usize = 16;

/// The options and the operations of database `which` of a pair.
fn half(base: u64, pair: usize, which: usize) -> (Vector, u64, Vec<Op>) {
    let index = 2 * pair + which;
    let seed = mixed(base, index as u64 + 1_000_000);
    let shape = KeyShape { universe: [60, 400][index / 3 % 2], value_bytes: 100, huge_one_in: 300 };
    (Vector::numbered(base, index), seed, Generator::new(seed, shape).ops(OPERATIONS_OF_A_PAIR))
}

/// Runs a pair by turns, on disks that record their calls. Returns the counts, and hashes of the
/// calls.
fn by_turns(base: u64, pair: usize) -> Result<(Tally, [u64; 2]), String> {
    // The floors of both and of a checkpoint that is opened, or more.
    let shares = Shares::new([3, 4, 6, 12][pair % 4] * FLOOR_BYTES + pair as u64 * 1_000, 1);
    let disks = [SimFs::new(), SimFs::new()];
    let mut runners = Vec::new();
    let mut ops = Vec::new();
    for (which, disk) in disks.iter().enumerate() {
        let (mut vector, seed, of_half) = half(base, pair, which);
        vector.follows_unsynced = (vector.survives_kill() && pair % 3 == 1).then_some(which == 0);
        let env = Env::deterministic(Arc::new(disk.clone()), seed);
        runners.push(Runner::new_in(vector, env, seed, Some(shares.clone()))?);
        ops.push(of_half.into_iter());
    }
    let mut tally = Tally::default();
    let mut rng = fastrand::Rng::with_seed(mixed(base, pair as u64));
    for turn in 0.. {
        // One after the other, or several of one.
        let which = rng.usize(..2);
        let Some(op) = ops[which].next() else { break };
        runners[which]
            .apply(&op)
            .map_err(|error| format!("turn {turn}, database {which}, {op:?}: {error}"))?;
        shares.expect_databases(2)?;
        if turn % LOOK_EACH == 0 {
            let databases = [&runners[0].spaces()?.db, &runners[1].spaces()?.db];
            shares.expect_within_budget(databases).map_err(|error| format!("turn {turn}: {error}"))?;
            tally.add("looks at the memory of both", 1);
        }
    }
    // Whatever one of them held, each gets its part when both have worked.
    for runner in [0, 1, 0, 1] {
        runners[runner].spaces()?.db.wait_idle().map_err(|error| format!("wait_idle: {error}"))?;
    }
    for runner in &runners {
        let memory = runner.spaces()?.db.memory();
        if memory.budget_bytes != memory.budget_target_bytes {
            let (has, due) = (memory.budget_bytes, memory.budget_target_bytes);
            return Err(format!("a database may hold {has} bytes of the budget, its part is {due}"));
        }
    }
    let hashes = [disks[0].trace_hash(), disks[1].trace_hash()];
    while let Some(runner) = runners.pop() {
        tally.merge(&runner.finish()?);
        shares.expect_databases(runners.len())?;
        if let [last] = &runners[..] {
            shares.expect_all_returned(&last.spaces()?.db)?;
        }
    }
    tally.add("pairs", 1);
    Ok((tally, hashes))
}

#[test]
fn databases_that_share_take_turns() {
    const TEST: &str = "model::databases_that_share_take_turns";
    let base = seed::base(0x5a_4a_3b_a2);
    let case = |pair: usize| {
        let rerun = Rerun { test: TEST, seed: base, vector: pair };
        let failed = |error: String| format!("pair {pair}: {error}\n  rerun: {rerun}");
        let run = || caught(|| by_turns(base, pair)).map_err(failed);
        let (tally, calls) = run()?;
        if pair.is_multiple_of(8) && run()?.1 != calls {
            return Err(failed("the same seed made other calls".to_owned()));
        }
        Ok(tally)
    };
    if let Some(pair) = seed::only_vector() {
        case(pair).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let pairs = if is_brief() { 6 } else { PAIRS };
    let tallies = pool::run(pairs, case).unwrap_or_else(|error| panic!("{error}"));
    let total = Tally::sum(&tallies);
    total.tell("model-shared", &format!("suite A, pairs by turns, seed {base}"));
    if !is_brief() {
        total.require(&[
            ("pairs", PAIRS as u64),
            ("operations", 25_000),
            ("looks at the memory of both", 1_500),
            ("flushes", 1_000),
            ("reopens, clean", 50),
            ("reopens, after a drop", 50),
            ("checkpoints", 20),
            ("redesigns", 50),
            ("replicas compared", 100),
        ]);
    }
}

/// Runs a pair on a thread of each database, and the background work of both on those of a pool.
fn on_threads(base: u64, pair: usize) -> Result<Tally, String> {
    // A checkpoint of each may be open.
    let shares = Shares::new([4, 6][pair % 2] * FLOOR_BYTES, 1 + pair / 2 % 2);
    let run = |which| {
        let (vector, seed, ops) = half(base, pair, which);
        let env = Env { vfs: Arc::new(MemFs::new()), rng: Arc::new(SeededRng::new(seed)), ..Env::real() };
        let mut runner = Runner::new_in(vector, env, seed, Some(shares.clone()))?;
        for op in &ops {
            runner.apply(op).map_err(|error| format!("database {which}, {op:?}: {error}"))?;
        }
        runner.finish()
    };
    let [one, other] = std::thread::scope(|scope| {
        [0, 1].map(|which| scope.spawn(move || caught(|| run(which)))).map(|run| run.join())
    });
    let mut tally = one.expect("its panics are caught")?;
    tally.merge(&other.expect("its panics are caught")?);
    shares.expect_databases(0)?;
    tally.add("pairs", 1);
    Ok(tally)
}

#[test]
fn databases_that_share_work_at_the_same_time() {
    const TEST: &str = "model::databases_that_share_work_at_the_same_time";
    let base = seed::base(0x5a_4a_3b_a3);
    let case = |pair: usize| {
        let rerun = Rerun { test: TEST, seed: base, vector: pair };
        on_threads(base, pair).map_err(|error| format!("pair {pair}: {error}\n  rerun: {rerun}"))
    };
    if let Some(pair) = seed::only_vector() {
        case(pair).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let pairs = if is_brief() { 4 } else { PAIRS_ON_THREADS };
    let tallies = pool::run(pairs, case).unwrap_or_else(|error| panic!("{error}"));
    let total = Tally::sum(&tallies);
    total.tell("model-threads", &format!("suite A, pairs on threads, seed {base}"));
    if !is_brief() {
        total.require(&[
            ("pairs", PAIRS_ON_THREADS as u64),
            ("operations", 15_000),
            ("flushes", 300),
            ("reopens, clean", 15),
            ("reopens, after a drop", 15),
            ("checkpoints", 10),
            ("redesigns", 10),
        ]);
    }
}
