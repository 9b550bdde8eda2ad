//! JSON objects that more than one command prints.
//!
//! Every object that a command prints has a `schema` field; `docs/json.md` describes them all.
//! Removing a field or changing its meaning requires a new schema number.

use serde_json::{Value, json};
use shamba::inspect::{Ending, LogDescription, ModuleShape, TableDescription, ValueFileDescription};
use shamba::{
    Action, Db, Explanation, Fifo, LevelMemory, MemoryReport, ModuleStep, Outcome, Place, PrefixExplanation,
    Problem, Reads, ReadsByKind, Stats, Step,
};

use crate::text::{Notation, escape};

/// The design of a database.
pub fn design(db: &Db) -> Value {
    let design = db.design();
    json!({
        "policy": design.policy().map(|policy| policy.to_string()),
        "size_ratio": design.size_ratio,
        "inner_runs": design.inner_runs,
        "last_runs": design.last_runs,
        "write_buffer_bytes": design.buffer_bytes,
        "memtable_bytes": db.memory().memtable_bytes,
        "bits_per_key": design.bits_per_key,
    })
}

/// The limits of a FIFO keyspace.
pub fn fifo(fifo: &Fifo) -> Value {
    let max_age_ms = fifo.max_age().map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    json!({ "max_bytes": fifo.max_bytes(), "max_age_ms": max_age_ms })
}

