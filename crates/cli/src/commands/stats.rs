//! `shamba stats DB`: prints the contents of the database and the work of opening it.
//!
//! Counters start at zero with each open, so those of lookups and compactions are mainly for
//! programs that embed the engine. The command shows the work of the open (recovery) and the
//! contents of the files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shamba::{Db, Fifo, Keyspace};

use crate::exit::Failure;
use crate::json;
use crate::keyspace::show_fifo;
use crate::open;
use crate::options::ReaderOptions;
use crate::output::{Out, Table};
use crate::sizes::{show_count, show_size};
use crate::text::escape;

/// Arguments of `stats`.
#[derive(Args)]
pub struct StatsArgs {
    /// The database
    db: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatsArgs, out: &mut Out) -> Result<(), Failure> {
    let db = open::reader(&args.db, &ReaderOptions::default())?;
    // Decides which filters are in memory.
    db.wait_idle()?;
    let stats = db.stats();
    if args.json {
        let object = json!({
            "schema": "shamba.stats/1",
            "sequence": db.sequence(),
            "keyspaces": db.keyspaces(),
            "merge_operators": merge_operators(&db)?.into_iter().collect::<BTreeMap<_, _>>(),
            "keyspace_options": own_options(&db)?,
            "prefix_extractors": prefix_extractors(&db)?.into_iter().collect::<BTreeMap<_, _>>(),
            "compaction_filters": compaction_filters(&db)?.into_iter().collect::<BTreeMap<_, _>>(),
            "fifo": fifo(&db)?.iter().map(|(name, fifo)| (name, json::fifo(fifo))).collect::<BTreeMap<_, _>>(),
            "design": json::design(&db),
            "options": json::options(&db),
            "deepest_level": stats.deepest_level,
            "runs": stats.runs,
            "debt_bytes": stats.debt_bytes,
            "unsynced_bytes": stats.unsynced_bytes,
            "kept_log_bytes": stats.kept_log_bytes,
            "value_files": stats.value_files,
            "value_bytes": stats.value_bytes,
            "value_bytes_live": stats.value_bytes_live,
            "tables_closed": stats.tables_closed,
            "oldest_tombstone_age_ms": stats.oldest_tombstone_age_ms,
            "levels": json::levels(&stats),
            "writes": {
                "puts": stats.puts,
                "deletes": stats.deletes,
                "range_deletes": stats.range_deletes,
                "merge_operations": stats.merge_operations,
                "batches": stats.batches,
                "bytes_user": stats.bytes_user,
            },
            "work": {
                "bytes_written": stats.bytes_written(),
                "bytes_wal": stats.bytes_wal,
                "bytes_flushed": stats.bytes_flushed,
                "bytes_compacted": stats.bytes_compacted,
                "bytes_merged": stats.bytes_compacted,
                "bytes_values_written": stats.bytes_values_written,
                "flushes": stats.flushes,
                "compactions": stats.compactions,
                "merges": stats.compactions,
                "tombstone_compactions": stats.tombstone_compactions,
                "entries_expired": stats.entries_expired,
                "dictionary_compactions": stats.dictionary_compactions,
                "entries_filtered": stats.entries_filtered,
                "trivial_moves": stats.trivial_moves,
                "tables_dropped": stats.tables_dropped,
                "stalls": stats.stalls,
                "stall_us": stats.stall_us,
                "wal_syncs": stats.wal_syncs,
            },
            "reads": json::lookup_counters(&stats),
        });
        return out.json(&object);
    }
    let design = db.design();
    let policy = design.policy().map_or("custom".to_string(), |policy| policy.to_string());
    let mut facts = Table::plain().left([1]);
    facts.row(["sequence number", &show_count(db.sequence())]);
    let names: Vec<String> = db.keyspaces().iter().map(|name| escape(name.as_bytes()).into_owned()).collect();
    facts.row(["keyspaces", &names.join(", ")]);
    for (keyspace, operator) in merge_operators(&db)? {
        facts.row(["merge operator", &format!("{operator} (keyspace {keyspace:?})")]);
    }
    for (keyspace, extractor) in prefix_extractors(&db)? {
        facts.row(["prefix extractor", &format!("{extractor} (keyspace {keyspace:?})")]);
    }
    for (keyspace, options) in own_options(&db)? {
        let texts: Vec<_> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        facts.row(["options", &format!("{} (keyspace {keyspace:?})", texts.join(" "))]);
    }
    for (keyspace, filter) in compaction_filters(&db)? {
        facts.row(["compaction filter", &format!("{filter} (keyspace {keyspace:?})")]);
    }
    for (keyspace, fifo) in fifo(&db)? {
        facts.row(["FIFO limits", &format!("{} (keyspace {keyspace:?})", show_fifo(&fifo))]);
    }
    facts.row(["merge policy", &policy]);
    facts.row(["size ratio", &design.size_ratio.to_string()]);
    facts.row(["write buffer", &write_buffer(design.buffer_bytes, db.memory().memtable_bytes)]);
    facts.row(["filter bits per key", &design.bits_per_key.to_string()]);
    facts.row(["runs a lookup may consult", &show_count(stats.runs)]);
    facts.row(["compaction debt", &show_size(stats.debt_bytes)]);
    if let Some(age_ms) = stats.oldest_tombstone_age_ms {
        facts.row(["age of the oldest delete", &format!("{} s", show_count(age_ms / 1_000))]);
    }
    if stats.value_files > 0 {
        facts.row(["value files", &show_count(stats.value_files)]);
        let (live, all) = (show_size(stats.value_bytes_live), show_size(stats.value_bytes));
        facts.row(["values in them", &format!("{live} referenced of {all}")]);
    }
    if stats.tables_closed > 0 {
        facts.row(["closed tables", &show_count(stats.tables_closed)]);
    }
    out.text(facts.to_string())?;
    out.line("")?;
    out.text(levels_table(&stats).to_string())
}

