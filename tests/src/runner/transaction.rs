//! Transactions of a run: what they read, whether they conflict with a write outside of them, and
//! what they leave, compared with the oracle.

use std::collections::BTreeMap;
use std::ops::Bound;

use shamba::{Durability, ErrorKind, Isolation, Keyspace, Transaction};

use super::Runner;
use crate::compare::{self, failed};
use crate::operators::appended;
use crate::ops::TransactionOp;
use crate::oracle::{Change, Moment, Pair, Span, contains};

impl Runner {
    /// Runs a transaction from its beginning to its commit, with a write outside of it in between.
    ///
    /// # Errors
    /// A difference from the oracle, or a failure.
    pub(super) fn transaction(&mut self, op: &TransactionOp) -> Result<(), String> {
        let TransactionOp { gets, scan, changes, outside, ticks, is_snapshot, sync } = op;
        let isolation = if *is_snapshot { Isolation::Snapshot } else { Isolation::Serializable };
        let mut transaction = self.spaces()?.db.transaction_with(isolation);
        let at = self.now();
        self.transaction_gets(&transaction, gets, at, !is_snapshot)?;
        let (space, span, reverse) = scan;
        self.transaction_scan(&transaction, (*space, span, *reverse), at, &[])?;
        if let Some(outside) = outside {
            self.write(outside)?;
        }
        if *ticks > 0 {
            self.pass(*ticks)?;
        }
        // It still reads the state as of its beginning, with its own writes.
        self.transaction_gets(&transaction, gets, at, !is_snapshot)?;
        for change in changes {
            let written = match change {
                Change::Put { space, key, value } => match (self.handle(*space)?, self.time_to_live(value)) {
                    (None, None) => transaction.put(key, value),
                    (Some(other), None) => transaction.put_in(&other, key, value),
                    (None, Some(ttl)) => transaction.put_expiring(key, value, ttl),
                    (Some(other), Some(ttl)) => transaction.put_expiring_in(&other, key, value, ttl),
                },
                Change::Delete { space, key } => match self.handle(*space)? {
                    None => transaction.delete(key),
                    Some(other) => transaction.delete_in(&other, key),
                },
                Change::Merge { space, key, operand } => match self.handle(*space)? {
                    None => transaction.merge(key, operand),
                    Some(other) => transaction.merge_in(&other, key, operand),
                },
                Change::DeleteRange { space, span } => match self.handle(*space)? {
                    None => transaction.delete_range(span.clone()),
                    Some(other) => transaction.delete_range_in(&other, span.clone()),
                },
            };
            written.map_err(failed("a write of a transaction"))?;
        }
        self.transaction_scan(&transaction, (*space, span, !reverse), at, changes)?;
        if *is_snapshot {
            // In the other level these reads would be checked at the commit.
            self.transaction_own(&transaction, at, changes)?;
        }

        let writes_any = !transaction.is_empty();
        let depends_on: Vec<(usize, Area)> = match is_snapshot {
            // A merge replaces nothing, so nothing can change under it.
            true => changes.iter().filter(|change| !is_merge(change)).map(area).collect(),
            false => {
                let key = |(space, key): &(usize, Vec<u8>)| (*space, alone(key));
                gets.iter().map(key).chain([(*space, half_open(span))]).collect()
            }
        };
        let is_touched = |outside: &Change| depends_on.iter().any(|depends| overlap(&area(outside), depends));
        let refused = writes_any && outside.as_ref().is_some_and(is_touched);
        let is_synced = *sync && !self.vector.no_wal;
        let outcome = match is_synced {
            true => transaction.commit_with(Durability::Sync),
            false => transaction.commit(),
        };
        match outcome {
            Ok(()) if refused => Err("a conflict was missed".to_owned()),
            Ok(()) => {
                self.tally.add("transactions", 1);
                if writes_any {
                    self.commit(changes, true, is_synced || self.vector.durability == Durability::Sync);
                }
                Ok(())
            }
            Err(error) if refused && error.kind() == ErrorKind::Conflict => {
                self.tally.add("transactions refused", 1);
                Ok(())
            }
            Err(error) => Err(format!("a transaction failed: {error}")),
        }
    }

    /// The handle of a keyspace; none of the default one.
    fn handle(&self, space: usize) -> Result<Option<Keyspace>, String> {
        let Some(at) = space.checked_sub(1) else { return Ok(None) };
        self.spaces()?.others[at].clone().map(Some).ok_or_else(|| "keyspace missing".to_owned())
    }

