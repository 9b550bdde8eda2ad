//! What one reader sees: a merge of all sources, reduced to each key's newest visible value.
//!
//! Of each user key, the newest version with a sequence number up to the reader's counts. If it is a put, and
//! no range tombstone visible to the reader is newer, the key is shown; otherwise it is hidden. Range
//! tombstones are asked once per stretch of keys over which the answer is the same ([`Cover`]).
//!
//! A call finds as many entries as its [`Batch`] is begun for. Where the merge stands between calls, with `k`
//! the last key found:
//! - having come *forward*, at the entry that is shown for `k`;
//! - having come *backward*, at the last entry before all of `k`'s (there may be none).
//!
//! Two things keep walks short. Many versions of one key are stepped over only so far, then sought past. And
//! below a range tombstone, sources that hold nothing newer than it are sought to its end: one seek instead
//! of a step for each entry that it covers.
//!
//! Not here: bounds that callers write ([`crate::key_range`]), what survives while nobody looks
//! ([`super::scan`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{EntryIter, Walk};

use super::batch::Batch;
use super::merge::MergeIter;
use super::run_iter::RunIter;
use super::source::Source;
use crate::error::{Error, Result};
use crate::slice::Slice;
use crate::version::KeyRange;
use crate::view::View;
use shamba_key::planted::{Defect, is_planted};
use shamba_memtable::Memtable;
use shamba_table::{Cover, FragmentedTombstones};

/// After so many steps over versions of one key, or over keys below one tombstone, a seek is tried: about
/// where the steps have cost as much as a seek into a few sources does.
const STEPS_BEFORE_SEEK: u32 = 16;
/// Adjoining stretches below newer tombstones are crossed together, up to so many in one go.
const COVERS_PER_SKIP: u32 = 256;

/// The visible keys and values of one view, at one sequence number, within a range.
pub struct VisibleIter {
    view: Arc<View>,
    seq: SeqNo,
    range: KeyRange,
    merge: MergeIter,
    came: Came,
    /// The key that the last step began at.
    key: Vec<u8>,
    /// For each memtable, the largest number in it before its iterator was made.
    seen: Vec<SeqNo>,
    tombstones: Tombstones,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Forward,
    Backward,
}

impl VisibleIter {
    /// An iterator that stands nowhere. Nothing is read until it is sought.
    pub fn new(view: Arc<View>, seq: SeqNo, range: KeyRange, walk: Walk) -> Self {
        let mut sources: Vec<Source> = Vec::with_capacity(view.memtables.len() + view.plans().len());
        let seen = view.memtables.iter().map(|memtable| memtable.largest_seq()).collect();
        sources.extend(view.memtables.iter().map(memtable_source));
        for plan in view.plans() {
            sources.push(Source::Run(RunIter::new(Arc::clone(&plan.run), range.clone(), walk)));
        }
        let merge = MergeIter::new(sources);
        let tombstones = Tombstones::of(&view, seq);
        Self { view, seq, range, merge, came: Came::Forward, key: Vec::new(), seen, tombstones }
    }

