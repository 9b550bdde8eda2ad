//! One partition of the index in its stored form: searched in place, or decoded into memory.
//!
//! If the [decoded form](super::partition) of a partition is not in memory, a search reads the
//! partition, verifies its checksum, and decodes only the separators that it compares. The checksum
//! vouches for order and structure, as for data blocks. Partitions are
//! [checked](StoredPartition::check) in full when they are written, when a partition becomes
//! resident, when an iterator walks on in one, and by [`crate::TableReader::verify`]. Every access
//! checks its own bounds, whatever the bytes are.
//!
//! Not here: reading it ([`crate::reader`]).

use std::cmp::Ordering;
use std::sync::Arc;

use shamba_key::SeqNo;

use super::handle::Handle;
use super::partition::{Estimate, Partition, PartitionBuilder};
use super::separators::Found;
use crate::block::PlainView;
use crate::format::partitions::PartitionSummary;
use crate::ledger::{Charge, Ledger, LedgerPart};
use shamba_key::internal_cmp;

/// Bounds that the top level sets for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds<'a> {
    /// Number of its separators.
    pub(crate) separators: u32,
    /// Minimum offset of its first block.
    pub(crate) start: u64,
    /// End of its last block; an upper bound if [`Self::is_end_known`] is not set.
    pub(crate) end: u64,
    pub(crate) is_end_known: bool,
    /// The last separator of the previous partition.
    pub(crate) after: Option<(&'a [u8], SeqNo)>,
    /// Its last separator.
    pub(crate) last: (&'a [u8], SeqNo),
}

/// Result of the check of a partition's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Checked {
    pub(super) summary: PartitionSummary,
    /// Number of their entries.
    pub(super) entries: u64,
}

/// A view of a partition's payload. Errors describe the damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPartition<'a> {
    block: PlainView<'a>,
    payload_bytes: usize,
}

impl<'a> StoredPartition<'a> {
    /// Creates a view of `payload`; checks its header and the number of separators that the top
    /// level states.
    pub(crate) fn view(payload: &'a [u8], separators: u32) -> Result<Self, String> {
        let block = PlainView::new(payload)?;
        if block.len() != separators as usize || separators == 0 {
            return Err(format!("{} separators, expected {separators}", block.len()));
        }
        Ok(Self { block, payload_bytes: payload.len() })
    }

    pub(super) fn len(&self) -> usize {
        self.block.len()
    }

    /// The first block whose separator is at or after `(key, seq)`, and its place. The last
    /// separator must be.
    pub(crate) fn find(
        &self,
        key: &[u8],
        seq: SeqNo,
        bounds: &Bounds<'_>,
    ) -> Result<(Found, Handle), String> {
        let at = self.block.lower_bound(key, seq)?;
        let (separator, separator_seq) = self.separator(at)?;
        let goes_on = separator == key && separator_seq > SeqNo::ZERO;
        Ok((Found { at, goes_on }, self.handle(at, bounds)?))
    }

    pub(crate) fn separator(&self, number: usize) -> Result<(&'a [u8], SeqNo), String> {
        let entry = self.block.entry(number).ok_or_else(|| format!("separator {number} is malformed"))?;
        Ok((entry.key, entry.seq))
    }

    pub(crate) fn handle(&self, number: usize, bounds: &Bounds<'_>) -> Result<Handle, String> {
        let entry = self.block.entry(number).ok_or_else(|| format!("separator {number} is malformed"))?;
        let handle = Handle::decode(entry.value).ok_or("a malformed handle")?;
        if handle.offset < bounds.start || handle.end() > bounds.end || handle.entries == 0 {
            return Err(out_of_place(handle, bounds.start, bounds.end));
        }
        Ok(handle)
    }

    /// Checks the whole partition: structure, order, and the bounds of the top level.
    pub(crate) fn check(&self, bounds: &Bounds<'_>) -> Result<Checked, String> {
        self.block.check()?;
        let (mut next, mut entries) = (bounds.start, 0u64);
        let mut estimate = Estimate::new(self.separator(0)?.0, bounds.last.0);
        let mut last = bounds.after;
        for number in 0..self.len() {
            let handle = self.handle(number, bounds)?;
            if handle.offset < next {
                return Err(out_of_place(handle, next, bounds.end));
            }
            next = handle.end();
            entries = entries.saturating_add(u64::from(handle.entries));
            let (key, seq) = self.separator(number)?;
            estimate.add(key, seq, last.is_some_and(|(before, _)| before == key));
            if last.is_some_and(|(before, before_seq)| {
                internal_cmp(before, before_seq, key, seq) != Ordering::Less
            }) {
                return Err("separators out of order".to_owned());
            }
            last = Some((key, seq));
        }
        if last != Some(bounds.last) {
            return Err("its last separator is not that of the top level".to_owned());
        }
        if bounds.is_end_known && next != bounds.end {
            return Err(format!("blocks end at {next}, expected at {}", bounds.end));
        }
        let memory_bytes = u32::try_from(estimate.bytes()).unwrap_or(u32::MAX);
        Ok(Checked { summary: PartitionSummary { blocks_end: next, memory_bytes }, entries })
    }

    /// Decodes the partition into memory. It must have been checked.
    pub(super) fn decode(&self, bounds: &Bounds<'_>, ledger: &Arc<Ledger>) -> Result<Partition, String> {
        // The stored form is usually larger.
        let charge = Charge::new(ledger, LedgerPart::Indexes, self.payload_bytes as u64);
        let mut partition = PartitionBuilder::default();
        for number in 0..self.len() {
            let (key, seq) = self.separator(number)?;
            if !partition.push(key, seq, self.handle(number, bounds)?) {
                return Err("separators out of order".to_owned());
            }
        }
        Ok(partition.finish(charge))
    }
}

fn out_of_place(handle: Handle, start: u64, end: u64) -> String {
    format!("a block of {} bytes at {}, expected between {start} and {end}", handle.bytes, handle.offset)
}
