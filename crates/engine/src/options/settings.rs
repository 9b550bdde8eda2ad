//! Meaning of the settings: values derived from several options, and checks across options.
//!
//! Each option is declared in the table of [`crate::options`], which also has the fields of
//! [`Settings`]. Recorded values change only through a redesign, or through an open that asks for
//! it ([`Settings::given_over`]). Some settings are *live*: they can change while the database is
//! open ([`live`]).
//!
//! Not here: text forms and ranges of single options ([`crate::options`]); parts such as the
//! environment and the listener ([`crate::Builder`]).

pub(crate) mod live;
mod tuning;

use std::time::Duration;

use shamba_filter::{FilterLayout, Modules};
use shamba_model::memory::constants::RECORDS_MAX_PART;
use shamba_model::{Design, Sizing};
use shamba_table::{CacheUnits, Compression, DICTIONARY_BYTES_MIN, Residency};
use shamba_tree::records::RecordCache;

use crate::error::{Error, ErrorKind, Result};
use crate::options::value::size_text;

pub(crate) use self::live::{Live, LiveSettings};
pub use self::tuning::Tuning;
pub(crate) use crate::options::table::Settings;

/// Memtables of less are not sealed for their size.
const MEMTABLE_BYTES_MIN: u64 = 16 << 10;

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
}

/// Limits of the obsolete logs that are kept for streams of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeepLog {
    /// Maximum bytes of all of them; 0 keeps none.
    pub bytes: u64,
    /// Maximum time since a log became obsolete.
    pub age: Duration,
}

impl KeepLog {
    /// No obsolete log is kept.
    pub const OFF: Self = Self { bytes: 0, age: Duration::ZERO };

    /// Whether obsolete logs are kept.
    pub fn is_on(self) -> bool {
        self.bytes > 0
    }
}

impl From<(u64, Duration)> for KeepLog {
    fn from((bytes, age): (u64, Duration)) -> Self {
        Self { bytes, age }
    }
}

/// Limits of level 0, in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level0 {
    /// A compaction of level 0 starts at this number of runs.
    pub trigger_runs: u32,
    /// Above this number of runs writers are slowed down (`l0-slowdown-runs`).
    pub soft_runs: u32,
    /// At this number of runs writers stall (`l0-stop-runs`).
    pub hard_runs: u32,
}

/// Modules of a filter when the option is not given and memory may not hold whole filters.
const AUTO_MODULES: usize = 3;
/// Filters are blocked while all of them together take at most one sixth of the memory budget.
const AUTO_BLOCKED_PART: u64 = 6;
/// Minimum of the automatic table size. An open table takes 2 to 3 KiB of memory whatever its size.
/// With tables of half a megabyte, 10 million small entries took more than half of a budget of 8
/// MiB.
const TABLE_BYTES_MIN: u64 = 2 << 20;

/// Checks the compression by level.
///
/// # Errors
/// `Invalid` without any; `Unsupported` for one that is not part of this build.
pub(crate) fn check_compression(by_level: &[Compression]) -> Result<()> {
    if by_level.is_empty() {
        return Err(Error::invalid("compression needs a kind for at least one level"));
    }
    match by_level.iter().find(|kind| !kind.is_built()) {
        None => Ok(()),
        Some(kind) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "compression {kind} is not part of this build: enable the feature \"{kind}\" of shamba, or choose another"
            ),
        )),
    }
}

/// Checks the length of dictionaries.
///
/// # Errors
/// `Invalid` for one that is too short to save anything.
pub(crate) fn check_dictionary(bytes: usize) -> Result<()> {
    if bytes == 0 || bytes >= DICTIONARY_BYTES_MIN {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "compression-dictionary ({bytes}) must be 0 or at least {DICTIONARY_BYTES_MIN}"
    )))
}

/// The compression of `level`: the last one holds for deeper levels.
pub(crate) fn compression_for(by_level: &[Compression], level: u32) -> Compression {
    let last = by_level.len().saturating_sub(1);
    by_level.get((level as usize).min(last)).copied().unwrap_or(Compression::None)
}

