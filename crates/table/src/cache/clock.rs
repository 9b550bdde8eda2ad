//! One shard of the cache: a map to frames, and a hand that goes round them.
//!
//! A hit marks its frame. To make room the hand goes on, takes the mark of a marked frame and evicts the first
//! unmarked one: every block that was asked for since the hand last passed gets another round.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use super::Key;
use crate::id::TableId;

/// What a block takes beside its bytes: frame, map entry and the allocation's head, about.
const FRAME_OVERHEAD_BYTES: u64 = 128;

struct Frame {
    key: Key,
    block: Bytes,
    bytes: u64,
    marked: bool,
}

/// What an insertion did to the bytes held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Change {
    pub(super) added_bytes: u64,
    pub(super) freed_bytes: u64,
}

pub(super) struct Shard {
    map: HashMap<Key, usize, BuildHasherDefault<KeyHasher>>,
    frames: Vec<Option<Frame>>,
    free: Vec<usize>,
    hand: usize,
    bytes: u64,
    capacity_bytes: u64,
}

impl Shard {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self {
            map: HashMap::default(),
            frames: Vec::new(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
            capacity_bytes,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&mut self, key: Key) -> Option<Bytes> {
        let place = *self.map.get(&key)?;
        let frame = self.frames.get_mut(place)?.as_mut()?;
        frame.marked = true;
        Some(frame.block.clone())
    }

    pub(super) fn insert(&mut self, key: Key, block: Bytes) -> Change {
        let bytes = block.len() as u64 + FRAME_OVERHEAD_BYTES;
        // Two readers that missed together bring the same block: the first one stays.
        if bytes > self.capacity_bytes || self.map.contains_key(&key) {
            return Change::default();
        }
        let mut freed_bytes = 0;
        while self.bytes + bytes > self.capacity_bytes {
            freed_bytes += self.evict_one();
        }
        // Unmarked: a block that is read once, as in a scan, goes at the hand's first visit.
        let frame = Some(Frame { key, block, bytes, marked: false });
        let place = match self.free.pop() {
            Some(place) => {
                self.frames[place] = frame;
                place
            }
            None => {
                self.frames.push(frame);
                self.frames.len() - 1
            }
        };
        self.map.insert(key, place);
        self.bytes += bytes;
        Change { added_bytes: bytes, freed_bytes }
    }

    pub(super) fn remove_table(&mut self, id: TableId) -> u64 {
        let of_table = |frame: &Option<Frame>| frame.as_ref().is_some_and(|frame| frame.key.table == id);
        let places: Vec<usize> =
            (0..self.frames.len()).filter(|place| of_table(&self.frames[*place])).collect();
        places.into_iter().map(|place| self.remove(place)).sum()
    }

    /// Evicts a block; only when there is one. At most two rounds: the first takes every mark.
    fn evict_one(&mut self) -> u64 {
        debug_assert!(!self.map.is_empty());
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.frames.len().max(1);
            match self.frames.get_mut(place) {
                Some(Some(frame)) if frame.marked => frame.marked = false,
                Some(Some(_)) => return self.remove(place),
                _ => {}
            }
        }
    }

    fn remove(&mut self, place: usize) -> u64 {
        let Some(frame) = self.frames[place].take() else {
            return 0;
        };
        self.map.remove(&frame.key);
        self.free.push(place);
        self.bytes -= frame.bytes;
        frame.bytes
    }
}

/// A place's 64 well-mixed bits; offsets alone are multiples of a page.
pub(super) fn mix(key: Key) -> u64 {
    let x = (key.table.0 ^ key.offset.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Hashes a [`Key`] with [`mix`]. Nobody outside can choose offsets or table numbers, so no secret is needed.
#[derive(Default)]
pub(super) struct KeyHasher {
    words: [u64; 2],
    count: usize,
}

impl Hasher for KeyHasher {
    fn write_u64(&mut self, word: u64) {
        self.words[self.count & 1] = word;
        self.count += 1;
    }

    fn write(&mut self, _bytes: &[u8]) {
        debug_assert!(false, "a key is two words");
    }

    fn finish(&self) -> u64 {
        mix(Key { table: TableId(self.words[0]), offset: self.words[1] })
    }
}
