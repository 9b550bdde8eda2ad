//! The fluid LSM policy: which level is over its bounds, and which level and run its tables move
//! to.
//!
//! Level i >= 1 holds at most `C_i` bytes ([`Rules::capacities`]) in at most `K_i` runs: K on inner
//! levels, Z on the last. A level with `K_i = 1` is *leveled*, one with more is *tiered*. Leveling,
//! tiering and lazy leveling are values of (K, Z); the rules below do not distinguish them by name.
//!
//! [`pick`] examines levels from the deepest up, so that there is space below before more arrives:
//! (a) A leveled level over `C_i` moves its cheapest file ([`super::score`]) to level i + 1, until
//!     it fits. If the inner levels are tiered, the last level moves down as a whole instead. No
//!     rewrite is needed, since nothing is below it: this is how lazy leveling grows by a level.
//! (b) A tiered level over `C_i`, or with more than `K_i` runs, moves to level i + 1 as a whole. A
//!     leveled one with more than one run, which only a change of the design leaves, is compacted
//!     in place.
//! (c) When level 0 is due ([`super::rules`]), all of it moves to level 1, or past closed levels to
//!     the first open one.
//! (d) When nothing else is due, adjacent small tables of a run are compacted in place
//!     ([`super::small`]).
//!
//! A closed level (`C_i` = 0, only with `Auto`) is over its capacity by all that it holds. Tables
//! that arrive on it continue to the next level together with its own.
//!
//! Tables that arrive on a leveled level join its run, whatever the size; (a) follows. On a tiered
//! level they join the *active* (newest) run while that stays within `C_i / K_i`, else they become
//! a new run. If the level would then exceed `C_i` or have `K_i + 1` runs, the whole level joins
//! the job, and all of it arrives on level i + 1: one compaction, however many levels it passes.
//!
//! In a tree that does not grow, the runs of a tiered last level hold newer versions of old keys,
//! and with `Auto` its capacity is far larger than its contents. So there, tables do not join a run
//! that is much larger than they are. The runs are compacted in place while the level stays at most
//! half full. If that compaction would be long, the arriving tables become one run more than
//! allowed, and (b) then compacts the level on its own. Tables flushed meanwhile can be compacted
//! onto the levels above ([`crate::compaction::schedule`]).
//!
//! Every job moves bytes down or reduces the number of runs or tables. Tables that arrive on an
//! empty level beyond the last fit there or move on to a level `T` times larger. So the policy
//! terminates from any tree.
//!
//! Not here: when level 0 is due ([`super::rules`]), which level goes first when many writes arrive
//! ([`crate::compaction::schedule`]), cutting jobs into slices ([`super::slices`]).

use std::collections::HashSet;
use std::sync::Arc;

use shamba_model::{Capacities, MAX_LEVELS, Sizing};
use shamba_table::TableId;

use super::job::{CompactionInput, CompactionJob, Reason, Target};
use super::rules::Rules;
use super::score;
use super::small::pick_small;
use crate::version::{KeyRange, Run, TableUse, Version};

/// The last level is compacted in place only while its bytes times this fit its capacity.
const IN_PLACE_HEADROOM: u64 = 2;
/// Tables join the active run of a tiered last level only if it has at most this many times their
/// bytes.
const JOIN_RATIO_MAX: u64 = 2;

/// The next compaction that the rules ask for, the deepest level first; `None` when the tree has
/// the required shape. For forecasts and simulations in which nothing else runs.
pub fn pick(version: &Version, rules: &Rules) -> Option<CompactionJob> {
    let capacities = rules.capacities(version);
    let job = Down { version, rules, capacities: &capacities, deepest: version.deepest_level() }.pick();
    debug_assert!(
        job.as_ref().is_none_or(|job| job.check(version).is_ok()),
        "{job:?} does not keep the versions of a key in order: {:?}",
        job.as_ref().map(|job| job.check(version))
    );
    job
}

/// Estimated bytes that the policy still has to move: 0 exactly when [`pick`] returns `None`.
pub fn debt_bytes(version: &Version, rules: &Rules) -> u64 {
    let deepest = version.deepest_level();
    let capacities = rules.capacities(version);
    let inbox_bytes = if rules.is_l0_due(version, &capacities) { version.level_bytes(0).max(1) } else { 0 };
    let arrival_level = rules.arrival_level(version, &capacities);
    let mut debt = inbox_bytes;
    // Tables that leave a level arrive on the next one and may push as many bytes out of it.
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

/// A tree with its rules and capacities.
pub(in crate::compaction) struct Down<'v> {
    pub version: &'v Version,
    pub rules: &'v Rules,
    pub capacities: &'v Capacities,
    /// The last level.
    pub deepest: u32,
}

