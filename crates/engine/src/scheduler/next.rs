//! The choice of the next step: a slice of a running compaction, or a compaction that begins.
//!
//! [`Picker::next_step`] describes the database as a [`Situation`], asks [`next_jobs`] for the best
//! job that could begin, and compares its score with those of the running jobs that have slices
//! left. The better one is claimed for the caller. All of it happens under the scheduler's lock, so
//! no two threads claim the same keys.
//!
//! Trees are loaded under that lock, and a claim changes only after its install is published. So a
//! tree is never older than the claims on it. Where it is newer, the claims cover more than the
//! rest of their jobs, which is safe.
//!
//! Not here: carrying a step out ([`super::execute`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Clock, Env};
use shamba_table::TableId;
use shamba_tree::compaction::policy::{
    CompactionJob, Reason, Rules, Target, could_shrink, debt_bytes, fifo_due, pick_fifo,
};
use shamba_tree::compaction::schedule::{
    Claims, JobRequest, RequestKind, Situation, TreeSituation, Triggers, Work, collection_debt_bytes,
    next_jobs, running_score, victims,
};
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::snapshot::Readers;
use shamba_tree::version::{Version, live_entries};

use super::job::{Job, Running};
use super::memory::MemoryLink;
use super::rules::{rules, rules_in};
use super::state::BackgroundState;
use super::threads::compaction_threads;
use super::triggers::triggers;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::memory::Reservation;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::telemetry::Telemetry;
use crate::writer::SealedGenerations;

/// A piece of compaction work that one thread does without waiting for another.
pub(super) enum Step {
    /// The tables of a job change runs without being rewritten.
    Move(Arc<Job>),
    /// A job that was just claimed: its slices are planned, and the first one is built.
    Begin(Arc<Job>, Reservation),
    /// The slice of this number is built.
    Slice(Arc<Job>, usize, Reservation),
    /// The job of this number ends: a new design has stopped it while no thread worked on it.
    End(u64),
}

/// A keyspace and its tree while the next step is chosen.
struct Tree {
    keyspace: Arc<KeyspaceCore>,
    version: Arc<Version>,
    rules: Rules,
    requests: Vec<JobRequest>,
    triggers: Triggers,
    /// Whether compactions begin by themselves.
    is_automatic: bool,
}

/// Chooses the next step. It has no state of its own.
pub(super) struct Picker {
    clock: Arc<dyn Clock>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    /// Threads that run compactions.
    workers: usize,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    sealed: Arc<SealedGenerations>,
    reads: Arc<Reads>,
    telemetry: Arc<Telemetry>,
    memory: Arc<MemoryLink>,
}

