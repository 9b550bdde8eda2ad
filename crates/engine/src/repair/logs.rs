//! What the logs still say: the batches up to the first damage, as the newest operation on each key.
//!
//! A log counts as far as the contract lets it be replayed: never past damage, so that no batch is there without those
//! before it. Damage below a promise is a loss of the last writes; a tail that was never promised is a warning, as at
//! an open. Without a manifest the logs from the newest chain on are taken, and what they say and tables too is
//! the same by its sequence number.
//!
//! Kept in memory, long values apart: they stay in their log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::SeqNo;
use shamba_table::RangeTombstone;

use super::found::Found;
use super::report::{Loss, RepairReport};
use crate::error::{Error, Result};
use crate::ids::{KeyspaceId, LogNo};
use crate::settings::Settings;
use crate::version::KeyRange;
use crate::wal::floor::SurveyedLog;
use crate::wal::{
    OpRef, Recovery, ReplayOptions, ReplayedOp, ValueLogs, log_file_name, parse_log_file_name, replay,
};

/// What is wrong with a log, and which.
type Broken = (PathBuf, Error);

/// The newest operation on a key.
pub(super) enum LogValue {
    Held(Bytes),
    /// Where in a log it is: see [`ValueLogs`].
    InLog([u8; 28]),
    Deleted,
}

/// The logs' operations on one keyspace.
#[derive(Default)]
pub(super) struct SpaceLog {
    pub(super) newest: BTreeMap<Vec<u8>, (SeqNo, LogValue)>,
    pub(super) tombstones: Vec<RangeTombstone>,
}

impl SpaceLog {
    /// From the first key that was written to the last.
    fn keys(&self) -> Option<KeyRange> {
        let (first, last) = (self.newest.keys().next()?, self.newest.keys().last()?);
        let upper = Some(Bytes::from([last.as_slice(), &[0]].concat()));
        Some(KeyRange { lower: Bytes::copy_from_slice(first), upper })
    }
}

/// What the logs say.
#[derive(Default)]
pub(super) struct LogContent {
    pub(super) spaces: BTreeMap<KeyspaceId, SpaceLog>,
    pub(super) values: ValueLogs,
    pub(super) last_seq: SeqNo,
}

impl LogContent {
    /// Reads the logs of the database in `dir`.
    pub(super) fn read(env: &Env, dir: &Path, found: &mut Found, report: &mut RepairReport) -> Result<Self> {
        let mut content = Self::default();
        let (numbers, mut broken) = readable(env, dir, found, report)?;
        let mut options = ReplayOptions {
            first_log: found.state.first_log,
            promise: found.state.log_promise,
            known_seq: found.state.last_seq,
            recovery: Recovery::Strict,
            held_bytes_max: Settings::default().held_value_bytes_max(),
        };
        if !found.is_whole {
            options.first_log = first_of_chain(env, dir, &numbers);
            options.promise = None;
            // Numbers up to there may have gone to writes that only tables have.
            options.known_seq = found.largest_seq();
        }
        if let Err(error) = replay(env, dir, &numbers, &options, &mut |_| Ok(())) {
            broken.get_or_insert((dir.to_path_buf(), error));
        }
        options.recovery = Recovery::PointInTime;
        let named: Vec<KeyspaceId> = found.spaces.keys().copied().collect();
        let replayed = replay(env, dir, &numbers, &options, &mut |batch| {
            batch.for_each(&mut |seq, id, op| {
                if found.is_whole && found.spaces.get(&id).is_none_or(|space| seq <= space.flushed) {
                    return Ok(());
                }
                found.space(id, || format!("keyspace-{id}"));
                content.take(seq, id, op);
                Ok(())
            })
        });
        match replayed {
            Ok(replayed) => {
                content.last_seq = replayed.last_seq;
                report.log_operations = replayed.ops;
                for warning in replayed.warnings {
                    report.warn(warning.to_string());
                }
            }
            Err(error) => _ = broken.get_or_insert((dir.to_path_buf(), error)),
        }
        // Every write is in a log before it is in a table, so the last log ends behind them all.
        if !found.is_whole && broken.is_none() && content.last_seq < found.largest_seq() {
            let detail = "a log is missing: the tables hold later writes than the logs that are there";
            broken = Some((dir.to_path_buf(), Error::corruption(dir, 0, "log file", detail)));
        }
        if let Some((path, error)) = broken {
            report.damaged(&path, &error, "writes since the last flush");
            report.lose(None, Some(KeyRange::everything()), Loss::Writes, &path, &error);
        }
        for (id, space) in content.spaces.iter().filter(|(id, _)| !named.contains(id)) {
            let name = found.spaces.get(id).map_or_else(String::new, |space| space.name.clone());
            let detail = format!("the name of keyspace {id} is lost: its writes are in {name:?}");
            let error = Error::corruption(dir, 0, "manifest", detail);
            report.lose(None, space.keys(), Loss::Entries, dir, &error);
        }
        report.keyspaces = found.spaces.len() as u64;
        Ok(content)
    }

