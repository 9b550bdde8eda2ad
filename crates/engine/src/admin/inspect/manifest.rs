//! Descriptions of the edits of a manifest.

use std::path::Path;

use shamba_env::Env;

use super::{EDIT, Fields, LogDescription, describe_file, escaped};
use crate::error::{Error, ErrorKind, Result};
use shamba_log::framing::{FileKind, RecordKind};
use shamba_tree::version::current::{CURRENT, read_current};
use shamba_tree::version::manifest::codec::{EditFault, decode_edit};
use shamba_tree::version::manifest::load::no_database_without_current;
use shamba_tree::version::manifest::{ManifestState, manifest_file_name};
use shamba_tree::version::{Change, HistoryEntry, KeyRange, ManifestEdit, ValueFiles, ValueUse, ValueUses};

/// Describes the manifest at `path`; if `path` is a database directory, its current manifest.
///
/// # Errors
/// `Corruption` if `CURRENT` or the file header is damaged, if a database has no `CURRENT`, or if
/// the manifest that it names is missing (later damage is in [`LogDescription::ending`]).
/// `Unsupported` for a newer version, `NotFound` if there is no database, or a failed read.
pub fn manifest_file(env: &Env, path: &Path) -> Result<LogDescription> {
    // Only a directory can be listed.
    if env.vfs.list(path).is_err() {
        return describe_manifest(env, path);
    }
    let Some(current) = read_current(env, path)? else {
        no_database_without_current(env, path)?;
        return Err(Error::no_database(path, "the directory contains none"));
    };
    let file = path.join(manifest_file_name(current.number));
    if let Ok(false) = env.vfs.exists(&file) {
        let detail = format!("{CURRENT} names it, but it is missing");
        return Err(Error::corruption(&file, 0, "manifest", detail));
    }
    let described = describe_manifest(env, &file)?;
    if described.birth != current.birth.0 {
        let detail = format!("{CURRENT} names another file of that name");
        return Err(Error::corruption(&file, 0, FileKind::Manifest.header_structure(), detail));
    }
    Ok(described)
}

fn describe_manifest(env: &Env, path: &Path) -> Result<LogDescription> {
    // Edits are also applied: an edit that does not fit the state before it is damage that no
    // checksum reveals.
    let (mut state, mut value_files) = (ManifestState::default(), ValueFiles::default());
    describe_file(env, path, FileKind::Manifest, &mut |_, record, _| match record.kind {
        RecordKind::Promise => Ok(Ok(("promise", Vec::new()))),
        RecordKind::End => Ok(Ok(("end", Vec::new()))),
        RecordKind::Head => Ok(Err("a log's head in a manifest".to_owned())),
        RecordKind::Data => match decode_edit(&record.payload, &mut value_files) {
            Ok(edit) => {
                let fits =
                    state.apply(&edit).map_err(|detail| format!("inconsistent with earlier edits: {detail}"));
                Ok(fits.map(|()| (EDIT, fields(&edit))))
            }
            Err(EditFault::Malformed(detail)) => Ok(Err(detail)),
            Err(EditFault::Unsupported(detail)) => {
                Err(Error::new(ErrorKind::Unsupported, format!("{}: {detail}", path.display())))
            }
        },
    })
}

fn fields(edit: &ManifestEdit) -> Fields {
    let mut fields = Fields::new();
    let pair = |(name, value): &(String, String)| format!("{name}={value}");
    for setting in &edit.settings {
        fields.push(("setting", pair(setting)));
    }
    for (id, name, settings) in &edit.keyspaces_created {
        let settings: Vec<String> = settings.iter().map(pair).collect();
        fields.push((
            "keyspace_created",
            format!("[{id}] {name:?} {}", settings.join(" ")).trim_end().to_owned(),
        ));
    }
    for (id, settings) in &edit.keyspace_settings {
        let settings: Vec<String> = settings.iter().map(pair).collect();
        fields.push(("keyspace_settings", format!("[{id}] {}", settings.join(" "))));
    }
    for (id, name) in &edit.merge_operators {
        fields.push(("merge_operator", format!("[{id}] {name:?}")));
    }
    for (id, name) in &edit.compaction_filters {
        let name = name.as_ref().map_or_else(|| "none".to_owned(), |name| format!("{name:?}"));
        fields.push(("compaction_filter", format!("[{id}] {name}")));
    }
    for id in &edit.keyspaces_dropped {
        fields.push(("keyspace_dropped", format!("[{id}]")));
    }
    for file in &edit.value_files {
        let (id, birth) = (file.id, file.birth);
        fields.push((
            "value_file",
            format!("{id} {} bytes, {} values, birth {birth}", file.file_bytes, file.values),
        ));
    }
    for version in &edit.versions {
        let keyspace = version.keyspace;
        fields.extend(version.changes.iter().map(|change| tree_change(keyspace.0, change)));
    }
    for (id, seq) in &edit.flushed {
        fields.push(("flushed", format!("[{id}] @{seq}")));
    }
    if let Some(unix_ms) = edit.time_ms {
        fields.push(("time", format!("{unix_ms} ms")));
    }
    if let Some(log) = edit.first_log {
        fields.push(("first_log", log.to_string()));
    }
    if let Some((log, offset)) = edit.log_promise {
        fields.push(("log_promise", format!("log {log} below {offset}")));
    }
    if let Some(seq) = edit.last_seq {
        fields.push(("last_sequence", seq.to_string()));
    }
    if let Some(id) = edit.next_id {
        fields.push(("next_id", id.to_string()));
    }
    fields.extend(edit.history.iter().map(history_entry));
    fields
}

