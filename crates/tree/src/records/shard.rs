//! One shard of the record cache: records in a queue of chunks, with an index.
//!
//! A record is appended to the newest chunk. When there is no memory for another chunk, the oldest
//! one is emptied and used again: the records that lookups have used since they were written move
//! to its front, up to half of it, and the others are dropped (CLOCK in the order of writing, as in
//! FIFO with reinsertion). A record that was replaced or erased leaves a hole, which goes with its
//! chunk.
//!
//! A chunk has memory of its own ([`Pages`]), which the system gets back when the capacity shrinks.
//! The memory of a shard is exact: chunks, slots of the index, and one mark of two bytes per slot.
//! The marks remember the keys that were asked for and not found: a key is worth caching when it is
//! asked for a second time before its mark is overwritten.
//!
//! Invariant: every slot of the index names a whole record of a chunk in the queue.

use std::collections::VecDeque;

use shamba_env::Pages;
use shamba_key::{KeyspaceId, SeqNo};

use super::index::{self, Index, Place, Slot};
use super::{Asked, Edits};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 16 << 10;
/// Maximum bytes of a record, with its header: an eighth of a chunk, so that a record always fits
/// into a chunk that was emptied to a half.
const RECORD_BYTES_MAX: usize = CHUNK_BYTES / 8;
/// Length of a record's header: sequence number (8), number of edits (8), tag (4), keyspace (4),
/// length of the key (2), and length of the value (2).
const HEADER_BYTES: usize = 28;
/// Bit of the length of a value that begins with an expiry.
const WITH_EXPIRY: u16 = 1 << 15;
/// In place of the length of a value: the key is absent.
const ABSENT: u16 = u16::MAX;
/// Records begin at multiples of it.
const ALIGN_BYTES: usize = 4;
/// Bytes of a mark.
const MARK_BYTES: usize = 2;
/// Minimum capacity of a shard that holds records: a few chunks, so that dropping one is dropping a
/// small part.
pub(super) const CAPACITY_MIN_BYTES: usize = 4 * CHUNK_BYTES;
/// Length of a record before there are enough of them to know: a key of 16 bytes and a value of
/// 100.
const RECORD_BYTES_ASSUMED: usize = 144;
/// Records from which their mean length is taken.
const RECORDS_FOR_MEAN: usize = 64;
/// Shorter records are counted as this long, so that slots leave half of the memory to records.
const RECORD_BYTES_SMALL: usize = 64;

const _: () = assert!(CHUNK_BYTES <= u16::MAX as usize, "an offset has two bytes");
const _: () = assert!(RECORD_BYTES_MAX < WITH_EXPIRY as usize, "a length has no other meaning");

/// A chunk: records one after the other.
struct Chunk {
    bytes: Pages,
    /// Bytes in use, from the start.
    used: usize,
}

/// A record, in the bytes of its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record<'a> {
    /// Sequence number of the entry; of an absence, of the tombstone that causes it, or 0.
    pub seq: SeqNo,
    /// The edits that the record's reader had seen.
    pub edits: Edits,
    pub tag: u32,
    pub keyspace: KeyspaceId,
    pub key: &'a [u8],
    /// `None`: the key is absent.
    pub value: Option<&'a [u8]>,
    /// Whether the value begins with an expiry.
    pub has_expiry: bool,
}

/// The answer of a shard that holds no record of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotHeld {
    /// Whether the key was asked for before, not long ago.
    pub is_repeated: bool,
}

/// Records of the keys whose digests belong to this shard.
#[derive(Default)]
pub(super) struct Shard {
    index: Index,
    /// One mark of two bytes for each slot of the index.
    marks: Option<Pages>,
    /// Oldest first.
    chunks: VecDeque<Chunk>,
    /// Number of the oldest chunk; the next ones follow.
    first_chunk: u32,
    /// Number of chunks that it may have.
    chunks_max: usize,
    /// Lookups that asked it.
    pub asked: Asked,
}

impl Shard {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES + self.index.held_bytes() + self.marks().len()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Address and number of the index's slots, which hold until the capacity changes or records
    /// are erased by a predicate.
    pub fn slots(&self) -> (*const u8, usize) {
        (self.index.address(), self.index.slots())
    }

    /// Sets the bytes that it may hold, and drops the oldest records until it holds no more. With
    /// less than [`CAPACITY_MIN_BYTES`] it holds nothing.
    pub fn set_capacity(&mut self, bytes: usize) {
        let slots = if bytes < CAPACITY_MIN_BYTES { 0 } else { self.slots_for(bytes) };
        let index_bytes = slots * (Index::SLOT_BYTES + MARK_BYTES);
        assert!(index_bytes <= bytes / 2, "{slots} slots leave no memory for records within {bytes} bytes");
        self.chunks_max = if slots == 0 { 0 } else { (bytes - index_bytes) / CHUNK_BYTES };
        while self.chunks.len() > self.chunks_max || self.len() * 4 > slots * 3 {
            self.empty_oldest(0);
        }
        if slots != self.index.slots() {
            self.index.rebuild(slots, |_| true);
            self.marks = Pages::zeroed(slots * MARK_BYTES, MARK_BYTES);
        }
        debug_assert!(self.held_bytes() <= bytes, "{} bytes are held within {bytes}", self.held_bytes());
    }

