//! The oracle: the expected content of the database, as an ordered map from key to history.
//!
//! Every commit (a batch, or a single write) gets the next number. A history is the list of a key's
//! values by commit, newest last, with `None` for "deleted". So the state after any commit can be
//! read back: the state that a crash may leave, or that a snapshot sees. A range delete writes
//! `None` into every key that it covers, so the model has no range tombstones and cannot share a
//! mistake about them. A merge writes the whole value that it makes, so the model has no operands
//! either.
//!
//! A value may have an end of life, from which on readers do not see it. So a state is that of a
//! [`Moment`]: a commit and a time. Nothing happens in the model when a life ends. Operands outlive
//! the value that they were merged into, so a history knows both the value with it and the value of
//! the operands alone.
//!
//! A compaction filter ([`crate::filters`]) may change a value at any time after it was written.
//! The runner finds out when, by a read, and the model holds every later reader to it: a moment has
//! a turn, too, the number of the operation in which its reader begins. The same holds for values
//! that a FIFO keyspace drops.
//!
//! There are two watermarks: `issued`, the number of acknowledged commits, and `durable`, the
//! number of commits that are promised to survive a power cut.
//!
//! The oracle is outside the file system under test.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::time::Duration;

use shamba::filter::Verdict;

use crate::filters::verdict;
use crate::operators::appended;

/// A range of keys, as the engine takes it.
pub type Span = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A span that is borrowed.
type Borrowed<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Names of the keyspaces that the suites use; the first is the default keyspace.
pub const SPACES: [&str; 3] = ["default", "users", "ix"];

/// The live pairs of every keyspace that is not empty.
pub type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// One operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Sets the key to the value.
    Put {
        /// Index into [`SPACES`].
        space: usize,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes the key.
    Delete {
        /// Index into [`SPACES`].
        space: usize,
        /// The key.
        key: Vec<u8>,
    },
    /// Adds an operand to the key, which appends it to the value.
    Merge {
        /// Index into [`SPACES`].
        space: usize,
        /// The key.
        key: Vec<u8>,
        /// The operand.
        operand: Vec<u8>,
    },
    /// Deletes every key of the span.
    DeleteRange {
        /// Index into [`SPACES`].
        space: usize,
        /// The range of keys.
        span: Span,
    },
}

/// The state to read: that after a commit, at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The number of commits.
    pub commit: u64,
    /// The wall clock in milliseconds: lives that end later have not ended.
    pub ms: u64,
    /// The number of the operation: verdicts of filters that are found later are not in force.
    pub turn: u64,
}

impl From<u64> for Moment {
    /// After a commit, before any life ends or verdict: for runs without them.
    fn from(commit: u64) -> Self {
        Self { commit, ms: 0, turn: 0 }
    }
}

/// The end of a value's life.
#[derive(Clone, Debug)]
struct Life {
    /// The first millisecond in which the value is not visible.
    ends_ms: u64,
    /// The operands that were merged into the value, which are visible from then on.
    rest: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Written {
    commit: u64,
    value: Option<Vec<u8>>,
    life: Option<Life>,
    /// The outcome of compactions, once it is known.
    compacted: Option<Compacted>,
}

/// The value that a compaction has left, if any.
#[derive(Clone, Debug)]
struct Compacted {
    /// The turn in which it was found.
    turn: u64,
    value: Option<Vec<u8>>,
}

impl Written {
    /// A value, or that there is none.
    fn new(commit: u64, value: Option<Vec<u8>>, life: Option<Life>) -> Self {
        Self { commit, value, life, compacted: None }
    }

    /// The value of readers that begin now, while its life has not ended.
    fn newest(&self) -> Option<&[u8]> {
        self.compacted.as_ref().map_or(&self.value, |compacted| &compacted.value).as_deref()
    }

    fn at(&self, at: Moment) -> Option<&[u8]> {
        match (&self.life, &self.compacted) {
            (Some(life), _) if life.ends_ms <= at.ms => life.rest.as_deref(),
            (_, Some(compacted)) if compacted.turn <= at.turn => compacted.value.as_deref(),
            _ => self.value.as_deref(),
        }
    }
}

/// The reference model; see the module.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    spaces: BTreeMap<usize, BTreeMap<Vec<u8>, Vec<Written>>>,
    issued: u64,
    durable: u64,
}

