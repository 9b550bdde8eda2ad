//! The twin: a plain map of each block's published length; every answer of the cache is checked
//! against it.
//!
//! The bytes of a block follow from its table and number, so that any mix-up of blocks, tables or
//! parts of two blocks is detected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::cache::{BlockCache, CachedTable, FramePin};
use crate::id::TableId;
use crate::slot::FrameSlot;

/// The bytes of a block. Every eight of them are different, within a block and between blocks.
pub(super) fn payload(table: CachedTable, number: u32, length: usize) -> Vec<u8> {
    let start = u64::from(table.0) << 40 | u64::from(number) << 16;
    (0..length.div_ceil(8) as u64)
        .flat_map(|word| (start | word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(length)
        .collect()
}

/// The blocks of one table: their slots and published lengths.
pub(super) struct Blocks {
    pub(super) id: TableId,
    pub(super) table: CachedTable,
    pub(super) slots: Vec<FrameSlot>,
    /// Length of each published block, by number.
    twin: Mutex<HashMap<u32, usize>>,
}

impl Blocks {
    pub(super) fn new(cache: &BlockCache, id: u64, count: usize) -> Self {
        let table = cache.add_table(TableId(id)).expect("a number");
        let slots = (0..count).map(|_| FrameSlot::new()).collect();
        Self { id: TableId(id), table, slots, twin: Mutex::default() }
    }

    /// Looks block `number` up and checks it; on a miss fills it, up to `pages` pages long. Returns
    /// whether it was a hit.
    pub(super) fn ask(&self, cache: &Arc<BlockCache>, number: u32, pages: usize) -> bool {
        let (slot, key) = (&self.slots[number as usize], self.table.key(number));
        {
            let section = cache.enter();
            if let Some(hit) = section.find(slot, key) {
                self.check(number, hit.payload());
                return true;
            }
        }
        let length = pages * 4_096 - 1 - (number as usize * 37) % 4_000;
        let bytes = payload(self.table, number, length);
        if let Some(mut fresh) = cache.fresh(length) {
            assert!(fresh.len() >= length && fresh.len().is_multiple_of(4_096));
            assert!(fresh.as_ptr().addr().is_multiple_of(64));
            fresh[..length].copy_from_slice(&bytes);
            self.twin.lock().expect("a lock").insert(number, length);
            if number.is_multiple_of(3) {
                let pin = fresh.publish_pinned(slot, key, length);
                self.check(number, &pin);
            } else {
                fresh.publish(slot, key, length);
            }
        }
        false
    }

    /// [`Self::ask`], ignoring the answer.
    pub(super) fn bring(&self, cache: &Arc<BlockCache>, number: u32, pages: usize) {
        let _ = self.ask(cache, number, pages);
    }

    /// Whether the block is cached; does not set the reference bit.
    pub(super) fn peek(&self, cache: &Arc<BlockCache>, number: u32) -> bool {
        let frame = self.slots[number as usize].frame();
        frame.is_some_and(|frame| cache.prefetch(frame, self.table.key(number)))
    }

    pub(super) fn pin(&self, cache: &Arc<BlockCache>, number: u32) -> Option<FramePin> {
        let section = cache.enter();
        let pin = section.find(&self.slots[number as usize], self.table.key(number))?.pin();
        drop(section);
        self.check(number, &pin);
        Some(pin)
    }

    pub(super) fn close(self, cache: &BlockCache) {
        let slots = self.slots.iter().enumerate().map(|(number, slot)| (number as u32, slot));
        cache.close_table(self.id, self.table);
        cache.retire_blocks(self.table, slots);
    }

    fn check(&self, number: u32, found: &[u8]) {
        let length = self.twin.lock().expect("a lock").get(&number).copied();
        assert_eq!(Some(found.len()), length, "block {number}");
        assert!(found == payload(self.table, number, found.len()), "block {number} has other bytes");
    }
}
