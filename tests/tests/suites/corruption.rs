//! Suite E: every byte of every file of a small database, flipped in three ways; every truncation;
//! files removed, swapped and duplicated.
//!
//! The rule: completely correct answers, or an error that names file, offset and structure. Never a
//! wrong or missing answer, never a panic. A database that was not closed may also lose a tail of
//! its log, which it reports in a warning. Any damage may lose unsynced data. Synced data may be
//! lost only by a damage that also removes every trace of the promise (such as a log truncated
//! before it).

mod featured;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Compression, ErrorKind, MergePolicy};
use shamba_tests::brief::is_brief;
use shamba_tests::compare::{self, Spaces};
use shamba_tests::files::{Files, disk_of, files_of};
use shamba_tests::oracle::{Change, Oracle, SPACES, State};
use shamba_tests::pool;
use shamba_tests::runner::caught;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{BUDGET_BYTES, THRESHOLD_BYTES, Vector};

const HOME: &str = "/db";
const MASKS: [u8; 3] = [0x01, 0x80, 0xff];

/// A database on disk, and its legal content.
struct Subject {
    name: &'static str,
    files: Files,
    oracle: Oracle,
    /// The last commit that is in tables.
    flushed: u64,
    /// Lengths that the last log had between two calls: truncated there, it looks complete.
    ends: BTreeSet<u64>,
}

/// The answers of a damaged database that are allowed without an error.
#[derive(Clone, Copy)]
struct Allowed<'n> {
    /// The earliest commit whose state is allowed.
    least: u64,
    /// Whether a state before the newest is allowed without a warning.
    silent: bool,
    /// The file that a refused open has to name.
    named: Option<&'n str>,
}

/// Several tables with range tombstones and deletes, a second keyspace, a log with a synced part
/// and a tail; with lz4 also value files.
fn subject(name: &'static str, compression: Compression, clean: bool) -> Subject {
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let mut vector = Vector::plain(MergePolicy::Tiering);
    vector.write_buffer = 8 << 10;
    vector.file_size = 8 << 10;
    vector.block_bytes = 256;
    vector.compression = vec![compression];
    vector.value_threshold = (compression == Compression::Lz4).then_some(THRESHOLD_BYTES);
    let mut oracle = Oracle::new();
    let spaces =
        Spaces::create(vector.builder(Path::new(HOME), &env).open().expect("create")).expect("keyspaces");
    let users = spaces.others[0].as_ref().expect("created");
    let put = |oracle: &mut Oracle, space: usize, key: String, value: String| {
        match space {
            0 => spaces.db.put(&key, &value).expect("put"),
            _ => users.put(&key, &value).expect("put"),
        }
        let change = Change::Put { space, key: key.into_bytes(), value: value.into_bytes() };
        oracle.commit(&[change]);
    };
    for round in 0..2 {
        for number in 0..14 {
            put(
                &mut oracle,
                0,
                format!("key/{:02}", number * 2 + round),
                format!("value {number} of round {round}"),
            );
        }
        put(&mut oracle, 0, format!("long/{round}"), format!("{round} of many, ").repeat(9));
        put(&mut oracle, 1, format!("user/{round}"), format!("in the other keyspace {round}"));
        spaces.db.delete("key/02").expect("delete");
        oracle.commit(&[Change::Delete { space: 0, key: b"key/02".to_vec() }]);
        spaces.db.delete_range("key/10".."key/13").expect("delete_range");
        let span =
            (std::ops::Bound::Included(b"key/10".to_vec()), std::ops::Bound::Excluded(b"key/13".to_vec()));
        oracle.commit(&[Change::DeleteRange { space: 0, span }]);
        spaces.db.flush().expect("flush");
    }
    let mut flushed = oracle.issued();
    let last_log_bytes = || {
        let files = fs.list(Path::new(HOME)).expect("list");
        files.iter().rfind(|file| file.name.ends_with(".log")).map_or(0, |log| log.bytes)
    };
    let mut ends = BTreeSet::from([last_log_bytes()]);
    for number in 0..3 {
        put(&mut oracle, 0, format!("key/{number:02}"), format!("synced {number}"));
        ends.insert(last_log_bytes());
    }
    spaces.db.sync().expect("sync");
    ends.insert(last_log_bytes());
    oracle.mark_durable();
    for number in 0..3 {
        put(&mut oracle, 1, format!("user/{number}"), format!("tail {number}"));
        ends.insert(last_log_bytes());
    }
    let Spaces { db, others } = spaces;
    drop(others);
    match clean {
        true => {
            db.close().expect("close");
            oracle.mark_durable();
            flushed = oracle.issued();
        }
        false => drop(db),
    }
    Subject { name, files: files_of(&fs), oracle, flushed, ends }
}

