//! Read-ahead: several blocks of a table in one read of the file.
//!
//! An iterator that has read two consecutive blocks from the file is assumed to be a scan. From
//! then on each read includes the following blocks and doubles in length up to a limit. Cached
//! blocks among them do not end the scan and are read as well: with direct I/O a read costs far
//! more than its bytes. If most of the bytes of a read were cached blocks, the next read is
//! shorter. A compaction, which reads everything, starts at the limit. The bytes are in a buffer of
//! the iterator; each block is checked and decoded when the iterator reaches it. If the iterator
//! seeks elsewhere, the unused part of the buffer is wasted: at most twice the bytes that were
//! used.
//!
//! Not here: the cache ([`crate::cache`]), which the iterator searches before it reads anything.

use super::blocks::Blocks;
use super::load::DATA_BLOCK;
use super::walked::IndexCursor;
use crate::Result;
use crate::cache::PinnedBlock;
use crate::counters::ReadCounters;
use crate::index::{BlockNo, Handle};
use crate::ledger::{Charge, LedgerPart};

/// Default limit of a scan's read-ahead: from this length on, the transfer dominates the time of a
/// read.
pub const AHEAD_BYTES: u64 = 256 << 10;
/// Length of the first read of a scan.
const FIRST_BYTES: u64 = 16 << 10;
const _: () = assert!(FIRST_BYTES <= AHEAD_BYTES, "read-ahead grows from its first read");
/// Consecutive blocks read one by one before read-ahead starts.
const ROWS_BEFORE: u32 = 2;
/// Divisor: if less than this fraction of the last read was used, the next read is shorter, because
/// the other blocks were cached. With direct I/O a read of 256 KiB takes about as long as two or
/// three reads of a block; through the page cache about as long as twenty.
const USED_PART_DIRECT: u64 = 16;
const USED_PART_COPIED: u64 = 3;
/// Minimum gap between blocks that ends a read. Padding gaps are shorter; larger ones hold chunks
/// of large values.
const GAP_MAX_BYTES: u64 = 4 << 10;

/// Reading mode of an iterator over a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// Parts of the table, as lookups and scans do: reads from the cache or the file, up to
    /// `ahead_bytes` at once after a scan was detected.
    Parts {
        /// Whether blocks that are read may be admitted to the cache.
        fill_cache: bool,
        /// Maximum bytes per read; 0 reads block by block.
        ahead_bytes: u64,
    },
    /// The whole table once, as compactions do: from the file, bypassing the cache, `bytes` at
    /// once.
    Whole {
        /// Bytes per read.
        bytes: u64,
    },
}

/// The ledger part that an iterator is charged to: write buffers for compactions, which read
/// everything.
pub(super) fn walk_part(is_whole: bool) -> LedgerPart {
    if is_whole { LedgerPart::WriteBuffers } else { LedgerPart::Iterators }
}

/// Read-ahead state and buffer of an iterator.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    limit_bytes: u64,
    fill_cache: bool,
    /// Whether everything will be read: then each read has the limit's length, and the cache is not
    /// searched.
    whole: bool,
    /// The block after the last one that was read from the file, or after cached blocks that
    /// followed it.
    next: Option<BlockNo>,
    /// Number of consecutive blocks read from the file.
    in_a_row: u32,
    /// Length of the next read.
    bytes: u64,
    /// Offset of the buffer's bytes in the file, and their number (`filled`).
    start: u64,
    filled: usize,
    /// Bytes of the buffer that were used.
    used_bytes: u64,
    buffer: Vec<u8>,
    charge: Option<Charge>,
}

impl ReadAhead {
    pub(super) fn new(walk: Walk) -> Self {
        match walk {
            Walk::Parts { fill_cache, ahead_bytes } => {
                Self { limit_bytes: ahead_bytes, fill_cache, bytes: FIRST_BYTES, ..Self::default() }
            }
            Walk::Whole { bytes } => Self { limit_bytes: bytes, whole: true, bytes, ..Self::default() },
        }
    }

    /// Whether blocks that are read may be admitted to the cache.
    pub(super) fn fills_cache(&self) -> bool {
        self.fill_cache
    }

    /// Whether everything will be read.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns block `number` if it is in the cache. `frame` is the one that its slot names, if the
    /// slot was read already.
    pub(super) fn cached(
        &mut self,
        blocks: Blocks<'_>,
        number: BlockNo,
        frame: Option<u32>,
        io: &mut ReadCounters,
    ) -> Option<PinnedBlock> {
        if self.whole {
            return None;
        }
        let block = match frame {
            Some(frame) => blocks.pin_in(frame, number, io)?,
            None => blocks.pin_cached(number, io)?,
        };
        if self.next == Some(number) {
            self.next = Some(number.next());
        }
        Some(block)
    }

