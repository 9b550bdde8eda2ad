//! The input of a repair: the manifest, and the tables in use.
//!
//! An intact manifest states which tables are in use, and for which keys. So inputs that a
//! compaction has replaced are not used.
//!
//! If only `CURRENT` is lost, a manifest is trusted if it is intact and the only one. Of several
//! manifests the current one is unknown. One newer than `CURRENT` names may be a draft that found
//! no space, after which the old one continued. Next to the current one, its predecessor may still
//! exist. An untrusted manifest is used at most for settings and names.
//!
//! Without a trusted manifest, every table in the directory is used entirely. Each states its
//! keyspace, and its entries carry the sequence numbers that decide which version is newer. Entries
//! that compactions dropped may then reappear from inputs that were not removed yet; this is
//! reported as lost deletions. A table whose keyspace is unreadable, too, goes into a separate
//! keyspace: in any other, its entries could be data that was never written there.
//!
//! A table whose file name holds another file is found by its birth id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{DirEntry, Env, FileError};
use shamba_key::SeqNo;
use shamba_table::{
    BirthId, OpenFiles, Salvage, TableId, open_files_within, parse_table_file_name, table_file_name,
};

use super::report::{Loss, RepairReport};
use super::values::Values;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::directory::{NUMBERS_AHEAD_MAX, is_stray, number_after};
use crate::error::{Error, ErrorKind, Result};
use crate::options::keyspace::rules::NAME_BYTES_MAX;
use shamba_key::KeyspaceId;
use shamba_log::framing::{FileHeader, FileWindow, HEADER_BYTES};
use shamba_log::wal::{log_file_name, parse_log_file_name};
use shamba_tree::version::current::{CURRENT, read_current};
use shamba_tree::version::manifest::load::read_edits;
use shamba_tree::version::manifest::state::KeyspaceState;
use shamba_tree::version::manifest::{
    ManifestReader, ManifestState, manifest_file_name, parse_manifest_file_name,
};
use shamba_tree::version::{KeyRange, TableUse};

/// Name of the keyspace for entries of tables without a readable keyspace, if the manifest is lost.
const UNATTRIBUTED: &str = "unattributed";
/// Id of that keyspace. Ids count up from 1, and no database reaches this number.
const UNATTRIBUTED_ID: KeyspaceId = KeyspaceId(1 << 30);

/// Maximum number in the name of a file that counts if no manifest states the next number.
/// Keyspaces are numbered with the files, in 32 bits: a stray name must not use them up.
const NUMBER_MAX: u64 = (u32::MAX / 2) as u64;

/// A readable table, and the range of it in use.
pub(super) struct Part {
    pub(super) table: Arc<Salvage>,
    pub(super) range: KeyRange,
}

/// The readable content of a keyspace.
#[derive(Default)]
pub(super) struct Space {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    /// Operations in logs up to this sequence number are in tables.
    pub(super) flushed: SeqNo,
}

/// The readable content of the database, except for the logs.
pub(super) struct Found {
    /// The state in the manifest, as far as it could be read.
    pub(super) state: ManifestState,
    /// Whether that state is complete and trusted.
    pub(super) is_whole: bool,
    /// The number after those in the names of files, without impossible ones.
    pub(super) beyond_files: u64,
    pub(super) spaces: BTreeMap<KeyspaceId, Space>,
    /// Keyspaces that could not keep their names, with these.
    renamed: Vec<(KeyspaceId, String)>,
    pub(super) values: Values,
}

