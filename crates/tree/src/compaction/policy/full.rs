//! The full compaction: a caller's `compact`.
//!
//! Everything becomes one run on the shallowest level, not above the deepest one in use, whose
//! capacity holds it, so that the policy leaves it there. It joins the oldest run of that level.
//! Tables of that run are not rewritten if they share no keys with other runs, hold no tombstone,
//! one entry for each key and nothing that has expired, and are not adjacent small ones. So a full
//! compaction that is interrupted by a crash resumes where it stopped. For a compaction filter
//! every table is rewritten. So is a table that names a value file of which much is obsolete, or
//! any value file if no value is to be in one.
//!
//! Not here: the policy's own jobs ([`super::fluid`]).

use shamba_model::MAX_LEVELS;

use super::job::{CompactionInput, CompactionJob, Reason, Target};
use super::rules::Rules;
use super::small::is_in_stretch;
use crate::version::{Run, TableUse, Version};

/// A full compaction empties value files of which this share is obsolete.
const WASTE_SHARE: f64 = 0.125;

/// The compaction into one run. `None` when the tree is a single run below level 0 that a
/// compaction could not make smaller: it has no tombstones and one entry for each key, nothing has
/// expired for all readers, every file is used whole, and no filter is asked. While snapshots hold
/// tombstones or older entries back, and with a filter, it is `Some` again after the compaction.
/// Never in a FIFO tree.
pub fn pick_full(version: &Version, rules: &Rules) -> Option<CompactionJob> {
    if rules.fifo.is_some() {
        return None;
    }
    let deepest = version.deepest_level();
    let total_bytes = version.bytes();
    let capacities = rules.capacities(version);
    let target_level = (deepest.max(1)..MAX_LEVELS)
        .find(|level| capacities.last_level_bytes(*level) >= total_bytes)
        .unwrap_or(MAX_LEVELS);
    let oldest = version.level(target_level).last();
    let others: Vec<_> =
        version.runs().filter(|(_, run)| oldest.is_none_or(|oldest| oldest.id != run.id)).collect();
    let must_merge = |run: &Run, number: usize, table: &TableUse| {
        could_shrink(rules, table)
            || names_waste(version, rules, table)
            || is_in_stretch(run, number, rules)
            || others.iter().any(|(_, run)| !run.overlapping(&table.range).is_empty())
    };
    let mut inputs: Vec<_> = others.iter().map(|(level, run)| input(*level, run, |_, _| true)).collect();
    inputs.extend(oldest.map(|run| input(target_level, run, |number, table| must_merge(run, number, table))));
    inputs.retain(|input| !input.tables.is_empty());
    let target_run = oldest.map_or(Target::New, |oldest| Target::Existing(oldest.id));
    assert!((1..=MAX_LEVELS).contains(&target_level), "everything is compacted into level {target_level}");
    let job = CompactionJob { inputs, target_level, target_run, reason: Reason::Manual };
    debug_assert!(
        job.inputs.is_empty() || job.check(version).is_ok(),
        "{job} does not keep the versions of a key in order: {:?}",
        job.check(version)
    );
    (!job.inputs.is_empty()).then_some(job)
}

/// Whether a compaction could make the table smaller, or has to ask a filter about its entries.
pub fn could_shrink(rules: &Rules, table: &TableUse) -> bool {
    rules.rewrites_all || !is_dense(table) || rules.has_expired(table)
}

/// Whether a compaction could not make the table smaller: no tombstones, one entry for each key,
/// and the whole file is live.
fn is_dense(table: &TableUse) -> bool {
    !table.meta.has_tombstones() && table.meta.older_versions.get() == 0 && !table.is_narrowed()
}

/// Whether the table names a value file that a full compaction empties.
fn names_waste(version: &Version, rules: &Rules, table: &TableUse) -> bool {
    let Some(values) = rules.values else { return false };
    let is_waste = |file| {
        values.is_off
            || version.value_totals().get(file).is_some_and(|total| total.dead_share() >= WASTE_SHARE)
    };
    table.meta.values.get().files().iter().any(|of| is_waste(of.file.id))
}

fn input(level: u32, run: &Run, is_merged: impl Fn(usize, &TableUse) -> bool) -> CompactionInput {
    let tables = run.tables().iter().enumerate().filter(|(number, table)| is_merged(*number, table));
    CompactionInput { level, run: run.id, tables: tables.map(|(_, table)| table.meta.id).collect() }
}
