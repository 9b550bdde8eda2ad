//! Range tombstones, indexed so that a binary search finds the newest one over a key.
//!
//! All starts and ends cut the key space into *pieces* over which the set of tombstones is
//! constant. Each tombstone is stored at no more than 2 log n nodes of a segment tree over the
//! pieces. A lookup walks from its piece to the root. So n tombstones take O(n log n) memory,
//! however they overlap. A plain list of sequence numbers per piece would take n² for the common
//! case of repeated deletes of everything up to a growing bound.
//!
//! The structure is immutable. [`FragmentedTombstones::with`] adds one tombstone. It keeps a few
//! parts whose sizes fall geometrically and joins those of like size. A memtable that takes range
//! deletes between reads therefore pays O(log² n) for each instead of a rebuild.
//!
//! An end of `None` means no end; reversed and empty ranges are dropped. Bounds are inclusive
//! below, exclusive above.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::RangeTombstone;
use bytes::Bytes;
use shamba_key::SeqNo;

/// The range tombstones of one memtable or run.
#[derive(Clone, Default, Debug)]
pub struct FragmentedTombstones {
    /// Largest first; no two of the same size.
    parts: Vec<Arc<Part>>,
}

/// A range of keys over which the newest visible tombstone is the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cover {
    /// The first key of the range.
    pub lower: Bytes,
    /// The first key after the range; `None`: no end.
    pub upper: Option<Bytes>,
    /// Sequence number of the newest visible tombstone over the range: entries at or below it are
    /// deleted. [`SeqNo::ZERO`] if there is none.
    pub floor: SeqNo,
}

impl Cover {
    /// The range of all keys, without a tombstone.
    pub fn nothing() -> Self {
        Self { lower: Bytes::new(), upper: None, floor: SeqNo::ZERO }
    }

    /// Whether the range holds `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_ref() <= key && self.upper.as_ref().is_none_or(|upper| key < upper.as_ref())
    }

    /// Narrows the range to the keys of both, with the newer of the two tombstones. They must share
    /// a key.
    pub fn intersect(&mut self, other: Self) {
        debug_assert!(
            self.upper.as_ref().is_none_or(|upper| other.lower < *upper)
                && other.upper.as_ref().is_none_or(|upper| self.lower < *upper),
            "the ranges share no key"
        );
        if other.lower > self.lower {
            self.lower = other.lower;
        }
        if let Some(upper) = other.upper {
            if self.upper.as_ref().is_none_or(|own| upper < *own) {
                self.upper = Some(upper);
            }
        }
        self.floor = self.floor.max(other.floor);
    }
}

impl FragmentedTombstones {
    /// From tombstones in any order; empty ones are dropped.
    pub fn new(tombstones: Vec<RangeTombstone>) -> Self {
        Self { parts: Part::build(tombstones).into_iter().map(Arc::new).collect() }
    }

    /// These tombstones and one more.
    #[must_use]
    pub fn with(&self, tombstone: RangeTombstone) -> Self {
        let mut parts = self.parts.clone();
        let mut joined = vec![tombstone];
        while parts.last().is_some_and(|last| last.tombstones.len() <= joined.len()) {
            let Some(last) = parts.pop() else { break };
            joined.extend_from_slice(&last.tombstones);
        }
        parts.extend(Part::build(joined).map(Arc::new));
        debug_assert!(
            parts.windows(2).all(|pair| pair[0].tombstones.len() >= pair[1].tombstones.len()),
            "a later part has more tombstones than an earlier one"
        );
        Self { parts }
    }

    /// Whether there is no tombstone.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The newest tombstone over `key` that a reader at `visible` sees; [`SeqNo::ZERO`] if there is
    /// none.
    pub fn newest_covering(&self, key: &[u8], visible: SeqNo) -> SeqNo {
        let newest = self.parts.iter().map(|part| part.newest_at(part.piece(key), visible)).max();
        newest.unwrap_or(SeqNo::ZERO)
    }

