//! The tail: the entries inserted last, in the order of their insertion, and a sorted copy of them.
//!
//! The first scan sorts the entries; each later one adds those that came since to the copy and
//! leaves it to the next. The copy holds the head of every entry, so that adding an entry reads no
//! other one unless two heads are equal. What remains is to copy at most 12 KiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

use super::super::arena::{Entries, EntryRef};
use super::chunk::{Chunk, sort};

/// Memory of an entry: its reference here, and its reference and head in the sorted copy. It is
/// counted from the start, so that a memtable does not grow when it is scanned.
const ENTRY_BYTES: usize = size_of::<AtomicU32>() + size_of::<EntryRef>() + size_of::<u64>();

/// Entries in the order of their insertion.
pub(super) struct Tail {
    refs: Box<[AtomicU32]>,
    len: AtomicUsize,
    /// A sorted copy of the first entries.
    sorted: ArcSwapOption<Chunk>,
}

impl Tail {
    /// An empty tail for `capacity` entries.
    pub fn new(capacity: usize) -> Arc<Self> {
        let refs = (0..capacity).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { refs, len: AtomicUsize::new(0), sorted: ArcSwapOption::empty() })
    }

    /// Maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.refs.len()
    }

    /// Memory of the tail and its sorted copy.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Chunk>() + self.refs.len() * ENTRY_BYTES
    }

    /// Number of entries. A reader that sees it also sees the entries, and the prefix that holds
    /// for them.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Adds an entry; returns the number of entries before it. Only for the writer, and only if the
    /// tail is not full.
    #[inline]
    pub fn push(&self, entry: EntryRef) -> usize {
        let at = self.len.load(Ordering::Relaxed);
        self.refs[at].store(entry.bits(), Ordering::Relaxed);
        self.len.store(at + 1, Ordering::Release);
        at
    }

    /// Entries from number `from` up to `to`, in the order of their insertion.
    fn read(&self, from: usize, to: usize) -> Vec<EntryRef> {
        let mut refs = Vec::with_capacity(to - from);
        let range = self.refs[from..to].iter();
        refs.extend(range.filter_map(|bits| EntryRef::from_bits(bits.load(Ordering::Relaxed))));
        refs
    }

    /// The first `len` entries or more, in order. `prefix` is loaded after `len`.
    pub fn sorted(&self, entries: Entries<'_>, len: usize, prefix: usize) -> Arc<Chunk> {
        debug_assert!(0 < len && len <= self.capacity(), "{len} entries of a tail of {}", self.capacity());
        let before = self.sorted.load();
        if let Some(chunk) = before.as_ref().filter(|chunk| chunk.refs().len() >= len) {
            return Arc::clone(chunk);
        }
        // Heads that were taken after a longer prefix are of no use.
        let known = before.as_deref().filter(|chunk| chunk.prefix() == prefix);
        let mut added = self.read(known.map_or(0, |chunk| chunk.refs().len()), len);
        sort(entries, &mut added, prefix);
        let chunk = Arc::new(match known {
            Some(known) => known.with_added(entries, &added),
            None => Chunk::with_all_heads(entries, added, prefix),
        });
        assert_eq!(chunk.refs().len(), len, "the sorted copy of a tail has another number of entries");
        // Another reader may have stored a longer copy meanwhile. That costs the next one a little
        // work, no entry.
        self.sorted.store(Some(Arc::clone(&chunk)));
        chunk
    }

    /// The chunk of all entries of a full tail.
    pub fn seal(&self, entries: Entries<'_>, prefix: usize) -> Chunk {
        let len = self.len.load(Ordering::Relaxed);
        debug_assert_eq!(len, self.capacity(), "a tail is sealed before it is full");
        let refs = match self.sorted.load().as_ref() {
            Some(_) => self.sorted(entries, len, prefix).refs().to_vec(),
            None => {
                let mut refs = self.read(0, len);
                sort(entries, &mut refs, prefix);
                refs
            }
        };
        Chunk::new(entries, refs, prefix)
    }
}
