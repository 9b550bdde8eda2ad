//! Walking a table, both ways.
//!
//! An iterator holds the reader, the block that it is in and where the current entry lies in it; `value` is a
//! slice of that block, `key` is put together from its pieces. It reads one block at a time.
//!
//! Not here: iterators over runs and trees (the engine's), and their bounds.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};

use super::{ReadCounters, TableReader};
use crate::block::DataBlock;
use crate::cache::PinnedBlock;
use crate::entry::EntryIter;
use crate::error::Result;
use crate::index::BlockNo;

/// Walks the entries of one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<TableReader>,
    fill_cache: bool,
    /// The block last used, by its number in the index; the current entry is in it.
    block: Option<(BlockNo, PinnedBlock)>,
    current: Option<Current>,
    /// The key of the entry that was current last, which the next one's may begin with.
    key: Vec<u8>,
    counters: ReadCounters,
}

/// The current entry.
#[derive(Clone, Debug)]
struct Current {
    /// Its number in the block.
    place: usize,
    seq: SeqNo,
    kind: EntryKind,
    /// Where its value lies in the block.
    value: Range<usize>,
}

impl TableIter {
    pub(super) fn new(table: Arc<TableReader>, fill_cache: bool) -> Self {
        Self {
            table,
            fill_cache,
            block: None,
            current: None,
            key: Vec::new(),
            counters: ReadCounters::default(),
        }
    }

    /// What the walk has cost so far.
    pub fn counters(&self) -> ReadCounters {
        self.counters
    }

    /// The table that it walks.
    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// Makes block `number` the one held; says whether there is one. The current entry is given up.
    fn enter(&mut self, number: BlockNo) -> Result<bool> {
        self.current = None;
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            self.block = None;
            let Some(block) = self.table.pinned(number, self.fill_cache, &mut self.counters)? else {
                return Ok(false);
            };
            self.block = Some((number, block));
        }
        Ok(true)
    }

    /// What `ask` finds in the block held.
    fn ask<T>(&self, ask: impl FnOnce(DataBlock<'_>) -> std::result::Result<T, String>) -> Result<T> {
        let payload = self.block.as_ref().map_or(&[][..], |(_, block)| block);
        DataBlock::view(payload).and_then(ask).map_err(|detail| self.table.damaged_block(self.held(), detail))
    }

    /// Goes to entry `place` of block `number`, or to none if there is no such entry.
    fn settle(&mut self, number: BlockNo, place: usize) -> Result<()> {
        // One entry on, the key needs less work: what it shares with the one before is there.
        let follows = self.held() == number
            && self.current.as_ref().is_some_and(|current| Some(current.place) == place.checked_sub(1));
        if !self.enter(number)? {
            return Ok(());
        }
        let mut key = std::mem::take(&mut self.key);
        let found = self.ask(|block| {
            if place >= block.len() {
                return Ok(None);
            }
            let entry =
                if follows { block.next_entry(place, &mut key) } else { block.entry(place, &mut key) }?;
            let value = entry.value_start..entry.value_start + entry.value.len();
            Ok(Some(Current { place, seq: entry.seq, kind: entry.kind, value }))
        });
        self.key = key;
        self.current = found?;
        Ok(())
    }

    /// Goes to the last entry of block `number`. Blocks are never empty: their handles count entries.
    fn settle_last(&mut self, number: BlockNo) -> Result<()> {
        if !self.enter(number)? {
            return Ok(());
        }
        match self.ask(|block| Ok(block.len()))?.checked_sub(1) {
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
        if !self.enter(number)? {
            return Ok(());
        }
        let (place, count) = self.ask(|block| Ok((block.lower_bound(key, seq)?, block.len())))?;
        // Between the last entry of a block and its separator: the next block's first entry is the first after.
        if place == count { self.settle(number.next(), 0) } else { self.settle(number, place) }
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let Some(number) = self.table.loaded.index.find(key, seq) else {
            return self.seek_to_last();
        };
        if !self.enter(number)? {
            return Ok(());
        }
        let place = self.ask(|block| block.lower_bound(key, seq))?;
        self.settle(number, place)?;
        if self.current.as_ref().is_some_and(|current| current.seq == seq) && self.key == key {
            return Ok(());
        }
        self.current = None;
        match (place.checked_sub(1), number.previous()) {
            (Some(before), _) => self.settle(number, before),
            (None, Some(before)) => self.settle_last(before),
            (None, None) => Ok(()),
        }
    }

    fn next(&mut self) -> Result<()> {
        let Some(place) = self.current.as_ref().map(|current| current.place) else {
            return Ok(());
        };
        let number = self.held();
        self.settle(number, place + 1)?;
        if self.current.is_none() { self.settle(number.next(), 0) } else { Ok(()) }
    }

    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let number = self.held();
        match (current.place.checked_sub(1), number.previous()) {
            (Some(before), _) => self.settle(number, before),
            (None, Some(before)) => self.settle_last(before),
            (None, None) => Ok(()),
        }
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        if self.current.is_some() { &self.key } else { &[] }
    }

    fn seq(&self) -> SeqNo {
        self.current.as_ref().map_or(SeqNo::ZERO, |entry| entry.seq)
    }

    fn kind(&self) -> EntryKind {
        self.current.as_ref().map_or(EntryKind::Put, |entry| entry.kind)
    }

    fn value(&self) -> &[u8] {
        match (&self.block, &self.current) {
            (Some((_, block)), Some(entry)) => block.get(entry.value.clone()).unwrap_or_default(),
            _ => &[],
        }
    }

    fn value_bytes(&self) -> Bytes {
        match (&self.block, &self.current) {
            (Some((_, block)), Some(entry)) => block.share(entry.value.clone()),
            _ => Bytes::new(),
        }
    }

    fn value_bytes_len(&self) -> Result<u64> {
        let value = self.value();
        if self.is_large() { self.table.large_value_bytes(value) } else { Ok(value.len() as u64) }
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let value = self.value();
        if self.is_large() { self.table.read_large_into(value, sink) } else { sink(value) }
    }
}
