//! Crash states: a recorded life on the simulated disk, and the check of every disk that a crash
//! may leave.
//!
//! [`Recording::record`] runs operations. Around each it records the number of calls that the disk
//! had seen, and the numbers of issued and durable commits. A crash right after call k must then
//! leave the state of one commit P with `durable <= P <= issued`. Everything acknowledged at or
//! before k is durable as promised, and no operation that began after k is visible. If every
//! pending call survives (as after a kill of the process), P must include all acknowledged commits.
//!
//! [`Explorer`] recovers a disk and checks more: all ways of reading agree, every byte verifies, no
//! unneeded file remains, and a synced write survives the next crash. A crash at any call *of the
//! recovery* must lead to the same state, and so must one at any call of the recovery after that,
//! if the requested depth includes it. Equal disks are checked once: recovery is a function of the
//! disk and of the time.
//!
//! In a life with [`Op::Pass`] time passes, and entries expire (`times`).

mod times;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use shamba::env::{CrashPolicy, DirEntry, Env, SimFs, Vfs};
use shamba::{CheckReport, Durability, ErrorKind, WriteOptions};

use self::times::{Found, Times};
use crate::compare::{self, Spaces, failed};
use crate::expiry::advance_to;
use crate::follower::Follower;
use crate::ops::{Op, shown};
use crate::oracle::{Moment, Oracle, SPACES, State, fingerprint};
use crate::runner::{COPY, HOME, Runner};
use crate::seed::mixed;
use crate::tally::Tally;
use crate::vectors::Vector;

/// Length of the longest prefix that is scanned after a crash, and one: shorter than most keys.
const PREFIX_BYTES_MAX: usize = 13;

/// One disk in this many is also opened read-only.
const READ_ONLY_ONE_IN: u64 = 4;

/// Number of operations before a crash in a failure report.
const STORY_OPS: usize = 12;

/// The calls and the guarantees of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Number of calls before it.
    pub start: u64,
    /// Number of calls when it ended.
    pub end: u64,
    /// Number of commits issued, including it.
    pub issued: u64,
    /// Number of commits acknowledged, including it.
    pub acked: u64,
    /// Number of commits that survive a power loss after it.
    pub durable: u64,
}

/// A recorded life.
pub struct Recording {
    sim: SimFs,
    vector: Vector,
    ops: Vec<Op>,
    marks: Vec<Mark>,
    oracle: Oracle,
    times: Times,
    /// Names of keyspaces that were dropped during the life. A drop is durable at once, whatever
    /// writes are lost. Their content therefore matches no single commit and is not compared.
    dropped: Vec<&'static str>,
    /// Hash of everything besides the disk on which a verdict depends.
    context: u64,
}

/// The states that a crash may leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub durable: u64,
    pub acked: u64,
    pub issued: u64,
}

impl Window {
    /// The states that a crash right after call `k` may leave.
    pub fn after(marks: &[Mark], k: u64) -> Self {
        let done = marks.iter().rev().find(|mark| mark.end <= k);
        // An operation without any call ends as soon as it begins.
        let begun = marks.iter().rev().find(|mark| mark.start < k || mark.end <= k);
        Self {
            durable: done.map_or(0, |mark| mark.durable),
            acked: done.map_or(0, |mark| mark.acked),
            issued: begun.map_or(0, |mark| mark.issued),
        }
    }
}

impl Recording {
    /// Runs the operations on a new simulated disk. The database is dropped without close at the
    /// end.
    ///
    /// # Errors
    /// A failure or difference before any crash.
    pub fn record(vector: &Vector, seed: u64, ops: &[Op]) -> Result<Self, String> {
        Self::record_through(vector, seed, ops, |sim| Arc::new(sim))
    }

