//! A run of two databases of one pool with real threads, of which one meets failures.
//!
//! One database meets failing calls, a full disk, a close, a drop or a power cut; the other one, on
//! a disk of its own, works in rounds all the time. In each round it writes, flushes, compacts and
//! compares everything with a sorted map. The run waits for a number of these rounds in each phase,
//! so the failures of one database must not keep the other from working.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, FsyncFailure, OpKind, SimFs};
use shamba::{Builder, Db, Durability, ErrorKind, MergePolicy, WriteOptions};

use super::Shares;
use crate::brief::is_brief;
use crate::compare::{failed, owned};
use crate::runner::{HOME, caught};
use crate::tally::Tally;
use crate::vectors::Vector;

/// Time without progress of background work after which a call ends with `Stalled`. In a brief run,
/// which has to detect a defect, it is shorter.
fn wait_timeout() -> Duration {
    Duration::from_secs(if is_brief() { 5 } else { 300 })
}

/// The failures that one database meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// No call that takes space finds any.
    FullDisk,
    /// No table can be written.
    TableWrites,
    /// No table can be synced.
    TableSyncs,
    /// An append to the log fails, once.
    LogWrite,
    /// An append to the manifest fails, once.
    ManifestWrite,
    /// Calls of all kinds fail at random.
    Storm,
    /// Calls that open a file fail at random, without descriptors.
    NoDescriptors,
    /// Syncs fail and drop their data, until the power is cut.
    DroppingSyncs,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::FullDisk,
        Self::TableWrites,
        Self::TableSyncs,
        Self::LogWrite,
        Self::ManifestWrite,
        Self::Storm,
        Self::NoDescriptors,
        Self::DroppingSyncs,
    ];

    /// Whether writes must resume without a reopen after the failures have ended.
    fn lets_resume(self) -> bool {
        matches!(self, Self::FullDisk | Self::TableWrites | Self::TableSyncs)
    }

    fn begin(self, faulty: &FaultFs, disk: &SimFs) {
        // Which fails one call at least.
        let storm = |probability, effect| {
            faulty.add_rule(FaultRule::nth(2, effect));
            FaultRule::storm(probability, effect)
        };
        let rule = match self {
            Self::FullDisk => {
                FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append, OpKind::Create]).sticky()
            }
            Self::TableWrites => {
                FaultRule::nth(0, Effect::Eio).on(&[OpKind::Append]).at_path(".sst").sticky()
            }
            Self::TableSyncs => {
                let syncs = [OpKind::SyncData, OpKind::SyncAll];
                FaultRule::nth(0, Effect::Eio).on(&syncs).at_path(".sst").sticky()
            }
            Self::LogWrite => FaultRule::nth(3, Effect::Eio).on(&[OpKind::Append]).at_path(".log"),
            Self::ManifestWrite => FaultRule::nth(1, Effect::Eio).on(&[OpKind::Append]).at_path("MANIFEST"),
            Self::Storm => storm(0.03, Effect::Eio),
            Self::NoDescriptors => storm(0.4, Effect::Emfile),
            Self::DroppingSyncs => {
                return disk.fail_syncs_from(disk.sync_count(), FsyncFailure::Drop);
            }
        };
        faulty.add_rule(rule);
    }
}

/// The event that ends the failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// They end while the database is open.
    Cease,
    /// The database is closed while calls fail.
    Close,
    /// Its last handle is dropped while calls fail.
    Drop,
    /// The power is cut while calls fail.
    PowerCut,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cease, Self::Close, Self::Drop, Self::PowerCut];
}

/// Rounds of the healthy database in each phase.
const ROUNDS: u64 = 5;
/// Rounds while it is the only one of the pool.
const ALONE_ROUNDS: u64 = 2;
/// Writes of a round, and one round in this many ends with a compaction of everything.
const WRITES_OF_A_ROUND: usize = 30;
const COMPACT_EACH: u64 = 3;
/// Number of writes of the failing database in each phase: several memtables.
const WRITES: usize = 60;
/// Disks of a power cut that are checked besides the one with which the life goes on.
const IMAGES: usize = 6;

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Ended {
    Acked,
    Rejected,
    Unknown,
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; number * 37 % 200]
}

