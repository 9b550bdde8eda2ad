//! Point lookups in one table: the block by the index, the entry in the block.
//!
//! A lookup of a cached block runs in one section: no lock, no reference count, and only the value
//! is copied. A block that is not cached is read first, outside of any section.
//!
//! Not here: filters and range tombstones (the engine's, which tests those of all runs together);
//! reading blocks ([`super::blocks`]).

use shamba_key::{Expiry, SeqNo};

use super::blocks::{Blocks, LoadedBlock};
use super::load::DATA_BLOCK;
use crate::block::{DataBlock, EntryParts};
use crate::cache::PinnedBlock;
use crate::counters::ReadCounters;
use crate::entry::Entry;
use crate::index::Located;
use crate::slot::FrameSlot;
use crate::value::{COPY_UP_TO_BYTES, INLINE_BYTES, Value};
use crate::{Error, Result};

/// How a lookup returns the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueMode {
    /// Not at all: the entry's value is empty, but for the expiry of one that expires.
    Absent,
    /// For keeping: short values are copied, long ones share the block.
    Copy,
    /// For short use: the value shares the block unless it is very short.
    Pin,
}

impl ValueMode {
    /// Maximum length of a value that is copied.
    fn copy_up_to_bytes(self) -> usize {
        match self {
            Self::Absent => usize::MAX,
            Self::Copy => COPY_UP_TO_BYTES,
            Self::Pin => INLINE_BYTES,
        }
    }

    fn value_of(self, parts: &EntryParts<'_>, pin: impl FnOnce() -> Option<PinnedBlock>) -> Value {
        if self == Self::Absent {
            // The expiry tells whether the entry is visible.
            let expiry = if parts.kind.has_expiry() { parts.value.get(..Expiry::STORED_BYTES) } else { None };
            return expiry.map_or_else(Value::default, Value::copy_of);
        }
        let bytes = parts.value;
        let pinned = if bytes.len() > self.copy_up_to_bytes() { pin() } else { None };
        let end = parts.value_start.saturating_add(bytes.len());
        let shared = pinned.and_then(|block| Value::from_pin(block, parts.value_start..end));
        shared.unwrap_or_else(|| Value::copy_of(bytes))
    }
}

/// A lookup of one key, up to one sequence number, in one table.
#[derive(Clone, Copy)]
pub(super) struct TableLookup<'k> {
    pub(super) key: &'k [u8],
    /// Newer versions are not visible.
    pub(super) seq: SeqNo,
    /// The key's tag in blocks.
    pub(super) tag: u16,
    pub(super) mode: ValueMode,
}

