//! A replica of a run's database that follows its changes.
//!
//! The replica is an oracle of its own, which knows only what the stream has delivered. Ingested
//! pairs are not in the stream: there the follower takes those that the run has ingested.

use std::collections::VecDeque;
use std::ops::Bound;

use shamba::{ChangeBatch, ChangeOp, ChangePosition, Changes, ChangesOptions, Db};

use crate::compare::{failed, same_state};
use crate::oracle::{Change, Moment, Oracle, Pair, SPACES, State};

/// A subscriber and its copy.
pub struct Follower {
    replica: Oracle,
    position: ChangePosition,
    options: ChangesOptions,
    is_unsynced: bool,
    changes: Option<Changes>,
    /// Ingested pairs whose event has not come yet.
    ingested: VecDeque<Vec<Pair>>,
    /// Changes so far.
    pub taken: u64,
}

impl Follower {
    /// Follows an empty database from now on; `is_unsynced` as soon as changes are visible.
    pub fn new(db: &Db, is_unsynced: bool) -> Self {
        Self::from(db.change_position(), is_unsynced)
    }

    /// Follows a database from a position at which it was empty.
    pub fn from(position: ChangePosition, is_unsynced: bool) -> Self {
        Self {
            replica: Oracle::new(),
            position,
            options: ChangesOptions::new().include_unsynced(is_unsynced),
            is_unsynced,
            changes: None,
            ingested: VecDeque::new(),
            taken: 0,
        }
    }

    /// Ends the stream, which would keep the database open.
    pub fn pause(&mut self) {
        self.changes = None;
    }

    /// Notes what the event of an ingest does not have.
    pub fn note_ingested(&mut self, pairs: &[Pair]) {
        if !pairs.is_empty() {
            self.ingested.push_back(pairs.to_vec());
        }
    }

    /// Continues in a database that was opened again, and that has lost nothing.
    ///
    /// # Errors
    /// If the position is refused.
    pub fn resume(&mut self, db: &Db) -> Result<(), String> {
        let refused = |error| format!("position {} is refused: {error:?}", self.position);
        self.changes = Some(db.changes_since_with(self.position, self.options).map_err(refused)?);
        Ok(())
    }

    /// Takes all changes that the stream has, and returns whether it delivers at once what is
    /// visible.
    ///
    /// # Errors
    /// A change that cannot be, or a failure.
    pub fn follow(&mut self, db: &Db) -> Result<bool, String> {
        if self.changes.is_none() {
            self.resume(db)?;
        }
        while let Some(changes) = &mut self.changes {
            let Some(change) = changes.try_next().map_err(failed("a stream of changes"))? else { break };
            if change.position().sequence <= self.position.sequence {
                return Err(format!("the change at {} comes after {}", change.position(), self.position));
            }
            self.position = change.position();
            self.taken += 1;
            self.take(&change)?;
        }
        Ok(self.is_unsynced)
    }

    /// Takes all changes, and compares the replica with the oracle of the database. Everything that
    /// was written must have been delivered.
    ///
    /// # Errors
    /// The difference.
    pub fn expect_equal(&mut self, db: &Db, oracle: &Oracle, now: Moment) -> Result<(), String> {
        self.expect_state(db, &oracle.state(now), now)
    }

    /// Takes all changes, and compares the state of the replica at a time.
    ///
    /// # Errors
    /// The difference.
    pub fn expect_state(&mut self, db: &Db, want: &State, now: Moment) -> Result<(), String> {
        self.follow(db)?;
        let got = self.replica.state(Moment { commit: self.replica.issued(), ..now });
        let at = |error| format!("a replica at {}, unsynced={}: {error}", self.position, self.is_unsynced);
        same_state(&got, want).map_err(at)
    }

    fn take(&mut self, change: &shamba::Change) -> Result<(), String> {
        match change {
            shamba::Change::Batch(batch) => self.take_batch(batch)?,
            shamba::Change::Ingested { keyspace, entries, first, last, .. } => {
                let pairs = self.ingested.pop_front().ok_or("an ingest that was none")?;
                let ends =
                    pairs.first().zip(pairs.last()).map(|((first, _), (last, _))| (&first[..], &last[..]));
                if ends != Some((&first[..], &last[..])) || pairs.len() as u64 != *entries {
                    return Err(format!("an ingest of {entries} entries, and not {}", pairs.len()));
                }
                let space = space_of(keyspace)?;
                let put = |(key, value)| Change::Put { space, key, value };
                self.replica.commit(&pairs.into_iter().map(put).collect::<Vec<_>>());
            }
            shamba::Change::KeyspaceCreated { .. } => {}
            shamba::Change::KeyspaceDropped { keyspace, .. } => self.replica.drop_space(space_of(keyspace)?),
            other => return Err(format!("an unknown change: {other:?}")),
        }
        Ok(())
    }

    fn take_batch(&mut self, batch: &ChangeBatch) -> Result<(), String> {
        let mut ends = VecDeque::new();
        let mut taken = Vec::new();
        for (keyspace, op) in batch.operations() {
            let space = space_of(keyspace)?;
            taken.push(match op {
                ChangeOp::Put { key, value, expiry_ms, .. } => {
                    ends.push_back(expiry_ms);
                    Change::Put { space, key: key.to_vec(), value: value.to_vec() }
                }
                ChangeOp::Delete { key, .. } => Change::Delete { space, key: key.to_vec() },
                ChangeOp::Merge { key, operand, .. } => {
                    Change::Merge { space, key: key.to_vec(), operand: operand.to_vec() }
                }
                ChangeOp::DeleteRange { start, end, .. } => {
                    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
                    Change::DeleteRange { space, span: (Bound::Included(start.to_vec()), end) }
                }
                other => return Err(format!("an unknown operation: {other:?}")),
            });
        }
        // The oracle asks once for each put, in their order.
        self.replica.commit_with(&taken, |_| ends.pop_front().flatten(), false);
        Ok(())
    }
}

fn space_of(name: &str) -> Result<usize, String> {
    SPACES.iter().position(|space| *space == name).ok_or_else(|| format!("a change of keyspace {name:?}"))
}
