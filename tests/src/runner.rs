//! The runner: applies operations to a database and to the oracle, and compares after each.
//!
//! The environment is deterministic: no threads, a manual clock, a seeded generator, files in
//! memory. So a run is a function of its vector, seed and operations, and a failure can be
//! reproduced and shrunk. Databases that share threads and memory may run with real threads, and
//! only their operations are then functions of the seed.
//!
//! A drop without close may lose only what the contract allows: no acknowledged write, except under
//! `Buffered` and without a log, where a prefix survives. The runner determines the prefix and
//! continues from there.

mod conditional;
mod drops;
mod followed;
mod outcome;
mod reads;
mod time;
mod transaction;
mod verdicts;

pub use self::verdicts::note as note_verdicts;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Builder, Durability, Iter, Outcome, Snapshot, Stats, WriteOptions};

pub use self::outcome::{Failure, caught, panic_message};
use crate::compare::{self, Spaces, failed};
use crate::crash::orphans;
use crate::expiry;
use crate::follower::Follower;
use crate::ops::{Op, Redesign};
use crate::oracle::{Change, Moment, Oracle, Pair, SPACES, Span, fingerprint};
use crate::seed::mixed;
use crate::shared::Shares;
use crate::tally::Tally;
use crate::vectors::Vector;

/// A held iterator and the pairs that it must still return.
struct Held {
    space: usize,
    /// The time at which it began.
    since_ms: u64,
    iter: Iter,
    rest: std::collections::VecDeque<Pair>,
}

/// A database under test, its oracle, and the readers that live across operations.
pub struct Runner {
    env: Env,
    path: PathBuf,
    vector: Vector,
    /// The threads and the memory that it shares with other databases.
    shares: Option<Shares>,
    seed: u64,
    spaces: Option<Spaces>,
    oracle: Oracle,
    snapshots: Vec<(Snapshot, Moment)>,
    iterators: Vec<Held>,
    reopens: u64,
    /// The number of operations so far.
    turn: u64,
    /// The verdicts of this life that the oracle knows of.
    filtered: u64,
    /// The dropped tables of this life that the oracle knows of.
    dropped: u64,
    /// Whether a part of the puts expires within the run.
    passes_time: bool,
    /// Whether a run of the FIFO keyspace had several tables at the last look.
    has_cut_run: bool,
    /// The replica that follows the changes, if there is one.
    follower: Option<Follower>,
    /// The beginning of each tick: the commits before it, and its time.
    ticks: Vec<(u64, u64)>,
    /// Lookups of this life that were given their hash.
    hashed_gets: u64,
    /// Compactions of this life that are already in the tally.
    merges_counted: u64,
    tally: Tally,
}

/// The runner's database in its file system.
pub const HOME: &str = "/db";

/// The directory of its checkpoints.
pub const COPY: &str = "/copy";

/// Maximum number of snapshots and held iterators at a time.
const READERS_MAX: usize = 6;

impl Runner {
    /// Creates the database.
    ///
    /// # Errors
    /// The call that failed.
    pub fn new(vector: Vector, vfs: Arc<dyn Vfs>, seed: u64) -> Result<Self, String> {
        Self::new_in(vector, Env::deterministic(vfs, seed), seed, None)
    }

    /// Creates the database in an environment, which may have threads, as one of several that share
    /// threads and memory.
    ///
    /// # Errors
    /// The call that failed.
    pub fn new_in(vector: Vector, env: Env, seed: u64, shares: Option<Shares>) -> Result<Self, String> {
        let mut runner = Self {
            env,
            path: PathBuf::from(HOME),
            vector,
            shares,
            seed,
            spaces: None,
            oracle: Oracle::new(),
            snapshots: Vec::new(),
            iterators: Vec::new(),
            reopens: 0,
            turn: 0,
            filtered: 0,
            dropped: 0,
            passes_time: false,
            has_cut_run: false,
            follower: None,
            ticks: Vec::new(),
            hashed_gets: 0,
            merges_counted: 0,
            tally: Tally::default(),
        };
        runner.open()?;
        runner.begin_following()?;
        Ok(runner)
    }

    /// Lets a part of the puts expire within the run. Without it a run has no model of time.
    #[must_use]
    pub fn passing_time(mut self) -> Self {
        self.passes_time = true;
        self
    }

