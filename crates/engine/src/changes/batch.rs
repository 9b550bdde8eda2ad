//! A committed batch in a stream of changes.

use std::sync::Arc;

use shamba_key::{Expiry, KeyspaceId, Operand};
use shamba_log::wal::{CommittedBatch, OpRef, encoded_ops};

use super::position::ChangePosition;

/// A committed batch. `Clone` is cheap.
#[derive(Clone)]
pub struct ChangeBatch {
    epoch: u64,
    batch: CommittedBatch,
    names: Arc<[(KeyspaceId, Arc<str>)]>,
}

/// One operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeOp<'a> {
    /// A value was stored under a key.
    #[non_exhaustive]
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The time from which the value is gone, in milliseconds since 1970-01-01 UTC; `None`: it
        /// lasts. No change comes when it is over.
        expiry_ms: Option<u64>,
    },
    /// A key was deleted.
    #[non_exhaustive]
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// The keys from `start` up to `end`, exclusive, were deleted. `None`: up to the last key.
    #[non_exhaustive]
    DeleteRange {
        /// The first key of the range.
        start: &'a [u8],
        /// The first key after the range.
        end: Option<&'a [u8]>,
    },
    /// An operand for the merge operator of the keyspace, as it was written.
    #[non_exhaustive]
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
}

impl std::fmt::Debug for ChangeBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeBatch").field("position", &self.position()).field("len", &self.len()).finish()
    }
}

impl ChangeBatch {
    /// A batch whose keyspaces have the names that `name_of` returns; without one for those whose
    /// operations have no effect. `None` if no operation has one.
    pub(super) fn new(
        epoch: u64,
        batch: CommittedBatch,
        mut name_of: impl FnMut(KeyspaceId) -> Option<Arc<str>>,
    ) -> Option<Self> {
        let mut names: Vec<(KeyspaceId, Arc<str>)> = Vec::new();
        for (id, _) in encoded_ops(&batch.encoded) {
            if names.iter().all(|(known, _)| *known != id) {
                names.extend(name_of(id).map(|name| (id, name)));
            }
        }
        (!names.is_empty()).then(|| Self { epoch, batch, names: names.into() })
    }

    /// The position after the batch.
    pub fn position(&self) -> ChangePosition {
        ChangePosition { epoch: self.epoch, sequence: self.batch.last_seq.0 }
    }

    /// The sequence number of its first operation; the others have the next ones.
    pub fn first_sequence(&self) -> u64 {
        self.batch.first_seq.0
    }

    /// Number of operations, those without effect included.
    #[allow(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> u64 {
        self.batch.last_seq.0 - self.batch.first_seq.0 + 1
    }

    /// The operations in their order, each with the name of its keyspace. Those of a keyspace that
    /// was dropped before the batch have no effect, and are left out; so are those of one that a
    /// version of this library has dropped which does not record it.
    pub fn operations(&self) -> impl Iterator<Item = (&str, ChangeOp<'_>)> {
        encoded_ops(&self.batch.encoded).filter_map(|(id, op)| {
            let (_, name) = self.names.iter().find(|(known, _)| *known == id)?;
            Some((&**name, ChangeOp::of(op)))
        })
    }
}

impl<'a> ChangeOp<'a> {
    fn of(op: OpRef<'a>) -> Self {
        match op {
            OpRef::Put { key, value } => Self::Put { key, value, expiry_ms: None },
            OpRef::PutExpiring { key, stored } => {
                // Never an error: the record was verified.
                let (expiry, value) = Expiry::split(stored).unwrap_or((Expiry(0), &[]));
                Self::Put { key, value, expiry_ms: Some(expiry.0) }
            }
            OpRef::Delete { key } => Self::Delete { key },
            OpRef::RangeDelete { start, end } => Self::DeleteRange { start, end },
            OpRef::Merge { key, operand } => {
                // Never an error: the record was verified.
                let operand = Operand::decode(operand).map_or(operand, |operand| operand.bytes);
                Self::Merge { key, operand }
            }
        }
    }
}
