//! Lives of a database that forgets by rule: the default keyspace has a compaction filter, and
//! another one is FIFO, with a limit of bytes, of age, or both. They are recorded on the simulated
//! disk, with or without a failing call, and the disks that a crash may leave are judged.
//!
//! The engine decides when a filter is asked and when tables are dropped, so a commit has no single
//! state. A state is legal after commit P if
//! - every key of the default keyspace has the value of P, or that which the filter makes of it;
//!   only the latter, if it was seen before the crash;
//! - every key of the FIFO keyspace has the value of P or is gone; all that is gone is older than
//!   all that is there, or of the same batch; and what was seen to be gone before the crash is
//!   gone;
//! - what is gone was too old, if age is the only limit; without such a limit the newest write of
//!   the FIFO keyspace is there.
//!
//! P is the same for both keyspaces: batches write to both. The window of P is that of
//! [`crate::crash`].
//!
//! Time passes in a life only by its operations. A recovery begins at the time of the crash, and
//! once the maximum age has passed after it, nothing of the FIFO keyspace is left.
//!
//! A snapshot is read after every operation while it is held: neither a filter nor a limit changes
//! what it has seen. The exception is data that another snapshot held when it was due: a snapshot
//! that began later may lose it.

mod judge;
mod readers;
mod script;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{CrashPolicy, Env, FaultFs, FaultRule, SimFs, Vfs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Builder, Db, Durability, Fifo, KeyspaceOptions, MergePolicy};

use self::judge::{Facts, Found, Model};
use self::readers::Readers;
pub use self::script::{Change, Op};
use crate::compare::failed;
use crate::crash::{Mark, Window, orphans};
use crate::expiry::advance_to;
use crate::ops::shown;
use crate::runner::HOME;
use crate::seed::mixed;
use crate::tally::Tally;
use crate::vectors::Vector;

/// The FIFO keyspace.
const LOG: &str = "log";
/// Bytes of the tables of the FIFO keyspace: a few runs of one memtable each; and a limit of which
/// an eighth is more than such a run, so that small runs are merged.
const BYTES: [u64; 2] = [20 << 10, 48 << 10];
/// Maximum age of the tables of the FIFO keyspace.
const AGE_MS: u64 = 8_000;
/// Age at which nothing is there any more: the engine notes ages in parts of the maximum, and what
/// is in memory has none until the first work after an eighth of it, which is a step of time later.
const GONE_MS: u64 = AGE_MS * 13 / 10 + (TICKS_MAX + 1) * TICK_MS;
/// Time passes in multiples of this.
const TICK_MS: u64 = 1_000;
/// Maximum length of a step of time, in ticks.
pub const TICKS_MAX: u64 = 3;
/// One new disk in this many is also compacted after its recovery, and cut once more.
const CUT_AGAIN_ONE_IN: u64 = 4;

/// Removes values that begin with `drop`, and makes `v2` of `v1` at the beginning of a value.
struct Rules;

/// The value that [`Rules`] leaves; `None` if it removes the key.
fn ruled(value: &[u8]) -> Option<Vec<u8>> {
    match (value.starts_with(b"drop"), value.strip_prefix(b"v1")) {
        (true, _) => None,
        (false, Some(rest)) => Some([b"v2", rest].concat()),
        (false, None) => Some(value.to_vec()),
    }
}

impl CompactionFilter for Rules {
    fn name(&self) -> &str {
        "suites.rules"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        let Some(value) = entry.value() else { return Verdict::Keep };
        match ruled(value) {
            None => Verdict::Remove,
            Some(new) if new == value => Verdict::Keep,
            Some(new) => Verdict::Replace(new),
        }
    }
}

/// The number of a life, which determines it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Its seed.
    pub seed: u64,
    /// Its number: the policy, the limits of the FIFO keyspace and the durability cycle with it.
    pub index: usize,
    /// Number of its operations.
    pub ops: usize,
}