impl Oracle {
    /// An empty database.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one commit of values that never expire, and returns its number.
    pub fn commit(&mut self, changes: &[Change]) -> u64 {
        self.commit_with(changes, |_| None, false)
    }

    /// Applies one commit and returns its number. `ends_ms` is the end of a value's life; it is
    /// called once for each put, in their order. With
    /// `is_applied` operands of a key that the same commit has put are a part of the value that is
    /// put, as in a transaction.
    pub fn commit_with(
        &mut self,
        changes: &[Change],
        mut ends_ms: impl FnMut(&[u8]) -> Option<u64>,
        is_applied: bool,
    ) -> u64 {
        self.issued += 1;
        let commit = self.issued;
        for change in changes {
            match change {
                Change::Put { space, key, value } => {
                    let life = ends_ms(value).map(|ends_ms| Life { ends_ms, rest: None });
                    self.write(*space, key, Written::new(commit, Some(value.clone()), life));
                }
                Change::Delete { space, key } => {
                    self.write(*space, key, Written::new(commit, None, None));
                }
                Change::Merge { space, key, operand } => {
                    let merged = self.merged(*space, key, operand, is_applied);
                    self.write(*space, key, merged);
                }
                Change::DeleteRange { space, span } => {
                    let keys = self.spaces.entry(*space).or_default();
                    let covered = bounds(span).map(|span| keys.range_mut::<[u8], _>(span));
                    for (_, history) in covered.into_iter().flatten() {
                        let lives = history.last().is_some_and(|newest| newest.value.is_some());
                        if lives {
                            push(history, Written::new(commit, None, None));
                        }
                    }
                }
            }
        }
        commit
    }

    /// The newest value of a key with an operand.
    fn merged(&self, space: usize, key: &[u8], operand: &[u8], is_applied: bool) -> Written {
        let commit = self.issued;
        let newest = self.spaces.get(&space).and_then(|keys| keys.get(key)?.last());
        let life = newest.and_then(|newest| {
            let Life { ends_ms, rest } = newest.life.as_ref()?;
            let rest = match is_applied && newest.commit == commit && rest.is_none() {
                true => None,
                false => Some(appended(rest.as_deref(), operand)),
            };
            Some(Life { ends_ms: *ends_ms, rest })
        });
        let value = appended(newest.and_then(Written::newest), operand);
        Written::new(commit, Some(value), life)
    }

    /// Gives the value that is visible at `now` another end of its life, or none, as one commit.
    /// Returns whether there is a value.
    pub fn set_life(&mut self, space: usize, key: &[u8], now: Moment, ends_ms: Option<u64>) -> bool {
        let Some(value) = self.get(space, key, now).map(<[u8]>::to_vec) else { return false };
        self.issued += 1;
        let life = ends_ms.map(|ends_ms| Life { ends_ms, rest: None });
        self.write(space, key, Written::new(self.issued, Some(value), life));
        true
    }

    fn write(&mut self, space: usize, key: &[u8], written: Written) {
        push(self.spaces.entry(space).or_default().entry(key.to_vec()).or_default(), written);
    }

    /// The number of commits so far.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// The number of commits that must survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Marks all commits issued up to now as durable.
    pub fn mark_durable(&mut self) {
        self.durable = self.issued;
    }

    /// The value of a key at a moment.
    pub fn get(&self, space: usize, key: &[u8], at: impl Into<Moment>) -> Option<&[u8]> {
        let at = at.into();
        newest(self.spaces.get(&space)?.get(key)?, at)?.at(at)
    }

    /// The time that the value of a key has left: `Duration::MAX` for one that lasts, as one with
    /// operands does; `None` without a value.
    pub fn time_left(&self, space: usize, key: &[u8], at: Moment) -> Option<Duration> {
        let newest = newest(self.spaces.get(&space)?.get(key)?, at)?;
        newest.at(at)?;
        Some(match &newest.life {
            Some(Life { ends_ms, rest: None }) => Duration::from_millis(ends_ms - at.ms),
            _ => Duration::MAX,
        })
    }

    /// The keys of a keyspace whose newest value has its end of life at `ends_ms`.
    pub fn due(&self, space: usize, ends_ms: u64) -> impl Iterator<Item = &[u8]> {
        let is_due = move |history: &[Written]| {
            history.last().and_then(|newest| newest.life.as_ref()).is_some_and(|life| life.ends_ms == ends_ms)
        };
        let keys = self.spaces.get(&space).into_iter().flatten();
        keys.filter(move |(_, history)| is_due(history)).map(|(key, _)| key.as_slice())
    }

