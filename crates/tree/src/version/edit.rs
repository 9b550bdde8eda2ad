//! Edits: the changes from one version of the tree to the next, as the manifest records them.
//!
//! A [`VersionEdit`] is a list of changes to one keyspace's tree. A [`ManifestEdit`] is one atomic
//! step of the whole database: tree changes of any number of keyspaces, together with the counters,
//! log numbers and settings that must change with them. The encoding is in [`super::manifest`], the
//! application in `version`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::{BirthId, ExpiringEntries, TableId};

use super::history::HistoryEntry;
use super::slot::ReaderSlot;
use super::tombstone_time::TombstoneTime;
use super::value_files::ValueFileMeta;
use super::values::{TableValues, ValueUses};
use crate::statistics::TableStatistics;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};

/// The keys from `lower` up to `upper`, exclusive. `None` means no end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key of the range.
    pub lower: Bytes,
    /// The first key after the range. `None`: the range has no end.
    pub upper: Option<Bytes>,
}

impl KeyRange {
    /// The range of every key.
    pub fn everything() -> Self {
        Self { lower: Bytes::new(), upper: None }
    }

    /// Whether the range contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_ref() <= key && self.is_above(key)
    }

    /// Whether the range ends after `key`.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key < upper.as_ref())
    }

    /// Whether a key could lie in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_above(&other.lower) && other.is_above(&self.lower)
    }
}

/// The manifest's metadata of one table file, and its reader.
#[derive(Debug)]
pub struct TableMeta {
    /// Number of the file.
    pub id: TableId,
    /// Random id that salts the file's checksums; it reveals a swapped file.
    pub birth: BirthId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of entries; counts point tombstones, but not range tombstones.
    pub entries: u64,
    /// Number of point tombstones among the entries.
    pub deletes: u64,
    /// Number of range tombstones.
    pub range_deletes: u64,
    /// The first key of any entry or range tombstone.
    pub smallest: Bytes,
    /// The first key after every entry and range tombstone. `None`: no end.
    pub upper: Option<Bytes>,
    /// Smallest sequence number in the file.
    pub smallest_seq: SeqNo,
    /// Largest sequence number in the file.
    pub largest_seq: SeqNo,
    /// Filter bits per key, as written.
    pub bits_per_key: f64,
    /// Time of the oldest tombstone; unknown without tombstones.
    pub oldest_tombstone: TombstoneTime,
    /// Entries with a newer one of the same key in the file.
    pub older_versions: OlderVersions,
    /// The entries that expire; unknown, as if there were none, for tables of older builds.
    pub expiring: TableExpiry,
    /// The references of all entries to values in value files.
    pub values: TableValues,
    /// The open reader, if there is one.
    pub reader: ReaderSlot,
    /// Statistics of sampled lookups and seeks in this table.
    pub statistics: TableStatistics,
}

/// The number of a table's entries that have a newer one of the same key in the table. The table
/// states it, not the manifest: 0 until it was opened.
#[derive(Default, Debug)]
pub struct OlderVersions(AtomicU64);

impl OlderVersions {
    /// Their number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells it.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}

impl From<u64> for OlderVersions {
    fn from(count: u64) -> Self {
        Self(AtomicU64::new(count))
    }
}

/// The entries of a table that expire; told once.
#[derive(Clone, Default, Debug)]
pub struct TableExpiry(OnceLock<ExpiringEntries>);

impl TableExpiry {
    /// These entries, if there are any.
    pub fn get(&self) -> Option<ExpiringEntries> {
        self.0.get().copied()
    }

    /// Tells them.
    pub fn set(&self, expiring: ExpiringEntries) {
        _ = self.0.set(expiring);
    }
}

impl From<Option<ExpiringEntries>> for TableExpiry {
    fn from(expiring: Option<ExpiringEntries>) -> Self {
        let told = Self::default();
        if let Some(expiring) = expiring {
            told.set(expiring);
        }
        told
    }
}

impl TableMeta {
    /// Whether every entry has expired at `now_ms` or is a delete, and there is no range tombstone.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expiring.get().is_some_and(|expiring| {
            expiring.last().is_past(now_ms)
                && expiring.count.checked_add(self.deletes) == Some(self.entries)
                && self.range_deletes == 0
        })
    }

    /// Whether the table has point or range tombstones.
    pub fn has_tombstones(&self) -> bool {
        self.deletes > 0 || self.range_deletes > 0
    }
}