    fn transaction_gets(
        &mut self,
        transaction: &Transaction,
        gets: &[(usize, Vec<u8>)],
        at: Moment,
        is_noted: bool,
    ) -> Result<(), String> {
        for (space, key) in gets {
            // A key that is noted is hashed once, for its lookup and for the check.
            self.hashed_gets += u64::from(is_noted);
            let found = match self.handle(*space)? {
                None => transaction.get(key),
                Some(other) => transaction.get_in(&other, key),
            };
            let found = found.map_err(failed("get of a transaction"))?;
            let wanted = self.oracle.get(*space, key, at);
            compare::same_value("get of a transaction", key, found.as_deref(), wanted)?;
        }
        Ok(())
    }

    /// Reads every key that the transaction has written one by one.
    fn transaction_own(&self, transaction: &Transaction, at: Moment, own: &[Change]) -> Result<(), String> {
        for change in own {
            let (Change::Put { space, key, .. }
            | Change::Delete { space, key }
            | Change::Merge { space, key, .. }) = change
            else {
                continue;
            };
            let found = match self.handle(*space)? {
                None => transaction.get(key),
                Some(other) => transaction.get_in(&other, key),
            };
            let found = found.map_err(failed("get of an own write"))?;
            let span = (Bound::Included(key.clone()), Bound::Included(key.clone()));
            let wanted = self.with_own(*space, &span, at, own).pop().map(|(_, value)| value);
            compare::same_value("get of an own write", key, found.as_deref(), wanted.as_deref())?;
        }
        Ok(())
    }

    /// The pairs of a span at a moment, with the changes of a transaction applied to them.
    fn with_own(&self, space: usize, span: &Span, at: Moment, own: &[Change]) -> Vec<Pair> {
        let mut pairs: BTreeMap<Vec<u8>, Vec<u8>> = self.oracle.pairs(space, span, at).into_iter().collect();
        for change in own {
            match change {
                Change::Put { space: of, key, value } if *of == space && contains(span, key) => {
                    drop(pairs.insert(key.clone(), value.clone()));
                }
                Change::Delete { space: of, key } if *of == space => drop(pairs.remove(key)),
                Change::Merge { space: of, key, operand } if *of == space && contains(span, key) => {
                    let value = appended(pairs.get(key).map(Vec::as_slice), operand);
                    pairs.insert(key.clone(), value);
                }
                Change::DeleteRange { space: of, span } if *of == space => {
                    pairs.retain(|key, _| !contains(span, key));
                }
                _ => {}
            }
        }
        pairs.into_iter().collect()
    }

    fn transaction_scan(
        &self,
        transaction: &Transaction,
        (space, span, reverse): (usize, &Span, bool),
        at: Moment,
        own: &[Change],
    ) -> Result<(), String> {
        let mut wanted = self.with_own(space, span, at, own);
        let iter = match self.handle(space)? {
            None => transaction.range(span.clone()),
            Some(other) => transaction.range_in(&other, span.clone()),
        };
        let found: shamba::Result<Vec<Pair>> = match reverse {
            true => {
                wanted.reverse();
                iter.rev().map(compare::owned).collect()
            }
            false => iter.map(compare::owned).collect(),
        };
        let found = found.map_err(failed("scan of a transaction"))?;
        if found != wanted {
            let keys =
                |pairs: &[Pair]| pairs.iter().map(|(key, _)| crate::ops::shown(key)).collect::<Vec<_>>();
            return Err(format!(
                "a scan of a transaction, reverse={reverse}, gave {:?} and not {:?} (or other values)",
                keys(&found),
                keys(&wanted)
            ));
        }
        Ok(())
    }
}

/// The keys from a lower bound, up to an upper one that is not among them; `None`: to the end.
type Area = (Vec<u8>, Option<Vec<u8>>);

fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn alone(key: &[u8]) -> Area {
    (key.to_vec(), Some(behind(key)))
}

fn half_open((lower, upper): &Span) -> Area {
    let lower = match lower {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Vec::new(),
    };
    let upper = match upper {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    (lower, upper)
}

fn is_merge(change: &Change) -> bool {
    matches!(change, Change::Merge { .. })
}

/// The keyspace and the keys that a change writes.
fn area(change: &Change) -> (usize, Area) {
    match change {
        Change::Put { space, key, .. } | Change::Delete { space, key } | Change::Merge { space, key, .. } => {
            (*space, alone(key))
        }
        Change::DeleteRange { space, span } => (*space, half_open(span)),
    }
}

fn overlap((space, one): &(usize, Area), (other_space, other): &(usize, Area)) -> bool {
    let is_below = |key: &[u8], upper: &Option<Vec<u8>>| upper.as_ref().is_none_or(|upper| key < &upper[..]);
    let has_keys = |(lower, upper): &Area| is_below(lower, upper);
    let both = has_keys(one) && has_keys(other) && is_below(&one.0, &other.1) && is_below(&other.0, &one.1);
    space == other_space && both
}
