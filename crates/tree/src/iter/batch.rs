//! Entries that a scan found in one go, to be given out one by one.
//!
//! Keys and short values are copied back to back into one buffer, so that an entry costs no allocation and no
//! reference count, and the scan's view need not be held between two entries. A long value is shared with
//! where it lies; it ends the batch, so that a batch holds one at most.
//!
//! ```text
//! bytes  | key 0 | value 0 | key 1 | value 1 | ...      ends  | key 0's, value 0's | key 1's, value 1's | ...
//! ```
//!
//! Not here: which entries these are ([`super::visible`]), when more are wanted ([`super::scan`]).

use shamba_table::{EntryIter, EntryView};

use crate::slice::Slice;

/// Longer values are shared, not copied: as [`Slice`] does with parts of blocks.
const COPY_UP_TO_BYTES: usize = 1024;
/// A batch with this much is full. An idle scan keeps no more than this and the entry that crosses it.
const FULL_BYTES: usize = 8 << 10;

/// What a batch can hold from the start.
const FIRST_BYTES: usize = 1 << 10;
const FIRST_ENTRIES: usize = 16;

/// Some entries in the order in which a walk met them.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<Ends>,
    /// The value of the last entry, if it is long.
    long: Option<Slice>,
    wanted: usize,
    full_bytes: usize,
}

/// Where the key and the value of an entry end.
#[derive(Clone, Copy)]
struct Ends {
    key: u32,
    value: u32,
}

impl Batch {
    /// Empties it, for up to `wanted` new entries.
    pub fn begin(&mut self, wanted: usize) {
        self.begin_within(wanted, FULL_BYTES);
    }

    /// The same in little memory: what it has beyond that is given back.
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
        if self.bytes.capacity() < FIRST_BYTES {
            // At once what a short scan needs: it would grow step by step, for each of a few entries.
            self.bytes.reserve(FIRST_BYTES);
            self.ends.reserve(FIRST_ENTRIES);
        }
    }

    /// Memory beside itself; a long value is the table's or the cache's.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<Ends>()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no more entries should be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ends.len() >= self.wanted || self.bytes.len() >= self.full_bytes || self.long.is_some()
    }

    /// Adds an entry with a short value; false, and nothing is added, if the value is long.
    #[inline]
    pub fn push_short(&mut self, entry: EntryView<'_>) -> bool {
        if entry.value.len() > COPY_UP_TO_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(entry.key);
        let key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(entry.value);
        self.ends.push(Ends { key, value: self.bytes.len() as u32 });
        true
    }

    /// Adds the entry that `source` stands at.
    pub fn push(&mut self, source: &impl EntryIter) {
        self.bytes.extend_from_slice(source.key());
        // Both ends are small: a batch with `FULL_BYTES` gets no more, and a key has 64 KiB at most.
        let end = self.bytes.len() as u32;
        self.ends.push(Ends { key: end, value: end });
        self.set_value(source);
    }

    /// Gives the last entry the value that `source` stands at instead of its own.
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

    /// Gives the last entry a long value of its own instead of what it has.
    pub fn set_long(&mut self, value: Slice) {
        let Some(last) = self.ends.last_mut() else { return };
        self.bytes.truncate(last.key as usize);
        last.value = last.key;
        self.long = Some(value);
    }

    /// Takes the last entry out again.
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

    /// The value of entry `number`, which it has no longer if it is long.
    pub fn take_value(&mut self, number: usize) -> Option<Slice> {
        if number + 1 == self.ends.len() && self.long.is_some() {
            return self.long.take();
        }
        self.value(number).map(Slice::copied)
    }

    fn start(&self, number: usize) -> usize {
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
        assert_eq!(batch.take_value(2).as_deref(), Some(&rows[2].value[..]));
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