    /// Slots within this capacity, for records of the length that those held have on average: half
    /// as many again as records, so that searches are short. Today's number is kept while it is
    /// near that, because with another number all slots move.
    fn slots_for(&self, capacity_bytes: usize) -> usize {
        let wanted = capacity_bytes / self.mean_bytes() * 3 / 2;
        let today = self.index.slots();
        if (wanted / 4 * 3..=wanted / 2 * 3).contains(&today) { today } else { wanted }
    }

    /// The mean length of the records that are held, without their slots.
    fn mean_bytes(&self) -> usize {
        let used_bytes = self.chunks.iter().map(|chunk| chunk.used).sum::<usize>();
        let mean_bytes =
            if self.len() < RECORDS_FOR_MEAN { RECORD_BYTES_ASSUMED } else { used_bytes / self.len() };
        mean_bytes.clamp(RECORD_BYTES_SMALL, RECORD_BYTES_MAX)
    }

    /// Bytes that the records of all marks would take, with their slots.
    pub fn remembered_bytes(&self) -> u64 {
        let slot_bytes = (Index::SLOT_BYTES + MARK_BYTES) * 3 / 2;
        (self.marks().len() / MARK_BYTES * (self.mean_bytes() + slot_bytes)) as u64
    }

    /// The record of a key, which is then marked as used.
    pub fn find(&mut self, tag: u32, keyspace: KeyspaceId, key: &[u8]) -> Result<Record<'_>, NotHeld> {
        self.asked.lookups += 1;
        let (chunks, first) = (&self.chunks, self.first_chunk);
        let is_it = |place| record_at(chunks, first, place).is_some_and(|it| it.is_of(keyspace, key));
        let Some(place) = self.index.find_used(tag, is_it) else {
            return Err(NotHeld { is_repeated: self.mark(tag) });
        };
        record_at(&self.chunks, self.first_chunk, place).ok_or(NotHeld { is_repeated: false })
    }

    /// The bytes of all marks.
    fn marks(&self) -> &[u8] {
        self.marks.as_deref().unwrap_or_default()
    }

    /// Marks a key that was asked for; returns whether its mark was there.
    fn mark(&mut self, tag: u32) -> bool {
        let marks = self.marks.as_deref_mut().unwrap_or_default();
        let mark = (tag as u16 | 1).to_le_bytes(); // Not 0, which is no mark.
        let at = index::home(tag, marks.len() / MARK_BYTES) * MARK_BYTES;
        let marked = marks.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        marked.is_some_and(|marked| std::mem::replace(marked, mark) == mark)
    }

    /// Whether a record of these lengths can be held.
    pub fn may_hold(key: &[u8], value: Option<&[u8]>) -> bool {
        record_bytes(key.len(), value.map_or(0, <[u8]>::len)) <= RECORD_BYTES_MAX
    }

    /// Writes a record; the key's earlier one, if there is one, is forgotten.
    pub fn insert(&mut self, record: &Record<'_>) {
        assert!(Self::may_hold(record.key, record.value), "a record that is too long for a chunk");
        // Without slots there was no memory for them.
        if self.chunks_max == 0 || self.index.slots() == 0 {
            return;
        }
        let (chunks, first) = (&self.chunks, self.first_chunk);
        let is_it =
            |place| record_at(chunks, first, place).is_some_and(|it| it.is_of(record.keyspace, record.key));
        if let Some(place) = self.index.find(record.tag, is_it) {
            self.index.remove(record.tag, place);
        }
        while self.index.is_full() {
            self.empty_oldest(0);
        }
        if let Some(place) = self.append(record) {
            self.index.insert(record.tag, place);
        }
    }

    /// Appends a record to the newest chunk that has room; `None` if there is no memory for a
    /// chunk.
    fn append(&mut self, record: &Record<'_>) -> Option<Place> {
        let length = record_bytes(record.key.len(), record.value.map_or(0, <[u8]>::len));
        if self.chunks.back().is_none_or(|chunk| chunk.used + length > CHUNK_BYTES) {
            let may_grow = self.chunks.len() < self.chunks_max;
            let grown = may_grow.then(|| Pages::zeroed(CHUNK_BYTES, ALIGN_BYTES)).flatten();
            let chunk = match grown {
                Some(bytes) => Chunk { bytes, used: 0 },
                None => self.empty_oldest(CHUNK_BYTES / 2)?,
            };
            self.chunks.push_back(chunk);
        }
        let number = self.first_chunk.wrapping_add(self.chunks.len() as u32).wrapping_sub(1);
        let chunk = self.chunks.back_mut()?;
        let offset = chunk.used;
        assert!(offset + length <= CHUNK_BYTES, "a record at {offset} goes beyond its chunk");
        record.write(&mut chunk.bytes[offset..offset + length]);
        chunk.used += length;
        Some(Place { chunk: number, offset: offset as u16 })
    }

    /// Takes the oldest chunk out of the queue. Up to `kept_bytes` of its records that were used
    /// are moved to its front, with slots for the place that it has once it is the newest chunk;
    /// the others are dropped.
    fn empty_oldest(&mut self, kept_bytes: usize) -> Option<Chunk> {
        let mut chunk = self.chunks.pop_front()?;
        let number = self.first_chunk;
        self.first_chunk = number.wrapping_add(1);
        let as_newest = self.first_chunk.wrapping_add(self.chunks.len() as u32);
        let (mut from, mut into) = (0, 0);
        while from < chunk.used {
            let Some(Record { tag, key, value, .. }) = Record::read(&chunk.bytes[from..chunk.used]) else {
                unreachable!("a chunk holds whole records");
            };
            let length = record_bytes(key.len(), value.map_or(0, <[u8]>::len));
            // Without a slot it was replaced or erased.
            let slot = self.index.remove(tag, Place { chunk: number, offset: from as u16 });
            if slot.is_some_and(|slot| slot.was_used) && into + length <= kept_bytes {
                chunk.bytes.copy_within(from..from + length, into);
                self.index.insert(tag, Place { chunk: as_newest, offset: into as u16 });
                into += length;
            }
            from += length;
        }
        chunk.used = into;
        Some(chunk)
    }

    /// Forgets all records with this tag: those of one key, and perhaps of others.
    pub fn erase(&mut self, tag: u32) {
        while self.index.remove_any(tag).is_some() {}
    }

    /// Forgets the records of the keys of a keyspace for which `is_erased` holds.
    pub fn erase_where(&mut self, keyspace: KeyspaceId, is_erased: impl Fn(&[u8]) -> bool) {
        let (chunks, first) = (&self.chunks, self.first_chunk);
        let is_kept = |slot: &Slot| {
            record_at(chunks, first, slot.place)
                .is_some_and(|it| it.keyspace != keyspace || !is_erased(it.key))
        };
        self.index.rebuild(self.index.slots(), is_kept);
    }
}

