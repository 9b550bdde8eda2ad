//! A batch of entries that a scan found in one pass and returns one by one.
//!
//! Keys and short values are copied back to back into one buffer. An entry therefore costs no
//! allocation and no reference count, and the scan's view need not be held between two entries. A
//! long value is shared with its block or memtable instead of copied. It ends the batch, so a batch
//! holds at most one of these.
//!
//! A value in a value file is left out at first. [`Batch::resolve`] reads all of them once the
//! batch is complete ([`super::later`]); before that, no entry may be taken.
//!
//! ```text
//! bytes  | key 0 | value 0 | key 1 | value 1 | ...
//! ends   | key 0's, value 0's | key 1's, value 1's | ...
//! longs  | value of entry 3 | ...
//! ```
//!
//! Which entries these are is decided in [`super::visible`]; when more are needed, in
//! [`super::scan`].

use std::sync::Arc;

use shamba_key::{EntryKind, Expiry, SeqNo};
use shamba_table::{Copies, CopyLimits, Ends, EntryIter, EntryView, ValueFile, ValueFileRef};

use super::later::{Found, Later, ValueCost};
use super::visible::STEPS_BEFORE_SEEK;

use crate::error::Result;
use crate::lookup::pool::ReadPool;
use crate::lookup::value_reads::Payload;
use crate::slice::Slice;

/// Longest value that is copied; longer ones are shared, as [`Slice`] does with parts of blocks.
const COPY_UP_TO_BYTES: usize = 1024;
/// Bytes at which a batch is full. An idle scan keeps at most this, the entry that crosses it, and
/// values that were read from value files, which have a limit of their own.
const FULL_BYTES: usize = 8 << 10;

/// Initial capacity of a batch, in bytes and in entries.
const FIRST_BYTES: usize = 1 << 10;
const FIRST_ENTRIES: usize = 16;

/// Some entries, in the order of the scan.
#[derive(Default)]
pub struct Batch {
    copies: Copies,
    /// The values that `copies` lacks, ascending by entry.
    longs: Vec<Long>,
    /// The references of those of `longs` that are to be read.
    later: Later,
    /// Bytes of the values that were read.
    read_bytes: usize,
    /// Whether it paid to read them at once.
    pays_at_once: bool,
    /// Whether the last entry ends the batch: its value is long, or enough values are to be read.
    is_ended: bool,
    /// Number of entries that the scan needs.
    wanted: usize,
    /// Number of entries that are taken if they are at hand.
    welcome: usize,
    full_bytes: usize,
}

/// A value that is not copied back to back with the others.
struct Long {
    /// Number of its entry.
    entry: u32,
    value: LongValue,
}

enum LongValue {
    /// It is to be read, or was moved out of the batch.
    Nowhere,
    /// It shares a block, or a buffer that a memtable or a lookup made for it.
    Shared(Slice),
    /// It was read from a value file, perhaps together with others.
    Read(Payload),
}

impl Batch {
    /// Empties the batch, for `wanted` new entries, and up to `welcome` as long as nothing has to
    /// be read for them. It ends once values of `later_bytes` are to be read from value files.
    pub fn begin(&mut self, wanted: usize, welcome: usize, later_bytes: u64) {
        self.begin_within(wanted, welcome, FULL_BYTES);
        self.later.begin(later_bytes);
    }

    /// As [`Self::begin`] with little memory: capacity above `FIRST_BYTES` is released, and at most
    /// one value is read from a value file.
    pub fn begin_small(&mut self, wanted: usize, welcome: usize) {
        if self.copies.bytes.capacity() > FIRST_BYTES {
            self.copies = Copies::default();
        }
        self.begin_within(wanted, welcome, FIRST_BYTES / 2);
        self.later.begin(0);
    }

    fn begin_within(&mut self, wanted: usize, welcome: usize, full_bytes: usize) {
        self.copies.bytes.clear();
        self.copies.ends.clear();
        self.release_longs();
        (self.wanted, self.welcome, self.full_bytes) = (wanted, welcome, full_bytes);
        debug_assert!(wanted <= welcome, "{wanted} entries are needed and {welcome} taken");
        debug_assert_eq!(self.len(), 0, "a batch begins with entries");
        if self.copies.bytes.capacity() < FIRST_BYTES {
            // The capacity that a short scan needs is reserved at once. Otherwise the buffers would
            // grow several times during the first few entries.
            self.copies.bytes.reserve(FIRST_BYTES);
            self.copies.ends.reserve(FIRST_ENTRIES);
        }
    }

    /// Releases the values that are not copied: a batch that nobody walks any more need not keep
    /// blocks and buffers. Returns whether there were any.
    pub fn release_longs(&mut self) -> bool {
        self.is_ended = false;
        if self.longs.is_empty() {
            return false;
        }
        self.longs.clear();
        self.later.clear();
        self.read_bytes = 0;
        true
    }

