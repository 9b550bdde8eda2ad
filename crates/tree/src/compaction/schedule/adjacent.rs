//! Merges of adjacent runs of a level 0 that cannot be compacted down now.
//!
//! While a running job covers the levels below, flushed runs gather in level 0, and writers are
//! slowed down by their number. Merging the newest of them into one costs little and gives the
//! writers time. The merged runs must be of similar size: otherwise the same bytes would be written
//! again and again. The output joins the oldest of the runs, so lookup order is unchanged.
//!
//! Not here: when this is worth it ([`super::next`]).

use std::collections::HashSet;

use super::place::RunPlace;
use crate::compaction::policy::{CompactionInput, CompactionJob, Reason, Target};
use crate::version::{Run, Version};

/// Minimum number of runs that are merged.
const RUNS_MIN: usize = 4;
/// A run is left out if it is this many times larger than all newer ones together.
const SIZE_RATIO_MAX: u64 = 2;

/// The merge of the newest runs of level 0 for which `is_free` holds and that are adjacent, of at
/// most `most_bytes` by `run_bytes`. `None` if there are fewer than [`RUNS_MIN`].
pub(super) fn merge_adjacent(
    version: &Version,
    is_free: impl Fn(RunPlace) -> bool,
    run_bytes: impl Fn(&Run) -> u64,
    most_bytes: u64,
) -> Option<CompactionJob> {
    let free = |age| is_free(RunPlace { level: 0, age });
    let runs = version.level(0).iter().skip_while(|run| !free(run.age)).take_while(|run| free(run.age));
    let mut merged = Vec::new();
    let mut bytes = 0u64;
    for run in runs {
        let own_bytes = run_bytes(run);
        let sum = bytes.saturating_add(own_bytes);
        if merged.len() > 1 && own_bytes > bytes.saturating_mul(SIZE_RATIO_MAX) || sum > most_bytes {
            break;
        }
        bytes = sum;
        merged.push(run);
    }
    if merged.len() < RUNS_MIN {
        return None;
    }
    debug_assert!(bytes <= most_bytes, "runs of {bytes} bytes are merged, at most {most_bytes} may be");
    debug_assert!(
        merged.is_sorted_by(|newer, older| newer.age > older.age),
        "runs of level 0 are merged out of their order"
    );
    let oldest = merged.pop()?;
    let newer = || merged.iter().flat_map(|run| run.tables());
    let shared: HashSet<_> =
        newer().flat_map(|table| oldest.overlapping(&table.range)).map(|table| table.meta.id).collect();
    let mut inputs: Vec<_> = merged
        .iter()
        .map(|run| CompactionInput {
            level: 0,
            run: run.id,
            tables: run.tables().iter().map(|table| table.meta.id).collect(),
        })
        .collect();
    let tables: Vec<_> =
        oldest.tables().iter().map(|table| table.meta.id).filter(|table| shared.contains(table)).collect();
    if !tables.is_empty() {
        inputs.push(CompactionInput { level: 0, run: oldest.id, tables });
    }
    Some(CompactionJob {
        inputs,
        target_level: 0,
        target_run: Target::Existing(oldest.id),
        reason: Reason::L0Runs,
    })
}
