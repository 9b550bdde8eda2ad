//! Compaction jobs: the input tables, and the run that the outputs join.
//!
//! All versions of a key from the inputs end up in the target run, slice by slice. Lookup order (a
//! newer run's versions of a key are all newer) is preserved exactly if no table that stays behind
//! comes between an input and the target: see [`CompactionJob::check`].
//!
//! Not here: job choice ([`super::fluid`], [`super::full`]), slices ([`super::slices`]).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use shamba_table::TableId;

use crate::version::{KeyRange, Run, TableUse, Version};
use shamba_key::{Age, RunId};

/// The input tables of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompactionInput {
    /// Level of the run.
    pub level: u32,
    /// The run.
    pub run: RunId,
    /// The input tables, ascending.
    pub tables: Vec<TableId>,
}

/// The run that the outputs of a job join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An existing run. Its tables that share keys with the other inputs are inputs too.
    Existing(RunId),
    /// A new run, the newest of the target level.
    New,
}

/// Reason for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Level 0 reached its compaction trigger.
    Level0,
    /// A level holds more bytes than its capacity.
    Overflow {
        /// The level.
        level: u32,
    },
    /// A level has more runs than the design allows.
    Runs {
        /// The level.
        level: u32,
    },
    /// A caller asked for it.
    Manual,
    /// Filters of tables have a stale number of bits per key.
    Filters,
    /// Several adjacent tables of a run are small.
    SmallTables,
    /// Level 0 has many runs and cannot be compacted down now: adjacent ones become one run.
    L0Runs,
    /// Reads that become cheaper pay for it.
    Reads,
    /// Tombstones are old, or slow scans down.
    Tombstones,
    /// Many entries of a table have expired.
    Expired,
    /// A FIFO tree is too large, or has tables that are too old.
    Fifo,
    /// Value files hold too much that is obsolete, or may be.
    Values,
    /// A caller asked for the compaction of a range.
    Range,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level0 => f.write_str("level 0 reached its compaction trigger"),
            Self::Overflow { level } => write!(f, "level {level} is over its capacity"),
            Self::Runs { level } => write!(f, "level {level} has too many runs"),
            Self::Manual => f.write_str("manual"),
            Self::Filters => f.write_str("stale filters are rewritten"),
            Self::SmallTables => f.write_str("small tables are combined"),
            Self::L0Runs => f.write_str("runs of level 0 are merged"),
            Self::Reads => f.write_str("reads pay for it"),
            Self::Tombstones => f.write_str("tombstones are collected"),
            Self::Expired => f.write_str("expired entries are dropped"),
            Self::Fifo => f.write_str("the oldest tables are dropped"),
            Self::Values => f.write_str("value files are collected"),
            Self::Range => f.write_str("a range is compacted"),
        }
    }
}

/// The run that the outputs of a job join, fixed when the job starts and the same for all its
/// slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputRun {
    /// The run.
    pub run: RunId,
    /// Age of the run.
    pub age: Age,
}

/// A compaction job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompactionJob {
    /// Inputs in lookup order (newest first), including those from the target run.
    pub inputs: Vec<CompactionInput>,
    /// Level of the outputs. It is 0 only if the target run exists.
    pub target_level: u32,
    /// The run that the outputs join.
    pub target_run: Target,
    /// Reason for the job.
    pub reason: Reason,
}

