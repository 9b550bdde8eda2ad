//! The logs that an open finds, for streams of changes: those that are still needed, and obsolete
//! ones that are kept.
//!
//! The list goes back from the new log, along the predecessors that heads name and the chains that
//! the history of the manifest joins. So it has no log of an interrupted recovery, or one whose
//! creation failed, and it ends where a log is missing or cannot be read: a stream cannot pass over
//! it, so nothing that is older is of use. The open warns of such a log. Obsolete logs that are not
//! in the list are removed.

use std::collections::BTreeSet;
use std::path::Path;

use shamba_key::{LogNo, SeqNo};
use shamba_log::wal::{LogFollower, ReplayReport, parse_log_file_name};
use shamba_tree::version::manifest::ManifestState;
use shamba_tree::version::{History, HistoryEntry};

use crate::catalog::{Kept, KnownLog};
use crate::database::core::Core;
use crate::error::{Error, Result};

/// The entry of the history for an open whose new log is `log`.
pub(super) fn opened(
    state: &ManifestState,
    report: &ReplayReport,
    log: LogNo,
    is_point_in_time: bool,
) -> HistoryEntry {
    // An older build, which does not know the history, may have opened the database in between.
    let is_known = state.history.epochs().next().is_some();
    let read = report.logs.iter().rev().find(|log| log.valid_bytes > 0);
    // A crash may have lost the log that followed the last flush, with all that was in it.
    let before = match read {
        Some(read) => Some((read.number, report.last_seq)),
        None => state.history.before(state.first_log),
    };
    // Numbers that no log has went to writes of an open without a log.
    let before = before.filter(|(_, seq)| is_known && *seq >= state.last_seq);
    // A recovery up to a point in time may have dropped changes whose numbers the manifest knows.
    // Those in tables are there.
    let is_lost = is_point_in_time && !report.warnings.is_empty();
    let flushed = || state.keyspaces.values().map(|keyspace| keyspace.flushed).max().unwrap_or_default();
    let known = if is_lost { flushed() } else { state.last_seq };
    HistoryEntry::Opened {
        log,
        after: before.map_or(LogNo(0), |(before, _)| before),
        seq: report.last_seq.max(known),
        // Without any log it is not known that the last process closed the database.
        is_epoch: !is_known || !report.clean || read.is_none(),
    }
}

/// The logs that are in the database once it is open, oldest first: the new log `log`, whose first
/// batch follows `base_seq`, and earlier ones. `history` has the entry of this open. Those below
/// `first_needed` are obsolete.
pub(super) fn known_logs(
    core: &Core,
    history: &History,
    (report, files): (&ReplayReport, &[String]),
    (log, base_seq): (LogNo, SeqNo),
    first_needed: LogNo,
) -> Vec<KnownLog> {
    let catalog = &core.catalog;
    let files: BTreeSet<LogNo> = files.iter().filter_map(|name| parse_log_file_name(name)).collect();
    let path = |log: LogNo| catalog.dir().join(shamba_log::wal::log_file_name(log));
    let mut newest_first =
        vec![KnownLog { number: log, path: path(log), base_seq, follows: None, obsolete: None }];
    // The log before the last one in the list, and the last sequence number in it.
    let mut before = history.before(log);
    while let Some((number, end_seq)) = before {
        // A later recovery may have found less of it than an earlier one.
        let end_seq = history.end_of(number).map_or(end_seq, |end| end.min(end_seq));
        let is_obsolete = number < first_needed;
        if !files.contains(&number) || (is_obsolete && !catalog.logs().keeps()) {
            break;
        }
        let path = path(number);
        let must_sync = is_unsynced(report, number) && catalog.logs().keeps();
        let synced = if must_sync { sync(core, &path) } else { Ok(()) };
        let followed = synced.and_then(|()| Ok(LogFollower::open(&core.env, catalog.dir(), number)?));
        if let Some(next) = newest_first.last_mut() {
            next.follows = Some((number, end_seq));
        }
        let head = match followed {
            Ok(follower) => *follower.head(),
            Err(error) => {
                let why = error.chain().to_string();
                core.telemetry.warn(format!("changes up to sequence number {end_seq} cannot be read: {why}"));
                catalog.logs().note_unreadable(number, why);
                break;
            }
        };
        let obsolete = is_obsolete.then(|| Kept {
            bytes: catalog.file_bytes(&path),
            since_ms: history.obsolete_since_ms(number).unwrap_or_else(|| core.env.clock.unix_ms()),
            ..Kept::default()
        });
        newest_first.push(KnownLog { number, path, base_seq: head.base_seq, follows: None, obsolete });
        before = match head.predecessor {
            Some(predecessor) if predecessor.last_seq == head.base_seq => {
                Some((predecessor.number, predecessor.last_seq))
            }
            Some(_) => None,
            None => history.before(number),
        };
    }
    newest_first.reverse();
    newest_first
}

