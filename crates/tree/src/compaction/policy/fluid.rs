//! The fluid LSM: when a level must give way, and where what leaves it arrives.
//!
//! Level i >= 1 holds at most `C_i` bytes ([`Rules::capacities`]) in at most `K_i` runs: K on inner
//! levels, Z on the last. A level with `K_i = 1` is *leveled*, one with more is *tiered*. Leveling, tiering
//! and lazy leveling are values of (K, Z); the rules below know no names.
//!
//! [`pick`] looks from the deepest level up, so that there is room below before more arrives:
//! (a) a leveled level over `C_i` gives the file that is cheapest to move ([`super::score`]) to level i + 1,
//!     until it fits. The last level of a tree whose inner levels are tiered goes down whole instead, and
//!     without being rewritten, since nothing is there: lazy leveling grows by a level so.
//! (b) a tiered level over `C_i`, or with more than `K_i` runs, goes to level i + 1 as a whole. A leveled one with more
//!     than one run, which only a change of the design leaves, is merged in place.
//! (c) an inbox that is due ([`super::rules`]) goes to level 1, or past closed levels to the first open one, all of
//!     it; if it is *crowded*, before (a) and (b), since writers wait for it, but in turns with levels that have
//!     outgrown their bounds twice or have too many runs ([`super::turns`]).
//! A closed level (`C_i` = 0, only with `Auto`) is over its capacity by all that it holds, and what arrives on it
//! passes on, together with that.
//!
//! What arrives on level i joins the run of a leveled level, whatever the size: (a) follows. On a tiered
//! level it joins the *active* (newest) run while that stays within `C_i / K_i`, else it becomes a run,
//! else, when the level would exceed `C_i` or have `K_i + 1` runs, the whole level goes along and all of it
//! arrives on level i + 1: one merge, however many levels it passes. A tree that does not grow has newer versions of old keys on
//! its tiered last level, and with `Auto` that has far more room than it needs: there nothing joins a run that is much
//! larger, and the runs are merged where they are while the level stays half empty. Where that would be a long one, what arrives becomes
//! a run beyond the bounds instead, and (b) takes the level down by itself: what is flushed meanwhile can be merged onto
//! the levels above ([`super::beside`]).
//!
//! (d) where nothing else is to be done, small adjacent tables of a run are merged where they are ([`super::small`]).
//!
//! Every job moves bytes down or makes runs or tables fewer, and what arrives on an empty level beyond the last fits
//! there or passes on to one `T` times larger: so a tree at rest is reached from any tree.
//!
//! Not here: when the inbox is due ([`super::rules`]), cutting jobs into slices ([`super::slices`]).

use std::collections::HashSet;
use std::sync::Arc;

use shamba_model::{Capacities, MAX_LEVELS, Sizing};
use shamba_table::TableId;

use super::job::{MergeInput, MergeJob, Reason, Target};
use super::rules::Rules;
use super::score;
use super::small::pick_small;
use crate::version::{KeyRange, Run, TableUse, Version};

/// A level that holds so many times what it may has *outgrown* its bounds.
const OUTGROWN_TIMES: u64 = 2;
/// A last level that may hold so many times what it does has room for its runs merged.
const ROOMY_TIMES: u64 = 2;
/// What arrives on a last level of many runs joins the active one only if that is at most so many times as large.
const JOINS_TIMES: u64 = 2;

/// The next merge that the rules ask for; `None` when the tree has the shape that it should have.
pub fn pick(version: &Version, rules: &Rules) -> Option<MergeJob> {
    let capacities = rules.capacities(version);
    Down { version, rules, capacities: &capacities, deepest: version.deepest_level() }.pick()
}

/// The merge that takes the inbox down, whatever else there is to do. The inbox must hold something.
pub fn pick_inbox(version: &Version, rules: &Rules) -> MergeJob {
    let capacities = rules.capacities(version);
    Down { version, rules, capacities: &capacities, deepest: version.deepest_level() }.inbox()
}

