//! The collection of value files: which compactions it needs, and which files they empty.
//!
//! ```text
//! T        bytes of all tables
//! S        T + bytes of all stored values
//! R        T + bytes of the referenced ones
//! U        referenced by tables above the last run, if that is alone on its level
//! R_last   R - U
//! D        referenced by the last run and hidden by deletes above it (estimated)
//! h        (U + D) / R_last: the share that may be hidden
//! A        the allowed space; e = (1 - HIDDEN_SHARE_MAX) A
//! ```
//!
//! A collection is due while `h > HIDDEN_SHARE_MAX` or `S > e R`. The first merges the entries
//! above the last run into it, as whole levels, which drops the references to what they hide. The
//! second empties value files: the compaction that rewrites all references to a file writes its
//! values again, and then nobody names the file. Every compaction into the last run does so along
//! the way.
//!
//! Bound: while no collection is due, `S <= A L`, where L is T + the bytes of the values that a
//! reader sees, for overwrites that keep their lengths. `R` is exact. A key of the last run is
//! live, or hidden by a put of the same length above, which is live, or by a delete. So
//! `L >= R_last - D`, hence `R / L <= 1 / (1 - h)`, and `S <= e R <= A L`. Bytes of tables count on
//! both sides: a few long values among many short ones do not cause passes over all keys.
//!
//! A collection ends with less to do: `S > e R` means that the mean dead share of the files is more
//! than `1 - 1/e`, so some file has as much, and a compaction of all runs may empty every file.
//!
//! If there are more files than [`ValueRules::files_max`], small ones are emptied, too, the
//! smallest first, and so joined. The others are at most `files_max`, since each has at least that
//! part of all bytes.
//!
//! Header and footer of the files count nowhere: no compaction could free them.
//!
//! Not here: when a job begins and what it writes (package `shamba`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_model::values::HIDDEN_SHARE_MAX;
use shamba_table::ValueFileId;

use crate::compaction::policy::{Arrival, CompactionJob, Down, Reason, Rules, Target, ValueRules};
use crate::version::{Run, TableUse, ValueTotal, ValueTotals, Version};

/// Part of the hidden bytes (3/4) that a collection merges into the last run at least: the levels
/// above the others hold little of them.
const MERGED_PART: f64 = 0.75;
/// Part of the referenced bytes (1/4) that a compaction writes again at most. They exist twice
/// until it ends.
const MOVED_PART: u64 = 4;
/// Maximum of the minimum dead share of a file that is emptied.
const DEAD_SHARE_MIN: f64 = 1.0 / 16.0;
/// Small files are joined if their live values fill this many full files, or if they are half of
/// the allowed number.
const JOINED_FILES: u64 = 4;
/// Maximum score: a level 0 that would stop writers goes first.
const SCORE_MAX: f64 = 4.0;

/// Bytes of a tree and of its value files.
struct Space {
    /// S.
    stored: u64,
    /// T.
    table_bytes: u64,
    /// R.
    referenced: u64,
    /// R_last.
    last: u64,
    /// h.
    hidden_share: f64,
    /// e.
    allowed: f64,
}

impl Space {
    fn of(version: &Version, rules: &ValueRules) -> Self {
        let (tables, totals) = (version.bytes(), version.value_totals());
        let referenced = tables.saturating_add(totals.bytes());
        let last_run = version.single_last_run().filter(|_| rules.has_one_last_run);
        let above = last_run.map_or(0, |last| totals.bytes().saturating_sub(last.value_bytes()));
        let last = referenced - above;
        let by_deletes = if last_run.is_some() { version.hidden_values().bytes() } else { 0 };
        let hidden = above.saturating_add(by_deletes);
        let allowed = (1.0 - HIDDEN_SHARE_MAX) * rules.space;
        debug_assert!(allowed > 1.0, "a space of {} allows no garbage", rules.space);
        Self {
            stored: tables.saturating_add(totals.stored_bytes()),
            table_bytes: tables,
            referenced,
            last,
            hidden_share: hidden as f64 / last.max(1) as f64,
            allowed,
        }
    }

