//! Batch records: the encoding of the operations of one or more batches.
//!
//! ```text
//! record:     gap        varint    number of sequence numbers that no log has, between the last
//!                                  operation before the record (or the head's base) and the first
//!                                  one in it; nearly always 0
//!             operations           one after the other; each takes the next sequence number
//!
//! operation:  kind       1         1 put, 2 delete, 3 range delete, 4 merge, 6 put with an expiry
//!                                  time: as of entry kinds
//!                                  + 0x80: it is the first of its batch
//!                                  + 0x40: it states its keyspace; else that is the default one
//!             keyspace   varint    if stated
//!             key        varint length, bytes
//!             put only:            value: varint length, bytes
//!             merge, expiring put: operand or value in its stored form: varint length, bytes
//!             range delete only:   1 byte: 1 if an end follows, 0 if the range has no end;
//!                                  end (exclusive): varint length, bytes
//! ```
//!
//! The batches of a commit group share a record, so they need one checksum and no headers of their
//! own. A record is decoded completely before any of it is applied, so its batches are replayed
//! entirely or not at all. Keys and values are slices of the record.

use shamba_key::{EntryKind, Expiry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Operand, SeqNo};

use crate::framing::codec::{Decoded, Decoder, put_prefixed, put_varint};
use shamba_key::KeyspaceId;

/// Flag in an operation's kind: the operation is the first of its batch.
pub(super) const FIRST: u8 = 0x80;
/// Flag in an operation's kind: the keyspace is stated.
pub(super) const STATED: u8 = 0x40;
/// Maximum length of a varint of 32 bits.
const VARINT_32_BYTES: usize = 5;
/// Maximum length of an encoded gap.
pub(super) const GAP_BYTES_MAX: usize = 10;

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpRef<'a> {
    /// Stores a value under a key.
    Put {
        /// User key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Stores a value under a key until it expires.
    PutExpiring {
        /// User key.
        key: &'a [u8],
        /// The expiry and the value in their stored form ([`Expiry`]).
        stored: &'a [u8],
    },
    /// Deletes a key.
    Delete {
        /// User key.
        key: &'a [u8],
    },
    /// Deletes every key from `start` up to `end`, exclusive. `None`: up to the end of the
    /// keyspace.
    RangeDelete {
        /// First key of the range.
        start: &'a [u8],
        /// First key after the range.
        end: Option<&'a [u8]>,
    },
    /// Adds an operand for the merge operator to a key.
    Merge {
        /// User key.
        key: &'a [u8],
        /// The operand in its stored form ([`Operand`]).
        operand: &'a [u8],
    },
}

impl<'a> OpRef<'a> {
    /// An operation without effect, which takes a sequence number.
    pub const NOTHING: OpRef<'static> = OpRef::RangeDelete { start: b"", end: Some(b"") };

    /// Whether this is [`Self::NOTHING`].
    pub fn is_nothing(self) -> bool {
        matches!(self, Self::RangeDelete { start: b"", end: Some(b"") })
    }

    /// The key of an operation on one key.
    pub fn key(self) -> Option<&'a [u8]> {
        match self {
            Self::Put { key, .. }
            | Self::PutExpiring { key, .. }
            | Self::Delete { key }
            | Self::Merge { key, .. } => Some(key),
            Self::RangeDelete { .. } => None,
        }
    }

    /// The payload of the entry that a put makes: its value, after its expiry if it has one.
    pub fn put_payload(self) -> Option<&'a [u8]> {
        match self {
            Self::Put { value, .. } | Self::PutExpiring { stored: value, .. } => Some(value),
            Self::Delete { .. } | Self::RangeDelete { .. } | Self::Merge { .. } => None,
        }
    }

    /// Upper bound of the encoded length.
    pub fn encoded_bytes_max(&self) -> usize {
        let (first, second) = match self {
            Self::Put { key, value } => (key.len(), value.len()),
            Self::PutExpiring { key, stored } => (key.len(), stored.len()),
            Self::Delete { key } => (key.len(), 0),
            Self::RangeDelete { start, end } => (start.len(), end.map_or(0, <[u8]>::len)),
            Self::Merge { key, operand } => (key.len(), operand.len()),
        };
        first.saturating_add(second).saturating_add(2 + 3 * VARINT_32_BYTES)
    }
}

