//! Trees of the papers' shapes, built directly without a fill, and opened repeatedly with different
//! options.
//!
//! Keys have any length: eight bytes that ascend with the item's number and are spread over all
//! values, then filler. An absent key follows each. Values begin with the item's number, so that an
//! answer can be checked.
//!
//! A tree is opened read-only, so that baseline and idea read the same files concurrently. Filters
//! and indexes are resident, and there is no block cache, as in the papers.
//!
//! Baseline and idea have equal memory only if their filters as written have:
//! [`rewrite_filters_to`] ensures it, for trees of any kind.
//!
//! Not here: trees filled by writes; timing ([`crate::lookups`]).

use std::path::PathBuf;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs, write_file_synced};
use shamba::{Allocation, Builder, Db, DigestKind, FilterLayout, Residency, Sizing, Stats};

use crate::device::{Device, MemoryRead, Writes};
use crate::lab::Lab;
use crate::layered::{Bits, Layers, Shape};
use crate::scale::Scale;
use shamba_workload::mix2;

/// Memory budget for building trees.
const LAY_BUDGET_BYTES: u64 = 256 << 20;
/// Memory of an open database besides filters and indexes.
const OPEN_BUDGET_BYTES: u64 = 5 << 20;
/// Approximate maximum memory of an entry's filter and index; and of a table.
const BYTES_PER_ENTRY: u64 = 12;
const BYTES_PER_TABLE: u64 = 16 << 10;
/// Bits per key that no allocation gives: filters of this size count as stale.
const STALE_BITS_PER_KEY: f64 = 40.0;
/// Tolerance of the total filter bits, as a share;
const NEAR: f64 = 0.01;
/// or the number of filter rewrites after which the result is accepted.
const REWRITES_MAX: u32 = 4;

/// Specification of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub entries: u64,
    /// At least 8.
    pub key_bytes: usize,
    /// Key and value together.
    pub entry_bytes: usize,
    pub shape: Shape,
    pub bits: Bits,
    pub file_bytes: u64,
    pub digest: DigestKind,
    /// Whether data blocks have tags of the digest.
    pub block_tags: bool,
}

impl Spec {
    /// One run per level, uniform bits in one blocked filter per table, tables of 2 MiB, the
    /// papers' hash function.
    pub fn leveled(
        entries: u64,
        (key_bytes, entry_bytes): (usize, usize),
        size_ratio: f64,
        levels: u32,
    ) -> Self {
        Self {
            entries,
            key_bytes,
            entry_bytes,
            shape: Shape { size_ratio, levels, inner_runs: 1, last_runs: 1 },
            bits: Bits {
                allocation: Allocation::Uniform,
                per_key: 10.0,
                layout: FilterLayout::Blocked,
                empty_fraction: 1.0,
            },
            file_bytes: 2 << 20,
            digest: DigestKind::Murmur64A,
            block_tags: true,
        }
    }

    /// The same with values that consist of the item's number only.
    fn with_short_values(self) -> Self {
        let shortest = self.key_bytes.max(8) + 8;
        Self { entry_bytes: self.entry_bytes.min(shortest), ..self }
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.entries * self.entry_bytes as u64
    }
}

/// A tree with its files.
#[derive(Debug)]
pub(crate) struct Tree {
    pub spec: Spec,
    layers: Layers,
    files: Arc<dyn Vfs>,
    dir: PathBuf,
    on: Device,
    memory_read: MemoryRead,
    seed: u64,
}

