//! Databases that differ only in their filter bits: T = 4, one run per level, in memory or on an
//! emulated device, no block cache, no log.
//!
//! A tree is built once per seed; each side is a copy of its files with other filters
//! ([`Store::rewrite_filters`], [`Store::optimal`]), so that all sides have the same tables. The
//! paper's Mnemosyne (bits by the sizes of the actual runs) is the engine's `monkey`; its
//! Mnemosyne+ (bits by the lookups of each file) is `workload`.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs, read_file, write_file_synced};
use shamba::{Allocation, Builder, Db, Design, FilterLayout, MergePolicy, Residency, Sizing};
use shamba_filter::measured;
use shamba_model::allocation::{FilterLoad, Limits, Measured, allocate};
use shamba_workload::{Permutation, Picker};

use crate::device::{MemoryRead, Writes};
use crate::items::Items;
use crate::lookups::warm;
use crate::prelude::*;
use crate::tree::rewrite_filters_to;

pub(super) const SIZE_RATIO: f64 = 4.0;
const TREE: &str = "/tree";
const LOCK: &str = "LOCK";
const BUDGET_BYTES: u64 = 96 << 20;
const BITS_PER_KEY_MAX: f64 = 26.0;
/// Minimum entries of a table: filters consist of lines of 512 bits, and with two bits per key one
/// line must be at most some percent of the filter.
const FILE_ENTRIES_MIN: u64 = 2_048;
/// The engine's smallest write buffer.
const BUFFER_BYTES_MIN: u64 = 1 << 10;
/// Lookups from which the optimum by file takes its rates.
const DRAWS: u64 = 200_000;

/// The size of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Initial entries.
    pub entries: u64,
    pub entry_bytes: u64,
    /// Write buffers of data: the same number at every scale, so that trees have the same number of
    /// levels.
    pub buffers: u64,
}

impl Size {
    fn buffer_bytes(self) -> u64 {
        BUFFER_BYTES_MIN.max(self.entries / self.buffers * self.entry_bytes)
    }

    fn file_entries(self) -> u64 {
        FILE_ENTRIES_MIN.max(self.entries / self.buffers)
    }

    fn design(self, bits_per_key: f64) -> Design {
        Design::new(MergePolicy::Leveling, SIZE_RATIO, self.buffer_bytes(), bits_per_key)
    }

    /// Levels that `times` the entries fill.
    pub fn levels(self, times: u64) -> u32 {
        self.design(0.0).levels_for(times * self.entries * self.entry_bytes)
    }

    /// Parameters of the tree.
    pub fn parameters(self) -> [Parameter; 6] {
        [
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", self.levels(1)),
            Parameter::fixed("buffer bytes", self.buffer_bytes()),
            Parameter::fixed("file bytes", self.file_entries() * self.entry_bytes),
        ]
    }
}

/// A tree in files in memory.
pub(super) struct Store {
    pub items: Items,
    pub size: Size,
    files: Arc<dyn Vfs>,
    memory_read: MemoryRead,
}

fn said(error: shamba::Error) -> String {
    error.chain().to_string()
}

fn said_io(error: std::io::Error) -> String {
    error.to_string()
}

fn full_levels(count: u64, levels: u32) -> Vec<(u32, u64)> {
    let all: f64 = (0..levels).map(|level| SIZE_RATIO.powi(level as i32)).sum();
    let part = |level: u32| (count as f64 * SIZE_RATIO.powi(level as i32) / all) as u64;
    let mut runs: Vec<(u32, u64)> = (0..levels).map(|level| (level + 1, part(level))).collect();
    let rest = count - runs.iter().map(|(_, entries)| entries).sum::<u64>();
    if let Some(last) = runs.last_mut() {
        last.1 += rest;
    }
    runs
}

