//! Survey of all pieces that could be resident, and the saving of each.
//!
//! It covers every table of every keyspace once: the probes and seeks that reach it, the cost of a
//! search in it, its filter's modules with their measured false-positive rates, and its index.
//!
//! Not here: the plan ([`shamba_model::joint`]); carrying it out ([`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_filter::{FilterGeometry, measured};
use shamba_model::joint::{FileIndex, FileMemory, Module, Weighing, cost_ns_per_second, plan_jointly};
use shamba_model::memory::constants::{
    KEEP_SEARCHES, KEEP_TIMES, LOOKUPS_PER_SEEK_MIN, PRIOR_LOOKUPS, PRIOR_SEEKS, SEARCHES_KEPT,
};
use shamba_model::price::ReadPrice;
use shamba_model::skip::{FileProbes, Skipping};
use shamba_table::{Residency, ResidentFilter, TableId, TableReader};

use super::prices::Prices;
use shamba_tree::statistics::{LookupWindow, Probes};
use shamba_tree::view::View;

/// Modules of the tables surveyed before; they do not change.
pub(super) type KnownTables = BTreeMap<TableId, Arc<[Module]>>;

/// All tables and their value in memory.
pub(super) struct Survey {
    pub prices: Prices,
    pub readers: Vec<Arc<TableReader>>,
    /// One for each of `readers`.
    pub files: Vec<FileMemory>,
    /// Resident bytes that do not depend on the plan.
    pub fixed_bytes: u64,
    /// Lookups per second that reach tables.
    pub lookups_per_second: f64,
}

impl Survey {
    pub fn of(
        views: &[(Arc<View>, LookupWindow)],
        (prices, skipping): (Prices, Skipping),
        known: &mut KnownTables,
    ) -> Self {
        let known_before = std::mem::take(known);
        let mut survey =
            Self { prices, readers: Vec::new(), files: Vec::new(), fixed_bytes: 0, lookups_per_second: 0.0 };
        let mut seen = BTreeSet::new();
        for (view, window) in views {
            survey.lookups_per_second += per_second(*window);
            let tree_entries: u64 = view.version.tables().map(|(_, _, table)| table.meta.entries).sum();
            for (_, run) in view.version.runs() {
                let run_entries: u64 = run.tables().iter().map(|table| table.meta.entries).sum();
                for table in run.tables() {
                    let Some(reader) = table.meta.reader.get() else { continue };
                    if !seen.insert(reader.id()) {
                        // Runs may share a file.
                        continue;
                    }
                    let part_of = |all: u64| table.meta.entries as f64 / all.max(1) as f64;
                    let measured = table.meta.statistics.probes();
                    let probes = probes(measured, *window, part_of(run_entries), part_of(tree_entries));
                    survey.fixed_bytes += reader.index_base_bytes();
                    let modules = known_before
                        .get(&reader.id())
                        .map_or_else(|| modules_of(reader, table.meta.entries).into(), Arc::clone);
                    let seeks_per_second = seeks_per_second(measured, *window, part_of(run_entries));
                    let reads = (probes, seeks_per_second);
                    survey.files.push(file_memory(reader, &modules, reads, (prices, skipping)));
                    known.insert(reader.id(), modules);
                    survey.readers.push(Arc::clone(reader));
                }
            }
        }
        assert_eq!(survey.readers.len(), survey.files.len(), "a table was surveyed without its reader");
        assert_eq!(known.len(), survey.readers.len(), "a table was surveyed twice");
        survey
    }

    /// Modelled reads per lookup (filter slices, index partitions, data blocks) with these resident
    /// slices and partitions and these fetched modules.
    pub fn reads_per_lookup(
        &self,
        slices: &[Vec<u32>],
        partitions: &[u32],
        fetched: &[usize],
    ) -> Result<f64, String> {
        let reads = cost_ns_per_second(&self.counting_reads(), slices, partitions, fetched, 0.0)?;
        Ok(reads / self.lookups_per_second.max(f64::MIN_POSITIVE))
    }

    /// Modelled reads per lookup if this memory were used in the best way for lookups alone, with
    /// the current costs.
    pub fn best_reads_per_lookup(&self, bytes: u64) -> Result<f64, String> {
        let weighing = Weighing { probe_ns: self.prices.probe_ns, ..Weighing::default() };
        let plan = plan_jointly(&self.without_seeks(), weighing, bytes)?;
        self.reads_per_lookup(&plan.slices, &plan.partitions, &plan.fetched)
    }

