//! The tables of an ingest: sorted pairs that become a run at once, past the memtables.

use std::sync::Arc;

use bytes::Bytes;

use shamba_key::{EntryKind, SeqNo};
use shamba_model::MAX_LEVELS;

use super::flush::Flusher;
use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use crate::options::fifo::FifoState;
use crate::ranked::beyond_ranks;
use crate::table_files::output::{Finished, Output};
use crate::writer::operations::check_op;
use shamba_log::wal::OpRef;
use shamba_tree::compaction::fold::FoldOutput;
use shamba_tree::records::RecordEdit;
use shamba_tree::version::{Change, HistoryEntry, KeyRange, ManifestEdit, Version, VersionEdit};

/// An ingest recomputes its table size after this many pairs.
const SIZED_EVERY_PAIRS: u64 = 1024;

impl Flusher {
    /// Writes sorted pairs into tables of a new run of `level`; no run may lie above. Writers wait.
    /// The pairs take one sequence number.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
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
    /// installs it. Returns their number, and the edit of the record cache, which must end after
    /// the pairs are visible.
    fn add_run<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: u32,
        pairs: impl IntoIterator<Item = (K, V)>,
        seq: SeqNo,
    ) -> Result<(u64, RecordEdit<'_>)> {
        let bits = Arc::new(self.filter_bits.of_flush(keyspace, 0));
        let options = self.output_options(keyspace, level, bits);
        let mut output =
            Output::new(&self.table_files, self.memory.as_ref(), options, KeyRange::everything(), Vec::new());
        let mut first_key = Bytes::new();
        let mut last_key: Option<Vec<u8>> = None;
        let mut count = 0u64;
        let mut pairs = OfUser(beyond_ranks(|| Some(pairs.into_iter())));
        while let Some((key, value)) = beyond_ranks(|| pairs.0.as_mut()?.next()) {
            let key = key.as_ref();
            if last_key.as_deref().is_some_and(|last| last >= key) {
                return Err(Error::invalid(format!(
                    "pair {count}: key \"{}\" does not come after the one before it",
                    key.escape_ascii()
                )));
            }
            check_op(OpRef::Put { key, value: value.as_ref() })?;
            let expiry = self.writer.expiry(keyspace, None)?;
            if count % SIZED_EVERY_PAIRS == 0 {
                let (tables, bytes) = output.finished();
                output.set_table_size(self.memory.table_size_beside(&keyspace.overrides(), tables, bytes));
            }
            match expiry {
                None => output.add(key, None, seq, EntryKind::Put, value.as_ref())?,
                Some(expiry) => {
                    let payload = expiry.encode(value.as_ref());
                    output.add(key, None, seq, EntryKind::PutWithExpiry, &payload)?;
                }
            }
            if count == 0 {
                first_key = Bytes::copy_from_slice(key);
            }
            last_key = Some(key.to_vec());
            count += 1;
        }
        let Finished { tables: uses, value_files } = output.finish()?;
        assert_eq!(
            uses.iter().map(|table| table.meta.entries).sum::<u64>(),
            count,
            "the tables of an ingest have another number of entries than it has pairs"
        );
        let (run, age) = self.catalog.new_run();
        let new: Vec<_> = uses.iter().map(|table| Arc::clone(&table.meta)).collect();
        let beginning = uses.clone();
        let changes = uses.into_iter().map(|table| Change::Add { level, run, age, table }).collect();
        let edit = VersionEdit { keyspace: keyspace.id, changes };
        let records = self.reads.records().begin_edit();
        records.erase_where(keyspace.id, |key| {
            let after = beginning.partition_point(|table| table.range.lower.as_ref() <= key);
            after.checked_sub(1).is_some_and(|at| beginning[at].range.contains(key))
        });
        self.catalog.install(&[], new, |state| {
            // A compaction may have run meanwhile.
            if let Some(keyspace) = state.keyspaces.get(&edit.keyspace) {
                check_nothing_above(&keyspace.version, level)?;
            }
            crate::statistics::begin(keyspace, &beginning, self.env.clock.now_us());
            let ingested = last_key.filter(|_| !self.settings.no_wal).map(|last| HistoryEntry::Ingested {
                seq,
                keyspace: keyspace.id,
                entries: count,
                first: first_key,
                last: last.into(),
            });
            // Without this the tables of a keyspace that only ingests would never get an age.
            let (recorded, now_ms) = (state.keyspaces.get(&keyspace.id), self.reads.expiry().now_ms());
            let aged =
                recorded.map(|recorded| FifoState::aged(&recorded.settings, seq, now_ms)).transpose()?;
            Ok(ManifestEdit {
                versions: vec![edit],
                keyspace_settings: aged.flatten().into_iter().map(|pairs| (keyspace.id, pairs)).collect(),
                last_seq: Some(seq),
                history: ingested.into_iter().collect(),
                value_files,
                ..ManifestEdit::default()
            })
        })?;
        Ok((count, records))
    }
}

/// An iterator of the user, whose drop may take locks as its steps may.
struct OfUser<I>(Option<I>);

impl<I> Drop for OfUser<I> {
    fn drop(&mut self) {
        beyond_ranks(|| drop(self.0.take()));
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
