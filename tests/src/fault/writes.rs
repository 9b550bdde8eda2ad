//! The writes of a life with faults: batches and transactions, and what their outcomes mean.
//!
//! Not here: what must be there afterwards ([`super`]).

use shamba::{Durability, ErrorKind, Isolation, Keyspace, WriteOptions};

use super::script::Transaction;
use super::{Life, Status};
use crate::compare::{self, Spaces};
use crate::expiry::{self, time_to_live_at};
use crate::oracle::{Change, Oracle, Pair, SPACES};

/// A write and its outcome.
pub(super) struct Written<'a> {
    changes: &'a [Change],
    pub(super) status: Status,
    /// The time of the write.
    ms: u64,
    /// Whether a transaction wrote it, which applies operands to its own puts.
    is_transaction: bool,
}

impl<'a> Written<'a> {
    pub(super) fn new(changes: &'a [Change], status: Status, ms: u64) -> Self {
        Self { changes, status, ms, is_transaction: false }
    }

    /// Brings the write to the oracle.
    pub(super) fn commit_to(&self, oracle: &mut Oracle) {
        let ends_ms = |value: &[u8]| expiry::ends_ms(value, self.ms, true);
        oracle.commit_with(self.changes, ends_ms, self.is_transaction);
    }
}

impl<'a> Life<'a> {
    pub(super) fn write(&mut self, changes: &'a [Change], sync: bool) {
        let Some(spaces) = &self.spaces else { return };
        let ms = self.env.clock.unix_ms();
        let outcome = commit(spaces, changes, ms, options(sync));
        let status = self.status(outcome);
        self.written(Written::new(changes, status, ms), sync);
    }

    /// Notes a write and its outcome.
    fn written(&mut self, written: Written<'a>, sync: bool) {
        let status = written.status;
        self.written.push(written);
        if status == Status::Acked && (sync || self.vector.durability == Durability::Sync) {
            self.durable = self.written.len();
        }
    }

    fn status(&mut self, outcome: shamba::Result<()>) -> Status {
        let Err(error) = outcome else { return Status::Acked };
        self.failures += 1;
        match error.kind() {
            ErrorKind::ReadOnly | ErrorKind::Stalled | ErrorKind::Invalid => Status::Rejected,
            _ => Status::Unknown,
        }
    }

    /// Reads, lets something else be written, and commits. The transaction must be refused if it
    /// would overwrite an acked write that it has not seen, and for no other write.
    pub(super) fn transaction(&mut self, step: &'a Transaction) -> Result<(), String> {
        let Some(spaces) = &self.spaces else { return Ok(()) };
        let isolation = if step.is_snapshot { Isolation::Snapshot } else { Isolation::Serializable };
        let mut transaction = spaces.db.transaction_with(isolation);
        let handles = SPACES.iter().map(|name| spaces.db.keyspace(name)).collect::<Result<Vec<_>, _>>();
        let handles = handles.map_err(|error| format!("a handle of a keyspace: {error}"))?;
        let is_read = self.transaction_reads(&transaction, &handles, step)?;
        let mut overwritten = None;
        if let Some(outside) = &step.outside {
            self.write(outside, false);
            overwritten = self.written.last().map(|written| written.status);
        }
        if step.flushes {
            self.durable_if_ok(|spaces| spaces.db.flush());
        }
        let ms = self.env.clock.unix_ms();
        let written = |status| Written { is_transaction: true, ..Written::new(&step.changes, status, ms) };
        if !is_read {
            // It is given up, as its reads failed.
            self.written(written(Status::Rejected), step.sync);
            return Ok(());
        }
        if buffer(&mut transaction, &handles, &step.changes, ms).is_err() {
            // Writes are off after a failure.
            self.failures += 1;
            self.written(written(Status::Rejected), step.sync);
            return Ok(());
        }
        let status = match transaction.commit_with(options(step.sync)) {
            Ok(()) if overwritten == Some(Status::Acked) => {
                return Err("a transaction was committed over an acked write that it had not seen".to_owned());
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                if !matches!(overwritten, Some(Status::Acked | Status::Unknown)) {
                    return Err(format!("a transaction was refused for no write: {error}"));
                }
                self.conflicts += 1;
                Status::Rejected
            }
            outcome => {
                self.transactions += u64::from(outcome.is_ok());
                self.status(outcome)
            }
        };
        self.written(written(status), step.sync);
        Ok(())
    }

