//! Suite E from a user's view: every byte of a whole database is flipped in turn, and three
//! commands run on it.
//!
//! The database has about 100 KiB: three tables on two levels, a live log, range tombstones in
//! tables and log, large values in chunks, a second keyspace. There is one for each kind of filter,
//! once closed and once dropped with an unsynced tail; the closed ones have their large values in
//! value files. After each flip a dump, a full check and a
//! hundred lookups run, each over a separate read-only open. They must give correct answers, or end
//! with exit code 2 and name the damaged file and structure, or with 5 for bytes of versions and
//! features. With a damaged filter the answers stay correct, and the check warns. A flip in the
//! unsynced tail removes the tail, with a warning that says where and how much.
//!
//! CI flips every [`STRIDE`]th byte, and all of the first bytes of a file, which hold its version.
//! `SHAMBA_SWEEP=1` flips every byte, and `SHAMBA_SWEEP=n` every nth. `SHAMBA_VECTOR=n` uses only
//! the nth database.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs, read_file};
use shamba::{
    CheckReport, Compression, Db, Durability, ErrorKind, MergePolicy, Residency, Sizing, ValueThreshold,
    WriteOptions,
};
use shamba_tests::compare::{Spaces, Surface};
use shamba_tests::files::{Files, disk_of};
use shamba_tests::oracle::{Change, Oracle, State};
use shamba_tests::runner::caught;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::BUDGET_BYTES;
use shamba_tests::{pool, seed};

const HOME: &str = "/db";
/// The stride in CI.
const STRIDE: usize = 61;
/// The first bytes of a file, each of which is flipped: magic, version, features.
const HEAD_BYTES: usize = 24;
const LOOKUPS: usize = 100;
const KEYS: usize = 1_200;
const FILTERS: [&str; 4] = ["blocked", "modular", "standard", "standard-double"];

struct Subject {
    name: String,
    files: Files,
    oracle: Oracle,
    /// The states that may remain, with their commits, newest first.
    states: Vec<(u64, State)>,
    /// End of the promised part of the last log.
    synced_bytes: usize,
    last_log: String,
    /// Positions of the filters of each table.
    filters: BTreeMap<String, std::ops::Range<usize>>,
}

fn key(number: usize) -> Vec<u8> {
    format!("key/{number:04}").into_bytes()
}

/// The end of a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Right,
    RightWithWarning,
    /// Exit code 2.
    Corrupt,
    /// Exit code 5.
    Unsupported,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::RightWithWarning => "right with a warning",
            Self::Corrupt => "exit 2",
            Self::Unsupported => "exit 5",
        }
    }
}

struct Writer<'a> {
    db: &'a Db,
    others: Vec<Option<shamba::Keyspace>>,
    oracle: Oracle,
}

impl Writer<'_> {
    fn put(&mut self, space: usize, number: usize, value: Vec<u8>, durability: Durability) {
        let key = key(number);
        let options = WriteOptions::from(durability);
        match space {
            0 => self.db.put_with(&key, &value, options),
            _ => self.others[space - 1].as_ref().expect("created").put_with(&key, &value, options),
        }
        .expect("put");
        self.oracle.commit(&[Change::Put { space, key, value }]);
    }

    fn delete(&mut self, number: usize) {
        self.db.delete(key(number)).expect("delete");
        self.oracle.commit(&[Change::Delete { space: 0, key: key(number) }]);
    }

    fn delete_range(&mut self, from: usize, to: usize) {
        self.db.delete_range(key(from)..key(to)).expect("delete_range");
        let span = (Bound::Included(key(from)), Bound::Excluded(key(to)));
        self.oracle.commit(&[Change::DeleteRange { space: 0, span }]);
    }
}

fn value(number: usize, round: usize) -> Vec<u8> {
    let length = match number % 300 {
        // Outside the blocks, in chunks.
        7 => 5_000 + number,
        _ => 8 + number % 40,
    };
    let mut rng = fastrand::Rng::with_seed((number * 8 + round) as u64);
    // Half of it can be compressed.
    (0..length).map(|at| if at % 2 == 0 { rng.u8(..) } else { b'a' + round as u8 }).collect()
}

