//! A window: some consecutive entries of a data block, decoded.
//!
//! A block's header is read once for each window, not for each entry, and a step within a window is
//! one addition. Keys are assembled in one buffer; values stay in the block, and only their places
//! are kept.
//!
//! Not here: the choice of entries ([`super::iter`]).

use std::ops::Range;

use shamba_key::{EntryKind, SeqNo};

use crate::block::DataBlock;
use crate::entry::EntryView;

/// Maximum number of entries in a window.
pub(super) const ENTRIES_MAX: usize = 16;
/// Initial capacity for a window's keys, sufficient for most windows.
const KEYS_BYTES: usize = 1024;

/// Memory of a typical window.
pub(super) const WINDOW_BYTES: usize = KEYS_BYTES + ENTRIES_MAX * size_of::<Taken>();

/// Consecutive entries of a block, one of which is current.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Number of the first entry in its block.
    first: usize,
    entries: Vec<Taken>,
    keys: Vec<u8>,
    /// Index of the current entry; meaningless if there are none.
    at: usize,
}

/// Places of an entry's parts: in the buffer of keys and in the block.
#[derive(Clone, Copy, Debug)]
struct Taken {
    seq: SeqNo,
    kind: EntryKind,
    key: u32,
    key_end: u32,
    value: u32,
    value_end: u32,
}

impl Window {
    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
        self.at = 0;
    }

    /// Decodes the entries `numbers` of `block`; none if one of them is damaged. The first becomes
    /// current.
    pub(super) fn fill(&mut self, block: DataBlock<'_>, numbers: Range<usize>) -> Result<(), String> {
        debug_assert!(numbers.len() <= ENTRIES_MAX, "a window of {} entries", numbers.len());
        self.clear();
        self.first = numbers.start;
        if self.keys.capacity() < KEYS_BYTES {
            // Usually once per iterator: growing step by step costs more than the entries do.
            self.keys.reserve(KEYS_BYTES);
            self.entries.reserve(ENTRIES_MAX);
        }
        let (entries, mut start) = (&mut self.entries, 0);
        let taken = block.take(numbers, &mut self.keys, |entry, keys| {
            // A payload is below 4 GiB, and so are the few keys of a window.
            entries.push(Taken {
                seq: entry.seq,
                kind: entry.kind,
                key: start,
                key_end: keys.len() as u32,
                value: entry.value_start as u32,
                value_end: (entry.value_start + entry.value.len()) as u32,
            });
            start = keys.len() as u32;
        });
        if taken.is_err() {
            self.clear();
        }
        debug_assert!(
            taken.is_err() || self.keys.len() == self.entries.last().map_or(0, |last| last.key_end as usize),
            "the keys of a window end elsewhere than its last entry"
        );
        taken
    }

    /// Makes the last entry current.
    pub(super) fn go_to_last(&mut self) {
        self.at = self.entries.len().saturating_sub(1);
    }

    /// Makes the next entry current; false if it is not in the window.
    #[inline(always)]
    pub(super) fn next(&mut self) -> bool {
        let more = self.at + 1 < self.entries.len();
        debug_assert!(
            self.entries.is_empty() || self.at < self.entries.len(),
            "entry {} of a window",
            self.at
        );
        self.at += usize::from(more);
        more
    }

    /// Makes the previous entry current; false if it is not in the window.
    #[inline(always)]
    pub(super) fn prev(&mut self) -> bool {
        let more = self.at > 0;
        self.at -= usize::from(more);
        more
    }

    /// The numbers of the window's entries in their block.
    pub(super) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.entries.len()
    }

    /// Whether an entry is current.
    #[inline(always)]
    pub(super) fn valid(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The current entry, from the block with this payload; an empty put if there is none.
    #[inline(always)]
    pub(super) fn view<'a>(&'a self, payload: &'a [u8]) -> EntryView<'a> {
        let Some(entry) = self.entries.get(self.at) else {
            return EntryView { key: &[], seq: SeqNo::ZERO, kind: EntryKind::Put, value: &[] };
        };
        EntryView {
            key: self.keys.get(entry.key as usize..entry.key_end as usize).unwrap_or_default(),
            seq: entry.seq,
            kind: entry.kind,
            value: payload.get(entry.value as usize..entry.value_end as usize).unwrap_or_default(),
        }
    }

    /// The current entry's key.
    #[inline(always)]
    pub(super) fn key(&self) -> &[u8] {
        self.view(&[]).key
    }

    /// The current entry's sequence number.
    #[inline(always)]
    pub(super) fn seq(&self) -> SeqNo {
        self.entries.get(self.at).map_or(SeqNo::ZERO, |entry| entry.seq)
    }

    /// The current entry's kind.
    #[inline(always)]
    pub(super) fn kind(&self) -> EntryKind {
        self.entries.get(self.at).map_or(EntryKind::Put, |entry| entry.kind)
    }

    /// The place of the current entry's value in the block.
    #[inline(always)]
    pub(super) fn value(&self) -> Range<usize> {
        self.entries.get(self.at).map_or(0..0, |entry| entry.value as usize..entry.value_end as usize)
    }
}
