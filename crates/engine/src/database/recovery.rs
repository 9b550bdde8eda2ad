//! Opening a database: from the files that a process left behind to a database that accepts writes.
//!
//! An open takes these steps in order: the lock; the manifest, or a new database; the options,
//! checked against the fixed ones and merged over the recorded ones; the tables; the logs. The logs
//! are replayed into memtables and, unless the open is read-only or the log tail short, written
//! from there to tables ([`rebuild`]). Then a new log is created and synced, which begins with a
//! copy of a short log tail. A new manifest with the result becomes current by one rename. Only
//! then may a write be acknowledged.
//!
//! Undamaged logs whose entries fit in memory need no tables yet: the new log follows them, and the
//! memtables are flushed after the open ([`deferred`]).
//!
//! So a crash at any point of an open leaves either the state before, which recovers in the same
//! way, or the state after. Nothing is ever appended to an old log, and a dropped tail cannot come
//! back.
//!
//! Files that the current manifest does not name are removed at the end; no version needs them.

mod deferred;
mod known_logs;
mod locking;
mod rebuild;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, FileLock};
use shamba_key::SeqNo;
use shamba_table::{TableId, TableValueUse, ValueFileId, parse_table_file_name, parse_value_file_name};

use super::compose::compose;
use super::core::Core;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::database::builder::Builder;
use crate::directory::{file_number, is_stray, sync_names_above};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::{Budget, Member};
use crate::options::fifo::FifoState;
use crate::options::keyspace::rules::fifo_pairs;
use crate::options::settings::Settings;
use crate::statistics::file::STATISTICS_TEMPORARY;
use crate::writer::parse_side_file_name;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::{Predecessor, ReplayReport, WalWriter, log_file_name, parse_log_file_name};
use shamba_tree::version::current::CURRENT_TEMPORARY;
use shamba_tree::version::manifest::{
    ManifestReader, ManifestState, TornEdit, manifest_file_name, parse_manifest_file_name,
};
use shamba_tree::version::{ManifestEdit, OpenTables, Pairs, TableMeta, ValueUse};

use self::known_logs::{known_logs, opened};
use self::locking::lock_directory;
use self::rebuild::{Place, Rebuilt, Tail};

/// Longest wait of an open for its floor in a shared budget; then it begins with what is free.
const FLOOR_WAIT_US: u64 = 2_000_000;
/// Time between two looks at what is free.
const FLOOR_POLL_US: u64 = 5_000;

/// Opens the database that the builder describes.
pub(crate) fn open(builder: Builder) -> Result<Arc<Core>> {
    let env = builder.world()?;
    let file_lock = lock_directory(&env, &builder.path, &builder)?;
    open_locked(builder, env, file_lock)
}

/// Opens the database in a directory whose lock the caller holds.
pub(crate) fn open_locked(builder: Builder, env: Env, file_lock: Box<dyn FileLock>) -> Result<Arc<Core>> {
    let dir = builder.path.clone();
    let loaded = ManifestReader::load(&env, &dir)?;
    let (state, torn) = match loaded {
        Some(loaded) => {
            if builder.given().error_if_exists {
                return Err(Error::invalid(format!("{} is already a database", dir.display())));
            }
            (Some(loaded.state), loaded.torn)
        }
        None if builder.given().read_only || !builder.given().create_if_missing => {
            return Err(Error::no_database(&dir, "the directory contains none"));
        }
        None => {
            // Even if the directory exists: an earlier attempt may have created it and then failed.
            sync_names_above(&env, &dir)?;
            (None, None)
        }
    };
    let vfs = Arc::clone(&env.vfs);
    let opened = open_state(&builder, env, file_lock, state, torn.as_ref());
    opened.map_err(|error| {
        // A file that the lost edits have replaced: the damage is in the manifest.
        let is_missing = error.damage().is_some_and(|damage| matches!(vfs.exists(&damage.file), Ok(false)));
        match torn {
            Some(torn) if is_missing => Error::of_torn_manifest(&torn, error),
            _ => error,
        }
    })
}

