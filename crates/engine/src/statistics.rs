//! Statistics of tables as the engine keeps them: folding in the background, handing over to new tables.
//!
//! Sampling and decay are in [`shamba_tree::sampling`]; the file that keeps the figures over an open
//! is [`file`].

pub(crate) mod file;

use std::sync::Arc;

use bytes::Bytes;
use shamba_env::try_lock;

use crate::compaction::plan::MergePlan;
use crate::core::{Core, KeyspaceCore};
use shamba_tree::compaction::live_bytes;
use shamba_tree::sampling::inherit::{Input, inherited, share_left, stretches};
use shamba_tree::version::{KeyRange, TableMeta, TableUse};

impl Core {
    /// Has old figures fade where that was last done a while ago. Not while somebody installs tables: they have their figures already and are in no
    /// tree yet. (Samplers fold whenever it is time: a step so small that a table which misses it is hardly wrong.)
    pub(crate) fn fold_statistics(&self) {
        let Some(_installing) = try_lock(&self.installing) else { return };
        let now_us = self.env.clock.now_us();
        for keyspace in self.keyspaces.load().values() {
            keyspace.statistics.fold_in_time(&keyspace.load().version, now_us);
        }
    }

    /// Gives the tables of a flush, or of an ingest, what they begin with.
    pub(crate) fn begin_statistics(&self, keyspace: &KeyspaceCore, tables: &[TableUse]) {
        let window = keyspace.statistics.window(self.env.clock.now_us());
        let entries: u64 = tables.iter().map(|table| table.meta.entries).sum();
        let version = Arc::clone(&keyspace.load().version);
        let tree_entries = entries + version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>();
        for TableUse { meta, .. } in tables {
            meta.statistics.begin_with(window.of_flush(meta.entries, entries, tree_entries));
        }
    }

    /// Gives the outputs of a merged slice, which is about to be installed, what its inputs know of its keys. Says which
    /// share stays with each input once it is.
    pub(crate) fn hand_over_statistics(
        &self,
        plan: &MergePlan,
        slice: &KeyRange,
        outputs: &[TableUse],
    ) -> Vec<(Arc<TableMeta>, f64)> {
        let version = Arc::clone(&plan.keyspace.load().version);
        // As it is now: earlier slices have taken their parts.
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
