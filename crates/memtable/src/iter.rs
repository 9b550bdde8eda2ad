//! Iterator over a memtable: a window of references, merged step by step from the lanes of a
//! snapshot.
//!
//! Each lane has a window too, from `low` to `high`; the iterator's window is the union of those,
//! in order. Moving beyond its end raises the highs, moving before its beginning lowers the lows,
//! so that a change of direction costs nothing. Windows start small, since short scans are common,
//! and grow.
//!
//! A range tombstone is passed over lane by lane: each goes to its next entry that is newer than
//! the tombstone or beyond its end. The lanes are then no longer between the same two entries,
//! which does not matter for going on; a change of direction places them anew.
//!
//! The snapshot is taken at the first seek and kept. Entries inserted later are newer than anything
//! that a reader of that time may see. Later seeks exchange it for one of the same entries in fewer
//! lanes, once there is one.
//!
//! Snapshots and their lanes are in [`super::order`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{EntryIter, Result};

use super::arena::{Entries, EntryRef, EntryView};
use super::order::{Direction, Snapshot, Tournament, Winner};

const FIRST_WINDOW: usize = 4;
const WINDOW_MAX: usize = 64;
/// Distance in entries at which entries are prefetched that have not been read yet.
const PREFETCH_AHEAD: usize = 4;

/// A memtable as the iterator needs it.
pub(super) trait Source: Send + Sync + 'static {
    /// A reader of the memtable's entries.
    ///
    /// # Safety
    /// The memtable is neither moved nor dropped during `'a`, and only references from its index,
    /// order or chains are used.
    unsafe fn reader<'a>(&self) -> Entries<'a>;

    /// The present entries, in order.
    fn snapshot(&self) -> Snapshot;

    /// The entries of `snapshot` in fewer lanes, if readers' merges have got there. Each call does
    /// a share of these merges.
    fn renew(&self, snapshot: &Snapshot) -> Option<Snapshot>;
}

/// An iterator over a memtable in chunks.
pub(super) struct ChunkedIter<S> {
    snapshot: Option<Snapshot>,
    lanes: Vec<Lane>,
    tournament: Tournament,
    /// The direction in which the tournament last moved, if it can continue.
    going: Option<Direction>,
    /// The direction in which entries were passed over, if the lanes are only good for going on in
    /// it.
    skipped: Option<Direction>,
    window: Vec<EntryRef>,
    at: usize,
    window_entries: usize,
    current: Option<EntryView<'static>>,
    entries: Entries<'static>,
    /// Keeps the entries in place; it is the last field, so that it is dropped last.
    table: Arc<S>,
}

/// The window of a lane.
#[derive(Clone, Copy)]
struct Lane {
    low: usize,
    high: usize,
}

impl<S: Source> ChunkedIter<S> {
    pub fn new(table: Arc<S>) -> Self {
        // SAFETY: the memtable outlives the iterator, which holds it, and does not move in its
        // `Arc`. All references that are used come from a snapshot of this memtable.
        let entries = unsafe { table.reader() };
        Self {
            snapshot: None,
            lanes: Vec::new(),
            tournament: Tournament::default(),
            going: None,
            skipped: None,
            window: Vec::new(),
            at: 0,
            window_entries: FIRST_WINDOW,
            current: None,
            entries,
            table,
        }
    }

    /// Positions every lane by `place`, and the iterator between two entries.
    fn start(&mut self, place: impl Fn(&Snapshot, usize) -> usize) {
        self.start_between(|snapshot, lane| {
            let at = place(snapshot, lane);
            Lane { low: at, high: at }
        });
    }

    /// Positions every lane by `place`; the iterator is between two entries if each lane is.
    fn start_between(&mut self, place: impl Fn(&Snapshot, usize) -> Lane) {
        if let Some(renewed) = self.snapshot.as_ref().and_then(|snapshot| self.table.renew(snapshot)) {
            self.snapshot = Some(renewed);
        }
        let snapshot = self.snapshot.get_or_insert_with(|| self.table.snapshot());
        self.lanes.clear();
        self.lanes.extend((0..snapshot.lanes()).map(|lane| place(snapshot, lane)));
        (self.going, self.skipped) = (None, None);
        self.window_entries = FIRST_WINDOW;
    }

    /// Whether entries were passed over in the direction other than this one: the window may lack
    /// some.
    #[inline]
    fn turns(&self, direction: Direction) -> bool {
        self.skipped.is_some_and(|skipped| skipped != direction)
    }

