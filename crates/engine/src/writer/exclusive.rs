//! Operations during which no write runs: keyspaces are created and dropped, tables are ingested,
//! a recording begins, and the database closes.

use std::sync::Arc;
use std::time::Duration;

use shamba_key::{KeyspaceId, SeqNo};
use shamba_memtable::ChunkedMemtable;
use shamba_tree::compaction::filter::Filtering;
use shamba_tree::merging::Merging;
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{HistoryEntry, ManifestEdit, Pairs, Version};

use super::{WriteOptions, Writer, Writing};
use crate::catalog::{DEFAULT_KEYSPACE, KeyspaceCore};
use crate::error::{Error, ErrorKind, Result};
use crate::options::keyspace::KeyspaceOptions;
use crate::options::keyspace::rules::{
    check_fifo_with, fifo_for, fifo_pairs, filter_for, operator_for, overrides_for, prefix_for,
    prefix_setting,
};
use crate::options::overrides::Overrides;
use crate::telemetry::hold_events;

/// Flushes for a state without a creation or a drop of a keyspace, before writers have to wait.
const FLUSHES_BEFORE_LOCK: u32 = 3;
/// Bytes of ingests, creations and drops in the history since the active log began, with which the
/// log is rotated: the history has them until their log is obsolete, and they fill no memtable.
/// Some 1,000 of them, so that a rotation costs little for each.
const HISTORY_BYTES_MAX: usize = 64 << 10;

impl Writer {
    /// Calls `action` between two commit groups.
    pub fn between_groups<T>(&self, action: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock();
        action()
    }

    /// Writes all memtables to tables, and returns the state that has everything up to there and
    /// nothing after it: no keyspace is created or dropped in between.
    ///
    /// # Errors
    /// `ReadOnly`; of the flush.
    pub fn flushed_state(&self) -> Result<ManifestState> {
        self.lifecycle.check_writable()?;
        let keyspaces = |state: &ManifestState| state.keyspaces.keys().copied().collect::<Vec<_>>();
        // Writers need not wait unless keyspaces are created or dropped all the time.
        for _ in 0..FLUSHES_BEFORE_LOCK {
            let before = keyspaces(&self.catalog.state()?);
            self.flush()?;
            let state = self.catalog.state()?;
            if keyspaces(&state) == before {
                return Ok(state);
            }
        }
        let _events = hold_events();
        let mut writing = self.writing.lock();
        self.flush_locked(&mut writing)?;
        self.catalog.state()
    }

