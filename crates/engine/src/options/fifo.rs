//! The limits of a FIFO keyspace, and the times by which its tables get an age.
//!
//! Both are settings of the keyspace in the manifest, as text. A build that does not know them
//! compacts the keyspace as any other.
//!
//! An age needs no time in a table: [`FifoState`] keeps a few pairs of a sequence number and the
//! time by which all entries up to it were in tables. A table is as old as the first pair that
//! covers its newest entry.

use std::collections::BTreeMap;
use std::time::Duration;

use shamba_key::SeqNo;
use shamba_tree::compaction::policy::FifoRules;
use shamba_tree::version::Pairs;

use crate::error::{Error, Result};

const BYTES: &str = "fifo-bytes";
const AGE_MS: &str = "fifo-age-ms";
const TIMES: &str = "fifo-times";

/// Ages are exact to about this part of the limit, which takes about twice as many times.
const AGE_PARTS: u64 = 32;
/// Entries are in memory, and their runs are merged with newer ones, up to this part of the maximum
/// age (1/8) each. So an entry stays at most about a third longer than its age allows, in about as
/// many runs as with a limit in bytes.
const DELAY_PARTS: u64 = 8;

/// The limits of a FIFO keyspace ([`crate::KeyspaceOptions::fifo`]): of the bytes in its tables, of
/// their age, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fifo {
    bytes: Option<u64>,
    age_ms: Option<u64>,
}

impl Fifo {
    /// Drops the oldest tables while all take more than `bytes`.
    pub fn bytes(bytes: u64) -> Self {
        Self { bytes: Some(bytes), age_ms: None }
    }

    /// Drops tables whose newest entry was flushed longer ago than `age`.
    pub fn age(age: Duration) -> Self {
        Self { bytes: None, age_ms: Some(millis(age)) }
    }

    /// The same limits, with this maximum age.
    #[must_use]
    pub fn with_age(self, age: Duration) -> Self {
        Self { age_ms: Some(millis(age)), ..self }
    }

    /// Maximum bytes of the tables.
    pub fn max_bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Maximum age of the tables.
    pub fn max_age(&self) -> Option<Duration> {
        self.age_ms.map(Duration::from_millis)
    }

    /// # Errors
    /// `Invalid` for a limit of 0.
    pub(crate) fn check(&self) -> Result<()> {
        if self.bytes == Some(0) || self.age_ms == Some(0) {
            return Err(Error::invalid("a limit of a FIFO keyspace is 0; the minimum is 1 byte, or 1 ms"));
        }
        Ok(())
    }
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

/// The limits of a keyspace, and when its entries were in tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FifoState {
    pub limits: Fifo,
    /// All entries up to this sequence number were in tables at this time, in milliseconds since
    /// 1970-01-01 UTC; ascending in both.
    times: Vec<(SeqNo, u64)>,
}

impl FifoState {
    /// The limits from now on. What is older counts as written now.
    pub fn new(limits: Fifo, seq: SeqNo, now_ms: u64) -> Self {
        Self { limits, times: Vec::new() }.noted(seq, now_ms)
    }

    /// The recorded state of a keyspace; `None` if it is no FIFO keyspace.
    ///
    /// # Errors
    /// `Invalid` for text that no build has written.
    pub fn read(settings: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let text = |name| settings.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let wrong = |name: &str, text: &str| Error::invalid(format!("{name} of a keyspace is {text:?}"));
        let number = |name| text(name).map(|text| text.parse().map_err(|_| wrong(name, text))).transpose();
        let limits = Fifo { bytes: number(BYTES)?, age_ms: number(AGE_MS)? };
        if limits.bytes.is_none() && limits.age_ms.is_none() {
            return Ok(None);
        }
        let pair = |pair: &str| -> Option<(SeqNo, u64)> {
            let (seq, ms) = pair.split_once('@')?;
            Some((SeqNo(seq.parse().ok()?), ms.parse().ok()?))
        };
        let mut times = Vec::new();
        for part in text(TIMES).into_iter().flat_map(|text| text.split(' ')) {
            times.push(pair(part).ok_or_else(|| wrong(TIMES, part))?);
        }
        times.sort_unstable();
        Ok(Some(Self { limits, times }))
    }

