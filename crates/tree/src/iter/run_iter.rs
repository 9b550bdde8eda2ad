//! Iterator over the entries of a run: its tables in order, each limited to the range in which it
//! is used.
//!
//! A table is opened for iteration only when the iterator reaches it, and its blocks are released
//! when the iterator leaves it. An iterator over a run of a thousand tables therefore holds one
//! block. A limit keeps it from reading tables that a scan or a slice of a compaction does not
//! need.
//!
//! Tombstones that a scan passes are counted for their table ([`EntryIter::note_tombstone`]), and
//! added to its statistics once, when the iterator leaves it.
//!
//! Range tombstones are not included; see [`crate::version::Run::tombstones`].

mod cold;
mod reached;
mod reads;

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{
    Copies, CopyEnd, CopyLimits, EntryIter, EntryView, Error, Result, Seeking, TableIter, ValueFile,
    ValueFileRef, Walk,
};

pub use self::cold::SeekPart;
use crate::lookup::candidate::Verdict;
use crate::version::{KeyRange, Run, TableUse};

/// The tables of a run iterator: those of a run, which is kept alive, or a list of their own.
pub trait TableList: Send {
    /// The tables, ascending and disjoint.
    fn tables(&self) -> &[TableUse];

    /// The number of the first table that does not lie wholly below `key`.
    fn first_reaching(&self, key: &[u8]) -> usize {
        self.tables().partition_point(|table| !table.range.is_above(key))
    }
}

impl TableList for Arc<Run> {
    fn tables(&self) -> &[TableUse] {
        Run::tables(self)
    }

    fn first_reaching(&self, key: &[u8]) -> usize {
        Run::first_reaching(self, key)
    }
}

impl TableList for Vec<TableUse> {
    fn tables(&self) -> &[TableUse] {
        self
    }
}

/// Iterates over the entries of a sorted list of tables.
pub struct RunIter<L: TableList> {
    tables: L,
    limit: KeyRange,
    walk: Walk,
    /// The table that was entered last.
    open: Option<Open>,
    /// Whether the iterator is at an entry of it.
    valid: bool,
    /// Whether the next table that is searched counts the seek in its statistics.
    notes_seek: bool,
    /// Whether the next table that is searched counts a lookup, and the verdict of its filter.
    notes_lookup: Option<Verdict>,
    /// Tombstones passed in the open table.
    tombstones_passed: u64,
    /// Whether the iterator may hold blocks.
    holds: bool,
}

/// The steps of a seek in a run: the table, then those in the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSeeking {
    /// Whether the table was searched.
    is_begun: bool,
    /// The first table that does not lie wholly below the key.
    index: usize,
    /// Whether the key lies in that table, and it is open: then further steps are taken in it.
    is_in_table: bool,
    within: Seeking,
}

impl RunSeeking {
    /// Whether the steps have come to the block in which the seek ends.
    pub fn has_block(&self) -> bool {
        self.is_in_table && self.within.has_block()
    }
}

/// The table that the iterator is in.
struct Open {
    index: usize,
    iter: TableIter,
    /// Bounds of the iterator within the table. `None` where the file itself has no entry beyond
    /// the bound: then nothing is compared at each step.
    lower: Option<Bytes>,
    upper: Option<Bytes>,
}

impl<L: TableList> RunIter<L> {
    /// An iterator over the entries of `tables` whose keys lie in `limit`; `walk` is how tables are
    /// read.
    pub fn new(tables: L, limit: KeyRange, walk: Walk) -> Self {
        Self {
            tables,
            limit,
            walk,
            open: None,
            valid: false,
            notes_seek: false,
            notes_lookup: None,
            tombstones_passed: 0,
            holds: false,
        }
    }

    /// Starts again with other limits, like a new iterator, but keeps its memory.
    pub fn restart(&mut self, limit: KeyRange, walk: Walk) {
        self.release();
        if self.walk != walk {
            self.open = None;
        }
        if self.limit != limit {
            if let Some(open) = &mut self.open {
                open.index = usize::MAX; // Its bounds are to be made anew.
            }
        }
        (self.limit, self.walk) = (limit, walk);
        debug_assert!(!self.valid, "a restarted iterator has a position");
    }

