//! Range tombstones and their section.
//!
//! The section is one [frame](crate::block::frame) around one [block](crate::block): key = start,
//! sequence number, kind `RangeDelete`, value = an open or closed end:
//!
//! ```text
//! 00            no end: every key from the start on
//! 01 end...     up to the end, exclusive
//! ```
//!
//! Sorted by (start ascending, sequence number descending, end); duplicates are harmless. A file
//! without range tombstones has no such section.

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};

use crate::block::{Block, BlockBuilder};

/// A deletion of all keys in `[start, end)` written before `seq`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RangeTombstone {
    /// First deleted key.
    pub start: Bytes,
    /// End of the range, exclusive; `None`: all keys from `start` on are deleted.
    pub end: Option<Bytes>,
    /// Sequence number.
    pub seq: SeqNo,
}

impl RangeTombstone {
    /// Memory of the tombstone and its keys.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.start.len() + self.end.as_ref().map_or(0, Bytes::len)
    }

    /// Whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Whether the range has a key in `[lower, upper)`; an `upper` of `None` is unbounded.
    pub fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        upper.is_none_or(|upper| self.start[..] < *upper)
            && self.end.as_ref().is_none_or(|end| end[..] > *lower)
    }
}

const OPEN_END: u8 = 0;
const CLOSED_END: u8 = 1;

/// Sorts the tombstones and encodes the payload of the section.
pub(crate) fn encode(tombstones: &mut [RangeTombstone]) -> Vec<u8> {
    debug_assert!(tombstones.iter().all(|one| !one.is_empty()), "a range tombstone that covers no key");
    tombstones.sort_by(|a, b| a.start.cmp(&b.start).then(b.seq.cmp(&a.seq)).then(a.end.cmp(&b.end)));
    let mut block = BlockBuilder::new();
    let mut end = Vec::new();
    for tombstone in tombstones.iter() {
        end.clear();
        match &tombstone.end {
            None => end.push(OPEN_END),
            Some(key) => {
                end.push(CLOSED_END);
                end.extend_from_slice(key);
            }
        }
        block.push(&tombstone.start, tombstone.seq, EntryKind::RangeDelete, &end);
    }
    block.finish()
}

/// Decodes the section's payload.
pub(crate) fn decode(payload: Bytes) -> Result<Vec<RangeTombstone>, String> {
    let block = Block::parse(payload)?;
    let mut tombstones = Vec::with_capacity(block.len());
    for (number, entry) in block.entries().enumerate() {
        if entry.kind != EntryKind::RangeDelete {
            return Err(format!("entry {number} is a {:?}, not a range tombstone", entry.kind));
        }
        let end = match entry.value.split_first() {
            Some((&OPEN_END, [])) => None,
            Some((&CLOSED_END, end)) => Some(Bytes::copy_from_slice(end)),
            _ => return Err(format!("entry {number} has no valid end")),
        };
        let tombstone = RangeTombstone { start: Bytes::copy_from_slice(entry.key), end, seq: entry.seq };
        if tombstone.is_empty() {
            return Err(format!("range tombstone {number} ends where it starts or before"));
        }
        tombstones.push(tombstone);
    }
    Ok(tombstones)
}
