//! Merge jobs: which tables are merged, and which run the result joins.
//!
//! The inputs' versions of a key end up together in the target run, slice by slice. That keeps lookup order
//! true (a newer run's versions of a key are all newer) exactly if nothing that stays behind comes between
//! an input and the target: see [`MergeJob::check`].
//!
//! Not here: which job ([`super::fluid`], [`super::full`]), its slices ([`super::slices`]).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use shamba_table::TableId;

use crate::version::{KeyRange, Run, TableUse, Version};
use shamba_key::{Age, RunId};

/// The tables of one run that a job merges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergeInput {
    /// Level of the run.
    pub level: u32,
    /// The run.
    pub run: RunId,
    /// Its tables that are merged, ascending.
    pub tables: Vec<TableId>,
}

/// Where the result of a job goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// It joins this run, whose tables that share keys with the other inputs are inputs too.
    Existing(RunId),
    /// It becomes the newest run of the target level.
    New,
}

/// Why a job is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The inbox reached its trigger.
    Inbox,
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
    /// Filters of tables have other bits than they should.
    Filters,
    /// Many adjacent tables of a run are small.
    SmallTables,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inbox => f.write_str("the inbox reached its trigger"),
            Self::Overflow { level } => write!(f, "level {level} is over its capacity"),
            Self::Runs { level } => write!(f, "level {level} has too many runs"),
            Self::Manual => f.write_str("asked for"),
            Self::Filters => f.write_str("filters get other bits"),
            Self::SmallTables => f.write_str("small tables are merged"),
        }
    }
}

/// The run that the outputs of a job join: fixed when the job starts, the same for each of its slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputRun {
    /// The run.
    pub run: RunId,
    /// Its age.
    pub age: Age,
}

/// A merge to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergeJob {
    /// In lookup order (newest first); tables of the target run that are merged are among them.
    pub inputs: Vec<MergeInput>,
    /// The level that the result arrives on, 1 or deeper; 0 only where tables of a run stay in it.
    pub target_level: u32,
    /// The run that it joins there.
    pub target_run: Target,
    /// Why.
    pub reason: Reason,
}

impl MergeJob {
    /// The input tables that the tree (still) has, each with its level and run, in lookup order.
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
        uses
    }

    /// About how many bytes the job has to read.
    pub fn input_bytes(&self, version: &Version) -> u64 {
        self.uses(version).iter().fold(0, |sum, (_, _, table)| sum.saturating_add(table.live_bytes))
    }

    /// The output run of a job that starts now. The fresh numbers, larger than all in use, serve a job that
    /// makes a run.
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

    /// Whether the inputs can simply change runs: no two of them share keys, none is in the target run
    /// already, and no tombstone among them could be dropped on the way.
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

    /// The ranges of the tables that are older than the result, are not merged, and share keys with `range`:
    /// where a tombstone may still hide something. A merge may drop those that every snapshot sees elsewhere.
    pub fn below(&self, version: &Version, range: &KeyRange) -> Vec<KeyRange> {
        Order::of(self, version).below(range).map(|table| table.range.clone()).collect()
    }

    /// Whether the job keeps the versions of every key in lookup order.
    ///
    /// For each input table: of every run between its own and the target, tables that share keys with it are
    /// inputs too, and so are those of the target run. Then the versions of a key that stay behind are all
    /// above or all below those that move.
    ///
    /// # Errors
    /// The first input that does not exist, is out of order, or would pass another version of its keys.
    pub fn check(&self, version: &Version) -> Result<(), String> {
        let stays = self.inputs.iter().all(|input| self.target_run == Target::Existing(input.run));
        if self.target_level == 0 && !stays {
            return Err("a merge cannot arrive in the inbox".to_owned());
        }
        if let Target::Existing(run) = self.target_run {
            if !version.level(self.target_level).iter().any(|other| other.id == run) {
                return Err(format!("the target, run {run}, is not on level {}", self.target_level));
            }
        }
        let order = Order::of(self, version);
        let mut newer = None;
        for input in &self.inputs {
            let MergeInput { level, run: id, tables } = input;
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
                return Err(format!("no table of run {id} is merged"));
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
            return Err("nothing is merged".to_owned());
        }
        Ok(())
    }
}

/// Where a run of lookup order stands, so that a target that does not exist yet has a place between two.
fn place(at: usize) -> usize {
    2 * at + 1
}

/// The runs in lookup order, and where the target is among them.
struct Order<'v> {
    runs: Vec<&'v Arc<Run>>,
    target: usize,
    inputs: HashSet<(RunId, TableId)>,
}

impl<'v> Order<'v> {
    fn of(job: &MergeJob, version: &'v Version) -> Self {
        let runs: Vec<_> = version.runs().map(|(_, run)| run).collect();
        let target = match job.target_run {
            Target::Existing(id) => runs.iter().position(|run| run.id == id).map(place),
            Target::New => None,
        };
        let target = target.unwrap_or_else(|| {
            // Just before the newest run of the target level, or of what is deeper.
            2 * version.runs().take_while(|(level, _)| *level < job.target_level).count()
        });
        let inputs = job
            .inputs
            .iter()
            .flat_map(|input| input.tables.iter().map(|table| (input.run, *table)))
            .collect();
        Self { runs, target, inputs }
    }

    fn is_input(&self, run: &Run, table: &TableUse) -> bool {
        self.inputs.contains(&(run.id, table.meta.id))
    }

    /// The tables older than the target, but inputs, that share keys with `range`.
    fn below<'o>(&'o self, range: &'o KeyRange) -> impl Iterator<Item = &'v TableUse> + 'o {
        let older = self.runs.iter().enumerate().filter(|(at, _)| place(*at) > self.target);
        older
            .flat_map(|(_, run)| run.overlapping(range).iter().map(move |table| (run, table)))
            .filter(|(run, table)| !self.is_input(run, table))
            .map(|(_, table)| table)
    }

    /// Whether `table` of the run at `at` can go to the target without passing versions of its keys.
    fn check_way(&self, at: usize, table: &TableUse) -> Result<(), String> {
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

impl fmt::Display for MergeJob {
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