impl Plan {
    /// The limits of the FIFO keyspace.
    fn limits(self) -> Fifo {
        let age = Duration::from_millis(AGE_MS);
        match self.index / 3 % 4 {
            0 => Fifo::bytes(BYTES[0]),
            1 => Fifo::age(age),
            2 => Fifo::bytes(BYTES[1]),
            _ => Fifo::bytes(BYTES[1]).with_age(age),
        }
    }

    fn open(self, env: &Env) -> shamba::Result<Db> {
        self.builder(env).open()
    }

    fn builder(self, env: &Env) -> Builder {
        let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
        let durability = [Durability::NoSync, Durability::NoSync, Durability::Sync][self.index / 2 % 3];
        let vector = Vector { durability, ..Vector::plain(policies[self.index % 3]) };
        // One table for each run, so that a run is dropped as a whole.
        let log = KeyspaceOptions::new().fifo(self.limits()).file_size(1 << 20);
        vector
            .builder_without_operators(Path::new(HOME), env)
            .keyspace("default", KeyspaceOptions::new().compaction_filter(Rules))
            .keyspace(LOG, log)
    }

    fn is_synced(self) -> bool {
        self.index / 2 % 3 == 2
    }
}

/// A recorded life.
pub struct Life {
    plan: Plan,
    sim: SimFs,
    marks: Vec<Mark>,
    model: Model,
    /// Facts that were seen, each with the number of calls that the disk had seen by then.
    facts: Vec<(u64, Facts)>,
    /// The time in milliseconds at the end of each operation, with the number of calls that the
    /// disk had seen by then.
    times: Vec<(u64, u64)>,
    readers: Readers,
    /// Number of calls that were made to fail.
    faults: u64,
}

impl Life {
    /// Records a life. With `fault` the call that it names fails, and the life ends at the first
    /// write or open that fails: so one commit at most has an unknown outcome, the last one.
    ///
    /// # Errors
    /// A state that is not legal, or a failure that nothing has caused.
    pub fn record(plan: Plan, fault: Option<FaultRule>) -> Result<Self, String> {
        Self::record_ops(plan, &plan.script(), fault)
    }

    /// Records a life of these operations; see [`Self::record`].
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn record_ops(plan: Plan, ops: &[Op], fault: Option<FaultRule>) -> Result<Self, String> {
        let sim = SimFs::new();
        let plain = Env::deterministic(Arc::new(sim.clone()), mixed(plan.seed, 1));
        let faulty = FaultFs::with_clock(Arc::new(sim.clone()), 3, plain.clock.clone());
        let env = Env { vfs: Arc::new(faulty.clone()), ..plain };
        // The directory is there before, as in suite D.
        let above = sim.create_dir_all(Path::new(HOME)).and_then(|()| sim.sync_dir(Path::new("/")));
        above.map_err(|error| format!("making the directory: {error}"))?;
        let first = Mark { start: 0, end: sim.op_count(), issued: 0, acked: 0, durable: 0 };
        let mut life = Self {
            plan,
            sim,
            marks: vec![first],
            model: Model::new(plan.limits()),
            facts: Vec::new(),
            times: Vec::new(),
            readers: Readers::default(),
            faults: 0,
        };
        let may_fail = fault.is_some();
        fault.into_iter().for_each(|rule| faulty.add_rule(rule));
        let mut db = match plan.open(&env) {
            Err(error) if !may_fail => return Err(format!("open: {error:?}")),
            opened => opened.ok(),
        };
        life.times.push((life.sim.op_count(), env.clock.unix_ms()));
        for (at, op) in ops.iter().enumerate() {
            let Some(open) = db.take() else { break };
            let told = |error: String| format!("operation {at} {op:?}: {error}");
            let failures = life.apply(open, &env, op, &mut db);
            if let (Err(error), false) = (&failures, may_fail) {
                return Err(told(format!("{error:?}")));
            }
            let now_ms = env.clock.unix_ms();
            life.times.push((life.sim.op_count(), now_ms));
            if let Some(db) = &db {
                let has_worked = matches!(op, Op::Pass { .. }) && failures.is_ok();
                life.look(db, (now_ms, has_worked), may_fail).map_err(told)?;
            }
        }
        life.readers.release_all();
        drop(db);
        life.faults = faulty.faults_injected();
        Ok(life)
    }