impl Store {
    fn empty(lab: &Lab<'_>, size: Size, count: u64) -> Self {
        let items = Items { count, entry_bytes: size.entry_bytes, seed: lab.seed };
        Self { items, size, files: Arc::new(MemFs::new()), memory_read: lab.memory_read }
    }

    /// Builds the tree of a size with full levels. Of the `of_each` items per entry the first is
    /// inserted.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn lay(lab: &Lab<'_>, size: Size, of_each: u64) -> Result<Self, String> {
        lab.at(format_args!("laying down {} entries", size.entries));
        let store = Self::empty(lab, size, size.entries * of_each);
        for (level, run) in store.runs(&full_levels(size.entries, size.levels(1))).iter().enumerate().rev() {
            let items = run.iter().map(|number| number * of_each);
            store.place(level as u32 + 1, BITS_PER_KEY_MAX / 2.0, items)?;
        }
        Ok(store)
    }

    /// Builds a tree of runs with these entries and bits per key, given as (level, entries, bits),
    /// of the same size.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn with_runs(lab: &Lab<'_>, size: Size, runs: &[(u32, u64, f64)]) -> Result<Self, String> {
        let entries: Vec<(u32, u64)> = runs.iter().map(|(level, entries, _)| (*level, *entries)).collect();
        let store = Self::empty(lab, size, entries.iter().map(|(_, entries)| entries).sum());
        for ((level, _, bits), run) in runs.iter().zip(store.runs(&entries)).rev() {
            store.place(*level, *bits, run.into_iter())?;
        }
        Ok(store)
    }

    /// The numbers of the entries of each run, ascending, each run spread evenly over all.
    fn runs(&self, entries: &[(u32, u64)]) -> Vec<Vec<u64>> {
        let count = entries.iter().map(|(_, entries)| entries).sum();
        let order = Permutation::new(count, self.items.seed);
        let mut from = 0;
        let run = |(_, entries): &(u32, u64)| {
            let mut run: Vec<u64> = (from..from + entries).map(|drawn| order.at(drawn)).collect();
            run.sort_unstable();
            from += entries;
            run
        };
        entries.iter().map(run).collect()
    }

    /// Adds a run of these items to a level, with these bits per key in its tables.
    fn place(&self, level: u32, bits: f64, items: impl Iterator<Item = u64>) -> Result<(), String> {
        let builder =
            self.builder(self.world(), Allocation::Uniform, bits).experimental(|e| e.auto_compaction(false));
        let db = builder.open().map_err(said)?;
        db.place(level, items.map(|item| self.items.pair(item))).map_err(said)?;
        db.close().map_err(said)
    }

    fn world(&self) -> Env {
        Env { vfs: Arc::clone(&self.files), ..Env::real() }
    }

    fn builder(&self, world: Env, allocation: Allocation, bits: f64) -> Builder {
        Db::builder(Path::new(TREE))
            .env(world)
            .memory_budget(BUDGET_BYTES)
            .experimental(|e| {
                e.cache_limit(0)
                    .design(self.size.design(bits))
                    .sizing(Sizing::Manual)
                    .filter_layout(FilterLayout::Blocked)
                    .filter_residency(Residency::Pinned)
                    .filter_allocation(allocation)
                    .file_size(self.size.file_entries() * self.size.entry_bytes)
                    .digest_seed(self.items.seed)
                    .no_wal(true)
            })
            .background_threads(1)
            .info_log(false)
    }

    /// Opens it for reading and writing; on an emulated device writes take time too.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open(&self, allocation: Allocation, bits: f64, device: Device) -> Result<Db, String> {
        let world = device.env(&self.files, self.memory_read, Writes::Priced)?;
        self.builder(world, allocation, bits).open().map_err(said)
    }

    /// Opens it for reading, in memory.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn read(&self) -> Result<Db, String> {
        self.builder(self.world(), Allocation::Uniform, 1.0).read_only(true).open().map_err(said)
    }

    /// The same tree in files of its own.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn copy(&self) -> Result<Self, String> {
        let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let dir = Path::new(TREE);
        files.create_dir_all(dir).map_err(said_io)?;
        for entry in self.files.list(dir).map_err(said_io)?.iter().filter(|entry| entry.name != LOCK) {
            let path = dir.join(&entry.name);
            let bytes = read_file(self.files.as_ref(), &path).map_err(said_io)?;
            write_file_synced(files.as_ref(), &path, &bytes).map_err(said_io)?;
        }
        Ok(Self { files, ..*self })
    }

    /// Rewrites all filters by the allocation, with this mean number of bits per key.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn rewrite_filters(self, allocation: Allocation, bits: f64) -> Result<Self, String> {
        rewrite_filters_to(bits, &|| self.builder(self.world(), allocation, bits))?;
        Ok(self)
    }

    /// Executes lookups, whose statistics the next filter rewrites use.
    ///
    /// # Errors
    /// Errors of the engine, and a wrong answer.
    pub fn learn(self, lab: &Lab<'_>, questions: &Questions) -> Result<Self, String> {
        let builder =
            self.builder(self.world(), Allocation::Workload, 10.0).experimental(|e| e.auto_compaction(false));
        let db = builder.open().map_err(said)?;
        warm(lab, (&self.items, 0), &[&db], questions)?;
        db.close().map_err(said)?;
        Ok(self)
    }

    /// The tree of [`Self::lay`] with the fewest false positives for these bits per key: the
    /// engine's rule with the exact rates of these questions, which no engine knows. Each file is a
    /// separate run with its own bits.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn optimal(&self, lab: &Lab<'_>, questions: &Questions, bits: f64) -> Result<Self, String> {
        let runs = self.runs(&full_levels(self.size.entries, self.size.levels(1)));
        let file_entries = self.size.file_entries() as usize;
        let mut probes: Vec<Vec<u64>> =
            runs.iter().map(|run| vec![0; run.len().div_ceil(file_entries)]).collect();
        let mut picker = Picker::new(questions.distribution, self.items.count, !lab.seed, lab.seed);
        for _ in 0..DRAWS {
            let item = picker.pick(self.items.count);
            let is_absent = picker.rng().f64() < questions.empty_fraction;
            for (run, probes) in runs.iter().zip(&mut probes) {
                match run.binary_search(&item) {
                    Ok(_) if !is_absent => break,
                    Ok(at) => probes[at / file_entries] += 1,
                    // A key between two files, or beyond all, probes no file.
                    Err(at) if at % file_entries == 0 || at == run.len() => {}
                    Err(at) => probes[at / file_entries] += 1,
                }
            }
        }
        let files = || runs.iter().flat_map(|run| run.chunks(file_entries));
        let load = |(file, probes): (&[u64], &u64)| FilterLoad {
            entries: file.len() as u64,
            empty_probes_per_second: *probes as f64,
        };
        let loads: Vec<FilterLoad> = files().zip(probes.iter().flatten()).map(load).collect();
        let rate = |per_key| measured::fpr(FilterLayout::Blocked, per_key);
        let curve = Measured::from_fn(rate, BITS_PER_KEY_MAX)?;
        let limits = Limits { smallest_bits_per_key: 0.0, largest_bits_per_key: BITS_PER_KEY_MAX };
        let shares = allocate(&loads, &curve, (self.size.entries as f64 * bits) as u64, limits)?;
        let store = Self::empty(lab, self.size, self.items.count);
        let levels = (1..).zip(&runs).flat_map(|(level, run)| run.chunks(file_entries).map(move |_| level));
        let placed: Vec<(u32, &[u64], u64)> =
            levels.zip(files()).zip(shares.bits).map(|((level, file), bits)| (level, file, bits)).collect();
        for (level, file, bits) in placed.into_iter().rev() {
            store.place(level, bits as f64 / file.len() as f64, file.iter().copied())?;
        }
        Ok(store)
    }
}
