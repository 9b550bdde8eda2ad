//! Options of the engine on the command line, each defined once and flattened into the commands.
//!
//! There are two sets: [`EngineOptions`] for commands that write, [`ReaderOptions`] for those that
//! only read, with the options that affect a reader. An option that is not given keeps the value
//! recorded in the database.
//!
//! An option that the engine does not have is an error, never ignored.

use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use shamba::{
    Allocation, Builder, Compression, DigestKind, Durability, Experimental, FilterLayout, MergePolicy,
    Modules, Residency, Sizing, Skipping, Tuning,
};

use crate::sizes::parse_size;

/// A switch: `on` or `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// One heading, because clap groups arguments by heading.
const HEADING: &str = "Options of the engine (they hold for this run; a new database records those of its tree and format, \
                       --record-options records all that are given; defaults are those of a new database)";

/// Options of commands that write.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct EngineOptions {
    #[command(flatten)]
    reader: ReaderOptions,
    /// T, how much larger each level is than the one above, from 2 (default: 10)
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    size_ratio: Option<f64>,
    /// How runs are merged: leveling, tiering or lazy-leveling (default: leveling)
    #[arg(long, value_name = "POLICY", value_parser = parse::<MergePolicy>)]
    policy: Option<MergePolicy>,
    /// Size at which the memtable is flushed, the unit of level capacities; at most an eighth of
    /// the memory budget, a quarter from 128MiB on (default: 64MiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    write_buffer: Option<u64>,
    /// Filter bits per key, in the mean over the tree; 0 writes no filters (default: 10)
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, conflicts_with = "filter_memory")]
    bits_per_key: Option<f64>,
    /// Size of all filters together, in the place of --bits-per-key
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    filter_memory: Option<u64>,
    /// What filter bits follow when tables are built: uniform (nothing), monkey (the sizes of the
    /// runs) or workload (the lookups that each table gets) (default: monkey)
    #[arg(long, value_name = "KIND", value_parser = parse::<Allocation>)]
    allocation: Option<Allocation>,
    /// Family of filters: blocked (one cache line a key), modular:D (D blocked modules that share
    /// the bits, asked one after the other), modular:D:S (the first with S thousandths of the
    /// bits), standard or standard-double (as in the papers), auto (default: auto, which is blocked
    /// while all filters fit well into the memory budget, else modular:3)
    #[arg(long, value_name = "FAMILY", value_parser = parse_layout)]
    filter_layout: Option<Layout>,
    /// Short for --filter-layout modular:D, from 1 to 7
    #[arg(long, value_name = "D", conflicts_with = "filter_layout", value_parser = parse_modules)]
    modules: Option<Layout>,
    /// Hash function of lookups and filters: xxh3, xxh64, rapid, murmur64a, city64 or crc32c; fixed
    /// when the database is created (default: xxh3)
    #[arg(long, value_name = "KIND", value_parser = parse::<DigestKind>)]
    digest: Option<DigestKind>,
    /// Compression of blocks: none, lz4 or zstd; a list goes by level, from level 0 (default: none)
    #[arg(long, value_name = "KIND[,KIND...]", value_parser = parse_compression)]
    compression: Option<Levels>,
    /// Write data blocks with tags, by which lookups find entries (default: on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    block_tags: Option<Switch>,
    /// What the database does about its own design: off, advise, which says in the info log what
    /// would be better, or auto, which moves there by itself (default: off)
    #[arg(long, value_name = "off|advise|auto", value_parser = parse::<Tuning>)]
    tuning: Option<Tuning>,
    /// Where level capacities come from: auto, from the last level's size up, or manual, from the
    /// write buffer down as in the papers (default: auto)
    #[arg(long, value_name = "auto|manual", value_parser = parse::<Sizing>)]
    sizing: Option<Sizing>,
    /// About the size of table files; larger where so many would take more than an eighth of the
    /// memory budget (default: a sixteenth of the memory budget, from 2MiB to 64MiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    file_size: Option<u64>,
    /// Threads that merge, at most one for every 32 MiB of the memory budget, or two from 8 MiB on
    /// (default: one a core, up to 4)
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=256))]
    background_threads: Option<u32>,
    /// When writes are synced to the device: with each one, never, or within MS milliseconds;
    /// buffered keeps them in the process's memory for a while, so that its death loses the last
    /// ones (default: never)
    #[arg(long, value_name = "always|never|MS|buffered", value_parser = parse_sync)]
    sync: Option<Durability>,
    /// Record the options that are given in the database, so that they hold for every later run
    /// that does not give them
    #[arg(long)]
    record_options: bool,
    /// Keep no log: what was not flushed is lost with the process (default: off)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    no_wal: Option<Switch>,
}

