//! The table of options: the one place where an option is declared.
//!
//! A row has the name, the method, the field or live value with type and default, and then the
//! fields of [`OptionInfo`] that differ from their defaults (`declare.rs` shows the syntax). To add
//! an option, add a row and use the new field of `Settings`; `UPDATE_EXPECT=1 cargo test -p shamba
//! --test api options` then rewrites `docs/options.md`. Nothing else lists options.
//!
//! Rows under `main` are methods of [`Builder`] and flags in `--help`. The others are methods of
//! [`Experimental`]: baselines of the papers, limits for tests, and options that few programs need.

use std::time::Duration;

use shamba_filter::{FilterLayout, MAX_BITS_PER_KEY};
use shamba_key::DigestKind;
use shamba_model::allocation::Allocation;
use shamba_model::skip::Skipping;
use shamba_model::{MAX_RUNS, MAX_SIZE_RATIO, MergePolicy, Sizing};
use shamba_table::{CacheUnit, Compression, DICTIONARY_BYTES_MAX, LargeValues, Residency};

use super::declare::{declare_options, is_live, row, store, stored};
use super::value::OptionValue;
use super::{OptionInfo, Range, Recorded};
use crate::Builder;
use crate::options::experimental::Experimental;
use crate::options::settings::Tuning;
use crate::options::settings::{Durability, KeepLog, Live, LiveSettings};
use crate::options::values::ValueThreshold;
use shamba_model::memory::constants::BUDGET_BYTES_MIN;

const FILE_BYTES: Range = Range::Bytes(1 << 10, 1 << 40);
const VALUE_BYTES: Range = Range::Bytes(ValueThreshold::BYTES_MIN, ValueThreshold::BYTES_MAX);
const RUNS: Range = Range::Whole(1, MAX_RUNS as u64);
const L0_RUNS: Range = Range::Whole(1, 1 << 16);
const LATENCY_US: Range = Range::Real(0.0, 1e6);

