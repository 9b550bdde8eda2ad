//! Fuzz targets: hostile bytes for every decoder, and operations with a crash, each a function of
//! bytes.
//!
//! A target puts the bytes in the place of a database's own file (a log, a manifest, a table, ...).
//! It then describes the file, checks the database without opening it, opens it, reads everything
//! in both directions, verifies, and repairs. Nothing may panic; the results may be anything. The
//! work is limited in proportion to the bytes (`steps`).
//! Targets named `...-file` only describe the file, and process a hundred times as many inputs in
//! the same time. Other targets take user input and the content of user files. So that mutations
//! pass the checksums, a fuzzing process calls [`make_checksums_equal`] first: files are then
//! written and read with one constant checksum. `operations` interprets the bytes as a short life
//! and a crash, and compares the recovered state with the model: in `lives`.
//!
//! [`seeds`] are the starting points of mutations; `tests/data/fuzz/TARGET` holds inputs worth
//! keeping. The same functions are run by the suite `fuzz` (random mutations, in CI) and by `fuzz/`
//! (coverage-guided, on demand).
//!
//! Not here: parsing of command lines and users' files (`crates/cli/src/fuzz.rs`).

mod lives;
mod steps;
mod texts;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fastrand::Rng;
use shamba::env::{Env, MemFs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{
    Builder, Changes, Compression, Db, Durability, Fifo, FilterLayout, KeyspaceOptions, MergePolicy, Prefix,
    ValueThreshold, WriteOptions, check_files, inspect,
};
pub use shamba_table::make_checksums_equal;

pub use self::steps::{Maxima, take_maxima};

use crate::files::{Files, files_of};
use crate::operators::appending;
use crate::pool;
use crate::runner::HOME;
use crate::seed::mixed;
use crate::tally::Tally;
use steps::Steps;
use texts::{BATCHES, COMMAND_LINES, HISTORIES, RECORDS, ROCKSDB_OPTIONS, TRACES};

/// Maximum keys of a keyspace that are looked up: mutated lengths may produce many.
const LOOKUPS_MAX: usize = 4_000;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its corpus.
    pub name: &'static str,
    /// Whether it needs constant checksums.
    pub is_decoder: bool,
    /// Number of random mutations in CI: about one second's worth.
    pub in_ci: u64,
    run: fn(&[u8]),
}

impl Target {
    /// Runs the target. A panic is a finding.
    pub fn run(&self, bytes: &[u8]) {
        (self.run)(bytes);
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    decoder("log", 800, |bytes| replaced(subject_of(".log", bytes), ".log", bytes)),
    decoder("manifest", 800, |bytes| replaced(subject_of("MANIFEST", bytes), "MANIFEST", bytes)),
    decoder("current", 500, |bytes| replaced(Subject::Closed, "CURRENT", bytes)),
    decoder("statistics", 500, |bytes| replaced(Subject::Closed, "STATISTICS", bytes)),
    decoder("table", 800, |bytes| replaced(subject_of(".sst", bytes), ".sst", bytes)),
    decoder("table-modular", 1_000, |bytes| replaced(Subject::Modular, ".sst", bytes)),
    decoder("table-standard", 1_000, |bytes| replaced(Subject::Standard, ".sst", bytes)),
    decoder("table-ribbon", 1_000, |bytes| replaced(Subject::Ribbon, ".sst", bytes)),
    decoder("table-zstd", 1_000, |bytes| replaced(Subject::Zstd, ".sst", bytes)),
    decoder("values", 1_000, |bytes| replaced(Subject::Separated, ".values", bytes)),
    decoder("log-file", 60_000, |bytes| described("000009.log", bytes)),
    decoder("manifest-file", 60_000, |bytes| described("MANIFEST-000009", bytes)),
    decoder("table-file", 40_000, |bytes| described("000009.sst", bytes)),
    decoder("values-file", 60_000, |bytes| described("000009.values", bytes)),
    decoder("history", 100_000, history),
    decoder("command-line", 500, shamba_cli::fuzz::command_line),
    decoder("batch-lines", 1_000, shamba_cli::fuzz::batch_lines),
    decoder("load", 100_000, shamba_cli::fuzz::load_records),
    decoder("rocksdb-options", 500, shamba_cli::fuzz::rocksdb_options),
    decoder("trace", 500, shamba_cli::fuzz::trace),
    Target { name: "operations", is_decoder: false, in_ci: 15, run: lives::operations },
];

const fn decoder(name: &'static str, in_ci: u64, run: fn(&[u8])) -> Target {
    Target { name, is_decoder: true, in_ci, run }
}

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Small databases of which one file is replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Closed,
    Killed,
    Modular,
    Standard,
    Ribbon,
    Zstd,
    /// With values in value files.
    Separated,
    /// With keyspaces that have rules, logs that are kept for streams, and events in the history of
    /// its manifest; killed.
    Ruled,
}

