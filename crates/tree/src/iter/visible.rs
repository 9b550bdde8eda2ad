//! The entries that one reader sees: a merge of all sources, reduced to each key's newest visible
//! value.
//!
//! For each user key the newest version with a sequence number up to the reader's decides. If it is
//! a put and no range tombstone visible to the reader is newer, the key is returned; otherwise it
//! is hidden. Range tombstones are looked up once per range of keys with the same result
//! ([`shamba_table::Cover`]).
//!
//! A call finds as many entries as its [`Batch`] was begun for. Between calls, with `k` the last
//! key found, the merging iterator is:
//! - after a *forward* call, at an entry of `k`, or at the first entry after them;
//! - after a *backward* call, at the last entry before all of `k`'s (there may be none).
//!
//! Two rules bound the number of steps. Versions of one key are stepped over only
//! `STEPS_BEFORE_SEEK` times, then the iterator seeks past them. After as many keys below a range
//! tombstone, every source goes on to its next entry that is newer than the tombstone or beyond its
//! end, without a step for each entry that it covers ([`EntryIter::skip_hidden`]).
//!
//! Where the newest version is an operand of a merge operator, the operands below it are folded
//! (`fold`). Where its value is stored elsewhere, it is read, or noted to be read with those of
//! other entries (`elsewhere`).
//!
//! The bounds that callers write are in `key_range`. What an idle scan keeps is decided in
//! [`super::scan`].

mod advance;
mod elsewhere;
mod fold;
mod prefixes;
mod reads;
mod tombstones;

use std::sync::Arc;

use shamba_key::{EntryKind, Expiry, SeqNo};
use shamba_table::{EntryIter, EntryView, Walk};

use self::advance::{Advance, Step};
use self::elsewhere::{Place, take_later};
use self::tombstones::Tombstones;
use super::batch::Batch;
use super::merge::{Hidden, MergeIter};
use super::run_iter::RunIter;
use super::source::Source;
use crate::error::Result;
use crate::expiry::kind_at;
use crate::lookup::pool::ReadPool;
use crate::version::KeyRange;
use crate::view::View;
use shamba_memtable::Memtable;

/// Steps over versions of one key, or over keys below one tombstone, after which a seek is tried.
/// That many steps cost about as much as a seek into a few sources.
pub(super) const STEPS_BEFORE_SEEK: u32 = 16;
/// Adjoining ranges below newer tombstones are skipped together; this is their maximum number per
/// skip.
const COVERS_PER_SKIP: u32 = 256;
const _: () = assert!(STEPS_BEFORE_SEEK > 0 && COVERS_PER_SKIP > 0, "every bound allows a step");

/// The visible keys and values of one view, at one sequence number, within a range.
pub struct VisibleIter {
    view: Arc<View>,
    seq: SeqNo,
    /// The time by which expiry is judged.
    time_ms: u64,
    range: KeyRange,
    merge: MergeIter,
    came: Came,
    /// The key at which the last step began; after a forward call the last key found.
    key: Vec<u8>,
    /// For each memtable, its largest sequence number before its iterator was made.
    seen: Vec<SeqNo>,
    tombstones: Tombstones,
    advance: Advance,
    reads_values: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Forward,
    Backward,
}

impl VisibleIter {
    /// An iterator without a position. Nothing is read until it is sought.
    pub fn new(view: Arc<View>, seq: SeqNo, range: KeyRange, walk: Walk) -> Self {
        let mut sources: Vec<Source> = Vec::with_capacity(view.memtables.len() + view.plans().len());
        let seen = view.memtables.iter().map(|memtable| memtable.largest_seq()).collect();
        sources.extend(view.memtables.iter().map(memtable_source));
        for plan in view.plans() {
            sources.push(Source::Run(RunIter::new(Arc::clone(&plan.run), range.clone(), walk)));
        }
        assert_eq!(
            sources.len(),
            view.memtables.len() + view.plans().len(),
            "one source for each memtable and each run"
        );
        let merge = MergeIter::new(sources);
        let tombstones = Tombstones::of(&view, seq);
        let (came, key, reads_values, time_ms) = (Came::Forward, Vec::new(), true, 0);
        let advance = Advance::default();
        Self { view, seq, time_ms, range, merge, came, key, seen, tombstones, advance, reads_values }
    }

    /// Sets the time by which expiry is judged, in milliseconds since 1970-01-01 UTC; 0 unless set.
    pub fn judge_expiry_at(&mut self, time_ms: u64) {
        self.time_ms = time_ms;
    }

