//! Folded values: what a merge operator made of long chains of operands, kept for the next readers.
//!
//! A counter that is added to a million times has a million operands in its memtable, and each
//! reader would walk them all. So a reader that has folded a long chain leaves the result here,
//! with the sequence number of the newest operand in it. The next one folds only what is newer.
//!
//! A folded value is right for ever: it depends only on entries at or below its sequence number,
//! which do not change, and on range tombstones, which a reader compares with that number. It is a
//! cache: the list may be emptied at any time, and is lost with the memtable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shamba_key::SeqNo;

use crate::sync::{Mutex, PoisonError};

/// Longest key and value that are kept: longer ones cost more to copy than a chain to fold.
const KEPT_BYTES_MAX: usize = 4 << 10;
/// Bytes at which the list is emptied. Hot counters are few; a memtable has megabytes.
const LIST_BYTES_MAX: usize = 256 << 10;
/// Memory of a value in the list besides its key and itself.
const OVERHEAD_BYTES: usize = 128;

/// The folded values of a memtable.
#[derive(Default)]
pub struct FoldedValues {
    list: Mutex<List>,
    /// Those of the list.
    bytes: AtomicU64,
}

#[derive(Default)]
struct List {
    values: HashMap<Box<[u8]>, (SeqNo, Bytes)>,
    bytes: usize,
}

impl FoldedValues {
    /// Approximate memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The value of `key` at a sequence number, if there is one.
    pub fn get(&self, key: &[u8]) -> Option<(SeqNo, Bytes)> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.values.get(key).cloned()
    }

    /// Keeps the value of `key` at `seq`, unless a newer one is known.
    pub fn set(&self, key: &[u8], seq: SeqNo, value: &[u8]) {
        let bytes = key.len() + value.len() + OVERHEAD_BYTES;
        if bytes > KEPT_BYTES_MAX {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let known = list.values.get(key).map(|(seq, value)| (*seq, key.len() + value.len() + OVERHEAD_BYTES));
        if known.is_some_and(|(known, _)| known >= seq) {
            return;
        }
        list.bytes -= known.map_or(0, |(_, bytes)| bytes);
        if list.bytes + bytes > LIST_BYTES_MAX {
            *list = List::default();
        }
        list.bytes += bytes;
        list.values.insert(key.into(), (seq, Bytes::copy_from_slice(value)));
        debug_assert!(list.bytes <= LIST_BYTES_MAX, "folded values of {} bytes", list.bytes);
        self.bytes.store(list.bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_exact_up_to_both_bounds() {
        let folded = FoldedValues::default();
        folded.set(b"k", SeqNo(1), b"longer");
        folded.set(b"k", SeqNo(2), b"short");
        assert_eq!(folded.bytes(), (b"kshort".len() + OVERHEAD_BYTES) as u64, "the older value is gone");
        // The longest kept values fill the list without a rest.
        let longest = [0; KEPT_BYTES_MAX - OVERHEAD_BYTES - 1];
        let full = FoldedValues::default();
        let values = (LIST_BYTES_MAX / KEPT_BYTES_MAX) as u8;
        (0..values).for_each(|number| full.set(&[number], SeqNo(1), &longest));
        assert_eq!(full.bytes(), LIST_BYTES_MAX as u64);
        full.set(&[0], SeqNo(2), &longest);
        let kept = (0..values).filter(|number| full.get(&[*number]).is_some()).count();
        assert_eq!((kept, full.bytes()), (usize::from(values), LIST_BYTES_MAX as u64), "it takes its place");
        full.set(b"more", SeqNo(3), b"");
        assert_eq!(full.bytes(), (b"more".len() + OVERHEAD_BYTES) as u64, "the list was emptied");
        assert_eq!((full.get(&[0]), full.get(b"more").map(|(seq, _)| seq)), (None, Some(SeqNo(3))));
    }

    #[test]
    fn the_newest_value_stays_and_the_list_is_bounded() {
        let folded = FoldedValues::default();
        folded.set(b"k", SeqNo(5), b"five");
        folded.set(b"k", SeqNo(4), b"four");
        assert_eq!(folded.get(b"k"), Some((SeqNo(5), Bytes::from_static(b"five"))));
        folded.set(b"k", SeqNo(6), b"six");
        assert_eq!(folded.get(b"k"), Some((SeqNo(6), Bytes::from_static(b"six"))));
        folded.set(b"long", SeqNo(7), &vec![0; KEPT_BYTES_MAX]);
        assert_eq!(folded.get(b"long"), None);
        for number in 0..1_000u32 {
            folded.set(&number.to_le_bytes(), SeqNo(8), &[0; 1_000]);
        }
        let list = folded.list.lock().expect("not poisoned");
        let values = list.values.iter();
        let held: usize = values.map(|(key, (_, value))| key.len() + value.len() + OVERHEAD_BYTES).sum();
        assert_eq!((held, held as u64), (list.bytes, folded.bytes()));
        assert!(held <= LIST_BYTES_MAX && held > 0, "{held} bytes");
    }
}