fn builder(env: &Env) -> Builder {
    let builder = Db::builder(HOME).env(env.clone()).durability(Durability::NoSync).info_log(false);
    let builder = builder
        .memory_budget(4 << 20)
        .write_buffer(16 << 10)
        .experimental(|e| e.file_size(64 << 10).block_bytes(256))
        .keyspace("other", appending(true));
    builder.merge_policy(MergePolicy::Tiering).experimental(|e| e.large_values(400, 128))
}

impl Subject {
    fn files(self) -> &'static Files {
        static FILES: OnceLock<BTreeMap<Subject, Files>> = OnceLock::new();
        const ALL: [Subject; 8] = [
            Subject::Closed,
            Subject::Killed,
            Subject::Modular,
            Subject::Standard,
            Subject::Ribbon,
            Subject::Zstd,
            Subject::Separated,
            Subject::Ruled,
        ];
        let of_all =
            FILES.get_or_init(|| ALL.into_iter().map(|subject| (subject, subject.build())).collect());
        &of_all[&self]
    }

    /// Two tables, range deletes, a chunked value, another keyspace with operands, a log with the
    /// last writes; in one also two value files.
    fn build(self) -> Files {
        if self == Self::Ruled {
            return ruled().expect("a database");
        }
        let layout: FilterLayout = match self {
            Self::Modular => "modular:3",
            Self::Standard => "standard",
            Self::Ribbon => "ribbon:2",
            _ => "blocked",
        }
        .parse()
        .expect("a layout");
        let compression = if self == Self::Zstd { Compression::Zstd } else { Compression::Lz4 };
        let (threshold, seed) = match self {
            // Its files have birth ids of their own.
            Self::Separated => (ValueThreshold::Bytes(100), 2),
            _ => (ValueThreshold::Off, 1),
        };
        let fs = MemFs::new();
        let env = Env::deterministic(Arc::new(fs.clone()), seed);
        let build = || -> shamba::Result<Db> {
            let db = builder(&env)
                .experimental(|e| e.filter_layout(layout))
                .compression(compression)
                .experimental(|e| e.compression_dictionary(if self == Self::Zstd { 256 } else { 0 }))
                .experimental(|e| e.value_threshold(threshold))
                .open()?;
            let other = db.keyspace("other")?;
            for round in 0..2u32 {
                for number in 0..24u32 {
                    db.put(format!("key/{number:03}"), format!("{round} and {number}"))?;
                }
                db.put(format!("large/{round}"), vec![round as u8; 900])?;
                if self == Self::Separated {
                    let ttl = WriteOptions::new().time_to_live(Duration::from_secs(1 << 30));
                    db.put("long", format!("{round} of many, ").repeat(20))?;
                    db.put_with("long/expiring", round.to_string().repeat(120), ttl)?;
                    other.put("long", [b'x'; 100])?;
                }
                other.put("alone", round.to_string())?;
                other.merge("merged", "one")?;
                other.merge("merged", round.to_string())?;
                other.merge("alone", "an operand")?;
                db.delete("key/003")?;
                db.delete_range("key/010".."key/013")?;
                db.flush()?;
            }
            if self == Self::Zstd {
                // Enough to sample, and tables long enough for a dictionary.
                for number in 0..300u32 {
                    let url = "https://example.org/customer/v3";
                    let record =
                        format!("{{\"schema\":\"{url}\",\"country\":\"Germany\",\"number\":{number}}}");
                    db.put(format!("record/{number:03}"), record)?;
                }
                db.compact()?;
            }
            let mut batch = db.batch();
            batch.put("in/the log", "value").delete("key/001");
            batch.commit_with(Durability::Sync)?;
            db.delete_range("key/020"..)?;
            db.put("large/in the log", vec![7; 700])?;
            other.merge("merged", "in the log")?;
            // Enough lookups that some are sampled, and statistics are saved at the close.
            for number in 0..2_000u32 {
                db.get(format!("key/{:03}", number % 40))?;
            }
            Ok(db)
        };
        let db = build().expect("a database");
        match self {
            Self::Killed => drop(db),
            _ => db.close().expect("close"),
        }
        let files = files_of(&fs);
        let has_dictionary =
            |(name, bytes): (&String, &Vec<u8>)| name.ends_with(".sst") && bytes[16] & 2 != 0;
        assert_eq!(
            files.iter().any(has_dictionary),
            self == Self::Zstd,
            "{self:?}: a table with a dictionary"
        );
        files
    }
}

