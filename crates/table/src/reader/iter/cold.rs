//! The reads of a seek, made by the caller together with those of other tables.
//!
//! A seek in a table whose index partition and block are not in memory waits for two reads, one
//! after the other, and a merge of several runs for those of each run. A merge therefore asks each
//! iterator for the read of its partition, makes all of them at once, and then does the same with
//! the blocks. The seek finds what was read.
//!
//! It is only a short cut: what cannot be read together with others (it is long, or its file cannot
//! be opened now), or is damaged, is left to the seek, which reads it again and reports the error.
//!
//! Not here: who makes the reads (the engine's pool); lookups of many keys
//! ([`super::super::reads`]).

use shamba_env::BatchRead;
use shamba_key::SeqNo;

use super::TableIter;
use crate::index::{AbsentPartition, Find, Located};
use crate::reader::blocks::BlockToTake;

/// A part of a table that is being read for a seek.
#[derive(Debug)]
pub struct SeekRead(Part);

#[derive(Debug)]
enum Part {
    Partition(AbsentPartition),
    Block(BlockToTake),
}

impl TableIter {
    /// The read of the index partition that a seek to `(key, seq)` has to search, for
    /// [`Self::take_read`]; `None` if it is at hand.
    pub fn partition_to_read(&mut self, key: &[u8], seq: SeqNo) -> Option<(SeekRead, BatchRead)> {
        if self.ahead.is_whole() {
            return None;
        }
        let partitions = self.table.partitions();
        let Ok(Find::Absent(partition)) = partitions.find(key, seq, &mut self.counters) else { return None };
        if self.index.has_read(partition) {
            return None;
        }
        let read = partitions.to_read(partition).ok()??;
        Some((SeekRead(Part::Partition(partition)), read))
    }

    /// The read of the block in which a seek to `(key, seq)` ends, for [`Self::take_read`]; `None`
    /// if it is at hand, or if its place is not known without a read.
    pub fn block_to_read(&mut self, key: &[u8], seq: SeqNo) -> Option<(SeekRead, BatchRead)> {
        if self.ahead.is_whole() {
            return None;
        }
        let partitions = self.table.partitions();
        let located = match partitions.find(key, seq, &mut self.counters).ok()? {
            Find::At(located) => located,
            Find::Absent(partition) => self.index.find_read(partitions, partition, key, seq)?,
            Find::Beyond => return None,
        };
        if self.block.as_ref().is_some_and(|held| held.number == located.number) {
            return None;
        }
        // The seek reads ahead.
        if self.ahead.reads_on_from(located.number) {
            return None;
        }
        let handle = partitions.handle_of(&located, &mut self.counters).ok()?;
        if self.ahead.holds(handle) {
            return None;
        }
        let located = Located { handle: Some(handle), ..located };
        let fill_cache = self.ahead.fills_cache();
        let (block, read) = self.table.blocks().to_read(&located, fill_cache, &mut self.counters).ok()??;
        Some((SeekRead(Part::Block(block)), read))
    }

    /// Keeps what was read for the seek. The iterator is invalid until the seek.
    pub fn take_read(&mut self, part: SeekRead, read: BatchRead) {
        self.entry.leave();
        match part.0 {
            Part::Partition(partition) => {
                // The seek finds damage again, and reports it.
                let (partitions, fill_cache) = (self.table.partitions(), self.ahead.fills_cache());
                let _ = self.index.take(partitions, partition, read, fill_cache, &mut self.counters);
            }
            Part::Block(block) => {
                let taken = self.table.blocks().take_pinned(&block, read, &mut self.counters);
                if let Ok(payload) = taken {
                    self.ahead.note_read(block.number());
                    self.block = None;
                    let _ = self.hold(block.number(), payload);
                }
            }
        }
    }

    /// Makes a read of the iterator's table, and counts its time in the average of reads.
    pub fn read_timed(&self, read: &mut BatchRead) {
        self.table.read_timed(read);
    }
}
