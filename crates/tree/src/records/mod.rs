//! The record cache: the newest entry of single keys, and proven absences, below the memtables.
//!
//! A block cache holds 4 KiB for each record that is asked for, so it is wasteful where hot keys
//! are scattered. This cache holds the record alone. A lookup that no memtable answers asks it by
//! the digest that it has, when the first filter does not deny the key; so absent keys cost
//! nothing.
//!
//! **Validity.** A record is the newest entry of its key in the tables, or the proof that they hold
//! none. Compactions do not change that; flushes, ingests and range tombstones do. They are *edits*
//! ([`RecordCache::begin_edit`]): an edit erases the records of the keys that it brings before its
//! view is published, and no record is written while an edit is under way. With two counters of
//! edits, begun and ended, the rules are:
//!
//! 1. A reader takes the number of ended edits *before* its view. So its view contains all of them.
//! 2. It writes a record only if no other edit has begun since, which is checked under the lock of
//!    the shard under which edits erase. So a record never shows a state older than an edit.
//! 3. It uses a record only if the record's reader had seen no more edits than it has itself. So
//!    the record shows nothing newer than its view, and keys that are read together agree.
//! 4. It uses a record only if the record's sequence number is at most its own: then no version of
//!    the key is between the two. The sequence number of an absence is that of the tombstone that
//!    caused it. A range tombstone over the key, which each lookup looks for first, hides a record
//!    as it hides an entry.
//!
//! Readers at a snapshot use records and write none, since what they find need not be the newest
//! entry.
//!
//! **Sampling.** A cache may cover a share of the digests only ([`RecordCache::set_capacity`]). A
//! small cache that covers an eighth of the keys is asked as seldom, and answers as large a part of
//! what it is asked as one of eight times its size that covers all (Waldspurger, Saemundsson, Ahmad
//! and Park, *Cache Modeling and Optimization using Miniature Simulations*, USENIX ATC 2017). So
//! its counts ([`Asked`]) tell what a large cache would save, for nearly nothing.
//!
//! **Locks.** A shard has a mutex, which is a leaf. Lookups only try it: if another thread holds
//! it, they go on to the tables.
//!
//! Not here: the capacity, which its owner sets; large values, which stay in their chunks; which
//! lookups ask (`lookup`, a higher module).

mod hint;
mod index;
mod shard;

use shamba_env::{lock, try_lock};
use shamba_key::{EntryKind, KeyDigest, KeyspaceId, SeqNo, prefetch_address};
use shamba_table::{Charge, Value};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use self::hint::SlotsHint;
use self::shard::{CAPACITY_MIN_BYTES, NotHeld, Record, Shard};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of shards: enough that threads seldom meet in one.
const SHARDS_MAX: usize = 64;
/// Bytes of the largest cache for each shard, so that a much smaller one still fills its shards.
const SHARD_BYTES: usize = 128 * CAPACITY_MIN_BYTES;

/// The digests of a cache that covers all.
const COVER_ALL: u32 = 1 << 16;

/// A number of edits, in the order in which they ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Edits(u64);

/// A shard, and where its slots are.
#[derive(Default)]
struct Part {
    shard: Mutex<Shard>,
    slots: SlotsHint,
}

/// The records of a database.
pub struct RecordCache {
    shards: Box<[Part]>,
    /// Maximum capacity.
    bytes_max: usize,
    /// The whole capacity, whether or not it is filled: lookups that fill it must not have to make
    /// room elsewhere. Locked while the capacity and the cover change.
    charge: Mutex<Charge>,
    capacity_bytes: AtomicUsize,
    /// Digests whose bits are below this take part.
    covered_below: AtomicU32,
    /// Edits that have begun.
    begun: AtomicU64,
    /// Edits that have ended.
    ended: AtomicU64,
}

/// Counts of lookups that asked the cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    /// Lookups of covered keys,
    pub lookups: u64,
    /// of which these were answered by a record,
    pub hits: u64,
    /// and these had been asked for not long ago and were not held: hits of a larger cache.
    pub repeats: u64,
    /// Reads of table files that the repeats took.
    pub repeat_reads: u64,
}

impl Asked {
    /// The counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            lookups: self.lookups.saturating_sub(earlier.lookups),
            hits: self.hits.saturating_sub(earlier.hits),
            repeats: self.repeats.saturating_sub(earlier.repeats),
            repeat_reads: self.repeat_reads.saturating_sub(earlier.repeat_reads),
        }
    }

    fn add(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.repeats += other.repeats;
        self.repeat_reads += other.repeat_reads;
    }
}