/// Opens the database in the state that its manifest records; `None` creates it.
fn open_state(
    builder: &Builder,
    env: Env,
    file_lock: Box<dyn FileLock>,
    state: Option<ManifestState>,
    torn: Option<&TornEdit>,
) -> Result<Arc<Core>> {
    let dir = builder.path.clone();
    let is_new = state.is_none();
    let state = state.map_or_else(|| new_state(&env, builder), Ok)?;
    let mut warnings: Vec<String> = torn.iter().map(ToString::to_string).collect();
    let recorded = Settings::from_pairs(&state.settings)?;
    let settings = settings_of(builder, &recorded)?;
    // A new database has just recorded its creation settings; other given options are recorded as
    // at a later open.
    let given = if settings.record { settings.given_over(&recorded) } else { Vec::new() };
    let files = if is_new { Vec::new() } else { list_files(&env, &dir, state.next_id)? };
    let member = builder.budget.as_ref().map(|budget| join_budget(&env, budget)).transpose()?;
    let core = Arc::new(compose(builder, env, &dir, (settings, member), &state, &files, file_lock)?);
    warnings.extend(open_tables(&core, &state)?);
    date_tombstones(&core, &state);
    core.statistics.load();
    // Windows start here.
    core.workload.observe();
    let (replayed, report) = rebuild::replay_logs(&core, &state, &files)?;
    warnings.extend(report.warnings.iter().map(ToString::to_string));
    let tables: u64 = state.keyspaces.values().map(|keyspace| keyspace.version.tables().count() as u64).sum();
    begin(&core, state, given, replayed, &report, &files, is_new)?;
    for warning in warnings {
        core.telemetry.warn(warning);
    }
    warn_of_missing_filters(&core);
    let path = core.catalog.dir().to_path_buf();
    core.telemetry.emit(Event::Opened { path, tables, replayed_batches: report.batches });
    Ok(core)
}

/// A part of a shared budget, with at least the floor as soon as other databases have made room.
fn join_budget(env: &Env, budget: &Budget) -> Result<Member> {
    let member = budget.join()?;
    let begin_us = env.clock.now_us();
    // Their upkeep threads look several times a second. Without threads nobody makes room now.
    while !member.has_floor()
        && !env.spawner.is_inline()
        && env.clock.now_us().saturating_sub(begin_us) < FLOOR_WAIT_US
    {
        env.clock.sleep_us(FLOOR_POLL_US);
        member.grow();
    }
    Ok(member)
}

/// The initial state of a new database.
fn new_state(env: &Env, builder: &Builder) -> Result<ManifestState> {
    let mut settings = Settings {
        digest_seed: env.rng.next_u64(), // A given seed replaces it.
        ..Settings::default()
    };
    settings = builder.settings_over(settings);
    settings.validate()?;
    let mut state = ManifestState { next_id: 1, ..ManifestState::default() };
    let edit = ManifestEdit {
        settings: settings.created_pairs(),
        keyspaces_created: vec![(KeyspaceId(0), DEFAULT_KEYSPACE.to_owned(), Vec::new())],
        ..ManifestEdit::default()
    };
    state.apply(&edit).map_err(Error::invalid)?;
    Ok(state)
}

/// The settings of this open: fixed ones must agree with the recorded ones, given ones override the
/// recorded ones.
fn settings_of(builder: &Builder, recorded: &Settings) -> Result<Settings> {
    let settings = builder.settings_over(recorded.clone());
    if settings.digest != recorded.digest {
        return Err(Error::invalid(format!(
            "the database was created with digest {}, which cannot be changed to {}",
            recorded.digest, settings.digest
        )));
    }
    if settings.digest_seed != recorded.digest_seed {
        return Err(Error::invalid(format!(
            "the database was created with digest seed {}, which cannot be changed to {}",
            recorded.digest_seed, settings.digest_seed
        )));
    }
    settings.validate()?;
    if builder.budget.is_none() && settings.record_cache_bytes != recorded.record_cache_bytes {
        settings.validate_record_cache()?;
    }
    Ok(settings)
}