    /// The same with a layer between the engine and the disk.
    ///
    /// # Errors
    /// A failure or difference before any crash.
    pub fn record_through(
        vector: &Vector,
        seed: u64,
        ops: &[Op],
        through: impl FnOnce(SimFs) -> Arc<dyn Vfs>,
    ) -> Result<Self, String> {
        let sim = SimFs::new();
        let passes_time = ops.iter().any(|op| matches!(op, Op::Pass { .. }));
        let mut runner = Runner::new(vector.clone(), through(sim.clone()), seed)?;
        if passes_time {
            runner = runner.passing_time();
        }
        let mut times = Times::new(passes_time);
        times.note(&runner, sim.op_count())?;
        let mut marks = vec![Mark { start: 0, end: sim.op_count(), issued: 0, acked: 0, durable: 0 }];
        for op in ops {
            let start = sim.op_count();
            runner.apply(op).map_err(|error| format!("{op:?}: {error}"))?;
            let oracle = runner.oracle();
            marks.push(Mark {
                start,
                end: sim.op_count(),
                issued: oracle.issued(),
                acked: oracle.issued(),
                durable: oracle.durable(),
            });
            times.note(&runner, sim.op_count())?;
        }
        let oracle = runner.oracle().clone();
        let drops =
            ops.iter().filter_map(|op| if let Op::DropSpace { space } = op { Some(*space) } else { None });
        let dropped = drops.map(|space| SPACES[space]).collect::<Vec<_>>();
        let context = context_key(vector, &dropped);
        Ok(Self { sim, vector: vector.clone(), ops: ops.to_vec(), marks, oracle, times, dropped, context })
    }

    /// A hash of the recorded calls: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.sim.trace_hash()
    }

    /// Number of calls of the whole life.
    pub fn calls(&self) -> u64 {
        self.sim.op_count()
    }

    fn story(&self, k: u64, policy: &CrashPolicy) -> String {
        let op = self.marks.iter().position(|mark| mark.end >= k).unwrap_or(self.ops.len());
        let name =
            op.checked_sub(1).and_then(|op| self.ops.get(op)).map_or("open".into(), |op| format!("{op:?}"));
        // Only the last operations: much earlier ones are rarely the cause.
        let begin = op.saturating_sub(STORY_OPS);
        let ops = self.ops[begin..op.min(self.ops.len())].iter();
        let ops = ops.map(|op| format!("    {op:?}\n")).collect::<String>();
        let from = k.saturating_sub(12);
        let calls = (from..=k + 1)
            .filter_map(|call| Some(format!("    call {call}: {}\n", self.sim.describe_op(call)?)))
            .collect::<String>();
        format!(
            "crash behind call {k} of {} in operation {op} ({name}) under {policy:?}, {} calls pending\n\
             {calls}  operations {begin}..{op}:\n{ops}  {:?}",
            self.calls(),
            self.sim.pending_count(k),
            self.vector
        )
    }
}

/// The extent of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Policies tried at each crash point; the others of the sample are tried at other points.
    pub policies_per_point: usize,
    /// One call in this many is a crash point; the seed determines the first.
    pub points_step: u64,
    /// One new disk in this many also has its recovery crashed, and so on for the resulting disks.
    pub nested_one_in: u64,
    /// Maximum number of successive crashes: 2 is one of a life and one of the recovery after it.
    pub depth: u32,
}

impl Effort {
    /// Whether successive crash number `depth` is applied to the recovery of this disk.
    fn goes_on(self, depth: u32, image: &SimFs) -> bool {
        depth <= self.depth && image.image_hash().is_multiple_of(self.nested_one_in.max(1))
    }
}

/// Recovers disks and caches the recovered states.
#[derive(Default)]
pub struct Explorer {
    /// By vector, disk and tick of the recovery: what it shows.
    seen: Mutex<HashMap<(u64, u64, u64), Found>>,
}

impl Explorer {
    /// Number of different disks that were recovered and checked.
    pub fn distinct_images(&self) -> usize {
        let seen = self.seen.lock().expect("no check panics while it holds the map");
        seen.keys().map(|(_, image, _)| image).collect::<std::collections::HashSet<_>>().len()
    }

