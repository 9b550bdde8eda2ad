//! Edits: what turns one version of the tree into the next, and what the manifest records.
//!
//! A [`VersionEdit`] is a list of changes to one keyspace's tree; a [`ManifestEdit`] is one atomic step of
//! the whole database: tree changes of any number of keyspaces together with the counters, log numbers
//! and settings that must change with them. Bytes: [`super::manifest`]. Applying: [`super::version`].

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::{BirthId, TableId};

use super::slot::ReaderSlot;
use crate::statistics::TableStatistics;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};

/// Keys from `lower` up to `upper`, exclusive; `None` means no end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// First key inside.
    pub lower: Bytes,
    /// First key beyond; `None`: everything from `lower` on.
    pub upper: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub fn everything() -> Self {
        Self { lower: Bytes::new(), upper: None }
    }

    /// Whether `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_ref() <= key && self.is_above(key)
    }

    /// Whether the range ends beyond `key`.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key < upper.as_ref())
    }

    /// Whether some key could be inside both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_above(&other.lower) && other.is_above(&self.lower)
    }
}

/// What the manifest knows of one table file, and its reader.
#[derive(Debug)]
pub struct TableMeta {
    /// The file.
    pub id: TableId,
    /// Random id that salts the file's checksums; a swapped file does not have it.
    pub birth: BirthId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Entries, tombstones included, range tombstones not.
    pub entries: u64,
    /// Point tombstones among the entries.
    pub deletes: u64,
    /// Range tombstones.
    pub range_deletes: u64,
    /// First key of an entry or range tombstone.
    pub smallest: Bytes,
    /// First key beyond every entry and range tombstone; `None`: no end.
    pub upper: Option<Bytes>,
    /// Smallest sequence number in the file.
    pub smallest_seq: SeqNo,
    /// Largest sequence number in the file.
    pub largest_seq: SeqNo,
    /// Filter bits per key that were written.
    pub bits_per_key: f64,
    /// The open file.
    pub reader: ReaderSlot,
    /// What sampled lookups and seeks saw there.
    pub statistics: TableStatistics,
}

/// The part of a table that a run uses.
#[derive(Clone, Debug)]
pub struct TableUse {
    /// The file.
    pub meta: Arc<TableMeta>,
    /// The keys of it that count; entries outside belong to nobody.
    pub range: KeyRange,
    /// About how many of the file's bytes lie in `range`.
    pub live_bytes: u64,
}

/// One change to a keyspace's tree.
#[derive(Clone, Debug)]
pub enum Change {
    /// The table joins the run, which is made if it does not exist.
    Add {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// Age of the run (the same in every change that names the run).
        age: Age,
        /// The table and the part of it that counts.
        table: TableUse,
    },
    /// The table leaves the run; a run without tables is gone.
    Remove {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// The table.
        table: TableId,
    },
    /// Less of the table counts from now on.
    Narrow {
        /// Level of the run.
        level: u32,
        /// The run.
        run: RunId,
        /// The table.
        table: TableId,
        /// What still counts.
        range: KeyRange,
        /// About how many bytes that is.
        live_bytes: u64,
    },
}

/// Changes to one keyspace's tree, applied together.
#[derive(Clone, Debug, Default)]
pub struct VersionEdit {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// In order.
    pub changes: Vec<Change>,
}

/// Settings as (name, value) text.
pub type Pairs = Vec<(String, String)>;

/// One atomic step of the whole database. Absent fields leave things as they are.
#[derive(Clone, Debug, Default)]
pub struct ManifestEdit {
    /// Options fixed at creation and settings adopted at open, as (name, value) text; replaces named entries.
    pub settings: Pairs,
    /// Keyspaces that come into being: id, name, and the settings of its design.
    pub keyspaces_created: Vec<(KeyspaceId, String, Pairs)>,
    /// Settings of existing keyspaces that change.
    pub keyspace_settings: Vec<(KeyspaceId, Pairs)>,
    /// Keyspaces that are gone.
    pub keyspaces_dropped: Vec<KeyspaceId>,
    /// Tree changes.
    pub versions: Vec<VersionEdit>,
    /// Per keyspace: operations of batches with a sequence number up to this one are in tables; replay skips them.
    pub flushed: Vec<(KeyspaceId, SeqNo)>,
    /// Logs below this one are no longer needed.
    pub first_log: Option<LogNo>,
    /// Everything in this log below this offset, and every earlier log, was synced before the edit was written.
    pub log_promise: Option<(LogNo, u64)>,
    /// No sequence number up to this one may be given out again.
    pub last_seq: Option<SeqNo>,
    /// The next unused number of files, runs and ages.
    pub next_id: Option<u64>,
}
