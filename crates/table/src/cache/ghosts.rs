//! Ghost entries: hashes of blocks that were recently evicted or not admitted.
//!
//! A miss of a block that has a ghost entry is a hit that a somewhat larger cache would have had.
//! So ghost hits measure the marginal value of memory, while cache hits measure the value of the
//! whole cache.
//!
//! The entries are a direct-mapped table of fixed size: each hash has one place, and a new entry
//! overwrites the one in its place. So an entry lives for about as many insertions as there are
//! places. Places are read and written without a lock; if a concurrent write loses an entry, one
//! ghost hit is not counted.
//!
//! Not here: use of the figures (package `shamba`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slab::{BlockKey, FRAME_SIZE};

/// One ghost entry per this many frames of the capacity.
const FRAMES_A_PLACE: u64 = 8;
const PLACES_MIN: u64 = 256;
const PLACES_MAX: u64 = 1 << 16;

pub(super) struct Ghosts {
    /// Part of the block's hash; 0 for no entry.
    places: Box<[AtomicU32]>,
    hits: AtomicU64,
}

impl Ghosts {
    /// Creates the table for a cache of about this capacity.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let frames = capacity_bytes / FRAME_SIZE as u64;
        let places = (frames / FRAMES_A_PLACE).clamp(PLACES_MIN, PLACES_MAX);
        debug_assert!((PLACES_MIN..=PLACES_MAX).contains(&places), "{places} places for ghost entries");
        Self { places: (0..places).map(|_| AtomicU32::new(0)).collect(), hits: AtomicU64::new(0) }
    }

    /// The place and the stored hash of a block.
    fn of(&self, key: BlockKey) -> Option<(&AtomicU32, u32)> {
        let mixed = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let place = (u128::from(mixed) * self.places.len() as u128) >> 64;
        debug_assert!((place as usize) < self.places.len(), "place {place} of {}", self.places.len());
        Some((self.places.get(place as usize)?, mixed as u32 | 1))
    }

    /// Notes that the block was evicted or not admitted.
    pub(super) fn note(&self, key: BlockKey) {
        if let Some((place, name)) = self.of(key) {
            place.store(name, Ordering::Relaxed);
        }
    }

    /// Notes a miss of the block; counts a ghost hit if it has an entry.
    pub(super) fn missed(&self, key: BlockKey) {
        if let Some((place, name)) = self.of(key) {
            if place.load(Ordering::Relaxed) == name {
                place.store(0, Ordering::Relaxed);
                self.hits.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ghost hits so far, and the bytes that the blocks of all entries would take.
    pub(super) fn hits(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.places.len() as u64 * FRAME_SIZE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_ghost_until_others_take_its_place_or_it_comes_back() {
        let ghosts = Ghosts::new(0);
        let missed = |number: u64| ghosts.missed(BlockKey(1 << 32 | number));
        let note = |number: u64| ghosts.note(BlockKey(1 << 32 | number));
        missed(1);
        assert_eq!(ghosts.hits(), (0, 256 * 4096));
        note(1);
        missed(2);
        missed(1);
        missed(1);
        assert_eq!(ghosts.hits().0, 1, "it came back once");
        // Most of the last 64 blocks are still known, of those 4,096 insertions ago hardly any.
        (0..5000).for_each(note);
        (4936..5000).for_each(missed);
        let recent = ghosts.hits().0 - 1;
        (0..900).for_each(missed);
        let old = ghosts.hits().0 - 1 - recent;
        assert!(recent > 45 && old < 10, "{recent} of 64 and {old} of 900");
    }
}
