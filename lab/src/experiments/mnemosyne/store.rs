//! Stores whose filter bits are shared out in one way, and what is asked of them: what the experiments have in common.
//!
//! T = 4, one run a level, in memory or behind an emulated device, no block cache, no log. Queries follow a distribution over keys in
//! order: what is hot has hot neighbours, so some tables are asked for more than others.
//!
//! The paper's Mnemosyne, bits by the sizes of the runs there are, is our `monkey`; its Mnemosyne+, bits by what each file is asked
//! for, our `workload`. Both follow the tree as it changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Allocation, Builder, Db, Design, FilterLayout, MergePolicy, Residency, Sizing};

use crate::device::MemoryRead;
use crate::items::Items;
use crate::layered::{Bits, Layers, Shape};
use crate::tree::refit_to;
use crate::{Device, Lab};
use shamba_workload::{Distribution, Picker};

pub(super) const SIZE_RATIO: f64 = 4.0;
const TREE: &str = "/tree";
const BUDGET_BYTES: u64 = 96 << 20;
/// No table is cut shorter than so many entries: filters come in lines of 512 bits, and with two bits
/// per key a line more or less must be no more than some percent.
const ENTRIES_LEAST: u64 = 2_048;
/// Queries between two looks at the clock.
const BATCH: u64 = 64;

/// The allocations, in the order of results.
pub(super) const ALLOCATIONS: [Allocation; 3] =
    [Allocation::Uniform, Allocation::Monkey, Allocation::Workload];

/// The levels that so many bytes fill over such a buffer.
pub(super) fn levels_for(bytes: u64, buffer_bytes: u64) -> u32 {
    design(buffer_bytes, 10.0).levels_for(bytes)
}

fn design(buffer_bytes: u64, bits_per_key: f64) -> Design {
    Design::new(MergePolicy::Leveling, SIZE_RATIO, buffer_bytes, bits_per_key)
}

/// How long tables are.
pub(super) fn file_bytes(buffer_bytes: u64, entry_bytes: u64) -> u64 {
    buffer_bytes.max(ENTRIES_LEAST * entry_bytes)
}

/// As the pictures have it.
pub(super) fn name(allocation: Allocation) -> &'static str {
    match allocation {
        Allocation::Uniform => "uniform bits",
        Allocation::Monkey => "by run (Mnemosyne)",
        Allocation::Workload => "by file (Mnemosyne+)",
    }
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Queries {
    pub distribution: Distribution,
    /// Z: the share of queries that find nothing.
    pub empty_fraction: f64,
}

/// A store.
pub(super) struct Store {
    pub allocation: Allocation,
    pub items: Items,
    pub levels: u32,
    design: Design,
    files: Arc<dyn Vfs>,
    memory_read: MemoryRead,
}

impl Store {
    /// An empty store for these items.
    pub fn new(
        lab: &Lab<'_>,
        allocation: Allocation,
        items: Items,
        (buffer_bytes, bits_per_key): (u64, f64),
    ) -> Self {
        let design = design(buffer_bytes, bits_per_key);
        let levels = design.levels_for(items.bytes());
        let files = Arc::new(MemFs::new());
        Self { allocation, items, levels, design, files, memory_read: lab.memory_read }
    }

    /// On average over all entries, as was asked for.
    pub fn bits_per_key(&self) -> f64 {
        self.design.bits_per_key
    }

