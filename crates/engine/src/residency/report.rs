//! What memory holds of each level's filters and indexes: for people.

use std::sync::Arc;

use shamba_table::{Residency, TableReader};

use super::PlanPrices;
use super::survey::{KnownTables, asked_slices, fetched_of, held_partitions};
use crate::core::Core;

/// What memory holds of one level of one keyspace.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct LevelMemory {
    /// The keyspace.
    pub keyspace: String,
    /// The level; 0 is the inbox of flushed runs.
    pub level: u32,
    /// Its tables.
    pub tables: u64,
    /// Bytes of the filters' slices that memory holds.
    pub filter_held_bytes: u64,
    /// Those of them that rest: memory that nobody else has use for keeps them, and lookups, which would find their key, do not ask them.
    pub filter_resting_bytes: u64,
    /// Bytes of all slices.
    pub filter_bytes: u64,
    /// For each module in the order in which they are asked: slices held, and slices in all.
    pub modules: Vec<(u64, u64)>,
    /// Bytes that memory holds of the indexes.
    pub index_held_bytes: u64,
    /// Index partitions held, and in all.
    pub partitions: (u64, u64),
}

/// What memory for filters and indexes is worth, in expected nanoseconds saved per second and byte, as of the last time
/// that it was planned; all 0 before, and where residency is not budgeted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryPrices {
    /// What one byte more would save.
    pub filter_gain_per_byte: f64,
    /// What the least worthy byte saves of what is held for what it saves; filters that only rest are not among it.
    pub filter_loss_per_byte: f64,
    /// What all filters and indexes that save anything would take.
    pub filter_useful_bytes: u64,
    /// What lookups and seeks cost beyond memtables, in nanoseconds per second, by the model.
    pub model_cost_ns_per_second: f64,
    /// Filter slices, index partitions and data blocks that a lookup reads with what is held now, by the model: from the lookups that were
    /// sampled, the measured false-positive rates, and the share of blocks that the cache has.
    pub model_reads_per_lookup: f64,
    /// Those with the choice of filter modules and index partitions by which lookups alone take the least time, in all of the budget that
    /// memtables and tables' own data leave, by the model.
    pub fewest_reads_per_lookup: f64,
}

impl LevelMemory {
    fn add(&mut self, reader: &TableReader) {
        self.tables += 1;
        self.index_held_bytes += reader.index_resident_bytes();
        let partitions = reader.index_partitions() as u64;
        let held = match reader.index_residency() {
            Residency::Pinned => partitions,
            Residency::Budgeted | Residency::Cached => held_partitions(reader) as u64,
        };
        self.partitions = (self.partitions.0 + held, self.partitions.1 + partitions);
        if let Some(filter) = reader.filter() {
            self.filter_held_bytes += filter.held_bytes();
            self.filter_resting_bytes += filter.resting_bytes();
            self.filter_bytes += filter.geometry().total_bytes();
            for (number, module) in filter.geometry().modules().iter().enumerate() {
                if self.modules.len() <= number {
                    self.modules.push((0, 0));
                }
                if let Some((held, all)) = self.modules.get_mut(number) {
                    *held += filter.held_slices(number) as u64;
                    *all += module.slices() as u64;
                }
            }
        }
    }
}

impl Core {
    /// Level by level, keyspace by keyspace.
    pub(crate) fn level_memory(&self) -> Vec<LevelMemory> {
        let mut levels = Vec::new();
        for keyspace in self.keyspaces.load().values() {
            let view = keyspace.load_full();
            for (level, runs) in view.version.levels() {
                let keyspace = keyspace.name.clone();
                let mut memory = LevelMemory { keyspace, level, ..LevelMemory::default() };
                let tables = runs.iter().flat_map(|run| run.tables());
                tables.filter_map(|table| table.meta.reader.get()).for_each(|reader| memory.add(reader));
                if memory.tables > 0 {
                    levels.push(memory);
                }
            }
        }
        levels
    }

    pub(crate) fn memory_prices(&self) -> MemoryPrices {
        let PlanPrices { gain_per_byte, loss_per_byte, useful_bytes, cost_ns_per_second, .. } =
            self.plan_prices();
        let (model_reads, fewest_reads) = match self.settings.filter_residency {
            Residency::Budgeted => self.model_reads().unwrap_or_default(),
            Residency::Pinned | Residency::Cached => (0.0, 0.0),
        };
        MemoryPrices {
            filter_gain_per_byte: gain_per_byte,
            filter_loss_per_byte: loss_per_byte,
            filter_useful_bytes: useful_bytes,
            model_cost_ns_per_second: cost_ns_per_second,
            model_reads_per_lookup: model_reads,
            fewest_reads_per_lookup: fewest_reads,
        }
    }

    /// The reads of a lookup with what is held now, and with the best, by the model.
    fn model_reads(&self) -> Result<(f64, f64), String> {
        let survey = self.survey(&mut KnownTables::new());
        let asked = |reader: &Arc<TableReader>| reader.filter().as_ref().map_or_else(Vec::new, asked_slices);
        let slices: Vec<Vec<u32>> = survey.readers.iter().map(asked).collect();
        let partitions: Vec<u32> =
            survey.readers.iter().map(|reader| held_partitions(reader) as u32).collect();
        let others_bytes = self.others_bytes() + survey.fixed_bytes;
        let left_bytes = self.settings.memory_budget_bytes.saturating_sub(others_bytes);
        let fetched: Vec<usize> = survey.readers.iter().map(|reader| fetched_of(reader)).collect();
        let now = survey.reads_per_lookup(&slices, &partitions, &fetched)?;
        Ok((now, survey.best_reads_per_lookup(left_bytes)?))
    }
}