    /// Crashes a recording after every call.
    ///
    /// # Errors
    /// The first violation, with its report.
    pub fn explore(&self, recording: &Recording, effort: Effort, seed: u64) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let begin = seed % effort.points_step;
        for (point, k) in (begin..=recording.calls()).step_by(effort.points_step as usize).enumerate() {
            let policies = recording.sim.policies_for(k, seed);
            let count = policies.len();
            // The points have all policies in turn.
            let first = point.wrapping_mul(effort.policies_per_point) % count.max(1);
            let chosen = (0..count.min(effort.policies_per_point)).map(|i| &policies[(first + i) % count]);
            for policy in chosen {
                let image = recording.sim.crash(k, policy);
                self.check(recording, &image, k, policy, effort, &mut tally)
                    .map_err(|error| format!("{error}\n  {}", recording.story(k, policy)))?;
                tally.add("crashes", 1);
                tally.add(&format!("policy {}", policy_name(policy)), 1);
                recording.times.count(k, &mut tally);
            }
        }
        Ok(tally)
    }

    fn check(
        &self,
        recording: &Recording,
        image: &SimFs,
        k: u64,
        policy: &CrashPolicy,
        effort: Effort,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let hash = image.image_hash();
        let now_ms = recording.times.of_crash(k);
        let key = (recording.context, hash, times::tick(now_ms));
        let known = self.seen.lock().expect("no check panics while it holds the map").get(&key).cloned();
        let found = match known {
            Some(found) => found,
            None => {
                let found = self.recover(recording, image, now_ms, effort, tally)?;
                let mut seen = self.seen.lock().expect("no check panics while it holds the map");
                seen.insert(key, found.clone());
                found
            }
        };
        let window = Window::after(&recording.marks, k);
        let arrived = *policy == CrashPolicy::All && recording.vector.survives_kill();
        let least = if arrived { window.acked } else { window.durable };
        if (least..=window.issued).any(|at| recording.is_state(at, &found)) {
            return Ok(());
        }
        let others = (0..=recording.oracle.issued()).filter(|at| recording.is_state(*at, &found));
        let others = others.collect::<Vec<_>>();
        Err(format!(
            "the recovered state is that of no commit in {least}..={}; it equals commits {others:?} of {window:?}, {found:?}",
            window.issued
        ))
    }

    /// Recovers a disk, checks its consistency, writes to it and crashes it again.
    fn recover(
        &self,
        recording: &Recording,
        image: &SimFs,
        now_ms: u64,
        effort: Effort,
        tally: &mut Tally,
    ) -> Result<Found, String> {
        let vector = &recording.vector;
        // Recovery works on a copy: nested crashes start from the original disk.
        let disk = image.crash(u64::MAX, &CrashPolicy::All);
        let spaces = open(vector, &disk, 1, now_ms).map_err(|error| format!("recovery: {error}"))?;
        let recovered_at = disk.op_count();
        let state = read_all(&spaces, &recording.oracle, image.image_hash())
            .map_err(|error| format!("after recovery: {error}"))?;
        let mut found = Found::new(now_ms, compared(state.clone(), &recording.dropped));
        tally.add("recoveries", 1);
        if !spaces.db.warnings().is_empty() {
            tally.add("recoveries that dropped a tail", 1);
        }
        verify(&spaces, &disk).map_err(|error| format!("after recovery: {error}"))?;

        if vector.follows_unsynced.is_some() {
            follow_all(&spaces, &state).map_err(|error| format!("after recovery: {error}"))?;
            tally.add("disks whose stream was read", 1);
        }
        if image.image_hash().is_multiple_of(READ_ONLY_ONE_IN) {
            look_without_writing(vector, image, &state, now_ms)?;
            tally.add("disks also opened read-only", 1);
        }

        // A write acknowledged right after recovery survives the next crash, and so does everything
        // else.
        let (key, value) = (b"written after the crash".as_slice(), b"value".as_slice());
        let written = match vector.no_wal {
            true => spaces.db.put(key, value).and_then(|()| spaces.db.flush()),
            false => {
                let sync = WriteOptions::new().durability(Durability::Sync);
                spaces.db.put_with(key, value, sync)
            }
        };
        written.map_err(failed("a write after recovery"))?;
        let again = disk.crash(u64::MAX, &CrashPolicy::None);
        drop(spaces);
        let spaces = open(vector, &again, 2, now_ms).map_err(|error| format!("second recovery: {error}"))?;
        let mut expected = state.clone();
        expected.entry(SPACES[0].to_owned()).or_default().insert(key.to_vec(), value.to_vec());
        let got = spaces.dump().map_err(failed("scan after the second recovery"))?;
        compare::same_state(&got, &expected)
            .map_err(|error| format!("after the second recovery: {error}"))?;
        drop(spaces);

        if disk.has_name(&Path::new(COPY).join("CURRENT")) {
            check_copy(recording, image, now_ms).map_err(|error| format!("in the checkpoint: {error}"))?;
            tally.add("disks with a checkpoint", 1);
        }
        if recording.times.passes() && image.image_hash().is_multiple_of(times::PASSED_ONE_IN) {
            times::pass(recording, image, now_ms, &mut found, tally)?;
        }
        let depth = 2;
        if effort.goes_on(depth, image) {
            let recovery = Recovery { recording, state: &state, found: &found, now_ms, effort };
            self.crash_recovery(&recovery, depth, &disk, recovered_at, tally)?;
        }
        Ok(found)
    }

    /// Crashes a recovery after each of its `calls`, which `disk` has recorded: every resulting
    /// disk must recover to the same state. This is successive crash number `depth`.
    fn crash_recovery(
        &self,
        recovery: &Recovery<'_>,
        depth: u32,
        disk: &SimFs,
        calls: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Recovery { recording, state, found, now_ms, effort } = recovery;
        for k in 0..=calls {
            for policy in disk.policies_for(k, disk.image_hash()) {
                let nested = disk.crash(k, &policy);
                let key = (recording.context, nested.image_hash(), times::tick(*now_ms));
                let seen = self.seen.lock().expect("no check panics while it holds the map");
                match seen.get(&key) {
                    Some(known) if known.is_same_now(found) => continue,
                    Some(known) => {
                        return Err(format!(
                            "a crash behind call {k} of {calls} of recovery under {policy:?} leaves a disk that was {known:?} before, not {found:?}"
                        ));
                    }
                    None => drop(seen),
                }
                let again = effort.goes_on(depth + 1, &nested);
                let checked = open(&recording.vector, &nested, 3, *now_ms).and_then(|spaces| {
                    let recovered_at = nested.op_count();
                    let got = spaces.dump().map_err(failed("scan"))?;
                    compare::same_state(&got, state)?;
                    verify(&spaces, &nested)?;
                    Ok(recovered_at)
                });
                let checked = checked.and_then(|recovered_at| match again {
                    true => self.crash_recovery(recovery, depth + 1, &nested, recovered_at, tally),
                    false => Ok(()),
                });
                checked.map_err(|error| {
                    let calls = (k.saturating_sub(12)..=k)
                        .filter_map(|call| Some(format!("    call {call}: {}\n", disk.describe_op(call)?)))
                        .collect::<String>();
                    format!("after a crash behind call {k} of {calls} of recovery under {policy:?}: {error}\n{calls}")
                })?;
                let mut seen = self.seen.lock().expect("no check panics while it holds the map");
                seen.insert(key, (*found).clone());
                drop(seen);
                tally.add("crashes of recoveries", 1);
                if depth > 2 {
                    tally.add("crashes of recoveries, three deep", 1);
                }
            }
        }
        Ok(())
    }
}

