//! Trees of any design that take writes: laid down full, then written to.
//!
//! What it costs depends on how many runs there are just then; so a tree lives on for a while, and is looked at several times.
//!
//! Which runs there are just then is chance, and differs by more between two trees of a design than one allocation of filter bits spares
//! another. So all sides read one tree: each time its filters are written again for each side in turn, as many bits for each
//! ([`refit_to`]), and nothing else changes.
//!
//! Keys come by number; those laid down are the even ones, those inserted later the odd ones, each once and in random order: so the
//! tree grows, as under the paper's inserts into a much larger domain of keys. Absent keys lie behind each.
//!
//! There is no block cache and no log; filters and indexes are held; one thread merges. Tables are two write buffers long, but at
//! least 512 entries and 128 KiB: the smallest filter has 64 bytes, which for a table of a few entries would be many more bits than were asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shamba::env::{Env, MemFs, SlowFs, Vfs};
use shamba::{Builder, Db, Design, Residency, Sizing, Stats};
use shamba_model::monkey::levels_closed;

use super::setup::Filters;
use crate::device::MemoryRead;
use crate::items::Items;
use crate::layered::{Layers, Shape};
use crate::tree::{refit_to, written_bits_per_key};
use crate::{Device, Lab};
use shamba_workload::Permutation;
use shamba_workload::{Distribution, Picker};

const TREE: &str = "/tree";
/// No table is cut shorter than this, nor than so many entries.
const FILE_BYTES_LEAST: u64 = 128 << 10;
const FILE_ENTRIES_LEAST: u64 = 512;
/// Enough for filters, indexes and merges: nothing of it caches blocks.
const BUDGET_BYTES: u64 = 64 << 20;
/// Entries of a short range, whatever the number of entries.
const RANGE_ENTRIES_LEAST: u64 = 10;
pub(super) const PAGE_BYTES: u64 = 4_096;

/// A tree in memory, and what tells its keys.
pub(super) struct Grown {
    pub design: Design,
    pub levels: u32,
    /// Whose filters it has now.
    filters: Filters,
    entries: u64,
    inserted: u64,
    items: Items,
    files: Arc<dyn Vfs>,
    memory_read: MemoryRead,
}

/// What a tree goes through, several times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub inserts: u64,
    /// Where lookups and ranges are timed.
    pub device: Device,
    pub lookups: u64,
    pub ranges: u64,
    /// Lookups of which I/Os are counted, each time.
    pub lookups_counted: u64,
}

/// What inserts took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserts {
    /// Microseconds of an insert, what it costs flushes and merges included.
    pub us: f64,
    /// Pages that flushes and merges read and wrote for an insert.
    pub pages: f64,
}

/// What came of a life.
#[derive(Clone, Debug)]
pub(super) struct Lived {
    /// Of an insert, each time; the same whosever filters were read between.
    pub update_pages: Vec<f64>,
    /// What reads took, in the order of the sides.
    pub sides: Vec<Reads>,
}

/// What reads took with the filters of one side.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    pub filters: Filters,
    /// Microseconds of a lookup that finds nothing, each time.
    pub lookup_us: Vec<f64>,
    pub range_us: Vec<f64>,
    lookups: u64,
    ios: u64,
    pub levels: u32,
    /// The most that there were.
    pub runs: u64,
    pub bits_per_key: f64,
}

impl Reads {
    fn with(filters: Filters) -> Self {
        let none = Vec::new;
        Self {
            filters,
            lookup_us: none(),
            range_us: none(),
            lookups: 0,
            ios: 0,
            levels: 0,
            runs: 0,
            bits_per_key: 0.0,
        }
    }

    /// Blocks that a lookup read.
    pub fn ios(&self) -> f64 {
        self.ios as f64 / self.lookups.max(1) as f64
    }
}

/// What a tree is without its filters: runs and entries of each level.
type Runs = Vec<(u32, u64, u64)>;

fn runs(stats: &Stats) -> Runs {
    stats.levels.iter().map(|level| (level.level, level.runs, level.entries)).collect()
}