    /// The range around `key` over which [`Self::newest_covering`] is the same.
    pub fn cover(&self, key: &[u8], visible: SeqNo) -> Cover {
        let mut cover = Cover::nothing();
        for part in &self.parts {
            cover.intersect(part.cover(part.piece(key), visible));
        }
        cover
    }

    /// The range that holds the keys just before `bound`. It ends at `bound` or beyond.
    pub fn cover_before(&self, bound: &[u8], visible: SeqNo) -> Cover {
        let mut cover = Cover::nothing();
        for part in &self.parts {
            cover.intersect(part.cover(part.piece_before(bound), visible));
        }
        cover
    }

    /// Memory of the structure without the keys, most of which it shares with its tables or
    /// memtables.
    pub fn memory_bytes(&self) -> u64 {
        let parts_bytes: usize = self.parts.iter().map(|part| part.memory_bytes()).sum();
        (self.parts.capacity() * size_of::<Arc<Part>>() + parts_bytes) as u64
    }

    /// Maximum memory for building the structure from `count` tombstones, and of the result.
    pub fn memory_bytes_max(count: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let fixed_bytes = (PART_BYTES + size_of::<Arc<Part>>()) as u64;
        // The tombstone and its bounds; the starts of the lists of the up to four nodes per
        // tombstone, twice while they are filled; its pieces; its places in the tree.
        let own_bytes = size_of::<RangeTombstone>() + 2 * size_of::<Bytes>();
        let building_bytes = 2 * 4 * size_of::<usize>() + size_of::<(usize, usize)>();
        let places = 2 * (u64::from(count.saturating_mul(2).ilog2()) + 1);
        let each_bytes = (own_bytes + building_bytes) as u64 + places * size_of::<SeqNo>() as u64;
        fixed_bytes + count.saturating_mul(each_bytes)
    }

    /// The tombstones as they were added, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.parts.iter().flat_map(|part| &part.tombstones)
    }

    /// The tombstones newer than `seq`, in no particular order. The others are not looked at.
    pub fn newer_than(&self, seq: SeqNo) -> impl Iterator<Item = &RangeTombstone> {
        self.parts.iter().flat_map(move |part| {
            let older = part.tombstones.partition_point(|tombstone| tombstone.seq <= seq);
            &part.tombstones[older..]
        })
    }

    /// The tombstones in `[lower, upper)` that readers at `stripes` (ascending) and at the newest
    /// sequence number need: over each key the newest one of each stripe. The others are dropped.
    pub fn thinned(&self, lower: &[u8], upper: Option<&[u8]>, stripes: &[SeqNo]) -> Vec<RangeTombstone> {
        let mut kept = Vec::new();
        let Some(part) = self.joined() else { return kept };
        debug_assert!(stripes.is_sorted(), "the sequence numbers of readers do not ascend");
        // Starts of the tombstones that are kept over the previous piece.
        let mut open: BTreeMap<SeqNo, Bytes> = BTreeMap::new();
        let mut close = |seq: SeqNo, start: Bytes, end: Option<Bytes>| {
            kept.extend(clip(&RangeTombstone { start, end, seq }, lower, upper));
        };
        for (piece, start) in part.bounds.iter().enumerate() {
            let needed = part.newest_per_stripe(piece, stripes);
            let ended: Vec<SeqNo> =
                open.keys().filter(|seq| needed.binary_search(seq).is_err()).copied().collect();
            for seq in ended {
                if let Some(from) = open.remove(&seq) {
                    close(seq, from, Some(start.clone()));
                }
            }
            for seq in needed {
                open.entry(seq).or_insert_with(|| start.clone());
            }
        }
        for (seq, from) in open {
            close(seq, from, None);
        }
        kept
    }

    /// All tombstones in one part; `None` when there are none.
    fn joined(&self) -> Option<Arc<Part>> {
        match self.parts.as_slice() {
            [] => None,
            [one] => Some(Arc::clone(one)),
            _ => Part::build(self.iter().cloned().collect()).map(Arc::new),
        }
    }
}

