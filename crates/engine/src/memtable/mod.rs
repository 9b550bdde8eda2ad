//! Memtables: the newest writes of a keyspace, in memory, until a flush makes a table of them.
//!
//! Databases use [`ChunkedMemtable`]: entries in an arena, a digest index for lookups, sorted chunks for scans.
//! Tests hold it against a simple ordered map behind the same trait. One writer at a time, any number of readers
//! beside it.
//!
//! What readers rely on: an entry is in the memtable before its sequence number becomes visible, and is never
//! changed or taken out. So a reader at sequence `s` always sees the same entries up to `s`, whatever is
//! inserted meanwhile, and it skips newer ones.
//!
//! Not here: which memtables a reader sees ([`crate::view`]), when one is full (`write`).

use std::sync::Arc;

use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{Entry, EntryIter, RangeTombstone};

use crate::range_delete::FragmentedTombstones;

#[allow(unsafe_code)]
mod arena;
#[allow(unsafe_code)]
mod chunked;
#[allow(unsafe_code)]
mod index;
#[allow(unsafe_code)]
mod iter;
mod order;
#[cfg(test)]
mod ordered;

pub(crate) use chunked::ChunkedMemtable;
#[cfg(test)]
pub(crate) use ordered::OrderedMemtable;

/// An ordered store of entries and range tombstones in memory.
pub(crate) trait Memtable: Send + Sync {
    /// Stores a copy of one version of a key. What is stored under the same
    /// key and sequence number already stays.
    fn insert(&self, digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]);

    /// Asks the core for the line at which [`Self::get`] with this digest will look first, and returns at once.
    #[allow(dead_code)] // For lookups of many keys at once.
    fn prefetch(&self, digest: KeyDigest);

    /// Stores a range tombstone; one over no key is dropped.
    fn insert_range_delete(&self, tombstone: RangeTombstone);

    /// The newest version of `key` with a sequence number up to `seq`. Does not ask the range tombstones.
    fn get(&self, digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry>;

    /// Whether there is any range tombstone: one load, so that a lookup need not take the list.
    fn has_range_deletes(&self) -> bool;

    /// The range tombstones so far. Cheap: the list is kept ready.
    fn range_tombstones(&self) -> Arc<FragmentedTombstones>;

    /// About how much memory it takes: keys, values and the structure around them.
    fn bytes(&self) -> u64;

    /// Whether it can take little more, whatever its size; it must be sealed then.
    fn is_full(&self) -> bool {
        false
    }

    /// Point entries, every version counted; range tombstones are not.
    fn entries(&self) -> u64;

    /// Whether it holds neither entries nor range tombstones.
    fn is_empty(&self) -> bool;

    /// The largest sequence number of an entry or range tombstone; [`SeqNo::ZERO`] when empty.
    fn largest_seq(&self) -> SeqNo;

    /// Walks the entries in internal order. Entries inserted later may or may not appear.
    fn iter(self: Arc<Self>) -> Box<dyn EntryIter>;
}

#[cfg(test)]
mod tests;
