//! Settings: the plain-data options of a database.
//!
//! Settings are of three kinds:
//! - *Fixed at creation*: digest kind and seed. A later open that gives another value fails with
//!   `Invalid`.
//! - *Of tree and format* ([`RECORDED_AT_CREATION`]): recorded in the manifest when the database is
//!   created.
//! - *Of an open*: budget, durability, limits, baselines.
//!
//! An option given to an open holds for that open. Recorded values change only through a redesign,
//! or through an open that asks for it ([`Settings::given_over`]). A recorded value of any kind
//! holds for opens that do not give the option: builds before version 0.1 recorded nearly every
//! option that an open was given. Some settings are *live*: they can change while the database is
//! open ([`live`]).
//!
//! Not here: parts such as the environment and the listener ([`crate::builder`]).

pub(crate) mod live;

use std::collections::BTreeMap;

use shamba_filter::{FilterLayout, Modules};
use shamba_key::DigestKind;
use shamba_model::allocation::Allocation;
use shamba_model::skip::Skipping;
use shamba_model::{Design, MergePolicy, Sizing};
use shamba_table::{CacheUnits, Compression, LargeValues, Residency};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::BUDGET_BYTES_MIN;
use crate::tuner::Tuning;

pub(crate) use self::live::{Live, LiveSettings};

/// Durability of a write at the time of its acknowledgement. See `DURABILITY.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On stable storage, together with every earlier write.
    Sync,
    /// With the operating system; synced within `ms` milliseconds or `bytes` bytes.
    Interval {
        /// Maximum time between an acknowledgement and its sync.
        ms: u64,
        /// Maximum of unsynced bytes.
        bytes: u64,
    },
    /// With the operating system: survives the process, not a power loss.
    #[default]
    NoSync,
    /// In this process's memory only, until 64 KiB have gathered or a stronger write, `sync` or
    /// `close` follows. Dropping the last handle without [`Db::close`](crate::Db::close) loses
    /// these writes, as killing the process does, and emits an
    /// [`Event::Warning`](crate::Event::Warning) with the number of bytes lost.
    Buffered,
}

impl Durability {
    /// [`Durability::Interval`] with the default byte budget of 8 MiB.
    pub fn interval_ms(ms: u64) -> Self {
        Self::Interval { ms, bytes: 8 << 20 }
    }

    fn to_text(self) -> String {
        match self {
            Self::Sync => "always".into(),
            Self::NoSync => "never".into(),
            Self::Buffered => "buffered".into(),
            Self::Interval { ms, bytes } => format!("{ms}:{bytes}"),
        }
    }

    fn from_text(text: &str) -> Result<Self> {
        let bad =
            || Error::invalid(format!("sync must be always, never, buffered or milliseconds, not {text:?}"));
        match text {
            "always" => Ok(Self::Sync),
            "never" => Ok(Self::NoSync),
            "buffered" => Ok(Self::Buffered),
            _ => match text.split_once(':') {
                Some((ms, bytes)) => Ok(Self::Interval {
                    ms: ms.parse().map_err(|_| bad())?,
                    bytes: bytes.parse().map_err(|_| bad())?,
                }),
                None => Ok(Self::interval_ms(text.parse().map_err(|_| bad())?)),
            },
        }
    }
}

/// Limits of level 0, in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level0 {
    /// A compaction of level 0 starts at this number of runs.
    pub trigger_runs: u32,
    /// Above this number of runs writers are slowed.
    pub soft_runs: u32,
    /// At this number of runs writers stop.
    pub hard_runs: u32,
}

/// Modules of a filter when the option is not given and memory may not hold whole filters.
const AUTO_MODULES: usize = 3;
/// Filters are blocked while all of them together take at most one sixth of the memory budget.
const AUTO_BLOCKED_PART: u64 = 6;
/// Minimum of the automatic table size. An open table takes 2 to 3 KiB of memory whatever its size:
/// for 10 million small entries in tables of half a megabyte that was more than half of a budget of
/// 8 MiB.
const TABLE_BYTES_MIN: u64 = 2 << 20;
/// Iterators may hold an eighth of the budget up to this size, and beyond it a thirty-second.
const ITERATOR_BYTES_ROOMY: u64 = 32 << 20;
/// Fixed memory of building a table, independent of its size.
const WORK_BYTES_MIN: u64 = 384 << 10;

