//! What there is to repair: the manifest, and the tables that count.
//!
//! With a whole manifest, its tree says which tables count and for which keys: what a merge has replaced stays away. Where
//! `CURRENT` alone is lost, the manifest is taken if it is whole and the only one there. Of several nobody knows which was in
//! force: a newer one than `CURRENT` names may be a draft that found no space, after which the old one went on, and one in force may have
//! its predecessor beside it. Such a one serves for settings and names at most. Otherwise every table that is there counts, whole: each says of which keyspace it is, and its
//! entries carry the sequence numbers by which newer ones win. What merges have dropped may then be back out of
//! inputs that were not removed yet, and is told as lost deletes. A table whose own word for its keyspace is damaged, too, goes
//! into a keyspace of its own: in any other it could be what was never written there.
//!
//! A table is found by its birth id where its name has another file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{DirEntry, Env, FileError};
use shamba_key::SeqNo;
use shamba_table::{
    BirthId, OpenFiles, Salvage, TableId, open_files_within, parse_table_file_name, table_file_name,
};

use super::report::{Loss, RepairReport};
use crate::error::{Error, ErrorKind, Result};
use crate::recovery::DEFAULT_KEYSPACE;
use shamba_key::KeyspaceId;
use shamba_log::wal::parse_log_file_name;
use shamba_tree::version::current::{CURRENT, read_current};
use shamba_tree::version::manifest::load::read_edits;
use shamba_tree::version::manifest::{
    ManifestReader, ManifestState, manifest_file_name, parse_manifest_file_name,
};
use shamba_tree::version::{KeyRange, TableUse};

/// Where entries go whose table says no keyspace, and of which the manifest is lost.
const UNATTRIBUTED: &str = "unattributed";
/// Its number: ids count up from 1, and no database has had so many keyspaces.
const UNATTRIBUTED_ID: KeyspaceId = KeyspaceId(1 << 30);

/// A table of which something is left, and the keys for which it counts.
pub(super) struct Part {
    pub(super) table: Arc<Salvage>,
    pub(super) range: KeyRange,
}

/// What there is of a keyspace.
#[derive(Default)]
pub(super) struct Space {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    /// Operations in logs up to this one are in tables.
    pub(super) flushed: SeqNo,
}

/// What there is.
pub(super) struct Found {
    /// What the manifest says, or as much of it as could be read.
    pub(super) state: ManifestState,
    /// Whether that is all of it.
    pub(super) is_whole: bool,
    pub(super) spaces: BTreeMap<KeyspaceId, Space>,
}

impl Found {
    /// Looks at everything in `dir` but the logs.
    pub(super) fn look(env: &Env, dir: &Path, report: &mut RepairReport) -> Result<Self> {
        let entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
        if !entries.iter().any(is_ours) {
            return Err(Error::no_database(dir, "the directory holds no file of one"));
        }
        let (state, is_whole) = read_state(env, dir, &entries, report)?;
        report.manifest = is_whole;
        let named = |(id, keyspace): (&KeyspaceId, &shamba_tree::version::manifest::state::KeyspaceState)| {
            (*id, Space { name: keyspace.name.clone(), parts: Vec::new(), flushed: keyspace.flushed })
        };
        let spaces = state.keyspaces.iter().map(named).collect();
        let mut found = Self { state, is_whole, spaces };
        let mut tables = Tables::new(env, dir, &entries);
        if found.is_whole {
            found.take_named(&mut tables, report)?;
        } else {
            found.take_all(&mut tables, report)?;
        }
        found.name_the_default();
        report.keyspaces = found.spaces.len() as u64;
        Ok(found)
    }

    /// The first keyspace is there and has its name, and no other has it, whatever the manifest says.
    fn name_the_default(&mut self) {
        for (id, space) in &mut self.spaces {
            if *id != KeyspaceId::DEFAULT && space.name == DEFAULT_KEYSPACE {
                space.name = format!("{DEFAULT_KEYSPACE}-{id}");
            }
        }
        let first = self.space(KeyspaceId::DEFAULT, || DEFAULT_KEYSPACE.to_owned());
        DEFAULT_KEYSPACE.clone_into(&mut first.name);
    }

    /// The tables that the manifest names.
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

    /// Every table that is there, of the keyspace that it says or that as much of the manifest as is left says.
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
                let detail = format!("nobody says of which keyspace it is: its entries are in {name:?}");
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

    /// The keyspace `id`, by the name that `name` says if it is new and nobody has that name.
    pub(super) fn space(&mut self, id: KeyspaceId, name: impl FnOnce() -> String) -> &mut Space {
        if !self.spaces.contains_key(&id) {
            let mut name = name();
            while name.is_empty() || self.spaces.values().any(|space| space.name == name) {
                name = format!("{name}-{id}");
            }
            self.spaces.insert(id, Space { name, ..Space::default() });
        }
        self.spaces.entry(id).or_default()
    }

