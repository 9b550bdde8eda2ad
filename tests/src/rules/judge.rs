//! The judgement of a state: which commits it may be the state of, and what it shows.

use std::collections::{BTreeMap, BTreeSet};

use shamba::{Db, Fifo, Snapshot};

use super::{Change, LOG, Pairs, ruled};
use crate::compare::{self, Surface, failed};
use crate::ops::shown;

/// Facts that a state has shown: they stay so.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Keys whose version of a commit was as the filter leaves it.
    filtered: BTreeSet<(Vec<u8>, u64)>,
    /// The newest commit whose data in the FIFO keyspace was dropped.
    dropped: u64,
    /// Keys of the FIFO keyspace whose version of a commit was dropped.
    gone: BTreeSet<(Vec<u8>, u64)>,
}

impl Facts {
    pub(super) fn add(&mut self, other: &Self) {
        self.filtered.extend(other.filtered.iter().cloned());
        self.gone.extend(other.gone.iter().cloned());
        self.dropped = self.dropped.max(other.dropped);
    }

    /// The facts that are not `known`.
    pub(super) fn beyond(mut self, known: &Self) -> Self {
        self.filtered.retain(|fact| !known.filtered.contains(fact));
        self.gone.retain(|fact| !known.gone.contains(fact));
        self
    }

    pub(super) fn has_filtered(&self) -> bool {
        !self.filtered.is_empty()
    }

    pub(super) fn has_dropped(&self) -> bool {
        self.dropped > 0
    }
}

/// The content of a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    filtered: Pairs,
    log: Pairs,
}

impl Found {
    /// Reads both keyspaces.
    ///
    /// # Errors
    /// A failed call, or a difference between a scan and other reads.
    pub(super) fn read(db: &Db) -> Result<Self, String> {
        let log = db.get_keyspace(LOG).map_err(failed("keyspace"))?;
        Ok(Self { filtered: pairs(db)?, log: log.map_or(Ok(Pairs::new()), |log| pairs(&log))? })
    }

    /// Reads both keyspaces in a snapshot of them.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_in(filtered: &Snapshot, log: &Snapshot) -> Result<Self, String> {
        Ok(Self { filtered: pairs(filtered)?, log: pairs(log)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filtered.is_empty() && self.log.is_empty()
    }

    /// The first key of the FIFO keyspace.
    pub(super) fn first_in_log(&self) -> Option<&[u8]> {
        self.log.keys().next().map(Vec::as_slice)
    }

    /// The values of the FIFO keyspace, which all differ.
    pub(super) fn log_values(&self) -> BTreeSet<&[u8]> {
        self.log.values().map(Vec::as_slice).collect()
    }

    /// Checks that a snapshot that saw `self` still sees it. With `may_lose` data of the FIFO
    /// keyspace may be gone.
    ///
    /// # Errors
    /// The difference.
    pub(super) fn is_still(&self, now: &Self, may_lose: bool) -> Result<(), String> {
        same("the default keyspace", &self.filtered, &now.filtered, false)?;
        same("the FIFO keyspace", &self.log, &now.log, may_lose)
    }
}

fn pairs(surface: &dyn Surface) -> Result<Pairs, String> {
    let everything = compare::everything();
    let pairs: Pairs =
        surface.scan(&everything).map(compare::owned).collect::<Result<_, _>>().map_err(failed("scan"))?;
    let list = pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>();
    compare::scan(surface, &everything, true, &list)?;
    for (key, value) in &pairs {
        compare::point(surface, key, Some(value))?;
    }
    Ok(pairs)
}

/// Checks that a snapshot of a keyspace that had `before` has `after`.
fn same(what: &str, before: &Pairs, after: &Pairs, may_lose: bool) -> Result<(), String> {
    let lost = before.iter().find(|(key, value)| match after.get(*key) {
        None => !may_lose,
        Some(now) => now != *value,
    });
    if let Some((key, value)) = lost {
        let now = after.get(key).map(|now| shown(now));
        return Err(format!("a snapshot of {what} had {} as {} and has {now:?}", shown(key), shown(value)));
    }
    match after.keys().find(|key| !before.contains_key(*key)) {
        Some(key) => Err(format!("a snapshot of {what} had no {}", shown(key))),
        None => Ok(()),
    }
}

/// A version of a key: the commit and the value.
type Version = (u64, Option<Vec<u8>>);

/// All versions of all keys.
#[derive(Debug)]
pub(super) struct Model {
    filtered: BTreeMap<Vec<u8>, Vec<Version>>,
    log: BTreeMap<Vec<u8>, Vec<Version>>,
    /// The times of the commits in milliseconds, that of the first one first.
    times_ms: Vec<u64>,
    limits: Fifo,
}

impl Model {
    /// An empty database with a FIFO keyspace of these limits.
    pub(super) fn new(limits: Fifo) -> Self {
        Self { filtered: BTreeMap::new(), log: BTreeMap::new(), times_ms: Vec::new(), limits }
    }