/// The plain-data settings of an open database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Fixed: the digest's kind.
    pub digest: DigestKind,
    /// Fixed: the digest's seed; 0 until the database is created or its manifest is read.
    pub digest_seed: u64,
    /// Recorded, and can change while the database is open: the design, and the plan of its
    /// filters.
    pub live: Live,
    /// Recorded: compression by level (index 0 = level 0; the last entry serves deeper levels).
    pub compression: Vec<Compression>,
    /// Recorded: the memory budget, from which the cache and many defaults are derived.
    pub memory_budget_bytes: u64,
    /// Recorded: target size of tables; `None`: a sixteenth of the budget, from 2 to 64 MiB.
    pub file_bytes: Option<u64>,
    /// Recorded: maximum size of a data block.
    pub block_bytes: usize,
    /// Recorded: the default durability of writes.
    pub durability: Durability,
    /// Recorded: one digest for the whole lookup (`true`), or one hash per consulted filter (the
    /// baseline).
    pub hash_sharing: bool,
    /// Recorded: prefetch all filter lines before testing the first filter.
    pub prefetch: bool,
    /// Recorded: data blocks are written with tags, by which lookups find entries in them.
    pub block_tags: bool,
    /// Recorded: the filter family and its modules; `None`: chosen by the memory budget.
    pub filter_layout: Option<FilterLayout>,
    /// Recorded: how filters and index partitions are held in memory.
    pub filter_residency: Residency,
    /// Recorded: which modules of a filter a lookup may skip.
    pub module_skipping: Skipping,
    /// Recorded: memtables answer lookups by their digest index (`true`), or by their key order
    /// (the baseline).
    pub memtable_index: bool,
    /// Recorded: one lookup and one seek in 64 are sampled for statistics.
    pub statistics: bool,
    /// Recorded: self-tuning of the design.
    pub tuning: Tuning,
    /// Recorded: how level capacities are derived.
    pub sizing: Sizing,
    /// Recorded: level-0 runs above which writers are slowed; `None`: by the sizing.
    pub l0_slowdown_runs: Option<u32>,
    /// Recorded: level-0 runs at which writers stop; `None`: by the sizing.
    pub l0_stop_runs: Option<u32>,
    /// Recorded: level-0 runs at which they are compacted; `None`: by the sizing.
    pub l0_compaction_trigger: Option<u32>,
    /// Recorded: maximum number of sealed memtables that wait for their flush.
    pub immutable_memtables: u32,
    /// Recorded: log size at which its memtables are sealed.
    pub wal_bytes: u64,
    /// Recorded: limit of compaction writes in bytes per second; 0: no limit.
    pub rate_limit_bytes_per_s: u64,
    /// Of this open: maximum memory of filters and indexes with budgeted residency; `None`: the
    /// most valuable pieces, without a fixed limit.
    pub resident_bytes_max: Option<u64>,
    /// Units in which the block cache holds filters and indexes.
    pub cache_units: CacheUnits,
    /// Of this open: maximum size of the block cache; `None`: all memory that the other parts
    /// leave.
    pub cache_bytes_max: Option<u64>,
    /// Of this open: memory is divided by the reads that it saves, not by the time.
    pub count_ios: bool,
    /// Of this open: write no log.
    pub no_wal: bool,
    /// Of this open: read tables with direct I/O, past the system's page cache.
    pub direct_io: bool,
    /// Of this open: maximum number of table files kept open at once.
    pub max_open_files: u32,
    /// Of this open: sizes from which values are stored outside the data blocks of tables. Not the
    /// default only in tests.
    pub large_values: LargeValues,
    /// Of this open: compaction threads; `None`: one for each core, at most 4.
    pub background_threads: Option<u32>,
    /// Of this open: compactions start automatically.
    pub auto_compaction: bool,
}

