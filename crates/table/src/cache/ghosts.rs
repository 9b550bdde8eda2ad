//! Ghosts: names of blocks that the cache let go, or would not take, a little while ago.
//!
//! A miss of a block that is still a ghost is a hit that a somewhat larger cache would have had. So the ghosts' hits say
//! what more memory would be worth here, which hits themselves do not: they say what all of it is worth.
//!
//! The names lie in a table of fixed size, each in the one place that its hash says; a new one takes the place of an
//! older. So a name stays for about as many others as there are places. Places are written and read without a lock: a
//! lost name is a hit that is not counted.
//!
//! Not here: what is done with the figure (package `shamba`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slab::{BlockKey, FRAME_SIZE};

/// Of the frames that the capacity is good for, one place for so many.
const FRAMES_A_PLACE: u64 = 8;
const PLACES_MIN: u64 = 256;
const PLACES_MAX: u64 = 1 << 16;

pub(super) struct Ghosts {
    /// A part of the name's hash; 0: nobody.
    places: Box<[AtomicU32]>,
    hits: AtomicU64,
}

impl Ghosts {
    /// For a cache of this magnitude.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let frames = capacity_bytes / FRAME_SIZE as u64;
        let places = (frames / FRAMES_A_PLACE).clamp(PLACES_MIN, PLACES_MAX);
        Self { places: (0..places).map(|_| AtomicU32::new(0)).collect(), hits: AtomicU64::new(0) }
    }

    /// The place and the name of a block.
    fn of(&self, key: BlockKey) -> Option<(&AtomicU32, u32)> {
        let mixed = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let place = (u128::from(mixed) * self.places.len() as u128) >> 64;
        Some((self.places.get(place as usize)?, mixed as u32 | 1))
    }

    /// The block is not in the cache any more, or still not.
    pub(super) fn note(&self, key: BlockKey) {
        if let Some((place, name)) = self.of(key) {
            place.store(name, Ordering::Relaxed);
        }
    }

    /// The block is missed.
    pub(super) fn missed(&self, key: BlockKey) {
        if let Some((place, name)) = self.of(key) {
            if place.load(Ordering::Relaxed) == name {
                place.store(0, Ordering::Relaxed);
                self.hits.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Hits so far, and what memory the ghosts would take if they were blocks.
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
        // Of the last 64 most are still known, of those 4,096 ago hardly one.
        (0..5000).for_each(note);
        (4936..5000).for_each(missed);
        let recent = ghosts.hits().0 - 1;
        (0..900).for_each(missed);
        let old = ghosts.hits().0 - 1 - recent;
        assert!(recent > 45 && old < 10, "{recent} of 64 and {old} of 900");
    }
}
