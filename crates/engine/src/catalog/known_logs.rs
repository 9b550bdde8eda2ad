//! The logs of an open database that hold a continuous part of its changes: those that it needs,
//! and obsolete ones that are kept for streams of changes.
//!
//! A log that is obsolete stays as long as all obsolete ones are within the limits of the option
//! `keep-log`; without it, it leaves the list at once. The oldest one always leaves first, so the
//! rest is still continuous. The file of a log that has left is deleted when nobody reads it
//! ([`super::obsolete`]). Each counts [`COUNTED_BYTES_MIN`] at least, so their number is bounded,
//! too.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use shamba_key::{LogNo, SeqNo};
use shamba_log::wal::ValueLog;

use super::obsolete::LogFile;
use crate::lock_order;
use crate::options::settings::KeepLog;
use crate::ranked::Ranked;

/// The least that a kept log counts. A log of a few bytes, as each flush and each open may leave,
/// costs a file, an entry of the list, and a read at each open. So a gigabyte is at most 16,384
/// logs.
const COUNTED_BYTES_MIN: u64 = 64 << 10;

/// Keeps the file of a log while it lives.
pub(crate) type LogPin = Arc<()>;

/// One log.
pub(crate) struct KnownLog {
    pub number: LogNo,
    pub path: PathBuf,
    /// The sequence number before its first batch.
    pub base_seq: SeqNo,
    /// The log before it, and the last sequence number in that one.
    pub follows: Option<(LogNo, SeqNo)>,
    /// Set once the entries are in tables.
    pub obsolete: Option<Kept>,
}

/// A log whose entries are in tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub bytes: u64,
    pub since_ms: u64,
    /// Kept alive by the memtables whose values are in the file.
    pub values: Weak<ValueLog>,
}

impl Kept {
    fn counted_bytes(&self) -> u64 {
        self.bytes.max(COUNTED_BYTES_MIN)
    }
}

/// The log after another one.
pub(crate) enum NextLog {
    /// It is the newest log.
    None,
    /// The next log, and the last sequence number in the one before.
    Log(LogNo, SeqNo),
    /// A log after it has left the list.
    Gone,
}

struct Listed {
    log: KnownLog,
    pin: LogPin,
}

/// A log that has left the list, and may be read on.
struct Left {
    number: LogNo,
    base_seq: SeqNo,
    readers: Weak<()>,
}

#[derive(Default)]
struct Logs {
    /// Oldest first.
    listed: VecDeque<Listed>,
    /// Those that have left the list and were read then.
    left: Vec<Left>,
}

/// The list of the logs, oldest first.
pub(crate) struct KnownLogs {
    keep: KeepLog,
    logs: Ranked<Logs>,
    /// The log at which the open ended the list because it could not be read, and why.
    unreadable: OnceLock<(LogNo, String)>,
}

impl KnownLogs {
    /// An empty list, in which obsolete logs stay within `keep`.
    pub fn new(keep: KeepLog) -> Self {
        let logs = Ranked::new(lock_order::KNOWN_LOGS, Logs::default());
        Self { keep, logs, unreadable: OnceLock::new() }
    }

    /// Whether obsolete logs are kept.
    pub fn keeps(&self) -> bool {
        self.keep.is_on()
    }

    /// Adds a log that is newer than the others.
    pub fn add(&self, log: KnownLog) {
        let mut logs = self.logs.lock();
        debug_assert!(
            logs.listed.back().is_none_or(|newest| newest.log.number < log.number
                && log.follows.is_some_and(|(before, _)| before == newest.log.number)),
            "log {} does not follow the newest one",
            log.number
        );
        logs.listed.push_back(Listed { log, pin: LogPin::default() });
    }

    /// Adds the log to which writes go from now on, after those up to `last_seq`.
    pub fn rotate(&self, number: LogNo, path: PathBuf, last_seq: SeqNo) {
        let before = self.logs.lock().listed.back().map(|newest| newest.log.number);
        let follows = before.map(|before| (before, last_seq));
        self.add(KnownLog { number, path, base_seq: last_seq, follows, obsolete: None });
    }

    /// Notes that the list begins after log `number`, which cannot be read.
    pub fn note_unreadable(&self, number: LogNo, why: String) {
        let _ = self.unreadable.set((number, why));
    }

    /// Why the log before the oldest one in the list cannot be read, if that is why it is not in
    /// the list.
    pub fn unreadable(&self) -> Option<&str> {
        let (number, why) = self.unreadable.get()?;
        let logs = self.logs.lock();
        let before = logs.listed.front()?.log.follows.map(|(before, _)| before);
        (before == Some(*number)).then_some(why)
    }

