//! Decodes the operations of a record that is too long to be held in memory, while it is read.
//!
//! [`OpStream`] returns the operations in order, with long values as places. A record is streamed
//! twice: once to verify all of it ([`check`]), so that it is applied entirely or not at all, and
//! once to apply it.
//!
//! Not here: the encoding, which is that of [`super::record`].

use shamba_key::{EntryKind, Expiry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Operand, SeqNo};

use super::record::{FIRST, STATED};
use crate::framing::codec::read_varint;
use crate::framing::payload::{PayloadReader, Stop};
use shamba_key::KeyspaceId;

type Result<T> = std::result::Result<T, Stop>;

/// One operation of a streamed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamedOp<'s> {
    /// Stores a value under a key.
    Put {
        /// User key.
        key: &'s [u8],
        /// Value.
        value: StreamedValue<'s>,
    },
    /// Stores a value under a key until it expires.
    PutExpiring {
        /// User key.
        key: &'s [u8],
        /// The expiry.
        expiry: Expiry,
        /// Expiry and value in their stored form.
        stored: StreamedValue<'s>,
    },
    /// Deletes a key.
    Delete {
        /// User key.
        key: &'s [u8],
    },
    /// Deletes the keys from `start` up to `end`, exclusive. `None`: up to the end of the keyspace.
    RangeDelete {
        /// First key of the range.
        start: &'s [u8],
        /// First key after the range.
        end: Option<&'s [u8]>,
    },
    /// Adds an operand for the merge operator to a key.
    Merge {
        /// User key.
        key: &'s [u8],
        /// The operand in its stored form ([`Operand`]), which is never long.
        operand: &'s [u8],
    },
}

/// The value of a put of a streamed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamedValue<'s> {
    /// A value in memory.
    Held(&'s [u8]),
    /// The place of the value in the record's payload.
    At {
        /// Offset in the record's payload.
        at: u64,
        /// Length of the value.
        bytes: u32,
    },
}

/// Summary of a record whose operations were all verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Sequence number of the first operation.
    pub first_seq: SeqNo,
    /// Sequence number of the last operation.
    pub last_seq: SeqNo,
    /// Number of batches.
    pub batches: u64,
    /// Number of operations.
    pub ops: u64,
}

/// Reads a record's operations in order.
#[derive(Debug)]
pub struct OpStream<'w> {
    payload: PayloadReader<'w>,
    /// Sequence numbers that no log has before the first operation.
    gap: u64,
    /// Maximum length of values that are held in memory.
    held_bytes_max: u64,
    key: Vec<u8>,
    /// The value of a put (the expiry of a long one), the end of a range delete, or an operand.
    second: Vec<u8>,
}

impl<'w> OpStream<'w> {
    /// Creates a stream. Values of at most `held_bytes_max` bytes are returned in memory, longer
    /// ones as places.
    pub fn new(mut payload: PayloadReader<'w>, held_bytes_max: u64) -> Result<Self> {
        let gap = read_varint(|| payload.u8())?;
        Ok(Self { payload, gap, held_bytes_max, key: Vec::new(), second: Vec::new() })
    }

