//! The book: the expected content of a database according to the acknowledgements of its victims.
//!
//! It holds a state and is compared with the commits that were sent since, each with its outcome.
//! The state found after a life must be the state after a prefix of those commits that includes
//! every commit that must survive. No commit in between may be missing or half present, and no
//! refused commit may be present.

use std::collections::BTreeMap;

use crate::operators::appended;
use crate::oracle::{Change, SPACES, State, contains};

/// The outcome of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was answered `ok`.
    Acked,
    /// It was answered with an error that does not tell whether it is present after a reopen.
    Unknown,
    /// It was refused before anything was written.
    Rejected,
    /// It got no reply.
    Unanswered,
}

/// A commit that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its changes, in order.
    pub changes: Vec<Change>,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The content of a database when it was last read.
#[derive(Clone, Debug, Default)]
pub struct Book {
    state: State,
}

impl Book {
    /// An empty database.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last known state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Compares the state found with the commits sent, and makes it the book's new state. The
    /// acknowledged commits among the first `floor` must have survived. Returns the number of
    /// commits in it.
    ///
    /// # Errors
    /// The state is none of the legal ones.
    pub fn reconcile(&mut self, sent: &[Sent], floor: usize, found: &State) -> Result<usize, String> {
        let mut at = self.state.clone();
        let last_acked = sent.iter().rposition(|commit| commit.outcome == Outcome::Acked);
        let mut taken = 0;
        let mut legal = None;
        for (i, commit) in sent.iter().enumerate() {
            if i >= floor && at == *found {
                legal = Some(taken);
                break;
            }
            match commit.outcome {
                Outcome::Acked | Outcome::Unanswered => {
                    apply(&mut at, &commit.changes);
                    taken += 1;
                }
                // Present as a whole or absent, where no later commit was acknowledged.
                Outcome::Unknown if last_acked.is_none_or(|last| last < i) && i >= floor => {
                    let mut with = at.clone();
                    apply(&mut with, &commit.changes);
                    if with == *found {
                        legal = Some(taken + 1);
                        break;
                    }
                }
                Outcome::Unknown | Outcome::Rejected => {}
            }
        }
        if legal.is_none() && at == *found {
            legal = Some(taken);
        }
        let Some(taken) = legal else { return Err(self.story(sent, floor, found)) };
        self.state.clone_from(found);
        Ok(taken)
    }

    /// The differences between the state found and the nearest legal one.
    fn story(&self, sent: &[Sent], floor: usize, found: &State) -> String {
        let mut at = self.state.clone();
        let (mut nearest, mut least, mut after) = (at.clone(), usize::MAX, 0);
        for i in 0..=sent.len() {
            if i >= floor {
                let count = differences(&at, found).len();
                if count < least {
                    (nearest, least, after) = (at.clone(), count, i);
                }
            }
            if let Some(Sent { changes, outcome: Outcome::Acked | Outcome::Unanswered }) = sent.get(i) {
                apply(&mut at, changes);
            }
        }
        let count = |outcome| sent.iter().filter(|commit| commit.outcome == outcome).count();
        let lines = differences(&nearest, found).into_iter().take(8).collect::<Vec<_>>().join("\n    ");
        format!(
            "what is there is the state of no prefix of {} commits ({} acknowledged, {} of unknown outcome, {} rejected, {} \
             unanswered; the first {floor} had to be there); nearest is the one after {after}, with {least} differences:\n    {lines}",
            sent.len(),
            count(Outcome::Acked),
            count(Outcome::Unknown),
            count(Outcome::Rejected),
            count(Outcome::Unanswered),
        )
    }
}

/// Applies a commit to a state.
pub fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put { space, key, value } => {
                state.entry(SPACES[*space].to_owned()).or_default().insert(key.clone(), value.clone());
            }
            Change::Delete { space, key } => {
                state.get_mut(SPACES[*space]).map(|pairs| pairs.remove(key));
            }
            Change::Merge { space, key, operand } => {
                let pairs = state.entry(SPACES[*space].to_owned()).or_default();
                let value = appended(pairs.get(key).map(Vec::as_slice), operand);
                pairs.insert(key.clone(), value);
            }
            Change::DeleteRange { space, span } => {
                if let Some(pairs) = state.get_mut(SPACES[*space]) {
                    pairs.retain(|key, _| !contains(span, key));
                }
            }
        }
    }
    // An empty keyspace cannot be distinguished from a missing one.
    state.retain(|_, pairs| !pairs.is_empty());
}