/// About how many bytes the policy would still have to move: 0 exactly when [`pick`] finds nothing.
pub fn debt_bytes(version: &Version, rules: &Rules) -> u64 {
    let deepest = version.deepest_level();
    let capacities = rules.capacities(version);
    let inbox_bytes =
        if rules.is_inbox_due(version, &capacities) { version.level_bytes(0).max(1) } else { 0 };
    let arrival_level = rules.arrival_level(version, &capacities);
    let mut debt = inbox_bytes;
    // What leaves a level arrives on the next one and may push as much out of that.
    let mut arriving = 0u64;
    for level in 1..=deepest {
        if level == arrival_level {
            arriving = arriving.saturating_add(inbox_bytes);
        }
        let bytes = version.level_bytes(level);
        let allowed = rules.design.runs_allowed(level, deepest) as usize;
        let held = bytes.saturating_add(arriving);
        arriving = if version.level(level).len() > allowed {
            held.max(1)
        } else {
            held.saturating_sub(capacities.level_bytes(level))
        };
        debt = debt.saturating_add(arriving);
    }
    match pick_small(version, rules) {
        Some(job) if debt == 0 => job.input_bytes(version).max(1),
        _ => debt,
    }
}

/// A tree, or the upper part of one, and what it is held to.
pub(super) struct Down<'v> {
    pub version: &'v Version,
    pub rules: &'v Rules,
    pub capacities: &'v Capacities,
    /// The last level of the whole tree.
    pub deepest: u32,
}

impl Down<'_> {
    /// The next merge that the rules ask for.
    pub fn pick(&self) -> Option<MergeJob> {
        let Self { version, rules, capacities, .. } = *self;
        if rules.is_inbox_crowded(version) {
            return self.relieve_outgrown().or_else(|| Some(self.inbox()));
        }
        (1..=version.deepest_level())
            .rev()
            .find_map(|level| self.relieve(level))
            .or_else(|| rules.is_inbox_due(version, capacities).then(|| self.inbox()))
            .or_else(|| pick_small(version, rules))
    }

    /// The job that takes the inbox down.
    pub fn inbox(&self) -> MergeJob {
        let mut arrival = Arrival::default();
        arrival.add_level(self.version, 0);
        arrival.at(self, self.rules.arrival_level(self.version, self.capacities), Reason::Inbox)
    }

    /// The job for a level that is so far beyond its bounds that merging the inbox past it costs too much, or has too many runs: one that
    /// rewrites nothing, or that of the deepest one if anything is owed. A tree that gets another level has T times what it may on
    /// the one above the last at once; all that moves down for free. What a closed level holds the inbox takes along.
    fn relieve_outgrown(&self) -> Option<MergeJob> {
        let Self { version, rules, capacities, deepest } = *self;
        let is_outgrown = |level: &u32| {
            let most = capacities.level_bytes(*level).saturating_mul(OUTGROWN_TIMES);
            let runs_allowed = rules.design.runs_allowed(*level, deepest) as usize;
            let is_over = version.level_bytes(*level) > most || version.level(*level).len() > runs_allowed;
            is_over && !capacities.is_closed(*level)
        };
        let jobs = || (1..=deepest).rev().filter(is_outgrown).filter_map(|level| self.relieve(level));
        let free = jobs().find(|job| job.is_trivial_move(version));
        free.or_else(|| jobs().next().filter(|_| rules.owed_bytes > 0))
    }

    /// Whether `level`, merged with `arriving_bytes`, stays where it is: the last level of a tree that does not grow fills with
    /// what newer runs have made obsolete, and would go a level down each time it is merged.
    fn stays(&self, level: u32, arriving_bytes: u64) -> bool {
        let bytes = self.version.level_bytes(level).saturating_add(arriving_bytes);
        let capacity = self.capacities.level_bytes(level);
        self.rules.sizing == Sizing::Auto && level == self.deepest && bytes <= capacity / ROOMY_TIMES
    }

    /// The job that brings `level` (1 or deeper) back within its bounds.
    fn relieve(&self, level: u32) -> Option<MergeJob> {
        let Self { version, rules, capacities, deepest } = *self;
        let runs = version.level(level);
        let oldest = runs.last()?;
        let is_over = version.level_bytes(level) > capacities.level_bytes(level);
        let allowed = rules.design.runs_allowed(level, deepest) as usize;
        let has_too_many = runs.len() > allowed;
        if !is_over && !has_too_many {
            return None;
        }
        let reason = if has_too_many { Reason::Runs { level } } else { Reason::Overflow { level } };
        let mut arrival = Arrival::default();
        if has_too_many && (allowed == 1 || level >= MAX_LEVELS || self.stays(level, 0)) {
            let newer = runs.iter().filter(|run| run.id != oldest.id);
            newer.for_each(|run| arrival.add(level, run, run.tables()));
            return Some(arrival.into(Some(oldest), level, reason));
        }
        let whole = || {
            let mut arrival = Arrival::default();
            arrival.add_level(version, level);
            arrival.at(self, level + 1, reason)
        };
        if allowed > 1 || (level == deepest && rules.design.inner_runs > 1) {
            return Some(whole());
        }
        // A level that gets another number, or closes, goes at once if nothing of it has to be rewritten.
        if rules.sizing == Sizing::Auto && (level == deepest || capacities.is_closed(level)) {
            let job = whole();
            if job.is_trivial_move(version) {
                return Some(job);
            }
        }
        arrival.add(level, oldest, [score::cheapest(oldest, version.level(level + 1))?]);
        Some(arrival.at(self, level + 1, reason))
    }
}

