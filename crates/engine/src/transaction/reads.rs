//! The reads of a transaction: keys and ranges that must not have changed when it commits.
//!
//! A key counts whether it had a value or not. A scan adds the part of its range that it walked:
//! from the start to the last key that it returned, or all of it if it came to the end. While a
//! scan is open, all of its range counts. So a scan that is leaked causes false conflicts and no
//! missed ones.

use std::collections::BTreeMap;

use bytes::Bytes;
use shamba_key::{KeyDigest, KeyspaceId};
use shamba_tree::version::KeyRange;

use super::ranges::{RangeSet, range_bytes};
use crate::writer::conditions::{KeyRead, RangeRead};

/// Memory of one key besides its bytes: its slot in a map node that is two thirds full, and its
/// reference count.
const KEY_BYTES: u64 = 96;

/// The reads of a transaction.
#[derive(Default)]
pub(super) struct ReadSet {
    keyspaces: BTreeMap<KeyspaceId, KeyspaceReads>,
    scans: BTreeMap<ScanNo, (KeyspaceId, KeyRange)>,
    scans_begun: u64,
    keys_bytes: u64,
    scans_bytes: u64,
}

/// The reads of one keyspace.
#[derive(Default)]
struct KeyspaceReads {
    keys: BTreeMap<Bytes, KeyDigest>,
    ranges: RangeSet,
}

/// The number of an open scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ScanNo(u64);

impl ReadSet {
    /// Memory that adding a key takes; 0 if it is among the reads.
    pub fn bytes_of(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        let is_known = self
            .keyspaces
            .get(&keyspace)
            .is_some_and(|reads| reads.keys.contains_key(key) || reads.ranges.covering(key).is_some());
        if is_known { 0 } else { key.len() as u64 + KEY_BYTES }
    }

    /// Adds a key that is not among the reads.
    pub fn add_key(&mut self, keyspace: KeyspaceId, digest: KeyDigest, key: Bytes) {
        self.keys_bytes += key.len() as u64 + KEY_BYTES;
        let other = self.keyspaces.entry(keyspace).or_default().keys.insert(key, digest);
        debug_assert!(other.is_none(), "a key is added twice");
    }

    /// Adds a scan that may read all of `range`.
    pub fn begin_scan(&mut self, keyspace: KeyspaceId, range: KeyRange) -> ScanNo {
        self.scans_begun += 1;
        self.scans_bytes += range_bytes(&range);
        self.scans.insert(ScanNo(self.scans_begun), (keyspace, range));
        ScanNo(self.scans_begun)
    }

    /// Replaces a scan by the ranges that it has read.
    pub fn end_scan(&mut self, scan: ScanNo, read: impl IntoIterator<Item = KeyRange>) {
        let begun = self.scans.remove(&scan);
        debug_assert!(begun.is_some(), "{scan:?} ends a second time");
        let Some((keyspace, range)) = begun else { return };
        self.scans_bytes -= range_bytes(&range);
        let ranges = &mut self.keyspaces.entry(keyspace).or_default().ranges;
        for read in read.into_iter().filter(|read| !read.is_empty()) {
            debug_assert!(range.covers(&read), "{scan:?} of {range:?} has read {read:?}");
            ranges.add(read);
        }
    }

    /// Memory of all reads.
    pub fn bytes(&self) -> u64 {
        self.keys_bytes
            + self.scans_bytes
            + self.keyspaces.values().map(|reads| reads.ranges.bytes()).sum::<u64>()
    }

    /// All reads as conditions: keys, then ranges.
    pub fn into_conditions(self) -> (Vec<KeyRead>, Vec<RangeRead>) {
        let count = self.keyspaces.values().map(|reads| reads.keys.len()).sum();
        let (mut keys, mut ranges) = (Vec::with_capacity(count), Vec::new());
        for (keyspace, reads) in self.keyspaces {
            let read = |(key, digest): (Bytes, KeyDigest)| KeyRead { keyspace, digest, key };
            keys.extend(reads.keys.into_iter().map(read));
            ranges.extend(reads.ranges.iter().map(|range| RangeRead { keyspace, range }));
        }
        let open = self.scans.into_values().filter(|(_, range)| !range.is_empty());
        ranges.extend(open.map(|(keyspace, range)| RangeRead { keyspace, range }));
        (keys, ranges)
    }
}