    /// The keyspace of this name, created if it does not exist. With `must_be_new` an existing one
    /// is `Invalid`. `options` hold from now on; a new keyspace without any has those that the open
    /// was given.
    ///
    /// # Errors
    /// As [`crate::catalog::Catalog::find`]; `ReadOnly`; `Invalid` for another merge operator or
    /// compaction filter than the recorded one; of installing the keyspace, its operator or its
    /// filter; without a log, of the flush.
    pub fn make_keyspace(
        &self,
        name: &str,
        must_be_new: bool,
        options: Option<&KeyspaceOptions>,
    ) -> Result<Arc<KeyspaceCore>> {
        let find = || match self.catalog.find(name) {
            Ok(Some(_)) if must_be_new => Err(Error::invalid(format!("keyspace {name:?} already exists"))),
            found => found,
        };
        if let (Some(keyspace), None) = (find()?, options) {
            return Ok(keyspace);
        }
        if self.lifecycle.is_read_only() {
            let _writing = self.writing.lock();
            if let Some(keyspace) = find()? {
                self.join(&keyspace, options)?;
                return Ok(keyspace);
            }
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "there is no keyspace {name:?}, and a database that is open read-only cannot create it"
                ),
            ));
        }
        let events = hold_events();
        // One creation at a time, and no concurrent rotation.
        let mut writing = self.writing.lock();
        if let Some(keyspace) = find()? {
            self.join(&keyspace, options)?;
            return Ok(keyspace);
        }
        // Those of the open hold, too.
        let of_open = self.given().and_then(|given| given.get(name));
        let given = operator_for(name, None, of_open)?;
        let merging = operator_for(name, given.as_deref().map(Merging::name), options)?;
        let merging = given.or(merging);
        let filtering = filter_for(name, None, of_open)?;
        let filtering = filter_for(name, filtering.as_ref(), options)?;
        let fifo = fifo_for(None, of_open, self.now())?;
        let fifo = fifo_for(fifo.as_ref(), options, self.now())?;
        for given in [of_open, options] {
            check_fifo_with(name, (merging.as_deref(), fifo.as_ref()), given)?;
        }
        let id = u32::try_from(self.catalog.new_id())
            .map_err(|_| Error::invalid("all keyspace numbers are used"))?;
        let id = KeyspaceId(id);
        // What the caller gives comes before what the open was given.
        let given = KeyspaceOptions::first_given(options, of_open);
        let prefix = prefix_for(name, None, Some(&given))?;
        let overrides = overrides_for(name, &Overrides::default(), Some(&given))?;
        self.begin_expiry_for(&given)?;
        let seq = self.reserve_seq(id, &mut writing)?;
        self.catalog.install(&[], Vec::new(), |_| {
            let created = || HistoryEntry::Created { seq, keyspace: id, name: name.to_owned() };
            let settings = given.settings().into_iter().chain(fifo.iter().flat_map(|fifo| fifo.pairs()));
            let name_of = |filtering: &Arc<Filtering>| (id, Some(filtering.name().to_owned()));
            Ok(ManifestEdit {
                keyspaces_created: vec![(id, name.to_owned(), settings.collect())],
                merge_operators: merging.iter().map(|merging| (id, merging.name().to_owned())).collect(),
                compaction_filters: filtering.iter().map(name_of).collect(),
                last_seq: Some(seq),
                history: self.in_stream(created),
                ..ManifestEdit::default()
            })
        })?;
        let version = Arc::new(Version::empty());
        let memtable = ChunkedMemtable::new(self.settings.memtable_index);
        let closed = Arc::clone(self.lifecycle.closed_flag());
        let keyspace = KeyspaceCore::new(id, name.to_owned(), version, memtable, merging, closed);
        keyspace.set_prefix(prefix);
        keyspace.set_overrides(overrides);
        keyspace.set_time_to_live(given.given_time_to_live());
        keyspace.set_filtering(filtering);
        keyspace.set_fifo(fifo);
        let keyspace = Arc::new(keyspace);
        self.catalog.add_keyspace(&keyspace);
        writing.active.renew(&self.catalog);
        assert!(writing.active.get(id).is_some(), "writes to keyspace {id}, which is new, would be lost");
        self.publish(&mut writing, seq);
        drop(writing);
        drop(events);
        self.run_inline();
        Ok(keyspace)
    }

    /// Begins the use of expiry if the options of a keyspace let its entries expire: a build that
    /// does not know it would write entries that do not.
    fn begin_expiry_for(&self, options: &KeyspaceOptions) -> Result<()> {
        let expires = options.given_time_to_live().is_some_and(|it| it != Duration::MAX);
        if expires { self.catalog.begin_expiry() } else { Ok(()) }
    }

    /// The newest write, and the time.
    fn now(&self) -> (SeqNo, u64) {
        (self.reads.visible(), self.reads.expiry().now_ms())
    }

    /// Gives an existing keyspace what is in `options`, all or nothing, and records it. A database
    /// that is open read-only records nothing: it holds for this open.
    ///
    /// # Errors
    /// `Invalid` for other names than the recorded ones, and for limits that do not go with them;
    /// of recording them.
    fn join(&self, keyspace: &KeyspaceCore, options: Option<&KeyspaceOptions>) -> Result<()> {
        let merging = new_operator(keyspace, options)?;
        let known = keyspace.filtering();
        let filtering = filter_for(&keyspace.name, known.as_ref(), options)?;
        let names = |filter: &Option<Arc<Filtering>>| filter.as_ref().map(|filter| filter.name().to_owned());
        let mut edit = ManifestEdit::default();
        if let (Some(merging), true) = (&merging, keyspace.merging().is_none()) {
            edit.merge_operators.push((keyspace.id, merging.name().to_owned()));
        }
        if names(&filtering) != names(&known) {
            edit.compaction_filters.push((keyspace.id, names(&filtering)));
        }
        let known = keyspace.fifo();
        let fifo = fifo_for(known.as_ref(), options, self.now())?;
        let of_both = merging.clone().or_else(|| keyspace.merging());
        check_fifo_with(&keyspace.name, (of_both.as_deref(), fifo.as_ref()), options)?;
        if fifo != known {
            edit.keyspace_settings.push((keyspace.id, fifo_pairs(fifo.as_ref())));
        }
        let prefix = prefix_for(&keyspace.name, keyspace.prefix(), options)?;
        if prefix != keyspace.prefix() {
            edit.keyspace_settings.push((keyspace.id, vec![prefix_setting(prefix)]));
        }
        let known_overrides = keyspace.overrides();
        let overrides = overrides_for(&keyspace.name, &known_overrides, options)?;
        if overrides != *known_overrides {
            // Those that are given: others may be recorded that this build cannot read.
            let given = options.map(KeyspaceOptions::override_pairs).unwrap_or_default();
            edit.keyspace_settings.push((keyspace.id, given));
        }
        let time_to_live = options.and_then(KeyspaceOptions::given_time_to_live);
        if let (Some(options), Some(_)) = (options, time_to_live) {
            edit.keyspace_settings.push((keyspace.id, options.settings()));
        }
        let before = (keyspace.may_compact(), keyspace.has_levels());
        if self.lifecycle.is_read_only() {
            keyspace.set_fifo(fifo);
        } else {
            options.map_or(Ok(()), |options| self.begin_expiry_for(options))?;
            let has_names = !edit.merge_operators.is_empty() || !edit.compaction_filters.is_empty();
            if has_names || !edit.keyspace_settings.is_empty() {
                self.catalog.install(&[], Vec::new(), |_| Ok(edit))?;
            }
        }
        // Nothing fails from here on.
        keyspace.set_prefix(prefix);
        let has_changed = overrides != *known_overrides;
        keyspace.set_overrides(overrides);
        if time_to_live.is_some() {
            keyspace.set_time_to_live(time_to_live);
        }
        if let Some(merging) = merging {
            keyspace.set_merging(merging);
        }
        keyspace.set_filtering(filtering);
        if has_changed || (keyspace.may_compact(), keyspace.has_levels()) != before {
            self.pressure_changed();
            if let Some(background) = self.background.get() {
                background.wake();
            }
        }
        Ok(())
    }

    /// Removes a keyspace. Its tables are deleted when their last reader is gone.
    ///
    /// # Errors
    /// `Invalid` for the default keyspace and for an unknown one; `Closed`, `ReadOnly`; of syncing
    /// the log (without one, of the flush) and of installing the drop.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.lifecycle.check_writable()?;
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace cannot be dropped"));
        }
        let events = hold_events();
        let mut writing = self.writing.lock();
        let found = self.catalog.named(name);
        let keyspace = found.ok_or_else(|| Error::invalid(format!("there is no keyspace {name:?}")))?;
        // This syncs the log. The drop is durable at once; the writes before it must not be lost.
        let seq = self.reserve_seq(keyspace.id, &mut writing)?;
        self.catalog.install(&[], Vec::new(), |_| {
            let (id, name) = (keyspace.id, &keyspace.name);
            let dropped = || HistoryEntry::Dropped { seq, keyspace: id, name: name.clone() };
            Ok(ManifestEdit {
                keyspaces_dropped: vec![id],
                last_seq: Some(seq),
                history: self.in_stream(dropped),
                ..ManifestEdit::default()
            })
        })?;
        self.catalog.remove_keyspace(keyspace.id);
        writing.active.renew(&self.catalog);
        assert!(
            writing.active.get(keyspace.id).is_none(),
            "keyspace {} takes writes after its drop",
            keyspace.id
        );
        self.publish(&mut writing, seq);
        if let Some(background) = self.background.get() {
            background.forget(keyspace.id);
        }
        if self.recorder.is_on() {
            self.recorder.noting().gone(&keyspace.name);
        }
        // Remaining handles of the keyspace must not keep its files.
        keyspace.publish(|view| {
            view.next(vec![Arc::new(ChunkedMemtable::new(false))], Arc::new(Version::empty()))
        });
        self.reads.release_stale_views(&self.catalog);
        self.pressure_changed();
        drop(writing);
        drop(events);
        self.run_inline();
        Ok(())
    }

    /// Adds entries to `keyspace` as tables, under one new sequence number. `check` is called when
    /// all earlier entries are in tables, and `add` then builds and installs the tables with the
    /// sequence number. Returns the number of entries that `add` returned. They become visible
    /// together; no write runs meanwhile. The other value that `add` returned is dropped after
    /// that.
    ///
    /// An operation without effect reserves the sequence number in the log, so that recovery sees
    /// no gap.
    ///
    /// # Errors
    /// Those of `check` and `add`, with which nothing is visible; of the back-pressure, of the
    /// flush and of the log.
    pub fn add_tables<T>(
        &self,
        keyspace: &KeyspaceCore,
        check: impl FnOnce() -> Result<()>,
        add: impl FnOnce(SeqNo) -> Result<(u64, T)>,
    ) -> Result<u64> {
        // Each adds a run: without a wait for compactions, writers would wait for ever.
        self.admit(0, WriteOptions::new())?;
        // Most memtables are flushed before writers have to wait.
        self.flush()?;
        let events = hold_events();
        let mut writing = self.writing.lock();
        self.lifecycle.check_writable()?;
        keyspace.check_usable()?;
        // All memtables, sealed or not, are older than the entries, and must become an older run.
        self.flush_locked(&mut writing)?;
        check()?;
        debug_assert!(writing.active.is_empty(), "entries in memtables would be newer than the tables");
        let seq = self.reserve_seq(keyspace.id, &mut writing)?;
        // From the install on a compaction may read the entries. Until they are visible it must
        // keep the versions that they hide, for snapshots taken in between.
        let before = self.reads.snapshot();
        let (count, kept) = add(seq)?;
        // A read loads its view before its sequence number, so it may have the view before the
        // tables and the number of a later write. It must not see that write without the tables.
        writing.active.replace_empty(&self.catalog, keyspace, self.settings.memtable_index);
        let noting = self.recorder.is_on().then(|| {
            let mut noting = self.recorder.noting();
            noting.ingested(count);
            noting
        });
        assert_eq!(writing.last_seq, seq, "a write ran while tables were added");
        self.publish(&mut writing, seq);
        // The tables are durable, and so is everything before them.
        self.durable.advance(seq);
        drop(kept);
        drop(noting);
        drop(before);
        drop(writing);
        drop(events);
        self.run_inline();
        Ok(count)
    }

    /// The entry of the history for a change whose sequence number was reserved in the log; none
    /// without a log, where there is no stream of changes. The number alone then shows the gap.
    fn in_stream(&self, entry: impl FnOnce() -> HistoryEntry) -> Vec<HistoryEntry> {
        if self.settings.no_wal { Vec::new() } else { vec![entry()] }
    }

    /// Takes the next sequence number for a change that is not logged: the entries of an ingest, or
    /// a change of the list of keyspaces. Makes everything before it durable: by a sync of the log,
    /// or without one by a flush. Rotates the log if the history holds many such changes of it.
    fn reserve_seq(&self, keyspace: KeyspaceId, writing: &mut Writing) -> Result<SeqNo> {
        // A write that has failed may have used the number in the log.
        self.lifecycle.check_writable()?;
        let seq = writing.last_seq.next();
        debug_assert!(self.reads.visible() < seq, "a sequence number is visible before it is reserved");
        if self.settings.no_wal {
            // The change is durable at once, and what was written before it must not be lost alone.
            self.flush_locked(writing)?;
        } else {
            if self.is_history_long(writing) {
                match self.rotate(writing) {
                    // A full disk must not refuse a drop, which frees space.
                    Err(error) if error.kind() == ErrorKind::NoSpace => self.lifecycle.check_writable()?,
                    rotated => rotated?,
                }
            }
            self.ensure_log(writing)?;
            writing.log.append_nothing(keyspace, writing.last_seq, seq)?;
            writing.last_seq = seq;
            self.sync_log(writing)?;
        }
        writing.last_seq = seq;
        Ok(seq)
    }

    /// Whether the history of the active log is at its limit, so that the log is to be rotated. Not
    /// while flushes are behind: each rotation adds a generation, and writers wait for those.
    fn is_history_long(&self, writing: &Writing) -> bool {
        let since = writing.sealed_seq;
        let history_bytes =
            |state: Option<&ManifestState>| state.map_or(0, |it| it.history.change_bytes_after(since));
        self.sealed.is_empty() && self.catalog.with_state(history_bytes) >= HISTORY_BYTES_MAX
    }

    /// Marks the database closed, between two commit groups. Without a log only a flush can save
    /// the memtables: its outcome is returned, and a failure does not keep the database open.
    /// `None` if the database was closed already.
    pub fn close(&self) -> Option<Result<()>> {
        let flush_first = self.settings.no_wal && self.lifecycle.check_writable().is_ok();
        // Most of the flush is done while writes go on.
        let flushed = if flush_first { self.flush() } else { Ok(()) };
        let _events = hold_events();
        // Under the lock no write can come between the last flush and the close: it would be
        // acknowledged and lost.
        let mut writing = self.writing.lock();
        let flushed = flushed.and_then(|()| match self.lifecycle.check_writable() {
            Ok(()) if flush_first => self.flush_locked(&mut writing),
            // The log can end cleanly only after that.
            Ok(()) => self.settle_replayed(&mut writing),
            Err(_) => Ok(()),
        });
        self.lifecycle.close().then_some(flushed)
    }

    /// Ends the log of a closed database cleanly: syncs everything in it, writes an end marker, and
    /// promises its length in the manifest. The same edit records `settings`.
    ///
    /// # Errors
    /// The cause, if writes are off; of writing the log or the manifest.
    pub fn finish_log(&self, settings: Pairs) -> Result<()> {
        if self.lifecycle.is_read_only() {
            return Ok(());
        }
        let _events = hold_events();
        let mut writing = self.writing.lock();
        self.lifecycle.check_not_failed()?;
        assert!(self.lifecycle.is_closed(), "the log ends before the database is closed");
        let promise = writing.log.finish()?;
        if promise.is_none() && !self.settings.no_wal {
            return Ok(());
        }
        // The settings are recorded for a database without a log, too.
        let edit = ManifestEdit {
            settings,
            log_promise: promise,
            last_seq: Some(writing.last_seq),
            next_id: Some(self.catalog.next_id()),
            ..ManifestEdit::default()
        };
        self.catalog.append(&edit)
    }
}

