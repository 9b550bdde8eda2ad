//! How large tables are made: as the settings say, or larger where memory cannot carry so many; and no tiny ones. Pure.
//!
//! An open table takes some 2 KiB whatever its size ([`crate::memory`]), so a database of many times its budget must not be cut into
//! small ones: it would fill its budget with what it knows of its tables and not open again. So tables are made so large that these 2 KiB
//! are an eighth of the budget. A table being built takes memory, too, for the digests of its keys; one that has
//! outgrown what the settings say ends where that gets too much. With entries so small that it always does, tables stay as many as memory
//! for building them makes them.
//!
//! A merge that has little left when a table is full goes on with it. Cut at the size alone, three full tables' worth of entries and one
//! more would make a table of a single entry, which would come out of each later merge again.
//!
//! Not here: writing tables ([`super::output`]).

/// What open tables take of the budget, at most, as long as large enough tables can be written.
const CARRIED_PART: u64 = 8;
/// Tables grow to at most so many times the size at which that holds: where they do not get as large as they may, or most are of
/// another time, it would not help.
const EXCESS_MOST: f64 = 4.0;
/// What the digests of tables being built may take of the budget, all together.
const BUILDING_PART: u64 = 8;
/// And what they may take where threads go beyond [`TableSize::new`]'s: as many merge as fit into this.
const HELPED_BUILDING_PART: u64 = 4;
/// What a key takes in a table being built, at most: its digest, in a list that has just grown.
const BUILDING_BYTES_PER_KEY: u64 = 32;

/// The tables of a database and what they take.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tables {
    /// How many there are.
    pub count: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// What one takes while it is open beside what goes by its size, on average.
    pub fixed_bytes: u64,
}

impl Tables {
    /// These, and as many more of `bytes` together.
    pub fn and(self, count: u64, bytes: u64) -> Self {
        Self { count: self.count.saturating_add(count), bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// The least size of tables written from now on: that at which the tables would take an eighth of the budget, and
    /// more where they take more. Keys that come in order are written once, so that most tables are of a time when there was less.
    fn least_bytes(self, budget_bytes: u64) -> u64 {
        let carried = (budget_bytes / CARRIED_PART / self.fixed_bytes.max(1)).max(1) as f64;
        let excess = (self.count as f64 / carried).max(1.0);
        let least_bytes = self.bytes as f64 / carried * (excess * excess).min(EXCESS_MOST);
        least_bytes.min(self.bytes as f64) as u64
    }
}

/// Where tables are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSize {
    /// From this size on, unless what is left would be less than half of it.
    pub full_bytes: u64,
    /// If that is more than the settings say: from their size on as soon as a table has so many keys.
    beyond_settings: Option<BeyondSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BeyondSettings {
    set_bytes: u64,
    entries_most: u64,
}

impl TableSize {
    /// What the settings say, `set_bytes`, unless so many `tables` need larger ones. Up to `threads` write tables at once.
    pub fn new(set_bytes: u64, tables: Tables, budget_bytes: u64, threads: usize) -> Self {
        let building_bytes = budget_bytes / BUILDING_PART / threads.max(1) as u64;
        let entries_most = building_bytes / BUILDING_BYTES_PER_KEY;
        let least_bytes = tables.least_bytes(budget_bytes);
        Self {
            full_bytes: set_bytes.max(least_bytes),
            beyond_settings: (least_bytes > set_bytes).then_some(BeyondSettings { set_bytes, entries_most }),
        }
    }

    /// How many of `threads` may write tables at once, of data of so many `bytes` and `entries`: as many as have memory for
    /// the digests of a table each.
    pub fn threads_for(self, (bytes, entries): (u64, u64), budget_bytes: u64, threads: usize) -> usize {
        if bytes == 0 {
            return threads;
        }
        let entries_of =
            |table_bytes: u64| (table_bytes as f64 * entries as f64 / bytes.max(1) as f64) as u64;
        let most = self
            .beyond_settings
            .map_or(u64::MAX, |beyond| beyond.entries_most.max(entries_of(beyond.set_bytes)));
        let table_entries = entries_of(self.full_bytes).min(most);
        let building_bytes = table_entries.saturating_mul(BUILDING_BYTES_PER_KEY).max(1);
        let at_once = budget_bytes / HELPED_BUILDING_PART / building_bytes;
        threads.min(usize::try_from(at_once).unwrap_or(usize::MAX)).max(1)
    }

    /// Whether a table of `bytes` and `entries` ends here. `left_bytes` gives about how much is still to come.
    pub fn is_reached(self, bytes: u64, entries: u64, left_bytes: impl FnOnce() -> u64) -> bool {
        let half_bytes = self.full_bytes / 2;
        let is_full = bytes >= self.full_bytes
            && (bytes >= self.full_bytes.saturating_add(half_bytes) || left_bytes() >= half_bytes);
        let is_too_much =
            |beyond: BeyondSettings| bytes >= beyond.set_bytes && entries >= beyond.entries_most;
        is_full || self.beyond_settings.is_some_and(is_too_much)
    }

    /// Whether `tables`, which could be moved as they are, become fewer ones instead: where memory needs larger tables than
    /// the settings say, and larger ones than these can be built. Keys that come in order would never be merged, and each flush leave a
    /// table of its own.
    pub fn joins(self, tables: u64, bytes: u64, entries: u64) -> bool {
        let Some(beyond) = self.beyond_settings else { return false };
        tables > 1 && bytes / tables < self.full_bytes / 2 && entries / tables < beyond.entries_most / 2
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
        // Written once and never merged.
        let mut all = tables(0, 0);
        while all.bytes < 10_000 * MIB {
            all = all.and(1, size(64 << 10, all).full_bytes);
        }
        let tables_bytes = all.count * all.fixed_bytes;
        assert!((2 * MIB..3 * MIB + MIB / 2).contains(&tables_bytes), "{tables_bytes}");
        // More of them than there should be do not make it grow without end.
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
        // Tables of a large database have as many entries as one may have that is built alone.
        assert_eq!([threads(2 * MIB, 8_000, 1024), threads(2 * MIB, 8_000, 20)], [2, 1]);
        assert_eq!(size(2 * MIB, tables(0, 0)).threads_for((0, 0), 8 * MIB, 2), 2, "nothing to write");
        assert_eq!(size(2 * MIB, tables(0, 0)).threads_for((1, 1 << 40), 0, 2), 1);
    }

    #[test]
    fn no_merge_leaves_a_tiny_table() {
        // Bytes to come, and the sizes of what is cut from that many.
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
        // What is to come was taken for less than it is.
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