impl Grown {
    /// Lays a tree of these entries down, (how many, bytes of each), in the shape of the design.
    ///
    /// # Errors
    /// What the engine says.
    pub fn lay(
        lab: &mut Lab<'_>,
        design: Design,
        (entries, entry_bytes): (u64, u64),
    ) -> Result<Self, String> {
        lab.at(format_args!("laying down {design}"));
        let items = Items { count: 2 * entries, entry_bytes, seed: lab.seed };
        let bytes = (entries * entry_bytes) as f64;
        let levels = levels_closed(bytes, design.buffer_bytes, design.size_ratio)?;
        let (inner_runs, last_runs) = (design.inner_runs, design.last_runs);
        let shape = Shape { size_ratio: design.size_ratio, levels, inner_runs, last_runs };
        let filters = Filters::Uniform;
        let layers = Layers::new(entries, lab.seed, shape, filters.bits(design.bits_per_key, 1.0))?;
        let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let memory_read = lab.memory_read;
        let tree = Self { design, filters, levels, entries, inserted: 0, items, files, memory_read };
        layers.lay(&|| Ok(tree.builder(tree.world())), &|item| items.pair(2 * item))?;
        Ok(tree)
    }

    fn world(&self) -> Env {
        Env { vfs: Arc::clone(&self.files), ..Env::real() }
    }

    fn file_bytes(&self) -> u64 {
        let least = FILE_BYTES_LEAST.max(FILE_ENTRIES_LEAST * self.items.entry_bytes);
        least.max(2 * self.design.buffer_bytes)
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
            .file_size(self.file_bytes())
            .digest_seed(self.items.seed)
            .background_threads(1)
            .no_wal(true)
            .info_log(false)
    }

    /// Opens it for writing; on a device, each read and each write of a file takes its time.
    fn open(&self, device: Option<Device>) -> Result<Db, String> {
        let mut world = self.world();
        if let Some(ns) = device.and_then(Device::read_ns) {
            world.vfs = Arc::new(SlowFs::new(world.vfs, Arc::clone(&world.clock), ns, ns));
        }
        self.builder(world).open().map_err(|error| error.chain().to_string())
    }

    /// Opens it for reading on a device.
    fn open_to_read(&self, device: Device) -> Result<Db, String> {
        let world = device.env(&self.files, self.memory_read)?;
        self.builder(world).read_only(true).open().map_err(|error| error.chain().to_string())
    }

    /// Inserts `count` keys more.
    fn put(&mut self, db: &Db, count: u64) -> Result<(), String> {
        let order = Permutation::new(self.entries, self.items.seed);
        let mut value = Vec::new();
        for number in self.inserted..self.inserted + count {
            let item = 2 * order.at(number % self.entries) + 1;
            self.items.value(item, &mut value);
            db.put(self.items.key(item, false), &value).map_err(|error| error.chain().to_string())?;
        }
        self.inserted += count;
        Ok(())
    }

    /// Inserts `count` keys more and merges to rest; on a device, each read and each write of a file takes its time.
    ///
    /// # Errors
    /// What the engine says.
    pub fn insert(&mut self, count: u64, device: Option<Device>) -> Result<Inserts, String> {
        let said = |error: shamba::Error| error.chain().to_string();
        let db = self.open(device)?;
        let (before, since) = (db.stats(), Instant::now());
        self.put(&db, count)?;
        db.flush().and_then(|()| db.wait_idle()).map_err(said)?;
        let us = us_each(since.elapsed().as_nanos() as u64, count);
        let stats = db.stats().since(&before);
        db.close().map_err(said)?;
        let moved_bytes = stats.bytes_flushed + stats.bytes_merged + stats.bytes_merge_read;
        Ok(Inserts { us, pages: moved_bytes as f64 / PAGE_BYTES as f64 / count.max(1) as f64 })
    }

    /// Writes every filter again with the bits that `filters` gives it in the tree as it is, as many as the design has on every side.
    fn refit(&mut self, filters: Filters) -> Result<(), String> {
        self.filters = filters;
        refit_to(self.design.bits_per_key, &|| self.builder(self.world())).map(drop)
    }

    /// So many lookups of absent keys; what they took, in nanoseconds. The same `seed` asks for the same keys.
    ///
    /// # Errors
    /// What the engine says; a key that is found.
    fn look_up(&self, db: &Db, lookups: u64, seed: u64) -> Result<u64, String> {
        let mut picker = Picker::new(Distribution::Uniform, self.items.count, seed, seed);
        let keys: Vec<_> = (0..lookups).map(|_| self.items.key(picker.pick(0), true)).collect();
        let since = Instant::now();
        for key in &keys {
            if db.contains_key(key).map_err(|error| error.chain().to_string())? {
                return Err(format!("an absent key is found: {key:x?}"));
            }
        }
        Ok(since.elapsed().as_nanos() as u64)
    }

