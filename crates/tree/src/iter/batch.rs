//! A batch of entries that a scan found in one pass and returns one by one.
//!
//! Keys and short values are copied back to back into one buffer. An entry therefore costs no
//! allocation and no reference count, and the scan's view need not be held between two entries. A
//! long value is shared with its block or memtable instead of copied. It ends the batch, so a batch
//! holds at most one.
//!
//! ```text
//! bytes  | key 0 | value 0 | key 1 | value 1 | ...
//! ends   | key 0's, value 0's | key 1's, value 1's | ...
//! ```
//!
//! Which entries these are is decided in [`super::visible`]; when more are needed, in
//! [`super::scan`].

use shamba_table::{EntryIter, EntryView};

use crate::slice::Slice;

/// Longest value that is copied; longer ones are shared, as [`Slice`] does with parts of blocks.
const COPY_UP_TO_BYTES: usize = 1024;
/// Bytes at which a batch is full. An idle scan keeps at most this and the entry that crosses it.
const FULL_BYTES: usize = 8 << 10;

/// Initial capacity of a batch, in bytes and in entries.
const FIRST_BYTES: usize = 1 << 10;
const FIRST_ENTRIES: usize = 16;

/// Some entries, in the order of the scan.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<Ends>,
    /// The value of the last entry, if it is long.
    long: Option<Slice>,
    wanted: usize,
    full_bytes: usize,
}

/// End offsets of an entry's key and value in the buffer.
#[derive(Clone, Copy)]
struct Ends {
    key: u32,
    value: u32,
}

impl Batch {
    /// Empties the batch, for up to `wanted` new entries.
    pub fn begin(&mut self, wanted: usize) {
        self.begin_within(wanted, FULL_BYTES);
    }

    /// As [`Self::begin`] with little memory: capacity above `FIRST_BYTES` is released.
    pub fn begin_small(&mut self, wanted: usize) {
        if self.bytes.capacity() > FIRST_BYTES {
            (self.bytes, self.ends) = (Vec::new(), Vec::new());
        }
        self.begin_within(wanted, FIRST_BYTES / 2);
    }

    fn begin_within(&mut self, wanted: usize, full_bytes: usize) {
        self.bytes.clear();
        self.ends.clear();
        self.long = None;
        (self.wanted, self.full_bytes) = (wanted, full_bytes);
        debug_assert_eq!(self.len(), 0, "a batch begins with entries");
        if self.bytes.capacity() < FIRST_BYTES {
            // The capacity that a short scan needs is reserved at once. Otherwise the buffers would
            // grow several times during the first few entries.
            self.bytes.reserve(FIRST_BYTES);
            self.ends.reserve(FIRST_ENTRIES);
        }
    }

    /// Memory besides the struct itself. A long value belongs to the table or the block cache.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<Ends>()
    }

    /// Number of entries.
    #[allow(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no more entries should be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ends.len() >= self.wanted || self.bytes.len() >= self.full_bytes || self.long.is_some()
    }

    /// Adds an entry with a short value. If the value is long, adds nothing and returns false.
    #[inline]
    pub fn push_short(&mut self, entry: EntryView<'_>) -> bool {
        if entry.value.len() > COPY_UP_TO_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(entry.key);
        let key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(entry.value);
        debug_assert!(self.long.is_none(), "an entry follows a long value, which ends a batch");
        debug_assert!(u32::try_from(self.bytes.len()).is_ok(), "a batch of {} bytes", self.bytes.len());
        self.ends.push(Ends { key, value: self.bytes.len() as u32 });
        true
    }

    /// Adds the current entry of `source`.
    pub fn push(&mut self, source: &impl EntryIter) {
        self.bytes.extend_from_slice(source.key());
        // Both offsets fit 32 bits: a batch above `FULL_BYTES` is full, and a key has at most 64
        // KiB.
        debug_assert!(u32::try_from(self.bytes.len()).is_ok(), "a batch of {} bytes", self.bytes.len());
        let end = self.bytes.len() as u32;
        self.ends.push(Ends { key: end, value: end });
        self.set_value(source);
    }

    /// Replaces the last entry's value by that of the current entry of `source`.
    #[inline]
    pub fn set_value(&mut self, source: &impl EntryIter) {
        let Some(last) = self.ends.last_mut() else { return };
        self.bytes.truncate(last.key as usize);
        self.long = None;
        let value = source.value();
        if value.len() <= COPY_UP_TO_BYTES {
            self.bytes.extend_from_slice(value);
        } else {
            self.long = Some(Slice::from_bytes(source.value_bytes()));
        }
        last.value = self.bytes.len() as u32;
    }

    /// Replaces the last entry's value by a long value.
    pub fn set_long(&mut self, value: Slice) {
        let Some(last) = self.ends.last_mut() else { return };
        self.bytes.truncate(last.key as usize);
        last.value = last.key;
        debug_assert!(last.key == last.value, "a long value and a short one of the same entry");
        self.long = Some(value);
    }

    /// Removes the last entry.
    pub fn pop(&mut self) {
        self.ends.pop();
        self.bytes.truncate(self.ends.last().map_or(0, |ends| ends.value as usize));
        self.long = None;
    }

    /// The key of the last entry; empty if there is none.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        self.key(self.ends.len().wrapping_sub(1)).unwrap_or_default()
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
        let ends = self.ends.get(number)?;
        self.bytes.get(self.start(number)..ends.key as usize)
    }

    /// The value of entry `number`.
    #[inline]
    pub fn value(&self, number: usize) -> Option<&[u8]> {
        let ends = self.ends.get(number)?;
        match &self.long {
            Some(long) if number + 1 == self.ends.len() => Some(long),
            _ => self.bytes.get(ends.key as usize..ends.value as usize),
        }
    }

    /// A copy of the key of entry `number`, and its value. A long value is moved out of the batch; a
    /// short one is copied.
    #[inline]
    pub fn take(&mut self, number: usize) -> Option<(Slice, Slice)> {
        let ends = *self.ends.get(number)?;
        let (start, key_end) = (self.start(number), ends.key as usize);
        let key = Slice::copied_part(&self.bytes, start..key_end);
        if self.long.is_some() && number + 1 == self.ends.len() {
            return Some((key, self.long.take()?));
        }
        Some((key, Slice::copied_part(&self.bytes, key_end..ends.value as usize)))
    }

    fn start(&self, number: usize) -> usize {
        debug_assert!(number < self.ends.len(), "entry {number} of {}", self.ends.len());
        number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.value as usize)
    }
}

#[cfg(test)]
mod tests {
    use shamba_key::SeqNo;

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
        batch.begin(100);
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
        batch.begin(1);
        assert_eq!((batch.len(), batch.is_full(), batch.key(0)), (0, false, None));
        batch.push(&source);
        assert!(batch.is_full());
    }

    #[test]
    fn a_batch_has_no_more_than_it_may() {
        let mut source = Rows::new(vec![row(b"k", 1000)]);
        source.seek_to_first().expect("a row");
        let mut batch = Batch::default();
        batch.begin(usize::MAX);
        while !batch.is_full() {
            batch.push(&source);
        }
        assert_eq!(batch.len(), FULL_BYTES.div_ceil(1001));
    }
}