    /// Places the lanes around the current entry, if entries were passed over in the direction
    /// other than this one.
    fn turn(&mut self, direction: Direction) {
        if !self.turns(direction) {
            return;
        }
        let (Some(snapshot), Some(entry)) = (&self.snapshot, self.window.get(self.at)) else { return };
        let (entries, EntryView { key, seq, .. }) = (self.entries, self.entries.get(*entry));
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let at = match direction {
                Direction::Forward => snapshot.upper_bound(entries, number, key, seq),
                Direction::Backward => snapshot.lower_bound(entries, number, key, seq),
            };
            *lane = Lane { low: at, high: at };
        }
        (self.going, self.skipped) = (None, None);
    }

    /// Moves every lane on to its first entry after the window that is newer than `floor` or not
    /// below `end`, and loads the entries from there.
    fn skip_after(&mut self, end: Option<&[u8]>, floor: SeqNo) {
        self.turn(Direction::Forward);
        let Some(snapshot) = &self.snapshot else { return };
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let count = snapshot.refs(number).len();
            let end = end.map_or(count, |end| snapshot.lower_bound(self.entries, number, end, SeqNo::MAX));
            lane.high = snapshot.first_newer(self.entries, number, lane.high..end.max(lane.high), floor);
        }
        (self.going, self.skipped) = (None, Some(Direction::Forward));
        self.window_entries = FIRST_WINDOW;
        self.load_after();
    }

    /// Moves every lane back to its last entry before the window that is newer than `floor` or
    /// below `start`, and loads the entries from there.
    fn skip_before(&mut self, start: &[u8], floor: SeqNo) {
        self.turn(Direction::Backward);
        let Some(snapshot) = &self.snapshot else { return };
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let start = snapshot.lower_bound(self.entries, number, start, SeqNo::MAX);
            lane.low = snapshot.after_last_newer(self.entries, number, start.min(lane.low)..lane.low, floor);
        }
        (self.going, self.skipped) = (None, Some(Direction::Backward));
        self.window_entries = FIRST_WINDOW;
        self.load_before();
    }

    /// Loads the entries after the window, and moves to the first of them.
    fn load_after(&mut self) {
        self.turn(Direction::Forward);
        self.window.clear();
        let Some(snapshot) = &self.snapshot else { return };
        debug_assert_eq!(self.lanes.len(), snapshot.lanes(), "the lanes belong to another snapshot");
        self.lanes.iter_mut().for_each(|lane| lane.low = lane.high);
        if let [lane] = &mut self.lanes[..] {
            let refs = &snapshot.refs(0)[lane.high..];
            self.window.extend_from_slice(&refs[..refs.len().min(self.window_entries)]);
            lane.high += self.window.len();
        } else {
            if self.going != Some(Direction::Forward) {
                let next = self.lanes.iter().enumerate();
                let next = next.map(|(number, lane)| snapshot.refs(number).get(lane.high).copied());
                self.tournament.begin(self.entries, snapshot.prefix, Direction::Forward, next);
                self.going = Some(Direction::Forward);
            }
            while self.window.len() < self.window_entries {
                let Some(Winner { lane: number, entry, .. }) = self.tournament.winner() else { break };
                self.window.push(entry);
                let (refs, lane) = (snapshot.refs(number), &mut self.lanes[number]);
                lane.high += 1;
                if let Some(later) = refs.get(lane.high + PREFETCH_AHEAD) {
                    self.entries.prefetch(*later);
                }
                self.tournament.replace_winner(self.entries, refs.get(lane.high).copied());
            }
        }
        self.window_entries = (self.window_entries * 2).min(WINDOW_MAX);
        self.check_window();
        self.stand_at(0);
    }

    /// Loads the entries before the window, and moves to the last of them.
    fn load_before(&mut self) {
        self.turn(Direction::Backward);
        self.window.clear();
        let Some(snapshot) = &self.snapshot else { return };
        debug_assert_eq!(self.lanes.len(), snapshot.lanes(), "the lanes belong to another snapshot");
        self.lanes.iter_mut().for_each(|lane| lane.high = lane.low);
        if let [lane] = &mut self.lanes[..] {
            let from = lane.low.saturating_sub(self.window_entries);
            self.window.extend_from_slice(&snapshot.refs(0)[from..lane.low]);
            lane.low = from;
        } else {
            let before =
                |refs: &[EntryRef], low: usize| low.checked_sub(1).and_then(|at| refs.get(at)).copied();
            if self.going != Some(Direction::Backward) {
                let next = self.lanes.iter().enumerate();
                let next = next.map(|(number, lane)| before(snapshot.refs(number), lane.low));
                self.tournament.begin(self.entries, snapshot.prefix, Direction::Backward, next);
                self.going = Some(Direction::Backward);
            }
            while self.window.len() < self.window_entries {
                let Some(Winner { lane: number, entry, .. }) = self.tournament.winner() else { break };
                self.window.push(entry);
                let (refs, lane) = (snapshot.refs(number), &mut self.lanes[number]);
                lane.low -= 1;
                if let Some(later) = lane.low.checked_sub(1 + PREFETCH_AHEAD) {
                    self.entries.prefetch(refs[later]);
                }
                self.tournament.replace_winner(self.entries, before(refs, lane.low));
            }
            self.window.reverse();
        }
        self.window_entries = (self.window_entries * 2).min(WINDOW_MAX);
        self.check_window();
        self.stand_at(self.window.len().saturating_sub(1));
    }

    /// The relations between the windows that hold after each load.
    fn check_window(&self) {
        debug_assert!(
            self.window.is_sorted_by(|entry, next| self.entries.cmp(*entry, *next).is_lt()),
            "the window of {} entries is not in order",
            self.window.len()
        );
        debug_assert_eq!(
            self.lanes.iter().map(|lane| lane.high - lane.low).sum::<usize>(),
            self.window.len(),
            "the windows of the lanes do not make up the window"
        );
        debug_assert!(self.window.len() <= WINDOW_MAX, "a window of {} entries", self.window.len());
    }

    #[inline]
    fn stand_at(&mut self, at: usize) {
        self.at = at;
        self.current = self.window.get(at).map(|entry| self.entries.get(*entry));
    }

    #[inline]
    fn current(&self) -> &EntryView<'static> {
        self.current.as_ref().expect("only when valid")
    }
}

