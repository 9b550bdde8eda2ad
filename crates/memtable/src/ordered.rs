//! A reference memtable for tests: an ordered map from key to versions behind a read-write lock.
//!
//! Readers and the writer exclude each other only for one map operation. An iterator holds no lock
//! between calls. It copies a *chunk* of entries (reference counts, not bytes) under the lock,
//! iterates over the copy, and then continues after the last key and sequence number. A chunk may
//! miss entries that were inserted after it was copied; all of those are newer than what any reader
//! of it can see.
//!
//! The memtable that databases use is [`super::chunked`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use arc_swap::ArcSwap;
use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{Entry, EntryIter, RangeTombstone, Value};

use super::{FoldedValues, Memtable};
use shamba_log::wal::ValueLogs;
use shamba_table::FragmentedTombstones;

/// Memory of one key besides its bytes: its slot in a map node that is two thirds full on average
/// (a key of 32 bytes and a [`Versions`] of 72), the allocation of its bytes (16) and their
/// reference count (24).
const KEY_OVERHEAD_BYTES: u64 = 104 * 3 / 2 + 16 + 24;
/// Memory of each further version besides its value: its slot in a list that is three quarters
/// full.
const VERSION_OVERHEAD_BYTES: u64 = 48 * 4 / 3;
/// Memory of one range tombstone besides its bounds: itself, two fragments and their places in the
/// tree.
const RANGE_DELETE_OVERHEAD_BYTES: u64 = 320;

/// A seek copies few entries, since short scans are common. Each further chunk is twice as long, up
/// to a length at which the lock and the search are a small part of a step.
const FIRST_CHUNK_ENTRIES: usize = 4;
const CHUNK_ENTRIES_MAX: usize = 64;

/// A memtable over the standard library's ordered map.
#[derive(Default)]
pub struct OrderedMemtable {
    map: RwLock<Map>,
    range_deletes: ArcSwap<FragmentedTombstones>,
    range_delete_count: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU64,
    largest_seq: AtomicU64,
    values: ValueLogs,
    folded: FoldedValues,
}

type Map = BTreeMap<Bytes, Versions>;

impl OrderedMemtable {
    /// An empty memtable.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        // Nothing that can panic runs while the map is changed, so it is valid after a panic
        // elsewhere.
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memtable for OrderedMemtable {
    fn insert(&self, _digest: KeyDigest, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) {
        let version = Version { seq, kind, value: Bytes::copy_from_slice(value) };
        let mut bytes = value.len() as u64;
        let mut added = true;
        let mut map = self.write();
        match map.get_mut(key) {
            Some(versions) => {
                added = versions.insert(version);
                bytes += VERSION_OVERHEAD_BYTES;
            }
            None => {
                map.insert(Bytes::copy_from_slice(key), Versions { newest: version, older: Vec::new() });
                bytes += key.len() as u64 + KEY_OVERHEAD_BYTES;
            }
        }
        drop(map);
        if added {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        self.largest_seq.fetch_max(seq.0, Ordering::Relaxed);
    }

    fn prefetch(&self, _digest: KeyDigest) {}

    fn insert_range_delete(&self, tombstone: RangeTombstone) {
        if tombstone.is_empty() {
            return;
        }
        let bounds = tombstone.start.len() + tombstone.end.as_ref().map_or(0, Bytes::len);
        let seq = tombstone.seq;
        self.range_deletes.rcu(|before| before.with(tombstone.clone()));
        // After the list: a reader that sees the count finds the tombstone.
        self.range_delete_count.fetch_add(1, Ordering::Release);
        self.bytes.fetch_add(bounds as u64 + RANGE_DELETE_OVERHEAD_BYTES, Ordering::Relaxed);
        self.largest_seq.fetch_max(seq.0, Ordering::Relaxed);
    }

    fn get(&self, _digest: KeyDigest, key: &[u8], seq: SeqNo) -> Option<Entry> {
        let map = self.read();
        let versions = map.get(key)?;
        let version = versions.get(versions.first_up_to(seq))?;
        Some(Entry { seq: version.seq, kind: version.kind, value: Value::from_bytes(version.value.clone()) })
    }

    fn has_range_deletes(&self) -> bool {
        self.range_delete_count.load(Ordering::Acquire) > 0
    }

    fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
        self.range_deletes.load_full()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_deletes()
    }

    fn largest_seq(&self) -> SeqNo {
        SeqNo(self.largest_seq.load(Ordering::Relaxed))
    }

    fn folded(&self) -> &FoldedValues {
        &self.folded
    }

    fn values(&self) -> &ValueLogs {
        &self.values
    }

    fn iter(self: Arc<Self>) -> Box<dyn EntryIter> {
        Box::new(OrderedIter { table: self, chunk: Vec::new(), at: 0, chunk_entries: FIRST_CHUNK_ENTRIES })
    }
}

#[derive(Clone)]
struct Version {
    seq: SeqNo,
    kind: EntryKind,
    value: Bytes,
}

/// The versions of one key. Most keys of a memtable have one version and need no list. New versions
/// of an often overwritten key go to the end of the list, so each costs the same.
struct Versions {
    newest: Version,
    /// Oldest first.
    older: Vec<Version>,
}

impl Versions {
    fn len(&self) -> usize {
        1 + self.older.len()
    }

    /// The versions by rank, 0 being the newest.
    fn get(&self, rank: usize) -> Option<&Version> {
        match rank {
            0 => Some(&self.newest),
            _ => self.older.len().checked_sub(rank).map(|index| &self.older[index]),
        }
    }