    /// Whether the log is in the list.
    pub fn contains(&self, number: LogNo) -> bool {
        self.logs.lock().listed.iter().any(|listed| listed.log.number == number)
    }

    /// The oldest log, and the sequence number before its first batch.
    pub fn oldest(&self) -> Option<(LogNo, SeqNo)> {
        self.logs.lock().listed.front().map(|oldest| (oldest.log.number, oldest.log.base_seq))
    }

    /// As [`Self::oldest`], among the logs that have left the list and are still read as well.
    pub fn oldest_read(&self) -> Option<(LogNo, SeqNo)> {
        let mut logs = self.logs.lock();
        logs.left.retain(|log| log.readers.strong_count() > 0);
        let listed = logs.listed.front().map(|oldest| (oldest.log.number, oldest.log.base_seq));
        logs.left.iter().map(|log| (log.number, log.base_seq)).chain(listed).min()
    }

    /// The newest log that has everything after `seq` that is in it or in an earlier one.
    pub fn find(&self, seq: SeqNo) -> Option<(LogNo, LogPin)> {
        let logs = self.logs.lock();
        let found = logs.listed.iter().rev().find(|listed| listed.log.base_seq <= seq)?;
        Some((found.log.number, Arc::clone(&found.pin)))
    }

    /// The log after log `number`.
    pub fn after(&self, number: LogNo) -> NextLog {
        let logs = self.logs.lock();
        match logs.listed.iter().find(|listed| listed.log.number > number).map(|next| &next.log) {
            Some(KnownLog { number: next, follows: Some((before, end)), .. }) if *before == number => {
                NextLog::Log(*next, *end)
            }
            Some(_) => NextLog::Gone,
            None if logs.listed.back().is_some_and(|newest| newest.log.number == number) => NextLog::None,
            None => NextLog::Gone,
        }
    }

    /// The log before log `number`, and the last sequence number in it.
    pub fn before(&self, number: LogNo) -> Option<(LogNo, SeqNo)> {
        let logs = self.logs.lock();
        logs.listed.iter().find(|listed| listed.log.number == number).and_then(|listed| listed.log.follows)
    }

    /// A pin of log `number`, if it is in the list.
    pub fn pin(&self, number: LogNo) -> Option<LogPin> {
        let logs = self.logs.lock();
        logs.listed.iter().find(|listed| listed.log.number == number).map(|listed| Arc::clone(&listed.pin))
    }

    /// Notes that the entries of a log are in tables. Returns a file that is not in the list.
    pub fn mark_obsolete(&self, log: LogFile, bytes: u64, now_ms: u64) -> Option<LogFile> {
        let mut logs = self.logs.lock();
        let Some(listed) = logs.listed.iter_mut().find(|listed| listed.log.path == log.path) else {
            return Some(log);
        };
        listed.log.obsolete = Some(Kept { bytes, since_ms: now_ms, values: log.values });
        None
    }

    /// Removes the logs that are obsolete and beyond the limits, and returns their files.
    pub fn expired(&self, now_ms: u64) -> Vec<LogFile> {
        let mut logs = self.logs.lock();
        logs.left.retain(|log| log.readers.strong_count() > 0);
        let kept = logs.listed.iter().filter_map(|listed| listed.log.obsolete.as_ref());
        let mut bytes: u64 = kept.map(Kept::counted_bytes).sum();
        let mut expired = Vec::new();
        // The newest log stays: it is the one that is written to.
        while logs.listed.len() > 1 {
            let Some(kept) = logs.listed.front().and_then(|oldest| oldest.log.obsolete.clone()) else {
                break;
            };
            let age_ms = u128::from(now_ms.saturating_sub(kept.since_ms));
            if self.keep.is_on() && bytes <= self.keep.bytes && age_ms <= self.keep.age.as_millis() {
                break;
            }
            let Some(Listed { log, pin }) = logs.listed.pop_front() else { break };
            bytes -= kept.counted_bytes();
            // Pins are made under this lock.
            if Arc::strong_count(&pin) > 1 {
                let (number, base_seq, readers) = (log.number, log.base_seq, Arc::downgrade(&pin));
                logs.left.push(Left { number, base_seq, readers });
            }
            expired.push(LogFile { path: log.path, values: kept.values, readers: Arc::downgrade(&pin) });
        }
        expired
    }

