//! Claims: the running jobs of one keyspace, and what each occupies.
//!
//! A job is claimed before it begins and released when it ends. Its claim fixes the output run: a
//! new run gets its place and age at once, before the newest run of its level, existing or being
//! built. Installing a slice shrinks the span to the keys after it.
//!
//! Why jobs without intersecting spans cannot disturb each other: between the newest input and the
//! target of a job, nothing that shares its keys moves, appears or disappears. So lookup order is
//! kept whatever the order of installs, the set of keys below the target can only shrink, and the
//! tables at which slices end stay. A flush adds a run at the newest place, above every claim, and
//! needs none.
//!
//! Invariants: the spans of the claims do not intersect ([`Claims::claim`] refuses); a claim's
//! remaining inputs are in the tree, narrowed to the keys after the installed slices
//! ([`Claim::check`], repeated under the lock of every install).
//!
//! Not here: threads and results ([`super`]).

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use shamba_table::TableId;

use super::place::{RunPlace, Span};
use crate::compaction::policy::{CompactionJob, OutputRun, Target};
use crate::version::{KeyRange, Version};
use shamba_key::{Age, RunId};

/// A running job and what it occupies.
#[derive(Clone, Debug)]
pub struct Claim {
    number: u64,
    job: CompactionJob,
    output: OutputRun,
    target: RunPlace,
    span: Span,
    inputs: Vec<ClaimedTable>,
    score: f64,
    is_finished: bool,
}

/// An input table as it was when its job was claimed.
#[derive(Clone, Debug)]
struct ClaimedTable {
    place: RunPlace,
    run: RunId,
    table: TableId,
    range: KeyRange,
}

