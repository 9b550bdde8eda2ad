//! The index of a shard: from 32 bits of a digest to the records that may have it.
//!
//! Open addressing with linear probing. A slot is removed by moving later slots back, so there are
//! no tombstones and a search ends at the first empty slot. At most three quarters of the slots are
//! used. The home of a slot follows from its tag alone, so the index can be rebuilt with another
//! number of slots without reading a record.
//!
//! Invariant: between the home of a slot and the slot itself no slot is empty.

use shamba_env::Pages;

/// Address of a record: its chunk, and its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Number of the chunk; numbers are given in ascending order and wrap.
    pub chunk: u32,
    /// Offset in the chunk, in bytes.
    pub offset: u16,
}

/// A slot in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Bits of the digest.
    pub tag: u32,
    /// The address of its record.
    pub place: Place,
    /// Whether a lookup has used the record since it was last written.
    pub was_used: bool,
}

/// Bytes of a slot in memory: tag (4), chunk (4), offset (2), state, and one unused byte.
const SLOT_BYTES: usize = 12;
/// Position of the state in a slot.
const STATE_AT: usize = 10;
/// Alignment of the slots: a cache line, of which a short search reads one.
const LINE_BYTES: usize = 64;
/// State of an empty slot: memory is zeroed at first.
const EMPTY: u8 = 0;
/// State of a slot whose record no lookup has used since it was last written.
const HELD: u8 = 1;
/// State of a slot whose record a lookup has used.
const USED: u8 = 2;

type Packed = [u8; SLOT_BYTES];

impl Slot {
    #[inline]
    fn pack(self) -> Packed {
        let mut packed = [0; SLOT_BYTES];
        packed[..4].copy_from_slice(&self.tag.to_le_bytes());
        packed[4..8].copy_from_slice(&self.place.chunk.to_le_bytes());
        packed[8..10].copy_from_slice(&self.place.offset.to_le_bytes());
        packed[STATE_AT] = if self.was_used { USED } else { HELD };
        packed
    }

    /// The slot in `packed`; `None` if it is empty.
    #[inline]
    fn unpack(packed: &Packed) -> Option<Self> {
        let [t0, t1, t2, t3, c0, c1, c2, c3, o0, o1, state, _] = *packed;
        let place =
            Place { chunk: u32::from_le_bytes([c0, c1, c2, c3]), offset: u16::from_le_bytes([o0, o1]) };
        let tag = u32::from_le_bytes([t0, t1, t2, t3]);
        (state != EMPTY).then_some(Self { tag, place, was_used: state == USED })
    }
}

/// Number of the slot at which the search for a tag begins, among this many slots.
#[inline]
pub(super) fn home(tag: u32, slots: usize) -> usize {
    ((u64::from(tag) * slots as u64) >> u32::BITS) as usize
}

/// The index of one shard. Its slots have memory of their own ([`Pages`]): they are rebuilt with
/// other lengths, which an allocator could not reuse.
#[derive(Default)]
pub(super) struct Index {
    memory: Option<Pages>,
    used: usize,
}

impl Index {
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = SLOT_BYTES;

    /// Number of records.
    pub fn len(&self) -> usize {
        self.used
    }

    /// The bytes of all slots.
    #[inline]
    fn all(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.held_bytes() / SLOT_BYTES
    }

    /// Bytes that the slots take.
    pub fn held_bytes(&self) -> usize {
        self.all().len()
    }

    /// Address of the first slot: a hint, which is stale after a rebuild.
    pub fn address(&self) -> *const u8 {
        self.all().as_ptr()
    }

    /// Whether another record would leave less than a quarter of the slots empty.
    pub fn is_full(&self) -> bool {
        self.used * 4 >= self.slots() * 3
    }

    /// The place of the first record of `tag` that satisfies `is_it`.
    pub fn find(&self, tag: u32, mut is_it: impl FnMut(Place) -> bool) -> Option<Place> {
        self.position(tag, |slot| is_it(slot.place)).map(|(_, slot)| slot.place)
    }

    /// [`Self::find`] for a lookup, which uses the record.
    pub fn find_used(&mut self, tag: u32, mut is_it: impl FnMut(Place) -> bool) -> Option<Place> {
        let (number, slot) = self.position(tag, |slot| is_it(slot.place))?;
        if !slot.was_used {
            slot_mut(self.all_mut(), number)[STATE_AT] = USED;
        }
        Some(slot.place)
    }