    /// Bytes of the obsolete logs that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.logs.lock().listed.iter().filter_map(|listed| Some(listed.log.obsolete.as_ref()?.bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn path(number: u64) -> PathBuf {
        PathBuf::from(format!("/{number}"))
    }

    /// Logs 1 to `count`; log N begins after 10 N.
    fn logs(keep: KeepLog, count: u64) -> KnownLogs {
        let logs = KnownLogs::new(keep);
        (1..=count).for_each(|number| logs.rotate(LogNo(number), path(number), SeqNo(10 * number)));
        logs
    }

    fn obsolete(logs: &KnownLogs, number: u64, bytes: u64, now_ms: u64) {
        let log = LogFile { path: path(number), ..LogFile::default() };
        assert!(logs.mark_obsolete(log, bytes, now_ms).is_none());
    }

    fn expired(logs: &KnownLogs, now_ms: u64) -> Vec<PathBuf> {
        logs.expired(now_ms).into_iter().map(|log| log.path).collect()
    }

    #[test]
    fn a_position_is_found_in_the_newest_log_that_begins_before_it() {
        let logs = logs(KeepLog::OFF, 3);
        let found = |seq| logs.find(SeqNo(seq)).map(|(log, _)| log.0);
        assert_eq!(
            [found(9), found(10), found(19), found(20), found(99)],
            [None, Some(1), Some(1), Some(2), Some(3)]
        );
        assert!(matches!(logs.after(LogNo(1)), NextLog::Log(LogNo(2), SeqNo(20))));
        assert!(matches!(logs.after(LogNo(3)), NextLog::None));
        assert!(matches!(logs.after(LogNo(9)), NextLog::Gone), "it has never been in the list");
        assert_eq!(logs.before(LogNo(3)), Some((LogNo(2), SeqNo(30))));
        assert_eq!((logs.before(LogNo(1)), logs.before(LogNo(9))), (None, None));
        let listed = [0, 1, 2, 3, 4].map(|number| logs.contains(LogNo(number)));
        assert_eq!(listed, [false, true, true, true, false]);
        let other = LogFile { path: path(7), ..LogFile::default() };
        assert!(logs.mark_obsolete(other, 5, 0).is_some(), "it is none of them");
    }

    #[test]
    fn obsolete_logs_leave_at_once_unless_they_are_kept_and_then_the_oldest_first() {
        let unkept = logs(KeepLog::OFF, 3);
        obsolete(&unkept, 2, 5, 0);
        assert_eq!(expired(&unkept, 0), Vec::<PathBuf>::new(), "the oldest one is needed");
        let pin = unkept.pin(LogNo(1)).expect("it is in the list");
        obsolete(&unkept, 1, 5, 0);
        let left = unkept.expired(0);
        assert_eq!(left.iter().map(|log| log.readers.strong_count()).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(unkept.oldest_read(), Some((LogNo(1), SeqNo(10))), "it is still read");
        assert_eq!(unkept.logs.lock().left.len(), 1, "only one of them was read");
        drop(pin);
        assert_eq!(left[0].readers.strong_count(), 0);
        assert_eq!(unkept.oldest_read(), Some((LogNo(3), SeqNo(30))));
        assert!(unkept.logs.lock().left.is_empty(), "logs that nobody reads are remembered");
        assert!(matches!(unkept.after(LogNo(2)), NextLog::Log(LogNo(3), SeqNo(30))));
        assert!(matches!(unkept.after(LogNo(1)), NextLog::Gone));

        let keep = KeepLog { bytes: 12 << 20, age: Duration::from_millis(100) };
        let kept = logs(keep, 5);
        (1..=4).for_each(|number| obsolete(&kept, number, 5 << 20, 10 * number));
        assert_eq!(kept.kept_bytes(), 20 << 20);
        assert_eq!(expired(&kept, 50), [path(1), path(2)], "over the bytes");
        assert_eq!(expired(&kept, 131), [path(3)], "over the age");
        assert_eq!((kept.oldest(), kept.kept_bytes()), (Some((LogNo(4), SeqNo(40))), 5 << 20));
        obsolete(&kept, 5, 99 << 20, 140);
        assert_eq!(expired(&kept, 1_000), [path(4)], "the newest one stays");

        let small = logs(KeepLog { age: Duration::MAX, ..keep }, 1_001);
        (1..=1_000).for_each(|number| obsolete(&small, number, 100, 0));
        assert_eq!(expired(&small, 0).len() as u64, 1_000 - (12 << 20) / COUNTED_BYTES_MIN);
        assert_eq!(small.kept_bytes(), 100 * (12 << 20) / COUNTED_BYTES_MIN, "those that they have");
    }
}