impl<S: Source> EntryIter for ChunkedIter<S> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.start(|_, _| 0);
        self.load_after();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(|snapshot, lane| snapshot.refs(lane).len());
        self.load_before();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let entries = self.entries;
        // Narrowed in every lane before an entry is read: then the reads of all lanes overlap.
        self.start_between(|snapshot, lane| {
            let Range { start, end } = snapshot.narrow(entries, lane, key);
            Lane { low: start, high: end }
        });
        if let Some(snapshot) = &self.snapshot {
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                let at = snapshot.lower_bound_in(entries, number, lane.low..lane.high, key, seq);
                *lane = Lane { low: at, high: at };
            }
        }
        self.load_after();
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        let entries = self.entries;
        self.start(|snapshot, lane| snapshot.upper_bound(entries, lane, key, seq));
        self.load_before();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        if self.at + 1 < self.window.len() && !self.turns(Direction::Forward) {
            if let Some(later) = self.window.get(self.at + 1 + PREFETCH_AHEAD) {
                self.entries.prefetch_whole(*later);
            }
            self.stand_at(self.at + 1);
        } else {
            self.load_after();
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        match self.at.checked_sub(1).filter(|_| !self.turns(Direction::Backward)) {
            Some(before) => self.stand_at(before),
            None => self.load_before(),
        }
        Ok(())
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        let is_hidden = |entry: &EntryView<'_>| entry.seq <= floor && end.is_none_or(|end| entry.key < end);
        while self.current.as_ref().is_some_and(is_hidden) {
            if self.at + 1 < self.window.len() && !self.turns(Direction::Forward) {
                self.stand_at(self.at + 1);
            } else {
                self.skip_after(end, floor);
                debug_assert!(!self.current.as_ref().is_some_and(is_hidden), "a lane was moved too little");
            }
        }
        Ok(())
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        let is_hidden = |entry: &EntryView<'_>| entry.seq <= floor && start <= entry.key;
        while self.current.as_ref().is_some_and(is_hidden) {
            match self.at.checked_sub(1).filter(|_| !self.turns(Direction::Backward)) {
                Some(before) => self.stand_at(before),
                None => {
                    self.skip_before(start, floor);
                    debug_assert!(
                        !self.current.as_ref().is_some_and(is_hidden),
                        "a lane was moved too little"
                    );
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.current().seq
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        self.current().kind
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value
    }

    fn value_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.current().value)
    }
}

#[cfg(test)]
mod tests {
    use shamba_key::{DigestFn, DigestKind};

    use super::*;
    use crate::order::tests::insert_numbers;
    use crate::{ChunkedMemtable, Memtable};

    /// The sequence numbers of the current entry and of those to which `moves` lead.
    fn steps(iter: &mut dyn EntryIter, moves: &[Direction]) -> Vec<u64> {
        let mut seqs = vec![iter.seq().0];
        for direction in moves {
            match direction {
                Direction::Forward => iter.next().expect("memory"),
                Direction::Backward => iter.prev().expect("memory"),
            }
            seqs.push(iter.seq().0);
        }
        seqs
    }