    /// Lays all items down, with bits that know nothing of queries.
    ///
    /// # Errors
    /// What the engine says.
    pub fn lay(&self, lab: &mut Lab<'_>) -> Result<(), String> {
        let Self { items, levels, .. } = *self;
        lab.at(format_args!(
            "laying down {} entries in {levels} levels, {}",
            items.count,
            name(self.allocation)
        ));
        let shape = Shape { size_ratio: SIZE_RATIO, levels, inner_runs: 1, last_runs: 1 };
        let bits = Bits {
            allocation: if self.allocation == Allocation::Uniform {
                Allocation::Uniform
            } else {
                Allocation::Monkey
            },
            per_key: self.design.bits_per_key,
            layout: FilterLayout::Blocked,
            empty_fraction: 1.0,
        };
        let layers = Layers::new(items.count, items.seed, shape, bits)?;
        layers.lay(&|| Ok(self.builder(self.world())), &|item| items.pair(item))
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
            .filter_layout(FilterLayout::Blocked)
            .filter_residency(Residency::Pinned)
            .filter_allocation(self.allocation)
            .file_size(file_bytes(self.design.buffer_bytes, self.items.entry_bytes))
            .digest_seed(self.items.seed)
            .background_threads(1)
            .no_wal(true)
            .info_log(false)
    }

    /// Opens it for reading and writing.
    ///
    /// # Errors
    /// What the engine says.
    pub fn open(&self, device: Device) -> Result<Db, String> {
        let world = device.env(&self.files, self.memory_read)?;
        self.builder(world).open().map_err(|error| error.chain().to_string())
    }

    /// Lets it see so many queries, and writes every filter again with the bits that it deserves then, all together as many as were asked for.
    ///
    /// # Errors
    /// What the engine says, and a wrong answer.
    pub fn learn(&self, queries: Queries, count: u64) -> Result<(), String> {
        let db = self.open(Device::Memory)?;
        self.ask(&db, queries, count, self.items.seed ^ 11)?;
        db.close().map_err(|error| error.chain().to_string())?;
        refit_to(self.design.bits_per_key, &|| self.builder(self.world())).map(drop)
    }

    /// So many queries; what they took, in nanoseconds. The same `seed` asks for the same.
    ///
    /// # Errors
    /// What the engine says, and a wrong answer.
    pub fn ask(&self, db: &Db, queries: Queries, count: u64, seed: u64) -> Result<u64, String> {
        let items = self.items;
        let mut picker = Picker::new(queries.distribution, items.count, seed, items.seed);
        let number = |value: &[u8]| value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let (mut ns, mut batch) = (0, Vec::new());
        let mut left = count;
        while left > 0 {
            let now = left.min(BATCH);
            batch.clear();
            for _ in 0..now {
                let item = picker.pick(items.count);
                let absent = queries.empty_fraction >= 1.0 || picker.rng().f64() < queries.empty_fraction;
                batch.push((items.key(item, absent), (!absent).then_some(item)));
            }
            let since = Instant::now();
            for (key, expected) in &batch {
                let found = db.get_with(key, number).map_err(|error| error.chain().to_string())?.flatten();
                if found != *expected {
                    return Err(format!("a wrong answer: {found:?} for the key of {expected:?}"));
                }
            }
            ns += since.elapsed().as_nanos() as u64;
            left -= now;
        }
        Ok(ns)
    }

    /// Writes items again, drawn evenly among those below `below`; what that took, in nanoseconds.
    ///
    /// # Errors
    /// What the engine says.
    pub fn update(&self, db: &Db, below: u64, count: u64, seed: u64) -> Result<u64, String> {
        let mut picker = Picker::new(Distribution::Uniform, below, seed, seed);
        let mut value = Vec::new();
        let mut ns = 0;
        for _ in 0..count {
            let item = picker.pick(below);
            self.items.value(item, &mut value);
            let key = self.items.key(item, false);
            let since = Instant::now();
            db.put(key, &value).map_err(|error| error.chain().to_string())?;
            ns += since.elapsed().as_nanos() as u64;
        }
        Ok(ns)
    }
}

/// Data blocks that queries read without need, for a query: all but one for each that found.
pub(super) fn unnecessary(stats: &shamba::Stats) -> f64 {
    let read = stats.reads.data.count + stats.cache_hits;
    read.saturating_sub(stats.found) as f64 / stats.lookups.max(1) as f64
}