    /// Position and content of the first slot of `tag` that satisfies `is_it`.
    #[inline]
    fn position(&self, tag: u32, mut is_it: impl FnMut(&Slot) -> bool) -> Option<(usize, Slot)> {
        let (all, slots) = (self.all(), self.slots());
        // Slots are in the order of tags, as far as there is room.
        let mut number = home(tag, slots);
        // Ends, because a quarter of the slots is empty; without slots, at once.
        while let Some(slot) = slot(all, number) {
            if slot.tag == tag && is_it(&slot) {
                return Some((number, slot));
            }
            number = after(number, slots);
        }
        None
    }

    /// Adds a record; there must be a free slot ([`Self::is_full`]).
    pub fn insert(&mut self, tag: u32, place: Place) {
        assert!(!self.is_full(), "a slot is added to a full index");
        put(self.all_mut(), Slot { tag, place, was_used: false });
        self.used += 1;
    }

    /// Removes the slot of the record at `place`, and returns it.
    pub fn remove(&mut self, tag: u32, place: Place) -> Option<Slot> {
        let (number, slot) = self.position(tag, |slot| slot.place == place)?;
        self.take(number);
        Some(slot)
    }

    /// Removes a record of `tag`, if there is one.
    pub fn remove_any(&mut self, tag: u32) -> Option<Slot> {
        let (number, slot) = self.position(tag, |_| true)?;
        self.take(number);
        Some(slot)
    }

    /// Empties slot `number`, and moves those behind it back that may stand there.
    fn take(&mut self, number: usize) {
        self.used -= 1;
        let count = self.slots();
        let slots = self.all_mut();
        // Slots from `from` to `to`, forwards.
        let distance = |from: usize, to: usize| if from <= to { to - from } else { to + count - from };
        *slot_mut(slots, number) = [EMPTY; SLOT_BYTES];
        let (mut hole, mut at) = (number, number);
        loop {
            at = after(at, count);
            let Some(moved) = slot(slots, at) else { return };
            // The distance from its home to the hole must not be larger than to its own place.
            let home = home(moved.tag, count);
            if distance(home, hole) < distance(home, at) {
                *slot_mut(slots, hole) = moved.pack();
                *slot_mut(slots, at) = [EMPTY; SLOT_BYTES];
                hole = at;
            }
        }
    }

    /// Keeps the records that satisfy `keeps`, in this number of slots, which must suffice for
    /// them. Without memory for the slots none is kept, and there are none.
    pub fn rebuild(&mut self, slots: usize, keeps: impl Fn(&Slot) -> bool) {
        let memory = Pages::zeroed(slots * SLOT_BYTES, LINE_BYTES).filter(|_| slots > 0);
        let old = std::mem::replace(self, Self { memory, used: 0 });
        if self.memory.is_none() {
            return;
        }
        for kept in (0..old.slots()).filter_map(|number| slot(old.all(), number)).filter(keeps) {
            assert!(!self.is_full(), "too few slots for the records of an index");
            put(self.all_mut(), kept);
            self.used += 1;
        }
    }
}

/// The slot after this one.
#[inline]
fn after(number: usize, slots: usize) -> usize {
    if number + 1 == slots { 0 } else { number + 1 }
}

/// The content of slot `number`; `None` if it is empty, or past the last.
#[inline]
fn slot(slots: &[u8], number: usize) -> Option<Slot> {
    Slot::unpack(slots.get(number * SLOT_BYTES..)?.first_chunk()?)
}

/// Slot `number`, which exists.
#[inline]
fn slot_mut(slots: &mut [u8], number: usize) -> &mut Packed {
    let found = slots.get_mut(number * SLOT_BYTES..).and_then(<[u8]>::first_chunk_mut);
    let Some(slot) = found else { unreachable!("slot {number} of an index is past the last") };
    slot
}

/// Writes a slot to the first empty place from its home on. There must be one.
fn put(slots: &mut [u8], added: Slot) {
    let count = slots.len() / SLOT_BYTES;
    let mut number = home(added.tag, count);
    while slot(slots, number).is_some() {
        number = after(number, count);
    }
    *slot_mut(slots, number) = added.pack();
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
                index.rebuild(random.usize(100..300), |slot| slot.place.chunk % 3 == 0);
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
