//! Simulation of the scheduler: several jobs run at once, slice by slice, on a number of workers.
//!
//! A worker that is free takes the next slice of the running job with the highest score, or begins
//! the job that [`next_jobs`] names if its score is higher. Slices are finished in random order, as
//! by threads of different speed, and installed in the order of their job. Flushes, new designs and
//! crashes happen between installs, as in the rest of [`crate::simulate`], with the same checks.
//! Before each install the claim is checked against the tree, and after each start that no two
//! claims intersect.

use std::collections::{BTreeMap, BTreeSet};

use shamba_env::Rng;
use shamba_key::KeyspaceId;
use shamba_table::ValueFileId;

use super::{Entry, JOBS_PER_FLUSH_MAX, Simulation};
use crate::allocation::JobBits;
use crate::compaction::policy::{CompactionJob, OutputRun, Reason, Rules, debt_bytes, move_edit, pick_full};
use crate::compaction::schedule::{
    Claims, JobRequest, RequestKind, Situation, TreeSituation, Triggers, Work, next_jobs, running_score,
    victims,
};
use crate::version::{KeyRange, Version};
use shamba_key::{Age, RunId};

/// Slices of a job that are built, or being built, ahead of the first that is not installed.
const AHEAD_PER_WORKER: usize = 2;

/// Counters of a parallel simulation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ParallelReport {
    /// Jobs that began.
    pub jobs: u64,
    /// Maximum number of running jobs.
    pub jobs_at_once_max: usize,
    /// Merges of adjacent runs of level 0.
    pub l0_merges: u64,
    /// Collections of value files.
    pub collections: u64,
}

/// A job in progress.
struct Running {
    claim: u64,
    job: CompactionJob,
    output: OutputRun,
    /// The tree when the job was claimed.
    version: Version,
    bits: Option<JobBits>,
    /// The value files that it empties.
    victims: BTreeSet<ValueFileId>,
    slices: Vec<KeyRange>,
    begun: usize,
    installed: usize,
    built: BTreeMap<usize, Vec<Entry>>,
}

/// A slice that a worker builds.
struct Building {
    claim: u64,
    slice: usize,
    entries: Vec<Entry>,
}

/// Running jobs and workers.
pub struct Parallel {
    workers: usize,
    claims: Claims,
    running: Vec<Running>,
    building: Vec<Building>,
    requests: Vec<JobRequest>,
    /// Counters so far.
    pub report: ParallelReport,
}

