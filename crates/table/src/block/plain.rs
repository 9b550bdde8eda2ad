//! The layout `plain`: sorted entries with whole keys, and an offset for each.
//!
//! Index partitions, the index's top level, range tombstones and properties are plain blocks, and
//! so are the data blocks of tables from before the layout [tagged](super::tagged). Tests compare
//! the two layouts.
//!
//! ```text
//! +--------+-------+----------+-------+---------+-----+---------+----------------------+
//! | layout | flags | reserved | count | entry 0 | ... | entry n | offset of each entry |
//! +--------+-------+----------+-------+---------+-----+---------+----------------------+
//!  0        1       2          4       8                        count x (2 or 4 bytes)
//!
//! entry = key length (varint, 1 to 3 bytes), seq << 8 | kind (u64 LE), key,
//!         value (to the next entry)
//! ```
//!
//! Flag bit 0: offsets are four bytes wide, because some entry starts beyond 65,535.
//!
//! [`PlainView`] checks only the header, and each access checks its own bounds; [`Block::parse`]
//! checks the whole structure once. Neither checks the order (the checksum vouches for it);
//! [`crate::TableReader::verify`] does.
//!
//! Not here: the meaning of key and value.

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use std::cmp::Ordering;

use super::EntryParts;
use shamba_key::internal_cmp;

/// The layout byte of plain blocks.
pub(super) const LAYOUT_PLAIN: u8 = 1;
/// Flag: four-byte offsets.
const FLAG_WIDE: u8 = 1;
/// Length of the header, which precedes the first entry.
const BLOCK_HEADER_BYTES: usize = 8;
/// Maximum length of an entry besides key and value: key length and trailer.
const ENTRY_OVERHEAD_MAX: usize = 3 + 8;
/// Maximum length of an entry's key or of a range tombstone's start (a key's successor is one byte
/// longer than the key).
const KEY_BYTES_MAX: usize = shamba_key::MAX_KEY_BYTES + 1;

/// Maximum payload of a block with a single entry.
pub(crate) const LARGEST_PAYLOAD_BYTES: usize =
    BLOCK_HEADER_BYTES + ENTRY_OVERHEAD_MAX + KEY_BYTES_MAX + shamba_key::MAX_VALUE_BYTES + 4;

/// Collects entries into a block.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl BlockBuilder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends an entry; the caller keeps the order, and the total length below 4 GiB.
    pub(crate) fn push(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        debug_assert!(key.len() <= KEY_BYTES_MAX);
        if self.bytes.is_empty() {
            self.bytes.resize(BLOCK_HEADER_BYTES, 0);
        }
        debug_assert!(u32::try_from(self.bytes.len()).is_ok());
        self.offsets.push(self.bytes.len() as u32);
        push_varint(&mut self.bytes, key.len() as u32);
        self.bytes.extend_from_slice(&(seq.0 << 8 | u64::from(kind.as_byte())).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Length of the payload if it ended now.
    pub(crate) fn payload_bytes(&self) -> usize {
        let entries = self.bytes.len().max(BLOCK_HEADER_BYTES);
        entries + self.offsets.len() * offset_bytes(self.offsets.last().copied())
    }

    /// Length of the payload with one more entry of these lengths.
    pub(crate) fn payload_bytes_with(&self, key_bytes: usize, value_bytes: usize) -> usize {
        let start = self.bytes.len().max(BLOCK_HEADER_BYTES);
        let entry = varint_bytes(key_bytes as u32) + 8 + key_bytes + value_bytes;
        debug_assert!(
            key_bytes <= KEY_BYTES_MAX,
            "a key of {key_bytes} bytes, at most {KEY_BYTES_MAX} allowed"
        );
        start + entry + (self.offsets.len() + 1) * offset_bytes(u32::try_from(start).ok())
    }

    /// Returns the payload; the builder is empty afterwards.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let wide = offset_bytes(self.offsets.last().copied()) == 4;
        debug_assert!(
            self.offsets.windows(2).all(|pair| pair[0] < pair[1]),
            "the offsets of a block's entries do not ascend"
        );
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(bytes.len().max(BLOCK_HEADER_BYTES), 0);
        bytes[0] = LAYOUT_PLAIN;
        bytes[1] = if wide { FLAG_WIDE } else { 0 };
        bytes[4..8].copy_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for offset in self.offsets.drain(..) {
            if wide {
                bytes.extend_from_slice(&offset.to_le_bytes());
            } else {
                bytes.extend_from_slice(&(offset as u16).to_le_bytes());
            }
        }
        bytes
    }
}

