//! `shamba plan --rocksdb` checked by RocksDB itself: its option parser reads every proposal, and a
//! database follows one.
//!
//! RocksDB writes OPTIONS files of several databases. The `shamba` command proposes changes of each
//! for several workloads and bounds on space. RocksDB's own parser loads each patched file, with
//! unknown options refused, a database is opened with what it read, and the OPTIONS file that this
//! database writes must have every proposed value.
//!
//! `--fill` then opens a database with a proposal of universal style, overwrites its keys at random
//! and compares sorted runs and bytes with what the proposal promises.
//!
//! Not here: how the proposals are found (`crates/cli/src/plan/rocksdb`).

use std::path::PathBuf;

use clap::Args;

use crate::peer::Result;

/// Options of the check.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// The shamba command, as `cargo build -p shamba-cli` makes it.
    #[arg(long, default_value = "../../target/debug/shamba")]
    pub shamba: PathBuf,
    /// Also fills a database with a proposal of universal style.
    #[arg(long)]
    pub fill: bool,
    /// Seed of the keys of the fill.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Without RocksDB nothing reads its files.
///
/// # Errors
/// Always.
#[cfg(not(feature = "rocksdb"))]
pub fn run(_options: &Options) -> Result<()> {
    Err("the advisor's files are checked by RocksDB: build with --features rocksdb".to_owned())
}

#[cfg(feature = "rocksdb")]
pub use with_rocksdb::run;

#[cfg(feature = "rocksdb")]
mod with_rocksdb {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use rust_rocksdb::{
        BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, Env, Options as RocksOptions,
        UniversalCompactOptions, UniversalCompactionStopStyle, WaitForCompactOptions,
    };
    use serde_json::Value;
    use tempfile::TempDir;

    use super::{Options, Result};

    const UNIVERSAL: &str = "compaction_options_universal";
    /// Shares of updates; the other operations are lookups that find nothing.
    const UPDATES: [&str; 4] = ["0.05", "0.5", "0.9", "1"];
    /// Bounds on space, including the default.
    const MAX_SPACE: [Option<&str>; 5] = [None, Some("1.5"), Some("3"), Some("8"), Some("inf")];

    /// Checks all proposals.
    ///
    /// # Errors
    /// Options that RocksDB refuses, or reads differently from the proposal.
    pub fn run(options: &Options) -> Result<()> {
        let bases = bases()?;
        let (mut proposals, mut of_universal, mut values) = (0, 0, 0);
        for (name, base) in &bases {
            for updates in UPDATES {
                for max_space in MAX_SPACE {
                    let what = format!("{name}, updates {updates}, --max-space {max_space:?}");
                    let proposal = propose(options, base, &["100M", "116", updates], max_space, None)?;
                    if proposal.changes.is_empty() {
                        continue;
                    }
                    let read = read_back(&proposal.patched).map_err(|error| format!("{what}: {error}"))?;
                    for (setting, to) in &proposal.changes {
                        compare(setting, to, &read).map_err(|error| format!("{what}: {error}"))?;
                        values += 1;
                    }
                    proposals += 1;
                    let is_universal = proposal.changes.iter().any(|(setting, _)| setting == UNIVERSAL);
                    of_universal += u32::from(is_universal);
                }
            }
        }
        refuses_what_is_wrong(options, &bases[0].1)?;
        println!(
            "advised: RocksDB accepted {proposals} files, {of_universal} of them with {UNIVERSAL}, and reads all {values} \
             proposed values as they were proposed; it refuses a wrong name and a wrong value"
        );
        // Of fewer it would be chance, and none would say nothing.
        if proposals < 40 || of_universal < 10 {
            return Err("too few proposals to say anything".to_owned());
        }
        if options.fill { fill(options) } else { Ok(()) }
    }

    /// A patched file and its changes: setting and new value.
    struct Proposal {
        patched: String,
        changes: Vec<(String, String)>,
        better: Value,
    }

