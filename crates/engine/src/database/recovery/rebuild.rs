//! Replay of the logs into memtables, and from there into the new log or into tables.
//!
//! A short tail stays in the log: it is copied, batch by batch, to the beginning of the new log,
//! and its memtables become the active ones ([`Tail`]). So a process that repeatedly opens, writes
//! a little and closes does not create a table each time.
//!
//! A longer tail goes to tables: after the open, in the background, if the logs are whole and their
//! entries fit in memory ([`super::deferred`]); otherwise now. A log may hold more than this open
//! may keep in memory, because it was written under a larger budget, or by several opens that
//! crashed. Then replayed entries are written to tables whenever they fill the write buffer. No
//! manifest names these tables until the whole replay is over; then one edit adds all of them. A
//! read-only open may not write: it keeps all entries in memtables of any size, charged to the
//! ledger.
//!
//! Not here: which records are valid ([`shamba_log::wal::replay`]), and the edit that installs the
//! result ([`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use shamba_key::SeqNo;
use shamba_table::{Charge, LedgerPart};

use super::deferred::{self, ReplayedGeneration};
use crate::database::core::Core;
use crate::error::{Error, Result};
use crate::writer::apply_op;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::record::BatchView;
use shamba_log::wal::{
    OpRef, Predecessor, Recovery, ReplayOptions, ReplayReport, Replayed, ReplayedOp, WalWriter,
    parse_log_file_name, replay,
};
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{Change, ManifestEdit, ValueFileMeta, VersionEdit};

/// Divisor: replay charges memory in steps of this fraction of the write buffer.
const STEP_PART: u64 = 16;

/// Minimum of the sequence numbers that are left at an open: more than one process will ever write.
const SEQS_LEFT_MIN: u64 = 1 << 48;

/// Maximum length of a tail, in bytes of its operations, that is copied to the new log instead of
/// written to tables. Each open copies it again, so it is bounded by the other costs of an open:
/// writing 256 KiB takes about as long as the two syncs of an open.
const TAIL_BYTES_MAX: usize = 256 << 10;
/// Divisor: a tail larger than this fraction of the write buffer is written to tables, because the
/// next writes would soon flush it anyway.
const TAIL_BUFFER_PART: u64 = 2;

/// The batches of a short log tail, in order, which are copied to the new log with the same
/// sequence numbers.
#[derive(Default)]
pub(super) struct Tail {
    /// The operations of all batches, in the encoding of the log.
    operations: Vec<u8>,
    batches: Vec<TailBatch>,
}

struct TailBatch {
    first_seq: SeqNo,
    count: u32,
    /// End offset of the batch in [`Tail::operations`].
    end: usize,
}

impl Tail {
    /// Appends a batch; `None` if the tail is then too long.
    fn with(mut self, batch: &BatchView<'_>) -> Option<Self> {
        self.operations.extend_from_slice(batch.encoded());
        let (first_seq, count, end) = (batch.first_seq(), batch.count(), self.operations.len());
        self.batches.push(TailBatch { first_seq, count, end });
        (end <= TAIL_BYTES_MAX).then_some(self)
    }

    /// The sequence number before the first batch; `None` if there is none.
    pub(super) fn base_seq(&self) -> Option<SeqNo> {
        self.batches.first().map(|batch| SeqNo(batch.first_seq.0 - 1))
    }

    /// Appends all batches to `wal`, without a sync.
    ///
    /// # Errors
    /// I/O errors of the log.
    pub(super) fn append_to(&self, wal: &mut WalWriter) -> Result<()> {
        let mut begin = 0;
        for TailBatch { first_seq, count, end } in &self.batches {
            assert!(begin <= *end, "batches of a log's tail overlap");
            wal.append_batch(*first_seq, *count, &self.operations[begin..*end])?;
            begin = *end;
        }
        assert_eq!(begin, self.operations.len(), "operations of a log's tail are in no batch");
        Ok(wal.flush()?)
    }
}

/// The memtables and tables that a replay has created so far.
pub(super) struct Rebuilt<'a> {
    core: &'a Core,
    /// The write buffer. The settings that it follows from do not change during an open.
    buffer_bytes: u64,
    /// Memtables that are not in tables, per keyspace, oldest first. Only the last one of each is
    /// active.
    memtables: BTreeMap<KeyspaceId, Vec<Arc<dyn Memtable>>>,
    /// Bytes of all memtables except the last of each keyspace.
    sealed_bytes: u64,
    charge: Charge,
    /// The tables written so far, each memtable's in a separate run.
    written: Vec<VersionEdit>,
    /// Their value files.
    value_files: Vec<Arc<ValueFileMeta>>,
    flushed: BTreeSet<KeyspaceId>,
    /// Operations applied so far.
    applied: u64,
    /// Whether one of them was a delete.
    has_tombstones: bool,
    /// Everything replayed so far, as long as it is short enough to stay in the log.
    tail: Option<Tail>,
    /// Full memtables that are flushed after the open, oldest first; empty once anything was
    /// written to tables.
    generations: Vec<ReplayedGeneration>,
    /// Whether the entries may stay in memtables until they are flushed after the open.
    may_defer: bool,
    /// The memtables are full, and are sealed at the end of the batch.
    is_seal_due: bool,
}

