//! Output of replay: operations in order. A long value is represented by its place in the log.
//!
//! Not here: which records are valid (`replay`).

use std::sync::Arc;

use shamba_key::{Expiry, SeqNo};

use super::record::{BatchView, OpRef};
use super::stream::{OpStream, StreamedOp, StreamedValue};
use super::value::{ValueLog, ValuePlace};
use crate::framing::payload::decoded;
use crate::framing::{FrameReader, Record};
use crate::{Error, Result};
use shamba_key::KeyspaceId;

/// One unit of replay: a batch, or the batches of a record that is too long to be held in memory.
pub enum Replayed<'a> {
    /// A batch whose record is in memory.
    Held(BatchView<'a>),
    /// The batches of a record that is read again while they are applied.
    Streamed(StreamedBatches<'a>),
}

/// The batches of a record that was verified, and is read again while they are applied.
pub struct StreamedBatches<'a> {
    pub(super) reader: &'a mut FrameReader,
    pub(super) record: &'a Record,
    pub(super) first_seq: SeqNo,
    pub(super) held_bytes_max: u64,
    pub(super) log: Arc<ValueLog>,
}

/// One replayed operation.
#[derive(Clone, Copy, Debug)]
pub enum ReplayedOp<'a> {
    /// An operation with its value in memory.
    Op(OpRef<'a>),
    /// A put whose value stays in the log.
    PutInLog {
        /// User key.
        key: &'a [u8],
        /// The expiry, which the value in the log then begins with.
        expiry: Option<Expiry>,
        /// The log that holds the value.
        log: &'a Arc<ValueLog>,
        /// The place of the value in the log.
        place: ValuePlace,
    },
}

impl ReplayedOp<'_> {
    /// Whether this is [`OpRef::NOTHING`].
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Op(op) if op.is_nothing())
    }
}

impl Replayed<'_> {
    /// Passes every operation, in order, to `apply`.
    ///
    /// # Errors
    /// A read failed, or `apply` returned an error. The record was verified before, so a malformed
    /// operation means that the file changed in between.
    pub fn for_each<E: From<Error>>(
        self,
        apply: &mut dyn FnMut(SeqNo, KeyspaceId, ReplayedOp<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Held(batch) => {
                batch.ops().try_for_each(|(seq, keyspace, op)| apply(seq, keyspace, ReplayedOp::Op(op)))
            }
            Self::Streamed(batches) => batches.for_each(apply),
        }
    }
}

impl StreamedBatches<'_> {
    fn for_each<E: From<Error>>(
        self,
        apply: &mut dyn FnMut(SeqNo, KeyspaceId, ReplayedOp<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let changed = |detail: String| {
            let detail = format!("it changed during the read: {detail}");
            Error::corruption(self.log.path(), self.record.offset, "batch", detail)
        };
        let mut seq = self.first_seq;
        debug_assert!(
            self.record.payload_bytes > self.record.payload.len() as u64,
            "the record at {} is held in memory and need not be read again",
            self.record.offset
        );
        let payload = self.reader.payload_of(self.record);
        let mut ops = decoded(OpStream::new(payload, self.held_bytes_max))?.map_err(changed)?;
        let place_at = |at, bytes| {
            debug_assert!(
                at + u64::from(bytes) <= self.record.payload_bytes,
                "a value of {bytes} bytes at {at} of a payload of {}",
                self.record.payload_bytes
            );
            ValuePlace { log: self.log.number(), record: self.record.offset, at, bytes }
        };
        while let Some((_, keyspace, op)) = decoded(ops.next())?.map_err(changed)? {
            let op = match op {
                StreamedOp::Put { key, value: StreamedValue::Held(value) } => {
                    ReplayedOp::Op(OpRef::Put { key, value })
                }
                StreamedOp::Put { key, value: StreamedValue::At { at, bytes } } => {
                    let (log, place) = (&self.log, place_at(at, bytes));
                    ReplayedOp::PutInLog { key, expiry: None, log, place }
                }
                StreamedOp::PutExpiring { key, stored: StreamedValue::Held(stored), .. } => {
                    ReplayedOp::Op(OpRef::PutExpiring { key, stored })
                }
                StreamedOp::PutExpiring { key, expiry, stored: StreamedValue::At { at, bytes } } => {
                    let (log, place) = (&self.log, place_at(at, bytes));
                    ReplayedOp::PutInLog { key, expiry: Some(expiry), log, place }
                }
                StreamedOp::Delete { key } => ReplayedOp::Op(OpRef::Delete { key }),
                StreamedOp::RangeDelete { start, end } => ReplayedOp::Op(OpRef::RangeDelete { start, end }),
                StreamedOp::Merge { key, operand } => ReplayedOp::Op(OpRef::Merge { key, operand }),
            };
            apply(seq, keyspace, op)?;
            seq = seq.next();
        }
        Ok(())
    }
}