    /// Number of calls that were made to fail.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Applies an operation, and leaves the database in `db` if the life goes on.
    fn apply(&mut self, open: Db, env: &Env, op: &Op, db: &mut Option<Db>) -> shamba::Result<()> {
        let last = self.marks.last().copied();
        let (acked, durable) = last.map_or((0, 0), |mark| (mark.acked, mark.durable));
        let mut mark =
            Mark { start: self.sim.op_count(), end: 0, issued: self.model.issued(), acked, durable };
        let mut outcome = Ok(());
        let mut goes_on = true;
        match op {
            Op::Write { changes, sync } => {
                let now_ms = env.clock.unix_ms();
                outcome = write(&open, changes, *sync);
                mark.issued = self.model.commit(changes, now_ms);
                goes_on = outcome.is_ok();
                if goes_on {
                    mark.acked = mark.issued;
                    mark.durable = if *sync || self.plan.is_synced() { mark.issued } else { durable };
                }
            }
            Op::Flush | Op::Sync => {
                outcome = if matches!(op, Op::Flush) { open.flush() } else { open.sync() };
                if outcome.is_ok() {
                    mark.durable = mark.issued;
                }
            }
            Op::Compact => outcome = open.compact(),
            Op::Pass { ticks } => {
                env.clock.sleep_us(ticks * TICK_MS * 1_000);
                outcome = open.wait_idle();
            }
            Op::Hold => outcome = self.readers.hold(&open, env.clock.unix_ms()),
            Op::Release => self.readers.release(),
            Op::Reopen { clean } => {
                self.readers.release_all();
                if *clean {
                    outcome = open.clone().close();
                    mark.durable = if outcome.is_ok() { mark.issued } else { durable };
                }
                drop(open);
                match self.plan.open(env) {
                    Ok(opened) => *db = Some(opened),
                    Err(error) => outcome = Err(error),
                }
                mark.end = self.sim.op_count();
                self.marks.push(mark);
                return outcome;
            }
        }
        mark.end = self.sim.op_count();
        self.marks.push(mark);
        if goes_on {
            *db = Some(open);
        }
        outcome
    }

    /// Reads everything, and keeps the facts that are new. With `has_worked` no work is due.
    fn look(&mut self, db: &Db, (now_ms, has_worked): (u64, bool), may_fail: bool) -> Result<(), String> {
        let found = match Found::read(db) {
            // The call that fails may be a read.
            Err(_) if may_fail => return Ok(()),
            found => found?,
        };
        let known = self.facts_at(u64::MAX);
        let new = self.model.judge(&found, (self.model.issued(), now_ms), &known)?;
        self.facts.push((self.sim.op_count(), new.beyond(&known)));
        if has_worked {
            // What was due before a reader began is not held up by it.
            let due_ms = self.readers.oldest_ms().unwrap_or(now_ms);
            self.model.none_is_older(&found, self.model.issued(), due_ms, GONE_MS)?;
        }
        self.readers.look(&self.model, may_fail)
    }

    /// The time at the end of the operation of call `k`, or of the last one that ended with it.
    fn time_ms(&self, k: u64) -> u64 {
        let later = self.times.partition_point(|(calls, _)| *calls <= k);
        let ended = later.checked_sub(1).map(|at| self.times[at]).filter(|(calls, _)| *calls == k);
        // The last calls are those of the drop of the database.
        let ended = ended.or_else(|| self.times.get(later).or(self.times.last()).copied());
        ended.map_or(0, |(_, ms)| ms)
    }

    /// An environment with this disk, at this time.
    fn env_at(&self, disk: SimFs, seed: u64, ms: u64) -> Env {
        let env = Env::deterministic(Arc::new(disk), seed);
        advance_to(&env, ms);
        env
    }

