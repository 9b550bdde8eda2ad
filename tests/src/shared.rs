//! Databases that share the threads of a pool and a memory budget.
//!
//! [`Shares`] is the pool and the budget, with checks of both. In a [`Life`] with real threads one
//! of two such databases meets failures.
//!
//! Not here: runs without failures, compared with the oracle ([`crate::runner`]); failures of each
//! call in turn, without threads ([`crate::fault`]).

mod life;

use shamba::{Budget, Builder, Db, Workers};

pub use self::life::{Ending, Life, Trouble};

use crate::compare::failed;

/// Memory of the budget that each database needs at least.
pub const FLOOR_BYTES: u64 = 4 << 20;

/// Threads and memory that several databases share.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The memory.
    pub budget: Budget,
    /// The threads; not used in an environment without threads.
    pub workers: Workers,
}

impl Shares {
    /// A budget of this number of bytes, and a pool with this number of compaction threads.
    pub fn new(budget_bytes: u64, compaction_threads: usize) -> Self {
        Self { budget: Budget::new(budget_bytes), workers: Workers::new(compaction_threads) }
    }

    /// Gives them to a database.
    pub fn give(&self, builder: Builder) -> Builder {
        builder.budget(&self.budget).workers(&self.workers)
    }

    /// Checks that the budget has this number of databases.
    ///
    /// # Errors
    /// The number that it has.
    pub fn expect_databases(&self, count: usize) -> Result<(), String> {
        match self.budget.databases() {
            found if found == count => Ok(()),
            found => Err(format!("the budget has {found} databases, {count} are open")),
        }
    }

    /// Checks that these databases may not hold more than the budget together. Exact only while
    /// none of them works.
    ///
    /// # Errors
    /// The bytes.
    pub fn expect_within_budget<'a>(
        &self,
        databases: impl IntoIterator<Item = &'a Db>,
    ) -> Result<(), String> {
        let memory = databases.into_iter().map(Db::memory).collect::<Vec<_>>();
        let allowed_bytes: u64 = memory.iter().map(|of| of.budget_bytes).sum();
        let held_bytes: u64 = memory.iter().map(|of| of.ledger_bytes).sum();
        match allowed_bytes.max(held_bytes) > self.budget.bytes() {
            false => Ok(()),
            true => Err(format!(
                "{} databases may hold {allowed_bytes} bytes and hold {held_bytes}, the budget is {}",
                memory.len(),
                self.budget.bytes()
            )),
        }
    }

    /// Checks that a database has all memory but that which is kept for the next one, as the others
    /// have returned theirs. Only for an environment without threads.
    ///
    /// # Errors
    /// The memory that it has.
    pub fn expect_all_returned(&self, db: &Db) -> Result<(), String> {
        self.expect_databases(1)?;
        db.wait_idle().map_err(failed("wait_idle"))?;
        let memory = db.memory();
        match memory.budget_bytes == self.budget.bytes() - FLOOR_BYTES {
            true => Ok(()),
            false => {
                Err(format!("the only database has {} bytes of {}", memory.budget_bytes, self.budget.bytes()))
            }
        }
    }
}
