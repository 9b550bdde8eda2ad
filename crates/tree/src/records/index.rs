//! The index of a shard: from 32 bits of a digest to the records that may have it.
//!
//! Open addressing with linear probing. A slot is removed by moving later slots back, so there are
//! no tombstones and a search ends at the first empty slot. At most three quarters of the slots are
//! used. The home of a slot follows from its tag alone, so the index can be rebuilt with another
//! number of slots without reading a record.
//!
//! Invariant: between the home of a slot and the slot itself no slot is empty.

/// Address of a record: its chunk, and its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Number of the chunk; numbers are given in ascending order and wrap.
    pub chunk: u32,
    /// Offset in the chunk, in bytes.
    pub offset: u16,
}

/// A slot in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Bits of the digest.
    pub tag: u32,
    // The fields of its place, which as a struct would take two bytes more.
    chunk: u32,
    offset: u16,
    /// Whether a lookup has used the record since it was last written.
    pub was_used: bool,
}

const _: () = assert!(size_of::<Option<Slot>>() == 12);

impl Slot {
    /// The address of its record.
    pub fn place(&self) -> Place {
        Place { chunk: self.chunk, offset: self.offset }
    }
}

/// Where the search for a tag begins among this many slots.
#[inline]
pub(super) fn home(tag: u32, slots: usize) -> usize {
    ((u64::from(tag) * slots as u64) >> u32::BITS) as usize
}

/// The index of one shard.
#[derive(Default)]
pub(super) struct Index {
    slots: Vec<Option<Slot>>,
    used: usize,
}

impl Index {
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = size_of::<Option<Slot>>();

    /// Number of records.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that the slots take.
    pub fn held_bytes(&self) -> usize {
        size_of_val::<[Option<Slot>]>(&self.slots)
    }

    /// Address of the first slot: a hint, which is stale after a rebuild.
    pub fn address(&self) -> *const u8 {
        self.slots.as_ptr().cast()
    }

    /// Whether another record would leave less than a quarter of the slots empty.
    pub fn is_full(&self) -> bool {
        self.used * 4 >= self.slots.len() * 3
    }

    /// The first slot of `tag` whose record satisfies `is_it`.
    pub fn find(&mut self, tag: u32, mut is_it: impl FnMut(Place) -> bool) -> Option<&mut Slot> {
        let number = self.position(tag, |slot| is_it(slot.place()))?;
        self.slots.get_mut(number)?.as_mut()
    }

    /// The slot where the search for `tag` begins: slots are in the order of tags, as far as there
    /// is room.
    fn home(&self, tag: u32) -> usize {
        home(tag, self.slots.len())
    }

    /// The slot after this one.
    fn after(&self, number: usize) -> usize {
        if number + 1 == self.slots.len() { 0 } else { number + 1 }
    }

    /// Slots from `from` to `to`, forwards.
    fn distance(&self, from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + self.slots.len() - from }
    }

    /// Position of the first slot of `tag` that satisfies `is_it`.
    fn position(&self, tag: u32, mut is_it: impl FnMut(&Slot) -> bool) -> Option<usize> {
        let mut number = self.home(tag);
        // Ends, because a quarter of the slots is empty; without slots, at once.
        while let Some(slot) = self.slots.get(number)?.as_ref() {
            if slot.tag == tag && is_it(slot) {
                return Some(number);
            }
            number = self.after(number);
        }
        None
    }

    /// Adds a record; there must be a free slot ([`Self::is_full`]).
    pub fn insert(&mut self, tag: u32, place: Place) {
        self.put(Slot { tag, chunk: place.chunk, offset: place.offset, was_used: false });
    }

    fn put(&mut self, slot: Slot) {
        assert!(!self.is_full(), "a slot is added to a full index");
        let mut number = self.home(slot.tag);
        while self.slots[number].is_some() {
            number = self.after(number);
        }
        self.slots[number] = Some(slot);
        self.used += 1;
    }

    /// Removes the slot of the record at `place`, and returns it.
    pub fn remove(&mut self, tag: u32, place: Place) -> Option<Slot> {
        let number = self.position(tag, |slot| slot.place() == place)?;
        self.take(number)
    }

    /// Removes a record of `tag`, if there is one.
    pub fn remove_any(&mut self, tag: u32) -> Option<Slot> {
        let number = self.position(tag, |_| true)?;
        self.take(number)
    }

    /// Empties slot `number`, and moves those behind it back that may stand there.
    fn take(&mut self, number: usize) -> Option<Slot> {
        let taken = self.slots[number].take()?;
        self.used -= 1;
        let (mut hole, mut at) = (number, number);
        loop {
            at = self.after(at);
            let Some(slot) = self.slots[at] else { return Some(taken) };
            // The distance from its home to the hole must not be larger than to its own place.
            let home = self.home(slot.tag);
            if self.distance(home, hole) < self.distance(home, at) {
                self.slots[hole] = self.slots[at].take();
                hole = at;
            }
        }
    }

    /// Keeps the records that satisfy `keeps`, in this number of slots, which must suffice for
    /// them.
    pub fn rebuild(&mut self, slots: usize, keeps: impl Fn(&Slot) -> bool) {
        let old = std::mem::replace(&mut self.slots, vec![None; slots]);
        self.used = 0;
        old.into_iter().flatten().filter(keeps).for_each(|slot| self.put(slot));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn place(number: u32) -> Place {
        Place { chunk: number, offset: (number % 7) as u16 }
    }

    /// Few different tags, so that runs of slots are long and wrap around the end.
    #[test]
    fn an_index_is_a_map() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        index.rebuild(128, |_| true);
        for number in 0..20_000u32 {
            if !index.is_full() && (random.u32(0..5) < 3 || model.is_empty()) {
                let tag = if random.bool() { random.u32(0..40) } else { u32::MAX - random.u32(0..40) };
                index.insert(tag, place(number));
                model.insert(number, tag);
            } else {
                let from = random.u32(0..number);
                let Some((&gone, &tag)) = model.range(from..).next() else { continue };
                assert!(index.remove(tag, place(gone)).is_some(), "record {gone} with tag {tag} is missing");
                model.remove(&gone);
            }
            if number % 4_000 == 3_999 {
                index.rebuild(random.usize(100..300), |slot| slot.chunk % 3 == 0);
                model.retain(|number, _| number % 3 == 0);
            }
            assert_eq!(index.len(), model.len());
        }
        for (number, tag) in &model {
            assert!(index.find(*tag, |at| at == place(*number)).is_some(), "record {number} is lost");
        }
        assert!(index.remove_any(12_345).is_none(), "a tag that no record has");
    }

    #[test]
    fn an_index_without_slots_is_full_and_takes_no_memory() {
        let mut index = Index::default();
        assert!(index.find(1, |_| true).is_none());
        assert!(index.is_full() && index.held_bytes() == 0);
        index.rebuild(64, |_| true);
        index.insert(1, place(1));
        index.rebuild(0, |_| false);
        assert_eq!((index.held_bytes(), index.slots(), index.len()), (0, 0, 0));
    }
}