fn differences(want: &State, found: &State) -> Vec<String> {
    let none = BTreeMap::new();
    let mut lines = Vec::new();
    for name in SPACES {
        let (want, found) = (want.get(name).unwrap_or(&none), found.get(name).unwrap_or(&none));
        for key in want.keys().chain(found.keys().filter(|key| !want.contains_key(*key))) {
            let show = |value: Option<&Vec<u8>>| {
                value.map_or("nothing".to_owned(), |value| crate::ops::shown(value))
            };
            if want.get(key) != found.get(key) {
                let (want, found) = (show(want.get(key)), show(found.get(key)));
                lines.push(format!("{name}:{}: {found} is there, {want} is wanted", crate::ops::shown(key)));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Change {
        Change::Put { space: 0, key: key.into(), value: value.into() }
    }

    fn sent(outcomes: &[Outcome]) -> Vec<Sent> {
        let commit = |(i, outcome): (usize, &Outcome)| {
            let key = format!("key{i}");
            Sent { changes: vec![put(&key, "left"), put("newest", &key)], outcome: *outcome }
        };
        outcomes.iter().enumerate().map(commit).collect()
    }

    /// The state of the commits with these numbers.
    fn state(sent: &[Sent], numbers: &[usize]) -> State {
        let mut state = State::new();
        numbers.iter().for_each(|number| apply(&mut state, &sent[*number].changes));
        state
    }

    #[test]
    fn prefixes_are_legal_and_nothing_else() {
        use Outcome::{Acked, Rejected, Unanswered, Unknown};
        let judge = |outcomes: &[Outcome], floor: usize, numbers: &[usize]| {
            let sent = sent(outcomes);
            Book::new().reconcile(&sent, floor, &state(&sent, numbers))
        };
        let all = [Acked, Acked, Unanswered, Unanswered];
        assert_eq!(judge(&all, 2, &[0, 1]), Ok(2));
        assert_eq!(judge(&all, 2, &[0, 1, 2, 3]), Ok(4));
        assert!(judge(&all, 2, &[0]).is_err(), "an acknowledged commit is lost");
        assert!(judge(&all, 2, &[0, 1, 3]).is_err(), "a hole");
        assert_eq!(judge(&all, 1, &[0]), Ok(1), "its loss was allowed");
        assert!(judge(&all, 1, &[]).is_err());
        let refused = [Acked, Rejected, Acked, Unknown, Rejected];
        assert_eq!(judge(&refused, 3, &[0, 2]), Ok(2));
        assert_eq!(judge(&refused, 3, &[0, 2, 3]), Ok(3), "of unknown outcome");
        assert!(judge(&refused, 3, &[0, 1, 2]).is_err(), "it was refused");
        assert!(judge(&refused, 3, &[0, 2, 4]).is_err());
        assert!(judge(&[Unknown, Acked], 2, &[0, 1]).is_err(), "the log went on without it");
        let mut half = state(&sent(&all), &[0, 1]);
        half.entry(SPACES[0].into()).or_default().remove(b"key1".as_slice());
        let error = Book::new().reconcile(&sent(&all), 2, &half).expect_err("half a batch");
        assert!(error.contains("key1") && error.contains("nothing is there"), "{error}");
    }

    #[test]
    fn a_range_delete_ends_before_its_end() {
        let mut now = State::new();
        apply(&mut now, &[put("a", "1"), put("b", "2"), put("c", "3")]);
        let span = (std::ops::Bound::Included(b"a".to_vec()), std::ops::Bound::Excluded(b"c".to_vec()));
        apply(&mut now, &[Change::DeleteRange { space: 0, span }]);
        assert_eq!(now[SPACES[0]].len(), 1);
        apply(&mut now, &[Change::Delete { space: 0, key: b"c".to_vec() }]);
        assert!(now.is_empty());
    }
}
