//! The same rule in a database with the features that the other subjects lack: operands of merge
//! operators, entries that expire, a compaction filter with verdicts, a FIFO keyspace, prefix
//! extractors, and logs that are kept for streams of changes.
//!
//! After each flip a writable open, a scan of everything, lookups, scans of prefixes and a check
//! run, and streams of changes from three positions. A stream must deliver the changes that were
//! written, each once and in order, up to the state that readers see. Or it is refused, or ends,
//! with an error that names the flipped file. A kept log is needed by streams only, so flips in it
//! leave everything else right.
//!
//! CI flips each byte of the logs and manifests in one bit, and some bytes of the tables.
//! `SHAMBA_FLIPS=1` flips every byte, `SHAMBA_SEED` selects other bits.

use std::time::Duration;

use shamba::filter::CompactionFilter;
use shamba::{Builder, ChangeOp, ChangePosition, Changes, ChangesOptions, Db, Fifo, KeyspaceOptions, Prefix};
use shamba_tests::filters::{Rules, ruled};
use shamba_tests::follower::Follower;
use shamba_tests::operators::appending;
use shamba_tests::oracle::{Moment, Pair};
use shamba_tests::runner::note_verdicts;
use shamba_tests::{expiry, seed};

use super::*;

/// The stride in tables in CI, after the first bytes.
const TABLE_STRIDE: usize = 23;
/// The first bytes of a file, each of which is flipped.
const HEAD_BYTES: usize = 24;
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
const PREFIXES: [Prefix; 2] = [Prefix::Fixed(4), Prefix::Delimited(b'/')];

fn limits() -> Fifo {
    Fifo::bytes(1 << 20).with_age(YEAR)
}

/// Options as a program gives them at each open; what is recorded is not given again.
fn builder(env: &Env) -> Builder {
    builder_with(env, appending(true))
}

/// [`builder`], with these options of the first keyspace.
fn builder_with(env: &Env, first: KeyspaceOptions) -> Builder {
    let builder = Db::builder(HOME).env(env.clone()).info_log(false).memory_budget(BUDGET_BYTES);
    builder
        .keyspace(SPACES[0], first)
        .keyspace(SPACES[1], ruled(appending(false)))
        .experimental(|e| e.auto_compaction(false))
}

struct Writer {
    spaces: Spaces,
    oracle: Oracle,
    env: Env,
    tally: Tally,
}

impl Writer {
    fn handle(&self, space: usize) -> shamba::Keyspace {
        self.spaces.db.keyspace(SPACES[space]).expect("created")
    }

    fn put(&mut self, space: usize, key: String, value: String, ttl: Option<Duration>) {
        self.handle(space).put_with(&key, &value, expiry::options_for(ttl)).expect("put");
        let end = ttl.map(|ttl| self.env.clock.unix_ms() + ttl.as_millis() as u64);
        let change = Change::Put { space, key: key.into_bytes(), value: value.into_bytes() };
        self.oracle.commit_with(&[change], |_| end, false);
        self.tally.add("entries that expire", u64::from(ttl.is_some()));
    }

    fn merge(&mut self, space: usize, key: String, operand: String) {
        self.handle(space).merge(&key, &operand).expect("merge");
        let change = Change::Merge { space, key: key.into_bytes(), operand: operand.into_bytes() };
        self.oracle.commit(&[change]);
        self.tally.add("operands", 1);
    }