    fn without_seeks(&self) -> Vec<FileMemory> {
        let files = self.files.iter().cloned();
        files.map(|file| FileMemory { seeks_per_second: 0.0, ..file }).collect()
    }

    /// The same files with the number of reads of lookups as their cost.
    fn counting_reads(&self) -> Vec<FileMemory> {
        let counting = |file: FileMemory| FileMemory {
            data_ns: self.prices.read_share,
            index_ns: 1.0,
            fetch: ReadPrice::fixed(self.prices.read_share),
            ..file
        };
        self.without_seeks().into_iter().map(counting).collect()
    }

    /// Bytes of all pieces, and those that are resident in any case.
    pub fn useful_bytes(&self) -> u64 {
        let modules = |file: &FileMemory| file.modules.iter().map(|module| module.bytes).sum::<u64>();
        self.fixed_bytes + self.files.iter().map(|file| modules(file) + file.index.bytes).sum::<u64>()
    }
}

/// Lookups per second. Without lookups and seeks the value is 1, because any rate will do. With
/// seeks only, it is a small part of their rate, so that filters get only the memory that seeks do
/// not need.
fn per_second(window: LookupWindow) -> f64 {
    let least = window.seeks_per_second * LOOKUPS_PER_SEEK_MIN;
    if window.lookups_per_second + least > 0.0 { window.lookups_per_second.max(least) } else { 1.0 }
}

/// Probes per second that reach a table. The prior of [`PRIOR_LOOKUPS`] lookups, uniform over all
/// keys, is added to the samples; so a few samples do not decide, and a table without samples has a
/// value. The table has the share `of_run` of its run's entries, and `of_tree` of all entries.
fn probes(measured: Probes, window: LookupWindow, of_run: f64, of_tree: f64) -> FileProbes {
    debug_assert!((0.0..=1.0).contains(&of_run), "a table has {of_run} of the entries of its run");
    debug_assert!(of_tree <= of_run, "a table has more of its tree than of its run");
    let found_share = window.found_share();
    debug_assert!((0.0..=1.0).contains(&found_share), "{found_share} of the lookups find their key");
    let found = PRIOR_LOOKUPS * found_share * of_tree;
    // Lookups that find their key in a newer run do not get here; their number is unknown, so half
    // of them are assumed.
    let empty = (PRIOR_LOOKUPS * of_run - found).max(0.0) * (1.0 - found_share / 2.0);
    let rate = |sampled: f64| sampled / (window.lookups + PRIOR_LOOKUPS) * per_second(window);
    FileProbes {
        empty_per_second: rate(measured.empty + empty),
        found_per_second: rate(measured.found + found),
    }
}

/// Seeks per second that reach a table, with a prior of [`PRIOR_SEEKS`] seeks, uniform over all
/// keys. Each seek reaches every run; the table has the share `of_run` of its run's entries.
fn seeks_per_second(measured: Probes, window: LookupWindow, of_run: f64) -> f64 {
    (measured.seeks + PRIOR_SEEKS * of_run) / (window.seeks + PRIOR_SEEKS) * window.seeks_per_second
}

/// The modules of a table's filter.
fn modules_of(reader: &TableReader, entries: u64) -> Vec<Module> {
    let mut bytes = reader.filter_module_bytes();
    if reader.is_filter_whole() {
        // They are read at once.
        bytes.iter_mut().for_each(|(_, slices)| *slices = 1);
    }
    let rates = module_rates(reader, entries);
    bytes.into_iter().zip(rates).map(|((bytes, slices), fpr)| Module { bytes, slices, fpr }).collect()
}

fn file_memory(
    reader: &TableReader,
    modules: &[Module],
    (probes, seeks_per_second): (FileProbes, f64),
    (prices, skipping): (Prices, Skipping),
) -> FileMemory {
    let filter = reader.filter();
    let whole =
        |held: &[u32]| held.iter().zip(modules).take_while(|(held, all)| **held == all.slices).count();
    FileMemory {
        probes,
        seeks_per_second,
        data_ns: prices.data_ns,
        index_ns: prices.index_ns(index_read_bytes(reader)),
        modules: modules.to_vec(),
        asked_modules: must_be_asked(skipping, modules.len()),
        fetch: prices.fetch,
        index: index_of(reader),
        held_modules: filter.as_ref().map_or(0, |filter| whole(&held_slices(filter))),
        asked_now: filter.as_ref().map_or(0, |filter| whole(&asked_slices(filter))),
        holds_index: held_partitions(reader) == reader.index_partitions(),
    }
}

