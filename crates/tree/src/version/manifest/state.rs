//! The state of the whole database, as the manifest records it.
//!
//! A pure value, whose copies share the keyspaces. [`ManifestState::apply`] applies an edit, and
//! copies only the keyspaces that it changes. [`ManifestState::snapshot_edit`] returns the single
//! edit that creates the same state from an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba_key::SeqNo;

use crate::version::edit::{Change, ManifestEdit, Pairs, VersionEdit};
use crate::version::history::History;
use crate::version::{KeyRange, Version};
use shamba_key::{KeyspaceId, LogNo, RunId};
use shamba_table::TableId;

/// One keyspace.
#[derive(Clone, Debug, Default)]
pub struct KeyspaceState {
    /// Its name, unique among existing keyspaces.
    pub name: String,
    /// The settings of its design.
    pub settings: BTreeMap<String, String>,
    /// The name of its merge operator, if it has one.
    pub merge_operator: Option<String>,
    /// The name of its compaction filter, if it has one.
    pub compaction_filter: Option<String>,
    /// Its tree.
    pub version: Version,
    /// Operations with a sequence number up to this one are in tables.
    pub flushed: SeqNo,
}

impl KeyspaceState {
    /// [`ManifestState::difference`] of one keyspace.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.flushed != other.flushed {
            let (ours, theirs) = (self.flushed, other.flushed);
            return Some(format!("operations up to {theirs} are in tables, not up to {ours}"));
        }
        if self.recorded() != other.recorded() {
            return Some("it has another name or other settings".to_owned());
        }
        self.places().ne(other.places()).then(|| "it has other tables".to_owned())
    }

    fn recorded(&self) -> (&str, &BTreeMap<String, String>, Option<&str>, Option<&str>) {
        let (operator, filter) = (self.merge_operator.as_deref(), self.compaction_filter.as_deref());
        (&self.name, &self.settings, operator, filter)
    }

    /// Its tables, each with its place and the range of it in use.
    fn places(&self) -> impl Iterator<Item = (u32, RunId, TableId, &KeyRange)> {
        self.version.tables().map(|(level, run, table)| (level, run.id, table.meta.id, &table.range))
    }
}

/// The whole database.
#[derive(Clone, Debug, Default)]
pub struct ManifestState {
    /// Options fixed at creation and settings changed since.
    pub settings: BTreeMap<String, String>,
    /// The existing keyspaces.
    pub keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    /// Logs below this one are obsolete.
    pub first_log: LogNo,
    /// Everything in this log below this offset, and every earlier log, is durable.
    pub log_promise: Option<(LogNo, u64)>,
    /// Sequence numbers up to this one must not be assigned again.
    pub last_seq: SeqNo,
    /// The next unused number of files, runs and ages.
    pub next_id: u64,
    /// The latest time by which expiry was judged; `None` if no entry with an expiry was written.
    pub time_ms: Option<u64>,
    /// The history of the logs.
    pub history: History,
}

impl ManifestState {
    /// Whether this state, or an earlier one, can have a keyspace of this number. The creation of
    /// another is not part of it.
    pub fn may_know(&self, id: KeyspaceId) -> bool {
        u64::from(id.0) < self.next_id
    }

    /// Applies an edit, entirely or not at all.
    ///
    /// The counters never decrease: an edit that was created earlier and is applied later does not
    /// reset them.
    ///
    /// # Errors
    /// A phrase that describes the mismatch.
    pub fn apply(&mut self, edit: &ManifestEdit) -> Result<(), String> {
        let mut changed = Changed { before: &self.keyspaces, after: BTreeMap::new() };
        for (id, name, settings) in &edit.keyspaces_created {
            changed.create(*id, name, settings)?;
        }
        for (id, settings) in &edit.keyspace_settings {
            changed.living(*id)?.settings.extend(settings.iter().cloned());
        }
        for (id, name) in &edit.merge_operators {
            changed.living(*id)?.merge_operator = Some(name.clone());
        }
        for (id, name) in &edit.compaction_filters {
            changed.living(*id)?.compaction_filter.clone_from(name);
        }
        for version_edit in &edit.versions {
            let keyspace = changed.living(version_edit.keyspace)?;
            let version = keyspace.version.apply(version_edit);
            keyspace.version = version.map_err(|why| format!("keyspace {}: {why}", version_edit.keyspace))?;
        }
        for (id, seq) in &edit.flushed {
            let keyspace = changed.living(*id)?;
            keyspace.flushed = keyspace.flushed.max(*seq);
        }
        for id in &edit.keyspaces_dropped {
            changed.living(*id)?;
            changed.after.insert(*id, None);
        }
        for (id, keyspace) in changed.after {
            match keyspace {
                Some(keyspace) => self.keyspaces.insert(id, keyspace),
                None => self.keyspaces.remove(&id),
            };
        }
        debug_assert!(
            edit.keyspaces_dropped.iter().all(|id| !self.keyspaces.contains_key(id)),
            "a dropped keyspace remains"
        );
        self.settings.extend(edit.settings.iter().cloned());
        self.first_log = self.first_log.max(edit.first_log.unwrap_or_default());
        self.log_promise = self.log_promise.max(edit.log_promise);
        self.last_seq = self.last_seq.max(edit.last_seq.unwrap_or_default());
        self.next_id = self.next_id.max(edit.next_id.unwrap_or_default());
        self.time_ms = self.time_ms.max(edit.time_ms);
        self.history.extend(&edit.history);
        Ok(())
    }

