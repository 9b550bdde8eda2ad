//! The readable content of the logs: the batches up to the first damage, as the newest put or
//! delete of each key and the operands of its merge operator after it.
//!
//! A log is used as far as the contract permits its replay, never past damage, so that no batch
//! appears without those before it. Damage below a promise is reported as a loss of the last
//! writes. A tail that was never promised is a warning, as in an open. Without a manifest, the logs
//! from the newest chain on are used. An operation that is both in a log and in a table has the
//! same sequence number in both.
//!
//! A log has operations in write order, but a repair needs them in key order. So the logs may be
//! replayed several times. Each pass keeps the operations from some key on, as many as fit in
//! memory, and at least those on one key. Long values are not counted; they stay in their log.
//! Range tombstones are all kept, as in an open database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{RangeTombstone, Reads};

use super::found::{Found, damage_of};
use super::report::{Loss, RepairReport};
use crate::directory::log_numbers;
use crate::error::{Error, Result};
use crate::options::settings::Settings;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::wal::floor::SurveyedLog;
use shamba_log::wal::{
    OpRef, Recovery, ReplayOptions, ReplayReport, ReplayedOp, ValueLogs, log_file_name, replay,
};
use shamba_tree::version::KeyRange;

/// A damaged log file and the error.
type Broken = (PathBuf, Error);

/// A key of a keyspace; the order in which operations are returned.
type KeyOfKeyspace = (KeyspaceId, Vec<u8>);

type Tombstones = BTreeMap<KeyspaceId, Vec<RangeTombstone>>;

/// Additional action for each operation. Its arguments: the tombstones kept so far, the operation's
/// keyspace, its sequence number, and the operation.
type Also<'a> = dyn FnMut(&mut Tombstones, KeyspaceId, SeqNo, ReplayedOp<'_>) + 'a;

/// Overhead of a key with one operation besides its key and value: map nodes and allocations, a
/// generous estimate.
const ENTRY_BYTES: usize = 160;
/// Overhead of each operand of a key, in a vector whose capacity may be twice its length.
const OPERAND_BYTES: usize = 112;

/// An operation on a key.
pub(super) enum LogValue {
    /// The payload of a put, with or without expiry.
    Held(EntryKind, Bytes),
    /// Encoded place in a log of such a payload: see [`ValueLogs`].
    InLog(EntryKind, [u8; 28]),
    Deleted,
    /// An operand in its stored form ([`shamba_key::Operand`]).
    Operand(Bytes),
}

impl LogValue {
    /// Memory of the operation, without [`ENTRY_BYTES`].
    fn bytes(&self) -> usize {
        match self {
            Self::Held(_, payload) => payload.len(),
            Self::InLog(..) | Self::Deleted => 0,
            Self::Operand(stored) => OPERAND_BYTES + stored.len(),
        }
    }
}

/// The operations on one key from its newest put or delete on.
#[derive(Default)]
struct Kept {
    /// Oldest first. Those after the first one are operands.
    operations: Vec<(SeqNo, LogValue)>,
    /// Memory of the operations.
    bytes: usize,
}

impl Kept {
    /// Adds an operation that is newer than the others. A put or delete replaces them.
    fn add(&mut self, seq: SeqNo, value: LogValue) {
        if !matches!(value, LogValue::Operand(_)) {
            *self = Self::default();
        }
        self.bytes += value.bytes();
        self.operations.push((seq, value));
    }
}

/// The newest operations on a range of keys, as many as fit in memory.
#[derive(Default)]
struct NewestOperations {
    entries: BTreeMap<KeyOfKeyspace, Kept>,
    bytes: usize,
    /// Keys before this one were returned already.
    from: Option<KeyOfKeyspace>,
    /// Keys from this one on did not fit.
    until: Option<KeyOfKeyspace>,
}

impl NewestOperations {
    fn takes(&self, id: KeyspaceId, key: &[u8]) -> bool {
        let is_from = |place: &KeyOfKeyspace| (place.0, place.1.as_slice()) <= (id, key);
        self.from.as_ref().is_none_or(is_from) && !self.until.as_ref().is_some_and(is_from)
    }

