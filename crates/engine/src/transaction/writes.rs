//! The writes of a transaction that are not committed: the newest state of every key and range.
//!
//! For each keyspace there is a map from keys to values, to their absence or to operands of the
//! merge operator, and a set of deleted ranges. A delete of a range removes the keys in it from the
//! map; a later put of such a key comes into the map, which stands above the ranges. So the commit
//! writes the ranges first, then the keys, each once.
//!
//! While there is a savepoint, every change is followed by what reverses it.
//!
//! Invariant: the changes that are noted, reversed from the last to the first, lead to the state of
//! the first savepoint.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shamba_key::{Expiry, KeyspaceId, Operand};
use shamba_log::wal::OpRef;
use shamba_tree::version::KeyRange;

use super::ranges::{Added, RANGE_BYTES, RangeSet};
use crate::error::{Error, Result};
use crate::writer::operations::{Operations, with_put};

/// Memory of one key besides its bytes and its value: its slot in a map node that is two thirds
/// full, and the reference counts of key and value.
const KEY_BYTES: u64 = 160;

/// Memory of one operand besides its bytes.
const OPERAND_BYTES: usize = size_of::<Bytes>() + 16;

/// Number of savepoints made in this process, so that none is taken for one of another transaction.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(0);

/// Maximum memory that the operations of a commit reserve ahead.
const RESERVED_BYTES_MAX: u64 = 1 << 20;

/// State of a key in a transaction.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// It has this value, until its expiry if that is set.
    Put(Bytes, Option<Expiry>),
    /// It has none.
    Deleted,
    /// It has what the merge operator makes of the value before the transaction and of these
    /// operands, oldest first.
    Merged(Vec<Bytes>),
}

impl State {
    /// Bytes of values and operands.
    fn bytes(&self) -> usize {
        match self {
            Self::Put(value, _) => value.len(),
            Self::Deleted => 0,
            Self::Merged(operands) => operands.iter().map(|one| one.len() + OPERAND_BYTES).sum(),
        }
    }

    /// Whether it depends on the value before the transaction.
    pub fn is_merged(&self) -> bool {
        matches!(self, Self::Merged(_))
    }
}

/// The writes of a transaction.
#[derive(Default)]
pub(super) struct Writes {
    keyspaces: BTreeMap<KeyspaceId, KeyspaceWrites>,
    savepoints: Vec<Mark>,
    undo: Vec<Undo>,
    bytes: u64,
}

/// The writes to one keyspace.
#[derive(Default)]
pub(super) struct KeyspaceWrites {
    keys: BTreeMap<Bytes, State>,
    deleted: RangeSet,
}

/// A moment in a transaction, to which its writes can be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint(u64);

/// A savepoint and the number of changes before it.
struct Mark {
    savepoint: Savepoint,
    changes: usize,
}

/// The reverse of a change.
enum Undo {
    Key {
        keyspace: KeyspaceId,
        key: Bytes,
        before: Option<State>,
    },
    /// Takes the last operand back.
    Operand {
        keyspace: KeyspaceId,
        key: Bytes,
    },
    Range {
        keyspace: KeyspaceId,
        removed: Vec<(Bytes, State)>,
        added: Option<Added>,
    },
}

impl Undo {
    fn bytes(&self) -> u64 {
        match self {
            Self::Key { key, before, .. } => key_bytes(key.len(), before.as_ref().unwrap_or(&State::Deleted)),
            Self::Operand { key, .. } => key_bytes(key.len(), &State::Deleted),
            Self::Range { removed, added, .. } => {
                let keys_bytes: u64 = removed.iter().map(|(key, state)| key_bytes(key.len(), state)).sum();
                keys_bytes + added.as_ref().map_or(0, Added::bytes) + size_of::<Self>() as u64
            }
        }
    }
}

fn key_bytes(key_len: usize, state: &State) -> u64 {
    (key_len + state.bytes()) as u64 + KEY_BYTES
}

/// Memory that an operation adds at most, without what reverses it.
pub(super) fn bytes_of(op: OpRef<'_>) -> u64 {
    match op {
        OpRef::Put { key, value } => (key.len() + value.len()) as u64 + KEY_BYTES,
        OpRef::PutExpiring { key, stored } => (key.len() + stored.len()) as u64 + KEY_BYTES,
        OpRef::Delete { key } => key.len() as u64 + KEY_BYTES,
        OpRef::Merge { key, operand } => (key.len() + operand.len() + OPERAND_BYTES) as u64 + KEY_BYTES,
        OpRef::RangeDelete { start, end } => (start.len() + end.map_or(0, <[u8]>::len)) as u64 + RANGE_BYTES,
    }
}