    /// Garbage in multiples of what is allowed.
    fn garbage(&self) -> f64 {
        let garbage = self.stored.saturating_sub(self.referenced) as f64;
        garbage / ((self.allowed - 1.0) * self.referenced.max(1) as f64)
    }

    /// Minimum dead share of a file that is emptied.
    fn dead_share_min(&self) -> f64 {
        DEAD_SHARE_MIN.min((1.0 - 1.0 / self.allowed) / 2.0)
    }
}

/// Bytes that the collection that is due reads and writes again; 0 if none is.
pub fn collection_debt_bytes(version: &Version, rules: &Rules) -> u64 {
    let capacities = rules.capacities(version);
    let down = Down { version, rules, capacities: &capacities, deepest: version.deepest_level() };
    due(&down).map_or(0, |(job, _)| {
        let moved = version.value_totals().bytes_in(&victims(version, &job, rules));
        job.input_bytes(version).saturating_add(moved).max(1)
    })
}

/// The collection that is due, with its score; `None` if none is.
pub(super) fn due(down: &Down<'_>) -> Option<(CompactionJob, f64)> {
    let (rules, version) = (down.rules.values.as_ref()?, down.version);
    let totals = version.value_totals();
    if totals.is_empty() || down.deepest == 0 {
        return None;
    }
    let space = Space::of(version, rules);
    let (hidden, garbage) = (space.hidden_share / HIDDEN_SHARE_MAX, space.garbage());
    let crowd = Crowd::of(totals, rules);
    let (is_hidden, is_full) = (hidden > 1.0, garbage > 1.0 || crowd.is_due());
    if !is_hidden && !is_full {
        return None;
    }
    let from = if is_hidden { first_merged_level(version) } else { down.deepest };
    let part = Scope { version, from };
    let mut chosen = part.chosen(&space, &crowd);
    let mut scope = part;
    if chosen.is_empty() && is_full {
        let all = Scope { version, from: 0 };
        let of_all = all.chosen(&space, &crowd);
        if !of_all.is_empty() {
            (scope, chosen) = (all, of_all);
        }
    }
    if chosen.is_empty() && !is_hidden {
        return None;
    }
    let job = scope.job(&chosen)?;
    debug_assert!(job.check(version).is_ok(), "{job}: {:?}", job.check(version));
    Some((job, hidden.max(garbage).max(crowd.score()).min(SCORE_MAX)))
}

/// The value files that `job` empties: it writes their values to new files, or into tables, where
/// it meets a reference. A reference to one of them can appear nowhere else meanwhile, since
/// references move only in jobs that claim their tables.
pub fn victims(version: &Version, job: &CompactionJob, rules: &Rules) -> BTreeSet<ValueFileId> {
    let Some(values) = &rules.values else { return BTreeSet::new() };
    let totals = version.value_totals();
    let last = version.level(version.deepest_level()).last();
    let is_into_last = last.is_some_and(|last| job.target_run == Target::Existing(last.id));
    let is_asked = job.reason == Reason::Manual;
    if totals.is_empty() || !is_asked && !is_into_last {
        return BTreeSet::new();
    }
    let space = Space::of(version, values);
    let uses = job.uses(version);
    let eligible = eligible(totals, &uses);
    if is_asked {
        let is_chosen = |total: &&ValueTotal| values.is_off || total.dead_share() >= space.dead_share_min();
        return eligible.into_iter().filter(is_chosen).map(|total| total.file.id).collect();
    }
    choose(&space, &Crowd::of(totals, values), hidden_by(version, &uses), &eligible)
}

/// The level from which on a collection merges everything into the last run: levels from the last
/// one up, until they hold [`MERGED_PART`] of what may be hidden.
fn first_merged_level(version: &Version) -> u32 {
    let hidden = version.hidden_values();
    let of_level = |level: u32| {
        let runs = version.level(level).iter();
        runs.fold(hidden.of_level(level), |sum, run| sum.saturating_add(run.value_bytes()))
    };
    let above = 0..version.deepest_level();
    let all = above.clone().fold(0u64, |sum, level| sum.saturating_add(of_level(level)));
    let mut merged = 0u64;
    for level in above.rev() {
        merged = merged.saturating_add(of_level(level));
        if merged as f64 >= MERGED_PART * all as f64 && merged > 0 {
            return level;
        }
    }
    0
}