/// The part of a table that a run uses.
#[derive(Clone, Debug)]
pub struct TableUse {
    /// The table.
    pub meta: Arc<TableMeta>,
    /// The range of keys in use; entries outside are ignored.
    pub range: KeyRange,
    /// Approximate number of the file's bytes that lie in `range`.
    pub live_bytes: u64,
    /// The references of the entries in `range` to values in value files.
    pub values: ValueUses,
}

/// One change to a keyspace's tree.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds the table to the run, which is created if it does not exist.
    Add {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// Age of the run (the same in every change that names the run).
        age: Age,
        /// The table and the range in use.
        table: TableUse,
    },
    /// Removes the table from the run. A run without tables is removed.
    Remove {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// The table.
        table: TableId,
    },
    /// Reduces the range of the table that the run uses.
    Narrow {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// The table.
        table: TableId,
        /// The new range.
        range: KeyRange,
        /// Approximate number of bytes in it.
        live_bytes: u64,
        /// The references of the entries in it to values in value files.
        values: ValueUses,
    },
}

/// Changes to one keyspace's tree, applied together.
#[derive(Clone, Debug, Default)]
pub struct VersionEdit {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The changes, in the order of application.
    pub changes: Vec<Change>,
}

impl VersionEdit {
    /// Whether a change concerns the run.
    pub(super) fn names(&self, id: RunId) -> bool {
        self.changes.iter().any(|change| match change {
            Change::Add { run, .. } | Change::Remove { run, .. } | Change::Narrow { run, .. } => *run == id,
        })
    }
}

/// Settings as (name, value) text.
pub type Pairs = Vec<(String, String)>;

/// One atomic step of the whole database. Absent fields leave the state unchanged.
#[derive(Clone, Debug, Default)]
pub struct ManifestEdit {
    /// Options fixed at creation and settings changed since, as (name, value) text. Replaces
    /// entries of the same name.
    pub settings: Pairs,
    /// New keyspaces: id, name, and the settings of the design.
    pub keyspaces_created: Vec<(KeyspaceId, String, Pairs)>,
    /// Changed settings of existing keyspaces.
    pub keyspace_settings: Vec<(KeyspaceId, Pairs)>,
    /// Names of the merge operators that keyspaces have from now on.
    pub merge_operators: Vec<(KeyspaceId, String)>,
    /// Names of the compaction filters that keyspaces have from now on; `None`: they have none.
    pub compaction_filters: Vec<(KeyspaceId, Option<String>)>,
    /// Dropped keyspaces.
    pub keyspaces_dropped: Vec<KeyspaceId>,
    /// Value files that tables added by this edit are the first to name.
    pub value_files: Vec<Arc<ValueFileMeta>>,
    /// Tree changes.
    pub versions: Vec<VersionEdit>,
    /// Per keyspace: operations with a sequence number up to this one are in tables; replay skips
    /// them.
    pub flushed: Vec<(KeyspaceId, SeqNo)>,
    /// Logs below this one are no longer needed.
    pub first_log: Option<LogNo>,
    /// Everything in this log below this offset, and every earlier log, was synced before the edit
    /// was written.
    pub log_promise: Option<(LogNo, u64)>,
    /// Sequence numbers up to this one must not be assigned again.
    pub last_seq: Option<SeqNo>,
    /// The next unused number of files, runs and ages.
    pub next_id: Option<u64>,
    /// The time by which expiry is judged, in milliseconds since 1970-01-01 UTC; set once entries
    /// with an expiry may have been written.
    pub time_ms: Option<u64>,
    /// Entries to be added to the history of the logs.
    pub history: Vec<HistoryEntry>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_expired_with_its_last_entry_if_nothing_else_is_in_it() {
        let is_expired = |counts: &str, now_ms: u64| {
            let table: TableUse = format!("7:a..z 100 {counts}").parse().expect("notation");
            table.meta.is_expired(now_ms)
        };
        for counts in ["n=10 exp=10:100-2000", "n=10 del=3 exp=7:100-2000"] {
            assert!(!is_expired(counts, 1_999), "{counts}");
            assert!(is_expired(counts, 2_000), "{counts}");
        }
        // A range tombstone, an entry without an expiry, and no entry with one.
        for counts in ["n=10 rdel=1 exp=10:100-2000", "n=11 exp=10:100-2000", "n=10 del=10"] {
            assert!(!is_expired(counts, u64::MAX), "{counts}");
        }
    }
}