impl Picker {
    /// Chooses among the trees of `catalog`; `sealed` are the generations that are not in them yet.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        (catalog, sealed): (Arc<Catalog>, Arc<SealedGenerations>),
        (reads, telemetry): (Arc<Reads>, Arc<Telemetry>),
        memory: Arc<MemoryLink>,
    ) -> Self {
        let workers = compaction_threads(env.spawner.as_ref(), &settings);
        let (clock, is_inline) = (Arc::clone(&env.clock), env.spawner.is_inline());
        assert!(workers > 0, "no thread runs compactions");
        Self { clock, is_inline, workers, settings, catalog, sealed, reads, telemetry, memory }
    }

    /// The step that a free thread should do now, with all that it takes claimed; `None` if there
    /// is nothing to do, or not enough memory for it.
    pub fn next_step(&self, state: &mut BackgroundState) -> Option<Step> {
        let design = self.settings.live.get().tree.design;
        state.running.iter_mut().for_each(|running| running.check_design(&design));
        if let Some(running) = state.running.iter().find(|running| running.is_over()) {
            return Some(Step::End(running.job.number));
        }
        let rules = rules(&self.settings, state.drainers > 0);
        let now_us = self.clock.now_us();
        let trees = self.trees(state, &rules, now_us);
        self.note_due(state, &trees);
        let may_begin = |tree: &&Tree| !state.compaction_failures.is_backing_off(tree.keyspace.id, now_us);
        let ready: Vec<&Tree> = trees.iter().filter(may_begin).collect();
        let drop = ready.iter().find_map(|tree| Some((*tree, self.fifo_drop(state, tree)?)));
        if let Some((tree, job)) = drop {
            return self.begin(state, tree, job, f64::INFINITY);
        }
        let next = self.next_job(state, &ready, now_us);
        match (next, self.best_running(state, &trees)) {
            (Some((_, _, score)), Some((running, at))) if score <= running => self.take_slice(state, at),
            (Some((tree, job, score)), _) => self.begin(state, tree, job, score),
            (None, Some((_, at))) => self.take_slice(state, at),
            (None, None) => None,
        }
    }

    /// The trees now, with their requests and measurements. Requests that find nothing to do are
    /// removed.
    fn trees(&self, state: &mut BackgroundState, rules: &Rules, now_us: u64) -> Vec<Tree> {
        let keyspaces = self.catalog.keyspaces();
        // One that was dropped has nothing to compact.
        let usable = keyspaces.values().filter(|keyspace| !keyspace.is_dropped());
        let of_all =
            triggers(&self.settings, &self.reads, self.clock.as_ref(), self.compaction_ns_per_byte());
        let with_unawaited = self.memory.writes_idle();
        let trees = usable.map(|keyspace| {
            let version = Arc::clone(&keyspace.load().version);
            let rules = self.rules_in(keyspace, rules, &of_all.readers);
            let claims = state.claims.get(&keyspace.id);
            state.requests.drop_done(keyspace.id, (&version, &rules), claims);
            let requests = state.requests.waiting(keyspace.id, with_unawaited);
            let seeks_per_second = keyspace.statistics().window(now_us).seeks_per_second;
            let triggers = Triggers { seeks_per_second, ..of_all.clone() };
            self.tree(keyspace, (version, rules), requests, triggers)
        });
        trees.collect()
    }

    /// The policy's rules in a keyspace.
    fn rules_in(&self, keyspace: &KeyspaceCore, rules: &Rules, readers: &Readers) -> Rules {
        let rewrites_all = keyspace.filtering().is_some_and(|filtering| filtering.is_given());
        let fifo = keyspace.fifo().map(|fifo| fifo.rules(self.reads.expiry().now_ms()));
        // The first reader has the earliest time.
        let expired_ms = readers.time_ms(0);
        Rules { rewrites_all, expired_ms, fifo, ..rules_in(&self.settings, keyspace, rules) }
    }

    /// A tree. Without the code of its compaction filter only filter rewrites run in it.
    fn tree(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        (version, rules): (Arc<Version>, Rules),
        mut requests: Vec<JobRequest>,
        triggers: Triggers,
    ) -> Tree {
        let may_compact = keyspace.may_compact();
        if !may_compact {
            requests.retain(|request| matches!(request.kind, RequestKind::Filters { .. }));
        }
        let is_automatic = self.settings.auto_compaction && may_compact;
        Tree { keyspace: Arc::clone(keyspace), version, rules, requests, triggers, is_automatic }
    }

    /// Notes which tables of FIFO trees are due for a drop, and since when.
    fn note_due(&self, state: &mut BackgroundState, trees: &[Tree]) {
        let due = trees.iter().filter_map(|tree| Some(fifo_due(&tree.version, tree.rules.fifo.as_ref()?)));
        let tables = due.flatten();
        let mut now = None;
        let mut now = || *now.get_or_insert_with(|| self.reads.snapshots().mark());
        let mut since = |table| state.fifo_due.get(&table).copied().unwrap_or_else(&mut now);
        state.fifo_due = tables.map(|table| (table, since(table))).collect();
    }

    /// The drop of tables that may begin in a FIFO tree. A reader that began before a table was due
    /// holds up its drop.
    fn fifo_drop(&self, state: &BackgroundState, tree: &Tree) -> Option<CompactionJob> {
        let fifo = tree.rules.fifo.as_ref().filter(|_| tree.is_automatic)?;
        let mut job = pick_fifo(&tree.version, fifo)?;
        let is_held =
            |table: &TableId| self.reads.snapshots().has_reader_before(state.fifo_due.get(table).copied());
        job.inputs.iter_mut().for_each(|input| input.tables.retain(|table| !is_held(table)));
        job.inputs.retain(|input| !input.tables.is_empty());
        let none = Claims::default();
        let claims = state.claims.get(&tree.keyspace.id).unwrap_or(&none);
        let span = claims.span_of(&tree.version, &job).filter(|_| !job.inputs.is_empty())?;
        claims.conflict(&span).is_none().then_some(job)
    }

    /// Measured time for compacting a byte; 0 before the first compaction.
    fn compaction_ns_per_byte(&self) -> f64 {
        let work = self.telemetry.work();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let ns_per_byte = count(&work.compaction_us) * 1e3 / count(&work.bytes_compaction_read).max(1.0);
        debug_assert!(ns_per_byte.is_finite(), "compacting a byte takes {ns_per_byte} ns");
        ns_per_byte
    }

    /// The best job that could begin, with its tree and its score.
    fn next_job<'t>(
        &self,
        state: &BackgroundState,
        trees: &[&'t Tree],
        now_us: u64,
    ) -> Option<(&'t Tree, CompactionJob, f64)> {
        // Without threads nothing runs by itself.
        let is_quiet = !self.is_inline && state.drainers == 0 && !state.flushing;
        let quiet_us = if is_quiet { now_us.saturating_sub(state.quiet_since_us) } else { 0 };
        let found = self.choose(state, trees, quiet_us)?;
        let tree = trees.iter().copied().find(|tree| tree.keyspace.id == found.0);
        debug_assert!(tree.is_some(), "a job was chosen in keyspace {}, which has no tree", found.0);
        let tree = tree?;
        Some((tree, found.1, found.2))
    }

    fn choose(
        &self,
        state: &BackgroundState,
        trees: &[&Tree],
        quiet_us: u64,
    ) -> Option<(shamba_key::KeyspaceId, CompactionJob, f64)> {
        let none = Claims::default();
        let trees: Vec<_> = trees
            .iter()
            .map(|tree| TreeSituation {
                keyspace: tree.keyspace.id,
                version: &tree.version,
                rules: tree.rules,
                claims: state.claims.get(&tree.keyspace.id).unwrap_or(&none),
                requests: &tree.requests,
                triggers: &tree.triggers,
                is_automatic: tree.is_automatic,
            })
            .collect();
        let situation = Situation {
            sealed: self.sealed.len(),
            flushing: usize::from(state.flushing),
            quiet_us,
            trees: &trees,
            slots: 1,
        };
        next_jobs(&situation).into_iter().find_map(|next| match next.work {
            // Flushes have a thread of their own.
            Work::Flush => None,
            Work::Compaction(keyspace, job) => Some((keyspace, job, next.score)),
        })
    }

    /// The running job with the highest score of those that have a slice to take, and its position.
    fn best_running(&self, state: &BackgroundState, trees: &[Tree]) -> Option<(f64, usize)> {
        let score = |running: &Running| {
            let id = running.job.keyspace.id;
            let tree = trees.iter().find(|tree| tree.keyspace.id == id)?;
            let claim = state.claims.get(&id)?.get(running.job.claim)?;
            let score = running_score(&tree.version, &tree.rules, claim);
            debug_assert!(!score.is_nan(), "a running job has no score that can be compared");
            Some(score)
        };
        let open = state.running.iter().enumerate().filter(|(_, running)| running.is_open(self.workers));
        let scored = open.filter_map(|(at, running)| Some((score(running)?, at)));
        // The first of equals, which is the oldest.
        scored.reduce(|best, other| if other.0 > best.0 { other } else { best })
    }

    fn take_slice(&self, state: &mut BackgroundState, at: usize) -> Option<Step> {
        let running = state.running.get_mut(at)?;
        debug_assert!(running.is_open(self.workers), "a slice is taken of a job that has none to take");
        let job = Arc::clone(&running.job);
        let reservation = self.memory.reserve(job.slice_memory_bytes)?;
        Some(Step::Slice(job, running.take_slice(), reservation))
    }

    /// Claims `job` for the caller.
    fn begin(
        &self,
        state: &mut BackgroundState,
        tree: &Tree,
        job: CompactionJob,
        score: f64,
    ) -> Option<Step> {
        let Tree { keyspace, version, .. } = tree;
        debug_assert!(!score.is_nan(), "a job that begins has no score that can be compared");
        let size = self.memory.table_size(&keyspace.overrides());
        // A caller who asks for a compaction asks for the filter, and for all that can be removed.
        let shrinks = || job.uses(version).iter().any(|(_, _, table)| could_shrink(&tree.rules, table));
        let is_asked = job.reason == Reason::Manual && shrinks();
        let is_drop = job.reason == Reason::Fifo;
        let collected = if is_drop { BTreeSet::new() } else { victims(version, &job, &tree.rules) };
        let can_move = job.is_trivial_move(version) && collected.is_empty();
        let is_move = is_drop || can_move && !joins_tables(size, version, &job) && !is_asked;
        let separates =
            keyspace.overrides().value_bytes_min(&self.settings).is_some() || version.value_bytes() > 0;
        let slice_memory_bytes = self.memory.slice_bytes(size, amount(&job, version), separates);
        let reservation = if is_move { None } else { Some(self.memory.reserve(slice_memory_bytes)?) };
        let claims = state.claims.entry(keyspace.id).or_default();
        let claim = claims.claim(version, job.clone(), self.catalog.new_run(), score);
        let (claim, output) = match claim {
            Ok(claim) => (claim.number(), claim.output()),
            Err(why) => {
                // The scheduling rules name only jobs that can be claimed; nothing is lost without
                // this one.
                debug_assert!(false, "{why}");
                return None;
            }
        };
        state.jobs_begun += 1;
        let number = state.jobs_begun;
        debug_assert!(
            state.running.iter().all(|running| running.job.number < number),
            "job {number} begins after a later one"
        );
        state.requests.began(keyspace.id, &job, number);
        let since = (self.clock.now_us(), state.compaction_failures.of(keyspace.id).last);
        let job = Arc::new(Job::new(
            (number, claim),
            Arc::clone(keyspace),
            Arc::clone(version),
            job,
            output,
            self.settings.live.get().tree.design,
            (collected, slice_memory_bytes),
            since,
        ));
        state.running.push(Running::new(Arc::clone(&job)));
        Some(match reservation {
            None => Step::Move(job),
            Some(reservation) => Step::Begin(job, reservation),
        })
    }

    /// Whether nothing is left to flush or compact, level 0 included.
    pub fn is_idle(&self, state: &BackgroundState) -> bool {
        if !self.sealed.is_empty() || state.flushing || !state.running.is_empty() {
            return false;
        }
        let (rules, readers) = (rules(&self.settings, true), self.reads.readers());
        let keyspaces = self.catalog.keyspaces();
        let tree = |keyspace: &Arc<KeyspaceCore>| {
            let mut requests = state.requests.waiting(keyspace.id, false);
            requests.retain(|request| !matches!(request.kind, RequestKind::Filters { .. }));
            let version = Arc::clone(&keyspace.load().version);
            let rules = self.rules_in(keyspace, &rules, &readers);
            // Compactions that pay for themselves are not waited for.
            self.tree(keyspace, (version, rules), requests, Triggers::default())
        };
        let trees: Vec<_> = keyspaces.values().map(tree).collect();
        let is_due = |tree: &Tree| self.fifo_drop(state, tree).is_some();
        let all: Vec<&Tree> = trees.iter().collect();
        !trees.iter().any(is_due) && self.choose(state, &all, 0).is_none()
    }

    /// Bytes that flushes and compactions have to move until [`Self::is_idle`].
    pub fn debt_bytes(&self) -> u64 {
        let unflushed = self.sealed.bytes();
        let (keyspaces, rules) = (self.catalog.keyspaces(), rules(&self.settings, true));
        let unmerged = |keyspace: &Arc<KeyspaceCore>| {
            let (version, rules) = (&keyspace.load().version, rules_in(&self.settings, keyspace, &rules));
            debt_bytes(version, &rules).saturating_add(collection_debt_bytes(version, &rules))
        };
        let compacted = keyspaces.values().filter(|keyspace| keyspace.has_levels());
        unflushed + compacted.map(unmerged).sum::<u64>()
    }
}