/// Width of offsets if the last entry starts at `last`.
fn offset_bytes(last: Option<u32>) -> usize {
    if last.is_some_and(|last| last > u32::from(u16::MAX)) { 4 } else { 2 }
}

fn varint_bytes(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

/// Appends a varint: seven bits per byte, lowest first; the top bit is set if more bytes follow.
/// Values below 2^21.
fn push_varint(out: &mut Vec<u8>, mut value: u32) {
    debug_assert!(value < 1 << 21);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The key length at the front of `bytes`, and the length of its encoding. `None` if the encoding
/// is truncated, longer than three bytes, or not the shortest one.
fn read_varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (place, byte) in bytes.iter().take(3).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return (place == 0 || *byte != 0).then_some((value, place + 1));
        }
    }
    None
}

/// An entry in place in its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRef<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
    value_start: usize,
}

impl<'a> EntryRef<'a> {
    fn parts(&self) -> EntryParts<'a> {
        EntryParts { seq: self.seq, kind: self.kind, value: self.value, value_start: self.value_start }
    }
}

/// A plain block over borrowed bytes, whose header was checked. Every access may still find damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainView<'a> {
    bytes: &'a [u8],
    count: usize,
    entries_end: usize,
    wide: bool,
}

impl<'a> PlainView<'a> {
    /// Checks the header: layout, flags, and that the offsets fit.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, String> {
        let Some(([layout, flags, 0, 0, c0, c1, c2, c3], _)) =
            bytes.split_first_chunk::<BLOCK_HEADER_BYTES>()
        else {
            return Err(format!("{} bytes do not start with a block header", bytes.len()));
        };
        if *layout != LAYOUT_PLAIN {
            return Err(format!("unknown block layout {layout}"));
        }
        if flags & !FLAG_WIDE != 0 {
            return Err(format!("unknown block flags {flags:#04x}"));
        }
        let wide = flags & FLAG_WIDE != 0;
        let count = u32::from_le_bytes([*c0, *c1, *c2, *c3]) as usize;
        let width = if wide { 4 } else { 2 };
        let entries_end = count
            .checked_mul(width)
            .and_then(|offsets| bytes.len().checked_sub(offsets))
            .filter(|end| *end >= BLOCK_HEADER_BYTES)
            .ok_or_else(|| format!("{count} entries do not fit into {} bytes", bytes.len()))?;
        Ok(Self { bytes, count, entries_end, wide })
    }

    /// Checks the structure: offsets ascend without gaps, entries fit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut expected = BLOCK_HEADER_BYTES;
        for number in 0..self.count {
            if self.offset(number) != Some(expected) {
                return Err(format!("entry {number} does not start where the one before it ends"));
            }
            let end = self.end(number);
            if end <= expected || end > self.entries_end {
                let entries_end = self.entries_end;
                return Err(format!(
                    "entry {number} ends at {end}, after {expected} and up to {entries_end}"
                ));
            }
            if self.decode(expected, end).is_none() {
                return Err(format!("entry {number} is malformed"));
            }
            expected = end;
        }
        if expected != self.entries_end {
            return Err(format!("{} bytes belong to no entry", self.entries_end - expected));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Entry `number`; `None` if it is past the end or damaged.
    pub(crate) fn entry(&self, number: usize) -> Option<EntryRef<'a>> {
        if number >= self.count {
            return None;
        }
        self.decode(self.offset(number)?, self.end(number))
    }

    /// Entry `number`, which must exist, with its key appended to `keys`.
    pub(super) fn append(&self, number: usize, keys: &mut Vec<u8>) -> Result<EntryParts<'a>, String> {
        let entry = self.entry(number).ok_or_else(|| malformed(number))?;
        keys.extend_from_slice(entry.key);
        Ok(entry.parts())
    }

    /// The newest version of exactly `key` that is not newer than `seq`.
    pub(super) fn find(&self, key: &[u8], seq: SeqNo) -> Result<Option<EntryParts<'a>>, String> {
        let number = self.lower_bound(key, seq)?;
        if number == self.count {
            return Ok(None);
        }
        let entry = self.entry(number).ok_or_else(|| malformed(number))?;
        Ok((entry.key == key).then(|| entry.parts()))
    }

    /// The number of the first entry at or after `(key, seq)`; the count if there is none.
    pub(crate) fn lower_bound(&self, key: &[u8], seq: SeqNo) -> Result<usize, String> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entry(middle).ok_or_else(|| malformed(middle))?;
            if internal_cmp(entry.key, entry.seq, key, seq) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn offset(&self, number: usize) -> Option<usize> {
        if self.wide {
            let at = self.entries_end + number * 4;
            let bytes = self.bytes.get(at..)?.first_chunk::<4>()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        } else {
            let at = self.entries_end + number * 2;
            let bytes = self.bytes.get(at..)?.first_chunk::<2>()?;
            Some(usize::from(u16::from_le_bytes(*bytes)))
        }
    }

    /// End of entry `number`, which exists.
    fn end(&self, number: usize) -> usize {
        if number + 1 < self.count { self.offset(number + 1).unwrap_or(0) } else { self.entries_end }
    }

    fn decode(&self, start: usize, end: usize) -> Option<EntryRef<'a>> {
        let entry = self.bytes.get(start..end)?;
        let (key_bytes, length_bytes) = read_varint(entry)?;
        let (trailer, rest) = entry.get(length_bytes..)?.split_first_chunk::<8>()?;
        if key_bytes > KEY_BYTES_MAX {
            return None;
        }
        let (key, value) = rest.split_at_checked(key_bytes)?;
        let trailer = u64::from_le_bytes(*trailer);
        let kind = EntryKind::from_byte((trailer & 0xff) as u8)?;
        Some(EntryRef { key, seq: SeqNo(trailer >> 8), kind, value, value_start: end - value.len() })
    }
}

