//! The iterator over a table, in both directions.
//!
//! An iterator holds the reader, the current block and one of its entries, decoded
//! ([`EntryCursor`]). The block's header is decoded once, when the iterator enters the block, and
//! no entry is decoded that is not used. `value` is a slice of the block, `key` is assembled from
//! its pieces. [`ReadAhead`] decides how much is read from the file at once.
//!
//! Not here: iterators over runs and trees (the engine's), and their bounds.

mod cold;
mod seeking;

pub use self::cold::SeekRead;
pub use self::seeking::{SEEK_STEPS, Seeking};

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};

use super::TableReader;
use super::ahead::{ReadAhead, Walk, walk_part};
use super::load::DATA_BLOCK;
use super::walked::IndexCursor;
use crate::block::EntryCursor;
use crate::cache::PinnedBlock;
use crate::copies::{Copies, CopyEnd, CopyLimits};
use crate::counters::{ReadCounters, Reads};
use crate::entry::EntryView;
use crate::entry_iter::EntryIter;
use crate::index::{BlockNo, Handle};
use crate::ledger::Charge;
use crate::value_file::{ValueFile, ValueFileRef};
use crate::{Error, Result};

/// Memory of an iterator's position.
const CURSOR_BYTES: u64 = EntryCursor::BYTES as u64;

/// Iterator over the entries of one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<TableReader>,
    /// The current block. The entry belongs to it.
    block: Option<HeldBlock>,
    entry: EntryCursor,
    ahead: ReadAhead,
    index: IndexCursor,
    counters: ReadCounters,
    /// Reads of large values, which are read through a shared reference.
    value_reads: Cell<Reads>,
    /// Charge for the entry, and for the current block if it is not in a frame of the cache.
    charge: Charge,
}

/// The current block.
#[derive(Debug)]
struct HeldBlock {
    number: BlockNo,
    payload: PinnedBlock,
}

impl TableIter {
    pub(super) fn new(table: Arc<TableReader>, walk: Walk) -> Self {
        let part = walk_part(matches!(walk, Walk::Whole { .. }));
        let charge = Charge::new(table.cached.ledger(), part, CURSOR_BYTES);
        Self {
            table,
            charge,
            block: None,
            entry: EntryCursor::default(),
            ahead: ReadAhead::new(walk),
            index: IndexCursor::new(matches!(walk, Walk::Whole { .. })),
            counters: ReadCounters::default(),
            value_reads: Cell::default(),
        }
    }

    /// Moves the cost of the iteration since the last call to `sum`, of all tables that it has
    /// read.
    #[inline]
    pub fn move_counters_to(&mut self, sum: &mut ReadCounters) {
        self.counters.value = self.value_reads.take();
        self.counters.move_to(sum);
    }

    /// Moves to another table, to be read in the same way. The iterator is invalid until the next
    /// seek.
    pub fn move_to(&mut self, table: Arc<TableReader>) {
        self.release();
        self.table = table;
    }