/// Options of commands that read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct ReaderOptions {
    /// What the engine counts (block cache, memtables, filters, indexes, tables being built) is
    /// kept within this; the process takes some 10 to 20 MiB more (default: 256MiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_budget: Option<u64>,
    /// One hash per lookup, or (off) the baseline: one for every filter that is consulted (default:
    /// on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    hash_sharing: Option<Switch>,
    /// How filters and index partitions are held in memory: budgeted (those that save most), pinned
    /// (all) or cached (in the block cache, as blocks) (default: budgeted)
    #[arg(long, value_name = "KIND", value_parser = parse::<Residency>)]
    residency: Option<Residency>,
    /// The most that filters and indexes hold, where residency is budgeted (default: what pays
    /// within the memory budget)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    resident_limit: Option<u64>,
    /// Divide memory by the pages of 4 KiB that it saves reading, as the papers do, not by the time
    /// saved; never recorded (default: off)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    count_ios: Option<Switch>,
    /// Which modules of a filter a lookup may pass over where memory does not hold them: none,
    /// partial (any but the first) or full (any) (default: full)
    #[arg(long, value_name = "WHICH", value_parser = parse::<Skipping>)]
    skipping: Option<Skipping>,
    /// A switch for experiments, as often as wanted, for this run only:
    /// filter-partition=sliced|whole and index-partition=sliced|whole, what the cache holds at once
    /// with --residency cached
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_experimental)]
    experimental: Vec<String>,
    /// Ask for the filter lines of all candidates before testing the first (default: on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    prefetch: Option<Switch>,
    /// Memtables answer lookups by an index of digests, or (off) the baseline: by their order
    /// (default: on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    memtable_index: Option<Switch>,
    /// Sample one lookup and one seek in 64 for what is known of each table's reads (default: on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    statistics: Option<Switch>,
    /// Read tables past the system's page cache (default: off)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    direct_io: Option<Switch>,
    /// Table files kept open at once, fewer where the system lets the process have few (default:
    /// 1000)
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(16..=1 << 20))]
    max_open_files: Option<u32>,
    /// Wait up to so many milliseconds while another process has the database open (default: 0)
    #[arg(long, value_name = "MS")]
    open_timeout: Option<u64>,
    /// Let each read of a file take so many microseconds longer, as on a slower device (default: 0)
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    device_read_us: Option<f64>,
    /// Let each append and sync take so many microseconds longer (default: 0)
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    device_write_us: Option<f64>,
    /// Let reads of a file also take the time of their bytes at so many MiB a second (default: 0,
    /// unlimited)
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    device_mib_per_s: Option<f64>,
}

fn parse_experimental(text: &str) -> Result<String, String> {
    Experimental::default().set(text).map(|_| text.to_owned())
}

/// Compression by level. A separate type, because clap treats a `Vec` as an option given many
/// times.
#[derive(Clone, Debug)]
struct Levels(Vec<Compression>);

/// A family of filters; `None`: chosen by the memory budget. A separate type, because clap treats
/// an `Option` as an optional argument.
#[derive(Clone, Copy, Debug)]
struct Layout(Option<FilterLayout>);

impl ReaderOptions {
    /// Applies the given options to the builder.
    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = set(builder, self.memory_budget, Builder::memory_budget);
        let builder = set(builder, self.hash_sharing.map(Switch::is_on), Builder::hash_sharing);
        let builder = set(builder, self.residency, Builder::filter_residency);
        let builder = set(builder, self.resident_limit, Builder::resident_limit);
        let builder = set(builder, self.count_ios.map(Switch::is_on), Builder::count_ios);
        let builder = set(builder, self.skipping, Builder::module_skipping);
        let builder = self.experimental.iter().fold(builder, |builder, switch| {
            builder.experimental(|all| {
                // Validated when the command line was parsed.
                let _ = all.set(switch);
            })
        });
        let builder = set(builder, self.prefetch.map(Switch::is_on), Builder::prefetch);
        let builder = set(builder, self.memtable_index.map(Switch::is_on), Builder::memtable_index);
        let builder = set(builder, self.statistics.map(Switch::is_on), Builder::statistics);
        let builder = set(builder, self.direct_io.map(Switch::is_on), Builder::direct_io);
        let builder = set(builder, self.max_open_files, Builder::max_open_files);
        let wait = |builder: Builder, ms| builder.open_timeout(Duration::from_millis(ms));
        let builder = set(builder, self.open_timeout, wait);
        let us = |given: Option<f64>| given.unwrap_or(0.0);
        let builder = set(builder, self.device_mib_per_s, Builder::device_bandwidth_mib_per_s);
        builder.device_latency_us(us(self.device_read_us), us(self.device_write_us))
    }
}