    /// OPTIONS files as RocksDB writes them, by name.
    fn bases() -> Result<Vec<(&'static str, String)>> {
        let table = |options: &mut RocksOptions| {
            let mut table = BlockBasedOptions::default();
            table.set_bloom_filter(10.0, false);
            options.set_block_based_table_factory(&table);
        };
        let make: [(&'static str, fn(&mut RocksOptions)); 4] = [
            ("defaults", |_| {}),
            ("level style", |options| {
                options.set_write_buffer_size(16 << 20);
                options.set_max_bytes_for_level_base(64 << 20);
            }),
            ("universal style", |options| options.set_compaction_style(DBCompactionStyle::Universal)),
            ("universal style with options", |options| {
                options.set_compaction_style(DBCompactionStyle::Universal);
                options.set_level_zero_file_num_compaction_trigger(8);
                let mut universal = UniversalCompactOptions::default();
                universal.set_size_ratio(20);
                universal.set_min_merge_width(3);
                universal.set_max_merge_width(12);
                universal.set_stop_style(UniversalCompactionStopStyle::Similar);
                // Fewer than the runs that are proposed: RocksDB opens no database with that.
                universal.set_max_read_amp(8);
                options.set_universal_compaction_options(&universal);
            }),
        ];
        make.into_iter()
            .map(|(name, change)| {
                let mut options = RocksOptions::default();
                options.create_if_missing(true);
                options.set_compression_type(DBCompressionType::None);
                if name != "defaults" {
                    table(&mut options);
                }
                change(&mut options);
                let dir = temporary()?;
                drop(DB::open(&options, dir.path()).map_err(|error| format!("{name}: {error}"))?);
                Ok((name, newest_options(dir.path())?))
            })
            .collect()
    }

    /// Proposal of the command for `data`: entries, bytes per entry and the share of updates.
    fn propose(
        options: &Options,
        base: &str,
        data: &[&str; 3],
        max_space: Option<&str>,
        memory: Option<&str>,
    ) -> Result<Proposal> {
        let dir = temporary()?;
        let file = dir.path().join("OPTIONS");
        std::fs::write(&file, base).map_err(|error| error.to_string())?;
        let lookups = 1.0 - data[2].parse::<f64>().map_err(|error| error.to_string())?;
        let mut command = Command::new(&options.shamba);
        command.args(["plan", "cost", "--json", "--entries", data[0], "--entry-bytes", data[1]]);
        command.args(["--updates", data[2], "--lookups-zero", &lookups.to_string(), "--rocksdb"]).arg(&file);
        max_space.into_iter().for_each(|bound| _ = command.args(["--max-space", bound]));
        memory.into_iter().for_each(|bytes| _ = command.args(["--memory", bytes]));
        let output = command.output().map_err(|error| format!("{}: {error}", options.shamba.display()))?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let told: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("a text is missing".to_owned());
        let changes = told["changes"].as_array().ok_or("changes are missing")?;
        let change = |change: &Value| Ok((text(&change["setting"])?, text(&change["to"])?));
        Ok(Proposal {
            patched: text(&told["patched"])?,
            changes: changes.iter().map(change).collect::<Result<_>>()?,
            better: told["better"].clone(),
        })
    }

    /// Loads a file by RocksDB's parser.
    fn load(text: &str) -> Result<(RocksOptions, Vec<rust_rocksdb::ColumnFamilyDescriptor>)> {
        let dir = temporary()?;
        // The name by which RocksDB finds the newest of a database.
        std::fs::write(dir.path().join("OPTIONS-000007"), text).map_err(|error| error.to_string())?;
        let env = Env::new().map_err(|error| error.to_string())?;
        RocksOptions::load_latest(dir.path(), env, false, Cache::new_lru_cache(8 << 20))
            .map_err(|error| format!("RocksDB refuses the file: {error}"))
    }

    /// The settings that a database has which is opened with a file, as RocksDB writes them.
    fn read_back(text: &str) -> Result<BTreeMap<String, String>> {
        let dir = temporary()?;
        drop(open(text, dir.path())?);
        let written = newest_options(dir.path())?;
        let mut settings = BTreeMap::new();
        let mut is_wanted = false;
        for line in written.lines().map(str::trim) {
            if line.starts_with('[') {
                is_wanted =
                    line == "[CFOptions \"default\"]" || line == "[TableOptions/BlockBasedTable \"default\"]";
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_wanted) {
                settings.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(settings)
    }

    /// A new database with the options of a file.
    fn open(text: &str, dir: &Path) -> Result<DB> {
        let (mut options, families) = load(text)?;
        options.create_if_missing(true);
        DB::open_cf_descriptors(&options, dir, families)
            .map_err(|error| format!("RocksDB opens no database with the file: {error}"))
    }

    /// A proposed value, and the one that RocksDB has.
    fn compare(setting: &str, to: &str, read: &BTreeMap<String, String>) -> Result<()> {
        let has = read.get(setting).ok_or_else(|| format!("RocksDB writes no {setting}"))?;
        let is_same = match setting {
            UNIVERSAL => {
                let [to, has] = [statements(to), statements(has)];
                to.iter().all(|(name, value)| has.get(name) == Some(value))
            }
            // The advisor names the bits, the file the policy.
            "filter_policy" if to == "0" => has == "nullptr",
            "filter_policy" => {
                let bits = has.split([':', ';', '}']).find_map(|part| part.parse::<f64>().ok());
                bits == to.parse().ok()
            }
            _ => match (to.parse::<f64>(), has.parse::<f64>()) {
                (Ok(to), Ok(has)) => to == has,
                _ => to == has,
            },
        };
        if is_same { Ok(()) } else { Err(format!("{setting}: proposed {to}, RocksDB has {has}")) }
    }

    /// The statements in braces.
    fn statements(text: &str) -> BTreeMap<&str, &str> {
        let inside = text.trim_start_matches('{').trim_end_matches('}');
        inside.split(';').filter_map(|statement| statement.split_once('=')).collect()
    }

    /// The check can fail: RocksDB refuses a proposal with a wrong name, a wrong value, or fewer
    /// runs than its trigger.
    fn refuses_what_is_wrong(options: &Options, base: &str) -> Result<()> {
        let proposal = propose(options, base, &["100M", "116", "1"], Some("8"), None)?;
        if !proposal.patched.contains(UNIVERSAL) {
            return Err("no universal style for updates alone".to_owned());
        }
        for (from, to) in [
            ("{size_ratio=", "{size_ration="),
            ("min_merge_width=2", "min_merge_width=two"),
            ("compaction_style=kCompactionStyleUniversal", "compaction_style=kUniversal"),
        ] {
            let wrong = proposal.patched.replace(from, to);
            if wrong == proposal.patched {
                return Err(format!("the proposal has no {from}"));
            }
            if load(&wrong).is_ok() {
                return Err(format!("RocksDB accepts {to}: this check finds nothing"));
            }
        }
        Ok(())
    }

    /// Overwrites the keys of a database with proposed options, and compares runs and bytes with
    /// what is promised.
    fn fill(options: &Options) -> Result<()> {
        const ENTRIES: u32 = 400_000;
        const ROUNDS: u32 = 4;
        let base = &bases()?[2].1.replace("write_buffer_size=67108864", "write_buffer_size=1048576");
        let entries = ENTRIES.to_string();
        let proposal = propose(options, base, &[&entries, "116", "0.9"], None, Some("3MiB"))?;
        let setting = |name: &str| {
            let change = proposal.changes.iter().find(|(setting, _)| setting == name);
            change.map(|(_, to)| to.clone()).ok_or_else(|| format!("{name} is not among the changes"))
        };
        let universal = setting(UNIVERSAL)?;
        let trigger: u64 =
            setting("level0_file_num_compaction_trigger")?.parse().map_err(|_| "no trigger".to_owned())?;
        let promised = |field: &str| proposal.better[field].as_f64().ok_or_else(|| format!("no {field}"));
        let (space, written) = (promised("space_amplification")?, promised("write_amplification")?);
        let dir = temporary()?;
        let db = open(&proposal.patched, dir.path())?;
        let failed = |error: rust_rocksdb::Error| error.to_string();
        let number = |name: &str| {
            db.property_int_value(name).map_err(failed)?.ok_or_else(|| format!("no property {name}"))
        };
        let runs = || -> Result<u64> {
            let mut runs = 0;
            for level in 0..7 {
                let name = format!("rocksdb.num-files-at-level{level}");
                let files = db.property_value(&name).map_err(failed)?.unwrap_or_default();
                let files: u64 = files.parse().map_err(|_| format!("{name} is {files:?}"))?;
                runs += if level == 0 { files } else { files.min(1) };
            }
            Ok(runs)
        };
        let mut random = fastrand::Rng::with_seed(options.seed);
        let (mut runs_max, mut bytes_max) = (0, 0);
        let mut value = [0u8; 100];
        for round in 0..=ROUNDS {
            for number_of in 0..ENTRIES {
                let key = if round == 0 { number_of } else { random.u32(..ENTRIES) };
                random.fill(&mut value);
                db.put(format!("{key:016}"), value).map_err(failed)?;
                if number_of % 2_000 == 0 && round > 0 {
                    // After pending compactions: before, more runs may exist for a moment.
                    db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)?;
                    runs_max = runs_max.max(runs()?);
                    bytes_max = bytes_max.max(number("rocksdb.live-sst-files-size")?);
                }
            }
        }
        let stats = db.property_value("rocksdb.cfstats").map_err(failed)?.unwrap_or_default();
        let merged = stats.lines().find(|line| line.trim_start().starts_with("Sum")).unwrap_or("no sum");
        db.compact_range::<&[u8], &[u8]>(None, None);
        let bytes = number("rocksdb.live-sst-files-size")?;
        let measured = bytes_max as f64 / bytes as f64;
        println!(
            "fill, seed {}: {universal}, trigger {trigger}: runs at rest {runs_max}, at most {trigger}; bytes for a byte of \
             data {measured:.2}, at most {space:.2}; write amplification predicted {written:.1}, RocksDB's sums:\n{merged}",
            options.seed
        );
        if runs_max > trigger || measured > space || runs_max < trigger / 2 {
            return Err("RocksDB does otherwise than the proposal promises".to_owned());
        }
        Ok(())
    }

    /// The newest OPTIONS file of a database.
    fn newest_options(dir: &Path) -> Result<String> {
        let files = std::fs::read_dir(dir).map_err(|error| error.to_string())?;
        let named = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("OPTIONS-"))
        };
        let newest = files.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(named).max();
        let newest = newest.ok_or_else(|| format!("{} has no OPTIONS file", dir.display()))?;
        std::fs::read_to_string(newest).map_err(|error| error.to_string())
    }

    fn temporary() -> Result<TempDir> {
        tempfile::tempdir().map_err(|error| error.to_string())
    }
}
