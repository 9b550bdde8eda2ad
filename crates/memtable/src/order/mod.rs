//! The ordered side of a memtable: sorted chunks and an unsorted tail.
//!
//! The writer appends to the *tail*. When that is full (1,024 entries, fewer in a small memtable)
//! the writer sorts it, which takes some tens of microseconds, and starts another. Eight chunks of
//! like size are merged into one, a few entries at each insert, so that no insert waits for a
//! merge. A reader works on a *snapshot*: the chunks of the moment and a sorted copy of the tail,
//! which readers share: each adds what was inserted since the last one ([`tail`]).
//!
//! The cost of a seek grows with the number of chunks, so each also does a share of a merge that
//! reduces it, in proportion to that number. Scans of a memtable that is no longer written soon
//! find a single chunk, and no scan waits for a merge.
//!
//! Invariants:
//! 1. Every entry is in the tail of the state or in exactly one chunk of it.
//! 2. A merge has claimed its inputs, and no other merge removes them.
//!
//! Iteration over a snapshot is in [`super::iter`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use shamba_key::SeqNo;

use super::arena::{Entries, EntryRef};

mod chunk;
mod merge;
mod summary;
mod tail;

use chunk::Chunk;
use merge::Merge;
use tail::Tail;

use crate::sync::{Mutex, MutexGuard, TryLockError};
pub(super) use merge::{Direction, Tournament, Winner};

/// Maximum tail. Sorting 1,024 entries takes about 40 us, which is the longest that an insert may
/// take.
const TAIL_ENTRIES_MAX: usize = 1024;
/// Minimum tail: with its sorted copy 256 bytes, so that a memtable of a kilobyte still holds
/// entries.
const TAIL_ENTRIES_MIN: usize = 16;

/// Number of chunks of like size that the writer merges into one.
const FAN_IN: usize = 8;
/// The writer continues its merge at every 16th insert, and moves 5 entries per insert. That is
/// enough to move every entry five times, which suffices for 30 million entries.
const STEP_INSERTS: usize = 16;
const MOVES_PER_INSERT: usize = 5;

/// Entries that a reader moves for each chunk beyond the first. That costs about as much as a seek
/// in a chunk.
const MOVES_PER_CHUNK: usize = 8;

const BY_WRITER: u8 = 1;
const BY_READERS: u8 = 2;

/// The readers' side.
pub(super) struct Order {
    state: ArcSwap<State>,
    /// Number of first bytes that all keys share.
    prefix: AtomicUsize,
    merges: [Mutex<Option<Merge>>; 2],
    bytes: AtomicUsize,
}

/// The writer's side.
pub(super) struct OrderWriter {
    tail: Arc<Tail>,
    /// The common prefix of all keys; `None` before the first.
    common: Option<Vec<u8>>,
    is_merging: bool,
    inserts: usize,
}

struct State {
    chunks: Vec<Arc<Chunk>>,
    tail: Arc<Tail>,
}

impl Order {
    /// An empty order and its only writer.
    pub fn new() -> (Self, OrderWriter) {
        let tail = Tail::new(TAIL_ENTRIES_MIN);
        let order = Self {
            bytes: AtomicUsize::new(tail.bytes()),
            state: ArcSwap::from_pointee(State { chunks: Vec::new(), tail: Arc::clone(&tail) }),
            prefix: AtomicUsize::new(0),
            merges: [Mutex::new(None), Mutex::new(None)],
        };
        (order, OrderWriter { tail, common: None, is_merging: false, inserts: 0 })
    }

    /// Memory of chunks and tail. Earlier chunks that snapshots keep alive are not counted.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds an entry; `key` is its key.
    #[inline]
    pub fn push(&self, writer: &mut OrderWriter, entries: Entries<'_>, entry: EntryRef, key: &[u8]) {
        match &mut writer.common {
            Some(common) if key.starts_with(common) => {}
            common => self.shorten(common, key),
        }
        debug_assert!(
            writer.common.as_ref().is_some_and(|common| key.starts_with(common)),
            "{key:?} does not begin with the prefix of all keys, {:?}",
            writer.common
        );
        // After the prefix: readers that see the entry see a prefix that holds for it.
        let at = writer.tail.push(entry);
        writer.inserts += 1;
        if at + 1 == writer.tail.capacity() {
            self.seal(writer, entries);
        } else if writer.is_merging && at % STEP_INSERTS == 0 {
            self.step(writer, entries);
        }
    }

    #[cold]
    fn shorten(&self, common: &mut Option<Vec<u8>>, key: &[u8]) {
        let mut prefix = common.take().unwrap_or_else(|| key.to_vec());
        let same = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
        prefix.truncate(same);
        self.prefix.store(same, Ordering::Release);
        *common = Some(prefix);
    }

