//! Batch records: the operations of one batch, as the log holds them.
//!
//! ```text
//!  0  8  sequence number of the first operation; each further one takes the next
//!  8  4  number of operations, at least 1
//! 12     operations, one after the other:
//!          kind     1        1 put, 2 delete, 3 range delete (the bytes of entry kinds)
//!          keyspace varint
//!          key      varint length, bytes
//!          put only:          value: varint length, bytes
//!          range delete only: 1 byte: 1 if an end follows, 0 if everything from the key on goes
//!                             end (exclusive): varint length, bytes
//! ```
//!
//! A record is decoded whole before any of it is applied, so a batch is replayed entirely or not at all.
//! Keys and values share the record's memory.

use bytes::Bytes;
use shamba_key::{EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo};

use crate::ids::KeyspaceId;
use crate::log::codec::{Decoded, Decoder, put_prefixed, put_varint};

/// One operation, on its way into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpRef<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        key: &'a [u8],
    },
    /// Everything from `start` up to `end`, exclusive; `None`: to the end of the keyspace.
    RangeDelete {
        start: &'a [u8],
        end: Option<&'a [u8]>,
    },
}

/// One operation, back from the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Put {
        key: Bytes,
        value: Bytes,
    },
    Delete {
        key: Bytes,
    },
    /// Everything from `start` up to `end`, exclusive; `None`: to the end of the keyspace.
    RangeDelete {
        start: Bytes,
        end: Option<Bytes>,
    },
}

/// Appends one operation to the operations of a batch.
pub(crate) fn encode_op(out: &mut Vec<u8>, keyspace: KeyspaceId, op: OpRef<'_>) {
    let (kind, key) = match op {
        OpRef::Put { key, .. } => (EntryKind::Put, key),
        OpRef::Delete { key } => (EntryKind::Delete, key),
        OpRef::RangeDelete { start, .. } => (EntryKind::RangeDelete, start),
    };
    out.push(kind.as_byte());
    put_varint(out, u64::from(keyspace.0));
    put_prefixed(out, key);
    match op {
        OpRef::Put { value, .. } => put_prefixed(out, value),
        OpRef::Delete { .. } => {}
        OpRef::RangeDelete { end, .. } => {
            out.push(u8::from(end.is_some()));
            if let Some(end) = end {
                put_prefixed(out, end);
            }
        }
    }
}

/// Length of the fixed part before the operations.
const PREFIX_BYTES: usize = 12;

/// The fixed part of the record of a batch of `count` operations.
pub(crate) fn encode_prefix(first_seq: SeqNo, count: u32) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..8].copy_from_slice(&first_seq.0.to_le_bytes());
    prefix[8..].copy_from_slice(&count.to_le_bytes());
    prefix
}

/// First sequence number and number of operations of a record.
fn decode_prefix(payload: &[u8]) -> Decoded<(SeqNo, u32)> {
    let mut decoder = Decoder::new(payload);
    let first_seq = SeqNo(decoder.u64()?);
    let count = decoder.u32()?;
    if first_seq == SeqNo::ZERO || count == 0 {
        return Err("a batch without sequence number or operations".to_owned());
    }
    let last = first_seq.0.checked_add(u64::from(count) - 1);
    if last.is_none_or(|last| last >= SeqNo::MAX.0) {
        return Err(format!("sequence numbers from {first_seq} on do not fit"));
    }
    Ok((first_seq, count))
}

fn decode_key<'a>(decoder: &mut Decoder<'a>) -> Decoded<&'a [u8]> {
    let key = decoder.prefixed()?;
    if key.len() > MAX_KEY_BYTES {
        return Err(format!("a key of {} bytes", key.len()));
    }
    Ok(key)
}

fn decode_op<'a>(decoder: &mut Decoder<'a>) -> Decoded<(KeyspaceId, OpRef<'a>)> {
    let kind = decoder.u8()?;
    let keyspace = KeyspaceId(decoder.varint_u32()?);
    let key = decode_key(decoder)?;
    let op = match EntryKind::from_byte(kind) {
        Some(EntryKind::Put) => {
            let value = decoder.prefixed()?;
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!("a value of {} bytes", value.len()));
            }
            OpRef::Put { key, value }
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
        _ => return Err(format!("operation kind {kind} in a log")),
    };
    Ok((keyspace, op))
}

/// A batch record, checked in full.
#[derive(Clone, Debug)]
pub(crate) struct BatchView {
    first_seq: SeqNo,
    count: u32,
    payload: Bytes,
}

