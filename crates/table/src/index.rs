//! The index: separators that say which data block holds a place of the order.
//!
//! On disk, partitions of at most about 4 KiB and a top level over them, all of them [blocks](crate::block):
//!
//! ```text
//! partition   separator (key, seq) -> data block   offset u64, bytes u32, entries u32
//! top level   last separator       -> partition    offset u64, bytes u32, separators u32
//! ```
//!
//! A separator is a place at or after the last entry of its block and before the first of the next. It orders
//! as entries do, by key ascending and sequence number descending, so versions of one key may span blocks and
//! a lookup still goes straight to the block of its sequence number. Where the next block starts with
//! another key, the separator is the shortest such key, with sequence number 0 (the last place of a key).
//!
//! In memory, for now, all partitions are loaded at open into one flat list: 8-byte heads first, full
//! separators where heads tie.
//!
//! Not here: reading the data blocks ([`crate::reader`]).

use std::cmp::Ordering;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo, head};

use crate::block::frame::FRAME_BYTES;
use crate::block::{Block, BlockBuilder};
use crate::entry::internal_cmp;
use crate::error::{Error, Result};
use crate::format::Section;
use crate::reader::TableFile;

/// What partitions are cut to, frame included: one page, the unit of later residency.
const PARTITION_BYTES: usize = 4_096;
/// The stored form of a [`Handle`].
const HANDLE_BYTES: usize = 16;
/// Index partitions as they are named in errors.
pub(crate) const PARTITION: &str = "index partition";
/// The top level as it is named in errors.
pub(crate) const TOP: &str = "index top level";

/// Where a block lies and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    /// Of the whole frame.
    pub(crate) bytes: u32,
    pub(crate) entries: u32,
}

impl Handle {
    fn encode(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [o0, o1, o2, o3, o4, o5, o6, o7, b0, b1, b2, b3, e0, e1, e2, e3] = bytes else {
            return None;
        };
        Some(Self {
            offset: u64::from_le_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]),
            bytes: u32::from_le_bytes([*b0, *b1, *b2, *b3]),
            entries: u32::from_le_bytes([*e0, *e1, *e2, *e3]),
        })
    }

    /// The first byte after the block. Handles are checked to lie in their section before they are used.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

/// The shortest key `s` with `last <= s < next`.
pub(crate) fn separator<'a>(last: &'a [u8], next: &'a [u8], made: &'a mut Vec<u8>) -> &'a [u8] {
    debug_assert!(last < next);
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    let Some(last_byte) = last.get(common) else {
        return last; // `last` is a prefix of `next`.
    };
    match next.get(..=common) {
        Some(short) if short.len() < next.len() => short,
        Some([.., next_byte]) if last_byte + 1 < *next_byte => {
            made.clear();
            made.extend_from_slice(&last[..common]);
            made.push(last_byte + 1);
            made
        }
        _ => last,
    }
}

/// Collects separators into partitions.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    open: BlockBuilder,
    last: (Vec<u8>, SeqNo),
    /// Finished partitions: last separator, payload, separators.
    partitions: Vec<(Vec<u8>, SeqNo, Vec<u8>, u32)>,
    finished_bytes: usize,
}

impl IndexBuilder {
    pub(crate) fn push(&mut self, key: &[u8], seq: SeqNo, handle: Handle) {
        let with = self.open.payload_bytes_with(key.len(), HANDLE_BYTES);
        if !self.open.is_empty() && with + FRAME_BYTES > PARTITION_BYTES {
            self.cut();
        }
        self.open.push(key, seq, EntryKind::Put, &handle.encode());
        self.last.0.clear();
        self.last.0.extend_from_slice(key);
        self.last.1 = seq;
    }

