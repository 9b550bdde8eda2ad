//! Iterating over the remaining entries of a table: entries in order, and gaps.
//!
//! Blocks come from the index's partitions as long as these are readable. A stretch whose
//! partitions are damaged, or the whole data section without a top level, is searched
//! ([`super::find`]). A block is valid if its checksum matches, its structure is complete and its
//! entries are in order and after those before it. If something is damaged between two valid
//! blocks, there is a gap: its keys are bounded by theirs, and by separators if the index has them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry, MAX_KEY_BYTES, Operand, SeqNo};

use super::find::{Finder, Found};
use super::{ListedPartition, Salvage, corrupt};
use crate::block::frame::{FRAME_BYTES, unseal};
use crate::block::{DataBlock, LARGEST_PAYLOAD_BYTES};
use crate::index::{self, Bounds, Handle, StoredPartition};
use crate::value_file::ValueFileRef;
use crate::values;
use crate::{Error, Result};
use shamba_key::internal_cmp;

/// Name of a data block in errors.
const DATA_BLOCK: &str = "data block";
/// From this number on, zeros in a searched stretch may be an overwritten block instead of padding.
const ZEROS_MIN: u64 = 20;
/// Maximum payload of a block with several entries if the properties are unreadable.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// A remaining entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalvagedEntry {
    /// The user key.
    pub key: Vec<u8>,
    /// Sequence number.
    pub seq: SeqNo,
    /// A put, a delete, an operand of a merge operator, a put whose value [`Salvage::read_large`]
    /// reads, or one whose value is in a value file.
    pub kind: EntryKind,
    /// The value; for a large one, the reference to it ([`ValueFileRef`] for one in a value file);
    /// for an operand, its stored form ([`Operand`]).
    pub value: Bytes,
}

/// A key range in which entries are lost.
#[derive(Debug)]
pub struct Gap {
    /// First key that may be lost.
    pub lower: Bytes,
    /// End of the range, exclusive; `None`: unknown or unbounded.
    pub upper: Option<Bytes>,
    /// The damage.
    pub error: Error,
}

/// A block as the index lists it.
struct IndexedBlock {
    handle: Handle,
    before: Option<Bytes>,
    separator: Bytes,
}

/// A block whose every part is checked. Its entries are made when they are asked for: common
/// beginnings of keys are in it once.
struct CheckedBlock {
    payload: Bytes,
    entries: usize,
    /// Number of entries that were returned.
    returned: usize,
    /// Key of the first entry.
    first: Vec<u8>,
    /// Key and sequence number of the last entry.
    last: (Vec<u8>, SeqNo),
}

/// Iterator over the remaining entries of a table, created by [`Salvage::walk`].
pub struct SalvageWalk {
    table: Arc<Salvage>,
    /// The current block.
    block: Option<CheckedBlock>,
    listed: VecDeque<IndexedBlock>,
    next_partition: usize,
    /// The stretch to search before the listed blocks.
    search: Option<Range<u64>>,
    finder: Finder,
    /// End of the last block.
    at: u64,
    /// Whether all bytes up to `at` are accounted for.
    is_at_known: bool,
    last: Option<(Vec<u8>, SeqNo)>,
    /// Entries so far.
    count: u64,
    /// Zeros found in a search since the last block.
    zeros: u64,
    /// Key ranges with enough zeros between them that a block may be missing; only the count of all
    /// entries decides.
    doubts: Vec<(Bytes, Option<Bytes>)>,
    /// The open gap, which the next valid block ends: its lower bound, the upper bound from
    /// separators, and the damage.
    open: Option<(Bytes, Option<Bytes>, Error)>,
    gaps: Vec<Gap>,
}

impl std::fmt::Debug for SalvageWalk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SalvageWalk").field("table", &self.table.path()).finish_non_exhaustive()
    }
}

