//! Report of memory: what each part holds, the resident filters and indexes of each level, and the
//! value of memory.

use std::sync::Arc;

use shamba_table::{LedgerPart, Residency, TableReader};

use super::survey::{KnownTables, asked_slices, fetched_of, held_partitions};
use super::{PlanPrices, ResidencyManager};
use crate::catalog::Catalog;
use crate::memory::Member;
use crate::metrics::{LevelMemory, MemoryPrices, MemoryReport};

/// Adds the filter and the index of a table.
fn add(level: &mut LevelMemory, reader: &TableReader) {
    level.tables += 1;
    level.index_held_bytes += reader.index_resident_bytes();
    let partitions = reader.index_partitions() as u64;
    let held = match reader.index_residency() {
        Residency::Pinned => partitions,
        Residency::Budgeted | Residency::Cached => held_partitions(reader) as u64,
    };
    level.partitions = (level.partitions.0 + held, level.partitions.1 + partitions);
    if let Some(filter) = reader.filter() {
        level.filter_held_bytes += filter.held_bytes();
        level.filter_dormant_bytes += filter.dormant_bytes();
        level.filter_bytes += filter.geometry().total_bytes();
        for (number, module) in filter.geometry().modules().iter().enumerate() {
            if level.modules.len() <= number {
                level.modules.push((0, 0));
            }
            if let Some((held, all)) = level.modules.get_mut(number) {
                *held += filter.held_slices(number) as u64;
                *all += module.slices() as u64;
            }
        }
    }
}

/// One entry per level of each keyspace.
#[allow(deprecated)] // Old names are set, too.
pub(super) fn levels(catalog: &Catalog) -> Vec<LevelMemory> {
    let mut levels = Vec::new();
    for keyspace in catalog.keyspaces().values() {
        let view = keyspace.load_full();
        for (level, runs) in view.version.levels() {
            let keyspace = keyspace.name.clone();
            let mut memory = LevelMemory { keyspace, level, ..LevelMemory::default() };
            let tables = runs.iter().flat_map(|run| run.tables());
            tables.filter_map(|table| table.meta.reader.get()).for_each(|reader| add(&mut memory, reader));
            if memory.tables > 0 {
                memory.filter_resting_bytes = memory.filter_dormant_bytes;
                levels.push(memory);
            }
        }
    }
    levels
}

impl ResidencyManager {
    /// Bytes held in memory, by part, and what filters and indexes are worth.
    pub fn report(&self) -> MemoryReport {
        let ledger = self.memory.ledger();
        let parts: Vec<(String, u64)> =
            LedgerPart::ALL.iter().map(|part| (part.name().to_owned(), ledger.bytes(*part))).collect();
        let ledger_bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let budget_bytes = self.settings.budget_bytes();
        let member = self.memory.member();
        MemoryReport {
            budget_bytes,
            budget_target_bytes: member.map_or(budget_bytes, Member::target_bytes),
            budget_total_bytes: member.map_or(budget_bytes, Member::total_bytes),
            memtable_bytes: self.settings.memtable_bytes(),
            parts,
            ledger_bytes,
            peak_bytes: ledger.peak(),
            rss_bytes: shamba_env::process_rss_bytes(),
            levels: levels(&self.catalog),
            prices: self.report_prices(),
        }
    }

    #[allow(deprecated)] // Old names are set, too.
    fn report_prices(&self) -> MemoryPrices {
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
        let others_bytes = self.memory.others_bytes() + survey.fixed_bytes;
        let left_bytes = self.settings.budget_bytes().saturating_sub(others_bytes);
        let fetched: Vec<usize> = survey.readers.iter().map(|reader| fetched_of(reader)).collect();
        let now = survey.reads_per_lookup(&slices, &partitions, &fetched)?;
        Ok((now, survey.best_reads_per_lookup(left_bytes)?))
    }
}
