//! Operations of a batch in the log's format, and their number and bytes.
//!
//! Operations are encoded as they are added, so a commit copies them once, into the log's frame.

use std::ops::Bound;

use shamba_key::{Expiry, KeyspaceId, MAX_VALUE_BYTES};
use shamba_log::wal::{OpRef, encode_op};

use crate::error::{Error, Result};
use crate::key_range::{KeyRange, check_key, half_open};

/// Maximum memory that an emptied batch keeps.
const KEPT_BYTES: usize = 1 << 20;

/// Number and bytes of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub count: u32,
    pub puts: u64,
    pub deletes: u64,
    pub range_deletes: u64,
    pub merges: u64,
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
            OpRef::PutExpiring { key, stored } => {
                Self { puts: 1, user_bytes: (key.len() + stored.len()) as u64, ..one }
            }
            OpRef::Delete { key } => Self { deletes: 1, user_bytes: key.len() as u64, ..one },
            OpRef::RangeDelete { start, end } => {
                let user_bytes = (start.len() + end.map_or(0, <[u8]>::len)) as u64;
                Self { range_deletes: 1, user_bytes, ..one }
            }
            OpRef::Merge { key, operand } => {
                Self { merges: 1, user_bytes: (key.len() + operand.len()) as u64, ..one }
            }
        }
    }

    /// Number of operations of all kinds.
    pub fn of_all_kinds(&self) -> u64 {
        self.puts + self.deletes + self.range_deletes + self.merges
    }

    /// Adds all fields but `count`, whose overflow the caller must check.
    pub fn add(&mut self, other: &Self) {
        self.puts += other.puts;
        self.deletes += other.deletes;
        self.range_deletes += other.range_deletes;
        self.merges += other.merges;
        self.user_bytes += other.user_bytes;
        debug_assert!(
            self.count == 0 || u64::from(self.count) == self.of_all_kinds(),
            "operations are counted of {} kinds in all, not {}",
            self.of_all_kinds(),
            self.count
        );
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
        tally: Tally { count: 0, puts: 0, deletes: 0, range_deletes: 0, merges: 0, user_bytes: 0 },
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
        let before = self.encoded.len();
        debug_assert_eq!(before == 0, self.tally.count == 1, "the first operation is the first of the bytes");
        encode_op(&mut self.encoded, self.tally.count == 1, keyspace, op);
        debug_assert!(self.encoded.len() > before, "an operation was encoded in no bytes");
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
        OpRef::PutExpiring { key, stored } => (key, None, stored),
        OpRef::Delete { key } => (key, None, &[]),
        OpRef::RangeDelete { start, end } => (start, end, &[]),
        // Operands are checked with their operator.
        OpRef::Merge { key, .. } => (key, None, &[]),
    };
    check_key(key)?;
    other_key.map_or(Ok(()), check_key)?;
    if value.len() > MAX_VALUE_BYTES {
        let (bytes, most) = (value.len(), MAX_VALUE_BYTES);
        let with = if matches!(op, OpRef::PutExpiring { .. }) { " with its expiry time" } else { "" };
        return Err(Error::invalid(format!("the value has {bytes} bytes{with}; the maximum is {most}")));
    }
    Ok(())
}

/// Calls `apply` with the put of `value`, which expires at `expiry` if that is set.
///
/// # Errors
/// Those of `apply`.
#[inline]
pub(crate) fn with_put<T>(
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
    apply: impl FnOnce(OpRef<'_>) -> Result<T>,
) -> Result<T> {
    match expiry {
        None => apply(OpRef::Put { key, value }),
        Some(expiry) => with_expiring_put(key, value, expiry, apply),
    }
}

#[cold]
#[inline(never)]
fn with_expiring_put<T>(
    key: &[u8],
    value: &[u8],
    expiry: Expiry,
    apply: impl FnOnce(OpRef<'_>) -> Result<T>,
) -> Result<T> {
    check_op(OpRef::Put { key, value })?;
    apply(OpRef::PutExpiring { key, stored: &expiry.encode(value) })
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