/// Options of the tree and its format, by their recorded names: the ones that creating a database
/// records.
const RECORDED_AT_CREATION: &[&str] = &[
    "comparator",
    "digest",
    "digest-seed",
    "policy",
    "allocation",
    "filter-memory",
    "filter-layout",
    "compression",
    "file-size",
    "block-size",
    "block-tags",
    "sizing",
];

impl Default for Settings {
    fn default() -> Self {
        Self {
            digest: DigestKind::Xxh3,
            digest_seed: 0,
            live: Live::new(LiveSettings {
                design: Design::new(MergePolicy::Leveling, 10.0, 64 << 20, 10.0),
                policy: Some(MergePolicy::Leveling),
                filter_allocation: Allocation::Monkey,
                filter_memory_bytes: None,
            }),
            compression: vec![Compression::None],
            memory_budget_bytes: 256 << 20,
            file_bytes: None,
            block_bytes: 4096,
            durability: Durability::NoSync,
            hash_sharing: true,
            prefetch: true,
            block_tags: true,
            filter_layout: None,
            filter_residency: Residency::Budgeted,
            module_skipping: Skipping::Full,
            memtable_index: true,
            statistics: true,
            tuning: Tuning::Off,
            sizing: Sizing::Auto,
            l0_slowdown_runs: None,
            l0_stop_runs: None,
            l0_compaction_trigger: None,
            immutable_memtables: 2,
            wal_bytes: 1 << 30,
            rate_limit_bytes_per_s: 0,
            resident_bytes_max: None,
            cache_units: CacheUnits::default(),
            cache_bytes_max: None,
            count_ios: false,
            no_wal: false,
            direct_io: false,
            max_open_files: 1000,
            large_values: LargeValues::default(),
            background_threads: None,
            auto_compaction: true,
        }
    }
}

