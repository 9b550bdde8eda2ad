//! Suite A: a million random operations against the oracle, over many option vectors.
//!
//! Deterministic: the same seed runs the same operations. `SHAMBA_SEED` selects another run,
//! `SHAMBA_VECTOR` runs one vector alone.

use shamba_tests::brief::is_brief;
use shamba_tests::ops::{Generator, KeyShape};
use shamba_tests::seed::{self, Rerun, mixed};
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
