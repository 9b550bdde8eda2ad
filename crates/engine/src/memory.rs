//! Division of the memory budget: what each part holds, and what remains for the block cache.
//!
//! Every part charges the ledger before it allocates. Memtables, tables being built, filters,
//! indexes and iterators take what they need, within limits that the settings derive from the
//! budget. The block cache has the remainder and shrinks *before* something else is charged
//! ([`Core::charge_memory`]). So the ledger's sum stays within the budget as long as the filters
//! and indexes of all open tables fit into it together with the memtables. Where they do not fit,
//! the cache holds nothing, a warning says so, and reads go on uncached. An open whose tables would
//! take more than half of the budget keeps some of them closed ([`tables_to_open`]).
//!
//! Memory for one flush and one compaction is kept free
//! ([`crate::options::settings::Settings::work_bytes`]), so a flush never waits for memory that
//! only a flush frees. With budgeted residency it is lent out while no writes come.
//!
//! Not here: the arithmetic and its constants ([`shamba_model::memory`]); the accounting
//! ([`shamba_table::Ledger`]).

use std::fmt;
use std::sync::atomic::Ordering;

use shamba_model::memory;
use shamba_model::memory::constants::TABLE_BYTES;
use shamba_table::{Charge, LedgerPart, Residency};

use crate::core::Core;
use crate::residency::{LevelMemory, MemoryPrices};
use crate::scheduler::unrestricted_compaction_threads;
use shamba_env::lock;
use shamba_tree::compaction::table_size::{TableSize, Tables};
use shamba_tree::version::{TableMeta, Version};

/// Memory that an open table always holds, also when everything else of it is evicted.
fn table_bytes(meta: &TableMeta) -> u64 {
    memory::table_metadata_bytes(bounds_bytes_of(meta), meta.file_bytes)
}

fn bounds_bytes_of(meta: &TableMeta) -> u64 {
    (meta.smallest.len() + meta.upper.as_ref().map_or(0, bytes::Bytes::len)) as u64
}