/// Reason why a job cannot be claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It conflicts with the running job of this number.
    Conflict(u64),
    /// It does not fit the tree, or would break lookup order.
    Invalid(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(number) => write!(f, "it conflicts with running job {number}"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl Claim {
    /// Number of the claim, never reused by its [`Claims`].
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The job.
    pub fn job(&self) -> &CompactionJob {
        &self.job
    }

    /// The run that all outputs join.
    pub fn output(&self) -> OutputRun {
        self.output
    }

    /// Keys and places that the rest of the job occupies.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Score with which the job was started.
    pub fn score(&self) -> f64 {
        self.score
    }

    /// Estimated bytes that the rest of the job reads.
    pub fn rest_bytes(&self, version: &Version) -> u64 {
        if self.is_finished { 0 } else { self.job.input_bytes(version) }
    }

    /// Checks that the rest of the job still fits the tree: its remaining inputs are there, and no
    /// table that stays behind shares keys with them between their places and the target. Holds for
    /// every claim after every install; repeated under the lock of an install because a violation
    /// would lose data.
    ///
    /// # Errors
    /// The first input that is missing, has another range, or would pass another version of its
    /// keys.
    pub fn check(&self, version: &Version) -> Result<(), String> {
        if self.is_finished {
            return Ok(());
        }
        let is_input: HashSet<_> = self.inputs.iter().map(|input| (input.run, input.table)).collect();
        let runs: Vec<_> =
            version.runs().map(|(level, run)| (RunPlace { level, age: run.age }, run)).collect();
        for ClaimedTable { place, run: id, table, range } in &self.inputs {
            let rest = KeyRange { lower: self.span.keys.lower.clone(), upper: None };
            let Some(rest) = range.intersection(&rest) else { continue };
            let run = runs.iter().find(|(_, run)| run.id == *id);
            // Among those that share its keys: a search of all tables for each input would make the
            // check of a large job take as long as a slice of it.
            let found =
                run.and_then(|(_, run)| run.overlapping(&rest).iter().find(|found| found.meta.id == *table));
            match found {
                Some(found) if found.range == rest => {}
                Some(found) => {
                    return Err(format!("table {table} of run {id} has {} left, not {rest}", found.range));
                }
                None => return Err(format!("run {id} has lost table {table}")),
            }
            let (from, to) = ((*place).min(self.target), (*place).max(self.target));
            let between = runs.iter().filter(|(at, _)| at != place && (from..=to).contains(at));
            let passed = between
                .flat_map(|(_, run)| run.overlapping(&rest).iter().map(move |table| (run.id, table.meta.id)))
                .find(|passed| !is_input.contains(passed));
            if let Some((run, passed)) = passed {
                return Err(format!(
                    "table {table} would pass table {passed} of run {run}, which shares keys with it"
                ));
            }
        }
        Ok(())
    }
}

/// The claims of one keyspace.
#[derive(Clone, Default, Debug)]
pub struct Claims {
    running: Vec<Claim>,
    claimed: u64,
}

impl Claims {
    /// The claims, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.running.iter()
    }

    /// Whether no job runs.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The claim of this number.
    pub fn get(&self, number: u64) -> Option<&Claim> {
        self.running.iter().find(|claim| claim.number == number)
    }

    /// The place of a run that exists or is being built on `level`.
    fn place_of(&self, version: &Version, level: u32, run: RunId) -> Option<RunPlace> {
        let existing = version.level(level).iter().find(|other| other.id == run).map(|run| run.age);
        let built = || {
            let claim =
                self.running.iter().find(|claim| claim.output.run == run && claim.target.level == level);
            claim.map(|claim| claim.output.age)
        };
        existing.or_else(built).map(|age| RunPlace { level, age })
    }

    /// Keys and places that `job` would occupy. A new target run counts as newer than every run of
    /// its level. `None` if an input or the target does not exist.
    pub fn span_of(&self, version: &Version, job: &CompactionJob) -> Option<Span> {
        let mut places = Vec::with_capacity(job.inputs.len() + 1);
        let mut keys: Option<KeyRange> = None;
        for input in &job.inputs {
            let run = version.level(input.level).iter().find(|run| run.id == input.run)?;
            places.push(RunPlace { level: input.level, age: run.age });
            let wanted: HashSet<_> = input.tables.iter().copied().collect();
            let tables = run.tables().iter().filter(|table| wanted.contains(&table.meta.id));
            let mut found = 0;
            for table in tables {
                found += 1;
                keys = Some(keys.map_or_else(|| table.range.clone(), |keys| keys.hull(&table.range)));
            }
            if found != wanted.len() {
                return None;
            }
        }
        places.push(match job.target_run {
            Target::Existing(run) => self.place_of(version, job.target_level, run)?,
            Target::New => RunPlace::newest_of(job.target_level),
        });
        let span = Span {
            keys: keys?,
            newest: places.iter().copied().min()?,
            oldest: places.iter().copied().max()?,
        };
        debug_assert!(!span.keys.is_empty(), "{job} has tables and occupies no key");
        Some(span)
    }

    /// The first claim that conflicts with a job of this span.
    pub fn conflict(&self, span: &Span) -> Option<&Claim> {
        self.running.iter().find(|claim| !claim.is_finished && claim.span.intersects(span))
    }

    /// Claims `job`, which is about to begin with this `score`. `run` and `age` must be larger than
    /// all in use; a job with a new target run takes them.
    ///
    /// # Errors
    /// [`Refused`]: it conflicts with a running job, or does not fit the tree.
    pub fn claim(
        &mut self,
        version: &Version,
        job: CompactionJob,
        (run, age): (RunId, Age),
        score: f64,
    ) -> Result<&Claim, Refused> {
        let invalid = |why: &str| Refused::Invalid(format!("{job}: {why}"));
        if job.target_level == 0 && job.target_run == Target::New {
            return Err(invalid("only a flush makes a run of level 0"));
        }
        let span = self.span_of(version, &job).ok_or_else(|| invalid("an input or the target is missing"))?;
        if let Some(other) = self.conflict(&span) {
            return Err(Refused::Conflict(other.number));
        }
        let target = match job.target_run {
            Target::Existing(run) => self.place_of(version, job.target_level, run),
            Target::New => Some(RunPlace { level: job.target_level, age }),
        };
        let target = target.ok_or_else(|| invalid("the target is missing"))?;
        let output = match job.target_run {
            Target::Existing(run) => OutputRun { run, age: target.age },
            Target::New => {
                let older = version.level(job.target_level).iter().map(|run| run.age);
                let built = self.running.iter().filter(|claim| claim.target.level == job.target_level);
                let newest = older.chain(built.map(|claim| claim.output.age)).max();
                if newest.is_some_and(|newest| newest >= age) {
                    return Err(invalid("the new run would not be the newest of its level"));
                }
                OutputRun { run, age }
            }
        };
        let inputs = job.uses(version).into_iter().map(|(level, run, table)| ClaimedTable {
            place: RunPlace { level, age: run.age },
            run: run.id,
            table: table.meta.id,
            range: table.range.clone(),
        });
        let inputs: Vec<_> = inputs.collect();
        let span = match job.target_run {
            Target::Existing(_) => span,
            // The place of the new run is known now: later runs of the level are newer.
            Target::New => {
                let places = || inputs.iter().map(|input| input.place).chain([target]);
                let (Some(newest), Some(oldest)) = (places().min(), places().max()) else {
                    return Err(invalid("nothing is merged"));
                };
                Span { keys: span.keys, newest, oldest }
            }
        };
        let number = self.claimed + 1;
        let claim = Claim { number, job, output, target, span, inputs, score, is_finished: false };
        claim.check(version).map_err(|why| Refused::Invalid(format!("{}: {why}", claim.job)))?;
        assert!(
            claim
                .inputs
                .iter()
                .all(|input| { claim.span.has_place(input.place) && claim.span.keys.covers(&input.range) }),
            "{}: an input lies outside the span {}",
            claim.job,
            claim.span
        );
        assert!(claim.span.has_place(claim.target), "{}: the target {target} lies outside", claim.job);
        assert!(
            self.conflict(&claim.span).is_none(),
            "{}: the span grew into that of a running job when its place became known",
            claim.job
        );
        assert!(
            self.running.iter().all(|other| other.number < number),
            "job {number} has the number of a running job"
        );
        debug_assert!(
            claim.job.target_run != Target::New || version.run(claim.output.run).is_none(),
            "{}: the new run {} exists already",
            claim.job,
            claim.output.run
        );
        self.claimed = number;
        self.running.push(claim);
        Ok(&self.running[self.running.len() - 1])
    }

    /// Records that the slices of a job up to `end`, exclusive, are installed: other jobs may use
    /// these keys. `None` means that all of them are.
    pub fn install(&mut self, number: u64, end: Option<&Bytes>) {
        let Some(claim) = self.running.iter_mut().find(|claim| claim.number == number) else { return };
        match end {
            Some(end) if claim.span.keys.is_above(end) => {
                assert!(
                    claim.span.keys.lower <= *end,
                    "slices of job {number} are installed in ascending order"
                );
                claim.span.keys.lower = end.clone();
            }
            _ => claim.is_finished = true,
        }
    }

    /// Ends a job, finished or not. What it has not installed stays as it is.
    pub fn release(&mut self, number: u64) {
        self.running.retain(|claim| claim.number != number);
    }
}
