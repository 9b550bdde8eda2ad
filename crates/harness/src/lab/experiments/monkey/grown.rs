//! Trees of any design that take writes: laid down full, then written to.
//!
//! What it costs depends on how many runs there are just then; so a tree lives on for a while, and is looked at several times.
//!
//! Keys come by number; those laid down are the even ones, those inserted later the odd ones, each once and in random order: so the
//! tree grows, as under the paper's inserts into a much larger domain of keys. Absent keys lie behind each.
//!
//! There is no block cache and no log; filters and indexes are held; one thread merges. Tables are two write buffers long, but at
//! least 128 KiB: the smallest filter has 64 bytes, which for a table of a few entries would be many more bits than were asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shamba::env::{Env, MemFs, SlowFs, Vfs};
use shamba::{Builder, Db, Design, Residency, Sizing};
use shamba_model::monkey::levels_closed;

use super::setup::Filters;
use crate::dist::{Distribution, Picker};
use crate::items::Items;
use crate::lab::{Device, Lab};
use crate::layered::{Layers, Shape};
use crate::permute::Permutation;

const TREE: &str = "/tree";
/// No table is cut shorter than this.
const FILE_BYTES_LEAST: u64 = 128 << 10;
/// Enough for filters, indexes and merges: nothing of it caches blocks.
const BUDGET_BYTES: u64 = 64 << 20;
/// Entries of a short range, whatever the number of entries.
const RANGE_ENTRIES_LEAST: u64 = 10;
/// Lookups of which I/Os are counted, each time.
const LOOKUPS_COUNTED: u64 = 8_192;
pub(super) const PAGE_BYTES: u64 = 4_096;

/// A tree in memory, and what tells its keys.
pub(super) struct Grown {
    pub design: Design,
    pub filters: Filters,
    pub levels: u32,
    entries: u64,
    inserted: u64,
    items: Items,
    files: Arc<dyn Vfs>,
}

/// What a tree goes through, several times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Where lookups and ranges are timed.
    pub device: Device,
    /// Whether inserts are, too, or run on files in memory.
    pub inserts_on_device: bool,
    pub inserts: u64,
    pub lookups: u64,
    pub ranges: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lived {
    /// Microseconds of an insert, what it costs flushes and merges included; of each time.
    pub insert_us: Vec<f64>,
    /// Of a lookup that finds nothing.
    pub lookup_us: Vec<f64>,
    pub range_us: Vec<f64>,
    /// Pages that flushes and merges read and wrote for an insert.
    pub update_pages: Vec<f64>,
    lookups: u64,
    reads: u64,
    pub levels: u32,
    /// The most that there were.
    pub runs: u64,
    pub bits_per_key: f64,
}

impl Lived {
    /// Blocks that a lookup read.
    pub fn ios(&self) -> f64 {
        self.reads as f64 / self.lookups.max(1) as f64
    }
}

