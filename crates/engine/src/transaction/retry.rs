//! [`Db::transact`]: runs a closure as a transaction, again after each conflict.
//!
//! Before each further attempt the thread waits for a random time below a bound that doubles from
//! attempt to attempt. So transactions that conflict with each other spread out, and one that
//! conflicts by chance loses little time.

use super::{Transaction, TransactionOptions};
use crate::database::Db;
use crate::error::{ErrorKind, Result};
use crate::metrics::WorkCounters;

/// Bounds of the random wait before the second attempt, and before late ones.
const WAIT_US: u64 = 20;
const WAIT_US_MAX: u64 = 20_000;
/// Number of times that the bound is doubled at most: beyond that it exceeds the greater one.
const WAIT_DOUBLED_MAX: u32 = 10;
const _: () = assert!(WAIT_US << WAIT_DOUBLED_MAX >= WAIT_US_MAX, "late waits reach the greater bound");

impl Db {
    /// Runs `body` as a transaction and commits it. After a conflict it begins again, up to
    /// [`TransactionOptions::attempts`] times, with a short wait in between. So `body` may run
    /// several times, and the last one counts: what it does besides the transaction should not
    /// matter if it is repeated. When `body` returns an error, nothing is written. To write nothing
    /// and return a value, it can call [`Transaction::rollback`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let amount = |value: Option<shamba::Slice>| {
    ///     value.and_then(|bytes| (*bytes).try_into().ok()).map_or(0, i64::from_le_bytes)
    /// };
    /// db.put("asha", 10_i64.to_le_bytes())?;
    /// let is_paid = db.transact(|tx| {
    ///     let (asha, baraka) = (amount(tx.get("asha")?), amount(tx.get("baraka")?));
    ///     if asha < 7 {
    ///         return Ok(false);
    ///     }
    ///     tx.put("asha", (asha - 7).to_le_bytes())?;
    ///     tx.put("baraka", (baraka + 7).to_le_bytes())?;
    ///     Ok(true)
    /// })?;
    /// assert!(is_paid);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that `body` returned; `Conflict` after the last attempt; as
    /// [`Transaction::commit`].
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(TransactionOptions::new(), body)
    }

    /// [`Self::transact`] with an [`Isolation`](crate::Isolation) or other options.
    ///
    /// # Errors
    /// As [`Self::transact`].
    pub fn transact_with<T>(
        &self,
        options: impl Into<TransactionOptions>,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let (core, options) = (self.core(), options.into());
        let mut attempts = 1;
        loop {
            let mut transaction = self.transaction_with(options);
            let value = body(&mut transaction)?;
            match transaction.commit() {
                Err(error) if error.kind() == ErrorKind::Conflict && attempts < options.attempts => {}
                outcome => return outcome.map(|()| value),
            }
            WorkCounters::add(&core.telemetry.work().transaction_retries, 1);
            let wait_us = wait_us(attempts, core.env.rng.next_u64());
            if wait_us > 0 {
                core.env.clock.sleep_us(wait_us);
            }
            attempts += 1;
        }
    }
}

/// The wait after an attempt, counted from 1.
fn wait_us(attempt: u32, random: u64) -> u64 {
    let bound_us = (WAIT_US << (attempt - 1).min(WAIT_DOUBLED_MAX)).min(WAIT_US_MAX);
    random % bound_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_random_below_a_bound_that_doubles() {
        let longest = |attempt| {
            (0..1_000)
                .map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .map(|random| wait_us(attempt, random))
                .max()
                .expect("waits")
        };
        assert!((10..20).contains(&longest(1)) && (41..80).contains(&longest(3)));
        for attempt in [12, 63, 64, 65, u32::MAX] {
            assert!((10_000..20_000).contains(&longest(attempt)), "attempt {attempt}");
        }
    }
}