    /// About what the index takes in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.finished_bytes + self.open.payload_bytes()
    }

    fn cut(&mut self) {
        let separators = self.open.len() as u32;
        let payload = self.open.finish();
        self.finished_bytes += payload.len() + FRAME_BYTES;
        self.partitions.push((self.last.0.clone(), self.last.1, payload, separators));
    }

    /// Writes every partition with `write`, which says where its frame went; the top level's payload.
    pub(crate) fn finish(mut self, mut write: impl FnMut(&[u8]) -> Result<(u64, u32)>) -> Result<Vec<u8>> {
        if !self.open.is_empty() {
            self.cut();
        }
        let mut top = BlockBuilder::new();
        for (key, seq, payload, separators) in self.partitions {
            let (offset, bytes) = write(&payload)?;
            let handle = Handle { offset, bytes, entries: separators };
            top.push(&key, seq, EntryKind::Put, &handle.encode());
        }
        Ok(top.finish())
    }
}

/// One separator and its data block, in memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    key_end: usize,
    seq: SeqNo,
    handle: Handle,
}

/// The whole index in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    heads: Vec<u64>,
    places: Vec<Place>,
    keys: Vec<u8>,
    partitions: Vec<Handle>,
}

impl Index {
    /// Loads the partitions in `section` over which `top` lies; their blocks lie in `data`.
    pub(crate) fn load(file: &TableFile, top: Section, section: Section, data: Section) -> Result<Self> {
        let mut index = Self { partitions: load_top(file, top, section)?, ..Self::default() };
        let mut next = data.offset;
        for partition in index.partitions.clone() {
            let damaged = |detail: String| file.damaged(partition.offset, PARTITION, detail);
            let block = load_partition(file, partition)?;
            for entry in block.entries() {
                let handle =
                    Handle::decode(entry.value).ok_or_else(|| damaged("a malformed handle".into()))?;
                if handle.offset < next || handle.end() > data.end() || handle.entries == 0 {
                    return Err(damaged(format!(
                        "a block of {} bytes at {}, expected between {next} and {}",
                        handle.bytes,
                        handle.offset,
                        data.end()
                    )));
                }
                next = handle.end();
                if !index.push(entry.key, entry.seq, handle) {
                    return Err(damaged("separators out of order".into()));
                }
            }
        }
        if next != data.end() {
            return Err(file.damaged(
                top.offset,
                TOP,
                format!("blocks end at {next}, the data section at {}", data.end()),
            ));
        }
        index.keys.shrink_to_fit();
        index.places.shrink_to_fit();
        index.heads.shrink_to_fit();
        Ok(index)
    }

    /// Appends a separator; false if it is not after the last one.
    fn push(&mut self, key: &[u8], seq: SeqNo, handle: Handle) -> bool {
        if let Some(last) = self.places.len().checked_sub(1) {
            let (last_key, last_seq) = self.separator(last);
            if internal_cmp(last_key, last_seq, key, seq) != Ordering::Less {
                return false;
            }
        }
        self.keys.extend_from_slice(key);
        self.heads.push(head(key));
        self.places.push(Place { key_end: self.keys.len(), seq, handle });
        true
    }

    /// How many data blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where block `number` lies.
    pub(crate) fn handle(&self, number: usize) -> Option<Handle> {
        self.places.get(number).map(|place| place.handle)
    }

    /// Where the partitions lie.
    pub(crate) fn partitions(&self) -> &[Handle] {
        &self.partitions
    }

    /// The separator after block `number`, which must exist.
    pub(crate) fn separator(&self, number: usize) -> (&[u8], SeqNo) {
        let end = self.places[number].key_end;
        let start = if number == 0 { 0 } else { self.places[number - 1].key_end };
        (&self.keys[start..end], self.places[number].seq)
    }

    /// The first block that can hold an entry at or after `(key, seq)`; [`Self::len`] if none can.
    pub(crate) fn find(&self, key: &[u8], seq: SeqNo) -> usize {
        let wanted = head(key);
        let mut low = self.heads.partition_point(|head| *head < wanted);
        let tied = self.heads.get(low..).unwrap_or_default().partition_point(|head| *head == wanted);
        let mut high = low + tied;
        while low < high {
            let middle = low.midpoint(high);
            let (separator, separator_seq) = self.separator(middle);
            if internal_cmp(separator, separator_seq, key, seq) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// What the index takes in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u64>()
            + self.places.capacity() * size_of::<Place>()
            + self.keys.capacity()
            + self.partitions.capacity() * size_of::<Handle>()
    }

    /// Entries of all blocks, as the handles count them.
    pub(crate) fn entries(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.handle.entries)).sum()
    }
}

