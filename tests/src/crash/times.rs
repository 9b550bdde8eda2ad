//! The times of a life and of its crashes.
//!
//! In a life without [`Op::Pass`](crate::ops::Op::Pass) nothing expires, and its recoveries begin a
//! day after its beginning. In one with it, a recovery begins at the time of the crash: at the end
//! of the operation in which it is. The state must be that of a commit at that time. Of some disks
//! two more recoveries are made:
//!
//! - One has a clock that was set back to the beginning of the life. The database goes on at the
//!   time that its manifest records, so the state must be that of the same commit at one earlier
//!   time: an entry that a compaction has dropped takes all with it that end at its time.
//! - One lets time pass, with compactions. Entries are there until the end of their tick and gone
//!   in the next one, whether or not a compaction has dropped them. After that it is killed, and
//!   opened with the clock set back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shamba::env::{Clock, CrashPolicy, ManualClock, SimFs};

use super::{Recording, compared, env_of, open, open_in, verify};
use crate::compare::{self, failed};
use crate::expiry::{TICK_MS, TICKS_MAX, advance_to, after_ticks};
use crate::oracle::Moment;
use crate::runner::Runner;
use crate::tally::Tally;

/// The wall clock at the beginning of a life.
pub(super) fn start_ms() -> u64 {
    ManualClock::new().unix_ms()
}

/// Time by which the clock of a recovery is ahead of a life in which no time passes: a day.
pub(super) const LATER_MS: u64 = 24 * 60 * 60 * 1_000;
/// One new disk in this many is also recovered with other times.
pub(super) const PASSED_ONE_IN: u64 = 4;

/// The tick of a time.
pub(super) fn tick(ms: u64) -> u64 {
    ms / TICK_MS
}

/// The times of a life.
pub(super) struct Times {
    passes: bool,
    /// For the open and each operation: the number of calls by its end, the time then, and the
    /// expired entries that flushes and compactions had dropped.
    ends: Vec<(u64, u64, u64)>,
    /// Expired entries that were dropped before the last reopen, and since then.
    expired: [u64; 2],
    /// By tick: the fingerprint of the state after each commit, starting with the empty state.
    states: Mutex<HashMap<u64, Arc<Vec<u64>>>>,
}

impl Times {
    pub(super) fn new(passes: bool) -> Self {
        Self { passes, ends: Vec::new(), expired: [0; 2], states: Mutex::default() }
    }

    /// Whether time passes in the life.
    pub(super) fn passes(&self) -> bool {
        self.passes
    }

    /// Notes the end of the open or of an operation.
    pub(super) fn note(&mut self, runner: &Runner, calls: u64) -> Result<(), String> {
        let expired = runner.spaces()?.db.stats().entries_expired;
        let [before, since] = &mut self.expired;
        if expired < *since {
            *before += *since;
        }
        *since = expired;
        self.ends.push((calls, runner.now().ms, *before + expired));
        Ok(())
    }

    /// The number of the operation of call `k`, or of the one that ended with it; 0 is the open.
    fn operation(&self, k: u64) -> usize {
        let reached = self.ends.partition_point(|(calls, ..)| *calls < k);
        reached.min(self.ends.len() - 1)
    }

    /// The time of a recovery after a crash right after call `k`.
    pub(super) fn of_crash(&self, k: u64) -> u64 {
        if self.passes { self.ends[self.operation(k)].1 } else { start_ms() + LATER_MS }
    }

    /// Counts a crash right after call `k`.
    pub(super) fn count(&self, k: u64, tally: &mut Tally) {
        if !self.passes {
            return;
        }
        let at = self.operation(k);
        let before = at.checked_sub(1).map_or(0, |before| self.ends[before].2);
        tally.add("crashes after expired entries were dropped", u64::from(before > 0));
        tally.add("crashes while expired entries are dropped", u64::from(before < self.ends[at].2));
    }
}

/// The states that recoveries of a disk show.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Fingerprints of states, with their ticks.
    at: Vec<(u64, u64)>,
    /// The fingerprint of a state with a clock that was set back.
    set_back: Option<u64>,
}

