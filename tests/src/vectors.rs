//! Option vectors: many configurations of the same engine, with limits so small that all mechanisms
//! run soon.
//!
//! Vector `i` of a seed never changes. Some options cycle with the number (policy, digest kind,
//! compression), so that any run of 24 vectors has each of them; the others are random.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use shamba::env::Env;
use shamba::{
    Allocation, Builder, Compression, Design, DigestKind, Durability, Fifo, FilterLayout, MergePolicy,
    Modules, Prefix, Residency, Sizing, Skipping, TreeDesign, ValueThreshold,
};

use crate::fifo;
use crate::filters::ruled;
use crate::operators::appending;
use crate::ops::Redesign;
use crate::oracle::SPACES;
use crate::seed::mixed;

/// The merge policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One of the three policies.
    Named(MergePolicy),
    /// K runs on inner levels, Z on the last.
    Fluid {
        /// K.
        inner: u32,
        /// Z.
        last: u32,
    },
}

/// A setting of all options.
#[derive(Clone, Debug)]
pub struct Vector {
    /// K and Z.
    pub shape: Shape,
    /// The source of level capacities.
    pub sizing: Sizing,
    /// T.
    pub size_ratio: f64,
    /// Memtable size in bytes.
    pub write_buffer: u64,
    /// Block size in bytes.
    pub block_bytes: usize,
    /// Table size in bytes.
    pub file_size: u64,
    /// Filter bits per key.
    pub bits_per_key: f64,
    /// One for all levels, or one for each level.
    pub compression: Vec<Compression>,
    /// Length of zstd's dictionaries; 0: there are none.
    pub dictionary_bytes: usize,
    /// Fixed at creation.
    pub digest: DigestKind,
    /// Fixed at creation.
    pub digest_seed: u64,
    /// Whether a lookup computes one hash.
    pub hash_sharing: bool,
    /// Whether filters are prefetched before they are probed.
    pub prefetch: bool,
    /// Family of the filters, and their modules.
    pub filter_layout: FilterLayout,
    /// Residency of filters and indexes.
    pub residency: Residency,
    /// The modules that may be skipped.
    pub skipping: Skipping,
    /// Maximum memory of filters and indexes.
    pub resident_limit: Option<u64>,
    /// Durability of commits without one of their own.
    pub durability: Durability,
    /// Whether there is no log.
    pub no_wal: bool,
    /// Bytes of log that force a flush.
    pub max_wal_bytes: Option<u64>,
    /// Slowdown and stop thresholds of level 0.
    pub l0: Option<(u32, u32)>,
    /// Maximum number of sealed memtables that await their flush.
    pub immutable: Option<u32>,
    /// Minimum size of values that are cut into chunks, and the chunk size.
    pub large_values: Option<(usize, usize)>,
    /// Minimum size of values in value files; `None` without any.
    pub value_threshold: Option<u32>,
    /// Maximum space of value files, in multiples of the live data.
    pub value_space: f64,
    /// Memory budget; `None` for the engine's default.
    pub memory_budget: Option<u64>,
    /// Memory of the record cache; 0 without one, `None` for a share.
    pub record_cache: Option<u64>,
    /// Allocation of filter bits to levels.
    pub allocation: Allocation,
    /// Whether data blocks have tags.
    pub block_tags: bool,
    /// Whether memtable keys are found by digest.
    pub memtable_index: bool,
    /// Whether lookup statistics are kept.
    pub statistics: bool,
    /// Maximum age of tombstones in milliseconds.
    pub tombstone_age_max_ms: Option<u64>,
    /// Whether the merge operator combines operands. Fixed at creation.
    pub combines: bool,
    /// Whether all keyspaces have the compaction filter of [`crate::filters`]. Only where the
    /// oracle follows it.
    pub is_filtered: bool,
    /// The limits of the FIFO keyspace of [`crate::fifo`], if there is one. Only where the oracle
    /// follows it.
    pub fifo: Option<Fifo>,
    /// Whether the run keeps logs and has a replica, which takes what is durable or also what is
    /// not.
    pub follows_unsynced: Option<bool>,
    /// The prefix extractor of all keyspaces.
    pub prefix: Option<Prefix>,
    /// Options that the last keyspace has for itself.
    pub own_options: OwnOptions,
}

