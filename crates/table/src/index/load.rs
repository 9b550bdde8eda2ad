//! Loading an index when its table is opened: every partition is read and checked; only pinned ones
//! are kept.
//!
//! The section is read in long pieces. Each partition is checked against the partitions before it
//! and against the data section; at the end, the blocks must fill the section. Pinned partitions
//! are decoded on the way.
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
use crate::ledger::Ledger;
use crate::residency::Residency;

/// Bytes of the section per read.
const READ_BYTES: u64 = 64 << 10;

impl Index {
    /// Loads the index whose top level is `top` and whose partitions are `section`; its blocks lie
    /// in `data`. Pinned partitions are charged to `ledger`.
    pub(crate) fn load(
        file: &TableFile,
        top: Section,
        section: Section,
        data: Section,
        hold: Residency,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let damaged_top = |detail: String| file.damaged(top.offset, TOP, detail);
        let listed = Block::parse(file.payload(top.offset, top.bytes, TOP)?).map_err(damaged_top)?;
        let stored = listed_partitions(&listed, section).map_err(damaged_top)?;
        let mut builder = TopBuilder::new(data.offset, data.end());
        let (mut partitions, mut expected) = (Vec::new(), Vec::new());
        let (mut piece, mut piece_at) = (Vec::new(), section.offset);
        for (handle, last) in stored.iter().zip(listed.entries()) {
            let damaged = |detail: String| file.damaged(handle.offset, PARTITION, detail);
            if handle.end() > piece_at + piece.len() as u64 {
                let rest = section.end().saturating_sub(handle.offset);
                piece = file.read(handle.offset, READ_BYTES.max(handle.bytes.into()).min(rest), PARTITION)?;
                piece_at = handle.offset;
            }
            let from = usize::try_from(handle.offset - piece_at).unwrap_or(usize::MAX);
            let frame = piece.get(from..).and_then(|rest| rest.get(..handle.bytes as usize));
            let payload = payload_of(file, *handle, frame.unwrap_or_default())?;
            let last = (last.key, last.seq);
            let bounds = builder.bounds(handle.entries, last);
            let partition = StoredPartition::view(payload, handle.entries).map_err(damaged)?;
            let checked = partition.check(&bounds).map_err(damaged)?;
            if hold == Residency::Pinned {
                partitions.push(partition.decode(&bounds, ledger).map_err(damaged)?);
            }
            expected.push(checked.memory_bytes);
            builder.push(*handle, last, checked).map_err(damaged)?;
        }
        if builder.blocks_end() != data.end() {
            let (found, expected) = (builder.blocks_end(), data.end());
            return Err(damaged_top(format!("blocks end at {found}, the data section at {expected}")));
        }
        Ok(Self::of(builder.finish(), hold, partitions, &expected))
    }
}

/// The handles of the partitions that the top level lists; checks that they are contiguous and fill
/// their section.
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
        next = handle.end();
        partitions.push(handle);
    }
    if next != section.end() {
        return Err(format!("partitions end at {next}, their section at {}", section.end()));
    }
    Ok(partitions)
}