impl Parallel {
    /// Workers without jobs.
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            claims: Claims::default(),
            running: Vec::new(),
            building: Vec::new(),
            requests: Vec::new(),
            report: ParallelReport::default(),
        }
    }

    /// Requests a full compaction.
    pub fn request_full(&mut self) {
        self.requests.push(JobRequest { kind: RequestKind::Full, passed_over: 0 });
    }

    /// Runs jobs until none is due, and checks the shape. With `is_draining`, level 0 is emptied.
    ///
    /// # Errors
    /// Description of a violation.
    pub fn run_due_jobs(&mut self, simulation: &mut Simulation, is_draining: bool) -> Result<(), String> {
        let begun = self.report.jobs;
        loop {
            while self.building.len() < self.workers && self.assign(simulation, is_draining)? {
                if self.report.jobs - begun > JOBS_PER_FLUSH_MAX {
                    return Err("the scheduler does not end".to_owned());
                }
            }
            if self.building.is_empty() {
                break;
            }
            let at = (simulation.rng.next_u64() % self.building.len() as u64) as usize;
            self.finish(simulation, at)?;
        }
        let rules = simulation.rules(is_draining);
        rules.check_shape(&simulation.version)?;
        let debt = debt_bytes(&simulation.version, &rules);
        if debt > 0 || !self.claims.is_empty() || !self.requests.is_empty() {
            return Err(format!("a debt of {debt} is left, and {:?}", self.claims));
        }
        simulation.report.history.push((simulation.version.deepest_level(), simulation.version.run_count()));
        Ok(())
    }

    /// Gives a free worker a slice, or makes a trivial move. False if there is nothing to do.
    fn assign(&mut self, simulation: &mut Simulation, is_draining: bool) -> Result<bool, String> {
        let rules = simulation.rules(is_draining);
        // A request is done when it finds nothing to do.
        self.requests.retain(|_| pick_full(&simulation.version, &rules).is_some());
        let triggers = Triggers::default();
        let situation = TreeSituation {
            keyspace: KeyspaceId(0),
            version: &simulation.version,
            rules,
            claims: &self.claims,
            requests: &self.requests,
            triggers: &triggers,
            is_automatic: true,
        };
        let next =
            next_jobs(&Situation { sealed: 0, flushing: 0, quiet_us: 0, trees: &[situation], slots: 1 });
        let ahead = self.workers * AHEAD_PER_WORKER;
        let is_open = |running: &&Running| {
            running.begun < running.slices.len() && running.begun < running.installed + ahead
        };
        let score = |running: &Running| {
            self.claims
                .get(running.claim)
                .map_or(0.0, |claim| running_score(&simulation.version, &rules, claim))
        };
        let best = self.running.iter().filter(is_open).map(|running| (score(running), running.claim));
        let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
        match next.into_iter().next() {
            Some(job) if best.is_none_or(|(score, _)| job.score > score) => {
                let Work::Compaction(_, compaction) = job.work else { return Err("a flush".to_owned()) };
                self.begin(simulation, compaction, job.score, &rules)?;
                Ok(true)
            }
            _ => match best {
                Some((_, claim)) => self.take_slice(simulation, claim).map(|()| true),
                None => Ok(false),
            },
        }
    }

    fn begin(
        &mut self,
        simulation: &mut Simulation,
        job: CompactionJob,
        score: f64,
        rules: &Rules,
    ) -> Result<(), String> {
        let fresh = (RunId(simulation.next_id()), Age(simulation.next_id()));
        let claim = self.claims.claim(&simulation.version, job, fresh, score);
        let claim = claim.map_err(|why| format!("{why}\n{}", simulation.version))?;
        let (number, job, output) = (claim.number(), claim.job().clone(), claim.output());
        let spans: Vec<_> = self.claims.iter().map(|claim| claim.span()).collect();
        for (at, span) in spans.iter().enumerate() {
            if let Some(other) = spans[..at].iter().find(|other| other.intersects(span)) {
                return Err(format!("two running jobs conflict: {other} and {span}"));
            }
        }
        self.report.jobs += 1;
        self.report.l0_merges += u64::from(job.reason == Reason::L0Runs);
        if job.reason == Reason::Manual {
            self.requests.remove(0);
        }
        self.requests.iter_mut().for_each(|request| request.passed_over += 1);
        self.report.collections += u64::from(job.reason == Reason::Values);
        let victims = victims(&simulation.version, &job, rules);
        if victims.is_empty() && job.is_trivial_move(&simulation.version) {
            simulation.report.moves += 1;
            simulation.apply(&move_edit(KeyspaceId(0), &simulation.version, &job, output))?;
            self.claims.release(number);
            return simulation.check_some_keys();
        }
        simulation.report.merges += 1;
        let bits =
            simulation.settings.rule.map(|rule| JobBits::of_compaction(rule, &simulation.version, &job));
        let slices = simulation.slices(&job);
        let version = simulation.version.clone();
        self.running.push(Running {
            claim: number,
            job,
            output,
            version,
            bits,
            victims,
            slices,
            begun: 0,
            installed: 0,
            built: BTreeMap::new(),
        });
        self.report.jobs_at_once_max = self.report.jobs_at_once_max.max(self.running.len());
        self.take_slice(simulation, number)
    }

    fn take_slice(&mut self, simulation: &Simulation, claim: u64) -> Result<(), String> {
        let running = self.running.iter_mut().find(|running| running.claim == claim).ok_or("no such job")?;
        let slice = running.begun;
        running.begun += 1;
        let entries = simulation.merge(&running.version, &running.job, &running.slices[slice])?;
        self.building.push(Building { claim, slice, entries });
        Ok(())
    }

    /// A worker finishes its slice; the finished slices of the job that are next are installed.
    fn finish(&mut self, simulation: &mut Simulation, at: usize) -> Result<(), String> {
        let Building { claim, slice, entries } = self.building.swap_remove(at);
        let at = self.running.iter().position(|running| running.claim == claim).ok_or("no such job")?;
        self.running[at].built.insert(slice, entries);
        loop {
            let running = &mut self.running[at];
            let Some(mut entries) = running.built.remove(&running.installed) else { break };
            let slice = running.slices[running.installed].clone();
            running.installed += 1;
            let is_last = running.installed == running.slices.len();
            let running = &self.running[at];
            simulation.relocate(&mut entries, &running.victims);
            let checked = self.claims.get(claim).ok_or("no such claim")?.check(&simulation.version);
            checked.map_err(|why| format!("{}: {why}\n{}", running.job, simulation.version))?;
            let bytes = entries.len() as u64 * simulation.settings.entry_bytes;
            simulation.report.merged(running.job.target_level as usize, bytes);
            let outputs = simulation.write(&entries, &slice, running.bits.as_ref());
            simulation.install(&running.job, &slice, outputs, running.output)?;
            self.claims.install(claim, slice.upper.as_ref().filter(|_| !is_last));
            simulation.check_some_keys()?;
            if is_last {
                self.claims.release(claim);
                self.running.remove(at);
            }
            if simulation.one_in(simulation.settings.crash_one_in) {
                simulation.report.crashes += 1;
                self.crash();
                break;
            }
            let has_space = simulation.version.level(0).len() < simulation.settings.l0_runs_max;
            if has_space && simulation.flushes_left > 0 && simulation.one_in(simulation.settings.flush_one_in)
            {
                let left = simulation.flushes_left - 1;
                simulation.flush()?;
                simulation.flushes_left = left;
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Drops all running jobs, with the slices that are not installed.
    fn crash(&mut self) {
        self.claims = Claims::default();
        self.running.clear();
        self.building.clear();
    }
}

#[cfg(test)]
mod tests;