/// Names and values of options.
pub type OwnOptions = Vec<(&'static str, &'static str)>;

const POLICIES: [MergePolicy; 3] = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
/// The smallest threshold: a third of the values are at least as long.
pub const THRESHOLD_BYTES: u32 = 64;

/// The minimum of a memory budget: it makes an open fastest, and suites open thousands of disks.
pub const BUDGET_BYTES: u64 = 4 << 20;
/// Bytes of logs that are kept for a replica: those of any run.
const KEPT_BYTES: u64 = 1 << 30;
const KINDS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

impl Vector {
    /// A plain vector: the policy, T = 3 (at 2 all three policies are equal), a write buffer of 1
    /// KiB, manual sizing as in the papers, which compacts most often, and user defaults otherwise.
    pub fn plain(policy: MergePolicy) -> Self {
        Self {
            shape: Shape::Named(policy),
            sizing: Sizing::Manual,
            size_ratio: 3.0,
            write_buffer: 1 << 10,
            block_bytes: 512,
            file_size: 8 << 10,
            bits_per_key: 10.0,
            compression: vec![Compression::None],
            dictionary_bytes: 0,
            digest: DigestKind::Xxh3,
            digest_seed: 7,
            hash_sharing: true,
            prefetch: true,
            filter_layout: FilterLayout::Blocked,
            residency: Residency::Budgeted,
            skipping: Skipping::Full,
            resident_limit: None,
            durability: Durability::NoSync,
            no_wal: false,
            max_wal_bytes: None,
            l0: None,
            immutable: None,
            large_values: None,
            value_threshold: None,
            value_space: 1.25,
            memory_budget: Some(BUDGET_BYTES),
            record_cache: Some(0),
            allocation: Allocation::Monkey,
            block_tags: true,
            memtable_index: true,
            statistics: true,
            tombstone_age_max_ms: None,
            combines: true,
            is_filtered: false,
            fifo: None,
            follows_unsynced: None,
            prefix: None,
            own_options: Vec::new(),
        }
    }