/// Appends one operation to the operations of a record. `is_first` says that it begins a batch.
pub fn encode_op(out: &mut Vec<u8>, is_first: bool, keyspace: KeyspaceId, op: OpRef<'_>) {
    let (before, bytes_max) = (out.len(), op.encoded_bytes_max());
    out.reserve(bytes_max);
    let tail = encode_op_head(out, is_first, keyspace, op);
    out.extend_from_slice(tail);
    debug_assert!(
        out.len() - before <= bytes_max,
        "an operation takes {} bytes, more than the stated {bytes_max}",
        out.len() - before
    );
}

/// Appends an operation except its last byte string (for a put, the value) and returns that string.
pub fn encode_op_head<'a>(
    out: &mut Vec<u8>,
    is_first: bool,
    keyspace: KeyspaceId,
    op: OpRef<'a>,
) -> &'a [u8] {
    let (kind, key) = match op {
        OpRef::Put { key, .. } => (EntryKind::Put, key),
        OpRef::PutExpiring { key, .. } => (EntryKind::PutWithExpiry, key),
        OpRef::Delete { key } => (EntryKind::Delete, key),
        OpRef::RangeDelete { start, .. } => (EntryKind::RangeDelete, start),
        OpRef::Merge { key, .. } => (EntryKind::Merge, key),
    };
    debug_assert!(kind.as_byte() & (FIRST | STATED) == 0, "kind {kind:?} collides with a flag");
    debug_assert!(key.len() <= MAX_KEY_BYTES, "replay would refuse a key of {} bytes", key.len());
    let first = if is_first { FIRST } else { 0 };
    if keyspace == KeyspaceId::DEFAULT {
        out.push(kind.as_byte() | first);
    } else {
        out.push(kind.as_byte() | first | STATED);
        put_varint(out, u64::from(keyspace.0));
    }
    match op {
        OpRef::Put { value, .. } | OpRef::PutExpiring { stored: value, .. } => {
            debug_assert!(
                value.len() <= MAX_VALUE_BYTES,
                "replay would refuse a value of {} bytes",
                value.len()
            );
            put_prefixed(out, key);
            put_varint(out, value.len() as u64);
            value
        }
        OpRef::Merge { operand, .. } => {
            debug_assert!(
                Operand::decode(operand).is_ok(),
                "replay would refuse an operand of {} bytes",
                operand.len()
            );
            put_prefixed(out, key);
            put_varint(out, operand.len() as u64);
            operand
        }
        OpRef::Delete { .. } => {
            put_varint(out, key.len() as u64);
            key
        }
        OpRef::RangeDelete { end, .. } => {
            put_prefixed(out, key);
            out.push(u8::from(end.is_some()));
            if let Some(end) = end {
                debug_assert!(
                    end.len() <= MAX_KEY_BYTES,
                    "replay would refuse an end of {} bytes",
                    end.len()
                );
                put_varint(out, end.len() as u64);
            }
            end.unwrap_or_default()
        }
    }
}

fn decode_key<'a>(decoder: &mut Decoder<'a>) -> Decoded<&'a [u8]> {
    let key = decoder.prefixed()?;
    if key.len() > MAX_KEY_BYTES {
        return Err(format!("a key of {} bytes", key.len()));
    }
    Ok(key)
}

/// Decodes an operation, and whether it begins a batch.
fn decode_op<'a>(decoder: &mut Decoder<'a>) -> Decoded<(bool, KeyspaceId, OpRef<'a>)> {
    let flags = decoder.u8()?;
    let kind = flags & !(FIRST | STATED);
    let keyspace = match flags & STATED {
        0 => KeyspaceId::DEFAULT,
        _ => KeyspaceId(decoder.varint_u32()?),
    };
    let key = decode_key(decoder)?;
    let op = match EntryKind::from_byte(kind) {
        Some(kind @ (EntryKind::Put | EntryKind::PutWithExpiry)) => {
            let value = decoder.prefixed()?;
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!("a value of {} bytes", value.len()));
            }
            if kind == EntryKind::Put {
                OpRef::Put { key, value }
            } else {
                _ = Expiry::split(value)?;
                OpRef::PutExpiring { key, stored: value }
            }
        }
        Some(EntryKind::Delete) => OpRef::Delete { key },
        Some(EntryKind::RangeDelete) => {
            let end = match decoder.u8()? {
                0 => None,
                1 => Some(decode_key(decoder)?),
                flag => return Err(format!("range end flag {flag}")),
            };
            OpRef::RangeDelete { start: key, end }
        }
        Some(EntryKind::Merge) => {
            let operand = decoder.prefixed()?;
            Operand::decode(operand)?;
            OpRef::Merge { key, operand }
        }
        _ => return Err(format!("operation kind {kind} in a log")),
    };
    Ok((flags & FIRST != 0, keyspace, op))
}

