//! Point lookups in one table: the block by the index, the entry in the block.
//!
//! A lookup of a cached block runs in one section: no lock, no reference count, and only the value
//! is copied. A block that is not cached is read first, outside of any section.
//!
//! Not here: filters and range tombstones (the engine's, which tests those of all runs together);
//! reading blocks ([`super::blocks`]).

use shamba_key::{KeyDigest, SeqNo};

use super::{LoadedBlock, TableReader};
use crate::Result;
use crate::block::{DataBlock, EntryParts};
use crate::cache::PinnedBlock;
use crate::counters::ReadCounters;
use crate::entry::Entry;
use crate::index::Located;
use crate::slot::FrameSlot;
use crate::value::{COPY_UP_TO_BYTES, INLINE_BYTES, Value};

/// How a lookup returns the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueMode {
    /// Not at all: the entry's value is empty.
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
            return Value::default();
        }
        let bytes = parts.value;
        let pinned = if bytes.len() > self.copy_up_to_bytes() { pin() } else { None };
        let end = parts.value_start.saturating_add(bytes.len());
        let shared = pinned.and_then(|block| Value::from_pin(block, parts.value_start..end));
        shared.unwrap_or_else(|| Value::copy_of(bytes))
    }
}

impl TableReader {
    /// The newest version of `key` that is not newer than `seq`, tombstones included. Tests neither
    /// the filter nor the range tombstones. `digest` is the key's digest.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub fn get(
        &self,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        match self.locate(key, seq, io)? {
            Some(located) => self.get_at(located, key, seq, digest, mode, io),
            None => Ok(None),
        }
    }

    /// [`Self::get`], starting at the block that [`Self::locate`] returned.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_at(
        &self,
        located: Located,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let start_ns = self.now_ns(io);
        let (mut located, tag) = (located, digest.block_tag());
        let mut found = self.search(&located, key, seq, tag, mode, io)?;
        // Rare, because separators carry sequence numbers: only if `seq` lies between the last
        // version in its block and the next one.
        while found.is_none() && located.goes_on {
            let Some(next) = self.locate_next(located.number.next(), key, io)? else { break };
            located = next;
            found = self.search(&located, key, seq, tag, mode, io)?;
        }
        io.data_ns += self.elapsed_ns(io, start_ns);
        Ok(found)
    }

    /// [`Self::get_at`] in a block that [`Self::load_block`] returned.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[expect(clippy::too_many_arguments, reason = "those of `get_at`, and the block")]
    pub fn get_from(
        &self,
        block: &LoadedBlock,
        located: Located,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        // Already held for this lookup, not read by it.
        io.cache_hits += 1;
        let payload = block.payload();
        self.note_reference(&located, payload.len());
        if let Some(parts) = self.search_payload(&located, payload, key, seq, digest.block_tag())? {
            let value = mode.value_of(&parts, || Some(payload.clone()));
            return Ok(Some(Entry { seq: parts.seq, kind: parts.kind, value }));
        }
        if !located.goes_on {
            return Ok(None);
        }
        match self.locate_next(located.number.next(), key, io)? {
            Some(next) => self.get_at(next, key, seq, digest, mode, io),
            None => Ok(None),
        }
    }

    /// Searches one block.
    #[inline]
    fn search(
        &self,
        located: &Located,
        key: &[u8],
        seq: SeqNo,
        tag: u16,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        if let (Some(table), Some(frame)) = (self.cached, located.frame) {
            let section = self.cache.enter();
            let block_key = table.key(located.number.0);
            if let Some(hit) = section.find_in(frame, block_key) {
                io.cache_hits += 1;
                self.cache.referenced(block_key, hit.payload().len());
                let found = self.search_payload(located, hit.payload(), key, seq, tag)?;
                return Ok(found.map(|parts| Entry {
                    seq: parts.seq,
                    kind: parts.kind,
                    value: mode.value_of(&parts, || Some(PinnedBlock::Frame(hit.pin()))),
                }));
            }
        }
        self.search_file(located, key, seq, tag, mode, io)
    }

    /// As [`Self::search`], for a block that was not cached when it was located.
    #[cold]
    fn search_file(
        &self,
        located: &Located,
        key: &[u8],
        seq: SeqNo,
        tag: u16,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let number = located.number;
        let slot_frame = self.loaded.index.slot(number).map(|slot| slot.get().and_then(FrameSlot::frame));
        if let Some(Some(frame)) = slot_frame {
            if Some(frame) != located.frame
                && self.cached.is_some_and(|table| self.cache.prefetch(frame, table.key(number.0)))
            {
                // Another thread has read it meanwhile.
                return self.search(&Located { frame: Some(frame), ..*located }, key, seq, tag, mode, io);
            }
        }
        let handle = self.handle_of(located, io)?;
        let miss = self.missed(number);
        // Without a slot for its frame, it would not be found again.
        let miss = miss.but_keep(miss.keep && slot_frame.is_some());
        if !miss.keep {
            return self.read_block_briefly(handle, miss, io, |payload| {
                self.note_reference(located, payload.len());
                let found = self.search_payload(located, payload, key, seq, tag)?;
                Ok(found.map(|parts| Entry {
                    seq: parts.seq,
                    kind: parts.kind,
                    value: mode.value_of(&parts, || None),
                }))
            });
        }
        let block = self.read_block(handle, miss, io)?;
        self.note_reference(located, block.payload().len());
        let Some(parts) = self.search_payload(located, block.payload(), key, seq, tag)? else {
            self.publish(number, block);
            return Ok(None);
        };
        let (seq, kind) = (parts.seq, parts.kind);
        let shares = mode != ValueMode::Absent && parts.value.len() > mode.copy_up_to_bytes();
        if !shares {
            let value = mode.value_of(&parts, || None);
            self.publish(number, block);
            return Ok(Some(Entry { seq, kind, value }));
        }
        let place = parts.value_start..parts.value_start.saturating_add(parts.value.len());
        let pinned = self.publish_pinned(number, block);
        let value = Value::from_pin(pinned, place).unwrap_or_default();
        Ok(Some(Entry { seq, kind, value }))
    }

    /// Notes a lookup's reference to a block for the reuse sample.
    #[inline]
    fn note_reference(&self, located: &Located, payload_bytes: usize) {
        if let Some(table) = self.cached {
            self.cache.referenced(table.key(located.number.0), payload_bytes);
        }
    }

    #[inline]
    fn search_payload<'b>(
        &self,
        located: &Located,
        payload: &'b [u8],
        key: &[u8],
        seq: SeqNo,
        tag: u16,
    ) -> Result<Option<EntryParts<'b>>> {
        match DataBlock::view(payload).and_then(|block| block.find(key, seq, tag)) {
            Ok(found) => Ok(found),
            Err(detail) => Err(self.damaged_block(located, detail)),
        }
    }
}