/// The partitions that the top level lists: back to back, filling their section.
fn load_top(file: &TableFile, top: Section, section: Section) -> Result<Vec<Handle>> {
    let damaged = |detail: String| file.damaged(top.offset, TOP, detail);
    let block = Block::parse(file.payload(top.offset, top.bytes, TOP)?).map_err(damaged)?;
    let mut partitions: Vec<Handle> = Vec::with_capacity(block.len());
    let mut next = section.offset;
    for entry in block.entries() {
        let handle = Handle::decode(entry.value).ok_or_else(|| damaged("a malformed handle".into()))?;
        if handle.offset != next || handle.end() > section.end() {
            let (bytes, offset) = (handle.bytes, handle.offset);
            return Err(damaged(format!("a partition of {bytes} bytes at {offset}, expected at {next}")));
        }
        next = handle.end();
        partitions.push(handle);
    }
    if next != section.end() {
        return Err(damaged(format!("partitions end at {next}, their section at {}", section.end())));
    }
    Ok(partitions)
}

/// Reads and checks one partition.
pub(crate) fn load_partition(file: &TableFile, partition: Handle) -> Result<Block> {
    let damaged = |detail: String| -> Error { file.damaged(partition.offset, PARTITION, detail) };
    let payload: Bytes = file.payload(partition.offset, u64::from(partition.bytes), PARTITION)?;
    let block = Block::parse(payload).map_err(damaged)?;
    if block.len() != partition.entries as usize || block.len() == 0 {
        return Err(damaged(format!("{} separators, expected {}", block.len(), partition.entries)));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_lie_between_and_are_short() {
        let mut made = Vec::new();
        for (last, next, expected) in [
            (&b"abcdef"[..], &b"abzzzz"[..], &b"abz"[..]),
            (b"abcdef", b"abf", b"abd"),
            (b"abcdef", b"abd", b"abcdef"),
            (b"abc", b"abcdef", b"abc"),
            (b"", b"a", b""),
            (b"a\xff", b"b", b"a\xff"),
            (b"a\xfe", b"c\x00", b"c"),
        ] {
            let found = separator(last, next, &mut made);
            assert_eq!(found, expected, "{last:?} {next:?}");
            assert!(last <= found && found < next);
        }
    }

    #[test]
    fn find_agrees_with_a_walk_where_heads_tie_and_where_they_do_not() {
        let mut index = Index::default();
        let mut separators: Vec<(Vec<u8>, u64)> = vec![(b"".to_vec(), 3), (b"a".to_vec(), 9)];
        separators.extend((0..20u8).map(|i| ([b"a long common prefix ".as_slice(), &[i]].concat(), 0)));
        separators.extend([9u64, 5, 2].map(|seq| (b"k".to_vec(), seq)));
        for (number, (key, seq)) in separators.iter().enumerate() {
            let handle = Handle { offset: number as u64, bytes: 1, entries: 1 };
            assert!(index.push(key, SeqNo(*seq), handle));
        }
        assert!(!index.push(b"k", SeqNo(2), Handle { offset: 0, bytes: 1, entries: 1 }));
        let keys = separators.iter().map(|(key, _)| key.clone());
        for key in keys.chain([b"a long common prefix ".to_vec(), b"zz".to_vec(), b"b".to_vec()]) {
            for seq in [0u64, 2, 3, 4, 5, 9, 10] {
                let expected = separators
                    .iter()
                    .position(|(k, s)| internal_cmp(k, SeqNo(*s), &key, SeqNo(seq)).is_ge())
                    .unwrap_or(separators.len());
                assert_eq!(index.find(&key, SeqNo(seq)), expected, "{key:?} {seq}");
            }
        }
    }
}