fn builder(env: &Env, policy: MergePolicy) -> Builder {
    let mut vector = Vector::plain(policy);
    vector.write_buffer = 3 << 10;
    vector.immutable = Some(3);
    vector.builder(Path::new(HOME), env).experimental(|e| e.wait_timeout(wait_timeout()))
}

/// A run of two databases of one pool.
pub struct Life {
    shares: Shares,
    trouble: Trouble,
    ending: Ending,
    rng: Rng,
    policy: MergePolicy,
    disk: SimFs,
    faulty: FaultFs,
    env: Env,
    written: Vec<Ended>,
    /// After this many calls of the disk, this many first writes are durable, if acknowledged.
    durable: Vec<(u64, usize)>,
    faults: u64,
    failures: u64,
}

impl Life {
    /// Runs a life. `seed` determines its options and its writes, not the order of its threads.
    ///
    /// # Errors
    /// The violation.
    pub fn run(trouble: Trouble, ending: Ending, seed: u64) -> Result<Tally, String> {
        // Syncs that drop their data fail until the machine ends.
        let ending = if trouble == Trouble::DroppingSyncs { Ending::PowerCut } else { ending };
        let mut rng = Rng::with_seed(seed);
        // The floors of the two, or more.
        let budget_bytes = [8, 9, 16, 32][rng.usize(..4)] << 20;
        let policy = MergePolicy::ALL[rng.usize(..MergePolicy::ALL.len())];
        let shares = Shares::new(budget_bytes, rng.usize(1..3));
        let told = format!("{trouble:?}, {ending:?}, seed {seed}, {policy}, {shares:?}");
        let disk = SimFs::new();
        let faulty = FaultFs::new(Arc::new(disk.clone()), seed);
        let env = Env { vfs: Arc::new(faulty.clone()), ..Env::real() };
        let life = Self {
            shares,
            trouble,
            ending,
            rng,
            policy,
            disk,
            faulty,
            env,
            written: Vec::new(),
            durable: Vec::new(),
            faults: 0,
            failures: 0,
        };
        caught(|| life.live(seed)).map_err(|error| format!("{told}: {error}"))
    }

    fn live(mut self, seed: u64) -> Result<Tally, String> {
        let shares = self.shares.clone();
        let env = Env { vfs: Arc::new(SimFs::new()), ..Env::real() };
        let open_healthy = || shares.give(builder(&env, self.policy)).open().map_err(failed("open"));
        // Either of them is the first one of the pool.
        let (healthy, failing) = match seed % 2 {
            0 => (open_healthy()?, self.open()?),
            _ => {
                let failing = self.open()?;
                (open_healthy()?, failing)
            }
        };
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        let (oracle, lived) = std::thread::scope(|scope| {
            let works = scope.spawn(|| caught(|| rounds_of(&healthy, seed, &stop, &rounds)));
            let wait = |more: u64| {
                let wanted = rounds.load(Ordering::Acquire) + more;
                while rounds.load(Ordering::Acquire) < wanted && !works.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            let lived = caught(|| self.phases(failing, &wait));
            stop.store(true, Ordering::Release);
            (works.join().expect("its panics are caught"), lived)
        });
        let oracle = oracle.map_err(|error| format!("the healthy one: {error}"))?;
        lived?;
        let stats = healthy.stats();
        healthy.close().map_err(failed("close of the healthy one"))?;
        shares.expect_databases(0)?;
        let healthy =
            shares.give(builder(&env, self.policy)).open().map_err(failed("reopen of the healthy one"))?;
        same(&healthy, &oracle).map_err(|error| format!("the healthy one after a reopen: {error}"))?;
        let acked = self.written.iter().filter(|ended| **ended == Ended::Acked).count() as u64;
        Ok(Tally::of(&[
            ("lives", 1),
            ("calls that failed", self.faults),
            ("engine calls that failed", self.failures),
            ("writes acknowledged", acked),
            ("rounds of the healthy one", rounds.load(Ordering::Acquire)),
            ("flushes of the healthy one", stats.flushes),
            ("compactions of the healthy one", stats.compactions),
        ]))
    }

    fn open(&self) -> Result<Db, String> {
        self.shares.give(builder(&self.env, self.policy)).open().map_err(failed("open of the failing one"))
    }

    /// The phases of the failing database. `wait` waits for a number of rounds of the healthy one.
    fn phases(&mut self, failing: Db, wait: &dyn Fn(u64)) -> Result<(), String> {
        self.shares.expect_databases(2)?;
        (0..WRITES).for_each(|_| self.write(&failing, None));
        if self.failures > 0 {
            return Err("a write fails before anything else does".to_owned());
        }
        // So that they are kept by each failure.
        failing.flush().map_err(failed("a flush before the failures"))?;
        self.durable.push((self.disk.op_count(), self.written.len()));
        wait(1);

        let (calls, syncs) = (self.faulty.faults_injected(), self.disk.sync_count());
        self.trouble.begin(&self.faulty, &self.disk);
        for number in 0..WRITES {
            self.write(&failing, Some(20));
            if number == WRITES / 2 {
                match failing.flush() {
                    Ok(()) => self.durable.push((self.disk.op_count(), self.written.len())),
                    Err(_) => self.failures += 1,
                }
            }
        }
        wait(ROUNDS);
        self.faults = self.faulty.faults_injected() - calls;
        if self.trouble == Trouble::DroppingSyncs {
            self.faults += self.disk.sync_count() - syncs;
        }
        self.end(failing, wait)?;
        wait(ALONE_ROUNDS);

        // The database that failed works again, in the same pool.
        let db = self.open()?;
        self.settle(&db)?;
        let failures = self.failures;
        (0..WRITES).for_each(|_| self.write(&db, None));
        if self.failures != failures {
            return Err("a write fails after a reopen, when nothing else does".to_owned());
        }
        db.flush().map_err(failed("a flush after the reopen"))?;
        db.compact().map_err(failed("a compaction after the reopen"))?;
        wait(ROUNDS);
        self.check_contents(&db)?;
        let report = db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {problem:?}"));
        }
        self.shares.expect_databases(2)?;
        db.close().map_err(failed("close"))?;
        self.shares.expect_databases(1)
    }

