//! Size of output tables: the configured size, or larger where memory cannot hold that many open
//! tables. Pure.
//!
//! An open table takes some 2 KiB of memory whatever its size (`memory`, package `shamba`). A
//! database many times larger than its budget must not be cut into small tables: their metadata
//! would fill the budget, and the database would not open again. So tables are made large enough
//! that this metadata takes at most an eighth of the budget.
//!
//! A table that is being built also takes memory, for the digests of its keys. A table larger than
//! the configured size ends when its digests take too much. With very small entries this limit
//! always applies first, and the number of tables then follows from the memory for building them.
//!
//! A compaction that has little input left when a table is full continues with that table. If it
//! cut by size alone, the entries of three full tables plus one would leave a table of a single
//! entry, and every later compaction would leave one again.
//!
//! Not here: writing tables (`compaction::output`, package `shamba`).

/// Maximum part of the budget for open tables (1/8), as long as large enough tables can be written.
const CARRIED_PART: u64 = 8;
/// Maximum factor on the size that satisfies [`CARRIED_PART`]. Larger tables would not help where
/// tables stay smaller than allowed, or where most are old.
const EXCESS_RATIO_MAX: f64 = 4.0;
/// Maximum part of the budget (1/8) for the digests of all tables that are being built.
const BUILDING_PART: u64 = 8;
/// The same limit (1/4) where more threads write tables than [`TableSize::new`] was given: as many
/// threads compact as fit into this part.
const HELPED_BUILDING_PART: u64 = 4;
/// Maximum memory per key of a table being built: its digest, in a list that has just grown.
const BUILDING_BYTES_PER_KEY: u64 = 32;

/// The tables of a database and their memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Number of tables.
    pub count: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Mean memory of an open table that does not depend on the table's size.
    pub fixed_bytes: u64,
}

