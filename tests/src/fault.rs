//! Faults: a scripted life with one or two failing calls, and the guarantees during, after, and at
//! the next open.
//!
//! Every write has a marker key of its own, which no other write touches. So the set of writes that
//! a database holds can be determined, and its state must be exactly that of those writes in their
//! order. A write is *acked* (the call returned Ok), *rejected* (it failed before it could reach
//! the log: read-only, stalled) or *unknown* (it failed with an I/O error). While the database
//! stays open, exactly the acked ones are visible. After a kill and reopen the acked writes are
//! present, the rejected ones are absent, and an unknown one is present as a whole or absent. After
//! a power cut the writes present are a prefix that includes everything durable.
//!
//! Time passes in the life by its steps, and more than half of the values expire
//! ([`crate::expiry`]): reads see them until their time and not after it, whatever has failed in
//! between.

mod neighbour;
mod script;
mod struck;
mod time;
mod writes;

use std::path::Path;
use std::sync::Arc;

use shamba::ErrorKind;
use shamba::env::{
    CrashPolicy, Effect, Env, FaultFs, FaultRule, FsyncFailure, OpKind, Persistence, SimFs, Vfs,
};

pub use self::neighbour::checked_with_neighbour;
pub use self::script::{Step, script};

use self::neighbour::Neighbour;
use self::script::marker;
use self::writes::{Written, synced};
use crate::compare::{self, Spaces, failed};
use crate::crash::orphans;
use crate::oracle::{Change, Oracle};
use crate::runner::HOME;
use crate::seed::mixed;
use crate::tally::Tally;
use crate::vectors::Vector;

/// An injected fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The nth call on which the effect is possible.
    Call {
        /// The number of the call.
        nth: u64,
        /// The effect.
        effect: Effect,
        /// Once, or from that call on.
        persistence: Persistence,
    },
    /// The nth append writes only half, and the next call that continues it fails: a torn tail.
    Torn {
        /// The number of the append.
        nth: u64,
        /// The effect on the continuation.
        effect: Effect,
        /// Once, or from that call on.
        persistence: Persistence,
    },
    /// The nth sync, with one of three resulting disk states.
    Fsync {
        /// The number of the sync.
        nth: u64,
        /// The state of the disk after it.
        failure: FsyncFailure,
        /// Whether all later syncs fail too.
        sticky: bool,
    },
    /// Each call on which the effect is possible, with a probability.
    Storm {
        /// The effect.
        effect: Effect,
        /// The probability is 1 / `one_in`.
        one_in: u32,
        /// Seed of the random choice.
        seed: u64,
    },
}

impl Fault {
    /// Whether the engine must handle it without any engine call failing.
    fn is_harmless(self) -> bool {
        match self {
            Self::Call { effect, .. } => {
                matches!(
                    effect,
                    Effect::Eintr | Effect::ShortRead | Effect::ShortWrite | Effect::LatencyUs(_)
                )
            }
            Self::Torn { .. } | Self::Fsync { .. } | Self::Storm { .. } => false,
        }
    }

    /// Whether bytes that were passed to the system may be lost, so that only the durable part must
    /// survive a kill.
    fn loses_bytes(self) -> bool {
        match self {
            Self::Call { effect, .. } | Self::Storm { effect, .. } => {
                matches!(effect, Effect::FlipBitOnRead | Effect::MisdirectedRead)
            }
            Self::Fsync { failure, .. } => failure == FsyncFailure::Revert,
            Self::Torn { .. } => false,
        }
    }