    /// Makes a chunk of the full tail.
    #[cold]
    fn seal(&self, writer: &mut OrderWriter, entries: Entries<'_>) {
        let prefix = self.prefix.load(Ordering::Relaxed);
        let chunk = Arc::new(writer.tail.seal(entries, prefix));
        let tail = Tail::new(writer.inserts.clamp(TAIL_ENTRIES_MIN, TAIL_ENTRIES_MAX));
        self.bytes.fetch_add(chunk.bytes() + tail.bytes(), Ordering::Relaxed);
        self.bytes.fetch_sub(writer.tail.bytes(), Ordering::Relaxed);
        self.state.rcu(|state| {
            let mut chunks = Vec::with_capacity(state.chunks.len() + 1);
            chunks.extend_from_slice(&state.chunks);
            chunks.push(Arc::clone(&chunk));
            State { chunks, tail: Arc::clone(&tail) }
        });
        writer.tail = tail;
        writer.is_merging = true; // There may be something to merge now.
    }

    /// The writer's share of merging.
    fn step(&self, writer: &mut OrderWriter, entries: Entries<'_>) {
        let Some(mut merge) = try_lock(&self.merges[0]) else { return };
        if merge.is_none() {
            *merge = self.begin_merge(entries, BY_WRITER, pick_like_sized);
        }
        writer.is_merging = merge.is_some();
        self.advance(&mut merge, entries, BY_WRITER, STEP_INSERTS * MOVES_PER_INSERT);
    }

    /// A reader's share of merging: first in the writer's merge, if one is unfinished, then in the
    /// readers' own.
    fn help(&self, entries: Entries<'_>) {
        let others = self.state.load().chunks.len().saturating_sub(1);
        let mut budget = others * MOVES_PER_CHUNK;
        if others == 0 {
            return;
        }
        if let Some(mut merge) = try_lock(&self.merges[0]) {
            budget = self.advance(&mut merge, entries, BY_WRITER, budget);
        }
        if let Some(mut merge) = try_lock(&self.merges[1]) {
            if merge.is_none() {
                *merge = self.begin_merge(entries, BY_READERS, pick_cheapest);
            }
            self.advance(&mut merge, entries, BY_READERS, budget);
        }
    }

    fn begin_merge(
        &self,
        entries: Entries<'_>,
        by: u8,
        pick: impl Fn(Vec<Arc<Chunk>>) -> Vec<Arc<Chunk>>,
    ) -> Option<Merge> {
        let state = self.state.load();
        let free = state.chunks.iter().filter(|chunk| chunk.claim.load(Ordering::Relaxed) == 0);
        let mut inputs = pick(free.cloned().collect());
        // The other kind of merge may have claimed a chunk first.
        inputs.retain(|chunk| chunk.claim(by));
        // Loaded after the chunks, so that it holds for all their keys.
        let prefix = self.prefix.load(Ordering::Acquire);
        (!inputs.is_empty()).then(|| Merge::new(entries, inputs, prefix))
    }

    /// Moves up to `budget` entries, and publishes the result if that completes the merge. Returns
    /// the unused part of the budget.
    fn advance(
        &self,
        slot: &mut MutexGuard<'_, Option<Merge>>,
        entries: Entries<'_>,
        by: u8,
        budget: usize,
    ) -> usize {
        let Some(merge) = slot.as_mut() else { return budget };
        let left = merge.advance(entries, budget);
        if merge.is_done() {
            if let Some(merge) = slot.take() {
                let output = Arc::new(merge.finish());
                self.bytes.fetch_add(output.bytes(), Ordering::Relaxed);
                let is_input = |chunk: &Arc<Chunk>| chunk.claim.load(Ordering::Relaxed) == by;
                let before = self.state.rcu(|state| {
                    let others = state.chunks.iter().filter(|chunk| !is_input(chunk));
                    let chunks = others.chain([&output]).cloned().collect();
                    State { chunks, tail: Arc::clone(&state.tail) }
                });
                let moved = before.chunks.iter().filter(|chunk| is_input(chunk));
                let moved = moved.map(|chunk| chunk.refs().len()).sum::<usize>();
                assert_eq!(
                    output.refs().len(),
                    moved,
                    "a merge replaces chunks of another number of entries"
                );
                let inputs: usize =
                    before.chunks.iter().filter(|chunk| is_input(chunk)).map(|chunk| chunk.bytes()).sum();
                self.bytes.fetch_sub(inputs, Ordering::Relaxed);
            }
        }
        left
    }

    /// The present entries, in order. Also does a share of merging.
    pub fn snapshot(&self, entries: Entries<'_>) -> Snapshot {
        self.help(entries);
        let state = self.state.load_full();
        let len = state.tail.len();
        // Loaded after the length, so that it holds for all keys up to there.
        let prefix = self.prefix.load(Ordering::Acquire);
        let tail = (len > 0).then(|| state.tail.sorted(entries, len, prefix));
        // The copy of another reader may have more entries, and is then of a shorter prefix.
        let prefix = tail.as_ref().map_or(prefix, |tail| prefix.min(tail.prefix()));
        Snapshot { state, tail, prefix }
    }

