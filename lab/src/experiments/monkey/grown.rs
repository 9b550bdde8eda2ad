//! Trees of any design under writes: built full, then written to.
//!
//! Keys are numbered; the initial ones are even, those inserted later odd, each once and in random
//! order: the tree grows as under the paper's inserts into a much larger key domain. An absent key
//! follows each. There is no block cache and no log; filters and indexes are resident; one thread
//! compacts. Tables have two write buffers, but at least 512 entries and 128 KiB: the smallest
//! filter has 64 bytes, which would be many more bits than requested for a table of a few entries.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Builder, Db, Design, Residency, Sizing, Stats};
use shamba_model::monkey::levels_closed;
use shamba_workload::{Distribution, Permutation, Picker};

use super::setup::Filters;
use crate::io_tally::PAGE_BYTES;
use crate::items::Items;
use crate::layered::{Layers, Shape};
use crate::prelude::*;
use crate::tree::rewrite_filters_to;

const TREE: &str = "/tree";
const FILE_BYTES_MIN: u64 = 128 << 10;
const FILE_ENTRIES_MIN: u64 = 512;
/// Enough for filters, indexes and merges: nothing of it caches blocks.
const BUDGET_BYTES: u64 = 64 << 20;
/// Entries of a short range, whatever the number of entries.
const RANGE_ENTRIES_MIN: u64 = 10;

/// Entries of a short range in a tree of `entries`: a hundred-thousandth of them, ten at least.
pub(in crate::experiments) fn range_entries(entries: u64) -> u64 {
    (entries / 100_000).max(RANGE_ENTRIES_MIN)
}

/// The share of all entries that such a range reads.
pub(in crate::experiments) fn range_selectivity(entries: u64) -> f64 {
    range_entries(entries) as f64 / entries.max(1) as f64
}

/// A tree in memory, and what names its keys.
pub(in crate::experiments) struct Grown {
    pub design: Design,
    pub levels: u32,
    filters: Filters,
    entries: u64,
    inserted: u64,
    items: Items,
    files: Arc<dyn Vfs>,
}

fn said(error: shamba::Error) -> String {
    error.chain().to_string()
}

