//! Tables and trees as consumers of memory: their metadata, and which tables an open keeps closed.
//!
//! An open table always holds some memory, also when its filter and index are evicted. If the
//! tables of all trees would take more than half of the budget, an open keeps the least worthwhile
//! of them closed, and each use opens them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba_model::memory;
use shamba_model::memory::constants::TABLE_BYTES;
use shamba_table::{Charge, Ledger, LedgerPart};
use shamba_tree::compaction::table_size::Tables;
use shamba_tree::version::{TableMeta, Version};
use shamba_tree::view::View;

use crate::lock_order;
use crate::ranked::{Ranked, RankedGuard};

/// The memory of the newest trees, and the number of their tables.
pub(super) struct TreeMemory {
    /// Charge for the newest views and their trees.
    charge: Ranked<Charge>,
    tables: Ranked<Tables>,
    /// The budget keeps some tables closed.
    has_closed: AtomicBool,
    /// The warning that the tables need more than the memory budget was emitted.
    has_warned_budget_exceeded: AtomicBool,
}

impl TreeMemory {
    /// No trees yet.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            charge: Ranked::new(lock_order::TREE_CHARGE, Charge::new(ledger, LedgerPart::TableMeta, 0)),
            tables: Ranked::new(lock_order::TREE_TABLES, Tables::default()),
            has_closed: AtomicBool::new(false),
            has_warned_budget_exceeded: AtomicBool::new(false),
        }
    }

    /// The charge for the newest views.
    pub fn charge(&self) -> RankedGuard<'_, Charge> {
        self.charge.lock()
    }

    /// Number and sizes of the tables of the newest trees.
    pub fn tables(&self) -> Tables {
        *self.tables.lock()
    }

    /// Whether some tables are kept closed.
    pub fn has_closed(&self) -> bool {
        self.has_closed.load(Ordering::Relaxed)
    }

    /// [`tables_to_open`], and notes whether any stays closed.
    pub fn to_open(&self, budget_bytes: u64, tables: &[&TableMeta]) -> Vec<bool> {
        let open = tables_to_open(budget_bytes, tables);
        if open.contains(&false) {
            self.has_closed.store(true, Ordering::Relaxed);
        }
        open
    }

    /// Counts the tables of the newest `views`. Returns a warning, once, if they can no longer all
    /// be open.
    pub fn changed(&self, budget_bytes: u64, views: &[Arc<View>]) -> Option<String> {
        let versions = || views.iter().map(|view| view.version.as_ref());
        *self.tables.lock() = tables_of(versions());
        let bytes_min = budget_bytes_min(versions());
        let is_new =
            bytes_min > budget_bytes && !self.has_warned_budget_exceeded.swap(true, Ordering::Relaxed);
        is_new.then(|| {
            format!(
                "the memory budget of {budget_bytes} bytes is too small to keep all tables open: the next open keeps some \
                 closed, and each lookup in these opens them; with {bytes_min} bytes all stay open"
            )
        })
    }
}

/// Memory of a table for each value file that it refers to: an entry of its properties and the open
/// file's reference.
const VALUE_USE_BYTES: u64 = 40;

/// Memory of a range tombstone besides its keys: 72 bytes in the list of its table, and some 180 in
/// the fragments of its run, if it meets no others.
const TOMBSTONE_BYTES: u64 = 256;

/// Maximum memory that the keys of a range tombstone are taken to have: a few long bounds of a
/// table must not make its many tombstones look larger than the budget.
const TOMBSTONE_KEYS_BYTES_MAX: u64 = 64;

/// Memory that an open table always holds, also when everything else of it is evicted. The keys of
/// range tombstones are taken to be as long as the table's bounds.
fn table_bytes(meta: &TableMeta) -> u64 {
    let of_values = meta.values.get().files().len() as u64 * VALUE_USE_BYTES;
    let bounds_bytes = bounds_bytes_of(meta);
    let of_tombstones =
        meta.range_deletes.saturating_mul(TOMBSTONE_BYTES + bounds_bytes.min(TOMBSTONE_KEYS_BYTES_MAX));
    memory::table_metadata_bytes(bounds_bytes, meta.file_bytes)
        .saturating_add(of_values)
        .saturating_add(of_tombstones)
}

fn bounds_bytes_of(meta: &TableMeta) -> u64 {
    (meta.smallest.len() + meta.upper.as_ref().map_or(0, bytes::Bytes::len)) as u64
}

/// Minimum budget under which all tables of `versions` can be open.
fn budget_bytes_min<'v>(versions: impl Iterator<Item = &'v Version>) -> u64 {
    let of_version = |version: &Version| {
        version.tables().map(|(_, _, table)| table_bytes(&table.meta)).fold(0, u64::saturating_add)
    };
    memory::budget_bytes_min(versions.map(of_version).fold(0, u64::saturating_add))
}

