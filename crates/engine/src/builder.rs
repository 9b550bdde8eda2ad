//! The builder: sets every option of a database by name, then opens it.
//!
//! A given option holds for the open; an option that is not given has its recorded value, or its
//! default. The builder therefore keeps a list of *changes*, which recovery applies to the settings
//! read from the manifest.

mod by_name;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba_env::{Env, SlowFs};
use shamba_filter::FilterLayout;
use shamba_key::DigestKind;
use shamba_model::allocation::Allocation;
use shamba_model::skip::Skipping;
use shamba_model::{Design, MergePolicy, Sizing};
use shamba_table::{Compression, LargeValues, Residency};

use crate::db::Db;
use crate::error::{Error, Result};
use crate::event::EventListener;
use crate::experimental::Experimental;
use crate::settings::{Durability, LiveSettings, Settings};
use crate::tuner::Tuning;

type Change = Box<dyn Fn(&mut Settings) + Send>;

/// Options of a database, and the ways to open it.
///
/// Every method returns the builder; see the crate's front page for an example.
///
/// An option holds for the open that it is given to. An option that is *recorded* in the database
/// also holds for every open that does not give it:
/// - Creation records the options of the tree and its format: size ratio, merge policy, runs, write
///   buffer, sizing, filter bits, their allocation and layout, compression, sizes of tables and
///   blocks, block tags. The digest and its seed are fixed at creation.
/// - [`Db::redesign`] and the tuner record the design that they move to.
/// - [`Self::record`] records all options that this open is given, including budget, durability and
///   limits.
///
/// So a service and an operator's command can open the same database with different budgets and
/// durabilities. Databases written by builds before version 0.1 may have more options recorded;
/// these hold as well.
pub struct Builder {
    pub(crate) path: PathBuf,
    pub(crate) env: Env,
    /// Added latency of each read, and of each append and sync, in microseconds.
    device_us: (f64, f64),
    /// Read bandwidth of the emulated device in MiB per second; 0: unlimited.
    device_mib_per_s: f64,
    pub(crate) changes: Vec<Change>,
    pub(crate) digest: Option<DigestKind>,
    pub(crate) digest_seed: Option<u64>,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) read_only: bool,
    /// Records the given options in the database.
    pub(crate) record: bool,
    /// Maximum wait for the lock.
    pub(crate) open_timeout_ms: u64,
    pub(crate) point_in_time: bool,
    pub(crate) info_log: bool,
    pub(crate) timers: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            env: Env::real(),
            device_us: (0.0, 0.0),
            device_mib_per_s: 0.0,
            changes: Vec::new(),
            digest: None,
            digest_seed: None,
            listener: None,
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            record: false,
            open_timeout_ms: 0,
            point_in_time: false,
            info_log: true,
            timers: false,
        }
    }

    fn change(mut self, change: impl Fn(&mut Settings) + Send + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    fn change_live(self, change: impl Fn(&mut LiveSettings) + Send + 'static) -> Self {
        self.change(move |s| s.live.change(&change))
    }

    /// Emulates a slower device in this open, for experiments: each read of a file takes `read_us`
    /// microseconds longer, each append and sync `write_us` ([`shamba_env::SlowFs`]).
    /// [`crate::Stats::emulated`] reports it. Fractions are allowed; the maximum is one second
    /// each. Default 0.
    #[must_use]
    pub fn device_latency_us(mut self, read_us: f64, write_us: f64) -> Self {
        self.device_us = (read_us, write_us);
        self
    }

    /// Bandwidth of the emulated device in MiB per second: a read takes the transfer time of its
    /// bytes in addition to the latency of [`Self::device_latency_us`]. 0 (default): unlimited.
    #[must_use]
    pub fn device_bandwidth_mib_per_s(mut self, mib_per_s: f64) -> Self {
        self.device_mib_per_s = mib_per_s;
        self
    }

    /// The environment of the database, with its device emulated if latencies or a bandwidth were
    /// given.
    ///
    /// # Errors
    /// `Invalid` for latencies or a bandwidth out of range.
    pub(crate) fn world(&self) -> Result<Env> {
        let ns = |name: &str, us: f64| match us {
            us if (0.0..=1e6).contains(&us) => Ok((us * 1e3).round() as u64),
            us => Err(Error::invalid(format!("{name} must be from 0 to 1000000 (a second), not {us}"))),
        };
        let read_ns = ns("device-read-us", self.device_us.0)?;
        let write_ns = ns("device-write-us", self.device_us.1)?;
        let mut env = self.env.clone();
        let bytes_per_second = match self.device_mib_per_s {
            rate if (0.0..=1e9).contains(&rate) => (rate * f64::from(1 << 20)) as u64,
            rate => {
                let text = format!("device-mib-per-s must be from 0 to 1000000000, not {rate}");
                return Err(Error::invalid(text));
            }
        };
        if read_ns > 0 || write_ns > 0 || bytes_per_second > 0 {
            let slow = SlowFs::new(env.vfs, Arc::clone(&env.clock), read_ns, write_ns);
            env.vfs = Arc::new(slow.reading_at(bytes_per_second));
        }
        Ok(env)
    }

    /// Files, clock, randomness and threads. Default: the real ones.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Memory budget in bytes. It covers block cache, memtables, filters and indexes of open
    /// tables, tables being built and the read-ahead of iterators. Each is charged to one ledger
    /// before it is allocated ([`Db::memory`] shows it). When memory is needed, the block cache
    /// shrinks first, then filters and indexes. The process takes some 10 to 20 MiB more
    /// (allocator, stacks).
    ///
    /// The budget limits the size of memtables, and thereby of levels ([`Self::write_buffer`]): a
    /// different budget at the next open can move data to other levels. Default 256 MiB, minimum 4
    /// MiB. An open table takes some 2 KiB, plus its first and last keys. Where all tables would
    /// take more than half of the budget, some stay closed and each use opens them
    /// ([`crate::Stats::tables_closed`]).
    #[must_use]
    pub fn memory_budget(self, bytes: u64) -> Self {
        self.change(move |s| s.memory_budget_bytes = bytes)
    }

    /// T: the size ratio of each level to the one above. Default 10, minimum 2. A larger ratio
    /// means fewer levels to read, more compaction under leveling, more runs under tiering.
    #[must_use]
    pub fn size_ratio(self, size_ratio: f64) -> Self {
        self.change_live(move |live| live.design.size_ratio = size_ratio)
    }

    /// Leveling (default; fewest runs), tiering (least compaction) or lazy leveling (tiering above,
    /// one run on the last level). Sets the runs per level from the size ratio, in whichever order
    /// the two are given.
    #[must_use]
    pub fn merge_policy(self, policy: MergePolicy) -> Self {
        self.change_live(move |live| live.policy = Some(policy))
    }

    /// K: maximum runs of an inner level. Overrides the policy's value.
    #[must_use]
    pub fn inner_runs(self, runs: u32) -> Self {
        self.change_live(move |live| {
            live.policy = None;
            live.design.inner_runs = runs;
        })
    }

    /// Z: maximum runs of the last level. Overrides the policy's value.
    #[must_use]
    pub fn last_runs(self, runs: u32) -> Self {
        self.change_live(move |live| {
            live.policy = None;
            live.design.last_runs = runs;
        })
    }

    /// Size at which memtables are sealed and flushed, and the unit of all level capacities.
    /// Default 64 MiB. The memory budget limits it to an eighth, or a quarter from 128 MiB on.
    /// Memtables are then sealed at that limit, and levels are sized by it, except with
    /// [`Sizing::Manual`].
    #[must_use]
    pub fn write_buffer(self, bytes: u64) -> Self {
        self.change_live(move |live| live.design.buffer_bytes = bytes)
    }

    /// Filter bits per key, as the mean over the tree; [`Self::filter_allocation`] distributes them
    /// over the tables. Default 10; 0 writes no filters. Replaces [`Self::filter_memory`].
    #[must_use]
    pub fn bits_per_key(self, bits: f64) -> Self {
        self.change_live(move |live| {
            live.design.bits_per_key = bits;
            live.filter_memory_bytes = None;
        })
    }

    /// Bytes of all filters together, whatever the number of entries, up to 26 bits per key.
    /// Replaces [`Self::bits_per_key`].
    #[must_use]
    pub fn filter_memory(self, bytes: u64) -> Self {
        self.change_live(move |live| live.filter_memory_bytes = Some(bytes))
    }

    /// Distribution of filter bits over tables when they are built. Uniform: all tables get the
    /// same. Monkey: by the sizes of the runs, which minimizes false positives for evenly spread
    /// lookups. Workload: by the lookups observed for each table ([`Self::statistics`]). Default
    /// [`Allocation::Monkey`]. Existing tables keep their filters.
    #[must_use]
    pub fn filter_allocation(self, allocation: Allocation) -> Self {
        self.change_live(move |live| live.filter_allocation = allocation)
    }

    /// Size ratio, runs, write buffer and filter bits at once.
    #[must_use]
    pub fn design(self, design: Design) -> Self {
        self.change_live(move |live| {
            live.policy = design.policy();
            live.design = design;
        })
    }

    /// Compression of every level's data blocks. Default none.
    #[must_use]
    pub fn compression(self, compression: Compression) -> Self {
        self.change(move |s| s.compression = vec![compression])
    }

    /// Compression by level, from level 0; deeper levels use the last entry.
    #[must_use]
    pub fn compression_per_level(self, compression: Vec<Compression>) -> Self {
        self.change(move |s| s.compression.clone_from(&compression))
    }

    /// The hash function. Fixed at creation; default XXH3.
    #[must_use]
    pub fn digest(mut self, kind: DigestKind) -> Self {
        self.digest = Some(kind);
        self
    }

    /// The digest's seed. Fixed at creation; random by default, so that collisions cannot be
    /// constructed.
    #[must_use]
    pub fn digest_seed(mut self, seed: u64) -> Self {
        self.digest_seed = Some(seed);
        self
    }

    /// One digest for the whole lookup (default), or the baseline: each filter after the first
    /// hashes the key again.
    #[must_use]
    pub fn hash_sharing(self, on: bool) -> Self {
        self.change(move |s| s.hash_sharing = on)
    }

    /// The family of filters built from now on, and the number of modules that share their bits.
    /// Default: blocked while all filters fit well into the memory budget, otherwise three modules.
    #[must_use]
    pub fn filter_layout(self, layout: FilterLayout) -> Self {
        self.change(move |s| s.filter_layout = Some(layout))
    }

    /// Chooses the filter family by the memory budget (default).
    #[must_use]
    pub fn filter_layout_auto(self) -> Self {
        self.change(|s| s.filter_layout = None)
    }

    /// How filters and index partitions are held in memory. Default: within the budget, the pieces
    /// that save the most.
    #[must_use]
    pub fn filter_residency(self, residency: Residency) -> Self {
        self.change(move |s| s.filter_residency = residency)
    }

    /// Maximum bytes of filters and indexes with budgeted residency, even where more of the memory
    /// budget is free: for experiments, and to measure the cost of less memory. Not recorded.
    /// Default: the most valuable pieces, without a fixed limit.
    #[must_use]
    pub fn resident_limit(self, bytes: u64) -> Self {
        self.change(move |s| s.resident_bytes_max = Some(bytes))
    }

    /// Maximum bytes of the block cache, even where more of the memory budget is free; 0 for
    /// experiments without a block cache, as in the papers. Default: all memory that the other
    /// parts leave.
    #[must_use]
    pub fn cache_limit(self, bytes: u64) -> Self {
        self.change(move |s| s.cache_bytes_max = Some(bytes))
    }

    /// Counting mode: memory is divided by the pages of 4 KiB that it saves reading, as in the
    /// papers, and CPU time costs nothing. The block cache admits every block that is read;
    /// otherwise it admits one in 16 of the blocks whose reads were fast. Off (default): memory is
    /// divided by the time saved.
    #[must_use]
    pub fn count_ios(self, on: bool) -> Self {
        self.change(move |s| s.count_ios = on)
    }

    /// Baselines of the papers and other switches for experiments. They hold for this open only.
    #[must_use]
    pub fn experimental(self, set: impl FnOnce(&mut Experimental)) -> Self {
        let mut experimental = Experimental::default();
        set(&mut experimental);
        let Experimental { filter_partition, index_partition } = experimental;
        self.change(move |settings| {
            let units = &mut settings.cache_units;
            units.filter = filter_partition.unwrap_or(units.filter);
            units.index = index_partition.unwrap_or(units.index);
        })
    }

    /// Which modules of a filter a lookup may skip when memory does not hold them. Default: any.
    #[must_use]
    pub fn module_skipping(self, skipping: Skipping) -> Self {
        self.change(move |s| s.module_skipping = skipping)
    }

    /// Prefetches the filter lines of all candidates before testing the first (default), or not.
    #[must_use]
    pub fn prefetch(self, on: bool) -> Self {
        self.change(move |s| s.prefetch = on)
    }

    /// Writes data blocks with a tag for each entry (default), by which a lookup finds the entry
    /// without a search; off is the baseline, which searches. Existing tables stay as they are.
    #[must_use]
    pub fn block_tags(self, on: bool) -> Self {
        self.change(move |s| s.block_tags = on)
    }

    /// Memtables answer lookups by an index of digests (default), or by key order (the baseline).
    #[must_use]
    pub fn memtable_index(self, on: bool) -> Self {
        self.change(move |s| s.memtable_index = on)
    }

    /// Samples one lookup and one seek in 64 for the statistics of each table: lookups that reach
    /// it, empty or not (default). Off: filter bits and memory are distributed by the sizes of the
    /// tables alone.
    #[must_use]
    pub fn statistics(self, on: bool) -> Self {
        self.change(move |s| s.statistics = on)
    }

    /// Self-tuning of the design: off (default), advise (report better designs as events), or auto
    /// (move to a better design for the recent workload). [`Db::undo_redesign`] reverts such a
    /// move.
    #[must_use]
    pub fn tuning(self, tuning: Tuning) -> Self {
        self.change(move |s| s.tuning = tuning)
    }

    /// How level capacities are derived: [`Sizing::Auto`] (default), from the size of the last
    /// level up, or [`Sizing::Manual`], from the write buffer down as in the papers.
    #[must_use]
    pub fn sizing(self, sizing: Sizing) -> Self {
        self.change(move |s| s.sizing = sizing)
    }

    /// Reads tables with direct I/O in this open, past the system's page cache: the memory budget
    /// is then the only cache. A file system without direct I/O is read as usual, with a warning.
    /// Default off.
    #[must_use]
    pub fn direct_io(self, on: bool) -> Self {
        self.change(move |s| s.direct_io = on)
    }

    /// Maximum number of table files kept open at once, in this open. Minimum 16; less where the
    /// system's limit for the process is lower. Default 1,000.
    #[must_use]
    pub fn max_open_files(self, count: u32) -> Self {
        self.change(move |s| s.max_open_files = count)
    }

    /// Splits values of at least `from_bytes` into chunks of `chunk_bytes`, in tables written from
    /// now on. For tests, which can then use small values.
    #[doc(hidden)]
    pub fn large_values(self, from_bytes: usize, chunk_bytes: usize) -> Self {
        self.change(move |s| s.large_values = LargeValues { from_bytes, chunk_bytes })
    }

    /// Target size of tables. A table that reaches it is finished, unless little is left to
    /// compact: the last table of a compaction may be half as large again. Default: a sixteenth of
    /// the memory budget, from 2 to 64 MiB. Where open tables would take more than an eighth of the
    /// budget (some 2 KiB each), larger tables are written.
    #[must_use]
    pub fn file_size(self, bytes: u64) -> Self {
        self.change(move |s| s.file_bytes = Some(bytes))
    }

    /// Maximum size of a data block, uncompressed, from 64 to 4,096 bytes (default).
    #[must_use]
    pub fn block_bytes(self, bytes: usize) -> Self {
        self.change(move |s| s.block_bytes = bytes)
    }

    /// Default durability of writes, used unless a write gives its own. Default
    /// [`Durability::NoSync`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        self.change(move |s| s.durability = durability)
    }

    /// Writes no log in this open: after a crash the state is that of the last flush.
    #[must_use]
    pub fn no_wal(self, on: bool) -> Self {
        self.change(move |s| s.no_wal = on)
    }

    /// Log size at which its memtables are sealed. Default 1 GiB.
    #[must_use]
    pub fn max_wal_bytes(self, bytes: u64) -> Self {
        self.change(move |s| s.wal_bytes = bytes)
    }

    /// Level-0 runs that trigger a compaction of level 0. Default 4; with [`Sizing::Manual`] 1, so
    /// that trees match the papers.
    #[must_use]
    pub fn l0_compaction_trigger(self, runs: u32) -> Self {
        self.change(move |s| s.l0_compaction_trigger = Some(runs))
    }

    /// The former name of [`Self::l0_compaction_trigger`].
    #[deprecated(since = "0.2.0", note = "renamed to `l0_compaction_trigger`")]
    pub fn inbox_trigger(self, runs: u32) -> Self {
        self.l0_compaction_trigger(runs)
    }

    /// Level-0 runs above which writers are slowed. Default 12, with [`Sizing::Manual`] 4.
    #[must_use]
    pub fn l0_slowdown_runs(self, runs: u32) -> Self {
        self.change(move |s| s.l0_slowdown_runs = Some(runs))
    }

    /// The former name of [`Self::l0_slowdown_runs`].
    #[deprecated(since = "0.2.0", note = "renamed to `l0_slowdown_runs`")]
    pub fn inbox_soft_runs(self, runs: u32) -> Self {
        self.l0_slowdown_runs(runs)
    }

    /// Level-0 runs at which writers stop until a compaction ends. Default 24, with
    /// [`Sizing::Manual`] 12.
    #[must_use]
    pub fn l0_stop_runs(self, runs: u32) -> Self {
        self.change(move |s| s.l0_stop_runs = Some(runs))
    }

    /// The former name of [`Self::l0_stop_runs`].
    #[deprecated(since = "0.2.0", note = "renamed to `l0_stop_runs`")]
    pub fn inbox_hard_runs(self, runs: u32) -> Self {
        self.l0_stop_runs(runs)
    }

    /// Maximum number of sealed memtables that wait for their flush; beyond it writers wait.
    /// Default 2.
    #[must_use]
    pub fn max_immutable_memtables(self, count: u32) -> Self {
        self.change(move |s| s.immutable_memtables = count)
    }

    /// Limit of compaction writes in bytes per second; 0 (default): no limit.
    #[must_use]
    pub fn rate_limit_bytes_per_s(self, bytes: u64) -> Self {
        self.change(move |s| s.rate_limit_bytes_per_s = bytes)
    }

    /// Compaction threads in this open, from 1. Default: one for each core, at most 4. The memory
    /// budget limits them, given or not, to one for every 32 MiB; from 8 MiB on two are allowed.
    #[must_use]
    pub fn background_threads(self, count: u32) -> Self {
        self.change(move |s| s.background_threads = Some(count))
    }

    /// Whether compactions start automatically in this open (default), or only in [`Db::compact`].
    #[must_use]
    pub fn auto_compaction(self, on: bool) -> Self {
        self.change(move |s| s.auto_compaction = on)
    }

    /// Creates the database if there is none (default).
    #[must_use]
    pub fn create_if_missing(mut self, on: bool) -> Self {
        self.create_if_missing = on;
        self
    }

    /// Fails with `Invalid` if a database exists.
    #[must_use]
    pub fn error_if_exists(mut self, on: bool) -> Self {
        self.error_if_exists = on;
        self
    }

    /// Opens without writing a byte: takes a shared lock and replays the log into memory.
    #[must_use]
    pub fn read_only(mut self, on: bool) -> Self {
        self.read_only = on;
        self
    }

    /// Records the options given to this builder in the database, so that they hold for every later
    /// open that does not give them. Default off: they hold for this open. Never recorded: how to
    /// open (this option, [`Self::read_only`], [`Self::create_if_missing`] ...), limits of the
    /// process (threads, open files, direct I/O) and experiments. A read-only open records nothing.
    #[must_use]
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// Maximum wait, in whole milliseconds, while another handle or process has the database open.
    /// Default 0: the open fails with `Locked` at once.
    #[must_use]
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// On damage inside the durable part of a log, recovers everything before it instead of
    /// failing.
    #[must_use]
    pub fn recovery_point_in_time(mut self, on: bool) -> Self {
        self.point_in_time = on;
        self
    }

    /// Sets the listener, which receives every [`crate::Event`]. A panic in it is caught.
    #[must_use]
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Writes events to the file `LOG` in the database's directory (default), rotated.
    #[must_use]
    pub fn info_log(mut self, on: bool) -> Self {
        self.info_log = on;
        self
    }

    /// Measures the time of each phase of a lookup, which makes lookups slower. Default off.
    #[must_use]
    pub fn timers(mut self, on: bool) -> Self {
        self.timers = on;
        self
    }

    /// Opens the database. The given options hold for this open; [`Builder`] says which are
    /// recorded.
    ///
    /// # Errors
    /// `Locked` if another handle or process has the database open; `Invalid` for a wrong option;
    /// `Corruption`, `Unsupported`, `Io` and `NoSpace` for failures of the files and the system.
    pub fn open(self) -> Result<Db> {
        Db::open_with(self)
    }

    /// The recorded settings with the changes of this open applied.
    pub(crate) fn settings_over(&self, recorded: Settings) -> Settings {
        let mut settings = recorded;
        for change in &self.changes {
            change(&mut settings);
        }
        settings.live.change(LiveSettings::apply_policy);
        settings
    }
}
