//! Memtables: the newest writes of a keyspace, in memory until a flush writes them to a table.
//!
//! Databases use [`ChunkedMemtable`]: entries in an arena, a digest index for lookups, sorted
//! chunks for scans. Tests compare it with a simple ordered map behind the same trait. One writer
//! at a time runs concurrently with any number of readers.
//!
//! Guarantee for readers: an entry is in the memtable before its sequence number becomes visible,
//! and is never changed or removed. So a reader at sequence `s` always sees the same entries up to
//! `s`, whatever is inserted meanwhile, and it skips newer ones.
//!
//! A long value stays in the log. Its entry has the kind [`EntryKind::ValueRef`] and holds the
//! place of the value ([`ValuePlace`]) instead of the value (with an expiry time,
//! [`EntryKind::ValueRefWithExpiry`]). Operands of merge operators are
//! entries like others; what readers made of many of them is kept in [`FoldedValues`].
//!
//! Which memtables a reader sees is decided in `view`, when a memtable is full in `write`.
#![deny(missing_docs)]
#![deny(unsafe_code)]

use std::sync::Arc;

use shamba_env::sync;
use shamba_key::{EntryKind, Expiry, KeyDigest, SeqNo};
use shamba_table::{Entry, EntryIter, RangeTombstone};

use crate::in_log::InLogIter;
use shamba_log::wal::{ValueLog, ValueLogs, ValuePlace};
use shamba_table::FragmentedTombstones;

#[allow(unsafe_code)]
mod arena;
#[allow(unsafe_code)]
mod chunked;
mod folded;
mod in_log;
#[allow(unsafe_code)]
mod index;
#[allow(unsafe_code)]
mod iter;
mod order;
#[cfg(test)]
mod ordered;

pub use chunked::ChunkedMemtable;
pub use folded::FoldedValues;
#[cfg(test)]
pub use ordered::OrderedMemtable;

/// An ordered store of entries and range tombstones in memory.
pub trait Memtable: Send + Sync {
    /// Stores a copy of one version of a key. An entry with the same key and sequence number that
    /// is already stored stays unchanged.
    fn insert(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]);

    /// Prefetches the cache line that [`Self::get`] with this digest reads first.
    fn prefetch(&self, digest: KeyDigest);

    /// Stores a range tombstone; an empty one is ignored.
    fn insert_range_delete(&self, tombstone: RangeTombstone);

    /// The newest version of `key` with a sequence number up to `seq`. Does not consult range
    /// tombstones.
    fn get(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry>;

    /// The sequence number of the newest version of `key`; [`SeqNo::ZERO`] if there is none. Does
    /// not consult range tombstones.
    fn newest_seq(&self, digest: KeyDigest, key: &[u8]) -> SeqNo {
        self.get(digest, key, SeqNo::MAX).map_or(SeqNo::ZERO, |entry| entry.seq)
    }

    /// Calls `each` with the versions of `key` up to `seq`, from the newest to the oldest, until it
    /// returns false. Does not consult range tombstones.
    fn versions(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, each: &mut dyn FnMut(Entry) -> bool) {
        versions_by_get(self, digest, key, seq, each);
    }

    /// Values of long chains of operands, for readers.
    fn folded(&self) -> &FoldedValues;

    /// Whether there is any range tombstone. This is one load, so that a lookup need not take the
    /// list.
    fn has_range_deletes(&self) -> bool;

    /// The range tombstones so far. Cheap: the list is always ready.
    fn range_tombstones(&self) -> Arc<FragmentedTombstones>;

    /// Approximate memory: keys, values and the structures around them.
    fn bytes(&self) -> u64;

    /// Whether it is near the maximum that it can address, whatever the write buffer; it must be
    /// sealed then.
    fn is_full(&self) -> bool {
        false
    }

    /// Number of point entries, including every version but no range tombstones.
    fn entries(&self) -> u64;

    /// Whether it holds neither entries nor range tombstones.
    fn is_empty(&self) -> bool;

    /// The largest sequence number of an entry or range tombstone; [`SeqNo::ZERO`] when empty.
    fn largest_seq(&self) -> SeqNo;

    /// Iterates over the entries in internal order. Entries inserted later may or may not appear.
    /// For a value in a log it returns the place; `entries_iter` reads the value.
    fn iter(self: Arc<Self>) -> Box<dyn EntryIter>;

    /// The logs that hold values of entries; the memtable only keeps them alive.
    fn values(&self) -> &ValueLogs;
}

/// [`Memtable::versions`] by one lookup for each version.
fn versions_by_get<M: Memtable + ?Sized>(
    memtable: &M,
    digest: KeyDigest,
    key: &[u8],
    seq: SeqNo,
    each: &mut dyn FnMut(Entry) -> bool,
) {
    let mut next = memtable.get(digest, key, seq);
    while let Some(entry) = next {
        let older = entry.seq.0.checked_sub(1).map(SeqNo);
        next = if each(entry) { older.and_then(|seq| memtable.get(digest, key, seq)) } else { None };
    }
}

impl dyn Memtable + '_ {
    /// Stores a put whose value lies in a log, after its expiry if it has one.
    pub fn insert_in_log(
        &self,
        digest: KeyDigest,
        key: &[u8],
        (seq, expiry): (SeqNo, Option<Expiry>),
        log: &Arc<ValueLog>,
        place: ValuePlace,
    ) {
        debug_assert_eq!(place.log, log.number(), "the value's place is in another log: {place:?}");
        self.values().add(log);
        let place = place.encode();
        match expiry {
            None => self.insert(digest, key, seq, EntryKind::ValueRef, &place),
            Some(expiry) => {
                self.insert(digest, key, seq, EntryKind::ValueRefWithExpiry, &expiry.encode(&place));
            }
        }
    }
}

impl dyn Memtable {
    /// [`Memtable::iter`], reading the values that lie in logs. The caller looks at no value that
    /// was written after this call: it may lie in the first log of the memtable.
    pub fn entries_iter(self: Arc<Self>) -> Box<dyn EntryIter> {
        let has_logs = !self.values().is_empty();
        let iter = Arc::clone(&self).iter();
        if has_logs { Box::new(InLogIter::new(self, iter)) } else { iter }
    }
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
