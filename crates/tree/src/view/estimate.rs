//! Estimates over a view: the bytes and entries of a range, and keys that split it into equal
//! parts.
//!
//! Tables are estimated from their indexes: what is in memory of them, or what is read of a table
//! that is closed or to be split. Entries of memtables are counted one by one. Versions of a key
//! in several places count several times, as they take space several times, and tombstones count
//! as well.

use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::error::Result;
use crate::version::{KeyRange, TableUse, level_bytes, live_bytes, live_entries};

/// Maximum number of parts: a part of less than a block is of no use.
const PARTS_MAX: u64 = 64 << 10;
/// Pieces of a table for each part that is asked for: the parts differ by at most a piece or so.
const PIECES_FOR_EACH_PART: u64 = 16;

/// Bytes and entries of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Bytes in tables: data, and in proportion filters and indexes.
    pub table_bytes: u64,
    /// Bytes of keys and values in memtables.
    pub memtable_bytes: u64,
    /// Entries in both.
    pub entries: u64,
}

impl View {
    /// An estimate of what the view holds in `range`.
    ///
    /// # Errors
    /// Of walking a memtable.
    pub fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        let mut estimate = Estimate::default();
        self.for_each_table(range, |table, part| {
            let bytes = live_bytes(table, part);
            estimate.table_bytes += bytes;
            let all_bytes = u128::from(table.live_bytes.max(1));
            let entries = u128::from(live_entries(table)) * u128::from(bytes) / all_bytes;
            estimate.entries += u64::try_from(entries).unwrap_or(u64::MAX);
        });
        self.for_each_in_memory(range, |_, bytes| {
            estimate.memtable_bytes += bytes;
            estimate.entries += 1;
        })?;
        Ok(estimate)
    }

    /// At most `parts` - 1 keys, ascending, that split `range` into parts of about equal bytes. A
    /// part begins with its key.
    ///
    /// # Errors
    /// Of walking a memtable.
    pub fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Bytes>> {
        let Estimate { table_bytes, memtable_bytes, .. } = self.estimate(range)?;
        let all_bytes = table_bytes + memtable_bytes;
        let parts = (parts as u64).min(PARTS_MAX);
        if parts < 2 || all_bytes == 0 {
            return Ok(Vec::new());
        }
        // Each key, and the bytes between it and the one before it in the same place.
        let mut pieces: Vec<(Bytes, u64)> = Vec::new();
        let piece_bytes = all_bytes.div_ceil(parts.saturating_mul(PIECES_FOR_EACH_PART));
        self.for_each_table(range, |table, part| {
            let Ok(reader) = table.meta.open() else { return };
            let mut rest = part.clone();
            for key in reader.split_keys(piece_bytes) {
                if rest.lower < key && rest.is_above(&key) {
                    let bytes = reader.bytes_between(&rest.lower, Some(&key));
                    pieces.push((key.clone(), level_bytes(table, bytes)));
                    rest.lower = key;
                }
            }
            if let Some(upper) = rest.upper.clone() {
                let bytes = reader.bytes_between(&rest.lower, Some(&upper));
                pieces.push((upper, level_bytes(table, bytes)));
            }
        });
        let mut gathered = 0;
        self.for_each_in_memory(range, |key, bytes| {
            gathered += bytes;
            if gathered >= piece_bytes {
                pieces.push((Bytes::copy_from_slice(key), gathered));
                gathered = 0;
            }
        })?;
        pieces.sort();
        let mut points: Vec<Bytes> = Vec::new();
        let (mut before, mut part) = (0, 1);
        for (key, bytes) in pieces {
            before += bytes;
            let is_due = u128::from(before) * u128::from(parts) >= u128::from(all_bytes) * u128::from(part);
            if is_due && part < parts && range.lower < key && range.is_above(&key) {
                // Several parts may end within one piece.
                part = (u128::from(before) * u128::from(parts) / u128::from(all_bytes)) as u64 + 1;
                if points.last() != Some(&key) {
                    points.push(key);
                }
            }
        }
        debug_assert!(points.is_sorted() && (points.len() as u64) < parts, "{} points", points.len());
        Ok(points)
    }

    /// Calls `each` with every table that has keys in `range`, and the part of the range that it
    /// answers for.
    fn for_each_table(&self, range: &KeyRange, mut each: impl FnMut(&TableUse, &KeyRange)) {
        let tables = self.plans.iter().flat_map(|plan| plan.run.tables());
        for table in tables.filter(|table| table.range.overlaps(range)) {
            if let Some(part) = table.range.intersection(range) {
                each(table, &part);
            }
        }
    }

    /// Calls `each` with the key of every entry of a memtable in `range`, and its bytes.
    fn for_each_in_memory(&self, range: &KeyRange, mut each: impl FnMut(&[u8], u64)) -> Result<()> {
        for memtable in self.memtables.iter().filter(|memtable| memtable.entries() > 0) {
            let mut entries = Arc::clone(memtable).entries_iter();
            entries.seek(&range.lower, shamba_key::SeqNo::MAX)?;
            while entries.valid() && range.is_above(entries.key()) {
                each(entries.key(), entries.key().len() as u64 + entries.value_bytes_len()?);
                entries.next()?;
            }
        }
        Ok(())
    }
}