    /// The number of commits so far.
    pub(super) fn issued(&self) -> u64 {
        self.times_ms.len() as u64
    }

    /// Adds a commit at a time, and returns its number.
    pub(super) fn commit(&mut self, changes: &[Change], now_ms: u64) -> u64 {
        self.times_ms.push(now_ms);
        let commit = self.issued();
        for Change { is_log, key, value } in changes {
            let keys = if *is_log { &mut self.log } else { &mut self.filtered };
            keys.entry(key.clone()).or_default().push((commit, value.clone()));
        }
        commit
    }

    /// Checks that a state is legal after commit `at`, at a time, and what was seen before. Returns
    /// what it shows.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn judge(
        &self,
        found: &Found,
        (at, now_ms): (u64, u64),
        seen: &Facts,
    ) -> Result<Facts, String> {
        let mut facts = Facts::default();
        let unknown = found.filtered.keys().find(|key| !self.filtered.contains_key(*key));
        let unknown = unknown.or_else(|| found.log.keys().find(|key| !self.log.contains_key(*key)));
        if let Some(key) = unknown {
            return Err(format!("{} was never written", shown(key)));
        }
        for (key, versions) in &self.filtered {
            let got = found.filtered.get(key);
            let Some((commit, value)) = visible(versions, at) else {
                match got {
                    Some(got) => return Err(format!("{} is {} and should be gone", shown(key), shown(got))),
                    None => continue,
                }
            };
            let after = ruled(value);
            let entry = (key.clone(), commit);
            let is_after = got == after.as_ref();
            if !is_after && (got.map(Vec::as_slice) != Some(value) || seen.filtered.contains(&entry)) {
                let was = if seen.filtered.contains(&entry) {
                    ", and was seen as the filter leaves it"
                } else {
                    ""
                };
                let got = got.map(|got| shown(got));
                return Err(format!("{} is {got:?}; it was written as {}{was}", shown(key), shown(value)));
            }
            if is_after && after.as_deref() != Some(value) {
                facts.filtered.insert(entry);
            }
        }
        let mut oldest = (u64::MAX, Vec::new());
        let mut newest = 0;
        for (key, versions) in &self.log {
            match (visible(versions, at), found.log.get(key)) {
                (None, None) => {}
                (Some((commit, value)), Some(got)) if value == got.as_slice() => {
                    if seen.gone.contains(&(key.clone(), commit)) {
                        return Err(format!("{} of commit {commit} was dropped, and is back", shown(key)));
                    }
                    newest = newest.max(commit);
                    if commit < oldest.0 {
                        oldest = (commit, key.clone());
                    }
                }
                (Some((commit, _)), None) => {
                    facts.dropped = facts.dropped.max(commit);
                    facts.gone.insert((key.clone(), commit));
                }
                (want, Some(got)) => {
                    return Err(format!(
                        "{} of the FIFO keyspace is {}, not {want:?}",
                        shown(key),
                        shown(got)
                    ));
                }
            }
        }
        self.may_be_gone(facts.dropped, newest, (at, now_ms))?;
        let dropped = facts.dropped.max(seen.dropped);
        // An open that replays a log into tables may cut it within a batch.
        if oldest.0 < dropped {
            return Err(format!(
                "{} of commit {} is in the FIFO keyspace, and commit {dropped} was dropped ({} before)",
                shown(&oldest.1),
                oldest.0,
                seen.dropped
            ));
        }
        Ok(facts)
    }

