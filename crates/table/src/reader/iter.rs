//! The iterator over a table, in both directions.
//!
//! An iterator holds the reader, the current block and a few of its entries, decoded together
//! ([`Window`]). A seek decodes one entry, and each further window is larger. So a scan rarely pays
//! for reading the block's header, and a seek decodes no entry that is not used. `value` is a slice
//! of the block, `key` is assembled from its pieces. [`ReadAhead`] decides how much is read from
//! the file at once.
//!
//! Not here: iterators over runs and trees (the engine's), and their bounds.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo, prefetch_line};

use super::TableReader;
use super::ahead::{ReadAhead, Walk, walk_part};
use super::load::DATA_BLOCK;
use super::walked::IndexCursor;
use super::window::{ENTRIES_MAX, WINDOW_BYTES, Window};
use crate::Result;
use crate::block::DataBlock;
use crate::cache::PinnedBlock;
use crate::counters::ReadCounters;
use crate::entry::{EntryIter, EntryView};
use crate::index::{BlockNo, Handle};
use crate::ledger::Charge;

/// Growth factor of consecutive windows: reading a block's header costs about as much as decoding a
/// few entries.
const STRIDE_GROWTH: usize = 3;

/// Iterator over the entries of one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<TableReader>,
    /// The current block; the window's entries belong to it.
    block: Option<HeldBlock>,
    window: Window,
    /// Number of entries in the next window.
    stride: usize,
    ahead: ReadAhead,
    index: IndexCursor,
    counters: ReadCounters,
    /// Charge for the window, and for the current block if it is not in a frame of the cache.
    charge: Charge,
}

/// The current block.
#[derive(Debug)]
struct HeldBlock {
    number: BlockNo,
    /// Offset in the file.
    offset: u64,
    payload: PinnedBlock,
    /// Number of its entries.
    count: usize,
}

impl TableIter {
    pub(super) fn new(table: Arc<TableReader>, walk: Walk) -> Self {
        let charge = Charge::new(
            table.cached.ledger(),
            walk_part(matches!(walk, Walk::Whole { .. })),
            WINDOW_BYTES as u64,
        );
        Self {
            table,
            charge,
            block: None,
            window: Window::default(),
            stride: 1,
            ahead: ReadAhead::new(walk),
            index: IndexCursor::default(),
            counters: ReadCounters::default(),
        }
    }

    /// Cost of the iteration so far.
    pub fn counters(&self) -> ReadCounters {
        self.counters
    }

    /// Moves to another table, to be read in the same way. The iterator is invalid until the next
    /// seek.
    pub fn move_to(&mut self, table: &Arc<TableReader>) {
        self.release();
        if !Arc::ptr_eq(&self.table, table) {
            self.table = Arc::clone(table);
        }
    }

    /// Releases the current block and the read-ahead buffer, which an idle iterator need not hold.
    /// The iterator is invalid until the next seek.
    pub fn release(&mut self) {
        self.block = None;
        self.window.clear();
        self.ahead.release();
        self.index.release();
        self.charge.resize(WINDOW_BYTES as u64);
    }

    /// Counts a search of the index partition that lists the current block
    /// ([`TableReader::note_index_search`]). Returns false if there is no current block: past the
    /// table's last key no partition was searched.
    pub fn note_index_search(&self) -> bool {
        let index = &self.table.loaded.index;
        let partition = self.block.as_ref().and_then(|held| index.partition_of(held.number));
        partition.map(|(partition, _)| self.table.note_index_search(partition)).is_some()
    }

