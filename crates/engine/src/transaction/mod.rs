//! Transactions: reads and writes over all keyspaces that take effect together, if nothing that
//! they depend on has changed meanwhile.
//!
//! A transaction is optimistic. It reads a snapshot, keeps its writes to itself ([`writes`]) and
//! notes what it reads ([`reads`]). Scans mix both ([`iter`]). The commit is a batch under
//! conditions ([`crate::writer::conditions`]), which the leader of its commit group checks. So no
//! lock is held between operations, and a transaction that only reads never fails.
//!
//! The leader reads no file. If a table that was installed since the snapshot may hold a change,
//! the commit reads that table without the lock, and tries again with conditions from there on
//! ([`commit`]).
//!
//! The snapshot lives until the commit, so that no compaction drops a change together with its
//! trace.
//!
//! Memory: what is written and read counts against a limit. It is charged to the ledger beyond
//! [`FREE_BYTES`], in steps of that size.

mod changes;
mod commit;
mod iter;
mod options;
mod own;
mod ranges;
mod reads;
mod retry;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shamba_key::{KeyDigest, KeyspaceId};
use shamba_table::{Charge, LedgerPart};
use shamba_tree::slice::Slice;
use shamba_tree::snapshot::SnapshotGuard;
use shamba_tree::version::KeyRange as Span;

pub use self::iter::TransactionIter;
pub use self::options::{Isolation, TransactionOptions};
use self::own::seen;
use self::reads::{ReadSet, ScanNo};
pub use self::writes::Savepoint;
use self::writes::{KeyspaceWrites, State, Writes};
use crate::database::ticket::Ticket;
use crate::database::{Db, Keyspace};
use crate::error::{Error, Result};
use crate::key_range::{KeyRange, check_key, half_open, prefix_range};
use crate::lock_order;
use crate::ranked::Ranked;
use crate::reads::cursor::Cursor;
use crate::reads::options::HashedKey;
use crate::reads::reader::ReadAt;
use crate::telemetry::hold_events;
use crate::writer::WriteOptions;

/// Bytes of a transaction that are not charged, and the step in which more are.
const FREE_BYTES: u64 = 16 << 10;
/// By default a transaction has at most this fraction of the memory budget, 1 / 8.
const BUDGET_PART: u64 = 8;
/// Minimum of that, under any budget.
const BYTES_MIN: u64 = 1 << 20;
/// Maximum of what a transaction may have by default: a batch cannot be longer.
const BYTES_MAX: u64 = 1 << 30;

/// Purpose of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Plain,
    ForUpdate,
}

/// Reads and writes over all keyspaces that take effect together. Made by [`Db::transaction`].
///
/// It reads the state as of its beginning, and its own writes on top. [`commit`](Self::commit)
/// makes all writes visible and durable together, if what the transaction depends on is unchanged,
/// and returns [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) otherwise. With the default
/// [`Isolation::Serializable`] that is everything that it has read: values, absent keys, ranges.
/// So the outcome is as if these transactions ran one after another. The commit of a transaction
/// without writes checks and syncs nothing, and never fails. Dropped without a commit, a
/// transaction does nothing. After any failed commit it is gone; [`Db::transact`] can run it again.
///
/// While it is open, a transaction holds a snapshot: compactions keep what it sees.
///
/// [`Db::transact`] runs a closure as a transaction and begins again after a conflict.
///
/// The methods without a keyspace are those of the default one.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// use shamba::ErrorKind;
///
/// db.put("stock:tea", "1")?;
/// let mut order = db.transaction();
/// assert_eq!(order.get("stock:tea")?.as_deref(), Some(&b"1"[..]));
/// order.put("stock:tea", "0")?;
/// order.put("order:7", "tea")?;
/// // Another order takes the last one first.
/// db.put("stock:tea", "0")?;
/// let refused = order.commit().expect_err("the stock has changed");
/// assert_eq!(refused.kind(), ErrorKind::Conflict);
/// assert_eq!(refused.conflict().expect("a conflict").key, b"stock:tea");
/// assert!(!db.contains_key("order:7")?);
/// # Ok::<(), shamba::Error>(())
/// ```
#[must_use = "a transaction does nothing until it is committed"]
pub struct Transaction {
    /// The default keyspace, with its database.
    keyspace: Keyspace,
    snapshot: Arc<SnapshotGuard>,
    options: TransactionOptions,
    limit_bytes: u64,
    writes: Writes,
    noted: Ranked<Noted>,
}