impl Settings {
    /// Checks that every value is within its bounds.
    ///
    /// # Errors
    /// `Invalid` naming the option, its value and its bounds.
    pub fn validate(&self) -> Result<()> {
        self.check_ranges(|_| true)?;
        let l0 = self.l0();
        if l0.soft_runs > l0.hard_runs || l0.trigger_runs > l0.hard_runs {
            return Err(Error::invalid(format!(
                "l0-stop-runs ({}) must be at least l0-slowdown-runs ({}) and l0-compaction-trigger ({})",
                l0.hard_runs, l0.soft_runs, l0.trigger_runs
            )));
        }
        check_compression(&self.compression)?;
        check_dictionary(self.dictionary_bytes)?;
        let record_bytes = self.record_cache_bytes.unwrap_or(0);
        if record_bytes > 0 && record_bytes < RecordCache::CAPACITY_BYTES_MIN {
            return Err(Error::invalid(format!(
                "record-cache ({}) must be 0 or at least {}",
                size_text(record_bytes, " "),
                size_text(RecordCache::CAPACITY_BYTES_MIN, " ")
            )));
        }
        if self.no_wal && !matches!(self.durability, Durability::NoSync) {
            return Err(Error::invalid("no-wal keeps no log, so sync must be never (`Durability::NoSync`)"));
        }
        Ok(())
    }

    /// Checks that the record cache fits into the memory budget. Only for a size that this open
    /// gives: a recorded one gets less under a smaller budget, and so does one under a shared
    /// budget.
    pub fn validate_record_cache(&self) -> Result<()> {
        let record_bytes = self.record_cache_bytes.unwrap_or(0);
        if record_bytes > self.memory_budget_bytes / RECORDS_MAX_PART {
            return Err(Error::invalid(format!(
                "record-cache ({}) must be at most half of memory-budget ({})",
                size_text(record_bytes, " "),
                size_text(self.memory_budget_bytes, " ")
            )));
        }
        Ok(())
    }

    /// Memory budget of this database: the option, or what a shared budget grants it now.
    pub fn budget_bytes(&self) -> u64 {
        self.live.budget_bytes().unwrap_or(self.memory_budget_bytes)
    }

    /// Fixed capacity of the record cache: the option, and at most half of what a shared budget
    /// grants. 0 where it is off or has a share of the divided memory.
    pub fn record_bytes(&self) -> u64 {
        self.record_cache_bytes.unwrap_or(0).min(self.budget_bytes() / RECORDS_MAX_PART)
    }

    /// Maximum share of the record cache in the divided memory; 0 where it has none.
    pub fn record_share_bytes_max(&self) -> u64 {
        let is_divided = self.filter_residency == Residency::Budgeted && !self.count_ios;
        if self.record_cache_bytes.is_none() && is_divided {
            self.budget_bytes() / RECORDS_MAX_PART
        } else {
            0
        }
    }

    /// The budget without a record cache of fixed capacity, from which the limits of memtables
    /// and iterators follow.
    pub fn rest_bytes(&self) -> u64 {
        self.budget_bytes().saturating_sub(self.record_bytes())
    }

    /// Units in which the block cache holds filters and indexes.
    pub fn cache_units(&self) -> CacheUnits {
        CacheUnits { filter: self.filter_partition, index: self.index_partition }
    }

    /// The limits of level 0: the given ones; for the others the sizing's defaults, adjusted to fit
    /// the given ones.
    pub fn l0(&self) -> Level0 {
        let usual = match self.sizing {
            // Slowdown starts when a full batch of runs waits while another batch is being
            // compacted.
            Sizing::Auto => Level0 { trigger_runs: 4, soft_runs: 12, hard_runs: 24 },
            Sizing::Manual => Level0 { trigger_runs: 1, soft_runs: 4, hard_runs: 12 },
        };
        let hard_given = self.l0_stop_runs;
        let at_most = |runs: u32| hard_given.map_or(runs, |hard| runs.min(hard));
        let trigger_runs = self.l0_compaction_trigger.unwrap_or_else(|| at_most(usual.trigger_runs));
        let soft_runs = self.l0_slowdown_runs.unwrap_or_else(|| at_most(usual.soft_runs.max(trigger_runs)));
        let least = soft_runs.max(trigger_runs);
        let hard_runs = hard_given.unwrap_or_else(|| usual.hard_runs.max(least));
        debug_assert!(
            hard_given.is_some() || least <= hard_runs,
            "writes stop at {hard_runs} runs, before they slow down"
        );
        Level0 { trigger_runs, soft_runs, hard_runs }
    }

