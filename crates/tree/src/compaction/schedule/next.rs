//! The choice of the jobs that begin next.
//!
//! [`next_jobs`] answers for one database: flushes first, then the jobs of all keyspaces by score.
//!
//! 1. The tree is projected to the end of the running jobs. So a level that is being relieved
//!    counts as relieved, and another job may relieve it further at the same time.
//! 2. Every level that is due has a candidate: the policy's job for it, with the score of
//!    [`super::score`]. Requests (full compactions, filter rewrites) are candidates too, with a
//!    score that grows with every job that passed them over. Trivial moves cost nothing and go
//!    before everything else.
//! 3. The best candidate begins if it conflicts with no running job. If it conflicts, its span is
//!    reserved: no candidate with a lower score may take a part of it, so it is not starved by
//!    smaller jobs. A candidate that needs what a running job will only produce waits in the same
//!    way.
//! 4. A level 0 with many runs whose own job is blocked gets a merge of its newest runs instead
//!    (`adjacent`), if that is short compared with the job in the way.
//!
//! No job waits for another one while it runs. With several slots the steps repeat, each time with
//! the chosen job among the running ones.
//!
//! Not here: how many threads there are, and slices in progress (package `shamba`).

use std::collections::BTreeSet;

use shamba_key::{Age, KeyspaceId, RunId};
use shamba_table::TableId;

use super::adjacent::merge_adjacent;
use super::claims::{Claim, Claims};
use super::collect::due;
use super::place::{RunPlace, Span};
use super::range::RangeRequest;
use super::score::{job_score, raw_score};
use super::triggered::{Triggers, triggered};
use crate::compaction::policy::{
    CompactionJob, Down, FifoRules, OutputRun, Reason, Rules, Target, fifo_bytes, pick_filter_rewrite,
    pick_full, pick_small,
};
use crate::compaction::projection::Projection;
use crate::version::{Run, Version};

/// Score of a job that is worth doing only when nothing else is due.
const IDLE_SCORE: f64 = 0.1;
/// Score of a request that no job has passed over: that of a level at its bounds.
const REQUEST_SCORE: f64 = 1.0;
/// Level-0 runs are merged with each other only if the job in the way still has to read this many
/// times their bytes.
const BLOCKED_RATIO_MIN: u64 = 2;

/// Level 0 is drained after this long without a flush, plus the time by [`QUIET_BYTES_PER_US`].
const QUIET_US: u64 = 1_000_000;
/// Additional wait: the time to read the inputs at this rate. It keeps every run of a slow writer
/// from causing the rewrite of a large level.
const QUIET_BYTES_PER_US: u64 = 64;

/// The state in which the scheduler chooses.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Sealed generations of memtables that are not in tables, the running flush's included.
    pub sealed: usize,
    /// Flushes that are running. They are installed in order, so one runs at a time.
    pub flushing: usize,
    /// Time since the last flush, in microseconds.
    pub quiet_us: u64,
    /// The keyspaces.
    pub trees: &'a [TreeSituation<'a>],
    /// Maximum number of compactions to choose.
    pub slots: usize,
}

/// One keyspace.
#[derive(Clone, Copy, Debug)]
pub struct TreeSituation<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Its tree now.
    pub version: &'a Version,
    /// Its design and bounds.
    pub rules: Rules,
    /// Its running jobs.
    pub claims: &'a Claims,
    /// Requests of callers and of the engine, oldest first.
    pub requests: &'a [JobRequest],
    /// Reads and tombstones that compactions may pay for.
    pub triggers: &'a Triggers,
    /// Whether compactions begin without a request.
    pub is_automatic: bool,
}

/// A job that the shape of the tree does not ask for.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// Its kind.
    pub kind: RequestKind,
    /// Jobs of this database that began since the request was made. Its score grows with them, so
    /// it is not starved by levels that are always due.
    pub passed_over: u32,
}

/// Kinds of [`JobRequest`].
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// Everything becomes one run: a caller waits.
    Full,
    /// A range of keys is compacted: a caller waits.
    Range(RangeRequest),
    /// The filters of these tables get other bits.
    Filters {
        /// The tables.
        tables: BTreeSet<TableId>,
        /// Maximum bytes of a job of more than one table.
        job_bytes: u64,
        /// Whether a caller waits. If not, it runs when nothing else is due.
        is_awaited: bool,
    },
}

