//! Failures of compactions, by keyspace: one that fails holds up no compaction of another keyspace.
//!
//! After a failure no compaction begins in that keyspace for some time, its back-off. Without it a
//! damaged table, whose compaction may score highest for ever, would be tried again and again, and
//! with one back-off for all keyspaces nothing else would ever be compacted.
//!
//! Failures are numbered over all keyspaces. A waiter that knows the number of the last one before
//! its wait can tell whether a keyspace has failed since.

use std::collections::BTreeMap;

use shamba_key::KeyspaceId;

use crate::error::Error;
use crate::writer::{Failures, WAITER_FAILURES_MAX};

/// The failures of one keyspace.
#[derive(Clone, Default)]
struct OfKeyspace {
    failures: Failures,
    /// No compaction begins before this time.
    retry_at_us: u64,
}

/// The failures of the compactions of a database.
#[derive(Default)]
pub(super) struct CompactionFailures {
    /// Number of the last failure; 0 before the first.
    last: u32,
    keyspaces: BTreeMap<KeyspaceId, OfKeyspace>,
}

impl CompactionFailures {
    /// Records a failure in a keyspace. `retry_at_us` gives the end of its back-off after that many
    /// failures in a row.
    pub fn add(&mut self, id: KeyspaceId, error: Error, retry_at_us: impl FnOnce(u32) -> u64) {
        self.last = self.last.saturating_add(1);
        let keyspace = self.keyspaces.entry(id).or_default();
        keyspace.failures.add(error, self.last);
        keyspace.retry_at_us = retry_at_us(keyspace.failures.failures);
    }

    /// Records a success in a keyspace.
    pub fn end(&mut self, id: KeyspaceId) {
        if let Some(keyspace) = self.keyspaces.get_mut(&id) {
            keyspace.failures.end();
            keyspace.retry_at_us = 0;
        }
    }

    /// Records that there is nothing to compact: what failed is not needed any more, except where
    /// it waits for the end of its back-off.
    pub fn end_all(&mut self, now_us: u64) {
        let idle = self.keyspaces.values_mut().filter(|keyspace| keyspace.retry_at_us <= now_us);
        idle.for_each(|keyspace| keyspace.failures.end());
    }

    /// Forgets a keyspace that was dropped.
    pub fn forget(&mut self, id: KeyspaceId) {
        self.keyspaces.remove(&id);
    }

    /// Ends the back-off of all keyspaces.
    pub fn retry(&mut self) {
        self.keyspaces.values_mut().for_each(|keyspace| keyspace.retry_at_us = 0);
    }

    /// Whether no compaction may begin in a keyspace now.
    pub fn is_backing_off(&self, id: KeyspaceId, now_us: u64) -> bool {
        self.keyspaces.get(&id).is_some_and(|keyspace| now_us < keyspace.retry_at_us)
    }

    /// The time until the first back-off ends; `None` if there is none.
    pub fn retry_us(&self, now_us: u64) -> Option<u64> {
        let ends = self.keyspaces.values().map(|keyspace| keyspace.retry_at_us.saturating_sub(now_us));
        ends.filter(|us| *us > 0).min()
    }

    /// The failures of a keyspace.
    pub fn of(&self, id: KeyspaceId) -> Failures {
        self.keyspaces.get(&id).map_or_else(Failures::default, |keyspace| keyspace.failures.clone())
    }

    /// The failures of one keyspace for those who wait for all: of those for which a waiter gives
    /// up, the one that failed last.
    pub fn of_all(&self) -> Failures {
        let failing = self.keyspaces.values().map(|keyspace| &keyspace.failures);
        let failing = failing.filter(|failures| failures.error.is_some());
        let worst = failing.max_by_key(|one| (one.failures.min(WAITER_FAILURES_MAX), one.last));
        worst.cloned().unwrap_or_default()
    }

    /// Number of the last failure in any keyspace.
    pub fn last(&self) -> u32 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const A: KeyspaceId = KeyspaceId(1);
    const B: KeyspaceId = KeyspaceId(2);

    fn error(text: &str) -> Error {
        Error::new(ErrorKind::Io, text.to_owned())
    }

    #[test]
    fn each_keyspace_has_its_own_back_off() {
        let mut failures = CompactionFailures::default();
        failures.add(A, error("a"), |in_a_row| 100 * u64::from(in_a_row));
        failures.add(A, error("a"), |in_a_row| 100 * u64::from(in_a_row));
        failures.add(B, error("b"), |in_a_row| 100 * u64::from(in_a_row));
        assert_eq!([A, B].map(|id| failures.is_backing_off(id, 99)), [true, true]);
        assert_eq!([A, B].map(|id| failures.is_backing_off(id, 100)), [true, false]);
        assert_eq!(
            [0, 100, 199, 200].map(|now_us| failures.retry_us(now_us)),
            [Some(100), Some(100), Some(1), None]
        );
        failures.retry();
        assert_eq!([A, B].map(|id| failures.is_backing_off(id, 0)), [false, false]);
        failures.add(A, error("a"), |_| 100);
        failures.end(A);
        assert!(!failures.is_backing_off(A, 0), "a success ends it");
    }

    #[test]
    fn a_waiter_hears_of_its_keyspace_only() {
        let mut failures = CompactionFailures::default();
        (0..3).for_each(|_| failures.add(A, error("a"), |_| 0));
        failures.add(B, error("b"), |_| 0);
        assert_eq!((failures.of(A).failures, failures.of(A).last), (3, 3));
        assert_eq!((failures.of(B).failures, failures.of(B).last), (1, 4));
        let all = |failures: &CompactionFailures| (failures.of_all().failures, failures.of_all().last);
        assert_eq!((all(&failures), failures.last()), ((3, 3), 4));
        (0..2).for_each(|_| failures.add(B, error("b"), |_| 0));
        assert_eq!(all(&failures), (3, 6), "of those that failed three times, the last");
        failures.add(A, error("a"), |_| 0);
        assert_eq!(all(&failures), (4, 7));
        failures.end(B);
        failures.add(B, error("b"), |_| 0);
        assert_eq!(all(&failures), (4, 7), "one failure is no reason to give up");
        failures.end(A);
        assert_eq!(failures.of_all().failures, 1);
        failures.forget(B);
        assert!(failures.of_all().error.is_none() && failures.of(B).last == 0);
        failures.add(B, error("b"), |_| 0);
        assert_eq!(failures.of(B).last, 9, "numbers go on");
    }

    #[test]
    fn what_is_not_needed_any_more_has_not_failed() {
        let mut failures = CompactionFailures::default();
        failures.add(A, error("a"), |_| 100);
        failures.add(B, error("b"), |_| 0);
        failures.end_all(99);
        assert!(failures.of(A).error.is_some(), "it is tried again at 100");
        assert!(failures.of(B).error.is_none());
        failures.end_all(100);
        assert!(failures.of_all().error.is_none());
    }
}
