//! Drops of a FIFO keyspace in a run.
//!
//! After an operation in which tables were dropped, every key of the keyspace is read once. The
//! oldest writes may be gone, up to one of them, and from then on the oracle knows which. A write
//! that is younger than the maximum age stays, and so does the newest one under a limit of bytes.

use super::Runner;
use crate::compare::{Spaces, Surface, failed, same_value};
use crate::expiry::TICK_MS;
use crate::fifo::SPACE;
use crate::ops::shown;
use crate::oracle::{Moment, Oracle};

/// Ticks that an operation lets pass at most. The background does not look at ages within them.
const PASSED_MAX: u64 = 3;

impl Runner {
    /// Finds out what was dropped.
    ///
    /// # Errors
    /// A write that may not be gone, or a failure.
    pub(super) fn note_drops(&mut self) -> Result<(), String> {
        let (Some(limits), Some(spaces)) = (self.vector.fifo, &self.spaces) else { return Ok(()) };
        let dropped = spaces.db.stats().tables_dropped;
        if std::mem::replace(&mut self.dropped, dropped) == dropped {
            return Ok(());
        }
        let now = self.now();
        let newest = self.oracle.newest(SPACE);
        let spaces = self.spaces.as_ref().ok_or("the database is not open")?;
        let Some(last) = note(spaces, &mut self.oracle, now)? else { return Ok(()) };
        self.tally.add("drops of the oldest writes", 1);
        let Some(age) = limits.max_age() else {
            return match newest == Some(last) {
                true => Err(format!("the newest write, commit {last}, is gone by a limit of bytes")),
                false => Ok(()),
            };
        };
        let written_ms =
            self.ticks.iter().rev().find(|(commits, _)| *commits < last).map_or(0, |(_, ms)| *ms);
        if limits.max_bytes().is_none() && written_ms + age.as_millis() as u64 > now.ms {
            return Err(format!("commit {last} of {written_ms} ms or later is gone at {} ms", now.ms));
        }
        Ok(())
    }

    /// Does background work, and requires that no write of the keyspace is much too old. Readers
    /// may hold drops up, so only without them.
    ///
    /// # Errors
    /// The write, or a failure.
    pub(super) fn drop_aged(&mut self) -> Result<(), String> {
        let Some(age) = self.vector.fifo.and_then(|limits| limits.max_age()) else { return Ok(()) };
        self.spaces()?.db.wait_idle().map_err(failed("wait_idle"))?;
        self.note_drops()?;
        let now = self.now();
        let age_max_ms = age.as_millis() as u64 * 13 / 10 + PASSED_MAX * TICK_MS;
        let old = self.ticks.iter().rev().find(|(_, ms)| ms + age_max_ms < now.ms);
        let (Some((commits, _)), true) = (old, self.snapshots.is_empty() && self.iterators.is_empty()) else {
            return Ok(());
        };
        match self.oracle.writes(SPACE, now).find(|(.., commit)| commit <= commits) {
            Some((key, _, commit)) => Err(format!("{}, commit {commit}, is still there", shown(key))),
            None => Ok(()),
        }
    }
}

/// Reads every key of the FIFO keyspace, and tells the oracle of a database which writes are gone:
/// those up to the returned one.
///
/// # Errors
/// A write that is gone before an older one, or a failure.
pub(super) fn note(spaces: &Spaces, oracle: &mut Oracle, now: Moment) -> Result<Option<u64>, String> {
    let gone = lost(spaces.at(SPACE).ok_or("keyspace missing")?, oracle, now)?;
    if let Some(last) = gone {
        oracle.forget(SPACE, last, now.turn);
    }
    Ok(gone)
}

/// Reads every key of the FIFO keyspace at a moment. Returns the last of the writes that are gone:
/// in a snapshot that began after they were due, more than the oracle knows of.
///
/// # Errors
/// A write that is gone before an older one, or a failure.
pub(super) fn lost(surface: &dyn Surface, oracle: &Oracle, at: Moment) -> Result<Option<u64>, String> {
    let (mut gone, mut kept) = (None, None);
    for (key, value, commit) in oracle.writes(SPACE, at) {
        let seen = surface.read(key).map_err(failed("get"))?;
        if seen.is_none() {
            gone = gone.max(Some(commit));
        } else {
            same_value("get", key, seen.as_deref(), Some(value))?;
            kept = Some(kept.map_or(commit, |kept: u64| kept.min(commit)));
        }
    }
    match (gone, kept) {
        (Some(last), Some(kept)) if kept <= last => {
            Err(format!("commit {last} is gone, and the older commit {kept} is there"))
        }
        _ => Ok(gone),
    }
}
