//! The memtable's index: lookups concurrent with the one writer, which replaces and reuses
//! segments.
#![allow(unsafe_code)] // The index's own, and one call that wants it.

use std::sync::Arc;

use loom::thread;
use shamba_key::KeyDigest;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

#[path = "../../../../../crates/memtable/src/index.rs"]
mod index;

use arena::EntryRef;
use index::{DigestIndex, IndexWriter};

/// The part of the arena that the index uses: references.
mod arena {
    use std::num::NonZeroU32;

    /// The position of an entry.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) struct EntryRef(NonZeroU32);

    impl EntryRef {
        pub(super) fn from_bits(bits: u32) -> Option<Self> {
            NonZeroU32::new(bits).map(Self)
        }

        pub(super) fn bits(self) -> u32 {
            self.0.get()
        }
    }
}

/// A digest whose tag begins with these two bits.
fn digest(first_bits: u64) -> KeyDigest {
    (1..)
        .map(KeyDigest::from_raw)
        .find(|digest| digest.memtable_slot() >> 62 == first_bits)
        .expect("one in four")
}

struct Memtable {
    index: DigestIndex,
    writer: Mutex<IndexWriter>,
    /// The content of entries: the arena, as loom sees it.
    entries: [AtomicU64; 5],
}

impl Memtable {
    fn insert(&self, entry: u32, first_bits: u64) {
        let mut writer = self.writer.lock().expect("no panic");
        self.entries[entry as usize].store(first_bits + 1, Ordering::Relaxed);
        // SAFETY: the index and its writer were made together.
        let place = unsafe { self.index.place(&mut writer, digest(first_bits)) };
        place.publish(EntryRef::from_bits(entry).expect("not 0"));
    }

    /// Whether the entry of a digest is found; checks that it is the right one and complete.
    fn find(&self, first_bits: u64) -> bool {
        let Some(entry) = self.index.find(digest(first_bits)) else { return false };
        let found = self.entries[entry.bits() as usize].load(Ordering::Relaxed);
        assert_eq!(found, first_bits + 1, "an entry is found before it is written");
        true
    }
}

/// Existing entries stay reachable, whatever happens to their segment; a new entry is found
/// complete, or not yet.
pub fn index() {
    let (index, writer) = DigestIndex::new();
    let memtable = Arc::new(Memtable { index, writer: Mutex::new(writer), entries: Default::default() });
    // One entry fills a segment: now there are two, and a spare one.
    memtable.insert(1, 0b00);
    memtable.insert(2, 0b10);
    let reader = {
        let memtable = Arc::clone(&memtable);
        thread::spawn(move || {
            assert!(memtable.find(0b00), "an entry is not found that was there before");
            memtable.find(0b11);
        })
    };
    // The first takes the spare segment and frees its own, which the second reuses, possibly while
    // the reader is in it.
    memtable.insert(3, 0b01);
    memtable.insert(4, 0b11);
    reader.join().expect("no panic");
    assert!((0..4).all(|first_bits| memtable.find(first_bits)));
}