/// A recovery that is crashed, and the state that every later recovery must find.
struct Recovery<'a> {
    recording: &'a Recording,
    state: &'a State,
    found: &'a Found,
    now_ms: u64,
    effort: Effort,
}

/// Checks that a checkpoint that can be opened is complete.
fn check_copy(recording: &Recording, image: &SimFs, now_ms: u64) -> Result<(), String> {
    let disk = image.crash(u64::MAX, &CrashPolicy::All);
    let env = at_time(Env::deterministic(Arc::new(disk), 5), now_ms);
    let db = recording.vector.builder(Path::new(COPY), &env).open().map_err(failed("open"))?;
    let spaces = Spaces::existing(db).map_err(failed("keyspace"))?;
    let found = Found::new(now_ms, compared(spaces.dump().map_err(failed("scan"))?, &recording.dropped));
    match (0..=recording.oracle.issued()).any(|at| recording.is_state(at, &found)) {
        true => Ok(()),
        false => Err("its state is that of no commit".to_owned()),
    }
}

/// Checks that a read-only open sees the recovered state and changes nothing. It is given no
/// options of keyspaces, so it follows those that the life has recorded.
fn look_without_writing(vector: &Vector, image: &SimFs, state: &State, now_ms: u64) -> Result<(), String> {
    let disk = image.crash(u64::MAX, &CrashPolicy::All);
    let env = at_time(Env::deterministic(Arc::new(disk.clone()), 4), now_ms);
    let opened = vector.builder_of_records(Path::new(HOME), &env).read_only(true).open();
    let checked = match opened {
        // No database was created yet.
        Err(error) if error.kind() == ErrorKind::NotFound && state.is_empty() => Ok(()),
        Err(error) => Err(format!("open failed: {error:?}")),
        Ok(db) => Spaces::existing(db).map_err(failed("keyspace")).and_then(|spaces| {
            compare::same_state(&spaces.dump().map_err(failed("a scan"))?, state)?;
            recorded_options(vector, &spaces)
        }),
    };
    checked.map_err(|error| format!("read-only: {error}"))?;
    match disk.op_count() {
        0 => Ok(()),
        calls => Err(format!("a read-only open made {calls} calls that write: {:?}", disk.describe_op(1))),
    }
}