/// The names of the files in `dir`, without those that the database cannot have assigned.
fn list_files(env: &Env, dir: &Path, next_id: u64) -> Result<Vec<String>> {
    let mut entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    entries.retain(|entry| !is_stray(&entry.name, next_id));
    if let Some(entry) = entries.iter().find(|entry| entry.is_dir && file_number(&entry.name).is_some()) {
        let path = dir.join(&entry.name);
        return Err(Error::corruption(&path, 0, "file", "a directory is in its place"));
    }
    Ok(entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}

/// Opens every table that the manifest names, so that a missing or damaged one is found here.
/// Tables for which the memory budget has no space are closed again. Returns warnings of filters
/// that cannot be used; damage to parts of others is reported when they are read.
fn open_tables(core: &Core, state: &ManifestState) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let versions = state.keyspaces.values().map(|keyspace| &keyspace.version);
    // Several runs may share a file.
    let metas: BTreeMap<TableId, &TableMeta> = versions
        .flat_map(|version| version.tables().map(|(_, _, table)| (table.meta.id, table.meta.as_ref())))
        .collect();
    let metas: Vec<&TableMeta> = metas.into_values().collect();
    let open = core.memory.tables_to_open(&metas);
    assert_eq!(open.len(), metas.len(), "a table is neither opened nor kept closed");
    for (meta, stays_open) in metas.iter().zip(open) {
        open_value_files(core, meta)?;
        let bounds = (&meta.smallest, meta.upper.as_ref());
        let reader = core.table_files.open(meta.id, meta.birth, bounds, meta.values.get());
        let reader = reader.map_err(|error| missing_table(core, meta.id, error))?;
        warnings.extend(reader.filter_warnings());
        let summary = reader.summary();
        if summary.expiring != meta.expiring.get() && meta.expiring.get().is_some() {
            let (stated, found) = (meta.expiring.get(), summary.expiring);
            let detail = format!("the manifest states the expiring entries {stated:?}, the file {found:?}");
            return Err(Error::corruption(reader.path(), 0, "table", detail));
        }
        meta.older_versions.set(summary.older_versions);
        if summary.expiring.is_some() {
            // Whatever the manifest says.
            core.reads.expiry().begin_use();
        }
        if summary.entries != meta.entries || summary.file_bytes != meta.file_bytes {
            let detail = format!(
                "the manifest states {} entries in {} bytes, the file has {} in {}",
                meta.entries, meta.file_bytes, summary.entries, summary.file_bytes
            );
            return Err(Error::corruption(reader.path(), 0, "table", detail));
        }
        if let Some(detail) = other_values(meta, &summary.value_uses) {
            return Err(Error::corruption(reader.path(), 0, "table", detail));
        }
        match stays_open {
            true => meta.reader.set(reader),
            false => meta.reader.set_opener(Arc::clone(core.table_files.opener()) as Arc<dyn OpenTables>),
        }
    }
    // The parts of tables that are always in memory were charged.
    core.memory.balance();
    // The views were created before their tables were open.
    for keyspace in core.catalog.keyspaces().values() {
        keyspace.publish(|view| view.next(view.memtables.clone(), Arc::clone(&view.version)));
    }
    core.residency.charge_trees();
    // All tables are known now, so residency is decided over all of them.
    core.residency.begin();
    Ok(warnings)
}

/// How the references to value files that the manifest states of a table differ from those that it
/// has. A file that only the table knows would be removed as a left-over.
fn other_values(meta: &TableMeta, found: &[TableValueUse]) -> Option<String> {
    let stated = meta.values.get().files();
    let is_same = |(stated, found): (&ValueUse, &TableValueUse)| {
        let file = &stated.file;
        (file.id, file.birth, stated.values, stated.bytes)
            == (found.file, found.birth, found.values, found.bytes)
    };
    let agrees = stated.len() == found.len() && stated.iter().zip(found).all(is_same);
    (!agrees).then(|| {
        let found = found.iter().map(|of| (of.file, of.values, of.bytes)).collect::<Vec<_>>();
        format!("the manifest states the references {stated:?} to value files, the file has {found:?}")
    })
}

