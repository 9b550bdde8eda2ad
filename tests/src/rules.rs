//! Lives of a database that forgets by rule: the default keyspace has a compaction filter, and
//! another one is FIFO. They are recorded on the simulated disk, with or without a failing call,
//! and the disks that a crash may leave are judged.
//!
//! The engine decides when a filter is asked and when tables are dropped, so a commit has no single
//! state. A state is legal after commit P if
//! - every key of the default keyspace has the value of P, or that which the filter makes of it;
//!   only the latter, if it was seen before the crash;
//! - every key of the FIFO keyspace has the value of P or is gone; all that is gone is older than
//!   all that is there; and what was seen to be gone before the crash is gone.
//!
//! P is the same for both keyspaces: batches write to both. The window of P is that of
//! [`crate::crash`].

mod judge;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::{CrashPolicy, Env, FaultFs, FaultRule, SimFs, Vfs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Builder, Db, Durability, Fifo, KeyspaceOptions, MergePolicy};

use self::judge::{Facts, Found, Model};
use crate::compare::failed;
use crate::crash::{Mark, Window, orphans};
use crate::runner::HOME;
use crate::seed::mixed;
use crate::tally::Tally;
use crate::vectors::Vector;

/// The FIFO keyspace.
const LOG: &str = "log";
/// Bytes of the tables of the FIFO keyspace: a few runs of one memtable each; and a limit of which
/// an eighth is more than such a run, so that small runs are merged.
const LIMITS: [u64; 2] = [20 << 10, 48 << 10];
/// One new disk in this many is also compacted after its recovery, and cut once more.
const CUT_AGAIN_ONE_IN: u64 = 4;
/// Number of keys of each keyspace.
const KEYS: [u32; 2] = [14, 80];

/// One change: a put or a delete.
#[derive(Clone, Debug)]
struct Change {
    /// Whether it is in the FIFO keyspace.
    is_log: bool,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Op {
    Write { changes: Vec<Change>, sync: bool },
    Flush,
    Compact,
    Sync,
    Reopen { clean: bool },
}

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
    /// Its number: the policy, the limit of the FIFO keyspace and the durability cycle with it.
    pub index: usize,
    /// Number of its operations.
    pub ops: usize,
}

impl Plan {
    fn limit(self) -> u64 {
        LIMITS[self.index / 3 % LIMITS.len()]
    }

    fn open(self, env: &Env) -> shamba::Result<Db> {
        self.builder(env).open()
    }

    fn builder(self, env: &Env) -> Builder {
        let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
        let durability = [Durability::NoSync, Durability::NoSync, Durability::Sync][self.index / 2 % 3];
        let vector = Vector { durability, ..Vector::plain(policies[self.index % 3]) };
        // One table for each run, so that a run is dropped as a whole.
        let log = KeyspaceOptions::new().fifo(Fifo::bytes(self.limit())).file_size(1 << 20);
        vector
            .builder_without_operators(Path::new(HOME), env)
            .keyspace("default", KeyspaceOptions::new().compaction_filter(Rules))
            .keyspace(LOG, log)
    }

    fn is_synced(self) -> bool {
        self.index / 2 % 3 == 2
    }