/// Checks that every keyspace records the options that it was given at its creation.
fn recorded_options(vector: &Vector, spaces: &Spaces) -> Result<(), String> {
    for name in spaces.db.keyspaces() {
        let keyspace = spaces.db.keyspace(&name).map_err(failed("keyspace"))?;
        let is_known = SPACES.contains(&name.as_str());
        let prefix = vector.prefix.filter(|_| is_known);
        if keyspace.prefix_extractor() != prefix {
            return Err(format!("keyspace {name} records {:?}, not {prefix:?}", keyspace.prefix_extractor()));
        }
        let own = keyspace.own_options();
        let mut given =
            vector.own_options.iter().filter(|(_, value)| *value != "database").collect::<Vec<_>>();
        if SPACES.last() != Some(&name.as_str()) {
            given.clear();
        }
        let is_there = |(option, value): &&(&str, &str)| own.iter().any(|(o, v)| o == option && v == value);
        if own.len() != given.len() || !given.iter().copied().all(|pair| is_there(&pair)) {
            return Err(format!("keyspace {name} records {own:?}, not {given:?}"));
        }
    }
    Ok(())
}

fn open(vector: &Vector, disk: &SimFs, life: u64, now_ms: u64) -> Result<Spaces, String> {
    open_in(vector, &env_of(disk, life, now_ms))
}

/// The environment of a recovery. Each life has a seed of its own, as with real randomness: birth
/// ids must not repeat.
fn env_of(disk: &SimFs, life: u64, now_ms: u64) -> Env {
    at_time(Env::deterministic(Arc::new(disk.clone()), mixed(0xc4a5, life)), now_ms)
}

fn open_in(vector: &Vector, env: &Env) -> Result<Spaces, String> {
    let db = vector.builder(Path::new(HOME), env).open().map_err(failed("open"))?;
    Spaces::existing(db).map_err(failed("keyspace"))
}