    /// Releases the current block and the read-ahead buffer, which an idle iterator need not hold.
    /// The iterator is invalid until the next seek.
    pub fn release(&mut self) {
        self.block = None;
        self.entry.leave();
        self.ahead.release();
        self.index.release();
        self.charge.resize(CURSOR_BYTES);
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
        if self.is_in(number) || self.enter_cached(number, None)? {
            return Ok(Some(self.entry.count()));
        }
        let fill_cache = self.ahead.fills_cache();
        match self.index.handle(self.table.partitions(), number, fill_cache, &mut self.counters)? {
            Some(handle) => self.read(number, handle).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Self::enter`], for the first block that can hold an entry at or after `(key, seq)`;
    /// also returns its number.
    fn enter_at(&mut self, key: &[u8], seq: SeqNo) -> Result<Option<(BlockNo, usize)>> {
        self.entry.leave();
        let fill_cache = self.ahead.fills_cache();
        let found = self.index.find(self.table.partitions(), key, seq, fill_cache, &mut self.counters)?;
        let Some((number, handle)) = found else {
            self.block = None;
            return Ok(None);
        };
        if self.is_in(number) || self.enter_cached(number, None)? {
            return Ok(Some((number, self.entry.count())));
        }
        Ok(Some((number, self.read(number, handle)?)))
    }

    /// Leaves the current entry, and the current block if it is not block `number`; returns whether
    /// it is.
    fn is_in(&mut self, number: BlockNo) -> bool {
        self.entry.leave();
        if self.block.as_ref().is_some_and(|held| held.number == number) {
            return true;
        }
        self.block = None;
        false
    }

    /// Makes block `number` the current block if it is in the cache; returns whether it is. `frame`
    /// as in [`ReadAhead::cached`].
    fn enter_cached(&mut self, number: BlockNo, frame: Option<u32>) -> Result<bool> {
        match self.ahead.cached(self.table.blocks(), number, frame, &mut self.counters) {
            Some(payload) => self.hold(number, payload).map(|_| true),
            None => Ok(false),
        }
    }

    /// Reads block `number`, which lies at `handle`, and makes it the current block.
    fn read(&mut self, number: BlockNo, handle: Handle) -> Result<usize> {
        let payload =
            self.ahead.block(self.table.blocks(), &self.index, number, handle, &mut self.counters)?;
        self.hold(number, payload)
    }

    /// Makes block `number`, which was pinned, the current block; returns its number of entries.
    fn hold(&mut self, number: BlockNo, payload: PinnedBlock) -> Result<usize> {
        self.charge_block(&payload);
        let entered = self.entry.enter(&payload);
        // The count was checked against the handle's when the block was read.
        let count = entered.map_err(|detail| self.damaged(number, detail))?;
        debug_assert!(count > 0, "block {number:?} lists no entry");
        self.block = Some(HeldBlock { number, payload });
        Ok(count)
    }

    /// The error for damage to block `number`. Reads its place in the file, which is not known if
    /// the block was found in the cache.
    #[cold]
    fn damaged(&mut self, number: BlockNo, detail: String) -> Error {
        match self.index.handle(self.table.partitions(), number, false, &mut self.counters) {
            Ok(handle) => {
                let offset = handle.map_or(0, |handle| handle.offset);
                self.table.loaded.file.damaged(offset, DATA_BLOCK, detail)
            }
            Err(error) => error,
        }
    }

    fn charge_block(&mut self, payload: &PinnedBlock) {
        let block_bytes = match payload {
            // Charged by the cache.
            PinnedBlock::Frame(_) => 0,
            PinnedBlock::Heap(bytes) => bytes.len() as u64,
        };
        let bytes = CURSOR_BYTES + block_bytes;
        if bytes != self.charge.bytes() {
            self.charge.resize(bytes);
        }
        debug_assert!(self.charge.bytes() >= CURSOR_BYTES, "an iterator that is not charged for its entry");
    }

    /// The error for damage to the current block.
    #[cold]
    fn damaged_here(&mut self, detail: String) -> Error {
        self.damaged(self.block.as_ref().map_or(BlockNo::FIRST, |held| held.number), detail)
    }

    /// Makes entry `number` of the current block the current one.
    #[inline]
    fn go_to(&mut self, number: usize) -> Result<()> {
        let Some(held) = &self.block else { return Ok(()) };
        let gone = self.entry.go_to(&held.payload, number);
        gone.map_err(|detail| self.damaged_here(detail))
    }

    /// Goes to the first entry of block `number`, if there is such a block.
    fn settle_first(&mut self, number: BlockNo) -> Result<()> {
        match self.enter(number)? {
            Some(_) => self.go_to(0),
            None => Ok(()),
        }
    }

    /// Goes to the last entry of block `number`. Blocks are never empty: their handles count
    /// entries.
    fn settle_last(&mut self, number: BlockNo) -> Result<()> {
        match self.enter(number)? {
            Some(count) => self.go_to(count.saturating_sub(1)),
            None => Ok(()),
        }
    }

    /// Goes to entry `place` of the current block, `number`, which has `count` entries.
    fn settle(&mut self, number: BlockNo, count: usize, place: usize) -> Result<()> {
        // Between the last entry of a block and its separator: the result is the next block's first
        // entry.
        if place >= count {
            return self.settle_first(number.next());
        }
        if let Some(held) = &self.block {
            self.entry.prefetch_entries(&held.payload, place);
        }
        self.go_to(place)
    }

    /// The entry of the current block at which a seek ends.
    fn search(&mut self, key: &[u8], seq: SeqNo) -> Result<usize> {
        let Some(held) = &self.block else { return Ok(0) };
        let found = self.entry.lower_bound(&held.payload, key, seq);
        found.map_err(|detail| self.damaged_here(detail))
    }

    /// Calls `each` with the current entry and those after it, as long as it returns true. Returns
    /// true at the entry for which it returned false; otherwise the entries have ended. Costs less
    /// than single steps. Only when valid (else it has no effect).
    ///
    /// # Errors
    /// As [`EntryIter::next`].
    #[inline]
    pub fn walk_on(&mut self, mut each: impl FnMut(EntryView<'_>) -> bool) -> Result<bool> {
        while self.entry.is_valid() {
            let Some(held) = &self.block else { break };
            let stopped = self.entry.walk(&held.payload, &mut each);
            if stopped.map_err(|detail| self.damaged_here(detail))? {
                return Ok(true);
            }
            self.next_block()?;
        }
        Ok(false)
    }

    /// Copies plain puts from the current entry on into `out`, as far as `limits` allow; passes
    /// over older versions of the key that was copied last. Costs less than [`Self::walk_on`]. Only
    /// when valid, and after [`Copies::begin`].
    ///
    /// # Errors
    /// As [`EntryIter::next`].
    pub fn copy_on(&mut self, out: &mut Copies, limits: &CopyLimits<'_>) -> Result<CopyEnd> {
        while self.entry.is_valid() {
            let Some(held) = &self.block else { break };
            let copied = self.entry.copy(&held.payload, out, limits);
            match copied.map_err(|detail| self.damaged_here(detail))? {
                CopyEnd::Ended => self.next_block()?,
                end => return Ok(end),
            }
        }
        Ok(CopyEnd::Ended)
    }

    /// Moves to the first entry of the next block.
    fn next_block(&mut self) -> Result<()> {
        match &self.block {
            Some(held) => self.settle_first(held.number.next()),
            None => Ok(()),
        }
    }

    /// Moves to the last entry of the previous block.
    fn prev_block(&mut self) -> Result<()> {
        match self.block.as_ref().and_then(|held| held.number.previous()) {
            Some(before) => self.settle_last(before),
            None => {
                self.entry.leave();
                Ok(())
            }
        }
    }
}

impl EntryIter for TableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.settle_first(BlockNo::FIRST)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.entry.leave();
        match self.table.loaded.index.last() {
            Some(last) => self.settle_last(last),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.entry.leave();
        let Some((number, count)) = self.enter_at(key, seq)? else {
            return Ok(());
        };
        let place = self.search(key, seq)?;
        self.settle(number, count, place)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.entry.leave();
        let Some((_, count)) = self.enter_at(key, seq)? else {
            return self.seek_to_last();
        };
        let place = self.search(key, seq)?;
        if place < count {
            self.go_to(place)?;
            if self.entry.seq() == seq && self.entry.key() == key {
                return Ok(());
            }
        }
        if place > 0 { self.go_to(place - 1) } else { self.prev_block() }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.entry.is_valid() {
            return Ok(());
        }
        let number = self.entry.number() + 1;
        if number < self.entry.count() { self.go_to(number) } else { self.next_block() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.entry.is_valid() {
            return Ok(());
        }
        match self.entry.number().checked_sub(1) {
            Some(number) => self.go_to(number),
            None => self.prev_block(),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.entry.is_valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry.key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.entry.seq()
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        self.entry.kind()
    }

    #[inline]
    fn view(&self) -> EntryView<'_> {
        self.entry.view(self.block.as_ref().map_or(&[], |held| &held.payload))
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().and_then(|held| held.payload.get(self.entry.value())).unwrap_or_default()
    }

    fn value_bytes(&self) -> Bytes {
        match &self.block {
            Some(held) if self.entry.is_valid() => held.payload.share(self.entry.value()),
            _ => Bytes::new(),
        }
    }

    fn value_bytes_len(&self) -> Result<u64> {
        let (kind, value) = (self.kind(), self.value());
        match kind.is_large() {
            true => self.table.large_value_bytes(kind, value),
            false => Ok(value.len() as u64),
        }
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (kind, value) = (self.kind(), self.value());
        if kind.is_large() {
            let mut io = ReadCounters { value: self.value_reads.get(), ..ReadCounters::default() };
            let read = self.table.read_large_into(kind, value, &mut io, sink);
            self.value_reads.set(io.value);
            read
        } else {
            sink(value)
        }
    }

    fn separated(&self) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        self.table.separated(self.kind(), self.value())
    }
}