    /// All that was seen until call `k`.
    fn facts_at(&self, k: u64) -> Facts {
        let mut all = Facts::default();
        self.facts.iter().filter(|(calls, _)| *calls <= k).for_each(|(_, facts)| all.add(facts));
        all
    }

    /// The commits of which one must be there after a crash right after call `k`.
    fn window(&self, k: u64, policy: &CrashPolicy) -> std::ops::RangeInclusive<u64> {
        let window = Window::after(&self.marks, k);
        match policy {
            CrashPolicy::All => window.acked..=window.issued,
            _ => window.durable..=window.issued,
        }
    }

    /// Number of reads of snapshots, and of those that a due drop has shortened.
    pub fn snapshot_reads(&self) -> (u64, u64) {
        self.readers.reads()
    }

    /// Crashes the life at about `images` points of all.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore(&self, images: usize) -> Result<Tally, String> {
        let mut explorer = Explorer { life: self, read: HashMap::new(), tally: Tally::default() };
        let points = self.sim.crash_points(0, mixed(self.plan.seed, 2));
        let step = points.len().div_ceil(images).max(1);
        // Points of one call have the same policies in the same order.
        let step = (step..).find(|step| step % 2 == 1 && step % 3 > 0).unwrap_or(step);
        for (k, policy) in points.into_iter().step_by(step) {
            explorer.check(k, &policy)?;
        }
        Ok(explorer.finish())
    }

    /// Crashes the life at its end only, in some ways.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore_end(&self, ways: usize) -> Result<Tally, String> {
        let mut explorer = Explorer { life: self, read: HashMap::new(), tally: Tally::default() };
        let k = self.sim.op_count();
        let mut policies = self.sim.policies_for(k, mixed(self.plan.seed, self.faults));
        let step = policies.len().div_ceil(ways).max(1);
        policies = policies.into_iter().step_by(step).collect();
        for policy in policies.iter().chain(&[CrashPolicy::All, CrashPolicy::None]) {
            explorer.check(k, policy)?;
        }
        Ok(explorer.finish())
    }
}

fn write(db: &Db, changes: &[Change], sync: bool) -> shamba::Result<()> {
    let log = db.keyspace(LOG)?;
    let mut batch = db.batch();
    for Change { is_log, key, value } in changes {
        match (is_log, value) {
            (false, Some(value)) => batch.put(key, value),
            (false, None) => batch.delete(key),
            (true, Some(value)) => batch.put_in(&log, key, value),
            (true, None) => batch.delete_in(&log, key),
        };
    }
    match sync {
        true => batch.commit_with(Durability::Sync),
        false => batch.commit(),
    }
}

/// Checks the disks that crashes of a life leave.
struct Explorer<'a> {
    life: &'a Life,
    /// The content of each different disk after its recovery at a time.
    read: HashMap<(u64, u64), Found>,
    tally: Tally,
}

