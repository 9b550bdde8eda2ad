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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_bytes_of_operations_are_those_of_keys_and_values() {
        let put = OpRef::Put { key: b"key", value: b"value" };
        let expiring = OpRef::PutExpiring { key: b"key", stored: b"12345678value" };
        let delete = OpRef::Delete { key: b"key" };
        let between = OpRef::RangeDelete { start: b"abc", end: Some(b"abcd") };
        let to_the_end = OpRef::RangeDelete { start: b"abc", end: None };
        let merge = OpRef::Merge { key: b"key", operand: b"operand" };
        // Puts, deletes, range deletes, merges, bytes.
        let expected = [
            (put, [1, 0, 0, 0, 8]),
            (expiring, [1, 0, 0, 0, 16]),
            (delete, [0, 1, 0, 0, 3]),
            (between, [0, 0, 1, 0, 7]),
            (to_the_end, [0, 0, 1, 0, 3]),
            (merge, [0, 0, 0, 1, 10]),
        ];
        let fields =
            |tally: &Tally| [tally.puts, tally.deletes, tally.range_deletes, tally.merges, tally.user_bytes];
        let mut sum = Tally::default();
        for (op, wanted) in expected {
            let tally = Tally::of(op);
            assert_eq!((tally.count, fields(&tally), tally.of_all_kinds()), (1, wanted, 1), "{op:?}");
            sum.add(&tally);
        }
        assert_eq!((fields(&sum), sum.of_all_kinds()), ([2, 1, 2, 1, 47], 6));

        let mut operations = Operations::EMPTY;
        for op in [put, delete, between] {
            operations.push(KeyspaceId::DEFAULT, op).expect("valid");
        }
        assert_eq!((operations.tally.count, fields(&operations.tally)), (3, [1, 1, 1, 0, 18]));
        operations.clear();
        assert!(operations.encoded.is_empty());
        assert_eq!((operations.tally.count, fields(&operations.tally)), (0, [0; 5]));
    }

    /// Zeros take no memory until they are written.
    fn zeros(bytes: usize) -> Vec<u8> {
        vec![0; bytes]
    }

    #[test]
    fn a_value_of_the_maximum_length_is_the_longest_one() {
        let zeros = zeros(MAX_VALUE_BYTES + 1);
        let longest = &zeros[..MAX_VALUE_BYTES];
        for stored in [false, true] {
            let op = |value| match stored {
                false => OpRef::Put { key: b"k", value },
                true => OpRef::PutExpiring { key: b"k", stored: value },
            };
            check_op(op(longest)).expect("it can be stored");
            let error = check_op(op(&zeros)).expect_err("one byte more");
            let bytes = MAX_VALUE_BYTES + 1;
            let with = if stored { " with its expiry time" } else { "" };
            let text = format!("the value has {bytes} bytes{with}; the maximum is {MAX_VALUE_BYTES}");
            assert_eq!((error.kind(), error.context()), (ErrorKind::Invalid, text.as_str()));
        }
    }

    #[test]
    fn a_batch_beyond_the_maximum_takes_no_more_operations() {
        const MOST: usize = 1 << 30;
        let op = OpRef::Delete { key: b"k" };
        let tally = Tally { count: 1, deletes: 1, ..Tally::default() };
        let mut operations = Operations { encoded: zeros(MOST), tally };
        operations.push(KeyspaceId::DEFAULT, op).expect("it has the maximum, not more");
        let bytes = operations.encoded.len();
        assert!(bytes > MOST);
        for _ in 0..2 {
            let error = operations.push(KeyspaceId::DEFAULT, op).expect_err("it has more");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!((operations.encoded.len(), operations.tally.count), (bytes, 2), "nothing is added");
        }
    }
}