/// Work that can begin.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// The oldest sealed generation is flushed.
    Flush,
    /// A compaction of a keyspace.
    Compaction(KeyspaceId, CompactionJob),
}

/// A job that may begin now.
#[derive(Clone, PartialEq, Debug)]
pub struct NextJob {
    /// The work.
    pub work: Work,
    /// Its priority: larger first.
    pub score: f64,
}

/// The jobs to begin now, the most urgent first. Together with the running ones they have no
/// conflicts; claim them in this order.
pub fn next_jobs(situation: &Situation<'_>) -> Vec<NextJob> {
    let mut jobs = Vec::new();
    if situation.flushing == 0 && situation.sealed > 0 {
        jobs.push(NextJob { work: Work::Flush, score: f64::INFINITY });
    }
    let quiet_us = if situation.sealed == 0 { situation.quiet_us } else { 0 };
    let mut outlooks: Vec<_> =
        situation.trees.iter().filter_map(|tree| Outlook::of(tree, quiet_us).ok()).collect();
    let mut best: Vec<_> = outlooks.iter().map(Outlook::best).collect();
    for _ in 0..situation.slots {
        let score = |at: &usize| best[*at].as_ref().map_or(0.0, |candidate| candidate.score);
        // The first of equals, so that the answer does not depend on anything but the situation.
        let Some(at) = (0..best.len())
            .filter(|at| best[*at].is_some())
            .reduce(|one, other| if score(&other) > score(&one) { other } else { one })
        else {
            break;
        };
        let Some(DueJob { job, score }) = best[at].take() else { break };
        let keyspace = outlooks[at].tree.keyspace;
        best[at] = outlooks[at].begin(&job, score).ok().and_then(|()| outlooks[at].best());
        debug_assert!(score >= 0.0, "{job} begins with a score of {score}");
        jobs.push(NextJob { work: Work::Compaction(keyspace, job), score });
    }
    assert!(
        jobs.len() <= situation.slots.saturating_add(1),
        "{} jobs for a flush and {} slots",
        jobs.len(),
        situation.slots
    );
    jobs
}

/// Score of a running job now, by which its next slice competes with jobs that could begin. A job
/// that relieves a level has the score of that level as it is, without projection: it rises while
/// more arrives there, and falls as the job proceeds.
pub fn running_score(version: &Version, rules: &Rules, claim: &Claim) -> f64 {
    let from = match claim.job().reason {
        Reason::Level0 => 0,
        Reason::Overflow { level } | Reason::Runs { level } => level,
        Reason::Manual
        | Reason::Filters
        | Reason::SmallTables
        | Reason::L0Runs
        | Reason::Reads
        | Reason::Tombstones
        | Reason::Range
        | Reason::Expired
        | Reason::Fifo
        | Reason::Values => return claim.score(),
    };
    let capacities = rules.capacities(version);
    let to = claim.job().target_level;
    let raw = |level| raw_score(version, rules, &capacities, level);
    job_score(raw(from), if to == from { 0.0 } else { raw(to) })
}

/// A job that could begin, if nothing is in its way.
#[derive(Clone, Debug)]
struct DueJob {
    job: CompactionJob,
    score: f64,
}

/// A keyspace, and its tree as the running and the chosen jobs will leave it.
struct Outlook<'a> {
    tree: &'a TreeSituation<'a>,
    quiet_us: u64,
    /// The claims, those of the chosen jobs included.
    claims: Claims,
    projection: Projection,
    /// Requests whose job was chosen.
    chosen_requests: usize,
}

impl<'a> Outlook<'a> {
    /// Projects the running jobs.
    fn of(tree: &'a TreeSituation<'a>, quiet_us: u64) -> Result<Self, String> {
        let mut projection = Projection::of(tree.version);
        for claim in tree.claims.iter() {
            let OutputRun { run, age } = claim.output();
            projection.last_id = projection.last_id.max(run.0).max(age.0);
        }
        for claim in tree.claims.iter() {
            projection.carry_out_into(claim.job(), claim.output(), table_bytes(tree.version, claim.job()))?;
        }
        Ok(Self { tree, quiet_us, claims: tree.claims.clone(), projection, chosen_requests: 0 })
    }

