//! Options of a victim's command line, drawn anew for each life.
//!
//! They include the durability of acknowledgements, so a life knows what it may lose ([`Keeps`]).

use fastrand::Rng;

/// The acknowledged commits that must survive a kill of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// All of them.
    All,
    /// A prefix that includes everything before the last acknowledged sync or flush.
    Synced,
    /// The same without a log: only flushes count.
    Flushed,
}

/// Values of options that a keyspace has for itself.
const OF_KEYSPACE: [&[&str]; 5] = [
    &["compression=lz4", "compression=zstd", "compression=none", "compression=database"],
    &["policy=tiering", "policy=leveling", "policy=database"],
    &["file-size=4096", "file-size=database"],
    &["bits-per-key=0", "bits-per-key=14", "bits-per-key=database"],
    &["value-threshold=64", "value-threshold=off", "value-threshold=database"],
];

/// Options of one life.
#[derive(Clone, Debug)]
pub struct Options {
    /// Command line arguments.
    pub arguments: Vec<String>,
    /// The guarantee that they imply.
    pub keeps: Keeps,
}

impl Options {
    /// Given options, under which all commits are kept.
    pub fn fixed(arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|text| (*text).to_owned()).collect(), keeps: Keeps::All }
    }

    /// Random options. Sizes are so small that a kill often hits a flush, a compaction, or a change
    /// of logs.
    pub fn roll(rng: &mut Rng) -> Self {
        let mut arguments = Vec::new();
        let mut option = |name: &str, value: &str| {
            arguments.push(format!("--{name}"));
            arguments.push(value.to_owned());
        };
        let keeps = match rng.u8(..12) {
            0 => Keeps::Flushed,
            1 | 2 => Keeps::Synced,
            _ => Keeps::All,
        };
        // Given in each life: recorded options would apply to the next life, too.
        option("no-wal", if keeps == Keeps::Flushed { "on" } else { "off" });
        option(
            "sync",
            match keeps {
                Keeps::Flushed => "never",
                Keeps::Synced => "buffered",
                Keeps::All => pick(rng, &["always", "never", "never", "1", "50"]),
            },
        );
        option("policy", pick(rng, &["leveling", "tiering", "lazy-leveling"]));
        option("size-ratio", pick(rng, &["2", "2.5", "3", "4", "10"]));
        option("sizing", pick(rng, &["auto", "manual"]));
        option("write-buffer", pick(rng, &["1KiB", "4KiB", "8KiB", "16KiB", "64KiB", "1MiB"]));
        option("file-size", pick(rng, &["4KiB", "16KiB", "64KiB", "2MiB"]));
        option("memory-budget", pick(rng, &["4MiB", "8MiB", "16MiB", "128MiB"]));
        option("compression", pick(rng, &["none", "lz4", "zstd", "none,lz4,zstd"]));
        option("compression-dictionary", pick(rng, &["0", "256", "4KiB"]));
        let layouts = ["auto", "blocked", "standard", "modular:1", "modular:3", "modular:7", "modular:3:100"];
        option("filter-layout", pick(rng, &layouts));
        option("bits-per-key", pick(rng, &["0", "2", "10", "12"]));
        option("value-threshold", pick(rng, &["off", "auto", "64", "100"]));
        option("allocation", pick(rng, &["uniform", "monkey", "workload"]));
        option("residency", pick(rng, &["budgeted", "pinned", "cached"]));
        option("skipping", pick(rng, &["none", "partial", "full"]));
        option("block-tags", pick(rng, &["on", "off"]));
        option("tuning", pick(rng, &["off", "advise", "auto"]));
        option("background-threads", pick(rng, &["1", "2", "4"]));
        option("max-open-files", pick(rng, &["16", "1000"]));
        option("direct-io", pick(rng, &["off", "off", "on"]));
        // Of the default keyspace. They hold until another life gives others.
        if rng.bool() {
            option("prefix-extractor", pick(rng, &["none", "delimited:2f", "fixed:4", "capped:7"]));
        }
        for of_keyspace in OF_KEYSPACE {
            if rng.u8(..3) == 0 {
                option("keyspace-option", pick(rng, of_keyspace));
            }
        }
        Self { arguments, keeps }
    }
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}
