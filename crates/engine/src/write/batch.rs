//! Batches: operations on any keyspaces that become visible and durable together, or not at all.
//!
//! Operations are encoded as they are added, in the form that the log stores, so a commit copies nothing
//! per operation. A wrong operation (a key too long, a dropped keyspace) is remembered and reported by
//! `commit`, which then does nothing.

use std::ops::Bound;

use bytes::Bytes;
use shamba_key::{MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo};

use crate::core::KeyspaceCore;
use crate::db::{Db, Keyspace};
use crate::error::{Error, Result};
use crate::key_range::{KeyRange, half_open};
use crate::settings::Durability;
use crate::wal::record::encode_prefix;
use crate::wal::{OpRef, encode_op};

/// How one write is to be done; what is not set is as the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// What the acknowledgement means.
    pub durability: Option<Durability>,
    /// Longest wait behind flushes and merges before the write fails with `Stalled`; `None` waits.
    pub deadline_ms: Option<u64>,
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> Self {
        Self { durability: Some(durability), deadline_ms: None }
    }
}

impl From<&WriteOptions> for WriteOptions {
    fn from(options: &WriteOptions) -> Self {
        *options
    }
}

/// Bytes of a log record before its operations: first sequence number and count.
pub(crate) const BATCH_PREFIX_BYTES: usize = 12;

/// Encoded operations and what they add up to.
#[derive(Debug)]
pub(crate) struct Operations {
    /// A whole log record: room for the prefix, then the operations.
    pub encoded: Vec<u8>,
    pub count: u32,
    pub puts: u64,
    pub deletes: u64,
    pub range_deletes: u64,
    pub user_bytes: u64,
}

impl Default for Operations {
    fn default() -> Self {
        let encoded = vec![0; BATCH_PREFIX_BYTES];
        Self { encoded, count: 0, puts: 0, deletes: 0, range_deletes: 0, user_bytes: 0 }
    }
}

impl Operations {
    /// The finished record, whose operations take the sequence numbers from `first_seq` on.
    pub fn take_payload(&mut self, first_seq: SeqNo) -> Bytes {
        let mut payload = std::mem::take(&mut self.encoded);
        payload[..BATCH_PREFIX_BYTES].copy_from_slice(&encode_prefix(first_seq, self.count));
        Bytes::from(payload)
    }

    pub fn put(&mut self, keyspace: &KeyspaceCore, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() > MAX_VALUE_BYTES {
            let (bytes, most) = (value.len(), MAX_VALUE_BYTES);
            return Err(Error::invalid(format!("the value has {bytes} bytes; the most is {most}")));
        }
        self.count()?;
        self.puts += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        encode_op(&mut self.encoded, keyspace.id, OpRef::Put { key, value });
        Ok(())
    }

    pub fn delete(&mut self, keyspace: &KeyspaceCore, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.count()?;
        self.deletes += 1;
        self.user_bytes += key.len() as u64;
        encode_op(&mut self.encoded, keyspace.id, OpRef::Delete { key });
        Ok(())
    }

    pub fn delete_range(&mut self, keyspace: &KeyspaceCore, range: &impl KeyRange) -> Result<()> {
        for bound in [range.bounds().0, range.bounds().1] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                check_key(key)?;
            }
        }
        let range = half_open(range);
        if range.is_empty() {
            return Ok(()); // An empty or reversed range deletes nothing.
        }
        let (start, end) = (range.lower, range.upper);
        self.count()?;
        self.range_deletes += 1;
        self.user_bytes += (start.len() + end.as_ref().map_or(0, |end| end.len())) as u64;
        encode_op(&mut self.encoded, keyspace.id, OpRef::RangeDelete { start: &start, end: end.as_deref() });
        Ok(())
    }

    fn count(&mut self) -> Result<()> {
        // The encoded batch must fit a log record, whose length is a 32-bit number; and a reader must hold it.
        const MOST_BYTES: usize = 1 << 30;
        if self.encoded.len() > MOST_BYTES {
            return Err(Error::invalid(format!("the batch has more than {MOST_BYTES} bytes; split it")));
        }
        self.count =
            self.count.checked_add(1).ok_or_else(|| Error::invalid("the batch has too many operations"))?;
        Ok(())
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        let (bytes, most) = (key.len(), MAX_KEY_BYTES);
        return Err(Error::invalid(format!("the key has {bytes} bytes; the most is {most}")));
    }
    Ok(())
}

/// Operations that are committed together. Made by [`Db::batch`].
pub struct Batch {
    db: Db,
    operations: Operations,
    error: Option<Error>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("operations", &self.operations.count).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, operations: Operations::default(), error: None }
    }

    /// Sets `key` to `value` in the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let added = self.operations.put(self.db.default_core(), key.as_ref(), value.as_ref());
        self.remember(added)
    }

    /// Removes `key` from the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let added = self.operations.delete(self.db.default_core(), key.as_ref());
        self.remember(added)
    }

    /// Removes every key of `range` from the default keyspace.
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        let added = self.operations.delete_range(self.db.default_core(), &range);
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
        let added = added.and_then(|()| self.operations.put(keyspace.core(), key.as_ref(), value.as_ref()));
        self.remember(added)
    }

    /// Removes `key` from `keyspace`.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        let added = self.check(keyspace);
        let added = added.and_then(|()| self.operations.delete(keyspace.core(), key.as_ref()));
        self.remember(added)
    }

    /// Removes every key of `range` from `keyspace`.
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> &mut Self {
        let added = self.check(keyspace);
        let added = added.and_then(|()| self.operations.delete_range(keyspace.core(), &range));
        self.remember(added)
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.operations.count as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.operations.count == 0
    }

    /// Drops all operations, and a remembered error.
    pub fn clear(&mut self) {
        self.operations = Operations::default();
        self.error = None;
    }

    /// Makes all operations visible and durable together, with the database's default durability.
    ///
    /// # Errors
    /// The first wrong operation (`Invalid`; nothing is done), or as [`Db::put`].
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(WriteOptions::default())
    }

    /// [`Batch::commit`] with a durability or with full options. The batch is empty afterwards.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn commit_with(&mut self, options: impl Into<WriteOptions>) -> Result<()> {
        let operations = std::mem::take(&mut self.operations);
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.db.core().commit(operations, options.into())
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if !keyspace.is_of(&self.db) {
            return Err(Error::invalid(format!(
                "keyspace {:?} belongs to another database than the batch",
                keyspace.name()
            )));
        }
        keyspace.core().check_usable()
    }

    fn remember(&mut self, added: Result<()>) -> &mut Self {
        if let Err(error) = added
            && self.error.is_none()
        {
            self.error = Some(error);
        }
        self
    }
}