    fn is_full_disk(self) -> bool {
        matches!(self, Self::Call { effect: Effect::Enospc | Effect::Edquot, .. })
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Status {
    Acked,
    Rejected,
    Unknown,
}

/// One run of a script with its faults.
struct Life<'a> {
    vector: &'a Vector,
    faults: &'a [Fault],
    sim: SimFs,
    faulty: FaultFs,
    env: Env,
    spaces: Option<Spaces>,
    written: Vec<Written<'a>>,
    /// Number of first writes that are durable, if they were acked.
    durable: usize,
    /// Writes before the last open whose presence is not known yet,
    unsettled: Vec<usize>,
    /// and the number of durable ones at that time.
    durable_at_open: usize,
    failures: u64,
    transactions: u64,
    conflicts: u64,
    /// Expired entries that flushes and compactions of earlier opens have dropped.
    expired: u64,
    /// Number of opens.
    opens: u64,
    /// Number of syncs of the disk before the run.
    syncs_before: u64,
    /// A database that shares a memory budget with this one.
    neighbour: Option<&'a mut Neighbour>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Number of calls that were made to fail.
    pub faults: u64,
    /// Number of the injected faults that occurred, each counted once.
    pub struck: usize,
    /// Number of engine calls that failed.
    pub failures: u64,
    /// Number of transactions that were committed.
    pub transactions: u64,
    /// Number of transactions that were refused, as something else had changed what they had read.
    pub conflicts: u64,
    /// Number of entries that flushes and compactions dropped, as they had expired.
    pub expired: u64,
    /// Number of lives that went on until everything that expires had ended.
    pub outlived: u64,
}

/// Runs the script with all these faults and checks everything. At most one of them is a failing
/// sync.
///
/// # Errors
/// The violation.
pub fn run(vector: &Vector, steps: &[Step], faults: &[Fault]) -> Result<Seen, String> {
    run_with_neighbour(vector, steps, faults, None)
}

/// The same, of one of two databases that share memory and threads.
fn run_with_neighbour(
    vector: &Vector,
    steps: &[Step],
    faults: &[Fault],
    neighbour: Option<&mut Neighbour>,
) -> Result<Seen, String> {
    let sim = SimFs::new();
    let env = Env::deterministic(Arc::new(sim.clone()), 11);
    let fault_seed = faults.iter().find_map(|fault| match fault {
        Fault::Storm { seed, .. } => Some(*seed),
        _ => None,
    });
    let fault_seed = fault_seed.unwrap_or(5);
    let faulty = FaultFs::with_clock(Arc::new(sim.clone()), fault_seed, env.clock.clone());
    let mut life = Life {
        vector,
        faults,
        env: Env { vfs: Arc::new(faulty.clone()), ..env },
        sim,
        faulty,
        spaces: None,
        written: Vec::new(),
        durable: 0,
        unsettled: Vec::new(),
        durable_at_open: 0,
        failures: 0,
        transactions: 0,
        conflicts: 0,
        expired: 0,
        opens: 0,
        syncs_before: 0,
        neighbour,
    };
    // The directory exists and is durable: nothing could restore a name lost by a failed sync of
    // its parent.
    let above = life.sim.create_dir_all(Path::new(HOME)).and_then(|()| life.sim.sync_dir(Path::new("/")));
    above.map_err(|error| format!("making the directory: {error}"))?;
    life.syncs_before = life.sim.sync_count();
    life.faulty.start_trace();
    for fault in faults {
        life.plan(*fault);
    }
    life.play(steps)?;
    let syncs = faults.iter().filter(|fault| life.has_struck_sync(**fault)).count() as u64;
    let seen = Seen {
        faults: syncs + life.faulty.faults_injected(),
        struck: life.struck(),
        failures: life.failures,
        transactions: life.transactions,
        conflicts: life.conflicts,
        expired: life.expired_entries(),
        outlived: 0,
    };
    if seen.faults == 0 && !faults.is_empty() {
        return Ok(seen);
    }
    if faults.iter().all(|fault| fault.is_harmless()) && seen.failures > 0 {
        return Err(format!("{} calls of the engine failed on faults that it must get over", seen.failures));
    }
    let outlived = u64::from(life.aftermath()?);
    Ok(Seen { outlived, ..seen })
}

impl<'a> Life<'a> {
    /// Arms the fault.
    fn plan(&self, fault: Fault) {
        let before = self.syncs_before;
        match fault {
            Fault::Call { nth, effect, persistence } => {
                let rule = FaultRule { persistence, ..FaultRule::nth(nth, effect) };
                self.faulty.add_rule(rule);
            }
            Fault::Torn { nth, effect, persistence } => {
                let appends = [OpKind::Append];
                self.faulty.add_rule(FaultRule::nth(nth, Effect::ShortWrite).on(&appends));
                let rest = FaultRule { persistence, ..FaultRule::nth(nth + 1, effect) };
                self.faulty.add_rule(rest.on(&appends));
            }
            Fault::Storm { effect, one_in, .. } => {
                self.faulty.add_rule(FaultRule::storm(1.0 / f64::from(one_in), effect));
            }
            Fault::Fsync { nth, failure, sticky: false } => self.sim.fail_sync(before + nth, failure),
            Fault::Fsync { nth, failure, sticky: true } => self.sim.fail_syncs_from(before + nth, failure),
        }
    }