/// The reads of a transaction, and the charge for all of its memory.
struct Noted {
    reads: ReadSet,
    charge: Charge,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Transaction");
        text.field("sequence", &self.snapshot.seq().0).field("writes", &self.writes.len());
        text.finish_non_exhaustive()
    }
}

impl Db {
    /// Begins a transaction over all keyspaces.
    #[must_use = "a transaction does nothing until it is committed"]
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::new())
    }

    /// Begins a transaction with an [`Isolation`] or other options.
    #[must_use = "a transaction does nothing until it is committed"]
    pub fn transaction_with(&self, options: impl Into<TransactionOptions>) -> Transaction {
        let (core, options) = (self.core(), options.into());
        let limit_bytes = (core.settings.budget_bytes() / BUDGET_PART).clamp(BYTES_MIN, BYTES_MAX);
        let charge = Charge::new(core.memory.ledger(), LedgerPart::Transactions, 0);
        Transaction {
            keyspace: self.default_keyspace(),
            snapshot: core.reads.snapshot(),
            options,
            limit_bytes: options.memory_bytes.unwrap_or(limit_bytes),
            writes: Writes::default(),
            noted: Ranked::new(lock_order::TRANSACTION, Noted { reads: ReadSet::default(), charge }),
        }
    }
}

/// Reads.
impl Transaction {
    /// The value of `key`, if it has one.
    ///
    /// # Errors
    /// As [`Db::get`]; `Invalid` when the transaction exceeds its memory
    /// ([`TransactionOptions::memory_bytes`]). The same holds for all reads.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_in(&self.keyspace, key)
    }

    /// The value of `key` in `keyspace`, if it has one.
    ///
    /// # Errors
    /// As [`Self::get`]; `Invalid` for a keyspace of another database.
    pub fn get_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.look_up(keyspace, key.as_ref(), Read::Plain)
    }

    /// The value of `key`, if it has one. The commit checks that no other write has changed it,
    /// whatever the isolation, and also if this transaction has written it before. A transaction
    /// that writes nothing checks nothing: `Db::compare_and_swap` with the same value does.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_for_update_in(&self.keyspace, key)
    }

    /// [`Self::get_for_update`] in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::get_in`].
    pub fn get_for_update_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.look_up(keyspace, key.as_ref(), Read::ForUpdate)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`Db::contains_key`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_key_in(&self.keyspace, key)
    }

    /// Whether `key` has a value in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::contains_key`].
    pub fn contains_key_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.check(keyspace)?;
        let at = keyspace.read_at_snapshot(&self.snapshot);
        let own = self.writes_of(keyspace).and_then(|writes| writes.state(key));
        if let Some(own) = own {
            // An own operand makes a value of whatever was there before.
            return Ok(!matches!(own, State::Deleted));
        }
        let has_value = at.contains_key(key)?;
        self.note_read(keyspace, &at, key)?;
        Ok(has_value)
    }

    /// The time for which the value of `key` still lives ([`Db::time_to_live_of`]), at the time at
    /// which the transaction reads.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn time_to_live_of(&self, key: impl AsRef<[u8]>) -> Result<Option<Duration>> {
        self.time_to_live_of_in(&self.keyspace, key)
    }

    /// [`Self::time_to_live_of`] in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::get_in`].
    pub fn time_to_live_of_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Duration>> {
        let key = key.as_ref();
        self.check(keyspace)?;
        let at = keyspace.read_at_snapshot(&self.snapshot);
        match self.writes_of(keyspace).and_then(|writes| writes.state(key)) {
            Some(State::Put(_, expiry)) => return Ok(Some(at.time_left(*expiry))),
            Some(State::Deleted) => return Ok(None),
            // Whatever was there before, there is a value, which lasts.
            Some(State::Merged(_)) => return Ok(Some(Duration::MAX)),
            None => {}
        }
        let time_left = at.time_to_live_of(key)?;
        self.note_read(keyspace, &at, key)?;
        Ok(time_left)
    }

    /// The values of many keys, in the order of the keys. Costs less per key than `get`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Slice>>> {
        self.multi_get_in(&self.keyspace, keys)
    }

    /// [`Self::multi_get`] in `keyspace`.
    ///
    /// # Errors
    /// As [`Self::get_in`].
    pub fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        self.check(keyspace)?;
        let keys: Vec<K> = keys.into_iter().collect();
        let writes = self.writes_of(keyspace);
        let own: Vec<Option<State>> =
            keys.iter().map(|key| writes.and_then(|writes| writes.get(key.as_ref()))).collect();
        let reads_on = |own: &Option<State>| own.as_ref().is_none_or(State::is_merged);
        let others = || keys.iter().zip(&own).filter(|(_, own)| reads_on(own)).map(|(key, _)| key.as_ref());
        let found = keyspace.read_at_snapshot(&self.snapshot).multi_get(others())?;
        if self.options.isolation == Isolation::Serializable {
            let (id, digest) = (keyspace.core().id, self.db().core().reads.digest());
            others()
                .try_for_each(|key| self.note_key(id, digest.digest(key), Bytes::copy_from_slice(key)))?;
        }
        let mut found = found.into_iter();
        let value = |(key, own): (&K, Option<State>)| {
            let before = || Ok(found.next().flatten());
            seen(keyspace.core(), key.as_ref(), own, before)
        };
        keys.iter().zip(own).map(value).collect()
    }

    /// The entries of a range, in key order, from both ends. If the transaction is serializable,
    /// the commit checks the part of the range that was walked, with the keys that are absent from
    /// it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// db.put("b", "2")?;
    /// let mut transaction = db.transaction();
    /// transaction.put("a", "1")?;
    /// let (key, _) = transaction.range("a"..).next().expect("an entry")?;
    /// assert_eq!(&key[..], b"a");
    /// assert_eq!(transaction.iter().count(), 2);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> TransactionIter<'_> {
        self.range_in(&self.keyspace, range)
    }

    /// The entries of a range of `keyspace`, in key order.
    pub fn range_in(&self, keyspace: &Keyspace, range: impl KeyRange) -> TransactionIter<'_> {
        self.scan(keyspace, half_open(&range))
    }

    /// The entries whose keys begin with `prefix`, in key order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionIter<'_> {
        self.prefix_in(&self.keyspace, prefix)
    }

    /// The entries of `keyspace` whose keys begin with `prefix`, in key order.
    pub fn prefix_in(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> TransactionIter<'_> {
        self.scan(keyspace, prefix_range(prefix.as_ref()))
    }

    /// All entries, in key order.
    pub fn iter(&self) -> TransactionIter<'_> {
        self.range(..)
    }

    /// All entries of `keyspace`, in key order.
    pub fn iter_in(&self, keyspace: &Keyspace) -> TransactionIter<'_> {
        self.range_in(keyspace, ..)
    }

    /// The sequence number of the state that the transaction reads.
    pub fn sequence(&self) -> u64 {
        self.snapshot.seq().0
    }
}