fn subject(filter: &str, compression: Compression, is_closed: bool) -> Subject {
    // Without the values the tables are shorter.
    let (threshold, file_bytes) =
        if is_closed { (ValueThreshold::Bytes(4_096), 24 << 10) } else { (ValueThreshold::Off, 36 << 10) };
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let db = Db::builder(HOME)
        .env(env)
        .info_log(false)
        .merge_policy(MergePolicy::Leveling)
        .experimental(|e| {
            e.sizing(Sizing::Manual).auto_compaction(false).file_size(file_bytes).block_bytes(1024)
        })
        .size_ratio(4.0)
        .write_buffer(1 << 20)
        .bits_per_key(16.0)
        .experimental(|e| e.large_values(4096, 2048).filter_layout(filter.parse().expect("a filter")))
        .experimental(|e| e.value_threshold(threshold))
        .compression(compression)
        .durability(Durability::NoSync)
        .open()
        .expect("create");
    let Spaces { db, others } = Spaces::create(db).expect("keyspaces");
    let mut writer = Writer { db: &db, others, oracle: Oracle::new() };
    for number in 0..KEYS {
        writer.put(0, number, value(number, 0), Durability::NoSync);
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    for number in (0..KEYS).step_by(3) {
        writer.put(0, number, value(number, 1), Durability::NoSync);
    }
    writer.delete_range(100, 120);
    for number in (0..KEYS).step_by(41) {
        writer.delete(number);
    }
    db.flush().expect("flush");
    for number in (0..KEYS).step_by(29) {
        writer.put(0, number, value(number, 2), Durability::NoSync);
        writer.put(1, number, value(number, 3), Durability::NoSync);
    }
    writer.delete_range(300, 310);
    db.sync().expect("sync");
    writer.oracle.mark_durable();
    let home = Path::new(HOME);
    let last_log = || {
        let files = fs.list(home).expect("list");
        files.into_iter().rfind(|file| file.name.ends_with(".log")).expect("a log")
    };
    for number in (5..KEYS).step_by(19) {
        writer.put(0, number, value(number, 4), Durability::NoSync);
    }
    writer.delete(17);
    let tables = db.tables();
    let levels = tables.iter().filter(|table| table.level == 0).count();
    assert!(tables.len() >= 3 && levels >= 1 && levels < tables.len(), "{} tables, {levels}", tables.len());
    let Writer { others, mut oracle, .. } = writer;
    drop(others);
    match is_closed {
        true => {
            db.close().expect("close");
            oracle.mark_durable();
        }
        false => drop(db),
    }
    let last_log = last_log();
    let files: Files = fs
        .list(home)
        .expect("list")
        .into_iter()
        .filter(|entry| entry.name != "LOCK")
        .map(|entry| (entry.name.clone(), read_file(&fs, &home.join(&entry.name)).expect("read")))
        .collect();
    let env = Env::deterministic(Arc::new(fs), 1);
    // The frame that says how much was synced comes after that, and is not synced itself.
    let log = shamba::inspect::wal_file(&env, &home.join(&last_log.name)).expect("undamaged");
    let synced_bytes = if is_closed { last_log.bytes } else { log.promise } as usize;
    let filters = files.keys().filter(|name| name.ends_with(".sst")).map(|name| {
        let table = shamba::inspect::table_file(&env, &home.join(name)).expect("undamaged");
        let at = table.sections.iter().find(|section| section.kind.name() == "filter").expect("a filter");
        (name.clone(), at.offset as usize..at.end() as usize)
    });
    Subject {
        name: format!("{filter}, {compression}, {}", if is_closed { "closed" } else { "killed" }),
        filters: filters.collect(),
        states: (oracle.durable()..=oracle.issued()).rev().map(|at| (at, oracle.state(at))).collect(),
        files,
        oracle,
        synced_bytes,
        last_log: last_log.name,
    }
}

/// A command that runs over a flipped byte.
type Command = fn(&Flip<'_>) -> Result<End, String>;

/// One flipped byte.
struct Flip<'a> {
    subject: &'a Subject,
    file: &'a str,
    at: usize,
    env: Env,
}

impl Flip<'_> {
    fn open(&self) -> shamba::Result<Db> {
        // Half of the flips use filters that are read at the open, which a user may configure.
        let residency = if self.at.is_multiple_of(2) { Residency::Budgeted } else { Residency::Pinned };
        let builder = Db::builder(HOME).env(self.env.clone()).read_only(true).info_log(false);
        let builder = builder.memory_budget(BUDGET_BYTES);
        builder.experimental(|e| e.filter_residency(residency)).open()
    }

    /// The command's end for this error, if damage may cause such an error.
    fn end_of(&self, error: &shamba::Error) -> Result<End, String> {
        match error.kind() {
            ErrorKind::Corruption => {
                let damage = error.damage().ok_or_else(|| format!("it does not say where: {error}"))?;
                let named = damage.file.file_name().and_then(|name| name.to_str());
                if named != Some(self.file) || damage.structure.is_empty() {
                    return Err(format!("it names another file: {error}"));
                }
                Ok(End::Corrupt)
            }
            ErrorKind::Unsupported if self.is_version() => Ok(End::Unsupported),
            kind => Err(format!("{kind}: {error}")),
        }
    }

    /// Whether the byte is part of a version or of features.
    fn is_version(&self) -> bool {
        match self.file.ends_with(".sst") || self.file.ends_with(".values") {
            true => (8..12).contains(&self.at) || (16..24).contains(&self.at),
            false => (8..20).contains(&self.at),
        }
    }

    fn is_in_tail(&self) -> bool {
        self.file == self.subject.last_log && self.at >= self.subject.synced_bytes
    }

    fn is_in_filter(&self) -> bool {
        self.subject.filters.get(self.file).is_some_and(|filter| filter.contains(&self.at))
    }

    /// Checks that all warnings are suitable, and that there is one if one is required.
    fn warned(&self, warnings: &[String], is_whole: bool) -> Result<End, String> {
        let tells_tail = |warning: &String| {
            warning.contains(self.file)
                && warning.contains(" bytes from offset ")
                && warning.contains("ignored")
        };
        let is_told = is_whole || (self.is_in_tail() && warnings.iter().any(tells_tail));
        if !is_told {
            return Err(format!("a tail is gone, and the warnings do not say so: {warnings:?}"));
        }
        Ok(if warnings.is_empty() { End::Right } else { End::RightWithWarning })
    }

    fn dump(&self) -> Result<End, String> {
        let db = match self.open() {
            Ok(db) => db,
            Err(error) => return self.end_of(&error),
        };
        let state = Spaces::existing(db.clone()).and_then(|spaces| spaces.dump());
        let warnings = db.warnings();
        match state {
            Err(error) => self.end_of(&error),
            Ok(state) => match self.subject.states.iter().find(|(_, known)| *known == state) {
                Some((at, _)) => self.warned(&warnings, *at == self.subject.oracle.issued()),
                None => Err("wrong answers without an error".to_owned()),
            },
        }
    }

    fn check(&self) -> Result<End, String> {
        let (report, error) = match self.open() {
            Ok(db) => (db.verify().map_err(|error| format!("verify: {error}"))?, None),
            Err(error) => {
                self.end_of(&error)?;
                let report = shamba::check_files(&self.env, Path::new(HOME));
                (
                    report.map_err(|error| format!("check: {error}"))?.with(&error, Path::new(HOME)),
                    Some(error),
                )
            }
        };
        let CheckReport { problems, warnings, .. } = &report;
        if let Some(other) = problems
            .iter()
            .find(|problem| problem.file.file_name().and_then(|name| name.to_str()) != Some(self.file))
        {
            return Err(format!("another file is named: {other}"));
        }
        let is_refused = error.is_some_and(|error| error.kind() == ErrorKind::Unsupported);
        match problems.as_slice() {
            [] if self.is_in_filter() && warnings.is_empty() => {
                Err("a damaged filter is not told".to_owned())
            }
            [] if warnings.is_empty() => Ok(End::Right),
            [] => Ok(End::RightWithWarning),
            problems if is_refused && problems.iter().all(|problem| problem.is_unsupported) => {
                Ok(End::Unsupported)
            }
            _ if self.is_in_filter() => Err(format!("a damaged filter is a problem: {}", problems[0])),
            _ => Ok(End::Corrupt),
        }
    }

    fn lookups(&self) -> Result<End, String> {
        let db = match self.open() {
            Ok(db) => db,
            Err(error) => return self.end_of(&error),
        };
        let oracle = &self.subject.oracle;
        let mut worst = End::Right;
        // The states that are consistent with all answers: one must remain.
        let mut left: Vec<u64> = self.subject.states.iter().map(|(at, _)| *at).collect();
        for number in 0..LOOKUPS {
            // Every fourth key was never written.
            let key = match number % 4 {
                3 => format!("key/{number:04}x").into_bytes(),
                _ => key(number * KEYS / LOOKUPS),
            };
            match Surface::read(&db, &key) {
                Ok(got) => {
                    left.retain(|at| oracle.get(0, &key, *at) == got.as_deref());
                    if left.is_empty() {
                        return Err(format!("get({}) gave {got:?}", key.escape_ascii()));
                    }
                }
                Err(error) => worst = worst.max(self.end_of(&error)?),
            }
        }
        let is_whole = left.first() == Some(&oracle.issued());
        Ok(worst.max(self.warned(&db.warnings(), is_whole)?))
    }

    fn judge(&self, tally: &mut Tally) -> Result<(), String> {
        let mut worst = End::Right;
        let commands: [(&str, Command); 3] = [
            ("dump", |flip| flip.dump()),
            ("check", |flip| flip.check()),
            ("lookups", |flip| flip.lookups()),
        ];
        for (name, command) in commands {
            let end = caught(|| command(self)).map_err(|error| format!("{name}: {error}"))?;
            tally.add(&format!("{name}: {}", end.name()), 1);
            worst = worst.max(end);
        }
        if self.is_in_filter() && worst > End::RightWithWarning {
            return Err("a damaged filter is in the way of an answer".to_owned());
        }
        if self.is_in_tail() && worst != End::RightWithWarning {
            return Err(format!("in the tail that was never synced: {}", worst.name()));
        }
        let place = match (self.is_in_filter(), self.is_in_tail()) {
            (true, _) => "in filters",
            (_, true) => "in unsynced tails",
            _ if self.file.ends_with(".values") => "in value files",
            _ => "elsewhere",
        };
        tally.add(&format!("flips {place}"), 1);
        tally.add(&format!("worst: {}", worst.name()), 1);
        tally.add("flips", 1);
        Ok(())
    }
}