/// Whether flushed tables that could be moved unchanged are joined into fewer ones
/// (`TableSize::joins`). Not where tables of the target run lie between them: no output may
/// span those.
fn joins_tables(size: TableSize, version: &Version, job: &CompactionJob) -> bool {
    let uses = job.uses(version);
    let hull = uses.iter().map(|(_, _, table)| table.range.clone()).reduce(|hull, range| hull.hull(&range));
    let Some(hull) = hull.filter(|_| job.reason == Reason::Level0) else { return false };
    let (bytes, entries) = uses.iter().fold((0u64, 0u64), |(bytes, entries), (_, _, table)| {
        (bytes.saturating_add(table.live_bytes), entries.saturating_add(table.meta.entries))
    });
    let is_free = match job.target_run {
        Target::New => true,
        Target::Existing(id) => version.run(id).is_none_or(|(_, run)| run.overlapping(&hull).is_empty()),
    };
    is_free && size.joins(uses.len() as u64, bytes, entries)
}

/// Input bytes and entries of a job.
pub(super) fn amount(job: &CompactionJob, version: &Version) -> (u64, u64) {
    job.uses(version).into_iter().fold((0, 0), |(bytes, entries): (u64, u64), (_, _, table)| {
        (bytes.saturating_add(table.live_bytes), entries.saturating_add(live_entries(table)))
    })
}