    /// Entries 1 to 16 are in a chunk; in the tail are 17, which comes after 9, and 18, after 11. A
    /// floor of 16 hides the chunk.
    #[test]
    fn after_passing_over_entries_a_turn_leads_to_every_entry_between() {
        use Direction::{Backward, Forward};
        let table = Arc::new(ChunkedMemtable::new(true));
        let numbers = (0..16).map(|number| format!("k{number:02}"));
        for (key, seq) in numbers.chain(["k08x".to_owned(), "k10x".to_owned()]).zip(1..) {
            let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(key.as_bytes());
            table.insert(digest, key.as_bytes(), SeqNo(seq), EntryKind::Put, b"");
        }
        assert_eq!(table.snapshot().lanes(), 2, "a chunk and the tail");
        let floor = SeqNo(16);
        let forward = || {
            let mut iter = ChunkedIter::new(Arc::clone(&table));
            iter.seek_to_first().expect("memory");
            iter.skip_hidden(None, floor).expect("memory");
            iter
        };
        assert_eq!(steps(&mut forward(), &[Backward, Backward, Forward]), [17, 9, 8, 9]);
        assert_eq!(steps(&mut forward(), &[Backward, Forward, Forward, Forward]), [17, 9, 17, 10, 11]);
        // The turn begins within the window that was loaded after passing over entries.
        assert_eq!(steps(&mut forward(), &[Forward, Backward, Backward, Backward]), [17, 18, 11, 10, 17]);
        let backward = || {
            let mut iter = ChunkedIter::new(Arc::clone(&table));
            iter.seek_to_last().expect("memory");
            iter.skip_hidden_back(b"", floor).expect("memory");
            iter
        };
        assert_eq!(steps(&mut backward(), &[Forward, Forward, Backward]), [18, 12, 13, 12]);
        assert_eq!(steps(&mut backward(), &[Forward, Backward, Backward, Backward]), [18, 12, 18, 11, 10]);
        assert_eq!(steps(&mut backward(), &[Backward, Forward, Forward, Forward]), [18, 17, 10, 11, 18]);
        // Passing over entries in the other direction is a turn too.
        let mut iter = forward();
        iter.skip_hidden_back(b"k05", SeqNo(17)).expect("memory");
        assert_eq!(steps(&mut iter, &[Backward, Forward, Forward]), [5, 4, 5, 6]);
        let mut iter = backward();
        iter.skip_hidden(Some(b"k13"), SeqNo(18)).expect("memory");
        assert_eq!(steps(&mut iter, &[Forward, Backward, Backward]), [14, 15, 14, 13]);
    }

    fn lanes(iter: &ChunkedIter<ChunkedMemtable>) -> usize {
        iter.snapshot.as_ref().map_or(0, Snapshot::lanes)
    }

    /// The sequence numbers from the first to the last entry.
    fn all(iter: &mut ChunkedIter<ChunkedMemtable>) -> Vec<u64> {
        let mut seqs = Vec::new();
        iter.seek_to_first().expect("memory");
        while iter.valid() {
            seqs.push(iter.seq().0);
            iter.next().expect("memory");
        }
        seqs
    }

    /// 9,690 entries are in 15 chunks, and 26 in the tail. Of 14 chunks beyond the first each seek
    /// moves at least eight entries, and no entry moves more than once for each chunk.
    #[test]
    fn the_seeks_of_an_iterator_leave_it_two_lanes_and_the_same_entries() {
        let table = Arc::new(ChunkedMemtable::new(true));
        insert_numbers(&table, 0, 9_690);
        let mut iter = ChunkedIter::new(Arc::clone(&table));
        let entries = all(&mut iter);
        assert_eq!(entries.len(), 9_690);
        assert!(lanes(&iter) > 2, "{} lanes", lanes(&iter));
        let mut seeks = 0;
        while lanes(&iter) > 2 {
            iter.seek(&[0x40], SeqNo::MAX).expect("memory");
            seeks += 1;
            assert!(seeks < 14 * 9_690 / 8, "{} lanes after {seeks} seeks", lanes(&iter));
        }
        assert!(all(&mut iter) == entries, "other entries in two lanes");
    }

    /// 100 more entries stay in the tail; of 3,000 more most are in new chunks.
    #[test]
    fn an_iterator_of_a_memtable_that_is_written_keeps_its_entries() {
        for added in [100, 3_000] {
            let table = Arc::new(ChunkedMemtable::new(true));
            insert_numbers(&table, 0, 9_690);
            let mut iter = ChunkedIter::new(Arc::clone(&table));
            let entries = all(&mut iter);
            insert_numbers(&table, 9_690, 9_690 + added);
            for _ in 0..4_000 {
                iter.seek(&[0x40], SeqNo::MAX).expect("memory");
            }
            assert!(table.snapshot().lanes() <= 2, "{} lanes", table.snapshot().lanes());
            assert!(all(&mut iter) == entries, "other entries after {added} inserts");
        }
    }
}