    /// Whether any of the faults may lose bytes.
    fn loses_bytes(&self) -> bool {
        self.faults.iter().any(|fault| fault.loses_bytes())
    }

    fn open(&mut self) -> shamba::Result<()> {
        self.opens += 1;
        let env = Env { rng: Env::deterministic(self.env.vfs.clone(), self.opens).rng, ..self.env.clone() };
        let builder = self.vector.builder(Path::new(HOME), &env);
        let db = match &self.neighbour {
            Some(neighbour) => neighbour.shares.give(builder).open()?,
            None => builder.open()?,
        };
        self.spaces = Some(Spaces::create(db)?);
        (self.unsettled, self.durable_at_open) = ((0..self.written.len()).collect(), self.durable);
        Ok(())
    }

    /// Runs the script to its end, or to an open that fails.
    fn play(&mut self, steps: &'a [Step]) -> Result<(), String> {
        if self.open().is_err() {
            self.failures += 1;
            return Ok(());
        }
        for (at, step) in steps.iter().enumerate() {
            self.neighbour_works()?;
            let step_failed = |error: String| format!("step {at} {step:?}: {error}");
            match step {
                Step::Write { changes, sync } => self.write(changes, *sync),
                Step::Transaction(transaction) => self.transaction(transaction).map_err(step_failed)?,
                Step::Flush => self.durable_if_ok(|spaces| spaces.db.flush()),
                Step::Sync => self.durable_if_ok(|spaces| spaces.db.sync()),
                Step::Compact => {
                    let result = self.spaces().map(|spaces| spaces.db.compact());
                    self.failures += u64::from(matches!(result, Some(Err(_))));
                }
                Step::Pass { ticks } => self.pass(*ticks),
                Step::Read => self.read().map_err(step_failed)?,
                Step::Reopen => {
                    self.expired = self.expired_entries();
                    let Some(Spaces { db, others }) = self.spaces.take() else { continue };
                    drop(others);
                    match db.close() {
                        Ok(()) => self.durable = self.written.len(),
                        Err(_) => self.failures += 1,
                    }
                    if self.open().is_err() {
                        self.failures += 1;
                        return Ok(());
                    }
                    self.resolve_unknown().map_err(step_failed)?;
                }
            }
        }
        Ok(())
    }

    /// Lets the neighbour work.
    fn neighbour_works(&mut self) -> Result<(), String> {
        let open = self.spaces.as_ref().map(|spaces| &spaces.db);
        self.neighbour.as_mut().map_or(Ok(()), |neighbour| neighbour.work(open))
    }

    fn spaces(&self) -> Option<&Spaces> {
        self.spaces.as_ref()
    }

    fn durable_if_ok(&mut self, call: impl Fn(&Spaces) -> shamba::Result<()>) {
        match self.spaces().map(call) {
            Some(Ok(())) => self.durable = self.written.len(),
            Some(Err(_)) => self.failures += 1,
            None => {}
        }
    }

    /// The state after the writes for which `holds` is true.
    fn state_of(&self, holds: impl Fn(usize, Status) -> bool) -> Oracle {
        let mut oracle = Oracle::new();
        for (at, written) in self.written.iter().enumerate() {
            if holds(at, written.status) {
                written.commit_to(&mut oracle);
            }
        }
        oracle
    }

    /// The state after exactly the acked writes; `None` until a read of those whose presence is not
    /// known succeeds.
    fn acked(&self) -> Option<Oracle> {
        let is_known = !self.unsettled.iter().any(|at| self.may_be_gone(*at));
        is_known.then(|| self.state_of(|_, status| status == Status::Acked))
    }

