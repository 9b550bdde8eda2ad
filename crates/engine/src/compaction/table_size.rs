//! How large tables are made: as the settings say, or larger where memory cannot carry so many; and even ones. Pure.
//!
//! An open table takes some 2 KiB whatever its size ([`crate::memory`]), so a database of many times its budget must not be cut into
//! small ones: it would fill its budget with what it knows of its tables and not open again. So tables are made so large that what they take
//! is at most a part of the budget. A table being built takes memory, too, for the digests of its keys; a table that has
//! outgrown what the settings say ends where that gets too much.
//!
//! A merge is cut into tables of about equal size. Cut at the size alone, a little more than two tables' worth of entries would make two and a
//! tiny one, and the tiny one would come out of each later merge again.
//!
//! Not here: writing tables ([`super::output`]).

/// What open tables take of the budget, at most, as long as large enough tables can be written.
const TABLES_PART: u64 = 8;
/// What one table being built may take of the budget beyond what the settings' table size needs.
const BUILDING_PART: u64 = 8;

/// The least size of tables written from now on, for a database of `tree_bytes` in `tables`, each of which takes `fixed_bytes` beside
/// what goes by its size: that at which they would take an eighth of the budget, and more where they take more. Keys that come
/// in order are written once, so that most tables are of a time when there was less: with the square of their
/// excess they get more only by the third root of the logarithm of the data.
pub(crate) fn least_table_bytes(tree_bytes: u64, tables: u64, fixed_bytes: u64, budget_bytes: u64) -> u64 {
    let carried_tables = (budget_bytes / TABLES_PART / fixed_bytes.max(1)).max(1) as f64;
    let excess = (tables as f64 / carried_tables).max(1.0);
    (tree_bytes as f64 / carried_tables * excess * excess).min(tree_bytes as f64) as u64
}

/// Where tables are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableSize {
    /// At this size in any case.
    pub full_bytes: u64,
    /// If that is more than the settings say: from their size on as soon as the table being built takes so much memory.
    beyond_settings: Option<BeyondSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BeyondSettings {
    set_bytes: u64,
    building_bytes_most: u64,
}

impl TableSize {
    /// What the settings say, `set_bytes`, unless memory needs tables of `least_bytes`.
    pub fn new(set_bytes: u64, least_bytes: u64, budget_bytes: u64) -> Self {
        let beyond = BeyondSettings { set_bytes, building_bytes_most: budget_bytes / BUILDING_PART };
        Self {
            full_bytes: set_bytes.max(least_bytes),
            beyond_settings: (least_bytes > set_bytes).then_some(beyond),
        }
    }

    /// Whether memory needs larger tables than the settings say.
    pub fn is_beyond_settings(self) -> bool {
        self.beyond_settings.is_some()
    }

    /// Tables of equal size from `input_bytes` of input: of three quarters to one and a half of the full size where that is so much.
    pub fn even(self, input_bytes: u64) -> Self {
        let tables = (input_bytes.saturating_add(self.full_bytes / 2) / self.full_bytes.max(1)).max(1);
        let share = input_bytes / tables;
        // The last one gets a little less than the others: a little too much would be one table more.
        let full_bytes = share.saturating_add(share / 16).max(self.full_bytes / 2);
        Self { full_bytes, ..self }
    }

    /// Whether a table of `file_bytes`, whose writer holds `building_bytes`, ends here.
    pub fn is_reached(self, file_bytes: u64, building_bytes: u64) -> bool {
        let is_too_much = |beyond: BeyondSettings| {
            file_bytes >= beyond.set_bytes && building_bytes >= beyond.building_bytes_most
        };
        file_bytes >= self.full_bytes || self.beyond_settings.is_some_and(is_too_much)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn tables_grow_with_the_data_where_memory_is_short() {
        let least = |tree_bytes| least_table_bytes(tree_bytes, 0, 3 << 10, 8 * MIB);
        let size = |tree_bytes| TableSize::new(2 * MIB, least(tree_bytes), 8 * MIB).full_bytes;
        assert_eq!(size(100 * MIB), 2 * MIB, "a hundred tables are few");
        for tree_bytes in [2_000 * MIB, 20_000 * MIB] {
            let tables_bytes = tree_bytes / size(tree_bytes) * (3 << 10);
            assert!((MIB * 9 / 10..=MIB).contains(&tables_bytes), "{tables_bytes}");
        }
        assert_eq!(least_table_bytes(7, 1, u64::MAX, 8 * MIB), 7, "one table");
        assert_eq!(least_table_bytes(7, 9, 0, 0), 7);
        // Written once and never merged.
        let (mut tables, mut tree_bytes) = (0, 0);
        while tree_bytes < 20_000 * MIB {
            let least_bytes = least_table_bytes(tree_bytes, tables, 3 << 10, 8 * MIB);
            tree_bytes += TableSize::new(64 << 10, least_bytes, 8 * MIB).full_bytes;
            tables += 1;
        }
        let tables_bytes = tables * (3 << 10);
        assert!((2 * MIB..3 * MIB + MIB / 2).contains(&tables_bytes), "{tables_bytes}");
    }

    #[test]
    fn a_merge_makes_even_tables() {
        let size = TableSize::new(100, 0, 1 << 30);
        // Input, and the sizes of what is cut from that many bytes.
        for (input_bytes, wanted) in [
            (300, vec![106, 106, 88]),
            (301, vec![106, 106, 89]),
            (149, vec![149]),
            (151, vec![79, 72]),
            (40, vec![40]),
            (1000, [vec![106; 9], vec![46]].concat()),
        ] {
            let size = size.even(input_bytes);
            let mut tables = vec![0];
            for _ in 0..input_bytes {
                if size.is_reached(tables[tables.len() - 1], 0) {
                    tables.push(0);
                }
                *tables.last_mut().expect("a table") += 1;
            }
            assert_eq!(tables, wanted, "{input_bytes}");
        }
    }

    #[test]
    fn a_table_beyond_the_settings_ends_where_it_takes_too_much_memory() {
        let size = TableSize::new(2 * MIB, 10 * MIB, 8 * MIB);
        assert!(!size.is_reached(2 * MIB - 1, 5 * MIB), "what the settings say is always had");
        assert!(size.is_reached(2 * MIB, MIB) && !size.is_reached(2 * MIB, MIB - 1));
        assert!(!size.is_reached(10 * MIB - 1, 0) && size.is_reached(10 * MIB, 0));
        let as_set = TableSize::new(2 * MIB, 0, 8 * MIB).even(50 * MIB);
        assert!(!as_set.is_reached(as_set.full_bytes - 1, 5 * MIB));
    }
}