impl Tables {
    /// These tables plus `count` more of `bytes` in total.
    pub fn and(self, count: u64, bytes: u64) -> Self {
        Self { count: self.count.saturating_add(count), bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// Minimum size of new tables: the size at which all tables together would take an eighth of
    /// the budget. It grows with the square of the excess when they already take more. Keys that
    /// arrive in order are written once, so most tables date from a time with less data.
    fn bytes_min(self, budget_bytes: u64) -> u64 {
        let carried = (budget_bytes / CARRIED_PART / self.fixed_bytes.max(1)).max(1) as f64;
        let excess = (self.count as f64 / carried).max(1.0);
        let bytes_min = self.bytes as f64 / carried * (excess * excess).min(EXCESS_RATIO_MAX);
        bytes_min.min(self.bytes as f64) as u64
    }
}

/// Memory for the digests of all tables that compactions build at the same time.
pub fn building_bytes_max(budget_bytes: u64) -> u64 {
    budget_bytes / HELPED_BUILDING_PART
}

/// The rule by which output tables end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSize {
    /// A table ends at this size unless less than half of it remains to be written.
    pub full_bytes: u64,
    /// Set if `full_bytes` exceeds the configured size: a table then also ends from the configured
    /// size on, once it has the maximum number of entries.
    beyond_settings: Option<BeyondSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BeyondSettings {
    set_bytes: u64,
    entries_max: u64,
}

impl TableSize {
    /// The configured size `set_bytes`, or a larger one where the number of `tables` requires it.
    /// Up to `threads` threads write tables at the same time.
    pub fn new(set_bytes: u64, tables: Tables, budget_bytes: u64, threads: usize) -> Self {
        let building_bytes = budget_bytes / BUILDING_PART / threads.max(1) as u64;
        let entries_max = building_bytes / BUILDING_BYTES_PER_KEY;
        let bytes_min = tables.bytes_min(budget_bytes);
        Self {
            full_bytes: set_bytes.max(bytes_min),
            beyond_settings: (bytes_min > set_bytes).then_some(BeyondSettings { set_bytes, entries_max }),
        }
    }

    /// Memory for the digests of one table, for data of `bytes` and `entries`.
    pub fn building_bytes(self, (bytes, entries): (u64, u64)) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let entries_of = |table_bytes: u64| (table_bytes as f64 * entries as f64 / bytes as f64) as u64;
        let most = self
            .beyond_settings
            .map_or(u64::MAX, |beyond| beyond.entries_max.max(entries_of(beyond.set_bytes)));
        entries_of(self.full_bytes).min(most).saturating_mul(BUILDING_BYTES_PER_KEY)
    }

    /// Number of the `threads` that may write tables at the same time, for data of `bytes` and
    /// `entries`: each needs memory for the digests of one table.
    pub fn threads_for(self, amount: (u64, u64), budget_bytes: u64, threads: usize) -> usize {
        let at_once = building_bytes_max(budget_bytes) / self.building_bytes(amount).max(1);
        threads.min(usize::try_from(at_once).unwrap_or(usize::MAX)).max(1)
    }

    /// Whether a table of `bytes` and `entries` ends here. `left_bytes` estimates the bytes that
    /// are still to be written.
    pub fn is_reached(self, bytes: u64, entries: u64, left_bytes: impl FnOnce() -> u64) -> bool {
        let half_bytes = self.full_bytes / 2;
        let is_full = bytes >= self.full_bytes
            && (bytes >= self.full_bytes.saturating_add(half_bytes) || left_bytes() >= half_bytes);
        let is_too_much = |beyond: BeyondSettings| bytes >= beyond.set_bytes && entries >= beyond.entries_max;
        is_full || self.beyond_settings.is_some_and(is_too_much)
    }

    /// Whether `tables` that could be moved as they are should be rewritten into fewer ones: memory
    /// needs larger tables than configured, and larger ones than these can be built. Otherwise keys
    /// that arrive in order would never be compacted, and each flush would leave one more table.
    pub fn joins(self, tables: u64, bytes: u64, entries: u64) -> bool {
        let Some(beyond) = self.beyond_settings else { return false };
        tables > 1 && bytes / tables < self.full_bytes / 2 && entries / tables < beyond.entries_max / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn tables(count: u64, bytes: u64) -> Tables {
        Tables { count, bytes, fixed_bytes: 3 << 10 }
    }

    fn size(set_bytes: u64, tables: Tables) -> TableSize {
        TableSize::new(set_bytes, tables, 8 * MIB, 1)
    }

    #[test]
    fn tables_grow_with_the_data_where_memory_is_short() {
        let full_bytes = |bytes| size(2 * MIB, tables(0, bytes)).full_bytes;
        assert_eq!(full_bytes(100 * MIB), 2 * MIB, "a hundred tables are few");
        for bytes in [2_000 * MIB, 10_000 * MIB] {
            let tables_bytes = bytes / full_bytes(bytes) * (3 << 10);
            assert!((MIB * 9 / 10..=MIB).contains(&tables_bytes), "{tables_bytes}");
        }
        assert_eq!(size(1, Tables { count: 1, bytes: 7, fixed_bytes: u64::MAX }).full_bytes, 7, "one table");
        assert_eq!(size(1, Tables { count: 9, bytes: 7, fixed_bytes: 0 }).full_bytes, 1);
        // Written once and never compacted.
        let mut all = tables(0, 0);
        while all.bytes < 10_000 * MIB {
            all = all.and(1, size(64 << 10, all).full_bytes);
        }
        let tables_bytes = all.count * all.fixed_bytes;
        assert!((2 * MIB..3 * MIB + MIB / 2).contains(&tables_bytes), "{tables_bytes}");
        // Too many tables do not let the size grow without bound.
        let many = size(2 * MIB, tables(1_000_000, 2_000 * MIB)).full_bytes;
        assert!((20 * MIB..30 * MIB).contains(&many), "{many}");
    }

    #[test]
    fn as_many_threads_merge_as_have_memory_for_a_table_each() {
        let threads = |set_bytes, data_mib: u64, entry_bytes: u64| {
            let size = size(set_bytes, tables(0, data_mib * MIB));
            size.threads_for((data_mib * MIB, data_mib * MIB / entry_bytes), 8 * MIB, 2)
        };
        assert_eq!(
            [threads(2 * MIB, 100, 1024), threads(2 * MIB, 100, 100), threads(2 * MIB, 100, 30)],
            [2, 2, 1]
        );
        // Tables of a large database have the maximum number of entries for one that is built
        // alone.
        assert_eq!([threads(2 * MIB, 8_000, 1024), threads(2 * MIB, 8_000, 20)], [2, 1]);
        assert_eq!(size(2 * MIB, tables(0, 0)).threads_for((0, 0), 8 * MIB, 2), 2, "nothing to write");
        assert_eq!(size(2 * MIB, tables(0, 0)).threads_for((1, 1 << 40), 0, 2), 1);
    }

    #[test]
    fn no_merge_leaves_a_tiny_table() {
        // (input bytes, sizes of the tables cut from them)
        for (bytes, wanted) in [
            (300, vec![100, 100, 100]),
            (301, vec![100, 100, 101]),
            (149, vec![149]),
            (150, vec![100, 50]),
            (40, vec![40]),
            (949, [vec![100; 8], vec![149]].concat()),
        ] {
            let size = size(100, tables(0, 0));
            let mut cut = vec![0];
            for done in 0..bytes {
                let last = cut[cut.len() - 1];
                if size.is_reached(last, u64::MAX, || bytes - done) {
                    cut.push(0);
                }
                *cut.last_mut().expect("a table") += 1;
            }
            assert_eq!(cut, wanted, "{bytes}");
        }
        // The remaining bytes were underestimated.
        assert!(size(100, tables(0, 0)).is_reached(150, 0, || 0));
    }

    #[test]
    fn a_table_beyond_the_settings_ends_where_it_takes_too_much_memory() {
        let size = size(2 * MIB, tables(0, 3_000 * MIB));
        let ends = |bytes, entries| size.is_reached(bytes, entries, || u64::MAX);
        assert!(!ends(2 * MIB - 1, u64::MAX), "what the settings say is always had");
        assert!(ends(2 * MIB, 32 << 10) && !ends(2 * MIB, (32 << 10) - 1));
        assert!(!ends(8 * MIB, 0) && ends(9 * MIB, 0));
        let four = TableSize::new(2 * MIB, tables(0, 3_000 * MIB), 8 * MIB, 4);
        assert!(four.is_reached(2 * MIB, 8 << 10, || u64::MAX));
    }

    #[test]
    fn small_tables_are_joined_where_that_makes_larger_ones() {
        let (few, many) = (size(64 << 10, tables(0, 0)), size(64 << 10, tables(0, 1_000 * MIB)));
        let joins = |size: TableSize, tables, entries| size.joins(tables, tables * MIB, tables * entries);
        assert!(joins(many, 4, 1_000));
        assert!(!joins(few, 4, 1_000), "memory is not short");
        assert!(!joins(many, 1, 1_000), "there is nothing to join it to");
        assert!(!joins(many, 4, 20_000), "what is built cannot get larger");
        assert!(!many.joins(4, 8 * MIB, 4_000), "they are no small ones");
    }
}