    /// Checks that exactly the acked writes are visible; a read may fail instead while faults
    /// continue.
    fn read(&mut self) -> Result<(), String> {
        self.resolve_unknown()?;
        let Some(spaces) = &self.spaces else { return Ok(()) };
        let Some(oracle) = self.acked() else { return Ok(()) };
        match spaces.dump() {
            Ok(state) => compare::same_state(&state, &oracle.state(self.now(&oracle)))?,
            Err(_) => self.failures += 1,
        }
        let spaces = self.spaces.as_ref().ok_or("not open")?;
        for key in oracle.keys(0) {
            match spaces.db.get(key) {
                Ok(got) => {
                    compare::same_value("get", key, got.as_deref(), oracle.get(0, key, self.now(&oracle)))?
                }
                Err(_) => self.failures += 1,
            }
        }
        Ok(())
    }

    /// After an open, a write of unknown outcome is either present or absent. If the read that
    /// determines it fails, it is repeated before the next comparison.
    fn resolve_unknown(&mut self) -> Result<(), String> {
        let Some(spaces) = &self.spaces else { return Ok(()) };
        for at in std::mem::take(&mut self.unsettled) {
            let Ok(found) = spaces.db.contains_key(marker(at)) else {
                self.failures += 1;
                self.unsettled.push(at);
                continue;
            };
            self.written[at].status = match (self.written[at].status, found) {
                (Status::Unknown, true) => Status::Acked,
                (Status::Unknown, false) => Status::Rejected,
                (Status::Acked, false) if self.may_be_gone(at) => Status::Rejected,
                (Status::Acked, false) => return Err(format!("acked write {at} is gone after a reopen")),
                (Status::Rejected, true) => {
                    return Err(format!("rejected write {at} is there after a reopen"));
                }
                (same, _) => same,
            };
        }
        Ok(())
    }

    /// Whether a write before the last open may be absent.
    fn may_be_gone(&self, at: usize) -> bool {
        match self.written[at].status {
            Status::Unknown => true,
            Status::Acked => self.loses_bytes() && at >= self.durable_at_open,
            Status::Rejected => false,
        }
    }

    /// After the faults have ended: reads, writes, a power cut, a kill and a reopen.
    /// Returns whether the life outlived all that expires.
    fn aftermath(mut self) -> Result<bool, String> {
        let must_resume =
            self.faults.iter().all(|fault| fault.is_full_disk()) && self.struck_where_space_returns();
        self.faulty.clear_rules();
        self.sim.forget_single_sync_failures();
        if !self.syncs_still_fail() {
            self.resolve_unknown().map_err(|error| format!("open, after the fault is gone: {error}"))?;
        }
        let power_cut = self.sim.crash(u64::MAX, &CrashPolicy::None);
        self.power_cut(&power_cut).map_err(|error| format!("after a power cut: {error}"))?;

        if self.spaces.is_some() && !self.syncs_still_fail() {
            let before = self.failures;
            self.read().map_err(|error| format!("open, after the fault is gone: {error}"))?;
            if self.failures != before && !self.loses_bytes() {
                return Err("a read fails though nothing fails below it any more".to_owned());
            }
            self.resume(must_resume)?;
        }
        self.spaces = None;
        self.neighbour_works()?;
        // Pending data of a sync that always fails stays pending; the power cut covers this case
        // instead.
        if self.syncs_still_fail() {
            return Ok(false);
        }
        self.open().map_err(|error| format!("reopen after the fault is gone: {error:?}"))?;
        self.resolve_unknown().map_err(|error| format!("after a kill: {error}"))?;
        if let Some(at) = self.unsettled.first() {
            return Err(format!("after a kill: nothing fails any more, and write {at} cannot be read"));
        }
        self.holds_exactly_acked().map_err(|error| format!("after a kill: {error}"))?;
        let has_ended = self.all_lives_end()?;
        self.neighbour_works()?;
        let spaces = self.spaces.as_ref().ok_or("not open")?;
        spaces.db.put_with("m/last", "1", synced()).map_err(failed("a write after the reopen"))?;
        let cut = self.sim.crash(u64::MAX, &CrashPolicy::None);
        self.spaces = None;
        let env = self.env_of(cut, 99);
        let db =
            self.vector.builder(Path::new(HOME), &env).open().map_err(failed("open after write and cut"))?;
        match db.contains_key("m/last").map_err(failed("contains_key"))? {
            true => Ok(has_ended),
            false => Err("a write that was synced after the reopen did not survive a power cut".to_owned()),
        }
    }