    /// The pairs that are visible at a moment, and whose lives have ended since then, by `now_ms`.
    pub fn ended(&self, space: usize, at: Moment, now_ms: u64) -> impl Iterator<Item = (&[u8], &[u8])> {
        let keys = self.spaces.get(&space).into_iter().flatten();
        keys.filter_map(move |(key, history)| {
            let newest = newest(history, at)?;
            let has_ended = newest.life.as_ref().is_some_and(|life| life.ends_ms <= now_ms);
            Some((key.as_slice(), newest.at(at)?)).filter(|_| has_ended)
        })
    }

    /// The pairs that are visible at `now`, and that the filter would change.
    pub fn unfiltered(&self, space: usize, now: Moment) -> impl Iterator<Item = (&[u8], &[u8], Verdict)> {
        let keys = self.spaces.get(&space).into_iter().flatten();
        keys.filter_map(move |(key, history)| {
            let newest = history.last().filter(|newest| newest.compacted.is_none())?;
            let is_over = newest.life.as_ref().is_some_and(|life| life.ends_ms <= now.ms);
            let value = newest.value.as_deref().filter(|_| !is_over)?;
            let verdict = verdict(key, value);
            (verdict != Verdict::Keep).then_some((key.as_slice(), value, verdict))
        })
    }

    /// The visible pairs of a keyspace with the commits that wrote them.
    pub fn writes(&self, space: usize, now: Moment) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let keys = self.spaces.get(&space).into_iter().flatten();
        keys.filter_map(move |(key, history)| {
            let newest = newest(history, now)?;
            Some((key.as_slice(), newest.at(now)?, newest.commit))
        })
    }

    /// The commit of the newest write of a keyspace, a delete included.
    pub fn newest(&self, space: usize) -> Option<u64> {
        self.spaces.get(&space)?.values().filter_map(|history| Some(history.last()?.commit)).max()
    }

    /// Whether the newest value of a key has operands and a base that will expire.
    pub fn outlives_its_base(&self, space: usize, key: &[u8]) -> bool {
        let newest = self.spaces.get(&space).and_then(|keys| keys.get(key)?.last());
        newest.and_then(|newest| newest.life.as_ref()).is_some_and(|life| life.rest.is_some())
    }

    /// A compaction has made `value` of the newest value of a key, or dropped it: from `turn` on.
    pub fn compacted(&mut self, space: usize, key: &[u8], value: Option<Vec<u8>>, turn: u64) {
        let newest = self.spaces.get_mut(&space).and_then(|keys| keys.get_mut(key)?.last_mut());
        newest.expect("a key with a value").compacted = Some(Compacted { turn, value });
    }

    /// The live pairs of a span at a moment, ascending.
    pub fn range<'a>(
        &'a self,
        space: usize,
        span: &'a Span,
        at: impl Into<Moment>,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + 'a {
        let at = at.into();
        let keys = self.spaces.get(&space).zip(bounds(span)).map(|(keys, span)| keys.range::<[u8], _>(span));
        let keys = keys.into_iter().flatten();
        keys.filter_map(move |(key, history)| Some((key.as_slice(), newest(history, at)?.at(at)?)))
    }

    /// The live pairs of a span at a moment, copied.
    pub fn pairs(&self, space: usize, span: &Span, at: impl Into<Moment>) -> Vec<Pair> {
        self.range(space, span, at).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    /// Every key that was ever written in a keyspace.
    pub fn keys(&self, space: usize) -> impl Iterator<Item = &[u8]> {
        self.spaces.get(&space).into_iter().flat_map(|keys| keys.keys().map(Vec::as_slice))
    }

    /// The whole state at a moment.
    pub fn state(&self, at: impl Into<Moment>) -> State {
        let at = at.into();
        let mut state = State::new();
        for (space, keys) in &self.spaces {
            let live = keys
                .iter()
                .filter_map(|(key, history)| Some((key.clone(), newest(history, at)?.at(at)?.to_vec())))
                .collect::<BTreeMap<_, _>>();
            if !live.is_empty() {
                state.insert(SPACES[*space].to_owned(), live);
            }
        }
        state
    }

    /// Removes every commit after `at`: those that recovery dropped.
    pub fn roll_back_to(&mut self, at: u64) {
        for keys in self.spaces.values_mut() {
            for history in keys.values_mut() {
                history.retain(|written| written.commit <= at);
            }
            keys.retain(|_, history| !history.is_empty());
        }
        self.issued = self.issued.min(at);
        self.durable = self.durable.min(at);
    }

    /// Drops the keyspace: its keys vanish from all states, old and new.
    pub fn drop_space(&mut self, space: usize) {
        self.spaces.remove(&space);
    }
}