/// Tables on their way down.
#[derive(Default)]
struct Arrival {
    inputs: Vec<MergeInput>,
    ranges: Vec<KeyRange>,
    bytes: u64,
}

impl Arrival {
    fn add_level(&mut self, version: &Version, level: u32) {
        for run in version.level(level) {
            self.add(level, run, run.tables());
        }
    }

    fn add<'v>(&mut self, level: u32, run: &Run, tables: impl IntoIterator<Item = &'v TableUse>) {
        let mut ids = Vec::new();
        for table in tables {
            ids.push(table.meta.id);
            self.ranges.push(table.range.clone());
            self.bytes = self.bytes.saturating_add(table.live_bytes);
        }
        self.inputs.push(MergeInput { level, run: run.id, tables: ids });
    }

    /// The job that brings the tables to `level`, or deeper.
    fn at(mut self, down: &Down<'_>, mut level: u32, reason: Reason) -> MergeJob {
        let version = down.version;
        loop {
            // A level beyond the deepest one becomes the last by what arrives there.
            let allowed = down.rules.design.runs_allowed(level, down.deepest);
            let runs = version.level(level);
            let (active, capacity) = (runs.first(), down.capacities.level_bytes(level));
            let target = if capacity == 0 {
                None
            } else if allowed <= 1 {
                Some(active)
            } else if version.level_bytes(level).saturating_add(self.bytes) > capacity {
                None
            } else {
                let room = capacity / u64::from(allowed);
                let is_last = down.rules.sizing == Sizing::Auto && level >= down.deepest;
                let joined_most = if is_last { self.bytes.saturating_mul(JOINS_TIMES) } else { room };
                let joins = |run: &&Arc<Run>| {
                    run.bytes().saturating_add(self.bytes) <= room && run.bytes() <= joined_most
                };
                match active.filter(joins) {
                    Some(run) => Some(Some(run)),
                    None => (runs.len() < allowed as usize).then_some(None),
                }
            };
            match target {
                Some(run) => return self.into(run, level, reason),
                // No level is deeper: its capacity is beyond what a file system can hold.
                None if level >= MAX_LEVELS => return self.into(None, level, reason),
                None if self.waits_for(down, level) => {
                    return down.relieve(level).unwrap_or_else(|| self.into(None, level, reason));
                }
                None => {
                    let oldest = runs.last().filter(|_| allowed > 1 && down.stays(level, self.bytes));
                    for run in runs.iter().filter(|run| oldest.is_none_or(|oldest| run.id != oldest.id)) {
                        self.add(level, run, run.tables());
                    }
                    if oldest.is_some() {
                        return self.into(oldest, level, reason);
                    }
                }
            }
            level += 1;
        }
    }

    /// Whether the tables and all of `level`, which has no room for them, would be a long merge. Then that is done
    /// without them: they become one run more of a level that is still within its bounds, and it goes down after that.
    fn waits_for(&self, down: &Down<'_>, level: u32) -> bool {
        let bytes = down.version.level_bytes(level);
        bytes > 0 && bytes.saturating_add(self.bytes) >= down.rules.long_bytes
    }

    /// The job that merges the tables into `run`, or makes a run of them.
    fn into(mut self, run: Option<&Arc<Run>>, target_level: u32, reason: Reason) -> MergeJob {
        let Some(run) = run else {
            return MergeJob { inputs: self.inputs, target_level, target_run: Target::New, reason };
        };
        // Not all of the run, also where that would be right: a merge that crashes after each slice must begin
        // where the last one ended, and what the inputs no longer share keys with is done.
        let shared: HashSet<TableId> =
            self.ranges.iter().flat_map(|range| run.overlapping(range)).map(|table| table.meta.id).collect();
        let tables: Vec<_> =
            run.tables().iter().map(|table| table.meta.id).filter(|id| shared.contains(id)).collect();
        if !tables.is_empty() {
            self.inputs.push(MergeInput { level: target_level, run: run.id, tables });
        }
        MergeJob { inputs: self.inputs, target_level, target_run: Target::Existing(run.id), reason }
    }
}