impl CompactionJob {
    /// The input tables that are still in the tree, each with its level and run, in lookup order.
    pub fn uses<'v>(&self, version: &'v Version) -> Vec<(u32, &'v Arc<Run>, &'v TableUse)> {
        let mut uses = Vec::new();
        for input in &self.inputs {
            let Some(run) = version.level(input.level).iter().find(|run| run.id == input.run) else {
                continue;
            };
            let wanted: HashSet<_> = input.tables.iter().copied().collect();
            let tables = run.tables().iter().filter(|table| wanted.contains(&table.meta.id));
            uses.extend(tables.map(|table| (input.level, run, table)));
        }
        debug_assert!(
            uses.len() <= self.inputs.iter().map(|input| input.tables.len()).sum(),
            "{self}: {} tables are used",
            uses.len()
        );
        uses
    }

    /// Estimated bytes that the job reads.
    pub fn input_bytes(&self, version: &Version) -> u64 {
        self.uses(version).iter().fold(0, |sum, (_, _, table)| sum.saturating_add(table.live_bytes))
    }

    /// The output run of a job that starts now. `run` and `age` must be larger than all in use; a
    /// job with a new target run takes them.
    ///
    /// # Errors
    /// The target run does not exist.
    pub fn output_run(&self, version: &Version, run: RunId, age: Age) -> Result<OutputRun, String> {
        let Target::Existing(id) = self.target_run else { return Ok(OutputRun { run, age }) };
        let level = version.level(self.target_level);
        let run = level.iter().find(|run| run.id == id);
        let run = run.ok_or_else(|| format!("level {} has no run {id}", self.target_level))?;
        Ok(OutputRun { run: id, age: run.age })
    }

    /// Whether the inputs can change runs without being rewritten. This holds if no two share keys,
    /// none is in the target run already, and no tombstone among them could be dropped.
    pub fn is_trivial_move(&self, version: &Version) -> bool {
        let uses = self.uses(version);
        if uses.is_empty() || uses.iter().any(|(_, run, _)| self.target_run == Target::Existing(run.id)) {
            return false;
        }
        let mut ranges: Vec<_> = uses.iter().map(|(_, _, table)| &table.range).collect();
        ranges.sort_by(|a, b| a.lower.cmp(&b.lower));
        let is_disjoint =
            ranges.iter().zip(ranges.iter().skip(1)).all(|(left, right)| !left.is_above(&right.lower));
        let order = Order::of(self, version);
        is_disjoint
            && uses.iter().all(|(_, _, table)| {
                let has_deletes = table.meta.deletes > 0 || table.meta.range_deletes > 0;
                !has_deletes || order.below(&table.range).next().is_some()
            })
    }

    /// Ranges of the tables that are older than the outputs, are not inputs, and share keys with
    /// `range`. A tombstone may still hide a version there; elsewhere the compaction may drop it
    /// once no snapshot needs it.
    pub fn below(&self, version: &Version, range: &KeyRange) -> Vec<KeyRange> {
        Order::of(self, version).below(range).map(|table| table.range.clone()).collect()
    }

    /// Checks that the job keeps the versions of every key in lookup order.
    ///
    /// For each input table, all tables that share keys with it in the target run and in every run
    /// between its own and the target must be inputs too. Then the versions of a key that stay
    /// behind are all newer or all older than those that move.
    ///
    /// # Errors
    /// The first input that does not exist, is out of order, or would pass another version of its
    /// keys.
    pub fn check(&self, version: &Version) -> Result<(), String> {
        if self.target_level == 0 && self.target_run == Target::New {
            return Err("a compaction cannot make a run of level 0".to_owned());
        }
        if let Target::Existing(run) = self.target_run {
            if !version.level(self.target_level).iter().any(|other| other.id == run) {
                return Err(format!("the target, run {run}, is not on level {}", self.target_level));
            }
        }
        let order = Order::of(self, version);
        let mut newer = None;
        for input in &self.inputs {
            let CompactionInput { level, run: id, tables } = input;
            let at = order.runs.iter().position(|run| run.id == *id);
            let at = at.filter(|_| version.level(*level).iter().any(|run| run.id == *id));
            let at = at.ok_or_else(|| format!("level {level} has no run {id}"))?;
            if newer.is_some_and(|newer| newer >= at) {
                return Err(format!("run {id} is out of order among the inputs"));
            }
            if *level > self.target_level {
                return Err(format!("run {id} would move up from level {level}"));
            }
            newer = Some(at);
            let run = order.runs[at];
            if tables.is_empty() {
                return Err(format!("no table of run {id} is an input"));
            }
            let known: HashSet<_> = run.tables().iter().map(|table| table.meta.id).collect();
            if let Some(table) = tables.iter().find(|table| !known.contains(table)) {
                return Err(format!("run {id} has no table {table}"));
            }
            for table in run.tables().iter().filter(|table| order.is_input(run, table)) {
                order.check_way(at, table)?;
            }
        }
        if newer.is_none() {
            return Err("no inputs".to_owned());
        }
        Ok(())
    }
}

/// Position of the run with index `at`. Runs have odd positions, so that a target that does not
/// exist yet has an even one between two runs.
fn place(at: usize) -> usize {
    2 * at + 1
}

/// The runs in lookup order and the position of the target among them.
struct Order<'v> {
    runs: Vec<&'v Arc<Run>>,
    target: usize,
    inputs: HashSet<(RunId, TableId)>,
}

impl<'v> Order<'v> {
    fn of(job: &CompactionJob, version: &'v Version) -> Self {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        let target = match job.target_run {
            Target::Existing(id) => runs.iter().position(|run| run.id == id).map(place),
            Target::New => None,
        };
        let target = target.unwrap_or_else(|| {
            // Just before the newest run of the target level or, if it has none, of the levels
            // below.
            2 * version.runs().take_while(|(level, _)| *level < job.target_level).count()
        });
        let inputs = job
            .inputs
            .iter()
            .flat_map(|input| input.tables.iter().map(|table| (input.run, *table)))
            .collect();
        debug_assert!(target <= 2 * runs.len(), "{job}: place {target} among {} runs", runs.len());
        Self { runs, target, inputs }
    }

    fn is_input(&self, run: &Run, table: &TableUse) -> bool {
        self.inputs.contains(&(run.id, table.meta.id))
    }

    /// The tables older than the target that share keys with `range` and are not inputs.
    fn below<'o>(&'o self, range: &'o KeyRange) -> impl Iterator<Item = &'v TableUse> + 'o {
        let older = self.runs.iter().enumerate().filter(|(at, _)| place(*at) > self.target);
        older
            .flat_map(|(_, run)| run.overlapping(range).iter().map(move |table| (run, table)))
            .filter(|(run, table)| !self.is_input(run, table))
            .map(|(_, table)| table)
    }

    /// Checks that `table` of the run at `at` can move to the target without passing other versions
    /// of its keys.
    fn check_way(&self, at: usize, table: &TableUse) -> Result<(), String> {
        debug_assert!(at < self.runs.len(), "run {at} of {}", self.runs.len());
        let (from, to) = (place(at).min(self.target), place(at).max(self.target));
        for (other, run) in self.runs.iter().enumerate() {
            if other == at || !(from..=to).contains(&place(other)) {
                continue;
            }
            let passed = run.overlapping(&table.range).iter().find(|passed| !self.is_input(run, passed));
            if let Some(passed) = passed {
                return Err(format!(
                    "table {} would pass table {} of run {}, which shares keys with it",
                    table.meta.id, passed.meta.id, run.id
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for CompactionJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, input) in self.inputs.iter().enumerate() {
            write!(f, "{}L{}.r{}[", if at > 0 { " + " } else { "" }, input.level, input.run)?;
            for (at, table) in input.tables.iter().enumerate() {
                write!(f, "{}{table}", if at > 0 { ", " } else { "" })?;
            }
            f.write_str("]")?;
        }
        match self.target_run {
            Target::Existing(run) => write!(f, " -> L{}.r{run}", self.target_level)?,
            Target::New => write!(f, " -> L{}, new run", self.target_level)?,
        }
        write!(f, " ({})", self.reason)
    }
}