    /// Checks that writes continue, or are refused permanently as `ReadOnly`; on a disk that is no
    /// longer full they must continue.
    fn resume(&mut self, must: bool) -> Result<(), String> {
        let changes: &'a [Change] = &[];
        let spaces = self.spaces.as_ref().ok_or("not open")?;
        let key = marker(self.written.len());
        let mut result = spaces.db.put(&key, "resumed");
        for _ in 0..4 {
            if !matches!(&result, Err(error) if error.kind() != ErrorKind::ReadOnly) {
                break;
            }
            // Back-off uses the environment's clock.
            self.env.clock.sleep_us(10_000_000);
            result = spaces.db.put(&key, "resumed");
        }
        match result {
            Ok(()) => {
                spaces.db.delete(&key).map_err(failed("delete after the fault is gone"))?;
                if must {
                    spaces.db.flush().map_err(failed("a flush after the fault is gone"))?;
                    spaces.db.compact().map_err(failed("a merge after the fault is gone"))?;
                    self.durable = self.written.len();
                    let cut = self.sim.crash(u64::MAX, &CrashPolicy::None);
                    self.power_cut(&cut)
                        .map_err(|error| format!("a power cut after all went on: {error}"))?;
                }
                self.written.push(Written::new(changes, Status::Rejected, self.env.clock.unix_ms()));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ReadOnly && !must => Ok(()),
            Err(error) => Err(format!("writes do not resume: {error:?}")),
        }
    }

    fn holds_exactly_acked(&self) -> Result<(), String> {
        let spaces = self.spaces.as_ref().ok_or("not open")?;
        let oracle = self.state_of(|_, status| status == Status::Acked);
        compare::everything_at(spaces, &oracle, self.now(&oracle))?;
        let report = spaces.db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {problem:?}"));
        }
        let files = self.sim.list(Path::new(HOME)).map_err(|error| format!("list: {error}"))?;
        orphans(&files, &report)
    }

    /// Checks that the state after the power cut is a prefix that includes everything durable.
    fn power_cut(&self, disk: &SimFs) -> Result<(), String> {
        let env = self.env_of(disk.clone(), mixed(77, self.opens));
        let db = self.vector.builder(Path::new(HOME), &env).open().map_err(failed("open"))?;
        let spaces = Spaces::existing(db).map_err(failed("keyspace"))?;
        let mut present = Vec::new();
        for at in 0..self.written.len() {
            present.push(spaces.db.contains_key(marker(at)).map_err(failed("contains_key"))?);
        }
        let end = present.iter().rposition(|there| *there).map_or(0, |at| at + 1);
        for (at, Written { status, .. }) in self.written.iter().enumerate() {
            let required = *status == Status::Acked && (at < self.durable || at < end);
            if required && !present[at] {
                let why = if at < self.durable { "durable" } else { "in a hole" };
                return Err(format!("write {at} of {} is gone, and it was {why}", self.written.len()));
            }
            if *status == Status::Rejected && present[at] {
                return Err(format!("rejected write {at} is there"));
            }
        }
        let oracle = self.state_of(|at, _| present[at]);
        compare::everything_at(&spaces, &oracle, self.now(&oracle))
    }
}

/// Runs the script with the faults; a panic is a violation like any other.
///
/// # Errors
/// The violation, with the faults.
pub fn checked(vector: &Vector, steps: &[Step], faults: &[Fault]) -> Result<Seen, String> {
    let checked = crate::runner::caught(|| run(vector, steps, faults));
    checked.map_err(|error| format!("{faults:?}: {error}\n  {vector:?}"))
}

/// Fails every call in turn, until a run has no fault.
///
/// # Errors
/// The first violation, with the fault.
pub fn every(
    vector: &Vector,
    steps: &[Step],
    name: &str,
    fault: impl Fn(u64) -> Fault,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for nth in 0.. {
        let seen = checked(vector, steps, &[fault(nth)])?;
        if seen.faults == 0 {
            break;
        }
        tally.add("single-fault runs", 1);
        tally.add(&format!("runs, {name}"), 1);
        tally.add("engine calls that failed", seen.failures);
        tally.add("transactions", seen.transactions);
        tally.add("transactions refused", seen.conflicts);
        tally.add("expired entries that were dropped", seen.expired);
        tally.add("lives that outlived all that expires", seen.outlived);
    }
    Ok(tally)
}