    /// Vector number `index` of a seed.
    pub fn numbered(seed: u64, index: usize) -> Self {
        let mut rng = Rng::with_seed(mixed(seed, index as u64));
        let policy = POLICIES[index % 3];
        let shape = match index % 8 {
            7 => Shape::Fluid { inner: rng.u32(1..6), last: rng.u32(1..5) },
            _ => Shape::Named(policy),
        };
        let size_ratio = match rng.u8(..4) {
            // At 2 all three policies are equal.
            0 => 2.0,
            1 | 2 => 2.0 + rng.f64() * 2.0,
            _ => f64::from(rng.u8(2..=10)),
        };
        // Without a log no other durability can be promised.
        let no_wal = index % 16 == 13;
        let durability = match index % 12 {
            _ if no_wal => Durability::NoSync,
            0..=7 => Durability::NoSync,
            8 => Durability::Sync,
            9 => Durability::Interval { ms: 10, bytes: 4096 },
            _ => Durability::Buffered,
        };
        let compression = match rng.u8(..4) {
            0 => vec![Compression::None, Compression::Lz4, Compression::Zstd],
            _ => vec![KINDS[(index / 9) % 3]],
        };
        let digest = match index % 5 {
            // The four-bit kind makes every collision path run.
            4 => DigestKind::TestFourBit,
            _ => DigestKind::ALL[(index / 5) % DigestKind::ALL.len()],
        };
        Self {
            shape,
            sizing: Sizing::ALL[index / 3 % 2],
            size_ratio,
            write_buffer: *pick(&mut rng, &[1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10]),
            block_bytes: *pick(&mut rng, &[256, 512, 1024, 4096]),
            // A table's header takes a page: the smallest size makes tables of one entry.
            file_size: *pick(&mut rng, &[1 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 32 << 10]),
            bits_per_key: *pick(&mut rng, &[0.0, 1.0, 2.5, 5.0, 10.0, 10.0, 12.0]),
            compression,
            // Tables are small.
            dictionary_bytes: [256, 0, 512][index % 3],
            digest,
            digest_seed: rng.u64(..),
            hash_sharing: rng.u8(..4) != 0,
            prefetch: rng.u8(..4) != 0,
            durability,
            no_wal,
            max_wal_bytes: (rng.u8(..4) == 0).then(|| rng.u64(4 << 10..64 << 10)),
            l0: (rng.u8(..3) == 0).then(|| (rng.u32(2..5), rng.u32(5..12))),
            immutable: (rng.u8(..3) == 0).then(|| rng.u32(1..4)),
            large_values: [None, Some((30, 64)), Some((100, 100)), Some((1, 200)), None][index % 5],
            // Not by `index % 3`: all of these vectors would have one policy.
            value_threshold: (index / 3 % 3 == 1).then_some(THRESHOLD_BYTES),
            value_space: [1.25, 1.1][index / 9 % 2],
            filter_layout: *pick(&mut rng, &every_layout()),
            residency: Residency::ALL[index / 2 % 3],
            skipping: *pick(&mut rng, &Skipping::ALL),
            // Tables of this size have filters of a few lines: often some of them are resident,
            // rarely all.
            resident_limit: (rng.u8(..2) == 0).then(|| rng.u64(..4 << 10)),
            // The minimum, somewhat more, and the default.
            memory_budget: [None, Some(4 << 20), Some(7 << 20), None, Some(16 << 20)][index / 4 % 5],
            // The smallest that holds records, which soon drops some, and one that seldom does.
            record_cache: [Some(0), Some(64 << 10), Some(400 << 10), None][index % 4],
            allocation: Allocation::ALL[index / 2 % Allocation::ALL.len()],
            block_tags: index % 7 != 3,
            memtable_index: index % 11 != 5,
            statistics: index % 9 != 4,
            // A flush in the runner takes a millisecond.
            tombstone_age_max_ms: [None, Some(1), None, Some(10)][index / 2 % 4],
            combines: rng.bool(),
            is_filtered: false,
            fifo: None,
            follows_unsynced: None,
            prefix: random_prefix(&mut rng),
            own_options: random_options(&mut rng),
        }
    }

    /// The builder that opens a database with these options.
    pub fn builder(&self, path: &Path, env: &Env) -> Builder {
        let builder = self.builder_without_operators(path, env);
        SPACES.iter().fold(builder, |builder, space| {
            let own = if Some(space) == SPACES.last() { &self.own_options[..] } else { &[] };
            let options = match self.fifo {
                Some(limits) if *space == SPACES[fifo::SPACE] => fifo::options(limits),
                _ => appending(self.combines),
            };
            let options = if self.is_filtered { ruled(options) } else { options };
            let options = match self.prefix {
                Some(prefix) => options.prefix(prefix),
                None => options.without_prefix(),
            };
            let options = own.iter().fold(options, |options, (name, value)| {
                options.set_option(name, value).expect("an option of a keyspace")
            });
            builder.keyspace(space, options)
        })
    }

    /// [`Self::builder`] without options of keyspaces: a keyspace has those that it records. The
    /// code of merge operators is given.
    pub fn builder_of_records(&self, path: &Path, env: &Env) -> Builder {
        let builder = self.builder_without_operators(path, env);
        SPACES.iter().fold(builder, |builder, space| builder.keyspace(space, appending(self.combines)))
    }

