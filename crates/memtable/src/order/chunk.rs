//! Sorted chunks: references to entries in internal order, searched by sampled heads.
//!
//! A chunk takes 4 bytes per entry, and 1 more for the heads. A head is stored for every eighth
//! entry: eight bytes of the key, after the *prefix* that all keys of the memtable had in common
//! when the chunk was made. A search looks at the heads first and reads entries only between two of
//! them, or where heads are equal.
//!
//! Chunks are made in `super` and [`super::merge`].

use std::sync::atomic::{AtomicU8, Ordering};

use shamba_key::{SeqNo, head};
use shamba_table::internal_cmp;

use super::super::arena::{Entries, EntryRef};

/// One head is stored per this many entries. With 8 a search among 450,000 entries reads three or
/// four of them.
const SAMPLE_EVERY: usize = 8;
/// Eight-byte pieces of keys that a sort compares before it compares whole keys.
const SORT_LAYERS: usize = 8;
/// Groups of equal heads up to this length are sorted by whole keys at once.
const SMALL_GROUP: usize = 8;

/// Some entries of a memtable in internal order.
pub(super) struct Chunk {
    refs: Box<[EntryRef]>,
    /// Number of first bytes that all keys share; heads are taken after them.
    prefix: usize,
    /// Heads of entries 0, 8, 16, ..; empty in a small chunk.
    samples: Box<[u64]>,
    /// The merge that has claimed the chunk; 0 if none.
    pub claim: AtomicU8,
}

impl Chunk {
    /// A chunk of sorted references that is searched without heads.
    pub fn plain(refs: Vec<EntryRef>) -> Self {
        assert!(!refs.is_empty(), "a chunk without entries has no size class");
        Self { refs: refs.into(), prefix: 0, samples: Box::default(), claim: AtomicU8::new(0) }
    }

    /// A chunk of sorted references and the heads of every [`SAMPLE_EVERY`]th.
    pub fn sampled(refs: Vec<EntryRef>, prefix: usize, samples: Vec<u64>) -> Self {
        assert!(!refs.is_empty(), "a chunk without entries has no size class");
        let due = refs.len().div_ceil(SAMPLE_EVERY);
        assert_eq!(samples.len(), due, "the number of heads of a chunk of {} entries", refs.len());
        debug_assert!(samples.is_sorted(), "the heads after {prefix} bytes are not in order: {samples:x?}");
        Self { refs: refs.into(), prefix, samples: samples.into(), claim: AtomicU8::new(0) }
    }

    /// The same references, with heads.
    pub fn with_heads(&self, entries: Entries<'_>, prefix: usize) -> Self {
        let samples = self.refs.iter().step_by(SAMPLE_EVERY).map(|entry| entries.head(*entry, prefix));
        Self::sampled(self.refs.to_vec(), prefix, samples.collect())
    }

    /// Whether the head of entry number `index` is stored.
    #[inline]
    pub fn is_sampled(index: usize) -> bool {
        index % SAMPLE_EVERY == 0
    }

    /// The references in order.
    #[inline]
    pub fn refs(&self) -> &[EntryRef] {
        &self.refs
    }

    /// Memory of the chunk.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.refs) + size_of_val(&*self.samples)
    }

    /// Claims the chunk for merge `by`; false if another merge has it.
    pub fn claim(&self, by: u8) -> bool {
        debug_assert!(by != 0, "0 means that no merge has claimed the chunk");
        self.claim.compare_exchange(0, by, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Number of entries before `(key, seq)`.
    pub fn lower_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.partition(entries, key, |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_lt()
        })
    }

    /// Number of entries before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.partition(entries, key, |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_le()
        })
    }

    /// Number of entries for which `is_before` is true. It must be true for all entries of smaller
    /// keys and false for all of larger ones.
    fn partition(&self, entries: Entries<'_>, key: &[u8], is_before: impl Fn(EntryRef) -> bool) -> usize {
        let (mut from, mut to) = (0, self.refs.len());
        if let (Some(first), false) = (self.refs.first(), self.samples.is_empty()) {
            let shared = &entries.get(*first).key[..self.prefix];
            let Some(rest) = key.strip_prefix(shared) else {
                return if key < shared { 0 } else { to };
            };
            let wanted = head(rest);
            // An entry with a smaller head has a smaller key, and so have all before it; likewise
            // for larger ones.
            let smaller = self.samples.partition_point(|sample| *sample < wanted);
            let not_larger = smaller + self.samples[smaller..].partition_point(|sample| *sample == wanted);
            from = smaller.checked_sub(1).map_or(0, |last| last * SAMPLE_EVERY + 1);
            to = to.min(not_larger * SAMPLE_EVERY);
        }
        debug_assert!(from <= to, "the heads bound the search by {from} and {to}");
        let at = from + self.refs[from..to].partition_point(|entry| is_before(*entry));
        // The heads only shorten the search: they must not change its result.
        debug_assert!(
            self.refs[..at].last().is_none_or(|entry| is_before(*entry))
                && self.refs.get(at).is_none_or(|entry| !is_before(*entry)),
            "a search between {from} and {to} of {} entries ended wrongly at {at}",
            self.refs.len()
        );
        at
    }
}

/// Sorts references into internal order; all keys are equal in their first `prefix` bytes.
pub(super) fn sort(entries: Entries<'_>, refs: &mut [EntryRef], prefix: usize) {
    let mut items: Vec<Item> =
        refs.iter().map(|entry| Item { head: entries.head(*entry, prefix), entry: *entry }).collect();
    sort_layer(entries, &mut items, prefix, SORT_LAYERS);
    for (place, item) in refs.iter_mut().zip(&items) {
        *place = item.entry;
    }
    debug_assert!(
        refs.is_sorted_by(|entry, next| entries.cmp(*entry, *next).is_lt()),
        "{} entries are not in order after a sort by heads from byte {prefix} on",
        refs.len()
    );
}

struct Item {
    head: u64,
    entry: EntryRef,
}

/// Sorts by heads, which are taken from byte `from` on, then groups of equal heads by the bytes
/// after those. Comparing whole keys, as at the end, takes several times as long for path-like
/// keys.
fn sort_layer(entries: Entries<'_>, items: &mut [Item], from: usize, layers: usize) {
    items.sort_unstable_by_key(|item| item.head);
    for group in items.chunk_by_mut(|a, b| a.head == b.head).filter(|group| group.len() > 1) {
        let next = from + 8;
        // A head padded with zeros equals one that ends in zeros: such keys must be compared whole.
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
