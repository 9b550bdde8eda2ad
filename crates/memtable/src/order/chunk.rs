//! Sorted chunks: references to entries in internal order, searched by sampled heads.
//!
//! A chunk takes 4 bytes per entry, and 1 more for the heads. A head is stored for every eighth
//! entry: eight bytes of the key, after the *prefix* that all keys of the memtable had in common
//! when the chunk was made. A search looks at the heads first and reads entries only between two of
//! them, or where heads are equal. The [`Summary`] tells where entries are that are newer than a
//! range tombstone. The sorted copy of a tail has the heads of all entries.
//!
//! Chunks are made in [`super::tail`] and [`super::merge`].

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use shamba_key::{SeqNo, head};
use shamba_table::internal_cmp;

use super::super::arena::{Entries, EntryRef};
use super::summary::{CHUNK_GROUP, Summary, SummaryBuilder};

/// One head is stored per this many entries. With 8 a search among 450,000 entries reads three or
/// four of them.
const SAMPLE_EVERY: usize = 8;
const _: () = assert!(CHUNK_GROUP % SAMPLE_EVERY == 0, "a group ends where a head is stored");
/// Eight-byte pieces of keys that a sort compares before it compares whole keys.
const SORT_LAYERS: usize = 8;
/// Groups of equal heads up to this length are sorted by whole keys at once.
const SMALL_GROUP: usize = 8;

/// Some entries of a memtable in internal order.
pub(super) struct Chunk {
    refs: Box<[EntryRef]>,
    /// Number of first bytes that all keys share; heads are taken after them.
    prefix: usize,
    /// Heads of entries 0, `sample_every`, 2 * `sample_every`, ..
    samples: Box<[u64]>,
    sample_every: usize,
    summary: Summary,
    /// The merge that has claimed the chunk; 0 if none.
    pub claim: AtomicU8,
}

impl Chunk {
    /// A chunk of sorted references, whose keys are equal in their first `prefix` bytes.
    pub fn new(entries: Entries<'_>, refs: Vec<EntryRef>, prefix: usize) -> Self {
        let samples = refs.iter().step_by(SAMPLE_EVERY).map(|entry| entries.head(*entry, prefix)).collect();
        let mut summary = SummaryBuilder::with_capacity(refs.len());
        refs.iter().for_each(|entry| summary.push(entries.get(*entry).seq));
        Self::sampled(refs, prefix, samples, summary.finish())
    }

    /// As [`Self::new`], with a head of every [`SAMPLE_EVERY`]th entry and a summary.
    pub fn sampled(refs: Vec<EntryRef>, prefix: usize, samples: Vec<u64>, summary: Summary) -> Self {
        Self::with_samples(refs, prefix, samples, SAMPLE_EVERY, summary)
    }

    /// As [`Self::new`], with the head of every entry and only the largest sequence number.
    pub fn with_all_heads(entries: Entries<'_>, refs: Vec<EntryRef>, prefix: usize) -> Self {
        let samples = refs.iter().map(|entry| entries.head(*entry, prefix)).collect();
        let largest = refs.iter().map(|entry| entries.get(*entry).seq).max().unwrap_or(SeqNo::ZERO);
        Self::with_samples(refs, prefix, samples, 1, Summary::of_one_group(largest))
    }

    fn with_samples(
        refs: Vec<EntryRef>,
        prefix: usize,
        samples: Vec<u64>,
        sample_every: usize,
        summary: Summary,
    ) -> Self {
        assert!(!refs.is_empty(), "a chunk without entries has no size class");
        let due = refs.len().div_ceil(sample_every);
        assert_eq!(samples.len(), due, "the number of heads of a chunk of {} entries", refs.len());
        debug_assert!(samples.is_sorted(), "the heads after {prefix} bytes are not in order: {samples:x?}");
        let (refs, samples) = (refs.into(), samples.into());
        Self { refs, prefix, samples, sample_every, summary, claim: AtomicU8::new(0) }
    }