impl Found {
    /// A state at a time.
    pub(super) fn new(now_ms: u64, fingerprint: u64) -> Self {
        Self { at: vec![(tick(now_ms), fingerprint)], set_back: None }
    }

    /// Whether both show the same state at the time of the recovery.
    pub(super) fn is_same_now(&self, other: &Self) -> bool {
        self.at.first() == other.at.first()
    }
}

impl Recording {
    /// Whether recoveries have shown the state of this commit.
    pub(super) fn is_state(&self, commit: u64, found: &Found) -> bool {
        let is_at = |tick: u64, found: u64| self.states(tick).get(commit as usize) == Some(&found);
        let now = found.at.first().map_or(0, |(tick, _)| *tick);
        found.at.iter().all(|(tick, found)| is_at(*tick, *found))
            && found.set_back.is_none_or(|found| (tick(start_ms())..=now).any(|tick| is_at(tick, found)))
    }

    /// The fingerprint of the state after each commit in this tick.
    fn states(&self, tick: u64) -> Arc<Vec<u64>> {
        // Nothing ends later.
        let last = self.times.ends.last().map_or(0, |(_, ms, _)| self::tick(*ms)) + TICKS_MAX;
        let tick = tick.min(last);
        let mut known = self.times.states.lock().unwrap_or_else(PoisonError::into_inner);
        let states = known.entry(tick).or_insert_with(|| {
            let at = |commit| Moment { commit, ms: tick * TICK_MS, turn: 0 };
            let commits = 0..=self.oracle.issued();
            let states = commits.map(|commit| compared(self.oracle.state(at(commit)), &self.dropped));
            Arc::new(states.collect())
        });
        Arc::clone(states)
    }
}

/// Recovers a disk with a clock that was set back, and with time that passes; see the module.
pub(super) fn pass(
    recording: &Recording,
    image: &SimFs,
    now_ms: u64,
    found: &mut Found,
    tally: &mut Tally,
) -> Result<(), String> {
    let Recording { vector, dropped, .. } = recording;
    let disk = image.crash(u64::MAX, &CrashPolicy::All);
    let spaces = open(vector, &disk, 6, start_ms()).map_err(|error| format!("clock set back: {error}"))?;
    found.set_back = Some(compared(spaces.dump().map_err(failed("scan, clock set back"))?, dropped));
    drop(spaces);

    let disk = image.crash(u64::MAX, &CrashPolicy::All);
    let env = env_of(&disk, 7, now_ms);
    let spaces = open_in(vector, &env)?;
    spaces.db.flush().map_err(failed("flush after recovery"))?;
    let begins_ms = after_ticks(1, now_ms);
    let mut is_recorded = false;
    let mut last = None;
    for ms in [begins_ms - 1, begins_ms, begins_ms + 2 * TICK_MS, now_ms + LATER_MS] {
        advance_to(&env, ms);
        let state = spaces.dump().map_err(failed("scan, later"))?;
        found.at.push((tick(ms), compared(state.clone(), dropped)));
        let before = spaces.db.stats().entries_expired;
        spaces.db.compact().map_err(failed("compact, later"))?;
        let got = spaces.dump().map_err(failed("scan, compacted"))?;
        compare::same_state(&got, &state).map_err(|error| format!("compacted at {ms} ms: {error}"))?;
        let dropped = spaces.db.stats().entries_expired - before;
        tally.add("expired entries that were dropped after a crash", dropped);
        is_recorded = dropped > 0;
        last = Some(state);
    }
    verify(&spaces, &disk).map_err(|error| format!("later: {error}"))?;
    tally.add("disks on which time passed", 1);
    let Some(last) = last.filter(|_| is_recorded) else { return Ok(()) };
    // The edit of the last compaction has recorded the time at which it dropped entries.
    let killed = disk.crash(u64::MAX, &CrashPolicy::All);
    drop(spaces);
    let spaces = open(vector, &killed, 8, start_ms())?;
    let got = spaces.dump().map_err(failed("scan after a kill"))?;
    tally.add("disks whose clock was set back after entries were dropped", 1);
    compare::same_state(&got, &last).map_err(|error| format!("killed, the clock set back: {error}"))
}
