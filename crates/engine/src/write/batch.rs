//! Batches: operations on any keyspaces that become visible and durable together, or not at all.
//!
//! Operations are encoded as they are added, in the log's own format, so a commit copies them once,
//! into the log's frame. An invalid operation (a key too long, a dropped keyspace) is remembered;
//! each `commit` then returns its error and does nothing, until `clear`. A commit that fails leaves
//! the batch unchanged. One that succeeds empties it and keeps its memory for the next use.

use std::ops::Bound;
use std::time::Duration;

use shamba_key::MAX_VALUE_BYTES;

use crate::db::{Db, Keyspace};
use crate::error::{Error, Result};
use crate::key_range::{KeyRange, check_key, half_open};
use crate::settings::Durability;
use shamba_key::KeyspaceId;
use shamba_log::wal::{OpRef, encode_op};

/// Options of one write. An option that is not set has the value that the database was opened with.
///
/// Every `*_with` write takes it by value or by reference, and a [`Durability`] alone as well.
///
/// ```
/// use shamba::{Durability, WriteOptions};
///
/// let options = WriteOptions::new().durability(Durability::Sync).deadline_ms(50);
/// assert_eq!(options.deadline_ms, Some(50));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Durability that the acknowledgement guarantees.
    pub durability: Option<Durability>,
    /// Longest wait for flushes and compactions before the write fails with `Stalled`; `None` waits
    /// without limit.
    pub deadline_ms: Option<u64>,
}

impl WriteOptions {
    /// No options: the durability of the database, and no deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the durability that the acknowledgement guarantees.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the longest wait for flushes and compactions, in milliseconds.
    #[must_use]
    pub fn deadline_ms(mut self, ms: u64) -> Self {
        self.deadline_ms = Some(ms);
        self
    }

    /// Sets the longest wait for flushes and compactions. Rounded down to milliseconds: a write
    /// whose deadline is below one millisecond does not wait.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.deadline_ms(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> Self {
        Self::new().durability(durability)
    }
}

impl From<&WriteOptions> for WriteOptions {
    fn from(options: &WriteOptions) -> Self {
        *options
    }
}

/// Maximum memory that an emptied batch keeps.
const KEPT_BYTES: usize = 1 << 20;

/// Number and bytes of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub count: u32,
    pub puts: u64,
    pub deletes: u64,
    pub range_deletes: u64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
}

impl Tally {
    /// The tally of one operation.
    pub fn of(op: OpRef<'_>) -> Self {
        let one = Self { count: 1, ..Self::default() };
        match op {
            OpRef::Put { key, value } => {
                Self { puts: 1, user_bytes: (key.len() + value.len()) as u64, ..one }
            }
            OpRef::Delete { key } => Self { deletes: 1, user_bytes: key.len() as u64, ..one },
            OpRef::RangeDelete { start, end } => {
                let user_bytes = (start.len() + end.map_or(0, <[u8]>::len)) as u64;
                Self { range_deletes: 1, user_bytes, ..one }
            }
        }
    }

    /// Adds all fields but `count`, whose overflow the caller must check.
    pub fn add(&mut self, other: &Self) {
        self.puts += other.puts;
        self.deletes += other.deletes;
        self.range_deletes += other.range_deletes;
        self.user_bytes += other.user_bytes;
    }
}

/// Encoded operations of one batch and their tally.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// In the log's format.
    pub encoded: Vec<u8>,
    pub tally: Tally,
}

impl Operations {
    /// No operations, without an allocation.
    pub const EMPTY: Self = Self {
        encoded: Vec::new(),
        tally: Tally { count: 0, puts: 0, deletes: 0, range_deletes: 0, user_bytes: 0 },
    };

    /// Adds an operation.
    ///
    /// # Errors
    /// `Invalid` for a key, a value or a batch that is too long.
    pub fn push(&mut self, keyspace: KeyspaceId, op: OpRef<'_>) -> Result<()> {
        // The encoded batch must fit a log record, whose length is a 32-bit number, and the reader
        // must be able to hold it in memory.
        const BATCH_BYTES_MAX: usize = 1 << 30;
        check_op(op)?;
        if self.encoded.len() > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!("the batch has more than {BATCH_BYTES_MAX} bytes; split it")));
        }
        let count = self.tally.count.checked_add(1);
        self.tally.count = count.ok_or_else(|| Error::invalid("the batch has too many operations"))?;
        self.tally.add(&Tally::of(op));
        encode_op(&mut self.encoded, self.tally.count == 1, keyspace, op);
        Ok(())
    }

    /// Removes all operations and keeps their memory, up to [`KEPT_BYTES`].
    pub fn clear(&mut self) {
        self.encoded.clear();
        self.encoded.shrink_to(KEPT_BYTES);
        self.tally = Tally::default();
    }
}

