//! Replayed memtables that are flushed after the open.
//!
//! If the logs are whole, their entries need not be in tables before the open returns. The old logs
//! stay valid, the new log follows the last of them as after a rotation, and the memtables wait in
//! the queue of sealed generations. A crash at any time leaves a chain of logs that the next open
//! replays, or a prefix of it in tables.
//!
//! It is unknown how much of an old log's tail reached the disk, and a sync by this process would
//! not prove it: the process before may have seen a sync of it fail. So the new log, whose promises
//! cover the old ones, is not synced before everything replayed is in tables
//! ([`crate::writer::Writer::begin_after`]). Then the old logs are obsolete.

use std::sync::Arc;

use shamba_key::{KeyspaceId, LogNo, SeqNo};
use shamba_log::wal::{Predecessor, ReplayReport, WalWriter, log_file_name};
use shamba_memtable::Memtable;
use shamba_table::Charge;

use crate::catalog::LogFile;
use crate::database::core::Core;
use crate::writer::Generation;

/// The memtables that hold the entries of consecutive batches.
pub(super) struct ReplayedGeneration {
    /// In the order of keyspaces.
    pub members: Vec<(KeyspaceId, Arc<dyn Memtable>)>,
    /// The last sequence number of its last batch.
    last_seq: SeqNo,
    has_tombstones: bool,
    charge: Charge,
}

impl ReplayedGeneration {
    /// A generation that ends at `last_seq`. `charge` is reduced to the bytes of `members`. One of
    /// them may be empty: an ingest logs an operation that changes nothing.
    pub(super) fn new(
        mut members: Vec<(KeyspaceId, Arc<dyn Memtable>)>,
        last_seq: SeqNo,
        has_tombstones: bool,
        mut charge: Charge,
    ) -> Self {
        members.retain(|(_, memtable)| !memtable.is_empty());
        charge.resize(members.iter().map(|(_, memtable)| memtable.bytes()).sum());
        Self { members, last_seq, has_tombstones, charge }
    }
}

/// The end of the last log, which the new log follows; `None` if a part of the logs was left out:
/// what follows a torn tail must not be a link of the same chain.
pub(super) fn predecessor(report: &ReplayReport) -> Option<Predecessor> {
    let last = report.logs.last()?;
    let is_whole = report.warnings.is_empty() && report.logs.iter().all(|log| log.valid_bytes > 0);
    is_whole.then(|| Predecessor {
        number: last.number,
        bytes: last.valid_bytes,
        last_seq: last.last_seq,
        last_checksum: last.last_checksum,
        synced: last.promised.min(last.valid_bytes),
    })
}

/// Publishes the memtables and begins to accept writes into `wal`. The memtables are flushed in the
/// background. `first_log` is the first of the old logs.
pub(super) fn begin(
    core: &Core,
    generations: Vec<ReplayedGeneration>,
    report: &ReplayReport,
    (first_log, last_seq): (LogNo, SeqNo),
    wal: WalWriter,
) {
    let count = generations.len();
    let keyspaces = core.catalog.keyspaces();
    let mut sealed = Vec::with_capacity(count);
    for (at, ReplayedGeneration { members, last_seq, has_tombstones, charge }) in (1..).zip(generations) {
        let is_last = at == count;
        let bytes = members.iter().map(|(_, memtable)| memtable.bytes()).sum();
        let find = |(id, memtable)| Some((Arc::clone(keyspaces.get(&id)?), memtable));
        let members: Vec<_> = members.into_iter().filter_map(find).collect();
        for (keyspace, memtable) in &members {
            keyspace.publish(|view| {
                // Behind the active one, which is empty, and in front of older ones.
                let active = view.memtables.first().cloned();
                let older = view.memtables.iter().skip(1).cloned();
                let memtables = active.into_iter().chain([Arc::clone(memtable)]).chain(older).collect();
                view.next(memtables, Arc::clone(&view.version))
            });
        }
        // Until all of them are in tables, all of the logs are needed.
        let path = |log: LogNo| core.catalog.dir().join(log_file_name(log));
        let logs = report.logs.iter().filter(|_| is_last).map(|log| path(log.number));
        sealed.push(Generation {
            appended_bytes: 0,
            log: None,
            log_files: logs.map(|path| LogFile { path, ..LogFile::default() }).collect(),
            next_log: if is_last { wal.number() } else { first_log },
            members,
            last_seq,
            bytes,
            // The log does not tell when its tombstones were written: their age counts from here.
            oldest_tombstone_ms: has_tombstones.then(|| core.env.clock.unix_ms()),
            _charge: charge,
        });
    }
    core.writer.begin_after(sealed, last_seq, wal);
}

#[cfg(test)]
mod tests {
    use shamba_log::wal::report::ReplayWarning;

    use super::super::tests::replayed_log as log;
    use super::*;

    #[test]
    fn a_new_log_follows_the_last_one_if_nothing_was_left_out() {
        let whole = ReplayReport { logs: vec![log(2, 800, 900), log(5, 700, 600)], ..Default::default() };
        let expected =
            Predecessor { number: LogNo(5), bytes: 700, last_seq: SeqNo(50), last_checksum: 7, synced: 600 };
        assert_eq!(predecessor(&whole), Some(expected));
        let beyond = ReplayReport { logs: vec![log(5, 700, u64::MAX)], ..Default::default() };
        assert_eq!(predecessor(&beyond), Some(Predecessor { synced: 700, ..expected }));
        assert_eq!(predecessor(&ReplayReport::default()), None, "there is no log");
        for logs in [vec![log(2, 0, 0), log(5, 700, 600)], vec![log(2, 800, 900), log(5, 0, 0)]] {
            let without_one = ReplayReport { logs, ..Default::default() };
            assert_eq!(predecessor(&without_one), None, "a log was left out");
        }
        let warning = ReplayWarning {
            file: "/db/000005.log".into(),
            offset: 700,
            bytes: 200,
            reason: "torn".to_owned(),
        };
        let torn = ReplayReport { warnings: vec![warning], ..whole };
        assert_eq!(predecessor(&torn), None, "a tail was left out");
    }
}