/// The options in force, by name.
pub fn options(db: &Db) -> Value {
    db.options().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// The levels of the tree.
pub fn levels(stats: &Stats) -> Value {
    let levels = stats.levels.iter().map(|level| {
        json!({
            "level": level.level,
            "runs": level.runs,
            "tables": level.tables,
            "bytes": level.bytes,
            "capacity_bytes": level.capacity_bytes,
            "entries": level.entries,
            "deletes": level.deletes,
            "range_deletes": level.range_deletes,
            "filter_bytes": level.filter_bytes,
            "bits_per_key": level.bits_per_key,
            "bits_per_key_wanted": level.bits_per_key_wanted,
            "bits_per_key_resident": level.bits_per_key_resident,
            "tables_with_stale_filters": level.tables_with_stale_filters,
            "tables_misfit": level.tables_with_stale_filters,
            "empty_probes_per_s": level.empty_probes_per_s,
            "found_probes_per_s": level.found_probes_per_s,
        })
    });
    Value::Array(levels.collect())
}

/// Totals of the lookup counters.
pub fn lookup_counters(stats: &Stats) -> Value {
    json!({
        "lookups": stats.lookups,
        "found": stats.found,
        "memtable_hits": stats.memtable_hits,
        "record_hits": stats.record_hits,
        "hashes": stats.hashes,
        "filters_consulted": stats.filters_consulted,
        "modules_tested": stats.modules_tested,
        "false_positives": stats.false_positives,
        "filter_reads": stats.reads.filter.count,
        "filter_hits": stats.filter_hits,
        "modules_skipped": stats.modules_skipped,
        "index_reads": stats.reads.index.count,
        "data_reads": stats.reads.data.count,
        "cache_hits": stats.cache_hits,
        "reads": reads(&stats.reads),
        "table_opens": stats.table_opens,
        "range_reads": reads(&stats.range_reads),
        "range_cache_hits": stats.range_cache_hits,
        "range_values": stats.range_values,
        "range_value_reads": stats.range_value_reads,
        "prefix_filters": stats.prefix_filters,
        "prefix_runs_skipped": stats.prefix_runs_skipped,
    })
}

/// Reads from files by kind: number, bytes and pages.
pub fn reads(reads: &ReadsByKind) -> Value {
    let of = |reads: Reads| {
        json!({
            "reads": reads.count,
            "bytes": reads.bytes,
            "pages": reads.pages,
            "pages_touched": reads.pages_touched,
        })
    };
    json!({
        "filter": of(reads.filter),
        "index": of(reads.index),
        "data": of(reads.data),
        "value": of(reads.value),
    })
}

/// Memory by part.
pub fn memory(report: &MemoryReport) -> Value {
    let parts: serde_json::Map<String, Value> =
        report.parts.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
    json!({
        "budget_bytes": report.budget_bytes,
        "budget_target_bytes": report.budget_target_bytes,
        "budget_total_bytes": report.budget_total_bytes,
        "ledger_bytes": report.ledger_bytes,
        "peak_bytes": report.peak_bytes,
        "rss_bytes": report.rss_bytes,
        "parts": parts,
        "levels": report.levels.iter().map(level_memory).collect::<Vec<_>>(),
        "prices": {
            "filter_gain_per_byte": report.prices.filter_gain_per_byte,
            "filter_loss_per_byte": report.prices.filter_loss_per_byte,
            "filter_useful_bytes": report.prices.filter_useful_bytes,
            "model_cost_ns_per_second": report.prices.model_cost_ns_per_second,
            "model_reads_per_lookup": report.prices.model_reads_per_lookup,
            "ideal_reads_per_lookup": report.prices.ideal_reads_per_lookup,
            "fewest_reads_per_lookup": report.prices.ideal_reads_per_lookup,
        },
    })
}

fn level_memory(level: &LevelMemory) -> Value {
    let module = |(held, all): &(u64, u64)| json!({ "slices_held": held, "slices": all });
    json!({
        "keyspace": level.keyspace,
        "level": level.level,
        "tables": level.tables,
        "filter_held_bytes": level.filter_held_bytes,
        "filter_dormant_bytes": level.filter_dormant_bytes,
        "filter_resting_bytes": level.filter_dormant_bytes,
        "filter_bytes": level.filter_bytes,
        "modules": level.modules.iter().map(module).collect::<Vec<_>>(),
        "index_held_bytes": level.index_held_bytes,
        "partitions_held": level.partitions.0,
        "partitions": level.partitions.1,
    })
}

/// A damaged place.
pub fn problem(problem: &Problem) -> Value {
    json!({
        "file": problem.file.display().to_string(),
        "offset": problem.offset,
        "structure": problem.structure,
        "detail": problem.detail,
        "affected": problem.affected,
    })
}

/// Adds the fields of `more` to the object `object`.
pub fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// One lookup with its steps.
pub fn explanation(explanation: &Explanation, notation: Notation) -> Value {
    let steps: Vec<Value> = explanation.steps.iter().map(step).collect();
    let (outcome, value) = match &explanation.outcome {
        Outcome::Found { value } => ("found", Some(notation.show(value))),
        Outcome::Deleted => ("deleted", None),
        Outcome::Absent => ("absent", None),
        _ => ("other", None),
    };
    json!({
        "schema": "shamba.explain/1",
        "key": notation.show(&explanation.key),
        "digest": format!("{:016x}", explanation.digest),
        "sequence": explanation.sequence,
        "range_delete_floor": explanation.range_delete_floor,
        "steps": steps,
        "outcome": outcome,
        "value": value,
        "hashes": explanation.hashes,
        "filters_consulted": explanation.filters,
        "false_positives": explanation.false_positives,
        "modules_skipped": explanation.modules_skipped,
        "filter_reads": explanation.reads.filter.count,
        "index_reads": explanation.reads.index.count,
        "data_reads": explanation.reads.data.count,
        "reads": reads(&explanation.reads),
    })
}

/// The runs that a scan of a prefix reads and leaves out.
pub fn prefix_explanation(explanation: &PrefixExplanation, notation: Notation) -> Value {
    let steps: Vec<Value> = explanation.steps.iter().map(step).collect();
    json!({
        "schema": "shamba.explain-prefix/1",
        "prefix": notation.show(&explanation.prefix),
        "sequence": explanation.sequence,
        "steps": steps,
        "runs": explanation.runs,
        "runs_skipped": explanation.runs_skipped,
        "skipped_with_range_tombstones": explanation.skipped_with_range_tombstones,
        "hashes": explanation.hashes,
        "filters_consulted": explanation.filters,
        "modules_skipped": explanation.modules_skipped,
        "reads": reads(&explanation.reads),
    })
}

fn module(module: &ModuleStep) -> Value {
    match module {
        ModuleStep::Held { module, maybe } => json!({ "module": module, "done": "asked", "maybe": maybe }),
        ModuleStep::Fetched { module, maybe, read } => {
            json!({ "module": module, "done": if *read { "read" } else { "fetched" }, "maybe": maybe })
        }
        ModuleStep::Skipped { module, why } => {
            json!({ "module": module, "done": "skipped", "why": why.to_string() })
        }
        _ => json!({ "done": "other" }),
    }
}

fn step(step: &Step) -> Value {
    let place = match &step.place {
        Place::Memtable { number } => json!({ "place": "memtable", "memtable": number }),
        Place::Records => json!({ "place": "record cache" }),
        Place::Operator => json!({ "place": "merge operator" }),
        Place::Clock => json!({ "place": "clock" }),
        Place::ValueFile { file } => json!({ "place": "value file", "file": file }),
        Place::Run { level, run } => json!({ "place": "run", "level": level, "run": run }),
        Place::Table { level, run, table } => {
            json!({ "place": "table", "level": level, "run": run, "table": table })
        }
        _ => json!({ "place": "other" }),
    };
    let action = match &step.action {
        Action::MemtableSearched { entries } => json!({ "action": "memtable searched", "entries": entries }),
        Action::RecordFound => json!({ "action": "record found" }),
        Action::Folded { operands, has_base, operator } => json!({
            "action": "operands folded", "operands": operands, "has_base": has_base, "operator": operator,
        }),
        Action::Expired { expiry_ms, now_ms } => {
            json!({ "action": "expired", "expiry_ms": expiry_ms, "now_ms": now_ms })
        }
        Action::ValueRead { offset, bytes, reads, ns } => json!({
            "action": "value read", "offset": offset, "bytes": bytes, "reads": reads, "ns": ns,
        }),
        Action::OutOfRange => json!({ "action": "out of range" }),
        Action::OutOfPrefix => json!({ "action": "out of prefix" }),
        Action::Closed => json!({ "action": "closed" }),
        Action::NoPrefixes => json!({ "action": "no prefixes" }),
        Action::PrefixNotFixed { extractor } => {
            json!({ "action": "prefix not fixed", "extractor": extractor.to_string() })
        }
        Action::NoFilter => json!({ "action": "no filter" }),
        Action::FilterProbed { maybe, modules } => {
            let modules: Vec<Value> = modules.iter().map(module).collect();
            json!({ "action": "filter probed", "maybe": maybe, "modules": modules })
        }
        Action::FilterSkipped { modules } => {
            let modules: Vec<Value> = modules.iter().map(module).collect();
            json!({ "action": "filter skipped", "modules": modules })
        }
        Action::TableSearched { data_reads, cache_hits, index_reads, ns, .. } => json!({
            "action": "table searched", "data_reads": data_reads, "cache_hits": cache_hits,
            "index_reads": index_reads, "ns": ns,
        }),
        _ => json!({ "action": "other" }),
    };
    let found = step
        .found
        .map(|(sequence, tombstone)| json!({ "found_sequence": sequence, "found_tombstone": tombstone }));
    with(with(place, action), found.unwrap_or_else(|| json!({})))
}

/// A table file.
pub fn table(table: &TableDescription) -> Value {
    let summary = &table.summary;
    let sections: Vec<Value> = table
        .sections
        .iter()
        .map(|section| {
            json!({ "section": section.kind.name(), "offset": section.offset, "bytes": section.bytes })
        })
        .collect();
    let blocks: Vec<Value> = table
        .blocks
        .iter()
        .map(|block| {
            json!({
                "offset": block.offset,
                "bytes": block.bytes,
                "payload_bytes": block.payload_bytes,
                "entries": block.entries,
                "first_key": escape(&block.first_key),
                "layout": block.layout,
                "compression": block.compression.to_string(),
            })
        })
        .collect();
    let filter = table.filter.as_ref().map(|filter| {
        let module = |module: &ModuleShape| {
            json!({
                "probes": module.probes(),
                "slices": module.slices(),
                "slice_bytes": module.slice_bytes(),
            })
        };
        let modules: Vec<Value> = filter.modules().iter().map(module).collect();
        json!({ "family": filter.family().name(), "modules": modules })
    });
    let tombstones: Vec<Value> = table
        .range_tombstones
        .iter()
        .map(|tombstone| {
            json!({
                "start": escape(&tombstone.start),
                "end": tombstone.end.as_ref().map(|end| escape(end)),
                "sequence": tombstone.seq.0,
            })
        })
        .collect();
    let value_files: Vec<Value> = summary
        .value_uses
        .iter()
        .map(|one| {
            json!({
                "number": one.file.0,
                "birth": format!("{:016x}", one.birth.0),
                "values": one.values,
                "stored_bytes": one.bytes,
            })
        })
        .collect();
    json!({
        "schema": "shamba.table/1",
        "file": table.path.display().to_string(),
        "version": table.version,
        "optional_features": table.optional_features,
        "table": table.table.0,
        "birth": format!("{:016x}", summary.birth.0),
        "digest": table.digest.to_string(),
        "digest_seed": format!("{:016x}", table.seed),
        "file_bytes": summary.file_bytes,
        "entries": summary.entries,
        "deletes": summary.deletes,
        "range_deletes": summary.range_deletes,
        "smallest": escape(&summary.smallest),
        "upper": summary.upper.as_ref().map(|upper| escape(upper)),
        "smallest_sequence": summary.smallest_seq.0,
        "largest_sequence": summary.largest_seq.0,
        "key_bytes": summary.raw_key_bytes,
        "value_bytes": summary.raw_value_bytes,
        "bits_per_key": summary.bits_per_key,
        "compression": table.compression.to_string(),
        "dictionary_bytes": table.dictionary_bytes,
        "block_bytes": table.block_bytes,
        "filter": filter,
        "sections": sections,
        "range_tombstones": tombstones,
        "blocks": blocks,
        "operands": table.operands,
        "expiring": summary.expiring.map_or(0, |expiring| expiring.count),
        "prefix_extractor": table.prefix.map(|prefix| prefix.to_string()),
        "filter_prefixes": table.filter_prefixes,
        "value_files": value_files,
        "warnings": table.warnings,
    })
}

/// A value file.
pub fn value_file(file: &ValueFileDescription) -> Value {
    let chunks: Vec<Value> = file
        .chunks
        .iter()
        .map(|chunk| {
            json!({
                "offset": chunk.offset,
                "bytes": chunk.bytes,
                "piece_bytes": chunk.piece_bytes,
                "compression": chunk.compression.to_string(),
            })
        })
        .collect();
    json!({
        "schema": "shamba.value-file/1",
        "file": file.path.display().to_string(),
        "version": file.version,
        "optional_features": file.optional_features,
        "number": file.number.0,
        "birth": format!("{:016x}", file.birth.0),
        "keyspace_number": file.keyspace,
        "compression": file.compression.to_string(),
        "piece_bytes": file.chunk_bytes,
        "file_bytes": file.file_bytes,
        "values": file.values,
        "payload_bytes": file.payload_bytes,
        "stored_bytes": file.stored_bytes,
        "fingerprints": format!("{:016x}", file.fingerprints),
        "chunks": chunks,
    })
}

/// A framed file: a log or a manifest.
pub fn log(schema: &str, log: &LogDescription) -> Value {
    let records: Vec<Value> = log
        .records
        .iter()
        .map(|record| {
            let fields: Vec<Value> =
                record.fields.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            json!({
                "offset": record.offset,
                "bytes": record.bytes,
                "frames": record.frames,
                "kind": record.kind,
                "promise": record.promise,
                "fields": fields,
            })
        })
        .collect();
    let ending = match &log.ending {
        Ending::Clean => json!({ "kind": "clean" }),
        Ending::Open => json!({ "kind": "open" }),
        Ending::Torn { offset, bytes, detail } => {
            json!({ "kind": "torn", "offset": offset, "bytes": bytes, "detail": detail })
        }
        Ending::Corrupt { offset, detail } => {
            json!({ "kind": "corrupt", "offset": offset, "detail": detail })
        }
        _ => json!({ "kind": "other" }),
    };
    json!({
        "schema": schema,
        "file": log.file.display().to_string(),
        "number": log.number,
        "birth": format!("{:016x}", log.birth),
        "optional_features": log.optional_features,
        "bytes": log.bytes,
        "promise": log.promise,
        "records": records,
        "ending": ending,
    })
}