/// The writes as a whole, and their end.
impl Transaction {
    /// Number of keys and ranges that the transaction writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether the transaction writes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Marks the present state of the writes, for [`Self::rollback_to`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let mut transaction = db.transaction();
    /// transaction.put("a", "1")?;
    /// let savepoint = transaction.savepoint();
    /// transaction.put("a", "2")?;
    /// transaction.rollback_to(savepoint)?;
    /// assert_eq!(transaction.get("a")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), shamba::Error>(())
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.writes.savepoint()
    }

    /// Takes back every write since `savepoint`, and forgets the savepoints after it. The commit
    /// still checks what was read.
    ///
    /// # Errors
    /// `Invalid` for a savepoint of another transaction, for a released one, and after a return to
    /// an earlier one.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.writes.roll_back_to(savepoint)?;
        self.charge_again();
        Ok(())
    }

    /// Forgets `savepoint` and those after it; the writes stay. While there is a savepoint, what
    /// would take back later writes takes memory.
    ///
    /// # Errors
    /// As [`Self::rollback_to`].
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        self.writes.release(savepoint)?;
        self.charge_again();
        Ok(())
    }

    /// Takes back every write, and forgets all savepoints. If the transaction writes again, its
    /// commit still checks what was read before.
    pub fn rollback(&mut self) {
        self.writes.clear();
        self.charge_again();
    }

    /// Makes all writes visible and durable together, with the durability of the transaction's
    /// options.
    ///
    /// # Errors
    /// `Conflict`, which names the key, when something that the transaction depends on has changed;
    /// as [`Db::put`]. Nothing is visible then. After a failed sync, writes are off, and whether a
    /// reopen finds the transaction is unknown.
    pub fn commit(self) -> Result<()> {
        let options = self.options.write;
        self.commit_with(options)
    }

    /// [`Self::commit`] with a durability or with full options.
    ///
    /// # Errors
    /// As [`Self::commit`]; `Stalled` when the deadline passed while the write waited for flushes
    /// or compactions. A commit that has to read a new table begins again, also with the deadline.
    pub fn commit_with(self, options: impl Into<WriteOptions>) -> Result<()> {
        self.commit_at(options.into()).map(drop)
    }

    /// [`Self::commit`] with a ticket, which tells when the writes are durable.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_ticket(self) -> Result<Ticket> {
        let (db, options) = (self.db().clone(), self.options.write);
        Ok(Ticket::new(db, self.commit_at(options)?))
    }
}