/// Flips every `stride`th byte of a range of a file, and its head.
fn flip(subject: &Subject, file: &str, from: usize, to: usize, stride: usize) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut files = subject.files.clone();
    for at in (from..to).filter(|at| at % stride == 0 || *at < HEAD_BYTES) {
        // The flipped bit varies with the position.
        let mask = 1u8 << (seed::mixed(at as u64, file.len() as u64) % 8);
        files.get_mut(file).expect("it is there")[at] ^= mask;
        let env = Env::deterministic(Arc::new(disk_of(&files)), 2);
        let flip = Flip { subject, file, at, env };
        flip.judge(&mut tally)
            .map_err(|error| format!("{}: byte {at} of {file} ^ {mask:#04x}: {error}", subject.name))?;
        files.get_mut(file).expect("it is there")[at] ^= mask;
    }
    Ok(tally)
}

#[test]
fn every_byte_flipped_leaves_answers_right_or_says_what_is_damaged() {
    let stride = seed::number("SHAMBA_SWEEP").map_or(STRIDE, |stride| (stride as usize).max(1));
    let kinds = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::None];
    let subjects: Vec<Subject> = FILTERS
        .iter()
        .zip(kinds)
        .flat_map(|(filter, kind)| [true, false].map(|is_closed| subject(filter, kind, is_closed)))
        .collect();
    let mut works = Vec::new();
    let is_wanted = |number: usize| seed::only_vector().is_none_or(|only| only == number);
    for (number, subject) in subjects.iter().enumerate().filter(|(number, _)| is_wanted(*number)) {
        let bytes: usize = subject.files.values().map(Vec::len).sum();
        println!("  {}: {} files, {bytes} bytes", subject.name, subject.files.len());
        for (file, bytes) in &subject.files {
            works.extend(
                (0..bytes.len()).step_by(1024).map(|from| (number, file, from, bytes.len().min(from + 1024))),
            );
        }
    }
    let tallies = pool::run(works.len(), |index| {
        let (subject, file, from, to) = works[index];
        flip(&subjects[subject], file, from, to, stride)
    });
    let total = Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")));
    let flips = total.get("flips");
    total.tell("sweep", &format!("every {stride}th byte"));
    for command in ["dump", "check", "lookups", "worst"] {
        let share = |end: End| {
            let count = total.get(&format!("{command}: {}", end.name()));
            format!("{} {:.2} %", end.name(), 100.0 * count as f64 / flips as f64)
        };
        let ends = [End::Right, End::RightWithWarning, End::Corrupt, End::Unsupported];
        println!("  {command:<8} {}", ends.map(share).join(", "));
    }
    if seed::only_vector().is_some() {
        return;
    }
    let least = |count: u64| count * STRIDE as u64 / stride as u64 * 4 / 5;
    total.require(&[
        ("flips", least(13_000)),
        ("flips in filters", least(300)),
        ("flips in unsynced tails", least(150)),
        ("flips in value files", least(500)),
        ("dump: right", least(700)),
        ("lookups: right", least(6_000)),
        ("lookups: exit 2", least(4_000)),
        ("worst: exit 2", least(10_000)),
        ("worst: right with a warning", least(400)),
        // All bytes of versions are covered, whatever the stride.
        ("worst: exit 5", 300),
    ]);
}
