//! Batches: operations on any keyspaces that become visible and durable together, or not at all.
//!
//! Operations are encoded as they are added ([`crate::writer::operations`]). An invalid operation
//! (a key too long, a dropped keyspace) is remembered; each `commit` then returns its error and
//! does nothing, until `clear`. A commit that fails leaves the batch unchanged. One that succeeds
//! empties it and keeps its memory for the next use.
//!
//! A writer leaves out what it finds of a dropped keyspace. So a commit first looks whether all
//! keyspaces of the batch are there; one that is dropped later is dropped after the commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::KeyspaceCore;
use crate::database::ticket::Ticket;
use crate::database::{Db, Keyspace};
use crate::error::{Error, Result};
use crate::key_range::{KeyRange, PrefixRange};
use crate::writer::WriteOptions;
use crate::writer::operations::{Operations, with_put, with_range_delete};
use shamba_key::{EntryKind, KeyspaceId, Operand, SeqNo};
use shamba_log::wal::OpRef;

/// Operations that are committed together. Made by [`Db::batch`].
///
/// Operations take effect in the order in which they were added. Of several operations on one key
/// the last one counts. A range delete removes what was written before the batch and by earlier
/// operations of the batch, but not what later operations put. No reader sees a part of a batch.
///
/// A batch that is dropped without a commit does nothing. A commit that succeeds empties the batch.
/// One that fails leaves it unchanged, so that it can be tried again.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// let emails = db.keyspace("emails")?;
/// let mut batch = db.batch();
/// batch.put("user:2", "Baraka").put_in(&emails, "baraka@example.org", "user:2");
/// batch.delete("user:1");
/// batch.commit()?;
/// # Ok::<(), shamba::Error>(())
/// ```
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    db: Db,
    operations: Operations,
    /// The keyspaces to which it writes, other than the default one, which cannot be dropped.
    keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceCore>>,
    error: Option<Error>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("operations", &self.operations.tally.count).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, operations: Operations::default(), keyspaces: BTreeMap::new(), error: None }
    }

    /// Sets `key` to `value` in the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        let added = push_put(&mut self.operations, &self.db, &self.db.keyspace, (key, value), None);
        self.remember(added)
    }

    /// Sets `key` to `value` in the default keyspace for as long as `time_to_live`, counted from
    /// this call: from then on the key is as if it were deleted. `Duration::MAX` is for ever.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use std::time::Duration;
    ///
    /// let mut batch = db.batch();
    /// batch.put_expiring("session:3", "user:2", Duration::from_secs(1_800));
    /// batch.put("user:2:last", "session:3");
    /// batch.commit()?;
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time_to_live: Duration,
    ) -> &mut Self {
        let keyspace = self.db.default_keyspace();
        self.put_expiring_in(&keyspace, key, value, time_to_live)
    }

    /// [`Self::put_expiring`] in `keyspace`.
    pub fn put_expiring_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time_to_live: Duration,
    ) -> &mut Self {
        self.put_with(keyspace, key.as_ref(), value.as_ref(), Some(time_to_live))
    }

    fn put_with(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        time_to_live: Option<Duration>,
    ) -> &mut Self {
        let added = self.check(keyspace).and_then(|()| {
            push_put(&mut self.operations, &self.db, keyspace.core(), (key, value), time_to_live)
        });
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

    /// Removes every key that begins with `prefix` from the default keyspace.
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.delete_range(PrefixRange::of(prefix))
    }

    /// Removes every key that begins with `prefix` from `keyspace`.
    pub fn delete_prefix_in(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.delete_range_in(keyspace, PrefixRange::of(prefix))
    }

    /// Sets `key` to `value` in `keyspace`.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.put_with(keyspace, key.as_ref(), value.as_ref(), None)
    }

    /// Sets `key` in `keyspace` to a payload that was stored before: a value, or with the kind
    /// [`EntryKind::PutWithExpiry`] an expiry and a value. The time to live of the keyspace is not
    /// asked.
    pub(crate) fn put_payload_in(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        kind: EntryKind,
        payload: &[u8],
    ) -> &mut Self {
        let mut added = self.check(keyspace);
        let op = match kind {
            EntryKind::PutWithExpiry => {
                added = added.and_then(|()| self.db.core().catalog.begin_expiry());
                OpRef::PutExpiring { key, stored: payload }
            }
            _ => OpRef::Put { key, value: payload },
        };
        let added = added.and_then(|()| self.operations.push(keyspace.core().id, op));
        self.remember(added)
    }

    /// Adds an operand to `key` in the default keyspace ([`Db::merge`]).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        let keyspace = self.db.default_keyspace();
        self.merge_in(&keyspace, key, operand)
    }

    /// Adds an operand to `key` in `keyspace`.
    pub fn merge_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut Self {
        let operand =
            self.check(keyspace).and_then(|()| keyspace.core().operand(key.as_ref(), operand.as_ref()));
        let added = operand.and_then(|operand| {
            let op = OpRef::Merge { key: key.as_ref(), operand: &operand };
            self.operations.push(keyspace.core().id, op)
        });
        self.remember(added)
    }

    /// [`Self::merge_in`] without a check by the merge operator, which need not be known: the
    /// operand was checked when it was first written.
    pub(crate) fn merge_unchecked_in(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        operand: &[u8],
    ) -> &mut Self {
        let operand = Operand::single(operand).encode();
        let added = self.check(keyspace);
        let op = OpRef::Merge { key, operand: &operand };
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
        self.keyspaces.clear();
        self.error = None;
    }

    /// Makes all operations visible and durable together, with the database's default durability.
    /// The batch is empty afterwards. After an error it is unchanged and can be tried again.
    ///
    /// # Errors
    /// The error of the first invalid operation (`Invalid`; nothing is done, and every further
    /// commit returns it until [`Batch::clear`]); `Invalid` if a keyspace to which the batch writes
    /// was dropped since; or as [`Db::put`]. Nothing of a failed commit is visible. After a failed
    /// sync, writes are off, and whether a reopen finds the batch is unknown.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(WriteOptions::default())
    }

    /// [`Batch::commit`] with a durability or with full options.
    ///
    /// # Errors
    /// As [`Batch::commit`]; `Stalled` when the deadline passed while the write waited for flushes
    /// or compactions.
    pub fn commit_with(&mut self, options: impl Into<WriteOptions>) -> Result<()> {
        self.commit_at(options.into()).map(drop)
    }

    /// [`Batch::commit`] with a ticket, which tells when the batch is durable.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn commit_ticket(&mut self) -> Result<Ticket> {
        self.commit_ticket_with(WriteOptions::default())
    }

    /// [`Batch::commit_ticket`] with a durability, such as `NoSync` in a database whose default is
    /// `Sync`, or with full options.
    ///
    /// # Errors
    /// As [`Batch::commit_with`].
    pub fn commit_ticket_with(&mut self, options: impl Into<WriteOptions>) -> Result<Ticket> {
        let seq = self.commit_at(options.into())?;
        Ok(Ticket::new(self.db.clone(), seq))
    }

    /// Commits, and returns a sequence number that is not before the batch.
    fn commit_at(&mut self, options: WriteOptions) -> Result<SeqNo> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let options = options.without_time_to_live("a batch as a whole")?;
        self.keyspaces.values().try_for_each(|keyspace| keyspace.check_usable())?;
        let count = self.operations.tally.count;
        let outcome = self.db.core().writer.commit(&mut self.operations, options);
        assert_eq!(self.operations.tally.count, count, "a commit lost operations of its batch");
        let seq = outcome?;
        self.clear();
        Ok(seq)
    }

    /// Checks that the batch can write to `keyspace`, and notes that it does.
    fn check(&mut self, keyspace: &Keyspace) -> Result<()> {
        if !keyspace.is_of(&self.db) {
            return Err(Error::invalid(format!(
                "keyspace {:?} and the batch belong to different databases",
                keyspace.name()
            )));
        }
        let keyspace = keyspace.core();
        keyspace.check_usable()?;
        if keyspace.id != KeyspaceId::DEFAULT {
            self.keyspaces.entry(keyspace.id).or_insert_with(|| Arc::clone(keyspace));
        }
        Ok(())
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

/// Adds a put of `key` and `value` in `keyspace`, whose time to live holds if none is given.
fn push_put(
    operations: &mut Operations,
    db: &Db,
    keyspace: &KeyspaceCore,
    (key, value): (&[u8], &[u8]),
    time_to_live: Option<Duration>,
) -> Result<()> {
    let expiry = db.core().writer.expiry(keyspace, time_to_live)?;
    with_put(key, value, expiry, |op| operations.push(keyspace.id, op))
}