    /// [`Self::builder`] without the code of merge operators.
    pub fn builder_without_operators(&self, path: &Path, env: &Env) -> Builder {
        let mut builder = shamba::Db::builder(path)
            .env(env.clone())
            .info_log(false)
            .experimental(|e| e.sizing(self.sizing).block_bytes(self.block_bytes).file_size(self.file_size))
            .size_ratio(self.size_ratio)
            .experimental(|e| {
                let threshold = self.value_threshold.map_or(ValueThreshold::Off, ValueThreshold::Bytes);
                e.value_threshold(threshold).value_space(self.value_space)
            })
            .write_buffer(self.write_buffer)
            .bits_per_key(self.bits_per_key)
            .experimental(|e| {
                e.digest(self.digest)
                    .digest_seed(self.digest_seed)
                    .hash_sharing(self.hash_sharing)
                    .prefetch(self.prefetch)
                    .filter_layout(self.filter_layout)
                    .filter_residency(self.residency)
                    .module_skipping(self.skipping)
                    .filter_allocation(self.allocation)
                    .block_tags(self.block_tags)
                    .memtable_index(self.memtable_index)
                    .statistics(self.statistics)
                    .no_wal(self.no_wal)
                    .record_cache(self.record_cache)
            })
            .durability(self.durability);
        builder = match self.shape {
            Shape::Named(policy) => builder.merge_policy(policy),
            Shape::Fluid { inner, last } => builder.experimental(|e| e.inner_runs(inner).last_runs(last)),
        };
        builder = builder
            .compression(self.compression.clone())
            .experimental(|e| e.compression_dictionary(self.dictionary_bytes));
        if let Some(bytes) = self.memory_budget {
            builder = builder.memory_budget(bytes);
        }
        if let Some(bytes) = self.resident_limit {
            builder = builder.experimental(|e| e.resident_limit(bytes));
        }
        if self.follows_unsynced.is_some() {
            builder = builder.keep_log(KEPT_BYTES, Duration::from_secs(1 << 30));
        }
        if let Some(bytes) = self.max_wal_bytes {
            builder = builder.experimental(|e| e.max_wal_bytes(bytes));
        }
        if let Some((soft, hard)) = self.l0 {
            builder = builder.experimental(|e| e.l0_slowdown_runs(soft).l0_stop_runs(hard));
        }
        if let Some((from_bytes, chunk_bytes)) = self.large_values {
            builder = builder.experimental(|e| e.large_values(from_bytes, chunk_bytes));
        }
        if let Some(ms) = self.tombstone_age_max_ms {
            builder = builder.tombstone_age_max(Duration::from_millis(ms));
        }
        if let Some(count) = self.immutable {
            builder = builder.experimental(|e| e.max_immutable_memtables(count));
        }
        builder
    }

    /// Adopts another vector's options, except those that are fixed at creation and those that
    /// define an acknowledgement.
    pub fn adopt(&mut self, other: Self) {
        let kept = self.clone();
        *self = Self {
            digest: kept.digest,
            digest_seed: kept.digest_seed,
            durability: kept.durability,
            no_wal: kept.no_wal,
            combines: kept.combines,
            is_filtered: kept.is_filtered,
            fifo: kept.fifo,
            follows_unsynced: kept.follows_unsynced,
            ..other
        };
    }

    /// Adopts a design that the live database has moved to; returns it in the database's type.
    pub fn redesign(&mut self, target: &Redesign) -> TreeDesign {
        self.shape = target.shape;
        self.size_ratio = f64::from(target.size_ratio_tenths) / 10.0;
        self.write_buffer = target.write_buffer;
        self.bits_per_key = f64::from(target.bits_tenths) / 10.0;
        self.allocation = target.allocation;
        let (inner_runs, last_runs) = match self.shape {
            Shape::Named(policy) => policy.runs(self.size_ratio),
            Shape::Fluid { inner, last } => (inner, last),
        };
        TreeDesign {
            design: Design {
                size_ratio: self.size_ratio,
                inner_runs,
                last_runs,
                buffer_bytes: self.write_buffer,
                bits_per_key: self.bits_per_key,
            },
            filter_memory_bytes: target.filter_memory,
            allocation: target.allocation,
        }
    }