    /// The text that is recorded.
    pub fn pairs(&self) -> Pairs {
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let times: Vec<String> = self.times.iter().map(|(seq, ms)| format!("{}@{ms}", seq.0)).collect();
        let texts = [number(self.limits.bytes), number(self.limits.age_ms), times.join(" ")];
        [BYTES, AGE_MS, TIMES].map(str::to_owned).into_iter().zip(texts).collect()
    }

    /// The text of a keyspace that is no FIFO keyspace any more.
    pub fn no_pairs() -> Pairs {
        [BYTES, AGE_MS, TIMES].map(|name| (name.to_owned(), String::new())).into()
    }

    /// Whether these settings of a keyspace are about its limits.
    pub fn is_in(settings: &Pairs) -> bool {
        settings.iter().any(|(name, _)| [BYTES, AGE_MS, TIMES].contains(&name.as_str()))
    }

    /// The newest time by which entries were in tables.
    pub fn latest_ms(&self) -> Option<u64> {
        self.times.last().map(|(_, ms)| *ms)
    }

    /// The state of a database that goes on after `seq`. Later numbers were lost in a crash and are
    /// assigned again, to entries that are younger than their times.
    #[must_use]
    pub fn recovered(&self, seq: SeqNo) -> Self {
        let mut times = self.times.clone();
        let lost = times.partition_point(|(covered, _)| *covered < seq);
        // The entries of the first of them that were recovered were in tables at its time.
        times.truncate(lost + 1);
        if let Some(first) = times.get_mut(lost) {
            first.0 = seq;
        }
        debug_assert!(times.iter().all(|(covered, _)| *covered <= seq), "{times:?} after {seq}");
        Self { limits: self.limits, times }
    }

    /// The state after all entries up to `seq` were written to tables.
    #[must_use]
    pub fn noted(&self, seq: SeqNo, now_ms: u64) -> Self {
        let mut times = self.times.clone();
        if let (Some(age_ms), true) = (self.limits.age_ms, times.last().is_none_or(|(last, _)| *last < seq)) {
            // A clock that was set back makes nothing older than what came before.
            let at_ms = times.last().map_or(now_ms, |(_, last_ms)| now_ms.max(*last_ms));
            let before = times.len().checked_sub(2).map(|at| times[at].1);
            if before.is_some_and(|before_ms| at_ms.saturating_sub(before_ms) < age_ms / AGE_PARTS) {
                // What the last one covers takes over the new time.
                times.pop();
            }
            times.push((seq, at_ms));
            let expired = times.partition_point(|(_, ms)| ms.saturating_add(age_ms) <= now_ms);
            times.drain(..expired.saturating_sub(1));
        }
        Self { limits: self.limits, times }
    }