    fn open(&mut self) -> Result<(), String> {
        let db = self.builder(&self.path).open().map_err(failed("open"))?;
        let warnings = db.warnings();
        // Databases that open at the same time may begin with less memory than they need.
        let at_once = !self.env.spawner.is_inline();
        let is_expected = |warning: &&String| at_once && warning.contains("memory budget");
        if let Some(warning) = warnings.iter().find(|warning| !is_expected(warning)) {
            return Err(format!("open warns though no power was lost: {warning}"));
        }
        self.spaces = Some(Spaces::create(db).map_err(failed("keyspace"))?);
        Ok(())
    }

    fn builder(&self, path: &Path) -> Builder {
        let builder = self.vector.builder(path, &self.env);
        match &self.shares {
            Some(shares) => shares.give(builder),
            None => builder,
        }
    }

    /// The oracle.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// The open handles.
    ///
    /// # Errors
    /// If a reopen failed before.
    pub fn spaces(&self) -> Result<&Spaces, String> {
        self.spaces.as_ref().ok_or_else(|| "the database is not open".to_owned())
    }

    /// Compares everything, counts the work of the last life, and returns the counts.
    ///
    /// # Errors
    /// The difference.
    pub fn finish(mut self) -> Result<Tally, String> {
        self.compare_all()?;
        self.finish_following()?;
        self.count_life()?;
        // Without readers, a full compaction leaves no file that is not in use.
        self.snapshots.clear();
        self.iterators.clear();
        self.compact(false)?;
        if self.vector.is_filtered {
            self.compact(true)?;
        }
        let spaces = self.spaces()?;
        if let Some((bytes, other)) =
            self.vector.fifo.and_then(|limits| limits.max_bytes()).zip(spaces.others[0].as_ref())
        {
            let stats = other.stats();
            let tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
            if tables > bytes && stats.runs > 1 {
                return Err(format!(
                    "{} tables of {tables} bytes are left, the limit is {bytes}",
                    stats.runs
                ));
            }
        }
        let report = spaces.db.verify().map_err(failed("verify"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("verify reports {} problems, the first: {problem:?}", report.problems.len()));
        }
        let files = self.env.vfs.list(&self.path).map_err(|error| format!("list: {error}"))?;
        // A thread may hold an obsolete file for a moment longer.
        if self.env.spawner.is_inline() {
            orphans(&files, &report)?;
        }
        self.compare_all().map_err(|error| format!("after the last compaction: {error}"))?;
        Ok(self.tally)
    }

    /// Compares everything that can be read now.
    ///
    /// # Errors
    /// The difference.
    pub fn compare_all(&self) -> Result<(), String> {
        compare::everything_at(self.spaces()?, &self.oracle, self.now())
    }

    /// Counts the compactions since the last count, or since the open.
    fn count_merges(&mut self) -> Result<(), String> {
        let merges = self.spaces()?.db.stats().compactions;
        let more = merges - std::mem::replace(&mut self.merges_counted, merges);
        self.tally.add(&format!("compactions, {}", self.vector.policy_name()), more);
        Ok(())
    }

    fn count_life(&mut self) -> Result<(), String> {
        self.count_merges()?;
        self.merges_counted = 0;
        let stats: Stats = self.spaces()?.db.stats();
        self.tally.add("flushes", stats.flushes);
        self.tally.add("trivial moves", stats.trivial_moves);
        self.tally.add("iterators revoked", stats.iterators_revoked);
        self.tally.add("filters consulted", stats.filters_consulted);
        self.tally.add("runs left out by their prefixes", stats.prefix_runs_skipped);
        self.tally.add("data reads", stats.reads.data.count);
        self.tally.add("bytes of values in value files", stats.bytes_values_written);
        self.tally.add("answers of the record cache", stats.record_hits);
        self.tally.add("compactions with a dictionary", stats.dictionary_compactions);
        let hashed_gets = std::mem::take(&mut self.hashed_gets);
        if self.vector.hash_sharing && stats.hashes + hashed_gets != stats.lookups {
            return Err(format!(
                "{} lookups, {hashed_gets} of them with their hash given, made {} hashes with sharing on",
                stats.lookups, stats.hashes
            ));
        }
        self.tally.raise("max deepest level", u64::from(stats.deepest_level));
        Ok(())
    }

    /// Applies one operation and compares its result.
    ///
    /// # Errors
    /// The failure or difference.
    pub fn apply(&mut self, op: &Op) -> Result<(), String> {
        self.tally.add("operations", 1);
        self.turn += 1;
        self.applied(op)?;
        self.note_changes()?;
        self.follow()
    }

    /// Finds out what compactions have changed.
    fn note_changes(&mut self) -> Result<(), String> {
        self.note_verdicts()?;
        self.note_drops()
    }

