//! Iterator over a memtable with values in a log.
//!
//! It passes everything on to the memtable's own iterator, but reads long values from their log.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{EntryIter, Result};

use super::Memtable;

/// An iterator over a memtable that reads long values from their log.
pub(super) struct InLogIter {
    table: Arc<dyn Memtable>,
    iter: Box<dyn EntryIter>,
}

impl InLogIter {
    /// `iter` is an iterator over `table`.
    pub fn new(table: Arc<dyn Memtable>, iter: Box<dyn EntryIter>) -> Self {
        Self { table, iter }
    }
}

impl EntryIter for InLogIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.iter.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.iter.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.iter.seek(key, seq)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.iter.seek_for_prev(key, seq)
    }

    fn next(&mut self) -> Result<()> {
        self.iter.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.iter.prev()
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        self.iter.skip_hidden(end, floor)
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        self.iter.skip_hidden_back(start, floor)
    }

    fn valid(&self) -> bool {
        self.iter.valid()
    }

    fn key(&self) -> &[u8] {
        self.iter.key()
    }

    fn seq(&self) -> SeqNo {
        self.iter.seq()
    }

    fn kind(&self) -> EntryKind {
        self.iter.kind()
    }

    fn value(&self) -> &[u8] {
        self.iter.value()
    }

    fn value_bytes(&self) -> Bytes {
        self.iter.value_bytes()
    }

    fn value_bytes_len(&self) -> Result<u64> {
        let (kind, value) = (self.kind(), self.iter.value());
        if !kind.is_large() {
            return Ok(value.len() as u64);
        }
        self.table.values().value_bytes(kind.location(value))
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (kind, value) = (self.kind(), self.iter.value());
        if kind.is_large() { self.table.values().read(kind.location(value), sink) } else { sink(value) }
    }

    fn digest(&self) -> Option<KeyDigest> {
        self.iter.digest()
    }
}