    /// Returns block `number`, which lies at `handle` and is not cached: from the buffer, or from
    /// the file.
    pub(super) fn block(
        &mut self,
        blocks: Blocks<'_>,
        index: &IndexCursor,
        number: BlockNo,
        handle: Handle,
        io: &mut ReadCounters,
    ) -> Result<PinnedBlock> {
        self.note_read(number);
        let scans = self.whole || self.in_a_row > ROWS_BEFORE;
        if self.held(handle).is_none() && !(scans && self.read(blocks, index, number, handle)?) {
            return blocks.read_pinned(number, handle, self.fill_cache, io);
        }
        io.data.note(handle.offset, handle.bytes.into());
        debug_assert!(self.held(handle).is_some(), "the block at {} was not read ahead", handle.offset);
        self.used_bytes += u64::from(handle.bytes);
        let taken = blocks.take_in(number, handle, self.held(handle).unwrap_or_default(), self.fill_cache);
        if taken.is_err() {
            // A retry reads again: the read itself may have been faulty.
            self.filled = 0;
        }
        taken
    }

    /// Whether block `number`, if it is read, is to be read with the blocks after it.
    pub(super) fn reads_on_from(&self, number: BlockNo) -> bool {
        self.next == Some(number) && self.in_a_row >= ROWS_BEFORE
    }

    /// Takes note that block `number` is read.
    pub(super) fn note_read(&mut self, number: BlockNo) {
        let follows = self.next.replace(number.next()) == Some(number);
        self.in_a_row = if follows { self.in_a_row.saturating_add(1) } else { 1 };
        if !follows && !self.whole {
            self.bytes = FIRST_BYTES;
        }
    }

    /// Frees the buffer.
    pub(super) fn release(&mut self) {
        self.next = None;
        self.filled = 0;
        self.buffer = Vec::new();
        self.charge = None;
    }

    /// Whether the frame at `handle` was read ahead.
    pub(super) fn holds(&self, handle: Handle) -> bool {
        self.held(handle).is_some()
    }

    /// The frame at `handle`, if it was read ahead.
    fn held(&self, handle: Handle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.start)?).ok()?;
        self.buffer.get(..self.filled)?.get(start..start.checked_add(handle.bytes as usize)?)
    }

    /// Reads the frame at `handle` and the blocks after it into the buffer. Returns false without a
    /// read if no block would follow, or if the memory limit of iterators does not allow the
    /// buffer.
    fn read(
        &mut self,
        blocks: Blocks<'_>,
        index: &IndexCursor,
        number: BlockNo,
        handle: Handle,
    ) -> Result<bool> {
        let used_part = if blocks.loaded().file.is_direct() { USED_PART_DIRECT } else { USED_PART_COPIED };
        if self.used_bytes * used_part < self.filled as u64 {
            self.bytes = (self.bytes / 4).max(FIRST_BYTES);
        }
        let (mut end, mut last) = (handle.end(), number);
        // As far as the handles are known: index partitions are not read ahead.
        while let Some(next) = index.known_handle(blocks.partitions(), last.next()) {
            // The partition may not have been checked, and list blocks in any order.
            if next.offset < end
                || next.end() - handle.offset > self.bytes.min(self.limit_bytes)
                || next.offset - end >= GAP_MAX_BYTES
            {
                break;
            }
            (end, last) = (next.end(), last.next());
        }
        // A forged block may have no bytes.
        if end == handle.end() {
            return Ok(false);
        }
        let bytes = usize::try_from(end - handle.offset).unwrap_or(usize::MAX);
        self.filled = 0;
        // The buffer only grows: a new one for each read would cost as much as the read.
        if bytes > self.buffer.len() {
            let ledger = blocks.cached().ledger();
            let charge = self.charge.get_or_insert_with(|| Charge::new(ledger, walk_part(self.whole), 0));
            // The memory of a compaction's buffer is reserved in advance. A scan that gets no
            // memory reads block by block.
            if self.whole {
                charge.resize(bytes as u64);
            } else if !charge.try_resize(bytes as u64) {
                return Ok(false);
            }
            self.buffer = Vec::new();
            self.buffer.resize(bytes, 0);
        }
        debug_assert!(bytes <= self.buffer.len(), "a read of {bytes} bytes into {}", self.buffer.len());
        self.bytes = (self.bytes * 2).min(self.limit_bytes);
        blocks.loaded().file.read_frame_into(handle.offset, bytes, &mut self.buffer, DATA_BLOCK)?;
        (self.start, self.filled, self.used_bytes) = (handle.offset, bytes, 0);
        Ok(true)
    }
}