    /// Longest wait of a write without a deadline of its own, in milliseconds; `None` for no bound.
    pub fn write_deadline_ms(&self) -> Option<u64> {
        // Rounded up: a deadline below a millisecond is not one of nothing.
        let deadline_ms = u64::try_from(self.write_deadline.as_nanos().div_ceil(1_000_000));
        Some(deadline_ms.unwrap_or(u64::MAX)).filter(|deadline_ms| *deadline_ms > 0)
    }

    /// Maximum age of a tombstone in milliseconds; `None` for no bound.
    pub fn tombstone_age_max_ms(&self) -> Option<u64> {
        let age_ms = u64::try_from(self.tombstone_age_max.as_millis()).unwrap_or(u64::MAX);
        (age_ms > 0).then_some(age_ms)
    }

    /// Size at which memtables are sealed: the design's write buffer, but small enough that three
    /// memtables that wait for their flush and everything else fit into the memory budget, and not
    /// less than [`MEMTABLE_BYTES_MIN`], which a budget of nothing does not hold.
    pub fn memtable_bytes(&self) -> u64 {
        // A part of a shared budget may be nothing for a while.
        self.live.buffer_bytes().min(self.memtable_bytes_max().max(MEMTABLE_BYTES_MIN))
    }

    /// The design with the write buffer that is really flushed, which the memory budget may limit.
    /// With automatic sizing, level capacities start from that size. If they started from a larger
    /// write buffer, small flushed runs would all be compacted into a single level. With manual
    /// sizing, capacities follow the design exactly.
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
        shamba_model::memtable_bytes_max(self.rest_bytes())
    }

    /// Memory for one flush and one compaction, which is kept free while writes come.
    pub fn work_bytes(&self) -> u64 {
        shamba_model::memory::work_bytes(self.budget_bytes(), self.table_bytes())
    }

    /// Approximate limit of the memory of all open iterators.
    pub fn iterator_bytes(&self) -> u64 {
        shamba_model::memory::iterator_bytes(self.rest_bytes())
    }

    /// Values longer than this stay in the log until they are flushed, so that a few of them do not
    /// fill a memtable.
    pub fn held_value_bytes_max(&self) -> u64 {
        self.memtable_bytes() / 4
    }

    /// The filter family for a tree whose filters take `filter_bytes`. Filters that easily fit into
    /// memory are blocked: a probe costs one cache line. Others have three modules, some of which
    /// can stay out of memory. With some of its modules loaded, a filter's rate should be near the
    /// best rate for the loaded bits. At 10 bits per key, three modules come near it more often
    /// than two or four ([`shamba_filter::measured`]).
    pub fn filter_layout_for(&self, filter_bytes: u64) -> FilterLayout {
        let modular = Modules::equal(AUTO_MODULES).map_or(FilterLayout::Blocked, FilterLayout::Modular);
        let fits = filter_bytes <= self.budget_bytes() / AUTO_BLOCKED_PART;
        self.filter_layout.unwrap_or(if fits { FilterLayout::Blocked } else { modular })
    }

    /// Target size of tables, unless memory needs larger ones
    /// ([`shamba_tree::compaction::table_size`]).
    pub fn table_bytes(&self) -> u64 {
        self.file_bytes.unwrap_or_else(|| (self.budget_bytes() / 16).clamp(TABLE_BYTES_MIN, 64 << 20))
    }
}
