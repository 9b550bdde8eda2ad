//! The batches of a commit group: a single operation of the calling thread, or encoded operations.

use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::{LargeRecord, OpRef, ValuePlace, encoded_ops, encoded_ops_and_ends};

use super::conditions::Conditions;
use super::operations::{Operations, Tally};
use crate::options::settings::Durability;

/// The operations of one batch of a group.
#[derive(Clone, Copy)]
pub(super) enum Writes<'a> {
    One(KeyspaceId, OpRef<'a>),
    Batch(&'a Operations),
}

/// One batch of a group, its durability, and what it depends on.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    pub writes: Writes<'a>,
    pub durability: Durability,
    pub conditions: Option<&'a Conditions>,
}

impl<'a> Writes<'a> {
    /// Number and bytes of the operations.
    pub fn tally(&self) -> Tally {
        match self {
            Self::One(_, op) => Tally::of(*op),
            Self::Batch(operations) => operations.tally,
        }
    }

    /// Upper bound of the encoded bytes in the log; close to the actual length.
    pub fn bytes(&self) -> usize {
        match self {
            Self::One(_, op) => op.encoded_bytes_max(),
            Self::Batch(operations) => operations.encoded.len(),
        }
    }

    /// Calls `each` with every operation and its keyspace, in order.
    pub fn for_each(&self, mut each: impl FnMut(KeyspaceId, OpRef<'a>)) {
        match self {
            Self::One(keyspace, op) => each(*keyspace, *op),
            Self::Batch(operations) => {
                encoded_ops(&operations.encoded).for_each(|(keyspace, op)| each(keyspace, op));
            }
        }
    }

    /// Calls `each` with every value longer than `held_bytes_max`. For a batch, `each` also gets
    /// the offset at which the value ends in the encoded operations.
    pub fn long_values(&self, held_bytes_max: u64, each: &mut dyn FnMut(Option<usize>, &[u8])) {
        let is_long = |value: &[u8]| value.len() as u64 > held_bytes_max;
        match self {
            Self::One(_, op) => {
                if let Some(value) = op.put_payload().filter(|value| is_long(value)) {
                    each(None, value);
                }
            }
            Self::Batch(operations) => {
                for (end, op) in encoded_ops_and_ends(&operations.encoded) {
                    if let Some(value) = op.put_payload().filter(|value| is_long(value)) {
                        each(Some(end), value);
                    }
                }
            }
        }
    }

    /// Adds the places of values longer than `held_bytes_max`, for a batch with a record of its
    /// own.
    pub fn places(&self, log: LogNo, record: LargeRecord, held_bytes_max: u64, places: &mut Vec<ValuePlace>) {
        let LargeRecord { offset, ops_at, ops_bytes } = record;
        self.long_values(held_bytes_max, &mut |end, value| {
            let end = end.unwrap_or(ops_bytes);
            debug_assert!(end <= ops_bytes, "a value ends at {end}, behind its record's {ops_bytes} bytes");
            debug_assert!(value.len() <= ops_at + end, "a value begins before its record");
            let at = (ops_at + end).saturating_sub(value.len()) as u64;
            // At most 256 MiB: its length was checked.
            places.push(ValuePlace { log, record: offset, at, bytes: value.len() as u32 });
        });
    }
}
