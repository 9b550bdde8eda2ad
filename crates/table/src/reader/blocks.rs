//! Reading data blocks: from the file into a frame of the cache, with checks.
//!
//! An uncompressed block is read directly into its frame; a compressed block is read into memory of
//! the thread and decompressed into its frame. The checksum is salted with file and offset and
//! covers every byte, so it vouches for the structure: only the block's header and its number of
//! entries are checked. Accesses check their bounds, whatever the bytes are. If the cache does not
//! admit the block, or has no free frame, a buffer replaces the frame: the thread's buffer, if the
//! block is searched only once.
//!
//! [`Blocks`] is a view of two parts of a reader, passed by value in two registers.
//!
//! Not here: the search ([`super::lookup`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_env::BatchRead;
use shamba_key::KeyDigest;

use super::cached::CacheClient;
use super::load::{DATA_BLOCK, Loaded};
use super::partitions::Partitions;
use crate::block::frame::{FRAME_BYTES, check, unseal};
use crate::block::{DataBlock, LARGEST_PAYLOAD_BYTES};
use crate::cache::{FreshFrame, Miss, PinnedBlock};
use crate::compression::{Compression, decompress, decompress_into, payload_bytes};
use crate::counters::ReadCounters;
use crate::format::properties::Properties;
use crate::index::{BlockNo, Handle, Located, SlotRef};
use crate::ledger::{Charge, LedgerPart};
use crate::{Error, Result};

/// A block that was just read and checked; no other thread has seen it.
pub(super) enum FreshBlock<'a> {
    /// In a frame, with the payload's length.
    Frame(FreshFrame<'a>, usize),
    Heap(Bytes),
}

impl BlockToTake {
    pub(super) fn number(&self) -> BlockNo {
        self.number
    }
}

impl FreshBlock<'_> {
    pub(super) fn payload(&self) -> &[u8] {
        match self {
            Self::Frame(frame, length) => frame.get(..*length).unwrap_or_default(),
            Self::Heap(bytes) => bytes,
        }
    }
}

/// A block that was read for a later [`super::TableReader::get_from`] and that the cache did not
/// admit. Clones share it.
#[derive(Clone, Debug)]
pub struct LoadedBlock(Arc<(PinnedBlock, Charge)>);

impl LoadedBlock {
    pub(super) fn payload(&self) -> &PinnedBlock {
        &self.0.0
    }
}

/// Maximum length of a piece that is read together with others: such reads have buffers of their
/// own, up to 32 at a time. Most blocks and partitions have 4 KiB.
pub(super) const BATCH_READ_BYTES_MAX: u32 = 16 << 10;

/// A block that is being read, with what was decided before.
#[derive(Debug)]
pub struct BlockToTake {
    number: BlockNo,
    handle: Handle,
    fill_cache: bool,
}

/// The data blocks of an open table: those in the cache, and those in the file.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    loaded: &'a Loaded,
    cached: &'a CacheClient,
}

impl<'a> Blocks<'a> {
    /// The blocks of the table in `loaded`, cached by `cached`.
    #[inline]
    pub(super) fn new(loaded: &'a Loaded, cached: &'a CacheClient) -> Self {
        Self { loaded, cached }
    }