/// The evictable index; empty if it is pinned.
fn index_of(reader: &TableReader) -> FileIndex {
    if reader.index_residency() == Residency::Pinned {
        return FileIndex::default();
    }
    let partitions = reader.index_partitions();
    let bytes = (0..partitions).map(|number| reader.partition_bytes(number)).sum();
    FileIndex { bytes, partitions: partitions as u32 }
}

/// Bytes that a search reads of an index that is not in memory: one partition, or the whole index
/// if it is cached as one block.
fn index_read_bytes(reader: &TableReader) -> u64 {
    let partitions = reader.index_partitions();
    let bytes: u64 = (0..partitions).map(|number| reader.partition_stored_bytes(number)).sum();
    if reader.is_index_whole() { bytes } else { bytes / partitions.max(1) as u64 }
}

/// Number of resident partitions of the index.
pub(super) fn held_partitions(reader: &TableReader) -> usize {
    (0..reader.index_partitions()).filter(|number| reader.is_partition_resident(*number)).count()
}

/// The partitions to keep if only `wanted` may be resident: those with the most searches. A
/// resident one is exchanged only for one with clearly more searches, so that a few samples change
/// nothing.
pub(super) fn choose_partitions(reader: &TableReader, wanted: usize) -> BTreeSet<usize> {
    let count = reader.index_partitions();
    if wanted >= count {
        return (0..count).collect();
    }
    let searches = |number| (reader.index_searches(number), reader.is_partition_resident(number));
    most_searched(&(0..count).map(searches).collect::<Vec<_>>(), wanted)
}

/// The numbers of the `wanted` most valuable partitions, from (searches, is resident).
fn most_searched(partitions: &[(u32, bool)], wanted: usize) -> BTreeSet<usize> {
    let worth = |&(searches, is_held): &(u32, bool)| {
        if is_held { searches.saturating_mul(KEEP_TIMES).saturating_add(KEEP_SEARCHES) } else { searches }
    };
    let mut by_worth: Vec<(u32, usize)> = partitions.iter().map(worth).zip(0..).collect();
    by_worth.sort_by_key(|(worth, number)| (std::cmp::Reverse(*worth), *number));
    let chosen: BTreeSet<usize> = by_worth.into_iter().take(wanted).map(|(_, number)| number).collect();
    debug_assert_eq!(chosen.len(), wanted.min(partitions.len()), "a partition was chosen twice");
    chosen
}

/// Halves the search counts of the table's partitions once there are enough to tell hot from cold.
pub(super) fn age_searches(reader: &TableReader) {
    let partitions = reader.index_partitions();
    let searches: u64 = (0..partitions).map(|number| u64::from(reader.index_searches(number))).sum();
    if searches > partitions as u64 * SEARCHES_KEPT {
        reader.halve_index_searches();
    }
}

/// The measured false-positive rate of each module of a table's filter.
pub(crate) fn module_rates(reader: &TableReader, entries: u64) -> Vec<f64> {
    reader.filter_geometry().map_or_else(Vec::new, |geometry| module_fprs(&geometry, entries))
}

fn module_fprs(geometry: &FilterGeometry, keys: u64) -> Vec<f64> {
    let (layout, keys) = (geometry.module_layout(), keys.max(1) as f64);
    let rate = |bytes: u64| measured::fpr(layout, bytes as f64 * 8.0 / keys);
    geometry.modules().iter().map(|module| rate(module.total_bytes())).collect()
}

/// Number of resident slices of each module.
pub(super) fn held_slices(filter: &ResidentFilter) -> Vec<u32> {
    (0..filter.geometry().modules().len()).map(|module| filter.held_slices(module) as u32).collect()
}

/// Number of slices of each module that are resident and probed.
pub(super) fn asked_slices(filter: &ResidentFilter) -> Vec<u32> {
    let asked = |(held, module): (u32, usize)| if filter.asked() >> module & 1 == 1 { held } else { 0 };
    held_slices(filter).into_iter().zip(0..).map(asked).collect()
}