impl Down<'_> {
    /// The next compaction that the rules ask for.
    fn pick(&self) -> Option<CompactionJob> {
        let Self { version, rules, capacities, .. } = *self;
        (1..=version.deepest_level())
            .rev()
            .find_map(|level| self.relieve(level))
            .or_else(|| rules.is_l0_due(version, capacities).then(|| self.l0()))
            .or_else(|| pick_small(version, rules))
    }

    /// The job that compacts level 0 down.
    pub fn l0(&self) -> CompactionJob {
        let mut arrival = Arrival::default();
        arrival.add_level(self.version, 0);
        arrival.at(self, self.rules.arrival_level(self.version, self.capacities), Reason::Level0)
    }

    /// Whether `level`, compacted with `arriving_bytes`, stays where it is. The last level of a
    /// tree that does not grow fills with versions that newer runs have made obsolete, and would
    /// otherwise move a level down with each compaction.
    fn stays(&self, level: u32, arriving_bytes: u64) -> bool {
        let bytes = self.version.level_bytes(level).saturating_add(arriving_bytes);
        let capacity = self.capacities.level_bytes(level);
        self.rules.sizing == Sizing::Auto && level == self.deepest && bytes <= capacity / IN_PLACE_HEADROOM
    }

    /// The job that brings `level` (1 or deeper) back within its bounds.
    pub fn relieve(&self, level: u32) -> Option<CompactionJob> {
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
        // A last level that moves down because the tree gains a level, or a closed level, moves as
        // a whole if nothing has to be rewritten.
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

/// Tables that move down, collected on the way to their target level.
#[derive(Default)]
pub(in crate::compaction) struct Arrival {
    inputs: Vec<CompactionInput>,
    ranges: Vec<KeyRange>,
    bytes: u64,
}

impl Arrival {
    /// Adds all runs of a level.
    pub fn add_level(&mut self, version: &Version, level: u32) {
        for run in version.level(level) {
            self.add(level, run, run.tables());
        }
    }

    /// Adds tables of a run. Runs are added in lookup order.
    pub fn add<'v>(&mut self, level: u32, run: &Run, tables: impl IntoIterator<Item = &'v TableUse>) {
        let mut ids = Vec::new();
        for table in tables {
            ids.push(table.meta.id);
            self.ranges.push(table.range.clone());
            self.bytes = self.bytes.saturating_add(table.live_bytes);
        }
        debug_assert!(!ids.is_empty(), "no table of run {} on level {level} leaves it", run.id);
        debug_assert!(
            self.inputs.last().is_none_or(|newer| newer.level <= level && newer.run != run.id),
            "run {} of level {level} is collected out of lookup order",
            run.id
        );
        self.inputs.push(CompactionInput { level, run: run.id, tables: ids });
    }

    /// The job that brings the tables to `level`, or deeper.
    fn at(mut self, down: &Down<'_>, mut level: u32, reason: Reason) -> CompactionJob {
        let version = down.version;
        loop {
            assert!(level <= MAX_LEVELS, "tables arrive on level {level}, the last is {MAX_LEVELS}");
            // A level beyond the deepest one becomes the last when tables arrive there.
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
                let joined_most = if is_last { self.bytes.saturating_mul(JOIN_RATIO_MAX) } else { room };
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
                // No deeper level exists: this one's capacity exceeds what a file system can hold.
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

    /// Whether a compaction of the tables with all of `level`, which has no space for them, would
    /// be long. The level is then compacted without them: at once if it is over its bounds, else
    /// after they have become one run more of it.
    fn waits_for(&self, down: &Down<'_>, level: u32) -> bool {
        let bytes = down.version.level_bytes(level);
        bytes > 0 && bytes.saturating_add(self.bytes) >= down.rules.long_bytes
    }

    /// The job that compacts the tables into `run`, or into a new run if there is none.
    fn into(self, run: Option<&Arc<Run>>, target_level: u32, reason: Reason) -> CompactionJob {
        debug_assert!(!self.inputs.is_empty(), "nothing arrives on level {target_level}");
        debug_assert!(target_level > 0, "a compaction brings tables to level 0");
        let Some(run) = run else {
            return CompactionJob { inputs: self.inputs, target_level, target_run: Target::New, reason };
        };
        self.into_existing(run, target_level, reason, &|_| false)
    }

    /// The job that compacts the tables, and those of `run` for which `also` holds, into `run`.
    pub fn into_existing(
        mut self,
        run: &Run,
        target_level: u32,
        reason: Reason,
        also: &dyn Fn(&TableUse) -> bool,
    ) -> CompactionJob {
        // Only the tables that share keys, although all of the run would be correct too. A
        // compaction that crashes after each slice must resume where the last one ended: tables of
        // the run that no remaining input shares keys with are finished.
        let shared: HashSet<TableId> =
            self.ranges.iter().flat_map(|range| run.overlapping(range)).map(|table| table.meta.id).collect();
        debug_assert!(
            self.inputs.iter().all(|input| input.run != run.id),
            "run {} is merged into itself",
            run.id
        );
        let joins = |table: &&TableUse| shared.contains(&table.meta.id) || also(table);
        let tables: Vec<_> = run.tables().iter().filter(joins).map(|table| table.meta.id).collect();
        if !tables.is_empty() {
            self.inputs.push(CompactionInput { level: target_level, run: run.id, tables });
        }
        CompactionJob { inputs: self.inputs, target_level, target_run: Target::Existing(run.id), reason }
    }
}