    /// Makes block `number` the current block; returns its number of entries, or `None` if there is
    /// no such block. No entry is current afterwards.
    fn enter(&mut self, number: BlockNo) -> Result<Option<usize>> {
        self.window.clear();
        if let Some(held) = &self.block {
            if held.number == number {
                return Ok(Some(held.count));
            }
        }
        self.block = None;
        let fill_cache = self.ahead.fills_cache();
        match self.index.handle(self.table.partitions(), number, fill_cache, &mut self.counters)? {
            Some(handle) => self.take(number, handle).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Self::enter`], for the first block that can hold an entry at or after `(key, seq)`;
    /// also returns its number.
    fn enter_at(&mut self, key: &[u8], seq: SeqNo) -> Result<Option<(BlockNo, usize)>> {
        self.window.clear();
        let fill_cache = self.ahead.fills_cache();
        let found = self.index.find(self.table.partitions(), key, seq, fill_cache, &mut self.counters)?;
        let Some((number, handle)) = found else {
            self.block = None;
            return Ok(None);
        };
        if let Some(held) = &self.block {
            if held.number == number {
                return Ok(Some((number, held.count)));
            }
        }
        self.block = None;
        Ok(Some((number, self.take(number, handle)?)))
    }

    /// Makes block `number`, which lies at `handle`, the current block.
    fn take(&mut self, number: BlockNo, handle: Handle) -> Result<usize> {
        let payload =
            self.ahead.block(self.table.blocks(), &self.index, number, handle, &mut self.counters)?;
        // The count was checked against the handle's when the block was read.
        let count = handle.entries as usize;
        self.charge_block(&payload);
        debug_assert!(count > 0, "the block at {} lists no entry", handle.offset);
        self.block = Some(HeldBlock { number, offset: handle.offset, payload, count });
        Ok(count)
    }

    fn charge_block(&mut self, payload: &PinnedBlock) {
        let block_bytes = match payload {
            // Charged by the cache.
            PinnedBlock::Frame(_) => 0,
            PinnedBlock::Heap(bytes) => bytes.len(),
        };
        let bytes = (WINDOW_BYTES + block_bytes) as u64;
        if bytes != self.charge.bytes() {
            self.charge.resize(bytes);
        }
        debug_assert!(
            self.charge.bytes() >= WINDOW_BYTES as u64,
            "an iterator that is not charged for its window"
        );
    }

    /// Calls `ask` with the current block.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(DataBlock<'_>, &mut Window) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let (offset, payload) = match &self.block {
            Some(held) => (held.offset, &held.payload[..]),
            None => (0, &[][..]),
        };
        let window = &mut self.window;
        let asked = DataBlock::view(payload).and_then(|block| ask(block, window));
        asked.map_err(|detail| self.table.loaded.file.damaged(offset, DATA_BLOCK, detail))
    }

    /// Decodes entries of the current block from entry `number` on; the first becomes current.
    fn take_from(&mut self, number: usize) -> Result<()> {
        let count = self.block.as_ref().map_or(0, |held| held.count);
        let numbers = number..count.min(number + self.stride);
        debug_assert!(number <= count, "entry {number} of a block of {count}");
        debug_assert!((1..=ENTRIES_MAX).contains(&self.stride), "windows of {} entries", self.stride);
        self.stride = (self.stride * STRIDE_GROWTH).min(ENTRIES_MAX);
        self.ask(|block, window| window.fill(block, numbers))
    }

    /// Decodes entries of the current block that end before entry `end`; the last becomes current.
    fn take_up_to(&mut self, end: usize) -> Result<()> {
        debug_assert!(
            self.block.as_ref().is_none_or(|held| end <= held.count),
            "entries up to {end} of a shorter block"
        );
        let numbers = end.saturating_sub(self.stride)..end;
        self.stride = (self.stride * STRIDE_GROWTH).min(ENTRIES_MAX);
        self.ask(|block, window| window.fill(block, numbers))?;
        self.window.go_to_last();
        Ok(())
    }

    /// Goes to the first entry of block `number`, if there is such a block.
    fn settle_first(&mut self, number: BlockNo) -> Result<()> {
        match self.enter(number)? {
            Some(_) => self.take_from(0),
            None => Ok(()),
        }
    }

    /// Goes to the last entry of block `number`. Blocks are never empty: their handles count
    /// entries.
    fn settle_last(&mut self, number: BlockNo) -> Result<()> {
        match self.enter(number)? {
            Some(count) => self.take_up_to(count),
            None => Ok(()),
        }
    }

    /// The entry of the current block at which a seek ends.
    fn search(&mut self, key: &[u8], seq: SeqNo) -> Result<usize> {
        if let Some(held) = &self.block {
            // The header and the tags and offsets after it.
            for line in [0, 64, 128] {
                prefetch_line(&held.payload, line);
            }
        }
        self.ask(|block, _| block.lower_bound(key, seq))
    }

    /// Moves past the end of the window.
    fn next_window(&mut self) -> Result<()> {
        let Some(held) = &self.block else { return Ok(()) };
        let (number, end) = (held.number, self.window.numbers().end);
        if end < held.count { self.take_from(end) } else { self.settle_first(number.next()) }
    }

    /// Moves before the start of the window.
    fn prev_window(&mut self) -> Result<()> {
        let Some(held) = &self.block else { return Ok(()) };
        match (self.window.numbers().start, held.number.previous()) {
            (0, Some(before)) => self.settle_last(before),
            (0, None) => {
                self.window.clear();
                Ok(())
            }
            (start, _) => self.take_up_to(start),
        }
    }
}

impl EntryIter for TableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.stride = 1;
        self.settle_first(BlockNo::FIRST)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.stride = 1;
        self.window.clear();
        match self.table.loaded.index.last() {
            Some(last) => self.settle_last(last),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.stride = 1;
        self.window.clear();
        let Some((number, count)) = self.enter_at(key, seq)? else {
            return Ok(());
        };
        let place = self.search(key, seq)?;
        // Between the last entry of a block and its separator: the result is the next block's first
        // entry.
        if place < count { self.take_from(place) } else { self.settle_first(number.next()) }
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.stride = 1;
        self.window.clear();
        let Some((number, count)) = self.enter_at(key, seq)? else {
            return self.seek_to_last();
        };
        let place = self.search(key, seq)?;
        if place < count {
            self.take_from(place)?;
            if self.window.seq() == seq && self.window.key() == key {
                return Ok(());
            }
            self.stride = 1;
        }
        match (place, number.previous()) {
            (0, Some(before)) => self.settle_last(before),
            (0, None) => {
                self.window.clear();
                Ok(())
            }
            (place, _) => self.take_up_to(place),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.window.next() || !self.window.valid() { Ok(()) } else { self.next_window() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.window.prev() || !self.window.valid() { Ok(()) } else { self.prev_window() }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.window.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.window.key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.window.seq()
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        self.window.kind()
    }

    #[inline]
    fn view(&self) -> EntryView<'_> {
        self.window.view(self.block.as_ref().map_or(&[], |held| &held.payload))
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().and_then(|held| held.payload.get(self.window.value())).unwrap_or_default()
    }

    fn value_bytes(&self) -> Bytes {
        match &self.block {
            Some(held) if self.window.valid() => held.payload.share(self.window.value()),
            _ => Bytes::new(),
        }
    }

    fn value_bytes_len(&self) -> Result<u64> {
        let value = self.value();
        if self.is_large() { self.table.large_value_bytes(value) } else { Ok(value.len() as u64) }
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let value = self.value();
        if self.is_large() {
            self.table.read_large_into(value, &mut ReadCounters::default(), sink)
        } else {
            sink(value)
        }
    }
}