impl BatchView {
    /// Decodes a batch record and checks every operation.
    ///
    /// # Errors
    /// A phrase that says what is wrong.
    pub(crate) fn decode(payload: &Bytes) -> Decoded<Self> {
        let (first_seq, count) = decode_prefix(payload)?;
        let mut decoder = Decoder::new(payload.get(PREFIX_BYTES..).unwrap_or_default());
        for index in 0..count {
            decode_op(&mut decoder).map_err(|detail| format!("operation {index}: {detail}"))?;
        }
        decoder.finish()?;
        Ok(Self { first_seq, count, payload: payload.clone() })
    }

    /// Sequence number of the first operation.
    pub(crate) fn first_seq(&self) -> SeqNo {
        self.first_seq
    }

    /// Sequence number of the last operation.
    pub(crate) fn last_seq(&self) -> SeqNo {
        SeqNo(self.first_seq.0 + u64::from(self.count) - 1)
    }

    /// How many operations there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The operations in order.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (SeqNo, KeyspaceId, Op)> + '_ {
        let mut decoder = Decoder::new(self.payload.get(PREFIX_BYTES..).unwrap_or_default());
        let share = |bytes: &[u8]| self.payload.slice_ref(bytes);
        (self.first_seq.0..=self.last_seq().0).map_while(move |seq| {
            // Never `None`: `decode` saw every operation.
            let (keyspace, op) = decode_op(&mut decoder).ok()?;
            let op = match op {
                OpRef::Put { key, value } => Op::Put { key: share(key), value: share(value) },
                OpRef::Delete { key } => Op::Delete { key: share(key) },
                OpRef::RangeDelete { start, end } => {
                    Op::RangeDelete { start: share(start), end: end.map(share) }
                }
            };
            Some((SeqNo(seq), keyspace, op))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a batch of `count` operations, as [`encode_op`] wrote them.
    fn encode_batch(first_seq: SeqNo, count: u32, ops: &[u8]) -> Bytes {
        [&encode_prefix(first_seq, count)[..], ops].concat().into()
    }

    fn example() -> (Vec<u8>, Vec<(KeyspaceId, OpRef<'static>)>) {
        let ops = vec![
            (KeyspaceId(0), OpRef::Put { key: b"a", value: b"1" }),
            (KeyspaceId(300), OpRef::Put { key: b"", value: b"" }),
            (KeyspaceId(0), OpRef::Delete { key: b"b" }),
            (KeyspaceId(1), OpRef::RangeDelete { start: b"c", end: Some(b"d") }),
            (KeyspaceId(u32::MAX), OpRef::RangeDelete { start: b"e", end: None }),
        ];
        let mut encoded = Vec::new();
        for &(keyspace, op) in &ops {
            encode_op(&mut encoded, keyspace, op);
        }
        (encode_batch(SeqNo(10), 5, &encoded).to_vec(), ops)
    }

    #[test]
    fn a_batch_round_trips() {
        let (payload, ops) = example();
        let batch = BatchView::decode(&Bytes::from(payload)).expect("it is valid");
        assert_eq!((batch.first_seq(), batch.last_seq(), batch.count()), (SeqNo(10), SeqNo(14), 5));
        let mut decoded = batch.ops();
        for (seq, (keyspace, op)) in (10..).zip(ops) {
            let (got_seq, got_keyspace, got) = decoded.next().expect("one more operation");
            assert_eq!((got_seq, got_keyspace), (SeqNo(seq), keyspace));
            let got = match &got {
                Op::Put { key, value } => OpRef::Put { key, value },
                Op::Delete { key } => OpRef::Delete { key },
                Op::RangeDelete { start, end } => OpRef::RangeDelete { start, end: end.as_deref() },
            };
            assert_eq!(got, op);
        }
        assert!(decoded.next().is_none());
    }

    #[test]
    fn cut_and_overlong_batches_are_refused() {
        let (payload, _) = example();
        for cut in 0..payload.len() {
            assert!(BatchView::decode(&Bytes::copy_from_slice(&payload[..cut])).is_err(), "cut at {cut}");
        }
        let mut longer = payload.clone();
        longer.push(0);
        assert!(BatchView::decode(&Bytes::from(longer)).is_err());
        for first_seq in [0, SeqNo::MAX.0 - 4, u64::MAX] {
            let mut payload = payload.clone();
            payload[..8].copy_from_slice(&first_seq.to_le_bytes());
            assert!(BatchView::decode(&Bytes::from(payload)).is_err(), "from {first_seq}");
        }
    }

    #[test]
    fn any_flip_decodes_in_full_or_not_at_all() {
        let (payload, _) = example();
        for at in 0..payload.len() {
            for mask in 1..=0xffu8 {
                let mut damaged = payload.clone();
                damaged[at] ^= mask;
                if let Ok(batch) = BatchView::decode(&Bytes::from(damaged)) {
                    assert_eq!(
                        batch.ops().count() as u64,
                        u64::from(batch.count()),
                        "byte {at} mask {mask:x}"
                    );
                }
            }
        }
    }
}
