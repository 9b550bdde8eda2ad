//! Fuzz targets: hostile bytes for every decoder, and operations with a crash, each a function of bytes.
//!
//! A target puts the bytes where a database has its own (a log, a manifest, a table, ...) and does all that one does with it:
//! describes the file, checks the database without opening it, opens it, reads everything both ways, verifies, and repairs. Nothing
//! may panic; what is said may be anything. So that mutations pass the checksums, a process that fuzzes runs with the planted
//! defect `checksum-constant` ([`shamba::planted`], read at run time): then files are written, and read, with one
//! checksum. `operations` reads the bytes as a short life and a crash, and holds what is recovered to the model.
//!
//! [`seeds`] are where mutations start; `tests/data/fuzz/TARGET` holds what was found worth keeping. The same functions are run by
//! the suite `fuzz` (mutations by chance, in CI) and by `fuzz/` (guided by coverage, on demand).
//!
//! Not here: option files and command lines (`crates/cli`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use shamba::env::{Env, MemFs};
use shamba::{Builder, Compression, Db, Durability, FilterLayout, MergePolicy, check_files, inspect};

use crate::crash::{Effort, Explorer, Recording};
use crate::files::{Files, disk_of, files_of};
use crate::ops::Op;
use crate::oracle::Change;
use crate::runner::HOME;
use crate::tally::Tally;
use crate::vectors::Vector;

/// Entries read of a keyspace: mutated lengths may make many.
const ENTRIES_MOST: usize = 4_000;

/// What is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of its corpus, too.
    pub name: &'static str,
    /// Whether it wants constant checksums.
    pub is_decoder: bool,
    run: fn(&[u8]),
}

impl Target {
    /// Does it. A panic is a finding.
    pub fn run(&self, bytes: &[u8]) {
        (self.run)(bytes);
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    decoder("log", |bytes| replaced(Subject::Killed, ".log", bytes)),
    decoder("manifest", |bytes| replaced(Subject::Closed, "MANIFEST", bytes)),
    decoder("current", |bytes| replaced(Subject::Closed, "CURRENT", bytes)),
    decoder("table", |bytes| replaced(Subject::Closed, ".sst", bytes)),
    decoder("table-modular", |bytes| replaced(Subject::Modular, ".sst", bytes)),
    decoder("table-standard", |bytes| replaced(Subject::Standard, ".sst", bytes)),
    decoder("table-zstd", |bytes| replaced(Subject::Zstd, ".sst", bytes)),
    Target { name: "operations", is_decoder: false, run: operations },
];

const fn decoder(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, is_decoder: true, run }
}

/// The target of a name.
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
    Zstd,
}

fn builder(env: &Env) -> Builder {
    let builder = Db::builder(HOME).env(env.clone()).durability(Durability::NoSync).info_log(false);
    let builder = builder.memory_budget(4 << 20).write_buffer(16 << 10).file_size(64 << 10).block_bytes(256);
    builder.merge_policy(MergePolicy::Tiering).large_values(400, 128)
}

impl Subject {
    fn files(self) -> &'static Files {
        static FILES: OnceLock<BTreeMap<Subject, Files>> = OnceLock::new();
        const ALL: [Subject; 5] =
            [Subject::Closed, Subject::Killed, Subject::Modular, Subject::Standard, Subject::Zstd];
        let of_all =
            FILES.get_or_init(|| ALL.into_iter().map(|subject| (subject, subject.build())).collect());
        &of_all[&self]
    }

    /// Two tables, range deletes, a chunked value, another keyspace, a log with the last writes.
    fn build(self) -> Files {
        let layout: FilterLayout = match self {
            Self::Modular => "modular:3",
            Self::Standard => "standard",
            _ => "blocked",
        }
        .parse()
        .expect("a layout");
        let compression = if self == Self::Zstd { Compression::Zstd } else { Compression::Lz4 };
        let fs = MemFs::new();
        let env = Env::deterministic(Arc::new(fs.clone()), 1);
        let build = || -> shamba::Result<Db> {
            let db = builder(&env).filter_layout(layout).compression(compression).open()?;
            let other = db.keyspace("other")?;
            for round in 0..2u32 {
                for number in 0..24u32 {
                    db.put(format!("key/{number:03}"), format!("{round} and {number}"))?;
                }
                db.put(format!("large/{round}"), vec![round as u8; 900])?;
                other.put("alone", round.to_string())?;
                db.delete("key/003")?;
                db.delete_range("key/010".."key/013")?;
                db.flush()?;
            }
            let mut batch = db.batch();
            batch.put("in/the log", "value").delete("key/001");
            batch.commit_with(Durability::Sync)?;
            db.delete_range("key/020"..)?;
            db.put("large/in the log", vec![7; 700])?;
            Ok(db)
        };
        let db = build().expect("a database");
        match self {
            Self::Killed => drop(db),
            _ => db.close().expect("close"),
        }
        files_of(&fs)
    }
}

/// Whether a file of a database is of a kind: by its ending, or its beginning.
fn is_kind(name: &str, kind: &str) -> bool {
    name.ends_with(kind) || name.starts_with(kind)
}