/// Checks that the lengths of keys and value can be stored.
///
/// # Errors
/// `Invalid`, naming the length.
pub(crate) fn check_op(op: OpRef<'_>) -> Result<()> {
    let (key, other_key, value): (_, _, &[u8]) = match op {
        OpRef::Put { key, value } => (key, None, value),
        OpRef::Delete { key } => (key, None, &[]),
        OpRef::RangeDelete { start, end } => (start, end, &[]),
    };
    check_key(key)?;
    other_key.map_or(Ok(()), check_key)?;
    if value.len() > MAX_VALUE_BYTES {
        let (bytes, most) = (value.len(), MAX_VALUE_BYTES);
        return Err(Error::invalid(format!("the value has {bytes} bytes; the maximum is {most}")));
    }
    Ok(())
}

/// Calls `apply` with the range delete of `range`; an empty or reversed range deletes nothing.
///
/// # Errors
/// `Invalid` for a bound that is too long for a key; the errors of `apply`.
pub(crate) fn with_range_delete(
    range: &impl KeyRange,
    apply: impl FnOnce(OpRef<'_>) -> Result<()>,
) -> Result<()> {
    for bound in [range.bounds().0, range.bounds().1] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_key(key)?;
        }
    }
    let range = half_open(range);
    match range.is_empty() {
        true => Ok(()),
        false => apply(OpRef::RangeDelete { start: &range.lower, end: range.upper.as_deref() }),
    }
}

/// Operations that are committed together. Made by [`Db::batch`].
///
/// Operations take effect in the order in which they were added. Of several operations on one key
/// the last one counts. A range delete removes what was written before the batch and by earlier
/// operations of the batch, but not what later operations put. No reader sees a part of a batch.
///
/// A batch that is dropped without a commit does nothing. A commit that succeeds empties the batch.
/// One that fails leaves it unchanged, so that it can be tried again.
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    db: Db,
    operations: Operations,
    error: Option<Error>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("operations", &self.operations.tally.count).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, operations: Operations::default(), error: None }
    }

    /// Sets `key` to `value` in the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let op = OpRef::Put { key: key.as_ref(), value: value.as_ref() };
        let added = self.operations.push(KeyspaceId::DEFAULT, op);
        self.remember(added)
    }

    /// Removes `key` from the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let added = self.operations.push(KeyspaceId::DEFAULT, OpRef::Delete { key: key.as_ref() });
        self.remember(added)
    }

    /// Removes every key of `range` from the default keyspace.
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        let added = with_range_delete(&range, |op| self.operations.push(KeyspaceId::DEFAULT, op));
        self.remember(added)
    }

    /// Sets `key` to `value` in `keyspace`.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        let added = self.check(keyspace);
        let op = OpRef::Put { key: key.as_ref(), value: value.as_ref() };
        let added = added.and_then(|()| self.operations.push(keyspace.core().id, op));
        self.remember(added)
    }

    /// Removes `key` from `keyspace`.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        let added = self.check(keyspace);
        let op = OpRef::Delete { key: key.as_ref() };
        let added = added.and_then(|()| self.operations.push(keyspace.core().id, op));
        self.remember(added)
    }

    /// Removes every key of `range` from `keyspace`.
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> &mut Self {
        let added = self.check(keyspace);
        let push = |op: OpRef<'_>| self.operations.push(keyspace.core().id, op);
        let added = added.and_then(|()| with_range_delete(&range, push));
        self.remember(added)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.tally.count as usize
    }

    /// Whether the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.tally.count == 0
    }

    /// The error of the first invalid operation, if there is one. Every commit returns it and does
    /// nothing, until [`Batch::clear`].
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Removes all operations and the remembered error.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.error = None;
    }

    /// Makes all operations visible and durable together, with the database's default durability.
    /// The batch is empty afterwards. After an error it is unchanged and can be tried again.
    ///
    /// # Errors
    /// The error of the first invalid operation (`Invalid`; nothing is done, and every further
    /// commit returns it until [`Batch::clear`]), or as [`Db::put`]. Nothing of a failed commit is
    /// visible. After a failed sync, writes are off, and whether a reopen finds the batch is
    /// unknown.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(WriteOptions::default())
    }

    /// [`Batch::commit`] with a durability or with full options.
    ///
    /// # Errors
    /// As [`Batch::commit`]; `Stalled` when the deadline passed while the write waited for flushes
    /// or compactions.
    pub fn commit_with(&mut self, options: impl Into<WriteOptions>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.db.core().commit(&mut self.operations, options.into())?;
        self.operations.clear();
        Ok(())
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if !keyspace.is_of(&self.db) {
            return Err(Error::invalid(format!(
                "keyspace {:?} and the batch belong to different databases",
                keyspace.name()
            )));
        }
        keyspace.core().check_usable()
    }

    fn remember(&mut self, added: Result<()>) -> &mut Self {
        if let Err(error) = added {
            if self.error.is_none() {
                self.error = Some(error);
            }
        }
        self
    }
}