    /// Keeps an operation that is newer than those before it; evicts the last keys if the window is
    /// too large.
    fn keep(&mut self, place: KeyOfKeyspace, seq: SeqNo, value: LogValue, bytes_max: usize) {
        let overhead = |place: &KeyOfKeyspace| ENTRY_BYTES + place.1.len();
        let place_bytes = overhead(&place);
        let kept = self.entries.entry(place).or_insert_with(|| {
            self.bytes += place_bytes;
            Kept::default()
        });
        self.bytes -= kept.bytes;
        kept.add(seq, value);
        self.bytes += kept.bytes;
        while self.bytes > bytes_max && self.entries.len() > 1 {
            let Some((place, kept)) = self.entries.pop_last() else { break };
            self.bytes -= overhead(&place) + kept.bytes;
            self.until = Some(place);
        }
    }

    /// Removes and returns the newest operation on the first key. One without operations is not
    /// kept.
    fn pop_first(&mut self) -> Option<(KeyOfKeyspace, SeqNo, LogValue)> {
        let mut first = self.entries.first_entry()?;
        let place = first.key().clone();
        let (seq, value) = first.get_mut().operations.pop()?;
        if first.get().operations.is_empty() {
            first.remove();
        }
        Some((place, seq, value))
    }
}

/// The readable content of the logs.
pub(super) struct LogContent<'a> {
    env: &'a Env,
    dir: &'a Path,
    numbers: Vec<LogNo>,
    options: ReplayOptions,
    /// Per keyspace: operations up to this sequence number are in tables already. `None` without a
    /// manifest.
    flushed: Option<BTreeMap<KeyspaceId, SeqNo>>,
    /// Keyspaces from this number on are not known to the manifest: it has lost their creation.
    next_id: u64,
    tombstones: Tombstones,
    values: ValueLogs,
    window: NewestOperations,
    /// Maximum size of the window.
    bytes_max: usize,
    /// The last sequence number in the logs.
    pub(super) last_seq: SeqNo,
}