/// The tables that a collection may read: those of the oldest run of the last level, and of all
/// runs from level `from` on, if that is above the last level.
struct Scope<'v> {
    version: &'v Version,
    from: u32,
}

impl<'v> Scope<'v> {
    fn is_in_place(&self) -> bool {
        self.from >= self.version.deepest_level()
    }

    /// The tables, each with its level and run.
    fn uses(&self) -> impl Iterator<Item = Use<'v>> {
        let last = self.version.level(self.version.deepest_level()).last();
        let (is_in_place, from) = (self.is_in_place(), self.from);
        let is_inside = move |level: u32, run: &Run| match is_in_place {
            true => last.is_some_and(|last| last.id == run.id),
            false => level >= from,
        };
        self.version.tables().filter(move |(level, run, _)| is_inside(*level, run))
    }

    fn chosen(&self, space: &Space, crowd: &Crowd<'_>) -> BTreeSet<ValueFileId> {
        let uses: Vec<Use<'v>> = self.uses().collect();
        choose(space, crowd, hidden_by(self.version, &uses), &eligible(self.version.value_totals(), &uses))
    }

    /// The job that empties `chosen` and, unless it is in place, merges the whole scope.
    fn job(&self, chosen: &BTreeSet<ValueFileId>) -> Option<CompactionJob> {
        let (version, deepest) = (self.version, self.version.deepest_level());
        let last = version.level(deepest).last()?;
        let mut arrival = Arrival::default();
        if !self.is_in_place() {
            (self.from..deepest).for_each(|level| arrival.add_level(version, level));
            let newer = version.level(deepest).iter().filter(|run| run.id != last.id);
            newer.for_each(|run| arrival.add(deepest, run, run.tables()));
        }
        let names =
            |table: &TableUse| table.meta.values.get().files().iter().any(|of| chosen.contains(&of.file.id));
        let job = arrival.into_existing(last, deepest, Reason::Values, &names);
        debug_assert!(!job.inputs.is_empty(), "a collection of {chosen:?} has no inputs");
        Some(job)
    }
}

/// A table, with its level and run.
type Use<'v> = (u32, &'v Arc<Run>, &'v TableUse);

