//! Scans of a transaction: the entries of its snapshot with its own writes mixed in.
//!
//! Each end ([`End`]) walks two ascending (or descending) sequences, the snapshot's entries and the
//! transaction's own keys, and takes the nearer key each time. An own key hides the snapshot's
//! entry of the same key, and an own deleted range is passed by a seek. Neither end goes beyond the
//! last key that the other one returned.
//!
//! When a scan ends, what it returned becomes a read of the transaction ([`super::reads`]).

use std::collections::btree_map::Range;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use bytes::Bytes;
use shamba_tree::slice::Slice;
use shamba_tree::version::KeyRange;

use super::Transaction;
use super::own::seen;
use super::reads::ScanNo;
use super::writes::{KeyspaceWrites, State};
use crate::catalog::KeyspaceCore;
use crate::database::Keyspace;
use crate::error::Result;
use crate::key_range::successor;
use crate::reads::cursor::Cursor;

/// The keys and values of a range as a transaction sees them, in key order, from both ends.
///
/// Each item is a result: an error ends the iteration. No key is returned by both ends.
#[must_use = "an iterator reads nothing until it is walked"]
pub struct TransactionIter<'t> {
    transaction: &'t Transaction,
    keyspace: Keyspace,
    range: KeyRange,
    scan: Option<ScanNo>,
    front: Option<End<'t>>,
    back: Option<End<'t>>,
    progress: Progress,
}

/// Progress of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Progress {
    Going,
    /// Everything in the range was returned.
    Complete,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Back,
}

/// One end of a scan.
struct End<'t> {
    direction: Direction,
    keyspace: Arc<KeyspaceCore>,
    base: Cursor,
    /// Whether the cursor is not at its first entry yet, or at one that was taken.
    is_base_taken: bool,
    /// Whether all that is left of the snapshot is deleted.
    is_base_over: bool,
    own: Option<OwnKeys<'t>>,
    /// The last key that was returned.
    last: Option<Slice>,
}

/// The transaction's own writes ahead of an end.
struct OwnKeys<'t> {
    writes: &'t KeyspaceWrites,
    keys: Range<'t, Bytes, State>,
    next: Option<(&'t Bytes, &'t State)>,
}

impl<'t> TransactionIter<'t> {
    pub(super) fn new(
        transaction: &'t Transaction,
        keyspace: Keyspace,
        range: KeyRange,
        scan: Option<ScanNo>,
    ) -> Self {
        Self { transaction, keyspace, range, scan, front: None, back: None, progress: Progress::Going }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Slice, Slice)>> {
        if self.progress != Progress::Going || self.range.is_empty() {
            return None;
        }
        let (transaction, range) = (self.transaction, &self.range);
        let (own, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Back => (&mut self.back, &self.front),
        };
        if own.is_none() {
            match transaction.cursor(&self.keyspace, range.clone()) {
                Ok(base) => {
                    let core = Arc::clone(self.keyspace.core());
                    let own_writes = transaction.writes_of(&self.keyspace);
                    *own = Some(End::new(direction, core, base, own_writes, range));
                }
                Err(error) => {
                    self.progress = Progress::Failed;
                    return Some(Err(error));
                }
            }
        }
        let Some(end) = own else { return None };
        let last_of_other = other.as_ref().and_then(|end| end.last.as_ref());
        match end.next() {
            Ok(Some((key, _))) if last_of_other.is_some_and(|last| !direction.is_before(&key, last)) => {
                self.progress = Progress::Complete;
                None
            }
            Ok(Some((key, value))) => {
                end.last = Some(key.clone());
                Some(Ok((key, value)))
            }
            Ok(None) => {
                self.progress = Progress::Complete;
                None
            }
            Err(error) => {
                self.progress = Progress::Failed;
                Some(Err(error))
            }
        }
    }