    /// Ends the failures and the open database.
    fn end(&mut self, failing: Db, wait: &dyn Fn(u64)) -> Result<(), String> {
        match self.ending {
            Ending::Cease => {
                self.faulty.clear_rules();
                // A try that has met a failure ends first.
                wait(1);
                self.check_contents(&failing)?;
                if self.trouble.lets_resume() {
                    self.resume(&failing)?;
                }
                drop(failing);
            }
            Ending::Close => self.failures += u64::from(failing.close().is_err()),
            Ending::Drop => drop(failing),
            Ending::PowerCut => {
                let cut = self.cut()?;
                drop(failing);
                self.disk = cut.clone();
                self.faulty = FaultFs::new(Arc::new(cut), 1);
                self.env.vfs = Arc::new(self.faulty.clone());
            }
        }
        self.faulty.clear_rules();
        self.shares.expect_databases(1)
    }

    fn write(&mut self, db: &Db, deadline_ms: Option<u64>) {
        let number = self.written.len();
        let sync = self.rng.u8(..10) == 0;
        let mut options = WriteOptions::new();
        if let Some(ms) = deadline_ms {
            options = options.deadline_ms(ms);
        }
        if sync {
            options = options.durability(Durability::Sync);
        }
        let ended = match db.put_with(key(number), value(number), options).map_err(|error| error.kind()) {
            Ok(()) => Ended::Acked,
            Err(ErrorKind::ReadOnly | ErrorKind::Stalled) => Ended::Rejected,
            Err(_) => Ended::Unknown,
        };
        self.failures += u64::from(ended != Ended::Acked);
        self.written.push(ended);
        if sync && ended == Ended::Acked {
            self.durable.push((self.disk.op_count(), self.written.len()));
        }
    }

    /// Writes, flushes and compactions must be possible again, without a reopen.
    fn resume(&mut self, db: &Db) -> Result<(), String> {
        let failures = self.failures;
        (0..WRITES).for_each(|_| self.write(db, None));
        if self.failures != failures {
            return Err("a write fails although its cause is gone".to_owned());
        }
        db.flush().map_err(failed("a flush when the cause is gone"))?;
        db.compact().map_err(failed("a compaction when the cause is gone"))?;
        self.check_contents(db)
    }

    /// Checks that the database holds exactly the acknowledged writes.
    fn check_contents(&self, db: &Db) -> Result<(), String> {
        let held = self.written.iter().enumerate().filter(|(_, ended)| **ended == Ended::Acked);
        same(db, &held.map(|(number, _)| (key(number).into_bytes(), value(number))).collect())
    }

