//! Time in a life with faults: it passes by a step, and after the faults.

use std::sync::Arc;

use shamba::env::{Env, SimFs};

use super::Life;
use crate::compare::failed;
use crate::expiry::{TICK_MS, TICKS_MAX, advance_to, after_ticks};
use crate::oracle::{Moment, Oracle};

/// One life in this many goes on until everything that expires has ended.
const ENDS_ONE_IN: u64 = 4;

impl Life<'_> {
    /// The newest state, at this time.
    pub(super) fn now(&self, oracle: &Oracle) -> Moment {
        Moment { commit: oracle.issued(), ms: self.env.clock.unix_ms(), turn: 0 }
    }

    /// An environment with this disk, at this time.
    pub(super) fn env_of(&self, disk: SimFs, seed: u64) -> Env {
        let env = Env::deterministic(Arc::new(disk), seed);
        advance_to(&env, self.env.clock.unix_ms());
        env
    }

    /// Lets time pass, and waits for the work that is due then. A tick is left in its middle: calls
    /// that wait take less than half of one.
    pub(super) fn pass(&mut self, ticks: u64) {
        let now_ms = self.env.clock.unix_ms();
        advance_to(&self.env, after_ticks(ticks, now_ms) + TICK_MS / 2);
        let done = self.spaces().map(|spaces| spaces.db.wait_idle());
        self.failures += u64::from(matches!(done, Some(Err(_))));
    }

    /// Number of expired entries that flushes and compactions have dropped.
    pub(super) fn expired_entries(&self) -> u64 {
        self.expired + self.spaces().map_or(0, |spaces| spaces.db.stats().entries_expired)
    }

    /// After the faults, in some lives: lets time pass until all that expires has ended, and
    /// compacts. Returns whether it did.
    ///
    /// # Errors
    /// A difference, or a failure.
    pub(super) fn all_lives_end(&mut self) -> Result<bool, String> {
        if !self.sim.op_count().is_multiple_of(ENDS_ONE_IN) {
            return Ok(false);
        }
        self.pass(TICKS_MAX + 1);
        self.holds_exactly_acked().map_err(|error| format!("when all lives have ended: {error}"))?;
        let spaces = self.spaces().ok_or("not open")?;
        spaces.db.compact().map_err(failed("compact when all lives have ended"))?;
        self.holds_exactly_acked()
            .map_err(|error| format!("compacted when all lives have ended: {error}"))?;
        Ok(true)
    }
}