    /// The index partitions that list the blocks.
    #[inline]
    pub(super) fn partitions(self) -> Partitions<'a> {
        Partitions::new(self.loaded, self.cached)
    }

    /// The parts of the table that are in memory.
    #[inline]
    pub(super) fn loaded(self) -> &'a Loaded {
        self.loaded
    }

    /// The cache for the blocks.
    #[inline]
    pub(super) fn cached(self) -> &'a CacheClient {
        self.cached
    }

    /// Whether the block was cached when it was located and still is; if so, prefetches its first
    /// lines.
    pub(super) fn prefetch(self, located: &Located) -> bool {
        located.frame.is_some_and(|frame| self.cached.prefetch(frame, located.number))
    }

    /// Prefetches the entry that a search of the block for this digest will look at first, if the
    /// block is cached. Call it some time after [`Self::prefetch`], whose lines it reads.
    pub(super) fn prefetch_entry(self, located: &Located, digest: KeyDigest) {
        if let (Some(key), Some(frame)) = (self.cached.key(located.number.0), located.frame) {
            let section = self.cached.enter();
            if let Some(payload) = section.peek(frame, key) {
                if let Ok(block) = DataBlock::view(payload) {
                    block.prefetch_found(digest.block_tag());
                }
            }
        }
    }

    /// The read of the block, for [`Self::take`] or [`Self::take_pinned`]; `None` if the block is
    /// cached, or long. `fill_cache`: it may be admitted to the cache.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading the index.
    pub(super) fn to_read(
        self,
        located: &Located,
        fill_cache: bool,
        io: &mut ReadCounters,
    ) -> Result<Option<(BlockToTake, BatchRead)>> {
        if self.prefetch(located) {
            return Ok(None);
        }
        let number = located.number;
        let handle = self.partitions().handle_of(located, io)?;
        if handle.bytes > BATCH_READ_BYTES_MAX {
            return Ok(None);
        }
        let miss = self.missed(number);
        let miss = miss.but_keep(miss.keep && fill_cache && self.loaded.index.has_slot(number));
        let read = self.loaded.file.batch_read(handle.offset, handle.bytes as usize, DATA_BLOCK)?;
        Ok(Some((BlockToTake { number, handle, fill_cache: miss.keep }, read)))
    }

    /// Checks and decompresses a block that was read. It goes into the cache if it was admitted, a
    /// frame is free and the block has a slot; otherwise it is returned, for a search with
    /// [`super::lookup`].
    ///
    /// # Errors
    /// `Io` or `Corruption` from the read.
    pub(super) fn take(
        self,
        block: &BlockToTake,
        read: BatchRead,
        io: &mut ReadCounters,
    ) -> Result<Option<LoadedBlock>> {
        match self.take_fresh(block, read, io)? {
            FreshBlock::Heap(payload) => {
                let charge = Charge::new(self.cached.ledger(), LedgerPart::Iterators, payload.len() as u64);
                Ok(Some(LoadedBlock(Arc::new((PinnedBlock::Heap(payload), charge)))))
            }
            taken @ FreshBlock::Frame(..) => {
                self.publish(block.number, taken);
                Ok(None)
            }
        }
    }

    /// As [`Self::take`], and pins the block.
    pub(super) fn take_pinned(
        self,
        block: &BlockToTake,
        read: BatchRead,
        io: &mut ReadCounters,
    ) -> Result<PinnedBlock> {
        let taken = self.take_fresh(block, read, io)?;
        Ok(self.publish_pinned(block.number, taken))
    }

    fn take_fresh(
        self,
        block: &BlockToTake,
        read: BatchRead,
        io: &mut ReadCounters,
    ) -> Result<FreshBlock<'a>> {
        let BlockToTake { handle, fill_cache, .. } = *block;
        io.data.note(handle.offset, handle.bytes.into());
        let frame = self.loaded.file.bytes_of(read, handle.offset, DATA_BLOCK)?;
        let taken = self.decompress(handle, &frame, fill_cache && self.cached.is_registered())?;
        self.check_header(handle, taken.payload())?;
        Ok(taken)
    }

    /// Reads block `number` at `handle` from the file and pins it.
    pub(super) fn read_pinned(
        self,
        number: BlockNo,
        handle: Handle,
        fill_cache: bool,
        io: &mut ReadCounters,
    ) -> Result<PinnedBlock> {
        debug_assert!(
            (number.0 as usize) < self.loaded.index.len(),
            "block {number:?} of {} is read",
            self.loaded.index.len()
        );
        let miss = self.missed(number);
        let keep = miss.keep && fill_cache && self.loaded.index.has_slot(number);
        let block = self.read(handle, miss.but_keep(keep), io)?;
        Ok(self.publish_pinned(number, block))
    }

    /// Pins block `number` if it is cached.
    pub(super) fn pin_cached(self, number: BlockNo, io: &mut ReadCounters) -> Option<PinnedBlock> {
        let (key, slot) = (self.cached.key(number.0)?, self.loaded.index.slot(number)?);
        let pin = self.cached.enter().find(slot.get()?, key)?.pin();
        io.cache_hits += 1;
        Some(PinnedBlock::Frame(pin))
    }

    /// Pins block `number` if `frame` holds it.
    pub(super) fn pin_in(self, frame: u32, number: BlockNo, io: &mut ReadCounters) -> Option<PinnedBlock> {
        let pin = self.cached.enter().find_in(frame, self.cached.key(number.0)?)?.pin();
        io.cache_hits += 1;
        Some(PinnedBlock::Frame(pin))
    }

    /// Checks, decompresses and pins block `number`, whose frame was read from `handle`.
    pub(super) fn take_in(
        self,
        number: BlockNo,
        handle: Handle,
        frame: &[u8],
        fill_cache: bool,
    ) -> Result<PinnedBlock> {
        let index = &self.loaded.index;
        let keep =
            fill_cache && self.cached.is_registered() && self.missed(number).keep && index.has_slot(number);
        debug_assert!(
            frame.is_empty() || frame.len() == handle.bytes as usize,
            "another frame than at {}",
            handle.offset
        );
        let block = self.decompress(handle, frame, keep)?;
        self.check_header(handle, block.payload())?;
        Ok(self.publish_pinned(number, block))
    }

    /// Publishes a block that was read.
    pub(super) fn publish(self, number: BlockNo, block: FreshBlock<'_>) {
        if let (FreshBlock::Frame(frame, length), Some(key), Some(slot)) =
            (block, self.cached.key(number.0), self.loaded.index.slot(number))
        {
            if let Some(slot) = slot.get() {
                frame.publish(slot, key, length);
            }
        }
    }

    /// As [`Self::publish`], and pins it.
    pub(super) fn publish_pinned(self, number: BlockNo, block: FreshBlock<'_>) -> PinnedBlock {
        let slot = self.loaded.index.slot(number);
        match (block, self.cached.key(number.0), slot.as_ref().and_then(SlotRef::get)) {
            (FreshBlock::Heap(bytes), ..) => PinnedBlock::Heap(bytes),
            (FreshBlock::Frame(frame, length), Some(key), Some(slot)) => {
                frame.publish_pinned(slot, key, length)
            }
            (FreshBlock::Frame(frame, length), ..) => {
                PinnedBlock::Heap(Bytes::copy_from_slice(frame.get(..length).unwrap_or_default()))
            }
        }
    }

    /// Notes a miss of block `number`.
    pub(super) fn missed(self, number: BlockNo) -> Miss {
        self.cached.missed(self.cached.key(number.0))
    }

    /// Reads the block at `handle`, into a frame if it is admitted and a frame is free.
    pub(super) fn read(self, handle: Handle, miss: Miss, io: &mut ReadCounters) -> Result<FreshBlock<'a>> {
        io.data.note(handle.offset, handle.bytes.into());
        let fill_cache = miss.keep && self.cached.is_registered();
        let block = if self.loaded.properties.compression == Compression::None {
            self.read_stored(handle, fill_cache)?
        } else {
            let frame_bytes = handle.bytes as usize;
            let read = |frame: &[u8]| self.decompress(handle, frame, fill_cache);
            self.loaded.file.read_briefly(handle.offset, frame_bytes, DATA_BLOCK, read)??
        };
        debug_assert!(
            block.payload().len() <= payload_limit_bytes(&self.loaded.properties, handle),
            "a payload of {} bytes passed its check",
            block.payload().len()
        );
        self.check_header(handle, block.payload())?;
        self.cached.was_read(miss, handle.bytes as usize);
        Ok(block)
    }

    /// Reads the block at `handle` into memory of the thread, with the usual checks, and passes its
    /// payload to `look`: for one search of a block that is not admitted.
    pub(super) fn read_briefly<T>(
        self,
        handle: Handle,
        miss: Miss,
        io: &mut ReadCounters,
        mut look: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if self.loaded.properties.compression != Compression::None {
            let block = self.read(handle, miss.but_keep(false), io)?;
            return look(block.payload());
        }
        io.data.note(handle.offset, handle.bytes.into());
        let file = &self.loaded.file;
        let looked = file.look_at_frame(handle.offset, handle.bytes as usize, DATA_BLOCK, |frame| {
            let (stored, compression) =
                check(file.birth, handle.offset, frame).map_err(|detail| self.damaged(handle, detail))?;
            if compression != Compression::None {
                // Of a copy: mapped bytes may turn into zeros meanwhile.
                let copy = frame.to_vec();
                let block = self.decompress(handle, &copy, false)?;
                self.check_header(handle, block.payload())?;
                return look(block.payload());
            }
            self.check_length(handle, stored.len())?;
            self.check_header(handle, stored)?;
            look(stored)
        })?;
        self.cached.was_read(miss, handle.bytes as usize);
        looked
    }

    fn check_header(self, handle: Handle, payload: &[u8]) -> Result<()> {
        match DataBlock::view(payload) {
            Ok(view) if view.len() == handle.entries as usize => Ok(()),
            Ok(view) => {
                Err(self.damaged(handle, format!("{} entries, expected {}", view.len(), handle.entries)))
            }
            Err(detail) => Err(self.damaged(handle, detail)),
        }
    }

    /// Reads a block of an uncompressed table.
    fn read_stored(self, handle: Handle, fill_cache: bool) -> Result<FreshBlock<'a>> {
        let (file, frame_bytes) = (&self.loaded.file, handle.bytes as usize);
        // A frame's length is stated by the index, which is limited to the data section.
        if let Some(mut fresh) = fill_cache.then(|| self.cached.fresh(frame_bytes)).flatten() {
            file.read_frame_into(handle.offset, frame_bytes, &mut fresh, DATA_BLOCK)?;
            let frame = fresh.get(..frame_bytes).unwrap_or_default();
            let (stored, compression) =
                check(file.birth, handle.offset, frame).map_err(|detail| self.damaged(handle, detail))?;
            if compression == Compression::None {
                let length = stored.len();
                self.check_length(handle, length)?;
                return Ok(FreshBlock::Frame(fresh, length));
            }
            return self.decompress(handle, frame, false);
        }
        let mut bytes = file.read_frame(handle.offset, u64::from(handle.bytes), DATA_BLOCK)?;
        let (stored, compression) =
            check(file.birth, handle.offset, &bytes).map_err(|detail| self.damaged(handle, detail))?;
        if compression != Compression::None {
            return self.decompress(handle, &bytes, false);
        }
        let length = stored.len();
        self.check_length(handle, length)?;
        bytes.truncate(length);
        Ok(FreshBlock::Heap(bytes.into()))
    }

    /// Checks and decompresses the frame of a block.
    fn decompress(self, handle: Handle, frame: &[u8], fill_cache: bool) -> Result<FreshBlock<'a>> {
        let damaged = |detail: String| self.damaged(handle, detail);
        let (stored, compression) = check(self.loaded.file.birth, handle.offset, frame).map_err(damaged)?;
        let limit_bytes = payload_limit_bytes(&self.loaded.properties, handle);
        let length = payload_bytes(compression, stored, limit_bytes).map_err(damaged)?;
        debug_assert!(length <= limit_bytes, "a payload of {length} bytes, at most {limit_bytes} allowed");
        let dictionary = self.loaded.dictionary.as_ref();
        let Some(mut fresh) = fill_cache.then(|| self.cached.fresh(length)).flatten() else {
            return Ok(FreshBlock::Heap(
                decompress(compression, stored, limit_bytes, dictionary).map_err(damaged)?.into(),
            ));
        };
        decompress_into(compression, stored, fresh.get_mut(..length).unwrap_or_default(), dictionary)
            .map_err(damaged)?;
        Ok(FreshBlock::Frame(fresh, length))
    }

    fn check_length(self, handle: Handle, length: usize) -> Result<()> {
        let limit_bytes = payload_limit_bytes(&self.loaded.properties, handle);
        if length <= limit_bytes {
            return Ok(());
        }
        Err(self.damaged(handle, format!("a payload of {length} bytes, at most {limit_bytes} expected")))
    }

    #[cold]
    fn damaged(self, handle: Handle, detail: String) -> Error {
        self.loaded.file.damaged(handle.offset, DATA_BLOCK, detail)
    }
}