    /// Leaves the run out until the next restart: no key is in its range, and nothing is read.
    pub fn leave_out(&mut self) {
        self.restart(KeyRange::nothing(), self.walk);
    }

    /// Releases the current blocks. The iterator has no position until it is sought.
    pub fn release(&mut self) {
        self.count_tombstones();
        self.valid = false;
        if !std::mem::take(&mut self.holds) {
            return;
        }
        if let Some(open) = &mut self.open {
            open.iter.release();
        }
    }

    /// Adds the tombstones passed so far to the statistics of their table.
    #[inline]
    fn count_tombstones(&mut self) {
        if self.tombstones_passed > 0 {
            let passed = std::mem::take(&mut self.tombstones_passed);
            if let Some(table) = self.open.as_ref().and_then(|open| self.tables.tables().get(open.index)) {
                table.meta.statistics.add_tombstones_passed(passed);
            }
        }
    }

    /// Sets whether the next table that is searched counts the seek, whatever the search finds. At
    /// most one table counts it.
    pub fn note_seek(&mut self, notes: bool) {
        self.notes_seek = notes;
        self.notes_lookup = self.notes_lookup.filter(|_| notes);
    }

    /// Lets the next table that counts a seek also count a lookup, of which its filter said
    /// `verdict`: it finds its key if the table has an entry in the range.
    pub fn note_lookup(&mut self, verdict: Verdict) {
        debug_assert!(verdict != Verdict::No, "a run is sought that its filter denies");
        self.notes_lookup = Some(verdict);
    }

    /// Counts the seek at the current table, if a partition of its index was searched. `is_there`:
    /// it led to an entry.
    #[cold]
    fn noted(&mut self, is_there: bool) {
        let Some(open) = &self.open else { return };
        if let Some(table) = self.tables.tables().get(open.index) {
            if let Some(verdict) = self.notes_lookup.take() {
                table.meta.statistics.count_searched(verdict == Verdict::Maybe, is_there);
            }
            if open.iter.note_index_search() {
                table.meta.statistics.note_seek();
                self.notes_seek = false;
            }
        }
    }

    /// Enters table `index`; opens it unless it is the current one.
    fn enter(&mut self, index: usize) -> Result<&mut Open> {
        if self.open.as_ref().is_none_or(|open| open.index != index) {
            self.open_table(index)?;
        }
        self.open.as_mut().ok_or_else(|| Error::Invalid("no table is open".to_owned()))
    }

    fn open_table(&mut self, index: usize) -> Result<()> {
        debug_assert!(index < self.tables.tables().len(), "table {index} of {}", self.tables.tables().len());
        self.count_tombstones();
        let table = &self.tables.tables()[index];
        let reader = table.meta.open()?;
        let lower = (&table.range.lower).max(&self.limit.lower);
        let lower = (*lower > table.meta.smallest).then(|| lower.clone());
        debug_assert!(
            self.limit.overlaps(&table.range),
            "a table is opened that lies outside the iterator's limit"
        );
        let upper = tighter(table.range.upper.as_ref(), self.limit.upper.as_ref());
        let upper = upper.filter(|upper| table.meta.upper.as_ref().is_none_or(|end| *upper < end)).cloned();
        match &mut self.open {
            Some(open) => {
                // The existing iterator already has its buffers.
                open.iter.move_to(reader);
                (open.index, open.lower, open.upper) = (index, lower, upper);
            }
            None => self.open = Some(Open { index, iter: reader.walk(self.walk), lower, upper }),
        }
        Ok(())
    }