/// The files to which no table refers but those of `uses`.
fn eligible<'v>(totals: &'v ValueTotals, uses: &[Use<'v>]) -> Vec<&'v ValueTotal> {
    let mut counts: BTreeMap<ValueFileId, u64> = BTreeMap::new();
    for of in uses.iter().flat_map(|(_, _, table)| table.meta.values.get().files()) {
        *counts.entry(of.file.id).or_default() += 1;
    }
    let all_uses = |(file, count)| totals.get(file).filter(|total| total.uses == count);
    counts.into_iter().filter_map(all_uses).collect()
}

/// Value bytes of the last run that the tables of `uses` above it hide, if all of them are there.
fn hidden_by(version: &Version, uses: &[Use<'_>]) -> u64 {
    let deepest = version.deepest_level();
    let above = uses.iter().filter(|(level, ..)| *level < deepest);
    above.fold(0u64, |sum, (level, _, table)| {
        let share = table.live_bytes as f64 / version.level_bytes(*level).max(1) as f64;
        let by_deletes = version.hidden_values().of_level(*level) as f64 * share;
        sum.saturating_add(table.values.bytes()).saturating_add(by_deletes as u64)
    })
}

/// The number of value files, and the small ones among them.
struct Crowd<'r> {
    rules: &'r ValueRules,
    files: u64,
    stored_bytes: u64,
    small_files: u64,
    small_live_bytes: u64,
}

impl<'r> Crowd<'r> {
    fn of(totals: &ValueTotals, rules: &'r ValueRules) -> Self {
        let (files, stored_bytes) = (totals.files().len() as u64, totals.stored_bytes());
        let mut crowd = Self { rules, files, stored_bytes, small_files: 0, small_live_bytes: 0 };
        if files > rules.files_max {
            let small = totals.files().filter(|total| crowd.is_small(total)).map(|total| total.bytes);
            let (count, live) =
                small.fold((0, 0u64), |(count, sum), live| (count + 1, sum.saturating_add(live)));
            (crowd.small_files, crowd.small_live_bytes) = (count, live);
        }
        crowd
    }

    fn is_small(&self, total: &ValueTotal) -> bool {
        self.rules.is_small(total.file.stored_bytes(), self.stored_bytes)
    }

    /// Whether small files should be joined.
    fn is_due(&self) -> bool {
        let full_bytes = self.rules.full_bytes(self.stored_bytes);
        self.files > self.rules.files_max
            && (self.small_live_bytes >= full_bytes.saturating_mul(JOINED_FILES)
                || self.small_files > self.rules.files_max / 2)
    }

    fn score(&self) -> f64 {
        if self.is_due() { self.files as f64 / self.rules.files_max.max(1) as f64 } else { 0.0 }
    }
}

/// The files to empty out of `eligible` ones: the emptiest, until the space is as it should be, and
/// small ones if there are too many files. `hidden` are the value bytes that the job is expected to
/// drop from the last run, evenly from all files.
///
/// If it drops less, by n bytes, then at most n more are written again than expected. But n more
/// stay referenced, too, for each of which the allowed space is larger than 1.
fn choose(space: &Space, crowd: &Crowd<'_>, hidden: u64, eligible: &[&ValueTotal]) -> BTreeSet<ValueFileId> {
    let moved_max = space.referenced / MOVED_PART;
    let kept_share = 1.0 - (hidden as f64 / space.last.max(1) as f64).min(1.0);
    let allowed = space.allowed * space.referenced.saturating_sub(hidden) as f64;
    // A collection rewrites the keys of the tables that name the files. One that is due frees as
    // much as that costs, or half of the allowed garbage, so that the next is not due at once.
    let half = (space.allowed - 1.0) * space.referenced as f64 / 2.0;
    let margin = if space.garbage() > 1.0 { half.min(space.table_bytes as f64) } else { 0.0 };
    let goal = allowed - margin;
    let mut chosen = BTreeSet::new();
    let (mut stored, mut moved) = (space.stored as f64, 0u64);
    let mut add = |total: &ValueTotal, stored: &mut f64, chosen: &mut BTreeSet<ValueFileId>| {
        // The first one is taken even if it is larger: a tree of few files would not be collected.
        if !chosen.is_empty() && moved.saturating_add(total.bytes) > moved_max {
            return false;
        }
        moved = moved.saturating_add(total.bytes);
        *stored -= total.file.stored_bytes() as f64 - total.bytes as f64 * kept_share;
        chosen.insert(total.file.id)
    };
    let dead_share_min = space.dead_share_min();
    let mut emptiest: Vec<&ValueTotal> =
        eligible.iter().copied().filter(|total| total.dead_share() >= dead_share_min).collect();
    emptiest.sort_by(|a, b| b.dead_share().total_cmp(&a.dead_share()));
    for total in emptiest {
        if stored <= goal || !add(total, &mut stored, &mut chosen) {
            break;
        }
    }
    if !crowd.is_due() {
        return chosen;
    }
    let mut small: Vec<&ValueTotal> =
        eligible.iter().copied().filter(|total| crowd.is_small(total)).collect();
    small.sort_by_key(|total| total.bytes);
    // Few files would be written again and stay small, and the others would be joined later.
    let count = small.len() as u64;
    if count > JOINED_FILES && count >= crowd.small_files / JOINED_FILES {
        for total in small {
            if !chosen.contains(&total.file.id) && !add(total, &mut stored, &mut chosen) {
                break;
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
