//! Own writes of a transaction: how an operation joins them ([`super::writes`]), and what a read
//! sees of them.
//!
//! An operand of the merge operator that follows an own write of its key is folded into it at once.
//! Otherwise it waits for the value that the key had before: a blind merge reads nothing.

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry, KeyspaceId, Operand};
use shamba_log::wal::OpRef;
use shamba_tree::slice::Slice;
use shamba_tree::version::KeyRange as Span;

use super::writes::{State, bytes_of};
use super::{FREE_BYTES, Transaction};
use crate::catalog::KeyspaceCore;
use crate::database::Keyspace;
use crate::error::Result;
use crate::writer::operations::{check_op, with_put};

impl Transaction {
    /// Adds an operation to the writes.
    ///
    /// # Errors
    /// `Invalid` for one that cannot be stored, or with which the transaction exceeds its memory.
    pub(super) fn write(&mut self, keyspace: KeyspaceId, op: OpRef<'_>) -> Result<()> {
        check_op(op)?;
        let read_bytes = self.noted.lock().reads.bytes();
        self.check_memory(self.writes.bytes() + read_bytes + bytes_of(op))?;
        self.apply(keyspace, op);
        let bytes = self.writes.bytes() + read_bytes;
        if bytes > FREE_BYTES {
            self.charge_again();
        }
        Ok(())
    }

    /// Adds an operand to a key. One that follows a write of this transaction is folded into it.
    pub(super) fn merge_op(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<()> {
        let core = keyspace.core();
        let stored = core.operand(key, operand)?;
        let own = self.writes.of(core.id).and_then(|writes| writes.state(key));
        let base = match own {
            None | Some(State::Merged(_)) => {
                return self.write(core.id, OpRef::Merge { key, operand: &stored });
            }
            Some(State::Put(value, expiry)) => Some((&value[..], *expiry)),
            Some(State::Deleted) => None,
        };
        let value = core.fold(key, base.map(|(value, _)| value), &[operand])?;
        let expiry = base.and_then(|(_, expiry)| expiry);
        with_put(key, &value, expiry, |op| self.write(core.id, op))
    }

    /// Adds an operation, whose memory was checked, to the writes.
    fn apply(&mut self, keyspace: KeyspaceId, op: OpRef<'_>) {
        match op {
            OpRef::Merge { key, operand } => {
                let operand = Operand::decode(operand).map_or(&[][..], |operand| operand.bytes);
                self.writes.merge(keyspace, key, Bytes::copy_from_slice(operand));
            }
            OpRef::Put { key, value } => {
                let value = State::Put(Bytes::copy_from_slice(value), None);
                self.writes.set(keyspace, Bytes::copy_from_slice(key), value);
            }
            OpRef::PutExpiring { key, stored } => {
                let value = stored.get(Expiry::STORED_BYTES..).unwrap_or_default();
                let expiry = Expiry::of(EntryKind::PutWithExpiry, stored);
                let value = State::Put(Bytes::copy_from_slice(value), expiry);
                self.writes.set(keyspace, Bytes::copy_from_slice(key), value);
            }
            OpRef::Delete { key } => {
                self.writes.set(keyspace, Bytes::copy_from_slice(key), State::Deleted);
            }
            OpRef::RangeDelete { start, end } => {
                let range =
                    Span { lower: Bytes::copy_from_slice(start), upper: end.map(Bytes::copy_from_slice) };
                self.writes.delete_range(keyspace, range);
            }
        }
    }
}

/// The value of a key of which the transaction has the state `own`; `before` looks up the value
/// that it had before.
pub(super) fn seen(
    keyspace: &KeyspaceCore,
    key: &[u8],
    own: Option<State>,
    before: impl FnOnce() -> Result<Option<Slice>>,
) -> Result<Option<Slice>> {
    match own {
        None => before(),
        // It expires after the time at which the transaction reads.
        Some(State::Put(value, _)) => Ok(Some(Slice::from_bytes(value))),
        Some(State::Deleted) => Ok(None),
        Some(State::Merged(operands)) => {
            let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
            keyspace.fold(key, before()?.as_deref(), &operands).map(|value| Some(Slice::from(value)))
        }
    }
}
