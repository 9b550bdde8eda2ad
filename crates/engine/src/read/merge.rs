//! Many sorted sources as one: a k-way merge in internal order, both ways.
//!
//! Every child stands at its first entry not yet given out (in the direction of travel); a binary heap of
//! child numbers has the next one on top. Children are compared by key head, then key, then sequence number,
//! all but the key held beside the child, so that most comparisons make no virtual call. After a step only
//! the top child has moved, and in sorted data it often stays on top: one or two comparisons.
//!
//! Children are given newest first. Two children with the same key and sequence number hold the same write
//! (a replayed log beside the table that was flushed from it); the newest child's copy is given, the other
//! skipped.
//!
//! Turning round seeks every child again, strictly to the other side of the current entry. Merely stepping
//! each child back would be wrong: a live memtable may have gained entries between the two.
//!
//! Not here: which entries a reader may see ([`super::visible`]).

use std::cmp::Ordering;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo, head};
use shamba_table::{EntryIter, Result};

/// A merge of sources, itself a source.
pub(crate) struct MergeIter {
    children: Vec<Child>,
    /// The numbers of the children that stand at an entry, the next one on top.
    heap: Vec<usize>,
    direction: Direction,
}

struct Child {
    iter: Box<dyn EntryIter>,
    /// Whether the child stands at an entry that is still to be given out.
    live: bool,
    head: u64,
    seq: SeqNo,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl MergeIter {
    /// A merge of `sources`, newest first. It stands nowhere until it is sought.
    pub fn new(sources: Vec<Box<dyn EntryIter>>) -> Self {
        let child = |iter| Child { iter, live: false, head: 0, seq: SeqNo::ZERO };
        let children: Vec<Child> = sources.into_iter().map(child).collect();
        Self { heap: Vec::with_capacity(children.len()), children, direction: Direction::Forward }
    }

    /// Moves the `chosen` children (numbered as given) past a stretch that holds nothing to give out. Going
    /// forward, those below `bound` go to the first key from `bound` on, to their end if it is `None`. Going
    /// backward, those at or above `bound` go to the last key below it. Tells whether any moved.
    pub fn skip(&mut self, bound: Option<&[u8]>, chosen: impl Fn(usize) -> bool) -> Result<bool> {
        let direction = self.direction;
        let mut moved = false;
        let done = self.for_each_child(|number, child| {
            if !child.live || !chosen(number) {
                return Ok(());
            }
            match bound {
                Some(bound) if direction == Direction::Forward && child.iter.key() < bound => {
                    child.iter.seek(bound, SeqNo::MAX)?;
                }
                Some(bound) if direction == Direction::Backward && child.iter.key() >= bound => {
                    child.iter.seek_for_prev(bound, SeqNo::MAX)?;
                }
                Some(_) => return Ok(()),
                None => {}
            }
            moved = true;
            child.refresh();
            // Without a bound there is nothing left to give out, wherever the child stands.
            child.live &= bound.is_some();
            Ok(())
        });
        self.settle(done, direction)?;
        Ok(moved)
    }

    /// Places every child by `place` and starts over in `direction`.
    fn place(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut dyn EntryIter) -> Result<()>,
    ) -> Result<()> {
        let placed = self.for_each_child(|_, child| {
            place(child.iter.as_mut())?;
            child.refresh();
            Ok(())
        });
        self.settle(placed, direction)
    }

    fn for_each_child(&mut self, mut visit: impl FnMut(usize, &mut Child) -> Result<()>) -> Result<()> {
        self.children.iter_mut().enumerate().try_for_each(|(number, child)| visit(number, child))
    }

    /// Builds the heap after children have moved; after an error there is no position.
    fn settle(&mut self, moved: Result<()>, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.heap.clear();
        moved?;
        self.heap.extend((0..self.children.len()).filter(|&number| self.children[number].live));
        for slot in (0..self.heap.len() / 2).rev() {
            self.sift_down(slot);
        }
        Ok(())
    }