    /// Counts `job` as running.
    fn begin(&mut self, job: &CompactionJob, score: f64) -> Result<(), String> {
        let version = self.tree.version;
        let fresh = self.projection.last_id + 1;
        self.projection.last_id = fresh;
        let table_bytes = table_bytes(version, job);
        let claim = self.claims.claim(version, job.clone(), (RunId(fresh), Age(fresh)), score);
        let output = claim.map_err(|why| why.to_string())?.output();
        self.projection.carry_out_into(job, output, table_bytes)?;
        self.chosen_requests += usize::from(job.reason == Reason::Manual);
        debug_assert!(
            self.chosen_requests <= self.tree.requests.len(),
            "{} jobs for {} requests",
            self.chosen_requests,
            self.tree.requests.len()
        );
        Ok(())
    }

    /// The best candidate that may begin now.
    fn best(&self) -> Option<DueJob> {
        let mut candidates = self.candidates();
        // A stable sort: of equals, the deeper level goes first, to make space for the others.
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut reserved: Vec<Span> = Vec::new();
        for candidate in candidates {
            match self.span_now(&candidate.job) {
                Some(span) if self.claims.conflict(&span).is_none() => {
                    if !reserved.iter().any(|other| other.intersects(&span)) {
                        debug_assert!(
                            !candidate.job.inputs.is_empty(),
                            "a job without inputs may begin: {}",
                            candidate.job
                        );
                        return Some(candidate);
                    }
                }
                now => {
                    if candidate.job.reason == Reason::Level0 {
                        if let Some(merge) = self.merge_l0(&candidate, now.as_ref(), &reserved) {
                            return Some(merge);
                        }
                    }
                    // A collection spans all keys. Level 0 does not wait for one that has to wait.
                    if candidate.job.reason != Reason::Values || !self.is_l0_due() {
                        let later = || self.claims.span_of(&self.projection.version, &candidate.job);
                        reserved.extend(now.or_else(later));
                    }
                }
            }
        }
        None
    }

    fn is_l0_due(&self) -> bool {
        let (version, rules) = (&self.projection.version, &self.tree.rules);
        rules.is_l0_due(version, &rules.capacities(version))
    }

    /// The span of a job in the tree of now; `None` if the job needs something that does not exist
    /// yet.
    fn span_now(&self, job: &CompactionJob) -> Option<Span> {
        if let Target::Existing(run) = job.target_run {
            let is_chosen =
                |claim: &Claim| claim.output().run == run && self.tree.claims.get(claim.number()).is_none();
            if self.tree.version.run(run).is_none() && self.claims.iter().any(is_chosen) {
                // The run of a job that was chosen in this call: its number is not known yet.
                return None;
            }
        }
        self.claims.span_of(self.tree.version, job)
    }

    /// The jobs of all levels beyond their bounds, and of all requests. Deeper levels come first.
    fn candidates(&self) -> Vec<DueJob> {
        let (version, rules) = (&self.projection.version, &self.tree.rules);
        let capacities = rules.capacities(version);
        let deepest = version.deepest_level();
        let down = Down { version, rules, capacities: &capacities, deepest };
        let raw = |level| raw_score(version, rules, &capacities, level);
        let mut found = Vec::new();
        if let (Some(fifo), true) = (&rules.fifo, self.tree.is_automatic) {
            found.extend(self.merge_fifo(fifo));
        } else if self.tree.is_automatic {
            for level in (1..=deepest).rev() {
                let Some(job) = down.relieve(level) else { continue };
                let to = if job.target_level == level { 0.0 } else { raw(job.target_level) };
                let score =
                    if job.is_trivial_move(version) { f64::INFINITY } else { job_score(raw(level), to) };
                found.push(DueJob { job, score });
            }
            let is_quiet = |job: &CompactionJob| {
                let bytes = job.input_bytes(version);
                self.quiet_us >= QUIET_US.saturating_add(bytes / QUIET_BYTES_PER_US)
            };
            if rules.is_l0_due(version, &capacities) {
                let job = down.l0();
                let score = job_score(raw(0), raw(job.target_level));
                found.push(DueJob { job, score });
            } else if !version.level(0).is_empty() && self.quiet_us > 0 {
                let job = Some(down.l0()).filter(is_quiet);
                found.extend(job.map(|job| DueJob { job, score: IDLE_SCORE }));
            }
            // None concurrent with a job into the last run, which collects too: its projection
            // keeps the values that it leaves behind.
            let last = version.level(deepest).last().map(|run| Target::Existing(run.id));
            let collects = |job: &CompactionJob| {
                job.reason == Reason::Values || last.is_some_and(|last| job.target_run == last)
            };
            if !self.claims.iter().any(|claim| collects(claim.job())) {
                found.extend(due(&down).map(|(job, score)| DueJob { job, score }));
            }
            let triggered = triggered(&down, self.tree.triggers);
            found.extend(triggered.into_iter().map(|(job, score)| DueJob { job, score }));
            if found.is_empty() {
                let job = pick_small(version, rules);
                found.extend(job.map(|job| DueJob { job, score: IDLE_SCORE }));
            }
        }
        found.extend(self.requested());
        found
    }