    /// The largest sequence number of any table that tells it.
    pub(super) fn largest_seq(&self) -> SeqNo {
        let parts = self.spaces.values().flat_map(|space| &space.parts);
        parts.filter_map(|part| part.table.largest_seq()).max().unwrap_or(SeqNo::ZERO)
    }
}

fn affected(keyspace: &str) -> String {
    format!("keyspace \"{}\"", keyspace.escape_default())
}

/// Whether the name is one that a database has and nothing else would.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.name.as_str();
    name == CURRENT
        || parse_table_file_name(name).is_some()
        || parse_log_file_name(name).is_some()
        || parse_manifest_file_name(name).is_some()
}

/// What the manifest says, and whether that can be relied on.
fn read_state(
    env: &Env,
    dir: &Path,
    entries: &[DirEntry],
    report: &mut RepairReport,
) -> Result<(ManifestState, bool)> {
    let error = match ManifestReader::load(env, dir) {
        Ok(Some(loaded)) => {
            loaded.warnings.into_iter().for_each(|warning| report.warn(warning));
            return Ok((loaded.state, true));
        }
        Ok(None) => Error::corruption(&dir.join(CURRENT), 0, CURRENT, "it is missing"),
        Err(error) => error.into(),
    };
    report.damaged(&dir.join(CURRENT), &error, "which tables count");
    // Of which one `CURRENT` speaks, if it can be read: no other is in force.
    let current = read_current(env, dir).ok().flatten();
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let numbers: Vec<u64> = files.filter_map(|entry| parse_manifest_file_name(&entry.name)).collect();
    let named = current.map(|current| current.number).filter(|number| numbers.contains(number));
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
            let detail = format!("it does not fit: {detail}");
            FileError::corruption(&path, record.offset, "manifest edit", detail).into()
        })
    });
    state.next_id = state.next_id.max(number.saturating_add(1));
    match read {
        Ok(_) if !was_in_force => {
            report.warn(format!("{} says nothing of which tables count: it may be older", path.display()));
            lose_manifest(dir, &error, report);
            Ok((state, false))
        }
        Ok(torn) => {
            torn.iter().for_each(|torn| report.warn(torn.to_string()));
            report.warn(format!("{} is taken for the one in force", path.display()));
            Ok((state, true))
        }
        Err(error) => {
            let error = error.into();
            report.damaged(&path, &error, "which tables count");
            lose_manifest(&path, &error, report);
            Ok((state, false))
        }
    }
}

/// Nobody knows any more what merges have dropped, nor which tables there were.
fn lose_manifest(path: &Path, error: &Error, report: &mut RepairReport) {
    report.warn("without a manifest, a table or log that is missing altogether is not noticed".to_owned());
    report.lose(None, Some(KeyRange::everything()), Loss::Deletions, path, error);
}

/// The files of tables.
struct Tables<'a> {
    env: &'a Env,
    dir: &'a Path,
    files: Arc<OpenFiles>,
    by_id: BTreeSet<TableId>,
    /// Which file has which birth id; made when a name has another file than it should.
    by_birth: Option<BTreeMap<u64, PathBuf>>,
    opened: BTreeMap<TableId, std::result::Result<Arc<Salvage>, (PathBuf, Error)>>,
}

impl<'a> Tables<'a> {
    fn new(env: &'a Env, dir: &'a Path, entries: &[DirEntry]) -> Self {
        let files = entries.iter().filter(|entry| !entry.is_dir);
        let by_id = files.filter_map(|entry| parse_table_file_name(&entry.name)).collect();
        let wanted = crate::settings::Settings::default().max_open_files as usize;
        let files = Arc::new(OpenFiles::new(open_files_within(wanted, env.vfs.open_files_max())));
        Self { env, dir, files, by_id, by_birth: None, opened: BTreeMap::new() }
    }

    /// The table that the manifest names, by its name or by its birth id; or why there is none.
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
                let detail = "the file is missing, and the manifest names it";
                Err(Error::corruption(&path, 0, "table", detail))
            }
        };
        let opened = match opened {
            Ok(table) => Ok(table),
            Err(error) => match self.elsewhere(birth)? {
                Some(other) => {
                    report.damaged(&path, &error, "nothing: the table is there under another name");
                    self.open(&other, Some(birth), report)?.map_err(|error| (other, error))
                }
                None => Err((path, error)),
            },
        };
        self.opened.insert(id, opened.clone());
        Ok(opened)
    }

    /// Where the file with this birth id is.
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

    /// Opens what is left of a table, and tells what is damaged beside its data.
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
                        _ => report.damaged(path, &error, "nothing: it can be done without"),
                    }
                }
                Ok(Ok(Arc::new(table)))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }
}
