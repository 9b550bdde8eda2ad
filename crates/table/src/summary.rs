//! Metadata of a finished table: the writer passes it to the manifest, and a reader reconstructs it
//! from the file.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::SeqNo;

use crate::content::ContentDigest;
use crate::expiring::ExpiringEntries;
use crate::format::properties::Properties;
use crate::id::{BirthId, TableId};
use crate::value_uses::TableValueUse;

/// Metadata of a finished table, for the manifest.
#[derive(Clone, PartialEq, Debug)]
pub struct TableSummary {
    /// Number of the file.
    pub id: TableId,
    /// Random id of the file.
    pub birth: BirthId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Entries, including point tombstones, without range tombstones.
    pub entries: u64,
    /// Point tombstones among the entries.
    pub deletes: u64,
    /// Range tombstones.
    pub range_deletes: u64,
    /// First key of any entry or range tombstone.
    pub smallest: Bytes,
    /// Exclusive upper bound of all entries and range tombstones (the successor of a key is the key
    /// and a zero byte); `None`: a range tombstone has no end.
    pub upper: Option<Bytes>,
    /// Smallest sequence number of any entry or range tombstone.
    pub smallest_seq: SeqNo,
    /// Largest sequence number of any entry or range tombstone.
    pub largest_seq: SeqNo,
    /// Digest of all entries, without range tombstones.
    pub content: ContentDigest,
    /// Total length of the keys of all entries.
    pub raw_key_bytes: u64,
    /// Total length of all values.
    pub raw_value_bytes: u64,
    /// Requested filter bits per distinct key; 0: no filter.
    pub bits_per_key: f64,
    /// Time of the oldest tombstone, in milliseconds since 1970-01-01 UTC; `None` without
    /// tombstones, and in older tables.
    pub oldest_tombstone_ms: Option<u64>,
    /// Entries with a newer one of the same key in the table; 0 if their number is not known, as in
    /// tables of older builds without a filter.
    pub older_versions: u64,
    /// The entries that expire, if there are any.
    pub expiring: Option<ExpiringEntries>,
    /// References to value files, in ascending order of the files.
    pub value_uses: Arc<[TableValueUse]>,
}

impl TableSummary {
    pub(crate) fn of(id: TableId, birth: BirthId, file_bytes: u64, properties: &Properties) -> Self {
        Self {
            id,
            birth,
            file_bytes,
            entries: properties.entries,
            deletes: properties.deletes,
            range_deletes: properties.range_deletes,
            smallest: properties.smallest.clone(),
            upper: properties.upper.clone(),
            smallest_seq: properties.smallest_seq,
            largest_seq: properties.largest_seq,
            content: properties.content,
            raw_key_bytes: properties.raw_key_bytes,
            raw_value_bytes: properties.raw_value_bytes,
            bits_per_key: properties.bits_per_key,
            oldest_tombstone_ms: properties.oldest_tombstone_ms,
            older_versions: properties.keys.map_or(0, |keys| properties.entries.saturating_sub(keys)),
            expiring: properties.expiring,
            value_uses: Arc::clone(&properties.value_files),
        }
    }
}