impl Grown {
    /// Lays a tree of these entries down, (how many, bytes of each), in the shape of the design.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn lay(
        lab: &Lab<'_>,
        design: Design,
        filters: Filters,
        (entries, entry_bytes): (u64, u64),
    ) -> Result<Self, String> {
        lab.at(format_args!("laying down {design}, {}", filters.name()));
        let items = Items { count: 2 * entries, entry_bytes, seed: lab.seed };
        let levels = levels_closed((entries * entry_bytes) as f64, design.buffer_bytes, design.size_ratio)?;
        let (inner_runs, last_runs) = (design.inner_runs, design.last_runs);
        let shape = Shape { size_ratio: design.size_ratio, levels, inner_runs, last_runs };
        let layers = Layers::new(entries, lab.seed, shape, filters.bits(design.bits_per_key, 1.0))?;
        let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let tree = Self { design, filters, levels, entries, inserted: 0, items, files };
        layers.lay(&|| Ok(tree.builder(tree.world())), &|item| items.pair(2 * item))?;
        Ok(tree)
    }

    fn world(&self) -> Env {
        Env { vfs: Arc::clone(&self.files), ..Env::real() }
    }

    fn builder(&self, world: Env) -> Builder {
        let file_bytes =
            FILE_BYTES_MIN.max(FILE_ENTRIES_MIN * self.items.entry_bytes).max(2 * self.design.buffer_bytes);
        let bits = self.filters.bits(0.0, 1.0);
        Db::builder(Path::new(TREE))
            .env(world)
            .memory_budget(BUDGET_BYTES)
            .experimental(|e| {
                e.cache_limit(0)
                    .design(self.design)
                    .sizing(Sizing::Manual)
                    .filter_residency(Residency::Pinned)
                    .filter_layout(bits.layout)
                    .filter_allocation(bits.allocation)
                    .file_size(file_bytes)
                    .digest_seed(self.items.seed)
                    .no_wal(true)
            })
            .background_threads(1)
            .info_log(false)
    }

    /// Opens it for writing, with another file system over its own.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open_over(&self, over: impl FnOnce(Arc<dyn Vfs>) -> Arc<dyn Vfs>) -> Result<Db, String> {
        let world = self.world();
        let vfs = over(Arc::clone(&world.vfs));
        self.builder(Env { vfs, ..world }).open().map_err(said)
    }

    /// Inserts one key more.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn insert_one(&mut self, db: &Db, value: &mut Vec<u8>) -> Result<(), String> {
        let order = Permutation::new(self.entries, self.items.seed);
        let item = 2 * order.at(self.inserted % self.entries) + 1;
        self.inserted += 1;
        self.items.value(item, value);
        db.put(self.items.key(item, false), &*value).map_err(said)
    }

    /// Inserts `count` more keys and waits until no compaction is pending; returns the pages that
    /// flushes and compactions read and wrote per insert.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn insert(&mut self, count: u64) -> Result<f64, String> {
        let db = self.open_over(|files| files)?;
        let before = db.stats();
        let mut value = Vec::new();
        for _ in 0..count {
            self.insert_one(&db, &mut value)?;
        }
        db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
        let stats = db.stats().since(&before);
        db.close().map_err(said)?;
        let moved_bytes = stats.bytes_flushed + stats.bytes_compacted + stats.bytes_compaction_read;
        Ok(moved_bytes as f64 / PAGE_BYTES as f64 / count.max(1) as f64)
    }

    /// Writes every filter again with the bits that `filters` gives it in the tree as it is, as
    /// many in all.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn rewrite_filters(&mut self, filters: Filters) -> Result<(), String> {
        self.filters = filters;
        rewrite_filters_to(self.design.bits_per_key, &|| self.builder(self.world())).map(drop)
    }

    /// Runs `lookups` lookups of absent keys and returns their counters.
    ///
    /// # Errors
    /// Errors of the engine; a key that is found.
    pub fn look_up(&self, lookups: u64, seed: u64) -> Result<Stats, String> {
        let db = self.builder(self.world()).read_only(true).open().map_err(said)?;
        let mut picker = Picker::new(Distribution::Uniform, self.items.count, seed, seed);
        for _ in 0..lookups {
            self.look_up_one(&db, picker.pick(0))?;
        }
        Ok(db.stats())
    }

    /// Looks an absent key up.
    ///
    /// # Errors
    /// Errors of the engine; a key that is found.
    pub fn look_up_one(&self, db: &Db, item: u64) -> Result<(), String> {
        let key = self.items.key(item.min(self.items.count - 1), true);
        if db.contains_key(key).map_err(said)? {
            Err(format!("an absent key is found: {key:x?}"))
        } else {
            Ok(())
        }
    }

    /// Looks up a key that was laid down.
    ///
    /// # Errors
    /// Errors of the engine; a key that is not found.
    pub fn find_one(&self, db: &Db, item: u64) -> Result<(), String> {
        let key = self.items.key(2 * (item / 2).min(self.entries - 1), false);
        if db.get_with(key, |_| ()).map_err(said)?.is_some() {
            Ok(())
        } else {
            Err(format!("a key that was laid down is missing: {key:x?}"))
        }
    }

    /// Reads a range of [`range_entries`].
    ///
    /// # Errors
    /// Errors of the engine; a range of other entries.
    pub fn walk_one(&self, db: &Db, item: u64) -> Result<(), String> {
        let wanted = range_entries(self.entries);
        let from = 2 * (item / 2).min(self.entries - wanted);
        let range = db.range(self.items.key(from, false)..).take(wanted as usize);
        match range.filter(Result::is_ok).count() as u64 {
            found if found == wanted => Ok(()),
            found => Err(format!("a range from item {from} has {found} entries")),
        }
    }

    /// Items to ask for: all those laid down, and the places of those inserted.
    pub fn items(&self) -> u64 {
        self.items.count
    }
}