impl TableLookup<'_> {
    /// The newest visible version, starting at the block that [`super::partitions`] located.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    #[inline]
    pub(super) fn at(
        self,
        blocks: Blocks<'_>,
        mut located: Located,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let start_ns = blocks.cached().now_ns(io);
        let mut found = self.search(blocks, &located, io)?;
        // Rare, because separators carry sequence numbers: only if `seq` lies between the last
        // version in its block and the next one.
        while found.is_none() && located.goes_on {
            let next = blocks.partitions().locate_next(located.number.next(), self.key, io)?;
            let Some(next) = next else { break };
            debug_assert!(
                next.number > located.number,
                "block {:?} comes after {:?}",
                next.number,
                located.number
            );
            located = next;
            found = self.search(blocks, &located, io)?;
        }
        io.data_ns += blocks.cached().elapsed_ns(io, start_ns);
        Ok(found)
    }

    /// [`Self::at`] in a block that is already in memory.
    ///
    /// # Errors
    /// As [`Self::at`].
    #[inline]
    pub(super) fn from(
        self,
        block: &LoadedBlock,
        blocks: Blocks<'_>,
        located: Located,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        // Counts as a cache hit: this lookup reads nothing.
        io.cache_hits += 1;
        let payload = block.payload();
        note_reference(blocks, &located, payload.len());
        if let Some(parts) = self.search_payload(blocks, &located, payload)? {
            let value = self.mode.value_of(&parts, || Some(payload.clone()));
            return Ok(Some(Entry { seq: parts.seq, kind: parts.kind, value }));
        }
        if !located.goes_on {
            return Ok(None);
        }
        match blocks.partitions().locate_next(located.number.next(), self.key, io)? {
            Some(next) => self.at(blocks, next, io),
            None => Ok(None),
        }
    }

    /// Searches one block.
    #[inline]
    fn search(self, blocks: Blocks<'_>, located: &Located, io: &mut ReadCounters) -> Result<Option<Entry>> {
        let cached = blocks.cached();
        if let (Some(block_key), Some(frame)) = (cached.key(located.number.0), located.frame) {
            let section = cached.enter();
            if let Some(hit) = section.find_in(frame, block_key) {
                io.cache_hits += 1;
                cached.referenced(block_key, hit.payload().len());
                let found = self.search_bytes(hit.payload()).map(|found| {
                    found.map(|parts| Entry {
                        seq: parts.seq,
                        kind: parts.kind,
                        value: self.mode.value_of(&parts, || Some(PinnedBlock::Frame(hit.pin()))),
                    })
                });
                // The place of damage may have to be read: not in a section.
                drop(section);
                return found.map_err(|detail| damaged_block(blocks, located, detail));
            }
        }
        self.search_file(blocks, located, io)
    }

    /// As [`Self::search`], for a block that was not cached when it was located.
    #[cold]
    fn search_file(
        self,
        blocks: Blocks<'_>,
        located: &Located,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let number = located.number;
        let slot = blocks.loaded().index.slot(number);
        let slot_frame = slot.map(|slot| slot.get().and_then(FrameSlot::frame));
        if let Some(Some(frame)) = slot_frame {
            if Some(frame) != located.frame && blocks.cached().prefetch(frame, number) {
                // Another thread has read it meanwhile.
                return self.search(blocks, &Located { frame: Some(frame), ..*located }, io);
            }
        }
        let handle = blocks.partitions().handle_of(located, io)?;
        let miss = blocks.missed(number);
        // Without a slot for its frame, it would not be found again.
        let miss = miss.but_keep(miss.keep && slot_frame.is_some());
        if !miss.keep {
            return blocks.read_briefly(handle, miss, io, |payload| {
                note_reference(blocks, located, payload.len());
                let found = self.search_payload(blocks, located, payload)?;
                Ok(found.map(|parts| Entry {
                    seq: parts.seq,
                    kind: parts.kind,
                    value: self.mode.value_of(&parts, || None),
                }))
            });
        }
        let block = blocks.read(handle, miss, io)?;
        note_reference(blocks, located, block.payload().len());
        let Some(parts) = self.search_payload(blocks, located, block.payload())? else {
            blocks.publish(number, block);
            return Ok(None);
        };
        let (seq, kind) = (parts.seq, parts.kind);
        let shares = self.mode != ValueMode::Absent && parts.value.len() > self.mode.copy_up_to_bytes();
        if !shares {
            let value = self.mode.value_of(&parts, || None);
            blocks.publish(number, block);
            return Ok(Some(Entry { seq, kind, value }));
        }
        debug_assert!(
            parts.value_start + parts.value.len() <= block.payload().len(),
            "a value ends beyond its block"
        );
        let place = parts.value_start..parts.value_start.saturating_add(parts.value.len());
        let pinned = blocks.publish_pinned(number, block);
        let value = Value::from_pin(pinned, place).unwrap_or_default();
        Ok(Some(Entry { seq, kind, value }))
    }

    #[inline]
    fn search_payload<'b>(
        self,
        blocks: Blocks<'_>,
        located: &Located,
        payload: &'b [u8],
    ) -> Result<Option<EntryParts<'b>>> {
        self.search_bytes(payload).map_err(|detail| damaged_block(blocks, located, detail))
    }

    /// The entry in a block, or what is wrong with the block.
    #[inline]
    fn search_bytes<'b>(self, payload: &'b [u8]) -> std::result::Result<Option<EntryParts<'b>>, String> {
        DataBlock::view(payload).and_then(|block| block.find(self.key, self.seq, self.tag))
    }
}

/// Notes a lookup's reference to a block for the reuse sample.
#[inline]
fn note_reference(blocks: Blocks<'_>, located: &Located, payload_bytes: usize) {
    if let Some(key) = blocks.cached().key(located.number.0) {
        blocks.cached().referenced(key, payload_bytes);
    }
}

/// The error for damage that an access to a block found.
#[cold]
fn damaged_block(blocks: Blocks<'_>, located: &Located, detail: String) -> Error {
    match blocks.partitions().handle_of(located, &mut ReadCounters::default()) {
        Ok(handle) => blocks.loaded().file.damaged(handle.offset, DATA_BLOCK, detail),
        Err(error) => error,
    }
}