/// The place to which everything replayed was moved.
pub(super) enum Place {
    /// In active memtables. The new log must begin with a copy of these batches.
    Copied(Tail),
    /// In memtables that the background flushes, oldest first. The old logs are still needed; the
    /// new one follows this end of the last of them.
    Deferred(Vec<ReplayedGeneration>, Predecessor),
    /// In tables, which the returned edit adds.
    Tables,
}

/// Replays the logs among `files`.
///
/// # Errors
/// Errors of replay and of writing tables; the tables written so far are removed.
pub(super) fn replay_logs<'a>(
    core: &'a Core,
    state: &ManifestState,
    files: &[String],
) -> Result<(Rebuilt<'a>, ReplayReport)> {
    let logs: Vec<LogNo> = files.iter().filter_map(|name| parse_log_file_name(name)).collect();
    let options = ReplayOptions {
        first_log: state.first_log,
        promise: state.log_promise,
        known_seq: state.last_seq,
        recovery: if core.settings.point_in_time { Recovery::PointInTime } else { Recovery::Strict },
        held_bytes_max: core.settings.held_value_bytes_max(),
    };
    let mut rebuilt = Rebuilt {
        core,
        buffer_bytes: core.settings.memtable_bytes(),
        memtables: BTreeMap::new(),
        sealed_bytes: 0,
        charge: Charge::new(core.memory.ledger(), LedgerPart::Memtables, 0),
        written: Vec::new(),
        value_files: Vec::new(),
        flushed: BTreeSet::new(),
        applied: 0,
        has_tombstones: false,
        tail: (!core.lifecycle.is_read_only() && !core.settings.no_wal).then(Tail::default),
        generations: Vec::new(),
        may_defer: !core.lifecycle.is_read_only() && !core.settings.no_wal,
        is_seal_due: false,
    };
    let report = replay(&core.env, core.catalog.dir(), &logs, &options, &mut |batch| {
        let held = match &batch {
            Replayed::Held(batch) => Some(*batch),
            Replayed::Streamed(_) => None,
        };
        let applied_before = rebuilt.applied;
        batch.for_each(&mut |seq, id, op| {
            let Some(keyspace) = state.keyspaces.get(&id) else {
                // One that was dropped, or whose creation, which the log announces, was not
                // recorded.
                return match state.may_know(id) || op.is_nothing() {
                    true => Ok(()),
                    false => Err(unknown_keyspace(core.catalog.dir(), seq, id)),
                };
            };
            // The operation may be in tables already.
            if seq <= keyspace.flushed {
                return Ok(());
            }
            rebuilt.apply(seq, id, op)
        })?;
        let is_applied = rebuilt.applied > applied_before;
        rebuilt.extend_tail(held, is_applied);
        match held {
            Some(batch) if rebuilt.is_seal_due => rebuilt.seal(batch.last_seq()),
            _ => Ok(()),
        }
    });
    let checked = report.and_then(|report| {
        if !core.lifecycle.is_read_only() {
            check_seqs_left(core.catalog.dir(), report.last_seq.max(state.last_seq))?;
        }
        Ok(report)
    });
    match checked {
        Ok(report) => Ok((rebuilt, report)),
        Err(error) => {
            abandon(core, rebuilt.written, rebuilt.value_files);
            Err(error)
        }
    }
}

/// Refuses to write to a database whose numbers would be used up. No program has made that number
/// of writes.
fn check_seqs_left(dir: &Path, last_seq: SeqNo) -> Result<()> {
    if SeqNo::MAX.0.saturating_sub(last_seq.0) >= SEQS_LEFT_MIN {
        return Ok(());
    }
    let detail = format!("{} is the last one, near the end of all numbers of writes", last_seq.0);
    Err(Error::corruption(dir, 0, "sequence number", detail))
}

/// The manifest does not know a keyspace that was written to. Every state after its creation knows
/// it, or that its number was used.
fn unknown_keyspace(dir: &Path, seq: SeqNo, id: KeyspaceId) -> Error {
    let detail = format!(
        "a log has a write to keyspace {id} (sequence number {}), which it does not know: its end is missing",
        seq.0
    );
    Error::corruption(dir, 0, "manifest", detail)
}

