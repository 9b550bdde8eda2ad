//! Filter rewrites: tables rewritten in place because their filters have a stale number of bits.
//!
//! A filter rewrite moves nothing: its inputs are tables of one run, and its outputs join the same
//! run, on any level, level 0 included. So lookup order is unchanged, and the rewrite is compatible
//! with every other job before or after it.
//!
//! Not here: choosing the tables (`filter_rewrite`, package `shamba`).

use std::collections::BTreeSet;

use shamba_table::TableId;

use super::job::{CompactionInput, CompactionJob, Reason, Target};
use crate::version::Version;

/// The job that rewrites the first of `tables` in the first run that has any: up to `job_bytes`,
/// but at least one table. `None` when no run has any.
pub fn pick_filter_rewrite(
    version: &Version,
    tables: &BTreeSet<TableId>,
    job_bytes: u64,
) -> Option<CompactionJob> {
    version.runs().find_map(|(level, run)| {
        let mut bytes = 0u64;
        let wanted = run.tables().iter().filter(|table| tables.contains(&table.meta.id));
        let first = wanted.take_while(|table| {
            let fits = bytes == 0 || bytes.saturating_add(table.live_bytes) <= job_bytes;
            bytes = bytes.saturating_add(table.live_bytes.max(1));
            fits
        });
        let tables: Vec<TableId> = first.map(|table| table.meta.id).collect();
        (!tables.is_empty()).then(|| CompactionJob {
            inputs: vec![CompactionInput { level, run: run.id, tables }],
            target_level: level,
            target_run: Target::Existing(run.id),
            reason: Reason::Filters,
        })
    })
}