    /// The next operation, and whether it begins a batch; `None` after the last.
    #[allow(clippy::should_implement_trait, reason = "it fails, or lends; an iterator can not")]
    pub fn next(&mut self) -> Result<Option<(bool, KeyspaceId, StreamedOp<'_>)>> {
        if self.payload.left() == 0 {
            return Ok(None);
        }
        let payload = &mut self.payload;
        let flags = payload.u8()?;
        let keyspace = match flags & STATED {
            0 => KeyspaceId::DEFAULT,
            _ => {
                let id = read_varint(|| payload.u8())?;
                KeyspaceId(u32::try_from(id).map_err(|_| format!("{id} does not fit in 32 bits"))?)
            }
        };
        take_key(payload, &mut self.key)?;
        let op = match EntryKind::from_byte(flags & !(FIRST | STATED)) {
            Some(kind @ (EntryKind::Put | EntryKind::PutWithExpiry)) => {
                let bytes = read_varint(|| payload.u8())?;
                let fits = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= MAX_VALUE_BYTES);
                let value_bytes = fits.ok_or_else(|| format!("a value of {bytes} bytes"))?;
                let at = payload.at();
                let is_held = bytes <= self.held_bytes_max;
                // Of a long value at most the expiry is read.
                let expiry_bytes = if kind.has_expiry() { Expiry::STORED_BYTES as u64 } else { 0 };
                let taken = if is_held { bytes } else { bytes.min(expiry_bytes) };
                self.second.clear();
                payload.take(taken, &mut self.second)?;
                payload.skip(bytes - taken)?;
                let value = match is_held {
                    true => StreamedValue::Held(&self.second),
                    false => StreamedValue::At { at, bytes: value_bytes },
                };
                if kind.has_expiry() {
                    let (expiry, _) = Expiry::split(&self.second)?;
                    StreamedOp::PutExpiring { key: &self.key, expiry, stored: value }
                } else {
                    StreamedOp::Put { key: &self.key, value }
                }
            }
            Some(EntryKind::Delete) => StreamedOp::Delete { key: &self.key },
            Some(EntryKind::RangeDelete) => {
                let end = match payload.u8()? {
                    0 => None,
                    1 => {
                        take_key(payload, &mut self.second)?;
                        Some(&self.second[..])
                    }
                    flag => return Err(Stop::Malformed(format!("range end flag {flag}"))),
                };
                StreamedOp::RangeDelete { start: &self.key, end }
            }
            Some(EntryKind::Merge) => {
                let bytes = read_varint(|| payload.u8())?;
                if bytes > Operand::STORED_BYTES_MAX as u64 {
                    return Err(Stop::Malformed(format!("an operand of {bytes} bytes")));
                }
                self.second.clear();
                payload.take(bytes, &mut self.second)?;
                Operand::decode(&self.second)?;
                StreamedOp::Merge { key: &self.key, operand: &self.second }
            }
            _ => {
                return Err(Stop::Malformed(format!(
                    "operation kind {} in a log",
                    flags & !(FIRST | STATED)
                )));
            }
        };
        Ok(Some((flags & FIRST != 0, keyspace, op)))
    }
}

/// Reads a record that follows the sequence number `after` to its end, and verifies every
/// operation.
pub fn check(payload: PayloadReader<'_>, after: SeqNo) -> Result<Checked> {
    let mut stream = OpStream::new(payload, 0)?;
    let (mut batches, mut ops) = (0u64, 0u64);
    loop {
        match stream.next() {
            Ok(Some((is_first, _, _))) => {
                if ops == 0 && !is_first {
                    return Err(Stop::Malformed("it begins inside a batch".to_owned()));
                }
                batches += u64::from(is_first);
                ops += 1;
            }
            Ok(None) => break,
            Err(Stop::Malformed(detail)) => {
                return Err(Stop::Malformed(format!("operation {ops}: {detail}")));
            }
            Err(failed) => return Err(failed),
        }
    }
    if ops == 0 {
        return Err(Stop::Malformed("a record without operations".to_owned()));
    }
    debug_assert_eq!(stream.payload.left(), 0, "a record of {ops} operations was not read to its end");
    debug_assert!(0 < batches && batches <= ops, "{ops} operations in {batches} batches");
    let gap = stream.gap;
    let first_seq = after.0.checked_add(gap).and_then(|before| before.checked_add(1));
    let last_seq = first_seq.and_then(|first| first.checked_add(ops - 1)).filter(|last| *last < SeqNo::MAX.0);
    match (first_seq, last_seq) {
        (Some(first), Some(last)) => {
            Ok(Checked { first_seq: SeqNo(first), last_seq: SeqNo(last), batches, ops })
        }
        _ => Err(Stop::Malformed(format!("{ops} sequence numbers after {after} and {gap} more do not fit"))),
    }
}

fn take_key(payload: &mut PayloadReader<'_>, key: &mut Vec<u8>) -> Result<()> {
    let bytes = read_varint(|| payload.u8())?;
    if bytes > MAX_KEY_BYTES as u64 {
        return Err(Stop::Malformed(format!("a key of {bytes} bytes")));
    }
    key.clear();
    payload.take(bytes, key)
}

#[cfg(test)]
mod tests;