/// The part of a tombstone in `[lower, upper)`; `None` if it does not reach there.
pub fn clip(tombstone: &RangeTombstone, lower: &[u8], upper: Option<&[u8]>) -> Option<RangeTombstone> {
    let mut clipped = tombstone.clone();
    if clipped.start.as_ref() < lower {
        clipped.start = Bytes::copy_from_slice(lower);
    }
    if let Some(upper) = upper {
        if clipped.end.as_ref().is_none_or(|end| upper < end.as_ref()) {
            clipped.end = Some(Bytes::copy_from_slice(upper));
        }
    }
    (!clipped.is_empty()).then_some(clipped)
}

/// Memory of a part besides its lists, with its reference counts.
const PART_BYTES: usize = size_of::<Part>() + 2 * size_of::<usize>();

/// A segment tree over the pieces between all starts and ends.
#[derive(Debug)]
struct Part {
    /// Ascending by sequence number; none is empty.
    tombstones: Vec<RangeTombstone>,
    /// Every start and end, ascending and distinct. Piece `i` reaches from `bounds[i]` to
    /// `bounds[i + 1]`; the last one has no end.
    bounds: Vec<Bytes>,
    /// The sequence numbers stored at node `n` are `seqs[first[n]..first[n + 1]]`, ascending. Piece
    /// `i` is the leaf `bounds.len() + i`; the parent of node `n` is `n / 2`, up to the root 1.
    first: Vec<usize>,
    seqs: Vec<SeqNo>,
}

impl Part {
    /// `None` when no tombstone covers a key.
    fn build(mut tombstones: Vec<RangeTombstone>) -> Option<Self> {
        tombstones.retain(|tombstone| !tombstone.is_empty());
        if tombstones.is_empty() {
            return None;
        }
        tombstones.shrink_to_fit();
        tombstones.sort_unstable_by_key(|tombstone| tombstone.seq);
        let mut bounds: Vec<Bytes> = Vec::with_capacity(2 * tombstones.len());
        bounds.extend(tombstones.iter().flat_map(|t| [Some(&t.start), t.end.as_ref()]).flatten().cloned());
        bounds.sort_unstable();
        bounds.dedup();
        bounds.shrink_to_fit();

        let leaves = bounds.len();
        assert!(leaves > 0, "tombstones without bounds");
        let index = |key: &Bytes| bounds.partition_point(|bound| bound < key);
        let pieces: Vec<(usize, usize)> =
            tombstones.iter().map(|t| (index(&t.start), t.end.as_ref().map_or(leaves, index))).collect();
        // Counts per node are turned into starts, then the lists are filled. The tombstones are
        // sorted, so each list is ascending.
        let mut first = vec![0; 2 * leaves + 1];
        for &pieces in &pieces {
            for_each_node(leaves, pieces, |node| first[node + 1] += 1);
        }
        for node in 0..2 * leaves {
            first[node + 1] += first[node];
        }
        debug_assert!(first.is_sorted(), "the lists of the nodes do not ascend");
        let mut next = first.clone();
        let mut seqs = vec![SeqNo::ZERO; first[2 * leaves]];
        for (tombstone, &pieces) in tombstones.iter().zip(&pieces) {
            for_each_node(leaves, pieces, |node| {
                seqs[next[node]] = tombstone.seq;
                next[node] += 1;
            });
        }
        debug_assert!(
            next.iter().zip(&first[1..]).all(|(filled, start)| filled == start),
            "a node's list is not filled"
        );
        Some(Self { tombstones, bounds, first, seqs })
    }