impl<'a> LogContent<'a> {
    /// Reads the logs of the database in `dir`, and keeps about `bytes_max` of them.
    pub(super) fn read(
        env: &'a Env,
        dir: &'a Path,
        found: &mut Found,
        bytes_max: usize,
        report: &mut RepairReport,
    ) -> Result<Self> {
        let (numbers, mut broken) = readable(env, dir, found, report)?;
        let mut options = ReplayOptions {
            first_log: found.state.first_log,
            promise: found.state.log_promise,
            known_seq: found.state.last_seq,
            recovery: Recovery::Strict,
            held_bytes_max: Settings::default().held_value_bytes_max().min(bytes_max as u64 / 4),
        };
        if !found.is_whole {
            // Sequence numbers up to there may belong to writes that only tables hold, or that are
            // lost.
            options.known_seq = found.largest_seq().max(found.state.last_seq);
            options.first_log = first_of_chain(env, dir, &numbers, options.known_seq);
            options.promise = None;
        }
        if let Err(error) = replay(env, dir, &numbers, &options, &mut |_| Ok(())) {
            broken.get_or_insert((dir.to_path_buf(), error));
        }
        options.recovery = Recovery::PointInTime;
        let flushed = found.spaces.iter().map(|(id, space)| (*id, space.flushed));
        let mut content = Self {
            env,
            dir,
            numbers,
            options,
            flushed: found.is_whole.then(|| flushed.collect()),
            next_id: found.state.next_id,
            tombstones: Tombstones::new(),
            values: ValueLogs::default(),
            window: NewestOperations::default(),
            bytes_max,
            last_seq: SeqNo::ZERO,
        };
        let mut unnamed: BTreeMap<KeyspaceId, Option<KeyRange>> = BTreeMap::new();
        let replayed = content.replay(&mut |tombstones, id, seq, op| {
            if !found.spaces.contains_key(&id) {
                found.space(id, || format!("keyspace-{id}"));
                unnamed.insert(id, None);
            }
            match op {
                ReplayedOp::Op(OpRef::RangeDelete { start, end }) => {
                    let (start, end) = (Bytes::copy_from_slice(start), end.map(Bytes::copy_from_slice));
                    tombstones.entry(id).or_default().push(RangeTombstone { start, end, seq });
                }
                ReplayedOp::Op(
                    OpRef::Put { key, .. }
                    | OpRef::PutExpiring { key, .. }
                    | OpRef::Delete { key }
                    | OpRef::Merge { key, .. },
                )
                | ReplayedOp::PutInLog { key, .. } => {
                    if let Some(range) = unnamed.get_mut(&id) {
                        let one = only(key);
                        *range = Some(range.take().map_or(one.clone(), |range| range.hull(&one)));
                    }
                }
            }
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
        // Every write is in a log before it is in a table, so the last log must end after all
        // tables.
        if !found.is_whole && broken.is_none() && content.last_seq < found.largest_seq() {
            let detail = "a log is missing: the tables have later writes than the existing logs";
            broken = Some((dir.to_path_buf(), Error::corruption(dir, 0, "log file", detail)));
        }
        if let Some((path, error)) = broken {
            lose_writes(&path, &error, report);
        }
        for (id, range) in unnamed {
            let name = found.spaces.get(&id).map_or_else(String::new, |space| space.name.clone());
            let detail = format!("the name of keyspace {id} is lost: its writes are in {name:?}");
            let error = Error::corruption(dir, 0, "manifest", detail);
            report.lose(None, range, Loss::Entries, dir, &error);
        }
        found.report_renamed(dir, report);
        report.keyspaces = found.spaces.len() as u64;
        Ok(content)
    }

    /// Replays the logs into the window; `also` is called for every operation that is not in
    /// tables.
    fn replay(&mut self, also: &mut Also<'_>) -> Result<ReplayReport> {
        let Self { env, dir, numbers, options, flushed, next_id, tombstones, values, .. } = self;
        let (window, bytes_max) = (&mut self.window, &self.bytes_max);
        replay(env, dir, numbers, options, &mut |batch| {
            batch.for_each(&mut |seq, id, op| {
                let is_unknown = || u64::from(id.0) >= *next_id && !op.is_nothing();
                let is_wanted = |flushed: &BTreeMap<KeyspaceId, SeqNo>| {
                    flushed.get(&id).map_or_else(is_unknown, |flushed| seq > *flushed)
                };
                if !flushed.as_ref().is_none_or(is_wanted) {
                    return Ok(());
                }
                also(tombstones, id, seq, op);
                let (key, value) = match op {
                    ReplayedOp::Op(OpRef::RangeDelete { .. }) => return Ok(()),
                    ReplayedOp::Op(
                        OpRef::Put { key, .. }
                        | OpRef::PutExpiring { key, .. }
                        | OpRef::Delete { key }
                        | OpRef::Merge { key, .. },
                    )
                    | ReplayedOp::PutInLog { key, .. }
                        if !window.takes(id, key) =>
                    {
                        return Ok(());
                    }
                    ReplayedOp::Op(OpRef::Put { key, value }) => {
                        (key, LogValue::Held(EntryKind::Put, Bytes::copy_from_slice(value)))
                    }
                    ReplayedOp::Op(OpRef::PutExpiring { key, stored }) => {
                        (key, LogValue::Held(EntryKind::PutWithExpiry, Bytes::copy_from_slice(stored)))
                    }
                    ReplayedOp::Op(OpRef::Delete { key }) => (key, LogValue::Deleted),
                    ReplayedOp::Op(OpRef::Merge { key, operand }) => {
                        (key, LogValue::Operand(Bytes::copy_from_slice(operand)))
                    }
                    ReplayedOp::PutInLog { key, expiry, log, place } => {
                        values.add(log);
                        let kind = expiry.map_or(EntryKind::Put, |_| EntryKind::PutWithExpiry);
                        (key, LogValue::InLog(kind, place.encode()))
                    }
                };
                // Later batches have larger sequence numbers.
                window.keep((id, key.to_vec()), seq, value, *bytes_max);
                Ok(())
            })
        })
    }

    /// The directory of the logs.
    pub(super) fn dir(&self) -> &Path {
        self.dir
    }

    /// Removes and returns the range tombstones of a keyspace.
    pub(super) fn take_tombstones(&mut self, keyspace: KeyspaceId) -> Vec<RangeTombstone> {
        self.tombstones.remove(&keyspace).unwrap_or_default()
    }

    /// Returns the next operation on a key of `keyspace`: in the order of keys, the newest first;
    /// `None` at the end. Keyspaces must be requested in ascending order.
    pub(super) fn next(
        &mut self,
        keyspace: KeyspaceId,
        report: &mut RepairReport,
    ) -> Option<(Vec<u8>, SeqNo, LogValue)> {
        loop {
            if let Some(((id, _), _)) = self.window.entries.first_key_value() {
                if *id > keyspace {
                    return None;
                }
                let ((id, key), seq, value) = self.window.pop_first()?;
                if id == keyspace {
                    return Some((key, seq, value));
                }
                continue;
            }
            let from = self.window.until.take_if(|(id, _)| *id <= keyspace)?;
            self.window = NewestOperations { from: Some(from), ..NewestOperations::default() };
            if let Err(error) = self.replay(&mut |_, _, _, _| {}) {
                // The first replay succeeded, so this is a read error.
                lose_writes(self.dir, &error, report);
            }
        }
    }

    /// Reads a value that stays in a log.
    ///
    /// # Errors
    /// A read failed, or the value is damaged.
    pub(super) fn read_value(&self, place: &[u8]) -> Result<Bytes> {
        Ok(self.values.read_whole(place, &mut Reads::default())?.into())
    }
}

fn lose_writes(path: &Path, error: &Error, report: &mut RepairReport) {
    report.damaged(path, error, "writes since the last flush");
    report.lose(None, Some(KeyRange::everything()), Loss::Writes, path, error);
}

/// The range that contains only `key`.
pub(super) fn only(key: &[u8]) -> KeyRange {
    KeyRange { lower: Bytes::copy_from_slice(key), upper: Some(Bytes::from([key, &[0]].concat())) }
}

/// Returns the logs that can be replayed, and the first error of the others. An unreadable log ends
/// the sequence, unless a later one begins anew: without a manifest, older logs may be obsolete.
fn readable(
    env: &Env,
    dir: &Path,
    found: &Found,
    report: &mut RepairReport,
) -> Result<(Vec<LogNo>, Option<Broken>)> {
    let entries = env.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let names = entries.iter().map(|entry| &entry.name[..]);
    let mut numbers: Vec<LogNo> = log_numbers(names, found.is_whole.then_some(found.state.next_id)).collect();
    numbers.sort_unstable();
    let first = if found.is_whole { found.state.first_log } else { LogNo(0) };
    numbers.retain(|log| *log >= first);
    let surveys: Vec<_> =
        numbers.into_iter().map(|number| (number, SurveyedLog::survey(env, dir, number))).collect();
    let begins_anew = |log: &SurveyedLog| {
        let is_whole = matches!(&log.head, Ok((head, _)) if head.copy_of.is_none() || log.promise > 0);
        begins_chain(log) && is_whole
    };
    let anew = surveys.iter().rposition(|(_, log)| log.as_ref().is_ok_and(begins_anew));
    let obsolete = anew.filter(|_| !found.is_whole).unwrap_or(0);
    let mut broken: Option<Broken> = None;
    let mut good = Vec::new();
    for (at, (number, survey)) in surveys.into_iter().enumerate() {
        let path = dir.join(log_file_name(number));
        match survey {
            Err(error) if at < obsolete => {
                let error = damage_of(env, error)?;
                report.warn(format!("{}: not needed, a later log begins anew: {error}", path.display()));
            }
            Ok(_) if broken.is_none() => good.push(number),
            Ok(_) => {
                report.warn(format!("{}: not replayed, because it follows an unreadable log", path.display()))
            }
            Err(error) => {
                let error = damage_of(env, error)?;
                report.damaged(&path, &error, "writes since the last flush");
                broken.get_or_insert((path, error));
            }
        }
    }
    Ok((good, broken))
}

/// Whether the log begins a chain, and has more than its head.
fn begins_chain(log: &SurveyedLog) -> bool {
    log.head.is_ok() && log.follows().is_none() && log.has_more_than_head
}

/// Returns the first log of the newest chain, as far as the logs themselves state it. A recovery
/// begins a chain once everything before is in tables or copied to the first log of the chain. A
/// log with only a head may belong to a recovery that did not complete, and so may an unpromised
/// copy. Of a copy and the logs that it was made from, the one that reaches the higher sequence
/// number is chosen.
fn first_of_chain(env: &Env, dir: &Path, numbers: &[LogNo], known_seq: SeqNo) -> LogNo {
    let survey = |number: LogNo| SurveyedLog::survey(env, dir, number).ok();
    let begins = |number: &&LogNo| survey(**number).is_some_and(|log| begins_chain(&log));
    let begun = numbers.iter().rev().find(begins);
    let mut first = begun.or(numbers.first()).copied().unwrap_or_default();
    let reach = |first_log: LogNo| {
        let recovery = Recovery::PointInTime;
        let options = ReplayOptions { first_log, known_seq, recovery, ..ReplayOptions::default() };
        replay(env, dir, numbers, &options, &mut |_| Ok::<(), Error>(()))
            .map_or(SeqNo::ZERO, |report| report.last_seq)
    };
    // Terminates, because a copy is made from earlier logs.
    loop {
        let origin = match survey(first) {
            Some(SurveyedLog { head: Ok((head, _)), promise: 0, .. }) => head.copy_of,
            _ => None,
        };
        match origin.filter(|origin| numbers.contains(origin)) {
            Some(origin) if reach(origin) > reach(first) => first = origin,
            _ => return first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of `log` that windows should return: per key its newest put, and the operands
    /// after it.
    fn newest(log: &[(KeyOfKeyspace, u64, bool)]) -> BTreeMap<KeyOfKeyspace, Vec<u64>> {
        let mut newest: BTreeMap<KeyOfKeyspace, Vec<u64>> = BTreeMap::new();
        for (place, seq, is_operand) in log {
            let seqs = newest.entry(place.clone()).or_default();
            if !is_operand {
                seqs.clear();
            }
            seqs.insert(0, *seq);
        }
        newest
    }

    #[test]
    fn windows_one_after_the_other_hold_the_newest_operations_on_every_key() {
        let place = |number: u32| (KeyspaceId(number % 3), format!("k{:03}", number % 50).into_bytes());
        // Without operands, with some, and with so few puts that one key may exceed the window.
        for put_every in [1, 5, 399] {
            let log: Vec<(KeyOfKeyspace, u64, bool)> =
                (1..1_000u32).map(|seq| (place(seq * 7), u64::from(seq), seq % put_every != 0)).collect();
            let newest = newest(&log);
            for bytes_max in [1, 400, 5_000, 1 << 20] {
                let (mut told, mut window, mut passes) = (BTreeMap::new(), NewestOperations::default(), 0);
                loop {
                    for (place, seq, is_operand) in &log {
                        if window.takes(place.0, &place.1) {
                            let bytes = Bytes::from(vec![0; 10]);
                            let value = match is_operand {
                                true => LogValue::Operand(bytes),
                                false => LogValue::Held(EntryKind::Put, bytes),
                            };
                            window.keep(place.clone(), SeqNo(*seq), value, bytes_max);
                        }
                        let held: usize = window
                            .entries
                            .iter()
                            .map(|(at, kept)| ENTRY_BYTES + at.1.len() + kept.bytes)
                            .sum();
                        assert_eq!(window.bytes, held);
                        let is_one_key = window.entries.len() == 1;
                        assert!(window.bytes <= bytes_max || is_one_key, "{} bytes", window.bytes);
                    }
                    passes += 1;
                    while let Some((place, seq, value)) = window.pop_first() {
                        assert_eq!(matches!(value, LogValue::Operand(_)), seq.0 % u64::from(put_every) != 0);
                        told.entry(place).or_insert_with(Vec::new).push(seq.0);
                    }
                    let Some(from) = window.until.take() else { break };
                    window = NewestOperations { from: Some(from), ..NewestOperations::default() };
                }
                assert_eq!(told, newest, "{bytes_max}, a put every {put_every}");
                assert!((passes == 1) == (bytes_max == 1 << 20), "{bytes_max}: {passes} passes");
            }
        }
    }
}
