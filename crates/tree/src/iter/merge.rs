//! Merging iterator: presents many sorted sources as one, in internal order and in both directions.
//!
//! Every child is at its first entry not yet returned, in the direction of travel. The vector
//! `order` holds the children's places, sorted by these entries. After a step only the first child
//! has moved. It usually stays first, since one source holds most of a tree's entries; that takes
//! one comparison, with the second child. Otherwise its new position is found by binary search,
//! which takes as few comparisons as a heap. Places are compared by key head, then key, then
//! sequence number. Head and sequence number are part of the place, so a comparison reads the
//! children only if the heads are equal.
//!
//! Children are given newest first. Two children with the same key and sequence number hold the
//! same write (a replayed log and the table that was flushed from it). The newest child's copy is
//! returned, the others are skipped.
//!
//! A change of direction seeks every child again, strictly to the other side of the current entry.
//! Stepping each child back once would be wrong: an active memtable may have gained entries between
//! the two.
//!
//! Which entries are visible to a reader is decided in [`super::visible`].

use std::cmp::Ordering;
use std::sync::Arc;

mod cold;
mod drain;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo, head};
use shamba_table::{
    Copies, CopyEnd, CopyLimits, EntryIter, EntryView, Result, SEEK_STEPS, ValueFile, ValueFileRef,
};

use self::drain::{Bound, Drained, copy, drain, drain_run};
use super::run_iter::RunSeeking;
use super::source::Source;
use crate::lookup::pool::ReadPool;
use crate::version::TableUse;

/// Minimum number of runs that are sought together, step by step.
const RUNS_IN_STEPS: usize = 2;

/// A merging iterator over sources; also a source itself.
pub struct MergeIter {
    children: Vec<Child>,
    /// The children that are at an entry, in the order of these entries.
    order: Vec<Placed>,
    direction: Direction,
    /// Number of children that are runs.
    runs: usize,
    /// The steps of a seek, for each child.
    seekings: Vec<RunSeeking>,
}

/// The entries of a source that range tombstones hide, from its current one on in the direction of
/// travel.
pub struct Hidden<'h> {
    /// The end of the keys: forward the first key after them, `None` if there is none; backward the
    /// first of them.
    pub bound: Option<&'h [u8]>,
    /// The largest sequence number of a hidden entry; `None`: every entry is hidden.
    pub floor: Option<SeqNo>,
}

struct Child {
    iter: Source,
    /// Whether the child is at an entry that has not been returned.
    live: bool,
}