/// A compaction filter that changes nothing: its name is in the manifest.
struct Unchanging;

impl CompactionFilter for Unchanging {
    fn name(&self) -> &str {
        "fuzz.unchanging"
    }

    fn filter(&self, _entry: &FilterEntry<'_>) -> Verdict {
        Verdict::Keep
    }
}

/// The files of [`Subject::Ruled`]. Its files have birth ids of their own.
///
/// # Errors
/// Of the engine.
fn ruled() -> shamba::Result<Files> {
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 3);
    let db = builder(&env).keep_log(1 << 20, Duration::from_secs(1 << 30)).record().open()?;
    let day = Duration::from_secs(86_400);
    let limits = Fifo::bytes(1_500).with_age(day);
    let log = db.keyspace_with("log", KeyspaceOptions::new().fifo(limits).prefix(Prefix::Fixed(3)))?;
    let filtered = KeyspaceOptions::new().compaction_filter(Unchanging).time_to_live(day).bits_per_key(4.0);
    let filtered = db.keyspace_with("filtered", filtered)?;
    for round in 0..3u32 {
        for number in 0..5u32 {
            log.put(format!("{round:02}/{number}"), [b'l'; 100])?;
            filtered.put(format!("key/{number:03}"), round.to_string())?;
        }
        db.keyspace(&format!("dropped {round}"))?.put("key", "value")?;
        db.drop_keyspace(&format!("dropped {round}"))?;
        db.ingest([(format!("ingested {round}"), "value")])?;
        db.flush()?;
    }
    db.wait_idle()?;
    let mut batch = db.batch();
    batch.put("in/the log", "value").put_in(&log, "in/the log", "value").delete_range("key/020"..);
    batch.commit_with(Durability::Sync)?;
    drop((log, filtered, db));
    let files = files_of(&fs);
    let logs = files.keys().filter(|name| is_kind(name, ".log")).count();
    assert!(logs > 2, "{logs} logs are kept");
    Ok(files)
}

/// The file of a kind that `bytes` come from, by their first ones, which have its birth id.
fn origin<'a>(files: &'a Files, kind: &str, bytes: &[u8]) -> Option<&'a String> {
    const HEAD_BYTES: usize = 40;
    let head = bytes.get(..HEAD_BYTES)?;
    let mut named = files.iter().filter(|(name, _)| is_kind(name, kind));
    named.find(|(_, file)| file.starts_with(head)).map(|(name, _)| name)
}

/// The subject that a file of a kind comes from.
fn subject_of(kind: &str, bytes: &[u8]) -> Subject {
    let own = [Subject::Separated, Subject::Ruled];
    let found = own.into_iter().find(|subject| origin(subject.files(), kind, bytes).is_some());
    found.unwrap_or(if kind == ".log" { Subject::Killed } else { Subject::Closed })
}

/// Whether a file of a database is of a kind, by its suffix or its prefix.
fn is_kind(name: &str, kind: &str) -> bool {
    name.ends_with(kind) || name.starts_with(kind)
}