/// The answer of the cache to a lookup.
#[derive(Clone, Debug)]
pub enum Cached {
    /// The newest entry of the key in the tables is a value.
    Value {
        /// Sequence number of the entry.
        seq: SeqNo,
        /// Kind of the entry: a put, with or without an expiry.
        kind: EntryKind,
        /// The value, after its expiry if it has one.
        value: Value,
    },
    /// The tables hold no value of the key that the reader can see.
    Absent {
        /// Sequence number of the newest entry, which is deleted; `ZERO` if there is none.
        seq: SeqNo,
        /// Whether the entry is a tombstone; otherwise a range tombstone hides it.
        is_tombstone: bool,
    },
    /// The cache does not know the key, or its record is not for this reader.
    Unknown {
        /// Whether the key is worth a record: it was asked for not long ago.
        is_wanted: bool,
    },
}

/// The record cache as one reader uses it.
#[derive(Clone, Copy)]
pub struct RecordAccess<'a> {
    cache: &'a RecordCache,
    edits: Edits,
    may_write: bool,
}

/// An edit that is under way. It ends when this is dropped, which must be after the views that
/// contain it are published and its sequence numbers are visible.
#[must_use]
pub struct RecordEdit<'a>(&'a RecordCache);

impl RecordCache {
    /// Minimum capacity of a cache that holds records.
    pub const CAPACITY_BYTES_MIN: u64 = CAPACITY_MIN_BYTES as u64;

    /// A cache that may hold nothing yet, with shards for up to `bytes_max` bytes. `charge` is
    /// empty, and is resized with the capacity.
    pub fn new(charge: Charge, bytes_max: usize) -> Self {
        assert_eq!(charge.bytes(), 0, "a cache that holds nothing is charged");
        let shards = 1 << (bytes_max / SHARD_BYTES).clamp(1, SHARDS_MAX).ilog2();
        Self {
            shards: (0..shards).map(|_| Part::default()).collect(),
            bytes_max,
            charge: Mutex::new(charge),
            capacity_bytes: AtomicUsize::new(0),
            covered_below: AtomicU32::new(COVER_ALL),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Sets the bytes that it may hold, at most the maximum; records beyond them are dropped. A
    /// capacity that is too small for a few chunks in each shard is none. From now on it covers one
    /// digest in this many; 1 covers all. Records of other digests stay until others take their
    /// place.
    ///
    /// # Panics
    /// If `one_in` is 0 or above 65,536.
    pub fn set_capacity(&self, bytes: usize, one_in: u32) {
        assert!((1..=COVER_ALL).contains(&one_in), "one digest in {one_in} is covered");
        let of_shard = bytes.min(self.bytes_max) / self.shards.len();
        let of_shard = if of_shard < CAPACITY_MIN_BYTES { 0 } else { of_shard };
        let capacity_bytes = of_shard * self.shards.len();
        let mut charge = lock(&self.charge);
        // Under the lock: of two calls at once, one sets both.
        self.covered_below.store(COVER_ALL / one_in, Ordering::Relaxed);
        if capacity_bytes as u64 > charge.bytes() {
            charge.resize(capacity_bytes as u64);
        }
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        self.shards.iter().for_each(|part| part.change(|shard| shard.set_capacity(of_shard)));
        charge.resize(capacity_bytes as u64);
    }

    /// Minimum capacity with which it holds records: a few chunks in each shard.
    pub fn least_bytes(&self) -> u64 {
        (self.shards.len() * CAPACITY_MIN_BYTES) as u64
    }

    /// Whether it may ever hold a record. Otherwise an edit need not name its keys.
    pub fn may_hold(&self) -> bool {
        self.bytes_max > 0
    }

    /// Whether it covers a part of the digests only.
    pub fn is_sample(&self) -> bool {
        self.covered_below.load(Ordering::Relaxed) < COVER_ALL
    }

    /// The counts of all lookups, and the bytes of the records for which the cache remembers that
    /// they were asked for.
    pub fn asked(&self) -> (Asked, u64) {
        let (mut asked, mut remembered_bytes) = (Asked::default(), 0);
        for part in &self.shards {
            let shard = lock(&part.shard);
            asked.add(shard.asked);
            remembered_bytes += shard.remembered_bytes();
        }
        (asked, remembered_bytes)
    }

    /// Bytes that it may hold.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.shards.iter().map(|part| lock(&part.shard).held_bytes()).sum()
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        self.shards.iter().map(|part| lock(&part.shard).len()).sum()
    }

    /// The cache for a reader that has *not yet* loaded its view; `None` while it holds nothing. A
    /// reader of the newest state may write records, one at a snapshot may not.
    #[inline]
    pub fn access(&self, may_write: bool) -> Option<RecordAccess<'_>> {
        if self.capacity_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(RecordAccess { cache: self, edits: Edits(self.ended.load(Ordering::Acquire)), may_write })
    }

