//! The full merge: a caller's `compact`.
//!
//! Everything becomes one run on the shallowest level, not above the deepest one in use, whose capacity
//! holds it, so that the policy leaves it where it is. It joins the oldest run of the deepest level when that is
//! the level, so that the merge can go on after a crash instead of starting over.
//!
//! Not here: what the policy does by itself ([`super::fluid`]).

use shamba_model::{Design, MAX_LEVELS};

use super::job::{MergeInput, MergeJob, Reason, Target};
use crate::version::Version;

/// The merge of all tables into one run; `None` when the tree is one run that a merge could not make smaller:
/// below the inbox, without tombstones, every file used whole.
pub(crate) fn pick_full(version: &Version, design: &Design) -> Option<MergeJob> {
    let deepest = version.deepest_level();
    let total_bytes = version.bytes();
    let target_level = (deepest.max(1)..MAX_LEVELS)
        .find(|level| design.level_capacity_bytes(*level) >= total_bytes)
        .unwrap_or(MAX_LEVELS);
    let is_dense = version.tables().all(|(_, _, table)| {
        table.meta.deletes == 0 && table.meta.range_deletes == 0 && !table.is_narrowed()
    });
    let is_done = version.run_count() == 1 && deepest == target_level && is_dense;
    if version.run_count() == 0 || is_done {
        return None;
    }
    let inputs = version
        .runs()
        .map(|(level, run)| {
            let tables = run.tables().iter().map(|table| table.meta.id).collect();
            MergeInput { level, run: run.id, tables }
        })
        .collect();
    let target_run =
        version.level(target_level).last().map_or(Target::New, |oldest| Target::Existing(oldest.id));
    Some(MergeJob { inputs, target_level, target_run, reason: Reason::Manual })
}