    /// Turns round: every child goes to its first entry strictly beyond the current one.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(top) = self.top() else { return Ok(()) };
        let (key, seq) = (top.iter.key().to_vec(), top.seq);
        self.place(direction, |iter| {
            match direction {
                Direction::Forward => iter.seek(&key, seq)?,
                Direction::Backward => iter.seek_for_prev(&key, seq)?,
            }
            if iter.valid() && iter.seq() == seq && iter.key() == key {
                match direction {
                    Direction::Forward => iter.next()?,
                    Direction::Backward => iter.prev()?,
                }
            }
            Ok(())
        })
    }

    /// Leaves the current entry, in the direction of travel.
    fn advance(&mut self) -> Result<()> {
        // Copies of the top entry can only be right below it: what lies deeper comes after those.
        while let Some(slot) = (1..self.heap.len().min(3)).find(|&slot| self.is_copy_of_top(slot)) {
            self.step(slot)?;
        }
        self.step(0)
    }

    fn is_copy_of_top(&self, slot: usize) -> bool {
        let (top, other) = (&self.children[self.heap[0]], &self.children[self.heap[slot]]);
        top.seq == other.seq && top.head == other.head && top.iter.key() == other.iter.key()
    }

    /// Moves the child in a slot of the heap by one entry.
    fn step(&mut self, slot: usize) -> Result<()> {
        let Some(&number) = self.heap.get(slot) else { return Ok(()) };
        let child = &mut self.children[number];
        let moved = match self.direction {
            Direction::Forward => child.iter.next(),
            Direction::Backward => child.iter.prev(),
        };
        if let Err(error) = moved {
            self.heap.clear();
            return Err(error);
        }
        child.refresh();
        if !child.live {
            self.heap.swap_remove(slot);
        }
        self.sift_down(slot);
        Ok(())
    }

    fn top(&self) -> Option<&Child> {
        self.heap.first().map(|&number| &self.children[number])
    }

    /// The child at the current entry.
    fn current(&self) -> &dyn EntryIter {
        self.children[self.heap[0]].iter.as_ref()
    }

    fn sift_down(&mut self, mut slot: usize) {
        loop {
            let (left, right) = (2 * slot + 1, 2 * slot + 2);
            if left >= self.heap.len() {
                return;
            }
            let first = if right < self.heap.len() && self.comes_first(right, left) { right } else { left };
            if !self.comes_first(first, slot) {
                return;
            }
            self.heap.swap(first, slot);
            slot = first;
        }
    }

    /// Whether the child in slot `a` is to be given out before the one in slot `b`.
    fn comes_first(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        let (one, other) = (&self.children[a], &self.children[b]);
        let order = one
            .head
            .cmp(&other.head)
            .then_with(|| one.iter.key().cmp(other.iter.key()))
            .then(other.seq.cmp(&one.seq));
        match (order, self.direction) {
            (Ordering::Equal, _) => a < b,
            (order, Direction::Forward) => order.is_lt(),
            (order, Direction::Backward) => order.is_gt(),
        }
    }
}

impl Child {
    /// Takes over where the source stands now.
    fn refresh(&mut self) {
        self.live = self.iter.valid();
        if self.live {
            self.head = head(self.iter.key());
            self.seq = self.iter.seq();
        }
    }
}

impl EntryIter for MergeIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.place(Direction::Forward, |iter| iter.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.place(Direction::Backward, |iter| iter.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(Direction::Forward, |iter| iter.seek(key, seq))
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(Direction::Backward, |iter| iter.seek_for_prev(key, seq))
    }

    fn next(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.advance(),
            Direction::Backward => self.turn(Direction::Forward),
        }
    }

    fn prev(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.turn(Direction::Backward),
            Direction::Backward => self.advance(),
        }
    }

    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn seq(&self) -> SeqNo {
        self.children[self.heap[0]].seq
    }

    fn kind(&self) -> EntryKind {
        self.current().kind()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_bytes(&self) -> Bytes {
        self.current().value_bytes()
    }

    fn value_bytes_len(&self) -> Result<u64> {
        self.current().value_bytes_len()
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.current().read_value(sink)
    }
}

#[cfg(test)]
mod tests;