/// Replaces a file of a kind in the database and runs all operations on it: the one that `bytes`
/// come from, or the last one.
fn replaced(subject: Subject, kind: &str, bytes: &[u8]) {
    let files = subject.files();
    let last = || files.keys().rfind(|name| is_kind(name, kind));
    let name = origin(files, kind, bytes).or_else(last).map_or(kind, String::as_str);
    let mut replaced = files.clone();
    replaced.insert(name.to_owned(), bytes.to_vec());
    let (env, steps) = Steps::over(&replaced);
    let path = Path::new(HOME).join(name);
    // The results may be anything.
    match kind {
        ".log" => _ = inspect::wal_file(&env, &path),
        ".sst" => _ = inspect::table_file(&env, &path),
        ".values" => _ = inspect::value_file(&env, &path),
        "MANIFEST" | "CURRENT" => _ = inspect::manifest_file(&env, Path::new(HOME)),
        _ => {}
    }
    _ = check_files(&env, Path::new(HOME));
    _ = read_all(builder(&env).read_only(true), &steps);
    _ = shamba::repair(&env, Path::new(HOME), Path::new("/repaired"));
    _ = read_all(builder(&env).experimental(|e| e.recovery_point_in_time(true)), &steps);
}

/// Describes the file alone.
fn described(name: &str, bytes: &[u8]) {
    let (env, _steps) = Steps::over(&Files::from([(name.to_owned(), bytes.to_vec())]));
    let path = Path::new(HOME).join(name);
    // Format it too: the description may be long, but must not fail.
    match name {
        _ if name.ends_with(".log") => {
            if let Ok(log) = inspect::wal_file(&env, &path) {
                _ = format!("{log:?}");
            }
        }
        _ if name.ends_with(".sst") => {
            if let Ok(table) = inspect::table_file(&env, &path) {
                _ = format!("{table:?}");
            }
        }
        _ if name.ends_with(".values") => {
            if let Ok(values) = inspect::value_file(&env, &path) {
                _ = format!("{values:?}");
            }
        }
        _ => {
            if let Ok(manifest) = inspect::manifest_file(&env, &path) {
                _ = format!("{manifest:?}");
            }
        }
    }
}

/// Parses and formats the redesigns recorded in a setting of a manifest.
fn history(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for redesigned in inspect::redesigns(&text) {
        _ = format!("{} {} {} {redesigned:?}", redesigned.from, redesigned.to, redesigned.by.name());
    }
}

fn read_all(builder: Builder, steps: &Steps) -> shamba::Result<()> {
    let db = builder.open()?;
    for space in db.keyspaces() {
        let keyspace = db.keyspace(&space)?;
        for (number, pair) in steps.counted(keyspace.iter()).enumerate() {
            let Ok((key, _)) = pair else { break };
            if number < LOOKUPS_MAX {
                _ = keyspace.get(&key);
            }
        }
        for pair in steps.counted(keyspace.iter().rev()) {
            if pair.is_err() {
                break;
            }
        }
    }
    for key in ["key/005", "key/011", "large/1", "long/expiring", "in/the log", "nothing"] {
        _ = db.get(key);
        _ = db.explain(key);
    }
    _ = db.multi_get(["key/001", "key/002", "large/0", "long"]);
    if let Ok(changes) = db.oldest_change_position().and_then(|oldest| db.changes_since(oldest)) {
        read_changes(changes, steps);
    }
    _ = db.verify();
    db.close()
}

fn read_changes(mut changes: Changes, steps: &Steps) {
    for change in steps.counted(std::iter::from_fn(|| changes.try_next().ok().flatten())) {
        _ = format!("{change:?}");
        if let shamba::Change::Batch(batch) = change {
            _ = batch.operations().count();
        }
    }
}