    /// Takes the next step of a seek to `(key, seq)`, as [`TableIter::seek_step`]. The iterator is
    /// invalid afterwards.
    pub fn seek_step(&mut self, key: &[u8], seq: SeqNo, seeking: &mut RunSeeking) {
        if seeking.is_begun {
            if let Some(open) = self.open.as_mut().filter(|_| seeking.is_in_table) {
                open.iter.seek_step(key, seq, &mut seeking.within);
            }
            return;
        }
        (self.valid, seeking.is_begun) = (false, true);
        let index = self.tables.first_reaching(key);
        seeking.index = index;
        let is_within = |table: &TableUse| {
            table.range.lower.as_ref() <= key && self.limit.lower.as_ref() <= key && self.limit.is_above(key)
        };
        if self.tables.tables().get(index).is_some_and(is_within) {
            self.holds = true;
            // A table that cannot be opened is reported by the seek.
            if let Ok(open) = self.enter(index) {
                open.iter.seek_step(key, seq, &mut seeking.within);
                seeking.is_in_table = true;
            }
        }
    }

    /// Seeks `(key, seq)`, from where the steps of that seek have come.
    pub fn seek_from_step(&mut self, key: &[u8], seq: SeqNo, seeking: &RunSeeking) -> Result<()> {
        debug_assert!(seeking.is_begun, "a seek goes on that has not begun");
        if key < self.limit.lower.as_ref() {
            return self.seek(key, seq);
        }
        let Some(open) = self.open.as_mut().filter(|_| seeking.is_in_table) else {
            self.seek_from(seeking.index, Some((key, seq)))?;
            return self.check_reached(key, seq);
        };
        debug_assert_eq!(open.index, seeking.index, "another table was opened between the steps");
        (self.valid, self.holds) = (false, true);
        open.iter.seek_from_step(key, seq, seeking.within)?;
        self.settle_or_go_on(seeking.index)?;
        self.check_reached(key, seq)
    }

    /// Ends a seek in table `index`, which is the open one: goes on to the next table if it has no
    /// entry there.
    fn settle_or_go_on(&mut self, index: usize) -> Result<()> {
        let is_there = self.open.as_ref().is_some_and(Open::holds_up_to_here);
        if self.notes_seek {
            self.noted(is_there);
        }
        self.valid = is_there;
        if is_there { Ok(()) } else { self.seek_from(index + 1, None) }
    }

    /// Goes to the first entry at or after `target` in table `index` or a later one.
    fn seek_from(&mut self, mut index: usize, mut target: Option<(&[u8], SeqNo)>) -> Result<()> {
        (self.valid, self.holds) = (false, true);
        while let Some(table) = self.tables.tables().get(index) {
            if !self.limit.is_above(&table.range.lower) {
                break;
            }
            let open = self.enter(index)?;
            match (target.take(), &open.lower) {
                (Some((key, seq)), lower) if lower.as_ref().is_none_or(|lower| lower.as_ref() <= key) => {
                    open.iter.seek(key, seq)?;
                }
                (_, Some(lower)) => open.iter.seek(lower, SeqNo::MAX)?,
                (_, None) => open.iter.seek_to_first()?,
            }
            let is_there = open.holds_up_to_here();
            if self.notes_seek {
                self.noted(is_there);
            }
            if is_there {
                self.valid = true;
                return Ok(());
            }
            index += 1;
        }
        self.release();
        Ok(())
    }

    /// Goes to the last entry at or before `target` in a table before table `end`.
    fn seek_back_from(&mut self, mut end: usize, mut target: Option<(&[u8], SeqNo)>) -> Result<()> {
        (self.valid, self.holds) = (false, true);
        while let Some(index) = end.checked_sub(1) {
            let table = self.tables.tables().get(index);
            if table.is_none_or(|table| !table.range.is_above(&self.limit.lower)) {
                break;
            }
            let open = self.enter(index)?;
            match (target.take(), &open.upper) {
                (Some((key, seq)), upper) if upper.as_ref().is_none_or(|upper| key < upper.as_ref()) => {
                    open.iter.seek_for_prev(key, seq)?;
                }
                // No entry has the maximum sequence number, so this is the last entry below the
                // bound.
                (_, Some(upper)) => open.iter.seek_for_prev(upper, SeqNo::MAX)?,
                (_, None) => open.iter.seek_to_last()?,
            }
            let is_there = open.holds_down_to_here();
            if self.notes_seek {
                self.noted(is_there);
            }
            if is_there {
                self.valid = true;
                return Ok(());
            }
            end = index;
        }
        self.release();
        Ok(())
    }