/// The record at a place.
fn record_at(chunks: &VecDeque<Chunk>, first_chunk: u32, place: Place) -> Option<Record<'_>> {
    let chunk = chunks.get(place.chunk.wrapping_sub(first_chunk) as usize)?;
    Record::read(chunk.bytes.get(usize::from(place.offset)..chunk.used)?)
}

/// Bytes that a record takes in its chunk.
fn record_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (HEADER_BYTES + key_bytes + value_bytes).next_multiple_of(ALIGN_BYTES)
}

impl<'a> Record<'a> {
    fn is_of(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.key == key && self.keyspace == keyspace
    }

    /// The record at the front of `bytes`.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (seq, rest) = bytes.split_first_chunk()?;
        let (edits, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let (keyspace, rest) = rest.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (value_bytes, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
        let (value, has_expiry) = match u16::from_le_bytes(*value_bytes) {
            ABSENT => (None, false),
            length => {
                let value = rest.get(..usize::from(length & !WITH_EXPIRY))?;
                (Some(value), length & WITH_EXPIRY != 0)
            }
        };
        Some(Self {
            seq: SeqNo(u64::from_le_bytes(*seq)),
            edits: Edits(u64::from_le_bytes(*edits)),
            tag: u32::from_le_bytes(*tag),
            keyspace: KeyspaceId(u32::from_le_bytes(*keyspace)),
            key,
            value,
            has_expiry,
        })
    }

    /// Writes the record to the front of `bytes`, which are as long as it.
    fn write(&self, bytes: &mut [u8]) {
        let flag = if self.has_expiry { WITH_EXPIRY } else { 0 };
        let value_bytes = self.value.map_or(ABSENT, |value| value.len() as u16 | flag);
        let parts: [&[u8]; 8] = [
            &self.seq.0.to_le_bytes(),
            &self.edits.0.to_le_bytes(),
            &self.tag.to_le_bytes(),
            &self.keyspace.0.to_le_bytes(),
            &(self.key.len() as u16).to_le_bytes(),
            &value_bytes.to_le_bytes(),
            self.key,
            self.value.unwrap_or_default(),
        ];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }
}

#[cfg(test)]
mod tests;
