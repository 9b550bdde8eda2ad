//! A database without failures that shares a memory budget with one that meets them, and works
//! before each of its steps.
//!
//! It has a disk of its own, and is compared with its own oracle after each operation. Everything
//! is deterministic. Not here: real threads ([`crate::shared`]).

use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, MergePolicy};

use super::{Fault, Seen, Step, run_with_neighbour};
use crate::ops::{Generator, KeyShape, Op};
use crate::runner::{Runner, caught};
use crate::shared::{FLOOR_BYTES, Shares};
use crate::tally::Tally;
use crate::vectors::Vector;

/// Operations before each step of the other database.
const OPERATIONS: usize = 2;
/// Operations between two looks at the memory of both.
const LOOK_EACH: usize = 5 * OPERATIONS;
/// Operations in all, more than a script of faults needs.
const OPERATIONS_MAX: usize = 600;

/// The database, and the shares of both.
pub(super) struct Neighbour {
    pub shares: Shares,
    runner: Runner,
    ops: std::vec::IntoIter<Op>,
}

impl Neighbour {
    /// Opens it. There is memory for three databases: a checkpoint is opened with the shares, too.
    fn new(seed: u64) -> Result<Self, String> {
        let shares = Shares::new(3 * FLOOR_BYTES + (seed % 3) * (FLOOR_BYTES / 2), 1);
        let env = Env::deterministic(Arc::new(MemFs::new()), seed);
        let runner = Runner::new_in(Vector::plain(MergePolicy::Leveling), env, seed, Some(shares.clone()))?;
        let shape = KeyShape { universe: 60, value_bytes: 60, huge_one_in: 500 };
        let ops = Generator::new(seed, shape).ops(OPERATIONS_MAX).into_iter();
        Ok(Self { shares, runner, ops })
    }

    /// Does the next operations. `other` is the other database, if it is open.
    pub fn work(&mut self, other: Option<&Db>) -> Result<(), String> {
        for _ in 0..OPERATIONS {
            let op = self
                .ops
                .next()
                .ok_or("the script of faults is longer than the operations of its neighbour")?;
            self.runner.apply(&op).map_err(|error| format!("the other database, {op:?}: {error}"))?;
        }
        self.shares.expect_databases(1 + usize::from(other.is_some()))?;
        // The report of memory asks the operating system, too.
        if !self.ops.len().is_multiple_of(LOOK_EACH) {
            return Ok(());
        }
        self.shares.expect_within_budget(other.into_iter().chain([&self.runner.spaces()?.db]))
    }

    /// Checks that the other database has returned what it had, and compares everything.
    fn finish(self) -> Result<Tally, String> {
        self.shares.expect_all_returned(&self.runner.spaces()?.db)?;
        self.runner.finish()
    }
}

/// Runs the script with a fault in one of two databases that share memory and threads. Returns also
/// the counts of the other one.
///
/// # Errors
/// The violation, with the fault.
pub fn checked_with_neighbour(
    vector: &Vector,
    steps: &[Step],
    fault: Fault,
    seed: u64,
) -> Result<(Seen, Tally), String> {
    let checked = caught(|| {
        let mut neighbour = Neighbour::new(seed)?;
        let seen = run_with_neighbour(vector, steps, &[fault], Some(&mut neighbour))?;
        Ok((seen, neighbour.finish()?))
    });
    checked.map_err(|error| format!("{fault:?}, neighbour of seed {seed}: {error}"))
}
