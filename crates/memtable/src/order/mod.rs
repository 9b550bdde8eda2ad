//! The ordered side of a memtable: sorted chunks and an unsorted tail.
//!
//! The writer appends to the *tail*; when that is full (1,024 entries, fewer in a small memtable) it sorts it,
//! which takes some tens of microseconds, and begins another. Eight chunks of like size are merged into one, a few
//! entries at each insert, so that no insert waits for a merge. A reader works on a *snapshot*: the chunks of
//! the moment and a private sorted copy of the tail, which the next reader takes over if nothing came since.
//!
//! Every snapshot pays for the number of chunks, so it also does a share of a merge that makes them fewer, in
//! proportion to that number: whoever scans a memtable that nobody writes to any more soon finds one chunk, and
//! nobody waits for it.
//!
//! Invariants: 1. every entry is in the tail of the state or in exactly one chunk of it; 2. a merge has claimed its
//! inputs and is the only one to take them out.
//!
//! Not here: walking a snapshot ([`super::iter`]).

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

/// Sorting 1,024 entries takes about 40 us, which is how long an insert may take.
const TAIL_ENTRIES_MAX: usize = 1024;
const TAIL_ENTRIES_MIN: usize = 64;

/// How many chunks of like size the writer merges.
const FAN_IN: usize = 8;
/// The writer goes on with its merge at every so many inserts, and moves so many entries for each of them: enough
/// for every entry to be moved five times, which is 30 million entries.
const STEP_INSERTS: usize = 16;
const MOVES_PER_INSERT: usize = 5;

/// What a reader moves for each chunk beyond the first. Moving so many costs about what a seek in a chunk does.
const MOVES_PER_CHUNK: usize = 24;

const BY_WRITER: u8 = 1;
const BY_READERS: u8 = 2;

/// The readers' side.
pub(super) struct Order {
    state: ArcSwap<State>,
    /// How many first bytes all keys share.
    prefix: AtomicUsize,
    merges: [Mutex<Option<Merge>>; 2],
    bytes: AtomicUsize,
}

/// The writer's side.
pub(super) struct OrderWriter {
    tail: Arc<Tail>,
    /// What all keys begin with; `None` before the first.
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
    /// The first so many in order.
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
        let before = self.sorted.load_full();
        let known = before.as_ref().map_or(&[][..], |chunk| chunk.refs());
        if let (Some(chunk), true) = (&before, known.len() == len) {
            return Arc::clone(chunk);
        }
        let read = |range: &[AtomicU32]| -> Vec<EntryRef> {
            range.iter().filter_map(|bits| EntryRef::from_bits(bits.load(Ordering::Relaxed))).collect()
        };
        let refs = match self.refs.get(known.len()..len) {
            // A few more: each finds its place. (One that is known to another reader only is no reason to wait.)
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
        let is_more = known.len() < len;
        let chunk = Arc::new(Chunk::plain(refs));
        if is_more {
            self.sorted.store(Some(Arc::clone(&chunk)));
        }
        chunk
    }
}

/// Both in one, in order.
fn insert_into(entries: Entries<'_>, mut known: &[EntryRef], added: &[EntryRef]) -> Vec<EntryRef> {
    let mut both = Vec::with_capacity(known.len() + added.len());
    for entry in added {
        let before = known.partition_point(|other| entries.cmp(*other, *entry).is_lt());
        both.extend_from_slice(&known[..before]);
        both.push(*entry);
        known = &known[before..];
    }
    both.extend_from_slice(known);
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

    /// Memory that chunks and tail take. What snapshots keep of earlier chunks is not counted.
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
        let at = writer.tail.len.load(Ordering::Relaxed);
        writer.tail.refs[at].store(entry.bits(), Ordering::Relaxed);
        // Readers take the entries before it, and the prefix that holds for them.
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

    /// A reader's share of merging: of the writer's merge, which may have been left, then of the readers' own.
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
        inputs.retain(|chunk| chunk.claim(by)); // The other kind of merge may have been quicker.
        // Loaded after the chunks: it holds for all their keys.
        let prefix = self.prefix.load(Ordering::Acquire);
        (!inputs.is_empty()).then(|| Merge::new(entries, inputs, prefix))
    }

    /// Moves up to `budget` entries; if that completes the merge, shows its outcome. Gives back what is left.
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
                let inputs: usize =
                    before.chunks.iter().filter(|chunk| is_input(chunk)).map(|chunk| chunk.bytes()).sum();
                self.bytes.fetch_sub(inputs, Ordering::Relaxed);
            }
        }
        left
    }

    /// What there is now, in order; and a share of merging.
    pub fn snapshot(&self, entries: Entries<'_>) -> Snapshot {
        self.help(entries);
        let state = self.state.load_full();
        let len = state.tail.len.load(Ordering::Acquire);
        // After the length: it holds for all keys up to there.
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

/// The entries of one moment: lanes of references in order.
pub(super) struct Snapshot {
    state: Arc<State>,
    tail: Option<Arc<Chunk>>,
    /// How many first bytes all keys share.
    pub prefix: usize,
}

impl Snapshot {
    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.state.chunks.len() + usize::from(self.tail.is_some())
    }

    fn lane(&self, lane: usize) -> Option<&Arc<Chunk>> {
        self.state.chunks.get(lane).or(self.tail.as_ref())
    }

    /// The references of a lane.
    #[inline]
    pub fn refs(&self, lane: usize) -> &[EntryRef] {
        self.lane(lane).map_or(&[], |chunk| chunk.refs())
    }

    /// How many entries of a lane come before `(key, seq)`.
    pub fn lower_bound(&self, entries: Entries<'_>, lane: usize, key: &[u8], seq: SeqNo) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.lower_bound(entries, key, seq))
    }

    /// How many entries of a lane come before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, lane: usize, key: &[u8], seq: SeqNo) -> usize {
        self.lane(lane).map_or(0, |chunk| chunk.upper_bound(entries, key, seq))
    }
}

/// The chunks of the smallest size of which there are [`FAN_IN`]; none if there is no such size.
fn pick_like_sized(mut chunks: Vec<Arc<Chunk>>) -> Vec<Arc<Chunk>> {
    let size = |chunk: &Arc<Chunk>| chunk.refs().len().ilog2() / FAN_IN.ilog2();
    chunks.sort_by_key(size);
    let like = chunks.chunk_by(|a, b| size(a) == size(b)).find(|like| like.len() >= FAN_IN);
    like.map_or_else(Vec::new, <[_]>::to_vec)
}

/// The chunks whose merge saves most chunks for each entry that is moved.
fn pick_cheapest(mut chunks: Vec<Arc<Chunk>>) -> Vec<Arc<Chunk>> {
    chunks.sort_by_key(|chunk| chunk.refs().len());
    // Saved chunks and moved entries of the best so far: `saved / moved` is compared by cross-multiplication.
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