/// Number and sizes of all tables of `versions`.
fn tables_of<'v>(versions: impl Iterator<Item = &'v Version>) -> Tables {
    let metas = versions.flat_map(|version| version.tables().map(|(_, _, table)| &table.meta));
    let (tables, bounds_bytes) = metas.fold((Tables::default(), 0), |(tables, bounds_bytes), meta| {
        (tables.and(1, meta.file_bytes), bounds_bytes + bounds_bytes_of(meta))
    });
    Tables { fixed_bytes: TABLE_BYTES + bounds_bytes / tables.count.max(1), ..tables }
}

/// Chooses which of `tables` stay open under `budget_bytes`; one flag per table, in the same order.
/// All stay open if they take no more than half of the budget; otherwise as many as fit into that
/// half. Tables with range tombstones stay open in any case, because readers need the tombstones in
/// memory. The others follow by descending file size: larger files hold more keys for the memory of
/// a reader.
fn tables_to_open(budget_bytes: u64, tables: &[&TableMeta]) -> Vec<bool> {
    let mut left_bytes = memory::tables_bytes_max(budget_bytes);
    let mut by_worth: Vec<usize> = (0..tables.len()).collect();
    by_worth.sort_by_key(|number| {
        let table = tables[*number];
        (table.range_deletes == 0, std::cmp::Reverse(table.file_bytes))
    });
    let mut open = vec![false; tables.len()];
    for number in by_worth {
        let bytes = table_bytes(tables[number]);
        let fits = bytes <= left_bytes;
        open[number] = fits || tables[number].range_deletes > 0;
        left_bytes = if fits { left_bytes - bytes } else { 0 };
    }
    open
}

#[cfg(test)]
mod tests {
    use shamba_model::memory::constants::BUDGET_BYTES_MIN;

    use super::*;

    #[test]
    fn the_least_budget_follows_the_tables() {
        let tables = |count: u32| -> Version {
            let table = |n: u32| format!("{n:06}:k{n:06}..k{n:06}a 1");
            let text = format!("L1: r1@1[{}]\n", (1..=count).map(table).collect::<Vec<_>>().join(", "));
            text.parse().expect("notation")
        };
        let (few, many) = (tables(100), tables(10_000));
        assert_eq!(budget_bytes_min([&few].into_iter()), BUDGET_BYTES_MIN);
        let bytes_min = budget_bytes_min([&few, &many].into_iter());
        assert!((39 << 20..44 << 20).contains(&bytes_min), "{bytes_min}");
        let metas: Vec<&TableMeta> = [&few, &many]
            .into_iter()
            .flat_map(|version| version.tables())
            .map(|(_, _, table)| table.meta.as_ref())
            .collect();
        let open = |budget_bytes| tables_to_open(budget_bytes, &metas).iter().filter(|open| **open).count();
        assert_eq!(open(bytes_min), metas.len());
        assert_eq!(open(bytes_min - 1), metas.len() - 1);
        assert!((900..1_100).contains(&open(BUDGET_BYTES_MIN)), "{}", open(BUDGET_BYTES_MIN));
    }

    #[test]
    fn tables_with_range_tombstones_and_large_ones_stay_open() {
        let table = |n: u64, file_bytes: u64, range_deletes: u64| {
            let version: Version = format!("L1: r1@1[{n:06}:a..b 1]\n").parse().expect("notation");
            let meta = &version.level(1)[0].tables()[0].meta;
            TableMeta {
                id: meta.id,
                birth: meta.birth,
                file_bytes,
                entries: 1,
                deletes: 0,
                range_deletes,
                smallest: meta.smallest.clone(),
                upper: meta.upper.clone(),
                smallest_seq: meta.smallest_seq,
                largest_seq: meta.largest_seq,
                bits_per_key: 0.0,
                reader: Default::default(),
                oldest_tombstone: Default::default(),
                older_versions: Default::default(),
                expiring: Default::default(),
                values: Default::default(),
                statistics: Default::default(),
            }
        };
        let tables = [table(1, 10, 0), table(2, 30, 0), table(3, 1, 1), table(4, 20, 0)];
        let tables: Vec<&TableMeta> = tables.iter().collect();
        let (each, plain) = (table_bytes(tables[2]), table_bytes(tables[0]));
        assert_eq!(each, plain + TOMBSTONE_BYTES + 2, "one range tombstone, with keys of one byte");
        assert_eq!(tables_to_open(2 * 4 * each, &tables), [true; 4]);
        assert_eq!(tables_to_open(2 * 2 * each, &tables), [false, true, true, false]);
        assert_eq!(tables_to_open(0, &tables), [false, false, true, false]);
    }
}