    /// The name under which compactions are counted.
    pub fn policy_name(&self) -> &'static str {
        match self.shape {
            Shape::Named(MergePolicy::Leveling) => "leveling",
            Shape::Named(MergePolicy::Tiering) => "tiering",
            Shape::Named(_) => "lazy-leveling",
            Shape::Fluid { .. } => "other (K, Z)",
        }
    }

    /// Whether an acknowledged write survives a kill of the process.
    pub fn survives_kill(&self) -> bool {
        !self.no_wal && self.durability != Durability::Buffered
    }
}

/// Each option of its own in half of the vectors. The others are given too, so that an open does
/// not keep those of an earlier one.
fn random_options(rng: &mut Rng) -> OwnOptions {
    let all: [(&str, &[&str]); 8] = [
        ("compression", &["none", "lz4", "zstd,none", "database"]),
        ("bits-per-key", &["0", "6.5", "14", "database"]),
        ("block-size", &["256", "4096", "database"]),
        ("file-size", &["1024", "16384", "database"]),
        ("policy", &["leveling", "tiering", "lazy-leveling", "database"]),
        ("value-threshold", &["off", "64", "200", "auto", "database"]),
        ("value-space", &["1.1", "2", "database"]),
        ("compression-dictionary", &["0", "256", "1024", "database"]),
    ];
    all.map(|(name, values)| (name, if rng.bool() { *pick(rng, values) } else { "database" })).to_vec()
}

/// An extractor, three times in four, whose prefixes are parts of the paths of [`crate::ops`].
fn random_prefix(rng: &mut Rng) -> Option<Prefix> {
    let bytes = rng.u16(1..12);
    match rng.u8(..4) {
        0 => None,
        1 => Some(Prefix::Fixed(bytes)),
        2 => Some(Prefix::Capped(bytes)),
        _ => Some(Prefix::Delimited(*pick(rng, b"/-05"))),
    }
}

/// Every family, one to seven modules, equal and proportional.
pub fn every_layout() -> Vec<FilterLayout> {
    let names = [
        "blocked",
        "standard",
        "standard-double",
        "modular:2:200",
        "modular:3:100",
        "modular:7:500",
        "ribbon",
        "ribbon:2:300",
        "ribbon:3",
    ];
    let named = names.iter().filter_map(|name| name.parse().ok());
    named.chain((1..=7).filter_map(Modules::equal).map(FilterLayout::Modular)).collect()
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_of_vectors_has_every_kind() {
        let vectors = (0..35).map(|index| Vector::numbered(1, index)).collect::<Vec<_>>();
        for (policy, sizing) in POLICIES.into_iter().flat_map(|policy| Sizing::ALL.map(|s| (policy, s))) {
            let shape = Shape::Named(policy);
            assert!(vectors.iter().any(|vector| (vector.shape, vector.sizing) == (shape, sizing)));
        }
        for kind in DigestKind::ALL {
            assert!(vectors.iter().any(|vector| vector.digest == kind), "{kind}");
        }
        assert!(vectors.iter().any(|vector| vector.no_wal));
        assert!(
            [true, false].map(|combines| vectors.iter().any(|vector| vector.combines == combines))
                == [true; 2]
        );
        assert!(vectors.iter().any(|vector| vector.compression.len() > 1));
        for policy in POLICIES {
            let separated = |vector: &Vector| vector.value_threshold.is_some();
            assert!(vectors.iter().any(|v| v.shape == Shape::Named(policy) && separated(v)), "{policy:?}");
        }
        assert!(vectors.iter().any(|vector| vector.memory_budget == Some(4 << 20)));
        for allocation in Allocation::ALL {
            assert!(vectors.iter().any(|vector| vector.allocation == allocation), "{allocation}");
        }
    }
}
