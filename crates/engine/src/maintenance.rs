//! Operations on the whole database: flush, compact, keyspaces, checkpoints, ingest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_key::{EntryKind, SeqNo};
use shamba_model::MAX_LEVELS;
use shamba_table::table_file_name;

use crate::catalog::KeyspaceCore;
use crate::core::{Core, Work, Writing};
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::key_range::check_keyspace_name;
use crate::recovery::{DEFAULT_KEYSPACE, LOCK, sync_names_above};
use crate::table_files::output::Output;
use crate::write::batch::check_op;
use shamba_env::lock;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::{OpRef, WalWriter};
use shamba_memtable::ChunkedMemtable;
use shamba_tree::version::manifest::ManifestWriter;
use shamba_tree::version::{Change, KeyRange, ManifestEdit, Version, VersionEdit};

/// An ingest recomputes its table size after this many pairs.
const SIZED_EVERY_PAIRS: usize = 1024;

impl Db {
    /// As [`Db::ingest`], but the tables become a run of `level` at once instead of a run of level
    /// 0. So a tree is written from its deepest level up, and every entry is written once. For
    /// experiments and tests, with [`crate::Builder::auto_compaction`] off; otherwise the next
    /// compaction reshapes the tree by its design.
    ///
    /// # Errors
    /// `Invalid` for a level beyond 64, and when a run lies above `level`, because its entries
    /// would count as newer. Otherwise as [`Db::ingest`].
    pub fn place<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.core().ingest(&self.keyspace, level, pairs)
    }
}

impl Core {
    /// Seals the memtables and waits until they are in tables.
    pub(crate) fn flush_now(&self) -> Result<()> {
        self.lifecycle.check_writable()?;
        let through = {
            let mut writing = lock(&self.writing);
            // A close may have come first: no log may be created after it.
            self.seal_active(&mut writing)?;
            writing.last_seq
        };
        // Not until the queue is empty: other writers may keep filling it.
        self.wait_until(&[Work::Flush], |state| {
            state.immutables.front().is_none_or(|oldest| oldest.last_seq > through)
        })
    }

    /// Flushes all memtables while there are no writes: the caller holds the write lock.
    pub(crate) fn flush_locked(&self, writing: &mut Writing) -> Result<()> {
        self.seal_active(writing)?;
        self.wait_until(&[Work::Flush], |state| state.immutables.is_empty())
    }

    /// Seals the active memtables, if any has entries and writes are allowed.
    fn seal_active(&self, writing: &mut Writing) -> Result<()> {
        self.lifecycle.check_writable()?;
        if self.active_is_empty() { Ok(()) } else { self.rotate(writing) }
    }

    fn active_is_empty(&self) -> bool {
        let keyspaces = self.catalog.keyspaces();
        keyspaces
            .values()
            .all(|keyspace| keyspace.load().memtables.first().is_none_or(|active| active.is_empty()))
    }

