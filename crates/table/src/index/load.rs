//! Loading an index when its table is opened.
//!
//! The top level says where each partition lies and where its separators end; a
//! [summary](PartitionSummary) of each, in the table's properties, says where its blocks end. With
//! both, a partition that is read later can be checked against its neighbours, so no partition is
//! read here.
//!
//! Pinned partitions are read and decoded here, in long pieces. So are all partitions of tables
//! without summaries, which older builds wrote: their blocks' ends are only in the partitions.
//! Whatever is known must agree: the number of partitions, the order of their ends, the end of the
//! data section, and the counts of the properties.
//!
//! Not here: reading a single partition later ([`super::Index::read_whole`]).

use std::sync::Arc;

use super::stored::StoredPartition;
use super::top::TopBuilder;
use super::{Handle, Index, PARTITION, TOP, payload_of};
use crate::Result;
use crate::block::Block;
use crate::file::TableFile;
use crate::format::Section;
use crate::format::partitions::PartitionSummary;
use crate::ledger::Ledger;
use crate::residency::Residency;

/// Bytes of the section per read.
const READ_BYTES: u64 = 64 << 10;

/// The sections that an index is loaded from, and what the properties state of it.
pub(crate) struct StoredIndex<'a> {
    pub(crate) top: Section,
    pub(crate) partitions: Section,
    /// The section of the blocks.
    pub(crate) data: Section,
    /// One for each partition; empty in tables of older builds.
    pub(crate) summaries: &'a [PartitionSummary],
    /// Number of blocks.
    pub(crate) blocks: u64,
    /// Number of their entries.
    pub(crate) entries: u64,
}

impl Index {
    /// Loads the index that is `stored` in `file`. Pinned partitions are charged to `ledger`.
    pub(crate) fn load(
        file: &TableFile,
        stored: &StoredIndex<'_>,
        hold: Residency,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let StoredIndex { top, data, summaries, .. } = *stored;
        let damaged_top = |detail: String| file.damaged(top.offset, TOP, detail);
        let listed = Block::parse(file.payload(top.offset, top.bytes, TOP)?).map_err(damaged_top)?;
        let handles = listed_partitions(&listed, stored.partitions).map_err(damaged_top)?;
        if !summaries.is_empty() && summaries.len() != handles.len() {
            let (found, expected) = (handles.len(), summaries.len());
            return Err(damaged_top(format!("{found} partitions, the properties have {expected}")));
        }
        let mut builder = TopBuilder::new(data.offset, data.end());
        let mut pieces = Pieces { file, end: stored.partitions.end(), at: 0, bytes: Vec::new() };
        let (mut partitions, mut expected_bytes, mut entries) = (Vec::new(), Vec::new(), 0u64);
        for (number, (handle, last)) in handles.iter().zip(listed.entries()).enumerate() {
            let damaged = |detail: String| file.damaged(handle.offset, PARTITION, detail);
            let last = (last.key, last.seq);
            let stated = summaries.get(number).copied();
            if let Some(stated) = &stated {
                stated.check(builder.blocks_end(), data.end()).map_err(damaged_top)?;
            }
            let summary = match stated {
                Some(stated) if hold != Residency::Pinned => stated,
                _ => {
                    let blocks_end = stated.map(|stated| stated.blocks_end);
                    let bounds = builder.bounds(handle.entries, last, blocks_end);
                    let payload = payload_of(file, *handle, pieces.frame(*handle)?)?;
                    let partition = StoredPartition::view(payload, handle.entries).map_err(damaged)?;
                    let checked = partition.check(&bounds).map_err(damaged)?;
                    if hold == Residency::Pinned {
                        partitions.push(partition.decode(&bounds, ledger).map_err(damaged)?);
                    }
                    entries = entries.saturating_add(checked.entries);
                    checked.summary
                }
            };
            expected_bytes.push(u64::from(summary.memory_bytes));
            builder.push(*handle, last, summary.blocks_end).map_err(damaged)?;
        }
        if builder.blocks_end() != data.end() {
            let (found, expected) = (builder.blocks_end(), data.end());
            return Err(damaged_top(format!("blocks end at {found}, the data section at {expected}")));
        }
        let built = builder.finish();
        // Counted only if the partitions were read.
        let is_read = hold == Residency::Pinned || summaries.is_empty();
        let found = (u64::from(built.blocks()), if is_read { entries } else { stored.entries });
        let expected = (stored.blocks, stored.entries);
        if found != expected {
            let detail = format!("(blocks, entries) are {found:?}, the properties say {expected:?}");
            return Err(damaged_top(detail));
        }
        Ok(Self::of(built, hold, partitions, &expected_bytes))
    }
}

/// The section of the partitions, read in long pieces.
struct Pieces<'a> {
    file: &'a TableFile,
    /// End of the section.
    end: u64,
    /// Offset of the current piece.
    at: u64,
    bytes: Vec<u8>,
}

impl Pieces<'_> {
    /// The frame of the partition at `handle`; frames are asked for in their order.
    fn frame(&mut self, handle: Handle) -> Result<&[u8]> {
        if handle.end() > self.at + self.bytes.len() as u64 {
            let rest = self.end.saturating_sub(handle.offset);
            let bytes = READ_BYTES.max(handle.bytes.into()).min(rest);
            self.bytes = self.file.read(handle.offset, bytes, PARTITION)?;
            self.at = handle.offset;
        }
        let from = usize::try_from(handle.offset - self.at).unwrap_or(usize::MAX);
        let frame = self.bytes.get(from..).and_then(|rest| rest.get(..handle.bytes as usize));
        Ok(frame.unwrap_or_default())
    }
}

/// The handles of the partitions that the top level lists; checks that they are contiguous, fill
/// their section, and have room for their separators.
pub(crate) fn listed_partitions(
    listed: &Block,
    section: Section,
) -> std::result::Result<Vec<Handle>, String> {
    let mut partitions: Vec<Handle> = Vec::with_capacity(listed.len());
    let mut next = section.offset;
    for entry in listed.entries() {
        let handle = Handle::decode(entry.value).ok_or("a malformed handle")?;
        if handle.offset != next || handle.end() > section.end() {
            let (bytes, offset) = (handle.bytes, handle.offset);
            return Err(format!("a partition of {bytes} bytes at {offset}, expected at {next}"));
        }
        // The top level allocates for each of them, before the partition is read.
        if !handle.can_list_its_separators() {
            return Err(format!("a partition of {} bytes with {} separators", handle.bytes, handle.entries));
        }
        next = handle.end();
        partitions.push(handle);
    }
    if next != section.end() {
        return Err(format!("partitions end at {next}, their section at {}", section.end()));
    }
    Ok(partitions)
}
