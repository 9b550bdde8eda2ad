//! Lookup statistics of the tables: decay, initial figures of new tables, and the saved file.
//!
//! Sampling and decay are in [`shamba_tree::sampling`]. Here new tables inherit figures: those of a
//! flush from the keyspace's window, those of a compaction from its inputs. [`SavedStatistics`]
//! keeps the figures across opens in the file [`file`].

pub(crate) mod file;
mod saved;

use std::sync::Arc;

use bytes::Bytes;
use shamba_tree::compaction::policy::CompactionJob;
use shamba_tree::sampling::inherit::{InputTable, inherited, share_left, stretches};
use shamba_tree::version::{KeyRange, TableMeta, TableUse, live_bytes};

use crate::catalog::{Catalog, KeyspaceCore};

pub(crate) use self::saved::SavedStatistics;

/// Decays figures whose last decay is old enough. It runs between installs, because the tables of
/// an install have initial figures already and are in no tree yet. (Samplers decay figures without
/// this lock. A step is so small that a table which misses one has hardly any error.)
pub(crate) fn fold(catalog: &Catalog, now_us: u64) {
    catalog.between_installs(|| {
        for keyspace in catalog.keyspaces().values() {
            keyspace.statistics().fold_in_time(&keyspace.load().version, now_us);
        }
    });
}

/// Sets the initial figures of the tables of a flush or ingest.
pub(crate) fn begin(keyspace: &KeyspaceCore, tables: &[TableUse], now_us: u64) {
    let window = keyspace.statistics().window(now_us);
    let entries: u64 = tables.iter().map(|table| table.meta.entries).sum();
    let version = Arc::clone(&keyspace.load().version);
    let tree_entries = entries + version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>();
    for TableUse { meta, .. } in tables {
        meta.statistics.begin_with(window.of_flush(meta.entries, entries, tree_entries));
    }
}

/// Gives the outputs of a compacted slice, which is about to be installed, the figures of its
/// inputs for its keys. Returns the share that each input keeps after the install.
pub(crate) fn hand_over(
    keyspace: &KeyspaceCore,
    job: &CompactionJob,
    slice: &KeyRange,
    outputs: &[TableUse],
) -> Vec<(Arc<TableMeta>, f64)> {
    let version = Arc::clone(&keyspace.load().version);
    // The current figures: earlier slices have taken their parts.
    let inputs = job.uses(&version);
    let inputs: Vec<InputTable<'_>> = inputs
        .into_iter()
        .map(|(_, run, table)| InputTable { run: run.id.0, table, probes: table.meta.statistics.probes() })
        .collect();
    let lowers: Vec<Bytes> = outputs.iter().map(|output| output.range.lower.clone()).collect();
    debug_assert!(lowers.is_sorted_by(|one, next| one < next), "tables of a slice are not in order");
    let stretches = stretches(slice, &lowers);
    assert_eq!(stretches.len(), outputs.len(), "a table of a slice inherits nothing");
    for (output, stretch) in outputs.iter().zip(stretches) {
        output.meta.statistics.begin_with(inherited(&inputs, &stretch, &live_bytes));
    }
    let kept =
        |input: &InputTable<'_>| (Arc::clone(&input.table.meta), share_left(input.table, slice, &live_bytes));
    let kept: Vec<_> = inputs.iter().map(kept).collect();
    debug_assert!(
        kept.iter().all(|(_, share)| (0.0..=1.0).contains(share)),
        "an input keeps more of its figures than it had"
    );
    kept
}

#[cfg(test)]
mod tests;