/// Number of leading modules of a table's filter that lookups fetch if they are not resident.
pub(super) fn fetched_of(reader: &TableReader) -> usize {
    reader.filter().map_or(0, |filter| filter.unasked().fetched.trailing_ones() as usize)
}

/// Bytes of a table's whole filter and evictable index.
pub(super) fn whole_bytes(reader: &TableReader) -> u64 {
    filter_bytes(reader) + index_of(reader).bytes
}

/// Bytes of a table's whole filter in memory.
pub(super) fn filter_bytes(reader: &TableReader) -> u64 {
    reader.filter_module_bytes().into_iter().map(|(bytes, _)| bytes).sum()
}

/// Bytes of the slices that the plan adds.
pub(super) fn missing_bytes(reader: &TableReader, filter: &ResidentFilter, wanted: &[u32]) -> u64 {
    debug_assert_eq!(wanted.len(), held_slices(filter).len(), "the plan has other modules than the filter");
    let modules = reader.filter_module_bytes().into_iter().zip(held_slices(filter)).zip(wanted);
    let missing = |((all, held), wanted): (((u64, u32), u32), &u32)| {
        let (bytes, slices) = all;
        bytes / u64::from(slices.max(1)) * u64::from(wanted.saturating_sub(held))
    };
    modules.map(missing).sum()
}

/// Number of leading modules of a filter that lookups may not skip.
fn must_be_asked(skipping: Skipping, modules: usize) -> usize {
    match skipping {
        Skipping::Full => 0,
        Skipping::Partial => modules.min(1),
        Skipping::None => modules,
    }
}

/// The modules to fetch in the cached mode, as a mask: those that save more than they cost, and
/// those that may not be skipped. A module costs the reads of its slices that miss the cache, a
/// part `slices_read` of them, and its memory, which would save `gain_per_byte` elsewhere.
pub(super) fn worth_fetching(
    skipping: Skipping,
    file: &FileMemory,
    (slices_read, gain_per_byte): (f64, f64),
) -> u8 {
    let rates: Vec<f64> = file.modules.iter().map(|module| module.fpr).collect();
    let consulted = || {
        let saved = file.probes.searches_saved_per_second(&rates)?;
        let reaching = file.probes.reaching_per_second(&rates)?;
        // Slices and index partitions compete for the same cache.
        let search_ns = file.data_ns + slices_read * file.index_ns;
        let savings: Vec<f64> = saved.iter().map(|saved| saved * search_ns).collect();
        let fetching =
            |reaching: &f64, module: &Module| reaching * slices_read * file.fetch.ns(module.slice_bytes());
        let memory = |module: &Module| module.bytes as f64 * gain_per_byte;
        let costs: Vec<f64> = reaching
            .iter()
            .zip(&file.modules)
            .map(|(reaching, module)| fetching(reaching, module) + memory(module))
            .collect();
        skipping.modules_consulted(&savings, &costs)
    };
    // A module without a valid cost is not skipped.
    mask_of(consulted().unwrap_or(file.modules.len()))
}