impl SalvageWalk {
    pub(super) fn new(table: Arc<Salvage>, kept_bytes: usize) -> Self {
        let data = table.data;
        let search = table.partitions.is_none().then_some(data.offset..data.end());
        let finder = Finder::new(table.properties.as_ref(), kept_bytes);
        Self {
            at: data.offset,
            is_at_known: true,
            table,
            block: None,
            listed: VecDeque::new(),
            next_partition: 0,
            search,
            finder,
            last: None,
            count: 0,
            zeros: 0,
            doubts: Vec::new(),
            open: None,
            gaps: Vec::new(),
        }
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// `Io` when reading fails. Damage is reported by [`Self::take_gaps`].
    pub fn next_entry(&mut self) -> Result<Option<SalvagedEntry>> {
        loop {
            if let Some(block) = self.block.as_mut().filter(|block| block.returned < block.entries) {
                let entry = block.next_entry();
                return entry.map(Some).map_err(|detail| {
                    self.table.file.damaged(self.at, DATA_BLOCK, format!("it was valid before: {detail}"))
                });
            }
            if !self.enter_next(None)? {
                return Ok(None);
            }
        }
    }

    /// The gaps since the last call.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Checks the remaining blocks, large values and the bytes between blocks. Returns the number
    /// of remaining entries.
    pub(super) fn look_through(&mut self, damage: &mut Vec<Error>) -> Result<u64> {
        while self.enter_next(Some(damage))? {}
        Ok(self.count)
    }

    /// Moves to the next valid block; false if there is none.
    fn enter_next(&mut self, mut between: Option<&mut Vec<Error>>) -> Result<bool> {
        loop {
            if let Some(search) = self.search.take() {
                let is_found = self.search_block(search)?;
                self.finder.rest();
                if is_found {
                    return Ok(true);
                }
            } else if let Some(listed) = self.listed.pop_front() {
                if let Some(damage) = between.as_deref_mut() {
                    self.check_between(listed.handle, damage)?;
                }
                let read = self.read_listed(&listed);
                (self.at, self.is_at_known) = (listed.handle.end(), true);
                match read {
                    Ok(block) => {
                        self.take_block(block);
                        return Ok(true);
                    }
                    Err(error) => {
                        let error = corrupt(error)?;
                        self.lose(listed.before, Some(listed.separator), error);
                    }
                }
            } else if !self.next_listed()? {
                self.close_last();
                return Ok(false);
            }
        }
    }

    /// Lists the blocks of the next readable partition; the blocks of damaged partitions before it
    /// become a stretch to search. False at the end.
    fn next_listed(&mut self) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let partitions = table.partitions.as_deref().unwrap_or_default();
        let mut is_damaged = false;
        while let Some(partition) = partitions.get(self.next_partition) {
            let before = self.next_partition.checked_sub(1).and_then(|before| partitions.get(before));
            self.next_partition += 1;
            match table.list(partition, before) {
                Ok(listed) => {
                    if is_damaged {
                        if let Some(first) = listed.first() {
                            self.search = Some(self.at..first.handle.offset);
                        }
                    }
                    self.listed = listed.into();
                    return Ok(true);
                }
                Err(error) => {
                    // Its blocks are searched, which shows what is lost.
                    is_damaged = true;
                    self.note(corrupt(error)?);
                }
            }
        }
        if is_damaged {
            self.search = Some(self.at..table.data.end());
        }
        Ok(is_damaged)
    }

    /// Searches for the next block of a stretch; false if there is none.
    fn search_block(&mut self, mut search: Range<u64>) -> Result<bool> {
        let table = Arc::clone(&self.table);
        while search.start < search.end {
            match self.finder.look(&table.file, table.dictionary.as_ref(), search.start, search.end)? {
                Found::Block(payload, end) => {
                    let Ok(block) = CheckedBlock::new(payload, self.last.as_ref()) else {
                        self.lose_found(search.start);
                        search.start += 1;
                        continue;
                    };
                    (self.at, self.is_at_known) = (end, true);
                    self.search = Some(end..search.end);
                    self.take_block(block);
                    return Ok(true);
                }
                Found::Chunk(end) => search.start = end,
                Found::Nothing { is_damage } => {
                    if is_damage {
                        self.lose_found(search.start);
                    } else {
                        self.zeros += 1;
                    }
                    search.start += 1;
                }
            }
        }
        (self.at, self.is_at_known) = (search.end, false);
        Ok(false)
    }

    fn read_listed(&self, listed: &IndexedBlock) -> Result<CheckedBlock> {
        let (file, handle) = (&self.table.file, listed.handle);
        let damaged = |detail: String| file.damaged(handle.offset, DATA_BLOCK, detail);
        let bytes = file.read(handle.offset, u64::from(handle.bytes), DATA_BLOCK)?;
        let limit_bytes = match (handle.entries, &self.table.properties) {
            (1, _) => LARGEST_PAYLOAD_BYTES,
            (_, Some(properties)) => (properties.block_bytes as usize).saturating_sub(FRAME_BYTES),
            (_, None) => BLOCK_BYTES_MAX,
        };
        let (payload, _) =
            unseal(file.birth, handle.offset, bytes, limit_bytes, self.table.dictionary.as_ref())
                .map_err(damaged)?;
        let block = CheckedBlock::new(payload, self.last.as_ref()).map_err(damaged)?;
        if block.entries != handle.entries as usize {
            return Err(damaged(format!("{} entries, expected {}", block.entries, handle.entries)));
        }
        Ok(block)
    }

