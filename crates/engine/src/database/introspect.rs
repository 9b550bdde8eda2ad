//! The current state of the database: statistics per level, the text of the tree, and the check of
//! invariants.

use std::fmt::Write as _;
use std::sync::Arc;

use super::core::Core;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::metrics::{LevelStats, Stats, TableStats};
use crate::residency;
use shamba_tree::compaction::schedule::oldest_tombstone_age_ms;
use shamba_tree::statistics::{LookupWindow, Probes};
use shamba_tree::version::{Run, Version};

/// The counters of the database, with the levels of `keyspace`.
pub(super) fn stats(core: &Core, keyspace: &Arc<KeyspaceCore>) -> Stats {
    let mut stats = Stats::from_counters(core.telemetry.lookups(), core.telemetry.work());
    stats.record_hits = core.reads.records().asked().0.hits;
    let view = keyspace.load_full();
    let capacities = core.scheduler.rules_in(keyspace, false).capacities(&view.version);
    let capacity_bytes = |level| if level == 0 { 0 } else { capacities.level_bytes(level) };
    let window = keyspace.statistics().window(core.env.clock.now_us());
    let wanted = shamba_tree::allocation::wanted(core.filter_bits.rule(keyspace), &view.version);
    let mut wanted = wanted.into_iter();
    let levels = view.version.levels();
    stats.levels = levels
        .map(|(level, runs)| level_stats(level, capacity_bytes(level), runs, window, &mut wanted))
        .collect();
    debug_assert!(wanted.next().is_none(), "filter bits of a table are in no level");
    stats.deepest_level = view.version.deepest_level();
    stats.runs = view.version.run_count() as u64;
    stats.emulated = core.env.vfs.is_emulated();
    stats.debt_bytes = core.scheduler.debt_bytes();
    stats.unsynced_bytes = core.writer.unsynced_bytes();
    stats.kept_log_bytes = core.catalog.logs().kept_bytes();
    stats.iterators_revoked = core.reads.iterators().revoked();
    let walked = core.reads.iterators().walked();
    (stats.ranges, stats.range_entries) = (walked.ranges, walked.entries);
    stats.range_reads = walked.reads.into();
    stats.range_reads.value = stats.range_reads.value.plus(walked.values.reads);
    stats.range_cache_hits = walked.reads.cache_hits;
    (stats.range_values, stats.range_value_reads) = (walked.values.values, walked.values.reads.count);
    (stats.prefix_filters, stats.prefix_runs_skipped) = (walked.filters, walked.runs_skipped);
    stats.obsolete_files = core.catalog.obsolete_files() as u64;
    if core.memory.has_closed_tables() {
        stats.table_opens = core.table_files.opener().opened_once();
        stats.tables_closed = closed_tables(&core.catalog);
    }
    let now_ms = core.env.clock.unix_ms();
    for keyspace in core.catalog.keyspaces().values() {
        let version = Arc::clone(&keyspace.load().version);
        let passed = version.tables().map(|(_, _, table)| table.meta.statistics.tombstones_passed());
        stats.tombstones_passed += passed.sum::<u64>();
        let values = version.value_totals();
        stats.value_files += values.files().len() as u64;
        stats.value_bytes += values.file_bytes();
        stats.value_bytes_live += values.bytes();
        let age_ms = oldest_tombstone_age_ms(&version, now_ms);
        stats.oldest_tombstone_age_ms = stats.oldest_tombstone_age_ms.max(age_ms);
    }
    stats.with_old_names()
}

/// Number of tables that the memory budget keeps closed.
fn closed_tables(catalog: &Catalog) -> u64 {
    let views: Vec<_> = catalog.keyspaces().values().map(|keyspace| keyspace.load_full()).collect();
    let tables = views.iter().flat_map(|view| view.version.tables());
    tables.filter(|(_, _, table)| table.meta.reader.get().is_none()).count() as u64
}