    /// Checks that the limits may have dropped the data of commit `dropped`, 0 for none, where that
    /// of commit `newest` is there.
    fn may_be_gone(&self, dropped: u64, newest: u64, (at, now_ms): (u64, u64)) -> Result<(), String> {
        let Some(written_ms) = (dropped as usize).checked_sub(1).map(|at| self.times_ms[at]) else {
            return Ok(());
        };
        match (self.limits.max_bytes(), self.limits.max_age()) {
            (None, Some(age)) if written_ms + age.as_millis() as u64 > now_ms => {
                Err(format!("commit {dropped} of {written_ms} ms was dropped for its age by {now_ms} ms"))
            }
            (Some(_), None) if newest < dropped && self.log_commits(at).max() == Some(dropped) => {
                Err(format!("commit {dropped}, the newest of the FIFO keyspace, was dropped for its bytes"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no data of the FIFO keyspace after commit `at` has had this age at `now_ms`, if
    /// its limits have a maximum age.
    ///
    /// # Errors
    /// The data.
    pub(super) fn none_is_older(
        &self,
        found: &Found,
        at: u64,
        now_ms: u64,
        age_ms: u64,
    ) -> Result<(), String> {
        if self.limits.max_age().is_none() {
            return Ok(());
        }
        for key in found.log.keys() {
            let versions = self.log.get(key).map_or(&[][..], Vec::as_slice);
            let Some((commit, _)) = visible(versions, at) else { continue };
            let written_ms = self.times_ms[commit as usize - 1];
            if written_ms + age_ms <= now_ms {
                return Err(format!("{} of {written_ms} ms is there at {now_ms} ms", shown(key)));
            }
        }
        Ok(())
    }

    /// The commits up to `at` that wrote the FIFO keyspace.
    fn log_commits(&self, at: u64) -> impl Iterator<Item = u64> {
        self.log.values().flatten().map(|(commit, _)| *commit).filter(move |commit| *commit <= at)
    }

    /// Checks that the data of the FIFO keyspace that a snapshot of commit `at` saw `before` and
    /// not `now` is older than that which it sees now.
    ///
    /// # Errors
    /// A commit that is gone, and an older one that is there.
    pub(super) fn lost_the_oldest(&self, at: u64, before: &Found, now: &Found) -> Result<(), String> {
        let (before, now) = (before.log_values(), now.log_values());
        let visible = self.log.values().filter_map(|versions| visible(versions, at));
        let seen: Vec<(u64, bool)> = visible
            .filter(|(_, value)| before.contains(value))
            .map(|(commit, value)| (commit, now.contains(value)))
            .collect();
        let gone = seen.iter().filter(|(_, is_there)| !is_there).map(|(commit, _)| *commit).max();
        let there = seen.iter().filter(|(_, is_there)| *is_there).map(|(commit, _)| *commit).min();
        match gone.zip(there) {
            Some((gone, there)) if there < gone => {
                Err(format!("a snapshot of commit {at} lost commit {gone}, and has commit {there}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no value is left that the filter would change.
    ///
    /// # Errors
    /// The first such value.
    pub(super) fn all_filtered(&self, found: &Found, at: u64) -> Result<(), String> {
        let changes = |value: &[u8]| ruled(value).as_deref() != Some(value);
        match found.filtered.iter().find(|(_, value)| changes(value)) {
            None => Ok(()),
            Some((key, value)) => {
                Err(format!("after commit {at} and a compaction {} is {}", shown(key), shown(value)))
            }
        }
    }
}

fn visible(versions: &[Version], at: u64) -> Option<(u64, &[u8])> {
    let (commit, value) = versions.iter().rev().find(|(commit, _)| *commit <= at)?;
    Some((*commit, value.as_deref()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn change(is_log: bool, key: &str, value: Option<&str>) -> Change {
        Change { is_log, key: key.into(), value: value.map(Into::into) }
    }

    fn model() -> Model {
        model_of(Fifo::bytes(1).with_age(Duration::from_millis(1)))
    }

    /// Commits at 1,000, 2,000 and 3,000 ms.
    fn model_of(limits: Fifo) -> Model {
        let mut model = Model::new(limits);
        model.commit(&[change(false, "a", Some("v1.1")), change(true, "x", Some("1"))], 1_000);
        model.commit(&[change(false, "b", Some("drop.2")), change(true, "y", Some("2"))], 2_000);
        model.commit(&[change(false, "a", Some("v1.3")), change(true, "x", Some("3"))], 3_000);
        model
    }

    fn found(filtered: &[(&str, &str)], log: &[(&str, &str)]) -> Found {
        let pairs =
            |of: &[(&str, &str)]| of.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Found { filtered: pairs(filtered), log: pairs(log) }
    }

    #[test]
    fn a_value_is_as_written_or_filtered_and_not_the_first_after_the_second() {
        let (model, nothing, log) = (model(), Facts::default(), [("x", "3"), ("y", "2")]);
        let judge =
            |filtered: &[(&str, &str)], seen: &Facts| model.judge(&found(filtered, &log), (3, 3_000), seen);
        let (before, after) = ([("a", "v1.3"), ("b", "drop.2")], [("a", "v2.3")]);
        assert!(!judge(&before, &nothing).expect("as written").has_filtered());
        let seen = judge(&after, &nothing).expect("filtered");
        assert_eq!(seen.filtered.len(), 2);
        assert!(judge(&after, &seen).is_ok());
        assert!(judge(&before, &seen).is_err(), "it was seen filtered");
        assert!(judge(&[("a", "v2.3"), ("b", "drop.2")], &seen).is_err(), "a removed value is back");
        assert!(judge(&[("a", "v1.1"), ("b", "drop.2")], &nothing).is_err(), "an older value");
        assert!(judge(&[("a", "v2.1"), ("b", "drop.2")], &nothing).is_err(), "an older value, filtered");
        assert!(judge(&[("b", "drop.2")], &nothing).is_err(), "the filter does not remove it");
        assert!(model.all_filtered(&found(&before, &[]), 3).is_err());
        assert!(model.all_filtered(&found(&after, &[]), 3).is_ok());
    }

    #[test]
    fn the_oldest_data_goes_and_stays_gone() {
        let (model, nothing) = (model(), Facts::default());
        let judge = |at: u64, log: &[(&str, &str)], seen: &Facts| {
            let a = if at < 3 { "v1.1" } else { "v1.3" };
            model.judge(&found(&[("a", a), ("b", "drop.2")], log), (at, 3_000), seen)
        };
        assert!(judge(3, &[("x", "3"), ("y", "2")], &nothing).is_ok());
        assert!(judge(2, &[("x", "3"), ("y", "2")], &nothing).is_err(), "a write of a later commit");
        let seen = judge(3, &[("x", "3")], &nothing).expect("the oldest is gone");
        assert!(seen.has_dropped());
        assert!(judge(3, &[("y", "2")], &nothing).is_err(), "newer data went first");
        assert!(judge(3, &[("x", "3"), ("y", "2")], &seen).is_err(), "dropped data is back");
        assert!(judge(3, &[("x", "1"), ("y", "2")], &nothing).is_err(), "an older version is back");
        assert!(judge(2, &[("x", "1"), ("y", "2")], &seen).is_err(), "it is back, and the newest is lost");
    }

    #[test]
    fn only_old_data_goes_for_its_age_and_the_newest_never_for_its_bytes() {
        let judge = |limits: Fifo, now_ms: u64, log: &[(&str, &str)]| {
            let state = found(&[("a", "v1.3"), ("b", "drop.2")], log);
            model_of(limits).judge(&state, (3, now_ms), &Facts::default())
        };
        let by_age = Fifo::age(Duration::from_millis(5_000));
        assert!(judge(by_age, 6_999, &[("x", "3")]).is_err(), "it was written at 2,000 ms");
        assert!(judge(by_age, 7_000, &[("x", "3")]).is_ok());
        assert!(judge(by_age, 7_999, &[]).is_err());
        assert!(judge(by_age, 8_000, &[]).is_ok());
        assert!(judge(Fifo::bytes(1), 8_000, &[("x", "3")]).is_ok());
        assert!(judge(Fifo::bytes(1), 8_000, &[]).is_err(), "the newest");
    }

    #[test]
    fn a_snapshot_stays_as_it_was_and_loses_the_oldest_if_any() {
        let (model, filtered) = (model(), [("a", "v1.3"), ("b", "drop.2")]);
        let before = found(&filtered, &[("x", "3"), ("y", "2")]);
        assert!(before.is_still(&before, false).is_ok());
        let shorter = found(&filtered, &[("x", "3")]);
        assert!(before.is_still(&shorter, false).is_err());
        assert!(
            before.is_still(&shorter, true).is_ok() && model.lost_the_oldest(3, &before, &shorter).is_ok()
        );
        let without_newest = found(&filtered, &[("y", "2")]);
        assert!(model.lost_the_oldest(3, &before, &without_newest).is_err());
        assert!(shorter.is_still(&before, true).is_err(), "more than it had");
        let changed = found(&[("a", "v2.3"), ("b", "drop.2")], &[("x", "3"), ("y", "2")]);
        assert!(before.is_still(&changed, true).is_err(), "the filter changed it");
        assert!(before.is_still(&found(&filtered[..1], &[("x", "3"), ("y", "2")]), true).is_err());
    }
}
