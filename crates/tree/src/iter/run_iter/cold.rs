//! The reads of a seek in a run, made by the caller together with those of other runs.
//!
//! They are those of the first table that does not lie wholly below the key; backward, of the last
//! one that does not lie wholly above it. If the table has no entry there, the seek goes on in the
//! next one, and reads by itself.
//!
//! Not here: what is read in a table ([`shamba_table::SeekRead`]).

use shamba_env::BatchRead;
use shamba_key::SeqNo;
use shamba_table::{SeekRead, TableIter};

use super::{RunIter, TableList};

/// The parts of a table that a seek reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekPart {
    /// The index partition.
    Partition,
    /// The block, whose place is known once the partition was read.
    Block,
}

impl<L: TableList> RunIter<L> {
    /// The read of `part` for a seek backward to `(key, seq)`, as [`Self::to_read`].
    pub fn to_read_back(&mut self, part: SeekPart, key: &[u8], seq: SeqNo) -> Option<(SeekRead, BatchRead)> {
        self.valid = false;
        let index = self.tables.tables().partition_point(|table| table.range.lower.as_ref() <= key);
        let index = index.checked_sub(1)?;
        let is_within = self.limit.is_above(key) && self.limit.lower.as_ref() <= key;
        // Behind the table's entries, its last block is read, which the key does not find.
        let is_within = is_within && self.tables.tables().get(index)?.range.is_above(key);
        if is_within { self.begin_read(index, part, key, seq) } else { None }
    }

    /// The read of `part` for a seek to `(key, seq)`, for [`Self::take_read`]; `None` if it is at
    /// hand. The iterator is invalid afterwards.
    pub fn to_read(&mut self, part: SeekPart, key: &[u8], seq: SeqNo) -> Option<(SeekRead, BatchRead)> {
        self.valid = false;
        let begin = self.limit.lower.clone();
        let (key, seq) = if begin.as_ref() > key { (begin.as_ref(), SeqNo::MAX) } else { (key, seq) };
        let index = self.tables.first_reaching(key);
        // If the table begins behind the key, the seek goes to its first entry.
        let lower = self.tables.tables().get(index)?.range.lower.clone();
        let (key, seq) = if lower.as_ref() > key { (lower.as_ref(), SeqNo::MAX) } else { (key, seq) };
        if self.limit.is_above(key) { self.begin_read(index, part, key, seq) } else { None }
    }

    fn begin_read(
        &mut self,
        index: usize,
        part: SeekPart,
        key: &[u8],
        seq: SeqNo,
    ) -> Option<(SeekRead, BatchRead)> {
        self.holds = true;
        let iter: &mut TableIter = &mut self.enter(index).ok()?.iter;
        match part {
            SeekPart::Partition => iter.partition_to_read(key, seq),
            SeekPart::Block => iter.block_to_read(key, seq),
        }
    }

    /// Keeps what was read for the seek, in the table that was entered last.
    pub fn take_read(&mut self, part: SeekRead, read: BatchRead) {
        debug_assert!(!self.valid, "a read for a seek ends before the seek");
        if let Some(open) = &mut self.open {
            open.iter.take_read(part, read);
        }
    }

    /// Makes a read of the table that was entered last, and counts its time in the average of
    /// reads.
    pub fn read_timed(&self, read: &mut BatchRead) {
        if let Some(open) = &self.open {
            open.iter.read_timed(read);
        }
    }
}