/// The tables of `keyspace`, newest run first.
pub(super) fn tables(keyspace: &Arc<KeyspaceCore>) -> Vec<TableStats> {
    let view = keyspace.load_full();
    let mut tables = Vec::new();
    for (run, (level, of_run)) in (0..).zip(view.version.runs()) {
        for table in of_run.tables() {
            let Ok(reader) = table.meta.open() else { continue };
            let entries = table.meta.entries;
            tables.push(TableStats {
                level,
                run,
                entries,
                lower: table.range.lower.clone().max(table.meta.smallest.clone()).to_vec(),
                upper: match (&table.range.upper, &table.meta.upper) {
                    (Some(of_use), Some(of_table)) => Some(of_use.min(of_table).to_vec()),
                    (of_use, of_table) => of_use.as_ref().or(of_table.as_ref()).map(|key| key.to_vec()),
                },
                bits_per_key: table.meta.bits_per_key,
                false_positive_rate: residency::module_rates(&reader, entries).into_iter().product(),
            });
        }
    }
    tables
}

/// The statistics of one level. `wanted` yields the target bits per key of its tables, and then
/// those of the levels below it.
fn level_stats(
    level: u32,
    capacity_bytes: u64,
    runs: &[Arc<Run>],
    window: LookupWindow,
    wanted: &mut impl Iterator<Item = f64>,
) -> LevelStats {
    let mut stats = LevelStats { level, capacity_bytes, runs: runs.len() as u64, ..LevelStats::default() };
    let (mut bits, mut bits_wanted) = (0.0, 0.0);
    let mut probes = Probes::ZERO;
    for table in runs.iter().flat_map(|run| run.tables()) {
        let meta = &table.meta;
        stats.tables += 1;
        stats.bytes += table.live_bytes;
        stats.entries += meta.entries;
        stats.deletes += meta.deletes;
        stats.range_deletes += meta.range_deletes;
        let filter = meta.reader.get().and_then(|reader| reader.filter());
        stats.filter_bytes += filter.map_or(0, |filter| filter.held_bytes());
        probes += meta.statistics.probes();
        let table_wanted = wanted.next().unwrap_or(meta.bits_per_key);
        stats.tables_with_stale_filters +=
            u64::from(shamba_tree::allocation::is_stale(meta.bits_per_key, table_wanted));
        bits += meta.bits_per_key * meta.entries as f64;
        bits_wanted += table_wanted * meta.entries as f64;
    }
    stats.empty_probes_per_s = window.per_second(probes.empty);
    stats.found_probes_per_s = window.per_second(probes.found);
    let per_key = |bits: f64| if stats.entries == 0 { 0.0 } else { bits / stats.entries as f64 };
    let (written, wanted) = (per_key(bits), per_key(bits_wanted));
    let resident = per_key(stats.filter_bytes as f64 * 8.0);
    stats.bits_per_key = written;
    stats.bits_per_key_wanted = wanted;
    stats.bits_per_key_resident = resident;
    stats
}

/// Text of every keyspace's tree in the notation of versions.
pub(super) fn describe(catalog: &Catalog) -> String {
    let mut text = String::new();
    for keyspace in catalog.keyspaces().values() {
        let view = keyspace.load_full();
        let entries = |count: u64| if count == 1 { "1 entry".into() } else { format!("{count} entries") };
        let memtables: Vec<String> =
            view.memtables.iter().map(|memtable| entries(memtable.entries())).collect();
        let _ = writeln!(text, "keyspace \"{}\"", keyspace.name.escape_default());
        if let Some(merging) = view.merging() {
            let _ = writeln!(text, "merge operator: {:?}", merging.name());
        }
        let _ = writeln!(text, "memtables: {}", memtables.join(", "));
        let _ = writeln!(text, "{}", view.version);
    }
    text
}

/// Checks every tree by reading all entries.
pub(super) fn check_invariants(core: &Core) -> std::result::Result<(), String> {
    for keyspace in core.catalog.keyspaces().values() {
        let version: Arc<Version> = Arc::clone(&keyspace.load().version);
        let checked = version.check().and_then(|()| shamba_tree::version::deep_check(&version));
        // The version above may precede the last compaction.
        let (at_rest, shape) = core.scheduler.check_shape(keyspace);
        let of = |version: &Version, detail: String| format!("{}: {detail}\n{version}", keyspace.name);
        checked.map_err(|detail| of(&version, detail))?;
        shape.map_err(|detail| of(&at_rest, detail))?;
    }
    Ok(())
}