    /// The first difference of `other` from this state in what an open depends on: settings,
    /// keyspaces, their tables, needed logs. Counters and history do not count. `None` if there is
    /// none.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.settings != other.settings {
            return Some("it has other settings".to_owned());
        }
        if self.first_log != other.first_log {
            return Some(format!("the first needed log is {}, not {}", other.first_log, self.first_log));
        }
        if let Some(id) = other.keyspaces.keys().find(|id| !self.keyspaces.contains_key(id)) {
            return Some(format!("keyspace {id} does not exist"));
        }
        self.keyspaces.iter().find_map(|(id, keyspace)| {
            let what = match other.keyspaces.get(id) {
                None => "it is missing".to_owned(),
                Some(theirs) => keyspace.difference(theirs)?,
            };
            Some(format!("keyspace \"{}\": {what}", keyspace.name.escape_default()))
        })
    }

    /// The edit that creates this state from an empty one.
    pub fn snapshot_edit(&self) -> ManifestEdit {
        let pairs = |settings: &BTreeMap<String, String>| {
            settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
        };
        let mut edit = ManifestEdit {
            settings: pairs(&self.settings),
            first_log: Some(self.first_log),
            log_promise: self.log_promise,
            last_seq: Some(self.last_seq),
            next_id: Some(self.next_id),
            time_ms: self.time_ms,
            history: self.history.entries().to_vec(),
            ..ManifestEdit::default()
        };
        for (&id, keyspace) in &self.keyspaces {
            edit.keyspaces_created.push((id, keyspace.name.clone(), pairs(&keyspace.settings)));
            if let Some(name) = &keyspace.merge_operator {
                edit.merge_operators.push((id, name.clone()));
            }
            if let Some(name) = &keyspace.compaction_filter {
                edit.compaction_filters.push((id, Some(name.clone())));
            }
            if keyspace.flushed > SeqNo::ZERO {
                edit.flushed.push((id, keyspace.flushed));
            }
            let value_files = keyspace.version.value_totals().files();
            edit.value_files.extend(value_files.map(|total| Arc::clone(&total.file)));
            let add = keyspace.version.tables().map(|(level, run, table)| Change::Add {
                level,
                run: run.id,
                age: run.age,
                table: table.clone(),
            });
            let changes: Vec<Change> = add.collect();
            if !changes.is_empty() {
                edit.versions.push(VersionEdit { keyspace: id, changes });
            }
        }
        debug_assert_eq!(
            edit.versions.iter().map(|version| version.changes.len()).sum::<usize>(),
            self.keyspaces.values().map(|keyspace| keyspace.version.tables().count()).sum::<usize>(),
            "a snapshot adds each use of a table once"
        );
        edit
    }
}

/// The keyspaces that an edit changes, while it is applied.
struct Changed<'s> {
    before: &'s BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    /// `None` for those that do not exist after it.
    after: BTreeMap<KeyspaceId, Option<Arc<KeyspaceState>>>,
}

impl Changed<'_> {
    fn create(&mut self, id: KeyspaceId, name: &str, settings: &Pairs) -> Result<(), String> {
        if self.before.values().chain(self.after.values().flatten()).any(|keyspace| keyspace.name == name) {
            return Err(format!("a second keyspace named {name:?}"));
        }
        let settings = settings.iter().cloned().collect();
        let fresh = KeyspaceState { name: name.to_owned(), settings, ..KeyspaceState::default() };
        let earlier = self.after.insert(id, Some(Arc::new(fresh)));
        if earlier.is_some() || self.before.contains_key(&id) {
            return Err(format!("a second keyspace {id}"));
        }
        Ok(())
    }

    fn living(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState, String> {
        let keyspace = self.after.entry(id).or_insert_with(|| self.before.get(&id).cloned());
        keyspace.as_mut().map(Arc::make_mut).ok_or_else(|| format!("keyspace {id} does not exist"))
    }
}