impl EngineOptions {
    /// The same options, to be recorded in the database.
    #[must_use]
    pub fn recorded(&self) -> Self {
        Self { record_options: true, ..self.clone() }
    }

    /// Whether an option of this name, without the dashes, exists.
    pub fn has(name: &str) -> bool {
        let command = Self::augment_args(clap::Command::new("options"));
        command.get_arguments().any(|argument| argument.get_long() == Some(name))
    }

    /// Applies the given options to the builder.
    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = self.reader.apply(builder);
        let builder = set(builder, self.size_ratio, Builder::size_ratio);
        let builder = set(builder, self.policy, Builder::merge_policy);
        let builder = set(builder, self.write_buffer, Builder::write_buffer);
        let builder = set(builder, self.bits_per_key, Builder::bits_per_key);
        let builder = set(builder, self.filter_memory, Builder::filter_memory);
        let builder = set(builder, self.allocation, Builder::filter_allocation);
        let builder =
            set(builder, self.filter_layout.or(self.modules), |builder, Layout(layout)| match layout {
                Some(layout) => builder.filter_layout(layout),
                None => builder.filter_layout_auto(),
            });
        let builder = set(builder, self.digest, Builder::digest);
        let builder =
            set(builder, self.compression.clone().map(|levels| levels.0), Builder::compression_per_level);
        let builder = set(builder, self.block_tags.map(Switch::is_on), Builder::block_tags);
        let builder = set(builder, self.tuning, Builder::tuning);
        let builder = set(builder, self.sizing, Builder::sizing);
        let builder = set(builder, self.file_size, Builder::file_size);
        let builder = set(builder, self.background_threads, Builder::background_threads);
        let builder = set(builder, self.sync, Builder::durability);
        let builder = if self.record_options { builder.record() } else { builder };
        set(builder, self.no_wal.map(Switch::is_on), Builder::no_wal)
    }
}

fn set<T>(builder: Builder, value: Option<T>, setter: impl FnOnce(Builder, T) -> Builder) -> Builder {
    match value {
        Some(value) => setter(builder, value),
        None => builder,
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    if text == "auto" { Ok(Layout(None)) } else { parse(text).map(|layout| Layout(Some(layout))) }
}

fn parse_modules(text: &str) -> Result<Layout, String> {
    let modules = text.parse().ok().and_then(Modules::equal).map(FilterLayout::Modular);
    modules.map(|layout| Layout(Some(layout))).ok_or_else(|| "must be from 1 to 7".into())
}

fn parse_compression(text: &str) -> Result<Levels, String> {
    text.split(',').map(parse).collect::<Result<_, _>>().map(Levels)
}

fn parse_sync(text: &str) -> Result<Durability, String> {
    match text {
        "always" => Ok(Durability::Sync),
        "never" => Ok(Durability::NoSync),
        "buffered" => Ok(Durability::Buffered),
        _ => match text.parse() {
            Ok(ms) if ms > 0 => Ok(Durability::interval_ms(ms)),
            _ => Err("must be always, never, buffered or a number of milliseconds".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_and_compression_parse() {
        assert_eq!(parse_sync("always"), Ok(Durability::Sync));
        assert_eq!(parse_sync("never"), Ok(Durability::NoSync));
        assert_eq!(parse_sync("buffered"), Ok(Durability::Buffered));
        assert_eq!(parse_sync("250"), Ok(Durability::interval_ms(250)));
        for bad in ["", "0", "-5", "sometimes", "1.5"] {
            assert!(parse_sync(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_compression("none,lz4,zstd").map(|levels| levels.0),
            Ok(vec![Compression::None, Compression::Lz4, Compression::Zstd])
        );
        assert!(parse_compression("none,,zstd").is_err());
        assert!(parse_compression("gzip").is_err());
    }
}
