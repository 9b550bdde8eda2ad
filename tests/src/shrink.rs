//! Shrinking: the shortest list of operations that still fails, by delta debugging.
//!
//! First everything after the failure is removed, then ever smaller pieces as long as a failure of
//! any kind remains. The number of runs is bounded, so a failure in CI is reported soon.

use crate::ops::Op;
use crate::runner::{Failure, run};
use crate::vectors::Vector;

/// Maximum number of runs of one shrink.
const RUNS_MAX: usize = 400;

/// The shortest failing list found, and its failure.
pub fn shrink(vector: &Vector, seed: u64, ops: &[Op], failure: Failure) -> (Vec<Op>, Failure) {
    let mut best = ops[..ops.len().min(failure.at + 1)].to_vec();
    let mut last = failure;
    if let Err(failure) = run(vector, seed, &best) {
        last = failure;
    } else {
        // The failure occurs only in the comparison at the end: keep all operations.
        best = ops.to_vec();
    }
    let mut runs = 0;
    let mut piece = best.len().div_ceil(2);
    while piece > 0 && runs < RUNS_MAX {
        let (mut start, mut shorter) = (0, false);
        while start < best.len() && runs < RUNS_MAX {
            let end = (start + piece).min(best.len());
            let candidate = [&best[..start], &best[end..]].concat();
            runs += 1;
            match run(vector, seed, &candidate) {
                Err(failure) => (best, last, shorter) = (candidate, failure, true),
                Ok(_) => start = end,
            }
        }
        if !shorter || piece > best.len() {
            piece /= 2;
        }
    }
    (best, last)
}

/// The report of a failure: the shrunk operations, one per line, and the vector.
pub fn report(vector: &Vector, seed: u64, ops: &[Op], failure: Failure) -> String {
    let before = failure.message.clone();
    let (ops, failure) = shrink(vector, seed, ops, failure);
    let list = ops.iter().map(|op| format!("    {op:?}\n")).collect::<String>();
    format!("{before}\n  shrunk to {} operations: {}\n{list}  {vector:?}", ops.len(), failure.message)
}