/// The answer of a damaged database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    Right,
    TailDropped,
    OpenRefused,
    ReadRefused,
}

/// Checks that an error is a corruption that states its location, or names an unknown version or
/// feature.
fn fit(error: &shamba::Error) -> Result<(), String> {
    let says = || format!("{error:?}");
    match error.kind() {
        ErrorKind::Corruption => match error.damage() {
            Some(damage) if error.to_string().contains(damage.structure) => Ok(()),
            _ => Err(format!("a corruption that does not say where: {}", says())),
        },
        ErrorKind::Unsupported if error.to_string().contains(HOME) => Ok(()),
        _ => Err(format!("damage is reported as {}", says())),
    }
}

impl Subject {
    /// Opens the database and reads everything.
    fn judge(&self, files: &Files, allowed: Allowed<'_>) -> Result<Verdict, String> {
        let env = Env::deterministic(Arc::new(disk_of(files)), 2);
        // Fixed options are not given: they must not hide a flipped setting. No compaction may run,
        // so that the damaged bytes are read as they are.
        let db = match shamba::Db::builder(Path::new(HOME))
            .env(env)
            .info_log(false)
            .memory_budget(BUDGET_BYTES)
            .experimental(|e| e.auto_compaction(false))
            .open()
        {
            Ok(db) => db,
            Err(error) => {
                let named =
                    |damage: &shamba::Damage| allowed.named.is_none_or(|name| damage.file.ends_with(name));
                fit(&error)?;
                let is_named = error.damage().is_none_or(named);
                let says = || format!("the damage is sought elsewhere: {error:?}");
                return is_named.then_some(Verdict::OpenRefused).ok_or_else(says);
            }
        };
        let warned = !db.warnings().is_empty();
        let spaces = match Spaces::existing(db) {
            Ok(spaces) => spaces,
            Err(error) => return fit(&error).map(|()| Verdict::ReadRefused),
        };
        let (least, newest) = (allowed.least, self.oracle.issued());
        let state = match spaces.dump() {
            Ok(state) => state,
            Err(error) => {
                fit(&error)?;
                // Keys in undamaged places still answer correctly; whether a tail was lost is not
                // known here.
                self.points(&spaces, |space, key| {
                    (least..=newest).map(|at| self.oracle.get(space, key, at).map(<[u8]>::to_vec)).collect()
                })?;
                return Ok(Verdict::ReadRefused);
            }
        };
        let matching = (least..=newest).rev().find(|at| self.oracle.state(*at) == state);
        let Some(at) = matching else {
            let newest = self.oracle.state(newest);
            return Err(format!("wrong answers without an error: {}", first_difference(&state, &newest)));
        };
        if self.oracle.state(newest) != state && !warned && !allowed.silent {
            return Err(format!("the tail after commit {at} is gone without a warning"));
        }
        self.points(&spaces, |space, key| vec![self.oracle.get(space, key, at).map(<[u8]>::to_vec)])?;
        Ok(if at == newest { Verdict::Right } else { Verdict::TailDropped })
    }

