//! Installs manifest edits: makes an edit durable, then visible.
//!
//! Installs are serialized. Each computes the next state from the current one, appends the edit to
//! the manifest and syncs it, then publishes the new versions to readers. An edit that does not fit
//! the state is refused before a byte is written. If the manifest cannot be written, writes are
//! turned off and nothing is installed. Files that became obsolete are deleted after the edit is
//! durable, when their last reader is gone.
//!
//! A manifest that ran out of space for an edit is abandoned, without the edit. The next install
//! first writes a new manifest with the state in force, and retries that as often as needed. So
//! flushes and compactions resume when there is space again.

use std::sync::Arc;

use shamba_key::LogNo;
use shamba_log::wal::log_file_name;
use shamba_memtable::Memtable;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter, manifest_file_name};
use shamba_tree::version::{ManifestEdit, TableMeta};

use super::edits::{check_edited, new_tables, obsolete_tables, unknown_values};
use super::{Catalog, Installing, Member};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::WorkCounters;
use crate::options::fifo::FifoState;
use crate::telemetry::hold_events;

/// Maximum bytes of edits in a manifest; beyond it a snapshot of the state replaces it.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

impl Catalog {
    /// Installs the edit that `build` makes from the current state. The memtables
    /// of `flushed` leave the views in the same step in which their tables join. `new` are the
    /// tables that the edit is to add. If `build` fails, as in a database that is being
    /// closed, they are marked obsolete, because no edit names them.
    ///
    /// # Errors
    /// The error of `build`. `NoSpace` when the edit did not fit on the disk: it is not in force,
    /// its new tables are marked obsolete, and the next call may succeed. Any other failure turns
    /// writes off.
    pub fn install(
        &self,
        flushed: &[Member],
        new: Vec<Arc<TableMeta>>,
        build: impl FnOnce(&ManifestState) -> Result<ManifestEdit>,
    ) -> Result<()> {
        self.install_holding(flushed, new, |state| Ok((build(state)?, ())))
    }