    /// Begins an edit. No record is written until it ends.
    pub fn begin_edit(&self) -> RecordEdit<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        RecordEdit(self)
    }

    /// Whether lookups with this digest take part.
    #[inline]
    fn covers(&self, digest: KeyDigest) -> bool {
        // Bits that choose neither a shard nor a slot.
        ((digest.record_slot() >> 48) as u32) < self.covered_below.load(Ordering::Relaxed)
    }

    /// The shard of a digest, and the tag of its records there.
    #[inline]
    fn part(&self, digest: KeyDigest) -> (&Part, u32) {
        let bits = digest.record_slot();
        let shard = (bits >> u32::BITS) as usize & (self.shards.len() - 1);
        (&self.shards[shard], bits as u32)
    }
}

impl Part {
    /// Calls a function that may move the slots.
    fn change(&self, change: impl FnOnce(&mut Shard)) {
        let mut shard = lock(&self.shard);
        change(&mut shard);
        self.slots.set(shard.slots());
    }
}

impl RecordEdit<'_> {
    /// Erases the records with this digest.
    pub fn erase(&self, digest: KeyDigest) {
        let (part, tag) = self.0.part(digest);
        lock(&part.shard).erase(tag);
    }

    /// Erases the records of the keys of a keyspace for which `is_erased` holds. Looks at every
    /// record, so an edit of many ranges asks for all of them at once.
    pub fn erase_where(&self, keyspace: KeyspaceId, is_erased: impl Fn(&[u8]) -> bool) {
        let erase = |shard: &mut Shard| shard.erase_where(keyspace, &is_erased);
        self.0.shards.iter().for_each(|part| part.change(erase));
    }
}

impl Drop for RecordEdit<'_> {
    fn drop(&mut self) {
        let ended = self.0.ended.fetch_add(1, Ordering::AcqRel) + 1;
        debug_assert!(ended <= self.0.begun.load(Ordering::Acquire), "{ended} edits ended");
    }
}

impl RecordAccess<'_> {
    /// Prefetches the lines that [`Self::ask`] reads first, which then arrive together with those
    /// of the filters.
    #[inline]
    pub fn prefetch(&self, digest: KeyDigest) {
        if self.cache.covers(digest) {
            let (part, tag) = self.cache.part(digest);
            prefetch_address(std::ptr::from_ref(part).cast());
            part.slots.prefetch(tag);
        }
    }

    /// Asks for the newest entry of a key below the memtables, for a reader at `seq`. Entries at or
    /// below `floor` are deleted.
    #[inline]
    pub fn ask(
        &self,
        keyspace: KeyspaceId,
        digest: KeyDigest,
        key: &[u8],
        (seq, floor): (SeqNo, SeqNo),
    ) -> Cached {
        if !self.cache.covers(digest) {
            return Cached::Unknown { is_wanted: false };
        }
        let (part, tag) = self.cache.part(digest);
        let Some(mut shard) = try_lock(&part.shard) else { return Cached::Unknown { is_wanted: false } };
        let cached = match shard.find(tag, keyspace, key) {
            Ok(record) if record.edits > self.edits || record.seq > seq => {
                Cached::Unknown { is_wanted: false }
            }
            Ok(Record { seq, value: Some(value), has_expiry, .. }) if seq > floor => {
                let kind = if has_expiry { EntryKind::PutWithExpiry } else { EntryKind::Put };
                Cached::Value { seq, kind, value: Value::copy_of(value) }
            }
            Ok(Record { seq, value, .. }) => {
                Cached::Absent { seq, is_tombstone: value.is_none() && seq > SeqNo::ZERO }
            }
            Err(NotHeld { is_repeated }) => Cached::Unknown { is_wanted: is_repeated && self.may_write },
        };
        shard.asked.hits += u64::from(!matches!(cached, Cached::Unknown { .. }));
        cached
    }

    /// Writes the record of a key: what this reader has found in the tables of its view. `seq` is
    /// the sequence number of the entry, and `put` its kind and payload; for an absence `seq` is
    /// that of the tombstone, or `ZERO` if nothing was found. Does nothing if an edit has begun
    /// since the view was loaded, or if the record is too long. The lookup took this many `reads`
    /// of table files.
    pub fn write(
        &self,
        keyspace: KeyspaceId,
        (digest, key): (KeyDigest, &[u8]),
        (seq, put): (SeqNo, Option<(EntryKind, &[u8])>),
        reads: u64,
    ) {
        let value = put.map(|(_, value)| value);
        let has_expiry = put.is_some_and(|(kind, _)| kind.has_expiry());
        assert!(self.may_write, "a reader at a snapshot writes a record");
        if !Shard::may_hold(key, value) {
            return;
        }
        let (part, tag) = self.cache.part(digest);
        let Some(mut shard) = try_lock(&part.shard) else { return };
        shard.asked.repeats += 1;
        shard.asked.repeat_reads += reads;
        // Under the lock under which edits erase: an edit that begins after this erases the record.
        if self.cache.begun.load(Ordering::Acquire) == self.edits.0 {
            shard.insert(&Record { seq, edits: self.edits, tag, keyspace, key, value, has_expiry });
        }
    }
}

impl fmt::Debug for RecordCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCache").field("capacity_bytes", &self.capacity_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
