//! Live bytes and entries of a table: the part that a run still uses.

use super::edit::{KeyRange, TableUse};

/// Bytes that `bytes` of a table's file count for in its level: without their share of the header
/// page and the footer. With that share, small tables would fill levels that hold little data.
pub fn level_bytes(table: &TableUse, bytes: u64) -> u64 {
    let file_bytes = table.meta.file_bytes.max(1);
    let fixed_bytes = shamba_table::FIXED_BYTES.min(file_bytes - 1);
    let share = u128::from(bytes) * u128::from(file_bytes - fixed_bytes) / u128::from(file_bytes);
    u64::try_from(share).unwrap_or(bytes).max(1)
}

/// Estimated bytes of the table that lie in `range`.
pub fn live_bytes(table: &TableUse, range: &KeyRange) -> u64 {
    match table.meta.open() {
        Ok(reader) => level_bytes(table, reader.bytes_between(&range.lower, range.upper.as_deref())),
        // No file (forecast, simulation) or a damaged table; the compaction reports the damage.
        Err(_) => table.live_bytes,
    }
}

/// Estimated live entries of a table.
pub fn live_entries(table: &TableUse) -> u64 {
    if !table.is_narrowed() {
        return table.meta.entries;
    }
    let part = u128::from(table.meta.entries) * u128::from(table.live_bytes);
    u64::try_from(part / u128::from(table.meta.file_bytes.max(1))).unwrap_or(table.meta.entries)
}