impl Writes {
    /// Sets the state of a key.
    pub fn set(&mut self, keyspace: KeyspaceId, key: Bytes, state: State) {
        let key_len = key.len();
        let undo_key = if self.savepoints.is_empty() { Bytes::new() } else { key.clone() };
        self.bytes += key_bytes(key_len, &state);
        let before = self.keyspaces.entry(keyspace).or_default().keys.insert(key, state);
        self.bytes -= before.as_ref().map_or(0, |before| key_bytes(key_len, before));
        self.note(|| Undo::Key { keyspace, key: undo_key, before });
    }

    /// Adds an operand to a key that the transaction has not set or deleted.
    pub fn merge(&mut self, keyspace: KeyspaceId, key: &[u8], operand: Bytes) {
        let keys = &mut self.keyspaces.entry(keyspace).or_default().keys;
        let operand_bytes = (operand.len() + OPERAND_BYTES) as u64;
        match keys.get_mut(key) {
            Some(State::Merged(operands)) => {
                operands.push(operand);
                self.bytes += operand_bytes;
                self.note(|| Undo::Operand { keyspace, key: Bytes::copy_from_slice(key) });
            }
            other => {
                debug_assert!(other.is_none(), "an operand over the own write {other:?}");
                self.set(keyspace, Bytes::copy_from_slice(key), State::Merged(vec![operand]));
            }
        }
    }

    /// Deletes every key of a range, which is not empty.
    pub fn delete_range(&mut self, keyspace: KeyspaceId, range: KeyRange) {
        let writes = self.keyspaces.entry(keyspace).or_default();
        let keys: Vec<Bytes> = writes.range(&range).map(|(key, _)| key.clone()).collect();
        let remove = |key: Bytes| writes.keys.remove_entry(&key);
        let removed: Vec<(Bytes, State)> = keys.into_iter().filter_map(remove).collect();
        let before_bytes = writes.deleted.bytes();
        let added = writes.deleted.add(range);
        self.bytes = (self.bytes + writes.deleted.bytes()).saturating_sub(before_bytes);
        self.bytes -= removed.iter().map(|(key, state)| key_bytes(key.len(), state)).sum::<u64>();
        self.note(|| Undo::Range { keyspace, removed, added });
    }

    fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if !self.savepoints.is_empty() {
            let undo = undo();
            self.bytes += undo.bytes();
            self.undo.push(undo);
        }
    }

    /// The writes to a keyspace, if there are any.
    pub fn of(&self, keyspace: KeyspaceId) -> Option<&KeyspaceWrites> {
        self.keyspaces.get(&keyspace)
    }

    /// The writes to all keyspaces.
    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, &KeyspaceWrites)> {
        self.keyspaces.iter().filter(|(_, writes)| writes.len() > 0).map(|(id, writes)| (*id, writes))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keyspaces.values().all(|writes| writes.len() == 0)
    }

    /// Number of keys and ranges written.
    pub fn len(&self) -> usize {
        self.keyspaces.values().map(KeyspaceWrites::len).sum()
    }

    /// Memory of all writes, and of what reverses them.
    pub fn bytes(&self) -> u64 {
        self.bytes + size_of_val::<[Mark]>(&self.savepoints) as u64
    }

    /// A mark of the present state.
    pub fn savepoint(&mut self) -> Savepoint {
        let savepoint = Savepoint(SAVEPOINTS.fetch_add(1, Ordering::Relaxed));
        self.savepoints.push(Mark { savepoint, changes: self.undo.len() });
        savepoint
    }

    /// Takes back every write since a savepoint, and forgets the later ones.
    ///
    /// # Errors
    /// `Invalid` if it was released, or an earlier one was returned to, or all was rolled back.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.place_of(savepoint)?;
        let changes = self.savepoints[at].changes;
        for undo in self.undo.split_off(changes).into_iter().rev() {
            self.bytes -= undo.bytes();
            self.reverse(undo);
        }
        self.savepoints.truncate(at + 1);
        Ok(())
    }

    /// Forgets a savepoint and the later ones; the writes stay.
    ///
    /// # Errors
    /// As [`Self::roll_back_to`].
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.place_of(savepoint)?;
        self.savepoints.truncate(at);
        if at == 0 {
            self.bytes -= self.undo.drain(..).map(|undo| undo.bytes()).sum::<u64>();
        }
        Ok(())
    }

    fn place_of(&self, savepoint: Savepoint) -> Result<usize> {
        let place = self.savepoints.iter().position(|mark| mark.savepoint == savepoint);
        place.ok_or_else(|| {
            Error::invalid(
                "the savepoint belongs to another transaction, or is released or rolled back beyond",
            )
        })
    }

    fn reverse(&mut self, undo: Undo) {
        match undo {
            Undo::Key { keyspace, key, before } => {
                let keys = &mut self.keyspaces.entry(keyspace).or_default().keys;
                self.bytes += before.as_ref().map_or(0, |before| key_bytes(key.len(), before));
                let undone = match before {
                    Some(before) => keys.insert(key.clone(), before),
                    None => keys.remove(&key),
                };
                debug_assert!(undone.is_some(), "a change of {key:?} is reversed that was not made");
                self.bytes -= undone.map_or(0, |undone| key_bytes(key.len(), &undone));
            }
            Undo::Operand { keyspace, key } => {
                let keys = &mut self.keyspaces.entry(keyspace).or_default().keys;
                let undone = match keys.get_mut(&key) {
                    Some(State::Merged(operands)) => operands.pop(),
                    _ => None,
                };
                debug_assert!(undone.is_some(), "an operand for {key:?} is taken back that was not added");
                self.bytes -= undone.map_or(0, |undone| (undone.len() + OPERAND_BYTES) as u64);
            }
            Undo::Range { keyspace, removed, added } => {
                let writes = self.keyspaces.entry(keyspace).or_default();
                let before_bytes = writes.deleted.bytes();
                if let Some(added) = added {
                    writes.deleted.undo(added);
                }
                self.bytes = (self.bytes + writes.deleted.bytes()).saturating_sub(before_bytes);
                self.bytes += removed.iter().map(|(key, state)| key_bytes(key.len(), state)).sum::<u64>();
                writes.keys.extend(removed);
            }
        }
    }

    /// Takes back every write.
    pub fn clear(&mut self) {
        self.keyspaces.clear();
        self.savepoints.clear();
        self.undo.clear();
        self.bytes = 0;
    }

    /// The operations that write the state.
    ///
    /// # Errors
    /// `Invalid` for more than a batch can have.
    pub fn operations(&self) -> Result<Operations> {
        let mut operations = Operations::default();
        // More than the operations take, unless the bookkeeping of a key is less than its header.
        operations.encoded.reserve(usize::try_from(self.bytes.min(RESERVED_BYTES_MAX)).unwrap_or_default());
        for (keyspace, writes) in self.iter() {
            for range in writes.deleted.iter() {
                let (start, end) = (&range.lower[..], range.upper.as_deref());
                operations.push(keyspace, OpRef::RangeDelete { start, end })?;
            }
            for (key, state) in &writes.keys {
                match state {
                    State::Put(value, expiry) => {
                        with_put(key, value, *expiry, |op| operations.push(keyspace, op))?;
                    }
                    State::Deleted => operations.push(keyspace, OpRef::Delete { key })?,
                    State::Merged(operands) => {
                        for operand in operands {
                            let operand = &Operand::single(operand).encode();
                            operations.push(keyspace, OpRef::Merge { key, operand })?;
                        }
                    }
                }
            }
        }
        debug_assert!(operations.tally.count as usize >= self.len(), "a write without an operation");
        Ok(operations)
    }
}

impl KeyspaceWrites {
    fn len(&self) -> usize {
        self.keys.len() + self.deleted.iter().count()
    }

    /// The state of a key; `None` if the transaction has not written it.
    pub fn get(&self, key: &[u8]) -> Option<State> {
        self.state(key).cloned()
    }

    /// [`Self::get`] without a copy.
    pub fn state(&self, key: &[u8]) -> Option<&State> {
        self.keys.get(key).or_else(|| self.deleted.covering(key).map(|_| &State::Deleted))
    }

    /// The keys of a range, which is not empty, that were written one by one.
    pub fn range(&self, range: &KeyRange) -> Range<'_, Bytes, State> {
        let upper = range.upper.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        self.keys.range::<Bytes, _>((Bound::Included(&range.lower), upper))
    }

    /// The keys that were set or deleted one by one. A merge replaces nothing.
    pub fn replaced(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter().filter(|(_, state)| !state.is_merged()).map(|(key, _)| key)
    }

    /// The deleted ranges.
    pub fn deleted(&self) -> &RangeSet {
        &self.deleted
    }
}