    /// Starts over as a new iterator of the same view would, with the memory and the sources that this one has.
    pub fn restart(&mut self, seq: SeqNo, range: KeyRange, walk: Walk) {
        let memtables = &self.view.memtables;
        let mut grown = false;
        self.merge.restart(|number, source| match (source, memtables.get(number)) {
            (Source::Run(run), _) => run.restart(range.clone(), walk),
            (source, Some(memtable)) => {
                // An iterator over a memtable sees what was there when it was first sought: enough, as long as
                // nothing has come since it was made.
                let largest = memtable.largest_seq();
                if self.seen.get(number) != Some(&largest) && !is_planted(Defect::GrownMemtableMissed) {
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
    }

    /// Lets go of all blocks. The iterator stands nowhere, until it is sought or started over.
    pub fn let_go(&mut self) {
        self.merge.restart(|_, source| {
            if let Source::Run(run) = source {
                run.let_go();
            }
        });
    }

    /// About the memory that it takes, blocks apart.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.merge.memory_bytes()
    }

    /// Whether the next seek is counted at the table of each run that it searches first.
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

    /// Goes to the first visible key at or after `key` and puts it and what follows into `out`, which was begun
    /// for so many. Like every call below, tells whether there is any. The iterator then stands at the last
    /// entry in `out`. After an error `out` has what was found before it.
    pub fn seek(&mut self, key: &[u8], out: &mut Batch) -> Result<bool> {
        let key = key.max(self.range.lower.as_ref());
        self.merge.seek(key, SeqNo::MAX)?;
        self.find_forward(out)
    }

    /// Goes to the last visible key at or before `key`; what precedes it comes after it in `out`. So for the
    /// calls below that go backward.
    pub fn seek_for_prev(&mut self, key: &[u8], out: &mut Batch) -> Result<bool> {
        if !self.range.is_above(key) {
            return self.seek_to_last(out);
        }
        // The last place of a key is its smallest number, and 0 is below every write.
        self.merge.seek_for_prev(key, SeqNo::ZERO)?;
        self.find_backward(out)
    }

    /// Goes to the first visible key.
    pub fn seek_to_first(&mut self, out: &mut Batch) -> Result<bool> {
        self.seek(&[], out)
    }

    /// Goes to the last visible key.
    pub fn seek_to_last(&mut self, out: &mut Batch) -> Result<bool> {
        match &self.range.upper {
            Some(upper) if is_planted(Defect::UpperBoundIncluded) => {
                self.merge.seek_for_prev(upper, SeqNo::ZERO)?;
            }
            Some(upper) => self.merge.seek_for_prev(upper, SeqNo::MAX)?,
            None => self.merge.seek_to_last()?,
        }
        self.find_backward(out)
    }

    /// Goes on from the last entry that a call forward gave.
    pub fn next(&mut self, out: &mut Batch) -> Result<bool> {
        debug_assert!(self.came == Came::Forward, "turning round is a seek");
        self.leave_forward()?;
        self.find_forward(out)
    }

    /// Goes on from the last entry that a call backward gave.
    pub fn prev(&mut self, out: &mut Batch) -> Result<bool> {
        debug_assert!(self.came == Came::Backward, "turning round is a seek");
        self.find_backward(out)
    }

    /// Goes to the first visible key after `key`, wherever the iterator stands.
    pub fn seek_after(&mut self, key: &[u8], out: &mut Batch) -> Result<bool> {
        self.merge.seek(key, SeqNo::ZERO)?;
        self.find_forward(out)
    }

    /// Goes to the last visible key before `key`, wherever the iterator stands.
    pub fn seek_before(&mut self, key: &[u8], out: &mut Batch) -> Result<bool> {
        self.merge.seek_for_prev(key, SeqNo::MAX)?;
        self.find_backward(out)
    }

    /// From where the merge stands, finds visible keys forward until `out` is full.
    fn find_forward(&mut self, out: &mut Batch) -> Result<bool> {
        self.came = Came::Forward;
        let (mut covered, mut patience) = (0, STEPS_BEFORE_SEEK);
        loop {
            if self.tombstones.lists.is_empty() && self.find_plain(out)? {
                return Ok(true);
            }
            if !self.merge.valid() || !self.range.is_above(self.merge.key()) {
                break;
            }
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            if self.merge.seq() > self.seq {
                self.pass_newer()?;
                continue;
            }
            let kind = self.merge.kind();
            let floor = self.tombstones.floor(&self.key);
            let hidden = self.merge.seq() <= floor;
            if !hidden && matches!(kind, EntryKind::Put | EntryKind::ValueRef) {
                out.push(&self.merge);
                if kind == EntryKind::ValueRef {
                    self.put_together(out)?;
                }
                if out.is_full() {
                    return Ok(true);
                }
            } else if !hidden && kind != EntryKind::Delete {
                return Err(unsupported(kind, &self.key));
            } else if hidden {
                covered += 1;
                if covered == patience {
                    covered = 0;
                    let reach = self.tombstones.reach_forward(&self.key, floor, &self.view);
                    if self.skip(reach)? {
                        continue;
                    }
                    patience *= 2;
                }
            }
            self.leave_forward()?;
        }
        Ok(out.len() > 0)
    }

    /// Finds visible keys forward as long as there is nothing to it: entries that the reader sees, plain puts and
    /// deletes, of keys of which no version was met yet. True if that made `out` full; otherwise the merge stands at
    /// an entry that needs a closer look, or at none.
    fn find_plain(&mut self, out: &mut Batch) -> Result<bool> {
        /// Where the key is of which all further versions are to be left.
        enum Left {
            Nowhere,
            InOut,
            InKey,
        }
        loop {
            let (mut left, mut versions, mut is_full) = (Left::Nowhere, 0, false);
            let (key, range, seq) = (&mut self.key, &self.range, self.seq);
            self.merge.walk(|entry| {
                let is_older = match left {
                    Left::Nowhere => false,
                    Left::InOut => out.last_key() == entry.key,
                    Left::InKey => key == entry.key,
                };
                if is_older {
                    versions += 1;
                    return versions < STEPS_BEFORE_SEEK;
                }
                if entry.seq > seq || !range.is_above(entry.key) {
                    return false;
                }
                match entry.kind {
                    EntryKind::Put if out.push_short(entry) => {
                        (left, versions) = (Left::InOut, 0);
                        is_full = out.is_full();
                        !is_full
                    }
                    EntryKind::Delete => {
                        key.clear();
                        key.extend_from_slice(entry.key);
                        (left, versions) = (Left::InKey, 0);
                        true
                    }
                    _ => false,
                }
            })?;
            if is_full || (versions == STEPS_BEFORE_SEEK && matches!(left, Left::InOut)) {
                self.key.clear();
                self.key.extend_from_slice(out.last_key());
            }
            if is_full || versions < STEPS_BEFORE_SEEK {
                return Ok(is_full);
            }
            self.merge.seek(&self.key, SeqNo::ZERO)?;
        }
    }

    /// Leaves all remaining versions of the key at hand, at one of which the merge stands.
    #[inline]
    fn leave_forward(&mut self) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(());
            }
        }
        Ok(self.merge.seek(&self.key, SeqNo::ZERO)?)
    }