    /// Writes of all kinds into all keyspaces.
    fn round(&mut self, round: usize) {
        for number in 0..5 {
            let ttl = [None, Some(HOUR), Some(100 * YEAR)][number % 3];
            self.put(0, format!("ab{:02}/{number}", round * 3), format!("value {number} of {round}"), ttl);
            // Values of some of these keys are removed by the filter, of others they are changed.
            self.put(1, format!("u{number}"), format!("1{}.{round}", ["3", "4", "a"][number % 3]), None);
            self.put(2, format!("log/{round}/{number}"), "entry ".repeat(5), ttl);
        }
        for number in 0..3 {
            self.merge(0, format!("ab{:02}/{number}", round * 3), format!("operand of {round}"));
            self.merge(0, format!("sum/{number}"), format!("{round}"));
        }
        self.merge(1, "apart".to_owned(), format!("_{round}"));
        self.merge(1, "apart".to_owned(), format!("_{round} again"));
        self.handle(0).delete("ab00/4").expect("delete");
        self.oracle.commit(&[Change::Delete { space: 0, key: b"ab00/4".to_vec() }]);
        let (from, to) = (format!("ab{:02}/3", round * 3), format!("ab{:02}/4", round * 3));
        self.handle(0).delete_range(from.as_str()..to.as_str()).expect("delete_range");
        let span = (std::ops::Bound::Included(from.into_bytes()), std::ops::Bound::Excluded(to.into_bytes()));
        self.oracle.commit(&[Change::DeleteRange { space: 0, span }]);
    }
}

/// A change as its sequence number and content. Epochs depend on the open.
type Shown = (u64, String);