    fn take(&mut self, seq: SeqNo, id: KeyspaceId, op: ReplayedOp<'_>) {
        let space = self.spaces.entry(id).or_default();
        let (key, value) = match op {
            ReplayedOp::Op(OpRef::Put { key, value }) => (key, LogValue::Held(Bytes::copy_from_slice(value))),
            ReplayedOp::Op(OpRef::Delete { key }) => (key, LogValue::Deleted),
            ReplayedOp::Op(OpRef::RangeDelete { start, end }) => {
                let (start, end) = (Bytes::copy_from_slice(start), end.map(Bytes::copy_from_slice));
                space.tombstones.push(RangeTombstone { start, end, seq });
                return;
            }
            ReplayedOp::PutInLog { key, log, place } => {
                self.values.add(log);
                (key, LogValue::InLog(place.encode()))
            }
        };
        // Later batches have larger numbers.
        space.newest.insert(key.to_vec(), (seq, value));
    }
}

/// The logs that may be replayed, and the first thing that is wrong with the others: one that cannot be read at all
/// ends the row.
fn readable(
    env: &Env,
    dir: &Path,
    found: &Found,
    report: &mut RepairReport,
) -> Result<(Vec<LogNo>, Option<Broken>)> {
    let entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let mut numbers: Vec<LogNo> =
        entries.iter().filter_map(|entry| parse_log_file_name(&entry.name)).collect();
    numbers.sort_unstable();
    let first = if found.is_whole { found.state.first_log } else { LogNo(0) };
    numbers.retain(|log| *log >= first);
    let mut broken: Option<Broken> = None;
    let mut good = Vec::new();
    for number in numbers {
        let path = dir.join(log_file_name(number));
        match SurveyedLog::survey(env, dir, number) {
            Ok(_) if broken.is_none() => good.push(number),
            Ok(_) => report.warn(format!("{}: it follows a log that cannot be read", path.display())),
            Err(error) => {
                report.damaged(&path, &error, "writes since the last flush");
                broken.get_or_insert((path, error));
            }
        }
    }
    Ok((good, broken))
}

/// Where the newest chain of logs begins, as far as the logs themselves say: a recovery begins one once everything before
/// is in tables, and a log that has no more than its head may be one that did not come as far.
fn first_of_chain(env: &Env, dir: &Path, numbers: &[LogNo]) -> LogNo {
    let begins = |number: &&LogNo| {
        let surveyed = SurveyedLog::survey(env, dir, **number);
        surveyed.is_ok_and(|log| log.head.is_ok() && log.follows().is_none() && log.has_more_than_head())
    };
    let begun = numbers.iter().rev().find(begins);
    begun.or(numbers.first()).copied().unwrap_or_default()
}