impl Settings {
    /// The recorded settings as text, for the manifest.
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let compression: Vec<String> = self.compression.iter().map(ToString::to_string).collect();
        let mut pairs: Vec<(String, String)> = vec![
            ("comparator".into(), "bytewise".into()),
            ("digest".into(), self.digest.to_string()),
            ("digest-seed".into(), self.digest_seed.to_string()),
            ("compression".into(), compression.join(",")),
            ("memory-budget".into(), self.memory_budget_bytes.to_string()),
            ("file-size".into(), auto_or(self.file_bytes)),
            ("block-size".into(), self.block_bytes.to_string()),
            ("sync".into(), self.durability.to_text()),
            ("hash-sharing".into(), on_off(self.hash_sharing)),
            ("prefetch".into(), on_off(self.prefetch)),
            ("block-tags".into(), on_off(self.block_tags)),
            ("filter-layout".into(), self.filter_layout.map_or("auto".into(), FilterLayout::to_option)),
            ("residency".into(), self.filter_residency.to_string()),
            ("skipping".into(), self.module_skipping.to_string()),
            ("memtable-index".into(), on_off(self.memtable_index)),
            ("statistics".into(), on_off(self.statistics)),
            ("tuning".into(), self.tuning.to_string()),
            ("sizing".into(), self.sizing.to_string()),
            ("inbox-soft-runs".into(), auto_or(self.l0_slowdown_runs)),
            ("inbox-hard-runs".into(), auto_or(self.l0_stop_runs)),
            ("inbox-trigger".into(), auto_or(self.l0_compaction_trigger)),
            ("immutable-memtables".into(), self.immutable_memtables.to_string()),
            ("wal-bytes".into(), self.wal_bytes.to_string()),
            ("rate-limit".into(), self.rate_limit_bytes_per_s.to_string()),
        ];
        pairs.extend(self.live.get().to_pairs());
        pairs
    }

    /// The settings that creating a database with them records.
    pub fn created_pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.to_pairs();
        pairs.retain(|(name, _)| RECORDED_AT_CREATION.contains(&name.as_str()) || Design::is_key(name));
        pairs
    }

    /// Settings that differ from `recorded`: the options that an open was given and that change a
    /// value.
    pub fn given_over(&self, recorded: &Self) -> Vec<(String, String)> {
        let before: BTreeMap<String, String> = recorded.to_pairs().into_iter().collect();
        let mut pairs = self.to_pairs();
        pairs.retain(|(name, text)| before.get(name) != Some(text));
        pairs
    }

    /// Settings from the manifest's text. Unknown names come from a later version and are ignored.
    ///
    /// # Errors
    /// `Invalid` naming the setting whose text does not parse.
    pub fn from_pairs(pairs: &BTreeMap<String, String>) -> Result<Self> {
        let mut settings = Self::default();
        let mut live = settings.live.get();
        if let Some(comparator) = pairs.get("comparator").filter(|name| *name != "bytewise") {
            return Err(Error::invalid(format!(
                "the database was created with comparator {comparator:?}; this build knows only \"bytewise\""
            )));
        }
        for (name, text) in pairs {
            match name.as_str() {
                "digest" => settings.digest = text.parse().map_err(Error::invalid)?,
                "digest-seed" => settings.digest_seed = number(name, text)?,
                "policy" => {
                    live.policy = match text.as_str() {
                        "custom" => None,
                        _ => Some(text.parse().map_err(Error::invalid)?),
                    };
                }
                "compression" => {
                    settings.compression = text
                        .split(',')
                        .map(|part| {
                            part.parse().map_err(|detail| Error::invalid(format!("{name}: {detail}")))
                        })
                        .collect::<Result<_>>()?;
                }
                "memory-budget" => settings.memory_budget_bytes = number(name, text)?,
                "file-size" => settings.file_bytes = number_or_auto(name, text)?,
                "block-size" => settings.block_bytes = number(name, text)?,
                "sync" => settings.durability = Durability::from_text(text)?,
                "hash-sharing" => settings.hash_sharing = switch(name, text)?,
                "prefetch" => settings.prefetch = switch(name, text)?,
                "block-tags" => settings.block_tags = switch(name, text)?,
                "filter-layout" if text == "auto" => settings.filter_layout = None,
                "filter-layout" => {
                    settings.filter_layout = Some(text.parse().map_err(Error::invalid)?);
                }
                "residency" => settings.filter_residency = text.parse().map_err(Error::invalid)?,
                "skipping" => settings.module_skipping = text.parse().map_err(Error::invalid)?,
                "allocation" => live.filter_allocation = text.parse().map_err(Error::invalid)?,
                "filter-memory" => live.filter_memory_bytes = number_or_auto(name, text)?,
                "memtable-index" => settings.memtable_index = switch(name, text)?,
                "statistics" => settings.statistics = switch(name, text)?,
                "tuning" => settings.tuning = text.parse().map_err(Error::invalid)?,
                "sizing" => settings.sizing = text.parse().map_err(Error::invalid)?,
                "inbox-soft-runs" => settings.l0_slowdown_runs = number_or_auto(name, text)?,
                "inbox-hard-runs" => settings.l0_stop_runs = number_or_auto(name, text)?,
                "inbox-trigger" => settings.l0_compaction_trigger = number_or_auto(name, text)?,
                "immutable-memtables" => settings.immutable_memtables = number(name, text)?,
                "wal-bytes" => settings.wal_bytes = number(name, text)?,
                "rate-limit" => settings.rate_limit_bytes_per_s = number(name, text)?,
                _ => {}
            }
        }
        let pairs: Vec<(&String, &String)> = pairs.iter().collect();
        live.design = Design::from_pairs(&pairs).map_err(Error::invalid)?;
        settings.live.set(live);
        Ok(settings)
    }

    /// Checks that every value is within its bounds.
    ///
    /// # Errors
    /// `Invalid` naming the option, its value and its bounds.
    pub fn validate(&self) -> Result<()> {
        let (l0, live) = (self.l0(), self.live.get());
        let sizes = [
            ("memory-budget", self.memory_budget_bytes, BUDGET_BYTES_MIN, 1 << 50),
            ("write-buffer", live.design.buffer_bytes, 1 << 10, 1 << 40),
            ("file-size", self.file_bytes.unwrap_or(64 << 20), 1 << 10, 1 << 40),
            ("block-size", self.block_bytes as u64, 64, 4096),
            ("wal-bytes", self.wal_bytes, 1 << 10, 1 << 50),
            ("filter-memory", live.filter_memory_bytes.unwrap_or(0), 0, 1 << 50),
        ];
        for (name, bytes, least, most) in sizes {
            if bytes < least || bytes > most {
                let [least, most, bytes] = [least, most, bytes].map(shown_size);
                return Err(Error::invalid(format!("{name} must be from {least} to {most}, not {bytes}")));
            }
        }
        live.design.validate().map_err(Error::invalid)?;
        let counts = [
            ("inbox-trigger", u64::from(l0.trigger_runs), 1, 1 << 16),
            ("inbox-soft-runs", u64::from(l0.soft_runs), 1, 1 << 16),
            ("inbox-hard-runs", u64::from(l0.hard_runs), 1, 1 << 16),
            ("background-threads", u64::from(self.background_threads.unwrap_or(1)), 1, 256),
            ("immutable-memtables", u64::from(self.immutable_memtables), 1, 1 << 10),
            ("max-open-files", u64::from(self.max_open_files), 16, 1 << 20),
        ];
        for (name, value, least, most) in counts {
            if value < least || value > most {
                return Err(Error::invalid(format!("{name} must be from {least} to {most}, not {value}")));
            }
        }
        if l0.soft_runs > l0.hard_runs || l0.trigger_runs > l0.hard_runs {
            return Err(Error::invalid(format!(
                "inbox-hard-runs ({}) must be at least inbox-soft-runs ({}) and inbox-trigger ({})",
                l0.hard_runs, l0.soft_runs, l0.trigger_runs
            )));
        }
        if self.compression.is_empty() {
            return Err(Error::invalid("compression needs a kind for at least one level"));
        }
        if let Some(kind) = self.compression.iter().find(|kind| !kind.is_built()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "compression {kind} is not part of this build: enable the feature \"{kind}\" of shamba, or choose another"
                ),
            ));
        }
        if self.no_wal && !matches!(self.durability, Durability::NoSync) {
            return Err(Error::invalid("no_wal writes no log: the only possible durability is NoSync"));
        }
        Ok(())
    }

    /// The limits of level 0: the given ones; for the others the sizing's defaults, adjusted to fit
    /// the given ones.
    pub fn l0(&self) -> Level0 {
        let usual = match self.sizing {
            // Slowdown starts when a full batch of runs waits behind the compaction of another.
            Sizing::Auto => Level0 { trigger_runs: 4, soft_runs: 12, hard_runs: 24 },
            Sizing::Manual => Level0 { trigger_runs: 1, soft_runs: 4, hard_runs: 12 },
        };
        let hard_given = self.l0_stop_runs;
        let at_most = |runs: u32| hard_given.map_or(runs, |hard| runs.min(hard));
        let trigger_runs = self.l0_compaction_trigger.unwrap_or_else(|| at_most(usual.trigger_runs));
        let soft_runs = self.l0_slowdown_runs.unwrap_or_else(|| at_most(usual.soft_runs.max(trigger_runs)));
        let least = soft_runs.max(trigger_runs);
        let hard_runs = hard_given.unwrap_or_else(|| usual.hard_runs.max(least));
        Level0 { trigger_runs, soft_runs, hard_runs }
    }

    /// The compression of tables built for `level`.
    pub fn compression_for(&self, level: u32) -> Compression {
        let last = self.compression.len().saturating_sub(1);
        self.compression.get((level as usize).min(last)).copied().unwrap_or(Compression::None)
    }

    /// Size at which memtables are sealed: the design's write buffer, reduced where the budget has
    /// no room for three of that size (one that takes writes, two that wait for their flush) and
    /// everything else.
    pub fn memtable_bytes(&self) -> u64 {
        self.live.buffer_bytes().min(self.memtable_bytes_max())
    }

    /// The design with the write buffer that is really flushed. With automatic sizing, level
    /// capacities start from that size: four runs of 1 MiB, taken for a batch of 64 MiB runs, would
    /// be compacted into a single level of any size. With manual sizing, capacities follow the
    /// design exactly.
    pub fn as_flushed(&self, design: Design) -> Design {
        match self.sizing {
            Sizing::Auto => {
                Design { buffer_bytes: design.buffer_bytes.min(self.memtable_bytes_max()), ..design }
            }
            Sizing::Manual => design,
        }
    }

    /// Size of the largest memtable that the budget allows.
    pub fn memtable_bytes_max(&self) -> u64 {
        shamba_model::memtable_bytes_max(self.memory_budget_bytes)
    }

    /// Memory kept free for one flush and one compaction, so that neither waits for memory. Each
    /// may build one table: its gathered bytes, the digests of its keys, its filter.
    pub fn work_bytes(&self) -> u64 {
        2 * (WORK_BYTES_MIN.min(self.memory_budget_bytes / 32) + self.table_bytes() / 4)
    }

    /// Approximate limit of the memory of all open iterators; above it idle iterators release what
    /// they can read again. This memory is allocated and freed in small pieces, which the allocator
    /// keeps after they are freed: the limit is therefore a smaller part of a large budget.
    pub fn iterator_bytes(&self) -> u64 {
        (self.memory_budget_bytes / 8).min(ITERATOR_BYTES_ROOMY).max(self.memory_budget_bytes / 32)
    }

    /// Values longer than this stay in the log until they are flushed, so that a few of them do not
    /// fill a memtable.
    pub fn held_value_bytes_max(&self) -> u64 {
        self.memtable_bytes() / 4
    }

    /// The filter family for a tree whose filters take `filter_bytes`. Filters that fit into memory
    /// easily are blocked: a probe costs one cache line and nothing else. Others have modules, some
    /// of which can stay out of memory. Three modules: at 10 bits, their rates with fewer modules
    /// loaded come near the best possible for that number of bits, more often than those of two or
    /// four modules ([`shamba_filter::measured`]).
    pub fn filter_layout_for(&self, filter_bytes: u64) -> FilterLayout {
        let modular = Modules::equal(AUTO_MODULES).map_or(FilterLayout::Blocked, FilterLayout::Modular);
        let fits = filter_bytes <= self.memory_budget_bytes / AUTO_BLOCKED_PART;
        self.filter_layout.unwrap_or(if fits { FilterLayout::Blocked } else { modular })
    }

    /// Target size of tables, unless memory needs larger ones ([`crate::compaction::table_size`]).
    pub fn table_bytes(&self) -> u64 {
        self.file_bytes.unwrap_or_else(|| (self.memory_budget_bytes / 16).clamp(TABLE_BYTES_MIN, 64 << 20))
    }
}

/// Formats a size in the largest binary unit that divides it: limits are round numbers.
fn shown_size(bytes: u64) -> String {
    let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.into_iter().find(|(log2, _)| bytes > 0 && bytes.trailing_zeros() >= *log2);
    match fitting {
        Some((log2, unit)) => format!("{} {unit}", bytes >> log2),
        None => format!("{bytes} bytes"),
    }
}

fn auto_or<T: ToString>(value: Option<T>) -> String {
    value.map_or("auto".into(), |value| value.to_string())
}

fn number_or_auto<T: std::str::FromStr>(name: &str, text: &str) -> Result<Option<T>> {
    if text == "auto" { Ok(None) } else { number(name, text).map(Some) }
}

fn on_off(value: bool) -> String {
    if value { "on" } else { "off" }.into()
}

/// Parses `on` or `off`.
pub(crate) fn switch(name: &str, text: &str) -> Result<bool> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::invalid(format!("{name} must be on or off, not {text:?}"))),
    }
}

/// Parses a number.
pub(crate) fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(format!("{name} must be a number, not {text:?}")))
}