    /// As [`TableIter::walk_on`], from table to table. Counts the tombstones for which `each`
    /// returned true as passed.
    #[inline]
    pub fn walk_on(&mut self, mut each: impl FnMut(EntryView<'_>) -> bool) -> Result<bool> {
        while let Some(open) = self.open.as_mut().filter(|_| self.valid) {
            self.valid = false;
            let (mut passed, mut is_beyond) = (0, false);
            let Open { index, iter, upper, .. } = open;
            let stopped = iter.walk_on(|entry| {
                if upper.as_ref().is_some_and(|upper| entry.key >= upper.as_ref()) {
                    is_beyond = true;
                    return false;
                }
                let goes_on = each(entry);
                passed += u64::from(goes_on && entry.kind == EntryKind::Delete);
                goes_on
            });
            debug_assert!(*index != usize::MAX, "an iterator is moved in a table without bounds");
            let after = *index + 1;
            self.tombstones_passed += passed;
            if stopped? && !is_beyond {
                self.valid = true;
                return Ok(true);
            }
            self.seek_from(after, None)?;
        }
        Ok(false)
    }

    /// As [`TableIter::copy_on`], from table to table. If the copy ends because there is room for
    /// no more, the iterator may have ended too.
    pub fn copy_on(&mut self, out: &mut Copies, limits: &CopyLimits<'_>) -> Result<CopyEnd> {
        while let Some(Open { index, iter, upper, .. }) = self.open.as_mut().filter(|_| self.valid) {
            self.valid = false;
            let upper = upper.as_deref();
            let within = match (upper, limits.upper) {
                (Some(own), Some(upper)) => Some(own.min(upper)),
                (own, upper) => own.or(upper),
            };
            // Most readers see all entries of a table: then no entry is asked for its number.
            let table = self.tables.tables().get(*index);
            let sees_all = table.is_some_and(|table| table.meta.largest_seq <= limits.seq);
            let seq = if sees_all { SeqNo::MAX } else { limits.seq };
            let end = iter.copy_on(out, &CopyLimits { seq, upper: within, ..*limits })?;
            debug_assert!(*index != usize::MAX, "an iterator is moved in a table without bounds");
            // The entry at which the copy ended may be one that the run does not use.
            let is_at_entry = end != CopyEnd::Ended && upper.is_none_or(|upper| iter.key() < upper);
            if is_at_entry {
                self.valid = true;
                return Ok(end);
            }
            let after = *index + 1;
            self.seek_from(after, None)?;
            if end == CopyEnd::Full {
                return Ok(end);
            }
        }
        Ok(CopyEnd::Ended)
    }

    /// The table of the current entry.
    pub fn table(&self) -> Option<&TableUse> {
        let open = self.open.as_ref().filter(|_| self.valid)?;
        self.tables.tables().get(open.index)
    }

    /// The current table, if the current entry is not newer than `floor`.
    #[inline]
    fn hidden_at(&self, floor: SeqNo) -> Option<usize> {
        let open = self.open.as_ref().filter(|_| self.valid)?;
        (open.iter.seq() <= floor).then_some(open.index)
    }

    #[inline]
    fn at_entry(&self) -> &TableIter {
        debug_assert!(self.valid, "an iterator without a position is read");
        &self.open.as_ref().expect("only called when valid").iter
    }
}

impl<L: TableList> Drop for RunIter<L> {
    fn drop(&mut self) {
        self.count_tombstones();
    }
}

impl Open {
    fn holds_up_to_here(&self) -> bool {
        self.iter.valid() && self.upper.as_ref().is_none_or(|upper| self.iter.key() < upper.as_ref())
    }

