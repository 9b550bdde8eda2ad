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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> TableUse {
        text.parse().expect("notation")
    }

    #[test]
    fn the_entries_of_a_part_are_in_proportion_to_its_bytes() {
        assert_eq!(live_entries(&table("7:b..d of a..d 60 of 100 n=40")), 24);
        assert_eq!(live_entries(&table("7:a..d of a..z 3 of 7 n=10")), 4, "rounded down");
        assert_eq!(live_entries(&table("7:a..d 60 of 100 n=40")), 40, "a table that is used as a whole");
        assert_eq!(live_entries(&table("7:a..d of a..z 0 of 0 n=10")), 0);
    }

    #[test]
    fn the_header_and_the_footer_of_a_file_do_not_fill_a_level() {
        let fixed_bytes = shamba_table::FIXED_BYTES;
        let large = table(&format!("7:a..d {}", 3 * fixed_bytes));
        assert_eq!(level_bytes(&large, 3 * fixed_bytes), 2 * fixed_bytes);
        assert_eq!(level_bytes(&large, 300), 200);
        // No less than one byte, even of a file that is shorter than those alone.
        for file_bytes in [0, 1, 100, fixed_bytes - 1, fixed_bytes, fixed_bytes + 1] {
            let small = table(&format!("7:a..d {file_bytes}"));
            assert_eq!(level_bytes(&small, file_bytes), 1, "{file_bytes}");
        }
        assert_eq!(level_bytes(&large, 0), 1);
    }
}