    /// So many ranges of a hundred-thousandth of the entries, ten at least; what they took, in nanoseconds.
    ///
    /// # Errors
    /// What the engine says; a range with other entries.
    fn walk(&self, db: &Db, ranges: u64, seed: u64) -> Result<u64, String> {
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

    /// Once for each repeat: inserts, then the same lookups and ranges with the filters of each side in turn, another side first each
    /// time.
    ///
    /// # Errors
    /// What the engine says, a wrong answer, sides that had other runs.
    pub fn live(&mut self, lab: &mut Lab<'_>, life: &Life, sides: &[Filters]) -> Result<Lived, String> {
        let sides = sides.iter().map(|filters| Reads::with(*filters)).collect();
        let mut lived = Lived { update_pages: Vec::new(), sides };
        for time in 0..lab.repeats.max(1) {
            lab.at(format_args!("{}, time {}", self.design, time + 1));
            lived.update_pages.push(self.insert(life.inserts, None)?.pages);
            let seed = lab.seed ^ u64::from(time) << 8;
            let mut first_runs = None;
            for turn in 0..lived.sides.len() {
                let at = (turn + time as usize) % lived.sides.len();
                self.refit(lived.sides[at].filters)?;
                let runs = self.read(life, seed, &mut lived.sides[at])?;
                if *first_runs.get_or_insert_with(|| runs.clone()) != runs {
                    return Err(format!(
                        "{}: a refit changed the runs: {first_runs:?}, {runs:?}",
                        self.design
                    ));
                }
            }
        }
        Ok(lived)
    }

    /// Lookups and ranges, added to `reads`; what runs they met.
    fn read(&self, life: &Life, seed: u64, reads: &mut Reads) -> Result<Runs, String> {
        let db = self.open_to_read(life.device)?;
        reads.lookup_us.push(us_each(self.look_up(&db, life.lookups, seed)?, life.lookups));
        reads.range_us.push(us_each(self.walk(&db, life.ranges, seed)?, life.ranges));
        let counted = self.open_to_read(Device::Memory)?;
        self.look_up(&counted, life.lookups_counted, seed)?;
        let stats = counted.stats();
        reads.lookups += stats.lookups;
        reads.ios += stats.reads.data.count + stats.reads.index.count + stats.reads.filter.count;
        reads.bits_per_key = written_bits_per_key(&stats);
        reads.levels = stats.deepest_level;
        reads.runs = reads.runs.max(stats.runs);
        Ok(runs(&stats))
    }
}

fn us_each(ns: u64, count: u64) -> f64 {
    ns as f64 / 1e3 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use shamba::MergePolicy;

    use super::*;
    use crate::Scale;

    #[test]
    fn both_sides_read_one_tree_and_differ_in_bits_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(scratch.path().to_path_buf(), Scale::Tiny, 5, &mut progress);
        let design = Design::new(MergePolicy::Leveling, 2.0, 2 << 10, 5.0);
        let mut tree = Grown::lay(&mut lab, design, (1 << 14, 64)).expect("laid down");
        tree.insert(1 << 12, None).expect("inserted");
        let life =
            Life { inserts: 1 << 11, device: Device::Memory, lookups: 50, ranges: 5, lookups_counted: 4_000 };
        let lived = tree.live(&mut lab, &life, &Filters::PAIR).expect("right answers");
        let [uniform, monkey] = &lived.sides[..] else { panic!("two sides") };
        assert_eq!((uniform.filters, monkey.filters), (Filters::Uniform, Filters::Zero));
        assert_eq!((uniform.runs, uniform.levels), (monkey.runs, monkey.levels));
        assert_eq!((uniform.lookups, monkey.lookups), (8_000, 8_000));
        assert_eq!((uniform.lookup_us.len(), lived.update_pages.len()), (2, 2));
        assert!(lived.update_pages.iter().all(|pages| *pages > 0.0), "{lived:?}");
        for side in [uniform, monkey] {
            assert!((side.bits_per_key - 5.0).abs() < 0.1, "{side:?}");
        }
        assert!(monkey.ios() < uniform.ios(), "{} {}", monkey.ios(), uniform.ios());
    }
}