/// Opens the value files of a table, and compares them with what the manifest states of them.
fn open_value_files(core: &Core, table: &TableMeta) -> Result<()> {
    for ValueUse { file: meta, .. } in table.values.get().files() {
        if meta.file.get().is_some() {
            continue;
        }
        let file = core.table_files.open_values(meta.id, meta.birth)?;
        if (file.file_bytes(), file.values()) != (meta.file_bytes, meta.values) {
            let detail = format!(
                "the manifest states {} values in {} bytes, the file has {} in {}",
                meta.values,
                meta.file_bytes,
                file.values(),
                file.file_bytes()
            );
            return Err(Error::corruption(file.path(), 0, "value file", detail));
        }
        meta.file.set(file);
    }
    Ok(())
}

/// Sets the age of tombstones to 0 if it is unknown, as in tables of older builds, or if their time
/// is later than now. (The clock was set back, and they would look young for too long.) The
/// manifest that this open writes records it.
fn date_tombstones(core: &Core, state: &ManifestState) {
    let now_ms = core.env.clock.unix_ms();
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.version.tables());
    for (_, _, table) in tables.filter(|(_, _, table)| table.meta.has_tombstones()) {
        if !core.lifecycle.is_read_only() {
            table.meta.oldest_tombstone.lower(now_ms);
        }
    }
}

/// A table that the manifest names but the directory lacks is corruption, not a missing database.
fn missing_table(core: &Core, id: shamba_table::TableId, error: Error) -> Error {
    let path = core.catalog.dir().join(shamba_table::table_file_name(id));
    match core.env.vfs.exists(&path) {
        Ok(false) => Error::corruption(&path, 0, "table", "the manifest names the file, but it is missing"),
        _ => error,
    }
}

/// Warns of the keyspaces that this open does not compact.
fn warn_of_missing_filters(core: &Core) {
    if core.lifecycle.is_read_only() {
        return;
    }
    for keyspace in core.catalog.keyspaces().values().filter(|keyspace| !keyspace.may_compact()) {
        core.telemetry.warn(keyspace.no_filter().to_string());
    }
}