    fn requested(&self) -> impl Iterator<Item = DueJob> + '_ {
        let mut full = 0;
        self.tree.requests.iter().filter_map(move |request| {
            let version = &self.projection.version;
            let awaited = REQUEST_SCORE + f64::from(request.passed_over);
            let (job, score) = match &request.kind {
                RequestKind::Full => {
                    full += 1;
                    let is_chosen = full <= self.chosen_requests;
                    // One compaction serves one request; a later one may want newer tables too.
                    let job = if is_chosen { None } else { pick_full(self.tree.version, &self.tree.rules) };
                    (job, awaited)
                }
                RequestKind::Range(range) => (range.pick(version, &self.tree.rules), awaited),
                RequestKind::Filters { tables, job_bytes, is_awaited } => {
                    let job = pick_filter_rewrite(version, tables, *job_bytes);
                    (job, if *is_awaited { awaited } else { IDLE_SCORE })
                }
            };
            job.map(|job| DueJob { job, score })
        })
    }

    /// The merge of the newest runs of a FIFO tree, which bounds their number.
    fn merge_fifo(&self, fifo: &FifoRules) -> Option<DueJob> {
        let (version, rules) = (self.tree.version, &self.tree.rules);
        let may_merge = |age| version.level(0).iter().any(|run| run.age == age && fifo.may_merge(run));
        let is_free = |place: RunPlace| {
            may_merge(place.age) && !self.claims.iter().any(|claim| claim.span().has_place(place))
        };
        let job = merge_adjacent(version, is_free, fifo_bytes, fifo.merged_bytes(rules.long_bytes))?;
        Some(DueJob { job, score: REQUEST_SCORE })
    }

    /// The merge of the newest runs of level 0 whose job is blocked.
    fn merge_l0(&self, blocked: &DueJob, span: Option<&Span>, reserved: &[Span]) -> Option<DueJob> {
        let (version, rules) = (self.tree.version, &self.tree.rules);
        if !rules.is_l0_urgent(version) {
            return None;
        }
        let is_free = |place| !self.claims.iter().any(|claim| claim.span().has_place(place));
        let job = merge_adjacent(version, is_free, Run::bytes, rules.long_bytes)?;
        let later = || self.claims.span_of(&self.projection.version, &blocked.job);
        let blocked_span = span.cloned().or_else(later)?;
        let in_the_way = self.claims.iter().filter(|claim| claim.span().intersects(&blocked_span));
        let rest_bytes = in_the_way.fold(0u64, |sum, claim| sum.saturating_add(claim.rest_bytes(version)));
        let merged = self.claims.span_of(version, &job)?;
        let is_allowed = self.claims.conflict(&merged).is_none()
            && !reserved.iter().any(|other| other.intersects(&merged))
            && rest_bytes >= job.input_bytes(version).saturating_mul(BLOCKED_RATIO_MIN);
        is_allowed.then_some(DueJob { job, score: blocked.score })
    }
}

/// Size of a projected output table: that of the largest input.
fn table_bytes(version: &Version, job: &CompactionJob) -> u64 {
    job.uses(version).iter().map(|(_, _, table)| table.live_bytes).max().unwrap_or(1)
}
