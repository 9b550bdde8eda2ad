//! Table statistics in the engine: folding in the background, inheritance by new tables.
//!
//! Sampling and decay are in [`shamba_tree::sampling`]; the file that keeps the figures across
//! opens is [`file`].

pub(crate) mod file;

use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::KeyspaceCore;
use crate::compaction::plan::CompactionPlan;
use crate::core::Core;
use shamba_tree::sampling::inherit::{Input, inherited, share_left, stretches};
use shamba_tree::version::live_bytes;
use shamba_tree::version::{KeyRange, TableMeta, TableUse};

impl Core {
    /// Decays figures whose last fold is old enough. Not during an install: its new tables have
    /// figures already and are in no tree yet. (Samplers fold without this lock: a step is so small
    /// that a table which misses it has hardly any error.)
    pub(crate) fn fold_statistics(&self) {
        self.catalog.between_installs(|| {
            let now_us = self.env.clock.now_us();
            for keyspace in self.catalog.keyspaces().values() {
                keyspace.statistics.fold_in_time(&keyspace.load().version, now_us);
            }
        });
    }

    /// Sets the initial figures of the tables of a flush or ingest.
    pub(crate) fn begin_statistics(&self, keyspace: &KeyspaceCore, tables: &[TableUse]) {
        let window = keyspace.statistics.window(self.env.clock.now_us());
        let entries: u64 = tables.iter().map(|table| table.meta.entries).sum();
        let version = Arc::clone(&keyspace.load().version);
        let tree_entries = entries + version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>();
        for TableUse { meta, .. } in tables {
            meta.statistics.begin_with(window.of_flush(meta.entries, entries, tree_entries));
        }
    }

    /// Gives the outputs of a compacted slice, which is about to be installed, the figures of its
    /// inputs for its keys. Returns the share that each input keeps after the install.
    pub(crate) fn hand_over_statistics(
        &self,
        plan: &CompactionPlan,
        slice: &KeyRange,
        outputs: &[TableUse],
    ) -> Vec<(Arc<TableMeta>, f64)> {
        let version = Arc::clone(&plan.keyspace.load().version);
        // The current figures: earlier slices have taken their parts.
        let inputs = plan.job.uses(&version);
        let inputs: Vec<Input<'_>> = inputs
            .into_iter()
            .map(|(_, run, table)| Input { run: run.id.0, table, probes: table.meta.statistics.probes() })
            .collect();
        let lowers: Vec<Bytes> = outputs.iter().map(|output| output.range.lower.clone()).collect();
        for (output, stretch) in outputs.iter().zip(stretches(slice, &lowers)) {
            output.meta.statistics.begin_with(inherited(&inputs, &stretch, &live_bytes));
        }
        let kept =
            |input: &Input<'_>| (Arc::clone(&input.table.meta), share_left(input.table, slice, &live_bytes));
        inputs.iter().map(kept).collect()
    }
}

#[cfg(test)]
mod tests;
