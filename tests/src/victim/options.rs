//! How a victim is started: options of its command line, drawn anew for each life.
//!
//! What an acknowledgement means is among them, so a life says what may be lost of it ([`Keeps`]).

use fastrand::Rng;

/// What a kill of the process must leave of acknowledged commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// All.
    All,
    /// A prefix that holds what was there before the last acknowledged sync or flush.
    Synced,
    /// The same without a log: only flushes count.
    Flushed,
}

/// Options of one life.
#[derive(Clone, Debug)]
pub struct Options {
    /// As they are typed.
    pub arguments: Vec<String>,
    /// What they promise.
    pub keeps: Keeps,
}

impl Options {
    /// Options that are given, which promise that all is kept.
    pub fn fixed(arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|text| (*text).to_owned()).collect(), keeps: Keeps::All }
    }

    /// Options by chance. Sizes are so small that a kill often meets a flush, a merge, or a change of logs.
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
        // Given in each life: those that are recorded would hold for the next one, too.
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
        let layouts = ["auto", "blocked", "standard", "modular:1", "modular:3", "modular:7", "modular:3:100"];
        option("filter-layout", pick(rng, &layouts));
        option("bits-per-key", pick(rng, &["0", "2", "10", "12"]));
        option("allocation", pick(rng, &["uniform", "monkey", "workload"]));
        option("residency", pick(rng, &["budgeted", "pinned", "cached"]));
        option("skipping", pick(rng, &["none", "partial", "full"]));
        option("block-tags", pick(rng, &["on", "off"]));
        option("tuning", pick(rng, &["off", "advise", "auto"]));
        option("background-threads", pick(rng, &["1", "2", "4"]));
        option("max-open-files", pick(rng, &["16", "1000"]));
        option("direct-io", pick(rng, &["off", "off", "on"]));
        Self { arguments, keeps }
    }
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}