/// The names of keyspaces and of their merge operators.
fn merge_operators(db: &Db) -> Result<Vec<(String, String)>, Failure> {
    of_keyspaces(db, Keyspace::merge_operator)
}

/// The names of keyspaces and of their compaction filters.
fn compaction_filters(db: &Db) -> Result<Vec<(String, String)>, Failure> {
    of_keyspaces(db, Keyspace::compaction_filter)
}

/// The keyspaces that have a property, and that property.
fn of_keyspaces<T>(
    db: &Db,
    property_of: impl Fn(&Keyspace) -> Option<T>,
) -> Result<Vec<(String, T)>, Failure> {
    let mut found = Vec::new();
    for keyspace in db.keyspaces() {
        let property = db.get_keyspace(&keyspace)?.as_ref().and_then(&property_of);
        found.extend(property.map(|property| (keyspace, property)));
    }
    Ok(found)
}

/// The options that keyspaces have for themselves, by the names of both.
fn own_options(db: &Db) -> Result<BTreeMap<String, BTreeMap<&'static str, String>>, Failure> {
    let options = |keyspace: &Keyspace| Some(keyspace.own_options()).filter(|options| !options.is_empty());
    let options = of_keyspaces(db, options)?.into_iter();
    Ok(options.map(|(keyspace, options)| (keyspace, options.into_iter().collect())).collect())
}

/// The names of keyspaces and their FIFO limits.
fn fifo(db: &Db) -> Result<Vec<(String, Fifo)>, Failure> {
    of_keyspaces(db, Keyspace::fifo)
}

/// The names of keyspaces and their prefix extractors.
fn prefix_extractors(db: &Db) -> Result<Vec<(String, String)>, Failure> {
    of_keyspaces(db, |keyspace| keyspace.prefix_extractor().map(|extractor| extractor.to_string()))
}

/// Table of the levels.
pub fn levels_table(stats: &shamba::Stats) -> Table {
    let mut table = Table::new([
        "level", "runs", "tables", "size", "capacity", "entries", "deletes", "filters", "bits/key", "wanted",
    ]);
    for level in &stats.levels {
        let capacity = if level.capacity_bytes == 0 { "-".into() } else { show_size(level.capacity_bytes) };
        table.row([
            level.level.to_string(),
            show_count(level.runs),
            show_count(level.tables),
            show_size(level.bytes),
            capacity,
            show_count(level.entries),
            show_count(level.deletes),
            show_size(level.filter_bytes),
            format!("{:.1}", level.bits_per_key),
            format!("{:.1}", level.bits_per_key_wanted),
        ]);
    }
    table
}

/// The design's write buffer, and the size at which memtables are flushed if memory limits it.
fn write_buffer(design_bytes: u64, memtable_bytes: u64) -> String {
    let stated = show_size(design_bytes);
    if memtable_bytes < design_bytes {
        return format!("{stated}, limited to {} by the memory budget", show_size(memtable_bytes));
    }
    stated
}