    /// After a reopen, notes which writes are there. All that were acknowledged must be, or after a
    /// power cut a prefix with all that were durable.
    fn settle(&mut self, db: &Db) -> Result<(), String> {
        let kept = match self.ending {
            Ending::PowerCut => self.durable.last().map_or(0, |(_, count)| *count),
            Ending::Cease | Ending::Close | Ending::Drop => self.written.len(),
        };
        let there = self.check_prefix(db, kept)?;
        self.written =
            there.iter().map(|there| if *there { Ended::Acked } else { Ended::Rejected }).collect();
        self.check_contents(db)
    }

    /// Checks that the writes that are there are a prefix of those that were acknowledged, with all
    /// of the `kept` first ones, and none that was rejected.
    fn check_prefix(&self, db: &Db, kept: usize) -> Result<Vec<bool>, String> {
        let there = (0..self.written.len()).map(|number| db.contains_key(key(number)));
        let there = there.collect::<shamba::Result<Vec<bool>>>().map_err(failed("contains_key"))?;
        let end = there.iter().rposition(|there| *there).map_or(0, |at| at + 1).max(kept);
        for (number, (ended, there)) in self.written.iter().zip(&there).enumerate() {
            match (ended, there) {
                (Ended::Acked, false) if number < end => {
                    return Err(format!("write {number} is gone, {kept} were kept, the last one is {end}"));
                }
                (Ended::Rejected, true) => return Err(format!("the rejected write {number} is there")),
                _ => {}
            }
        }
        Ok(there)
    }

    /// Checks what power cuts at several calls leave. Returns the disk of one now, on which nothing
    /// survives that was not synced.
    fn cut(&mut self) -> Result<SimFs, String> {
        let calls = self.disk.op_count();
        let cut = self.disk.crash(calls, &CrashPolicy::None);
        for _ in 0..IMAGES {
            let k = self.rng.u64(1..=calls);
            let policies = self.disk.policies_for(k, self.rng.u64(..));
            let policy = policies[self.rng.usize(..policies.len())];
            let env = Env::deterministic(Arc::new(self.disk.crash(k, &policy)), k);
            let kept =
                self.durable.iter().rev().find(|(calls, _)| *calls <= k).map_or(0, |(_, count)| *count);
            let db = builder(&env, self.policy).open().map_err(failed("open"));
            db.and_then(|db| self.check_prefix(&db, kept))
                .map_err(|error| format!("power cut behind call {k} of {calls}, {policy:?}: {error}"))?;
        }
        Ok(cut)
    }
}

/// The pairs of a database.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn same(db: &Db, want: &Pairs) -> Result<(), String> {
    let pairs = db.iter().map(owned);
    let found = pairs.collect::<shamba::Result<Pairs>>().map_err(failed("scan"))?;
    if found == *want {
        return Ok(());
    }
    let key = want.iter().chain(&found).find(|(key, _)| found.get(*key) != want.get(*key));
    Err(format!(
        "{} pairs in place of {}, the first other key: {:?}",
        found.len(),
        want.len(),
        key.map(|of| of.0)
    ))
}

/// Works in rounds until `stop`, and returns what it has written.
fn rounds_of(db: &Db, seed: u64, stop: &AtomicBool, rounds: &AtomicU64) -> Result<Pairs, String> {
    let mut rng = Rng::with_seed(!seed);
    let mut oracle = Pairs::new();
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        for _ in 0..WRITES_OF_A_ROUND {
            number += 1;
            let key = key(rng.usize(..300)).into_bytes();
            match rng.u8(..5) {
                0 => {
                    db.delete(&key).map_err(failed("delete"))?;
                    oracle.remove(&key);
                }
                _ => {
                    db.put(&key, value(number)).map_err(failed("put"))?;
                    oracle.insert(key, value(number));
                }
            }
        }
        db.flush().map_err(failed("flush"))?;
        if rounds.load(Ordering::Acquire).is_multiple_of(COMPACT_EACH) {
            db.compact().map_err(failed("compact"))?;
        }
        same(db, &oracle)?;
        rounds.fetch_add(1, Ordering::Release);
    }
    Ok(oracle)
}