/// A hash of a state: equal for equal states.
pub fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Whether the key is in the span. A reversed span is empty.
pub fn contains(span: &Span, key: &[u8]) -> bool {
    let after_lower = match &span.0 {
        Bound::Included(lower) => key >= lower.as_slice(),
        Bound::Excluded(lower) => key > lower.as_slice(),
        Bound::Unbounded => true,
    };
    let before_upper = match &span.1 {
        Bound::Included(upper) => key <= upper.as_slice(),
        Bound::Excluded(upper) => key < upper.as_slice(),
        Bound::Unbounded => true,
    };
    after_lower && before_upper
}

/// The span for a map's range, which takes no reversed one; `None` for one that is empty.
fn bounds(span: &Span) -> Option<Borrowed<'_>> {
    let is_empty = match span {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    };
    (!is_empty).then(|| (span.0.as_ref().map(Vec::as_slice), span.1.as_ref().map(Vec::as_slice)))
}

/// The newest write of a key at a moment.
fn newest(history: &[Written], at: Moment) -> Option<&Written> {
    history.iter().rev().find(|written| written.commit <= at.commit)
}

fn push(history: &mut Vec<Written>, written: Written) {
    match history.last_mut() {
        // A later operation of the same batch replaces the earlier one.
        Some(newest) if newest.commit == written.commit => *newest = written,
        _ => history.push(written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Change {
        Change::Put { space: 0, key: key.into(), value: value.into() }
    }

    #[test]
    fn every_commit_can_be_read_back() {
        let mut oracle = Oracle::new();
        oracle.commit(&[put("a", "1"), put("b", "1")]);
        oracle.commit(&[
            Change::DeleteRange { space: 0, span: (Bound::Unbounded, Bound::Unbounded) },
            put("b", "2"),
        ]);
        oracle.commit(&[Change::Delete { space: 0, key: b"b".to_vec() }]);
        assert_eq!(oracle.get(0, b"a", 1), Some(b"1".as_slice()));
        assert_eq!(oracle.get(0, b"a", 2), None);
        assert_eq!(oracle.get(0, b"b", 2), Some(b"2".as_slice()));
        assert!(oracle.state(3).is_empty() && oracle.state(0).is_empty());
        oracle.roll_back_to(2);
        assert_eq!(oracle.issued(), 2);
        assert_eq!(oracle.get(0, b"b", 9), Some(b"2".as_slice()));
    }

    #[test]
    fn a_merge_appends_to_the_newest_value() {
        let merge = |operand: &str| Change::Merge { space: 0, key: b"a".to_vec(), operand: operand.into() };
        let mut oracle = Oracle::new();
        oracle.commit(&[merge("1"), merge("2")]);
        oracle.commit(&[put("a", "3"), merge("4")]);
        oracle.commit(&[Change::Delete { space: 0, key: b"a".to_vec() }, merge("5"), merge("")]);
        assert_eq!(oracle.get(0, b"a", 1), Some(b"1,2".as_slice()));
        assert_eq!(oracle.get(0, b"a", 2), Some(b"3,4".as_slice()));
        assert_eq!(oracle.get(0, b"a", 3), Some(b"5,".as_slice()));
    }

    #[test]
    fn a_value_ends_with_its_life_and_operands_outlive_it() {
        let merge = |operand: &str| Change::Merge { space: 0, key: b"a".to_vec(), operand: operand.into() };
        let mut oracle = Oracle::new();
        let at = |commit, ms| Moment { commit, ms, turn: 0 };
        oracle.commit(&[put("a", "0")]);
        oracle.commit_with(&[put("a", "1")], |_| Some(10), false);
        assert_eq!(oracle.get(0, b"a", at(2, 9)), Some(b"1".as_slice()));
        assert_eq!(oracle.time_left(0, b"a", at(2, 9)), Some(Duration::from_millis(1)));
        assert_eq!((oracle.get(0, b"a", at(2, 10)), oracle.time_left(0, b"a", at(2, 10))), (None, None));
        assert_eq!(oracle.due(0, 10).collect::<Vec<_>>(), [b"a"]);
        oracle.commit(&[merge("2")]);
        assert_eq!(oracle.get(0, b"a", at(3, 9)), Some(b"1,2".as_slice()));
        assert_eq!(oracle.get(0, b"a", at(3, 10)), Some(b"2".as_slice()));
        assert_eq!(oracle.time_left(0, b"a", at(3, 9)), Some(Duration::MAX));
        assert!(oracle.set_life(0, b"a", at(3, 9), Some(20)) && oracle.issued() == 4);
        assert_eq!(oracle.get(0, b"a", at(4, 19)), Some(b"1,2".as_slice()));
        assert!(!oracle.set_life(0, b"a", at(4, 20), None) && oracle.issued() == 4);
        // A transaction applies operands to its own put.
        oracle.commit_with(&[put("a", "5"), merge("6")], |_| Some(30), true);
        assert_eq!(oracle.get(0, b"a", at(5, 29)), Some(b"5,6".as_slice()));
        assert_eq!(oracle.get(0, b"a", at(5, 30)), None);
    }

    #[test]
    fn a_verdict_holds_for_readers_that_begin_after_it() {
        let merge = Change::Merge { space: 0, key: b"a".to_vec(), operand: b"2".to_vec() };
        let mut oracle = Oracle::new();
        let at = |commit, turn| Moment { commit, ms: 0, turn };
        oracle.commit(&[put("a", "13.x"), put("b", "14.x")]);
        let due: Vec<_> = oracle.unfiltered(0, at(1, 1)).map(|(key, ..)| key.to_vec()).collect();
        assert_eq!(due, [b"a"]);
        oracle.compacted(0, b"a", Some(b"1~.x".to_vec()), 5);
        assert_eq!(oracle.get(0, b"a", at(1, 4)), Some(b"13.x".as_slice()));
        assert_eq!(oracle.get(0, b"a", at(1, 5)), Some(b"1~.x".as_slice()));
        oracle.commit(&[merge]);
        assert_eq!(oracle.get(0, b"a", at(2, 6)), Some(b"1~.x,2".as_slice()));
        assert_eq!(oracle.unfiltered(0, at(2, 6)).count(), 0);
    }

    #[test]
    fn a_dropped_value_uncovers_nothing() {
        let mut oracle = Oracle::new();
        let at = |commit, turn| Moment { commit, ms: 0, turn };
        oracle.commit(&[put("a", "1"), put("b", "1")]);
        oracle.commit(&[put("a", "2")]);
        oracle.compacted(0, b"a", None, 7);
        assert_eq!(oracle.get(0, b"a", at(2, 6)), Some(b"2".as_slice()));
        assert_eq!((oracle.get(0, b"a", at(2, 7)), oracle.time_left(0, b"a", at(2, 7))), (None, None));
        assert_eq!(oracle.writes(0, at(2, 7)).map(|(.., commit)| commit).collect::<Vec<_>>(), [1]);
        assert_eq!(oracle.newest(0), Some(2));
    }

    #[test]
    fn a_range_has_the_keys_of_its_span() {
        let mut oracle = Oracle::new();
        let keys = [b"a", b"b", b"c"].map(|key| key.to_vec());
        oracle.commit(&["a", "b", "c"].map(|key| put(key, "1")));
        let ends = keys.iter().flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())]);
        let ends: Vec<_> = ends.chain([Bound::Unbounded]).collect();
        for span in ends.iter().flat_map(|lower| ends.iter().map(|upper| (lower.clone(), upper.clone()))) {
            let want: Vec<_> = keys.iter().filter(|key| contains(&span, key)).collect();
            let got: Vec<_> = oracle.range(0, &span, 1).map(|(key, _)| key.to_vec()).collect();
            assert_eq!(got.iter().collect::<Vec<_>>(), want, "{span:?}");
            let mut deleted = oracle.clone();
            deleted.commit(&[Change::DeleteRange { space: 0, span: span.clone() }]);
            assert_eq!(deleted.pairs(0, &(Bound::Unbounded, Bound::Unbounded), 2).len(), 3 - want.len());
        }
    }

    #[test]
    fn reversed_spans_are_empty() {
        let span = (Bound::Included(b"b".to_vec()), Bound::Excluded(b"a".to_vec()));
        assert!(!contains(&span, b"a") && !contains(&span, b"b") && !contains(&span, b"aa"));
    }
}
