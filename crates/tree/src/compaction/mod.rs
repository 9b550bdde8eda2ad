//! Compaction as pure functions over a version: job choice, retention, output sizes, forecasts.
//!
//! [`policy`] picks jobs. [`retention`] decides which versions of a key are kept. [`table_size`]
//! decides where output tables end. [`reading`] sizes the read buffers of the inputs. [`forecast`]
//! estimates the bytes that a new design will write. [`simulate`] runs the policy without files.
//!
//! Not here: carrying out a job (package `shamba`).

pub mod forecast;
pub mod policy;
pub mod reading;
pub mod retention;
pub mod simulate;
pub mod table_size;

use crate::version::{KeyRange, TableUse};

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
