//! Walking a table, both ways.
//!
//! An iterator holds the reader, the block that it is in and where the current entry lies in it; `key` and
//! `value` are slices of that block. It reads one block at a time.
//!
//! Not here: iterators over runs and trees (the engine's), and their bounds.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};

use super::{ReadCounters, TableReader};
use crate::block::{Block, EntryPlace};
use crate::entry::EntryIter;
use crate::error::Result;
use crate::index::BlockNo;

/// Walks the entries of one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<TableReader>,
    fill_cache: bool,
    /// The block last used, by its number in the index; the current entry is in it.
    block: Option<(BlockNo, Block)>,
    /// The current entry, by its number in the block.
    current: Option<(usize, EntryPlace)>,
    counters: ReadCounters,
}

impl TableIter {
    pub(super) fn new(table: Arc<TableReader>, fill_cache: bool) -> Self {
        Self { table, fill_cache, block: None, current: None, counters: ReadCounters::default() }
    }

    /// What the walk has cost so far.
    pub fn counters(&self) -> ReadCounters {
        self.counters
    }

    /// The table that it walks.
    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// Block `number`; `None` past the last. The current entry is given up.
    fn enter(&mut self, number: BlockNo) -> Result<Option<&Block>> {
        self.current = None;
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            self.block = None;
            let Some(handle) = self.table.loaded.index.handle(number) else {
                return Ok(None);
            };
            let block = self.table.block(handle, self.fill_cache, &mut self.counters)?;
            self.block = Some((number, block));
        }
        Ok(self.block.as_ref().map(|(_, block)| block))
    }

    /// Goes to entry `place` of block `number`, or to none if there is no such entry.
    fn settle(&mut self, number: BlockNo, place: usize) -> Result<()> {
        let found = self.enter(number)?.and_then(|block| block.place(place));
        self.current = found.map(|entry| (place, entry));
        Ok(())
    }

    /// Goes to the last entry of block `number`. Blocks are never empty: their handles count entries.
    fn settle_last(&mut self, number: BlockNo) -> Result<()> {
        let count = self.enter(number)?.map_or(0, Block::len);
        match count.checked_sub(1) {
            Some(last) => self.settle(number, last),
            None => Ok(()),
        }
    }

    fn held(&self) -> BlockNo {
        self.block.as_ref().map_or(BlockNo::FIRST, |(number, _)| *number)
    }
}

impl EntryIter for TableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.settle(BlockNo::FIRST, 0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.current = None;
        match self.table.loaded.index.last() {
            Some(last) => self.settle_last(last),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.current = None;
        let Some(number) = self.table.loaded.index.find(key, seq) else {
            return Ok(());
        };
        let Some(block) = self.enter(number)? else {
            return Ok(());
        };
        let (place, count) = (block.lower_bound(key, seq), block.len());
        // Between the last entry of a block and its separator: the next block's first entry is the first after.
        if place == count { self.settle(number.next(), 0) } else { self.settle(number, place) }
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let Some(number) = self.table.loaded.index.find(key, seq) else {
            return self.seek_to_last();
        };
        let Some(block) = self.enter(number)? else {
            return Ok(());
        };
        let place = block.lower_bound(key, seq);
        if block.entry(place).is_some_and(|entry| entry.key == key && entry.seq == seq) {
            return self.settle(number, place);
        }
        match (place.checked_sub(1), number.previous()) {
            (Some(before), _) => self.settle(number, before),
            (None, Some(before)) => self.settle_last(before),
            (None, None) => Ok(()),
        }
    }

    fn next(&mut self) -> Result<()> {
        let Some((place, _)) = self.current.take() else {
            return Ok(());
        };
        let number = self.held();
        self.settle(number, place + 1)?;
        if self.current.is_none() { self.settle(number.next(), 0) } else { Ok(()) }
    }

    fn prev(&mut self) -> Result<()> {
        let Some((place, _)) = self.current.take() else {
            return Ok(());
        };
        let number = self.held();
        match (place.checked_sub(1), number.previous()) {
            (Some(before), _) => self.settle(number, before),
            (None, Some(before)) => self.settle_last(before),
            (None, None) => Ok(()),
        }
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        match (&self.block, &self.current) {
            (Some((_, block)), Some((_, entry))) => block.slice(&entry.key),
            _ => &[],
        }
    }

    fn seq(&self) -> SeqNo {
        self.current.as_ref().map_or(SeqNo::ZERO, |(_, entry)| entry.seq)
    }

    fn kind(&self) -> EntryKind {
        self.current.as_ref().map_or(EntryKind::Put, |(_, entry)| entry.kind)
    }

    fn value(&self) -> &[u8] {
        match (&self.block, &self.current) {
            (Some((_, block)), Some((_, entry))) => block.slice(&entry.value),
            _ => &[],
        }
    }

    fn value_bytes(&self) -> Bytes {
        match (&self.block, &self.current) {
            (Some((_, block)), Some((_, entry))) => block.share(&entry.value),
            _ => Bytes::new(),
        }
    }
}