impl Found {
    /// Reads everything in `dir` but the logs.
    pub(super) fn look(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<Self> {
        let entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
        if !entries.iter().any(is_ours) {
            return Err(Error::no_database(dir, "the directory contains no database file"));
        }
        let (state, is_whole) = read_state(env, dir, &entries, report)?;
        let is_whole = is_whole && !is_outdated(&state, dir, &entries, report);
        report.manifest = is_whole;
        let named = |(id, keyspace): (&KeyspaceId, &Arc<KeyspaceState>)| {
            (*id, Space { name: keyspace.name.clone(), parts: Vec::new(), flushed: keyspace.flushed })
        };
        let spaces = state.keyspaces.iter().map(named).collect();
        let mut tables = Tables::new(env, dir, &entries);
        let values = Values::new(env, dir, &entries, (Arc::clone(&tables.files), &state));
        let number_max = match is_whole {
            true => state.next_id.saturating_add(NUMBERS_AHEAD_MAX),
            false => NUMBER_MAX,
        };
        let beyond_files = number_after(entries.iter().map(|entry| &entry.name[..]), number_max);
        let mut found = Self { state, is_whole, beyond_files, spaces, renamed: Vec::new(), values };
        if found.is_whole {
            found.take_named(&mut tables, report)?;
        } else {
            found.take_all(&mut tables, report)?;
        }
        found.name_the_default();
        found.report_renamed(dir, report);
        report.keyspaces = found.spaces.len() as u64;
        Ok(found)
    }

    /// Ensures that the default keyspace exists and has its name, and that no other keyspace has
    /// that name.
    fn name_the_default(&mut self) {
        for (id, space) in &mut self.spaces {
            if *id != KeyspaceId::DEFAULT && space.name == DEFAULT_KEYSPACE {
                space.name = format!("{DEFAULT_KEYSPACE}-{id}");
            }
        }
        let first = self.space(KeyspaceId::DEFAULT, || DEFAULT_KEYSPACE.to_owned());
        DEFAULT_KEYSPACE.clone_into(&mut first.name);
    }

    /// Opens the tables that the manifest names.
    fn take_named(&mut self, tables: &mut Tables<'_>, report: &mut RepairReport) -> Result<()> {
        for (id, keyspace) in &self.state.keyspaces {
            let Some(space) = self.spaces.get_mut(id) else { continue };
            for (_, _, used) in keyspace.version.tables() {
                let keys = used.meta.key_range();
                let counts = used.range.intersection(&keys);
                match tables.of(used, report)? {
                    Ok(table) => {
                        if let Some(error) = table.lost_tombstones() {
                            if used.meta.range_deletes > 0 {
                                let error = Error::from(error.clone());
                                report.damaged(table.path(), &error, affected(&keyspace.name));
                                let name = Some(keyspace.name.as_str());
                                report.lose(name, counts, Loss::Deletions, table.path(), &error);
                            }
                        }
                        space.parts.push(Part { table, range: used.range.clone() });
                    }
                    Err((path, error)) => {
                        report.damaged(&path, &error, affected(&keyspace.name));
                        report.lose(Some(&keyspace.name), counts, Loss::Entries, &path, &error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens every table in the directory; its keyspace is the one that it states, or else the one
    /// in the readable part of the manifest.
    fn take_all(&mut self, tables: &mut Tables<'_>, report: &mut RepairReport) -> Result<()> {
        let mut known: BTreeMap<TableId, KeyspaceId> = BTreeMap::new();
        for (id, keyspace) in &self.state.keyspaces {
            known.extend(keyspace.version.tables().map(|(_, _, table)| (table.meta.id, *id)));
        }
        let all: Vec<TableId> = tables.by_id.iter().copied().collect();
        for id in all {
            let path = tables.dir.join(table_file_name(id));
            let table = match tables.open(&path, None, report)? {
                Ok(table) => table,
                Err(error) => {
                    report.damaged(&path, &error, "the keys of this table");
                    report.lose(None, Some(KeyRange::everything()), Loss::Entries, &path, &error);
                    continue;
                }
            };
            let origin = table.origin();
            let keyspace = match (origin, known.get(&id)) {
                (Some(origin), _) => KeyspaceId(origin.keyspace),
                (None, Some(known)) => *known,
                (None, None) => UNATTRIBUTED_ID,
            };
            let name = origin.map(|origin| origin.name.clone());
            let space = self.space(keyspace, || name.unwrap_or_else(|| UNATTRIBUTED.to_owned()));
            let name = space.name.clone();
            space.parts.push(Part { table: Arc::clone(&table), range: KeyRange::everything() });
            let keys = table.bounds().map_or_else(KeyRange::everything, |(lower, upper)| KeyRange {
                lower: lower.clone(),
                upper: upper.cloned(),
            });
            if keyspace == UNATTRIBUTED_ID {
                let detail = format!("its keyspace is unknown: its entries are in {name:?}");
                let error = Error::corruption(&path, 0, "table", detail);
                report.lose(None, Some(keys.clone()), Loss::Entries, &path, &error);
            }
            if let Some(error) = table.lost_tombstones() {
                let error = Error::from(error.clone());
                report.damaged(&path, &error, affected(&name));
                report.lose(Some(&name), Some(keys), Loss::Deletions, &path, &error);
            }
        }
        Ok(())
    }

    /// Returns the keyspace `id`. A new one gets the name that `name` returns. If another has it,
    /// the one with the higher number keeps it: the other was dropped before that one was created.
    pub(super) fn space(&mut self, id: KeyspaceId, name: impl FnOnce() -> String) -> &mut Space {
        if !self.spaces.contains_key(&id) {
            let mut name = name();
            let other = self.spaces.iter().find(|(_, space)| space.name == name).map(|(other, _)| *other);
            match other {
                Some(other) if other < id && other != KeyspaceId::DEFAULT && id != UNATTRIBUTED_ID => {
                    let unique = self.unique_name(&name, other);
                    self.renamed.push((other, name.clone()));
                    self.spaces.entry(other).or_default().name = unique;
                }
                Some(_) => {
                    self.renamed.push((id, name.clone()));
                    name = self.unique_name(&name, id);
                }
                None if name.is_empty() => name = self.unique_name(&format!("keyspace-{id}"), id),
                None => {}
            }
            self.spaces.insert(id, Space { name, ..Space::default() });
        }
        self.spaces.entry(id).or_default()
    }

    /// A name for keyspace `id` that no other has.
    fn unique_name(&self, name: &str, id: KeyspaceId) -> String {
        let is_free = |name: &str| self.spaces.values().all(|space| space.name != name);
        if is_free(name) {
            return name.to_owned();
        }
        let mut number = 0;
        loop {
            let suffix = if number == 0 { format!("-{id}") } else { format!("-{id}-{number}") };
            let mut bytes = name.len().min(NAME_BYTES_MAX - suffix.len());
            while !name.is_char_boundary(bytes) {
                bytes -= 1;
            }
            let unique = format!("{}{suffix}", &name[..bytes]);
            if is_free(&unique) {
                return unique;
            }
            number += 1;
        }
    }

    /// Reports which keyspaces have other names than they had.
    pub(super) fn report_renamed(&mut self, dir: &Path, report: &mut RepairReport) {
        for (id, had) in std::mem::take(&mut self.renamed) {
            let Some(space) = self.spaces.get(&id) else { continue };
            let detail = format!(
                "two keyspaces state the name {had:?}: the entries of the older are in {:?}",
                space.name
            );
            let error = Error::corruption(dir, 0, "manifest", detail);
            for name in [&had, &space.name] {
                report.lose(Some(name), Some(KeyRange::everything()), Loss::Entries, dir, &error);
            }
        }
    }

    /// The largest known sequence number of any table.
    pub(super) fn largest_seq(&self) -> SeqNo {
        let parts = self.spaces.values().flat_map(|space| &space.parts);
        parts.filter_map(|part| Some(*part.table.seqs()?.end())).max().unwrap_or(SeqNo::ZERO)
    }
}

fn affected(keyspace: &str) -> String {
    format!("keyspace \"{}\"", keyspace.escape_default())
}

/// Whether the name is specific to files of a database.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.name.as_str();
    name == CURRENT
        || parse_table_file_name(name).is_some()
        || parse_log_file_name(name).is_some()
        || parse_manifest_file_name(name).is_some()
}

/// Reads the manifest, and decides whether it can be trusted.
fn read_state(
    env: &Env,
    dir: &Path,
    entries: &[DirEntry],
    report: &mut RepairReport,
) -> Result<(ManifestState, bool)> {
    let error = match ManifestReader::load(env, dir) {
        Ok(Some(loaded)) => {
            loaded.torn.iter().for_each(|torn| report.warn(torn.to_string()));
            return Ok((loaded.state, true));
        }
        Ok(None) => Error::corruption(&dir.join(CURRENT), 0, CURRENT, "it is missing"),
        Err(error) => damage_of(env, error)?,
    };
    report.damaged(&dir.join(CURRENT), &error, "the list of current tables");
    // If `CURRENT` can be read, only the manifest that it names can be the current one.
    let current = read_current(env, dir).ok().flatten();
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let numbers = files.filter_map(|entry| parse_manifest_file_name(&entry.name));
    let named = current.map(|current| current.number);
    let numbers: Vec<u64> =
        numbers.filter(|number| *number <= NUMBER_MAX || Some(*number) == named).collect();
    let named = named.filter(|number| numbers.contains(number));
    let Some(number) = named.or(numbers.iter().copied().max()) else {
        lose_manifest(dir, &error, report);
        return Ok((ManifestState::default(), false));
    };
    let was_in_force = match current {
        Some(current) => current.number == number,
        None => numbers.len() == 1,
    };
    let path = dir.join(manifest_file_name(number));
    let mut state = ManifestState::default();
    let expected = current.filter(|current| current.number == number);
    let read = read_edits(env, &path, number, expected, &mut |record, edit| {
        state.apply(&edit).map_err(|detail| {
            let detail = format!("inconsistent with earlier edits: {detail}");
            FileError::corruption(&path, record.offset, "manifest edit", detail)
        })
    });
    state.next_id = state.next_id.max(number.saturating_add(1));
    match read {
        Ok(_) if !was_in_force => {
            report.warn(format!(
                "{} does not determine the current tables: it may be outdated",
                path.display()
            ));
            lose_manifest(dir, &error, report);
            Ok((state, false))
        }
        Ok(torn) => {
            torn.iter().for_each(|torn| report.warn(torn.to_string()));
            report.warn(format!("{} is used as the current manifest", path.display()));
            Ok((state, true))
        }
        Err(error) => {
            let error = damage_of(env, error)?;
            report.damaged(&path, &error, "the list of current tables");
            lose_manifest(&path, &error, report);
            Ok((state, false))
        }
    }
}

/// Returns an error of reading `CURRENT`, a manifest or a log as damage, with which the repair goes
/// on.
///
/// # Errors
/// `Unsupported` for an undamaged file of a newer version, which that version can read. An unknown
/// version is damage if the checksum of the file header does not match.
pub(super) fn damage_of(env: &Env, error: FileError) -> Result<Error> {
    let is_undamaged = |path: &Path| {
        let mut start = FileWindow::open(env, path)?;
        start.at(0, HEADER_BYTES as usize).map(FileHeader::is_intact)
    };
    match &error {
        FileError::Unsupported { file, .. } if is_undamaged(file)? => Err(error.into()),
        _ => Ok(error.into()),
    }
}

/// Whether a state that was read without errors lacks its last edits: its first log is gone, which
/// a later edit must have given up, and there is a table that it has no number for. Either alone is
/// no proof: the log may have been lost, and a process that is killed leaves such tables.
fn is_outdated(state: &ManifestState, dir: &Path, entries: &[DirEntry], report: &mut RepairReport) -> bool {
    let names = || entries.iter().filter(|entry| !entry.is_dir).map(|entry| entry.name.as_str());
    let has_first_log = names().filter_map(parse_log_file_name).any(|log| log == state.first_log);
    let ours = names().filter(|name| !is_stray(name, state.next_id));
    let newer = ours.filter_map(parse_table_file_name).find(|table| table.0 >= state.next_id);
    let Some(newer) = newer.filter(|_| !has_first_log) else { return false };
    let detail = format!(
        "its end is missing: {} does not exist any more, and {} is newer",
        log_file_name(state.first_log),
        table_file_name(newer)
    );
    let error = Error::corruption(dir, 0, "manifest", detail);
    report.damaged(&dir.join(CURRENT), &error, "the list of current tables");
    lose_manifest(dir, &error, report);
    true
}

/// Reports a lost manifest: it is unknown which entries compactions dropped, and which tables
/// existed.
fn lose_manifest(path: &Path, error: &Error, report: &mut RepairReport) {
    report.warn("without a manifest, missing tables and logs are not detected".to_owned());
    report.lose(None, Some(KeyRange::everything()), Loss::Deletions, path, error);
}

/// The table files.
struct Tables<'a> {
    env: &'a Env,
    dir: &'a Path,
    files: Arc<OpenFiles>,
    by_id: BTreeSet<TableId>,
    /// Paths by birth id; computed when a file name first turns out to hold another file.
    by_birth: Option<BTreeMap<u64, PathBuf>>,
    opened: BTreeMap<TableId, std::result::Result<Arc<Salvage>, (PathBuf, Error)>>,
}

impl<'a> Tables<'a> {
    fn new(env: &'a Env, dir: &'a Path, entries: &[DirEntry]) -> Self {
        let files = entries.iter().filter(|entry| !entry.is_dir);
        let by_id = files.filter_map(|entry| parse_table_file_name(&entry.name)).collect();
        let wanted = crate::options::settings::Settings::default().max_open_files as usize;
        let files = Arc::new(OpenFiles::new(open_files_within(wanted, env.vfs.open_files_max())));
        Self { env, dir, files, by_id, by_birth: None, opened: BTreeMap::new() }
    }

    /// Opens a table that the manifest names, by its file name or else by its birth id; or returns
    /// the reason for a failure.
    fn of(
        &mut self,
        used: &TableUse,
        report: &mut RepairReport,
    ) -> Result<std::result::Result<Arc<Salvage>, (PathBuf, Error)>> {
        let (id, birth) = (used.meta.id, used.meta.birth);
        if let Some(opened) = self.opened.get(&id) {
            return Ok(opened.clone());
        }
        let path = self.dir.join(table_file_name(id));
        let opened = match self.by_id.contains(&id) {
            true => self.open(&path, Some(birth), report)?,
            false => {
                let detail = "the manifest names the file, but it is missing";
                Err(Error::corruption(&path, 0, "table", detail))
            }
        };
        let opened = match opened {
            Ok(table) => Ok(table),
            Err(error) => match self.elsewhere(birth)? {
                Some(other) => {
                    report.damaged(&path, &error, "nothing: the table exists under another name");
                    self.open(&other, Some(birth), report)?.map_err(|error| (other, error))
                }
                None => Err((path, error)),
            },
        };
        self.opened.insert(id, opened.clone());
        Ok(opened)
    }

    /// The path of the file with this birth id.
    fn elsewhere(&mut self, birth: BirthId) -> Result<Option<PathBuf>> {
        if self.by_birth.is_none() {
            let mut by_birth = BTreeMap::new();
            for id in &self.by_id {
                let path = self.dir.join(table_file_name(*id));
                if let Ok(table) = Salvage::open(self.env, &path, &self.files, None) {
                    by_birth.insert(table.birth().0, path);
                }
            }
            self.by_birth = Some(by_birth);
        }
        Ok(self.by_birth.as_ref().and_then(|by_birth| by_birth.get(&birth.0).cloned()))
    }

    /// Opens the readable part of a table, and reports damage outside its data.
    fn open(
        &self,
        path: &Path,
        birth: Option<BirthId>,
        report: &mut RepairReport,
    ) -> Result<std::result::Result<Arc<Salvage>, Error>> {
        match Salvage::open(self.env, path, &self.files, birth).map_err(Error::from) {
            Ok(table) => {
                report.tables += 1;
                for damage in table.damage() {
                    let error = Error::from(damage.clone());
                    match error.damage() {
                        Some(damage) if damage.structure.contains("filter") => {
                            report.warn(error.chain().to_string())
                        }
                        _ => report.damaged(path, &error, "nothing: it is not needed"),
                    }
                }
                Ok(Ok(Arc::new(table)))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }
}