    /// Leaves the versions of the key at hand that the reader does not see, at one of which the merge stands.
    fn pass_newer(&mut self) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            self.merge.next()?;
            if !self.merge.valid() || self.merge.seq() <= self.seq || self.merge.key() != self.key {
                return Ok(());
            }
        }
        Ok(self.merge.seek(&self.key, self.seq)?)
    }

    /// Seeks what lies hidden within `reach` past it; whether anything did.
    fn skip(&mut self, reach: Option<Reach>) -> Result<bool> {
        let Some(Reach { end, floor }) = reach else { return Ok(false) };
        let tombstones = &self.tombstones;
        Ok(self.merge.skip(end.as_deref(), |source| tombstones.crosses(source, floor))?)
    }

    /// From where the merge stands, finds visible keys backward until `out` is full.
    fn find_backward(&mut self, out: &mut Batch) -> Result<bool> {
        self.came = Came::Backward;
        let (mut covered, mut patience) = (0, STEPS_BEFORE_SEEK);
        while self.merge.valid() && self.range.lower.as_ref() <= self.merge.key() {
            self.key.clear();
            self.key.extend_from_slice(self.merge.key());
            let floor = self.tombstones.floor(&self.key);
            let before = out.len();
            let newest = self.newest_backward(out);
            // What was put there for a key whose newest version is not known, or hides it, is none.
            let shown =
                matches!(newest, Ok(Some((seq, EntryKind::Put | EntryKind::ValueRef))) if seq > floor);
            if !shown && out.len() > before {
                out.pop();
            }
            match newest? {
                Some((seq, _)) if seq <= floor => {
                    covered += 1;
                    if covered == patience {
                        covered = 0;
                        let reach = self.tombstones.reach_backward(&self.key, floor, &self.view);
                        if !self.skip(reach)? {
                            patience *= 2;
                        }
                    }
                }
                Some((seq, EntryKind::ValueRef)) => {
                    // The merge has left it: a large value is worth going back, and not worth reading before it
                    // is known to be the newest. Until then `out` has a reference in its place, which nobody may see.
                    self.merge.seek(&self.key, seq).inspect_err(|_| out.pop())?;
                    self.put_together(out)?;
                    self.merge.seek_for_prev(&self.key, SeqNo::MAX)?;
                    return Ok(true);
                }
                Some((_, EntryKind::Put)) if out.is_full() => return Ok(true),
                Some((_, EntryKind::Put | EntryKind::Delete)) | None => {}
                Some((_, kind)) => return Err(unsupported(kind, &self.key)),
            }
        }
        Ok(out.len() > 0)
    }

    /// Reads the large value that the merge stands at into the last entry of `out`, which it makes full; takes the
    /// entry out if that fails.
    #[cold]
    fn put_together(&self, out: &mut Batch) -> Result<()> {
        let mut value = Vec::new();
        let read = self.merge.read_value(&mut |piece| {
            if value.is_empty() {
                // Only now: the first piece has shown that the length is no mere claim.
                value.reserve_exact(usize::try_from(self.merge.value_bytes_len()?).unwrap_or(0));
            }
            value.extend_from_slice(piece);
            Ok(())
        });
        match read {
            Ok(()) => out.set_long(Slice::from(value)),
            Err(_) => out.pop(),
        }
        Ok(read?)
    }

    /// The number and kind of the newest visible version of the key at hand, whose oldest version the merge
    /// stands at; leaves the merge at the last entry before the key. If there is one, `out` has one entry more:
    /// this version, whatever its kind.
    fn newest_backward(&mut self, out: &mut Batch) -> Result<Option<(SeqNo, EntryKind)>> {
        let mut newest = None;
        for _ in 0..STEPS_BEFORE_SEEK {
            if self.merge.seq() <= self.seq {
                self.take_version(&mut newest, out);
            }
            self.merge.prev()?;
            if !self.merge.valid() || self.merge.key() != self.key {
                return Ok(newest);
            }
        }
        self.merge.seek(&self.key, self.seq)?;
        if self.merge.valid() && self.merge.key() == self.key {
            self.take_version(&mut newest, out);
        }
        self.merge.seek_for_prev(&self.key, SeqNo::MAX)?;
        Ok(newest)
    }

    /// Makes the version that the merge stands at the newest one seen.
    #[inline]
    fn take_version(&self, newest: &mut Option<(SeqNo, EntryKind)>, out: &mut Batch) {
        if newest.replace((self.merge.seq(), self.merge.kind())).is_none() {
            out.push(&self.merge);
        } else {
            out.set_value(&self.merge);
        }
    }
}

