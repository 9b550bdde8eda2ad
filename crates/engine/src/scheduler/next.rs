//! The choice of the next compaction, among the requests and what the policy asks for.

use std::sync::Arc;

use shamba_env::{Clock, Env};
use shamba_tree::compaction::policy::{
    CompactionJob, Reason, debt_bytes, pick, pick_filter_rewrite, pick_full,
};
use shamba_tree::compaction::schedule::{oldest_tombstone_age_ms, pick_triggered};

use super::memory::MemoryLink;
use super::rules::rules;
use super::state::BackgroundState;
use super::triggers::triggers;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::writer::SealedGenerations;

/// Level 0 is drained after this long without a flush, plus the time by [`QUIET_BYTES_PER_US`].
const QUIET_US: u64 = 1_000_000;
/// Additional wait: the time to read the compaction's inputs at this rate. It keeps every run of a
/// slow writer from causing the rewrite of a large level.
const QUIET_BYTES_PER_US: u64 = 64;

/// Maximum bytes of a filter-rewrite job of more than one table; urgent compactions wait for no
/// more than that.
const REFIT_JOB_BYTES: u64 = 16 << 20;

/// The next compaction.
pub(super) struct NextCompaction {
    pub keyspace: Arc<KeyspaceCore>,
    /// `None` if the request has nothing to do.
    pub job: Option<CompactionJob>,
    pub asked: Option<Asked>,
}

/// The request for a compaction that the policy does not ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// `compact` waits for it.
    Whole,
    /// It is part of the filter rewrite with this number.
    FilterRewrite(u64),
}

/// Chooses the next compaction. It has no state of its own.
pub(super) struct Picker {
    clock: Arc<dyn Clock>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    reads: Arc<Reads>,
    sealed: Arc<SealedGenerations>,
    memory: Arc<MemoryLink>,
}

impl Picker {
    /// Chooses among the trees of `catalog`, which `reads` reads; `sealed` are the generations that
    /// are not in them yet.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        (catalog, reads): (Arc<Catalog>, Arc<Reads>),
        sealed: Arc<SealedGenerations>,
        memory: Arc<MemoryLink>,
    ) -> Self {
        let (clock, is_inline) = (Arc::clone(&env.clock), env.spawner.is_inline());
        Self { clock, is_inline, settings, catalog, reads, sealed, memory }
    }

    /// The next compaction, in this order: requests by `compact`; the keyspace with the most runs
    /// in level 0; tombstones that are too old or that scans have passed too often; and, after a
    /// while without writes, what level 0 still holds. A filter rewrite
    /// that a caller waits for alternates with all these. One without a waiter runs when nothing
    /// else is due.
    pub fn next_compaction(&self, state: &BackgroundState) -> Option<NextCompaction> {
        let is_draining = state.drainers > 0;
        let awaited = || self.next_refit(state, true);
        let first = if state.last_was_filter_rewrite { None } else { awaited() };
        first
            .or_else(|| self.next_compaction_by(state, is_draining))
            .or_else(awaited)
            .or_else(|| self.next_triggered())
            .or_else(|| {
                // Without threads nothing runs by itself.
                let may_drain = !self.is_inline && self.sealed.is_empty() && !state.flushing;
                let next =
                    (may_drain && !is_draining).then(|| self.next_compaction_by(state, true)).flatten()?;
                let bytes = next.job.as_ref().map_or(0, |job| job.input_bytes(&next.keyspace.load().version));
                let quiet_us = self.clock.now_us().saturating_sub(state.quiet_since_us);
                (quiet_us >= QUIET_US + bytes / QUIET_BYTES_PER_US).then_some(next)
            })
            .or_else(|| {
                let rests = self.memory.writes_idle();
                rests.then(|| self.next_refit(state, false)).flatten()
            })
    }

    /// The compaction of tombstones that are too old or were passed too often, in the keyspace
    /// where they are the oldest.
    fn next_triggered(&self) -> Option<NextCompaction> {
        if !self.settings.auto_compaction {
            return None;
        }
        let (rules, triggers) =
            (rules(&self.settings, false), triggers(&self.settings, &self.reads, self.clock.as_ref()));
        let jobs = self.catalog.keyspaces();
        let jobs = jobs.values().filter_map(|keyspace| {
            let version = Arc::clone(&keyspace.load().version);
            let job = pick_triggered(&version, &rules, &triggers)?;
            Some((oldest_tombstone_age_ms(&version, triggers.now_ms), Arc::clone(keyspace), job))
        });
        let next = jobs.max_by_key(|(age_ms, ..)| *age_ms);
        next.map(|(_, keyspace, job)| NextCompaction { keyspace, job: Some(job), asked: None })
    }

    /// The next job of the first filter rewrite that has, or has not, a waiter.
    fn next_refit(&self, state: &BackgroundState, has_waiter: bool) -> Option<NextCompaction> {
        let filter_rewrite =
            state.filter_rewrites.iter().find(|filter_rewrite| filter_rewrite.has_waiter == has_waiter)?;
        let keyspaces = self.catalog.keyspaces();
        let keyspace = keyspaces.get(&filter_rewrite.keyspace)?;
        let job = pick_filter_rewrite(&keyspace.load().version, &filter_rewrite.tables, REFIT_JOB_BYTES);
        Some(NextCompaction {
            keyspace: Arc::clone(keyspace),
            job,
            asked: Some(Asked::FilterRewrite(filter_rewrite.number)),
        })
    }

    fn next_compaction_by(&self, state: &BackgroundState, is_draining: bool) -> Option<NextCompaction> {
        let rules = rules(&self.settings, is_draining);
        let keyspaces = self.catalog.keyspaces();
        for id in &state.full_compactions {
            if let Some(keyspace) = keyspaces.get(id) {
                let job = pick_full(&keyspace.load().version, &rules);
                return Some(NextCompaction {
                    keyspace: Arc::clone(keyspace),
                    job,
                    asked: Some(Asked::Whole),
                });
            }
        }
        if !self.settings.auto_compaction {
            return None;
        }
        let jobs = keyspaces.values().filter_map(|keyspace| {
            let view = keyspace.load();
            let job = pick(&view.version, &keyspace.turns(rules))?;
            // Small tables wait until no tree needs another compaction.
            let urgency = (job.reason != Reason::SmallTables, view.version.level(0).len());
            Some((urgency, Arc::clone(keyspace), job))
        });
        let next = jobs.max_by_key(|(urgency, ..)| *urgency);
        next.map(|(_, keyspace, job)| NextCompaction { keyspace, job: Some(job), asked: None })
    }

    /// Whether nothing is left to flush or compact, level 0 included.
    pub fn is_idle(&self, state: &BackgroundState) -> bool {
        self.sealed.is_empty()
            && !state.flushing
            && !state.merging
            && self.next_compaction_by(state, true).is_none()
    }

    /// Bytes that flushes and compactions have to move until [`Self::is_idle`].
    pub fn debt_bytes(&self) -> u64 {
        let unflushed = self.sealed.bytes();
        let (keyspaces, rules) = (self.catalog.keyspaces(), rules(&self.settings, true));
        let unmerged = |keyspace: &Arc<KeyspaceCore>| debt_bytes(&keyspace.load().version, &rules);
        unflushed + keyspaces.values().map(unmerged).sum::<u64>()
    }
}