impl Grown {
    /// Lays a tree of these entries down, (how many, bytes of each), in the shape of the design.
    ///
    /// # Errors
    /// What the engine says.
    pub fn lay(
        lab: &mut Lab<'_>,
        design: Design,
        filters: Filters,
        (entries, entry_bytes): (u64, u64),
    ) -> Result<Self, String> {
        lab.at(format_args!("laying down {design}"));
        let items = Items { count: 2 * entries, entry_bytes, seed: lab.seed };
        let bytes = (entries * entry_bytes) as f64;
        let levels = levels_closed(bytes, design.buffer_bytes, design.size_ratio)?;
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
        Db::builder(Path::new(TREE))
            .env(world)
            .memory_budget(BUDGET_BYTES)
            .cache_limit(0)
            .design(self.design)
            .sizing(Sizing::Manual)
            .filter_residency(Residency::Pinned)
            .filter_layout(self.filters.bits(0.0, 1.0).layout)
            .filter_allocation(self.filters.bits(0.0, 1.0).allocation)
            .file_size((2 * self.design.buffer_bytes).max(FILE_BYTES_LEAST))
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

    /// Inserts `count` keys more.
    ///
    /// # Errors
    /// What the engine says.
    pub fn insert(&mut self, db: &Db, count: u64) -> Result<(), String> {
        let order = Permutation::new(self.entries, self.items.seed);
        let mut value = Vec::new();
        for number in self.inserted..self.inserted + count {
            let item = 2 * order.at(number % self.entries) + 1;
            self.items.value(item, &mut value);
            db.put(self.items.key(item, false), &value).map_err(|error| error.to_string())?;
        }
        self.inserted += count;
        Ok(())
    }

    /// Inserts `count` keys more and merges to rest, without a device.
    ///
    /// # Errors
    /// What the engine says.
    pub fn warm(&mut self, count: u64) -> Result<(), String> {
        let db = self.open(None)?;
        self.insert(&db, count)?;
        db.flush().and_then(|()| db.wait_idle()).and_then(|()| db.close()).map_err(|error| error.to_string())
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

    /// So many ranges of a hundred-thousandth of the entries, ten at least; what they took, in nanoseconds.
    ///
    /// # Errors
    /// What the engine says; a range with other entries.
    pub fn walk(&self, db: &Db, ranges: u64, seed: u64) -> Result<u64, String> {
        let mut picker = Picker::new(Distribution::Uniform, self.entries, seed, seed);
        let wanted = (self.entries / 100_000).max(RANGE_ENTRIES_LEAST);
        let since = Instant::now();
        for _ in 0..ranges {
            let from = 2 * picker.pick(0).min(self.entries - wanted);
            let range = db.range(self.items.key(from, false)..).take(wanted as usize);
            let found = range.filter(Result::is_ok).count() as u64;
            if found != wanted {
                return Err(format!("a range from item {from} has {found} entries"));
            }
        }
        Ok(since.elapsed().as_nanos() as u64)
    }

    /// Inserts, merges to rest, then lookups and ranges: adds what that took to `lived`.
    ///
    /// # Errors
    /// What the engine says, and a wrong answer.
    pub fn live(&mut self, life: &Life, seed: u64, lived: &mut Lived) -> Result<(), String> {
        let said = |error: shamba::Error| error.to_string();
        let db = self.open(life.inserts_on_device.then_some(life.device))?;
        let (before, since) = (db.stats(), Instant::now());
        self.insert(&db, life.inserts)?;
        db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
        let us = |ns: f64, count: u64| ns / 1e3 / count.max(1) as f64;
        lived.insert_us.push(us(since.elapsed().as_nanos() as f64, life.inserts));
        let stats = db.stats().since(&before);
        db.close().map_err(said)?;
        let moved_bytes = stats.bytes_flushed + stats.bytes_merged + stats.bytes_merge_read;
        lived.update_pages.push(moved_bytes as f64 / PAGE_BYTES as f64 / life.inserts.max(1) as f64);

        let db = self.open_to_read(life.device)?;
        lived.lookup_us.push(us(self.look_up(&db, life.lookups, seed)? as f64, life.lookups));
        lived.range_us.push(us(self.walk(&db, life.ranges, seed)? as f64, life.ranges));
        let counted = self.open_to_read(Device::Memory)?;
        self.look_up(&counted, LOOKUPS_COUNTED, seed)?;
        let stats = counted.stats();
        lived.lookups += stats.lookups;
        lived.reads += stats.data_reads + stats.index_reads + stats.filter_reads;
        let (bits, entries) = stats.levels.iter().fold((0.0, 0), |(bits, entries), level| {
            (bits + level.bits_per_key * level.entries as f64, entries + level.entries)
        });
        lived.bits_per_key = bits / entries.max(1) as f64;
        lived.levels = stats.deepest_level;
        lived.runs = lived.runs.max(stats.runs);
        Ok(())
    }
}