/// Reads everything by a forward scan, and compares point reads of every known key, a scan that
/// comes from the back or from both ends, and a scan of a prefix with it. `choice` selects the ends
/// and the prefix.
fn read_all(spaces: &Spaces, oracle: &Oracle, choice: u64) -> Result<State, String> {
    let state = spaces.dump().map_err(failed("scan"))?;
    for (space, name) in SPACES.iter().enumerate() {
        let Some(surface) = spaces.at(space) else { continue };
        let live = state.get(*name);
        let mut keys = Vec::new();
        for key in oracle.keys(space) {
            compare::point(surface, key, live.and_then(|live| live.get(key)).map(Vec::as_slice))?;
            keys.push(key);
        }
        let in_space = |error: String| format!("keyspace {name}: {error}");
        let pairs = live.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
        let mut pairs = pairs.collect::<Vec<_>>();
        let is_back = |step: usize| match choice % 2 {
            0 => true,
            _ => choice.rotate_right(step as u32) & 2 != 0,
        };
        compare::ends(surface.scan(&compare::everything()), "a scan", is_back, &pairs).map_err(in_space)?;
        // Also the prefixes of keys that are gone.
        let Some(key) = keys.get((choice >> 8) as usize % keys.len().max(1)) else { continue };
        let prefix = &key[..key.len().min((choice >> 40) as usize % PREFIX_BYTES_MAX)];
        pairs.retain(|(key, _)| key.starts_with(prefix));
        let what = format!("a scan of the prefix {}", shown(prefix));
        compare::ends(surface.scan_prefix(prefix), &what, is_back, &pairs).map_err(in_space)?;
    }
    Ok(state)
}

/// Checks that the stream of changes from the oldest position, of logs that were all kept, makes
/// the state.
fn follow_all(spaces: &Spaces, state: &State) -> Result<(), String> {
    let now = Moment { commit: 0, ms: times::start_ms() + times::LATER_MS, turn: 0 };
    let oldest = spaces.db.oldest_change_position().map_err(failed("oldest_change_position"))?;
    Follower::from(oldest, true).expect_state(&spaces.db, state, now)
}

/// Checks that every byte verifies, and that there is no file that the database does not use.
fn verify(spaces: &Spaces, disk: &SimFs) -> Result<(), String> {
    let report = spaces.db.verify().map_err(failed("verify"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("verify reports {problem:?}"));
    }
    let files = disk.list(Path::new(HOME)).map_err(|error| format!("list: {error}"))?;
    orphans(&files, &report)
}

/// Checks a list of files for names that a database does not need, of which this is the check.
///
/// # Errors
/// The unneeded files.
pub fn orphans(files: &[DirEntry], report: &CheckReport) -> Result<(), String> {
    let count = |test: &dyn Fn(&str) -> bool| files.iter().filter(|file| test(&file.name)).count() as u64;
    let names = || files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(" ");
    let kinds = [("table", ".sst", report.tables), ("value", ".values", report.value_files)];
    for (kind, ending, in_use) in kinds {
        let found = count(&|name| name.ends_with(ending));
        if found != in_use {
            return Err(format!("{found} {kind} files lie there and {in_use} are in use: {}", names()));
        }
    }
    if count(&|name| name.starts_with("MANIFEST")) > 1 || count(&|name| name.contains("tmp")) > 0 {
        return Err(format!("dead files lie there: {}", names()));
    }
    Ok(())
}

/// The fingerprint of the compared part of a state.
fn compared(mut state: State, dropped: &[&str]) -> u64 {
    dropped.iter().for_each(|name| drop(state.remove(*name)));
    fingerprint(&state)
}

/// Hash of everything besides the disk on which a verdict depends.
fn context_key(vector: &Vector, dropped: &[&str]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{vector:?} {dropped:?}").hash(&mut hasher);
    hasher.finish()
}

fn policy_name(policy: &CrashPolicy) -> String {
    let text = format!("{policy:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

/// An environment whose clock shows this time.
fn at_time(env: Env, ms: u64) -> Env {
    advance_to(&env, ms);
    env
}
