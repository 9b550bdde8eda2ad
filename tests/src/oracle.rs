//! The oracle: the expected content of the database, as an ordered map from key to history.
//!
//! Every commit (a batch, or a single write) gets the next number. A history is the list of a key's
//! values by commit, newest last, with `None` for "deleted". So the state after any commit can be
//! read back: the state that a crash may leave, or that a snapshot sees. A range delete writes
//! `None` into every key that it covers, so the model has no range tombstones and cannot share a
//! mistake about them. A merge writes the whole value that it makes, so the model has no operands
//! either.
//!
//! There are two watermarks: `issued`, the number of acknowledged commits, and `durable`, the
//! number of commits that are promised to survive a power cut.
//!
//! The oracle is outside the file system under test.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

use crate::operators::appended;

/// A range of keys, as the engine takes it.
pub type Span = (Bound<Vec<u8>>, Bound<Vec<u8>>);

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

#[derive(Clone, Debug)]
struct Written {
    commit: u64,
    value: Option<Vec<u8>>,
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

    /// Applies one commit and returns its number.
    pub fn commit(&mut self, changes: &[Change]) -> u64 {
        self.issued += 1;
        let commit = self.issued;
        for change in changes {
            match change {
                Change::Put { space, key, value } => self.write(*space, key, Some(value.clone()), commit),
                Change::Delete { space, key } => self.write(*space, key, None, commit),
                Change::Merge { space, key, operand } => {
                    let value = appended(self.get(*space, key, commit), operand);
                    self.write(*space, key, Some(value), commit);
                }
                Change::DeleteRange { space, span } => {
                    for (key, history) in self.spaces.entry(*space).or_default() {
                        let lives = history.last().is_some_and(|newest| newest.value.is_some());
                        if lives && contains(span, key) {
                            push(history, commit, None);
                        }
                    }
                }
            }
        }
        commit
    }

    fn write(&mut self, space: usize, key: &[u8], value: Option<Vec<u8>>, commit: u64) {
        let history = self.spaces.entry(space).or_default().entry(key.to_vec()).or_default();
        push(history, commit, value);
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

    /// The value of a key after commit `at`.
    pub fn get(&self, space: usize, key: &[u8], at: u64) -> Option<&[u8]> {
        visible(self.spaces.get(&space)?.get(key)?, at)
    }

    /// The live pairs of a span after commit `at`, ascending.
    pub fn range<'a>(
        &'a self,
        space: usize,
        span: &'a Span,
        at: u64,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + 'a {
        let keys = self.spaces.get(&space).into_iter().flatten();
        keys.filter(move |(key, _)| contains(span, key))
            .filter_map(move |(key, history)| Some((key.as_slice(), visible(history, at)?)))
    }

    /// The live pairs of a span after commit `at`, copied.
    pub fn pairs(&self, space: usize, span: &Span, at: u64) -> Vec<Pair> {
        self.range(space, span, at).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    /// Every key that was ever written in a keyspace.
    pub fn keys(&self, space: usize) -> impl Iterator<Item = &[u8]> {
        self.spaces.get(&space).into_iter().flat_map(|keys| keys.keys().map(Vec::as_slice))
    }

    /// The whole state after commit `at`.
    pub fn state(&self, at: u64) -> State {
        let mut state = State::new();
        for (space, keys) in &self.spaces {
            let live = keys
                .iter()
                .filter_map(|(key, history)| Some((key.clone(), visible(history, at)?.to_vec())))
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

fn visible(history: &[Written], at: u64) -> Option<&[u8]> {
    history.iter().rev().find(|written| written.commit <= at)?.value.as_deref()
}

fn push(history: &mut Vec<Written>, commit: u64, value: Option<Vec<u8>>) {
    match history.last_mut() {
        // A later operation of the same batch replaces the earlier one.
        Some(newest) if newest.commit == commit => newest.value = value,
        _ => history.push(Written { commit, value }),
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
    fn reversed_spans_are_empty() {
        let span = (Bound::Included(b"b".to_vec()), Bound::Excluded(b"a".to_vec()));
        assert!(!contains(&span, b"a") && !contains(&span, b"b") && !contains(&span, b"aa"));
    }
}
