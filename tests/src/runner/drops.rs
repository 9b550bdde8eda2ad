//! Drops of a FIFO keyspace in a run.
//!
//! After an operation in which tables were dropped, every key of the keyspace is read once. Old
//! writes may be gone, and from then on the oracle knows which. None that is left is older than one
//! that is gone, unless a run had several tables. Both may be of one commit: an open that replays a
//! log into tables may cut it within a batch. A write that is younger than the maximum age stays,
//! and so does the newest commit under a limit of bytes.

use super::Runner;
use crate::compare::{Spaces, Surface, failed, same_value};
use crate::fifo::{SPACE, gone_ms};
use crate::ops::shown;
use crate::oracle::{Moment, Oracle};

impl Runner {
    /// Finds out what was dropped.
    ///
    /// # Errors
    /// A write that may not be gone, or a failure.
    pub(super) fn note_drops(&mut self) -> Result<(), String> {
        let (Some(limits), Some(spaces)) = (self.vector.fifo, &self.spaces) else { return Ok(()) };
        let dropped = spaces.db.stats().tables_dropped;
        let is_cut = spaces.others[SPACE - 1]
            .as_ref()
            .is_some_and(|other| other.stats().levels.iter().any(|level| level.tables > level.runs));
        let was_cut = std::mem::replace(&mut self.has_cut_run, is_cut);
        if std::mem::replace(&mut self.dropped, dropped) == dropped {
            return Ok(());
        }
        let now = self.now();
        let newest = self.oracle.newest(SPACE);
        let spaces = self.spaces.as_ref().ok_or("the database is not open")?;
        let Lost { gone: Some(last), kept, newest_kept } = note(spaces, &mut self.oracle, now)? else {
            return Ok(());
        };
        if let (Some(kept), false) = (kept.filter(|kept| *kept < last), was_cut) {
            return Err(format!("commit {last} is gone, and the older commit {kept} is there"));
        }
        self.tally.add("drops of the oldest writes", 1);
        let Some(age) = limits.max_age() else {
            return match newest == Some(last) && newest_kept < newest {
                true => Err(format!("the newest write, commit {last}, is gone by a limit of bytes")),
                false => Ok(()),
            };
        };
        let written_ms = self.written_ms(last);
        if limits.max_bytes().is_none() && written_ms + age.as_millis() as u64 > now.ms {
            return Err(format!("commit {last} of {written_ms} ms or later is gone at {} ms", now.ms));
        }
        Ok(())
    }

    /// The beginning of the tick in which a commit was made.
    fn written_ms(&self, commit: u64) -> u64 {
        self.ticks.iter().rev().find(|(commits, _)| *commits < commit).map_or(0, |(_, ms)| *ms)
    }

    /// Reads every key of a snapshot of the FIFO keyspace. Drops wait only for snapshots from
    /// before they were due, so writes may be gone; those that are there must be right. With a
    /// limit of age alone, what was younger when the snapshot began is there.
    ///
    /// # Errors
    /// A wrong value, a write that is gone, or a failure.
    pub(super) fn check_old(&self, surface: &dyn Surface, at: Moment) -> Result<(), String> {
        let limits = self.vector.fifo.filter(|limits| limits.max_bytes().is_none());
        let age_ms = limits.and_then(|limits| limits.max_age()).map(|age| age.as_millis() as u64);
        for (key, value, commit) in self.oracle.writes(SPACE, at) {
            let is_young = age_ms.is_some_and(|age_ms| self.written_ms(commit) + age_ms > at.ms);
            if !is_there(surface, key, value)? && is_young {
                return Err(format!("{}, commit {commit}, is gone, and was not due", shown(key)));
            }
        }
        Ok(())
    }

    /// Does background work, and requires that no write of the keyspace is much too old. Only
    /// readers from before it was due may hold a drop up.
    ///
    /// # Errors
    /// The write, or a failure.
    pub(super) fn drop_aged(&mut self) -> Result<(), String> {
        let Some(age) = self.vector.fifo.and_then(|limits| limits.max_age()) else { return Ok(()) };
        self.spaces()?.db.wait_idle().map_err(failed("wait_idle"))?;
        self.note_drops()?;
        let now = self.now();
        let readers_ms = self.snapshots.iter().map(|(_, at)| at.ms);
        let readers_ms = readers_ms.chain(self.iterators.iter().map(|held| held.since_ms));
        let due_ms = readers_ms.fold(now.ms, u64::min);
        let Some((commits, _)) = self.ticks.iter().rev().find(|(_, ms)| ms + gone_ms(age) < due_ms) else {
            return Ok(());
        };
        self.tally.add("looks for data that is too old", 1);
        match self.oracle.writes(SPACE, now).find(|(.., commit)| commit <= commits) {
            Some((key, _, commit)) => Err(format!("{}, commit {commit}, is still there", shown(key))),
            None => Ok(()),
        }
    }
}

/// The commits of writes that are gone, and there.
pub(super) struct Lost {
    /// The last one that is gone.
    pub gone: Option<u64>,
    /// The first one that is there.
    pub kept: Option<u64>,
    /// The last one that is there.
    pub newest_kept: Option<u64>,
}

/// Reads every key of the FIFO keyspace, and tells the oracle of a database which writes are gone.
///
/// # Errors
/// A wrong value, or a failure.
pub(super) fn note(spaces: &Spaces, oracle: &mut Oracle, now: Moment) -> Result<Lost, String> {
    let surface = spaces.at(SPACE).ok_or("keyspace missing")?;
    let mut gone = Vec::new();
    let mut lost = Lost { gone: None, kept: None, newest_kept: None };
    for (key, value, commit) in oracle.writes(SPACE, now) {
        if is_there(surface, key, value)? {
            lost.kept = Some(lost.kept.map_or(commit, |kept| kept.min(commit)));
            lost.newest_kept = lost.newest_kept.max(Some(commit));
        } else {
            lost.gone = lost.gone.max(Some(commit));
            gone.push(key.to_vec());
        }
    }
    gone.iter().for_each(|key| oracle.compacted(SPACE, key, None, now.turn));
    Ok(lost)
}

/// Whether a key has its value, rather than none.
///
/// # Errors
/// Another value, or a failure.
fn is_there(surface: &dyn Surface, key: &[u8], value: &[u8]) -> Result<bool, String> {
    let seen = surface.read(key).map_err(failed("get"))?;
    match &seen {
        None => Ok(false),
        Some(seen) => same_value("get", key, Some(seen), Some(value)).map(|()| true),
    }
}
