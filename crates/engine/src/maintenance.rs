//! Operations on the whole database: compact, checkpoints, the tables of an ingest.

use std::path::Path;
use std::sync::Arc;

use shamba_key::{EntryKind, SeqNo};
use shamba_model::MAX_LEVELS;
use shamba_table::table_file_name;

use crate::catalog::KeyspaceCore;
use crate::core::Core;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::recovery::{LOCK, sync_names_above};
use crate::table_files::output::Output;
use crate::writer::Work;
use crate::writer::operations::check_op;
use shamba_env::lock;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::{OpRef, WalWriter};
use shamba_tree::version::manifest::ManifestWriter;
use shamba_tree::version::{Change, KeyRange, ManifestEdit, Version, VersionEdit};

/// An ingest recomputes its table size after this many pairs.
const SIZED_EVERY_PAIRS: usize = 1024;

impl Db {
    /// As [`Db::ingest`], but the tables become a run of `level` at once instead of a run of level
    /// 0. So a tree is written from its deepest level up, and every entry is written once. For
    /// experiments and tests, with [`crate::Experimental::auto_compaction`] off; otherwise the next
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
    /// Flushes, then compacts every keyspace into one run.
    pub(crate) fn compact_now(&self) -> Result<()> {
        self.writer.flush()?;
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
        self.writer.flush()?;
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
    /// The pairs take one sequence number.
    pub(crate) fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        // New entries may not lie below older ones.
        let check = || check_nothing_above(&keyspace.load().version, level);
        self.writer.add_tables(keyspace, check, |seq| self.add_run(keyspace, level, pairs, seq))
    }

    /// Writes the pairs of an ingest as a run of `level`, with the sequence number `seq`, and
    /// installs it. Returns their number.
    fn add_run<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
        seq: SeqNo,
    ) -> Result<u64> {
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
        self.catalog.install(&[], new, |state| {
            // A compaction may have run meanwhile.
            if let Some(keyspace) = state.keyspaces.get(&edit.keyspace) {
                check_nothing_above(&keyspace.version, level)?;
            }
            self.begin_statistics(keyspace, &beginning);
            Ok(ManifestEdit { versions: vec![edit], last_seq: Some(seq), ..ManifestEdit::default() })
        })?;
        Ok(count)
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