/// Whether the disk may not have everything that was read of a log.
fn is_unsynced(report: &ReplayReport, number: LogNo) -> bool {
    !report.clean && report.logs.iter().any(|log| log.number == number && log.promised < log.valid_bytes)
}

/// Makes a log that is kept durable with its name. The writes in it are in tables or in a copy
/// already, or will be: only streams depend on it.
fn sync(core: &Core, path: &Path) -> Result<()> {
    let synced = core.env.vfs.open_append(path).and_then(|mut log| log.sync_data());
    synced.map_err(|error| Error::io("sync", path, error))?;
    let dir = core.catalog.dir();
    core.env.vfs.sync_dir(dir).map_err(|error| Error::io("sync directory", dir, error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_key::KeyspaceId;
    use shamba_log::wal::report::{ReplayWarning, ReplayedLog};

    use super::super::tests::replayed_log as log;
    use super::*;

    fn report(clean: bool, logs: Vec<ReplayedLog>) -> ReplayReport {
        let last_seq = logs.iter().map(|log| log.last_seq).max().unwrap_or_default();
        ReplayReport { clean, logs, last_seq, ..ReplayReport::default() }
    }

    #[test]
    fn a_log_is_unsynced_if_more_of_it_was_read_than_promised() {
        let logs = vec![log(2, 800, u64::MAX), log(5, 700, 700), log(6, 700, 699), log(7, 1, 0)];
        let unsynced = |clean| {
            let report = report(clean, logs.clone());
            [2, 5, 6, 7, 8].map(|number| is_unsynced(&report, LogNo(number)))
        };
        assert_eq!(unsynced(false), [false, false, true, true, false]);
        assert_eq!(unsynced(true), [false; 5], "a close has synced the logs");
    }

    #[test]
    fn an_open_joins_the_last_log_that_has_anything_and_begins_an_epoch_after_an_unclean_end() {
        let mut known = ManifestState { last_seq: SeqNo(40), first_log: LogNo(4), ..Default::default() };
        let first = HistoryEntry::Opened { log: LogNo(2), after: LogNo(0), seq: SeqNo(0), is_epoch: true };
        known.history.extend(&[first]);
        let unknown = ManifestState { last_seq: SeqNo(40), ..ManifestState::default() };
        let entry = |after, seq, is_epoch| HistoryEntry::Opened {
            log: LogNo(9),
            after: LogNo(after),
            seq: SeqNo(seq),
            is_epoch,
        };
        let from = opened;
        let opened = |state, report| from(state, &report, LogNo(9), false);
        let whole = || vec![log(4, 800, 0), log(5, 700, 0)];
        assert_eq!(opened(&known, report(true, whole())), entry(5, 50, false));
        assert_eq!(opened(&known, report(false, whole())), entry(5, 50, true));
        assert_eq!(opened(&unknown, report(true, whole())), entry(0, 50, true), "an older build was there");
        // A log that was created and not written to joins nothing.
        let empty_last = || vec![log(4, 800, 0), ReplayedLog { last_seq: SeqNo(40), ..log(5, 0, 0) }];
        assert_eq!(opened(&known, report(false, empty_last())), entry(4, 40, true));
        assert_eq!(opened(&known, report(true, Vec::new())), entry(0, 40, true), "no log was found");
        // Numbers up to 60 went to writes without a log.
        let later = ManifestState { last_seq: SeqNo(60), ..known.clone() };
        assert_eq!(opened(&later, report(true, whole())), entry(0, 60, false));
        // A recovery up to a point in time has what is in tables, and what it has read.
        let mut flushed = known.clone();
        let keyspace = flushed.keyspaces.entry(KeyspaceId::DEFAULT).or_default();
        Arc::make_mut(keyspace).flushed = SeqNo(30);
        let warning = ReplayWarning { file: "log".into(), offset: 0, bytes: 0, reason: "it is empty".into() };
        let lossy = |logs| ReplayReport { warnings: vec![warning.clone()], ..report(false, logs) };
        assert_eq!(from(&flushed, &lossy(Vec::new()), LogNo(9), true), entry(0, 30, true));
        let short = || vec![ReplayedLog { last_seq: SeqNo(35), ..log(4, 800, 0) }];
        assert_eq!(from(&flushed, &lossy(short()), LogNo(9), true), entry(0, 35, true));
    }
}
