//! Compaction as arithmetic over a version: what to merge, what to keep, how large the outputs are.
//!
//! [`policy`] picks jobs, [`retention`] says which versions of a key stay, [`table_size`] where outputs
//! are cut, [`reading`] how much of each input is read at once, [`forecast`] what a new design will
//! write. All are pure functions; [`simulate`] runs the policy without files.
//!
//! Not here: carrying out a job (package `shamba`).

pub mod forecast;
pub mod policy;
pub mod reading;
pub mod retention;
pub mod simulate;
pub mod table_size;

use crate::version::{KeyRange, TableUse};

/// What `bytes` of a table's file count for in its level: without the share of header page and footer, which
/// would make small tables fill levels that hold little data.
pub fn level_bytes(table: &TableUse, bytes: u64) -> u64 {
    let file_bytes = table.meta.file_bytes.max(1);
    let fixed_bytes = shamba_table::FIXED_BYTES.min(file_bytes - 1);
    let share = u128::from(bytes) * u128::from(file_bytes - fixed_bytes) / u128::from(file_bytes);
    u64::try_from(share).unwrap_or(bytes).max(1)
}

/// About how many bytes of the table lie in `range`.
pub fn live_bytes(table: &TableUse, range: &KeyRange) -> u64 {
    match table.meta.open() {
        Ok(reader) => level_bytes(table, reader.bytes_between(&range.lower, range.upper.as_deref())),
        Err(_) => table.live_bytes, // On paper; of a damaged table the merge says what is wrong.
    }
}
