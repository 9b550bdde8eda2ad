//! One partition of the index, as it lies in the file: searched where it is, and taken into memory.
//!
//! A partition whose [decoded form](super::partition) is not in memory is read, its checksum compared, and the
//! few separators that a search looks at are taken from the bytes. The checksum vouches for order and structure, as
//! it does for data blocks; they are [checked](StoredPartition::check) in whole when a table is opened, when a
//! partition is taken into memory, when a walk holds on to it, and by [`crate::TableReader::verify`]. Every access
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
use crate::entry::internal_cmp;
use crate::ledger::{Charge, Ledger, LedgerPart};

/// What the top level knows of a partition before it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds<'a> {
    /// How many separators it has.
    pub(crate) separators: u32,
    /// Its first block starts here or a little later.
    pub(crate) start: u64,
    /// Its last block ends here, or before if [`Self::is_end_known`] is not set.
    pub(crate) end: u64,
    pub(crate) is_end_known: bool,
    /// The last separator of the partition before.
    pub(crate) after: Option<(&'a [u8], SeqNo)>,
    /// Its last separator.
    pub(crate) last: (&'a [u8], SeqNo),
}

/// What a check found of the blocks of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Checked {
    /// Where the last one ends.
    pub(super) end: u64,
    /// Their entries.
    pub(super) entries: u64,
    /// About what the partition takes in memory, in bytes.
    pub(super) memory_bytes: u64,
}

/// A partition over its payload. Errors say what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredPartition<'a> {
    block: PlainView<'a>,
    payload_bytes: usize,
}

impl<'a> StoredPartition<'a> {
    /// A view of `payload`; checks its header, and that it has as many separators as the top level says.
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

    /// The first block whose separator is at or after `(key, seq)`, which the last one must be, and where it lies.
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

    /// Checks the whole of it: structure, order, and that it is what the top level says.
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
        Ok(Checked { end: next, entries, memory_bytes: estimate.bytes() })
    }

    /// Its form in memory, once it was checked.
    pub(super) fn decode(&self, bounds: &Bounds<'_>, ledger: &Arc<Ledger>) -> Result<Partition, String> {
        // As a rule the stored form takes more.
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