fn history_entry(entry: &HistoryEntry) -> (&'static str, String) {
    match entry {
        HistoryEntry::Opened { log, after, seq, is_epoch } => {
            let before = if after.0 == 0 { String::new() } else { format!(" after log {after}") };
            let epoch = if *is_epoch { ", a new epoch" } else { "" };
            ("opened", format!("log {log}{before} @{seq}{epoch}"))
        }
        HistoryEntry::Ingested { seq, keyspace, entries, first, last } => {
            let range = format!("{}..={}", escaped(first), escaped(last));
            ("ingested", format!("[{keyspace}] @{seq} {entries} entries {range}"))
        }
        HistoryEntry::Created { seq, keyspace, name } => ("created", format!("[{keyspace}] @{seq} {name:?}")),
        HistoryEntry::Dropped { seq, keyspace, name } => ("dropped", format!("[{keyspace}] @{seq} {name:?}")),
        HistoryEntry::Obsolete { below, last, seq, unix_ms } => {
            ("obsolete", format!("logs below {below} since {unix_ms} ms, the last one {last} @{seq}"))
        }
    }
}

fn tree_change(keyspace: u32, change: &Change) -> (&'static str, String) {
    match change {
        Change::Add { level, run, age, table } => {
            let meta = &table.meta;
            let mut text = format!(
                "[{keyspace}] L{level} r{run}@{age} {} {} {} of {} bytes, {} entries, @{}..={}, birth {}",
                meta.id,
                shown_range(&table.range),
                table.live_bytes,
                meta.file_bytes,
                meta.entries,
                meta.smallest_seq,
                meta.largest_seq,
                meta.birth,
            );
            if let Some(unix_ms) = meta.oldest_tombstone.unix_ms() {
                text += &format!(", oldest tombstone {unix_ms} ms");
            }
            if let Some(expiring) = meta.expiring.get() {
                let (count, first, last) = (expiring.count, expiring.first().0, expiring.last().0);
                text += &format!(", {count} expire from {first} to {last} ms");
            }
            let of_table = meta.values.get();
            if !of_table.is_empty() {
                text += &format!(", values {}", value_uses(of_table));
            }
            if table.values != *of_table {
                text += &format!(", of these in use {}", value_uses(&table.values));
            }
            ("add", text)
        }
        Change::Remove { level, run, table } => ("remove", format!("[{keyspace}] L{level} r{run} {table}")),
        Change::Narrow { level, run, table, range, live_bytes, values } => {
            let mut text =
                format!("[{keyspace}] L{level} r{run} {table} {} {live_bytes} bytes", shown_range(range));
            if !values.is_empty() {
                text += &format!(", values {}", value_uses(values));
            }
            ("narrow", text)
        }
    }
}

/// References to value files.
fn value_uses(values: &ValueUses) -> String {
    if values.is_empty() {
        return "none".to_owned();
    }
    let of_file = |of: &ValueUse| format!("{} of {} bytes in {}", of.values, of.bytes, of.file.id);
    values.files().iter().map(of_file).collect::<Vec<_>>().join(" and ")
}

fn shown_range(range: &KeyRange) -> String {
    let upper = range.upper.as_deref().map_or_else(String::new, escaped);
    format!("{}..{upper}", escaped(&range.lower))
}
