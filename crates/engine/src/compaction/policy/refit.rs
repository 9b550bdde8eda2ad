//! Refits: tables written again where they are, because their filters have other bits than they should.
//!
//! A refit moves nothing: its inputs are tables of one run and its outputs join the same run, on any level, the inbox
//! included. So lookup order stays, and whatever else the policy does before or after is right beside it.
//!
//! Not here: which tables ([`crate::refit`]).

use std::collections::BTreeSet;

use shamba_table::TableId;

use super::job::{MergeInput, MergeJob, Reason, Target};
use crate::version::Version;

/// The job that rewrites those of `tables` that the first run has that has any; `None` when no run does.
pub(crate) fn pick_refit(version: &Version, tables: &BTreeSet<TableId>) -> Option<MergeJob> {
    version.runs().find_map(|(level, run)| {
        let ids = run.tables().iter().map(|table| table.meta.id);
        let tables: Vec<TableId> = ids.filter(|id| tables.contains(id)).collect();
        (!tables.is_empty()).then(|| MergeJob {
            inputs: vec![MergeInput { level, run: run.id, tables }],
            target_level: level,
            target_run: Target::Existing(run.id),
            reason: Reason::Filters,
        })
    })
}
