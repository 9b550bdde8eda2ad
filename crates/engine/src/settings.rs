//! Settings: everything about a database that is plain data.
//!
//! Three kinds. *Fixed at creation*: digest kind and seed; given otherwise at a later open, they are
//! `Invalid`. *Of tree and format* ([`RECORDED_AT_CREATION`]): recorded in the manifest when the database is
//! created. *Of an open*: budget, durability, limits, baselines. Any option that an open is given holds for
//! that open. Only a redesign, and an open that asks for it ([`Settings::given_over`]), changes what is
//! recorded. A value of any kind that is recorded holds for opens that do not give it: builds before
//! version 0.1 recorded nearly all that an open was given. Some settings are *live*: they may change while
//! the database is open ([`live`]).
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
use crate::memory::BUDGET_BYTES_LEAST;
use crate::tuner::Tuning;

pub(crate) use self::live::{Live, LiveSettings};

/// What an acknowledged write has survived. See `DURABILITY.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On stable storage, together with every earlier write.
    Sync,
    /// With the operating system; synced within `ms` milliseconds or `bytes` bytes.
    Interval {
        /// Longest time between an acknowledgement and its sync.
        ms: u64,
        /// Most unsynced bytes.
        bytes: u64,
    },
    /// With the operating system: survives the process, not a power loss.
    #[default]
    NoSync,
    /// In this process's memory only, until 64 KiB have gathered, a stronger write, `sync` or `close`. Dropping
    /// the last handle without [`Db::close`](crate::Db::close) loses them, as a kill would, and emits an
    /// [`Event::Warning`](crate::Event::Warning) that says how many bytes.
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

/// What level 0 may hold, in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inbox {
    /// A merge down starts here.
    pub trigger_runs: u32,
    /// Beyond this writers are slowed.
    pub soft_runs: u32,
    /// Here they stop.
    pub hard_runs: u32,
}

/// The modules of a filter, unless told otherwise, where memory may not hold all of it.
const AUTO_MODULES: usize = 3;
/// Filters are blocked while all of them are at most this part of the memory budget.
const AUTO_BLOCKED_PART: u64 = 6;
/// Tables are not cut smaller than this unless told so: an open table takes 2 to 3 KiB of memory whatever its size, which
/// for 10 million small entries in tables of half a megabyte were more than half of a budget of 8 MiB.
const TABLE_BYTES_MIN: u64 = 2 << 20;
/// Iterators may have an eighth of the budget up to this, and beyond it a thirty-second.
const ITERATOR_BYTES_ROOMY: u64 = 32 << 20;
/// What building a table takes whatever its size.
const WORK_BYTES_MIN: u64 = 384 << 10;

/// The plain-data settings of an open database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Fixed: the digest's kind.
    pub digest: DigestKind,
    /// Fixed: the digest's seed; `None` until created or read.
    pub digest_seed: u64,
    /// Recorded, and may change while the database is open: the design, and the plan of its filters.
    pub live: Live,
    /// Recorded: compression by level (index 0 = level 0; the last entry serves deeper levels).
    pub compression: Vec<Compression>,
    /// Recorded: the budget that cache and defaults derive from.
    pub memory_budget_bytes: u64,
    /// Recorded: tables are cut at about this size; `None`: a sixteenth of the budget, from 2 to 64 MiB.
    pub file_bytes: Option<u64>,
    /// Recorded: data blocks hold at most this much.
    pub block_bytes: usize,
    /// Recorded: the default durability of writes.
    pub durability: Durability,
    /// Recorded: one digest for the whole lookup, or one hash per consulted filter (the baseline).
    pub hash_sharing: bool,
    /// Recorded: ask for all filter lines before testing the first.
    pub prefetch: bool,
    /// Recorded: data blocks are written with tags, by which lookups find entries in them.
    pub block_tags: bool,
    /// Recorded: the family of filters, and their modules; `None`: as it suits the memory budget.
    pub filter_layout: Option<FilterLayout>,
    /// Recorded: how filters and index partitions are held in memory.
    pub filter_residency: Residency,
    /// Recorded: which modules of a filter a lookup may pass over.
    pub module_skipping: Skipping,
    /// Recorded: memtables answer lookups by their digest index, or by their order (the baseline).
    pub memtable_index: bool,
    /// Recorded: one lookup and one seek in 64 are sampled for statistics.
    pub statistics: bool,
    /// Recorded: what the database does about its own design.
    pub tuning: Tuning,
    /// Recorded: where level capacities come from.
    pub sizing: Sizing,
    /// Recorded: the flushed runs that may wait before slowing writers; `None`: as the sizing has it.
    pub inbox_soft_runs: Option<u32>,
    /// Recorded: the flushed runs at which writers stop; `None`: as the sizing has it.
    pub inbox_hard_runs: Option<u32>,
    /// Recorded: level-0 runs at which they are merged down; `None`: as the sizing has it.
    pub inbox_trigger: Option<u32>,
    /// Recorded: sealed memtables that may wait for their flush.
    pub immutable_memtables: u32,
    /// Recorded: a log beyond this seals its memtables.
    pub wal_bytes: u64,
    /// Recorded: bytes a second that merges may write; 0: no limit.
    pub rate_limit_bytes_per_s: u64,
    /// Of this open: filters and indexes hold at most so much, where residency is budgeted; `None`: what pays.
    pub resident_bytes_max: Option<u64>,
    /// Units in which the block cache holds filters and indexes.
    pub cache_units: CacheUnits,
    /// Of this open: the block cache holds at most so much, however much is free; `None`: what the others leave.
    pub cache_bytes_max: Option<u64>,
    /// Of this open: what is held in memory is weighed by the reads that it saves, not by the time.
    pub count_ios: bool,
    /// Of this open: no log at all.
    pub no_wal: bool,
    /// Of this open: read tables past the system's page cache.
    pub direct_io: bool,
    /// Of this open: table files that are kept open at once.
    pub max_open_files: u32,
    /// Which values lie beside the blocks of tables. Of this open; other than the default only in tests.
    pub large_values: LargeValues,
    /// Of this open: threads that merge; `None`: as many as there are cores, at most 4.
    pub background_threads: Option<u32>,
    /// Of this open: merges run by themselves.
    pub auto_compaction: bool,
}