impl Tree {
    /// Builds a tree: in memory for real and emulated memory devices, otherwise below the
    /// laboratory's folder.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn lay(lab: &Lab<'_>, name: &str, spec: Spec, on: Device) -> Result<Self, String> {
        let spec = if lab.scale == Scale::Tiny { spec.with_short_values() } else { spec };
        lab.at(format_args!("building {} entries in {} levels", spec.entries, spec.shape.levels));
        let seed = lab.seed;
        let (files, dir): (Arc<dyn Vfs>, PathBuf) = if on.is_in_memory() {
            (Arc::new(MemFs::new()), PathBuf::from("/tree"))
        } else {
            (Env::real().vfs, lab.scratch(name)?)
        };
        let layers = Layers::new(spec.entries, seed, spec.shape, spec.bits)?;
        let tree = Self { spec, layers, files, dir, on, memory_read: lab.memory_read, seed };
        let builder = || {
            Ok(tree.builder(tree.world()).memory_budget(LAY_BUDGET_BYTES).experimental(|e| e.no_wal(true)))
        };
        tree.layers.lay(&builder, &|item| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            tree.key(item, false, &mut key);
            tree.value(item, &mut value);
            (key, value)
        })?;
        Ok(tree)
    }

    fn world(&self) -> Env {
        Env { vfs: Arc::clone(&self.files), ..Env::real() }
    }

    fn builder(&self, world: Env) -> Builder {
        Db::builder(&self.dir)
            .env(world)
            .experimental(|e| {
                e.sizing(Sizing::Manual)
                    .filter_layout(self.spec.bits.layout)
                    .file_size(self.spec.file_bytes)
                    .digest(self.spec.digest)
                    .block_tags(self.spec.block_tags)
                    .digest_seed(self.seed)
            })
            .size_ratio(self.spec.shape.size_ratio.max(2.0))
            .info_log(false)
    }

    /// Opens it on `device` for reading, with resident filters, no block cache, and these switches,
    /// (name, value) as on the command line.
    ///
    /// # Errors
    /// Errors of the engine; a device on which these files are not.
    pub fn open(&self, device: Device, switches: &[(&str, &str)]) -> Result<Db, String> {
        let tables = self.spec.bytes() / self.spec.file_bytes + self.layers.runs().len() as u64;
        let budget = OPEN_BUDGET_BYTES + self.spec.entries * BYTES_PER_ENTRY + tables * BYTES_PER_TABLE;
        self.open_within(device, budget, switches, |builder| {
            builder.experimental(|e| e.filter_residency(Residency::Pinned).cache_limit(0))
        })
    }

    /// Opens it on `device` for reading within `budget_bytes`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(
        &self,
        device: Device,
        budget_bytes: u64,
        switches: &[(&str, &str)],
        more: impl FnOnce(Builder) -> Builder,
    ) -> Result<Db, String> {
        self.open_in(device, |world| world, budget_bytes, switches, more)
    }

    /// The same with the device's environment changed by `change`: another clock, a file system
    /// that counts.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        &self,
        device: Device,
        change: impl FnOnce(Env) -> Env,
        budget_bytes: u64,
        switches: &[(&str, &str)],
        more: impl FnOnce(Builder) -> Builder,
    ) -> Result<Db, String> {
        if device.is_in_memory() != self.on.is_in_memory() {
            return Err(format!("a tree of {} is not on {}", self.on.name(), device.name()));
        }
        let world = change(device.env(&self.files, self.memory_read, Writes::Free)?);
        let builder = more(self.builder(world).memory_budget(budget_bytes).read_only(true))
            .direct_io(device == Device::Disk);
        let said = |error: shamba::Error| error.chain().to_string();
        let builder = switches
            .iter()
            .try_fold(builder, |builder, (name, value)| builder.set_option(name, value))
            .map_err(said)?;
        let db = builder.open().map_err(said)?;
        // Reads are counted from the first lookup on: filters must be in memory by then.
        db.wait_idle().map_err(said)?;
        Ok(db)
    }

    /// Opens it for writing, with ample memory, with `more` options and without earlier lookup
    /// statistics; closes it after `act`.
    ///
    /// # Errors
    /// Errors of the engine or of `act`.
    pub fn at_work(
        &self,
        more: impl FnOnce(Builder) -> Builder,
        act: impl FnOnce(&Db) -> Result<(), String>,
    ) -> Result<(), String> {
        let said = |error: shamba::Error| error.chain().to_string();
        let seen = self.dir.join("STATISTICS");
        if self.files.exists(&seen).map_err(|error| format!("{}: {error}", seen.display()))? {
            self.files.unlink(&seen).map_err(|error| format!("remove {}: {error}", seen.display()))?;
        }
        let builder = self
            .builder(self.world())
            .memory_budget(LAY_BUDGET_BYTES)
            .experimental(|e| e.auto_compaction(false));
        let db = more(builder).open().map_err(said)?;
        act(&db)?;
        db.close().map_err(said)
    }

    /// Contents of the lookup statistics file that the last open for writing left; empty if there
    /// is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn statistics(&self) -> Result<Vec<u8>, String> {
        let path = self.dir.join("STATISTICS");
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        if !self.files.exists(&path).map_err(said)? {
            return Ok(Vec::new());
        }
        let file = self.files.open_read(&path).map_err(said)?;
        let mut bytes = vec![0; file.len().map_err(said)? as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(done as u64, &mut bytes[done..]).map_err(said)? {
                0 => return Err(format!("{}: unexpected end of file", path.display())),
                read => done += read,
            }
        }
        Ok(bytes)
    }

    /// Writes the bytes of [`Self::statistics`] for the next open.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn put_statistics(&self, bytes: &[u8]) -> Result<(), String> {
        let path = self.dir.join("STATISTICS");
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        if self.files.exists(&path).map_err(said)? {
            self.files.unlink(&path).map_err(said)?;
        }
        if bytes.is_empty() {
            Ok(())
        } else {
            write_file_synced(self.files.as_ref(), &path, bytes).map_err(said)
        }
    }

    /// Items in runs of `level`, the first `most` of them.
    pub fn items_of(&self, level: u32, most: usize) -> Vec<u64> {
        let is_there = |item: &u64| self.layers.runs()[self.layers.run_of(*item)].level == level;
        (0..self.spec.entries).filter(is_there).take(most).collect()
    }

    /// The key of an item, or the absent one after it.
    pub fn key(&self, item: u64, absent: bool, key: &mut Vec<u8>) {
        let number = 2 * item + u64::from(absent);
        key.clear();
        key.extend_from_slice(&(number * (u64::MAX / (2 * self.spec.entries))).to_be_bytes());
        let mut word = number;
        while key.len() < self.spec.key_bytes {
            word = mix2(word, self.seed);
            key.extend_from_slice(&word.to_le_bytes());
        }
        key.truncate(self.spec.key_bytes.max(8));
    }

    fn value(&self, item: u64, value: &mut Vec<u8>) {
        let bytes = self.spec.entry_bytes.saturating_sub(self.spec.key_bytes).max(8);
        value.clear();
        value.extend_from_slice(&item.to_le_bytes());
        let mut word = !item;
        while value.len() < bytes {
            word = mix2(word, self.seed);
            value.extend_from_slice(&word.to_le_bytes());
        }
        value.truncate(bytes);
    }

    /// Removes its files.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn discard(self, lab: &Lab<'_>) -> Result<(), String> {
        if self.on.is_in_memory() { Ok(()) } else { lab.discard(&self.dir) }
    }
}

