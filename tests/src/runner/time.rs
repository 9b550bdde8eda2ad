//! Time in a run: it passes in ticks, values end with it, and times to live change.

use std::time::Duration;

use shamba::Durability;

use super::Runner;
use crate::compare::{self, failed};
use crate::expiry::{after_ticks, ends_ms};
use crate::oracle::{Moment, SPACES};

/// Keys of a keyspace that are read before and after the end of their life.
const DUE_KEYS_MAX: usize = 3;

impl Runner {
    /// The state that a reader sees which begins now.
    pub(crate) fn now(&self) -> Moment {
        Moment { commit: self.oracle.issued(), ms: self.env.clock.unix_ms(), turn: self.turn }
    }

    /// The time to live that a put of `value` is given.
    pub(super) fn time_to_live(&self, value: &[u8]) -> Option<Duration> {
        let now_ms = self.env.clock.unix_ms();
        ends_ms(value, now_ms, self.passes_time).map(|ends_ms| Duration::from_millis(ends_ms - now_ms))
    }

    /// Lets ticks pass. Values that end with them are there in the last millisecond before, and not
    /// in the next one.
    ///
    /// # Errors
    /// A difference from the oracle, or a failure.
    pub(super) fn pass(&mut self, ticks: u64) -> Result<(), String> {
        self.note_changes()?;
        let begins_ms = after_ticks(ticks, self.env.clock.unix_ms());
        let due: Vec<Vec<Vec<u8>>> = (0..SPACES.len())
            .map(|space| self.oracle.due(space, begins_ms).take(DUE_KEYS_MAX).map(<[u8]>::to_vec).collect())
            .collect();
        for wait_ms in [begins_ms - 1 - self.env.clock.unix_ms(), 1] {
            self.env.clock.sleep_us(wait_ms * 1_000);
            let now = self.now();
            for (space, keys) in due.iter().enumerate() {
                let surface = self.spaces()?.at(space).ok_or("keyspace missing")?;
                for key in keys {
                    let at = |error: String| format!("at {} ms, end {begins_ms}: {error}", now.ms);
                    compare::point(surface, key, self.oracle.get(space, key, now)).map_err(at)?;
                    compare::time_left(surface, key, self.oracle.time_left(space, key, now)).map_err(at)?;
                }
            }
        }
        self.ticks.push((self.oracle.issued(), begins_ms));
        self.tally.add("ticks", ticks);
        self.tally.add("ends of lives looked at", due.iter().map(|keys| keys.len() as u64).sum());
        self.drop_aged()?;
        // Compactions that free what has expired.
        self.spaces()?.db.wait_idle().map_err(failed("wait_idle"))?;
        self.note_changes()?;
        self.snapshots_keep_their_time()
    }

    /// Sets the time to live of a key.
    ///
    /// # Errors
    /// A difference from the oracle, or a failure.
    pub(super) fn live(&mut self, space: usize, key: &[u8], ticks: Option<u64>) -> Result<(), String> {
        let now = self.now();
        let ends_ms = ticks.map(|ticks| after_ticks(ticks, now.ms));
        let time = ends_ms.map_or(Duration::MAX, |ends_ms| Duration::from_millis(ends_ms - now.ms));
        // A conditional write hashes its key once, for its lookup and for its condition.
        self.hashed_gets += 1;
        let spaces = self.spaces()?;
        let done = match space.checked_sub(1).and_then(|at| spaces.others[at].as_ref()) {
            Some(other) => other.set_time_to_live(key, time),
            None => spaces.db.set_time_to_live(key, time),
        };
        let done = done.map_err(failed("set_time_to_live"))?;
        if done != self.oracle.set_life(space, key, now, ends_ms) {
            return Err(format!("set_time_to_live({}) gave {done}", crate::ops::shown(key)));
        }
        self.tally.add("lives set", u64::from(done));
        if done && self.vector.durability == Durability::Sync {
            self.oracle.mark_durable();
        }
        Ok(())
    }
}
