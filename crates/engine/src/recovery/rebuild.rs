//! What the logs say, as memtables; and those as tables, as soon as they fill the write buffer.
//!
//! A log may hold more than this open may keep in memory: it was written under a larger budget, or by several opens
//! that crashed. So when what was replayed fills the write buffer it is written to tables, which no manifest names
//! until the whole replay is over and all of them come into force in one edit. An open for reading may write
//! nothing: it keeps everything in memtables, counted in the ledger, whatever that takes.
//!
//! Not here: which records count ([`crate::wal::replay`]), the edit that makes it all count ([`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_key::SeqNo;
use shamba_table::{Charge, LedgerPart};

use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::ids::{KeyspaceId, LogNo};
use crate::memtable::{ChunkedMemtable, Memtable};
use crate::version::manifest::ManifestState;
use crate::version::{Change, ManifestEdit, VersionEdit};
use crate::wal::{Recovery, ReplayOptions, ReplayReport, ReplayedOp, parse_log_file_name, replay};
use crate::write::commit::apply_op;

/// The charge is ahead of what memtables take by this part of the write buffer.
const STEP_PART: u64 = 16;

/// What a replay has made so far.
pub(super) struct Rebuilt<'a> {
    core: &'a Core,
    /// Memtables that are not in tables, of each keyspace, oldest first. All but the last take no more.
    memtables: BTreeMap<KeyspaceId, Vec<Arc<dyn Memtable>>>,
    /// Bytes of all but the last of each keyspace.
    sealed_bytes: u64,
    charge: Charge,
    /// The tables written so far, each in a run of its own, and the keyspaces that they are of.
    written: Vec<VersionEdit>,
    flushed: BTreeSet<KeyspaceId>,
}

/// Replays the logs among `files`.
///
/// # Errors
/// What replaying and writing say; no table stays behind.
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
        recovery: if core.point_in_time { Recovery::PointInTime } else { Recovery::Strict },
        held_bytes_max: core.settings.held_value_bytes_max(),
    };
    let mut rebuilt = Rebuilt {
        core,
        memtables: BTreeMap::new(),
        sealed_bytes: 0,
        charge: Charge::new(&core.ledger, LedgerPart::Memtables, 0),
        written: Vec::new(),
        flushed: BTreeSet::new(),
    };
    let report = replay(&core.env, &core.dir, &logs, &options, &mut |batch| {
        batch.for_each(&mut |seq, id, op| {
            // A dropped keyspace's operations may still be in the log; what is in tables must not come twice.
            if state.keyspaces.get(&id).is_none_or(|keyspace| seq <= keyspace.flushed) {
                return Ok(());
            }
            rebuilt.apply(seq, id, op)
        })
    });
    match report {
        Ok(report) => Ok((rebuilt, report)),
        Err(error) => {
            abandon(core, rebuilt.written);
            Err(error)
        }
    }
}

/// Removes tables that will never be in force: the next try, on a disk that may be full, must not find them in its way.
fn abandon(core: &Core, written: Vec<VersionEdit>) {
    let added = written.into_iter().flat_map(|version| version.changes);
    core.garbage.doom_tables(added.filter_map(|change| match change {
        Change::Add { table, .. } => Some(table.meta),
        _ => None,
    }));
    core.collect_garbage();
}

impl Rebuilt<'_> {
    fn apply(&mut self, seq: SeqNo, id: KeyspaceId, op: ReplayedOp<'_>) -> Result<()> {
        let core = self.core;
        let memtables = self.memtables.entry(id).or_default();
        let is_full = |memtable: &dyn Memtable| {
            memtable.is_full() || memtable.bytes() >= core.settings.memtable_bytes()
        };
        let active = match memtables.last() {
            Some(last) if !is_full(last.as_ref()) => Arc::clone(last),
            last => {
                self.sealed_bytes += last.map_or(0, |last| last.bytes());
                let new: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(core.settings.memtable_index));
                memtables.push(Arc::clone(&new));
                new
            }
        };
        match op {
            ReplayedOp::Op(op) => apply_op(active.as_ref(), core.digest, seq, op),
            ReplayedOp::PutInLog { key, log, place } => {
                active.insert_in_log(core.digest.digest(key), key, seq, log, place);
            }
        }
        self.keep_within(is_full(active.as_ref()))
    }

    /// Charges what the memtables take, and writes them if they fill the write buffer together.
    fn keep_within(&mut self, is_full: bool) -> Result<()> {
        let core = self.core;
        let active = self.memtables.values().filter_map(|memtables| memtables.last());
        let bytes = self.sealed_bytes + active.map(|memtable| memtable.bytes()).sum::<u64>();
        if !core.read_only && (is_full || bytes >= core.settings.memtable_bytes()) {
            return self.write();
        }
        if bytes > self.charge.bytes() {
            core.charge_memory(&mut self.charge, bytes + core.settings.memtable_bytes() / STEP_PART);
        }
        Ok(())
    }

    /// Writes all memtables as runs of level 0, older ones first, and lets go of them.
    fn write(&mut self) -> Result<()> {
        for (id, memtables) in std::mem::take(&mut self.memtables) {
            let keyspace = self.core.keyspace(id);
            let keyspace = keyspace.ok_or_else(|| Error::invalid(format!("there is no keyspace {id}")))?;
            for memtable in memtables {
                let uses = self.core.write_memtable(&keyspace, &memtable)?;
                let (run, age) = self.core.new_run();
                let changes =
                    uses.into_iter().map(|table| Change::Add { level: 0, run, age, table }).collect();
                self.written.push(VersionEdit { keyspace: id, changes });
            }
            self.flushed.insert(id);
        }
        self.sealed_bytes = 0;
        self.charge.resize(0);
        Ok(())
    }

    /// Writes what is left, and adds everything to `edit`: all that was replayed, up to `last_seq`, is in tables.
    ///
    /// # Errors
    /// What writing says; then no table stays behind.
    pub(super) fn into_edit(mut self, last_seq: SeqNo, mut edit: ManifestEdit) -> Result<ManifestEdit> {
        if let Err(error) = self.write() {
            abandon(self.core, self.written);
            return Err(error);
        }
        edit.versions.append(&mut self.written);
        edit.flushed.extend(self.flushed.into_iter().map(|id| (id, last_seq)));
        Ok(edit)
    }

    /// Shows what was replayed as it is, in memory, to an open that only reads.
    pub(super) fn show(self) {
        let core = self.core;
        for (id, memtables) in self.memtables {
            let Some(keyspace) = core.keyspace(id) else { continue };
            keyspace.publish(|view| {
                // Nothing will ever be written.
                view.next(memtables.into_iter().rev().collect(), Arc::clone(&view.version))
            });
        }
        lock(&core.writing).memtable_charge = self.charge;
    }
}