declare_options! {
    main {
        /// Memory budget for block cache, memtables, filters, indexes and tables being built; the
        /// process takes up to 64 MiB more.
        ///
        /// Each consumer is charged to one ledger before it allocates
        /// ([`Db::memory`](crate::Db::memory) shows it); the read-ahead of iterators counts too.
        /// When memory is needed, the block cache shrinks first, then filters and indexes.
        ///
        /// The budget limits the size of memtables, and thereby of levels ([`Self::write_buffer`]):
        /// a different budget at the next open can move data to other levels. An open table takes
        /// some 2 KiB, plus its first and last keys. If all tables would take more than half of the
        /// budget, some stay closed and each use opens them ([`crate::Stats::tables_closed`]).
        "memory-budget" => memory_budget(bytes: u64) field memory_budget_bytes: u64 = 256 << 20;
        {
            value: "SIZE", unit: "bytes", range: Range::Bytes(BUDGET_BYTES_MIN, 1 << 50),
            recorded: Recorded::OnRequest("memory-budget"), for_readers: true, has_flag: true,
        }

        /// Sync of the log: always (before each write returns), never, or within MS milliseconds;
        /// buffered keeps recent writes in process memory, where a crash of the process loses them.
        ///
        /// A write can choose another durability ([`crate::WriteOptions`]).
        "sync" => durability(durability: Durability) field durability: Durability = Durability::NoSync;
        {
            value: "always|never|buffered|MS", unit: "ms",
            recorded: Recorded::OnRequest("sync"), has_flag: true,
        }

        /// Compression of data blocks; a list goes by level from level 0, and its last entry holds
        /// for deeper levels.
        "compression" => compression(by_level: impl Into<Vec<Compression>>)
            field compression: Vec<Compression> = vec![Compression::None];
        { value: "KIND[,KIND...]", recorded: Recorded::AtCreation("compression"), has_flag: true, }

        /// Size at which memtables are flushed, the unit of level capacities; at most an eighth of
        /// the memory budget, or a quarter from 128 MiB on.
        ///
        /// With [`Sizing::Manual`] the limit applies to memtables only, and levels follow the
        /// option.
        "write-buffer" => write_buffer(bytes: u64) live tree.design.buffer_bytes: u64 = 64 << 20;
        {
            value: "SIZE", unit: "bytes", range: FILE_BYTES,
            recorded: Recorded::Required("buffer_bytes"), has_flag: true,
        }

        /// Merge policy: leveling (fewest runs), tiering (least compaction) or lazy-leveling
        /// (tiering, with one run on the last level).
        ///
        /// Sets the runs per level from the size ratio, in whichever order the two are given.
        "policy" => merge_policy(policy: MergePolicy)
            live policy: Option<MergePolicy> = Some(MergePolicy::Leveling);
        {
            value: "leveling|tiering|lazy-leveling",
            recorded: Recorded::AtCreation("policy"), has_flag: true,
        }

        /// T, the size ratio of adjacent levels.
        ///
        /// A larger ratio means fewer levels to read, more compaction under leveling, and more runs
        /// under tiering.
        "size-ratio" => size_ratio(size_ratio: f64) live tree.design.size_ratio: f64 = 10.0;
        {
            value: "T", range: Range::Real(2.0, MAX_SIZE_RATIO),
            recorded: Recorded::Required("size_ratio"), has_flag: true,
        }

        /// Mean filter bits per key over the tree; 0 writes no filters.
        ///
        /// [`Experimental::filter_allocation`] distributes them over the tables. Replaces
        /// [`Experimental::filter_memory`].
        "bits-per-key" => bits_per_key(bits: f64) live tree.design.bits_per_key: f64 = 10.0;
        {
            value: "BITS", unit: "bits", range: Range::Real(0.0, MAX_BITS_PER_KEY),
            recorded: Recorded::Required("bits_per_key"), has_flag: true, excludes: Some("filter-memory"),
            supersedes: |settings| settings.live.change(|live| live.tree.filter_memory_bytes = None),
        }

        /// Self-tuning of the design: off, advise (report better designs) or auto (move to them).
        ///
        /// Better designs are reported as events and in the info log.
        /// [`Db::undo_redesign`](crate::Db::undo_redesign) reverts a move.
        "tuning" => tuning(tuning: Tuning) field tuning: Tuning = Tuning::Off;
        { value: "off|advise|auto", recorded: Recorded::OnRequest("tuning"), has_flag: true, }

        /// Compaction threads, at most one per 32 MiB of memory budget, or two from 8 MiB on.
        "background-threads" => background_threads(count: u32)
            field background_threads: Option<u32> = None;
        {
            value: "COUNT|auto", range: Range::Whole(1, 256), has_flag: true,
            default_note: "one per core, up to 4",
        }

        /// Maximum age of a tombstone in milliseconds; when it is reached, flushes and compactions
        /// remove the tombstone and the versions that it hides; 0 is no bound.
        ///
        /// The removal begins when the tombstone reaches this age, and is complete somewhat later:
        /// in a busy database when compactions get to it. A snapshot or an iterator that is older
        /// than the newest entry of the tombstone's table delays it until it ends. Without a bound,
        /// a tombstone is removed when an ordinary compaction happens to reach it, and an idle
        /// database writes nothing by itself.
        "tombstone-age-max" => tombstone_age_max(age: Duration)
            field tombstone_age_max: Duration = Duration::ZERO;
        { value: "MS", unit: "ms", recorded: Recorded::OnRequest("tombstone-age-max"), has_flag: true, }

        /// Maximum number of open table files; less under a lower limit of the system.
        "max-open-files" => max_open_files(count: u32) field max_open_files: u32 = 1000;
        { value: "COUNT", range: Range::Whole(16, 1 << 20), for_readers: true, has_flag: true, }

        /// Reads tables with direct I/O, bypassing the page cache.
        ///
        /// The memory budget is then the only cache. If the file system does not support direct
        /// I/O, tables are read through the page cache, with a warning.
        "direct-io" => direct_io(on: bool) field direct_io: bool = false;
        { value: "on|off", for_readers: true, has_flag: true, }

        /// Appends to the log by copying into a mapped file, where the system permits it, instead
        /// of by system calls: small writes take a third of the time and are as durable.
        ///
        /// On Linux, for ext4, XFS, tmpfs and overlayfs. Either way, appended bytes survive the end
        /// of the process, and a power loss once they are synced. A failing device is reported by a
        /// signal (`SIGBUS`). The first database of a process installs a handler for it, which
        /// forwards signals that do not concern a log to the previous handler. Turn the option off
        /// in a process that replaces such handlers without forwarding signals.
        "map-log" => map_log(on: bool) field map_log: bool = true;
        { value: "on|off", has_flag: true, }

        /// Longest time, in milliseconds, that a write waits for flushes and compactions before it
        /// fails with `Stalled`; 0 waits as long as they make progress.
        ///
        /// A write can choose another deadline ([`crate::WriteOptions`]). Without one it fails when
        /// background work has made no progress for ten minutes.
        "write-deadline" => write_deadline(deadline: Duration)
            field write_deadline: Duration = Duration::ZERO;
        { value: "MS", unit: "ms", has_flag: true, }

        /// Milliseconds to wait while another handle or process has the database open; 0 fails at
        /// once with `Locked`.
        "open-timeout" => open_timeout(timeout: Duration) field open_timeout: Duration = Duration::ZERO;
        { value: "MS", unit: "ms", for_readers: true, has_flag: true, }

        /// Creates the database if there is none.
        "create-if-missing" => create_if_missing(on: bool) field create_if_missing: bool = true;
        { value: "on|off", }

        /// Opens without writing a byte, under a shared lock; the log is replayed into memory.
        "read-only" => read_only(on: bool) field read_only: bool = false;
        { value: "on|off", }

        /// Writes events to the file `LOG` in the database's directory, with rotation.
        "info-log" => info_log(on: bool) field info_log: bool = true;
        { value: "on|off", }

        /// Records the given options in the database, as defaults of later opens.
        ///
        /// [`Self::record`] turns it on.
        "record-options" => [hidden] record_options(on: bool) field record: bool = false;
        { value: "on|off", has_flag: true, }
    }

    experimental {
        /// K, the maximum number of runs on inner levels, instead of the number of the merge
        /// policy.
        ///
        /// The policy still sets Z, in whichever order the two are given.
        "inner-runs" => inner_runs(runs: u32) live tree.design.inner_runs: u32 = 1;
        {
            value: "COUNT", range: RUNS, recorded: Recorded::Required("inner_runs"),
            default_note: "by the merge policy",
            supersedes: |settings| settings.live.change(|live| live.is_own.inner = true),
        }

        /// Z, the maximum number of runs on the last level, instead of the number of the merge
        /// policy.
        ///
        /// The policy still sets K, in whichever order the two are given.
        "last-runs" => last_runs(runs: u32) live tree.design.last_runs: u32 = 1;
        {
            value: "COUNT", range: RUNS, recorded: Recorded::Required("last_runs"),
            default_note: "by the merge policy",
            supersedes: |settings| settings.live.change(|live| live.is_own.last = true),
        }

        /// Total size of all filters, up to 26 bits per key, instead of bits-per-key.
        "filter-memory" => filter_memory(bytes: u64) live tree.filter_memory_bytes: Option<u64> = None;
        {
            value: "SIZE|auto", unit: "bytes", range: Range::Bytes(0, 1 << 50),
            recorded: Recorded::AtCreation("filter-memory"), has_flag: true, default_note: "by bits-per-key",
        }

        /// Distribution of filter bits over tables: uniform, monkey (by run sizes) or workload (by
        /// observed lookups).
        ///
        /// Monkey minimizes false positives for evenly spread lookups. Workload needs
        /// [`Self::statistics`]. Existing tables keep their filters.
        "allocation" => filter_allocation(allocation: Allocation)
            live tree.allocation: Allocation = Allocation::Monkey;
        { value: "uniform|monkey|workload", recorded: Recorded::AtCreation("allocation"), has_flag: true, }

        /// Filter family: blocked (one cache line per probe), modular:D (D blocked modules that
        /// share the bits, probed in order), modular:D:S (the first with S thousandths of the
        /// bits), ribbon:D or ribbon:D:S (likewise of ribbon modules: a quarter less memory at the
        /// same rate, but more time to build and to probe), standard or standard-double (as in the
        /// papers), or auto (blocked while all filters fit easily into the memory budget,
        /// otherwise modular:3; in the last run ribbon filters with as many modules, while the
        /// memory that they save is worth more than the time that they take).
        ///
        /// Holds for filters built from now on.
        "filter-layout" => filter_layout(layout: FilterLayout)
            field filter_layout: Option<FilterLayout> = None;
        {
            value: "auto|blocked|modular:D|modular:D:S|ribbon:D|ribbon:D:S|standard|standard-double",
            recorded: Recorded::AtCreation("filter-layout"), has_flag: true,
        }

        /// Hash function of lookups and filters, fixed at creation.
        "digest" => digest(kind: DigestKind) field digest: DigestKind = DigestKind::Xxh3;
        {
            value: "xxh3|xxh64|rapid|murmur64a|city64|crc32c",
            recorded: Recorded::Fixed("digest"), has_flag: true,
        }

        /// Seed of the digest, fixed at creation; random seeds prevent constructed collisions.
        "digest-seed" => digest_seed(seed: u64) field digest_seed: u64 = 0;
        { value: "SEED", recorded: Recorded::Fixed("digest-seed"), default_note: "random", }

        /// Computes one digest per lookup; off hashes the key again for each probed filter (the
        /// baseline).
        "hash-sharing" => hash_sharing(on: bool) field hash_sharing: bool = true;
        {
            value: "on|off", recorded: Recorded::OnRequest("hash-sharing"),
            for_readers: true, has_flag: true,
        }

        /// Residency of filters and index partitions: budgeted (the most valuable), pinned (all) or
        /// cached (in the block cache).
        "residency" => filter_residency(residency: Residency)
            field filter_residency: Residency = Residency::Budgeted;
        {
            value: "budgeted|pinned|cached", recorded: Recorded::OnRequest("residency"),
            for_readers: true, has_flag: true,
        }

        /// Maximum memory of filters and indexes with budgeted residency, even if more of the
        /// memory budget is free.
        "resident-limit" => resident_limit(bytes: u64) field resident_bytes_max: Option<u64> = None;
        {
            value: "SIZE|auto", unit: "bytes", default_note: "no fixed limit within the memory budget",
            for_readers: true, has_flag: true,
        }

        /// Maximum size of the block cache, even if more of the memory budget is free; 0 for
        /// experiments without a block cache, as in the papers.
        "cache-limit" => cache_limit(bytes: u64) field cache_bytes_max: Option<u64> = None;
        {
            value: "SIZE|auto", unit: "bytes", default_note: "all memory that the other parts leave",
            for_readers: true,
        }

        /// Memory of the record cache, which keeps single records that are read repeatedly; 0 is
        /// off, auto is as much as saves more there than elsewhere.
        ///
        /// It is at least 64 KiB and at most half of the memory budget, and pays where few of many
        /// keys are read often and lie scattered over the blocks. With `auto` a small cache for one
        /// key in eight tells what a larger one would save. It is off with another residency than
        /// `budgeted`, and where memory is divided by page reads (`count-ios`).
        "record-cache" => record_cache(bytes: impl Into<Option<u64>>)
            field record_cache_bytes: Option<u64> = None;
        {
            value: "SIZE|auto", unit: "bytes", recorded: Recorded::OnRequest("record-cache"),
            for_readers: true, has_flag: true,
        }

        /// Divides memory by saved 4 KiB page reads, as in the papers, instead of by saved time.
        ///
        /// CPU time then costs nothing, and the block cache admits every block that is read;
        /// otherwise it admits one in 16 of the blocks whose reads were fast.
        "count-ios" => count_ios(on: bool) field count_ios: bool = false;
        { value: "on|off", for_readers: true, has_flag: true, }

        /// Unit in which the block cache holds filters with cached residency: slices of at most
        /// 64 KiB, or whole modules.
        "filter-partition" => filter_partition(unit: CacheUnit)
            field filter_partition: CacheUnit = CacheUnit::Sliced;
        { value: "sliced|whole", for_readers: true, }

        /// Unit in which the block cache holds indexes: partitions of about 4 KiB, or whole
        /// indexes.
        "index-partition" => index_partition(unit: CacheUnit)
            field index_partition: CacheUnit = CacheUnit::Sliced;
        { value: "sliced|whole", for_readers: true, }

        /// Filter modules that a lookup may skip if they are not in memory: none, partial (any but
        /// the first) or full (any).
        "skipping" => module_skipping(skipping: Skipping) field module_skipping: Skipping = Skipping::Full;
        {
            value: "none|partial|full", recorded: Recorded::OnRequest("skipping"),
            for_readers: true, has_flag: true,
        }

        /// Prefetches the filter lines of all candidates before the first is tested.
        "prefetch" => prefetch(on: bool) field prefetch: bool = true;
        {
            value: "on|off", recorded: Recorded::OnRequest("prefetch"),
            for_readers: true, has_flag: true,
        }

        /// Reads blocks of tables from mapped files instead of by system calls, on Linux.
        ///
        /// For uncompressed data that the page cache holds: reads of blocks outside the block cache
        /// then need neither a system call nor a copy. Blocks that the page cache does not hold are
        /// read page by page, which is slower. Mapped pages are outside the memory budget and count
        /// as resident memory of the process, which the system takes back when memory is short. A
        /// failing device is reported by a signal (`SIGBUS`), as with a mapped log
        /// ([`crate::Builder::map_log`]). Use it only if no other process changes the files.
        /// Without effect with direct I/O.
        "map-reads" => map_reads(on: bool) field map_reads: bool = false;
        { value: "on|off", for_readers: true, }

        /// Makes several reads of a batch of lookups by one system call (`io_uring`), where the
        /// system has it and reads are slow; off makes them by threads (the baseline).
        "batch-reads" => batch_reads(on: bool) field batch_reads: bool = true;
        { value: "on|off", for_readers: true, }

        /// Stores a tag for each entry of a data block, by which lookups find entries; off searches
        /// by key (the baseline).
        ///
        /// Applies to tables written from then on.
        "block-tags" => block_tags(on: bool) field block_tags: bool = true;
        { value: "on|off", recorded: Recorded::AtCreation("block-tags"), has_flag: true, }

        /// Finds keys in memtables by a digest index; off searches in key order (the baseline).
        "memtable-index" => memtable_index(on: bool) field memtable_index: bool = true;
        {
            value: "on|off", recorded: Recorded::OnRequest("memtable-index"),
            for_readers: true, has_flag: true,
        }

        /// Samples one lookup and one seek in 64 for per-table statistics; off distributes filter
        /// bits and memory by table sizes alone.
        "statistics" => statistics(on: bool) field statistics: bool = true;
        {
            value: "on|off", recorded: Recorded::OnRequest("statistics"),
            for_readers: true, has_flag: true,
        }

        /// Derivation of level capacities: auto (from the last level up) or manual (from the write
        /// buffer down, as in the papers).
        "sizing" => sizing(sizing: Sizing) field sizing: Sizing = Sizing::Auto;
        { value: "auto|manual", recorded: Recorded::AtCreation("sizing"), has_flag: true, }

        /// Target size of table files; larger if open tables would take more than an eighth of the
        /// memory budget.
        ///
        /// A table of this size is finished, except near the end of a compaction: its last table
        /// may be half as large again, instead of being followed by a small one.
        "file-size" => file_size(bytes: u64) field file_bytes: Option<u64> = None;
        {
            value: "SIZE|auto", unit: "bytes", range: FILE_BYTES,
            recorded: Recorded::AtCreation("file-size"), has_flag: true,
            default_note: "a sixteenth of the memory budget, from 2MiB to 64MiB",
        }

        /// Maximum size of a data block, uncompressed.
        "block-size" => block_bytes(bytes: usize) field block_bytes: usize = 4096;
        {
            value: "SIZE", unit: "bytes", range: Range::Bytes(64, 4096),
            recorded: Recorded::AtCreation("block-size"),
        }

        /// Length from which on values are stored in value files instead of in tables; off stores
        /// all in tables, auto follows the workload.
        ///
        /// Compactions then move references of 32 bytes instead of the values, and reading a value
        /// takes one more read. Existing values move when a compaction rewrites them. Builds before
        /// value files refuse a database from the first such value on.
        "value-threshold" => value_threshold(threshold: impl Into<ValueThreshold>)
            field value_threshold: ValueThreshold = ValueThreshold::Off;
        {
            value: "SIZE|off|auto", unit: "bytes", range: VALUE_BYTES,
            recorded: Recorded::OnRequest("value-threshold"), has_flag: true,
        }

        /// Length of the dictionary with which zstd compresses the blocks of a table that a
        /// compaction writes; 0 is none, otherwise at least 256.
        ///
        /// Saves up to 20 % of the space of records that resemble each other. Each table contains
        /// its dictionary, and holds it in memory while it is open. It is made of pieces of the
        /// blocks that the compaction reads, and left out where it would save less than a
        /// sixteenth, and where the compaction's input or full tables are shorter than 32
        /// dictionaries. Builds before dictionaries refuse a database from the first such table on.
        "compression-dictionary" => compression_dictionary(bytes: usize)
            field dictionary_bytes: usize = 0;
        {
            value: "SIZE", unit: "bytes", range: Range::Bytes(0, DICTIONARY_BYTES_MAX as u64),
            default_note: "none", recorded: Recorded::OnRequest("compression-dictionary"), has_flag: true,
        }

        /// Maximum space of values in value files and of tables, as a multiple of the live data.
        ///
        /// A smaller bound makes compactions move more values: at 1.25, one that is overwritten
        /// evenly is moved about twice.
        "value-space" => value_space(space: f64) field value_space: f64 = 1.25;
        {
            value: "RATIO", range: Range::Real(1.1, 16.0),
            recorded: Recorded::OnRequest("value-space"), has_flag: true,
        }

        /// No write-ahead log: a crash loses unflushed data.
        "no-wal" => no_wal(on: bool) field no_wal: bool = false;
        { value: "on|off", has_flag: true, }

        /// Size of a log file at which its memtables are sealed.
        "max-wal-bytes" => max_wal_bytes(bytes: u64) field wal_bytes: u64 = 1 << 30;
        {
            value: "SIZE", unit: "bytes", range: Range::Bytes(1 << 10, 1 << 50),
            recorded: Recorded::OnRequest("wal-bytes"),
        }

        /// Keeps obsolete logs for streams of changes: at most this many bytes, each for at most
        /// this many milliseconds after it became obsolete.
        ///
        /// See [`Builder::keep_log`]. The oldest log is deleted first. Each counts at least 64 KiB,
        /// so their number is bounded, too. An open without the option deletes all of them, so
        /// record it ([`Builder::record`]).
        "keep-log" => keep_log(within: (u64, Duration)) field keep_log: KeepLog = KeepLog::OFF;
        { value: "BYTES:MS|off", recorded: Recorded::OnRequest("keep-log"), has_flag: true, }

        /// Level-0 runs that start a compaction of level 0.
        "l0-compaction-trigger" => l0_compaction_trigger(runs: u32)
            field l0_compaction_trigger: Option<u32> = None;
        {
            value: "COUNT|auto", range: L0_RUNS, recorded: Recorded::OnRequest("inbox-trigger"),
            default_note: "4; 1 with manual sizing, so that trees match the papers",
        }

        /// Level-0 runs above which writers are slowed.
        "l0-slowdown-runs" => l0_slowdown_runs(runs: u32) field l0_slowdown_runs: Option<u32> = None;
        {
            value: "COUNT|auto", range: L0_RUNS, recorded: Recorded::OnRequest("inbox-soft-runs"),
            default_note: "12; 4 with manual sizing",
        }

        /// Level-0 runs at which writers stall until a compaction ends.
        "l0-stop-runs" => l0_stop_runs(runs: u32) field l0_stop_runs: Option<u32> = None;
        {
            value: "COUNT|auto", range: L0_RUNS, recorded: Recorded::OnRequest("inbox-hard-runs"),
            default_note: "24; 12 with manual sizing",
        }

        /// Number of sealed memtables that are not flushed yet, at which writers stall. At one
        /// less, if that is more than one, they are slowed down.
        "max-immutable-memtables" => max_immutable_memtables(count: u32)
            field immutable_memtables: u32 = 3;
        {
            value: "COUNT", range: Range::Whole(1, 1 << 10),
            recorded: Recorded::OnRequest("immutable-memtables"),
        }

        /// Maximum rate of compaction writes in bytes per second; 0 is no limit.
        "rate-limit" => rate_limit_bytes_per_s(bytes: u64) field rate_limit_bytes_per_s: u64 = 0;
        { value: "SIZE", unit: "bytes/s", recorded: Recorded::OnRequest("rate-limit"), }

        /// Runs compactions automatically; off leaves compaction to explicit calls.
        ///
        /// See [`Db::compact`](crate::Db::compact).
        "auto-compaction" => auto_compaction(on: bool) field auto_compaction: bool = true;
        { value: "on|off", }

        /// Fails with `Invalid` if the database exists.
        "error-if-exists" => error_if_exists(on: bool) field error_if_exists: bool = false;
        { value: "on|off", }

        /// Longest time, in milliseconds, without progress of flushes and compactions after which a
        /// call that waits for them fails with `Stalled`; 0 waits for ever.
        ///
        /// That is so for writes without a deadline, `flush`, `compact`, `wait_idle` and the like:
        /// a device does not answer. The work goes on, and can be waited for again.
        "wait-timeout" => wait_timeout(timeout: Duration)
            field wait_timeout: Duration = Duration::from_secs(600);
        { value: "MS", unit: "ms", }

        /// Recovers up to the first damage inside the durable part of a log, instead of failing.
        "recovery-point-in-time" => recovery_point_in_time(on: bool) field point_in_time: bool = false;
        { value: "on|off", for_readers: true, }

        /// Times each phase of a lookup, which makes lookups slower.
        "timers" => timers(on: bool) field timers: bool = false;
        { value: "on|off", for_readers: true, }

        /// Microseconds added to each read of a file, to emulate a slower device.
        ///
        /// [`crate::Stats::emulated`] reports an emulated device
        /// ([`SlowFs`](shamba_env::SlowFs)).
        "device-read-us" => device_read_us(us: f64) field device_read_us: f64 = 0.0;
        { value: "US", unit: "us", range: LATENCY_US, for_readers: true, has_flag: true, }

        /// Microseconds added to each append and sync, to emulate a slower device.
        "device-write-us" => device_write_us(us: f64) field device_write_us: f64 = 0.0;
        { value: "US", unit: "us", range: LATENCY_US, for_readers: true, has_flag: true, }

        /// Read bandwidth of the emulated device; 0 is unlimited.
        ///
        /// A read takes the transfer time of its bytes in addition to [`Self::device_read_us`].
        "device-mib-per-s" => device_mib_per_s(mib_per_s: f64) field device_mib_per_s: f64 = 0.0;
        { value: "MIB", unit: "MiB/s", range: Range::Real(0.0, 1e9), for_readers: true, has_flag: true, }
    }
}