/// The database with the last file of a kind replaced, and all that one does with it.
fn replaced(subject: Subject, kind: &str, bytes: &[u8]) {
    let files = subject.files();
    let name = files.keys().rfind(|name| is_kind(name, kind)).map_or(kind, String::as_str);
    let mut replaced = files.clone();
    replaced.insert(name.to_owned(), bytes.to_vec());
    let env = Env::deterministic(Arc::new(disk_of(&replaced)), 1);
    let path = Path::new(HOME).join(name);
    // What they say is theirs to say.
    match kind {
        ".log" => _ = inspect::wal_file(&env, &path),
        ".sst" => _ = inspect::table_file(&env, &path),
        "MANIFEST" | "CURRENT" => _ = inspect::manifest_file(&env, Path::new(HOME)),
        _ => {}
    }
    _ = check_files(&env, Path::new(HOME));
    _ = read_all(builder(&env).read_only(true));
    _ = shamba::repair(&env, Path::new(HOME), Path::new("/repaired"));
    _ = read_all(builder(&env).recovery_point_in_time(true));
}

fn read_all(builder: Builder) -> shamba::Result<()> {
    let db = builder.open()?;
    for space in db.keyspaces() {
        let keyspace = db.keyspace(&space)?;
        for pair in keyspace.iter().take(ENTRIES_MOST) {
            let Ok((key, _)) = pair else { break };
            _ = keyspace.get(&key);
        }
        for pair in keyspace.iter().rev().take(ENTRIES_MOST) {
            if pair.is_err() {
                break;
            }
        }
    }
    for key in ["key/005", "key/011", "large/1", "in/the log", "nothing"] {
        _ = db.get(key);
        _ = db.explain(key);
    }
    _ = db.multi_get(["key/001", "key/002", "large/0"]);
    _ = db.verify();
    db.close()
}

/// A life that the bytes tell, and every crash of it that a sample of policies makes.
fn operations(bytes: &[u8]) {
    let [kind, seed, rest @ ..] = bytes else { return };
    let (kind, seed) = (*kind, *seed);
    let vector = Vector::numbered(u64::from(seed % 16), usize::from(kind));
    let ops: Vec<Op> = rest.chunks(3).take(24).map(operation).collect();
    let recording = match Recording::record(&vector, u64::from(seed), &ops) {
        Ok(recording) => recording,
        Err(error) => panic!("{ops:?}: {error}"),
    };
    let effort = Effort { policies_per_point: 1, nested_one_in: 256 };
    if let Err(error) = Explorer::default().explore(&recording, effort, u64::from(seed)) {
        panic!("{ops:?}: {error}");
    }
}

/// Three bytes as one operation.
fn operation(bytes: &[u8]) -> Op {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let space = usize::from(at(0) >> 7);
    let key = |byte: u8| format!("k/{:02}", byte % 16).into_bytes();
    let put = || Change::Put { space, key: key(at(1)), value: vec![at(2); usize::from(at(2)) * 3] };
    match at(0) % 16 {
        0..5 => Op::Write(put()),
        5..7 => Op::Write(Change::Delete { space, key: key(at(1)) }),
        7 => {
            let span = (Bound::Included(key(at(1))), Bound::Excluded(key(at(2))));
            Op::Write(Change::DeleteRange { space, span })
        }
        8..10 => {
            let changes = vec![put(), Change::Delete { space: 0, key: key(at(2)) }];
            Op::Batch { changes, sync: at(2) % 2 == 0 }
        }
        10 => Op::Flush,
        11 => Op::Compact,
        12 => Op::Sync,
        13 => Op::Reopen { clean: at(1) % 2 == 0, change_options: false },
        14 => Op::SnapshotTake,
        _ => Op::Checkpoint,
    }
}

/// Where mutations of a target start.
pub fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let of = |subject: Subject, kind: &str| {
        let files = subject.files().iter().filter(|(name, _)| is_kind(name, kind));
        files.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>()
    };
    match target.name {
        "log" => of(Subject::Killed, ".log"),
        "manifest" => of(Subject::Closed, "MANIFEST"),
        "current" => of(Subject::Closed, "CURRENT"),
        "table" => of(Subject::Closed, ".sst"),
        "table-modular" => of(Subject::Modular, ".sst"),
        "table-standard" => of(Subject::Standard, ".sst"),
        "table-zstd" => of(Subject::Zstd, ".sst"),
        _ => (0..8u8)
            .map(|seed| (0..48u8).map(|at| at.wrapping_mul(37).wrapping_add(seed * 11)).collect())
            .collect(),
    }
}

/// Numbers on which decoders break.
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

/// Mutations by chance: `count` of each of `targets`; what panicked is told with its bytes in hexadecimal.
///
/// # Errors
/// The first finding.
pub fn by_chance(targets: &[&Target], count: u64, seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    for target in targets {
        let seeds = seeds(target);
        for number in 0..count {
            let (from, other) = (&seeds[rng.usize(..seeds.len())], &seeds[rng.usize(..seeds.len())]);
            let bytes = mutated(from, other, &mut rng);
            let ran = crate::runner::caught(|| {
                target.run(&bytes);
                Ok(())
            });
            ran.map_err(|error| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{}, mutation {number} of seed {seed}: {error}\n{hex}", target.name)
            })?;
            tally.add(&format!("executions, {}", target.name), 1);
        }
    }
    Ok(())
}