    fn memory_bytes(&self) -> usize {
        PART_BYTES
            + size_of::<RangeTombstone>() * self.tombstones.capacity()
            + size_of::<Bytes>() * self.bounds.capacity()
            + size_of::<usize>() * self.first.capacity()
            + size_of::<SeqNo>() * self.seqs.capacity()
    }

    /// The piece that holds `key`; `None` before the first.
    fn piece(&self, key: &[u8]) -> Option<usize> {
        self.bounds.partition_point(|bound| bound.as_ref() <= key).checked_sub(1)
    }

    /// The piece that holds the keys just before `bound`; `None` before the first.
    fn piece_before(&self, bound: &[u8]) -> Option<usize> {
        self.bounds.partition_point(|start| start.as_ref() < bound).checked_sub(1)
    }

    fn bounds_of(&self, piece: usize) -> (Bytes, Option<Bytes>) {
        (self.bounds[piece].clone(), self.bounds.get(piece + 1).cloned())
    }

    /// The lists of sequence numbers on the path from a piece to the root.
    fn lists(&self, piece: usize) -> impl Iterator<Item = &[SeqNo]> {
        let leaf = self.bounds.len() + piece;
        debug_assert!(piece < self.bounds.len(), "piece {piece} of {}", self.bounds.len());
        std::iter::successors(Some(leaf), |node| Some(node / 2))
            .take_while(|&node| node > 0)
            .map(|node| &self.seqs[self.first[node]..self.first[node + 1]])
    }

    fn newest_at(&self, piece: Option<usize>, visible: SeqNo) -> SeqNo {
        let Some(piece) = piece else { return SeqNo::ZERO };
        self.lists(piece).map(|seqs| newest_visible(seqs, visible)).max().unwrap_or(SeqNo::ZERO)
    }

    fn cover(&self, piece: Option<usize>, visible: SeqNo) -> Cover {
        match piece {
            None => Cover { lower: Bytes::new(), upper: self.bounds.first().cloned(), floor: SeqNo::ZERO },
            Some(piece) => {
                let (lower, upper) = self.bounds_of(piece);
                Cover { lower, upper, floor: self.newest_at(Some(piece), visible) }
            }
        }
    }

    /// The newest tombstones over a piece that readers at each of `stripes` and at the newest
    /// sequence number see.
    fn newest_per_stripe(&self, piece: usize, stripes: &[SeqNo]) -> Vec<SeqNo> {
        let readers = stripes.iter().copied().chain([SeqNo::MAX]);
        let mut seqs: Vec<SeqNo> = readers.map(|visible| self.newest_at(Some(piece), visible)).collect();
        seqs.retain(|&seq| seq != SeqNo::ZERO);
        seqs.dedup();
        debug_assert!(seqs.is_sorted(), "a later reader needs an older tombstone");
        seqs
    }
}

/// The newest sequence number up to `visible` in an ascending list.
fn newest_visible(seqs: &[SeqNo], visible: SeqNo) -> SeqNo {
    debug_assert!(seqs.is_sorted(), "a node's sequence numbers do not ascend");
    match seqs.last() {
        None => SeqNo::ZERO,
        // Most readers read at a sequence newer than every tombstone.
        Some(&newest) if newest <= visible => newest,
        Some(_) => {
            let older = seqs.partition_point(|&seq| seq <= visible);
            older.checked_sub(1).map_or(SeqNo::ZERO, |index| seqs[index])
        }
    }
}

/// Calls `visit` for the nodes that together make up the pieces `from..to`.
fn for_each_node(leaves: usize, (from, to): (usize, usize), mut visit: impl FnMut(usize)) {
    debug_assert!(from <= to && to <= leaves, "pieces {from}..{to} of {leaves}");
    let (mut from, mut to) = (from + leaves, to + leaves);
    while from < to {
        if from % 2 == 1 {
            visit(from);
            from += 1;
        }
        if to % 2 == 1 {
            to -= 1;
            visit(to);
        }
        from /= 2;
        to /= 2;
    }
}

#[cfg(test)]
mod tests;
