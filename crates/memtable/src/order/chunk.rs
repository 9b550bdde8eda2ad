//! Sorted chunks: references to entries in internal order, found in by sampled heads.
//!
//! A chunk takes 4 bytes an entry, and 1 more for the heads: of every eighth entry, eight bytes of the key
//! after the *prefix* that all keys of the memtable had in common when the chunk was made. A search walks the heads
//! first and touches entries only between two of them, or where heads tie.
//!
//! Not here: where chunks come from (`super`, [`super::merge`]).

use std::sync::atomic::{AtomicU8, Ordering};

use shamba_key::{SeqNo, head};
use shamba_table::internal_cmp;

use super::super::arena::{Entries, EntryRef};

/// Every how many entries a head is kept. With 8 a search among 450,000 entries touches three or four of them.
const SAMPLE_EVERY: usize = 8;
/// Eight-byte pieces of keys that a sort looks at before it compares whole keys.
const SORT_LAYERS: usize = 8;
/// Groups of tied heads up to this long are sorted by whole keys at once.
const SMALL_GROUP: usize = 8;

/// Some entries of a memtable in internal order.
pub(super) struct Chunk {
    refs: Box<[EntryRef]>,
    /// How many first bytes the keys share; heads are of what follows.
    prefix: usize,
    /// Heads of entries 0, 8, 16, ..; none in a small chunk.
    samples: Box<[u64]>,
    /// 0, or which merge has taken it.
    pub claim: AtomicU8,
}

impl Chunk {
    /// A chunk of sorted references that is searched without heads.
    pub fn plain(refs: Vec<EntryRef>) -> Self {
        Self { refs: refs.into(), prefix: 0, samples: Box::default(), claim: AtomicU8::new(0) }
    }

    /// A chunk of sorted references and the heads of every [`SAMPLE_EVERY`]th.
    pub fn sampled(refs: Vec<EntryRef>, prefix: usize, samples: Vec<u64>) -> Self {
        Self { refs: refs.into(), prefix, samples: samples.into(), claim: AtomicU8::new(0) }
    }

    /// The same references, with heads.
    pub fn with_heads(&self, entries: Entries<'_>, prefix: usize) -> Self {
        let samples = self.refs.iter().step_by(SAMPLE_EVERY).map(|entry| entries.head(*entry, prefix));
        Self::sampled(self.refs.to_vec(), prefix, samples.collect())
    }

    /// Whether the entry that comes as number `index` is one whose head is kept.
    #[inline]
    pub fn is_sampled(index: usize) -> bool {
        index % SAMPLE_EVERY == 0
    }

    /// The references in order.
    #[inline]
    pub fn refs(&self) -> &[EntryRef] {
        &self.refs
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.refs) + size_of_val(&*self.samples)
    }

    /// Claims it for merge `by`; false if another has it.
    pub fn claim(&self, by: u8) -> bool {
        self.claim.compare_exchange(0, by, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// How many entries come before `(key, seq)`.
    pub fn lower_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.partition(entries, key, |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_lt()
        })
    }

    /// How many entries come before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.partition(entries, key, |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_le()
        })
    }

    /// How many entries `is_before` holds for; it does for all of smaller keys and none of larger ones.
    fn partition(&self, entries: Entries<'_>, key: &[u8], is_before: impl Fn(EntryRef) -> bool) -> usize {
        let (mut from, mut to) = (0, self.refs.len());
        if let (Some(first), false) = (self.refs.first(), self.samples.is_empty()) {
            let shared = &entries.get(*first).key[..self.prefix];
            let Some(rest) = key.strip_prefix(shared) else {
                return if key < shared { 0 } else { to };
            };
            let wanted = head(rest);
            // Where the head is smaller the key is, and so are all before it; likewise for larger ones.
            let smaller = self.samples.partition_point(|sample| *sample < wanted);
            let not_larger = smaller + self.samples[smaller..].partition_point(|sample| *sample == wanted);
            from = smaller.checked_sub(1).map_or(0, |last| last * SAMPLE_EVERY + 1);
            to = to.min(not_larger * SAMPLE_EVERY);
        }
        from + self.refs[from..to].partition_point(|entry| is_before(*entry))
    }
}

/// Sorts references into internal order; all keys are the same in their first `prefix` bytes.
pub(super) fn sort(entries: Entries<'_>, refs: &mut [EntryRef], prefix: usize) {
    let mut items: Vec<Item> =
        refs.iter().map(|entry| Item { head: entries.head(*entry, prefix), entry: *entry }).collect();
    sort_layer(entries, &mut items, prefix, SORT_LAYERS);
    for (place, item) in refs.iter_mut().zip(&items) {
        *place = item.entry;
    }
}

struct Item {
    head: u64,
    entry: EntryRef,
}

/// Sorts by heads, which are of the bytes from `from` on; then tied groups by the bytes after those. Comparing
/// whole keys, as at the end, takes several times as long where keys are like paths.
fn sort_layer(entries: Entries<'_>, items: &mut [Item], from: usize, layers: usize) {
    items.sort_unstable_by_key(|item| item.head);
    for group in items.chunk_by_mut(|a, b| a.head == b.head).filter(|group| group.len() > 1) {
        let next = from + 8;
        // A head that ends in padding ties with one that ends in zeros: such keys must be seen whole.
        let may_go_on = layers > 0
            && group.len() > SMALL_GROUP
            && group.iter().all(|item| entries.get(item.entry).key.len() >= next);
        if may_go_on {
            for item in &mut *group {
                item.head = entries.head(item.entry, next);
            }
            sort_layer(entries, group, next, layers - 1);
        } else {
            group.sort_unstable_by(|a, b| entries.cmp(a.entry, b.entry));
        }
    }
}
