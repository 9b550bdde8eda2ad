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

#[cfg(test)]
mod tests {
    use super::*;

    fn long_values(writes: Writes<'_>, held_bytes_max: u64) -> Vec<(Option<usize>, Vec<u8>)> {
        let mut long = Vec::new();
        writes.long_values(held_bytes_max, &mut |end, value| long.push((end, value.to_vec())));
        long
    }

    #[test]
    fn values_are_long_beyond_the_bytes_that_a_memtable_holds() {
        let held = OpRef::Put { key: b"held", value: b"1234" };
        let long = OpRef::Put { key: b"long", value: b"12345" };
        let expiring = OpRef::PutExpiring { key: b"expiring", stored: b"12345678v" };
        let delete = OpRef::Delete { key: b"longer than a value" };
        let one = |op| long_values(Writes::One(KeyspaceId::DEFAULT, op), 4);
        assert_eq!(one(long), [(None, b"12345".to_vec())]);
        assert_eq!(one(expiring), [(None, b"12345678v".to_vec())]);
        assert!(one(held).is_empty() && one(delete).is_empty());

        let mut operations = Operations::EMPTY;
        let mut ends = Vec::new();
        for op in [long, held, delete, expiring] {
            operations.push(KeyspaceId::DEFAULT, op).expect("valid");
            ends.push(operations.encoded.len());
        }
        let batch = Writes::Batch(&operations);
        let expected = [(Some(ends[0]), b"12345".to_vec()), (Some(ends[3]), b"12345678v".to_vec())];
        assert_eq!(long_values(batch, 4), expected);
        assert_eq!(long_values(batch, 8), expected[1..]);
        assert!(long_values(batch, 9).is_empty());

        // The operations begin after 20 bytes of the record's payload.
        let record = LargeRecord { offset: 1_000, ops_at: 20, ops_bytes: operations.encoded.len() };
        let mut places = Vec::new();
        batch.places(LogNo(3), record, 4, &mut places);
        let place = |end: usize, bytes: u32| ValuePlace {
            log: LogNo(3),
            record: 1_000,
            at: 20 + end as u64 - u64::from(bytes),
            bytes,
        };
        assert_eq!(places, [place(ends[0], 5), place(ends[3], 9)]);
    }
}
