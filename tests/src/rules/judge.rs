//! The judgement of a state: which commits it may be the state of, and what it shows.

use std::collections::{BTreeMap, BTreeSet};

use shamba::Db;

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
}

impl Facts {
    pub(super) fn add(&mut self, other: &Self) {
        self.filtered.extend(other.filtered.iter().cloned());
        self.dropped = self.dropped.max(other.dropped);
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

    pub(super) fn is_empty(&self) -> bool {
        self.filtered.is_empty() && self.log.is_empty()
    }
}

fn pairs(surface: &dyn Surface) -> Result<Pairs, String> {
    let pair = |pair: shamba::Result<_>| {
        pair.map(|(key, value): (shamba::Slice, shamba::Slice)| (key.to_vec(), value.to_vec()))
    };
    let everything = compare::everything();
    let pairs: Pairs =
        surface.scan(&everything).map(pair).collect::<Result<_, _>>().map_err(failed("scan"))?;
    let list = pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>();
    compare::scan(surface, &everything, true, &list)?;
    for (key, value) in &pairs {
        compare::point(surface, key, Some(value))?;
    }
    Ok(pairs)
}

/// A version of a key: the commit and the value.
type Version = (u64, Option<Vec<u8>>);

/// All versions of all keys.
#[derive(Debug, Default)]
pub(super) struct Model {
    filtered: BTreeMap<Vec<u8>, Vec<Version>>,
    log: BTreeMap<Vec<u8>, Vec<Version>>,
    issued: u64,
}

impl Model {
    /// The number of commits so far.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Adds a commit and returns its number.
    pub(super) fn commit(&mut self, changes: &[Change]) -> u64 {
        self.issued += 1;
        for Change { is_log, key, value } in changes {
            let keys = if *is_log { &mut self.log } else { &mut self.filtered };
            keys.entry(key.clone()).or_default().push((self.issued, value.clone()));
        }
        self.issued
    }

    /// Checks that a state is legal after commit `at` and what was seen before. Returns what it
    /// shows.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn judge(&self, found: &Found, at: u64, seen: &Facts) -> Result<Facts, String> {
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
        for (key, versions) in &self.log {
            match (visible(versions, at), found.log.get(key)) {
                (None, None) => {}
                (Some((commit, value)), Some(got)) if value == got.as_slice() => {
                    if commit < oldest.0 {
                        oldest = (commit, key.clone());
                    }
                }
                (Some((commit, _)), None) => facts.dropped = facts.dropped.max(commit),
                (want, Some(got)) => {
                    return Err(format!(
                        "{} of the FIFO keyspace is {}, not {want:?}",
                        shown(key),
                        shown(got)
                    ));
                }
            }
        }
        let dropped = facts.dropped.max(seen.dropped);
        if oldest.0 <= dropped {
            return Err(format!(
                "{} of commit {} is in the FIFO keyspace, and commit {dropped} was dropped ({} before)",
                shown(&oldest.1),
                oldest.0,
                seen.dropped
            ));
        }
        Ok(facts)
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
    use super::*;

    fn change(is_log: bool, key: &str, value: Option<&str>) -> Change {
        Change { is_log, key: key.into(), value: value.map(Into::into) }
    }

    fn model() -> Model {
        let mut model = Model::default();
        model.commit(&[change(false, "a", Some("v1.1")), change(true, "x", Some("1"))]);
        model.commit(&[change(false, "b", Some("drop.2")), change(true, "y", Some("2"))]);
        model.commit(&[change(false, "a", Some("v1.3")), change(true, "x", Some("3"))]);
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
        let judge = |filtered: &[(&str, &str)], seen: &Facts| model.judge(&found(filtered, &log), 3, seen);
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
            model.judge(&found(&[("a", a), ("b", "drop.2")], log), at, seen)
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
}