    /// The kind that the current entry has for the reader: an expired one is a tombstone.
    #[inline]
    fn kind(&self) -> Result<EntryKind> {
        let kind = self.merge.kind();
        if !kind.has_expiry() {
            return Ok(kind);
        }
        kind_at(self.merge.key(), kind, self.merge.value(), || self.time_ms)
    }

    /// Sets whether values are wanted (by default they are). Otherwise some entries come with
    /// another value, or without one.
    pub fn read_values(&mut self, reads_values: bool) {
        self.reads_values = reads_values;
    }

    /// Starts again like a new iterator of the same view, but keeps the memory and the sources.
    pub fn restart(&mut self, seq: SeqNo, range: KeyRange, walk: Walk) {
        debug_assert_eq!(self.seen.len(), self.view.memtables.len(), "one sequence number for each memtable");
        let memtables = &self.view.memtables;
        let mut grown = false;
        self.merge.restart(|number, source| match (source, memtables.get(number)) {
            (Source::Run(run), _) => run.restart(range.clone(), walk),
            (source, Some(memtable)) => {
                // An iterator over a memtable sees the entries at the time of its first seek. That
                // is enough as long as nothing was inserted since the iterator was made.
                let largest = memtable.largest_seq();
                if self.seen.get(number) != Some(&largest) {
                    grown = true;
                    *source = memtable_source(memtable);
                    self.seen[number] = largest;
                }
            }
            _ => {}
        });
        if grown {
            self.tombstones = Tombstones::of(&self.view, seq);
        }
        (self.tombstones.visible, self.tombstones.cover) = (seq, None);
        (self.seq, self.range, self.came) = (seq, range, Came::Forward);
        self.advance.restart();
    }

    /// Releases all blocks. The iterator has no position until it is sought or restarted.
    pub fn release(&mut self) {
        self.merge.restart(|_, source| {
            if let Source::Run(run) = source {
                run.release();
            }
        });
    }

