//! The ordered side of a memtable: sorted chunks and an unsorted tail.
//!
//! The writer appends to the *tail*. When that is full (1,024 entries, fewer in a small memtable)
//! the writer sorts it, which takes some tens of microseconds, and starts another. Eight chunks of
//! like size are merged into one, a few entries at each insert, so that no insert waits for a
//! merge. A reader works on a *snapshot*: the chunks of the moment and a private sorted copy of the
//! tail. The next reader reuses that copy if nothing was inserted since.
//!
//! The cost of a snapshot grows with the number of chunks, so taking one also does a share of a
//! merge that reduces it, in proportion to that number. Scans of a memtable that is no longer
//! written soon find a single chunk, and no scan waits for a merge.
//!
//! Invariants:
//! 1. Every entry is in the tail of the state or in exactly one chunk of it.
//! 2. A merge has claimed its inputs, and no other merge removes them.
//!
//! Iteration over a snapshot is in [`super::iter`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use shamba_key::SeqNo;

use super::arena::{Entries, EntryRef};

mod chunk;
mod merge;

use chunk::{Chunk, sort};
use merge::Merge;

use crate::sync::{Mutex, MutexGuard, TryLockError};
pub(super) use merge::{Direction, Tournament};

/// Maximum tail. Sorting 1,024 entries takes about 40 us, which is the longest that an insert may
/// take.
const TAIL_ENTRIES_MAX: usize = 1024;
const TAIL_ENTRIES_MIN: usize = 64;

/// Number of chunks of like size that the writer merges into one.
const FAN_IN: usize = 8;
/// The writer continues its merge at every 16th insert, and moves 5 entries per insert. That is
/// enough to move every entry five times, which suffices for 30 million entries.
const STEP_INSERTS: usize = 16;
const MOVES_PER_INSERT: usize = 5;

/// Entries that a reader moves for each chunk beyond the first. That costs about as much as a seek
/// in a chunk.
const MOVES_PER_CHUNK: usize = 24;

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

/// Entries in the order of their insertion.
struct Tail {
    refs: Box<[AtomicU32]>,
    len: AtomicUsize,
    /// A sorted copy of the first entries.
    sorted: ArcSwapOption<Chunk>,
}

impl Tail {
    fn new(capacity: usize) -> Arc<Self> {
        let refs = (0..capacity).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { refs, len: AtomicUsize::new(0), sorted: ArcSwapOption::empty() })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.refs)
    }

    /// The first `len` entries in order.
    fn sorted(&self, entries: Entries<'_>, len: usize, prefix: usize) -> Arc<Chunk> {
        debug_assert!(0 < len && len <= self.refs.len(), "{len} entries of a tail of {}", self.refs.len());
        let before = self.sorted.load_full();
        let known = before.as_ref().map_or(&[][..], |chunk| chunk.refs());
        if let (Some(chunk), true) = (&before, known.len() == len) {
            return Arc::clone(chunk);
        }
        let read = |range: &[AtomicU32]| -> Vec<EntryRef> {
            range.iter().filter_map(|bits| EntryRef::from_bits(bits.load(Ordering::Relaxed))).collect()
        };
        let refs = match self.refs.get(known.len()..len) {
            // A few more entries: each is inserted at its place. If the sorted copy is longer than
            // `len`, another reader has made it meanwhile; this one does not wait for it and sorts
            // for itself.
            Some(added) if added.len() * 8 < len => {
                let mut added = read(added);
                sort(entries, &mut added, prefix);
                insert_into(entries, known, &added)
            }
            _ => {
                let mut refs = read(&self.refs[..len]);
                sort(entries, &mut refs, prefix);
                refs
            }
        };
        assert_eq!(refs.len(), len, "the sorted copy of a tail has another number of entries");
        let is_more = known.len() < len;
        let chunk = Arc::new(Chunk::plain(refs));
        if is_more {
            self.sorted.store(Some(Arc::clone(&chunk)));
        }
        chunk
    }
}

/// Merges both lists, in order.
fn insert_into(entries: Entries<'_>, mut known: &[EntryRef], added: &[EntryRef]) -> Vec<EntryRef> {
    let mut both = Vec::with_capacity(known.len() + added.len());
    for entry in added {
        let before = known.partition_point(|other| entries.cmp(*other, *entry).is_lt());
        both.extend_from_slice(&known[..before]);
        both.push(*entry);
        known = &known[before..];
    }
    both.extend_from_slice(known);
    debug_assert!(
        both.is_sorted_by(|entry, next| entries.cmp(*entry, *next).is_lt()),
        "{} entries are not in order after {} were inserted",
        both.len(),
        added.len()
    );
    both
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
        let at = writer.tail.len.load(Ordering::Relaxed);
        writer.tail.refs[at].store(entry.bits(), Ordering::Relaxed);
        // Readers that see this length also see the entries before it, and a prefix that holds for
        // them.
        writer.tail.len.store(at + 1, Ordering::Release);
        writer.inserts += 1;
        if at + 1 == writer.tail.refs.len() {
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
        let len = writer.tail.refs.len();
        debug_assert_eq!(writer.tail.len.load(Ordering::Relaxed), len, "a tail is sealed before it is full");
        let sorted = writer.tail.sorted(entries, len, prefix);
        let chunk = Arc::new(sorted.with_heads(entries, prefix));
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
        inputs.retain(|chunk| chunk.claim(by)); // The other kind of merge may have been quicker.
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
        let len = state.tail.len.load(Ordering::Acquire);
        // Loaded after the length, so that it holds for all keys up to there.
        let prefix = self.prefix.load(Ordering::Acquire);
        let tail = (len > 0).then(|| state.tail.sorted(entries, len, prefix));
        Snapshot { state, tail, prefix }
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

    /// Number of entries of a lane before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, lane: usize, key: &[u8], seq: SeqNo) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.upper_bound(entries, key, seq))
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
