//! Reading ahead: several blocks of a table in one read of the file.
//!
//! A walk that has left two blocks for the ones right after them, and found them not cached, is taken for a
//! scan: what it reads next is read with what follows, twice as much each time, up to a limit. Cached blocks between them do
//! not end it, and are read along: past the page cache a read costs far more than its bytes. Where most of what was
//! read ahead was cached, the next read takes half as much. A merge, which
//! reads everything, begins with the limit. What was read ahead lies in a buffer of the walk's own and is
//! checked and decoded block by block, when the walk gets there; a walk that turns elsewhere has read it in
//! vain, at most twice what it used.
//!
//! Not here: the cache ([`crate::cache`]), which is asked before anything is read.

use super::walked::IndexCursor;
use super::{DATA_BLOCK, ReadCounters, TableReader};
use crate::Result;
use crate::cache::PinnedBlock;
use crate::index::{BlockNo, Handle};
use crate::ledger::{Charge, LedgerPart};

/// What a scan reads ahead at most when nobody says otherwise: above it a read takes as long as its bytes do.
pub const AHEAD_BYTES: u64 = 256 << 10;
/// What the first read of a scan takes.
const FIRST_BYTES: u64 = 16 << 10;
/// Blocks read one after the other before more is read at once.
const ROWS_BEFORE: u32 = 2;
/// Where a smaller part than this of what was read ahead was used, less is read ahead: the rest was cached. Past the page cache a
/// read of 256 KiB takes about as long as two or three of a block; through it as long as some twenty.
const USED_PART_DIRECT: u64 = 16;
const USED_PART_COPIED: u64 = 3;
/// Blocks further apart than padding makes them are read apart: chunks of large values lie between them.
const GAP_MAX_BYTES: u64 = 4 << 10;

/// What a walk over a table will read, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// Nobody knows: from the cache or the file, up to `ahead_bytes` at once once it has proved a scan.
    Parts {
        /// Whether blocks that are read go into the cache.
        fill_cache: bool,
        /// The most bytes read at once; 0 reads block by block.
        ahead_bytes: u64,
    },
    /// Everything, once, as merges do: from the file past the cache, `bytes` at once.
    Whole {
        /// How many bytes are read at once.
        bytes: u64,
    },
}

/// Whose memory a walk is charged to: a merge's reads everything.
pub(super) fn walk_part(is_whole: bool) -> LedgerPart {
    if is_whole { LedgerPart::WriteBuffers } else { LedgerPart::Iterators }
}

/// How much a walk reads ahead, and what it has read.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    limit_bytes: u64,
    fill_cache: bool,
    /// Whether everything will be read: then the limit is read at once, and no cache asked.
    whole: bool,
    /// The block after the one that was last read from the file, or cached ones after that.
    next: Option<BlockNo>,
    /// How many blocks in a row were read from the file.
    in_a_row: u32,
    /// How much the next read takes.
    bytes: u64,
    /// Where in the file the buffer is from, and what it holds.
    start: u64,
    filled: usize,
    /// How much of that was taken out.
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

    /// Whether blocks that are read go into the cache.
    pub(super) fn fills_cache(&self) -> bool {
        self.fill_cache
    }

    /// Block `number`, which lies at `handle`: from the cache, from what was read ahead, or from the file.
    pub(super) fn block(
        &mut self,
        table: &TableReader,
        index: &IndexCursor,
        number: BlockNo,
        handle: Handle,
        io: &mut ReadCounters,
    ) -> Result<PinnedBlock> {
        if !self.whole {
            if let Some(block) = table.cached_block(number, io) {
                if self.next == Some(number) {
                    self.next = Some(number.next());
                }
                return Ok(block);
            }
        }
        let follows = self.next.replace(number.next()) == Some(number);
        self.in_a_row = if follows { self.in_a_row.saturating_add(1) } else { 1 };
        if !follows && !self.whole {
            self.bytes = FIRST_BYTES;
        }
        let scans = self.whole || self.in_a_row > ROWS_BEFORE;
        if self.held(handle).is_none() && !(scans && self.read(table, index, number, handle)?) {
            return table.read_pinned(number, handle, self.fill_cache, io);
        }
        io.data.note(handle.offset, handle.bytes.into());
        self.used_bytes += u64::from(handle.bytes);
        let taken = table.take_in(number, handle, self.held(handle).unwrap_or_default(), self.fill_cache);
        if taken.is_err() {
            // Whoever tries again reads again: the damage may be the read's.
            self.filled = 0;
        }
        taken
    }

    /// Forgets what was read.
    pub(super) fn let_go(&mut self) {
        self.next = None;
        self.filled = 0;
        self.buffer = Vec::new();
        self.charge = None;
    }

    /// The frame at `handle`, if it was read ahead.
    fn held(&self, handle: Handle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.start)?).ok()?;
        self.buffer.get(..self.filled)?.get(start..start.checked_add(handle.bytes as usize)?)
    }

    /// Reads the frame at `handle` and what follows it into the buffer; false, and nothing read, if nothing would
    /// follow it, or if there is no memory for that.
    fn read(
        &mut self,
        table: &TableReader,
        index: &IndexCursor,
        number: BlockNo,
        handle: Handle,
    ) -> Result<bool> {
        let used_part = if table.is_direct() { USED_PART_DIRECT } else { USED_PART_COPIED };
        if self.used_bytes * used_part < self.filled as u64 {
            self.bytes = (self.bytes / 4).max(FIRST_BYTES);
        }
        let (mut end, mut last) = (handle.end(), number);
        // As far as is known: no partition of the index is read ahead.
        while let Some(next) = index.known_handle(table, last.next()) {
            if next.end().saturating_sub(handle.offset) > self.bytes.min(self.limit_bytes)
                || next.offset.saturating_sub(end) >= GAP_MAX_BYTES
            {
                break;
            }
            (end, last) = (next.end(), last.next());
        }
        if last == number {
            return Ok(false);
        }
        let bytes = usize::try_from(end - handle.offset).unwrap_or(usize::MAX);
        self.filled = 0;
        // Only ever grows: a new buffer for each read would cost as much as the read.
        if bytes > self.buffer.len() {
            let charge =
                self.charge.get_or_insert_with(|| Charge::new(&table.ledger, walk_part(self.whole), 0));
            // A merge has memory kept for it; a scan can do without, and reads block by block.
            if self.whole {
                charge.resize(bytes as u64);
            } else if !charge.try_resize(bytes as u64) {
                return Ok(false);
            }
            self.buffer = Vec::new();
            self.buffer.resize(bytes, 0);
        }
        self.bytes = (self.bytes * 2).min(self.limit_bytes);
        table.loaded.file.read_into(handle.offset, bytes, &mut self.buffer, DATA_BLOCK)?;
        (self.start, self.filled, self.used_bytes) = (handle.offset, bytes, 0);
        Ok(true)
    }
}