impl Transaction {
    fn db(&self) -> &Db {
        self.keyspace.db()
    }

    /// Looks up a key, which may become a read of the transaction.
    fn look_up(&self, keyspace: &Keyspace, key: &[u8], read: Read) -> Result<Option<Slice>> {
        self.check(keyspace)?;
        let own = self.writes_of(keyspace).and_then(|writes| writes.get(key));
        let is_noted = match read {
            Read::ForUpdate => true,
            // What an own write replaces does not matter.
            Read::Plain => {
                own.as_ref().is_none_or(State::is_merged) && self.options.isolation == Isolation::Serializable
            }
        };
        let at = keyspace.read_at_snapshot(&self.snapshot);
        if !is_noted {
            return seen(keyspace.core(), key, own, || at.get(key));
        }
        check_key(key)?;
        let made_by = at.reads.digest();
        let key = HashedKey { key: key.to_vec(), digest: made_by.digest(key), made_by };
        let value = seen(keyspace.core(), &key.key, own, || at.get_hashed(&key))?;
        self.note_key(keyspace.core().id, key.digest, key.key.into())?;
        Ok(value)
    }

    /// Adds a key to the reads, if the isolation asks for it.
    fn note_read(&self, keyspace: &Keyspace, at: &ReadAt<'_>, key: &[u8]) -> Result<()> {
        if self.options.isolation != Isolation::Serializable {
            return Ok(());
        }
        let digest = at.reads.digest().digest(key);
        self.note_key(keyspace.core().id, digest, Bytes::copy_from_slice(key))
    }

    /// Adds a key to the reads.
    fn note_key(&self, keyspace: KeyspaceId, digest: KeyDigest, key: Bytes) -> Result<()> {
        let _events = hold_events();
        let mut noted = self.noted.lock();
        let more_bytes = noted.reads.bytes_of(keyspace, &key);
        if more_bytes == 0 {
            return Ok(());
        }
        let bytes = self.writes.bytes() + noted.reads.bytes() + more_bytes;
        self.check_memory(bytes)?;
        self.charge(&mut noted.charge, bytes);
        noted.reads.add_key(keyspace, digest, key);
        Ok(())
    }

    fn scan(&self, keyspace: &Keyspace, range: Span) -> TransactionIter<'_> {
        let is_noted = self.options.isolation == Isolation::Serializable && keyspace.is_of(self.db());
        let scan = is_noted.then(|| self.noted.lock().reads.begin_scan(keyspace.core().id, range.clone()));
        TransactionIter::new(self, keyspace.clone(), range, scan)
    }

    fn end_scan(&self, scan: ScanNo, read: Vec<Span>) {
        self.noted.lock().reads.end_scan(scan, read);
        self.charge_again();
    }

    /// A cursor over a range of the snapshot.
    fn cursor(&self, keyspace: &Keyspace, range: Span) -> Result<Cursor> {
        self.check(keyspace)?;
        self.check_memory(self.writes.bytes() + self.noted.lock().reads.bytes())?;
        Ok(keyspace.read_at_snapshot(&self.snapshot).cursor_in(range))
    }

    fn writes_of(&self, keyspace: &Keyspace) -> Option<&KeyspaceWrites> {
        if keyspace.is_of(self.db()) { self.writes.of(keyspace.core().id) } else { None }
    }

    /// Charges `bytes` in steps. The caller holds its events.
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        let bytes = if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(FREE_BYTES) };
        if bytes > charge.bytes() {
            self.db().core().memory.charge(charge, bytes);
        } else if bytes < charge.bytes() {
            charge.resize(bytes);
        }
    }

    /// Charges the memory that the transaction has now.
    fn charge_again(&self) {
        let _events = hold_events();
        let mut noted = self.noted.lock();
        let bytes = self.writes.bytes() + noted.reads.bytes();
        self.charge(&mut noted.charge, bytes);
    }

    fn check_memory(&self, bytes: u64) -> Result<()> {
        let limit_bytes = self.limit_bytes;
        if bytes <= limit_bytes {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the transaction takes {bytes} bytes for what it has read and written; its maximum is \
             {limit_bytes} (TransactionOptions::memory_bytes)"
        )))
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if !keyspace.is_of(self.db()) {
            return Err(Error::invalid(format!(
                "keyspace {:?} and the transaction belong to different databases",
                keyspace.name()
            )));
        }
        keyspace.core().check_usable()
    }
}