/// A child and the entry that it is at.
#[derive(Clone, Copy)]
struct Placed {
    /// The head of the entry's key.
    head: u64,
    seq: SeqNo,
    child: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl MergeIter {
    /// Approximate memory, not counting blocks.
    pub fn memory_bytes(&self) -> usize {
        self.children.capacity() * size_of::<Child>()
            + self.order.capacity() * size_of::<Placed>()
            + self.seekings.capacity() * size_of::<RunSeeking>()
    }

    /// Merges `sources`, given newest first. Has no position until it is sought.
    pub fn new(sources: Vec<impl Into<Source>>) -> Self {
        let child = |iter: _| Child { iter: Into::into(iter), live: false };
        let children: Vec<Child> = sources.into_iter().map(child).collect();
        let runs = children.iter().filter(|child| matches!(child.iter, Source::Run(_))).count();
        // Allocated now, since the memory of an iterator is asked for once.
        let seekings = Vec::with_capacity(if runs < RUNS_IN_STEPS { 0 } else { children.len() });
        Self {
            order: Vec::with_capacity(children.len()),
            children,
            direction: Direction::Forward,
            runs,
            seekings,
        }
    }

    /// As [`EntryIter::seek`]. With `pool`, what the runs have to read is read for all of them at
    /// once.
    pub fn seek_with(&mut self, key: &[u8], seq: SeqNo, pool: Option<&ReadPool>) -> Result<()> {
        if self.runs < RUNS_IN_STEPS {
            return self.place(Direction::Forward, |iter| iter.seek(key, seq));
        }
        self.take_steps(key, seq);
        if let Some(pool) = pool {
            self.read_missing(Direction::Forward, key, seq, pool);
        }
        let seekings = std::mem::take(&mut self.seekings);
        let mut steps = seekings.iter();
        let placed = self.place(Direction::Forward, |iter| match (iter, steps.next()) {
            (Source::Run(run), Some(seeking)) => run.seek_from_step(key, seq, seeking),
            (iter, _) => iter.seek(key, seq),
        });
        self.seekings = seekings;
        placed
    }

    /// As [`EntryIter::seek_for_prev`]; `pool` as in [`Self::seek_with`].
    pub fn seek_for_prev_with(&mut self, key: &[u8], seq: SeqNo, pool: Option<&ReadPool>) -> Result<()> {
        if let Some(pool) = pool.filter(|_| self.runs >= RUNS_IN_STEPS) {
            // Most seeks backward end in the block in which a seek forward ends.
            self.take_steps(key, seq);
            self.read_missing(Direction::Backward, key, seq, pool);
        }
        self.place(Direction::Backward, |iter| iter.seek_for_prev(key, seq))
    }

    /// Takes the steps of a seek in all runs. They have no position afterwards.
    fn take_steps(&mut self, key: &[u8], seq: SeqNo) {
        self.seekings.clear();
        self.seekings.resize(self.children.len(), RunSeeking::default());
        for _ in 0..SEEK_STEPS {
            for (child, seeking) in self.children.iter_mut().zip(&mut self.seekings) {
                if let Source::Run(run) = &mut child.iter {
                    run.seek_step(key, seq, seeking);
                }
            }
        }
    }

    /// Moves forward as long as `each` returns true for the current entry, and stays at the entry
    /// for which it returned false. Only for a merge that goes forward. `each` may see copies of an
    /// entry in succession. Cheaper than single steps: while one child stays first, only its
    /// entries are read.
    pub fn walk(&mut self, mut each: impl FnMut(EntryView<'_>) -> bool) -> Result<()> {
        debug_assert!(self.direction == Direction::Forward);
        while let Some(first) = self.order.first() {
            let first = first.child as usize;
            // Borrows both, the first one mutably.
            let (child, bound) = match self.order.get(1) {
                Some(second) => match two_mut(&mut self.children, first, second.child as usize) {
                    Some((child, next)) => {
                        let newer = first < second.child as usize;
                        let bound = Bound { head: second.head, seq: second.seq, newer, iter: &next.iter };
                        (child, Some(bound))
                    }
                    None => return Ok(()),
                },
                None => (&mut self.children[first], None),
            };
            let drained = match &mut child.iter {
                Source::Run(iter) => drain_run(iter, bound, &mut each),
                Source::Tables(iter) => drain_run(iter, bound, &mut each),
                Source::Other(iter) => drain(iter.as_mut(), bound, &mut each),
                Source::Nothing => Ok(Drained::Ended),
            };
            match drained {
                Ok(Drained::Ended) => {
                    child.live = false;
                    self.order.remove(0);
                }
                Ok(drained) => {
                    self.order[0] = child.placed(first);
                    match drained {
                        Drained::Passed => self.move_back(0),
                        _ => return Ok(()),
                    }
                }
                Err(error) => {
                    self.order.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Copies plain puts from the current entry on into `out`, as far as `limits` allow. Passes
    /// over older versions of the key that was copied last. Returns whether `out` has what it may
    /// have: then the merge is at an entry of the last key copied, or at the first entry after
    /// them, or at none. Otherwise it is at the first entry that was not copied, which needs the
    /// general path or lies beyond the upper bound, or at none. Runs keep to that bound by
    /// themselves. Only for a merge that goes forward.
    pub fn copy(&mut self, out: &mut Copies, limits: &CopyLimits<'_>) -> Result<bool> {
        debug_assert!(self.direction == Direction::Forward);
        while let Some(first) = self.order.first() {
            let number = first.child as usize;
            // Up to the second child's key. If the first one is at the same key, its version is the
            // newer one and decides, and the copy passes over the others.
            let (child, next_key) = match self.order.get(1) {
                Some(second) => match two_mut(&mut self.children, number, second.child as usize) {
                    Some((child, next)) => (child, Some(next.iter.key())),
                    None => return Ok(false),
                },
                None => (&mut self.children[number], None),
            };
            let upper = match (limits.upper, next_key) {
                (Some(upper), Some(next_key)) => Some(upper.min(next_key)),
                (upper, next_key) => upper.or(next_key),
            };
            out.begin();
            let within = CopyLimits { upper, ..*limits };
            let copied = match &mut child.iter {
                Source::Run(iter) => iter.copy_on(out, &within),
                Source::Tables(iter) => iter.copy_on(out, &within),
                Source::Other(iter) if limits.upper.is_some_and(|upper| iter.key() >= upper) => {
                    return Ok(false);
                }
                Source::Other(iter) => copy(iter.as_mut(), out, &within),
                Source::Nothing => Ok(CopyEnd::Ended),
            };
            let end = match copied {
                Ok(end) => end,
                Err(error) => {
                    self.order.clear();
                    return Err(error);
                }
            };
            child.live = child.iter.valid();
            if child.live {
                let placed = child.placed(number);
                self.order[0] = placed;
                if self.order.get(1).is_some_and(|next| !self.comes_first(&placed, next)) {
                    self.move_back(0);
                }
            } else {
                self.order.remove(0);
            }
            match end {
                CopyEnd::Full => return Ok(true),
                CopyEnd::Other => return Ok(false),
                CopyEnd::Beyond | CopyEnd::Ended => {}
            }
        }
        Ok(false)
    }

    /// The sources, in the order in which they were given. After a source has been moved the merge
    /// must be sought before its next step.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut Source> {
        self.children.iter_mut().map(|child| &mut child.iter)
    }

    /// The table of the current entry, and the number of its source in the order in which they were
    /// given. `None` if the entry comes from no run.
    pub fn table(&self) -> Option<(usize, &TableUse)> {
        let source = self.order.first()?.child as usize;
        self.children.get(source)?.iter.table().map(|table| (source, table))
    }

    /// Lets `each` change the sources, numbered in the order in which they were given. Afterwards
    /// the merge has no position until it is sought.
    pub fn restart(&mut self, mut each: impl FnMut(usize, &mut Source)) {
        self.order.clear();
        for (number, child) in self.children.iter_mut().enumerate() {
            child.live = false;
            each(number, &mut child.iter);
        }
    }

    /// Moves the children past entries that range tombstones hide. `hidden` returns which ones of
    /// child number `n` (numbered as given) are. Each child that is at a hidden entry goes to the
    /// next one that is not, in the direction of travel.
    pub fn skip_hidden<'h>(&mut self, hidden: impl Fn(usize) -> Hidden<'h>) -> Result<()> {
        let direction = self.direction;
        let done = self.for_each_child(|number, child| {
            let Hidden { bound, floor } = hidden(number);
            if !child.live || floor.is_some_and(|floor| child.iter.seq() > floor) {
                return Ok(());
            }
            match (direction, floor, bound) {
                (Direction::Forward, Some(floor), end) => child.iter.skip_hidden(end, floor)?,
                (Direction::Forward, None, Some(end)) if child.iter.key() < end => {
                    child.iter.seek(end, SeqNo::MAX)?;
                }
                (Direction::Forward, None, Some(_)) => {}
                (Direction::Forward, None, None) => {
                    child.live = false;
                    return Ok(());
                }
                (Direction::Backward, Some(floor), start) => {
                    child.iter.skip_hidden_back(start.unwrap_or_default(), floor)?;
                }
                (Direction::Backward, None, start) => {
                    let start = start.unwrap_or_default();
                    if child.iter.key() >= start {
                        child.iter.seek_for_prev(start, SeqNo::MAX)?;
                    }
                }
            }
            child.live = child.iter.valid();
            Ok(())
        });
        self.sort_children(done, direction)
    }

    /// Positions every child by `place` and starts again in `direction`.
    fn place(
        &mut self,
        direction: Direction,
        mut place: impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        let placed = self.for_each_child(|_, child| {
            place(&mut child.iter)?;
            child.live = child.iter.valid();
            Ok(())
        });
        self.sort_children(placed, direction)
    }

    fn for_each_child(&mut self, mut visit: impl FnMut(usize, &mut Child) -> Result<()>) -> Result<()> {
        self.children.iter_mut().enumerate().try_for_each(|(number, child)| visit(number, child))
    }

    /// Sorts the children after they have moved. After an error there is no position.
    fn sort_children(&mut self, moved: Result<()>, direction: Direction) -> Result<()> {
        debug_assert!(u32::try_from(self.children.len()).is_ok(), "{} sources", self.children.len());
        self.direction = direction;
        self.order.clear();
        moved?;
        for (number, child) in self.children.iter().enumerate() {
            if child.live {
                let placed = child.placed(number);
                let at = self.order.partition_point(|other| self.comes_first(other, &placed));
                self.order.insert(at, placed);
            }
        }
        debug_assert!(
            self.order.windows(2).all(|pair| self.comes_first(&pair[0], &pair[1])),
            "the sources are out of order after a seek"
        );
        Ok(())
    }

    /// Changes direction: every child goes to its first entry strictly beyond the current one.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(&Placed { seq, .. }) = self.order.first() else { return Ok(()) };
        let key = self.current().key().to_vec();
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
    #[inline]
    fn advance(&mut self) -> Result<()> {
        // Copies of the first entry come directly after it.
        while self.order.len() > 1 && self.is_copy_of_first() {
            self.step(1)?;
        }
        self.step(0)
    }

    /// Whether the second child is at the same write as the first.
    #[inline]
    fn is_copy_of_first(&self) -> bool {
        let [first, other, ..] = &self.order[..] else { return false };
        debug_assert!(first.child != other.child, "source {} is in the order twice", first.child);
        first.seq == other.seq && first.head == other.head && self.key_of(first) == self.key_of(other)
    }

    /// Moves the child at `place` of the order by one entry.
    #[inline]
    fn step(&mut self, place: usize) -> Result<()> {
        let Some(&Placed { child: number, .. }) = self.order.get(place) else { return Ok(()) };
        let child = &mut self.children[number as usize];
        let moved = match self.direction {
            Direction::Forward => child.iter.next(),
            Direction::Backward => child.iter.prev(),
        };
        if let Err(error) = moved {
            self.order.clear();
            return Err(error);
        }
        child.live = child.iter.valid();
        if !child.live {
            self.order.remove(place);
            return Ok(());
        }
        let placed = child.placed(number as usize);
        self.order[place] = placed;
        if self.order.get(place + 1).is_some_and(|next| !self.comes_first(&placed, next)) {
            self.move_back(place);
        }
        Ok(())
    }

    /// Moves the child at `place`, which now belongs behind the next one, to its position in the
    /// order.
    fn move_back(&mut self, place: usize) {
        debug_assert!(
            place + 1 < self.order.len(),
            "source {place} of {} has none behind it",
            self.order.len()
        );
        let placed = self.order[place];
        let beyond = &self.order[place + 2..];
        let passed = beyond.partition_point(|other| self.comes_first(other, &placed));
        let end = place + 2 + passed;
        self.order.copy_within(place + 1..end, place);
        self.order[end - 1] = placed;
        debug_assert!(
            self.order.get(end).is_none_or(|next| self.comes_first(&placed, next)),
            "a source was moved back too little"
        );
    }

    #[inline]
    fn key_of(&self, placed: &Placed) -> &[u8] {
        self.children[placed.child as usize].iter.key()
    }

    /// The source of the current entry.
    #[inline]
    fn current(&self) -> &Source {
        debug_assert!(!self.order.is_empty(), "an iterator without a position is read");
        &self.children[self.order[0].child as usize].iter
    }

    /// Whether child `one` comes before child `other` in the direction of travel.
    #[inline]
    fn comes_first(&self, one: &Placed, other: &Placed) -> bool {
        let forward = self.direction == Direction::Forward;
        if one.head != other.head {
            return (one.head < other.head) == forward;
        }
        let order = self.key_of(one).cmp(self.key_of(other)).then(other.seq.cmp(&one.seq));
        match order {
            Ordering::Equal => one.child < other.child,
            order => order.is_lt() == forward,
        }
    }
}

impl Child {
    /// The place of the child, which has this number and is at an entry.
    #[inline]
    fn placed(&self, number: usize) -> Placed {
        debug_assert!(self.live && self.iter.seq() <= SeqNo::MAX, "an ended source is placed");
        Placed { head: head(self.iter.key()), seq: self.iter.seq(), child: number as u32 }
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
        self.seek_with(key, seq, None)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.place(Direction::Backward, |iter| iter.seek_for_prev(key, seq))
    }

    #[inline]
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

    fn note_tombstone(&mut self) {
        if let Some(first) = self.order.first() {
            self.children[first.child as usize].iter.note_tombstone();
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    #[inline]
    fn view(&self) -> EntryView<'_> {
        self.current().view()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.order[0].seq
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        self.current().kind()
    }

    #[inline]
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

    fn separated(&self) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        self.current().separated()
    }

    fn digest(&self) -> Option<KeyDigest> {
        self.current().digest()
    }
}

/// Mutable references to items `a` and `b`; `None` if they are the same item or one is missing.
#[inline]
fn two_mut<T>(items: &mut [T], a: usize, b: usize) -> Option<(&mut T, &mut T)> {
    debug_assert!(a != b, "item {a} is borrowed twice");
    let (low, high) = items.split_at_mut_checked(a.max(b))?;
    let (low, high) = (low.get_mut(a.min(b))?, high.first_mut()?);
    Some(if a < b { (low, high) } else { (high, low) })
}

#[cfg(test)]
mod tests;