    fn applied(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Write(change) => self.write(change),
            Op::Replace { space, key, new, is_update } => {
                self.replace(*space, key, new.as_deref(), *is_update)
            }
            Op::Transaction(op) => self.transaction(op),
            Op::Batch { changes, sync } => self.batch(changes, *sync && !self.vector.no_wal),
            Op::Pass { ticks } => self.pass(*ticks),
            Op::Live { space, key, ticks } => self.live(*space, key, *ticks),
            Op::Get { space, key } => self.get(*space, key),
            Op::MultiGet { space, keys } => self.multi_get(*space, keys),
            Op::Scan { .. } | Op::BothEnds { .. } | Op::Prefix { .. } | Op::Walk { .. } => self.scan(op),
            Op::SnapshotTake | Op::SnapshotRead { .. } | Op::SnapshotDrop { .. } => self.snapshot(op),
            Op::IterOpen { .. } | Op::IterStep { .. } => self.iterator(op),
            Op::Flush => {
                // Time passes, so that tombstones age.
                self.env.clock.sleep_us(1_000);
                self.spaces()?.db.flush().map_err(failed("flush"))?;
                self.oracle.mark_durable();
                self.replica_is_equal()
            }
            Op::Compact => self.compact(false),
            Op::CompactRange { space, span } => self.compact_range(*space, span),
            Op::Sync if self.vector.no_wal => Ok(()),
            Op::Sync => {
                self.spaces()?.db.sync().map_err(failed("sync"))?;
                self.oracle.mark_durable();
                self.replica_is_equal()
            }
            Op::WaitIdle => self.spaces()?.db.wait_idle().map_err(failed("wait_idle")),
            Op::Reopen { clean, change_options } => self.reopen(*clean, *change_options),
            Op::Checkpoint => self.checkpoint(),
            Op::Ingest(pairs) => self.ingest(pairs),
            Op::DropSpace { space } => self.drop_space(*space),
            Op::Redesign(target) => self.redesign(target),
            Op::Verify => self.verify(),
            Op::Explain(key) => self.explain(key),
        }
    }

    fn compact(&mut self, is_second: bool) -> Result<(), String> {
        self.spaces()?.db.compact().map_err(failed("compact"))?;
        self.note_changes()?;
        self.all_is_filtered(is_second)
    }

    fn compact_range(&self, space: usize, span: &Span) -> Result<(), String> {
        let spaces = self.spaces()?;
        let compacted = match space.checked_sub(1).and_then(|at| spaces.others[at].as_ref()) {
            Some(other) => other.compact_range(span.clone()),
            None => spaces.db.compact_range(span.clone()),
        };
        compacted.map_err(failed("compact_range"))
    }

    fn write(&mut self, change: &Change) -> Result<(), String> {
        let spaces = self.spaces()?;
        let other =
            |space: &usize| spaces.others[space - 1].as_ref().expect("the runner makes every keyspace");
        let options = |value: &[u8]| expiry::options_for(self.time_to_live(value));
        let before = spaces.db.sequence();
        let result = match change {
            Change::Put { space: 0, key, value } => spaces.db.put_with(key, value, options(value)),
            Change::Put { space, key, value } => other(space).put_with(key, value, options(value)),
            Change::Delete { space, key } => {
                let now = WriteOptions::new().time_to_live(Duration::ZERO);
                match (expiry::instead_of_delete(self.oracle.issued()), space) {
                    (None, 0) => spaces.db.delete(key),
                    (None, space) => other(space).delete(key),
                    (Some(value), 0) => spaces.db.put_with(key, value, now),
                    (Some(value), space) => other(space).put_with(key, value, now),
                }
            }
            Change::Merge { space: 0, key, operand } => spaces.db.merge(key, operand),
            Change::Merge { space, key, operand } => other(space).merge(key, operand),
            Change::DeleteRange { space: 0, span } => spaces.db.delete_range(span.clone()),
            Change::DeleteRange { space, span } => other(space).delete_range(span.clone()),
        };
        result.map_err(failed("write"))?;
        let after = spaces.db.sequence();
        let is_range = matches!(change, Change::DeleteRange { .. });
        // A range delete of an empty span may take no number.
        if after != before + 1 && !(is_range && after == before) {
            return Err(format!("one write took the sequence from {before} to {after}"));
        }
        self.commit(std::slice::from_ref(change), false, self.vector.durability == Durability::Sync);
        Ok(())
    }

    fn batch(&mut self, changes: &[Change], sync: bool) -> Result<(), String> {
        let spaces = self.spaces()?;
        let other =
            |space: &usize| spaces.others[space - 1].as_ref().expect("the runner makes every keyspace");
        let mut batch = spaces.db.batch();
        for change in changes {
            match change {
                Change::Put { space, key, value } => {
                    let other = (*space > 0).then(|| other(space));
                    expiry::put_for(&mut batch, other, key, value, self.time_to_live(value))
                }
                Change::Delete { space: 0, key } => batch.delete(key),
                Change::Delete { space, key } => batch.delete_in(other(space), key),
                Change::Merge { space: 0, key, operand } => batch.merge(key, operand),
                Change::Merge { space, key, operand } => batch.merge_in(other(space), key, operand),
                Change::DeleteRange { space: 0, span } => batch.delete_range(span.clone()),
                Change::DeleteRange { space, span } => batch.delete_range_in(other(space), span.clone()),
            };
        }
        let result = match sync {
            true => batch.commit_with(Durability::Sync),
            false => batch.commit(),
        };
        result.map_err(failed("commit"))?;
        // An empty batch writes nothing, so it promises nothing about earlier commits.
        let durable = !changes.is_empty() && (sync || self.vector.durability == Durability::Sync);
        self.commit(changes, false, durable);
        Ok(())
    }

    /// Brings a commit to the oracle; `is_applied` as of [`Oracle::commit_with`].
    fn commit(&mut self, changes: &[Change], is_applied: bool, durable: bool) {
        let ranges = changes.iter().filter(|change| matches!(change, Change::DeleteRange { .. })).count();
        let merges = changes.iter().filter(|change| matches!(change, Change::Merge { .. })).count();
        self.tally.add("range deletes", ranges as u64);
        self.tally
            .add(if self.vector.combines { "merges, combined" } else { "merges, apart" }, merges as u64);
        self.tally.add("writes", changes.len() as u64);
        let (now_ms, passes_time) = (self.env.clock.unix_ms(), self.passes_time);
        self.oracle.commit_with(changes, |value| expiry::ends_ms(value, now_ms, passes_time), is_applied);
        if durable {
            self.oracle.mark_durable();
        }
    }

    fn reopen(&mut self, clean: bool, change_options: bool) -> Result<(), String> {
        self.compare_all().map_err(|error| format!("before the reopen: {error}"))?;
        self.count_life()?;
        self.snapshots.clear();
        self.iterators.clear();
        if let Some(follower) = &mut self.follower {
            follower.pause();
        }
        let Some(Spaces { db, others }) = self.spaces.take() else {
            return Err("the database is not open".to_owned());
        };
        drop(others);
        match clean {
            true => {
                db.close().map_err(failed("close"))?;
                self.oracle.mark_durable();
            }
            false => drop(db),
        }
        self.reopens += 1;
        if change_options {
            let other = Vector::numbered(mixed(self.seed, self.reopens), (self.seed % 97) as usize);
            self.vector.adopt(other);
        }
        self.open()?;
        if !clean && !self.vector.survives_kill() {
            self.accept_prefix()?;
        }
        (self.filtered, self.dropped) = (0, 0);
        self.note_changes()?;
        self.compare_all().map_err(|error| format!("after the reopen: {error}"))?;
        self.follow_again(clean)?;
        self.tally.add(if clean { "reopens, clean" } else { "reopens, after a drop" }, 1);
        Ok(())
    }

    /// Finds the commit whose state is present, at or after the durable one, and makes it the
    /// oracle's newest.
    fn accept_prefix(&mut self) -> Result<(), String> {
        let found = fingerprint(&self.spaces()?.dump().map_err(failed("scan"))?);
        let now = self.now();
        let legal = self.oracle.durable()..=self.oracle.issued();
        let survivor = legal
            .clone()
            .rev()
            .find(|at| fingerprint(&self.oracle.state(Moment { commit: *at, ..now })) == found);
        let Some(at) = survivor else {
            return Err(format!("after a drop the state is that of no commit in {legal:?}"));
        };
        self.tally.add("commits lost by a drop", self.oracle.issued() - at);
        self.oracle.roll_back_to(at);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let dir = Path::new(COPY);
        self.spaces()?.db.checkpoint(dir).map_err(failed("checkpoint"))?;
        let copy = self.builder(dir).open().map_err(failed("open of the checkpoint"))?;
        let copy = Spaces::existing(copy).map_err(failed("keyspace of the checkpoint"))?;
        self.note_changes()?;
        let mut oracle = self.oracle.clone();
        if self.vector.is_filtered {
            // Its open may have compacted it.
            verdicts::note(&copy, &mut oracle, self.now())?;
        }
        if self.vector.fifo.is_some() {
            drops::note(&copy, &mut oracle, self.now())?;
        }
        compare::everything_at(&copy, &oracle, self.now())
            .map_err(|error| format!("in the checkpoint: {error}"))?;
        drop(copy);
        remove_database(&*self.env.vfs, dir).map_err(|error| format!("removing the checkpoint: {error}"))?;
        self.tally.add("checkpoints", 1);
        Ok(())
    }

    fn ingest(&mut self, pairs: &[Pair]) -> Result<(), String> {
        self.spaces()?.db.ingest(pairs.iter().map(|(k, v)| (k, v))).map_err(failed("ingest"))?;
        if let Some(follower) = &mut self.follower {
            follower.note_ingested(pairs);
        }
        let put = |(key, value): &Pair| Change::Put { space: 0, key: key.clone(), value: value.clone() };
        self.oracle.commit(&pairs.iter().map(put).collect::<Vec<_>>());
        // Ingested tables are installed, and nothing before them may be lost while they remain.
        if !pairs.is_empty() {
            self.oracle.mark_durable();
        }
        self.tally.add("ingests", 1);
        Ok(())
    }

    fn drop_space(&mut self, space: usize) -> Result<(), String> {
        self.iterators.retain(|held| held.space != space);
        let spaces = self.spaces.as_mut().ok_or("the database is not open")?;
        spaces.others[space - 1] = None;
        spaces.db.drop_keyspace(SPACES[space]).map_err(failed("drop_keyspace"))?;
        if spaces.db.keyspaces().iter().any(|name| name == SPACES[space]) {
            return Err(format!("keyspace {} is still listed after its drop", SPACES[space]));
        }
        self.oracle.drop_space(space);
        spaces.others[space - 1] = Some(spaces.db.keyspace(SPACES[space]).map_err(failed("keyspace"))?);
        self.tally.add("keyspaces dropped", 1);
        Ok(())
    }

    fn redesign(&mut self, target: &Redesign) -> Result<(), String> {
        self.count_merges()?; // By the policy that they were made under.
        let target = self.vector.redesign(target);
        let db = &self.spaces()?.db;
        db.redesign(&target).map_err(failed("redesign"))?;
        if db.tree_design() != target {
            return Err(format!("after a redesign to {target:?} the design is {:?}", db.tree_design()));
        }
        self.tally.add("redesigns", 1);
        self.note_changes()?;
        self.compare_all().map_err(|error| format!("after the redesign: {error}"))
    }

    fn verify(&mut self) -> Result<(), String> {
        let report = self.spaces()?.db.verify().map_err(failed("verify"))?;
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => Err(format!("verify reports a problem in a healthy database: {problem:?}")),
        }
    }

    fn explain(&mut self, key: &[u8]) -> Result<(), String> {
        let db = &self.spaces()?.db;
        let explanation = db.explain(key).map_err(failed("explain"))?;
        if self.vector.hash_sharing && explanation.hashes != 1 {
            return Err(format!("explain counts {} hashes with sharing on", explanation.hashes));
        }
        if explanation.to_string().is_empty() {
            return Err("explain says nothing".to_owned());
        }
        let found = match &explanation.outcome {
            Outcome::Found { value } => Some(&value[..]),
            _ => None,
        };
        compare::same_value("explain", key, found, self.oracle.get(0, key, self.now()))
    }
}

/// Removes a database that is not open, `CURRENT` first, so that a crash leaves either no database
/// or all of it.
fn remove_database(vfs: &dyn Vfs, dir: &Path) -> std::io::Result<()> {
    vfs.unlink(&dir.join("CURRENT"))?;
    vfs.sync_dir(dir)?;
    for entry in vfs.list(dir)? {
        vfs.unlink(&dir.join(entry.name))?;
    }
    vfs.remove_dir(dir)
}

/// Runs a list of operations on a new database in memory and compares everything at the end. A
/// panic is a failure like any other.
///
/// # Errors
/// The operation that failed, and the reason.
pub fn run(vector: &Vector, seed: u64, ops: &[Op]) -> Result<Tally, Failure> {
    let mut at = 0;
    let result = caught(|| {
        let mut runner = Runner::new(vector.clone(), Arc::new(MemFs::new()), seed)?.passing_time();
        for (index, op) in ops.iter().enumerate() {
            at = index;
            runner.apply(op)?;
        }
        at = ops.len();
        runner.finish()
    });
    result.map_err(|message| Failure { at, message })
}