    /// The entries of this chunk, which has all heads, and `added`, which are in order, as a chunk
    /// with all heads. All keys are equal in the prefix of this chunk.
    pub fn with_added(&self, entries: Entries<'_>, added: &[EntryRef]) -> Self {
        debug_assert!(self.sample_every == 1, "a chunk with every {}th head", self.sample_every);
        let count = self.refs.len() + added.len();
        let (mut refs, mut samples) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut own_refs, mut own_samples) = (&*self.refs, &*self.samples);
        let mut largest = self.summary.largest();
        for entry in added {
            let head = entries.head(*entry, self.prefix);
            largest = largest.max(entries.get(*entry).seq);
            let mut before = own_samples.partition_point(|other| *other < head);
            while own_samples.get(before) == Some(&head) && entries.cmp(own_refs[before], *entry).is_lt() {
                before += 1;
            }
            refs.extend_from_slice(&own_refs[..before]);
            samples.extend_from_slice(&own_samples[..before]);
            refs.push(*entry);
            samples.push(head);
            (own_refs, own_samples) = (&own_refs[before..], &own_samples[before..]);
        }
        refs.extend_from_slice(own_refs);
        samples.extend_from_slice(own_samples);
        debug_assert!(
            refs.is_sorted_by(|entry, next| entries.cmp(*entry, *next).is_lt()),
            "{count} entries are not in order after {} were added",
            added.len()
        );
        Self::with_samples(refs, self.prefix, samples, 1, Summary::of_one_group(largest))
    }

    /// Number of first bytes that the keys of all entries shared when the chunk was made.
    pub fn prefix(&self) -> usize {
        self.prefix
    }

    /// Whether a sampled chunk stores the head of entry number `index`.
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
        size_of::<Self>() + size_of_val(&*self.refs) + size_of_val(&*self.samples) + self.summary.bytes()
    }

    /// Claims the chunk for merge `by`; false if another merge has it.
    pub fn claim(&self, by: u8) -> bool {
        debug_assert!(by != 0, "0 means that no merge has claimed the chunk");
        self.claim.compare_exchange(0, by, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Number of entries before `(key, seq)`.
    pub fn lower_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.lower_bound_in(entries, self.narrow(entries, key), key, seq)
    }

    /// As [`Self::lower_bound`], where `within` is the result of [`Self::narrow`] for the key.
    pub fn lower_bound_in(
        &self,
        entries: Entries<'_>,
        within: Range<usize>,
        key: &[u8],
        seq: SeqNo,
    ) -> usize {
        self.partition(within, |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_lt()
        })
    }

    /// Number of entries before or at `(key, seq)`.
    pub fn upper_bound(&self, entries: Entries<'_>, key: &[u8], seq: SeqNo) -> usize {
        self.partition(self.narrow(entries, key), |entry| {
            let entry = entries.get(entry);
            internal_cmp(entry.key, entry.seq, key, seq).is_le()
        })
    }

    /// The numbers between which the bounds of a key lie, by the heads alone: some [`SAMPLE_EVERY`]
    /// entries, if few heads are equal to the key's.
    pub fn narrow(&self, entries: Entries<'_>, key: &[u8]) -> Range<usize> {
        let rest = match self.refs.first() {
            // Without a prefix no entry is read.
            Some(first) if self.prefix > 0 => {
                let shared = &entries.get(*first).key[..self.prefix];
                match key.strip_prefix(shared) {
                    Some(rest) => rest,
                    None if key < shared => return 0..0,
                    None => return self.refs.len()..self.refs.len(),
                }
            }
            _ => key,
        };
        let wanted = head(rest);
        // An entry with a smaller head has a smaller key, and so have all before it; likewise for
        // larger ones.
        let smaller = self.samples.partition_point(|sample| *sample < wanted);
        let equal = self.samples[smaller..].partition_point(|sample| *sample == wanted);
        let from = smaller.checked_sub(1).map_or(0, |last| last * self.sample_every + 1);
        let to = self.refs.len().min((smaller + equal) * self.sample_every);
        debug_assert!(from <= to, "the heads bound the search by {from} and {to}");
        from..to
    }

    /// Prefetches the entries that a search among `within` compares, and the one after them.
    pub fn prefetch(&self, entries: Entries<'_>, within: &Range<usize>) {
        // With many equal heads the search is longer, and reads few of them.
        for entry in self.refs[within.start..].iter().take((within.len() + 1).min(SAMPLE_EVERY)) {
            entries.prefetch(*entry);
        }
    }

    /// Number of the first entry of `range` that is newer than `floor`; the end of `range` if there
    /// is none.
    pub fn first_newer(&self, entries: Entries<'_>, range: Range<usize>, floor: SeqNo) -> usize {
        self.summary.first_newer(range, floor, |number| entries.get(self.refs[number]).seq)
    }

    /// Number after the last entry of `range` that is newer than `floor`; the start of `range` if
    /// there is none.
    pub fn after_last_newer(&self, entries: Entries<'_>, range: Range<usize>, floor: SeqNo) -> usize {
        self.summary.after_last_newer(range, floor, |number| entries.get(self.refs[number]).seq)
    }

    /// Number of entries for which `is_before` is true, which lies in `within`.
    fn partition(&self, within: Range<usize>, is_before: impl Fn(EntryRef) -> bool) -> usize {
        let Range { start, end } = within;
        let at = start + self.refs[start..end].partition_point(|entry| is_before(*entry));
        // The heads only shorten the search: they must not change its result.
        debug_assert!(
            self.refs[..at].last().is_none_or(|entry| is_before(*entry))
                && self.refs.get(at).is_none_or(|entry| !is_before(*entry)),
            "a search between {start} and {end} of {} entries ended wrongly at {at}",
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