fn shown(change: &shamba::Change) -> Shown {
    let text = match change {
        shamba::Change::Batch(batch) => {
            let op = |(keyspace, op): (&str, ChangeOp<'_>)| format!("{keyspace}: {op:?}");
            batch.operations().map(op).collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    };
    (change.position().sequence, text)
}

/// The database on disk, with what it must answer and deliver.
struct Featured {
    files: Files,
    oracle: Oracle,
    now: Moment,
    /// Time at the end on the clock of the environment.
    now_us: u64,
    /// The changes from the first position on: one for each commit of the oracle.
    changes: Vec<Shown>,
    /// Positions of streams, with the number of commits before each.
    positions: Vec<(ChangePosition, u64)>,
    /// Logs that only streams need.
    kept: Vec<String>,
    tally: Tally,
}

fn stream(db: &Db, position: ChangePosition) -> shamba::Result<Changes> {
    db.changes_since_with(position, ChangesOptions::new().include_unsynced(true))
}

/// Three rounds of writes, each flushed; verdicts of the filter; an unclean end; writes that are
/// synced, and a tail that is not.
fn featured() -> Featured {
    let fs = MemFs::new();
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let fifo = KeyspaceOptions::new().fifo(limits()).prefix(PREFIXES[1]);
    let create = builder_with(&env, appending(true).prefix(PREFIXES[0]))
        .keyspace(SPACES[2], fifo)
        .experimental(|e| e.file_size(8 << 10).block_bytes(256))
        .keep_log(1 << 20, YEAR)
        .record();
    let spaces = Spaces::create(create.open().expect("create")).expect("keyspaces");
    let mut positions = vec![(spaces.db.change_position(), 0)];
    let mut writer = Writer { spaces, oracle: Oracle::new(), env: env.clone(), tally: Tally::default() };
    for round in 0..3 {
        writer.round(round);
        writer.spaces.db.flush().expect("flush");
    }
    writer.handle(1).compact().expect("compact");
    let turn = Moment { commit: writer.oracle.issued(), ms: env.clock.unix_ms(), turn: 1 };
    let verdicts = note_verdicts(&writer.spaces, &mut writer.oracle, turn).expect("a verdict");
    writer.tally.add("verdicts", verdicts);
    // The values with an hour to live expire.
    env.clock.sleep_us(2 * HOUR.as_micros() as u64);
    let Writer { spaces, .. } = writer;
    drop(spaces);
    let spaces = Spaces::existing(builder(&env).open().expect("open")).expect("keyspaces");
    let mut writer = Writer { spaces, oracle: writer.oracle, env: writer.env, tally: writer.tally };
    positions.push((writer.spaces.db.change_position(), writer.oracle.issued()));
    writer.put(0, "ab00/0".to_owned(), "in the log".to_owned(), Some(YEAR));
    writer.merge(0, "sum/0".to_owned(), "in the log".to_owned());
    writer.spaces.db.sync().expect("sync");
    writer.oracle.mark_durable();
    positions.push((writer.spaces.db.change_position(), writer.oracle.issued()));
    for number in 0..3 {
        writer.merge(0, format!("sum/{number}"), "in the tail".to_owned());
        writer.put(2, format!("log/tail/{number}"), "entry".to_owned(), None);
    }
    let Writer { spaces, oracle, tally, .. } = writer;
    let now = Moment { commit: oracle.issued(), ms: env.clock.unix_ms(), turn: u64::MAX };
    let mut follower = Follower::from(positions[0].0, true);
    let without_verdicts = oracle.state(Moment { turn: 0, ..now });
    follower.expect_state(&spaces.db, &without_verdicts, now).expect("a right stream");
    follower.pause();
    let mut all = stream(&spaces.db, positions[0].0).expect("a stream");
    let changes: Vec<Shown> =
        std::iter::from_fn(|| all.try_next().expect("a change")).map(|it| shown(&it)).collect();
    assert_eq!(changes.len() as u64, oracle.issued(), "a change for each commit");
    drop((all, spaces));
    let files = files_of(&fs);
    let inspected = shamba::inspect::manifest_file(&env, Path::new(HOME)).expect("a manifest");
    let fields = inspected.records.iter().flat_map(|record| &record.fields);
    let first_logs = fields.filter(|(name, _)| *name == "first_log").map(|(_, log)| number_of(log));
    let first_log = first_logs.max().expect("a first log");
    let logs = files.keys().filter(|name| name.ends_with(".log"));
    let kept = logs.filter(|name| number_of(name) < first_log).cloned().collect();
    Featured { files, oracle, now, now_us: env.clock.now_us(), changes, positions, kept, tally }
}

fn number_of(log: &str) -> u64 {
    log.trim_end_matches(".log").parse().expect("a number")
}

impl Featured {
    fn at(&self, commit: u64) -> Moment {
        Moment { commit, ..self.now }
    }

    fn judge(&self, files: &Files, file: &str, tally: &mut Tally) -> Result<(), String> {
        let env = Env::deterministic(Arc::new(disk_of(files)), 2);
        env.clock.sleep_us(self.now_us);
        let is_kept = self.kept.iter().any(|kept| kept == file);
        let db = match builder(&env).open() {
            Ok(db) => db,
            Err(error) => {
                fit(&error)?;
                let names_it = error.damage().is_none_or(|damage| damage.file.ends_with(file));
                if is_kept || !names_it {
                    return Err(format!("the open fails: {error:?}"));
                }
                tally.add("refused opens", 1);
                return Ok(());
            }
        };
        self.settings(&db)?;
        let has_warned = db.warnings().iter().any(|warning| warning.contains(file));
        let spaces = Spaces::existing(db.clone()).map_err(|error| format!("keyspaces: {error:?}"))?;
        let seen = self.reads(&spaces, has_warned, is_kept, tally)?;
        let check = db.verify().map_err(|error| format!("check: {error:?}"))?;
        if let Some(other) = check.problems.iter().find(|problem| is_kept || !problem.file.ends_with(file)) {
            return Err(format!("the check finds {other}"));
        }
        if seen.is_none() && check.problems.is_empty() {
            return Err("a read fails, and the check finds nothing".to_owned());
        }
        for (position, before) in &self.positions {
            self.stream(&db, (*position, *before), (file, seen, has_warned), tally)?;
        }
        tally.add(if is_kept { "flips in kept logs" } else { "other flips that open" }, 1);
        Ok(())
    }

    /// Compares the recorded settings.
    fn settings(&self, db: &Db) -> Result<(), String> {
        let spaces = [0, 1, 2].map(|space| db.keyspace(SPACES[space]));
        let [one, two, three] = spaces.map(|space| space.map_err(|error| format!("a keyspace: {error:?}")));
        let (one, two, three) = (one?, two?, three?);
        let prefixes = [&one, &two, &three].map(|space| space.prefix_extractor());
        let is_right = prefixes == [Some(PREFIXES[0]), None, Some(PREFIXES[1])]
            && three.fifo() == Some(limits())
            && two.compaction_filter().as_deref() == Some(Rules.name());
        is_right.then_some(()).ok_or_else(|| format!("other settings: {prefixes:?}, {:?}", three.fifo()))
    }

    /// Compares all reads. Returns the commit of the state that was read; `None` if a scan failed.
    fn reads(
        &self,
        spaces: &Spaces,
        has_warned: bool,
        is_kept: bool,
        tally: &mut Tally,
    ) -> Result<Option<u64>, String> {
        let (oldest, newest) = (self.oracle.durable(), self.oracle.issued());
        let (seen, allowed) = match spaces.dump() {
            Ok(state) => {
                let at = (oldest..=newest).rev().find(|at| self.oracle.state(self.at(*at)) == state);
                let Some(at) = at else {
                    let newest = self.oracle.state(self.now);
                    return Err(format!(
                        "wrong answers without an error: {}",
                        first_difference(&state, &newest)
                    ));
                };
                if at != newest && (is_kept || !has_warned) {
                    return Err(format!("the tail after commit {at} is gone, warned: {has_warned}"));
                }
                tally.add(if at == newest { "right scans" } else { "dropped tails" }, 1);
                (Some(at), at..=at)
            }
            Err(error) => {
                fit(&error)?;
                tally.add("refused scans", 1);
                (None, oldest..=newest)
            }
        };
        for space in 0..SPACES.len() {
            let surface = spaces.at(space).ok_or("a keyspace is missing")?;
            for key in self.oracle.keys(space) {
                let got = match surface.read(key) {
                    Ok(got) => got,
                    Err(error) => {
                        fit(&error)?;
                        if seen.is_none() {
                            continue;
                        }
                        let key = key.escape_ascii();
                        return Err(format!("get({key}) fails and a scan of everything does not: {error:?}"));
                    }
                };
                let is_allowed = |at| self.oracle.get(space, key, self.at(at)) == got.as_deref();
                if !allowed.clone().any(is_allowed) {
                    return Err(format!("get({}) gave {got:?}", key.escape_ascii()));
                }
            }
        }
        let Some(at) = seen else { return Ok(None) };
        for (space, prefix) in [(0, "ab00"), (0, "ab03"), (0, "ab07"), (2, "log/"), (2, "none/")] {
            let found = spaces.at(space).ok_or("a keyspace is missing")?.scan_prefix(prefix.as_bytes());
            let found: Vec<Pair> = found
                .map(compare::owned)
                .collect::<shamba::Result<_>>()
                .map_err(|error| format!("a scan of the prefix {prefix}: {error:?}"))?;
            let mut due = self.oracle.pairs(space, &compare::everything(), self.at(at));
            due.retain(|(key, _)| key.starts_with(prefix.as_bytes()));
            if found != due {
                return Err(format!("a scan of the prefix {prefix} gives {found:?} instead of {due:?}"));
            }
        }
        Ok(seen)
    }

    /// Compares the changes after a position, with `before` commits before it.
    fn stream(
        &self,
        db: &Db,
        (position, before): (ChangePosition, u64),
        (file, seen, has_warned): (&str, Option<u64>, bool),
        tally: &mut Tally,
    ) -> Result<(), String> {
        let mut got = Vec::new();
        let ending = match stream(db, position) {
            Err(error) => error,
            Ok(mut changes) => loop {
                match changes.try_next() {
                    Ok(Some(change)) => got.push(shown(&change)),
                    Ok(None) => return self.compare(&got, before, seen, tally),
                    Err(error) => break error,
                }
            },
        };
        let told =
            |what: &str| format!("a stream from {position} after {} changes: {what}: {ending:?}", got.len());
        let due = &self.changes[before as usize..];
        if !due.starts_with(&got) {
            return Err(told("wrong changes"));
        }
        match ending.kind() {
            // Nothing of the present state may be missing without a reason that names the file.
            ErrorKind::Gone if has_warned && ending.to_string().contains(file) && got.is_empty() => {
                tally.add("refused streams", 1);
                Ok(())
            }
            ErrorKind::Corruption if ending.damage().is_some_and(|damage| damage.file.ends_with(file)) => {
                tally.add("streams that end with an error", 1);
                tally.raise("max changes before an error", got.len() as u64);
                Ok(())
            }
            _ => Err(told("not a reason")),
        }
    }

    /// Compares the changes of a stream that has ended without an error.
    fn compare(
        &self,
        got: &[Shown],
        before: u64,
        seen: Option<u64>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let ends = seen.map_or(self.oracle.durable()..=self.oracle.issued(), |at| at..=at);
        let due = &self.changes[before as usize..];
        let end = before + got.len() as u64;
        if !due.starts_with(got) || !ends.contains(&end) {
            let other = got.iter().zip(due).find(|(got, due)| got != due);
            return Err(format!("a stream from commit {before} to {end} of {ends:?}: {other:?}"));
        }
        tally.add("whole streams", 1);
        Ok(())
    }

    /// Flips bytes of a range of a file.
    fn flip(
        &self,
        (file, from, to): (&str, usize, usize),
        stride: usize,
        base: u64,
    ) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let mut files = self.files.clone();
        for at in (from..to).filter(|at| at % stride == 0 || *at < HEAD_BYTES) {
            let mask = 1u8 << (seed::mixed(base, at as u64) % 8);
            files.get_mut(file).expect("it is there")[at] ^= mask;
            caught(|| self.judge(&files, file, &mut tally))
                .map_err(|error| format!("byte {at} of {file} ^ {mask:#04x}: {error}"))?;
            files.get_mut(file).expect("it is there")[at] ^= mask;
            tally.add(&format!("flips in {}", kind_of(file)), 1);
        }
        Ok(tally)
    }
}

#[test]
fn flips_in_a_database_with_every_feature() {
    let base = seed::base(0xf11b);
    let subject = featured();
    assert!(subject.kept.len() >= 3, "{:?} are kept", subject.kept);
    let mut undamaged = Tally::default();
    subject.judge(&subject.files, "none", &mut undamaged).expect("undamaged it answers");
    assert_eq!((undamaged.get("right scans"), undamaged.get("whole streams")), (1, 3), "{undamaged}");
    let every = seed::number("SHAMBA_FLIPS").is_some();
    let mut works = Vec::new();
    for (file, bytes) in subject.files.iter().filter(|(name, _)| *name != "LOCK") {
        let is_table = kind_of(file) == "tables";
        if is_brief() && is_table {
            continue;
        }
        let stride = if is_table && !every { TABLE_STRIDE } else { 1 };
        let ends = (0..bytes.len()).step_by(512).map(|from| (from, bytes.len().min(from + 512)));
        works.extend(ends.map(|(from, to)| ((file.as_str(), from, to), stride)));
    }
    let tallies = pool::run(works.len(), |index| {
        let (range, stride) = works[index];
        subject.flip(range, stride, base).map_err(|error| {
            let test = "corruption::featured::flips_in_a_database_with_every_feature";
            format!("{error}\nrun again: {}", seed::Rerun { test, seed: base, vector: 0 })
        })
    });
    let mut total = subject.tally.clone();
    tallies.unwrap_or_else(|error| panic!("{error}")).iter().for_each(|tally| total.merge(tally));
    let bytes = subject.files.values().map(Vec::len).sum::<usize>();
    total.tell("corruption-featured", &format!("seed {base}, {} files, {bytes} bytes", subject.files.len()));
    if is_brief() {
        return;
    }
    total.require(&[
        ("operands", 20),
        ("entries that expire", 10),
        ("verdicts", 3),
        ("flips in tables", 500),
        ("flips in logs", 2_000),
        ("flips in manifests", 500),
        ("flips in kept logs", 1_000),
        ("right scans", 1_000),
        ("refused scans", 30),
        ("refused opens", 500),
        ("refused streams", 100),
        ("streams that end with an error", 300),
        ("whole streams", 1_000),
    ]);
}
