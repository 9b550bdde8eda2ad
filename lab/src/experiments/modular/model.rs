//! The I/Os of a lookup by the model: of all choices of what memory holds of filters and indexes, the best.
//!
//! Every table is reached by the lookups of its part of the keys that were not found above it; what is held is planned over all tables
//! ([`plan_jointly`]), a read being what everything costs. A cache that has to find out what is worth holding, and that data blocks go through
//! too, reads more; so these curves lie below those that are measured.

use shamba::{Skipping, TableStats};
use shamba_filter::{FilterLayout, measured};
use shamba_model::joint::{FileIndex, FileMemory, Weighing, plan_jointly};
use shamba_model::residency::Module;
use shamba_model::skip::FileProbes;

use super::approaches::Approach;
use super::trees::Laid;

/// A partition of an index, about.
const PARTITION_BYTES: u64 = 4_096;

/// I/Os of a lookup if memory holds the best of `bytes`.
///
/// # Errors
/// An approach that is none.
pub(super) fn ios(
    laid: &Laid,
    tables: &[TableStats],
    approach: &Approach,
    empty_fraction: f64,
    bytes: u64,
) -> Result<f64, String> {
    let layout: FilterLayout = approach.layout.parse()?;
    let skipping: Skipping = approach.skipping.parse()?;
    let all: u64 = tables.iter().map(|table| table.entries).sum();
    let files: Vec<FileMemory> = tables
        .iter()
        .map(|table| {
            let of_tree = |entries: u64| entries as f64 / all.max(1) as f64;
            let entries_of = |is_part: &dyn Fn(&TableStats) -> bool| {
                tables.iter().filter(|other| is_part(other)).map(|other| other.entries).sum::<u64>()
            };
            let run_entries = entries_of(&|other| other.run == table.run);
            let deeper = of_tree(entries_of(&|other| other.run > table.run));
            let of_run = table.entries as f64 / run_entries.max(1) as f64;
            let found = 1.0 - empty_fraction;
            let probes = FileProbes {
                empty_per_second: of_run * (empty_fraction + found * deeper),
                found_per_second: of_tree(table.entries) * found,
            };
            let index_bytes = (of_tree(table.entries) * laid.index_bytes as f64) as u64;
            file(table, layout, (skipping, probes, index_bytes))
        })
        .collect();
    plan_jointly(&files, Weighing::default(), bytes).map(|plan| plan.cost_ns_per_second)
}

/// A table as the model sees it; a read costs 1.
fn file(
    table: &TableStats,
    layout: FilterLayout,
    (skipping, probes, index_bytes): (Skipping, FileProbes, u64),
) -> FileMemory {
    let module = |share: f64| {
        let bits = share * table.bits_per_key;
        let bytes = (bits * table.entries as f64 / 8.0) as u64;
        Module { bytes: bytes.max(64), slices: 1, fpr: measured::module_fpr(bits) }
    };
    let modules: Vec<Module> = layout.modules().shares().map(module).collect();
    let asked_modules = match skipping {
        Skipping::None => modules.len(),
        Skipping::Partial => 1,
        Skipping::Full => 0,
    };
    FileMemory {
        probes,
        seeks_per_second: 0.0,
        data_ns: 1.0,
        index_ns: 1.0,
        modules,
        asked_modules,
        fetch_ns: 1.0,
        index: FileIndex {
            bytes: index_bytes.max(1),
            partitions: index_bytes.div_ceil(PARTITION_BYTES).max(1) as u32,
        },
        held_modules: 0,
        asked_now: 0,
        holds_index: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(run: u32, entries: u64) -> TableStats {
        let mut table = TableStats::default();
        (table.run, table.entries, table.bits_per_key) = (run, entries, 10.0);
        table
    }

    #[test]
    fn a_whole_index_partition_of_a_table_is_counted() {
        let probes = FileProbes { empty_per_second: 1.0, found_per_second: 0.5 };
        let two = "modular:2".parse().expect("a layout");
        for (skipping, asked) in [(Skipping::None, 2), (Skipping::Partial, 1), (Skipping::Full, 0)] {
            let file = file(&table(0, 1_000), two, (skipping, probes, 5_000));
            assert_eq!((file.modules.len(), file.asked_modules, file.index.partitions), (2, asked, 2));
            assert_eq!(file.modules[0].bytes, 625);
        }
    }
}