    /// Checks the bytes between the last block and the next one: chunks, then zeros.
    fn check_between(&self, next: Handle, damage: &mut Vec<Error>) -> Result<()> {
        if !self.is_at_known || self.at > next.offset {
            return Ok(());
        }
        let file = &self.table.file;
        let end = match values::walk(file, self.at, next.offset, damage) {
            Ok(end) => end,
            Err(error) => {
                damage.push(corrupt(error)?);
                None
            }
        };
        let Some(start) = end else { return Ok(()) };
        let zeros = file.read(start, next.offset.saturating_sub(start), "padding")?;
        if let Some(at) = zeros.iter().position(|byte| *byte != 0) {
            let detail = format!("byte {} is {:#04x}, expected 0", start + at as u64, zeros[at]);
            damage.push(file.damaged(start, "padding", detail));
        }
        Ok(())
    }

    /// Makes a valid block the current one.
    fn take_block(&mut self, block: CheckedBlock) {
        let upper = Some(successor(&block.first));
        self.doubt(upper.clone());
        self.close(upper);
        self.last = Some(block.last.clone());
        self.count += block.entries as u64;
        self.block = Some(block);
    }

    /// Ends a run of zeros before `upper`.
    fn doubt(&mut self, upper: Option<Bytes>) {
        if std::mem::take(&mut self.zeros) >= ZEROS_MIN {
            let lower = self.lower_bound(None);
            self.doubts.push((lower, upper));
        }
    }

    /// Lower bound of the gap here: the last key so far, or the separator `before` it if that is
    /// larger, or the first key of the table.
    fn lower_bound(&self, before: Option<Bytes>) -> Bytes {
        let last = self.last.as_ref().map(|(key, _)| Bytes::copy_from_slice(key));
        last.max(before).unwrap_or_else(|| {
            self.table.properties.as_ref().map_or_else(Bytes::new, |known| known.smallest.clone())
        })
    }

    /// Bytes that its searches hashed, walked and read.
    #[cfg(test)]
    pub(crate) fn searched_bytes(&self) -> u64 {
        self.finder.spent()
    }

    /// Records damage that by itself loses no key.
    fn note(&mut self, error: Error) {
        let nothing = Bytes::new();
        self.gaps.push(Gap { lower: nothing.clone(), upper: Some(nothing), error });
    }

    /// Records a lost block whose keys lie between two separators, if these are known.
    fn lose(&mut self, before: Option<Bytes>, separator: Option<Bytes>, error: Error) {
        let upper = separator.map(|separator| successor(&separator));
        match &mut self.open {
            Some((_, open_upper, open_error)) => {
                *open_upper = upper;
                // One gap in the keys, but every damage is reported.
                let error = std::mem::replace(open_error, error);
                self.note(error);
            }
            None => self.open = Some((self.lower_bound(before), upper, error)),
        }
    }

    /// Records a loss at `offset` of a searched stretch.
    fn lose_found(&mut self, offset: u64) {
        match &mut self.open {
            Some((_, upper, _)) => *upper = None,
            None => {
                let detail = "no block begins here, and the index does not say where one does";
                let error = self.table.file.damaged(offset, DATA_BLOCK, detail);
                self.lose(None, None, error);
            }
        }
    }

    /// Ends the open gap, before `upper` if it is known.
    fn close(&mut self, upper: Option<Bytes>) {
        if let Some((lower, stated, error)) = self.open.take() {
            let upper = match (stated, upper) {
                (Some(stated), Some(upper)) => Some(stated.min(upper)),
                (stated, upper) => stated.or(upper),
            };
            self.gaps.push(Gap { lower, upper, error });
        }
    }

    /// Ends the iteration.
    fn close_last(&mut self) {
        let properties = self.table.properties.as_ref();
        let upper = properties.and_then(|known| known.upper.clone());
        if self.table.partitions.is_none() {
            if properties.is_some_and(|known| known.entries == self.count) {
                // Behind the data lie other sections, and no entry was lost.
                self.open = None;
            } else {
                // If the file is truncated, the search meets no damaged bytes.
                self.lose_found(self.at);
            }
        }
        let is_complete = self.table.properties.as_ref().is_some_and(|known| known.entries == self.count);
        self.doubt(upper.clone());
        if !is_complete {
            for (lower, upper) in std::mem::take(&mut self.doubts) {
                let detail =
                    "entries are missing, and zeros lie where the damaged index may have listed a block";
                let error = self.table.file.damaged(self.table.data.offset, DATA_BLOCK, detail);
                self.gaps.push(Gap { lower, upper, error });
            }
        }
        self.close(upper);
    }
}