/// Options of the tree and of its format, by their recorded names: what the creation of a database records.
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
            inbox_soft_runs: None,
            inbox_hard_runs: None,
            inbox_trigger: None,
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
            ("inbox-soft-runs".into(), auto_or(self.inbox_soft_runs)),
            ("inbox-hard-runs".into(), auto_or(self.inbox_hard_runs)),
            ("inbox-trigger".into(), auto_or(self.inbox_trigger)),
            ("immutable-memtables".into(), self.immutable_memtables.to_string()),
            ("wal-bytes".into(), self.wal_bytes.to_string()),
            ("rate-limit".into(), self.rate_limit_bytes_per_s.to_string()),
        ];
        pairs.extend(self.live.get().to_pairs());
        pairs
    }

    /// What the creation of a database with these settings records.
    pub fn created_pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.to_pairs();
        pairs.retain(|(name, _)| RECORDED_AT_CREATION.contains(&name.as_str()) || Design::is_key(name));
        pairs
    }

    /// What differs from `recorded`: the options that an open was given and that change something.
    pub fn given_over(&self, recorded: &Self) -> Vec<(String, String)> {
        let before: BTreeMap<String, String> = recorded.to_pairs().into_iter().collect();
        let mut pairs = self.to_pairs();
        pairs.retain(|(name, text)| before.get(name) != Some(text));
        pairs
    }

    /// Settings from the manifest's text; unknown names are from a later version and are kept out.
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
                "inbox-soft-runs" => settings.inbox_soft_runs = number_or_auto(name, text)?,
                "inbox-hard-runs" => settings.inbox_hard_runs = number_or_auto(name, text)?,
                "inbox-trigger" => settings.inbox_trigger = number_or_auto(name, text)?,
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

    /// Whether every value is within its bounds.
    ///
    /// # Errors
    /// `Invalid` naming the option, its value and its bounds.
    pub fn validate(&self) -> Result<()> {
        let (inbox, live) = (self.inbox(), self.live.get());
        let sizes = [
            ("memory-budget", self.memory_budget_bytes, BUDGET_BYTES_LEAST, 1 << 50),
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
            ("inbox-trigger", u64::from(inbox.trigger_runs), 1, 1 << 16),
            ("inbox-soft-runs", u64::from(inbox.soft_runs), 1, 1 << 16),
            ("inbox-hard-runs", u64::from(inbox.hard_runs), 1, 1 << 16),
            ("background-threads", u64::from(self.background_threads.unwrap_or(1)), 1, 256),
            ("immutable-memtables", u64::from(self.immutable_memtables), 1, 1 << 10),
            ("max-open-files", u64::from(self.max_open_files), 16, 1 << 20),
        ];
        for (name, value, least, most) in counts {
            if value < least || value > most {
                return Err(Error::invalid(format!("{name} must be from {least} to {most}, not {value}")));
            }
        }
        if inbox.soft_runs > inbox.hard_runs || inbox.trigger_runs > inbox.hard_runs {
            return Err(Error::invalid(format!(
                "inbox-hard-runs ({}) must be at least inbox-soft-runs ({}) and inbox-trigger ({})",
                inbox.hard_runs, inbox.soft_runs, inbox.trigger_runs
            )));
        }
        if self.compression.is_empty() {
            return Err(Error::invalid("compression needs at least one level's kind"));
        }
        if let Some(kind) = self.compression.iter().find(|kind| !kind.is_built()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "compression {kind} is not part of this build: build with the feature \"{kind}\" of shamba, or choose another"
                ),
            ));
        }
        if self.no_wal && !matches!(self.durability, Durability::NoSync) {
            return Err(Error::invalid(
                "no_wal keeps no log, so a durability other than NoSync cannot be promised beside it",
            ));
        }
        Ok(())
    }

    /// The limits of level 0: those given; for the others the sizing's, moved to fit the given ones.
    pub fn inbox(&self) -> Inbox {
        let usual = match self.sizing {
            // Writers are slowed when a batch waits behind the merge of another.
            Sizing::Auto => Inbox { trigger_runs: 4, soft_runs: 12, hard_runs: 24 },
            Sizing::Manual => Inbox { trigger_runs: 1, soft_runs: 4, hard_runs: 12 },
        };
        let hard_given = self.inbox_hard_runs;
        let at_most = |runs: u32| hard_given.map_or(runs, |hard| runs.min(hard));
        let trigger_runs = self.inbox_trigger.unwrap_or_else(|| at_most(usual.trigger_runs));
        let soft_runs = self.inbox_soft_runs.unwrap_or_else(|| at_most(usual.soft_runs.max(trigger_runs)));
        let least = soft_runs.max(trigger_runs);
        let hard_runs = hard_given.unwrap_or_else(|| usual.hard_runs.max(least));
        Inbox { trigger_runs, soft_runs, hard_runs }
    }

    /// The compression of tables built for `level`.
    pub fn compression_for(&self, level: u32) -> Compression {
        let last = self.compression.len().saturating_sub(1);
        self.compression.get((level as usize).min(last)).copied().unwrap_or(Compression::None)
    }

    /// Where memtables are sealed: the design's write buffer, unless the budget has no room for three of them
    /// (one that takes writes, two that wait for their flush) beside everything else.
    pub fn memtable_bytes(&self) -> u64 {
        self.live.buffer_bytes().min(self.memtable_bytes_most())
    }

    /// The design whose write buffer is what is really flushed. Where the sizing is ours, level capacities begin with
    /// that: a batch of four runs of 1 MiB, taken for one of 64 MiB, would be merged into a single level of any size. In the
    /// manual sizing they follow the design to the letter.
    pub fn as_flushed(&self, design: Design) -> Design {
        match self.sizing {
            Sizing::Auto => {
                Design { buffer_bytes: design.buffer_bytes.min(self.memtable_bytes_most()), ..design }
            }
            Sizing::Manual => design,
        }
    }

    /// The largest memtable that the budget has room for.
    pub fn memtable_bytes_most(&self) -> u64 {
        shamba_model::memtable_bytes_most(self.memory_budget_bytes)
    }

    /// What is kept free for one flush and one merge, so that neither ever waits for memory: for each a table
    /// being built (gathered bytes, digests of its keys, its filter).
    pub fn work_bytes(&self) -> u64 {
        2 * (WORK_BYTES_MIN.min(self.memory_budget_bytes / 32) + self.table_bytes() / 4)
    }

    /// What open iterators may hold together, about; above it idle ones lose what they can do without. It comes and goes in
    /// small pieces, of which the allocator keeps what nobody has any more: a smaller part of a large budget.
    pub fn iterator_bytes(&self) -> u64 {
        (self.memory_budget_bytes / 8).min(ITERATOR_BYTES_ROOMY).max(self.memory_budget_bytes / 32)
    }

    /// Longer values stay in the log until they are flushed: a memtable is not filled by a few of them.
    pub fn held_value_bytes_max(&self) -> u64 {
        self.memtable_bytes() / 4
    }

    /// The family of filters for a tree whose filters take so many bytes. Those that fit into memory with much to spare
    /// are blocked, which cost one cache line and nothing else; others have modules, some of which can do without
    /// memory. Three of them: at 10 bits they come near what each number of bits below could do at best, and are right
    /// more often than two or four ([`shamba_filter::measured`]).
    pub fn filter_layout_for(&self, filter_bytes: u64) -> FilterLayout {
        let modular = Modules::equal(AUTO_MODULES).map_or(FilterLayout::Blocked, FilterLayout::Modular);
        let fits = filter_bytes <= self.memory_budget_bytes / AUTO_BLOCKED_PART;
        self.filter_layout.unwrap_or(if fits { FilterLayout::Blocked } else { modular })
    }

    /// Where tables are cut, unless memory needs larger ones ([`shamba_tree::compaction::table_size`]).
    pub fn table_bytes(&self) -> u64 {
        self.file_bytes.unwrap_or_else(|| (self.memory_budget_bytes / 16).clamp(TABLE_BYTES_MIN, 64 << 20))
    }
}

/// A size in the largest binary unit that divides it, for limits that people chose.
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
