//! The head: the first record of a log, which links it to its predecessor.
//!
//! ```text
//!  0  8  number of the predecessor; 0: none
//!  8  8  length of the predecessor in bytes; without a predecessor: number of the first log whose
//!        batches are copied to the beginning of this one, 0: none
//! 16  8  the last sequence number at the end of the predecessor
//! 24  4  the checksum of the predecessor's last frame
//! 28  8  synced offset of the predecessor: a promise
//! 36  8  base: the sequence number before this log's first batch
//! ```
//!
//! An open copies a short log tail into the new log (`recovery::rebuild`). Until the manifest names
//! the new log, the original logs remain the valid ones: see `replay`.
//!
//! The length, the sequence number and the checksum reveal a log that was cut exactly between two
//! records, which frames alone cannot show. The base may exceed the predecessor's last sequence
//! number, when numbers went to writes that no log records, such as ingested tables.

use shamba_key::SeqNo;

use crate::framing::codec::{Decoded, Decoder};
use shamba_key::LogNo;

/// Length of the payload of a head record.
const HEAD_BYTES: usize = 44;

/// End of a log, as the head of the next log states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predecessor {
    /// Number of the log.
    pub number: LogNo,
    /// Offset of the end of its last record.
    pub bytes: u64,
    /// The last sequence number in this log or an earlier one.
    pub last_seq: SeqNo,
    /// The checksum of its last frame.
    pub last_checksum: u32,
    /// Offset up to which it is known to be durable.
    pub synced: u64,
}

/// The content of a head record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// `None`: everything before this log is in tables, or copied to the beginning of this log.
    pub predecessor: Option<Predecessor>,
    /// The first of the logs whose batches are copied to the beginning of this log; only without a
    /// predecessor.
    pub copy_of: Option<LogNo>,
    /// The sequence number before the first batch, if that batch has no gap.
    pub base_seq: SeqNo,
}

impl Head {
    /// Encodes the payload of the head record.
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.predecessor.is_none() || self.copy_of.is_none(),
            "both would be stored in the same field: {self:?}"
        );
        // What `decode` refuses is never written.
        if let Some(before) = self.predecessor {
            assert!(before.number.0 != 0, "log 0 means that there is no predecessor: {self:?}");
            assert!(before.synced <= before.bytes, "synced beyond the end of the log: {before:?}");
            assert!(before.last_seq <= self.base_seq, "the base precedes the predecessor's end: {self:?}");
        }
        let copy_of = self.copy_of.map_or(0, |log| log.0);
        let none = Predecessor {
            number: LogNo(0),
            bytes: copy_of,
            last_seq: SeqNo::ZERO,
            last_checksum: 0,
            synced: 0,
        };
        let before = self.predecessor.unwrap_or(none);
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(&before.number.0.to_le_bytes());
        out.extend_from_slice(&before.bytes.to_le_bytes());
        out.extend_from_slice(&before.last_seq.0.to_le_bytes());
        out.extend_from_slice(&before.last_checksum.to_le_bytes());
        out.extend_from_slice(&before.synced.to_le_bytes());
        out.extend_from_slice(&self.base_seq.0.to_le_bytes());
        debug_assert_eq!(out.len(), HEAD_BYTES, "the fields of a head differ from its length");
        out
    }

    /// Decodes the head of log `number`.
    pub fn decode(payload: &[u8], number: LogNo) -> Decoded<Self> {
        let mut decoder = Decoder::new(payload);
        let before = Predecessor {
            number: LogNo(decoder.u64()?),
            bytes: decoder.u64()?,
            last_seq: SeqNo(decoder.u64()?),
            last_checksum: decoder.u32()?,
            synced: decoder.u64()?,
        };
        let base_seq = SeqNo(decoder.u64()?);
        decoder.finish()?;
        if before.number >= number {
            return Err(format!("log {} cannot come before log {number}", before.number));
        }
        if before.synced > before.bytes || before.last_seq > base_seq || base_seq > SeqNo::MAX {
            return Err("the fields of the head contradict each other".to_owned());
        }
        if before.number.0 != 0 {
            return Ok(Self { predecessor: Some(before), copy_of: None, base_seq });
        }
        let copy_of = LogNo(before.bytes);
        if copy_of >= number {
            return Err(format!("log {number} cannot begin with a copy of log {copy_of}"));
        }
        Ok(Self { predecessor: None, copy_of: (copy_of.0 != 0).then_some(copy_of), base_seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload of the head of a log that follows log 3, with these fields.
    fn payload(bytes: u64, last_seq: u64, synced: u64, base_seq: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        for field in [3, bytes, last_seq] {
            payload.extend_from_slice(&field.to_le_bytes());
        }
        payload.extend_from_slice(&0xabcd_u32.to_le_bytes());
        for field in [synced, base_seq] {
            payload.extend_from_slice(&field.to_le_bytes());
        }
        payload
    }

    #[test]
    fn each_contradiction_of_the_fields_is_refused_by_itself() {
        let max = SeqNo::MAX.0;
        for (bytes, last_seq, synced, base_seq) in [(500, 8, 500, 8), (500, 8, 0, 9), (500, max, 500, max)] {
            let payload = payload(bytes, last_seq, synced, base_seq);
            let head = Head::decode(&payload, LogNo(4)).expect("it is valid");
            let before = Predecessor {
                number: LogNo(3),
                bytes,
                last_seq: SeqNo(last_seq),
                last_checksum: 0xabcd,
                synced,
            };
            let due = Head { predecessor: Some(before), copy_of: None, base_seq: SeqNo(base_seq) };
            assert_eq!(head, due);
            assert_eq!(head.encode(), payload);
            assert!(Head::decode(&payload, LogNo(3)).is_err(), "its own predecessor");
        }
        for (what, bytes, last_seq, synced, base_seq) in [
            ("more is synced than there is", 500, 8, 501, 8),
            ("the base precedes the last sequence number", 500, 9, 500, 8),
            ("the base is no sequence number", 500, 8, 500, max + 1),
            ("the base is no sequence number by far", 500, 8, 500, u64::MAX),
        ] {
            let decoded = Head::decode(&payload(bytes, last_seq, synced, base_seq), LogNo(4));
            assert_eq!(decoded, Err("the fields of the head contradict each other".to_owned()), "{what}");
        }
    }
}
