//! The methods of a transaction that write. What a write does to the state of the transaction is in
//! [`super::own`].

use std::time::Duration;

use shamba_key::KeyspaceId;
use shamba_log::wal::OpRef;

use super::Transaction;
use crate::database::Keyspace;
use crate::error::Result;
use crate::key_range::{KeyRange, PrefixRange};
use crate::writer::operations::{with_put, with_range_delete};

impl Transaction {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Invalid` for a key over 65,535 bytes or a value over 256 MiB, and when the transaction
    /// exceeds its memory (`TransactionOptions::memory_bytes`); the write is not in it then. The
    /// same holds for all writes.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let keyspace = self.db().default_keyspace();
        self.put_op(&keyspace, key.as_ref(), value.as_ref(), None)
    }

    /// Sets `key` to `value` for as long as `time_to_live`, counted from this call. The transaction
    /// itself sees it to its end. An operand that follows it in the transaction is applied to the
    /// value, and expires with it.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time_to_live: Duration,
    ) -> Result<()> {
        let keyspace = self.db().default_keyspace();
        self.put_op(&keyspace, key.as_ref(), value.as_ref(), Some(time_to_live))
    }

    /// [`Self::put_expiring`] in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::put_in`].
    pub fn put_expiring_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time_to_live: Duration,
    ) -> Result<()> {
        self.check(keyspace)?;
        self.put_op(keyspace, key.as_ref(), value.as_ref(), Some(time_to_live))
    }

    fn put_op(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        time_to_live: Option<Duration>,
    ) -> Result<()> {
        let core = keyspace.core();
        let expiry = self.db().core().writer.expiry(core, time_to_live)?;
        with_put(key, value, expiry, |op| self.write(core.id, op))
    }

    /// Sets `key` to `value` in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::put`]; `Invalid` for a keyspace of another database, or one that was dropped.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.check(keyspace)?;
        self.put_op(keyspace, key.as_ref(), value.as_ref(), None)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(KeyspaceId::DEFAULT, OpRef::Delete { key: key.as_ref() })
    }

    /// Removes `key` from `keyspace`.
    ///
    /// # Errors
    /// As [`Self::put_in`].
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.check(keyspace)?;
        self.write(keyspace.core().id, OpRef::Delete { key: key.as_ref() })
    }

    /// Adds an operand to `key` (`Db::merge`). Reads nothing, so no other write of the key is a
    /// conflict, unless the transaction reads it as well and its isolation checks reads. After a
    /// put or delete of the key in this transaction the operator is applied at once.
    ///
    /// # Errors
    /// As [`Self::put`] and `Db::merge`; after an own put or delete as `Db::get` of a key with
    /// operands.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_op(&self.keyspace.clone(), key.as_ref(), operand.as_ref())
    }

    /// Adds an operand to `key` in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::merge`] and [`Self::put_in`].
    pub fn merge_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.check(keyspace)?;
        self.merge_op(keyspace, key.as_ref(), operand.as_ref())
    }

    /// Removes every key of `range`.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete_range(&mut self, range: impl KeyRange) -> Result<()> {
        with_range_delete(&range, |op| self.write(KeyspaceId::DEFAULT, op))
    }

    /// Removes every key of `range` from `keyspace`.
    ///
    /// # Errors
    /// As [`Self::put_in`].
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> Result<()> {
        self.check(keyspace)?;
        with_range_delete(&range, |op| self.write(keyspace.core().id, op))
    }

    /// Removes every key that begins with `prefix`.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range(PrefixRange::of(prefix))
    }

    /// Removes every key that begins with `prefix` from `keyspace`.
    ///
    /// # Errors
    /// As [`Self::put_in`].
    pub fn delete_prefix_in(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_in(keyspace, PrefixRange::of(prefix))
    }
}