fn memtable_source(memtable: &Arc<dyn Memtable>) -> Source {
    // What is inserted after this look is newer than what the reader sees.
    if memtable.entries() == 0 { Source::Nothing } else { Source::Other(Arc::clone(memtable).entries_iter()) }
}

fn unsupported(kind: EntryKind, key: &[u8]) -> Error {
    let context = format!("key \"{}\" holds an entry of kind {kind:?}", key.escape_ascii());
    Error::unknown_entry(context)
}

/// The range tombstones of a view, as one reader sees them.
struct Tombstones {
    lists: Vec<Arc<FragmentedTombstones>>,
    visible: SeqNo,
    /// The stretch that was asked for last: neighbouring keys mostly lie in it too.
    cover: Option<Cover>,
    /// The largest sequence number in each source of the merge; gathered when first needed. A memtable that
    /// still grows stays right: what it gains is newer than anything the reader sees.
    largest: Vec<SeqNo>,
}

/// How far below tombstones sources may be sought.
struct Reach {
    /// Forward: the first key that may be visible again; `None`: there is none. Backward: the first key of
    /// the stretch.
    end: Option<Bytes>,
    /// Every entry of the stretch with a smaller number is hidden.
    floor: SeqNo,
}

impl Tombstones {
    fn of(view: &View, visible: SeqNo) -> Self {
        let memtables = view.memtables.iter().filter(|memtable| memtable.has_range_deletes());
        let mut lists: Vec<_> = memtables.map(|memtable| memtable.range_tombstones()).collect();
        if view.runs_have_range_deletes() {
            let runs = view.plans().iter().filter(|plan| plan.run.has_range_deletes());
            lists.extend(runs.map(|plan| Arc::clone(plan.run.tombstones())));
        }
        Self { lists, visible, cover: None, largest: Vec::new() }
    }