    /// The rank of the newest version up to `seq`; the number of versions if all are newer.
    fn first_up_to(&self, seq: SeqNo) -> usize {
        if self.newest.seq <= seq {
            return 0;
        }
        self.len() - self.older.partition_point(|version| version.seq <= seq)
    }

    /// Adds the version. Returns false if its sequence number exists already; the old version then
    /// stays.
    fn insert(&mut self, version: Version) -> bool {
        if version.seq > self.newest.seq {
            self.older.push(std::mem::replace(&mut self.newest, version));
            return true;
        }
        // Out of order: only tests do this.
        match self.older.binary_search_by_key(&version.seq, |older| older.seq) {
            Err(index) if version.seq < self.newest.seq => {
                self.older.insert(index, version);
                true
            }
            _ => false,
        }
    }
}

struct OrderedIter {
    table: Arc<OrderedMemtable>,
    /// Consecutive entries of the memtable in internal order; empty when not valid.
    chunk: Vec<Copied>,
    at: usize,
    /// Maximum number of entries in the next chunk.
    chunk_entries: usize,
}

struct Copied {
    key: Bytes,
    version: Version,
}

impl OrderedIter {
    fn current(&self) -> &Copied {
        &self.chunk[self.at]
    }

    /// Clears the chunk; the next one starts small again.
    fn start_over(&mut self) {
        self.chunk.clear();
        self.at = 0;
        self.chunk_entries = FIRST_CHUNK_ENTRIES;
    }

    /// Copies the chunk of entries from rank `skip` of `key`'s versions on, or from the next key on
    /// if the map lacks the key. `skip` computes the rank from the versions that the map holds now.
    fn load_forward(&mut self, key: &[u8], skip: impl FnOnce(&Versions) -> usize) {
        self.chunk.clear();
        self.at = 0;
        let limit = self.grow();
        let map = self.table.read();
        let mut skip = Some(skip);
        for (found, versions) in map.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)) {
            let first = match skip.take() {
                Some(skip) if found.as_ref() == key => skip(versions),
                _ => 0,
            };
            for version in (first..versions.len()).map_while(|rank| versions.get(rank)) {
                self.chunk.push(Copied { key: found.clone(), version: version.clone() });
                if self.chunk.len() == limit {
                    return;
                }
            }
        }
    }

    /// Copies the chunk that ends with the version of `key` before rank `until`, or with the last
    /// version of the key before. `until` computes the rank from the versions that the map holds
    /// now.
    fn load_backward(&mut self, key: Bound<&[u8]>, until: impl FnOnce(&Versions) -> usize) {
        self.chunk.clear();
        let limit = self.grow();
        let map = self.table.read();
        let mut until = Some(until);
        'copying: for (found, versions) in map.range::<[u8], _>((Bound::Unbounded, key)).rev() {
            let end = match (until.take(), key) {
                (Some(until), Bound::Included(key)) if found.as_ref() == key => until(versions),
                _ => versions.len(),
            };
            for version in (0..end).rev().map_while(|rank| versions.get(rank)) {
                self.chunk.push(Copied { key: found.clone(), version: version.clone() });
                if self.chunk.len() == limit {
                    break 'copying;
                }
            }
        }
        drop(map);
        self.chunk.reverse();
        self.at = self.chunk.len().saturating_sub(1);
    }

    fn grow(&mut self) -> usize {
        let limit = self.chunk_entries;
        self.chunk_entries = (limit * 2).min(CHUNK_ENTRIES_MAX);
        limit
    }
}

impl EntryIter for OrderedIter {
    fn seek_to_first(&mut self) -> shamba_table::Result<()> {
        self.start_over();
        self.load_forward(&[], |_| 0);
        Ok(())
    }

    fn seek_to_last(&mut self) -> shamba_table::Result<()> {
        self.start_over();
        self.load_backward(Bound::Unbounded, Versions::len);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> shamba_table::Result<()> {
        self.start_over();
        self.load_forward(key, |versions| versions.first_up_to(seq));
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> shamba_table::Result<()> {
        self.start_over();
        // The versions at or before (key, seq) are those with that number or a larger one.
        self.load_backward(Bound::Included(key), |versions| ranks_from(versions, seq));
        Ok(())
    }

    fn next(&mut self) -> shamba_table::Result<()> {
        self.at += 1;
        if self.at >= self.chunk.len() {
            if let Some(Copied { key, version }) = self.chunk.pop() {
                self.load_forward(&key, |versions| ranks_from(versions, version.seq));
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> shamba_table::Result<()> {
        if let Some(before) = self.at.checked_sub(1) {
            self.at = before;
        } else if !self.chunk.is_empty() {
            let Copied { key, version } = self.chunk.swap_remove(0);
            self.load_backward(Bound::Included(&key), |versions| versions.first_up_to(version.seq));
        }
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at < self.chunk.len()
    }

    fn key(&self) -> &[u8] {
        &self.current().key
    }

    fn seq(&self) -> SeqNo {
        self.current().version.seq
    }

    fn kind(&self) -> EntryKind {
        self.current().version.kind
    }

    fn value(&self) -> &[u8] {
        &self.current().version.value
    }

    fn value_bytes(&self) -> Bytes {
        self.current().version.value.clone()
    }
}

/// Number of versions with the number `seq` or a larger one.
fn ranks_from(versions: &Versions, seq: SeqNo) -> usize {
    match seq.0.checked_sub(1) {
        Some(below) => versions.first_up_to(SeqNo(below)),
        None => versions.len(),
    }
}