/// The merge operator that `options` give to a keyspace that has none, or none of which the code is
/// known.
///
/// # Errors
/// `Invalid` for another operator than it has.
fn new_operator(keyspace: &KeyspaceCore, options: Option<&KeyspaceOptions>) -> Result<Option<Arc<Merging>>> {
    let view = keyspace.load();
    let known = view.merging();
    let merging = operator_for(&keyspace.name, known.map(Merging::name), options)?;
    Ok(merging.filter(|merging| merging.is_given() && !known.is_some_and(Merging::is_given)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};

    use super::*;
    use crate::database::Db;

    /// Bytes of all changes in the history.
    fn history_bytes(db: &Db) -> usize {
        let bytes = |state: &ManifestState| state.history.change_bytes_after(SeqNo::ZERO);
        db.core().catalog.with_state(|state| state.map_or(0, bytes))
    }

    #[test]
    fn operations_that_fill_no_memtable_leave_a_bounded_history_and_log() {
        let fs = Arc::new(MemFs::new());
        let env = Env::deterministic(Arc::clone(&fs) as _, 1);
        let db = Db::builder("/db").env(env).info_log(false).open().expect("opened");
        let log_bytes = || {
            let files = fs.list(Path::new("/db")).expect("listed");
            files.iter().filter(|file| file.name.ends_with(".log")).map(|log| log.bytes).sum::<u64>()
        };
        let check = |number: u32| {
            let history_bytes = history_bytes(&db);
            // The history of a log and of the one before it.
            assert!(history_bytes < 3 * HISTORY_BYTES_MAX, "{history_bytes} bytes after {number}");
            assert!(log_bytes() < 64 << 10, "{} bytes of logs after {number}", log_bytes());
        };
        for number in 0..2_000 {
            let name = format!("{number:0>200}");
            db.create_keyspace(&name).expect("created");
            db.drop_keyspace(&name).expect("dropped");
            check(number);
        }
        for number in 0..500 {
            let key = format!("{number:0>200}");
            db.ingest([(&key, "value")]).expect("ingested");
            check(number);
        }
        let active = db.core().catalog.logs().oldest().expect("a log").0;
        assert!(active.0 > 10, "log {active} is the first one");
        assert_eq!(db.iter().count(), 500);
    }

    /// Creates and drops keyspaces while no file of that kind can be created, until the history
    /// asks for another log. Returns the number of generations that wait then.
    fn generations_after_drops(refused: &str, puts: bool) -> usize {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env::deterministic(Arc::new(faults.clone()), 1);
        let db = Db::builder("/db").env(env).info_log(false).open().expect("opened");
        faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Create]).at_path(refused).sticky());
        if puts {
            db.put("a", "1").expect("written");
            assert_eq!(db.flush().map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
        }
        for number in 0..500 {
            let name = format!("{number:0>200}");
            db.create_keyspace(&name).expect("created");
            db.drop_keyspace(&name).expect("dropped");
        }
        let bytes = history_bytes(&db);
        assert!(bytes > HISTORY_BYTES_MAX, "{bytes} bytes ask for no other log");
        db.core().writer.sealed().len()
    }

    #[test]
    fn without_space_for_another_log_keyspaces_are_still_dropped() {
        assert_eq!(generations_after_drops(".log", false), 0);
    }

    #[test]
    fn the_history_adds_no_generations_while_flushes_fail() {
        assert_eq!(generations_after_drops(".sst", true), 1);
    }
}
