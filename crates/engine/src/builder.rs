//! The builder: every option of a database, set by name, then opened.
//!
//! An option that is given holds for the open; one that is not has its recorded value, or its default. So
//! the builder remembers *changes*, which recovery applies over what the manifest holds.

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
/// An option holds for the open that it is given to. What the database *records* holds for every open that
/// does not give the option:
/// - Creation records the options of the tree and its format: size ratio, merge policy, runs, write buffer,
///   sizing, filter bits, their allocation and layout, compression, sizes of tables and blocks, block tags.
///   The digest and its seed are fixed at creation.
/// - [`Db::redesign`] records the design that it moves to, and so does a tuner.
/// - [`Self::record`] records all options that this open is given: budget, durability and limits too.
///
/// So a service and an operator's command may open the same database with budgets and durabilities of their
/// own. Databases that builds before version 0.1 have written may have more recorded; it holds as well.
pub struct Builder {
    pub(crate) path: PathBuf,
    pub(crate) env: Env,
    /// Microseconds that each read, and each append and sync, takes longer.
    device_us: (f64, f64),
    /// MiB a second of reads of an emulated device; 0: unlimited.
    device_mib_per_s: f64,
    pub(crate) changes: Vec<Change>,
    pub(crate) digest: Option<DigestKind>,
    pub(crate) digest_seed: Option<u64>,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) read_only: bool,
    /// Whether the options that are given are recorded.
    pub(crate) record: bool,
    /// How long to wait for the lock.
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

    /// Lets each read of a file take `read_us` microseconds longer, and each append and sync `write_us`, in this open: a
    /// device that the machine does not have, for experiments ([`shamba_env::SlowFs`]). [`crate::Stats::emulated`]
    /// then says so. Fractions count; at most a second each. Default 0.
    #[must_use]
    pub fn device_latency_us(mut self, read_us: f64, write_us: f64) -> Self {
        self.device_us = (read_us, write_us);
        self
    }

    /// Bandwidth of the emulated device in MiB a second: a read takes the time of its bytes, beside the latency of
    /// [`Self::device_latency_us`]. 0 (default): unlimited.
    #[must_use]
    pub fn device_bandwidth_mib_per_s(mut self, mib_per_s: f64) -> Self {
        self.device_mib_per_s = mib_per_s;
        self
    }

    /// The world that the database lives in, its device emulated if that is wanted.
    ///
    /// # Errors
    /// `Invalid` for latencies that cannot be.
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

    /// Bytes that what the engine counts is kept within: block cache, memtables, filters and indexes of open
    /// tables, tables being built, what walks read ahead. Each is charged to one ledger before it is allocated
    /// ([`Db::memory`] shows it), and the block cache, then filters and indexes give way to what needs memory. The
    /// process takes some 10 to 20 MiB more (allocator, stacks). The budget bounds memtables, and by that the levels
    /// ([`Self::write_buffer`]): another one at the next open may move data to other levels. Default 256 MiB, least 4 MiB. Open tables take some 2 KiB
    /// each, beside their first and last keys; where that is more than half of the budget, some stay closed and each use
    /// opens them ([`crate::Stats::tables_closed`]).
    #[must_use]
    pub fn memory_budget(self, bytes: u64) -> Self {
        self.change(move |s| s.memory_budget_bytes = bytes)
    }

    /// T: how much larger each level is than the one above. Default 10; from 2. Larger: fewer levels to
    /// read, more merging under leveling, more runs under tiering.
    #[must_use]
    pub fn size_ratio(self, size_ratio: f64) -> Self {
        self.change_live(move |live| live.design.size_ratio = size_ratio)
    }

    /// Leveling (default; fewest runs), tiering (least merging) or lazy leveling (tiering above, one run on
    /// the last level). Sets the runs a level may have from the size ratio, whichever order they are given
    /// in.
    #[must_use]
    pub fn merge_policy(self, policy: MergePolicy) -> Self {
        self.change_live(move |live| live.policy = Some(policy))
    }

    /// K: runs that an inner level may have. Overrules the policy's value.
    #[must_use]
    pub fn inner_runs(self, runs: u32) -> Self {
        self.change_live(move |live| {
            live.policy = None;
            live.design.inner_runs = runs;
        })
    }

    /// Z: runs that the last level may have. Overrules the policy's value.
    #[must_use]
    pub fn last_runs(self, runs: u32) -> Self {
        self.change_live(move |live| {
            live.policy = None;
            live.design.last_runs = runs;
        })
    }

    /// Size at which memtables are sealed and flushed, and the unit of all level capacities. Default 64 MiB; where the memory
    /// budget has no room for memtables of that size, they are sealed, and (but for [`Sizing::Manual`]) levels sized, as if it
    /// were what there is room for: an eighth of the budget, a quarter from 128 MiB on.
    #[must_use]
    pub fn write_buffer(self, bytes: u64) -> Self {
        self.change_live(move |live| live.design.buffer_bytes = bytes)
    }

    /// Filter bits per key, in the mean over the tree: [`Self::filter_allocation`] says which table gets more. Default 10;
    /// 0 writes no filters. Takes the place of [`Self::filter_memory`].
    #[must_use]
    pub fn bits_per_key(self, bits: f64) -> Self {
        self.change_live(move |live| {
            live.design.bits_per_key = bits;
            live.filter_memory_bytes = None;
        })
    }

    /// Bytes of all filters together, whatever the entries, up to 26 bits for each. Takes the place of
    /// [`Self::bits_per_key`].
    #[must_use]
    pub fn filter_memory(self, bytes: u64) -> Self {
        self.change_live(move |live| live.filter_memory_bytes = Some(bytes))
    }

    /// What filter bits follow whenever a table is built: nothing, so that all tables get the same; the sizes of the runs,
    /// which makes the fewest false positives of lookups that are spread evenly; or the lookups that each table is
    /// seen to get ([`Self::statistics`]). Default [`Allocation::Monkey`]. Tables that exist keep what they have.
    #[must_use]
    pub fn filter_allocation(self, allocation: Allocation) -> Self {
        self.change_live(move |live| live.filter_allocation = allocation)
    }

    /// Size ratio, runs, buffer and filter bits at once.
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

    /// The digest's seed. Fixed at creation; default random, so that nobody can aim collisions.
    #[must_use]
    pub fn digest_seed(mut self, seed: u64) -> Self {
        self.digest_seed = Some(seed);
        self
    }

    /// One digest for the whole lookup (default), or the baseline: each filter after the first hashes again.
    #[must_use]
    pub fn hash_sharing(self, on: bool) -> Self {
        self.change(move |s| s.hash_sharing = on)
    }

    /// The family of the filters that are built from now on, and how many modules share their bits. Default: blocked while all
    /// filters fit well into the memory budget, three modules where they do not.
    #[must_use]
    pub fn filter_layout(self, layout: FilterLayout) -> Self {
        self.change(move |s| s.filter_layout = Some(layout))
    }

    /// The family of filters follows from the memory budget (default).
    #[must_use]
    pub fn filter_layout_auto(self) -> Self {
        self.change(|s| s.filter_layout = None)
    }

    /// How filters and index partitions are held in memory. Default: those that save most within the budget.
    #[must_use]
    pub fn filter_residency(self, residency: Residency) -> Self {
        self.change(move |s| s.filter_residency = residency)
    }

    /// Filters and indexes hold at most so many bytes, where residency is budgeted, however much of the memory budget is
    /// free: for experiments, and for who wants to see what less memory costs. Not recorded. Default: what pays.
    #[must_use]
    pub fn resident_limit(self, bytes: u64) -> Self {
        self.change(move |s| s.resident_bytes_max = Some(bytes))
    }

    /// The block cache holds at most so many bytes, however much of the memory budget is free: for experiments without one, as
    /// the papers have them. Default: what the others leave.
    #[must_use]
    pub fn cache_limit(self, bytes: u64) -> Self {
        self.change(move |s| s.cache_bytes_max = Some(bytes))
    }

    /// Counting mode: memory is divided by the pages of 4 KiB that it saves reading, as in the papers, and
    /// CPU time costs nothing. The block cache admits every block that is read; otherwise it admits one
    /// in 16 of the blocks whose reads were fast. Off (default): memory is divided by the time saved.
    #[must_use]
    pub fn count_ios(self, on: bool) -> Self {
        self.change(move |s| s.count_ios = on)
    }

    /// Baselines of the papers and other switches for experiments, which hold for this open only.
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

    /// Which modules of a filter a lookup may pass over where memory does not hold them. Default: any.
    #[must_use]
    pub fn module_skipping(self, skipping: Skipping) -> Self {
        self.change(move |s| s.module_skipping = skipping)
    }

    /// Ask for every candidate's filter line before testing the first (default), or not.
    #[must_use]
    pub fn prefetch(self, on: bool) -> Self {
        self.change(move |s| s.prefetch = on)
    }

    /// Write data blocks with a tag for each entry, by which a lookup finds it without a search (default), or
    /// without: the baseline, which searches. Tables that exist keep what they have.
    #[must_use]
    pub fn block_tags(self, on: bool) -> Self {
        self.change(move |s| s.block_tags = on)
    }

    /// Memtables answer lookups by an index of digests (default), or by their order: the baseline.
    #[must_use]
    pub fn memtable_index(self, on: bool) -> Self {
        self.change(move |s| s.memtable_index = on)
    }

    /// Sample one lookup and one seek in 64 for what is known of each table: how often they come to it, in vain or not (default),
    /// or none. What filter bits and memory follow from is then the sizes of the tables alone.
    #[must_use]
    pub fn statistics(self, on: bool) -> Self {
        self.change(move |s| s.statistics = on)
    }

    /// What the database does about its own design: nothing unless asked (default), say what would be better, or move to it
    /// by itself, for what is asked of it lately. [`Db::undo_redesign`] takes such a move back.
    #[must_use]
    pub fn tuning(self, tuning: Tuning) -> Self {
        self.change(move |s| s.tuning = tuning)
    }

    /// Where level capacities come from: [`Sizing::Auto`] (default), from the size of the last level up, or
    /// [`Sizing::Manual`], from the write buffer down as in the papers.
    #[must_use]
    pub fn sizing(self, sizing: Sizing) -> Self {
        self.change(move |s| s.sizing = sizing)
    }

    /// Read tables past the system's page cache, in this open: the memory budget is then all that caches. A
    /// file system that cannot is read as usual, with a warning. Default off.
    #[must_use]
    pub fn direct_io(self, on: bool) -> Self {
        self.change(move |s| s.direct_io = on)
    }

    /// Table files kept open at once, in this open, from 16; fewer where the system lets the process have few. Default
    /// 1,000.
    #[must_use]
    pub fn max_open_files(self, count: u32) -> Self {
        self.change(move |s| s.max_open_files = count)
    }

    /// Cuts values from `from_bytes` on into chunks of `chunk_bytes` in tables written from now on: so that a
    /// test need not write many bytes to see it happen.
    #[doc(hidden)]
    pub fn large_values(self, from_bytes: usize, chunk_bytes: usize) -> Self {
        self.change(move |s| s.large_values = LargeValues { from_bytes, chunk_bytes })
    }

    /// Size from which on a table is full, unless little is left to be merged: the last of a merge may get half as large again. Default: a
    /// sixteenth of the memory budget, from 2 to 64 MiB. Where so many tables would take more than an eighth of the budget as long
    /// as they are open (some 2 KiB each), larger ones are written.
    #[must_use]
    pub fn file_size(self, bytes: u64) -> Self {
        self.change(move |s| s.file_bytes = Some(bytes))
    }

    /// Most bytes of a data block, decompressed, from 64 to 4,096 (default).
    #[must_use]
    pub fn block_bytes(self, bytes: usize) -> Self {
        self.change(move |s| s.block_bytes = bytes)
    }

    /// What a write's acknowledgement means unless it says otherwise. Default [`Durability::NoSync`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        self.change(move |s| s.durability = durability)
    }

    /// Keep no log in this open: after a crash the state is that of the last flush.
    #[must_use]
    pub fn no_wal(self, on: bool) -> Self {
        self.change(move |s| s.no_wal = on)
    }

    /// A log longer than this seals its memtables. Default 1 GiB.
    #[must_use]
    pub fn max_wal_bytes(self, bytes: u64) -> Self {
        self.change(move |s| s.wal_bytes = bytes)
    }

    /// Flushed runs that start a merge down from level 0. Default 4; with [`Sizing::Manual`] 1, so that trees
    /// match the papers.
    #[must_use]
    pub fn inbox_trigger(self, runs: u32) -> Self {
        self.change(move |s| s.inbox_trigger = Some(runs))
    }

    /// Flushed runs in level 0 beyond which writers are slowed. Default 12, with [`Sizing::Manual`] 4.
    #[must_use]
    pub fn inbox_soft_runs(self, runs: u32) -> Self {
        self.change(move |s| s.inbox_soft_runs = Some(runs))
    }

    /// Flushed runs in level 0 at which writers wait. Default 24, with [`Sizing::Manual`] 12.
    #[must_use]
    pub fn inbox_hard_runs(self, runs: u32) -> Self {
        self.change(move |s| s.inbox_hard_runs = Some(runs))
    }

    /// Sealed memtables that may wait for their flush before writers wait. Default 2.
    #[must_use]
    pub fn max_immutable_memtables(self, count: u32) -> Self {
        self.change(move |s| s.immutable_memtables = count)
    }

    /// Bytes a second that merges may write; 0 (default): no limit.
    #[must_use]
    pub fn rate_limit_bytes_per_s(self, bytes: u64) -> Self {
        self.change(move |s| s.rate_limit_bytes_per_s = bytes)
    }

    /// Threads that merge, in this open, from 1. Default: one for each core, at most 4. One at most for every
    /// 32 MiB of the memory budget, two from 8 MiB on, whatever is asked for.
    #[must_use]
    pub fn background_threads(self, count: u32) -> Self {
        self.change(move |s| s.background_threads = Some(count))
    }

    /// Whether merges run by themselves (default), in this open, or only in [`Db::compact`].
    #[must_use]
    pub fn auto_compaction(self, on: bool) -> Self {
        self.change(move |s| s.auto_compaction = on)
    }

    /// Create the database if there is none (default).
    #[must_use]
    pub fn create_if_missing(mut self, on: bool) -> Self {
        self.create_if_missing = on;
        self
    }

    /// Fail with `Invalid` if there is a database already.
    #[must_use]
    pub fn error_if_exists(mut self, on: bool) -> Self {
        self.error_if_exists = on;
        self
    }

    /// Open without writing a byte: a shared lock, the log replayed into memory.
    #[must_use]
    pub fn read_only(mut self, on: bool) -> Self {
        self.read_only = on;
        self
    }

    /// Records the options that this builder is given in the database, so that they hold for every later open
    /// that does not give them. Default off: they hold for this open. Not recorded are what says how to open
    /// (this one, [`Self::read_only`], [`Self::create_if_missing`] ...), limits of the process (threads, open
    /// files, direct I/O) and experiments. A read-only open records nothing.
    #[must_use]
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// Waits at most so long, in whole milliseconds, while another handle or process has the database open. Default 0: the
    /// open fails with `Locked` at once.
    #[must_use]
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// At damage inside what a log promised to hold, recover everything before it instead of failing.
    #[must_use]
    pub fn recovery_point_in_time(mut self, on: bool) -> Self {
        self.point_in_time = on;
        self
    }

    /// Gets every [`crate::Event`]. A panic in it is contained.
    #[must_use]
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Write events to the file `LOG` in the database's directory (default), rotated.
    #[must_use]
    pub fn info_log(mut self, on: bool) -> Self {
        self.info_log = on;
        self
    }

    /// Measure where lookups spend their time (costs some of it). Default off.
    #[must_use]
    pub fn timers(mut self, on: bool) -> Self {
        self.timers = on;
        self
    }

    /// Opens the database. The options that were given hold for this open; which are recorded is said at
    /// [`Builder`].
    ///
    /// # Errors
    /// `Locked` if another holder has it; `Invalid` for a wrong option; `Corruption`, `Unsupported`, `Io`
    /// and `NoSpace` as the files and the system give cause.
    pub fn open(self) -> Result<Db> {
        Db::open_with(self)
    }

    /// The settings of this open over the recorded ones.
    pub(crate) fn settings_over(&self, recorded: Settings) -> Settings {
        let mut settings = recorded;
        for change in &self.changes {
            change(&mut settings);
        }
        settings.live.change(LiveSettings::apply_policy);
        settings
    }
}