    fn script(self) -> Vec<Op> {
        let mut rng = Rng::with_seed(mixed(self.seed, self.index as u64));
        let mut values = 0u64;
        let mut change = |rng: &mut Rng| {
            let is_log = rng.u8(..5) < 3;
            values += 1;
            let start = ["v1", "drop", "keep"][rng.usize(..3)];
            let key = format!("k/{:02}", rng.u32(..KEYS[usize::from(is_log)])).into_bytes();
            let length = rng.usize(..if is_log { 500 } else { 160 });
            let text = format!("{start}.{values}.{}", ".".repeat(length));
            Change { is_log, key, value: (rng.u8(..8) > 0).then(|| text.into_bytes()) }
        };
        let mut op = |rng: &mut Rng| match rng.u8(..60) {
            0..4 => Op::Flush,
            4..6 => Op::Compact,
            6..8 => Op::Sync,
            8 => Op::Reopen { clean: rng.bool() },
            _ => Op::Write {
                changes: (0..rng.usize(1..5)).map(|_| change(rng)).collect(),
                sync: rng.u8(..8) == 0,
            },
        };
        std::iter::repeat_with(|| op(&mut rng)).take(self.ops).collect()
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
        let sim = SimFs::new();
        let plain = Env::deterministic(Arc::new(sim.clone()), mixed(plan.seed, 1));
        let faulty = FaultFs::with_clock(Arc::new(sim.clone()), 3, plain.clock.clone());
        let env = Env { vfs: Arc::new(faulty.clone()), ..plain };
        // The directory is there before, as in suite D.
        let above = sim.create_dir_all(Path::new(HOME)).and_then(|()| sim.sync_dir(Path::new("/")));
        above.map_err(|error| format!("making the directory: {error}"))?;
        let first = Mark { start: 0, end: sim.op_count(), issued: 0, acked: 0, durable: 0 };
        let (model, marks, facts) = (Model::default(), vec![first], Vec::new());
        let mut life = Self { plan, sim, marks, model, facts, faults: 0 };
        let may_fail = fault.is_some();
        fault.into_iter().for_each(|rule| faulty.add_rule(rule));
        let mut db = match plan.open(&env) {
            Err(error) if !may_fail => return Err(format!("open: {error:?}")),
            opened => opened.ok(),
        };
        for (at, op) in plan.script().iter().enumerate() {
            let Some(open) = db.take() else { break };
            let told = |error: String| format!("operation {at} {op:?}: {error}");
            let failures = life.apply(open, &env, op, &mut db);
            if let (Err(error), false) = (&failures, may_fail) {
                return Err(told(format!("{error:?}")));
            }
            if let Some(db) = &db {
                life.look(db, may_fail).map_err(told)?;
            }
        }
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
                outcome = write(&open, changes, *sync);
                mark.issued = self.model.commit(changes);
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
            Op::Reopen { clean } => {
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

    /// Reads everything, and keeps the facts that are new.
    fn look(&mut self, db: &Db, may_fail: bool) -> Result<(), String> {
        let found = match Found::read(db) {
            // The call that fails may be a read.
            Err(_) if may_fail => return Ok(()),
            found => found?,
        };
        let known = self.facts_at(u64::MAX);
        let new = self.model.judge(&found, self.model.issued(), &known)?;
        self.facts.push((self.sim.op_count(), new));
        Ok(())
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
    /// The content of each different disk after its recovery.
    read: HashMap<u64, Found>,
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
        let hash = image.image_hash();
        let known = self.read.get(&hash).cloned();
        let found = match &known {
            Some(found) => found.clone(),
            None => {
                let disk = image.crash(u64::MAX, &CrashPolicy::All);
                let env = Env::deterministic(Arc::new(disk), 7);
                let db = self.life.plan.open(&env).map_err(|error| told(format!("recovery: {error:?}")))?;
                Found::read(&db).map_err(|error| told(format!("after recovery: {error}")))?
            }
        };
        let (facts, window) = (self.life.facts_at(k), self.life.window(k, policy));
        let judged = window.clone().map(|at| (at, self.life.model.judge(&found, at, &facts)));
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
                self.go_on(&image, at, facts).map_err(told)?;
                self.tally.add("disks cut again", 1);
            }
            self.read.insert(hash, found);
        }
        Ok(())
    }

    /// Recovers a disk, compacts, and cuts the power again: what was seen then stays.
    fn go_on(&self, image: &SimFs, at: u64, mut facts: Facts) -> Result<(), String> {
        let Life { plan, model, .. } = self.life;
        let disk = image.crash(u64::MAX, &CrashPolicy::All);
        let env = Env::deterministic(Arc::new(disk.clone()), 8);
        let db = plan.open(&env).map_err(failed("open"))?;
        db.flush().map_err(failed("flush"))?;
        let written = Found::read(&db)?;
        facts.add(&model.judge(&written, at, &facts).map_err(|error| format!("after a flush: {error}"))?);
        db.compact().map_err(failed("compact"))?;
        let compacted = Found::read(&db)?;
        facts.add(&model.judge(&compacted, at, &facts).map_err(|error| format!("compacted: {error}"))?);
        model.all_filtered(&compacted, at)?;
        let stats = db.keyspace(LOG).map_err(failed("keyspace"))?.stats();
        let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        if bytes > plan.limit() && stats.runs > 1 {
            return Err(format!("{bytes} bytes of {} in the FIFO keyspace", plan.limit()));
        }
        let report = db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {problem:?}"));
        }
        orphans(&disk.list(Path::new(HOME)).map_err(|error| error.to_string())?, &report)?;
        let cut = disk.crash(u64::MAX, &CrashPolicy::None);
        drop(db);
        let env = Env::deterministic(Arc::new(cut), 9);
        let db = plan.open(&env).map_err(failed("open after the second cut"))?;
        let last = Found::read(&db)?;
        model.judge(&last, at, &facts).map_err(|error| format!("after the second cut: {error}"))?;
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