/// Makes the recovered state current, with the options `given` recorded. A read-only open only
/// publishes it.
fn begin(
    core: &Arc<Core>,
    mut state: ManifestState,
    given: Pairs,
    replayed: Rebuilt<'_>,
    report: &ReplayReport,
    files: &[String],
    is_new: bool,
) -> Result<()> {
    let last_seq = state.last_seq.max(report.last_seq);
    core.reads.publish(last_seq);
    if core.lifecycle.is_read_only() {
        replayed.show();
        return Ok(());
    }
    if core.catalog.keyspaces().values().any(|keyspace| keyspace.time_to_live().is_some()) {
        core.reads.expiry().begin_use();
    }
    let mut keyspace_settings = new_settings(core, &state);
    keyspace_settings.extend(fifo_settings(core, &state, last_seq)?);
    let edit = ManifestEdit {
        settings: given,
        keyspace_settings,
        merge_operators: new_operators(core, &state),
        compaction_filters: new_filters(core, &state),
        last_seq: Some(last_seq),
        time_ms: core.reads.expiry().is_used().then(|| core.reads.expiry().now_ms()),
        ..Default::default()
    };
    let (mut edit, place) = replayed.finish(report, last_seq, edit)?;
    let log = core.catalog.new_log_no();
    let (first_needed, base_seq) = match &place {
        Place::Deferred(..) => (state.first_log, last_seq),
        Place::Copied(tail) => (log, tail.base_seq().unwrap_or_default()),
        Place::Tables => (log, last_seq),
    };
    edit.history = vec![opened(&state, report, log, core.settings.point_in_time)];
    let mut history = state.history.clone();
    history.extend(&edit.history);
    let known_logs = known_logs(core, &history, (report, files), (log, base_seq), first_needed);
    if let Some(oldest) = known_logs.first() {
        state.history.prune(oldest.number, oldest.base_seq);
    }
    known_logs.into_iter().for_each(|log| core.catalog.logs().add(log));
    if first_needed > state.first_log {
        edit.history.extend(core.catalog.obsolete_below(first_needed));
    }
    if let Place::Deferred(generations, predecessor) = place {
        // The old logs remain the valid ones. Without the new manifest the new log is an empty one
        // that follows them.
        let wal = create_log(core, log, Some(predecessor), last_seq)?;
        core.catalog.begin(&mut state, edit, Some(log))?;
        publish_versions(core, &state);
        deferred::begin(core, generations, report, (state.first_log, last_seq), wal);
        remove_left_overs(core, &state, state.first_log, files);
        return Ok(());
    }
    edit.first_log = Some(log);
    let wal = if is_new {
        // The database exists only once the manifest does, so the manifest comes before the log.
        core.catalog.begin(&mut state, edit, None)?;
        let mut wal = create_log(core, log, None, last_seq)?;
        wal.sync()?;
        // From here on the loss of the log is detected.
        let promise = ManifestEdit { log_promise: Some((log, wal.synced())), ..ManifestEdit::default() };
        state.apply(&promise).map_err(Error::invalid)?;
        core.catalog.continue_with(&promise, &state)?;
        wal
    } else {
        let wal = match place {
            Place::Copied(tail) => create_log_with(core, log, state.first_log, &tail),
            _ => create_log(core, log, None, last_seq),
        };
        let synced = wal.and_then(|mut wal| wal.sync_unpromised().map(|()| wal).map_err(Error::from));
        let wal = match synced {
            Ok(wal) => wal,
            Err(error) => {
                core.catalog.mark_file_obsolete(core.catalog.dir().join(log_file_name(log)));
                rebuild::abandon(core, edit.versions, edit.value_files);
                return Err(error);
            }
        };
        edit.log_promise = Some((log, wal.synced()));
        core.catalog.begin(&mut state, edit, Some(log))?;
        wal
    };
    publish_versions(core, &state);
    let wal = match core.settings.no_wal {
        false => Some(wal),
        true => {
            // The log keeps only a head and an end marker; the manifest requires that it exists.
            wal.finish_clean()?;
            None
        }
    };
    assert!(core.catalog.manifest_number().is_some(), "a database accepts writes without a manifest");
    core.writer.begin(last_seq, wal);
    remove_left_overs(core, &state, log, files);
    Ok(())
}

/// The merge operators that keyspaces have in this open and that the manifest does not record.
fn new_operators(core: &Core, state: &ManifestState) -> Vec<(KeyspaceId, String)> {
    let keyspaces = core.catalog.keyspaces();
    let name_of = |id: &KeyspaceId| Some(keyspaces.get(id)?.load().merging()?.name().to_owned());
    let unrecorded = state.keyspaces.iter().filter(|(_, keyspace)| keyspace.merge_operator.is_none());
    unrecorded.filter_map(|(id, _)| Some((*id, name_of(id)?))).collect()
}

/// The settings of keyspaces that this open was given and that the manifest does not record.
fn new_settings(core: &Core, state: &ManifestState) -> Vec<(KeyspaceId, Pairs)> {
    let Some(given) = core.writer.given() else { return Vec::new() };
    let settings = state.keyspaces.iter().filter_map(|(id, keyspace)| {
        let given = given.get(&keyspace.name)?.settings();
        let is_new = |(name, value): &(String, String)| keyspace.settings.get(name) != Some(value);
        Some((*id, given.into_iter().filter(is_new).collect::<Pairs>()))
    });
    settings.filter(|(_, settings)| !settings.is_empty()).collect()
}

/// The compaction filters that keyspaces have in this open, where the manifest records another one,
/// or none.
fn new_filters(core: &Core, state: &ManifestState) -> Vec<(KeyspaceId, Option<String>)> {
    let keyspaces = core.catalog.keyspaces();
    let changed = state.keyspaces.iter().filter_map(|(id, recorded)| {
        let name = keyspaces.get(id)?.filtering().map(|filtering| filtering.name().to_owned());
        (name != recorded.compaction_filter).then_some((*id, name))
    });
    changed.collect()
}