fn malformed(number: usize) -> String {
    format!("entry {number} is malformed")
}

/// A plain block whose whole structure was checked. Cheap to clone: clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    bytes: Bytes,
    count: usize,
    entries_end: usize,
    wide: bool,
}

impl Block {
    /// Checks the structure of `payload`: layout, offsets that ascend without gaps, entries that
    /// fit.
    pub(crate) fn parse(payload: Bytes) -> Result<Self, String> {
        let view = PlainView::new(&payload)?;
        view.check()?;
        let (count, entries_end, wide) = (view.count, view.entries_end, view.wide);
        Ok(Self { bytes: payload, count, entries_end, wide })
    }

    fn view(&self) -> PlainView<'_> {
        PlainView { bytes: &self.bytes, count: self.count, entries_end: self.entries_end, wide: self.wide }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Entry `number`; `None` past the end.
    pub(crate) fn entry(&self, number: usize) -> Option<EntryRef<'_>> {
        self.view().entry(number)
    }

    /// All entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        (0..self.count).map_while(|number| self.entry(number))
    }

    /// The number of the first entry at or after `(key, seq)`; [`Self::len`] if there is none.
    pub(crate) fn lower_bound(&self, key: &[u8], seq: SeqNo) -> usize {
        self.view().lower_bound(key, seq).unwrap_or(self.count)
    }
}
