//! A source of a merging iterator: the tables of a run, or any other sorted source.
//!
//! It is an enum and not only a trait object, because nearly all entries come from tables: their
//! moves and accessors are then called directly and inlined.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{EntryIter, EntryView, Result, ValueFile, ValueFileRef};

use super::run_iter::RunIter;
use crate::version::{Run, TableUse};

/// One sorted source of a merging iterator.
pub enum Source {
    /// A run, kept alive.
    Run(RunIter<Arc<Run>>),
    /// Some tables of a run.
    Tables(RunIter<Vec<TableUse>>),
    /// A memtable, or a source made by a test.
    Other(Box<dyn EntryIter>),
    /// No entry: an empty memtable.
    Nothing,
}

impl From<Box<dyn EntryIter>> for Source {
    fn from(iter: Box<dyn EntryIter>) -> Self {
        Self::Other(iter)
    }
}

impl Source {
    /// The table of the current entry; `None` if it comes from no run.
    pub fn table(&self) -> Option<&TableUse> {
        match self {
            Self::Run(run) => run.table(),
            Self::Tables(run) => run.table(),
            Self::Other(_) | Self::Nothing => None,
        }
    }
}

/// The same call on any kind of source; `$nothing` if there is no source.
macro_rules! each {
    ($source:expr, $iter:ident => $call:expr, $nothing:expr) => {
        match $source {
            Source::Run($iter) => $call,
            Source::Tables($iter) => $call,
            Source::Other($iter) => $call,
            Source::Nothing => $nothing,
        }
    };
}

impl EntryIter for Source {
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_first(), Ok(()))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_last(), Ok(()))
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, iter => iter.seek(key, seq), Ok(()))
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        each!(self, iter => iter.seek_for_prev(key, seq), Ok(()))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, iter => iter.next(), Ok(()))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, iter => iter.prev(), Ok(()))
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        each!(self, iter => iter.skip_hidden(end, floor), Ok(()))
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        each!(self, iter => iter.skip_hidden_back(start, floor), Ok(()))
    }

    #[inline]
    fn note_tombstone(&mut self) {
        each!(self, iter => iter.note_tombstone(), ());
    }

    #[inline]
    fn valid(&self) -> bool {
        each!(self, iter => iter.valid(), false)
    }

    #[inline]
    fn view(&self) -> EntryView<'_> {
        let nothing = EntryView {
            key: &[],
            seq: SeqNo::ZERO,
            kind: EntryKind::Put,
            value: &[],
            is_last_at_hand: false,
        };
        each!(self, iter => iter.view(), nothing)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, iter => iter.key(), &[])
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        each!(self, iter => iter.seq(), SeqNo::ZERO)
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        each!(self, iter => iter.kind(), EntryKind::Put)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, iter => iter.value(), &[])
    }

    fn value_bytes(&self) -> Bytes {
        each!(self, iter => iter.value_bytes(), Bytes::new())
    }

    fn value_bytes_len(&self) -> Result<u64> {
        each!(self, iter => iter.value_bytes_len(), Ok(0))
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        each!(self, iter => iter.read_value(sink), Ok(()))
    }

    fn separated(&self) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        each!(self, iter => iter.separated(), Ok(None))
    }

    fn digest(&self) -> Option<KeyDigest> {
        each!(self, iter => iter.digest(), None)
    }
}