/// The limits of FIFO keyspaces in this open, where the manifest records others. What has been
/// replayed is written to tables from now on.
fn fifo_settings(core: &Core, state: &ManifestState, last_seq: SeqNo) -> Result<Vec<(KeyspaceId, Pairs)>> {
    let keyspaces = core.catalog.keyspaces();
    let mut changed = Vec::new();
    for (id, recorded) in &state.keyspaces {
        let (Some(keyspace), known) = (keyspaces.get(id), FifoState::read(&recorded.settings)?) else {
            continue;
        };
        let now_ms = core.reads.expiry().now_ms();
        let fifo = keyspace.fifo().map(|fifo| Arc::new(fifo.recovered(last_seq).noted(last_seq, now_ms)));
        if fifo.as_deref() != known.as_ref() {
            changed.push((*id, fifo_pairs(fifo.as_ref())));
            keyspace.set_fifo(fifo);
        }
    }
    Ok(changed)
}

/// Publishes the versions of `state`, which is in force.
fn publish_versions(core: &Core, state: &ManifestState) {
    for (id, keyspace) in core.catalog.keyspaces().iter() {
        let Some(keyspace_state) = state.keyspaces.get(id) else { continue };
        let version = Arc::new(keyspace_state.version.clone());
        keyspace.publish(|view| view.next(view.memtables.clone(), version));
    }
    core.residency.charge_trees();
}

fn create_log(
    core: &Core,
    log: LogNo,
    predecessor: Option<Predecessor>,
    base_seq: SeqNo,
) -> Result<WalWriter> {
    Ok(WalWriter::create(&core.env, core.catalog.dir(), log, predecessor, base_seq)?)
}

/// Creates a log that begins with a copy of the batches still needed from the logs from `copy_of`
/// on.
fn create_log_with(core: &Core, log: LogNo, copy_of: LogNo, tail: &Tail) -> Result<WalWriter> {
    let base_seq = tail.base_seq().unwrap_or_default();
    let mut wal = WalWriter::create_copy(&core.env, core.catalog.dir(), log, copy_of, base_seq)?;
    match tail.append_to(&mut wal) {
        Ok(()) => Ok(wal),
        Err(error) => {
            // Best effort: replay ignores a copy that the manifest does not name.
            let _ = core.env.vfs.unlink(wal.path());
            Err(error)
        }
    }
}

/// Marks every database file obsolete that the current manifest does not name.
fn remove_left_overs(core: &Core, state: &ManifestState, first_log: LogNo, files: &[String]) {
    let manifest = core.catalog.manifest_number().map(manifest_file_name);
    let named: BTreeSet<u64> = state
        .keyspaces
        .values()
        .flat_map(|keyspace| {
            keyspace.version.tables().map(|(_, _, table)| table.meta.id.0).collect::<Vec<_>>()
        })
        .collect();
    let value_files: BTreeSet<ValueFileId> = state
        .keyspaces
        .values()
        .flat_map(|keyspace| keyspace.version.value_totals().files().map(|total| total.file.id))
        .collect();
    for name in files {
        let is_obsolete = parse_table_file_name(name).is_some_and(|table| !named.contains(&table.0))
            || parse_value_file_name(name).is_some_and(|values| !value_files.contains(&values))
            || parse_log_file_name(name)
                .is_some_and(|log| log < first_log && !core.catalog.logs().contains(log))
            || parse_side_file_name(name).is_some()
            || (parse_manifest_file_name(name).is_some() && Some(name) != manifest.as_ref())
            || name == CURRENT_TEMPORARY
            || name == STATISTICS_TEMPORARY;
        if is_obsolete {
            core.catalog.mark_file_obsolete(core.catalog.dir().join(name));
        }
    }
    core.catalog.remove_obsolete_files();
}