    /// The ranges of which every key was returned.
    fn read(&self) -> Vec<KeyRange> {
        if self.progress == Progress::Complete {
            return vec![self.range.clone()];
        }
        let last = |end: &Option<End<'_>>| end.as_ref()?.last.clone();
        // The successor of the longest key may lie beyond the range.
        let front = last(&self.front).and_then(|key| {
            KeyRange { lower: Bytes::new(), upper: successor(&key) }.intersection(&self.range)
        });
        let back =
            last(&self.back).map(|key| KeyRange { lower: key.into_bytes(), upper: self.range.upper.clone() });
        front.into_iter().chain(back).collect()
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Back)
    }
}

impl FusedIterator for TransactionIter<'_> {}

impl fmt::Debug for TransactionIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionIter").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Drop for TransactionIter<'_> {
    fn drop(&mut self) {
        if let Some(scan) = self.scan {
            self.transaction.end_scan(scan, self.read());
        }
    }
}

impl Direction {
    /// Whether an end that walks in this direction meets `key` before `other`.
    fn is_before(self, key: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Forward => key < other,
            Self::Back => key > other,
        }
    }
}

impl<'t> End<'t> {
    fn new(
        direction: Direction,
        keyspace: Arc<KeyspaceCore>,
        base: Cursor,
        writes: Option<&'t KeyspaceWrites>,
        range: &KeyRange,
    ) -> Self {
        let own = writes.map(|writes| OwnKeys::new(writes, range, direction));
        Self { direction, keyspace, base, is_base_taken: true, is_base_over: false, own, last: None }
    }

    /// The next entry of snapshot and own writes.
    fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        let direction = self.direction;
        loop {
            if std::mem::take(&mut self.is_base_taken) {
                match direction {
                    Direction::Forward => self.base.next()?,
                    Direction::Back => self.base.prev()?,
                };
            }
            let base = self.base.key().filter(|_| !self.is_base_over);
            let Some(own) = &mut self.own else { return self.take_base() };
            match (own.next, base) {
                (Some((key, state)), base) if base.is_none_or(|base| !direction.is_before(base, key)) => {
                    let is_same = base == Some(&key[..]);
                    let before = || Ok(if is_same { self.base.value().map(Slice::from) } else { None });
                    let value = seen(&self.keyspace, key, Some(state.clone()), before)?;
                    own.advance(direction);
                    self.is_base_taken = is_same;
                    if let Some(value) = value {
                        return Ok(Some((Slice::copied(key), value)));
                    }
                }
                (_, None) => return Ok(None),
                (_, Some(base)) => match own.writes.deleted().covering(base) {
                    Some(deleted) => self.pass(&deleted)?,
                    None => return self.take_base(),
                },
            }
        }
    }

    /// Moves the cursor past a deleted range.
    fn pass(&mut self, deleted: &KeyRange) -> Result<()> {
        match (self.direction, &deleted.upper) {
            (Direction::Forward, Some(upper)) => {
                self.base.seek(upper)?;
            }
            (Direction::Forward, None) => self.is_base_over = true,
            (Direction::Back, _) => {
                // The key at the lower bound is deleted as well.
                if self.base.seek_for_prev(&deleted.lower)? && self.base.key() == Some(&deleted.lower[..]) {
                    self.base.prev()?;
                }
            }
        }
        Ok(())
    }

    /// The entry of the cursor, which is moved on before its next use: what lies behind may have to
    /// be read from a file.
    fn take_base(&mut self) -> Result<Option<(Slice, Slice)>> {
        let entry = self.base.take_entry();
        self.is_base_taken = entry.is_some();
        Ok(entry)
    }
}

impl<'t> OwnKeys<'t> {
    fn new(writes: &'t KeyspaceWrites, range: &KeyRange, direction: Direction) -> Self {
        let mut own = Self { writes, keys: writes.range(range), next: None };
        own.advance(direction);
        own
    }

    fn advance(&mut self, direction: Direction) {
        self.next = match direction {
            Direction::Forward => self.keys.next(),
            Direction::Back => self.keys.next_back(),
        };
    }
}