    /// Approximate memory, not counting blocks.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.merge.memory_bytes()
    }

    /// Sets whether the next seek is counted at the first table that it searches in each run.
    pub fn note_seek(&mut self, notes: bool) {
        for source in self.merge.sources() {
            if let Source::Run(run) = source {
                run.note_seek(notes);
            }
        }
    }

    /// The view that the iterator keeps alive.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Goes to the first visible key at or after `key`. Puts it and the following entries into
    /// `out`, as many as `out` was begun for: those that are needed, and those that are welcome as
    /// far as they are in the blocks at hand. Like every call below, returns whether there is any
    /// entry. The iterator is then at or after the last entry in `out`. After an error `out`
    /// holds what was found before it. With `pool`, what the runs have to read for the seek is read
    /// for all of them at once; the same holds for the seeks below.
    pub fn seek(&mut self, key: &[u8], pool: Option<&ReadPool>, out: &mut Batch) -> Result<bool> {
        let key = key.max(self.range.lower.as_ref());
        self.advance.restart();
        self.merge.seek_with(key, SeqNo::MAX, pool)?;
        self.find_forward(out)
    }

    /// Goes to the last visible key at or before `key`. In `out` it is followed by the entries that
    /// precede it in key order. The same holds for the calls below that go backward.
    pub fn seek_for_prev(&mut self, key: &[u8], pool: Option<&ReadPool>, out: &mut Batch) -> Result<bool> {
        if !self.range.is_above(key) {
            return self.seek_to_last(out);
        }
        self.advance.restart();
        // A key's last entry has its smallest sequence number, and 0 is below every write.
        self.merge.seek_for_prev_with(key, SeqNo::ZERO, pool)?;
        self.find_backward(out)
    }

    /// Goes to the first visible key.
    pub fn seek_to_first(&mut self, pool: Option<&ReadPool>, out: &mut Batch) -> Result<bool> {
        self.seek(&[], pool, out)
    }

    /// Goes to the last visible key.
    pub fn seek_to_last(&mut self, out: &mut Batch) -> Result<bool> {
        self.advance.restart();
        match &self.range.upper {
            Some(upper) => self.merge.seek_for_prev(upper, SeqNo::MAX)?,
            None => self.merge.seek_to_last()?,
        }
        self.find_backward(out)
    }

    /// Continues after the last entry of a forward call.
    pub fn next(&mut self, out: &mut Batch) -> Result<bool> {
        debug_assert!(self.came == Came::Forward, "turning round is a seek");
        if self.merge.valid() && self.merge.key() == self.key {
            self.leave_forward()?;
        }
        self.find_forward(out)
    }

    /// Continues before the last entry of a backward call.
    pub fn prev(&mut self, out: &mut Batch) -> Result<bool> {
        debug_assert!(self.came == Came::Backward, "turning round is a seek");
        self.find_backward(out)
    }

    /// Goes to the first visible key after `key`, whatever the iterator's position.
    pub fn seek_after(&mut self, key: &[u8], pool: Option<&ReadPool>, out: &mut Batch) -> Result<bool> {
        self.advance.restart();
        self.merge.seek_with(key, SeqNo::ZERO, pool)?;
        self.find_forward(out)
    }

    /// Goes to the last visible key before `key`, whatever the iterator's position.
    pub fn seek_before(&mut self, key: &[u8], pool: Option<&ReadPool>, out: &mut Batch) -> Result<bool> {
        self.advance.restart();
        self.merge.seek_for_prev_with(key, SeqNo::MAX, pool)?;
        self.find_backward(out)
    }

    /// Finds visible keys forward from the current entry until `out` has enough.
    fn find_forward(&mut self, out: &mut Batch) -> Result<bool> {
        self.came = Came::Forward;
        let mut covered = 0;
        // After an entry whose value is stored elsewhere another one is expected.
        let mut was_large = false;
        loop {
            if !was_large && self.tombstones.lists.is_empty() && self.find_plain(out)? {
                return Ok(true);
            }
            was_large = false;
            if !self.merge.valid() || !self.range.is_above(self.merge.key()) {
                break;
            }
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            if self.merge.seq() > self.seq {
                self.pass_newer()?;
                continue;
            }
            let floor = self.tombstones.floor(&self.key);
            debug_assert!(self.merge.seq() <= self.seq, "a reader at {} sees {}", self.seq, self.merge.seq());
            let hidden = self.merge.seq() <= floor;
            let kind = if hidden { EntryKind::Delete } else { self.kind()? };
            let is_present = kind.is_put() || kind == EntryKind::Merge;
            if !hidden && is_present && !self.reads_values {
                out.push_without_value(&self.key);
                if out.has_enough() {
                    return Ok(true);
                }
            } else if !hidden && kind.is_put() {
                out.push(&self.merge);
                if kind.is_large() {
                    self.take_large(kind, out)?;
                    was_large = true;
                }
                if out.has_enough() {
                    return Ok(true);
                }
            } else if !hidden && kind == EntryKind::Merge {
                self.fold(floor, out)?;
                if out.has_enough() {
                    return Ok(true);
                }
                if !(self.merge.valid() && self.merge.key() == self.key) {
                    continue;
                }
            } else if !hidden {
                self.merge.note_tombstone();
            } else {
                covered += 1;
                if covered == STEPS_BEFORE_SEEK {
                    covered = 0;
                    self.skip(floor)?;
                    continue;
                }
            }
            self.leave_forward()?;
        }
        Ok(out.len() > 0)
    }

    /// Fast path of [`Self::find_forward`]: finds visible keys as long as all entries are plain
    /// puts and deletes that the reader sees, and each key is new. Returns true if the call ends
    /// with it. Otherwise the merging iterator is at an entry that needs the general path, or at
    /// none.
    fn find_plain(&mut self, out: &mut Batch) -> Result<bool> {
        /// The place of the key whose older versions are to be skipped.
        enum Left {
            /// In `out`, if it has entries; none was passed in this walk.
            Nowhere,
            InOut,
            InKey,
        }
        /// Reason why the walk ended.
        enum End {
            /// The entry needs the general path, or there is none.
            General,
            /// `out` has enough. The iterator is at an entry of its last key, or at the first entry
            /// after them.
            Enough,
            /// The tombstones or versions for which the copy ended have been passed, and another
            /// one can begin.
            Copyable,
        }
        loop {
            // Most entries are plain puts.
            let (copies, limits) = out.copies(self.seq, self.range.upper.as_deref());
            if self.merge.copy(copies, &limits)? {
                self.key.clear();
                self.key.extend_from_slice(out.last_key());
                return Ok(true);
            }
            let (mut left, mut versions, mut ended) = (Left::Nowhere, 0, End::General);
            let (key, range, seq, time_ms) = (&mut self.key, &self.range, self.seq, self.time_ms);
            self.merge.walk(|entry| {
                let entry = match entry.kind {
                    EntryKind::PutWithExpiry => without_expiry(entry, time_ms),
                    _ => entry,
                };
                let is_older = match left {
                    Left::Nowhere => out.len() > 0 && out.ends_with_key(entry.key),
                    Left::InOut => out.ends_with_key(entry.key),
                    Left::InKey => key == entry.key,
                };
                // Entries that were not asked for are found only where they cost little.
                let pauses = entry.is_last_at_hand && out.has_enough();
                if is_older {
                    versions += 1;
                    if pauses {
                        ended = End::Enough;
                        return false;
                    }
                    return versions < STEPS_BEFORE_SEEK;
                }
                let has_passed = matches!(left, Left::InKey) || versions > 0;
                if has_passed && !matches!(left, Left::InOut) && entry.kind == EntryKind::Put {
                    ended = End::Copyable;
                    return false;
                }
                let is_plain = entry.seq <= seq && range.is_above(entry.key);
                match entry.kind {
                    EntryKind::Put if is_plain && out.push_short(entry) => {
                        (left, versions) = (Left::InOut, 0);
                        if out.is_full() || (entry.is_last_at_hand && out.has_enough()) {
                            ended = End::Enough;
                            return false;
                        }
                        true
                    }
                    EntryKind::Delete if is_plain && !out.has_enough() => {
                        key.clear();
                        key.extend_from_slice(entry.key);
                        (left, versions) = (Left::InKey, 0);
                        true
                    }
                    _ => {
                        if out.has_enough() {
                            ended = End::Enough;
                        }
                        false
                    }
                }
            })?;
            let is_many = versions == STEPS_BEFORE_SEEK;
            if matches!(ended, End::Enough) || (is_many && !matches!(left, Left::InKey)) {
                self.key.clear();
                self.key.extend_from_slice(out.last_key());
            }
            match ended {
                End::Enough => return Ok(true),
                End::Copyable => {}
                End::General if is_many && out.has_enough() => return Ok(true),
                End::General if is_many => self.seek_past_older()?,
                End::General => return Ok(false),
            }
        }
    }

    /// Skips all remaining versions of the current key; the merging iterator is at one of them.
    #[inline]
    fn leave_forward(&mut self) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(());
            }
        }
        self.seek_past_older()
    }

    /// Skips the versions of the current key that are too new for the reader; the merging iterator
    /// is at one of them.
    fn pass_newer(&mut self) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.seq() <= self.seq || self.merge.key() != self.key {
                return Ok(());
            }
        }
        self.advance(Step::PastNewer)?;
        Ok(self.merge.seek(&self.key, self.seq)?)
    }

    /// Moves all sources past what range tombstones hide from the current key on. The newest one
    /// over it is `floor`.
    fn skip(&mut self, floor: SeqNo) -> Result<()> {
        debug_assert!(floor <= self.seq, "a reader at {} skips by the newer tombstone {floor}", self.seq);
        self.advance(Step::PastHidden)?;
        let near = self.tombstones.reach(self.came, &self.key, floor);
        // Sources that a tombstone hides altogether go on together below all tombstones that do.
        let lowest = self.tombstones.lowest_like(floor, &self.view);
        let wide = lowest.map(|lowest| (lowest, self.tombstones.reach(self.came, &self.key, lowest)));
        let tombstones = &self.tombstones;
        Ok(self.merge.skip_hidden(|source| match &wide {
            Some((lowest, bound)) if tombstones.crosses(source, *lowest) => {
                Hidden { bound: bound.as_deref(), floor: None }
            }
            _ => Hidden { bound: near.as_deref(), floor: Some(floor) },
        })?)
    }

    /// Finds visible keys backward from the current entry until `out` has enough.
    fn find_backward(&mut self, out: &mut Batch) -> Result<bool> {
        self.came = Came::Backward;
        let mut covered = 0;
        let mut place = None;
        while self.merge.valid() && self.range.lower.as_ref() <= self.merge.key() {
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            let floor = self.tombstones.floor(&self.key);
            let before = out.len();
            // Of a hidden version only the sequence number counts.
            let judge = |(seq, kind): (SeqNo, Result<EntryKind>)| match seq > floor {
                true => kind.map(|kind| (seq, kind)),
                false => Ok((seq, EntryKind::Delete)),
            };
            let newest =
                self.newest_backward(out, &mut place).and_then(|newest| newest.map(judge).transpose());
            // An entry in `out` is removed again if its newest version is not known or hides it.
            let shown = matches!(newest, Ok(Some((seq, kind))) if seq > floor && kind.is_put());
            if !shown && out.len() > before {
                out.pop();
            }
            match newest? {
                Some((seq, kind)) if seq > floor && !self.reads_values && kind != EntryKind::Delete => {
                    if shown {
                        out.pop();
                    }
                    out.push_without_value(&self.key);
                    if out.has_enough() {
                        return Ok(true);
                    }
                }
                Some((seq, _)) if seq <= floor => {
                    covered += 1;
                    if covered == STEPS_BEFORE_SEEK {
                        covered = 0;
                        self.skip(floor)?;
                    }
                }
                Some((_, kind)) if kind.in_value_file() => {
                    take_later(place.take(), kind, out)?;
                    if out.has_enough() {
                        return Ok(true);
                    }
                }
                Some((seq, kind)) if kind.is_large() => {
                    // The merging iterator has left the entry. A large value is read only once it
                    // is known to be the newest, and then a seek back costs little in comparison.
                    // Until then `out` holds a reference in its place, which must not be returned.
                    self.seek_back(seq, EntryKind::is_large).inspect_err(|_| out.pop())?;
                    self.put_together(out)?;
                    self.seek_before_key()?;
                    return Ok(true);
                }
                Some((seq, EntryKind::Merge)) => {
                    // The operands are folded from the newest on, and the merging iterator came
                    // from the oldest.
                    self.seek_back(seq, |kind| kind == EntryKind::Merge)?;
                    self.fold(floor, out)?;
                    self.seek_before_key()?;
                    if out.has_enough() {
                        return Ok(true);
                    }
                }
                Some((_, kind)) if kind.is_put() && out.has_enough() => return Ok(true),
                Some(_) | None => {}
            }
        }
        Ok(out.len() > 0)
    }

    /// Returns number and kind of the newest visible version of the current key.
    ///
    /// The merging iterator is at the key's oldest version, and afterwards at the last entry before
    /// the key. If a version is found, it has been added to `out`, whatever its kind. If its value
    /// is in a value file and is wanted, `place` is set.
    fn newest_backward(
        &mut self,
        out: &mut Batch,
        place: &mut Option<Place>,
    ) -> Result<Option<(SeqNo, Result<EntryKind>)>> {
        let mut newest = None;
        for _ in 0..STEPS_BEFORE_SEEK {
            if self.merge.seq() <= self.seq {
                self.take_version(&mut newest, place, out);
            }
            if self.merge.kind() == EntryKind::Delete {
                self.merge.note_tombstone();
            }
            self.merge.prev()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(newest);
            }
        }
        self.advance(Step::PastOlder)?;
        self.merge.seek(&self.key, self.seq)?;
        if self.merge.valid() && self.merge.key() == self.key {
            self.take_version(&mut newest, place, out);
        }
        self.merge.seek_for_prev(&self.key, SeqNo::MAX)?;
        Ok(newest)
    }

    /// Makes the current version the newest one found.
    #[inline]
    fn take_version(
        &self,
        newest: &mut Option<(SeqNo, Result<EntryKind>)>,
        place: &mut Option<Place>,
        out: &mut Batch,
    ) {
        if self.merge.kind().in_value_file() && self.reads_values {
            *place = Some(self.place());
        }
        if newest.replace((self.merge.seq(), self.kind())).is_none() {
            out.push(&self.merge);
        } else {
            out.set_value(&self.merge);
        }
    }
}

/// An entry with an expiry, as a reader at `time_ms` sees it: a put of what follows the expiry, or
/// a delete. Unchanged if its expiry cannot be read.
#[inline]
fn without_expiry(entry: EntryView<'_>, time_ms: u64) -> EntryView<'_> {
    match Expiry::split(entry.value) {
        Ok((expiry, _)) if expiry.is_past(time_ms) => {
            EntryView { kind: EntryKind::Delete, value: &[], ..entry }
        }
        Ok((_, value)) => EntryView { kind: EntryKind::Put, value, ..entry },
        Err(_) => entry,
    }
}

fn memtable_source(memtable: &Arc<dyn Memtable>) -> Source {
    // Entries inserted after this check are newer than what the reader sees.
    if memtable.entries() == 0 { Source::Nothing } else { Source::Other(Arc::clone(memtable).entries_iter()) }
}

#[cfg(test)]
mod hidden_tests;
#[cfg(test)]
mod tests;