impl Explorer<'_> {
    fn check(&mut self, k: u64, policy: &CrashPolicy) -> Result<(), String> {
        let told = |error: String| {
            let calls = (k.saturating_sub(12)..=k)
                .filter_map(|call| Some(format!("    call {call}: {}\n", self.life.sim.describe_op(call)?)))
                .collect::<String>();
            format!("{error}\n  crash behind call {k} under {policy:?}, {:?}\n{calls}", self.life.plan)
        };
        let image = self.life.sim.crash(k, policy);
        let (hash, now_ms) = (image.image_hash(), self.life.time_ms(k));
        let known = self.read.get(&(hash, now_ms)).cloned();
        let found = match &known {
            Some(found) => found.clone(),
            None => {
                let disk = image.crash(u64::MAX, &CrashPolicy::All);
                let env = self.life.env_at(disk, 7, now_ms);
                let db = self.life.plan.open(&env).map_err(|error| told(format!("recovery: {error:?}")))?;
                Found::read(&db).map_err(|error| told(format!("after recovery: {error}")))?
            }
        };
        let (facts, window) = (self.life.facts_at(k), self.life.window(k, policy));
        let judged = window.clone().map(|at| (at, self.life.model.judge(&found, (at, now_ms), &facts)));
        let mut errors = Vec::new();
        let mut legal = None;
        for (at, judged) in judged {
            match judged {
                Ok(new) => {
                    legal = Some((at, new));
                    break;
                }
                Err(error) => errors.push(format!("not commit {at}: {error}")),
            }
        }
        let Some((at, new)) = legal else {
            return Err(told(format!(
                "the state is that of no commit in {window:?}\n  {}",
                errors.join("\n  ")
            )));
        };
        self.tally.add("crashes", 1);
        self.tally.add("crashes after a value was seen filtered", u64::from(facts.has_filtered()));
        self.tally.add("crashes after data was seen to be dropped", u64::from(facts.has_dropped()));
        if known.is_none() {
            let mut facts = facts;
            facts.add(&new);
            if hash.is_multiple_of(CUT_AGAIN_ONE_IN) {
                self.go_on(&image, (at, now_ms), facts).map_err(told)?;
                self.tally.add("disks cut again", 1);
            }
            self.read.insert((hash, now_ms), found);
        }
        Ok(())
    }

    /// Recovers a disk, compacts, lets the maximum age pass, and cuts the power again: what was
    /// seen then stays.
    fn go_on(&self, image: &SimFs, (at, now_ms): (u64, u64), mut facts: Facts) -> Result<(), String> {
        let Life { plan, model, .. } = self.life;
        let disk = image.crash(u64::MAX, &CrashPolicy::All);
        let env = self.life.env_at(disk.clone(), 8, now_ms);
        let db = plan.open(&env).map_err(failed("open"))?;
        let mut judge = |found: &Found, now_ms: u64, what: &str| {
            let judged = model.judge(found, (at, now_ms), &facts);
            facts.add(&judged.map_err(|error| format!("{what}: {error}"))?);
            Ok::<(), String>(())
        };
        db.flush().map_err(failed("flush"))?;
        judge(&Found::read(&db)?, now_ms, "after a flush")?;
        db.compact().map_err(failed("compact"))?;
        let compacted = Found::read(&db)?;
        judge(&compacted, now_ms, "compacted")?;
        model.all_filtered(&compacted, at)?;
        let stats = db.keyspace(LOG).map_err(failed("keyspace"))?.stats();
        let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        if plan.limits().max_bytes().is_some_and(|limit| bytes > limit) && stats.runs > 1 {
            return Err(format!("{bytes} bytes of {:?} in the FIFO keyspace", plan.limits()));
        }
        let mut last_ms = now_ms;
        if plan.limits().max_age().is_some() {
            // Just before the age of what was written last, and when all must be gone.
            for wait_ms in [AGE_MS - 1, GONE_MS - AGE_MS + 1] {
                env.clock.sleep_us(wait_ms * 1_000);
                last_ms += wait_ms;
                db.wait_idle().map_err(failed("wait_idle"))?;
                let found = Found::read(&db)?;
                judge(&found, last_ms, "later")?;
                // An open makes nothing younger that was in tables.
                model.none_is_older(&found, at, last_ms, GONE_MS)?;
            }
            if let Some(key) = Found::read(&db)?.first_in_log() {
                return Err(format!("{} is there {GONE_MS} ms after the crash", shown(key)));
            }
        }
        let report = db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {problem:?}"));
        }
        orphans(&disk.list(Path::new(HOME)).map_err(|error| error.to_string())?, &report)?;
        let cut = disk.crash(u64::MAX, &CrashPolicy::None);
        drop(db);
        let db =
            plan.open(&self.life.env_at(cut, 9, last_ms)).map_err(failed("open after the second cut"))?;
        let last = Found::read(&db)?;
        judge(&last, last_ms, "after the second cut")?;
        model.all_filtered(&last, at)
    }

    fn finish(mut self) -> Tally {
        self.tally.add("distinct images", self.read.len() as u64);
        let held = |found: &&Found| !found.is_empty();
        self.tally.add("images with data", self.read.values().filter(held).count() as u64);
        self.tally
    }
}

/// Keys and values.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;