    /// The newest visible tombstone over `key`; everything up to it is hidden.
    fn floor(&mut self, key: &[u8]) -> SeqNo {
        if self.lists.is_empty() {
            return SeqNo::ZERO;
        }
        match &self.cover {
            Some(cover) if cover.contains(key) => cover.floor,
            _ => self.cover.insert(cover_of(&self.lists, key, self.visible)).floor,
        }
    }

    /// Whether all that a source holds below tombstones from `floor` on is hidden.
    fn crosses(&self, source: usize, floor: SeqNo) -> bool {
        self.largest.get(source).is_some_and(|&largest| largest < floor)
    }

    /// The smallest tombstone that hides every source which `floor` hides: stretches below such a one can be
    /// crossed together. `None` when `floor` hides no source.
    fn lowest_like(&mut self, floor: SeqNo, view: &View) -> Option<SeqNo> {
        if self.largest.is_empty() {
            let memtables = view.memtables.iter().map(|memtable| memtable.largest_seq());
            let runs = view.version.runs().map(|(_, run)| {
                run.tables().iter().map(|table| table.meta.largest_seq).max().unwrap_or(SeqNo::ZERO)
            });
            self.largest = memtables.chain(runs).collect();
        }
        self.largest.iter().filter(|&&largest| largest < floor).max().map(|largest| largest.next())
    }

    /// How far from `key` on sources may be sought forward; `key` lies below the tombstone `floor`.
    fn reach_forward(&mut self, key: &[u8], floor: SeqNo, view: &View) -> Option<Reach> {
        let floor = self.lowest_like(floor, view)?;
        let mut end = cover_of(&self.lists, key, self.visible).upper;
        for _ in 0..COVERS_PER_SKIP {
            let Some(at) = &end else { break };
            let beyond = cover_of(&self.lists, at, self.visible);
            if beyond.floor < floor {
                break;
            }
            end = beyond.upper;
        }
        Some(Reach { end, floor })
    }

    /// How far down from `key` sources may be sought backward; `key` lies below the tombstone `floor`.
    fn reach_backward(&mut self, key: &[u8], floor: SeqNo, view: &View) -> Option<Reach> {
        let floor = self.lowest_like(floor, view)?;
        let mut start = cover_of(&self.lists, key, self.visible).lower;
        for _ in 0..COVERS_PER_SKIP {
            let Some(before) = cover_before(&self.lists, &start, self.visible) else { break };
            if before.floor < floor {
                break;
            }
            start = before.lower;
        }
        Some(Reach { end: Some(start), floor })
    }
}

fn cover_of(lists: &[Arc<FragmentedTombstones>], key: &[u8], visible: SeqNo) -> Cover {
    let mut cover = Cover::nothing();
    for list in lists {
        cover.intersect(list.cover(key, visible));
    }
    cover
}

/// The cover of the keys just before `bound`; `None` when there are none.
fn cover_before(lists: &[Arc<FragmentedTombstones>], bound: &[u8], visible: SeqNo) -> Option<Cover> {
    if bound.is_empty() {
        return None;
    }
    let mut cover = Cover::nothing();
    for list in lists {
        cover.intersect(list.cover_before(bound, visible));
    }
    Some(cover)
}

#[cfg(test)]
mod tests;