    /// The reads of a transaction, which see exactly the acked writes. Returns whether none failed.
    fn transaction_reads(
        &mut self,
        transaction: &shamba::Transaction,
        handles: &[Keyspace],
        step: &Transaction,
    ) -> Result<bool, String> {
        let expected = self.acked();
        let mut is_read = true;
        for (space, key) in &step.gets {
            match (transaction.get_in(&handles[*space], key), &expected) {
                (Ok(got), Some(oracle)) => {
                    let want = oracle.get(*space, key, self.now(oracle));
                    compare::same_value("get of a transaction", key, got.as_deref(), want)?;
                }
                (Ok(_), None) => {}
                (Err(_), _) => is_read = false,
            }
        }
        if let Some((space, prefix)) = &step.scan {
            let found: shamba::Result<Vec<Pair>> =
                transaction.prefix_in(&handles[*space], prefix).map(compare::owned).collect();
            match (found, &expected) {
                (Ok(found), Some(oracle)) => {
                    let mut want = oracle.pairs(*space, &compare::everything(), self.now(oracle));
                    want.retain(|(key, _)| key.starts_with(prefix));
                    if found != want {
                        return Err(format!("a scan of a transaction gave {found:?}, not {want:?}"));
                    }
                }
                (Ok(_), None) => {}
                (Err(_), _) => is_read = false,
            }
        }
        self.failures += u64::from(!is_read);
        Ok(is_read)
    }
}

/// Adds the changes to a transaction.
fn buffer(
    transaction: &mut shamba::Transaction,
    handles: &[Keyspace],
    changes: &[Change],
    ms: u64,
) -> shamba::Result<()> {
    changes.iter().try_for_each(|change| match change {
        Change::Put { space, key, value } => match time_to_live_at(value, ms) {
            None => transaction.put_in(&handles[*space], key, value),
            Some(ttl) => transaction.put_expiring_in(&handles[*space], key, value, ttl),
        },
        Change::Delete { space, key } => transaction.delete_in(&handles[*space], key),
        Change::Merge { space, key, operand } => transaction.merge_in(&handles[*space], key, operand),
        Change::DeleteRange { space, span } => transaction.delete_range_in(&handles[*space], span.clone()),
    })
}

fn options(sync: bool) -> WriteOptions {
    if sync { synced() } else { WriteOptions::new() }.deadline_ms(20)
}

/// Options of a write that is durable when acknowledged.
pub(super) fn synced() -> WriteOptions {
    WriteOptions::new().durability(Durability::Sync)
}

fn commit(spaces: &Spaces, changes: &[Change], ms: u64, options: WriteOptions) -> shamba::Result<()> {
    let mut batch = spaces.db.batch();
    for change in changes {
        match change {
            Change::Put { space: 0, key, value } => {
                expiry::put_for(&mut batch, None, key, value, time_to_live_at(value, ms))
            }
            Change::Delete { space: 0, key } => batch.delete(key),
            Change::DeleteRange { space: 0, span } => batch.delete_range(span.clone()),
            Change::Merge { space: 0, key, operand } => batch.merge(key, operand),
            Change::Put { space, key, value } => {
                let other = Some(other(spaces, *space));
                expiry::put_for(&mut batch, other, key, value, time_to_live_at(value, ms))
            }
            Change::Delete { space, key } => batch.delete_in(other(spaces, *space), key),
            Change::DeleteRange { space, span } => batch.delete_range_in(other(spaces, *space), span.clone()),
            Change::Merge { space, key, operand } => batch.merge_in(other(spaces, *space), key, operand),
        };
    }
    batch.commit_with(options)
}

fn other(spaces: &Spaces, space: usize) -> &shamba::Keyspace {
    spaces.others[space - 1].as_ref().expect("every keyspace was made at open")
}