impl Loaded {
    /// Decodes the data block whose frame is `bytes`: its payload, with the header checked, and its
    /// compression.
    pub(crate) fn decode_block(&self, handle: Handle, bytes: Vec<u8>) -> Result<(Bytes, Compression)> {
        let damaged = |detail: String| -> Error { self.file.damaged(handle.offset, DATA_BLOCK, detail) };
        let limit_bytes = payload_limit_bytes(&self.properties, handle);
        let (payload, compression) =
            unseal(self.file.birth, handle.offset, bytes, limit_bytes, self.dictionary.as_ref())
                .map_err(damaged)?;
        let entries = DataBlock::view(&payload).map_err(damaged)?.len();
        if entries != handle.entries as usize {
            return Err(damaged(format!("{entries} entries, expected {}", handle.entries)));
        }
        Ok((payload, compression))
    }
}

/// Maximum decompressed length of a data block: a single entry may exceed the block size, several
/// share a block.
fn payload_limit_bytes(properties: &Properties, handle: Handle) -> usize {
    if handle.entries == 1 {
        LARGEST_PAYLOAD_BYTES
    } else {
        usize::try_from(properties.block_bytes).unwrap_or(usize::MAX).saturating_sub(FRAME_BYTES)
    }
}

const _: () = assert!(FRAME_BYTES < crate::cache::FRAME_SIZE);