    /// Flushes, then compacts every keyspace into one run.
    pub(crate) fn compact_now(&self) -> Result<()> {
        self.flush_now()?;
        let ids: Vec<KeyspaceId> = {
            // Listed under the lock under which a drop removes its keyspace from
            // `full_compactions`.
            let mut state = lock(&self.background.state);
            let ids: Vec<KeyspaceId> = self.catalog.keyspaces().keys().copied().collect();
            state.full_compactions.extend(&ids);
            ids
        };
        let done = self.wait_until(&[Work::Merge], |state| {
            !state.merging && ids.iter().all(|id| !state.full_compactions.contains(id))
        });
        if done.is_err() {
            // Without a waiter, a compaction that fails must not keep others from running.
            lock(&self.background.state).full_compactions.retain(|id| !ids.contains(id));
        }
        done
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    /// `Invalid` for a name that no keyspace can have; `Closed`.
    pub(crate) fn find_keyspace(&self, name: &str) -> Result<Option<Arc<KeyspaceCore>>> {
        self.lifecycle.check_open()?;
        check_keyspace_name(name)?;
        Ok(self.catalog.named(name))
    }

    /// The keyspace of this name, created if it does not exist. With `must_be_new` an existing one
    /// is `Invalid`.
    pub(crate) fn make_keyspace(&self, name: &str, must_be_new: bool) -> Result<Arc<KeyspaceCore>> {
        let find = || match self.find_keyspace(name) {
            Ok(Some(_)) if must_be_new => Err(Error::invalid(format!("keyspace {name:?} already exists"))),
            found => found,
        };
        if let Some(keyspace) = find()? {
            return Ok(keyspace);
        }
        if self.lifecycle.is_read_only() {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "there is no keyspace {name:?}, and a database that is open read-only cannot create it"
                ),
            ));
        }
        // One creation at a time, and no concurrent rotation.
        let mut writing = lock(&self.writing);
        if let Some(keyspace) = find()? {
            return Ok(keyspace);
        }
        let id = u32::try_from(self.catalog.new_id())
            .map_err(|_| Error::invalid("all keyspace numbers are used"))?;
        let id = KeyspaceId(id);
        self.catalog.install(&[], Vec::new(), |_| {
            let keyspaces_created = vec![(id, name.to_owned(), Vec::new())];
            Ok(ManifestEdit { keyspaces_created, ..ManifestEdit::default() })
        })?;
        let version = Arc::new(Version::empty());
        let memtable = ChunkedMemtable::new(self.settings.memtable_index);
        let keyspace = Arc::new(KeyspaceCore::new(
            id,
            name.to_owned(),
            version,
            memtable,
            Arc::clone(self.lifecycle.closed_flag()),
        ));
        self.catalog.add_keyspace(&keyspace);
        writing.active = self.active_memtables();
        Ok(keyspace)
    }

    /// Removes a keyspace. Its tables are deleted when their last reader is gone.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.lifecycle.check_writable()?;
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace cannot be dropped"));
        }
        let mut writing = lock(&self.writing);
        let found = self.catalog.named(name);
        let keyspace = found.ok_or_else(|| Error::invalid(format!("there is no keyspace {name:?}")))?;
        if !self.settings.no_wal {
            // The drop is durable at once; the writes before it must not be lost.
            self.sync_locked(&mut writing)?;
        }
        keyspace.dropped.store(true, Ordering::Release);
        let dropped = self.catalog.install(&[], Vec::new(), |_| {
            Ok(ManifestEdit { keyspaces_dropped: vec![keyspace.id], ..ManifestEdit::default() })
        });
        if let Err(error) = dropped {
            keyspace.dropped.store(false, Ordering::Release);
            return Err(error);
        }
        self.catalog.remove_keyspace(keyspace.id);
        writing.active = self.active_memtables();
        let mut state = lock(&self.background.state);
        state.full_compactions.retain(|id| *id != keyspace.id);
        state.filter_rewrites.retain(|filter_rewrite| filter_rewrite.keyspace != keyspace.id);
        drop(state);
        if self.recorder.is_on() {
            self.recorder.noting().gone(&keyspace.name);
        }
        // Remaining handles of the keyspace must not keep its files.
        keyspace.publish(|view| {
            view.next(vec![Arc::new(ChunkedMemtable::new(false))], Arc::new(Version::empty()))
        });
        self.release_stale_views();
        Ok(())
    }

    /// Copies the current state of the database to `target`: tables by hard links, everything else
    /// by a new manifest.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        let vfs = &self.env.vfs;
        if vfs.exists(target).map_err(|error| Error::io("look at", target, error))? {
            let names = vfs.list(target).map_err(|error| Error::io("list", target, error))?;
            if !names.is_empty() {
                return Err(Error::invalid(format!("{} is not empty", target.display())));
            }
        }
        // Creates one directory, but no missing parents, which a mistyped path may have.
        let above = target.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above {
            if !vfs.exists(above).map_err(|error| Error::io("look at", above, error))? {
                let detail = format!("{} does not exist", above.display());
                let source = std::io::Error::new(std::io::ErrorKind::NotFound, detail);
                return Err(Error::io("create directory", target, source));
            }
        }
        // Flushes the memtables first: the copy then needs no log.
        self.flush_now()?;
        vfs.create_dir_all(target).map_err(|error| Error::io("create directory", target, error))?;
        sync_names_above(&self.env, target)?;
        let _lock = vfs
            .lock(&target.join(LOCK), shamba_env::LockKind::Exclusive)
            .map_err(|error| Error::io("lock", target, error))?;
        // The copy of the state refers to its tables, so their files are not deleted meanwhile.
        let mut state = self.catalog.state()?;
        for keyspace in state.keyspaces.values() {
            for (_, _, table) in keyspace.version.tables() {
                let name = table_file_name(table.meta.id);
                self.link_or_copy(&self.dir.join(&name), &target.join(&name))?;
            }
        }
        let number = self.catalog.new_id();
        state.first_log = LogNo(number + 1);
        state.log_promise = None;
        state.next_id = number + 2;
        let mut wal = WalWriter::create(&self.env, target, state.first_log, None, state.last_seq)?;
        wal.sync()?;
        state.log_promise = Some(wal.finish_clean()?);
        ManifestWriter::create(&self.env, target, number, &state)?;
        Ok(())
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> Result<()> {
        let vfs = &self.env.vfs;
        if vfs.link(from, to).is_ok() {
            return Ok(());
        }
        // Another file system, or one without hard links.
        const CHUNK_BYTES: usize = 1 << 20;
        let source = vfs.open_read(from).map_err(|error| Error::io("open", from, error))?;
        let mut copy = vfs.create(to).map_err(|error| Error::io("create", to, error))?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        loop {
            let read = match source.read_at(offset, &mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("read", from, error)),
            };
            if read == 0 {
                break;
            }
            let part = buffer.get(..read).unwrap_or_default();
            shamba_env::append_all(copy.as_mut(), part).map_err(|error| Error::io("write", to, error))?;
            offset += read as u64;
        }
        copy.sync_all().map_err(|error| Error::io("sync", to, error))
    }

    /// Writes sorted pairs into tables of a new run of `level`; no run may lie above. Writers wait.
    /// The pairs take one sequence number. An operation without effect reserves it in the log, so
    /// that recovery sees no gap.
    pub(crate) fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        // Most memtables are flushed before writers have to wait.
        self.flush_now()?;
        let mut writing = lock(&self.writing);
        self.lifecycle.check_writable()?;
        keyspace.check_usable()?;
        // All memtables, sealed or not, are older than the pairs, and must become an older run.
        self.flush_locked(&mut writing)?;
        // New entries may not lie below older ones.
        check_nothing_above(&keyspace.load().version, level)?;
        let seq = self.reserve_seq(keyspace, &mut writing)?;
        let bits = Arc::new(self.flush_bits(keyspace, 0));
        let options = self.output_options(keyspace, level, bits);
        let mut output = Output::new(&self.table_files, self, options, KeyRange::everything(), Vec::new());
        let mut last_key: Option<Vec<u8>> = None;
        let mut count = 0u64;
        for (number, (key, value)) in pairs.into_iter().enumerate() {
            let key = key.as_ref();
            if last_key.as_deref().is_some_and(|last| last >= key) {
                return Err(Error::invalid(format!(
                    "pair {number}: key \"{}\" does not come after the one before it",
                    key.escape_ascii()
                )));
            }
            check_op(OpRef::Put { key, value: value.as_ref() })?;
            if number % SIZED_EVERY_PAIRS == 0 {
                let (tables, bytes) = output.finished();
                output.set_table_size(self.table_size_beside(tables, bytes));
            }
            output.add(key, None, seq, EntryKind::Put, value.as_ref())?;
            last_key = Some(key.to_vec());
            count += 1;
        }
        let uses = output.finish()?;
        let (run, age) = self.catalog.new_run();
        let new: Vec<_> = uses.iter().map(|table| Arc::clone(&table.meta)).collect();
        let beginning = uses.clone();
        let changes = uses.into_iter().map(|table| Change::Add { level, run, age, table }).collect();
        let edit = VersionEdit { keyspace: keyspace.id, changes };
        // From the install on a compaction may read the pairs. Until they are visible it must keep
        // the versions that they hide, for snapshots taken in between.
        let before = self.reads.snapshot();
        self.catalog.install(&[], new, |state| {
            // A compaction may have run meanwhile.
            if let Some(keyspace) = state.keyspaces.get(&edit.keyspace) {
                check_nothing_above(&keyspace.version, level)?;
            }
            self.begin_statistics(keyspace, &beginning);
            Ok(ManifestEdit { versions: vec![edit], last_seq: Some(seq), ..ManifestEdit::default() })
        })?;
        let noting = self.recorder.is_on().then(|| {
            let mut noting = self.recorder.noting();
            noting.ingested(count);
            noting
        });
        self.reads.publish(seq);
        drop(noting);
        drop(before);
        drop(writing);
        if self.is_inline() {
            self.run_background_inline();
        }
        Ok(count)
    }

    /// Takes the next sequence number for writes that are not logged.
    fn reserve_seq(&self, keyspace: &KeyspaceCore, writing: &mut Writing) -> Result<SeqNo> {
        let seq = writing.last_seq.next();
        if !self.settings.no_wal {
            self.ensure_log(writing)?;
            let Some(wal) = &mut writing.wal else { return Err(Error::closed()) };
            let nothing = OpRef::RangeDelete { start: b"", end: Some(b"") };
            if let Err(error) = wal.append_op(seq, keyspace.id, nothing).and_then(|_| wal.flush()) {
                return Err(self.log_append_failed(writing, error.into()));
            }
            writing.last_seq = seq;
            self.sync_locked(writing)?;
        }
        writing.last_seq = seq;
        Ok(seq)
    }
}

/// Checks that the newest run may be put on `level`.
fn check_nothing_above(version: &Version, level: u32) -> Result<()> {
    if level > MAX_LEVELS {
        return Err(Error::invalid(format!("level {level} is too deep: the maximum is {MAX_LEVELS}")));
    }
    match version.levels().find(|(above, runs)| *above < level && !runs.is_empty()) {
        Some((above, _)) => Err(Error::invalid(format!(
            "level {level} cannot receive new entries: those of level {above} would be read as newer"
        ))),
        None => Ok(()),
    }
}