    /// Memory besides the struct itself. A long value that was not read from a value file does not
    /// count: most callers take it out at once, and others hold it as if they had.
    pub fn memory_bytes(&self) -> usize {
        let copied_bytes = self.copies.bytes.capacity() + self.copies.ends.capacity() * size_of::<Ends>();
        copied_bytes + self.longs.capacity() * size_of::<Long>() + self.later.memory_bytes() + self.read_bytes
    }

    /// Number of entries.
    #[allow(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.copies.ends.len()
    }

    /// Whether no more entries should be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.holds(self.welcome)
    }

    /// Whether no more entries are needed.
    #[inline]
    pub fn has_enough(&self) -> bool {
        self.holds(self.wanted)
    }

    /// Whether it holds this many entries, or as many bytes as it may.
    #[inline]
    fn holds(&self, entries: usize) -> bool {
        self.copies.ends.len() >= entries || self.copies.bytes.len() >= self.full_bytes || self.is_ended
    }

    /// Adds an entry with a short value. If the value is long, adds nothing and returns false.
    #[inline]
    pub fn push_short(&mut self, entry: EntryView<'_>) -> bool {
        if entry.value.len() > COPY_UP_TO_BYTES {
            return false;
        }
        self.copies.bytes.extend_from_slice(entry.key);
        let key = self.copies.bytes.len() as u32;
        self.copies.bytes.extend_from_slice(entry.value);
        debug_assert!(!self.is_ended, "an entry follows one that ends the batch");
        debug_assert!(
            u32::try_from(self.copies.bytes.len()).is_ok(),
            "a batch of {} bytes",
            self.copies.bytes.len()
        );
        self.copies.ends.push(Ends { key, value: self.copies.bytes.len() as u32 });
        true
    }

    /// Adds the current entry of `source`.
    pub fn push(&mut self, source: &impl EntryIter) {
        self.copies.bytes.extend_from_slice(source.key());
        // Both offsets fit 32 bits: a batch above `FULL_BYTES` is full, and a key has at most 64
        // KiB.
        debug_assert!(
            u32::try_from(self.copies.bytes.len()).is_ok(),
            "a batch of {} bytes",
            self.copies.bytes.len()
        );
        let end = self.copies.bytes.len() as u32;
        self.copies.ends.push(Ends { key: end, value: end });
        self.set_value(source);
    }

    /// Replaces the last entry's value by that of the current entry of `source`.
    #[inline]
    pub fn set_value(&mut self, source: &impl EntryIter) {
        self.drop_value();
        let Some(last) = self.copies.ends.last_mut() else { return };
        // The value of one that expires begins after its expiry.
        let from = if source.kind().has_expiry() { Expiry::STORED_BYTES } else { 0 };
        let value = source.value().get(from..).unwrap_or_default();
        if value.len() <= COPY_UP_TO_BYTES {
            self.copies.bytes.extend_from_slice(value);
            last.value = self.copies.bytes.len() as u32;
        } else {
            self.set_long(Slice::from_bytes(source.value_bytes().slice(from..)));
        }
    }

    /// Removes the last entry's value.
    #[inline]
    fn drop_value(&mut self) {
        self.is_ended = false;
        if !self.longs.is_empty() {
            self.drop_long();
        }
        let Some(last) = self.copies.ends.last_mut() else { return };
        self.copies.bytes.truncate(last.key as usize);
        last.value = last.key;
    }

    /// Removes the last entry's value from those that are not copied, if it is one of them.
    fn drop_long(&mut self) {
        let entries = self.copies.ends.len();
        if self.longs.last().is_some_and(|long| long.entry as usize + 1 == entries) {
            if let Some(Long { value: LongValue::Nowhere, .. }) = self.longs.pop() {
                self.later.pop();
            }
        }
    }

    /// Adds a value that is not copied to the last entry, which has none.
    fn push_long(&mut self, value: LongValue) {
        let Some(entry) = self.copies.ends.len().checked_sub(1) else { return };
        debug_assert!(
            self.longs.last().is_none_or(|long| (long.entry as usize) < entry),
            "entry {entry} has two values"
        );
        self.longs.push(Long { entry: entry as u32, value });
    }

    /// Adds a key with an empty value.
    pub(super) fn push_without_value(&mut self, key: &[u8]) {
        debug_assert!(!self.is_ended, "an entry follows one that ends the batch");
        self.copies.bytes.extend_from_slice(key);
        let end = self.copies.bytes.len() as u32;
        self.copies.ends.push(Ends { key: end, value: end });
    }

    /// Adds a key with a value that no source holds.
    pub(super) fn push_folded(&mut self, key: &[u8], value: Slice) {
        let entry =
            EntryView { key, seq: SeqNo::ZERO, kind: EntryKind::Put, value: &value, is_last_at_hand: false };
        if !self.push_short(entry) {
            self.push_without_value(key);
            self.set_long(value);
        }
    }

    /// Replaces the last entry's value by a long value.
    pub fn set_long(&mut self, value: Slice) {
        self.drop_value();
        self.push_long(LongValue::Shared(value));
        self.is_ended = true;
    }

    /// Replaces the last entry's value by one that [`Self::resolve`] will read. `kind` is that of
    /// the entry.
    pub fn set_later(&mut self, file: Arc<ValueFile>, reference: ValueFileRef, kind: EntryKind) {
        debug_assert!(kind.in_value_file(), "an entry of kind {kind:?} with a reference to a value file");
        self.drop_value();
        self.push_long(LongValue::Nowhere);
        let expiry_bytes = if kind.has_expiry() { Expiry::STORED_BYTES as u8 } else { 0 };
        self.later.push(file, reference, expiry_bytes);
        self.is_ended = self.later.is_full();
    }

    /// Reads the values that are in value files, in parallel with `pool` where reads are slow. The
    /// batch is complete: it gets no more entries.
    ///
    /// # Errors
    /// Of reading the value of an entry. The batch then ends before this entry.
    #[inline]
    pub fn resolve(&mut self, pool: Option<&ReadPool>, cost: &mut ValueCost) -> Result<()> {
        if self.later.is_empty() { Ok(()) } else { self.resolve_later(pool, cost) }
    }

    /// Whether it paid to read the values of value files at once, the last time that there were
    /// any.
    pub fn pays_at_once(&self) -> bool {
        self.pays_at_once
    }

    fn resolve_later(&mut self, pool: Option<&ReadPool>, cost: &mut ValueCost) -> Result<()> {
        let Found { values, error, cost: own_cost, held_bytes } = self.later.read(pool);
        *cost = cost.plus(own_cost);
        self.pays_at_once = own_cost.is_joined() || pool.is_some_and(ReadPool::is_slow);
        self.read_bytes = held_bytes;
        let mut values = values.into_iter();
        let mut waiting = self.longs.iter_mut().filter(|long| matches!(long.value, LongValue::Nowhere));
        // The first entry without a value is the one that could not be read.
        let missing = waiting.find_map(|long| match values.next() {
            Some(value) => {
                long.value = LongValue::Read(value);
                None
            }
            None => Some(long.entry),
        });
        debug_assert_eq!(
            missing.is_some(),
            error.is_some(),
            "each entry has its value, or there is an error"
        );
        debug_assert_eq!(values.len(), 0, "a value of no entry was read");
        let Some(error) = error else { return Ok(()) };
        self.truncate(missing.unwrap_or(0) as usize);
        Err(error.into())
    }

    /// Removes entry `number` and those after it.
    fn truncate(&mut self, number: usize) {
        self.copies.ends.truncate(number);
        self.copies.bytes.truncate(self.copies.ends.last().map_or(0, |ends| ends.value as usize));
        self.longs.retain(|long| (long.entry as usize) < number);
        if self.longs.is_empty() {
            self.read_bytes = 0;
        }
    }

    /// Removes the last entry.
    pub fn pop(&mut self) {
        self.drop_value();
        self.copies.ends.pop();
        self.copies.bytes.truncate(self.copies.ends.last().map_or(0, |ends| ends.value as usize));
    }

    /// The copied entries, and the limits of a copy of more for a reader at `seq` in a range that
    /// ends at `upper`.
    pub(super) fn copies<'a>(
        &mut self,
        seq: SeqNo,
        upper: Option<&'a [u8]>,
    ) -> (&mut Copies, CopyLimits<'a>) {
        debug_assert!(!self.is_ended, "an entry follows one that ends the batch");
        let limits = CopyLimits {
            seq,
            upper,
            value_bytes: COPY_UP_TO_BYTES,
            wanted: self.wanted,
            welcome: self.welcome,
            full_bytes: self.full_bytes,
            versions: STEPS_BEFORE_SEEK,
        };
        (&mut self.copies, limits)
    }

    /// The key of the last entry; empty if there is none.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        self.key(self.copies.ends.len().wrapping_sub(1)).unwrap_or_default()
    }

    /// Whether the last entry has this key.
    #[inline]
    pub fn ends_with_key(&self, key: &[u8]) -> bool {
        let last = self.last_key();
        // In most cases the last bytes decide, without a call.
        let differs = match (last.last_chunk::<8>(), key.last_chunk::<8>()) {
            (Some(last), Some(key)) => last != key,
            _ => false,
        };
        !differs && last == key
    }

    /// The key of entry `number`.
    #[inline]
    pub fn key(&self, number: usize) -> Option<&[u8]> {
        self.copies.key(number)
    }

    /// The value of entry `number`.
    #[inline]
    pub fn value(&self, number: usize) -> Option<&[u8]> {
        let ends = self.copies.ends.get(number)?;
        if !self.longs.is_empty() {
            if let Some(long) = self.long_of(number).and_then(|at| self.longs.get(at)) {
                return Some(match &long.value {
                    LongValue::Nowhere => &[],
                    LongValue::Shared(value) => value,
                    LongValue::Read(payload) => payload.bytes(),
                });
            }
        }
        self.copies.bytes.get(ends.key as usize..ends.value as usize)
    }

    /// The place of entry `number`'s value among those that are not copied.
    fn long_of(&self, number: usize) -> Option<usize> {
        debug_assert!(self.later.is_empty(), "an entry is taken whose value was not read");
        // Often all values are of the same kind.
        match self.longs.get(number) {
            Some(long) if long.entry as usize == number => Some(number),
            _ => self.longs.binary_search_by_key(&number, |long| long.entry as usize).ok(),
        }
    }

    /// A copy of the key of entry `number`, and its value. A long value is moved out of the batch;
    /// a short one is copied, as is one that would keep many others in memory.
    #[inline(always)]
    pub fn take(&mut self, number: usize) -> Option<(Slice, Slice)> {
        let ends = *self.copies.ends.get(number)?;
        let (start, key_end) = (self.copies.start(number), ends.key as usize);
        let key = Slice::copied_part(&self.copies.bytes, start..key_end);
        if !self.longs.is_empty() {
            if let Some(value) = self.take_long(number) {
                return Some((key, value));
            }
        }
        Some((key, Slice::copied_part(&self.copies.bytes, key_end..ends.value as usize)))
    }

    /// The value of entry `number`, if it is not copied.
    fn take_long(&mut self, number: usize) -> Option<Slice> {
        let at = self.long_of(number)?;
        let long = self.longs.get_mut(at)?;
        Some(match std::mem::replace(&mut long.value, LongValue::Nowhere) {
            LongValue::Nowhere => Slice::default(),
            LongValue::Shared(value) => value,
            LongValue::Read(payload) => Slice::from_value(payload.into_value()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_testkit::{Row, Rows};

    fn row(key: &[u8], value_bytes: usize) -> Row {
        Row { value: vec![key.len() as u8; value_bytes], ..Row::put(key, 1) }
    }

    #[test]
    fn entries_come_back_and_the_last_can_be_changed_or_taken_out() {
        let rows = [row(b"a", 3), row(b"bb", 0), row(b"ccc", 1024), row(b"dddd", 1025), row(b"eeeee", 9)];
        let mut source = Rows::new(rows.to_vec());
        let mut batch = Batch::default();
        batch.begin(100, 100, 0);
        for (number, row) in rows[..4].iter().enumerate() {
            assert!(!batch.is_full(), "before {number}");
            source.seek(&row.key, SeqNo::MAX).expect("rows");
            if number == 0 {
                assert!(batch.push_short(source.view()));
            } else {
                batch.push(&source);
            }
            assert_eq!(batch.last_key(), row.key);
        }
        assert!(batch.is_full() && !batch.push_short(source.view()), "a long value ends it");
        for (number, row) in rows[..4].iter().enumerate() {
            assert_eq!((batch.key(number), batch.value(number)), (Some(&*row.key), Some(&*row.value)));
        }
        assert_eq!((batch.len(), batch.key(4), batch.value(4)), (4, None, None));
        source.seek(b"a", SeqNo::MAX).expect("rows");
        batch.set_value(&source);
        assert_eq!((batch.key(3), batch.value(3)), (Some(&b"dddd"[..]), Some(&rows[0].value[..])));
        batch.pop();
        assert_eq!(batch.len(), 3);
        source.seek(b"eeeee", SeqNo::MAX).expect("rows");
        batch.push(&source);
        assert_eq!((batch.key(3), batch.value(3)), (Some(&b"eeeee"[..]), Some(&rows[4].value[..])));
        let taken = batch.take(2).expect("an entry");
        assert_eq!((&*taken.0, &*taken.1), (&*rows[2].key, &*rows[2].value));
        assert!(batch.take(4).is_none());
        batch.begin(1, 1, 0);
        assert_eq!((batch.len(), batch.is_full(), batch.key(0)), (0, false, None));
        batch.push(&source);
        assert!(batch.is_full());
    }

    #[test]
    fn a_batch_has_no_more_than_it_may() {
        let mut source = Rows::new(vec![row(b"k", 1000)]);
        source.seek_to_first().expect("a row");
        let mut batch = Batch::default();
        batch.begin(usize::MAX, usize::MAX, 0);
        while !batch.is_full() {
            batch.push(&source);
        }
        assert_eq!(batch.len(), FULL_BYTES.div_ceil(1001));
    }
}
