//! Point lookups in one table: the block by the index, the entry in the block.
//!
//! In the cache, the whole of it happens inside one section: no lock, no count, no copy but of the value. A
//! block that is not there is read first, outside of any section.
//!
//! Not here: whether to ask the filter or the range tombstones first (the engine's, which asks all runs'
//! together); reading ([`super::blocks`]).

use shamba_key::{KeyDigest, SeqNo};

use super::{ReadCounters, TableReader};
use crate::block::{DataBlock, EntryParts};
use crate::cache::PinnedBlock;
use crate::entry::{Entry, internal_cmp};
use crate::error::Result;
use crate::index::BlockNo;
use crate::value::{COPY_UP_TO_BYTES, INLINE_BYTES, Value};

/// What a lookup wants of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueMode {
    /// Nothing: the entry's value is empty.
    Absent,
    /// To keep it: short values are copied, long ones share the block.
    Copy,
    /// To look at it and let it go: it shares the block unless it is very short.
    Pin,
}

impl ValueMode {
    /// Up to which length a value is copied.
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
    /// The newest version of `key` that is not newer than `seq`, tombstones included. Asks neither the filter
    /// nor the range tombstones. `digest` is the key's.
    ///
    /// # Errors
    /// What reading says: `Io` or `Corruption`.
    pub fn get(
        &self,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        match self.locate(key, seq, io) {
            Some(number) => self.get_at(number, key, seq, digest, mode, io),
            None => Ok(None),
        }
    }

    /// The block in which [`Self::get_at`] has to look; `None` if no block can have the key. Asks the index only.
    #[inline]
    pub fn locate(&self, key: &[u8], seq: SeqNo, io: &mut ReadCounters) -> Option<BlockNo> {
        let start_ns = self.now_ns(io);
        let found = self.loaded.index.find(key, seq);
        io.index_ns += self.now_ns(io).saturating_sub(start_ns);
        found
    }

    /// [`Self::get`] from the block that [`Self::locate`] says.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_at(
        &self,
        number: BlockNo,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let start_ns = self.now_ns(io);
        let (mut number, tag) = (number, digest.block_tag());
        let mut found = self.search(number, key, seq, tag, mode, io)?;
        while found.is_none() && self.goes_on(number, key) {
            number = number.next();
            found = self.search(number, key, seq, tag, mode, io)?;
        }
        io.data_ns += self.now_ns(io).saturating_sub(start_ns);
        Ok(found)
    }

    /// Whether versions of `key` may lie in the block after `number`. Hardly ever, as separators carry sequence
    /// numbers: only when one lies between the last version in its block and the next.
    fn goes_on(&self, number: BlockNo, key: &[u8]) -> bool {
        self.loaded
            .index
            .separator(number)
            .is_some_and(|(separator, seq)| internal_cmp(separator, seq, key, SeqNo::ZERO).is_lt())
    }

    /// The answer of one block.
    #[inline]
    fn search(
        &self,
        number: BlockNo,
        key: &[u8],
        seq: SeqNo,
        tag: u16,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        if let (Some(table), Some(slot)) = (self.cached, self.loaded.index.slot(number)) {
            let section = self.cache.enter();
            if let Some(hit) = section.find(slot, table.key(number.0)) {
                io.cache_hits += 1;
                let found = self.search_payload(number, hit.payload(), key, seq, tag)?;
                return Ok(found.map(|parts| Entry {
                    seq: parts.seq,
                    kind: parts.kind,
                    value: mode.value_of(&parts, || Some(PinnedBlock::Frame(hit.pin()))),
                }));
            }
        }
        self.search_file(number, key, seq, tag, mode, io)
    }

    /// As [`Self::search`], for a block that the cache does not have.
    #[cold]
    fn search_file(
        &self,
        number: BlockNo,
        key: &[u8],
        seq: SeqNo,
        tag: u16,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let Some(handle) = self.loaded.index.handle(number) else {
            return Ok(None);
        };
        let miss = self.missed();
        if !miss.keep {
            return self.read_block_briefly(handle, miss, io, |payload| {
                let found = self.search_payload(number, payload, key, seq, tag)?;
                Ok(found.map(|parts| Entry {
                    seq: parts.seq,
                    kind: parts.kind,
                    value: mode.value_of(&parts, || None),
                }))
            });
        }
        let block = self.read_block(handle, miss, io)?;
        let Some(parts) = self.search_payload(number, block.payload(), key, seq, tag)? else {
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

    #[inline]
    fn search_payload<'b>(
        &self,
        number: BlockNo,
        payload: &'b [u8],
        key: &[u8],
        seq: SeqNo,
        tag: u16,
    ) -> Result<Option<EntryParts<'b>>> {
        match DataBlock::view(payload).and_then(|block| block.find(key, seq, tag)) {
            Ok(found) => Ok(found),
            Err(detail) => Err(self.damaged_block(number, detail)),
        }
    }
}