/// Filter bits per key as they were written, over the whole tree.
pub(crate) fn written_bits_per_key(stats: &Stats) -> f64 {
    let (bits, entries) = stats.levels.iter().fold((0.0, 0), |(bits, entries), level| {
        (bits + level.bits_per_key * level.entries as f64, entries + level.entries)
    });
    bits / entries.max(1) as f64
}

/// Rewrites all filters of a tree with the bits that the allocation of `builder` gives them, until
/// the mean over the tree is `wanted` bits per key; returns the actual mean. Nothing is compacted.
///
/// A filter rewrite skips tables whose filters are nearly right, so the mean could exceed the
/// wanted one. Therefore all filters are first rewritten with a far larger size, so that none is
/// skipped. The mean still differs by some percent from the requested one: the request is adjusted
/// until the mean is right.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn rewrite_filters_to(wanted: f64, builder: &dyn Fn() -> Builder) -> Result<f64, String> {
    let rewrite_filters = |builder: Builder, bits_per_key: f64| {
        let db = builder.experimental(|e| e.auto_compaction(false)).bits_per_key(bits_per_key).open()?;
        db.rewrite_filters()?;
        let written = written_bits_per_key(&db.stats());
        db.close()?;
        Ok(written)
    };
    let said = |error: shamba::Error| error.chain().to_string();
    let written_for = |asked: f64| {
        rewrite_filters(
            builder().experimental(|e| e.filter_allocation(Allocation::Uniform)),
            STALE_BITS_PER_KEY,
        )
        .map_err(said)?;
        rewrite_filters(builder(), asked).map_err(said)
    };
    let is_off = |written: f64| (written / wanted - 1.0).abs();
    let (mut asked, mut written) = (wanted, written_for(wanted)?);
    let mut nearest = (asked, written);
    for _ in 1..REWRITES_MAX {
        if written <= 0.0 || is_off(written) <= NEAR {
            break;
        }
        asked *= wanted / written;
        written = written_for(asked)?;
        if is_off(written) < is_off(nearest.1) {
            nearest = (asked, written);
        }
    }
    if is_off(nearest.1) < is_off(written) { written_for(nearest.0) } else { Ok(written) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_fourteen_levels_holds_its_entries() {
        let scratch = tempfile::tempdir().expect("a directory");
        let told = std::cell::Cell::new(0);
        let progress = |_: &str| told.set(told.get() + 1);
        let lab = Lab::new(scratch.path().to_path_buf(), Scale::Quick, 1, &progress);
        for on in [Device::Memory, Device::PageCache] {
            let spec = Spec { file_bytes: 64 << 10, ..Spec::leveled(20_000, (40, 64), 2.0, 14) };
            let tree = Tree::lay(&lab, "fourteen", spec, on).expect("laid down");
            let shared = tree.open(on, &[]).expect("open");
            let unshared = tree.open(on, &[("hash-sharing", "off")]).expect("open beside it");
            assert_eq!((shared.stats().deepest_level, shared.stats().runs), (14, 14));
            let mut key = Vec::new();
            for item in (0..20_000).step_by(37) {
                tree.key(item, false, &mut key);
                assert_eq!(key.len(), 40);
                for db in [&shared, &unshared] {
                    let value = db.get(&key).expect("read").expect("there");
                    assert_eq!((value[..8].to_vec(), value.len()), (item.to_le_bytes().to_vec(), 24));
                }
                tree.key(item, true, &mut key);
                assert!(shared.get(&key).expect("read").is_none());
            }
            let deep = tree.items_of(14, 10);
            assert!(deep.len() == 10 && tree.items_of(15, 1).is_empty());
            drop((shared, unshared));
            tree.discard(&lab).expect("gone");
        }
        assert!(told.get() > 0);
    }
}
