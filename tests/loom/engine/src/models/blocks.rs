//! The block cache: readers in sections and holders of pins, concurrent with misses that evict
//! frames.

use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, is_broken};
use crate::cache::{BlockCache, BlockKey, CachedTable, FRAME_SIZE};
use crate::id::TableId;
use crate::ledger::{Ledger, LedgerPart};
use crate::slot::FrameSlot;
use crate::sync::atomic::{AtomicU64, Ordering};

/// One slab, of four frames.
const CAPACITY_BYTES: u64 = 20_000;
const FRAMES: u32 = 4;
const LENGTH: usize = 16;

struct Shared {
    cache: Arc<BlockCache>,
    table: CachedTable,
    slots: Vec<FrameSlot>,
    ledger: Arc<Ledger>,
    /// A step at which the scheduler can switch threads, between two reads of the bytes.
    step: AtomicU64,
}

impl Shared {
    fn empty() -> Self {
        let ledger = Arc::new(Ledger::new());
        let cache = BlockCache::new(CAPACITY_BYTES, Arc::clone(&ledger)).admitting_any_size();
        let cache = Arc::new(cache);
        let table = cache.add_table(TableId(1)).expect("one of many");
        let slots = (0..=FRAMES).map(|_| FrameSlot::new()).collect();
        Self { cache, table, slots, ledger, step: AtomicU64::new(0) }
    }

    /// A cache in which every frame holds a block.
    fn full() -> Arc<Self> {
        let shared = Self::empty();
        for number in 0..FRAMES {
            assert!(shared.miss(number), "block {number} fits");
        }
        Arc::new(shared)
    }

    fn key(&self, number: u32) -> BlockKey {
        self.table.key(number)
    }

    fn slot(&self, number: u32) -> &FrameSlot {
        &self.slots[number as usize]
    }

    /// Reads a block into a frame, if there is one.
    fn miss(&self, number: u32) -> bool {
        self.miss_of(FRAME_SIZE, number)
    }

    fn miss_of(&self, frame_bytes: usize, number: u32) -> bool {
        let Some(mut frame) = self.cache.fresh(frame_bytes) else { return false };
        frame[..LENGTH].fill(byte(number));
        frame.publish(self.slot(number), self.key(number), LENGTH);
        true
    }

    /// Reads block 0 in a section, if it is there.
    fn read_in_section(&self) {
        let section = self.cache.enter();
        let Some(hit) = section.find(self.slot(0), self.key(0)) else { return };
        let payload = hit.payload();
        if is_broken(Broken::Usage) {
            // Kept after the section ends, without a pin.
            let kept = (payload.as_ptr().addr(), payload.len());
            drop(section);
            let section = self.cache.enter();
            let again = section
                .find(self.slot(0), self.key(0))
                .map(|hit| (hit.payload().as_ptr().addr(), hit.payload().len()));
            assert_eq!(again, Some(kept), "what was found outlives its section");
        } else {
            self.check(payload, 0);
        }
    }

    fn check(&self, bytes: &[u8], number: u32) {
        for _ in 0..2 {
            assert!(
                bytes.len() == LENGTH && bytes.iter().all(|found| *found == byte(number)),
                "block {number} holds {:?}",
                bytes.first()
            );
            self.step.load(Ordering::Relaxed);
        }
    }
}

fn byte(number: u32) -> u8 {
    b'a' + number as u8
}

/// The bytes that a section finds stay unchanged until the section ends, even if the frame is
/// evicted.
pub fn sections() {
    let shared = Shared::full();
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.read_in_section())
    };
    shared.miss(FRAMES);
    reader.join().expect("no panic");
    assert_eq!(shared.cache.bytes(), shared.ledger.bytes(LedgerPart::BlockCache));
}

/// As [`sections`], with a block of two pages, whose address is in its record: its frame, which an
/// outdated slot names, takes the same block again and is retired again meanwhile.
pub fn large_sections() {
    const BYTES: usize = 2 * FRAME_SIZE;
    let shared = Arc::new(Shared::empty());
    let retire = || shared.cache.retire_blocks(shared.table, [(0, shared.slot(0))].into_iter());
    assert!(shared.miss_of(BYTES, 0), "it fits");
    let frame = shared.slot(0).frame();
    retire();
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.read_in_section())
    };
    assert!(shared.miss_of(BYTES, 0), "it fits");
    assert_eq!(shared.slot(0).frame(), frame, "the block is in another frame");
    retire();
    reader.join().expect("no panic");
    assert_eq!(shared.cache.bytes(), shared.ledger.bytes(LedgerPart::BlockCache));
}

/// A pinned block stays unchanged even if its frame is evicted; the last holder releases the frame.
pub fn pins() {
    let shared = Shared::full();
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let pin = shared.cache.enter().find(shared.slot(0), shared.key(0)).map(|hit| hit.pin());
            if let Some(pin) = pin {
                shared.check(&pin, 0);
            }
        })
    };
    shared.cache.retire_blocks(shared.table, [(0, shared.slot(0))].into_iter());
    let is_kept = shared.miss(FRAMES);
    reader.join().expect("no panic");
    // The frame is free again: every later miss finds one.
    assert!(is_kept || shared.miss(FRAMES));
    let section = shared.cache.enter();
    let hit = section.find(shared.slot(FRAMES), shared.key(FRAMES)).expect("just published");
    assert!(hit.payload().iter().all(|found| *found == byte(FRAMES)));
}