/// Minimum budget under which all tables of `versions` can be open.
pub(crate) fn budget_bytes_min<'v>(versions: impl Iterator<Item = &'v Version>) -> u64 {
    let of_version =
        |version: &Version| version.tables().map(|(_, _, table)| table_bytes(&table.meta)).sum::<u64>();
    memory::budget_bytes_min(versions.map(of_version).sum())
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
pub(crate) fn tables_to_open(budget_bytes: u64, tables: &[&TableMeta]) -> Vec<bool> {
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

/// Bytes held in memory, by part.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The budget that was set.
    pub budget_bytes: u64,
    /// Size at which the settings seal memtables: the design's write buffer, or the limit that the
    /// budget allows. The arbiter then seals them at a quarter to twice this size, as writes and
    /// reads need memory.
    pub memtable_bytes: u64,
    /// Parts and their bytes.
    pub parts: Vec<(String, u64)>,
    /// Their sum.
    pub ledger_bytes: u64,
    /// Maximum of the sum since the database was opened.
    pub peak_bytes: u64,
    /// Resident memory of the whole process as the operating system reports it; `None` where it
    /// does not.
    pub rss_bytes: Option<u64>,
    /// Filters and indexes held in memory, by level.
    pub levels: Vec<LevelMemory>,
    /// Value of memory for filters and indexes.
    pub prices: MemoryPrices,
}

impl Core {
    /// Memory kept free for a flush and a compaction, less what running ones hold already.
    pub(crate) fn kept_bytes(&self) -> u64 {
        if self.lifecycle.is_read_only() {
            return 0;
        }
        // Budgeted filters and indexes can be evicted when the memory is needed. While writes come
        // it is needed all the time.
        let is_budgeted = self.settings.filter_residency == Residency::Budgeted;
        let is_lent = is_budgeted && self.residency.writes_idle.load(Ordering::Relaxed);
        let at_work_bytes = self.ledger.bytes(LedgerPart::WriteBuffers);
        memory::kept_free_bytes(self.settings.work_bytes(), at_work_bytes, is_lent)
    }

    /// Gives the block cache the memory that the other parts leave.
    pub(crate) fn balance_memory(&self) {
        let _balancing = lock(&self.balancing);
        self.balance_for(0);
    }

    /// Charges `bytes` in place of what `charge` held, after the cache has freed that much.
    pub(crate) fn charge_memory(&self, charge: &mut Charge, bytes: u64) {
        let _balancing = lock(&self.balancing);
        self.balance_for(bytes.saturating_sub(charge.bytes()));
        charge.resize(bytes);
    }

    /// Charges the memory of the newest views and their trees. An older view that a reader still
    /// holds is not counted: it shares nearly everything with the newest one.
    pub(crate) fn charge_trees(&self) {
        let keyspaces = self.catalog.keyspaces();
        let bytes = keyspaces.values().map(|keyspace| keyspace.load().metadata_bytes() as u64).sum();
        self.charge_memory(&mut lock(&self.tree_charge), bytes);
        let budget_bytes = self.settings.memory_budget_bytes;
        let views: Vec<_> = keyspaces.values().map(|keyspace| keyspace.load_full()).collect();
        let versions = || views.iter().map(|view| view.version.as_ref());
        *lock(&self.tables) = tables_of(versions());
        let bytes_min = budget_bytes_min(versions());
        if bytes_min > budget_bytes && !self.has_warned_budget_exceeded.swap(true, Ordering::Relaxed) {
            self.telemetry.warn(format!(
                "the memory budget of {budget_bytes} bytes is too small to keep all tables open: the next open keeps some \
                 closed, and each lookup in these opens them; with {bytes_min} bytes all stay open"
            ));
        }
    }

    /// Table size at which outputs are finished now.
    pub(crate) fn table_size(&self) -> TableSize {
        self.table_size_beside(0, 0)
    }

    /// Table size, counting `count` written tables of `bytes` in total that are not yet part of a
    /// tree.
    pub(crate) fn table_size_beside(&self, count: u64, bytes: u64) -> TableSize {
        let tables = lock(&self.tables).and(count, bytes);
        let budget_bytes = self.settings.memory_budget_bytes;
        // A small budget's second thread does not make tables smaller: it helps only where the
        // table size leaves memory.
        let threads = self.scheduler.compaction_threads().min(unrestricted_compaction_threads(budget_bytes));
        TableSize::new(self.settings.table_bytes(), tables, budget_bytes, threads)
    }

    /// Shrinks the cache for `bytes` that the caller will charge soon by opening a table.
    pub(crate) fn make_memory(&self, bytes: u64) {
        let _balancing = lock(&self.balancing);
        self.balance_for(bytes);
    }

    fn balance_for(&self, coming_bytes: u64) {
        let budget_bytes = self.settings.memory_budget_bytes;
        let cached_bytes = self.ledger.bytes(LedgerPart::BlockCache);
        let iterators_ahead_bytes = self
            .reads
            .iterators()
            .room_wanted_bytes()
            .saturating_sub(self.ledger.bytes(LedgerPart::Iterators));
        let coming_bytes = coming_bytes.saturating_add(iterators_ahead_bytes);
        let other_bytes = self.ledger.total().saturating_sub(cached_bytes).saturating_add(coming_bytes);
        let pool_bytes = self.pool_held_bytes();
        let kept_bytes = self.kept_bytes();
        self.residency.note_other_bytes(other_bytes.saturating_sub(pool_bytes) + kept_bytes);
        let share_of =
            |other_bytes: u64| memory::shared_bytes(budget_bytes, other_bytes.saturating_add(kept_bytes));
        let mut share_bytes = share_of(other_bytes);
        let missing_bytes = memory::missing_bytes(budget_bytes, other_bytes.saturating_add(kept_bytes));
        if share_bytes == 0 && missing_bytes > 0 && self.shed(missing_bytes) {
            let other_bytes = self.ledger.total().saturating_sub(cached_bytes).saturating_add(coming_bytes);
            share_bytes = share_of(other_bytes);
        }
        let is_used_up = share_bytes == 0;
        let share_bytes = share_bytes.min(self.settings.cache_bytes_max.unwrap_or(u64::MAX));
        let capacity_bytes = self.cache.capacity_bytes();
        if memory::is_capacity_changed(budget_bytes, capacity_bytes, share_bytes) {
            self.cache.set_capacity_bytes(share_bytes);
            // Pinned blocks cannot be evicted: idle iterators are asked to release theirs.
            if self.cache.bytes() > share_bytes.saturating_add(memory::slack_bytes(budget_bytes)) {
                self.reads.iterators().revoke_all();
                self.cache.set_capacity_bytes(share_bytes);
            }
        }
        // Once for an open: near the limit the state changes back and forth.
        if is_used_up && capacity_bytes > 0 && !self.has_warned_budget_full.swap(true, Ordering::Relaxed) {
            self.telemetry.warn(format!(
                "the memory budget of {budget_bytes} bytes is used up by {other_bytes} bytes outside the block \
                 cache: blocks are not cached"
            ));
        }
    }

    pub(crate) fn memory(&self) -> MemoryReport {
        let parts: Vec<(String, u64)> =
            LedgerPart::ALL.iter().map(|part| (part.name().to_owned(), self.ledger.bytes(*part))).collect();
        let ledger_bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        MemoryReport {
            budget_bytes: self.settings.memory_budget_bytes,
            memtable_bytes: self.settings.memtable_bytes(),
            parts,
            ledger_bytes,
            peak_bytes: self.ledger.peak(),
            rss_bytes: shamba_env::process_rss_bytes(),
            levels: self.level_memory(),
            prices: self.memory_prices(),
        }
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, bytes) in &self.parts {
            writeln!(f, "{part:<18}{bytes:>14}")?;
        }
        writeln!(f, "{:<18}{:>14}", "accounted", self.ledger_bytes)?;
        write!(f, "{:<18}{:>14}", "peak", self.peak_bytes)?;
        if let Some(rss_bytes) = self.rss_bytes {
            write!(f, "\n{:<18}{rss_bytes:>14}", "resident (process)")?;
        }
        Ok(())
    }
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
                statistics: Default::default(),
            }
        };
        let tables = [table(1, 10, 0), table(2, 30, 0), table(3, 1, 1), table(4, 20, 0)];
        let tables: Vec<&TableMeta> = tables.iter().collect();
        let each = table_bytes(tables[0]);
        assert_eq!(tables_to_open(2 * 4 * each, &tables), [true; 4]);
        assert_eq!(tables_to_open(2 * 2 * each, &tables), [false, true, true, false]);
        assert_eq!(tables_to_open(0, &tables), [false, false, true, false]);
    }
}