    /// The settings of a keyspace that records `settings`, after all entries up to `seq` were
    /// written to tables; `None` if it gives no tables an age.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn aged(settings: &BTreeMap<String, String>, seq: SeqNo, now_ms: u64) -> Result<Option<Pairs>> {
        let fifo = Self::read(settings)?.filter(|fifo| fifo.limits.age_ms.is_some());
        Ok(fifo.map(|fifo| fifo.noted(seq, now_ms).pairs()))
    }

    /// Whether entries in memory should be written to a table, so that they get an age.
    pub fn is_flush_due(&self, now_ms: u64) -> bool {
        let since_ms = self.latest_ms().unwrap_or(0);
        self.limits.age_ms.is_some_and(|age_ms| since_ms.saturating_add(age_ms / DELAY_PARTS) <= now_ms)
    }

    /// The limits now, in the terms of the policy.
    pub fn rules(&self, now_ms: u64) -> FifoRules {
        let older_than = |age_ms: u64| {
            let older = self.times.partition_point(|(_, ms)| ms.saturating_add(age_ms) <= now_ms);
            Some(self.times[older.checked_sub(1)?].0)
        };
        let Fifo { bytes, age_ms } = self.limits;
        let settled = age_ms.and_then(|age_ms| older_than(age_ms / DELAY_PARTS));
        FifoRules { bytes, expired: age_ms.and_then(older_than), settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_old_as_the_time_that_covers_them() {
        let state = FifoState::new(Fifo::age(Duration::from_millis(100)), SeqNo(5), 1_000);
        let state = state.noted(SeqNo(9), 1_050).noted(SeqNo(9), 1_060).noted(SeqNo(12), 900);
        let expired = |now_ms| state.rules(now_ms).expired;
        assert_eq!(expired(1_099), None);
        assert_eq!(expired(1_100), Some(SeqNo(5)));
        assert_eq!(expired(1_149), Some(SeqNo(5)));
        assert_eq!(expired(1_150), Some(SeqNo(12)), "the clock was set back");
        let settings = state.pairs().into_iter().collect();
        assert_eq!(FifoState::read(&settings).expect("valid"), Some(state));
    }

    #[test]
    fn few_times_are_kept_and_none_makes_an_entry_older() {
        let age_ms = 1_000;
        let mut state = FifoState::new(Fifo::bytes(7).with_age(Duration::from_millis(age_ms)), SeqNo(0), 0);
        for n in 1..5_000u64 {
            let now_ms = n * 3;
            state = state.noted(SeqNo(n), now_ms);
            assert!(state.times.len() as u64 <= 2 * AGE_PARTS + 3, "{} times", state.times.len());
            let due = now_ms.saturating_sub(age_ms) / 3;
            let expired = state.rules(now_ms).expired.map_or(0, |seq| seq.0);
            assert!(expired <= due, "{expired} is younger than it may be at {now_ms}");
            assert!(now_ms < 2 * age_ms || expired + 30 > due, "{expired} of {due} at {now_ms}");
        }
    }

    #[test]
    fn entries_are_flushed_and_settle_after_an_eighth_of_the_age() {
        let state = FifoState::new(Fifo::age(Duration::from_millis(800)), SeqNo(5), 1_000);
        let state = state.noted(SeqNo(9), 1_080);
        assert_eq!((state.is_flush_due(1_179), state.is_flush_due(1_180)), (false, true));
        let settled = |now_ms| state.rules(now_ms).settled;
        assert_eq!(
            [1_099, 1_100, 1_179, 1_180].map(settled),
            [None, Some(SeqNo(5)), Some(SeqNo(5)), Some(SeqNo(9))]
        );
        let by_bytes = FifoState::new(Fifo::bytes(1), SeqNo(5), 1_000);
        assert!(!by_bytes.is_flush_due(u64::MAX) && by_bytes.rules(u64::MAX).settled.is_none());
    }

    #[test]
    fn settings_without_limits_are_none_and_wrong_ones_are_refused() {
        assert_eq!(FifoState::read(&FifoState::no_pairs().into_iter().collect()).expect("valid"), None);
        assert_eq!(FifoState::read(&BTreeMap::new()).expect("valid"), None);
        for (name, text) in [(BYTES, "many"), (AGE_MS, "-1"), (TIMES, "5"), (TIMES, "5@x")] {
            let mut settings: BTreeMap<String, String> = [(BYTES.to_owned(), "1".to_owned())].into();
            settings.insert(name.to_owned(), text.to_owned());
            let refused = FifoState::read(&settings).expect_err(text).to_string();
            assert!(refused.contains(name) && refused.contains(text), "{refused}");
        }
        assert!(Fifo::bytes(0).check().is_err() && Fifo::age(Duration::ZERO).check().is_err());
    }
}