    /// [`Self::install`], where `build` also returns what is to be held until the edit is visible.
    /// It is dropped then, or after a failure, before anything else is done.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn install_holding<H>(
        &self,
        flushed: &[Member],
        new: Vec<Arc<TableMeta>>,
        build: impl FnOnce(&ManifestState) -> Result<(ManifestEdit, H)>,
    ) -> Result<()> {
        let _events = hold_events();
        let mut guard = self.installing.lock();
        let Some(installing) = guard.as_mut() else {
            return Err(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        };
        let built = self.lifecycle.check_writable().and_then(|()| build(&installing.state));
        let (mut edit, held) = built.inspect_err(|_| {
            self.obsolete.mark_tables_obsolete(new);
        })?;
        edit.next_id = Some(self.next_id());
        if self.expiry.is_used() {
            // What a compaction has taken for expired must not be visible after the next open.
            edit.time_ms = Some(self.expiry.now_ms());
        }
        debug_assert_eq!(unknown_values(&installing.state, &edit), None, "an edit leaves out a value file");
        let mut next = installing.state.clone();
        // An invalid edit is a defect of this program, not of the disk: stop rather than write it.
        next.apply(&edit).map_err(|detail| {
            let error = Error::invalid(format!("an edit is inconsistent with the tree: {detail}"));
            self.lifecycle.fail(&error);
            error
        })?;
        if !edit.history.is_empty() {
            if let Some((log, seq)) = self.logs.oldest_read() {
                next.history.prune(log, seq);
            }
        }
        debug_assert!(next.last_seq >= installing.state.last_seq, "an edit takes sequence numbers back");
        debug_assert!(next.next_id >= installing.state.next_id, "an edit takes numbers of files back");
        debug_assert!(
            next.first_log >= installing.state.first_log,
            "an edit needs a log again that was obsolete"
        );
        if cfg!(debug_assertions) {
            check_edited(&next, &edit.versions);
        }
        if let Err(error) = self.append_edit(installing, &edit) {
            if self.lifecycle.check_writable().is_ok() {
                // If writes are off, the edit may be in force at the next open, and must find its
                // tables.
                self.obsolete.mark_tables_obsolete(new_tables(&installing.state, &edit));
            }
            return Err(error);
        }
        let dead = obsolete_tables(&installing.state, &next, &edit);
        if cfg!(debug_assertions) {
            let new = new_tables(&installing.state, &edit);
            assert!(
                dead.iter().all(|dead| new.iter().all(|new| new.id != dead.id)),
                "an edit adds a table and makes it obsolete"
            );
        }
        installing.state = next;
        self.publish_drops(&edit);
        self.publish_fifo(&installing.state, &edit);
        self.publish_versions(&installing.state, &edit, flushed);
        drop(held);
        let observers = self.observers();
        observers.iter().for_each(|observer| observer.published());
        if installing.manifest.is_outgrown(MANIFEST_BYTES_MAX) {
            // Without space the old one stays in force, and the next install retries; other
            // failures turn writes off.
            let _ = self.renew_manifest(installing);
        }
        drop(guard);
        observers.iter().for_each(|observer| observer.installed(&dead));
        self.mark_tables_obsolete(dead);
        self.remove_obsolete_files();
        Ok(())
    }

    /// Begins the use of the clock by which entries expire, before the first of them is written: a
    /// build that does not know them must refuse the database from now on.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn begin_expiry(&self) -> Result<()> {
        if self.expiry.is_used() {
            return Ok(());
        }
        let time_ms = Some(self.expiry.now_ms());
        self.install(&[], Vec::new(), |_| Ok(ManifestEdit { time_ms, ..ManifestEdit::default() }))?;
        self.expiry.begin_use();
        Ok(())
    }

    /// Records the time by which entries expire, if any do: it must not go back at the next open.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn record_time(&self) -> Result<()> {
        if !self.expiry.is_used() || self.lifecycle.is_read_only() {
            return Ok(());
        }
        self.install(&[], Vec::new(), |_| Ok(ManifestEdit::default()))
    }

    /// Appends an edit to the manifest and makes it durable. Replaces a manifest that ran out of
    /// space first.
    ///
    /// # Errors
    /// `NoSpace`: the edit is not in force. Any other failure turns writes off.
    fn append_edit(&self, installing: &mut Installing, edit: &ManifestEdit) -> Result<()> {
        if installing.manifest.is_out_of_space() {
            self.renew_manifest(installing)?;
        }
        // The new one may have found space for the state and none for the promise after it. Then it
        // refuses the edit as well, and the next call replaces it in turn.
        let manifest = &mut installing.manifest;
        let bytes_before = manifest.bytes();
        if let Err(error) = manifest.append(edit).map_err(Error::from) {
            if !manifest.is_out_of_space() {
                self.lifecycle.fail(&error);
            }
            return Err(error);
        }
        WorkCounters::add(
            &self.telemetry.work().bytes_manifest,
            manifest.bytes().saturating_sub(bytes_before),
        );
        Ok(())
    }

    /// Replaces the manifest by a new one with the state in force.
    ///
    /// # Errors
    /// `NoSpace`: nothing has changed. Any other failure turns writes off.
    fn renew_manifest(&self, installing: &mut Installing) -> Result<()> {
        let number = self.new_id();
        let draft =
            ManifestWriter::draft(&self.env, &self.dir, number, &installing.state).map_err(Error::from);
        let draft = draft.inspect_err(|error| {
            // The incomplete file takes space. Each try has a new file, of which no sync was tried
            // before.
            self.obsolete.mark_file_obsolete(self.dir.join(manifest_file_name(number)));
            self.remove_obsolete_files();
            if error.kind() != ErrorKind::NoSpace {
                self.lifecycle.fail(error);
            }
        })?;
        let fresh = draft.put_in_force(&self.env, &self.dir).map_err(Error::from);
        let fresh = fresh.inspect_err(|error| self.lifecycle.fail(error))?;
        let old = std::mem::replace(&mut installing.manifest, fresh);
        assert_ne!(old.number(), number, "a manifest was replaced by itself");
        self.obsolete.mark_file_obsolete(self.dir.join(manifest_file_name(old.number())));
        Ok(())
    }

    /// Ends the use of dropped keyspaces. Under the lock of installs, so that a compaction that
    /// finds its keyspace missing from the state finds it marked, too.
    fn publish_drops(&self, edit: &ManifestEdit) {
        let keyspaces = self.keyspaces.load();
        edit.keyspaces_dropped
            .iter()
            .filter_map(|id| keyspaces.get(id))
            .for_each(|dropped| dropped.set_dropped());
    }

    /// Under the lock of installs, so that a drop that is installed knows the limits that hold.
    fn publish_fifo(&self, state: &ManifestState, edit: &ManifestEdit) {
        let keyspaces = self.keyspaces.load();
        for (id, settings) in edit.keyspace_settings.iter().filter(|(_, pairs)| FifoState::is_in(pairs)) {
            let (Some(keyspace), Some(recorded)) = (keyspaces.get(id), state.keyspaces.get(id)) else {
                continue;
            };
            let fifo = FifoState::read(&recorded.settings);
            debug_assert!(fifo.is_ok(), "recorded FIFO limits cannot be read: {settings:?}");
            keyspace.set_fifo(fifo.ok().flatten().map(Arc::new));
        }
    }

    fn publish_versions(&self, state: &ManifestState, edit: &ManifestEdit, flushed: &[Member]) {
        let is_flushed =
            |memtable: &Arc<dyn Memtable>| flushed.iter().any(|(_, member)| Arc::ptr_eq(member, memtable));
        for (id, keyspace) in self.keyspaces.load().iter() {
            let Some(keyspace_state) = state.keyspaces.get(id) else { continue };
            let is_edited = edit.versions.iter().any(|version| version.keyspace == *id);
            let is_member = flushed.iter().any(|(member, _)| member.id == *id);
            if !is_edited && !is_member {
                continue;
            }
            keyspace.publish(|view| {
                let memtables = view.memtables.iter().filter(|memtable| !is_flushed(memtable));
                view.next(memtables.cloned().collect(), Arc::new(keyspace_state.version.clone()))
            });
        }
    }

    /// Appends an edit that changes no tree, and makes it durable. Nothing to do when read-only.
    ///
    /// # Errors
    /// `NoSpace`: the edit is not in force. Any other failure turns writes off.
    pub fn append(&self, edit: &ManifestEdit) -> Result<()> {
        let _events = hold_events();
        match self.installing.lock().as_mut() {
            Some(installing) => self.append_edit(installing, edit),
            None => Ok(()),
        }
    }

    /// Applies the edit of an open and puts a new manifest with the result in force; edits can be
    /// installed from now on.
    ///
    /// # Errors
    /// `Invalid` if the edit does not fit the state; of writing the manifest. The new tables and
    /// `new_log` are then removed, unless the new manifest may be in force.
    pub fn begin(
        &self,
        state: &mut ManifestState,
        mut edit: ManifestEdit,
        new_log: Option<LogNo>,
    ) -> Result<()> {
        let number = self.new_id();
        edit.next_id = Some(self.next_id());
        if self.expiry.is_used() {
            // What a compaction has taken for expired must not be visible after the next open.
            edit.time_ms = Some(self.expiry.now_ms());
        }
        debug_assert_eq!(unknown_values(state, &edit), None, "an edit leaves out a value file");
        let mut next = state.clone();
        next.apply(&edit)
            .map_err(|detail| Error::invalid(format!("recovery is inconsistent with the tree: {detail}")))?;
        let draft = match ManifestWriter::draft(&self.env, &self.dir, number, &next) {
            Ok(draft) => draft,
            Err(error) => {
                // The state before stays in force. On a full disk, the next open needs the space.
                let new = new_tables(state, &edit);
                drop((next, edit));
                self.mark_tables_obsolete(new);
                self.mark_file_obsolete(self.dir.join(manifest_file_name(number)));
                if let Some(log) = new_log {
                    self.mark_file_obsolete(self.dir.join(log_file_name(log)));
                }
                self.remove_files_marked_obsolete();
                return Err(error.into());
            }
        };
        let manifest = draft.put_in_force(&self.env, &self.dir)?;
        *state = next;
        debug_assert!(self.installing.lock().is_none(), "a database was opened twice");
        *self.installing.lock() = Some(Installing { manifest, state: state.clone() });
        Ok(())
    }

    /// Appends an edit that the caller has applied: `state` is the result. Only for an open, before
    /// there are other threads.
    ///
    /// # Errors
    /// Of writing the manifest.
    pub fn continue_with(&self, edit: &ManifestEdit, state: &ManifestState) -> Result<()> {
        if let Some(installing) = self.installing.lock().as_mut() {
            installing.manifest.append(edit)?;
            installing.state = state.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use shamba_env::{Env, ManualClock, MemFs};
    use shamba_key::{KeyspaceId, SeqNo};
    use shamba_tree::version::HistoryEntry;
    use shamba_tree::version::manifest::ManifestReader;

    use super::*;
    use crate::options::settings::Settings;
    use crate::testing::Parts;

    /// The state that the next open would find.
    fn recorded(parts: &Parts) -> ManifestState {
        let loaded = ManifestReader::load(&parts.env, parts.catalog.dir()).expect("readable");
        loaded.expect("a database").state
    }

    #[test]
    fn an_edit_with_history_drops_what_only_logs_before_the_oldest_one_need() {
        let parts = Parts::new(Settings::default());
        parts.begin();
        let dropped = |seq| HistoryEntry::Dropped {
            seq: SeqNo(seq),
            keyspace: KeyspaceId(7),
            name: format!("dropped at {seq}"),
        };
        let install = |history: Vec<HistoryEntry>| {
            let edit = ManifestEdit { history, ..ManifestEdit::default() };
            parts.catalog.install(&[], Vec::new(), |_| Ok(edit)).expect("installed");
            parts.catalog.state().expect("a state").history.entries().to_vec()
        };
        assert_eq!(install(vec![dropped(5), dropped(10), dropped(15)]).len(), 3, "no log is known");
        parts.catalog.logs().rotate(LogNo(1), "/db/000001.log".into(), SeqNo(10));
        assert_eq!(install(Vec::new()).len(), 3, "an edit without history leaves it as it is");
        assert_eq!(install(vec![dropped(20)]), [dropped(15), dropped(20)]);
    }

    #[test]
    fn the_time_of_expiry_is_recorded_once_it_is_used_and_not_before() {
        let clock = Arc::new(ManualClock::new());
        let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
        let parts = Parts::within(env, Settings::default(), None);
        parts.begin();
        let written = || parts.telemetry.work().bytes_manifest.load(Ordering::Relaxed);
        parts.catalog.record_time().expect("nothing to do");
        assert_eq!((written(), recorded(&parts).time_ms), (0, None), "no entry expires");
        parts.catalog.begin_expiry().expect("recorded");
        let begun_ms = parts.catalog.expiry.now_ms();
        assert_eq!(recorded(&parts).time_ms, Some(begun_ms));
        clock.advance_us(5_000_000);
        parts.catalog.record_time().expect("recorded");
        assert_eq!(recorded(&parts).time_ms, Some(begun_ms + 5_000));
    }

    #[test]
    fn an_edit_that_the_open_has_applied_is_in_the_manifest_and_in_the_state() {
        let parts = Parts::new(Settings::default());
        parts.begin();
        let promise = Some((LogNo(1), 77));
        let edit = ManifestEdit { log_promise: promise, ..ManifestEdit::default() };
        let mut state = parts.catalog.state().expect("a state");
        state.apply(&edit).expect("it fits");
        parts.catalog.continue_with(&edit, &state).expect("written");
        let in_force = parts.catalog.state().expect("a state").log_promise;
        assert_eq!((in_force, recorded(&parts).log_promise), (promise, promise));
    }
}