/// As [`encoded_ops`], with the end offset in `encoded` of each operation.
pub fn encoded_ops_and_ends(encoded: &[u8]) -> impl Iterator<Item = (usize, OpRef<'_>)> {
    let mut decoder = Decoder::new(encoded);
    std::iter::from_fn(move || {
        if decoder.is_empty() {
            return None;
        }
        let (_, _, op) = decode_op(&mut decoder).ok()?;
        Some((encoded.len() - decoder.rest().len(), op))
    })
}

/// Iterates over the operations in `encoded`, which [`encode_op`] wrote or [`RecordView::decode`]
/// verified.
pub fn encoded_ops(encoded: &[u8]) -> impl Iterator<Item = (KeyspaceId, OpRef<'_>)> {
    let mut decoder = Decoder::new(encoded);
    // Decoding never fails, because the bytes were verified.
    std::iter::from_fn(move || {
        if decoder.is_empty() {
            return None;
        }
        let decoded = decode_op(&mut decoder);
        debug_assert!(decoded.is_ok(), "an operation that was not verified: {decoded:?}");
        decoded.ok().map(|(_, keyspace, op)| (keyspace, op))
    })
}

/// A record whose operations were all verified.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    first_seq: SeqNo,
    ops: &'a [u8],
    /// Number of operations, if they are one batch.
    in_one_batch: Option<u32>,
}

impl<'a> RecordView<'a> {
    /// Decodes a record that follows the sequence number `after`, and verifies every operation.
    ///
    /// # Errors
    /// A phrase that describes the fault.
    pub fn decode(payload: &'a [u8], after: SeqNo) -> Decoded<Self> {
        let mut decoder = Decoder::new(payload);
        let gap = decoder.varint()?;
        let first_seq = after.0.checked_add(gap).and_then(|before| before.checked_add(1));
        let ops = decoder.rest();
        let (mut count, mut batches) = (0u64, 0u64);
        while !decoder.is_empty() {
            let (is_first, _, _) =
                decode_op(&mut decoder).map_err(|detail| format!("operation {count}: {detail}"))?;
            if count == 0 && !is_first {
                return Err("it begins inside a batch".to_owned());
            }
            count += 1;
            batches += u64::from(is_first);
        }
        if count == 0 {
            return Err("a record without operations".to_owned());
        }
        let fits = |first_seq: &u64| first_seq.checked_add(count - 1).is_some_and(|last| last < SeqNo::MAX.0);
        let Some(first_seq) = first_seq.filter(fits) else {
            return Err(format!("{count} sequence numbers after {after} and {gap} more do not fit"));
        };
        debug_assert!(first_seq > after.0, "a record from {first_seq} on follows {after}");
        let in_one_batch = u32::try_from(count).ok().filter(|_| batches == 1);
        Ok(Self { first_seq: SeqNo(first_seq), ops, in_one_batch })
    }

    /// Sequence number of the first operation.
    pub fn first_seq(&self) -> SeqNo {
        self.first_seq
    }

    /// The batches in order.
    pub fn batches(&self) -> impl Iterator<Item = BatchView<'a>> {
        let (mut next_seq, mut rest) = (self.first_seq, self.ops);
        let mut in_one_batch = self.in_one_batch;
        std::iter::from_fn(move || {
            if let Some(count) = in_one_batch.take() {
                // Most records are one batch of one operation: they are not decoded again for their
                // end.
                return Some(BatchView { first_seq: next_seq, count, ops: std::mem::take(&mut rest) });
            }
            let mut decoder = Decoder::new(rest);
            let mut end = rest.len();
            let mut count = 0;
            while !decoder.is_empty() {
                let at = rest.len() - decoder.rest().len();
                // Never an error: `decode` verified every operation.
                let decoded = decode_op(&mut decoder);
                debug_assert!(decoded.is_ok(), "an operation that was not verified: {decoded:?}");
                let (is_first, _, _) = decoded.ok()?;
                debug_assert!(is_first || count > 0, "the batch from {next_seq} on begins without its flag");
                if is_first && count > 0 {
                    end = at;
                    break;
                }
                count += 1;
            }
            let (ops, behind) = rest.split_at_checked(end).filter(|(ops, _)| !ops.is_empty())?;
            let batch = BatchView { first_seq: next_seq, count, ops };
            rest = behind;
            next_seq = SeqNo(next_seq.0.saturating_add(u64::from(count)));
            Some(batch)
        })
    }
}