    /// Does a share of merging for a reader that has `snapshot` already. Returns the same entries
    /// in fewer lanes if a merge has completed since; `None` if none has, or entries were inserted.
    pub fn renew(&self, entries: Entries<'_>, snapshot: &Snapshot) -> Option<Snapshot> {
        if snapshot.state.chunks.len() < 2 {
            return None;
        }
        self.help(entries);
        let state = self.state.load();
        let is_same = Arc::ptr_eq(&state.tail, &snapshot.state.tail)
            && state.tail.len() == snapshot.tail.as_ref().map_or(0, |tail| tail.refs().len());
        (is_same && state.chunks.len() < snapshot.state.chunks.len()).then(|| Snapshot {
            state: Arc::clone(&state),
            tail: snapshot.tail.clone(),
            prefix: snapshot.prefix,
        })
    }

    /// The newest entry of `key` up to `seq`.
    pub fn find(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> Option<EntryRef> {
        let snapshot = self.snapshot(entries);
        let of_chunk = |lane: usize| {
            let at = snapshot.lower_bound(entries, lane, key, seq);
            snapshot.refs(lane).get(at).copied().filter(|entry| entries.get(*entry).key == key)
        };
        (0..snapshot.lanes()).filter_map(of_chunk).max_by_key(|entry| entries.get(*entry).seq)
    }
}

/// The entries of one moment: sorted lanes of references.
pub(super) struct Snapshot {
    state: Arc<State>,
    tail: Option<Arc<Chunk>>,
    /// Number of first bytes that all keys share.
    pub prefix: usize,
}

impl Snapshot {
    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.state.chunks.len() + usize::from(self.tail.is_some())
    }

    fn lane(&self, lane: usize) -> Option<&Arc<Chunk>> {
        debug_assert!(lane < self.lanes(), "lane {lane} of {}", self.lanes());
        self.state.chunks.get(lane).or(self.tail.as_ref())
    }

    /// The references of a lane.
    #[inline]
    pub fn refs(&self, lane: usize) -> &[EntryRef] {
        self.lane(lane).map_or(&[], |chunk| chunk.refs())
    }

    /// Number of entries of a lane before `(key, seq)`.
    pub fn lower_bound(&self, entries: Entries<'_>, lane: usize, key: &[u8], seq: SeqNo) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.lower_bound(entries, key, seq))
    }

    /// The numbers between which the bounds of a key in a lane lie, by what is at hand. Prefetches
    /// the entries there.
    pub fn narrow(&self, entries: Entries<'_>, lane: usize, key: &[u8]) -> Range<usize> {
        let Some(chunk) = self.lane(lane) else { return 0..0 };
        let within = chunk.narrow(entries, key);
        chunk.prefetch(entries, &within);
        within
    }

    /// As [`Self::lower_bound`], where `within` is the result of [`Self::narrow`] for the key.
    pub fn lower_bound_in(
        &self,
        entries: Entries<'_>,
        lane: usize,
        within: Range<usize>,
        key: &[u8],
        seq: SeqNo,
    ) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.lower_bound_in(entries, within, key, seq))
    }

    /// Number of entries of a lane before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, lane: usize, key: &[u8], seq: SeqNo) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.upper_bound(entries, key, seq))
    }

    /// Number of the first entry in `range` of a lane that is newer than `floor`; the end of the
    /// range if there is none.
    pub fn first_newer(&self, entries: Entries<'_>, lane: usize, range: Range<usize>, floor: SeqNo) -> usize {
        self.lane(lane).map_or(range.end, |chunk| chunk.first_newer(entries, range.clone(), floor))
    }

    /// Number after the last entry in `range` of a lane that is newer than `floor`; the start of
    /// the range if there is none.
    pub fn after_last_newer(
        &self,
        entries: Entries<'_>,
        lane: usize,
        range: Range<usize>,
        floor: SeqNo,
    ) -> usize {
        self.lane(lane).map_or(range.start, |chunk| chunk.after_last_newer(entries, range.clone(), floor))
    }
}

/// The chunks of the smallest size class that has at least [`FAN_IN`]; none if there is no such
/// class.
fn pick_like_sized(mut chunks: Vec<Arc<Chunk>>) -> Vec<Arc<Chunk>> {
    let size = |chunk: &Arc<Chunk>| chunk.refs().len().ilog2() / FAN_IN.ilog2();
    chunks.sort_by_key(size);
    let like = chunks.chunk_by(|a, b| size(a) == size(b)).find(|like| like.len() >= FAN_IN);
    like.map_or_else(Vec::new, <[_]>::to_vec)
}

/// The chunks whose merge removes most chunks per entry moved.
fn pick_cheapest(mut chunks: Vec<Arc<Chunk>>) -> Vec<Arc<Chunk>> {
    chunks.sort_by_key(|chunk| chunk.refs().len());
    // Chunks removed and entries moved by the best choice so far. The ratios are compared by
    // cross-multiplication.
    let (mut best, mut best_saved, mut best_moved) = (0, 0u64, 1u64);
    let mut moved = 0u64;
    for (saved, chunk) in chunks.iter().enumerate() {
        moved += chunk.refs().len() as u64;
        if saved as u64 * best_moved >= best_saved * moved && saved > 0 {
            (best, best_saved, best_moved) = (saved + 1, saved as u64, moved);
        }
    }
    chunks.truncate(best);
    chunks
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
pub(super) mod tests;