/// Mask of the first `modules` modules.
pub(super) fn mask_of(modules: usize) -> u8 {
    let mask = ((1u16 << modules.min(8)) - 1) as u8;
    debug_assert_eq!(mask.count_ones() as usize, modules.min(8), "a mask of other than the first modules");
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(empty_per_second: f64) -> FileMemory {
        let module = Module { bytes: 1000, slices: 1, fpr: 0.1 };
        FileMemory {
            probes: FileProbes { empty_per_second, found_per_second: 1.0 },
            seeks_per_second: 0.0,
            data_ns: 500.0,
            index_ns: 500.0,
            modules: vec![module; 3],
            asked_modules: 0,
            fetch: ReadPrice::fixed(0.0),
            index: FileIndex::default(),
            held_modules: 0,
            asked_now: 0,
            holds_index: false,
        }
    }

    #[test]
    fn a_hot_partition_takes_the_place_of_a_cold_one_but_not_for_a_few_samples() {
        let held = |partitions: &[(u32, bool)]| most_searched(partitions, 2).into_iter().collect::<Vec<_>>();
        assert_eq!(held(&[(0, true), (0, true), (0, false)]), [0, 1], "what is held stays");
        assert_eq!(held(&[(3, true), (9, true), (4, false)]), [0, 1], "a little more is no more");
        assert_eq!(held(&[(3, true), (9, true), (40, false)]), [1, 2]);
        assert_eq!(held(&[(1, false), (7, false), (5, false)]), [1, 2], "none is held");
        assert_eq!(most_searched(&[(u32::MAX, true), (1, false)], 1).into_iter().collect::<Vec<_>>(), [0]);
        assert!(most_searched(&[], 3).is_empty());
    }

    #[test]
    fn samples_take_over_from_what_is_believed_without_any() {
        // A tenth of a run of half the tree; without samples, half of the lookups are assumed to be
        // found.
        let unknown = probes(Probes::ZERO, LookupWindow::default(), 0.1, 0.05);
        assert!((unknown.found_per_second - 0.025).abs() < 1e-12, "{unknown:?}");
        assert!(unknown.empty_per_second > unknown.found_per_second && unknown.empty_per_second < 0.1);
        // A million samples, all empty, a quarter of them here, 1,000 lookups a second.
        let window =
            LookupWindow { lookups: 1e6, lookups_per_second: 1000.0, as_of_us: 1, ..LookupWindow::default() };
        let known = probes(Probes::new(250_000.0, 0.0, 2_000.0), window, 0.1, 0.05);
        assert!((known.empty_per_second / 250.0 - 1.0).abs() < 1e-3, "{known:?}");
        assert_eq!(known.found_per_second, 0.0);
        // No samples here at all: a small value, but not 0.
        let quiet = probes(Probes::ZERO, window, 0.1, 0.05);
        assert!(quiet.empty_per_second > 0.0 && quiet.empty_per_second < 0.1, "{quiet:?}");
        // Seeks: with none in total, none here; with a million samples, half of them here, half of
        // the rate.
        assert_eq!(seeks_per_second(Probes::ZERO, window, 0.1), 0.0);
        let window = LookupWindow { seeks: 1e6, seeks_per_second: 1000.0, ..window };
        let seeks = seeks_per_second(Probes::ZERO.with_seeks(500_000.0), window, 0.1);
        assert!((seeks / 500.0 - 1.0).abs() < 1e-3, "{seeks}");
        // With seeks only, filters have a small value, also when the rate is nearly 0.
        let seeking = LookupWindow { lookups_per_second: 0.0, ..window };
        let rested = LookupWindow { seeks_per_second: 1e-9, ..seeking };
        assert!(per_second(seeking) > 0.0 && per_second(seeking) < seeking.seeks_per_second / 100.0);
        assert!(per_second(rested) > 0.0 && per_second(rested) < rested.seeks_per_second / 100.0);
        assert_eq!(per_second(LookupWindow::default()), 1.0);
        // Few samples: the prior of uniform keys dominates.
        let seeks = seeks_per_second(Probes::ZERO, LookupWindow { seeks: 1.0, ..window }, 0.1);
        assert!((seeks / 100.0 - 1.0).abs() < 0.01, "{seeks}");
    }

    #[test]
    fn modules_are_fetched_as_far_as_they_pay_and_may_be_skipped() {
        // 900, 90 and 9 ns per second for 1,000 bytes each.
        for (gain, full) in [(0.0, 0b111), (0.01, 0b11), (0.5, 0b1), (2.0, 0)] {
            let worth = |skipping| worth_fetching(skipping, &file(1.0), (1.0, gain));
            assert_eq!(worth(Skipping::Full), full, "{gain}");
            assert_eq!(worth(Skipping::Partial), full | 1, "{gain}");
            assert_eq!(worth(Skipping::None), 0b111, "{gain}");
        }
        // Half of the keys are there: two probes reach the first module, 1.1 the second.
        for (fetch_ns, full) in [(0.0, 0b111), (80.0, 0b11), (400.0, 0b1), (500.0, 0)] {
            for slices_read in [1.0, 0.5] {
                // Cache misses are read, slices and partitions alike.
                let (fetch, index_ns) = (ReadPrice::fixed(fetch_ns / slices_read), 500.0 / slices_read);
                let file = FileMemory { fetch, index_ns, ..file(1.0) };
                assert_eq!(worth_fetching(Skipping::Full, &file, (slices_read, 0.0)), full, "{fetch_ns}");
            }
        }
        assert_eq!([0, 1, 2, 8].map(mask_of), [0, 0b1, 0b11, 0xff]);
        assert_eq!(Skipping::ALL.map(|skipping| must_be_asked(skipping, 2)), [2, 1, 0]);
        assert_eq!(must_be_asked(Skipping::Partial, 0), 0);
    }
}
