//! Report of the resident filters and indexes of each level, and of the value of memory.

use std::sync::Arc;

use shamba_table::{Residency, TableReader};

use super::PlanPrices;
use super::survey::{KnownTables, asked_slices, fetched_of, held_partitions};
use crate::core::Core;

/// Resident filters and indexes of one level of one keyspace.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct LevelMemory {
    /// The keyspace.
    pub keyspace: String,
    /// The level; 0 holds flushed runs.
    pub level: u32,
    /// Number of tables.
    pub tables: u64,
    /// Bytes of the resident filter slices.
    pub filter_held_bytes: u64,
    /// Bytes of dormant filters among them: resident while no other use for the memory exists, but
    /// not probed, because nearly all lookups find their key.
    pub filter_dormant_bytes: u64,
    /// Bytes of all slices.
    pub filter_bytes: u64,
    /// For each module, in the order of probing: resident slices, and all slices.
    pub modules: Vec<(u64, u64)>,
    /// Bytes of the resident index partitions.
    pub index_held_bytes: u64,
    /// Resident index partitions, and all of them.
    pub partitions: (u64, u64),
    /// Old name of [`Self::filter_dormant_bytes`].
    #[deprecated(since = "0.2.0", note = "renamed to `filter_dormant_bytes`")]
    pub filter_resting_bytes: u64,
}

/// Value of memory for filters and indexes, in expected nanoseconds saved per second and byte, as
/// of the last plan; all 0 before the first, and where residency is not budgeted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryPrices {
    /// Saving of the next byte.
    pub filter_gain_per_byte: f64,
    /// Marginal saving of the least valuable resident byte, without dormant filters.
    pub filter_loss_per_byte: f64,
    /// Bytes of all filters and indexes that save anything.
    pub filter_useful_bytes: u64,
    /// Modelled cost of lookups and seeks beyond memtables, in nanoseconds per second.
    pub model_cost_ns_per_second: f64,
    /// Modelled reads per lookup (filter slices, index partitions, data blocks) with the present
    /// residency. The model uses the sampled lookups, the measured false-positive rates, and the
    /// block cache hit rate.
    pub model_reads_per_lookup: f64,
    /// The same with the filter modules and index partitions that minimize the time of lookups
    /// alone, using all of the budget that memtables and the tables' own data leave.
    pub ideal_reads_per_lookup: f64,
    /// Old name of [`Self::ideal_reads_per_lookup`].
    #[deprecated(since = "0.2.0", note = "renamed to `ideal_reads_per_lookup`")]
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
            self.filter_dormant_bytes += filter.dormant_bytes();
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
    /// One entry per level of each keyspace.
    #[allow(deprecated)] // Old names are set, too.
    pub(crate) fn level_memory(&self) -> Vec<LevelMemory> {
        let mut levels = Vec::new();
        for keyspace in self.catalog.keyspaces().values() {
            let view = keyspace.load_full();
            for (level, runs) in view.version.levels() {
                let keyspace = keyspace.name.clone();
                let mut memory = LevelMemory { keyspace, level, ..LevelMemory::default() };
                let tables = runs.iter().flat_map(|run| run.tables());
                tables.filter_map(|table| table.meta.reader.get()).for_each(|reader| memory.add(reader));
                if memory.tables > 0 {
                    memory.filter_resting_bytes = memory.filter_dormant_bytes;
                    levels.push(memory);
                }
            }
        }
        levels
    }

    #[allow(deprecated)] // Old names are set, too.
    pub(crate) fn memory_prices(&self) -> MemoryPrices {
        let PlanPrices { value, cost_ns_per_second } = self.plan_prices();
        let (model_reads, ideal_reads) = match self.settings.filter_residency {
            Residency::Budgeted => self.model_reads().unwrap_or_default(),
            Residency::Pinned | Residency::Cached => (0.0, 0.0),
        };
        MemoryPrices {
            filter_gain_per_byte: value.gain_per_byte,
            filter_loss_per_byte: value.loss_per_byte,
            filter_useful_bytes: value.useful_bytes,
            model_cost_ns_per_second: cost_ns_per_second,
            model_reads_per_lookup: model_reads,
            ideal_reads_per_lookup: ideal_reads,
            fewest_reads_per_lookup: ideal_reads,
        }
    }

    /// Modelled reads per lookup with the present residency, and with the best.
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