impl Salvage {
    /// The blocks that a partition lists.
    fn list(
        &self,
        partition: &ListedPartition,
        before: Option<&ListedPartition>,
    ) -> Result<Vec<IndexedBlock>> {
        let (handle, file) = (partition.handle, &self.file);
        let damaged = |detail: String| file.damaged(handle.offset, index::PARTITION, detail);
        let payload = file.payload(handle.offset, handle.bytes.into(), index::PARTITION)?;
        let stored = StoredPartition::view(&payload, handle.entries).map_err(damaged)?;
        let bounds = Bounds {
            separators: handle.entries,
            start: self.data.offset,
            end: self.data.end(),
            is_end_known: false,
            after: before.map(|before| (before.last.0.as_ref(), before.last.1)),
            last: (partition.last.0.as_ref(), partition.last.1),
        };
        stored.check(&bounds).map_err(damaged)?;
        let mut last = before.map(|before| before.last.0.clone());
        (0..handle.entries as usize)
            .map(|number| {
                let handle = stored.handle(number, &bounds).map_err(damaged)?;
                let (separator, _) = stored.separator(number).map_err(damaged)?;
                let separator = Bytes::copy_from_slice(separator);
                let before = last.replace(separator.clone());
                Ok(IndexedBlock { handle, before, separator })
            })
            .collect()
    }
}

impl CheckedBlock {
    /// Checks every part of a data block, and that its entries ascend, after the `last` one before
    /// them.
    fn new(payload: Bytes, last: Option<&(Vec<u8>, SeqNo)>) -> std::result::Result<Self, String> {
        let block = DataBlock::view(&payload)?;
        block.check()?;
        let entries = block.len();
        let mut last = last.cloned();
        let (mut first, mut key) = (Vec::new(), Vec::new());
        for number in 0..entries {
            let parts = block.entry(number, &mut key)?;
            if key.len() > MAX_KEY_BYTES {
                return Err(format!("entry {number} has a key of {} bytes", key.len()));
            }
            check_value(parts.kind, parts.value).map_err(|detail| format!("entry {number}: {detail}"))?;
            if last.as_ref().is_some_and(|(last, seq)| !internal_cmp(last, *seq, &key, parts.seq).is_lt()) {
                return Err("its entries are out of order".to_owned());
            }
            if number == 0 {
                first.clone_from(&key);
            }
            let (last, seq) = last.get_or_insert_default();
            std::mem::swap(last, &mut key);
            *seq = parts.seq;
        }
        let last = last.filter(|_| entries > 0).ok_or("it has no entries")?;
        Ok(Self { payload, entries, returned: 0, first, last })
    }

    /// The next entry. Only if there is one; no error, as all were read before.
    fn next_entry(&mut self) -> std::result::Result<SalvagedEntry, String> {
        let mut key = Vec::new();
        let parts = DataBlock::view(&self.payload)?.entry(self.returned, &mut key)?;
        self.returned += 1;
        let value = self.payload.slice(parts.value_start..parts.value_start + parts.value.len());
        Ok(SalvagedEntry { key, seq: parts.seq, kind: parts.kind, value })
    }
}

/// Checks that an entry of a data block may be of this kind, and its value as far as that is
/// encoded.
fn check_value(kind: EntryKind, value: &[u8]) -> std::result::Result<(), String> {
    match kind {
        EntryKind::Put | EntryKind::Delete | EntryKind::ValueRef => Ok(()),
        EntryKind::Merge => Operand::decode(value).map(|_| ()).map_err(|detail| detail.to_string()),
        EntryKind::PutWithExpiry | EntryKind::ValueRefWithExpiry => {
            Expiry::split(value).map(|_| ()).map_err(|detail| detail.to_string())
        }
        // A payload that is shorter than its expiry has no reference either.
        EntryKind::ValueFileRef | EntryKind::ValueFileRefWithExpiry => {
            ValueFileRef::decode(kind.location(value)).map(|_| ()).map_err(|detail| detail.to_string())
        }
        EntryKind::RangeDelete => Err("it is a range tombstone".to_owned()),
    }
}

/// The first key after `key`.
fn successor(key: &[u8]) -> Bytes {
    Bytes::from([key, &[0]].concat())
}