/// Removes tables and value files that will never be installed. Otherwise a retry, on a disk that
/// may be full, would find its space taken.
pub(super) fn abandon(core: &Core, written: Vec<VersionEdit>, value_files: Vec<Arc<ValueFileMeta>>) {
    // Once no table names them, they are removed.
    drop(value_files);
    let added = written.into_iter().flat_map(|version| version.changes);
    core.catalog.mark_tables_obsolete(added.filter_map(|change| match change {
        Change::Add { table, .. } => Some(table.meta),
        _ => None,
    }));
    core.catalog.remove_files_marked_obsolete();
}

impl Rebuilt<'_> {
    /// Adds a batch to the tail; `None` stands for one that is too long to be held. The tail begins
    /// with the first batch that was applied. After it, batches of dropped keyspaces are copied,
    /// too: without them the new log would have gaps in its sequence numbers, which only the
    /// manifest explains.
    fn extend_tail(&mut self, batch: Option<BatchView<'_>>, is_applied: bool) {
        self.tail = self.tail.take().and_then(|tail| {
            if tail.batches.is_empty() && !is_applied { Some(tail) } else { tail.with(&batch?) }
        });
    }

    fn apply(&mut self, seq: SeqNo, id: KeyspaceId, op: ReplayedOp<'_>) -> Result<()> {
        let core = self.core;
        self.applied += 1;
        let memtables = self.memtables.entry(id).or_default();
        let buffer_bytes = self.buffer_bytes;
        let is_full = |memtable: &dyn Memtable| memtable.is_full() || memtable.bytes() >= buffer_bytes;
        // Until a seal that is due, the batch goes on in the same memtable if that can address it.
        let takes_more = |last: &dyn Memtable| !is_full(last) || (self.is_seal_due && !last.is_full());
        let active = match memtables.last() {
            Some(last) if takes_more(last.as_ref()) => Arc::clone(last),
            last => {
                self.sealed_bytes += last.map_or(0, |last| last.bytes());
                let new: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(core.settings.memtable_index));
                memtables.push(Arc::clone(&new));
                new
            }
        };
        match op {
            ReplayedOp::Op(op) => {
                self.has_tombstones |= matches!(op, OpRef::Delete { .. } | OpRef::RangeDelete { .. });
                apply_op(active.as_ref(), |key| core.reads.digest().digest(key), seq, op);
            }
            ReplayedOp::PutInLog { key, expiry, log, place } => {
                // The log would have to outlive the memtables.
                self.may_defer = false;
                active.insert_in_log(core.reads.digest().digest(key), key, (seq, expiry), log, place);
            }
        }
        self.keep_within(is_full(active.as_ref()))
    }

    /// Charges the memory of the memtables. If together they fill the write buffer, requests their
    /// seal or writes them to tables.
    fn keep_within(&mut self, is_full: bool) -> Result<()> {
        let core = self.core;
        let active = self.memtables.values().filter_map(|memtables| memtables.last());
        let bytes = self.sealed_bytes + active.map(|memtable| memtable.bytes()).sum::<u64>();
        if !core.lifecycle.is_read_only() && (is_full || bytes >= self.buffer_bytes) {
            // Within the limit at which writes stall until a flush is done, of which the last
            // generation is one; and within what a batch can add.
            let may_seal = self.generations.len() + 2 <= core.settings.immutable_memtables as usize;
            if !self.may_defer || !may_seal || bytes >= self.buffer_bytes.saturating_mul(2) {
                return self.write();
            }
            self.is_seal_due = true;
        }
        if bytes > self.charge.bytes() {
            core.memory.charge(&mut self.charge, bytes + self.buffer_bytes / STEP_PART);
        }
        Ok(())
    }

    /// Sets the memtables aside as a generation whose last batch ends at `last_seq`, or writes them
    /// to tables. A generation ends between two batches: it is installed alone, and half of a batch
    /// must never be.
    fn seal(&mut self, last_seq: SeqNo) -> Result<()> {
        self.is_seal_due = false;
        if !self.may_defer || self.memtables.values().any(|memtables| memtables.len() != 1) {
            return self.write();
        }
        self.tail = None;
        let last = std::mem::take(&mut self.memtables).into_iter().flat_map(|(id, memtables)| {
            memtables.into_iter().map(move |memtable| (id, memtable)) // One each.
        });
        let fresh = Charge::new(self.core.memory.ledger(), LedgerPart::Memtables, 0);
        let charge = std::mem::replace(&mut self.charge, fresh);
        let generation = ReplayedGeneration::new(last.collect(), last_seq, self.has_tombstones, charge);
        self.generations.push(generation);
        Ok(())
    }

    /// Writes all memtables as runs of level 0, older ones first, and drops them. From here on
    /// nothing is deferred: one edit installs everything.
    fn write(&mut self) -> Result<()> {
        (self.tail, self.may_defer, self.is_seal_due) = (None, false, false);
        for generation in std::mem::take(&mut self.generations) {
            self.write_runs(generation.members.into_iter().map(|(id, memtable)| (id, vec![memtable])))?;
        }
        let memtables = std::mem::take(&mut self.memtables);
        self.write_runs(memtables.into_iter())?;
        self.sealed_bytes = 0;
        self.charge.resize(0);
        Ok(())
    }

    fn write_runs(
        &mut self,
        memtables: impl Iterator<Item = (KeyspaceId, Vec<Arc<dyn Memtable>>)>,
    ) -> Result<()> {
        for (id, memtables) in memtables {
            let keyspace = self.core.catalog.keyspace(id);
            let keyspace = keyspace.ok_or_else(|| Error::invalid(format!("there is no keyspace {id}")))?;
            for memtable in memtables {
                let now_ms = Some(self.core.env.clock.unix_ms());
                let flusher = self.core.scheduler.flusher();
                let (built, left_out) = flusher.write_memtable(&keyspace, &memtable, now_ms)?;
                left_out.count(self.core.telemetry.work());
                self.value_files.extend(built.value_files);
                let (run, age) = self.core.catalog.new_run();
                let changes =
                    built.tables.into_iter().map(|table| Change::Add { level: 0, run, age, table }).collect();
                self.written.push(VersionEdit { keyspace: id, changes });
            }
            self.flushed.insert(id);
        }
        Ok(())
    }

    /// Moves everything replayed, up to `last_seq`, to its place. A short tail stays in memtables
    /// that accept writes from now on.
    ///
    /// # Errors
    /// Errors of writing tables; the tables written so far are removed.
    pub(super) fn finish(
        mut self,
        report: &ReplayReport,
        last_seq: SeqNo,
        mut edit: ManifestEdit,
    ) -> Result<(ManifestEdit, Place)> {
        // Otherwise numbers without a record would follow the copy, which no stream could pass.
        let may_copy = report.last_seq >= last_seq;
        if let Some(tail) = self.take_short_tail().filter(|_| may_copy) {
            self.show();
            return Ok((edit, Place::Copied(tail)));
        }
        let predecessor = deferred::predecessor(report);
        self.may_defer &= predecessor.is_some();
        let is_anything = !self.memtables.is_empty() || !self.generations.is_empty();
        let mut moved = Ok(());
        if self.may_defer && !self.memtables.is_empty() {
            moved = self.seal(report.last_seq);
        }
        if let Some(predecessor) = predecessor.filter(|_| is_anything && self.may_defer) {
            // The manifest does not record `last_seq` yet: nothing up to it is in tables.
            edit.last_seq = None;
            return Ok((edit, Place::Deferred(self.generations, predecessor)));
        }
        if let Err(error) = moved.and_then(|()| self.write()) {
            abandon(self.core, self.written, self.value_files);
            return Err(error);
        }
        assert!(self.memtables.is_empty(), "a memtable of the replay is in no table");
        edit.versions.append(&mut self.written);
        edit.value_files.append(&mut self.value_files);
        edit.flushed.extend(self.flushed.into_iter().map(|id| (id, last_seq)));
        Ok((edit, Place::Tables))
    }

    /// Returns the tail, if it is not empty and short enough to stay in the log. With a bound on
    /// the age of tombstones it must hold none: a table keeps their time, the log would lose it
    /// with every open.
    fn take_short_tail(&mut self) -> Option<Tail> {
        if self.has_tombstones && self.core.settings.tombstone_age_max_ms().is_some() {
            return None;
        }
        let bytes_max = self.buffer_bytes / TAIL_BUFFER_PART;
        let is_one_memtable = self.memtables.values().all(|memtables| memtables.len() == 1);
        debug_assert!(self.tail.is_none() || self.generations.is_empty(), "a sealed part is in the tail");
        self.tail.take().filter(|tail| {
            is_one_memtable && !tail.batches.is_empty() && tail.operations.len() as u64 <= bytes_max
        })
    }

    /// Publishes the memtables. The newest of each keyspace accepts writes, unless the database is
    /// read-only.
    pub(super) fn show(self) {
        let core = self.core;
        assert!(self.written.is_empty(), "a replay wrote tables that no manifest will name");
        for (id, memtables) in self.memtables {
            let Some(keyspace) = core.catalog.keyspace(id) else { continue };
            keyspace
                .publish(|view| view.next(memtables.into_iter().rev().collect(), Arc::clone(&view.version)));
        }
        core.writer.take_charge(self.charge);
    }
}
