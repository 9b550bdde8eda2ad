//! Trees of any design that take writes: laid down full, then written to.
//!
//! Keys come by number; those laid down are the even ones, those inserted later the odd ones, each once and in random order: so the
//! tree grows, as under the paper's inserts into a much larger domain of keys. Absent keys lie behind each.
//!
//! There is no block cache and no log; filters and indexes are held; one thread merges. Tables are two write buffers long.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shamba::env::{Env, MemFs, SlowFs, Vfs};
use shamba::{Builder, Db, Design, Residency, Sizing};
use shamba_model::monkey::levels_closed;

use super::setup::{ENTRY_BYTES, Filters};
use crate::dist::{Distribution, Picker};
use crate::items::Items;
use crate::lab::{Device, Lab};
use crate::layered::{Layers, Shape};
use crate::permute::Permutation;

const TREE: &str = "/tree";
/// Enough for filters, indexes and merges: nothing of it caches blocks.
const BUDGET_BYTES: u64 = 64 << 20;
/// Entries of a short range, whatever the number of entries.
const RANGE_ENTRIES_LEAST: u64 = 10;

/// A tree in memory, and what tells its keys.
pub(super) struct Grown {
    pub design: Design,
    pub filters: Filters,
    pub levels: u32,
    entries: u64,
    items: Items,
    files: Arc<dyn Vfs>,
}

/// Shares of operations; what is left of 1 is lookups that find nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub inserts: f64,
    pub ranges: f64,
}

impl Grown {
    /// Lays a tree of so many entries down, all levels of the design full.
    ///
    /// # Errors
    /// What the engine says.
    pub fn lay(lab: &mut Lab<'_>, design: Design, filters: Filters, entries: u64) -> Result<Self, String> {
        lab.at(format_args!("laying down {design}"));
        let items = Items { count: 2 * entries, entry_bytes: ENTRY_BYTES as u64, seed: lab.seed };
        let bytes = (entries * ENTRY_BYTES as u64) as f64;
        let levels = levels_closed(bytes, design.buffer_bytes, design.size_ratio)?;
        let (inner_runs, last_runs) = (design.inner_runs, design.last_runs);
        let shape = Shape { size_ratio: design.size_ratio, levels, inner_runs, last_runs };
        let layers = Layers::new(entries, lab.seed, shape, filters.bits(design.bits_per_key, 1.0))?;
        let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let tree = Self { design, filters, levels, entries, items, files };
        layers.lay(&|| Ok(tree.builder(tree.world())), &|item| items.pair(2 * item))?;
        Ok(tree)
    }

    fn world(&self) -> Env {
        Env { vfs: Arc::clone(&self.files), ..Env::real() }
    }

    fn builder(&self, world: Env) -> Builder {
        Db::builder(Path::new(TREE))
            .env(world)
            .memory_budget(BUDGET_BYTES)
            .cache_limit(0)
            .design(self.design)
            .sizing(Sizing::Manual)
            .filter_residency(Residency::Pinned)
            .filter_layout(self.filters.bits(0.0, 1.0).layout)
            .filter_allocation(self.filters.bits(0.0, 1.0).allocation)
            .file_size(2 * self.design.buffer_bytes)
            .digest_seed(self.items.seed)
            .background_threads(1)
            .no_wal(true)
            .info_log(false)
    }

    /// Opens it for writing; on a device, each read and each write of a file takes its time.
    ///
    /// # Errors
    /// What the engine says.
    pub fn open(&self, device: Option<Device>) -> Result<Db, String> {
        let mut world = self.world();
        if let Some(ns) = device.and_then(Device::read_ns) {
            world.vfs = Arc::new(SlowFs::new(world.vfs, Arc::clone(&world.clock), ns, ns));
        }
        self.builder(world).open().map_err(|error| error.to_string())
    }

    /// Opens it for reading on a device.
    ///
    /// # Errors
    /// What the engine says.
    pub fn open_to_read(&self, device: Device) -> Result<Db, String> {
        let world = device.env(&self.files)?;
        self.builder(world).read_only(true).open().map_err(|error| error.to_string())
    }

    /// Inserts `count` keys, from the `from`th on in the order of inserts.
    ///
    /// # Errors
    /// What the engine says.
    pub fn insert(&self, db: &Db, from: u64, count: u64) -> Result<(), String> {
        let order = Permutation::new(self.entries, self.items.seed);
        let mut value = Vec::new();
        for number in from..from + count {
            let item = 2 * order.at(number % self.entries) + 1;
            self.items.value(item, &mut value);
            db.put(self.items.key(item, false), &value).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// So many lookups of absent keys; what they took, in nanoseconds. The same `seed` asks for the same keys.
    ///
    /// # Errors
    /// What the engine says; a key that is found.
    pub fn look_up(&self, db: &Db, lookups: u64, seed: u64) -> Result<u64, String> {
        let mut picker = Picker::new(Distribution::Uniform, self.items.count, seed, seed);
        let keys: Vec<_> = (0..lookups).map(|_| self.items.key(picker.pick(0), true)).collect();
        let since = Instant::now();
        for key in &keys {
            if db.contains_key(key).map_err(|error| error.to_string())? {
                return Err(format!("an absent key is found: {key:x?}"));
            }
        }
        Ok(since.elapsed().as_nanos() as u64)
    }

    /// Carries out so many operations and what merges owe after them; operations a second.
    ///
    /// # Errors
    /// What the engine says, and a wrong answer.
    pub fn carry_out(&self, db: &Db, mix: Mix, operations: u64) -> Result<f64, String> {
        let mut picker =
            Picker::new(Distribution::Uniform, self.entries, self.items.seed ^ 5, self.items.seed);
        let range_entries = (self.entries / 100_000).max(RANGE_ENTRIES_LEAST);
        let mut inserted = 0;
        let since = Instant::now();
        for _ in 0..operations {
            let draw = picker.rng().f64();
            let item = picker.pick(self.entries);
            if draw < mix.inserts {
                self.insert(db, inserted, 1)?;
                inserted += 1;
            } else if draw < mix.inserts + mix.ranges {
                let from = 2 * item.min(self.entries - range_entries);
                let range = db.range(self.items.key(from, false)..).take(range_entries as usize);
                let found = range.filter(Result::is_ok).count() as u64;
                if found != range_entries {
                    return Err(format!("a range from item {from} has {found} entries"));
                }
            } else if db.contains_key(self.items.key(2 * item, true)).map_err(|error| error.to_string())? {
                return Err(format!("the absent key behind {item} is found"));
            }
        }
        db.wait_idle().map_err(|error| error.to_string())?;
        Ok(operations as f64 / since.elapsed().as_secs_f64())
    }
}