/// One batch of a record.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    first_seq: SeqNo,
    count: u32,
    ops: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Sequence number of the last operation.
    pub fn last_seq(&self) -> SeqNo {
        debug_assert!(self.count > 0, "the batch from {} on is empty", self.first_seq);
        SeqNo(self.first_seq.0.saturating_add(u64::from(self.count).saturating_sub(1)))
    }

    /// Number of operations.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Sequence number of the first operation.
    pub fn first_seq(&self) -> SeqNo {
        self.first_seq
    }

    /// The operations in their encoding.
    pub fn encoded(&self) -> &'a [u8] {
        self.ops
    }

    /// The operations in order.
    pub fn ops(&self) -> impl Iterator<Item = (SeqNo, KeyspaceId, OpRef<'a>)> {
        (self.first_seq.0..)
            .map(SeqNo)
            .zip(encoded_ops(self.ops))
            .map(|(seq, (keyspace, op))| (seq, keyspace, op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Batch = Vec<(KeyspaceId, OpRef<'static>)>;

    /// Encodes a record of the given batches.
    fn encode(gap: u64, batches: &[Batch]) -> Vec<u8> {
        let mut payload = Vec::new();
        put_varint(&mut payload, gap);
        for batch in batches {
            for (index, &(keyspace, op)) in batch.iter().enumerate() {
                let before = payload.len();
                encode_op(&mut payload, index == 0, keyspace, op);
                assert!(payload.len() - before <= op.encoded_bytes_max());
            }
        }
        payload
    }

    fn example() -> Vec<Batch> {
        vec![
            vec![
                (KeyspaceId(0), OpRef::Put { key: b"a", value: b"1" }),
                (KeyspaceId(300), OpRef::Put { key: b"", value: b"" }),
            ],
            vec![(KeyspaceId(0), OpRef::Delete { key: b"b" })],
            vec![
                (KeyspaceId(1), OpRef::RangeDelete { start: b"c", end: Some(b"d") }),
                (KeyspaceId(u32::MAX), OpRef::RangeDelete { start: b"e", end: None }),
                (KeyspaceId(2), OpRef::Merge { key: b"f", operand: b"\0+1" }),
            ],
        ]
    }

    #[test]
    fn batches_round_trip() {
        for gap in [0, 3, 1_000] {
            let payload = encode(gap, &example());
            let record = RecordView::decode(&payload, SeqNo(9)).expect("it is valid");
            assert_eq!(record.first_seq(), SeqNo(10 + gap));
            let mut seq = record.first_seq().0;
            let mut decoded = record.batches();
            for batch in example() {
                let got = decoded.next().expect("one more batch");
                assert_eq!(got.count() as usize, batch.len());
                let due: Vec<_> = (seq..).zip(&batch).map(|(seq, (id, op))| (SeqNo(seq), *id, *op)).collect();
                assert_eq!(got.ops().collect::<Vec<_>>(), due);
                seq += batch.len() as u64;
                assert_eq!(got.last_seq(), SeqNo(seq - 1));
            }
            assert!(decoded.next().is_none());
        }
    }

    #[test]
    fn a_put_in_the_default_keyspace_costs_three_bytes() {
        let op = OpRef::Put { key: &[1; 16], value: &[2; 100] };
        assert_eq!(encode(0, &[vec![(KeyspaceId(0), op)]]).len(), 1 + 3 + 116);
    }

    #[test]
    fn cut_and_overlong_records_are_refused() {
        let payload = encode(0, &example());
        for cut in 0..payload.len() {
            // A prefix of whole operations is a valid record, but has fewer operations.
            if let Ok(record) = RecordView::decode(&payload[..cut], SeqNo(9)) {
                assert!(record.batches().map(|batch| batch.count()).sum::<u32>() < 6, "cut at {cut}");
            }
        }
        let longer: Vec<u8> = payload.iter().copied().chain([0]).collect();
        assert!(RecordView::decode(&longer, SeqNo(9)).is_err());
        for after in [SeqNo::MAX.0 - 5, u64::MAX] {
            assert!(RecordView::decode(&payload, SeqNo(after)).is_err(), "after {after}");
        }
        assert!(RecordView::decode(&encode(u64::MAX, &example()), SeqNo(9)).is_err());
        assert!(RecordView::decode(&[0], SeqNo(9)).is_err(), "no operation");
        assert!(RecordView::decode(&[0, 2, 0], SeqNo(9)).is_err(), "inside a batch");
    }

    #[test]
    fn any_flip_decodes_in_full_or_not_at_all() {
        let payload = encode(0, &example());
        for at in 0..payload.len() {
            for mask in 1..=0xffu8 {
                let mut damaged = payload.clone();
                damaged[at] ^= mask;
                if let Ok(record) = RecordView::decode(&damaged, SeqNo(9)) {
                    let counted: u32 = record.batches().map(|batch| batch.count()).sum();
                    let given: usize = record.batches().map(|batch| batch.ops().count()).sum();
                    let all = encoded_ops(record.ops).count();
                    assert_eq!((counted as usize, given), (all, all), "byte {at} mask {mask:x}");
                }
            }
        }
    }

    #[test]
    fn the_bound_of_the_length_allows_for_a_kind_a_flag_and_three_varints() {
        let (key, value) = (vec![1; MAX_KEY_BYTES], vec![2; 3 << 20]);
        let operand = Operand { reach: 5, bytes: &key }.encode();
        let stored = Expiry(7).encode(&value);
        for (op, strings_bytes) in [
            (OpRef::Put { key: &key, value: &value }, key.len() + value.len()),
            (OpRef::PutExpiring { key: &key, stored: &stored }, key.len() + stored.len()),
            (OpRef::Delete { key: &key }, key.len()),
            (OpRef::RangeDelete { start: &key, end: Some(&key) }, 2 * key.len()),
            (OpRef::RangeDelete { start: &key, end: None }, key.len()),
            (OpRef::Merge { key: &key, operand: &operand }, key.len() + operand.len()),
        ] {
            let mut encoded = Vec::new();
            let tail = encode_op_head(&mut encoded, true, KeyspaceId(u32::MAX), op);
            encoded.extend_from_slice(tail);
            assert!(encoded.len() <= op.encoded_bytes_max(), "{} bytes", encoded.len());
            assert_eq!(op.encoded_bytes_max(), strings_bytes + 2 + 3 * 5);
        }
    }

    #[test]
    fn an_operation_on_one_key_tells_its_key() {
        for op in [
            OpRef::Put { key: b"k", value: b"v" },
            OpRef::PutExpiring { key: b"k", stored: b"12345678v" },
            OpRef::Delete { key: b"k" },
            OpRef::Merge { key: b"k", operand: b"\0v" },
        ] {
            assert_eq!(op.key(), Some(&b"k"[..]));
        }
        assert_eq!(OpRef::RangeDelete { start: b"k", end: Some(b"l") }.key(), None);
    }

    #[test]
    fn the_last_sequence_number_of_a_record_lies_below_the_maximum() {
        let ops = 6;
        for gap in [0, 3] {
            let payload = encode(gap, &example());
            let last_fit = SeqNo(SeqNo::MAX.0 - 1 - ops - gap);
            let record = RecordView::decode(&payload, last_fit).expect("it fits exactly");
            assert_eq!(record.batches().last().map(|batch| batch.last_seq().0), Some(SeqNo::MAX.0 - 1));
            let fault = RecordView::decode(&payload, last_fit.next()).expect_err("one too many");
            assert!(fault.starts_with("6 sequence numbers after "), "{fault}");
        }
    }

    #[test]
    fn a_value_of_the_maximum_length_is_the_longest() {
        let head = |bytes: usize| {
            let mut head = vec![0, FIRST | EntryKind::Put.as_byte(), 1, b'k'];
            put_varint(&mut head, bytes as u64);
            head
        };
        // Fresh zeros of this length take no memory until they are written.
        let record_of = |bytes: usize| {
            let head = head(bytes);
            let mut payload = vec![0; head.len() + bytes];
            payload[..head.len()].copy_from_slice(&head);
            payload
        };
        let payload = record_of(MAX_VALUE_BYTES);
        let record = RecordView::decode(&payload, SeqNo(9)).expect("it is valid");
        let batch = record.batches().next().expect("a batch");
        let value_bytes = batch.ops().map(|(_, _, op)| op.put_payload().map(<[u8]>::len));
        assert_eq!(value_bytes.collect::<Vec<_>>(), [Some(MAX_VALUE_BYTES)]);
        let fault = RecordView::decode(&record_of(MAX_VALUE_BYTES + 1), SeqNo(9)).expect_err("too long");
        assert_eq!(fault, format!("operation 0: a value of {} bytes", MAX_VALUE_BYTES + 1));
    }
}