    /// Point reads of every key return one of the allowed answers, or a suitable error.
    fn points(
        &self,
        spaces: &Spaces,
        allowed: impl Fn(usize, &[u8]) -> Vec<Option<Vec<u8>>>,
    ) -> Result<(), String> {
        for space in 0..SPACES.len() {
            let Some(surface) = spaces.at(space) else { continue };
            for key in self.oracle.keys(space) {
                match surface.read(key) {
                    Err(error) => fit(&error)?,
                    Ok(got) => {
                        let got = got.map(|value| value.to_vec());
                        if !allowed(space, key).contains(&got) {
                            return Err(format!("get({}) gave {got:?}", key.escape_ascii()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges a damage; a panic is a violation.
    fn damaged(
        &self,
        what: &str,
        files: &Files,
        allowed: Allowed<'_>,
        tally: &mut Tally,
    ) -> Result<Verdict, String> {
        let verdict = caught(|| self.judge(files, allowed))
            .map_err(|error| format!("{}, {what}: {error}", self.name))?;
        tally.add(&format!("{verdict:?}"), 1);
        tally.add("images", 1);
        Ok(verdict)
    }

    /// Flips every byte of a range of one file.
    fn flip(&self, file: &str, from: usize, to: usize) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let mut files = self.files.clone();
        // `CURRENT` may name another file then.
        let named = (file != "CURRENT").then_some(file);
        let allowed = Allowed { least: self.oracle.durable(), silent: false, named };
        for at in from..to {
            for mask in MASKS {
                files.get_mut(file).expect("it is there")[at] ^= mask;
                self.damaged(&format!("byte {at} of {file} ^ {mask:#04x}"), &files, allowed, &mut tally)?;
                files.get_mut(file).expect("it is there")[at] ^= mask;
                tally.add(&format!("flips in {}", kind_of(file)), 1);
            }
        }
        Ok(tally)
    }

    /// Offsets of the edits of a manifest.
    fn edit_offsets(&self, file: &str) -> Result<BTreeSet<u64>, String> {
        let env = Env::deterministic(Arc::new(disk_of(&self.files)), 2);
        let described = shamba::inspect::manifest_file(&env, &Path::new(HOME).join(file));
        let described = described.map_err(|error| format!("{file}: {error}"))?;
        Ok(described.records.iter().map(|record| record.offset).collect())
    }

    fn truncate(&self, file: &str) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let whole = &self.files[file];
        // A truncation removes the promises too: a shorter log looks like a log whose tail was
        // never written.
        let is_last_log =
            self.files.keys().rfind(|name| name.ends_with(".log")).is_some_and(|last| last == file);
        let mut files = self.files.clone();
        let between = if kind_of(file) == "manifests" { self.edit_offsets(file)? } else { BTreeSet::new() };
        for length in 0..whole.len() {
            let silent = is_last_log && self.ends.contains(&(length as u64));
            // Whatever the open misses in the state that is left. Between two edits no cut shows.
            let has_torn_edit = kind_of(file) == "manifests" && !between.contains(&(length as u64));
            let named = has_torn_edit.then_some(file);
            let allowed = Allowed { least: self.flushed, silent, named };
            files.insert(file.to_owned(), whole[..length].to_vec());
            self.damaged(
                &format!("{file} cut to {length} of {} bytes", whole.len()),
                &files,
                allowed,
                &mut tally,
            )?;
            tally.add("truncations", 1);
        }
        Ok(tally)
    }

    /// Files removed, swapped, duplicated, replaced by zeros and garbage; sectors zeroed.
    fn whole_files(&self) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let names = self.names();
        // As in a truncation: the promises themselves may be lost.
        let allowed = Allowed { least: self.flushed, silent: false, named: None };
        for name in &names {
            let mut files = self.files.clone();
            let bytes = files.remove(name).expect("it is there");
            self.damaged(&format!("{name} removed"), &files, allowed, &mut tally)?;
            for (what, content) in [("zeros", vec![0; bytes.len()]), ("garbage", vec![0xa5; bytes.len()])] {
                files.insert(name.clone(), content);
                self.damaged(&format!("{name} replaced by {what}"), &files, allowed, &mut tally)?;
            }
            files.insert(name.clone(), [bytes.as_slice(), &[0; 64]].concat());
            self.damaged(&format!("{name} with zeros behind its end"), &files, allowed, &mut tally)?;
            files.insert(name.clone(), [bytes.as_slice(), bytes.as_slice()].concat());
            self.damaged(&format!("{name} with itself behind its end"), &files, allowed, &mut tally)?;
            for sector in 0..bytes.len() / 512 {
                let mut zeroed = bytes.clone();
                zeroed[sector * 512..(sector + 1) * 512].fill(0);
                files.insert(name.clone(), zeroed);
                self.damaged(&format!("sector {sector} of {name} zeroed"), &files, allowed, &mut tally)?;
            }
        }
        for one in &names {
            for two in names.iter().filter(|two| *two != one) {
                let mut files = self.files.clone();
                files.insert(one.clone(), self.files[two].clone());
                self.damaged(&format!("{one} replaced by a copy of {two}"), &files, allowed, &mut tally)?;
                files.insert(two.clone(), self.files[one].clone());
                self.damaged(&format!("{one} and {two} swapped"), &files, allowed, &mut tally)?;
            }
        }
        tally.add("whole-file damages", tally.get("images"));
        Ok(tally)
    }

    fn names(&self) -> Vec<String> {
        self.files.keys().filter(|name| *name != "LOCK").cloned().collect()
    }
}

fn kind_of(file: &str) -> &str {
    match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("sst") => "tables",
        Some("values") => "value files",
        Some("log") => "logs",
        _ if file.starts_with("MANIFEST") => "manifests",
        _ => "other files",
    }
}

fn first_difference(got: &State, want: &State) -> String {
    compare::same_state(got, want).err().unwrap_or_else(|| "none".to_owned())
}

/// One piece of work: a subject, and the damage.
enum Work {
    Flip { subject: usize, file: String, from: usize, to: usize },
    Truncate { subject: usize, file: String },
    WholeFiles { subject: usize },
}

#[test]
fn every_byte_flipped_and_every_length_cut() {
    let subjects = [
        subject("not closed, uncompressed", Compression::None, false),
        subject("closed, lz4", Compression::Lz4, true),
        subject("not closed, zstd", Compression::Zstd, false),
    ];
    let mut works = Vec::new();
    // In a brief run one subject suffices.
    let count = if is_brief() { 1 } else { subjects.len() };
    for (subject, of) in subjects.iter().enumerate().take(count) {
        let whole = of
            .judge(&of.files, Allowed { least: of.oracle.issued(), silent: false, named: None })
            .expect("undamaged it answers");
        assert_eq!(whole, Verdict::Right, "{}", of.name);
        works.push(Work::WholeFiles { subject });
        for file in of.names() {
            works.push(Work::Truncate { subject, file: file.clone() });
            let length = of.files[&file].len();
            for from in (0..length).step_by(512) {
                works.push(Work::Flip { subject, file: file.clone(), from, to: length.min(from + 512) });
            }
        }
    }
    let tallies = pool::run(works.len(), |index| match &works[index] {
        Work::Flip { subject, file, from, to } => subjects[*subject].flip(file, *from, *to),
        Work::Truncate { subject, file } => subjects[*subject].truncate(file),
        Work::WholeFiles { subject } => subjects[*subject].whole_files(),
    });
    let total = Tally::sum(&tallies.unwrap_or_else(|error| panic!("{error}")));
    let sizes = subjects.iter().map(|subject| {
        let bytes = subject.files.values().map(Vec::len).sum::<usize>();
        format!("  {}: {} files, {bytes} bytes\n", subject.name, subject.files.len())
    });
    total.tell("corruption", &format!("suite E\n{}", sizes.collect::<String>()));
    if is_brief() {
        return;
    }
    total.require(&[
        ("images", 20_000),
        ("flips in tables", 10_000),
        ("flips in value files", 500),
        ("flips in logs", 1_000),
        ("flips in manifests", 1_000),
        ("truncations", 5_000),
        ("whole-file damages", 100),
        ("Right", 100),
        ("TailDropped", 10),
        ("OpenRefused", 1_000),
        ("ReadRefused", 100),
    ]);
}

#[test]
fn damage_names_its_file() {
    let subject = subject("damage names its file", Compression::None, true);
    let tables = subject.names().into_iter().filter(|name| name.ends_with(".sst")).collect::<Vec<_>>();
    assert!(tables.len() >= 2, "{tables:?}");
    for table in tables {
        let mut files = subject.files.clone();
        let bytes = files.get_mut(&table).expect("it is there");
        // Data begins after the header page.
        bytes[4096 + 20] ^= 0x10;
        let env = Env::deterministic(Arc::new(disk_of(&files)), 2);
        let db = shamba::Db::builder(Path::new(HOME))
            .env(env)
            .info_log(false)
            .experimental(|e| e.auto_compaction(false))
            .open();
        let report =
            db.expect("data blocks are read when needed").verify().expect("verify reports, it does not fail");
        let named = PathBuf::from(HOME).join(&table);
        let problem = report.problems.iter().find(|problem| problem.file == named);
        assert!(problem.is_some(), "{table}: {:?}", report.problems);
    }
}

#[test]
fn point_in_time_recovery_gives_what_comes_before_the_damage() {
    let subject = subject("point in time", Compression::None, false);
    let log = subject.files.keys().rfind(|name| name.ends_with(".log")).expect("a log").clone();
    let mut recovered = BTreeSet::new();
    for at in 0..subject.files[&log].len() {
        let mut files = subject.files.clone();
        files.get_mut(&log).expect("it is there")[at] ^= 0x40;
        let env = Env::deterministic(Arc::new(disk_of(&files)), 2);
        let builder = shamba::Db::builder(Path::new(HOME))
            .env(env)
            .info_log(false)
            .experimental(|e| e.recovery_point_in_time(true));
        let db = match builder.open() {
            Ok(db) => db,
            // An unknown version or feature is not damage.
            Err(error) if error.kind() == ErrorKind::Unsupported => continue,
            Err(error) => panic!("byte {at} of {log}: {error}"),
        };
        let warned = !db.warnings().is_empty();
        let state =
            Spaces::existing(db).and_then(|spaces| spaces.dump()).expect("everything left can be read");
        let newest = subject.oracle.issued();
        let commit = (subject.flushed..=newest).rev().find(|commit| subject.oracle.state(*commit) == state);
        let commit = commit.unwrap_or_else(|| panic!("byte {at} of {log}: the state is that of no commit"));
        assert!(warned || commit == newest, "byte {at} of {log}: commits are gone without a warning");
        recovered.insert(commit);
    }
    assert!(recovered.len() > 3, "damage at different places loses different tails: {recovered:?}");
}