    fn holds_down_to_here(&self) -> bool {
        self.iter.valid() && self.lower.as_ref().is_none_or(|lower| lower.as_ref() <= self.iter.key())
    }
}

/// The smaller of two exclusive upper bounds.
fn tighter<'a>(a: Option<&'a Bytes>, b: Option<&'a Bytes>) -> Option<&'a Bytes> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

impl<L: TableList> EntryIter for RunIter<L> {
    fn seek_to_first(&mut self) -> Result<()> {
        let first = self.tables.first_reaching(&self.limit.lower);
        self.seek_from(first, None)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let end = self.tables.tables().partition_point(|table| self.limit.is_above(&table.range.lower));
        self.seek_back_from(end, None)
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if key < self.limit.lower.as_ref() {
            return self.seek_to_first();
        }
        let index = self.tables.first_reaching(key);
        self.seek_from(index, Some((key, seq)))?;
        self.check_reached(key, seq)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if !self.limit.is_above(key) {
            return self.seek_to_last();
        }
        let end = self.tables.tables().partition_point(|table| table.range.lower.as_ref() <= key);
        self.seek_back_from(end, Some((key, seq)))?;
        self.check_reached_back(key, seq)
    }

    #[inline]
    fn view(&self) -> EntryView<'_> {
        self.at_entry().view()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| self.valid) else { return Ok(()) };
        self.valid = false;
        open.iter.next()?;
        if open.holds_up_to_here() {
            self.valid = true;
            return Ok(());
        }
        debug_assert!(open.index != usize::MAX, "an iterator is moved in a table without bounds");
        let after = open.index + 1;
        self.seek_from(after, None)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| self.valid) else { return Ok(()) };
        self.valid = false;
        open.iter.prev()?;
        if open.holds_down_to_here() {
            self.valid = true;
            return Ok(());
        }
        debug_assert!(open.index != usize::MAX, "an iterator is moved in a table without bounds");
        let before = open.index;
        self.seek_back_from(before, None)
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        let is_before_end = |key: &[u8]| end.is_none_or(|end| key < end);
        while let Some(index) = self.hidden_at(floor).filter(|_| is_before_end(self.key())) {
            let tables = self.tables.tables();
            // Tables without a newer entry are not read.
            let is_passed = |table: &TableUse| {
                let ends = end.is_none_or(|end| table.range.upper.as_ref().is_some_and(|upper| upper <= end));
                ends && table.meta.largest_seq <= floor
            };
            let passed = tables[index..].iter().take_while(|table| is_passed(table)).count();
            match end {
                _ if passed > 0 => self.seek_from(index + passed, None)?,
                Some(end) if tables[index].meta.largest_seq <= floor => return self.seek(end, SeqNo::MAX),
                _ => self.next()?,
            }
        }
        Ok(())
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        while let Some(index) = self.hidden_at(floor).filter(|_| start <= self.key()) {
            let tables = self.tables.tables();
            let is_passed =
                |table: &TableUse| start <= table.range.lower.as_ref() && table.meta.largest_seq <= floor;
            let passed = tables[..=index].iter().rev().take_while(|table| is_passed(table)).count();
            if passed > 0 {
                self.seek_back_from(index + 1 - passed, None)?;
            } else if tables[index].meta.largest_seq <= floor {
                return self.seek_for_prev(start, SeqNo::MAX);
            } else {
                self.prev()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn note_tombstone(&mut self) {
        self.tombstones_passed += 1;
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.at_entry().key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.at_entry().seq()
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        self.at_entry().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.at_entry().value()
    }

    fn value_bytes(&self) -> Bytes {
        self.at_entry().value_bytes()
    }

    fn value_bytes_len(&self) -> Result<u64> {
        self.at_entry().value_bytes_len()
    }

    fn separated(&self) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        self.at_entry().separated()
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.at_entry().read_value(sink)
    }
}

#[cfg(test)]
mod tests;