/// Starting points of a target's mutations.
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let of = |subject: Subject, kind: &str| {
        let files = subject.files().iter().filter(|(name, _)| is_kind(name, kind));
        files.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>()
    };
    let of_three = |kind: &str| {
        [of(Subject::Closed, kind), of(Subject::Separated, kind), of(Subject::Ruled, kind)].concat()
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    match target.name {
        "log" | "log-file" => [of(Subject::Killed, ".log"), of(Subject::Ruled, ".log")].concat(),
        "manifest" | "manifest-file" => of_three("MANIFEST"),
        "current" => of(Subject::Closed, "CURRENT"),
        "statistics" => of(Subject::Closed, "STATISTICS"),
        "history" => texts(&HISTORIES),
        "command-line" => texts(&COMMAND_LINES),
        "batch-lines" => texts(&BATCHES),
        "load" => texts(&RECORDS),
        "rocksdb-options" => texts(&ROCKSDB_OPTIONS),
        "trace" => texts(&TRACES),
        "table-file" => {
            use Subject::{Closed, Modular, Ribbon, Separated, Standard, Zstd};
            let subjects = [Closed, Modular, Standard, Ribbon, Zstd, Separated];
            subjects.into_iter().flat_map(|subject| of(subject, ".sst")).collect()
        }
        "table" => of_three(".sst"),
        "values" | "values-file" => of(Subject::Separated, ".values"),
        "table-modular" => of(Subject::Modular, ".sst"),
        "table-standard" => of(Subject::Standard, ".sst"),
        "table-ribbon" => of(Subject::Ribbon, ".sst"),
        "table-zstd" => of(Subject::Zstd, ".sst"),
        _ => lives::seeds(),
    }
}

/// The kept inputs of a target in `tests/data/fuzz`, with the names of the files.
///
/// # Panics
/// If a file there cannot be read, or there is none: otherwise a renamed directory would look like
/// a target without findings.
pub fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/fuzz").join(target.name);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| {
        panic!("{}: {error}: `cargo xtask fuzz {} --keep`", path.display(), target.name)
    });
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        (path.display().to_string(), std::fs::read(&path).expect("a corpus file"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no file", path.display());
    files
}

/// Numbers that often break decoders.
const HARD: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX];

/// A few changes of `from`, with parts of `other`.
pub fn mutated(from: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = from.to_vec();
    for _ in 0..1 + rng.usize(..6) {
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..8) {
            0 | 1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes[at] = rng.u8(..),
            3 => {
                let width = [1, 2, 4, 8][rng.usize(..4)];
                let number = HARD[rng.usize(..HARD.len())].to_le_bytes();
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            4 => bytes.truncate(at),
            5 => {
                let end = (at + rng.usize(1..40)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let from = rng.usize(..bytes.len());
                let piece = bytes[from..(from + rng.usize(1..40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ if other.is_empty() => {}
            _ => {
                let from = rng.usize(..other.len());
                let piece = &other[from..(from + rng.usize(1..80)).min(other.len())];
                let end = (at + piece.len()).min(bytes.len());
                bytes.splice(at..end, piece.iter().copied());
            }
        }
    }
    bytes
}

/// Random mutations: for each of `targets` its number in CI, multiplied by `times`. A panic is
/// reported with its bytes in hexadecimal.
///
/// # Errors
/// The first finding.
pub fn by_chance(targets: &[&Target], times: f64, seed: u64) -> Result<Tally, String> {
    // In pieces, so that threads finish at about the same time.
    const PIECES: u64 = 4;
    let tallies = pool::run(targets.len() * PIECES as usize, |number| {
        let (target, piece) = (targets[number / PIECES as usize], number as u64 % PIECES);
        let count = ((target.in_ci as f64 * times) as u64).max(PIECES).div_ceil(PIECES);
        let seeds = seeds(target);
        let mut rng = Rng::with_seed(mixed(seed, number as u64));
        for number in 0..count {
            let (from, other) = (&seeds[rng.usize(..seeds.len())], &seeds[rng.usize(..seeds.len())]);
            let bytes = mutated(from, other, &mut rng);
            let ran = crate::runner::caught(|| {
                target.run(&bytes);
                Ok(())
            });
            ran.map_err(|error| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{}, mutation {number} of piece {piece} of seed {seed}: {error}\n{hex}", target.name)
            })?;
        }
        Ok::<_, String>(Tally::of(&[(&format!("executions, {}", target.name), count)]))
    })?;
    let total = Tally::sum(&tallies);
    Ok(total)
}
